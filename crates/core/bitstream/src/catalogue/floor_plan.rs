//! The frames of a card's regions, as its file lists them.

use snic_domain::CardModel;

use super::raw::{RawCard, RawFrames, RawRow};
use super::table::{Checked, TableContext};
use crate::packet::DIES_MAX;
use crate::{FloorGroup, FloorPlan, FrameRange, RowWidth};

/// The last row that a frame address can name.
const ROW_MAX: u8 = 63;
/// The last column.
const COLUMN_MAX: u16 = 1_023;
/// Frames of a column at most: what the address has bits for.
const FRAMES_MAX: u16 = 256;

pub(super) fn floor_plan(at: &TableContext<'_>, raw: &RawCard) -> Checked<FloorPlan> {
    let model: &CardModel = raw.model.get_ref();
    let mut groups = Vec::new();
    let mut first = 0u8;
    for (i, group) in raw.regions.get_ref().iter().enumerate() {
        let mut ranges = Vec::with_capacity(group.frames.len());
        for (j, frames) in group.frames.iter().enumerate() {
            let prefix = format!("regions[{i}].frames[{j}].");
            ranges.push(range(&TableContext { file: at.file, prefix: &prefix }, frames)?);
        }
        // More regions than a card may have are refused with the profile.
        let regions = first..first.saturating_add(*group.count.get_ref());
        first = regions.end;
        groups.push(FloorGroup { kind: group.kind, regions, ranges });
    }
    let widths = raw.rows.iter().enumerate().map(|(i, raw)| {
        let prefix = format!("rows[{i}].");
        width(&TableContext { file: at.file, prefix: &prefix }, raw)
    });
    Ok(FloorPlan { model: model.clone(), rows: widths.collect::<Checked<_>>()?, groups })
}

fn width(at: &TableContext<'_>, raw: &RawRow) -> Checked<RowWidth> {
    let allowed = format_args!("1 to {} are", COLUMN_MAX + 1);
    let columns = *raw.columns.get_ref();
    at.ensure("columns", &raw.columns, (1..=COLUMN_MAX + 1).contains(&columns), allowed)?;
    Ok(RowWidth { die: die(at, raw.die.as_ref())?, block_type: raw.block_type, columns })
}

fn die(at: &TableContext<'_>, raw: Option<&toml::Spanned<u8>>) -> Checked<u8> {
    let Some(die) = raw else { return Ok(0) };
    let allowed = format_args!("0 to {}, counted along the chain, are", DIES_MAX - 1);
    at.ensure("die", die, *die.get_ref() < DIES_MAX, allowed)?;
    Ok(*die.get_ref())
}

fn range(at: &TableContext<'_>, raw: &RawFrames) -> Checked<FrameRange> {
    let ([bottom, top], [left, right]) = (*raw.rows.get_ref(), *raw.columns.get_ref());
    let (rows, columns) = (text(&raw.rows, bottom, top), text(&raw.columns, left, right));
    let allowed = format_args!("first to last, at most {ROW_MAX}");
    at.ensure("rows", &rows, bottom <= top && top <= ROW_MAX, allowed)?;
    let allowed = format_args!("first to last, at most {COLUMN_MAX}");
    at.ensure("columns", &columns, left <= right && right <= COLUMN_MAX, allowed)?;
    let frames = *raw.frames_per_column.get_ref();
    let allowed = format_args!("1 to {FRAMES_MAX} are");
    at.ensure(
        "frames_per_column",
        &raw.frames_per_column,
        (1..=FRAMES_MAX).contains(&frames),
        allowed,
    )?;
    let die = die(at, raw.die.as_ref())?;
    let block_type = raw.block_type;
    Ok(FrameRange {
        die,
        block_type,
        rows: bottom..=top,
        columns: left..=right,
        frames_per_column: frames,
    })
}

/// A range as messages show it, at its place in the file.
fn text<T>(
    place: &toml::Spanned<T>,
    first: impl std::fmt::Display,
    last: impl std::fmt::Display,
) -> toml::Spanned<String> {
    toml::Spanned::new(place.span(), format!("[{first}, {last}]"))
}
