use std::collections::BTreeMap;
use std::num::NonZeroU32;

use proptest::prelude::*;
use prost_types::FieldMask;
use rstest::rstest;
use snic_domain::{
    Area, Bandwidth, BitstreamId, ByteSize, CardAffinity, CardId, Cycles, DagId, DagName, DagSpec,
    Edge, FormPreference, Instance, Mapping, Match, MemoryTraffic, MonthBudget, Node, NodeId,
    NtType, NtTypeId, Prefix, ProjectChange, ProjectId, Quota, RegionId, RegionKind, Rule, RuleId,
    Slot, Stage, Tenant, TenantId, Traffic, VirtualChain,
};
use tonic_types::StatusExt as _;

use super::dag::{Content, DagReader};
use super::mask::Mask;
use super::*;
use crate::v1;

/// The paths of the fields that a failure names.
fn fields(failure: ApiError) -> Vec<String> {
    let bad = tonic::Status::from(failure).get_details_bad_request();
    let violations = bad.map(|bad| bad.field_violations).unwrap_or_default();
    violations.into_iter().map(|violation| violation.field).collect()
}

fn paths(paths: &[&str]) -> FieldMask {
    FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() }
}

fn tenant_id(text: &str) -> TenantId {
    TenantId::new(text).expect("valid")
}

fn dag_name(text: &str) -> DagName {
    let (tenant, dag) = text.split_once('/').expect("tenant and DAG");
    DagName { tenant: tenant_id(tenant), dag: DagId::new(dag).expect("a label") }
}

fn to_wire(spec: &DagSpec) -> v1::Dag {
    v1::Dag {
        nodes: dag::nodes_to_wire(spec, dag::whole),
        edges: dag::edges_to_wire(spec),
        bandwidth_bps: spec.bandwidth.get(),
        form: dag::preference_to_wire(spec.form).into(),
        packet_sizes: dag::packet_sizes_to_wire(&spec.packet_sizes),
        trusted_tenants: spec.trusted_tenants.iter().map(name::of_tenant).collect(),
        card_affinity: dag::affinity_to_wire(&spec.card_affinity),
        latency_sensitive: spec.latency_sensitive,
        refuse_idle_tasks: spec.refuse_idle_tasks,
        latency_bound_nanos: spec.latency_bound.get(),
        labels: spec.notes.labels.as_map().clone(),
        description: spec.notes.description.as_str().to_owned(),
        ..Default::default()
    }
}

fn any_spec() -> impl Strategy<Value = DagSpec> {
    let node = ("[a-z][a-z0-9]{0,5}", "([a-z]{1,4}[.])?[a-z]{1,6}").prop_map(|(id, nt)| {
        let id = NodeId::new(&id).expect("a label");
        Node::new(id, NtTypeId::new(&nt).expect("an owned label"))
    });
    let edge = ("[a-z]{1,3}", "[a-z]{1,3}").prop_map(|(from, to)| Edge {
        from: NodeId::new(&from).expect("a label"),
        to: NodeId::new(&to).expect("a label"),
    });
    (
        prop::collection::vec(node, 0..8),
        prop::collection::vec(edge, 0..8),
        any::<u64>(),
        prop::sample::select(vec![
            FormPreference::Auto,
            FormPreference::Sequential,
            FormPreference::Parallel,
        ]),
        prop::collection::vec((any::<u32>(), any::<u32>()), 1..4),
    )
        .prop_map(|(nodes, edges, bps, form, sizes)| DagSpec {
            nodes,
            edges,
            bandwidth: Bandwidth::from_bps(bps),
            trusted_tenants: [TenantId::new("friend").expect("valid")].into(),
            card_affinity: CardAffinity {
                together_with: [dag_name("acme/a")].into(),
                apart_from: [dag_name("acme/b"), dag_name("acme/c")].into(),
                preferred: bps % 2 == 0,
            },
            latency_sensitive: bps % 3 == 0,
            refuse_idle_tasks: bps % 5 == 0,
            latency_bound: snic_domain::LatencyBound::new(bps % 7),
            notes: snic_domain::Notes {
                labels: snic_domain::Labels::new([("app".into(), "web".into())].into())
                    .expect("valid"),
                description: snic_domain::Description::new("shop").expect("short"),
            },
            form,
            packet_sizes: snic_domain::PacketSizes::new(
                sizes
                    .into_iter()
                    .map(|(bytes, weight)| snic_domain::PacketSize { bytes, weight })
                    .collect(),
            ),
        })
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    (any::<u32>(), 0..=32u8).prop_map(|(bits, length)| {
        let whole = Prefix { address: bits.into(), length };
        Prefix { address: (bits & whole.mask()).into(), length }
    })
}

