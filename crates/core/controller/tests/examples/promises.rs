//! Promises as objectives: seconds in which what a DAG sent within its promise was not served, beside what was done to it.

use std::time::Duration;

use snic_controller::{Command, DropCause, Event, LogKind};
use snic_usage::{AccountPart, BreakCause, Meter, Outage, UsageAmounts};

use super::bills::{billed, spend};
use super::configurations::{told, watch, with_windows};
use super::elastic::{PERIOD, deployed};
use crate::support::things::{bitstream, card_id, create, dag, delete, nt, spec, update};
use crate::support::{World, operator};

const WEB: &str = "acme/web";
const BYTES: u64 = 1_250;

/// Times of a promise in milliseconds: all, unknown, and broken by cause.
fn times(amounts: &UsageAmounts) -> (u64, u64, Vec<(BreakCause, u64)>) {
    let broken = BreakCause::ALL.map(|cause| (cause, amounts.get(Meter::PromiseBroken(cause))));
    let broken = broken.into_iter().filter(|(_, millis)| *millis > 0).collect();
    (amounts.get(Meter::PromiseTime), amounts.get(Meter::PromiseUnknown), broken)
}

fn broken(world: &World, cause: BreakCause) -> u64 {
    billed(world, WEB).0.get(Meter::PromiseBroken(cause))
}

fn outages(world: &World, name: &str) -> Vec<Outage> {
    let uid = world.view(name).uid;
    let accounts = world.controller.usage(None).accounts;
    let own = accounts.into_iter().find(|account| account.key.part == AccountPart::Dag(uid));
    own.expect("it has an account").outages
}

/// Lets traffic flow for a monitor period; `lost` of the packets do not go out, for a cause.
fn period(world: &mut World, packets: u64, (lost, cause): (u64, DropCause)) {
    let row = world.view(WEB).uid.row();
    let card = world.card();
    let cycles = PERIOD.as_nanos() as u64 * (card.profile.clock_hz / 1_000_000) / 1_000;
    card.cycles = Some(card.cycles.unwrap_or(1_000) + cycles);
    let (counters, drops) = card.dags.entry(row).or_default();
    counters.packets_in += packets;
    counters.bytes_intended += packets * BYTES;
    counters.packets_out += packets - lost;
    counters.bytes_served += (packets - lost) * BYTES;
    drops[cause as usize] += lost;
    world.pass(PERIOD);
    world.handle(Event::Sample);
    world.settle();
}

/// Ten seconds and a little in which nothing happens, so that all intervals are closed.
fn rest(world: &mut World) {
    spend(world, 12);
}

#[test]
fn an_outage_of_the_card_counts_to_the_second() {
    let mut world = World::new();
    world.deploy(WEB, "lb", 5);
    spend(&mut world, 20);
    assert_eq!(times(&billed(&world, WEB).0).2, [], "nothing is broken yet");
    let lost = world.now;
    world.lose_card();
    world.listen(37);
    world.appear(&card_id());
    world.settle();
    let back = world.now;
    rest(&mut world);
    let (all, unknown, broken) = times(&billed(&world, WEB).0);
    let most = back.since(lost).as_millis() as u64;
    let [(BreakCause::CardLost, millis), ..] = broken[..] else { panic!("{broken:?}") };
    assert!((37_000..=most).contains(&millis), "{millis} ms of {most}");
    // What was to be loaded again is broken, too, until the card has it.
    let sum: u64 = broken.iter().map(|(_, millis)| millis).sum();
    assert!((37_000..=38_000).contains(&sum) && sum <= most, "{broken:?} in {most} ms");
    assert!(all > 60_000 && unknown == 0, "{all} ms, {unknown} unknown");
    let Outage { start_ms, end_ms, cause } = outages(&world, WEB)[0];
    assert_eq!((start_ms, cause), (lost.as_nanos() / 1_000_000, BreakCause::CardLost));
    assert!((37_000..=38_000).contains(&(end_ms - start_ms)));
    let reader = operator();
    let mut log = world.controller.log_before(&reader, None);
    assert!(log.any(|entry| entry.kind == LogKind::PromiseBroken), "the event's time");
}

/// 9 Gbit/s of the promised 10, of which one in twenty packets is lost for five seconds.
#[test]
fn windows_in_which_less_than_promised_is_served_count() {
    let mut world = deployed(&[WEB]);
    let seconds = |seconds: u64| seconds * 1_000_000_000 / PERIOD.as_nanos() as u64;
    for (length, lost) in [(3, 0), (5, 441), (4, 0)] {
        (0..seconds(length)).for_each(|_| period(&mut world, 9_000, (lost, DropCause::StoreFull)));
    }
    rest(&mut world);
    let found = broken(&world, BreakCause::BelowPromise);
    // A window of a second, and up to one more, has the loss in it.
    assert!((5_000..=7_000).contains(&found), "{found} ms");
    let (_, unknown, all) = times(&billed(&world, WEB).0);
    assert_eq!((unknown, all.len()), (0, 1), "{all:?}");
    let outages = outages(&world, WEB);
    assert_eq!(outages.len(), 1, "{outages:?}");
}

