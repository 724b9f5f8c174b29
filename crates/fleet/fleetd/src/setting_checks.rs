//! Checks of single settings.

#[cfg(feature = "s3")]
use std::path::Path;

#[cfg(feature = "s3")]
use anyhow::Context as _;
use anyhow::{Result, bail};

#[cfg(feature = "s3")]
pub(crate) fn text(key: &str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{key}: read {}", path.display()))
}

pub(crate) fn in_range(key: &str, value: u32, (least, most): (u32, u32)) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    bail!("{key}: {value} is not allowed (allowed: {least} to {most})")
}
