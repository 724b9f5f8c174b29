//! What exists to map with: NT types and bitstreams by id.
//!
//! Planning asks two things of it over and over: "is this the NT of that slot?" and "which
//! bitstreams hold this NT?". So every NT has a key of 64 bits that compares at once, every
//! bitstream is kept with what its NTs add up to, and an index leads from a key to its bitstreams.
//! State: O(NTs + slots of all bitstreams). Inserting or removing costs O(log n) and, for each slot,
//! the length of that NT's entry in the index.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use snic_domain::limits::{CHAIN_SLOTS_MAX, PAGE_SIZE};
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, Cycles, Digest, NtType, NtTypeId, TenantId,
};

use crate::changes::Changes;

/// An NT type as 64 bits of the SHA-256 digest of its id: the same in every catalogue, so that a
/// ledger and a catalogue never have to agree on a numbering. To collide with another's NT a
/// tenant would have to find an id by 2^64 tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NtKey(u64);

impl NtKey {
    fn of(id: &NtTypeId) -> Self {
        let words = Digest::of(id.as_str().as_bytes()).words();
        Self(u64::from(words[0]) << 32 | u64::from(words[1]))
    }

    /// One bit of 64, for a quick "certainly not in there".
    pub(crate) const fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }
}

/// One slot of a bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainSlot {
    pub(crate) key: NtKey,
    /// Zero where the catalogue does not know the NT.
    pub(crate) bandwidth_max: Bandwidth,
    /// In whole pages, for each tenant.
    pub(crate) memory: ByteSize,
}

/// A bitstream with what its NTs add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) bitstream: Bitstream,
    pub(crate) slots: SmallVec<[ChainSlot; CHAIN_SLOTS_MAX]>,
    /// The area of its NTs together; `None` where it cannot be loaded: an NT is unknown, or there
    /// are none or more than a region's wrapper has slots for.
    pub(crate) area: Option<Area>,
    /// The bits of its keys.
    pub(crate) mask: u64,
}

impl Chain {
    pub(crate) fn new(bitstream: Bitstream, catalogue: &Catalogue) -> Self {
        let mut slots: SmallVec<[ChainSlot; CHAIN_SLOTS_MAX]> = SmallVec::new();
        let mut area = Some(Area::default());
        for id in bitstream.nts.iter().take(CHAIN_SLOTS_MAX) {
            let known = catalogue.known(id);
            slots.push(ChainSlot {
                key: known.map_or_else(|| NtKey::of(id), |nt| nt.key),
                bandwidth_max: known.map_or(Bandwidth::ZERO, |nt| nt.nt.bandwidth_max),
                memory: known.map_or(ByteSize::ZERO, |nt| whole_pages(nt.nt.memory)),
            });
            area = area.zip(known).map(|(sum, nt)| sum + nt.nt.area);
        }
        if !(1..=CHAIN_SLOTS_MAX).contains(&bitstream.nts.len()) {
            area = None;
        }
        let mask = slots.iter().fold(0, |mask, slot| mask | slot.key.bit());
        Self { bitstream, slots, area, mask }
    }

    /// Whether its slots hold `keys` in this order, others between them or not.
    pub(crate) fn holds(&self, keys: &[NtKey]) -> bool {
        self.prefix_held(keys) == keys.len()
    }

    /// How many of the first `keys` its slots hold in this order. Taking the first slot that
    /// matches is never worse than taking a later one.
    pub(crate) fn prefix_held(&self, keys: &[NtKey]) -> usize {
        self.slots.iter().fold(0, |found, slot| {
            found + usize::from(keys.get(found).is_some_and(|key| *key == slot.key))
        })
    }
}

/// Memory is given out in pages, so that is how it is counted.
pub(crate) fn whole_pages(size: ByteSize) -> ByteSize {
    let page = PAGE_SIZE.get();
    ByteSize::from_bytes(size.get().div_ceil(page).saturating_mul(page))
}

/// An NT type with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownNt {
    pub(crate) nt: NtType,
    pub(crate) key: NtKey,
}

impl KnownNt {
    pub(crate) const fn latency(&self) -> Cycles {
        self.nt.latency
    }
}

/// What exists to map with: NT types and bitstreams by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    nts: BTreeMap<NtTypeId, KnownNt>,
    bitstreams: BTreeMap<BitstreamId, Arc<Chain>>,
    /// The bitstreams that hold an NT, by id, each once.
    holders: BTreeMap<NtKey, Vec<Arc<Chain>>>,
    changes: Changes,
}

impl Catalogue {
    /// An empty catalogue.
    pub fn new() -> Self {
        Self::default()
    }

