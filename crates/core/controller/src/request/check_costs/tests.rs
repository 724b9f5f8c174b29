//! Processor time of the checks of a create that look at the DAG alone, beside few and many residents. Run by hand:
//! `cargo test -p snic-controller --lib -- --ignored --nocapture check_costs`. The numbers are in the measurements.

use std::hint::black_box;

use snic_domain::limits::DAG_CONFIGURATION_BYTES_MAX;
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, ByteSize, Caller, CardId, DagName, DagSpec, DagUid, Digest,
    NtConfiguration, NtType, NtTypeId, Quota, RegionImages, RegionKind, Tenant, TenantId,
    Timestamp,
};

use super::lifecycle::check_spec;
use crate::controller::Controller;
use crate::fixtures::{nt_id, profile};
use crate::protocol::{CallId, Command, ControllerSettings, Event, Request};
use crate::restart::recovery::{StoreContent, recover};
use crate::state::Core;
use crate::store::records::{Record, RecordKey, spec_bytes};
use crate::view::views::view_of;

const CARDS: usize = 10;
const ROUNDS: u32 = 2_000;

fn tenant() -> TenantId {
    "acme".parse().expect("a label")
}

fn card(number: usize) -> CardId {
    format!("card{number}").parse().expect("a label")
}

fn nt() -> NtType {
    NtType::new(
        nt_id("lb"),
        Bandwidth::from_gbps(40),
        snic_domain::Cycles::new(10),
        snic_domain::Area { lut: 1_000, ramb36: 1, dsp: 1 },
    )
}

fn image() -> Bitstream {
    Bitstream {
        id: BitstreamId::new("lb").expect("a label"),
        images: RegionImages::for_all(Digest::of(b"lb"), ByteSize::from_bytes(8_192)),
        nts: vec![nt().id],
        region_kind: RegionKind::KnownNt,
        card_model: profile(1).model,
        shareable: true,
        signed_by: None,
        notes: Default::default(),
        identity: None,
        modules: Vec::new(),
    }
}

fn name(number: usize) -> DagName {
    DagName { tenant: tenant(), dag: format!("d{number}").parse().expect("a label") }
}

fn spec() -> DagSpec {
    DagSpec::chain(&[NtTypeId::new("lb").expect("a label")], Bandwidth::from_mbps(1))
}

/// Records of ten cards on which so many DAGs are placed: the first of them as the controller decided it, the others like it.
fn records(residents: usize) -> Vec<(String, Vec<u8>)> {
    let recovered = Controller::recover(ControllerSettings::default(), [], 7, Timestamp::ZERO);
    let (mut controller, mut records) = (recovered.expect("an empty store"), Vec::new());
    let quota = Quota { dags_max: u32::MAX, ..Quota::default() };
    let command = |command| {
        let caller = Caller::Operator("ada".into());
        let request = Box::new(Request { caller, request_id: None, command });
        Event::Request { call: CallId(1), request }
    };
    let appear = |number| Event::CardAppeared { card: card(number), profile: Box::new(profile(4)) };
    let mut events: Vec<Event> = (0..CARDS).map(appear).collect();
    let tenant =
        Tenant { id: tenant(), weight: 1, quota, notes: Default::default(), project: None };
    events.extend([
        command(Command::CreateTenant(tenant)),
        command(Command::CreateNtType(nt())),
        command(Command::CreateBitstream(image())),
        command(Command::CreateDag { name: name(0), spec: spec(), validate_only: false }),
    ]);
    for event in events {
        records.extend(controller.handle(event, Timestamp::ZERO).writes().iter().cloned());
    }
    let mut last = std::collections::BTreeMap::new();
    records.into_iter().for_each(|(key, value)| drop(last.insert(key, value)));
    // What is about the first alone is left out.
    last.retain(|key, _| {
        !["explanations/", "operations/"].iter().any(|kind| key.starts_with(kind))
    });
    let mut records: Vec<_> = last.into_iter().filter_map(|(key, of)| Some((key, of?))).collect();
    let key = RecordKey::Dag(name(0)).to_string();
    let at = records.iter().position(|(other, _)| *other == key).expect("it was created");
    let (_, value) = records.remove(at);
    let Ok(Record::Dag(first)) = Record::parse(&key, &value) else { panic!("a DAG") };
    let placed = first.placement.as_ref().expect("it was placed");
    let region = RecordKey::Region(
        placed.mapping.card.clone(),
        placed.mapping.instances().next().expect("one").region,
    );
    let content = records.iter().find(|(key, _)| *key == region.to_string()).expect("it is loaded");
    let content = content.1.clone();
    records.retain(|(key, _)| !key.starts_with("uids/"));
    for on in 0..CARDS {
        let RecordKey::Region(_, region) = &region else { panic!("a region") };
        let key = RecordKey::Region(card(on), *region).to_string();
        records.retain(|(other, _)| *other != key);
        records.push((key, content.clone()));
    }
    for number in 0..residents {
        let (on, row) = (number % CARDS, u16::try_from(number / CARDS).expect("1,000"));
        let mut dag = first.clone();
        let incarnation = u32::try_from(on).expect("10") + 1;
        (dag.name, dag.uid) = (name(number), DagUid::new(row, incarnation).expect("a row"));
        let placement = dag.placement.as_mut().expect("it was placed");
        placement.mapping.card = card(on);
        (placement.stage_row, placement.chain_row, placement.instance_row) = (row, row, row);
        records.push((RecordKey::Dag(name(number)).to_string(), Record::Dag(dag).encode()));
    }
    for row in 0..u16::try_from(residents.div_ceil(CARDS)).expect("1,000") {
        let incarnation = u32::try_from(CARDS).expect("10");
        let record = Record::Uid(row, incarnation);
        records.push((record.key().to_string(), record.encode()));
    }
    records
}

