//! DAGs.

use std::collections::{BTreeMap, BTreeSet};

use prost_types::FieldMask;
use snic_domain::{
    Bandwidth, BitstreamId, CardAffinity, Condition, ConditionStatus, ConditionType, DagName,
    DagPatch, DagSpec, DagState, Edge, Form, FormPreference, Instance, LatencyBound, Mapping,
    MemoryKind, Node, NtConfiguration, NtProgram, NtTypeId, PacketSize, PacketSizes, ProcessorKind,
    TenantId,
};

use super::mask::Mask;
use super::{FieldProblem, Problems, id, name, notes, object, timestamp};
use crate::error::ApiError;
use crate::v1;

/// The fields of a DAG that an update may set.
const SETTABLE: &[&str] = &[
    "nodes",
    "edges",
    "bandwidth_bps",
    "form",
    "packet_sizes",
    "trusted_tenants",
    "card_affinity",
    "latency_sensitive",
    "refuse_idle_tasks",
    "latency_bound_nanos",
    "labels",
    "description",
];

/// Converts a new DAG. The domain checks its graph.
///
/// # Errors
/// [`ApiError`] with all invalid fields.
pub fn spec(dag: &v1::Dag) -> Result<DagSpec, ApiError> {
    let mut problems = Problems::default();
    let spec = DagSpec {
        nodes: nodes(&mut problems, &dag.nodes),
        edges: edges(&mut problems, &dag.edges),
        bandwidth: Bandwidth::from_bps(dag.bandwidth_bps),
        form: problems.keep(form(dag.form)).unwrap_or_default(),
        packet_sizes: packet_sizes(&dag.packet_sizes),
        trusted_tenants: trusted(&mut problems, &dag.trusted_tenants),
        card_affinity: affinity(&mut problems, dag.card_affinity.as_ref()),
        latency_sensitive: dag.latency_sensitive,
        refuse_idle_tasks: dag.refuse_idle_tasks,
        latency_bound: LatencyBound::new(dag.latency_bound_nanos),
        notes: notes::notes(&mut problems, "dag", &dag.labels, &dag.description),
    };
    problems.finish().map(|()| spec)
}

/// Converts an update.
///
/// # Errors
/// [`ApiError`] with all invalid fields.
pub fn patch(dag: &v1::Dag, mask: Option<&FieldMask>) -> Result<DagPatch, ApiError> {
    let mask = Mask::read(mask, SETTABLE)?;
    let mut problems = Problems::default();
    let patch = DagPatch {
        nodes: mask.has("nodes", !dag.nodes.is_empty()).then(|| nodes(&mut problems, &dag.nodes)),
        edges: mask.has("edges", !dag.edges.is_empty()).then(|| edges(&mut problems, &dag.edges)),
        bandwidth: mask
            .has("bandwidth_bps", dag.bandwidth_bps != 0)
            .then(|| Bandwidth::from_bps(dag.bandwidth_bps)),
        form: mask
            .has("form", dag.form != 0)
            .then(|| problems.keep(form(dag.form)).unwrap_or_default()),
        packet_sizes: mask
            .has("packet_sizes", !dag.packet_sizes.is_empty())
            .then(|| packet_sizes(&dag.packet_sizes)),
        trusted_tenants: mask
            .has("trusted_tenants", !dag.trusted_tenants.is_empty())
            .then(|| trusted(&mut problems, &dag.trusted_tenants)),
        card_affinity: mask
            .has("card_affinity", dag.card_affinity.is_some())
            .then(|| affinity(&mut problems, dag.card_affinity.as_ref())),
        latency_sensitive: mask
            .has("latency_sensitive", dag.latency_sensitive)
            .then_some(dag.latency_sensitive),
        refuse_idle_tasks: mask
            .has("refuse_idle_tasks", dag.refuse_idle_tasks)
            .then_some(dag.refuse_idle_tasks),
        latency_bound: mask
            .has("latency_bound_nanos", dag.latency_bound_nanos != 0)
            .then(|| LatencyBound::new(dag.latency_bound_nanos)),
        notes: notes::patch(&mut problems, "dag", &mask, (&dag.labels, &dag.description)),
    };
    problems.finish().map(|()| patch)
}

