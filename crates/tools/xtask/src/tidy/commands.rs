//! `cargo` commands in documents: the packages, programs of tests, benchmarks, tests, tasks and variables that they name
//! are there. To run them would take hours; those of the pages for newcomers run in `integration/tests/tests/pages`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::Parser as _;

use crate::Arguments;
use crate::workspace::{Member, Workspace};

/// Options of cargo that take a value.
const WITH_VALUE: [&str; 10] = [
    "-p",
    "--package",
    "--test",
    "--bin",
    "--bench",
    "--features",
    "--profile",
    "--target",
    "--example",
    "-j",
];
/// Prefix of the names of the project's variables.
const VARIABLES: &str = "SNIC_";
/// File that speaks of the past.
const HISTORY: &str = "CHANGELOG.md";

/// Every command in a tracked Markdown file that names something that is not there.
///
/// # Errors
/// A file cannot be read.
pub fn check(workspace: &Workspace, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let sources = Sources::read(&workspace.root, tracked)?;
    let mut wrong = Vec::new();
    for path in tracked.iter().filter(|path| path.ends_with(".md") && *path != HISTORY) {
        let whole = workspace.root.join(path);
        if !whole.exists() {
            continue; // deleted, and not yet committed so
        }
        let text = fs::read_to_string(&whole).with_context(|| format!("reading {path}"))?;
        for (line, command) in commands(&text) {
            let found = problems(&command, &workspace.members, &sources);
            wrong.extend(found.into_iter().map(|why| format!("{path}:{line}: `{command}`: {why}")));
        }
    }
    Ok(wrong)
}

/// Names in the sources of the project.
#[derive(Debug, Default)]
struct Sources {
    /// Path and the names of functions and modules, by file.
    names: Vec<(String, BTreeSet<String>)>,
    /// Variables that programs and tests read.
    variables: BTreeSet<String>,
}

impl Sources {
    fn read(root: &Path, tracked: &[String]) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for path in tracked.iter().filter(|path| path.ends_with(".rs")) {
            let whole = root.join(path);
            if whole.exists() {
                let text = fs::read_to_string(&whole).with_context(|| format!("reading {path}"))?;
                all.add(path, &text);
            }
        }
        Ok(all)
    }

    fn add(&mut self, path: &str, text: &str) {
        let words = || text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        self.variables
            .extend(words().filter(|word| word.starts_with(VARIABLES)).map(str::to_owned));
        let mut names: BTreeSet<String> = words()
            .zip(words().skip(1))
            .filter(|(before, _)| ["fn", "mod"].contains(before))
            .map(|(_, name)| name.to_owned())
            .collect();
        let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        names.extend(stem);
        self.names.push((path.to_owned(), names));
    }

    /// Whether a folder has a test, or a module of tests, whose name contains a text.
    fn has_test(&self, folder: &Path, part: &str) -> bool {
        let of_folder = self.names.iter().filter(|(path, _)| Path::new(path).starts_with(folder));
        of_folder.flat_map(|(_, names)| names).any(|name| name.contains(part))
    }
}

/// The commands of a document: lines of fenced `sh` blocks and code in a line that run cargo, with their lines.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(kind) };
            continue;
        }
        let parts: Vec<&str> = match fence {
            Some(kind) if kind.starts_with("sh") => vec![line],
            Some(_) => Vec::new(),
            None => line.split('`').skip(1).step_by(2).collect(),
        };
        let command = |part: &str| part.split(" #").next().unwrap_or_default().trim().to_owned();
        let runs_cargo = |part: &String| {
            part.split_whitespace()
                .find(|word| !word.contains('='))
                .is_some_and(|word| word == "cargo")
        };
        found.extend(parts.into_iter().map(command).filter(runs_cargo).map(|c| (number + 1, c)));
    }
    found
}

/// A word that stands for what a reader puts there.
fn is_placeholder(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_uppercase() || c == '_') || word.contains(['…', '<'])
}

/// Names in a command that are not there.
fn problems(command: &str, members: &[Member], sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut words = command.split_whitespace().peekable();
    while let Some((name, _)) = words.peek().and_then(|word| word.split_once('=')) {
        if name.starts_with(VARIABLES) && !sources.variables.contains(name) {
            wrong.push(format!("nothing reads the variable {name}"));
        }
        words.next();
    }
    words.next(); // cargo
    let rest: Vec<&str> = words.collect();
    match rest.split_first() {
        Some((&"xtask", task)) => {
            let task: Vec<&str> =
                task.iter().copied().filter(|word| !is_placeholder(word)).collect();
            if !task.is_empty()
                && let Err(error) = Arguments::try_parse_from([&["cargo xtask"], &*task].concat())
                && error.use_stderr()
            {
                let said = error.to_string();
                wrong.push(said.lines().next().unwrap_or_default().to_owned());
            }
        }
        Some((verb, arguments)) => wrong.extend(of_cargo(verb, arguments, members, sources)),
        None => {}
    }
    wrong
}

