//! Single registers, and buffers.

use snic_domain::limits::REGIONS_MAX;
use snic_tables::CardCounters;
use snic_tables::registers::*;

use super::super::CardError;
use super::{Fixture, Needed, Rig};

/// Mark, version of the map, number of regions.
pub fn identity_registers_say_what_the_card_is(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    assert_eq!(rig.read(MAGIC), MAGIC_VALUE, "the mark");
    assert_eq!(rig.read(LAYOUT), LAYOUT_VALUE, "the version of the map");
    let regions = rig.read(REGION_COUNT);
    assert!((2..=REGIONS_MAX as u32).contains(&regions), "{regions} regions");
    assert_ne!(rig.read(IDCODE), 0, "the part's JTAG id");
    assert_ne!(rig.read(IDCODE), u32::MAX, "the part's JTAG id");
    assert!(!rig.card.model().as_str().is_empty());
}

/// Neither time nor loads nor commits change it.
pub fn the_boot_id_stays_while_the_card_is_up(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let boot_id = rig.read(BOOT_ID);
    rig.load_where_possible(0);
    let next = rig.read(TABLE_VERSION) + 1;
    rig.write(COMMIT, next);
    for _ in 0..100 {
        rig.tick();
        rig.card.poll(rig.now).needed("a poll");
    }
    assert_eq!(rig.read(BOOT_ID), boot_id);
}

/// Neither by a second host nor by one that finds a card with a number of its own.
pub fn a_boot_id_is_written_once_at_most(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let drawn = rig.read(BOOT_ID);
    rig.write(BOOT_ID, 0);
    assert_eq!(rig.read(BOOT_ID), drawn, "zero is no boot id");
    rig.write(BOOT_ID, 0x5eed);
    let expected = if drawn == 0 { 0x5eed } else { drawn };
    assert_eq!(rig.read(BOOT_ID), expected);
    for other in [0x5eed, 7, 0] {
        rig.write(BOOT_ID, other);
        assert_eq!(rig.read(BOOT_ID), expected, "{other:#x} was written");
    }
}

#[track_caller]
fn refused(rig: &mut Rig, at: Address) {
    let expected = Err(CardError::NoRegister(at));
    assert_eq!(rig.card.read(at), expected, "reading {at:#x}");
    assert_eq!(rig.card.write(at, 0), expected.map(|_| ()), "writing {at:#x}");
}

/// Addresses are multiples of four.
pub fn addresses_that_are_not_aligned_are_refused(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    for register in [MAGIC, COMMIT, region(0, REGION_CONTROL), ACTIVE_BANK, SHADOW_BANK] {
        for offset in 1..4 {
            refused(&mut rig, register + offset);
        }
    }
}

/// Between and behind the windows of the map there is nothing.
pub fn addresses_that_are_not_in_the_map_are_refused(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let behind_regions = REGIONS + REGIONS_MAX as u32 * REGION_PAGE;
    let holes = [
        LINK_COUNT + 4,
        LOAD_ERROR + 4,
        region(0, REGION_IN_FLIGHT) + 4,
        behind_regions,
        DAG_LOAD - 4,
        ACTIVE_BANK - 4,
        ACTIVE_BANK + BANK_BYTES,
        SHADOW_BANK + BANK_BYTES,
        0xffff_fffc,
    ];
    for at in holes {
        refused(&mut rig, at);
    }
}

/// Neither read nor written in silence.
pub fn a_block_that_leaves_the_map_is_refused(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let end = SHADOW_BANK + BANK_BYTES;
    let read = rig.card.read_block(end - 4, &mut [0; 2]);
    assert!(matches!(read, Err(CardError::NoRegister(_))), "{read:?}");
    let written = rig.card.write_block(end - 4, &[0; 2]);
    assert!(matches!(written, Err(CardError::NoRegister(_))), "{written:?}");
}

