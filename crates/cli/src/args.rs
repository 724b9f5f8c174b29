//! The command line: nouns, verbs and what each takes.

mod audit;
mod bitstream;
mod card;
mod rule;
mod system;
mod vm;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use snic_domain::{Bandwidth, ByteSize};

pub use audit::{AuditQuery, Moment};
pub use bitstream::*;
pub use card::{CardCommand, FairnessCommand, RegionCommand};
pub use rule::{NewRule, RuleCommand};
use snic_client::output::Format;
use snic_dagfile::quantity;
pub use system::{BackupFile, MaintenanceCommand};
pub use vm::*;

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 other, 2 wrong usage or invalid input, 3 not found, \
4 conflict, 5 no capacity or over quota, 6 not authenticated or not allowed, 7 unavailable or not \
done in time.

Environment: SNICCTL_CONFIG, SNICCTL_CONTEXT, SNICCTL_ENDPOINT, SNICCTL_TENANT, NO_COLOR,
TRACEPARENT (the trace to go on with).";

/// Tells a SmartNIC's control plane what to do with packets, and looks at what it does.
#[derive(Debug, Parser)]
#[command(name = "snicctl", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// The noun.
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// How to print what comes back
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// The context to use instead of the current one
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The server: https://host:port, unix:/path, or http://host:port on loopback
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub endpoint: Option<String>,
    /// How long a request may take [default: 30s]; with waiting, how long to wait [default: 10m]
    #[arg(long, global = true, value_name = "TIME")]
    pub timeout: Option<humantime::Duration>,
    /// The tenant of names that are given short
    #[arg(long, global = true, value_name = "TENANT")]
    pub tenant: Option<String>,
}

/// The nouns.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// DAGs of network tasks: what is done to packets
    #[command(subcommand)]
    Dag(DagCommand),
    /// Tenants: who may use the card, and how much of it
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Network task types: the catalogue
    #[command(subcommand)]
    Nt(NtCommand),
    /// Bitstreams: what regions can be loaded with
    #[command(subcommand)]
    Bitstream(BitstreamCommand),
    /// Cards
    #[command(subcommand)]
    Card(CardCommand),
    /// Regions of cards
    #[command(subcommand)]
    Region(RegionCommand),
    /// Classification rules: which packets belong to which DAG
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Virtual machines: their functions of a card
    #[command(subcommand)]
    Vm(VmCommand),
    /// Operations: changes that take a while
    #[command(subcommand)]
    Operation(OperationCommand),
    /// Fairness: what tenants ask for, what they have, and what keeps them from more
    #[command(subcommand)]
    Fairness(FairnessCommand),
    /// Prints what the control plane decided by itself, and why
    Events {
        /// Go on with what happens from now on
        #[arg(short, long)]
        watch: bool,
    },
    /// Prints who changed what, and who was refused to
    Audit(AuditQuery),
    /// Maintenance: whether new DAGs and machines are taken in
    #[command(subcommand)]
    Maintenance(MaintenanceCommand),
    /// Writes all that the server has stored to a file, while it goes on; `snicd restore` takes it
    Backup(BackupFile),
    /// Gathers what whoever looks into a problem needs: a tar.gz without keys and secrets
    SupportBundle(BackupFile),
    /// Prints a manual page in roff, of the program or of one of its commands
    #[command(hide = true)]
    Man {
        /// The commands: `dag create`; without them, the program
        command: Vec<String>,
    },
    /// Contexts: which server to speak to, and as whom
    #[command(subcommand)]
    Context(ContextCommand),
    /// Shows regions, DAGs and what happens, on a screen that is kept up to date
    Top {
        /// How often all is read anew; changes come at once
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
        interval: humantime::Duration,
        /// Print one screen and end
        #[arg(long)]
        once: bool,
    },
    /// Prints the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints the version
    Version,
}

/// Where a DAG comes from.
#[derive(Debug, Args)]
pub struct DagSource {
    /// The DAG file, YAML or JSON; `-` reads the standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
}

