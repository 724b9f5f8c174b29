//! Usage: intervals of the store and those that are not full pages yet, added up by step.

mod slo;

use std::collections::BTreeMap;
use std::sync::Arc;

use prost_types::Timestamp;
use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::usage::{add_usage, slo_objective, sort_nt_times};
use snic_api::v1;
use snic_api::v1::usage_service_server::UsageService;
use snic_api::v1::{ErrorReason, UsageGrouping};
use snic_controller::{DropCause, UsageAccount, UsageView};
use snic_domain::{Caller, CardId, DagName, ProjectId, TenantId};
use snic_front::gate::caller;
use snic_ports::store::{Store, StoreError};
use snic_usage::{
    ACCOUNT_NTS_MAX, AccountPart, BreakCause, Gap, IntervalLevel, KeptPages, Meter, PageRange,
    Point, ReadPage, UsageAmounts, UsageKey, UsageSeries,
};
use tonic::{Request, Response};

use super::{RpcResult, Services, absent, page};

/// Most steps of a list: each may have an entry for each DAG.
const STEPS_MAX: u64 = 10_000;
/// Most steps of one account: they come in one reply.
const ACCOUNT_STEPS_MAX: u64 = 1_000;

/// Seconds by which an account's first interval may have begun before it: two of the shortest ones.
const FIRST_EARLIER: u64 = 20;
/// Seconds of the range where a request names none.
const DAY: u64 = 86_400;

/// Content of a request.
#[derive(Debug, Clone)]
struct UsageQuery {
    tenant: Option<TenantId>,
    dag: Option<DagName>,
    card: Option<CardId>,
    /// Only of tenants that are in it now.
    project: Option<ProjectId>,
    from: Option<u64>,
    to: Option<u64>,
    step: u64,
    steps_max: u64,
    by: UsageGrouping,
    /// First second that counts of accounts that may be of an earlier tenant with the same name, where it is later than `from`.
    older_from: Option<u64>,
}

#[tonic::async_trait]
impl UsageService for Services {
    async fn list_usage(
        &self,
        request: Request<v1::ListUsageRequest>,
    ) -> RpcResult<v1::ListUsageResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let query = page_query(&request);
        let page = page(query.clone(), request.page_size, &request.page_token)?;
        let usage_query = usage_query(&request)?;
        usage_query.check_caller(&caller)?;
        let scope = match &caller {
            Caller::Tenant(own) => Some(own.clone()),
            _ => None,
        };
        let view =
            self.read(&caller, move |controller, _| controller.usage(scope.as_ref())).await?;
        let (intervals, closed_time) = (intervals(&view.kept), Some(timestamp(view.closed)));
        let store = Arc::clone(self.0.plane.store());
        let after = page.after().map(PageEnd::parse).transpose()?;
        let limit = page.limit();
        let add_up = move || add_up(&*store, &view, &usage_query, after.as_ref(), limit);
        let UsagePageOf { usage, next } = self.0.workshop.run(&caller, add_up).await??;
        let next_page_token = next.map_or(String::new(), |end| query.token_after(&end.to_string()));
        let unreachable_hosts = Vec::new();
        Ok(Response::new(v1::ListUsageResponse {
            usage,
            next_page_token,
            unreachable_hosts,
            intervals,
            closed_time,
        }))
    }

    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> RpcResult<v1::GetUsageResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (start, end) = (request.start_time, request.end_time);
        let query = account_query(&request.name, start, end, request.step_seconds)?;
        let view = self.account_view(&caller, &request.name, &query).await?;
        let store = Arc::clone(self.0.plane.store());
        let add_up = move || account_of(&*store, &view, &query);
        Ok(Response::new(self.0.workshop.run(&caller, add_up).await??))
    }

    async fn get_slo(&self, request: Request<v1::GetSloRequest>) -> RpcResult<v1::GetSloResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let objective = slo_objective(request.objective_ppm)?;
        let query = account_query(&request.name, request.start_time, request.end_time, 0)?;
        let view = self.account_view(&caller, &request.name, &query).await?;
        let store = Arc::clone(self.0.plane.store());
        let compute = move || slo::slo_of(&*store, &view, &query, objective);
        Ok(Response::new(self.0.workshop.run(&caller, compute).await??))
    }
}

