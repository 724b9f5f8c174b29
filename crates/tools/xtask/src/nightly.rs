//! Steps that only a night has time for: seeds by the thousand, cases that no run has tried, figures, benchmarks, mutants. It is
//! built with optimisation, for it runs for hours.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use crate::bench;
use crate::cluster;
use crate::command::{self, cargo};
use crate::image;
use crate::mutants::{self, Selection};
use crate::platform::Platform;
use crate::programs::{self, TestProgram};
use crate::report::Tally;
use crate::tested::{sum, tested};
use crate::tidy::tracked;
use crate::tier::{FEATURES, MachineUse, Tier};
use crate::workspace::{Member, Workspace};

/// Beginning of the `#[ignore]` of a test for the night, as the sources have it.
const MARK: &str = "#[ignore = \"nightly: ";
/// Cases of each property with a fresh seed; sixteen times as many as usual.
const CASES: &str = "4096";
/// After this a mutant's tests count as hanging.
const MUTANT_LONGEST: Duration = Duration::from_secs(300);

/// Builds the programs of the cluster that tests of the night start, and the images that they import.
///
/// # Errors
/// Something that a build needs is missing, or an image is not what others read.
pub fn cluster(workspace: &Workspace) -> anyhow::Result<Tally> {
    let is_built = cluster::build(workspace)?;
    Ok(Tally::one(is_built && image::run(workspace, &[Platform::of_machine()?], &[])?))
}

/// Runs the tests that are marked for the night.
///
/// # Errors
/// A source cannot be read, or the tests do not build.
pub fn long_tests(workspace: &Workspace) -> anyhow::Result<Tally> {
    let mut marked = Vec::new();
    for member in &workspace.members {
        if is_marked(workspace, member)? {
            marked.push(member);
        }
    }
    if marked.is_empty() {
        bail!("no test is marked for the night; has the attribute changed?");
    }
    let names: Vec<&str> = marked.iter().map(|member| &*member.name).collect();
    println!("tests for the night: {}", names.join(", "));
    tested(optimised(workspace, &names)?, Tier::Nightly, Vec::new())
}

/// Whether a package has a test for the night, by its folder or its attribute.
fn is_marked(workspace: &Workspace, member: &Member) -> anyhow::Result<bool> {
    let folder = member.manifest.parent().unwrap_or(Path::new(""));
    let of_folder = |path: &&String| path.ends_with(".rs") && Path::new(path).starts_with(folder);
    for path in tracked(&workspace.root)?.iter().filter(of_folder) {
        let whole = workspace.root.join(path);
        if whole.exists()
            && fs::read_to_string(&whole).with_context(|| format!("reading {path}"))?.contains(MARK)
        {
            return Ok(true);
        }
    }
    let is_program = |program: &Vec<String>| {
        program.last().is_some_and(|name| Tier::of_program(name) == Tier::Nightly)
    };
    Ok(member.test_programs.iter().any(is_program))
}

/// The test programs of packages, built with optimisation. The programs that they start are built with them.
fn optimised(workspace: &Workspace, packages: &[&str]) -> anyhow::Result<Vec<TestProgram>> {
    let programs = ["snicd", "snicctl", "snic-fleetd", "snic-card"];
    let build: Vec<&str> = ["build", "--release"]
        .into_iter()
        .chain(programs.into_iter().flat_map(|package| ["-p", package]))
        .collect();
    if !command::succeeds(&mut cargo(&workspace.root, &build))? {
        bail!("the programs that tests start do not build");
    }
    let mut selection = vec!["--release".to_owned(), "--lib".to_owned(), "--tests".to_owned()];
    selection.extend(packages.iter().flat_map(|name| ["-p".to_owned(), (*name).to_owned()]));
    let is_chosen =
        |feature: &&str| packages.iter().any(|name| feature.starts_with(&format!("{name}/")));
    let features: Vec<&str> = FEATURES[1].split(',').filter(is_chosen).collect();
    if !features.is_empty() {
        selection.extend(["--features".to_owned(), features.join(",")]);
    }
    programs::built(workspace, &selection)
}

/// Tries properties with cases that no run has tried before. What fails is repeated by its seed, which is printed.
///
/// # Errors
/// The tests do not build, or cannot be run.
pub fn fresh_seeds(workspace: &Workspace) -> anyhow::Result<Tally> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let computes = |member: &&Member| member.plan.load == MachineUse::Compute;
    let names: Vec<&str> =
        workspace.members.iter().filter(computes).map(|member| &*member.name).collect();
    if names.is_empty() {
        bail!("no package says that its tests only compute; has the key changed?");
    }
    let programs = optimised(workspace, &names)?;
    try_seed(programs, since_epoch.as_nanos() as u32, &mut std::io::stdout())
}

fn try_seed(
    mut all: Vec<TestProgram>,
    seed: u32,
    out: &mut (impl Write + Send),
) -> anyhow::Result<Tally> {
    for program in &mut all {
        program.set("PROPTEST_RNG_SEED", &seed.to_string());
        program.set("PROPTEST_CASES", CASES);
    }
    let (total, failures) = sum(programs::run(all, out)?);
    for failure in &failures {
        writeln!(out, "failed with a fresh seed: {failure}")?;
    }
    if total.failed > 0 {
        let repeat = format!("PROPTEST_RNG_SEED={seed} PROPTEST_CASES={CASES}");
        writeln!(out, "repeat one with: {repeat} cargo test --release -p PACKAGE")?;
    }
    Ok(total)
}

/// Draws every figure again; each says whether its numbers are where they should be.
///
/// # Errors
/// Cargo cannot be started.
pub fn figures(workspace: &Workspace) -> anyhow::Result<Tally> {
    let arguments = ["run", "--release", "--bin", "snic-repro", "--", "all"];
    command::succeeds(&mut cargo(&workspace.root, &arguments)).map(Tally::one)
}

/// Runs the benchmarks; a median over its threshold is a failure.
///
/// # Errors
/// Cargo cannot be started, or criterion's files cannot be read.
pub fn benches(workspace: &Workspace) -> anyhow::Result<Tally> {
    bench::run(workspace, &[], true).map(Tally::one)
}

/// Tries all mutants.
///
/// # Errors
/// The list is not valid, the project cannot be copied, or tests fail without a mutant.
pub fn mutants(workspace: &Workspace) -> anyhow::Result<Tally> {
    let selection = Selection {
        words: Vec::new(),
        deadline: MUTANT_LONGEST,
        list: false,
        here: false,
        baseline: true,
    };
    mutants::run(workspace, &selection).map(Tally::one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::{Scripts, result};

    #[test]
    fn failures_of_a_fresh_seed_are_failures() {
        let scripts = Scripts::new();
        let passes =
            scripts.program("passes", MachineUse::Compute, &result("ok", "2 passed; 0 failed"));
        let fails = format!(
            "test \"$PROPTEST_RNG_SEED\" = 77 || exit 0\n{}\nexit 101",
            result("FAILED", "1 passed; 1 failed")
        );
        let fails = scripts.program("fails", MachineUse::Compute, &fails);
        let mut out = Vec::new();
        let tally = try_seed(vec![passes, fails], 77, &mut out).expect("both can be run");
        assert_eq!((tally.passed, tally.failed), (3, 1));
        let out = String::from_utf8_lossy(&out);
        assert!(out.contains("repeat one with: PROPTEST_RNG_SEED=77 "), "{out}");
    }
}
