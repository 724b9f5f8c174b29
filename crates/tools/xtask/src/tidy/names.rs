//! One name means one type: two crates do not have a public type of the same name, so that a name in a message,
//! a review or a search result says which type is meant.
//!
//! Types that only one crate can see (`pub(crate)`, private) are not checked, and neither are the types that are
//! generated from `proto/`: a resource of the API and its domain value share their name on purpose.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};

/// Names that several crates may have, and why.
const SHARED: &[(&str, &str)] = &[
    ("Answer", "etcd's answers; a daemon that tests make up has some too: never in one file"),
    ("CardCommand", "a verb of `snicctl card` beside the command to a card: never in one file"),
    ("Change", "of a key, as etcd tells it; the controller's is of a resource: never in one file"),
    ("Command", "clap's word for the verbs of a program; the controller's is the command"),
    ("DaemonClient", "each program that calls the daemon has its own"),
    ("InvalidSettings", "each program reads its own settings"),
    ("Request", "to etcd, by the fleet; the controller's is by a client: never in one file"),
    ("Settings", "each program reads its own settings"),
];

/// Names that two crates have although they are not in the list, and entries of the list that are not needed.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut places: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs")) {
        let (Some(owner), true) = (crate_of(path), root.join(path).exists()) else { continue };
        let text =
            fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
        let Ok(tokens) = TokenStream::from_str(&text) else {
            return Ok(vec![format!("{path}: not valid Rust")]);
        };
        for name in public_types(tokens) {
            places.entry(name).or_default().insert(owner.to_owned(), path.clone());
        }
    }
    Ok(compare(&places))
}

/// The folder of the crate whose sources the file is one of; `None` for tests, benchmarks and examples.
fn crate_of(path: &str) -> Option<&str> {
    let (owner, file) = path.split_once("/src/")?;
    let is_test = file == "tests.rs"
        || file.ends_with("/tests.rs")
        || file.ends_with("_tests.rs")
        || file.contains("tests/");
    (!is_test).then_some(owner)
}

/// The types that are declared `pub`, outside of bodies of functions and modules of tests.
fn public_types(tokens: TokenStream) -> Vec<String> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let word = |at: usize| match trees.get(at) {
        Some(TokenTree::Ident(word)) => word.to_string(),
        _ => String::new(),
    };
    let mut found = Vec::new();
    for at in 0..trees.len() {
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&word(at + 1).as_str());
        if word(at) == "pub" && is_type {
            found.push(word(at + 2));
        }
    }
    found
}

/// Faults, given the crates and files that declare each name.
fn compare(places: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<String> {
    let is_listed = |name: &str| SHARED.iter().any(|(listed, _)| *listed == name);
    let mut wrong = Vec::new();
    for (name, declared) in places.iter().filter(|(_, declared)| declared.len() > 1) {
        if !is_listed(name) {
            let files: Vec<&str> = declared.values().map(String::as_str).collect();
            wrong.push(format!(
                "`{name}` is the name of several public types: {}; rename all but one, or list the name \
                 with its reason in crates/tools/xtask/src/tidy/names.rs",
                files.join(", ")
            ));
        }
    }
    for (name, _) in SHARED {
        if places.get(*name).is_none_or(|declared| declared.len() < 2) {
            wrong.push(format!(
                "crates/tools/xtask/src/tidy/names.rs lists `{name}`, which at most one crate has: remove it there"
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        public_types(TokenStream::from_str(text).expect("Rust"))
    }

    #[test]
    fn only_what_other_crates_can_see_counts() {
        let text = "/// pub struct Comment;
            pub struct A<'a>(&'a str); pub enum B {} pub trait C {} pub type D = u8;
            pub(crate) struct E; struct F; pub fn g() { struct H; }
            mod tests { pub struct I; }
            impl C for A<'_> { type Out = u8; }";
        assert_eq!(found(text), ["A", "B", "C", "D"]);
    }

    #[test]
    fn tests_benchmarks_and_examples_are_not_sources() {
        assert_eq!(crate_of("crates/a/src/lib.rs"), Some("crates/a"));
        assert_eq!(crate_of("integration/b/src/c/d.rs"), Some("integration/b"));
        for path in [
            "crates/a/tests/b.rs",
            "crates/a/benches/b.rs",
            "crates/a/src/b/tests.rs",
            "crates/a/src/b/tests/c.rs",
            "crates/a/src/b_tests.rs",
        ] {
            assert_eq!(crate_of(path), None, "{path}");
        }
    }

    /// The names, each in these crates, beside those of the list in two crates each.
    fn places(names: &[(&str, &[&str])]) -> BTreeMap<String, BTreeMap<String, String>> {
        let listed = SHARED.iter().map(|(name, _)| (*name, &["x", "y"][..]));
        let declared = |(name, crates): (&str, &[&str])| {
            let files = crates
                .iter()
                .map(|owner| ((*owner).to_owned(), format!("crates/{owner}/src/lib.rs")));
            (name.to_owned(), files.collect())
        };
        listed.chain(names.iter().copied()).map(declared).collect()
    }

    #[test]
    fn a_name_in_two_crates_is_told_with_both_files() {
        assert_eq!(compare(&places(&[("A", &["a"]), ("B", &["b"])])), [""; 0]);
        let told = compare(&places(&[("A", &["a", "b"])]));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("`A` is the name of several public types: crates/a/src/lib.rs, ")
        );
    }

    #[test]
    fn a_name_in_the_list_that_is_not_shared_any_more_is_told() {
        let told = compare(&places(&[("Settings", &["a"])]));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("lists `Settings`"), "{told:?}");
    }
}
