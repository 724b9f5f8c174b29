//! Bounds on latency as a part of the promise: refused where they cannot be kept, and judged while the DAG keeps to its promise.

use snic_controller::{Command, Event};
use snic_domain::{Bandwidth, DagPatch, DagSpec, LatencyBound, NtTypeId};
use snic_tables::{LatencyReading, LatencySample, NtTime};
use snic_usage::{BreakCause, Meter};

use super::bills::{billed, spend};
use super::elastic::{PERIOD, deployed};
use crate::support::things::{create, dag, update};
use crate::support::{World, precondition};

const WEB: &str = "acme/web";
const BYTES: u64 = 1_250;
/// Cycles that a packet takes which waits nowhere, in these tests.
const UNLOADED: u64 = 89;

fn bounded(nanos: u64) -> DagSpec {
    let aes = NtTypeId::new("aes").expect("an id");
    let latency_bound = LatencyBound::new(nanos);
    DagSpec { latency_bound, ..DagSpec::chain(&[aes], Bandwidth::from_gbps(10)) }
}

/// A DAG with a bound of 2,000 cycles.
fn with_bound() -> World {
    let mut world = deployed(&[WEB]);
    let bound = nanos(&mut world, 2_000);
    set_bound(&mut world, bound);
    world
}

fn set_bound(world: &mut World, nanos: u64) {
    world.ask(update(WEB, bounded(nanos))).expect("it can be kept");
    world.settle();
}

/// Time of so many cycles of the card's clock, in nanoseconds.
fn nanos(world: &mut World, cycles: u64) -> u64 {
    cycles * 1_000_000_000 / world.card().profile.clock_hz
}

/// Seconds in which so many packets come in each period, all go out, and one of them is sampled that waited for `waited` cycles, or two
/// in a hundred that did.
fn seconds(world: &mut World, seconds: u64, packets: u64, (waited, all): (u64, bool)) {
    for number in 0..seconds * 1_000 / PERIOD.as_millis() as u64 {
        let view = world.view(WEB);
        let (row, uid) = (view.uid.row(), view.uid.raw());
        let instance = view.mapping.as_ref().expect("it is placed").instances().next();
        let instance = instance.expect("it has one");
        let (region, slot) = (instance.region.0, instance.slots[0].index() as u8);
        let nts = [NtTime { region, slot, cycles: UNLOADED as u32 - 49 }];
        let waits = |number: u64| if all || number < 2 { waited } else { 0 };
        // A hundred packets are sampled in fifty periods.
        let of = [number * 2 % 100, (number * 2 + 1) % 100];
        let samples =
            of.map(|number| LatencySample::new(uid, [0, 49, 0, waits(number), 0, 0], &nts));
        let card = world.card();
        card.latency = LatencyReading { samples: samples.into(), ..LatencyReading::default() };
        let cycles = PERIOD.as_nanos() as u64 * (card.profile.clock_hz / 1_000_000) / 1_000;
        card.cycles = Some(card.cycles.unwrap_or(1_000) + cycles);
        let (counters, _) = card.dags.entry(row).or_default();
        counters.packets_in += packets;
        counters.bytes_intended += packets * BYTES;
        counters.packets_out += packets;
        counters.bytes_served += packets * BYTES;
        world.pass(PERIOD);
        world.handle(Event::Sample);
        world.settle();
    }
}

/// Milliseconds in which the bound was not kept, once all is closed.
fn late(world: &mut World) -> u64 {
    spend(world, 12);
    let (sum, _) = billed(world, WEB);
    for cause in BreakCause::ALL.into_iter().filter(|of| *of != BreakCause::LatencyAboveBound) {
        assert_eq!(sum.get(Meter::PromiseBroken(cause)), 0, "{cause:?}");
    }
    sum.get(Meter::PromiseBroken(BreakCause::LatencyAboveBound))
}

#[test]
fn a_bound_that_no_packet_can_keep_is_refused_and_one_that_can_be_kept_is_not() {
    let mut world = deployed(&[WEB]);
    let planned = world.view(WEB).latency.get();
    let least = nanos(&mut world, planned);
    let more = |validate_only| Command::CreateDag {
        name: dag("acme/more"),
        spec: bounded(least - 1),
        validate_only,
    };
    for command in [more(true), more(false), update(WEB, bounded(least - 1))] {
        let (_, text) = precondition(world.ask(command));
        let wanted = format!("within {} ns (latency_bound_nanos)", least - 1);
        assert!(text.contains(&wanted) && text.contains(&format!("takes {least} ns")), "{text}");
    }
    assert!(world.view(WEB).spec.latency_bound.is_zero(), "what serves is as it was");
    set_bound(&mut world, least);
    assert_eq!(world.view(WEB).spec.latency_bound, LatencyBound::new(least));
    world.ask(create("acme/more", bounded(least))).expect("a packet that waits nowhere keeps it");
    world.settle();
    let none = DagPatch { latency_bound: Some(LatencyBound::ZERO), ..DagPatch::default() };
    let command =
        Command::UpdateDag { name: dag(WEB), patch: none, etag: None, validate_only: false };
    world.ask(command).expect("none is always kept");
    world.settle();
    assert!(world.view(WEB).spec.latency_bound.is_zero());
}

#[test]
fn time_in_which_two_packets_in_a_hundred_are_late_breaks_the_promise() {
    let mut world = with_bound();
    seconds(&mut world, 5, 9_000, (1_800, true));
    assert_eq!(late(&mut world), 0, "all within the bound");
    seconds(&mut world, 5, 9_000, (1_800, true));
    seconds(&mut world, 4, 9_000, (10_000, false));
    seconds(&mut world, 4, 9_000, (0, false));
    let found = late(&mut world);
    // Windows of a second, and up to one more, have late packets in them.
    assert!((3_000..=6_000).contains(&found), "{found} ms");
}

/// Packets beyond the promise wait in the DAG's own bucket, which is nobody's fault but its own.
#[test]
fn a_tenant_that_sends_beyond_its_promise_has_no_bound() {
    let mut world = with_bound();
    seconds(&mut world, 4, 9_000, (0, true));
    seconds(&mut world, 4, 11_000, (10_000, true));
    assert_eq!(late(&mut world), 0);
}

#[test]
fn without_a_bound_nothing_is_late() {
    let mut world = deployed(&[WEB]);
    seconds(&mut world, 6, 9_000, (100_000, true));
    assert_eq!(late(&mut world), 0);
}
