//! The command line: nouns, verbs and their options.

mod audit;
mod bitstream;
mod card;
mod rule;
mod system;
mod traffic;
mod vm;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use snic_domain::{Bandwidth, ByteSize};

pub use audit::{AuditQuery, Moment};
pub use bitstream::*;
pub use card::{CardCommand, FairnessCommand, FloorPlanSources, ModelSources, RegionCommand};
pub use rule::{NewRule, RuleCommand};
use snic_client::output::Format;
use snic_dagfile::quantity;
pub use system::{BackupFile, MaintenanceCommand};
pub use traffic::{CaptureOptions, TraceOptions, Until};
pub use vm::*;

const EXIT_CODES: &str =
    "Exit codes: 0 success, 1 other error, 2 usage or invalid input, 3 not found, \
4 conflict, 5 no capacity or over quota, 6 not authenticated or not permitted, 7 unavailable or \
timed out.

Environment: SNICCTL_CONFIG, SNICCTL_CONTEXT, SNICCTL_ENDPOINT, SNICCTL_TENANT, NO_COLOR,
TRACEPARENT (the trace to continue).";

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
    /// Print decisions of the control plane, with reasons
    Events {
        /// Keep printing new events
        #[arg(short, long)]
        watch: bool,
    },
    /// Capture a DAG's packets on their way through a software card
    Capture(CaptureOptions),
    /// Measure how long a DAG's packets take in each part of a software card
    Trace(TraceOptions),
    /// Print who changed what, and denied requests
    Audit(AuditQuery),
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
    /// Show regions, DAGs, tenants and events on a live screen
    Top {
        /// How often to reload everything; changes are shown at once
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

/// Which resources a list has, and in which order.
#[derive(Debug, Args)]
pub struct Selected {
    /// Only resources for which this holds, such as 'state = READY AND labels.app = web'
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Order, such as 'create_time desc'; up to three fields, separated by commas
    #[arg(long, value_name = "FIELDS", default_value = "", hide_default_value = true)]
    pub order_by: String,
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
        /// Of several DAGs, create those that can be created; otherwise all or none
        #[arg(long, conflicts_with = "name")]
        allow_partial: bool,
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// Update a DAG from a file, or only its bandwidth or form
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
    Update {
        /// Name; optional if the file has it
        #[arg(required_unless_present = "file")]
        name: Option<String>,
        /// DAG file, YAML or JSON; `-` reads standard input
        #[arg(short, long, value_name = "FILE", group = "what", conflicts_with_all = ["bandwidth", "form"])]
        file: Option<PathBuf>,
        /// New bandwidth, such as 10Gbps
        #[arg(long, value_parser = quantity::bandwidth, group = "what")]
        bandwidth: Option<Bandwidth>,
        /// New form
        #[arg(long, group = "what")]
        form: Option<FormArg>,
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
        selected: Selected,
    },
    /// Show a DAG: state, conditions and mapping
    Get {
        /// Name
        name: String,
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

/// Limits of a tenant. A limit that is not given keeps its value, or gets its default.
#[derive(Debug, Args)]
pub struct TenantLimits {
    /// Weight for fair sharing, 1 to 1000
    #[arg(long)]
    pub weight: Option<u32>,
    /// Maximum number of DAGs
    #[arg(long)]
    pub dags_max: Option<u32>,
    /// Maximum total bandwidth of its DAGs, such as 100Gbps
    #[arg(long, value_parser = quantity::bandwidth)]
    pub bandwidth_max: Option<Bandwidth>,
    /// Maximum number of its own bitstreams
    #[arg(long)]
    pub bitstreams_max: Option<u32>,
    /// Maximum total size of its bitstreams, such as 256MiB
    #[arg(long, value_parser = quantity::size)]
    pub bitstream_bytes_max: Option<ByteSize>,
    /// Maximum on-board memory, such as 4GiB
    #[arg(long, value_parser = quantity::size)]
    pub memory_max: Option<ByteSize>,
    /// Maximum number of its own NT types
    #[arg(long)]
    pub nt_types_max: Option<u32>,
    /// Maximum number of classification rules that lead to its DAGs
    #[arg(long)]
    pub rules_max: Option<u32>,
    /// Maximum number of bound virtual machines
    #[arg(long)]
    pub machines_max: Option<u32>,
    /// Maximum number of operations that have not ended
    #[arg(long)]
    pub operations_max: Option<u32>,
}

/// Verbs of `snicctl tenant`.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Create a tenant
    Create {
        /// Id
        name: String,
        #[command(flatten)]
        limits: TenantLimits,
    },
    /// List all tenants
    List(Selected),
    /// Print changes as they happen
    Watch,
    /// Show a tenant: its usage and quota
    Get {
        /// Id; defaults to your own
        name: Option<String>,
    },
    /// Update weight or quota
    Update {
        /// Id
        name: String,
        #[command(flatten)]
        limits: TenantLimits,
        #[command(flatten)]
        guard: Guard,
    },
    /// Delete a tenant that owns nothing
    Delete {
        /// Id
        name: String,
        /// Also delete everything it owns; DAGs of others that use its bitstreams move first
        #[arg(long)]
        force: bool,
        /// Wait until it is deleted
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
    /// State that one copy keeps in its region per DAG, such as 64KiB
    #[arg(long, value_parser = quantity::size, default_value = "0")]
    pub state: ByteSize,
    /// Part of a packet that it processes
    #[arg(long)]
    pub traffic: TrafficArg,
    /// Allow other tenants to use it
    #[arg(long)]
    pub shareable: bool,
    /// Description
    #[arg(long, default_value = "")]
    pub description: String,
}

/// Verbs of `snicctl nt`.
#[derive(Debug, Subcommand)]
pub enum NtCommand {
    /// Add a type to the catalogue
    Create(NewNt),
    /// List the types you may use
    List,
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
    let least = std::time::Duration::from_millis(100);
    if *interval < least {
        return Err(format!(
            "{interval} is too short; use {} or more",
            humantime::Duration::from(least)
        ));
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_says_what_it_is() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {argument}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn contradictory_arguments_are_refused() {
        for line in [
            "dag create",
            "dag create -f x --validate-only --wait",
            "dag update web",
            "dag update --bandwidth 1Gbps",
            "dag update web -f x --bandwidth 1Gbps",
            "dag update web --bandwidth 1GBps",
            "rule create r --dag web",
            "rule create r --dag web --protocol tpc",
            "bitstream upload b -f x --model m",
            "dag list --timeout soon",
        ] {
            let words = std::iter::once("snicctl").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_err(), "{line}");
        }
    }

    #[test]
    fn documented_commands_are_accepted() {
        for line in [
            "dag create -f - --wait --tenant acme -o json",
            "dag update -f x",
            "dag update web --form sequential --etag x",
            "dag list -A -o yaml --timeout 5s",
            "rule create r --dag web --protocol tcp --source 10.0.0.0/8",
            "bitstream upload b -f x --nts nat,aes --model m --kind user-nt",
            "operation wait x --timeout 1m",
            "context set a --endpoint unix:/run/x --identity operator/a",
            "completions zsh",
        ] {
            let words = std::iter::once("snicctl").chain(line.split(' '));
            Cli::try_parse_from(words).expect(line);
        }
    }
}
