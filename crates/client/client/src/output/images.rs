//! The images of a bitstream, for people.

use snic_api::v1::{Bitstream, RegionImage};

use super::Style;
use super::table::{section as titled, table};
use super::text::size;

/// Regions that it has images for, and number of all: `all`, `0-3 of 16`.
pub(super) fn regions(bitstream: &Bitstream) -> String {
    match (bitstream.regions.is_empty(), bitstream.missing_regions.len()) {
        (true, _) => "all".to_owned(),
        (false, 0) => ranges(&bitstream.regions),
        (false, missing) => {
            format!("{} of {}", ranges(&bitstream.regions), bitstream.regions.len() + missing)
        }
    }
}

/// The regions that it can be loaded into.
pub(super) fn built_for(bitstream: &Bitstream) -> String {
    match bitstream.regions.is_empty() {
        true => "every region of its kind".to_owned(),
        false => format!("region {}", ranges(&bitstream.regions)),
    }
}

/// The regions that it has no image for.
pub(super) fn missing(bitstream: &Bitstream) -> String {
    match bitstream.missing_regions.is_empty() {
        true => String::new(),
        false => format!("region {}", ranges(&bitstream.missing_regions)),
    }
}

/// Its images, if there are several.
pub(super) fn section(bitstream: &Bitstream, style: Style) -> String {
    if bitstream.images.len() < 2 {
        return String::new();
    }
    let row = |image: &RegionImage| {
        vec![ranges(&image.regions), size(image.size_bytes), image.digest.clone()]
    };
    let rows = bitstream.images.iter().map(row).collect();
    titled("Images", &table(style, &["REGIONS", "SIZE", "DIGEST"], rows))
}

/// Numbers in ascending order: `0-3, 7`.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        [one] => one.to_string(),
        [] => String::new(),
    };
    runs.map(run).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_with_an_image_are_told_from_those_without() {
        let of = |regions: &[u32], missing: &[u32]| Bitstream {
            regions: regions.to_vec(),
            missing_regions: missing.to_vec(),
            ..Bitstream::default()
        };
        let shown = [
            (of(&[], &[]), "all", "every region of its kind", ""),
            (of(&[0, 1, 2], &[]), "0-2", "region 0-2", ""),
            (of(&[0, 1, 4], &[2, 3, 5]), "0-1, 4 of 6", "region 0-1, 4", "region 2-3, 5"),
        ];
        for (bitstream, listed, built, without) in shown {
            assert_eq!(regions(&bitstream), listed);
            assert_eq!(built_for(&bitstream), built);
            assert_eq!(missing(&bitstream), without);
        }
    }
}
