//! A register file that does what the map says a card does, and as slowly or badly as told.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use snic_domain::{CardModel, ChainIdentity, Digest, NtCode, ReportedChain, Timestamp};
use snic_tables::registers::*;
use snic_tables::{BANK_WORDS, TableImage};

use super::windows::NtWindows;
use super::{Buffers, Card, CardError, Registers};

pub const REGIONS_OF_FAKE: u8 = 4;

/// Faults to come.
#[derive(Debug, Default)]
pub struct FakeFaults {
    pub refuse_commit: bool,
    /// Neither swaps the banks nor says so.
    pub ignore_commit: bool,
    /// The word of the bank that a commit flips.
    pub corrupt_word: Option<usize>,
    pub load_error: Option<u32>,
    pub load_hangs: bool,
    /// A load goes on although its region is reset.
    pub ignores_resets: bool,
    /// The word of the digest that is another one after a load.
    pub load_leaves_other_word: Option<usize>,
    /// The word from the region's NTs on that is another one after a load.
    pub load_reports_other_word: Option<usize>,
    /// A load that is done has left garbage.
    pub done_but_broken: bool,
    pub no_memory: bool,
    pub refuses_configurations: bool,
    /// Reads of the status at an NT's window that say busy after each command.
    pub window_busy: u32,
    /// The command at an NT's window that is refused.
    pub window_refuses: Option<u32>,
    /// A wrapper that is asked for something never ends.
    pub state_hangs: bool,
    /// A wrapper does not look whose state it restores.
    pub restores_anything: bool,
    /// Loads fail where the bytes are not one of [`image`]'s; otherwise any bytes are loaded.
    pub checks_images: bool,
    /// The access at which the card restarts.
    pub restarts_at: Option<u64>,
    /// Accesses until the card is lost.
    pub lost_after: Option<u64>,
}

/// A bitstream for a fake card: a mark, a name, and what makes the exclusive or of all bytes zero.
pub fn image(name: &[u8]) -> Arc<[u8]> {
    let mut bytes = b"FAKE".to_vec();
    bytes.extend_from_slice(name);
    bytes.resize(512, 0);
    bytes.push(bytes.iter().fold(0, |sum, byte| sum ^ byte));
    bytes.into()
}

/// Report of a fake card for any bytes: one NT, and as identity the beginning of their digest.
pub fn chain_of(bytes: &[u8]) -> ReportedChain {
    chain_named(Digest::of(bytes).words())
}

/// The same from the digest's words.
pub fn chain_named([a, b, c, d, ..]: [u32; 8]) -> ReportedChain {
    let mut nts = [NtCode::default(); 8];
    nts[0] = NtCode(1);
    ReportedChain { nts, identity: ChainIdentity::from_words([a, b, c, d]) }
}

fn is_image(bytes: &[u8]) -> bool {
    bytes.starts_with(b"FAKE")
        && bytes.len() == 513
        && bytes.iter().fold(0, |sum, byte| sum ^ byte) == 0
}

/// Bytes that a loaded region keeps for a DAG; there is nothing in it.
const STATE_BYTES_OF_FAKE: u32 = 128;
const STATES_END_OF_FAKE: Address = STATES + REGIONS_OF_FAKE as u32 * STATE_PAGE;
const SAVE_AREA_OF_FAKE: u32 = 65_536;
/// The CRC of a context of zeros, as far as the fake is concerned.
const STATE_CHECK_OF_FAKE: u32 = 0x5eed;

