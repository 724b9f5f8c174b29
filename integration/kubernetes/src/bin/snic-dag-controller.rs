//! `snic-dag-controller`: objects of the kind `Dag` become DAGs of the SmartNIC.

use std::path::Path;
use std::process::ExitCode;

use snic_api::text::escaped_lines;
use snic_cdi::signals::until_stopped;
use snic_kubernetes::dags::crd;
use snic_kubernetes::dags::settings::{DEFAULT_PATH, DagControllerSettings};
use snic_output::complain;

const USAGE: &str = "usage: snic-dag-controller [--config FILE]
       snic-dag-controller --print-crd

Serves objects of the kind Dag of a cluster. `--print-crd` prints the definition of the kind.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = match &words[..] {
        [] => run(Path::new(DEFAULT_PATH)),
        ["--config", file] => run(Path::new(file)),
        ["--print-crd"] => print_crd(),
        _ => {
            complain!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("snic-dag-controller: {}", escaped_lines(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn print_crd() -> Result<(), Box<dyn std::error::Error>> {
    Ok(snic_output::bytes(crd::manifest()?.as_bytes())?)
}

fn run(config: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let settings = DagControllerSettings::read(config)?;
    snic_telemetry::init_log("info", "human".parse()?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = until_stopped("snic-dag-controller", snic_kubernetes::dags::run(settings));
    Ok(runtime.block_on(ended)?.unwrap_or(Ok(()))?)
}
