//! The time of one thread, shared among levels by weight and among the flows of a level evenly.
//!
//! Start-time fair queueing in two steps (Goyal, Vin and Cheng, "Start-Time Fair Queuing", 1996): the
//! waiting level that has had the least time for its weight is next, and in it the waiting flow that has
//! had the least time. What an item costs is known only afterwards and charged then ([`TakenItem`]), so an
//! expensive request counts for more than a cheap one. A level or flow that had nothing to do does not
//! save up time: it starts again where the others are.
//!
//! ```text
//!  push(flow, item) ──► queue of the flow ──► pop() ──► item ──► Served::charge(cost)
//!       └── over its share: Overflow                                   │
//!                  the flow's and its level's time grow by the cost ◄──┘
//! ```
//!
//! A flow that starts waits at most for what is served at that moment, and for one item of each flow that
//! waits and has had as little time as it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Idle flows that are remembered beyond the waiting ones before those without debt are forgotten.
const IDLE_FLOWS_KEPT: usize = 64;

/// A flow has its share of waiting items already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow {
    /// Most items of one flow that wait.
    pub limit: usize,
}

/// Time that a flow or level has had, in nanoseconds divided by its weight.
type ServedTime = u128;

#[derive(Debug)]
struct Flow<T> {
    had: ServedTime,
    items: VecDeque<T>,
}

#[derive(Debug)]
struct Level<F, T> {
    weight: u32,
    had: ServedTime,
    /// The least that a waiting flow has had: where one that starts begins.
    now: ServedTime,
    flows: BTreeMap<F, Flow<T>>,
    /// Flows that wait, by what they have had.
    waiting: BTreeSet<(ServedTime, F)>,
}

/// Items that wait for one thread.
#[derive(Debug)]
pub struct FairQueue<F, T> {
    levels: Vec<Level<F, T>>,
    /// The least that a waiting level has had: where one that starts begins.
    now: ServedTime,
    flow_max: usize,
    len: usize,
}

/// The item that was taken, and the flow that its cost is charged to.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a flow that is not charged gets its time for nothing"]
pub struct TakenItem<F> {
    level: usize,
    flow: F,
}

impl<F: Ord + Clone, T> FairQueue<F, T> {
    /// An empty queue of levels with these weights, for at most `flow_max` waiting items per flow.
    ///
    /// # Panics
    /// With a weight of zero: such a level would never be served.
    pub fn new(weights: impl IntoIterator<Item = u32>, flow_max: usize) -> Self {
        let level = |weight| {
            assert!(weight > 0, "a level without weight would never be served");
            let (flows, waiting) = (BTreeMap::new(), BTreeSet::new());
            Level { weight, had: 0, now: 0, flows, waiting }
        };
        Self { levels: weights.into_iter().map(level).collect(), now: 0, flow_max, len: 0 }
    }

    /// Items that wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues an item behind those of its flow. Time O(log flows).
    ///
    /// # Errors
    /// The item, where its flow has too many waiting.
    ///
    /// # Panics
    /// Without such a level.
    pub fn push(&mut self, level: usize, flow: &F, item: T) -> Result<(), (T, Overflow)> {
        let now = self.now;
        let of = &mut self.levels[level];
        let found = of.flows.entry(flow.clone()).or_insert(Flow { had: 0, items: VecDeque::new() });
        if found.items.len() >= self.flow_max {
            return Err((item, Overflow { limit: self.flow_max }));
        }
        // A flow or level that was idle starts where the others are, not where it stopped: otherwise it could save up time
        // and then keep the thread until it has caught up. `max` moves it forward only, so what it owes for an
        // expensive item stays owed.
        if found.items.is_empty() {
            if of.waiting.is_empty() {
                of.had = of.had.max(now);
            }
            found.had = found.had.max(of.now);
            of.waiting.insert((found.had, flow.clone()));
        }
        found.items.push_back(item);
        self.len += 1;
        Ok(())
    }

