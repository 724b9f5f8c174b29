//! DAGs of network tasks: the spec that a tenant submits, and its validated form.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::limits::{
    AFFINITY_DAGS_MAX, DAG_BANDWIDTH_MAX, DAG_BANDWIDTH_MIN, DAG_CONFIGURATION_BYTES_MAX,
    DAG_LATENCY_BOUND_MAX, DAG_NODES_MAX, FORK_BRANCHES_MAX, TRUSTED_TENANTS_MAX,
};
use crate::{
    Bandwidth, Bitstream, CardAffinity, DagName, InvalidPacketSizes, LatencyBound, NodeId, Notes,
    NotesPatch, NtConfiguration, NtTypeId, PacketSizes, TenantId,
};

/// Execution of forks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormPreference {
    /// Whichever is faster: see the planner.
    #[default]
    Auto,
    /// One NT after the other.
    Sequential,
    /// Branches side by side.
    Parallel,
}

/// One NT of a DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name within the DAG.
    pub id: NodeId,
    /// Type of the NT.
    pub nt: NtTypeId,
    /// Configuration; `None` leaves packets as they are, where the card can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<NtConfiguration>,
}

impl Node {
    /// An NT without a configuration.
    pub const fn new(id: NodeId, nt: NtTypeId) -> Self {
        Self { id, nt, configuration: None }
    }
}

/// `to` sees a packet after `from`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Edge {
    /// The earlier node.
    pub from: NodeId,
    /// The later node.
    pub to: NodeId,
}

/// Request of a tenant for a DAG, unchecked; [`Dag::new`] validates it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagSpec {
    pub nodes: Vec<Node>,
    /// Their partial order.
    pub edges: Vec<Edge>,
    /// Ingress bandwidth asked for.
    pub bandwidth: Bandwidth,
    /// Execution of forks.
    #[serde(default)]
    pub form: FormPreference,
    /// The sizes of its packets, with which its bandwidth is promised. A record without them means the simple
    /// IMIX, whatever the default of later versions: so records and fingerprints of requests stay as they were.
    #[serde(default = "PacketSizes::imix", skip_serializing_if = "PacketSizes::is_imix")]
    pub packet_sizes: PacketSizes,
    /// Tenants through whose own bitstreams its packets may pass, if these are shareable. Those of the provider,
    /// those that the provider signed and those of its own tenant need not be named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub trusted_tenants: BTreeSet<TenantId>,
    /// Other DAGs of its tenant that it shares a card with, and those that it does not.
    #[serde(default, skip_serializing_if = "CardAffinity::is_default")]
    pub card_affinity: CardAffinity,
    /// Whether low latency matters more than the threads that it takes, where its NTs run as programs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub latency_sensitive: bool,
    /// Whether it has no place where one of its tasks would pass packets on unchanged ([`crate::IdleTask`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuse_idle_tasks: bool,
    /// Time in which 99 of 100 of its packets are to pass its card, as a part of its promise.
    #[serde(default, skip_serializing_if = "LatencyBound::is_zero")]
    pub latency_bound: LatencyBound,
    /// Notes of its tenant. Changes of them alone place nothing again.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
}

impl DagSpec {
    /// A chain: each NT after the one before, nodes named like their NTs (`aes`, `aes-2`, …).
    pub fn chain(nts: &[NtTypeId], bandwidth: Bandwidth) -> Self {
        let mut seen: BTreeMap<&NtTypeId, u32> = BTreeMap::new();
        let nodes: Vec<Node> = nts
            .iter()
            .filter_map(|nt| {
                let count = seen.entry(nt).and_modify(|n| *n += 1).or_insert(1);
                let base = nt.as_str().replace('.', "-");
                let text = if *count == 1 { base } else { format!("{base}-{count}") };
                Some(Node::new(NodeId::new(&text).ok()?, nt.clone()))
            })
            .collect();
        let edges = nodes
            .windows(2)
            .map(|pair| Edge { from: pair[0].id.clone(), to: pair[1].id.clone() })
            .collect();
        let packet_sizes = PacketSizes::default();
        let (form, trusted_tenants) = (FormPreference::Auto, BTreeSet::new());
        let (card_affinity, notes) = (CardAffinity::default(), Notes::default());
        Self {
            nodes,
            edges,
            bandwidth,
            form,
            packet_sizes,
            trusted_tenants,
            card_affinity,
            latency_sensitive: false,
            refuse_idle_tasks: false,
            latency_bound: LatencyBound::ZERO,
            notes,
        }
    }