/// Writing them does nothing, and is no error.
pub fn read_only_registers_keep_their_values(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    rig.load_where_possible(0);
    // A card that cannot draw one takes the host's, once.
    rig.write(BOOT_ID, 0x5eed);
    let registers = [
        MAGIC,
        LAYOUT,
        CAPABILITIES,
        REGION_COUNT,
        IDCODE,
        BOOT_ID,
        TABLE_VERSION,
        COMMIT_STATUS,
        COMMIT_WAITS,
        LOAD_STATUS,
        LOAD_PROGRESS,
        LOAD_ERROR,
        region(0, REGION_STATUS),
        region(0, REGION_IN_FLIGHT),
        region(0, REGION_DIGEST),
        region(0, REGION_DIGEST) + 28,
        region(0, REGION_NTS),
        region(0, REGION_LOAD),
        PACKETS_IN,
        PACKETS_OUT,
        DROPS,
        DAG_LOAD,
        ACTIVE_BANK,
        ACTIVE_BANK + BANK_BYTES - 4,
    ];
    for at in registers {
        let value = rig.read(at);
        rig.write(at, !value);
        assert_eq!(rig.read(at), value, "register {at:#x} was written");
    }
}

/// All counters are zero, word for word.
pub fn a_fresh_card_counted_nothing(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let words = 4 + 2 * CardCounters::default().drops.len();
    assert!(rig.read_words(PACKETS_IN, words).iter().all(|&word| word == 0));
    for row in [0, 1, 1023] {
        let words = rig.read_words(DAG_LOAD + row * DAG_LOAD_ROW, DAG_LOAD_ROW as usize / 4);
        assert!(words.iter().all(|&word| word == 0), "DAG row {row}: {words:?}");
    }
    for number in [0, 1] {
        assert_eq!(rig.status(number), REGION_EMPTY);
        assert_eq!(rig.digest(number), [0; 8], "an empty region has no digest");
        assert_eq!(rig.read(region(number, REGION_IN_FLIGHT)), 0);
    }
}

/// The control register of a region reads as it was written, but for the reset.
pub fn the_decouple_bit_is_kept_and_the_reset_bit_clears_itself(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let control = region(1, REGION_CONTROL);
    rig.write(control, REGION_DECOUPLE);
    assert_eq!(rig.read(control), REGION_DECOUPLE);
    assert_eq!(rig.read(region(0, REGION_CONTROL)) & REGION_DECOUPLE, 0, "another region's bit");
    rig.write(control, REGION_DECOUPLE | REGION_RESET);
    rig.tick();
    rig.card.poll(rig.now).needed("a poll");
    assert_eq!(rig.read(control), REGION_DECOUPLE, "the reset bit clears itself");
    rig.write(control, 0);
    assert_eq!(rig.read(control), 0);
}

/// Two buffers have two addresses.
pub fn buffers_are_told_apart(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let first = rig.card.stage(&[1; 64]).needed("staging");
    let second = rig.card.stage(&[2; 64]).needed("staging again");
    assert!(first.abs_diff(second) >= 64, "{first:#x} and {second:#x} overlap");
    rig.card.release(first).needed("releasing the first");
    rig.card.release(second).needed("releasing the second");
}

/// A second time, and an address that never was one, are errors that name the address.
pub fn a_buffer_is_released_once(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let buffer = rig.card.stage(&[1; 64]).needed("staging");
    let inside = buffer + 1;
    assert_eq!(rig.card.release(inside), Err(CardError::NoBuffer(inside)));
    rig.card.release(buffer).needed("releasing");
    assert_eq!(rig.card.release(buffer), Err(CardError::NoBuffer(buffer)));
    assert_eq!(rig.card.release(u64::MAX), Err(CardError::NoBuffer(u64::MAX)));
}

/// Staging and releasing goes on for ever.
pub fn buffers_given_back_make_room(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let bytes = vec![0; 16 << 20];
    for round in 0..64 {
        let buffer = rig.card.stage(&bytes).needed(&format!("staging 16 MiB, round {round}"));
        rig.card.release(buffer).needed("releasing");
    }
}
