//! Whole sequences, and what a daemon finds that another one left behind.

use std::sync::Arc;

use snic_domain::{Digest, ReportedChain};
use snic_tables::registers::*;
use snic_tables::{
    CardCommand, CardReport, CardSnapshot, RegionSnapshot, RegionStatus, TableImage,
};

use super::loads::breaks;
use super::tables::{bank, target, write_shadow};
use super::{Fixture, Needed, Rig};
use crate::driver::{Deadlines, Session};

/// Snapshot that a new daemon gets of the card.
#[track_caller]
pub(super) fn adopt(rig: &mut Rig) -> CardSnapshot {
    rig.session = Session::new(Deadlines::default());
    let ticket = rig.ticket();
    let known = rig.known();
    match rig.run(CardCommand::ReadBack { ticket, known }, None) {
        CardReport::ReadBack { snapshot, .. } => *snapshot,
        other => panic!("the card was not read back: {other:?}"),
    }
}

/// Version by version, rows as they were asked for.
pub fn rows_are_programmed_and_read_back(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let before = rig.read(TABLE_VERSION);
    let version = rig.program(TableImage::default().delta_to(&target(5)));
    assert_eq!(version, before + 1);
    let version = rig.program(target(5).delta_to(&target(6)));
    assert_eq!(version, before + 2);
    let snapshot = adopt(&mut rig);
    assert_eq!(snapshot.tables, target(6));
    assert_eq!(snapshot.version, before + 2);
}

/// The configuration port is not the control interface.
pub fn tables_are_programmed_while_a_region_is_loading(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let image = Arc::clone(&rig.images[0]);
    rig.submit_load(0, &image);
    assert_eq!(rig.step_once(), [], "a load takes longer than a step");
    let ticket = rig.ticket();
    let delta = TableImage::default().delta_to(&target(5));
    rig.session.submit(
        CardCommand::Program {
            ticket,
            delta,
            configurations: Vec::new(),
            windows: Default::default(),
            rates_only: false,
        },
        None,
    );
    let reports = rig.finish();
    assert!(
        matches!(
            &reports[..],
            [
                CardReport::Programmed { result: Ok(_), .. },
                CardReport::Loaded { result: Ok(_), .. }
            ]
        ),
        "tables first, then the region: {reports:?}"
    );
}

/// Nothing loaded, nothing in the tables.
pub fn a_fresh_card_is_read_back_as_empty(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let snapshot = adopt(&mut rig);
    assert_eq!(snapshot.boot_id, rig.read(BOOT_ID));
    assert_eq!(snapshot.idcode, rig.read(IDCODE));
    assert_eq!(snapshot.version, rig.read(TABLE_VERSION));
    assert_eq!(snapshot.tables, TableImage::default());
    assert_eq!(snapshot.regions.len(), rig.read(REGION_COUNT) as usize);
    assert!(snapshot.regions.iter().all(|region| region.status == RegionStatus::Empty));
}

/// The load goes on without its daemon; the next one waits for its end and couples the region.
pub fn a_load_of_a_daemon_that_is_gone_is_adopted(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let image = Arc::clone(&rig.images[1]);
    rig.submit_load(1, &image);
    rig.step_once();
    assert_eq!(rig.read(LOAD_STATUS), LOAD_BUSY, "a load takes longer than a step");
    let snapshot = adopt(&mut rig);
    let status = RegionStatus::Loaded(Digest::of(&image));
    let chain = rig.chains[1];
    assert_eq!(
        snapshot.regions[1],
        RegionSnapshot { status, decoupled: false, was_decoupled: true, chain }
    );
    assert_eq!(snapshot.regions[0].status, RegionStatus::Empty);
    rig.load_well(0);
}

/// Rows that were committed stay, rows that were not go.
pub fn shadow_writes_of_a_daemon_that_is_gone_are_discarded(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let version = rig.program(TableImage::default().delta_to(&target(5)));
    write_shadow(&mut rig, &target(5).delta_to(&target(6)));
    let snapshot = adopt(&mut rig);
    assert_eq!((snapshot.version, snapshot.tables), (version, target(5)));
    assert_eq!(bank(&mut rig, SHADOW_BANK), target(5), "nothing of it is in the way");
    rig.program(target(5).delta_to(&target(7)));
    assert_eq!(bank(&mut rig, ACTIVE_BANK), target(7));
}

/// Its daemon ended between the load and the coupling.
pub fn a_region_that_was_left_decoupled_is_coupled_again(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let digest = rig.load_well(0);
    rig.write(region(0, REGION_CONTROL), REGION_DECOUPLE);
    let snapshot = adopt(&mut rig);
    let status = RegionStatus::Loaded(digest);
    let chain = rig.chains[0];
    assert_eq!(
        snapshot.regions[0],
        RegionSnapshot { status, decoupled: false, was_decoupled: true, chain }
    );
    assert_eq!(rig.read(region(0, REGION_CONTROL)), 0);
}

/// It holds garbage.
pub fn a_broken_region_stays_decoupled(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    breaks(&mut rig, 1, &[0x5a; 65_536]);
    let snapshot = adopt(&mut rig);
    let chain = ReportedChain::default();
    let broken = RegionSnapshot {
        status: RegionStatus::Broken,
        decoupled: true,
        was_decoupled: true,
        chain,
    };
    assert_eq!(snapshot.regions[1], broken);
    assert_eq!(rig.read(region(1, REGION_CONTROL)), REGION_DECOUPLE);
}

/// Whatever was loaded and programmed: no packet, no error.
pub fn a_sample_of_a_quiet_card_has_no_errors(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    rig.load_where_possible(0);
    rig.program(TableImage::default().delta_to(&target(5)));
    for _ in 0..10 {
        rig.tick();
        rig.card.poll(rig.now).needed("a poll");
    }
    let ticket = rig.ticket();
    match rig.run(CardCommand::Sample { ticket }, None) {
        CardReport::Sampled { counters, .. } => {
            assert_eq!(counters.errors(), 0);
            assert_eq!((counters.packets_in, counters.packets_out), (0, 0));
            assert!(counters.dags.is_empty(), "{:?}", counters.dags);
        }
        other => panic!("the card was not sampled: {other:?}"),
    }
}
