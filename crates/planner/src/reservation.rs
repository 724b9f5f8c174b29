//! Resources that a DAG takes of a card, as a value that a ledger holds and releases.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use snic_domain::limits::{CHAIN_ROWS, DAG_ROWS, INSTANCE_ROWS, STAGE_ROWS};
use snic_domain::{Bandwidth, ByteSize, Dag, Mapping, NodeId, RegionId, Slot};

use crate::Catalogue;
use crate::catalogue::whole_pages;

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

/// Bandwidth and memory that a DAG takes of one NT instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotShare {
    pub(crate) region: RegionId,
    pub(crate) slot: Slot,
    pub(crate) bandwidth: Bandwidth,
    pub(crate) memory: ByteSize,
}

impl SlotShare {
    const fn place(&self) -> (RegionId, Slot) {
        (self.region, self.slot)
    }
}

/// Resources that a DAG takes: bandwidth and memory by region and slot, ingress, egress, table rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// By region and slot, each once.
    pub(crate) shares: SmallVec<[SlotShare; 8]>,
    pub(crate) ingress: Bandwidth,
    pub(crate) egress: Bandwidth,
    pub(crate) rows: TableRows,
}

impl Reservation {
    /// The resources that `mapping` takes for `dag`. NTs that the catalogue does not know count as using no
    /// memory; a ledger counts memory by the contents of its regions.
    pub fn of(mapping: &Mapping, dag: &Dag, catalogue: &Catalogue) -> Self {
        let mut shares: SmallVec<[SlotShare; 8]> = SmallVec::new();
        for chain in mapping.chains() {
            for instance in &chain.instances {
                for (node, slot) in chain.nodes.iter().zip(&instance.slots) {
                    let (region, bandwidth) = (instance.region, instance.bandwidth);
                    let memory = memory_of(node, dag, catalogue);
                    shares.push(SlotShare { region, slot: *slot, bandwidth, memory });
                }
            }
        }
        shares.sort_by_key(SlotShare::place);
        shares.dedup_by(|next, sum| {
            let same = next.place() == sum.place();
            if same {
                sum.bandwidth += next.bandwidth;
            }
            same
        });
        let bandwidth = dag.bandwidth();
        Self { shares, ingress: bandwidth, egress: bandwidth, rows: TableRows::of(mapping) }
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
                }
                Err(at) => shares.insert(at, *share),
            }
        }
        Self {
            shares,
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

    /// Bandwidth by region and slot, each place once.
    pub fn bandwidths(&self) -> impl Iterator<Item = (RegionId, Slot, Bandwidth)> {
        self.shares.iter().map(|share| (share.region, share.slot, share.bandwidth))
    }

    /// Bandwidth at the ingress.
    pub const fn ingress(&self) -> Bandwidth {
        self.ingress
    }

    /// Bandwidth at the egress.
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

fn memory_of(node: &NodeId, dag: &Dag, catalogue: &Catalogue) -> ByteSize {
    dag.nodes()
        .iter()
        .find(|n| n.id == *node)
        .and_then(|n| catalogue.nt(&n.nt))
        .map_or(ByteSize::ZERO, |nt| whole_pages(nt.memory))
}
