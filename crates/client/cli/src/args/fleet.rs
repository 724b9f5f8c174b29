//! Arguments of `snicctl fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use snic_dagfile::quantity;
use snic_domain::Bandwidth;

use super::{DeleteGuard, Guard};

/// Nouns and verbs of `snicctl fleet`.
#[derive(Debug, Subcommand)]
pub enum FleetCommands {
    /// Show who leads, and how much there is of everything
    Status,
    /// Manage the hosts
    #[command(subcommand)]
    Host(HostCommand),
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