fn any_match() -> impl Strategy<Value = Match> {
    (
        any::<Option<u16>>(),
        prop::option::of(0..1u32 << 24),
        prop::option::of(any_prefix()),
        prop::option::of(any_prefix()),
        any::<Option<u8>>(),
        any::<(Option<u16>, Option<u16>)>(),
        prop::option::of(1..=4_094_u16),
    )
        .prop_map(|(virtual_function, vni, source, destination, protocol, ports, vlan)| Match {
            virtual_function,
            vni,
            source,
            destination,
            protocol,
            source_port: ports.0,
            destination_port: ports.1,
            vlan,
        })
        .prop_filter("at least one field", |matches| *matches != Match::default())
}

proptest! {
    #[test]
    fn a_dag_comes_back_as_it_went(spec in any_spec()) {
        prop_assert_eq!(dag::spec(&to_wire(&spec)).expect("what went out is valid"), spec);
    }

    #[test]
    fn an_update_of_all_fields_sets_all(spec in any_spec(), before in any_spec()) {
        let patch = dag::patch(&to_wire(&spec), Some(&paths(&["*"]))).expect("valid");
        prop_assert_eq!(patch.apply(&before), spec);
    }

    #[test]
    fn an_update_without_a_mask_keeps_what_is_not_set(spec in any_spec(), before in any_spec()) {
        let after = dag::patch(&to_wire(&spec), None).expect("valid").apply(&before);
        let kept = |set: bool, new: &DagSpec| if set { new.clone() } else { before.clone() };
        prop_assert_eq!(&after.nodes, &kept(!spec.nodes.is_empty(), &spec).nodes);
        prop_assert_eq!(&after.edges, &kept(!spec.edges.is_empty(), &spec).edges);
        prop_assert_eq!(after.bandwidth, kept(spec.bandwidth.get() != 0, &spec).bandwidth);
        prop_assert_eq!(after.form, kept(spec.form != FormPreference::Auto, &spec).form);
    }

    #[test]
    fn a_rule_comes_back_as_it_went(matches in any_match(), priority in any::<u16>()) {
        let dag = name::dag("dag", "tenants/a/dags/b").expect("valid");
        let rule = Rule { id: RuleId::new("r").expect("valid"), priority, matches, dag, notes: Default::default() };
        let wire = rule::rule_to_wire(&rule);
        prop_assert_eq!(rule::rule("r", Some(&wire)).expect("what went out is valid"), rule);
    }

    #[test]
    fn any_bytes_of_a_prefix_are_read_or_refused(text in "[0-9./ a]{0,20}") {
        let matches = v1::PacketMatch { source_prefix: text.clone(), ..Default::default() };
        let wire = v1::Rule {
            r#match: Some(matches),
            dag: "tenants/a/dags/b".into(),
            ..Default::default()
        };
        if let Ok(rule) = rule::rule("r", Some(&wire)) {
            let back = rule::rule_to_wire(&rule).r#match.expect("always there").source_prefix;
            prop_assert!(back == text || back == format!("{text}/32"), "{text:?} {back:?}");
        }
    }

    #[test]
    fn region_names_come_back_as_they_went(number in 0..32u8) {
        let card = CardId::new("c0").expect("valid");
        let text = name::of_region(&card, RegionId(number));
        prop_assert_eq!(name::region("name", &text), Ok((card, RegionId(number))));
    }
}

