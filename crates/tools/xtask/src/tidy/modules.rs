//! The folders of the controller and their order: each uses only those before it. In `state`, machines own their state
//! and know nothing of each other; what concerns several of them is put together in the folders behind it. An import is
//! all it takes to lose that, so every `crate::` path of its sources is checked against these lists.
//!
//! Code under `#[cfg(test)]` may use what it likes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Where the folders are.
const SOURCES: &str = "crates/core/controller/src/";

/// The folders, lower ones first. `controller` routes each event, so it may use all of them.
const FOLDERS: [&str; 10] = [
    "protocol",
    "store",
    "decide",
    "state",
    "view",
    "place",
    "request",
    "react",
    "restart",
    "controller",
];

/// The folder whose modules are machines.
const MACHINES: &str = "state";

/// Parts of its folder that a machine may use. `*` stands for all machines.
const SHARED: &[(&str, &[&str])] = &[
    ("*", &["device_health", "meter", "nt_numbers", "tally", "traffic_windows"]), // parts that several machines are made of
    ("epoch", &["card", "dags", "registry"]), // reads what is on a card
    ("usage", &["card", "dags"]), // reads where DAGs are, and what their card has counted
];

/// Every import that the lists do not allow, and every folder that they do not know.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut wrong = BTreeSet::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs")) {
        let Some(file) = path.strip_prefix(SOURCES) else { continue };
        let whole = root.join(path);
        if !whole.exists() || path.ends_with("/tests.rs") || !file.contains('/') {
            continue; // deleted, or under `#[cfg(test)]`, or the root of the crate
        }
        let text = fs::read_to_string(&whole).with_context(|| format!("reading {path}"))?;
        match TokenStream::from_str(&text) {
            Ok(tokens) => {
                let told =
                    paths(tokens, "crate", 2).into_iter().filter_map(|used| refusal(file, &used));
                wrong.extend(told.map(|why| format!("{path}: {why}")));
            }
            Err(error) => return Ok(vec![format!("{path}: not Rust: {error}")]),
        }
    }
    Ok(wrong.into_iter().collect())
}

/// The reason why a file, by its path below the sources, must not use a path, if there is one.
fn refusal(file: &str, used: &[String]) -> Option<String> {
    let (folder, below) = file.split_once('/').unwrap_or((file, ""));
    let at = |name: &str| FOLDERS.iter().position(|folder| *folder == name);
    let Some(own) = at(folder) else {
        return Some(format!(
            "folder `{folder}` has no place in FOLDERS (crates/tools/xtask/src/tidy/modules.rs): decide \
             what it may use"
        ));
    };
    let target = used.first()?;
    match at(target) {
        Some(other) if other > own => {
            Some(format!("`{folder}` must not use `{target}`, which stands behind it"))
        }
        Some(other) if other == own && folder == MACHINES => machine_refusal(below, used),
        _ => None, // a folder before it, itself, or an item of the crate's root
    }
}

/// The same for a machine that uses another one.
fn machine_refusal(file: &str, used: &[String]) -> Option<String> {
    let machine = file.split(['/', '.']).next().unwrap_or(file);
    let other = used.get(1)?;
    let is_whole = machine == "mod" || !other.starts_with(|c: char| c.is_ascii_lowercase());
    let may = |(name, shared): &(&str, &[&str])| {
        (*name == "*" || *name == machine) && shared.contains(&other.as_str())
    };
    if is_whole || other == machine || SHARED.iter().any(may) {
        return None;
    }
    Some(format!(
        "machine `{machine}` must not know `{other}`: put what concerns both behind `state`"
    ))
}

/// Up to `depth` segments behind `head` of the paths that begin with it, outside of tests.
pub(super) fn paths(tokens: TokenStream, head: &str, depth: usize) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut skip = false;
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) => {
                let text = group.stream().to_string();
                if is_attribute(&trees, at) {
                    skip |= text.replace(' ', "") == "cfg(test)";
                } else if skip {
                    // The item under the attribute ends with its body or a semicolon.
                    skip = group.delimiter() != Delimiter::Brace;
                } else {
                    found.extend(paths(group.stream(), head, depth));
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => skip = false,
            TokenTree::Ident(word) if word == head && !skip && !is_inner(&trees, at) => {
                found.extend(behind(&trees[at + 1..], depth));
            }
            _ => {}
        }
    }
    found
}

