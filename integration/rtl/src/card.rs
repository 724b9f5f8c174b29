//! The simulated shell behind the port that drivers use.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use snic_domain::{CardModel, Timestamp};
use snic_ports::card::{Address, Buffers, Card, CardError, Registers};
use snic_tables::registers::*;

use crate::process::{Response, RtlProcess, to_bytes};

/// Memory of the simulation, and the part of it that bulk transfers have.
const MEMORY_BYTES: u64 = 64 << 20;
const BULK_BUFFER: u64 = 0;
/// Buffers begin at whole pages, as XRT's do.
const PAGE_BYTES: u64 = 4_096;
/// From as many words on a transfer in bulk is quicker.
const BULK_WORDS_MIN: usize = 16;
/// Words of a record that has the buffer for itself.
const BULK_WORDS_MAX: usize = BULK_BYTES_MAX as usize / 4 - 2;
/// A byte address on the control interface has 22 bits.
const REGISTERS_END: u64 = 1 << 22;
/// 250 MHz: nanoseconds of a cycle.
const CYCLE_NANOS: u64 = 4;
/// Looks at a status before the card counts as lost: each takes some cycles.
const LOOKS_MAX: usize = 100_000;

/// The simulated shell as a card.
#[derive(Debug)]
pub struct RtlCard {
    process: RtlProcess,
    model: CardModel,
    now: Option<Timestamp>,
    /// Buffers that were staged: first byte and bytes.
    buffers: BTreeMap<u64, u64>,
}

fn lost(error: io::Error) -> CardError {
    CardError::Lost(format!("the simulation: {error}"))
}

impl RtlCard {
    /// A card that has just got power, and whose tables are clear.
    ///
    /// # Errors
    /// The program does not start, or the card never comes to rest.
    pub fn start(program: &Path, model: CardModel, seed: u32) -> Result<Self, CardError> {
        let process = RtlProcess::start(program, seed).map_err(lost)?;
        let mut card = Self { process, model, now: None, buffers: BTreeMap::new() };
        card.rest()?;
        Ok(card)
    }

    /// The process, for what the port has no word for.
    pub const fn process(&mut self) -> &mut RtlProcess {
        &mut self.process
    }

    /// Waits until no commit is under way.
    ///
    /// # Errors
    /// It takes too long, or the process has ended.
    pub fn rest(&mut self) -> Result<(), CardError> {
        for _ in 0..LOOKS_MAX {
            if self.read(COMMIT_STATUS)? != COMMIT_BUSY {
                return Ok(());
            }
        }
        Err(CardError::Lost("the card is busy for ever".to_owned()))
    }

    /// Runs one transfer of these words; the status that it leaves.
    ///
    /// # Errors
    /// It never ends, or the process has ended.
    pub fn bulk(&mut self, what: u32, records: &[u32]) -> Result<u32, CardError> {
        self.process.write_memory(BULK_BUFFER, &to_bytes(records)).map_err(lost)?;
        self.write(BULK_BUFFER_LOW, BULK_BUFFER as u32)?;
        self.write(BULK_BUFFER_HIGH, (BULK_BUFFER >> 32) as u32)?;
        self.write(BULK_BYTES, 4 * records.len() as u32)?;
        self.write(BULK_START, what)?;
        for _ in 0..LOOKS_MAX {
            match self.read(BULK_STATUS)? {
                BULK_BUSY => {}
                status => return Ok(status),
            }
        }
        Err(CardError::Lost("a bulk transfer never ends".to_owned()))
    }