/// A rule to a DAG that exists, as it would be sent.
fn rule_of(matches: v1::PacketMatch) -> v1::Rule {
    let (r#match, dag) = (Some(matches), "tenants/acme/dags/web".into());
    v1::Rule { priority: 7, r#match, dag, ..Default::default() }
}

#[test]
fn a_rule_says_which_packets_it_is_for() {
    let none = rule::rule("r", Some(&rule_of(v1::PacketMatch::default())));
    assert_eq!(fields(none.expect_err("every packet of the card")), ["rule.match"]);
    let absent = v1::Rule { r#match: None, ..rule_of(v1::PacketMatch::default()) };
    assert_eq!(fields(rule::rule("r", Some(&absent)).expect_err("none")), ["rule.match"]);
    // What it is for may be zero.
    let zero = v1::PacketMatch { virtual_function: Some(0), ..Default::default() };
    let read = rule::rule("r", Some(&rule_of(zero))).expect("one function");
    assert_eq!(read.matches, Match { virtual_function: Some(0), ..Match::default() });
}

/// A field of a match with a value in it.
type Set = fn(u32) -> v1::PacketMatch;

/// Values are bounded by the headers' fields: VXLAN's VNI has 24 bits, IPv4's protocol 8, ports 16.
#[rstest]
#[case("vni", 0xFF_FFFF, |vni| v1::PacketMatch { vni: Some(vni), ..Default::default() })]
#[case("protocol", 255, |it| v1::PacketMatch { protocol: Some(it), ..Default::default() })]
#[case("source_port", 65_535, |it| v1::PacketMatch { source_port: Some(it), ..Default::default() })]
#[case("destination_port", 65_535, |it| v1::PacketMatch {
    destination_port: Some(it), ..Default::default()
})]
#[case("virtual_function", 65_535, |it| v1::PacketMatch {
    virtual_function: Some(it), ..Default::default()
})]
fn a_field_takes_what_its_header_holds(#[case] field: &str, #[case] most: u32, #[case] set: Set) {
    assert!(rule::rule("r", Some(&rule_of(set(most)))).is_ok(), "{field}");
    for more in [most + 1, u32::MAX] {
        let refused = rule::rule("r", Some(&rule_of(set(more)))).expect_err("no header has it");
        assert_eq!(fields(refused), [format!("rule.match.{field}")]);
    }
}

#[rstest]
#[case("10.1.0.0/16", true)]
#[case("10.1.2.3", true)]
#[case("0.0.0.0/0", true)]
#[case("10.1.2.3/16", false)]
#[case("10.1.0.1/31", false)]
#[case("10.1.0.0/33", false)]
#[case("10.1.0.0/016", false)]
#[case("10.1.0/24", false)]
fn a_prefix_has_no_bits_behind_its_length(#[case] text: &str, #[case] is_one: bool) {
    let source = v1::PacketMatch { source_prefix: text.into(), ..Default::default() };
    let read = rule::rule("r", Some(&rule_of(source)));
    assert_eq!(read.is_ok(), is_one, "{text}");
    let destination = v1::PacketMatch { destination_prefix: text.into(), ..Default::default() };
    match rule::rule("r", Some(&rule_of(destination))) {
        Ok(_) => assert!(is_one, "{text}"),
        Err(error) => assert_eq!(fields(error), ["rule.match.destination_prefix"]),
    }
}

#[rstest]
#[case("cards/c0/regions/32")]
#[case("cards/c0/regions/007")]
#[case("cards/c0/regions/+1")]
#[case("cards/c0/regions/x")]
#[case("cards/C0/regions/1")]
fn no_region_is_called_so(#[case] text: &str) {
    let problem = name::region("name", text).expect_err(text);
    assert_eq!((problem.reason, &*problem.field), (ErrorReason::InvalidName, "name"));
}

#[test]
fn a_parent_is_one_or_all() {
    assert_eq!(name::tenant_or_all("parent", "tenants/-"), Ok(None));
    assert_eq!(name::tenant_or_all("parent", "tenants/a"), Ok(Some(tenant_id("a"))));
    assert_eq!(name::card_or_all("parent", "cards/-"), Ok(None));
    let missing = name::card_or_all("parent", "").expect_err("empty");
    assert_eq!(missing, FieldProblem::required("parent"));
}

