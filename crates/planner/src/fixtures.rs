//! Catalogues and ledgers for the tests of modules, in few words.

use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardId, CardModel, CardProfile, Cycles,
    DagId, DagName, Digest, NtType, NtTypeId, RegionId, RegionKind, RegionProfile, Slot, TenantId,
    Traffic,
};

use crate::catalogue::NtKey;
use crate::reservation::SlotShare;
use crate::{Ledger, PlanCatalogue, Reservation};

pub(crate) fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

/// `tenant/dag`.
pub(crate) fn name(text: &str) -> DagName {
    let (tenant, dag) = text.split_once('/').expect("tenant/dag");
    let tenant = TenantId::new(tenant).expect("a test id");
    DagName { tenant, dag: DagId::new(dag).expect("a test id") }
}

pub(crate) fn nt_id(id: &str) -> NtTypeId {
    NtTypeId::new(id).expect("a test id")
}

/// 100 LUT, shareable, no memory.
pub(crate) fn nt(id: &str, gbit: u64) -> NtType {
    NtType {
        id: nt_id(id),
        shareable: true,
        bandwidth_max: gbps(gbit),
        latency: Cycles::new(10),
        area: Area { lut: 100, ramb36: 0, dsp: 0 },
        memory: ByteSize::ZERO,
        state: ByteSize::ZERO,
        traffic: Traffic::HeaderOnly,
        description: String::new(),
    }
}

/// For known-NT regions, 1 MiB, shareable.
pub(crate) fn bitstream(id: &str, nts: &str) -> Bitstream {
    Bitstream {
        id: BitstreamId::new(id).expect("a test id"),
        digest: Digest::of(id.as_bytes()),
        size: ByteSize::from_mib(1),
        nts: nts.split_whitespace().map(nt_id).collect(),
        region_kind: RegionKind::KnownNt,
        card_model: CardModel::new("sim").expect("a test id"),
        shareable: true,
        signed_by: None,
    }
}

/// NTs of 10 Gbit/s each, and bitstreams.
pub(crate) fn catalogue(nts: &str, bitstreams: &[(&str, &str)]) -> PlanCatalogue {
    let mut catalogue = PlanCatalogue::new();
    for id in nts.split_whitespace() {
        catalogue.insert_nt(nt(id, 10));
    }
    for (id, nts) in bitstreams {
        catalogue.insert_bitstream(bitstream(id, nts));
    }
    catalogue
}

pub(crate) fn key(catalogue: &PlanCatalogue, id: &str) -> NtKey {
    catalogue.known(&nt_id(id)).expect("a known NT").key
}

/// A card with this many regions of 1,000 LUT for known NTs.
pub(crate) fn card(regions: usize) -> CardProfile {
    let region = RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: 1_000, ramb36: 0, dsp: 0 },
        bitstream_max: ByteSize::from_mib(1),
    };
    CardProfile { regions: vec![region; regions], ..crate::ledger::tests::profile() }
}

pub(crate) fn ledger(regions: usize) -> Ledger {
    Ledger::new(CardId::new("card0").expect("a test id"), card(regions))
}

pub(crate) fn load(ledger: &mut Ledger, catalogue: &PlanCatalogue, region: u8, id: &str) {
    let content = catalogue.bitstream(&BitstreamId::new(id).expect("a test id"));
    let content = Some(content.expect("a known bitstream"));
    ledger.set_content(RegionId(region), content, catalogue).expect("nobody uses it");
}

/// Gbit/s of each of these slots, by region and slot, in ascending order.
pub(crate) fn shares(places: &[(u8, u8, u64)]) -> Reservation {
    let share = |(region, slot, gbit): &(u8, u8, u64)| SlotShare {
        region: RegionId(*region),
        slot: Slot(*slot),
        bandwidth: gbps(*gbit),
        memory: ByteSize::ZERO,
        credits: 0,
    };
    Reservation { shares: places.iter().map(share).collect(), ..Reservation::default() }
}
