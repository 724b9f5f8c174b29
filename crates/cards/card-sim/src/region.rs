//! A region of the card: its static wrapper (registers, port, credits, load monitors) and the NTs
//! that its bitstream made.

use std::collections::VecDeque;

use snic_domain::ReportedChain;
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_ports::card::image::ChainRom;
use snic_tables::CreditReservation;
use snic_tables::registers::{REGION_BROKEN, REGION_EMPTY, REGION_LOADED, REGION_LOADING};

use crate::context::Contexts;
use crate::nt::Nt;
use crate::time::{Clock, Meter};

/// A cycle that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// Content of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Empty,
    Loading,
    Loaded,
    Broken,
}

impl Content {
    /// As the status register says it.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::Empty => REGION_EMPTY,
            Self::Loading => REGION_LOADING,
            Self::Loaded => REGION_LOADED,
            Self::Broken => REGION_BROKEN,
        }
    }
}

/// Bytes that a slot was meant to serve, and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SlotLoad {
    pub(crate) intended: u64,
    pub(crate) served: u64,
}

#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) content: Content,
    pub(crate) decoupled: bool,
    /// Counts what makes the NTs forget the packets in them: resets and loads.
    pub(crate) epoch: u16,
    pub(crate) digest: [u32; 8],
    pub(crate) digest_next: [u32; 8],
    pub(crate) nts: [Option<Nt>; CHAIN_SLOTS_MAX],
    /// Whether one of them moves bytes in on-board memory for each packet.
    pub(crate) moves_memory: bool,
    /// Report of the ROM in it.
    pub(crate) reported: ReportedChain,
    pub(crate) load: [SlotLoad; CHAIN_SLOTS_MAX],
    /// State that its NTs keep between packets.
    pub(crate) contexts: Contexts,
    /// Copies in it or on the way to it.
    pub(crate) in_flight: u32,
    /// Those of them whose packets began with a bank.
    pub(crate) of_bank: [u32; 2],
    /// Its NTs let no packet go, until they are reset or loaded.
    pub(crate) stopped: bool,
    /// Copies that stopped NTs have done and do not let go.
    pub(crate) stuck: Vec<u32>,
    pub(crate) bits_waiting: u64,
    /// Its port of the crossbar.
    pub(crate) port: Meter,
    /// When the scheduler looks again whether a packet beyond its promise may enter.
    pub(crate) looks_at: u64,
    /// From when on a copy that waited for long may go before others.
    pub(crate) relieves_at: u64,
    /// Credits that packets hold or that are on their way back, by slot.
    pub(crate) credits_held: [u8; CHAIN_SLOTS_MAX],
    /// Credits on their way back to the scheduler: when they are there, and of which slots.
    returning: VecDeque<(u64, u8)>,
    /// When who waits here is called, for a credit is back then; [`NEVER`] where nobody waits or none
    /// is on its way.
    pub(crate) calls_at: u64,
    /// Credits there are, by slot.
    credits: [u8; CHAIN_SLOTS_MAX],
    /// Slots that hold an NT and have credits.
    present: u8,
    /// Slots of which no credit is left.
    exhausted: u8,
    /// For how much of its chain a packet needs them.
    reservation: CreditReservation,
}

impl Region {
    pub(crate) fn new(port: Meter, credits: u8) -> Self {
        Self {
            content: Content::Empty,
            decoupled: false,
            epoch: 0,
            digest: [0; 8],
            digest_next: [0; 8],
            nts: [None; CHAIN_SLOTS_MAX],
            moves_memory: false,
            reported: ReportedChain::default(),
            load: [SlotLoad::default(); CHAIN_SLOTS_MAX],
            contexts: Contexts::default(),
            in_flight: 0,
            of_bank: [0; 2],
            stopped: false,
            stuck: Vec::new(),
            bits_waiting: 0,
            port,
            looks_at: 0,
            relieves_at: 0,
            credits_held: [0; CHAIN_SLOTS_MAX],
            returning: VecDeque::new(),
            calls_at: NEVER,
            credits: [credits; CHAIN_SLOTS_MAX],
            present: 0,
            exhausted: 0,
            reservation: CreditReservation::default(),
        }
    }

