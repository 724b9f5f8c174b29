//! Policies: files that are checked and reloaded when they change. Those that a fleet registered come before the host's
//! own of the same names; the shipped files are the defaults.

mod authorization;
mod fleet_files;
mod keeper;
mod price_file;
mod reload;

use std::path::{Path, PathBuf};

use snic_controller::ControllerSettings;
use snic_fleet::protocol::{HostPolicies, Numbered, PolicyFiles};
use snic_policies::{CONTRADICTING, InvalidPolicyText, PolicyText, PolicyTexts, SHIPPED};

pub use authorization::{AuthorizationFiles, check as check_authorization};
pub use fleet_files::names as fleet_file_names;
pub use keeper::PolicyKeeper;
pub use price_file::PriceFile;
pub use reload::{Reloader, watch};

use fleet_files::FleetFiles;

/// Why a policy file was rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPolicyFile {
    /// It cannot be read.
    #[error("cannot read the policy file {path}: {source}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML, or a key is wrong.
    #[error(transparent)]
    Key(#[from] InvalidPolicyText),
}

/// The policy files of the settings and of the fleet, and the texts that were last accepted.
///
/// A file that is invalid does not take effect, and does not keep the others from it: the text that was
/// accepted last stays in force, also over a restart; without one, what ships. Of the fleet's files all or none are taken.
pub struct Policies {
    folder: Option<PathBuf>,
    accepted: PathBuf,
    /// `None`: the settings name no fleet.
    fleet: Option<FleetFiles>,
}

impl Policies {
    /// Those of the settings.
    pub fn new(settings: &crate::settings::Settings) -> Self {
        let accepted = settings.data_dir.join("policies");
        let fleet = settings.fleet.as_ref().map(|_| FleetFiles::read(&settings.data_dir));
        Self { folder: settings.policies_dir.clone(), accepted, fleet }
    }

    /// Reads all files. Gives the policies in force, and why files were rejected.
    pub fn read(&mut self) -> (ControllerSettings, Vec<String>) {
        let mut rejected = Vec::new();
        // The host's own files may have been what it was refused for.
        if let Some((files, _)) = self.fleet.as_mut().and_then(FleetFiles::take_refused)
            && let Err(error) = self.set_for_fleet(files)
        {
            rejected.push(format!("policies of the fleet: {error:#}"));
        }
        if self.folder.is_none() && self.fleet.as_ref().is_none_or(FleetFiles::is_empty) {
            return (ControllerSettings::default(), rejected);
        }
        let mut texts = SHIPPED.map(|(name, shipped)| {
            if let Some(text) = self.fleet.as_ref().and_then(|fleet| fleet.text(name)) {
                return text;
            }
            self.own(name, shipped).unwrap_or_else(|error| {
                rejected.push(self.reject(name, &error));
                self.last(name, shipped)
            })
        });
        let settings = snic_policies::parse(&texts).or_else(|error| {
            // Each is valid, but two contradict each other: neither of them takes effect.
            rejected.push(self.reject(&CONTRADICTING.join(" and "), &error.into()));
            for (at, (name, shipped)) in SHIPPED.into_iter().enumerate() {
                if CONTRADICTING.contains(&name) {
                    texts[at] = self.last(name, shipped);
                }
            }
            snic_policies::parse(&texts)
        });
        match settings {
            Ok(settings) => {
                self.accept(&texts);
                (settings, rejected)
            }
            // What was accepted contradicts what is there now.
            Err(error) => {
                rejected.push(self.reject("all files", &error.into()));
                (ControllerSettings::default(), rejected)
            }
        }
    }

    /// Keeps files of the fleet, to be read with the next [`Self::read`], or refuses them.
    ///
    /// # Errors
    /// They cannot be stored. What was there before still is.
    pub fn set_for_fleet(&mut self, files: Numbered<PolicyFiles>) -> anyhow::Result<()> {
        let checked = self.check_for_fleet(&files.of);
        let Some(fleet) = &mut self.fleet else { return Ok(()) };
        match checked {
            Ok(()) => fleet.keep(files),
            Err(error) => {
                fleet.refuse(files, error.to_string());
                Ok(())
            }
        }
    }

    /// Files of the fleet that it looked at.
    pub fn of_fleet(&self) -> HostPolicies {
        self.fleet.as_ref().map(FleetFiles::examined_policies).unwrap_or_default()
    }

    /// Whether files of the fleet can be in force beside this host's own.
    fn check_for_fleet(&self, files: &PolicyFiles) -> Result<(), InvalidPolicyText> {
        snic_policies::check_names(files)?;
        let texts = SHIPPED.map(|(name, shipped)| match files.get(name) {
            Some(text) => PolicyText::new(format!("the fleet's {name}"), text),
            None => self.own(name, shipped).unwrap_or_else(|_| self.last(name, shipped)),
        });
        snic_policies::parse(&texts).map(drop)
    }

    /// The text of the host's own file, if it is valid by itself, or what ships.
    fn own(&self, name: &str, shipped: &str) -> Result<PolicyText, InvalidPolicyFile> {
        let text = match &self.folder {
            Some(folder) => read(&folder.join(name), name, shipped)?,
            None => PolicyText::shipped(name, shipped),
        };
        snic_policies::check_alone(name, &text)?;
        Ok(text)
    }

