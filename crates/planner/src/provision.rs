//! Which bitstreams to load so that no NT is short of what many DAGs need of it: a covering problem
//! over sums, whatever the number of DAGs.
//!
//! Depth first: while an NT is short, one of the loads that hold it must come; the most useful is
//! tried first, and what was tried is not tried again beside others (loads are sets). A bound cuts
//! what cannot do with the regions that are left. What a tenant does not share is served to it alone:
//! its demand is met from that first, since nobody else could use it. What it shares serves all, but
//! only its own DAGs have it loaded.

use std::collections::BTreeMap;

use snic_domain::limits::REGIONS_MAX;
use snic_domain::{ByteSize, RegionId, Slot, TenantId};

use crate::candidates::fits_region;
use crate::catalogue::{Chain, NtKey};
use crate::ledger::RegionCondition;
use crate::plan::Request;
use crate::view::kbps;
use crate::{Catalogue, Ledger};

/// Steps of one search for loads; some milliseconds at most.
const STEPS_MAX: u32 = 4_000;
/// One region's worth of an NT, in the bounds: large enough that rounding does not matter.
const UNIT: u64 = 1 << 20;

/// What a DAG needs of each NT, in kbit/s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) tenant: TenantId,
    /// Its bandwidth at ingress and egress.
    pub(crate) kbps: u64,
    /// By number of the NT, each once.
    nts: Vec<(usize, u64)>,
    /// Whether one of them keeps state on the card.
    pub(crate) has_memory: bool,
}

/// A DAG that wants a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) index: usize,
    pub(crate) demand: Demand,
    pub(crate) nodes: usize,
}

/// One load that is possible.
#[derive(Debug)]
struct Item<'a> {
    chain: &'a Chain,
    place: usize,
    /// Whose it is, if only they can use it.
    owner: Option<usize>,
    /// Who can have it loaded, if not everybody.
    loader: Option<usize>,
    /// What it serves, by number of the NT.
    serves: Vec<(usize, u64)>,
}

/// Regions that are alike for a load.
#[derive(Debug)]
struct Place {
    regions: Vec<RegionId>,
    /// What a victim serves until it is replaced, and whose it is; then there is one region.
    loses: Vec<(usize, u64)>,
    owner: Option<usize>,
}

/// What there is of each NT: for all, and for single tenants.
#[derive(Debug, Clone, Default)]
struct Pool {
    public: Vec<u64>,
    own: Vec<Vec<u64>>,
}

impl Pool {
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
pub(crate) struct Provision<'a> {
    ledger: &'a Ledger,
    catalogue: &'a Catalogue,
    keys: Vec<NtKey>,
    /// Of each NT, what an instance keeps for a tenant, in bytes, and serves, in kbit/s.
    states: Vec<(u64, u64)>,
    /// Tenants with bitstreams that only they can use, or have loaded.
    owners: Vec<TenantId>,
    items: Vec<Item<'a>>,
    /// The items that serve each NT.
    holders: Vec<Vec<usize>>,
    /// The most that one item serves of each NT.
    best: Vec<u64>,
    places: Vec<Place>,
    pool: Pool,
    /// What the DAGs in question need: of all others than the owners, and of each owner.
    needed: Pool,
    steps: u32,
}

