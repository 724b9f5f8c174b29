//! Chooses bitstreams to load so that every NT has the bandwidth that many DAGs need together: a covering
//! problem over sums, independent of the number of DAGs.
//!
//! Depth-first search: while an NT is short, one of the loads that contain it must be chosen. The
//! most useful is tried first, and a load that was tried is not tried again beside others, since
//! loads form sets. A bound cuts branches that cannot succeed with the regions left. A bitstream
//! that a tenant does not share serves only that tenant, so the tenant's demand uses it first. A
//! shared bitstream serves everyone, but only DAGs of its owner may load it.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::limits::REGIONS_MAX;
use snic_domain::{ByteSize, RegionId, Slot, TenantId};

use crate::catalogue::PhysicalChain;
use crate::classes::fits_region;
use crate::job::kbps;
use crate::nt_key::NtKey;
use crate::region::RegionCondition;
use crate::region_groups::RegionGroups;
use crate::request::PlanRequest;
use crate::{Ledger, PlanCatalogue};

/// Steps of one search for loads; some milliseconds at most.
const STEPS_MAX: u32 = 4_000;
/// Steps in which sets of DAGs are compared; then the best one found is taken. Far more than a single plan may
/// take: a plan for a batch is not made on the controller's thread.
const STEPS_OF_A_BATCH: u32 = 200_000;
/// Unit of the bounds: bandwidth of an NT in one region, large enough that rounding does not matter.
const UNIT: u64 = 1 << 20;

/// Bandwidth that a DAG needs on each NT, in kbit/s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NtDemand {
    pub(crate) tenant: TenantId,
    /// Its bandwidth at ingress and egress.
    pub(crate) kbps: u64,
    /// Numbers of the NTs, each once.
    nts: Vec<(usize, u64)>,
    /// Whether one of its NTs keeps state in on-board memory.
    pub(crate) has_memory: bool,
}

/// A DAG to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingDag {
    pub(crate) index: usize,
    pub(crate) demand: NtDemand,
    pub(crate) nodes: usize,
}

/// A possible load.
#[derive(Debug)]
struct LoadOption<'a> {
    chain: &'a PhysicalChain,
    place: usize,
    /// The only tenant that can use it, if it is not shared.
    owner: Option<usize>,
    /// The only tenant that may load it, if it has an owner.
    loader: Option<usize>,
    /// Bandwidth that it serves, by number of the NT.
    serves: Vec<(usize, u64)>,
}

/// Regions that are interchangeable for a load.
#[derive(Debug)]
struct RegionGroup {
    regions: Vec<RegionId>,
    /// Bandwidth that a victim serves until it is replaced, and its owner; such a group has one region.
    loses: Vec<(usize, u64)>,
    owner: Option<usize>,
}

/// Bandwidth of each NT: shared by all tenants, and of single tenants.
#[derive(Debug, Clone, Default)]
struct NtCapacity {
    public: Vec<u64>,
    own: Vec<Vec<u64>>,
}

impl NtCapacity {
    fn of(&mut self, owner: Option<usize>) -> &mut Vec<u64> {
        match owner {
            Some(tenant) => &mut self.own[tenant],
            None => &mut self.public,
        }
    }

    fn add(&mut self, owner: Option<usize>, serves: &[(usize, u64)]) {
        let pool = self.of(owner);
        serves.iter().for_each(|(nt, kbps)| pool[*nt] = pool[*nt].saturating_add(*kbps));
    }

    fn remove(&mut self, owner: Option<usize>, serves: &[(usize, u64)]) {
        let pool = self.of(owner);
        serves.iter().for_each(|(nt, kbps)| pool[*nt] -= kbps);
    }
}

/// The card and the catalogue, as sums.
#[derive(Debug)]
pub(crate) struct CapacitySums<'a> {
    ledger: &'a Ledger,
    catalogue: &'a PlanCatalogue,
    keys: Vec<NtKey>,
    /// Memory of each NT for each tenant, in bytes.
    states: Vec<u64>,
    /// Owners of the DAGs to be placed: what others may load does not count.
    tenants: BTreeSet<&'a TenantId>,
    /// Groups of regions with the same images of bitstreams that count, owner by owner.
    groups: Vec<&'a RegionGroups>,
    /// Tenants with bitstreams that only they can use or load.
    owners: Vec<TenantId>,
    options: Vec<LoadOption<'a>>,
    /// Options that serve each NT.
    holders: Vec<Vec<usize>>,
    /// Largest bandwidth of one option for each NT.
    best: Vec<u64>,
    places: Vec<RegionGroup>,
    pool: NtCapacity,
    /// Demand of the DAGs in question: of each owner, and of all other tenants together.
    needed: NtCapacity,
    steps: u32,
    /// Steps of all searches so far.
    compared: u32,
}

