//! Promises as objectives: availability, budgets, and how fast they are used up, computed from usage.

use prost_types::Timestamp;
use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_controller::UsageView;
use snic_domain::DagName;
use snic_ports::store::Store;

use super::{DAY, UsageQuery, account_of, timestamp};

/// Seconds of the range where a request names none.
const MONTH: u64 = 30 * DAY;
/// Windows of burn rates in seconds: the shorter and the longer ones of alerts.
const WINDOWS: [u64; 4] = [300, 3_600, 6 * 3_600, 3 * DAY];
/// Most outages of a reply.
const OUTAGES_MAX: usize = 16;
/// All of a time.
const WHOLE: u64 = 1_000_000;

/// The objective of a request; `None` for the operator's.
///
/// # Errors
/// It is out of range.
pub(super) fn objective(ppm: u32) -> Result<Option<u32>, ApiError> {
    match ppm {
        0 => Ok(None),
        500_000..=999_999 => Ok(Some(ppm)),
        _ => {
            let text =
                format_args!("{ppm} millionths are no objective; use 500000 to 999999, or 0");
            Err(ApiError::in_field(ErrorReason::InvalidField, "objective_ppm", text))
        }
    }
}

/// Times of promises, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Promised {
    known: u64,
    broken: u64,
}

impl Promised {
    fn of(total: &v1::UsageEntry) -> Self {
        let broken = total.broken.iter().map(|broken| broken.millis);
        Self {
            known: total.promise_ms.saturating_sub(total.promise_unknown_ms),
            broken: broken.fold(0, u64::saturating_add),
        }
    }

    fn availability_ppm(self) -> u32 {
        let kept = u128::from(self.known.saturating_sub(self.broken)) * u128::from(WHOLE);
        let ppm = kept.checked_div(self.known.into()).unwrap_or(WHOLE.into());
        u32::try_from(ppm).unwrap_or(u32::MAX)
    }

    /// Time that may be broken by an objective.
    fn budget_ms(self, objective: u32) -> u64 {
        let allowed = u128::from(WHOLE.saturating_sub(objective.into()));
        u64::try_from(u128::from(self.known) * allowed / u128::from(WHOLE)).unwrap_or(u64::MAX)
    }

    /// Thousandths of the speed at which exactly the budget is used up.
    fn burn_thousandths(self, objective: u32) -> u64 {
        let allowed = u128::from(WHOLE.saturating_sub(objective.into()));
        let broken = u128::from(self.broken) * u128::from(WHOLE) * 1_000;
        let rate = broken.checked_div(u128::from(self.known) * allowed).unwrap_or(0);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

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
    let promised = Promised::of(&total);
    let mut burns = Vec::new();
    for window_seconds in WINDOWS {
        // Intervals of this length are still kept for all of the window.
        let interval = match window_seconds {
            ..=3_600 => 10,
            3_601..=DAY => 60,
            _ => 3_600,
        };
        let from = view.closed.saturating_sub(window_seconds) / interval * interval;
        let rate_thousandths = Promised::of(&sum(from, None)?).burn_thousandths(objective_ppm);
        burns.push(v1::SloBurn { window_seconds, rate_thousandths });
    }
    let budget_ms = promised.budget_ms(objective_ppm);
    let left = i128::from(budget_ms) - i128::from(promised.broken);
    Ok(v1::GetSloResponse {
        name: query.dag.as_ref().map(DagName::to_string).unwrap_or(total.tenant),
        start_time: total.start_time,
        end_time: total.end_time,
        promise_ms: total.promise_ms,
        unknown_ms: total.promise_unknown_ms,
        broken_ms: promised.broken,
        broken: total.broken,
        availability_ppm: promised.availability_ppm(),
        objective_ppm,
        budget_ms,
        budget_left_ms: i64::try_from(left).unwrap_or(i64::MIN),
        burns,
        outages: outages(view, query, (from, to)),
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
            card: name::of_card(&account.key.card),
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
