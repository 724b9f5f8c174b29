//! Counters: for the card's registers since power-up, and for people by measurement window.

use snic_domain::Bandwidth;
use snic_tables::{DagCounters, DropCause, Table};

use crate::histogram::{Histogram, Latency};
use crate::time::Clock;

const CAUSES: usize = DropCause::ALL.len();

/// Traffic of the card between two calls of `take_measurements`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurements {
    /// Length in cycles.
    pub cycles: u64,
    /// Length in nanoseconds, rounded down.
    pub nanos: u64,
    /// Measurements by the row of the DAG; those that no packet named are left out.
    pub dags: Vec<DagMeasurement>,
    /// Drops of packets that belong to no DAG: unclassified and stale ones. In the order of
    /// [`DropCause::ALL`].
    pub unattributed: [u64; CAUSES],
}

/// Traffic of one DAG.
#[derive(Debug, Clone, PartialEq)]
pub struct DagMeasurement {
    /// The row of the DAG.
    pub row: u16,
    /// Packets that came in and went out in this time.
    pub counters: DagCounters,
    /// Bits per second that came in, before rate limiting.
    pub intended: Bandwidth,
    /// Bits per second that went out.
    pub served: Bandwidth,
    /// Drops, in the order of [`DropCause::ALL`].
    pub drops: [u64; CAUSES],
    /// First beat in to first beat out, in cycles. 4 ns each at 250 MHz: see `nanos_per_cycle`.
    pub latency: Latency,
    /// The same with the time that the sender held it back, for the ingress port was busy.
    pub delay: Latency,
    /// Nanoseconds of a cycle.
    pub nanos_per_cycle: f64,
}

impl DagMeasurement {
    /// The mean latency in nanoseconds.
    pub fn latency_mean_nanos(&self) -> f64 {
        self.latency.mean * self.nanos_per_cycle
    }

    /// The median latency in nanoseconds.
    pub fn latency_p50_nanos(&self) -> f64 {
        self.latency.p50 as f64 * self.nanos_per_cycle
    }

    /// The 99th percentile of the latency in nanoseconds.
    pub fn latency_p99_nanos(&self) -> f64 {
        self.latency.p99 as f64 * self.nanos_per_cycle
    }

    /// The 99th percentile of the delay in nanoseconds: of the latency and what the sender waited for the
    /// ingress port.
    pub fn delay_p99_nanos(&self) -> f64 {
        self.delay.p99 as f64 * self.nanos_per_cycle
    }
}

impl Measurements {
    /// One DAG, if any packet named it.
    pub fn dag(&self, row: u16) -> Option<&DagMeasurement> {
        self.dags.iter().find(|dag| dag.row == row)
    }

    /// Drops of all DAGs and of none, in the order of [`DropCause::ALL`].
    pub fn drops(&self) -> [u64; CAUSES] {
        let mut sum = self.unattributed;
        for dag in &self.dags {
            sum.iter_mut().zip(dag.drops).for_each(|(sum, drops)| *sum += drops);
        }
        sum
    }

    /// Number of packets that were dropped for `cause`.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.drops()[cause as usize]
    }

    /// Number of packets that met a fault of the control plane.
    pub fn errors(&self) -> u64 {
        DropCause::ALL.into_iter().filter(|cause| cause.is_error()).map(|c| self.dropped(c)).sum()
    }
}

/// One DAG's counters.
#[derive(Debug, Clone, Default)]
struct DagStats {
    counters: DagCounters,
    drops: [u64; CAUSES],
    /// Counters when the window began.
    before: DagCounters,
    drops_before: [u64; CAUSES],
    /// Histograms of latencies and of delays.
    times: Option<Box<[Histogram; 2]>>,
}

/// All counters of the data plane.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    /// Packets that NTs made.
    pub(crate) packets_made: u64,
    pub(crate) drops: [u64; CAUSES],
    pub(crate) digest: u64,
    dags: Vec<DagStats>,
    unattributed: [u64; CAUSES],
    since: u64,
}

