//! Which module of the controller may use which. Its machines own their state and know nothing of each
//! other; what concerns several of them is put together above, one concern a module. An import is all it takes to lose
//! that, so every `crate::` path of its sources is checked against this table.
//!
//! Code under `#[cfg(test)]` may use what it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Where the modules are.
const SOURCES: &str = "crates/core/controller/src/";

/// Each module and what it may use, lower ones first: a module may only use what stands before it,
/// so there is no cycle.
///
/// The first block is data and what one event leads to, the second are the machines, which do not know
/// each other but for what is said. `state` has all machines as its fields, and the modules behind it are
/// functions over it, one concern each.
const MODULES: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("etag", &["protocol"]),
    ("records", &["protocol"]),
    ("rows", &["records"]),
    ("tx", &["protocol", "records"]),
    ("migration", &["records"]),
    ("outbox", &["protocol", "records", "tx"]),
    ("log", &["protocol", "tx"]),
    ("history", &[]),
    ("revisions", &["protocol", "records", "tx"]),
    ("tally", &[]),
    ("nt_numbers", &[]),
    ("memory_use", &["protocol"]),
    ("thread_use", &[]),
    // Machines.
    ("card_choice", &["protocol"]),
    ("mixed_cards", &["protocol", "card_choice"]),
    (
        "admission",
        &["protocol", "records", "rows", "card_choice", "memory_use", "mixed_cards", "thread_use"],
    ),
    (
        "batch",
        &["protocol", "records", "rows", "admission", "card_choice", "memory_use", "thread_use"],
    ),
    ("bindings", &["protocol", "records", "tx", "history", "tally"]),
    ("device_health", &["protocol"]),
    ("card", &["device_health", "nt_numbers", "protocol", "records", "rows", "tx"]),
    ("freed", &[]),
    ("maintenance", &["protocol", "records", "tx"]),
    ("meter", &["protocol"]),
    ("dags", &["meter", "protocol", "records", "tx"]), // each DAG has a meter
    ("operations", &["protocol", "records", "tx", "history", "tally"]),
    ("passes", &["protocol"]),
    ("planning", &[]),
    ("policies", &["protocol"]),
    ("refused", &["records", "tx"]),
    ("registry", &["nt_numbers", "protocol", "etag", "records", "tx", "memory_use"]),
    ("requests", &["protocol", "records", "tx", "history"]),
    ("rules", &["protocol", "etag", "records", "tx", "tally"]),
    ("suspects", &[]),
    // They read what is on a card, and change nothing there.
    ("epoch", &["protocol", "records", "rows", "meter", "card", "dags", "registry"]),
    ("diagnosis", &["protocol", "epoch"]),
    ("status", &["records", "card", "dags"]),
    // Several machines together.
    (
        "state",
        &[
            "protocol",
            "bindings",
            "card",
            "dags",
            "epoch",
            "freed",
            "maintenance",
            "operations",
            "passes",
            "planning",
            "policies",
            "refused",
            "registry",
            "rules",
            "suspects",
        ],
    ),
    ("connection", &["protocol", "tx", "card", "state"]),
    ("contents", &["tx", "card", "state"]),
    ("trials", &["tx", "state", "contents"]),
    ("images", &["records", "dags", "operations", "state"]),
    ("guards", &["protocol", "etag", "state"]),
    (
        "views",
        &[
            "protocol", "etag", "records", "rows", "card", "dags", "rules", "state", "images",
            "guards",
        ],
    ),
    ("work", &["protocol", "tx", "state", "images", "views"]),
    ("quotas", &["protocol", "dags", "registry", "state", "thread_use"]),
    ("classification", &["protocol", "rows", "tx", "quotas", "rules", "state", "views"]),
    ("forgotten", &["records", "tx", "card", "state"]),
    (
        "placement",
        &[
            "protocol",
            "records",
            "tx",
            "admission",
            "forgotten",
            "card_choice",
            "card",
            "dags",
            "memory_use",
            "mixed_cards",
            "quotas",
            "thread_use",
            "state",
            "classification",
            "contents",
            "work",
        ],
    ),
    (
        "residency",
        &[
            "protocol",
            "records",
            "tx",
            "card",
            "dags",
            "state",
            "contents",
            "forgotten",
            "placement",
        ],
    ),
    ("serving", &["records", "rows", "card", "dags", "state", "classification", "residency"]),
    (
        "scaling",
        &[
            "protocol",
            "records",
            "tx",
            "admission",
            "dags",
            "epoch",
            "meter",
            "state",
            "placement",
            "residency",
        ],
    ),
    ("consolidation", &["protocol", "tx", "passes", "state", "placement", "work"]),
    ("card_picture", &["protocol", "state"]),
    (
        "arrivals",
        &["protocol", "records", "tx", "card", "status", "state", "placement", "scaling", "work"],
    ),
    (
        "drains",
        &["protocol", "tx", "card", "state", "contents", "placement", "residency", "views", "work"],
    ),
    ("untrusted", &["tx", "dags", "state", "images", "placement"]),
    ("reopening", &["protocol", "tx", "card", "operations", "state", "connection", "work"]),
    (
        "lifecycle",
        &[
            "protocol",
            "etag",
            "records",
            "tx",
            "batch",
            "dags",
            "state",
            "classification",
            "placement",
            "quotas",
            "forgotten",
            "scaling",
            "views",
            "work",
        ],
    ),
    (
        "batch_create",
        &[
            "protocol",
            "tx",
            "admission",
            "batch",
            "card_choice",
            "state",
            "placement",
            "quotas",
            "lifecycle",
            "work",
            "thread_use",
        ],
    ),
    (
        "vm_bindings",
        &[
            "protocol",
            "tx",
            "bindings",
            "state",
            "classification",
            "lifecycle",
            "placement",
            "quotas",
            "views",
        ],
    ),
    (
        "retirement",
        &[
            "protocol",
            "tx",
            "card",
            "state",
            "connection",
            "placement",
            "residency",
            "vm_bindings",
            "work",
        ],
    ),
    (
        "removals",
        &[
            "protocol",
            "tx",
            "dags",
            "operations",
            "state",
            "contents",
            "images",
            "placement",
            "vm_bindings",
            "work",
        ],
    ),
    ("registrations", &["protocol", "tx", "state", "contents", "images", "serving", "vm_bindings"]),
    ("managed", &["protocol", "state"]),
    (
        "assignments",
        &[
            "protocol",
            "tx",
            "dags",
            "registry",
            "state",
            "lifecycle",
            "placement",
            "registrations",
            "removals",
            "vm_bindings",
            "work",
        ],
    ),
    (
        "sampling",
        &["protocol", "tx", "epoch", "state", "consolidation", "contents", "scaling", "serving"],
    ),
    (
        "check",
        &[
            "protocol",
            "records",
            "rows",
            "card",
            "dags",
            "memory_use",
            "state",
            "images",
            "residency",
            "serving",
            "work",
        ],
    ),
    (
        "recovery",
        &[
            "protocol",
            "records",
            "migration",
            "card",
            "maintenance",
            "operations",
            "refused",
            "registry",
            "requests",
            "revisions",
            "rules",
            "state",
            "residency",
            "images",
            "untrusted",
            "work",
        ],
    ),
    ("quarantine", &["protocol", "records", "migration", "recovery"]),
    ("inspection", &["protocol", "records", "migration", "recovery", "quarantine", "check"]),
    (
        "commands",
        &[
            "protocol",
            "records",
            "tx",
            "dags",
            "operations",
            "registry",
            "state",
            "assignments",
            "batch_create",
            "classification",
            "consolidation",
            "contents",
            "drains",
            "guards",
            "lifecycle",
            "managed",
            "registrations",
            "removals",
            "retirement",
            "reopening",
            "views",
            "vm_bindings",
            "work",
        ],
    ),
    (
        "reconcile",
        &[
            "tx",
            "card",
            "dags",
            "freed",
            "state",
            "arrivals",
            "consolidation",
            "contents",
            "drains",
            "placement",
            "removals",
            "residency",
            "sampling",
            "serving",
            "untrusted",
            "work",
        ],
    ),
    (
        "reports",
        &[
            "protocol",
            "records",
            "rows",
            "tx",
            "card",
            "suspects",
            "state",
            "arrivals",
            "connection",
            "consolidation",
            "contents",
            "placement",
            "residency",
            "reopening",
            "sampling",
            "serving",
            "trials",
        ],
    ),
    ("fixtures", &[]), // of tests
];