    /// Whether this DAG of `tenant` trusts a bitstream with its packets: the provider answers for it, or its
    /// owner is the tenant itself or one that the DAG names. A signature by the owner's own key proves who made
    /// the images, and makes nobody else trust them.
    pub fn trusts(&self, tenant: &TenantId, bitstream: &Bitstream) -> bool {
        bitstream.is_approved_by_provider()
            || bitstream.id.is_owned_by(tenant)
            || self.trusted_tenants.iter().any(|owner| bitstream.id.is_owned_by(owner))
    }

    /// Whether packets of this DAG of `tenant` may pass through a bitstream where a region holds it: the DAG
    /// trusts it, and its owner lets others share it.
    pub fn may_pass(&self, tenant: &TenantId, bitstream: &Bitstream) -> bool {
        bitstream.is_loadable_by(tenant) || bitstream.shareable && self.trusts(tenant, bitstream)
    }

    /// The same with other notes.
    #[must_use]
    pub fn with_notes(&self, notes: Notes) -> Self {
        Self { notes, ..self.clone() }
    }

    /// Number of its NTs with a configuration.
    pub fn configurations(&self) -> usize {
        self.nodes.iter().filter(|node| node.configuration.is_some()).count()
    }
}

/// Other values for some fields of a [`DagSpec`]; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DagPatch {
    pub nodes: Option<Vec<Node>>,
    /// Their partial order.
    pub edges: Option<Vec<Edge>>,
    /// Ingress bandwidth asked for.
    pub bandwidth: Option<Bandwidth>,
    /// Execution of forks.
    pub form: Option<FormPreference>,
    /// The sizes of its packets.
    pub packet_sizes: Option<PacketSizes>,
    /// Tenants through whose bitstreams its packets may pass.
    pub trusted_tenants: Option<BTreeSet<TenantId>>,
    /// DAGs that it shares a card with, and those that it does not.
    pub card_affinity: Option<CardAffinity>,
    /// Whether low latency matters more than threads.
    pub latency_sensitive: Option<bool>,
    /// Whether it has no place where one of its tasks would pass packets on unchanged.
    pub refuse_idle_tasks: Option<bool>,
    /// Time in which 99 of 100 of its packets are to pass its card; zero for no bound.
    pub latency_bound: Option<LatencyBound>,
    /// Notes of its tenant.
    pub notes: NotesPatch,
}

impl DagPatch {
    /// The spec with these values.
    pub fn apply(self, spec: &DagSpec) -> DagSpec {
        DagSpec {
            nodes: self.nodes.unwrap_or_else(|| spec.nodes.clone()),
            edges: self.edges.unwrap_or_else(|| spec.edges.clone()),
            bandwidth: self.bandwidth.unwrap_or(spec.bandwidth),
            form: self.form.unwrap_or(spec.form),
            packet_sizes: self.packet_sizes.unwrap_or_else(|| spec.packet_sizes.clone()),
            trusted_tenants: self.trusted_tenants.unwrap_or_else(|| spec.trusted_tenants.clone()),
            card_affinity: self.card_affinity.unwrap_or_else(|| spec.card_affinity.clone()),
            latency_sensitive: self.latency_sensitive.unwrap_or(spec.latency_sensitive),
            refuse_idle_tasks: self.refuse_idle_tasks.unwrap_or(spec.refuse_idle_tasks),
            latency_bound: self.latency_bound.unwrap_or(spec.latency_bound),
            notes: self.notes.apply(&spec.notes),
        }
    }
}

impl From<DagSpec> for DagPatch {
    fn from(spec: DagSpec) -> Self {
        Self {
            nodes: Some(spec.nodes),
            edges: Some(spec.edges),
            bandwidth: Some(spec.bandwidth),
            form: Some(spec.form),
            packet_sizes: Some(spec.packet_sizes),
            trusted_tenants: Some(spec.trusted_tenants),
            card_affinity: Some(spec.card_affinity),
            latency_sensitive: Some(spec.latency_sensitive),
            refuse_idle_tasks: Some(spec.refuse_idle_tasks),
            latency_bound: Some(spec.latency_bound),
            notes: spec.notes.into(),
        }
    }
}

