//! Whether a DAG has kept to its promise, for what is promised only then.
//!
//! It is judged as the card does: by a token bucket for bytes at the promised rate, as deep as the card's, and one for packets of the
//! sizes that the DAG states. The card's counters are read every few milliseconds, so a burst between two readings is seen with what
//! came around it.

use std::time::Duration;

use snic_domain::DagSpec;

use crate::decide::rows::burst_bytes;
use crate::protocol::TrafficWindow;

/// Longest time for which packets of before a window may make others wait in it.
const WAITS_MAX: Duration = Duration::from_secs(1);

/// Bits and packets that may come within the promise, and when more came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conformance {
    /// Counts up to the last reading; `None` before the first.
    before: Option<TrafficWindow>,
    /// Billionths of a bit, and of a packet.
    left: [u128; 2],
    /// Time of the DAG's counting at which more came than that.
    beyond: Option<Duration>,
}

const WHOLE: u128 = 1_000_000_000;

impl Conformance {
    /// The DAG's counting has come to these sums.
    pub fn pass(&mut self, sums: &TrafficWindow, spec: &DagSpec) {
        let packet_bits = u64::from(spec.packet_sizes.mean_bytes()).max(1) * 8;
        let burst_bits = u64::from(burst_bytes(spec.bandwidth)) * 8;
        let rates = [spec.bandwidth.get(), spec.packet_sizes.packets_per_second(spec.bandwidth)];
        let depths =
            [burst_bits, burst_bits.div_ceil(packet_bits)].map(|depth| u128::from(depth) * WHOLE);
        let Some(before) = self.before.replace(*sums) else {
            self.left = depths;
            return;
        };
        let came = sums.since(&before);
        let came = [came.bytes_in.saturating_mul(8), came.packets_in];
        let nanos = sums.span.saturating_sub(before.span).as_nanos();
        for at in 0..2 {
            let left = self.left[at].min(depths[at]) + u128::from(rates[at]) * nanos;
            let needed = u128::from(came[at]) * WHOLE;
            if needed > left {
                self.beyond = Some(sums.span);
            }
            self.left[at] = left.saturating_sub(needed);
        }
    }

    /// Whether it kept to its promise in a window that began so long ago, and for as long before it as that may have made packets wait.
    pub fn is_kept_for(&self, window: Duration) -> bool {
        let now = self.before.map_or(Duration::ZERO, |sums| sums.span);
        let length = window + WAITS_MAX;
        now >= length && self.beyond.is_none_or(|beyond| beyond + length <= now)
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{Bandwidth, NtTypeId, PacketSizes};

    use super::*;

    /// Sends for so many milliseconds, `packets` of `bytes` in each.
    fn send(
        gauge: &mut Conformance,
        sums: &mut TrafficWindow,
        (millis, packets, bytes): (u64, u64, u64),
    ) {
        let nat = NtTypeId::new("nat").expect("an id");
        let sizes = PacketSizes::only(1_250);
        let spec =
            DagSpec { packet_sizes: sizes, ..DagSpec::chain(&[nat], Bandwidth::from_gbps(1)) };
        for _ in 0..millis {
            sums.span += Duration::from_millis(1);
            sums.packets_in += packets;
            sums.bytes_in += packets * bytes;
            gauge.pass(sums, &spec);
        }
    }

    #[test]
    fn a_load_at_the_promise_is_within_it_and_three_seconds_after_a_burst_it_is_again() {
        let (mut gauge, mut sums) = Default::default();
        send(&mut gauge, &mut sums, (2_900, 100, 1_250));
        assert!(!gauge.is_kept_for(Duration::from_secs(2)), "nothing is known of the time before");
        send(&mut gauge, &mut sums, (200, 100, 1_250));
        assert!(gauge.is_kept_for(Duration::from_secs(2)));
        // 64 KiB more than promised are no burst, 100 KB are.
        send(&mut gauge, &mut sums, (1, 150, 1_250));
        send(&mut gauge, &mut sums, (10, 90, 1_250));
        assert!(gauge.is_kept_for(Duration::from_secs(2)));
        send(&mut gauge, &mut sums, (1, 185, 1_250));
        assert!(!gauge.is_kept_for(Duration::from_secs(2)));
        send(&mut gauge, &mut sums, (2_900, 50, 1_250));
        assert!(!gauge.is_kept_for(Duration::from_secs(2)));
        send(&mut gauge, &mut sums, (101, 50, 1_250));
        assert!(gauge.is_kept_for(Duration::from_secs(2)));
    }

    #[test]
    fn more_packets_than_promised_are_beyond_it_however_small() {
        let (mut gauge, mut sums) = Default::default();
        send(&mut gauge, &mut sums, (3_100, 100, 64));
        assert!(gauge.is_kept_for(Duration::from_secs(2)));
        send(&mut gauge, &mut sums, (100, 110, 64));
        assert!(!gauge.is_kept_for(Duration::from_secs(2)));
    }
}
