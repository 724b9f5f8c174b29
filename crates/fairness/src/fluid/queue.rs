//! Events in their order, sorted only as far as they are read: a level that stops early leaves most
//! of them aside.
//!
//! They are thrown into buckets by their leading bits, which costs the same for each; a bucket is
//! sorted when it is reached. Levels spread over a few powers of two, so that buckets hold a few.

/// Numbers in ascending order. Time to read r of n: O(n + r log r), whatever the numbers are.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    arrived: Vec<u64>,
    /// In buckets; up to `sorted` in order.
    items: Vec<u64>,
    /// Where each bucket ends.
    ends: Vec<u32>,
    /// The buckets before are sorted.
    bucket: usize,
    sorted: usize,
    next: usize,
}

impl Queue {
    pub fn clear(&mut self) {
        self.arrived.clear();
        self.items.clear();
        self.ends.clear();
        (self.bucket, self.sorted, self.next) = (0, 0, 0);
    }

    /// Adds a number, before [`Self::arrange`].
    pub fn push(&mut self, number: u64) {
        self.arrived.push(number);
    }

    /// All have arrived.
    pub fn arrange(&mut self) {
        let (Some(least), Some(most)) = (self.arrived.iter().min(), self.arrived.iter().max())
        else {
            return;
        };
        let (least, spread) = (*least, most - least);
        let bits = self.arrived.len().ilog2() + 1;
        let shift = (u64::BITS - spread.leading_zeros()).saturating_sub(bits);
        let bucket = |number: u64| ((number - least) >> shift) as usize;
        self.ends.resize(1 << bits, 0);
        for number in &self.arrived {
            self.ends[bucket(*number)] += 1;
        }
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.items.resize(self.arrived.len(), 0);
        for number in &self.arrived {
            let at = &mut self.ends[bucket(*number)];
            self.items[*at as usize] = *number;
            *at += 1;
        }
    }

    /// The first that was not passed.
    pub fn first(&mut self) -> Option<u64> {
        while self.next == self.sorted {
            let end = *self.ends.get(self.bucket)? as usize;
            self.items[self.sorted..end].sort_unstable();
            (self.sorted, self.bucket) = (end, self.bucket + 1);
        }
        Some(self.items[self.next])
    }

    /// Passes the first over.
    pub fn pass(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(queue: &mut Queue, numbers: &[u64]) -> Vec<u64> {
        queue.clear();
        numbers.iter().for_each(|number| queue.push(*number));
        queue.arrange();
        let next = |queue: &mut Queue| {
            let first = queue.first();
            queue.pass();
            first
        };
        std::iter::from_fn(|| next(queue)).collect()
    }

    proptest! {
        /// Whatever comes, near to each other or far apart, and in a queue that was used before.
        #[test]
        fn numbers_come_in_their_order(
            lists in prop::collection::vec(
                prop::collection::vec(prop_oneof![0..50_u64, any::<u64>(), 1 << 60..(1_u64 << 60) + 999], 0..90),
                1..4,
            ),
        ) {
            let mut queue = Queue::default();
            for list in lists {
                let mut sorted = list.clone();
                sorted.sort_unstable();
                prop_assert_eq!(read(&mut queue, &list), sorted);
            }
        }
    }
}
