//! Tests through the unmodified XRT library. Its emulation of hardware stands in for the driver,
//! and a process of this crate, around the simulated card, for the simulator that it expects.
//!
//! ```text
//!  snicd ── socketpair ── snicd xrt-worker ── libxrt_coreutil ── libxrt_hwemu
//!                                                                     │ unix socket, protobuf
//!                                             snic-xrt-device ◄───────┘
//!                                               device ── card-sim
//! ```
//!
//! These tests show that registers and buffers go through XRT correctly, and how the daemon reacts
//! when something on the way fails. What they cannot show is in `crates/cards/card-xrt/README.md`.

pub mod control;
pub mod daemon;
pub mod device;
pub mod embedded;
pub mod emulation;
mod memory;
pub mod serve;
mod wire;
