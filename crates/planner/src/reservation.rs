//! What a DAG takes of a card, as a value that can be held and released.

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
    /// What a card has (`snic_domain::limits`).
    pub const CARD: Self = Self {
        dags: DAG_ROWS as u32,
        stages: STAGE_ROWS as u32,
        chains: CHAIN_ROWS as u32,
        instances: INSTANCE_ROWS as u32,
    };

    /// Rows without end: for measuring how planning grows beyond what a card's tables hold.
    pub const UNLIMITED: Self =
        Self { dags: u32::MAX, stages: u32::MAX, chains: u32::MAX, instances: u32::MAX };

    /// What `mapping` takes.
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

    /// Each table with its name, ours first and then the other's.
    pub(crate) const fn beside(self, other: Self) -> [(&'static str, u32, u32); 4] {
        [
            ("DAG", self.dags, other.dags),
            ("stage", self.stages, other.stages),
            ("virtual-chain", self.chains, other.chains),
            ("instance", self.instances, other.instances),
        ]
    }
}

/// What a DAG takes of one NT instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) region: RegionId,
    pub(crate) slot: Slot,
    pub(crate) bandwidth: Bandwidth,
    pub(crate) memory: ByteSize,
}

impl Share {
    const fn place(&self) -> (RegionId, Slot) {
        (self.region, self.slot)
    }
}

/// What a DAG takes: bandwidth and memory by region and slot, ingress, egress, table rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// By region and slot, each once.
    pub(crate) shares: SmallVec<[Share; 8]>,
    pub(crate) ingress: Bandwidth,
    pub(crate) egress: Bandwidth,
    pub(crate) rows: TableRows,
}

impl Reservation {
    /// What `mapping` takes for `dag`. Memory of NTs that the catalogue does not know counts as
    /// none; a ledger counts by what its regions hold.
    pub fn of(mapping: &Mapping, dag: &Dag, catalogue: &Catalogue) -> Self {
        let mut shares: SmallVec<[Share; 8]> = SmallVec::new();
        for chain in mapping.chains() {
            for instance in &chain.instances {
                for (node, slot) in chain.nodes.iter().zip(&instance.slots) {
                    let (region, bandwidth) = (instance.region, instance.bandwidth);
                    let memory = memory_of(node, dag, catalogue);
                    shares.push(Share { region, slot: *slot, bandwidth, memory });
                }
            }
        }
        shares.sort_by_key(Share::place);
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

    /// Elementwise the larger of both. Held while an update is under way, it covers the old
    /// mapping as well as the new one, whichever bank of the tables is active.
    pub fn max(&self, other: &Self) -> Self {
        let mut shares = self.shares.clone();
        for share in &other.shares {
            match shares.binary_search_by_key(&share.place(), Share::place) {
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

    /// The regions in which something is reserved, rising, each once.
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

    /// On-board memory of all NT instances it uses, in whole pages. DAGs of one tenant that use
    /// the same NT instance share its memory, so a ledger may count less.
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