fn nodes(problems: &mut Problems, nodes: &[v1::dag::Node]) -> Vec<Node> {
    let node = |(i, node): (usize, &v1::dag::Node)| {
        let id = problems.keep(id(&format!("dag.nodes[{i}].id"), &node.id));
        let nt = name::nt_type(&format!("dag.nodes[{i}].nt_type"), &node.nt_type);
        let configuration = match &node.configuration {
            Some(object) => {
                let field = format!("dag.nodes[{i}].configuration");
                let json = object::to_json(object);
                let json = json.map_err(|error| FieldProblem::invalid(field, error));
                Some(NtConfiguration::new(&problems.keep(json)?.to_string()))
            }
            None => None,
        };
        Some(Node { nt: problems.keep(nt)?, id: id?, configuration })
    };
    nodes.iter().enumerate().filter_map(node).collect()
}

fn edges(problems: &mut Problems, edges: &[v1::dag::Edge]) -> Vec<Edge> {
    let edge = |(i, edge): (usize, &v1::dag::Edge)| {
        let from = problems.keep(id(&format!("dag.edges[{i}].from_node"), &edge.from_node));
        let to = problems.keep(id(&format!("dag.edges[{i}].to_node"), &edge.to_node));
        Some(Edge { from: from?, to: to? })
    };
    edges.iter().enumerate().filter_map(edge).collect()
}

fn trusted(problems: &mut Problems, tenants: &[String]) -> BTreeSet<TenantId> {
    let tenant = |(i, tenant): (usize, &String)| {
        problems.keep(name::tenant(&format!("dag.trusted_tenants[{i}]"), tenant))
    };
    tenants.iter().enumerate().filter_map(tenant).collect()
}

fn affinity(problems: &mut Problems, wire: Option<&v1::CardAffinity>) -> CardAffinity {
    let Some(wire) = wire else { return CardAffinity::default() };
    let mut names = |list: &str, names: &[String]| -> BTreeSet<DagName> {
        let name = |(i, dag): (usize, &String)| {
            problems.keep(name::dag(&format!("dag.card_affinity.{list}[{i}]"), dag))
        };
        names.iter().enumerate().filter_map(name).collect()
    };
    let together_with = names("together_with", &wire.together_with);
    let apart_from = names("apart_from", &wire.apart_from);
    CardAffinity { together_with, apart_from, preferred: wire.preferred }
}

/// Converts what a DAG says of the cards of other DAGs; nothing where it says nothing.
pub fn affinity_to_wire(affinity: &CardAffinity) -> Option<v1::CardAffinity> {
    let CardAffinity { together_with, apart_from, preferred } = affinity;
    let names = |dags: &BTreeSet<DagName>| dags.iter().map(ToString::to_string).collect();
    (!affinity.is_default()).then(|| v1::CardAffinity {
        together_with: names(together_with),
        apart_from: names(apart_from),
        preferred: *preferred,
    })
}

/// Converts the sizes of a DAG's packets. Without any, the default. The domain checks them.
pub fn packet_sizes(sizes: &[v1::dag::PacketSize]) -> PacketSizes {
    if sizes.is_empty() {
        return PacketSizes::default();
    }
    let size = |size: &v1::dag::PacketSize| PacketSize { bytes: size.bytes, weight: size.weight };
    PacketSizes::new(sizes.iter().map(size).collect())
}

/// Converts the sizes of a DAG's packets.
pub fn packet_sizes_to_wire(sizes: &PacketSizes) -> Vec<v1::dag::PacketSize> {
    let size = |size: &PacketSize| v1::dag::PacketSize { bytes: size.bytes, weight: size.weight };
    sizes.sizes().iter().map(size).collect()
}