#[test]
fn time_is_seconds_and_nanoseconds() {
    let at = timestamp(Timestamp::from_nanos(1_700_000_000_123_456_789));
    assert_eq!((at.seconds, at.nanos), (1_700_000_000, 123_456_789));
    assert_eq!(timestamp(Timestamp::from_nanos(u64::MAX)).seconds, 18_446_744_073);
}

#[test]
fn a_mask_names_known_paths() {
    const KNOWN: &[&str] = &["a", "b.c"];
    let read = |mask: &[&str]| Mask::read(Some(&paths(mask)), KNOWN);
    assert_eq!(Mask::read(None, KNOWN), Ok(Mask::SetFields));
    assert_eq!(read(&[]), Ok(Mask::SetFields));
    assert_eq!(read(&["*"]), Ok(Mask::Paths(vec!["a", "b.c"])));
    let mask = read(&["b.c"]).expect("known");
    assert!(mask.has("b.c", false) && !mask.has("a", true));
    let problem = read(&["a", "b"]).expect_err("unknown");
    assert_eq!(problem.reason, ErrorReason::InvalidUpdateMask);
    assert!(
        problem.what.contains("path \"b\" cannot be set (allowed: a, b.c)"),
        "{}",
        problem.what
    );
}

#[test]
fn a_tenant_joins_and_leaves_a_project() {
    let of = |project: &str| v1::Tenant { project: project.into(), ..Default::default() };
    let red = ProjectId::new("red").expect("a name");
    let made = tenant::tenant(tenant_id("acme"), Some(&of("projects/red"))).expect("valid");
    assert_eq!(made.project, Some(red.clone()));
    let patch = |project: &str, mask: Option<&FieldMask>| {
        tenant::patch(&of(project), mask).expect("valid").project
    };
    assert_eq!(patch("projects/red", None), ProjectChange::Join(red));
    assert_eq!(patch("", None), ProjectChange::Keep, "nothing is said");
    assert_eq!(patch("", Some(&paths(&["project"]))), ProjectChange::Leave);
    assert_eq!(patch("projects/red", Some(&paths(&["weight"]))), ProjectChange::Keep);
    for wrong in ["red", "projects/", "projects/a/b", "tenants/red"] {
        let failure = tenant::tenant(tenant_id("acme"), Some(&of(wrong))).expect_err(wrong);
        assert_eq!(fields(failure), ["tenant.project"], "{wrong}");
    }
}

#[test]
fn a_tenant_has_defaults() {
    let made = tenant::tenant(tenant_id("acme"), None).expect("valid");
    assert_eq!(
        made,
        Tenant {
            id: tenant_id("acme"),
            weight: 1,
            quota: Quota::default(),
            notes: Default::default(),
            project: None
        }
    );
    let heavy = v1::Tenant { weight: 1_001, ..Default::default() };
    let failure = tenant::tenant(tenant_id("acme"), Some(&heavy)).expect_err("too heavy");
    assert_eq!(fields(failure), ["tenant.weight"]);
}

#[test]
fn a_quota_changes_where_the_mask_says() {
    let now = Quota { dags_max: 7, bitstreams_max: 8, ..Quota::default() };
    let wire = v1::Tenant {
        weight: 5,
        quota: Some(v1::Quota { dags_max: Some(1), ..Default::default() }),
        ..Default::default()
    };
    let read = |mask: Option<&[&str]>| {
        let patch = tenant::patch(&wire, mask.map(paths).as_ref()).expect("valid");
        (patch.weight, patch.quota.map(|quota| quota.apply(now)))
    };
    let one = Quota { dags_max: 1, ..now };
    assert_eq!(read(None), (Some(5), Some(one)));
    assert_eq!(read(Some(&["weight"])), (Some(5), None));
    assert_eq!(read(Some(&["quota.dags_max"])), (None, Some(one)));
    // What the mask names and the message lacks takes its default.
    let reset = Quota { bitstreams_max: 32, ..now };
    assert_eq!(read(Some(&["quota.bitstreams_max"])), (None, Some(reset)));
    let whole = Quota { dags_max: 1, ..Quota::default() };
    assert_eq!(read(Some(&["quota"])), (None, Some(whole)));
    assert_eq!(read(Some(&["*"])), (Some(5), Some(whole)));
    assert_eq!(tenant::quota_to_wire(&whole).dags_max, Some(1));
    assert_eq!(tenant::quota_to_wire(&whole).month_budget_micros, None, "there is none");
}

