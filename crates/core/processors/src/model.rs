//! Card models with processors, as their files state them. `None` is "nobody measured it".

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use snic_domain::{
    Bandwidth, ByteSize, CardModel, CardProfile, Cycles, MemoryKind, NtTypeId, PacketSizes,
    ProcessorKind, ProcessorProfile, ReachedMemory, SaveArea,
};

/// A rate in bytes per second: what a memory or a cache moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRate(u64);

impl ByteRate {
    /// From bytes per second.
    pub const fn new(bytes_per_second: u64) -> Self {
        Self(bytes_per_second)
    }

    /// Bytes per second.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Time of `bytes`, in nanoseconds.
    pub(crate) fn nanos(self, bytes: f64) -> f64 {
        bytes * 1e9 / self.0.max(1) as f64
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GB/s", self.0 as f64 / 1e9)
    }
}

/// Parts that a card is built from (tutorial, Table 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    Fpga,
    Soc,
    SocFpga,
    /// A network processor.
    Asic,
}

impl Architecture {
    /// As in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fpga => "FPGA",
            Self::Soc => "SoC",
            Self::SocFpga => "SoC + FPGA",
            Self::Asic => "ASIC",
        }
    }
}

/// One way from a processor to a memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPath {
    pub memory: MemoryKind,
    /// Size that the processor can use of it.
    #[serde(default, rename = "size_bytes", deserialize_with = "size")]
    pub size: Option<ByteSize>,
    /// Rate at which all threads together read from it.
    #[serde(default, rename = "read_bytes_per_second", deserialize_with = "rate")]
    pub read: Option<ByteRate>,
    /// Rate at which all threads together write to it.
    #[serde(default, rename = "write_bytes_per_second", deserialize_with = "rate")]
    pub write: Option<ByteRate>,
    /// The processor's shared cache on this way: larger working sets reach the memory.
    #[serde(default, rename = "cache_bytes", deserialize_with = "size")]
    pub cache: Option<ByteSize>,
    /// Factor by which what the cache holds is read and written faster.
    pub cache_gain: Option<NonZeroU32>,
    /// Packets received with buffers in it.
    #[serde(default, rename = "receive_bps", deserialize_with = "bandwidth")]
    pub receive: Option<Bandwidth>,
    /// Packets sent with buffers in it.
    #[serde(default, rename = "send_bps", deserialize_with = "bandwidth")]
    pub send: Option<Bandwidth>,
    /// The size of packets with which these two were measured. Smaller ones count as if they had it: as many
    /// packets of them are received, at least.
    #[serde(default, rename = "network_packet_bytes", deserialize_with = "size")]
    pub network_packet: Option<ByteSize>,
    /// Time of a packet from the port to the processor and back, with buffers in it.
    #[serde(default, rename = "network_nanos", deserialize_with = "nanos")]
    pub network: Option<Duration>,
}

impl MemoryPath {
    /// Size that a packet counts where packets are received and sent.
    pub(crate) fn network_size(&self, packet: ByteSize) -> ByteSize {
        self.network_packet.map_or(packet, |least| least.max(packet))
    }

    /// Part of [`Self::receive`] that packets of a bandwidth take.
    pub(crate) fn received(&self, packets: &PacketSizes, bandwidth: Bandwidth) -> Bandwidth {
        let least = self.network_packet.unwrap_or_default().get();
        packets.padded(bandwidth, u32::try_from(least).unwrap_or(u32::MAX))
    }
}

/// A processor of a card, or of its host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Its kind; a model has each at most once.
    pub kind: ProcessorKind,
    /// Its name, for people.
    pub name: String,
    pub cores: Option<NonZeroU32>,
    pub threads: Option<NonZeroU32>,
    /// Threads that its driver lets run at a time, where these are fewer.
    pub threads_usable: Option<NonZeroU32>,
    pub clock_hz: Option<NonZeroU64>,
    /// Rate at which one thread reads from its first cache.
    #[serde(default, rename = "thread_read_bytes_per_second", deserialize_with = "rate")]
    pub thread_read: Option<ByteRate>,
    /// Memories that it reaches.
    #[serde(default)]
    pub memories: Vec<MemoryPath>,
    /// Memories of which only one at a time can be used beside its own.
    #[serde(default)]
    pub exclusive: Vec<MemoryKind>,
}

impl Processor {
    /// Threads that can run at a time, if known.
    pub fn usable(&self) -> Option<u32> {
        self.threads_usable.or(self.threads).or(self.cores).map(NonZeroU32::get)
    }

    /// Its way to a memory.
    pub fn path(&self, memory: MemoryKind) -> Option<&MemoryPath> {
        self.memories.iter().find(|path| path.memory == memory)
    }
}

/// Work of an NT on a processor beyond the movement of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intensity {
    /// A few instructions and a few bytes of a packet.
    #[default]
    Simple,
    /// Its instructions take the time.
    Compute,
    /// Its memory accesses take the time.
    Memory,
}

/// Cost of one packet, as counted in a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketWork {
    /// The time of a thread for one packet, without what it reads of the payload.
    #[serde(default, rename = "thread_nanos", deserialize_with = "nanos")]
    pub thread: Option<Duration>,
    /// Bytes read from the packet's buffer, in thousandths of the packet.
    #[serde(default)]
    pub payload_permille: u32,
    /// Bytes read from the working set, in thousandths of the packet.
    #[serde(default)]
    pub working_read_permille: u32,
    /// Bytes written to the working set, in thousandths of the packet.
    #[serde(default)]
    pub working_write_permille: u32,
}

