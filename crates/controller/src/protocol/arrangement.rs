//! What a search for a better arrangement of a card has found.

use snic_domain::CardId;
use snic_planner::Move;

/// A move that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedMove {
    pub step: Move,
    /// Serial of the placement that it begins with.
    pub serial: u64,
}

/// Moves to a better arrangement of a card; none if there is none that is worth it.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrangement {
    pub(crate) card: CardId,
    /// In order.
    pub(crate) moves: Vec<PlannedMove>,
    /// Whether DAGs were on their way to a place, which could not be moved yet.
    pub(crate) is_under_way: bool,
}

impl Arrangement {
    /// Nothing is moved: the answer, too, where the card is not there or not known any more.
    pub const fn as_it_is(card: CardId) -> Self {
        Self { card, moves: Vec::new(), is_under_way: false }
    }

    /// The card.
    pub const fn card(&self) -> &CardId {
        &self.card
    }
}
