//! Events by time: a wheel of single cycles for the near future, a heap for the far one.
//!
//! Nearly all events of a packet lie within a few hundred cycles, where the wheel costs a few
//! instructions and no allocation. A bitmap finds the next cycle in which something happens, so
//! that idle time costs nothing. Events of one cycle happen in the order they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cycles of the wheel; 8 µs at 250 MHz. A power of two, and 64 times at most 64.
const CYCLES: usize = 2_048;
const MASK: u64 = CYCLES as u64 - 1;
const NIL: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A source has its next packet ready.
    Emit {
        source: u32,
        /// Its generation, so that an event of a source that was detached is none.
        generation: u16,
    },
    /// The ingress port is free for the source that waits longest.
    IngressFree,
    /// A source that waits with a packet beyond its promise claims again.
    Claim {
        source: u32,
        /// Its generation, so that an event of a source that was detached is none.
        generation: u16,
    },
    /// The first packet that waits at a token bucket may pass.
    Release {
        limiter: u16,
        /// Its generation, so that a changed rate voids the event.
        generation: u32,
    },
    /// The scheduler is done with a copy: it may go to its region.
    Dispatch { copy: u32 },
    /// A copy reaches the next NT it uses.
    Reach { copy: u32 },
    /// A copy leaves the NT it is in.
    Leave { copy: u32 },
    /// On-board memory answers the NT that a copy is in.
    Answer { copy: u32 },
    /// An NT is done with a packet that has left already: its credit goes back.
    Credit { region: u8, slot: u8 },
    /// A region has done what was let in: one beyond its promise may enter.
    Room { region: u8 },
    /// A memory has received a packet for a program.
    Received { packet: u32 },
    /// A thread is done with a packet.
    Ran { packet: u32 },
    /// A packet has left a program.
    Passed { packet: u32 },
    /// A packet stands before the egress port.
    Out { packet: u32 },
    /// The egress port is free for a packet that waits.
    EgressFree,
    /// The scheduler is done with a packet that goes to another card.
    Cross { away: u32 },
    /// The port of a link is free for what waits.
    LinkFree { link: u8 },
    /// A frame from another card is in.
    LinkIn {
        /// Its number.
        arrival: u32,
    },
    /// A packet may have been away for too long.
    Overdue,
    /// The last word of a bitstream went through the configuration port.
    LoadEnds {
        /// Number of the load, so that an event of one that was aborted is none.
        generation: u32,
    },
    /// A wrapper has moved the last byte of a context.
    StateEnds {
        region: u8,
        /// Number of the command, so that an event of one that was ended is none.
        generation: u16,
    },
}

#[derive(Debug, Clone, Copy)]
struct Node {
    event: Event,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NIL, tail: NIL };

/// The events to come.
#[derive(Debug)]
pub(crate) struct Wheel {
    now: u64,
    lists: Box<[List; CYCLES]>,
    words: [u64; CYCLES / 64],
    summary: u64,
    nodes: Vec<Node>,
    free: u32,
    far: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            now: 0,
            lists: Box::new([EMPTY; CYCLES]),
            words: [0; CYCLES / 64],
            summary: 0,
            nodes: Vec::new(),
            free: NIL,
            far: BinaryHeap::new(),
            order: 0,
        }
    }
}

impl Wheel {
    /// Goes to a cycle before which nothing was scheduled.
    pub(crate) fn skip_to(&mut self, cycle: u64) {
        self.now = self.now.max(cycle);
    }

    /// Number of events to come of some kind. Walks through all of them.
    pub(crate) fn count(&self, is_counted: impl Fn(&Event) -> bool) -> usize {
        let far = self.far.iter().filter(|Reverse((_, _, event))| is_counted(event)).count();
        let mut near = 0;
        for list in self.lists.iter() {
            let mut at = list.head;
            while at != NIL {
                let node = self.nodes[at as usize];
                near += usize::from(is_counted(&node.event));
                at = node.next;
            }
        }
        far + near
    }

    /// Schedules an event. What lies in the past happens at once.
    #[inline]
    pub(crate) fn at(&mut self, cycle: u64, event: Event) {
        let cycle = cycle.max(self.now);
        if cycle - self.now >= CYCLES as u64 {
            self.order += 1;
            self.far.push(Reverse((cycle, self.order, event)));
            return;
        }
        let node = self.node(event);
        let slot = (cycle & MASK) as usize;
        let list = &mut self.lists[slot];
        if list.head == NIL {
            list.head = node;
            self.words[slot / 64] |= 1 << (slot % 64);
            self.summary |= 1 << (slot / 64);
        } else {
            self.nodes[list.tail as usize].next = node;
        }
        self.lists[slot].tail = node;
    }

