//! Faults on demand, from a seed.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Probability with which each operation of the card fails: 0 never, 1 always. None by default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// A load ends with `LOAD_ERROR_PACKETS`, and its region is broken.
    pub load_fails: f64,
    /// A load never ends: until its region is reset or the card loses power.
    pub load_hangs: f64,
    /// A load that ends well leaves other NTs in its region than its bitstream has.
    pub region_reports_other_nts: f64,
    /// A wrapper that moves state gives up (`STATE_ERROR_ENDED`).
    pub state_fails: f64,
    /// A wrapper that moves state never ends, until it is told to or the card loses power.
    pub state_hangs: f64,
    /// A commit never ends, until the card loses power.
    pub commit_hangs: f64,
    /// As a commit begins, the NTs of a loaded region let no packet go any more, until they are reset or loaded.
    pub nts_stop: f64,
    /// An NT does not take a configuration by its window.
    pub window_refuses: f64,
    /// An access to a register finds the card lost; it stays so until it is opened again.
    pub card_lost: f64,
}

/// Decides which operation fails, from a seed.
#[derive(Debug)]
pub(crate) struct FaultRng {
    pub(crate) faults: Faults,
    rng: ChaCha8Rng,
}

impl FaultRng {
    pub(crate) fn new(seed: u64) -> Self {
        // A stream of its own: faults do not change what else is drawn from the seed.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1);
        Self { faults: Faults::default(), rng }
    }

    pub(crate) fn load_fails(&mut self) -> bool {
        self.hit(self.faults.load_fails)
    }

    pub(crate) fn load_hangs(&mut self) -> bool {
        self.hit(self.faults.load_hangs)
    }

    pub(crate) fn region_reports_other_nts(&mut self) -> bool {
        self.hit(self.faults.region_reports_other_nts)
    }

    pub(crate) fn state_fails(&mut self) -> bool {
        self.hit(self.faults.state_fails)
    }

    pub(crate) fn state_hangs(&mut self) -> bool {
        self.hit(self.faults.state_hangs)
    }

    pub(crate) fn commit_hangs(&mut self) -> bool {
        self.hit(self.faults.commit_hangs)
    }

    /// One of these regions whose NTs stop.
    pub(crate) fn stops_one(&mut self, mut regions: impl FnMut() -> Vec<u8>) -> Option<u8> {
        if !self.hit(self.faults.nts_stop) {
            return None;
        }
        regions().choose(&mut self.rng).copied()
    }

    pub(crate) fn window_refuses(&mut self) -> bool {
        self.hit(self.faults.window_refuses)
    }

    pub(crate) fn card_lost(&mut self) -> bool {
        self.hit(self.faults.card_lost)
    }

    fn hit(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random_bool(probability.min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(probability: f64, seed: u64) -> usize {
        let mut rng = FaultRng::new(seed);
        rng.faults.load_fails = probability;
        (0..10_000).filter(|_| rng.load_fails()).count()
    }

    #[test]
    fn faults_are_as_frequent_as_asked_and_the_same_for_a_seed() {
        assert_eq!((hits(0.0, 1), hits(1.0, 1), hits(7.0, 1)), (0, 10_000, 10_000));
        assert!((2_300..2_700).contains(&hits(0.25, 1)));
        assert_eq!(hits(0.5, 3), hits(0.5, 3));
        assert_ne!(hits(0.5, 3), hits(0.5, 4));
    }
}
