//! A small catalogue, and short ways to name things.

use snic_controller::Command;
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, Caller, CardId, CardModel, CardProfile,
    Cycles, DagId, DagName, DagSpec, Digest, NtType, NtTypeId, OperationId, Quota, RegionId,
    RegionImage, RegionImages, RegionKind, RegionProfile, SaveArea, Tenant, TenantId,
    VirtualFunctions,
};

/// NT types: name, Gbit/s.
const NTS: [(&str, u64); 7] = [
    ("nat", 40),
    ("firewall", 40),
    ("cache", 20),
    ("aes", 10),
    ("lb", 40),
    ("vpn", 40),
    ("pad", 40),
];

/// Bitstreams, named after their NTs. A region that holds the first serves most chains; `lb`,
/// `vpn` and `pad` always need a separate region.
const CHAINS: [&[&str]; 9] = [
    &["nat", "firewall", "cache", "aes"],
    &["nat", "firewall"],
    &["nat"],
    &["firewall"],
    &["cache"],
    &["aes"],
    &["lb"],
    &["vpn"],
    &["pad"],
];

/// Regions of the card.
pub const REGIONS: usize = 4;

pub fn card_id() -> CardId {
    CardId::new("card0").expect("a label")
}

pub fn tenant_id(id: &str) -> TenantId {
    TenantId::new(id).expect("a label")
}

pub fn nt_id(id: &str) -> NtTypeId {
    NtTypeId::new(id).expect("an owned label")
}

pub fn bitstream_id(id: &str) -> BitstreamId {
    BitstreamId::new(id).expect("an owned label")
}

/// A DAG by tenant and id: `acme/web`.
pub fn dag(name: &str) -> DagName {
    let (tenant, id) = name.split_once('/').expect("TENANT/DAG");
    DagName { tenant: tenant_id(tenant), dag: DagId::new(id).expect("a label") }
}

pub fn caller(tenant: &str) -> Caller {
    Caller::Tenant(tenant_id(tenant))
}

pub fn profile() -> CardProfile {
    let region = RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: 10_000, ramb36: 10, dsp: 10 },
        bitstream_max: ByteSize::from_bytes(16_384),
    };
    CardProfile {
        model: CardModel::new("tiny").expect("a label"),
        part: "xcvu9p-flgb2104-2-e".into(),
        idcode: 0x14B3_1093,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: Bandwidth::from_gbps(100),
        egress: Bandwidth::from_gbps(100),
        memory: ByteSize::from_mib(1_024),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_bytes(811_008),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: Some(snic_domain::RegionPass::SUPERNIC),
        // Of four contexts.
        save_area: SaveArea { bytes: ByteSize::from_bytes(16_384), bytes_per_second: 1_000_000 },
        regions: vec![region; REGIONS],
        processors: Vec::new(),
        links: None,
    }
}

/// The virtual functions of the card.
pub fn functions() -> VirtualFunctions {
    let physical_function = "0000:3b:00.0".parse().expect("an address");
    VirtualFunctions { physical_function, count: 8, first_offset: 1, stride: 1 }
}

pub fn nt(id: &str, gbps: u64) -> NtType {
    NtType {
        memory: ByteSize::from_mib(2),
        ..NtType::new(
            nt_id(id),
            Bandwidth::from_gbps(gbps),
            Cycles::new(20),
            Area { lut: 1_000, ramb36: 1, dsp: 0 },
        )
    }
}

pub fn nts() -> Vec<NtType> {
    NTS.iter().map(|(id, gbps)| nt(id, *gbps)).collect()
}

pub fn bitstream(id: &str, nts: &[&str]) -> Bitstream {
    Bitstream {
        id: bitstream_id(id),
        images: RegionImages::for_all(digest(id), ByteSize::from_bytes(8_192)),
        nts: nts.iter().map(|nt| nt_id(nt)).collect(),
        region_kind: RegionKind::KnownNt,
        card_model: profile().model,
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    }
}

/// A bitstream with the bytes of another.
pub fn with_bytes(mut bitstream: Bitstream, digest: Digest) -> Bitstream {
    bitstream.images.first_mut().digest = digest;
    bitstream
}

/// An image of a bitstream for some regions, as it is uploaded; its bytes are named after both.
pub fn image(of: &Bitstream, regions: &[u8]) -> Bitstream {
    let digest = digest(&format!("{} {regions:?}", of.id));
    let regions = regions.iter().copied().map(RegionId).collect();
    let size = of.images.first().size;
    Bitstream {
        images: RegionImages::from(RegionImage { digest, size, regions, signature: None }),
        ..of.clone()
    }
}

/// The digest of the bitstream of this id.
pub fn digest(id: &str) -> Digest {
    Digest::of(id.as_bytes())
}

pub fn bitstreams() -> Vec<Bitstream> {
    CHAINS.iter().map(|nts| bitstream(&nts.join("-"), nts)).collect()
}

pub fn tenant(id: &str) -> Tenant {
    let quota = Quota { bandwidth_max: Bandwidth::from_gbps(1_000), ..Quota::default() };
    Tenant { id: tenant_id(id), weight: 1, quota, notes: Default::default(), project: None }
}

/// Lets `acme` have more DAGs and operations than any test makes.
pub fn widen_quota() -> Command {
    let quota = Quota { dags_max: 4_000, operations_max: 4_000, ..tenant("acme").quota };
    Command::UpdateTenant {
        id: tenant_id("acme"),
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    }
}

/// A chain: `nat firewall`.
pub fn spec(chain: &str, gbps: u64) -> DagSpec {
    let nts: Vec<NtTypeId> = chain.split(' ').map(nt_id).collect();
    DagSpec::chain(&nts, Bandwidth::from_gbps(gbps))
}

pub fn create(name: &str, spec: DagSpec) -> Command {
    Command::CreateDag { name: dag(name), spec, validate_only: false }
}

pub fn update(name: &str, spec: DagSpec) -> Command {
    Command::UpdateDag { name: dag(name), patch: spec.into(), etag: None, validate_only: false }
}

pub fn delete(name: &str) -> Command {
    Command::DeleteDag { name: dag(name), etag: None }
}

pub fn cancel(id: &OperationId) -> Command {
    Command::CancelOperation { id: id.clone() }
}

pub fn delete_tenant(id: &str, force: bool) -> Command {
    Command::DeleteTenant { id: tenant_id(id), force, etag: None }
}

pub fn delete_nt(id: &str) -> Command {
    Command::DeleteNtType { id: nt_id(id), etag: None }
}

pub fn delete_bitstream(id: &str) -> Command {
    Command::DeleteBitstream { id: bitstream_id(id), image: None, etag: None }
}

pub fn drain(region: u8) -> Command {
    Command::DrainRegion { card: card_id(), region: RegionId(region) }
}

pub fn undrain(region: u8) -> Command {
    Command::UndrainRegion { card: card_id(), region: RegionId(region) }
}

pub fn reset(region: u8) -> Command {
    Command::ResetRegion { card: card_id(), region: RegionId(region) }
}
