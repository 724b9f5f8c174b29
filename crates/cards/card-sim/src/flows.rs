//! Flows of Facebook's data centres: how many bytes they have, and the packets these become.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::frame::FRAME_BYTES_MIN;

/// The largest packet of a flow, in bytes.
const SEGMENT_BYTES: u64 = 1_500;

/// Number of flows of ten thousand that have at most this many bytes: the Hadoop cluster of "Inside the
/// Social Network's (Datacenter) Network" (SIGCOMM '15), as points of its curve that later studies of
/// congestion control use. In between, sizes lie on straight lines.
const FACEBOOK: [(u64, u32); 20] = [
    (0, 0),
    (100, 100),
    (200, 200),
    (300, 500),
    (350, 1_500),
    (400, 2_000),
    (500, 3_000),
    (600, 4_000),
    (700, 5_000),
    (1_000, 6_000),
    (2_000, 6_700),
    (7_000, 7_000),
    (30_000, 7_200),
    (50_000, 8_200),
    (80_000, 8_700),
    (120_000, 9_000),
    (300_000, 9_500),
    (1_000_000, 9_750),
    (2_000_000, 9_900),
    (10_000_000, 10_000),
];

/// Bytes of a flow.
fn draw(rng: &mut ChaCha8Rng) -> u64 {
    let at = rng.random_range(0..10_000_u32);
    let next = FACEBOOK.iter().position(|&(_, share)| at < share).unwrap_or(1).max(1);
    let ((low, from), (high, to)) = (FACEBOOK[next - 1], FACEBOOK[next]);
    low + (high - low) * u64::from(at - from) / u64::from(to - from)
}

/// One flow after the other, packet by packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flows {
    rest: u64,
}

impl Flows {
    /// The next packet's bytes.
    pub(crate) fn next(&mut self, rng: &mut ChaCha8Rng) -> u32 {
        if self.rest == 0 {
            self.rest = draw(rng).max(1);
        }
        let bytes = self.rest.min(SEGMENT_BYTES);
        self.rest -= bytes;
        (bytes as u32).max(FRAME_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn half_of_the_flows_are_mice_and_a_tenth_has_most_bytes() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut flows: Vec<u64> = (0..100_000).map(|_| draw(&mut rng)).collect();
        flows.sort_unstable();
        assert!((690..=710).contains(&flows[50_000]), "{}", flows[50_000]);
        assert!((119_000..=122_000).contains(&flows[90_000]), "{}", flows[90_000]);
        let all: u64 = flows.iter().sum();
        let elephants: u64 = flows[90_000..].iter().sum();
        assert!(elephants * 10 > all * 7, "{elephants} of {all}");
    }

    #[test]
    fn packets_of_flows_are_full_or_the_last_of_theirs() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut flows = Flows::default();
        let packets: Vec<u32> = (0..100_000).map(|_| flows.next(&mut rng)).collect();
        assert!(packets.iter().all(|bytes| (64..=1_500).contains(bytes)));
        let full = packets.iter().filter(|bytes| **bytes == 1_500).count();
        assert!((90_000..100_000).contains(&full), "most packets are of large flows: {full}");
    }
}
