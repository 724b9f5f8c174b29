//! Readings of a card's device, and their consequences.

use snic_controller::{Change, Event, LogKind};
use snic_domain::{
    AxiFirewall, ConditionStatus, DagState, DeviceReading, DriverError, Sensor, SensorKind,
};

use crate::support::World;
use crate::support::things::{card_id, create, spec};

fn reading(celsius: i64) -> DeviceReading {
    let sensor = Sensor {
        name: "FPGA".into(),
        kind: SensorKind::Temperature,
        milli: Some(celsius * 1_000),
        limit_milli: None,
    };
    DeviceReading { sensors: vec![sensor], ..DeviceReading::default() }
}

fn read(world: &mut World, reading: DeviceReading) {
    world.handle(Event::DeviceRead { card: card_id(), reading: Box::new(reading) });
    world.settle();
}

fn noted(world: &World, kind: LogKind) -> Vec<String> {
    let logged = world.changes.iter().filter_map(|(change, _)| match change {
        Change::Logged(entry) if entry.kind == kind => Some(entry.text.clone()),
        _ => None,
    });
    logged.collect()
}

#[test]
fn a_hot_card_keeps_its_dags_and_gets_no_new_ones_until_it_is_cooler() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    read(&mut world, reading(97));
    assert_eq!(world.state("acme/web"), DagState::Ready);
    world.ask(create("acme/more", spec("aes", 5))).expect_err("it is too hot");
    let told = noted(&world, LogKind::CardUnhealthy);
    assert!(told.len() == 1 && told[0].contains("FPGA is at 97.0 °C"), "{told:?}");
    assert!(!world.region(0).cordoned, "nobody cordoned it");
    read(&mut world, reading(92));
    world.ask(create("acme/more", spec("aes", 5))).expect_err("it is not clearly cooler");
    read(&mut world, reading(85));
    world.deploy("acme/more", "aes", 5);
    assert_eq!(noted(&world, LogKind::CardHealthy).len(), 1);
    assert_eq!(noted(&world, LogKind::CardUnhealthy).len(), 1, "told once");
    world.controller.check().expect("consistent");
}

#[test]
fn a_hot_card_whose_sensor_falls_silent_takes_nothing_until_it_says_that_it_is_cooler() {
    let mut world = World::new();
    read(&mut world, reading(97));
    let mut silent = reading(0);
    silent.sensors[0].milli = None;
    for nothing in [silent, DeviceReading::default()] {
        read(&mut world, nothing);
        world.ask(create("acme/web", spec("lb", 5))).expect_err("nobody says that it is cooler");
    }
    read(&mut world, reading(85));
    world.deploy("acme/web", "lb", 5);
}

#[test]
fn a_cordon_of_an_operator_stays_when_the_card_is_cool_again() {
    let mut world = World::new();
    let cordon = |on| snic_controller::Command::Cordon { card: card_id(), region: None, on };
    world.ask(cordon(true)).expect("it is there");
    read(&mut world, reading(97));
    read(&mut world, reading(50));
    world.ask(create("acme/web", spec("lb", 5))).expect_err("it is cordoned");
    read(&mut world, reading(97));
    world.ask(cordon(false)).expect("it is there");
    world.ask(create("acme/web", spec("lb", 5))).expect_err("it is hot");
    read(&mut world, reading(50));
    world.deploy("acme/web", "lb", 5);
}

#[test]
fn a_firewall_that_blocks_is_told_also_of_a_lost_card() {
    let mut world = World::new();
    world.lose_card();
    let firewall = Some(AxiFirewall::Tripped { level: 1, status: "0x4".into() });
    read(&mut world, DeviceReading { firewall, ..reading(50) });
    let device = world.controller.card_view(&card_id()).expect("known").device.expect("read");
    assert_eq!(device.conditions[1].status, ConditionStatus::False);
    assert!(!device.is_fit);
    assert!(noted(&world, LogKind::CardUnhealthy)[0].contains("card reset"));
}

#[test]
fn what_a_driver_reports_is_told_once_and_counted() {
    let mut world = World::new();
    let with = |time| {
        let text = format!("firewall trip {time}");
        DeviceReading { errors: vec![DriverError { code: 1, time, text }], ..reading(50) }
    };
    for time in [1, 1, 2, 2] {
        read(&mut world, with(time));
    }
    let told = noted(&world, LogKind::CardError);
    assert!(told.len() == 1 && told[0].contains("firewall trip 2"), "{told:?}");
    let device = world.controller.card_view(&card_id()).expect("known").device.expect("read");
    assert_eq!(device.errors_seen, 1);
}

#[test]
fn nothing_is_known_of_a_card_that_never_said_anything() {
    let mut world = World::new();
    assert_eq!(world.controller.card_view(&card_id()).expect("known").device, None);
    read(&mut world, DeviceReading::default());
    let device = world.controller.card_view(&card_id()).expect("known").device.expect("read");
    let unknown = |status| status == ConditionStatus::Unknown;
    assert!(device.is_fit && device.conditions.iter().all(|one| unknown(one.status)));
    assert_eq!(noted(&world, LogKind::CardUnhealthy), [""; 0]);
    world.deploy("acme/web", "lb", 5);
}
