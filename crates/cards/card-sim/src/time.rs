//! Time in cycles, and rates without rounding.
//!
//! Events happen at whole cycles. What a rate allows falls between cycles: 512 bits at 30 Gbit/s
//! are 4.27 cycles of 4 ns. A [`Meter`] therefore keeps when it is free next as a cycle and an
//! exact fraction, so that a busy unit serves its bandwidth to the bit, however long it runs.

use std::num::NonZeroU32;

use snic_domain::{Bandwidth, Timestamp};

const NANOS: u128 = 1_000_000_000;

/// The data path's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    hz: u64,
}

impl Clock {
    /// A clock of `hz`, which is not zero.
    pub(crate) const fn new(hz: u64) -> Self {
        Self { hz }
    }

    /// The cycle that is under way at `at`.
    pub(crate) fn cycle_at(self, at: Timestamp) -> u64 {
        let cycles = u128::from(at.as_nanos()) * u128::from(self.hz) / NANOS;
        u64::try_from(cycles).unwrap_or(u64::MAX)
    }

    /// Time of `cycles`, in nanoseconds, rounded down.
    pub(crate) fn nanos(self, cycles: u64) -> u64 {
        u64::try_from(u128::from(cycles) * NANOS / u128::from(self.hz)).unwrap_or(u64::MAX)
    }

    /// Rate of `bytes` in `cycles`, per second; zero in no time.
    pub(crate) fn bandwidth(self, bytes: u64, cycles: u64) -> Bandwidth {
        let bits = u128::from(bytes) * 8 * u128::from(self.hz);
        let bps = bits.checked_div(u128::from(cycles)).unwrap_or(0);
        Bandwidth::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
    }

    /// Number of cycles that `units` take at `units_per_second`, rounded up; at least one.
    pub(crate) fn cycles_for(self, units: u64, units_per_second: u64) -> u64 {
        let cycles = u128::from(units) * u128::from(self.hz);
        let cycles = cycles.div_ceil(u128::from(units_per_second.max(1)));
        u64::try_from(cycles).unwrap_or(u64::MAX).max(1)
    }

    /// Cycles a bit takes at `bps`; `None` where nothing ever passes.
    pub(crate) fn rate(self, bps: u64) -> Option<Rate> {
        let common = gcd(self.hz, bps);
        (bps > 0).then(|| Rate { cycles: self.hz / common, bits: bps / common })
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A number of cycles for a number of bits, in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    cycles: u64,
    bits: u64,
}

impl Rate {
    /// A number of things in a number of cycles, whatever the clock.
    pub(crate) fn per_cycles(things: NonZeroU32, cycles: NonZeroU32) -> Self {
        let (things, cycles) = (u64::from(things.get()), u64::from(cycles.get()));
        let common = gcd(things, cycles);
        Self { cycles: cycles / common, bits: things / common }
    }

    /// Time of `bits`, in parts of a cycle: [`Rate::parts`] make one.
    pub(crate) const fn work(self, bits: u64) -> u64 {
        bits * self.cycles
    }

    /// Number of parts that make a cycle.
    pub(crate) const fn parts(self) -> u64 {
        self.bits
    }
}

/// A cycle and parts of the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    cycle: u64,
    parts: u64,
}

impl Moment {
    const fn up(self) -> u64 {
        self.cycle + (self.parts > 0) as u64
    }

    const fn plus(self, work: u64, parts: u64) -> Self {
        let sum = self.parts + work;
        Self { cycle: self.cycle + sum / parts, parts: sum % parts }
    }

    /// Before that by so much work; the beginning, where nothing is before.
    const fn minus(self, work: u64, parts: u64) -> Self {
        let borrows = work % parts > self.parts;
        let rest = self.parts + if borrows { parts } else { 0 } - work % parts;
        match self.cycle.checked_sub(work / parts + borrows as u64) {
            Some(cycle) => Self { cycle, parts: rest },
            None => Self { cycle: 0, parts: 0 },
        }
    }
}

/// A unit that serves one thing after another at a rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    rate: Rate,
    free: Moment,
}