    /// Whether packets can pass.
    pub(crate) fn is_usable(&self) -> bool {
        self.content == Content::Loaded && !self.decoupled
    }

    /// Whether every slot of `mask` holds an NT and has credits at all.
    pub(crate) const fn has_slots(&self, mask: u8) -> bool {
        self.present & mask == mask
    }

    /// Takes the credits with which a packet that uses the slots of `mask` may enter at `now`; says
    /// for which of them. None where it has to wait.
    #[inline]
    pub(crate) fn admit(&mut self, now: u64, mask: u8) -> u8 {
        self.take_back(now);
        match self.reservation {
            CreditReservation::Chain => mask * u8::from(self.reserve(mask)),
            CreditReservation::Prefix => self.reserve_prefix(mask),
        }
    }

    /// Takes one credit at every slot of `mask`, or none at all.
    #[inline]
    fn reserve(&mut self, mask: u8) -> bool {
        if self.exhausted & mask != 0 {
            return false;
        }
        for slot in slots(mask) {
            self.credits_held[slot] += 1;
            let all = self.credits_held[slot] >= self.credits[slot];
            self.exhausted |= u8::from(all) << slot;
        }
        true
    }

    /// Takes one credit at every slot of `mask` up to the first that has none; says of which.
    fn reserve_prefix(&mut self, mask: u8) -> u8 {
        let missing = self.exhausted & mask;
        // All below the lowest slot that has none.
        let prefix = mask & (missing & missing.wrapping_neg()).wrapping_sub(1);
        self.reserve(prefix);
        prefix
    }

    /// One credit at every slot of `mask` is on its way: the scheduler has it at cycle `at`, which is
    /// not before that of those sent earlier.
    #[inline]
    pub(crate) fn send_back(&mut self, at: u64, mask: u8) {
        self.returning.push_back((at, mask));
    }

    /// The credits that are at the scheduler at `now`.
    #[inline]
    pub(crate) fn take_back(&mut self, now: u64) {
        while let Some(&(at, mask)) = self.returning.front()
            && at <= now
        {
            self.returning.pop_front();
            self.give_back(mask);
        }
    }

    /// Calls the waiter when the next credit is back, after `now`.
    pub(crate) fn call(&mut self, now: u64) {
        self.take_back(now);
        self.calls_at = self.returning.front().map_or(NEVER, |(at, _)| *at);
    }

    /// Credits that are on their way back.
    pub(crate) fn returning(&self) -> usize {
        self.returning.iter().map(|(_, mask)| mask.count_ones() as usize).sum()
    }

    /// Gives back one credit at every slot of `mask`.
    #[inline]
    pub(crate) fn give_back(&mut self, mask: u8) {
        for slot in slots(mask) {
            self.credits_held[slot] -= 1;
            let some = self.credits_held[slot] < self.credits[slot];
            self.exhausted &= !(u8::from(some) << slot);
        }
    }

    /// Notes what the NTs of `mask` have ahead of them with a packet of `bits` that is let in.
    pub(crate) fn let_in(&mut self, mask: u8, now: u64, bits: u64) {
        for slot in slots(mask) {
            if let Some(nt) = &mut self.nts[slot] {
                nt.ahead.serve(now, bits);
            }
        }
    }

    /// Takes what its NTs are at work on for what they have ahead of them.
    pub(crate) fn note_ahead(&mut self) {
        self.nts.iter_mut().flatten().for_each(|nt| nt.ahead = nt.meter);
    }

    /// When its port and the NTs of `mask` would be done with all that was let in.
    pub(crate) fn done_at(&self, mask: u8) -> u64 {
        let nts = slots(mask).filter_map(|slot| self.nts[slot].as_ref());
        nts.map(|nt| nt.ahead.free_at()).fold(self.port.free_at(), u64::max)
    }

    /// Changes how many credits there are; those that are held stay held.
    pub(crate) fn set_credits(
        &mut self,
        credits: [u8; CHAIN_SLOTS_MAX],
        reservation: CreditReservation,
    ) {
        self.credits = credits;
        self.reservation = reservation;
        self.note_slots();
    }

