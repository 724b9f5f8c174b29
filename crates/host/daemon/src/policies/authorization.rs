//! Authorization policies: the folder `authorization` beside the other policy files.
//!
//! Without the feature `cedar`, the rules that the server has built in apply, and files that say otherwise keep
//! the daemon from starting: a rule that forbids something must not be passed over in silence.

use std::sync::Arc;

use snic_front::authorization::Authorizer;

use crate::settings::Settings;

/// The folder, below that of the policy files.
const FOLDER: &str = "authorization";

/// Result of reading the files.
pub struct AuthorizationReading {
    /// Authorizer that decides from now on.
    pub authorizer: Arc<dyn Authorizer>,
    /// Changes since the last reading, one line a file.
    pub changes: Vec<String>,
    /// Why files were rejected; what was accepted last stays in force.
    pub rejected: Vec<String>,
}

/// The files of the settings, and what was accepted last.
pub struct AuthorizationFiles {
    #[cfg(feature = "cedar")]
    folder: snic_authorization_cedar::PolicyFolder,
    #[cfg(not(feature = "cedar"))]
    folder: Option<std::path::PathBuf>,
}

impl AuthorizationFiles {
    /// Those of the settings.
    pub fn new(settings: &Settings) -> Self {
        let folder = settings.policies_dir.as_deref().map(|folder| folder.join(FOLDER));
        #[cfg(feature = "cedar")]
        let folder = snic_authorization_cedar::PolicyFolder::new(
            folder,
            settings.data_dir.join("policies").join(FOLDER),
        );
        Self { folder }
    }
}

/// Checks the files without taking any for accepted.
///
/// # Errors
/// Checks the files; the error says what is wrong with each of them.
pub fn check(settings: &Settings) -> Result<(), String> {
    let scratch = tempfile::tempdir().map_err(|error| format!("make a folder: {error}"))?;
    let settings = Settings { data_dir: scratch.path().into(), ..settings.clone() };
    let reading = AuthorizationFiles::new(&settings).read().map_err(|e| format!("{e:#}"))?;
    match &reading.rejected[..] {
        [] => Ok(()),
        rejected => Err(rejected.join("; ")),
    }
}

#[cfg(not(feature = "cedar"))]
impl AuthorizationFiles {
    /// The built-in rules.
    ///
    /// # Errors
    /// There are files that say otherwise.
    pub fn read(&mut self) -> anyhow::Result<AuthorizationReading> {
        check_built_in(self.folder.as_deref())?;
        Ok(AuthorizationReading {
            authorizer: Arc::new(snic_front::authorization::BuiltIn),
            changes: Vec::new(),
            rejected: Vec::new(),
        })
    }
}

/// Whether the files of a folder, if it is there, say no more than the built-in rules.
///
/// # Errors
/// One of them says otherwise, or cannot be read.
#[cfg(any(test, not(feature = "cedar")))]
fn check_built_in(folder: Option<&std::path::Path>) -> anyhow::Result<()> {
    use anyhow::{Context as _, bail};
    /// Built-in rules in Cedar.
    const DEFAULT: &str = include_str!("../../../../../policies/authorization/default.cedar");
    let entries = match folder.map(std::fs::read_dir) {
        Some(Ok(entries)) => entries.collect::<std::io::Result<Vec<_>>>(),
        Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(Vec::new()),
    };
    for entry in entries.context("read the folder of authorization policies")? {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "cedar") {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("read {}", path.display()))?;
            if text != DEFAULT {
                bail!(
                    "{} has authorization policies, but this snicd was built without them; \
                     build it with --features cedar, or remove the file",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

#[cfg(feature = "cedar")]
impl AuthorizationFiles {
    /// Reads all files.
    ///
    /// # Errors
    /// Never: with the feature, nothing in the files keeps the daemon from starting.
    pub fn read(&mut self) -> anyhow::Result<AuthorizationReading> {
        let reading = self.folder.read();
        for rejected in &reading.rejected {
            tracing::error!("{rejected}");
        }
        if let Some(error) = reading.not_kept {
            tracing::warn!(%error, "the accepted policies cannot be kept for the next start");
        }
        Ok(AuthorizationReading {
            authorizer: Arc::new(reading.policies),
            changes: reading.changes,
            rejected: reading.rejected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str = include_str!("../../../../../policies/authorization/default.cedar");

    /// Answer of the built-in rules to these files.
    fn said(files: &[(&str, &str)]) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        check_built_in(Some(folder.path())).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn without_the_feature_only_the_default_policies_are_passed_over() {
        assert_eq!(said(&[]), Ok(()));
        assert_eq!(said(&[("default.cedar", SHIPPED), ("notes.txt", "forbid all")]), Ok(()));
        let nowhere = std::path::Path::new("/nowhere/authorization");
        check_built_in(None).and(check_built_in(Some(nowhere))).expect("there are no files");
        let changed = format!("{SHIPPED}\nforbid (principal, action, resource);\n");
        for files in [
            [("default.cedar", changed.as_str()), ("a.txt", "")],
            [("default.cedar", SHIPPED), ("own.cedar", "// Nothing.\n")],
        ] {
            let error = said(&files).expect_err("they say otherwise");
            let name = if files[1].0 == "own.cedar" { "own.cedar" } else { "default.cedar" };
            assert!(error.contains(name) && error.contains("--features cedar"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_passed_over() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = check_built_in(Some(file.path())).expect_err("it is no folder");
        assert!(format!("{error:#}").contains("folder of authorization policies"), "{error:#}");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("x.cedar")).expect("made");
        let error = check_built_in(Some(folder.path())).expect_err("it is no file");
        assert!(format!("{error:#}").contains("x.cedar"), "{error:#}");
    }
}
