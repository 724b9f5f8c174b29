//! NTs of a region that let no packet go: the card names the region, and its reset ends what is in it.

use snic_card_sim::{Faults, Sizes};
use snic_domain::{Bandwidth, RegionId};
use snic_ports::card::Registers;
use snic_tables::registers::*;
use snic_tables::{DropCause, TableImage};

use crate::rig::Rig;

/// DAG 1 on region 0, DAG 2 on region 1, each with a promise, and a DAG 3 whose two branches are in both.
fn on_two_regions() -> Rig {
    let mut rig = Rig::new();
    rig.load(0, &[(30, 60)]);
    rig.load(1, &[(70, 60)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    rig.dag(2, &[&[&[(1, 1, 1)]]]);
    rig.dag(3, &[&[&[(0, 1, 1)], &[(1, 1, 1)]]]);
    for row in 1..=2 {
        rig.limit(row, Bandwidth::from_gbps(20), 100_000);
    }
    rig
}

/// Commits the next version of the same tables.
fn commit(rig: &mut Rig) {
    rig.program(|_: &mut TableImage| {});
}

fn status(rig: &mut Rig) -> (u32, u32) {
    let mut read = |at| rig.card.read(at).expect("there");
    (read(COMMIT_STATUS), read(COMMIT_WAITS))
}

#[test]
fn a_commit_names_the_region_that_it_waits_for_and_ends_with_its_reset() {
    // Within its promise, and beyond it.
    for gbps in [10, 40] {
        a_commit_beside_a_stopped_region(gbps);
    }
}

fn a_commit_beside_a_stopped_region(gbps: u64) {
    let mut rig = on_two_regions();
    rig.send(1, gbps, Sizes::imix());
    rig.send(2, 10, Sizes::imix());
    rig.card.run_for(50_000);
    assert_eq!(status(&mut rig), (COMMIT_IDLE, 0));
    rig.card.stop_nts(RegionId(0));
    rig.card.run_for(5_000);
    commit(&mut rig);
    rig.card.take_measurements();
    rig.card.run_for(1_000_000);
    assert_eq!(status(&mut rig), (COMMIT_BUSY, 0b01), "and nothing waits for the other region");
    let measured = rig.card.take_measurements();
    let others = measured.dag(2).expect("it sends").counters;
    assert!(others.packets_out * 100 >= others.packets_in * 99, "{others:?}");
    assert_eq!(measured.dag(1).map_or(0, |dag| dag.counters.packets_out), 0);
    rig.check();

    rig.card.write(region(0, REGION_CONTROL), REGION_DECOUPLE | REGION_RESET).expect("there");
    rig.card.run_for(1_000);
    assert_eq!(status(&mut rig), (COMMIT_IDLE, 0));
    assert!(rig.card.measurements().dropped(DropCause::RegionUnavailable) > 0);
    rig.check();

    rig.card.write(region(0, REGION_CONTROL), 0).expect("there");
    rig.card.run_for(1_000);
    rig.card.take_measurements();
    rig.card.run_for(50_000);
    let measured = rig.card.take_measurements();
    assert!(measured.dag(1).expect("it sends").counters.packets_out > 100, "its NTs work again");
    assert_eq!(measured.errors(), 0);
}

#[test]
fn a_branch_that_hangs_is_named_alone() {
    let mut rig = on_two_regions();
    rig.send(3, 5, Sizes::Fixed(256));
    rig.card.run_for(5_000);
    rig.card.stop_nts(RegionId(1));
    rig.card.run_for(5_000);
    commit(&mut rig);
    rig.card.run_for(10_000);
    assert_eq!(status(&mut rig), (COMMIT_BUSY, 0b10));
    rig.card.write(region(1, REGION_CONTROL), REGION_DECOUPLE | REGION_RESET).expect("there");
    rig.card.run_for(1_000);
    assert_eq!(status(&mut rig), (COMMIT_IDLE, 0));
    rig.check();
}

#[test]
fn a_load_ends_what_stopped_tasks_hold() {
    let mut rig = on_two_regions();
    rig.send_alone(1, 20);
    rig.card.stop_nts(RegionId(0));
    rig.card.run_for(200_000);
    let held = rig.card.read(region(0, REGION_IN_FLIGHT)).expect("there");
    assert!(held > 0);
    rig.load(0, &[(30, 60)]);
    assert_eq!(rig.card.read(region(0, REGION_IN_FLIGHT)), Ok(0));
    rig.check();
}

#[test]
fn decoupling_alone_does_not_end_what_stopped_tasks_hold() {
    let mut rig = on_two_regions();
    rig.send_alone(1, 1);
    rig.card.stop_nts(RegionId(0));
    rig.card.run_for(200_000);
    rig.card.write(region(0, REGION_CONTROL), REGION_DECOUPLE).expect("there");
    rig.card.run_for(10_000);
    assert_eq!(rig.card.read(region(0, REGION_IN_FLIGHT)), Ok(1));
    rig.card.write(region(0, REGION_CONTROL), REGION_DECOUPLE | REGION_RESET).expect("there");
    rig.drain();
    assert_eq!(rig.card.packets_in_flight(), 0);
}

#[test]
fn tasks_stop_when_asked_for() {
    let mut rig = on_two_regions();
    rig.card.set_faults(Faults { nts_stop: 1.0, ..Faults::default() });
    commit(&mut rig);
    rig.card.set_faults(Faults::default());
    rig.card.run_for(1_000);
    assert_eq!(status(&mut rig), (COMMIT_IDLE, 0), "nobody is in any region");
    rig.send(1, 10, Sizes::imix());
    rig.send(2, 10, Sizes::imix());
    rig.card.run_for(5_000);
    commit(&mut rig);
    rig.card.run_for(100_000);
    let (status, waits) = status(&mut rig);
    assert_eq!((status, waits.count_ones()), (COMMIT_BUSY, 1), "{waits:#b}");
}