/// Fault of a DAG. Each names the culprit; [`InvalidDag::field`] names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDag {
    #[error("the DAG has no nodes; give at least one NT")]
    Empty,
    /// Too many nodes.
    #[error("the DAG has {nodes} nodes; at most {DAG_NODES_MAX} are allowed")]
    TooManyNodes { nodes: usize },
    /// Two nodes with the same id.
    #[error("duplicate node id {node}: node ids are unique within a DAG")]
    DuplicateNode {
        node: NodeId,
        /// Position of the second node with this id.
        index: usize,
    },
    /// An edge that names a node which is not part of the DAG.
    #[error(
        "edge {from} -> {to} names node {missing}, which is not in the DAG; add the node or remove the edge"
    )]
    UnknownNode {
        /// The edge's start.
        from: NodeId,
        /// The edge's end.
        to: NodeId,
        /// The one that is missing.
        missing: NodeId,
        /// Position of the edge.
        index: usize,
    },
    /// A self-loop or a duplicate edge.
    #[error("edge {from} -> {to} is a self-loop or a duplicate; remove it")]
    UselessEdge {
        /// The edge's start.
        from: NodeId,
        /// The edge's end.
        to: NodeId,
        /// Position of the edge.
        index: usize,
    },
    #[error("the DAG has a cycle; remove an edge of the cycle through node {node}")]
    Cycle {
        /// A node on it.
        node: NodeId,
    },
    /// More than one entry.
    #[error("nodes {first} and {second} both have no predecessor; a DAG has one entry")]
    TwoEntries { first: NodeId, second: NodeId },
    /// Too wide a fork.
    #[error("node {node} forks into {branches} branches; at most {FORK_BRANCHES_MAX} are allowed")]
    TooManyBranches { node: NodeId, branches: usize },
    /// A configuration of an NT type that two nodes have.
    #[error(
        "nodes {first} and {node} are both of type {nt}, and one of them has a configuration: an NT keeps one \
         configuration and one state for a DAG; use the type once, or without a configuration"
    )]
    ConfiguredTwice {
        nt: NtTypeId,
        /// The first node of it.
        first: NodeId,
        node: NodeId,
        /// Position of the second.
        index: usize,
    },
    /// Too much of it.
    #[error(
        "the configurations of the DAG's nodes have {bytes} bytes; at most {DAG_CONFIGURATION_BYTES_MAX} are \
         allowed"
    )]
    ConfigurationTooLong {
        /// All of them together.
        bytes: usize,
    },
    /// A bandwidth out of range, or not a multiple of 1 kbit/s.
    #[error(
        "bandwidth {} bit/s is not allowed: {DAG_BANDWIDTH_MIN} to {DAG_BANDWIDTH_MAX}, \
         in whole kbit/s",
        asked.get()
    )]
    Bandwidth { asked: Bandwidth },
    /// A bound on latency that is longer than allowed.
    #[error(
        "a latency bound of {asked} is not allowed: 1 ns to {DAG_LATENCY_BOUND_MAX}, or 0 for none"
    )]
    LatencyBound { asked: LatencyBound },
    /// Packet sizes that no mix can have.
    #[error("packet sizes: {0}")]
    PacketSizes(InvalidPacketSizes),
    /// Too many tenants are trusted.
    #[error("the DAG trusts {tenants} tenants; at most {TRUSTED_TENANTS_MAX} are allowed")]
    TooManyTrusted { tenants: usize },
    /// Too many DAGs are named that it shares a card with, or keeps apart from.
    #[error(
        "card_affinity.{list} names {dags} DAGs; at most {AFFINITY_DAGS_MAX} are allowed in a list"
    )]
    TooManyNeighbours {
        /// `together_with` or `apart_from`.
        list: &'static str,
        dags: usize,
    },
    /// A DAG is named in both lists.
    #[error(
        "card_affinity: {dag} is in `together_with` and in `apart_from`; leave it in one of them"
    )]
    ContradictoryAffinity { dag: DagName },
}

