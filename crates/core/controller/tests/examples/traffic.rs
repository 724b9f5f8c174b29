//! Traffic of a DAG as all views say it: of one second and of ten, by the card's clock.

use std::time::Duration;

use snic_controller::{
    DagCounters, DagTraffic, DagVerdict, Diagnosis, DropCause, Event, LatencyQuantiles,
    MeasuredPart, PathPart,
};
use snic_domain::{Bandwidth, NodeId};
use snic_tables::{LatencySample, NtTime};

use super::elastic::{PERIOD, deployed};
use crate::support::World;
use crate::support::things::dag;

const WEB: &str = "acme/web";
/// Bytes of a packet.
const BYTES: u64 = 1_250;

/// A monitor period in which so many packets come in, and all but `lost` go out. On the card a `part` of that time passes.
fn period(world: &mut World, packets: u64, lost: u64, part: u32) {
    let row = world.view(WEB).uid.row();
    let card = world.card();
    let clock_hz = card.profile.clock_hz;
    let cycles = (PERIOD / part).as_nanos() as u64 * (clock_hz / 1_000_000) / 1_000;
    card.cycles = Some(card.cycles.unwrap_or(1_000) + cycles);
    let (counters, drops) = card.dags.entry(row).or_default();
    counters.packets_in += packets;
    counters.bytes_intended += packets * BYTES;
    counters.packets_out += packets - lost;
    counters.bytes_served += (packets - lost) * BYTES;
    drops[DropCause::RateLimited as usize] += lost;
    world.pass(PERIOD);
    world.handle(Event::Sample);
    world.settle();
}

fn traffic(world: &World) -> DagTraffic {
    *world.view(WEB).traffic.expect("it was read twice")
}

fn diagnosis(world: &World) -> Diagnosis {
    world.controller.dag_diagnosis(&dag(WEB), None).expect("it is there")
}

/// Every view says the same: the DAG, its diagnosis, the shares, and the history.
fn check_agreement(world: &World) {
    let (shown, found) = (traffic(world), diagnosis(world));
    assert_eq!((found.offered, found.served), (shown.offered, shown.served));
    assert_eq!(
        (found.last_second, found.last_ten_seconds),
        (shown.last_second, shown.last_ten_seconds)
    );
    assert_eq!(found.shortfall, world.view(WEB).shortfall);
    let all = world.controller.fairness(&dag(WEB).tenant);
    let of = all.iter().flat_map(|view| &view.dags).find(|of| of.dag == dag(WEB));
    let of = of.expect("it is on a card");
    assert_eq!(
        (of.load, of.served, of.shortfall),
        (Some(shown.offered), shown.served, found.shortfall)
    );
    for window in [shown.last_second, shown.last_ten_seconds, shown.sums] {
        let dropped: u64 = window.drops.iter().sum();
        assert_eq!(window.packets_in, window.packets_out + dropped + window.under_way());
    }
}

/// A simulation that takes four times as long as the card would: the sender is beyond its promise, which is kept.
#[test]
fn a_card_that_is_slow_for_its_host_is_judged_by_its_own_clock() {
    let mut world = deployed(&[WEB]);
    for _ in 0..1_200 {
        // In 2.5 ms: 20 Gbit/s, of which 10 go through.
        period(&mut world, 5_000, 2_500, 4);
    }
    let shown = traffic(&world);
    assert_eq!((shown.offered, shown.served), (Bandwidth::from_gbps(20), Bandwidth::from_gbps(10)));
    let found = diagnosis(&world);
    assert_eq!((found.verdict, found.shortfall), (DagVerdict::BeyondPromise, Bandwidth::ZERO));
    assert!(shown.last_second.span >= Duration::from_secs(1), "{:?}", shown.last_second);
    check_agreement(&world);
}

#[test]
fn a_loss_of_five_in_a_hundred_of_what_was_promised_is_below_the_promise() {
    let mut world = deployed(&[WEB]);
    for _ in 0..300 {
        period(&mut world, 9_000, 441, 1);
    }
    let found = diagnosis(&world);
    assert_eq!(found.verdict, DagVerdict::BelowPromise, "{}", found.summary);
    assert_eq!(found.offered, Bandwidth::from_gbps(9));
    check_agreement(&world);
}

/// Packets that come every tenth of a second are in one sample of ten.
#[test]
fn a_steady_small_load_is_never_shown_as_nothing() {
    let mut world = deployed(&[WEB]);
    for number in 0..400 {
        period(&mut world, if number % 10 == 0 { 180 } else { 0 }, 0, 1);
        let shown = traffic(&world);
        if number > 100 {
            let mbps = shown.offered.get() / 1_000_000;
            assert!((16..=20).contains(&mbps), "{mbps} Mbit/s after {number} periods");
            assert_eq!(diagnosis(&world).verdict, DagVerdict::KeepsUp);
        }
    }
    check_agreement(&world);
}

/// A counter that began again is no traffic, and what was before is not shown as traffic of now.
#[test]
fn a_card_that_restarts_begins_with_empty_windows() {
    let mut world = deployed(&[WEB]);
    for _ in 0..150 {
        period(&mut world, 1_000, 0, 1);
    }
    let sums = traffic(&world).sums.packets_in;
    let row = world.view(WEB).uid.row();
    world.card().dags.insert(row, (DagCounters::default(), Default::default()));
    world.card().cycles = Some(0);
    for _ in 0..250 {
        period(&mut world, 0, 0, 1);
    }
    let shown = traffic(&world);
    assert_eq!((shown.offered, shown.last_second.packets_in), (Bandwidth::ZERO, 0));
    assert!(shown.sums.packets_in >= sums, "sums never fall");
    assert_eq!(diagnosis(&world).verdict, DagVerdict::Idle);
}

