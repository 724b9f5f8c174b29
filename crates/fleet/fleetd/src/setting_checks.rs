//! Checks of single settings.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

pub(crate) fn text(key: &str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{key}: read {}", path.display()))
}

pub(crate) fn in_range(key: &str, value: u32, (least, most): (u32, u32)) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    bail!("{key}: {value} is not allowed (allowed: {least} to {most})")
}