impl<'a> CapacitySums<'a> {
    /// For DAGs of these tenants.
    pub(crate) fn new(
        ledger: &'a Ledger,
        catalogue: &'a PlanCatalogue,
        tenants: impl IntoIterator<Item = &'a TenantId>,
    ) -> Self {
        let keys: Vec<NtKey> = catalogue.nt_keys().collect();
        let tenants: BTreeSet<&TenantId> = tenants.into_iter().collect();
        let model = &ledger.profile().model;
        let of = |tenant: &TenantId| catalogue.region_groups(model, tenant);
        let provider = tenants.first().and_then(|tenant| of(tenant)[0]);
        let groups = provider.into_iter().chain(tenants.iter().filter_map(|tenant| of(tenant)[1]));
        let mut provision = Self {
            ledger,
            catalogue,
            groups: groups.collect(),
            tenants,
            owners: Vec::new(),
            options: Vec::new(),
            holders: vec![Vec::new(); keys.len()],
            best: vec![0; keys.len()],
            places: Vec::new(),
            pool: NtCapacity { public: vec![0; keys.len()], own: Vec::new() },
            needed: NtCapacity::default(),
            steps: 0,
            compared: 0,
            states: Vec::new(),
            keys,
        };
        provision.states = provision.keys.iter().map(|key| state_of(catalogue, *key)).collect();
        provision.add_regions();
        provision.add_options();
        provision
    }

    fn number(&self, key: NtKey) -> Option<usize> {
        self.keys.binary_search(&key).ok()
    }

    fn owner(&mut self, tenant: &TenantId) -> usize {
        self.owners.iter().position(|owner| owner == tenant).unwrap_or_else(|| {
            self.owners.push(tenant.clone());
            self.pool.own.push(vec![0; self.keys.len()]);
            self.owners.len() - 1
        })
    }

    /// Sums up the bandwidth of a chain's slots, by NT.
    fn serves(&self, chain: &PhysicalChain, free: impl Fn(usize) -> u64) -> Vec<(usize, u64)> {
        let mut serves: BTreeMap<usize, u64> = BTreeMap::new();
        for (slot, held) in chain.slots.iter().enumerate() {
            if let Some(nt) = self.number(held.key) {
                *serves.entry(nt).or_default() += free(slot);
            }
        }
        serves.into_iter().filter(|(_, kbps)| *kbps > 0).collect()
    }

    fn add_regions(&mut self) {
        let ledger = self.ledger;
        for (region, _) in ledger.profile().regions().take(REGIONS_MAX) {
            if ledger.condition(region) != RegionCondition::Usable {
                continue;
            }
            let (mut loses, mut owner) = (Vec::new(), None);
            if let Some(chain) = ledger.chain(region) {
                loses = self.serves(chain, |slot| kbps(ledger.residual(region, Slot(slot as u8))));
                let tenant = chain.bitstream.id.owner().filter(|_| !chain.bitstream.shareable);
                owner = tenant.map(|tenant| self.owner(&tenant));
                self.pool.add(owner, &loses);
            }
            if ledger.is_replaceable(region) {
                self.add_place(region, loses, owner);
            }
        }
        // Free regions first, then victims that serve nothing, then the others.
        self.places.sort_by_key(|place| {
            let region = place.regions[0];
            (!place.loses.is_empty(), ledger.chain(region).is_some(), region)
        });
    }

    fn add_place(&mut self, region: RegionId, loses: Vec<(usize, u64)>, owner: Option<usize>) {
        let (ledger, groups) = (self.ledger, &self.groups);
        let of = |r: RegionId| (ledger.profile().region(r), ledger.chain(r).is_some());
        let alike = self.places.iter_mut().find(|place| {
            let first = place.regions[0];
            loses.is_empty()
                && place.loses.is_empty()
                && of(first) == of(region)
                && groups.iter().all(|groups| groups.of(first) == groups.of(region))
        });
        match alike {
            Some(place) => place.regions.push(region),
            None => self.places.push(RegionGroup { regions: vec![region], loses, owner }),
        }
    }

