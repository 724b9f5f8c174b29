//! All cards that were ever seen.

use std::collections::BTreeMap;

use snic_domain::{BitstreamId, CardId, RegionId};

use super::CardMachine;

/// Why a card is there: reports and commands that name another one are refused at the door, and no card
/// is ever forgotten.
const KNOWN: &str = "cards that are not known were refused, and none is forgotten";

/// The cards, by id.
#[derive(Debug, Default)]
pub(crate) struct Cards(BTreeMap<CardId, CardMachine>);

impl Cards {
    /// A card that was never seen before.
    pub fn add(&mut self, id: CardId, card: CardMachine) {
        let before = self.0.insert(id, card);
        assert!(before.is_none(), "a card is added once");
    }

    /// A card that a caller named, if there is one.
    pub fn get(&self, id: &CardId) -> Option<&CardMachine> {
        self.0.get(id)
    }

    /// A card that a record named, if there is one.
    pub fn get_mut(&mut self, id: &CardId) -> Option<&mut CardMachine> {
        self.0.get_mut(id)
    }

    /// A card that is known to be there.
    pub fn known(&self, id: &CardId) -> &CardMachine {
        self.0.get(id).expect(KNOWN)
    }

    /// A card that is known to be there.
    pub fn known_mut(&mut self, id: &CardId) -> &mut CardMachine {
        self.0.get_mut(id).expect(KNOWN)
    }

    pub fn contains(&self, id: &CardId) -> bool {
        self.0.contains_key(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&CardId, &CardMachine)> {
        self.0.iter()
    }

    pub fn ids(&self) -> impl Iterator<Item = &CardId> {
        self.0.keys()
    }

    /// The cards whose contents are known.
    pub fn ready(&self) -> Vec<CardId> {
        self.iter().filter(|(_, card)| card.is_ready()).map(|(id, _)| id.clone()).collect()
    }

    /// One region of a card, or all. None of a card that is not known.
    pub fn regions_meant(
        &self,
        id: &CardId,
        region: Option<RegionId>,
    ) -> impl Iterator<Item = RegionId> + use<> {
        let all = self.get(id).map(CardMachine::region_ids).into_iter().flatten();
        all.filter(move |found| region.is_none_or(|region| region == *found))
    }

    /// The regions that hold a bitstream or are to hold it.
    pub fn regions_with(&self, bitstream: &BitstreamId) -> Vec<(CardId, RegionId)> {
        let mut all = Vec::new();
        for (id, card) in self.iter() {
            let with = card.regions().iter().filter(|(_, e)| e.bitstream() == Some(bitstream));
            all.extend(with.map(|(region, _)| (id.clone(), region)));
        }
        all
    }
}
