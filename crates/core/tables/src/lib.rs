//! The on-card tables: register map, encoding, differences; and the commands to a card and
//! its reports.
//!
//! This crate is the only place that knows an address or a column. The controller encodes with it,
//! the driver finds its registers here, and the simulated card decodes the very same bytes.
//!
//! ```text
//!             writes                COMMIT n+1                 old packets gone
//! shadow bank ───────► rows differ ───────────► banks swapped ─────────────────► shadow := active
//! active bank (version n, every packet)         (version n+1, new packets)
//! ```
//!
//! A commit swaps the banks at once for packets that arrive, lets those under way finish with the
//! bank they began with, and then copies the changed rows, so that both banks are the same again
//! whenever no commit is under way. Only differences are ever written.

#![warn(clippy::missing_errors_doc)]

mod command;
pub mod configuration;
mod drop_cause;
mod guard;
mod image;
mod latency;
mod layout;
mod nt_entry;
pub mod programs;
pub mod registers;
mod rows;
mod windows;

pub use command::{
    CardCommand, CardCounters, CardReport, CardSnapshot, ConfigurationWay, DagCounters,
    LoadFailure, ProgramFailure, RegionSnapshot, RegionStatus, SaveSlot, StateDone, StateFailure,
    StateOrder, Ticket,
};
pub use configuration::DagConfiguration;
pub use drop_cause::DropCause;
pub use guard::GuardRow;
pub use image::{TableDelta, TableImage};
pub use latency::{LatencyReading, LatencySample, NtTime, PathPart, SAMPLED_NTS_MAX, is_sampled};
pub use layout::{BANK_WORDS, ROW_WORDS_MAX, RowKey, Table};
pub use rows::{
    ChainRow, ClassifierRow, CreditReservation, CreditRow, DagRow, Guest, InstancePlace,
    InstanceRow, InvalidRow, NONE, PACKETS_MARGIN, PROMISE_DEPTH, PageRow, RateLimiterRow,
    RegionRow, RowCodec, StageRow, Steering,
};
pub use windows::{
    ConfigurationInForce, UnconfiguredNt, WindowChanges, WindowErasure, WindowSlot, WindowWrite,
};
