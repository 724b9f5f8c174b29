//! Usage over a range of time, by steps.

use std::collections::BTreeMap;

use crate::meter::UsageAmounts;
use crate::pages::{PageRange, ReadPage, StoredInterval, UsagePage};

/// Usage of one step. What is in it began in it; an interval is never divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// First second.
    pub from: u64,
    /// Second after the last: the end of the last interval that began in it, if that is later than the step's.
    pub to: u64,
    /// Sum of the intervals that began in it.
    pub amounts: UsageAmounts,
}

/// Collects intervals into steps.
#[derive(Debug, Clone)]
pub struct UsageSeries {
    from: u64,
    to: u64,
    step: u64,
    points: BTreeMap<u64, Point>,
}

impl UsageSeries {
    /// Steps of `step` seconds, at least one, in the range from `from` to before `to`.
    pub const fn new(from: u64, to: u64, step: u64) -> Self {
        let step = if step == 0 { 1 } else { step };
        Self { from, to, step, points: BTreeMap::new() }
    }

    /// Adds the intervals of a page that begin in this part of the range.
    pub fn add(&mut self, part: PageRange, page: &UsagePage) {
        self.add_all(part, page.stored());
    }

    /// Adds the intervals of a page from the store that begin in this part of the range.
    pub fn add_read(&mut self, part: PageRange, page: &ReadPage) {
        self.add_all(part, page.stored());
    }

    fn add_all<L: Iterator<Item = u64> + Clone>(
        &mut self,
        part: PageRange,
        stored: impl Iterator<Item = StoredInterval<L>>,
    ) {
        let range = part.from.max(self.from)..part.to.min(self.to);
        stored
            .filter(|interval| range.contains(&interval.start))
            .for_each(|interval| self.add_interval(&interval));
    }

    /// Adds an interval that begins in the range.
    fn add_interval<L: Iterator<Item = u64> + Clone>(&mut self, interval: &StoredInterval<L>) {
        let from = self.from + (interval.start - self.from) / self.step * self.step;
        let to = from.saturating_add(self.step).min(self.to);
        let point =
            self.points.entry(from).or_insert(Point { from, to, amounts: UsageAmounts::default() });
        point.to = point.to.max(interval.end());
        interval.add_to(&mut point.amounts);
    }

    /// The steps with usage, the first one first.
    pub fn points(self) -> impl Iterator<Item = Point> {
        self.points.into_values()
    }
}
