//! The configuration logic of a device, bit by bit, as UG570 describes it: what really happens when
//! bytes reach the configuration port. Written apart from the checker and slowly; where UG570 leaves
//! something open, it does what is worse for the other regions:
//!
//! - it finds a sync word at any bit, not only at words;
//! - MASK, CTL0, CMD and the frame buffer hold what a hostile file may have left there;
//! - a frame in the buffer survives FAR: only WCFG empties it;
//! - the command in CMD is carried out again whenever FAR is written.

use crate::image::{
    AGHIGH, BOUT, CLOSING, CMD, COR0, CRC, CTL0, CTL1, DESYNC, Device, FAR, FDRI, FRAME, GRESTORE,
    IDCODE, IDCODE_REGISTER, LFRM, MASK, MFW, MFWR, NULL, RCRC, SHUTDOWN, START, URAM, WCFG,
    crc_bits,
};

const SYNC_WORD: u32 = 0xAA99_5566;
const RESET_MASK_ON: u32 = 1 << 10;
const MASK_FRAMES: u32 = 1 << 17;
/// Frames that go nowhere at the end of a row.
const ROW_PADS: u8 = 2;

/// Where a frame was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    pub die: usize,
    /// Whether CTL1 bit 17 was set.
    pub is_mask: bool,
    pub block_type: u8,
    pub row: u8,
    pub column: u16,
    pub minor: u16,
}

/// Effect on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Frame(Written),
    /// A frame at an address that the device does not have.
    NoSuchFrame {
        die: usize,
        far: u32,
    },
    /// Bits of CTL0 or CTL1 that were written, and their values.
    Control {
        die: usize,
        register: u32,
        bits: u32,
        value: u32,
    },
    Options {
        die: usize,
        value: u32,
    },
    /// A command to all of the die, and whether a complete reset mask was in force.
    Global {
        die: usize,
        command: u32,
        is_confined: bool,
    },
    /// A command that UG570 does not confine at all, or does not have.
    Command {
        die: usize,
        command: u32,
    },
    Register {
        die: usize,
        register: u32,
    },
    BadPacket {
        die: usize,
        word: u32,
    },
    CrcError {
        die: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    At {
        block_type: u8,
        row: u8,
        column: u16,
        minor: u16,
    },
    /// Behind the last column of a row: this many frames still go nowhere.
    RowEnd {
        block_type: u8,
        row: u8,
        left: u8,
    },
    Nowhere(u32),
}

struct Die {
    shift: u32,
    bits: u32,
    is_synced: bool,
    register: u32,
    left: u32,
    mask: u32,
    ctl0: u32,
    ctl1: u32,
    command: u32,
    crc: u32,
    is_identified: bool,
    place: Place,
    filling: Vec<u32>,
    buffer: Option<Vec<u32>>,
    has_mask_frames: bool,
    shuts_down: bool,
    starts: bool,
}

impl Die {
    fn after_a_hostile_file() -> Self {
        Self {
            shift: 0,
            bits: 0,
            is_synced: false,
            register: FDRI,
            left: 0,
            mask: u32::MAX,
            ctl0: 0,
            ctl1: 0,
            command: GRESTORE,
            crc: 0x5EED,
            is_identified: false,
            place: Place::Nowhere(CLOSING),
            filling: Vec::new(),
            buffer: Some(vec![0xBAD; FRAME]),
            has_mask_frames: false,
            shuts_down: false,
            starts: false,
        }
    }
}

pub struct Machine<'d> {
    device: &'d Device,
    dies: Vec<Die>,
    pub effects: Vec<Effect>,
}

impl<'d> Machine<'d> {
    pub fn new(device: &'d Device) -> Self {
        let dies = (0..4).map(|_| Die::after_a_hostile_file()).collect();
        Self { device, dies, effects: Vec::new() }
    }

    /// Effects of the file `bytes`, header and all: a configuration port is not told where data begin.
    pub fn run(device: &'d Device, bytes: &[u8]) -> Self {
        let mut machine = Self::new(device);
        for byte in bytes {
            for bit in (0..8).rev() {
                machine.bit(0, byte >> bit & 1);
            }
        }
        machine
    }

    /// Whether bit 17 of CTL1 was left set anywhere.
    pub fn is_mask_open(&self) -> bool {
        self.dies.iter().any(|die| die.ctl1 & MASK_FRAMES != 0)
    }

    /// Whether bit 10 of CTL0 is set on a die.
    pub fn is_reset_mask_on(&self, die: usize) -> bool {
        self.dies[die].ctl0 & RESET_MASK_ON != 0
    }

    pub fn mask_register(&self, die: usize) -> u32 {
        self.dies[die].mask
    }

    fn bit(&mut self, number: usize, bit: u8) {
        let Some(die) = self.dies.get_mut(number) else { return };
        die.shift = die.shift << 1 | u32::from(bit);
        if !die.is_synced {
            if die.shift == SYNC_WORD {
                die.is_synced = true;
                die.bits = 0;
                die.left = 0;
            }
            return;
        }
        die.bits += 1;
        if die.bits == 32 {
            die.bits = 0;
            let word = die.shift;
            if die.left > 0 {
                die.left -= 1;
                self.data(number, word);
            } else {
                self.header(number, word);
            }
        }
    }

    fn header(&mut self, number: usize, word: u32) {
        let die = &mut self.dies[number];
        match (word >> 29, word >> 27 & 3) {
            (1, 0) => {}
            (1, 2) => {
                die.register = word >> 13 & 0x1F;
                die.left = word & 0x7FF;
            }
            (2, 2) => die.left = word & 0x07FF_FFFF,
            _ => self.effects.push(Effect::BadPacket { die: number, word }),
        }
    }

