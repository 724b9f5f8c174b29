//! Bills of DAGs beside their packets: area, memory, loads, functions and NTs, each for as long as it was theirs.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_controller::{Command, Event};
use snic_domain::{BindingSpec, BindingTarget, VmId};
use snic_usage::{AccountPart, Meter, UsageAmounts};

use crate::support::World;
use crate::support::things::{dag, delete, spec, tenant_id, update};

/// Lets a card be used for so many seconds: it is read in each.
pub fn spend(world: &mut World, seconds: u32) {
    for _ in 0..seconds {
        world.pass(Duration::from_secs(1));
        world.handle(Event::Sample);
        world.settle();
    }
}

/// Amounts of a DAG in intervals that are closed, and its time by NT type.
pub fn billed(world: &World, name: &str) -> (UsageAmounts, BTreeMap<String, u64>) {
    let uid = world.view(name).uid;
    let accounts = world.controller.usage(None).accounts;
    let account = accounts.into_iter().find(|account| account.key.part == AccountPart::Dag(uid));
    let Some(account) = account else { return Default::default() };
    let mut sum = UsageAmounts::default();
    let intervals = account.open.iter().flat_map(|(_, page)| page.intervals());
    intervals.for_each(|interval| sum.add_all(&interval.amounts));
    let of =
        |(place, nt): (u8, &snic_domain::NtTypeId)| (nt.to_string(), sum.get(Meter::Nt(place)));
    let nts = (0..).zip(&account.nts).map(of).collect();
    (sum, nts)
}

/// A rate × the time that is billed, each rounded down by itself.
fn assert_near(found: u64, rate: u64, life: u64) {
    assert!(found.abs_diff(rate * life) <= rate + 1, "{found}, not {rate} × {life}");
}

#[test]
fn a_dag_pays_for_memory_tasks_and_loads_while_they_are_its_own() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    spend(&mut world, 25);
    let (first, nts) = billed(&world, "acme/web");
    let life = first.get(Meter::Life);
    assert!((10_000..40_000).contains(&life), "{life} ms");
    assert_near(first.get(Meter::Memory), 2, life);
    assert_eq!(nts, [("nat".to_owned(), life)].into());
    assert_eq!((first.get(Meter::Loads), first.get(Meter::Functions)), (1, 0));
    // `nat` alone in one of four regions, for a tenth or less of what it serves.
    let area = first.get(Meter::Area);
    assert!(area > 0 && area <= life * 250, "{area} millionths × s");

    // Another chain: two tasks, each with its memory, and what was billed stays.
    world.ask(update("acme/web", spec("nat aes", 1))).expect("there is room");
    world.settle();
    spend(&mut world, 30);
    let (second, nts) = billed(&world, "acme/web");
    assert!(nts["aes"] > 10_000 && nts["nat"] == second.get(Meter::Life), "{nts:?}");
    let memory = second.get(Meter::Memory);
    let due = 2 * nts["nat"] + 2 * nts["aes"];
    assert!(memory.abs_diff(due) <= 4, "{memory} MiB·ms of {due}");

    // And one that needs a region that holds nothing of it yet.
    world.ask(update("acme/web", spec("vpn", 1))).expect("there is room");
    world.settle();
    spend(&mut world, 12);
    let (third, _) = billed(&world, "acme/web");
    let loads = world.card().loads.len() as u64;
    assert_eq!((third.get(Meter::Loads), loads > 1), (loads, true), "as the card counts them");
}

/// Where the daemon dies, what was in force at the last close goes on, and no load is counted again.
#[test]
fn a_daemon_that_dies_forgets_and_repeats_nothing() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    for _ in 0..4 {
        spend(&mut world, 7);
        world.restart();
        world.settle();
    }
    spend(&mut world, 15);
    let (amounts, nts) = billed(&world, "acme/web");
    let life = amounts.get(Meter::Life);
    assert_eq!((amounts.get(Meter::Loads), nts["nat"]), (1, life));
    assert_near(amounts.get(Meter::Memory), 2, life);
    assert!(life > 12_000, "{life} ms");
}

fn vm() -> VmId {
    VmId::new("00000001-0000-4000-8000-000000000000").expect("a UUID")
}

#[test]
fn functions_count_for_the_dag_that_they_lead_to_until_they_are_released() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    world.deploy("acme/api", "aes", 1);
    let binding = BindingSpec {
        vm: vm(),
        tenant: tenant_id("acme"),
        chains: BindingTarget::Dags(vec![dag("acme/web"), dag("acme/api")]),
        functions: 3,
        ready_within: Duration::from_secs(10),
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    };
    spend(&mut world, 12);
    let before = ["acme/web", "acme/api"].map(|name| billed(&world, name).0.get(Meter::Functions));
    assert_eq!(before, [0, 0]);
    world.ask(Command::BindVm(binding)).expect("there are functions");
    world.settle();
    spend(&mut world, 20);
    world.restart();
    world.settle();
    spend(&mut world, 15);
    let [web, api] =
        ["acme/web", "acme/api"].map(|name| billed(&world, name).0.get(Meter::Functions));
    assert!(api > 20_000, "{api} ms");
    assert!(web.abs_diff(2 * api) <= 2, "{web} ms of two, {api} ms of one");
    world.ask(Command::UnbindVm { vm: vm(), tenant: None }).expect("it is bound");
    world.settle();
    spend(&mut world, 12);
    let [first, second] = [0, 12].map(|more| {
        spend(&mut world, more);
        billed(&world, "acme/api").0
    });
    assert_eq!(first.get(Meter::Functions), second.get(Meter::Functions), "none any more");
    assert!(first.get(Meter::Life) < second.get(Meter::Life));
    world.ask(delete("acme/api")).expect("nothing leads to it");
    world.settle();
}

/// The book takes in ten readings a second, of the hundred that there are: those that it left are in the interval that ends with them.
#[test]
fn what_was_read_just_before_an_interval_ends_is_in_it() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 10);
    spend(&mut world, 12);
    let interval = 10_000_000_000;
    let left = |world: &World| interval - world.now.as_nanos() % interval;
    let row = world.view("acme/web").uid.row();
    let mut sent = 0;
    // Sampled until 20 ms before its end, and then not any more.
    while left(&world) > 20_000_000 {
        let is_near = left(&world) <= 300_000_000;
        if is_near {
            sent += 1_000;
            *world.card().counted.entry(row).or_default() += 1_000;
        }
        let pause = if is_near { Duration::from_millis(10) } else { Duration::from_millis(100) };
        world.pass(pause.min(Duration::from_nanos(left(&world) - 10_000_000)));
        world.handle(Event::Sample);
        world.run();
    }
    assert!(sent > 20_000, "{sent} bytes");
    let before = billed(&world, "acme/web").0.get(Meter::BytesIn);
    world.pass(Duration::from_millis(25));
    let after = billed(&world, "acme/web").0.get(Meter::BytesIn);
    assert_eq!((before, after), (0, sent), "nothing of it is in the next interval");
}
