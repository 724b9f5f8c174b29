//! Quotas and cards as they are stored: older records lack the newer limits, and what a record does not say has
//! its default, for good.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use snic_domain::limits::{CHAIN_SLOTS_MAX, DAG_ROWS, REGIONS_MAX, STAGE_ROWS};
use snic_domain::{
    Area, Bandwidth, ByteSize, CardModel, CardProfile, Cycles, MonthBudget, Quota, RegionId,
    RegionKind, RegionPass, RegionProfile, SaveArea,
};

fn quota() -> impl Strategy<Value = Quota> {
    let small = || prop_oneof![Just(64), Just(256), 0..1_000_u32];
    let first = (small(), any::<u64>(), small(), any::<u64>(), any::<u64>());
    let later = (small(), small(), small(), small(), small());
    let budget = prop_oneof![Just(u64::MAX), any::<u64>()].prop_map(MonthBudget::from_micros);
    (first, later, budget).prop_map(|(first, later, month_budget)| Quota {
        month_budget,
        dags_max: first.0,
        bandwidth_max: Bandwidth::from_bps(first.1),
        bitstreams_max: first.2,
        bitstream_bytes_max: ByteSize::from_bytes(first.3),
        memory_max: ByteSize::from_bytes(first.4),
        nt_types_max: later.0,
        rules_max: later.1,
        machines_max: later.2,
        operations_max: later.3,
        threads_max: later.4,
    })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

proptest! {
    #[test]
    fn a_quota_is_read_as_it_was_stored(quota in quota()) {
        let stored = serde_json::to_value(quota).expect("it is data");
        prop_assert_eq!(serde_json::from_value::<Quota>(stored).expect("what was written"), quota);
    }

    /// A record that lacks any of its fields is read with the defaults of these.
    #[test]
    fn missing_fields_of_a_quota_have_defaults(quota in quota(), lacks: u16) {
        let stored = object(serde_json::to_value(quota).expect("it is data"));
        let kept: Map<String, Value> = stored
            .into_iter()
            .enumerate()
            .filter(|(at, _)| lacks >> at & 1 == 0)
            .map(|(_, field)| field)
            .collect();
        let read: Quota = serde_json::from_value(kept.clone().into()).expect("an older record");
        let mut expected = object(serde_json::to_value(Quota::default()).expect("it is data"));
        expected.extend(kept);
        let expected: Quota = serde_json::from_value(expected.into()).expect("all fields");
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn regions_are_numbered_as_they_are_listed(luts in prop::collection::vec(0..200_000_u32, 0..32)) {
        let card = card(&luts);
        let listed: Vec<(u8, u32)> = card.regions().map(|(id, r)| (id.0, r.area.lut)).collect();
        let expected: Vec<(u8, u32)> = (0u8..).zip(luts.iter().copied()).collect();
        prop_assert_eq!(listed, expected);
        prop_assert_eq!(card.luts(), luts.iter().map(|lut| u64::from(*lut)).sum::<u64>());
        for number in 0..=u8::MAX {
            let found = card.region(RegionId(number)).map(|region| region.area.lut);
            prop_assert_eq!(found, luts.get(usize::from(number)).copied());
        }
    }
}

fn card(luts: &[u32]) -> CardProfile {
    let region = |lut: &u32| RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: *lut, ramb36: 0, dsp: 0 },
        bitstream_max: ByteSize::from_mib(1),
    };
    CardProfile {
        model: CardModel::new("tiny").expect("a label"),
        part: "xcvu9p-flgb2104-2-e".into(),
        idcode: 0x14B3_1093,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: Bandwidth::from_gbps(100),
        egress: Bandwidth::from_gbps(100),
        memory: ByteSize::from_mib(64),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_mib(1),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: None,
        save_area: SaveArea::default(),
        regions: luts.iter().map(region).collect(),
        processors: Vec::new(),
        links: None,
    }
}

#[test]
fn a_profile_that_says_nothing_of_passes_has_those_of_the_paper_and_no_unknown_key() {
    let mut stored = object(serde_json::to_value(card(&[1])).expect("it is data"));
    let mut lacks = stored.clone();
    lacks.remove("region_pass");
    let read: CardProfile = serde_json::from_value(lacks.clone().into()).expect("a profile");
    assert_eq!(read.region_pass, Some(RegionPass::SUPERNIC), "not none, which promises more");
    lacks.remove("save_area");
    let error = serde_json::from_value::<CardProfile>(lacks.into()).expect_err("a key is missing");
    assert!(error.to_string().contains("missing field `save_area`"), "{error}");
    stored.insert("regoins".into(), json!([]));
    let error = serde_json::from_value::<CardProfile>(stored.into()).expect_err("a typing error");
    assert!(error.to_string().contains("unknown field `regoins`"), "{error}");
}

/// SuperNIC's numbers as the paper has them: two packets in five cycles are one in ten nanoseconds at 250 MHz.
#[test]
fn the_paper_s_region_takes_a_packet_each_ten_nanoseconds() {
    let pass = RegionPass::SUPERNIC;
    let nanos = Cycles::new(u64::from(pass.cycles.get())).duration(250_000_000).as_nanos();
    assert_eq!(nanos / u128::from(pass.packets.get()), 10);
}

/// Encodings of rows rely on these: a row's number fits in 16 bits, a slot in the mask, a region in a byte.
#[test]
fn the_limits_fit_the_fields_that_hold_them() {
    assert!(DAG_ROWS <= usize::from(u16::MAX) && STAGE_ROWS <= usize::from(u16::MAX));
    assert!(CHAIN_SLOTS_MAX <= 8 && REGIONS_MAX <= usize::from(u8::MAX));
}
