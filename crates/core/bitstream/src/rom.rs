//! The chain ROM of test images: what stands there in place of logic, and what a simulated region
//! makes of it.
//!
//! ```text
//! word 0        magic "SNIC"
//! word 1        version << 16 | number of slots (1 to 8)
//! words 2 + 4i  slot i: NT code, latency in cycles, bandwidth in kbit/s, flags (bit 0: payload;
//!               bits 8 to 31: state for one DAG, in units of 64 bytes)
//! versions 3, 4 as versions 1 and 2, but a slot has two words more: the packets per second that it takes (0: no limit),
//!               and its traffic with the on-board memory (bits 0 to 23: bytes for each packet; bits 24 to 31: for
//!               each byte of it)
//! versions 2, 4 four words: the identity of the build; in versions 1 and 3 it is that of the NTs
//! last word     CRC-32 of all words before it
//! ```
//!
//! At the beginning of the first frame it is a claim: an upload that has one must agree with it. No flow
//! controls what stands there, so a bitstream of a vendor's tools has none. Then a simulated region looks
//! for it in all frames, as a real one would have a ROM somewhere in its logic.

use std::num::NonZeroU32;

use snic_domain::limits::{CHAIN_SLOTS_MAX, NT_MEMORY_BYTES_PER_PACKET_MAX, STATE_UNIT};
use snic_domain::{
    Bandwidth, ByteSize, ChainIdentity, Cycles, MemoryTraffic, NtCode, NtType, NtTypeId,
    ReportedChain, Traffic,
};

use crate::crc::crc32;
use crate::{FrameAddress, FrameKind, FrameWrite, InvalidBitstream, parse};

const MAGIC: u32 = u32::from_be_bytes(*b"SNIC");
/// The identity is that of the NTs.
const VERSION: u32 = 1;
/// The identity is in it.
const VERSION_IDENTITY: u32 = 2;
/// Added to the version where slots state limits besides their bandwidth.
const VERSION_LIMITS: u32 = 2;
const IDENTITY_WORDS: usize = 4;
const HEAD_WORDS: usize = 2;
const SLOT_WORDS: usize = 4;
/// Words of a slot that states limits besides its bandwidth.
const LIMITED_SLOT_WORDS: usize = 6;
const MEMORY_BYTE_SHIFT: u32 = 24;
const FLAG_PAYLOAD: u32 = 1;
const STATE_SHIFT: u32 = 8;
const STATE_UNITS_MAX: u32 = u32::MAX >> STATE_SHIFT;

/// Self-description of a loaded chain: its slots, in the order packets pass; 1 to 8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainRom {
    slots: Vec<SlotRom>,
    identity: Option<ChainIdentity>,
}

/// Self-description of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRom {
    /// Code of the NT; never zero.
    pub code: NtCode,
    /// Cycles a packet spends in it.
    pub latency_cycles: u32,
    /// Bandwidth that it serves at most, in kbit/s; never zero.
    pub bandwidth_kbps: u32,
    /// Whether it reads payloads; else headers only.
    pub payload: bool,
    /// State that it keeps for one DAG, in units of 64 bytes; under 2^24. More is cut off.
    pub state_units: u32,
    /// Packets per second that it takes at most; `None`: only its bandwidth limits it.
    pub packets_per_second: Option<NonZeroU32>,
    /// Its traffic with the on-board memory; under 2^24 bytes for each packet. More is cut off.
    pub memory_traffic: MemoryTraffic,
}

