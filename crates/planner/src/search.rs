//! The search for a place: depth first over cuts, shares and loads, with bounds and a budget.
//!
//! ```text
//! nothing is short                       what is loaded is enough: cut as often as that needs
//! else                                   the fewest loads, then the fewest cuts
//!   for cuts = fewest possible, …
//!     for each chain, for each part of it  the longest part first
//!       share: one region, widest first; else several, the fewest
//!       load:  one candidate more, and share again, what was loaded included
//!   fewer loads than that, if cuts make up for them
//! ```
//!
//! A load only makes a region shareable; so parts, branches and instances of one DAG use what was
//! loaded for another without a special case. The first solution is usually the best, since every
//! list is sorted by the objective; what remains is searched for a better one within a small
//! budget, and cut off where the part that is placed is already no better than the best.
//!
//! What can be found at all: with every node a part of its own, a place is a matter of sums, one for
//! each NT, and only the loads are to be chosen. That is what [`Search::cover`] does: while an NT is
//! short, some load that holds it must be among those still to come. So it finds a set of loads
//! where there is one, and where there is none no search for a better mapping is begun.
//! All budgets count steps, never time: the same input gives the same plan everywhere.

use std::collections::BTreeMap;
use std::rc::Rc;

use smallvec::SmallVec;
use snic_domain::RegionId;
use snic_domain::limits::{CHAIN_SLOTS_MAX, REGIONS_MAX};

use crate::candidates::{Candidate, Class, area_of, candidates, classes, unused_permille};
use crate::catalogue::{Chain, NtKey};
use crate::cover::Cover;
use crate::form::Staging;
use crate::shares;
use crate::view::{Path, View};

/// Steps of one round until a first solution; beyond them a solution with more cuts does.
const STEPS_TO_FIND: u32 = 300;
/// Steps to find loads with which every node could be a part of its own: enough for every set of
/// loads of a few regions and bitstreams, and some milliseconds at most.
const STEPS_TO_COVER: u32 = 3_000;
/// Steps after a first solution, to find a better one.
const STEPS_TO_IMPROVE: u32 = 200;
/// Rounds with more cuts than the fewest possible, before every node becomes a part.
const ROUNDS_MAX: usize = 6;

/// Consecutive nodes of a chain, in one stage, with the ways that serve them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Index among the staging's chains, stage by stage.
    pub(crate) chain: usize,
    /// First node, as an index into the chain.
    pub(crate) start: usize,
    /// One past the last.
    pub(crate) end: usize,
    pub(crate) paths: SmallVec<[Path; 2]>,
}

/// A region to be loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedLoad<'a> {
    pub(crate) region: u8,
    pub(crate) chain: &'a Chain,
    pub(crate) victim: bool,
    pub(crate) unused: u32,
}

/// The objective, lower is better: regions that were not in use, victims lost, passes, area unused,
/// and then as much headroom as possible. No plan interrupts anyone: what is in use is not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    pub(crate) loads: usize,
    pub(crate) victims: usize,
    pub(crate) passes: usize,
    pub(crate) unused: u32,
    pub(crate) headroom: std::cmp::Reverse<u64>,
}

/// A place for every part.
#[derive(Debug, Clone)]
pub(crate) struct Solution<'a> {
    pub(crate) parts: Vec<Part>,
    pub(crate) loads: Vec<PlannedLoad<'a>>,
    pub(crate) score: Score,
}

/// What kept a search from a place beside bandwidth and regions, for the refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// Least memory that would have been needed, in bytes.
    pub(crate) memory: Option<u64>,
    /// Whether a table was too full for a place that was found.
    pub(crate) rows: Option<crate::TableRows>,
}

/// One virtual chain to be placed.
#[derive(Debug, Clone)]
struct ChainJob {
    stage: usize,
    keys: SmallVec<[NtKey; 8]>,
    /// Furthest end of a part that starts at each node: one bitstream or region must hold it.
    reach: SmallVec<[u8; 8]>,
    /// Fewest parts from each node on.
    parts_min: SmallVec<[u8; 8]>,
}