#[test]
fn a_budget_is_set_and_taken_away_by_the_mask() {
    let read = |micros: Option<u64>| {
        let quota = v1::Quota { month_budget_micros: micros, ..Default::default() };
        let wire = v1::Tenant { quota: Some(quota), ..Default::default() };
        let patch = tenant::patch(&wire, Some(&paths(&["quota.month_budget_micros"])));
        patch.expect("valid").quota.expect("it is named").month_budget
    };
    assert_eq!(read(Some(5)), Some(MonthBudget::from_micros(5)));
    assert_eq!(read(None), Some(MonthBudget::UNLIMITED));
    let quota = Quota { month_budget: MonthBudget::from_micros(5), ..Quota::default() };
    assert_eq!(tenant::quota_to_wire(&quota).month_budget_micros, Some(5));
}

#[test]
fn an_nt_type_comes_back_as_it_went() {
    let nt = NtType {
        id: NtTypeId::new("acme.filter").expect("valid"),
        shareable: true,
        bandwidth_max: Bandwidth::from_gbps(10),
        packets_per_second_max: NonZeroU32::new(20_000_000),
        latency: Cycles::new(12),
        area: Area { lut: 1, ramb36: 2, dsp: 3 },
        memory: ByteSize::from_mib(2),
        memory_traffic: MemoryTraffic { bytes_per_packet: 64, bytes_per_packet_byte: 2 },
        state: ByteSize::from_bytes(4_096),
        traffic: Traffic::Payload,
        description: "filters".into(),
        labels: Default::default(),
    };
    let wire = nt_type::nt_type_to_wire(&nt);
    assert_eq!((&*wire.name, &*wire.owner), ("ntTypes/acme.filter", "tenants/acme"));
    assert_eq!(nt_type::nt_type("acme.filter", Some(&wire)).expect("valid"), nt);
    let failure = nt_type::nt_type("x", Some(&v1::NtType::default())).expect_err("empty");
    let missing = ["traffic", "bandwidth_max_bps", "latency_cycles", "area"];
    assert_eq!(fields(failure), missing.map(|field| format!("nt_type.{field}")));
    assert_eq!(fields(nt_type::nt_type("", None).expect_err("nothing")), ["nt_type_id", "nt_type"]);
    let wordy = v1::NtType { description: "x".repeat(1_025), ..wire };
    let failure = nt_type::nt_type("x", Some(&wordy)).expect_err("too long");
    assert_eq!(fields(failure), ["nt_type.description"]);
}

/// A type that says nothing of them has no limit of packets and leaves the memory alone, as one from before there were
/// such fields.
#[test]
fn an_nt_types_limits_are_checked_and_may_be_left_out() {
    let wire = v1::NtType {
        bandwidth_max_bps: 1_000,
        latency_cycles: 1,
        area: Some(v1::Area { lut: 1, ..Default::default() }),
        traffic: v1::nt_type::Traffic::Payload.into(),
        ..Default::default()
    };
    let plain = nt_type::nt_type("x", Some(&wire)).expect("valid");
    assert_eq!((plain.packets_per_second_max, plain.memory_traffic.is_none()), (None, true));
    let limits = |packets_per_second_max, memory_bytes_per_packet, memory_bytes_per_packet_byte| {
        let wire = v1::NtType {
            packets_per_second_max,
            memory_bytes_per_packet,
            memory_bytes_per_packet_byte,
            ..wire.clone()
        };
        nt_type::nt_type("x", Some(&wire)).map_err(fields)
    };
    let most = limits(u32::MAX.into(), (1 << 24) - 1, 255).expect("the most");
    assert_eq!(most.packets_per_second_max, Some(NonZeroU32::MAX));
    let MemoryTraffic { bytes_per_packet, bytes_per_packet_byte } = most.memory_traffic;
    assert_eq!((bytes_per_packet, bytes_per_packet_byte), ((1 << 24) - 1, 255));
    assert_eq!(limits(1 << 32, 0, 0), Err(vec!["nt_type.packets_per_second_max".to_owned()]));
    let memory = ["packet", "packet_byte"].map(|of| format!("nt_type.memory_bytes_per_{of}"));
    assert_eq!(limits(0, 1 << 24, 256), Err(memory.to_vec()));
}

