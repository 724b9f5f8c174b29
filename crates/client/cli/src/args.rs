//! The command line: nouns, verbs and their options.

mod apply;
mod audit;
mod auth;
mod bitstream;
mod card;
mod events;
mod fleet;
mod list;
mod notes;
mod rule;
mod system;
mod tenant;
mod traffic;
mod usage;
mod vm;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use snic_domain::{Bandwidth, ByteSize, RegionKind};

pub use apply::ApplyOptions;
pub use audit::{AuditQuery, Moment};
pub use auth::AuthCommand;
pub use bitstream::*;
pub use card::{CardCommand, FairnessCommand, FloorPlanSources, ModelSources, RegionCommand};
pub use events::{EventQuery, EventSeverity};
pub use fleet::{
    AllowedPlaces, FleetCommands, HostCommand, HostRanking, HostSearch, PolicyCommand,
    ProjectCommand, ProjectLimits, ReservationCommand,
};
pub use list::{Selected, SelectedByLabel};
pub use notes::{NewNotes, OtherNotes};
pub use rule::{OtherRule, RuleCommand, RuleMatch};
use snic_client::output::Format;
use snic_dagfile::quantity;
pub use system::{BackupFile, MaintenanceCommand};
pub use tenant::{TenantCommand, TenantLimits};
pub use traffic::{
    CaptureOptions, HeaderOptions, PacketChoice, RunOptions, StopCondition, TraceOptions,
    TrafficCommand,
};
pub use usage::*;
pub use vm::*;

const EXIT_CODES: &str =
    "Exit codes: 0 success, 1 other error, 2 usage or invalid input, 3 not found, \
4 conflict, 5 no capacity or over quota, 6 not authenticated or not permitted, 7 unavailable or \
timed out.

Environment: SNICCTL_CONFIG, SNICCTL_CONTEXT, SNICCTL_ENDPOINT, SNICCTL_TENANT, NO_COLOR,
COLUMNS, TRACEPARENT (the trace to continue), OTEL_EXPORTER_OTLP_ENDPOINT (where spans go).";

/// Manage and inspect the control plane of SmartNICs: DAGs of network tasks, tenants, cards.
#[derive(Debug, Parser)]
#[command(name = "snicctl", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// Global options.
    #[command(flatten)]
    pub global: Global,
    /// The noun.
    #[command(subcommand)]
    pub command: Command,
}

/// Global options.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Context to use instead of the current one
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Server address: https://host:port, unix:/path, or http://host:port on loopback
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub endpoint: Option<String>,
    /// Ask this host of a fleet what only it knows: cards, regions, events and all else that is read
    #[arg(long, global = true, value_name = "NAME")]
    pub host: Option<String>,
    /// As an operator, call for a tenant: its quotas and policies hold, and yours
    #[arg(long, global = true, value_name = "tenant/ID")]
    pub acting_for: Option<String>,
    /// Timeout of a request [default: 30s]; with --wait, of the wait [default: 10m]
    #[arg(long, global = true, value_name = "TIME")]
    pub timeout: Option<humantime::Duration>,
    /// Tenant for names without a tenant
    #[arg(long, global = true, value_name = "TENANT")]
    pub tenant: Option<String>,
}

/// The nouns of the command line.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create and change resources until they are as files say
    Apply(ApplyOptions),
    /// Manage DAGs of network tasks
    #[command(subcommand)]
    Dag(DagCommand),
    /// Manage tenants, their weights and quotas
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Manage the catalogue of network task types
    #[command(subcommand)]
    Nt(NtCommand),
    /// Manage bitstreams, which regions are loaded with
    #[command(subcommand)]
    Bitstream(BitstreamCommand),
    /// Manage cards
    #[command(subcommand)]
    Card(CardCommand),
    /// Manage the hosts of a fleet
    #[command(subcommand)]
    Fleet(FleetCommands),
    /// Manage regions of cards
    #[command(subcommand)]
    Region(RegionCommand),
    /// Manage classification rules, which map packets to DAGs
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Bind virtual machines to DAGs through virtual functions
    #[command(subcommand)]
    Vm(VmCommand),
    /// Manage operations, which are long-running changes
    #[command(subcommand)]
    Operation(OperationCommand),
    /// Show what tenants request and get, and what limits them
    #[command(subcommand)]
    Fairness(FairnessCommand),
    /// Show what DAGs have used of cards, by time
    Usage(UsageOptions),
    /// Print decisions of the control plane, with reasons
    Events(EventQuery),
    /// Capture a DAG's packets on their way through a software card
    Capture(CaptureOptions),
    /// Measure how long a DAG's packets take in each part of a software card
    Trace(TraceOptions),
    /// Send packets that a card makes through a DAG
    #[command(subcommand)]
    Traffic(TrafficCommand),
    /// Print who changed what, and denied requests
    Audit(AuditQuery),
    /// Print who you are, and what you may do
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Show or change maintenance mode, which rejects new DAGs and VM bindings
    #[command(subcommand)]
    Maintenance(MaintenanceCommand),
    /// Write a backup of the running server's store to a file, for `snicd restore`
    Backup(BackupFile),
    /// Collect diagnostics in a tar.gz file, without keys and secrets
    SupportBundle(BackupFile),
    /// Print a manual page in roff
    #[command(hide = true)]
    Man {
        /// Command, such as `dag create`; without it, the program
        command: Vec<String>,
    },
    /// Manage contexts: servers and identities
    #[command(subcommand)]
    Context(ContextCommand),
    /// Show regions, DAGs, tenants and events on a live screen; of a fleet its hosts first
    Top {
        /// Interval between full reloads; changes are shown at once
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
        interval: humantime::Duration,
        /// Print one screen and exit
        #[arg(long)]
        once: bool,
    },
    /// Print shell completions
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print the versions of this program and of the server
    Version,
}