/// Fault of a chain ROM, or of a chain that should be written into one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRom {
    /// Something else stands there.
    #[error("there is no chain ROM: {found:#010x} instead of {MAGIC:#010x}")]
    Magic { found: u32 },
    /// None of the frames has one.
    #[error("none of the frames holds a chain ROM")]
    Missing,
    /// Several, and not the same.
    #[error("the frames hold several chain ROMs, which differ")]
    Ambiguous,
    /// It may be written again, with something else.
    #[error(
        "the frame of the chain ROM may be written again by the frames from {address} on, so the file \
         does not say what the region will hold"
    )]
    Rewritten {
        /// Where those begin.
        address: FrameAddress,
    },
    /// A version that is not known.
    #[error(
        "the chain ROM has version {version}; versions {VERSION} to {} are known",
        VERSION_IDENTITY + VERSION_LIMITS
    )]
    Version { version: u32 },
    /// Too few or too many slots.
    #[error("a chain has 1 to {CHAIN_SLOTS_MAX} NTs, not {slots}")]
    Slots { slots: usize },
    /// It ends early.
    #[error("the chain ROM needs {needed} words, there are {words}")]
    Cut { needed: usize, words: usize },
    /// The CRC does not fit.
    #[error("the chain ROM is damaged: its CRC is {found:#010x}, its words give {expected:#010x}")]
    Crc {
        /// CRC that the ROM states.
        found: u32,
        /// CRC that its words give.
        expected: u32,
    },
    /// A slot that cannot be.
    #[error("slot {slot} of the chain ROM has no valid {field}")]
    Slot {
        /// Number of the slot, from 0.
        slot: usize,
        /// Wrong field: `code`, `latency`, `bandwidth` or `flags`.
        field: &'static str,
    },
    /// An NT that a slot cannot describe.
    #[error("NT {nt} cannot be in a chain: its {field} does not fit a chain ROM's slot")]
    Nt {
        nt: NtTypeId,
        /// Field that does not fit: `code`, `latency`, `bandwidth` or `state`.
        field: &'static str,
    },
}

