//! Usage of the fleet: what its hosts have counted, added up, and calls that its replicas have counted, which are in etcd.
//!
//! ```text
//!  operators, by DAG or card ──► one host after the other, page by page
//!  sums, and tenants         ──► all hosts at once ──► merged by group and time
//! ```
//!
//! Hosts are asked as the operator `fleet`: a host forgets a tenant with its last DAG, and would tell it nothing of the time before when it
//! comes back. So hosts are told with tenants' questions when the fleet created them, and leave out what may be an earlier tenant's. A host that does not answer is a
//! gap of the length of the range; it is never counted as nothing.

mod calls;
mod hosts;
mod merge;
pub(crate) mod spending;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;
use snic_api::convert::{FieldProblem, name};
use snic_api::error::ApiError;
use snic_api::page::{PageRequest, Query};
use snic_api::usage::{BURN_WINDOWS, PromisedTime, burn_begin, slo_objective, slo_of_sum};
use snic_api::v1;
use snic_api::v1::usage_service_server::UsageService;
use snic_api::v1::{ErrorReason, UsageGrouping};
use snic_domain::{Caller, CardId, DagName, TenantId};
use snic_fleet::protocol::{FleetItem, FleetList, FleetName};
use snic_fleet::{HostId, ProjectId};
use snic_front::gate::caller;
use snic_front::share::{CallerFlow, CallerLevel, Permit};
use tonic::{Request, Response};

use super::{RpcResult, Services};

const DAY: u64 = 86_400;
/// Range of promises where a request names none.
const MONTH: u64 = 30 * DAY;
/// Most steps of one account: they come in one reply.
const ACCOUNT_STEPS_MAX: u64 = 1_000;
/// Objective where neither the request nor a host says one: that of the policies as they ship.
const OBJECTIVE_PPM: u32 = 999_000;

/// A question about usage, as the hosts are asked, and what is made of their answers.
#[derive(Debug, Clone)]
struct UsageQuestion {
    /// Request to a host, without a page.
    to_hosts: v1::ListUsageRequest,
    by: UsageGrouping,
    /// The tenant that asks; `None` for operators.
    own: Option<TenantId>,
    /// Host of the only card that is asked about.
    host: Option<HostId>,
    /// Names of the tenants that count, each with the project that it is in; `None`: all count, and projects do not matter.
    projects: Option<BTreeMap<String, String>>,
    /// First second, and the second after the last.
    range: (u64, u64),
    /// Second in which the fleet created the tenant that asks, where the range begins before.
    born: Option<u64>,
    /// Second in which the fleet created the tenant that asks.
    created: Option<u64>,
}

impl UsageQuestion {
    /// Whether entries of different hosts are never added up.
    fn is_by_host(&self) -> bool {
        self.own.is_none()
            && matches!(
                self.by,
                UsageGrouping::Unspecified | UsageGrouping::Dag | UsageGrouping::Card
            )
    }

    /// First second of which a tenant that asks can have usage, and the second after the last.
    fn own_range(&self) -> (u64, u64) {
        let (from, to) = self.range;
        (self.born.map_or(from, |born| born.min(to)), to)
    }

    /// Entry of a host that did not answer.
    fn gap(&self, host: &HostId) -> v1::UsageEntry {
        let (from, to) = self.own_range();
        let millis = to.saturating_sub(from).saturating_mul(1_000).max(1);
        let (tenant, card) = match &self.own {
            Some(own) => (name::of_tenant(own), String::new()),
            None => (String::new(), format!("hosts/{host}")),
        };
        v1::UsageEntry {
            tenant,
            card,
            start_time: Some(timestamp(from)),
            end_time: Some(timestamp(to)),
            gaps: vec![v1::UsageGap { reason: "HOST_UNREACHABLE".to_owned(), millis }],
            ..v1::UsageEntry::default()
        }
    }

    /// A host that did not answer, as far as the caller may know of it.
    fn unreachable(&self, host: &HostId, reason: String) -> v1::UnreachableHost {
        match self.own {
            Some(_) => v1::UnreachableHost::default(),
            None => v1::UnreachableHost { host: format!("hosts/{host}"), reason },
        }
    }

    /// Whether an entry of a host counts.
    fn selects(&self, entry: &v1::UsageEntry) -> bool {
        self.projects.as_ref().is_none_or(|of| of.contains_key(&entry.tenant))
    }
}

