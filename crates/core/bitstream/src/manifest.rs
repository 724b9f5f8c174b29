//! Input of a build flow for a bitstream: the NTs in their order, the region, the part and
//! what the result must keep to. And what it says of the bitstream that came out.

use crate::ModuleBuild;
use serde::{Deserialize, Serialize};
use snic_domain::limits::{CHAIN_SLOTS_MAX, REGIONS_MAX};
use snic_domain::{
    Area, BuildClaims, CardModel, CardProfile, ChainIdentity, Digest, NtTypeId, RegionId,
    RegionKind, RegionProfile,
};

/// An order to build one bitstream, with an image for each region that needs its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// The FPGA part.
    pub part: String,
    /// The card model that the bitstream names as its target.
    pub card_model: CardModel,
    /// The NTs, in the order packets pass; slot by slot.
    pub nts: Vec<NtTypeId>,
    /// Kind of regions that it is for.
    pub region_kind: RegionKind,
    /// The regions to build an image for, in ascending order: the first of each group that the card relocates within.
    /// Empty where the groups are not known: the first region of the kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub build_regions: Vec<RegionId>,
    pub constraints: Constraints,
}

/// Constraints of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Constraints {
    /// Slots of the region's wrapper.
    pub slots_max: usize,
    /// Clock of the data path, in Hz.
    pub clock_hz: u64,
    /// Width of the data path, in bits.
    pub width_bits: u32,
    pub bitstream_bytes_max: u64,
    /// Area of the region.
    pub region_area: Area,
    /// Area of the NTs by the catalogue.
    pub nts_area: Area,
}

impl Manifest {
    /// The order for these NTs, which take `nts_area` together, in such a region; with an image for each of
    /// `build_regions`.
    pub fn new(
        card: &CardProfile,
        nts: &[NtTypeId],
        region: &RegionProfile,
        nts_area: Area,
        build_regions: Vec<RegionId>,
    ) -> Self {
        Self {
            part: card.part.clone(),
            card_model: card.model.clone(),
            nts: nts.to_vec(),
            region_kind: region.kind,
            build_regions,
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

    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("text, numbers and lists of them, tables last")
    }
}

/// Statement of a flow about a bitstream that it built: the manifest beside the file. Whoever signs
/// ([`crate::signature::Statement`]) binds it to the bytes. It repeats the order, whose other keys are not
/// read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltManifest {
    /// Identity that the ROM in the region reports.
    pub identity: ChainIdentity,
    /// The regions that it was built for, in ascending order. Empty: the first of a group, and the
    /// configuration controller relocates it.
    pub regions: Vec<RegionId>,
    /// The card model.
    pub card_model: CardModel,
    /// The NTs, in the order packets pass; 1 to 8.
    pub nts: Vec<NtTypeId>,
    /// Kind of regions that it is for.
    pub region_kind: RegionKind,
}

/// A manifest that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidManifest {
    /// Not TOML, or a key is missing or has another kind of value.
    #[error("{0}")]
    Toml(String),
    /// Not as many NTs as a chain has.
    #[error("nts: {0} NTs; a chain has 1 to {CHAIN_SLOTS_MAX}")]
    Nts(usize),
    /// Regions that cannot be, or are not in ascending order.
    #[error("regions: give numbers of 0 to {}, in ascending order", REGIONS_MAX - 1)]
    Regions,
}

impl BuiltManifest {
    /// Manifest of a test image: its identity is made from the rest.
    pub fn of_test(
        card_model: &CardModel,
        nts: &[NtTypeId],
        region_kind: RegionKind,
        regions: &[RegionId],
    ) -> Self {
        let of = format!("{card_model} {region_kind:?} {nts:?}");
        let [a, b, c, d, ..] = Digest::of(of.as_bytes()).words();
        Self {
            identity: ChainIdentity::from_words([a, b, c, d]),
            regions: regions.to_vec(),
            card_model: card_model.clone(),
            nts: nts.to_vec(),
            region_kind,
        }
    }

