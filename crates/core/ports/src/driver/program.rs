//! Programming tables.
//!
//! The order, and why:
//! 1. No commit under way: the card is copying rows into the shadow bank until then, and packets
//!    still read it.
//! 2. The version is the one this session left: rows are differences, and a difference to other
//!    tables would make a mix.
//! 3. The configurations that rows of DAGs name and the card does not hold: it puts them in force with
//!    the commit. One that it does not take ends the step before anything is changed. Where NTs take them by their windows,
//!    each of them keeps what is in force beside what comes. An NT may be a tenant's own, so one that refuses or does not
//!    answer holds up nobody else's rows: the commit goes on, and the NT drops the packets that name what it does not have.
//! 4. All rows, then `COMMIT` of the next version: the swap is the only moment packets can notice.
//!    Rows are written a piece at a time, and what is quick goes between two pieces. Where it ends
//!    between two, nobody has noticed anything, and `ABORT` takes the rows back.
//! 5. No commit under way again: only then has every packet of the old tables left, and only then
//!    may a region that the old tables led to be loaded. NTs of a region may hang and keep packets for ever, and everybody's
//!    commits would wait for them: such a region is decoupled and reset (see [`super::stuck`]).
//! 6. The rows, read back from the bank that packets use, a piece at a time as well.
//! 7. NTs forget configurations that no packet uses any more.
//!
//! `ABORT` takes back what a refused commit left in the shadow bank. It is never written while a
//! commit is under way: the packets of the old version still read the bank it would overwrite.

use std::time::Duration;

use snic_domain::Timestamp;
use snic_tables::registers::{
    ABORT, Address, CAPABILITIES, CAPABILITY_CONFIGURE, COMMIT, COMMIT_BUSY, COMMIT_NO_LINK,
    COMMIT_REFUSED, COMMIT_STATUS, CONFIGURE_BUFFER_HIGH, CONFIGURE_BUFFER_LOW, CONFIGURE_BYTES,
    CONFIGURE_DONE, CONFIGURE_START, CONFIGURE_STATUS, CONFIGURE_TAG, CONFIGURE_UID, TABLE_VERSION,
    active_row, shadow_row,
};
use snic_tables::{
    CardReport, DagConfiguration, ProgramFailure, RowKey, TableDelta, Ticket, UnconfiguredNt,
    WindowChanges,
};

use super::stuck::StuckRegions;
use super::windows::{WindowProgress, WindowWriter};
use super::{Context, release};
use crate::card::{Card, CardError, ProgramPart};

/// A `Program` under way.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) ticket: Ticket,
    delta: TableDelta,
    configurations: Vec<DagConfiguration>,
    windows: WindowWriter,
    stage: Stage,
    since: Timestamp,
    patience: Patience,
    stuck: StuckRegions,
    /// NTs that do not have what the new rows name.
    unconfigured: Vec<UnconfiguredNt>,
}

/// Waiting for NTs of one DAG: they may be a tenant's own and never answer, and others' rows wait meanwhile.
#[derive(Debug, Clone, Copy, Default)]
struct Patience {
    uid: u32,
    /// Since when an NT is busy.
    busy: Option<Timestamp>,
    /// Time that was waited for NTs of this DAG before.
    spent: Duration,
}

/// Times for a commit that all NTs of a DAG together may take for commands at their windows: a configuration of 64 KiB is 36
/// commands for each of 32 instances, and a busy NT is looked at again 50 µs later.
const PATIENCE_COMMITS: u32 = 2;

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// An earlier commit may be under way.
    Banks,
    Configurations(ConfigurationUpload),
    /// Writes at windows of NTs, while packets use the tables of the version `active`.
    Windows {
        active: u32,
    },
    Rows(RowUpload),
    /// This commit is under way.
    Packets {
        version: u32,
    },
    ReadBack(RowComparison),
    /// Erasures at windows of NTs; the commit of `version` is over.
    Erasures {
        version: u32,
    },
}