impl Services {
    /// Usage of the tenant of one account.
    ///
    /// # Errors
    /// There is no such tenant or DAG, and none is kept in usage; the same as for those of another tenant.
    async fn account_view(
        &self,
        caller: &Caller,
        name: &str,
        query: &UsageQuery,
    ) -> Result<UsageView, tonic::Status> {
        let Some(tenant) = query.tenant.clone() else { return Err(absent(name).into()) };
        self.tenant(caller, tenant.clone()).await?;
        let dag = query.dag.clone();
        let (view, exists) = self
            .read(caller, move |controller, _| {
                let exists = dag.is_none_or(|dag| controller.dag_view(&dag).is_some());
                (controller.usage(Some(&tenant)), exists)
            })
            .await?;
        match exists || view.accounts.iter().any(|account| query.selects(account)) {
            true => Ok(view),
            false => Err(absent(name).into()),
        }
    }
}

/// Lengths of intervals, each with the time from which on all of them are kept.
fn intervals(kept: &KeptPages) -> Vec<v1::UsageIntervals> {
    let of = |level: IntervalLevel| v1::UsageIntervals {
        interval_seconds: level.interval(),
        kept_from_time: Some(timestamp(kept.from(level))),
    };
    IntervalLevel::ALL.map(of).into()
}

/// Selection of one tenant or DAG.
fn account_query(
    name: &str,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    step: u64,
) -> Result<UsageQuery, ApiError> {
    let (tenant, dag) = subject(name)?;
    Ok(UsageQuery {
        tenant: Some(tenant),
        dag,
        card: None,
        project: None,
        from: seconds("start_time", start)?,
        to: seconds("end_time", end)?,
        step,
        steps_max: ACCOUNT_STEPS_MAX,
        by: UsageGrouping::Tenant,
        older_from: None,
    })
}

/// The tenant, or the DAG with its tenant, of a request for one account.
fn subject(text: &str) -> Result<(TenantId, Option<DagName>), ApiError> {
    if text.contains("/dags/") {
        let dag = name::dag("name", text)?;
        return Ok((dag.tenant.clone(), Some(dag)));
    }
    Ok((name::tenant("name", text)?, None))
}

/// Steps of one tenant or DAG over all cards, and their sum.
fn account_of(
    store: &dyn Store,
    view: &UsageView,
    query: &UsageQuery,
) -> Result<v1::GetUsageResponse, ApiError> {
    let (from, to, _) = query.range(view.closed)?;
    let mut steps = add_up(store, view, query, None, usize::MAX)?.usage;
    let dag = query.dag.as_ref().map(DagName::to_string).unwrap_or_default();
    steps.iter_mut().for_each(|step| step.dag.clone_from(&dag));
    let mut total = v1::UsageEntry {
        tenant: query.tenant.as_ref().map(name::of_tenant).unwrap_or_default(),
        dag,
        start_time: Some(timestamp(from)),
        end_time: Some(timestamp(to)),
        ..v1::UsageEntry::default()
    };
    steps.iter().for_each(|step| add_usage(&mut total, step));
    Ok(v1::GetUsageResponse { steps, total: Some(total), unreachable_hosts: Vec::new() })
}

/// End of a page. The next one is of the same time, although more intervals may be closed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PageEnd {
    /// Second up to which intervals were closed when the first page was made.
    closed: u64,
    /// Key of its last entry.
    key: String,
}

impl std::fmt::Display for PageEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.closed, self.key)
    }
}

impl PageEnd {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let end = text.split_once(' ').and_then(|(closed, key)| {
            Some(Self { closed: closed.parse().ok()?, key: key.to_owned() })
        });
        end.ok_or_else(|| {
            let text =
                "this token is from another version of the server; begin with the first page";
            ApiError::in_field(ErrorReason::InvalidField, "page_token", text)
        })
    }

    /// Whether entries of this group may be behind it.
    fn is_before(&self, group: &str) -> bool {
        let last = self.key.rsplit_once('|').map_or("", |(group, _)| group);
        last <= group
    }
}

