//! Streams as `write_bitstream -cell` writes them for an UltraScale+ part, made from UG570's
//! description and from what public partial bitstreams have in common. None of those is here.
//!
//! ```text
//! stream 1  MASK/CTL0 bit 10, MASK/CTL1 bit 17 set │ reset mask of the region │ CTL1 bit 17 clear
//! stream 2  COR0, SHUTDOWN, CRC, AGHIGH
//! stream 3  URAM, COR0, SHUTDOWN, CRC │ content, block RAM last │ GRESTORE, LFRM, START
//! stream 4  as stream 1: the reset mask closed again
//! ```

use std::ops::RangeInclusive;

use snic_bitstream::{BitHeader, FloorGroup, FloorPlan, FrameRange, RowWidth};
use snic_domain::RegionKind;

pub const FRAME: usize = 93;
pub const IDCODE: u32 = 0x14B3_1093;
pub const PART: &str = "xcvu9p-flgb2104-2-e";

pub const CRC: u32 = 0;
pub const FAR: u32 = 1;
pub const FDRI: u32 = 2;
pub const CMD: u32 = 4;
pub const CTL0: u32 = 5;
pub const MASK: u32 = 6;
pub const COR0: u32 = 9;
pub const MFWR: u32 = 10;
pub const IDCODE_REGISTER: u32 = 12;
pub const CTL1: u32 = 24;
pub const BOUT: u32 = 30;

pub const NULL: u32 = 0;
pub const WCFG: u32 = 1;
pub const MFW: u32 = 2;
pub const LFRM: u32 = 3;
pub const START: u32 = 5;
pub const URAM: u32 = 6;
pub const RCRC: u32 = 7;
pub const AGHIGH: u32 = 8;
pub const GRESTORE: u32 = 10;
pub const SHUTDOWN: u32 = 11;
pub const GCAPTURE: u32 = 12;
pub const DESYNC: u32 = 13;

/// Word that the tools write to COR0 of a partial bitstream.
pub const OPTIONS: u32 = 0x3800_3FE5;
/// The FAR that closes a stream: an address that no frame has.
pub const CLOSING: u32 = 0x07FC_0000;
const NOOP: u32 = 0x2000_0000;

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Pads and bus width words, then the sync word.
    Sync,
    Noop(usize),
    /// One word to a register.
    Set(u32, u32),
    /// Frames for FDRI, of whole words.
    Frames(Vec<u32>),
    /// MFWR with this many words of zero.
    Repeat(usize),
    /// The CRC of what came before.
    Crc,
    /// Streams for the next die.
    Die(Vec<Op>),
    Word(u32),
}

/// The CRC bit by bit, as the open descriptions of the format have it.
pub fn crc_bits(mut crc: u32, register: u32, word: u32) -> u32 {
    let value = u64::from(register) << 32 | u64::from(word);
    for bit in 0..37 {
        let carry = (value >> bit & 1) as u32 ^ crc & 1;
        crc >>= 1;
        if carry == 1 {
            crc ^= 0x82F6_3B78;
        }
    }
    crc
}

struct Assembler {
    words: Vec<u32>,
    /// Writes since the CRC was zero: register and word.
    written: Vec<(u32, u32)>,
}

impl Assembler {
    fn write(&mut self, register: u32, values: &[u32]) {
        if values.len() < 0x800 {
            self.words.push(0x3000_0000 | register << 13 | values.len() as u32);
        } else {
            self.words.extend([0x3000_0000 | register << 13, 0x5000_0000 | values.len() as u32]);
        }
        self.words.extend(values);
        self.written.extend(values.iter().map(|word| (register, *word)));
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::Sync => {
                self.words.extend([u32::MAX; 16]);
                self.words.extend([0xBB, 0x1122_0044, u32::MAX, u32::MAX, 0xAA99_5566]);
            }
            Op::Noop(count) => self.words.extend(std::iter::repeat_n(NOOP, *count)),
            Op::Set(register, value) => {
                self.write(*register, &[*value]);
                if (*register, *value) == (CMD, RCRC) {
                    self.written.clear();
                }
            }
            Op::Frames(words) => self.write(FDRI, words),
            Op::Repeat(count) => self.write(MFWR, &vec![0; *count]),
            Op::Crc => {
                let written = self.written.drain(..);
                let crc = written.fold(0, |crc, (register, word)| crc_bits(crc, register, word));
                self.words.extend([0x3000_0001, crc]);
            }
            Op::Die(ops) => {
                let inner = words(ops);
                self.words.extend([0x3003_C000, 0x5000_0000 | inner.len() as u32]);
                self.words.extend(inner);
            }
            Op::Word(word) => self.words.push(*word),
        }
    }
}

