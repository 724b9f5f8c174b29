//! Texts of refusals and shortages: every one names what is wrong, the value, and what
//! is allowed or to be done; every field is one of the API.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rstest::rstest;
use snic_domain::limits::{DAG_CONFIGURATION_BYTES_MAX, DAG_NODES_MAX};
use snic_domain::{
    Bandwidth, CardAffinity, CostsMore, Dag, DagId, DagName, DagSpec, Edge, EmbeddingCost,
    EmbeddingKind, FormPreference, Infeasible, InvalidDag, Node, NodeId, NtConfiguration, NtTypeId,
    PacketSizes, Rejection, RejectionReason, Resource, Shortage, TenantId,
};

fn id(text: &str) -> NodeId {
    NodeId::new(text).expect("a label")
}

fn node(of: &str, nt: &str) -> Node {
    Node::new(id(of), NtTypeId::new(nt).expect("a label"))
}

fn configured(of: &str, nt: &str, json: &str) -> Node {
    let configuration = NtConfiguration::new(json);
    Node { configuration: Some(configuration), ..node(of, nt) }
}

fn edges(pairs: &[(&str, &str)]) -> Vec<Edge> {
    pairs.iter().map(|(from, to)| Edge { from: id(from), to: id(to) }).collect()
}

fn spec(nodes: Vec<Node>, pairs: &[(&str, &str)]) -> DagSpec {
    DagSpec {
        nodes,
        edges: edges(pairs),
        bandwidth: Bandwidth::from_gbps(1),
        form: FormPreference::Auto,
        packet_sizes: PacketSizes::default(),
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    }
}

fn nodes(ids: &[&str]) -> Vec<Node> {
    ids.iter().map(|of| node(of, "nat")).collect()
}

fn refused(spec: DagSpec) -> InvalidDag {
    Dag::new(spec).expect_err("invalid")
}

#[rstest]
#[case(spec(Vec::new(), &[]), "nodes", "the DAG has no nodes; give at least one NT")]
#[case(
    spec((0..=DAG_NODES_MAX).map(|n| node(&format!("n{n}"), "nat")).collect(), &[]),
    "nodes",
    "the DAG has 65 nodes; at most 64 are allowed"
)]
#[case(
    spec(nodes(&["a", "b", "a"]), &[("a", "b")]),
    "nodes[2].id",
    "duplicate node id a: node ids are unique within a DAG"
)]
#[case(
    spec(nodes(&["a", "b"]), &[("a", "b"), ("b", "c")]),
    "edges[1]",
    "edge b -> c names node c, which is not in the DAG; add the node or remove the edge"
)]
#[case(
    spec(nodes(&["a", "b"]), &[("a", "b"), ("a", "b")]),
    "edges[1]",
    "edge a -> b is a self-loop or a duplicate; remove it"
)]
#[case(
    spec(nodes(&["a"]), &[("a", "a")]),
    "edges[0]",
    "edge a -> a is a self-loop or a duplicate; remove it"
)]
#[case(
    spec(nodes(&["a", "b", "c"]), &[("a", "b"), ("b", "c"), ("c", "b")]),
    "edges",
    "the DAG has a cycle; remove an edge of the cycle through node b"
)]
#[case(
    spec(nodes(&["a", "b", "c"]), &[("a", "c"), ("b", "c")]),
    "nodes",
    "nodes a and b both have no predecessor; a DAG has one entry"
)]
#[case(
    spec(
        nodes(&["a", "b", "c", "d", "e", "f"]),
        &[("a", "b"), ("a", "c"), ("a", "d"), ("a", "e"), ("a", "f")]
    ),
    "edges",
    "node a forks into 5 branches; at most 4 are allowed"
)]
#[case(
    spec(vec![node("a", "nat"), configured("b", "nat", r#"{"x": 1}"#)], &[("a", "b")]),
    "nodes[1].configuration",
    "nodes a and b are both of type nat, and one of them has a configuration: an NT keeps one \
     configuration and one state for a DAG; use the type once, or without a configuration"
)]
#[case(
    DagSpec { bandwidth: Bandwidth::from_bps(1_000_500), ..spec(nodes(&["a"]), &[]) },
    "bandwidth_bps",
    "bandwidth 1000500 bit/s is not allowed: 1 Mbit/s to 4000 Gbit/s, in whole kbit/s"
)]
#[case(
    DagSpec { packet_sizes: PacketSizes::only(63), ..spec(nodes(&["a"]), &[]) },
    "packet_sizes[0].bytes",
    "packet sizes: a packet of 63 bytes; give 64 to 9216 bytes"
)]
fn a_dag_is_refused_by_field_and_text(
    #[case] spec: DagSpec,
    #[case] field: &str,
    #[case] text: &str,
) {
    let error = refused(spec);
    assert_eq!((error.field().as_str(), error.to_string().as_str()), (field, text));
}