/// Entries of a page, and its end if there are more.
struct UsagePageOf {
    usage: Vec<v1::UsageEntry>,
    next: Option<PageEnd>,
}

/// A tenant that names another one, or one that does not exist, selects none of its own usage.
fn usage_query(request: &v1::ListUsageRequest) -> Result<UsageQuery, ApiError> {
    let is_set = |text: &str| !text.is_empty();
    let tenant = Some(request.tenant.as_str()).filter(|text| is_set(text));
    let tenant = tenant.map(|text| name::tenant("tenant", text)).transpose()?;
    let dag = Some(request.dag.as_str()).filter(|text| is_set(text));
    let dag = dag.map(|text| name::dag("dag", text)).transpose()?;
    let card = Some(request.card.as_str()).filter(|text| is_set(text));
    let card = card.map(|text| name::card("card", text)).transpose()?;
    let by = UsageGrouping::try_from(request.by).map_err(|_| {
        let text = format_args!("{} is no grouping; use 0 to 4", request.by);
        ApiError::in_field(ErrorReason::InvalidField, "by", text)
    })?;
    let project = Some(request.project.as_str()).filter(|text| is_set(text));
    let project = project.map(|text| name::project("project", text)).transpose()?;
    let start = seconds("start_time", request.start_time)?;
    let first = seconds("first_interval_time", request.first_interval_time)?;
    let (from, older_from) = match first {
        Some(first) if start.is_none_or(|start| start < first) => {
            let text = format_args!("{first} s is later than start_time; use an earlier time");
            return Err(ApiError::in_field(ErrorReason::InvalidField, "first_interval_time", text));
        }
        Some(_) => (first, start),
        None => (start, None),
    };
    let to = seconds("end_time", request.end_time)?;
    let (step, steps_max) = (request.step_seconds, STEPS_MAX);
    Ok(UsageQuery { tenant, dag, card, project, from, to, step, steps_max, by, older_from })
}

fn page_query(request: &v1::ListUsageRequest) -> Query {
    let time = |time: &Option<Timestamp>| time.map_or(String::new(), |time| time.to_string());
    Query::of("ListUsage")
        .with("tenant", &request.tenant)
        .with("dag", &request.dag)
        .with("card", &request.card)
        .with("start_time", &time(&request.start_time))
        .with("end_time", &time(&request.end_time))
        .with("step_seconds", &request.step_seconds.to_string())
        .with("by", &request.by.to_string())
        .with("project", &request.project)
        .with("first_interval_time", &time(&request.first_interval_time))
}

fn seconds(field: &str, time: Option<Timestamp>) -> Result<Option<u64>, ApiError> {
    let Some(time) = time else { return Ok(None) };
    u64::try_from(time.seconds).map(Some).map_err(|_| {
        let text = format_args!("{} s is out of range; use a time since 1970", time.seconds);
        ApiError::in_field(ErrorReason::InvalidField, field, text)
    })
}

impl UsageQuery {
    /// # Errors
    /// A tenant asks by projects: which tenants share one is not its business.
    fn check_caller(&self, caller: &Caller) -> Result<(), ApiError> {
        let field = match (&self.project, self.by) {
            (Some(_), _) => "project",
            (None, UsageGrouping::Project) => "by",
            (None, _) => return Ok(()),
        };
        if caller.tenant().is_none() {
            return Ok(());
        }
        let text = "projects are for operators; leave it out";
        Err(ApiError::in_field(ErrorReason::PermissionDenied, field, text))
    }

    fn selects(&self, account: &UsageAccount) -> bool {
        let is_dag =
            |dag: &DagName| dag.tenant == account.tenant && account.dag.as_ref() == Some(&dag.dag);
        self.tenant.as_ref().is_none_or(|tenant| *tenant == account.tenant)
            && self.project.as_ref().is_none_or(|of| account.project.as_ref() == Some(of))
            && self.dag.as_ref().is_none_or(is_dag)
            && self.card.as_ref().is_none_or(|card| account.key.card.as_ref() == Some(card))
    }

