//! Cards that go away, and cards that are other ones.

use snic_domain::{Digest, ReportedChain};
use snic_tables::registers::{BOOT_ID, LAYOUT, LOAD_IDLE, LOAD_STATUS, MAGIC, REGION_COUNT};
use snic_tables::{CardCommand, CardReport, Ticket};

use super::{Bench, one_row, programmed, read_back};

fn submit_all(bench: &mut Bench) {
    bench.session.submit(read_back(Ticket(1)), None);
    bench.program(2, one_row(3, 100));
    bench.load(3, 1, b"bits");
    bench.session.submit(CardCommand::Sample { ticket: Ticket(4) }, None);
}

fn lost_reason(reports: &[CardReport]) -> &str {
    match reports {
        [.., CardReport::Lost { reason }] => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_loss_at_any_access_ends_everything_with_one_report() {
    let mut bench = Bench::new();
    submit_all(&mut bench);
    bench.step();
    bench.after_ms(5);
    assert!(bench.session.is_idle());
    let all = bench.card.accesses;
    // The rows of the DAG counters are read one by one; a part of them stands for all.
    for access in (0..all).filter(|n| n % 101 == 0 || *n < 90 || all - n < 90) {
        let mut bench = Bench::new();
        bench.card.faults.lost_after = Some(access);
        submit_all(&mut bench);
        let mut reports = bench.step();
        reports.extend(bench.after_ms(5));
        assert_eq!(lost_reason(&reports), "pulled out", "at access {access}");
        let losses = reports.iter().filter(|r| matches!(r, CardReport::Lost { .. })).count();
        assert_eq!(losses, 1, "at access {access}");
        assert!(bench.session.is_idle(), "at access {access}");
    }
}

#[test]
fn after_a_loss_only_a_read_back_is_listened_to() {
    let mut bench = Bench::new();
    bench.card.faults.lost_after = Some(0);
    bench.program(1, one_row(3, 100));
    assert_eq!(lost_reason(&bench.step()), "pulled out");
    bench.card.faults.lost_after = None;
    let accesses = bench.card.accesses;
    bench.program(2, one_row(3, 100));
    bench.load(3, 1, b"bits");
    assert!(bench.session.is_idle());
    assert_eq!(bench.after_ms(1), []);
    assert_eq!(bench.card.accesses, accesses, "not even polled");

    bench.session.submit(read_back(Ticket(4)), None);
    bench.program(5, one_row(3, 100));
    let reports = bench.after_ms(1);
    assert!(matches!(reports[0], CardReport::ReadBack { ticket: Ticket(4), .. }), "{reports:?}");
    assert_eq!(reports[1..], [programmed(5, 6)]);
}

#[test]
fn an_idle_session_reports_a_loss_once() {
    let mut bench = Bench::new();
    bench.card.faults.lost_after = Some(0);
    assert_eq!(lost_reason(&bench.step()), "pulled out");
    assert_eq!(bench.after_ms(1), []);
}

#[test]
fn a_card_that_restarted_is_lost_whatever_was_asked() {
    let commands = [
        CardCommand::Program {
            ticket: Ticket(1),
            delta: one_row(3, 100),
            configurations: Vec::new(),
            windows: Default::default(),
            rates_only: false,
        },
        CardCommand::Sample { ticket: Ticket(1) },
        CardCommand::Load {
            ticket: Ticket(1),
            region: snic_domain::RegionId(0),
            digest: Digest::of(b""),
            chain: ReportedChain::default(),
        },
    ];
    for command in commands {
        let mut bench = Bench::adopted();
        bench.card.poke(BOOT_ID, 78);
        bench.session.submit(command, None);
        let reports = bench.step();
        assert!(lost_reason(&reports).contains("0x0000004d"), "{reports:?}");
        assert_eq!(bench.card.writes, []);
        bench.session.submit(read_back(Ticket(2)), None);
        let reports = bench.step();
        assert!(matches!(reports[..], [CardReport::ReadBack { .. }]), "{reports:?}");
    }
}

#[test]
fn a_snapshot_is_of_one_card_and_not_of_two() {
    let mut bench = Bench::adopted();
    let before = bench.card.accesses;
    bench.session.submit(read_back(Ticket(1)), None);
    assert!(matches!(bench.step()[..], [CardReport::ReadBack { .. }]));
    let all = bench.card.accesses - before;
    // The session looks which card it is, then the read-back begins again: mark, map, whether it has a boot id, and which.
    for access in 7..=all {
        let mut bench = Bench::adopted();
        bench.card.faults.restarts_at = Some(bench.card.accesses + access);
        bench.session.submit(read_back(Ticket(1)), None);
        let reports = bench.step();
        assert!(lost_reason(&reports).contains("restarted"), "at access {access}: {reports:?}");
    }
}

#[test]
fn buffers_of_a_lost_card_are_forgotten() {
    let mut bench = Bench::adopted();
    (bench.card.faults.load_hangs, bench.card.faults.ignores_resets) = (true, true);
    bench.load(1, 1, b"bits");
    assert_eq!(bench.step(), []);
    assert!(matches!(bench.after_ms(100)[..], [CardReport::Loaded { result: Err(_), .. }]));
    bench.card.poke(BOOT_ID, 78);
    bench.card.poke(LOAD_STATUS, LOAD_IDLE);
    bench.session.submit(CardCommand::Sample { ticket: Ticket(2) }, None);
    assert!(lost_reason(&bench.step()).contains("restarted"));
    bench.session.submit(read_back(Ticket(3)), None);
    assert!(matches!(bench.step()[..], [CardReport::ReadBack { .. }]));
    assert_eq!(bench.card.buffers.len(), 1, "the address may be somebody else's by now");
}

#[test]
fn a_restart_during_a_load_is_a_loss() {
    let mut bench = Bench::adopted();
    bench.load(1, 1, b"bits");
    assert_eq!(bench.step(), []);
    bench.card.poke(BOOT_ID, 78);
    assert!(lost_reason(&bench.after_ms(1)).contains("restarted"));
    // The same without a new boot id: the controller's registers were cleared.
    let mut bench = Bench::adopted();
    bench.load(1, 1, b"bits");
    assert_eq!(bench.step(), []);
    bench.card.poke(LOAD_STATUS, LOAD_IDLE);
    assert!(lost_reason(&bench.after_ms(1)).contains("forgot"));
}

#[test]
fn another_device_or_another_map_is_not_adopted() {
    for (register, value, text) in [
        (MAGIC, 0xffff_ffff, "0xffffffff"),
        (LAYOUT, 1, "0x00000001"),
        (REGION_COUNT, 33, "33 regions"),
    ] {
        let mut bench = Bench::new();
        bench.card.poke(register, value);
        bench.session.submit(read_back(Ticket(1)), None);
        let reports = bench.step();
        assert!(lost_reason(&reports).contains(text), "{reports:?}");
    }
}
