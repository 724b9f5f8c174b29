//! A reading of a card's counters.

use snic_domain::{Bandwidth, Timestamp};
use snic_tables::CardCounters;

/// Counters of a card.
#[derive(Debug, Clone, Copy)]
pub struct UsageReading<'a> {
    /// Host's time.
    pub now: Timestamp,
    /// Frequency of the card's clock.
    pub clock_hz: u64,
    /// Most that the card's ports carry.
    pub line: Bandwidth,
    /// The counters, in the order of rows.
    pub counters: &'a CardCounters,
}
