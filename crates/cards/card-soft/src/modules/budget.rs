//! Budget of modules on the card's thread. All packets of a card are worked on by one thread: what a
//! tenant's modules take longer than their share, they are not called any more.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::Timestamp;

/// Part of the time that one tenant's modules may take, in thousandths.
const TENANT_SHARE: u64 = 100;
/// Part that the modules of all tenants may take together: with more than four tenants each gets less.
const CARD_SHARE: u64 = 400;
/// Time that a tenant may use at once.
const BURST: Duration = Duration::from_millis(10);
/// Time that one call counts at most: a packet has little fuel, and where it took longer, most of it was other work of the
/// machine.
pub(super) const CALL_MAX: Duration = Duration::from_millis(1);
/// The same for one that begins with a configuration, which has more fuel.
pub(super) const START_MAX: Duration = BURST;
/// Wait before looking again whether a tenant without modules has paid back what it used.
const PAYS_BACK: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Budget {
    /// In nanoseconds. One call may take it below zero.
    credit: i64,
    paid_at: Timestamp,
}

/// The budgets of the tenants that have modules.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    tenants: BTreeMap<u16, Budget>,
}

impl Budgets {
    /// Whether a tenant may use more.
    pub(super) fn has_some(&mut self, tenant: u16, now: Timestamp) -> bool {
        let most = BURST.as_nanos() as i64;
        let tenants = self.tenants.len().max(1) as u64;
        let share = TENANT_SHARE.min(CARD_SHARE / tenants).max(1);
        let fresh = || Budget { credit: most, paid_at: now };
        let budget = self.tenants.entry(tenant).or_insert_with(fresh);
        // A second is enough to fill it.
        let nanos = now.since(budget.paid_at).as_nanos().min(1_000_000_000) as u64;
        let paid = (nanos * share / 1_000) as i64;
        // What is less than a nanosecond is paid later.
        if paid > 0 {
            budget.credit = (budget.credit + paid).min(most);
            budget.paid_at = now;
        }
        budget.credit > 0
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// A tenant has used some.
    pub(super) fn charge(&mut self, tenant: u16, took: Duration) {
        if let Some(budget) = self.tenants.get_mut(&tenant) {
            budget.credit -= took.as_nanos() as i64;
        }
    }

    /// Forgets the tenants that have no modules any more and owe nothing: who deletes its DAG and makes another one has
    /// no new budget. Says when to look again where some owe.
    pub(super) fn retain(
        &mut self,
        now: Timestamp,
        has_modules: impl Fn(u16) -> bool,
    ) -> Option<Timestamp> {
        let gone: Vec<u16> =
            self.tenants.keys().copied().filter(|tenant| !has_modules(*tenant)).collect();
        let mut any_owes = false;
        for tenant in gone {
            // It is paid until now first.
            self.has_some(tenant, now);
            if self.tenants[&tenant].credit < BURST.as_nanos() as i64 {
                any_owes = true;
            } else {
                self.tenants.remove(&tenant);
            }
        }
        any_owes.then(|| now + PAYS_BACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tenants that use a call of 100 us whenever they may, each 10 us; what each used in a second.
    fn used_by(tenants: u16) -> Vec<Duration> {
        let mut budgets = Budgets::default();
        let mut used = vec![Duration::ZERO; tenants.into()];
        for micros in (0..1_000_000).step_by(10) {
            let now = Timestamp::ZERO + Duration::from_micros(micros);
            for tenant in 0..tenants {
                if budgets.has_some(tenant, now) {
                    let call = Duration::from_micros(100);
                    budgets.charge(tenant, call);
                    used[usize::from(tenant)] += call;
                }
            }
        }
        used
    }

    #[test]
    fn a_tenant_gets_its_share_and_all_together_no_more_than_theirs() {
        let near = |used: Duration, millis: u64| {
            let allowed = Duration::from_millis(millis);
            assert!(used.abs_diff(allowed) <= Duration::from_millis(1), "{used:?}: {allowed:?}");
        };
        // A tenth of a second, and what it may use at once.
        used_by(1).into_iter().for_each(|used| near(used, 110));
        used_by(4).into_iter().for_each(|used| near(used, 110));
        used_by(8).into_iter().for_each(|used| near(used, 60));
    }

    #[test]
    fn who_owes_is_remembered_until_it_has_paid() {
        let mut budgets = Budgets::default();
        let begun = Timestamp::ZERO;
        assert!(budgets.has_some(7, begun));
        budgets.charge(7, BURST);
        let again = budgets.retain(begun, |_| false).expect("it owes");
        assert!(!budgets.has_some(7, begun));
        assert_eq!(budgets.retain(again, |_| false), None);
        assert!(budgets.tenants.is_empty());
    }
}