    fn data(&mut self, number: usize, word: u32) {
        let die = &mut self.dies[number];
        let register = die.register;
        if register != CRC && register != BOUT {
            die.crc = crc_bits(die.crc, register, word);
        }
        match register {
            CRC => self.check_crc(number, word),
            FAR => {
                die.place = place(self.device, word);
                let command = die.command;
                if command != RCRC {
                    self.execute(number, command);
                }
            }
            FDRI => self.frame_word(number, word),
            MFWR => {
                if die.left == 0 {
                    self.repeat(number);
                }
            }
            CMD => {
                die.command = word;
                self.execute(number, word);
            }
            MASK => die.mask = word,
            CTL0 => {
                die.ctl0 = die.ctl0 & !die.mask | word & die.mask;
                let (bits, value) = (die.mask, word & die.mask);
                self.effects.push(Effect::Control { die: number, register, bits, value });
            }
            CTL1 => {
                die.ctl1 = die.ctl1 & !die.mask | word & die.mask;
                let (bits, value) = (die.mask, word & die.mask);
                self.effects.push(Effect::Control { die: number, register, bits, value });
            }
            COR0 => self.effects.push(Effect::Options { die: number, value: word }),
            IDCODE_REGISTER => die.is_identified = word == IDCODE,
            BOUT => (0..32).rev().for_each(|bit| self.bit(number + 1, (word >> bit & 1) as u8)),
            _ => self.effects.push(Effect::Register { die: number, register }),
        }
    }

    fn check_crc(&mut self, number: usize, word: u32) {
        let die = &mut self.dies[number];
        let is_right = die.crc == word;
        die.crc = 0;
        if !is_right {
            self.effects.push(Effect::CrcError { die: number });
        }
        self.shut_down(number);
    }

    fn shut_down(&mut self, number: usize) {
        if std::mem::take(&mut self.dies[number].shuts_down) {
            self.global(number, SHUTDOWN);
        }
    }

    fn global(&mut self, number: usize, command: u32) {
        let die = &self.dies[number];
        let is_confined =
            die.ctl0 & RESET_MASK_ON != 0 && die.ctl1 & MASK_FRAMES == 0 && die.has_mask_frames;
        self.effects.push(Effect::Global { die: number, command, is_confined });
    }

    fn execute(&mut self, number: usize, command: u32) {
        let die = &mut self.dies[number];
        match command {
            NULL | LFRM | MFW => {}
            WCFG => {
                die.buffer = None;
                die.filling.clear();
            }
            RCRC => {
                die.crc = 0;
                self.shut_down(number);
            }
            SHUTDOWN => die.shuts_down = true,
            START => die.starts = true,
            AGHIGH | GRESTORE | URAM => self.global(number, command),
            DESYNC => {
                die.is_synced = false;
                die.shift = 0;
                if std::mem::take(&mut die.starts) {
                    self.global(number, START);
                }
            }
            _ => self.effects.push(Effect::Command { die: number, command }),
        }
    }

    fn frame_word(&mut self, number: usize, word: u32) {
        let die = &mut self.dies[number];
        die.filling.push(word);
        if die.filling.len() < FRAME {
            return;
        }
        let frame = std::mem::take(&mut die.filling);
        // UG570: IDCODE before FDRI; without it, or without WCFG, a device writes nothing, but here
        // it does.
        if die.buffer.replace(frame).is_some() {
            self.write(number);
            let place = self.dies[number].place;
            self.dies[number].place = next(self.device, place);
        }
    }

    fn repeat(&mut self, number: usize) {
        let die = &self.dies[number];
        if die.command == MFW && die.buffer.is_some() {
            self.write(number);
        }
    }

    /// The frame in the buffer goes to where FAR is.
    fn write(&mut self, number: usize) {
        let die = &mut self.dies[number];
        let is_mask = die.ctl1 & MASK_FRAMES != 0;
        match die.place {
            Place::At { block_type, row, column, minor } => {
                die.has_mask_frames |= is_mask;
                let frame = Written { die: number, is_mask, block_type, row, column, minor };
                self.effects.push(Effect::Frame(frame));
            }
            Place::RowEnd { .. } => {}
            Place::Nowhere(far) => self.effects.push(Effect::NoSuchFrame { die: number, far }),
        }
    }
}

fn place(device: &Device, far: u32) -> Place {
    let (block_type, row) = ((far >> 24 & 7) as u8, (far >> 18 & 63) as u8);
    let (column, minor) = ((far >> 8 & 1023) as u16, (far & 255) as u16);
    match device.frames(block_type, column) {
        Some(frames) if minor < frames && row < device.rows && far >> 27 == 0 => {
            Place::At { block_type, row, column, minor }
        }
        _ => Place::Nowhere(far),
    }
}

fn next(device: &Device, place: Place) -> Place {
    match place {
        Place::At { block_type, row, column, minor } => {
            if Some(minor + 1) < device.frames(block_type, column) {
                Place::At { block_type, row, column, minor: minor + 1 }
            } else if column + 1 < device.width(block_type) {
                Place::At { block_type, row, column: column + 1, minor: 0 }
            } else {
                Place::RowEnd { block_type, row, left: ROW_PADS }
            }
        }
        Place::RowEnd { block_type, row, left } if left > 1 => {
            Place::RowEnd { block_type, row, left: left - 1 }
        }
        Place::RowEnd { block_type, row, .. } if row + 1 < device.rows => {
            Place::At { block_type, row: row + 1, column: 0, minor: 0 }
        }
        Place::RowEnd { block_type, row, .. } => {
            Place::Nowhere(crate::image::far(block_type, row, 1023, 255))
        }
        Place::Nowhere(far) => Place::Nowhere(far),
    }
}
