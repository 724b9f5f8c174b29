//! Which loads would do, if every node may be a part of its own: see the head of `search`.

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

impl<'a> Search<'a, '_> {
    /// Tries sets of loads with which no NT is short, until `accept` takes one. While it looks at
    /// one, the view has these loads.
    pub(crate) fn cover(&mut self, steps: u32, accept: &mut dyn FnMut(&mut Self) -> bool) -> Cover {
        self.cover_steps = steps;
        let found = self.cover_from(None, accept);
        match (found, self.cover_steps) {
            (true, _) => Cover::Found,
            (false, 0) => Cover::GaveUp,
            (false, _) => Cover::None,
        }
    }

    /// `last` is the load that was made just before and for which NT: loads for one NT are tried
    /// in the order of the candidates only, since they are sets.
    fn cover_from(
        &mut self,
        last: Option<(NtKey, usize)>,
        accept: &mut dyn FnMut(&mut Self) -> bool,
    ) -> bool {
        if self.cover_steps == 0 {
            return false;
        }
        self.cover_steps -= 1;
        let Some(key) = self.short_of() else { return accept(self) };
        let from = last.filter(|(before, _)| *before == key).map_or(0, |(_, index)| index);
        let all = candidates(self.view, &self.classes, &[key]);
        for (index, candidate) in all.iter().enumerate().skip(from) {
            let regions = self.classes[candidate.class].regions & self.view.loadable_now();
            if regions == 0 {
                continue;
            }
            let region = regions.trailing_zeros() as u8;
            let Candidate { chain, victim, unused, .. } = *candidate;
            self.loads.push(PlannedLoad { region, chain, victim, unused });
            let old = self.view.load(region, chain);
            let found = self.cover_from(Some((key, index)), accept);
            self.view.regions[usize::from(region)] = old;
            self.loads.pop();
            if found {
                return true;
            }
        }
        false
    }

    /// An NT that has less left, over all regions, than the nodes that run it need.
    fn short_of(&self) -> Option<NtKey> {
        let keys = &self.view.job.keys;
        (0..keys.len()).filter(|i| !keys[..*i].contains(&keys[*i])).map(|i| keys[i]).find(|key| {
            let nodes = keys.iter().filter(|k| *k == key).count() as u64;
            let left: u64 = (0..self.view.regions.len()).map(|r| self.view.left_of(r, *key)).sum();
            left < self.view.job.kbps.saturating_mul(nodes)
        })
    }
}
