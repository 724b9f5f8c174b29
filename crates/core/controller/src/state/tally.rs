//! Counts a kind of resource by tenant, for quotas.

use std::collections::BTreeMap;

use snic_domain::TenantId;

/// A count for each tenant that has any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally(BTreeMap<TenantId, u32>);

impl Tally {
    /// Number of a tenant's items.
    pub fn of(&self, tenant: &TenantId) -> u32 {
        self.0.get(tenant).copied().unwrap_or(0)
    }

    pub fn add(&mut self, tenant: &TenantId) {
        *self.0.entry(tenant.clone()).or_default() += 1;
    }

    pub fn remove(&mut self, tenant: &TenantId) {
        let count = self.0.get_mut(tenant).expect("it was counted in");
        *count -= 1;
        if *count == 0 {
            self.0.remove(tenant);
        }
    }

    /// Whether it counts these, one for each.
    pub fn counts<'a>(&self, all: impl Iterator<Item = &'a TenantId>) -> bool {
        let mut again = Self::default();
        all.for_each(|tenant| again.add(tenant));
        *self == again
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tenant(number: u8) -> TenantId {
        TenantId::new(&format!("t{number}")).expect("a label")
    }

    proptest! {
        /// Whatever comes and goes: each tenant's count is how many of its things are there.
        #[test]
        fn each_tenant_is_counted_alone(steps in prop::collection::vec((0u8..4, any::<bool>()), 0..80)) {
            let (mut tally, mut there) = (Tally::default(), Vec::<u8>::new());
            for (number, adds) in steps {
                let at = there.iter().position(|of| *of == number);
                match (adds, at) {
                    (true, _) => {
                        tally.add(&tenant(number));
                        there.push(number);
                    }
                    (false, Some(at)) => {
                        tally.remove(&tenant(number));
                        there.swap_remove(at);
                    }
                    (false, None) => {}
                }
                for number in 0..4 {
                    let count = there.iter().filter(|of| **of == number).count();
                    prop_assert_eq!(tally.of(&tenant(number)) as usize, count);
                }
                let all: Vec<TenantId> = there.iter().map(|number| tenant(*number)).collect();
                prop_assert!(tally.counts(all.iter()));
                prop_assert!(!tally.counts(all.iter().chain([&tenant(9)])), "one more");
            }
        }
    }

    #[test]
    #[should_panic(expected = "it was counted in")]
    fn removing_an_uncounted_entry_changes_no_count() {
        Tally::default().remove(&tenant(0));
    }
}
