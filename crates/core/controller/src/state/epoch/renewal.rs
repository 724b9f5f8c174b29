//! The part of a card's topology that is taken over from the one before: flows of DAGs for which nothing has changed.
//!
//! A flow follows from its DAG's promise and placement, the contents of its regions, the NT types, and the slots that its
//! tenant uses there. Where DAGs come and go these are the same for nearly all of a card, and to make all flows again
//! would take longer than anything else in a sample. A flow that is taken over is the one that would be made: a debug
//! build makes both.

use snic_domain::limits::REGIONS_MAX;
use snic_domain::{Bandwidth, BitstreamId, DagName, DagUid, NtTypeId, RegionId, TenantId};

use super::area::{AreaUse, UsedSlots};
use super::flows::{DagFlow, Topology};
use crate::state::dags::{DagEntry, DagNumber};
use crate::store::records::Placement;

/// A DAG that is in the target tables, and its placement there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served<'a> {
    pub number: DagNumber,
    pub entry: &'a DagEntry,
    pub placement: &'a Placement,
}

/// The part of a DAG that its flow was made from, and what follows from that alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlowBasis {
    pub uid: DagUid,
    /// Changes of the DAG until then.
    pub changes: u64,
    /// Serial of the placement.
    pub serial: u64,
    /// Slots that it uses, by region, each once.
    pub slots: Vec<(RegionId, u8)>,
    /// Held area, by region.
    pub held: Vec<(RegionId, u64)>,
    /// Pages of its NTs that need some.
    pub pages: Vec<(NtTypeId, u64)>,
}

impl FlowBasis {
    fn is_of(&self, Served { entry, placement, .. }: Served<'_>) -> bool {
        self.uid == entry.uid()
            && self.changes == entry.changes()
            && self.serial == placement.serial
    }

    /// Its regions, a bit for each.
    fn regions(&self) -> u32 {
        self.slots.iter().fold(0, |set, (region, _)| set | bit(*region))
    }
}

/// The bit of a region.
fn bit(region: RegionId) -> u32 {
    1u32.checked_shl(region.0.into()).unwrap_or(0)
}

/// All that a topology has of one DAG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedFlow {
    pub name: DagName,
    pub number: DagNumber,
    pub flow: DagFlow,
    /// Bandwidth of one more instance.
    pub unit: Bandwidth,
    pub area_uses: Vec<AreaUse>,
    pub basis: FlowBasis,
}

/// The parts of a card that all flows were made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CommonBasis {
    /// Changes of the catalogue until then.
    pub catalogue: u64,
    /// Content of each region.
    pub contents: Vec<Option<BitstreamId>>,
}

/// Names of a topology's tenants and flows, in its order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowNames {
    pub tenants: Vec<TenantId>,
    pub dags: Vec<DagName>,
    /// Number among all DAGs, for each DAG.
    pub numbers: Vec<DagNumber>,
    /// Bandwidth of one more instance, for each DAG.
    pub units: Vec<Bandwidth>,
    /// Parts of its area, for each DAG.
    pub area_uses: Vec<Vec<AreaUse>>,
    /// Basis of its flow, for each DAG.
    pub(super) bases: Vec<FlowBasis>,
    /// Slots that it uses, for each tenant.
    pub(super) used: Vec<UsedSlots>,
    pub(super) common: CommonBasis,
}

/// A card's flows and resources, with their names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedTopology {
    pub topology: Topology,
    pub names: FlowNames,
}

impl NamedTopology {
    pub(super) fn push(&mut self, of: NamedFlow) {
        let NamedFlow { name, number, flow, unit, area_uses, basis } = of;
        self.topology.flows.push(flow);
        self.names.dags.push(name);
        self.names.numbers.push(number);
        self.names.units.push(unit);
        self.names.area_uses.push(area_uses);
        self.names.bases.push(basis);
    }
}

/// A topology that is to be replaced.
#[derive(Debug)]
pub(super) struct FormerTopology {
    /// Number of the engine that had it: DAGs know their flows by it.
    engine: u64,
    tenants: Vec<TenantId>,
    /// Slots that each of these tenants used.
    used: Vec<UsedSlots>,
    capacities: (Vec<u64>, Vec<u32>),
    flows: Vec<Option<NamedFlow>>,
    /// Regions that hold something else now, a bit for each.
    changed: u32,
}

impl FormerTopology {
    /// `None` where nothing can be taken over: another catalogue is in force.
    pub fn new(named: NamedTopology, engine: u64, now: &CommonBasis) -> Option<Self> {
        let NamedTopology { topology, names } = named;
        if names.common.catalogue != now.catalogue {
            return None;
        }
        let changed = (0..REGIONS_MAX)
            .filter(|at| names.common.contents.get(*at) != now.contents.get(*at))
            .fold(0, |set, at| set | 1u32 << at);
        let flows = topology.flows.into_iter().zip(names.dags).zip(names.numbers).zip(names.units);
        let flows = flows.zip(names.area_uses).zip(names.bases);
        let named = |(((((flow, name), number), unit), area_uses), basis)| {
            Some(NamedFlow { name, number, flow, unit, area_uses, basis })
        };
        Some(Self {
            engine,
            tenants: names.tenants,
            used: names.used,
            capacities: (topology.capacities, topology.groups),
            flows: flows.map(named).collect(),
            changed,
        })
    }

    /// Capacities of all resources, where no region holds something else.
    pub fn capacities(&mut self) -> Option<(Vec<u64>, Vec<u32>)> {
        (self.changed == 0).then(|| std::mem::take(&mut self.capacities))
    }

    /// Flow of a DAG, if it is as it would be made now but for what its tenant uses.
    pub fn find(&self, of: Served<'_>) -> Option<usize> {
        let at = of.entry.meter().flow_of(self.engine)?;
        let basis = &self.flows.get(at)?.as_ref()?.basis;
        (basis.is_of(of) && basis.regions() & self.changed == 0).then_some(at)
    }

    /// Basis of a flow.
    pub fn basis(&self, at: usize) -> Option<&FlowBasis> {
        Some(&self.flows.get(at)?.as_ref()?.basis)
    }

    /// Regions in which a tenant uses other slots than before, a bit for each.
    pub fn differing(&self, tenant: &TenantId, used: &UsedSlots) -> u32 {
        let before = self.tenants.binary_search(tenant).ok().and_then(|at| self.used.get(at));
        before.map_or(u32::MAX, |before| used.differing(before))
    }

    /// Takes a flow over, if it is of none of these regions.
    pub fn take(&mut self, at: usize, but_of: u32) -> Option<NamedFlow> {
        let flow = self.flows.get_mut(at)?;
        flow.take_if(|flow| flow.basis.regions() & but_of == 0)
    }
}
