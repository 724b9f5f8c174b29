//! Views of fairness: what a tenant asks for, what it has, and its limit.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use snic_autoscaler::target_millis;
use snic_domain::limits::PAGE_SIZE;
use snic_domain::{Bandwidth, ByteSize, CardId, DagName, TenantId, Timestamp};
use snic_fairness::drf::{self, Share};
use snic_fairness::fluid::Cost;
use snic_fairness::regions;

use super::area::AreaUse;
use super::card_loop::Loop;
use super::engine::{AREA_UNITS, Engine, TenantOutcome};
use super::topology::CardResource;
use crate::protocol::Fairness;
use crate::state::dags::Dags;

/// Distance of two recent points of a history.
pub const HISTORY_STEP: Duration = Duration::from_secs(1);
/// Recent points: two minutes.
const HISTORY_RECENT: usize = 120;
/// Distance of two older points.
const HISTORY_OLD_STEP: Duration = Duration::from_secs(15);
/// Points kept: an hour of older ones and the recent ones. About 15 KiB a tenant and card.
pub const HISTORY_KEPT: usize = 240 + HISTORY_RECENT;

/// Limit that keeps a tenant from more space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limiter {
    /// It has all it asks for.
    Demand,
    /// The card's area is given out.
    Area,
    /// The card's on-board memory is given out.
    Memory,
    /// Its own quota of on-board memory.
    MemoryQuota,
    /// It asks for nothing.
    Nothing,
}

/// A tenant at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FairnessPoint {
    pub at: Timestamp,
    /// Its share of its dominant resource in space, in millionths.
    pub space_ppm: u32,
    /// Its share of its dominant resource in time, in millionths.
    pub time_ppm: u32,
    /// Load of its DAGs.
    pub load: Bandwidth,
    pub served: Bandwidth,
}

/// A resource that a DAG's packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceUse {
    pub resource: CardResource,
    /// Capacity, in bits per second.
    pub capacity: u64,
    /// Cost of one bit per second of the DAG, in units of 2^-20.
    pub cost: u32,
}

/// Inputs of DRF for a tenant on a card, and its result. Area is in
/// [`AREA_UNITS`], memory in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceView {
    /// Demand of its DAGs: area and memory.
    pub demand: [u64; 2],
    /// Space to divide.
    pub capacity: [u64; 2],
    /// Most memory that it may have.
    pub memory_quota: Option<u64>,
    pub allocation: [u64; 2],
    /// Allocation on other cards of this daemon, in the units of this card.
    pub elsewhere: [u64; 2],
    /// Its share of the dominant resource's `capacity`, in units of 2^-54.
    pub share: Share,
}

/// One DAG of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagFairness {
    pub dag: DagName,
    pub admitted: Bandwidth,
    /// Load; `None` where it is not known yet.
    pub load: Option<Bandwidth>,
    pub served: Bandwidth,
    /// Rate of its token bucket.
    pub rate: Bandwidth,
    /// Bandwidth that is held for it.
    pub holds: Bandwidth,
    /// Bandwidth that it may hold by its tenant's fair share.
    pub fair: Bandwidth,
    /// Desired number of instances, in thousandths.
    pub target_millis: u64,
    /// Resource that keeps it below its load.
    pub limited_by: Option<CardResource>,
    /// The load that the last step counted with.
    pub counted: Bandwidth,
    /// Rate that the last step allotted of that.
    pub allotted: Bandwidth,
    /// That, and its part of what nobody used: what its token bucket follows.
    pub granted: Bandwidth,
    /// Area that one bit per second of it takes, in 2^-40 of [`AREA_UNITS`].
    pub area_per_bps: u64,
    /// Parts of that area.
    pub area_uses: Vec<AreaUse>,
    /// On-board memory that it asks for, in pages; what DAGs of a tenant share counts with the first
    /// of them, by name.
    pub memory_pages: u64,
    /// The resources that its packets pass.
    pub resources: Vec<ResourceUse>,
    /// Shortfall against the smaller of promise and load.
    pub shortfall: Bandwidth,
}

