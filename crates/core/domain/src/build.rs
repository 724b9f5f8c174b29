//! Images of one build of a bitstream: parts of it, and its extension by further images.

use crate::image::{ImageConflict, RegionImage, RegionImages};
use crate::nt::{Bitstream, Signer};

/// Why an image is not added to a bitstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitImage {
    /// One of both is for every region: they are two bitstreams, of which only one can have the name.
    #[error("it exists already; choose another id")]
    Exists,
    /// It is not of the same build as the others.
    #[error(
        "the bitstream has {has}, and all of its images have to; this one has {other}; upload it under another id"
    )]
    Differs {
        /// The field of the upload's header, as in the API.
        field: &'static str,
        /// Value of the bitstream.
        has: String,
        /// Value of the image.
        other: String,
    },
    /// It cannot stand beside one of the others.
    #[error(transparent)]
    Conflict(#[from] ImageConflict),
}

impl Bitstream {
    /// The same with one of its images alone.
    #[must_use]
    pub fn with_only(&self, image: &RegionImage) -> Self {
        Self { images: RegionImages::from(image.clone()), ..self.clone() }
    }

    /// The same with some of its images alone; nothing where none is meant.
    #[must_use]
    pub fn with_those(&self, is_meant: impl FnMut(&&RegionImage) -> bool) -> Option<Self> {
        let images: Vec<_> = self.images.iter().filter(is_meant).cloned().collect();
        (!images.is_empty()).then(|| Self { images: RegionImages(images), ..self.clone() })
    }

    /// Whether `other` is of the same build, and has all images of this one.
    pub fn is_extended_by(&self, other: &Self) -> bool {
        let has = |image: &RegionImage| other.images.iter().any(|other| other == image);
        self.check_same_build(other).is_ok() && self.images.iter().all(has)
    }

    /// The same with the images of `other`, which has to be of the same build.
    ///
    /// # Errors
    /// [`UnfitImage`]: it is of another build, or one of its regions has an image.
    pub fn with_images_of(&self, other: &Self) -> Result<Self, UnfitImage> {
        let [first, new] = [self, other].map(|of| of.images.first());
        if first.regions.is_empty() || new.regions.is_empty() {
            return Err(UnfitImage::Exists);
        }
        self.check_same_build(other)?;
        let mut extended = self.clone();
        for image in &other.images {
            extended.images.add(image.clone())?;
        }
        extended.modules.retain(|slot| other.modules.contains(slot));
        Ok(extended)
    }

    /// Checks what all images of a bitstream have in common.
    fn check_same_build(&self, other: &Self) -> Result<(), UnfitImage> {
        let list =
            |of: &Self| of.nts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let signer = |of: &Self| match &of.signed_by {
            Some(Signer::Provider(key)) => format!("a signature by {key}, a key of the provider"),
            Some(Signer::Owner(key)) => format!("a signature by {key}, a key of its owner"),
            None => "no signature".to_owned(),
        };
        let fields = |of: &Self| {
            [
                ("nts", list(of)),
                ("card_model", of.card_model.to_string()),
                ("region_kind", format!("regions of kind {:?}", of.region_kind)),
                ("identity", of.reported_chain().identity.to_string()),
                ("signature", signer(of)),
                ("shareable", format!("shareable = {}", of.shareable)),
            ]
        };
        for ((field, has), (_, other)) in fields(self).into_iter().zip(fields(other)) {
            if has != other {
                return Err(UnfitImage::Differs { field, has, other });
            }
        }
        Ok(())
    }
}
