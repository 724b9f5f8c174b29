//! The JSON forms of domain types: records in the store and messages between versions of the daemon
//! contain them, so a renamed field or variant must show here.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use rstest::rstest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snic_domain::{
    Area, Bandwidth, BindingSpec, BindingState, BindingTarget, BitstreamId, ByteSize, CardAffinity,
    CardId, CardProfile, ChainExplanation, ConditionStatus, ConditionType, Cycles, DagName,
    DagSpec, DagState, DagUid, Digest, Embedding, EmbeddingKind, Explanation, Form, FormChoice,
    FormPreference, Instance, MacAddress, Mapping, Match, MemoryTraffic, NodeId, NtType, NtTypeId,
    PacketSizes, PciAddress, Prefix, Quota, RegionId, RegionKind, RegionState, Rejection,
    RejectionReason, Resource, Shortage, Signer, Slot, Stage, TenantId, Timestamp, Traffic,
    VirtualChain, VirtualFunctions, VmId,
};

/// Asserts that `value` is written as `stored`, and that `stored` is read as `value`.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T, stored: Value) {
    assert_eq!(serde_json::to_value(&value).expect("a value without maps of odd keys"), stored);
    assert_eq!(serde_json::from_value::<T>(stored).expect("its own form"), value);
}

fn dag_name() -> DagName {
    DagName { tenant: "acme".parse().expect("a label"), dag: "web".parse().expect("a label") }
}

fn node(id: &str) -> NodeId {
    NodeId::new(id).expect("a label")
}

fn bitstream(id: &str) -> BitstreamId {
    BitstreamId::new(id).expect("an id")
}

fn shortage(resource: Resource) -> Shortage {
    let nodes = vec![node("nat")];
    Shortage { resource, required: 2, available: 1, nodes, detail: "why".into() }
}

fn stored_shortage(resource: &str) -> Value {
    json!({"resource": resource, "required": 2, "available": 1, "nodes": ["nat"], "detail": "why"})
}

#[test]
fn ids_and_units_are_plain_texts_and_numbers() {
    check(TenantId::new("acme").expect("a label"), json!("acme"));
    check(NtTypeId::new("acme.filter").expect("an id"), json!("acme.filter"));
    check(dag_name(), json!({"tenant": "acme", "dag": "web"}));
    check(DagUid::new(3, 7).expect("it fits"), json!(7 << 10 | 3));
    check(RegionId(31), json!(31));
    check(Slot(7), json!(7));
    check(Bandwidth::from_gbps(1), json!(1_000_000_000_u64));
    check(ByteSize::from_mib(1), json!(1_048_576));
    check(Cycles::new(49), json!(49));
    check(Timestamp::from_nanos(5), json!(5));
    check(Digest::from_bytes([0xAB; 32]), json!("ab".repeat(32)));
    check(Signer::Provider("builds".into()), json!({"provider": "builds"}));
    check(Signer::Owner("builds".into()), json!({"owner": "builds"}));
    check("0000:3b:00.4".parse::<PciAddress>().expect("an address"), json!("0000:3b:00.4"));
    check(MacAddress([2, 0, 0, 0, 0, 255]), json!([2, 0, 0, 0, 0, 255]));
}

