//! Configurations at the windows of NTs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use snic_domain::{Bandwidth, DagSpec, DagUid, NtConfiguration, NtNumber};
use snic_tables::registers::{
    CAPABILITIES, CAPABILITY_WINDOWS, COMMIT, NT_APPEND, NT_BEGIN, NT_DATA, NT_DATA_WORDS, NT_KEEP,
    NT_TAKE, TABLE_VERSION, WINDOW, WINDOW_SELECT,
};
use snic_tables::{
    CardCommand, CardReport, ConfigurationInForce, DagConfiguration, TableDelta, Ticket,
    UnconfiguredNt, WindowChanges, WindowErasure, WindowSlot, WindowWrite,
};

use super::super::text_words;
use super::{Bench, DEADLINES, one_row, programmed};

const AT: WindowSlot = WindowSlot { region: 2, slot: 1, nt: NtNumber(1) };

fn uid() -> DagUid {
    DagUid::new(3, 1).expect("it fits")
}

/// The configuration of an NT of the DAG in row 3, of so many bytes at least.
fn configuration(bytes: usize) -> DagConfiguration {
    let nt = ["nat".parse().expect("a label")];
    let mut spec = DagSpec::chain(&nt, Bandwidth::from_gbps(1));
    let json = format!(r#"{{"key":"{}"}}"#, "x".repeat(bytes));
    spec.nodes[0].configuration = Some(NtConfiguration::new(&json));
    DagConfiguration::of(uid(), &spec, |_| AT.nt).expect("it has one")
}

fn in_force(tag: u32) -> ConfigurationInForce {
    ConfigurationInForce { uid: uid().raw(), tag }
}

fn write(keeps: u32, configuration: &DagConfiguration) -> WindowChanges {
    let configuration = configuration.clone();
    let write = WindowWrite { at: AT, keeps: in_force(keeps), configuration };
    WindowChanges { writes: vec![write], erasures: Vec::new() }
}

fn erase(keeps: u32) -> WindowChanges {
    let erasure = WindowErasure { at: AT, keeps: in_force(keeps) };
    WindowChanges { writes: Vec::new(), erasures: vec![erasure] }
}

/// A card with windows, an NT in slot 1 of region 2, and nothing else.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.card.poke(CAPABILITIES, CAPABILITY_WINDOWS);
    bench.card.windows.filled(2, [1]);
    bench
}

fn program(bench: &mut Bench, ticket: u64, windows: WindowChanges) {
    let command = CardCommand::Program {
        ticket: Ticket(ticket),
        delta: one_row(3, ticket as u32 + 100),
        configurations: Vec::new(),
        windows,
        rates_only: false,
    };
    bench.session.submit(command, None);
}

/// Steps until the command is answered.
fn run(bench: &mut Bench) -> Vec<CardReport> {
    for _ in 0..10_000 {
        let reports = bench.step();
        if !reports.is_empty() {
            return reports;
        }
    }
    panic!("no answer");
}

/// Tags of the configurations that the NT holds.
fn held(bench: &Bench) -> Vec<u32> {
    bench.card.windows.held().into_iter().map(|held| held.tag).collect()
}

