//! A host's link to its fleet. One task owns the agent (`snic_fleet::HostAgent`), which decides; the others carry out
//! what it wants.
//!
//! ```text
//!  replicas ──orders──► link ──► HostAgent ──► effects ──┬─► dags: assigned, changed, withdrawn ──┐
//!     ▲                  ▲                                └─► provisions: NT types, images ────────┤
//!     └────reports───────┴──────────────────────── outcomes ◄─────────────────────────────────────┘
//!
//!  leader ──number of a call──► link ──► answers: reads the call, sends what the host's own service replies
//! ```
//!
//! The host serves on whatever happens here. Nothing here is stored but the epoch: what is assigned and provided stands
//! in the controller's records, and is read from them at the start. All queues are bounded: while one is full, no further
//! order is read.

#![warn(clippy::missing_errors_doc)]

mod answers;
mod connection;
mod dags;
mod host;
mod link;
mod places;
mod provisions;
mod served;
mod status;
mod tls;

pub use host::{HostFailure, LinkedHost};
pub use link::{HostLink, LinkSettings};
pub use status::LinkStatus;
pub use tls::LinkTls;
