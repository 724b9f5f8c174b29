//! Front of a gRPC server, before its services: listeners, identity, authorization, limits, and the loop
//! that serves. It knows no service and no state behind one, so every server of the project has the same.
//!
//! One crate, because every part decides about the same connections and calls: certificates, revocation, identity and limits have
//! no other user.
//!
//! ```text
//!  client ──TLS──► listen ──► gate (identity, access, limits) ──► services of the server
//! ```

pub mod authorization;
pub mod call_counts;
mod call_slots;
mod clock;
pub mod configurations;
pub mod error;
pub mod fields;
pub mod gate;
mod handshakes;
pub mod identity;
mod listen;
pub mod page;
mod pieces;
mod revocation;
mod serve;
pub mod settings;
pub mod share;
pub mod signals;
mod steps;
mod tls;
mod turns;
pub mod uploads;
pub mod workshop;

pub use clock::wall_clock;
pub use listen::ListenError;
pub use revocation::RevocationStatus;
pub use serve::{Front, ServeError, bind, routes, watch_health};
pub use snic_api::methods as access;
pub use tls::{InvalidTls, TlsReloader};