#[test]
fn an_nt_has_its_words_before_the_commit() {
    // One word, a piece to the word, and several of them.
    for bytes in [0, 4 * NT_DATA_WORDS - 14, 4 * NT_DATA_WORDS, 60_000] {
        let (mut bench, configuration) = (bench(), configuration(bytes));
        program(&mut bench, 1, write(0, &configuration));
        assert_eq!(run(&mut bench), [programmed(1, 6)]);
        let [held] = &bench.card.windows.held()[..] else { panic!("one is held") };
        let json = format!(r#"{{"key":"{}"}}"#, "x".repeat(bytes));
        assert_eq!(Ok(&held.words), text_words("nat", &json).as_ref());
        assert_eq!((held.uid, held.tag), (uid().raw(), configuration.tag()));
        let commit = bench.card.writes.iter().position(|(at, _)| *at < 0x200 && *at > 0x120);
        let data = bench
            .card
            .writes
            .iter()
            .rposition(|(at, _)| *at >= WINDOW + NT_DATA && *at < WINDOW + 0x1000);
        assert!(data < commit, "{data:?} {commit:?}");
    }
}

#[test]
fn the_one_in_force_stays_beside_the_next_until_it_is_forgotten() {
    let (mut bench, first, second) = (bench(), configuration(1), configuration(2));
    program(&mut bench, 1, write(0, &first));
    run(&mut bench);
    program(&mut bench, 2, write(first.tag(), &second));
    assert_eq!(run(&mut bench), [programmed(2, 7)]);
    let mut both = [first.tag(), second.tag()];
    both.sort_unstable();
    assert_eq!(held(&bench), both);
    program(&mut bench, 3, erase(second.tag()));
    assert_eq!(run(&mut bench), [programmed(3, 8)]);
    assert_eq!(held(&bench), [second.tag()]);
    program(&mut bench, 4, erase(0));
    run(&mut bench);
    assert_eq!(held(&bench), [0; 0]);
}

/// A daemon that ended between a write and its commit leaves one behind; the next write is not refused for it.
#[test]
fn what_an_ended_daemon_left_is_forgotten_with_the_next_write() {
    let (mut bench, first) = (bench(), configuration(1));
    program(&mut bench, 1, write(0, &first));
    run(&mut bench);
    bench.card.faults.refuse_commit = true;
    program(&mut bench, 2, write(first.tag(), &configuration(2)));
    run(&mut bench);
    bench.card.faults.refuse_commit = false;
    assert_eq!(held(&bench).len(), 2);
    let third = configuration(3);
    program(&mut bench, 3, write(first.tag(), &third));
    assert_eq!(run(&mut bench), [programmed(3, 7)]);
    assert!(held(&bench).contains(&first.tag()) && held(&bench).contains(&third.tag()));
    assert_eq!(held(&bench).len(), 2);
}

#[test]
fn an_nt_that_does_not_take_it_holds_up_nobody_else() {
    let breaks: [fn(&mut Bench); 6] = [
        |bench| bench.card.windows.emptied(2),
        |bench| bench.card.faults.window_refuses = Some(NT_KEEP),
        |bench| bench.card.faults.window_refuses = Some(NT_BEGIN),
        |bench| bench.card.faults.window_refuses = Some(NT_APPEND),
        |bench| bench.card.faults.window_refuses = Some(NT_TAKE),
        |bench| bench.session = super::Session::new(DEADLINES).encoding(|_, _| Err("no".into())),
    ];
    for (number, breaks) in breaks.into_iter().enumerate() {
        let mut bench = bench();
        breaks(&mut bench);
        program(&mut bench, 1, write(0, &configuration(1)));
        let lacks = vec![UnconfiguredNt { uid: uid().raw(), at: AT }];
        assert_eq!(run(&mut bench), [programmed_without(1, 6, lacks)], "{number}");
        assert_eq!((bench.card.peek(TABLE_VERSION), held(&bench).len()), (6, 0), "{number}");
        assert_eq!(bench.session.statistics().windows_refused, 1, "{number}");
    }
}

#[test]
fn a_busy_nt_is_waited_for_and_not_for_ever() {
    let mut bench = bench();
    bench.card.faults.window_busy = 2;
    let configuration = configuration(1);
    program(&mut bench, 1, write(0, &configuration));
    assert_eq!(bench.step(), []);
    assert!(!bench.session.is_ready(), "there is nothing to do but to wait");
    assert_eq!(run(&mut bench), [programmed(1, 6)]);
    assert_eq!(held(&bench), [configuration.tag()]);
    bench.card.faults.window_busy = u32::MAX;
    program(&mut bench, 2, erase(0));
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(2 * DEADLINES.commit.as_millis() as u64), [programmed(2, 7)]);
    assert_eq!(bench.session.statistics().windows_refused, 1);
}

