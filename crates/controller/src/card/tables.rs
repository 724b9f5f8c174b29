//! The tables of one card: as the card has them, as they should be, and the commit that is under way.
//!
//! ```text
//!            put, clear                begin                   ended: Ok
//!   clean ───────────────► dirty ───────────────► committing ────────────► clean
//!                            ▲                        │
//!                            └── adopt ◄── (read back) ◄── ended: Err, and a wait
//! ```
//!
//! Rows are written into the target; [`Tables::begin`] makes one commit of all that differs, and one
//! commit is under way at most. What follows from a commit is told when the card, read back, has it:
//! which placement each DAG whose rows changed has there, and whose rows are gone.

use std::collections::BTreeSet;

use snic_domain::{DagName, DagUid, OperationId, RegionId, Timestamp};
use snic_tables::{
    CardCommand, InstanceRow, ProgramFailure, RowCodec, RowKey, Table, TableDelta, TableImage,
    Ticket,
};

use crate::records::Placement;
use crate::rows::{self, DagColumns};

/// What follows when the card has the rows of the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Committed {
    /// DAGs whose rows changed, with the serial of the placement that they have there now.
    pub dags: Vec<(DagName, Option<u64>)>,
    /// Operations that waited for rows to be gone.
    pub removals: Vec<OperationId>,
}

/// What there is to do about the tables now.
#[derive(Debug, PartialEq)]
pub(crate) enum Due {
    /// Nothing: a commit is under way, or it is too early for the next one.
    Nothing,
    /// The card has all rows already: this follows at once.
    Committed(Committed),
    /// Rows differ: a commit of them is under way from now on.
    Commit {
        /// What to ask the card.
        command: CardCommand,
        /// DAGs whose rows change.
        dags: Vec<DagName>,
    },
}

/// How a commit ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Ended {
    /// It is not the one that is under way.
    Stale,
    /// The card has it.
    Committed(Committed),
    /// What the card has is not known: it has to be read back.
    Failed,
}

/// A commit under way.
#[derive(Debug, Clone)]
struct Commit {
    ticket: Ticket,
    delta: TableDelta,
    follows: Committed,
}

/// What was done since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableFigures {
    pub commits: u64,
    pub words_written: u64,
}

/// The tables of one card.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The card's active bank, as read back.
    active: TableImage,
    /// What it should be.
    target: TableImage,
    version: u32,
    /// Rows in which they may differ.
    dirty: BTreeSet<RowKey>,
    /// DAGs whose rows changed since the last commit was begun.
    changed: BTreeSet<DagName>,
    /// Operations that wait for rows to be gone, in no commit yet.
    removals: Vec<OperationId>,
    commit: Option<Commit>,
    /// Commits that failed in a row.
    failures: u32,
    /// No commit before.
    not_before: Timestamp,
    last_error: Option<String>,
    figures: TableFigures,
}

impl Tables {
    /// The card's tables, as read back.
    pub const fn active(&self) -> &TableImage {
        &self.active
    }

    /// What they should be.
    pub const fn target(&self) -> &TableImage {
        &self.target
    }

    /// Version of the active bank.
    pub const fn version(&self) -> u32 {
        self.version
    }

    pub const fn figures(&self) -> TableFigures {
        self.figures
    }

    /// Why the last commit failed, where none succeeded since.
    pub fn error(&self) -> Option<&str> {
        self.last_error.as_deref().filter(|_| self.failures > 0)
    }

    /// Writes a row into the target.
    pub fn put<R: RowCodec>(&mut self, row: u16, columns: &R) {
        let key = self.target.set(row, columns).expect("rows are given out by the tables' sizes");
        self.dirty.insert(key);
    }

    /// Empties rows of the target.
    pub fn clear(&mut self, keys: impl IntoIterator<Item = RowKey>) {
        for key in keys {
            self.target.clear(key).expect("rows are given out by the tables' sizes");
            self.dirty.insert(key);
        }
    }

    /// Empties the target's rows of a region.
    pub fn clear_region(&mut self, region: RegionId) {
        let row = u16::from(region.0);
        self.clear([Table::Region, Table::Credit].map(|table| RowKey { table, row }));
    }

