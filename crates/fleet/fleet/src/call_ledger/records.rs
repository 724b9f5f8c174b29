//! Records of calls in etcd, and their keys.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use snic_domain::TenantId;

use super::DAYS;

/// Prefix of the records of replicas.
pub const REPLICAS: &str = "/snic/calls/v1/replicas/";
/// Most gaps that a record of a replica has; beyond that the oldest are forgotten.
const GAPS_MAX: usize = 1_000;

/// Key of the calls of one tenant in one hour at one replica, or of one day at all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKey {
    /// Days since 1970, UTC.
    pub day: u64,
    pub tenant: TenantId,
    /// Second in which the tenant was created: another one of its name has other records.
    pub born: u64,
    /// Hour of the day, UTC; 0 for the whole day. Records are short, for each is written again and again while its hour lasts.
    pub hour: u8,
    /// Address of the replica; `-` for all replicas together.
    pub replica: String,
}

impl CallKey {
    /// The key in etcd as its parts; `None` if it is not one.
    pub fn parse(key: &str) -> Option<Self> {
        // An address may have slashes, so it is last.
        let mut parts = key.strip_prefix(DAYS)?.splitn(5, '/');
        Some(Self {
            day: parts.next()?.parse().ok()?,
            tenant: TenantId::new(parts.next()?).ok()?,
            born: parts.next()?.parse().ok()?,
            hour: parts.next()?.parse().ok()?,
            replica: parts.next()?.to_owned(),
        })
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { day, tenant, born, hour, replica } = self;
        write!(f, "{DAYS}{day:06}/{tenant}/{born}/{hour:02}/{replica}")
    }
}

/// Prefix of the records of a day, or of one tenant on it.
pub fn day_prefix(day: u64, tenant: Option<&TenantId>) -> String {
    match tenant {
        Some(tenant) => format!("{DAYS}{day:06}/{tenant}/"),
        None => format!("{DAYS}{day:06}/"),
    }
}

/// Key of a replica's own record.
pub(super) fn counting_key(replica: &str) -> String {
    format!("{REPLICAS}{replica}")
}

/// Calls of a day by the minute in which they began, or by the first minute of their hour.
///
/// Stored as runs: minutes to pass over, number of minutes that follow each other, and their calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct DayCalls(BTreeMap<u16, u64>);

/// A list of numbers that is no calls of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of calls breaks off, or has more minutes than a day")]
pub struct InvalidDayCalls;

/// Minutes of a day.
const MINUTES: u64 = 1_440;

impl DayCalls {
    /// Adds calls that began in a minute of the day.
    pub fn add(&mut self, minute: u16, calls: u64) {
        if calls > 0 {
            let sum = self.0.entry(minute).or_default();
            *sum = sum.saturating_add(calls);
        }
    }

    /// Adds all calls of another one, each at the beginning of its interval of so many minutes.
    pub fn add_all(&mut self, other: &Self, interval_minutes: u16) {
        let interval = interval_minutes.max(1);
        other.iter().for_each(|(minute, calls)| self.add(minute / interval * interval, calls));
    }

    /// Minutes with calls, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.0.iter().map(|(minute, calls)| (*minute, *calls))
    }

    /// Whether there are no calls.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<DayCalls> for Vec<u64> {
    fn from(calls: DayCalls) -> Self {
        let (mut numbers, mut run, mut next) = (Self::new(), None, 0);
        for (minute, calls) in calls.iter() {
            let minute = u64::from(minute);
            match run.filter(|_| minute == next) {
                Some(length) => numbers[length] += 1,
                None => {
                    run = Some(numbers.len() + 1);
                    numbers.extend([minute - next, 1]);
                }
            }
            numbers.push(calls);
            next = minute + 1;
        }
        numbers
    }
}

impl TryFrom<Vec<u64>> for DayCalls {
    type Error = InvalidDayCalls;

    fn try_from(numbers: Vec<u64>) -> Result<Self, InvalidDayCalls> {
        let (mut rest, mut minute) = (&numbers[..], 0_u64);
        let mut calls = Self::default();
        while let [skip, length, behind @ ..] = rest {
            minute = minute.checked_add(*skip).ok_or(InvalidDayCalls)?;
            let length = usize::try_from(*length).map_err(|_| InvalidDayCalls)?;
            let (run, behind) = behind.split_at_checked(length).ok_or(InvalidDayCalls)?;
            for count in run {
                let at = u16::try_from(minute).ok().filter(|at| u64::from(*at) < MINUTES);
                calls.add(at.ok_or(InvalidDayCalls)?, *count);
                minute += 1;
            }
            rest = behind;
        }
        if rest.is_empty() { Ok(calls) } else { Err(InvalidDayCalls) }
    }
}

/// Calls of one tenant in one hour, or on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Length of its intervals in minutes: 1, or 60 once the day is long over.
    pub interval_minutes: u16,
    pub calls: DayCalls,
}

impl Default for CallRecord {
    fn default() -> Self {
        Self { interval_minutes: 1, calls: DayCalls::default() }
    }
}

/// Time in which a replica may have counted calls that it did not store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallGap {
    /// Second up to which everything is stored.
    pub from: u64,
    /// Second in which the replica began again, or was noticed to be gone.
    pub to: u64,
}

impl CallGap {
    /// A gap, at least a second long: clocks may go back.
    pub fn new(from: u64, to: u64) -> Self {
        Self { from, to: to.max(from + 1) }
    }

    /// Its length in milliseconds, at least 1,000.
    pub const fn millis(&self) -> u64 {
        (self.to - self.from).saturating_mul(1_000)
    }
}

/// State of a replica's counting, written with each of its transactions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountingRecord {
    /// The run of the replica: its start in nanoseconds since 1970.
    pub run: u64,
    /// Number of the transaction in which it was written, from 1.
    pub write: u64,
    /// Second up to which all calls are stored.
    pub until: u64,
    /// It stopped in order: there is nothing that it had not stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_ended: bool,
    /// Second in which another replica noticed that this one had not written for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Gaps of earlier runs, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<CallGap>,
}

impl CountingRecord {
    /// Ends a run without an orderly stop: the next one began in this second.
    pub(super) fn add_gap(&mut self, gap: CallGap) {
        self.gaps.push(gap);
        let over = self.gaps.len().saturating_sub(GAPS_MAX);
        self.gaps.drain(..over);
    }

    /// The gap of its present run, if that is known to have died.
    fn open_gap(&self) -> Option<CallGap> {
        self.lost.filter(|_| !self.has_ended).map(|lost| CallGap::new(self.until, lost))
    }

    /// The gaps that begin in a range. Each is whole: like an interval it is never divided.
    pub fn gaps_in(&self, from: u64, to: u64) -> impl Iterator<Item = CallGap> + '_ {
        let all = self.gaps.iter().copied().chain(self.open_gap());
        all.filter(move |gap| (from..to).contains(&gap.from))
    }
}
