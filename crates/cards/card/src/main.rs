//! `snic-card`: the software card as a program of its own, which runs tenants' WebAssembly modules and has vhost-user ports.
//!
//! It is the process that `snicd card` is, with a runtime for modules and ports through a guest's memory. `snicd` starts it where the settings say so
//! (`program` in `[cards.soft]`), and stays free of the compiler that it brings along. `snic-card check` says what a
//! card would say of a module, without a card.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::{CommandFactory as _, Parser, Subcommand};
use snic_bitstream::{EmbeddedModule, check_module, modules, parse};
use snic_card_soft::{CardExtras, OpenOffload, OpenPort};
use snic_nts::ModuleRuntime;
use snic_nts_wasm::WasmRuntime;
use snic_output::{complain, out};

/// A software card that runs tenants' network tasks.
#[derive(Debug, Parser)]
#[command(name = "snic-card", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be a software card; the daemon starts this process, and finds it again when it comes back
    Serve {
        /// Folder of the card: its settings, socket, log and process id
        #[arg(long)]
        folder: PathBuf,
        /// Folder with card profiles
        #[arg(long)]
        profiles: Option<PathBuf>,
    },
    /// Say whether a WebAssembly module, or each module of a bitstream, can be run
    Check {
        /// File with the module or the bitstream
        file: PathBuf,
    },
    /// Print the manual page in roff
    #[command(hide = true)]
    Man,
}

/// Makes the fast path of the card, where this program was built with it.
#[cfg(feature = "fast-path")]
const OFFLOAD: Option<OpenOffload> = Some(snic_fast_path::open);
#[cfg(not(feature = "fast-path"))]
const OFFLOAD: Option<OpenOffload> = None;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return snic_output::exit_code(error.print(), error.exit_code()),
    };
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("snic-card: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let runtime = WasmRuntime::new()?;
    match command {
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
            snic_output::bytes(&page).context("print the manual page")
        }
        Command::Serve { folder, profiles } => {
            let modules: Arc<dyn ModuleRuntime> = Arc::new(runtime);
            let vhost_user: OpenPort = snic_vhost_user::open;
            let extras = CardExtras {
                modules: Some(modules),
                vhost_user: Some(vhost_user),
                offload: OFFLOAD,
                seed: None,
            };
            snic_card_soft::serve_folder(&folder, profiles.as_deref(), extras)
                .context("serve the card")
        }
        Command::Check { file } => check(&runtime, &file),
    }
}

/// Runs the checks of an upload, and what the card does with a module when it is loaded.
fn check(runtime: &WasmRuntime, file: &Path) -> Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let name = file.display().to_string();
    let all = if bytes.starts_with(b"\0asm") {
        vec![EmbeddedModule { slot: 0, nt: &name, bytes: &bytes }]
    } else {
        let image =
            parse(&bytes).with_context(|| format!("{name} is neither a module nor a bitstream"))?;
        modules(&image)?
    };
    if all.is_empty() {
        bail!("{name} has no WebAssembly module");
    }
    for module in all {
        check_module(module.bytes).with_context(|| module.nt.to_owned())?;
        runtime.compile(module.bytes).with_context(|| module.nt.to_owned())?;
        out!("{}: good, {} bytes", module.nt, module.bytes.len())?;
    }
    Ok(())
}