fn names(count: usize) -> BTreeSet<DagName> {
    let name = |i: usize| DagName {
        tenant: TenantId::new("acme").expect("a label"),
        dag: DagId::new(&format!("d{i:02}")).expect("a label"),
    };
    (0..count).map(name).collect()
}

fn with_affinity(together: usize, apart: usize) -> DagSpec {
    let apart_from = names(together + apart).into_iter().skip(together).collect();
    let together_with = names(together);
    let card_affinity = CardAffinity { together_with, apart_from, preferred: false };
    DagSpec { card_affinity, ..spec(nodes(&["a"]), &[]) }
}

#[test]
fn an_affinity_names_few_dags_and_none_in_both_lists() {
    assert!(Dag::new(with_affinity(16, 16)).is_ok());
    for (spec, field) in [
        (with_affinity(17, 0), "card_affinity.together_with"),
        (with_affinity(0, 17), "card_affinity.apart_from"),
    ] {
        let error = refused(spec);
        assert_eq!(error.field(), field);
        let text = format!("{field} names 17 DAGs; at most 16 are allowed in a list");
        assert_eq!(error.to_string(), text);
    }
    let mut both = with_affinity(3, 1);
    both.card_affinity.apart_from.extend(names(1));
    let error = refused(both);
    assert_eq!(error.field(), "card_affinity");
    let told = "card_affinity: tenants/acme/dags/d00 is in `together_with` and in `apart_from`; \
                leave it in one of them";
    assert_eq!(error.to_string(), told);
}

/// Records of before there was an affinity are read as they were written, and written so again.
#[test]
fn a_spec_without_affinity_is_stored_as_before() {
    let plain = spec(nodes(&["a"]), &[]);
    let stored = serde_json::to_string(&plain).expect("it is stored");
    assert!(!stored.contains("affinity"), "{stored}");
    assert_eq!(serde_json::from_str::<DagSpec>(&stored).expect("it was stored"), plain);
    let bound = with_affinity(1, 1);
    let stored = serde_json::to_string(&bound).expect("it is stored");
    assert_eq!(serde_json::from_str::<DagSpec>(&stored).expect("it was stored"), bound);
}

