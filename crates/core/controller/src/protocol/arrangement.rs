//! Result of a search for a better arrangement of a card.

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
    pub(crate) moves: Vec<PlannedMove>,
    /// Whether DAGs were on their way to a place, which could not be moved yet.
    pub(crate) is_under_way: bool,
    /// Whether the search ended in a defect.
    pub(crate) has_failed: bool,
}

impl Arrangement {
    /// Nothing is moved: the answer, too, where the card is not there or not known any more.
    pub const fn as_it_is(card: CardId) -> Self {
        Self { card, moves: Vec::new(), is_under_way: false, has_failed: false }
    }

    /// The search ended in a defect: nothing is moved, and who asked for it is told.
    pub fn failed(card: CardId) -> Self {
        Self { has_failed: true, ..Self::as_it_is(card) }
    }

    /// Whether the search ended in a defect.
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub const fn card(&self) -> &CardId {
        &self.card
    }
}
