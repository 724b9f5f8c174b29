//! Traffic of a DAG as all views say it: of one second and of ten, by the card's clock.

use std::time::Duration;

use snic_controller::{DagCounters, DagTraffic, DagVerdict, Diagnosis, DropCause, Event};
use snic_domain::Bandwidth;

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
