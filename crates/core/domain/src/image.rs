//! The images of a bitstream: which bytes a region is loaded with.
//!
//! A partial bitstream of a vendor's tools has the frames of one region. Where the card's configuration controller
//! relocates it, one image serves a group of regions, or all of a kind.

use serde::{Deserialize, Serialize};

use crate::limits::REGIONS_MAX;
use crate::{ByteSize, Digest, RegionId};

/// The bytes that some regions are loaded with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionImage {
    /// The digest of its bytes, which also names them in the store and on the card.
    pub digest: Digest,
    pub size: ByteSize,
    /// The regions that it can be loaded into, in ascending order. Empty: every region of its bitstream's kind, for
    /// the configuration controller relocates it.
    pub regions: Vec<RegionId>,
    /// Its signature; `None` where it was uploaded without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<ImageSignature>,
}

/// The signature of an image, as it was uploaded. It is kept, for which keys count can change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSignature {
    /// Its bytes in hexadecimal digits.
    hex: Box<str>,
    /// The regions that the signed line names; those of the image may be fewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionId>,
}

impl ImageSignature {
    /// A signature of a line that names these regions.
    pub fn new(bytes: &[u8], regions: Vec<RegionId>) -> Self {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { hex: hex.into(), regions }
    }

    /// Its bytes. What a store holds instead of digits is no byte, and so no signature.
    pub fn bytes(&self) -> Vec<u8> {
        let digits = self.hex.as_bytes().chunks(2);
        let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        digits.filter_map(byte).collect()
    }
}

impl RegionImage {
    /// Whether it is for a region of its kind.
    pub fn fits(&self, region: RegionId) -> bool {
        self.regions.is_empty() || self.regions.contains(&region)
    }

    /// The regions that it is for, a bit set.
    pub fn region_set(&self) -> u32 {
        match self.regions.is_empty() {
            true => u32::MAX >> (u32::BITS as usize - REGIONS_MAX),
            false => self.regions.iter().fold(0, |set, region| set | 1 << region.0),
        }
    }
}

/// An image that cannot stand beside the others of its bitstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageConflict {
    /// A region has an image already.
    #[error("region {region} has an image already, with digest {digest}; delete that image first")]
    Region {
        region: RegionId,
        /// Digest of the image that is there.
        digest: Digest,
    },
    /// One of the two is for every region.
    #[error(
        "an image for every region cannot stand beside others; upload it as a bitstream of its own, or delete this \
         one first"
    )]
    EveryRegion,
    /// The same bytes.
    #[error("its image for regions {} has the same bytes, digest {digest}", numbers(regions))]
    Digest {
        /// Digest of both.
        digest: Digest,
        /// For which the image that is there is.
        regions: Vec<RegionId>,
    },
}

