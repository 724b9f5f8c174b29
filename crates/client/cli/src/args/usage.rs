//! Arguments of `snicctl usage`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use snic_api::v1::UsageGrouping;

use super::audit::{Moment, moment};
use crate::export::StatementDay;

/// Arguments behind `snicctl usage`: a verb, or the selection that is shown.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct UsageOptions {
    /// Verb; without one, usage is shown.
    #[command(subcommand)]
    pub verb: Option<UsageVerb>,
    /// Usage to show where there is no verb.
    #[command(flatten)]
    pub query: UsageQuery,
}

/// Verbs of `snicctl usage`.
#[derive(Debug, Subcommand)]
pub enum UsageVerb {
    /// Show the usage of one tenant or DAG over all cards, with its sum
    Get(UsageGet),
    /// Show how far promises were kept: one line for each tenant, or all of one tenant or DAG
    Slo(UsageSlo),
    /// Print usage for other programs: all meters, or charges by an operator's prices
    Export(UsageExport),
    /// Add to an archive of Parquet files what is over and closed, and remove what is too old
    Archive(UsageArchive),
    /// Print a tenant's usage of one day, for the site to sign
    Statement(DayStatement),
    /// Check a statement and its signature, without a server
    Verify(SignedStatement),
}

/// Selection of usage.
#[derive(Debug, Args)]
pub struct UsageQuery {
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    pub of: Option<String>,
    /// Only of this DAG: DAG or TENANT/DAG
    #[arg(long, value_name = "DAG")]
    pub dag: Option<String>,
    /// Only of tenants that are in this project of a fleet now
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only of this card; of a fleet, HOST/CARD
    #[arg(long, value_name = "CARD")]
    pub card: Option<String>,
    #[command(flatten)]
    pub time: UsageTime,
    /// Group to add up
    #[arg(long, value_enum, default_value_t = UsageBy::Dag)]
    pub by: UsageBy,
}

impl UsageQuery {
    /// All usage, in one step.
    pub fn of_all(by: UsageBy) -> Self {
        Self { of: None, dag: None, project: None, card: None, time: UsageTime::default(), by }
    }
}

/// A range of time, and the steps in it.
#[derive(Debug, Default, Args)]
pub struct UsageTime {
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
}

/// Arguments behind `snicctl usage get`.
#[derive(Debug, Args)]
pub struct UsageGet {
    /// Tenant, or TENANT/DAG; without it, the own tenant
    #[arg(value_name = "TENANT[/DAG]")]
    pub account: Option<String>,
    #[command(flatten)]
    pub time: UsageTime,
}

/// Range and objective of a look at promises.
#[derive(Debug, Args)]
pub struct SloOptions {
    /// Only since then: a duration before now, such as 7d, or a time, such as
    /// 2026-01-31T12:00:00Z; without it, 30 days before --to
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Moment>,
    /// Only before then; same format as --from
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Moment>,
    /// Part of the time in which promises are to be kept, in percent, such as 99.95; without it, the
    /// operator's
    #[arg(long, value_name = "PERCENT", value_parser = objective)]
    pub objective: Option<ObjectivePpm>,
}

/// Part of a time, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectivePpm(pub u32);

fn objective(text: &str) -> Result<ObjectivePpm, String> {
    let wrong = || format!("{text:?} is no objective; use 50 to 99.9999, such as 99.9");
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || rest.len() > 4 || !is_digits(whole) || !is_digits(rest) {
        return Err(wrong());
    }
    let ppm: u32 = format!("{whole}{rest:0<4}").parse().map_err(|_| wrong())?;
    (500_000..=999_999).contains(&ppm).then_some(ObjectivePpm(ppm)).ok_or_else(wrong)
}

/// Arguments behind `snicctl usage slo`.
#[derive(Debug, Args)]
pub struct UsageSlo {
    /// Tenant, or TENANT/DAG; without it, a line for each tenant
    #[arg(value_name = "TENANT[/DAG]")]
    pub account: Option<String>,
    /// Print comma-separated values, whatever --output says
    #[arg(long)]
    pub csv: bool,
    #[command(flatten)]
    pub options: SloOptions,
}

