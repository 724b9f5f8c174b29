//! On-board memory: what a card allocates, and for whom.

use std::collections::BTreeMap;

use snic_domain::limits::PAGE_SIZE;
use snic_domain::{ByteSize, NtType, TenantId};

use crate::nt_key::NtKey;

/// Memory that a card allocates for an NT type, in whole pages: once for each tenant, for all of its DAGs on
/// the card and all instances. Usage, quotas, the ledger, the page table and fairness all count so.
pub fn allocated_memory(nt: &NtType) -> ByteSize {
    let page = PAGE_SIZE.get();
    ByteSize::from_bytes(nt.memory.get().div_ceil(page).saturating_mul(page))
}

/// A tenant's memory for one NT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Space {
    size: ByteSize,
    /// Shares of NT instances that use it.
    shares: u32,
}

/// The memory that reservations of a card use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    spaces: BTreeMap<TenantId, BTreeMap<NtKey, Space>>,
    total: ByteSize,
}

impl Memory {
    /// Memory allocated in all.
    pub(crate) const fn total(&self) -> ByteSize {
        self.total
    }

    /// Memory allocated for a tenant.
    pub(crate) fn of(&self, tenant: &TenantId) -> ByteSize {
        let spaces = self.spaces.get(tenant).into_iter().flat_map(BTreeMap::values);
        spaces.map(|space| space.size).sum()
    }

    /// Whether a tenant's DAGs use an NT already: one more takes no memory.
    pub(crate) fn has(&self, tenant: &TenantId, nt: NtKey) -> bool {
        self.spaces.get(tenant).is_some_and(|spaces| spaces.contains_key(&nt))
    }

    /// Counts a share of an NT in, which takes `size` if it is the tenant's first.
    pub(crate) fn take(&mut self, tenant: &TenantId, nt: NtKey, size: ByteSize) {
        if size == ByteSize::ZERO {
            return;
        }
        if !self.spaces.contains_key(tenant) {
            self.spaces.insert(tenant.clone(), BTreeMap::new());
        }
        let spaces = self.spaces.get_mut(tenant).expect("it was just made");
        let space = spaces.entry(nt).or_insert(Space { size, shares: 0 });
        if space.shares == 0 {
            self.total += size;
        }
        space.shares += 1;
    }

    /// Counts a share out that was counted in; the last one frees the space.
    pub(crate) fn give_back(&mut self, tenant: &TenantId, nt: NtKey) {
        let Some(spaces) = self.spaces.get_mut(tenant) else { return };
        let Some(space) = spaces.get_mut(&nt) else { return };
        space.shares -= 1;
        if space.shares == 0 {
            self.total = self.total - space.size;
            spaces.remove(&nt);
        }
        if spaces.is_empty() {
            self.spaces.remove(tenant);
        }
    }

    #[cfg(test)]
    pub(crate) fn add_to_total(&mut self, size: ByteSize) {
        self.total += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::nt;

    #[test]
    fn memory_is_allocated_in_whole_pages() {
        let page = PAGE_SIZE.get();
        let of = |bytes| {
            let memory = ByteSize::from_bytes(bytes);
            allocated_memory(&NtType { memory, ..nt("a", 1) }).get()
        };
        assert_eq!([0, 1, page - 1, page, page + 1].map(of), [0, 1, 1, 1, 2].map(|n| n * page));
        assert_eq!(of(u64::MAX), u64::MAX, "not around");
    }
}