/// The files with DAGs.
#[derive(Debug, Args)]
pub struct DagSource {
    /// DAG file, YAML or JSON; `-` reads standard input; may be repeated
    #[arg(short, long, value_name = "FILE", required = true)]
    pub file: Vec<PathBuf>,
}

/// Options of a change.
#[derive(Debug, Clone, Copy, Args)]
pub struct ChangeOptions {
    /// Check the request and show the result, without a change
    #[arg(long, conflicts_with = "wait")]
    pub validate_only: bool,
    /// Wait until the change is complete
    #[arg(short, long)]
    pub wait: bool,
}

/// A guard against overwriting a change that the caller has not seen.
#[derive(Debug, Args)]
pub struct Guard {
    /// Apply only if the resource still has this etag
    #[arg(long)]
    pub etag: Option<String>,
}

/// When to delete.
#[derive(Debug, Args)]
pub struct DeleteGuard {
    #[command(flatten)]
    pub guard: Guard,
    /// Succeed if there is nothing to delete
    #[arg(long)]
    pub allow_missing: bool,
}

/// A form of a DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormArg {
    /// The form with the lower latency
    Auto,
    /// One branch after the other
    Sequential,
    /// Branches at the same time
    Parallel,
}

/// Verbs of `snicctl dag`.
#[derive(Debug, Subcommand)]
pub enum DagCommand {
    /// Create a DAG from a file, or several from several files in one step
    Create {
        /// Name; overrides the name in the file
        name: Option<String>,
        #[command(flatten)]
        source: DagSource,
        /// Create those of several DAGs that can be created; otherwise all or none
        #[arg(long, conflicts_with = "name")]
        allow_partial: bool,
        #[command(flatten)]
        notes: NewNotes,
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// Update a DAG from a file, or only its bandwidth, form, labels or description
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true)
        .args(["file", "bandwidth", "form", "labels", "no_labels", "description"]))]
    Update {
        /// Name; optional if the file has it
        #[arg(required_unless_present = "file")]
        name: Option<String>,
        /// DAG file, YAML or JSON; `-` reads standard input
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// New bandwidth, such as 10Gbps
        #[arg(long, value_parser = quantity::bandwidth, conflicts_with = "file")]
        bandwidth: Option<Bandwidth>,
        /// New form
        #[arg(long, conflicts_with = "file")]
        form: Option<FormArg>,
        #[command(flatten)]
        notes: OtherNotes,
        #[command(flatten)]
        guard: Guard,
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// List the DAGs of the tenant; without a tenant, all that you may see
    List {
        /// Include all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
        #[command(flatten)]
        selected: SelectedByLabel,
    },
    /// Show a DAG: state, conditions and mapping
    Get {
        /// Name
        name: String,
    },
    /// Say why a DAG is as fast as it is: rates, drops, latency, what limits it, and what would help
    Diagnose {
        /// Name
        name: String,
    },
    /// Show how far the promise of a DAG was kept: availability beside the objective, time in
    /// which it was broken, by cause, and what is left of the budget
    Slo {
        /// Name; a deleted DAG is found, too
        name: String,
        #[command(flatten)]
        options: SloOptions,
    },
    /// Explain the mapping of a DAG and the rejected alternatives
    Explain {
        /// Name
        name: String,
    },
    /// Print changes as they happen
    Watch {
        /// Only changes of this DAG
        name: Option<String>,
        /// Include all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
    },
    /// Delete a DAG; its bandwidth is free for others at once
    Delete {
        /// Name
        name: String,
        /// Wait until the change is complete
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: DeleteGuard,
    },
}

/// The part of a packet that a task processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrafficArg {
    /// The headers only
    Header,
    /// The whole packet
    Payload,
}