/// A tenant on one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FairnessView {
    pub tenant: TenantId,
    /// On which card.
    pub card: CardId,
    pub weight: u32,
    /// Area it asks for, in millionths of the card's.
    pub area_ppm: u32,
    /// On-board memory it asks for.
    pub memory: ByteSize,
    /// Dominant resource: area or memory; `None` where it asks for nothing.
    pub dominant: Option<Limiter>,
    /// Allocated part of that by DRF, in millionths of the card.
    pub space_ppm: u32,
    /// Limit that keeps it from more.
    pub limiter: Limiter,
    /// Whole regions that this share comes to.
    pub regions_own: u32,
    /// Rest beyond those, in thousandths of a region, to be served by sharing.
    pub regions_shared_millis: u32,
    /// The resource of packets of which it takes most now, and how much, in millionths.
    pub busiest: Option<(CardResource, u32)>,
    /// The number of the step that all of this is of: views of one card with one number were
    /// computed together.
    pub step: u64,
    /// Rules of sharing.
    pub rules: Fairness,
    /// Its demand and its share in the units in which they were computed.
    pub space: SpaceView,
    /// Its share of its dominant resource over all cards of this daemon, in millionths.
    pub daemon_ppm: u32,
    /// Its DAGs, by name.
    pub dags: Vec<DagFairness>,
    /// The last minutes, the oldest first.
    pub history: Vec<FairnessPoint>,
}

fn ppm(share: Share) -> u32 {
    let scaled = u128::from(share.raw()) * 1_000_000 / u128::from(Share::ONE.raw());
    u32::try_from(scaled).unwrap_or(1_000_000)
}

/// Part of `all`, in millionths; more than all counts as all.
fn ppm_of(part: u128, all: u128) -> u32 {
    let scaled = part.saturating_mul(1_000_000).checked_div(all).unwrap_or(0);
    u32::try_from(scaled.min(1_000_000)).unwrap_or(1_000_000)
}

const fn dominant_word(resource: usize) -> Limiter {
    if resource == 0 { Limiter::Area } else { Limiter::Memory }
}

