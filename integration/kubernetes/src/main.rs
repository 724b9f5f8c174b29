//! `snic-device-plugin`: virtual functions of the SmartNIC as extended resources of Kubernetes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use snic_kubernetes::settings::{DEFAULT_PATH, Settings};

const USAGE: &str = "usage: snic-device-plugin [--config FILE]

Offers the resources of the settings to the node's kubelet.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let config = match words[..] {
        [] => PathBuf::from(DEFAULT_PATH),
        ["--config", file] => file.into(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snic-device-plugin: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings::read(config)?;
    snic_telemetry::init_log("info", "human".parse()?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(snic_kubernetes::run(settings))?)
}
