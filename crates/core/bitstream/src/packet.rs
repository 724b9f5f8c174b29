//! Configuration packets of UltraScale+ devices (UG570, "Configuration Packets"): what a word
//! says, which registers and commands exist, and which of them a region's bitstream may use.
//!
//! A bitstream of one region has no business with the rest of the device, so both lists say what
//! is allowed, not what is forbidden. What UG570 says of each, and how its effect is confined, is in
//! `bitstreams/configuration-words.md`.

use std::fmt;

/// Words of a configuration frame of an UltraScale+ device (UG570: 93).
pub const FRAME_WORDS: usize = 93;

/// Words of a MFWR packet at most. What they hold is not written anywhere: they are the clocks that
/// the frame buffer needs. Open descriptions of older families have 2 to 14.
pub(crate) const MFWR_WORDS_MAX: usize = 64;

/// Words before the first sync word at most: Vivado writes up to 20. Without a bound, a file without
/// a sync word would be searched to its end.
pub(crate) const LEAD_WORDS_MAX: usize = 64;
/// Dies of a part at most: the largest of the family have four (public device tables).
pub(crate) const DIES_MAX: u8 = 4;

/// The synchronisation word: what follows are packets.
pub(crate) const SYNC: u32 = 0xAA99_5566;
/// A packet that does nothing.
pub(crate) const NOOP: u32 = 0x2000_0000;
/// A pad word.
pub(crate) const PAD: u32 = 0xFFFF_FFFF;
/// Bus width detection, before the sync word.
pub(crate) const BUS_WIDTH: [u32; 2] = [0x0000_00BB, 0x1122_0044];

/// A configuration register, by its address (5 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(pub(crate) u8);

impl Register {
    pub(crate) const CRC: Self = Self(0);
    pub(crate) const FAR: Self = Self(1);
    pub(crate) const FDRI: Self = Self(2);
    pub(crate) const CMD: Self = Self(4);
    pub(crate) const CTL0: Self = Self(5);
    pub(crate) const MASK: Self = Self(6);
    pub(crate) const COR0: Self = Self(9);
    /// Writes the frame that the frame buffer holds once more, at FAR.
    pub(crate) const MFWR: Self = Self(10);
    pub(crate) const IDCODE: Self = Self(12);
    pub(crate) const CTL1: Self = Self(24);
    /// Its words go to the next die of a part of stacked dies, as a separate stream.
    pub(crate) const BOUT: Self = Self(30);

    /// The register's address, 0 to 31.
    pub const fn address(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "CRC",
            1 => "FAR",
            2 => "FDRI",
            3 => "FDRO",
            4 => "CMD",
            5 => "CTL0",
            6 => "MASK",
            7 => "STAT",
            8 => "LOUT",
            9 => "COR0",
            10 => "MFWR",
            11 => "CBC (encryption)",
            12 => "IDCODE",
            13 => "AXSS",
            14 => "COR1",
            16 => "WBSTAR (boot)",
            17 => "TIMER (watchdog)",
            22 => "BOOTSTS (boot)",
            24 => "CTL1",
            30 => "BOUT (the next die)",
            other => return write!(f, "{other}"),
        };
        f.write_str(name)
    }
}

/// Commands of the CMD register (UG570, "Command Register").
pub(crate) mod command {
    pub(crate) const NULL: u32 = 0;
    /// Frame data follows. Empties the frame buffer.
    pub(crate) const WCFG: u32 = 1;
    /// The frame in the frame buffer is written again, at each FAR that a MFWR follows.
    pub(crate) const MFW: u32 = 2;
    /// The last frame is written: interconnect is driven again (it ends AGHIGH).
    pub(crate) const LFRM: u32 = 3;
    /// Begin the start-up sequence, after the next CRC check and DESYNC.
    pub(crate) const START: u32 = 5;
    pub(crate) const URAM: u32 = 6;
    /// Reset the CRC.
    pub(crate) const RCRC: u32 = 7;
    /// Stop driving interconnect, while frames change.
    pub(crate) const AGHIGH: u32 = 8;
    /// Set or reset flip-flops to their initial values.
    pub(crate) const GRESTORE: u32 = 10;
    /// Begin the shut-down sequence, after the next CRC check or RCRC.
    pub(crate) const SHUTDOWN: u32 = 11;
    /// The end: packets are no longer taken.
    pub(crate) const DESYNC: u32 = 13;