impl InvalidDag {
    /// The field of the DAG resource that is wrong, as in the API.
    pub fn field(&self) -> String {
        match self {
            Self::Empty
            | Self::TooManyNodes { .. }
            | Self::TwoEntries { .. }
            | Self::ConfigurationTooLong { .. } => "nodes".into(),
            Self::ConfiguredTwice { index, .. } => format!("nodes[{index}].configuration"),
            Self::DuplicateNode { index, .. } => format!("nodes[{index}].id"),
            Self::UnknownNode { index, .. } | Self::UselessEdge { index, .. } => {
                format!("edges[{index}]")
            }
            Self::Cycle { .. } | Self::TooManyBranches { .. } => "edges".into(),
            Self::Bandwidth { .. } => "bandwidth_bps".into(),
            Self::LatencyBound { .. } => "latency_bound_nanos".into(),
            Self::PacketSizes(why) => why.field(),
            Self::TooManyTrusted { .. } => "trusted_tenants".into(),
            Self::TooManyNeighbours { list, .. } => format!("card_affinity.{list}"),
            Self::ContradictoryAffinity { .. } => "card_affinity".into(),
        }
    }
}

/// A DAG that passed all checks: acyclic, connected, one entry, within the limits.
/// Nodes are addressed by index; NT types may still be unknown to the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dag {
    spec: DagSpec,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    order: Vec<usize>,
}

impl Dag {
    /// Validates a spec. Time O(nodes + edges · log nodes).
    ///
    /// With one entry and no cycle every node is reachable from it, so a DAG that is not connected
    /// shows as one with two entries.
    ///
    /// # Errors
    ///
    /// [`InvalidDag`], the first of: bandwidth or latency bound out of range; packet sizes; no nodes or too many; duplicate ids;
    /// configurations that are too long or of one type twice; unknown nodes, self-loops and duplicate
    /// edges; a cycle; several entries; too wide a fork.
    pub fn new(spec: DagSpec) -> Result<Self, InvalidDag> {
        check_bandwidth(spec.bandwidth)?;
        if spec.latency_bound > DAG_LATENCY_BOUND_MAX {
            return Err(InvalidDag::LatencyBound { asked: spec.latency_bound });
        }
        spec.packet_sizes.check().map_err(InvalidDag::PacketSizes)?;
        let tenants = spec.trusted_tenants.len();
        if tenants > TRUSTED_TENANTS_MAX {
            return Err(InvalidDag::TooManyTrusted { tenants });
        }
        check_affinity(&spec.card_affinity)?;
        let index = index_nodes(&spec.nodes)?;
        check_configurations(&spec.nodes)?;
        let mut successors = vec![Vec::new(); spec.nodes.len()];
        let mut predecessors = vec![Vec::new(); spec.nodes.len()];
        for (i, edge) in spec.edges.iter().enumerate() {
            let (from, to) = resolve(&index, edge, i)?;
            if from == to || successors[from].contains(&to) {
                let (from, to) = (edge.from.clone(), edge.to.clone());
                return Err(InvalidDag::UselessEdge { from, to, index: i });
            }
            successors[from].push(to);
            predecessors[to].push(from);
        }
        let order = topological_order(&spec.nodes, &successors, &predecessors)?;
        check_entry(&spec.nodes, &predecessors)?;
        for (node, next) in spec.nodes.iter().zip(&successors) {
            if next.len() > FORK_BRANCHES_MAX {
                let (node, branches) = (node.id.clone(), next.len());
                return Err(InvalidDag::TooManyBranches { node, branches });
            }
        }
        Ok(Self { spec, successors, predecessors, order })
    }

    /// Specification that was validated.
    pub const fn spec(&self) -> &DagSpec {
        &self.spec
    }

    /// The nodes; other methods speak of their indices.
    pub fn nodes(&self) -> &[Node] {
        &self.spec.nodes
    }

    /// Ingress bandwidth asked for.
    pub const fn bandwidth(&self) -> Bandwidth {
        self.spec.bandwidth
    }

    /// The nodes right after `node`, in the order of the edges.
    pub fn successors(&self, node: usize) -> &[usize] {
        &self.successors[node]
    }

