//! Keys and values of the program's maps, as bytes: `kernel/flows.c` has the same as structures.

use snic_card_soft::HeaderRule;

pub(crate) const KEY_BYTES: usize = 56;
pub(crate) const RULE_BYTES: usize = 80;
pub(crate) const PROFILE_BYTES: usize = 32;
pub(crate) const USE_BYTES: usize = 24;
pub(crate) const COUNTS_BYTES: usize = 48;

/// Flags of a profile.
const VALID: u32 = 1;
const ORDERED: u32 = 2;
const HELD_BACK: u32 = 4;

/// Flags of a rule.
const TO_PEER: u32 = 1;
const REWRITES: u32 = 2;

/// Device that packets of a flow leave by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// They are sent on the device with this index.
    Device(u32),
    /// They arrive at the other end of the veth device with this index, in another namespace, without being sent on this one. Only for
    /// packets whose destination station is that end's, for nothing looks at it there.
    Peer(u32),
}

/// Rule of a flow, with what the program needs to follow it.
#[derive(Debug, Clone, Copy)]
pub struct KernelRule {
    /// Change of headers.
    pub headers: HeaderRule,
    /// Index of the device that its packets come in by.
    pub port: u32,
    pub exit: Exit,
    /// Row of the DAG.
    pub row: u16,
    /// Generation of the row that the rule is for.
    pub generation: u32,
    /// Version of the card's tables that the rule is for.
    pub version: u32,
    /// Place of its counts; of no other rule that is in use.
    pub slot: u32,
}

/// Traffic that a DAG may send by the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DagProfile {
    /// Generation of the row: rules with another one do not hold.
    pub generation: u32,
    /// Rate of the bucket in kbit/s, as the card's rate registers have it. Zero has all packets of the DAG take the slow path.
    pub rate_kbps: u32,
    /// Depth of the bucket.
    pub burst_bytes: u32,
}

/// Counts of a DAG's packets, as they are on a wire: a merged packet counts as its segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DagCounts {
    /// Sent on by the program.
    pub packets: u64,
    pub bytes: u64,
    /// Sent to the slow device though they had a rule: the bucket had too little.
    pub beyond_packets: u64,
    pub beyond_bytes: u64,
    /// Dropped because they could not be changed.
    pub failed: u64,
    /// Dropped while they were held back.
    pub held_back: u64,
}

/// Use of a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleUse {
    pub packets: u64,
    pub bytes: u64,
    /// Time of the last packet on the system's monotonic clock; 0 before the first.
    pub last_nanos: u64,
}

/// Bytes that are written one after the other.
struct Writer<const BYTES: usize> {
    bytes: [u8; BYTES],
    at: usize,
}

impl<const BYTES: usize> Writer<BYTES> {
    fn new() -> Self {
        Self { bytes: [0; BYTES], at: 0 }
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    /// Skips to an offset, over zeros.
    fn at(self, at: usize) -> Self {
        Self { at, ..self }
    }

    fn word(self, word: u32) -> Self {
        self.put(&word.to_ne_bytes())
    }
}

impl KernelRule {
    /// Whether the program can follow it: it reads no VLAN tags, and leaves frames for several stations to the card.
    pub fn is_for_kernel(&self) -> bool {
        let key = self.headers.before();
        key.tags() == 0 && key.stations()[0] & 1 == 0
    }

    pub(crate) fn key(&self) -> [u8; KEY_BYTES] {
        let key = self.headers.before();
        let version = if key.is_ipv4() { 4 } else { 6 };
        let begun = Writer::new().word(self.port).put(key.stations());
        let begun = begun.put(&[key.protocol(), version]);
        begun.at(20).put(key.addresses()).at(52).put(key.ports()).bytes
    }