#[test]
fn configurations_are_counted_together() {
    let half = format!(r#"{{"x": "{}"}}"#, "y".repeat(DAG_CONFIGURATION_BYTES_MAX / 2));
    let both = vec![configured("a", "nat", &half), configured("b", "lb", &half)];
    let error = refused(spec(both, &[("a", "b")]));
    assert_eq!(error.field(), "nodes");
    let InvalidDag::ConfigurationTooLong { bytes } = error else { panic!("{error}") };
    assert!(bytes > DAG_CONFIGURATION_BYTES_MAX, "{bytes}");
    assert!(Dag::new(spec(vec![configured("a", "nat", &half)], &[])).is_ok(), "one alone fits");
}

/// The first rule that is broken is told, in the order of the documentation.
#[test]
fn the_first_broken_rule_is_told() {
    let nothing = spec(Vec::new(), &[("a", "b")]);
    let sizes = DagSpec { packet_sizes: PacketSizes::only(0), ..nothing.clone() };
    let bandwidth = DagSpec { bandwidth: Bandwidth::ZERO, ..sizes.clone() };
    let fields = [bandwidth, sizes, nothing].map(|spec| refused(spec).field());
    assert_eq!(fields, ["bandwidth_bps", "packet_sizes[0].bytes", "nodes"]);
    let unknown_and_cyclic = spec(nodes(&["a", "b"]), &[("a", "b"), ("b", "a"), ("b", "z")]);
    assert_eq!(refused(unknown_and_cyclic).field(), "edges[2]", "before the cycle");
}

const RESOURCES: [Resource; 21] = [
    Resource::IngressBandwidth,
    Resource::EgressBandwidth,
    Resource::NtBandwidth,
    Resource::NtPackets,
    Resource::RegionPort,
    Resource::Credits,
    Resource::PacketStore,
    Resource::StoreReads,
    Resource::SyncEntries,
    Resource::Regions,
    Resource::Bitstreams,
    Resource::Memory,
    Resource::MemoryBandwidth,
    Resource::SchedulerLookups,
    Resource::TableRows,
    Resource::Passes,
    Resource::SearchSteps,
    Resource::Cards,
    Resource::Threads,
    Resource::ReceiveBandwidth,
    Resource::ProgramMemory,
];

fn shortage(resource: Resource, required: u64, available: u64) -> Shortage {
    Shortage { resource, required, available, nodes: Vec::new(), detail: String::new() }
}

#[rstest]
#[case(Resource::IngressBandwidth, "ingress bandwidth: 2 kbit/s needed, 1 bit/s available")]
#[case(Resource::EgressBandwidth, "egress bandwidth: 2 kbit/s needed, 1 bit/s available")]
#[case(Resource::NtBandwidth, "NT bandwidth: 2 kbit/s needed, 1 bit/s available")]
#[case(Resource::NtPackets, "NT packets: 2000 packets/s needed, 1 packets/s available")]
#[case(Resource::MemoryBandwidth, "memory bandwidth: 1.953 KiB/s needed, 1 bytes/s available")]
#[case(
    Resource::SchedulerLookups,
    "scheduler look-ups: 2000 look-ups/s needed, 1 look-ups/s available"
)]
#[case(Resource::RegionPort, "region port: 2000 cycles/s needed, 1 cycles/s available")]
#[case(Resource::Credits, "credits: 2.000 credits needed, 0.001 credits available")]
#[case(Resource::PacketStore, "packet store: 1.953 KiB needed, 1 bytes available")]
#[case(Resource::StoreReads, "packet store reads: 2000 beats/s needed, 1 beats/s available")]
#[case(
    Resource::SyncEntries,
    "synchronization entries: 2.000 entries needed, 0.001 entries available"
)]
#[case(Resource::Regions, "regions: 2000 regions needed, 1 region available")]
#[case(Resource::Bitstreams, "bitstreams: 2000 bitstreams needed, 1 bitstream available")]
#[case(Resource::Memory, "on-board memory: 1.953 KiB needed, 1 bytes available")]
#[case(Resource::TableRows, "table rows: 2000 rows needed, 1 row available")]
#[case(Resource::Passes, "scheduler passes: 2000 passes needed, 1 pass available")]
#[case(Resource::SearchSteps, "search steps: 2000 steps needed, 1 step available")]
#[case(Resource::Cards, "cards by affinity: 2000 cards needed, 1 card available")]
#[case(Resource::Threads, "threads: 2000 threads needed, 1 thread available")]
#[case(Resource::ReceiveBandwidth, "receive bandwidth: 2 kbit/s needed, 1 bit/s available")]
#[case(Resource::ProgramMemory, "memory of programs: 1.953 KiB needed, 1 bytes available")]
fn a_shortage_says_what_is_needed_and_what_there_is(
    #[case] resource: Resource,
    #[case] text: &str,
) {
    assert_eq!(shortage(resource, 2_000, 1).to_string(), text);
}

