//! Authorization policies: the folder `authorization` beside the other policy files.
//!
//! Without the feature `cedar`, the rules that the server has built in apply, and files that say otherwise keep
//! the daemon from starting: a rule that forbids something must not be passed over in silence.

use std::path::PathBuf;
use std::sync::Arc;

use snic_server::authorization::Authorizer;

use crate::settings::Settings;

/// The folder, below that of the policy files.
pub const FOLDER: &str = "authorization";

/// What reading the files gave.
pub struct AuthorizationReading {
    /// What decides from now on.
    pub authorizer: Arc<dyn Authorizer>,
    /// What changed since the last reading, one line a file.
    pub changes: Vec<String>,
    /// Why files were rejected; what was accepted last stays in force.
    pub rejected: Vec<String>,
}

/// The files of the settings, and what was accepted last.
pub struct AuthorizationFiles {
    folder: Option<PathBuf>,
    #[cfg(feature = "cedar")]
    state: cedar::State,
}

impl AuthorizationFiles {
    /// Those of the settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            folder: settings.policies_dir.as_deref().map(|folder| folder.join(FOLDER)),
            #[cfg(feature = "cedar")]
            state: cedar::State::new(settings.data_dir.join("policies").join(FOLDER)),
        }
    }
}

/// Checks the files without taking any for accepted.
///
/// # Errors
/// What is wrong with each of them.
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
        use anyhow::{Context as _, bail};
        /// What the built-in rules are in Cedar.
        const DEFAULT: &str = include_str!("../../../../policies/authorization/default.cedar");
        let entries = match self.folder.as_deref().map(std::fs::read_dir) {
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
        Ok(AuthorizationReading {
            authorizer: Arc::new(snic_server::authorization::BuiltIn),
            changes: Vec::new(),
            rejected: Vec::new(),
        })
    }
}

#[cfg(feature = "cedar")]
mod cedar {
    use std::collections::BTreeMap;
    use std::fs::{self, File};
    use std::io::{self, Read as _};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use anyhow::Result;
    use snic_authorization_cedar::{CedarPolicies, DEFAULT, FILE_BYTES_MAX, PolicyFile};

    use super::{AuthorizationFiles, AuthorizationReading};

    /// Most files: each may have 200 policies, and all are looked at for each decision.
    const FILES_MAX: usize = 16;

    /// A file in force.
    #[derive(Clone)]
    struct InForce {
        text: String,
        parsed: PolicyFile,
    }

    /// What is in force, by the files' names, and where it is kept for the next start.
    pub(super) struct State {
        accepted: PathBuf,
        in_force: BTreeMap<String, InForce>,
    }

    impl State {
        pub fn new(accepted: PathBuf) -> Self {
            let mut in_force = BTreeMap::new();
            for name in names(&accepted).unwrap_or_default() {
                if let Ok(text) = text(&accepted.join(&name))
                    && let Ok(parsed) = PolicyFile::parse(&name, &text)
                {
                    in_force.insert(name, InForce { text, parsed });
                }
            }
            Self { accepted, in_force }
        }
    }

