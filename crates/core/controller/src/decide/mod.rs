//! Decisions as pure functions over copies: which card, which placement, which table rows.
//!
//! Start at [`admission`]: candidates on scratch ledgers in, an admission or the reasons against it out. [`batch`] does the same for many DAGs
//! together; [`rows`] turns a placement into rows of the card's tables.
//!
//! **Invariant.** Nothing here changes state, so a request that is only validated and one that is applied get the same answer.

pub(crate) mod admission;
pub(crate) mod batch;
pub(crate) mod card_choice;
pub(crate) mod memory_use;
pub(crate) mod mixed_cards;
pub(crate) mod rows;
pub(crate) mod thread_use;
