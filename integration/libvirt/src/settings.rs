//! The hook's settings: one TOML file, each key with a default.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use snic_api::connect::Target;

/// Where the settings are, unless `--config` says otherwise.
pub const DEFAULT_PATH: &str = "/etc/snic/hook.toml";

/// What becomes of a start while the daemon does not answer.
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
    /// Where the daemon is, and who the hook is there.
    pub daemon: Target,
    /// How long a call of the hook may take in all: libvirt waits for it.
    pub timeout_seconds: u64,
    /// What becomes of a start while the daemon does not answer.
    pub when_down: WhenDown,
    /// Where QEMU's logs are: a refused start is explained in the domain's.
    pub domain_log_dir: PathBuf,
    /// Where libvirt keeps the state of running domains.
    pub libvirt_state_dir: PathBuf,
    /// Where it is noted which domains still have to be unbound.
    pub spool_dir: PathBuf,
    /// How often the heartbeat beats.
    pub heartbeat_seconds: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            daemon: Target { identity: Some("orchestrator/libvirt".into()), ..Target::default() },
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
    /// Reads the settings; without a file the defaults are in force.
    ///
    /// # Errors
    /// A text that names the file and what is wrong in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|error| format!("{}: {error}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if settings.timeout_seconds == 0 || settings.heartbeat_seconds == 0 {
            return Err("timeout_seconds and heartbeat_seconds are at least 1".into());
        }
        Ok(settings)
    }

    /// How long a call of the hook may take in all.
    pub const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_the_default() {
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
        let allow = Settings::parse("when_down = \"allow\"").expect("valid");
        assert_eq!(allow.when_down, WhenDown::Allow);
        for bad in ["colour = 1", "when_down = \"maybe\"", "timeout_seconds = 0", "x"] {
            assert!(Settings::parse(bad).is_err(), "{bad}");
        }
        let absent = Path::new("/nonexistent/hook.toml");
        assert_eq!(Settings::read(absent), Ok(Settings::default()));
    }
}
