//! Views of fairness: what a tenant asks for, what it has, and its limit.

use snic_autoscaler::target_millis;
use snic_domain::limits::PAGE_SIZE;
use snic_domain::{Bandwidth, ByteSize, CardId, DagName, TenantId};
use snic_fairness::drf::{self, Share};
use snic_fairness::fluid::Cost;
use snic_fairness::regions;

use super::area::AreaUse;
use super::card_engine::LastStep;
use super::card_loop::CardLoop;
use super::flows::AREA_UNITS;
use super::history::FairnessPoint;
use super::shares::{busiest, dominant, flows_of, ppm, ppm_of, time_share};
use super::topology::CardResource;
use crate::protocol::Fairness;
use crate::state::dags::Dags;

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
    /// Largest part of a resource that its packets take, in millionths, where all instances of an NT are one.
    pub time_ppm: u32,
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

const fn dominant_word(resource: usize) -> Limiter {
    if resource == 0 { Limiter::Area } else { Limiter::Memory }
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

impl CardLoop {
    /// Share of a tenant on the card `id`, which has this many regions; `None` where it has nothing there.
    pub fn fairness(
        &self,
        id: &CardId,
        regions: usize,
        dags: &Dags,
        tenant: &TenantId,
    ) -> Option<FairnessView> {
        let step = self.last_step()?;
        let LastStep { engine, names, .. } = step;
        let at = names.tenants.binary_search(tenant).ok()?;
        let outcome = engine.outcome().tenants.get(at)?;
        let shares: Vec<Share> = engine.outcome().tenants.iter().map(|t| t.space.share).collect();
        let whole = regions::divide(&shares, u32::try_from(regions).unwrap_or(u32::MAX)).ok();
        let whole = whole.as_ref().and_then(|whole| whole.get(at));
        let own = flows_of(engine, at).zip(&names.dags[flows_of(engine, at)]);
        let own: Vec<_> =
            own.filter_map(|(flow, name)| dag_fairness(step, dags, flow, name)).collect();
        if own.is_empty() {
            return None; // Its last DAG went since the step.
        }
        let topology = engine.topology();
        let shape = topology.tenants.get(at)?;
        let dominant = dominant(outcome, topology.memory);
        Some(FairnessView {
            tenant: tenant.clone(),
            card: id.clone(),
            step: step.number,
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
            time_ppm: time_share(engine, flows_of(engine, at)),
            dags: own,
            history: self.history(tenant).copied().collect(),
        })
    }

    /// All DAGs on the card. Time O(DAGs).
    pub fn all_dags(&self, dags: &Dags) -> Vec<DagFairness> {
        let Some(step) = self.last_step() else { return Vec::new() };
        let named = step.names.dags.iter().enumerate();
        named.filter_map(|(flow, name)| dag_fairness(step, dags, flow, name)).collect()
    }
}

fn dag_fairness(
    step: LastStep<'_>,
    dags: &Dags,
    flow: usize,
    name: &DagName,
) -> Option<DagFairness> {
    let entry = dags.get(name)?;
    let (topology, outcome) = (step.engine.topology(), step.engine.outcome());
    let shape = topology.flows.get(flow)?;
    let (admitted, fair, counted) =
        (shape.admitted, *outcome.fair.get(flow)?, *step.loads.get(flow)?);
    let traffic = entry.meter().traffic();
    let resource = |(k, cost): &(usize, Cost)| ResourceUse {
        resource: CardResource(*k),
        capacity: topology.capacities[*k],
        cost: cost.raw(),
    };
    Some(DagFairness {
        dag: name.clone(),
        admitted,
        load: traffic.map(|traffic| traffic.offered),
        served: traffic.map_or(Bandwidth::ZERO, |traffic| traffic.served),
        rate: entry.meter().rate(admitted),
        holds: entry.desired().map_or(Bandwidth::ZERO, |p| p.holds()),
        fair,
        target_millis: target_millis(
            entry.meter().load().map_or(admitted, |_| counted),
            fair,
            *step.names.units.get(flow)?,
        ),
        limited_by: (*outcome.limits.get(flow)?).map(CardResource),
        counted,
        allotted: *outcome.rates.get(flow)?,
        granted: *outcome.grants.get(flow)?,
        area_per_bps: shape.area_per_bps,
        area_uses: step.names.area_uses.get(flow)?.clone(),
        memory_pages: shape.memory,
        resources: shape.uses.iter().map(resource).collect(),
        shortfall: entry.shortfall(),
    })
}
