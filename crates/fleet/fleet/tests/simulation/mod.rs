//! The fleet in one thread under virtual time: replicas, hosts, clients and etcd, with faults from a seed.
//!
//! `SNIC_SEED=17` runs one seed, `SNIC_SEEDS=1000` more of them, from `SNIC_FIRST_SEED` on. What must hold is in `book`; `world` is what happens.

pub mod book;
pub mod host;
mod world;

use std::time::Duration;

use snic_etcd::Refusal;
use snic_fleet::HostId;
use snic_fleet::protocol::{Denied, FleetCommand, FleetList, FleetReply};
use world::{Plan, World};

/// Seeds with each change, before a merge, and in a night.
const SEEDS: u64 = 8;
const SEEDS_OF_CI: u64 = 200;
const SEEDS_OF_A_NIGHT: u64 = 5_000;

const SMALL: Plan = Plan { hosts: 20, cards: 4, tenants: 3, chaos_seconds: 40, requests: 90 };

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn run(plan: Plan, seeds: impl Iterator<Item = u64>) -> world::Counts {
    let mut all = world::Counts::default();
    for seed in seeds {
        let mut world = World::new(seed, plan);
        world.run();
        all.add(&world.counts);
    }
    all
}

/// Each seed ends with all promises kept, whatever went wrong on the way; and enough does go wrong.
#[test]
fn every_seed() {
    if let Some(seed) = number("SNIC_SEED") {
        println!("{:?}", run(SMALL, seed..=seed));
        return;
    }
    let seeds = number("SNIC_SEEDS").unwrap_or(SEEDS);
    let first = number("SNIC_FIRST_SEED").unwrap_or(0);
    all_of(first..first + seeds);
}

#[test]
#[ignore = "ci: half a minute"]
fn more_seeds() {
    all_of(SEEDS..SEEDS_OF_CI);
}

#[test]
#[ignore = "nightly: minutes"]
fn the_seeds_of_a_night() {
    all_of(SEEDS_OF_CI..SEEDS_OF_A_NIGHT);
}

/// Runs seeds; enough must go wrong in them.
fn all_of(range: std::ops::Range<u64>) {
    let seeds = range.end - range.start;
    let counts = run(SMALL, range);
    println!("{counts:?}");
    let each = [
        counts.elections,
        counts.fenced_off,
        counts.silent_answers,
        counts.evacuated,
        counts.refused_by_hosts,
        counts.bound,
        counts.kept,
        counts.bound_functions,
        counts.kept_functions,
        counts.lost_places,
        counts.placed_again,
        counts.replayed,
        counts.reservations,
        counts.clock_steps,
        counts.batches,
        counts.searches,
        counts.changed,
        counts.rebalances,
        counts.leveled,
        counts.policies,
        counts.store_refusals,
        counts.store_accepts,
        counts.refused_writes,
    ];
    // In few seeds, what is rare happens once, or not at all.
    let least = if seeds < 100 { 1 } else { seeds / 10 };
    assert!(seeds < 40 || counts.older_orders >= least, "too little happened: {counts:?}");
    assert!(each.iter().all(|count| *count >= least), "too little happened: {counts:?}");
}

/// A thousand hosts and ten thousand cards: minutes.
#[test]
#[ignore = "nightly: takes minutes"]
fn a_large_fleet() {
    let large = Plan { hosts: 1_000, cards: 10, tenants: 20, chaos_seconds: 60, requests: 3_000 };
    let seeds = number("SNIC_SEEDS").unwrap_or(1);
    let seeds = number("SNIC_SEED").map_or(0..seeds, |seed| seed..seed + 1);
    println!("{:?}", run(large, seeds));
}

fn calm(hosts: usize) -> World {
    let mut world = World::new(7, Plan { hosts, chaos_seconds: 0, ..SMALL });
    world.run();
    world
}

fn some(world: &World, hosts: usize) -> Vec<HostId> {
    world.hosts.keys().take(hosts).cloned().collect()
}

/// DAGs of one lost host are placed again, within its lease, the time to confirm, two seconds, and what the budget for
/// moves takes.
#[test]
fn a_lost_host_is_evacuated_in_time() {
    let mut world = calm(20);
    let lost = world.fullest_host();
    let dags = world.free_dags_on(&lost);
    assert!(dags > 0, "nothing to evacuate");
    world.isolate(std::slice::from_ref(&lost));
    let budget = Duration::from_secs(dags as u64 / world.settings.moves_per_second);
    world.pass(world.settings.lease + world.settings.confirm + Duration::from_secs(2) + budget);
    assert_eq!(world.free_dags_on(&lost), 0, "of {dags}");
    world.reconnect();
    world.reach_rest();
}