/// When a unit begins, and when it can take the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceTime {
    /// The cycle at which it begins.
    pub(crate) start: u64,
    /// The cycle at which the last bit is through.
    pub(crate) end: u64,
}

impl Meter {
    /// A unit that is free.
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, free: Moment::default() }
    }

    /// The same unit, free again.
    pub(crate) fn fresh(&self) -> Self {
        Self::new(self.rate)
    }

    /// The cycle from which it is free.
    pub(crate) const fn free_at(&self) -> u64 {
        self.free.up()
    }

    /// Serves `bits` as soon as it can, at `now` or later.
    #[inline]
    pub(crate) fn serve(&mut self, now: u64, bits: u64) -> ServiceTime {
        self.serve_work(now, self.rate.work(bits))
    }

    /// The same for a port, which takes at least `beats` cycles whatever its rate.
    #[inline]
    pub(crate) fn serve_beats(&mut self, now: u64, bits: u64, beats: u64) -> ServiceTime {
        self.serve_work(now, self.beats_work(bits, beats))
    }

    /// Work for that.
    #[inline]
    pub(crate) fn beats_work(&self, bits: u64, beats: u64) -> u64 {
        self.rate.work(bits).max(beats * self.rate.parts())
    }

    /// The same for work that was computed by hand.
    #[inline]
    pub(crate) fn serve_work(&mut self, now: u64, work: u64) -> ServiceTime {
        // What waited for this very cycle goes on from the fraction in which the unit became free:
        // otherwise every packet that waits would lose up to a cycle.
        let idle = self.free.up() < now;
        let start = if idle { Moment { cycle: now, parts: 0 } } else { self.free };
        self.free = start.plus(work, self.rate.bits);
        ServiceTime { start: start.up(), end: self.free.up() }
    }

    /// Forgets all that lies before `cycle`: what was not used by then is lost.
    pub(crate) fn not_before(&mut self, cycle: u64) {
        self.free = self.free.max(Moment { cycle, parts: 0 });
    }
}

