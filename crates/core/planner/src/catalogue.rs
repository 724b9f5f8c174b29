//! The NT types and bitstreams that a plan may use, by id.
//!
//! Planning asks two questions often: "is this the NT of that slot?" and "which bitstreams contain this
//! NT?". So every NT has a key of 64 bits, every bitstream is stored with the sums over its NTs, and an
//! index maps a key to its bitstreams. Memory: O(NTs + slots of all bitstreams). Inserting and removing
//! take O(log n) plus, for each slot, the length of that NT's entry in the index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardModel, Cycles, DagSpec, NtType,
    NtTypeId, TenantId,
};
use snic_processors::NicModel;

use crate::by_owner::ByOwner;
use crate::changes::ChangeCounter;
use crate::memory::allocated_memory;
use crate::nt_key::NtKey;
use crate::region_groups::RegionGroups;

/// One slot of a bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainSlot {
    pub(crate) key: NtKey,
    /// Zero if the catalogue does not know the NT.
    pub(crate) bandwidth_max: Bandwidth,
    /// Packets per second that it takes; `u64::MAX` without a limit.
    pub(crate) packets_max: u64,
    pub(crate) latency: Cycles,
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
    /// The regions of its kind that it has images for, a bit set.
    pub(crate) regions: u32,
    /// The regions of each image, a bit set, and its size.
    images: SmallVec<[(u32, ByteSize); 1]>,
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
                packets_max: known.map_or(u64::MAX, |nt| nt.nt.packet_capacity()),
                latency: known.map_or(Cycles::default(), |nt| nt.nt.latency),
                memory: known.map_or(ByteSize::ZERO, |nt| allocated_memory(&nt.nt)),
            });
            area = area.zip(known).map(|(sum, nt)| sum + nt.nt.area);
        }
        if !(1..=CHAIN_SLOTS_MAX).contains(&bitstream.nts.len()) {
            area = None;
        }
        let mask = slots.iter().fold(0, |mask, slot| mask | slot.key.bit());
        let images = bitstream.images.iter().map(|image| (image.region_set(), image.size));
        let (images, regions) = (images.collect(), bitstream.images.region_set());
        let owner = bitstream.id.owner();
        Self { bitstream, slots, area, mask, regions, images, owner }
    }

    /// Whether it has an image for each of these regions, a bit set that is not empty, and none of these images is
    /// larger than `size_max`.
    pub(crate) fn has_images_for(&self, regions: u32, size_max: ByteSize) -> bool {
        self.regions & regions == regions
            && self.images.iter().all(|(of, size)| of & regions == 0 || *size <= size_max)
    }

    /// The tenant that owns it; `None` is the provider.
    pub(crate) const fn owner(&self) -> Option<&TenantId> {
        self.owner.as_ref()
    }

    /// Whether the tenant may load it, as in [`Bitstream::is_loadable_by`].
    pub(crate) fn is_loadable_by(&self, tenant: &TenantId) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner == tenant)
    }

    /// [`DagSpec::may_pass`], asked of the id only where neither the provider nor the tenant owns it.
    pub(crate) fn is_open_to(&self, tenant: &TenantId, spec: &DagSpec) -> bool {
        self.is_loadable_by(tenant) || spec.may_pass(tenant, &self.bitstream)
    }

    /// Whether one of its slots contains an NT.
    pub(crate) fn has(&self, key: NtKey) -> bool {
        self.mask & key.bit() != 0 && self.slots.iter().any(|slot| slot.key == key)
    }

    /// Whether its slots contain `keys` in this order, possibly with others between them.
    pub(crate) fn holds(&self, keys: &[NtKey]) -> bool {
        self.prefix_held(keys) == keys.len()
    }

    /// Number of the first `keys` that its slots contain in this order. Taking the first slot that matches
    /// is never worse than taking a later one.
    pub(crate) fn prefix_held(&self, keys: &[NtKey]) -> usize {
        self.slots.iter().fold(0, |found, slot| {
            found + usize::from(keys.get(found).is_some_and(|key| *key == slot.key))
        })
    }
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
    /// Bitstreams of each owner that contain an NT, by id, each once.
    holders: BTreeMap<NtKey, ByOwner<Vec<Arc<PhysicalChain>>>>,
    /// Bitstreams that no plan uses for the time being; those that a plan may use otherwise are kept.
    withheld: BTreeMap<BitstreamId, Option<Bitstream>>,
    /// Card models with processors, and the programs that were measured on them.
    models: BTreeMap<CardModel, Arc<NicModel>>,
    /// Groups of a card's regions with the same images of an owner; none where every image is for all regions.
    groups: BTreeMap<CardModel, ByOwner<RegionGroups>>,
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

    /// Says which programs there are for NTs on cards with processors, in place of what was said before.
    pub fn set_models(&mut self, models: impl IntoIterator<Item = NicModel>) {
        let models = models.into_iter().map(|model| (model.model.clone(), Arc::new(model)));
        self.models = models.collect();
        self.changes.increment();
    }

    /// The programs for cards of a model.
    pub fn model(&self, model: &CardModel) -> Option<&NicModel> {
        self.models.get(model).map(AsRef::as_ref)
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
            let holders = self.holders.entry(slot.key).or_default();
            let list = holders.entry(chain.owner.as_ref());
            if let Err(at) = list.binary_search_by(|c| c.bitstream.id.cmp(&chain.bitstream.id)) {
                list.insert(at, Arc::clone(&chain));
            }
        }
        if chain.regions != u32::MAX {
            let groups = self.groups.entry(chain.bitstream.card_model.clone()).or_default();
            groups.entry(chain.owner.as_ref()).add(chain.regions);
        }
        self.bitstreams.insert(chain.bitstream.id.clone(), chain);
        before
    }

    /// Groups of a card's regions with the same images of bitstreams that a tenant may load: of those of the provider, and
    /// of its own. `None`: each of these has one for all regions.
    pub(crate) fn region_groups(
        &self,
        model: &CardModel,
        tenant: &TenantId,
    ) -> [Option<&RegionGroups>; 2] {
        self.groups.get(model).map_or([None; 2], |groups| groups.loadable_by(tenant))
    }

    /// Removes a bitstream. Regions that hold it are not changed.
    pub fn remove_bitstream(&mut self, id: &BitstreamId) -> Option<Bitstream> {
        self.changes.increment();
        if let Some(withheld) = self.withheld.get_mut(id) {
            return withheld.take();
        }
        let chain = self.bitstreams.remove(id)?;
        for slot in &chain.slots {
            if let Some(holders) = self.holders.get_mut(&slot.key) {
                holders.shrink(chain.owner.as_ref(), |list| {
                    list.retain(|c| c.bitstream.id != *id);
                    list.is_empty()
                });
                if holders.is_empty() {
                    self.holders.remove(&slot.key);
                }
            }
        }
        let model = &chain.bitstream.card_model;
        if chain.regions != u32::MAX
            && let Some(groups) = self.groups.get_mut(model)
        {
            groups.shrink(chain.owner.as_ref(), |groups| {
                groups.remove(chain.regions);
                groups.is_empty()
            });
            if groups.is_empty() {
                self.groups.remove(model);
            }
        }
        Some(chain.bitstream.clone())
    }

    /// From now on these bitstreams are in no new plan, neither loaded nor where they are loaded already; all
    /// others are as before. DAGs that use one of them have other plans only.
    pub fn withhold(&mut self, ids: &BTreeSet<BitstreamId>) {
        let again: Vec<BitstreamId> =
            self.withheld.keys().filter(|id| !ids.contains(*id)).cloned().collect();
        for id in again {
            let kept = self.withheld.remove(&id).flatten();
            kept.map(|bitstream| self.insert_bitstream(bitstream));
            self.changes.increment();
        }
        for id in ids {
            if !self.withheld.contains_key(id) {
                let kept = self.remove_bitstream(id);
                self.withheld.insert(id.clone(), kept);
            }
        }
    }

    /// The bitstreams that no plan uses for the time being.
    pub fn withheld(&self) -> BTreeSet<BitstreamId> {
        self.withheld.keys().cloned().collect()
    }

    /// Whether no plan uses a bitstream for the time being.
    pub fn is_withheld(&self, id: &BitstreamId) -> bool {
        self.withheld.contains_key(id)
    }

    /// Whether packets of a DAG of `tenant` may pass through a bitstream where it is loaded: its owner shares it,
    /// the DAG trusts it, and it is not withheld.
    pub fn lets_pass(&self, bitstream: &Bitstream, tenant: &TenantId, spec: &DagSpec) -> bool {
        spec.may_pass(tenant, bitstream) && !self.is_withheld(&bitstream.id)
    }

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

    /// The bitstreams that contain `key`, owner by owner.
    pub(crate) fn holders(&self, key: NtKey) -> impl Iterator<Item = &Arc<PhysicalChain>> {
        self.holders.get(&key).into_iter().flat_map(ByOwner::all).flatten()
    }

    /// Those of them that a tenant may load, by id: of the provider, and of its own.
    pub(crate) fn loadable_holders(&self, key: NtKey, tenant: &TenantId) -> LoadableHolders<'_> {
        let lists = self.holders.get(&key).map_or([None; 2], |of| of.loadable_by(tenant));
        LoadableHolders(lists.map(|list| list.map_or(&[][..], Vec::as_slice)))
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
            self.holders(key).map(|chain| chain.bitstream.clone()).collect();
        for bitstream in stale {
            self.insert_bitstream(bitstream);
        }
    }
}