    impl AuthorizationFiles {
        /// Reads all files. One that is wrong keeps no other from taking effect; of it, what was accepted last
        /// stays in force, also over a restart.
        ///
        /// # Errors
        /// Never: with the feature, nothing keeps the daemon from starting.
        pub fn read(&mut self) -> Result<AuthorizationReading> {
            let mut rejected = Vec::new();
            let mut reject = |text: String| {
                tracing::error!("{text}; what was accepted last stays in force");
                rejected.push(format!("{text}; what was accepted last stays in force"));
            };
            let (default, shipped) = DEFAULT;
            let mut now: BTreeMap<String, InForce> = BTreeMap::new();
            match self.folder.as_deref().map(names) {
                None => {}
                Some(Ok(found)) => {
                    let folder = self.folder.clone().unwrap_or_default();
                    for (index, name) in found.into_iter().enumerate() {
                        let path = folder.join(&name);
                        let shown = path.display();
                        let read = if index < FILES_MAX {
                            text(&path).map_err(|error| format!("cannot read {shown}: {error}"))
                        } else {
                            Err(format!("{shown} is one file too many (limit {FILES_MAX})"))
                        };
                        let read = read.and_then(|text| match PolicyFile::parse(&name, &text) {
                            Ok(parsed) => Ok(InForce { text, parsed }),
                            Err(error) => Err(format!("{shown}:{}: {}", error.line, error.message)),
                        });
                        match (read, self.state.in_force.get(&name)) {
                            (Ok(read), _) => {
                                now.insert(name, read);
                            }
                            (Err(error), Some(last)) => {
                                reject(error);
                                now.insert(name, last.clone());
                            }
                            (Err(error), None) => reject(error),
                        }
                    }
                }
                // There never were any of its own.
                Some(Err(error))
                    if error.kind() == io::ErrorKind::NotFound
                        && self.state.in_force.keys().all(|name| name == default) => {}
                Some(Err(error)) => {
                    let folder = self.folder.clone().unwrap_or_default();
                    reject(format!("cannot read {}: {error}", folder.display()));
                    now.clone_from(&self.state.in_force);
                }
            }
            if !now.contains_key(default)
                && let Ok(parsed) = PolicyFile::parse(default, shipped)
            {
                now.insert(default.to_owned(), InForce { text: shipped.to_owned(), parsed });
            }
            let changes = differences(&self.state.in_force, &now);
            if let Err(error) = keep(&self.state.accepted, &now) {
                let error = format!("{error:#}");
                tracing::warn!(error, "the accepted policies cannot be kept for the next start");
            }
            self.state.in_force = now;
            let files = self.state.in_force.values().map(|file| &file.parsed);
            let authorizer = Arc::new(CedarPolicies::new(files));
            Ok(AuthorizationReading { authorizer, changes, rejected })
        }
    }

    /// Names of the policy files in a folder, sorted.
    fn names(folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().into_string();
            names.extend(name.ok().filter(|name| {
                Path::new(name).extension().is_some_and(|end| end == "cedar")
                    && !name.starts_with('.')
            }));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// A file's text, no more than is allowed and one byte.
    fn text(path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
        Ok(text)
    }

    fn differences(
        before: &BTreeMap<String, InForce>,
        now: &BTreeMap<String, InForce>,
    ) -> Vec<String> {
        let of = |name: &str| format!("{}/{name}", super::FOLDER);
        let mut changes = Vec::new();
        for (name, file) in now {
            let policies = file.parsed.len();
            match before.get(name) {
                None => changes.push(format!("{} is new ({policies} policies)", of(name))),
                Some(before) if before.text != file.text => {
                    let was = before.parsed.len();
                    changes.push(format!("{} ({was} policies → {policies})", of(name)));
                }
                Some(_) => {}
            }
        }
        let gone = before.keys().filter(|name| !now.contains_key(*name));
        changes.extend(gone.map(|name| format!("{} is gone", of(name))));
        changes
    }

    /// Keeps what is in force for the next start.
    fn keep(folder: &Path, now: &BTreeMap<String, InForce>) -> Result<()> {
        fs::create_dir_all(folder)?;
        for (name, file) in now {
            let path = folder.join(name);
            if !text(&path).is_ok_and(|kept| kept == file.text) {
                crate::secrets::write(&path, file.text.as_bytes(), 0o600)?;
            }
        }
        for name in names(folder)?.iter().filter(|name| !now.contains_key(*name)) {
            fs::remove_file(folder.join(name))?;
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "cedar"))]
mod tests {
    use std::fs;

    use snic_server::access::named;
    use snic_server::authorization::{Question, Resource};
    use snic_server::identity::CallerIdentity;

    use super::*;

    struct Folders {
        _all: tempfile::TempDir,
        settings: Settings,
        own: PathBuf,
    }

    fn folders() -> Folders {
        let all = tempfile::tempdir().expect("a folder");
        let policies = all.path().join("policies");
        let own = policies.join(FOLDER);
        fs::create_dir_all(&own).expect("made");
        let settings = Settings {
            policies_dir: Some(policies),
            data_dir: all.path().join("data"),
            ..Settings::default()
        };
        Folders { _all: all, settings, own }
    }

