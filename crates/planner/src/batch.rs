//! Many DAGs at once: first the loads for all of them together, then a place for each.
//!
//! ```text
//! demands, summed up by NT ── provision ──> loads ── one DAG after the other ──> plans, in order
//!          ▲                                │ not enough regions
//!          └──── fewer DAGs ────────────────┘
//! ```
//!
//! With cuts allowed anywhere a set of DAGs has a place exactly when every NT has the bandwidth of
//! all nodes that run it (see `search`). So the loads depend on the sums alone, and a batch costs
//! little more than its DAGs one by one. Those that have something loaded that others share are
//! placed first, then the longest chains: they find whole what shorter ones would have taken pieces
//! of.

use std::cmp::Reverse;

use snic_domain::{Infeasible, RegionId};

use crate::catalogue::Chain;
use crate::plan::{Request, plan_on};
use crate::provision::{Provision, Wanted};
use crate::{Catalogue, Ledger, Plan, plan};

/// Up to so many DAGs every set of them is tried, the largest first, when not all have a place.
const EVERY_SET_MAX: usize = 10;
/// DAGs that are tried once more beside those that were chosen by size, where there are too many.
const SECOND_CHANCES: usize = 32;
/// Sets that are placed to find out whether memory is enough: some tens of milliseconds at most.
const TRIES_MAX: usize = 200;

/// Places for many DAGs.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// For each request, in their order, its plan or why it has none.
    pub results: Vec<Result<Plan, Infeasible>>,
    /// The order in which the plans are to be carried out, as indices: each is good for the ledger
    /// in which those before it are held.
    pub order: Vec<usize>,
}

impl Batch {
    /// The plans in the order in which they are to be carried out.
    pub fn plans(&self) -> impl Iterator<Item = (usize, &Plan)> {
        self.order.iter().filter_map(|at| Some((*at, self.results[*at].as_ref().ok()?)))
    }
}

/// Finds places for as many DAGs as can be, on as few new regions as can be; changes nothing. The
/// requests have different names. Those that the ledger holds already come last, as updates.
///
/// Time: O(requests × one plan), and a search for the loads whose steps are bounded.
pub fn plan_batch(ledger: &Ledger, catalogue: &Catalogue, requests: &[Request<'_>]) -> Batch {
    let mut provision = Provision::new(ledger, catalogue);
    let mut wanted: Vec<Wanted> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let is_new = request.previous.is_none() && ledger.held(request.name).is_none();
        if let Some(demand) = is_new.then(|| provision.demand(request)).flatten() {
            wanted.push(Wanted { index, demand, nodes: request.dag.nodes().len() });
        }
    }
    let card = (ledger, catalogue);
    if requests.len() <= EVERY_SET_MAX && wanted.iter().any(|w| w.demand.has_memory) {
        return best_tried(card, requests, &mut provision, wanted);
    }
    let chosen = choose(&mut provision, wanted);
    let batch = place_first(card, requests, &mut provision, &chosen.iter().collect::<Vec<_>>());
    if batch.order.len() == requests.len() || requests.len() > EVERY_SET_MAX {
        return batch;
    }
    // Sums know nothing of rows, nor whether a tenant's DAG will really have loaded what others are
    // to share. For few DAGs both are tried.
    let single = one_by_one(card, requests);
    if single.order.len() > batch.order.len() { single } else { batch }
}