#[test]
fn each_resource_has_a_name_of_its_own_and_a_unit() {
    let names: BTreeSet<String> = RESOURCES.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), RESOURCES.len());
    assert!(RESOURCES.iter().all(|resource| !resource.unit().is_empty()));
}

/// Reservations from before ports, credits and beats were counted may be over them; nothing else may.
#[test]
fn only_what_was_counted_later_may_be_overbooked_by_older_reservations() {
    let late: Vec<Resource> = RESOURCES.into_iter().filter(|r| r.is_counted_late()).collect();
    let expected = [
        Resource::IngressBandwidth,
        Resource::EgressBandwidth,
        Resource::NtPackets,
        Resource::RegionPort,
        Resource::Credits,
        Resource::PacketStore,
        Resource::StoreReads,
        Resource::SyncEntries,
        Resource::MemoryBandwidth,
        Resource::SchedulerLookups,
    ];
    assert_eq!(late, expected);
}

#[test]
fn where_nothing_fits_the_hardest_shortage_is_told_with_its_detail() {
    let detail = "region 3 holds another chain".to_owned();
    let first = Shortage { detail, ..shortage(Resource::Regions, 1, 0) };
    let shortages = vec![first, shortage(Resource::Memory, 2, 1)];
    assert_eq!(
        Infeasible { shortages }.to_string(),
        "no feasible placement: regions: 1 region needed, 0 regions available (region 3 holds another \
         chain)"
    );
    assert_eq!(Infeasible { shortages: Vec::new() }.to_string(), "no feasible placement: ");
}

/// Explanations are stored: one from before costs were compared has a shortage beside its kind.
#[test]
fn a_rejection_is_stored_beside_its_kind_as_before() {
    let stored = r#"{"way":"victim-region","shortage":{"resource":"regions","required":1,"available":0,
        "nodes":[],"detail":""}}"#;
    let read: Rejection = serde_json::from_str(stored).expect("an older record");
    assert_eq!(read.kind, EmbeddingKind::VictimRegion);
    assert_eq!(read.reason, RejectionReason::Shortage(shortage(Resource::Regions, 1, 0)));
    let again = serde_json::to_value(&read).expect("it is data");
    assert_eq!(again, serde_json::from_str::<serde_json::Value>(stored).expect("JSON"));
    let (least, chosen) = (cost(1, 0, 2), cost(0, 0, 1));
    let costs = CostsMore { nodes: vec![id("a")], least, chosen };
    let dearer = Rejection { reason: RejectionReason::CostsMore(costs), ..read };
    let stored = serde_json::to_value(&dearer).expect("it is data");
    assert_eq!(stored["costs-more"]["least"]["passes"], 2);
    assert_eq!(serde_json::from_value::<Rejection>(stored).expect("what was written"), dearer);
}

const fn cost(regions: u32, victims: u32, passes: u32) -> EmbeddingCost {
    EmbeddingCost { regions, victims, passes }
}

proptest! {
    /// Credits are printed to the thousandth: what is read back is the number.
    #[test]
    fn credits_are_printed_exactly(thousandths: u64) {
        let text = shortage(Resource::Credits, thousandths, 0).to_string();
        let number = text.strip_prefix("credits: ").and_then(|rest| rest.split_once(' '));
        let (number, _) = number.expect("an amount");
        let (whole, part) = number.split_once('.').expect("three decimals");
        prop_assert_eq!(part.len(), 3);
        let read: u128 = whole.parse::<u128>().expect("a number") * 1_000
            + part.parse::<u128>().expect("a number");
        prop_assert_eq!(read, u128::from(thousandths));
    }
}
