//! `snic-device-plugin`: virtual functions of the SmartNIC as extended resources of Kubernetes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use snic_api::text::escaped_lines;
use snic_cdi::signals::until_stopped;
use snic_kubernetes::settings::{DEFAULT_PATH, Settings};
use snic_output::complain;

const USAGE: &str = "usage: snic-device-plugin [--config FILE]

Offers the resources of the settings to the node's kubelet.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let config = match words[..] {
        [] => PathBuf::from(DEFAULT_PATH),
        ["--config", file] => file.into(),
        _ => {
            complain!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("snic-device-plugin: {}", escaped_lines(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn run(config: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings::read(config)?;
    snic_telemetry::init_log("info", "human".parse()?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = until_stopped("snic-device-plugin", snic_kubernetes::run(settings));
    Ok(runtime.block_on(ended)?.unwrap_or(Ok(()))?)
}