impl<'a> Provision<'a> {
    pub(crate) fn new(ledger: &'a Ledger, catalogue: &'a Catalogue) -> Self {
        let keys: Vec<NtKey> = catalogue.nt_keys().collect();
        let mut provision = Self {
            ledger,
            catalogue,
            owners: Vec::new(),
            items: Vec::new(),
            holders: vec![Vec::new(); keys.len()],
            best: vec![0; keys.len()],
            places: Vec::new(),
            pool: Pool { public: vec![0; keys.len()], own: Vec::new() },
            needed: Pool::default(),
            steps: 0,
            states: Vec::new(),
            keys,
        };
        provision.states = provision.keys.iter().map(|key| state_of(catalogue, *key)).collect();
        provision.open_regions();
        provision.open_items();
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

    /// Sums up what the slots of a chain serve.
    fn serves(&self, chain: &Chain, free: impl Fn(usize) -> u64) -> Vec<(usize, u64)> {
        let mut serves: BTreeMap<usize, u64> = BTreeMap::new();
        for (slot, held) in chain.slots.iter().enumerate() {
            if let Some(nt) = self.number(held.key) {
                *serves.entry(nt).or_default() += free(slot);
            }
        }
        serves.into_iter().filter(|(_, kbps)| *kbps > 0).collect()
    }

    fn open_regions(&mut self) {
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
        let ledger = self.ledger;
        let of = |r: RegionId| (ledger.profile().region(r), ledger.chain(r).is_some());
        let alike = self.places.iter_mut().find(|place| {
            loses.is_empty() && place.loses.is_empty() && of(place.regions[0]) == of(region)
        });
        match alike {
            Some(place) => place.regions.push(region),
            None => self.places.push(Place { regions: vec![region], loses, owner }),
        }
    }

    fn open_items(&mut self) {
        let (catalogue, ledger) = (self.catalogue, self.ledger);
        for chain in catalogue.chains() {
            let serves = self.serves(chain, |slot| kbps(chain.slots[slot].bandwidth_max));
            let is_built = chain.area.is_some()
                && chain.bitstream.card_model == ledger.profile().model
                && !serves.is_empty();
            if !is_built {
                continue;
            }
            let loader = chain.bitstream.id.owner().map(|tenant| self.owner(&tenant));
            let owner = loader.filter(|_| !chain.bitstream.shareable);
            for place in 0..self.places.len() {
                let region = ledger.profile().region(self.places[place].regions[0]);
                if region.is_some_and(|region| fits_region(region, chain)) {
                    for (nt, kbps) in &serves {
                        self.holders[*nt].push(self.items.len());
                        self.best[*nt] = self.best[*nt].max(*kbps);
                    }
                    self.items.push(Item { chain, place, owner, loader, serves: serves.clone() });
                }
            }
        }
    }

    /// What a request needs; `None` where its tenant may not use one of its NTs.
    pub(crate) fn demand(&self, request: &Request<'_>) -> Option<Demand> {
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
        Some(Demand { tenant: tenant.clone(), kbps, nts, has_memory })
    }

    /// Whether a tenant has bitstreams that nobody else can use: then it uses those.
    pub(crate) fn has_own(&self, demand: &Demand) -> bool {
        let is_own = |owner: Option<usize>| owner.is_some_and(|o| self.owners[o] == demand.tenant);
        self.items.iter().any(|item| is_own(item.owner))
            || self.places.iter().any(|place| is_own(place.owner))
    }

    /// Whether a demand has a bitstream loaded that others share, but could not have loaded.
    pub(crate) fn opens(&self, demand: &Demand, chain: &Chain) -> bool {
        chain.bitstream.shareable
            && chain.bitstream.id.is_owned_by(&demand.tenant)
            && demand.nts.iter().any(|(nt, _)| chain.holds(&[self.keys[*nt]]))
    }

    /// The least memory that these take, in bytes: each tenant pays for as many instances of an NT as
    /// serve its demand. Nothing for those that may have paid already.
    pub(crate) fn memory_min(&self, wanted: &[&Wanted]) -> u64 {
        let mut demands: BTreeMap<(&TenantId, usize), u64> = BTreeMap::new();
        for Wanted { demand, .. } in wanted.iter().filter(|wanted| wanted.demand.has_memory) {
            for (nt, kbps) in &demand.nts {
                *demands.entry((&demand.tenant, *nt)).or_default() += kbps;
            }
        }
        let is_new =
            |tenant: &TenantId| self.ledger.reservations().all(|(name, _)| name.tenant != *tenant);
        let of = |((tenant, nt), demand): ((&TenantId, usize), u64)| {
            let (memory, most) = self.states[nt];
            let instances = demand.div_ceil(most.max(1));
            if memory > 0 && is_new(tenant) { memory.saturating_mul(instances) } else { 0 }
        };
        demands.into_iter().map(of).fold(0, u64::saturating_add)
    }

    /// How much of the card a demand is worth, at least: by the loads that serve most of each NT.
    pub(crate) fn weight(&self, demand: &Demand) -> u64 {
        demand.nts.iter().map(|(nt, kbps)| self.worth(*nt, *kbps)).sum()
    }

    fn worth(&self, nt: usize, kbps: u64) -> u64 {
        let worth = u128::from(kbps) * u128::from(UNIT) / u128::from(self.best[nt].max(1));
        u64::try_from(worth).unwrap_or(u64::MAX / 1_024).min(u64::MAX / 1_024)
    }

    fn regions(&self) -> usize {
        self.places.iter().map(|place| place.regions.len()).sum()
    }

    /// Whether some loads give all of these what they need.
    pub(crate) fn is_enough(&mut self, wanted: &[&Wanted]) -> bool {
        self.need(wanted) && self.search(self.regions()).is_some()
    }

    /// The fewest loads that were found for all of these, if they are at most `most`.
    pub(crate) fn fewest(&mut self, wanted: &[&Wanted], most: Option<usize>) -> Option<usize> {
        let enough = self.need(wanted).then(|| self.fewest_items(most)).flatten();
        enough.map(|items| items.len())
    }

    fn fewest_items(&mut self, most: Option<usize>) -> Option<Vec<usize>> {
        let mut best = self.search(most.unwrap_or_else(|| self.regions()))?;
        while let Some(fewer) = best.len().checked_sub(1) {
            let Some(found) = self.search(fewer) else { break };
            best = found;
        }
        Some(best)
    }

    /// The fewest loads that were found for all of these; none where there are none.
    pub(crate) fn loads(&mut self, wanted: &[&Wanted]) -> Vec<(RegionId, &'a Chain)> {
        let enough = self.need(wanted).then(|| self.fewest_items(None)).flatten();
        let best = enough.unwrap_or_default();
        let mut next = vec![0; self.places.len()];
        let region = |item: usize| {
            let item = &self.items[item];
            let at = &mut next[item.place];
            *at += 1;
            (self.places[item.place].regions[*at - 1], item.chain)
        };
        best.into_iter().map(region).collect()
    }

    /// Sums up demands; `false` where ingress or egress are too small for them.
    fn need(&mut self, wanted: &[&Wanted]) -> bool {
        let none = || vec![0; self.keys.len()];
        let mut needed = Pool { public: none(), own: self.owners.iter().map(|_| none()).collect() };
        let mut total = 0u64;
        for Wanted { demand, .. } in wanted.iter().copied() {
            let owner = self.owners.iter().position(|owner| *owner == demand.tenant);
            needed.add(owner, &demand.nts);
            total = total.saturating_add(demand.kbps);
        }
        self.needed = needed;
        let ledger = self.ledger;
        total <= kbps(ledger.ingress_residual()) && total <= kbps(ledger.egress_residual())
    }

    /// What each NT is short of.
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
        let mut banned = vec![false; self.items.len()];
        let mut left: Vec<usize> = self.places.iter().map(|place| place.regions.len()).collect();
        let found = self.extend(most, &mut chosen, &mut banned, &mut left);
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
        let Some(tries) = self.tries(&shorts, most - chosen.len(), banned, left) else {
            return false;
        };
        let mut tried = Vec::new();
        for item in tries {
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
        let (item, pool) = (&self.items[item], &mut self.pool);
        let place = &self.places[item.place];
        left[item.place] -= 1;
        pool.remove(place.owner, &place.loses);
        pool.add(item.owner, &item.serves);
    }

    fn take_back(&mut self, item: usize, left: &mut [usize]) {
        let (item, pool) = (&self.items[item], &mut self.pool);
        let place = &self.places[item.place];
        left[item.place] += 1;
        pool.remove(item.owner, &item.serves);
        pool.add(place.owner, &place.loses);
    }

    /// Whether a DAG that needs it may have it loaded.
    fn may_be_loaded(&self, item: &Item<'_>) -> bool {
        let needs = |nt: usize, tenant: usize| self.needed.own[tenant][nt] > 0;
        item.loader.is_none_or(|tenant| item.serves.iter().any(|(nt, _)| needs(*nt, tenant)))
    }

    /// The items that serve the NT with the fewest ways to serve it, the most useful first; `None`
    /// where `regions` more loads cannot be enough.
    fn tries(
        &self,
        shorts: &[u64],
        regions: usize,
        banned: &[bool],
        left: &[usize],
    ) -> Option<Vec<usize>> {
        let is_open = |item: &&usize| {
            let of = &self.items[**item];
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
        let gain = |item: &Item<'_>| -> u64 {
            item.serves.iter().map(|(nt, kbps)| self.worth(*nt, shorts[*nt].min(*kbps))).sum()
        };
        let all = (0..self.items.len()).filter(|item| is_open(&item));
        let most = all.map(|item| gain(&self.items[item])).max().unwrap_or(0);
        // Rounding down loses less than one for each NT.
        let slack = shorts.len() as u64;
        if total > (most + slack).saturating_mul(regions as u64) {
            return None;
        }
        let mut tries: Vec<usize> = self.holders[nt].iter().filter(is_open).copied().collect();
        tries.sort_by_key(|item| (std::cmp::Reverse(gain(&self.items[*item])), *item));
        Some(tries)
    }
}

/// See [`Provision::memory_min`]; all slots of an NT are alike.
fn state_of(catalogue: &Catalogue, key: NtKey) -> (u64, u64) {
    let slots = catalogue.holders(key).iter().flat_map(|chain| &chain.slots);
    let slot = slots.into_iter().find(|slot| slot.key == key);
    slot.map_or((0, 0), |slot| (slot.memory.get(), kbps(slot.bandwidth_max)))
}
