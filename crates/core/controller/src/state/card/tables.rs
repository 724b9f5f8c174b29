//! The tables of one card: active, target, and the commit under way.
//!
//! ```text
//!            put, clear                begin                   ended: Ok
//!   clean ───────────────► dirty ───────────────► committing ────────────► clean
//!                            ▲                        │
//!                            └── adopt ◄── (read back) ◄── ended: Err, and a wait
//! ```
//!
//! Rows are written into the target; [`Tables::begin`] makes one commit of all differences, and at most one
//! commit is under way. When the card, read back, has a commit, the caller learns
//! which placement each changed DAG has there, and whose rows are gone.

mod refused;

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{DagName, DagUid, OperationId, RegionId, Timestamp};
use snic_tables::{
    CardCommand, ConfigurationWay, DagConfiguration, DagRow, InstancePlace, InstanceRow,
    ProgramFailure, RowCodec, RowKey, Table, TableDelta, TableImage, Ticket, UnconfiguredNt,
    WindowChanges, WindowSlot,
};

use crate::decide::rows::{self, DagColumns};
use crate::store::records::Placement;
use refused::{DueDag, RefusedWindows};

/// Consequences once the card has the rows of the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Committed {
    /// DAGs whose rows changed, with the serial of the placement that they have there now.
    pub dags: Vec<(DagName, Option<u64>)>,
    /// Operations that waited for rows to be gone.
    pub removals: Vec<OperationId>,
    /// NTs whose windows were written, or that packets of a DAG use no more.
    pub windows: Vec<WindowEnd>,
}

/// End of what a commit did at the window of an NT, for a DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowEnd {
    /// UID of the DAG.
    pub uid: u32,
    pub at: WindowSlot,
    /// Whether the NT drops the DAG's packets, for it did not take the configuration.
    pub is_lacking: bool,
}

/// Next step for the tables.
#[derive(Debug, PartialEq)]
pub(crate) enum TableStep {
    /// Nothing: a commit is under way, or it is too early for the next one.
    Nothing,
    /// The card has all rows already: this follows at once.
    Committed(Committed),
    /// Rows differ: a commit of them is under way from now on.
    Commit {
        /// Command to the card.
        command: CardCommand,
        /// DAGs whose rows change.
        dags: Vec<DagName>,
    },
}

/// End of a commit.
#[derive(Debug, PartialEq)]
pub(crate) enum CommitEnd {
    /// It is not the one that is under way.
    Stale,
    /// The card has it.
    Committed(Committed),
    /// The card's tables are unknown: they have to be read back.
    Failed,
}

/// A commit under way.
#[derive(Debug, Clone)]
struct Commit {
    ticket: Ticket,
    delta: TableDelta,
    follows: Committed,
    /// Rows of DAGs whose NTs were told by their windows.
    told: BTreeSet<u16>,
}