/// How a change is made.
#[derive(Debug, Clone, Copy, Args)]
pub struct Change {
    /// Only say what would be done
    #[arg(long, conflicts_with = "wait")]
    pub validate_only: bool,
    /// Wait until it is done
    #[arg(short, long)]
    pub wait: bool,
}

/// A guard against changes that one has not seen.
#[derive(Debug, Args)]
pub struct Guard {
    /// Only if this is still the etag
    #[arg(long)]
    pub etag: Option<String>,
}

/// A form of a DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormArg {
    /// Whichever has the lower latency
    Auto,
    /// One task after the other
    Sequential,
    /// Branches at once
    Parallel,
}

/// Verbs of DAGs.
#[derive(Debug, Subcommand)]
pub enum DagCommand {
    /// Creates the DAG of a file
    Create {
        /// Its name, where it is not that of the file
        name: Option<String>,
        #[command(flatten)]
        source: DagSource,
        #[command(flatten)]
        change: Change,
    },
    /// Changes a DAG: to what a file says, or its bandwidth or form alone
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
    Update {
        /// Its name; with a file it may stand there
        #[arg(required_unless_present = "file")]
        name: Option<String>,
        /// The DAG file, YAML or JSON; `-` reads the standard input
        #[arg(short, long, value_name = "FILE", group = "what", conflicts_with_all = ["bandwidth", "form"])]
        file: Option<PathBuf>,
        /// The new bandwidth, such as 10Gbps
        #[arg(long, value_parser = quantity::bandwidth, group = "what")]
        bandwidth: Option<Bandwidth>,
        /// The new form
        #[arg(long, group = "what")]
        form: Option<FormArg>,
        #[command(flatten)]
        guard: Guard,
        #[command(flatten)]
        change: Change,
    },
    /// Lists the DAGs of the tenant; without a tenant, all that you may see
    List {
        /// Those of all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
    },
    /// Shows a DAG: its state, its conditions and where it is
    Get {
        /// Its name
        name: String,
    },
    /// Says why a DAG is mapped as it is, and what was refused
    Explain {
        /// Its name
        name: String,
    },
    /// Prints changes as they happen
    Watch {
        /// Only those of this DAG
        name: Option<String>,
        /// Those of all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
    },
    /// Deletes a DAG; its bandwidth is free for others at once
    Delete {
        /// Its name
        name: String,
        /// Wait until it is done
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        guard: Guard,
    },
}

/// Bounds of a tenant; one that is not given keeps its value, or gets its default.
#[derive(Debug, Args)]
pub struct TenantLimits {
    /// Share in what is divided fairly, 1 to 1000
    #[arg(long)]
    pub weight: Option<u32>,
    /// Most DAGs
    #[arg(long)]
    pub dags_max: Option<u32>,
    /// Most bandwidth of all its DAGs, such as 100Gbps
    #[arg(long, value_parser = quantity::bandwidth)]
    pub bandwidth_max: Option<Bandwidth>,
    /// Most bitstreams of its own
    #[arg(long)]
    pub bitstreams_max: Option<u32>,
    /// Most bytes of all its bitstreams, such as 256MiB
    #[arg(long, value_parser = quantity::size)]
    pub bitstream_bytes_max: Option<ByteSize>,
    /// Most on-board memory, such as 4GiB
    #[arg(long, value_parser = quantity::size)]
    pub memory_max: Option<ByteSize>,
}

/// Verbs of tenants.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Creates a tenant
    Create {
        /// Its id
        name: String,
        #[command(flatten)]
        limits: TenantLimits,
    },
    /// Lists all tenants
    List,
    /// Shows a tenant: what it holds of what it may
    Get {
        /// Its id; without it, your own
        name: Option<String>,
    },
    /// Changes weight or quota
    Update {
        /// Its id
        name: String,
        #[command(flatten)]
        limits: TenantLimits,
        #[command(flatten)]
        guard: Guard,
    },
    /// Deletes a tenant that owns nothing any more
    Delete {
        /// Its id
        name: String,
        /// With all that it owns
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        guard: Guard,
    },
}

