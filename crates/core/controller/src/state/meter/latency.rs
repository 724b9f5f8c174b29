//! Latencies of one DAG in the last second and the last ten, by part, from the packets that its card sampled.
//!
//! A second of the card's clock has a histogram for each part, with only those buckets that a packet fell into: a part takes
//! a few dozen bytes where its times are alike, and 4 KB at most. Ten seconds and the one under way are kept, and none of a
//! DAG without traffic.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use snic_domain::Cycles;
use snic_tables::{LatencySample, PathPart};

use crate::protocol::{LatencyQuantiles, MeasuredLatency, MeasuredPart};

/// Bits of a time that are kept behind the leading one: quantiles are right to one part in 16.
const FINE_BITS: u32 = 4;
const FINE: u32 = 1 << FINE_BITS;
/// Least number of packets by which one in a hundred is judged.
const JUDGED_MIN: u64 = 100;
/// Seconds of the long window.
const SECONDS_KEPT: u64 = 10;

/// A part as the card names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CardPart {
    Path(PathPart),
    /// An NT by its region and slot.
    Nt(u8, u8),
}

/// Number of times by bucket, in cycles.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeHistogram {
    /// Buckets that are not empty, rising.
    counts: Vec<(u16, u32)>,
    smallest: u32,
    largest: u32,
}

const fn bucket_of(value: u32) -> u16 {
    if value < 2 * FINE {
        return value as u16;
    }
    let shift = value.ilog2() - FINE_BITS;
    (shift * FINE + (value >> shift)) as u16
}

/// The largest value of a bucket.
const fn last_of(bucket: u16) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * FINE as u64 {
        return bucket;
    }
    let shift = bucket / FINE as u64 - 1;
    ((bucket - shift * FINE as u64 + 1) << shift) - 1
}

impl TimeHistogram {
    fn add(&mut self, value: u32) {
        self.note_extremes(value, value);
        self.count(bucket_of(value), 1);
    }

    fn note_extremes(&mut self, smallest: u32, largest: u32) {
        let is_first = self.counts.is_empty();
        self.smallest = if is_first { smallest } else { self.smallest.min(smallest) };
        self.largest = if is_first { largest } else { self.largest.max(largest) };
    }

    fn count(&mut self, bucket: u16, times: u32) {
        match self.counts.binary_search_by_key(&bucket, |(of, _)| *of) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(times),
            Err(at) => self.counts.insert(at, (bucket, times)),
        }
    }

    fn merge(&mut self, other: &Self) {
        if !other.counts.is_empty() {
            self.note_extremes(other.smallest, other.largest);
        }
        other.counts.iter().for_each(|(bucket, times)| self.count(*bucket, *times));
    }

    fn len(&self) -> u64 {
        self.counts.iter().map(|(_, times)| u64::from(*times)).sum()
    }

    /// The time that `rank` packets do not exceed.
    fn quantile(&self, rank: u64) -> u64 {
        let mut seen = 0;
        let bucket = self.counts.iter().find(|(_, times)| {
            seen += u64::from(*times);
            seen >= rank
        });
        let largest = u64::from(self.largest);
        bucket.map_or(largest, |(bucket, _)| last_of(*bucket).clamp(self.smallest.into(), largest))
    }

    /// Its quantiles, where the largest of all packets may be known to be larger.
    fn quantiles(&self, largest: u32, clock_hz: u64) -> LatencyQuantiles {
        let count = self.len();
        let time = |cycles| Cycles::new(cycles).duration(clock_hz);
        LatencyQuantiles {
            p50: time(self.quantile(count.div_ceil(2))),
            p99: time(self.quantile(count - count / 100)),
            max: time(self.largest.max(largest).into()),
        }
    }
}

/// Times of the packets of a second.
#[derive(Debug, Clone, Default)]
struct Second {
    /// Its number in the card's clock, since the DAG's counting began.
    number: u64,
    total: TimeHistogram,
    parts: BTreeMap<CardPart, TimeHistogram>,
    /// The largest of all packets, in cycles, as far as the card says it.
    largest: u32,
    /// Sampled packets that took longer than the bound that the DAG had then.
    late: u64,
}

impl Second {
    fn add(&mut self, sample: &LatencySample) {
        self.total.add(sample.total());
        for part in PathPart::ALL {
            self.parts.entry(CardPart::Path(part)).or_default().add(sample.part(part));
        }
        for nt in sample.nts() {
            self.parts.entry(CardPart::Nt(nt.region, nt.slot)).or_default().add(nt.cycles);
        }
    }
}

/// Latencies of one DAG in the seconds that are kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatencyWindows {
    /// Seconds in which a packet was sampled, the oldest first.
    seconds: VecDeque<Second>,
    now: u64,
}

