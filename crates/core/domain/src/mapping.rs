//! Where a DAG sits on a card: stages, virtual chains, instances.
//!
//! A packet passes the stages in order. In a stage every branch gets a copy, the branches run side
//! by side, and the packet goes on when all are back (SuperNIC, 4.4). Each branch is one virtual
//! chain; each of its instances is one way to serve it: a region and the slots used there.
//!
//! ```text
//! stage 0            stage 1                 stage 2
//! [nat] ── fork ──┬─ [firewall] region 3 ─┬─ join ── [aes] region 5
//!                 └─ [cache]    region 4 ─┘          [aes] region 6   (two instances)
//! ```

use serde::{Deserialize, Serialize};

use crate::{Bandwidth, BitstreamId, CardId, NodeId, NtProgram, RegionId, Slot};

/// Execution of a DAG's forks (SuperNIC, Fig. 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    Sequential,
    /// Branches side by side: S2.
    Parallel,
}

/// A DAG's place on a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub card: CardId,
    /// Execution of forks.
    pub form: Form,
    /// In the order packets pass; at least one.
    pub stages: Vec<Stage>,
    /// On a card with processors: its NTs as programs, in the order that packets pass them; there are no
    /// stages then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<NtProgram>,
}

/// Virtual chains that run side by side; 1 to 4.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The virtual chains.
    pub branches: Vec<VirtualChain>,
}

/// A sequential part of a DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualChain {
    /// The nodes, in the order packets pass.
    pub nodes: Vec<NodeId>,
    /// The ways to serve it; packets are spread over them by their bandwidths.
    pub instances: Vec<Instance>,
}

/// One way to serve a virtual chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub region: RegionId,
    /// Desired content of the region.
    pub bitstream: BitstreamId,
    /// The slot of each node, strictly rising.
    pub slots: Vec<Slot>,
    /// Bandwidth reserved for it at each of these slots. Whole kbit/s, never zero; the instances of
    /// a virtual chain sum up to the DAG's bandwidth.
    pub bandwidth: Bandwidth,
}

impl Instance {
    /// The used mask of the card's instance table: bit `i` is set where slot `i` is used; packets
    /// skip the others.
    pub fn used_mask(&self) -> u8 {
        self.slots.iter().fold(0, |mask, slot| mask | 1u8.checked_shl(slot.0.into()).unwrap_or(0))
    }
}

impl Mapping {
    /// All virtual chains, stage by stage.
    pub fn chains(&self) -> impl Iterator<Item = &VirtualChain> {
        self.stages.iter().flat_map(|stage| &stage.branches)
    }

    /// All instances, stage by stage.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.chains().flat_map(|chain| &chain.instances)
    }

    /// Bandwidth that its programs serve at most, together; `None` where it has none.
    pub fn programs_serve(&self) -> Option<Bandwidth> {
        self.programs.iter().map(|program| program.serves).min()
    }

    /// Whether it has an instance in `region`.
    pub fn uses(&self, region: RegionId) -> bool {
        self.instances().any(|instance| instance.region == region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_used_mask_has_a_bit_for_each_slot() {
        let instance = Instance {
            region: RegionId(3),
            bitstream: BitstreamId::new("d").expect("valid"),
            slots: vec![Slot(1), Slot(5)],
            bandwidth: Bandwidth::from_gbps(1),
        };
        assert_eq!(instance.used_mask(), 0b0010_0010);
    }
}