/// The door to all of it: it may use everything, and nothing may use it.
const ROOT: &str = "controller";

/// Every import that the table does not allow, and every module that it does not know.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut uses: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs")) {
        let Some(module) = path.strip_prefix(SOURCES).map(module_of) else { continue };
        let whole = root.join(path);
        if !whole.exists() || module == "lib" || path.ends_with("/tests.rs") {
            continue; // deleted, or the root, which reaches all, or a module under `#[cfg(test)]`
        }
        let text = fs::read_to_string(&whole).with_context(|| format!("reading {path}"))?;
        let used = uses.entry(module).or_default();
        match TokenStream::from_str(&text) {
            Ok(tokens) => {
                used.extend(paths(tokens).into_iter().map(|name| (name, path.clone())));
            }
            Err(error) => return Ok(vec![format!("{path}: not Rust: {error}")]),
        }
    }
    Ok(compare(&uses))
}

/// The module of a file below the sources: `states/area.rs` is of `states`.
fn module_of(path: &str) -> String {
    let first = path.split('/').next().unwrap_or(path);
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

/// What is wrong, given what each module uses and in which file.
fn compare(uses: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (module, used) in uses {
        let Some((_, allowed)) = MODULES.iter().find(|(name, _)| name == module) else {
            if module != ROOT {
                wrong.push(format!(
                    "{SOURCES}: module `{module}` has no row in the table of modules \
                     (crates/tools/xtask/src/tidy/modules.rs): decide what it may use"
                ));
            }
            continue;
        };
        let others = used.iter().filter(|(name, _)| *name != module);
        for (name, path) in others.filter(|(name, _)| uses.contains_key(*name)) {
            if !allowed.contains(&name.as_str()) {
                wrong.push(format!(
                    "{path}: `{module}` must not use `{name}`; it may use {}",
                    if allowed.is_empty() { "no module".into() } else { allowed.join(", ") }
                ));
            }
        }
    }
    let gone = |name: &&str| !uses.contains_key(*name);
    let listed = MODULES.iter().map(|(name, _)| name).chain([&ROOT]);
    wrong.extend(listed.copied().filter(gone).map(|name| {
        format!("{SOURCES}: the table of modules names `{name}`, which is gone: remove it there")
    }));
    wrong
}

/// The first segments of the paths that begin with `crate`, outside of tests.
fn paths(tokens: TokenStream) -> BTreeSet<String> {
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
                    found.extend(paths(group.stream()));
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => skip = false,
            TokenTree::Ident(word) if word == "crate" && !skip => {
                found.extend(behind(&trees[at + 1..]));
            }
            _ => {}
        }
    }
    found
}