#[tonic::async_trait]
impl UsageService for Services {
    async fn list_usage(
        &self,
        request: Request<v1::ListUsageRequest>,
    ) -> RpcResult<v1::ListUsageResponse> {
        let caller = caller(&request)?;
        let _place = self.place_of_usage(&caller)?;
        let request = request.into_inner();
        let query = page_query(&request);
        let page = PageRequest::parse(query.clone(), request.page_size, &request.page_token);
        let page = page.map_err(|error| ApiError::invalid_page(&error))?;
        // Further pages are of the same range, although time passes.
        let after = page.after().map(PageEnd::parse).transpose()?;
        let begun = after.as_ref().map(|after| after.from);
        let Some(question) = self.question(&caller, request, begun).await? else {
            return Ok(Response::new(v1::ListUsageResponse::default()));
        };
        let key = after.as_ref().map(|after| after.key.as_str());
        let (mut reply, next) = match question.is_by_host() {
            true => self.host_by_host(&question, key, page.limit()).await?,
            false => {
                let mut merged = self.merged(&question).await?;
                let counted = self.counted_calls(&question).await?;
                merged.add_calls(&question, counted.entries);
                merged.add_gaps(counted.gaps);
                merged.page(&question, key, page.limit())
            }
        };
        let token = |key| PageEnd { from: question.range.0, key }.to_string();
        reply.next_page_token = next.map_or(String::new(), |key| query.token_after(&token(key)));
        Ok(Response::new(reply))
    }

    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> RpcResult<v1::GetUsageResponse> {
        let caller = caller(&request)?;
        let _place = self.place_of_usage(&caller)?;
        let v1::GetUsageRequest { name, start_time, end_time, step_seconds } = request.into_inner();
        let account = UsageAccountName::parse(&name)?;
        let question = self.account(&caller, &account, (start_time, end_time)).await?;
        let (from, to) = question.range;
        let steps = (to - from).max(1).div_ceil(step_seconds.max(1));
        if step_seconds > 0 && steps > ACCOUNT_STEPS_MAX {
            let text = format_args!(
                "{steps} steps, at most {ACCOUNT_STEPS_MAX} are allowed; use a longer step or a shorter range"
            );
            return Err(ApiError::in_field(ErrorReason::InvalidField, "step_seconds", text).into());
        }
        let to_hosts = v1::ListUsageRequest { step_seconds, ..question.to_hosts.clone() };
        let question = UsageQuestion { to_hosts, ..question };
        let mut merged = self.merged(&question).await?;
        let counted = self.counted_calls(&question).await?;
        merged.add_calls(&question, counted.entries);
        if merged.is_empty() {
            self.check_exists(&account).await?;
        }
        merged.add_gaps(counted.gaps);
        let total = merged.total(&question, &account);
        let unreachable_hosts = merged.unreachable(&question);
        let dag = account.dag.as_ref().map(DagName::to_string).unwrap_or_default();
        let of_account = |step| v1::UsageEntry { dag: dag.clone(), ..step };
        let steps = merged.into_entries().map(of_account).collect();
        Ok(Response::new(v1::GetUsageResponse { steps, total: Some(total), unreachable_hosts }))
    }

    async fn get_slo(&self, request: Request<v1::GetSloRequest>) -> RpcResult<v1::GetSloResponse> {
        let caller = caller(&request)?;
        let _place = self.place_of_usage(&caller)?;
        let request = request.into_inner();
        let asked = slo_objective(request.objective_ppm)?;
        let account = UsageAccountName::parse(&request.name)?;
        let end = seconds("end_time", request.end_time)?;
        let month = end.unwrap_or_else(now).saturating_sub(MONTH) / 3_600 * 3_600;
        let start = request.start_time.or(Some(timestamp(month)));
        let question = self.account(&caller, &account, (start, request.end_time)).await?;
        let merged = self.merged(&question).await?;
        if merged.is_empty() {
            self.check_exists(&account).await?;
        }
        let found = self.outages(&question, &request).await;
        let objective = asked.or(found.objective_ppm).unwrap_or(OBJECTIVE_PPM);
        let mut burns = Vec::new();
        for window_seconds in BURN_WINDOWS {
            let start = Some(timestamp(burn_begin(now(), window_seconds)));
            let window = self.account(&caller, &account, (start, None)).await?;
            let known = PromisedTime::of(&self.merged(&window).await?.total(&window, &account));
            let rate_thousandths = known.burn_thousandths(objective);
            burns.push(v1::SloBurn { window_seconds, rate_thousandths });
        }
        let unreachable_hosts = merged.unreachable(&question);
        Ok(Response::new(v1::GetSloResponse {
            name: request.name,
            burns,
            outages: found.outages,
            unreachable_hosts,
            ..slo_of_sum(merged.total(&question, &account), objective)
        }))
    }
}

