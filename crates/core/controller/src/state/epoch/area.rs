//! The area of a card that a DAG is charged for.
//!
//! A user's demand is Σ over its NTs of area × (bandwidth / the NT's maximum) (SuperNIC, 4.4). The area
//! of an NT in a region is its part of the region, by LUTs, among the NTs of the region that *its
//! tenant* uses. So a tenant that uses one NT of a region is charged for the region, in proportion
//! to its bandwidth, as if it were alone: nobody else's DAGs change what it is charged.
//!
//! Tenants that use different NTs of one region are together charged for more than it has. The
//! surplus is added to the area that can be allocated, so sharing leaves more for all.

use std::collections::BTreeMap;

use snic_domain::limits::REGIONS_MAX;
use snic_domain::{Bandwidth, CardProfile, NtTypeId, RegionId, Slot};

use super::flows::{AREA_BITS, AREA_UNITS, area_per_bps};
use super::on_card::OnCard;
use crate::store::records::Placement;

/// The slots that a tenant uses, by region: bit `i` is set where slot `i` is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsedSlots([u8; REGIONS_MAX]);

impl UsedSlots {
    /// Those of one of its DAGs, by region.
    pub fn add(&mut self, slots: &[(RegionId, u8)]) {
        for (region, mask) in slots {
            if let Some(used) = self.0.get_mut(region.index()) {
                *used |= mask;
            }
        }
    }

    fn of(&self, region: RegionId) -> u8 {
        self.0.get(region.index()).copied().unwrap_or_default()
    }

    /// The regions in which others are used, a bit for each.
    pub fn differing(&self, other: &Self) -> u32 {
        let both = (0..).zip(self.0.iter().zip(&other.0));
        both.filter(|(_, (a, b))| a != b).fold(0, |set, (region, _): (u32, _)| set | 1 << region)
    }
}

/// Area of one use of an NT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AreaUse {
    pub nt: NtTypeId,
    /// The region with the instance.
    pub region: RegionId,
    /// The NT's slot in it.
    pub slot: Slot,
    /// The NT's area, in [`AREA_UNITS`].
    pub area: u64,
    /// Bandwidth that the NT serves at most.
    pub bandwidth_max: Bandwidth,
    /// This instance's part of the virtual chain's bandwidth.
    pub instance: Bandwidth,
    /// The bandwidth of all instances of the virtual chain.
    pub chain: Bandwidth,
}

impl AreaUse {
    /// Area that one bit per second of the DAG takes here, in units of 2^-40, rounded up twice: for
    /// the NT, then for the instance's part of the virtual chain.
    fn per_bps(&self) -> u64 {
        let each = area_per_bps(self.area, self.bandwidth_max);
        let part = u128::from(each) * u128::from(self.instance.kbps());
        let part = part.div_ceil(u128::from(self.chain.kbps().max(1)));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// Area that what the instance holds takes, in [`AREA_UNITS`].
    fn held(&self) -> u64 {
        let held = u128::from(self.area) * u128::from(self.instance.get());
        let held = held / u128::from(self.bandwidth_max.get().max(1));
        u64::try_from(held).unwrap_or(u64::MAX)
    }
}

/// Area that one bit per second of a DAG takes, in units of 2^-40.
pub(super) fn per_bps(uses: &[AreaUse]) -> u64 {
    uses.iter().fold(0, |sum, of| sum.saturating_add(of.per_bps()))
}

/// Area that a promise takes, in [`AREA_UNITS`], rounded down.
pub(crate) fn area_of_promise(uses: &[AreaUse], promised: Bandwidth) -> u64 {
    let area = (u128::from(per_bps(uses)) * u128::from(promised.get())) >> AREA_BITS;
    u64::try_from(area).unwrap_or(u64::MAX)
}

/// The slots that a placement uses, by region, each once.
pub(super) fn slots(placement: &Placement) -> Vec<(RegionId, u8)> {
    let mut slots: BTreeMap<RegionId, u8> = BTreeMap::new();
    for instance in placement.mapping.instances() {
        *slots.entry(instance.region).or_default() |= instance.used_mask();
    }
    slots.into_iter().collect()
}

/// The area that is held, by region.
pub(super) fn held(uses: &[AreaUse]) -> Vec<(RegionId, u64)> {
    let mut held: BTreeMap<RegionId, u64> = BTreeMap::new();
    for of in uses {
        let sum = held.entry(of.region).or_default();
        *sum = sum.saturating_add(of.held());
    }
    held.into_iter().collect()
}

/// Held area of a card, by region.
#[derive(Debug, Default)]
pub(super) struct HeldArea(BTreeMap<RegionId, u64>);

impl HeldArea {
    /// That of one DAG, by region.
    pub fn add(&mut self, of_dag: &[(RegionId, u64)]) {
        for (region, more) in of_dag {
            let held = self.0.entry(*region).or_default();
            *held = held.saturating_add(*more);
        }
    }

