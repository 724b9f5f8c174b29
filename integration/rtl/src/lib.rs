//! The shell in SystemVerilog (`bitstreams/shell`) as a card: Verilator makes a process of it, which is driven through its
//! ports alone.
//!
//! ```text
//!  test ── RtlCard: Card ── frames ── snic-rtl (sim/main.cpp) ── AXI4-Lite ── snic_core
//!             │ bulk transfers            memory ────────────────── AXI4 ─────┤
//!             │ images                    ICAPE3, regions ──────── their pins ┤
//!             └ packets                   wires ───────── AXI4-Stream, 512 b ┘
//! ```
//!
//! Time is the simulation's: nothing happens on the card but while an access runs, or while it is polled.

mod card;
mod process;
mod program;
mod wires;

pub use card::RtlCard;
pub use process::{InjectedFault, Response, RtlProcess, Surroundings};
pub use program::{Shell, is_there};
pub use wires::{ReceivedPacket, RegionConduct, SentPacket};