/// Arguments behind `snicctl usage statement`.
#[derive(Debug, Args)]
#[command(after_help = "The key never comes here: sign the output as a file, with \
`openssl pkeyutl -sign -rawin -inkey KEY -in FILE -out FILE.sig`, by an ed25519 key.")]
pub struct DayStatement {
    /// Tenant
    #[arg(long, value_name = "TENANT")]
    pub of: String,
    /// Day in UTC that is over, such as 2026-11-28
    #[arg(long, value_name = "DAY")]
    pub day: StatementDay,
}

/// Arguments behind `snicctl usage verify`.
#[derive(Debug, Args)]
pub struct SignedStatement {
    /// File with the statement
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// File with its ed25519 signature
    #[arg(long, value_name = "FILE")]
    pub signature: PathBuf,
    /// Public key of the site, as PEM
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
}

/// Arguments behind `snicctl usage export`.
#[derive(Debug, Args)]
#[command(
    after_help = "With --format focus and focus-parquet, steps are of 1h or 1d, without --step 1d, and begin \
and end with an hour or a day in UTC; without --to the export ends with the last step that is \
over, and without --from it begins with the month of that step."
)]
pub struct UsageExport {
    /// Format to write
    #[arg(long, value_enum, default_value_t = UsageFormat::Csv)]
    pub format: UsageFormat,
    /// File with the operator's prices, for --format focus and focus-parquet
    #[arg(long, value_name = "FILE", required_if_eq_any([("format", "focus"), ("format", "focus-parquet")]))]
    pub prices: Option<PathBuf>,
    /// Usage to export.
    #[command(flatten)]
    pub query: UsageQuery,
}

/// Arguments behind `snicctl usage archive`.
#[derive(Debug, Args)]
#[command(
    after_help = "The archive has three folders: ten-seconds with a file for each hour, minutes with one for each day, \
and hours with one for each month, in UTC. Files have the columns of `usage export --format parquet` and are never \
written again. Run it once an hour: what the daemon does not keep any more is noted as missing, and ends this \
program with exit code 1."
)]
pub struct UsageArchive {
    /// Folder of the archive, which is made where it is missing
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// Age up to which files with intervals of ten seconds are kept; 0s writes and removes none
    #[arg(long, value_name = "AGE", default_value = "1d")]
    pub keep_10s: humantime::Duration,
    /// Age up to which files with intervals of a minute are kept; 0s writes and removes none
    #[arg(long, value_name = "AGE", default_value = "31d")]
    pub keep_1m: humantime::Duration,
    /// Age up to which files with intervals of an hour are kept; 0s writes and removes none
    #[arg(long, value_name = "AGE", default_value = "731d")]
    pub keep_1h: humantime::Duration,
}

/// Format of exported usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageFormat {
    /// Comma-separated values, one column for each meter
    Csv,
    /// The same as a Parquet file, of a snicctl that was built with the feature `parquet`
    Parquet,
    /// Charges, as comma-separated values in the columns of FOCUS 1.2
    Focus,
    /// The same as a Parquet file
    FocusParquet,
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
    /// Each project of a fleet
    Project,
}

impl From<UsageBy> for UsageGrouping {
    fn from(by: UsageBy) -> Self {
        match by {
            UsageBy::Dag => Self::Dag,
            UsageBy::Tenant => Self::Tenant,
            UsageBy::Card => Self::Card,
            UsageBy::Project => Self::Project,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_a_percentage_in_millionths() {
        let of = |text: &str| objective(text).ok().map(|ObjectivePpm(ppm)| ppm);
        assert_eq!(
            [of("99.9"), of("99.95"), of("50")],
            [Some(999_000), Some(999_500), Some(500_000)]
        );
        assert_eq!(of("99.9999"), Some(999_999));
        for wrong in ["100", "49.9", "99.99999", "", ".9", "99,9", "-1", "1e2"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
