//! Sums of usage, and how far promises were kept by them: the same at a host and at a fleet.

use prost_types::Timestamp;
use snic_usage::{Meter, PricedCount};

use crate::error::ApiError;
use crate::v1;
use crate::v1::ErrorReason;

/// Windows of burn rates in seconds: the shorter and the longer ones of alerts.
pub const BURN_WINDOWS: [u64; 4] = [300, 3_600, 6 * 3_600, 3 * DAY];
/// Most outages of a reply.
pub const OUTAGES_MAX: usize = 16;
/// Seconds of a day.
const DAY: u64 = 86_400;
/// All of a time.
const WHOLE: u64 = 1_000_000;

/// Part of an entry that a price is for.
pub fn priced_count(entry: &v1::UsageEntry, of: &PricedCount) -> u64 {
    match of {
        PricedCount::Meter(Meter::Life) => entry.life_ms,
        PricedCount::Meter(Meter::Promised) => entry.promised_kbit,
        PricedCount::Meter(Meter::Regions) => entry.region_ms,
        PricedCount::Meter(Meter::BytesIn) => entry.bytes_in,
        PricedCount::Meter(Meter::BytesServed) => entry.bytes_served,
        PricedCount::Meter(Meter::PacketsIn) => entry.packets_in,
        PricedCount::Meter(Meter::PacketsServed) => entry.packets_served,
        PricedCount::Meter(Meter::BytesBeyond) => entry.bytes_beyond_promise,
        PricedCount::Meter(Meter::PacketsBeyond) => entry.packets_beyond_promise,
        PricedCount::Meter(Meter::Area) => entry.area_ppm_seconds,
        PricedCount::Meter(Meter::Memory) => entry.memory_mib_ms,
        PricedCount::Meter(Meter::Loads) => entry.loads,
        PricedCount::Meter(Meter::Functions) => entry.function_ms,
        PricedCount::Meter(Meter::ApiCalls) => entry.api_calls,
        PricedCount::Meter(Meter::Stored) => entry.stored_byte_seconds,
        // No price is for it.
        PricedCount::Meter(_) => 0,
        PricedCount::Nt(nt) => {
            let is_own =
                |time: &&v1::UsageNtTime| time.nt_type.rsplit('/').next() == Some(nt.as_str());
            let own = entry.nts.iter().filter(is_own);
            own.map(|time| time.instance_ms).fold(0, u64::saturating_add)
        }
    }
}

/// Adds an entry of the same group and step.
pub fn add_usage(sum: &mut v1::UsageEntry, other: &v1::UsageEntry) {
    let plus = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
    plus(&mut sum.life_ms, other.life_ms);
    plus(&mut sum.promised_kbit, other.promised_kbit);
    plus(&mut sum.region_ms, other.region_ms);
    plus(&mut sum.bytes_in, other.bytes_in);
    plus(&mut sum.bytes_served, other.bytes_served);
    plus(&mut sum.packets_in, other.packets_in);
    plus(&mut sum.packets_served, other.packets_served);
    plus(&mut sum.bytes_beyond_promise, other.bytes_beyond_promise);
    plus(&mut sum.packets_beyond_promise, other.packets_beyond_promise);
    plus(&mut sum.area_ppm_seconds, other.area_ppm_seconds);
    plus(&mut sum.memory_mib_ms, other.memory_mib_ms);
    plus(&mut sum.loads, other.loads);
    plus(&mut sum.function_ms, other.function_ms);
    plus(&mut sum.promise_ms, other.promise_ms);
    plus(&mut sum.promise_unknown_ms, other.promise_unknown_ms);
    plus(&mut sum.api_calls, other.api_calls);
    plus(&mut sum.stored_byte_seconds, other.stored_byte_seconds);
    for broken in &other.broken {
        match sum.broken.iter_mut().find(|sum| sum.cause == broken.cause) {
            Some(sum) => plus(&mut sum.millis, broken.millis),
            None => sum.broken.push(broken.clone()),
        }
    }
    for time in &other.nts {
        match sum.nts.iter_mut().find(|sum| sum.nt_type == time.nt_type) {
            Some(sum) => plus(&mut sum.instance_ms, time.instance_ms),
            None => sum.nts.push(time.clone()),
        }
    }
    sort_nt_times(&mut sum.nts);
    let later = |time: &Option<Timestamp>| time.map_or(0, |time| time.seconds);
    if later(&other.end_time) > later(&sum.end_time) {
        sum.end_time = other.end_time;
    }
    for drops in &other.drops {
        match sum.drops.iter_mut().find(|sum| sum.cause == drops.cause) {
            Some(sum) => plus(&mut sum.packets, drops.packets),
            None => sum.drops.push(drops.clone()),
        }
    }
    for gap in &other.gaps {
        match sum.gaps.iter_mut().find(|sum| sum.reason == gap.reason) {
            Some(sum) => plus(&mut sum.millis, gap.millis),
            None => sum.gaps.push(gap.clone()),
        }
    }
}

/// Brings times of NT types into the order of their names; that of all others is last.
pub fn sort_nt_times(times: &mut [v1::UsageNtTime]) {
    times.sort_by(|one, other| {
        let key = |time: &v1::UsageNtTime| (time.nt_type.is_empty(), time.nt_type.clone());
        key(one).cmp(&key(other))
    });
}

/// The objective of a request; `None` for the operator's.
///
/// # Errors
/// It is out of range.
pub fn slo_objective(ppm: u32) -> Result<Option<u32>, ApiError> {
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

/// First second of a window of a burn rate that ends with this second: that of an interval which is still kept for all of the window.
pub const fn burn_begin(end: u64, window_seconds: u64) -> u64 {
    let interval = match window_seconds {
        ..=3_600 => 10,
        3_601..=DAY => 60,
        _ => 3_600,
    };
    end.saturating_sub(window_seconds) / interval * interval
}

/// Times of promises, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromisedTime {
    known: u64,
    broken: u64,
}

impl PromisedTime {
    /// Those of a sum of usage.
    pub fn of(total: &v1::UsageEntry) -> Self {
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
    pub fn burn_thousandths(self, objective: u32) -> u64 {
        let allowed = u128::from(WHOLE.saturating_sub(objective.into()));
        let broken = u128::from(self.broken) * u128::from(WHOLE) * 1_000;
        let rate = broken.checked_div(u128::from(self.known) * allowed).unwrap_or(0);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Availability by a sum of usage, beside an objective; without burn rates, outages and a name.
pub fn slo_of_sum(total: v1::UsageEntry, objective_ppm: u32) -> v1::GetSloResponse {
    let promised = PromisedTime::of(&total);
    let budget_ms = promised.budget_ms(objective_ppm);
    let left = i128::from(budget_ms) - i128::from(promised.broken);
    v1::GetSloResponse {
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
        ..v1::GetSloResponse::default()
    }
}
