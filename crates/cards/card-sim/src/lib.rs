//! The simulated card: a cycle-level data plane behind the register map.
//!
//! It is driven through the same port as a real card and decodes the very bytes that
//! `snic-tables` encodes; it knows regions, rows and UIDs, and no tenant. Two layers:
//!
//! ```text
//!   Card port          registers ── memory ── configuration controller ── faults     card.rs
//!                          │                            │
//!   tables, regions     banks.rs ◄── commit          region.rs ◄── load
//!                          │                            │
//!   data plane          sources ─► ingress ─► scheduler ─► regions ─► egress         plane/
//! ```
//!
//! Everything is determined by the card profile, a seed and the calls: the same calls give the same
//! digest of all packets on every machine.
//!
//! One crate, because registers, data plane and faults act on the same cycle and the same packets; designs
//! that only figures use are in `snic-offloads`.

mod banks;
mod beside;
mod capture;
mod card;
mod configuration;
mod configurator;
mod context;
mod crc;
mod decoded;
mod faults;
mod flows;
mod frame;
mod frames;
mod histogram;
mod latency;
mod linked;
mod links;
mod load;
mod measurement;
mod memory;
mod nt;
mod plane;
mod pool;
mod processors;
mod profile;
mod region;
mod registers;
mod shaper;
mod shared;
mod slab;
mod spread;
mod states;
mod time;
mod trace;
mod traffic;
mod wheel;
mod wrapper;

pub use capture::{Capture, InvalidCapture};
pub use card::{Accesses, SimCard, SourceId};
pub use faults::Faults;
pub use frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
pub use frames::{FrameAtNt, FrameId, Frames, MadeFrame, NtOutcome, Preparation, Sighting};
pub use histogram::Latency;
pub use links::{
    LINK_DESCRIPTOR_BYTES, LINK_NOTICE_BYTES, LinkCounters, LinkDescriptor, LinkFrame, LinkMessage,
    SentFrame,
};
pub use load::LoadMeter;
pub use measurement::{DagMeasurement, Measurements};
pub use plane::{BucketLimit, BucketState, MemoryAccess, PlaneOptions, RegionPace, ShaperMemory};
pub use pool::{CableLosses, CardPool, InvalidPool, PoolShape};
pub use profile::InvalidProfile;
pub use shared::{HeldClock, SharedLoad, SharedSimCard};
pub use trace::{PacketOutcome, PacketRecord};
pub use traffic::{Arrivals, Header, IMIX, InvalidSource, Sizes, TrafficSource};
