//! Limits that all regions of a card share, on a card that did not state them when its DAGs were planned.

use std::num::{NonZeroU32, NonZeroU64};

use snic_domain::{DagSpec, DagState, PacketSizes};

use crate::support::World;
use crate::support::things::{card_id, create, spec, update};

fn small(gbps: u64) -> DagSpec {
    DagSpec { packet_sizes: PacketSizes::only(64), ..spec("nat", gbps) }
}

/// It is the same card: its DAGs serve on, and from then on promises are counted against the limits.
#[test]
fn a_card_that_states_its_limits_later_keeps_its_dags() {
    let mut world = World::new();
    world.ask(create("acme/web", small(5))).expect("there is room");
    world.settle();
    world.lose_card();
    let profile = &mut world.card().profile;
    profile.scheduler_lookups_per_cycle = NonZeroU32::new(1);
    profile.memory_bytes_per_second = NonZeroU64::new(19_200_000_000);
    let stated = profile.clone();
    world.appear(&card_id());
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready, "{:?}", world.view("acme/web").conditions);
    let card = world.controller.card_view(&card_id()).expect("it is there");
    assert_eq!(card.profile, stated);
    world.ask(update("acme/web", small(4))).expect("less");
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
}
