//! Sizes: whatever is within the limits of requests fits the records of the store, also while it is being updated;
//! and a dry run says what the request itself would be answered.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use snic_controller::{Command, DAG_SPEC_BYTES_MAX, DagBatch, NewDag, Reply, Request};
use snic_domain::limits::{
    AFFINITY_DAGS_MAX, DAG_CONFIGURATION_BYTES_MAX, DAG_NODES_MAX, DESCRIPTION_BYTES_MAX,
    FORK_BRANCHES_MAX, LABEL_CHARS_MAX, LABELS_MAX, TRUSTED_TENANTS_MAX,
};
use snic_domain::{
    Bandwidth, CardAffinity, Dag, DagName, DagSpec, Description, Edge, ID_CHARS_MAX, Labels, Node,
    NodeId, Notes, NtConfiguration, NtTypeId, TenantId,
};
use snic_ports::store::RECORD_BYTES_MAX;

use crate::support::things::{create, dag, spec, tenant_id, update};
use crate::support::{Answer, World, operator};

/// Pieces of JSON texts, by how much longer they become in a record: none at all, or twice.
const FILLERS: [&str; 4] = ["x", "é", r#"\""#, r"\\"];

/// A JSON object of so many bytes.
fn configuration(filler: &str, bytes: usize) -> NtConfiguration {
    let (begin, end) = (r#"{"k":""#, r#""}"#);
    let room = bytes - begin.len() - end.len();
    let fill = filler.repeat(room / filler.len()) + &"x".repeat(room % filler.len());
    NtConfiguration::new(&format!("{begin}{fill}{end}"))
}

/// The longest id of a kind.
fn long(number: usize) -> String {
    let digits = number.to_string();
    format!("n{}{digits}", "x".repeat(ID_CHARS_MAX - 1 - digits.len()))
}

fn longest_notes() -> Notes {
    let label = |number: usize| {
        let digits = format!("{number:02}");
        let text = |fill: &str| format!("{}{digits}", fill.repeat(LABEL_CHARS_MAX - 2));
        (text("k"), text("v"))
    };
    let labels: BTreeMap<String, String> = (0..LABELS_MAX).map(label).collect();
    let description = "\u{1}".repeat(DESCRIPTION_BYTES_MAX);
    Notes {
        labels: Labels::new(labels).expect("within the limits"),
        description: Description::new(&description).expect("within the limit"),
    }
}

fn affinity(dags: usize) -> CardAffinity {
    let named = |number: usize| DagName {
        tenant: tenant_id("acme"),
        dag: long(number).parse().expect("a label"),
    };
    CardAffinity {
        together_with: BTreeSet::new(),
        apart_from: (0..dags).map(named).collect(),
        preferred: true,
    }
}

fn trusted(tenants: usize) -> BTreeSet<TenantId> {
    (0..tenants).map(|number| tenant_id(&long(number))).collect()
}

/// A spec in which everything is as long as it may be.
fn longest() -> DagSpec {
    let id = |number: usize| long(number).parse::<NodeId>().expect("a label");
    let node = |number: usize| {
        let nt = format!("{}.{}", long(number), long(number)).parse::<NtTypeId>();
        Node::new(id(number), nt.expect("a name"))
    };
    let mut nodes: Vec<Node> = (0..DAG_NODES_MAX).map(node).collect();
    nodes[0].configuration = Some(configuration(r"\\", DAG_CONFIGURATION_BYTES_MAX));
    let edges = (0..DAG_NODES_MAX).flat_map(|from| {
        let last = (from + FORK_BRANCHES_MAX).min(DAG_NODES_MAX - 1);
        (from + 1..=last).map(move |to| Edge { from: id(from), to: id(to) })
    });
    let edges = edges.collect();
    let mut affinity = affinity(AFFINITY_DAGS_MAX);
    let other = |number: usize| DagName {
        tenant: tenant_id(&long(number)),
        dag: long(number).parse().expect("a label"),
    };
    affinity.together_with = (90..90 + AFFINITY_DAGS_MAX).map(other).collect();
    DagSpec {
        nodes,
        edges,
        trusted_tenants: trusted(TRUSTED_TENANTS_MAX),
        card_affinity: affinity,
        notes: longest_notes(),
        ..spec("nat", 1)
    }
}

#[test]
fn the_longest_spec_has_room_in_a_record_three_times() {
    let spec = longest();
    let dag = Dag::new(spec).expect("it is within every other limit");
    let bytes = serde_json::to_vec(dag.spec()).expect("text keys").len();
    assert!(bytes <= DAG_SPEC_BYTES_MAX, "{bytes}");
    assert!(bytes > DAG_SPEC_BYTES_MAX / 4 * 3, "{bytes}: the limit has its reason no more");
    // What is left is for two mappings.
    const { assert!(RECORD_BYTES_MAX - 3 * DAG_SPEC_BYTES_MAX >= 256 << 10) };
}

fn request(command: Command) -> Request {
    Request { caller: operator(), request_id: None, command }
}

/// Asks twice: what would be, and the request itself. Both are answered alike, and what is stored is within the
/// store's limit.
fn ask(world: &mut World, of: impl Fn(bool) -> Command) -> Answer {
    let before = world.durable.clone();
    let dry = world.request(request(of(true))).expect("an answer");
    assert_eq!(world.durable, before, "a dry run stores nothing");
    let real = world.request(request(of(false))).expect("an answer");
    assert_eq!(dry.as_ref().err(), real.as_ref().err());
    check_records(world);
    real
}

fn check_records(world: &World) {
    for (key, value) in &world.durable {
        assert!(value.len() <= RECORD_BYTES_MAX, "{key} has {} bytes", value.len());
    }
}

fn creates(spec: &DagSpec) -> impl Fn(bool) -> Command {
    let spec = spec.clone();
    move |validate_only| Command::CreateDag {
        name: dag("acme/web"),
        spec: spec.clone(),
        validate_only,
    }
}

fn updates(spec: &DagSpec) -> impl Fn(bool) -> Command {
    let spec = spec.clone();
    move |validate_only| Command::UpdateDag {
        name: dag("acme/web"),
        patch: spec.clone().into(),
        etag: None,
        validate_only,
    }
}

/// A spec that the card has room for, with all else up to its limit or just over it.
fn large() -> impl Strategy<Value = DagSpec> {
    let sizes = prop_oneof![
        3 => Just(DAG_CONFIGURATION_BYTES_MAX),
        1 => Just(DAG_CONFIGURATION_BYTES_MAX + 1),
        2 => 16..DAG_CONFIGURATION_BYTES_MAX,
    ];
    let tenants = prop_oneof![2 => Just(TRUSTED_TENANTS_MAX), 1 => Just(TRUSTED_TENANTS_MAX + 1)];
    let dags = prop_oneof![2 => Just(AFFINITY_DAGS_MAX), 1 => Just(AFFINITY_DAGS_MAX + 1)];
    (0..FILLERS.len(), sizes, tenants, dags, 1..4u64).prop_map(
        |(filler, bytes, tenants, dags, gbps)| {
            let mut spec = spec("nat firewall", gbps);
            spec.nodes[1].configuration = Some(configuration(FILLERS[filler], bytes));
            spec.trusted_tenants = trusted(tenants);
            spec.card_affinity = affinity(dags);
            spec.notes = longest_notes();
            spec
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Creates, updates before the one before is served and after, and a restart.
    #[test]
    fn what_is_within_the_limits_is_stored_and_a_dry_run_says_so(
        specs in prop::collection::vec(large(), 1..4), is_quick: bool,
    ) {
        let mut world = World::new();
        let (first, rest) = specs.split_first().expect("one at least");
        if ask(&mut world, creates(first)).is_err() {
            return Ok(());
        }
        world.settle();
        for next in rest {
            // Refused is one that is over a limit.
            let _ = ask(&mut world, updates(next));
            if !is_quick {
                world.settle();
            }
        }
        world.settle();
        check_records(&world);
        let view = world.view("acme/web");
        world.restart();
        world.settle();
        prop_assert_eq!(world.view("acme/web").spec, view.spec);
    }
}

/// 48 KB of rules as text, 68 KB in JSON inside JSON: once they ended the daemon.
#[test]
fn a_firewall_of_three_hundred_rules_is_created_and_updated() {
    let rule = |number: usize| {
        format!(
            r#"{{"action":"accept","protocol":"tcp","source":"10.{}.{}.0/24","destination":"192.168.{}.{}/32","source_ports":"1024-65535","destination_ports":"{number}-{number}"}}"#,
            number / 250,
            number % 250,
            number / 250,
            number % 250,
        )
    };
    let rules = |count: usize| {
        let rules: Vec<String> = (0..count).map(rule).collect();
        NtConfiguration::new(&format!(r#"{{"rules":[{}]}}"#, rules.join(",")))
    };
    let with = |told: NtConfiguration| {
        let mut spec = spec("firewall", 1);
        spec.nodes[0].configuration = Some(told);
        spec
    };
    let mut world = World::new();
    ask(&mut world, creates(&with(rules(300)))).expect("it is within the limit");
    world.settle();
    ask(&mut world, updates(&with(rules(400)))).expect("it is within the limit");
    check_records(&world);
    world.restart();
    world.settle();
    check_records(&world);
    let told = world.view("acme/web").spec.nodes[0].configuration.clone();
    assert_eq!(told, Some(rules(400)));
}

/// As many as may be in one request, each as large as it may be, and each refused for many reasons: what is remembered of
/// the request fits a record.
#[test]
fn a_batch_of_the_largest_dags_and_of_the_longest_errors_is_remembered() {
    let mut world = World::new();
    let unknown = |number: usize| {
        let spec = DagSpec { trusted_tenants: BTreeSet::new(), ..longest() };
        NewDag { id: format!("d{number}").parse().expect("a label"), spec }
    };
    let mut dags: Vec<NewDag> = (0..31).map(unknown).collect();
    let mut fits = spec("nat", 1);
    fits.nodes[0].configuration = Some(configuration(r"\\", DAG_CONFIGURATION_BYTES_MAX));
    dags.push(NewDag { id: "fits".parse().expect("a label"), spec: fits });
    let batch = |validate_only| DagBatch {
        tenant: tenant_id("acme"),
        dags: dags.clone(),
        allow_partial: true,
        validate_only,
    };
    let asked = |world: &mut World, dry: bool, id: Option<&str>| {
        let plan = world.controller.batch_snapshot(&batch(dry)).plan();
        let command = Command::CreateDags { batch: batch(dry), plan };
        let answer = world.request(Request { request_id: id.map(Into::into), ..request(command) });
        match answer.expect("an answer").expect("some may fail") {
            Reply::Batch(results) => results,
            other => panic!("not of a batch: {other:?}"),
        }
    };
    let dry: Vec<bool> = asked(&mut world, true, None).iter().map(Result::is_ok).collect();
    let real = asked(&mut world, false, Some("r1"));
    assert_eq!(real.iter().map(Result::is_ok).collect::<Vec<_>>(), dry);
    assert_eq!(real.iter().filter(|result| result.is_ok()).count(), 1);
    check_records(&world);
    // The same request again: nothing is created twice, and the errors say the first of what is wrong.
    let again = asked(&mut world, false, Some("r1"));
    assert_eq!(again.iter().map(Result::is_ok).collect::<Vec<_>>(), dry);
    for (again, real) in again.iter().zip(&real) {
        let first = |result: &Answer| result.as_ref().err().map(ToString::to_string);
        assert_eq!(first(again), first(real));
    }
}

#[test]
fn what_is_only_named_longer_is_refused_alike() {
    let mut world = World::new();
    let mut spec = spec("nat", 1);
    spec.nodes[0].configuration = Some(configuration("x", DAG_CONFIGURATION_BYTES_MAX + 1));
    let error = ask(&mut world, creates(&spec)).expect_err("one byte too much");
    assert!(error.to_string().contains("65537"), "{error}");
    spec.nodes[0].configuration = Some(configuration("x", DAG_CONFIGURATION_BYTES_MAX));
    world.ask(create("acme/web", spec.clone())).expect("it is within the limit");
    world.settle();
    spec.bandwidth = Bandwidth::from_gbps(2);
    world.ask(update("acme/web", spec)).expect("it is within the limit");
    world.settle();
}
