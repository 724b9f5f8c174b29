//! Places many DAGs at once: first the loads for all of them together, then a placement for each.
//!
//! ```text
//! demands, summed by NT ── provision ──> loads ── DAG by DAG ──> plans, in order
//!          ▲                          │ not enough regions
//!          └──── fewer DAGs ──────────┘
//! ```
//!
//! If chains may be cut anywhere, a set of DAGs can be placed exactly if every NT has the bandwidth of
//! all nodes that run it (see `search`). So the loads depend on sums alone, and a batch costs little
//! more than its DAGs one by one. DAGs whose tenant alone may load a bitstream that others share are
//! placed first, then the longest chains, so that shorter chains do not fragment what they need.

use std::cmp::Reverse;

use snic_domain::{Infeasible, RegionId};

use crate::catalogue::PhysicalChain;
use crate::plan::plan_on;
use crate::provision::{CapacitySums, PendingDag};
use crate::request::PlanRequest;
use crate::{Ledger, Plan, PlanCatalogue, plan};

/// Up to this number of DAGs, every subset is tried, the largest first, if not all of them fit.
const EVERY_SET_MAX: usize = 10;
/// Number of DAGs that are tried again beside those that were chosen by size, in larger batches.
const SECOND_CHANCES: usize = 32;
/// Most subsets that are placed to find out whether memory suffices: at most some tens of milliseconds.
const TRIES_MAX: usize = 200;

/// Plans for many DAGs.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanBatch {
    /// For each request, in order, its plan or the reason why there is none.
    pub results: Vec<Result<Plan, Infeasible>>,
    /// The order in which the plans must be carried out, as indices of requests: each plan is valid
    /// for the ledger that holds those before it.
    pub order: Vec<usize>,
}

impl PlanBatch {
    /// The plans in the order in which they must be carried out.
    pub fn plans(&self) -> impl Iterator<Item = (usize, &Plan)> {
        self.order.iter().filter_map(|at| Some((*at, self.results[*at].as_ref().ok()?)))
    }
}

