//! Usage of an account in the days of a month that are over.

use serde::{Deserialize, Serialize};

use crate::meter::UsageAmounts;
use crate::pages::{UsageInterval, UsagePage};
use crate::prices::Prices;

/// Usage of one account in the days of a month that are over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonthUsage {
    /// Second that the month begins with.
    month: u64,
    /// Sums, each from the second of the version of the prices that was known to be in force.
    parts: Vec<(u64, UsageAmounts)>,
}

impl MonthUsage {
    /// Adds the intervals of a day of a month that begins with this second. Those of an earlier month are forgotten.
    pub(crate) fn add_day(&mut self, month: u64, day: &UsagePage, prices: Option<&Prices>) {
        if self.month != month {
            *self = Self { month, parts: Vec::new() };
        }
        for UsageInterval { start, amounts, .. } in day.intervals() {
            let version = prices.and_then(|prices| prices.at(start).ok());
            let from = version.map_or(month, |version| version.from().max(month));
            match self.parts.iter_mut().find(|(of, _)| *of == from) {
                Some((_, sum)) => sum.add_all(&amounts),
                None => {
                    // Nearly all months have one version of the prices, and a list grows to four.
                    self.parts.reserve_exact(1);
                    self.parts.push((from, amounts));
                }
            }
        }
    }

    /// The sums of a month that begins with this second.
    pub(crate) fn parts_of(&self, month: u64) -> &[(u64, UsageAmounts)] {
        if self.month == month { &self.parts } else { &[] }
    }
}
