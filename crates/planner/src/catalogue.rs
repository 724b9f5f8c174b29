//! The NT types and bitstreams that a plan may use, by id.
//!
//! Planning asks two questions often: "is this the NT of that slot?" and "which bitstreams contain this
//! NT?". So every NT has a key of 64 bits, every bitstream is stored with the sums over its NTs, and an
//! index maps a key to its bitstreams. Memory: O(NTs + slots of all bitstreams). Inserting and removing
//! take O(log n) plus, for each slot, the length of that NT's entry in the index.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use snic_domain::limits::{CHAIN_SLOTS_MAX, PAGE_SIZE};
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, DagSpec, Digest, NtType, NtTypeId, TenantId,
};

use crate::changes::ChangeCounter;

/// An NT type as 64 bits of the SHA-256 digest of its id: the same in every catalogue, so a ledger and
/// a catalogue need not agree on a numbering. To collide with another tenant's NT, a tenant would have to
/// find an id by 2^64 attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NtKey(u64);

impl NtKey {
    fn of(id: &NtTypeId) -> Self {
        let words = Digest::of(id.as_str().as_bytes()).words();
        Self(u64::from(words[0]) << 32 | u64::from(words[1]))
    }

    /// One bit of 64, for a fast negative membership test.
    pub(crate) const fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }
}

/// One slot of a bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainSlot {
    pub(crate) key: NtKey,
    /// Zero if the catalogue does not know the NT.
    pub(crate) bandwidth_max: Bandwidth,
    /// In whole pages, for each tenant.
    pub(crate) memory: ByteSize,
}

/// A bitstream with the sums over its NTs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PhysicalChain {
    pub(crate) bitstream: Bitstream,
    pub(crate) slots: SmallVec<[ChainSlot; CHAIN_SLOTS_MAX]>,
    /// Area of its NTs together; `None` if it cannot be loaded because an NT is unknown, or because it has
    /// no NTs or more than a region has slots.
    pub(crate) area: Option<Area>,
    /// The bits of its keys.
    pub(crate) mask: u64,
    /// The tenant that owns it; `None` is the provider. In the bitstream it is a part of the id.
    owner: Option<TenantId>,
}

impl PhysicalChain {
    pub(crate) fn new(bitstream: Bitstream, catalogue: &PlanCatalogue) -> Self {
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
        let owner = bitstream.id.owner();
        Self { bitstream, slots, area, mask, owner }
    }

    /// [`Bitstream::is_loadable_by`].
    pub(crate) fn is_loadable_by(&self, tenant: &TenantId) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner == tenant)
    }

    /// Whether packets of a DAG may pass through it once it is loaded: its owner shares it, and the DAG's tenant
    /// trusts it.
    pub(crate) fn is_open_to(&self, tenant: &TenantId, spec: &DagSpec) -> bool {
        self.is_loadable_by(tenant)
            || self.bitstream.shareable && spec.trusts(tenant, &self.bitstream)
    }

    /// Whether one of its slots contains an NT.
    pub(crate) fn has(&self, key: NtKey) -> bool {
        self.mask & key.bit() != 0 && self.slots.iter().any(|slot| slot.key == key)
    }

    /// Whether its slots contain `keys` in this order, possibly with others between them.
    pub(crate) fn holds(&self, keys: &[NtKey]) -> bool {
        self.prefix_held(keys) == keys.len()
    }

    /// How many of the first `keys` its slots contain in this order. Taking the first slot that matches
    /// is never worse than taking a later one.
    pub(crate) fn prefix_held(&self, keys: &[NtKey]) -> usize {
        self.slots.iter().fold(0, |found, slot| {
            found + usize::from(keys.get(found).is_some_and(|key| *key == slot.key))
        })
    }
}

/// Rounds up to whole pages, the unit in which memory is allocated.
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

