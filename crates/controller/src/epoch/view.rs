//! What callers see of fairness: what a tenant asks for, what it has, what keeps it from more.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use snic_autoscaler::target_millis;
use snic_domain::limits::PAGE_SIZE;
use snic_domain::{Bandwidth, ByteSize, CardId, DagName, TenantId, Timestamp};
use snic_fairness::drf::{self, Share};
use snic_fairness::regions;

use super::engine::{AREA_UNITS, Engine};
use super::run::{Loop, LoopFigures};
use super::topology::resource_name;
use crate::state::Controller;

/// How far two points of a history are apart.
pub const HISTORY_STEP: Duration = Duration::from_secs(1);
/// Points kept: five minutes.
pub const HISTORY_KEPT: usize = 300;

/// What keeps a tenant from more space.
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
    /// When.
    pub at: Timestamp,
    /// Its share of its dominant resource in space, in millionths.
    pub space_ppm: u32,
    /// Its share of its dominant resource in time, in millionths.
    pub time_ppm: u32,
    /// What its DAGs mean to send.
    pub load: Bandwidth,
    /// What came out.
    pub served: Bandwidth,
}

/// One DAG of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagFairness {
    /// Which.
    pub dag: DagName,
    /// What was promised.
    pub admitted: Bandwidth,
    /// What it means to send; `None` where that is not known yet.
    pub load: Option<Bandwidth>,
    /// What came out.
    pub served: Bandwidth,
    /// What its token bucket lets in.
    pub rate: Bandwidth,
    /// What is held for it.
    pub holds: Bandwidth,
    /// What it may hold by its tenant's fair share.
    pub fair: Bandwidth,
    /// How many instances it should have, in thousandths.
    pub target_millis: u64,
    /// What keeps it below its load.
    pub limited_by: Option<String>,
}

/// A tenant on one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FairnessView {
    /// Whose.
    pub tenant: TenantId,
    /// On which card.
    pub card: CardId,
    /// Its weight.
    pub weight: u32,
    /// Area it asks for, in millionths of the card's.
    pub area_ppm: u32,
    /// On-board memory it asks for.
    pub memory: ByteSize,
    /// What it asks most of, by fraction: area, or else memory; `None` where it asks for nothing.
    pub dominant: Option<Limiter>,
    /// Its share of that by DRF, in millionths.
    pub space_ppm: u32,
    /// What keeps it from more.
    pub limiter: Limiter,
    /// Whole regions that this share comes to.
    pub regions_own: u32,
    /// What it comes to beyond those, in thousandths of a region, to be served by sharing.
    pub regions_shared_millis: u32,
    /// The resource of packets of which it takes most now, and how much, in millionths.
    pub busiest: Option<(String, u32)>,
    /// Its DAGs, by name.
    pub dags: Vec<DagFairness>,
    /// The last minutes, the oldest first.
    pub history: Vec<FairnessPoint>,
}

fn ppm(share: Share) -> u32 {
    let scaled = u128::from(share.raw()) * 1_000_000 / u128::from(Share::ONE.raw());
    u32::try_from(scaled).unwrap_or(1_000_000)
}

/// Of what there is, in millionths; more than all counts as all.
fn ppm_of(part: u128, all: u128) -> u32 {
    let scaled = part.saturating_mul(1_000_000).checked_div(all).unwrap_or(0);
    u32::try_from(scaled.min(1_000_000)).unwrap_or(1_000_000)
}

