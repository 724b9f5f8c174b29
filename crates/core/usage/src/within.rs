//! Bytes and packets of a DAG that were served within its promise, and beyond it.
//!
//! A token bucket for each: it fills with the promise and holds a second of it. The card says what it has served when it is read, so
//! what was promised between two readings is all there when the second of them comes, however long they were apart: a late reading
//! never makes what was within the promise look beyond it.

use crate::key::UsageRates;

const SECOND: u128 = 1_000_000_000;
const BYTE_BITS: u64 = 8;

/// A token bucket in whole units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TokenBucket {
    left: u64,
    /// Units × nanoseconds that are no whole unit yet.
    rest: u64,
}

impl TokenBucket {
    /// A bucket that holds a second of this rate.
    const fn full(rate: u64) -> Self {
        Self { left: rate, rest: 0 }
    }

    /// Fills it for a time, with no limit.
    fn fill(&mut self, rate: u64, nanos: u64) {
        let sum = u128::from(rate) * u128::from(nanos) + u128::from(self.rest);
        self.left = self.left.saturating_add(u64::try_from(sum / SECOND).unwrap_or(u64::MAX));
        self.rest = (sum % SECOND) as u64;
    }

    /// Lets it hold no more than a second of this rate.
    const fn limit(&mut self, rate: u64) {
        if self.left >= rate {
            *self = Self::full(rate);
        }
    }

    /// Takes what an amount needs, `each` units for one of it; returns the part for which there is nothing.
    fn take(&mut self, amount: u64, each: u64) -> u64 {
        let within = amount.min(self.left / each);
        self.left -= within * each;
        amount - within
    }
}

/// Bits and packets that a DAG may still be served on a card within its promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PromiseLeft {
    bits: TokenBucket,
    packets: TokenBucket,
    /// Time of the card up to which it was filled.
    filled: u64,
}

/// Bytes and packets that were served beyond a promise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    pub bytes: u64,
    pub packets: u64,
}

impl PromiseLeft {
    /// A promise that begins, with a second of it to spend.
    pub const fn new(rates: &UsageRates, time: u64) -> Self {
        Self {
            bits: TokenBucket::full(rates.promised),
            packets: TokenBucket::full(rates.packets),
            filled: time,
        }
    }

    /// It was promised this much up to a time of the card.
    pub fn fill(&mut self, rates: &UsageRates, time: u64) {
        let nanos = time.saturating_sub(self.filled);
        self.filled = self.filled.max(time);
        self.bits.fill(rates.promised, nanos);
        self.packets.fill(rates.packets, nanos);
    }

    /// The card was read before, at `from`, when no more than a second was left to spend.
    pub fn limit(&mut self, rates: &UsageRates, from: u64) {
        if self.filled <= from {
            self.fill(rates, from);
            self.bits.limit(rates.promised);
            self.packets.limit(rates.packets);
        }
    }

    /// Spends it on what was served; returns what was beyond it. Packets of which a record says no promise are not told apart.
    pub fn spend(&mut self, rates: &UsageRates, bytes: u64, packets: u64) -> Beyond {
        let bytes = self.bits.take(bytes, BYTE_BITS);
        let packets = if rates.packets > 0 { self.packets.take(packets, 1) } else { 0 };
        Beyond { bytes, packets }
    }
}