/// The NT types and bitstreams that a plan may use, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanCatalogue {
    nts: BTreeMap<NtTypeId, KnownNt>,
    bitstreams: BTreeMap<BitstreamId, Arc<PhysicalChain>>,
    /// By NT: the bitstreams that contain it, by id, each once.
    holders: BTreeMap<NtKey, Vec<Arc<PhysicalChain>>>,
    changes: ChangeCounter,
}

impl PlanCatalogue {
    /// An empty catalogue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of changes so far.
    pub const fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Adds an NT type, or replaces the one with the same id and returns it. Registered types are
    /// immutable: a ledger keeps the numbers from the time at which a region's content was set.
    pub fn insert_nt(&mut self, nt: NtType) -> Option<NtType> {
        self.changes.increment();
        let id = nt.id.clone();
        let key = NtKey::of(&id);
        let before = self.nts.insert(id, KnownNt { nt, key });
        self.resolve_again(key);
        before.map(|known| known.nt)
    }

    /// Removes an NT type. Bitstreams that contain it stay, but no plan loads them any more.
    pub fn remove_nt(&mut self, id: &NtTypeId) -> Option<NtType> {
        self.changes.increment();
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

    /// Adds a bitstream, or replaces the one with the same id and returns it. Its NTs may be added later;
    /// until then no plan loads it.
    pub fn insert_bitstream(&mut self, bitstream: Bitstream) -> Option<Bitstream> {
        self.changes.increment();
        let before = self.remove_bitstream(&bitstream.id);
        let chain = Arc::new(PhysicalChain::new(bitstream, self));
        for slot in &chain.slots {
            let list = self.holders.entry(slot.key).or_default();
            if let Err(at) = list.binary_search_by(|c| c.bitstream.id.cmp(&chain.bitstream.id)) {
                list.insert(at, Arc::clone(&chain));
            }
        }
        self.bitstreams.insert(chain.bitstream.id.clone(), chain);
        before
    }

    /// Removes a bitstream. Regions that hold it are not changed.
    pub fn remove_bitstream(&mut self, id: &BitstreamId) -> Option<Bitstream> {
        self.changes.increment();
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
    pub(crate) fn chains(&self) -> impl Iterator<Item = &PhysicalChain> {
        self.bitstreams.values().map(AsRef::as_ref)
    }

    /// The keys of all NT types, in ascending order.
    pub(crate) fn nt_keys(&self) -> impl Iterator<Item = NtKey> {
        let mut keys: Vec<NtKey> = self.nts.values().map(|known| known.key).collect();
        keys.sort_unstable();
        keys.into_iter()
    }

    pub(crate) fn known(&self, id: &NtTypeId) -> Option<&KnownNt> {
        self.nts.get(id)
    }

    /// The NT, if it exists and `tenant` may use it.
    pub(crate) fn usable_nt(&self, id: &NtTypeId, tenant: &TenantId) -> Option<&KnownNt> {
        self.nts.get(id).filter(|known| known.nt.is_visible_to(tenant))
    }

    /// The bitstreams that contain `key`, by id.
    pub(crate) fn holders(&self, key: NtKey) -> &[Arc<PhysicalChain>] {
        self.holders.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The chain of a bitstream, shared with the catalogue if the catalogue has the same bitstream.
    pub(crate) fn chain(&self, bitstream: &Bitstream) -> Arc<PhysicalChain> {
        match self.bitstreams.get(&bitstream.id) {
            Some(chain) if chain.bitstream == *bitstream => Arc::clone(chain),
            _ => Arc::new(PhysicalChain::new(bitstream.clone(), self)),
        }
    }

    /// Recomputes the sums of all bitstreams that contain an NT after it was added, removed or replaced.
    fn resolve_again(&mut self, key: NtKey) {
        let stale: Vec<Bitstream> =
            self.holders(key).iter().map(|chain| chain.bitstream.clone()).collect();
        for bitstream in stale {
            self.insert_bitstream(bitstream);
        }
    }
}