    /// The nodes right before `node`, in the order of the edges.
    pub fn predecessors(&self, node: usize) -> &[usize] {
        &self.predecessors[node]
    }

    /// All nodes, each after its predecessors; among those that are ready, the lowest index first.
    pub fn topological_order(&self) -> &[usize] {
        &self.order
    }
}

fn check_affinity(affinity: &CardAffinity) -> Result<(), InvalidDag> {
    for (list, dags) in
        [("together_with", &affinity.together_with), ("apart_from", &affinity.apart_from)]
    {
        if dags.len() > AFFINITY_DAGS_MAX {
            return Err(InvalidDag::TooManyNeighbours { list, dags: dags.len() });
        }
    }
    match affinity.together_with.intersection(&affinity.apart_from).next() {
        Some(dag) => Err(InvalidDag::ContradictoryAffinity { dag: dag.clone() }),
        None => Ok(()),
    }
}

fn check_bandwidth(asked: Bandwidth) -> Result<(), InvalidDag> {
    if (DAG_BANDWIDTH_MIN..=DAG_BANDWIDTH_MAX).contains(&asked) && asked.is_whole() {
        Ok(())
    } else {
        Err(InvalidDag::Bandwidth { asked })
    }
}

fn index_nodes(nodes: &[Node]) -> Result<BTreeMap<&NodeId, usize>, InvalidDag> {
    if nodes.is_empty() {
        return Err(InvalidDag::Empty);
    }
    if nodes.len() > DAG_NODES_MAX {
        return Err(InvalidDag::TooManyNodes { nodes: nodes.len() });
    }
    let mut index = BTreeMap::new();
    for (i, node) in nodes.iter().enumerate() {
        if index.insert(&node.id, i).is_some() {
            return Err(InvalidDag::DuplicateNode { node: node.id.clone(), index: i });
        }
    }
    Ok(index)
}

fn check_configurations(nodes: &[Node]) -> Result<(), InvalidDag> {
    let bytes = nodes.iter().filter_map(|node| node.configuration.as_ref()).map(|c| c.len()).sum();
    if bytes > DAG_CONFIGURATION_BYTES_MAX {
        return Err(InvalidDag::ConfigurationTooLong { bytes });
    }
    let mut firsts: BTreeMap<&NtTypeId, &Node> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let Some(first) = firsts.get(&node.nt) else {
            firsts.insert(&node.nt, node);
            continue;
        };
        if first.configuration.is_some() || node.configuration.is_some() {
            let (nt, first, node) = (node.nt.clone(), first.id.clone(), node.id.clone());
            return Err(InvalidDag::ConfiguredTwice { nt, first, node, index });
        }
    }
    Ok(())
}

fn resolve(
    index: &BTreeMap<&NodeId, usize>,
    edge: &Edge,
    i: usize,
) -> Result<(usize, usize), InvalidDag> {
    let find = |node: &NodeId| {
        index.get(node).copied().ok_or_else(|| InvalidDag::UnknownNode {
            from: edge.from.clone(),
            to: edge.to.clone(),
            missing: node.clone(),
            index: i,
        })
    };
    Ok((find(&edge.from)?, find(&edge.to)?))
}

