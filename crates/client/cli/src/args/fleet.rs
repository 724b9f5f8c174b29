//! Arguments of `snicctl fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use snic_dagfile::quantity;
use snic_domain::{Bandwidth, MonthBudget};

use super::tenant::month_budget;
use super::{DeleteGuard, Guard};

/// Nouns and verbs of `snicctl fleet`.
#[derive(Debug, Subcommand)]
pub enum FleetCommands {
    /// Show who leads, and how much there is of everything
    Status,
    /// Manage the hosts
    #[command(subcommand)]
    Host(HostCommand),
    /// Rank hosts for a machine, and count why the others have no room
    Find(HostSearch),
    /// Keep functions and bandwidth of a host for a machine that is about to start
    #[command(subcommand)]
    Reservation(ReservationCommand),
    /// Move the DAGs of a zone or rack away, and keep new ones off
    Drain {
        /// Zone (z1) or rack (z1/r1)
        area: String,
        /// Number of its DAGs that move at a time, 1 to 1000
        #[arg(long, default_value_t = 10)]
        moves_max: u32,
    },
    /// Show how far the drain of a zone or rack is
    DrainStatus {
        /// Zone (z1) or rack (z1/r1)
        area: String,
    },
    /// End the drain of a zone or rack
    Undrain {
        /// Zone (z1) or rack (z1/r1)
        area: String,
    },
    /// Move DAGs from full cards to empty ones, as after a rack was added
    Rebalance {
        /// Only between cards of this zone
        #[arg(long)]
        zone: Option<String>,
        /// Number of DAGs that move at a time, 1 to 1000
        #[arg(long, default_value_t = 10)]
        moves_max: u32,
        /// Distance that a card's load may have from the mean, 1 to 50 percent of a card
        #[arg(long, default_value_t = 10, value_name = "PERCENT")]
        tolerance: u32,
        /// Only show what would move first
        #[arg(long, conflicts_with = "wait")]
        dry_run: bool,
        /// Wait until it has ended
        #[arg(long)]
        wait: bool,
    },
    /// Show how far the rebalance is, or how the last one ended
    RebalanceStatus,
    /// Stop the rebalance; DAGs that have moved stay where they are
    RebalanceStop,
    /// Manage projects: tenants that share limits
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Manage the policy files of all hosts
    #[command(subcommand)]
    Policy(PolicyCommand),
}

/// Places that are allowed for a machine.
#[derive(Debug, Args)]
pub struct AllowedPlaces {
    /// Zone; repeat for several [default: all]
    #[arg(long = "zone", value_name = "ZONE")]
    pub zones: Vec<String>,
    /// Rack; repeat for several [default: all]
    #[arg(long = "rack", value_name = "RACK")]
    pub racks: Vec<String>,
    /// Host; repeat for several [default: all]
    #[arg(long = "on-host", value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Host to keep apart from; repeat for several
    #[arg(long = "apart-from-host", value_name = "HOST")]
    pub apart_from_hosts: Vec<String>,
    /// Card model; repeat for several [default: all]
    #[arg(long = "model", value_name = "MODEL")]
    pub models: Vec<String>,
    /// Label that the host has; repeat for several
    #[arg(long = "host-label", value_name = "NAME=VALUE")]
    pub labels: Vec<String>,
    /// Number of virtual functions
    #[arg(long, default_value_t = 0)]
    pub functions: u32,
    /// Bandwidth at ingress and egress of the card, such as 10Gbps
    #[arg(long, value_parser = quantity::bandwidth)]
    pub bandwidth: Option<Bandwidth>,
    /// Order of the hosts with room
    #[arg(long, value_enum, default_value_t = HostRanking::Pack)]
    pub order: HostRanking,
    /// UUID of the machine
    #[arg(long, value_name = "UUID")]
    pub vm: Option<String>,
}

/// Order of hosts with room.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum HostRanking {
    /// The fullest card first
    Pack,
    /// A host without a DAG of the tenant first
    Spread,
    /// The card with the most bandwidth left first
    Headroom,
}

