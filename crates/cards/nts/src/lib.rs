//! Functional network tasks: bytes in, bytes out.
//!
//! A simulated NT delays a packet; these change it. Each NT is a state machine without I/O, clock or
//! randomness of its own, so a card process, a test and a fuzzer run the same code:
//!
//! ```text
//!  configuration (JSON, checked against the type's schema) ──► configure
//!  packet with headroom ──► process(packet, context: now, random, pool) ──► verdict, emitted packets
//!  saved state ◄── save / restore ──► saved state
//! ```
//!
//! An NT can say as a rule what further packets of a flow get ([`FlowRule`]), and need not read them then: firewall, NAT, load
//! balancer, policer and checksum do so.
//!
//! Three rules hold for every NT, whatever the bytes are: it never panics, it allocates nothing per
//! packet (packets come from a bounded [`Pool`], tables have a fixed capacity), and a packet that it
//! does not let through is counted under a [`DropReason`].
//!
//! One crate, because each task is a module beside the others over the same wire formats and tables, and
//! whoever runs one takes the list of all.

mod aging;
mod catalogue;
pub mod config;
mod counters;
mod flow_rules;
mod module;
mod packet;
mod state;
mod task;
mod tasks;
mod verdict;
pub mod wire;

pub use catalogue::{
    NT_TYPES, UnknownNtType, check, configuration_words, create, has_digests, redacted, schema,
    with_secrets,
};
pub use counters::{Counters, DropReason};
pub use flow_rules::{FlowKey, FlowRule};
pub use module::{
    CompiledModule, InvalidModule, MODULE_STATE_BYTES_MAX, ModuleInstance, ModuleRuntime,
    ModuleState, ModuleTask,
};
pub use packet::{HEADROOM, NoRoom, Packet, Pool, Translation};
pub use state::{InvalidState, STATE_BYTES_MAX};
pub use task::{Context, Direction, Emitted, NetworkTask, NtInstance};
pub use verdict::Verdict;
