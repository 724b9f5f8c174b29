//! The search for a placement: depth first over cuts, shared chains and loads, with bounds and a budget.
//!
//! ```text
//! no NT is short                         loaded chains suffice: as many cuts as necessary
//! otherwise, or where passes come first  with loads
//!   for cuts = fewest possible, …
//!     for each chain, for each part of it  the longest part first
//!       share: one region, widest first; else several, the fewest
//!       load:  one more candidate, then share again, the new load included
//!   fewer loads                          where regions come first, cuts make up for them
//! ```
//!
//! A load only makes a region shareable, so parts, branches and instances of a DAG use loads made for each
//! other without a special case. The first solution is usually the best, since every list is sorted by the
//! objective. The rest of the tree is searched within a small budget, and branches that are already no
//! better than the best solution are cut.
//!
//! Completeness: if every node is a part of its own, a placement depends only on one sum for each NT, and
//! only the loads must be chosen. [`Search::cover`] does this: while an NT is short, one of the remaining
//! loads must contain it. So it finds a set of loads if one exists; if none exists, no further search
//! starts. All budgets count steps, never time: the same input gives the same plan everywhere.

mod rows;

use std::collections::BTreeMap;
use std::rc::Rc;

use smallvec::SmallVec;
use snic_domain::RegionId;
use snic_domain::limits::{CHAIN_SLOTS_MAX, REGIONS_MAX};

use crate::candidates::{Candidate, CoverResult, area_of, candidates, unused_permille};
use crate::catalogue::PhysicalChain;
use crate::form::Staging;
use crate::nt_key::NtKey;
use crate::order::Order;
use crate::shares;
use crate::stay::{PacketOccupancy, Transit};
use crate::view::{NtSequence, RegionPath, View};

/// Steps of one round until a first solution; after that, a solution with more cuts is accepted.
const STEPS_TO_FIND: u32 = 300;
/// Steps to find loads with which every node could be a part of its own: enough for all sets of loads of a
/// few regions and bitstreams, at most some milliseconds.
const STEPS_TO_COVER: u32 = 3_000;
/// Steps after a first solution, to find a better one.
const STEPS_TO_IMPROVE: u32 = 200;
/// Rounds with more than the fewest possible cuts, before every node becomes a part of its own.
const ROUNDS_MAX: usize = 6;

/// Consecutive nodes of a chain, in one stage, with the paths that serve them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainPart {
    /// Index among the staging's chains, stage by stage.
    pub(crate) chain: usize,
    /// First node, as an index into the chain.
    pub(crate) start: usize,
    /// One past the last.
    pub(crate) end: usize,
    pub(crate) paths: SmallVec<[RegionPath; 2]>,
}

/// A region to be loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedLoad<'a> {
    pub(crate) region: u8,
    pub(crate) chain: &'a PhysicalChain,
    pub(crate) victim: bool,
    pub(crate) unused: u32,
}

/// The objective, lower is better: new regions, replaced victims and passes in the job's [`Order`], unused
/// area, then headroom (more is better). No plan interrupts a DAG, because regions in use are never loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) loads: usize,
    pub(crate) victims: usize,
    pub(crate) passes: usize,
    pub(crate) unused: u32,
    pub(crate) headroom: std::cmp::Reverse<u64>,
}

impl Score {
    pub(crate) fn is_less(&self, other: &Self, order: Order) -> bool {
        let rank = |score: &Self| {
            (order.rank(score.loads, score.victims, score.passes), score.unused, score.headroom)
        };
        rank(self) < rank(other)
    }
}

/// A placement of every part.
#[derive(Debug, Clone)]
pub(crate) struct Solution<'a> {
    pub(crate) parts: Vec<ChainPart>,
    pub(crate) loads: Vec<PlannedLoad<'a>>,
    pub(crate) score: Score,
    /// Time that its packets are on the card.
    pub(crate) transit: Transit,
}

