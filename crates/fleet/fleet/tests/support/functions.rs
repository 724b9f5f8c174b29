//! Functions of a host: machines that have some, and what is kept for tenants. As a controller does it, in short.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::{CardId, FunctionUse, KeptForTenant, KeptState, TenantId};

/// All of it survives a crash.
#[derive(Debug, Clone, Default)]
pub struct HostFunctions {
    pub bound: BTreeMap<CardId, u32>,
    /// Reservations with their ends.
    pub kept: BTreeMap<u64, (KeptForTenant, Duration)>,
}

impl HostFunctions {
    pub fn keep(&mut self, now: Duration, all: Vec<KeptForTenant>) {
        let kept = all.into_iter().map(|mut of| {
            let before = self.kept.get(&of.number);
            of.used = of.used.max(before.map_or(0, |(before, _)| before.used));
            match before.filter(|(before, _)| before.revision >= of.revision) {
                Some(same) => (of.number, same.clone()),
                None => (of.number, (of.clone(), now + of.lasts)),
            }
        });
        self.kept = kept.collect();
    }

    /// Functions that are kept on a card for others than a tenant.
    pub fn of_others(&self, now: Duration, card: &CardId, tenant: &TenantId) -> u32 {
        let live = self.kept.values().filter(|(of, ends)| now < *ends && of.card == *card);
        let others = live.filter(|(of, _)| of.tenant != *tenant);
        others.map(|(of, _)| of.functions.saturating_sub(of.used)).sum()
    }

    /// Returns whether the tenant's machine got them.
    pub fn bind(
        &mut self,
        now: Duration,
        (card, all): (&CardId, u32),
        tenant: &TenantId,
        functions: u32,
    ) -> bool {
        let bound = self.bound.get(card).copied().unwrap_or_default();
        if bound + functions + self.of_others(now, card, tenant) > all {
            return false;
        }
        *self.bound.entry(card.clone()).or_default() += functions;
        let mut left = functions;
        let live = self.kept.values_mut().filter(|(of, ends)| now < *ends && of.card == *card);
        for (of, _) in live.filter(|(of, _)| of.tenant == *tenant) {
            let taken = of.functions.saturating_sub(of.used).min(left);
            of.used += taken;
            left -= taken;
        }
        true
    }

    pub fn report(&self, now: Duration) -> FunctionUse {
        let state = |(number, (of, ends)): (&u64, &(KeptForTenant, Duration))| {
            let is_over = *ends <= now;
            (*number, KeptState { revision: of.revision, used: of.used, is_over })
        };
        let kept = self.kept.iter().map(state).collect();
        FunctionUse { bound: self.bound.clone(), kept }
    }
}
