//! State that the NTs of a region keep between packets, by the UID of the packets' DAG.
//!
//! Real NTs keep their state in their netlists. Here every NT that keeps state counts: packets, bytes,
//! and packets by flow, as far as its state has room, in words of 64 bits, little endian. So whoever
//! looks at the bytes of a context, in a region or in the save area, sees what was carried over.
//!
//! An NT has its memory once, for all UIDs together. Where that is full, a new flow takes the place of
//! one of the UID that keeps most, as a cache does that shares its entries fairly. The two totals of a
//! UID are never displaced: they stand for what an NT must not lose.

use std::collections::BTreeMap;

use snic_domain::limits::CHAIN_SLOTS_MAX;

use crate::nt::Nt;

/// Bytes of a counter.
const WORD: u32 = 8;
/// Words of a slot's state before those of flows: packets, bytes.
const TOTALS: u32 = 2;

/// A packet, as far as NTs count it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedPacket {
    pub(crate) uid: u32,
    pub(crate) flow: u32,
    pub(crate) bytes: u64,
}

/// The contexts of a region.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// Words that are not zero, by UID: tables are large, and most of them empty.
    kept: BTreeMap<u32, BTreeMap<u32, u64>>,
    /// Where the state of each slot begins in a context, and how many bytes it has.
    slots: [(u32, u32); CHAIN_SLOTS_MAX],
    bytes: u32,
    /// Slots that keep state.
    mask: u8,
    /// Words kept of flows in each slot, and those of them by UID: the most first to lose one.
    flows: [BTreeMap<u32, u32>; CHAIN_SLOTS_MAX],
    /// UID whose context is being moved.
    pub(crate) moving: Option<u32>,
    /// A packet changed a context while it was moved: what was saved is neither old nor new.
    pub(crate) torn: bool,
}

impl Contexts {
    /// Those of a region that was just loaded.
    pub(crate) fn of(nts: &[Option<Nt>; CHAIN_SLOTS_MAX]) -> Self {
        let mut fresh = Self::default();
        for (slot, nt) in nts.iter().enumerate() {
            let bytes = nt.as_ref().map_or(0, |nt| nt.state_bytes);
            fresh.slots[slot] = (fresh.bytes, bytes);
            fresh.bytes = fresh.bytes.saturating_add(bytes);
            fresh.mask |= u8::from(bytes > 0) << slot;
        }
        fresh
    }

    /// Bytes of a context; zero where nothing is kept.
    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether the NT of a slot keeps state.
    #[inline]
    pub(crate) const fn keeps(&self, slot: u32) -> bool {
        self.mask >> slot & 1 == 1
    }

    /// A packet goes through the NT of a slot.
    pub(crate) fn count(&mut self, slot: u32, packet: CountedPacket) {
        self.torn |= self.moving == Some(packet.uid);
        let (first, bytes) = self.slots[slot as usize];
        let (first, words) = (first / WORD, bytes / WORD);
        let uids = self.kept.len();
        let context = self.kept.entry(packet.uid).or_default();
        *context.entry(first).or_default() += 1;
        *context.entry(first + 1).or_default() += packet.bytes;
        let flow = (words > TOTALS).then(|| first + TOTALS + packet.flow % (words - TOTALS));
        if let Some(packets) = flow.and_then(|flow| context.get_mut(&flow)) {
            *packets += 1;
            return;
        }
        if self.kept.len() > uids {
            self.make_fit();
        }
        if let Some(flow) = flow
            && self.make_room(slot as usize, packet.uid)
        {
            self.kept.entry(packet.uid).or_default().insert(flow, 1);
            *self.flows[slot as usize].entry(packet.uid).or_default() += 1;
        }
    }

    /// Words of a slot's memory that are neither kept nor set aside for the totals of a UID.
    fn room(&self, slot: usize) -> Option<u32> {
        let words = self.slots[slot].1 / WORD;
        let totals = TOTALS.saturating_mul(self.kept.len() as u32);
        let flows: u32 = self.flows[slot].values().sum();
        words.checked_sub(totals)?.checked_sub(flows)
    }

