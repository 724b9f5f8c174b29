//! Manifests: every dependency is declared once, in the root, with its reason, and every crate uses the
//! workspace's lints.

use std::fs;

use anyhow::Context;
use toml::{Table, Value};

use crate::workspace::Workspace;

/// Sections of a manifest that hold dependencies; also below `target.'cfg(…)'`.
const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Violations in the manifests of the root and the members.
///
/// # Errors
/// A manifest cannot be read.
pub fn check(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let read = |path: &std::path::Path| {
        fs::read_to_string(workspace.root.join(path))
            .with_context(|| format!("reading {}", path.display()))
    };
    let mut wrong = without_reason(&read("Cargo.toml".as_ref())?);
    for member in &workspace.members {
        let path = &member.manifest;
        let table: Table =
            read(path)?.parse().with_context(|| format!("reading {}", path.display()))?;
        let name = path.display().to_string();
        wrong.extend(own_choices(&table).into_iter().map(|what| format!("{name}: {what}")));
    }
    Ok(wrong)
}

/// Dependencies of the root manifest without a reason. Our own crates need none. An entry may span several
/// lines; a comment on any of them counts.
fn without_reason(manifest: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut is_inside = false;
    let mut lines = manifest.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if line.starts_with('[') {
            is_inside = line.trim_end() == "[workspace.dependencies]";
            continue;
        }
        let Some((name, _)) = line.split_once('=').filter(|_| is_inside) else { continue };
        if name.trim_start().starts_with('#') {
            continue;
        }
        let (mut code, mut comment) = split_comment(line);
        let mut has_reason = !comment.trim().is_empty();
        let mut depth = nesting(code);
        let mut is_ours = is_path(code);
        while depth > 0 {
            let Some((_, next)) = lines.next() else { break };
            (code, comment) = split_comment(next);
            has_reason |= !comment.trim().is_empty();
            is_ours |= is_path(code);
            depth += nesting(code);
        }
        if !has_reason && !is_ours {
            wrong.push(format!(
                "Cargo.toml:{}: `{}` has no reason: add a comment to its line",
                index + 1,
                name.trim()
            ));
        }
    }
    wrong
}

fn is_path(code: &str) -> bool {
    code.contains("path =") || code.contains("path=")
}

/// A line's code and its comment. A `#` in a string does not start a comment.
fn split_comment(line: &str) -> (&str, &str) {
    let mut quote = None;
    for (index, letter) in line.char_indices() {
        match (quote, letter) {
            (None, '#') => return (&line[..index], &line[index + 1..]),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
    }
    (line, "")
}

/// Number of brackets that a line leaves open. Names and versions contain none.
fn nesting(code: &str) -> i32 {
    code.chars().fold(0, |depth, letter| match letter {
        '[' | '{' => depth + 1,
        ']' | '}' => depth - 1,
        _ => depth,
    })
}

/// Declarations that a member's manifest makes itself instead of inheriting them.
fn own_choices(manifest: &Table) -> Vec<String> {
    let mut wrong = Vec::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables =
        targets.into_iter().flat_map(|targets| targets.values().filter_map(Value::as_table));
    for table in tables.chain([manifest]) {
        for section in SECTIONS {
            let entries = table.get(section).and_then(Value::as_table);
            for (name, entry) in entries.into_iter().flatten() {
                if !is_inherited(entry) {
                    wrong.push(format!(
                        "`{name}` in [{section}] is not inherited: declare its version in the root \
                         and write `{name}.workspace = true`"
                    ));
                }
            }
        }
    }
    if !manifest.get("lints").is_some_and(is_inherited) {
        wrong.push("does not use the workspace's lints: add `[lints] workspace = true`".into());
    }
    wrong
}

fn is_inherited(entry: &Value) -> bool {
    entry.get("workspace").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dependency_says_why_it_is_here() {
        let manifest = r##"
[workspace]
members = ["crates/*"]

# a group = of things
[workspace.dependencies]
snic-domain = { path = "crates/core/domain" }
good = "1" # for a reason
bare = "1"
tricky = { version = "1", features = ["#not-a-comment"] }
empty = "2" #
long = { version = "1", features = [
    "a", # the reason is here
    "b",
] }
long-bare = { version = "1", features = [
    "a",
] }
after = "1" # still inside
# commented = "out"

[workspace.lints.rust]
unsafe_code = "deny"
"##;
        let wrong = without_reason(manifest);
        let culprits: Vec<_> =
            wrong.iter().map(|line| line.split(" has no").next().unwrap()).collect();
        assert_eq!(
            culprits,
            [
                "Cargo.toml:9: `bare`",
                "Cargo.toml:10: `tricky`",
                "Cargo.toml:11: `empty`",
                "Cargo.toml:16: `long-bare`",
            ]
        );
    }

    #[test]
    fn an_entry_that_never_ends_ends_with_the_file() {
        let wrong = without_reason("[workspace.dependencies]\nopen = { version = \"1\",\n");
        assert_eq!(wrong.len(), 1);
    }

    #[test]
    fn inherited_dependencies_and_lints_are_accepted() {
        let manifest = r#"
            [package]
            name = "snic-x"
            [dependencies]
            serde.workspace = true
            tokio = { workspace = true, features = ["net"] }
            [target.'cfg(unix)'.dependencies]
            rustix.workspace = true
            [lints]
            workspace = true
        "#;
        assert_eq!(own_choices(&manifest.parse().unwrap()), [""; 0]);
    }

    #[test]
    fn versions_of_its_own_and_missing_lints_are_named() {
        let manifest = r#"
            [dependencies]
            serde = "1"
            [dev-dependencies]
            rstest = { version = "0.28", default-features = false }
            [target.'cfg(unix)'.build-dependencies]
            cc = "1"
            [lints.rust]
            unsafe_code = "allow"
        "#;
        let wrong = own_choices(&manifest.parse().unwrap());
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert!(wrong[0].starts_with("`cc` in [build-dependencies]"), "{wrong:?}");
        assert!(wrong[1].starts_with("`serde` in [dependencies]"), "{wrong:?}");
        assert!(wrong[2].starts_with("`rstest` in [dev-dependencies]"), "{wrong:?}");
        assert!(wrong[3].starts_with("does not use the workspace's lints"), "{wrong:?}");
    }
}
