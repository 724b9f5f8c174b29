//! When a test runs: with each change, before a merge, or at night. A manifest, a folder and an attribute say so, each
//! beside the code that it is about; where none does, the test runs with each change.
//!
//! ```text
//! [package.metadata.snic]        the whole package: `cargo xtask test` does not build it
//! tier = "ci"
//!
//! tests/ci/main.rs               a program of tests of a package that is otherwise tested with each change
//!
//! #[ignore = "ci: two minutes"]  one test; plain `cargo test` leaves it out
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

/// Features that packages are built with.
pub const SHIPPED: [&str; 2] = ["--features", "snicd/cedar,snic-fleetd/s3,snicctl/parquet"];
/// The same for tests, with the fast path, which packages do not have, and tests that take long to build.
pub const FEATURES: [&str; 2] = [
    "--features",
    "snicd/cedar,snic-fleetd/s3,snicctl/parquet,snic-card/fast-path,snic-integration/ci",
];

/// When tests run. Each tier runs what the ones before it leave out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// With each change: `cargo xtask test`.
    #[default]
    Test,
    /// Before a merge: `cargo xtask ci`.
    Ci,
    /// For hours: `cargo xtask nightly`.
    Nightly,
}

/// Use that the tests of a package make of the machine: `tests` in its manifest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MachineUse {
    /// They use a processor each or watch the time: one program after the other.
    #[default]
    Alone,
    /// They only compute: programs run side by side, one for each processor.
    Compute,
    /// They wait for other processes: one program after the other, with twice as many tests at once as there are
    /// processors.
    Wait,
}

/// The content of `[package.metadata.snic]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestPlan {
    /// When they run.
    pub tier: Tier,
    /// Use that they make of the machine.
    pub load: MachineUse,
}

/// Word in the `#[ignore]` of a test that is started by another test.
const PART: &str = "part";

impl Tier {
    /// The name in manifests, folders and attributes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Ci => "ci",
            Self::Nightly => "nightly",
        }
    }

    /// The tier of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Test, Self::Ci, Self::Nightly].into_iter().find(|tier| tier.name() == name)
    }

    /// The tier of a test program by its folder below `tests/`, for which cargo names it.
    pub fn of_program(name: &str) -> Self {
        Self::named(name).unwrap_or_default()
    }

    /// The tier that the reason of an `#[ignore]` names before its colon.
    pub fn of_reason(reason: &str) -> Option<Self> {
        Self::named(reason.split_once(": ")?.0)
    }
}

/// Whether the reason of an `#[ignore]` begins with a tier, or says that another test starts this one.
pub fn is_reason(reason: &str) -> bool {
    let (before, after) = reason.split_once(": ").unwrap_or((reason, ""));
    let is_later = Tier::named(before).is_some_and(|tier| tier > Tier::Test);
    (is_later || before == PART) && !after.trim().is_empty()
}

/// Reads `[package.metadata.snic]`; a package without it has the default of each key.
///
/// # Errors
/// It has another key, or a value that none of them has.
pub fn plan(metadata: &serde_json::Value) -> anyhow::Result<TestPlan> {
    let mut plan = TestPlan::default();
    let Some(ours) = metadata.get("snic") else { return Ok(plan) };
    let Some(keys) = ours.as_object() else { bail!("package.metadata.snic is not a table") };
    for (key, value) in keys {
        let text = value.as_str().unwrap_or_default();
        match key.as_str() {
            "tier" => match Tier::named(text) {
                Some(tier) => plan.tier = tier,
                None => bail!("package.metadata.snic: tier = {value}; write test, ci or nightly"),
            },
            "tests" => match text {
                "alone" => plan.load = MachineUse::Alone,
                "compute" => plan.load = MachineUse::Compute,
                "wait" => plan.load = MachineUse::Wait,
                _ => bail!("package.metadata.snic: tests = {value}; write alone, compute or wait"),
            },
            _ => bail!("package.metadata.snic has the key {key}; there are tier and tests"),
        }
    }
    Ok(plan)
}

/// Tests that no tier runs: an `#[ignore]` without a tier, and files beside a package's `tests/main.rs` that it does not
/// name.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs") && root.join(path).exists()) {
        let text =
            fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
        wrong.extend(without_tier(path, &text));
        if path.ends_with("/tests/main.rs") && !path.contains("/src/") {
            wrong.extend(left_out(path, &text, tracked));
        }
    }
    Ok(wrong)
}