    pub(crate) fn value(&self) -> [u8; RULE_BYTES] {
        let (before, after) = (self.headers.before(), self.headers.after());
        let (out, to_peer) = match self.exit {
            Exit::Device(index) => (index, 0),
            Exit::Peer(index) => (index, TO_PEER),
        };
        let is_same = (before.addresses(), before.ports()) == (after.addresses(), after.ports());
        let rewrites = if is_same { 0 } else { REWRITES };
        let words = [
            self.version,
            self.generation,
            u32::from(self.row),
            self.slot,
            out,
            to_peer | rewrites,
            added(before.addresses(), after.addresses()),
            added(before.ports(), after.ports()),
        ];
        let begun = words.into_iter().fold(Writer::new(), Writer::word);
        let begun = begun.put(after.stations()).put(after.addresses());
        begun.at(76).put(after.ports()).bytes
    }
}

/// The sum that a replacement adds to a ones' complement sum over words in the processor's own order, in which the kernel adds them up
/// (RFC 1071, 2 B).
fn added(before: &[u8], after: &[u8]) -> u32 {
    let words = |bytes: &[u8]| -> Vec<u16> {
        bytes.chunks_exact(2).map(|word| u16::from_ne_bytes([word[0], word[1]])).collect()
    };
    let taken: u32 = words(before).into_iter().map(|word| u32::from(!word)).sum();
    let given: u32 = words(after).into_iter().map(u32::from).sum();
    taken + given
}

impl DagProfile {
    /// Time of a byte in 2⁻¹⁶ ns, rounded up: a bucket never fills faster than its rate.
    fn byte_time(&self) -> u64 {
        let nanos_at_one_kbps = 8_000_000_u64 << 16;
        match u64::from(self.rate_kbps) {
            0 => 0,
            kbps => nanos_at_one_kbps.div_ceil(kbps),
        }
    }

    /// The profile of a DAG whose rules hold as long as its packets keep to it.
    pub(crate) fn value(&self) -> [u8; PROFILE_BYTES] {
        self.with(0, 0)
    }

    /// The profile of a DAG whose rules hold until more than `slow` of its packets went to the card.
    pub(crate) fn ordered(&self, slow: u64) -> [u8; PROFILE_BYTES] {
        self.with(ORDERED, slow)
    }

    /// The profile of a DAG whose packets are dropped.
    pub(crate) fn held_back(&self) -> [u8; PROFILE_BYTES] {
        self.with(HELD_BACK, 0)
    }

    fn with(&self, flags: u32, slow: u64) -> [u8; PROFILE_BYTES] {
        let time = self.byte_time();
        let flags = if time > 0 { flags | VALID } else { 0 };
        // The program's unit for whole packets and the bucket is 2⁻⁶ ns.
        let whole = (u128::from(time) * u128::from(self.burst_bytes)) >> 10;
        let whole = u64::try_from(whole).unwrap_or(u64::MAX);
        let begun = Writer::new().word(self.generation).word(flags);
        [time, whole, slow]
            .iter()
            .fold(begun, |begun, number| begun.put(&number.to_ne_bytes()))
            .bytes
    }
}

/// The `index`th number of some bytes.
fn number(bytes: &[u8], index: usize) -> u64 {
    let number = bytes.get(8 * index..8 * index + 8).and_then(|bytes| bytes.try_into().ok());
    number.map_or(0, u64::from_ne_bytes)
}

impl DagCounts {
    /// The sum over all processors.
    pub(crate) fn of<'a>(each: impl IntoIterator<Item = &'a [u8; COUNTS_BYTES]>) -> Self {
        each.into_iter().fold(Self::default(), |sum, bytes| Self {
            packets: sum.packets + number(bytes, 0),
            bytes: sum.bytes + number(bytes, 1),
            beyond_packets: sum.beyond_packets + number(bytes, 2),
            beyond_bytes: sum.beyond_bytes + number(bytes, 3),
            failed: sum.failed + number(bytes, 4),
            held_back: sum.held_back + number(bytes, 5),
        })
    }
}

impl RuleUse {
    pub(crate) fn of(bytes: &[u8; USE_BYTES]) -> Self {
        let [packets, bytes, last_nanos] = [0, 1, 2].map(|index| number(bytes, index));
        Self { packets, bytes, last_nanos }
    }
}
