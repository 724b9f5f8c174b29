//! Card links: facts that an adapter learns when it opens a card and that no register contains. They are
//! shown to operators and decide nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use snic_api::v1;
use snic_domain::CardId;
use snic_ports::packets::PacketWindow;

/// How a card is connected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardLink {
    /// Driver, such as `simulated` or `XRT 2.13.0`.
    pub driver: String,
    /// Attachment, such as `card 0 through XRT`.
    pub link: String,
    /// UUID of the loaded shell or role; empty if there is none.
    pub shell: String,
}

/// The links of all cards, as of their last opening. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CardLinks(Arc<Mutex<BTreeMap<CardId, Known>>>);

/// The known facts of a card.
#[derive(Default)]
struct Known {
    link: CardLink,
    window: Option<Arc<dyn PacketWindow>>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.link.fmt(f)
    }
}

impl CardLinks {
    /// Sets a card's link.
    pub fn set(&self, card: CardId, link: CardLink) {
        self.0.lock().entry(card).or_default().link = link;
    }

    /// Sets the source from which a card's packets can be watched.
    pub fn set_window(&self, card: CardId, window: Arc<dyn PacketWindow>) {
        self.0.lock().entry(card).or_default().window = Some(window);
    }

    /// The source from which a card's packets can be watched, if there is one.
    pub(crate) fn window(&self, card: &CardId) -> Option<Arc<dyn PacketWindow>> {
        self.0.lock().get(card)?.window.clone()
    }

    /// Adds a card's link to its message.
    pub(crate) fn fill(&self, card: &mut v1::Card) {
        let id = card.name.strip_prefix("cards/").and_then(|id| CardId::new(id).ok());
        if let Some(link) = id.and_then(|id| Some(self.0.lock().get(&id)?.link.clone())) {
            (card.driver, card.link, card.shell_uuid) = (link.driver, link.link, link.shell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_opened_card_has_its_link() {
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