/// Region numbers for people: `0, 1, 7`.
pub fn numbers<'a>(regions: impl IntoIterator<Item = &'a RegionId>) -> String {
    regions.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The images of a bitstream: at least one, in the order of their first regions, and at most one for a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<RegionImage>")]
pub struct RegionImages(pub(crate) Vec<RegionImage>);

impl TryFrom<Vec<RegionImage>> for RegionImages {
    type Error = String;

    fn try_from(images: Vec<RegionImage>) -> Result<Self, String> {
        let mut images = images.into_iter();
        let first = images.next().ok_or("a bitstream has at least one image")?;
        let mut checked = Self::from(first);
        images.try_for_each(|image| checked.add(image)).map_err(|conflict| conflict.to_string())?;
        Ok(checked)
    }
}

impl From<RegionImage> for RegionImages {
    fn from(image: RegionImage) -> Self {
        Self(vec![image])
    }
}

impl IntoIterator for RegionImages {
    type Item = RegionImage;
    type IntoIter = std::vec::IntoIter<RegionImage>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a RegionImages {
    type Item = &'a RegionImage;
    type IntoIter = std::slice::Iter<'a, RegionImage>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl RegionImages {
    /// One image for every region of its kind.
    pub fn for_all(digest: Digest, size: ByteSize) -> Self {
        Self::from(RegionImage { digest, size, regions: Vec::new(), signature: None })
    }

    /// The image with the lowest region: the only one where it is for every region.
    pub fn first(&self) -> &RegionImage {
        &self.0[0]
    }

    /// The same, to change it.
    pub fn first_mut(&mut self) -> &mut RegionImage {
        &mut self.0[0]
    }

    /// In the order of their first regions.
    pub fn iter(&self) -> std::slice::Iter<'_, RegionImage> {
        self.0.iter()
    }

    /// Number of images.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The image for a region.
    pub fn of(&self, region: RegionId) -> Option<&RegionImage> {
        self.0.iter().find(|image| image.fits(region))
    }

    /// The image with these bytes.
    pub fn with_digest(&self, digest: Digest) -> Option<&RegionImage> {
        self.0.iter().find(|image| image.digest == digest)
    }

    /// The bytes of all images.
    pub fn size(&self) -> ByteSize {
        self.0.iter().map(|image| image.size).sum()
    }

    /// The regions that it has images for, a bit set.
    pub fn region_set(&self) -> u32 {
        self.0.iter().fold(0, |set, image| set | image.region_set())
    }

    /// The regions that its images name, in ascending order; none where one is for every region.
    pub fn regions(&self) -> Vec<RegionId> {
        let mut all: Vec<RegionId> =
            self.0.iter().flat_map(|image| &image.regions).copied().collect();
        all.sort_unstable();
        all
    }

    /// Adds an image.
    ///
    /// # Errors
    /// [`ImageConflict`]: one of its regions has an image, or one of both is for every region. Nothing has changed then.
    pub fn add(&mut self, image: RegionImage) -> Result<(), ImageConflict> {
        if let Some(same) = self.with_digest(image.digest) {
            let regions = same.regions.clone();
            return Err(ImageConflict::Digest { digest: image.digest, regions });
        }
        if image.regions.is_empty() || self.first().regions.is_empty() {
            return Err(ImageConflict::EveryRegion);
        }
        let taken = |region: &RegionId| Some((*region, self.of(*region)?.digest));
        if let Some((region, digest)) = image.regions.iter().find_map(taken) {
            return Err(ImageConflict::Region { region, digest });
        }
        let at = self.0.partition_point(|other| other.regions < image.regions);
        self.0.insert(at, image);
        Ok(())
    }

    /// Removes the image with these bytes, and returns it; `None` where there is none or no other one.
    pub fn remove(&mut self, digest: Digest) -> Option<RegionImage> {
        let at = self.0.iter().position(|image| image.digest == digest)?;
        (self.0.len() > 1).then(|| self.0.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{Bitstream, ChainIdentity, Notes, RegionKind, Signer, UnfitImage};

    fn image(name: &str, regions: &[u8]) -> RegionImage {
        let regions = regions.iter().copied().map(RegionId).collect();
        let (digest, size) = (Digest::of(name.as_bytes()), ByteSize::from_mib(1));
        RegionImage { digest, size, regions, signature: None }
    }

    #[test]
    fn a_region_has_one_image_and_images_stand_in_the_order_of_their_regions() {
        let mut images = RegionImages::from(image("b", &[2, 3]));
        images.add(image("a", &[0])).expect("another region");
        images.add(image("c", &[31])).expect("another region");
        let digests: Vec<_> = images.iter().map(|image| image.digest).collect();
        assert_eq!(digests, ["a", "b", "c"].map(|name| Digest::of(name.as_bytes())));
        assert_eq!(images.regions(), [0, 2, 3, 31].map(RegionId));
        assert_eq!(images.region_set(), 1 << 31 | 0b1101);
        assert_eq!(images.size(), ByteSize::from_mib(3));
        for region in 0..REGIONS_MAX as u8 {
            let of = images.of(RegionId(region)).map(|image| image.digest);
            let name = match region {
                0 => Some("a"),
                2 | 3 => Some("b"),
                31 => Some("c"),
                _ => None,
            };
            assert_eq!(of, name.map(|name| Digest::of(name.as_bytes())), "region {region}");
        }
        let before = images.clone();
        for (wrong, says) in [
            (image("d", &[1, 3]), "region 3 has an image already"),
            (image("d", &[]), "for every region"),
            (image("b", &[7]), "the same bytes"),
        ] {
            let error = images.add(wrong).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(images, before, "a refused image changes nothing");
        }
        let of = |name: &str| Digest::of(name.as_bytes());
        assert_eq!(images.remove(of("d")), None);
        assert_eq!(images.remove(of("b")), Some(image("b", &[2, 3])));
        images.add(image("d", &[1, 3])).expect("the regions are free again");
    }

    #[test]
    fn an_image_for_every_region_stands_alone_and_the_last_one_stays() {
        let mut images = RegionImages::for_all(Digest::of(b"a"), ByteSize::from_mib(1));
        assert!((0..REGIONS_MAX as u8).all(|region| images.of(RegionId(region)).is_some()));
        assert_eq!((images.region_set(), images.regions()), (u32::MAX, Vec::new()));
        assert_eq!(images.add(image("b", &[0])), Err(ImageConflict::EveryRegion));
        assert_eq!(images.remove(Digest::of(b"a")), None);
        assert_eq!(images.len(), 1);
    }

    fn bitstream(images: RegionImages) -> Bitstream {
        Bitstream {
            id: "acme.nat".parse().expect("an id"),
            images,
            nts: vec!["nat".parse().expect("a label")],
            region_kind: RegionKind::KnownNt,
            card_model: "sim".parse().expect("a label"),
            shareable: false,
            signed_by: Some(Signer::Owner("builds".into())),
            modules: Vec::new(),
            notes: Notes::default(),
            identity: Some(ChainIdentity::from_words([1, 2, 3, 4])),
        }
    }

    fn with(regions: &[&[u8]]) -> Bitstream {
        let [first, more @ ..] = regions else { panic!("there is one image") };
        let mut images = RegionImages::from(image(&format!("{first:?}"), first));
        for regions in more {
            images.add(image(&format!("{regions:?}"), regions)).expect("other regions");
        }
        bitstream(images)
    }

    /// A difference that another build may have.
    type Change<'a> = &'a dyn Fn(&mut Bitstream);

    #[test]
    fn only_images_of_one_build_and_signer_stand_together() {
        let there = with(&[&[0], &[2]]);
        let extended = there.with_images_of(&with(&[&[1]])).expect("another region");
        assert_eq!(extended, with(&[&[0], &[1], &[2]]));
        assert_eq!(there.with_images_of(&with(&[&[1], &[3]])), Ok(with(&[&[0], &[1], &[2], &[3]])));
        let changes: [(&str, Change); 9] = [
            ("nts", &|of| of.nts.push("aes".parse().expect("a label"))),
            ("nts", &|of| of.nts.clear()),
            ("card_model", &|of| of.card_model = "other".parse().expect("a label")),
            ("region_kind", &|of| of.region_kind = RegionKind::UserNt),
            ("identity", &|of| of.identity = None),
            ("identity", &|of| of.identity = Some(ChainIdentity::from_words([1, 2, 3, 5]))),
            ("signature", &|of| of.signed_by = None),
            ("signature", &|of| of.signed_by = Some(Signer::Provider("builds".into()))),
            ("shareable", &|of| of.shareable = true),
        ];
        for (expected, change) in changes {
            let mut other = with(&[&[1]]);
            change(&mut other);
            match there.with_images_of(&other) {
                Err(UnfitImage::Differs { field, has, other }) => {
                    assert_eq!(field, expected);
                    assert_ne!(has, other);
                }
                found => panic!("{expected}: {found:?}"),
            }
            assert!(!there.is_extended_by(&Bitstream { images: extended.images.clone(), ..other }));
        }
        // What says nothing of the build may differ.
        let mut noted = with(&[&[1]]);
        noted.notes.description = crate::Description::new("later").expect("short");
        assert_eq!(there.with_images_of(&noted), Ok(extended));
    }

    #[test]
    fn an_image_for_every_region_and_one_for_some_are_two_bitstreams() {
        let (all, some) = (with(&[&[]]), with(&[&[0]]));
        for (there, other) in [(&all, &some), (&some, &all), (&all, &all)] {
            assert_eq!(there.with_images_of(other), Err(UnfitImage::Exists));
        }
        let taken = some.with_images_of(&with(&[&[0, 1]]));
        let expected = ImageConflict::Region { region: RegionId(0), digest: Digest::of(b"[0]") };
        assert_eq!(taken, Err(UnfitImage::Conflict(expected)));
    }

    #[test]
    fn a_bitstream_is_extended_by_one_with_all_of_its_images() {
        let there = with(&[&[0], &[2, 3]]);
        assert!(there.is_extended_by(&there));
        assert!(there.is_extended_by(&with(&[&[0], &[1], &[2, 3]])));
        assert!(!there.is_extended_by(&with(&[&[0], &[1]])), "one is gone");
        assert!(!there.is_extended_by(&with(&[&[0], &[2], &[3]])), "they are other images");
        for at in [0, 1] {
            let image = there.images.iter().nth(at).expect("it has two").clone();
            let alone = there.with_only(&image);
            assert_eq!(alone.images, RegionImages::from(image));
            assert!(alone.is_extended_by(&there) && !there.is_extended_by(&alone));
        }
    }

    #[test]
    fn a_region_names_the_digest_that_it_is_loaded_with() {
        let there = with(&[&[0], &[2, 3]]);
        let digest = |text: &str| Some(Digest::of(text.as_bytes()));
        let expected = [digest("[0]"), None, digest("[2, 3]"), digest("[2, 3]"), None];
        for (region, expected) in (0..).map(RegionId).zip(expected) {
            assert_eq!(there.digest_for(region), expected, "region {region}");
            assert_eq!(there.fits_region(region), expected.is_some());
        }
        assert_eq!(numbers(&there.images.regions()), "0, 2, 3");
        assert_eq!(numbers(&[]), "");
    }

    #[test]
    fn an_image_alone_is_a_bitstream_of_the_same_build() {
        let whole = with(&[&[0], &[2, 3]]);
        let image = whole.images.of(RegionId(3)).expect("it has one").clone();
        let alone = whole.with_only(&image);
        assert_eq!(alone.images.iter().collect::<Vec<_>>(), [&image]);
        assert_eq!(alone.images.region_set(), 0b1100);
        assert!(alone.is_extended_by(&whole) && !whole.is_extended_by(&alone));
        assert_eq!(alone.with_images_of(&with(&[&[0]])), Ok(whole.clone()));
        for image in whole.images.clone() {
            assert_eq!(whole.with_only(&image).images.into_iter().collect::<Vec<_>>(), [image]);
        }
    }

    #[test]
    fn regions_are_listed_for_people() {
        let set = |regions: &[u8]| regions.iter().copied().map(RegionId).collect::<Vec<_>>();
        for (regions, text) in [(set(&[]), ""), (set(&[4]), "4"), (set(&[0, 1, 31]), "0, 1, 31")] {
            assert_eq!(numbers(&regions), text);
        }
        let mut images = with(&[&[7], &[1, 4]]).images;
        assert_eq!(numbers(&images.regions()), "1, 4, 7");
        assert_eq!(images.len(), 2);
        images.first_mut().regions.push(RegionId(5));
        assert_eq!(numbers(&images.regions()), "1, 4, 5, 7");
    }

    #[test]
    fn a_refusal_says_what_is_there_and_what_to_do() {
        let there = with(&[&[0], &[2, 3]]);
        let mut same = with(&[&[1]]);
        same.images.first_mut().digest = Digest::of(b"[2, 3]");
        let mut unsigned = with(&[&[1]]);
        unsigned.signed_by = None;
        for (other, says) in [
            (same, "its image for regions 2, 3 has the same bytes"),
            (
                unsigned,
                "has a signature by builds, a key of its owner, and all of its images have to",
            ),
            (with(&[&[3]]), "region 3 has an image already"),
            (with(&[&[]]), "choose another id"),
        ] {
            let refused = there.with_images_of(&other).expect_err(says);
            let text = refused.to_string();
            assert!(text.contains(says), "{text}");
        }
    }

    proptest! {
        /// Compared with a map from regions to digests.
        #[test]
        fn images_are_a_map_from_regions_to_bytes(
            changes in prop::collection::vec((any::<bool>(), 0u8..6, 1u32..64), 1..24),
        ) {
            let mut images = RegionImages::from(image("first", &[31]));
            let mut map = BTreeMap::from([(31u8, Digest::of(b"first"))]);
            for (adds, name, set) in changes {
                let (name, digest) = (format!("{name}"), Digest::of(format!("{name}").as_bytes()));
                let regions: Vec<u8> = (0..6).filter(|region| set >> region & 1 == 1).collect();
                let is_there = map.values().any(|of| *of == digest);
                if adds {
                    let is_free = regions.iter().all(|region| !map.contains_key(region));
                    let added = images.add(image(&name, &regions));
                    prop_assert_eq!(added.is_ok(), is_free && !is_there);
                    if added.is_ok() {
                        map.extend(regions.into_iter().map(|region| (region, digest)));
                    }
                } else {
                    prop_assert_eq!(images.remove(digest).is_some(), is_there);
                    map.retain(|_, of| *of != digest);
                }
                for region in 0..32 {
                    let of = images.of(RegionId(region)).map(|image| image.digest);
                    prop_assert_eq!(of, map.get(&region).copied());
                }
                let set = map.keys().fold(0u32, |set, region| set | 1 << region);
                prop_assert_eq!(images.region_set(), set);
                prop_assert!(images.iter().is_sorted_by_key(|image| image.regions[0]));
            }
        }
    }
}
