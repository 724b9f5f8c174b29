//! A NIC's processors that run one program for each packet, as OSMOSIS has them: a queue for each tenant, and an arbiter that
//! gives free processors to queues.
//!
//! ```text
//!  packets ─►[queue of tenant 1]─┐            ┌─► processor 1
//!  packets ─►[queue of tenant 2]─┼─► arbiter ─┼─► processor 2      one packet a cycle
//!  packets ─►[queue of tenant 3]─┘            └─► …
//! ```
//!
//! OSMOSIS (Khalilov et al., arXiv 2309.03628) calls its arbiter weight-limited borrowed virtual time: the queue comes
//! first whose tenant has had the fewest processors on average over the time in which it wanted any, by its weight; and while others wait,
//! none has more processors than its weight's part. A tenant that had nothing to do has borrowed nothing and lost nothing.

use std::collections::{BinaryHeap, VecDeque};
use std::{cmp::Reverse, iter};

use crate::{InvalidDesign, wrong};

/// Most processors of a pool: ten times those of the largest NIC of this kind.
const PROCESSORS_MAX: usize = 4_096;
/// Most cycles of a run: what does not end by then is refused.
const CYCLES_MAX: u64 = 10_000_000;

/// Order in which waiting queues get free processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueArbiter {
    /// One packet of each queue in turn, whatever it takes and weighs.
    RoundRobin,
    /// Fewest processors by weight first.
    BorrowedTime {
        /// Whether no queue has more than its weight's part of all processors while others wait.
        is_limited: bool,
    },
}

/// A packet with the time that its program takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelPacket {
    /// Cycle in which it comes; it can be chosen in the next.
    pub arrives: u64,
    pub cycles: u64,
}

/// Packets of a tenant, in the order in which they come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelQueue {
    pub weight: u32,
    pub packets: Vec<KernelPacket>,
}

/// Processors of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorPool {
    /// Packets that are worked on, or wait at a processor, at once.
    pub processors: usize,
    pub arbiter: QueueArbiter,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolMeasurement {
    /// Queues in the order in which they were chosen.
    pub choices: Vec<usize>,
    /// Cycles of processors that each queue had while all queues waited.
    pub contended: Vec<u64>,
    /// Cycle in which each queue's last packet was done.
    pub ends: Vec<u64>,
    /// Jain's index over the processors of the queues that wait, on average over all cycles.
    pub fairness: f64,
    /// Share of the processors that had nothing to do although packets waited for more than this cycle.
    pub idle: f64,
}

/// A queue at work.
#[derive(Debug)]
struct ActiveQueue<'a> {
    weight: u64,
    coming: iter::Peekable<std::slice::Iter<'a, KernelPacket>>,
    /// Cycles that the packets which wait will take.
    waiting: VecDeque<u64>,
    processors: u64,
    /// Processors, summed over the cycles in which it waited or had any, and number of these.
    used: u64,
    active: u64,
}

impl<'a> ActiveQueue<'a> {
    fn new(queue: &'a KernelQueue) -> Self {
        Self {
            weight: u64::from(queue.weight),
            coming: queue.packets.iter().peekable(),
            waiting: VecDeque::new(),
            processors: 0,
            used: 0,
            active: 0,
        }
    }

    fn count_cycle(&mut self) {
        self.used += self.processors;
        self.active += u64::from(!self.waiting.is_empty() || self.processors > 0);
    }

    /// Processors on average by weight, lower first. Fractions are compared without rounding.
    fn is_before(&self, other: &Self) -> bool {
        let rank = |queue: &Self| u128::from(queue.used);
        let scale = |queue: &Self| u128::from(queue.active.max(1)) * u128::from(queue.weight);
        rank(self) * scale(other) < rank(other) * scale(self)
    }
}

impl ProcessorPool {
    /// Refuses what could not run.
    ///
    /// # Errors
    /// The first key out of its range, with its value and what is allowed.
    pub fn check(&self, queues: &[KernelQueue]) -> Result<(), InvalidDesign> {
        if self.processors == 0 || self.processors > PROCESSORS_MAX {
            return wrong("processors", self.processors, "must be 1 to 4096");
        }
        for (number, queue) in queues.iter().enumerate() {
            let key = |name: &str| format!("queues[{number}].{name}");
            if queue.weight == 0 {
                return wrong(key("weight"), 0, "must be at least 1");
            }
            if queue.packets.iter().any(|packet| packet.cycles == 0) {
                return wrong(key("cycles"), 0, "a program takes at least a cycle");
            }
            if !queue.packets.is_sorted_by_key(|packet| packet.arrives) {
                return wrong(key("arrives"), "a packet before another", "must be in order");
            }
        }
        Ok(())
    }