    fn add_options(&mut self) {
        let (catalogue, ledger) = (self.catalogue, self.ledger);
        for chain in catalogue.chains() {
            if chain.owner().is_some_and(|owner| !self.tenants.contains(owner)) {
                continue;
            }
            let serves = self.serves(chain, |slot| kbps(chain.slots[slot].bandwidth_max));
            let is_built = chain.area.is_some()
                && chain.bitstream.card_model == ledger.profile().model
                && !serves.is_empty();
            if !is_built {
                continue;
            }
            let loader = chain.owner().map(|tenant| self.owner(tenant));
            let owner = loader.filter(|_| !chain.bitstream.shareable);
            for place in 0..self.places.len() {
                let first = self.places[place].regions[0];
                let region = ledger.profile().region(first);
                if region.is_some_and(|region| fits_region(first, region, chain)) {
                    for (nt, kbps) in &serves {
                        self.holders[*nt].push(self.options.len());
                        self.best[*nt] = self.best[*nt].max(*kbps);
                    }
                    self.options.push(LoadOption {
                        chain,
                        place,
                        owner,
                        loader,
                        serves: serves.clone(),
                    });
                }
            }
        }
    }

    /// Demand of a request; `None` if its tenant may not use one of its NTs.
    pub(crate) fn demand(&self, request: &PlanRequest<'_>) -> Option<NtDemand> {
        let tenant = &request.name.tenant;
        let kbps = kbps(request.dag.bandwidth());
        let mut nts: BTreeMap<usize, u64> = BTreeMap::new();
        let mut has_memory = false;
        for node in request.dag.nodes() {
            let known = self.catalogue.usable_nt(&node.nt, tenant)?;
            has_memory |= known.nt.memory > ByteSize::ZERO;
            *nts.entry(self.number(known.key)?).or_default() += kbps;
        }
        let nts = nts.into_iter().collect();
        Some(NtDemand { tenant: tenant.clone(), kbps, nts, has_memory })
    }

    /// Whether the tenant has bitstreams that no other tenant can use; it uses these first.
    pub(crate) fn has_own(&self, demand: &NtDemand) -> bool {
        let is_own = |owner: Option<usize>| owner.is_some_and(|o| self.owners[o] == demand.tenant);
        self.options.iter().any(|item| is_own(item.owner))
            || self.places.iter().any(|place| is_own(place.owner))
    }

    /// Whether the DAG may load `chain`, which other tenants may share but not load.
    pub(crate) fn unlocks(&self, demand: &NtDemand, chain: &PhysicalChain) -> bool {
        chain.bitstream.shareable
            && chain.bitstream.id.is_owned_by(&demand.tenant)
            && demand.nts.iter().any(|(nt, _)| chain.holds(&[self.keys[*nt]]))
    }

    /// Memory that these DAGs add to what their tenants have on the card, in bytes.
    pub(crate) fn memory(&self, wanted: &[&PendingDag]) -> u64 {
        let with_memory = wanted.iter().filter(|wanted| wanted.demand.has_memory);
        let nts = with_memory.flat_map(|PendingDag { demand, .. }| {
            demand.nts.iter().map(|(nt, _)| (&demand.tenant, *nt))
        });
        let nts: BTreeSet<(&TenantId, usize)> = nts.collect();
        let new =
            |(tenant, nt): &(&TenantId, usize)| !self.ledger.has_memory(tenant, self.keys[*nt]);
        nts.into_iter().filter(new).map(|(_, nt)| self.states[nt]).fold(0, u64::saturating_add)
    }

    /// Lower bound of the regions that a demand takes, by the loads that serve most of each NT.
    pub(crate) fn weight(&self, demand: &NtDemand) -> u64 {
        demand.nts.iter().map(|(nt, kbps)| self.worth(*nt, *kbps)).sum()
    }

    fn worth(&self, nt: usize, kbps: u64) -> u64 {
        let worth = u128::from(kbps) * u128::from(UNIT) / u128::from(self.best[nt].max(1));
        u64::try_from(worth).unwrap_or(u64::MAX / 1_024).min(u64::MAX / 1_024)
    }