/// Configurations go to the card, whose tables have the version `active`.
#[derive(Debug, Clone, Copy)]
struct ConfigurationUpload {
    active: u32,
    /// This many have been sent.
    sent: usize,
}

/// Rows go to the shadow bank; packets use the version `active`.
#[derive(Debug, Clone, Copy)]
struct RowUpload {
    active: u32,
    /// This many are there.
    written: usize,
}

/// The rows of a version are read back.
#[derive(Debug, Clone, Copy)]
struct RowComparison {
    version: u32,
    /// This many have been compared.
    read: usize,
    /// This many of them are not what was written.
    differ: usize,
}

type ProgramOutcome = Option<Result<u32, ProgramFailure>>;

impl Program {
    pub(super) const fn new(
        ticket: Ticket,
        delta: TableDelta,
        configurations: Vec<DagConfiguration>,
        windows: WindowChanges,
        now: Timestamp,
    ) -> Self {
        let windows = WindowWriter::new(windows);
        let patience = Patience { uid: 0, busy: None, spent: Duration::ZERO };
        Self {
            ticket,
            delta,
            configurations,
            windows,
            stage: Stage::Banks,
            since: now,
            patience,
            stuck: StuckRegions::new(),
            unconfigured: Vec::new(),
        }
    }

    /// Goes on as far as the card and the step's words allow.
    pub(super) fn advance(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<Option<CardReport>, CardError> {
        loop {
            let waited = !self.is_ready();
            let outcome = match self.stage {
                Stage::Banks => self.begin(card, context)?,
                Stage::Packets { version } => self.conclude(version, card, context)?,
                _ if context.words_left == 0 => return Ok(None),
                Stage::Configurations(sending) => self.send(sending, card, context)?,
                Stage::Windows { active } => self.write_windows(active, card, context)?,
                Stage::Erasures { version } => self.erase_windows(version, card, context)?,
                Stage::Rows(writing) => self.write(writing, card, context)?,
                Stage::ReadBack(comparing) => self.compare(comparing, card, context)?,
            };
            if let Some(result) = outcome {
                let unconfigured = std::mem::take(&mut self.unconfigured);
                let ticket = self.ticket;
                return Ok(Some(CardReport::Programmed { ticket, result, unconfigured }));
            }
            if waited && !self.is_ready() {
                return Ok(None);
            }
        }
    }

    /// Whether it waits for nothing but its turn.
    pub(super) const fn is_ready(&self) -> bool {
        self.patience.busy.is_none() && !matches!(self.stage, Stage::Banks | Stage::Packets { .. })
    }

    /// Steps 1 and 2.
    fn begin(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        if card.read(COMMIT_STATUS)? == COMMIT_BUSY {
            return self.late(card, context);
        }
        let active = card.read(TABLE_VERSION)?;
        if context.known.is_some_and(|known| known.version != active) {
            return Ok(Some(Err(ProgramFailure::Refused { active })));
        }
        if self.delta.is_empty() && self.windows.is_idle() {
            return Ok(Some(Ok(active)));
        }
        card.trace_part(ProgramPart::Write);
        self.stage = Stage::Configurations(ConfigurationUpload { active, sent: 0 });
        Ok(None)
    }

    /// Step 3, for the next DAG.
    fn send(
        &mut self,
        ConfigurationUpload { active, sent }: ConfigurationUpload,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        let Some(configuration) = self.configurations.get(sent) else {
            self.stage = Stage::Windows { active };
            return Ok(None);
        };
        context.spend(configuration.bytes().len() / 4);
        if let Err(failure) = configure(card, configuration)? {
            return Ok(Some(Err(failure)));
        }
        context.statistics.configurations += 1;
        self.stage = Stage::Configurations(ConfigurationUpload { active, sent: sent + 1 });
        Ok(None)
    }

    /// Step 3 at the windows of NTs.
    fn write_windows(
        &mut self,
        active: u32,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        let progress = self.windows.write(card, context)?;
        if progress == WindowProgress::Done {
            // NTs that are asked again have rows already: there is nothing to commit.
            self.stage = match self.delta.is_empty() {
                true => Stage::Erasures { version: active },
                false => Stage::Rows(RowUpload { active, written: 0 }),
            };
        }
        self.after_window(progress, context);
        Ok(None)
    }

    /// Step 7.
    fn erase_windows(
        &mut self,
        version: u32,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        let progress = self.windows.erase(card)?;
        if progress == WindowProgress::Done {
            return Ok(Some(Ok(version)));
        }
        self.after_window(progress, context);
        Ok(None)
    }

    fn after_window(&mut self, progress: WindowProgress, context: &mut Context) {
        let uid = self.windows.uid();
        if uid != self.patience.uid {
            self.patience = Patience { uid, ..Patience::default() };
        }
        let Patience { busy, spent, .. } = &mut self.patience;
        let is_busy = progress == WindowProgress::Waits;
        let waited = *spent + context.now.since(busy.unwrap_or(context.now));
        let late = is_busy && waited >= context.deadlines.commit * PATIENCE_COMMITS;
        if is_busy && !late {
            busy.get_or_insert(context.now);
            return;
        }
        (*busy, *spent) = (None, waited);
        if late || progress == WindowProgress::Refused {
            self.unconfigured.extend(self.windows.skip());
            context.statistics.windows_refused += 1;
        }
    }

    /// Step 4: the next rows, and with the last ones the commit.
    fn write(
        &mut self,
        RowUpload { active, mut written }: RowUpload,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        for (key, words) in piece(&self.delta, written, context.words_left) {
            context.spend(words.len());
            let at = shadow_row(key).expect("a delta has only rows that the tables have");
            card.write_block(at, words)?;
            written += 1;
            context.statistics.rows_written += 1;
            context.statistics.words_written += words.len() as u64;
        }
        if written < self.delta.row_count() {
            self.stage = Stage::Rows(RowUpload { active, written });
            return Ok(None);
        }
        let version = active.wrapping_add(1);
        card.write(COMMIT, version)?;
        card.trace_part(ProgramPart::Packets);
        context.statistics.commits += 1;
        self.stage = Stage::Packets { version };
        self.since = context.now;
        Ok(None)
    }

    fn conclude(
        &mut self,
        version: u32,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        let status = card.read(COMMIT_STATUS)?;
        let active = card.read(TABLE_VERSION)?;
        if status == COMMIT_NO_LINK && active != version {
            card.write(ABORT, 1)?;
            return Ok(Some(Err(ProgramFailure::NoLink)));
        }
        if status == COMMIT_REFUSED || active != version {
            card.write(ABORT, 1)?;
            return Ok(Some(Err(ProgramFailure::Refused { active })));
        }
        // Noted before the old packets have left: if that takes too long, this step fails, but the card has the new
        // tables all the same. The next step would otherwise take them for another session's, and refuse.
        if let Some(known) = &mut context.known {
            known.version = version;
        }
        if status == COMMIT_BUSY {
            return self.late(card, context);
        }
        card.trace_part(ProgramPart::ReadBack);
        self.stage = Stage::ReadBack(RowComparison { version, read: 0, differ: 0 });
        Ok(None)
    }

    /// Step 6: the next rows.
    fn compare(
        &mut self,
        RowComparison { version, read, differ }: RowComparison,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        let place = |key| active_row(key).expect("a delta has only rows that the tables have");
        let rows = piece(&self.delta, read, context.words_left);
        let rows: Vec<_> = rows.map(|(key, words)| (place(key), words)).collect();
        context.spend(rows.iter().map(|(_, words)| words.len()).sum());
        let differ = differ + rows_that_differ(card, &rows)?;
        let read = read + rows.len();
        if read < self.delta.row_count() {
            self.stage = Stage::ReadBack(RowComparison { version, read, differ });
            return Ok(None);
        }
        if differ > 0 {
            card.write(ABORT, 1)?;
            return Ok(Some(Err(ProgramFailure::ReadBack { rows: differ })));
        }
        if self.windows.erases_nothing() {
            return Ok(Some(Ok(version)));
        }
        self.stage = Stage::Erasures { version };
        Ok(None)
    }

    fn late(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        let limit = context.deadlines.commit;
        if context.now.since(self.since) < limit {
            return Ok(None);
        }
        if self.stuck.reset(card, context)? {
            self.since = context.now;
            return Ok(None);
        }
        Ok(Some(Err(ProgramFailure::DrainTimeout(limit))))
    }
}

/// The rows from this one on that fill this many words; the last one may reach beyond.
fn piece(
    delta: &TableDelta,
    from: usize,
    words_max: usize,
) -> impl Iterator<Item = (RowKey, &[u32])> {
    let mut words = 0;
    delta.rows().skip(from).take_while(move |(_, row)| {
        let is_in = words < words_max;
        words += row.len();
        is_in
    })
}

/// Rows that lie one behind the other are read at once: over a bus an access costs more than a word.
fn rows_that_differ(card: &mut dyn Card, rows: &[(Address, &[u32])]) -> Result<usize, CardError> {
    let (mut differ, mut rest, mut read) = (0, rows, Vec::new());
    while let Some(&(first, _)) = rest.first() {
        let (run, words) = leading_run(rest);
        read.clear();
        read.resize(words, 0);
        card.read_block(first, &mut read)?;
        let mut left = &read[..];
        for (_, expected) in &rest[..run] {
            let (found, behind) = left.split_at(expected.len());
            differ += usize::from(found != *expected);
            left = behind;
        }
        rest = &rest[run..];
    }
    Ok(differ)
}

/// Step 3 for one DAG.
fn configure(
    card: &mut dyn Card,
    configuration: &DagConfiguration,
) -> Result<Result<(), ProgramFailure>, CardError> {
    let failed = |what| Ok(Err(ProgramFailure::Configuration(what)));
    if card.read(CAPABILITIES)? & CAPABILITY_CONFIGURE == 0 {
        return failed("its shell cannot configure network tasks");
    }
    let bytes = configuration.bytes();
    let buffer = match card.stage(bytes) {
        Ok(buffer) => buffer,
        Err(CardError::NoMemory { .. }) => return failed("its memory has no room for a buffer"),
        Err(error) => return Err(error),
    };
    card.write(CONFIGURE_BUFFER_LOW, buffer as u32)?;
    card.write(CONFIGURE_BUFFER_HIGH, (buffer >> 32) as u32)?;
    // Configurations are far shorter than 4 GiB (`limits::DAG_CONFIGURATION_BYTES_MAX`).
    card.write(CONFIGURE_BYTES, bytes.len() as u32)?;
    card.write(CONFIGURE_UID, configuration.uid.raw())?;
    card.write(CONFIGURE_TAG, configuration.tag())?;
    card.write(CONFIGURE_START, 1)?;
    let status = card.read(CONFIGURE_STATUS)?;
    release(card, buffer)?;
    if status == CONFIGURE_DONE { Ok(Ok(())) } else { failed("it refused what was sent") }
}

/// Number of the first rows that lie one behind the other, and number of their words.
fn leading_run(rows: &[(Address, &[u32])]) -> (usize, usize) {
    let (mut end, mut count, mut words) = (rows.first().map(|row| row.0), 0, 0);
    for &(at, row) in rows {
        if end != Some(at) {
            break;
        }
        end = at.checked_add(4 * row.len() as u32);
        (count, words) = (count + 1, words + row.len());
    }
    (count, words)
}
