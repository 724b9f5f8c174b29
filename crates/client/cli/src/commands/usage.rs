//! `snicctl usage`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;
use snic_api::usage::slo_of_sum;
use snic_api::v1::{
    GetSloRequest, GetSloResponse, GetUsageRequest, ListUsageRequest, UnreachableHost, UsageEntry,
    UsageGrouping,
};
use snic_bitstream::signature::PublicKey;
use snic_client::lists::PAGE_SIZE;
use snic_client::output::slo as slo_views;
use snic_client::output::usage as views;
use snic_client::{Failure, call, names};
use snic_usage::Prices;

use super::CliSession;
use crate::args::{
    DayStatement, Moment, ObjectivePpm, SignedStatement, SloOptions, UsageArchive, UsageBy,
    UsageExport, UsageFormat, UsageGet, UsageOptions, UsageQuery, UsageSlo, UsageTime, UsageVerb,
};
use crate::export::{self, Charged, UsageStatement};

pub async fn run(session: &mut CliSession, options: UsageOptions) -> Result<(), Failure> {
    match options.verb {
        Some(UsageVerb::Export(export)) => write(session, export).await,
        Some(UsageVerb::Archive(archive)) => keep(session, archive).await,
        Some(UsageVerb::Get(get)) => show(session, get).await,
        Some(UsageVerb::Slo(of)) => promises(session, of).await,
        Some(UsageVerb::Statement(of)) => state(session, of).await,
        Some(UsageVerb::Verify(signed)) => verify(&signed),
        None => {
            let usage = entries(session, &options.query, range(&options.query)?).await?.usage;
            session.output.many(&usage, views::table)
        }
    }
}

/// Shows one account.
async fn show(session: &mut CliSession, get: UsageGet) -> Result<(), Failure> {
    let UsageGet { account, time } = get;
    let own = session.tenant()?;
    let Some(account) = account.or_else(|| own.clone()) else {
        let hint = "name a tenant or TENANT/DAG, or set the tenant with --tenant";
        return Err(Failure::usage("whose usage to show is missing", hint));
    };
    let name = account_name(&account, own.as_deref())?;
    let UsageRange { from, to, step_seconds } = UsageRange::new(&time)?;
    let request = GetUsageRequest { name, start_time: from, end_time: to, step_seconds };
    let reply = call!(session.client()?, usage.get_usage, request)?;
    session.output.one(&reply, views::account)
}

/// Shows how far the promises of one account were kept, or those of each tenant.
async fn promises(
    session: &mut CliSession,
    UsageSlo { account, csv, options }: UsageSlo,
) -> Result<(), Failure> {
    if let Some(account) = account {
        let own = session.tenant()?;
        let name = account_name(&account, own.as_deref())?;
        if csv {
            let promises = [get_slo(session, name, &options).await?];
            return session.output.raw(export::promises_csv(&promises).as_bytes());
        }
        return slo(session, name, &options).await;
    }
    let at = |moment: Option<Moment>| moment.map(|Moment(at)| seconds(at));
    let to = at(options.to);
    let month = to.unwrap_or_else(|| seconds(SystemTime::now())).saturating_sub(30 * 86_400);
    let from = at(options.from).unwrap_or(month / 3_600 * 3_600);
    let (from, to) = (Some(timestamp(from)), to.map(timestamp));
    let range = UsageRange { from, to, step_seconds: 0 };
    let usage = entries(session, &UsageQuery::of_all(UsageBy::Tenant), range).await?.usage;
    let objective = options.objective.map(|ObjectivePpm(ppm)| ppm);
    if csv {
        let with_promise = usage.into_iter().filter(|entry| entry.promise_ms > 0);
        let promises: Vec<GetSloResponse> = with_promise
            .map(|entry| GetSloResponse {
                name: entry.tenant.clone(),
                ..slo_of_sum(entry, objective.unwrap_or_default())
            })
            .collect();
        return session.output.raw(export::promises_csv(&promises).as_bytes());
    }
    session.output.many(&usage, |usage, style| slo_views::report(usage, objective, style))
}

/// Shows how far the promises of one tenant or DAG were kept.
pub(super) async fn slo(
    session: &mut CliSession,
    name: String,
    options: &SloOptions,
) -> Result<(), Failure> {
    let reply = get_slo(session, name, options).await?;
    session.output.one(&reply, slo_views::slo)
}

async fn get_slo(
    session: &mut CliSession,
    name: String,
    options: &SloOptions,
) -> Result<GetSloResponse, Failure> {
    let at = |moment: Option<Moment>| moment.map(|Moment(at)| timestamp(seconds(at)));
    let request = GetSloRequest {
        name,
        start_time: at(options.from),
        end_time: at(options.to),
        objective_ppm: options.objective.map_or(0, |ObjectivePpm(ppm)| ppm),
    };
    call!(session.client()?, usage.get_slo, request)
}

/// Name of the resource of a tenant, or of a DAG as TENANT/DAG.
fn account_name(account: &str, own: Option<&str>) -> Result<String, Failure> {
    match account.trim_start_matches("tenants/").contains('/') {
        true => names::dag(account, own),
        false => names::tenant(account),
    }
}