pub struct FakeCard {
    model: CardModel,
    now: Timestamp,
    registers: HashMap<Address, u32>,
    pub active: Vec<u32>,
    pub shadow: Vec<u32>,
    pub commit_takes: Duration,
    pub abort_takes: Duration,
    /// Region whose NTs let no packet go: a commit ends with their reset.
    pub hung: Option<u8>,
    commit_ends: Option<Timestamp>,
    pub load_takes: Duration,
    load: Option<(u8, Timestamp)>,
    pub faults: FakeFaults,
    /// Register writes, in order.
    pub writes: Vec<(Address, u32)>,
    pub buffers: BTreeMap<u64, Vec<u8>>,
    /// Saved contexts by their place: whose, and of which build of a chain.
    pub saved: BTreeMap<u32, (u32, [u32; 4])>,
    /// Configurations that were taken: whose, and while which table version was active.
    pub configured: Vec<(u32, u32)>,
    pub windows: NtWindows,
    /// Reads of the status at an NT's window that still say busy.
    window_busy: u32,
    window_refused: bool,
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
            (SAVE_AREA_BYTES, SAVE_AREA_OF_FAKE),
            (BOOT_ID, 77),
            (TABLE_VERSION, 5),
            (CAPABILITIES, CAPABILITY_CONFIGURE),
        ]);
        Self {
            model: "fake".parse().expect("a model"),
            now: Timestamp::ZERO,
            registers,
            active: vec![0; BANK_WORDS],
            shadow: vec![0; BANK_WORDS],
            commit_takes: Duration::ZERO,
            abort_takes: Duration::ZERO,
            hung: None,
            commit_ends: None,
            load_takes: Duration::from_millis(5),
            load: None,
            faults: FakeFaults::default(),
            writes: Vec::new(),
            buffers: BTreeMap::new(),
            saved: BTreeMap::new(),
            configured: Vec::new(),
            windows: NtWindows::default(),
            window_busy: 0,
            window_refused: false,
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
        self.run_load();
    }

    /// As if an earlier daemon had committed.
    pub fn begin_commit(&mut self) {
        self.begin_copy(self.commit_takes);
    }

    fn begin_copy(&mut self, takes: Duration) {
        self.commit_ends = Some(self.now + takes);
        self.poke(COMMIT_STATUS, COMMIT_BUSY);
        self.finish_due_work();
    }

    fn count_access(&mut self) -> Result<(), CardError> {
        self.accesses += 1;
        if self.faults.restarts_at == Some(self.accesses) {
            self.poke(BOOT_ID, self.peek(BOOT_ID) + 1);
        }
        match &mut self.faults.lost_after {
            Some(0) => Err(CardError::Lost("pulled out".to_owned())),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn finish_due_work(&mut self) {
        let waits = self.hung.filter(|_| self.commit_ends.is_some());
        self.poke(COMMIT_WAITS, waits.map_or(0, |region| 1 << region));
        if waits.is_none() && self.commit_ends.is_some_and(|end| end <= self.now) {
            self.commit_ends = None;
            self.poke(COMMIT_STATUS, COMMIT_IDLE);
        }
        if let Some((number, _)) = self.load.take_if(|(_, end)| *end <= self.now) {
            self.end_load(number);
        }
    }

    fn start_load(&mut self) {
        let number = self.peek(LOAD_REGION);
        if self.load.is_some() {
            self.poke(LOAD_ERROR, LOAD_ERROR_BUSY);
        } else if number >= REGIONS_OF_FAKE.into() || !self.decoupled(number as u8) {
            self.poke(LOAD_ERROR, LOAD_ERROR_REGION);
            self.poke(LOAD_STATUS, LOAD_FAILED);
        } else {
            self.run_load();
        }
    }

    fn run_load(&mut self) {
        let number = self.peek(LOAD_REGION) as u8;
        self.poke(LOAD_STATUS, LOAD_BUSY);
        self.show(number, REGION_LOADING, [0; 8]);
        let takes =
            if self.faults.load_hangs { Duration::from_secs(3600) } else { self.load_takes };
        self.load = Some((number, self.now + takes));
        self.finish_due_work();
    }

    fn show(&mut self, number: u8, status: u32, digest: [u32; 8]) {
        self.poke(region(number, REGION_STATUS), status);
        self.report(number, status, digest);
        let keeps = if status == REGION_LOADED { STATE_BYTES_OF_FAKE } else { 0 };
        self.poke(state(number, STATE_BYTES), keeps);
        for (at, word) in (region(number, REGION_DIGEST)..).step_by(4).zip(digest) {
            self.poke(at, word);
        }
    }

    /// Report by the bytes that were loaded, where this card has them; else by what the host says they are.
    fn report(&mut self, number: u8, status: u32, digest: [u32; 8]) {
        let chain = match (status == REGION_LOADED, self.buffers.get(&self.load_buffer())) {
            (false, _) => ReportedChain::default(),
            (true, Some(bytes)) => chain_of(bytes),
            (true, None) => chain_named(digest),
        };
        let words = chain.nts.map(|nt| nt.0).into_iter().chain(chain.identity.words());
        let words: Vec<u32> = words.collect();
        for (word, value) in words.into_iter().enumerate() {
            let is_other = self.faults.load_reports_other_word == Some(word);
            self.poke(region(number, REGION_NTS) + 4 * word as u32, value ^ u32::from(is_other));
        }
    }

    fn load_buffer(&self) -> u64 {
        u64::from(self.peek(LOAD_BUFFER_HIGH)) << 32 | u64::from(self.peek(LOAD_BUFFER_LOW))
    }

    fn reset(&mut self, number: u8) {
        self.hung.take_if(|hung| *hung == number);
        if self.load.take_if(|(loading, _)| *loading == number).is_some() {
            self.poke(LOAD_STATUS, LOAD_FAILED);
            self.poke(LOAD_ERROR, LOAD_ERROR_PACKETS);
            self.show(number, REGION_BROKEN, [0; 8]);
        }
    }

    fn command_state(&mut self, number: u8, command: u32) {
        if command == STATE_END {
            return self.end_state(number, Err(STATE_ERROR_ENDED));
        }
        self.poke(state(number, STATE_STATUS), STATE_BUSY);
        if !self.faults.state_hangs {
            let outcome = self.do_state(number, command);
            self.end_state(number, outcome);
        }
    }

    fn end_state(&mut self, number: u8, outcome: Result<u32, u32>) {
        let (status, moved, code) = match outcome {
            Ok(moved) => (STATE_DONE, moved, 0),
            Err(code) => (STATE_REFUSED, 0, code),
        };
        self.poke(state(number, STATE_STATUS), status);
        self.poke(state(number, STATE_MOVED), moved);
        self.poke(state(number, STATE_ERROR), code);
    }

    fn do_state(&mut self, number: u8, command: u32) -> Result<u32, u32> {
        let [uid, offset, length, check] = [STATE_UID, STATE_OFFSET, STATE_LENGTH, STATE_CHECK]
            .map(|r| self.peek(state(number, r)));
        let keeps = self.peek(state(number, STATE_BYTES));
        let needs = if command == STATE_ERASE { length } else { STATE_HEAD + keeps };
        if keeps == 0 && command != STATE_ERASE {
            return Err(STATE_ERROR_REGION);
        }
        let end = offset.checked_add(length).filter(|end| *end <= SAVE_AREA_OF_FAKE);
        if command != STATE_CLEAR && (end.is_none() || length < needs) {
            return Err(STATE_ERROR_RANGE);
        }
        let identity = std::array::from_fn(|word| {
            self.peek(region(number, REGION_IDENTITY + 4 * word as u32))
        });
        match command {
            STATE_SAVE => {
                self.saved.insert(offset, (uid, identity));
                self.poke(state(number, STATE_CHECK), STATE_CHECK_OF_FAKE);
            }
            STATE_RESTORE => match self.saved.get(&offset) {
                None => return Err(STATE_ERROR_DAMAGED),
                Some(_) if self.faults.restores_anything => {}
                Some(saved) if *saved != (uid, identity) => return Err(STATE_ERROR_FOREIGN),
                Some(_) if check != STATE_CHECK_OF_FAKE => return Err(STATE_ERROR_DAMAGED),
                Some(_) => {}
            },
            STATE_ERASE => {
                self.saved.remove(&offset);
            }
            STATE_CLEAR => {}
            _ => return Err(STATE_ERROR_RANGE),
        }
        Ok(needs)
    }

    fn load_error(&self) -> Option<u32> {
        let bytes = self.buffers.get(&self.load_buffer());
        let valid = !self.faults.checks_images || bytes.is_some_and(|bytes| is_image(bytes));
        if valid { self.faults.load_error } else { Some(LOAD_ERROR_PACKETS) }
    }

    fn end_load(&mut self, number: u8) {
        self.poke(LOAD_PROGRESS, self.peek(LOAD_BYTES));
        if let Some(code) = self.load_error() {
            self.poke(LOAD_STATUS, LOAD_FAILED);
            self.poke(LOAD_ERROR, code);
            self.show(number, REGION_BROKEN, [0; 8]);
            return;
        }
        self.poke(LOAD_STATUS, LOAD_DONE);
        let mut next = std::array::from_fn(|word| {
            self.peek(region(number, REGION_DIGEST_NEXT + 4 * word as u32))
        });
        if let Some(word) = self.faults.load_leaves_other_word {
            next[word] ^= 1;
        }
        let status = if self.faults.done_but_broken { REGION_BROKEN } else { REGION_LOADED };
        self.show(number, status, next);
    }

    fn configure(&mut self) {
        let low = u64::from(self.peek(CONFIGURE_BUFFER_LOW));
        let buffer = self.buffers.get(&(u64::from(self.peek(CONFIGURE_BUFFER_HIGH)) << 32 | low));
        let is_whole = buffer.is_some_and(|bytes| {
            bytes.len() == self.peek(CONFIGURE_BYTES) as usize
                && snic_tables::configuration::tag(bytes) == self.peek(CONFIGURE_TAG)
        });
        let is_taken = is_whole && !self.faults.refuses_configurations;
        let status = if is_taken { CONFIGURE_DONE } else { CONFIGURE_REFUSED };
        if is_taken {
            self.configured.push((self.peek(CONFIGURE_UID), self.peek(TABLE_VERSION)));
        }
        self.poke(CONFIGURE_STATUS, status);
    }

    fn commit(&mut self, version: u32) {
        if self.faults.ignore_commit {
            return;
        }
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

fn is_writable_in_a_region(at: Address) -> bool {
    let register = at % REGION_PAGE;
    (REGIONS..PACKETS_IN).contains(&at)
        && (register == REGION_CONTROL || (REGION_DIGEST_NEXT..REGION_NTS).contains(&register))
}

const fn is_in_window(at: Address) -> bool {
    WINDOW <= at && at < WINDOW + WINDOW_BYTES
}

const fn word_of(at: Address, bank: Address) -> usize {
    ((at - bank) / 4) as usize
}

impl Registers for FakeCard {
    fn read(&mut self, at: Address) -> Result<u32, CardError> {
        self.count_access()?;
        if !is_register(at) {
            return Err(CardError::NoRegister(at));
        }
        if let Some((low, value)) = &mut self.ticking
            && (at == *low || at == *low + 4)
        {
            let read = if at == *low { *value as u32 } else { (*value >> 32) as u32 };
            *value += 1;
            return Ok(read);
        }
        Ok(match at {
            WINDOW_SELECT => self.windows.select(),
            _ if is_in_window(at) => self.read_window(at - WINDOW),
            SHADOW_BANK.. => self.shadow[word_of(at, SHADOW_BANK)],
            ACTIVE_BANK.. => self.active[word_of(at, ACTIVE_BANK)],
            _ => self.peek(at),
        })
    }

    /// A block in a bank is one access, so that tests that count them stay quick.
    fn read_block(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        if let Some(bank) = self.bank_words(at, words.len()) {
            words.copy_from_slice(bank);
            return self.count_access();
        }
        for (address, word) in (at..).step_by(4).zip(words) {
            *word = self.read(address)?;
        }
        Ok(())
    }

    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        self.count_access()?;
        if !is_register(at) {
            return Err(CardError::NoRegister(at));
        }
        self.writes.push((at, value));
        match at {
            WINDOW_SELECT => self.windows.show(value),
            _ if is_in_window(at) => self.write_window(at - WINDOW, value),
            SHADOW_BANK.. if self.commit_ends.is_some() => {}
            SHADOW_BANK.. => self.shadow[word_of(at, SHADOW_BANK)] = value,
            BOOT_ID if self.peek(at) == 0 => self.poke(at, value),
            COMMIT => self.commit(value),
            ABORT => {
                assert_ne!(self.peek(COMMIT_STATUS), COMMIT_BUSY, "packets still read that bank");
                self.shadow.clone_from(&self.active);
                self.begin_copy(self.abort_takes);
            }
            LOAD_REGION..LOAD_START => self.poke(at, value),
            LOAD_START => self.start_load(),
            CONFIGURE_BUFFER_LOW..CONFIGURE_START => self.poke(at, value),
            CONFIGURE_START => self.configure(),
            DAG_LATENCY..ACTIVE_BANK if at % DAG_LATENCY_ROW == DAG_LATENCY_EXPONENT => {
                self.poke(at, value);
            }
            STATES..STATES_END_OF_FAKE => {
                let (number, register) = ((at - STATES) / STATE_PAGE, (at - STATES) % STATE_PAGE);
                match register {
                    STATE_COMMAND => self.command_state(number as u8, value),
                    STATE_UID | STATE_OFFSET | STATE_LENGTH | STATE_CHECK => self.poke(at, value),
                    _ => {}
                }
            }
            _ if is_writable_in_a_region(at) && at % REGION_PAGE == REGION_CONTROL => {
                self.poke(at, value & !REGION_RESET);
                if value & REGION_RESET != 0 && !self.faults.ignores_resets {
                    self.reset(((at - REGIONS) / REGION_PAGE) as u8);
                }
            }
            _ if is_writable_in_a_region(at) => self.poke(at, value),
            _ => {}
        }
        Ok(())
    }
}

impl FakeCard {
    fn read_window(&mut self, register: Address) -> u32 {
        match register {
            NT_STATUS if self.window_busy > 0 => {
                self.window_busy -= 1;
                NT_BUSY
            }
            NT_STATUS if self.window_refused => NT_REFUSED,
            _ => self.windows.read(register),
        }
    }

    fn write_window(&mut self, register: Address, value: u32) {
        if register == NT_COMMAND {
            self.window_busy = self.faults.window_busy;
            self.window_refused = self.faults.window_refuses == Some(value);
        }
        if register != NT_COMMAND || !self.window_refused {
            self.windows.write(register, value);
        }
    }

    /// A run of words that lies in one bank.
    fn bank_words(&self, at: Address, count: usize) -> Option<&[u32]> {
        let (bank, words) = match at {
            SHADOW_BANK.. => (SHADOW_BANK, &self.shadow),
            ACTIVE_BANK.. => (ACTIVE_BANK, &self.active),
            _ => return None,
        };
        let first = word_of(at, bank);
        words.get(first..first + count)
    }
}

impl Buffers for FakeCard {
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        self.count_access()?;
        if self.faults.no_memory {
            return Err(CardError::NoMemory { bytes: bytes.len() });
        }
        let address = 0x7_0000_0000 + (self.accesses << 12);
        self.buffers.insert(address, bytes.to_vec());
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
        self.finish_due_work();
        Ok(())
    }
}
