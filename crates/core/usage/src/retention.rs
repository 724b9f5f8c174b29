//! Ages up to which intervals are kept, and the time at which those of an account are too old.

use crate::account::Account;
use crate::pages::{IntervalLevel, PageRange};

/// Ages up to which intervals are kept, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Intervals of ten seconds.
    pub fine: u64,
    /// Intervals of a minute.
    pub minute: u64,
    /// Intervals of an hour; older ones are gone.
    pub hour: u64,
}

impl Default for Retention {
    /// An hour, a day, and three months: a start reads them with all other records.
    fn default() -> Self {
        Self { fine: 3_600, minute: 86_400, hour: 92 * 86_400 }
    }
}

impl Retention {
    const fn of(&self, level: IntervalLevel) -> u64 {
        match level {
            IntervalLevel::Fine => self.fine,
            IntervalLevel::Minute => self.minute,
            IntervalLevel::Hour => self.hour,
        }
    }

    /// Beginning of the first page of this length that is kept. Pages of a shorter length are kept from the beginning of an interval
    /// of the longer one on, so a range is read from each length without overlap.
    pub const fn kept_from(&self, level: IntervalLevel, second: u64) -> u64 {
        level.page_of(second.saturating_sub(self.of(level)))
    }

    /// The pages that a range is read from: the shortest intervals that are kept.
    pub fn ranges(&self, from: u64, to: u64, second: u64) -> [PageRange; 3] {
        let fine = self.kept_from(IntervalLevel::Fine, second).clamp(from, to.max(from));
        let minute = self.kept_from(IntervalLevel::Minute, second).clamp(from, fine);
        [
            PageRange { level: IntervalLevel::Hour, from, to: minute },
            PageRange { level: IntervalLevel::Minute, from: minute, to: fine },
            PageRange { level: IntervalLevel::Fine, from: fine, to },
        ]
    }

    /// Second from which on a sweep removes something of an account: a page, or the account when it has none any more. `swept` is that
    /// of the last one.
    pub(crate) fn sweep_due(&self, account: &Account, swept: u64) -> u64 {
        let gone = account.ended().map(|ended| {
            let level = IntervalLevel::Hour;
            level.page_of(ended + 2 * level.page()) + level.page() + self.of(level)
        });
        let pages = IntervalLevel::ALL.into_iter().filter_map(|level| {
            let first = self.kept_from(level, swept).max(level.page_of(account.begun()));
            let is_over = account
                .ended()
                .is_some_and(|ended| first >= level.page_of(ended) + 2 * level.page());
            (!is_over).then_some(first + level.page() + self.of(level))
        });
        pages.chain(gone).min().unwrap_or(swept)
    }
}
