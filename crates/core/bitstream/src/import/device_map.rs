//! Every frame of a device, from a bitstream that writes each one with its address: what
//! `write_bitstream` gives with BITSTREAM.GENERAL.PERFRAMECRC YES.

use std::collections::BTreeMap;

use super::ColumnPlace;
use crate::packet::DIES_MAX;
use crate::packet::{FRAME_WORDS, FrameAddress, Packet, Register, SYNC};
use crate::{BitHeader, InvalidHeader, RowWidth};

/// Number of frames of each column, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMap {
    columns: BTreeMap<ColumnPlace, u16>,
    widths: Vec<RowWidth>,
}

/// Why a bitstream tells nothing of its device's frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeviceMap {
    #[error(transparent)]
    Header(#[from] InvalidHeader),
    /// A word that is no packet, or a packet that the file is too short for.
    #[error("the packet at byte {at} is damaged or cut")]
    Packet { at: usize },
    #[error("the bitstream writes no frames")]
    NoFrames,
    /// Several frames behind one address.
    #[error(
        "{frames} frames are written from {address} on, so columns cannot be told from each other; \
         write the bitstream with BITSTREAM.GENERAL.PERFRAMECRC YES"
    )]
    Run { frames: usize, address: FrameAddress },
    /// Frames or columns that are left out.
    #[error("there is no frame before {address}; the bitstream has to be of the whole device")]
    Gap {
        /// The frame behind the gap.
        address: FrameAddress,
    },
    /// Rows of one die that differ.
    #[error(
        "row {row} of die {die} has {columns} columns of block type {block_type}, another row has {others}"
    )]
    Rows {
        die: u8,
        /// 0 for logic, 1 for block RAM content.
        block_type: u8,
        row: u8,
        columns: u16,
        /// Those of the first row.
        others: u16,
    },
}

impl DeviceMap {
    /// Reads the shell's `.bit`. Its packets are not checked as an upload's are: it never reaches a
    /// card through the daemon.
    ///
    /// # Errors
    ///
    /// Where it is damaged, or not written frame by frame.
    pub fn from_bitstream(bytes: &[u8]) -> Result<Self, InvalidDeviceMap> {
        let (_, data) = BitHeader::parse(bytes)?;
        let mut reader = Reader { data, at: 0, die: 0, frames: BTreeMap::new() };
        reader.streams()?;
        Self::from_frames(&reader.frames)
    }

    fn from_frames(frames: &BTreeMap<(u8, FrameAddress), ()>) -> Result<Self, InvalidDeviceMap> {
        let mut columns: BTreeMap<ColumnPlace, u16> = BTreeMap::new();
        let mut before: Option<ColumnPlace> = None;
        for &(die, address) in frames.keys() {
            let place = ColumnPlace {
                die,
                block_type: address.block_type(),
                row: address.row(),
                column: address.column(),
            };
            let is_next_column = before.is_some_and(|before| {
                let next = ColumnPlace { column: before.column + 1, ..before };
                next == place && address.minor() == 0
            });
            let is_new_row = place.column == 0
                && address.minor() == 0
                && before.is_none_or(|before| {
                    (before.die, before.block_type, before.row)
                        != (die, place.block_type, place.row)
                });
            let is_next = before == Some(place) && columns[&place] == u16::from(address.minor());
            if !is_next_column && !is_new_row && !is_next {
                return Err(InvalidDeviceMap::Gap { address });
            }
            *columns.entry(place).or_default() += 1;
            before = Some(place);
        }
        let widths = widths(&columns)?;
        Ok(Self { columns, widths })
    }

    /// Frames of a column, where there is one.
    pub fn frames(&self, place: ColumnPlace) -> Option<u16> {
        self.columns.get(&place).copied()
    }

    /// Where the rows of each die end.
    pub fn row_widths(&self) -> Vec<RowWidth> {
        self.widths.clone()
    }

    pub(super) fn is_row_end(&self, place: ColumnPlace) -> bool {
        self.widths.iter().any(|width| {
            (width.die, width.block_type, width.columns)
                == (place.die, place.block_type, place.column)
        })
    }
}

fn widths(columns: &BTreeMap<ColumnPlace, u16>) -> Result<Vec<RowWidth>, InvalidDeviceMap> {
    let mut of_rows: BTreeMap<(u8, u8, u8), u16> = BTreeMap::new();
    for place in columns.keys() {
        *of_rows.entry((place.die, place.block_type, place.row)).or_default() += 1;
    }
    let mut widths: Vec<RowWidth> = Vec::new();
    for ((die, block_type, row), columns) in of_rows {
        let known = widths.iter().find(|width| (width.die, width.block_type) == (die, block_type));
        match known.map(|width| width.columns) {
            None => widths.push(RowWidth { die, block_type, columns }),
            Some(others) if others == columns => {}
            Some(others) => {
                return Err(InvalidDeviceMap::Rows { die, block_type, row, columns, others });
            }
        }
    }
    if widths.is_empty() { Err(InvalidDeviceMap::NoFrames) } else { Ok(widths) }
}

/// Walks the packets of all dies for the addresses of their frames.
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    die: u8,
    frames: BTreeMap<(u8, FrameAddress), ()>,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u32> {
        let word = self.data.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_be_bytes(*word))
    }

    fn streams(&mut self) -> Result<(), InvalidDeviceMap> {
        while let Some(word) = self.next() {
            if word == SYNC {
                self.stream()?;
            }
        }
        Ok(())
    }

    /// Packets up to DESYNC or the end.
    fn stream(&mut self) -> Result<(), InvalidDeviceMap> {
        let (mut register, mut address) = (Register::CRC, None);
        while let Some(word) = self.next() {
            let at = self.at - 4;
            let damaged = InvalidDeviceMap::Packet { at };
            let count = match Packet::decode(word).ok_or(damaged.clone())? {
                Packet::Noop | Packet::Read => continue,
                Packet::Write { register: of, count } => {
                    register = of;
                    count
                }
                Packet::Long { count } => count,
            };
            let start = self.at;
            let end = start + count * 4;
            let words = self.data.get(start..end).ok_or(damaged)?;
            self.at = end;
            let first = words.first_chunk().map(|word| u32::from_be_bytes(*word));
            match (register, first) {
                (Register::FAR, Some(raw)) => address = FrameAddress::from_raw(raw),
                (Register::FDRI, Some(_)) => self.add(address.take(), count / FRAME_WORDS)?,
                (Register::BOUT, Some(_)) => self.next_die(start, end)?,
                (Register::CMD, Some(crate::packet::command::DESYNC)) => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    /// One frame for each address; a run of one frame and its pad is one, too. What comes behind an
    /// address that is used up are pads.
    fn add(
        &mut self,
        address: Option<FrameAddress>,
        frames: usize,
    ) -> Result<(), InvalidDeviceMap> {
        let Some(address) = address else { return Ok(()) };
        if frames > 2 {
            return Err(InvalidDeviceMap::Run { frames, address });
        }
        self.frames.insert((self.die, address), ());
        Ok(())
    }

    fn next_die(&mut self, start: usize, end: usize) -> Result<(), InvalidDeviceMap> {
        let die = self.die + 1;
        if die == DIES_MAX {
            return Err(InvalidDeviceMap::Packet { at: start });
        }
        let frames = std::mem::take(&mut self.frames);
        let mut inner = Reader { data: &self.data[..end], at: start, die, frames };
        inner.streams()?;
        self.frames = inner.frames;
        Ok(())
    }
}
