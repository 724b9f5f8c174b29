//! Intervals of three lengths. A page is as long as one interval of the next length, so what a full page adds up to is the next
//! entry there: a longer interval is exactly the sum of the shorter ones.

use serde::{Deserialize, Serialize};

use crate::meter::UsageAmounts;

/// Length of intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalLevel {
    /// Ten seconds, in pages of a minute.
    Fine,
    /// A minute, in pages of an hour.
    Minute,
    /// An hour, in pages of a day.
    Hour,
}

impl IntervalLevel {
    /// All of them, the shortest first.
    pub const ALL: [Self; 3] = [Self::Fine, Self::Minute, Self::Hour];

    /// Length of an interval, in seconds.
    pub const fn interval(self) -> u64 {
        match self {
            Self::Fine => 10,
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }

    /// Length of a page, in seconds.
    pub const fn page(self) -> u64 {
        match self {
            Self::Fine => 60,
            Self::Minute => 3_600,
            Self::Hour => 86_400,
        }
    }

    /// Beginning of the page that a second is in.
    pub const fn page_of(self, second: u64) -> u64 {
        second / self.page() * self.page()
    }

    /// The next longer one.
    pub const fn next(self) -> Option<Self> {
        match self {
            Self::Fine => Some(Self::Minute),
            Self::Minute => Some(Self::Hour),
            Self::Hour => None,
        }
    }

    /// Letter in keys of records.
    pub const fn letter(self) -> char {
        match self {
            Self::Fine => 'f',
            Self::Minute => 'm',
            Self::Hour => 'h',
        }
    }
}

/// Usage of one interval. Its end may be later than its length says: nothing closed it in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageInterval {
    /// First second, since 1970.
    #[serde(rename = "s")]
    pub start: u64,
    /// Second after the last.
    #[serde(rename = "e")]
    pub end: u64,
    /// UsageAmounts that were added in it.
    #[serde(rename = "a")]
    pub amounts: UsageAmounts,
}

/// Entries of one account that begin in one page's time, the first one first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsagePage {
    entries: Vec<UsageInterval>,
}

impl UsagePage {
    /// Its entries, the first one first.
    pub fn entries(&self) -> &[UsageInterval] {
        &self.entries
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Beginning of the page, if it has an entry.
    pub fn start(&self, level: IntervalLevel) -> Option<u64> {
        self.entries.first().map(|first| level.page_of(first.start))
    }

    /// Adds what follows; it belongs to this page or a later one.
    pub(crate) fn push(&mut self, entry: UsageInterval) {
        self.entries.push(entry);
    }

    /// Everything in it as one entry.
    pub(crate) fn sum(&self) -> Option<UsageInterval> {
        let mut all = self.entries.iter();
        let mut sum = *all.next()?;
        for entry in all {
            sum.end = sum.end.max(entry.end);
            sum.amounts.add_all(&entry.amounts);
        }
        Some(sum)
    }
}

/// Pages of one length that a range of time is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    /// Length of their intervals.
    pub level: IntervalLevel,
    /// First second.
    pub from: u64,
    /// Second after the last.
    pub to: u64,
}

impl PageRange {
    /// The beginnings of the pages that entries in the range are in.
    pub fn pages(self) -> impl Iterator<Item = u64> {
        let first = self.level.page_of(self.from);
        (first..self.to.max(first)).step_by(self.level.page() as usize)
    }
}
