//! Items by owner: a plan may load those of the provider and of the DAG's tenant. Those of other tenants must not be looked at,
//! however much it is, so it is kept apart.

use std::collections::BTreeMap;

use snic_domain::TenantId;

/// Something of the provider, and of each tenant that has any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ByOwner<T> {
    provider: Option<T>,
    tenants: BTreeMap<TenantId, T>,
}

impl<T: Default> ByOwner<T> {
    /// Items of the provider, and of this tenant.
    pub(crate) fn loadable_by(&self, tenant: &TenantId) -> [Option<&T>; 2] {
        [self.provider.as_ref(), self.tenants.get(tenant)]
    }

    /// Items of an owner, for a change; `None` is the provider.
    pub(crate) fn entry(&mut self, owner: Option<&TenantId>) -> &mut T {
        match owner {
            None => self.provider.get_or_insert_default(),
            Some(owner) => self.tenants.entry(owner.clone()).or_default(),
        }
    }

    /// Changes what an owner has, if there is any, and drops it if `change` returns that nothing is left.
    pub(crate) fn shrink(&mut self, owner: Option<&TenantId>, change: impl FnOnce(&mut T) -> bool) {
        match owner {
            None => {
                if self.provider.as_mut().is_some_and(change) {
                    self.provider = None;
                }
            }
            Some(owner) => {
                if self.tenants.get_mut(owner).is_some_and(change) {
                    self.tenants.remove(owner);
                }
            }
        }
    }

    /// Items of all owners, the provider first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.provider.iter().chain(self.tenants.values())
    }

    /// Whether nobody has any.
    pub(crate) fn is_empty(&self) -> bool {
        self.provider.is_none() && self.tenants.is_empty()
    }
}
