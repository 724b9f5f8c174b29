//! Cards and regions: the profile of a model, and the states a region can be in.

use serde::{Deserialize, Serialize};

use crate::{Area, Bandwidth, ByteSize, CardModel, Cycles, RegionId, RegionKind};

/// What a model of card offers: read from `bitstreams/cards/*.toml`.
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
    /// Room for payloads that wait.
    pub packet_store: ByteSize,
    /// What the configuration port takes, in bytes per second.
    pub configuration_bytes_per_second: u64,
    /// What one pass of the scheduler costs (SuperNIC, 5.1: 16).
    pub scheduler_pass: Cycles,
    /// What the core costs in all, one pass included (SuperNIC, 5.1: 196 ns, 49 at 250 MHz).
    pub core: Cycles,
    /// Credits of each NT at the start (SuperNIC, 5.1: 8 fill 100 Gbps).
    pub credits_initial: u8,
    /// Where the state of chains waits that gave their region up.
    #[serde(default)]
    pub save_area: SaveArea,
    /// The regions, by number.
    pub regions: Vec<RegionProfile>,
}

/// A part of the on-board memory that no NT has: it lies behind [`CardProfile::memory`], so that no
/// page of a tenant can be in it. By default there is none, and no state is saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveArea {
    /// Its size; given out in units of [`crate::limits::SAVE_UNIT`].
    pub bytes: ByteSize,
    /// What the memory moves, in bytes per second: how long a save or a restore takes.
    pub bytes_per_second: u64,
}

/// One region of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionProfile {
    /// What it is for.
    pub kind: RegionKind,
    /// What fits in it.
    pub area: Area,
    /// Largest bitstream it takes.
    pub bitstream_max: ByteSize,
}

impl CardProfile {
    /// The regions with their numbers.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, &RegionProfile)> {
        (0u8..).map(RegionId).zip(&self.regions)
    }

    /// One region, if the card has it.
    pub fn region(&self, region: RegionId) -> Option<&RegionProfile> {
        self.regions.get(region.index())
    }
}

/// What state a region is in, for people and for the planner.
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
    /// What it holds is not known: the card did not say yet.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_refuses_an_unknown_key() {
        let error = serde_json::from_str::<RegionProfile>(
            r#"{"kind":"known-nt","area":{"lut":1,"carry":2},"bitstream_max":1}"#,
        )
        .expect_err("carry is no key");
        assert!(error.to_string().contains("carry"), "{error}");
    }
}