/// Whether the group at this place is the brackets of an attribute.
fn is_attribute(trees: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| trees.get(before));
    matches!(before, Some(TokenTree::Punct(punct)) if punct.as_char() == '#')
}

/// The names that follow `crate`: one, or those of `crate::{a, b::C}`.
fn behind(trees: &[TokenTree]) -> Vec<String> {
    let colons = trees.iter().take_while(|tree| is_colon(tree)).count();
    match trees.get(2) {
        Some(TokenTree::Ident(name)) if colons == 2 => vec![name.to_string()],
        Some(TokenTree::Group(group)) if colons == 2 => {
            let mut names = Vec::new();
            let mut is_first = true;
            for tree in group.stream() {
                match tree {
                    TokenTree::Ident(name) if is_first => {
                        names.push(name.to_string());
                        is_first = false;
                    }
                    TokenTree::Punct(punct) if punct.as_char() == ',' => is_first = true,
                    _ => {}
                }
            }
            names
        }
        _ => Vec::new(),
    }
}

fn is_colon(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        paths(TokenStream::from_str(text).expect("Rust")).into_iter().collect()
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let text = "use crate::a::B; use crate::{c, d::{E, F}};
            fn f(x: crate::g::H) -> Vec<crate::i::J> { let y = crate::k::l(); m!(crate::n) }
            pub(crate) struct P; pub(crate) fn q() {}";
        assert_eq!(found(text), ["a", "c", "d", "g", "i", "k", "n"]);
    }

    #[test]
    fn tests_may_use_what_they_like() {
        let text = "use crate::a::B;
            #[cfg(test)] mod tests { use crate::c::D; }
            #[cfg(test)] mod tests;
            #[cfg(test)] pub(crate) fn e() { crate::f::g() }
            #[cfg(test)] use crate::h::I;
            fn k() { crate::l::m() }";
        assert_eq!(found(text), ["a", "l"]);
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        assert_eq!(
            found("//! [`crate::a::B`]\n/* crate::c::D */ fn f() { \"crate::e::F\"; }"),
            [""; 0]
        );
    }

    fn uses(all: &[(&str, &[&str])]) -> BTreeMap<String, BTreeMap<String, String>> {
        let listed = MODULES.iter().map(|(name, _)| name).chain([&ROOT]);
        let mut uses: BTreeMap<String, BTreeMap<String, String>> =
            listed.map(|name| ((*name).to_owned(), BTreeMap::new())).collect();
        for (module, used) in all {
            let path = format!("{SOURCES}{module}.rs");
            let used = used.iter().map(|name| ((*name).to_owned(), path.clone()));
            uses.entry((*module).to_owned()).or_default().extend(used);
        }
        uses
    }

    #[test]
    fn the_table_has_no_cycle() {
        for (at, (module, allowed)) in MODULES.iter().enumerate() {
            for name in *allowed {
                let stands = MODULES[..at].iter().any(|(before, _)| before == name);
                assert!(stands, "{module} may use {name}, which does not stand before it");
            }
        }
    }

    #[test]
    fn siblings_and_what_is_above_are_refused() {
        assert_eq!(compare(&uses(&[("registry", &["protocol", "registry", "Unknown"])])), [""; 0]);
        for wrong in ["operations", "requests", "outbox"] {
            let told = compare(&uses(&[("registry", &[wrong])]));
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].contains(&format!("`registry` must not use `{wrong}`")), "{told:?}");
        }
        assert_eq!(compare(&uses(&[("registry", &[ROOT])])).len(), 1);
        assert_eq!(compare(&uses(&[(ROOT, &["registry", "operations"])])), [""; 0]);
    }

    #[test]
    fn a_module_without_a_row_and_a_row_without_a_module_are_told() {
        let mut uses = uses(&[("helpers", &[])]);
        uses.remove("requests");
        let told = compare(&uses);
        assert!(told[0].contains("`helpers` has no row"), "{told:?}");
        assert!(told[1].contains("names `requests`, which is gone"), "{told:?}");
    }
}
