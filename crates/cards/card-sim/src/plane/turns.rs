//! Order of packets where they wait.
//!
//! Packets that are due come first, in the order of due times, as if each DAG sent exactly its promise. Then
//! those that come before they are due, as parts of a burst: who has used up less of its burst allowance goes
//! before the others. A DAG that sends more than its promise has always used up all of it, so its packets let the
//! bursts of others pass. Last comes what is beyond a promise, in the order of arrival. So a burst
//! waits for itself and for nobody else, and nobody waits for those who always burst.

use std::collections::BTreeSet;

use crate::region::NEVER;

/// Cycles before its due time that a packet may arrive and not count as part of a burst: about 1 µs at
/// 250 MHz, roughly what contention at one port delays a packet.
const LEAD_CYCLES: u64 = 256;

/// At the ingress port, where each sender waits with one packet: how long a packet for which its DAG used up all
/// of the burst allowance lets others pass that come later. 40 µs at 250 MHz, what the smallest allowance takes
/// at the promised rate, so a DAG's packets keep their order.
const YIELD_CYCLES: u64 = 10_000;

/// Parts of a burst allowance: allowances have from 10,000 cycles to minutes, so a cycle's part fits 32 bits.
const ALLOWANCE_PARTS: u64 = 1 << 40;

/// Priority of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Within its promise, and due.
    Due,
    /// Within its promise, and part of a burst.
    Early,
    /// Beyond its promise.
    Beyond,
}

/// Claim of a packet where packets wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The cycle at which it would have come if its DAG sent its promise evenly; [`NEVER`] where it
    /// is beyond that.
    due: u64,
    /// At the ingress port, before it is due: less is earlier.
    turn: u64,
    /// Part of its DAG's burst allowance that each cycle takes by which it is early, in parts of [`ALLOWANCE_PARTS`].
    part: u32,
}

impl Claim {
    /// Where all are equal.
    pub(crate) const EQUAL: Self = Self { due: 0, turn: 0, part: 0 };
    /// Beyond its promise.
    pub(crate) const BEYOND: Self = Self { due: NEVER, turn: NEVER, part: 0 };

    /// Claim of a packet that comes at `now`, is due at `due`, and whose DAG may be early by `allowance` cycles at
    /// most.
    pub(crate) fn within(now: u64, due: u64, allowance: u64) -> Self {
        let early = due.saturating_sub(now);
        let scaled = u128::from(early) * u128::from(YIELD_CYCLES) / u128::from(allowance.max(1));
        let yields = u64::try_from(scaled).unwrap_or(early).min(early);
        let part = u32::try_from(ALLOWANCE_PARTS / allowance.max(1)).unwrap_or(u32::MAX);
        Self { due, turn: now + yields, part }
    }

    /// Whether it is beyond its promise.
    pub(crate) const fn is_beyond(self) -> bool {
        self.due == NEVER
    }

    /// When it is due; `None` where it is beyond its promise.
    #[cfg(test)]
    pub(crate) fn due(self) -> Option<u64> {
        (!self.is_beyond()).then_some(self.due)
    }

    /// Whether its time has come.
    pub(crate) const fn is_due(self, now: u64) -> bool {
        self.due <= now
    }

    pub(crate) const fn rank(self, now: u64) -> Rank {
        if self.is_beyond() {
            Rank::Beyond
        } else if self.due > now + LEAD_CYCLES {
            Rank::Early
        } else {
            Rank::Due
        }
    }

    /// Part of its DAG's burst allowance that it uses up by being early, in parts of [`ALLOWANCE_PARTS`].
    const fn used(self, now: u64) -> u64 {
        self.due.saturating_sub(now).saturating_mul(self.part as u64)
    }

    /// Part of its DAG's burst allowance that it uses up, as that part of `whole`.
    pub(crate) fn used_of(self, now: u64, whole: u64) -> u64 {
        let part = u128::from(self.used(now)) * u128::from(whole) / u128::from(ALLOWANCE_PARTS);
        u64::try_from(part).unwrap_or(whole).min(whole)
    }

    /// Less goes first; equals in the order of arrival. Of the parts of bursts, the one that uses up less of its DAG's
    /// allowance at this moment goes first, however long the others have waited.
    pub(crate) const fn order(self, now: u64) -> (Rank, u64) {
        match self.rank(now) {
            Rank::Due => (Rank::Due, self.due),
            Rank::Early => (Rank::Early, self.used(now)),
            Rank::Beyond => (Rank::Beyond, 0),
        }
    }
}

