//! Why a DAG was placed where it is, or why no placement exists. Every number can be recomputed
//! from the ledger.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Bandwidth, BitstreamId, ByteSize, Cycles, Form, NodeId, NtTypeId, OtherCard,
    ProgramExplanation, RegionId,
};

/// Embedding of a virtual chain in physical chains (SuperNIC, 4.1), in the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddingKind {
    /// Through a chain that is loaded or being loaded, skipping the NTs that it does not need.
    Shared,
    /// A prebuilt bitstream in a free region.
    FreeRegion,
    /// A prebuilt bitstream in place of a victim.
    VictimRegion,
    /// Cut into parts in different regions; each cut costs 16 cycles.
    Split,
}

/// A resource that can be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Bandwidth of the card's ingress, in bit/s.
    IngressBandwidth,
    /// Bandwidth of the card's egress, in bit/s.
    EgressBandwidth,
    /// Bandwidth of NTs in loaded chains, in bit/s.
    NtBandwidth,
    /// Packets that NTs in loaded chains take, in packets per second.
    NtPackets,
    /// Ports of regions, which every pass of a packet through a region loads, in cycles per second.
    RegionPort,
    /// Credits of NTs, and so packets on their way through the chain in a region, in thousandths of a credit.
    Credits,
    /// Cells of the packet store, in which a packet lies as long as it is on the card, in bytes.
    PacketStore,
    /// Reads of the packet store, which all regions and the egress share, in beats per second.
    StoreReads,
    /// Entries of the synchronisation buffer, in which packets wait for the branches of a fork, in thousandths of
    /// an entry.
    SyncEntries,
    /// Regions that are free or hold a victim, in regions.
    Regions,
    /// Prebuilt bitstreams that contain the chain or a part of it, in bitstreams.
    Bitstreams,
    /// On-board memory, in bytes.
    Memory,
    /// Bandwidth of the on-board memory, which all NTs of the card share, in bytes per second.
    MemoryBandwidth,
    /// Look-ups of the scheduler, one for each branch of each stage that a packet passes, in look-ups per second.
    SchedulerLookups,
    /// Rows of a table of the card, in rows.
    TableRows,
    /// Passes of the scheduler, in passes: what a cut costs.
    Passes,
    /// Steps of a search for a placement, in steps. Their number is limited, so a search may end without
    /// an answer.
    SearchSteps,
    /// Cards that it may go to by its affinity, in cards.
    Cards,
    /// Threads of a card's processors, in threads.
    Threads,
    /// Bandwidth of packets that a memory receives for a processor, in bit/s.
    ReceiveBandwidth,
    /// Memory of programs' working sets, in bytes.
    ProgramMemory,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IngressBandwidth => "ingress bandwidth",
            Self::EgressBandwidth => "egress bandwidth",
            Self::NtBandwidth => "NT bandwidth",
            Self::NtPackets => "NT packets",
            Self::RegionPort => "region port",
            Self::Credits => "credits",
            Self::PacketStore => "packet store",
            Self::StoreReads => "packet store reads",
            Self::SyncEntries => "synchronization entries",
            Self::Regions => "regions",
            Self::Bitstreams => "bitstreams",
            Self::Memory => "on-board memory",
            Self::MemoryBandwidth => "memory bandwidth",
            Self::SchedulerLookups => "scheduler look-ups",
            Self::TableRows => "table rows",
            Self::Passes => "scheduler passes",
            Self::SearchSteps => "search steps",
            Self::Cards => "cards by affinity",
            Self::Threads => "threads",
            Self::ReceiveBandwidth => "receive bandwidth",
            Self::ProgramMemory => "memory of programs",
        })
    }
}

impl Resource {
    /// Whether reservations may be older than the rule that counts it: [`Self::RegionPort`] and the like.
    pub const fn is_counted_late(self) -> bool {
        matches!(
            self,
            Self::NtPackets
                | Self::RegionPort
                | Self::Credits
                | Self::PacketStore
                | Self::StoreReads
                | Self::SyncEntries
                | Self::MemoryBandwidth
                | Self::SchedulerLookups
                | Self::IngressBandwidth
                | Self::EgressBandwidth
        )
    }

    /// The unit of its numbers.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::IngressBandwidth
            | Self::EgressBandwidth
            | Self::NtBandwidth
            | Self::ReceiveBandwidth => "bit/s",
            Self::NtPackets => "packets/s",
            Self::RegionPort => "cycles/s",
            Self::Credits | Self::SyncEntries => "thousandths",
            Self::Regions => "regions",
            Self::Bitstreams => "bitstreams",
            Self::Memory | Self::PacketStore | Self::ProgramMemory => "bytes",
            Self::MemoryBandwidth => "bytes/s",
            Self::StoreReads => "beats/s",
            Self::SchedulerLookups => "look-ups/s",
            Self::TableRows => "rows",
            Self::Passes => "passes",
            Self::SearchSteps => "steps",
            Self::Cards => "cards",
            Self::Threads => "threads",
        }
    }
}

