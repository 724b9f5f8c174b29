//! Flows and resources of a card, and the outcome of one step: what goes into the engine and what comes out of it.

use snic_domain::Bandwidth;
use snic_fairness::Weight;
use snic_fairness::drf;
use snic_fairness::fluid::Cost;

/// The area of a card's regions, in the units of demands: demands are exact to a billionth of it.
pub const AREA_UNITS: u64 = 1_000_000_000;
/// Resources of a [`DagFlow`] below this are of regions: NT slots, and then a port for each region. More
/// instances add to them, and to no other.
pub const OF_REGIONS: usize =
    snic_domain::limits::REGIONS_MAX * (snic_domain::limits::CHAIN_SLOTS_MAX + 1);

/// Bits after the point of a [`DagFlow::area_per_bps`].
pub(super) const AREA_BITS: u32 = 40;

/// A tenant of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantShape {
    pub weight: Weight,
    /// Most on-board memory it may have, in pages.
    pub memory_max: Option<u64>,
}

/// A DAG on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagFlow {
    /// Owner: a position in [`Topology::tenants`].
    pub tenant: u32,
    pub admitted: Bandwidth,
    /// Resources it passes, with what a bit per second costs there.
    pub uses: Vec<(usize, Cost)>,
    /// Area that one bit per second takes: see [`area_per_bps`].
    pub area_per_bps: u64,
    /// On-board memory of its NTs, in pages.
    pub memory: u64,
}

/// Area that one bit per second takes of an NT that takes `part` of [`AREA_UNITS`] and serves
/// `maximum`, in units of 2^-40, rounded up; an NT that serves nothing takes none.
pub fn area_per_bps(part: u64, maximum: Bandwidth) -> u64 {
    let scaled = u128::from(part) << AREA_BITS;
    let each = if maximum == Bandwidth::ZERO { 0 } else { scaled.div_ceil(maximum.get().into()) };
    u64::try_from(each).unwrap_or(u64::MAX)
}

/// Flows and resources of a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Capacity of each resource, in bits per second. Those of regions first: see [`OF_REGIONS`].
    pub capacities: Vec<u64>,
    /// Number of the first resource that is an instance of the same: shares are of all of them together. Empty: each
    /// resource is alone.
    pub groups: Vec<u32>,
    /// Area that can be given out, in [`AREA_UNITS`]: more than there is where tenants use different
    /// NTs of one region, for each of them is charged as if it were alone. Less than all counts as
    /// all.
    pub area: u64,
    /// On-board memory, in pages.
    pub memory: u64,
    /// The tenants, by id.
    pub tenants: Vec<TenantShape>,
    /// The DAGs, by name.
    pub flows: Vec<DagFlow>,
}

impl Topology {
    /// Space that DRF divides: area in [`AREA_UNITS`], memory in pages.
    pub fn space(&self) -> [u64; 2] {
        [self.area.max(AREA_UNITS), self.memory]
    }
}

/// Outcome for a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantOutcome {
    /// Demanded area in [`AREA_UNITS`], and memory in pages.
    pub demand: [u64; 2],
    /// Allocated part of that.
    pub allocation: [u64; 2],
    /// Its dominant resource, its share of [`Topology::space`], and what kept it from more.
    pub space: drf::UserOutcome,
}

/// Result of one step, by flow and by tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochOutcome {
    /// Rates that token buckets let in, by flow.
    pub grants: Vec<Bandwidth>,
    /// Served part of the load, by flow.
    pub rates: Vec<Bandwidth>,
    /// Resource that keeps a flow below its load, by flow.
    pub limits: Vec<Option<usize>>,
    /// Rate that its instances could serve, the others' rates being what they are, by flow.
    pub reach: Vec<Bandwidth>,
    /// Rate that it may hold by its tenant's fair share of the space, by flow.
    pub fair: Vec<Bandwidth>,
    /// Outcomes of tenants.
    pub tenants: Vec<TenantOutcome>,
    /// Whether every flow has min(load, promised).
    pub guaranteed: bool,
}
