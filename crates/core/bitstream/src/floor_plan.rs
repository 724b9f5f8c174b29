//! Where a region's frames are, and whether a bitstream keeps to them: what keeps tenants apart.
//!
//! The regions of one group of a card profile are identical, column by column. A bitstream is built for
//! the first of them; the configuration controller adds the distance of the region that it loads.
//! So a bitstream that keeps to the frames of the first keeps to those of each. Where nothing is relocated
//! each region is a group of its own, and a bitstream belongs to the one whose frames it has. On a part of stacked
//! dies a region's frames name their die, and a bitstream may do something on these dies only.
//!
//! ```text
//!           column 0      1      2 …                    frames of a write:
//!   row 0   ┌──────┬──────┬──────┐                      minor 0, 1, … of a column,
//!           │ 0..n │ 0..m │ 0..n │ 2 pads               then the next column of the row,
//!           └──────┴──────┴──────┘                      then column 0 of the row above
//! ```
//!
//! Between the last column of a row and the first of the next a device takes two frames that go
//! nowhere, and the last frame of a run stays in its frame buffer: where they are all zeros, as the
//! vendor's tools write them, they may stand outside of the region.

use std::ops::{Range, RangeInclusive};

use snic_domain::{Bitstream, CardModel, RegionId, RegionKind};

use crate::upload::kind_name;
use crate::{BitFile, FrameWrite, WriteForm};

/// Frames that a device takes at the end of a row and puts nowhere: seen in every partial bitstream
/// of an UltraScale+ part that goes on in the next row.
pub(crate) const ROW_PADS: usize = 2;

/// Columns that a region's bitstream may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameRange {
    /// The die, counted along the chain from the one that the configuration port feeds: 0 to 3.
    pub die: u8,
    /// 0 for logic, 1 for the content of block RAM.
    pub block_type: u8,
    /// Rows, from the bottom.
    pub rows: RangeInclusive<u8>,
    /// Columns, from the left.
    pub columns: RangeInclusive<u16>,
    /// Frames of each of these columns, 1 to 256: where the next column begins.
    pub frames_per_column: u16,
}

impl FrameRange {
    fn has(&self, write: &FrameWrite<'_>, at: FramePlace) -> bool {
        self.die == write.die
            && self.block_type == write.address.block_type()
            && self.rows.contains(&at.row)
            && self.columns.contains(&at.column)
    }
}

/// Number of columns of a row: where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowWidth {
    /// The die, as for [`FrameRange`].
    pub die: u8,
    /// 0 for logic, 1 for the content of block RAM.
    pub block_type: u8,
    /// Columns of every row of this die, 1 to 1024.
    pub columns: u16,
}

/// The frames of each kind of region of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorPlan {
    pub model: CardModel,
    /// Where rows end. A write that goes on in the next row is outside where that is not known.
    pub rows: Vec<RowWidth>,
    /// In the order of the profile.
    pub groups: Vec<FloorGroup>,
}

/// Identical regions, or one region that is like no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorGroup {
    pub kind: RegionKind,
    pub regions: Range<u8>,
    /// The frames of the first of them; none where they are not known.
    pub ranges: Vec<FrameRange>,
}

/// A bitstream that writes what is not its region's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutsideRegion {
    /// A frame elsewhere.
    #[error(
        "the bitstream writes frame {frame} of column {column} in row {row} of die {die} (block type \
         {block_type}), which is outside of the {} regions of card model {model}; it would reach into what belongs to \
         others", kind_name(*kind)
    )]
    Frame {
        die: u8,
        /// 0 for logic, 1 for the content of block RAM.
        block_type: u8,
        row: u8,
        column: u16,
        /// Its place in the column.
        frame: u8,
        /// For which regions it was declared.
        kind: RegionKind,
        model: CardModel,
    },
    /// Commands to a die on which the regions have nothing.
    #[error(
        "the bitstream commands die {die}, on which the {} regions of card model {model} have no \
         frames; it would reach into what belongs to others", kind_name(*kind)
    )]
    Die {
        die: u8,
        /// For which regions it was declared.
        kind: RegionKind,
        model: CardModel,
    },
    /// It names a region whose frames it has not.
    #[error("the bitstream names region {region}, but has the frames of {}", regions_text(has))]
    Region {
        region: RegionId,
        /// Those that it can be loaded into.
        has: Vec<RegionId>,
    },
    /// Nothing is known of these regions.
    #[error(
        "the profile of card model {model} lists no frames for {} regions; without them no bitstream \
         can be held against its region", kind_name(*kind)
    )]
    Unknown { kind: RegionKind, model: CardModel },
}

