//! What the NTs of a region keep between packets, by the UID of the packets' DAG.
//!
//! What real NTs keep is in their netlists. Here every NT that keeps state counts: packets, bytes,
//! and packets by flow, as far as its state has room, in words of 64 bits, little endian. So whoever
//! looks at the bytes of a context, in a region or in the save area, sees what was carried over.

use std::collections::BTreeMap;

use snic_domain::limits::CHAIN_SLOTS_MAX;

use crate::region::Nt;

/// Bytes of a counter.
const WORD: u32 = 8;
/// Words of a slot's state before those of flows: packets, bytes.
const TOTALS: u32 = 2;

/// A packet, as far as NTs count it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) uid: u32,
    pub(crate) flow: u32,
    pub(crate) bytes: u64,
}

/// The contexts of a region.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// By UID, the words that are not zero: tables are large, and most of them empty.
    kept: BTreeMap<u32, BTreeMap<u32, u64>>,
    /// Where the state of each slot begins in a context, and how many bytes it has.
    slots: [(u32, u32); CHAIN_SLOTS_MAX],
    bytes: u32,
    /// Slots that keep state.
    mask: u8,
    /// Whose context is being moved.
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
    pub(crate) fn count(&mut self, slot: u32, packet: Counted) {
        self.torn |= self.moving == Some(packet.uid);
        let (first, bytes) = self.slots[slot as usize];
        let (first, words) = (first / WORD, bytes / WORD);
        let context = self.kept.entry(packet.uid).or_default();
        *context.entry(first).or_default() += 1;
        *context.entry(first + 1).or_default() += packet.bytes;
        if words > TOTALS {
            *context.entry(first + TOTALS + packet.flow % (words - TOTALS)).or_default() += 1;
        }
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
    }

    /// Empties a context.
    pub(crate) fn clear(&mut self, uid: u32) {
        self.kept.remove(&uid);
    }

    /// Empties all.
    pub(crate) fn clear_all(&mut self) {
        self.kept.clear();
    }
}
