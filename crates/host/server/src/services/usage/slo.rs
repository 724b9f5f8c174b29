//! Promises as objectives: availability, budgets, and how fast they are used up, computed from usage.

use prost_types::Timestamp;
use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::usage::{BURN_WINDOWS, OUTAGES_MAX, PromisedTime, burn_begin, slo_of_sum};
use snic_api::v1;
use snic_controller::UsageView;
use snic_domain::DagName;
use snic_ports::store::Store;

use super::{DAY, UsageQuery, account_of, timestamp};

/// Seconds of the range where a request names none.
const MONTH: u64 = 30 * DAY;
/// Availability of the promises of one tenant or DAG beside an objective. Time O(accounts × pages of the range).
///
/// # Errors
/// The store cannot be read.
pub(super) fn slo_of(
    store: &dyn Store,
    view: &UsageView,
    query: &UsageQuery,
    objective: Option<u32>,
) -> Result<v1::GetSloResponse, ApiError> {
    let objective_ppm = objective.unwrap_or(view.availability_ppm);
    let to = query.to.unwrap_or(view.closed).min(view.closed);
    let from = query.from.unwrap_or(to.saturating_sub(MONTH) / 3_600 * 3_600);
    let sum = |from: u64, to: Option<u64>| -> Result<v1::UsageEntry, ApiError> {
        let part = UsageQuery { from: Some(from), to, ..query.clone() };
        Ok(account_of(store, view, &part)?.total.unwrap_or_default())
    };
    let total = sum(from, query.to)?;
    let mut burns = Vec::new();
    for window_seconds in BURN_WINDOWS {
        let from = burn_begin(view.closed, window_seconds);
        let known = PromisedTime::of(&sum(from, None)?);
        let rate_thousandths = known.burn_thousandths(objective_ppm);
        burns.push(v1::SloBurn { window_seconds, rate_thousandths });
    }
    Ok(v1::GetSloResponse {
        name: query.dag.as_ref().map_or(total.tenant.clone(), DagName::to_string),
        burns,
        outages: outages(view, query, (from, to)),
        ..slo_of_sum(total, objective_ppm)
    })
}

/// The latest outages in a range, the latest first.
fn outages(view: &UsageView, query: &UsageQuery, (from, to): (u64, u64)) -> Vec<v1::SloOutage> {
    let accounts = view.accounts.iter().filter(|account| query.selects(account));
    let all = accounts.flat_map(|account| account.outages.iter().map(move |of| (account, of)));
    let is_within =
        |start: u64, end: u64| end > from.saturating_mul(1_000) && start / 1_000 < to.max(from);
    let mut all: Vec<_> = all.filter(|(_, of)| is_within(of.start_ms, of.end_ms)).collect();
    all.sort_by_key(|(_, of)| std::cmp::Reverse(of.start_ms));
    all.truncate(OUTAGES_MAX);
    let shown = all.into_iter().map(|(account, of)| {
        let dag = account.dag.clone().map(|dag| DagName { tenant: account.tenant.clone(), dag });
        v1::SloOutage {
            dag: dag.map(|dag| dag.to_string()).unwrap_or_default(),
            card: account.key.card.as_ref().map(name::of_card).unwrap_or_default(),
            cause: of.cause.word().into(),
            start_time: Some(at_millis(of.start_ms)),
            end_time: Some(at_millis(of.end_ms)),
        }
    });
    shown.collect()
}

const fn at_millis(millis: u64) -> Timestamp {
    let nanos = (millis % 1_000 * 1_000_000) as i32;
    Timestamp { nanos, ..timestamp(millis / 1_000) }
}
