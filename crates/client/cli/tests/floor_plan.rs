//! `snicctl card import-floorplan`: from files as Vivado writes them to a card profile that the daemon reads, and by which
//! uploads are checked.

use std::path::{Path, PathBuf};

use crate::image::{Device, Region, bit, partial};
use snic_bitstream::catalogue::{BUILTIN, with_profiles};
use snic_bitstream::{FloorPlan, parse};
use snic_domain::RegionKind;

use crate::reports;

/// Files that a flow leaves behind, and the shipped profile of `sim-16` under another name.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        let device = Device::small();
        folder.put("shell.bit", &bit(&reports::shell(&device)));
        folder.put("region0.bit", &bit(&partial(&device, &reports::region())));
        folder.put("pblock0.txt", reports::PBLOCK.as_bytes());
        folder.put("region0.ll", reports::locations(&device).as_bytes());
        std::fs::create_dir(folder.path("profiles")).expect("a folder");
        let profile = BUILTIN.cards[0].text.replace("\"sim-16\"", "\"mine\"");
        folder.put("profiles/mine.toml", profile.as_bytes());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("the folder takes files");
    }

    fn profile(&self) -> String {
        std::fs::read_to_string(self.path("profiles/mine.toml")).expect("it is there")
    }

    /// Its success, and what it said.
    fn import(&self, more: &str) -> (bool, String) {
        let line = "card import-floorplan --device shell.bit --partial region0.bit \
                    --pblock pblock0.txt --logic-locations region0.ll";
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_snicctl"));
        command.current_dir(self.path("")).args(line.split_whitespace());
        let output = command.args(more.split_whitespace()).output().expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).expect("text"))
    }
}

fn plan(profiles: &Path) -> FloorPlan {
    let catalogue = with_profiles(Some(profiles)).expect("a valid profile");
    let mut plans = catalogue.floor_plans.into_iter();
    plans.find(|plan| plan.model.as_str() == "mine").expect("it has a plan")
}

#[test]
fn a_profile_gets_the_frames_of_a_region_and_the_checker_holds_bitstreams_against_them() {
    let folder = Folder::new();
    let is_taken = |region: &Region| {
        let bytes = bit(&partial(&Device::small(), region));
        let file = parse(&bytes).expect("valid");
        plan(&folder.path("profiles")).check(&file, RegionKind::KnownNt).is_ok()
    };
    assert!(!is_taken(&reports::region()), "the shipped plan is for test images");
    let (is_done, printed) = folder.import("");
    assert!(is_done && printed.contains("frames_per_column"), "{printed}");
    let before = folder.profile();
    assert!(!is_taken(&reports::region()), "it was only printed");

    let (is_done, said) = folder.import("--profile profiles/mine.toml --group 0");
    assert!(is_done && said.contains("regions[0] of profiles/mine.toml: 5 ranges"), "{said}");
    assert_ne!(folder.profile(), before);
    assert!(is_taken(&reports::region()));
    assert!(!is_taken(&Region { columns: 2..=6, ..reports::region() }), "one column more");
    assert!(!is_taken(&Region { rows: 2..=3, ..reports::region() }), "other rows");
}

#[test]
fn reports_that_contradict_each_other_leave_the_profile_as_it_is() {
    let folder = Folder::new();
    let before = folder.profile();
    let other = reports::PBLOCK.replace("SLICE_X4Y60:SLICE_X11Y179", "SLICE_X4Y60:SLICE_X9Y179");
    folder.put("pblock0.txt", other.as_bytes());
    let (is_done, said) = folder.import("--profile profiles/mine.toml --group 0");
    assert!(!is_done, "{said}");
    assert_eq!(folder.profile(), before);
}