    fn note_slots(&mut self) {
        let mask_of = |holds: &dyn Fn(usize) -> bool| {
            (0..CHAIN_SLOTS_MAX).fold(0, |mask, slot| mask | u8::from(holds(slot)) << slot)
        };
        self.present = mask_of(&|slot| self.nts[slot].is_some() && self.credits[slot] > 0);
        self.exhausted = mask_of(&|slot| self.credits_held[slot] >= self.credits[slot]);
    }

    /// The packets in it are forgotten; its NTs begin again.
    pub(crate) fn reset(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.stopped = false;
        for nt in self.nts.iter_mut().flatten() {
            nt.meter = nt.meter.fresh();
            nt.ahead = nt.meter;
        }
        self.contexts.clear_all();
    }

    /// Empties the region.
    pub(crate) fn empty(&mut self, content: Content) {
        self.reset();
        self.content = content;
        self.digest = [0; 8];
        self.nts = [None; CHAIN_SLOTS_MAX];
        self.moves_memory = false;
        self.reported = ReportedChain::default();
        self.contexts = Contexts::default();
        self.note_slots();
    }

    /// It holds what a bitstream made of it.
    pub(crate) fn fill(&mut self, rom: &ChainRom, clock: Clock) {
        self.content = Content::Loaded;
        self.digest = self.digest_next;
        for (nt, slot) in self.nts.iter_mut().zip(rom.slots()) {
            *nt = Nt::of(slot, clock);
        }
        self.moves_memory = self.nts.iter().flatten().any(|nt| !nt.memory_traffic.is_none());
        self.reported = rom.reported();
        self.contexts = Contexts::of(&self.nts);
        self.note_slots();
    }
}

/// The slots of a mask, in the order packets pass.
pub(crate) fn slots(mask: u8) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let slot = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
        rest &= rest - 1;
        Some(slot)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        let rate = Clock::new(250_000_000).rate(128_000_000_000).expect("not zero");
        Region::new(Meter::new(rate), 2)
    }

    #[test]
    fn credits_are_reserved_for_the_whole_chain_or_not_at_all() {
        let mut region = region();
        assert!(region.reserve(0b101) && region.reserve(0b100));
        assert!(!region.reserve(0b111), "slot 2 has none left");
        assert_eq!(region.credits_held, [1, 0, 2, 0, 0, 0, 0, 0]);
        region.give_back(0b100);
        assert!(region.reserve(0b111));
    }

    #[test]
    fn a_prefix_ends_before_the_first_slot_without_credits() {
        let mut region = region();
        assert!(region.reserve(0b0100) && region.reserve(0b0100));
        assert_eq!(region.reserve_prefix(0b1111), 0b0011);
        assert_eq!(region.reserve_prefix(0b1100), 0, "the first has none");
        assert_eq!(region.credits_held, [1, 1, 2, 0, 0, 0, 0, 0]);
        region.give_back(0b0100);
        assert_eq!(region.reserve_prefix(0b1111), 0b1111);
    }

    #[test]
    fn fewer_credits_count_once_the_held_ones_are_back() {
        let mut region = region();
        assert!(region.reserve(1) && region.reserve(1));
        region.set_credits([1; 8], CreditReservation::Chain);
        region.give_back(1);
        assert!(!region.reserve(1), "one is held, and there is one");
        region.give_back(1);
        assert!(region.reserve(1));
        region.set_credits([3; 8], CreditReservation::Chain);
        assert!(region.reserve(1) && region.reserve(1) && !region.reserve(1));
    }

    #[test]
    fn slots_come_in_the_order_packets_pass() {
        assert_eq!(slots(0b1010_0101).collect::<Vec<_>>(), [0, 2, 5, 7]);
        assert_eq!(slots(0).count(), 0);
    }

    #[test]
    fn an_empty_region_takes_no_packet() {
        let mut region = region();
        assert!(!region.is_usable() && !region.has_slots(1));
        region.content = Content::Loaded;
        assert!(region.is_usable());
        region.decoupled = true;
        assert!(!region.is_usable());
    }
}