/// Counts since the daemon started.
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
    target: TableImage,
    /// Configurations that rows of DAGs of the target name, by row.
    configurations: BTreeMap<u16, (DagName, DagConfiguration)>,
    refused: RefusedWindows,
    /// Way in which NTs take them, as the card said when it was last asked.
    way: Option<ConfigurationWay>,
    /// Rows of DAGs whose placement changed since the last commit was begun: their NTs may have to be told.
    placed: BTreeSet<u16>,
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
        let row = columns.uid.row();
        self.placed.insert(row);
        match &columns.configuration {
            Some(configuration) => {
                self.configurations.insert(row, (name.clone(), configuration.clone()));
            }
            None => drop(self.configurations.remove(&row)),
        }
        self.changed.insert(name.clone());
    }

    /// Empties the rows of a DAG's placement in the target.
    pub fn clear_dag(&mut self, name: &DagName, uid: DagUid, placement: &Placement) {
        self.clear(rows::keys(uid, placement));
        self.configurations.remove(&uid.row());
        self.placed.insert(uid.row());
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
    ) -> TableStep {
        if self.commit.is_some() || self.not_before > now {
            return TableStep::Nothing;
        }
        // What to write is found now, by comparing the rows that may differ, and not noted while they change: a row that
        // was changed and changed back costs no write. Where nothing is left to write there is no command, and what
        // waits for the commit goes on at once; sent to the card, an empty commit would only cost a round trip.
        let delta = self.active.delta_of_rows(&self.target, std::mem::take(&mut self.dirty));
        let changed = std::mem::take(&mut self.changed).into_iter();
        let mut follows = Committed {
            dags: changed.map(|name| (name.clone(), serial_of(&name))).collect(),
            removals: std::mem::take(&mut self.removals),
            windows: Vec::new(),
        };
        let told = std::mem::take(&mut self.placed);
        let mut windows = self.window_changes(&told);
        for due in self.refused.take_due(now) {
            let asked = self.ask_again(&due, &mut windows);
            if !asked {
                self.refused.remove(now, due.uid);
            } else if !follows.dags.iter().any(|(name, _)| *name == due.name) {
                follows.dags.push((due.name.clone(), serial_of(&due.name)));
            }
        }
        if delta.is_empty() && windows.writes.is_empty() {
            return TableStep::Committed(follows);
        }
        let ticket = new_ticket();
        // A rate that comes with a DAG's new promise is the DAG's, and has to be stored first.
        let rates_only = follows == Committed::default()
            && delta.rows().all(|(key, _)| key.table == Table::RateLimiter);
        let dags = follows.dags.iter().map(|(name, _)| name.clone()).collect();
        let written = windows.writes.iter().map(|one| (one.configuration.uid.raw(), one.at));
        let left = windows.erasures.iter().filter(|one| one.keeps.tag == 0);
        let changed = written.chain(left.map(|one| (one.keeps.uid, one.at)));
        let follows = Committed {
            windows: changed.map(|(uid, at)| WindowEnd { uid, at, is_lacking: false }).collect(),
            ..follows
        };
        self.commit = Some(Commit { ticket, delta: delta.clone(), follows, told });
        let configurations = match self.way {
            Some(ConfigurationWay::Shell) => self.configurations_of(&delta),
            Some(ConfigurationWay::Windows) | None => Vec::new(),
        };
        let command = CardCommand::Program { ticket, delta, configurations, windows, rates_only };
        TableStep::Commit { command, dags }
    }

    /// Changes at the windows of NTs that go with the next commit, where these take configurations so.
    fn window_changes(&self, rows: &BTreeSet<u16>) -> WindowChanges {
        let mut changes = WindowChanges::default();
        if self.way == Some(ConfigurationWay::Windows) {
            for &row in rows {
                let configuration = self.configurations.get(&row).map(|(_, of)| of);
                changes.add((&self.active, &self.target), row, configuration);
            }
        }
        changes
    }

    /// Adds a DAG's configuration for NTs that did not take it before; says whether its rows are still as they were then.
    fn ask_again(&self, due: &DueDag, windows: &mut WindowChanges) -> bool {
        let row = due.uid.row();
        let same = |(_, of): &&(DagName, DagConfiguration)| of.uid == due.uid;
        let configuration = self.configurations.get(&row).filter(same);
        configuration.is_some_and(|(_, configuration)| {
            windows.repeat((&self.active, &self.target), configuration, &due.at)
        })
    }

    /// NTs of a DAG in these regions and slots did not take its configuration, as is known from before the card was read back.
    pub fn lacks(&mut self, (name, uid): (&DagName, DagUid), at: BTreeSet<(u8, u8)>) {
        self.refused.restore((uid, name), at);
    }

    /// Notes what NTs said to a commit.
    fn note_refusals(&mut self, now: Timestamp, windows: &[WindowEnd]) {
        let mut by_dag: BTreeMap<u32, Vec<(WindowSlot, bool)>> = BTreeMap::new();
        for end in windows {
            by_dag.entry(end.uid).or_default().push((end.at, end.is_lacking));
        }
        for (uid, ends) in by_dag {
            let uid = DagUid::from_raw(uid);
            let of = self.configurations.get(&uid.row());
            if let Some((name, _)) = of.filter(|(_, configuration)| configuration.uid == uid) {
                self.refused.ended(now, (uid, name), ends.into_iter());
            }
        }
    }

    /// The configurations that rows of a delta name and the card does not hold.
    fn configurations_of(&self, delta: &TableDelta) -> Vec<DagConfiguration> {
        let named = |row: Option<DagRow>| row.map(|row| (row.uid, row.configuration));
        let dags = delta.rows().filter(|(key, _)| key.table == Table::Dag);
        let new = dags
            .filter(|(key, words)| named(DagRow::decode(words)) != named(self.active.get(key.row)));
        new.filter_map(|(key, _)| Some(self.configurations.get(&key.row)?.1.clone())).collect()
    }

    /// The card answered to a commit; `wait` says how long to wait after this many failures in a row.
    pub fn ended(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        result: Result<(u32, Vec<UnconfiguredNt>), ProgramFailure>,
        wait: impl Fn(u32) -> std::time::Duration,
    ) -> CommitEnd {
        let Some(mut commit) = self.commit.take_if(|commit| commit.ticket == ticket) else {
            return CommitEnd::Stale;
        };
        match result {
            Ok((version, unconfigured)) => {
                let lacking: BTreeSet<UnconfiguredNt> = unconfigured.into_iter().collect();
                for end in &mut commit.follows.windows {
                    end.is_lacking = lacking.contains(&UnconfiguredNt { uid: end.uid, at: end.at });
                }
                self.note_refusals(now, &commit.follows.windows);
                self.version = version;
                self.figures.commits += 1;
                self.figures.words_written += commit.delta.words() as u64;
                self.failures = 0;
                self.active
                    .apply(&commit.delta)
                    .expect("the delta was made from this image's tables");
                CommitEnd::Committed(commit.follows)
            }
            Err(failure) => {
                self.failures += 1;
                self.not_before = now + wait(self.failures);
                self.last_error = Some(failure.to_string());
                self.take_back(commit);
                CommitEnd::Failed
            }
        }
    }

    /// Forgets commands under way: they are not answered any more.
    pub fn forget(&mut self) {
        if let Some(commit) = self.commit.take() {
            self.take_back(commit);
        }
    }

    /// Whether the card has the rows of a commit is not known.
    fn take_back(&mut self, commit: Commit) {
        // The commit may have been carried out or not. Its rows count as different again, so that the next commit
        // writes them in either case: a row that the card has already costs a few words, one that it lacks would lead
        // packets astray.
        self.dirty.extend(commit.delta.rows().map(|(key, _)| key));
        self.placed.extend(commit.told);
        self.changed.extend(commit.follows.dags.into_iter().map(|(name, _)| name));
        self.removals.extend(commit.follows.removals);
    }

    /// The card was read back. The target begins empty: what should be there is written next, then
    /// [`Tables::compare`] is due.
    pub fn adopt(&mut self, version: u32, active: TableImage, way: Option<ConfigurationWay>) {
        self.version = version;
        self.active = active;
        self.way = way;
        self.placed.clear();
        self.target = TableImage::default();
        self.configurations.clear();
        self.refused.clear();
    }

    /// Compares all rows: nothing that is right already is written again, and no DAG is told of but
    /// those of [`Tables::touch`].
    pub fn compare(&mut self) {
        self.dirty = self.active.delta_to(&self.target).rows().map(|(key, _)| key).collect();
        self.changed.clear();
    }

    /// Way in which NTs take configurations; `None` where they take none.
    pub const fn configuration_way(&self) -> Option<ConfigurationWay> {
        self.way
    }

    /// Regions that packets may be sent to: by the active bank, by a commit under way, and by the rows
    /// that come next; a bit for each. Time O(instance rows).
    pub fn routed(&self) -> u32 {
        // A region may be loaded only while no packet can be sent to it. Three sets of rows can send one: those that
        // packets follow now, those of a commit under way, which may take effect at any moment, and those of the
        // target, which are written next. A region that only one of them names is still in use.
        let mut regions = 0u32;
        let mut mark = |row: Option<InstanceRow>| {
            if let Some(InstancePlace::Region { region, .. }) = row.map(|row| row.place) {
                regions |= 1u32.checked_shl(region.into()).unwrap_or(0);
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
        let next = (!is_clean).then_some(self.not_before);
        let again = self.refused.next().map(|next| next.max(self.not_before));
        next.into_iter().chain(again).min().filter(|_| self.commit.is_none())
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
mod tests;
