//! Which regions could be emptied together, by sums: what their DAGs take of each NT against what
//! the other regions have left.
//!
//! With cuts allowed anywhere a DAG asks for no more than sums (see `search`). So what the sums
//! refuse has no place and is not tried DAG by DAG; what they allow fails only where memory, rows of
//! the tables, or the right to share or to load are short. Time of one answer: O(regions × NTs),
//! whatever the number of DAGs.

use snic_domain::{RegionId, Slot};

use crate::Ledger;
use crate::catalogue::{Chain, NtKey};
use crate::view::{fresh, kbps};

/// A region in use.
#[derive(Debug)]
struct Source {
    region: RegionId,
    /// By number of the NT, in kbit/s.
    taken: Vec<u64>,
    left: Vec<u64>,
    users: usize,
    /// All its DAGs may move.
    is_movable: bool,
}

/// The regions in use, as sums.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The NTs in them, rising.
    keys: Vec<NtKey>,
    /// The least used first.
    sources: Vec<Source>,
}

/// Regions that could be emptied together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vacated {
    /// The least used first.
    pub(crate) regions: Vec<RegionId>,
    /// How many DAGs move, one in two regions counted twice.
    pub(crate) users: usize,
}

impl Sources {
    /// `regions` are those that DAGs may move to, and out of where `is_movable`.
    pub(crate) fn of(
        ledger: &Ledger,
        regions: &[RegionId],
        is_movable: impl Fn(RegionId) -> bool,
    ) -> Self {
        let in_use: Vec<RegionId> =
            regions.iter().copied().filter(|region| !ledger.is_unused(*region)).collect();
        let chains = in_use.iter().filter_map(|region| ledger.chain(*region));
        let mut keys: Vec<NtKey> = chains.flat_map(|c| c.slots.iter().map(|s| s.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut made = Self { keys, sources: Vec::new() };
        made.sources = in_use.iter().map(|r| made.source(ledger, *r, is_movable(*r))).collect();
        let used = |source: &Source| source.taken.iter().sum::<u64>();
        made.sources.sort_by_key(|source| (used(source), source.region));
        made
    }

    fn source(&self, ledger: &Ledger, region: RegionId, is_movable: bool) -> Source {
        let (mut taken, mut left) = (vec![0; self.keys.len()], vec![0; self.keys.len()]);
        let slots = ledger.chain(region).map_or(&[][..], |chain| &chain.slots);
        for (slot, held) in (0u8..).zip(slots) {
            if let Ok(nt) = self.keys.binary_search(&held.key) {
                taken[nt] += kbps(ledger.reserved(region, Slot(slot)));
                left[nt] += kbps(ledger.residual(region, Slot(slot)));
            }
        }
        Source { region, taken, left, users: ledger.users(region).count(), is_movable }
    }

    /// The regions in use, the least used first.
    pub(crate) fn regions(&self) -> impl Iterator<Item = RegionId> {
        self.sources.iter().map(|source| source.region)
    }

    /// The least used regions that could be emptied, one beside those before it; with `load` loaded
    /// into another, where it is given.
    pub(crate) fn vacated(&self, load: Option<&Chain>) -> Vacated {
        let mut spare = self.spare(load);
        let mut found = Vacated::default();
        for source in self.sources.iter().filter(|source| source.is_movable) {
            if source.fits(&spare) {
                // It gives up what it has left, and asks for what it serves.
                spare.iter_mut().zip(source.lost()).for_each(|(spare, lost)| *spare -= lost);
                found.regions.push(source.region);
                found.users += source.users;
            }
        }
        found
    }

    /// Whether a region could be emptied, the others being left as they are.
    pub(crate) fn could_be_emptied(&self, region: RegionId, load: Option<&Chain>) -> bool {
        let source = self.sources.iter().find(|source| source.region == region);
        source.is_some_and(|source| source.is_movable && source.fits(&self.spare(load)))
    }

    /// What all regions have left, with that of a load.
    fn spare(&self, load: Option<&Chain>) -> Vec<u64> {
        let mut spare: Vec<u64> = vec![0; self.keys.len()];
        for source in &self.sources {
            spare.iter_mut().zip(&source.left).for_each(|(sum, left)| *sum += left);
        }
        if let Some(chain) = load {
            for (slot, free) in chain.slots.iter().zip(fresh(chain)) {
                if let Ok(nt) = self.keys.binary_search(&slot.key) {
                    spare[nt] += free;
                }
            }
        }
        spare
    }
}

impl Source {
    fn lost(&self) -> impl Iterator<Item = u64> {
        self.taken.iter().zip(&self.left).map(|(taken, left)| taken + left)
    }

    fn fits(&self, spare: &[u64]) -> bool {
        spare.iter().zip(self.lost()).all(|(spare, lost)| *spare >= lost)
    }
}
