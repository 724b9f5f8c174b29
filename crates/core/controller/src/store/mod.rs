//! Records and the way they become durable.
//!
//! Start at [`tx::Tx`]: what one event changes, records and effects together. [`outbox::Outbox`] holds the effects back until the batch they
//! follow is durable. [`records`] lists each kind of record.
//!
//! **Invariant.** Nothing leaves the controller, neither a reply nor a command to a card, before the records it rests on are durable.

pub(crate) mod history;
pub(crate) mod log;
pub(crate) mod outbox;
pub(crate) mod records;
pub(crate) mod requests;
pub(crate) mod revisions;
pub(crate) mod tx;
