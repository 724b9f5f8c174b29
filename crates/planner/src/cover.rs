//! Which loads would do, if every node may be a part of its own: see the head of `search`.

use smallvec::SmallVec;

use crate::candidates::{Candidate, candidates};
use crate::catalogue::NtKey;
use crate::search::{PlannedLoad, Search};

/// What came of trying sets of loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cover {
    /// One was found, and taken.
    Found,
    /// There is none, or none that was taken.
    None,
    /// The steps were used up.
    GaveUp,
}

/// What can be loaded for one NT of the DAG.
struct Need<'a> {
    key: NtKey,
    /// What all nodes that run it need together, in kbit/s.
    demand: u64,
    candidates: Vec<Candidate<'a>>,
    /// The most that one load serves, in kbit/s.
    best: u64,
}

/// All NTs of the DAG, each once.
struct Needs<'a> {
    needs: SmallVec<[Need<'a>; 8]>,
    /// The most NTs of the DAG that one load has.
    widest: u64,
}

impl<'a> Needs<'a> {
    fn of(search: &Search<'a, '_>) -> Self {
        let job = search.view.job;
        let mut widest = 0;
        let distinct = (0..job.keys.len()).filter(|i| !job.keys[..*i].contains(&job.keys[*i]));
        let needs = distinct
            .map(|i| {
                let key = job.keys[i];
                let nodes = job.keys.iter().filter(|k| **k == key).count() as u64;
                let candidates = candidates(search.view, &search.classes, &[key]);
                for candidate in &candidates {
                    let held = |i: &usize| candidate.chain.holds(&[job.keys[*i]]);
                    let first = |i: &usize| !job.keys[..*i].contains(&job.keys[*i]);
                    let covered = (0..job.keys.len()).filter(first).filter(held).count();
                    widest = widest.max(covered as u64);
                }
                let best = candidates.iter().map(|c| c.capacity).max().unwrap_or(0);
                Need { key, demand: job.kbps.saturating_mul(nodes), candidates, best }
            })
            .collect();
        Self { needs, widest }
    }
}

impl<'a> Search<'a, '_> {
    /// Tries sets of at most `most` loads with which no NT is short, until `accept` takes one.
    /// While it looks at one, the view has these loads.
    pub(crate) fn cover(
        &mut self,
        steps: u32,
        most: usize,
        accept: &mut dyn FnMut(&mut Self) -> bool,
    ) -> Cover {
        self.cover_steps = steps;
        self.cover_most = most;
        if !self.is_anything_short() {
            return if accept(self) { Cover::Found } else { Cover::None };
        }
        let needs = Needs::of(self);
        let found = self.cover_from(&needs, None, accept);
        match (found, self.cover_steps) {
            (true, _) => Cover::Found,
            (false, 0) => Cover::GaveUp,
            (false, _) => Cover::None,
        }
    }

    /// Whether loads are needed at all: asked of every plan, so it gathers nothing.
    pub(crate) fn is_anything_short(&self) -> bool {
        let keys = &self.view.job.keys;
        (0..keys.len()).filter(|i| !keys[..*i].contains(&keys[*i])).any(|i| {
            let nodes = keys.iter().filter(|key| **key == keys[i]).count() as u64;
            let left = (0..self.view.regions.len()).map(|r| self.view.left_of(r, keys[i]));
            left.sum::<u64>() < self.view.job.kbps.saturating_mul(nodes)
        })
    }

    /// `last` is the load that was made just before and for which NT: loads for one NT are tried
    /// in the order of the candidates only, since they are sets.
    fn cover_from(
        &mut self,
        needs: &Needs<'a>,
        last: Option<(NtKey, usize)>,
        accept: &mut dyn FnMut(&mut Self) -> bool,
    ) -> bool {
        if self.cover_steps == 0 {
            return false;
        }
        self.cover_steps -= 1;
        let loadable = self.view.loadable_now();
        let more = self.cover_most.saturating_sub(self.loads.len()) as u64;
        let regions = u64::from(loadable.count_ones()).min(more);
        let Some(need) = self.short_of(needs, regions) else { return false };
        let Some(need) = need else { return accept(self) };
        let from = last.filter(|(before, _)| *before == need.key).map_or(0, |(_, index)| index);
        for (index, candidate) in need.candidates.iter().enumerate().skip(from) {
            let regions = self.classes[candidate.class].regions & loadable;
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

    /// The first NT that has less left, over all regions, than it needs; `Some(None)` where none is
    /// short, `None` where so many are that no loads of `regions` regions could be enough: a load
    /// serves at most `widest` NTs, each with at most `best`.
    fn short_of<'n>(&self, needs: &'n Needs<'a>, regions: u64) -> Option<Option<&'n Need<'a>>> {
        let mut first = None;
        let mut shares = 0u64;
        for need in &needs.needs {
            let left = (0..self.view.regions.len()).map(|r| self.view.left_of(r, need.key));
            let short = need.demand.saturating_sub(left.sum());
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
