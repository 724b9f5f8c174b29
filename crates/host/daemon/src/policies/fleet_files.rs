//! The policy files that the fleet registered, as this host keeps them: in force without the fleet, and over restarts.

use std::path::{Path, PathBuf};

use snic_fleet::protocol::{HostPolicies, Numbered, PolicyFiles};
use snic_policies::PolicyText;

use crate::secrets;
use crate::settings::Settings;

/// The file in the data folder.
pub(super) const FILE: &str = "fleet-policies.json";

/// Files of the fleet.
#[derive(Debug)]
pub(super) struct FleetFiles {
    path: PathBuf,
    in_force: Numbered<PolicyFiles>,
    /// Those that were sent last, and why they are not in force.
    refused: Option<(Numbered<PolicyFiles>, String)>,
}

impl FleetFiles {
    /// Those that were kept. What cannot be read counts as none: the fleet sends its files again.
    pub fn read(data_dir: &Path) -> Self {
        let path = data_dir.join(FILE);
        let in_force = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let path = path.display();
                tracing::error!(%error, "{path} is damaged; the fleet's policies count as none");
                Numbered::default()
            }),
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    let path = path.display();
                    tracing::error!(%error, "cannot read {path}; the fleet's policies count as none");
                }
                Numbered::default()
            }
        };
        Self { path, in_force, refused: None }
    }

    pub fn is_empty(&self) -> bool {
        self.in_force.of.is_empty()
    }

    /// The text that is in force for a file.
    pub fn text(&self, name: &str) -> Option<PolicyText> {
        let text = self.in_force.of.get(name)?;
        Some(PolicyText::new(format!("the fleet's {name}"), text))
    }

    /// Files that it looked at last.
    pub fn examined_policies(&self) -> HostPolicies {
        match &self.refused {
            Some((files, why)) => HostPolicies { number: files.number, refused: Some(why.clone()) },
            None => HostPolicies { number: self.in_force.number, refused: None },
        }
    }

    /// Durable when it returns.
    ///
    /// # Errors
    /// They cannot be written; those before are still there.
    pub fn keep(&mut self, files: Numbered<PolicyFiles>) -> anyhow::Result<()> {
        secrets::write_durably(&self.path, &serde_json::to_vec(&files)?)?;
        (self.in_force, self.refused) = (files, None);
        Ok(())
    }

    pub fn refuse(&mut self, files: Numbered<PolicyFiles>, why: String) {
        tracing::error!(why, "the fleet's policies are refused; what was in force stays");
        self.refused = Some((files, why));
    }

    /// Those that were refused, to be looked at once more.
    pub fn take_refused(&mut self) -> Option<(Numbered<PolicyFiles>, String)> {
        self.refused.take()
    }
}

/// The names of the fleet's files that replace the host's own, for display.
pub fn names(settings: &Settings) -> Vec<String> {
    match settings.fleet {
        Some(_) => FleetFiles::read(&settings.data_dir).in_force.of.into_keys().collect(),
        None => Vec::new(),
    }
}
