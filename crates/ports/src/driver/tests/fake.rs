//! A register file that does what the map says a card does, and as slowly or badly as told.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use snic_domain::{CardModel, Timestamp};
use snic_tables::registers::*;
use snic_tables::{BANK_WORDS, TableImage};

use crate::card::{Buffers, Card, CardError, Registers};

pub const REGIONS_OF_FAKE: u8 = 4;

/// What goes wrong.
#[derive(Debug, Default)]
pub struct Faults {
    pub refuse_commit: bool,
    /// The word of the bank that a commit flips.
    pub corrupt_word: Option<usize>,
    pub load_error: Option<u32>,
    pub load_hangs: bool,
    pub load_leaves_other_digest: bool,
    pub no_memory: bool,
    /// Accesses until the card is lost.
    pub lost_after: Option<u64>,
}

pub struct FakeCard {
    model: CardModel,
    now: Timestamp,
    registers: HashMap<Address, u32>,
    pub active: Vec<u32>,
    pub shadow: Vec<u32>,
    pub commit_takes: Duration,
    commit_ends: Option<Timestamp>,
    pub load_takes: Duration,
    load: Option<(u8, Timestamp)>,
    pub faults: Faults,
    /// Register writes, in order.
    pub writes: Vec<(Address, u32)>,
    pub buffers: BTreeMap<u64, usize>,
    /// A counter (address of its low word) that counts at every access to it.
    pub ticking: Option<(Address, u64)>,
    pub accesses: u64,
}

impl FakeCard {
    pub fn new() -> Self {
        let registers = HashMap::from([
            (MAGIC, MAGIC_VALUE),
            (LAYOUT, LAYOUT_VALUE),
            (REGION_COUNT, REGIONS_OF_FAKE.into()),
            (IDCODE, 0x1234_5093),
            (BOOT_ID, 77),
            (TABLE_VERSION, 5),
        ]);
        Self {
            model: "fake".parse().expect("a model"),
            now: Timestamp::ZERO,
            registers,
            active: vec![0; BANK_WORDS],
            shadow: vec![0; BANK_WORDS],
            commit_takes: Duration::ZERO,
            commit_ends: None,
            load_takes: Duration::from_millis(5),
            load: None,
            faults: Faults::default(),
            writes: Vec::new(),
            buffers: BTreeMap::new(),
            ticking: None,
            accesses: 0,
        }
    }

    pub fn peek(&self, at: Address) -> u32 {
        self.registers.get(&at).copied().unwrap_or(0)
    }

    pub fn poke(&mut self, at: Address, value: u32) {
        self.registers.insert(at, value);
    }

    pub fn active_image(&self) -> TableImage {
        TableImage::from_words(self.active.clone()).expect("a bank")
    }

    pub fn decoupled(&self, number: u8) -> bool {
        self.peek(region(number, REGION_CONTROL)) & REGION_DECOUPLE != 0
    }

    /// As if an earlier daemon had started it.
    pub fn begin_load(&mut self, number: u8) {
        self.poke(region(number, REGION_CONTROL), REGION_DECOUPLE);
        self.poke(LOAD_REGION, number.into());
        self.start_load();
    }

    /// As if an earlier daemon had committed.
    pub fn begin_commit(&mut self) {
        self.commit_ends = Some(self.now + self.commit_takes);
        self.poke(COMMIT_STATUS, COMMIT_BUSY);
        self.settle();
    }

    fn count_access(&mut self) -> Result<(), CardError> {
        self.accesses += 1;
        match &mut self.faults.lost_after {
            Some(0) => Err(CardError::Lost("pulled out".to_owned())),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn settle(&mut self) {
        if self.commit_ends.is_some_and(|end| end <= self.now) {
            self.commit_ends = None;
            self.poke(COMMIT_STATUS, COMMIT_IDLE);
        }
        if let Some((number, _)) = self.load.take_if(|(_, end)| *end <= self.now) {
            self.end_load(number);
        }
    }

    fn start_load(&mut self) {
        let number = self.peek(LOAD_REGION) as u8;
        self.poke(LOAD_STATUS, LOAD_BUSY);
        self.poke(region(number, REGION_STATUS), REGION_LOADING);
        let takes =
            if self.faults.load_hangs { Duration::from_secs(3600) } else { self.load_takes };
        self.load = Some((number, self.now + takes));
        self.settle();
    }

    fn end_load(&mut self, number: u8) {
        if let Some(code) = self.faults.load_error {
            self.poke(LOAD_STATUS, LOAD_FAILED);
            self.poke(LOAD_ERROR, code);
            self.poke(region(number, REGION_STATUS), REGION_BROKEN);
            return;
        }
        self.poke(LOAD_STATUS, LOAD_DONE);
        self.poke(region(number, REGION_STATUS), REGION_LOADED);
        for word in (0..32).step_by(4) {
            let next = self.peek(region(number, REGION_DIGEST_NEXT + word));
            let flip = u32::from(self.faults.load_leaves_other_digest);
            self.poke(region(number, REGION_DIGEST + word), next ^ flip);
        }
    }

    fn commit(&mut self, version: u32) {
        if self.faults.refuse_commit || version != self.peek(TABLE_VERSION) + 1 {
            self.poke(COMMIT_STATUS, COMMIT_REFUSED);
            return;
        }
        self.active.clone_from(&self.shadow);
        if let Some(word) = self.faults.corrupt_word {
            self.active[word] ^= 4;
        }
        self.poke(TABLE_VERSION, version);
        self.begin_commit();
    }
}

const fn word_of(at: Address, bank: Address) -> usize {
    ((at - bank) / 4) as usize
}

impl Registers for FakeCard {
    fn read(&mut self, at: Address) -> Result<u32, CardError> {
        self.count_access()?;
        if let Some((low, value)) = &mut self.ticking
            && (at == *low || at == *low + 4)
        {
            let read = if at == *low { *value as u32 } else { (*value >> 32) as u32 };
            *value += 1;
            return Ok(read);
        }
        Ok(match at {
            SHADOW_BANK.. => self.shadow[word_of(at, SHADOW_BANK)],
            ACTIVE_BANK.. => self.active[word_of(at, ACTIVE_BANK)],
            _ => self.peek(at),
        })
    }

    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        self.count_access()?;
        self.writes.push((at, value));
        match at {
            SHADOW_BANK.. => self.shadow[word_of(at, SHADOW_BANK)] = value,
            COMMIT => self.commit(value),
            ABORT => {
                assert_ne!(self.peek(COMMIT_STATUS), COMMIT_BUSY, "packets still read that bank");
                self.shadow.clone_from(&self.active);
            }
            LOAD_START => self.start_load(),
            _ => self.poke(at, value),
        }
        Ok(())
    }
}

impl Buffers for FakeCard {
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        self.count_access()?;
        if self.faults.no_memory {
            return Err(CardError::NoMemory { bytes: bytes.len() });
        }
        let address = 0x7_0000_1000 + self.accesses;
        self.buffers.insert(address, bytes.len());
        Ok(address)
    }

    fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.count_access()?;
        self.buffers.remove(&address).map(|_| ()).ok_or(CardError::NoBuffer(address))
    }
}

impl Card for FakeCard {
    fn model(&self) -> &CardModel {
        &self.model
    }

    fn poll(&mut self, now: Timestamp) -> Result<(), CardError> {
        self.count_access()?;
        assert!(self.now <= now, "time went backwards");
        self.now = now;
        self.settle();
        Ok(())
    }
}
