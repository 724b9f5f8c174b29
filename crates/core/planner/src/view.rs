//! The card as the search for one DAG sees it: the residuals of the ledger, minus what the search has taken.
//!
//! A fixed array, filled from the ledger once for each plan and changed in place, so trying and undoing do
//! not allocate. Bandwidths are in kbit/s, rounded down, since reservations are whole kbit/s.

use smallvec::SmallVec;
use snic_domain::limits::{CHAIN_SLOTS_MAX, REGIONS_MAX};
use snic_domain::{RegionId, Slot};

use crate::catalogue::{ChainSlot, PhysicalChain};
use crate::classes::{Class, classes};
use crate::job::{Job, from_kbps, kbps};
use crate::nt_key::NtKey;
use crate::region::{RegionCondition, RegionEntry};
use crate::work::{self, Work};

/// Slots used in one region, in ascending order.
pub(crate) type Slots = SmallVec<[u8; CHAIN_SLOTS_MAX]>;

/// A path through one region, with its bandwidth in kbit/s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionPath {
    pub(crate) region: u8,
    pub(crate) slots: Slots,
    pub(crate) kbps: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedRegion<'a> {
    /// The chain that this DAG may use: loaded and shared, or loaded by this plan.
    pub(crate) chain: Option<&'a PhysicalChain>,
    /// Left of each slot's NT, in kbit/s of this DAG.
    pub(crate) free: [u64; CHAIN_SLOTS_MAX],
    /// Credits left, by slot, in thousandths of one.
    pub(crate) credits: [u64; CHAIN_SLOTS_MAX],
    /// Left of its port, in kbit/s of this DAG.
    pub(crate) port: u64,
    /// Number of uses by this plan, by slot.
    pub(crate) uses: [u16; CHAIN_SLOTS_MAX],
    /// Whether this plan loads it.
    pub(crate) planned: bool,
}

impl PlannedRegion<'_> {
    fn left_of(&self, key: NtKey) -> u64 {
        let Some(chain) = self.chain.filter(|chain| chain.mask & key.bit() != 0) else { return 0 };
        let alike = chain.slots.iter().zip(&self.free).filter(|(slot, _)| slot.key == key);
        alike.map(|(_, free)| free).sum()
    }
}

/// Consecutive NTs of the DAG, with what every region asks of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NtSequence<'k> {
    pub(crate) keys: &'k [NtKey],
    /// The bits of its keys.
    pub(crate) mask: u64,
    /// Time that a packet holds its credits, in cycles.
    round_trip: u64,
}

/// Limits of the paths through a region, in kbit/s.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Rest of each slot: its NT's bandwidth, and what its credits suffice for.
    slots: [u64; CHAIN_SLOTS_MAX],
    /// Bandwidth of all paths together.
    port: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct View<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) regions: [PlannedRegion<'a>; REGIONS_MAX],
    /// Bit set of regions that could be loaded, including those that this plan uses or loads.
    pub(crate) loadable: u32,
    /// The same, by what makes them interchangeable.
    pub(crate) classes: SmallVec<[Class; 4]>,
}

fn slots_of(chain: &PhysicalChain) -> impl Iterator<Item = (u8, NtKey)> {
    (0u8..).zip(chain.slots.iter().map(|slot| slot.key))
}

impl<'a> View<'a> {
    /// The residuals of the ledger, with the DAG's own reservation released.
    pub(crate) fn new(job: &'a Job<'a>) -> Self {
        let none = PlannedRegion {
            chain: None,
            free: [0; CHAIN_SLOTS_MAX],
            credits: [0; CHAIN_SLOTS_MAX],
            port: 0,
            uses: [0; CHAIN_SLOTS_MAX],
            planned: false,
        };
        let mut view =
            Self { job, regions: [none; REGIONS_MAX], loadable: 0, classes: SmallVec::new() };
        for (region, entry) in (0u8..).zip(job.ledger.entries()) {
            view.open(RegionId(region), entry);
        }
        view.classes = classes(job, view.loadable);
        view
    }

    fn open(&mut self, region: RegionId, entry: &'a RegionEntry) {
        let job = self.job;
        if entry.condition != RegionCondition::Usable {
            return;
        }
        if entry.is_replaceable() && !job.previous_uses(region) {
            self.loadable |= 1 << region.0;
        }
        let Some(chain) = entry.chain() else { return };
        let is_open = chain.is_open_to(job.tenant(), job.dag().spec());
        if !is_open || job.catalogue.is_withheld(&chain.bitstream.id) {
            return;
        }
        let view = &mut self.regions[region.index()];
        view.chain = Some(chain);
        view.port = job.port_kbps(region);
        let counts_credits = job.work.counts_packets();
        for slot in 0..chain.slots.len() {
            let at = Slot(slot as u8);
            view.free[slot] = job.nt_kbps(region, at);
            if counts_credits {
                let own = job.own_credits(region, at);
                view.credits[slot] = job.ledger.credits_left(region, at, own);
            }
        }
    }

