//! Rules of the code base that neither the compiler nor clippy knows. Each check returns one line for
//! each violation, with the file and what to do; no check builds anything.

mod circles;
mod commands;
mod comments;
mod files;
mod links;
mod manifests;
mod modules;
mod names;
mod ratio;
mod records;
mod sizes;
mod sources;

use crate::report::Tally;
use crate::workspace::Workspace;
use crate::{arrows, licences, mutants, tier};

pub use files::tracked;

type Check = fn(&Workspace, &[String]) -> anyhow::Result<Vec<String>>;

const CHECKS: &[(&str, Check)] = &[
    ("arrows between crates", |workspace, _| Ok(arrows::check(&workspace.members))),
    ("licences of dependencies", |workspace, _| licences::check(&workspace.packages)),
    ("manifests", |workspace, _| manifests::check(workspace)),
    ("tiers of tests", |workspace, tracked| tier::check(&workspace.root, tracked)),
    ("sources", |workspace, tracked| sources::check(&workspace.root, tracked)),
    ("modules of the controller", |workspace, tracked| modules::check(&workspace.root, tracked)),
    ("imports of files", |workspace, tracked| circles::check(&workspace.root, tracked)),
    ("names of public types", |workspace, tracked| names::check(&workspace.root, tracked)),
    ("writers of records", |workspace, tracked| records::check(&workspace.root, tracked)),
    ("sizes of crates", |workspace, tracked| sizes::check(&workspace.root, tracked)),
    ("lines of tests", |workspace, tracked| ratio::check(&workspace.root, tracked)),
    ("doc comments", |workspace, tracked| comments::check(&workspace.root, tracked)),
    ("files", |workspace, tracked| files::check(&workspace.root, tracked)),
    ("links in Markdown files", |workspace, tracked| links::check(&workspace.root, tracked)),
    ("commands in Markdown files", |workspace, tracked| commands::check(workspace, tracked)),
    ("mutants still apply", |workspace, _| mutants::check(&workspace.root)),
];

/// Runs all checks, prints what they find, and counts as one step.
///
/// # Errors
/// A file of the project cannot be read.
pub fn run(workspace: &Workspace) -> anyhow::Result<Tally> {
    let tracked = tracked(&workspace.root)?;
    let mut is_clean = true;
    for (name, check) in CHECKS {
        let wrong = check(workspace, &tracked)?;
        println!("{name}: {}", if wrong.is_empty() { "ok" } else { "FAILED" });
        wrong.iter().for_each(|line| println!("  {line}"));
        is_clean &= wrong.is_empty();
    }
    Ok(Tally::one(is_clean))
}
