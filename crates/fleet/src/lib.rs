//! The fleet's state machine: hosts, promises on them, placement over all cards.
//!
//! Pure: no sockets, no clock, no randomness. What happens comes in as an event with its time, what is to be done
//! goes out as an effect.
//!
//! ```text
//!   placement::Inventory   hosts, cards and their mirrored ledgers; which card a DAG goes to
//! ```

#![warn(clippy::missing_errors_doc)]

mod ids;
pub mod placement;

pub use ids::{FleetCard, HostId, InvalidHostName, NAME_CHARS_MAX, RackId, ZoneId};
