//! Arguments of `snicctl tenant`.

use clap::{Args, Subcommand};
use snic_dagfile::quantity;
use snic_domain::{Bandwidth, ByteSize, MonthBudget};

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
    /// Money that it may spend in a calendar month (UTC), in the currency of the operator's prices, such as 99.50; or none
    #[arg(long, value_name = "MONEY|none", value_parser = month_budget)]
    pub month_budget: Option<MonthBudget>,
    /// Project that its usage is added up in; or none
    #[arg(long, value_name = "PROJECT|none")]
    pub project: Option<String>,
}

/// Reads a budget.
pub(super) fn month_budget(text: &str) -> Result<MonthBudget, String> {
    if text == "none" {
        return Ok(MonthBudget::UNLIMITED);
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_read = is_number(whole) && is_number(part) && part.len() <= 6;
    let micros = || format!("{whole}{part:0<6}").parse::<u64>().ok();
    let micros = is_read.then(micros).flatten().filter(|micros| *micros < u64::MAX);
    micros.map(MonthBudget::from_micros).ok_or_else(|| {
        "write an amount with at most 6 digits behind the point, such as 99.50, or none".to_owned()
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_money_or_none() {
        let of = |text: &str| month_budget(text).ok();
        let micros = |micros| Some(MonthBudget::from_micros(micros));
        assert_eq!([of("99.5"), of("0"), of("0.000001")], [99_500_000, 0, 1].map(micros));
        assert_eq!(of("18446744073709.551614"), micros(u64::MAX - 1));
        assert_eq!(of("none"), Some(MonthBudget::UNLIMITED));
        for wrong in ["", ".5", "5.", "-1", "1,5", "1e3", "0.0000001", "18446744073709.551615"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