/// Twice what was promised, of which the half goes through, at first for a moment of each second: nothing is broken.
#[test]
fn a_tenant_that_sends_beyond_its_promise_breaks_nothing() {
    let mut world = deployed(&[WEB]);
    for number in 0..1_200 {
        let is_silent = number < 600 && number % 50 > 0;
        let (packets, lost) = if is_silent { (0, 0) } else { (20_000, 10_000) };
        period(&mut world, packets, (lost, DropCause::RateLimited));
    }
    rest(&mut world);
    let (all, unknown, broken) = times(&billed(&world, WEB).0);
    assert_eq!((unknown, broken), (0, vec![]));
    assert!(all > 10_000);
}

#[test]
fn a_daemon_that_is_dead_for_a_minute_gives_unknown_time() {
    let mut world = World::new();
    world.deploy(WEB, "lb", 5);
    spend(&mut world, 21);
    world.now = world.now + Duration::from_secs(60);
    world.restart();
    world.settle();
    spend(&mut world, 20);
    let (all, unknown, broken) = times(&billed(&world, WEB).0);
    // And what was not stored of the interval under way.
    assert!((60_000..=70_000).contains(&unknown), "{unknown} ms");
    assert_eq!(broken, []);
    assert!((90_000..=101_000 + 1_000).contains(&all), "{all} ms");
}

/// One that hangs for a minute, and goes on as if nothing had been.
#[test]
fn a_daemon_that_hangs_gives_unknown_time() {
    let mut world = World::new();
    world.deploy(WEB, "lb", 5);
    spend(&mut world, 21);
    world.pass(Duration::from_secs(60));
    spend(&mut world, 12);
    let (_, unknown, broken) = times(&billed(&world, WEB).0);
    assert!((60_000..=61_000).contains(&unknown), "{unknown} ms");
    assert_eq!(broken, []);
}

/// A change that its tenant asks for is served by the place before, and a DAG that is gone has no promise.
#[test]
fn an_update_breaks_nothing_and_a_delete_ends_the_promise() {
    let mut world = World::new();
    world.deploy(WEB, "lb", 5);
    spend(&mut world, 5);
    world.ask(update(WEB, spec("vpn", 5))).expect("there is room");
    world.settle();
    rest(&mut world);
    let uid = world.view(WEB).uid;
    assert_eq!(times(&billed(&world, WEB).0).2, []);
    world.ask(delete(WEB)).expect("it is there");
    world.settle();
    let life = |world: &World| {
        let accounts = world.controller.usage(Some(&dag(WEB).tenant)).accounts;
        let own = accounts.into_iter().find(|account| account.key.part == AccountPart::Dag(uid));
        let pages = own.expect("it is kept").open;
        let intervals = pages.iter().flat_map(|(_, page)| page.intervals());
        intervals.map(|interval| interval.amounts.get(Meter::PromiseTime)).sum::<u64>()
    };
    rest(&mut world);
    let before = life(&world);
    spend(&mut world, 30);
    assert_eq!(life(&world), before);
}

/// An NT that refuses its configuration breaks the promise where somebody else made it, and counts for nobody where the tenant did.
#[test]
fn a_tenants_own_task_that_refuses_its_configuration_counts_for_nobody() {
    for (own, chain) in [(false, "nat"), (true, "acme.filter"), (false, "nat acme.filter")] {
        let mut world = World::new();
        with_windows(&mut world);
        world.ask(Command::CreateNtType(nt("acme.filter", 40))).expect("valid");
        let images =
            [("acme.filter", vec!["acme.filter"]), ("acme.both", vec!["nat", "acme.filter"])];
        for (id, nts) in images {
            world.ask(Command::CreateBitstream(bitstream(id, &nts))).expect("valid");
        }
        world.card().refuse = (0..8).map(|window| (window / 2, window % 2)).collect();
        world.ask(create(WEB, told(chain, 5, "{}"))).expect("there is room");
        watch(&mut world, 40);
        world.card().refuse.clear();
        watch(&mut world, 60);
        rest(&mut world);
        let (_, unknown, broken) = times(&billed(&world, WEB).0);
        let millis = if own { unknown } else { broken.iter().map(|(_, millis)| millis).sum() };
        assert!((30_000..=75_000).contains(&millis), "{chain}: {unknown} {broken:?}");
        let is_refused = broken.iter().any(|(cause, _)| *cause == BreakCause::ConfigurationRefused);
        assert_eq!(is_refused, !own, "{chain}: {broken:?}");
    }
}
