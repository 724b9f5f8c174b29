//! The port of cards that can make packets: a load for one DAG, and what became of it.
//!
//! Generated packets are the DAG's: its token bucket, its promise and its counters hold for them. They
//! carry the DAG's descriptor, so no classification rule is needed, and they end in the card instead of
//! leaving by a port.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::{Bandwidth, DagUid};
use snic_tables::DropCause;

/// Number of drop causes.
const CAUSES: usize = DropCause::ALL.len();

/// Packets to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GeneratedPackets {
    /// Packets of these sizes in bytes, in random order, each as often as its weight says beside the
    /// others. Not empty.
    Mix {
        /// Sizes, and how often each comes.
        sizes: Vec<(u32, u32)>,
        /// Their headers, on cards with bytes.
        headers: GeneratedHeaders,
    },
    /// These frames, one after the other, again and again. Not empty.
    Frames(Vec<Vec<u8>>),
}

/// The headers of packets that a card with bytes makes: Ethernet, IP, and UDP or TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratedHeaders {
    /// IP source; of the same version as the destination.
    pub source: IpAddr,
    pub destination: IpAddr,
    /// TCP instead of UDP.
    pub is_tcp: bool,
    /// Source port of the first flow.
    pub source_port: u16,
    pub destination_port: u16,
    /// Number of flows, at least one: each has the source port behind the one before.
    pub flows: u16,
}

/// A load for a DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratedLoad {
    /// UID of the DAG that the packets belong to.
    pub uid: u32,
    /// Bits of packets per second.
    pub rate_bps: u64,
    pub packets: GeneratedPackets,
    /// Duration by the card's clock.
    pub duration: Duration,
}

impl GeneratedLoad {
    pub const fn dag(&self) -> DagUid {
        DagUid::from_raw(self.uid)
    }

    pub const fn rate(&self) -> Bandwidth {
        Bandwidth::from_bps(self.rate_bps)
    }
}

/// Latencies of packets from the first beat in to the first beat out, by the card's clock, in nanoseconds;
/// all zero where there were none. Percentiles are exact to one part in 32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadLatency {
    pub min: u64,
    pub mean: u64,
    pub p50: u64,
    /// Exceeded by one packet in ten.
    pub p90: u64,
    /// Exceeded by one packet in a hundred.
    pub p99: u64,
    /// Exceeded by one packet in a thousand.
    pub p999: u64,
    pub max: u64,
}

/// Counts of generated packets in some time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadCounts {
    /// Duration by the card's clock.
    pub elapsed: Duration,
    /// Packets that were made.
    pub packets_offered: u64,
    pub bytes_offered: u64,
    /// Packets that left the DAG: of those that were made, and those that NTs made of them.
    pub packets_served: u64,
    /// Their bytes when they left.
    pub bytes_served: u64,
    /// Packets that NTs made while these passed.
    pub packets_made: u64,
    /// Packets that were dropped, in the order of [`DropCause::ALL`].
    pub drops: [u64; CAUSES],
    /// Latencies of those that left.
    pub latency: LoadLatency,
}

impl LoadCounts {
    /// Packets that neither left nor were dropped.
    pub fn under_way(&self) -> u64 {
        let ended = self.packets_served + self.drops.iter().sum::<u64>();
        (self.packets_offered + self.packets_made).saturating_sub(ended)
    }
}

/// Reading of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReading {
    /// Since it began.
    pub total: LoadCounts,
    /// Since it was read before.
    pub recent: LoadCounts,
    /// Whether its time is not over yet.
    pub is_sending: bool,
}

/// Why there is no load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeneratorError {
    /// The card has its maximum of loads.
    #[error("the card makes {most} loads, its maximum: end one of them")]
    TooMany { most: u32 },
    /// The card cannot make such packets; in words.
    #[error("{0}")]
    Invalid(String),
    /// Nobody asked for too long, or the card was switched off.
    #[error("the load has ended: the card was switched off, or nobody asked for ten seconds")]
    Ended,
    /// The card is lost; in words.
    #[error("{0}")]
    Lost(String),
}

/// A card that makes packets.
pub trait TrafficGenerator: Send + Sync {
    /// The highest rate of one load: what the card's port takes in.
    fn rate_max(&self) -> Bandwidth;

    /// Begins a load. It may wait for the card.
    ///
    /// # Errors
    /// [`GeneratorError`].
    fn start(&self, load: &GeneratedLoad) -> Result<Box<dyn RunningLoad>, GeneratorError>;
}

/// A load; it ends when it is dropped.
pub trait RunningLoad: Send {
    /// Reads the counts so far. It may wait for the card, not for packets.
    ///
    /// # Errors
    /// [`GeneratorError::Ended`] or [`GeneratorError::Lost`].
    fn read(&mut self) -> Result<LoadReading, GeneratorError>;
}

impl fmt::Debug for dyn TrafficGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficGenerator").finish_non_exhaustive()
    }
}
