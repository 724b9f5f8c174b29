//! Whether an uploaded image is what it is declared to be, and which regions of its card it is for.

use std::collections::BTreeMap;
use std::ops::Range;

use snic_domain::{
    Area, Bitstream, ByteSize, CardModel, CardProfile, NtType, RegionId, Signer, Slot,
};

use super::Catalogue;
use crate::signature::{NotTrusted, Trust};
use crate::{FloorPlan, InvalidUpload, OutsideRegion, check_upload};

/// Rules that an upload is held against.
#[derive(Debug, Clone)]
pub struct UploadRules {
    /// Keys whose signatures count.
    pub trust: Trust,
    /// The cards, and which frames are whose.
    pub catalogue: Catalogue,
}

/// Facts about an upload that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedImage {
    /// The key that signed it; `None` where it is unsigned and may be.
    pub signed_by: Option<Signer>,
    /// The regions that it can be loaded into; none where that is every one of its kind.
    pub regions: Vec<RegionId>,
    /// The slots that have a WebAssembly module.
    pub modules: Vec<Slot>,
}

impl UploadRules {
    /// Checks who signed an image, and [`Catalogue::check_image`].
    ///
    /// # Errors
    /// The first check that fails.
    pub fn check(
        &self,
        image: &[u8],
        signature: &[u8],
        declared: &Bitstream,
        nts: &[NtType],
    ) -> Result<CheckedImage, InvalidImage> {
        let signed_by = self.trust.signer(declared, signature)?;
        let (regions, modules) = self.catalogue.check_image(image, declared, nts)?;
        Ok(CheckedImage { signed_by, regions, modules })
    }
}

/// Why an image is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidImage {
    /// It is not signed, or by nobody who is trusted.
    #[error(transparent)]
    Signature(#[from] NotTrusted),
    /// It is not what its declaration says.
    #[error(transparent)]
    Upload(#[from] InvalidUpload),
    /// It reaches beyond its regions, or names a region whose frames it has not.
    #[error(transparent)]
    Outside(#[from] OutsideRegion),
    /// A region that it names, or each one whose frames it has, is too small.
    #[error(
        "the image has {size} and its NTs need {area}; region {region} of card model {model} takes {size_max} and has \
         {area_max}"
    )]
    TooLarge {
        region: RegionId,
        model: CardModel,
        /// Size of the image.
        size: ByteSize,
        /// Size that the region takes.
        size_max: ByteSize,
        /// Sum of its NTs' area.
        area: Area,
        /// Area of the region.
        area_max: Area,
    },
}

impl InvalidImage {
    /// The field of the upload's header that is wrong, as in the API; `chunk` is the content.
    pub fn field(&self) -> String {
        match self {
            Self::Signature(_) => "signature".to_owned(),
            Self::Upload(error) => error.field(),
            Self::Outside(error) => error.field().to_owned(),
            Self::TooLarge { .. } => "regions".to_owned(),
        }
    }
}

impl Catalogue {
    /// Groups of regions that one image serves each, by card model.
    pub fn region_groups(&self) -> BTreeMap<CardModel, Vec<Range<u8>>> {
        let groups = |plan: &FloorPlan| {
            let groups = plan.groups.iter().map(|group| group.regions.clone()).collect();
            (plan.model.clone(), groups)
        };
        self.cards.iter().filter_map(|card| self.floor_plan(&card.model)).map(groups).collect()
    }

    /// Checks an image against its declaration, the card's profile and its floor plan. `nts` are the NT types that
    /// its owner may use. Returns the regions that it can be loaded into, none where that is every one of its kind, and
    /// the slots that have a WebAssembly module.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn check_image(
        &self,
        image: &[u8],
        declared: &Bitstream,
        nts: &[NtType],
    ) -> Result<(Vec<RegionId>, Vec<Slot>), InvalidImage> {
        let nt = |id: &snic_domain::NtTypeId| nts.iter().find(|nt| nt.id == *id);
        let checked = check_upload(image, declared, &self.cards, nt)?;
        let named = &declared.images.first().regions;
        let mut regions = match self.floor_plan(&declared.card_model) {
            Some(plan) => plan.regions_for(&checked.file, declared)?,
            None => named.clone(),
        };
        let Some(card) = self.card(&declared.card_model) else {
            return Ok((regions, checked.modules));
        };
        let size = declared.images.first().size;
        let too_large = |region: &RegionId| too_large(card, *region, size, checked.area);
        if let Some(error) = named.iter().find_map(too_large) {
            return Err(error);
        }
        let fits = |region: &RegionId| too_large(region).is_none();
        // No regions would mean every one.
        if let Some(error) = regions.first().and_then(too_large)
            && !regions.iter().any(fits)
        {
            return Err(error);
        }
        regions.retain(fits);
        Ok((regions, checked.modules))
    }
}

fn too_large(
    card: &CardProfile,
    region: RegionId,
    size: ByteSize,
    area: Area,
) -> Option<InvalidImage> {
    let of = card.region(region)?;
    let takes = size <= of.bitstream_max && of.area.fits(area);
    (!takes).then(|| InvalidImage::TooLarge {
        region,
        model: card.model.clone(),
        size,
        size_max: of.bitstream_max,
        area,
        area_max: of.area,
    })
}
