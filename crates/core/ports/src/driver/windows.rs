//! Configurations that NTs take by their windows.
//!
//! A window shows one NT at a time, and a configuration goes through it in pieces, so one may be under way over several
//! steps. Nothing that packets use changes before the commit: an NT keeps what is in force beside what comes.

use std::fmt;
use std::sync::Arc;

use snic_domain::NtNumber;
use snic_tables::configuration::entries;
use snic_tables::registers::{
    Address, NT_APPEND, NT_BEGIN, NT_BUSY, NT_COMMAND, NT_COUNT, NT_DATA, NT_DATA_WORDS, NT_DONE,
    NT_KEEP, NT_STATUS, NT_TAG, NT_TAKE, NT_UID, NT_WORDS_MAX, WINDOW, WINDOW_SELECT, window,
};
use snic_tables::{
    ConfigurationInForce, DagConfiguration, UnconfiguredNt, WindowChanges, WindowErasure,
    WindowSlot, WindowWrite,
};

use super::Context;
use crate::card::{Card, CardError};

/// The words of a configuration as an NT type takes them, from the type's name and the JSON object.
///
/// # Errors
/// Says what an NT of the type cannot take.
pub type ConfigurationEncoder = fn(nt_type: &str, json: &str) -> Result<Vec<u32>, String>;

/// The bytes of the JSON text, four a word, the first one lowest, behind a word with their number: for NT types that read
/// their configurations themselves.
///
/// # Errors
/// None.
pub fn text_words(_: &str, json: &str) -> Result<Vec<u32>, String> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    // Configurations are far shorter than 4 GiB (`limits::DAG_CONFIGURATION_BYTES_MAX`).
    let length = json.len() as u32;
    Ok(std::iter::once(length).chain(json.as_bytes().chunks(4).map(word)).collect())
}

/// Work at the windows, and how far it has come.
pub(super) struct WindowWriter {
    changes: WindowChanges,
    /// Writes that are done.
    written: usize,
    /// Erasures that are done.
    erased: usize,
    /// The words of the next write, where it has begun.
    words: Option<Arc<[u32]>>,
    encoded: EncodedWords,
    /// This many of them are there.
    sent: usize,
    /// The command under way, where the NT is busy with it.
    busy: Option<Step>,
}

/// The commands of a write, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Keep,
    Begin,
    /// So many words.
    Append(usize),
    Take,
    /// That of an erasure.
    Erase,
}

/// Progress of the work at the windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WindowProgress {
    /// All is done.
    Done,
    /// The step has no words left, or there is more to do.
    More,
    /// An NT is busy.
    Waits,
    /// The NT does not take it.
    Refused,
}