/// One resource that was short, and by how much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub resource: Resource,
    /// Needed amount, in [`Resource::unit`].
    pub required: u64,
    pub available: u64,
    /// The nodes for which; empty where the whole DAG is meant.
    pub nodes: Vec<NodeId>,
    /// One sentence. It never mentions other tenants.
    pub detail: String,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = |number| Amount(self.resource, number);
        let (required, available) = (amount(self.required), amount(self.available));
        write!(f, "{}: {required} needed, {available} available", self.resource)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

/// An amount of a resource, with its unit.
struct Amount(Resource, u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(resource, number) = *self;
        match resource {
            Resource::IngressBandwidth
            | Resource::EgressBandwidth
            | Resource::NtBandwidth
            | Resource::ReceiveBandwidth => Bandwidth::from_bps(number).fmt(f),
            Resource::Memory | Resource::PacketStore | Resource::ProgramMemory => {
                ByteSize::from_bytes(number).fmt(f)
            }
            Resource::MemoryBandwidth => write!(f, "{}/s", ByteSize::from_bytes(number)),
            Resource::NtPackets
            | Resource::RegionPort
            | Resource::StoreReads
            | Resource::SchedulerLookups => {
                write!(f, "{number} {}", resource.unit())
            }
            Resource::Credits => write!(f, "{}.{:03} credits", number / 1_000, number % 1_000),
            Resource::SyncEntries => write!(f, "{}.{:03} entries", number / 1_000, number % 1_000),
            Resource::Passes => {
                write!(f, "{number} {}", if number == 1 { "pass" } else { "passes" })
            }
            Resource::Regions
            | Resource::Bitstreams
            | Resource::TableRows
            | Resource::SearchSteps
            | Resource::Threads
            | Resource::Cards => {
                let unit = resource.unit();
                let unit = if number == 1 { unit.trim_end_matches('s') } else { unit };
                write!(f, "{number} {unit}")
            }
        }
    }
}

/// Rest of a resource beside what a DAG holds of it, at the place where that is least in proportion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headroom {
    pub resource: Resource,
    /// The region, for what a region has.
    pub region: Option<RegionId>,
    /// The NT, for what an NT has.
    pub nt: Option<NtTypeId>,
    /// Amount that the DAG holds there, in [`Resource::unit`].
    pub held: u64,
    /// Amount that further promises may take there.
    pub available: u64,
    /// Whether it is of a region that DAGs of other tenants use, so that the number tells of them.
    pub of_others: bool,
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = |number| Amount(self.resource, number);
        let (held, left) = (amount(self.held), amount(self.available));
        write!(f, "{}: {held} held, {left} left", self.resource)?;
        match (&self.nt, self.region) {
            (Some(nt), Some(region)) => write!(f, " ({nt} in region {region})"),
            (None, Some(region)) => write!(f, " (region {region})"),
            _ => Ok(()),
        }
    }
}

/// No feasible placement: every shortage that was found, the hardest first; at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("no feasible placement: {}", shortages.first().map(ToString::to_string).unwrap_or_default())]
pub struct Infeasible {
    /// Resources that were short.
    pub shortages: Vec<Shortage>,
}

/// Why a DAG was placed where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Sequential or parallel, and why.
    pub form: FormChoice,
    /// One for each virtual chain, in the order of the mapping.
    pub chains: Vec<ChainExplanation>,
    /// One for each program, in the order of the mapping.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramExplanation>,
    /// On a host with cards of both kinds: those that were not taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_cards: Vec<OtherCard>,
}

/// The choice between S1 and S2 of SuperNIC's Fig. 4.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormChoice {
    pub chosen: Form,
    /// Latency of an unloaded card where the DAG is flattened: core + Σ d.
    pub sequential: Cycles,
    /// Latency with branches side by side: core + 16 a further stage + Σ of the longest branches;
    /// `None` where the DAG has no fork.
    pub parallel: Option<Cycles>,
    pub reason: String,
}

/// Why a virtual chain was placed where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainExplanation {
    pub nodes: Vec<NodeId>,
    pub nts: Vec<NtTypeId>,
    /// One for each instance.
    pub embeddings: Vec<Embedding>,
    /// The other kinds of embedding, in the order of preference.
    pub rejected: Vec<Rejection>,
}

