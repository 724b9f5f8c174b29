//! State of NTs: what packets change, saved to on-board memory and back, and what it takes.

use crate::rig;
use crate::rig::{Rig, uid};
use snic_card_sim::{Faults, MemoryAccess, Sizes, TrafficSource};
use snic_domain::{Bandwidth, RegionId};
use snic_ports::card::Registers;
use snic_tables::PageRow;
use snic_tables::registers::*;

/// Keeps a table of flows of 4 KiB.
const STATEFUL: rig::Nt = (1_008, 100);
const PLAIN: rig::Nt = (8, 100);
const LENGTH: u32 = STATE_HEAD + 4_096;

/// DAG 1 through a chain whose second NT keeps state, in region 0; a plain chain in region 1.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.load(0, &[PLAIN, STATEFUL]);
    rig.load(1, &[PLAIN]);
    rig.dag(1, &[&[&[(0, 3, 1)]]]);
    rig
}

fn send(rig: &mut Rig, row: u16, packets: u64) {
    let source = TrafficSource::of_dag(uid(row), Bandwidth::from_gbps(10), Sizes::Fixed(64));
    rig.card.attach(source.at_most(packets)).expect("valid");
    rig.drain();
}

fn ring(rig: &mut Rig, number: u8, (command, row): (u32, u16), offset: u32) {
    for (register, value) in [
        (STATE_UID, uid(row).raw()),
        (STATE_OFFSET, offset),
        (STATE_LENGTH, LENGTH),
        (STATE_COMMAND, command),
    ] {
        rig.card.write(state(number, register), value).expect("there");
    }
}

fn status(rig: &mut Rig, number: u8) -> u32 {
    rig.card.read(state(number, STATE_STATUS)).expect("there")
}

/// Rings, and waits until it is done; gives the cycles it took.
fn done(rig: &mut Rig, number: u8, what: (u32, u16), offset: u32) -> u64 {
    ring(rig, number, what, offset);
    let begun = rig.card.now_cycles();
    while status(rig, number) == STATE_BUSY {
        rig.card.run_for(1);
    }
    assert_eq!(status(rig, number), STATE_DONE);
    rig.card.now_cycles() - begun
}

fn kept(rig: &Rig, number: u8, slot: usize, row: u16) -> u64 {
    rig.card.packets_kept(RegionId(number), slot, uid(row))
}

#[test]
fn a_count_goes_on_in_another_region_after_its_own_held_something_else() {
    let mut rig = rig();
    send(&mut rig, 1, 300);
    assert_eq!((kept(&rig, 0, 1, 1), kept(&rig, 0, 0, 1)), (300, 0), "the first keeps none");
    done(&mut rig, 0, (STATE_SAVE, 1), 0);
    rig.load(0, &[PLAIN]);
    assert_eq!(kept(&rig, 0, 1, 1), 0);
    rig.load(5, &[PLAIN, STATEFUL]);
    done(&mut rig, 5, (STATE_CLEAR, 1), 0);
    let check = rig.card.read(state(0, STATE_CHECK)).expect("there");
    rig.card.write(state(5, STATE_CHECK), check).expect("there");
    done(&mut rig, 5, (STATE_RESTORE, 1), 0);
    assert_eq!(kept(&rig, 5, 1, 1), 300);
    rig.dag(1, &[&[&[(5, 3, 1)]]]);
    send(&mut rig, 1, 50);
    assert_eq!(kept(&rig, 5, 1, 1), 350);
    assert_eq!(rig.card.packets_counted(uid(1)), 350);
    rig.check();
}

#[test]
fn a_move_takes_its_bytes_over_the_bandwidth_of_the_memory() {
    let mut rig = rig();
    // 4160 bytes at 19.2 GB/s are 54.2 cycles of 4 ns.
    let cycles = done(&mut rig, 0, (STATE_SAVE, 1), 0);
    assert_eq!(cycles, 55);
    assert_eq!(rig.card.read(state(0, STATE_MOVED)), Ok(LENGTH));
}

#[test]
fn saved_state_lies_in_memory_that_no_page_maps() {
    let mut rig = rig();
    send(&mut rig, 1, 7);
    done(&mut rig, 0, (STATE_SAVE, 1), 8_192);
    let saved = rig.card.save_area(8_192, LENGTH);
    assert_eq!(saved[..8], [STATE_MAGIC.to_le_bytes(), uid(1).raw().to_le_bytes()].concat());
    let context = &saved[STATE_HEAD as usize..];
    assert_eq!(context[..8], 7_u64.to_le_bytes());
    assert_eq!(context[8..16], (7 * 64_u64).to_le_bytes());
    let flows: u64 = context[16..].as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n)).sum();
    assert_eq!(flows, 7);

    // The save area lies where the pages end: the first page behind them is none.
    let base = u64::from(rig.card.read(SAVE_AREA_LOW).expect("there"))
        | u64::from(rig.card.read(SAVE_AREA_HIGH).expect("there")) << 32;
    assert_eq!(base, rig.card.profile().memory.get());
    let page = u16::try_from(base / (2 << 20)).expect("5,120");
    let code = Rig::nt(STATEFUL).id.code().0;
    rig.card.set_memory_access(code, MemoryAccess { pages: 1, writes: true });
    rig.program(|image| {
        let row = PageRow { tenant: 1, nt: code, virtual_page: 0, physical_page: page, rwx: 3 };
        image.set(0, &row).expect("there");
    });
    rig.card.take_measurements();
    send(&mut rig, 1, 20);
    let measured = rig.card.take_measurements();
    assert_eq!(measured.dag(1).expect("it sends").counters.packets_out, 0, "all of them fault");
    assert_eq!(rig.card.save_area(8_192, LENGTH), saved);
    done(&mut rig, 1, (STATE_ERASE, 1), 8_192);
    assert!(rig.card.save_area(8_192, LENGTH).iter().all(|byte| *byte == 0));
}

