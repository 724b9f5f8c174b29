//! The tables of a card against a card that commits well or badly.

use std::time::Duration;

use proptest::prelude::*;
use snic_tables::RateLimiterRow;

use super::*;
use crate::fixtures::name;

/// The card's end: tables, and what it is asked.
#[derive(Default)]
struct Card {
    tables: TableImage,
    version: u32,
    asked: Option<(Ticket, TableDelta)>,
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Put(u16, u32),
    Clear(u16),
    Begin,
    /// The card carries the commit out, and says so or that it failed.
    Answer {
        well: bool,
    },
    /// The card is lost and read back.
    Lose,
    Wait,
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        4 => (0u16..4, 1u32..5).prop_map(|(row, rate)| Verb::Put(row, rate)),
        2 => (0u16..4).prop_map(Verb::Clear),
        4 => Just(Verb::Begin),
        3 => any::<bool>().prop_map(|well| Verb::Answer { well }),
        1 => Just(Verb::Lose),
        1 => Just(Verb::Wait),
    ]
}

fn row(rate: u32) -> RateLimiterRow {
    RateLimiterRow { rate_kbps: rate, burst_bytes: 1, promised_kbps: 1, packet_bytes: 0, weight: 1 }
}

fn rate(tables: &TableImage, row: u16) -> Option<u32> {
    tables.get::<RateLimiterRow>(row).map(|row| row.rate_kbps)
}

struct World {
    tables: Tables,
    card: Card,
    wanted: [Option<u32>; 4],
    now: Timestamp,
    tickets: u64,
    /// Rate that was reported as committed last, for each DAG, one a row.
    told: [Option<u64>; 4],
}

impl World {
    fn new() -> Self {
        let (tables, card) = (Tables::default(), Card::default());
        let now = Timestamp::from_nanos(1);
        Self { tables, card, wanted: [None; 4], now, tickets: 0, told: [None; 4] }
    }

    fn follow(&mut self, follows: Committed) {
        for (dag, serial) in follows.dags {
            let at: usize = dag.dag.as_str()[1..].parse().expect("a number");
            self.told[at] = serial;
        }
    }

    fn begin(&mut self) -> bool {
        let (wanted, tickets) = (self.wanted, &mut self.tickets);
        let new_ticket = || {
            *tickets += 1;
            Ticket(*tickets)
        };
        let serial_of = |dag: &DagName| {
            let at: usize = dag.dag.as_str()[1..].parse().expect("a number");
            wanted[at].map(u64::from)
        };
        match self.tables.begin(self.now, new_ticket, serial_of) {
            TableStep::Nothing => return false,
            TableStep::Committed(follows) => self.follow(follows),
            TableStep::Commit { command, .. } => {
                let CardCommand::Program { ticket, delta, .. } = command else {
                    panic!("{command:?}")
                };
                assert!(self.card.asked.is_none() && !delta.is_empty());
                self.card.asked = Some((ticket, delta));
            }
        }
        true
    }

    fn answer(&mut self, well: bool) {
        let Some((ticket, delta)) = self.card.asked.take() else { return };
        self.card.tables.apply(&delta).expect("rows that there are");
        self.card.version += 1;
        let result = match well {
            true => Ok((self.card.version, Vec::new())),
            false => Err(ProgramFailure::ReadBack { rows: 1 }),
        };
        let wait = |failures: u32| Duration::from_secs(failures.into());
        assert_eq!(self.tables.ended(self.now, Ticket(0), result.clone(), wait), CommitEnd::Stale);
        match self.tables.ended(self.now, ticket, result, wait) {
            CommitEnd::Committed(follows) => self.follow(follows),
            CommitEnd::Failed => self.read_back(),
            CommitEnd::Stale => panic!("it was under way"),
        }
    }

    fn read_back(&mut self) {
        self.card.asked = None;
        self.tables.forget();
        self.tables.adopt(self.card.version, self.card.tables.clone(), None);
        for (at, rate) in (0u16..).zip(self.wanted) {
            if let Some(rate) = rate {
                self.tables.put(at, &row(rate));
            }
        }
        self.tables.compare();
        (0..4).for_each(|at| self.tables.touch(&name(&format!("d{at}"))));
    }

    fn carry_out(&mut self, verb: Verb) {
        match verb {
            Verb::Put(at, rate) => {
                self.tables.put(at, &row(rate));
                self.tables.touch(&name(&format!("d{at}")));
                self.wanted[usize::from(at)] = Some(rate);
            }
            Verb::Clear(at) => {
                self.tables.clear([RowKey { table: Table::RateLimiter, row: at }]);
                self.tables.touch(&name(&format!("d{at}")));
                self.wanted[usize::from(at)] = None;
            }
            Verb::Begin => {
                self.begin();
            }
            Verb::Answer { well } => self.answer(well),
            Verb::Lose => self.read_back(),
            Verb::Wait => self.now = self.now + Duration::from_secs(60),
        }
    }
}

proptest! {
    /// Whatever happens in whatever order: every difference is noted, and when it is quiet the card
    /// holds what was wanted last, and that is what was told of each DAG.
    #[test]
    fn the_card_gets_what_is_wanted(verbs in prop::collection::vec(verb(), 0..60)) {
        let mut world = World::new();
        for verb in verbs {
            world.carry_out(verb);
            prop_assert_eq!(world.tables.check(), Ok(()));
            for at in 0u16..4 {
                prop_assert_eq!(rate(world.tables.target(), at), world.wanted[usize::from(at)]);
            }
        }
        for _ in 0..4 {
            world.carry_out(Verb::Wait);
            world.begin();
            world.answer(true);
        }
        prop_assert_eq!(world.tables.next_deadline(), None);
        for at in 0u16..4 {
            let wanted = world.wanted[usize::from(at)];
            prop_assert_eq!(rate(&world.card.tables, at), wanted);
            prop_assert_eq!(world.told[usize::from(at)], wanted.map(u64::from));
        }
        prop_assert_eq!(world.tables.version(), world.card.version);
    }
}

#[test]
fn a_commit_that_failed_is_tried_again_later_and_later() {
    let mut world = World::new();
    world.carry_out(Verb::Put(0, 1));
    for failures in 1..4 {
        assert!(world.begin());
        world.answer(false);
        assert!(world.tables.error().is_some());
        // What failed took effect all the same, so another row is needed for the next commit.
        world.carry_out(Verb::Put(0, failures + 1));
        let due = world.now + Duration::from_secs(failures.into());
        assert_eq!(world.tables.next_deadline(), Some(due));
        assert!(!world.begin(), "it is too early");
        world.now = due;
    }
    assert!(world.begin());
    world.answer(true);
    assert_eq!((world.tables.error(), world.tables.figures().commits), (None, 1));
}

#[test]
fn operations_wait_for_their_commit_even_when_it_fails() {
    let mut world = World::new();
    let operation = OperationId::new("op-1").expect("a label");
    world.carry_out(Verb::Put(0, 1));
    world.tables.wait_for_removal(operation.clone());
    assert!(world.begin());
    world.answer(false);
    world.now = world.now + Duration::from_secs(9);
    let due = world.tables.begin(world.now, || Ticket(9), |_| None);
    let TableStep::Committed(follows) = due else { panic!("the card has all rows: {due:?}") };
    assert_eq!(follows.removals, [operation]);
}
