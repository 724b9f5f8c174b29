//! State to the save area and back: only to whom and to what it is of.

use snic_domain::{DagUid, RegionId};
use snic_tables::registers::{
    SAVE_AREA_BYTES, STATE_BUSY, STATE_BYTES, STATE_CHECK, STATE_COMMAND, STATE_ERROR_DAMAGED,
    STATE_ERROR_FOREIGN, STATE_ERROR_RANGE, STATE_ERROR_REGION, STATE_HEAD, STATE_IDLE,
    STATE_STATUS, STATE_UID, state,
};
use snic_tables::{CardCommand, CardReport, SaveSlot, StateDone, StateFailure, StateOrder};

use super::{Fixture, Rig};

/// Where saved contexts of the cases stand.
const OFFSET: u32 = 8_192;

fn uid(row: u16) -> DagUid {
    DagUid::new(row, 1).expect("a row of the table")
}

#[track_caller]
fn order(rig: &mut Rig, number: u8, order: StateOrder) -> Result<StateDone, StateFailure> {
    let (ticket, region) = (rig.ticket(), RegionId(number));
    match rig.run(CardCommand::State { ticket, region, order }, None) {
        CardReport::State { result, .. } => result,
        other => panic!("{order:?} was answered by {other:?}"),
    }
}

/// Loads the image that keeps state into region 0, and saves what it keeps for DAG 1.
#[track_caller]
fn saved(rig: &mut Rig) -> (SaveSlot, StateDone) {
    rig.load_well(0);
    let length = STATE_HEAD + rig.read(state(0, STATE_BYTES));
    assert!(length > STATE_HEAD, "the first image keeps state");
    let slot = SaveSlot { offset: OFFSET, length };
    let done = order(rig, 0, StateOrder::Save { uid: uid(1), slot }).expect("there is room");
    assert_eq!(done.bytes, length);
    (slot, done)
}

#[track_caller]
fn refused(result: Result<StateDone, StateFailure>) -> u32 {
    match result {
        Err(StateFailure::Refused { code }) => code,
        other => panic!("it was not refused: {other:?}"),
    }
}

/// And no region keeps anything before something is loaded.
pub fn a_fresh_wrapper_is_idle_and_keeps_nothing(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    assert!(rig.read(SAVE_AREA_BYTES) > OFFSET, "the cases need a save area");
    for register in [STATE_STATUS, STATE_BYTES] {
        assert_eq!(rig.read(state(1, register)), STATE_IDLE);
    }
    let slot = SaveSlot { offset: OFFSET, length: 4_096 };
    let code = refused(order(&mut rig, 1, StateOrder::Save { uid: uid(1), slot }));
    assert_eq!(code, STATE_ERROR_REGION);
}

/// Saving what was restored gives the same bytes.
pub fn a_saved_state_comes_back(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let (slot, done) = saved(&mut rig);
    let again = StateOrder::Restore { uid: uid(1), slot, check: done.check };
    let back = order(&mut rig, 0, again).expect("it was saved there");
    assert_eq!((back.bytes, back.check), (done.bytes, done.check));
    let twice = order(&mut rig, 0, StateOrder::Save { uid: uid(1), slot }).expect("as before");
    assert_eq!((twice.bytes, twice.check), (done.bytes, done.check));
    assert_ne!(rig.read(state(0, STATE_STATUS)), STATE_BUSY);
}

/// A load takes away what a region keeps, not what was saved of it.
pub fn a_state_comes_back_after_a_load(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let (slot, done) = saved(&mut rig);
    rig.load_well(0);
    let restore = StateOrder::Restore { uid: uid(1), slot, check: done.check };
    assert_eq!(order(&mut rig, 0, restore).map(|back| back.check), Ok(done.check));
}

/// Whoever asks for it.
pub fn a_state_is_not_restored_for_another_dag(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let (slot, done) = saved(&mut rig);
    let other = StateOrder::Restore { uid: uid(2), slot, check: done.check };
    assert_eq!(refused(order(&mut rig, 0, other)), STATE_ERROR_FOREIGN);
}

/// However similar they are.
pub fn a_state_is_not_restored_into_another_bitstream(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let (slot, done) = saved(&mut rig);
    rig.load_well(1);
    let other = StateOrder::Restore { uid: uid(1), slot, check: done.check };
    let code = refused(order(&mut rig, 1, other));
    assert!(matches!(code, STATE_ERROR_FOREIGN | STATE_ERROR_REGION), "code {code}");
}

/// Nor one whose bytes are not those that were saved.
pub fn a_state_that_was_erased_is_not_restored(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let (slot, done) = saved(&mut rig);
    let wrong = StateOrder::Restore { uid: uid(1), slot, check: !done.check };
    assert_eq!(refused(order(&mut rig, 0, wrong)), STATE_ERROR_DAMAGED);
    // Any wrapper erases, whatever its region holds.
    order(&mut rig, 1, StateOrder::Erase { slot }).expect("it is in the save area");
    let gone = StateOrder::Restore { uid: uid(1), slot, check: done.check };
    assert_eq!(refused(order(&mut rig, 0, gone)), STATE_ERROR_DAMAGED);
}

/// So nothing of a tenant's pages is ever written or read.
pub fn a_place_outside_of_the_save_area_is_refused(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let (slot, done) = saved(&mut rig);
    let end = rig.read(SAVE_AREA_BYTES);
    let short = SaveSlot { length: slot.length - 1, ..slot };
    let outside = SaveSlot { offset: end, ..slot };
    let wrapping = SaveSlot { offset: u32::MAX - 63, ..slot };
    for slot in [short, outside, wrapping] {
        let save = order(&mut rig, 0, StateOrder::Save { uid: uid(1), slot });
        assert_eq!(refused(save), STATE_ERROR_RANGE, "{slot:?}");
        let restore = StateOrder::Restore { uid: uid(1), slot, check: done.check };
        assert_eq!(refused(order(&mut rig, 0, restore)), STATE_ERROR_RANGE, "{slot:?}");
    }
    let erase = order(&mut rig, 0, StateOrder::Erase { slot: outside });
    assert_eq!(refused(erase), STATE_ERROR_RANGE);
}

/// And a command that the map does not have.
pub fn registers_of_wrappers_keep_what_the_host_writes(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    for register in [STATE_UID, STATE_CHECK] {
        rig.write(state(1, register), 0x0012_3456);
        assert_eq!(rig.read(state(1, register)), 0x0012_3456);
    }
    rig.write(state(1, STATE_STATUS), STATE_BUSY);
    assert_eq!(rig.read(state(1, STATE_STATUS)), STATE_IDLE);
    rig.write(state(1, STATE_COMMAND), 99);
    assert_ne!(rig.read(state(1, STATE_STATUS)), STATE_BUSY);
}
