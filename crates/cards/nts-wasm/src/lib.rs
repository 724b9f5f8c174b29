//! Tenants' network tasks: WebAssembly modules with limits on work, time and memory.
//!
//! ```text
//!  bytes ── compile: size, features, imports, exports, a start for a try ──► module
//!                                                                             │ a DAG's first packet
//!  packet ──► frame copied into the module's buffer ──► snic_process ──► verdict, frame copied back
//!                      fuel for one packet ┘                  │ trap, no fuel left, answer that is none
//!                                                             └──► dropped and counted; the instance is
//!                                                                  made again, after a pause
//! ```
//!
//! A module's state outlives its instance where it says how: `snic_save` and `snic_restore`, within [`FUEL_TO_SAVE`] and
//! [`MODULE_STATE_BYTES_MAX`](snic_nts::MODULE_STATE_BYTES_MAX).
//!
//! A module can do nothing but compute: its only import is `snic.emit`. It has no clock, no file, no network and
//! no random numbers. What it can use up is bounded: [`FUEL_PER_PACKET`] for one packet, [`MODULE_MEMORY_BYTES_MAX`](snic_domain::limits::MODULE_MEMORY_BYTES_MAX) of
//! memory, [`STACK_BYTES_MAX`] of stack, [`EMITTED_MAX`] frames made of one. How much of the card's time all
//! modules of a tenant get is the card's decision (`snic-card-soft`).
//!
//! README.md beside this crate is for authors of modules; `include/snic_nt.h` is the ABI.

mod abi;
mod fuel;
mod host;
mod runtime;
mod state;
mod task;

pub use fuel::{FUEL_PER_PACKET, FUEL_TO_CONFIGURE, FUEL_TO_SAVE, FUEL_TO_START};
pub use host::EMITTED_MAX;
pub use runtime::{STACK_BYTES_MAX, WasmRuntime};