fn form(value: i32) -> Result<FormPreference, FieldProblem> {
    match v1::dag::Form::try_from(value) {
        Ok(v1::dag::Form::Unspecified) => Ok(FormPreference::Auto),
        Ok(v1::dag::Form::Sequential) => Ok(FormPreference::Sequential),
        Ok(v1::dag::Form::Parallel) => Ok(FormPreference::Parallel),
        Err(_) => Err(FieldProblem::invalid(
            "dag.form",
            format_args!(
                "{value} is not a form (expected FORM_UNSPECIFIED, SEQUENTIAL or PARALLEL)"
            ),
        )),
    }
}

/// Converts the nodes of a spec with what `shown` says of their configurations: whoever sends a DAG sends
/// them whole, whoever shows one shows no secrets.
pub fn nodes_to_wire(
    spec: &DagSpec,
    shown: impl Fn(&Node) -> Option<serde_json::Value>,
) -> Vec<v1::dag::Node> {
    let node = |node: &Node| v1::dag::Node {
        id: node.id.to_string(),
        nt_type: name::of_nt_type(&node.nt),
        configuration: shown(node).as_ref().map(object::of_json),
    };
    spec.nodes.iter().map(node).collect()
}

/// A configuration as it is, for whoever sends a DAG.
pub fn whole(node: &Node) -> Option<serde_json::Value> {
    serde_json::from_str(node.configuration.as_ref()?.expose()).ok()
}

/// Converts the edges of a spec.
pub fn edges_to_wire(spec: &DagSpec) -> Vec<v1::dag::Edge> {
    let edge = |edge: &Edge| v1::dag::Edge {
        from_node: edge.from.to_string(),
        to_node: edge.to.to_string(),
    };
    spec.edges.iter().map(edge).collect()
}

/// Converts a preferred form.
pub const fn preference_to_wire(form: FormPreference) -> v1::dag::Form {
    match form {
        FormPreference::Auto => v1::dag::Form::Unspecified,
        FormPreference::Sequential => v1::dag::Form::Sequential,
        FormPreference::Parallel => v1::dag::Form::Parallel,
    }
}

/// Converts a chosen form.
pub const fn form_to_wire(form: Form) -> v1::dag::Form {
    match form {
        Form::Sequential => v1::dag::Form::Sequential,
        Form::Parallel => v1::dag::Form::Parallel,
    }
}

/// Converts a state.
pub const fn state_to_wire(state: DagState) -> v1::dag::State {
    match state {
        DagState::Pending => v1::dag::State::Pending,
        DagState::Provisioning => v1::dag::State::Provisioning,
        DagState::Ready => v1::dag::State::Ready,
        DagState::Degraded => v1::dag::State::Degraded,
        DagState::Deleting => v1::dag::State::Deleting,
        DagState::Failed => v1::dag::State::Failed,
    }
}

/// Converts a condition.
pub fn condition_to_wire(condition: &Condition) -> v1::Condition {
    let kind = match condition.kind {
        ConditionType::Mapped => "Mapped",
        ConditionType::RegionsLoaded => "RegionsLoaded",
        ConditionType::TablesProgrammed => "TablesProgrammed",
        ConditionType::Configured => "Configured",
        ConditionType::PromiseKept => "PromiseKept",
        ConditionType::Ready => "Ready",
    };
    let status = match condition.status {
        ConditionStatus::True => v1::condition::Status::True,
        ConditionStatus::False => v1::condition::Status::False,
        ConditionStatus::Unknown => v1::condition::Status::Unknown,
    };
    v1::Condition {
        r#type: kind.to_owned(),
        status: status.into(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_transition_time: Some(timestamp(condition.since)),
        observed_generation: condition.generation,
    }
}

/// The reader of a message: details of other tenants are left out for tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DagReader<'a> {
    Operator,
    /// Sees its own resources and the provider's.
    Tenant(&'a TenantId),
}

impl DagReader<'_> {
    /// The name of a bitstream; empty if the reader may not see it.
    pub fn bitstream(self, id: &BitstreamId) -> String {
        match self {
            Self::Tenant(tenant) if id.owner().is_some_and(|owner| owner != *tenant) => {
                String::new()
            }
            _ => name::of_bitstream(id),
        }
    }
}