impl ChainJob {
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

/// The state of one search. Everything is undone on the way back.
pub(crate) struct Search<'a, 'v> {
    pub(crate) view: &'v mut View<'a>,
    pub(crate) classes: SmallVec<[Class; 4]>,
    chains: Vec<ChainJob>,
    stages: usize,
    parts: Vec<Part>,
    pub(crate) loads: Vec<PlannedLoad<'a>>,
    headroom: u64,
    best: Option<Solution<'a>>,
    steps: u32,
    /// How often a way took more memory than there was.
    memory_short: u32,
    pub(crate) cover_steps: u32,
    /// Most loads of a cover.
    pub(crate) cover_most: usize,
    /// Whether a part may be given loads of its own.
    may_load: bool,
    /// What could be loaded for a part (chain, start, end), once it was asked.
    candidates: BTreeMap<(usize, usize, usize), Rc<[Candidate<'a>]>>,
    pub(crate) blocked: Blocked,
}

/// Where a part is being placed, and with which loads of its own.
#[derive(Clone, Copy)]
struct At {
    chain: usize,
    start: usize,
    end: usize,
    /// Cuts that may still be made after this part.
    cuts: usize,
    /// Regions loaded for this part, as bits: each of them must serve it.
    forced: u32,
    /// Candidates before this one were tried: loads are sets, not sequences.
    from: usize,
}

impl<'a, 'v> Search<'a, 'v> {
    pub(crate) fn new(view: &'v mut View<'a>, staging: &Staging) -> Self {
        let job = view.job;
        let mut search = Self {
            classes: classes(view),
            view,
            chains: Vec::new(),
            stages: staging.stages.len(),
            parts: Vec::new(),
            loads: Vec::new(),
            headroom: u64::MAX,
            best: None,
            steps: 0,
            memory_short: 0,
            cover_steps: 0,
            cover_most: 0,
            may_load: true,
            candidates: BTreeMap::new(),
            blocked: Blocked::default(),
        };
        for (stage, branches) in staging.stages.iter().enumerate() {
            for nodes in branches {
                let keys = nodes.iter().map(|n| job.keys[usize::from(*n)]).collect();
                let chain = search.chain_job(stage, keys);
                search.chains.push(chain);
            }
        }
        search
    }

    fn chain_job(&self, stage: usize, keys: SmallVec<[NtKey; 8]>) -> ChainJob {
        let reach: SmallVec<[u8; 8]> =
            (0..keys.len()).map(|start| (start + self.reach(&keys[start..])) as u8).collect();
        let mut parts_min: SmallVec<[u8; 8]> = SmallVec::from_elem(0u8, keys.len() + 1);
        for start in (0..keys.len()).rev() {
            let end = usize::from(reach[start]);
            // Nothing holds it: so many parts that no round allows them.
            parts_min[start] =
                if end == start { u8::MAX } else { parts_min[end].saturating_add(1) };
        }
        ChainJob { stage, keys, reach, parts_min }
    }

    /// How many of `keys` some region or loadable bitstream holds in order.
    fn reach(&self, keys: &[NtKey]) -> usize {
        let most = keys.len().min(CHAIN_SLOTS_MAX);
        let mut found = 0;
        for chain in self.view.regions.iter().filter_map(|region| region.chain) {
            found = found.max(chain.prefix_held(keys));
            if found == most {
                return found;
            }
        }
        if self.classes.is_empty() || !self.may_load {
            return found;
        }
        let job = self.view.job;
        for chain in job.catalogue.holders(keys[0]) {
            let could = chain.prefix_held(keys);
            if could > found
                && crate::candidates::is_loadable(job, chain)
                && self.classes.iter().any(|class| class.takes(chain))
            {
                found = could;
            }
        }
        found
    }

    /// The best place that was found.
    pub(crate) fn run(mut self) -> (Option<Solution<'a>>, Blocked) {
        if !self.is_anything_short() {
            self.on_what_is_loaded();
            if self.best.is_some() {
                return (self.best, self.blocked);
            }
        }
        // A load is needed, or memory or rows have no room for what needs none.
        let (fewest, most) = self.cuts();
        if fewest > most || self.cover(STEPS_TO_COVER, usize::MAX, &mut |_| true) == Cover::None {
            return (None, self.blocked);
        }
        for cuts in fewest..=most.min(fewest + ROUNDS_MAX) {
            self.round(cuts);
            if self.best.is_some() {
                break;
            }
        }
        self.with_fewer_loads();
        self.drop_unused_loads();
        (self.best, self.blocked)
    }