    fn reject(&self, name: &str, error: &InvalidPolicyFile) -> String {
        tracing::error!(%error, "{name} rejected; what was accepted last stays in force");
        format!("{error}; what was accepted last stays in force")
    }

    /// The text of a file that was accepted last, or what ships.
    fn last(&self, name: &str, shipped: &str) -> PolicyText {
        let path = self.accepted.join(name);
        let kept = std::fs::read_to_string(&path).ok();
        let kept = kept.map(|text| PolicyText { path: path.display().to_string(), text });
        let kept = kept.filter(|text| snic_policies::check_alone(name, text).is_ok());
        kept.unwrap_or_else(|| PolicyText::shipped(name, shipped))
    }

    fn accept(&self, texts: &PolicyTexts) {
        let kept = std::fs::create_dir_all(&self.accepted).map_err(anyhow::Error::from);
        let kept = kept.and_then(|()| {
            SHIPPED.iter().zip(texts).try_for_each(|((name, _), PolicyText { text, .. })| {
                let path = self.accepted.join(name);
                if std::fs::read_to_string(&path).is_ok_and(|kept| kept == *text) {
                    return Ok(());
                }
                crate::secrets::write(&path, text.as_bytes(), 0o600)
            })
        });
        if let Err(error) = kept {
            let error = format!("{error:#}");
            tracing::warn!(error, "the accepted policies cannot be kept for the next start");
        }
    }
}

/// Reads all policies from a folder, all or none. A missing file, or no folder, means the shipped
/// policies.
pub fn load(folder: Option<&Path>) -> Result<ControllerSettings, InvalidPolicyFile> {
    let Some(folder) = folder else { return Ok(ControllerSettings::default()) };
    let mut texts = SHIPPED.map(|(name, shipped)| PolicyText::shipped(name, shipped));
    for (text, (name, shipped)) in texts.iter_mut().zip(SHIPPED) {
        *text = read(&folder.join(name), name, shipped)?;
    }
    Ok(snic_policies::parse(&texts)?)
}

/// A file's text, or what ships where there is none in the folder.
fn read(path: &Path, name: &str, shipped: &str) -> Result<PolicyText, InvalidPolicyFile> {
    let shown = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(PolicyText { path: shown, text }),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound && folder_exists(path) => {
            Ok(PolicyText::shipped(name, shipped))
        }
        Err(source) => Err(InvalidPolicyFile::Read { path: shown, source }),
    }
}

