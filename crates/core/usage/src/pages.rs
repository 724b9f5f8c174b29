//! Intervals of three lengths. A page is as long as one interval of the next length, so what a full page adds up to is the next
//! entry there: a longer interval is exactly the sum of the shorter ones.

use std::sync::Arc;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageInterval {
    /// First second, since 1970.
    pub start: u64,
    /// Second after the last.
    pub end: u64,
    /// Amounts that were added in it.
    pub amounts: UsageAmounts,
}

/// Intervals of one account that begin in one page's time, the first one first.
///
/// They are kept as they are stored, for each DAG has dozens of them: an interval is the seconds from the beginning of the one before
/// it, its length, a set of the meters that are not zero (bit n for number n), and their amounts in this order. A copy shares the
/// numbers until either is changed, so that a reader takes those of thousands of accounts in no time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct UsagePage {
    numbers: Arc<Vec<u64>>,
    /// Beginning of the last one.
    last: u64,
}

impl UsagePage {
    /// Its intervals, the first one first.
    pub fn intervals(&self) -> impl Iterator<Item = UsageInterval> {
        let (mut rest, mut before) = (&self.numbers[..], 0);
        std::iter::from_fn(move || {
            let (interval, behind) = first_of(rest, before)?;
            (rest, before) = (behind, interval.start);
            Some(interval)
        })
    }

    /// Adds each interval to the sum with the number that its beginning has, if it has one.
    pub(crate) fn add_to(&self, sums: &mut [UsageAmounts], number: impl Fn(u64) -> Option<usize>) {
        let (mut rest, mut before) = (&self.numbers[..], 0);
        while let Some((part, behind)) = part_of(rest, before) {
            (rest, before) = (behind, part.start);
            if let Some(sum) = number(part.start).and_then(|number| sums.get_mut(number)) {
                sum.add_listed(part.meters, part.listed);
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Beginning of the page, if it has an interval.
    pub fn start(&self, level: IntervalLevel) -> Option<u64> {
        Some(level.page_of(self.intervals().next()?.start))
    }

    /// Adds what follows; it belongs to this page or a later one, and begins no earlier than what is there.
    pub(crate) fn push(&mut self, UsageInterval { start, end, amounts }: UsageInterval) {
        let numbers = Arc::make_mut(&mut self.numbers);
        numbers.extend([start.saturating_sub(self.last), end.saturating_sub(start)]);
        numbers.push(amounts.meters());
        numbers.extend(amounts.iter().map(|(_, amount)| amount));
        self.last = start.max(self.last);
    }

    /// Everything in it as one interval.
    pub(crate) fn sum(&self) -> Option<UsageInterval> {
        self.intervals().reduce(|mut sum, interval| {
            sum.end = sum.end.max(interval.end);
            sum.amounts.add_all(&interval.amounts);
            sum
        })
    }
}

/// An interval as it is kept.
struct StoredInterval<'a> {
    start: u64,
    length: u64,
    meters: u64,
    listed: &'a [u64],
}

/// The first interval of a list as it is kept, and what is behind it.
fn part_of(numbers: &[u64], before: u64) -> Option<(StoredInterval<'_>, &[u64])> {
    let [from_before, length, meters, rest @ ..] = numbers else { return None };
    let (listed, behind) = rest.split_at_checked(meters.count_ones() as usize)?;
    let start = before.checked_add(*from_before)?;
    Some((StoredInterval { start, length: *length, meters: *meters, listed }, behind))
}

/// The first interval of a list, and what is behind it.
fn first_of(numbers: &[u64], before: u64) -> Option<(UsageInterval, &[u64])> {
    let (StoredInterval { start, length, meters, listed }, behind) = part_of(numbers, before)?;
    let amounts = UsageAmounts::of(meters, listed)?;
    Some((UsageInterval { start, end: start.checked_add(length)?, amounts }, behind))
}

/// A list of numbers that is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of intervals breaks off or has an unknown meter")]
pub struct InvalidUsagePage;

impl TryFrom<Vec<u64>> for UsagePage {
    type Error = InvalidUsagePage;

    fn try_from(numbers: Vec<u64>) -> Result<Self, InvalidUsagePage> {
        let (mut rest, mut before) = (&numbers[..], 0);
        while !rest.is_empty() {
            let (interval, behind) = first_of(rest, before).ok_or(InvalidUsagePage)?;
            (rest, before) = (behind, interval.start);
        }
        Ok(Self { numbers: Arc::new(numbers), last: before })
    }
}

impl From<UsagePage> for Vec<u64> {
    fn from(page: UsagePage) -> Self {
        Arc::unwrap_or_clone(page.numbers)
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