/// One measured point: so many threads served this much, with buffers there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredPoint {
    /// Size of the packets.
    #[serde(rename = "packet_bytes", deserialize_with = "packet")]
    pub packet: ByteSize,
    pub threads: NonZeroU32,
    /// Where packets were received.
    pub network: MemoryKind,
    #[serde(rename = "bandwidth_bps", deserialize_with = "served")]
    pub bandwidth: Bandwidth,
    /// Time of a packet, if it was measured.
    #[serde(default, rename = "latency_nanos", deserialize_with = "nanos")]
    pub latency: Option<Duration>,
}

/// An NT as a program on one processor.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Implementation {
    pub nt: NtTypeId,
    /// On which processor.
    pub on: ProcessorKind,
    /// Whether packets may be spread over any number of threads.
    #[serde(default)]
    pub parallel: bool,
    /// Kind of work that takes its time.
    #[serde(default)]
    pub intensity: Intensity,
    /// Bytes that it keeps and looks at again, if it needs memory.
    #[serde(default, rename = "working_set_bytes", deserialize_with = "size")]
    pub working_set: Option<ByteSize>,
    /// Cost of a packet.
    pub work: Option<PacketWork>,
    #[serde(default, rename = "measured")]
    pub points: Vec<MeasuredPoint>,
}

/// Part of a card's profile besides its processors: how its packets are counted and held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardShell {
    /// The clock of its data path.
    pub clock_hz: NonZeroU64,
    /// The width of its data path, in bits: a multiple of 8.
    pub width_bits: NonZeroU32,
    /// Room for packets that wait for a thread or on the way out.
    #[serde(rename = "packet_store_bytes", deserialize_with = "packet")]
    pub packet_store: ByteSize,
    /// Memory in which the host leaves what it tells the card.
    #[serde(rename = "memory_bytes", deserialize_with = "packet")]
    pub memory: ByteSize,
}

/// A model of card, with what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicModel {
    pub model: CardModel,
    /// Maker of the card.
    pub vendor: String,
    /// Its name, as its vendor writes it.
    pub name: String,
    /// When it was released.
    pub released: Option<u16>,
    pub architecture: Architecture,
    /// All ports together.
    pub line: Bandwidth,
    pub pcie: String,
    /// Language or tools that it is programmed with.
    pub programming: Option<String>,
    /// Look-up tables of its FPGA.
    pub luts: Option<NonZeroU32>,
    /// Other known properties.
    pub features: String,
    /// Properties that are needed to run it as a card of the daemon; `None`: it can only be asked about.
    pub card: Option<CardShell>,
    /// Its processors and, in a measured server, the host's.
    pub processors: Vec<Processor>,
    /// NTs that somebody measured on it.
    pub implementations: Vec<Implementation>,
}

impl NicModel {
    /// A processor by its kind.
    pub fn processor(&self, kind: ProcessorKind) -> Option<&Processor> {
        self.processors.iter().find(|processor| processor.kind == kind)
    }

    /// A program for an NT on a processor.
    pub fn implementation(&self, nt: &NtTypeId, on: ProcessorKind) -> Option<&Implementation> {
        self.implementations.iter().find(|one| one.nt == *nt && one.on == on)
    }

    /// The profile of such a card: no regions, and the processors whose threads are known. `None` where its file
    /// does not say what a card needs.
    pub fn card_profile(&self) -> Option<CardProfile> {
        let shell = self.card?;
        let reached = |path: &MemoryPath| ReachedMemory {
            memory: path.memory,
            size: path.size,
            receive: path.receive,
            receive_packet: path.network_packet,
        };
        let processor = |processor: &Processor| {
            Some(ProcessorProfile {
                kind: processor.kind,
                cores: processor.cores.map(NonZeroU32::get),
                threads: processor.usable()?,
                memories: processor.memories.iter().map(reached).collect(),
            })
        };
        Some(CardProfile {
            model: self.model.clone(),
            part: String::new(),
            idcode: 0,
            clock_hz: shell.clock_hz.get(),
            width_bits: shell.width_bits.get(),
            ingress: self.line,
            egress: self.line,
            memory: shell.memory,
            memory_bytes_per_second: None,
            packet_store: shell.packet_store,
            configuration_bytes_per_second: 0,
            scheduler_pass: Cycles::ZERO,
            scheduler_lookups_per_cycle: None,
            packet_store_beats_per_cycle: None,
            core: Cycles::ZERO,
            credits_initial: 1,
            region_pass: None,
            save_area: SaveArea::default(),
            regions: Vec::new(),
            processors: self.processors.iter().filter_map(processor).collect(),
            links: None,
        })
        .filter(|profile| !profile.processors.is_empty())
    }
}

fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    NonZeroU64::deserialize(from).map(NonZeroU64::get)
}

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteRate>, D::Error> {
    positive(from).map(|value| Some(ByteRate::new(value)))
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    packet(from).map(Some)
}

fn packet<'de, D: Deserializer<'de>>(from: D) -> Result<ByteSize, D::Error> {
    positive(from).map(ByteSize::from_bytes)
}

fn bandwidth<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bandwidth>, D::Error> {
    served(from).map(Some)
}

pub(crate) fn served<'de, D: Deserializer<'de>>(from: D) -> Result<Bandwidth, D::Error> {
    positive(from).map(Bandwidth::from_bps)
}

fn nanos<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    positive(from).map(|value| Some(Duration::from_nanos(value)))
}
