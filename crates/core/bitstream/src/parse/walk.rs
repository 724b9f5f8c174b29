//! The walk: what the registers of each die hold while the packets pass.

use super::error::{InvalidBitstream, UnmaskedReason};
use super::{FrameKind, FrameWrite, WriteForm};
use crate::configuration_crc::of_packets;
use crate::packet::command::{self, Reach};
use crate::packet::{
    BUS_WIDTH, COR0_PARTIAL, CTL0_ALLOWED, CTL0_RESET_MASK, CTL1_ALLOWED, CTL1_MASK_FRAMES,
    DIES_MAX, FRAME_WORDS, FrameAddress, LEAD_WORDS_MAX, MFWR_WORDS_MAX, NOOP, PAD, Packet,
    Register, SYNC,
};

/// Packets before the IDCODE at most: options of the whole part, about a dozen.
const LEAD_PACKETS_MAX: usize = 256;

/// Findings of the walk, on all dies.
#[derive(Debug, Default)]
pub(super) struct WalkFindings<'a> {
    pub(super) idcode: Option<u32>,
    pub(super) writes: Vec<FrameWrite<'a>>,
    pub(super) dies: Vec<u8>,
    registers: [Control; DIES_MAX as usize],
}

impl<'a> WalkFindings<'a> {
    /// The last frame of the run `template` once more, at `address`.
    fn repeat(
        &mut self,
        template: usize,
        address: FrameAddress,
        kind: FrameKind,
    ) -> FrameWrite<'a> {
        let run = &mut self.writes[template];
        run.form = WriteForm::RunAndTemplate;
        let last = run.data.len() - FRAME_WORDS * 4;
        FrameWrite { address, kind, form: WriteForm::Repeat, data: &run.data[last..], ..*run }
    }

    fn acts(&mut self, die: u8) {
        if !self.dies.contains(&die) {
            self.dies.push(die);
        }
    }

    fn control(&mut self, die: u8) -> &mut Control {
        &mut self.registers[usize::from(die)]
    }

    /// Whether the file leaves each die as the next one expects it.
    pub(super) fn check_end(&self) -> Result<(), InvalidBitstream> {
        match (0..DIES_MAX).find(|die| self.registers[usize::from(*die)].mask_frames) {
            Some(die) => Err(InvalidBitstream::MaskFramesOpen { die }),
            None => Ok(()),
        }
    }
}

/// The registers of a die that keep their values from stream to stream, and would from file to
/// file: so nothing is believed of them that this file has not written. Only bit 17 of CTL1 is taken
/// for clear at the beginning: no file that leaves it set is taken ([`WalkFindings::check_end`]), and
/// [`crate::with_known_control`] clears it where something else may have been loaded.
#[derive(Debug, Default)]
struct Control {
    mask: Option<u32>,
    /// Bit 10 of CTL0, which is never cleared again.
    reset_mask_on: bool,
    /// Bit 17 of CTL1.
    mask_frames: bool,
    /// Whether frames of the reset mask were written.
    has_reset_mask: bool,
    /// SHUTDOWN waits for a CRC check or RCRC, in this stream or a later one.
    shuts_down: bool,
    /// START waits for DESYNC.
    starts: bool,
}

impl Control {
    fn set_mask(&mut self, value: u32, at: usize) -> Result<(), InvalidBitstream> {
        let bits = value & !(CTL0_ALLOWED | CTL1_ALLOWED);
        if bits != 0 {
            return Err(InvalidBitstream::Control { bits, at });
        }
        self.mask = Some(value);
        Ok(())
    }

    /// Bits that a write of CTL0 or CTL1 changes: bits of the mask, all of them among `allowed`.
    fn writable(
        &self,
        register: Register,
        allowed: u32,
        at: usize,
    ) -> Result<u32, InvalidBitstream> {
        let mask = self.mask.ok_or(InvalidBitstream::NoMask { register, at })?;
        let bits = mask & !allowed;
        if bits != 0 {
            return Err(InvalidBitstream::Control { bits, at });
        }
        Ok(mask)
    }

    fn set_ctl0(&mut self, value: u32, at: usize) -> Result<(), InvalidBitstream> {
        let mask = self.writable(Register::CTL0, CTL0_ALLOWED, at)?;
        if mask & CTL0_RESET_MASK != 0 {
            if value & CTL0_RESET_MASK == 0 {
                return Err(InvalidBitstream::ResetMaskOff { at });
            }
            self.reset_mask_on = true;
        }
        Ok(())
    }

