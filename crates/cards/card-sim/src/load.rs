//! Counts of the packets of one load, from their making to their end, with latencies.

use snic_domain::Timestamp;
use snic_ports::generator::{LoadCounts, LoadLatency, LoadReading};
use snic_tables::DropCause;

use crate::histogram::Histogram;

/// Counts of some time.
#[derive(Debug, Default)]
struct Sums {
    counts: LoadCounts,
    latency: Histogram,
}

impl Sums {
    fn counts(&self, since: Timestamp, until: Timestamp) -> LoadCounts {
        let summary = self.latency.summary();
        let count = summary.count;
        let latency = LoadLatency {
            min: summary.min,
            // Latencies are far from 2^53 ns.
            mean: summary.mean.round() as u64,
            p50: summary.p50,
            p90: self.latency.quantile(count - count / 10),
            p99: summary.p99,
            p999: self.latency.quantile(count - count / 1_000),
            max: summary.max,
        };
        LoadCounts { elapsed: until.since(since), latency, ..self.counts.clone() }
    }
}

/// Counts a load's packets. Memory: 30 KB.
#[derive(Debug)]
pub struct LoadMeter {
    began: Timestamp,
    /// When no more packets are made.
    stop: Timestamp,
    read_at: Timestamp,
    total: Sums,
    recent: Sums,
    /// Packets that went with the card's power.
    gone: u64,
}

impl LoadMeter {
    /// A load that makes packets from `began` until `stop`.
    pub fn new(began: Timestamp, stop: Timestamp) -> Self {
        let (total, recent) = Default::default();
        Self { began, stop, read_at: began, total, recent, gone: 0 }
    }

    fn count(&mut self, add: impl Fn(&mut Sums)) {
        add(&mut self.total);
        add(&mut self.recent);
    }

    /// A packet was made.
    pub fn offered(&mut self, bytes: u32) {
        self.count(|sums| {
            sums.counts.packets_offered += 1;
            sums.counts.bytes_offered += u64::from(bytes);
        });
    }

    /// An NT made a packet of one.
    pub fn made(&mut self) {
        self.count(|sums| sums.counts.packets_made += 1);
    }

    /// A packet left, after so many nanoseconds on the card.
    pub fn served(&mut self, bytes: u32, nanos: u64) {
        self.count(|sums| {
            sums.counts.packets_served += 1;
            sums.counts.bytes_served += u64::from(bytes);
            sums.latency.record(nanos);
        });
    }

    /// A packet was dropped.
    pub fn dropped(&mut self, cause: DropCause) {
        self.count(|sums| sums.counts.drops[cause as usize] += 1);
    }

    /// The power failed: what was under way is gone.
    pub fn power_lost(&mut self) {
        self.gone = self.total.counts.under_way();
    }

    /// Packets on the card.
    pub fn under_way(&self) -> u64 {
        self.total.counts.under_way().saturating_sub(self.gone)
    }

    /// Counts until now, and since this was called before.
    pub fn read(&mut self, now: Timestamp) -> LoadReading {
        let until = now.min(self.stop);
        let total = self.total.counts(self.began, until);
        let recent = std::mem::take(&mut self.recent).counts(self.read_at, until);
        self.read_at = until;
        LoadReading { total, recent, is_sending: now < self.stop }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn a_reading_has_all_of_it_and_what_is_new() {
        let mut meter = LoadMeter::new(at(10), at(100));
        (0..10).for_each(|_| meter.offered(64));
        (1..=5).for_each(|nanos| meter.served(64, nanos * 10));
        meter.dropped(DropCause::RateLimited);
        let first = meter.read(at(30));
        assert_eq!(first.total, first.recent);
        assert_eq!(first.total.elapsed, Duration::from_micros(20));
        assert_eq!((first.total.packets_offered, first.total.bytes_offered), (10, 640));
        assert_eq!((first.total.under_way(), meter.under_way(), first.is_sending), (4, 4, true));
        assert_eq!((first.total.latency.p50, first.total.latency.max), (30, 50));
        meter.made();
        (0..5).for_each(|_| meter.served(60, 1_000));
        let last = meter.read(at(140));
        assert_eq!(last.total.packets_served, 10);
        assert_eq!((last.recent.packets_served, last.recent.bytes_served), (5, 300));
        assert_eq!(
            (last.recent.elapsed, last.total.elapsed),
            (at(100).since(at(30)), at(90).since(at(0)))
        );
        assert_eq!((last.recent.latency.min, last.total.latency.min), (1_000, 10));
        assert_eq!((last.total.under_way(), last.is_sending), (0, false));
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_latencies() {
        let mut meter = LoadMeter::new(at(0), at(1));
        // Exact, for a histogram has each value up to 64.
        (1..=60).for_each(|nanos| meter.served(64, nanos));
        let latency = meter.read(at(1)).total.latency;
        let LoadLatency { min, mean, p50, p90, p99, p999, max } = latency;
        assert_eq!([min, mean, p50, p90, p99, p999, max], [1, 31, 30, 54, 60, 60, 60]);
    }

    #[test]
    fn a_load_of_which_nothing_left_has_no_latencies() {
        let mut meter = LoadMeter::new(at(0), at(1));
        meter.offered(64);
        assert_eq!(meter.read(at(1)).total.latency, LoadLatency::default());
    }

    #[test]
    fn nothing_is_under_way_after_a_loss_of_power() {
        let mut meter = LoadMeter::new(at(0), at(1));
        meter.offered(64);
        meter.power_lost();
        assert_eq!(meter.under_way(), 0);
        meter.offered(64);
        assert_eq!(meter.under_way(), 1);
    }
}
