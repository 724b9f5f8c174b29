//! The list of mutants: files, their format, and whether each patch still applies.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use toml::{Table, Value};

/// Where the list is, from the root.
const FOLDER: &str = "crates/tools/xtask/mutants";

/// Least number of mutants in the list: enough to tell something about all parts.
const MUTANTS_MIN: usize = 150;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// Unique in the whole list.
    pub name: String,
    /// Property that no longer holds, for people.
    pub breaks: String,
    /// The file, from the root.
    pub file: String,
    /// Stands in the file exactly once.
    pub from: String,
    /// Text that stands there instead.
    pub to: String,
    /// Arguments of `cargo test` for the tests that should notice; for whole packages `-p NAME` alone.
    pub tests: Vec<String>,
}

impl Mutant {
    /// Whether it is selected: one of the words is in its name, file or tests, or there are no words.
    pub fn matches(&self, words: &[String]) -> bool {
        let is_in = |word: &String| {
            self.name.contains(word)
                || self.file.contains(word)
                || self.tests.iter().any(|test| test == word)
        };
        words.is_empty() || words.iter().any(is_in)
    }

    /// The file's text with the mutant in it.
    ///
    /// # Errors
    /// The text to replace is not there exactly once, or nothing would change.
    pub fn apply(&self, text: &str) -> anyhow::Result<String> {
        match text.matches(&self.from).count() {
            _ if self.from == self.to => bail!("`from` and `to` are the same"),
            1 => Ok(text.replacen(&self.from, &self.to, 1)),
            0 => bail!("`from` is not in {}; update it to what the code says now", self.file),
            n => bail!("`from` occurs {n} times in {}; add a line around it", self.file),
        }
    }
}

/// All mutants, by file of the list.
///
/// # Errors
/// A file cannot be read, or is not what it should be: the file and the mutant are named.
pub fn load(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let folder = root.join(FOLDER);
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {FOLDER}"))?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.with_context(|| format!("reading {FOLDER}"))?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut mutants = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        mutants.extend(parse(&text).with_context(|| file.display().to_string())?);
    }
    Ok(mutants)
}

/// The mutants of one file: `tests` for all of them, and a `[[mutant]]` each.
fn parse(text: &str) -> anyhow::Result<Vec<Mutant>> {
    let table: Table = text.parse()?;
    let common = match table.get("tests") {
        None => Vec::new(),
        tests => words(tests).context("`tests`: expected a list of strings")?,
    };
    let known = ["tests", "mutant"];
    if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
        bail!("unknown key `{key}`; allowed: {}", known.join(", "));
    }
    let entries = table.get("mutant").and_then(Value::as_array).context("no [[mutant]]")?;
    entries.iter().map(|entry| mutant(entry, &common)).collect()
}

fn mutant(entry: &Value, common: &[String]) -> anyhow::Result<Mutant> {
    let table = entry.as_table().context("`mutant`: expected [[mutant]] tables")?;
    let known = ["name", "breaks", "file", "from", "to", "tests"];
    let name = table.get("name").and_then(Value::as_str).context("a mutant without `name`")?;
    if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
        bail!("{name}: unknown key `{key}`; allowed: {}", known.join(", "));
    }
    let text = |key: &str| {
        let value = table.get(key).and_then(Value::as_str);
        value.map(str::to_owned).with_context(|| format!("{name}: `{key}`: expected a string"))
    };
    let tests = match table.get("tests") {
        None => common.to_vec(),
        own => words(own).with_context(|| format!("{name}: `tests`: expected strings"))?,
    };
    if tests.is_empty() {
        bail!("{name}: no `tests`, neither its own nor of its file");
    }
    Ok(Mutant {
        name: name.to_owned(),
        breaks: text("breaks")?,
        file: text("file")?,
        from: text("from")?,
        to: text("to")?,
        tests,
    })
}

fn words(value: Option<&Value>) -> Option<Vec<String>> {
    value?.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

/// Faults of the list: too short, a name twice, a patch that no longer applies.
///
/// # Errors
/// The list cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mutants = load(root)?;
    let mut wrong = Vec::new();
    if mutants.len() < MUTANTS_MIN {
        let count = mutants.len();
        wrong.push(format!("{FOLDER}: {count} mutants, at least {MUTANTS_MIN} expected"));
    }
    let mut names = BTreeSet::new();
    for mutant in &mutants {
        if !names.insert(&mutant.name) {
            wrong.push(format!("{FOLDER}: duplicate mutant name {}", mutant.name));
        }
        let text = fs::read_to_string(root.join(&mutant.file)).unwrap_or_default();
        if let Err(error) = mutant.apply(&text) {
            wrong.push(format!("{FOLDER}: {}: {error}", mutant.name));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        tests = ["-p", "snic-planner"]
        [[mutant]]
        name = "one"
        breaks = "the sum"
        file = "a.rs"
        from = "a + b"
        to = "a - b"
        [[mutant]]
        name = "two"
        breaks = "the order"
        file = "b.rs"
        from = "<"
        to = "<="
        tests = ["-p", "other"]
    "#;

    #[test]
    fn a_mutant_has_the_tests_of_its_file_or_its_own() {
        let mutants = parse(FILE).expect("valid");
        assert_eq!(mutants[0].tests, ["-p", "snic-planner"]);
        assert_eq!(mutants[1].tests, ["-p", "other"]);
    }

    #[test]
    fn misspelt_keys_are_named() {
        let error = |from: &str, to: &str| {
            format!("{:#}", parse(&FILE.replacen(from, to, 1)).expect_err("refused"))
        };
        assert!(error("breaks", "brakes").contains("one: unknown key `brakes`"));
        assert!(error("name = \"two\"", "").contains("without `name`"));
        assert!(error("[\"-p\", \"snic-planner\"]", "1").contains("`tests`"));
        assert!(error("file = \"b.rs\"", "").contains("two: `file`"));
    }

    #[test]
    fn a_patch_applies_where_its_text_is_there_once() {
        let mutant = &parse(FILE).expect("valid")[0];
        assert_eq!(mutant.apply("x = a + b;").expect("once"), "x = a - b;");
        assert!(mutant.apply("x = b;").is_err());
        assert!(mutant.apply("a + b, a + b").is_err());
        let same = Mutant { to: mutant.from.clone(), ..mutant.clone() };
        assert!(same.apply("a + b").is_err());
    }

    #[test]
    fn words_select_by_name_file_and_package() {
        let mutants = parse(FILE).expect("valid");
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            mutants.iter().filter(|m| m.matches(&words)).map(|m| &*m.name).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[]), ["one", "two"]);
        assert_eq!(chosen(&["tw"]), ["two"]);
        assert_eq!(chosen(&["a.rs"]), ["one"]);
        assert_eq!(chosen(&["snic-planner", "other"]), ["one", "two"]);
    }
}