    /// Takes the next item, and whom to charge. Time O(levels + log flows).
    pub fn pop(&mut self) -> Option<(T, TakenItem<F>)> {
        let waiting = self.levels.iter().enumerate().filter(|(_, level)| !level.waiting.is_empty());
        let (level, _) = waiting.min_by_key(|(_, level)| level.had)?;
        let of = &mut self.levels[level];
        // The virtual time is the start tag of what is served, as in start-time fair queueing. Finish tags would need
        // the cost of an item, which is known only after it was served.
        self.now = of.had;
        let (had, flow) = of.waiting.pop_first()?;
        of.now = had;
        let found = of.flows.get_mut(&flow).expect("a flow that waits is known");
        let item = found.items.pop_front().expect("a flow that waits has an item");
        if !found.items.is_empty() {
            of.waiting.insert((had, flow.clone()));
        }
        self.len -= 1;
        Some((item, TakenItem { level, flow }))
    }

    /// Charges what an item cost.
    pub fn charge(&mut self, served: TakenItem<F>, cost: Duration) {
        let TakenItem { level, flow } = served;
        let of = &mut self.levels[level];
        // Even an item that took no time counts, or its flow could be served for ever.
        let cost = cost.as_nanos().max(1);
        of.had += cost.div_ceil(of.weight.into());
        if let Some(found) = of.flows.get_mut(&flow) {
            let waits = of.waiting.remove(&(found.had, flow.clone()));
            found.had += cost;
            if waits {
                of.waiting.insert((found.had, flow));
            }
        }
        of.forget_idle();
    }
}

