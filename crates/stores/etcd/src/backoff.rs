//! Pauses between tries of what failed: they double up to a bound, and differ between those who wait.

use std::time::Duration;

/// Pauses of one who tries again and again. The seed comes from its owner, so that a simulation repeats itself.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
    state: u64,
}

impl Backoff {
    /// Pauses from about `first` on, never longer than `most`.
    pub const fn new((first, most): (Duration, Duration), seed: u64) -> Self {
        Self { first, most, failures: 0, state: seed }
    }

    /// The pause after one more failure: between half of the doubled one and all of it.
    pub fn next_pause(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        let whole = doubled.min(self.most);
        let half = whole / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(self.random() % (nanos + 1))
    }

    /// Failures since the last success.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// It succeeded: the next pause is the first one.
    pub const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The next number of the sequence (splitmix64).
    const fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The number of tries within a time is bounded whatever the seed: n pauses take at least half of their sum.
        #[test]
        fn pauses_grow_and_have_a_bound(seed: u64, first_ms in 1u64..500, failures in 1usize..40) {
            let (first, most) = (Duration::from_millis(first_ms), Duration::from_secs(5));
            let mut backoff = Backoff::new((first, most), seed);
            let mut expected = first;
            for _ in 0..failures {
                let pause = backoff.next_pause();
                prop_assert!(pause >= expected / 2 && pause <= expected, "{pause:?} of {expected:?}");
                expected = (expected * 2).min(most);
            }
            backoff.succeeded();
            prop_assert!(backoff.next_pause() <= first);
        }
    }

    #[test]
    fn those_who_wait_together_do_not_try_together() {
        let bounds = (Duration::from_secs(1), Duration::from_secs(1));
        let pauses = |seed| Backoff::new(bounds, seed).next_pause();
        assert_ne!(pauses(1), pauses(2));
        assert_eq!(pauses(1), pauses(1));
    }
}
