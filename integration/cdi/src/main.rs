//! `snic-cdi`: maintains the Container Device Interface files of a host's bindings.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use snic_api::text::escaped_lines;
use snic_cdi::settings::{DEFAULT_PATH, Settings};
use snic_cdi::signals::until_stopped;
use snic_cdi::sync::{SyncError, follow};
use snic_cdi::{Host, SpecFolder};
use snic_output::complain;

/// Pause before the next attempt to reach the daemon.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

const USAGE: &str = "usage: snic-cdi [--config FILE] [--once]

Writes one file per binding to the folder that container runtimes read, and keeps the files up to
date; with --once, synchronises them once and exits.";

fn arguments(words: impl Iterator<Item = String>) -> Option<(PathBuf, bool)> {
    let (mut config, mut once) = (PathBuf::from(DEFAULT_PATH), false);
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--config" => config = words.next()?.into(),
            "--once" => once = true,
            _ => return None,
        }
    }
    Some((config, once))
}

fn main() -> ExitCode {
    let Some((config, once)) = arguments(std::env::args().skip(1)) else {
        complain!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&config, once) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("snic-cdi: {}", escaped_lines(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(config: &std::path::Path, once: bool) -> Result<(), String> {
    let settings = Settings::read(config)?;
    let folder = SpecFolder::open(&settings.folder, Host::new(&settings.sysfs));
    let folder = folder.map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let following = async {
        loop {
            match follow(&settings.daemon, &folder, once).await {
                Ok(()) => return Ok(()),
                Err(error) if once => return Err(error.to_string()),
                // Invalid settings stay invalid: there is no point in retrying.
                Err(SyncError::Connect(
                    error @ (snic_api::connect::ConnectError::Settings { .. }
                    | snic_api::connect::ConnectError::Read { .. }),
                )) => return Err(error.to_string()),
                Err(error) => {
                    let error = error.to_string();
                    let error = escaped_lines(&error);
                    complain!("snic-cdi: {error}; retrying in {RETRY_PAUSE:?}");
                }
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    };
    let ended = runtime.block_on(until_stopped("snic-cdi", following));
    ended.map_err(|error| error.to_string())?.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed() {
        let read = |text: &str| arguments(text.split_whitespace().map(str::to_owned));
        assert_eq!(read(""), Some((DEFAULT_PATH.into(), false)));
        assert_eq!(read("--once --config x"), Some(("x".into(), true)));
        assert_eq!(read("--config"), None);
        assert_eq!(read("help"), None);
    }
}