impl WindowWriter {
    pub(super) const fn new(changes: WindowChanges) -> Self {
        let encoded = EncodedWords { of: None, words: Vec::new() };
        Self { changes, written: 0, erased: 0, words: None, encoded, sent: 0, busy: None }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether nothing is to be forgotten.
    pub(super) fn erases_nothing(&self) -> bool {
        self.changes.erasures.is_empty()
    }

    /// Goes on with the writes.
    pub(super) fn write(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<WindowProgress, CardError> {
        let Some(WindowWrite { at, keeps, configuration }) =
            self.changes.writes.get(self.written).cloned()
        else {
            return Ok(WindowProgress::Done);
        };
        // Whoever had the window before is unknown: another session may have ended in the middle.
        select(card, at)?;
        if let Some(step) = self.busy.take() {
            return self.answered(step, card);
        }
        let Some(words) = &self.words else {
            let most = card.read(WINDOW + NT_WORDS_MAX)? as usize;
            let words = self.encoded.words(at.nt, &configuration, context.encoder);
            self.words = words.filter(|words| most > 0 && words.len() <= most);
            if self.words.is_none() {
                return Ok(WindowProgress::Refused);
            }
            name(card, keeps)?;
            return self.command(Step::Keep, card);
        };
        let piece = (words.len() - self.sent).min(NT_DATA_WORDS);
        if piece == 0 {
            return self.command(Step::Take, card);
        }
        card.write_block(WINDOW + NT_DATA, &words[self.sent..self.sent + piece])?;
        card.write(WINDOW + NT_COUNT, piece as u32)?;
        context.spend(piece);
        self.command(Step::Append(piece), card)
    }

    /// UID of the DAG whose write is next, or else erasure.
    pub(super) fn uid(&self) -> u32 {
        let write = self.changes.writes.get(self.written);
        let erasure = || self.changes.erasures.get(self.erased).map_or(0, |one| one.keeps.uid);
        write.map_or_else(erasure, |write| write.configuration.uid.raw())
    }

    /// Leaves out the write that is next, or else the erasure. Says which NT has no configuration for that.
    pub(super) fn skip(&mut self) -> Option<UnconfiguredNt> {
        (self.words, self.sent, self.busy) = (None, 0, None);
        let write = self.changes.writes.get(self.written);
        let left = write.map(|write| (write.configuration.uid.raw(), write.at));
        match left {
            Some(_) => self.written += 1,
            None => self.erased += 1,
        }
        left.map(|(uid, at)| UnconfiguredNt { uid, at })
    }

    /// Goes on with the erasures.
    pub(super) fn erase(&mut self, card: &mut dyn Card) -> Result<WindowProgress, CardError> {
        let Some(&WindowErasure { at, keeps }) = self.changes.erasures.get(self.erased) else {
            return Ok(WindowProgress::Done);
        };
        select(card, at)?;
        if let Some(step) = self.busy.take() {
            return self.answered(step, card);
        }
        if card.read(WINDOW + NT_WORDS_MAX)? == 0 {
            self.erased += 1;
            return Ok(WindowProgress::More);
        }
        name(card, keeps)?;
        self.command(Step::Erase, card)
    }

    fn command(&mut self, step: Step, card: &mut dyn Card) -> Result<WindowProgress, CardError> {
        if step == Step::Begin {
            name(card, name_of(&self.changes.writes[self.written].configuration))?;
        }
        let command = match step {
            Step::Keep | Step::Erase => NT_KEEP,
            Step::Begin => NT_BEGIN,
            Step::Append(_) => NT_APPEND,
            Step::Take => NT_TAKE,
        };
        card.write(WINDOW + NT_COMMAND, command)?;
        self.answered(step, card)
    }

    fn answered(&mut self, step: Step, card: &mut dyn Card) -> Result<WindowProgress, CardError> {
        match card.read(WINDOW + NT_STATUS)? {
            NT_DONE => {}
            NT_BUSY => {
                self.busy = Some(step);
                return Ok(WindowProgress::Waits);
            }
            _ => return Ok(WindowProgress::Refused),
        }
        match step {
            Step::Keep => return self.command(Step::Begin, card),
            Step::Begin => {}
            Step::Append(words) => self.sent += words,
            Step::Take => {
                (self.written, self.words, self.sent) = (self.written + 1, None, 0);
            }
            Step::Erase => self.erased += 1,
        }
        Ok(WindowProgress::More)
    }
}

/// Counts only: there may be secrets in it.
impl fmt::Debug for WindowWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (writes, erasures) = (self.changes.writes.len(), self.changes.erasures.len());
        let (written, erased) = (self.written, self.erased);
        write!(f, "WindowWriter({written} of {writes} written, {erased} of {erasures} erased)")
    }
}

fn select(card: &mut dyn Card, at: WindowSlot) -> Result<(), CardError> {
    card.write(WINDOW_SELECT, window(at.region, at.slot))
}

fn name(card: &mut dyn Card, configuration: ConfigurationInForce) -> Result<(), CardError> {
    let registers: [(Address, u32); 2] = [(NT_UID, configuration.uid), (NT_TAG, configuration.tag)];
    registers.into_iter().try_for_each(|(at, value)| card.write(WINDOW + at, value))
}

/// The words of one DAG's configurations, each made once however many instances it goes to.
struct EncodedWords {
    of: Option<ConfigurationInForce>,
    words: Vec<(NtNumber, Option<Arc<[u32]>>)>,
}

impl EncodedWords {
    /// Those of an NT type; nothing where it has no configuration or cannot take that.
    fn words(
        &mut self,
        nt: NtNumber,
        configuration: &DagConfiguration,
        encoder: ConfigurationEncoder,
    ) -> Option<Arc<[u32]>> {
        let of = Some(name_of(configuration));
        if self.of != of {
            (self.of, self.words) = (of, Vec::new());
        }
        if let Some((_, words)) = self.words.iter().find(|(number, _)| *number == nt) {
            return words.clone();
        }
        let entries = entries(configuration.bytes()).unwrap_or_default();
        let entry = entries.iter().find(|entry| entry.number == nt);
        let words = entry.and_then(|entry| encoder(entry.nt_type, entry.json).ok());
        let words = words.map(Arc::from);
        self.words.push((nt, words.clone()));
        words
    }
}

fn name_of(configuration: &DagConfiguration) -> ConfigurationInForce {
    ConfigurationInForce { uid: configuration.uid.raw(), tag: configuration.tag() }
}