    /// Writes the rows of a DAG's placement into the target.
    pub fn put_dag(&mut self, name: &DagName, columns: &DagColumns, placement: &Placement) {
        rows::encode(&mut self.target, columns, placement)
            .expect("the row pools only give out rows that the tables have");
        self.dirty.extend(rows::keys(columns.uid, placement));
        self.changed.insert(name.clone());
    }

    /// Empties the rows of a DAG's placement in the target.
    pub fn clear_dag(&mut self, name: &DagName, uid: DagUid, placement: &Placement) {
        self.clear(rows::keys(uid, placement));
        self.changed.insert(name.clone());
    }

    /// A DAG has to be told of with the next commit, though its rows may be as they were.
    pub fn touch(&mut self, name: &DagName) {
        self.changed.insert(name.clone());
    }

    /// An operation ends when the card has no row any more that the target has not.
    pub fn wait_for_removal(&mut self, operation: OperationId) {
        self.removals.push(operation);
    }

    /// Whether rows of a DAG are on their way to the card, or to be: where they lead is not known.
    pub fn is_changing(&self, name: &DagName) -> bool {
        let mut under_way = self.commit.iter().flat_map(|commit| &commit.follows.dags);
        self.changed.contains(name) || under_way.any(|(dag, _)| dag == name)
    }

    /// Whether a commit is under way.
    pub const fn is_committing(&self) -> bool {
        self.commit.is_some()
    }

    /// The rows of a table that the commit under way writes.
    pub fn under_way(&self, table: Table) -> BTreeSet<u16> {
        let rows = self.commit.iter().flat_map(|commit| commit.delta.rows());
        rows.filter(|(key, _)| key.table == table).map(|(key, _)| key.row).collect()
    }

    /// Whether any row of a DAG's placement may differ from the card's.
    pub fn differs(&self, mut keys: impl Iterator<Item = RowKey>) -> bool {
        keys.any(|key| self.dirty.contains(&key))
    }

    /// Begins a commit of all that differs, if none is under way and it is time for it. `serial_of`
    /// says which placement of a DAG the target has.
    pub fn begin(
        &mut self,
        now: Timestamp,
        new_ticket: impl FnOnce() -> Ticket,
        serial_of: impl Fn(&DagName) -> Option<u64>,
    ) -> Due {
        if self.commit.is_some() || self.not_before > now {
            return Due::Nothing;
        }
        let delta = self.active.delta_of_rows(&self.target, std::mem::take(&mut self.dirty));
        let changed = std::mem::take(&mut self.changed).into_iter();
        let follows = Committed {
            dags: changed.map(|name| (name.clone(), serial_of(&name))).collect(),
            removals: std::mem::take(&mut self.removals),
        };
        if delta.is_empty() {
            return Due::Committed(follows);
        }
        let ticket = new_ticket();
        let dags = follows.dags.iter().map(|(name, _)| name.clone()).collect();
        self.commit = Some(Commit { ticket, delta: delta.clone(), follows });
        Due::Commit { command: CardCommand::Program { ticket, delta }, dags }
    }

    /// The card answered to a commit; `wait` says how long to wait after so many failures in a row.
    pub fn ended(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        result: Result<u32, ProgramFailure>,
        wait: impl Fn(u32) -> std::time::Duration,
    ) -> Ended {
        let Some(commit) = self.commit.take_if(|commit| commit.ticket == ticket) else {
            return Ended::Stale;
        };
        match result {
            Ok(version) => {
                self.version = version;
                self.figures.commits += 1;
                self.figures.words_written += commit.delta.words() as u64;
                self.failures = 0;
                self.active
                    .apply(&commit.delta)
                    .expect("the delta was made from this image's tables");
                Ended::Committed(commit.follows)
            }
            Err(failure) => {
                self.failures += 1;
                self.not_before = now + wait(self.failures);
                self.last_error = Some(failure.to_string());
                self.take_back(commit);
                Ended::Failed
            }
        }
    }

    /// What was asked of the card is not answered any more.
    pub fn forget(&mut self) {
        if let Some(commit) = self.commit.take() {
            self.take_back(commit);
        }
    }