    /// Words of the buffer of bulk transfers, from its first on.
    ///
    /// # Errors
    /// The process has ended.
    pub fn bulk_words(&mut self, count: usize) -> Result<Vec<u32>, CardError> {
        let mut bytes = vec![0; 4 * count];
        self.process.read_memory(BULK_BUFFER, &mut bytes).map_err(lost)?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// Whether the whole run has addresses, and those are said to the card as they are.
    fn check(at: Address, words: usize) -> Result<(), CardError> {
        let end = u64::from(at) + 4 * words as u64;
        if end <= REGISTERS_END {
            return Ok(());
        }
        let first_beyond = at.max(REGISTERS_END as u32);
        Err(CardError::NoRegister(first_beyond))
    }
}

/// The error of a run of accesses, where not all were done.
fn refused(at: Address, (response, done): (Response, usize)) -> Result<(), CardError> {
    match response {
        Response::Okay => Ok(()),
        Response::DecodeError => Err(CardError::NoRegister(at + 4 * done as u32)),
        Response::SlaveError => Err(CardError::Lost("a word was not written whole".to_owned())),
    }
}

impl Registers for RtlCard {
    fn read(&mut self, at: Address) -> Result<u32, CardError> {
        Self::check(at, 1)?;
        let mut word = [0];
        let outcome = self.process.read(at, &mut word).map_err(lost)?;
        refused(at, outcome).map(|()| word[0])
    }

    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        Self::check(at, 1)?;
        let outcome = self.process.write(at, &[value]).map_err(lost)?;
        refused(at, outcome)
    }

    /// Long runs in bulk. Where that is refused, single accesses find out why.
    fn read_block(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        Self::check(at, words.len())?;
        let mut first = at;
        for piece in words.chunks_mut(BULK_WORDS_MAX) {
            let mut is_done = false;
            if piece.len() >= BULK_WORDS_MIN {
                let mut records = vec![first, piece.len() as u32];
                records.resize(2 + piece.len(), 0);
                is_done = self.bulk(BULK_TO_HOST, &records)? == BULK_DONE;
            }
            if is_done {
                let filled = self.bulk_words(2 + piece.len())?;
                piece.copy_from_slice(&filled[2..]);
            } else {
                let outcome = self.process.read(first, piece).map_err(lost)?;
                refused(first, outcome)?;
            }
            first += 4 * piece.len() as u32;
        }
        Ok(())
    }

    fn write_block(&mut self, at: Address, words: &[u32]) -> Result<(), CardError> {
        Self::check(at, words.len())?;
        let mut first = at;
        for piece in words.chunks(BULK_WORDS_MAX) {
            let is_long = piece.len() >= BULK_WORDS_MIN && first >= SHADOW_BANK;
            let mut records = vec![first, piece.len() as u32];
            records.extend(piece);
            if !is_long || self.bulk(BULK_TO_TABLES, &records)? != BULK_DONE {
                let outcome = self.process.write(first, piece).map_err(lost)?;
                refused(first, outcome)?;
            }
            first += 4 * piece.len() as u32;
        }
        Ok(())
    }
}

impl Buffers for RtlCard {
    /// In the first gap that is long enough.
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        let length = (bytes.len() as u64).max(1).next_multiple_of(PAGE_BYTES);
        let mut free = BULK_BUFFER + u64::from(BULK_BYTES_MAX);
        for (first, taken) in &self.buffers {
            if first - free >= length {
                break;
            }
            free = first + taken;
        }
        if MEMORY_BYTES - free < length {
            return Err(CardError::NoMemory { bytes: bytes.len() });
        }
        self.process.write_memory(free, bytes).map_err(lost)?;
        self.buffers.insert(free, length);
        Ok(free)
    }

    fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.buffers.remove(&address).map(|_| ()).ok_or(CardError::NoBuffer(address))
    }
}

impl Card for RtlCard {
    fn model(&self) -> &CardModel {
        &self.model
    }

    /// Lets as many cycles pass as the time since the last poll has.
    fn poll(&mut self, now: Timestamp) -> Result<(), CardError> {
        let before = self.now.replace(now).unwrap_or(now);
        let cycles = now.since(before).as_nanos() as u64 / CYCLE_NANOS;
        self.process.step(cycles).map(|_| ()).map_err(lost)
    }
}