pub fn words(ops: &[Op]) -> Vec<u32> {
    let mut assembler = Assembler { words: Vec::new(), written: Vec::new() };
    ops.iter().for_each(|op| assembler.op(op));
    assembler.words
}

/// A `.bit` file of these pieces.
pub fn bit(ops: &[Op]) -> Vec<u8> {
    let data: Vec<u8> = words(ops).iter().flat_map(|word| word.to_be_bytes()).collect();
    let header = BitHeader {
        design: "shell_wrapper;PARTIAL=TRUE;UserID=0XFFFFFFFF;Version=2022.1",
        part: PART,
        date: "2024/01/01",
        time: "00:00:00",
    };
    let mut out = Vec::new();
    header.write(&mut out, data.len() as u32).expect("printable");
    out.extend(data);
    out
}

/// A device: frames of each column of logic (the same in every row), columns of block RAM (256
/// frames each).
#[derive(Debug, Clone)]
pub struct Device {
    pub columns: Vec<u16>,
    pub memories: u16,
    pub rows: u8,
}

/// A region: rows, columns of logic, columns of block RAM.
#[derive(Debug, Clone)]
pub struct Region {
    pub die: u8,
    pub rows: RangeInclusive<u8>,
    pub columns: RangeInclusive<u16>,
    pub memories: Option<RangeInclusive<u16>>,
}

pub const RAM_FRAMES: u16 = 256;

impl Device {
    pub fn small() -> Self {
        // Like a part's mix of columns, but narrower.
        Self { columns: vec![6, 16, 4, 16, 9, 5, 16, 8], memories: 2, rows: 4 }
    }

    /// Frames of a column; none where there is no such column.
    pub fn frames(&self, block_type: u8, column: u16) -> Option<u16> {
        match block_type {
            0 => self.columns.get(usize::from(column)).copied(),
            1 => (column < self.memories).then_some(RAM_FRAMES),
            _ => None,
        }
    }

    pub fn width(&self, block_type: u8) -> u16 {
        if block_type == 0 { self.columns.len() as u16 } else { self.memories }
    }

    pub fn plan(&self, region: &Region) -> FloorPlan {
        let range = |block_type, column, frames_per_column| FrameRange {
            die: region.die,
            block_type,
            rows: region.rows.clone(),
            columns: column..=column,
            frames_per_column,
        };
        let logic = region.columns.clone().map(|c| range(0, c, self.columns[usize::from(c)]));
        let memories = region.memories.iter().cloned().flatten().map(|c| range(1, c, RAM_FRAMES));
        let rows = (0..4).flat_map(|die| {
            [0, 1].map(|block_type| RowWidth { die, block_type, columns: self.width(block_type) })
        });
        FloorPlan {
            model: "sim-16".parse().expect("a label"),
            rows: rows.collect(),
            groups: vec![FloorGroup {
                kind: RegionKind::KnownNt,
                regions: 0..1,
                ranges: logic.chain(memories).collect(),
            }],
        }
    }
}

pub fn far(block_type: u8, row: u8, column: u16, minor: u8) -> u32 {
    u32::from(block_type) << 24 | u32::from(row) << 18 | u32::from(column) << 8 | u32::from(minor)
}

/// A frame that no other is like.
pub fn frame(tag: u32) -> Vec<u32> {
    (0..FRAME as u32).map(|i| tag.wrapping_mul(0x9E37_79B9).rotate_left(i % 32) ^ i | 1).collect()
}

pub fn frames(first: u32, count: usize) -> Vec<u32> {
    (0..count as u32).flat_map(|i| frame(first + i)).collect()
}

pub fn pads(count: usize) -> Vec<u32> {
    vec![0; count * FRAME]
}

/// FAR, WCFG and frames with what follows them.
pub fn run(address: u32, words: Vec<u32>) -> Vec<Op> {
    vec![Op::Set(FAR, address), Op::Set(CMD, WCFG), Op::Noop(1), Op::Frames(words)]
}

fn open(out: &mut Vec<Op>) {
    out.extend([Op::Sync, Op::Noop(132), Op::Set(CMD, RCRC), Op::Noop(2)]);
    out.push(Op::Set(IDCODE_REGISTER, IDCODE));
}