/// Each DAG has its own patience: who is second is not given up for the first one's delay.
#[test]
fn two_dags_with_busy_nts_are_waited_for_one_after_the_other() {
    let mut bench = bench();
    bench.card.faults.window_busy = u32::MAX;
    let second = DagUid::new(4, 1).expect("it fits");
    let mut changes = write(0, &configuration(1));
    let mut other = changes.writes[0].clone();
    (other.configuration.uid, other.keeps.uid) = (second, second.raw());
    changes.writes.push(other);
    program(&mut bench, 1, changes);
    assert_eq!(bench.step(), []);
    let commit = DEADLINES.commit.as_millis() as u64;
    assert_eq!(bench.after_ms(2 * commit), [], "the first is given up, and the second begins");
    assert_eq!(bench.session.statistics().windows_refused, 1);
    assert_eq!(bench.after_ms(2 * commit - 1), []);
    let lacks = [uid(), second].map(|uid| UnconfiguredNt { uid: uid.raw(), at: AT });
    assert_eq!(bench.after_ms(1), [programmed_without(1, 6, lacks.to_vec())]);
}

#[test]
fn words_for_many_instances_are_made_once() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let mut bench = bench();
    bench.session = super::Session::new(DEADLINES).encoding(|nt, json| {
        MADE.fetch_add(1, Ordering::Relaxed);
        text_words(nt, json)
    });
    let mut changes = write(0, &configuration(1));
    let again = changes.writes[0].clone();
    changes.writes.extend([again.clone(), again]);
    let mut next = write(0, &configuration(2)).writes.remove(0);
    next.keeps = in_force(configuration(1).tag());
    changes.writes.push(next);
    program(&mut bench, 1, changes);
    assert_eq!(run(&mut bench), [programmed(1, 6)]);
    assert_eq!(MADE.load(Ordering::Relaxed), 2, "one for each configuration");
}

fn programmed_without(ticket: u64, version: u32, unconfigured: Vec<UnconfiguredNt>) -> CardReport {
    CardReport::Programmed { ticket: Ticket(ticket), result: Ok(version), unconfigured }
}

/// Another session may have shown another NT's window in between.
#[test]
fn the_window_is_chosen_in_each_step() {
    let mut bench = bench();
    bench.card.faults.window_busy = 1;
    let configuration = configuration(30_000);
    program(&mut bench, 1, write(0, &configuration));
    let mut reports = Vec::new();
    while reports.is_empty() {
        reports = bench.step();
        bench.card.windows.show(7);
        bench.now = bench.now + Duration::from_millis(1);
    }
    assert_eq!(reports, [programmed(1, 6)]);
    assert_eq!(held(&bench), [configuration.tag()]);
    assert!(bench.card.writes.iter().any(|(at, value)| *at == WINDOW_SELECT && *value == 0x201));
}

/// Its rows are there already, so nothing is committed.
#[test]
fn an_nt_is_asked_again_without_a_commit() {
    let (mut bench, configuration) = (bench(), configuration(1));
    bench.card.faults.window_refuses = Some(NT_TAKE);
    let refused = vec![UnconfiguredNt { uid: uid().raw(), at: AT }];
    program(&mut bench, 1, write(0, &configuration));
    assert_eq!(run(&mut bench), [programmed_without(1, 6, refused.clone())]);
    let again = |ticket| CardCommand::Program {
        ticket: Ticket(ticket),
        delta: TableDelta::default(),
        configurations: Vec::new(),
        windows: write(0, &configuration),
        rates_only: false,
    };
    bench.session.submit(again(2), None);
    assert_eq!(run(&mut bench), [programmed_without(2, 6, refused)]);
    assert_eq!(held(&bench), [0; 0]);
    bench.card.faults.window_refuses = None;
    bench.session.submit(again(3), None);
    assert_eq!(run(&mut bench), [programmed(3, 6)]);
    assert_eq!(held(&bench), [configuration.tag()]);
    assert_eq!(bench.card.writes.iter().filter(|(at, _)| *at == COMMIT).count(), 1);
}
