//! A small card and catalogue for the tests of single machines.

use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardModel, CardProfile, Cycles, Dag, DagId,
    DagName, DagSpec, Digest, NtType, NtTypeId, RegionImages, RegionKind, RegionProfile, SaveArea,
    TenantId,
};
use snic_planner::PlanCatalogue;

pub(crate) fn gbps(gbps: u64) -> Bandwidth {
    Bandwidth::from_gbps(gbps)
}

pub(crate) fn nt_id(id: &str) -> NtTypeId {
    NtTypeId::new(id).expect("a label")
}

pub(crate) fn name(id: &str) -> DagName {
    let tenant = TenantId::new("acme").expect("a label");
    DagName { tenant, dag: DagId::new(id).expect("a label") }
}

pub(crate) fn dag(nt: &str, bandwidth: Bandwidth) -> Dag {
    Dag::new(DagSpec::chain(&[nt_id(nt)], bandwidth)).expect("a chain")
}

pub(crate) fn profile(regions: usize) -> CardProfile {
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
        ingress: gbps(100),
        egress: gbps(100),
        memory: ByteSize::from_mib(64),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_bytes(811_008),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: Some(snic_domain::RegionPass::SUPERNIC),
        save_area: SaveArea { bytes: ByteSize::ZERO, bytes_per_second: 1 },
        regions: vec![region; regions],
        processors: Vec::new(),
        links: None,
    }
}

/// The NTs `aes` and `lb`, of 10 Gbit/s each, with a bitstream each; and `gre`, with none.
pub(crate) fn catalogue() -> PlanCatalogue {
    let mut catalogue = PlanCatalogue::new();
    for id in ["aes", "lb", "gre"] {
        catalogue.insert_nt(NtType::new(
            nt_id(id),
            gbps(10),
            Cycles::new(20),
            Area { lut: 1_000, ramb36: 1, dsp: 0 },
        ));
    }
    for id in ["aes", "lb"] {
        catalogue.insert_bitstream(Bitstream {
            id: BitstreamId::new(id).expect("a label"),
            images: RegionImages::for_all(Digest::of(id.as_bytes()), ByteSize::from_bytes(8_192)),
            nts: vec![nt_id(id)],
            region_kind: RegionKind::KnownNt,
            card_model: CardModel::new("tiny").expect("a label"),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        });
    }
    catalogue
}
