//! The NTs of a DAG on one model: each takes threads, memory and reception from what the ones before left.

use snic_domain::{Bandwidth, ByteSize, Dag, NodeId, NtTypeId};

use crate::choose::{Choice, Free, NoChoice, NtDemand, Offer, RegionOffer, choose};
use crate::model::NicModel;
use crate::option::Objection;

/// Whether a DAG can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fit {
    /// Every NT has an implementation that serves it.
    Yes,
    /// Some NT was measured, and what is free is not enough.
    No,
    /// Nobody measured some NT here, or what limits it.
    Unknown,
}

impl Fit {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

/// Where one NT of a DAG runs.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePlacement {
    /// The NT's name in the DAG.
    pub node: NodeId,
    pub nt: NtTypeId,
    pub demand: NtDemand,
    /// Its choice, or what every option lacks.
    pub choice: Result<Choice, NoChoice>,
}

impl NodePlacement {
    /// Whether this NT can be served.
    pub fn fit(&self) -> Fit {
        let is_unmeasured = |objection: &Objection| {
            matches!(objection, Objection::Unmeasured(_) | Objection::UnmeasuredLatency)
        };
        match &self.choice {
            Ok(_) => Fit::Yes,
            Err(none) if none.options.is_empty() => Fit::Unknown,
            // An option that lacks nothing but a measurement might serve it.
            Err(none) => {
                let mut options = none.options.iter();
                let open = options.any(|option| option.objections.iter().all(is_unmeasured));
                if open { Fit::Unknown } else { Fit::No }
            }
        }
    }
}

/// Places the NTs of a DAG in the order that packets pass, each for `bandwidth`, on what is free: on the model's
/// processors, or in regions of a card beside it, where `regions` says what an NT takes there. NTs do not share
/// threads or regions, and each receives the packets of the one before.
pub fn place(
    model: &NicModel,
    regions: impl Fn(&NtTypeId) -> Option<RegionOffer>,
    (dag, bandwidth): (&Dag, Bandwidth),
    mut free: Free,
) -> Vec<NodePlacement> {
    let mut nodes = Vec::with_capacity(dag.nodes().len());
    for &at in dag.topological_order() {
        let Some(node) = dag.nodes().get(at) else { continue };
        let demand = NtDemand {
            nt: node.nt.clone(),
            bandwidth,
            packets: dag.spec().packet_sizes.clone(),
            working_set: ByteSize::ZERO,
            is_latency_sensitive: dag.spec().latency_sensitive,
            latency_max: None,
        };
        let mut offers = Offer::of_model(model, &node.nt);
        offers.extend(regions(&node.nt).map(Offer::Region));
        let choice = choose(&demand, &offers, &free);
        if let Ok(choice) = &choice {
            free.take(&choice.taken);
        }
        let (node, nt) = (node.id.clone(), node.nt.clone());
        nodes.push(NodePlacement { node, nt, demand, choice });
    }
    nodes
}

/// Whether all NTs of a DAG can be served.
pub fn fit(nodes: &[NodePlacement]) -> Fit {
    let has = |fit: Fit| nodes.iter().any(|node| node.fit() == fit);
    match () {
        () if has(Fit::No) => Fit::No,
        () if has(Fit::Unknown) => Fit::Unknown,
        () => Fit::Yes,
    }
}
