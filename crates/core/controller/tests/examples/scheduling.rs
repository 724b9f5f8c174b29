//! Packet scheduling on the cards, by policy: which rows say so, and when.

use std::time::Duration;

use snic_controller::{
    ControllerSettings, CreditReservation, Event, LogKind, Scheduling, Steering,
};
use snic_tables::{ChainRow, CreditRow, Table};

use crate::support::{World, operator};

const BY_LOAD: Scheduling =
    Scheduling { steering: Steering::LeastLoaded, reservation: CreditReservation::Prefix };

/// Scheduling in all rows of the card; `None` where they do not agree.
fn on_the_card(world: &mut World) -> Option<Scheduling> {
    let tables = &world.card().tables;
    let chains = (0..Table::Chain.rows() as u16).filter_map(|row| tables.get::<ChainRow>(row));
    let credits = (0..Table::Credit.rows() as u16).filter_map(|row| tables.get::<CreditRow>(row));
    let mut steering: Vec<_> = chains.map(|row| row.steering).collect();
    let mut reservation: Vec<_> = credits.map(|row| row.reservation).collect();
    steering.dedup();
    reservation.dedup();
    match (&steering[..], &reservation[..]) {
        (&[steering], &[reservation]) => Some(Scheduling { steering, reservation }),
        _ => None,
    }
}

fn policy(world: &mut World, scheduling: Scheduling) {
    let settings = ControllerSettings { scheduling, ..crate::support::settings() };
    world.settings = settings;
    world.handle(Event::Settings(Box::new(settings)));
}

/// To the edge of an epoch, and over it.
fn epoch(world: &mut World) {
    for _ in 0..3 {
        world.pass(Duration::from_millis(10));
        world.handle(Event::Sample);
        world.settle();
    }
}

#[test]
fn a_policy_takes_effect_at_the_edge_of_an_epoch_on_all_rows_and_is_told() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 20);
    world.deploy("beta/web", "cache", 5);
    epoch(&mut world);
    assert_eq!(on_the_card(&mut world), Some(Scheduling::default()));
    let (version, loads) = (world.card().version, world.card().loads.len());
    policy(&mut world, BY_LOAD);
    assert_eq!(on_the_card(&mut world), Some(Scheduling::default()), "in the middle of an epoch");
    epoch(&mut world);
    assert_eq!(on_the_card(&mut world), Some(BY_LOAD));
    assert_eq!(world.card().version, version + 1, "one flip");
    assert_eq!(world.card().loads.len(), loads, "nothing is loaded for it");
    let told = world.controller.log_before(&operator(), None).next().expect("it is told").clone();
    assert_eq!(told.kind, LogKind::PoliciesApplied);
    let changes = "scheduling.reservation: Prefix, was Chain; \
                   scheduling.steering: LeastLoaded, was RoundRobin";
    assert_eq!(told.text, format!("other policies are in force: {changes}"));

    world.deploy("acme/late", "lb", 5);
    assert_eq!(on_the_card(&mut world), Some(BY_LOAD), "what comes later follows");
    policy(&mut world, Scheduling::default());
    epoch(&mut world);
    assert_eq!(on_the_card(&mut world), Some(Scheduling::default()));
}