    /// Whether the card has the rows of a commit is not known.
    fn take_back(&mut self, commit: Commit) {
        self.dirty.extend(commit.delta.rows().map(|(key, _)| key));
        self.changed.extend(commit.follows.dags.into_iter().map(|(name, _)| name));
        self.removals.extend(commit.follows.removals);
    }

    /// The card was read back. The target begins empty: what should be there is written next, then
    /// [`Tables::compare`] is due.
    pub fn adopt(&mut self, version: u32, active: TableImage) {
        self.version = version;
        self.active = active;
        self.target = TableImage::default();
    }

    /// Compares all rows: nothing that is right already is written again, and no DAG is told of but
    /// those of [`Tables::touch`].
    pub fn compare(&mut self) {
        self.dirty = self.active.delta_to(&self.target).rows().map(|(key, _)| key).collect();
        self.changed.clear();
    }

    /// Which regions packets may be sent to: by the active bank, by a commit under way, and by the rows
    /// that come next; a bit for each. Time O(instance rows).
    pub fn routed(&self) -> u32 {
        let mut regions = 0u32;
        let mut mark = |row: Option<InstanceRow>| {
            if let Some(row) = row {
                regions |= 1u32.checked_shl(row.region.into()).unwrap_or(0);
            }
        };
        for row in 0..Table::Instance.rows() as u16 {
            mark(self.active.get(row));
            mark(self.target.get(row));
        }
        let under_way = self.commit.iter().flat_map(|commit| commit.delta.rows());
        for (_, words) in under_way.filter(|(key, _)| key.table == Table::Instance) {
            mark(RowCodec::decode(words));
        }
        regions
    }

    /// When a commit is due that waits for nothing but its time.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let is_clean = self.dirty.is_empty() && self.changed.is_empty() && self.removals.is_empty();
        (self.commit.is_none() && !is_clean).then_some(self.not_before)
    }

    /// Every row in which the target differs from what the card has, or will have when the commit under
    /// way ends well, is noted. Time O(rows).
    pub fn check(&self) -> Result<(), String> {
        let differ = match &self.commit {
            None => self.active.delta_to(&self.target),
            Some(commit) => {
                let mut after = self.active.clone();
                after.apply(&commit.delta).map_err(|error| error.to_string())?;
                after.delta_to(&self.target)
            }
        };
        match differ.rows().find(|(key, _)| !self.dirty.contains(key)) {
            Some((key, _)) => Err(format!("row {key:?} differs from the card's and is not noted")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
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
        RateLimiterRow { rate_kbps: rate, burst_bytes: 1, promised_kbps: 1, weight: 1 }
    }

    fn rate(tables: &TableImage, row: u16) -> Option<u32> {
        tables.get::<RateLimiterRow>(row).map(|row| row.rate_kbps)
    }

    struct World {
        tables: Tables,
        card: Card,
        /// What the target should hold.
        wanted: [Option<u32>; 4],
        now: Timestamp,
        tickets: u64,
        /// By DAG, one a row: the rate that was told as committed last.
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
                Due::Nothing => return false,
                Due::Committed(follows) => self.follow(follows),
                Due::Commit { command, .. } => {
                    let CardCommand::Program { ticket, delta } = command else {
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
            let result = if well {
                Ok(self.card.version)
            } else {
                Err(ProgramFailure::ReadBack { rows: 1 })
            };
            let wait = |failures: u32| Duration::from_secs(failures.into());
            assert_eq!(self.tables.ended(self.now, Ticket(0), result.clone(), wait), Ended::Stale);
            match self.tables.ended(self.now, ticket, result, wait) {
                Ended::Committed(follows) => self.follow(follows),
                Ended::Failed => self.read_back(),
                Ended::Stale => panic!("it was under way"),
            }
        }

        fn read_back(&mut self) {
            self.card.asked = None;
            self.tables.forget();
            self.tables.adopt(self.card.version, self.card.tables.clone());
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
        let Due::Committed(follows) = due else { panic!("the card has all rows: {due:?}") };
        assert_eq!(follows.removals, [operation]);
    }
}