/// Context for converting a mapping.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The network tasks of its bitstreams, in packet order.
    pub nts: &'a BTreeMap<BitstreamId, Vec<NtTypeId>>,
    pub reader: DagReader<'a>,
}

/// Converts the stages of a mapping.
pub fn stages_to_wire(mapping: &Mapping, content: Content<'_>) -> Vec<v1::Stage> {
    let chain = |chain: &snic_domain::VirtualChain| v1::VirtualChain {
        nodes: chain.nodes.iter().map(ToString::to_string).collect(),
        instances: chain
            .instances
            .iter()
            .map(|instance| v1::Instance {
                card: name::of_card(&mapping.card),
                region: name::of_region(&mapping.card, instance.region),
                bitstream: content.reader.bitstream(&instance.bitstream),
                slots: slots(instance, &chain.nodes, content),
                bandwidth_bps: instance.bandwidth.get(),
            })
            .collect(),
    };
    let stage = |stage: &snic_domain::Stage| v1::Stage {
        branches: stage.branches.iter().map(chain).collect(),
    };
    mapping.stages.iter().map(stage).collect()
}

/// Converts the programs of a mapping.
pub fn programs_to_wire(mapping: &Mapping) -> Vec<v1::Program> {
    let program = |program: &NtProgram| v1::Program {
        node: program.node.to_string(),
        nt_type: name::of_nt_type(&program.nt),
        processor: processor_to_wire(program.processor).into(),
        threads: program.threads,
        packet_memory: memory_to_wire(program.network).into(),
        working_memory: memory_to_wire(program.working).into(),
        working_set_bytes: program.working_set.get(),
        serves_bps: program.serves.get(),
        latency_nanos: program
            .latency
            .map(|latency| u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)),
    };
    mapping.programs.iter().map(program).collect()
}

/// Converts a kind of processor.
pub const fn processor_to_wire(kind: ProcessorKind) -> v1::ProcessorKind {
    match kind {
        ProcessorKind::Dpa => v1::ProcessorKind::Dpa,
        ProcessorKind::Arm => v1::ProcessorKind::Arm,
        ProcessorKind::Other => v1::ProcessorKind::Other,
        ProcessorKind::Host => v1::ProcessorKind::Host,
    }
}

const fn memory_to_wire(kind: MemoryKind) -> v1::MemoryKind {
    match kind {
        MemoryKind::Dpa => v1::MemoryKind::Dpa,
        MemoryKind::Arm => v1::MemoryKind::Arm,
        MemoryKind::Host => v1::MemoryKind::Host,
    }
}

fn slots(
    instance: &Instance,
    nodes: &[snic_domain::NodeId],
    content: Content<'_>,
) -> Vec<v1::ChainSlot> {
    let held = content.nts.get(&instance.bitstream).map_or(&[][..], Vec::as_slice);
    let slot = |(index, held): (usize, &NtTypeId)| {
        let place = instance.slots.iter().position(|slot| slot.index() == index);
        let node = place.and_then(|place| nodes.get(place));
        let shown = node.is_some() || content.reader == DagReader::Operator;
        v1::ChainSlot {
            used: node.is_some(),
            nt_type: if shown { name::of_nt_type(held) } else { String::new() },
            node: node.map(ToString::to_string).unwrap_or_default(),
        }
    };
    held.iter().enumerate().map(slot).collect()
}