    /// Manifest of a bitstream with modules, which is for any region of its kind.
    pub fn of_modules(build: &ModuleBuild<'_>, region_kind: RegionKind) -> Self {
        Self {
            identity: build.derived_identity(),
            regions: Vec::new(),
            card_model: build.card.model.clone(),
            nts: build.chain.iter().map(|nt| nt.id.clone()).collect(),
            region_kind,
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`InvalidManifest`] with what is wrong in it.
    pub fn parse(text: &str) -> Result<Self, InvalidManifest> {
        let read: Self =
            toml::from_str(text).map_err(|error| InvalidManifest::Toml(error.to_string()))?;
        if !(1..=CHAIN_SLOTS_MAX).contains(&read.nts.len()) {
            return Err(InvalidManifest::Nts(read.nts.len()));
        }
        let are_known = read.regions.iter().all(|region| region.index() < REGIONS_MAX);
        if !are_known || !read.regions.is_sorted_by(|a, b| a < b) {
            return Err(InvalidManifest::Regions);
        }
        Ok(read)
    }

    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("text, numbers and lists of them")
    }

    /// Claims that are declared with an upload, beside the target and the NTs.
    pub fn claims(&self) -> BuildClaims {
        BuildClaims { identity: Some(self.identity), regions: self.regions.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_a_bitstream_is_read_whatever_else_is_in_it() {
        let nts = ["firewall", "aes"].map(|id| id.parse().expect("a label"));
        let model: CardModel = "sim-16".parse().expect("a label");
        let of = |regions: &[RegionId]| {
            BuiltManifest::of_test(&model, &nts, RegionKind::KnownNt, regions)
        };
        let manifest = of(&[RegionId(0), RegionId(3)]);
        let text = manifest.to_toml();
        assert_eq!(BuiltManifest::parse(&text), Ok(manifest.clone()));
        let more = format!("part = \"x\"\n{text}\n[constraints]\nslots_max = 8\n");
        assert_eq!(BuiltManifest::parse(&more), Ok(manifest.clone()));
        assert_eq!(of(&[]).identity, manifest.identity, "one build of a chain for all regions");
        assert_eq!(BuiltManifest::parse(&of(&[]).to_toml()), Ok(of(&[])));
        for (from, to) in [
            ("identity", "colour"),
            ("[0, 3]", "[3, 0]"),
            ("[0, 3]", "[0, 32]"),
            ("[\"firewall\", \"aes\"]", "[]"),
            ("known-nt", "any"),
        ] {
            let wrong = text.replace(from, to);
            assert_ne!(wrong, text, "{from}");
            assert!(BuiltManifest::parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_manifest_is_toml_with_all_that_a_build_needs() {
        let catalogue = crate::catalogue::builtin().expect("it ships");
        let card = &catalogue.cards[0];
        let nts = [&catalogue.nt_types[0], &catalogue.nt_types[1]];
        let ids = nts.map(|nt| nt.id.clone());
        let area = nts.into_iter().map(|nt| nt.area).sum();
        let region = &card.regions[0];
        let of = |regions| Manifest::new(card, &ids, region, area, regions).to_toml();
        let text = of(vec![RegionId(0), RegionId(4)]);
        let read: toml::Table = text.parse().expect("TOML");
        assert_eq!(read["build_regions"].as_array().map(Vec::len), Some(2));
        assert!(!of(Vec::new()).contains("build_regions"), "the groups are not known");
        assert_eq!(read["part"].as_str(), Some("xcvu9p-flgb2104-2-e"));
        assert_eq!(read["nts"].as_array().map(Vec::len), Some(2));
        assert_eq!(read["region_kind"].as_str(), Some("known-nt"));
        let constraints = &read["constraints"];
        assert_eq!(constraints["slots_max"].as_integer(), Some(8));
        assert_eq!(constraints["nts_area"]["lut"].as_integer(), Some(1_332));
        assert_eq!(constraints["bitstream_bytes_max"].as_integer(), Some(4_194_304));
    }
}