/// The budget is a burst of eight and eight a second.
#[test]
fn an_evacuation_keeps_to_its_budget() {
    let mut world = World::new(7, Plan { tenants: 8, requests: 300, chaos_seconds: 0, ..SMALL });
    world.run();
    let lost = world.fullest_host();
    assert!(world.free_dags_on(&lost) > 20, "too few to tell");
    let before = world.counts.evacuated;
    world.isolate(std::slice::from_ref(&lost));
    while world.counts.evacuated == before {
        world.pass(Duration::from_millis(100));
    }
    world.pass(Duration::from_secs(1));
    let moved = world.counts.evacuated - before;
    let most = world.settings.moves_burst + world.settings.moves_per_second * 11 / 10;
    assert!((8..=most).contains(&moved), "{moved} moves, at most {most}");
}

/// More than a third of the fleet is away at once: nothing moves, and operators are told.
#[test]
fn a_mass_failure_evacuates_nothing() {
    let mut world = calm(20);
    let away = some(&world, 9);
    let before: usize = away.iter().map(|host| world.free_dags_on(host)).sum();
    let moved = world.counts.evacuated;
    world.isolate(&away);
    world.pass(Duration::from_secs(60));
    assert_eq!(away.iter().map(|host| world.free_dags_on(host)).sum::<usize>(), before);
    assert_eq!(world.counts.evacuated, moved);
    assert!(world.counts.held > 0, "operators are told");
    world.reconnect();
    world.reach_rest();
}

/// A drained host is empty in the end, but for DAGs whose machines are there; each is served throughout.
#[test]
fn a_drained_host_is_emptied() {
    let mut world = calm(20);
    let host = world.fullest_host();
    let before = world.free_dags_on(&host);
    assert!(before > 0, "nothing to move");
    world.drain(&host);
    world.pass(Duration::from_secs(10));
    world.reach_rest();
    assert_eq!(world.free_dags_on(&host), 0, "of {before}");
    assert!(world.counts.evacuated >= before as u64);
}

/// Without room in etcd, or without permission to write there: writes are refused at once with the reason, reads are
/// answered, no host is lost, tries pause, and creates go on under the same leader when etcd accepts writes again.
#[test]
fn an_etcd_that_refuses_writes_is_read_on() {
    for why in [Refusal::NoSpace, Refusal::NotPermitted] {
        let mut world = calm(20);
        // Clients ask any of three replicas, and ask again some tenths of a second later.
        let patience = Duration::from_secs(10);
        let before = world.counts;
        world.refuse_writes(Some(why));
        let create = || FleetCommand::CreateProject {
            project: snic_fleet::ProjectId::new("late").expect("a name"),
            quota: snic_domain::Quota::default(),
        };
        let Err(Denied::StoreRefuses(refusal)) = world.outcome(None, create(), patience) else {
            panic!("the create is not refused");
        };
        assert_eq!(refusal.reason, why.word());
        world.pass(Duration::from_secs(10));
        let (refused, began) = (world.counts.refused_requests, world.now());
        for _ in 0..40 {
            let reply = world.outcome(None, FleetCommand::GetFleet, patience);
            let Ok(FleetReply::Fleet(counts)) = reply else { panic!("{reply:?}") };
            let told = counts.store_refusal.expect("operators are told");
            assert_eq!((told.reason.as_str(), told.since), (why.word(), refusal.since));
            assert_eq!((counts.hosts_in_step, counts.hosts_unreachable), (20, 0));
            let list = FleetCommand::List { of: FleetList::Hosts, after: None, most: 100 };
            let reply = world.outcome(None, list, patience);
            assert!(matches!(&reply, Ok(FleetReply::Items { items, .. }) if items.len() == 20));
        }
        // One leader's probes, 2.5 s to 5 s apart.
        let (probes, seconds) = (world.counts.refused_requests - refused, world.now() - began);
        let most = seconds.as_secs() * 2 / 5 + 1;
        assert!((1..=most).contains(&probes), "{probes} probes in {seconds:?}");
        let told = world.counts.store_refusals - before.store_refusals;
        assert!(told <= 2 + seconds.as_secs() / 60, "{told} lines in {seconds:?}");
        let lost = world.fullest_host();
        world.isolate(std::slice::from_ref(&lost));
        world.pass(Duration::from_secs(20));
        let reply = world.outcome(None, FleetCommand::GetFleet, patience);
        let Ok(FleetReply::Fleet(counts)) = reply else { panic!("{reply:?}") };
        assert_eq!((counts.hosts_unreachable, world.counts.evacuated), (1, before.evacuated));
        world.refuse_writes(None);
        world.pass(Duration::from_secs(12));
        assert_eq!(world.counts.store_accepts, before.store_accepts + 1);
        assert!(world.counts.evacuated > before.evacuated, "the lost host is evacuated");
        assert_eq!(world.counts.elections, before.elections, "the same leader leads on");
        world.reconnect();
        world.reach_rest();
    }
}
