//! Subject of a request, from the names in it. Nothing is looked up: a decision cannot depend on what
//! exists, so it cannot tell anybody.

use snic_api::names::{
    BitstreamName, CardName, DagName, NtTypeName, OperationName, RegionName, ResourceName as _,
    RuleName, TenantName, VmBindingName,
};
use snic_domain::TenantId;

use crate::identity::CallerIdentity;

/// Longest name in bytes that is taken for one: the longest valid name is shorter.
const NAME_BYTES_MAX: usize = 256;

/// The types of resources that policies tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResourceType {
    /// All resources at once, as in a list over all tenants; also the server itself.
    Everything,
    /// A tenant, and what belongs to it as a whole.
    Tenant,
    Dag,
    /// An NT type.
    NtType,
    Bitstream,
    /// A classification rule.
    Rule,
    /// A long-running operation.
    Operation,
    /// A binding of a virtual machine.
    Binding,
    Card,
    /// A region of a card.
    Region,
    /// A text that is no name of a resource: the service will say so.
    Unknown,
}

/// A resource by its name, with what the name or the request says about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedResource {
    pub kind: ResourceType,
    /// Its name, such as `tenants/acme/dags/web`; empty for all resources at once and for none.
    pub name: String,
    /// Id of the tenant that owns it, if that is known.
    pub tenant: Option<String>,
    /// Id of the card that it is or belongs to.
    pub card: Option<String>,
}

impl NamedResource {
    /// All resources at once.
    pub const fn everything() -> Self {
        Self::bare(ResourceType::Everything)
    }

    const fn bare(kind: ResourceType) -> Self {
        Self { kind, name: String::new(), tenant: None, card: None }
    }

    /// A tenant, and what belongs to it as a whole.
    pub fn tenant(id: &str) -> Self {
        let name = format!("tenants/{id}");
        Self { kind: ResourceType::Tenant, name, tenant: Some(id.to_owned()), card: None }
    }

    /// The resource with this name; [`ResourceType::Unknown`] where it is none.
    pub fn named(name: &str) -> Self {
        use ResourceType::{
            Binding, Bitstream, Card, Dag, NtType, Operation, Region, Rule, Unknown,
        };
        let of = |kind, tenant: Option<&str>, card: Option<&str>| Self {
            kind,
            name: name.to_owned(),
            tenant: tenant.map(str::to_owned),
            card: card.map(str::to_owned),
        };
        match name.split('/').next().unwrap_or_default() {
            _ if name.len() > NAME_BYTES_MAX => Self::bare(Unknown),
            "tenants" => match (DagName::parse(name), TenantName::parse(name)) {
                (Ok(dag), _) => of(Dag, Some(dag.tenant), None),
                (_, Ok(tenant)) => Self::tenant(tenant.tenant),
                _ => Self::bare(Unknown),
            },
            "cards" => match (RegionName::parse(name), CardName::parse(name)) {
                (Ok(region), _) => of(Region, None, Some(region.card)),
                (_, Ok(card)) => of(Card, None, Some(card.card)),
                _ => Self::bare(Unknown),
            },
            _ => {
                let found = NtTypeName::parse(name).map(|found| of(NtType, owner(found.id), None));
                let found = found.or_else(|_| {
                    BitstreamName::parse(name).map(|found| of(Bitstream, owner(found.id), None))
                });
                let found = found.or_else(|_| {
                    RuleName::parse(name).map(|found| of(Rule, owner(found.rule), None))
                });
                let found = found
                    .or_else(|_| OperationName::parse(name).map(|_| of(Operation, None, None)));
                let found =
                    found.or_else(|_| VmBindingName::parse(name).map(|_| of(Binding, None, None)));
                found.unwrap_or_else(|_| Self::bare(Unknown))
            }
        }
    }

    /// Subject of a list or watch below this parent.
    pub fn below(parent: &str) -> Self {
        match parent {
            "" | "tenants/-" | "cards/-" => Self::everything(),
            parent => Self::named(parent),
        }
    }

    /// The same, owned by this tenant: the request says so, or it was looked up.
    #[must_use]
    pub fn owned_by(self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.to_owned()), ..self }
    }

    /// Whether it belongs to another tenant than the one that this identity acts for.
    pub fn is_foreign_to(&self, identity: &CallerIdentity) -> bool {
        let own = identity.tenant().map(TenantId::as_str);
        own.is_some() && self.tenant.is_some() && self.tenant.as_deref() != own
    }

    /// Subject as policies are asked about it. A tenant's request reaches only what the tenant owns or is
    /// published, which is decided where things are looked up. So for policies all that it asks about belongs to the
    /// tenant; a name of another tenant's resource counts as the caller's tenant itself.
    #[must_use]
    pub fn seen_by(&self, identity: &CallerIdentity) -> Self {
        match identity.tenant() {
            None => self.clone(),
            Some(own) if self.is_foreign_to(identity) || self.kind == ResourceType::Everything => {
                Self::tenant(own.as_str())
            }
            Some(own) => self.clone().owned_by(own.as_str()),
        }
    }
}

/// The owner of an id such as `acme.filter`.
fn owner(id: &str) -> Option<&str> {
    id.split_once('.').map(|(tenant, _)| tenant)
}
