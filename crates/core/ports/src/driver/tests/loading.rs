//! Loads: the order of their steps, and what goes wrong with them.

use std::time::Duration;

use snic_domain::{ChainMismatch, Digest, RegionId};
use snic_tables::registers::*;
use snic_tables::{CardCommand, CardReport, LoadFailure, Ticket};

use super::{Bench, loaded};
use crate::card::fake::{REGIONS_OF_FAKE, chain_of};

fn failed(ticket: u64, region: u8, failure: LoadFailure) -> CardReport {
    let (ticket, region) = (Ticket(ticket), RegionId(region));
    CardReport::Loaded { ticket, region, result: Err(failure) }
}

#[test]
fn the_steps_of_a_load_come_in_their_order() {
    let mut bench = Bench::new();
    bench.load(1, 2, b"bits");
    assert_eq!(bench.step(), []);
    let (&buffer, bytes) = bench.card.buffers.first_key_value().expect("staged");
    assert_eq!(bytes, b"bits");
    let mut expected = vec![(region(2, REGION_CONTROL), REGION_DECOUPLE)];
    let next = region(2, REGION_DIGEST_NEXT);
    expected.extend((next..).step_by(4).zip(Digest::of(b"bits").words()));
    expected.extend([
        (LOAD_REGION, 2),
        (LOAD_BUFFER_LOW, buffer as u32),
        (LOAD_BUFFER_HIGH, 7),
        (LOAD_BYTES, 4),
        (LOAD_START, 1),
    ]);
    assert_eq!(bench.card.writes, expected);
    assert_eq!(bench.after_ms(4), []);
    assert!(bench.card.decoupled(2));
    assert_eq!(bench.after_ms(3), [loaded(1, 2, 7)], "from the start to when it was seen");
    assert_eq!(bench.card.writes.last(), Some(&(region(2, REGION_CONTROL), 0)));
    assert!(bench.card.buffers.is_empty());
}

#[test]
fn packets_in_the_region_are_waited_for() {
    let mut bench = Bench::new();
    bench.card.poke(region(1, REGION_IN_FLIGHT), 3);
    bench.load(1, 1, b"bits");
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(19), []);
    assert_eq!(bench.card.writes, []);
    bench.card.poke(region(1, REGION_IN_FLIGHT), 0);
    assert_eq!(bench.after_ms(9), [], "gone before anybody looked again: not late");
    assert_eq!(bench.after_ms(5), [loaded(1, 1, 5)]);
}

#[test]
fn packets_that_stay_leave_the_region_as_it_was() {
    let mut bench = Bench::new();
    bench.card.poke(region(1, REGION_IN_FLIGHT), 3);
    bench.load(1, 1, b"bits");
    assert_eq!(bench.step(), []);
    let failure = LoadFailure::DrainTimeout { packets: 3, waited: Duration::from_millis(21) };
    assert_eq!(bench.after_ms(21), [failed(1, 1, failure)]);
    assert_eq!(bench.card.writes, []);
    assert!(bench.card.buffers.is_empty());
    assert_eq!((bench.session.statistics().loads, bench.session.statistics().loads_failed), (0, 1));
}

#[test]
fn without_bytes_or_room_or_region_nothing_is_touched() {
    let mut bench = Bench::new();
    let (ticket, region) = (Ticket(1), RegionId(1));
    let digest = Digest::of(b"bits");
    let chain = chain_of(b"bits");
    bench.session.submit(CardCommand::Load { ticket, region, digest, chain }, None);
    let report = bench.step().pop().expect("a report");
    let CardReport::Loaded { result: Err(LoadFailure::NoBytes(text)), .. } = report else {
        panic!("{report:?}");
    };
    assert!(text.contains(&digest.to_string()), "{text}");

    bench.card.faults.no_memory = true;
    bench.load(2, 1, b"bits");
    let report = bench.step().pop().expect("a report");
    let CardReport::Loaded { result: Err(LoadFailure::NoBytes(text)), .. } = report else {
        panic!("{report:?}");
    };
    assert!(text.contains("4 bytes"), "{text}");

    for region in [REGIONS_OF_FAKE, 255] {
        bench.load(3, region, b"bits");
        let failure = LoadFailure::Controller { code: LOAD_ERROR_REGION };
        assert_eq!(bench.step(), [failed(3, region, failure)]);
    }
    assert_eq!(bench.card.writes, []);
    assert!(bench.session.is_idle());
}

