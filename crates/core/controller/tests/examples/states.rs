//! State that chains keep for DAGs: saved before their region is loaded with something else, restored
//! where the DAG serves again, never anybody else's, and said where it is lost.

use std::time::Duration;

use snic_controller::{Command, Event, InvalidRecord, LogKind, StateFigures, StatePlace};
use snic_domain::{Bandwidth, ByteSize, DagSpec, DagState, NtType, RegionId, RegionState};
use snic_tables::registers::STATE_ERROR_ENDED;
use snic_tables::{StateFailure, StateOrder};

use crate::support::things::{bitstream, card_id, create, dag, delete, drain, nt, nt_id, reset};
use crate::support::{Crash, World, operator, recover};

const PERIOD: Duration = Duration::from_millis(10);

/// Two tenants with a chain each that keeps state, one region each, and two more regions. Each region
/// serves 10 Gbit/s.
fn world() -> World {
    let mut world = World::new();
    deploy(&mut world);
    world
}

/// The chains `dpi` and `ids`.
fn add_chains(world: &mut World) {
    for id in ["dpi", "ids"] {
        let nt = NtType { state: ByteSize::from_bytes(1_000), ..nt(id, 10) };
        world.ask(Command::CreateNtType(nt)).expect("it is new");
        world.ask(Command::CreateBitstream(bitstream(id, &[id]))).expect("it is new");
    }
}

fn deploy(world: &mut World) {
    add_chains(world);
    world.deploy("acme/web", "dpi", 10);
    world.deploy("beta/web", "ids", 10);
    periods(world, 2, [0, 0]);
}

/// Monitor periods in which acme and beta send these rates, in Gbit/s.
fn periods(world: &mut World, count: usize, loads: [u64; 2]) {
    for _ in 0..count {
        for (name, gbps) in ["acme/web", "beta/web"].into_iter().zip(loads) {
            if let Some(view) = world.controller.dag_view(&dag(name)) {
                *world.card().counted.entry(view.uid.row()).or_default() += gbps * 1_250_000;
            }
        }
        world.pass(PERIOD);
        world.handle(Event::Sample);
        world.settle();
    }
}

/// Packets have left a number in each context of a DAG: 100 and its region's.
fn mark(world: &mut World, name: &str) {
    let uid = world.view(name).uid;
    for region in world.regions_of(name) {
        world.card().states.kept.insert((region, uid), 100 + u64::from(region.0));
    }
}

/// The numbers in the regions that a DAG uses.
fn marks(world: &mut World, name: &str) -> Vec<u64> {
    let (uid, regions) = (world.view(name).uid, world.regions_of(name));
    let kept = &world.card().states.kept;
    regions.iter().map(|region| kept.get(&(*region, uid)).copied().unwrap_or(0)).collect()
}

fn figures(world: &World) -> StateFigures {
    world.controller.state_figures(&card_id()).expect("it was seen")
}

fn told(world: &World, kind: LogKind) -> Vec<String> {
    let caller = operator();
    let all = world.controller.log_before(&caller, None);
    all.filter(|entry| entry.kind == kind).map(|entry| entry.text.clone()).collect()
}

/// Acme has three regions, then beta needs all that acme was not promised, then acme again.
fn there_and_back(world: &mut World) {
    periods(world, 3, [40, 0]);
    mark(world, "acme/web");
    periods(world, 12, [0, 40]);
    mark(world, "beta/web");
    periods(world, 14, [40, 0]);
}