/// Obstacles to placements besides bandwidth and regions, for the error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Obstacles {
    /// Rows of the first placement that was found but does not fit the tables: of those that were tried it
    /// has the fewest cuts.
    pub(crate) rows: Option<crate::TableRows>,
    /// Rows that every placement takes, where the tables have fewer: nothing was tried.
    pub(crate) rows_min: Option<crate::TableRows>,
    /// Packet store, synchronisation buffer and look-ups of the first placement for which they are short.
    pub(crate) stay: Option<PacketOccupancy>,
}

/// One virtual chain to be placed.
#[derive(Debug, Clone)]
struct ChainTask {
    stage: usize,
    keys: SmallVec<[NtKey; 8]>,
    /// Cycles in each node's NT.
    latencies: SmallVec<[u64; 8]>,
    /// Furthest end of a part that starts at each node and that one bitstream or region contains.
    reach: SmallVec<[u8; 8]>,
    /// Fewest parts from each node on.
    parts_min: SmallVec<[u8; 8]>,
}

impl ChainTask {
    /// Makes every node a part of its own.
    fn cut_everywhere(&mut self) {
        for (start, reach) in self.reach.iter_mut().enumerate() {
            *reach = (*reach).min(start as u8 + 1);
        }
        for (start, parts) in self.parts_min.iter_mut().enumerate() {
            *parts = (self.keys.len() - start) as u8;
        }
    }
}

/// The state of one search. Backtracking undoes every change.
pub(crate) struct Search<'a, 'v> {
    pub(crate) view: &'v mut View<'a>,
    /// Whether some NT has too little on what was loaded at the start.
    pub(crate) is_short: bool,
    chains: Vec<ChainTask>,
    stages: usize,
    parts: Vec<ChainPart>,
    pub(crate) loads: Vec<PlannedLoad<'a>>,
    headroom: u64,
    best: Option<Solution<'a>>,
    steps: u32,
    pub(crate) cover_steps: u32,
    /// Most loads of a cover.
    pub(crate) cover_most: usize,
    /// Whether parts may have loads of their own.
    may_load: bool,
    /// Cuts of this round that may stay unmade: with fewer, everything was tried in the rounds before.
    spare_cuts: usize,
    /// The possible loads for the NTs of a part, which many parts of a large DAG have.
    candidates: BTreeMap<SmallVec<[NtKey; 8]>, Rc<[Candidate<'a>]>>,
    pub(crate) blocked: Obstacles,
}

/// The part that is being placed, with the loads made for it.
#[derive(Clone, Copy)]
struct PartPlacement {
    chain: usize,
    start: usize,
    end: usize,
    /// Cuts that may still be made after this part.
    cuts: usize,
    /// Bit set of regions loaded for this part: each of them must serve it.
    forced: u32,
    /// Candidates before this one were tried already: loads form sets, not sequences.
    from: usize,
}

impl<'a, 'v> Search<'a, 'v> {
    pub(crate) fn new(view: &'v mut View<'a>, staging: &Staging, is_short: bool) -> Self {
        let job = view.job;
        let mut search = Self {
            view,
            is_short,
            chains: Vec::new(),
            stages: staging.stages.len(),
            parts: Vec::new(),
            loads: Vec::new(),
            headroom: u64::MAX,
            best: None,
            steps: 0,
            cover_steps: 0,
            cover_most: 0,
            may_load: true,
            spare_cuts: 0,
            candidates: BTreeMap::new(),
            blocked: Obstacles::default(),
        };
        for (stage, branches) in staging.stages.iter().enumerate() {
            for nodes in branches {
                let keys = nodes.iter().map(|n| job.keys[usize::from(*n)]).collect();
                let latencies = nodes.iter().map(|n| job.latency(usize::from(*n))).collect();
                let (reach, parts_min) = (SmallVec::new(), SmallVec::new());
                search.chains.push(ChainTask { stage, keys, latencies, reach, parts_min });
            }
        }
        search
    }

