//! The crates that decide what is promised to whom have at least as many lines of tests as of code.
//!
//! Counted are lines with code: neither blank nor only a comment. Tests are the files below `tests/`, those
//! that are named `tests.rs`, `fixtures.rs` or `…_tests.rs`, and the modules under `#[cfg(test)]`.
//! Benchmarks and examples are neither.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;

use super::sources::code_lines;

/// The crates, each with the least percentage of test lines.
const CRATES: &[(&str, usize)] =
    &[("controller", 100), ("domain", 98), ("fairness", 100), ("planner", 100)];

/// Where they are.
const FOLDER: &str = "crates/core/";

/// Lines of one crate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) code: usize,
    tests: usize,
}

impl Lines {
    fn percent(self) -> usize {
        self.tests * 100 / self.code.max(1)
    }
}

/// Prints the lines of each crate; gives the crates with fewer tests than they must have.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut lines: BTreeMap<&str, Lines> = BTreeMap::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs") && root.join(path).exists()) {
        let Some((owner, file)) = path.strip_prefix(FOLDER).and_then(|p| p.split_once('/')) else {
            continue;
        };
        if CRATES.iter().any(|(name, _)| *name == owner) {
            let text =
                fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
            let sum = lines.entry(owner).or_default();
            let here = count(file, &text);
            (sum.code, sum.tests) = (sum.code + here.code, sum.tests + here.tests);
        }
    }
    for (name, lines) in &lines {
        let Lines { code, tests } = lines;
        println!("  {name}: {tests} lines of tests for {code} of code ({} %)", lines.percent());
    }
    Ok(compare(&lines))
}

/// The lines of one file, by its path in its crate.
pub(super) fn count(file: &str, text: &str) -> Lines {
    let all: Vec<&str> = text.lines().collect();
    let with_code = |lines: &[&str]| {
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        lines.iter().filter(is_code).count()
    };
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let is_test = folder.split('/').any(|folder| folder == "tests")
        || ["tests.rs", "fixtures.rs"].contains(&name)
        || name.ends_with("_tests.rs");
    match is_test {
        true => Lines { code: 0, tests: with_code(&all) },
        false if file.starts_with("src/") => {
            let (code, tests) = all.split_at(code_lines(text));
            Lines { code: with_code(code), tests: with_code(tests) }
        }
        false => Lines::default(),
    }
}

fn compare(lines: &BTreeMap<&str, Lines>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, least) in CRATES {
        let lines = lines.get(name).copied().unwrap_or_default();
        if lines.percent() < *least {
            wrong.push(format!(
                "{FOLDER}{name}: {} lines of tests for {} of code, {} %; at least {least} % are required: \
                 test what was added",
                lines.tests,
                lines.code,
                lines.percent()
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_do_not_count() {
        let text = "//! Why.\n\n/// What.\nfn a() {\n    // how\n}\n\n#[cfg(test)]\nmod tests {\n    b();\n}\n";
        assert_eq!(count("src/a.rs", text), Lines { code: 2, tests: 4 });
    }

    #[test]
    fn files_of_tests_count_as_tests_and_benchmarks_as_neither() {
        let text = "fn a() {}\n";
        for file in
            ["tests/a.rs", "tests/b/c.rs", "src/b/tests.rs", "src/b_tests.rs", "src/fixtures.rs"]
        {
            assert_eq!(count(file, text), Lines { code: 0, tests: 1 }, "{file}");
        }
        for file in ["benches/a.rs", "examples/a.rs", "build.rs"] {
            assert_eq!(count(file, text), Lines::default(), "{file}");
        }
        assert_eq!(count("src/latests.rs", text), Lines { code: 1, tests: 0 });
    }

    #[test]
    fn a_crate_with_too_few_tests_is_told() {
        let enough =
            |(name, least): &(&'static str, usize)| (*name, Lines { code: 100, tests: *least });
        let mut lines: BTreeMap<&str, Lines> = CRATES.iter().map(enough).collect();
        assert_eq!(compare(&lines), [""; 0]);
        let (name, least) = CRATES[0];
        lines.insert(name, Lines { code: 100, tests: least - 1 });
        let told = compare(&lines);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(&format!("{FOLDER}{name}: {} lines of tests", least - 1)));
        lines.remove(name);
        assert_eq!(compare(&lines).len(), 1, "a crate that is gone has no tests");
    }
}
