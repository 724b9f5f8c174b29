//! A crate is small enough to be read: at most 4,000 lines of code, or its documentation says why it is one.
//!
//! Counted are lines with code, without tests, as in [`super::ratio`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;

use super::ratio;

/// Largest crate that needs no reason, in lines of code.
const CODE_LINES_MAX: usize = 4_000;

/// Beginning of the line that gives the reason, in the documentation of `src/lib.rs` or `src/main.rs`.
const REASON: &str = "//! One crate, ";

/// Crates that are too large, and those that give a reason although they are not.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut crates: BTreeMap<&str, Size> = BTreeMap::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs") && root.join(path).exists()) {
        let Some(at) = path.find("/src/") else { continue };
        let (owner, file) = (&path[..at], &path[at + 1..]);
        let text =
            fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
        let size = crates.entry(owner).or_default();
        size.code += ratio::count(file, &text).code;
        let is_root = ["src/lib.rs", "src/main.rs"].contains(&file);
        size.has_reason |= is_root && text.lines().any(|line| line.starts_with(REASON));
    }
    Ok(crates.into_iter().filter_map(|(name, size)| size.complaint(name)).collect())
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    code: usize,
    has_reason: bool,
}

impl Size {
    fn complaint(self, name: &str) -> Option<String> {
        let Self { code, has_reason } = self;
        match code > CODE_LINES_MAX {
            true if !has_reason => Some(format!(
                "{name}: {code} lines of code, over {CODE_LINES_MAX}: split it where there is a seam, or \
                 say why not in its documentation, in a line that begins with \"{REASON}\""
            )),
            false if has_reason => Some(format!(
                "{name}: {code} lines of code need no reason to be one crate: delete the line \"{REASON}…\""
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_crate_needs_a_reason_and_a_small_one_needs_none() {
        let told = |code, has_reason| Size { code, has_reason }.complaint("crates/a");
        assert_eq!(told(CODE_LINES_MAX, false), None);
        assert_eq!(told(CODE_LINES_MAX + 1, true), None);
        let large = told(CODE_LINES_MAX + 1, false).expect("too large");
        assert!(large.starts_with("crates/a: 4001 lines of code"), "{large}");
        let small = told(CODE_LINES_MAX, true).expect("a reason too many");
        assert!(small.contains("delete the line"), "{small}");
    }
}