/// Whether the word at this place stands behind a colon, and so begins no path.
fn is_inner(trees: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(2).map(|from| &trees[from..at]);
    before.is_some_and(|two| two.iter().all(is_colon))
}

/// Whether the group at this place is the brackets of an attribute.
fn is_attribute(trees: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| trees.get(before));
    matches!(before, Some(TokenTree::Punct(punct)) if punct.as_char() == '#')
}

/// Up to `depth` segments of the paths that follow here, behind two colons: `::a::b`, or several of `::{a, b::C}`.
fn behind(trees: &[TokenTree], depth: usize) -> Vec<Vec<String>> {
    let is_path = depth > 0 && trees.len() > 2 && trees[..2].iter().all(is_colon);
    match trees.get(2).filter(|_| is_path) {
        Some(TokenTree::Group(group)) => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma = |tree: &TokenTree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ',');
            inner.split(is_comma).flat_map(|item| named(item, depth)).collect()
        }
        Some(_) => named(&trees[2..], depth),
        None => Vec::new(),
    }
}

/// The paths that begin with the name here.
fn named(trees: &[TokenTree], depth: usize) -> Vec<Vec<String>> {
    let Some(TokenTree::Ident(name)) = trees.first() else { return Vec::new() };
    let mut paths = behind(&trees[1..], depth - 1);
    if paths.is_empty() {
        paths.push(Vec::new());
    }
    paths.iter_mut().for_each(|path| path.insert(0, name.to_string()));
    paths
}

fn is_colon(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let all = paths(TokenStream::from_str(text).expect("Rust"), "crate", 2);
        all.into_iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let text = "use crate::a::B; use crate::{c, d::{E, F}};
            fn f(x: crate::g::H) -> Vec<crate::i::J> { let y = crate::k::l(); m!(crate::n) }
            use crate::s::{t::{U, V}, w};
            pub(crate) struct P; pub(crate) fn q() {}";
        let all = ["a::B", "c", "d::E", "d::F", "g::H", "i::J", "k::l", "n", "s::t", "s::w"];
        assert_eq!(found(text), all);
    }

    #[test]
    fn tests_may_use_what_they_like() {
        let text = "use crate::a::B;
            #[cfg(test)] mod tests { use crate::c::D; }
            #[cfg(test)] mod tests;
            #[cfg(test)] pub(crate) fn e() { crate::f::g() }
            #[cfg(test)] use crate::h::I;
            fn k() { crate::l::m() }";
        assert_eq!(found(text), ["a::B", "l::m"]);
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        assert_eq!(
            found("//! [`crate::a::B`]\n/* crate::c::D */ fn f() { \"crate::e::F\"; }"),
            [""; 0]
        );
    }

    fn told(file: &str, path: &str) -> Option<String> {
        let used: Vec<String> = path.split("::").map(str::to_owned).collect();
        refusal(file, &used)
    }

    #[test]
    fn a_folder_uses_those_before_it() {
        for path in
            ["protocol::Command", "state::card::Cards", "view::views", "place::work", "Crate"]
        {
            assert_eq!(told("place/scaling.rs", path), None, "{path}");
        }
        for path in ["request::commands", "react::reports", "restart::check", "controller::X"] {
            let why = told("place/scaling.rs", path).expect(path);
            assert!(why.contains("stands behind it"), "{why}");
        }
        assert_eq!(told("controller/mod.rs", "restart::check"), None);
        assert!(told("helpers/a.rs", "protocol::X").expect("unknown").contains("has no place"));
    }

    #[test]
    fn machines_do_not_know_each_other_but_for_what_is_listed() {
        for (file, path) in [
            ("state/card/mod.rs", "state::card::Cards"),
            ("state/mod.rs", "state::card::Cards"),
            ("state/dags/entry.rs", "state::meter::Meter"),
            ("state/epoch/mod.rs", "state::registry::Registry"),
        ] {
            assert_eq!(told(file, path), None, "{file}: {path}");
        }
        for (file, path) in [
            ("state/registry/mod.rs", "state::operations::Operations"),
            ("state/card/mod.rs", "state::dags"),
            ("state/rules.rs", "state::epoch::Loops"),
        ] {
            assert!(told(file, path).expect(path).contains("must not know"), "{file}: {path}");
        }
    }
}
