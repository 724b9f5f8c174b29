//! Cards in groups, each ordered by the bandwidth that its cards have left.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{Bandwidth, NtTypeId};

use super::summary::{Kinds, Summary};
use crate::ZoneId;

/// A card's place in the inventory.
pub(crate) type CardSlot = u32;

/// Properties that all cards of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey {
    /// The card's profile, as an index.
    pub profile: usize,
    pub zone: ZoneId,
    /// Kinds of regions that can be loaded.
    pub loadable: Kinds,
    pub is_pristine: bool,
}

/// Cards by the bandwidth left at the ingress.
pub(super) type CardsByBandwidth = BTreeSet<(Bandwidth, CardSlot)>;

/// The cards of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub cards: CardsByBandwidth,
    /// Those that have something left of an NT in a loaded chain.
    pub by_nt: BTreeMap<NtTypeId, CardsByBandwidth>,
}

/// All cards that take new DAGs, by group. Changing a card takes O(NTs loaded × log cards).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index(BTreeMap<GroupKey, Group>);

impl Index {
    pub fn insert(&mut self, slot: CardSlot, key: &GroupKey, summary: &Summary) {
        let group = self.0.entry(key.clone()).or_default();
        let place = (summary.ingress_left, slot);
        group.cards.insert(place);
        for (nt, _) in &summary.nts {
            match group.by_nt.get_mut(nt) {
                Some(cards) => cards.insert(place),
                None => group.by_nt.entry(nt.clone()).or_default().insert(place),
            };
        }
    }

    pub fn remove(&mut self, slot: CardSlot, key: &GroupKey, summary: &Summary) {
        let Some(group) = self.0.get_mut(key) else { return };
        let place = (summary.ingress_left, slot);
        group.cards.remove(&place);
        for (nt, _) in &summary.nts {
            if let Some(cards) = group.by_nt.get_mut(nt) {
                cards.remove(&place);
                if cards.is_empty() {
                    group.by_nt.remove(nt);
                }
            }
        }
        if group.cards.is_empty() {
            self.0.remove(key);
        }
    }

    pub fn groups(&self) -> impl Iterator<Item = (&GroupKey, &Group)> {
        self.0.iter()
    }
}
