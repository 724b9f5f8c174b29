//! Regions of a card that are interchangeable as far as images go.
//!
//! Two regions are in one group if every bitstream that may be loaded has an image for both or for neither; those of
//! other tenants do not count. A bitstream with an image for each region is no reason to tell them apart, and neither
//! is a set of images that are each relocated within a group: then the planner has as few classes of regions to try as
//! if every image were for all of them.

use snic_domain::RegionId;
use snic_domain::limits::REGIONS_MAX;

/// The groups of a card model, from the bitstreams of one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RegionGroups {
    /// Bitstreams that count.
    count: u32,
    /// Number of these that have an image for one of two regions only.
    apart: [[u32; REGIONS_MAX]; REGIONS_MAX],
    /// First region of each region's group.
    first: [u8; REGIONS_MAX],
}

impl RegionGroups {
    /// One more bitstream has images for these regions only, a bit set. Time O(regions²).
    pub(crate) fn add(&mut self, set: u32) {
        self.count += 1;
        self.change(set, |count| *count += 1);
    }

    /// One bitstream fewer has. Time O(regions²).
    pub(crate) fn remove(&mut self, set: u32) {
        self.count -= 1;
        self.change(set, |count| *count -= 1);
    }

    fn change(&mut self, set: u32, change: impl Fn(&mut u32)) {
        for (region, apart) in self.apart.iter_mut().enumerate() {
            let differs = |other: &usize| set >> other & 1 != set >> region & 1;
            (0..REGIONS_MAX).filter(differs).for_each(|other| change(&mut apart[other]));
            let first = apart.iter().position(|apart| *apart == 0);
            self.first[region] = first.unwrap_or(region) as u8;
        }
    }

    /// Whether no bitstream counts any more.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
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
                        groups.remove(set);
                    }
                    _ => {
                        there.push(set);
                        groups.add(set);
                    }
                }
                prop_assert_eq!(groups.is_empty(), there.is_empty());
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
