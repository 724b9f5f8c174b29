//! Sums of calls by tenant and step.

use std::collections::BTreeMap;

use snic_domain::TenantId;

use super::{CallKey, CallRecord, DAY};

/// Calls that began in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StepCalls {
    /// Second after the step, or after its last interval.
    end: u64,
    calls: u64,
}

/// Sums of calls by tenant and step. An interval is never divided: it counts in the step in which it begins.
#[derive(Debug, Clone)]
pub struct CallSums {
    from: u64,
    to: u64,
    step: u64,
    sums: BTreeMap<(TenantId, u64), StepCalls>,
}

impl CallSums {
    /// Steps of `step` seconds in the range from `from` to before `to`; of 0: the whole range is one.
    pub fn new(from: u64, to: u64, step: u64) -> Self {
        let step = if step == 0 { to.saturating_sub(from).max(1) } else { step };
        Self { from, to, step, sums: BTreeMap::new() }
    }

    /// Beginning of the step that a second is in.
    pub const fn step_of(&self, second: u64) -> u64 {
        self.from + second.saturating_sub(self.from) / self.step * self.step
    }

    /// Second after the step that begins in this one.
    pub fn end_of(&self, step: u64) -> u64 {
        step.saturating_add(self.step).min(self.to)
    }

    /// Days of which there may be something in the range.
    pub const fn days(&self) -> std::ops::RangeInclusive<u64> {
        self.from / DAY..=self.to.saturating_sub(1) / DAY
    }

    /// Adds the intervals of a record that begin in the range.
    pub fn add(&mut self, key: &CallKey, record: &CallRecord) {
        let length = u64::from(record.interval_minutes) * 60;
        for (minute, calls) in record.calls.iter() {
            let begin = key.day * DAY + u64::from(minute) * 60;
            if !(self.from..self.to).contains(&begin) {
                continue;
            }
            let step = self.step_of(begin);
            let end = self.end_of(step);
            let group = (key.tenant.clone(), step);
            let sum = self.sums.entry(group).or_insert(StepCalls { end, calls: 0 });
            sum.calls = sum.calls.saturating_add(calls);
            sum.end = sum.end.max(begin + length);
        }
    }

    /// Number of sums.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Tenant, first second, second after the last, and calls of each step with calls, by tenant and time.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, u64, u64, u64)> {
        self.sums.iter().map(|((tenant, from), sum)| (tenant, *from, sum.end, sum.calls))
    }
}
