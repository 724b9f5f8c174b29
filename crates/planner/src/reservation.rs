//! Resources that a DAG takes of a card, as a value that a ledger holds and releases.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use snic_domain::limits::{CHAIN_ROWS, DAG_ROWS, INSTANCE_ROWS, STAGE_ROWS};
use snic_domain::{
    Bandwidth, ByteSize, CardProfile, Dag, Instance, Mapping, NodeId, NtType, RegionId, Slot,
};

use crate::PlanCatalogue;
use crate::catalogue::whole_pages;
use crate::work::{Passage, Work};

/// Rows of the card's tables, in rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRows {
    /// Of the DAG table.
    pub dags: u32,
    /// Of the stage table.
    pub stages: u32,
    /// Of the virtual-chain table.
    pub chains: u32,
    /// Of the instance table.
    pub instances: u32,
}

impl TableRows {
    /// The rows of a card (`snic_domain::limits`).
    pub const CARD: Self = Self {
        dags: DAG_ROWS as u32,
        stages: STAGE_ROWS as u32,
        chains: CHAIN_ROWS as u32,
        instances: INSTANCE_ROWS as u32,
    };

    /// No limit: for measuring how planning scales beyond a card's tables.
    pub const UNLIMITED: Self =
        Self { dags: u32::MAX, stages: u32::MAX, chains: u32::MAX, instances: u32::MAX };

    /// The rows that `mapping` takes.
    pub fn of(mapping: &Mapping) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            dags: 1,
            stages: count(mapping.stages.len()),
            chains: count(mapping.chains().count()),
            instances: count(mapping.instances().count()),
        }
    }

    pub(crate) fn zip(self, other: Self, f: impl Fn(u32, u32) -> u32) -> Self {
        Self {
            dags: f(self.dags, other.dags),
            stages: f(self.stages, other.stages),
            chains: f(self.chains, other.chains),
            instances: f(self.instances, other.instances),
        }
    }

    /// By table: its name, and the rows of `self` and of `other`.
    pub(crate) const fn beside(self, other: Self) -> [(&'static str, u32, u32); 4] {
        [
            ("DAG", self.dags, other.dags),
            ("stage", self.stages, other.stages),
            ("virtual-chain", self.chains, other.chains),
            ("instance", self.instances, other.instances),
        ]
    }
}

/// Bandwidth, credits and memory that a DAG takes of one NT instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotShare {
    pub(crate) region: RegionId,
    pub(crate) slot: Slot,
    pub(crate) bandwidth: Bandwidth,
    pub(crate) memory: ByteSize,
    /// In thousandths of one.
    #[serde(default)]
    pub(crate) credits: u64,
}

impl SlotShare {
    const fn place(&self) -> (RegionId, Slot) {
        (self.region, self.slot)
    }
}

/// What a DAG takes of the port of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortShare {
    pub(crate) region: RegionId,
    /// In cycles per second.
    pub(crate) cycles: u64,
}

/// Resources that a DAG takes: bandwidth, credits and memory by region and slot, ports by region, ingress,
/// egress, table rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// By region and slot, each once.
    pub(crate) shares: SmallVec<[SlotShare; 8]>,
    /// By region, each once.
    #[serde(default)]
    pub(crate) ports: SmallVec<[PortShare; 4]>,
    /// The DAG's own.
    #[serde(default)]
    pub(crate) bandwidth: Bandwidth,
    pub(crate) ingress: Bandwidth,
    pub(crate) egress: Bandwidth,
    pub(crate) rows: TableRows,
}

impl Reservation {
    /// The resources that `mapping` takes for `dag` of a card with this profile. NTs that the catalogue does not
    /// know count as using no memory and no time; a ledger counts memory by the contents of its regions.
    pub fn of(
        mapping: &Mapping,
        dag: &Dag,
        catalogue: &PlanCatalogue,
        profile: &CardProfile,
    ) -> Self {
        let mut sum = ReservationSum::new(Work::of(profile, dag, catalogue));
        for chain in mapping.chains() {
            let nts = chain.nodes.iter().map(|node| nt_of(node, dag, catalogue));
            let costs = nts.map(|nt| nt.map_or(NtCost::NONE, NtCost::of));
            sum.add(&chain.instances, costs);
        }
        sum.finish(dag.bandwidth(), TableRows::of(mapping))
    }

    /// The elementwise maximum of both. Held during an update, it covers the old and the new mapping,
    /// whichever bank of the tables is active.
    pub fn max(&self, other: &Self) -> Self {
        let mut shares = self.shares.clone();
        for share in &other.shares {
            match shares.binary_search_by_key(&share.place(), SlotShare::place) {
                Ok(at) => {
                    shares[at].bandwidth = shares[at].bandwidth.max(share.bandwidth);
                    shares[at].memory = shares[at].memory.max(share.memory);
                    shares[at].credits = shares[at].credits.max(share.credits);
                }
                Err(at) => shares.insert(at, *share),
            }
        }
        let mut ports = self.ports.clone();
        for port in &other.ports {
            match ports.binary_search_by_key(&port.region, |port| port.region) {
                Ok(at) => ports[at].cycles = ports[at].cycles.max(port.cycles),
                Err(at) => ports.insert(at, *port),
            }
        }
        Self {
            shares,
            ports,
            bandwidth: self.bandwidth.max(other.bandwidth),
            ingress: self.ingress.max(other.ingress),
            egress: self.egress.max(other.egress),
            rows: self.rows.zip(other.rows, u32::max),
        }
    }