impl Stats {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            packets_in: 0,
            packets_out: 0,
            packets_made: 0,
            drops: [0; CAUSES],
            digest: 0,
            dags: vec![DagStats::default(); Table::Dag.rows()],
            unattributed: [0; CAUSES],
            since: now,
        }
    }

    pub(crate) fn dag(&self, row: u16) -> DagCounters {
        self.dags[usize::from(row)].counters
    }

    pub(crate) fn dag_drops(&self, row: u16) -> &[u64; CAUSES] {
        &self.dags[usize::from(row)].drops
    }

    #[inline]
    pub(crate) fn intended(&mut self, row: u16, bytes: u32) {
        let counters = &mut self.dags[usize::from(row)].counters;
        counters.packets_in += 1;
        counters.bytes_intended += u64::from(bytes);
    }

    #[inline]
    pub(crate) fn served(&mut self, row: u16, bytes: u32, times: [u64; 2]) {
        self.packets_out += 1;
        let dag = &mut self.dags[usize::from(row)];
        dag.counters.packets_out += 1;
        dag.counters.bytes_served += u64::from(bytes);
        let histograms = dag.times.get_or_insert_default().iter_mut();
        histograms.zip(times).for_each(|(histogram, time)| histogram.record(time));
    }

    /// Packets that came and went without crossing the data plane; their times are not known.
    pub(crate) fn passed_elsewhere(&mut self, row: u16, packets: u64, bytes: u64) {
        let Some(DagStats { counters, .. }) = self.dags.get_mut(usize::from(row)) else { return };
        self.packets_in += packets;
        self.packets_out += packets;
        counters.packets_in += packets;
        counters.packets_out += packets;
        counters.bytes_intended += bytes;
        counters.bytes_served += bytes;
    }

    pub(crate) fn dropped(&mut self, row: Option<u16>, cause: DropCause) {
        self.drops[cause as usize] += 1;
        match row {
            Some(row) => self.dags[usize::from(row)].drops[cause as usize] += 1,
            None => self.unattributed[cause as usize] += 1,
        }
    }

    /// Mixes a packet's outcome into the digest of the trace.
    #[inline]
    pub(crate) fn mix(&mut self, words: [u64; 3]) {
        for word in words {
            // Odd, with bits well spread (the golden ratio times 2^64): order and value both count.
            self.digest = (self.digest.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    pub(crate) fn measurements(&self, now: u64, clock: Clock) -> Measurements {
        let cycles = now - self.since;
        let measure = |(row, dag): (usize, &DagStats)| {
            let dag_measurement = dag.measure(row as u16, cycles, clock);
            (dag.counters.packets_in > 0).then_some(dag_measurement)
        };
        Measurements {
            cycles,
            nanos: clock.nanos(cycles),
            dags: self.dags.iter().enumerate().filter_map(measure).collect(),
            unattributed: self.unattributed,
        }
    }

    /// Begins a new window.
    pub(crate) fn restart(&mut self, now: u64) {
        self.since = now;
        self.unattributed = [0; CAUSES];
        for dag in &mut self.dags {
            dag.before = dag.counters;
            dag.drops_before = dag.drops;
            dag.times = None;
        }
    }
}

impl DagStats {
    fn measure(&self, row: u16, cycles: u64, clock: Clock) -> DagMeasurement {
        let (all, before) = (&self.counters, &self.before);
        let counters = DagCounters {
            packets_in: all.packets_in - before.packets_in,
            bytes_intended: all.bytes_intended - before.bytes_intended,
            bytes_served: all.bytes_served - before.bytes_served,
            packets_out: all.packets_out - before.packets_out,
        };
        let summary = |histogram: &Histogram| histogram.summary();
        let [latency, delay] = self
            .times
            .as_ref()
            .map_or_else(Default::default, |times| times.each_ref().map(summary));
        DagMeasurement {
            row,
            counters,
            intended: clock.bandwidth(counters.bytes_intended, cycles),
            served: clock.bandwidth(counters.bytes_served, cycles),
            drops: std::array::from_fn(|i| self.drops[i] - self.drops_before[i]),
            latency,
            delay,
            nanos_per_cycle: clock.nanos(1_000_000_000) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_what_happened_in_it() {
        let clock = Clock::new(250_000_000);
        let mut stats = Stats::new(0);
        stats.intended(3, 1_500);
        stats.served(3, 1_500, [60, 70]);
        stats.restart(1_000);
        stats.intended(3, 1_000);
        stats.intended(3, 500);
        stats.served(3, 1_000, [80, 100]);
        stats.dropped(Some(3), DropCause::StoreFull);
        stats.dropped(None, DropCause::Unclassified);
        let window = stats.measurements(2_000, clock);
        assert_eq!((window.cycles, window.nanos), (1_000, 4_000));
        assert_eq!(window.dags.len(), 1, "no packet named another DAG");
        let dag = window.dag(3).expect("packets named it");
        assert_eq!(dag.intended, Bandwidth::from_gbps(3));
        assert_eq!(dag.served, Bandwidth::from_gbps(2));
        assert_eq!((dag.latency.count, dag.latency.max), (1, 80));
        assert!((dag.latency_mean_nanos() - 320.0).abs() < 1e-9);
        assert!((dag.delay_p99_nanos() - 400.0).abs() < 1e-9);
        assert_eq!(window.dropped(DropCause::StoreFull), 1);
        assert_eq!(window.dropped(DropCause::Unclassified), 1);
        assert_eq!((window.errors(), stats.dag(3).packets_in), (0, 3));
    }

    #[test]
    fn the_digest_depends_on_values_and_order() {
        let digest = |words: [u64; 3]| {
            let mut stats = Stats::new(0);
            stats.mix(words);
            stats.digest
        };
        assert_ne!(digest([1, 2, 3]), digest([2, 1, 3]));
        assert_ne!(digest([0, 0, 1]), digest([0, 0, 2]));
    }
}