impl LatencyWindows {
    /// The DAG's counting has come to this moment of the card's clock.
    pub fn pass(&mut self, now: Duration) {
        self.now = now.as_secs();
        while self.seconds.front().is_some_and(|first| first.number + SECONDS_KEPT < self.now) {
            self.seconds.pop_front();
        }
    }

    /// Takes packets that were sampled, and the largest latency of all, if it is known: those of the second that it is. Those that took
    /// more than `bound` cycles are counted.
    pub fn add<'a>(
        &mut self,
        samples: impl Iterator<Item = &'a LatencySample>,
        largest: Option<u32>,
        bound: Option<u32>,
    ) {
        let mut samples = samples.peekable();
        if samples.peek().is_none() && largest.is_none() {
            return;
        }
        if self.seconds.back().is_none_or(|last| last.number != self.now) {
            self.seconds.push_back(Second { number: self.now, ..Second::default() });
        }
        if let Some(second) = self.seconds.back_mut() {
            for sample in samples {
                second.add(sample);
                second.late += u64::from(bound.is_some_and(|bound| sample.total() > bound));
            }
            second.largest = second.largest.max(largest.unwrap_or(0));
        }
    }

    /// The window in which more than one sampled packet in a hundred took longer than the bound: the last second and what of the one before
    /// it is needed for a whole one, or as many more, up to ten, as have enough packets. Says how long ago it began, at most.
    pub fn late_window(&self) -> Option<Duration> {
        let (mut all, mut late, mut begun) = (0, 0, 0);
        for second in self.seconds.iter().rev() {
            let ago = self.now.saturating_sub(second.number);
            if ago > 1 && all >= JUDGED_MIN {
                break;
            }
            all += second.total.len();
            late += second.late;
            begun = ago + 1;
        }
        (all >= JUDGED_MIN && late * 100 > all).then(|| Duration::from_secs(begun))
    }

    /// The last second, and what of the one before it is needed for a whole one. `name` says of which task an NT is.
    pub fn second(&self, clock_hz: u64, name: impl Fn(u8, u8) -> MeasuredPart) -> MeasuredLatency {
        self.last(1, clock_hz, name)
    }

    /// The last ten seconds in the same way.
    pub fn ten_seconds(
        &self,
        clock_hz: u64,
        name: impl Fn(u8, u8) -> MeasuredPart,
    ) -> MeasuredLatency {
        self.last(SECONDS_KEPT, clock_hz, name)
    }

    fn last(
        &self,
        seconds: u64,
        clock_hz: u64,
        name: impl Fn(u8, u8) -> MeasuredPart,
    ) -> MeasuredLatency {
        let mut total = TimeHistogram::default();
        let mut parts: BTreeMap<MeasuredPart, TimeHistogram> = BTreeMap::new();
        let mut largest = 0;
        for second in self.seconds.iter().filter(|of| of.number + seconds >= self.now) {
            total.merge(&second.total);
            largest = largest.max(second.largest);
            for (part, times) in &second.parts {
                let part = match part {
                    CardPart::Path(part) => MeasuredPart::Path(*part),
                    CardPart::Nt(region, slot) => name(*region, *slot),
                };
                parts.entry(part).or_default().merge(times);
            }
        }
        let samples = total.len();
        if samples == 0 {
            return MeasuredLatency::default();
        }
        let quantiles =
            |(part, times): (MeasuredPart, TimeHistogram)| (part, times.quantiles(0, clock_hz));
        MeasuredLatency {
            samples,
            total: total.quantiles(largest, clock_hz),
            parts: parts.into_iter().map(quantiles).collect(),
        }
    }

    /// The card's counting begins again.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::NodeId;
    use snic_tables::NtTime;

    use super::*;

    /// One cycle is a nanosecond.
    const CLOCK: u64 = 1_000_000_000;

    fn sample(waits: u64, nts: &[(u8, u8, u32)]) -> LatencySample {
        let nts = nts.iter().map(|&(region, slot, cycles)| NtTime { region, slot, cycles });
        LatencySample::new(1, [0, 49, 0, waits, 0, 0], &nts.collect::<Vec<_>>())
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn task(region: u8, _: u8) -> MeasuredPart {
        match region {
            9 => MeasuredPart::FormerTask,
            _ => MeasuredPart::Task(NodeId::new("nat").expect("an id")),
        }
    }

    #[test]
    fn what_is_always_alike_is_exact_and_instances_of_a_task_count_together() {
        let mut windows = LatencyWindows::default();
        let samples = [sample(0, &[(1, 0, 1_001)]), sample(0, &[(4, 2, 1_001)])];
        windows.add(samples.iter(), Some(5_000), None);
        let measured = windows.second(CLOCK, task);
        let nanos = Duration::from_nanos;
        let alike = |n| LatencyQuantiles { p50: nanos(n), p99: nanos(n), max: nanos(n) };
        assert_eq!((measured.samples, measured.parts.len()), (2, 7));
        assert_eq!(measured.total, LatencyQuantiles { max: nanos(5_000), ..alike(1_050) });
        assert_eq!(measured.parts[1], (MeasuredPart::Path(PathPart::Pipeline), alike(49)));
        assert_eq!(measured.parts[6], (task(1, 0), alike(1_001)));
        let planned = |_: &MeasuredPart| nanos(49);
        assert_eq!(measured.slowest(planned), Some((&task(1, 0), nanos(952))));
        assert_eq!(measured.slowest(|_| nanos(1_001)), None);
    }

    #[test]
    fn a_window_forgets_what_is_older_and_a_dag_without_traffic_takes_no_memory() {
        let mut windows = LatencyWindows::default();
        for second in 0..30 {
            windows.pass(seconds(second));
            windows.add([sample(second, &[])].iter(), None, None);
            assert!(windows.seconds.len() as u64 <= SECONDS_KEPT + 1);
        }
        let count = |of: MeasuredLatency| of.samples;
        assert_eq!(count(windows.second(CLOCK, task)), 2, "the one under way, and a whole one");
        assert_eq!(count(windows.ten_seconds(CLOCK, task)), 11);
        windows.pass(seconds(33));
        assert_eq!(windows.second(CLOCK, task), MeasuredLatency::default());
        assert_eq!(count(windows.ten_seconds(CLOCK, task)), 7);
        windows.pass(seconds(60));
        assert!(windows.seconds.is_empty());
    }

    #[test]
    fn one_packet_in_a_hundred_may_be_late_and_two_are_too_many() {
        let mut windows = LatencyWindows::default();
        let mut add = |waits: u64, times: usize| {
            let sample = sample(waits, &[]);
            windows.add(std::iter::repeat_n(&sample, times), None, Some(1_049));
            windows.late_window().map(|window| window.as_secs())
        };
        assert_eq!(add(1_001, 1), None, "one packet says nothing about 99 in 100");
        assert_eq!(add(1_000, 99), None, "exactly the bound is within it");
        assert_eq!(add(1_001, 1), Some(1));
        assert_eq!(add(0, 100), None);
    }

    #[test]
    fn a_window_is_as_long_as_it_takes_to_see_a_hundred_packets() {
        let mut windows = LatencyWindows::default();
        let add = |windows: &mut LatencyWindows, second, waits, times| {
            windows.pass(seconds(second));
            windows.add(std::iter::repeat_n(&sample(waits, &[]), times), None, Some(1_049));
            windows.late_window().map(|window| window.as_secs())
        };
        // Late packets of long ago count where few came since.
        assert_eq!(add(&mut windows, 0, 9_000, 2), None);
        for second in 1..9 {
            assert_eq!(add(&mut windows, second, 0, 11), None, "{second}");
        }
        assert_eq!(add(&mut windows, 9, 0, 11), Some(10));
        assert_eq!(add(&mut windows, 10, 9_000, 3), Some(10));
        assert_eq!(add(&mut windows, 11, 0, 97), Some(2), "three of 100");
        assert_eq!(add(&mut windows, 12, 0, 3), None, "of these two seconds none was late");
        assert_eq!(add(&mut windows, 13, 9_000, 5), Some(3));
        assert_eq!(add(&mut windows, 14, 0, 200), Some(2), "the second before always counts");
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_part_in_16(
            values in prop::collection::vec(prop_oneof![0_u32..100, 0_u32..10_000_000, any::<u32>()], 1..400),
            cut in 0_usize..400,
        ) {
            let (mut one, mut other) = (TimeHistogram::default(), TimeHistogram::default());
            let (head, tail) = values.split_at(cut.min(values.len()));
            head.iter().for_each(|value| one.add(*value));
            tail.iter().for_each(|value| other.add(*value));
            one.merge(&other);
            let mut values: Vec<u64> = values.into_iter().map(u64::from).collect();
            values.sort_unstable();
            prop_assert_eq!(one.len(), values.len() as u64);
            for rank in [1, values.len().div_ceil(2), values.len() - values.len() / 100] {
                let (exact, read) = (values[rank - 1], one.quantile(rank as u64));
                prop_assert!(read >= exact && read <= exact + exact / 16, "{read} for {exact}");
            }
            prop_assert_eq!(u64::from(one.largest), values[values.len() - 1]);
        }
    }
}
