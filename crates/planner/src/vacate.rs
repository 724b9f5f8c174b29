//! Finds regions that could be emptied together, by sums: the bandwidth that their DAGs take on each NT,
//! compared with what the other regions have left.
//!
//! If chains may be cut anywhere, feasibility depends only on sums (see `search`). So what the sums rule out
//! is infeasible and need not be tried DAG by DAG. What they allow fails only if memory, table rows, or the
//! permission to share or load are missing. Time: O(regions × NTs), independent of the number of DAGs.

use snic_domain::{RegionId, Slot};

use crate::Ledger;
use crate::catalogue::{NtKey, PhysicalChain};
use crate::view::{fresh, kbps};

/// A region in use.
#[derive(Debug)]
struct OccupiedRegion {
    region: RegionId,
    /// By number of the NT, in kbit/s.
    taken: Vec<u64>,
    left: Vec<u64>,
    users: usize,
    /// Whether all its DAGs may move.
    is_movable: bool,
}

/// The regions in use, as sums.
#[derive(Debug)]
pub(crate) struct OccupiedRegions {
    /// The NTs in them, in ascending order.
    keys: Vec<NtKey>,
    /// The least used first.
    occupied: Vec<OccupiedRegion>,
}

/// Regions that could be emptied together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EmptiableRegions {
    /// The least used first.
    pub(crate) regions: Vec<RegionId>,
    /// Number of DAGs that move; a DAG in two regions counts twice.
    pub(crate) users: usize,
}

impl OccupiedRegions {
    /// `regions` are those that DAGs may move to; `is_movable` says from which they may also move away.
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
        let mut made = Self { keys, occupied: Vec::new() };
        made.occupied = in_use.iter().map(|r| made.source(ledger, *r, is_movable(*r))).collect();
        let used = |source: &OccupiedRegion| source.taken.iter().sum::<u64>();
        made.occupied.sort_by_key(|source| (used(source), source.region));
        made
    }

    fn source(&self, ledger: &Ledger, region: RegionId, is_movable: bool) -> OccupiedRegion {
        let (mut taken, mut left) = (vec![0; self.keys.len()], vec![0; self.keys.len()]);
        let slots = ledger.chain(region).map_or(&[][..], |chain| &chain.slots);
        for (slot, held) in (0u8..).zip(slots) {
            if let Ok(nt) = self.keys.binary_search(&held.key) {
                taken[nt] += kbps(ledger.reserved(region, Slot(slot)));
                left[nt] += kbps(ledger.residual(region, Slot(slot)));
            }
        }
        OccupiedRegion { region, taken, left, users: ledger.users(region).count(), is_movable }
    }

    /// The regions in use, the least used first.
    pub(crate) fn regions(&self) -> impl Iterator<Item = RegionId> {
        self.occupied.iter().map(|source| source.region)
    }

    /// The least used regions that could be emptied together, with `load` loaded into another region if it is
    /// given.
    pub(crate) fn emptiable(&self, load: Option<&PhysicalChain>) -> EmptiableRegions {
        let mut spare = self.spare(load);
        let mut found = EmptiableRegions::default();
        for source in self.occupied.iter().filter(|source| source.is_movable) {
            if source.fits(&spare) {
                // Its spare bandwidth is lost, and its load moves to the others.
                spare.iter_mut().zip(source.lost()).for_each(|(spare, lost)| *spare -= lost);
                found.regions.push(source.region);
                found.users += source.users;
            }
        }
        found
    }

    /// Whether a region could be emptied by itself.
    pub(crate) fn could_be_emptied(&self, region: RegionId, load: Option<&PhysicalChain>) -> bool {
        let source = self.occupied.iter().find(|source| source.region == region);
        source.is_some_and(|source| source.is_movable && source.fits(&self.spare(load)))
    }

    /// Spare bandwidth of all regions, including a load.
    fn spare(&self, load: Option<&PhysicalChain>) -> Vec<u64> {
        let mut spare: Vec<u64> = vec![0; self.keys.len()];
        for source in &self.occupied {
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

impl OccupiedRegion {
    fn lost(&self) -> impl Iterator<Item = u64> {
        self.taken.iter().zip(&self.left).map(|(taken, left)| taken + left)
    }

    fn fits(&self, spare: &[u64]) -> bool {
        spare.iter().zip(self.lost()).all(|(spare, lost)| *spare >= lost)
    }
}
