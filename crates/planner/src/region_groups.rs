//! Which regions of a card are interchangeable as far as images go.
//!
//! Two regions are in one group if every bitstream has an image for both or for neither. A bitstream with an image
//! for each region is no reason to tell them apart, and neither is a set of images that are each relocated within a
//! group: then the planner has as few classes of regions to try as if every image were for all of them.

use std::collections::BTreeMap;

use snic_domain::RegionId;
use snic_domain::limits::REGIONS_MAX;

/// The groups of a card model, and the sets of regions that they follow from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RegionGroups {
    /// By set of regions, bits: how many bitstreams have images for exactly these.
    sets: BTreeMap<u32, u32>,
    /// By region: the first region of its group.
    first: [u8; REGIONS_MAX],
}

impl RegionGroups {
    /// One more bitstream has images for these regions only. Time O(regions²) for a new set.
    pub(crate) fn add(&mut self, set: u32) {
        let count = self.sets.entry(set).or_default();
        *count += 1;
        if *count == 1 {
            self.split(set);
        }
    }

    /// One bitstream fewer has; returns whether none is left. Time O(sets × regions²) for the last of a set.
    pub(crate) fn remove(&mut self, set: u32) -> bool {
        let Some(count) = self.sets.get_mut(&set) else { return self.sets.is_empty() };
        *count -= 1;
        if *count == 0 {
            self.sets.remove(&set);
            self.first = [0; REGIONS_MAX];
            let sets: Vec<u32> = self.sets.keys().copied().collect();
            sets.into_iter().for_each(|set| self.split(set));
        }
        self.sets.is_empty()
    }

    /// Regions of a group on different sides of `set` are not in one group any more.
    fn split(&mut self, set: u32) {
        let before = self.first;
        for region in 0..REGIONS_MAX {
            let is_alike = |other: &usize| {
                before[*other] == before[region] && set >> other & 1 == set >> region & 1
            };
            let first = (0..region).find(is_alike).unwrap_or(region);
            self.first[region] = first as u8;
        }
    }

    /// The first region of a region's group.
    pub(crate) const fn of(&self, region: RegionId) -> u8 {
        self.first[region.index()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// After any series of changes, two regions are in one group exactly if no set tells them apart.
        #[test]
        fn groups_are_what_no_set_tells_apart(
            changes in prop::collection::vec((any::<bool>(), 0usize..4), 1..20),
            sets in prop::collection::vec(prop_oneof![any::<u32>(), 0u32..256], 4),
        ) {
            let mut groups = RegionGroups::default();
            let mut there: Vec<u32> = Vec::new();
            for (adds, which) in changes {
                let set = sets[which];
                match there.iter().position(|other| *other == set) {
                    Some(at) if !adds => {
                        there.remove(at);
                        prop_assert_eq!(groups.remove(set), there.is_empty());
                    }
                    _ => {
                        there.push(set);
                        groups.add(set);
                    }
                }
                for a in 0..REGIONS_MAX as u8 {
                    for b in 0..REGIONS_MAX as u8 {
                        let is_alike = there.iter().all(|set| set >> a & 1 == set >> b & 1);
                        let is_one = groups.of(RegionId(a)) == groups.of(RegionId(b));
                        prop_assert_eq!(is_one, is_alike, "regions {} and {}", a, b);
                    }
                    prop_assert!(groups.of(RegionId(a)) <= a);
                }
            }
        }
    }
}
