//! The hook's settings: one TOML file; every key has a default.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use snic_api::connect::Target;

/// The settings file, unless `--config` names another.
pub const DEFAULT_PATH: &str = "/etc/snic/hook.toml";
/// Identity of the program, before the name of its host, unless the settings have another.
const PROGRAM: &str = "orchestrator/libvirt";

/// Fate of a domain's start while the daemon does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDown {
    /// The domain does not start.
    Refuse,
    /// It starts without its functions; the heartbeat binds it when the daemon is back.
    Allow,
}

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The daemon's address, and the hook's identity there.
    pub daemon: Target,
    /// Time limit of one call of the hook; libvirt waits for it.
    pub timeout_seconds: u64,
    /// Fate of a domain's start while the daemon does not answer.
    pub when_down: WhenDown,
    /// QEMU's log folder: the domain's log says why its start was refused.
    pub domain_log_dir: PathBuf,
    /// libvirt's folder of running domains' state files.
    pub libvirt_state_dir: PathBuf,
    /// Folder that records which domains are still to be unbound.
    pub spool_dir: PathBuf,
    /// Interval of heartbeats.
    pub heartbeat_seconds: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            daemon: Target::default().for_program(PROGRAM),
            timeout_seconds: 30,
            when_down: WhenDown::Refuse,
            domain_log_dir: "/var/log/libvirt/qemu".into(),
            libvirt_state_dir: "/run/libvirt/qemu".into(),
            spool_dir: "/var/lib/snic-hook".into(),
            heartbeat_seconds: 15,
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
            Ok(text) => Self::parse(&text).map_err(|error| format!("{}: {error}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut settings: Self =
            toml::from_str(text).map_err(|error| error.message().to_owned())?;
        settings.daemon = settings.daemon.for_program(PROGRAM);
        if settings.timeout_seconds == 0 || settings.heartbeat_seconds == 0 {
            return Err("timeout_seconds and heartbeat_seconds must be at least 1".into());
        }
        Ok(settings)
    }

    /// Time limit of one call of the hook.
    pub const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_have_defaults() {
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
        let allow = Settings::parse("when_down = \"allow\"").expect("valid");
        assert_eq!(allow.when_down, WhenDown::Allow);
        let endpoint = Settings::parse("[daemon]\nendpoint = \"unix:/x\"").expect("valid");
        let identity = endpoint.daemon.identity.expect("its own");
        assert!(identity.starts_with("orchestrator/libvirt"), "{identity}");
        let own = Settings::parse("[daemon]\nidentity = \"orchestrator/h1\"").expect("valid");
        assert_eq!(own.daemon.identity.as_deref(), Some("orchestrator/h1"));
        for bad in ["colour = 1", "when_down = \"maybe\"", "timeout_seconds = 0", "x"] {
            assert!(Settings::parse(bad).is_err(), "{bad}");
        }
        let absent = Path::new("/nonexistent/hook.toml");
        assert_eq!(Settings::read(absent), Ok(Settings::default()));
    }
}
