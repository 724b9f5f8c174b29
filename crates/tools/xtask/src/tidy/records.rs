//! Each record of the controller's store has one writer: a module that may change another one's records could
//! undo what that one believes to be stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;

use super::sources::{code_lines, is_test};

/// Where the modules are.
const SOURCES: &str = "crates/core/controller/src/";

/// Calls that write or delete a record.
const WRITES: [&str; 2] = ["put(Record::", "delete(RecordKey::"];

/// The records that several modules of the controller write.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut writers = BTreeMap::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs") && !is_test(path)) {
        let Some(file) = path.strip_prefix(SOURCES).filter(|_| root.join(path).exists()) else {
            continue;
        };
        let text =
            fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
        note_writers(file, &text, &mut writers);
    }
    Ok(shared(&writers))
}

/// Notes which records a file's module writes; the file by its path below [`SOURCES`].
fn note_writers(file: &str, text: &str, writers: &mut BTreeMap<String, BTreeSet<String>>) {
    // The module in its folder: `state/rules.rs` is of `rules`.
    let (_, below) = file.split_once('/').unwrap_or(("", file));
    let module = below.split(['/', '.']).next().unwrap_or(below);
    let code: Vec<&str> = text.lines().take(code_lines(text)).collect();
    // A call may be broken over lines.
    let code: String = code.join("").split_whitespace().collect();
    for call in WRITES {
        for (at, found) in code.match_indices(call) {
            let kind = code[at + found.len()..].split(|c: char| !c.is_alphanumeric()).next();
            let kind = kind.unwrap_or_default().to_owned();
            writers.entry(kind).or_default().insert(module.to_owned());
        }
    }
}

fn shared(writers: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let several = writers.iter().filter(|(_, modules)| modules.len() > 1);
    let told = several.map(|(kind, modules)| {
        let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
        format!(
            "{SOURCES}: {} all write Record::{kind}: make it a verb of the machine that owns it",
            modules.join(", ")
        )
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        let mut writers = BTreeMap::new();
        files.iter().for_each(|(file, text)| note_writers(file, text, &mut writers));
        shared(&writers)
    }

    #[test]
    fn a_record_has_one_writer() {
        let put = "fn a() {\n    tx.put(\n        Record::Rule(rule),\n    );\n}\n";
        let delete = "fn b() {\n    tx.delete(RecordKey::Rule(id));\n}\n";
        assert_eq!(
            told(&[("state/rules.rs", put), ("state/rules/view.rs", delete)]),
            [""; 0],
            "one module"
        );
        let both = told(&[("state/rules.rs", put), ("request/lifecycle.rs", delete)]);
        assert_eq!(both.len(), 1, "{both:?}");
        assert!(both[0].contains("lifecycle, rules all write Record::Rule"), "{both:?}");
    }

    #[test]
    fn tests_may_write_what_they_like() {
        let tested = "fn b() {}\n\n#[cfg(test)]\nmod tests {\n    tx.put(Record::Rule(rule));\n}\n";
        let put = "fn a() {\n    tx.put(Record::Rule(rule));\n}\n";
        assert_eq!(told(&[("state/rules.rs", put), ("request/lifecycle.rs", tested)]), [""; 0]);
    }
}