fn folder_exists(file: &Path) -> bool {
    file.parent().is_some_and(Path::is_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_named_and_a_missing_file_is_the_shipped_one() {
        let error = load(Some(Path::new("/nonexistent"))).expect_err("missing");
        assert!(error.to_string().contains("/nonexistent/placement.toml"), "{error}");
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(load(Some(folder.path())).expect("what ships"), ControllerSettings::default());
    }

    #[test]
    fn a_bad_file_blocks_no_other_and_what_was_accepted_stays_over_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("policies");
        std::fs::create_dir(&at).expect("a folder");
        let settings = crate::settings::Settings {
            data_dir: folder.path().join("store"),
            policies_dir: Some(at.clone()),
            ..Default::default()
        };
        let write = |name: &str, text: &str| std::fs::write(at.join(name), text).expect("written");
        // Each time as after a start.
        let read = || Policies::new(&settings).read();
        write("fairness.toml", "[epoch]\nlength_ms = 40");
        let (now, rejected) = read();
        assert_eq!((now.fairness.epoch.as_millis(), rejected), (40, Vec::new()));
        write("fairness.toml", "[epoch]\nlength_ms = 0");
        write("placement.toml", "[reconfiguration]\nattempts = 9");
        let (now, rejected) = read();
        assert_eq!((now.fairness.epoch.as_millis(), now.load_attempts), (40, 9));
        let [why] = &rejected[..] else { panic!("{rejected:?}") };
        assert!(why.contains("fairness.toml:2: epoch.length_ms = 0"), "{why}");
        assert!(why.contains("stays in force"), "{why}");
        // Two that contradict each other: neither takes effect.
        write("fairness.toml", "[sharing]\nscheme = \"static\"\n[epoch]\nlength_ms = 50");
        write("autoscaling.toml", "enabled = true");
        let (now, rejected) = read();
        assert_eq!((now.fairness.epoch.as_millis(), rejected.len()), (40, 1), "{rejected:?}");
        std::fs::remove_dir_all(&at).expect("removed");
        let (now, rejected) = read();
        assert_eq!((now.fairness.epoch.as_millis(), now.load_attempts), (40, 9));
        assert_eq!(rejected.len(), SHIPPED.len(), "{rejected:?}");
    }

    fn at_a_fleet(folder: &Path) -> crate::settings::Settings {
        let text = "endpoints = [\"https://fleet-0:7700\"]";
        crate::settings::Settings {
            data_dir: folder.join("store"),
            policies_dir: Some(folder.join("policies")),
            fleet: Some(toml::from_str(text).expect("settings of a fleet")),
            ..Default::default()
        }
    }

    fn numbered(number: u64, files: &[(&str, &str)]) -> Numbered<PolicyFiles> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Numbered { number, of: files.iter().map(owned).collect() }
    }

    /// The fleet's files come before the host's own, hold over a restart, and go when the fleet has them no more.
    #[test]
    fn files_of_a_fleet_come_before_the_hosts_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = at_a_fleet(folder.path());
        for made in [&settings.data_dir, &folder.path().join("policies")] {
            std::fs::create_dir(made).expect("a folder");
        }
        let own = |name: &str, text: &str| {
            std::fs::write(folder.path().join("policies").join(name), text).expect("written");
        };
        own("fairness.toml", "[epoch]\nlength_ms = 40");
        own("placement.toml", "[reconfiguration]\nattempts = 9");
        let mut policies = Policies::new(&settings);
        let set = |policies: &mut Policies, number, files: &[(&str, &str)]| {
            policies.set_for_fleet(numbered(number, files)).expect("there is room");
            let (now, rejected) = policies.read();
            let (epoch, attempts) = (now.fairness.epoch.as_millis(), now.load_attempts);
            (policies.of_fleet(), epoch, attempts, rejected)
        };
        let taken = |number| HostPolicies { number, refused: None };
        let now = set(&mut policies, 3, &[("fairness.toml", "[epoch]\nlength_ms = 60")]);
        assert_eq!(now, (taken(3), 60, 9, Vec::new()));
        let mut again = Policies::new(&settings);
        assert_eq!(again.read().0.fairness.epoch.as_millis(), 60, "after a restart");
        assert_eq!(again.of_fleet(), taken(3));
        let alone = crate::settings::Settings { fleet: None, ..settings.clone() };
        assert_eq!(Policies::new(&alone).read().0.fairness.epoch.as_millis(), 40, "no fleet");
        // A part of them is wrong: none is taken.
        let wrong = [("fairness.toml", "[epoch]\nlength_ms = 80"), ("placement.toml", "x = 1")];
        let (said, epoch, attempts, _) = set(&mut policies, 4, &wrong);
        assert_eq!((said.number, epoch, attempts), (4, 60, 9));
        let why = said.refused.expect("it is refused");
        assert!(why.starts_with("the fleet's placement.toml:1: x: "), "{why}");
        let (said, ..) = set(&mut policies, 5, &[("limits.toml", "")]);
        assert!(said.refused.is_some_and(|why| why.contains("no such policy file")));
        let now = set(&mut policies, 6, &[]);
        assert_eq!(now, (taken(6), 40, 9, Vec::new()), "the host's own again");
    }

    /// Files of a fleet that were refused for a file of the host are taken once that is mended.
    #[test]
    fn files_of_a_fleet_that_contradict_the_hosts_own_wait_for_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = at_a_fleet(folder.path());
        for made in [&settings.data_dir, &folder.path().join("policies")] {
            std::fs::create_dir(made).expect("a folder");
        }
        let own = folder.path().join("policies/autoscaling.toml");
        std::fs::write(&own, "enabled = true").expect("written");
        let mut policies = Policies::new(&settings);
        let fixed = [("fairness.toml", "[sharing]\nscheme = \"static\"")];
        policies.set_for_fleet(numbered(7, &fixed)).expect("there is room");
        let why = policies.of_fleet().refused.expect("it is refused");
        assert!(why.contains("the fleet's fairness.toml:2"), "{why}");
        assert!(why.contains("policies/autoscaling.toml:1"), "{why}");
        let scheme = |policies: &mut Policies| policies.read().0.fairness.scheme;
        assert_ne!(scheme(&mut policies), snic_controller::Scheme::Static);
        assert!(policies.of_fleet().refused.is_some(), "it is as it was");
        std::fs::write(&own, "enabled = false").expect("written");
        assert_eq!(scheme(&mut policies), snic_controller::Scheme::Static);
        assert_eq!(policies.of_fleet(), HostPolicies { number: 7, refused: None });
    }

    /// A file that is damaged is none: the fleet sends its files again.
    #[test]
    fn a_damaged_file_of_the_fleet_counts_as_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = at_a_fleet(folder.path());
        for made in [&settings.data_dir, &folder.path().join("policies")] {
            std::fs::create_dir(made).expect("a folder");
        }
        let mut policies = Policies::new(&settings);
        let files = numbered(3, &[("fairness.toml", "[epoch]\nlength_ms = 60")]);
        policies.set_for_fleet(files.clone()).expect("there is room");
        let path = settings.data_dir.join(fleet_files::FILE);
        std::fs::write(&path, "{").expect("written");
        let mut policies = Policies::new(&settings);
        assert_eq!(policies.of_fleet(), HostPolicies::default());
        assert_eq!(policies.read().0.fairness.epoch.as_millis(), 20);
        policies.set_for_fleet(files).expect("there is room");
        assert_eq!(policies.read().0.fairness.epoch.as_millis(), 60);
    }
}
