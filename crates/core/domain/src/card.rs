//! Cards and regions: the profile of a model, and the states a region can be in.

use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};

use crate::{Area, Bandwidth, ByteSize, CardModel, Cycles, ProcessorProfile, RegionId, RegionKind};

/// The pass where nothing is said of it. An absent option would be none, with which more is promised than a card may keep.
#[allow(clippy::unnecessary_wraps)]
const fn papers_pass() -> Option<RegionPass> {
    Some(RegionPass::SUPERNIC)
}

/// Properties of a model of card: read from `bitstreams/cards/*.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardProfile {
    /// The model that bitstreams name as their target.
    pub model: CardModel,
    /// The FPGA part, as in a bitstream's header.
    pub part: String,
    /// The part's JTAG id, as configuration packets carry it.
    pub idcode: u32,
    /// Clock of the data path, in Hz.
    pub clock_hz: u64,
    /// Width of the data path, in bits.
    pub width_bits: u32,
    /// Bandwidth of the ingress ports together.
    pub ingress: Bandwidth,
    /// Bandwidth of the egress ports together.
    pub egress: Bandwidth,
    /// On-board memory for NTs.
    pub memory: ByteSize,
    /// Bytes per second that this memory moves for NTs, all together. `None`: they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_per_second: Option<NonZeroU64>,
    /// Room for payloads that wait.
    pub packet_store: ByteSize,
    /// Beats that are read from it in a cycle, for all regions and the egress together. `None`: they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_store_beats_per_cycle: Option<NonZeroU32>,
    /// Bytes per second that the configuration port takes.
    pub configuration_bytes_per_second: u64,
    /// Cycles of one pass of the scheduler (SuperNIC, 5.1: 16).
    pub scheduler_pass: Cycles,
    /// Look-ups that the scheduler makes in a cycle: one for each branch of each stage that a packet passes. `None`: they
    /// are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_lookups_per_cycle: Option<NonZeroU32>,
    /// Cycles of the core in all, one pass included (SuperNIC, 5.1: 196 ns, 49 at 250 MHz).
    pub core: Cycles,
    /// Credits of each NT at the start (SuperNIC, 5.1: 8 fill 100 Gbps).
    pub credits_initial: u8,
    /// Cost of a pass through a region, and largest number of credits: what bandwidth is promised
    /// with. `None`: only what NTs serve is counted, as SuperNIC does.
    #[serde(default = "papers_pass")]
    pub region_pass: Option<RegionPass>,
    /// Where the state of chains waits that gave their region up.
    pub save_area: SaveArea,
    /// The regions, by number.
    pub regions: Vec<RegionProfile>,
    /// Processors that run NTs as programs; none on an FPGA card.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorProfile>,
    /// Links to other cards; `None` where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkProfile>,
}

/// Links of a card to other cards, all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkProfile {
    /// Number of them: from one to [`crate::limits::LINKS_MAX`].
    pub count: u8,
    /// Capacity of each, for one direction.
    pub capacity: Bandwidth,
    /// From the last bit of a frame out of this card to its last bit into the next thing on its way, in nanoseconds.
    pub latency_nanos: u32,
}

/// Cost of one pass through a region at its port, and largest number of packets under way to its NTs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionPass {
    /// Beats of the descriptor that crosses the crossbar with every packet.
    pub descriptor_beats: u8,
    /// The scheduler hands at most this many packets to one region ...
    pub packets: NonZeroU32,
    /// ... in this many cycles.
    pub cycles: NonZeroU32,
    /// From where an NT is done to where the scheduler has its credit again.
    pub credit_return: Cycles,
    /// Most credits of an NT, at most [`crate::limits::CREDITS_MAX`].
    pub credits_max: u8,
}

impl RegionPass {
    /// SuperNIC's. Its parser attaches one beat to the header (3.2), and its largest packets stay that much
    /// under the 128 Gbit/s of the data path. With eight credits packets of 64 and of 128 bytes come to 51 and
    /// 99 Gbit/s at 250 MHz, both one packet in two and a half cycles. A credit is 3 cycles on its way back,
    /// which is nearest to all twenty points (all Fig. 7).
    pub const SUPERNIC: Self = Self {
        descriptor_beats: 1,
        packets: NonZeroU32::new(2).expect("not zero"),
        cycles: NonZeroU32::new(5).expect("not zero"),
        credit_return: Cycles::new(3),
        credits_max: crate::limits::CREDITS_MAX,
    };
}

/// A part of the on-board memory that no NT has: it lies behind [`CardProfile::memory`], so that no
/// page of a tenant can be in it. By default there is none, and no state is saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveArea {
    /// Its size; given out in units of [`crate::limits::SAVE_UNIT`].
    pub bytes: ByteSize,
    /// Bytes per second that the memory moves, which say how long a save or a restore takes.
    pub bytes_per_second: u64,
}

/// One region of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionProfile {
    pub kind: RegionKind,
    /// Area that fits in it.
    pub area: Area,
    /// Largest bitstream it takes.
    pub bitstream_max: ByteSize,
}

impl CardProfile {
    /// The regions with their numbers.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, &RegionProfile)> {
        (0u8..).map(RegionId).zip(&self.regions)
    }

    /// The LUTs of all regions together.
    pub fn luts(&self) -> u64 {
        self.regions.iter().map(|region| u64::from(region.area.lut)).sum()
    }

    /// One region, if the card has it.
    pub fn region(&self, region: RegionId) -> Option<&RegionProfile> {
        self.regions.get(region.index())
    }
}

/// State of a region, for people and for the planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RegionState {
    /// Nothing is loaded, nothing is coming.
    Free,
    /// Its bitstream is being loaded, or waits for the configuration port.
    Reconfiguring,
    /// Loaded, and at least one DAG passes through it.
    Active,
    /// Still loaded; its DAGs are being moved away.
    Draining,
    /// Loaded, and no DAG needs it: the next to be reconfigured, or shared again at once.
    Victim,
    /// It failed too often; an operator resets it.
    Faulty,
    /// Unknown content: the card did not say yet.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_stored_as_they_are_and_refuse_an_unknown_key() {
        let links =
            LinkProfile { count: 7, capacity: Bandwidth::from_gbps(100), latency_nanos: 450 };
        let text = serde_json::to_string(&links).expect("encodes");
        assert_eq!(serde_json::from_str::<LinkProfile>(&text).expect("as written"), links);
        let other = text.replace("count", "number");
        let error = serde_json::from_str::<LinkProfile>(&other).expect_err("number is no key");
        assert!(error.to_string().contains("number"), "{error}");
    }

    #[test]
    fn a_profile_refuses_an_unknown_key() {
        let error = serde_json::from_str::<RegionProfile>(
            r#"{"kind":"known-nt","area":{"lut":1,"carry":2},"bitstream_max":1}"#,
        )
        .expect_err("carry is no key");
        assert!(error.to_string().contains("carry"), "{error}");
    }
}