#[rstest]
#[case(EmbeddingKind::Shared, "shared")]
#[case(EmbeddingKind::FreeRegion, "free-region")]
#[case(EmbeddingKind::VictimRegion, "victim-region")]
#[case(EmbeddingKind::Split, "split")]
#[case(Form::Sequential, "sequential")]
#[case(Form::Parallel, "parallel")]
#[case(FormPreference::Auto, "auto")]
#[case(FormPreference::Sequential, "sequential")]
#[case(FormPreference::Parallel, "parallel")]
#[case(Traffic::HeaderOnly, "header-only")]
#[case(Traffic::Payload, "payload")]
#[case(RegionKind::KnownNt, "known-nt")]
#[case(RegionKind::UserNt, "user-nt")]
#[case(ConditionStatus::True, "true")]
#[case(ConditionStatus::False, "false")]
#[case(ConditionStatus::Unknown, "unknown")]
#[case(ConditionType::Mapped, "mapped")]
#[case(ConditionType::RegionsLoaded, "regions-loaded")]
#[case(ConditionType::TablesProgrammed, "tables-programmed")]
#[case(ConditionType::Configured, "configured")]
#[case(ConditionType::PromiseKept, "promise-kept")]
#[case(ConditionType::Ready, "ready")]
#[case(DagState::Pending, "PENDING")]
#[case(DagState::Provisioning, "PROVISIONING")]
#[case(DagState::Ready, "READY")]
#[case(DagState::Degraded, "DEGRADED")]
#[case(DagState::Deleting, "DELETING")]
#[case(DagState::Failed, "FAILED")]
#[case(RegionState::Free, "FREE")]
#[case(RegionState::Reconfiguring, "RECONFIGURING")]
#[case(RegionState::Active, "ACTIVE")]
#[case(RegionState::Draining, "DRAINING")]
#[case(RegionState::Victim, "VICTIM")]
#[case(RegionState::Faulty, "FAULTY")]
#[case(RegionState::Unknown, "UNKNOWN")]
#[case(BindingState::Initial, "INITIAL")]
#[case(BindingState::BindStarted, "BIND_STARTED")]
#[case(BindingState::Bound, "BOUND")]
#[case(BindingState::BindFailed, "BIND_FAILED")]
#[case(BindingState::Unbound, "UNBOUND")]
fn enums_are_stored_by_name<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    #[case] value: T,
    #[case] name: &str,
) {
    check(value, json!(name));
}

#[rstest]
#[case(Resource::IngressBandwidth, "ingress-bandwidth", "bit/s")]
#[case(Resource::EgressBandwidth, "egress-bandwidth", "bit/s")]
#[case(Resource::NtBandwidth, "nt-bandwidth", "bit/s")]
#[case(Resource::NtPackets, "nt-packets", "packets/s")]
#[case(Resource::Regions, "regions", "regions")]
#[case(Resource::Bitstreams, "bitstreams", "bitstreams")]
#[case(Resource::Memory, "memory", "bytes")]
#[case(Resource::MemoryBandwidth, "memory-bandwidth", "bytes/s")]
#[case(Resource::SchedulerLookups, "scheduler-lookups", "look-ups/s")]
#[case(Resource::TableRows, "table-rows", "rows")]
#[case(Resource::Passes, "passes", "passes")]
#[case(Resource::SearchSteps, "search-steps", "steps")]
#[case(Resource::PacketStore, "packet-store", "bytes")]
#[case(Resource::StoreReads, "store-reads", "beats/s")]
#[case(Resource::SyncEntries, "sync-entries", "thousandths")]
#[case(Resource::Cards, "cards", "cards")]
#[case(Resource::Threads, "threads", "threads")]
#[case(Resource::ReceiveBandwidth, "receive-bandwidth", "bit/s")]
#[case(Resource::ProgramMemory, "program-memory", "bytes")]
fn shortages_name_their_resource(
    #[case] resource: Resource,
    #[case] name: &str,
    #[case] unit: &str,
) {
    check(shortage(resource), stored_shortage(name));
    assert_eq!(resource.unit(), unit);
}