    /// The UID that keeps most flows in a slot, and how many.
    fn most(&self, slot: usize) -> Option<(u32, u32)> {
        let most = self.flows[slot].iter().max_by_key(|(_, words)| **words);
        most.map(|(uid, words)| (*uid, *words)).filter(|(_, words)| *words > 0)
    }

    /// Sees to it that a UID can keep one flow more in a slot; `false` where no other keeps more flows and
    /// nothing is free.
    fn make_room(&mut self, slot: usize, uid: u32) -> bool {
        if self.room(slot).is_some_and(|words| words > 0) {
            return true;
        }
        let own = self.flows[slot].get(&uid).copied().unwrap_or(0);
        let Some((most, _)) = self.most(slot).filter(|(_, words)| *words > own) else {
            return false;
        };
        self.displace(slot, most);
        self.room(slot).is_some_and(|words| words > 0)
    }

    /// Displaces flows of those that keep most until no slot keeps more than it has room for.
    fn make_fit(&mut self) {
        for slot in 0..CHAIN_SLOTS_MAX {
            while self.room(slot).is_none()
                && let Some((most, _)) = self.most(slot)
            {
                self.displace(slot, most);
            }
        }
    }

    /// A UID loses one of its flows in a slot.
    fn displace(&mut self, slot: usize, uid: u32) {
        let (first, bytes) = self.slots[slot];
        let flows = first / WORD + TOTALS..(first + bytes) / WORD;
        let Some(context) = self.kept.get_mut(&uid) else { return };
        let lowest = context.range(flows).next().map(|(word, _)| *word);
        if let Some(word) = lowest {
            context.remove(&word);
        }
        if let Some(words) = self.flows[slot].get_mut(&uid) {
            *words -= 1;
        }
    }

    /// Counts the flows of a UID whose context was restored, and displaces what there is no room for.
    fn recount(&mut self, uid: u32) {
        for slot in 0..CHAIN_SLOTS_MAX {
            let (first, bytes) = self.slots[slot];
            if bytes / WORD <= TOTALS {
                continue;
            }
            let flows = first / WORD + TOTALS..(first + bytes) / WORD;
            let kept = self.kept.get(&uid).map_or(0, |context| context.range(flows).count());
            self.flows[slot].insert(uid, kept as u32);
        }
        self.make_fit();
    }

    /// Whether a slot keeps more than its NT has memory for, totals aside.
    pub(crate) fn is_over_full(&self) -> bool {
        let over = |slot| self.most(slot).is_some() && self.room(slot).is_none();
        (0..CHAIN_SLOTS_MAX).any(over)
    }

    /// Bytes that the NT of a slot keeps, for all UIDs together.
    pub(crate) fn bytes_kept(&self, slot: usize) -> u64 {
        let (first, bytes) = self.slots[slot];
        let words = first / WORD..(first + bytes) / WORD;
        let kept = self.kept.values().map(|context| context.range(words.clone()).count());
        kept.sum::<usize>() as u64 * u64::from(WORD)
    }

    /// Packets that the NT of a slot counted for a UID.
    pub(crate) fn packets(&self, slot: usize, uid: u32) -> u64 {
        if !self.keeps(slot as u32) {
            return 0;
        }
        let word = self.slots[slot].0 / WORD;
        self.kept.get(&uid).and_then(|context| context.get(&word)).copied().unwrap_or(0)
    }

    /// The bytes of a context.
    pub(crate) fn read(&self, uid: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes as usize];
        for (word, value) in self.kept.get(&uid).into_iter().flatten() {
            let at = (word * WORD) as usize;
            bytes[at..at + WORD as usize].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// A context from its bytes.
    pub(crate) fn write(&mut self, uid: u32, bytes: &[u8]) {
        let words = bytes.as_chunks::<{ WORD as usize }>().0;
        let words = (0..).zip(words.iter().map(|word| u64::from_le_bytes(*word)));
        self.kept.insert(uid, words.filter(|(_, value)| *value != 0).collect());
        self.recount(uid);
    }

    /// Empties a context.
    pub(crate) fn clear(&mut self, uid: u32) {
        self.kept.remove(&uid);
        for flows in &mut self.flows {
            flows.remove(&uid);
        }
    }

    pub(crate) fn clear_all(&mut self) {
        self.kept.clear();
        self.flows.iter_mut().for_each(BTreeMap::clear);
    }
}