    fn regions(&self) -> usize {
        self.places.iter().map(|place| place.regions.len()).sum()
    }

    /// Whether some set of loads satisfies all of these DAGs.
    pub(crate) fn has_place_for(&mut self, wanted: &[&PendingDag]) -> bool {
        self.may_compare() && self.need(wanted) && self.search(self.regions()).is_some()
    }

    /// The smallest number of loads found for all of these DAGs, if it is at most `most`.
    pub(crate) fn fewest(&mut self, wanted: &[&PendingDag], most: Option<usize>) -> Option<usize> {
        let is_possible = self.may_compare() && self.need(wanted);
        let enough = is_possible.then(|| self.fewest_options(most)).flatten();
        enough.map(|options| options.len())
    }

    /// Whether sets may still be compared: a search takes its share of what is left.
    const fn may_compare(&self) -> bool {
        self.compared < STEPS_OF_A_BATCH
    }

    fn fewest_options(&mut self, most: Option<usize>) -> Option<Vec<usize>> {
        let mut best = self.search(most.unwrap_or_else(|| self.regions()))?;
        while let Some(fewer) = best.len().checked_sub(1) {
            let Some(found) = self.search(fewer) else { break };
            best = found;
        }
        Some(best)
    }

    /// The smallest set of loads found for all of these DAGs; empty if there is none.
    pub(crate) fn loads(&mut self, wanted: &[&PendingDag]) -> Vec<(RegionId, &'a PhysicalChain)> {
        let enough = self.need(wanted).then(|| self.fewest_options(None)).flatten();
        let best = enough.unwrap_or_default();
        let mut next = vec![0; self.places.len()];
        let region = |item: usize| {
            let item = &self.options[item];
            let at = &mut next[item.place];
            *at += 1;
            (self.places[item.place].regions[*at - 1], item.chain)
        };
        best.into_iter().map(region).collect()
    }

    /// Sums up demands; `false` if the ingress or the egress is too small for them.
    fn need(&mut self, wanted: &[&PendingDag]) -> bool {
        let none = || vec![0; self.keys.len()];
        let mut needed =
            NtCapacity { public: none(), own: self.owners.iter().map(|_| none()).collect() };
        let mut total = 0u64;
        for PendingDag { demand, .. } in wanted.iter().copied() {
            let owner = self.owners.iter().position(|owner| *owner == demand.tenant);
            needed.add(owner, &demand.nts);
            total = total.saturating_add(demand.kbps);
        }
        self.needed = needed;
        let ledger = self.ledger;
        total <= kbps(ledger.ingress_residual()) && total <= kbps(ledger.egress_residual())
    }

    /// Missing bandwidth of each NT.
    fn shorts(&self) -> Vec<u64> {
        (0..self.keys.len())
            .map(|nt| {
                let own = self.needed.own.iter().zip(&self.pool.own);
                let beyond = own.map(|(needed, pool)| needed[nt].saturating_sub(pool[nt]));
                let needed = beyond.fold(self.needed.public[nt], u64::saturating_add);
                needed.saturating_sub(self.pool.public[nt])
            })
            .collect()
    }

    fn search(&mut self, most: usize) -> Option<Vec<usize>> {
        self.steps = STEPS_MAX;
        let mut chosen = Vec::new();
        let mut banned = vec![false; self.options.len()];
        let mut left: Vec<usize> = self.places.iter().map(|place| place.regions.len()).collect();
        let found = self.extend(most, &mut chosen, &mut banned, &mut left);
        self.compared = self.compared.saturating_add(STEPS_MAX - self.steps);
        for item in chosen.iter().rev() {
            self.take_back(*item, &mut left);
        }
        found.then_some(chosen)
    }

    fn extend(
        &mut self,
        most: usize,
        chosen: &mut Vec<usize>,
        banned: &mut Vec<bool>,
        left: &mut Vec<usize>,
    ) -> bool {
        if self.steps == 0 {
            return false;
        }
        self.steps -= 1;
        let shorts = self.shorts();
        if shorts.iter().all(|short| *short == 0) {
            return true;
        }
        let Some(branches) = self.branches(&shorts, most - chosen.len(), banned, left) else {
            return false;
        };
        let mut tried = Vec::new();
        for item in branches {
            self.take(item, left);
            chosen.push(item);
            if self.extend(most, chosen, banned, left) {
                return true;
            }
            chosen.pop();
            self.take_back(item, left);
            banned[item] = true;
            tried.push(item);
        }
        tried.into_iter().for_each(|item| banned[item] = false);
        false
    }