/// A packet of the DAG that waited so many cycles for credits, beside the task that it is in.
fn sampled(world: &World, uid_offset: u32, waited: u64) -> LatencySample {
    let view = world.view(WEB);
    let mapping = view.mapping.as_ref().expect("it is placed");
    let instance = mapping.instances().next().expect("it has one");
    let (region, slot) = (instance.region.0, instance.slots[0].index() as u8);
    let nts = [NtTime { region, slot, cycles: 40 }];
    LatencySample::new(view.uid.raw() + uid_offset, [0, 49, 0, waited, 0, 0], &nts)
}

#[test]
fn latencies_are_those_of_the_dag_by_part_and_say_what_takes_longer_than_planned() {
    let mut world = deployed(&[WEB]);
    let row = world.view(WEB).uid.row();
    assert_eq!(world.view(WEB).measured, None, "no packet was sampled");
    for number in 0..150_u64 {
        // One packet in 50 waits for long, and one of a DAG that is gone is not its.
        let waited = if number % 50 == 0 { 10_000 } else { 0 };
        let samples = vec![sampled(&world, 0, waited), sampled(&world, 1, 500_000)];
        // The largest of all packets was not sampled.
        let maxima = vec![(row, 20_000)];
        world.card().latency = snic_tables::LatencyReading { samples, missed: 0, maxima };
        period(&mut world, 100, 0, 1);
    }
    let measured = world.view(WEB).measured.expect("packets were sampled");
    let clock_hz = world.card().profile.clock_hz;
    let time = |cycles: u64| Duration::from_nanos(cycles * 1_000_000_000 / clock_hz);
    let second = &measured.last_second;
    assert!((100..=150).contains(&second.samples), "{second:?}");
    assert_eq!(measured.last_ten_seconds.samples, 150);
    let alike =
        |cycles| LatencyQuantiles { p50: time(cycles), p99: time(cycles), max: time(cycles) };
    let of = |part: &MeasuredPart| {
        second.parts.iter().find_map(|(of, times)| (of == part).then_some(*times))
    };
    let aes = MeasuredPart::Task(NodeId::new("aes").expect("an id"));
    assert_eq!(of(&aes), Some(alike(40)));
    assert_eq!(of(&MeasuredPart::Path(PathPart::Pipeline)), Some(alike(49)));
    assert_eq!(of(&MeasuredPart::Path(PathPart::Port)), Some(alike(0)));
    assert_eq!(of(&MeasuredPart::FormerTask), None);
    let credits = of(&MeasuredPart::Path(PathPart::Credits)).expect("packets waited");
    assert_eq!((credits.p50, credits.max), (Duration::ZERO, time(10_000)));
    assert!(credits.p99 <= time(10_000) && credits.p99 >= time(9_400), "{credits:?}");
    assert_eq!(second.total.max, time(20_000));
    assert!(second.total.p50 >= time(89) && second.total.p50 <= time(94), "{second:?}");
    let said = diagnosis(&world).latency_summary;
    assert!(said.contains("longer is mostly waiting for credits: "), "{said}");
    // Without traffic nothing is shown after ten seconds.
    (0..1_300).for_each(|_| period(&mut world, 0, 0, 1));
    assert_eq!(world.view(WEB).measured, None);
    assert_eq!(diagnosis(&world).latency_summary, "");
}

/// A row may have been another DAG's a moment before: its largest latency is not the new one's.
#[test]
fn the_largest_latency_of_a_row_is_not_that_of_the_dag_before() {
    let mut world = deployed(&[WEB]);
    let row = world.view(WEB).uid.row();
    for number in 0..40 {
        let samples = vec![sampled(&world, 0, 0)];
        let maxima = if number < 20 { vec![(row, 20_000)] } else { Vec::new() };
        world.card().latency = snic_tables::LatencyReading { samples, missed: 0, maxima };
        period(&mut world, 100, 0, 1);
    }
    let total = world.view(WEB).measured.expect("packets were sampled").last_second.total;
    assert_eq!(total.max, total.p50);
}

/// A card gives each record once, and at a card at rest DAGs are looked at less often than counters are read.
#[test]
fn a_record_that_comes_while_no_dag_is_looked_at_is_kept_for_the_next_look() {
    let mut world = deployed(&[WEB]);
    (0..20).for_each(|_| period(&mut world, 100, 0, 1));
    (0..150).for_each(|_| period(&mut world, 0, 0, 1));
    let say = |world: &mut World, packets| {
        let samples = vec![sampled(world, 0, 0)];
        world.card().latency = snic_tables::LatencyReading { samples, ..Default::default() };
        // At rest not every period has a sample of the counters.
        for _ in 0..10 {
            period(world, packets, 0, 1);
        }
    };
    say(&mut world, 0);
    assert_eq!(world.view(WEB).measured, None, "the card rests");
    say(&mut world, 100);
    let measured = world.view(WEB).measured.expect("packets were sampled");
    assert_eq!(measured.last_second.samples, 2, "{measured:?}");
}
