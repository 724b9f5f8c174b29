//! Part of a port that promises leave.
//!
//! Promises take a part of a port, and the rest is their headroom: a queue that a burst left behind becomes shorter only
//! as fast as the port has time that was promised to nobody. If packets beyond their promises took that time, such a queue
//! would stay, for one of them would be in front of every packet that is due. So each promised packet counts with its
//! part of the headroom, and a packet beyond its promise goes when all that came before would be done by then. Where
//! nothing was promised, they have all of the port.

use crate::time::Meter;

/// Promises take at most 1 - 1 / `HEADROOM_PART` of a port (`crates/core/tables/README.md`, the table of resources): 96 %.
const HEADROOM_PART: u64 = 25;

/// For how long packets beyond their promises wait at most after the last promised one, in cycles: 16 µs at 250 MHz. A
/// choice: bursts that take longer leave no more headroom than that behind them.
const WAIT_CYCLES_MAX: u64 = 4_096;

/// A port as packets beyond their promises see it.
#[derive(Debug)]
pub(super) struct Spare {
    meter: Meter,
}

impl Spare {
    pub(super) const fn of(port: Meter) -> Self {
        Self { meter: port }
    }

    /// From when on a packet beyond its promise may go.
    pub(super) const fn free_at(&self) -> u64 {
        self.meter.free_at()
    }

    /// A packet goes out at `now`.
    pub(super) fn serve_beats(&mut self, now: u64, bits: u64, beats: u64, is_promised: bool) {
        let work = self.meter.beats_work(bits, beats);
        let headroom = if is_promised { work / (HEADROOM_PART - 1) } else { 0 };
        if self.meter.free_at() < now + WAIT_CYCLES_MAX {
            self.meter.serve_work(now, work + headroom);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Clock;

    /// Bits of a packet, which takes 30 cycles at 100 Gbit/s.
    const BITS: u64 = 12_000;

    /// Number of packets beyond their promises that go in 300,000 cycles, in which this many are promised, evenly.
    fn beyond(promised: u64) -> u64 {
        let rate = Clock::new(250_000_000).rate(100_000_000_000).expect("not zero");
        let (mut port, mut spare) = (Meter::new(rate), Spare::of(Meter::new(rate)));
        let (mut sent, mut count) = (0, 0);
        for now in 0..300_000 {
            if port.free_at() > now {
                continue;
            }
            let is_promised = sent < promised && sent * 300_000 <= now * promised;
            if is_promised || spare.free_at() <= now {
                port.serve_beats(now, BITS, 24);
                spare.serve_beats(now, BITS, 24, is_promised);
                (sent, count) = (sent + u64::from(is_promised), count + u64::from(!is_promised));
            }
        }
        assert_eq!(sent, promised);
        count
    }

    #[test]
    fn packets_beyond_promises_have_what_promises_and_their_headroom_leave() {
        for (promised, percent) in [(0, 100), (2_400, 75), (4_800, 50), (7_200, 25), (9_600, 0)] {
            let expected = percent * 100;
            let found = beyond(promised);
            assert!(
                found.abs_diff(expected) <= 2,
                "{promised} are promised: {found}, not {expected}"
            );
        }
    }

    #[test]
    fn more_than_may_be_promised_does_not_lock_out_others_for_long() {
        let rate = Clock::new(250_000_000).rate(100_000_000_000).expect("not zero");
        let mut spare = Spare::of(Meter::new(rate));
        (0..10_000).for_each(|sent| spare.serve_beats(sent * 29, BITS, 24, true));
        let last = 10_000 * 29;
        assert!((last + 1..=last + WAIT_CYCLES_MAX + 40).contains(&spare.free_at()));
    }
}
