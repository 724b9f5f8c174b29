//! Texts that Vivado writes: `report_property` of a Pblock, and the logic location file.

use std::fmt;
use std::ops::RangeInclusive;

use super::ColumnPlace;
use crate::FrameAddress;
use crate::packet::DIES_MAX;

/// Why a report cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// A line that is not of the form.
    #[error("line {line}: {text:?} is not of the form {form}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Text of the line.
        text: String,
        form: &'static str,
    },
    /// A property that is missing or empty.
    #[error(
        "the report has no property {property}; write it with report_property [get_pblocks NAME]"
    )]
    Property { property: &'static str },
}

/// A site: `SLICE_X12Y60` is kind `SLICE`, column 12, row 60 of its kind's grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub kind: String,
    /// Column in the grid of this kind.
    pub x: u32,
    /// Row in the grid of this kind.
    pub y: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_X{}Y{}", self.kind, self.x, self.y)
    }
}

impl Site {
    fn parse(text: &str) -> Option<Self> {
        let (kind, place) = text.rsplit_once("_X")?;
        let (x, y) = place.split_once('Y')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if kind.is_empty() || !is_number(x) || !is_number(y) {
            return None;
        }
        Some(Self { kind: kind.to_owned(), x: x.parse().ok()?, y: y.parse().ok()? })
    }
}

/// A rectangle of sites of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRange {
    pub kind: String,
    pub x: RangeInclusive<u32>,
    pub y: RangeInclusive<u32>,
}

impl SiteRange {
    /// `SLICE_X0Y0:SLICE_X11Y59`, or one site.
    fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once(':').unwrap_or((text, text));
        let (from, to) = (Site::parse(from)?, Site::parse(to)?);
        let is_rectangle = from.kind == to.kind && from.x <= to.x && from.y <= to.y;
        is_rectangle.then_some(Self { kind: from.kind, x: from.x..=to.x, y: from.y..=to.y })
    }
}

/// The sites of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pblock {
    pub name: String,
    /// Sites that belong to it after the tools have snapped it to what can be reconfigured.
    pub ranges: Vec<SiteRange>,
}

impl Pblock {
    /// Reads `report_property [get_pblocks NAME]`: a line for each property with its name, type,
    /// whether it is read-only, and its value. DERIVED_RANGES are the sites that the tools made of the
    /// wanted ones; where that is empty, GRID_RANGES are.
    ///
    /// # Errors
    ///
    /// Where name or ranges are missing, or a range is none.
    pub fn parse(text: &str) -> Result<Self, InvalidReport> {
        let value = |property: &'static str| {
            text.lines().zip(1..).find_map(|(line, number)| {
                let mut fields = line.split_whitespace();
                let is_it = fields.next() == Some(property);
                let value: Vec<&str> = fields.skip(2).collect();
                (is_it && !value.is_empty()).then_some((number, value))
            })
        };
        let missing = |property| InvalidReport::Property { property };
        let (_, name) = value("NAME").ok_or(missing("NAME"))?;
        let (line, sites) = value("DERIVED_RANGES")
            .or_else(|| value("GRID_RANGES"))
            .ok_or(missing("DERIVED_RANGES"))?;
        let parse = |text: &&str| {
            let text = text.trim_matches(|c: char| c == ',' || c == '{' || c == '}');
            SiteRange::parse(text).ok_or_else(|| InvalidReport::Line {
                line,
                text: text.to_owned(),
                form: "SLICE_X0Y0:SLICE_X11Y59",
            })
        };
        let ranges = sites.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { name: name.concat(), ranges })
    }

    /// Whether a site belongs to it. RAMB18 and RAMB36 are two names of the same memories.
    pub fn has(&self, site: &Site) -> bool {
        self.ranges.iter().any(|range| {
            let y = match (range.kind.as_str(), site.kind.as_str()) {
                (of, kind) if of == kind => site.y,
                ("RAMB18", "RAMB36") => site.y * 2,
                ("RAMB36", "RAMB18") => site.y / 2,
                _ => return false,
            };
            range.x.contains(&site.x) && range.y.contains(&y)
        })
    }
}

/// Column of frames that holds a bit of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicLocation {
    /// Where its frame is.
    pub place: ColumnPlace,
    pub site: Site,
}

const LOCATION_FORM: &str = "Bit OFFSET 0xADDRESS BIT [SLRn NUMBER] Block=SITE …";

impl LogicLocation {
    /// Reads a logic location file: of its lines those that begin with `Bit` and name a site.
    ///
    /// # Errors
    ///
    /// Where such a line has no valid address, die or site.
    pub fn parse(text: &str) -> Result<Vec<Self>, InvalidReport> {
        let mut locations = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let invalid =
                || InvalidReport::Line { line: number, text: line.to_owned(), form: LOCATION_FORM };
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [first, _, address, _, rest @ ..] = fields.as_slice() else { continue };
            let Some(site) = rest.iter().find_map(|field| field.strip_prefix("Block=")) else {
                continue;
            };
            if *first != "Bit" {
                continue;
            }
            let raw = address.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
            let address = raw.and_then(FrameAddress::from_raw).ok_or_else(invalid)?;
            let site = Site::parse(site).ok_or_else(invalid)?;
            let die = die(rest).filter(|die| *die < DIES_MAX).ok_or_else(invalid)?;
            let place = ColumnPlace {
                die,
                block_type: address.block_type(),
                row: address.row(),
                column: address.column(),
            };
            let location = Self { place, site };
            if locations.last() != Some(&location) {
                locations.push(location);
            }
        }
        Ok(locations)
    }
}

/// On a part of several dies two more fields stand before the site: the die's name, and its number
/// along the configuration chain.
fn die(fields: &[&str]) -> Option<u8> {
    match fields {
        [name, number, ..] if name.starts_with("SLR") => number.parse().ok(),
        _ => Some(0),
    }
}