    /// Runs all packets of all queues.
    ///
    /// # Errors
    /// As [`ProcessorPool::check`]; or the packets take more than ten million cycles.
    pub fn run(&self, queues: &[KernelQueue]) -> Result<PoolMeasurement, InvalidDesign> {
        self.check(queues)?;
        let mut run = PoolRun {
            pool: *self,
            queues: queues.iter().map(ActiveQueue::new).collect(),
            turn: 0,
            busy: BinaryHeap::new(),
            measured: PoolMeasurement {
                choices: Vec::new(),
                contended: vec![0; queues.len()],
                ends: vec![0; queues.len()],
                fairness: 0.0,
                idle: 0.0,
            },
        };
        let mut cycle = 0;
        while !run.is_done() {
            run.step(cycle);
            cycle += 1;
            if cycle > CYCLES_MAX {
                return wrong("packets", cycle, "must be done in 10^7 cycles");
            }
        }
        let cycles = cycle.max(1) as f64;
        run.measured.fairness /= cycles;
        run.measured.idle /= cycles * self.processors as f64;
        Ok(run.measured)
    }
}

/// A pool at work.
#[derive(Debug)]
struct PoolRun<'a> {
    pool: ProcessorPool,
    queues: Vec<ActiveQueue<'a>>,
    /// Queue whose turn it is.
    turn: usize,
    /// Packets that are worked on: when they are done, and their queue.
    busy: BinaryHeap<Reverse<(u64, usize)>>,
    measured: PoolMeasurement,
}

