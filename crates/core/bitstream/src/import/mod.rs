//! A region's frames from the reports of the tools that built its shell: nothing about a device is
//! compiled in.
//!
//! ```text
//! shell, BITSTREAM.GENERAL.PERFRAMECRC YES ─► every frame of the device    ─┐
//! partial bitstreams of the region         ─► the frames that they write   ─┼─► FrameRange, RowWidth
//! report_property [get_pblocks …]          ─► the sites of the region      ─┤
//! write_bitstream -logic_location_file     ─► the frames of sites          ─┘
//! ```
//!
//! The partial bitstreams come from the operator's own build, so what they write is the region. The other
//! three hold it to that: a column is taken whole, a site of the Pblock must be in a column that is
//! written, and a site outside of it must not.

mod device_map;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub use device_map::{DeviceMap, InvalidDeviceMap};
pub use report::{InvalidReport, LogicLocation, Pblock, Site, SiteRange};

use crate::{FrameRange, FrameWrite, InvalidBitstream, RowWidth, WriteForm, parse};

/// Why a floor plan cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotImported {
    /// A partial bitstream.
    #[error("partial bitstream {number}: {error}")]
    Partial {
        /// Number of the file, from 1.
        number: usize,
        /// Fault of the file.
        error: InvalidBitstream,
    },
    /// None was given.
    #[error("no partial bitstream of the region was given; its frames are not known without one")]
    NoPartial,
    /// It writes where the device has no frame.
    #[error(
        "partial bitstream {number} writes block type {block_type}, row {row}, column {column} of die \
         {die}, where the shell's bitstream has no frame; are both for the same part?"
    )]
    NoFrame {
        /// Number of the file, from 1.
        number: usize,
        die: u8,
        /// 0 for logic, 1 for block RAM content.
        block_type: u8,
        row: u8,
        column: u16,
    },
    /// Nothing in the logic location file belongs to the Pblock.
    #[error(
        "the logic location file names no site of Pblock {pblock}; write it with the region's partial \
         bitstream (write_bitstream -cell … -logic_location_file)"
    )]
    NoSites { pblock: String },
    /// A site of the region outside of its frames.
    #[error(
        "site {site} belongs to Pblock {pblock}, but its frames ({place}) are written by no partial \
         bitstream; give one that was not compressed"
    )]
    Missing { pblock: String, site: Site, place: ColumnPlace },
    /// A site of somebody else inside them.
    #[error(
        "site {site} does not belong to Pblock {pblock}, but its frames ({place}) are written by the \
         region's partial bitstreams: the Pblock shares a column with something else"
    )]
    Shared { pblock: String, site: Site, place: ColumnPlace },
}

/// A column in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColumnPlace {
    /// The die, along the chain.
    pub die: u8,
    /// 0 for logic, 1 for block RAM content.
    pub block_type: u8,
    pub row: u8,
    pub column: u16,
}

impl std::fmt::Display for ColumnPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { die, block_type, row, column } = self;
        write!(f, "die {die}, block type {block_type}, row {row}, column {column}")
    }
}

/// Part of a card profile about one group of regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRegion {
    pub frames: Vec<FrameRange>,
    /// Where the rows of the device end.
    pub rows: Vec<RowWidth>,
}

/// The frames of the region whose partial bitstreams, Pblock and logic locations are given.
///
/// # Errors
///
/// Where a bitstream is damaged, or the reports contradict each other.
pub fn import_region(
    map: &DeviceMap,
    partials: &[&[u8]],
    pblock: &Pblock,
    locations: &[LogicLocation],
) -> Result<ImportedRegion, NotImported> {
    let mut columns = BTreeSet::new();
    for (bytes, number) in partials.iter().zip(1..) {
        let file = parse(bytes).map_err(|error| NotImported::Partial { number, error })?;
        for write in &file.writes {
            add_columns(&mut columns, map, write, number)?;
        }
    }
    if columns.is_empty() {
        return Err(NotImported::NoPartial);
    }
    check_sites(&columns, pblock, locations)?;
    Ok(ImportedRegion { frames: ranges(&columns, map), rows: map.row_widths() })
}

