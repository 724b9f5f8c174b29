//! The anti-replay window (RFC 4303, section 3.4.3): the highest sequence number that was seen, and
//! which of those before it were seen too. Kept as a ring of words, so that moving on clears words
//! instead of shifting all of them (RFC 6479).

use serde::{Deserialize, Serialize};

const WORD_BITS: u32 = 64;

/// Sequence numbers that came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReplayWindow {
    highest: u32,
    /// Number of sequence numbers up to the highest that count as inside.
    size: u32,
    words: Vec<u64>,
}

impl ReplayWindow {
    /// A window for `size` numbers, of which none was seen.
    pub(super) fn new(size: u32) -> Self {
        Self { highest: 0, size, words: vec![0; Self::words(size)] }
    }

    /// A window of another size with the same history. All numbers up to the highest count as seen.
    /// A few late packets may be dropped for that, but no replayed one is accepted.
    pub(super) fn resized(&self, size: u32) -> Self {
        Self { highest: self.highest, size, words: vec![u64::MAX; Self::words(size)] }
    }

    /// One word more than the window: the one that is being cleared is never inside.
    fn words(size: u32) -> usize {
        (size.div_ceil(WORD_BITS) + 1) as usize
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Whether [`ReplayWindow::new`] could have made it: restored state may be damaged.
    pub(super) fn is_sound(&self, size: u32) -> bool {
        self.size == size && self.words.len() == Self::words(size)
    }

    fn place(&self, number: u32) -> (usize, u64) {
        let word = (number / WORD_BITS) as usize % self.words.len();
        (word, 1 << (number % WORD_BITS))
    }

    /// Whether a packet with this number may be new. Number 0 is never sent.
    pub(super) fn may_be_new(&self, number: u32) -> bool {
        if number > self.highest {
            return true;
        }
        if number == 0 || self.highest - number >= self.size {
            return false;
        }
        let (word, bit) = self.place(number);
        self.words[word] & bit == 0
    }

    /// Records a number for which [`ReplayWindow::may_be_new`] holds, once the packet is authentic.
    pub(super) fn accept(&mut self, number: u32) {
        if number > self.highest {
            // The window is a ring of words, and moves by whole words. Those between the old and the new highest
            // number still hold bits of numbers that are a window older, so they are emptied first; after a jump over
            // the whole window, all of them, once.
            let steps = number / WORD_BITS - self.highest / WORD_BITS;
            let first = (self.highest / WORD_BITS) as usize + 1;
            let count = self.words.len();
            for step in 0..count.min(steps as usize) {
                self.words[(first + step) % count] = 0;
            }
            self.highest = number;
        }
        let (word, bit) = self.place(number);
        self.words[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of all numbers that came.
        #[test]
        fn the_window_is_that_of_a_set(
            size in prop::sample::select(vec![32_u32, 64, 100, 1_024]),
            start in prop::sample::select(vec![0_u32, 1, 1_000, u32::MAX - 5_000]),
            steps in prop::collection::vec((-200_i64..200, 0..3_u32), 1..300),
        ) {
            let mut window = ReplayWindow::new(size);
            let mut seen = BTreeSet::new();
            let mut at = i64::from(start);
            for (step, kind) in steps {
                at += match kind { 0 => step, 1 => 1, _ => step * 20 };
                at = at.clamp(0, i64::from(u32::MAX));
                let number = at as u32;
                let highest = seen.last().copied().unwrap_or(0);
                let is_new = number != 0 && !seen.contains(&number)
                    && (number > highest || highest - number < size);
                prop_assert_eq!(window.may_be_new(number), is_new, "{}", number);
                if is_new {
                    window.accept(number);
                    seen.insert(number);
                }
            }
        }
    }

    #[test]
    fn a_resized_window_takes_nothing_again() {
        let mut window = ReplayWindow::new(32);
        window.accept(1_000);
        let mut wide = window.resized(512);
        assert!((1..=1_000).all(|number| !wide.may_be_new(number)));
        wide.accept(1_001);
        assert!(!wide.may_be_new(1_001) && wide.may_be_new(1_200));
    }
}
