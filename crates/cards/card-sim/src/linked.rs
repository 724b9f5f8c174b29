//! Ends of a card's links: what whoever connects cards takes from it and gives to it.

use snic_domain::Timestamp;

use crate::card::SimCard;
use crate::links::{LinkCounters, LinkFrame, SentFrame};

impl SimCard {
    /// Number of its links.
    pub fn link_count(&self) -> u8 {
        self.plane.links.count()
    }

    /// Frames that left since the last call, in the order in which they did.
    pub fn take_link_frames(&mut self) -> Vec<SentFrame> {
        self.plane.links.take_sent()
    }

    /// The last bit of a frame comes in at a time that the card has not reached yet; at once, where it has. A link that the
    /// card does not have takes nothing.
    pub fn link_arrives(&mut self, link: u8, at: Timestamp, frame: LinkFrame) {
        let cycle = self.plane.clock().cycle_at(at);
        self.plane.link_arrives(link, cycle, frame);
    }

    /// Counts of a link; zero where the card does not have it.
    pub fn link_counters(&self, link: u8) -> LinkCounters {
        self.plane.links.counters(link)
    }
}