    fn may(reading: &AuthorizationReading, who: &str, method: &str, name: &str) -> bool {
        let identity = &CallerIdentity::parse(who).expect("an identity");
        let resource = &Resource::below(name).seen_by(identity);
        let row = named(method).expect("a method");
        let question = Question { identity, row, resource, validate_only: false };
        reading.authorizer.decide(&question).allowed
    }

    const NO_DELETES: &str = "forbid (principal, action == Action::\"DeleteDag\", resource);\n";
    const WEB: &str = "tenants/acme/dags/web";

    #[test]
    fn a_wrong_file_keeps_its_last_text_and_holds_up_no_other() {
        let Folders { settings, own, _all } = folders();
        let mut files = AuthorizationFiles::new(&settings);
        let first = files.read().expect("readable");
        assert!(first.rejected.is_empty(), "{:?}", first.rejected);
        assert!(may(&first, "tenant/acme", "DeleteDag", WEB), "what ships");

        fs::write(own.join("deletes.cedar"), NO_DELETES).expect("written");
        let second = files.read().expect("readable");
        assert_eq!(second.changes, ["authorization/deletes.cedar is new (1 policies)"]);
        assert!(!may(&second, "tenant/acme", "DeleteDag", WEB));

        fs::write(own.join("deletes.cedar"), "\nforbid (principal, axtion, resource);")
            .expect("written");
        let bob =
            "permit (principal == Member::\"acme/bob\", action in Action::\"Read\", resource);";
        fs::write(own.join("bob.cedar"), bob).expect("written");
        let third = files.read().expect("readable");
        let [why] = &third.rejected[..] else { panic!("{:?}", third.rejected) };
        assert!(why.contains("deletes.cedar:2: ") && why.contains("stays in force"), "{why}");
        assert_eq!(third.changes, ["authorization/bob.cedar is new (1 policies)"]);
        assert!(!may(&third, "tenant/acme", "DeleteDag", WEB), "its last text");
        assert!(may(&third, "tenant/acme/bob", "GetDag", WEB), "the other file");

        // Over a restart.
        let mut again = AuthorizationFiles::new(&settings);
        let fourth = again.read().expect("readable");
        assert_eq!((fourth.rejected.len(), fourth.changes.len()), (1, 0), "{:?}", fourth.changes);
        assert!(!may(&fourth, "tenant/acme", "DeleteDag", WEB));

        fs::remove_file(own.join("deletes.cedar")).expect("removed");
        let fifth = again.read().expect("readable");
        assert_eq!(fifth.changes, ["authorization/deletes.cedar is gone"]);
        assert!(may(&fifth, "tenant/acme", "DeleteDag", WEB));
    }

    #[test]
    fn a_folder_that_is_lost_takes_no_policy_away() {
        let Folders { settings, own, _all } = folders();
        fs::write(own.join("deletes.cedar"), NO_DELETES).expect("written");
        let mut files = AuthorizationFiles::new(&settings);
        assert!(!may(&files.read().expect("readable"), "tenant/acme", "DeleteDag", WEB));
        fs::remove_dir_all(&own).expect("removed");
        for files in [&mut files, &mut AuthorizationFiles::new(&settings)] {
            let reading = files.read().expect("readable");
            assert_eq!(reading.rejected.len(), 1, "{:?}", reading.rejected);
            assert!(!may(&reading, "tenant/acme", "DeleteDag", WEB));
        }
    }

    #[test]
    fn a_default_of_ones_own_replaces_what_ships() {
        let Folders { settings, own, _all } = folders();
        fs::write(own.join("default.cedar"), "// Nobody.\n").expect("written");
        let reading = AuthorizationFiles::new(&settings).read().expect("readable");
        assert!(!may(&reading, "tenant/acme", "GetDag", WEB));
        assert!(!may(&reading, "operator/root", "GetDag", WEB));
    }

    #[test]
    fn there_is_a_limit_of_files() {
        let Folders { settings, own, _all } = folders();
        for number in 0..17 {
            fs::write(own.join(format!("f{number:02}.cedar")), NO_DELETES).expect("written");
        }
        let reading = AuthorizationFiles::new(&settings).read().expect("readable");
        let [why] = &reading.rejected[..] else { panic!("{:?}", reading.rejected) };
        assert!(why.contains("f16.cedar") && why.contains("limit 16"), "{why}");
    }
}