    #[inline]
    fn node(&mut self, event: Event) -> u32 {
        let node = Node { event, next: NIL };
        if self.free == NIL {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let at = self.free;
        self.free = std::mem::replace(&mut self.nodes[at as usize], node).next;
        at
    }

    /// Takes out the next event at or before `until` and goes to its cycle; `None` goes to `until`.
    #[inline]
    pub(crate) fn next(&mut self, until: u64) -> Option<(u64, Event)> {
        let near = self.near();
        // An event in the heap was scheduled before any of the same cycle in the wheel.
        if let Some(Reverse((cycle, _, _))) = self.far.peek()
            && *cycle <= until
            && near.is_none_or(|near| *cycle <= near)
        {
            let Reverse((cycle, _, event)) = self.far.pop()?;
            self.now = cycle;
            return Some((cycle, event));
        }
        match near {
            Some(cycle) if cycle <= until => {
                self.now = cycle;
                Some((cycle, self.take((cycle & MASK) as usize)))
            }
            _ => {
                self.now = self.now.max(until);
                None
            }
        }
    }

    #[inline]
    fn take(&mut self, slot: usize) -> Event {
        let list = &mut self.lists[slot];
        let at = list.head;
        let Node { event, next } = self.nodes[at as usize];
        self.nodes[at as usize].next = self.free;
        self.free = at;
        list.head = next;
        if next == NIL {
            self.words[slot / 64] &= !(1 << (slot % 64));
            if self.words[slot / 64] == 0 {
                self.summary &= !(1 << (slot / 64));
            }
        }
        event
    }

    /// The next cycle with an event in the wheel.
    #[inline]
    fn near(&self) -> Option<u64> {
        if self.summary == 0 {
            return None;
        }
        let from = (self.now & MASK) as usize;
        let slot = self.slot_from(from).or_else(|| self.slot_from(0))?;
        let ahead = (slot as u64).wrapping_sub(from as u64) & MASK;
        Some(self.now + ahead)
    }

    #[inline]
    fn slot_from(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let bits = self.words[word] & (u64::MAX << (from % 64));
        if bits != 0 {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let later = self.summary & (u64::MAX << word) & !(1 << word);
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_event_and_its_node_stay_small() {
        assert!(size_of::<Event>() <= 8, "{}", size_of::<Event>());
        assert!(size_of::<Node>() <= 12);
    }

    #[test]
    fn idle_time_passes_at_once() {
        let mut wheel = Wheel::default();
        assert_eq!(wheel.next(u64::MAX / 8), None);
        wheel.at(0, Event::IngressFree);
        assert_eq!(wheel.next(u64::MAX / 4), Some((u64::MAX / 8, Event::IngressFree)));
        wheel.at(u64::MAX, Event::IngressFree);
        assert_eq!(wheel.count(|event| *event == Event::IngressFree), 1);
        assert_eq!(wheel.next(u64::MAX - 1), None);
    }

    proptest! {
        #[test]
        fn events_come_in_the_order_of_cycles_and_then_of_scheduling(
            steps in prop::collection::vec((0_u64..6_000, 0_u64..700), 1..300),
        ) {
            let mut wheel = Wheel::default();
            let mut expected: Vec<(u64, u32)> = Vec::new();
            let mut now = 0;
            for (copy, (delay, pause)) in (0..).zip(steps) {
                wheel.at(now + delay, Event::Reach { copy });
                expected.push((now + delay, copy));
                now += pause;
                expected.sort();
                while let Some((cycle, event)) = wheel.next(now) {
                    let (at, copy) = expected.remove(0);
                    prop_assert_eq!((cycle, event), (at, Event::Reach { copy }));
                }
                prop_assert!(expected.first().is_none_or(|next| next.0 > now));
            }
            while let Some((cycle, event)) = wheel.next(u64::MAX) {
                let (at, copy) = expected.remove(0);
                prop_assert_eq!((cycle, event), (at, Event::Reach { copy }));
            }
            prop_assert!(expected.is_empty());
        }
    }
}