/// The field of the embedding's kind is `way` in the store, whatever it is called in the code.
#[test]
fn explanations_keep_their_field_names() {
    let embedding = Embedding {
        kind: EmbeddingKind::FreeRegion,
        region: RegionId(3),
        bitstream: bitstream("nat-firewall"),
        bandwidth: Bandwidth::from_bps(1_000),
        skipped: 1,
        interruptions: 0,
        reconfigurations: 1,
        new_regions: 1,
        passes: 2,
        unused_permille: 400,
        headroom: Bandwidth::from_bps(2_000),
    };
    let reason = RejectionReason::Shortage(shortage(Resource::Bitstreams));
    let rejection = Rejection { kind: EmbeddingKind::Shared, reason };
    let chain = ChainExplanation {
        nodes: vec![node("nat")],
        nts: vec![NtTypeId::new("nat").expect("an id")],
        embeddings: vec![embedding],
        rejected: vec![rejection],
    };
    let form = FormChoice {
        chosen: Form::Sequential,
        sequential: Cycles::new(59),
        parallel: None,
        reason: "the DAG has no fork".into(),
    };
    let stored_embedding = json!({
        "way": "free-region", "region": 3, "bitstream": "nat-firewall", "bandwidth": 1_000,
        "skipped": 1, "interruptions": 0, "reconfigurations": 1, "new_regions": 1, "passes": 2,
        "unused_permille": 400, "headroom": 2_000,
    });
    let stored = json!({
        "form": {
            "chosen": "sequential", "sequential": 59, "parallel": null,
            "reason": "the DAG has no fork",
        },
        "chains": [{
            "nodes": ["nat"], "nts": ["nat"], "embeddings": [stored_embedding],
            "rejected": [{"way": "shared", "shortage": stored_shortage("bitstreams")}],
        }],
    });
    let (chains, programs, other_cards) = (vec![chain], Vec::new(), Vec::new());
    check(Explanation { form, chains, programs, other_cards }, stored);
}

#[test]
fn mappings_keep_their_field_names() {
    let instance = Instance {
        region: RegionId(3),
        bitstream: bitstream("d"),
        slots: vec![Slot(1), Slot(5)],
        bandwidth: Bandwidth::from_bps(5_000),
    };
    let chain = VirtualChain { nodes: vec![node("a"), node("b")], instances: vec![instance] };
    let card = CardId::new("card0").expect("a label");
    let stages = vec![Stage { branches: vec![chain] }];
    let mapping = Mapping { card, form: Form::Parallel, stages, programs: Vec::new() };
    assert!(mapping.uses(RegionId(3)) && !mapping.uses(RegionId(1)));
    check(
        mapping,
        json!({
            "card": "card0", "form": "parallel",
            "stages": [{"branches": [{
                "nodes": ["a", "b"],
                "instances": [{"region": 3, "bitstream": "d", "slots": [1, 5], "bandwidth": 5_000}],
            }]}],
        }),
    );
}

#[test]
fn specs_of_dags_and_bindings_keep_their_field_names() {
    let nts = ["nat", "acme.filter"].map(|id| NtTypeId::new(id).expect("an id"));
    let spec = DagSpec::chain(&nts, Bandwidth::from_mbps(1));
    let stored = json!({
        "nodes": [{"id": "nat", "nt": "nat"}, {"id": "acme-filter", "nt": "acme.filter"}],
        "edges": [{"from": "nat", "to": "acme-filter"}],
        "bandwidth": 1_000_000, "form": "auto",
    });
    let mut old = stored.clone();
    old.as_object_mut().expect("an object").remove("form");
    assert_eq!(serde_json::from_value::<DagSpec>(old).expect("form has a default"), spec);
    let small = DagSpec { packet_sizes: PacketSizes::only(64), ..spec.clone() };
    let mut with_sizes = stored.clone();
    with_sizes["packet_sizes"] = json!([{"bytes": 64, "weight": 1}]);
    check(small, with_sizes);
    // A record from before there was such a thing says nothing of latency, and neither does one without a need.
    let sensitive = DagSpec { latency_sensitive: true, ..spec.clone() };
    let mut with_need = stored.clone();
    with_need["latency_sensitive"] = json!(true);
    check(sensitive.clone(), with_need);
    let patched = |latency_sensitive| {
        let patch = snic_domain::DagPatch { latency_sensitive, ..Default::default() };
        patch.apply(&sensitive).latency_sensitive
    };
    assert_eq!([None, Some(true), Some(false)].map(patched), [true, true, false]);
    check(spec, stored);

    let vm = "123e4567-e89b-42d3-a456-426614174000";
    let binding = BindingSpec {
        vm: VmId::new(vm).expect("a UUID"),
        tenant: TenantId::new("acme").expect("a label"),
        chains: BindingTarget::Dags(vec![dag_name()]),
        functions: 2,
        ready_within: Duration::from_millis(1_500),
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    };
    let stored = json!({
        "vm": vm, "tenant": "acme", "chains": {"dags": [{"tenant": "acme", "dag": "web"}]},
        "functions": 2, "ready_within": {"secs": 1, "nanos": 500_000_000}, "lease": null,
    });
    check(binding, stored);
    check(
        BindingTarget::Template(dag_name()),
        json!({"template": {"tenant": "acme", "dag": "web"}}),
    );
}

