//! Shares of tenants in millionths: of space, by their dominant resource, and of time.

use std::collections::BTreeMap;
use std::ops::Range;

use snic_fairness::drf::Share;
use snic_fairness::fluid::Cost;

use super::engine::Engine;
use super::flows::{AREA_UNITS, TenantOutcome};

/// A share, in millionths.
pub(super) fn ppm(share: Share) -> u32 {
    let scaled = u128::from(share.raw()) * 1_000_000 / u128::from(Share::ONE.raw());
    u32::try_from(scaled).unwrap_or(1_000_000)
}

/// Part of `all`, in millionths; more than all counts as all.
pub(super) fn ppm_of(part: u128, all: u128) -> u32 {
    let scaled = part.saturating_mul(1_000_000).checked_div(all).unwrap_or(0);
    u32::try_from(scaled.min(1_000_000)).unwrap_or(1_000_000)
}

/// A tenant's dominant resource, 0 for area and 1 for memory, and what it may have of what the card
/// has of it, in millionths. Whatever others do does not change what there is.
pub(super) fn dominant(outcome: &TenantOutcome, memory: u64) -> Option<(usize, u32)> {
    let card = [AREA_UNITS, memory];
    let parts = [0, 1].map(|k| u128::from(outcome.demand[k]) * u128::from(card[1 - k]));
    let k = usize::from(parts[1] > parts[0]);
    let ppm = ppm_of(outcome.allocation[k].into(), card[k].into());
    (outcome.demand != [0, 0]).then_some((k, ppm))
}

/// A dominant share over several cards, in millionths: `cards` has of each what the tenant may have
/// there (area in [`AREA_UNITS`], memory in pages), its LUTs and its pages.
pub(crate) fn daemon_share_ppm(cards: impl Iterator<Item = ([u64; 2], [u64; 2])>) -> u32 {
    let (mut has, mut all) = ([0_u128; 2], [0_u128; 2]);
    for ([area, memory], [luts, pages]) in cards {
        has[0] += u128::from(area) * u128::from(luts);
        has[1] += u128::from(memory);
        all[0] += u128::from(AREA_UNITS) * u128::from(luts);
        all[1] += u128::from(pages);
    }
    ppm_of(has[0], all[0]).max(ppm_of(has[1], all[1]))
}

/// The resource of which a tenant's flows take the largest part, and that part in millionths; the
/// first of equals. `flows` are those of the tenant: they follow each other.
pub(super) fn busiest(engine: &Engine, flows: Range<usize>) -> Option<(usize, u32)> {
    let capacities = &engine.topology().capacities;
    let part = |(k, used): (usize, u128)| (k, ppm_of(used, u128::from(capacities[k]) * ONE));
    let parts = used(engine, flows).into_iter().map(part);
    parts.reduce(|best, next| if next.1 > best.1 { next } else { best }).filter(|(_, p)| *p > 0)
}

/// The largest part that a tenant's flows take of any resource, in millionths, where all instances of an NT are one, and so
/// are the ports of regions: what fair sharing compares. Time O(resources) for each that the tenant uses.
pub(super) fn time_share(engine: &Engine, flows: Range<usize>) -> u32 {
    let topology = engine.topology();
    let group = |k: usize| topology.groups.get(k).map_or(k, |first| *first as usize);
    let mut parts: BTreeMap<usize, u128> = BTreeMap::new();
    for (k, used) in used(engine, flows) {
        *parts.entry(group(k)).or_default() += used;
    }
    let capacity = |of: usize| -> u128 {
        let all = topology.capacities.iter().enumerate().skip(of);
        all.filter(|(k, _)| group(*k) == of).map(|(_, capacity)| u128::from(*capacity)).sum()
    };
    parts.into_iter().map(|(of, used)| ppm_of(used, capacity(of) * ONE)).max().unwrap_or(0)
}

/// One bit per second of a resource in the unit of [`used`].
const ONE: u128 = Cost::ONE.raw() as u128;

/// Rates of a tenant's flows at each resource, times their costs there.
fn used(engine: &Engine, flows: Range<usize>) -> BTreeMap<usize, u128> {
    let mut used: BTreeMap<usize, u128> = BTreeMap::new();
    let own = engine.topology().flows[flows.clone()].iter();
    for (flow, rate) in own.zip(&engine.outcome().rates[flows]) {
        for (resource, cost) in &flow.uses {
            *used.entry(*resource).or_default() += u128::from(rate.get()) * u128::from(cost.raw());
        }
    }
    used
}

/// The flows of the tenant at `at`: tenants and flows are in the order of their names.
pub(super) fn flows_of(engine: &Engine, at: usize) -> Range<usize> {
    let flows = &engine.topology().flows;
    let first = |tenant: usize| flows.partition_point(|flow| (flow.tenant as usize) < tenant);
    first(at)..first(at + 1)
}