fn without_tier(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("#[ignore") else { continue };
        let reason = rest.split('"').nth(1).unwrap_or_default();
        if !is_reason(reason) {
            wrong.push(format!(
                "{path}:{}: no tier runs this test: write #[ignore = \"ci: …\"], \"nightly: …\", or \
                 \"part: …\" if another test starts it",
                index + 1
            ));
        }
    }
    wrong
}

/// Modules beside a list of modules, `tests/main.rs`, that it does not name: nothing builds them. A program of its own is
/// a `[[test]]` of the manifest.
fn left_out(list: &str, text: &str, tracked: &[String]) -> Vec<String> {
    let folder = list.trim_end_matches("main.rs");
    let module = |path: &str| -> Option<String> {
        let rest = path.strip_prefix(folder)?;
        let name = rest.strip_suffix("/mod.rs").or_else(|| rest.strip_suffix(".rs"))?;
        (!name.contains('/') && name != "main").then(|| name.to_owned())
    };
    let is_named = |name: &String| text.contains(&format!("mod {name};"));
    let is_program = |name: &String| text.contains(&format!("`{name}`"));
    let names = tracked.iter().filter_map(|path| module(path));
    let missing = names.filter(|name| !is_named(name) && !is_program(name));
    missing.map(|name| format!("{list}: does not name {name}, which nothing builds then")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_package_is_tested_with_each_change_where_its_manifest_says_nothing() {
        for nothing in [json!(null), json!({}), json!({ "deb": { "tier": "ci" } })] {
            assert_eq!(plan(&nothing).unwrap(), TestPlan::default());
        }
        let said = plan(&json!({ "snic": { "tier": "ci", "tests": "wait" } })).unwrap();
        assert_eq!(said, TestPlan { tier: Tier::Ci, load: MachineUse::Wait });
    }

    #[test]
    fn what_a_manifest_may_not_say_is_told_with_what_it_may() {
        for (wrong, part) in [
            (json!({ "tier": "hourly" }), "\"hourly\"; write test, ci or nightly"),
            (json!({ "tier": 7 }), "tier = 7"),
            (json!({ "tests": "never" }), "write alone, compute or wait"),
            (json!({ "teir": "ci" }), "has the key teir"),
        ] {
            let error = plan(&json!({ "snic": wrong })).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(plan(&json!({ "snic": "ci" })).is_err());
    }

    #[test]
    fn reasons_name_a_later_tier_or_a_part_and_say_why() {
        assert_eq!(Tier::of_reason("ci: two minutes"), Some(Tier::Ci));
        assert_eq!(Tier::of_reason("nightly: a thousand sets"), Some(Tier::Nightly));
        assert_eq!(Tier::of_reason("part: another test starts it"), None);
        for good in ["ci: two minutes", "nightly: ci: no", "part: of the test above"] {
            assert!(is_reason(good), "{good}");
        }
        for bad in ["", "takes minutes", "ci", "ci: ", "ci:minutes", "test: always", "part"] {
            assert!(!is_reason(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_test_that_no_tier_runs_is_found() {
        let text =
            "#[test]\n#[ignore]\nfn a() {}\n    #[ignore = \"slow\"]\n#[ignore = \"ci: slow\"]\n";
        let wrong = without_tier("tests/a.rs", text);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("tests/a.rs:2: no tier runs this test"), "{wrong:?}");
        assert!(wrong[1].starts_with("tests/a.rs:4: "), "{wrong:?}");
    }

    #[test]
    fn a_file_that_the_list_of_modules_does_not_name_is_found() {
        let files = ["main.rs", "rows.rs", "memory.rs", "sim/mod.rs", "sim/world.rs", "new.rs"];
        let tracked: Vec<String> = files.iter().map(|of| format!("crates/a/tests/{of}")).collect();
        let text = "//! What counts allocations is `memory`.\nmod rows;\nmod sim;\n";
        let wrong = left_out("crates/a/tests/main.rs", text, &tracked);
        assert_eq!(wrong, ["crates/a/tests/main.rs: does not name new, which nothing builds then"]);
    }

    #[test]
    fn folders_of_programs_name_tiers() {
        assert_eq!(Tier::of_program("ci"), Tier::Ci);
        assert_eq!(Tier::of_program("nightly"), Tier::Nightly);
        assert_eq!(Tier::of_program("circuits"), Tier::Test);
    }
}