#[test]
fn profiles_and_quotas_keep_their_field_names() {
    check(Area { lut: 1, ramb36: 2, dsp: 3 }, json!({"lut": 1, "ramb36": 2, "dsp": 3}));
    let only_luts: Area = serde_json::from_value(json!({"lut": 1})).expect("the rest is optional");
    assert_eq!(only_luts, Area { lut: 1, ramb36: 0, dsp: 0 });
    let quota = Quota::default();
    check(
        quota,
        json!({
            "dags_max": quota.dags_max, "bandwidth_max": quota.bandwidth_max.get(),
            "bitstreams_max": quota.bitstreams_max,
            "bitstream_bytes_max": quota.bitstream_bytes_max.get(),
            "memory_max": quota.memory_max.get(),
            "nt_types_max": 64, "rules_max": 256, "machines_max": 256, "operations_max": 256,
            "threads_max": 128,
        }),
    );
    let other =
        Quota { nt_types_max: 1, rules_max: 2, machines_max: 3, operations_max: 4, ..quota };
    let json = serde_json::to_value(other).expect("a value");
    let limits = ["nt_types_max", "rules_max", "machines_max", "operations_max"];
    assert_eq!(limits.map(|limit| &json[limit]), [1, 2, 3, 4].map(|n| json!(n)).each_ref());
    assert_eq!(serde_json::from_value::<Quota>(json).expect("the same"), other);
    let older: Quota =
        serde_json::from_value(json!({"dags_max": 3})).expect("the rest is optional");
    assert_eq!(older, Quota { dags_max: 3, ..quota });
    let physical_function = "0000:3b:00.0".parse().expect("an address");
    check(
        VirtualFunctions { physical_function, count: 8, first_offset: 4, stride: 1 },
        json!({
            "physical_function": "0000:3b:00.0", "count": 8, "first_offset": 4, "stride": 1,
        }),
    );
    check(
        Match { vni: Some(7), ..Match::default() },
        json!({
            "virtual_function": null, "vni": 7, "source": null, "destination": null,
            "protocol": null, "source_port": null, "destination_port": null,
        }),
    );
    check(
        Match { vlan: Some(7), ..Match::default() },
        json!({
            "virtual_function": null, "vni": null, "source": null, "destination": null,
            "protocol": null, "source_port": null, "destination_port": null, "vlan": 7,
        }),
    );
    check(
        Prefix { address: [10, 0, 0, 0].into(), length: 8 },
        json!({"address": "10.0.0.0", "length": 8}),
    );
    let profile = json!({
        "model": "sim", "part": "xcvu9p", "idcode": 1, "clock_hz": 250_000_000, "width_bits": 512,
        "ingress": 1, "egress": 2, "memory": 3, "packet_store": 4,
        "configuration_bytes_per_second": 5, "scheduler_pass": 16, "core": 49,
        "credits_initial": 8, "region_pass": null,
        "save_area": {"bytes": 0, "bytes_per_second": 0}, "regions": [],
    });
    let read: CardProfile = serde_json::from_value(profile.clone()).expect("a profile");
    assert_eq!((read.save_area.bytes, read.core), (ByteSize::ZERO, Cycles::new(49)));
    let mut misspelt = profile;
    misspelt["clock"] = json!(1);
    assert!(serde_json::from_value::<CardProfile>(misspelt).is_err(), "an unknown key");
}