    /// First second that counts of an account. An account that began before the tenant was created may have usage of an earlier tenant
    /// with its name, and only whole intervals tell them apart. One that began later has none of it, so its first interval counts
    /// although it may begin before: intervals of an hour begin with the hour.
    fn first_second(&self, account: &UsageAccount, from: u64) -> u64 {
        let older_from = self.older_from.filter(|born| !account.is_since(*born));
        older_from.map_or(from, |older_from| from.max(older_from))
    }

    /// First second, second after the last, and length of a step.
    ///
    /// # Errors
    /// There would be too many steps.
    fn range(&self, closed: u64) -> Result<(u64, u64, u64), ApiError> {
        let to = self.to.unwrap_or(closed).min(closed.max(1));
        let from = self.from.unwrap_or(to.saturating_sub(DAY) / 3_600 * 3_600).min(to);
        let length = (to - from).max(1);
        let step = if self.step == 0 { length } else { self.step };
        let most = self.steps_max;
        if length.div_ceil(step) > most {
            let text = format_args!(
                "{length} s in steps of {step} s are {} steps, at most {most} are allowed; use a longer step or a \
                 shorter range",
                length.div_ceil(step)
            );
            return Err(ApiError::in_field(ErrorReason::InvalidField, "step_seconds", text));
        }
        Ok((from, to, step))
    }
}

/// The longest intervals that a step and the beginning of the range are a multiple of.
fn level_of(times: [u64; 3]) -> IntervalLevel {
    let fits =
        |level: &&IntervalLevel| times.iter().all(|time| time.is_multiple_of(level.interval()));
    IntervalLevel::ALL.iter().rev().find(fits).copied().unwrap_or(IntervalLevel::Fine)
}

/// The next `limit` entries in the order of their keys: group, then time. Time O(accounts) + O(pages of the range × accounts of the
/// groups that are listed).
fn add_up(
    store: &dyn Store,
    view: &UsageView,
    query: &UsageQuery,
    after: Option<&PageEnd>,
    limit: usize,
) -> Result<UsagePageOf, ApiError> {
    let closed = after.map_or(view.closed, |after| after.closed.min(view.closed));
    let (from, to, step) = query.range(closed)?;
    // One step as long as the range, and a range up to the last interval, may end anywhere.
    let end = if to < closed { to } else { 0 };
    let level = level_of([from, end, query.step]);
    let is_within = |account: &&UsageAccount| {
        let is_over = account.ended.is_some_and(|ended| ended + 2 * DAY < from);
        query.selects(account) && !is_over && first_start(account, FIRST_EARLIER) < to
    };
    let accounts = view.accounts.iter().filter(is_within);
    let mut accounts: Vec<(String, &UsageAccount)> =
        accounts.map(|account| (group(account, query.by), account)).collect();
    accounts.retain(|(group, _)| after.is_none_or(|after| after.is_before(group)));
    accounts.sort_by(|one, other| one.0.cmp(&other.0));
    let mut listed: Vec<(String, v1::UsageEntry)> = Vec::new();
    for of_group in accounts.chunk_by(|one, other| one.0 == other.0) {
        let mut sums: BTreeMap<u64, v1::UsageEntry> = BTreeMap::new();
        for (_, account) in of_group {
            let mut series = UsageSeries::new(from, to, step);
            let first = query.first_second(account, from);
            let level = if first == from { level } else { level_of([first, end, query.step]) };
            let read = add_account(store, view, account, (first, to, level), &mut series);
            read.map_err(|error| unreadable(&error))?;
            series.points().for_each(|point| add_point(&mut sums, account, &point, query.by));
        }
        let keyed = sums.into_iter().map(|(from, entry)| (key(&of_group[0].0, from), entry));
        listed.extend(keyed.filter(|(key, _)| after.is_none_or(|after| *key > after.key)));
        if listed.len() > limit {
            break;
        }
    }
    let has_more = listed.len() > limit;
    listed.truncate(limit);
    let last = listed.last().filter(|_| has_more);
    let next = last.map(|(key, _)| PageEnd { closed, key: key.clone() });
    Ok(UsagePageOf { usage: listed.into_iter().map(|(_, entry)| entry).collect(), next })
}