    fn take(&mut self, item: usize, left: &mut [usize]) {
        let (item, pool) = (&self.options[item], &mut self.pool);
        let place = &self.places[item.place];
        left[item.place] -= 1;
        pool.remove(place.owner, &place.loses);
        pool.add(item.owner, &item.serves);
    }

    fn take_back(&mut self, item: usize, left: &mut [usize]) {
        let (item, pool) = (&self.options[item], &mut self.pool);
        let place = &self.places[item.place];
        left[item.place] += 1;
        pool.remove(item.owner, &item.serves);
        pool.add(place.owner, &place.loses);
    }

    /// Whether some DAG that needs it may load it.
    fn may_be_loaded(&self, item: &LoadOption<'_>) -> bool {
        let needs = |nt: usize, tenant: usize| self.needed.own[tenant][nt] > 0;
        item.loader.is_none_or(|tenant| item.serves.iter().any(|(nt, _)| needs(*nt, tenant)))
    }

    /// The options for the NT that has the fewest, the most useful first; `None`
    /// if `regions` more loads cannot suffice.
    fn branches(
        &self,
        shorts: &[u64],
        regions: usize,
        banned: &[bool],
        left: &[usize],
    ) -> Option<Vec<usize>> {
        let is_open = |item: &&usize| {
            let of = &self.options[**item];
            !banned[**item] && left[of.place] > 0 && self.may_be_loaded(of)
        };
        let mut total = 0u64;
        let mut scarcest: Option<(usize, usize)> = None;
        for (nt, short) in shorts.iter().enumerate().filter(|(_, short)| **short > 0) {
            let ways = self.holders[nt].iter().filter(is_open).count();
            if ways == 0 || short.div_ceil(self.best[nt]) > regions as u64 {
                return None;
            }
            total = total.saturating_add(self.worth(nt, *short));
            if scarcest.is_none_or(|(fewest, _)| ways < fewest) {
                scarcest = Some((ways, nt));
            }
        }
        let (_, nt) = scarcest?;
        let gain = |item: &LoadOption<'_>| -> u64 {
            item.serves.iter().map(|(nt, kbps)| self.worth(*nt, shorts[*nt].min(*kbps))).sum()
        };
        let all = (0..self.options.len()).filter(|item| is_open(&item));
        let most = all.map(|item| gain(&self.options[item])).max().unwrap_or(0);
        // Rounding down loses less than one for each NT.
        let slack = shorts.len() as u64;
        if total > (most + slack).saturating_mul(regions as u64) {
            return None;
        }
        let mut branches: Vec<usize> = self.holders[nt].iter().filter(is_open).copied().collect();
        branches.sort_by_key(|item| (std::cmp::Reverse(gain(&self.options[*item])), *item));
        Some(branches)
    }
}

