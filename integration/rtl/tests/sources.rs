//! The sources: what tools say of them, and what is not in them.

use std::path::{Path, PathBuf};
use std::process::Command;

use snic_integration_rtl::{Shell, is_there};

fn modules() -> Vec<PathBuf> {
    Shell::of_repository().modules().expect("the folder is there")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a source")
}

/// Alone and as the kernel for XRT, with assertions and without.
#[test]
fn verilator_has_no_warning() {
    if !is_there() {
        return;
    }
    let kernel =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bitstreams/flow/rtl/snic_control.v");
    let shell = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bitstreams/shell");
    let primitives = ["ICAPE3", "BUFGCE_DIV"];
    for (top, defines) in [
        ("snic_core", &[][..]),
        ("snic_core", &["-DSNIC_ASSERTIONS", "--assert"]),
        ("snic_shell", &[]),
        ("snic_control", &[]),
    ] {
        let linted = Command::new("verilator")
            .args(["--lint-only", "-Wall", "--top-module", top])
            .args(defines)
            .args(modules())
            .args(primitives.iter().map(|name| shell.join(format!("tests/primitives/{name}.sv"))))
            .args((top == "snic_control").then_some(&kernel))
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&linted.stderr);
        assert!(linted.status.success() && said.is_empty(), "{top} {defines:?}: {said}");
    }
}

/// The banks' own bench: packets of the old bank for as long as it takes.
#[test]
fn a_commit_waits_for_packets_of_the_old_bank() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let shell = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bitstreams/shell");
    let needed = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default();
        ["snic_map_pkg", "snic_table", "snic_banks"].iter().any(|needed| name == *needed)
    };
    let built = Command::new("verilator")
        .args(["--binary", "-Wno-fatal", "--assert", "-DSNIC_ASSERTIONS", "-CFLAGS", "-O1"])
        .args(["--top-module", "snic_banks_tb", "-Mdir"])
        .arg(folder.path())
        .args(modules().into_iter().filter(needed))
        .arg(shell.join("tests/snic_banks_tb.sv"))
        .output()
        .expect("it starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(folder.path().join("Vsnic_banks_tb")).output().expect("it was built");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.lines().any(|line| line == "ok 92"), "{said}");
}

/// So that simulation and synthesis read the same.
#[test]
fn there_is_one_set_of_sources_for_all_tools() {
    let mut waivers = 0;
    for path in modules() {
        let (name, text) = (path.display(), text(&path));
        let conditions = text.lines().filter(|line| line.trim_start().starts_with("`if"));
        let foreign: Vec<_> =
            conditions.filter(|line| line.trim() != "`ifdef SNIC_ASSERTIONS").collect();
        assert!(foreign.is_empty(), "{name}: {foreign:?}");
        for word in ["SYNTHESIS", "VERILATOR", "initial ", "#1", "force "] {
            assert!(!text.contains(word), "{name} has {word:?}");
        }
        waivers += text.matches("lint_off").count();
    }
    assert!(
        waivers <= 1,
        "{waivers} waivers: the one is in the package, of which each module needs a part"
    );
}
