//! What `snicctl vm` takes.

use clap::{Args, Subcommand};

/// What a machine is to get.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("chains").required(true))]
pub struct NewBinding {
    /// The machine's UUID
    pub vm: String,
    /// A DAG for its packets; several times for several, which its functions lead to in turn
    #[arg(long, group = "chains")]
    pub dag: Vec<String>,
    /// A DAG to make one of its own like
    #[arg(long, group = "chains")]
    pub template: Option<String>,
    /// How many virtual functions [default: one for each DAG]
    #[arg(long)]
    pub functions: Option<u32>,
    /// How long it may take until all is ready
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub ready_within: humantime::Duration,
    /// How long it outlives its last heartbeat [default: until it is unbound]
    #[arg(long, value_name = "TIME")]
    pub lease: Option<humantime::Duration>,
}

/// Verbs of virtual machines.
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Gives a machine functions that lead to its DAGs, and waits until the card does so
    Bind(NewBinding),
    /// Takes back what a machine has
    Unbind {
        /// The machine's UUID
        vm: String,
    },
    /// Shows what a machine has
    Get {
        /// The machine's UUID
        vm: String,
    },
    /// Lists machines
    List {
        /// Those of all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
    },
    /// Prints changes as they happen
    Watch {
        /// Those of all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
    },
    /// Says that machines are alive
    Heartbeat {
        /// UUIDs of machines
        #[arg(required = true)]
        vms: Vec<String>,
    },
}