#[test]
fn a_header_becomes_a_bitstream_and_all_its_faults_are_named() {
    let header = v1::BitstreamHeader {
        description: Default::default(),
        labels: Default::default(),
        bitstream_id: "acme.x".into(),
        digest: "a".repeat(64),
        size_bytes: 10,
        nts: vec!["ntTypes/nat".into()],
        region_kind: v1::RegionKind::UserNt.into(),
        card_model: "sim-16".into(),
        shareable: false,
        request_id: String::new(),
        signature: Vec::new(),
        identity: String::new(),
        regions: Vec::new(),
        validate_only: false,
    };
    let read = bitstream::bitstream(&header).expect("valid");
    assert!(read.identity.is_none() && read.images.first().regions.is_empty());
    assert_eq!((read.images.size().get(), read.region_kind), (10, RegionKind::UserNt));
    let wire = bitstream::bitstream_to_wire(&read);
    assert_eq!((&*wire.name, &*wire.owner), ("bitstreams/acme.x", "tenants/acme"));
    assert_eq!((&wire.nts, &wire.digest), (&header.nts, &header.digest));
    // What regions report with these NTs: known also where no flow said it, and saying so says nothing more.
    let identity = "00000001000000020000000300000004".to_owned();
    let derived = v1::BitstreamHeader { identity: wire.identity, ..header.clone() };
    assert_eq!(bitstream::bitstream(&derived).expect("valid"), read);
    let built = v1::BitstreamHeader { identity: identity.clone(), regions: vec![0, 3], ..header };
    let wire = bitstream::bitstream_to_wire(&bitstream::bitstream(&built).expect("valid"));
    assert_eq!((wire.identity, wire.regions), (identity, vec![0, 3]));
    for (wrong, field) in [
        (v1::BitstreamHeader { identity: "7".into(), ..built.clone() }, "identity"),
        (v1::BitstreamHeader { regions: vec![3, 3], ..built.clone() }, "regions[1]"),
        (v1::BitstreamHeader { regions: vec![0, 32], ..built.clone() }, "regions[1]"),
    ] {
        let failure = bitstream::bitstream(&wrong).expect_err(field);
        assert_eq!(fields(failure), [format!("header.{field}")]);
    }
    let failure = bitstream::bitstream(&v1::BitstreamHeader::default()).expect_err("empty");
    let missing = ["bitstream_id", "digest", "size_bytes", "nts", "region_kind", "card_model"];
    assert_eq!(fields(failure), missing.map(|field| format!("header.{field}")));
}

/// A region of acme's bitstream whose second NT another tenant uses.
fn shared_mapping() -> (Mapping, BTreeMap<BitstreamId, Vec<NtTypeId>>) {
    let bitstream = BitstreamId::new("acme.x").expect("valid");
    let nt = |id| NtTypeId::new(id).expect("valid");
    let instance = Instance {
        region: RegionId(3),
        bitstream: bitstream.clone(),
        slots: vec![Slot(1)],
        bandwidth: Bandwidth::from_gbps(1),
    };
    let chain =
        VirtualChain { nodes: vec![NodeId::new("n").expect("valid")], instances: vec![instance] };
    let mapping = Mapping {
        card: CardId::new("c0").expect("valid"),
        form: snic_domain::Form::Sequential,
        stages: vec![Stage { branches: vec![chain] }],
        programs: Vec::new(),
    };
    (mapping, BTreeMap::from([(bitstream, vec![nt("acme.secret"), nt("nat")])]))
}

