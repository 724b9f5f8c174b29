//! `snicctl audit`.

use std::time::UNIX_EPOCH;

use prost_types::Timestamp;
use snic_api::v1::{AuditEntry, ListAuditEntriesRequest};

use super::CliSession;
use crate::args::{AuditQuery, Moment};
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::lists::PAGE_SIZE;
use snic_client::names;
use snic_client::output::audit as views;

/// Prints the latest entries, oldest first.
pub async fn run(session: &mut CliSession, query: AuditQuery) -> Result<(), Failure> {
    let client = session.client()?;
    let limit = query.limit;
    let tenant = query.of.map(|tenant| names::tenant(&tenant)).transpose()?;
    let request = ListAuditEntriesRequest {
        tenant: tenant.unwrap_or_default(),
        caller: query.caller.unwrap_or_default(),
        method: query.method.unwrap_or_default(),
        start_time: query.since.map(timestamp),
        end_time: query.until.map(timestamp),
        filter: query.filter,
        ..Default::default()
    };
    let mut entries = latest(&client, request, limit).await?;
    entries.reverse();
    session.output.many(&entries, views::entries)
}

/// Reads pages until there are enough entries; the log may be long.
async fn latest(
    client: &Client,
    request: ListAuditEntriesRequest,
    limit: usize,
) -> Result<Vec<AuditEntry>, Failure> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let left = i32::try_from(limit - all.len()).unwrap_or(PAGE_SIZE);
        let page_size = left.min(PAGE_SIZE);
        let request = ListAuditEntriesRequest { page_size, page_token, ..request.clone() };
        let reply = call!(client, audit.list_audit_entries, request)?;
        all.extend(reply.entries);
        page_token = reply.next_page_token;
        if page_token.is_empty() || all.len() >= limit {
            all.truncate(limit);
            return Ok(all);
        }
    }
}

fn timestamp(moment: Moment) -> Timestamp {
    let since = moment.0.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0) }
}
