//! The files of a crate do not import each other in circles: of two files that do, neither can be read first. A path
//! counts for the file that defines its name, behind re-exports; what a folder's root defines, the files in it may use.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::anyhow;
use proc_macro2::TokenStream;

use super::modules::paths;

/// Most segments of a path, and most re-exports one behind the other.
const DEPTH_MAX: usize = 9;

/// Path of a module, without `crate`.
type Module = Vec<String>;

/// One line for each circle.
///
/// # Errors
/// A source cannot be read, or is not Rust.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, TokenStream>> = BTreeMap::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs") && root.join(path).exists()) {
        let Some((owner, file)) = path.split_once("/src/") else { continue };
        let text = fs::read_to_string(root.join(path))?;
        let tokens = TokenStream::from_str(&text).map_err(|why| anyhow!("{path}: {why}"))?;
        crates.entry(owner).or_default().entry(module_of(file)).or_insert(tokens);
    }
    let told =
        |(owner, sources)| {
            circles(&sources).into_iter().map(move |way| {
        format!("{owner}: {way} is a circle of imports: move what is shared into a file below them")
    })
        };
    Ok(crates.into_iter().flat_map(told).collect())
}

fn module_of(file: &str) -> Module {
    let parts = file.trim_end_matches(".rs").split('/').map(str::to_owned);
    parts.filter(|part| !["lib", "main", "mod"].contains(&part.as_str())).collect()
}

/// The circles of a crate, each from its first file.
fn circles(sources: &BTreeMap<Module, TokenStream>) -> Vec<String> {
    let uses: BTreeMap<&Module, Vec<Module>> =
        sources.iter().map(|(module, tokens)| (module, used(sources, module, tokens))).collect();
    let edges = |(module, used): (&&Module, &Vec<Module>)| {
        let targets = used.iter().map(|path| defining(&uses, path, DEPTH_MAX));
        // The roots of its folders begin with the same names.
        (module.to_vec(), targets.filter(|target| !module.starts_with(target)).collect())
    };
    let edges: BTreeMap<Module, BTreeSet<Module>> = uses.iter().map(edges).collect();
    let ways = edges.keys().filter_map(|start| way_back(&edges, start));
    let firsts = ways.filter(|way| way.iter().min() == way.first());
    firsts
        .map(|way| way.iter().map(|module| module.join("/")).collect::<Vec<_>>().join(" -> "))
        .collect()
}

/// The shortest way through imports from a file back to it.
fn way_back(edges: &BTreeMap<Module, BTreeSet<Module>>, start: &Module) -> Option<Vec<Module>> {
    let (mut queue, mut seen) = (VecDeque::from([vec![start.clone()]]), BTreeSet::new());
    while let Some(way) = queue.pop_front() {
        for next in edges.get(way.last()?).into_iter().flatten() {
            if next == start {
                return Some(way);
            }
            if seen.insert(next) {
                queue.push_back([&way[..], std::slice::from_ref(next)].concat());
            }
        }
    }
    None
}

/// The module whose file defines a path's last name.
fn defining(uses: &BTreeMap<&Module, Vec<Module>>, path: &[String], depth: usize) -> Module {
    let found = |length: &usize| uses.contains_key(&path[..*length].to_vec());
    let (module, rest) = path.split_at((0..=path.len()).rev().find(found).unwrap_or(0));
    let exported = rest.first().filter(|_| depth > 0).and_then(|name| {
        let mut used = uses.get(&module.to_vec())?.iter();
        used.find(|used| used.last() == Some(name) && *used != path)
    });
    exported.map_or_else(
        || module.to_vec(),
        |used| defining(uses, &[used, &rest[1..]].concat(), depth - 1),
    )
}

/// The paths within the crate that a file uses; of a module that it imports as a whole, what it uses of that.
fn used(
    sources: &BTreeMap<Module, TokenStream>,
    module: &Module,
    tokens: &TokenStream,
) -> Vec<Module> {
    let of = |head: &str| paths(tokens.clone(), head, DEPTH_MAX).into_iter();
    let mut found: Vec<Module> = of("crate").collect();
    found.extend(of("super").map(|path| {
        let more = path.iter().take_while(|part| *part == "super").count();
        [&module[..module.len().saturating_sub(1 + more)], &path[more..]].concat()
    }));
    for child in
        sources.keys().filter(|child| child.len() == module.len() + 1 && child.starts_with(module))
    {
        found.extend(of(&child[module.len()]).map(|path| [child.clone(), path].concat()));
    }
    let (whole, mut names): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|path| sources.contains_key(path));
    for path in whole.iter().filter(|path| !path.is_empty()) {
        names.extend(of(&path[path.len() - 1]).map(|rest| [path.clone(), rest].concat()));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_behind_re_exports_and_uses_of_roots_and_tests_are_none() {
        for (a, d, is_one) in [
            ("use crate::c::d::D; struct A;", "use crate::a::A; struct D;", true),
            ("use crate::c::D; struct A;", "fn d(x: super::super::a::A) {} struct D;", true),
            ("use crate::c; fn a(x: c::D) {} struct A;", "use crate::A; struct D;", true),
            ("use crate::c::{D, ROOT}; struct A;", "use super::ROOT; struct D;", false),
            ("use crate::c::D; struct A;", "#[cfg(test)] mod t { use crate::a::A; }", false),
        ] {
            let root = "mod d; pub use d::D; pub const ROOT: u8 = 0;";
            let files = [
                ("lib.rs", "mod a; mod c; pub use a::A;"),
                ("a.rs", a),
                ("c/mod.rs", root),
                ("c/d.rs", d),
            ];
            let sources = files
                .map(|(file, text)| (module_of(file), TokenStream::from_str(text).expect("Rust")));
            let told = circles(&BTreeMap::from(sources));
            assert_eq!(told, if is_one { &["a -> c/d"][..] } else { &[] }, "{a} {d}");
        }
    }
}