    /// Finds out how far parts may reach, on what the view has loaded and on what may be loaded.
    fn set_reach(&mut self) {
        let mut chains = std::mem::take(&mut self.chains);
        for ChainTask { keys, reach, parts_min, .. } in &mut chains {
            let ends = (0..keys.len()).map(|start| (start + self.reach(&keys[start..])) as u8);
            *reach = ends.collect();
            *parts_min = SmallVec::from_elem(0u8, keys.len() + 1);
            for start in (0..keys.len()).rev() {
                let end = usize::from(reach[start]);
                // Nothing contains it: a number of parts that no round allows.
                parts_min[start] =
                    if end == start { u8::MAX } else { parts_min[end].saturating_add(1) };
            }
        }
        self.chains = chains;
    }

    /// Number of the first `keys` that some region or loadable bitstream contains in order.
    fn reach(&self, keys: &[NtKey]) -> usize {
        let most = keys.len().min(CHAIN_SLOTS_MAX);
        let mut found = 0;
        let first = keys[0].bit();
        let chains = self.view.regions.iter().filter_map(|region| region.chain);
        for chain in chains.filter(|chain| chain.mask & first != 0) {
            found = found.max(chain.prefix_held(keys));
            if found == most {
                return found;
            }
        }
        if self.view.classes.is_empty() || !self.may_load {
            return found;
        }
        let job = self.view.job;
        for chain in job.catalogue.loadable_holders(keys[0], job.tenant()) {
            let could = chain.prefix_held(keys);
            if could > found
                && crate::candidates::is_loadable(job, chain)
                && self.view.classes.iter().any(|class| class.takes(chain))
            {
                found = could;
            }
        }
        found
    }

    /// Runs the search; returns the best solution that was found.
    pub(crate) fn run(mut self) -> (Option<Solution<'a>>, Obstacles) {
        let is_short = self.is_short;
        if !is_short && self.view.job.order == Order::Regions {
            self.search_loaded_chains();
            if self.best.is_some() {
                return (self.best, self.blocked);
            }
        }
        self.set_reach();
        // A load is needed or may save cuts, or memory or rows do not suffice without one.
        let (fewest, most) = self.cuts();
        if fewest > most
            || !self.has_rows_min()
            || self.cover(STEPS_TO_COVER, usize::MAX, &mut |_| true) == CoverResult::None
        {
            return (None, self.blocked);
        }
        self.rounds(fewest, most, |search| search.best.is_some());
        match self.view.job.order {
            Order::Passes if !is_short && self.best.is_some() => {}
            Order::Passes if !is_short => self.search_loaded_chains(),
            _ => self.with_fewer_loads(),
        }
        self.drop_unused_loads();
        (self.best, self.blocked)
    }