/// A search for hosts.
#[derive(Debug, Args)]
pub struct HostSearch {
    #[command(flatten)]
    pub places: AllowedPlaces,
    /// DAG that the machine is to use, where it is; repeat for several
    #[arg(long = "dag", value_name = "DAG")]
    pub dags: Vec<String>,
    /// File of a DAG that would be created for the machine; repeat for several
    #[arg(long = "file", short = 'f', value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Maximum number of hosts, 1 to 16
    #[arg(long, default_value_t = 16)]
    pub max: u32,
}

/// Verbs of `snicctl fleet reservation`.
#[derive(Debug, Subcommand)]
pub enum ReservationCommand {
    /// Keep functions, bandwidth or both until the time is over, or a machine and DAGs of the tenant take them up
    Create {
        #[command(flatten)]
        places: AllowedPlaces,
        /// Time until it ends, 1s to 24h
        #[arg(long, value_name = "TIME", default_value = "5m")]
        ttl: humantime::Duration,
        /// UUID of the reservation [default: a random one]
        #[arg(long, value_name = "UUID")]
        id: Option<String>,
    },
    /// List the reservations of the tenant
    List {
        /// Include all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
    },
    /// Show a reservation
    Get {
        /// Reservation: UUID, acme/UUID or its full name
        name: String,
    },
    /// Begin the time of a reservation again
    Renew {
        /// Reservation
        name: String,
    },
    /// End a reservation
    Release {
        /// Reservation
        name: String,
    },
}

/// Verbs of `snicctl fleet policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show which files are registered, and on which hosts they are in force
    List,
    /// Print the text of a file
    Get {
        /// File, such as fairness.toml
        file: String,
    },
    /// Register files, or replace those of these names; others stay
    Set {
        /// Files, or folders with them
        #[arg(required = true, value_name = "FILE|DIR")]
        paths: Vec<PathBuf>,
        /// Only check them
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove files; hosts use their own again, or what ships
    Delete {
        /// Files, such as fairness.toml
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
}

/// Verbs of `snicctl fleet host`.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// List the hosts
    List,
    /// Show a host and its cards
    Get {
        /// Host
        name: String,
    },
    /// Print changes as they happen, and which hosts answer
    Watch,
    /// Register a host
    Create {
        /// Host, as in its certificate
        name: String,
        /// File with the output of `snicd host-spec`; `-` reads standard input
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
    },
    /// Remove a host that has no DAG and no reservation
    Delete {
        /// Host
        name: String,
    },
    /// Place no new DAGs on a host; existing DAGs stay
    Cordon {
        /// Host
        name: String,
    },
    /// Let new DAGs go to a host again
    Uncordon {
        /// Host
        name: String,
    },
    /// Move a host's DAGs away, and place no new ones on it
    Drain {
        /// Host
        name: String,
    },
    /// End a drain, and let new DAGs go to the host again
    Undrain {
        /// Host
        name: String,
    },
}

/// Limits that the tenants of a project share.
#[derive(Debug, Args)]
pub struct ProjectLimits {
    /// Maximum number of DAGs of its tenants together
    #[arg(long)]
    pub dags_max: Option<u32>,
    /// Maximum total bandwidth of these DAGs, such as 100Gbps
    #[arg(long, value_parser = quantity::bandwidth)]
    pub bandwidth_max: Option<Bandwidth>,
    /// Money that they may spend together in a calendar month (UTC), in the currency of the operator's prices, such as 99.50; or none
    #[arg(long, value_name = "MONEY|none", value_parser = month_budget)]
    pub month_budget: Option<MonthBudget>,
}

/// Verbs of `snicctl fleet project`.
#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// List the projects
    List,
    /// Show a project, its limits and what its tenants have
    Get {
        /// Project
        name: String,
    },
    /// Create a project; a limit that is not given is none
    Create {
        /// Project
        name: String,
        #[command(flatten)]
        limits: ProjectLimits,
    },
    /// Update limits; those not given stay
    Update {
        /// Project
        name: String,
        #[command(flatten)]
        limits: ProjectLimits,
        #[command(flatten)]
        guard: Guard,
    },
    /// Delete a project that has no tenants
    Delete {
        /// Project
        name: String,
        #[command(flatten)]
        guard: DeleteGuard,
    },
    /// Put a tenant in a project
    Add {
        /// Project
        name: String,
        /// Tenant
        tenant: String,
    },
    /// Take a tenant out of its project
    Remove {
        /// Tenant
        tenant: String,
    },
}