/// Prints a statement of one day.
async fn state(session: &mut CliSession, statement: DayStatement) -> Result<(), Failure> {
    let DayStatement { of, day } = statement;
    let tenant = names::tenant(&of)?;
    let charged = day.time(seconds(SystemTime::now())).map_err(|what| {
        Failure::usage(what, "a statement is of a day that is over, so that it stays as it is")
    })?;
    let range = UsageRange {
        from: Some(timestamp(charged.from)),
        to: Some(timestamp(charged.to)),
        step_seconds: charged.step,
    };
    let query = UsageQuery { of: Some(of), ..UsageQuery::of_all(UsageBy::Dag) };
    let usage = entries(session, &query, range).await?.complete()?;
    session.output.raw(export::statement(&tenant, day, &usage).as_bytes())
}

/// Checks a statement and its signature.
fn verify(signed: &SignedStatement) -> Result<(), Failure> {
    let SignedStatement { file, signature, key } = signed;
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| Failure::Read { path: path.to_owned(), source })
    };
    let wrong = |path: &Path, what: String, hint: &str| {
        Failure::usage(format!("{}: {what}", path.display()), hint)
    };
    let pem = String::from_utf8_lossy(&read(key)?).into_owned();
    let public = PublicKey::from_pem("site", &pem).map_err(|error| {
        wrong(key, error.to_string(), "the site gives out its public key, as PEM")
    })?;
    let bytes = read(file)?;
    if !public.verifies(&bytes, &read(signature)?) {
        let what = "the signature is not of this file by this key".to_owned();
        return Err(wrong(file, what, "do not trust what the file says"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| error.to_string());
    let statement = text.and_then(UsageStatement::parse).map_err(|what| {
        wrong(file, what, "the site has signed something else than a statement of usage")
    })?;
    let UsageStatement { tenant, day, lines } = statement;
    crate::print(&format!("{tenant} on {day}: the signature is good; {lines} lines of DAGs\n"))
}

async fn write(session: &mut CliSession, export: UsageExport) -> Result<(), Failure> {
    if let (UsageFormat::Focus | UsageFormat::FocusParquet, Some(prices)) =
        (export.format, &export.prices)
    {
        let write = match export.format {
            UsageFormat::FocusParquet => charges_parquet_writer()?,
            _ => |charges: &export::Charges<'_>| Ok(charges.csv().into_bytes()),
        };
        let charges = charges(session, &export.query, prices, write).await?;
        return session.output.raw(&charges);
    }
    let range = range(&export.query)?;
    if export.format == UsageFormat::Parquet {
        let write = parquet_writer()?;
        let usage = entries(session, &export.query, range).await?.usage;
        return session.output.raw(&write(&usage)?);
    }
    let usage = entries(session, &export.query, range).await?.usage;
    session.output.raw(export::csv(&usage).as_bytes())
}

/// Adds to an archive, if this program was built with Parquet.
#[cfg(feature = "parquet")]
async fn keep(session: &mut CliSession, archive: UsageArchive) -> Result<(), Failure> {
    super::archive::run(session, archive).await
}

#[cfg(not(feature = "parquet"))]
async fn keep(_: &mut CliSession, _: UsageArchive) -> Result<(), Failure> {
    Err(without_parquet())
}

type Writer = fn(&[UsageEntry]) -> Result<Vec<u8>, Failure>;
type ChargesWriter = fn(&export::Charges<'_>) -> Result<Vec<u8>, Failure>;

#[cfg(feature = "parquet")]
fn not_written(error: &parquet::errors::ParquetError) -> Failure {
    let hint = "export as comma-separated values, with --format csv or focus, and report this";
    Failure::usage(error.to_string(), hint)
}

/// Writes Parquet, if this program was built with it.
#[cfg(feature = "parquet")]
fn parquet_writer() -> Result<Writer, Failure> {
    Ok(|usage| export::parquet(usage).map_err(|error| not_written(&error)))
}

#[cfg(feature = "parquet")]
fn charges_parquet_writer() -> Result<ChargesWriter, Failure> {
    Ok(|charges| export::charges_parquet(charges).map_err(|error| not_written(&error)))
}

#[cfg(not(feature = "parquet"))]
fn without_parquet() -> Failure {
    let hint = "export as comma-separated values, with --format csv or focus, or build snicctl with `--features snicctl/parquet`";
    Failure::usage("this snicctl was built without Parquet", hint)
}

#[cfg(not(feature = "parquet"))]
fn parquet_writer() -> Result<Writer, Failure> {
    Err(without_parquet())
}

#[cfg(not(feature = "parquet"))]
fn charges_parquet_writer() -> Result<ChargesWriter, Failure> {
    Err(without_parquet())
}

/// Charges of the selected usage by the prices of a file, as they are written.
async fn charges(
    session: &mut CliSession,
    query: &UsageQuery,
    path: &Path,
    write: ChargesWriter,
) -> Result<Vec<u8>, Failure> {
    let in_file = |what: String| {
        let hint = "the file that ships, policies/prices.toml, has all keys";
        Failure::usage(format!("{}: {what}", path.display()), hint)
    };
    let read = |source| Failure::Read { path: path.to_owned(), source };
    let prices = std::fs::read_to_string(path).map_err(read)?;
    let prices = Prices::parse(&prices).map_err(in_file)?;
    let charged = charged(query)?;
    prices.check((charged.from, charged.to), charged.step).map_err(in_file)?;
    let range = UsageRange {
        from: Some(timestamp(charged.from)),
        to: Some(timestamp(charged.to)),
        step_seconds: charged.step,
    };
    let usage = entries(session, query, range).await?.complete()?;
    let charges = export::Charges::new(&usage, &prices, charged).map_err(in_file)?;
    write(&charges)
}

/// The time that is charged.
fn charged(query: &UsageQuery) -> Result<Charged, Failure> {
    let step = query.time.step.map_or(86_400, |step| step.as_secs());
    if !matches!(step, 3_600 | 86_400) {
        let hint = "charges are by --step 1h or --step 1d, which is what no --step means";
        return Err(Failure::usage(format!("a step of {step} s is no step of charges"), hint));
    }
    if query.by != UsageBy::Dag {
        let hint = "leave --by out; programs that read FOCUS add up by any column";
        return Err(Failure::usage("charges are of each DAG on each card", hint));
    }
    let now = seconds(SystemTime::now());
    let [from, to] = [query.time.from, query.time.to].map(|at| at.map(|Moment(at)| seconds(at)));
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

impl UsageRange {
    fn new(&UsageTime { from, to, step }: &UsageTime) -> Result<Self, Failure> {
        let step_seconds = step.map_or(0, |step| step.as_secs());
        if step.is_some() && step_seconds == 0 {
            let hint =
                "give whole seconds, such as 10s; without --step the whole range is one step";
            return Err(Failure::usage("--step is less than a second", hint));
        }
        let at = |moment: Option<Moment>| moment.map(|Moment(at)| timestamp(seconds(at)));
        Ok(Self { from: at(from), to: at(to), step_seconds })
    }
}

fn range(query: &UsageQuery) -> Result<UsageRange, Failure> {
    UsageRange::new(&query.time)
}

/// Usage of a range.
struct ListedUsage {
    usage: Vec<UsageEntry>,
    unreachable: Vec<UnreachableHost>,
}

impl ListedUsage {
    /// The entries, which somebody may be charged for.
    ///
    /// # Errors
    /// Hosts of the fleet did not answer: something is missing.
    fn complete(self) -> Result<Vec<UsageEntry>, Failure> {
        let Some(UnreachableHost { host, reason }) = self.unreachable.first() else {
            return Ok(self.usage);
        };
        let of = if host.is_empty() { "a host of the fleet" } else { host };
        let what = format!("{of} did not answer, so its usage is missing: {reason}");
        let hint =
            "try again when all hosts answer; --format csv exports what there is, with the gap";
        Err(Failure::usage(what, hint))
    }
}

/// All entries of a range.
async fn entries(
    session: &mut CliSession,
    query: &UsageQuery,
    range: UsageRange,
) -> Result<ListedUsage, Failure> {
    let tenant = query.of.as_deref().map(names::tenant).transpose()?;
    let own = session.tenant()?;
    let dag = query.dag.as_deref().map(|dag| names::dag(dag, own.as_deref())).transpose()?;
    let card = query.card.as_deref().map(card_name).transpose()?;
    let project = query.project.as_deref().map(project_name).unwrap_or_default();
    let request = ListUsageRequest {
        page_size: PAGE_SIZE,
        tenant: tenant.unwrap_or_default(),
        dag: dag.unwrap_or_default(),
        card: card.unwrap_or_default(),
        start_time: range.from,
        end_time: range.to,
        step_seconds: range.step_seconds,
        by: UsageGrouping::from(query.by).into(),
        project,
        ..Default::default()
    };
    let client = session.client()?;
    let mut listed = ListedUsage { usage: Vec::new(), unreachable: Vec::new() };
    let mut page_token = String::new();
    loop {
        let request = ListUsageRequest { page_token, ..request.clone() };
        let reply = call!(client, usage.list_usage, request)?;
        listed.usage.extend(reply.usage);
        listed.unreachable.extend(reply.unreachable_hosts);
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            return Ok(listed);
        }
    }
}

/// Name of a card; of a fleet's, from HOST/CARD.
fn card_name(text: &str) -> Result<String, Failure> {
    if text.starts_with("hosts/") {
        return Ok(text.to_owned());
    }
    match text.trim_start_matches("cards/").split_once('/') {
        Some((host, card)) => Ok(format!("hosts/{host}/cards/{card}")),
        None => names::card(text),
    }
}

fn project_name(text: &str) -> String {
    format!("projects/{}", text.trim_start_matches("projects/"))
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn timestamp(second: u64) -> Timestamp {
    Timestamp { seconds: i64::try_from(second).unwrap_or(i64::MAX), nanos: 0 }
}