/// Kahn's algorithm, the lowest index first, so that the same DAG always has the same order.
fn topological_order(
    nodes: &[Node],
    successors: &[Vec<usize>],
    predecessors: &[Vec<usize>],
) -> Result<Vec<usize>, InvalidDag> {
    let mut waiting: Vec<usize> = predecessors.iter().map(Vec::len).collect();
    let mut ready: BTreeSet<usize> = (0..nodes.len()).filter(|&n| waiting[n] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(node) = ready.pop_first() {
        order.push(node);
        for &next in &successors[node] {
            waiting[next] -= 1;
            if waiting[next] == 0 {
                ready.insert(next);
            }
        }
    }
    match waiting.iter().position(|&n| n > 0) {
        Some(stuck) => {
            Err(InvalidDag::Cycle { node: on_cycle(nodes, predecessors, &waiting, stuck) })
        }
        None => Ok(order),
    }
}

/// Walks back from a node that never became ready until one repeats: that one is on the cycle.
fn on_cycle(
    nodes: &[Node],
    predecessors: &[Vec<usize>],
    waiting: &[usize],
    stuck: usize,
) -> NodeId {
    let mut seen = vec![false; nodes.len()];
    let mut at = stuck;
    while !std::mem::replace(&mut seen[at], true) {
        at = predecessors[at].iter().copied().find(|&p| waiting[p] > 0).unwrap_or(at);
    }
    nodes[at].id.clone()
}

fn check_entry(nodes: &[Node], predecessors: &[Vec<usize>]) -> Result<(), InvalidDag> {
    let mut entries =
        nodes.iter().zip(predecessors).filter(|(_, p)| p.is_empty()).map(|(n, _)| n.id.clone());
    match (entries.next(), entries.next()) {
        (Some(first), Some(second)) => Err(InvalidDag::TwoEntries { first, second }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Signer;

    fn spec(nodes: &[&str], edges: &[(&str, &str)]) -> DagSpec {
        let id = |text: &str| NodeId::new(text).expect("a test id");
        DagSpec {
            nodes: nodes
                .iter()
                .map(|n| Node::new(id(n), NtTypeId::new("nat").expect("a test id")))
                .collect(),
            edges: edges.iter().map(|(f, t)| Edge { from: id(f), to: id(t) }).collect(),
            bandwidth: Bandwidth::from_gbps(10),
            form: FormPreference::Auto,
            packet_sizes: PacketSizes::default(),
            trusted_tenants: BTreeSet::new(),
            card_affinity: CardAffinity::default(),
            latency_sensitive: false,
            refuse_idle_tasks: false,
            latency_bound: LatencyBound::ZERO,
            notes: Notes::default(),
        }
    }

    fn tenant(id: &str) -> TenantId {
        TenantId::new(id).expect("a label")
    }

    /// An image of `nat` that its owner shares.
    fn bitstream(id: &str, signed_by: Option<Signer>) -> Bitstream {
        Bitstream {
            id: crate::BitstreamId::new(id).expect("an id"),
            images: crate::RegionImages::for_all(
                crate::Digest::of(id.as_bytes()),
                crate::ByteSize::from_mib(1),
            ),
            nts: Vec::new(),
            region_kind: crate::RegionKind::KnownNt,
            card_model: crate::CardModel::new("sim").expect("an id"),
            shareable: true,
            signed_by,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        }
    }

    /// Each line is a sentence of the trust model in SECURITY.md: acme's DAG, an image, who signed it, whom the DAG
    /// names, and whether it trusts the image.
    #[test]
    fn the_provider_the_own_tenant_and_named_tenants_are_trusted_and_nobody_else() {
        let provider = || Some(Signer::Provider("builds".into()));
        let owner = || Some(Signer::Owner("builds".into()));
        let globex: &[&str] = &["globex"];
        for (id, signed_by, named, is_trusted) in [
            ("web", None, &[][..], true),
            ("web", provider(), &[], true),
            ("acme.web", None, &[], true),
            ("acme.web", owner(), &[], true),
            ("globex.web", None, &[], false),
            ("globex.web", owner(), &[], false),
            ("globex.web", provider(), &[], true),
            ("globex.web", None, globex, true),
            ("globex.web", owner(), globex, true),
            ("initech.web", owner(), globex, false),
            ("globex-2.web", owner(), globex, false),
        ] {
            let mut dag = spec(&["nat"], &[]);
            dag.trusted_tenants = named.iter().map(|id| tenant(id)).collect();
            let image = bitstream(id, signed_by);
            let what = format!("{id} by {:?}, trusting {named:?}", image.signed_by);
            assert_eq!(dag.trusts(&tenant("acme"), &image), is_trusted, "{what}");
            assert_eq!(dag.may_pass(&tenant("acme"), &image), is_trusted, "{what}");
            // Consent is the owner's, and is asked of nobody but other tenants.
            let is_loadable = id == "web" || id.starts_with("acme.");
            let private = Bitstream { shareable: false, ..image };
            assert_eq!(dag.may_pass(&tenant("acme"), &private), is_loadable, "private {what}");
        }
    }

    #[test]
    fn a_dag_names_at_most_64_tenants() {
        let mut dag = spec(&["nat"], &[]);
        dag.trusted_tenants = (0..65).map(|i| tenant(&format!("t{i}"))).collect();
        let many = Dag::new(dag).expect_err("one too many");
        assert_eq!(many.to_string(), "the DAG trusts 65 tenants; at most 64 are allowed");
    }

    fn error(nodes: &[&str], edges: &[(&str, &str)]) -> (String, String) {
        let error = Dag::new(spec(nodes, edges)).expect_err("an invalid DAG");
        (error.field(), error.to_string())
    }

    #[test]
    fn the_diamond_of_fig_4_is_valid() {
        let edges = [("n1", "n2"), ("n1", "n3"), ("n2", "n4"), ("n3", "n4")];
        let dag = Dag::new(spec(&["n1", "n2", "n3", "n4"], &edges)).expect("valid");
        assert_eq!(dag.topological_order(), [0, 1, 2, 3]);
        assert_eq!(dag.successors(0), [1, 2]);
        assert_eq!(dag.predecessors(3), [1, 2]);
    }

    #[test]
    fn errors_name_field_and_culprit() {
        assert_eq!(error(&[], &[]).0, "nodes");
        assert!(error(&["a", "b", "a"], &[]).1.contains("duplicate node id a"));
        assert_eq!(error(&["a", "b", "a"], &[]).0, "nodes[2].id");
        assert!(error(&["a"], &[("a", "x")]).1.contains("names node x"));
        assert_eq!(error(&["a", "b"], &[("a", "b"), ("a", "b")]).0, "edges[1]");
        assert_eq!(error(&["a"], &[("a", "a")]).0, "edges[0]");
        assert!(error(&["a", "b"], &[]).1.contains("a and b both have no predecessor"));
        let wide = error(
            &["a", "b", "c", "d", "e", "f"],
            &[("a", "b"), ("a", "c"), ("a", "d"), ("a", "e"), ("a", "f")],
        );
        assert!(wide.1.contains("node a forks into 5 branches"), "{wide:?}");
    }

    #[test]
    fn a_cycle_names_a_node_on_it_not_one_behind_it() {
        let found = error(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]);
        assert!(found.1.ends_with("node b") || found.1.ends_with("node c"), "{found:?}");
    }

    #[test]
    fn bandwidth_has_bounds_and_a_grain() {
        for bps in [0, 999_999, 1_000_001, u64::MAX] {
            let mut bad = spec(&["a"], &[]);
            bad.bandwidth = Bandwidth::from_bps(bps);
            assert_eq!(Dag::new(bad).expect_err("out of range").field(), "bandwidth_bps");
        }
    }

    #[test]
    fn a_chain_names_repeated_nts_apart() {
        let nt = |text| NtTypeId::new(text).expect("a test id");
        let chain = DagSpec::chain(&[nt("aes"), nt("acme.x"), nt("aes")], Bandwidth::from_gbps(1));
        let names: Vec<_> = chain.nodes.iter().map(|n| n.id.as_str()).collect();
        assert_eq!(names, ["aes", "acme-x", "aes-2"]);
        assert!(Dag::new(chain).is_ok());
    }

    proptest! {
        /// Edges that all go forward in some numbering make a DAG with a valid order; any others
        /// give an error, never a panic.
        #[test]
        fn any_graph_is_ordered_or_refused(
            n in 1usize..20, edges in prop::collection::vec((0usize..20, 0usize..20), 0..40)
        ) {
            let names: Vec<String> = (0..n).map(|i| format!("n{i}")).collect();
            let text: Vec<(String, String)> =
                edges.iter().map(|(f, t)| (format!("n{f}"), format!("n{t}"))).collect();
            let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
            let pairs: Vec<(&str, &str)> =
                text.iter().map(|(f, t)| (f.as_str(), t.as_str())).collect();
            if let Ok(dag) = Dag::new(spec(&nodes, &pairs)) {
                let mut place = vec![0; n];
                for (i, &node) in dag.topological_order().iter().enumerate() {
                    place[node] = i;
                }
                for node in 0..n {
                    for &next in dag.successors(node) {
                        prop_assert!(place[node] < place[next]);
                    }
                }
                prop_assert_eq!(dag.topological_order().len(), n);
            }
        }
    }
}
