//! The daemon that owns a host's SmartNIC cards.
//!
//! One crate, because settings, certificates, policies and wiring are read by the same few commands, and none is of
//! use to another program.

mod doctor;
mod fleet;
mod host;
mod keys;
mod metrics;
mod pki;
mod policies;
mod quickstart;
mod restore;
mod secrets;
mod serving;
mod settings;
mod simulated;
mod soft;
mod store;
mod systemd;
mod wiring;
mod xrt;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};
use mimalloc::MiMalloc;
use settings::Settings;
use snic_api::text::escaped_lines;
use snic_output::{self as output, complain};
use tonic::Status;

/// Half of the cost of a request is small objects that one thread creates and another one drops, which
/// this allocator is designed for.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// After how many tasks a thread looks which sockets are ready. Fewer than tokio's 61, because a call waits for this
/// look first, behind all those tasks.
const TASKS_BETWEEN_LOOKS: u32 = 16;

/// Control plane of a host's SmartNIC cards: accepts tenants' DAGs of network tasks over gRPC, maps
/// them to regions, reconfigures regions and programs the cards.
#[derive(Debug, Parser)]
#[command(name = "snicd", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a demonstration: a simulated card, two tenants, the paper's DAGs, and traffic
    Quickstart(quickstart::QuickstartOptions),
    /// Run the daemon
    Run {
        /// Settings file
        #[arg(long, short, default_value = "/etc/snic/snicd.toml")]
        config: PathBuf,
    },
    /// Drive one card through XRT for the daemon that started it; standard input is a socket
    #[command(hide = true)]
    XrtWorker,
    /// Be a software card; the daemon starts this process, and finds it again when it comes back
    Card {
        /// Folder of the card: its settings, socket, log and process id
        #[arg(long)]
        folder: PathBuf,
        /// Folder with card profiles
        #[arg(long)]
        profiles: Option<PathBuf>,
    },
    /// Issue certificates for the daemon and its callers, with an authority of your own
    Pki(pki::PkiOptions),
    /// Restore the store from a file that `snicctl backup` wrote; stop the daemon first
    Restore {
        /// Settings file
        #[arg(long, short, default_value = "/etc/snic/snicd.toml")]
        config: PathBuf,
        /// Overwrite a store that is not empty
        #[arg(long)]
        replace: bool,
        /// The backup file
        file: PathBuf,
    },
    /// Check, print or repair the records of a store; stop the daemon first
    Store(store::StoreOptions),
    /// Print the manual page in roff
    #[command(hide = true)]
    Man,
    /// Check settings, certificates, keys, policies and cards, and say what to do for each finding
    Doctor(doctor::DoctorOptions),
    /// Print what this host is, as JSON, to register it with a fleet: its cards, their profiles and functions
    HostSpec(fleet::HostSpecOptions),
    /// Print all settings: the defaults, or those of a file with defaults filled in
    Config {
        /// Settings file
        #[arg(long, short)]
        config: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::exit_code(error.print(), error.exit_code()),
    };
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = output::with_remedy(with_causes(&error), causes(&error));
            complain!("snicd: {}", escaped_lines(&text));
            ExitCode::FAILURE
        }
    }
}

/// Causes of an error, also those that the store's errors share with others.
fn causes(error: &anyhow::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    error.chain().map(|cause| match cause.downcast_ref::<Arc<std::io::Error>>() {
        Some(shared) => shared.as_ref() as &(dyn std::error::Error + 'static),
        None => cause,
    })
}

/// The error and its causes, without those that the text before them already ends with.
fn with_causes(error: &anyhow::Error) -> String {
    // A status prints its code and its metadata; its message says what is wrong.
    let text_of = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => cause.to_string(),
    };
    let mut causes = error.chain().map(text_of);
    let mut text = causes.next().unwrap_or_default();
    for cause in causes {
        if !text.ends_with(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

fn run(command: Command) -> Result<()> {
    // One provider for the whole process, installed before anything uses TLS.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider is already installed"))?;
    match command {
        Command::Quickstart(options) => {
            init_log(&std::env::var("SNIC_LOG").unwrap_or_else(|_| "warn".into()), "human")?;
            runtime()?.block_on(quickstart::run(options))
        }
        Command::Run { config } => {
            let settings = Settings::read(&config)?;
            let runtime = runtime()?;
            // Exporters must be started inside tokio and stopped outside of it.
            let telemetry = runtime.block_on(async { init(&settings) })?;
            let telemetry = Arc::new(telemetry);
            let result = runtime.block_on(serving::run(&settings, &config, Arc::clone(&telemetry)));
            if let Some(telemetry) = Arc::into_inner(telemetry) {
                telemetry.stop();
            }
            result
        }
        Command::Pki(options) => pki::run(&options),
        Command::Restore { config, replace, file } => {
            init_log("warn", "human")?;
            restore::run(&Settings::read(&config)?, &file, replace)
        }
        Command::Store(options) => {
            init_log("warn", "human")?;
            store::run(&options)
        }
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
            output::bytes(&page).context("print the manual page")
        }
        Command::Doctor(options) => doctor::run(&options),
        Command::XrtWorker => xrt::work(),
        Command::Card { folder, profiles } => soft::serve(&folder, profiles.as_deref()),
        Command::HostSpec(options) => fleet::print_host_spec(options),
        Command::Config { config } => {
            let settings =
                config.map_or_else(|| Ok(Settings::default()), |c| Settings::read(&c))?;
            output::bytes(settings.to_toml().as_bytes()).context("print the settings")
        }
    }
}

fn init_log(filter: &str, format: &str) -> Result<()> {
    snic_telemetry::init_log(filter, format.parse()?).context("set up the log")
}

fn init(settings: &Settings) -> Result<snic_telemetry::Telemetry> {
    let log = &settings.log;
    let trace_one_in = settings.telemetry.trace_one_in;
    let otlp = settings.telemetry.otlp.as_deref();
    let otlp = otlp.map(|endpoint| snic_telemetry::Otlp { endpoint, trace_one_in });
    snic_telemetry::set_build(env!("CARGO_PKG_VERSION"), host::COMMIT);
    snic_telemetry::init(&log.filter, log.format.parse()?, ("snicd", otlp))
        .context("set up log and telemetry")
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .event_interval(TASKS_BETWEEN_LOOKS)
        .enable_all()
        .build()
        .context("start tokio")
}