    /// A place that loads nothing but these, which the view has already: they are to serve more
    /// DAGs than this one.
    pub(crate) fn run_on(
        mut self,
        loads: &[(RegionId, &'a Chain)],
    ) -> (Option<Solution<'a>>, Blocked) {
        let job = self.view.job;
        for (region, chain) in loads {
            let victim = job.ledger.chain(*region).is_some();
            let unused = unused_permille(area_of(job, *region), chain);
            self.loads.push(PlannedLoad { region: region.0, chain, victim, unused });
        }
        if !self.is_anything_short() {
            self.on_what_is_loaded();
        }
        self.drop_unused_loads();
        (self.best, self.blocked)
    }

    /// Fewest and most cuts of all chains together.
    fn cuts(&self) -> (usize, usize) {
        let fewest = self.chains.iter().map(|c| usize::from(c.parts_min[0]).saturating_sub(1));
        (fewest.sum(), self.chains.iter().map(|c| c.keys.len() - 1).sum())
    }

    /// Rounds with more and more cuts through what is loaded, in the view as it is, and through
    /// that alone. Where no NT is short the last round finds a place, unless memory or rows lack.
    fn on_what_is_loaded(&mut self) {
        let before = self.best.as_ref().map(|best| best.score);
        let is_better = |search: &Self| search.best.as_ref().map(|best| best.score) != before;
        self.may_load = false;
        let planned = std::mem::take(&mut self.chains);
        for chain in &planned {
            let loaded = self.chain_job(chain.stage, chain.keys.clone());
            self.chains.push(loaded);
        }
        let (fewest, most) = self.cuts();
        for cuts in fewest..=most.min(fewest + ROUNDS_MAX) {
            self.round(cuts);
            if is_better(self) {
                break;
            }
        }
        if !is_better(self) && fewest <= most {
            self.chains.iter_mut().for_each(ChainJob::cut_everywhere);
            self.round(most);
        }
        self.chains = planned;
        self.may_load = true;
    }

    /// Whether fewer loads than the best place takes are enough, with cuts wherever they help.
    fn with_fewer_loads(&mut self) {
        loop {
            let best = self.best.as_ref().map(|best| best.score.loads);
            if best.is_some_and(|loads| loads <= 1) {
                return;
            }
            let most = best.map_or(usize::MAX, |loads| loads - 1);
            self.cover(STEPS_TO_IMPROVE, most, &mut |search| {
                search.on_what_is_loaded();
                search.best.as_ref().is_some_and(|found| found.score.loads <= most)
            });
            let found = self.best.as_ref().map(|best| best.score.loads);
            if found == best {
                return;
            }
        }
    }

    /// Loads that covered an NT which then was shared elsewhere.
    fn drop_unused_loads(&mut self) {
        let Some(best) = &mut self.best else { return };
        let parts = &best.parts;
        best.loads.retain(|load| {
            parts.iter().flat_map(|part| &part.paths).any(|path| path.region == load.region)
        });
    }

    fn round(&mut self, cuts: usize) {
        self.steps = if self.best.is_some() { STEPS_TO_IMPROVE } else { STEPS_TO_FIND };
        self.extend(0, 0, cuts);
    }

    /// Places what is left from node `start` of chain `chain` on.
    fn extend(&mut self, chain: usize, start: usize, cuts: usize) {
        let Some(job) = self.chains.get(chain) else { return self.solved() };
        let len = job.keys.len();
        if start == len {
            return self.extend(chain + 1, 0, cuts);
        }
        let later: usize =
            self.chains[chain + 1..].iter().map(|c| usize::from(c.parts_min[0]) - 1).sum();
        for end in (start + 1..=usize::from(job.reach[start])).rev() {
            let needed = usize::from(self.chains[chain].parts_min[end]);
            if needed + later > cuts {
                return;
            }
            let cuts = cuts - usize::from(end < len);
            let (forced, from) = (0, 0);
            self.place(At { chain, start, end, cuts, forced, from });
            if self.steps == 0 {
                return;
            }
        }
    }

    /// Places one part in every way that could still be better than the best.
    fn place(&mut self, at: At) {
        if self.steps == 0 {
            return;
        }
        self.steps -= 1;
        let job = &self.chains[at.chain];
        let keys: SmallVec<[NtKey; 8]> = SmallVec::from_slice(&job.keys[at.start..at.end]);
        self.share(at, &keys);
        // A load is worth a try where sharing led nowhere, or to more loads than one.
        if self.is_settled() || self.steps == 0 || !self.may_load {
            return;
        }
        let part = (at.chain, at.start, at.end);
        let known = self.candidates.get(&part).cloned();
        let all = known.unwrap_or_else(|| {
            let found: Rc<[_]> = candidates(self.view, &self.classes, &keys).into();
            self.candidates.insert(part, Rc::clone(&found));
            found
        });
        self.load(at, &all);
    }

    /// Serves a part by what is loaded or planned to be.
    fn share(&mut self, at: At, keys: &[NtKey]) {
        let job = self.view.job;
        let single = shares::single(self.view, keys, job.kbps, at.forced);
        let one_does = !single.is_empty();
        let takes_victim = single.iter().any(|(region, _)| self.view.loadable >> region & 1 == 1);
        let short_before = self.memory_short;
        for (region, _) in single {
            let Some(mut path) = self.widest_path(region, keys) else { continue };
            path.kbps = job.kbps;
            self.try_paths(at, SmallVec::from_iter([path]));
            // The widest way led to a place without a further load: a narrower one leaves less.
            if self.steps == 0 || self.is_settled() {
                return;
            }
        }
        // Several where one would do only help where the one takes too much memory, or a victim
        // that another part of the DAG must have for a load.
        if one_does && !takes_victim && self.memory_short == short_before {
            return;
        }
        for paths in shares::several(self.view, keys, job.kbps, at.forced) {
            self.try_paths(at, paths);
        }
    }

    fn widest_path(&self, region: u8, keys: &[NtKey]) -> Option<Path> {
        let region = usize::from(region);
        let widest = self.view.widest(region, keys, 0);
        self.view.path(region, keys, widest)
    }

    /// Takes the paths, goes on with the rest, and undoes.
    fn try_paths(&mut self, at: At, paths: SmallVec<[Path; 2]>) {
        let before = self.headroom;
        let mut taken = 0;
        let mut fits = true;
        for path in &paths {
            let cost = self.view.memory_cost(path.region, &path.slots);
            if cost > self.view.memory {
                self.note_memory(cost);
                fits = false;
                break;
            }
            self.headroom = self.headroom.min(self.view.take(path));
            taken += 1;
        }
        if fits && self.could_be_better() {
            let part = Part { chain: at.chain, start: at.start, end: at.end, paths };
            self.parts.push(part);
            self.extend(at.chain, at.end, at.cuts);
            let part = self.parts.pop();
            self.undo(part.as_ref().map_or(&[], |part| &part.paths[..]));
        } else {
            self.undo(&paths[..taken]);
        }
        self.headroom = before;
    }

    fn undo(&mut self, paths: &[Path]) {
        for path in paths.iter().rev() {
            self.view.give_back(path);
        }
    }

    /// Loads one candidate more for a part, and places it again.
    fn load(&mut self, at: At, all: &[Candidate<'a>]) {
        for (index, candidate) in all.iter().enumerate().skip(at.from) {
            let regions = self.classes[candidate.class].regions & self.view.loadable_now();
            if regions == 0 || self.steps == 0 {
                continue;
            }
            let region = regions.trailing_zeros() as u8;
            let Candidate { chain, victim, unused, .. } = *candidate;
            self.loads.push(PlannedLoad { region, chain, victim, unused });
            if self.could_be_better() {
                let old = self.view.load(region, chain);
                self.place(At { forced: at.forced | 1 << region, from: index, ..at });
                self.view.regions[usize::from(region)] = old;
            }
            self.loads.pop();
        }
    }

    fn note_memory(&mut self, cost: u64) {
        self.memory_short += 1;
        let used = self.view.job.ledger.memory_residual().get() - self.view.memory;
        let needed = used + cost;
        self.blocked.memory = Some(self.blocked.memory.map_or(needed, |least| least.min(needed)));
    }

    /// The score of what is placed so far: a bound for whatever comes of it.
    fn bound(&self) -> Score {
        Score {
            loads: self.loads.len(),
            victims: self.loads.iter().filter(|load| load.victim).count(),
            passes: self.stages,
            unused: self.loads.iter().map(|load| load.unused).sum(),
            headroom: std::cmp::Reverse(self.headroom),
        }
    }

    /// Whether the best place needs no load beyond those that are made already.
    fn is_settled(&self) -> bool {
        self.best.as_ref().is_some_and(|best| best.score.loads <= self.loads.len())
    }

    fn could_be_better(&self) -> bool {
        self.best.as_ref().is_none_or(|best| self.bound() < best.score)
    }

    /// Stages when every branch's parts are stages of their own, branch beside branch.
    fn passes(&self) -> usize {
        let parts_of = |chain| self.parts.iter().filter(|part| part.chain == chain).count();
        (0..self.stages)
            .map(|stage| {
                let chains = self.chains.iter().enumerate().filter(|(_, c)| c.stage == stage);
                chains.map(|(chain, _)| parts_of(chain)).max().unwrap_or(1)
            })
            .sum()
    }

    fn rows(&self, passes: usize) -> crate::TableRows {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        crate::TableRows {
            dags: 1,
            stages: count(passes),
            chains: count(self.parts.len()),
            instances: count(self.parts.iter().map(|part| part.paths.len()).sum()),
        }
    }

    fn solved(&mut self) {
        debug_assert!(self.view.regions.len() == REGIONS_MAX, "one view for each region");
        let passes = self.passes();
        let score = Score { passes, ..self.bound() };
        let rows = self.rows(passes);
        if rows.beside(self.view.job.rows_left).iter().any(|(_, needed, left)| needed > left) {
            self.blocked.rows = Some(rows);
            return;
        }
        if self.best.as_ref().is_none_or(|best| score < best.score) {
            if self.best.is_none() {
                self.steps = self.steps.min(STEPS_TO_IMPROVE);
            }
            let (parts, loads) = (self.parts.clone(), self.loads.clone());
            self.best = Some(Solution { parts, loads, score });
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
            assert!(best < score, "{term} of {score:?}");
        }
    }
}
