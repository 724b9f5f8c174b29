//! Arguments of `snicctl usage`.

use clap::{Args, ValueEnum};
use snic_api::v1::UsageGrouping;

use super::audit::{Moment, moment};

/// Selection of usage, and its form.
#[derive(Debug, Args)]
pub struct UsageOptions {
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    pub of: Option<String>,
    /// Only of this DAG: DAG or TENANT/DAG
    #[arg(long, value_name = "DAG")]
    pub dag: Option<String>,
    /// Only of this card
    #[arg(long, value_name = "CARD")]
    pub card: Option<String>,
    /// Only since then: a duration before now, such as 2h, or a time, such as
    /// 2026-01-31T12:00:00Z; without it, a day before --to
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Moment>,
    /// Only before then; same format as --from
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Moment>,
    /// Length of a step, such as 10s, 1m or 1h; without it, the whole range is one step
    #[arg(long, value_name = "TIME")]
    pub step: Option<humantime::Duration>,
    /// Group to add up
    #[arg(long, value_enum, default_value_t = UsageBy::Dag)]
    pub by: UsageBy,
    /// Print comma-separated values with all meters, for spreadsheets and billing systems
    #[arg(long)]
    pub csv: bool,
}

/// Group that usage is added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageBy {
    /// Each DAG on each card
    Dag,
    /// Each tenant
    Tenant,
    /// Each tenant on each card
    Card,
}

impl From<UsageBy> for UsageGrouping {
    fn from(by: UsageBy) -> Self {
        match by {
            UsageBy::Dag => Self::Dag,
            UsageBy::Tenant => Self::Tenant,
            UsageBy::Card => Self::Card,
        }
    }
}
