//! NTs as programs, and what a build flow says of a bitstream: what people read, and what records hold.

use std::time::Duration;

use rstest::rstest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snic_domain::{
    Bandwidth, Bitstream, ByteSize, Digest, MemoryKind, NodeId, NtProgram, NtTypeId, OtherCard,
    PacketSizes, ProcessorKind, ProcessorProfile, ProgramExplanation, ReachedMemory, RegionId,
};

/// Asserts that `value` is written as `stored`, and that `stored` is read as `value`.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T, stored: Value) {
    assert_eq!(serde_json::to_value(&value).expect("it has a form"), stored);
    assert_eq!(serde_json::from_value::<T>(stored).expect("its own form"), value);
}

fn program() -> NtProgram {
    NtProgram {
        node: NodeId::new("cache").expect("a label"),
        nt: NtTypeId::new("kv-cache").expect("a label"),
        processor: ProcessorKind::Dpa,
        threads: 12,
        network: MemoryKind::Arm,
        working: MemoryKind::Arm,
        working_set: ByteSize::from_mib(1),
        serves: Bandwidth::from_gbps(25),
        latency: Some(Duration::from_micros(4)),
    }
}

#[test]
fn a_program_is_stored_with_its_place() {
    let stored = json!({
        "node": "cache",
        "nt": "kv-cache",
        "processor": "dpa",
        "threads": 12,
        "network": "arm",
        "working": "arm",
        "working_set": 1_048_576,
        "serves": 25_000_000_000_u64,
        "latency": {"secs": 0, "nanos": 4_000},
    });
    check(program(), stored);
}

#[rstest]
#[case(12, MemoryKind::Arm, "DPA, 12 threads, packets in Arm memory")]
#[case(1, MemoryKind::Arm, "DPA, 1 thread, packets in Arm memory")]
#[case(2, MemoryKind::Dpa, "DPA, 2 threads, packets in Arm memory, working set in DPA memory")]
#[case(2, MemoryKind::Host, "DPA, 2 threads, packets in Arm memory, working set in host memory")]
fn people_read_where_a_program_runs(
    #[case] threads: u32,
    #[case] working: MemoryKind,
    #[case] place: &str,
) {
    assert_eq!(NtProgram { threads, working, ..program() }.place(), place);
}

#[test]
fn processors_and_memories_are_in_the_order_of_their_way_to_the_network() {
    assert!(ProcessorKind::ALL.is_sorted() && MemoryKind::ALL.is_sorted());
    let names = ProcessorKind::ALL.map(ProcessorKind::name);
    assert_eq!(names, ["DPA", "Arm", "other cores", "host"]);
    let names = MemoryKind::ALL.map(MemoryKind::name);
    assert_eq!(names, ["DPA memory", "Arm memory", "host memory"]);
    for (kind, stored) in ProcessorKind::ALL.into_iter().zip(["dpa", "arm", "other", "host"]) {
        check(kind, json!(stored));
    }
    for (kind, stored) in MemoryKind::ALL.into_iter().zip(["dpa", "arm", "host"]) {
        check(kind, json!(stored));
    }
}

#[test]
fn what_nobody_measured_is_stored_as_unknown() {
    let reached =
        ReachedMemory { memory: MemoryKind::Host, size: None, receive: None, receive_packet: None };
    let profile = ProcessorProfile {
        kind: ProcessorKind::Arm,
        cores: None,
        threads: 16,
        memories: vec![reached],
    };
    let memory = json!({"memory": "host", "size": null, "receive": null});
    let stored = json!({"kind": "arm", "cores": null, "threads": 16, "memories": [memory]});
    check(profile, stored.clone());
    let mut more = stored;
    more["sockets"] = json!(2);
    let error = serde_json::from_value::<ProcessorProfile>(more).expect_err("a key of no meaning");
    assert!(error.to_string().contains("unknown field `sockets`"), "{error}");
}

/// Receive rates of a memory were measured with packets of 1,024 bytes: of smaller ones as many packets are certain.
#[rstest]
#[case(PacketSizes::only(1_024), 10)]
#[case(PacketSizes::only(9_216), 10)]
#[case(PacketSizes::only(512), 20)]
#[case(PacketSizes::only(64), 160)]
fn small_packets_take_of_reception_as_those_it_was_measured_with(
    #[case] packets: PacketSizes,
    #[case] gbps: u64,
) {
    let measured = |receive_packet| ReachedMemory {
        memory: MemoryKind::Dpa,
        size: None,
        receive: Some(Bandwidth::from_gbps(50)),
        receive_packet,
    };
    let ten = Bandwidth::from_gbps(10);
    let with = measured(Some(ByteSize::from_bytes(1_024)));
    assert_eq!(with.received(&packets, ten), Bandwidth::from_gbps(gbps));
    assert_eq!(measured(None).received(&packets, ten), ten, "bits count, whatever the size");
    let stored = json!({
        "memory": "dpa", "size": null, "receive": 50_000_000_000_u64, "receive_packet": 1_024,
    });
    check(with, stored);
}

#[test]
fn explanations_of_programs_leave_out_what_is_empty() {
    let explanation = ProgramExplanation {
        node: NodeId::new("cache").expect("a label"),
        nt: NtTypeId::new("kv-cache").expect("a label"),
        chosen: program().place(),
        guidelines: vec!["few threads".to_owned()],
        against: Vec::new(),
        rejected: Vec::new(),
    };
    let stored = json!({
        "node": "cache",
        "nt": "kv-cache",
        "chosen": "DPA, 12 threads, packets in Arm memory",
        "guidelines": ["few threads"],
        "rejected": [],
    });
    check(explanation, stored);
    let other = OtherCard { model: "sim-16".parse().expect("a model"), reason: "full".to_owned() };
    check(other, json!({"model": "sim-16", "reason": "full"}));
}

#[test]
fn a_bitstream_is_read_back_with_its_images_and_no_region_has_two() {
    let digest = |text: &str| Digest::of(text.as_bytes());
    let image = |name: &str, regions: &[u8]| json!({"digest": digest(name).to_string(), "size": 5, "regions": regions});
    let mut stored = json!({
        "id": "acme.nat", "images": [image("b", &[0, 1]), image("a", &[3])], "nts": ["nat"],
        "region_kind": "user-nt", "card_model": "sim-16", "shareable": false, "signed_by": null,
        "identity": "000000010000000200000003ffffffff", "modules": [],
    });
    let of: Bitstream = serde_json::from_value(stored.clone()).expect("a bitstream");
    assert_eq!(of.identity.expect("it has one").words(), [1, 2, 3, u32::MAX]);
    assert_eq!((of.images.len(), of.digest_for(RegionId(3))), (2, Some(digest("a"))));
    check(of, stored.clone());
    stored["images"] = json!([image("b", &[0, 1]), image("a", &[1])]);
    let error = serde_json::from_value::<Bitstream>(stored.clone()).expect_err("region 1 has two");
    assert!(error.to_string().contains("region 1 has an image already"), "{error}");
    stored["images"] = json!([]);
    let error = serde_json::from_value::<Bitstream>(stored).expect_err("it has none");
    assert!(error.to_string().contains("at least one image"), "{error}");
}