/// Packets that wait for a port.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Due time, arrival, who, and its turn.
    by_due: BTreeSet<(u64, u64, u32, u64)>,
    /// The same, by turn: turn, arrival, who, and its due time.
    by_turn: BTreeSet<(u64, u64, u32, u64)>,
    /// Arrival, and who.
    beyond: BTreeSet<(u64, u32)>,
    came: u64,
}

impl Turns {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_due.is_empty() && self.beyond.is_empty()
    }

    /// Whether a packet within its promise waits.
    pub(crate) fn has_promised(&self) -> bool {
        !self.by_due.is_empty()
    }

    pub(crate) fn push(&mut self, who: u32, Claim { due, turn, .. }: Claim) {
        self.came += 1;
        if due == NEVER {
            return self.push_beyond(who, self.came);
        }
        self.by_due.insert((due, self.came, who, turn));
        self.by_turn.insert((turn, self.came, who, due));
    }

    /// A place for one who is to wait with a packet beyond its promise.
    pub(crate) const fn place(&mut self) -> u64 {
        self.came += 1;
        self.came
    }

    /// Waits with a packet beyond its promise, at this place. O(log of those that do).
    pub(crate) fn push_beyond(&mut self, who: u32, place: u64) {
        self.beyond.insert((place, who));
    }

    /// Takes out who waits so; `false` where it does not. O(log of those that do).
    pub(crate) fn take_beyond(&mut self, who: u32, place: u64) -> bool {
        self.beyond.remove(&(place, who))
    }

    pub(crate) fn pop(&mut self, now: u64) -> Option<u32> {
        let Some(&(due, came, who, turn)) = self.by_due.first() else {
            return self.beyond.pop_first().map(|(_, who)| who);
        };
        if due <= now + LEAD_CYCLES {
            self.by_due.pop_first();
            self.by_turn.remove(&(turn, came, who, due));
            return Some(who);
        }
        let (turn, came, who, due) = self.by_turn.pop_first()?;
        self.by_due.remove(&(due, came, who, turn));
        Some(who)
    }

    pub(crate) fn remove(&mut self, who: u32) {
        self.by_due.retain(|(_, _, waiting, _)| *waiting != who);
        self.by_turn.retain(|(_, _, waiting, _)| *waiting != who);
        self.beyond.retain(|(_, waiting)| *waiting != who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(turns: &mut Turns, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| turns.pop(now)).collect()
    }

    #[test]
    fn packets_due_go_first_then_the_smallest_burst_then_excess() {
        let mut turns = Turns::default();
        turns.push(1, Claim::BEYOND);
        // Half and all of an allowance of 100,000 cycles; the smaller part takes longer.
        turns.push(2, Claim::within(0, 50_000, 100_000));
        turns.push(3, Claim::within(0, 20_000, 20_000));
        turns.push(4, Claim::within(0, LEAD_CYCLES, 100_000));
        turns.push(5, Claim::within(0, 7, 100_000));
        turns.push(6, Claim::BEYOND);
        assert_eq!(order(&mut turns, 0), [5, 4, 2, 3, 1, 6]);
        assert!(turns.is_empty());
    }

    #[test]
    fn a_waiting_packet_becomes_due() {
        let mut turns = Turns::default();
        turns.push(2, Claim::within(0, 50_000, 100_000));
        turns.push(3, Claim::within(0, 20_000, 20_000));
        assert_eq!(order(&mut turns, 20_000 - LEAD_CYCLES), [3, 2]);
    }

    #[test]
    fn equals_keep_the_order_of_arrival_and_who_is_removed_is_gone() {
        let mut turns = Turns::default();
        (1..6).for_each(|who| turns.push(who, Claim::EQUAL));
        turns.push(6, Claim::BEYOND);
        turns.remove(2);
        turns.remove(6);
        assert_eq!(order(&mut turns, 0), [1, 3, 4, 5]);
    }

    #[test]
    fn packets_of_a_dag_keep_their_order() {
        // Its due times follow each other; a packet that comes later has used up less of the allowance.
        let (early, later) =
            (Claim::within(0, 12_000, 10_000), Claim::within(9_000, 13_000, 10_000));
        for now in [9_000, 11_900, 20_000] {
            assert!(early.order(now) < later.order(now), "at {now}");
        }
        let (early, later) =
            (Claim::within(0, 90_000, 100_000), Claim::within(80_000, 91_000, 100_000));
        assert!(early.order(80_000) < later.order(80_000));
    }
}
