//! Other designs of a card's data path, over the same offloads: FlexPipe, a static pipeline, PANIC;
//! and OSMOSIS, whose offloads are programs.
//!
//! These cards have no regions and no tables of ours: each offload is there for good, in as many
//! units as line rate needs ([`units`]), and what differs is how packets find them.
//!
//! ```text
//!  pipeline (static, FlexPipe)          ┌─ bypass ──────────────┐
//!    ingress ─►[offload 1]─►[offload 2]─┤                       ├─►…─► egress ─► out
//!       ▲                               └─ balancer ─► units ───┘        │
//!       └───────────────────── recirculation ────────────────────────────┘
//!  crossbar (PANIC)
//!    ingress ─► scheduler ─► crossbar ─► offload ─► crossbar ─► offload … ─► out
//! ```
//!
//! One engine runs all three: who sends to whom, what a transfer takes, and which unit gets a packet
//! are all that differs. Cycles are the data path's; units may be slower and narrower.
//!
//! A NIC with processors in place of offloads is another machine: OSMOSIS's, in `processors`.

mod engine;
mod packets;
mod processors;
mod run;
mod unit;

pub use processors::{KernelPacket, KernelQueue, PoolMeasurement, ProcessorPool, QueueArbiter};
pub use run::{FlowMeasurement, Measurement, Workload};

/// Shortest frame of Ethernet, in bytes.
const FRAME_BYTES_MIN: u32 = 64;
/// Longest jumbo frame, in bytes.
const FRAME_BYTES_MAX: u32 = 9_216;
/// Most offloads of a design: a chain is a mask of a byte in the wrappers of a region too.
const OFFLOADS_MAX: usize = 8;
/// Fastest clock, in Hz: ten times what any FPGA or ASIC data path runs at.
const CLOCK_HZ_MAX: u64 = 20_000_000_000;
/// Most cycles a unit may need beside what its width costs.
const DELAY_CYCLES_MAX: u64 = 1_000_000;

/// A type of offload, and what one unit of it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offload {
    pub name: &'static str,
    /// Bits a unit takes a cycle of its own.
    pub width_bits: u32,
    /// A unit's clock, in Hz.
    pub clock_hz: u64,
    /// Cycles of the data path that a unit cannot overlap with the next packet.
    pub delay_cycles: u64,
    /// Whether it reads the header only: the first beat.
    pub header_only: bool,
    /// Number of units; as many as line rate needs where it is `None`: [`units`].
    pub units: Option<u64>,
}

/// Way of packets to the offloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// Every packet through every offload, in the pipeline's order.
    StaticPipe,
    /// A splitter lets packets pass by what they do not need, a balancer picks the unit with the
    /// fewest bytes, an arbiter lets out first of whom most waits; chains out of order go round
    /// again.
    FlexPipe,
    /// A central scheduler and a crossbar; units push packets to the next offload.
    Panic(Panic),
}

/// Properties of PANIC's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panic {
    /// Packets a unit's buffer holds: its credits.
    pub unit_credits: usize,
    /// The priority queue's clock, in Hz: slower than the data path's. A packet takes a cycle of it.
    pub queue_clock_hz: u64,
    /// Beats of the descriptor that goes ahead of a packet on the data path.
    pub descriptor_beats: u64,
    /// A pass of the scheduler, in cycles of the data path.
    pub pass_cycles: u64,
    /// Whether a packet whose next offload is full goes back to the scheduler, or waits.
    pub detour: bool,
}

/// Packets of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketClass {
    /// Offloads in the order they are needed, by their numbers in the design.
    pub chain: Vec<usize>,
    /// Weight beside the others.
    pub share: u32,
    /// Lower goes first in PANIC's scheduler.
    pub priority: u8,
}

/// A card's data path with its offloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Design {
    /// The data path's clock, in Hz.
    pub clock_hz: u64,
    /// The data path's width, in bits.
    pub width_bits: u32,
    /// The offloads, in the order of the pipeline.
    pub offloads: Vec<Offload>,
    /// Way of packets to them.
    pub scheduler: Scheduler,
    /// Bytes that each queue of a pipeline holds. FlexPipe's: 16 kB.
    pub fifo_bytes: u64,
    /// Cycles from one offload, or the ingress, to the next.
    pub hop_cycles: u64,
}

/// A design that cannot be: which key is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {reason}")]
pub struct InvalidDesign {
    pub key: String,
    pub value: String,
    /// Constraint on the value.
    pub reason: &'static str,
}

fn wrong<T>(
    key: impl Into<String>,
    value: impl ToString,
    reason: &'static str,
) -> Result<T, InvalidDesign> {
    Err(InvalidDesign { key: key.into(), value: value.to_string(), reason })
}

impl Design {
    /// Refuses what would divide by zero or never let a packet through.
    ///
    /// # Errors
    /// The first key out of its range, with its value and what is allowed.
    pub fn check(&self) -> Result<(), InvalidDesign> {
        if self.clock_hz == 0 || self.clock_hz > CLOCK_HZ_MAX {
            return wrong("clock_hz", self.clock_hz, "must be 1 Hz to 20 GHz");
        }
        if self.width_bits == 0 || !self.width_bits.is_multiple_of(8) {
            return wrong("width_bits", self.width_bits, "must be whole bytes, at least one");
        }
        if self.offloads.is_empty() || self.offloads.len() > OFFLOADS_MAX {
            return wrong("offloads", self.offloads.len(), "there must be 1 to 8");
        }
        for (number, offload) in self.offloads.iter().enumerate() {
            let key = |name: &str| format!("offloads[{number}].{name}");
            if offload.width_bits == 0 || offload.width_bits > self.width_bits {
                let reason = "must be at least one bit, and no wider than the data path";
                return wrong(key("width_bits"), offload.width_bits, reason);
            }
            if offload.clock_hz == 0 || offload.clock_hz > self.clock_hz {
                let reason = "must be at least 1 Hz, and no faster than the data path";
                return wrong(key("clock_hz"), offload.clock_hz, reason);
            }
            if offload.units == Some(0) {
                return wrong(key("units"), 0, "there must be a unit");
            }
            if offload.delay_cycles > DELAY_CYCLES_MAX {
                return wrong(key("delay_cycles"), offload.delay_cycles, "must be under 10^6");
            }
        }
        if self.fifo_bytes < u64::from(FRAME_BYTES_MAX) {
            return wrong("fifo_bytes", self.fifo_bytes, "must hold the largest frame");
        }
        match self.scheduler {
            Scheduler::Panic(Panic { unit_credits: 0, .. }) => {
                wrong("unit_credits", 0, "a unit must hold a packet")
            }
            Scheduler::Panic(Panic { queue_clock_hz, .. })
                if queue_clock_hz == 0 || queue_clock_hz > self.clock_hz =>
            {
                let reason = "must be at least 1 Hz, and no faster than the data path";
                wrong("queue_clock_hz", queue_clock_hz, reason)
            }
            _ => Ok(()),
        }
    }

    /// Beats of the data path that `bytes` take.
    fn beats(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * 8).div_ceil(u64::from(self.width_bits))
    }
}

/// Number of units of an offload that keep up with the data path: FlexPipe's Eq. 1, rounded up at the very
/// end and computed without rounding before.
pub fn units(design: &Design, offload: &Offload) -> u64 {
    let path = u128::from(design.width_bits) * u128::from(design.clock_hz);
    let unit = u128::from(offload.width_bits) * u128::from(offload.clock_hz);
    let all = (path + u128::from(offload.delay_cycles) * unit).div_ceil(unit);
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
