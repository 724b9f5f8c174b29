//! `snicctl usage`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;
use snic_api::v1::{ListUsageRequest, UsageEntry, UsageGrouping};
use snic_client::lists::PAGE_SIZE;
use snic_client::output::usage as views;
use snic_client::{Failure, call, names};

use super::CliSession;
use crate::args::{Moment, UsageBy, UsageExport, UsageFormat, UsageOptions, UsageQuery, UsageVerb};
use crate::export::{self, Charged, Prices};

pub async fn run(session: &mut CliSession, options: UsageOptions) -> Result<(), Failure> {
    match options.verb {
        Some(UsageVerb::Export(export)) => write(session, export).await,
        None => {
            let usage = entries(session, &options.query, range(&options.query)?).await?;
            session.output.many(&usage, views::table)
        }
    }
}

async fn write(session: &mut CliSession, export: UsageExport) -> Result<(), Failure> {
    if let (UsageFormat::Focus, Some(prices)) = (export.format, export.prices) {
        let charges = charges(session, &export.query, &prices).await?;
        return session.output.raw(charges.as_bytes());
    }
    let range = range(&export.query)?;
    if export.format == UsageFormat::Parquet {
        let write = parquet_writer()?;
        let usage = entries(session, &export.query, range).await?;
        return session.output.raw(&write(&usage)?);
    }
    let usage = entries(session, &export.query, range).await?;
    session.output.raw(export::csv(&usage).as_bytes())
}

type Writer = fn(&[UsageEntry]) -> Result<Vec<u8>, Failure>;

/// Writes Parquet, if this program was built with it.
#[cfg(feature = "parquet")]
fn parquet_writer() -> Result<Writer, Failure> {
    Ok(|usage| {
        let failed = |error: parquet::errors::ParquetError| {
            Failure::usage(error.to_string(), "export with --format csv, and report this")
        };
        export::parquet(usage).map_err(failed)
    })
}

/// Writes Parquet, if this program was built with it.
#[cfg(not(feature = "parquet"))]
fn parquet_writer() -> Result<Writer, Failure> {
    let hint = "export with --format csv, or build snicctl with `--features snicctl/parquet`";
    Err(Failure::usage("this snicctl was built without Parquet", hint))
}

/// Charges of the selected usage by the prices of a file.
async fn charges(
    session: &mut CliSession,
    query: &UsageQuery,
    path: &Path,
) -> Result<String, Failure> {
    let in_file = |what: String| {
        let hint = "the file that ships, policies/prices.toml, has all keys";
        Failure::usage(format!("{}: {what}", path.display()), hint)
    };
    let read = |source| Failure::Read { path: path.to_owned(), source };
    let prices = std::fs::read_to_string(path).map_err(read)?;
    let prices = Prices::parse(&prices).map_err(in_file)?;
    let charged = charged(query)?;
    prices.check(charged).map_err(in_file)?;
    let range = UsageRange {
        from: Some(timestamp(charged.from)),
        to: Some(timestamp(charged.to)),
        step_seconds: charged.step,
    };
    let usage = entries(session, query, range).await?;
    export::charges(&usage, &prices, charged).map_err(in_file)
}

/// The time that is charged.
fn charged(query: &UsageQuery) -> Result<Charged, Failure> {
    let step = query.step.map_or(86_400, |step| step.as_secs());
    if !matches!(step, 3_600 | 86_400) {
        let hint = "charges are by --step 1h or --step 1d, which is what no --step means";
        return Err(Failure::usage(format!("a step of {step} s is no step of charges"), hint));
    }
    if query.by != UsageBy::Dag {
        let hint = "leave --by out; programs that read FOCUS add up by any column";
        return Err(Failure::usage("charges are of each DAG on each card", hint));
    }
    let now = seconds(SystemTime::now());
    let [from, to] = [query.from, query.to].map(|at| at.map(|Moment(at)| seconds(at)));
    Charged::new(from, to, step, now).map_err(|what| {
        Failure::usage(what, "give --from and --to as times, such as 2026-11-01T00:00:00Z")
    })
}

/// A range of time, by step.
struct UsageRange {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    step_seconds: u64,
}

fn range(query: &UsageQuery) -> Result<UsageRange, Failure> {
    let step_seconds = query.step.map_or(0, |step| step.as_secs());
    if query.step.is_some() && step_seconds == 0 {
        let hint = "give whole seconds, such as 10s; without --step the whole range is one step";
        return Err(Failure::usage("--step is less than a second", hint));
    }
    let at = |moment: Option<Moment>| moment.map(|Moment(at)| timestamp(seconds(at)));
    Ok(UsageRange { from: at(query.from), to: at(query.to), step_seconds })
}

/// All entries of a range.
async fn entries(
    session: &mut CliSession,
    query: &UsageQuery,
    range: UsageRange,
) -> Result<Vec<UsageEntry>, Failure> {
    let tenant = query.of.as_deref().map(names::tenant).transpose()?;
    let own = session.tenant()?;
    let dag = query.dag.as_deref().map(|dag| names::dag(dag, own.as_deref())).transpose()?;
    let card = query.card.as_deref().map(names::card).transpose()?;
    let request = ListUsageRequest {
        page_size: PAGE_SIZE,
        tenant: tenant.unwrap_or_default(),
        dag: dag.unwrap_or_default(),
        card: card.unwrap_or_default(),
        start_time: range.from,
        end_time: range.to,
        step_seconds: range.step_seconds,
        by: UsageGrouping::from(query.by).into(),
        ..Default::default()
    };
    let client = session.client()?;
    let mut usage: Vec<UsageEntry> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListUsageRequest { page_token, ..request.clone() };
        let reply = call!(client, usage.list_usage, request)?;
        usage.extend(reply.usage);
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            return Ok(usage);
        }
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn timestamp(second: u64) -> Timestamp {
    Timestamp { seconds: i64::try_from(second).unwrap_or(i64::MAX), nanos: 0 }
}
