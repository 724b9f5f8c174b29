//! `snic-dra`: virtual functions of the SmartNIC for claims of Kubernetes, and the runtime's hook that gives a pod the
//! interface of its function.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Deserialize;
use snic_api::text::escaped_lines;
use snic_cdi::signals::until_stopped;
use snic_kubernetes::dra::interface::PodInterface;
use snic_kubernetes::dra::settings::{DEFAULT_PATH, DraSettings};
use snic_output::complain;

const USAGE: &str = "usage: snic-dra [--config FILE]
       snic-dra attach UUID INTERFACE NAME MAC [ADDRESS/LENGTH...]

Serves claims of the node's pods. `attach` is what the container runtime calls, with the state of the
container on standard input: it moves an interface of the host into the pod.";
/// Largest state of a container that is read, in bytes.
const STATE_BYTES_MAX: u64 = 1 << 20;

/// The part of a container's state that the hook reads.
#[derive(Deserialize)]
struct ContainerState {
    pid: u32,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = match &words[..] {
        [] => run(Path::new(DEFAULT_PATH)),
        ["--config", file] => run(&PathBuf::from(file)),
        ["attach", rest @ ..] => match PodInterface::from_arguments(rest) {
            Some(interface) => attach(&interface),
            None => return usage(),
        },
        _ => return usage(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("snic-dra: {}", escaped_lines(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    complain!("{USAGE}");
    ExitCode::from(2)
}

fn attach(interface: &PodInterface) -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().take(STATE_BYTES_MAX).read_to_string(&mut text)?;
    let state: ContainerState = serde_json::from_str(&text)?;
    Ok(interface.attach(state.pid)?)
}

fn run(config: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let settings = DraSettings::read(config)?;
    snic_telemetry::init_log("info", "human".parse()?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = until_stopped("snic-dra", snic_kubernetes::dra::run(settings));
    Ok(runtime.block_on(ended)?.unwrap_or(Ok(()))?)
}
