//! `snicctl usage`.

use std::time::UNIX_EPOCH;

use prost_types::Timestamp;
use snic_api::v1::{ListUsageRequest, UsageEntry, UsageGrouping};
use snic_client::lists::PAGE_SIZE;
use snic_client::output::usage as views;
use snic_client::{Failure, call, names};

use super::CliSession;
use crate::args::{Moment, UsageOptions};

pub async fn run(session: &mut CliSession, options: UsageOptions) -> Result<(), Failure> {
    let tenant = options.of.map(|tenant| names::tenant(&tenant)).transpose()?;
    let dag = options.dag.map(|dag| names::dag(&dag, session.tenant()?.as_deref())).transpose()?;
    let card = options.card.map(|card| names::card(&card)).transpose()?;
    let request = ListUsageRequest {
        page_size: PAGE_SIZE,
        tenant: tenant.unwrap_or_default(),
        dag: dag.unwrap_or_default(),
        card: card.unwrap_or_default(),
        start_time: options.from.map(timestamp),
        end_time: options.to.map(timestamp),
        step_seconds: options.step.map_or(0, |step| step.as_secs()),
        by: UsageGrouping::from(options.by).into(),
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
            break;
        }
    }
    match options.csv {
        true => session.output.raw(views::csv(&usage).as_bytes()),
        false => session.output.many(&usage, views::table),
    }
}

fn timestamp(moment: Moment) -> Timestamp {
    let since = moment.0.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: 0 }
}