/// A tenant's dominant resource, 0 for area and 1 for memory, and what it may have of what the card
/// has of it, in millionths. Whatever others do does not change what there is.
fn dominant(outcome: &TenantOutcome, memory: u64) -> Option<(usize, u32)> {
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

fn limiter(limit: drf::UserLimit) -> Limiter {
    match limit {
        drf::UserLimit::OwnCap => Limiter::Demand,
        drf::UserLimit::Capacity(0) => Limiter::Area,
        drf::UserLimit::Capacity(_) => Limiter::Memory,
        drf::UserLimit::Quota(_) => Limiter::MemoryQuota,
        drf::UserLimit::AsksNothing => Limiter::Nothing,
    }
}

/// The resource of which a tenant's flows take the largest part, and that part in millionths; the
/// first of equals. `flows` are those of the tenant: they follow each other.
fn busiest(engine: &Engine, flows: Range<usize>) -> Option<(usize, u32)> {
    let topology = engine.topology();
    let mut used: BTreeMap<usize, u128> = BTreeMap::new();
    for (flow, rate) in topology.flows[flows.clone()].iter().zip(&engine.outcome().rates[flows]) {
        for (resource, cost) in &flow.uses {
            *used.entry(*resource).or_default() += u128::from(rate.get()) * u128::from(cost.raw());
        }
    }
    let one = u128::from(Cost::ONE.raw());
    let part =
        |(k, used): (usize, u128)| (k, ppm_of(used, u128::from(topology.capacities[k]) * one));
    let parts = used.into_iter().map(part);
    parts.reduce(|best, next| if next.1 > best.1 { next } else { best }).filter(|(_, p)| *p > 0)
}

/// The flows of the tenant at `at`: tenants and flows are in the order of their names.
fn flows_of(engine: &Engine, at: usize) -> Range<usize> {
    let flows = &engine.topology().flows;
    let first = |tenant: usize| flows.partition_point(|flow| (flow.tenant as usize) < tenant);
    first(at)..first(at + 1)
}

impl Loop {
    /// Share of a tenant on the card `id`, which has this many regions; `None` where it has nothing there.
    pub fn fairness(
        &self,
        id: &CardId,
        regions: usize,
        dags: &Dags,
        tenant: &TenantId,
    ) -> Option<FairnessView> {
        let engine = self.engine.as_ref()?;
        let at = self.tenants.binary_search(tenant).ok()?;
        let outcome = engine.outcome().tenants.get(at)?;
        let shares: Vec<Share> = engine.outcome().tenants.iter().map(|t| t.space.share).collect();
        let whole = regions::divide(&shares, u32::try_from(regions).unwrap_or(u32::MAX)).ok();
        let whole = whole.as_ref().and_then(|whole| whole.get(at));
        let own = flows_of(engine, at).zip(&self.dags[flows_of(engine, at)]);
        let own: Vec<_> =
            own.filter_map(|(flow, name)| self.dag_fairness(dags, flow, name)).collect();
        if own.is_empty() {
            return None; // Its last DAG went since the step.
        }
        let topology = engine.topology();
        let shape = topology.tenants.get(at)?;
        let dominant = dominant(outcome, topology.memory);
        Some(FairnessView {
            tenant: tenant.clone(),
            card: id.clone(),
            step: self.steps,
            rules: engine.rules(),
            weight: shape.weight.get(),
            area_ppm: ppm_of(outcome.demand[0].into(), AREA_UNITS.into()),
            memory: ByteSize::from_bytes(outcome.demand[1].saturating_mul(PAGE_SIZE.get())),
            space: SpaceView {
                demand: outcome.demand,
                capacity: topology.space(),
                memory_quota: shape.memory_max,
                allocation: outcome.allocation,
                elsewhere: engine.elsewhere(at),
                share: outcome.space.share,
            },
            dominant: dominant.map(|(k, _)| dominant_word(k)),
            space_ppm: dominant.map_or(0, |(_, ppm)| ppm),
            daemon_ppm: 0, // Whoever knows the other cards says it.
            limiter: limiter(outcome.space.limit),
            regions_own: whole.map_or(0, |w| w.own),
            regions_shared_millis: whole.map_or(0, |w| ppm(w.shared) / 1_000),
            busiest: busiest(engine, flows_of(engine, at)).map(|(k, ppm)| (CardResource(k), ppm)),
            dags: own,
            history: self.history.get(tenant).into_iter().flatten().copied().collect(),
        })
    }

    /// Allocation of a tenant on the card: area in [`AREA_UNITS`], memory in pages.
    pub fn allocation(&self, tenant: &TenantId) -> [u64; 2] {
        let at = self.tenants.binary_search(tenant).ok();
        let outcome = self.engine.as_ref().map(Engine::outcome);
        let tenant = outcome.zip(at).and_then(|(outcome, at)| outcome.tenants.get(at));
        tenant.map_or([0, 0], |tenant| tenant.allocation)
    }

    /// All DAGs on the card. Time O(DAGs).
    pub fn all_dags(&self, dags: &Dags) -> Vec<DagFairness> {
        let named = self.dags.iter().enumerate();
        named.filter_map(|(flow, name)| self.dag_fairness(dags, flow, name)).collect()
    }

    fn dag_fairness(&self, dags: &Dags, flow: usize, name: &DagName) -> Option<DagFairness> {
        let entry = dags.get(name)?;
        let (topology, outcome) =
            (self.engine.as_ref()?.topology(), self.engine.as_ref()?.outcome());
        let shape = topology.flows.get(flow)?;
        let (admitted, fair, counted) =
            (shape.admitted, *outcome.fair.get(flow)?, *self.loads.get(flow)?);
        // The load that was computed with: another one may have been measured since.
        let load = entry.meter().load().map(|_| counted);
        let resource = |(k, cost): &(usize, Cost)| ResourceUse {
            resource: CardResource(*k),
            capacity: topology.capacities[*k],
            cost: cost.raw(),
        };
        Some(DagFairness {
            dag: name.clone(),
            admitted,
            load,
            served: entry.meter().served(),
            rate: entry.meter().rate(admitted),
            holds: entry.desired().map_or(Bandwidth::ZERO, |p| p.holds()),
            fair,
            target_millis: target_millis(load.unwrap_or(admitted), fair, *self.units.get(flow)?),
            limited_by: (*outcome.limits.get(flow)?).map(CardResource),
            counted,
            allotted: *outcome.rates.get(flow)?,
            granted: *outcome.grants.get(flow)?,
            area_per_bps: shape.area_per_bps,
            area_uses: self.area_uses.get(flow)?.clone(),
            memory_pages: shape.memory,
            resources: shape.uses.iter().map(resource).collect(),
            shortfall: entry.shortfall(),
        })
    }

    /// The shares of tenants with DAGs on the card as last written to their histories, in millionths:
    /// of its dominant resource in space, and in time. Time O(tenants).
    pub fn dominant_shares(&self) -> impl Iterator<Item = (&TenantId, u32, u32)> {
        let last = |tenant| Some((tenant, self.history.get(tenant)?.back()?));
        let points = self.tenants.iter().filter_map(last);
        points.map(|(tenant, point)| (tenant, point.space_ppm, point.time_ppm))
    }

    /// Adds a point to the history of every tenant of the card, when it is time; forgets those of
    /// tenants that are gone.
    pub fn write_history(
        &mut self,
        now: Timestamp,
        dags: &Dags,
        is_tenant: impl Fn(&TenantId) -> bool,
    ) {
        let Some(engine) = &self.engine else {
            return; // Too much for an engine: there is nothing to say of shares.
        };
        if now.since(self.written) < HISTORY_STEP {
            return;
        }
        self.written = now;
        self.history.retain(|tenant, _| is_tenant(tenant));
        for (at, tenant) in self.tenants.iter().enumerate() {
            let outcome = &engine.outcome().tenants[at];
            let mut point = FairnessPoint {
                at: now,
                space_ppm: dominant(outcome, engine.topology().memory).map_or(0, |(_, ppm)| ppm),
                time_ppm: busiest(engine, flows_of(engine, at)).map_or(0, |(_, ppm)| ppm),
                load: Bandwidth::ZERO,
                served: Bandwidth::ZERO,
            };
            let names = &self.dags[flows_of(engine, at)];
            for entry in names.iter().filter_map(|name| dags.get(name)) {
                point.load += entry.meter().load().unwrap_or_default();
                point.served += entry.meter().served();
            }
            add_point(self.history.entry(tenant.clone()).or_default(), point);
        }
    }
}

/// Adds a point. One that is not recent any more stays where the older one before it is far enough away.
fn add_point(history: &mut VecDeque<FairnessPoint>, point: FairnessPoint) {
    history.push_back(point);
    let Some(ages) = history.len().checked_sub(HISTORY_RECENT + 1) else { return };
    let before = ages.checked_sub(1).map(|before| history[before].at);
    if before.is_some_and(|before| history[ages].at.since(before) < HISTORY_OLD_STEP) {
        history.remove(ages);
    }
    if history.len() > HISTORY_KEPT {
        history.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_has_each_second_of_two_minutes_and_an_hour_of_older_ones() {
        let mut history = VecDeque::new();
        let at = |second: u64| Timestamp::from_nanos(second * 1_000_000_000);
        for second in 0..2 * 3_600 {
            let at = at(second);
            let none = Bandwidth::ZERO;
            let point = FairnessPoint { at, space_ppm: 0, time_ppm: 0, load: none, served: none };
            add_point(&mut history, point);
        }
        let seconds: Vec<u64> =
            history.iter().map(|point| point.at.as_nanos() / 1_000_000_000).collect();
        assert_eq!(seconds.len(), HISTORY_KEPT);
        let (old, recent) = seconds.split_at(240);
        assert!(recent.iter().copied().eq(7_200 - 120..7_200), "{recent:?}");
        assert!(old.windows(2).all(|pair| pair[1] - pair[0] == 15), "{old:?}");
        assert!(recent[0] - old[0] >= 3_585, "an hour");
    }
}
