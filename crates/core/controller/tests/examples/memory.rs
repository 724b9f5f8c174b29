//! On-board memory: which pages tenants' NTs get, and when another may have them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_controller::{Command, Event, LogKind, Reply};
use snic_domain::{Bitstream, ByteSize, CardProfile, DagState};
use snic_tables::{PageRow, RegionRow, Table};

use crate::support::card::TinyCard;
use crate::support::things::{bitstream, card_id, create, delete, nt, nt_id, profile, spec};
use crate::support::{World, operator};

/// A card with this many pages of 2 MiB, each what one of the examples' NTs needs.
fn with_pages(pages: u64) -> World {
    let mut world = World::without_card();
    let memory = ByteSize::from_mib(2 * pages);
    world.cards.insert(card_id(), TinyCard::new(CardProfile { memory, ..profile() }));
    world.add_card(card_id());
    world.settle();
    world
}

/// The page rows of the card: tenant and NT, virtual page, physical page.
fn pages(world: &mut World) -> Vec<((u16, u32), u16, u16)> {
    let tables = &world.card().tables;
    let rows = (0..Table::Page.rows() as u16).filter_map(|row| tables.get::<PageRow>(row));
    rows.map(|row| ((row.tenant, row.nt), row.virtual_page, row.physical_page)).collect()
}

#[test]
fn every_tenants_nt_has_pages_of_its_own_that_its_dags_share() {
    let mut world = World::new();
    world.deploy("acme/web", "cache", 5);
    let (first, loads) = (pages(&mut world), world.card().loads.len());
    assert_eq!(first.len(), 1);
    world.deploy("beta/web", "cache", 5);
    world.deploy("acme/other", "cache", 5);
    assert_eq!(world.card().loads.len(), loads, "all use one NT");
    let both = pages(&mut world);
    let owners: BTreeMap<_, _> = both.iter().map(|(owner, _, page)| (*owner, *page)).collect();
    let physical: BTreeSet<_> = owners.values().collect();
    assert_eq!((both.len(), owners.len(), physical.len()), (2, 2, 2), "{both:?}");
    world.ask(delete("acme/web")).expect("it is there");
    world.settle();
    assert_eq!(pages(&mut world), both, "another DAG of the tenant uses them");
    world.ask(delete("acme/other")).expect("it is there");
    world.settle();
    let left = pages(&mut world);
    assert_eq!(left.len(), 1);
    assert_ne!(left[0].0, first[0].0, "those of the other tenant stay");
}

#[test]
fn pages_go_to_another_only_when_no_packet_can_reach_them_any_more() {
    let mut world = with_pages(1);
    world.deploy("acme/web", "cache", 5);
    assert_eq!(pages(&mut world).len(), 1);
    let refused = world.ask(create("beta/web", spec("cache", 5)));
    assert!(refused.is_err(), "the memory is full: {refused:?}");
    // Both at once: the card refuses a commit in which a page changes hands.
    let version = world.card().version;
    world.ask(delete("acme/web")).expect("it is there");
    world.ask(create("beta/web", spec("cache", 5))).expect("there is room");
    world.settle();
    assert_eq!(world.state("beta/web"), DagState::Ready);
    assert_eq!(pages(&mut world).len(), 1);
    assert!(world.card().version >= version + 2, "gone with one commit, there with the next");
}

#[test]
fn a_daemon_that_starts_again_finds_the_pages_as_they_were() {
    let mut world = World::new();
    for name in ["acme/a", "beta/b", "acme/c"] {
        world.deploy(name, if name.ends_with('c') { "lb" } else { "cache" }, 5);
    }
    world.ask(delete("acme/a")).expect("it is there");
    world.settle();
    let (before, words) = (pages(&mut world), world.card().words_written);
    assert!(before.iter().any(|(_, _, page)| *page > 0), "the first page is free: {before:?}");
    world.restart();
    world.settle();
    assert_eq!((pages(&mut world), world.card().words_written), (before.clone(), words));
    world.card().power_cycle();
    world.lose_card();
    world.add_card(card_id());
    world.settle();
    assert_eq!(pages(&mut world).len(), before.len(), "there again after a power failure");
}

#[test]
fn nts_of_one_tenant_whose_codes_are_equal_have_pages_of_their_own() {
    // Two of 2^32 whose digests begin alike, found by trying.
    let nts = ["acme.f14420", "g8360"];
    assert_eq!(nt_id(nts[0]).code(), nt_id(nts[1]).code());
    let mut world = World::new();
    for id in nts {
        world.ask(Command::CreateNtType(nt(id, 40))).expect("nobody is in its way");
    }
    let image = Bitstream { shareable: false, ..bitstream("acme.both", &nts) };
    world.ask(Command::CreateBitstream(image)).expect("a bitstream");
    world.deploy("acme/web", &nts.join(" "), 5);
    let before = pages(&mut world);
    let owners: BTreeSet<_> = before.iter().map(|(owner, ..)| *owner).collect();
    assert_eq!((before.len(), owners.len()), (2, 2), "{before:?}");
    let row: RegionRow = (0..8).find_map(|row| world.card().tables.get(row)).expect("loaded");
    let own: BTreeSet<u32> = owners.iter().map(|(_, nt)| *nt).collect();
    assert_eq!(own, row.nts[..2].iter().copied().collect(), "the card is told which is which");
    // The numbers are stored.
    let words = world.card().words_written;
    world.restart();
    world.settle();
    assert_eq!((pages(&mut world), world.card().words_written), (before, words));
}

#[test]
fn memory_faults_are_told_once_in_a_while() {
    let mut world = World::new();
    world.deploy("acme/web", "cache", 5);
    for faults in [0, 3, 9, 9] {
        world.card().faults = faults;
        world.pass(Duration::from_millis(20));
        world.handle(Event::Sample);
        world.settle();
    }
    let log: Vec<_> = world.controller.log_before(&operator(), None).collect();
    let told: Vec<_> = log.iter().filter(|entry| entry.kind == LogKind::MemoryFault).collect();
    let [told] = told[..] else { panic!("{log:?}") };
    assert!(told.text.starts_with("3 packets were dropped"), "{}", told.text);
    assert_eq!(told.card, Some(card_id()));
    let reply = world.ask(delete("acme/web"));
    assert!(matches!(reply, Ok(Reply::Operation(_))), "{reply:?}");
}
