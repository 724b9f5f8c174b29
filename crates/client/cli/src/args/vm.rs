//! Arguments of `snicctl vm`.

use clap::{Args, Subcommand};

use super::{DeleteGuard, NewNotes, SelectedByLabel};

/// A binding to create.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("chains").required(true))]
pub struct NewBinding {
    /// UUID of the virtual machine
    pub vm: String,
    /// DAG for its packets; repeat for several, which its virtual functions use in turn
    #[arg(long, group = "chains")]
    pub dag: Vec<String>,
    /// DAG to copy for this virtual machine alone
    #[arg(long, group = "chains")]
    pub template: Option<String>,
    /// Number of virtual functions [default: one per DAG]
    #[arg(long)]
    pub functions: Option<u32>,
    /// Time limit until the binding is ready
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub ready_within: humantime::Duration,
    /// Lease: how long it outlives its last heartbeat [default: until it is unbound]
    #[arg(long, value_name = "TIME")]
    pub lease: Option<humantime::Duration>,
    /// Ethernet address of the machine, from which alone its function may send; repeat for several, which the functions
    /// get in turn [default: the function's own address]
    #[arg(long = "mac", value_name = "ADDRESS")]
    pub macs: Vec<String>,
    /// VLANs that frames of its functions may be tagged with, such as 5,6, or `none` [default: any]
    #[arg(long, value_name = "VLANS")]
    pub vlans: Option<String>,
    /// Broadcast and multicast frames that each function may send, per second [default: no limit]
    #[arg(long, value_name = "FRAMES")]
    pub broadcasts_per_second: Option<u32>,
    #[command(flatten)]
    pub notes: NewNotes,
}

/// Verbs of `snicctl vm`.
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Bind virtual functions of a VM to DAGs, and wait until the card confirms it
    Bind(NewBinding),
    /// Release the virtual functions of a VM
    Unbind {
        /// UUID of the virtual machine
        vm: String,
        #[command(flatten)]
        guard: DeleteGuard,
    },
    /// Show the binding of a VM
    Get {
        /// UUID of the virtual machine
        vm: String,
    },
    /// List bindings
    List {
        /// Include all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
        #[command(flatten)]
        selected: SelectedByLabel,
    },
    /// Print changes as they happen
    Watch {
        /// Include all tenants
        #[arg(short = 'A', long)]
        all_tenants: bool,
    },
    /// Renew the leases of VMs
    Heartbeat {
        /// UUIDs of virtual machines
        #[arg(required = true)]
        vms: Vec<String>,
    },
}