#[test]
fn two_dags_in_one_region_are_kept_apart() {
    let mut rig = rig();
    rig.dag(2, &[&[&[(0, 3, 1)]]]);
    send(&mut rig, 1, 30);
    send(&mut rig, 2, 40);
    done(&mut rig, 0, (STATE_SAVE, 1), 0);
    done(&mut rig, 0, (STATE_CLEAR, 1), 0);
    assert_eq!((kept(&rig, 0, 1, 1), kept(&rig, 0, 1, 2)), (0, 40));
    done(&mut rig, 0, (STATE_RESTORE, 1), 0);
    assert_eq!((kept(&rig, 0, 1, 1), kept(&rig, 0, 1, 2)), (30, 40));
}

#[test]
fn a_move_that_is_ended_leaves_nothing_that_looks_like_a_state() {
    let mut rig = rig();
    send(&mut rig, 1, 30);
    done(&mut rig, 0, (STATE_SAVE, 1), 0);
    rig.card.set_faults(Faults { state_hangs: 1.0, ..Faults::default() });
    ring(&mut rig, 0, (STATE_RESTORE, 1), 0);
    rig.card.run_for(100_000);
    assert_eq!(status(&mut rig, 0), STATE_BUSY);
    ring(&mut rig, 0, (STATE_SAVE, 1), 0);
    assert_eq!(status(&mut rig, 0), STATE_BUSY, "one at a time");
    rig.card.write(state(0, STATE_COMMAND), STATE_END).expect("there");
    assert_eq!(rig.card.read(state(0, STATE_ERROR)), Ok(STATE_ERROR_ENDED));
    assert_eq!(kept(&rig, 0, 1, 1), 0, "no half of it");

    rig.card.set_faults(Faults { state_fails: 1.0, ..Faults::default() });
    send(&mut rig, 1, 30);
    ring(&mut rig, 0, (STATE_SAVE, 1), 0);
    rig.card.run_for(1_000);
    assert_eq!(status(&mut rig, 0), STATE_REFUSED);
    assert_eq!(kept(&rig, 0, 1, 1), 30, "a save that fails takes nothing away");
    assert_eq!(rig.card.save_area(0, 4), [0; 4], "and leaves no head");
}

#[test]
fn a_load_ends_what_its_wrapper_was_doing() {
    let mut rig = rig();
    ring(&mut rig, 0, (STATE_SAVE, 1), 0);
    let bytes = rig.bitstream(&[PLAIN]);
    rig.start_load(0, &bytes);
    rig.card.run_for(10_000);
    assert_eq!(rig.card.read(state(0, STATE_ERROR)), Ok(STATE_ERROR_ENDED));
}

#[test]
fn power_that_fails_takes_the_save_area_along() {
    let mut rig = rig();
    send(&mut rig, 1, 3);
    done(&mut rig, 0, (STATE_SAVE, 1), 0);
    rig.card.power_cycle();
    assert_eq!(rig.card.save_area(0, 4), [0; 4]);
    assert_eq!((status(&mut rig, 0), rig.card.packets_counted(uid(1))), (STATE_IDLE, 0));
}

#[test]
fn packets_that_meet_a_move_are_found_by_the_check() {
    let mut rig = rig();
    rig.send(1, 50, Sizes::Fixed(64));
    rig.card.run_for(10_000);
    // Eight credits of an NT of a thousand cycles: packets come in bursts.
    for _ in 0..40 {
        done(&mut rig, 0, (STATE_SAVE, 1), 0);
    }
    let broken = rig.card.check().expect_err("its rows still lead there");
    assert!(broken.contains("while it moved"), "{broken}");
}

#[test]
fn an_nt_has_its_memory_once_for_all_dags() {
    let mut rig = rig();
    rig.dag(2, &[&[&[(0, 3, 1)]]]);
    // Far more flows of each than the 512 words of the NT, all but four of which are for flows.
    for flow in 0..2_040_u16 {
        // A source is a flow, and every DAG has 510 in a row: all that a context has room for.
        let row = 1 + flow / 510 % 2;
        let source = TrafficSource::of_dag(uid(row), Bandwidth::from_gbps(10), Sizes::Fixed(64));
        rig.card.attach(source.at_most(1)).expect("valid");
        if flow % 100 == 99 {
            rig.drain();
        }
    }
    rig.drain();
    assert_eq!((kept(&rig, 0, 1, 1), kept(&rig, 0, 1, 2)), (1_020, 1_020), "no packet is lost");
    assert_eq!(rig.card.bytes_kept(RegionId(0), 1), 4_096);
    done(&mut rig, 0, (STATE_SAVE, 1), 0);
    let saved = rig.card.save_area(0, LENGTH);
    let words = saved[STATE_HEAD as usize..].as_chunks::<8>().0;
    let flows = words[2..].iter().filter(|word| **word != [0; 8]).count();
    assert!((240..=260).contains(&flows), "about half of the flows are DAG 1's: {flows}");
    done(&mut rig, 0, (STATE_CLEAR, 1), 0);
    assert!(rig.card.bytes_kept(RegionId(0), 1) < 2_500);
}
