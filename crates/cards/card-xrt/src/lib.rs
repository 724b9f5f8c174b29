//! Cards that are driven through Xilinx's XRT library.
//!
//! XRT runs in a separate process: it aborts if its environment is not what it expects, it
//! waits forever for a driver that does not answer, and its emulation kills its whole process
//! group when it fails. None of that may reach the daemon.
//!
//! ```text
//!  snicd                                        snicd xrt-worker (a process group of its own)
//!  ┌───────────────┐  socketpair, frames with   ┌──────────────────────────────────────────┐
//!  │ XrtCard: Card │  a deadline by kind of call │ worker ─► device ─► library (dlopen: XRT) │
//!  │ watchdog      │ ◄─────────────────────────► │                                          │
//!  └───────────────┘  late, gone or garbage:     └──────────────────────────────────────────┘
//!                     the group is killed, the
//!                     card is lost, and is opened and read again
//! ```
//!
//! This crate does not know what a register means: registers and buffers pass through unchanged, and the
//! driver (`snic_ports::driver`) has the sequences.

mod card;
pub mod environment;
mod launch;
mod library;
mod monitor;
mod process;
mod protocol;
mod sysfs;
mod worker;

pub use card::{Observe, Tell, XrtCard, XrtCardInfo};
pub use launch::XrtCardSettings;
pub use library::{LibraryError, SYMBOLS, Version, probe};
pub use monitor::{DriverErrors, XrtMonitor};
pub use process::CallDeadlines;
pub use protocol::{CardSelector, Finding, TracedWork};
pub use sysfs::{CardPlatform, device_folder, read_platform};
pub use worker::{WorkerEnd, serve};

/// Bytes that the kernel with the register map has to have.
pub const REGISTERS_BYTES: u64 = snic_tables::registers::END as u64;

/// Bytes that the kernel has before them for its handshake and arguments.
pub const FIRST_REGISTER: u64 = snic_tables::registers::FIRST as u64;

/// The kernel with the register map, as `kernel:instance`, where the settings name no other.
pub const CONTROL: &str = "snic_control:control_0";
