//! Cards that are connected by links, step by step in one simulated time.
//!
//! Each card has a link to each other one: link `k` of card `i` leads to card `i + k + 1`, counted round. Behind the card's port
//! the frame takes the cables of the pool's shape:
//!
//! ```text
//!  ring:    card ─► card ─► card     as many cables as the other card is far, the shorter way; cards in between pass it on
//!  switch:  card ─► switch ─► card   two cables, whoever the other card is
//! ```
//!
//! A cable passes one frame after the other at the capacity of a link, and each takes its latency. What waits for one is bounded.
//! Cards run for no longer than the least latency at a time, so a frame always comes in at a time that the card has not passed.

use std::collections::BinaryHeap;
use std::time::Duration;

use snic_domain::{LinkProfile, Timestamp};
use snic_ports::card::Card;

use crate::card::SimCard;
use crate::links::LinkFrame;

/// Bytes that may wait for a cable: a switch's buffer for one port. A choice; of a ring's cards it is what they keep for frames
/// that pass.
const CABLE_QUEUE_BYTES: u64 = 64 << 10;
const PICOS_PER_NANO: u64 = 1_000;

/// Arrangement of the cables between cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolShape {
    /// Each card is connected with two neighbours.
    Ring,
    /// All cards are connected with one switch.
    Switch,
}

/// Cards that cannot be connected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPool {
    /// One card has nobody to be connected with.
    #[error("a pool of {0} cards: give at least two")]
    TooFew(usize),
    /// A card has other links than it needs.
    #[error("card {card} has {links} links: in a pool of {cards} cards each needs at least {}, all alike", cards - 1)]
    Links {
        /// Place of the card.
        card: usize,
        links: u8,
        /// Number of cards in the pool.
        cards: usize,
    },
}

/// Frames that did not come through the cables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CableLosses {
    /// On a cable that is cut.
    pub cut: u64,
    /// Before a cable for which too many waited.
    pub full: u64,
}

#[derive(Debug, Clone, Copy)]
struct Cable {
    /// When it has passed what was sent, in picoseconds.
    free: u64,
    is_cut: bool,
}

/// A frame between two cards.
#[derive(Debug)]
struct Transit {
    /// When its last bit is where the next cable begins, or at the card.
    at: u64,
    /// Among equals, the one that came first.
    order: u64,
    /// The cables that it has before it, the next one last.
    cables: Vec<usize>,
    /// Whether the next cable is the one behind the sender's port.
    is_first: bool,
    to: usize,
    link: u8,
    frame: LinkFrame,
}

impl PartialEq for Transit {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Transit {}

impl PartialOrd for Transit {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest, as the heap gives the greatest first.
impl Ord for Transit {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Simulated cards with links between them.
#[derive(Debug)]
pub struct CardPool {
    cards: Vec<SimCard>,
    shape: PoolShape,
    links: LinkProfile,
    now: Timestamp,
    cables: Vec<Cable>,
    under_way: BinaryHeap<Transit>,
    frames: u64,
    losses: CableLosses,
}

impl CardPool {
    /// Connects cards. Their clocks are set to that of the last one.
    ///
    /// # Errors
    /// There are fewer than two, or one has too few links or other ones than the first.
    pub fn new(cards: Vec<SimCard>, shape: PoolShape) -> Result<Self, InvalidPool> {
        let number = cards.len();
        let links = cards.first().and_then(|card| card.profile().links);
        let (2.., Some(links)) = (number, links) else {
            return Err(match number {
                0 | 1 => InvalidPool::TooFew(number),
                _ => InvalidPool::Links { card: 0, links: 0, cards: number },
            });
        };
        for (at, card) in cards.iter().enumerate() {
            let has = card.link_count();
            if usize::from(has) + 1 < number || card.profile().links != Some(links) {
                return Err(InvalidPool::Links { card: at, links: has, cards: number });
            }
        }
        let now = cards.iter().map(SimCard::now).max().unwrap_or(Timestamp::ZERO);
        let mut pool = Self {
            cards,
            shape,
            links,
            now,
            cables: vec![Cable { free: 0, is_cut: false }; 2 * number],
            under_way: BinaryHeap::new(),
            frames: 0,
            losses: CableLosses::default(),
        };
        pool.run_cards();
        Ok(pool)
    }