/// Memory of an NT for each tenant, in bytes; all its slots say the same.
fn state_of(catalogue: &PlanCatalogue, key: NtKey) -> u64 {
    let slots = catalogue.holders(key).flat_map(|chain| &chain.slots);
    let slot = slots.into_iter().find(|slot| slot.key == key);
    slot.map_or(0, |slot| slot.memory.get())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use snic_domain::{Dag, DagSpec, NtType};

    use super::*;
    use crate::fixtures::{bitstream, catalogue, gbps, ledger, load, name, nt, nt_id, shares};

    fn chain(nts: &[&str], gbit: u64) -> Dag {
        let nts: Vec<_> = nts.iter().map(|id| nt_id(id)).collect();
        Dag::new(DagSpec::chain(&nts, gbps(gbit))).expect("a valid chain")
    }

    /// For DAGs of three tenants.
    fn provision<'a>(ledger: &'a Ledger, catalogue: &'a PlanCatalogue) -> CapacitySums<'a> {
        static TENANTS: LazyLock<[TenantId; 3]> =
            LazyLock::new(|| ["t0/x", "t1/x", "t9/x"].map(|id| name(id).tenant));
        CapacitySums::new(ledger, catalogue, &*TENANTS)
    }

    /// The demand of a DAG, if its tenant may use its NTs.
    fn pending(
        provision: &CapacitySums<'_>,
        id: &str,
        nts: &[&str],
        gbit: u64,
    ) -> Option<PendingDag> {
        let (name, dag) = (name(id), chain(nts, gbit));
        let demand = provision.demand(&PlanRequest { name: &name, dag: &dag, previous: None })?;
        Some(PendingDag { index: 0, demand, nodes: nts.len() })
    }

    fn fewest(provision: &mut CapacitySums<'_>, dags: &[(&str, &[&str], u64)]) -> Option<usize> {
        let of = |(id, nts, gbit): &(&str, &[&str], u64)| pending(provision, id, nts, *gbit);
        let wanted: Vec<PendingDag> = dags.iter().filter_map(of).collect();
        assert_eq!(wanted.len(), dags.len(), "all NTs are known");
        provision.fewest(&wanted.iter().collect::<Vec<_>>(), None)
    }

    #[test]
    fn cached_chains_are_used_before_new_loads() {
        let catalogue = catalogue("a b", &[("a", "a"), ("ab", "a b")]);
        let mut ledger = ledger(3);
        load(&mut ledger, &catalogue, 0, "a");
        ledger.hold(&name("t9/x"), shares(&[(0, 0, 4)])).expect("4 of 10");
        let mut provision = provision(&ledger, &catalogue);
        for (dags, loads) in [
            (&[("t0/x", &["a"][..], 6)][..], Some(0)),
            (&[("t0/x", &["a"], 6), ("t1/y", &["a"], 1)], Some(1)),
            (&[("t0/x", &["a", "b"], 6)], Some(1)),
            (&[("t0/x", &["a"], 26)], Some(2)),
            (&[("t0/x", &["a"], 27)], None),
            (&[("t0/x", &["b"], 21)], None),
        ] {
            assert_eq!(fewest(&mut provision, dags), loads, "{dags:?}");
        }
    }

    /// A load takes a free region first, then a victim that serves nothing known, and one that serves an NT last,
    /// wherever these regions are.
    #[test]
    fn victims_are_replaced_after_free_regions_and_useful_ones_last() {
        let mut catalogue = catalogue("a b old", &[("a", "a"), ("b", "b"), ("old", "old")]);
        for regions in [["b", "old", ""], ["old", "", "b"], ["", "b", "old"]] {
            let mut ledger = ledger(3);
            for (region, content) in (0u8..).zip(regions).filter(|(_, id)| !id.is_empty()) {
                load(&mut ledger, &catalogue, region, content);
            }
            catalogue.remove_nt(&nt_id("old"));
            let mut provision = provision(&ledger, &catalogue);
            for (gbit, expected) in [(10, &[""][..]), (20, &["", "old"]), (30, &["", "old", "b"])] {
                let wanted = pending(&provision, "t0/x", &["a"], gbit).expect("a is known");
                let loads = provision.loads(&[&wanted]);
                let replaced = loads.iter().map(|(region, _)| regions[region.index()]);
                assert_eq!(replaced.collect::<Vec<_>>(), expected, "{gbit} on {regions:?}");
            }
            catalogue.insert_nt(nt("old", 10));
        }
    }

    /// One bitstream serves four of the six NTs and needs two more beside it; two others serve
    /// three each and suffice. The search begins with an NT that depends on the NTs' keys, so the
    /// roles of the NTs rotate.
    #[test]
    fn a_first_set_of_loads_is_not_the_last_word() {
        let nts = ["a", "b", "c", "d", "e", "f"];
        for turn in 0..nts.len() {
            let of = |roles: &[usize]| -> Vec<&str> {
                roles.iter().map(|role| nts[(role + turn) % nts.len()]).collect()
            };
            let mut catalogue = catalogue(&nts.join(" "), &[]);
            let streams: [&[usize]; 5] = [&[0, 1, 3, 4], &[0, 1, 2], &[3, 4, 5], &[2], &[5]];
            for (id, roles) in ["most", "left", "right", "two", "five"].into_iter().zip(streams) {
                catalogue.insert_bitstream(bitstream(id, &of(roles).join(" ")));
            }
            let ledger = ledger(4);
            let mut provision = provision(&ledger, &catalogue);
            let dag = [("t0/x", &nts[..], 10)];
            assert_eq!(fewest(&mut provision, &dag), Some(2), "turn {turn}");
        }
    }

    /// The private bitstream of one tenant serves nobody else; what it shares others use, but cannot load.
    #[test]
    fn own_bitstreams_serve_their_owner_first() {
        let mut catalogue = catalogue("a", &[("t0.a", "a")]);
        let ledger = ledger(1);
        let card = |catalogue: &PlanCatalogue, dags: &[(&str, &[&str], u64)]| {
            fewest(&mut provision(&ledger, catalogue), dags)
        };
        let mut private = bitstream("t0.a", "a");
        private.shareable = false;
        catalogue.insert_bitstream(private);
        assert_eq!(card(&catalogue, &[("t0/x", &["a"], 4)]), Some(1));
        assert_eq!(card(&catalogue, &[("t1/x", &["a"], 4)]), None);
        assert_eq!(card(&catalogue, &[("t0/x", &["a"], 4), ("t1/x", &["a"], 4)]), None);
        catalogue.insert_bitstream(bitstream("t0.a", "a"));
        assert_eq!(card(&catalogue, &[("t1/x", &["a"], 4)]), None, "nobody loads it");
        assert_eq!(card(&catalogue, &[("t0/x", &["a"], 4), ("t1/x", &["a"], 4)]), Some(1));
        let provision = provision(&ledger, &catalogue);
        let own = |id| pending(&provision, id, &["a"], 1).expect("a is known").demand;
        let chain = PhysicalChain::new(bitstream("t0.a", "a"), &catalogue);
        assert!(provision.unlocks(&own("t0/x"), &chain));
        assert!(!provision.unlocks(&own("t1/x"), &chain));
        assert!(!provision.has_own(&own("t0/x")), "it is shared");
    }

    #[test]
    fn demands_add_up_and_unknown_nts_have_none() {
        let mut catalogue = catalogue("a b", &[("ab", "a b")]);
        catalogue.insert_nt(NtType { shareable: false, ..nt("t0.p", 10) });
        let ledger = ledger(1);
        let provision = provision(&ledger, &catalogue);
        assert!(pending(&provision, "t0/x", &["ghost"], 1).is_none());
        assert!(pending(&provision, "t1/x", &["a", "t0.p"], 1).is_none());
        assert!(pending(&provision, "t0/x", &["a", "t0.p"], 1).is_some());
        let twice = pending(&provision, "t0/x", &["a", "b", "a"], 3).expect("known").demand;
        let kbps: Vec<u64> = twice.nts.iter().map(|(_, kbps)| *kbps).collect();
        assert_eq!(kbps.iter().sum::<u64>(), 9_000_000);
        assert_eq!((kbps.len(), kbps.iter().max(), twice.kbps), (2, Some(&6_000_000), 3_000_000));
        // Three tenths of what one region serves, for each of the three nodes.
        assert_eq!(provision.weight(&twice), UNIT * 3 / 10 + UNIT * 6 / 10);
    }

    /// A tenant pays once for each NT, whatever its DAGs ask of it, and not for what it has.
    #[test]
    fn memory_is_counted_once_for_each_tenant_and_nt() {
        let mut catalogue = catalogue("b", &[]);
        catalogue.insert_nt(NtType { memory: ByteSize::from_mib(3), ..nt("m", 10) });
        catalogue.insert_bitstream(bitstream("mb", "m b"));
        let mut ledger = ledger(2);
        let mib = |ledger: &Ledger, dags: &[(&str, &str, u64)]| {
            let provision = provision(ledger, &catalogue);
            let of = |(id, nt, gbit): &(&str, &str, u64)| pending(&provision, id, &[nt], *gbit);
            let wanted: Vec<PendingDag> = dags.iter().filter_map(of).collect();
            provision.memory(&wanted.iter().collect::<Vec<_>>()) >> 20
        };
        assert_eq!(mib(&ledger, &[]), 0);
        assert_eq!(mib(&ledger, &[("t0/x", "m", 10)]), 4, "whole pages of 2");
        assert_eq!(
            mib(&ledger, &[("t0/x", "m", 6), ("t0/y", "m", 5)]),
            4,
            "two instances, one space"
        );
        assert_eq!(mib(&ledger, &[("t0/x", "m", 6), ("t1/y", "m", 4), ("t1/z", "b", 9)]), 8);
        load(&mut ledger, &catalogue, 0, "mb");
        ledger.hold(&name("t0/old"), shares(&[(0, 0, 1)])).expect("it fits");
        assert_eq!(mib(&ledger, &[("t0/x", "m", 6), ("t1/y", "m", 4)]), 4, "of t1 alone");
    }

    #[test]
    fn the_ingress_bounds_all_of_them_together() {
        let mut fast = catalogue("", &[]);
        fast.insert_nt(nt("a", 200));
        fast.insert_bitstream(bitstream("a", "a"));
        let ledger = ledger(1);
        let mut provision = provision(&ledger, &fast);
        let most = ledger.ingress_residual().get() / 1_000_000_000;
        assert_eq!(fewest(&mut provision, &[("t0/x", &["a"], most)]), Some(1));
        assert_eq!(fewest(&mut provision, &[("t0/x", &["a"], most), ("t1/x", &["a"], 1)]), None);
    }

    proptest! {
        /// Beside all choices of bitstreams for empty regions: the fewest that have what all DAGs need, and the
        /// loads that are given do have it.
        #[test]
        fn no_fewer_loads_serve_them_all(
            regions in 1usize..4,
            streams in prop::collection::vec(prop::collection::vec(0usize..3, 1..4), 1..4),
            dags in prop::collection::vec((prop::collection::vec(0usize..3, 1..3), 1u64..14), 1..4),
        ) {
            let nts = ["a", "b", "c"];
            let mut catalogue = catalogue("a b c", &[]);
            let text = |of: &[usize]| of.iter().map(|nt| nts[*nt]).collect::<Vec<_>>();
            for (id, stream) in ["x", "y", "z"].into_iter().zip(&streams) {
                catalogue.insert_bitstream(bitstream(id, &text(stream).join(" ")));
            }
            let ledger = ledger(regions);
            let mut provision = provision(&ledger, &catalogue);
            let all: Vec<PendingDag> = dags
                .iter()
                .filter_map(|(nts, gbit)| pending(&provision, "t0/x", &text(nts), *gbit))
                .collect();
            let wanted: Vec<&PendingDag> = all.iter().collect();
            let uses = |of: &[usize], nt: usize| of.iter().filter(|held| **held == nt).count() as u64;
            let is_enough = |loads: &[&[usize]]| (0..3).all(|nt| {
                let served: u64 = loads.iter().map(|stream| uses(stream, nt) * 10).sum();
                served >= dags.iter().map(|(nts, gbit)| uses(nts, nt) * gbit).sum()
            });
            // Digit by digit: which bitstream a region holds, the last digit is none.
            let kinds = streams.len() + 1;
            let choice = |number: usize| -> Vec<&[usize]> {
                let digits = (0..regions).map(|at| number / kinds.pow(at as u32) % kinds);
                digits.filter_map(|kind| streams.get(kind).map(Vec::as_slice)).collect()
            };
            let choices = (0..kinds.pow(regions as u32)).map(choice);
            let least = choices.filter(|loads| is_enough(loads)).map(|loads| loads.len()).min();
            prop_assert_eq!(provision.fewest(&wanted, None), least);
            prop_assert_eq!(provision.has_place_for(&wanted), least.is_some());
            let loads = provision.loads(&wanted);
            prop_assert_eq!(loads.len(), least.unwrap_or(0));
            let held = |chain: &PhysicalChain| ["x", "y", "z"].iter().position(|id| chain.bitstream.id.as_str() == *id);
            let given: Vec<&[usize]> =
                loads.iter().filter_map(|(_, chain)| held(chain)).map(|at| streams[at].as_slice()).collect();
            prop_assert_eq!(is_enough(&given), least.is_some());
            let mut places: Vec<RegionId> = loads.iter().map(|(region, _)| *region).collect();
            places.dedup();
            prop_assert_eq!(places.len(), loads.len(), "each region once");
            if let Some(most) = least.and_then(|least| least.checked_sub(1)) {
                prop_assert_eq!(provision.fewest(&wanted, Some(most)), None);
            }
        }
    }
}