    /// Consecutive NTs of the DAG.
    pub(crate) fn sequence<'k>(&self, keys: &'k [NtKey]) -> NtSequence<'k> {
        let mask = keys.iter().fold(0, |mask, key| mask | key.bit());
        NtSequence { keys, mask, round_trip: self.job.round_trip(keys) }
    }

    /// Bit set of regions that can still be loaded: neither used nor loaded by this plan.
    pub(crate) fn loadable_now(&self) -> u32 {
        (0..REGIONS_MAX)
            .filter(|r| self.regions[*r].planned || self.regions[*r].uses != [0; CHAIN_SLOTS_MAX])
            .fold(self.loadable, |set, r| set & !(1 << r))
    }

    /// Whether two regions that can be loaded are interchangeable for that.
    pub(crate) fn load_alike(&self, one: u8, other: u8) -> bool {
        let class = |region| self.classes.iter().find(|class| class.regions >> region & 1 == 1);
        class(one).zip(class(other)).is_some_and(|(one, other)| one.takes_what(other))
    }

    /// Bandwidth of the widest path of a sequence through a region, in kbit/s; 0 if there is none.
    pub(crate) fn widest(&self, region: usize, of: NtSequence<'_>) -> u64 {
        let view = &self.regions[region];
        let Some(chain) = view.chain.filter(|chain| chain.mask & of.mask == of.mask) else {
            return 0;
        };
        let keys = of.keys;
        if keys.len() > chain.slots.len() {
            return 0;
        }
        let work = &self.job.work;
        let counts_packets = work.counts_packets();
        // best[n]: the widest path of the first n keys through the slots so far.
        let mut best = [0u64; CHAIN_SLOTS_MAX + 1];
        best[0] = view.port;
        for (slot, held) in chain.slots.iter().enumerate() {
            if of.mask & held.key.bit() == 0 {
                continue;
            }
            let mut free = view.free[slot];
            if counts_packets {
                free = work.within_credits(free, view.credits[slot], of.round_trip);
            }
            for n in (1..=keys.len().min(slot + 1)).rev() {
                if keys[n - 1] == held.key {
                    best[n] = best[n].max(best[n - 1].min(free));
                }
            }
        }
        best[keys.len()]
    }

    /// The first path through a region on which every NT has `kbps` left.
    pub(crate) fn path(&self, region: usize, of: NtSequence<'_>, kbps: u64) -> Option<RegionPath> {
        let view = &self.regions[region];
        let chain = view.chain.filter(|chain| chain.mask & of.mask == of.mask)?;
        first_path(chain, &self.limits(view, of).slots, of.keys, kbps).map(|slots| RegionPath {
            region: region as u8,
            slots,
            kbps,
        })
    }

    /// All paths through a region at once, each with what it takes of what the ones before it left;
    /// together they carry the most that fits if no NT is twice in the sequence.
    pub(crate) fn paths(&self, region: usize, of: NtSequence<'_>, out: &mut Vec<RegionPath>) {
        self.for_each_path(region, of, |slots, kbps| {
            out.push(RegionPath { region: region as u8, slots, kbps });
        });
    }

    /// Bandwidth that all paths through a region carry together, in kbit/s.
    pub(crate) fn carried(&self, region: usize, of: NtSequence<'_>) -> u64 {
        let mut sum = 0u64;
        self.for_each_path(region, of, |_, kbps| sum = sum.saturating_add(kbps));
        sum
    }

    fn for_each_path(&self, region: usize, of: NtSequence<'_>, visit: impl FnMut(Slots, u64)) {
        let view = &self.regions[region];
        if let Some(chain) = view.chain.filter(|chain| chain.mask & of.mask == of.mask) {
            for_each_path(chain, self.limits(view, of), of.keys, visit);
        }
    }

    /// Bandwidth that a load of `chain` would carry of a sequence, in kbit/s.
    pub(crate) fn carried_fresh(&self, chain: &'a PhysicalChain, of: NtSequence<'_>) -> u64 {
        let limits = self.limits(&self.fresh_region(chain), of);
        let mut sum = 0u64;
        for_each_path(chain, limits, of.keys, |_, kbps| sum = sum.saturating_add(kbps));
        sum
    }

    /// Bandwidth of a sequence that each slot of a region, and its port, can pass.
    fn limits(&self, view: &PlannedRegion<'_>, of: NtSequence<'_>) -> Limits {
        let work = &self.job.work;
        let mut slots = view.free;
        if work.counts_packets() {
            for (free, credits) in slots.iter_mut().zip(view.credits) {
                *free = work.within_credits(*free, credits, of.round_trip);
            }
        }
        Limits { slots, port: view.port }
    }

    /// Rest of all instances of an NT in a region together, in kbit/s.
    pub(crate) fn left_of(&self, region: usize, key: NtKey) -> u64 {
        self.regions[region].left_of(key)
    }

    /// The same in all regions.
    pub(crate) fn left_of_all(&self, key: NtKey) -> u64 {
        self.regions.iter().map(|region| region.left_of(key)).sum()
    }

    /// Whether an NT has less left in all regions than the DAG needs: no placement without loads.
    pub(crate) fn is_anything_short(&self) -> bool {
        self.job.totals.iter().any(|total| self.left_of_all(total.key) < total.kbps)
    }

    /// Takes what `path` needs for a sequence; returns the headroom left on its tightest NT, in kbit/s. The caller
    /// ensures that bandwidth and credits suffice.
    pub(crate) fn take(&mut self, path: &RegionPath, of: NtSequence<'_>) -> u64 {
        let mut headroom = u64::MAX;
        let credits = self.credits_of(path, of);
        let view = &mut self.regions[usize::from(path.region)];
        view.port = view.port.saturating_sub(path.kbps);
        for slot in &path.slots {
            let (view, slot) = (&mut self.regions[usize::from(path.region)], usize::from(*slot));
            view.free[slot] -= path.kbps;
            view.credits[slot] = view.credits[slot].saturating_sub(credits);
            view.uses[slot] += 1;
            headroom = headroom.min(view.free[slot]);
        }
        headroom
    }

    /// Undoes [`View::take`] of the same path, when the search steps back.
    pub(crate) fn give_back(&mut self, path: &RegionPath, of: NtSequence<'_>) {
        let credits = self.credits_of(path, of);
        let view = &mut self.regions[usize::from(path.region)];
        view.port = view.port.saturating_add(path.kbps);
        for slot in path.slots.iter().rev() {
            let view = &mut self.regions[usize::from(path.region)];
            view.free[usize::from(*slot)] += path.kbps;
            view.credits[usize::from(*slot)] += credits;
            view.uses[usize::from(*slot)] -= 1;
        }
    }

    fn credits_of(&self, path: &RegionPath, of: NtSequence<'_>) -> u64 {
        let work = &self.job.work;
        if !work.counts_packets() {
            return 0;
        }
        work.credits(from_kbps(path.kbps), of.round_trip)
    }

    /// Plans to load a region; returns its previous state, for undoing.
    pub(crate) fn load(&mut self, region: u8, chain: &'a PhysicalChain) -> PlannedRegion<'a> {
        let new = self.fresh_region(chain);
        std::mem::replace(&mut self.regions[usize::from(region)], new)
    }

    /// A region that this plan loads.
    fn fresh_region(&self, chain: &'a PhysicalChain) -> PlannedRegion<'a> {
        PlannedRegion {
            chain: Some(chain),
            free: fresh(chain, &self.job.work),
            credits: [work::credits_max(self.job.ledger.profile()); CHAIN_SLOTS_MAX],
            port: self.job.port_kbps_max(),
            uses: [0; CHAIN_SLOTS_MAX],
            planned: true,
        }
    }
}

/// The first slots that hold `keys` in order with at least `kbps` left on each.
fn first_path(
    chain: &PhysicalChain,
    free: &[u64; CHAIN_SLOTS_MAX],
    keys: &[NtKey],
    kbps: u64,
) -> Option<Slots> {
    let mut slots = Slots::new();
    for (slot, key) in slots_of(chain) {
        if keys.get(slots.len()) == Some(&key) && free[usize::from(slot)] >= kbps {
            slots.push(slot);
        }
    }
    (slots.len() == keys.len()).then_some(slots)
}

/// Visits paths in order, each as wide as possible. Taking the first slots leaves the later ones to paths
/// that can use no others.
fn for_each_path(
    chain: &PhysicalChain,
    mut left: Limits,
    keys: &[NtKey],
    mut visit: impl FnMut(Slots, u64),
) {
    while left.port > 0
        && let Some(slots) = first_path(chain, &left.slots, keys, 1)
    {
        let tightest = slots.iter().map(|s| left.slots[usize::from(*s)]).min();
        let Some(kbps) = tightest.map(|kbps| kbps.min(left.port)) else { return };
        for slot in &slots {
            left.slots[usize::from(*slot)] -= kbps;
        }
        left.port -= kbps;
        visit(slots, kbps);
    }
}

/// Bandwidth of an NT in a freshly loaded chain, all instances together, in kbit/s. What its port lets
/// through may be less.
pub(crate) fn fresh_bandwidth(chain: &PhysicalChain, key: NtKey, work: &Work) -> u64 {
    let alike = chain.slots.iter().filter(|slot| slot.key == key);
    let of = |slot: &ChainSlot| work.nt_kbps(kbps(slot.bandwidth_max), slot.packets_max);
    alike.map(of).fold(0, u64::saturating_add)
}

/// The same of a sequence of NTs, over all paths of `keys`.
pub(crate) fn fresh_capacity(chain: &PhysicalChain, keys: &[NtKey], work: &Work) -> u64 {
    let mut sum = 0u64;
    let limits = Limits { slots: fresh(chain, work), port: u64::MAX };
    for_each_path(chain, limits, keys, |_, kbps| sum = sum.saturating_add(kbps));
    sum
}

/// Bandwidth of every slot of a freshly loaded chain for packets of a DAG, in kbit/s.
fn fresh(chain: &PhysicalChain, work: &Work) -> [u64; CHAIN_SLOTS_MAX] {
    let mut free = [0; CHAIN_SLOTS_MAX];
    for (free, slot) in free.iter_mut().zip(&chain.slots) {
        *free = work.nt_kbps(kbps(slot.bandwidth_max), slot.packets_max);
    }
    free
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use snic_domain::{NtType, PacketSizes};

    use super::*;
    use crate::fixtures::{bitstream, card, catalogue, key};

    const NTS: [&str; 3] = ["a", "b", "c"];

    /// A chain of these NTs, by number, and the keys of the others.
    fn chain_and_keys(slots: &[usize], keys: &[usize]) -> (PhysicalChain, Vec<NtKey>) {
        let catalogue = catalogue(&NTS.join(" "), &[]);
        let nts: Vec<&str> = slots.iter().map(|nt| NTS[*nt]).collect();
        let chain = PhysicalChain::new(bitstream("x", &nts.join(" ")), &catalogue);
        (chain, keys.iter().map(|nt| key(&catalogue, NTS[*nt])).collect())
    }

    fn limits(free: &[u64], port: u64) -> Limits {
        let mut slots = [0; CHAIN_SLOTS_MAX];
        slots[..free.len()].copy_from_slice(free);
        Limits { slots, port }
    }

    fn visited(chain: &PhysicalChain, left: Limits, keys: &[NtKey]) -> Vec<(Vec<u8>, u64)> {
        let mut all = Vec::new();
        for_each_path(chain, left, keys, |slots, kbps| all.push((slots.to_vec(), kbps)));
        all
    }

    /// All choices of slots in ascending order that hold these NTs, the first slots first.
    fn all_paths(slots: &[usize], keys: &[usize], from: usize) -> Vec<Vec<u8>> {
        let Some((first, rest)) = keys.split_first() else { return vec![Vec::new()] };
        let places = (from..slots.len()).filter(|slot| slots[*slot] == *first);
        let on = |slot: usize| {
            let behind = all_paths(slots, rest, slot + 1).into_iter();
            behind.map(move |path| [vec![slot as u8], path].concat())
        };
        places.flat_map(on).collect()
    }

    #[test]
    fn the_first_slots_with_room_are_taken() {
        let (chain, keys) = chain_and_keys(&[0, 1, 0, 1], &[0, 1]);
        let path = |free: [u64; 4], kbps| {
            first_path(&chain, &limits(&free, 0).slots, &keys, kbps).map(|slots| slots.to_vec())
        };
        assert_eq!(path([5, 5, 5, 5], 5), Some(vec![0, 1]));
        assert_eq!(path([4, 5, 5, 5], 5), Some(vec![2, 3]));
        assert_eq!(path([5, 4, 5, 5], 5), Some(vec![0, 3]));
        assert_eq!(path([4, 5, 5, 4], 5), None, "b is before a");
        assert_eq!(path([0, 0, 0, 0], 1), None);
    }

    #[test]
    fn ways_share_slots_and_the_port() {
        let (chain, keys) = chain_and_keys(&[0, 1, 0, 1], &[0, 1]);
        let ways = |free: [u64; 4], port| visited(&chain, limits(&free, port), &keys);
        assert_eq!(ways([5, 3, 2, 9], 99), [(vec![0, 1], 3), (vec![0, 3], 2), (vec![2, 3], 2)]);
        assert_eq!(ways([5, 3, 2, 9], 4), [(vec![0, 1], 3), (vec![0, 3], 1)], "the port is full");
        assert_eq!(ways([5, 3, 2, 9], 0), []);
        assert_eq!(ways([0, 3, 0, 9], 99), []);
    }

    #[test]
    fn a_fresh_chain_carries_what_its_slots_do() {
        let mut catalogue = catalogue("a b", &[]);
        let packets_per_second_max = NonZeroU32::new(1_000_000);
        catalogue.insert_nt(NtType { packets_per_second_max, ..crate::fixtures::nt("c", 3) });
        let work = Work::with(&card(1), &PacketSizes::only(9_000), false);
        let chain = PhysicalChain::new(bitstream("x", "a b a c"), &catalogue);
        let key = |id| key(&catalogue, id);
        let gbit = 1_000_000;
        assert_eq!(fresh_bandwidth(&chain, key("a"), &work), 20 * gbit, "two instances");
        assert_eq!(fresh_bandwidth(&chain, key("c"), &work), 3 * gbit);
        assert_eq!(fresh_capacity(&chain, &[key("a"), key("b")], &work), 10 * gbit);
        assert_eq!(fresh_capacity(&chain, &[key("a"), key("c")], &work), 3 * gbit);
        assert_eq!(fresh_capacity(&chain, &[key("c"), key("a")], &work), 0, "against the grain");
        assert_eq!(fresh(&chain, &work)[..5], [10 * gbit, 10 * gbit, 10 * gbit, 3 * gbit, 0]);
        let small = Work::with(&card(1), &PacketSizes::only(64), false);
        assert_eq!(fresh_bandwidth(&chain, key("c"), &small), 512_000, "a million packets");
        assert_eq!(fresh(&chain, &small.bits_only())[3], 3 * gbit);
    }

    proptest! {
        #[test]
        fn a_path_is_found_if_there_is_one_and_it_is_the_first(
            slots in prop::collection::vec(0usize..3, 1..8),
            keys in prop::collection::vec(0usize..3, 1..4),
            free in prop::collection::vec(0u64..4, 8),
            kbps in 1u64..4,
        ) {
            let (chain, wanted) = chain_and_keys(&slots, &keys);
            let has_room = |path: &Vec<u8>| path.iter().all(|s| free[usize::from(*s)] >= kbps);
            let first = all_paths(&slots, &keys, 0).into_iter().find(has_room);
            let found = first_path(&chain, &limits(&free, 0).slots, &wanted, kbps);
            prop_assert_eq!(found.map(|slots| slots.to_vec()), first);
        }

        /// The maximum flow: the least bandwidth whose removal leaves no path (a minimum cut),
        /// found among all sets of slots, and at most what the port passes.
        #[test]
        fn all_ways_together_carry_the_most_that_flows(
            slots in prop::collection::vec(0usize..3, 1..8),
            keys in prop::sample::subsequence(vec![0usize, 1, 2], 1..=3).prop_shuffle(),
            free in prop::collection::vec(0u64..9, 8),
            port in 0u64..20,
        ) {
            let (chain, wanted) = chain_and_keys(&slots, &keys);
            let paths = all_paths(&slots, &keys, 0);
            let cuts = (0..1usize << slots.len()).filter(|cut| {
                paths.iter().all(|path| path.iter().any(|slot| cut >> slot & 1 == 1))
            });
            let width = |cut: usize| (0..8).filter(|s| cut >> s & 1 == 1).map(|s| free[s]).sum();
            let most = cuts.map(width).min().unwrap_or(u64::MAX);
            let ways = visited(&chain, limits(&free, port), &wanted);
            prop_assert_eq!(ways.iter().map(|(_, kbps)| kbps).sum::<u64>(), most.min(port));
            for (slot, free) in free.iter().enumerate().take(slots.len()) {
                let through = ways.iter().filter(|(path, _)| path.contains(&(slot as u8)));
                prop_assert!(through.map(|(_, kbps)| kbps).sum::<u64>() <= *free);
            }
            prop_assert!(ways.iter().all(|(path, kbps)| paths.contains(path) && *kbps > 0));
        }
    }
}
