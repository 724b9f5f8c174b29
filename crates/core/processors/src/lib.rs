//! Where an NT runs if a card has more than an FPGA: regions, datapath threads (DPA), Arm cores, the
//! host's cores.
//!
//! ```text
//!  bitstreams/models/*.toml ──► NicModel: processors, the memories they reach, implementations   file.rs
//!                                    │
//!              NtDemand, Free ──► choose ──► Choice: implementation, threads, buffers, reasons     choose.rs
//!                                    │       and every other option with its objections         option.rs
//!                                    └── estimate: bandwidth and latency of one Setting           estimate.rs
//! ```
//!
//! A simulated card runs a program by [`service()`]: what each packet takes of a thread and of each memory.
//!
//! Everything here is pure. A [`NicModel`] holds what somebody measured or printed, with the source in its
//! file; what nobody measured is `None` and stays unknown: no promise rests on it ([`Objection::Unmeasured`]).
//! Packets of other sizes than were measured are promised what follows from those that were ([`SizeBound`]).
//!
//! The choice follows the three guidelines of *Demystifying Datapath Accelerator Enhanced Off-path
//! SmartNIC* (ICNP '24, VI), in [`Guideline`]'s words:
//!
//! 1. Simple NTs that need low latency go to the DPA, their packets to DPA memory. Those that compute do not, nor
//!    those that need low latency and access memory much.
//! 2. Parallel NTs with a small working set may go to the DPA, since it has many slow threads.
//! 3. Buffers are chosen by use: DPA memory receives an eighth of the line, host memory is slow to read.
//!
//! A guideline is advice: an option against it is taken only where no other option serves the demand. What
//! is impossible (too slow, too late, no thread left, unmeasured) is an [`Objection`] that excludes an option.

mod choose;
mod dag;
mod estimate;
mod file;
mod model;
mod option;
mod service;

pub use choose::{Choice, Free, NoChoice, NtDemand, Offer, RegionOffer, choose, options};
pub use dag::{Fit, NodePlacement, fit, place};
pub use estimate::{Estimate, Setting, SizeBound, ThroughputLimit, estimate, settings};
pub use file::{InvalidModel, UnusableModels, builtin, parse, with_folder};
pub use model::{
    Architecture, ByteRate, CardShell, Implementation, Intensity, MeasuredPoint, MemoryPath,
    NicModel, PacketWork, Processor,
};
pub use option::{Guideline, Objection, PlacementOption};
pub use service::{PacketService, service};
pub use snic_domain::{MemoryKind, ProcessorKind};
