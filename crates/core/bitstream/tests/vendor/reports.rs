//! Reports as the vendor's tools write them, for a small device of the tests' own.

use std::fmt::Write as _;

use crate::image::*;

/// The shell: every frame of the device with its address and a CRC, which nobody checks.
pub fn shell(device: &Device) -> Vec<Op> {
    let mut ops = vec![Op::Sync, Op::Set(CMD, RCRC), Op::Set(IDCODE_REGISTER, IDCODE)];
    for block_type in [0, 1] {
        for row in 0..device.rows {
            for column in 0..device.width(block_type) {
                for minor in 0..device.frames(block_type, column).expect("a column") {
                    let address = far(block_type, row, column, minor as u8);
                    ops.extend([Op::Set(FAR, address), Op::Set(CMD, WCFG)]);
                    ops.push(Op::Frames(frame(address)));
                    ops.extend([Op::Word(0x3000_0001), Op::Word(0xC0DE)]);
                }
            }
        }
    }
    ops.extend([Op::Set(FAR, CLOSING), Op::Set(CMD, DESYNC)]);
    ops
}

pub fn region() -> Region {
    Region { die: 0, rows: 1..=2, columns: 2..=5, memories: Some(1..=1) }
}

/// Two columns of slices a column of frames, 60 rows of them a row; 12 memories a row.
pub const PBLOCK: &str = "\
Property            Type    Read-only  Value
CLASS               string  true       pblock
DERIVED_RANGES      string* true       SLICE_X4Y60:SLICE_X11Y179 RAMB36_X1Y12:RAMB36_X1Y35
GRID_RANGES         string* false      SLICE_X4Y61:SLICE_X10Y178
NAME                string  false      pblock_region0
SNAPPING_MODE       enum    false      ON
";

pub fn locations(device: &Device) -> String {
    let mut text = String::from("; Created by a test\nRevision 3\nInfo STARTSEL0=1\n");
    for row in 0..u32::from(device.rows) {
        for column in 0..u32::from(device.width(0)) {
            let address = far(0, row as u8, column as u16, 1);
            let (x, y) = (column * 2, row * 60 + 7);
            let _ =
                writeln!(text, "Bit 12 0x{address:08x} 40 Block=SLICE_X{x}Y{y} Latch=AQ Net=a/b");
            let _ =
                writeln!(text, "Bit 13 0x{address:08x} 41 SLR0 0 Block=SLICE_X{x}Y{y} Latch=BQ");
        }
        for column in 0..u32::from(device.memories) {
            let address = far(1, row as u8, column as u16, 200);
            let y = row * 12 + 3;
            let _ =
                writeln!(text, "Bit 14 0x{address:08x} 9 Block=RAMB36_X{column}Y{y} Ram=B:BIT0");
        }
    }
    text
}
