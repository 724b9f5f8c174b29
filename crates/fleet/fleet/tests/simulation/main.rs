//! The fleet in one thread under virtual time: replicas, hosts, clients and etcd, with faults from a seed.
//!
//! `SNIC_SEED=17` runs one seed, `SNIC_SEEDS=1000` more of them, from `SNIC_FIRST_SEED` on. What must hold is in `book`; `world` is what happens.

mod book;
mod host;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::time::Duration;

use snic_fleet::HostId;
use world::{Plan, World};

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
    let seeds = number("SNIC_SEEDS").unwrap_or(200);
    let first = number("SNIC_FIRST_SEED").unwrap_or(0);
    let counts = run(SMALL, first..first + seeds);
    println!("{counts:?}");
    let each = [
        counts.elections,
        counts.fenced_off,
        counts.silent_answers,
        counts.evacuated,
        counts.refused_by_hosts,
        counts.lost_places,
        counts.placed_again,
        counts.replayed,
        counts.older_orders,
        counts.reservations,
        counts.clock_steps,
        counts.batches,
        counts.searches,
        counts.changed,
        counts.rebalances,
        counts.leveled,
        counts.policies,
    ];
    assert!(each.iter().all(|count| *count >= seeds / 10), "too little happened: {counts:?}");
}

/// A thousand hosts and ten thousand cards: minutes.
#[test]
#[ignore = "takes minutes"]
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
    world.settle();
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
    world.settle();
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
    world.settle();
    assert_eq!(world.free_dags_on(&host), 0, "of {before}");
    assert!(world.counts.evacuated >= before as u64);
}