fn add_point(
    sums: &mut BTreeMap<u64, v1::UsageEntry>,
    account: &UsageAccount,
    point: &Point,
    by: UsageGrouping,
) {
    let entry = entry(account, point, by);
    match sums.get_mut(&point.from) {
        Some(before) => add_usage(before, &entry),
        None => {
            sums.insert(point.from, entry);
        }
    }
}

/// Key of the group that an account is added up in.
fn group(account: &UsageAccount, by: UsageGrouping) -> String {
    let tenant = account.tenant.as_str();
    let card = account.key.card.as_ref().map_or("", CardId::as_str);
    match by {
        UsageGrouping::Tenant => format!("{tenant}|"),
        UsageGrouping::Card => format!("{tenant}|{card}|"),
        UsageGrouping::Project => account.project.as_ref().map_or("", ProjectId::as_str).to_owned(),
        UsageGrouping::Unspecified | UsageGrouping::Dag => {
            let dag = account.dag.as_ref().map_or("", |dag| dag.as_str());
            let uid = match &account.key.part {
                AccountPart::Dag(uid) => uid.raw(),
                AccountPart::Rest(_) | AccountPart::Tenant(..) => 0,
            };
            format!("{tenant}|{card}|{dag}|{uid:08x}")
        }
    }
}

/// Key of a group's entry.
fn key(group: &str, from: u64) -> String {
    format!("{group}|{from:012}")
}

fn unreadable(error: &StoreError) -> ApiError {
    tracing::error!(%error, "records of usage cannot be read");
    let text = "usage cannot be read; see the server's log for the cause";
    ApiError::new(ErrorReason::StoreUnavailable, text)
}

/// Second before which no interval of an account begins. One that does not say when its first interval began was begun at most so many
/// seconds after that.
fn first_start(account: &UsageAccount, earlier: u64) -> u64 {
    account.first.unwrap_or(account.begun.saturating_sub(earlier))
}

/// Adds what one account has in a range. Time O(pages of the range).
fn add_account(
    store: &dyn Store,
    view: &UsageView,
    account: &UsageAccount,
    (from, to, level): (u64, u64, IntervalLevel),
    series: &mut UsageSeries,
) -> Result<(), StoreError> {
    for part in parts(view, (from, to, level)) {
        let begun = PageRange { from: part.from.max(first_start(account, DAY)), ..part };
        for start in begun.pages() {
            let key = UsageKey::FullPage(account.key.clone(), part.level, start);
            let Some(bytes) = store.get(&key.to_string())? else { continue };
            match serde_json::from_slice::<ReadPage>(&bytes) {
                Ok(page) => series.add_read(part, &page),
                Err(error) => return Err(StoreError::Stopped(format!("{key}: {error}"))),
            }
        }
        // What is in pages of shorter intervals is not in those of longer ones yet.
        let is_last = part.to == to;
        for (open, page) in &account.open {
            if *open == part.level || is_last && *open < part.level {
                series.add(part, page);
            }
        }
    }
    Ok(())
}

/// Parts of the range, each with the length of intervals that it is read from: `level`, and longer ones where it is not kept any more.
fn parts(view: &UsageView, (from, to, level): (u64, u64, IntervalLevel)) -> Vec<PageRange> {
    let kept = view.kept.ranges(from, to);
    let mut parts: Vec<PageRange> = Vec::new();
    for range in kept.into_iter().filter(|range| range.from < range.to) {
        let level = range.level.max(level);
        match parts.last_mut() {
            Some(last) if last.level == level => last.to = range.to,
            _ => parts.push(PageRange { level, ..range }),
        }
    }
    parts
}

const fn timestamp(second: u64) -> Timestamp {
    Timestamp { seconds: second as i64, nanos: 0 }
}