/// What of a packet goes through a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrafficArg {
    /// The headers only
    Header,
    /// The whole packet
    Payload,
}

/// A network task type.
#[derive(Debug, Args)]
pub struct NewNt {
    /// Its id: NAME for the provider's, TENANT.NAME for a tenant's
    pub name: String,
    /// What one copy passes at most, such as 100Gbps
    #[arg(long, value_parser = quantity::bandwidth)]
    pub bandwidth_max: Bandwidth,
    /// Cycles from a packet's entry to its exit
    #[arg(long)]
    pub latency_cycles: u64,
    /// Look-up tables of one copy
    #[arg(long)]
    pub lut: u32,
    /// Block memories of 36 kbit of one copy
    #[arg(long, default_value_t = 0)]
    pub ramb36: u32,
    /// DSP slices of one copy
    #[arg(long, default_value_t = 0)]
    pub dsp: u32,
    /// On-board memory of one copy, such as 64MiB
    #[arg(long, value_parser = quantity::size, default_value = "0")]
    pub memory: ByteSize,
    /// State that one copy keeps in its region for one DAG, such as 64KiB
    #[arg(long, value_parser = quantity::size, default_value = "0")]
    pub state: ByteSize,
    /// What of a packet goes through it
    #[arg(long)]
    pub traffic: TrafficArg,
    /// Other tenants may use it too
    #[arg(long)]
    pub shareable: bool,
    /// A sentence for people
    #[arg(long, default_value = "")]
    pub description: String,
}

/// Verbs of network task types.
#[derive(Debug, Subcommand)]
pub enum NtCommand {
    /// Adds a type to the catalogue
    Create(NewNt),
    /// Lists the types you may use
    List,
    /// Shows a type
    Get {
        /// Its id
        name: String,
    },
    /// Removes a type that nothing names any more
    Delete {
        /// Its id
        name: String,
        #[command(flatten)]
        guard: Guard,
    },
}

/// What a region is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// The provider's network tasks
    KnownNt,
    /// Network tasks that tenants bring
    UserNt,
}

/// Verbs of operations.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Lists operations, oldest first
    List {
        /// Only those that have not ended
        #[arg(long)]
        running: bool,
        /// Only those on the resource of this whole name
        #[arg(long)]
        target: Option<String>,
    },
    /// Shows an operation
    Get {
        /// Its id
        name: String,
    },
    /// Waits until an operation has ended, and ends as it did
    Wait {
        /// Its id
        name: String,
    },
    /// Cancels an operation that has not begun to change the card
    Cancel {
        /// Its id
        name: String,
    },
    /// Forgets an operation that has ended
    Delete {
        /// Its id
        name: String,
    },
}

/// What a context consists of beside endpoint and tenant.
#[derive(Debug, Args)]
pub struct ContextParts {
    /// PEM file with the certificates of who signed the server's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// PEM file with the client's certificate
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the endpoint's host
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// For plain text: operator/NAME or tenant/ID
    #[arg(long)]
    pub identity: Option<String>,
}

/// Verbs of contexts.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Lists the contexts
    List,
    /// Makes a context the current one
    Use {
        /// Its name
        name: String,
    },
    /// Adds or changes a context, with --endpoint, --tenant and these
    Set {
        /// Its name
        name: String,
        #[command(flatten)]
        parts: ContextParts,
    },
    /// Shows a context
    Show {
        /// Its name; without it, the current one
        name: Option<String>,
    },
    /// Forgets a context
    Delete {
        /// Its name
        name: String,
    },
}

/// An interval that a server can bear.
fn interval(text: &str) -> Result<humantime::Duration, String> {
    let interval: humantime::Duration = text.parse().map_err(|error| format!("{error}"))?;
    let least = std::time::Duration::from_millis(100);
    if *interval < least {
        return Err(format!(
            "{interval} is too short: at least {}",
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
    fn what_contradicts_itself_is_refused() {
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
    fn what_is_documented_is_accepted() {
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
