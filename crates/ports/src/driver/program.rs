//! Programming tables.
//!
//! The order, and why:
//! 1. No commit under way: the card is copying rows into the shadow bank until then, and packets
//!    still read it.
//! 2. The version is the one this session left: rows are differences, and a difference to other
//!    tables would make a mix.
//! 3. The configurations that rows of DAGs name and the card does not hold: it puts them in force with
//!    the commit. One that it does not take ends the step before anything is changed.
//! 4. All rows, then `COMMIT` of the next version: the swap is the only moment packets can notice.
//! 5. No commit under way again: only then has every packet of the old tables left, and only then
//!    may a region that the old tables led to be loaded.
//! 6. The rows, read back from the bank that packets use.
//!
//! `ABORT` takes back what a refused commit left in the shadow bank. It is never written while a
//! commit is under way: the packets of the old version still read the bank it would overwrite.

use snic_domain::Timestamp;
use snic_tables::registers::{
    ABORT, Address, CAPABILITIES, CAPABILITY_CONFIGURE, COMMIT, COMMIT_BUSY, COMMIT_REFUSED,
    COMMIT_STATUS, CONFIGURE_BUFFER_HIGH, CONFIGURE_BUFFER_LOW, CONFIGURE_BYTES, CONFIGURE_DONE,
    CONFIGURE_START, CONFIGURE_STATUS, CONFIGURE_TAG, CONFIGURE_UID, TABLE_VERSION, active_row,
    shadow_row,
};
use snic_tables::{CardReport, DagConfiguration, ProgramFailure, TableDelta, Ticket};

use super::{Context, release};
use crate::card::{Card, CardError};

/// A `Program` under way.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) ticket: Ticket,
    delta: TableDelta,
    configurations: Vec<DagConfiguration>,
    stage: Stage,
    since: Timestamp,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// An earlier commit may be under way.
    Banks,
    /// This commit is under way.
    Packets { version: u32 },
}

type ProgramOutcome = Option<Result<u32, ProgramFailure>>;

impl Program {
    pub(super) const fn new(
        ticket: Ticket,
        delta: TableDelta,
        configurations: Vec<DagConfiguration>,
        now: Timestamp,
    ) -> Self {
        Self { ticket, delta, configurations, stage: Stage::Banks, since: now }
    }

    pub(super) fn advance(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<Option<CardReport>, CardError> {
        if matches!(self.stage, Stage::Banks)
            && let Some(result) = self.write(card, context)?
        {
            return Ok(Some(self.report(result)));
        }
        let Stage::Packets { version } = self.stage else { return Ok(None) };
        Ok(self.conclude(version, card, context)?.map(|result| self.report(result)))
    }

    const fn report(&self, result: Result<u32, ProgramFailure>) -> CardReport {
        CardReport::Programmed { ticket: self.ticket, result }
    }

    /// Steps 1 to 4.
    fn write(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        if card.read(COMMIT_STATUS)? == COMMIT_BUSY {
            return Ok(self.late(context));
        }
        let active = card.read(TABLE_VERSION)?;
        if context.known.is_some_and(|known| known.version != active) {
            return Ok(Some(Err(ProgramFailure::Refused { active })));
        }
        if self.delta.is_empty() {
            return Ok(Some(Ok(active)));
        }
        for configuration in &self.configurations {
            if let Err(failure) = configure(card, configuration)? {
                return Ok(Some(Err(failure)));
            }
            context.statistics.configurations += 1;
        }
        for (key, words) in self.delta.rows() {
            let at = shadow_row(key).expect("a delta has only rows that the tables have");
            card.write_block(at, words)?;
            context.statistics.rows_written += 1;
            context.statistics.words_written += words.len() as u64;
        }
        let version = active.wrapping_add(1);
        card.write(COMMIT, version)?;
        context.statistics.commits += 1;
        self.stage = Stage::Packets { version };
        self.since = context.now;
        Ok(None)
    }

    /// Steps 5 and 6.
    fn conclude(
        &self,
        version: u32,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<ProgramOutcome, CardError> {
        let status = card.read(COMMIT_STATUS)?;
        let active = card.read(TABLE_VERSION)?;
        if status == COMMIT_REFUSED || active != version {
            card.write(ABORT, 1)?;
            return Ok(Some(Err(ProgramFailure::Refused { active })));
        }
        if let Some(known) = &mut context.known {
            known.version = version;
        }
        if status == COMMIT_BUSY {
            return Ok(self.late(context));
        }
        let rows = self.rows_that_differ(card)?;
        if rows > 0 {
            card.write(ABORT, 1)?;
            return Ok(Some(Err(ProgramFailure::ReadBack { rows })));
        }
        Ok(Some(Ok(version)))
    }

    /// Rows that lie one behind the other are read at once: over a bus an access costs more than a
    /// word.
    fn rows_that_differ(&self, card: &mut dyn Card) -> Result<usize, CardError> {
        let place = |key| active_row(key).expect("a delta has only rows that the tables have");
        let rows: Vec<_> = self.delta.rows().map(|(key, words)| (place(key), words)).collect();
        let (mut differ, mut rest, mut read) = (0, &rows[..], Vec::new());
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

    fn late(&self, context: &Context) -> ProgramOutcome {
        let limit = context.deadlines.commit;
        (context.now.since(self.since) >= limit).then_some(Err(ProgramFailure::DrainTimeout(limit)))
    }
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

/// How many of the first rows lie one behind the other, and how many words they have.
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
