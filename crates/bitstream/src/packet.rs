//! Configuration packets of UltraScale+ devices (UG570, "Configuration Packets"): what a word
//! says, which registers and commands exist, and which of them a region's bitstream may use.
//!
//! A bitstream of one region has no business with the rest of the device, so both lists say what
//! is allowed, not what is forbidden.

use std::fmt;

/// Words of a configuration frame of an UltraScale+ device (UG570: 93).
pub const FRAME_WORDS: usize = 93;

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
    pub(crate) const IDCODE: Self = Self(12);
    /// Its words go to the next die of a part of stacked dies, as a stream of their own.
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

/// Commands of the CMD register.
pub(crate) mod command {
    /// Nothing.
    pub(crate) const NULL: u32 = 0;
    /// Frame data follows.
    pub(crate) const WCFG: u32 = 1;
    /// The last frame is written.
    pub(crate) const LFRM: u32 = 3;
    /// Begin the start-up sequence.
    pub(crate) const START: u32 = 5;
    /// Clear UltraRAM.
    pub(crate) const URAM: u32 = 6;
    /// Reset the CRC.
    pub(crate) const RCRC: u32 = 7;
    /// Set or reset flip-flops, where GLUTMASK lets it.
    pub(crate) const GRESTORE: u32 = 10;
    /// The end: packets are no longer taken.
    pub(crate) const DESYNC: u32 = 13;

    /// Whether one region's bitstream may give it. Not: MFW (frames at addresses that are not in
    /// the file), RCFG (read-back), AGHIGH and SHUTDOWN (they stop the whole device), GCAPTURE,
    /// IPROG (reboot) and the flash commands.
    pub(crate) const fn is_allowed(command: u32) -> bool {
        matches!(command, NULL | WCFG | LFRM | START | URAM | RCRC | GRESTORE | DESYNC)
    }

    /// Whether it changes what a die holds. Not: what only opens, closes or checks the stream, and
    /// so what a die on the way to another is told.
    pub(crate) const fn acts(command: u32) -> bool {
        !matches!(command, NULL | RCRC | DESYNC)
    }
}

/// Bits of CTL0 that one region's bitstream may change: GLUTMASK_B. The others choose keys, the
/// configuration port, read-back security, and the state of all pins.
pub(crate) const CTL0_ALLOWED: u32 = 1 << 8;

/// What a packet header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet {
    /// Nothing.
    Noop,
    /// Type 1, read.
    Read,
    /// Type 1, write: `count` words follow.
    Write { register: Register, count: usize },
    /// Type 2, write: `count` words follow, for the register of the type 1 packet before.
    Long { count: usize },
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
    fn what_is_no_header_is_not_decoded() {
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
    fn commands_that_reach_beyond_the_region_are_not_allowed() {
        for command in [2, 4, 8, 9, 11, 12, 15, 16, 17, 18, 19, 32, u32::MAX] {
            assert!(!command::is_allowed(command), "{command}");
        }
        assert!(command::is_allowed(command::WCFG) && command::is_allowed(command::DESYNC));
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