#[test]
fn a_tenant_does_not_see_what_it_skips_nor_whose_it_is() {
    let (mapping, nts) = shared_mapping();
    let (acme, globex) = (tenant_id("acme"), tenant_id("globex"));
    let see = |reader| {
        let stages = dag::stages_to_wire(&mapping, Content { nts: &nts, reader });
        let instance = stages[0].branches[0].instances[0].clone();
        let slots: Vec<_> =
            instance.slots.into_iter().map(|slot| (slot.used, slot.nt_type, slot.node)).collect();
        (instance.bitstream, slots)
    };
    let used = (true, "ntTypes/nat".to_owned(), "n".to_owned());
    let hidden = (false, String::new(), String::new());
    let (bitstream, slots) = see(DagReader::Tenant(&globex));
    assert_eq!((&*bitstream, slots), ("", vec![hidden.clone(), used.clone()]));
    let (bitstream, slots) = see(DagReader::Tenant(&acme));
    assert_eq!((&*bitstream, slots), ("bitstreams/acme.x", vec![hidden, used.clone()]));
    let (bitstream, slots) = see(DagReader::Operator);
    let shown = (false, "ntTypes/acme.secret".to_owned(), String::new());
    assert_eq!((&*bitstream, slots), ("bitstreams/acme.x", vec![shown, used]));
}

fn explained(kind: snic_domain::EmbeddingKind) -> snic_domain::Explanation {
    let embedding = snic_domain::Embedding {
        kind,
        region: RegionId(3),
        bitstream: BitstreamId::new("acme.x").expect("valid"),
        bandwidth: Bandwidth::from_gbps(1),
        skipped: 2,
        interruptions: 0,
        reconfigurations: 1,
        new_regions: 1,
        passes: 1,
        unused_permille: 400,
        headroom: Bandwidth::from_gbps(7),
    };
    let shortage = snic_domain::Shortage {
        resource: snic_domain::Resource::NtBandwidth,
        required: 2_000,
        available: 1_000,
        nodes: vec![NodeId::new("n").expect("valid")],
        detail: "what is left".into(),
    };
    let chain = snic_domain::ChainExplanation {
        nodes: vec![NodeId::new("n").expect("valid")],
        nts: vec![NtTypeId::new("nat").expect("valid")],
        embeddings: vec![embedding],
        rejected: vec![snic_domain::Rejection {
            kind: snic_domain::EmbeddingKind::Shared,
            reason: snic_domain::RejectionReason::Shortage(shortage),
        }],
    };
    snic_domain::Explanation {
        form: snic_domain::FormChoice {
            chosen: snic_domain::Form::Parallel,
            sequential: Cycles::new(100),
            parallel: Some(Cycles::new(90)),
            reason: "it is faster".into(),
        },
        chains: vec![chain],
        programs: Vec::new(),
        other_cards: Vec::new(),
    }
}

#[test]
fn an_explanation_is_told_whole_to_operators() {
    let card = CardId::new("c0").expect("valid");
    let why = explained(snic_domain::EmbeddingKind::FreeRegion);
    let wire = explanation::explanation_to_wire(&why, Some(&card), DagReader::Operator);
    assert_eq!(wire.form(), v1::dag::Form::Parallel);
    assert_eq!((wire.sequential_latency_cycles, wire.parallel_latency_cycles), (100, Some(90)));
    let chosen = &wire.chains[0].chosen[0];
    assert_eq!((&*chosen.region, &*chosen.bitstream), ("cards/c0/regions/3", "bitstreams/acme.x"));
    let terms: Vec<(&str, u64)> =
        chosen.score_terms.iter().map(|term| (&*term.name, term.value)).collect();
    let expected = [
        ("interruptions", 0),
        ("new_regions", 1),
        ("passes", 1),
        ("unused_area", 400),
        ("headroom", 7_000_000_000),
    ];
    assert_eq!(terms, expected);
    let rejected = &wire.chains[0].rejected[0];
    let shortage = rejected.shortage.as_ref().expect("always there");
    assert_eq!(rejected.way(), v1::EmbeddingWay::Shared);
    assert_eq!((shortage.required, shortage.available, &*shortage.unit), (2_000, 1_000, "bit/s"));
    assert_eq!(
        wire.lines,
        [
            "it is faster",
            "n",
            "  free region: 1 Gbit/s in cards/c0/regions/3 with bitstreams/acme.x, skipping 2 of \
             its NTs",
            "  not shared: NT bandwidth: 2 kbit/s needed, 1 kbit/s available (what is left)",
        ]
    );
}

