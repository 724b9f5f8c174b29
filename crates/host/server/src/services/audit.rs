//! Reading the audit log.

use prost_types::Timestamp;
use snic_api::error::ApiError;
use snic_api::list::ListSelection;
use snic_api::names::{ResourceName as _, TenantName};
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::audit_service_server::AuditService;
use snic_audit::Filter;
use snic_domain::Caller;
use snic_front::gate::caller;
use tonic::{Request, Response};

use super::{RpcResult, Services, page};

#[tonic::async_trait]
impl AuditService for Services {
    async fn list_audit_entries(
        &self,
        request: Request<v1::ListAuditEntriesRequest>,
    ) -> RpcResult<v1::ListAuditEntriesResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let filter = filter(&caller, &request)?;
        let query = query(&request);
        let page = page(query.clone(), request.page_size, &request.page_token)?;
        let before = page.after().and_then(|key| key.parse().ok());
        let log = self.0.audit.clone().ok_or_else(no_audit_log)?;
        let limit = page.limit();
        let read = move || log.read(&filter, before, limit);
        let read = self.0.workshop.run(&caller, read).await?;
        let (entries, next) = read.map_err(|error| unreadable(&error))?;
        let token = |number: u64| query.token_after(&number.to_string());
        Ok(Response::new(v1::ListAuditEntriesResponse {
            entries: entries.iter().map(|entry| entry.to_wire(&caller)).collect(),
            next_page_token: next.map_or(String::new(), token),
        }))
    }
}

fn unreadable(error: &std::io::Error) -> ApiError {
    tracing::error!(%error, "the audit log cannot be read");
    let text = "the audit log cannot be read; see the server's log for the cause";
    ApiError::new(ErrorReason::StoreUnavailable, text)
}

fn no_audit_log() -> ApiError {
    let text = "this server keeps no audit log; an operator can enable it in the settings";
    ApiError::new(ErrorReason::InvalidState, text)
}

fn query(request: &v1::ListAuditEntriesRequest) -> Query {
    let time = |time: &Option<Timestamp>| time.map_or(String::new(), |time| time.to_string());
    let query = Query::of("ListAuditEntries")
        .with("tenant", &request.tenant)
        .with("caller", &request.caller)
        .with("method", &request.method)
        .with("start_time", &time(&request.start_time))
        .with("end_time", &time(&request.end_time));
    if request.filter.is_empty() { query } else { query.with("filter", &request.filter) }
}

fn filter(reader: &Caller, request: &v1::ListAuditEntriesRequest) -> Result<Filter, ApiError> {
    if !request.tenant.is_empty() {
        TenantName::parse(&request.tenant).map_err(|e| ApiError::invalid_name("tenant", &e))?;
    }
    let nanos = |field: &str, time: Option<Timestamp>, default: u64| {
        let Some(time) = time else { return Ok(default) };
        let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        u64::try_from(nanos).map_err(|_| {
            let text = format_args!("{} s is out of range (1970 to 2554)", time.seconds);
            ApiError::in_field(ErrorReason::InvalidField, field, text)
        })
    };
    let from = nanos("start_time", request.start_time, 0)?;
    let to = nanos("end_time", request.end_time, u64::MAX)?;
    Ok(Filter {
        reader: reader.clone(),
        tenant: request.tenant.clone(),
        caller: request.caller.clone(),
        method: request.method.clone(),
        times: (from, to),
        selection: ListSelection::parse::<v1::AuditEntry>(&request.filter, "")?,
    })
}
