//! The folder of policy files, and what was accepted last.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::{CedarPolicies, DEFAULT, FILE_BYTES_MAX, PolicyFile};

/// Most files: each may have [`crate::POLICIES_MAX`] policies, and all are looked at for each decision.
pub const FILES_MAX: usize = 16;

/// Result of reading the files.
#[derive(Debug)]
pub struct FolderReading {
    /// The policies in force from now on.
    pub policies: CedarPolicies,
    /// Changes since the last reading, one line a file.
    pub changes: Vec<String>,
    /// Why files were rejected, with file and line; what was accepted last stays in force.
    pub rejected: Vec<String>,
    /// Why what is in force could not be kept for the next start, if so.
    pub not_kept: Option<io::Error>,
}

/// A file in force.
#[derive(Debug, Clone)]
struct InForce {
    text: String,
    parsed: PolicyFile,
}

/// A folder with policy files, and the texts of them that were last accepted.
///
/// A file that is wrong keeps no other from taking effect; of it, what was accepted last stays in force, also over
/// a restart. A folder that is lost takes no policy out of force.
#[derive(Debug)]
pub struct PolicyFolder {
    folder: Option<PathBuf>,
    accepted: PathBuf,
    in_force: BTreeMap<String, InForce>,
}

impl PolicyFolder {
    /// The files of a folder, and the folder in which what is in force is kept for the next start. Without
    /// a folder, [`DEFAULT`] is in force.
    pub fn new(folder: Option<PathBuf>, accepted: PathBuf) -> Self {
        let mut in_force = BTreeMap::new();
        for name in names(&accepted).unwrap_or_default() {
            if let Ok(text) = text(&accepted.join(&name))
                && let Ok(parsed) = PolicyFile::parse(&name, &text)
            {
                in_force.insert(name, InForce { text, parsed });
            }
        }
        Self { folder, accepted, in_force }
    }

    /// Reads all files.
    pub fn read(&mut self) -> FolderReading {
        let mut rejected = Vec::new();
        let mut now = match &self.folder {
            None => BTreeMap::new(),
            Some(folder) => self.files(folder, &mut rejected),
        };
        let (default, shipped) = DEFAULT;
        if !now.contains_key(default)
            && let Ok(parsed) = PolicyFile::parse(default, shipped)
        {
            now.insert(default.to_owned(), InForce { text: shipped.to_owned(), parsed });
        }
        let changes = differences(&self.in_force, &now);
        let not_kept = keep(&self.accepted, &now).err();
        self.in_force = now;
        let policies = CedarPolicies::new(self.in_force.values().map(|file| &file.parsed));
        FolderReading { policies, changes, rejected, not_kept }
    }

    /// The files of the folder that are right, and of the others what was accepted last.
    fn files(&self, folder: &Path, rejected: &mut Vec<String>) -> BTreeMap<String, InForce> {
        let mut reject =
            |text: String| rejected.push(format!("{text}; what was accepted last stays in force"));
        let found = match names(folder) {
            Ok(found) => found,
            // There never were any.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && self.in_force.keys().all(|name| name == DEFAULT.0) =>
            {
                return BTreeMap::new();
            }
            Err(error) => {
                reject(format!("cannot read {}: {error}", folder.display()));
                return self.in_force.clone();
            }
        };
        let mut now = BTreeMap::new();
        for (index, name) in found.into_iter().enumerate() {
            match (read(folder, &name, index), self.in_force.get(&name)) {
                (Ok(file), _) => {
                    now.insert(name, file);
                }
                (Err(error), Some(last)) => {
                    reject(error);
                    now.insert(name, last.clone());
                }
                (Err(error), None) => reject(error),
            }
        }
        now
    }
}

/// One file, the `index`th of the folder.
fn read(folder: &Path, name: &str, index: usize) -> Result<InForce, String> {
    let path = folder.join(name);
    let shown = path.display();
    if index >= FILES_MAX {
        return Err(format!("{shown} is one file too many (limit {FILES_MAX})"));
    }
    let text = text(&path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    match PolicyFile::parse(name, &text) {
        Ok(parsed) => Ok(InForce { text, parsed }),
        Err(error) => Err(format!("{shown}:{}: {}", error.line, error.message)),
    }
}

/// Names of the policy files in a folder, sorted.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().into_string();
        names.extend(name.ok().filter(|name| {
            Path::new(name).extension().is_some_and(|end| end == "cedar") && !name.starts_with('.')
        }));
    }
    names.sort_unstable();
    Ok(names)
}