    /// Reach of a command.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Reach {
        /// The stream: it opens, closes or checks it. Nothing that the die holds changes.
        Stream,
        /// Frames that the file names, or a state that only this region's load can have left.
        Frames,
        /// Everything on the die that the reset mask does not keep out.
        ResetMask,
        /// The whole device, whatever the reset mask says.
        Device,
    }

    /// Reach of `command`. `Device` also stands for codes that are not known.
    ///
    /// Device: RCFG (read-back), SWITCH (the clock of the configuration port), GCAPTURE (the flip-flops
    /// of the die are copied over their initial values), IPROG (reboot) and the flash commands.
    pub(crate) const fn reach(command: u32) -> Reach {
        match command {
            NULL | RCRC | DESYNC => Reach::Stream,
            WCFG | MFW | LFRM => Reach::Frames,
            START | URAM | AGHIGH | GRESTORE | SHUTDOWN => Reach::ResetMask,
            _ => Reach::Device,
        }
    }
}

/// GLUTMASK_B of CTL0: whether look-up tables used as memory are read back and written as they
/// run. It does not keep GRESTORE away from anything.
pub(crate) const CTL0_GLUTMASK: u32 = 1 << 8;
/// Bit 10 of CTL0, reserved in UG570. Every partial bitstream of the vendor's tools sets it before
/// its first frame and never clears it: the reset mask is in force.
pub(crate) const CTL0_RESET_MASK: u32 = 1 << 10;
/// Bits of CTL0 that one region's bitstream may change. The others choose keys, the configuration
/// port, read-back security, and the state of all pins.
pub(crate) const CTL0_ALLOWED: u32 = CTL0_GLUTMASK | CTL0_RESET_MASK;
/// Bit 17 of CTL1, reserved in UG570. The vendor's tools set it around frames that are no content
/// of the region but its reset mask, at the same addresses, and clear it behind them.
pub(crate) const CTL1_MASK_FRAMES: u32 = 1 << 17;
/// Bits of CTL1 that one region's bitstream may change. Bit 23 is CAPTURE, the others are reserved.
pub(crate) const CTL1_ALLOWED: u32 = CTL1_MASK_FRAMES;

/// The one value of COR0 that a region's bitstream may write: what `write_bitstream -cell` gives
/// with the start-up options at their defaults. UG570: bits 14 to 0 are the phases in which start-up
/// releases DONE, write enable and pins (defaults); the source and frequency of the configuration
/// clock (bits 26, 22 to 17) and DONE's driver (bit 24) stay zero. Bits 29 to 27 are reserved.
pub(crate) const COR0_PARTIAL: u32 = 0x3800_3FE5;

/// Content of a packet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet {
    Noop,
    /// Type 1, read.
    Read,
    /// Type 1, write: `count` words follow.
    Write {
        register: Register,
        count: usize,
    },
    /// Type 2, write: `count` words follow, for the register of the type 1 packet before.
    Long {
        count: usize,
    },
}

impl Packet {
    /// Decodes a header; `None` where it is none, or has reserved bits set.
    pub(crate) const fn decode(word: u32) -> Option<Self> {
        let op = word >> 27 & 3;
        match (word >> 29, op) {
            (1, 0) if word == NOOP => Some(Self::Noop),
            // [26:18] and [12:11] are reserved and written as zero.
            (1, 1) if word & 0x07FC_1800 == 0 => Some(Self::Read),
            (1, 2) if word & 0x07FC_1800 == 0 => {
                let register = Register((word >> 13 & 0x1F) as u8);
                Some(Self::Write { register, count: (word & 0x7FF) as usize })
            }
            (2, 2) => Some(Self::Long { count: (word & 0x07FF_FFFF) as usize }),
            _ => None,
        }
    }
}

/// The header of a type 1 write of `count` words, at most 2047.
pub(crate) const fn write(register: Register, count: u32) -> u32 {
    debug_assert!(count < 0x800);
    0x3000_0000 | (register.0 as u32) << 13 | count
}

