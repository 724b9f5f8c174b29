//! Arguments of `snicctl tenant`.

use clap::{Args, Subcommand};
use snic_dagfile::quantity;
use snic_domain::{Bandwidth, ByteSize};

use super::{DeleteGuard, Guard, NewNotes, OtherNotes, SelectedByLabel};

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
    /// Maximum number of threads of its DAGs' programs
    #[arg(long)]
    pub threads_max: Option<u32>,
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
        #[command(flatten)]
        notes: NewNotes,
    },
    /// List all tenants
    List(SelectedByLabel),
    /// Print changes as they happen
    Watch,
    /// Show a tenant: its usage and quota
    Get {
        /// Id; defaults to your own
        name: Option<String>,
    },
    /// Update weight, quota, labels or description
    Update {
        /// Id
        name: String,
        #[command(flatten)]
        limits: TenantLimits,
        #[command(flatten)]
        notes: OtherNotes,
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