/// A chosen embedding with its score, term by term (lower is better, compared in this order).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Embedding {
    /// The kind of embedding.
    #[serde(rename = "way")] // the name in stored records
    pub kind: EmbeddingKind,
    pub region: RegionId,
    /// The bitstream in it.
    pub bitstream: BitstreamId,
    /// Bandwidth reserved there.
    pub bandwidth: Bandwidth,
    /// NTs of the physical chain that its packets skip.
    pub skipped: u8,
    /// Reconfigurations that interrupt a DAG. Plans load only unused regions, so this is zero.
    pub interruptions: u32,
    /// Reconfigurations it needs.
    pub reconfigurations: u32,
    /// Regions that must be loaded for it.
    pub new_regions: u32,
    /// Scheduler passes of its whole virtual chain, cuts included.
    pub passes: u32,
    /// Area of the region that stays unused, in thousandths.
    pub unused_permille: u32,
    /// Bandwidth left on the tightest NT it uses, with this embedding in place.
    pub headroom: Bandwidth,
}

/// A kind of embedding that was not chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// The kind of embedding.
    #[serde(rename = "way")] // the name in stored records
    pub kind: EmbeddingKind,
    #[serde(flatten)]
    pub reason: RejectionReason,
}

/// Why a kind of embedding was not chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectionReason {
    /// It is impossible: what is short, and by how much.
    Shortage(Shortage),
    /// It is possible, but costs more.
    CostsMore(CostsMore),
}

impl fmt::Display for RejectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shortage(shortage) => shortage.fmt(f),
            Self::CostsMore(costs) => costs.fmt(f),
        }
    }
}

/// Two embeddings of a virtual chain, with the rest of its DAG as it was placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostsMore {
    /// The nodes of the chain.
    pub nodes: Vec<NodeId>,
    /// The least that the kind that was not chosen costs.
    pub least: EmbeddingCost,
    /// The cost of the chosen embedding.
    pub chosen: EmbeddingCost,
}

impl fmt::Display for CostsMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "possible, but costs more: at least {}; chosen: {}", self.least, self.chosen)
    }
}

/// Cost of an embedding of a virtual chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingCost {
    /// Regions that are loaded for it.
    pub regions: u32,
    /// Loaded chains that these loads replace.
    pub victims: u32,
    /// Scheduler passes of the virtual chain, cuts included.
    pub passes: u32,
}

impl fmt::Display for EmbeddingCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { regions, victims, passes } = *self;
        let count = |n: u32, one: &str, more: &str| match n {
            1 => format!("1 {one}"),
            n => format!("{n} {more}"),
        };
        let regions = count(regions, "new region", "new regions");
        let victims = count(victims, "cached chain replaced", "cached chains replaced");
        write!(f, "{regions}, {victims}, {}", count(passes, "pass", "passes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortage(resource: Resource, required: u64, available: u64, detail: &str) -> String {
        let (nodes, detail) = (Vec::new(), detail.to_owned());
        Shortage { resource, required, available, nodes, detail }.to_string()
    }

    #[test]
    fn shortages_read_as_people_write_numbers() {
        assert_eq!(
            shortage(Resource::NtBandwidth, 20_000_000_000, 0, "all taken"),
            "NT bandwidth: 20 Gbit/s needed, 0 bit/s available (all taken)"
        );
        assert_eq!(
            shortage(Resource::Bitstreams, 1, 0, ""),
            "bitstreams: 1 bitstream needed, 0 bitstreams available"
        );
        assert_eq!(
            shortage(Resource::Memory, 1 << 30, 1 << 20, "x"),
            "on-board memory: 1 GiB needed, 1 MiB available (x)"
        );
    }

    #[test]
    fn a_dearer_alternative_shows_both_costs() {
        let least = EmbeddingCost { regions: 1, victims: 1, passes: 2 };
        let chosen = EmbeddingCost { regions: 0, victims: 0, passes: 1 };
        let costs = CostsMore { nodes: Vec::new(), least, chosen };
        assert_eq!(
            RejectionReason::CostsMore(costs).to_string(),
            "possible, but costs more: at least 1 new region, 1 cached chain replaced, 2 passes; \
             chosen: 0 new regions, 0 cached chains replaced, 1 pass"
        );
    }

    #[test]
    fn a_refusal_speaks_of_the_hardest_shortage() {
        let shortage = Shortage {
            resource: Resource::Regions,
            required: 2,
            available: 1,
            nodes: Vec::new(),
            detail: "x".into(),
        };
        let text = Infeasible { shortages: vec![shortage] }.to_string();
        assert_eq!(
            text,
            "no feasible placement: regions: 2 regions needed, 1 region available (x)"
        );
    }
}