/// Why it cannot be said what a bitstream holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotIdentified {
    /// It is no valid bitstream.
    #[error(transparent)]
    Bitstream(#[from] InvalidBitstream),
    /// It has no valid chain ROM.
    #[error(transparent)]
    Rom(#[from] InvalidRom),
}

impl SlotRom {
    /// The slot of an NT. Its bandwidth is rounded down to kbit/s.
    ///
    /// # Errors
    ///
    /// [`InvalidRom::Nt`] if a value of the NT does not fit its field of the ROM.
    pub fn of(nt: &NtType) -> Result<Self, InvalidRom> {
        let invalid = |field| InvalidRom::Nt { nt: nt.id.clone(), field };
        let code = nt.id.code();
        let kbps = nt.bandwidth_max.get() / Bandwidth::GRANULARITY.get();
        let units = nt.state.get().div_ceil(STATE_UNIT.get());
        let memory_traffic = nt.memory_traffic;
        if memory_traffic.bytes_per_packet > NT_MEMORY_BYTES_PER_PACKET_MAX {
            return Err(invalid("memory traffic"));
        }
        let Some(state_units) = u32::try_from(units).ok().filter(|n| *n <= STATE_UNITS_MAX) else {
            return Err(invalid("state"));
        };
        match (u32::try_from(nt.latency.get()), u32::try_from(kbps)) {
            _ if code.0 == 0 => Err(invalid("code")),
            (Err(_), _) => Err(invalid("latency")),
            (_, Err(_) | Ok(0)) => Err(invalid("bandwidth")),
            (Ok(latency_cycles), Ok(bandwidth_kbps)) => {
                let payload = nt.traffic == Traffic::Payload;
                let packets_per_second = nt.packets_per_second_max;
                Ok(Self {
                    code,
                    latency_cycles,
                    bandwidth_kbps,
                    payload,
                    state_units,
                    packets_per_second,
                    memory_traffic,
                })
            }
        }
    }

    /// Cycles a packet spends in it.
    pub const fn latency(&self) -> Cycles {
        Cycles::new(self.latency_cycles as u64)
    }

    /// State that it keeps for one DAG.
    pub const fn state(&self) -> ByteSize {
        ByteSize::from_bytes((self.state_units & STATE_UNITS_MAX) as u64 * STATE_UNIT.get())
    }

    /// Bandwidth that it serves at most.
    pub const fn bandwidth_max(&self) -> Bandwidth {
        Bandwidth::from_bps(self.bandwidth_kbps as u64 * Bandwidth::GRANULARITY.get())
    }

    /// Whether it states more limits than its bandwidth.
    const fn has_limits(&self) -> bool {
        self.packets_per_second.is_some() || !self.memory_traffic.is_none()
    }

    fn encode(&self, words: &mut Vec<u32>, with_limits: bool) {
        let flags = if self.payload { FLAG_PAYLOAD } else { 0 };
        let flags = flags | self.state_units << STATE_SHIFT;
        words.extend([self.code.0, self.latency_cycles, self.bandwidth_kbps, flags]);
        if with_limits {
            let MemoryTraffic { bytes_per_packet, bytes_per_packet_byte } = self.memory_traffic;
            let packet = bytes_per_packet & NT_MEMORY_BYTES_PER_PACKET_MAX;
            let byte = u32::from(bytes_per_packet_byte) << MEMORY_BYTE_SHIFT;
            words.extend([self.packets_per_second.map_or(0, NonZeroU32::get), byte | packet]);
        }
    }

    fn decode(words: &[u32], slot: usize) -> Result<Self, InvalidRom> {
        let invalid = |field| InvalidRom::Slot { slot, field };
        let &[code, latency_cycles, bandwidth_kbps, flags, ref limits @ ..] = words else {
            return Err(invalid("length"));
        };
        let [packets, traffic] = *limits.first_chunk().unwrap_or(&[0; 2]);
        let packets_per_second = NonZeroU32::new(packets);
        let memory_traffic = MemoryTraffic {
            bytes_per_packet: traffic & NT_MEMORY_BYTES_PER_PACKET_MAX,
            bytes_per_packet_byte: (traffic >> MEMORY_BYTE_SHIFT) as u8,
        };
        if code == 0 {
            return Err(invalid("code"));
        }
        if bandwidth_kbps == 0 {
            return Err(invalid("bandwidth"));
        }
        if flags & !FLAG_PAYLOAD & ((1 << STATE_SHIFT) - 1) != 0 {
            return Err(invalid("flags"));
        }
        let (payload, state_units) = (flags & FLAG_PAYLOAD != 0, flags >> STATE_SHIFT);
        let code = NtCode(code);
        Ok(Self {
            code,
            latency_cycles,
            bandwidth_kbps,
            payload,
            state_units,
            packets_per_second,
            memory_traffic,
        })
    }
}

impl ChainRom {
    /// From its slots: 1 to 8, none with a code or a bandwidth of zero.
    ///
    /// # Errors
    ///
    /// [`InvalidRom`] for any other number of slots, or for a slot with a code or a bandwidth of zero.
    pub fn new(slots: Vec<SlotRom>) -> Result<Self, InvalidRom> {
        check_count(slots.len())?;
        for (slot, rom) in slots.iter().enumerate() {
            if rom.code.0 == 0 {
                return Err(InvalidRom::Slot { slot, field: "code" });
            }
            if rom.bandwidth_kbps == 0 {
                return Err(InvalidRom::Slot { slot, field: "bandwidth" });
            }
        }
        Ok(Self { slots, identity: None })
    }

    /// ROM of a chain of NTs.
    ///
    /// # Errors
    ///
    /// [`InvalidRom`] unless the chain has 1 to 8 NTs whose values fit the ROM.
    pub fn of(chain: &[&NtType]) -> Result<Self, InvalidRom> {
        check_count(chain.len())?;
        Self::new(chain.iter().map(|nt| SlotRom::of(nt)).collect::<Result<_, _>>()?)
    }

    /// The same chain of this build.
    pub fn of_build(self, identity: ChainIdentity) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Report of a region with it.
    pub fn reported(&self) -> ReportedChain {
        let codes = || self.slots.iter().map(|slot| slot.code);
        let mut nts = [NtCode::default(); CHAIN_SLOTS_MAX];
        nts.iter_mut().zip(codes()).for_each(|(nt, code)| *nt = code);
        let identity = self.identity.unwrap_or_else(|| ChainIdentity::of_codes(codes()));
        ReportedChain { nts, identity }
    }

    /// Its slots, in the order packets pass.
    pub fn slots(&self) -> &[SlotRom] {
        &self.slots
    }

    /// The words that a region exposes.
    pub fn encode(&self) -> Vec<u32> {
        // At most 8 slots.
        let with_limits = self.slots.iter().any(SlotRom::has_limits);
        let version = if self.identity.is_some() { VERSION_IDENTITY } else { VERSION };
        let version = version + if with_limits { VERSION_LIMITS } else { 0 };
        let mut words = vec![MAGIC, version << 16 | self.slots.len() as u32];
        self.slots.iter().for_each(|slot| slot.encode(&mut words, with_limits));
        words.extend(self.identity.iter().flat_map(|identity| identity.words()));
        words.push(crc32(&words));
        words
    }

    /// Reads what a region exposes. Words behind the ROM are ignored.
    ///
    /// # Errors
    ///
    /// [`InvalidRom`] if the words are cut off, do not begin with the magic number, have a wrong CRC, or
    /// contain invalid slots.
    pub fn decode(words: &[u32]) -> Result<Self, InvalidRom> {
        let &[magic, head, ..] = words else {
            return Err(InvalidRom::Cut { needed: HEAD_WORDS, words: words.len() });
        };
        if magic != MAGIC {
            return Err(InvalidRom::Magic { found: magic });
        }
        let (slot_words, version) = match head >> 16 {
            version if version > VERSION_IDENTITY => (LIMITED_SLOT_WORDS, version - VERSION_LIMITS),
            version => (SLOT_WORDS, version),
        };
        let identity_words = match version {
            VERSION => 0,
            VERSION_IDENTITY => IDENTITY_WORDS,
            _ => return Err(InvalidRom::Version { version: head >> 16 }),
        };
        let count = (head & 0xFFFF) as usize;
        check_count(count)?;
        let identity_at = HEAD_WORDS + count * slot_words;
        let crc_at = identity_at + identity_words;
        let Some(&found) = words.get(crc_at) else {
            return Err(InvalidRom::Cut { needed: crc_at + 1, words: words.len() });
        };
        let expected = crc32(&words[..crc_at]);
        if found != expected {
            return Err(InvalidRom::Crc { found, expected });
        }
        let slots = words[HEAD_WORDS..identity_at].chunks_exact(slot_words).enumerate();
        let slots = slots.map(|(i, slot)| SlotRom::decode(slot, i)).collect::<Result<_, _>>()?;
        let identity = <[u32; IDENTITY_WORDS]>::try_from(&words[identity_at..crc_at]).ok();
        Ok(Self { slots, identity: identity.map(ChainIdentity::from_words) })
    }
}

fn check_count(slots: usize) -> Result<(), InvalidRom> {
    if (1..=CHAIN_SLOTS_MAX).contains(&slots) { Ok(()) } else { Err(InvalidRom::Slots { slots }) }
}

/// Most words of a ROM.
pub(crate) const ROM_WORDS_MAX: usize =
    HEAD_WORDS + CHAIN_SLOTS_MAX * LIMITED_SLOT_WORDS + IDENTITY_WORDS + 1;

/// Content of a simulated region after a `.bit` file: the claim in its first frame, or else the one chain
/// ROM in all its frames. The whole file is checked, as [`parse`] does. Time O(bytes).
///
/// # Errors
///
/// [`NotIdentified`] if the file is invalid, or has no valid ROM or several that differ.
pub fn identify(bytes: &[u8]) -> Result<ChainRom, NotIdentified> {
    let file = parse(bytes)?;
    Ok(match claim_of(&file)? {
        Some(rom) => rom,
        None => search(&file)?,
    })
}

/// The one ROM in the frames of content. What looks like the beginning of one and is none is noise.
fn search(file: &crate::BitFile<'_>) -> Result<ChainRom, InvalidRom> {
    let mut found: Option<ChainRom> = None;
    for write in file.writes.iter().filter(|write| write.kind == FrameKind::Content) {
        let words: Vec<u32> = write.words().collect();
        let starts = words.iter().enumerate().filter(|(_, word)| **word == MAGIC);
        for rom in starts.filter_map(|(at, _)| ChainRom::decode(&words[at..]).ok()) {
            if found.as_ref().is_some_and(|found| *found != rom) {
                return Err(InvalidRom::Ambiguous);
            }
            found = Some(rom);
        }
    }
    found.ok_or(InvalidRom::Missing)
}

/// The ROM at the beginning of the first frame of content, if a ROM begins there.
pub(crate) fn claim_of(file: &crate::BitFile<'_>) -> Result<Option<ChainRom>, InvalidRom> {
    let mut contents = file.writes.iter().filter(|write| write.kind == FrameKind::Content);
    let Some(first) = contents.next() else { return Ok(None) };
    let words: Vec<u32> = first.words().take(ROM_WORDS_MAX).collect();
    if words.first() != Some(&MAGIC) {
        return Ok(None);
    }
    let again = contents.find(|write| {
        let is_same = write.address == first.address
            && write.words().take(ROM_WORDS_MAX).eq(words.iter().copied());
        may_reach(write, first) && !is_same
    });
    match again {
        Some(write) => Err(InvalidRom::Rewritten { address: write.address }),
        None => ChainRom::decode(&words).map(Some),
    }
}

/// Whether `write` may write the first frame of `first` again. How many frames a column has is not
/// known here, so each may have a single one.
fn may_reach(write: &FrameWrite<'_>, first: &FrameWrite<'_>) -> bool {
    let (from, to) = (write.address, first.address);
    if write.die != first.die || from.block_type() != to.block_type() || from > to {
        return false;
    }
    let least = match (to.row() - from.row(), to.column().saturating_sub(from.column())) {
        (0, 0) => usize::from(to.minor() - from.minor()),
        (0, columns) => columns.into(),
        (rows, _) => rows.into(),
    };
    write.frames() > least
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::FRAME_WORDS;

    fn slot() -> impl Strategy<Value = SlotRom> {
        let words = (1u32.., any::<u32>(), 1u32.., any::<bool>(), 0..=STATE_UNITS_MAX);
        let packets = prop_oneof![Just(0), any::<u32>()];
        let traffic = (0..=NT_MEMORY_BYTES_PER_PACKET_MAX, any::<u8>());
        let traffic = prop_oneof![Just((0, 0)), traffic];
        (words, packets, traffic).prop_map(|(words, packets, traffic)| {
            let (code, latency_cycles, bandwidth_kbps, payload, state_units) = words;
            SlotRom {
                code: NtCode(code),
                latency_cycles,
                bandwidth_kbps,
                payload,
                state_units,
                packets_per_second: NonZeroU32::new(packets),
                memory_traffic: MemoryTraffic {
                    bytes_per_packet: traffic.0,
                    bytes_per_packet_byte: traffic.1,
                },
            }
        })
    }

    fn aes() -> SlotRom {
        SlotRom {
            code: NtTypeId::new("aes").expect("valid").code(),
            latency_cycles: 44,
            bandwidth_kbps: 30_000_000,
            payload: true,
            state_units: 0,
            packets_per_second: None,
            memory_traffic: MemoryTraffic::default(),
        }
    }

    /// A ROM without such a limit has the words that it had before there was one.
    #[test]
    fn limits_are_further_words_of_every_slot() {
        let memory_traffic = MemoryTraffic { bytes_per_packet: 64, bytes_per_packet_byte: 2 };
        let packets_per_second = NonZeroU32::new(20_000_000);
        let limited = SlotRom { packets_per_second, memory_traffic, ..aes() };
        let identity = ChainIdentity::of_codes([NtCode(7)]);
        let plain = ChainRom::new(vec![aes(), aes()]).expect("valid");
        let rom = ChainRom::new(vec![aes(), limited]).expect("valid");
        for (rom, version, words) in [
            (plain.clone(), 1, 2 + 2 * 4 + 1),
            (plain.of_build(identity), 2, 2 + 2 * 4 + 4 + 1),
            (rom.clone(), 3, 2 + 2 * 6 + 1),
            (rom.clone().of_build(identity), 4, 2 + 2 * 6 + 4 + 1),
        ] {
            let encoded = rom.encode();
            assert_eq!((encoded[1] >> 16, encoded.len()), (version, words));
            assert_eq!(ChainRom::decode(&encoded), Ok(rom));
        }
        let encoded = rom.encode();
        assert_eq!(
            (&encoded[6..8], &encoded[12..14]),
            (&[0, 0][..], &[20_000_000, 2 << 24 | 64][..])
        );
        for version in [0, 5] {
            let mut other = encoded.clone();
            other[1] = version << 16 | 2;
            assert_eq!(ChainRom::decode(&other), Err(InvalidRom::Version { version }));
        }
    }

    #[test]
    fn state_is_counted_in_whole_beats_and_has_its_limit() {
        let nt = |bytes| NtType {
            state: ByteSize::from_bytes(bytes),
            traffic: Traffic::Payload,
            ..NtType::new(
                NtTypeId::new("kv").expect("valid"),
                Bandwidth::from_gbps(1),
                Cycles::new(1),
                snic_domain::Area::default(),
            )
        };
        let slot = SlotRom::of(&nt(65)).expect("it fits");
        assert_eq!((slot.state_units, slot.state().get()), (2, 128));
        let rom = ChainRom::new(vec![slot]).expect("valid");
        assert_eq!(rom.encode()[5], 2 << 8 | 1);
        assert_eq!(ChainRom::decode(&rom.encode()), Ok(rom));
        let most = 64 * u64::from(STATE_UNITS_MAX);
        assert!(SlotRom::of(&nt(most)).is_ok());
        let moving = |bytes_per_packet| {
            let memory_traffic = MemoryTraffic { bytes_per_packet, bytes_per_packet_byte: 255 };
            SlotRom::of(&NtType { memory_traffic, ..nt(0) })
        };
        assert!(moving(NT_MEMORY_BYTES_PER_PACKET_MAX).is_ok());
        assert!(moving(NT_MEMORY_BYTES_PER_PACKET_MAX + 1).is_err());
        let error = SlotRom::of(&nt(most + 1)).expect_err("no bits for it");
        assert!(matches!(error, InvalidRom::Nt { field: "state", .. }), "{error}");
    }

    #[test]
    fn the_words_of_a_chain_of_one_are_fixed() {
        let rom = ChainRom::new(vec![aes()]).expect("valid");
        // The code is the beginning of SHA-256("aes"); the CRC was computed with zlib.
        let golden = [0x534E_4943, 0x0001_0001, 0x9899_F1FE, 44, 0x01C9_C380, 1, 0xF00D_B0C1];
        assert_eq!(rom.encode(), golden);
        assert_eq!(rom.slots()[0].bandwidth_max(), Bandwidth::from_gbps(30));
        assert_eq!(rom.slots()[0].latency(), Cycles::new(44));
    }

    #[test]
    fn the_largest_rom_fits_in_one_frame() {
        let limited = SlotRom { packets_per_second: NonZeroU32::new(1), ..aes() };
        let rom = ChainRom::new(vec![limited; CHAIN_SLOTS_MAX]).expect("valid");
        let rom = rom.of_build(ChainIdentity::from_words([1, 2, 3, 4]));
        assert_eq!(rom.encode().len(), ROM_WORDS_MAX);
        assert_eq!(ChainRom::decode(&rom.encode()), Ok(rom));
        const { assert!(ROM_WORDS_MAX <= FRAME_WORDS) };
    }

    #[test]
    fn each_damage_has_its_error() {
        let good = ChainRom::new(vec![aes(), aes()]).expect("valid").encode();
        let with = |at: usize, word: u32| {
            let mut words = good.clone();
            words[at] = word;
            ChainRom::decode(&words)
        };
        let resealed = |at: usize, word: u32| {
            let mut words = good.clone();
            words[at] = word;
            words.pop();
            words.push(crc32(&words));
            ChainRom::decode(&words)
        };
        assert_eq!(with(0, 7), Err(InvalidRom::Magic { found: 7 }));
        assert_eq!(with(1, 5 << 16 | 2), Err(InvalidRom::Version { version: 5 }));
        assert_eq!(with(1, 3 << 16 | 2), Err(InvalidRom::Cut { needed: 15, words: 11 }));
        assert_eq!(with(1, 2 << 16 | 2), Err(InvalidRom::Cut { needed: 15, words: 11 }));
        assert_eq!(with(1, 1 << 16), Err(InvalidRom::Slots { slots: 0 }));
        assert_eq!(with(1, 1 << 16 | 9), Err(InvalidRom::Slots { slots: 9 }));
        assert_eq!(with(1, 1 << 16 | 3), Err(InvalidRom::Cut { needed: 15, words: 11 }));
        assert!(matches!(with(3, 45), Err(InvalidRom::Crc { .. })));
        assert_eq!(resealed(6, 0), Err(InvalidRom::Slot { slot: 1, field: "code" }));
        assert_eq!(resealed(4, 0), Err(InvalidRom::Slot { slot: 0, field: "bandwidth" }));
        assert_eq!(resealed(5, 3), Err(InvalidRom::Slot { slot: 0, field: "flags" }));
        assert_eq!(ChainRom::decode(&[]), Err(InvalidRom::Cut { needed: 2, words: 0 }));
    }

    #[test]
    fn a_rom_that_could_not_be_read_back_is_not_made() {
        assert_eq!(ChainRom::new(Vec::new()), Err(InvalidRom::Slots { slots: 0 }));
        assert_eq!(ChainRom::new(vec![aes(); 9]), Err(InvalidRom::Slots { slots: 9 }));
        for (field, bad) in [
            ("code", SlotRom { code: NtCode(0), ..aes() }),
            ("bandwidth", SlotRom { bandwidth_kbps: 0, ..aes() }),
        ] {
            let error = Err(InvalidRom::Slot { slot: 1, field });
            assert_eq!(ChainRom::new(vec![aes(), bad]), error);
        }
    }

    proptest! {
        #[test]
        fn encoding_round_trips(slots in prop::collection::vec(slot(), 1..=8), tail in 0usize..70) {
            let rom = ChainRom::new(slots).expect("1 to 8 valid slots");
            let mut words = rom.encode();
            words.extend(vec![0xDEAD_BEEF; tail]);
            prop_assert_eq!(ChainRom::decode(&words), Ok(rom));
        }

        #[test]
        fn one_flipped_bit_is_found(slots in prop::collection::vec(slot(), 1..=8), at: prop::sample::Index, bit in 0u32..32) {
            let mut words = ChainRom::new(slots).expect("1 to 8 valid slots").encode();
            let at = at.index(words.len());
            words[at] ^= 1 << bit;
            prop_assert!(ChainRom::decode(&words).is_err());
        }

        #[test]
        fn any_words_are_decoded_or_refused(words in prop::collection::vec(any::<u32>(), 0..50)) {
            if let Ok(rom) = ChainRom::decode(&words) {
                prop_assert_eq!(&rom.encode()[..], &words[..rom.encode().len()]);
            }
        }
    }
}