    /// One of the cards.
    ///
    /// # Panics
    /// The pool has no such card.
    pub fn card(&mut self, at: usize) -> &mut SimCard {
        &mut self.cards[at]
    }

    /// The link of a card that leads to another one.
    pub fn link(&self, from: usize, to: usize) -> u8 {
        let cards = self.cards.len();
        ((to + cards - from - 1) % cards) as u8
    }

    /// The present time of all cards.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Frames that were lost between the cards.
    pub const fn losses(&self) -> CableLosses {
        self.losses
    }

    /// Frames between the cards.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Cuts the cables that connect two cards, or mends them; frames on them are still under way.
    pub fn cut(&mut self, one: usize, other: usize, is_cut: bool) {
        for (from, to) in [(one, other), (other, one)] {
            for cable in self.path(from, to) {
                self.cables[cable].is_cut = is_cut;
            }
        }
    }

    /// Moves all cards on.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        let step = Duration::from_nanos(self.links.latency_nanos.into());
        while self.now < end {
            self.now = end.min(self.now + step);
            self.run_cards();
        }
    }

    /// Finds what must never be, on any of the cards.
    ///
    /// # Errors
    /// As [`SimCard::check`], with the card's place.
    pub fn check(&self) -> Result<(), String> {
        let mut all = self.cards.iter().enumerate();
        all.try_for_each(|(at, card)| card.check().map_err(|what| format!("card {at}: {what}")))
    }

    /// The cables from one card to another, the last one first. Those that go round have the numbers of the cards that they
    /// begin at, and so have those to the switch; those the other way, and those from the switch, come behind.
    fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let cards = self.cards.len();
        let ahead = (to + cards - from) % cards;
        let mut path: Vec<usize> = match self.shape {
            PoolShape::Switch => vec![from, cards + to],
            PoolShape::Ring if 2 * ahead <= cards => {
                (0..ahead).map(|hop| (from + hop) % cards).collect()
            }
            PoolShape::Ring => {
                (0..cards - ahead).map(|hop| cards + (from + cards - hop) % cards).collect()
            }
        };
        path.reverse();
        path
    }

    fn run_cards(&mut self) {
        for from in 0..self.cards.len() {
            // A card that its host lost goes on with its packets.
            let _ = self.cards[from].poll(self.now);
            for sent in self.cards[from].take_link_frames() {
                let to = (from + usize::from(sent.link) + 1) % self.cards.len();
                self.frames += 1;
                self.under_way.push(Transit {
                    at: sent.at.as_nanos() * PICOS_PER_NANO,
                    order: self.frames,
                    cables: self.path(from, to),
                    is_first: true,
                    to,
                    link: self.link(to, from),
                    frame: sent.frame,
                });
            }
        }
        let now = self.now.as_nanos() * PICOS_PER_NANO;
        while self.under_way.peek().is_some_and(|transit| transit.at <= now) {
            if let Some(transit) = self.under_way.pop() {
                self.pass_cable(transit);
            }
        }
    }

    /// A frame takes its next cable.
    fn pass_cable(&mut self, mut transit: Transit) {
        let Some(number) = transit.cables.pop() else { return };
        let capacity = u128::from(self.links.capacity.get());
        let picos = |bytes: u64| {
            let bits = u128::from(bytes) * 8 * 1_000_000_000_000;
            u64::try_from(bits.div_ceil(capacity)).unwrap_or(u64::MAX)
        };
        let takes = picos(transit.frame.wire_bytes().into());
        let longest = picos(CABLE_QUEUE_BYTES);
        let cable = &mut self.cables[number];
        if cable.is_cut {
            self.losses.cut += 1;
            return;
        }
        // Behind the sender's port the bits are already one behind the other.
        let ready = transit.at.saturating_sub(if transit.is_first { takes } else { 0 });
        let start = ready.max(cable.free);
        if start - ready > longest {
            self.losses.full += 1;
            return;
        }
        cable.free = start + takes;
        transit.at = cable.free + u64::from(self.links.latency_nanos) * PICOS_PER_NANO;
        transit.is_first = false;
        if transit.cables.is_empty() {
            let at = Timestamp::from_nanos(transit.at.div_ceil(PICOS_PER_NANO));
            return self.cards[transit.to].link_arrives(transit.link, at, transit.frame);
        }
        self.under_way.push(transit);
    }
}
