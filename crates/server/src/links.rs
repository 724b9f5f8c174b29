//! How cards are reached: what an adapter learns when it opens a card and no register says. It is
//! shown to operators, and nothing is decided by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use snic_api::v1;
use snic_domain::CardId;

/// How one card is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardLink {
    /// By what: `simulated`, `XRT 2.13.0`.
    pub driver: String,
    /// How it is attached, such as `card 0 through XRT`.
    pub link: String,
    /// UUID of the shell or role that it holds; empty where it has none.
    pub shell: String,
}

/// The links of all cards, as they were when each was last opened. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CardLinks(Arc<Mutex<BTreeMap<CardId, CardLink>>>);

impl CardLinks {
    /// Remembers how a card is reached.
    pub fn set(&self, card: CardId, link: CardLink) {
        self.0.lock().insert(card, link);
    }

    /// Adds what is known to a card as clients see it.
    pub(crate) fn fill(&self, card: &mut v1::Card) {
        let id = card.name.strip_prefix("cards/").and_then(|id| CardId::new(id).ok());
        if let Some(known) = id.and_then(|id| self.0.lock().get(&id).cloned()) {
            (card.driver, card.link, card.shell_uuid) = (known.driver, known.link, known.shell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_was_opened_is_shown_with_its_link_and_no_other() {
        let links = CardLinks::default();
        let link = CardLink { driver: "XRT 2.13.0".into(), ..CardLink::default() };
        links.clone().set("card1".parse().expect("a label"), link);
        let filled = |name: &str| {
            let mut card = v1::Card { name: name.into(), ..v1::Card::default() };
            links.fill(&mut card);
            card.driver
        };
        assert_eq!(filled("cards/card1"), "XRT 2.13.0");
        assert_eq!(filled("cards/card0"), "");
        assert_eq!(filled(""), "");
    }
}