    /// How often something changed in it.
    pub const fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Adds an NT type, or replaces the one with its id, which is returned. A ledger keeps the
    /// figures it took when a region's content was set: types are immutable once registered.
    pub fn insert_nt(&mut self, nt: NtType) -> Option<NtType> {
        self.changes.count();
        let id = nt.id.clone();
        let key = NtKey::of(&id);
        let before = self.nts.insert(id, KnownNt { nt, key });
        self.resolve_again(key);
        before.map(|known| known.nt)
    }

    /// Removes an NT type. Bitstreams that hold it stay, but cannot be loaded by a plan any more.
    pub fn remove_nt(&mut self, id: &NtTypeId) -> Option<NtType> {
        self.changes.count();
        let removed = self.nts.remove(id)?;
        self.resolve_again(removed.key);
        Some(removed.nt)
    }

    /// An NT type.
    pub fn nt(&self, id: &NtTypeId) -> Option<&NtType> {
        self.nts.get(id).map(|known| &known.nt)
    }

    /// All NT types, by id.
    pub fn nts(&self) -> impl Iterator<Item = &NtType> {
        self.nts.values().map(|known| &known.nt)
    }

    /// Adds a bitstream, or replaces the one with its id, which is returned. Its NTs may become
    /// known later; until then no plan loads it.
    pub fn insert_bitstream(&mut self, bitstream: Bitstream) -> Option<Bitstream> {
        self.changes.count();
        let before = self.remove_bitstream(&bitstream.id);
        let chain = Arc::new(Chain::new(bitstream, self));
        for slot in &chain.slots {
            let list = self.holders.entry(slot.key).or_default();
            if let Err(at) = list.binary_search_by(|c| c.bitstream.id.cmp(&chain.bitstream.id)) {
                list.insert(at, Arc::clone(&chain));
            }
        }
        self.bitstreams.insert(chain.bitstream.id.clone(), chain);
        before
    }

    /// Removes a bitstream. Regions that hold it are not touched.
    pub fn remove_bitstream(&mut self, id: &BitstreamId) -> Option<Bitstream> {
        self.changes.count();
        let chain = self.bitstreams.remove(id)?;
        for slot in &chain.slots {
            if let Some(list) = self.holders.get_mut(&slot.key) {
                list.retain(|c| c.bitstream.id != *id);
                if list.is_empty() {
                    self.holders.remove(&slot.key);
                }
            }
        }
        Some(chain.bitstream.clone())
    }

    /// A bitstream.
    pub fn bitstream(&self, id: &BitstreamId) -> Option<&Bitstream> {
        self.bitstreams.get(id).map(|chain| &chain.bitstream)
    }

    /// All bitstreams, by id.
    pub fn bitstreams(&self) -> impl Iterator<Item = &Bitstream> {
        self.bitstreams.values().map(|chain| &chain.bitstream)
    }

    /// All bitstreams, by id.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.bitstreams.values().map(AsRef::as_ref)
    }

    /// The keys of all NT types, rising.
    pub(crate) fn nt_keys(&self) -> impl Iterator<Item = NtKey> {
        let mut keys: Vec<NtKey> = self.nts.values().map(|known| known.key).collect();
        keys.sort_unstable();
        keys.into_iter()
    }

    pub(crate) fn known(&self, id: &NtTypeId) -> Option<&KnownNt> {
        self.nts.get(id)
    }

    /// The NT, if `tenant` may use it. Absent and not visible look the same.
    pub(crate) fn usable_nt(&self, id: &NtTypeId, tenant: &TenantId) -> Option<&KnownNt> {
        self.nts.get(id).filter(|known| known.nt.is_visible_to(tenant))
    }

    /// The bitstreams that hold `key`, by id.
    pub(crate) fn holders(&self, key: NtKey) -> &[Arc<Chain>] {
        self.holders.get(&key).map_or(&[], Vec::as_slice)
    }

    /// A chain as a ledger keeps it: the catalogue's own where it has this very bitstream.
    pub(crate) fn chain(&self, bitstream: &Bitstream) -> Arc<Chain> {
        match self.bitstreams.get(&bitstream.id) {
            Some(chain) if chain.bitstream == *bitstream => Arc::clone(chain),
            _ => Arc::new(Chain::new(bitstream.clone(), self)),
        }
    }

    /// After an NT came, went or changed: its bitstreams' sums are made anew.
    fn resolve_again(&mut self, key: NtKey) {
        let stale: Vec<Bitstream> =
            self.holders(key).iter().map(|chain| chain.bitstream.clone()).collect();
        for bitstream in stale {
            self.insert_bitstream(bitstream);
        }
    }
}
