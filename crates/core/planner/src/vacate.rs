//! Finds regions that could be emptied together, by sums: the bandwidth that their DAGs take on each NT,
//! compared with what the other regions have left.
//!
//! If chains may be cut anywhere, feasibility depends only on sums (see `search`). So what the sums rule out
//! is infeasible and need not be tried DAG by DAG. What they allow fails only if memory, table rows, or the
//! permission to share or load are missing. Time: O(regions × NTs), independent of the number of DAGs.

use snic_domain::{RegionId, Slot};

use crate::Ledger;
use crate::catalogue::PhysicalChain;
use crate::job::kbps;
use crate::nt_key::NtKey;

/// A region in use.
#[derive(Debug)]
struct OccupiedRegion {
    region: RegionId,
    /// Bandwidth taken of each NT, in kbit/s.
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
            for slot in &chain.slots {
                if let Ok(nt) = self.keys.binary_search(&slot.key) {
                    spare[nt] += kbps(slot.bandwidth_max);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{bitstream, catalogue, ledger, load, name, shares};

    fn all(regions: u8) -> Vec<RegionId> {
        (0..regions).map(RegionId).collect()
    }

    /// Regions with `a`, of 10 Gbit/s each, of which so much is taken by one DAG each; none where it is 0.
    fn loaded(taken: &[u64]) -> Ledger {
        let catalogue = catalogue("a", &[("a", "a")]);
        let mut ledger = ledger(taken.len());
        for (region, gbit) in (0u8..).zip(taken) {
            load(&mut ledger, &catalogue, region, "a");
            if *gbit > 0 {
                let held = shares(&[(region, 0, *gbit)]);
                ledger.hold(&name(&format!("t0/d{region}")), held).expect("at most 10");
            }
        }
        ledger
    }

    fn emptied(taken: &[u64], is_movable: impl Fn(RegionId) -> bool) -> (Vec<u8>, usize) {
        let (ledger, regions) = (loaded(taken), all(taken.len() as u8));
        let found = OccupiedRegions::of(&ledger, &regions, is_movable).emptiable(None);
        (found.regions.iter().map(|region| region.0).collect(), found.users)
    }

    #[test]
    fn the_least_used_are_emptied_first_and_what_is_left_takes_them() {
        assert_eq!(emptied(&[6, 3, 1], |_| true), (vec![2, 1], 2), "region 0 is full then");
        assert_eq!(emptied(&[7, 3, 1], |_| true), (vec![2], 1), "11 are more than one region");
        assert_eq!(emptied(&[5, 5], |_| true), (vec![0], 1), "of equals the first");
        assert_eq!(emptied(&[5, 6], |_| true), (vec![], 0));
        assert_eq!(emptied(&[1], |_| true), (vec![], 0), "there is no other");
        assert_eq!(emptied(&[], |_| true), (vec![], 0));
    }

    #[test]
    fn unused_regions_neither_count_nor_take_anything() {
        assert_eq!(emptied(&[6, 0, 6], |_| true), (vec![], 0));
        assert_eq!(emptied(&[0, 4, 6], |_| true), (vec![1], 1));
    }

    #[test]
    fn a_region_whose_dags_must_stay_takes_others_in() {
        assert_eq!(emptied(&[1, 3], |region| region.0 != 0), (vec![1], 1));
        assert_eq!(emptied(&[1, 3], |_| false), (vec![], 0));
    }

    #[test]
    fn a_load_takes_what_the_others_cannot() {
        let (ledger, regions) = (loaded(&[6, 5]), all(2));
        let catalogue = catalogue("a b", &[]);
        let occupied = OccupiedRegions::of(&ledger, &regions, |_| true);
        let chain = |nts: &str| PhysicalChain::new(bitstream("x", nts), &catalogue);
        let with = |nts: &str| occupied.emptiable(Some(&chain(nts))).regions;
        assert_eq!(with("a"), [RegionId(1)], "11 in region 0 and the load");
        assert_eq!(with("b a a"), [RegionId(1), RegionId(0)]);
        assert_eq!(with("b"), [], "another NT");
        assert!(occupied.could_be_emptied(RegionId(0), Some(&chain("a"))));
        assert!(!occupied.could_be_emptied(RegionId(0), None));
        assert!(!occupied.could_be_emptied(RegionId(7), Some(&chain("a"))), "there is none");
        assert_eq!(occupied.regions().collect::<Vec<_>>(), [RegionId(1), RegionId(0)]);
    }

    proptest! {
        /// Beside sums from the ledger: region by region, the least used first, each is added if all that was
        /// taken of every NT in those to be emptied is left in those that stay.
        #[test]
        fn dags_of_vacated_regions_fit_into_the_remaining_ones(
            contents in prop::collection::vec(0usize..4, 1..6),
            taken in prop::collection::vec((0u64..11, 0u64..11), 6),
        ) {
            let streams = [("a", "a"), ("b", "b"), ("ab", "a b"), ("ba", "b a")];
            let catalogue = catalogue("a b", &streams);
            let mut ledger = ledger(contents.len());
            for (region, content) in (0u8..).zip(&contents) {
                load(&mut ledger, &catalogue, region, streams[*content].0);
                let (first, second) = taken[usize::from(region)];
                let held = if *content < 2 {
                    shares(&[(region, 0, first)])
                } else {
                    shares(&[(region, 0, first), (region, 1, second)])
                };
                ledger.hold(&name(&format!("t0/d{region}")), held).expect("at most 10");
            }
            let regions = all(contents.len() as u8);
            // Of an NT in one region: what is taken, and what is left, in bit/s.
            let sums = |region: RegionId, nt: &str| {
                let nts = &ledger.content(region).expect("loaded").nts;
                let slot = nts.iter().position(|id| id.as_str() == nt).map(|slot| Slot(slot as u8));
                let of = |slot| (ledger.reserved(region, slot).get(), ledger.residual(region, slot).get());
                slot.map_or((0, 0), of)
            };
            let mut order = regions.clone();
            order.sort_by_key(|r| (sums(*r, "a").0 + sums(*r, "b").0, *r));
            let mut expected: Vec<RegionId> = Vec::new();
            for region in order {
                let emptied = [expected.clone(), vec![region]].concat();
                let fits = ["a", "b"].iter().all(|nt| {
                    let stay = regions.iter().filter(|region| !emptied.contains(region));
                    let left: u64 = stay.map(|region| sums(*region, nt).1).sum();
                    left >= emptied.iter().map(|region| sums(*region, nt).0).sum()
                });
                if fits {
                    expected = emptied;
                }
            }
            let occupied = OccupiedRegions::of(&ledger, &regions, |_| true);
            prop_assert_eq!(occupied.emptiable(None).regions, expected);
        }
    }
}