/// A file's text: no more than is allowed, and one byte.
fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn differences(before: &BTreeMap<String, InForce>, now: &BTreeMap<String, InForce>) -> Vec<String> {
    let mut changes = Vec::new();
    for (name, file) in now {
        let policies = file.parsed.len();
        match before.get(name) {
            None => changes.push(format!("authorization/{name} is new (policies: {policies})")),
            Some(before) if before.text != file.text => {
                let was = before.parsed.len();
                changes.push(format!("authorization/{name} ({was} policies → {policies})"));
            }
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    changes.extend(gone.map(|name| format!("authorization/{name} is gone")));
    changes
}

/// Keeps what is in force for the next start.
fn keep(folder: &Path, now: &BTreeMap<String, InForce>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, file) in now {
        let path = folder.join(name);
        if text(&path).is_ok_and(|kept| kept == file.text) {
            continue;
        }
        // Readable to its owner alone: policies may name tenants.
        let mut whole = NamedTempFile::new_in(folder)?;
        whole.write_all(file.text.as_bytes())?;
        whole.as_file().sync_all()?;
        whole.persist(path)?;
    }
    for name in names(folder)?.iter().filter(|name| !now.contains_key(*name)) {
        fs::remove_file(folder.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use snic_front::access::CONTROL;
    use snic_front::authorization::{Authorizer as _, NamedResource, Question};
    use snic_front::identity::CallerIdentity;

    use super::*;

    struct Folders {
        _all: tempfile::TempDir,
        own: PathBuf,
        kept: PathBuf,
    }

    impl Folders {
        /// As at a start.
        fn open(&self) -> PolicyFolder {
            PolicyFolder::new(Some(self.own.clone()), self.kept.clone())
        }
    }

    fn folders() -> Folders {
        let all = tempfile::tempdir().expect("a folder");
        let (own, kept) = (all.path().join("authorization"), all.path().join("kept"));
        fs::create_dir_all(&own).expect("made");
        Folders { _all: all, own, kept }
    }

    fn may(reading: &FolderReading, who: &str, method: &str, name: &str) -> bool {
        let identity = &CallerIdentity::parse(who).expect("an identity");
        let resource = &NamedResource::below(name).seen_by(identity);
        let row = CONTROL.named(method).expect("a method");
        let question = Question { identity, row, resource, validate_only: false };
        reading.policies.decide(&question).allowed
    }

    const NO_DELETES: &str = "forbid (principal, action == Action::\"DeleteDag\", resource);\n";
    const WEB: &str = "tenants/acme/dags/web";

    #[test]
    fn a_wrong_file_keeps_its_last_text_and_holds_up_no_other() {
        let folders = folders();
        let own = &folders.own;
        let mut files = folders.open();
        let first = files.read();
        assert!(first.rejected.is_empty(), "{:?}", first.rejected);
        assert!(may(&first, "tenant/acme", "DeleteDag", WEB), "what ships");

        fs::write(own.join("deletes.cedar"), NO_DELETES).expect("written");
        let second = files.read();
        assert_eq!(second.changes, ["authorization/deletes.cedar is new (policies: 1)"]);
        assert!(!may(&second, "tenant/acme", "DeleteDag", WEB));

        fs::write(own.join("deletes.cedar"), "\nforbid (principal, axtion, resource);")
            .expect("written");
        let bob =
            "permit (principal == Member::\"acme/bob\", action in Action::\"Read\", resource);";
        fs::write(own.join("bob.cedar"), bob).expect("written");
        let third = files.read();
        let [why] = &third.rejected[..] else { panic!("{:?}", third.rejected) };
        assert!(why.contains("deletes.cedar:2: ") && why.contains("stays in force"), "{why}");
        assert_eq!(third.changes, ["authorization/bob.cedar is new (policies: 1)"]);
        assert!(!may(&third, "tenant/acme", "DeleteDag", WEB), "its last text");
        assert!(may(&third, "tenant/acme/bob", "GetDag", WEB), "the other file");

        // Over a restart.
        let mut again = folders.open();
        let fourth = again.read();
        assert_eq!((fourth.rejected.len(), fourth.changes.len()), (1, 0), "{:?}", fourth.changes);
        assert!(!may(&fourth, "tenant/acme", "DeleteDag", WEB));

        fs::remove_file(own.join("deletes.cedar")).expect("removed");
        let fifth = again.read();
        assert_eq!(fifth.changes, ["authorization/deletes.cedar is gone"]);
        assert!(may(&fifth, "tenant/acme", "DeleteDag", WEB));
    }

    #[test]
    fn a_folder_that_is_lost_takes_no_policy_away() {
        let folders = folders();
        let own = &folders.own;
        fs::write(own.join("deletes.cedar"), NO_DELETES).expect("written");
        let mut files = folders.open();
        assert!(!may(&files.read(), "tenant/acme", "DeleteDag", WEB));
        fs::remove_dir_all(own).expect("removed");
        for mut files in [files, folders.open()] {
            let reading = files.read();
            assert_eq!(reading.rejected.len(), 1, "{:?}", reading.rejected);
            assert!(!may(&reading, "tenant/acme", "DeleteDag", WEB));
        }
    }

    #[test]
    fn a_default_of_ones_own_replaces_what_ships() {
        let folders = folders();
        let own = &folders.own;
        fs::write(own.join("default.cedar"), "// Nobody.\n").expect("written");
        let reading = folders.open().read();
        assert!(!may(&reading, "tenant/acme", "GetDag", WEB));
        assert!(!may(&reading, "operator/root", "GetDag", WEB));
    }

    #[test]
    fn there_is_a_limit_of_files() {
        let folders = folders();
        let own = &folders.own;
        for number in 0..17 {
            fs::write(own.join(format!("f{number:02}.cedar")), NO_DELETES).expect("written");
        }
        let reading = folders.open().read();
        let [why] = &reading.rejected[..] else { panic!("{:?}", reading.rejected) };
        assert!(why.contains("f16.cedar") && why.contains("limit 16"), "{why}");
    }
}
