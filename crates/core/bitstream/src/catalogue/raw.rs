//! The files as they are written: units in the names of the keys, places kept for messages.

use serde::Deserialize;
use snic_domain::{
    Area, BitstreamId, CardModel, DagId, FormPreference, NodeId, NtTypeId, RegionKind, TenantId,
    Traffic,
};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCard {
    pub(super) model: Spanned<CardModel>,
    pub(super) part: Spanned<String>,
    pub(super) idcode: Spanned<u32>,
    pub(super) clock_hz: Spanned<u64>,
    pub(super) width_bits: Spanned<u32>,
    pub(super) ingress_bps: Spanned<u64>,
    pub(super) egress_bps: Spanned<u64>,
    pub(super) memory_bytes: Spanned<u64>,
    pub(super) packet_store_bytes: Spanned<u64>,
    pub(super) configuration_bytes_per_second: Spanned<u64>,
    pub(super) scheduler_pass_cycles: Spanned<u64>,
    /// Without it, look-ups are not counted.
    pub(super) scheduler_lookups_per_cycle: Option<Spanned<u32>>,
    pub(super) packet_store_beats_per_cycle: Option<Spanned<u32>>,
    pub(super) core_cycles: Spanned<u64>,
    pub(super) credits_initial: Spanned<u8>,
    /// Without one no state is saved.
    pub(super) save_area_bytes: Option<Spanned<u64>>,
    /// Needed where there is a save area. Without it, promises may take any bandwidth of the memory.
    pub(super) memory_bytes_per_second: Option<Spanned<u64>>,
    /// Links to other cards, where it has some.
    pub(super) links: Option<RawLinks>,
    pub(super) regions: Spanned<Vec<RawRegions>>,
    /// Where rows of the device end. Without it, no bitstream may go on in the next row.
    #[serde(default)]
    pub(super) rows: Vec<RawRow>,
}

/// Links to other cards, all alike.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLinks {
    pub(super) count: Spanned<u8>,
    pub(super) capacity_bps: Spanned<u64>,
    pub(super) latency_nanos: Spanned<u32>,
}

/// The width of the rows of a die.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRow {
    #[serde(default)]
    pub(super) die: Option<Spanned<u8>>,
    #[serde(default)]
    pub(super) block_type: u8,
    pub(super) columns: Spanned<u16>,
}

/// `count` identical regions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRegions {
    pub(super) count: Spanned<u8>,
    pub(super) kind: RegionKind,
    pub(super) area: Spanned<Area>,
    pub(super) bitstream_max_bytes: Spanned<u64>,
    /// Without them no bitstream is taken for these regions.
    #[serde(default)]
    pub(super) frames: Vec<RawFrames>,
}

/// Columns that the bitstreams of these regions may write; both ends belong to a range.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFrames {
    #[serde(default)]
    pub(super) die: Option<Spanned<u8>>,
    #[serde(default)]
    pub(super) block_type: u8,
    pub(super) rows: Spanned<[u8; 2]>,
    pub(super) columns: Spanned<[u16; 2]>,
    pub(super) frames_per_column: Spanned<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawNtTypes {
    #[serde(default)]
    pub(super) nt_types: Vec<RawNtType>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNtType {
    pub(super) id: Spanned<NtTypeId>,
    pub(super) shareable: bool,
    pub(super) bandwidth_max_bps: Spanned<u64>,
    /// Without one, only the bandwidth limits it.
    pub(super) packets_per_second_max: Option<Spanned<u64>>,
    pub(super) latency_cycles: Spanned<u64>,
    pub(super) area: Spanned<Area>,
    pub(super) memory_bytes: Spanned<u64>,
    pub(super) memory_bytes_per_packet: Option<Spanned<u64>>,
    pub(super) memory_bytes_per_packet_byte: Option<Spanned<u64>>,
    pub(super) state_bytes: Option<Spanned<u64>>,
    pub(super) traffic: Traffic,
    pub(super) description: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawChains {
    #[serde(default)]
    pub(super) chains: Vec<RawChain>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawChain {
    pub(super) id: Spanned<BitstreamId>,
    pub(super) nts: Spanned<Vec<Spanned<NtTypeId>>>,
    pub(super) region_kind: Spanned<RegionKind>,
    pub(super) card_models: Spanned<Vec<Spanned<CardModel>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDags {
    #[serde(default)]
    pub(super) tenants: Vec<RawTenant>,
    #[serde(default)]
    pub(super) dags: Vec<RawDag>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenant {
    pub(super) id: Spanned<TenantId>,
    pub(super) weight: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDag {
    pub(super) tenant: Spanned<TenantId>,
    pub(super) id: Spanned<DagId>,
    pub(super) bandwidth_bps: Spanned<u64>,
    pub(super) chain: Option<Spanned<Vec<Spanned<NtTypeId>>>>,
    pub(super) nodes: Option<Spanned<Vec<RawNode>>>,
    pub(super) edges: Option<Spanned<Vec<RawEdge>>>,
    #[serde(default)]
    pub(super) form: FormPreference,
    pub(super) description: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNode {
    pub(super) id: NodeId,
    pub(super) nt: Spanned<NtTypeId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEdge {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
}