fn entry(account: &UsageAccount, point: &Point, by: UsageGrouping) -> v1::UsageEntry {
    let is_by_dag = matches!(by, UsageGrouping::Unspecified | UsageGrouping::Dag);
    let dag = account
        .dag
        .as_ref()
        .filter(|_| is_by_dag)
        .map(|dag| DagName { tenant: account.tenant.clone(), dag: dag.clone() }.to_string());
    let uid = match &account.key.part {
        AccountPart::Dag(uid) if is_by_dag => uid.raw(),
        _ => 0,
    };
    let is_by_project = by == UsageGrouping::Project;
    let project = account.project.as_ref().filter(|_| is_by_project);
    let has_card = !is_by_project && by != UsageGrouping::Tenant;
    let card = account.key.card.as_ref().filter(|_| has_card);
    let card = card.map(name::of_card).unwrap_or_default();
    let amounts = &point.amounts;
    let of = |meter| amounts.get(meter);
    v1::UsageEntry {
        tenant: if is_by_project { String::new() } else { name::of_tenant(&account.tenant) },
        dag: dag.unwrap_or_default(),
        uid,
        card,
        start_time: Some(timestamp(point.from)),
        end_time: Some(timestamp(point.to)),
        life_ms: of(Meter::Life),
        promised_kbit: of(Meter::Promised),
        region_ms: of(Meter::Regions),
        bytes_in: of(Meter::BytesIn),
        bytes_served: of(Meter::BytesServed),
        packets_in: of(Meter::PacketsIn),
        packets_served: of(Meter::PacketsServed),
        drops: drops(amounts),
        gaps: gaps(amounts),
        area_ppm_seconds: of(Meter::Area),
        memory_mib_ms: of(Meter::Memory),
        loads: of(Meter::Loads),
        function_ms: of(Meter::Functions),
        nts: nts(account, amounts),
        promise_ms: of(Meter::PromiseTime),
        promise_unknown_ms: of(Meter::PromiseUnknown),
        broken: broken(amounts),
        api_calls: of(Meter::ApiCalls),
        stored_byte_seconds: of(Meter::Stored),
        project: project.map(name::of_project).unwrap_or_default(),
        bytes_beyond_promise: of(Meter::BytesBeyond),
        packets_beyond_promise: of(Meter::PacketsBeyond),
    }
}

fn broken(amounts: &UsageAmounts) -> Vec<v1::UsageBreak> {
    let all = BreakCause::ALL.into_iter();
    let all = all.map(|cause| (cause, amounts.get(Meter::PromiseBroken(cause))));
    let broken = all.filter(|(_, millis)| *millis > 0);
    broken.map(|(cause, millis)| v1::UsageBreak { cause: cause.word().into(), millis }).collect()
}

/// Time by NT type, in the order of names; types that the account does not count by themselves come last.
fn nts(account: &UsageAccount, amounts: &UsageAmounts) -> Vec<v1::UsageNtTime> {
    let named = (0..).zip(account.nts.iter().map(name::of_nt_type));
    let others = (u8::try_from(ACCOUNT_NTS_MAX).unwrap_or(u8::MAX), String::new());
    let times = named.chain([others]).map(|(place, nt_type)| v1::UsageNtTime {
        nt_type,
        instance_ms: amounts.get(Meter::Nt(place)),
    });
    let mut times: Vec<v1::UsageNtTime> = times.filter(|time| time.instance_ms > 0).collect();
    sort_nt_times(&mut times);
    times
}

fn drops(amounts: &UsageAmounts) -> Vec<v1::UsageDrops> {
    let drops = DropCause::ALL.into_iter().map(|cause| (cause, amounts.get(Meter::Dropped(cause))));
    let drops = drops.filter(|(_, packets)| *packets > 0);
    drops.map(|(cause, packets)| v1::UsageDrops { cause: cause_word(cause), packets }).collect()
}

/// Word of a cause: `RATE_LIMITED` of `RateLimited`.
fn cause_word(cause: DropCause) -> String {
    let mut word = String::new();
    for letter in format!("{cause:?}").chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_uppercase());
    }
    word
}

fn gaps(amounts: &UsageAmounts) -> Vec<v1::UsageGap> {
    let gaps = Gap::ALL.into_iter().map(|gap| (gap, amounts.get(Meter::Gap(gap))));
    let gaps = gaps.filter(|(_, millis)| *millis > 0);
    let word = |gap: Gap| gap.name().trim_start_matches("gap_").to_ascii_uppercase();
    gaps.map(|(gap, millis)| v1::UsageGap { reason: word(gap), millis }).collect()
}

#[cfg(test)]
mod tests;