impl PoolRun<'_> {
    fn is_done(&mut self) -> bool {
        self.busy.is_empty()
            && self
                .queues
                .iter_mut()
                .all(|queue| queue.waiting.is_empty() && queue.coming.peek().is_none())
    }

    /// One cycle: a choice, then packets that come, then those that are done.
    fn step(&mut self, cycle: u64) {
        self.queues.iter_mut().for_each(ActiveQueue::count_cycle);
        if self.busy.len() < self.pool.processors
            && let Some(at) = self.choose()
            && let Some(cycles) = self.queues[at].waiting.pop_front()
        {
            self.queues[at].processors += 1;
            self.busy.push(Reverse((cycle + cycles, at)));
            self.measured.choices.push(at);
        }
        self.measure();
        for queue in &mut self.queues {
            while let Some(packet) = queue.coming.next_if(|packet| packet.arrives <= cycle) {
                queue.waiting.push_back(packet.cycles);
            }
        }
        while let Some(&Reverse((end, at))) = self.busy.peek()
            && end <= cycle
        {
            self.busy.pop();
            self.queues[at].processors -= 1;
            self.measured.ends[at] = cycle;
        }
    }

    /// The queue that gets a processor.
    fn choose(&mut self) -> Option<usize> {
        let count = self.queues.len();
        let waits = |at: &usize| !self.queues[*at].waiting.is_empty();
        match self.pool.arbiter {
            QueueArbiter::RoundRobin => {
                let at = (self.turn..count).chain(0..self.turn).find(waits)?;
                self.turn = (at + 1) % count;
                Some(at)
            }
            QueueArbiter::BorrowedTime { is_limited } => {
                let has_room = |at: &usize| {
                    !is_limited || self.queues[*at].processors < self.limit(self.queues[*at].weight)
                };
                let first = |best: usize, at: usize| {
                    if self.queues[at].is_before(&self.queues[best]) { at } else { best }
                };
                (0..count).filter(waits).filter(has_room).reduce(first)
            }
        }
    }

    /// Processors of a queue with this weight while others wait, rounded up.
    fn limit(&self, weight: u64) -> u64 {
        let waiting = self.queues.iter().filter(|queue| !queue.waiting.is_empty());
        let weights: u64 = waiting.map(|queue| queue.weight).sum();
        (self.pool.processors as u64 * weight).div_ceil(weights.max(1))
    }

    fn measure(&mut self) {
        let waiting = || self.queues.iter().filter(|queue| !queue.waiting.is_empty());
        let sum: u64 = waiting().map(|queue| queue.processors).sum();
        let squares: u64 = waiting().map(|queue| queue.processors.pow(2)).sum();
        let count = waiting().count();
        self.measured.fairness += match squares {
            0 => 1.0,
            _ => (sum * sum) as f64 / (squares * count as u64) as f64,
        };
        if count > 0 {
            // One packet a cycle is chosen, so one free processor may wait for the next choice.
            let free = self.pool.processors.saturating_sub(self.busy.len());
            self.measured.idle += free.saturating_sub(1) as f64;
        }
        if count == self.queues.len() {
            for (contended, queue) in self.measured.contended.iter_mut().zip(&self.queues) {
                *contended += queue.processors;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAIR: QueueArbiter = QueueArbiter::BorrowedTime { is_limited: true };

    fn queue(weight: u32, cycles: u64, packets: u64) -> KernelQueue {
        let packets = (0..packets).map(|_| KernelPacket { arrives: 0, cycles }).collect();
        KernelQueue { weight, packets }
    }

    fn run(arbiter: QueueArbiter, queues: &[KernelQueue]) -> PoolMeasurement {
        ProcessorPool { processors: 32, arbiter }.run(queues).expect("valid")
    }

    /// Processors of the second queue, of those of the first.
    fn share(arbiter: QueueArbiter, queues: [KernelQueue; 2]) -> f64 {
        let contended = run(arbiter, &queues).contended;
        contended[1] as f64 / contended[0] as f64
    }

    #[test]
    fn who_takes_turns_gives_dear_packets_more() {
        let queues = [queue(1, 500, 400), queue(1, 1_000, 400)];
        let ratio = share(QueueArbiter::RoundRobin, queues.clone());
        assert!((ratio - 2.0).abs() < 0.1, "{ratio}");
        let ratio = share(FAIR, queues);
        assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    }

    #[test]
    fn weights_divide_processors_and_not_packets() {
        let ratio = share(FAIR, [queue(1, 300, 400), queue(3, 700, 400)]);
        assert!((ratio - 3.0).abs() < 0.15, "{ratio}");
    }

    #[test]
    fn a_limit_holds_only_while_others_wait() {
        let late = KernelQueue {
            weight: 1,
            packets: (0..64).map(|_| KernelPacket { arrives: 5_000, cycles: 100 }).collect(),
        };
        let queues = [queue(1, 1_000, 200), late];
        // Alone, the first has all processors.
        let limited = run(FAIR, &queues);
        assert!(limited.idle < 0.02, "{}", limited.idle);
        // And the second gets half of them as they are free: with borrowed time alone it would get all.
        let ends = |is_limited| run(QueueArbiter::BorrowedTime { is_limited }, &queues).ends[1];
        assert!(ends(true) > ends(false), "{} and {}", ends(true), ends(false));
    }

    #[test]
    fn a_tenant_that_was_away_has_neither_debts_nor_credit() {
        let late = KernelQueue {
            weight: 1,
            packets: (0..400).map(|_| KernelPacket { arrives: 20_000, cycles: 500 }).collect(),
        };
        let contended = run(FAIR, &[queue(1, 500, 2_000), late]).contended;
        let ratio = contended[1] as f64 / contended[0] as f64;
        assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
    }

    #[test]
    fn every_packet_is_done_whatever_the_arbiter() {
        for arbiter in
            [QueueArbiter::RoundRobin, QueueArbiter::BorrowedTime { is_limited: false }, FAIR]
        {
            let measured = run(arbiter, &[queue(1, 7, 90), queue(2, 3, 60), queue(1, 1, 0)]);
            let count = |queue| measured.choices.iter().filter(|at| **at == queue).count();
            assert_eq!([count(0), count(1), count(2)], [90, 60, 0], "{arbiter:?}");
            assert!(measured.ends[0] > 0 && measured.ends[2] == 0);
            assert_eq!(measured.choices[0], 0, "{arbiter:?}: of equals the lower number");
        }
    }

    #[test]
    fn every_wrong_key_is_named() {
        let key = |processors, queue: KernelQueue| {
            let pool = ProcessorPool { processors, arbiter: FAIR };
            pool.run(&[queue]).expect_err("wrong").key
        };
        assert_eq!(key(0, queue(1, 1, 1)), "processors");
        assert_eq!(key(1, queue(0, 1, 1)), "queues[0].weight");
        assert_eq!(key(1, queue(1, 0, 1)), "queues[0].cycles");
        assert_eq!(key(1, queue(1, u64::MAX / 2, 1)), "packets");
        let mut turned = queue(1, 1, 2);
        turned.packets[0].arrives = 9;
        assert_eq!(key(1, turned), "queues[0].arrives");
    }
}
