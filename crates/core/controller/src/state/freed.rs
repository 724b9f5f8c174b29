//! Capacity and regions that were freed and not reconsidered yet.

use std::collections::BTreeSet;

use snic_domain::{CardId, RegionId};

/// Capacity, and regions that may have lost their last user.
#[derive(Debug, Default)]
pub(crate) struct FreedCapacity {
    has_capacity: bool,
    regions: BTreeSet<(CardId, RegionId)>,
}

/// Whether capacity was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// Capacity was freed: DAGs that wait for a place may find one.
    Freed,
    /// None was freed since it was last asked.
    AsBefore,
}

impl FreedCapacity {
    /// Something was freed: who waits for a place may find one.
    pub const fn capacity(&mut self) {
        self.has_capacity = true;
    }

    /// Regions that may have lost their last user.
    pub fn regions(&mut self, card: &CardId, regions: impl IntoIterator<Item = RegionId>) {
        self.regions.extend(regions.into_iter().map(|region| (card.clone(), region)));
    }

    /// Whether capacity was freed since it was last asked.
    pub const fn take_capacity(&mut self) -> Capacity {
        match std::mem::replace(&mut self.has_capacity, false) {
            true => Capacity::Freed,
            false => Capacity::AsBefore,
        }
    }

    /// The next region that may have lost its last user.
    pub fn pop_region(&mut self) -> Option<(CardId, RegionId)> {
        self.regions.pop_first()
    }

    /// A card was taken away: its regions are not looked at.
    pub fn forget(&mut self, card: &CardId) {
        self.regions.retain(|(of, _)| of != card);
    }

    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty() && !self.has_capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_capacity_is_reported_once() {
        let mut freed = FreedCapacity::default();
        let card = CardId::new("card0").expect("a label");
        assert!(freed.is_empty());
        freed.capacity();
        freed.regions(&card, [RegionId(1), RegionId(0), RegionId(1)]);
        assert!(!freed.is_empty());
        assert_eq!(freed.take_capacity(), Capacity::Freed);
        assert_eq!(freed.take_capacity(), Capacity::AsBefore);
        assert!(!freed.is_empty(), "regions are to be looked at");
        let regions: Vec<_> = std::iter::from_fn(|| freed.pop_region()).map(|(_, r)| r).collect();
        assert_eq!((regions, freed.is_empty()), (vec![RegionId(0), RegionId(1)], true));
    }
}
