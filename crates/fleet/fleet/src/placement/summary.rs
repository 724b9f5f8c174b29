//! Summary of a card that is asked before the planner is: a few numbers that follow from its ledger.

use smallvec::SmallVec;
use snic_domain::{Bandwidth, CardProfile, NtTypeId, RegionId, RegionKind, Slot};
use snic_planner::{Ledger, RegionCondition};

/// Bits for kinds of regions.
pub(super) type Kinds = u8;

pub(super) const fn kind_bit(kind: RegionKind) -> Kinds {
    match kind {
        RegionKind::KnownNt => 1,
        RegionKind::UserNt => 2,
    }
}

/// Capacity that a card has left. Each number is at most too large: a card that lacks it has no placement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub ingress_left: Bandwidth,
    pub egress_left: Bandwidth,
    /// Kinds of regions that can be loaded.
    pub loadable: Kinds,
    /// Nothing is loaded or reserved, and each region is usable: all such cards of a profile are alike.
    pub is_pristine: bool,
    /// Bandwidth that loaded chains have left of each NT; NTs without any are left out.
    pub nts: SmallVec<[(NtTypeId, Bandwidth); 8]>,
}

impl Summary {
    /// With so much of the ingress that may be promised, in percent.
    pub fn of(ledger: &Ledger, ingress_percent: u32) -> Self {
        let ingress = ledger.profile().ingress;
        let most = u128::from(ingress.get()) * u128::from(ingress_percent) / 100;
        let most = Bandwidth::from_bps(u64::try_from(most).unwrap_or(u64::MAX));
        let mut summary = Self {
            ingress_left: ledger
                .ingress_residual()
                .min(most.saturating_sub(ledger.ingress_reserved())),
            egress_left: ledger.egress_residual(),
            is_pristine: ledger.reservations().next().is_none(),
            ..Self::default()
        };
        for (region, profile) in ledger.profile().regions() {
            let is_usable = ledger.condition(region) == RegionCondition::Usable;
            summary.is_pristine &= is_usable && ledger.content(region).is_none();
            if is_usable {
                summary.add(ledger, region, profile.kind);
            }
        }
        summary.nts.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        summary
    }

    fn add(&mut self, ledger: &Ledger, region: RegionId, kind: RegionKind) {
        if ledger.is_replaceable(region) {
            self.loadable |= kind_bit(kind);
        }
        let Some(content) = ledger.content(region) else { return };
        for (slot, nt) in (0u8..).zip(&content.nts) {
            let left = ledger.residual(region, Slot(slot));
            if left == Bandwidth::ZERO {
                continue;
            }
            match self.nts.iter_mut().find(|(known, _)| known == nt) {
                Some((_, sum)) => *sum += left,
                None => self.nts.push((nt.clone(), left)),
            }
        }
    }

    /// Bandwidth that loaded chains have left of an NT.
    pub fn left(&self, nt: &NtTypeId) -> Bandwidth {
        let at = self.nts.binary_search_by(|(known, _)| known.cmp(nt));
        at.map_or(Bandwidth::ZERO, |at| self.nts[at].1)
    }

    /// Part of the ingress that is left, in thousand-millionths.
    pub fn left_ppb(&self, profile: &CardProfile) -> u64 {
        let part = u128::from(self.ingress_left.get()) * 1_000_000_000;
        u64::try_from(part / u128::from(profile.ingress.get().max(1))).unwrap_or(u64::MAX)
    }
}
