//! Settings files of the programs: TOML, without keys that a program does not know.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Settings that cannot be read or are not allowed.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSettings {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is not valid TOML, or has unknown keys or wrong types.
    #[error("{path}: {message}")]
    Parse { path: PathBuf, message: String },
    /// An invalid value.
    #[error("{key}: {rule}")]
    Key {
        key: String,
        /// Values that are allowed, and what to do.
        rule: String,
    },
}

/// The error about the value of a key.
pub(crate) fn key(key: impl Into<String>, rule: impl Into<String>) -> InvalidSettings {
    InvalidSettings::Key { key: key.into(), rule: rule.into() }
}

/// Reads a file; its values are yet to be checked.
///
/// # Errors
/// [`InvalidSettings`] with the file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, InvalidSettings> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| InvalidSettings::Read { path: path.to_owned(), source })?;
    toml::from_str(&text).map_err(|error| InvalidSettings::Parse {
        path: path.to_owned(),
        message: error.message().to_owned(),
    })
}
