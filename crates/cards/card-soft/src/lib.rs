//! The software card: a process that forwards real packets behind the register map.
//!
//! ```text
//!  snicd                                   snicd card (a separate process; outlives the daemon)
//!  ┌────────────────┐  unix socket,        ┌─────────────────────────────────────────────┐
//!  │ SoftCard: Card │  frames with a       │ control ─► machine: the card model of       │
//!  └────────────────┘  deadline            │            card-sim on the wall clock       │
//!        ▲                                 │              │ frames        ▲              │
//!        └── killed and started again:     │            NTs (crate nts)   │              │
//!            finds the card as it was      │              │               │              │
//!                                          │            switch ◄──► ports: TAP, AF_PACKET│
//!                                          └─────────────────────────────────────────────┘
//! ```
//!
//! One thread owns the model, the NTs and the ports. Packets are received in batches, go through the
//! model at the wall clock's time, and leave when the model says so: rates, queues and the time of a
//! reconfiguration are the model's. The card knows registers, regions and images, and no tenant.
//!
//! Tenants' NTs are WebAssembly modules in bitstreams. This crate knows where they are and what they may take;
//! the program that is the card brings the runtime along ([`CardExtras`]), or refuses them. So it is with vhost-user ports,
//! which are a [`Port`] like others.
//!
//! One crate, because a frame goes from a port through model and NTs to a port in one loop that allocates nothing: ports,
//! segments and machine share its buffers and are measured together.
//!
//! Memory is bounded: [`FRAMES_MAX`] frames of up to [`FRAME_BYTES_MAX`] bytes, what the configured
//! NTs hold, 24 MB for rules of flows, 2 MiB for each of 128 instances of modules, 1.5 MiB for each of eight captures, and of the kernel's memory a ring of 8 MiB and a queue of at most 8 MiB for each
//! AF_PACKET port. When no buffer is free, a port drops what arrives and counts it; what the ring of an AF_PACKET socket or
//! the queue of a TAP device drops is counted with it. A packet allocates nothing.

mod bench;
mod captures;
mod client;
mod control;
mod datapath;
mod failover;
mod flows;
mod fragments;
mod frame_patterns;
mod generator;
mod header;
mod header_rules;
#[cfg(test)]
mod hostile;
mod loads;
mod machine;
mod merging;
mod modules;
mod offload;
mod poller;
mod port_guard;
mod ports;
mod process;
mod protocol;
mod segments;
mod stations;
mod switch;
mod tasks;
mod window;

pub use bench::{FrameBench, LeftFrame};
pub use client::{CardProcess, SoftCard};
pub use control::{CardExtras, SoftCardFailure, serve, serve_folder};
pub use failover::{Failover, InvalidFailover};
pub use generator::SoftGenerator;
pub use header_rules::HeaderRule;
pub use machine::FRAMES_MAX;
pub use offload::{
    FlowOffload, OffloadCounts, OffloadFailure, OffloadRule, OffloadUse, OpenOffload,
};
pub use port_guard::{FunctionGuard, InvalidGuard};
pub use ports::{InvalidPort, OpenPort, Port, PortSpec, Received, Sent, enter_network};
pub use process::{CardFolder, Program};
pub use protocol::{Observation, TaskObservation};
pub use segments::{OFFLOAD_BYTES, SEGMENTS_MAX, complete};
pub use window::SoftWindow;

/// The largest frame: a jumbo frame with its VLAN tags.
pub const FRAME_BYTES_MAX: usize = 9_216;

/// Settings of a card process, which it gets when it starts.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftCardSettings {
    /// The card's model: one of the catalogue.
    pub model: String,
    /// The port to the network, if there is one.
    pub uplink: Option<PortSpec>,
    /// The ports of the virtual functions, by number.
    pub functions: Vec<PortSpec>,
    /// Limits of the virtual functions' ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<FunctionGuard>,
    /// Stations that functions share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failovers: Vec<Failover>,
    /// Whether flows whose packets change in headers only pass in the kernel, where that is possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fast_path: bool,
}