/// The columns that a write reaches. Its last frame stays in the frame buffer.
fn add_columns(
    columns: &mut BTreeSet<ColumnPlace>,
    map: &DeviceMap,
    write: &FrameWrite<'_>,
    number: usize,
) -> Result<(), NotImported> {
    let at = write.address;
    let mut place = ColumnPlace {
        die: write.die,
        block_type: at.block_type(),
        row: at.row(),
        column: at.column(),
    };
    let mut minor = usize::from(at.minor());
    let mut left = match write.form {
        WriteForm::Repeat => 1,
        WriteForm::Run | WriteForm::RunAndTemplate => write.frames() - 1,
    };
    while left > 0 {
        let ColumnPlace { die, block_type, row, column } = place;
        let Some(frames) = map.frames(place).map(usize::from).filter(|frames| minor < *frames)
        else {
            if minor == 0 && map.is_row_end(place) {
                left = left.saturating_sub(crate::floor_plan::ROW_PADS);
                place = ColumnPlace { row: row + 1, column: 0, ..place };
                continue;
            }
            return Err(NotImported::NoFrame { number, die, block_type, row, column });
        };
        columns.insert(place);
        left = left.saturating_sub(frames - minor);
        minor = 0;
        place.column += 1;
    }
    Ok(())
}

fn check_sites(
    columns: &BTreeSet<ColumnPlace>,
    pblock: &Pblock,
    locations: &[LogicLocation],
) -> Result<(), NotImported> {
    let mut has_site = false;
    for location in locations {
        let name = || pblock.name.clone();
        let (site, place) = (location.site.clone(), location.place);
        let is_inside = pblock.has(&location.site);
        has_site |= is_inside;
        match (is_inside, columns.contains(&place)) {
            (true, false) => return Err(NotImported::Missing { pblock: name(), site, place }),
            (false, true) => return Err(NotImported::Shared { pblock: name(), site, place }),
            (true, true) | (false, false) => {}
        }
    }
    if has_site { Ok(()) } else { Err(NotImported::NoSites { pblock: pblock.name.clone() }) }
}

/// Columns side by side with as many frames, then rows above each other with the same columns.
fn ranges(columns: &BTreeSet<ColumnPlace>, map: &DeviceMap) -> Vec<FrameRange> {
    let mut of_row: BTreeMap<(u8, u8, u16, u16, u16), Vec<u8>> = BTreeMap::new();
    let mut places = columns.iter().copied().peekable();
    while let Some(first) = places.next() {
        let frames = map.frames(first).unwrap_or_default();
        let mut last = first.column;
        while let Some(next) = places.next_if(|next| {
            let after = ColumnPlace { column: last + 1, ..first };
            *next == after && map.frames(*next) == Some(frames)
        }) {
            last = next.column;
        }
        let key = (first.die, first.block_type, first.column, last, frames);
        of_row.entry(key).or_default().push(first.row);
    }
    let mut ranges = Vec::new();
    for ((die, block_type, left, right, frames_per_column), rows) in of_row {
        for run in rows.chunk_by(|below, above| below + 1 == *above) {
            let rows = run[0]..=run[run.len() - 1];
            let columns = left..=right;
            ranges.push(FrameRange { die, block_type, rows, columns, frames_per_column });
        }
    }
    ranges
}

impl ImportedRegion {
    /// The keys of a card profile: `rows` of the card, `frames` of the group of regions.
    pub fn to_toml(&self) -> String {
        let mut out = String::from("rows = [\n");
        for RowWidth { die, block_type, columns } in &self.rows {
            let _ = writeln!(
                out,
                "    {{ die = {die}, block_type = {block_type}, columns = {columns} }},"
            );
        }
        out.push_str("]\nframes = [\n");
        for range in &self.frames {
            let FrameRange { die, block_type, rows, columns, frames_per_column } = range;
            let _ = writeln!(
                out,
                "    {{ die = {die}, block_type = {block_type}, rows = [{}, {}], columns = [{}, {}], \
                 frames_per_column = {frames_per_column} }},",
                rows.start(),
                rows.end(),
                columns.start(),
                columns.end(),
            );
        }
        out.push_str("]\n");
        out
    }
}
