//! Events in ascending order, sorted only as far as they are read: a level that stops early leaves
//! most of them unsorted.
//!
//! Events go into buckets by their leading bits, at the same cost for each; a bucket is sorted
//! when it is reached. Levels spread over a few powers of two, so buckets stay small.

/// Numbers in ascending order. Reading r of n takes O(n + r log r), whatever the numbers are.
#[derive(Debug, Clone, Default)]
pub(super) struct EventQueue {
    arrived: Vec<u64>,
    /// Items of each bucket; in order up to `sorted`.
    items: Vec<u64>,
    /// Where each bucket ends.
    ends: Vec<u32>,
    /// All buckets before this one are sorted.
    bucket: usize,
    sorted: usize,
    next: usize,
}

impl EventQueue {
    pub fn clear(&mut self) {
        self.arrived.clear();
        self.items.clear();
        self.ends.clear();
        (self.bucket, self.sorted, self.next) = (0, 0, 0);
    }

    /// Adds a number; all are added before [`Self::sort_into_buckets`].
    pub fn push(&mut self, number: u64) {
        self.arrived.push(number);
    }

    /// Prepares for reading, after the last [`Self::push`].
    pub fn sort_into_buckets(&mut self) {
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

    /// The smallest number that has not been passed.
    pub fn first(&mut self) -> Option<u64> {
        while self.next == self.sorted {
            let end = *self.ends.get(self.bucket)? as usize;
            self.items[self.sorted..end].sort_unstable();
            (self.sorted, self.bucket) = (end, self.bucket + 1);
        }
        Some(self.items[self.next])
    }

    /// Passes the first number.
    pub fn advance(&mut self) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(queue: &mut EventQueue, numbers: &[u64]) -> Vec<u64> {
        queue.clear();
        numbers.iter().for_each(|number| queue.push(*number));
        queue.sort_into_buckets();
        let next = |queue: &mut EventQueue| {
            let first = queue.first();
            queue.advance();
            first
        };
        std::iter::from_fn(|| next(queue)).collect()
    }

    proptest! {
        /// For numbers close together and far apart, in a queue that was used before.
        #[test]
        fn numbers_come_in_ascending_order(
            lists in prop::collection::vec(
                prop::collection::vec(prop_oneof![0..50_u64, any::<u64>(), 1 << 60..(1_u64 << 60) + 999], 0..90),
                1..4,
            ),
        ) {
            let mut queue = EventQueue::default();
            for list in lists {
                let mut sorted = list.clone();
                sorted.sort_unstable();
                prop_assert_eq!(read(&mut queue, &list), sorted);
            }
        }
    }
}