/// Places as many DAGs as possible on as few new regions as possible; changes nothing. The requests
/// have distinct names. DAGs that the ledger holds already are updates and come last.
///
/// Time: O(requests × one plan), plus a search for the loads with a bounded number of steps.
pub fn plan_batch(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    requests: &[PlanRequest<'_>],
) -> PlanBatch {
    let tenants = requests.iter().map(|request| &request.name.tenant);
    let mut provision = CapacitySums::new(ledger, catalogue, tenants);
    let mut wanted: Vec<PendingDag> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let is_new = request.previous.is_none() && ledger.held(request.name).is_none();
        if let Some(demand) = is_new.then(|| provision.demand(request)).flatten() {
            wanted.push(PendingDag { index, demand, nodes: request.dag.nodes().len() });
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
    // Sums ignore table rows, and whether the tenant that may load a shared bitstream really does. Small
    // batches therefore try both ways.
    let single = one_by_one(card, requests);
    if single.order.len() > batch.order.len() { single } else { batch }
}

/// Places each DAG by itself, in order.
fn one_by_one(card: (&Ledger, &PlanCatalogue), requests: &[PlanRequest<'_>]) -> PlanBatch {
    carry_out(card, requests, &[], Vec::new())
}

/// Places the chosen DAGs with the fewest loads for all of them, and then the others.
fn place_first(
    card: (&Ledger, &PlanCatalogue),
    requests: &[PlanRequest<'_>],
    provision: &mut CapacitySums<'_>,
    chosen: &[&PendingDag],
) -> PlanBatch {
    let loads = provision.loads(chosen);
    let mut order: Vec<&PendingDag> = chosen.to_vec();
    order.sort_by_key(|w| {
        let unlocks = loads.iter().any(|(_, chain)| provision.unlocks(&w.demand, chain));
        let has_own = provision.has_own(&w.demand);
        let size = (Reverse(w.nodes), Reverse(w.demand.kbps));
        (Reverse(unlocks), has_own, size, w.index)
    });
    let first: Vec<usize> = order.iter().map(|wanted| wanted.index).collect();
    carry_out(card, requests, &first, loads)
}

/// Memory does not follow from sums: DAGs of a tenant share that of an NT. So if NTs keep state, the
/// subsets that the sums allow are placed until none is left that could be better than the
/// best: more DAGs, or as many on fewer new regions.
fn best_tried(
    card: (&Ledger, &PlanCatalogue),
    requests: &[PlanRequest<'_>],
    provision: &mut CapacitySums<'_>,
    mut wanted: Vec<PendingDag>,
) -> PlanBatch {
    let new_regions =
        |batch: &PlanBatch| batch.plans().map(|(_, plan)| plan.loads.len()).sum::<usize>();
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
        let has_memory = provision.memory(&members) <= card.0.memory_residual().get();
        if !has_memory || provision.fewest(&members, fewer).is_none() {
            continue;
        }
        tries += 1;
        let batch = place_first(card, requests, provision, &members);
        let rank = |batch: &PlanBatch| (batch.order.len(), Reverse(new_regions(batch)));
        if rank(&batch) > rank(&best) {
            best = batch;
        }
    }
    best
}

/// All subsets of `count` DAGs, the largest first.
fn sets(count: usize) -> Vec<u32> {
    let mut sets: Vec<u32> = (0..1u32 << count).collect();
    sets.sort_by_key(|set| (Reverse(set.count_ones()), *set));
    sets
}

fn members(wanted: &[PendingDag], set: u32) -> Vec<&PendingDag> {
    let all = wanted.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
    all.map(|(_, wanted)| wanted).collect()
}

/// Places the `first` and then the others, each on the capacity that those before it left.
fn carry_out(
    (ledger, catalogue): (&Ledger, &PlanCatalogue),
    requests: &[PlanRequest<'_>],
    first: &[usize],
    loads: Vec<(RegionId, &PhysicalChain)>,
) -> PlanBatch {
    let mut batch = PlanBatch { results: Vec::with_capacity(requests.len()), order: Vec::new() };
    let mut is_first = vec![false; requests.len()];
    first.iter().for_each(|index| is_first[*index] = true);
    let rest = (0..requests.len()).filter(|index| !is_first[*index]);
    let mut scratch = Scratch { ledger: ledger.clone(), catalogue, loads };
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

/// As many DAGs as can be placed together.
fn choose(provision: &mut CapacitySums<'_>, mut wanted: Vec<PendingDag>) -> Vec<PendingDag> {
    if provision.has_place_for(&wanted.iter().collect::<Vec<_>>()) {
        return wanted;
    }
    wanted.sort_by_key(|w| (provision.weight(&w.demand), w.index));
    if wanted.len() <= EVERY_SET_MAX {
        return largest_set(provision, wanted);
    }
    let fits = |provision: &mut CapacitySums<'_>, count: usize| {
        provision.has_place_for(&wanted[..count].iter().collect::<Vec<_>>())
    };
    let (mut most, mut over) = (0, wanted.len());
    while over - most > 1 {
        let middle = most.midpoint(over);
        if fits(provision, middle) { most = middle } else { over = middle }
    }
    let rest = wanted.split_off(most);
    for more in rest.into_iter().take(SECOND_CHANCES) {
        wanted.push(more);
        if !provision.has_place_for(&wanted.iter().collect::<Vec<_>>()) {
            wanted.pop();
        }
    }
    wanted
}

/// The largest subset that can be placed; among subsets of one size the one with the fewest loads, then
/// the one with the smallest DAGs.
fn largest_set(provision: &mut CapacitySums<'_>, wanted: Vec<PendingDag>) -> Vec<PendingDag> {
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

/// The card after the earlier plans of the batch.
struct Scratch<'a> {
    ledger: Ledger,
    catalogue: &'a PlanCatalogue,
    /// Loads that are still to be made.
    loads: Vec<(RegionId, &'a PhysicalChain)>,
}

impl Scratch<'_> {
    fn place(&mut self, request: &PlanRequest<'_>) -> Result<Plan, Infeasible> {
        let tenant = &request.name.tenant;
        // Meanwhile a DAG whose tenant may not load it may share the current content of the region.
        let usable = |(region, chain): &&(RegionId, &PhysicalChain)| {
            chain.is_loadable_by(tenant) && self.ledger.is_unused(*region)
        };
        let loads: Vec<_> = self.loads.iter().filter(usable).copied().collect();
        let intended = plan_on(&self.ledger, self.catalogue, request, &loads);
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