#[test]
fn what_is_left_of_a_shared_region_is_told_to_operators_only() {
    let left = |resource, region, of_others| snic_domain::Headroom {
        resource,
        region,
        nt: region.map(|_| NtTypeId::new("nat").expect("valid")),
        held: 2_000,
        available: 1_000,
        of_others,
    };
    let headroom = [
        left(snic_domain::Resource::EgressBandwidth, None, false),
        left(snic_domain::Resource::NtBandwidth, Some(RegionId(3)), true),
        left(snic_domain::Resource::Credits, Some(RegionId(4)), false),
    ];
    let (card, acme) = (CardId::new("c0").expect("valid"), tenant_id("acme"));
    let told = |reader| explanation::headroom_to_wire(&headroom, &card, reader);
    let all = told(DagReader::Operator);
    assert_eq!(all.len(), 3);
    assert_eq!(all[1].resource(), v1::shortage::Resource::NtBandwidth);
    assert_eq!((&*all[1].region, &*all[1].nt_type), ("cards/c0/regions/3", "ntTypes/nat"));
    assert_eq!((all[1].held, all[1].available, &*all[1].unit), (2_000, 1_000, "bit/s"));
    assert_eq!(all[0].message, "egress bandwidth: 2 kbit/s held, 1 kbit/s left");
    assert!(all[0].region.is_empty() && all[0].nt_type.is_empty());
    assert_eq!(told(DagReader::Tenant(&acme)), [all[0].clone(), all[2].clone()]);
}

#[rstest]
#[case(snic_domain::EmbeddingKind::Shared, "acme", "bitstreams/acme.x", 3)]
#[case(snic_domain::EmbeddingKind::Shared, "globex", "", 3)]
#[case(snic_domain::EmbeddingKind::VictimRegion, "acme", "bitstreams/acme.x", 5)]
fn an_explanation_leaves_out_for_tenants_what_tells_of_others(
    #[case] kind: snic_domain::EmbeddingKind,
    #[case] tenant: &str,
    #[case] bitstream: &str,
    #[case] terms: usize,
) {
    let tenant = tenant_id(tenant);
    let wire = explanation::explanation_to_wire(&explained(kind), None, DagReader::Tenant(&tenant));
    let chosen = &wire.chains[0].chosen[0];
    assert_eq!((&*chosen.bitstream, chosen.score_terms.len()), (bitstream, terms));
    let named = wire.lines.iter().any(|line| line.contains("acme"));
    assert_eq!(named, !bitstream.is_empty(), "{:?}", wire.lines);
}

#[test]
fn a_long_value_is_cut_so_that_what_is_allowed_fits_behind_it() {
    let long = "9".repeat(10_000);
    let mask = Mask::read(Some(&paths(&[&long])), &["bandwidth_bps"]).expect_err("no such path");
    let region = name::region("name", &format!("cards/card0/regions/{long}"));
    let matches = v1::PacketMatch { source_prefix: long.clone(), ..Default::default() };
    let rule =
        v1::Rule { r#match: Some(matches), dag: "tenants/a/dags/b".into(), ..Default::default() };
    let rule = rule::rule("r", Some(&rule)).expect_err("no prefix");
    let rule = tonic::Status::from(rule);
    let told = [mask.what, region.expect_err("no region").what, rule.message().to_owned()];
    for (text, allowed) in
        told.iter().zip(["(allowed: bandwidth_bps)", "(0 to ", "(expected e.g. "])
    {
        assert!(text.len() < 400 && text.contains(allowed), "{text}");
    }
}
