//! The catalogue: which cards, NTs and chains exist, and the sample DAGs of the quickstart.
//!
//! It is written by people, as TOML in `bitstreams/`, so every mistake is answered with file, line
//! and key. The files of this project are compiled in ([`builtin`]): a daemon needs none beside it.

mod check;
mod error;
mod floor_plan;
mod folder;
mod image;
mod raw;
mod table;

use snic_domain::{
    Bitstream, BitstreamId, ByteSize, CardModel, CardProfile, DagName, DagSpec, Digest, InvalidId,
    NtType, NtTypeId, RegionImages, RegionKind, Tenant,
};

pub use error::{CatalogueProblem, InvalidCatalogue};
pub use folder::{UnusableProfiles, with_profiles};
pub use image::{CheckedImage, InvalidImage, UploadRules};

use crate::test_image::TestBuild;
use crate::{FloorPlan, InvalidTestImage};

/// One file: its name, for messages, and its text.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    pub name: &'a str,
    /// The text, TOML.
    pub text: &'a str,
}

/// The files of a catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// One card profile each.
    pub cards: &'a [File<'a>],
    /// The provider's NTs.
    pub nt_types: File<'a>,
    /// The chains that bitstreams exist for.
    pub chains: File<'a>,
    /// The sample tenants and DAGs.
    pub dags: File<'a>,
}

/// A catalogue, checked: every name in it resolves, every chain fits a region of every card it
/// is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    /// The cards, in the order of the files.
    pub cards: Vec<CardProfile>,
    /// Owners of frames; one plan for each card.
    pub floor_plans: Vec<FloorPlan>,
    /// The provider's NTs, in the order of the file.
    pub nt_types: Vec<NtType>,
    /// The chains, in the order of the file.
    pub chains: Vec<CatalogueChain>,
    /// The tenants that the sample DAGs belong to.
    pub tenants: Vec<Tenant>,
    /// The sample DAGs, in the order in which they are to be submitted.
    pub dags: Vec<SampleDag>,
}

/// An ordered list of NTs that bitstreams exist for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueChain {
    /// Its name; the bitstream for a card is named after both: see [`CatalogueChain::bitstream_id`].
    pub id: BitstreamId,
    /// The NTs, in the order packets pass; 1 to 8.
    pub nts: Vec<NtTypeId>,
    /// Kind of regions that it is for.
    pub region_kind: RegionKind,
    /// Card models that it is for; at least one.
    pub card_models: Vec<CardModel>,
}

/// A DAG of the quickstart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleDag {
    /// Name, with the owner.
    pub name: DagName,
    /// Specification, which passed [`snic_domain::Dag::new`].
    pub spec: DagSpec,
    pub description: String,
}

impl CatalogueChain {
    /// The id of its bitstream for a card model: `aes-sim-16`. The model is part of it, since a
    /// bitstream is for one model and a daemon may own cards of several.
    ///
    /// # Errors
    ///
    /// [`InvalidId`] if the id would be too long.
    pub fn bitstream_id(&self, model: &CardModel) -> Result<BitstreamId, InvalidId> {
        BitstreamId::new(&format!("{}-{model}", self.id))
    }
}

/// Why a chain's test image cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTestBitstream {
    /// The chain is not for this card.
    #[error("chain {chain} is not for card model {model}")]
    Model { chain: BitstreamId, model: CardModel },
    /// The chain names an NT that the catalogue lacks.
    #[error("chain {chain} names NT {nt}, which the catalogue lacks")]
    Nt { chain: BitstreamId, nt: NtTypeId },
    /// The id of the bitstream is too long.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// The image cannot be built.
    #[error(transparent)]
    Image(#[from] InvalidTestImage),
}

impl Catalogue {
    /// Parses and checks the files of a catalogue. The first mistake is the answer.
    ///
    /// # Errors
    ///
    /// [`InvalidCatalogue`] with the first mistake, its file and its line.
    pub fn parse(files: &Files<'_>) -> Result<Self, InvalidCatalogue> {
        let (cards, floor_plans) = check::cards(files.cards)?;
        let nt_types = check::nt_types(files.nt_types, &cards)?;
        let chains = check::chains(files.chains, &cards, &nt_types)?;
        let (tenants, dags) = check::dags(files.dags, &nt_types)?;
        Ok(Self { cards, floor_plans, nt_types, chains, tenants, dags })
    }

