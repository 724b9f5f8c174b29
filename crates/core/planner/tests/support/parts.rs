//! Small domain values, for test programs and for the tests of modules alike (`src/fixtures.rs`). No type of the
//! planner: in the tests of modules these are other types than in a test program.

#![allow(dead_code, reason = "each test program uses a part of it")]

use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardModel, Cycles, DagId, DagName, Digest,
    NtType, NtTypeId, RegionImages, RegionKind, TenantId,
};

pub fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

pub fn lut(lut: u32) -> Area {
    Area { lut, ramb36: 0, dsp: 0 }
}

pub fn nt_id(text: &str) -> NtTypeId {
    NtTypeId::new(text).expect("a test id")
}

pub fn bitstream_id(text: &str) -> BitstreamId {
    BitstreamId::new(text).expect("a test id")
}

pub fn tenant(text: &str) -> TenantId {
    TenantId::new(text).expect("a test id")
}

/// `tenant/dag`.
pub fn name(text: &str) -> DagName {
    let (tenant, dag) = text.split_once('/').expect("tenant/dag");
    DagName {
        tenant: TenantId::new(tenant).expect("a test id"),
        dag: DagId::new(dag).expect("a test id"),
    }
}

/// 10 Gbps, 10 cycles, 100 LUT, no memory, shareable.
pub fn nt(text: &str) -> NtType {
    NtType::new(nt_id(text), gbps(10), Cycles::new(10), lut(100))
}

/// For known-NT regions, 1 MiB, shareable: `bitstream("d", "nat firewall")`.
pub fn bitstream(id: &str, nts: &str) -> Bitstream {
    Bitstream {
        id: bitstream_id(id),
        images: RegionImages::for_all(Digest::of(id.as_bytes()), ByteSize::from_mib(1)),
        nts: nts.split_whitespace().map(nt_id).collect(),
        region_kind: RegionKind::KnownNt,
        card_model: CardModel::new("sim").expect("a test id"),
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    }
}