#[test]
fn two_chains_take_turns_with_a_region_and_go_on_where_they_were() {
    let mut world = world();
    periods(&mut world, 3, [40, 0]);
    assert_eq!(world.regions_of("acme/web").len(), 3);
    mark(&mut world, "acme/web");
    let before = marks(&mut world, "acme/web");
    periods(&mut world, 12, [0, 40]);
    assert_eq!((world.regions_of("acme/web").len(), world.regions_of("beta/web").len()), (1, 3));
    let saved = world.controller.states_of(&dag("acme/web"));
    let waiting = saved.iter().filter(|s| matches!(s.place, StatePlace::Saved(_))).count();
    assert_eq!((waiting, figures(&world).saved), (2, 2), "{saved:?}");
    assert_eq!(marks(&mut world, "beta/web")[1..], [0, 0], "nobody else's state is in it");

    mark(&mut world, "beta/web");
    periods(&mut world, 14, [40, 0]);
    assert_eq!(world.regions_of("acme/web").len(), 3);
    let mut after = marks(&mut world, "acme/web");
    after.sort_unstable();
    assert_eq!(after, before, "what was counted is there again");
    assert_eq!((figures(&world).restored, figures(&world).lost), (2, 0));
    assert_eq!(told(&world, LogKind::StateRestored).len(), 2);
    let why = &told(&world, LogKind::StateSaved)[3];
    assert!(why.contains("is needed for ids"), "{why}");
    // Beta's is saved now, and no more than that.
    assert_eq!(world.card().states.saved.len(), 2);
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
#[ignore = "ci: half a minute"]
fn wherever_the_daemon_dies_the_counts_go_on() {
    let mut whole = world();
    let first = whole.batches;
    there_and_back(&mut whole);
    let last = whole.batches;
    assert!(last - first > 10, "there are steps to die at");
    for batch in first..last {
        for crash in [Crash::Before(batch), Crash::After(batch)] {
            let mut world = world();
            world.crash = Some(crash);
            periods(&mut world, 3, [40, 0]);
            mark(&mut world, "acme/web");
            let marked = marks(&mut world, "acme/web");
            periods(&mut world, 12, [0, 40]);
            periods(&mut world, 16, [40, 0]);
            let mut found = marks(&mut world, "acme/web");
            found.sort_unstable();
            let lost = told(&world, LogKind::StateLost);
            assert!(lost.is_empty(), "{crash:?}: {lost:?}");
            let expected = marked.iter().all(|mark| found.contains(mark));
            assert!(expected, "{crash:?}: {marked:?} became {found:?}");
            world.pass(Duration::from_secs(1));
            world.settle();
        }
    }
}

#[test]
fn a_save_that_fails_is_tried_again_and_then_the_region_is_kept() {
    let refused = || StateFailure::Refused { code: STATE_ERROR_ENDED };
    let mut world = world();
    periods(&mut world, 3, [40, 0]);
    mark(&mut world, "acme/web");
    let before = marks(&mut world, "acme/web");
    world.card().states.failing.extend([refused(), refused()]);
    periods(&mut world, 12, [0, 40]);
    assert_eq!((figures(&world).saved, figures(&world).kept), (2, 0), "the third try is good");

    let mut world = self::world();
    periods(&mut world, 3, [40, 0]);
    mark(&mut world, "acme/web");
    world.card().states.failing.extend(std::iter::repeat_with(refused).take(1_000));
    periods(&mut world, 12, [0, 40]);
    assert!(figures(&world).kept > 0);
    assert_eq!((figures(&world).saved, world.regions_of("beta/web").len()), (0, 1));
    let why = told(&world, LogKind::StateKept);
    assert!(why[0].contains("cannot be saved"), "{why:?}");
    assert!(!told(&world, LogKind::NoPlace).is_empty(), "it shares what there is");
    world.card().states.failing.clear();
    periods(&mut world, 6, [40, 0]);
    let mut after = marks(&mut world, "acme/web");
    after.sort_unstable();
    assert_eq!((after, figures(&world).lost), (before, 0), "it never left");
}

#[test]
fn without_room_for_its_state_a_chain_is_not_switched() {
    let mut world = World::without_card();
    let mut profile = crate::support::things::profile();
    profile.save_area = Default::default();
    world.cards.insert(card_id(), crate::support::card::TinyCard::new(profile));
    world.appear(&card_id());
    world.settle();
    deploy(&mut world);
    periods(&mut world, 5, [40, 0]);
    mark(&mut world, "acme/web");
    periods(&mut world, 12, [0, 40]);
    assert_eq!(world.regions_of("beta/web").len(), 1);
    assert!(world.card().states.asked.is_empty());
    let victims = world.region_states().iter().filter(|s| **s == RegionState::Victim).count();
    assert_eq!(victims, 2, "they keep what they hold");
    assert!(!told(&world, LogKind::NoPlace).is_empty());
    world.ask(reset(2)).expect("nobody is in it");
    world.ask(reset(3)).expect("nobody is in it");
    periods(&mut world, 8, [0, 40]);
    assert_eq!(told(&world, LogKind::StateLost).len(), 2, "an operator gave it up");
    assert_eq!(world.regions_of("beta/web").len(), 3);
}

#[test]
fn a_restore_that_fails_is_told_and_the_chain_begins_empty() {
    let mut world = world();
    periods(&mut world, 3, [40, 0]);
    mark(&mut world, "acme/web");
    periods(&mut world, 12, [0, 40]);
    let late = StateFailure::Timeout(Duration::from_millis(100));
    world.card().states.failing_restores.push_back(late);
    periods(&mut world, 14, [40, 0]);
    let lost = told(&world, LogKind::StateLost);
    assert!(lost.len() == 1 && lost[0].contains("could not be restored"), "{lost:?}");
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(marks(&mut world, "acme/web").iter().filter(|mark| **mark == 0).count(), 1);
    let tenant = crate::support::things::caller("acme");
    let seen = world.controller.log_before(&tenant, None).filter(|e| e.kind == LogKind::StateLost);
    assert_eq!(seen.count(), lost.len(), "its tenant sees it");
}

/// The daemon died after the driver had reset a region, and before it stored that.
#[test]
fn what_a_region_kept_that_was_found_decoupled_is_lost() {
    let mut world = world();
    periods(&mut world, 3, [40, 0]);
    mark(&mut world, "acme/web");
    let region = world.regions_of("acme/web")[0];
    world.card().found_decoupled.insert(region);
    let loads = world.card().loads.len();
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    let lost = told(&world, LogKind::StateLost);
    assert!(lost.len() == 1 && lost[0].contains("may have been reset"), "{lost:?}");
    assert_eq!((world.state("acme/web"), world.card().loads.len()), (DagState::Ready, loads));
}

#[test]
fn a_card_that_lost_power_has_lost_what_was_saved() {
    let mut world = world();
    periods(&mut world, 3, [40, 0]);
    mark(&mut world, "acme/web");
    periods(&mut world, 12, [0, 40]);
    assert_eq!(figures(&world).waiting, 2);
    world.card().power_cycle();
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    assert_eq!(figures(&world).waiting, 0);
    let lost = told(&world, LogKind::StateLost);
    // Operators get one event for each cause, tenants their own.
    let causes = [
        "2 states of 1 DAGs (acme/web) are lost: the card has lost its memory",
        "4 states of 2 DAGs (acme/web, beta/web) are lost: the region does not hold it any more",
    ];
    assert!(lost.len() == 2 && causes.iter().all(|c| lost.iter().any(|l| l == c)), "{lost:?}");
    let own = |tenant: &str| {
        let caller = crate::support::things::caller(tenant);
        let all = world.controller.log_before(&caller, None);
        all.filter(|entry| entry.kind == LogKind::StateLost).count()
    };
    assert_eq!((own("acme"), own("beta")), (2 + 1, 3));
    assert!(!world.durable.keys().any(|key| key.starts_with("states/")));
    periods(&mut world, 14, [40, 0]);
    assert_eq!(marks(&mut world, "acme/web"), [0, 0, 0]);
}

#[test]
fn a_lost_card_that_kept_its_power_has_what_was_saved() {
    let mut world = world();
    periods(&mut world, 3, [40, 0]);
    mark(&mut world, "acme/web");
    let before = marks(&mut world, "acme/web");
    periods(&mut world, 12, [0, 40]);
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    world.restart();
    world.appear(&card_id());
    world.settle();
    assert_eq!(figures(&world).waiting, 2);
    periods(&mut world, 16, [40, 0]);
    let mut after = marks(&mut world, "acme/web");
    after.sort_unstable();
    assert_eq!((after, told(&world, LogKind::StateLost).len()), (before, 0));
}

#[test]
fn deleting_a_dag_deletes_its_saved_state() {
    let mut world = world();
    periods(&mut world, 3, [40, 0]);
    mark(&mut world, "acme/web");
    periods(&mut world, 12, [0, 40]);
    assert_eq!(world.card().states.saved.len(), 2);
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    assert!(world.card().states.saved.is_empty(), "and is written over");
    assert_eq!(figures(&world).waiting, 0);
    let erased = |(_, order): &&(RegionId, StateOrder)| matches!(order, StateOrder::Erase { .. });
    assert_eq!(world.card().states.asked.iter().filter(erased).count(), 2);
    // Another DAG of the same name has another UID, and begins empty.
    world.deploy("acme/web", "dpi", 10);
    assert_eq!(marks(&mut world, "acme/web"), [0]);
}

#[test]
fn a_drain_takes_the_state_along() {
    let mut world = world();
    mark(&mut world, "acme/web");
    let [from] = world.regions_of("acme/web")[..] else { panic!("one region") };
    world.ask(drain(from.0)).expect("there is room");
    world.settle();
    let [to] = world.regions_of("acme/web")[..] else { panic!("one region") };
    assert_ne!(from, to);
    assert_eq!(marks(&mut world, "acme/web"), [100 + u64::from(from.0)]);
    let orders: Vec<_> = world.card().states.asked.iter().map(|(region, _)| *region).collect();
    assert_eq!(orders[..2], [from, to], "saved here, restored there");
    assert_eq!((figures(&world).saved, figures(&world).restored, figures(&world).lost), (1, 1, 0));
    assert_eq!(world.state("acme/web"), DagState::Ready);
    let told = told(&world, LogKind::StateRestored);
    assert!(told.iter().any(|text| text.contains("it was stopped for ")), "{told:?}");
}

#[test]
fn saved_state_of_a_deleted_dag_is_erased() {
    let mut world = world();
    mark(&mut world, "acme/web");
    let [region] = world.regions_of("acme/web")[..] else { panic!("one region") };
    let uid = world.view("acme/web").uid;
    world.card().states.asked.clear();
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    let asked = [(region, StateOrder::Clear { uid })];
    assert_eq!(world.card().states.asked, asked);
    world.restart();
    world.appear(&card_id());
    world.settle();
    assert_eq!(world.card().states.asked, asked, "it was confirmed, and is not asked again");
}

#[test]
fn pending_erases_survive_a_restart() {
    let mut world = world();
    mark(&mut world, "acme/web");
    let [region] = world.regions_of("acme/web")[..] else { panic!("one region") };
    let uid = world.view("acme/web").uid;
    world.card().states.asked.clear();
    world.ask(delete("acme/web")).expect("it exists");
    world.restart();
    world.appear(&card_id());
    world.settle();
    assert_eq!(world.card().states.asked, [(region, StateOrder::Clear { uid })]);
    // Where the region was loaded with something else meanwhile, nothing is left to erase.
    let uid = world.view("beta/web").uid;
    let [region] = world.regions_of("beta/web")[..] else { panic!("one region") };
    world.ask(delete("beta/web")).expect("it exists");
    world.ask(reset(region.0)).expect("nobody uses it");
    world.settle();
    let clears = |(_, order): &(_, StateOrder)| *order == StateOrder::Clear { uid };
    assert!(!world.card().states.asked.iter().any(clears), "the region is not trusted any more");
}

#[test]
fn a_dag_new_to_a_loaded_region_begins_with_empty_state() {
    let mut world = world();
    let [region] = world.regions_of("acme/web")[..] else { panic!("one region") };
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    // Whether something was left there is not known any more.
    world.restart();
    world.appear(&card_id());
    world.settle();
    world.card().states.asked.clear();
    world.deploy("beta/other", "dpi", 5);
    assert_eq!(world.regions_of("beta/other"), [region], "its chain is loaded");
    let uid = world.view("beta/other").uid;
    assert_eq!(world.card().states.asked, [(region, StateOrder::Clear { uid })]);
}

#[test]
fn dags_that_keep_state_are_not_moved_to_save_regions() {
    let mut world = World::new();
    add_chains(&mut world);
    for name in ["acme/a", "acme/b", "acme/c"] {
        world.deploy(name, "dpi", 6);
    }
    world.ask(delete("acme/a")).expect("it exists");
    world.settle();
    let (before, loads) = (world.regions_of("acme/c"), world.card().loads.len());
    world.ask(Command::OptimizeCard { card: card_id() }).expect("a card");
    world.settle();
    assert_eq!((world.regions_of("acme/c"), world.card().loads.len()), (before, loads));
}

#[test]
fn for_burst_no_dag_stops_and_leaves_its_state() {
    let mut world = World::new();
    add_chains(&mut world);
    world.deploy("acme/web", "dpi", 4);
    world.deploy("beta/web", "dpi", 6);
    let before = world.regions_of("acme/web");
    assert_eq!(before, world.regions_of("beta/web"), "they share a region, which is full");
    periods(&mut world, 2, [0, 0]);
    for name in ["acme/web", "beta/web"] {
        mark(&mut world, name);
    }
    // Free regions would serve it, and its state is in the one that it has.
    periods(&mut world, 6, [8, 6]);
    assert_eq!(told(&world, LogKind::StateSaved), Vec::<String>::new());
    assert_eq!(marks(&mut world, "acme/web")[0], 100 + u64::from(before[0].0));
    assert!(world.regions_of("acme/web").contains(&before[0]), "it serves where it was");
}

#[test]
fn no_record_grows_with_the_dags_that_keep_state_in_a_region() {
    let mut world = World::new();
    add_chains(&mut world);
    let largest = |world: &World| {
        let of_regions = world
            .durable
            .iter()
            .filter(|(key, _)| ["regions/", "guests/"].iter().any(|kind| key.starts_with(kind)));
        of_regions.map(|(_, record)| record.len()).max().expect("there are regions")
    };
    let deploy = |world: &mut World, number: u32| {
        let little = DagSpec::chain(&[nt_id("dpi")], Bandwidth::from_mbps(1));
        world.ask(create(&format!("acme/d-{number}"), little)).expect("there is room");
        world.settle();
    };
    deploy(&mut world, 10);
    let alone = largest(&world);
    (11..40).for_each(|number| deploy(&mut world, number));
    assert_eq!(largest(&world), alone);
    let guests = world.durable.keys().filter(|key| key.starts_with("guests/")).count();
    assert_eq!(guests, 30);
    for i in 10..40 {
        world.ask(delete(&format!("acme/d-{i}"))).expect("it exists");
    }
    world.settle();
    assert!(!world.durable.keys().any(|key| key.starts_with("guests/")));
}

#[test]
fn a_guest_that_contradicts_the_other_records_is_refused_by_its_key() {
    let world = world();
    let is_of_acme = |key: &&String| key.starts_with("guests/") && key.contains("/acme/");
    let good = world.durable.keys().find(is_of_acme).expect("it keeps state").clone();
    assert!(good.ends_with("/acme/web/dpi"), "{good}");
    let moved = |to: &str| {
        let mut records = world.durable.clone();
        let record = records.remove(&good).expect("it is there");
        records.insert(to.into(), record);
        match recover(&records, world.now).expect_err("a contradiction") {
            InvalidRecord::Contradiction { key, .. } => assert_eq!(key, to),
            other => panic!("no contradiction: {other}"),
        }
    };
    moved("guests/card9/00/acme/web/dpi");
    moved("guests/card0/99/acme/web/dpi");
    moved("guests/card0/x/acme/web/dpi");
    moved("guests/card0");
    moved("guests/card0/00/acme/other/dpi");
    moved("guests/card0/00/acme/web/ids");
}
