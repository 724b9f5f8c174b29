//! Catalogues and ledgers for the tests of modules, in few words.

use snic_domain::{
    Area, BitstreamId, ByteSize, CardId, CardProfile, NtType, RegionId, RegionKind, RegionProfile,
    Slot,
};

use crate::nt_key::NtKey;
use crate::reservation::SlotShare;
use crate::{Ledger, PlanCatalogue, Reservation};

#[path = "../tests/support/parts.rs"]
mod parts;

pub(crate) use parts::{bitstream, gbps, name, nt_id};

/// 100 LUT, shareable, no memory.
pub(crate) fn nt(id: &str, gbit: u64) -> NtType {
    NtType { bandwidth_max: gbps(gbit), ..parts::nt(id) }
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
        packets: 0,
        memory: ByteSize::ZERO,
        credits: 0,
    };
    Reservation { shares: places.iter().map(share).collect(), ..Reservation::default() }
}
