//! Settings: one TOML file; every key has a default.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use snic_api::connect::Target;

/// The settings file, unless `--config` names another.
pub const DEFAULT_PATH: &str = "/etc/snic/cdi.toml";

/// Identity of the program, before the name of its host, unless the settings have another.
const PROGRAM: &str = "orchestrator/cdi";

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The daemon's address, and this program's identity there.
    pub daemon: Target,
    /// The folder that container runtimes read.
    pub folder: PathBuf,
    /// The host's sysfs.
    pub sysfs: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            daemon: Target::default().for_program(PROGRAM),
            folder: "/var/run/cdi".into(),
            sysfs: "/sys".into(),
        }
    }
}

impl Settings {
    /// Reads the settings; the defaults apply where there is no file.
    ///
    /// # Errors
    /// A message that names the file and what is wrong in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let mut settings: Self = toml::from_str(&text)
                    .map_err(|error| format!("{}: {}", path.display(), error.message()))?;
                settings.daemon = settings.daemon.for_program(PROGRAM);
                Ok(settings)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_have_defaults_and_unknown_keys_are_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("cdi.toml");
        assert_eq!(Settings::read(&file), Ok(Settings::default()));
        std::fs::write(&file, "folder = \"/etc/cdi\"").expect("a file");
        assert_eq!(Settings::read(&file).expect("valid").folder, Path::new("/etc/cdi"));
        std::fs::write(&file, "[daemon]\nendpoint = \"unix:/x\"").expect("a file");
        let identity = Settings::read(&file).expect("valid").daemon.identity.expect("its own");
        assert!(identity.starts_with("orchestrator/cdi"), "{identity}");
        std::fs::write(&file, "colour = 1").expect("a file");
        let error = Settings::read(&file).expect_err("unknown");
        assert!(error.contains("cdi.toml") && error.contains("colour"), "{error}");
    }
}
