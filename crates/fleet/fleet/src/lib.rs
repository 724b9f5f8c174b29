//! The fleet's state machine: hosts, promises on them, placement over all cards.
//!
//! Pure: no sockets, no clock, no randomness. What happens comes in as an event with its time, what is to be done
//! goes out as an effect.
//!
//! ```text
//! tenants, operators ── ask ──┐                        ┌── reply, notice ──►
//! hosts ──────────── report ──┼──► Replica ── journal ──┼── order ──► HostAgent, on each host
//! etcd ────────────── answer ──┘        │                └── request ──► etcd
//!                                       └─ placement::Inventory: cards and their mirrored ledgers
//! ```
//!
//! The leader decides promises: which DAG, which host, which card. Rates, instances and regions are the host's
//! business. Nothing that a leader decided is seen before etcd holds it, under the condition that it still leads.
//!
//! One crate, because leader, agent and placement speak of the same records: a border would make these public twice.

#![warn(clippy::missing_errors_doc)]

mod agent;
pub mod call_ledger;
mod dag_records;
mod fleet;
mod frozen;
mod frozen_state;
mod hosts;
mod ids;
mod journal;
mod leader;
pub mod placement;
pub mod protocol;
pub mod records;
mod request_id;
mod standby;
mod tenants;

pub use agent::{AgentEffect, AgentEvent, HostAgent, KeptDag, ServeRefused, holdings_digest};
pub use fleet::FleetSettings;
pub use ids::{FleetCard, HostId, RackId, ZoneId};
pub use leader::Replica;
pub use snic_domain::{NAME_CHARS_MAX, ProjectChange, ProjectId};
