//! The tracked files: where they may lie and how large they may be.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// The top level is fixed, so that everything is found where it was yesterday. The flag says whether
/// the entry is required; git keeps no empty folder, so folders with data may be missing.
const TOP_LEVEL: &[(&str, bool)] = &[
    ("crates", true),
    ("proto", true),
    ("bitstreams", false),
    ("policies", false),
    ("integration", true),
    ("Cargo.toml", true),
    ("Cargo.lock", true),
    ("README.md", true),
    ("ARCHITECTURE.md", true),
    ("CONTRIBUTING.md", true),
    ("CHANGELOG.md", true),
    ("SECURITY.md", true),
    ("LICENSE", true),
    ("rust-toolchain.toml", true),
    ("rustfmt.toml", false),
    ("clippy.toml", false),
];

/// Larger files make every clone slower, even after they have been deleted.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The tracked files, as paths from `root` with `/`.
///
/// Without git, or outside a clone (a source archive), these are all files except build output and dot folders.
///
/// # Errors
/// A folder cannot be read.
pub fn tracked(root: &Path) -> anyhow::Result<Vec<String>> {
    let listed = Command::new("git")
        // List a checkout that another user owns, which is usual in containers.
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .current_dir(root)
        .output();
    match listed {
        Ok(output) if output.status.success() => {
            let names = String::from_utf8_lossy(&output.stdout);
            Ok(names.split_terminator('\0').map(str::to_owned).collect())
        }
        _ => {
            let mut found = Vec::new();
            walk(root, "", &mut found)?;
            Ok(found)
        }
    }
}

fn walk(root: &Path, below: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    let folder = root.join(below);
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if !entry.file_type()?.is_dir() {
            found.push(path);
        } else if !name.starts_with('.') && name != "target" {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}

/// Files that are in the wrong place or too large.
///
/// # Errors
/// A file cannot be looked at.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut wrong = top_level(tracked);
    wrong.extend(build_output(tracked));
    for path in tracked {
        // The file may be deleted without a commit yet.
        let Ok(file) = fs::symlink_metadata(root.join(path)) else { continue };
        if file.len() > FILE_BYTES_MAX {
            wrong.push(format!(
                "{path}: {} bytes, over the limit of {FILE_BYTES_MAX}; generate it at build or test time",
                file.len()
            ));
        }
    }
    Ok(wrong)
}

fn top_level(tracked: &[String]) -> Vec<String> {
    let there: BTreeSet<&str> = tracked.iter().filter_map(|path| path.split('/').next()).collect();
    let is_known =
        |name: &str| name.starts_with('.') || TOP_LEVEL.iter().any(|(known, _)| *known == name);
    let strangers = there.iter().filter(|name| !is_known(name)).map(|name| {
        format!("{name}: not part of the fixed top level; move it into one of the folders")
    });
    let missing = TOP_LEVEL
        .iter()
        .filter(|(name, must)| *must && !there.contains(name))
        .map(|(name, _)| format!("{name}: missing from the top level"));
    strangers.chain(missing).collect()
}

/// Tracked files in a folder where cargo builds, one line for each folder.
fn build_output(tracked: &[String]) -> Vec<String> {
    let folders: BTreeSet<&str> = tracked
        .iter()
        .filter_map(|path| {
            let start = if path.starts_with("target/") { 0 } else { path.find("/target/")? + 1 };
            Some(&path[..start + "target".len()])
        })
        .collect();
    let line = |folder| format!("{folder}: build output is tracked: git rm -r --cached {folder}");
    folders.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Vec<String> {
        let must = TOP_LEVEL.iter().filter(|(_, must)| *must);
        must.map(|(name, _)| (*name).to_owned()).chain([".ci/run".to_owned()]).collect()
    }

    #[test]
    fn the_fixed_top_level_is_accepted() {
        assert_eq!(top_level(&complete()), [""; 0]);
        let optional = ["policies/default.toml".to_owned(), "clippy.toml".to_owned()];
        assert_eq!(top_level(&[complete(), optional.to_vec()].concat()), [""; 0]);
    }

    #[test]
    fn strangers_and_gaps_are_named() {
        let mut files = complete();
        files.retain(|name| name != "README.md");
        files.extend(["notes.txt".to_owned(), "tools/a/b.rs".to_owned()]);
        assert_eq!(
            top_level(&files),
            [
                "notes.txt: not part of the fixed top level; move it into one of the folders",
                "tools: not part of the fixed top level; move it into one of the folders",
                "README.md: missing from the top level",
            ]
        );
    }

    #[test]
    fn tracked_build_output_is_named_once_for_each_folder() {
        let files = ["crates/a/target/criterion/x", "crates/a/target/y", "crates/a/src/target.rs"];
        assert_eq!(
            build_output(&files.map(str::to_owned)),
            ["crates/a/target: build output is tracked: git rm -r --cached crates/a/target"]
        );
        assert_eq!(build_output(&["target/x".to_owned()]).len(), 1);
    }

    #[test]
    fn a_large_file_is_refused_at_the_byte() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str, bytes: u64| {
            fs::File::create(root.path().join(name)).unwrap().set_len(bytes).unwrap();
        };
        make("LICENSE", FILE_BYTES_MAX);
        make("README.md", FILE_BYTES_MAX + 1);
        let wrong = check(root.path(), &complete()).unwrap();
        assert_eq!(
            wrong,
            [
                "README.md: 1048577 bytes, over the limit of 1048576; generate it at build or test time"
            ]
        );
    }

    #[test]
    fn an_archive_without_git_is_walked() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["crates/a/src", "target/debug", ".git"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
            fs::write(root.path().join(folder).join("file"), "").unwrap();
        }
        fs::write(root.path().join(".gitignore"), "").unwrap();
        let mut found = Vec::new();
        walk(root.path(), "", &mut found).unwrap();
        found.sort();
        assert_eq!(found, [".gitignore", "crates/a/src/file"]);
    }
}