/// Processor time of this thread, in nanoseconds.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number")
}

/// Microseconds for one call.
fn cost(mut call: impl FnMut()) -> f64 {
    (0..ROUNDS / 10).for_each(|_| call());
    let before = processor_time();
    (0..ROUNDS).for_each(|_| call());
    (processor_time() - before) as f64 / f64::from(ROUNDS) / 1_000.0
}

/// The checks, and what they cost: all of the spec, its size in a record, whether an image may pass its packets, and what
/// its reply warns of.
fn costs(core: &Core) -> [(&'static str, f64); 5] {
    let (small, mut large) = (spec(), spec());
    let text = format!("{{\"k\":\"{}\"}}", r"\\".repeat(DAG_CONFIGURATION_BYTES_MAX / 2 - 8));
    large.nodes[0].configuration = Some(NtConfiguration::new(&text));
    let entry = core.dags.known(&name(5));
    let image = core.registry.bitstream(&image().id).expect("it was uploaded");
    [
        (
            "check_spec, without a configuration",
            cost(|| {
                black_box(check_spec(core, &tenant(), small.clone()).is_ok());
            }),
        ),
        (
            "its size in a record",
            cost(|| {
                black_box(spec_bytes(&small));
            }),
        ),
        (
            "the same with 64 KiB of configuration",
            cost(|| {
                black_box(spec_bytes(&large));
            }),
        ),
        (
            "whether it trusts an image",
            cost(|| {
                black_box(small.may_pass(&tenant(), image));
            }),
        ),
        (
            "its view, with what it warns of",
            cost(|| {
                black_box(view_of(core, entry).idle_tasks.len());
            }),
        ),
    ]
}

/// The checks of a DAG alone cost the same whatever else is there.
#[test]
#[ignore = "nightly: processor times are compared"]
fn checks_of_a_create_cost_the_same_beside_many() {
    let of = |residents: usize| {
        let all = records(residents);
        let recovered = recover(ControllerSettings::default(), all, 7, Timestamp::ZERO);
        let StoreContent { core, .. } = recovered.expect("records of a controller");
        assert_eq!(core.dags.iter().count(), residents);
        costs(&core)
    };
    let (few, many) = (of(10), of(10_000));
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        println!("{what}: {few:.2} µs with 10 residents, {many:.2} µs with 10,000");
    }
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        assert!(*many < 3.0 * few + 0.5, "{what}: {few} and {many} µs");
    }
}