impl OutsideRegion {
    /// The field of the upload's header that is wrong, as in the API; `chunk` is the content.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Region { .. } => "regions",
            Self::Frame { .. } | Self::Die { .. } | Self::Unknown { .. } => "chunk",
        }
    }
}

fn regions_text(regions: &[RegionId]) -> String {
    let numbers: Vec<String> = regions.iter().map(ToString::to_string).collect();
    format!("region {}", numbers.join(", "))
}

impl FloorPlan {
    /// The die of the first frames of the first regions of this kind; `None` where none are listed.
    pub(crate) fn die_of(&self, kind: RegionKind) -> Option<u8> {
        let group = self.groups.iter().find(|group| group.kind == kind)?;
        Some(group.ranges.first()?.die)
    }

    /// The regions that a checked upload can be loaded into: those of the groups whose frames it keeps to, or
    /// those of them that it names. Empty: every region of its kind.
    ///
    /// # Errors
    ///
    /// As [`FloorPlan::check`], or it names a region whose frames it has not.
    pub fn regions_for(
        &self,
        file: &BitFile<'_>,
        declared: &Bitstream,
    ) -> Result<Vec<RegionId>, OutsideRegion> {
        let kind = declared.region_kind;
        self.check(file, kind)?;
        let of_kind = self.groups.iter().filter(|group| group.kind == kind);
        let has = |group: &&FloorGroup| self.check_group(file, group).is_ok();
        let numbers = |group: &FloorGroup| group.regions.clone().map(RegionId);
        let has: Vec<RegionId> = of_kind.clone().filter(has).flat_map(numbers).collect();
        let named = &declared.images.first().regions;
        if let Some(&region) = named.iter().find(|region| !has.contains(region)) {
            return Err(OutsideRegion::Region { region, has });
        }
        Ok(match named.is_empty() {
            false => named.clone(),
            true if of_kind.flat_map(numbers).all(|region| has.contains(&region)) => Vec::new(),
            true => has,
        })
    }

