//! Parts of a card that its topology is made from.

use snic_domain::CardId;

use crate::state::card::CardMachine;
use crate::state::registry::Registry;

/// A card with its id, and the registry that knows its NTs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnCard<'a> {
    pub id: &'a CardId,
    pub card: &'a CardMachine,
    pub registry: &'a Registry,
}
