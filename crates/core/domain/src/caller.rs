//! Callers of the API.

use crate::TenantId;

/// The caller of a request, as the front has authenticated it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Caller {
    /// Someone who runs the card.
    Operator(String),
    Tenant(TenantId),
    /// A program that starts and stops machines: it binds them, and sees nothing else.
    Orchestrator(String),
}

impl Caller {
    /// The tenant that calls; `None` for operators and orchestrators.
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Operator(_) | Self::Orchestrator(_) => None,
            Self::Tenant(tenant) => Some(tenant),
        }
    }

    /// Whether it may see and change what `owner` owns; `None` is the provider.
    pub fn may_change(&self, owner: Option<&TenantId>) -> bool {
        match self {
            Self::Operator(_) => true,
            Self::Tenant(tenant) => owner == Some(tenant),
            Self::Orchestrator(_) => false,
        }
    }

    /// A name of the caller for keys of the store, without `/`.
    pub fn key(&self) -> String {
        match self {
            Self::Operator(name) => format!("operator:{}", name.replace('/', "_")),
            Self::Tenant(tenant) => format!("tenant:{tenant}"),
            Self::Orchestrator(name) => format!("orchestrator:{}", name.replace('/', "_")),
        }
    }

    /// The tenant that has this [`Caller::key`], if it is a tenant's.
    pub fn tenant_of_key(key: &str) -> Option<TenantId> {
        key.strip_prefix("tenant:").and_then(|tenant| TenantId::new(tenant).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers() -> [Caller; 4] {
        let tenant = |name| Caller::Tenant(TenantId::new(name).expect("a tenant's name"));
        [
            Caller::Operator("acme".into()),
            tenant("acme"),
            tenant("globex"),
            Caller::Orchestrator("acme".into()),
        ]
    }

    #[test]
    fn operators_change_everything_tenants_their_own_and_orchestrators_nothing() {
        let acme = TenantId::new("acme").expect("a tenant's name");
        let may = |owner: Option<&TenantId>| callers().map(|caller| caller.may_change(owner));
        assert_eq!(may(Some(&acme)), [true, true, false, false]);
        assert_eq!(may(None), [true, false, false, false], "the provider's");
    }

    #[test]
    fn keys_differ_by_kind_and_name_and_lead_back_to_tenants_only() {
        let keys = callers().map(|caller| caller.key());
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key}");
            let tenant = Caller::tenant_of_key(key);
            assert_eq!(tenant.as_ref(), callers()[at].tenant(), "{key}");
        }
        assert!(!Caller::Operator("a/b".into()).key().contains('/'));
    }
}
