//! Cost of a sample of all counters through XRT: accesses over the wire, and, printed, its time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use snic_bitstream::catalogue;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_card_xrt::XrtCard;
use snic_domain::Timestamp;
use snic_domain::limits::DAG_ROWS;
use snic_integration_xrt::device::{Clock, Device};
use snic_integration_xrt::emulation::{self, Emulation, SOCKET_ID};
use snic_integration_xrt::serve::{self, Shared};
use snic_ports::driver::{Deadlines, Session};
use snic_tables::registers::DAG_LOAD_ROW;
use snic_tables::{CardCommand, CardReport, Ticket};

/// Accesses of registers and time of one sample, the second of a session; all rows of DAGs are read.
fn second_sample(has_bulk: bool) -> (u64, Duration) {
    let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
    let profile = catalogue.card(&"sim-16".parse().expect("a label")).expect("there").clone();
    let emulation = Emulation::new(profile.clone());
    let sim = SharedSimCard::new(SimCard::new(profile.clone(), 1).expect("a valid profile"));
    let shared = Shared::new(Device::new(sim, has_bulk, Clock::Wall));
    serve::start(&shared, emulation.user(), SOCKET_ID).expect("threads");
    let settings = emulation.settings("hw_emu");
    let mut card = XrtCard::open(profile.model, settings, emulation.role()).expect("it opens");
    // Before its first read-back a session reads the counters of all rows.
    let mut session = Session::new(Deadlines::default());
    let mut sample = || {
        session.submit(CardCommand::Sample { ticket: Ticket(1) }, None);
        let reports = session.step(&mut card, Timestamp::ZERO);
        assert!(matches!(reports[..], [CardReport::Sampled { .. }]), "{reports:?}");
    };
    let accesses = || {
        let traffic = &shared.traffic;
        traffic.reads.load(Ordering::Relaxed) + traffic.writes.load(Ordering::Relaxed)
    };
    sample();
    let before = accesses();
    sample();
    let cost = accesses() - before;
    let rounds = if has_bulk { 100 } else { 1 };
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            sample();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    drop(card);
    shared.stop();
    (cost, times[rounds / 2])
}

/// The boot id, and for the transfer its doorbell and its status: three registers that its length goes to
/// are not counted.
const ACCESSES_IN_BULK: u64 = 3;

#[test]
fn in_bulk_a_sample_of_all_rows_is_one_transfer() {
    if !emulation::is_there() {
        return;
    }
    let (accesses, time) = second_sample(true);
    println!("a sample of {DAG_ROWS} rows in bulk: {accesses} accesses, {time:?}");
    assert!(accesses <= ACCESSES_IN_BULK, "{accesses} accesses");
}

#[test]
fn register_by_register_a_sample_reads_each_word_once() {
    if !emulation::is_there() {
        return;
    }
    let (accesses, time) = second_sample(false);
    println!("a sample of {DAG_ROWS} rows register by register: {accesses} accesses, {time:?}");
    let of_rows = u64::from(DAG_LOAD_ROW / 4) * DAG_ROWS as u64;
    assert!((of_rows..of_rows + 40).contains(&accesses), "{accesses} accesses");
}