    /// The same catalogue with more card profiles. One of a model that is there already takes the place
    /// of the old one; chains that do not fit its regions are not for it any more.
    ///
    /// # Errors
    ///
    /// [`InvalidCatalogue`] with the first mistake in the files, such as two of the same model.
    pub fn with_cards(mut self, files: &[File<'_>]) -> Result<Self, InvalidCatalogue> {
        let (cards, floor_plans) = check::cards(files)?;
        for (card, plan) in cards.into_iter().zip(floor_plans) {
            match self.cards.iter().position(|old| old.model == card.model) {
                Some(at) => (self.cards[at], self.floor_plans[at]) = (card, plan),
                None => {
                    self.cards.push(card);
                    self.floor_plans.push(plan);
                }
            }
        }
        let (cards, nts) = (&self.cards, &self.nt_types);
        for chain in &mut self.chains {
            let of_chain = |nt: &&NtType| chain.nts.contains(&nt.id);
            let needed = nts.iter().filter(of_chain).map(|nt| nt.area).sum();
            let kind = chain.region_kind;
            chain.card_models.retain(|model| {
                let card = cards.iter().find(|card| card.model == *model);
                card.is_some_and(|card| check::has_room(card, kind, needed))
            });
        }
        Ok(self)
    }

    /// The profile of a card model.
    pub fn card(&self, model: &CardModel) -> Option<&CardProfile> {
        self.cards.iter().find(|card| card.model == *model)
    }

    /// Owners of the frames of a card model.
    pub fn floor_plan(&self, model: &CardModel) -> Option<&FloorPlan> {
        self.floor_plans.iter().find(|plan| plan.model == *model)
    }

    /// An NT of the provider.
    pub fn nt_type(&self, id: &NtTypeId) -> Option<&NtType> {
        self.nt_types.iter().find(|nt| nt.id == *id)
    }

    /// The chains that are for a card model.
    pub fn chains_for<'a>(
        &'a self,
        model: &'a CardModel,
    ) -> impl Iterator<Item = &'a CatalogueChain> {
        self.chains.iter().filter(move |chain| chain.card_models.contains(model))
    }

    /// Builds the test image of a chain for a card, as large as the card's regions take, and the
    /// record that goes with it. Region bitstreams of real cards have the size of the region too.
    ///
    /// # Errors
    ///
    /// [`NoTestBitstream`] if its id is invalid or the image cannot be built.
    pub fn test_bitstream(
        &self,
        chain: &CatalogueChain,
        card: &CardProfile,
    ) -> Result<(Bitstream, Vec<u8>), NoTestBitstream> {
        if !chain.card_models.contains(&card.model) {
            let (chain, model) = (chain.id.clone(), card.model.clone());
            return Err(NoTestBitstream::Model { chain, model });
        }
        let missing = |nt: &NtTypeId| {
            let (chain, nt) = (chain.id.clone(), nt.clone());
            NoTestBitstream::Nt { chain, nt }
        };
        let find = |nt| self.nt_type(nt).ok_or_else(|| missing(nt));
        let nts = chain.nts.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let regions = card.regions.iter().filter(|region| region.kind == chain.region_kind);
        let size = regions.map(|region| region.bitstream_max).max().unwrap_or_default();
        let plan = self.floor_plan(&card.model);
        let die = plan.and_then(|plan| plan.die_of(chain.region_kind)).unwrap_or_default();
        let bytes = TestBuild { card, chain: &nts, die, identity: None }.build(size)?;
        let record = Bitstream {
            id: chain.bitstream_id(&card.model)?,
            images: RegionImages::for_all(
                Digest::of(&bytes),
                ByteSize::from_bytes(bytes.len() as u64),
            ),
            nts: chain.nts.clone(),
            region_kind: chain.region_kind,
            card_model: card.model.clone(),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        };
        Ok((record, bytes))
    }
}

macro_rules! file {
    ($name:literal) => {
        File {
            name: concat!("bitstreams/", $name),
            text: include_str!(concat!("../../../../../bitstreams/", $name)),
        }
    };
}

/// The files that are compiled in.
pub const BUILTIN: Files<'static> = Files {
    cards: &[
        file!("cards/sim-16.toml"),
        file!("cards/sim-32.toml"),
        file!("cards/u280.toml"),
        file!("cards/u250.toml"),
        file!("cards/u55c.toml"),
        file!("cards/htg-9200.toml"),
    ],
    nt_types: file!("nt-types.toml"),
    chains: file!("chains.toml"),
    dags: file!("dags.toml"),
};

/// The NT types of a catalogue's file, for cards that ship.
///
/// # Errors
///
/// [`InvalidCatalogue`] with the first mistake and its line.
pub fn nt_types(file: File<'_>) -> Result<Vec<NtType>, InvalidCatalogue> {
    check::nt_types(file, &builtin()?.cards)
}

/// The catalogue that is compiled in. A test holds that it is valid.
///
/// # Errors
///
/// [`InvalidCatalogue`] if the compiled-in files are invalid, which a test rules out.
pub fn builtin() -> Result<Catalogue, InvalidCatalogue> {
    Catalogue::parse(&BUILTIN)
}

#[cfg(test)]
mod tests;