/// The header of a type 2 write of `count` words, at most 2^27 - 1.
pub(crate) const fn long_write(count: u32) -> u32 {
    debug_assert!(count < 0x0800_0000);
    0x5000_0000 | count
}

/// Where a frame goes: the FAR of an UltraScale+ device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameAddress(u32);

impl FrameAddress {
    /// From the register's value; `None` where reserved bits are set, or the block type is one
    /// that no bitstream writes (UG570: only 0, logic, and 1, block RAM content).
    pub const fn from_raw(raw: u32) -> Option<Self> {
        let address = Self(raw);
        if raw >> 27 == 0 && address.block_type() <= 1 { Some(address) } else { None }
    }

    /// The register's value.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// 0 for logic, 1 for block RAM content.
    pub const fn block_type(self) -> u8 {
        (self.0 >> 24 & 7) as u8
    }

    /// Row, from the bottom, 0 to 63.
    pub const fn row(self) -> u8 {
        (self.0 >> 18 & 0x3F) as u8
    }

    /// Column, from the left, 0 to 1023.
    pub const fn column(self) -> u16 {
        (self.0 >> 8 & 0x3FF) as u16
    }

    /// Frame within the column, 0 to 255.
    pub const fn minor(self) -> u8 {
        (self.0 & 0xFF) as u8
    }
}

impl fmt::Display for FrameAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (block, row, column) = (self.block_type(), self.row(), self.column());
        write!(f, "block type {block}, row {row}, column {column}, minor {}", self.minor())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_are_those_of_ug570() {
        assert_eq!(write(Register::IDCODE, 1), 0x3001_8001);
        assert_eq!(write(Register::CMD, 1), 0x3000_8001);
        assert_eq!(write(Register::FAR, 1), 0x3000_2001);
        assert_eq!(write(Register::FDRI, 0), 0x3000_4000);
        assert_eq!(write(Register::MASK, 1), 0x3000_C001);
        assert_eq!(write(Register::CTL0, 1), 0x3000_A001);
        assert_eq!(write(Register::CRC, 1), 0x3000_0001);
        assert_eq!(long_write(93), 0x5000_005D);
        // Read STAT, from UG570's read-back table.
        assert_eq!(Packet::decode(0x2800_E001), Some(Packet::Read));
    }

    #[test]
    fn malformed_packet_headers_are_not_decoded() {
        for word in [0, PAD, SYNC, 0x2000_0001, 0x3800_0001, 0x3004_0001, 0x3000_0801, 0x4800_0001]
        {
            assert_eq!(Packet::decode(word), None, "{word:#010x}");
        }
    }

    #[test]
    fn a_frame_address_has_the_fields_of_ultrascale_plus() {
        let raw = 1 << 24 | 5 << 18 | 300 << 8 | 17;
        let address = FrameAddress::from_raw(raw).expect("valid");
        assert_eq!(
            (address.block_type(), address.row(), address.column(), address.minor()),
            (1, 5, 300, 17)
        );
        assert_eq!(address.raw(), raw);
        assert_eq!(FrameAddress::from_raw(2 << 24), None);
        assert_eq!(FrameAddress::from_raw(1 << 27), None);
    }

    #[test]
    fn a_command_reaches_as_far_as_ug570_says() {
        use command::Reach;
        // RCFG, SWITCH, GCAPTURE, IPROG, and what comes behind them.
        for command in [4, 9, 12, 14, 15, 16, 17, 18, 19, 31, 32, u32::MAX] {
            assert_eq!(command::reach(command), Reach::Device, "{command}");
        }
        for command in [5, 6, 8, 10, 11] {
            assert_eq!(command::reach(command), Reach::ResetMask, "{command}");
        }
        for command in [1, 2, 3] {
            assert_eq!(command::reach(command), Reach::Frames, "{command}");
        }
        for command in [0, 7, 13] {
            assert_eq!(command::reach(command), Reach::Stream, "{command}");
        }
    }

    proptest! {
        #[test]
        fn a_written_header_is_decoded(register in 0u8..32, count in 0u32..0x800) {
            let expected =
                Packet::Write { register: Register(register), count: count as usize };
            prop_assert_eq!(Packet::decode(write(Register(register), count)), Some(expected));
        }
    }
}
