//! Finds sets of loads that suffice if every node may be a part of its own: see the head of `search`.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::candidates::{Candidate, CoverResult};
use crate::nt_key::NtKey;
use crate::search::{PlannedLoad, Search};

/// Demand for one NT of the DAG, and the loads that serve it.
struct NtNeed<'a> {
    key: NtKey,
    /// Demand of all nodes that run it together, in kbit/s.
    demand: u64,
    candidates: Rc<[Candidate<'a>]>,
    /// Most that one load serves, in kbit/s.
    best: u64,
}

/// All NTs of the DAG, each once.
struct NtNeeds<'a> {
    needs: SmallVec<[NtNeed<'a>; 8]>,
    /// Most NTs of the DAG that one load contains.
    widest: u64,
}

impl<'a> NtNeeds<'a> {
    fn of(search: &mut Search<'a, '_>) -> Self {
        let job = search.view.job;
        let mut widest = 0;
        let needs = job
            .totals
            .iter()
            .map(|total| {
                let candidates = search.candidates(&[total.key]);
                for candidate in candidates.iter() {
                    let covered =
                        job.totals.iter().filter(|of| candidate.chain.has(of.key)).count();
                    widest = widest.max(covered as u64);
                }
                let best = candidates.iter().map(|c| c.capacity).max().unwrap_or(0);
                NtNeed { key: total.key, demand: total.kbps, candidates, best }
            })
            .collect();
        Self { needs, widest }
    }
}

impl<'a> Search<'a, '_> {
    /// Tries sets of at most `most` loads with which no NT is short, until `accept` returns `true`.
    /// During that call the view contains these loads.
    pub(crate) fn cover(
        &mut self,
        steps: u32,
        most: usize,
        accept: &mut dyn FnMut(&mut Self) -> bool,
    ) -> CoverResult {
        self.cover_steps = steps;
        self.cover_most = most;
        if !self.is_short {
            return if accept(self) { CoverResult::Found } else { CoverResult::None };
        }
        let needs = NtNeeds::of(self);
        let found = self.cover_from(&needs, None, accept);
        match (found, self.cover_steps) {
            (true, _) => CoverResult::Found,
            (false, 0) => CoverResult::GaveUp,
            (false, _) => CoverResult::None,
        }
    }

    /// `last` is the NT and the candidate of the load made just before. Loads form sets, so loads for
    /// one NT are tried only in the order of the candidates.
    fn cover_from(
        &mut self,
        needs: &NtNeeds<'a>,
        last: Option<(NtKey, usize)>,
        accept: &mut dyn FnMut(&mut Self) -> bool,
    ) -> bool {
        if self.cover_steps == 0 {
            return false;
        }
        self.cover_steps -= 1;
        let job = self.view.job;
        if !job.effort.spend(job.ledger.region_count() * needs.needs.len()) {
            self.cover_steps = 0;
            return false;
        }
        let loadable = self.view.loadable_now();
        let more = self.cover_most.saturating_sub(self.loads.len()) as u64;
        let regions = u64::from(loadable.count_ones()).min(more);
        let Some(need) = self.short_of(needs, regions) else { return false };
        let Some(need) = need else { return accept(self) };
        let from = last.filter(|(before, _)| *before == need.key).map_or(0, |(_, index)| index);
        for (index, candidate) in need.candidates.iter().enumerate().skip(from) {
            let regions = self.view.classes[candidate.class].regions & loadable;
            if regions == 0 {
                continue;
            }
            let region = regions.trailing_zeros() as u8;
            let Candidate { chain, victim, unused, .. } = *candidate;
            self.loads.push(PlannedLoad { region, chain, victim, unused });
            let old = self.view.load(region, chain);
            let found = self.cover_from(needs, Some((need.key, index)), accept);
            self.view.regions[usize::from(region)] = old;
            self.loads.pop();
            if found {
                return true;
            }
        }
        false
    }

    /// The first NT that has less left in all regions than it needs; `Some(None)` if no NT is short;
    /// `None` if too many are short, so that loads into `regions` regions cannot suffice, since a load serves
    /// at most `widest` NTs, each with at most `best`.
    fn short_of<'n>(&self, needs: &'n NtNeeds<'a>, regions: u64) -> Option<Option<&'n NtNeed<'a>>> {
        let mut first = None;
        let mut shares = 0u64;
        for need in &needs.needs {
            let short = need.demand.saturating_sub(self.view.left_of_all(need.key));
            if short > 0 {
                first = first.or(Some(need));
                let loads = short.div_ceil(need.best.max(1));
                shares = shares.saturating_add(loads);
                if need.best == 0 || loads > regions {
                    return None;
                }
            }
        }
        (shares <= regions.saturating_mul(needs.widest)).then_some(first)
    }
}