fn limiter(limit: drf::Limit) -> Limiter {
    match limit {
        drf::Limit::OwnCap => Limiter::Demand,
        drf::Limit::Capacity(0) => Limiter::Area,
        drf::Limit::Capacity(_) => Limiter::Memory,
        drf::Limit::Quota(_) => Limiter::MemoryQuota,
        drf::Limit::AsksNothing => Limiter::Nothing,
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
    let one = u128::from(snic_fairness::fluid::Cost::ONE.raw());
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

impl Controller {
    /// What a tenant has on every card that it has DAGs on.
    pub fn fairness(&self, tenant: &TenantId) -> Vec<FairnessView> {
        let views = self.cards.iter().map(|(id, card)| (id, &card.epoch));
        views.filter_map(|(id, epoch)| self.fairness_view(id, epoch, tenant)).collect()
    }

    /// The shares of tenants with DAGs on a card as last written to their histories, in millionths:
    /// of its dominant resource in space, and in time. Time O(tenants).
    pub fn dominant_shares(&self, card: &CardId) -> impl Iterator<Item = (&TenantId, u32, u32)> {
        let epoch = self.cards.get(card).map(|card| &card.epoch);
        let tenants = epoch.into_iter().flat_map(|epoch| {
            epoch.tenants.iter().filter_map(|tenant| Some((tenant, epoch.history.get(tenant)?)))
        });
        tenants.filter_map(|(tenant, history)| {
            history.back().map(|point| (tenant, point.space_ppm, point.time_ppm))
        })
    }

    /// What the loop of a card did.
    pub fn loop_figures(&self, card: &CardId) -> Option<LoopFigures> {
        self.cards.get(card).map(|card| card.epoch.figures)
    }

    fn fairness_view(&self, id: &CardId, epoch: &Loop, tenant: &TenantId) -> Option<FairnessView> {
        let engine = epoch.engine.as_ref()?;
        let at = epoch.tenants.binary_search(tenant).ok()?;
        let outcome = engine.outcome().tenants.get(at)?;
        let regions = self.cards.get(id)?.profile.regions.len();
        let shares: Vec<Share> = engine.outcome().tenants.iter().map(|t| t.space.share).collect();
        let whole = regions::divide(&shares, u32::try_from(regions).unwrap_or(u32::MAX)).ok();
        let whole = whole.as_ref().and_then(|whole| whole.get(at));
        let dags = flows_of(engine, at).zip(&epoch.dags[flows_of(engine, at)]);
        let dominant = outcome.space.dominant;
        Some(FairnessView {
            tenant: tenant.clone(),
            card: id.clone(),
            weight: engine.topology().tenants.get(at)?.weight.get(),
            area_ppm: ppm_of(outcome.demand[0].into(), AREA_UNITS.into()),
            memory: ByteSize::from_bytes(outcome.demand[1].saturating_mul(PAGE_SIZE.get())),
            dominant: dominant.map(|k| if k == 0 { Limiter::Area } else { Limiter::Memory }),
            space_ppm: ppm(outcome.space.share),
            limiter: limiter(outcome.space.limit),
            regions_own: whole.map_or(0, |w| w.own),
            regions_shared_millis: whole.map_or(0, |w| ppm(w.shared) / 1_000),
            busiest: busiest(engine, flows_of(engine, at)).map(|(k, ppm)| (resource_name(k), ppm)),
            dags: dags.filter_map(|(flow, name)| self.dag_fairness(epoch, flow, name)).collect(),
            history: epoch.history.get(tenant).into_iter().flatten().copied().collect(),
        })
    }

    fn dag_fairness(&self, epoch: &Loop, flow: usize, name: &DagName) -> Option<DagFairness> {
        let entry = self.dags.get(name)?;
        let outcome = epoch.engine.as_ref()?.outcome();
        let admitted = entry.spec().bandwidth;
        let fair = *outcome.fair.get(flow)?;
        let load = entry.meter.load;
        Some(DagFairness {
            dag: name.clone(),
            admitted,
            load,
            served: entry.meter.served,
            rate: entry.meter.rate.unwrap_or(admitted).max(admitted),
            holds: entry.desired().map_or(Bandwidth::ZERO, |p| p.holds()),
            fair,
            target_millis: target_millis(load.unwrap_or(admitted), fair, *epoch.units.get(flow)?),
            limited_by: (*outcome.limits.get(flow)?).map(resource_name),
        })
    }

    /// Adds a point to the history of every tenant of a card, when it is time.
    pub(super) fn write_history(&mut self, id: &CardId) {
        let now = self.now;
        let Some(card) = self.cards.get_mut(id) else { return };
        let epoch = &mut card.epoch;
        let Some(engine) = &epoch.engine else { return };
        if now.since(epoch.written) < HISTORY_STEP {
            return;
        }
        epoch.written = now;
        let tenants = &self.registry;
        epoch.history.retain(|tenant, _| tenants.tenant(tenant).is_some());
        for (at, tenant) in epoch.tenants.iter().enumerate() {
            let Some(outcome) = engine.outcome().tenants.get(at) else { continue };
            let mut point = FairnessPoint {
                at: now,
                space_ppm: ppm(outcome.space.share),
                time_ppm: busiest(engine, flows_of(engine, at)).map_or(0, |(_, ppm)| ppm),
                load: Bandwidth::ZERO,
                served: Bandwidth::ZERO,
            };
            let names = &epoch.dags[flows_of(engine, at)];
            for entry in names.iter().filter_map(|name| self.dags.get(name)) {
                point.load += entry.meter.load.unwrap_or_default();
                point.served += entry.meter.served;
            }
            let history: &mut VecDeque<_> = epoch.history.entry(tenant.clone()).or_default();
            history.push_back(point);
            if history.len() > HISTORY_KEPT {
                history.pop_front();
            }
        }
    }
}