impl<F: Ord + Clone, T> Level<F, T> {
    /// Forgets idle flows that have had no more than the others. Each call is paid for by the flows that
    /// came since the last one.
    fn forget_idle(&mut self) {
        if self.flows.len() <= 2 * self.waiting.len() + IDLE_FLOWS_KEPT {
            return;
        }
        // With nobody waiting there is nobody to owe time to.
        let now = if self.waiting.is_empty() { ServedTime::MAX } else { self.now };
        self.flows.retain(|_, flow| !flow.items.is_empty() || flow.had > now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Serves this many items of queues that are always full; gives the time of each (level, flow).
    fn serve(
        queue: &mut FairQueue<u8, Duration>,
        flows: &[(usize, u8, Duration)],
        items: usize,
    ) -> BTreeMap<(usize, u8), Duration> {
        let mut times = BTreeMap::new();
        for _ in 0..items {
            for (level, flow, cost) in flows {
                // Full is full.
                let _ = queue.push(*level, flow, *cost);
            }
            let (cost, served) = queue.pop().expect("it is full");
            *times.entry((served.level, served.flow)).or_default() += cost;
            queue.charge(served, cost);
        }
        times
    }

    #[test]
    fn flows_share_time_and_not_items() {
        let mut queue = FairQueue::new([1], 8);
        let times = serve(&mut queue, &[(0, 1, MS), (0, 2, 10 * MS)], 1_100);
        let (cheap, dear) = (times[&(0, 1)], times[&(0, 2)]);
        assert!(cheap.abs_diff(dear) <= 10 * MS, "{times:?}");
    }

    #[test]
    fn levels_share_time_by_weight() {
        let mut queue = FairQueue::new([3, 1], 8);
        let flows = [(0, 1, MS), (1, 2, MS), (1, 3, MS)];
        let times = serve(&mut queue, &flows, 4_000);
        let other = times[&(1, 2)] + times[&(1, 3)];
        assert!(times[&(0, 1)].abs_diff(3 * other) <= 4 * MS, "{times:?}");
    }

    #[test]
    fn a_new_flow_waits_for_one_item_of_each_other_flow() {
        let mut queue = FairQueue::new([1], 1_000);
        for number in 0..900 {
            for flow in [1, 2, 3] {
                queue.push(0, &flow, number).expect("room");
            }
        }
        for _ in 0..300 {
            let (_, served) = queue.pop().expect("it waits");
            queue.charge(served, MS);
        }
        queue.push(0, &9, 0).expect("room");
        let mut ahead = 0;
        loop {
            let (_, served) = queue.pop().expect("it waits");
            let found = served.flow == 9;
            queue.charge(served, MS);
            if found {
                break;
            }
            ahead += 1;
        }
        assert!(ahead <= 3, "{ahead}");
    }

    #[test]
    fn idle_time_is_not_saved_up_and_debt_is_not_forgotten() {
        let mut queue = FairQueue::new([1], 4);
        // Flow 1 works alone for long; flow 2 must not get as long afterwards.
        serve(&mut queue, &[(0, 1, MS)], 1_000);
        let times = serve(&mut queue, &[(0, 1, MS), (0, 2, MS)], 100);
        assert!(times[&(0, 1)] >= 45 * MS, "{times:?}");
        // Flow 3 takes much with one item and then always comes back with an empty queue.
        queue.push(0, &3, MS).expect("room");
        let mut of_three = 0;
        for _ in 0..200 {
            for flow in [1, 2] {
                let _ = queue.push(0, &flow, MS);
            }
            let (_, served) = queue.pop().expect("it waits");
            let is_three = served.flow == 3;
            of_three += usize::from(is_three);
            queue.charge(served, if is_three { 50 * MS } else { MS });
            if is_three {
                queue.push(0, &3, MS).expect("room");
            }
        }
        assert!((2..=3).contains(&of_three), "{of_three}");
    }

    #[test]
    fn only_the_flow_over_its_share_is_refused() {
        let mut queue = FairQueue::new([1], 2);
        assert_eq!(queue.push(0, &1, 'a'), Ok(()));
        assert_eq!(queue.push(0, &1, 'b'), Ok(()));
        assert_eq!(queue.push(0, &1, 'c'), Err(('c', Overflow { limit: 2 })));
        assert_eq!(queue.push(0, &2, 'd'), Ok(()));
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn flows_that_have_gone_are_forgotten() {
        let mut queue: FairQueue<u32, ()> = FairQueue::new([1], 2);
        for flow in 0..10_000 {
            queue.push(0, &flow, ()).expect("room");
            let (_, served) = queue.pop().expect("it waits");
            queue.charge(served, MS);
            assert!(queue.levels[0].flows.len() <= 2 * IDLE_FLOWS_KEPT);
        }
    }

    proptest! {
        /// Flows that wait all the time have had the same, up to two of the dearest items; each item is
        /// served once, in the order of its flow.
        #[test]
        fn shares_are_fair_and_nothing_is_lost(
            costs in prop::collection::vec(1..20u64, 2..6),
            items in 50..300usize,
            arrivals in prop::collection::vec((0..6u8, 0..3usize), 0..200),
        ) {
            let mut queue = FairQueue::new([2, 1, 5], usize::MAX);
            let (mut pushed, mut popped) = (BTreeMap::new(), BTreeMap::new());
            for (flow, level) in arrivals {
                let number: &mut u32 = pushed.entry((level, flow)).or_default();
                queue.push(level, &flow, *number).expect("no limit");
                *number += 1;
            }
            while let Some((number, served)) = queue.pop() {
                let next: &mut u32 = popped.entry((served.level, served.flow)).or_default();
                prop_assert_eq!(*next, number);
                *next += 1;
                queue.charge(served, MS);
            }
            prop_assert_eq!(pushed, popped);
            let mut queue = FairQueue::new([1], 4);
            let flows: Vec<_> =
                (0..).zip(&costs).map(|(flow, cost)| (0, flow, MS * *cost as u32)).collect();
            let times = serve(&mut queue, &flows, items);
            let had = |flow: &(usize, u8, Duration)| times.get(&(flow.0, flow.1)).copied().unwrap_or_default();
            let most = flows.iter().map(had).max().expect("some");
            let least = flows.iter().map(had).min().expect("some");
            let dearest = MS * *costs.iter().max().expect("some") as u32;
            prop_assert!(most - least <= 2 * dearest, "{times:?}");
        }
    }
}