/// Each for itself, in their order.
fn one_by_one(card: (&Ledger, &Catalogue), requests: &[Request<'_>]) -> Batch {
    carry_out(card, requests, (&[], false), Vec::new())
}

/// Places these with the fewest loads for all of them, and then the others.
fn place_first(
    card: (&Ledger, &Catalogue),
    requests: &[Request<'_>],
    provision: &mut Provision<'_>,
    chosen: &[&Wanted],
) -> Batch {
    let loads = provision.loads(chosen);
    let mut order: Vec<&Wanted> = chosen.to_vec();
    order.sort_by_key(|w| {
        let opens = loads.iter().any(|(_, chain)| provision.opens(&w.demand, chain));
        let has_own = provision.has_own(&w.demand);
        let size = (Reverse(w.nodes), Reverse(w.demand.kbps));
        (Reverse(opens), has_own, size, w.index)
    });
    let first: Vec<usize> = order.iter().map(|wanted| wanted.index).collect();
    let is_thrifty = order.iter().any(|wanted| wanted.demand.has_memory);
    carry_out(card, requests, (&first, is_thrifty), loads)
}

/// Memory is no sum: each tenant pays for each NT instance that it uses. So where NTs keep state,
/// the sets that the sums allow are placed, until none is left that could be better than the best:
/// more DAGs, or as many on fewer new regions.
fn best_tried(
    card: (&Ledger, &Catalogue),
    requests: &[Request<'_>],
    provision: &mut Provision<'_>,
    mut wanted: Vec<Wanted>,
) -> Batch {
    let new_regions =
        |batch: &Batch| batch.plans().map(|(_, plan)| plan.loads.len()).sum::<usize>();
    wanted.sort_by_key(|w| (provision.weight(&w.demand), w.index));
    let others = requests.len() - wanted.len();
    let mut best = one_by_one(card, requests);
    let mut tries = 0;
    for set in sets(wanted.len()) {
        let most = set.count_ones() as usize + others;
        let has_nothing_to_gain = most == best.order.len() && new_regions(&best) == 0;
        if most < best.order.len() || has_nothing_to_gain || tries == TRIES_MAX {
            break;
        }
        let members = members(&wanted, set);
        let fewer = (most == best.order.len()).then(|| new_regions(&best).saturating_sub(1));
        let has_memory = provision.memory_min(&members) <= card.0.memory_residual().get();
        if !has_memory || provision.fewest(&members, fewer).is_none() {
            continue;
        }
        tries += 1;
        let batch = place_first(card, requests, provision, &members);
        let rank = |batch: &Batch| (batch.order.len(), Reverse(new_regions(batch)));
        if rank(&batch) > rank(&best) {
            best = batch;
        }
    }
    best
}

/// All sets of so many, the largest first.
fn sets(count: usize) -> Vec<u32> {
    let mut sets: Vec<u32> = (0..1u32 << count).collect();
    sets.sort_by_key(|set| (Reverse(set.count_ones()), *set));
    sets
}

fn members(wanted: &[Wanted], set: u32) -> Vec<&Wanted> {
    let all = wanted.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
    all.map(|(_, wanted)| wanted).collect()
}

/// Places the `first` and then the others, each on what those before it left.
fn carry_out(
    (ledger, catalogue): (&Ledger, &Catalogue),
    requests: &[Request<'_>],
    (first, is_thrifty): (&[usize], bool),
    loads: Vec<(RegionId, &Chain)>,
) -> Batch {
    let mut batch = Batch { results: Vec::with_capacity(requests.len()), order: Vec::new() };
    let mut is_first = vec![false; requests.len()];
    first.iter().for_each(|index| is_first[*index] = true);
    let rest = (0..requests.len()).filter(|index| !is_first[*index]);
    let mut scratch = Scratch { ledger: ledger.clone(), catalogue, loads, is_thrifty };
    let mut results: Vec<Option<Result<Plan, Infeasible>>> = vec![None; requests.len()];
    for index in first.iter().copied().chain(rest) {
        let result = scratch.place(&requests[index]);
        if result.is_ok() {
            batch.order.push(index);
        }
        results[index] = Some(result);
    }
    batch.results.extend(results.into_iter().flatten());
    batch
}

/// The DAGs that have a place together: as many as can be.
fn choose(provision: &mut Provision<'_>, mut wanted: Vec<Wanted>) -> Vec<Wanted> {
    if provision.is_enough(&wanted.iter().collect::<Vec<_>>()) {
        return wanted;
    }
    wanted.sort_by_key(|w| (provision.weight(&w.demand), w.index));
    if wanted.len() <= EVERY_SET_MAX {
        return largest_set(provision, wanted);
    }
    let fits = |provision: &mut Provision<'_>, count: usize| {
        provision.is_enough(&wanted[..count].iter().collect::<Vec<_>>())
    };
    let (mut most, mut over) = (0, wanted.len());
    while over - most > 1 {
        let middle = most.midpoint(over);
        if fits(provision, middle) { most = middle } else { over = middle }
    }
    let rest = wanted.split_off(most);
    for more in rest.into_iter().take(SECOND_CHANCES) {
        wanted.push(more);
        if !provision.is_enough(&wanted.iter().collect::<Vec<_>>()) {
            wanted.pop();
        }
    }
    wanted
}

/// The largest set with a place; among those of a size the one that takes the fewest loads, and
/// then the one with the lightest DAGs.
fn largest_set(provision: &mut Provision<'_>, wanted: Vec<Wanted>) -> Vec<Wanted> {
    let mut chosen: Option<(u32, usize)> = None;
    for set in sets(wanted.len()) {
        let most = match chosen {
            Some((best, _)) if best.count_ones() > set.count_ones() => break,
            Some((_, 0)) => break,
            Some((_, loads)) => Some(loads - 1),
            None => None,
        };
        if let Some(loads) = provision.fewest(&members(&wanted, set), most) {
            chosen = Some((set, loads));
        }
    }
    let chosen = chosen.map_or(0, |(set, _)| set);
    (0u32..).zip(wanted).filter(|(i, _)| chosen >> i & 1 == 1).map(|(_, wanted)| wanted).collect()
}

/// The card as it is when the plans before are carried out.
struct Scratch<'a> {
    ledger: Ledger,
    catalogue: &'a Catalogue,
    /// What is still to be loaded.
    loads: Vec<(RegionId, &'a Chain)>,
    is_thrifty: bool,
}

impl Scratch<'_> {
    fn place(&mut self, request: &Request<'_>) -> Result<Plan, Infeasible> {
        let tenant = &request.name.tenant;
        // A DAG that may not have it loaded may have shared what the region holds meanwhile.
        let usable = |(region, chain): &&(RegionId, &Chain)| {
            chain.bitstream.is_loadable_by(tenant) && self.ledger.is_unused(*region)
        };
        let loads: Vec<_> = self.loads.iter().filter(usable).copied().collect();
        let intended = plan_on(&self.ledger, self.catalogue, request, &loads, self.is_thrifty);
        let result = match intended {
            Some(plan) => Ok(plan),
            None => plan(&self.ledger, self.catalogue, request),
        }?;
        for load in &result.loads {
            self.loads.retain(|(region, _)| *region != load.region);
            let content = self.catalogue.bitstream(&load.bitstream);
            let unused = self.ledger.set_content(load.region, content, self.catalogue);
            debug_assert!(unused.is_ok(), "a plan loads what nobody uses: {unused:?}");
        }
        let held = self.ledger.hold(request.name, result.reservation.clone());
        debug_assert!(held.is_ok(), "a plan never overbooks: {held:?}");
        Ok(result)
    }
}