    /// Whether every frame that `file` writes lies in the regions of a group of this kind, however often it
    /// is written, and every die that it commands has some of their frames.
    ///
    /// # Errors
    ///
    /// The first frame outside of the last of the groups, or a die on which its regions have nothing.
    pub fn check(&self, file: &BitFile<'_>, kind: RegionKind) -> Result<(), OutsideRegion> {
        let mut refused = OutsideRegion::Unknown { kind, model: self.model.clone() };
        for group in self.groups.iter().filter(|group| group.kind == kind) {
            match self.check_group(file, group) {
                Ok(()) => return Ok(()),
                Err(OutsideRegion::Unknown { .. }) => {}
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn check_group(&self, file: &BitFile<'_>, group: &FloorGroup) -> Result<(), OutsideRegion> {
        let FloorGroup { kind, ranges, .. } = group;
        let (kind, model) = (*kind, self.model.clone());
        if ranges.is_empty() {
            return Err(OutsideRegion::Unknown { kind, model });
        }
        if let Some((write, at)) = file.writes.iter().find_map(|write| self.outside(write, ranges))
        {
            let (die, block_type) = (write.die, write.address.block_type());
            let FramePlace { row, column, minor: frame } = at;
            return Err(OutsideRegion::Frame { die, block_type, row, column, frame, kind, model });
        }
        let is_foreign = |die: &&u8| ranges.iter().all(|range| range.die != **die);
        match file.dies.iter().find(is_foreign) {
            None => Ok(()),
            Some(&die) => Err(OutsideRegion::Die { die, kind, model }),
        }
    }

    /// The first frame of a write that is in none of the ranges and no pad.
    fn outside<'a>(
        &self,
        write: &FrameWrite<'a>,
        ranges: &[FrameRange],
    ) -> Option<(FrameWrite<'a>, FramePlace)> {
        let mut at = FramePlace::of(write);
        let mut taken = 0;
        while taken < write.frames() {
            let left = write.frames() - taken;
            let range = ranges.iter().find(|range| range.has(write, at));
            let room =
                range.map_or(0, |range| range.frames_per_column.saturating_sub(at.minor.into()));
            let frames = if taken > 0 && self.is_row_end(write, at) {
                let pads = left.min(ROW_PADS);
                if !write.are_pads(taken, pads) {
                    return Some((*write, at));
                }
                at = FramePlace { row: at.row + 1, column: 0, minor: 0 };
                pads
            } else if room > 0 {
                at = FramePlace { column: at.column + 1, minor: 0, ..at };
                left.min(room.into())
            } else if taken > 0 && left == 1 && stays_in_buffer(write) {
                return None;
            } else {
                return Some((*write, at));
            };
            taken += frames;
        }
        None
    }

    /// Whether the row has ended before `at`.
    fn is_row_end(&self, write: &FrameWrite<'_>, at: FramePlace) -> bool {
        self.rows.iter().any(|row| {
            row.die == write.die
                && row.block_type == write.address.block_type()
                && row.columns == at.column
        })
    }
}

/// Whether the last frame of a run goes nowhere: it is a pad, or what other writes repeat.
fn stays_in_buffer(write: &FrameWrite<'_>) -> bool {
    match write.form {
        WriteForm::Run => write.are_pads(write.frames() - 1, 1),
        WriteForm::RunAndTemplate => true,
        WriteForm::Repeat => false,
    }
}

/// Where a frame goes on its die.
#[derive(Debug, Clone, Copy)]
struct FramePlace {
    row: u8,
    column: u16,
    minor: u8,
}

impl FramePlace {
    const fn of(write: &FrameWrite<'_>) -> Self {
        let at = write.address;
        Self { row: at.row(), column: at.column(), minor: at.minor() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{ByteSize, CardProfile, NtType};

    use super::*;
    use crate::catalogue::{self, Catalogue};
    use crate::packet::{COR0_PARTIAL, FRAME_WORDS, Register, command, write};
    use crate::test_image::TestBuild;
    use crate::{build_test, parse};

    fn on_die(die: u8, card: &CardProfile, chain: &[&NtType], size: ByteSize) -> Vec<u8> {
        TestBuild { card, chain, die, identity: None }.build(size).expect("possible")
    }

    fn sim() -> (Catalogue, CardProfile) {
        let catalogue = catalogue::builtin().expect("valid");
        let card = catalogue.card(&"sim-16".parse().expect("a label")).expect("there").clone();
        (catalogue, card)
    }

    /// A test image whose frames begin elsewhere.
    fn image_at(raw: u32, frames: u64) -> Vec<u8> {
        let (catalogue, card) = sim();
        let size = ByteSize::from_bytes(500 + frames * FRAME_WORDS as u64 * 4);
        let mut bytes = build_test(&card, &[&catalogue.nt_types[0]], size).expect("possible");
        let far = write(Register::FAR, 1).to_be_bytes();
        let at = bytes.windows(4).position(|word| word == far).expect("it is written") + 4;
        bytes[at..at + 4].copy_from_slice(&raw.to_be_bytes());
        bytes
    }

    fn plan(rows: RangeInclusive<u8>, columns: RangeInclusive<u16>) -> FloorPlan {
        let range = FrameRange { die: 0, block_type: 0, rows, columns, frames_per_column: 10 };
        FloorPlan {
            model: "sim-16".parse().expect("a label"),
            rows: Vec::new(),
            groups: vec![FloorGroup {
                kind: RegionKind::KnownNt,
                regions: 0..2,
                ranges: vec![range],
            }],
        }
    }

    fn far(block_type: u32, row: u32, column: u32, minor: u32) -> u32 {
        block_type << 24 | row << 18 | column << 8 | minor
    }

    fn check(plan: &FloorPlan, bytes: &[u8]) -> Result<(), OutsideRegion> {
        plan.check(&parse(bytes).expect("a valid file"), RegionKind::KnownNt)
    }

    #[test]
    fn a_bitstream_that_reaches_outside_is_refused_by_row_and_column() {
        let plan = plan(2..=3, 5..=7);
        assert_eq!(check(&plan, &image_at(far(0, 2, 5, 0), 3)), Ok(()));
        let refused =
            |raw, frames| check(&plan, &image_at(raw, frames)).expect_err("outside").to_string();
        assert!(refused(far(0, 1, 5, 0), 3).contains("column 5 in row 1 of die 0"));
        assert!(refused(far(0, 4, 5, 0), 3).contains("column 5 in row 4"));
        assert!(refused(far(0, 2, 4, 0), 3).contains("frame 0 of column 4 in row 2"));
        assert!(refused(far(1, 2, 5, 0), 3).contains("block type 1"));
        // It begins inside and counts up beyond the last column.
        assert!(refused(far(0, 3, 7, 8), 3).contains("frame 0 of column 8 in row 3"));
        // A frame that the column does not have.
        assert!(refused(far(0, 3, 6, 10), 2).contains("frame 10 of column 6 in row 3"));
    }

    #[test]
    fn a_die_is_part_of_where_a_frame_is() {
        let (catalogue, card) = sim();
        let size = ByteSize::from_bytes(2_000);
        let image = |die| on_die(die, &card, &[&catalogue.nt_types[0]], size);
        let mut plan = plan(0..=0, 0..=9);
        for (of, image_of) in [(0, 1), (1, 0), (1, 2), (2, 1), (3, 2)] {
            plan.groups[0].ranges[0].die = of;
            assert_eq!(check(&plan, &image(of)), Ok(()));
            let error = check(&plan, &image(image_of)).expect_err("another die").to_string();
            assert!(error.contains(&format!("row 0 of die {image_of}")), "{error}");
        }
    }

    /// LFRM, MASK and COR0 change what everybody on a die has.
    #[test]
    fn a_change_of_a_foreign_die_is_refused_also_without_frames() {
        let (catalogue, card) = sim();
        let size = ByteSize::from_bytes(2_000);
        let bytes = on_die(1, &card, &[&catalogue.nt_types[0]], size);
        let mut plan = plan(0..=0, 0..=9);
        plan.groups[0].ranges[0].die = 1;
        let reset = write(Register::CMD, 1).to_be_bytes();
        let first = bytes.windows(4).position(|word| word == reset).expect("RCRC");
        let with = |register: Register, value: u32| {
            let mut bytes = bytes.clone();
            bytes[first..first + 4].copy_from_slice(&write(register, 1).to_be_bytes());
            bytes[first + 4..first + 8].copy_from_slice(&value.to_be_bytes());
            check(&plan, &bytes)
        };
        assert_eq!(with(Register::CMD, command::RCRC), Ok(()));
        let changes = [
            (Register::CMD, command::LFRM),
            (Register::MASK, 0x100),
            (Register::COR0, COR0_PARTIAL),
        ];
        for (register, value) in changes {
            let error = with(register, value).expect_err("it changes die 0").to_string();
            assert!(error.contains("commands die 0"), "{error}");
        }
    }

    #[test]
    fn without_ranges_nothing_is_allowed() {
        let plan = plan(0..=0, 0..=0);
        let bytes = image_at(0, 2);
        let file = parse(&bytes).expect("valid");
        let error = plan.check(&file, RegionKind::UserNt).expect_err("nothing is known");
        assert!(error.to_string().contains("lists no frames for user-nt"), "{error}");
    }

    #[test]
    fn the_test_images_of_the_catalogue_keep_to_their_regions() {
        let (catalogue, _) = sim();
        for card in &catalogue.cards {
            let plan = catalogue.floor_plan(&card.model).expect("every card has one");
            for chain in catalogue.chains_for(&card.model) {
                let (bitstream, bytes) = catalogue.test_bitstream(chain, card).expect("possible");
                let file = parse(&bytes).expect("valid");
                assert_eq!(plan.check(&file, bitstream.region_kind), Ok(()), "{}", bitstream.id);
            }
        }
    }

    proptest! {
        /// Counted frame by frame.
        #[test]
        fn accepted_bitstreams_write_only_frames_of_the_region(
            row in 0u32..4, column in 0u32..10, minor in 0u32..12, frames in 2u64..40,
        ) {
            let plan = plan(1..=2, 3..=6);
            let bytes = image_at(far(0, row, column, minor), frames);
            let written = parse(&bytes).expect("valid").frames();
            let mut inside = (1..=2).contains(&row);
            let (mut column, mut minor) = (column, minor);
            for _ in 0..written {
                inside &= (3..=6).contains(&column) && minor < 10;
                minor += 1;
                if minor >= 10 {
                    (column, minor) = (column + 1, 0);
                }
            }
            prop_assert_eq!(check(&plan, &bytes).is_ok(), inside);
        }
    }
}
