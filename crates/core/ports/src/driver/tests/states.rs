//! State: the order of the handshake's registers, what goes wrong, and what waits for what.

use std::time::Duration;

use snic_domain::{DagUid, Digest, RegionId};
use snic_tables::registers::*;
use snic_tables::{CardCommand, CardReport, SaveSlot, StateFailure, StateOrder, Ticket};

use super::{Bench, loaded, one_row, programmed, read_back};
use crate::card::fake::chain_named;

const SLOT: SaveSlot = SaveSlot { offset: 4_096, length: 192 };

fn uid() -> DagUid {
    DagUid::new(3, 1).expect("a row")
}

fn ask(bench: &mut Bench, ticket: u64, order: StateOrder) {
    let (ticket, region) = (Ticket(ticket), RegionId(2));
    bench.session.submit(CardCommand::State { ticket, region, order }, None);
}

/// A bench whose region 2 holds something.
fn bench() -> Bench {
    let mut bench = Bench::adopted();
    bench.card.load_takes = Duration::ZERO;
    bench.load(1, 2, b"bits");
    assert_eq!(bench.step(), [loaded(1, 2, 0)]);
    bench.card.writes.clear();
    bench
}

#[test]
fn whose_and_where_come_before_the_doorbell() {
    let mut bench = bench();
    ask(&mut bench, 2, StateOrder::Save { uid: uid(), slot: SLOT });
    let [CardReport::State { ticket: Ticket(2), region: RegionId(2), result: Ok(done) }] =
        bench.step()[..]
    else {
        panic!("it is saved")
    };
    assert_eq!((done.bytes, done.took), (192, Duration::ZERO));
    let expected = [
        (state(2, STATE_UID), uid().raw()),
        (state(2, STATE_OFFSET), 4_096),
        (state(2, STATE_LENGTH), 192),
        (state(2, STATE_COMMAND), STATE_SAVE),
    ];
    assert_eq!(bench.card.writes, expected);
    assert_eq!(
        bench.card.saved[&4_096],
        (uid().raw(), chain_named(Digest::of(b"bits").words()).identity.words())
    );
    ask(&mut bench, 3, StateOrder::Restore { uid: uid(), slot: SLOT, check: done.check });
    assert!(matches!(bench.step()[..], [CardReport::State { result: Ok(_), .. }]));
    assert_eq!(bench.session.statistics().states_moved, 2);
}

#[test]
fn a_wrapper_that_does_not_end_is_ended() {
    let mut bench = bench();
    bench.card.faults.state_hangs = true;
    ask(&mut bench, 2, StateOrder::Save { uid: uid(), slot: SLOT });
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(14), []);
    let late = StateFailure::Timeout(Duration::from_millis(15));
    let (ticket, region) = (Ticket(2), RegionId(2));
    assert_eq!(bench.after_ms(1), [CardReport::State { ticket, region, result: Err(late) }]);
    assert_eq!(bench.card.writes.last(), Some(&(state(2, STATE_COMMAND), STATE_END)));
    assert_eq!(bench.session.statistics().states_moved, 0);
}

#[test]
fn a_refusal_says_why() {
    let mut bench = bench();
    ask(&mut bench, 2, StateOrder::Restore { uid: uid(), slot: SLOT, check: 1 });
    let [CardReport::State { result: Err(failure), .. }] = &bench.step()[..] else {
        panic!("nothing was saved there")
    };
    assert_eq!(*failure, StateFailure::Refused { code: STATE_ERROR_DAMAGED });
    assert!(failure.to_string().contains("damaged or missing"), "{failure}");
}

#[test]
fn state_is_saved_after_the_rows_are_gone_and_before_the_load() {
    let mut bench = bench();
    bench.card.commit_takes = Duration::from_millis(3);
    bench.card.load_takes = Duration::from_millis(5);
    bench.program(2, one_row(1, 7));
    ask(&mut bench, 3, StateOrder::Save { uid: uid(), slot: SLOT });
    bench.load(4, 2, b"others");
    assert_eq!(bench.step(), []);
    assert!(bench.card.saved.is_empty(), "packets of the old rows are under way");
    let reports = bench.after_ms(3);
    assert_eq!(reports[0], programmed(2, 6));
    assert!(matches!(reports[1..], [CardReport::State { result: Ok(_), .. }]), "{reports:?}");
    assert_eq!(
        bench.card.saved[&4_096].1,
        chain_named(Digest::of(b"bits").words()).identity.words()
    );
    assert_eq!(bench.after_ms(5), [loaded(4, 2, 5)]);
}

#[test]
fn a_save_of_an_earlier_daemon_is_ended() {
    let mut bench = bench();
    bench.card.faults.state_hangs = true;
    ask(&mut bench, 2, StateOrder::Save { uid: uid(), slot: SLOT });
    bench.step();
    let mut next = Bench { card: bench.card, ..Bench::new() };
    next.session.submit(read_back(Ticket(0)), None);
    assert!(matches!(next.step()[..], [CardReport::ReadBack { .. }]));
    assert_eq!(next.card.peek(state(2, STATE_STATUS)), STATE_REFUSED);
}