/// A profile and a type from before there were such limits have none, and are stored as they were.
#[test]
fn limits_are_stored_where_there_are_some() {
    let nt = NtType::new(
        NtTypeId::new("kv").expect("a label"),
        Bandwidth::from_bps(1_000),
        Cycles::new(7),
        Area { lut: 1, ramb36: 0, dsp: 0 },
    );
    let stored = json!({
        "id": "kv", "shareable": true, "bandwidth_max": 1_000, "latency": 7,
        "area": {"lut": 1, "ramb36": 0, "dsp": 0}, "memory": 0, "state": 0,
        "traffic": "header-only", "description": "",
    });
    check(nt.clone(), stored.clone());
    let memory_traffic = MemoryTraffic { bytes_per_packet: 64, bytes_per_packet_byte: 2 };
    let packets_per_second_max = NonZeroU32::new(9);
    let mut limited = stored;
    limited["packets_per_second_max"] = json!(9);
    limited["memory_traffic"] = json!({"bytes_per_packet": 64, "bytes_per_packet_byte": 2});
    check(NtType { packets_per_second_max, memory_traffic, ..nt }, limited.clone());
    limited["memory_traffic"] = json!({"bytes_per_packet_byte": 1});
    let read: NtType = serde_json::from_value(limited.clone()).expect("the rest is optional");
    assert_eq!(read.memory_traffic.bytes(100), 100);
    limited["packets_per_second_max"] = json!(0);
    assert!(serde_json::from_value::<NtType>(limited).is_err(), "no packet at all");
    let profile = json!({
        "model": "sim", "part": "xcvu9p", "idcode": 1, "clock_hz": 250_000_000, "width_bits": 512,
        "ingress": 1, "egress": 2, "memory": 3, "packet_store": 4,
        "configuration_bytes_per_second": 5, "scheduler_pass": 16, "core": 49,
        "credits_initial": 8, "region_pass": null,
        "save_area": {"bytes": 0, "bytes_per_second": 0}, "regions": [],
    });
    let old: CardProfile = serde_json::from_value(profile.clone()).expect("an older record");
    assert_eq!((old.memory_bytes_per_second, old.scheduler_lookups_per_cycle), (None, None));
    check(old.clone(), profile.clone());
    let mut limited = profile;
    limited["memory_bytes_per_second"] = json!(19_200_000_000_u64);
    limited["scheduler_lookups_per_cycle"] = json!(1);
    let (memory_bytes_per_second, scheduler_lookups_per_cycle) =
        (NonZeroU64::new(19_200_000_000), NonZeroU32::new(1));
    let new = CardProfile { memory_bytes_per_second, scheduler_lookups_per_cycle, ..old };
    check(new, limited);
}

/// Data that breaks a rule of its type is an error, not a value.
#[rstest]
#[case::id(serde_json::from_value::<TenantId>(json!("Acme")).is_err())]
#[case::owned_id(serde_json::from_value::<NtTypeId>(json!("a.b.c")).is_err())]
#[case::address(serde_json::from_value::<PciAddress>(json!("0000:3b:20.0")).is_err())]
#[case::digest(serde_json::from_value::<Digest>(json!("ab")).is_err())]
#[case::machine(serde_json::from_value::<VmId>(json!("vm1")).is_err())]
#[case::negative(serde_json::from_value::<Bandwidth>(json!(-1)).is_err())]
#[case::region(serde_json::from_value::<RegionId>(json!(256)).is_err())]
#[case::state(serde_json::from_value::<DagState>(json!("ready")).is_err())]
#[case::kind(serde_json::from_value::<EmbeddingKind>(json!("Shared")).is_err())]
fn invalid_data_is_rejected(#[case] is_rejected: bool) {
    assert!(is_rejected);
}

#[test]
fn an_affinity_is_stored_without_what_it_does_not_say() {
    let other = json!({"tenant": "acme", "dag": "web"});
    let with = CardAffinity { together_with: [dag_name()].into(), ..CardAffinity::default() };
    assert!(!with.is_none() && !with.is_default());
    check(with, json!({"together_with": [other]}));
    let apart = CardAffinity {
        apart_from: [dag_name()].into(),
        preferred: true,
        ..CardAffinity::default()
    };
    assert!(!apart.is_none() && !apart.is_default());
    check(apart, json!({"apart_from": [other], "preferred": true}));
    // It prefers nothing, which is worth keeping and means nothing.
    let nothing = CardAffinity { preferred: true, ..CardAffinity::default() };
    assert!(nothing.is_none() && !nothing.is_default());
    check(nothing, json!({"preferred": true}));
    assert!(CardAffinity::default().is_default());
    check(CardAffinity::default(), json!({}));
}