fn close(out: &mut Vec<Op>) {
    out.extend([Op::Set(FAR, CLOSING), Op::Crc, Op::Set(CMD, DESYNC), Op::Noop(16)]);
}

/// Stream 1 and 4.
pub fn mask_stream(device: &Device, region: &Region, tag: u32) -> Vec<Op> {
    let mut out = Vec::new();
    open(&mut out);
    out.extend([Op::Set(CMD, NULL), Op::Set(MASK, 0x500), Op::Set(CTL0, 0x400)]);
    out.extend([Op::Set(MASK, 1 << 17), Op::Set(CTL1, 1 << 17)]);
    for row in region.rows.clone() {
        for column in region.columns.clone() {
            // A column of its own frame, and what follows it is a pad.
            let minor = (device.columns[usize::from(column)] - 2) as u8;
            let words = [frame(tag + u32::from(column)), pads(1)].concat();
            out.extend(run(far(0, row, column, minor), words));
        }
    }
    out.extend([Op::Set(MASK, 1 << 17), Op::Set(CTL1, 0)]);
    close(&mut out);
    out
}

pub fn shutdown_stream() -> Vec<Op> {
    let mut out = Vec::new();
    open(&mut out);
    out.extend([Op::Set(COR0, OPTIONS), Op::Set(CMD, SHUTDOWN), Op::Noop(1), Op::Crc]);
    out.extend([Op::Noop(20), Op::Set(CMD, AGHIGH), Op::Noop(100)]);
    close(&mut out);
    out
}

/// The frames of stream 3: a run of frames a row, which goes on in the next row where the region
/// fills both to their ends.
pub fn content(device: &Device, region: &Region) -> Vec<Op> {
    let mut out = Vec::new();
    let blocks = [(0, Some(region.columns.clone())), (1, region.memories.clone())];
    for (block_type, columns) in blocks {
        let Some(columns) = columns else { continue };
        let count: usize = columns
            .clone()
            .map(|c| usize::from(device.frames(block_type, c).expect("a column of the device")))
            .sum();
        let to_end = *columns.end() + 1 == device.width(block_type);
        let goes_on = to_end && *columns.start() == 0;
        let mut words = Vec::new();
        for row in region.rows.clone() {
            let tag = u32::from(row) << 16 | u32::from(block_type) << 12;
            words.extend(frames(tag, count));
            words.extend(pads(if to_end { 2 } else { 1 }));
            if !goes_on || row == *region.rows.end() {
                let first = if goes_on { *region.rows.start() } else { row };
                let address = far(block_type, first, *columns.start(), 0);
                out.extend(run(address, std::mem::take(&mut words)));
            }
        }
    }
    out
}

pub fn content_stream(frames: Vec<Op>) -> Vec<Op> {
    let mut out = vec![Op::Sync, Op::Noop(1), Op::Set(CMD, URAM), Op::Noop(131)];
    out.extend([Op::Set(CMD, RCRC), Op::Noop(2), Op::Set(IDCODE_REGISTER, IDCODE)]);
    out.extend([Op::Set(COR0, OPTIONS), Op::Set(CMD, SHUTDOWN), Op::Noop(1), Op::Crc]);
    out.extend([Op::Noop(20), Op::Set(CMD, NULL), Op::Set(MASK, 0x500), Op::Set(CTL0, 0x500)]);
    out.extend([Op::Set(MASK, 1 << 17), Op::Set(CTL1, 0)]);
    out.extend(frames);
    out.extend([Op::Set(CMD, GRESTORE), Op::Noop(1), Op::Set(MASK, 0x100), Op::Set(CTL0, 0)]);
    out.extend([Op::Set(CMD, LFRM), Op::Noop(20), Op::Set(CMD, START), Op::Noop(1)]);
    close(&mut out);
    out
}

/// All four streams.
pub fn partial(device: &Device, region: &Region) -> Vec<Op> {
    let mut out = mask_stream(device, region, 0);
    out.extend(shutdown_stream());
    out.extend(content_stream(content(device, region)));
    out.extend(mask_stream(device, region, 1_000));
    out
}

/// The streams of a region on the next die, inside a stream of the first that does nothing.
pub fn on_next_die(ops: Vec<Op>) -> Vec<Op> {
    let mut out = Vec::new();
    open(&mut out);
    out.extend([Op::Die(ops), Op::Set(CMD, DESYNC), Op::Noop(16)]);
    out
}