#[test]
fn a_failed_load_leaves_the_region_decoupled() {
    let mut bench = Bench::new();
    bench.card.faults.load_error = Some(LOAD_ERROR_PACKETS);
    bench.load(1, 1, b"bits");
    assert_eq!(bench.step(), []);
    let failure = LoadFailure::Controller { code: LOAD_ERROR_PACKETS };
    assert_eq!(bench.after_ms(5), [failed(1, 1, failure)]);
    assert!(bench.card.decoupled(1));
    assert!(bench.card.buffers.is_empty());
    // And the next attempt can succeed.
    bench.card.faults.load_error = None;
    bench.load(2, 1, b"bits");
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(5), [loaded(2, 1, 5)]);
    assert!(!bench.card.decoupled(1));
    assert_eq!(bench.session.statistics().loads_failed, 1);
}

/// The digest is the host's own: whatever a region holds, that much it says.
#[test]
fn a_region_that_reports_another_chain_stays_decoupled() {
    for word in 0..12 {
        let mut bench = Bench::new();
        bench.card.faults.load_reports_other_word = Some(word);
        bench.load(1, 1, b"bits");
        assert_eq!(bench.step(), []);
        let mismatch = match word {
            0..8 => ChainMismatch::Nt { slot: word },
            _ => ChainMismatch::Identity,
        };
        let failure = LoadFailure::OtherChain(mismatch);
        assert_eq!(bench.after_ms(5), [failed(1, 1, failure)], "word {word}");
        assert!(bench.card.decoupled(1) && bench.card.buffers.is_empty());
        bench.card.faults.load_reports_other_word = None;
        bench.load(2, 1, b"bits");
        assert_eq!(bench.step(), []);
        assert_eq!(bench.after_ms(5), [loaded(2, 1, 5)]);
        assert!(!bench.card.decoupled(1));
    }
}

#[test]
fn a_region_that_does_not_say_it_holds_the_bitstream_stays_decoupled() {
    let words = (0..8).map(|word| (Some(word), false));
    for (load_leaves_other_word, done_but_broken) in words.chain([(None, true)]) {
        let mut bench = Bench::new();
        bench.card.faults.load_leaves_other_word = load_leaves_other_word;
        bench.card.faults.done_but_broken = done_but_broken;
        bench.load(1, 1, b"bits");
        assert_eq!(bench.step(), []);
        let failure = LoadFailure::Controller { code: LOAD_ERROR_IDENTITY };
        let reports = bench.after_ms(5);
        assert_eq!(reports, [failed(1, 1, failure)], "word {load_leaves_other_word:?}");
        assert!(bench.card.decoupled(1));
        assert!(bench.card.buffers.is_empty());
    }
}

#[test]
fn a_load_that_does_not_end_is_ended_by_a_reset() {
    let mut bench = Bench::new();
    bench.card.faults.load_hangs = true;
    bench.load(1, 1, &[7; 10_000]);
    bench.load(2, 0, b"bits");
    assert_eq!(bench.step(), []);
    bench.card.faults.load_hangs = false;
    let failure = LoadFailure::Timeout(Duration::from_millis(40));
    assert_eq!(bench.after_ms(40), [failed(1, 1, failure)]);
    assert!(bench.card.decoupled(1));
    assert_eq!(bench.card.peek(region(1, REGION_STATUS)), REGION_BROKEN);
    assert_eq!(bench.card.buffers.values().collect::<Vec<_>>(), [b"bits"], "the next load's");
    assert_eq!(bench.after_ms(5), [loaded(2, 0, 5)]);
}

#[test]
fn a_load_that_even_a_reset_does_not_end_keeps_its_buffer_and_the_port() {
    let mut bench = Bench::new();
    (bench.card.faults.load_hangs, bench.card.faults.ignores_resets) = (true, true);
    bench.load(1, 1, &[7; 10_000]);
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(39), [], "30 ms and 10 ms for its size");
    let failure = LoadFailure::Timeout(Duration::from_millis(40));
    assert_eq!(bench.after_ms(1), [failed(1, 1, failure)]);
    assert!(bench.card.decoupled(1));
    assert_eq!(bench.card.buffers.len(), 1, "the card may still read it");

    bench.card.faults.load_hangs = false;
    bench.load(2, 0, b"bits");
    assert_eq!(bench.step(), []);
    let failure = LoadFailure::Controller { code: LOAD_ERROR_BUSY };
    assert_eq!(bench.after_ms(20), [failed(2, 0, failure)]);
    assert!(!bench.card.decoupled(0));

    bench.load(3, 0, b"bits");
    assert_eq!(bench.after_ms(3_600_000), [], "the port is free at last");
    assert_eq!(bench.card.buffers.values().collect::<Vec<_>>(), [b"bits"], "only the new one");
    assert_eq!(bench.after_ms(5), [loaded(3, 0, 5)]);
}
