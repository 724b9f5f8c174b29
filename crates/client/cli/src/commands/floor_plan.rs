//! `snicctl card import-floorplan`: the frames of a region, from what Vivado wrote of it.

use std::io;
use std::path::Path;

use snic_bitstream::catalogue::{File, builtin};
use snic_bitstream::import::{DeviceMap, LogicLocation, Pblock, import_region};
use snic_client::Failure;
use toml_edit::{DocumentMut, Item};

use crate::args::FloorPlanSources;

/// Takes the floor plan from the files; prints it, or writes it into a card profile.
pub fn import(sources: &FloorPlanSources) -> Result<(), Failure> {
    let device = read(&sources.device)?;
    let map = DeviceMap::from_bitstream(&device).map_err(|error| wrong(&sources.device, error))?;
    let partials: Vec<_> =
        sources.partial.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let partials: Vec<&[u8]> = partials.iter().map(Vec::as_slice).collect();
    let pblock = Pblock::parse(&read_text(&sources.pblock)?);
    let pblock = pblock.map_err(|error| wrong(&sources.pblock, error))?;
    let locations = LogicLocation::parse(&read_text(&sources.logic_locations)?);
    let locations = locations.map_err(|error| wrong(&sources.logic_locations, error))?;
    let region = import_region(&map, &partials, &pblock, &locations)
        .map_err(|error| Failure::usage(error.to_string(), ""))?;
    let plan = region.to_toml();
    match (&sources.profile, sources.group) {
        (Some(path), Some(group)) => {
            let text = insert(&read_text(path)?, &plan, group).map_err(|what| wrong(path, what))?;
            let name = path.display().to_string();
            let file = File { name: &name, text: &text };
            // What the daemon would say of it.
            let checked = builtin().and_then(|catalogue| catalogue.with_cards(&[file]));
            checked.map_err(|error| Failure::usage(error.to_string(), "the file is unchanged"))?;
            let failed = |source| Failure::Write { path: path.clone(), source };
            std::fs::write(path, text).map_err(failed)?;
            let ranges = region.frames.len();
            crate::print(&format!("regions[{group}] of {name}: {ranges} ranges of frames\n"))
        }
        _ => crate::print(&plan),
    }
}

/// A card profile with the floor plan of one of its groups of regions. Comments and order stay.
fn insert(profile: &str, plan: &str, group: usize) -> Result<String, String> {
    let mut profile: DocumentMut = profile.parse().map_err(|error| format!("{error}"))?;
    let mut plan: DocumentMut = plan.parse().map_err(|error| format!("{error}"))?;
    let mut take = |key: &str| plan.remove(key).ok_or_else(|| format!("the plan has no {key}"));
    let (rows, frames) = (take("rows")?, take("frames")?);
    let regions = profile.get_mut("regions").and_then(Item::as_array_of_tables_mut);
    let regions = regions.ok_or("the profile has no [[regions]]")?;
    let count = regions.len();
    let region = regions.get_mut(group).ok_or_else(|| {
        format!("there is no group {group}; the profile has {count} [[regions]], counted from 0")
    })?;
    region.insert("frames", frames);
    profile.insert("rows", rows);
    Ok(profile.to_string())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|source| Failure::Read { path: path.to_owned(), source })
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let text = String::from_utf8(read(path)?);
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    text.map_err(|error| Failure::Read { path: path.to_owned(), source: invalid(error) })
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{}: {what}", path.display()), "")
}

#[cfg(test)]
mod tests {
    use snic_bitstream::catalogue::BUILTIN;

    use super::*;

    const PLAN: &str = "rows = [\n    { die = 0, block_type = 0, columns = 7 },\n]\nframes = [\n    \
        { die = 0, block_type = 0, rows = [1, 2], columns = [3, 5], frames_per_column = 16 },\n]\n";

    #[test]
    fn a_plan_goes_into_its_group_and_everything_else_stays() {
        let profile = BUILTIN.cards[0].text;
        let text = insert(profile, PLAN, 1).expect("there are two groups");
        let catalogue = builtin().expect("valid");
        let file = File { name: "mine", text: &text };
        let catalogue = catalogue.with_cards(&[file]).expect("valid");
        let before = builtin().expect("valid");
        let (new, old) = (&catalogue.floor_plans[0], &before.floor_plans[0]);
        assert_eq!(new.groups[0], old.groups[0]);
        let [range] = &new.groups[1].ranges[..] else { panic!("{:?}", new.groups[1]) };
        assert_eq!((range.rows.clone(), range.columns.clone()), (1..=2, 3..=5));
        assert_eq!(new.rows.len(), 1);
        assert_eq!(catalogue.cards[0], before.cards[0]);
        for comment in profile.lines().filter(|line| line.starts_with('#')) {
            assert!(text.contains(comment), "{comment}");
        }
        assert_eq!(insert(&text, PLAN, 1).expect("again"), text, "twice is once");
    }

    #[test]
    fn a_group_that_is_not_there_is_named() {
        let error = insert(BUILTIN.cards[0].text, PLAN, 2).expect_err("two groups");
        assert!(error.contains("no group 2") && error.contains("2 [[regions]]"), "{error}");
        let error = insert("model = \"x\"", PLAN, 0).expect_err("no regions");
        assert!(error.contains("no [[regions]]"), "{error}");
    }
}