    /// The regions with reservations, in ascending order, each once.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> {
        self.shares
            .iter()
            .enumerate()
            .filter(|(i, share)| *i == 0 || self.shares[i - 1].region != share.region)
            .map(|(_, share)| share.region)
    }

    /// What it takes of the port of a region, in cycles per second.
    pub(crate) fn port(&self, region: RegionId) -> u64 {
        let at = self.ports.binary_search_by_key(&region, |port| port.region);
        at.map_or(0, |at| self.ports[at].cycles)
    }

    /// What it takes of the credits of a slot, in thousandths of one.
    pub(crate) fn credits(&self, region: RegionId, slot: Slot) -> u64 {
        let at = self.shares.binary_search_by_key(&(region, slot), SlotShare::place);
        at.map_or(0, |at| self.shares[at].credits)
    }

    /// Bandwidth by region and slot, each place once.
    pub fn bandwidths(&self) -> impl Iterator<Item = (RegionId, Slot, Bandwidth)> {
        self.shares.iter().map(|share| (share.region, share.slot, share.bandwidth))
    }

    /// The DAG's bandwidth.
    pub const fn bandwidth(&self) -> Bandwidth {
        self.bandwidth
    }

    /// Bandwidth at the ingress: more than the DAG's where its packets waste part of a beat.
    pub const fn ingress(&self) -> Bandwidth {
        self.ingress
    }

    /// Bandwidth at the egress, in the same way.
    pub const fn egress(&self) -> Bandwidth {
        self.egress
    }

    /// On-board memory of all NT instances that it uses, in whole pages. DAGs of one tenant share the memory
    /// of an NT instance, so a ledger may count less.
    pub fn memory(&self) -> ByteSize {
        self.shares.iter().map(|share| share.memory).sum()
    }

    /// Rows of the card's tables.
    pub const fn rows(&self) -> TableRows {
        self.rows
    }
}

/// What one instance of an NT costs a DAG.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NtCost {
    pub(crate) way: Passage,
    /// In whole pages.
    memory: ByteSize,
}

impl NtCost {
    /// Of an NT that is not known.
    const NONE: Self = Self { way: Passage::NONE, memory: ByteSize::ZERO };

    pub(crate) fn of(nt: &NtType) -> Self {
        Self { way: Passage::of(nt), memory: whole_pages(nt.memory) }
    }
}

/// Sums up what the parts of a mapping take.
pub(crate) struct ReservationSum {
    work: Work,
    shares: SmallVec<[SlotShare; 8]>,
    ports: SmallVec<[PortShare; 4]>,
}

impl ReservationSum {
    pub(crate) fn new(work: Work) -> Self {
        Self { work, shares: SmallVec::new(), ports: SmallVec::new() }
    }

    /// Adds a virtual chain; `nts` are those of its nodes, in order.
    pub(crate) fn add(
        &mut self,
        instances: &[Instance],
        nts: impl Iterator<Item = NtCost> + Clone,
    ) {
        let work = &self.work;
        let round_trip = work.round_trip(Passage::through(nts.clone().map(|nt| nt.way)));
        for instance in instances {
            let (region, bandwidth) = (instance.region, instance.bandwidth);
            let credits = work.credits(bandwidth, round_trip);
            self.ports.push(PortShare { region, cycles: work.port(bandwidth) });
            for (nt, slot) in nts.clone().zip(&instance.slots) {
                let (slot, memory) = (*slot, nt.memory);
                self.shares.push(SlotShare { region, slot, bandwidth, memory, credits });
            }
        }
    }

    /// The sum, each place once.
    pub(crate) fn finish(self, bandwidth: Bandwidth, rows: TableRows) -> Reservation {
        let Self { work, mut shares, mut ports } = self;
        shares.sort_by_key(SlotShare::place);
        shares.dedup_by(|next, sum| {
            let same = next.place() == sum.place();
            if same {
                sum.bandwidth += next.bandwidth;
                sum.credits = sum.credits.saturating_add(next.credits);
            }
            same
        });
        ports.sort_by_key(|port| port.region);
        ports.dedup_by(|next, sum| {
            let same = next.region == sum.region;
            sum.cycles = sum.cycles.saturating_add(if same { next.cycles } else { 0 });
            same
        });
        let (ingress, egress) = (work.ingress(bandwidth), work.egress(bandwidth));
        Reservation { shares, ports, bandwidth, ingress, egress, rows }
    }
}

fn nt_of<'a>(node: &NodeId, dag: &Dag, catalogue: &'a PlanCatalogue) -> Option<&'a NtType> {
    let node = dag.nodes().iter().find(|n| n.id == *node)?;
    catalogue.nt(&node.nt)
}
