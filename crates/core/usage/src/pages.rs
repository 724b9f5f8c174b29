//! Intervals of three lengths. A page is as long as one interval of the next length, so what a full page adds up to is the next
//! entry there: a longer interval is exactly the sum of the shorter ones.

use std::iter::Copied;
use std::slice::Iter;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::meter::UsageAmounts;
use crate::packed::{PackedIter, PackedNumbers};

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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<u64>")]
pub struct UsagePage {
    numbers: Arc<PackedNumbers>,
    /// Beginning of the last one.
    last: u64,
}

impl UsagePage {
    /// Its intervals, the first one first.
    pub fn intervals(&self) -> impl Iterator<Item = UsageInterval> {
        self.stored().map_while(|stored| stored.interval())
    }

    /// Its intervals as they are kept, the first one first.
    pub(crate) fn stored(&self) -> impl Iterator<Item = StoredInterval<PackedIter<'_>>> {
        let (mut rest, mut before) = (self.numbers.iter(), 0_u64);
        std::iter::from_fn(move || {
            let start = before.checked_add(rest.next()?)?;
            let (length, meters) = (rest.next()?, rest.next()?);
            let listed = rest.split(meters.count_ones() as usize)?;
            before = start;
            Some(StoredInterval { start, length, meters, listed })
        })
    }

    /// Adds each interval to the sum with the number that its beginning has, if it has one.
    pub(crate) fn add_to(&self, sums: &mut [UsageAmounts], number: impl Fn(u64) -> Option<usize>) {
        for stored in self.stored() {
            if let Some(sum) = number(stored.start).and_then(|number| sums.get_mut(number)) {
                stored.add_to(sum);
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Beginning of the page, if it has an interval.
    pub fn start(&self, level: IntervalLevel) -> Option<u64> {
        // Of the first interval, the seconds from the beginning of the one before it are those since 1970.
        Some(level.page_of(self.numbers.iter().next()?))
    }

    /// Adds what follows; it belongs to this page or a later one, and begins no earlier than what is there.
    pub(crate) fn push(&mut self, UsageInterval { start, end, amounts }: UsageInterval) {
        let times = [start.saturating_sub(self.last), end.saturating_sub(start), amounts.meters()];
        let numbers = times.into_iter().chain(amounts.listed());
        Arc::make_mut(&mut self.numbers).extend(numbers);
        self.last = start.max(self.last);
    }

    /// Everything in it as one interval.
    pub(crate) fn sum(&self) -> Option<UsageInterval> {
        let mut stored = self.stored();
        let mut sum = stored.next()?.interval()?;
        stored.for_each(|stored| {
            sum.end = sum.end.max(stored.end());
            stored.add_to(&mut sum.amounts);
        });
        Some(sum)
    }
}

/// An interval as it is kept.
pub(crate) struct StoredInterval<L> {
    pub start: u64,
    length: u64,
    meters: u64,
    listed: L,
}

impl<L: Iterator<Item = u64> + Clone> StoredInterval<L> {
    /// Second after its last.
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }

    /// Adds its amounts to a sum.
    pub fn add_to(&self, sum: &mut UsageAmounts) {
        // A page with a meter that there is not was refused when it was read.
        let added = sum.add_listed(self.meters, self.listed.clone());
        debug_assert!(added.is_some(), "unknown meters in {:#x}", self.meters);
    }

    fn interval(&self) -> Option<UsageInterval> {
        let mut amounts = UsageAmounts::ZERO;
        amounts.add_listed(self.meters, self.listed.clone())?;
        Some(UsageInterval { start: self.start, end: self.end(), amounts })
    }
}

/// A list of numbers that is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of intervals breaks off or has an unknown meter")]
pub struct InvalidUsagePage;

/// Beginning of the last interval of a list.
///
/// # Errors
/// The list breaks off in the middle of an interval, a time is beyond 64 bits, or there is no such meter.
fn check(numbers: &[u64]) -> Result<u64, InvalidUsagePage> {
    let (mut rest, mut last) = (numbers, 0_u64);
    while let [from_before, length, meters, behind @ ..] = rest {
        last = last.checked_add(*from_before).ok_or(InvalidUsagePage)?;
        last.checked_add(*length).ok_or(InvalidUsagePage)?;
        if !UsageAmounts::has_meters(*meters) {
            return Err(InvalidUsagePage);
        }
        rest = behind.get(meters.count_ones() as usize..).ok_or(InvalidUsagePage)?;
    }
    if rest.is_empty() { Ok(last) } else { Err(InvalidUsagePage) }
}

impl TryFrom<Vec<u64>> for UsagePage {
    type Error = InvalidUsagePage;

    fn try_from(numbers: Vec<u64>) -> Result<Self, InvalidUsagePage> {
        let last = check(&numbers)?;
        Ok(Self { numbers: Arc::new(PackedNumbers::exactly(&numbers)), last })
    }
}

/// A full page as it comes from the store, to be added up once. A question about a month reads tens of thousands, so they are not packed
/// as the pages that a book keeps.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<u64>")]
pub struct ReadPage(Vec<u64>);

impl TryFrom<Vec<u64>> for ReadPage {
    type Error = InvalidUsagePage;

    fn try_from(numbers: Vec<u64>) -> Result<Self, InvalidUsagePage> {
        check(&numbers).map(|_| Self(numbers))
    }
}

impl ReadPage {
    /// Its intervals, the first one first.
    pub(crate) fn stored(&self) -> impl Iterator<Item = StoredInterval<Copied<Iter<'_, u64>>>> {
        let (mut rest, mut before) = (&self.0[..], 0_u64);
        std::iter::from_fn(move || {
            let [from_before, length, meters, behind @ ..] = rest else { return None };
            let (listed, behind) = behind.split_at_checked(meters.count_ones() as usize)?;
            before = before.checked_add(*from_before)?;
            rest = behind;
            let (length, meters, listed) = (*length, *meters, listed.iter().copied());
            Some(StoredInterval { start: before, length, meters, listed })
        })
    }
}

/// A list of its numbers.
impl Serialize for UsagePage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.numbers.iter())
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