    /// Area that can be given out: all there is, and what is held of a region beyond the region.
    pub fn available(&self, profile: &CardProfile) -> u64 {
        let beyond =
            |(region, held): (&RegionId, &u64)| held.saturating_sub(region_area(profile, *region));
        self.0.iter().map(beyond).fold(AREA_UNITS, u64::saturating_add)
    }
}

/// The part of a card's area that a region has, in [`AREA_UNITS`]: by LUTs, or equal where they are
/// not known.
fn region_area(profile: &CardProfile, region: RegionId) -> u64 {
    let all = profile.luts();
    let own = profile.region(region).map_or(0, |region| u64::from(region.area.lut));
    let (own, all) = if all == 0 { (1, profile.regions.len() as u64) } else { (own, all) };
    // A part of a billion: it fits.
    (u128::from(AREA_UNITS) * u128::from(own) / u128::from(all.max(1))) as u64
}

impl OnCard<'_> {
    /// Area of a placement, its tenant using these slots.
    pub(super) fn area_uses(&self, placement: &Placement, used: &UsedSlots) -> Vec<AreaUse> {
        let holds = |region| self.card.ledger().content(region).is_some();
        let is_held = placement.mapping.instances().all(|instance| holds(instance.region));
        assert!(is_held, "rows only lead to regions that hold a chain");
        self.uses_of(placement, used)
    }

    /// Area of a placement as if its DAG were alone on the card; none of a region that is to hold nothing.
    pub(crate) fn uses_alone(&self, placement: &Placement) -> Vec<AreaUse> {
        let mut used = UsedSlots::default();
        used.add(&slots(placement));
        self.uses_of(placement, &used)
    }

    fn uses_of(&self, placement: &Placement, used: &UsedSlots) -> Vec<AreaUse> {
        let mut uses = Vec::new();
        for virtual_chain in placement.mapping.chains() {
            let all = virtual_chain.instances.iter().map(|i| i.bandwidth.get()).sum();
            let chain = Bandwidth::from_bps(all);
            for instance in &virtual_chain.instances {
                let Some(content) = self.card.ledger().content(instance.region) else { continue };
                let used = used.of(instance.region);
                let is_used = |at: usize| used >> at & 1 == 1;
                let nts = || content.nts.iter().enumerate().filter(|(at, _)| is_used(*at));
                let all: u64 = nts().map(|(_, nt)| self.weight_of(nt)).sum();
                let region = region_area(self.card.profile(), instance.region);
                for slot in &instance.slots {
                    let Some(nt) = content.nts.get(slot.index()) else {
                        continue; // Its content is being replaced.
                    };
                    let serves = self.registry.nt(nt).map(|nt| nt.bandwidth_max);
                    uses.push(AreaUse {
                        nt: nt.clone(),
                        region: instance.region,
                        slot: *slot,
                        area: region * self.weight_of(nt) / all.max(1),
                        bandwidth_max: serves.unwrap_or_default(),
                        instance: instance.bandwidth,
                        chain,
                    });
                }
            }
        }
        uses
    }

    /// Area of an NT beside the others of its region; at least something.
    fn weight_of(&self, nt: &NtTypeId) -> u64 {
        self.registry.nt(nt).map_or(1, |nt| u64::from(nt.area.lut) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn of(region: u8, slot: u8, area: u64, gbps: (u64, u64)) -> AreaUse {
        let (instance, bandwidth_max) = gbps;
        AreaUse {
            nt: NtTypeId::new("nat").expect("an owned label"),
            region: RegionId(region),
            slot: Slot(slot),
            area,
            bandwidth_max: Bandwidth::from_gbps(bandwidth_max),
            instance: Bandwidth::from_gbps(instance),
            chain: Bandwidth::from_gbps(instance),
        }
    }

    /// SuperNIC's example: an NT of 4 units at 10 of 40 Gbit/s counts for 1.
    #[test]
    fn demand_is_area_by_the_part_of_the_bandwidth() {
        let per_bps = per_bps(&[of(0, 0, 4_000, (10, 40))]);
        let demand = (u128::from(per_bps) * 10_000_000_000) >> 40;
        assert_eq!(demand, 1_000);
    }

    /// Two instances of one virtual chain, of 30 and 10 Gbit/s: each counts for its part.
    #[test]
    fn instances_count_for_their_part_of_the_chain() {
        let chain = Bandwidth::from_gbps(40);
        let uses = [(0, 30), (1, 10)]
            .map(|(region, part)| AreaUse { chain, ..of(region, 0, 4_000, (part, 40)) });
        let demand = (u128::from(per_bps(&uses)) * 40_000_000_000) >> 40;
        assert_eq!(demand, 4_000, "as one instance of 40 Gbit/s");
    }

    #[test]
    fn capacity_held_beyond_a_region_can_be_distributed_again() {
        let profile = fixtures::profile(4);
        let region = region_area(&profile, RegionId(0));
        let mut held = HeldArea::default();
        held.add(&super::held(&[of(0, 0, region, (10, 10))]));
        assert_eq!(held.available(&profile), AREA_UNITS, "one tenant fills it");
        held.add(&super::held(&[of(0, 1, region, (5, 10))]));
        assert_eq!(held.available(&profile), AREA_UNITS + region / 2, "another half of it");
        held.add(&super::held(&[of(1, 0, region, (5, 10))]));
        assert_eq!(held.available(&profile), AREA_UNITS + region / 2, "each region by itself");
    }
}
