//! What a build flow needs to make a bitstream: the NTs in their order, the region, the part and
//! what the result must keep to.

use serde::Serialize;
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{Area, CardModel, CardProfile, NtTypeId, RegionKind, RegionProfile};

/// An order to build one bitstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// The FPGA part.
    pub part: String,
    /// The card model that the bitstream names as its target.
    pub card_model: CardModel,
    /// The NTs, in the order packets pass; slot by slot.
    pub nts: Vec<NtTypeId>,
    /// Which regions it is for.
    pub region_kind: RegionKind,
    /// What it must keep to.
    pub constraints: Constraints,
}

/// What a build must keep to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Constraints {
    /// Slots of the region's wrapper.
    pub slots_max: usize,
    /// Clock of the data path, in Hz.
    pub clock_hz: u64,
    /// Width of the data path, in bits.
    pub width_bits: u32,
    /// Largest bitstream.
    pub bitstream_bytes_max: u64,
    /// What the region has.
    pub region_area: Area,
    /// What the NTs take of it by the catalogue.
    pub nts_area: Area,
}

impl Manifest {
    /// The order for these NTs, which take `nts_area` together, in such a region.
    pub fn new(
        card: &CardProfile,
        nts: &[NtTypeId],
        region: &RegionProfile,
        nts_area: Area,
    ) -> Self {
        Self {
            part: card.part.clone(),
            card_model: card.model.clone(),
            nts: nts.to_vec(),
            region_kind: region.kind,
            constraints: Constraints {
                slots_max: CHAIN_SLOTS_MAX,
                clock_hz: card.clock_hz,
                width_bits: card.width_bits,
                bitstream_bytes_max: region.bitstream_max.get(),
                region_area: region.area,
                nts_area,
            },
        }
    }

    /// As TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("text, numbers and lists of them, tables last")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_toml_with_all_that_a_build_needs() {
        let catalogue = crate::catalogue::builtin().expect("it ships");
        let card = &catalogue.cards[0];
        let nts = [&catalogue.nt_types[0], &catalogue.nt_types[1]];
        let ids = nts.map(|nt| nt.id.clone());
        let area = nts.into_iter().map(|nt| nt.area).sum();
        let region = &card.regions[0];
        let text = Manifest::new(card, &ids, region, area).to_toml();
        let read: toml::Table = text.parse().expect("TOML");
        assert_eq!(read["part"].as_str(), Some("xcvu9p-flgb2104-2-e"));
        assert_eq!(read["nts"].as_array().map(Vec::len), Some(2));
        assert_eq!(read["region_kind"].as_str(), Some("known-nt"));
        let constraints = &read["constraints"];
        assert_eq!(constraints["slots_max"].as_integer(), Some(8));
        assert_eq!(constraints["nts_area"]["lut"].as_integer(), Some(1_332));
        assert_eq!(constraints["bitstream_bytes_max"].as_integer(), Some(4_194_304));
    }
}
