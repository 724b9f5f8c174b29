//! The command line of tenants and operators.
//!
//! It uses the gRPC API and nothing else, so a program can do whatever it can do.
//!
//! One crate, because each noun is a page of arguments and a page of calls over one session, and none is of use alone.

#[cfg(feature = "parquet")]
mod archive;
mod args;
mod commands;
mod export;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;
use snic_client::Failure;
use snic_client::output::wants_colour;

/// Prints text that is no resource.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return snic_output::exit_code(error.print(), error.exit_code()),
    };
    let format = cli.global.output;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // If standard error is closed, there is nowhere left to report it.
            let _ = writeln!(std::io::stderr(), "error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            let mut stderr = std::io::stderr();
            let text = failure.render(format, wants_colour(&stderr));
            // If standard error is closed, there is nowhere left to report it.
            let _ = stderr.write_all(text.as_bytes());
            ExitCode::from(failure.exit_code())
        }
    }
}