impl Services {
    /// The place of a question about usage: each is many questions to hosts.
    fn place_of_usage(&self, caller: &Caller) -> Result<Permit, ApiError> {
        self.0.usage.places.enter(CallerLevel::of(caller), CallerFlow::from(caller))
    }

    /// The question of a list; `None` where a tenant asks about another one.
    ///
    /// # Errors
    /// A field is wrong, or is not for tenants.
    async fn question(
        &self,
        caller: &Caller,
        request: v1::ListUsageRequest,
        begun: Option<u64>,
    ) -> Result<Option<UsageQuestion>, ApiError> {
        let by = UsageGrouping::try_from(request.by).map_err(|_| {
            let text = format_args!("{} is no grouping; use 0 to 4", request.by);
            ApiError::in_field(ErrorReason::InvalidField, "by", text)
        })?;
        let own = caller.tenant().cloned();
        let operators_only = |field: &str, what: &str| {
            let text = format_args!("{what} are for operators; leave it out");
            Err(ApiError::in_field(ErrorReason::PermissionDenied, field, text))
        };
        match by {
            UsageGrouping::Card if own.is_some() => {
                return operators_only("by", "cards of a fleet");
            }
            UsageGrouping::Project if own.is_some() => return operators_only("by", "projects"),
            _ => {}
        }
        if own.is_some() && !request.project.is_empty() {
            return operators_only("project", "projects");
        }
        if own.is_some() && !request.card.is_empty() {
            return operators_only("card", "cards of a fleet");
        }
        let is_others = |named: &str| {
            own.as_ref().is_some_and(|own| !named.is_empty() && named != name::of_tenant(own))
        };
        if is_others(&request.tenant) {
            return Ok(None);
        }
        let (host, card) = card(&request.card)?;
        let range = range((request.start_time, request.end_time))?;
        let range = (begun.unwrap_or(range.0), range.1);
        let created = self.born(own.as_ref()).await?;
        let born = created.filter(|born| *born > range.0);
        let projects = self.projects(by, &request.project).await?;
        let to_hosts = v1::ListUsageRequest {
            tenant: own.as_ref().map_or(request.tenant, name::of_tenant),
            card,
            project: String::new(),
            // A host of an earlier version does not know the second field, and so tells less, never more.
            start_time: Some(timestamp(born.unwrap_or(range.0))),
            first_interval_time: born.map(|_| timestamp(range.0)),
            by: hosts_grouping(by).into(),
            page_size: 0,
            page_token: String::new(),
            ..request
        };
        Ok(Some(UsageQuestion { to_hosts, by, own, host, projects, range, born, created }))
    }

    /// The question about one tenant or DAG.
    ///
    /// # Errors
    /// There is no such tenant, the same as for another tenant's; or a time is wrong.
    async fn account(
        &self,
        caller: &Caller,
        account: &UsageAccountName,
        (start_time, end_time): (Option<Timestamp>, Option<Timestamp>),
    ) -> Result<UsageQuestion, ApiError> {
        if caller.tenant().is_some_and(|own| *own != account.tenant) {
            return Err(ApiError::not_found("tenant", &account.tenant));
        }
        let request = v1::ListUsageRequest {
            tenant: name::of_tenant(&account.tenant),
            dag: account.dag.as_ref().map(DagName::to_string).unwrap_or_default(),
            start_time,
            end_time,
            by: UsageGrouping::Tenant.into(),
            ..v1::ListUsageRequest::default()
        };
        let question = self.question(caller, request, None).await?;
        question.ok_or_else(|| ApiError::not_found("tenant", &account.tenant))
    }

    /// Whether the fleet has what nothing was used by.
    ///
    /// # Errors
    /// It has not.
    async fn check_exists(&self, account: &UsageAccountName) -> Result<(), ApiError> {
        let name = match &account.dag {
            Some(dag) => FleetName::Dag(dag.clone()),
            None => FleetName::Tenant(account.tenant.clone()),
        };
        self.item(&hosts::fleet(), name).await.map(drop)
    }