/// A network task type to create.
#[derive(Debug, Args)]
pub struct NewNt {
    /// Id: NAME for the provider's, TENANT.NAME for a tenant's
    pub name: String,
    /// Bandwidth of one copy, such as 100Gbps
    #[arg(long, value_parser = quantity::bandwidth)]
    pub bandwidth_max: Bandwidth,
    /// Packets that one copy takes in a second; 0: only the bandwidth limits it
    #[arg(long, default_value_t = 0)]
    pub packets_per_second_max: u64,
    /// Latency in cycles, from a packet's entry to its exit
    #[arg(long)]
    pub latency_cycles: u64,
    /// Look-up tables per copy
    #[arg(long)]
    pub lut: u32,
    /// Block memories of 36 kbit per copy
    #[arg(long, default_value_t = 0)]
    pub ramb36: u32,
    /// DSP slices per copy
    #[arg(long, default_value_t = 0)]
    pub dsp: u32,
    /// On-board memory per copy, such as 64MiB
    #[arg(long, value_parser = quantity::size, default_value = "0")]
    pub memory: ByteSize,
    /// Bytes of that memory that a copy reads and writes for each packet
    #[arg(long, default_value_t = 0)]
    pub memory_bytes_per_packet: u32,
    /// The same for each byte of a packet: 1 where it is stored, 2 where it is stored and read
    #[arg(long, default_value_t = 0)]
    pub memory_bytes_per_packet_byte: u32,
    /// State that one copy keeps in its region per DAG, such as 64KiB
    #[arg(long, value_parser = quantity::size, default_value = "0")]
    pub state: ByteSize,
    /// Part of a packet that it processes
    #[arg(long)]
    pub traffic: TrafficArg,
    /// Allow other tenants to use it
    #[arg(long)]
    pub shareable: bool,
    #[command(flatten)]
    pub notes: NewNotes,
}

/// Verbs of `snicctl nt`.
#[derive(Debug, Subcommand)]
pub enum NtCommand {
    /// Add a type to the catalogue
    Create(NewNt),
    /// List the types you may use
    List(SelectedByLabel),
    /// Print changes as they happen
    Watch,
    /// Show a type
    Get {
        /// Id
        name: String,
    },
    /// Delete a type that nothing uses
    Delete {
        /// Id
        name: String,
        #[command(flatten)]
        guard: DeleteGuard,
    },
}

/// The kind of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// For the provider's network tasks
    KnownNt,
    /// For network tasks that tenants upload
    UserNt,
}

impl From<KindArg> for RegionKind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::KnownNt => Self::KnownNt,
            KindArg::UserNt => Self::UserNt,
        }
    }
}

/// Verbs of `snicctl operation`.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// List operations, oldest first
    List {
        /// Only operations that have not ended
        #[arg(long)]
        running: bool,
        /// Only operations on the resource with this full name
        #[arg(long)]
        target: Option<String>,
        #[command(flatten)]
        selected: Selected,
    },
    /// Print changes as they happen
    Watch,
    /// Show an operation
    Get {
        /// Id
        name: String,
    },
    /// Wait until an operation has ended; fails if it failed
    Wait {
        /// Id
        name: String,
    },
    /// Cancel an operation that has not started to change the card
    Cancel {
        /// Id
        name: String,
    },
    /// Delete the record of an operation that has ended
    Delete {
        /// Id
        name: String,
        /// Succeed if there is nothing to delete
        #[arg(long)]
        allow_missing: bool,
    },
}

/// The parts of a context other than endpoint and tenant.
#[derive(Debug, Args)]
pub struct ContextParts {
    /// PEM file with the CA certificates that signed the server's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// PEM file with the client certificate
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of the client certificate
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Name in the server's certificate, if it differs from the endpoint's host
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Identity for plain-text connections: operator/NAME or tenant/ID
    #[arg(long)]
    pub identity: Option<String>,
}

/// Verbs of `snicctl context`.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List contexts
    List,
    /// Make a context the current one
    Use {
        /// Name
        name: String,
    },
    /// Create or update a context, with --endpoint, --tenant and these options
    Set {
        /// Name
        name: String,
        #[command(flatten)]
        parts: ContextParts,
    },
    /// Show a context
    Show {
        /// Name; defaults to the current context
        name: Option<String>,
    },
    /// Delete a context
    Delete {
        /// Name
        name: String,
    },
}

/// An interval that does not overload the server.
fn interval(text: &str) -> Result<humantime::Duration, String> {
    let interval: humantime::Duration = text.parse().map_err(|error| format!("{error}"))?;
    let least = Duration::from_millis(100);
    if *interval < least {
        return Err(format!(
            "{interval} is too short; use {} or more",
            humantime::Duration::from(least)
        ));
    }
    Ok(interval)
}

#[cfg(test)]
mod tests;
