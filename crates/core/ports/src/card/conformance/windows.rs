//! Windows of NTs, on cards whose NTs take configurations.

use snic_domain::DagUid;
use snic_tables::registers::{
    Address, CAPABILITIES, CAPABILITY_WINDOWS, NT_APPEND, NT_BEGIN, NT_BUSY, NT_COMMAND, NT_COUNT,
    NT_DATA, NT_DATA_WORDS, NT_DONE, NT_IDLE, NT_KEEP, NT_REFUSED, NT_STATUS, NT_TAG, NT_TAKE,
    NT_UID, NT_WORDS_MAX, WINDOW, WINDOW_SELECT, window,
};

use super::{Fixture, Rig};

/// A rig whose region 0 is loaded, and the first slot that has an NT; `None` where NTs have no windows.
fn loaded(fixture: Fixture) -> Option<(Rig, u8)> {
    let mut rig = Rig::new(fixture);
    if rig.read(CAPABILITIES) & CAPABILITY_WINDOWS == 0 {
        return None;
    }
    rig.load_well(0);
    let slot = rig.chains[0].nts.iter().position(|nt| nt.0 != 0).expect("an NT");
    rig.write(WINDOW_SELECT, window(0, slot as u8));
    Some((rig, slot as u8))
}

fn at(register: Address) -> Address {
    WINDOW + register
}

/// Rings the doorbell, and waits for the end of the command.
#[track_caller]
fn command(rig: &mut Rig, command: u32) -> u32 {
    rig.write(at(NT_COMMAND), command);
    rig.while_it_reads(at(NT_STATUS), NT_BUSY)
}

fn name(rig: &mut Rig, row: u16, tag: u32) {
    let uid = DagUid::new(row, 1).expect("it fits");
    rig.write(at(NT_UID), uid.raw());
    rig.write(at(NT_TAG), tag);
}

/// In pieces, up to its length; two for each DAG, of which one is forgotten.
pub fn a_network_task_takes_a_configuration_by_its_window(fixture: Fixture) {
    let Some((mut rig, _)) = loaded(fixture) else { return };
    let most = rig.read(at(NT_WORDS_MAX)) as usize;
    assert!(most > 0, "it takes configurations");
    assert_eq!(rig.read(at(NT_STATUS)), NT_IDLE);
    for wrong in [NT_APPEND, NT_TAKE, 0, 99] {
        assert_eq!(command(&mut rig, wrong), NT_REFUSED, "{wrong} before anything has begun");
    }
    name(&mut rig, 3, 7);
    assert_eq!(command(&mut rig, NT_BEGIN), NT_DONE);
    let mut left = most;
    while left > 0 {
        let piece = left.min(NT_DATA_WORDS);
        rig.card.write_block(at(NT_DATA), &vec![0x5a5a_5a5a; piece]).expect("a block");
        assert_eq!(rig.read(at(NT_DATA)), 0, "they may be keys");
        rig.write(at(NT_COUNT), piece as u32);
        assert_eq!(command(&mut rig, NT_APPEND), NT_DONE, "{left} of {most} words left");
        left -= piece;
    }
    rig.write(at(NT_COUNT), 1);
    assert_eq!(command(&mut rig, NT_APPEND), NT_REFUSED, "more than {most} words");
    assert_eq!(command(&mut rig, NT_TAKE), NT_DONE);
    assert_eq!(command(&mut rig, NT_TAKE), NT_REFUSED, "it is taken once");

    let mut begin = |tag: u32, command_after: u32| {
        name(&mut rig, 3, tag);
        assert_eq!(command(&mut rig, NT_BEGIN), NT_DONE);
        command(&mut rig, command_after)
    };
    assert_eq!(begin(8, NT_TAKE), NT_DONE, "beside the one in force");
    assert_eq!(begin(9, NT_TAKE), NT_REFUSED, "a third of one row");
    assert_eq!(begin(8, NT_KEEP), NT_DONE, "that in force is forgotten");
    assert_eq!(begin(9, NT_TAKE), NT_DONE);
}

/// Also once the region is loaded again: what it was told before is nobody's.
pub fn a_window_shows_a_loaded_network_task_or_zeros(fixture: Fixture) {
    let Some((mut rig, slot)) = loaded(fixture) else { return };
    name(&mut rig, 3, 7);
    assert_eq!(command(&mut rig, NT_BEGIN), NT_DONE);
    assert_eq!(rig.read(WINDOW_SELECT), window(0, slot));
    let empty = rig.chains[0].nts.iter().position(|nt| nt.0 == 0).expect("an empty slot") as u8;
    for nowhere in [window(0, empty), window(1, slot), window(0, 8), 1 << 16 | window(0, slot)] {
        rig.write(WINDOW_SELECT, nowhere);
        name(&mut rig, 3, 7);
        assert_eq!(command(&mut rig, NT_BEGIN), 0, "window {nowhere:#x}");
        for register in [NT_WORDS_MAX, NT_UID, NT_TAG, NT_STATUS, 0x40, NT_DATA] {
            assert_eq!(rig.read(at(register)), 0, "{register:#x} of window {nowhere:#x}");
        }
    }
    rig.write(WINDOW_SELECT, window(0, slot));
    assert_eq!(rig.read(at(NT_STATUS)), NT_DONE, "nobody else was told");
    rig.load_well(0);
    assert_eq!(rig.read(at(NT_STATUS)), NT_IDLE, "a task that was loaded anew");
    assert_eq!(command(&mut rig, NT_TAKE), NT_REFUSED, "it has begun nothing");
}
