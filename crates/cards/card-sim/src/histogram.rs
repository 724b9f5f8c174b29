//! Latencies in bounded memory: exact to 64 cycles, then to one part in 32.
//!
//! A value falls into a bucket by its highest five bits below the leading one. However many packets
//! are counted, a histogram takes 15 KB. Not `hdrhistogram`: its buckets differ, and the published figures
//! must stay equal to the digit.

/// Bits of a value that are kept behind the leading one.
const FINE_BITS: u32 = 5;
const FINE: usize = 1 << FINE_BITS;
/// Values from 2^41 cycles (2.4 hours at 250 MHz) on share the last bucket.
const VALUE_BITS_MAX: u32 = 41;
const BUCKETS: usize = (VALUE_BITS_MAX - FINE_BITS + 1) as usize * FINE;

/// Number of times that each latency was seen.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

const fn bucket_of(value: u64) -> usize {
    if value < 2 * FINE as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - FINE_BITS;
    let bucket = shift as usize * FINE + (value >> shift) as usize;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// The largest value of a bucket.
const fn last_of(bucket: usize) -> u64 {
    if bucket < 2 * FINE {
        return bucket as u64;
    }
    let shift = bucket / FINE - 1;
    (((bucket - shift * FINE) as u64 + 1) << shift) - 1
}

/// Latencies of a set of packets, in cycles; all zero where there were none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Latency {
    /// Number of packets.
    pub count: u64,
    pub min: u64,
    pub mean: f64,
    /// The median, to one part in 32.
    pub p50: u64,
    /// Exceeded by one packet in a hundred, to one part in 32.
    pub p99: u64,
    pub max: u64,
}

impl Histogram {
    #[inline]
    pub(crate) fn record(&mut self, value: u64) {
        self.buckets[bucket_of(value)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub(crate) fn summary(&self) -> Latency {
        if self.count == 0 {
            return Latency::default();
        }
        Latency {
            count: self.count,
            min: self.min,
            mean: self.sum as f64 / self.count as f64,
            p50: self.quantile(self.count.div_ceil(2)),
            p99: self.quantile(self.count - self.count / 100),
            max: self.max,
        }
    }

    /// The latency that `rank` packets do not exceed; 0 where there were none.
    pub(crate) fn quantile(&self, rank: u64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return last_of(bucket).clamp(self.min, self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_packet_has_no_latency() {
        assert_eq!(Histogram::default().summary(), Latency::default());
    }

    #[test]
    fn short_latencies_are_exact() {
        let mut histogram = Histogram::default();
        for value in 1..=60 {
            histogram.record(value);
        }
        let Latency { count, min, mean, p50, p99, max } = histogram.summary();
        assert_eq!((count, min, p50, p99, max), (60, 1, 30, 60, 60));
        assert!((mean - 30.5).abs() < 1e-9);
    }

    #[test]
    fn the_longest_latency_has_a_bucket() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!(histogram.summary().p50, u64::MAX);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_part_in_32(
            mut values in prop::collection::vec(0_u64..10_000_000, 1..200),
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            values.sort_unstable();
            let summary = histogram.summary();
            let exact = values[values.len().div_ceil(2) - 1];
            prop_assert!(summary.p50 >= exact && summary.p50 <= exact + exact / 32);
            prop_assert_eq!((summary.min, summary.max), (values[0], values[values.len() - 1]));
        }
    }
}