    fn set_ctl1(&mut self, value: u32, at: usize) -> Result<(), InvalidBitstream> {
        let mask = self.writable(Register::CTL1, CTL1_ALLOWED, at)?;
        if mask & CTL1_MASK_FRAMES != 0 {
            self.mask_frames = value & CTL1_MASK_FRAMES != 0;
        }
        Ok(())
    }

    /// Kind of the frames that are written now.
    fn frame_kind(&mut self, reach_memory: bool) -> FrameKind {
        if !self.mask_frames {
            return FrameKind::Content;
        }
        self.has_reset_mask |= reach_memory;
        FrameKind::ResetMask
    }

    /// CMD is written with `command`, or FAR while CMD holds it.
    fn carry_out(&mut self, command: u32, at: usize) -> Result<(), InvalidBitstream> {
        self.check_reach(command, at)?;
        match command {
            command::SHUTDOWN => self.shuts_down = true,
            command::START => self.starts = true,
            command::RCRC => self.crc_ends(at)?,
            command::DESYNC if std::mem::take(&mut self.starts) => {
                self.check_reach(command::START, at)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A CRC was checked or reset: what SHUTDOWN began goes on.
    fn crc_ends(&mut self, at: usize) -> Result<(), InvalidBitstream> {
        match std::mem::take(&mut self.shuts_down) {
            true => self.check_reach(command::SHUTDOWN, at),
            false => Ok(()),
        }
    }

    /// Whether the device may do now what `command` says.
    fn check_reach(&self, command: u32, at: usize) -> Result<(), InvalidBitstream> {
        let missing = match command::reach(command) {
            Reach::Stream | Reach::Frames => return Ok(()),
            Reach::Device => return Err(InvalidBitstream::Command { command, at }),
            Reach::ResetMask if !self.reset_mask_on => UnmaskedReason::Off,
            Reach::ResetMask if !self.has_reset_mask => UnmaskedReason::NotWritten,
            Reach::ResetMask if self.mask_frames => UnmaskedReason::Open,
            Reach::ResetMask => return Ok(()),
        };
        Err(InvalidBitstream::Unconfined { command, missing, at })
    }
}

/// One die's streams, one after the other.
pub(super) struct Walk<'a> {
    /// To the end of this die's streams.
    data: &'a [u8],
    /// Byte of `data` that comes next.
    at: usize,
    die: u8,
    stream: Stream,
}

/// State that does not outlast a stream: from a sync word to DESYNC.
#[derive(Default)]
struct Stream {
    has_idcode: bool,
    command: Option<u32>,
    /// FAR, until a frame is written there.
    address: Option<u32>,
    /// Whether WCFG emptied the frame buffer since the last frames.
    is_buffer_empty: bool,
    /// The run of frames, by its number among all writes, whose last frame the buffer holds.
    buffered: Option<usize>,
    /// Where the packets begin that the next CRC word is over.
    crc_from: Option<usize>,
    is_desynced: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn after_sync(data: &'a [u8], at: usize, die: u8) -> Result<Self, InvalidBitstream> {
        let mut walk = Self { data, at, die, stream: Stream::default() };
        for _ in 0..LEAD_WORDS_MAX {
            match walk.next() {
                Some(SYNC) => return Ok(walk),
                Some(word) if word == PAD || BUS_WIDTH.contains(&word) => {}
                _ => break,
            }
        }
        Err(InvalidBitstream::NoSync)
    }

    /// Through the DESYNC of the last stream, and what may follow it.
    pub(super) fn finish(mut self, found: &mut WalkFindings<'a>) -> Result<(), InvalidBitstream> {
        loop {
            self.stream = Stream::default();
            while !self.stream.is_desynced {
                self.step(found)?;
            }
            if !self.find_next_stream()? {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Option<u32> {
        let word = self.data.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_be_bytes(*word))
    }

    fn step(&mut self, found: &mut WalkFindings<'a>) -> Result<(), InvalidBitstream> {
        let at = self.at;
        let word = self.next().ok_or(InvalidBitstream::NoDesync)?;
        match Packet::decode(word).ok_or(InvalidBitstream::NoPacket { word, at })? {
            Packet::Noop => Ok(()),
            Packet::Read => Err(InvalidBitstream::Read { at }),
            Packet::Write {
                register: register @ (Register::FDRI | Register::MFWR | Register::BOUT),
                count,
            } => {
                let (count, at) = if count == 0 { self.long()? } else { (count, at) };
                match register {
                    Register::FDRI => self.frames(count, at, found),
                    Register::MFWR => self.repeat(count, at, found),
                    _ => self.next_die(count, at, found),
                }
            }
            Packet::Write { register, count: 1 } => {
                let left = (self.data.len() - self.at) / 4;
                let value = self.next().ok_or(InvalidBitstream::Cut { count: 1, left, at })?;
                self.set(register, value, at, found)
            }
            Packet::Write { register, count } => {
                Err(InvalidBitstream::Count { register, count, at })
            }
            Packet::Long { .. } => Err(InvalidBitstream::LongAlone { at }),
        }
    }

    fn set(
        &mut self,
        register: Register,
        value: u32,
        at: usize,
        found: &mut WalkFindings<'a>,
    ) -> Result<(), InvalidBitstream> {
        match register {
            Register::CRC => {
                self.check_crc(value, at)?;
                found.control(self.die).crc_ends(at)?;
            }
            // "The command present in the CMD register is executed each time the FAR register is
            // loaded with a new value" (UG570, "Command Register").
            Register::FAR => {
                let repeated =
                    self.stream.command.ok_or(InvalidBitstream::AddressBeforeCommand { at })?;
                found.control(self.die).carry_out(repeated, at)?;
                self.stream.address = Some(value);
            }
            Register::MASK => found.control(self.die).set_mask(value, at)?,
            Register::CTL0 => found.control(self.die).set_ctl0(value, at)?,
            Register::CTL1 => found.control(self.die).set_ctl1(value, at)?,
            Register::COR0 if value == COR0_PARTIAL => {}
            Register::COR0 => return Err(InvalidBitstream::Options { value, at }),
            Register::IDCODE => self.identify(value, at, found)?,
            Register::CMD => self.command(value, at, found)?,
            _ => return Err(InvalidBitstream::Register { register, at }),
        }
        if matches!(register, Register::MASK | Register::CTL0 | Register::CTL1 | Register::COR0) {
            found.acts(self.die);
        }
        Ok(())
    }

    fn identify(
        &mut self,
        value: u32,
        at: usize,
        found: &mut WalkFindings<'a>,
    ) -> Result<(), InvalidBitstream> {
        self.stream.has_idcode = true;
        match found.idcode.replace(value) {
            Some(first) if first != value => {
                Err(InvalidBitstream::TwoIdcodes { first, second: value, at })
            }
            _ => Ok(()),
        }
    }

    fn command(
        &mut self,
        value: u32,
        at: usize,
        found: &mut WalkFindings<'a>,
    ) -> Result<(), InvalidBitstream> {
        found.control(self.die).carry_out(value, at)?;
        let stream = &mut self.stream;
        stream.command = Some(value);
        match value {
            command::RCRC => stream.crc_from = Some(self.at),
            command::WCFG => (stream.is_buffer_empty, stream.buffered) = (true, None),
            command::DESYNC => stream.is_desynced = true,
            _ => {}
        }
        if command::reach(value) != Reach::Stream {
            found.acts(self.die);
        }
        Ok(())
    }

    /// Computed only where a CRC word stands: the frames of a file without one stay unread.
    fn check_crc(&mut self, value: u32, at: usize) -> Result<(), InvalidBitstream> {
        let from = self.stream.crc_from.ok_or(InvalidBitstream::CrcWithoutReset { at })?;
        let expected = of_packets(&self.data[from..at]);
        if value != expected {
            return Err(InvalidBitstream::Crc { found: value, expected, at });
        }
        self.stream.crc_from = Some(self.at);
        Ok(())
    }

    /// The type 2 packet that has to follow: how many words, and where it stands.
    fn long(&mut self) -> Result<(usize, usize), InvalidBitstream> {
        let at = self.at;
        let word = self.next().ok_or(InvalidBitstream::NoDesync)?;
        match Packet::decode(word) {
            Some(Packet::Long { count }) => Ok((count, at)),
            _ => Err(InvalidBitstream::NoPacket { word, at }),
        }
    }

    /// Where the next frame goes: FAR, which each write has to set.
    fn take_address(&mut self, at: usize) -> Result<FrameAddress, InvalidBitstream> {
        let missing = InvalidBitstream::NotReady { missing: "FAR", at };
        let raw = self.stream.address.take().ok_or(missing)?;
        FrameAddress::from_raw(raw).ok_or(InvalidBitstream::Address { raw, at })
    }

    fn frames(
        &mut self,
        words: usize,
        at: usize,
        found: &mut WalkFindings<'a>,
    ) -> Result<(), InvalidBitstream> {
        let not_ready = |missing| InvalidBitstream::NotReady { missing, at };
        if !self.stream.has_idcode {
            return Err(not_ready("IDCODE"));
        }
        // Without a WCFG of its own the frame that the buffer still holds would go first, and
        // everything behind it one frame further than its address says.
        if self.stream.command != Some(command::WCFG) || !self.stream.is_buffer_empty {
            return Err(not_ready("CMD WCFG"));
        }
        let address = self.take_address(at)?;
        if words == 0 || !words.is_multiple_of(FRAME_WORDS) {
            return Err(InvalidBitstream::NotFrames { words, at });
        }
        let data = self.take(words, at)?;
        // The last frame stays in the frame buffer: a single one reaches no memory.
        let kind = found.control(self.die).frame_kind(words > FRAME_WORDS);
        self.stream.is_buffer_empty = false;
        self.stream.buffered = Some(found.writes.len());
        let form = WriteForm::Run;
        found.writes.push(FrameWrite { die: self.die, address, kind, form, data });
        Ok(())
    }

    /// The frame in the buffer once more, elsewhere.
    fn repeat(
        &mut self,
        words: usize,
        at: usize,
        found: &mut WalkFindings<'a>,
    ) -> Result<(), InvalidBitstream> {
        if self.stream.command != Some(command::MFW) {
            return Err(InvalidBitstream::NotReady { missing: "CMD MFW", at });
        }
        let missing = InvalidBitstream::NotReady { missing: "FDRI", at };
        let template = self.stream.buffered.ok_or(missing)?;
        let address = self.take_address(at)?;
        let clocks = self.take(words, at)?;
        if !(1..=MFWR_WORDS_MAX).contains(&words) || clocks.iter().any(|byte| *byte != 0) {
            return Err(InvalidBitstream::Repeat { words, at });
        }
        let kind = found.control(self.die).frame_kind(true);
        let repeat = found.repeat(template, address, kind);
        found.writes.push(repeat);
        Ok(())
    }

    /// The next die's streams, whole: the last ends with a DESYNC of its own.
    fn next_die(
        &mut self,
        words: usize,
        at: usize,
        found: &mut WalkFindings<'a>,
    ) -> Result<(), InvalidBitstream> {
        let die = self.die + 1;
        if die == DIES_MAX {
            return Err(InvalidBitstream::Dies { at });
        }
        let start = self.at;
        self.take(words, at)?;
        Self::after_sync(&self.data[..self.at], start, die)?.finish(found)
    }

    fn take(&mut self, words: usize, at: usize) -> Result<&'a [u8], InvalidBitstream> {
        let rest = &self.data[self.at..];
        let left = rest.len() / 4;
        // At most 2^27 words, so that the product fits in 32 bits.
        let data = rest.get(..words * 4).ok_or(InvalidBitstream::Cut { count: words, left, at })?;
        self.at += data.len();
        Ok(data)
    }

    /// Whether another stream follows. What stands between two is ignored by the device, up to the
    /// sync word: it must be nothing.
    fn find_next_stream(&mut self) -> Result<bool, InvalidBitstream> {
        loop {
            let at = self.at;
            match self.next() {
                None => return Ok(false),
                Some(SYNC) => return Ok(true),
                Some(NOOP | PAD | 0) => {}
                Some(word) if BUS_WIDTH.contains(&word) => {}
                Some(word) => return Err(InvalidBitstream::AfterDesync { word, at }),
            }
        }
    }
}

/// The IDCODE that configuration data writes first, before any frame: what it is for. The packets
/// behind it are not looked at.
pub(crate) fn lead_idcode(data: &[u8]) -> Result<u32, InvalidBitstream> {
    let mut walk = Walk::after_sync(data, 0, 0)?;
    for _ in 0..LEAD_PACKETS_MAX {
        let at = walk.at;
        let word = walk.next().ok_or(InvalidBitstream::NoDesync)?;
        match Packet::decode(word).ok_or(InvalidBitstream::NoPacket { word, at })? {
            Packet::Noop => {}
            Packet::Write { register: Register::IDCODE, count: 1 } => {
                return walk.next().ok_or(InvalidBitstream::NoDesync);
            }
            Packet::Write { register, count: 1 } if register != Register::FDRI => {
                walk.next().ok_or(InvalidBitstream::NoDesync)?;
            }
            _ => break,
        }
    }
    Err(InvalidBitstream::NotReady { missing: "IDCODE", at: walk.at })
}