/// A token bucket, as the theoretical arrival time of what is full: free again at that time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    meter: Meter,
    depth_bits: u64,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(rate: Rate, burst_bytes: u32) -> Self {
        Self { meter: Meter::new(rate), depth_bits: u64::from(burst_bytes) * 8 }
    }

    /// Another rate and depth from `now` on: what was taken and has not come back is still missing, as
    /// far as the new depth goes.
    pub(crate) fn change(&mut self, now: u64, rate: Rate, burst_bytes: u32) {
        // Rates may change with every epoch. A bucket that was full again after each change would let a DAG send a
        // burst an epoch beyond its rate, and an empty one would take tokens that it has earned.
        let before = self.meter.rate;
        let cycles = u128::from(self.meter.free_at().saturating_sub(now));
        let missing = cycles * u128::from(before.bits) / u128::from(before.cycles);
        let missing = u64::try_from(missing).unwrap_or(u64::MAX);
        *self = Self::new(rate, burst_bytes);
        self.meter.serve(now, missing.min(self.depth_bits));
    }

    /// The first cycle at which `bits` pass. What is larger than the bucket passes when it is full.
    pub(crate) fn ready_at(&self, bits: u64) -> u64 {
        // A bucket keeps no count of tokens that each packet would have to bring up to date, but the moment at which
        // it is full if nothing passes. Tokens that are missing are the time until then. `bits` are there once no
        // more than the rest of the depth is missing, so that much earlier. The moment is kept in parts of a cycle,
        // because a rounded one would drift with every packet; a cycle number times a rate needs 128 bits.
        let Meter { rate, free } = self.meter;
        let ahead = u128::from(self.depth_bits.saturating_sub(bits)) * u128::from(rate.cycles);
        let free = u128::from(free.cycle) * u128::from(rate.bits) + u128::from(free.parts);
        let ready = free.saturating_sub(ahead).div_ceil(u128::from(rate.bits));
        u64::try_from(ready).unwrap_or(u64::MAX)
    }

    /// When it is full again if nothing passes until then.
    pub(crate) const fn full_at(&self) -> u64 {
        self.meter.free_at()
    }

    /// Number of cycles that it takes to fill when it is empty, rounded up.
    pub(crate) const fn fills_in(&self) -> u64 {
        let Rate { cycles, bits } = self.meter.rate;
        self.depth_bits.saturating_mul(cycles).div_ceil(bits)
    }

    /// Whether `bits` pass at `now`; cheap where the bucket is full.
    pub(crate) fn is_ready(&self, now: u64, bits: u64) -> bool {
        self.meter.free_at() <= now || self.ready_at(bits) <= now
    }

    /// Takes out `bits`, which are ready.
    pub(crate) fn take(&mut self, now: u64, bits: u64) {
        self.meter.serve(now, bits);
    }

    /// Takes out `bits` that have passed, or what is left of them.
    pub(crate) fn take_rest(&mut self, now: u64, bits: u64) {
        let Meter { rate, free } = self.meter;
        let missing = u128::from(free.up().saturating_sub(now)) * u128::from(rate.bits);
        let missing = missing / u128::from(rate.cycles);
        let left = u128::from(self.depth_bits).saturating_sub(missing);
        self.take(now, bits.min(u64::try_from(left).unwrap_or(u64::MAX)));
    }

    /// Puts `bits` back that were taken; what the bucket has no room for is lost.
    pub(crate) const fn give_back(&mut self, bits: u64) {
        let Meter { rate, free } = self.meter;
        self.meter.free = free.minus(rate.work(bits), rate.bits);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLOCK: Clock = Clock::new(250_000_000);

    #[test]
    fn a_cycle_at_250_mhz_is_four_nanoseconds_also_today() {
        assert_eq!(CLOCK.cycle_at(Timestamp::from_nanos(7)), 1);
        assert_eq!(CLOCK.cycle_at(Timestamp::from_nanos(8)), 2);
        let today = 1_795_219_200_000_000_004;
        assert_eq!(CLOCK.nanos(CLOCK.cycle_at(Timestamp::from_nanos(today))), today);
        assert_eq!(CLOCK.cycle_at(Timestamp::from_nanos(u64::MAX)), u64::MAX / 4);
        assert_eq!(Clock::new(3).cycle_at(Timestamp::from_nanos(1_000_000_000)), 3);
    }

    #[test]
    fn bandwidth_is_bytes_by_time() {
        assert_eq!(CLOCK.bandwidth(64, 1), Bandwidth::from_gbps(128));
        assert_eq!(CLOCK.bandwidth(64, 0), Bandwidth::ZERO);
        assert_eq!(CLOCK.cycles_for(4_000_000, 800_000_000), 1_250_000, "4 MB in 5 ms");
        assert_eq!(CLOCK.cycles_for(0, 800_000_000), 1);
    }

    #[test]
    fn a_busy_meter_loses_no_fraction() {
        let mut meter = Meter::new(CLOCK.rate(30_000_000_000).expect("not zero"));
        let first = meter.serve(0, 512);
        assert_eq!(first, ServiceTime { start: 0, end: 5 }, "4.27 cycles");
        for _ in 0..14 {
            meter.serve(0, 512);
        }
        assert_eq!(meter.free_at(), 64, "15 times 512 bits at 30 Gbit/s are 256 ns");
        assert_eq!(meter.serve(100, 512).start, 100);
    }

    #[test]
    fn waiting_for_a_meter_loses_no_fraction_of_a_cycle() {
        let mut meter = Meter::new(CLOCK.rate(30_000_000_000).expect("not zero"));
        for _ in 0..15 {
            let now = meter.free_at();
            assert_eq!(meter.serve(now, 512).start, now);
        }
        assert_eq!(meter.free_at(), 64);
    }

    #[test]
    fn a_port_takes_whole_beats() {
        let mut port = Meter::new(CLOCK.rate(128_000_000_000).expect("not zero"));
        assert_eq!(port.serve_beats(0, 65 * 8, 2).end, 2);
        let mut slow = Meter::new(CLOCK.rate(64_000_000_000).expect("not zero"));
        assert_eq!(slow.serve_beats(0, 512, 1).end, 2);
    }

    #[test]
    fn nothing_passes_at_no_rate() {
        assert_eq!(CLOCK.rate(0), None);
    }

    #[test]
    fn a_bucket_lets_its_depth_pass_and_then_its_rate() {
        let rate = CLOCK.rate(1_000_000_000).expect("not zero");
        let mut bucket = Bucket::new(rate, 3_000);
        for _ in 0..2 {
            assert!(bucket.is_ready(0, 12_000));
            bucket.take(0, 12_000);
        }
        assert!(!bucket.is_ready(0, 12_000));
        assert_eq!(bucket.ready_at(12_000), 3_000, "1500 bytes at 1 Gbit/s are 12 us");
        assert_eq!(bucket.ready_at(24_000), 6_000);
        assert_eq!(bucket.ready_at(48_000), 6_000, "larger than the bucket: when it is full");
        let twice = CLOCK.rate(2_000_000_000).expect("not zero");
        bucket.change(0, twice, 3_000);
        assert_eq!(bucket.ready_at(12_000), 1_500, "as much is missing, and comes faster");
        bucket.change(1_500, twice, 1_500);
        assert_eq!(bucket.ready_at(12_000), 3_000, "no more is missing than it may hold");
    }

    proptest! {
        #[test]
        fn a_meter_is_never_faster_than_its_rate(
            bps in 1_000_u64..400_000_000_000,
            packets in prop::collection::vec((0_u64..2_000, 64_u64..9_216), 1..100),
        ) {
            let mut meter = Meter::new(CLOCK.rate(bps).expect("not zero"));
            let (mut now, mut first, mut bits) = (0, None, 0);
            for (gap, bytes) in packets {
                now += gap;
                let served = meter.serve(now, bytes * 8);
                prop_assert!(served.start >= now && served.end >= served.start);
                bits += bytes * 8;
                let first = *first.get_or_insert(served.start);
                let least = u128::from(bits) * 250_000_000 / u128::from(bps);
                prop_assert!(u128::from(served.end - first) >= least);
            }
        }

        #[test]
        fn what_is_given_back_was_never_taken(
            mbps in 1_u64..200_000,
            taken in prop::collection::vec((0_u64..5_000, 64_u64..=12_000), 1..40),
            given in 64_u64..=12_000,
        ) {
            let rate = CLOCK.rate(mbps * 1_000_000).expect("not zero");
            let (mut bucket, mut now) = (Bucket::new(rate, 65_536), 0);
            for (later, bits) in taken {
                now += later;
                bucket.take(now, bits);
            }
            let before = (bucket.full_at(), bucket.ready_at(given));
            bucket.take(now, given);
            bucket.give_back(given);
            // A full one is full from now on.
            prop_assert_eq!(bucket.full_at(), before.0.max(now));
            prop_assert!(bucket.ready_at(given) <= before.1.max(now));
            let mut empty = Bucket::new(rate, 65_536);
            empty.give_back(given);
            prop_assert_eq!(empty.full_at(), 0);
        }

        #[test]
        fn a_bucket_passes_at_most_depth_plus_rate_by_time(
            kbps in 1_000_u64..100_000_000,
            burst in 1_600_u32..100_000,
            packets in prop::collection::vec(64_u64..1_600, 1..100),
        ) {
            let rate = CLOCK.rate(kbps * 1_000).expect("not zero");
            let mut bucket = Bucket::new(rate, burst);
            let (mut now, mut bits) = (0, 0);
            for bytes in packets {
                now = bucket.ready_at(bytes * 8).max(now);
                prop_assert!(bucket.is_ready(now, bytes * 8));
                bucket.take(now, bytes * 8);
                bits += u128::from(bytes * 8);
                let most = u128::from(burst) * 8
                    + u128::from(now) * u128::from(kbps) * 1_000 / 250_000_000;
                prop_assert!(bits <= most + 1, "{bits} bits passed, {most} may");
            }
        }
    }
}