    /// Searches with exactly these loads, which are in the view already and serve other DAGs, too.
    pub(crate) fn run_on(
        mut self,
        loads: &[(RegionId, &'a PhysicalChain)],
    ) -> (Option<Solution<'a>>, Obstacles) {
        let job = self.view.job;
        for (region, chain) in loads {
            let victim = job.ledger.chain(*region).is_some();
            let unused = unused_permille(area_of(job, *region), chain);
            self.loads.push(PlannedLoad { region: region.0, chain, victim, unused });
        }
        if !self.is_short {
            self.search_loaded_chains();
        }
        self.drop_unused_loads();
        (self.best, self.blocked)
    }

    /// Fewest cuts of all chains together, and the most for which the tables have rows.
    fn cuts(&self) -> (usize, usize) {
        let fewest = self.chains.iter().map(|c| usize::from(c.parts_min[0]).saturating_sub(1));
        let most = self.chains.iter().map(|c| c.keys.len() - 1).sum::<usize>();
        let rows = self.view.job.rows_left;
        let rows = rows.chains.min(rows.instances) as usize;
        let fewest = fewest.sum();
        (fewest, most.min(rows.saturating_sub(self.chains.len()).max(fewest)))
    }

    /// Rounds with more and more cuts on the chains that the view has loaded. If no NT is short, the last
    /// round finds a placement unless memory or rows are short.
    fn search_loaded_chains(&mut self) {
        let before = self.best.as_ref().map(|best| best.score);
        let is_better = |search: &Self| search.best.as_ref().map(|best| best.score) != before;
        self.may_load = false;
        let planned = self.chains.clone();
        self.set_reach();
        let (fewest, most) = self.cuts();
        let all = self.chains.iter().map(|chain| chain.keys.len() - 1).sum();
        let is_possible = fewest <= all && self.has_rows_min();
        if is_possible {
            self.rounds(fewest, most, is_better);
        }
        if !is_better(self) && is_possible {
            if most == all {
                self.chains.iter_mut().for_each(ChainTask::cut_everywhere);
            }
            self.round(most, most);
        }
        self.chains = planned;
        self.may_load = true;
    }

    /// Searches for a solution with fewer loads than the best one, with cuts wherever they help.
    fn with_fewer_loads(&mut self) {
        loop {
            let best = self.best.as_ref().map(|best| best.score.loads);
            if best.is_some_and(|loads| loads <= 1) {
                return;
            }
            let most = best.map_or(usize::MAX, |loads| loads - 1);
            self.cover(STEPS_TO_IMPROVE, most, &mut |search| {
                search.search_loaded_chains();
                search.best.as_ref().is_some_and(|found| found.score.loads <= most)
            });
            let found = self.best.as_ref().map(|best| best.score.loads);
            if found == best {
                return;
            }
        }
    }

    /// Drops loads whose NTs were shared elsewhere in the end.
    fn drop_unused_loads(&mut self) {
        let Some(best) = &mut self.best else { return };
        let parts = &best.parts;
        best.loads.retain(|load| {
            parts.iter().flat_map(|part| &part.paths).any(|path| path.region == load.region)
        });
    }

    /// Rounds with more and more cuts, until one finds what is wanted.
    fn rounds(&mut self, fewest: usize, most: usize, is_found: impl Fn(&Self) -> bool) {
        let mut untried = fewest;
        for cuts in fewest..=most.min(fewest + ROUNDS_MAX) {
            self.round(cuts, cuts - untried);
            if is_found(self) {
                return;
            }
            if self.steps > 0 {
                untried = cuts + 1;
            }
        }
    }

    /// Searches with at most so many cuts, of which `spare` may stay unmade.
    fn round(&mut self, cuts: usize, spare: usize) {
        self.steps = if self.best.is_some() { STEPS_TO_IMPROVE } else { STEPS_TO_FIND };
        self.spare_cuts = spare;
        self.extend(0, 0, cuts);
    }

    /// Places everything from node `start` of chain `chain` on.
    fn extend(&mut self, chain: usize, start: usize, cuts: usize) {
        let Some(job) = self.chains.get(chain) else { return self.solved() };
        let len = job.keys.len();
        if start == len {
            return self.extend(chain + 1, 0, cuts);
        }
        let after = &self.chains[chain + 1..];
        let later: usize = after.iter().map(|c| usize::from(c.parts_min[0]) - 1).sum();
        let later_most: usize = after.iter().map(|c| c.keys.len() - 1).sum();
        for end in (start + 1..=usize::from(job.reach[start])).rev() {
            let needed = usize::from(self.chains[chain].parts_min[end]);
            if needed + later > cuts {
                return;
            }
            if len - end + later_most + self.spare_cuts < cuts {
                continue;
            }
            let cuts = cuts - usize::from(end < len);
            let (forced, from) = (0, 0);
            self.place(PartPlacement { chain, start, end, cuts, forced, from });
            if self.steps == 0 {
                return;
            }
        }
    }

    /// Tries all placements of one part that could be better than the best solution.
    fn place(&mut self, at: PartPlacement) {
        if self.steps == 0 {
            return;
        }
        self.steps -= 1;
        let job = &self.chains[at.chain];
        let keys: SmallVec<[NtKey; 8]> = SmallVec::from_slice(&job.keys[at.start..at.end]);
        if !self.view.job.effort.spend(self.view.job.ledger.region_count() * (1 + keys.len())) {
            self.steps = 0;
            return;
        }
        let of = self.view.sequence(&keys);
        self.share(at, of);
        // Try a load if sharing led to no solution, or to one with more than one load.
        if self.is_settled() || self.steps == 0 || !self.may_load {
            return;
        }
        let all = self.candidates(&keys);
        self.load(at, &all);
    }

    /// The possible loads for these NTs.
    pub(crate) fn candidates(&mut self, keys: &[NtKey]) -> Rc<[Candidate<'a>]> {
        if let Some(known) = self.candidates.get(keys) {
            return Rc::clone(known);
        }
        let found: Rc<[_]> = candidates(self.view, keys).into();
        self.candidates.insert(SmallVec::from_slice(keys), Rc::clone(&found));
        found
    }

    /// Serves a part by chains that are loaded or planned to be.
    fn share(&mut self, at: PartPlacement, of: NtSequence<'_>) {
        let job = self.view.job;
        let single = shares::single(self.view, of, job.kbps, at.forced);
        let one_does = !single.is_empty();
        let takes_victim = single.iter().any(|(region, _)| self.view.loadable >> region & 1 == 1);
        for (region, widest) in single {
            let path = self.view.path(usize::from(region), of, widest);
            let Some(mut path) = path else { continue };
            path.kbps = job.kbps;
            self.try_paths(at, of, SmallVec::from_iter([path]));
            // The widest path led to a solution without a further load: narrower ones leave less headroom.
            if self.steps == 0 || self.is_settled() {
                return;
            }
        }
        // If one region suffices, several only help if it is a victim that another part of the DAG
        // needs for a load.
        if one_does && !takes_victim {
            return;
        }
        // All paths through all regions take about as long as the widest of each.
        if !job.effort.spend(job.ledger.region_count() * (1 + of.keys.len())) {
            self.steps = 0;
            return;
        }
        for paths in shares::several(self.view, of, job.kbps, at.forced, self.may_load) {
            self.try_paths(at, of, paths);
        }
    }

    /// Takes the paths, places the rest, and undoes.
    fn try_paths(
        &mut self,
        at: PartPlacement,
        of: NtSequence<'_>,
        paths: SmallVec<[RegionPath; 2]>,
    ) {
        let before = self.headroom;
        for path in &paths {
            self.headroom = self.headroom.min(self.view.take(path, of));
        }
        if self.could_be_better(&at) {
            let part = ChainPart { chain: at.chain, start: at.start, end: at.end, paths };
            self.parts.push(part);
            self.extend(at.chain, at.end, at.cuts);
            let part = self.parts.pop();
            self.undo(part.as_ref().map_or(&[], |part| &part.paths[..]), of);
        } else {
            self.undo(&paths, of);
        }
        self.headroom = before;
    }

    fn undo(&mut self, paths: &[RegionPath], of: NtSequence<'_>) {
        for path in paths.iter().rev() {
            self.view.give_back(path, of);
        }
    }

    /// Loads one more candidate for a part and places the part again.
    fn load(&mut self, at: PartPlacement, all: &[Candidate<'a>]) {
        for (index, candidate) in all.iter().enumerate().skip(at.from) {
            let regions = self.view.classes[candidate.class].regions & self.view.loadable_now();
            if regions == 0 || self.steps == 0 {
                continue;
            }
            let region = regions.trailing_zeros() as u8;
            let Candidate { chain, victim, unused, .. } = *candidate;
            self.loads.push(PlannedLoad { region, chain, victim, unused });
            if self.could_be_better(&at) {
                let old = self.view.load(region, chain);
                self.place(PartPlacement { forced: at.forced | 1 << region, from: index, ..at });
                self.view.regions[usize::from(region)] = old;
            }
            self.loads.pop();
        }
    }

    /// The score of what is placed so far: a lower bound for every solution that extends it and takes as many passes.
    fn bound(&self, passes: usize) -> Score {
        Score {
            loads: self.loads.len(),
            victims: self.loads.iter().filter(|load| load.victim).count(),
            passes,
            unused: self.loads.iter().map(|load| load.unused).sum(),
            headroom: std::cmp::Reverse(self.headroom),
        }
    }

    /// Whether the best solution needs no more loads than those made so far.
    fn is_settled(&self) -> bool {
        self.best.as_ref().is_some_and(|best| best.score.loads <= self.loads.len())
    }

    fn could_be_better(&self, at: &PartPlacement) -> bool {
        let order = self.view.job.order;
        let bound = || self.bound(self.passes_min(at));
        self.best.as_ref().is_none_or(|best| bound().is_less(&best.score, order))
            && (self.blocked.rows.is_none() || self.has_rows())
    }

    /// The way of a packet through what is placed, which is everything.
    fn transit(&self) -> Transit {
        let mut transit = Transit::new(self.view.job.cost());
        for stage in 0..self.stages {
            let chains = || self.chains.iter().enumerate().filter(|(_, c)| c.stage == stage);
            let parts_of = |chain| self.parts.iter().filter(move |part| part.chain == chain);
            let passes = chains().map(|(chain, _)| parts_of(chain).count()).max().unwrap_or(0);
            for pass in 0..passes {
                transit.stage(chains().filter_map(|(chain, task)| {
                    let part = parts_of(chain).nth(pass)?;
                    Some(task.latencies[part.start..part.end].iter().sum())
                }));
            }
        }
        transit
    }

    fn solved(&mut self) {
        debug_assert!(self.view.regions.len() == REGIONS_MAX, "one view for each region");
        let passes = self.passes();
        let score = self.bound(passes);
        if !self.has_rows() {
            let rows = self.rows(passes);
            self.blocked.rows.get_or_insert(rows);
            return;
        }
        let (job, transit) = (self.view.job, self.transit());
        let stay = job.stay(transit);
        if !job.has_room(stay) {
            self.blocked.stay.get_or_insert(stay);
            return;
        }
        let order = job.order;
        if self.best.as_ref().is_none_or(|best| score.is_less(&best.score, order)) {
            if self.best.is_none() {
                self.steps = self.steps.min(STEPS_TO_IMPROVE);
            }
            let (parts, loads) = (self.parts.clone(), self.loads.clone());
            self.best = Some(Solution { parts, loads, score, transit });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    /// Each term of the objective decides before all that follow it, however much those differ.
    #[test]
    fn the_objective_compares_its_terms_in_their_order() {
        let best = Score { loads: 1, victims: 1, passes: 2, unused: 500, headroom: Reverse(50) };
        let (less, more) = (Reverse(u64::MAX), Reverse(0));
        let worse = [
            ("regions", Score { loads: 2, victims: 0, passes: 1, unused: 0, headroom: less }),
            ("victims lost", Score { victims: 2, passes: 1, unused: 0, headroom: less, ..best }),
            ("passes", Score { passes: 3, unused: 0, headroom: less, ..best }),
            ("area unused", Score { unused: 501, headroom: less, ..best }),
            ("headroom", Score { headroom: more, ..best }),
        ];
        for (term, score) in worse {
            assert!(best.is_less(&score, Order::Regions), "{term} of {score:?}");
            assert!(!score.is_less(&best, Order::Regions), "{term} of {score:?}");
        }
        let flat = Score { loads: 9, victims: 9, passes: 1, unused: 999, headroom: more };
        assert!(flat.is_less(&best, Order::Passes) && !flat.is_less(&best, Order::Regions));
        let fewer = Score { loads: 0, victims: 9, ..best };
        assert!(fewer.is_less(&best, Order::Passes) && !best.is_less(&fewer, Order::Passes));
    }
}
