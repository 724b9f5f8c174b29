//! A region holds what its own ROM reports. A digest that the host loaded, or believes to have loaded, proves nothing.

use snic_controller::Command;
use snic_domain::{ChainIdentity, DagState, RegionId, RegionState, ReportedChain};
use snic_tables::RegionStatus;

use crate::support::things::{
    bitstream, bitstream_id, create, digest, drain, nt, nt_id, spec, undrain, with_bytes,
};
use crate::support::{World, operator};

/// Report of a region with these NTs.
fn chain(nts: &[&str]) -> ReportedChain {
    let nts: Vec<_> = nts.iter().map(|id| nt_id(id)).collect();
    ReportedChain::of(&nts, ChainIdentity::of_nts(&nts))
}

/// Everything that is asked of the card until it is quiet; says whether the region was ever active.
fn was_active(world: &mut World, bitstream: &str) -> bool {
    let mut active = false;
    for _ in 0..200 {
        let is_it = |view: &snic_controller::RegionView| {
            view.state == RegionState::Active
                && view.bitstream.as_ref().is_some_and(|id| id.as_str() == bitstream)
        };
        active |= (0..4).any(|number| is_it(&world.region(number)));
        if world.answer_one().is_none() {
            world.settle();
        }
    }
    active
}

#[test]
fn a_bitstream_that_declares_other_nts_than_its_region_reports_is_never_active() {
    let other =
        ReportedChain { identity: ChainIdentity::from_words([1, 2, 3, 4]), ..chain(&["lb"]) };
    let lies = [
        (chain(&["vpn"]), "another NT in slot 0"),
        (chain(&["lb", "vpn"]), "another NT in slot 1"),
        (other, "another build of them"),
        (ReportedChain::default(), "another NT in slot 0"),
    ];
    for (reported, why) in lies {
        let mut world = World::new();
        world.card().lies.insert(digest("lb"), reported);
        world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
        assert!(!was_active(&mut world, "lb"), "{why}");
        assert_ne!(world.state("acme/web"), DagState::Ready);
        let lb = world.controller.bitstream(&operator(), &bitstream_id("lb")).expect("it is there");
        let rejection = lb.rejection.expect("two regions reported something else");
        assert!(rejection.reason.contains(why), "{}", rejection.reason);
        // It stays where it was loaded, away from the crossbar; the next daemon does not know it either.
        let loaded = |card: &crate::support::card::TinyCard| -> Vec<RegionId> {
            let ids = (0u8..).map(RegionId).zip(&card.regions);
            ids.filter(|(_, s)| **s == RegionStatus::Loaded(digest("lb")))
                .map(|(id, _)| id)
                .collect()
        };
        let left = loaded(world.card());
        assert!(!left.is_empty() && left.iter().all(|id| world.card().decoupled.contains(id)));
        world.restart();
        world.settle();
        for id in left {
            assert_eq!(world.region(id.0).state, RegionState::Unknown);
        }
        // Whatever else there is to do goes on in them.
        world.deploy("acme/b", "vpn", 5);
    }
}

/// The digest that the card shows is what the host wrote there.
#[test]
fn after_a_restart_a_region_is_what_it_reports() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let loads = world.card().loads.len();
    world.restart();
    world.settle();
    assert_eq!((world.card().loads.len(), world.state("acme/web")), (loads, DagState::Ready));
    // Somebody else was at the configuration port.
    world.card().chains.insert(digest("lb"), chain(&["vpn"]));
    world.restart();
    world.settle();
    assert_eq!(world.card().loads.len(), loads + 1, "it is loaded again");
    assert_eq!(world.state("acme/web"), DagState::Ready);
    // Where nobody needs the region, nothing is said of what it holds.
    let region = world.regions_of("acme/web")[0];
    world.ask(crate::support::things::delete("acme/web")).expect("it is there");
    world.settle();
    assert_eq!(world.region(region.0).state, RegionState::Victim);
    world.card().chains.insert(digest("lb"), chain(&["vpn"]));
    world.restart();
    world.settle();
    assert_eq!(world.region(region.0).state, RegionState::Unknown);
}

/// The same bytes under another name are not what the other name says.
#[test]
fn a_region_with_the_bytes_of_a_bitstream_is_not_one_that_declares_other_nts() {
    let mut world = World::new();
    world.card().lies.insert(digest("lb"), chain(&["lb"]));
    world.deploy("acme/web", "lb", 5);
    let region = world.regions_of("acme/web")[0];
    world.ask(crate::support::things::delete("acme/web")).expect("it is there");
    world.settle();
    world.ask(Command::CreateNtType(nt("acme.own", 40))).expect("an operator");
    let twin = with_bytes(bitstream("acme.twin", &["acme.own"]), digest("lb"));
    world.ask(Command::CreateBitstream(twin)).expect("an operator");
    // Only the region with these bytes is left.
    let others: Vec<u8> = (0..4).filter(|number| *number != region.0).collect();
    for number in &others {
        world.ask(drain(*number)).expect("it is there");
    }
    world.settle();
    world.ask(create("acme/own", spec("acme.own", 1))).expect("there is a region");
    assert!(!was_active(&mut world, "acme.twin"));
    assert_ne!(world.state("acme/own"), DagState::Ready);
    for number in others {
        world.ask(undrain(number)).expect("it is there");
    }
}

/// Whoever relocates nothing builds an image a region.
#[test]
fn an_image_of_one_region_is_loaded_there_and_nowhere_else() {
    let mut world = World::new();
    let own = |id: &str, region: u8| {
        let mut made = bitstream(id, &["acme.own"]);
        made.images.first_mut().regions = vec![RegionId(region)];
        made.identity = Some(ChainIdentity::from_words([7, 7, 7, 7]));
        made
    };
    world.ask(Command::CreateNtType(nt("acme.own", 40))).expect("an operator");
    for (id, region) in [("acme.own-2", 2), ("acme.own-3", 3)] {
        world.ask(Command::CreateBitstream(own(id, region))).expect("an operator");
    }
    world.deploy("acme/a", "acme.own", 30);
    world.deploy("acme/b", "acme.own", 30);
    for (region, id) in [(2, "acme.own-2"), (3, "acme.own-3")] {
        assert_eq!(world.region(region).bitstream, Some(bitstream_id(id)));
    }
    world.ask(create("acme/c", spec("acme.own", 30))).expect_err("regions 0 and 1 take neither");
    let loads = world.card().loads.clone();
    assert!(loads.iter().all(|(region, of)| *of == digest(&format!("acme.own-{region}"))));
    world.restart();
    world.settle();
    assert_eq!(world.card().loads, loads, "it is known again");
}
