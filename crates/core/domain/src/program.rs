//! NTs as programs: on threads of a card's processors or of its host, instead of in a region.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Bandwidth, ByteSize, NodeId, NtTypeId, PacketSizes};

/// Kinds of processors, the one nearest to the network first (BlueField-3 study, Fig. 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessorKind {
    /// Threads in the card's data path.
    Dpa,
    /// Arm cores of the card, behind its switch.
    Arm,
    /// Cores of the card of another kind.
    Other,
    /// The host's cores, behind PCIe.
    Host,
}

impl ProcessorKind {
    /// All kinds, in their order.
    pub const ALL: [Self; 4] = [Self::Dpa, Self::Arm, Self::Other, Self::Host];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Dpa => "DPA",
            Self::Arm => "Arm",
            Self::Other => "other cores",
            Self::Host => "host",
        }
    }
}

/// Memories, the one nearest to the network first (BlueField-3 study, Figs. 4 and 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// The part of the card's memory that only the DPA has.
    Dpa,
    /// The card's memory.
    Arm,
    /// The host's memory.
    Host,
}

impl MemoryKind {
    /// All kinds, in their order.
    pub const ALL: [Self; 3] = [Self::Dpa, Self::Arm, Self::Host];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Dpa => "DPA memory",
            Self::Arm => "Arm memory",
            Self::Host => "host memory",
        }
    }
}

/// Processors of one kind on a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorProfile {
    /// The kind; a card has each at most once.
    pub kind: ProcessorKind,
    /// Cores, where that is known.
    pub cores: Option<u32>,
    /// Threads that programs can have at a time.
    pub threads: u32,
    /// Memories that it reaches.
    pub memories: Vec<ReachedMemory>,
}

/// A memory as a processor reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReachedMemory {
    pub memory: MemoryKind,
    /// Size that programs can have of it; `None`: nobody printed it, and it is not counted.
    pub size: Option<ByteSize>,
    /// Bandwidth of packets that it receives for this processor at most; `None`: nobody measured it.
    pub receive: Option<Bandwidth>,
    /// The size of packets with which that was measured; smaller ones count as if they had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_packet: Option<ByteSize>,
}

impl ReachedMemory {
    /// Part of [`Self::receive`] that packets of a bandwidth take.
    pub fn received(&self, packets: &PacketSizes, bandwidth: Bandwidth) -> Bandwidth {
        let least = self.receive_packet.unwrap_or_default().get();
        packets.padded(bandwidth, u32::try_from(least).unwrap_or(u32::MAX))
    }
}

/// One NT of a DAG as a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtProgram {
    /// The NT's name in the DAG.
    pub node: NodeId,
    /// Type of the NT.
    pub nt: NtTypeId,
    /// Where it runs.
    pub processor: ProcessorKind,
    /// Its threads, which no other program has.
    pub threads: u32,
    /// Where its packets are received and sent.
    pub network: MemoryKind,
    /// Where its working set is.
    pub working: MemoryKind,
    /// Bytes that it keeps there.
    pub working_set: ByteSize,
    /// Bandwidth that it serves at most, as was measured.
    pub serves: Bandwidth,
    /// Time of a packet in it, if somebody measured it.
    pub latency: Option<Duration>,
}

impl NtProgram {
    /// Where and how it runs, in words.
    pub fn place(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        let (kind, threads) = (self.processor.name(), self.threads);
        let place = format!("{kind}, {threads} thread{plural}, packets in {}", self.network.name());
        if self.working == self.network {
            return place;
        }
        format!("{place}, working set in {}", self.working.name())
    }
}

/// Why an NT runs on a processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramExplanation {
    /// The NT's name in the DAG.
    pub node: NodeId,
    /// Type of the NT.
    pub nt: NtTypeId,
    /// Implementation, with what it serves and what limits it.
    pub chosen: String,
    /// The guidelines that speak for it, as sentences; none where none is about it.
    pub guidelines: Vec<String>,
    /// Those that speak against it: no other place serves it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<String>,
    /// The other implementations and buffers, the next best first, each with what it lacks or what speaks
    /// against it.
    pub rejected: Vec<String>,
}

/// A card that a DAG could have gone to, and why it did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherCard {
    /// Model of the card.
    pub model: crate::CardModel,
    /// Why not, as a sentence.
    pub reason: String,
}
