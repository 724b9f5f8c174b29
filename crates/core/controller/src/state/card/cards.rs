//! All cards that were ever seen.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{BitstreamId, CardId, CardProfile, Digest, RegionId};
use snic_planner::Objective;

use super::CardMachine;
use super::regions::ObservedContent;
use crate::store::records::RecordKey;
use crate::store::tx::Tx;

/// Why a card is there: reports and commands that name another one are refused at the door, and a card
/// goes only with all that names it.
const KNOWN: &str = "cards that are not known were refused, and none goes while something names it";

/// The cards, by id.
#[derive(Debug, Default)]
pub(crate) struct Cards {
    seen: BTreeMap<CardId, CardMachine>,
    /// Why cards that were never seen are not there.
    absent: BTreeMap<CardId, String>,
    /// Devices that answer in the place of a card and are another one.
    newcomers: BTreeMap<CardId, CardProfile>,
    /// Cards that were removed since the daemon started: their threads are not listened to.
    removed: BTreeSet<CardId>,
}

impl Cards {
    /// A card that was never seen before.
    pub fn add(&mut self, id: CardId, card: CardMachine) {
        let before = self.seen.insert(id, card);
        assert!(before.is_none(), "a card is added once");
    }

    /// A card that was never seen could not be opened, for this reason.
    pub fn set_absent(&mut self, id: CardId, reason: String) {
        debug_assert!(!self.contains(&id), "a card that was seen is lost instead");
        self.absent.insert(id, reason);
    }

    /// A card was opened, for the first time or again, or it was tried: what was found before counts no more.
    pub fn opened(&mut self, id: &CardId) {
        self.absent.remove(id);
        self.newcomers.remove(id);
    }

    /// Another device answers in the place of a card that was seen.
    pub fn set_newcomer(&mut self, id: CardId, profile: CardProfile) {
        debug_assert!(self.contains(&id), "it answers in the place of one that was seen");
        self.newcomers.insert(id, profile);
    }

    /// The device that answers in the place of a card.
    pub fn newcomer(&self, id: &CardId) -> Option<&CardProfile> {
        self.newcomers.get(id)
    }

    /// A card goes, with what is stored of it; nothing else names it any more.
    pub fn take_away(&mut self, tx: &mut Tx, id: &CardId) {
        let card = self.seen.remove(id).expect(KNOWN);
        self.newcomers.remove(id);
        for region in card.region_ids() {
            tx.delete(RecordKey::Region(id.clone(), region));
            tx.emit_region(id, region);
        }
        tx.delete(RecordKey::Card(id.clone()));
    }

    /// A card that was taken away is not opened again before the daemon starts again.
    pub fn set_removed(&mut self, id: CardId) {
        self.removed.insert(id);
    }

    /// Whether a card was removed since the daemon started.
    pub fn is_removed(&self, id: &CardId) -> bool {
        self.removed.contains(id)
    }

    /// The cards that were never seen, and why not.
    pub fn absent(&self) -> impl Iterator<Item = (&CardId, &str)> {
        self.absent.iter().map(|(id, why)| (id, why.as_str()))
    }

    /// Says what plans for all cards save first.
    pub fn set_objective(&mut self, objective: Objective) {
        self.seen.values_mut().for_each(|card| card.set_objective(objective));
    }

    /// A card that a caller named, if there is one.
    pub fn get(&self, id: &CardId) -> Option<&CardMachine> {
        self.seen.get(id)
    }

    /// A card that a record named, if there is one.
    pub fn get_mut(&mut self, id: &CardId) -> Option<&mut CardMachine> {
        self.seen.get_mut(id)
    }

    /// A card that is known to be there.
    pub fn known(&self, id: &CardId) -> &CardMachine {
        self.seen.get(id).expect(KNOWN)
    }

    /// A card that is known to be there.
    pub fn known_mut(&mut self, id: &CardId) -> &mut CardMachine {
        self.seen.get_mut(id).expect(KNOWN)
    }

    pub fn contains(&self, id: &CardId) -> bool {
        self.seen.contains_key(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&CardId, &CardMachine)> {
        self.seen.iter()
    }

    /// Whether a region of any card holds these bytes. Time O(regions).
    pub fn hold(&self, digest: Digest) -> bool {
        let mut regions = self.seen.values().flat_map(|card| card.regions().iter());
        regions.any(|(_, region)| region.observed() == ObservedContent::Holds(digest))
    }

    pub fn ids(&self) -> impl Iterator<Item = &CardId> {
        self.seen.keys()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn id(text: &str) -> CardId {
        CardId::new(text).expect("a label")
    }

    fn absent(cards: &Cards) -> Vec<(&str, &str)> {
        cards.absent().map(|(id, why)| (id.as_str(), why)).collect()
    }

    #[test]
    fn a_card_that_could_not_be_opened_is_absent_until_it_is() {
        let mut cards = Cards::default();
        cards.set_absent(id("card1"), "no such device".into());
        cards.set_absent(id("card0"), "permission denied".into());
        cards.set_absent(id("card1"), "it does not answer".into());
        assert_eq!(
            absent(&cards),
            [("card0", "permission denied"), ("card1", "it does not answer")]
        );
        cards.opened(&id("card1"));
        assert_eq!(absent(&cards), [("card0", "permission denied")]);
        assert!(!cards.contains(&id("card0")), "it was never seen");
    }

    #[test]
    fn regions_of_a_card_are_meant_one_by_one_or_together() {
        let mut cards = Cards::default();
        cards.add(
            id("card0"),
            CardMachine::new(id("card0"), fixtures::profile(3), Objective::default()),
        );
        let meant = |card: &str, region: Option<u8>| -> Vec<RegionId> {
            cards.regions_meant(&id(card), region.map(RegionId)).collect()
        };
        assert_eq!(meant("card0", None).len(), 3);
        assert_eq!(meant("card0", Some(2)), [RegionId(2)]);
        assert_eq!(meant("card0", Some(3)), [], "it has no such region");
        assert_eq!(meant("card1", None), [], "there is no such card");
        assert_eq!(cards.ready(), [], "it has not said yet what it holds");
        assert_eq!(cards.ids().collect::<Vec<_>>(), [&id("card0")]);
    }

    #[test]
    #[should_panic(expected = "a card is added once")]
    fn a_card_is_not_added_over_another_one() {
        let mut cards = Cards::default();
        for _ in 0..2 {
            cards.add(
                id("card0"),
                CardMachine::new(id("card0"), fixtures::profile(1), Objective::default()),
            );
        }
    }

    #[test]
    #[should_panic(expected = "cards that are not known were refused")]
    fn a_card_that_nobody_added_is_not_known() {
        Cards::default().known(&id("card0"));
    }
}