/// Bitstreams of two owners, by id.
#[derive(Debug, Clone)]
pub(crate) struct LoadableHolders<'a>([&'a [Arc<PhysicalChain>]; 2]);

impl<'a> Iterator for LoadableHolders<'a> {
    type Item = &'a PhysicalChain;

    fn next(&mut self) -> Option<Self::Item> {
        let [provider, own] = &mut self.0;
        let is_own_next = match (provider.first(), own.first()) {
            (Some(one), Some(other)) => other.bitstream.id < one.bitstream.id,
            (one, _) => one.is_none(),
        };
        let list = if is_own_next { own } else { provider };
        let (first, rest) = list.split_first()?;
        *list = rest;
        Some(first)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.0.iter().map(|list| list.len()).sum();
        (count, Some(count))
    }
}

impl ExactSizeIterator for LoadableHolders<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{bitstream, catalogue, gbps, key, name, nt, nt_id};

    fn chain(catalogue: &PlanCatalogue, nts: &str) -> PhysicalChain {
        PhysicalChain::new(bitstream("x", nts), catalogue)
    }

    #[test]
    fn a_chain_has_the_sums_of_its_nts() {
        let mut catalogue = catalogue("a b", &[]);
        catalogue.insert_nt(NtType { memory: ByteSize::from_mib(3), ..nt("m", 7) });
        let made = chain(&catalogue, "a m a");
        assert_eq!(made.area.map(|area| area.lut), Some(300));
        let slots: Vec<(Bandwidth, ByteSize)> =
            made.slots.iter().map(|slot| (slot.bandwidth_max, slot.memory)).collect();
        let a = (gbps(10), ByteSize::ZERO);
        assert_eq!(slots, [a, (gbps(7), ByteSize::from_mib(4)), a]);
        assert!(made.has(key(&catalogue, "m")) && !made.has(key(&catalogue, "b")));
    }

    /// None of these can be loaded. A slot whose NT is unknown still has its key, so that packets
    /// may use it where it is loaded already.
    #[test]
    fn a_chain_that_cannot_be_built_has_no_area() {
        let catalogue = catalogue("a", &[]);
        let nine = "a ".repeat(CHAIN_SLOTS_MAX + 1);
        let eight = "a ".repeat(CHAIN_SLOTS_MAX);
        for (nts, slots, is_built) in [
            ("", 0, false),
            ("a", 1, true),
            ("a ghost", 2, false),
            (&eight, 8, true),
            (&nine, 8, false),
        ] {
            let made = chain(&catalogue, nts);
            assert_eq!((made.slots.len(), made.area.is_some()), (slots, is_built), "{nts:?}");
        }
        let ghost = chain(&catalogue, "a ghost").slots[1];
        assert_eq!((ghost.bandwidth_max, ghost.memory), (Bandwidth::ZERO, ByteSize::ZERO));
    }

    /// Only its owner may load it. It serves the tenants that its owner shares it with and that
    /// trust its owner.
    #[test]
    fn owner_consent_and_trust_decide_who_passes() {
        let catalogue = catalogue("a", &[]);
        let spec = |trusts: bool| DagSpec {
            trusted_tenants: trusts.then(|| name("t0/x").tenant).into_iter().collect(),
            ..DagSpec::chain(&[nt_id("a")], gbps(1))
        };
        let [t0, t1] = ["t0/x", "t1/x"].map(|id| name(id).tenant);
        for (id, shareable, trusts, loads, passes) in [
            ("x", true, false, true, true),
            ("x", false, false, true, true),
            ("t1.x", false, false, true, true),
            ("t0.x", true, true, false, true),
            ("t0.x", true, false, false, false),
            ("t0.x", false, true, false, false),
        ] {
            let made = Bitstream { shareable, ..bitstream(id, "a") };
            let made = PhysicalChain::new(made, &catalogue);
            assert_eq!(made.is_loadable_by(&t1), loads, "{id}");
            assert_eq!(made.is_open_to(&t1, &spec(trusts)), passes, "{id} {shareable} {trusts}");
            assert!(made.is_open_to(&t0, &spec(false)) || id == "t1.x", "{id}");
        }
    }

    #[test]
    fn an_nt_is_usable_by_whom_it_is_visible_to() {
        let mut catalogue = catalogue("a", &[]);
        catalogue.insert_nt(NtType { shareable: false, ..nt("t0.p", 1) });
        let [t0, t1] = ["t0/x", "t1/x"].map(|id| name(id).tenant);
        let usable = |id, tenant| catalogue.usable_nt(&nt_id(id), tenant).is_some();
        assert!(usable("a", &t0) && usable("a", &t1) && usable("t0.p", &t0));
        assert!(!usable("t0.p", &t1) && !usable("t0.q", &t0));
    }

    /// A ledger shares the catalogue's chain of a bitstream, and keeps its own where another has its id now.
    #[test]
    fn a_chain_is_shared_with_the_catalogue_while_it_is_the_same() {
        let mut catalogue = catalogue("a b", &[("x", "a b")]);
        let old = bitstream("x", "a b");
        let shared = catalogue.chain(&old);
        assert!(Arc::ptr_eq(&shared, &catalogue.chain(&old)));
        catalogue.insert_bitstream(bitstream("x", "b a"));
        let own = catalogue.chain(&old);
        assert_eq!(*own, *shared);
        assert!(!Arc::ptr_eq(&own, &catalogue.chain(&bitstream("x", "b a"))));
    }

    proptest! {
        /// Compared with a search for the sequence among all subsets of the slots.
        #[test]
        fn a_chain_holds_what_is_left_when_slots_are_crossed_out(
            slots in prop::collection::vec(0usize..3, 1..7),
            wanted in prop::collection::vec(0usize..3, 0..5),
        ) {
            let catalogue = catalogue("a b c", &[]);
            let text = |of: &[usize]| of.iter().map(|n| ["a", "b", "c"][*n]).collect::<Vec<_>>();
            let made = chain(&catalogue, &text(&slots).join(" "));
            let keys: Vec<NtKey> = text(&wanted).iter().map(|id| key(&catalogue, id)).collect();
            let left = |set: u32| -> Vec<usize> {
                (0..slots.len()).filter(|i| set >> i & 1 == 1).map(|i| slots[i]).collect()
            };
            let longest = (0..1u32 << slots.len())
                .map(left)
                .filter(|left| wanted.starts_with(left))
                .map(|left| left.len())
                .max();
            prop_assert_eq!(Some(made.prefix_held(&keys)), longest);
            prop_assert_eq!(made.holds(&keys), longest == Some(keys.len()));
        }

        /// After any series of changes, the index gives the same answers as a scan of all
        /// bitstreams, and every chain equals a newly built one.
        #[test]
        fn the_index_follows_every_change(
            changes in prop::collection::vec((0usize..4, 0usize..4, 0usize..4), 1..24),
        ) {
            let (nts, contents) = (["a", "b", "c"], ["a b", "c", "b b a", "a c"]);
            let mut catalogue = catalogue("a b c", &[]);
            let mut counted = catalogue.changes();
            for (change, content, at) in changes {
                let stream = bitstream(["w", "a.x", "b.y", "z"][at], contents[content]);
                match change {
                    0 => drop(catalogue.insert_bitstream(stream)),
                    1 => drop(catalogue.remove_bitstream(&stream.id)),
                    2 => drop(catalogue.insert_nt(nt(nts[at % 3], content as u64 + 1))),
                    _ => drop(catalogue.remove_nt(&nt_id(nts[at % 3]))),
                }
                prop_assert!(catalogue.changes() > counted, "each call counts");
                counted = catalogue.changes();
                for id in nts {
                    let nt_key = NtKey::of(&nt_id(id));
                    let holds = |b: &&Bitstream| b.nts.contains(&nt_id(id));
                    let listed = catalogue.holders(nt_key).map(|c| c.bitstream.id.clone());
                    let expected = catalogue.bitstreams().filter(holds).map(|b| b.id.clone());
                    prop_assert_eq!(listed.collect::<BTreeSet<_>>(), expected.collect());
                    for tenant in ["a/x", "b/x", "c/x"].map(|id| name(id).tenant) {
                        let listed = catalogue.loadable_holders(nt_key, &tenant);
                        prop_assert_eq!(listed.len(), listed.clone().count());
                        let may = |b: &&Bitstream| holds(b) && b.is_loadable_by(&tenant);
                        let expected: Vec<_> = catalogue.bitstreams().filter(may).collect();
                        prop_assert_eq!(listed.map(|c| &c.bitstream).collect::<Vec<_>>(), expected);
                    }
                    for held in catalogue.holders(nt_key) {
                        let again = PhysicalChain::new(held.bitstream.clone(), &catalogue);
                        prop_assert_eq!(held.as_ref(), &again, "as new");
                    }
                }
            }
        }
    }
}