fn of_cargo(verb: &str, arguments: &[&str], members: &[Member], sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut packages: Vec<&Member> = Vec::new();
    let (mut targets, mut filters) = (Vec::new(), Vec::new());
    // What a program is told that `cargo run` starts is its own.
    let own = arguments.iter().position(|word| *word == "--" && verb == "run");
    let mut words = arguments[..own.unwrap_or(arguments.len())].iter();
    while let Some(word) = words.next() {
        let value = if WITH_VALUE.contains(word) { words.next().copied() } else { None };
        match (*word, value) {
            (_, Some(value)) if is_placeholder(value) => {}
            ("-p" | "--package", Some(name)) => {
                match members.iter().find(|member| member.name == name) {
                    Some(member) => packages.push(member),
                    None => wrong.push(format!("there is no package {name}")),
                }
            }
            ("--test" | "--bin" | "--bench", Some(name)) => targets.push((*word, name)),
            (word, None) if verb == "test" && !word.starts_with('-') && !is_placeholder(word) => {
                filters.push(word);
            }
            _ => {}
        }
    }
    let of =
        |member: &&Member| packages.is_empty() || packages.iter().any(|p| p.name == member.name);
    let chosen: Vec<&Member> = members.iter().filter(of).collect();
    for (kind, name) in targets {
        let has = |member: &&Member| match kind {
            "--bench" => member.benches.iter().any(|bench| bench == name),
            _ => member.test_programs.iter().any(|program| program[..] == [kind, name]),
        };
        if !chosen.iter().any(has) {
            wrong.push(format!("there is no {} {name}", kind.trim_start_matches('-')));
        }
    }
    for filter in filters {
        let part = filter.trim_end_matches("::").rsplit("::").next().unwrap_or(filter);
        let folder = |member: &Member| member.manifest.parent().map(Path::to_owned);
        let has = |member: &&Member| folder(member).is_some_and(|at| sources.has_test(&at, part));
        if !packages.is_empty() && !packages.iter().any(has) {
            wrong.push(format!("there is no test {filter}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::member;

    fn checked(command: &str) -> Vec<String> {
        let mut tables = member("tables", &[]);
        tables.benches = vec!["rows".to_owned()];
        tables.test_programs =
            vec![vec!["--lib".to_owned()], vec!["--test".to_owned(), "simulation".to_owned()]];
        let mut sources = Sources::default();
        let text = "mod layout { #[test] fn every_seed() { std::env::var(\"SNIC_SEED\"); } }";
        sources.add("crates/core/tables/tests/simulation/main.rs", text);
        sources.add("crates/other/src/lib.rs", "fn elsewhere() {}");
        problems(command, &[tables, member("other", &[])], &sources)
    }

    #[test]
    fn what_is_there_is_fine() {
        for fine in [
            "cargo build",
            "cargo test -p snic-tables",
            "SNIC_SEED=17 cargo test --release -p snic-tables --test simulation every_seed -- --nocapture",
            "cargo test -p snic-tables --lib -- --exact layout::every_seed",
            "cargo test -p snic-tables layout::",
            "cargo test -p CRATE",
            "PROPTEST_RNG_SEED=1 cargo test -p snic-tables",
            "cargo bench -p snic-tables --bench rows",
            "cargo xtask mutants --list tables-",
            "cargo xtask",
            "cargo run -p snic-tables -- every_flaw --test nothing",
        ] {
            assert_eq!(checked(fine), [""; 0], "{fine}");
        }
    }

    #[test]
    fn what_is_not_there_is_told() {
        for (wrong, why) in [
            ("cargo test -p snic-table", "there is no package snic-table"),
            ("cargo test -p snic-tables --test fuzz", "there is no test fuzz"),
            ("cargo test -p snic-tables elsewhere", "there is no test elsewhere"),
            ("cargo test -p snic-tables -- --exact a::every_sea", "there is no test a::every_sea"),
            ("cargo bench --bench row", "there is no bench row"),
            ("SNIC_SEEDS=1 cargo test", "nothing reads the variable SNIC_SEEDS"),
            ("cargo xtask tidy --hard", "error: unexpected argument '--hard' found"),
            ("cargo xtask tydy", "error: unrecognized subcommand 'tydy'"),
        ] {
            assert_eq!(checked(wrong), [why], "{wrong}");
        }
    }

    #[test]
    fn commands_are_in_blocks_and_in_lines() {
        let text = "a `cargo test` and `cargo-x` or `x`\n```sh\nA=1 cargo build   # it builds\nls\n```\n\
                    ```text\ncargo no\n```\n`SNIC_X=1 cargo test -p CRATE` ends\n";
        let expected =
            [(1, "cargo test"), (3, "A=1 cargo build"), (9, "SNIC_X=1 cargo test -p CRATE")];
        assert_eq!(commands(text), expected.map(|(line, command)| (line, command.to_owned())));
    }
}