    /// Second in which the tenant that asks was created. It sees nothing of an earlier one that had its name.
    ///
    /// # Errors
    /// There is no such tenant.
    async fn born(&self, own: Option<&TenantId>) -> Result<Option<u64>, ApiError> {
        let Some(own) = own else { return Ok(None) };
        let item = self.item(&hosts::fleet(), FleetName::Tenant(own.clone())).await?;
        let FleetItem::Tenant(tenant) = item else {
            return Err(ApiError::not_found("tenant", own));
        };
        Ok(Some(tenant.meta.created.as_nanos() / 1_000_000_000))
    }

    /// Tenants of one project, or of all where usage is added up by them.
    async fn projects(
        &self,
        by: UsageGrouping,
        only: &str,
    ) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        if only.is_empty() && by != UsageGrouping::Project {
            return Ok(None);
        }
        let is_project = |id: &str| ProjectId::new(id).is_ok();
        if !only.is_empty() && !only.strip_prefix("projects/").is_some_and(is_project) {
            let rule = format_args!("{only:.80?} is not projects/<name>");
            return Err(FieldProblem::name("project", rule).into());
        }
        let (tenants, _) =
            self.piece(&hosts::fleet(), &FleetList::Tenants, None, usize::MAX).await?;
        let known = tenants.into_iter().filter_map(|item| match item {
            FleetItem::Tenant(of) => {
                let project = of.project.map(|project| format!("projects/{project}"));
                Some((name::of_tenant(&of.tenant.id), project.unwrap_or_default()))
            }
            _ => None,
        });
        Ok(Some(known.filter(|(_, project)| only.is_empty() || project == only).collect()))
    }
}

/// First second of a request, and the second after the last.
fn range(
    (start_time, end_time): (Option<Timestamp>, Option<Timestamp>),
) -> Result<(u64, u64), ApiError> {
    let to = seconds("end_time", end_time)?.unwrap_or_else(now);
    let from = seconds("start_time", start_time)?;
    let from = from.unwrap_or(to.saturating_sub(DAY) / 3_600 * 3_600);
    Ok((from.min(to), to))
}

/// Grouping that hosts are asked for.
const fn hosts_grouping(by: UsageGrouping) -> UsageGrouping {
    match by {
        UsageGrouping::Project => UsageGrouping::Tenant,
        other => other,
    }
}

/// A tenant, or a DAG of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UsageAccountName {
    tenant: TenantId,
    dag: Option<DagName>,
}

impl UsageAccountName {
    fn parse(text: &str) -> Result<Self, ApiError> {
        if text.contains("/dags/") {
            let dag = name::dag("name", text)?;
            return Ok(Self { tenant: dag.tenant.clone(), dag: Some(dag) });
        }
        Ok(Self { tenant: name::tenant("name", text)?, dag: None })
    }
}

/// The host of a card of a fleet, and the card's name there.
fn card(text: &str) -> Result<(Option<HostId>, String), ApiError> {
    if text.is_empty() {
        return Ok((None, String::new()));
    }
    let parts: Vec<&str> = text.split('/').collect();
    let ["hosts", host, "cards", card] = parts[..] else {
        let rule = format_args!("{text:.80?} is not hosts/<host>/cards/<card>");
        return Err(FieldProblem::name("card", rule).into());
    };
    let host = HostId::new(host).map_err(|error| FieldProblem::name("card", error))?;
    let card = CardId::new(card).map_err(|error| FieldProblem::name("card", error))?;
    Ok((Some(host), name::of_card(&card)))
}

/// End of a page: the beginning of the range, and the place in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PageEnd {
    from: u64,
    key: String,
}

impl std::fmt::Display for PageEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.from, self.key)
    }
}

impl PageEnd {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let end = text
            .split_once(' ')
            .and_then(|(from, key)| Some(Self { from: from.parse().ok()?, key: key.to_owned() }));
        end.ok_or_else(|| {
            let text =
                "this token is from another version of the server; begin with the first page";
            ApiError::in_field(ErrorReason::InvalidField, "page_token", text)
        })
    }
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
}

fn seconds(field: &str, time: Option<Timestamp>) -> Result<Option<u64>, ApiError> {
    let Some(time) = time else { return Ok(None) };
    u64::try_from(time.seconds).map(Some).map_err(|_| {
        let text = format_args!("{} s is out of range; use a time since 1970", time.seconds);
        ApiError::in_field(ErrorReason::InvalidField, field, text)
    })
}

const fn timestamp(second: u64) -> Timestamp {
    Timestamp { seconds: second as i64, nanos: 0 }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_secs())
}
