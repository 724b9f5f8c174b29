//! A DAG's load by whole monitor periods: what decisions are made of.

use std::time::Duration;

use snic_domain::Bandwidth;

/// The load of one whole period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Period {
    /// Over the whole period.
    pub mean: Bandwidth,
    /// The least of its samples.
    pub least: Bandwidth,
    /// The largest of its samples.
    pub most: Bandwidth,
}

/// The period under way.
#[derive(Debug, Clone, Copy, Default)]
struct CurrentPeriod {
    /// Bits × 10^9: a load of 2^64 bits per second over a minute stays below 2^128.
    bit_nanos: u128,
    nanos: u64,
    least: u64,
    most: u64,
}

/// Collects the samples of one DAG into whole periods.
#[derive(Debug, Clone, Default)]
pub struct Monitor {
    running: Option<CurrentPeriod>,
    last: Option<Period>,
    /// Whole periods in a row in which fewer instances would have done.
    pub(crate) calm: u32,
}

impl Monitor {
    /// Takes a sample: the mean load of the last `span`. Gives the period that ended with it, if
    /// one did. A sample of no time is none; one that is longer than a period ends it, however long it is.
    #[inline]
    pub fn observe(&mut self, load: Bandwidth, span: Duration, period: Duration) -> Option<Period> {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        if nanos == 0 {
            return None;
        }
        let bps = load.get();
        if self.running.is_none() && span >= period {
            // A whole period in one sample, as when the epoch is the longer: there is no mean to take.
            return self.end_period(Period { mean: load, least: load, most: load });
        }
        let mut running =
            self.running.take().unwrap_or(CurrentPeriod { least: bps, ..CurrentPeriod::default() });
        let product = u128::from(bps) * u128::from(nanos);
        running.bit_nanos = running.bit_nanos.saturating_add(product);
        running.nanos = running.nanos.saturating_add(nanos);
        running.least = running.least.min(bps);
        running.most = running.most.max(bps);
        if u128::from(running.nanos) < period.as_nanos() {
            self.running = Some(running);
            return None;
        }
        let mean = running.bit_nanos / u128::from(running.nanos);
        self.end_period(Period {
            mean: Bandwidth::from_bps(u64::try_from(mean).unwrap_or(u64::MAX)),
            least: Bandwidth::from_bps(running.least),
            most: Bandwidth::from_bps(running.most),
        })
    }

    const fn end_period(&mut self, period: Period) -> Option<Period> {
        self.last = Some(period);
        self.last
    }

    /// The last whole period.
    pub const fn last(&self) -> Option<Period> {
        self.last
    }

    /// Forgets all: the DAG is another one, or the counters began again.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PERIOD: Duration = Duration::from_millis(10);

    fn gbps(n: u64) -> Bandwidth {
        Bandwidth::from_gbps(n)
    }

    #[test]
    fn a_period_has_mean_least_and_most_by_time() {
        let mut monitor = Monitor::default();
        assert_eq!(monitor.observe(gbps(1), 5 * MS, PERIOD), None);
        assert_eq!(monitor.observe(gbps(4), 4 * MS, PERIOD), None);
        assert_eq!(monitor.last(), None);
        let ended = Period { mean: gbps(3), least: gbps(1), most: gbps(9) };
        assert_eq!(monitor.observe(gbps(9), MS, PERIOD), Some(ended));
        assert_eq!(monitor.last(), Some(ended));
    }

    #[test]
    fn no_time_is_no_sample_and_a_long_one_is_one_period() {
        let mut monitor = Monitor::default();
        assert_eq!(monitor.observe(gbps(9), Duration::ZERO, PERIOD), None);
        assert!(monitor.observe(gbps(2), 100 * PERIOD, PERIOD).is_some());
        assert_eq!(monitor.last().map(|p| p.mean), Some(gbps(2)));
        assert!(monitor.observe(Bandwidth::from_bps(u64::MAX), Duration::MAX, PERIOD).is_some());
        assert_eq!(monitor.last().map(|p| p.mean > gbps(1_000)), Some(true), "no overflow");
        monitor.restart();
        assert_eq!(monitor.last(), None);
    }

    proptest! {
        /// The mean is between the least and the most, whatever comes in whatever spans.
        #[test]
        fn means_are_between(
            samples in prop::collection::vec((any::<u64>(), 0_u64..30_000_000), 1..40),
        ) {
            let mut monitor = Monitor::default();
            for (load, nanos) in samples {
                let load = Bandwidth::from_bps(load);
                if let Some(last) = monitor.observe(load, Duration::from_nanos(nanos), PERIOD) {
                    prop_assert!(last.least <= last.mean && last.mean <= last.most, "{last:?}");
                }
            }
        }
    }
}
