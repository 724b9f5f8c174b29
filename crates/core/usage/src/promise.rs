//! States of promises, and times in them.

use serde::{Deserialize, Serialize};

use crate::key::AccountKey;

/// Outages that an account keeps, the latest ones.
const OUTAGES_MAX: usize = 8;
/// Outages with one cause that are no farther apart than this are one.
const OUTAGE_APART_MS: u64 = 1_000;

/// Why a promise was broken. The order is that of meters in records: new ones are added at the end, eight at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakCause {
    /// Its card was lost.
    CardLost,
    /// It had no place.
    NoPlace,
    /// Its regions were not loaded.
    RegionNotLoaded,
    /// The card's tables did not have its rows.
    NotProgrammed,
    /// An NT in hardware did not take its configuration.
    ConfigurationRefused,
    /// It was stopped while its state was moved.
    Stopped,
    /// Less than promised was served of what it sent, in a window of a second.
    BelowPromise,
    /// More than one packet in a hundred took longer than the DAG asked for, in a window in which it kept to its promise.
    LatencyAboveBound,
}

impl BreakCause {
    /// All of them, in the order of their meters.
    pub const ALL: [Self; 8] = [
        Self::CardLost,
        Self::NoPlace,
        Self::RegionNotLoaded,
        Self::NotProgrammed,
        Self::ConfigurationRefused,
        Self::Stopped,
        Self::BelowPromise,
        Self::LatencyAboveBound,
    ];

    /// Whether it shows in what is served, and only while the card is read.
    pub const fn is_of_service(self) -> bool {
        matches!(self, Self::BelowPromise | Self::LatencyAboveBound)
    }

    /// Word for people and files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CardLost => "CARD_LOST",
            Self::NoPlace => "NO_PLACE",
            Self::RegionNotLoaded => "REGION_NOT_LOADED",
            Self::NotProgrammed => "NOT_PROGRAMMED",
            Self::ConfigurationRefused => "CONFIGURATION_REFUSED",
            Self::Stopped => "STOPPED",
            Self::BelowPromise => "BELOW_PROMISE",
            Self::LatencyAboveBound => "LATENCY_ABOVE_BOUND",
        }
    }
}

/// State of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromiseState {
    /// All that it sends within its promise is served, in the time that it asked for, as far as its card was read.
    Kept,
    /// It is not.
    Broken(BreakCause),
    /// Nobody could see whether it is.
    Unknown,
}

/// Time in which a promise was broken without a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Beginning, in milliseconds since 1970.
    pub start_ms: u64,
    /// End, or the time up to which it was charged.
    pub end_ms: u64,
    /// Reason of the break.
    pub cause: BreakCause,
}

/// Adds an outage to the latest ones of an account.
pub(crate) fn add_outage(outages: &mut Vec<Outage>, next: Outage) {
    match outages.last_mut() {
        Some(last)
            if last.cause == next.cause && next.start_ms <= last.end_ms + OUTAGE_APART_MS =>
        {
            last.end_ms = last.end_ms.max(next.end_ms);
        }
        _ => outages.push(next),
    }
    if outages.len() > OUTAGES_MAX {
        outages.remove(0);
    }
}

/// Times of promises since the daemon started, in milliseconds: the counters of metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromiseTimes {
    /// Time in which a DAG had a promise that was known to be kept or broken.
    pub known_ms: u64,
    /// Time in which nobody could see whether it was.
    pub unknown_ms: u64,
    broken_ms: [u64; BreakCause::ALL.len()],
}

impl PromiseTimes {
    /// Time in which promises were broken for a cause; it is part of what is known.
    pub const fn broken_ms(&self, cause: BreakCause) -> u64 {
        self.broken_ms[cause as usize]
    }

    pub(crate) const fn add(&mut self, state: PromiseState, millis: u64) {
        match state {
            PromiseState::Unknown => self.unknown_ms += millis,
            PromiseState::Kept => self.known_ms += millis,
            PromiseState::Broken(cause) => {
                self.known_ms += millis;
                self.broken_ms[cause as usize] += millis;
            }
        }
    }
}

/// A promise that is tracked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrackedPromise {
    pub key: AccountKey,
    pub state: PromiseState,
    /// Time up to which it is charged.
    pub since_ms: u64,
}
