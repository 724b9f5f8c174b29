//! Network tasks and the bitstreams built from them.

use serde::{Deserialize, Serialize};

use crate::{
    Area, Bandwidth, BitstreamId, ByteSize, CardModel, ChainIdentity, Cycles, Digest,
    ImageConflict, ImageSignature, Labels, Notes, NtTypeId, RegionId, RegionImage, RegionImages,
    ReportedChain, Slot, TenantId,
};

/// Part of a packet that an NT reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// The header; the payload waits in the packet store.
    HeaderOnly,
    /// The whole packet, which then crosses the crossbar.
    Payload,
}

/// A type of network task: one FPGA netlist. Immutable once registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtType {
    /// Its id, which names its owner.
    pub id: NtTypeId,
    /// Whether other tenants may use it, in DAGs of their own and in chains loaded for others.
    pub shareable: bool,
    /// Bandwidth that one instance serves at most.
    pub bandwidth_max: Bandwidth,
    /// Cycles a packet spends in it.
    pub latency: Cycles,
    /// Area of a region that it takes.
    pub area: Area,
    /// On-board memory that it needs on a card: once for each tenant, for all of its DAGs and instances.
    pub memory: ByteSize,
    /// State that one instance keeps in its region for one DAG, in bytes: what a load of the region
    /// would lose, and so what is saved before and restored after. Zero: it keeps none.
    #[serde(default)]
    pub state: ByteSize,
    /// Part of a packet that it reads.
    pub traffic: Traffic,
    pub description: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl NtType {
    /// Whether `tenant` may use it and know of it.
    pub fn is_visible_to(&self, tenant: &TenantId) -> bool {
        self.shareable || self.id.is_owned_by(tenant)
    }
}

/// Kind of regions that a bitstream is for (SuperNIC, 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionKind {
    /// For NTs of the provider's catalogue; most regions.
    KnownNt,
    /// For NTs of tenants.
    UserNt,
}

/// The key that signed all images of a bitstream, by the name that the operator gave it, and whose key it is. A
/// signature says who answers for the images: the provider answers to all tenants, an owner to itself alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signer {
    /// A key of the provider.
    Provider(Box<str>),
    /// A key of the tenant that owns the bitstream.
    Owner(Box<str>),
}

impl Signer {
    /// The operator's name for the key.
    pub fn key(&self) -> &str {
        match self {
            Self::Provider(key) | Self::Owner(key) => key,
        }
    }
}

/// A bitstream: a chain that regions of one card model can hold, built ahead of time, with an image for each
/// region or group of regions that it was built for. Its chain is immutable; images are added and removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredBitstream", into = "StoredBitstream")]
pub struct Bitstream {
    /// Its id, which names its owner.
    pub id: BitstreamId,
    pub images: RegionImages,
    /// The NTs, in the order packets pass; 1 to 8.
    pub nts: Vec<NtTypeId>,
    /// Kind of regions that it is for.
    pub region_kind: RegionKind,
    /// Card model that it is for.
    pub card_model: CardModel,
    /// Whether chains of tenants other than the owner may share it when it is loaded.
    /// Always true for the provider's.
    pub shareable: bool,
    /// The key that signed all of its images; `None` where they are not signed.
    pub signed_by: Option<Signer>,
    /// Notes of its owner.
    pub notes: Notes,
    /// Identity of the build that all of its images are of, as the ROM in a region reports it. `None`: that of its NTs,
    /// see [`ChainIdentity::of_nts`].
    pub identity: Option<ChainIdentity>,
    /// The slots whose NT is a WebAssembly module in each of its images, in ascending order. Software cards alone run
    /// modules.
    pub modules: Vec<Slot>,
}

/// Claims of a build flow about an image that cannot be read from its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildClaims {
    /// Identity of the build, as the ROM in its region reports it. `None`: that of its NTs, see
    /// [`ChainIdentity::of_nts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<ChainIdentity>,
    /// [`RegionImage::regions`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionId>,
}

impl BuildClaims {
    /// Whether the flow said nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The form in stores and in messages between servers: the first image stands beside the chain, as when there was
/// no other.
#[derive(Serialize, Deserialize)]
struct StoredBitstream {
    id: BitstreamId,
    digest: Digest,
    size: ByteSize,
    nts: Vec<NtTypeId>,
    region_kind: RegionKind,
    card_model: CardModel,
    shareable: bool,
    #[serde(default)]
    signed_by: Option<Signer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<ImageSignature>,
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    notes: Notes,
    #[serde(default, skip_serializing_if = "BuildClaims::is_empty")]
    build: BuildClaims,
    /// Images after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    more_images: Vec<RegionImage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    modules: Vec<Slot>,
}

impl From<Bitstream> for StoredBitstream {
    fn from(of: Bitstream) -> Self {
        let mut images = of.images.into_iter();
        let RegionImage { digest, size, regions, signature } =
            images.next().expect("it has an image");
        Self {
            id: of.id,
            digest,
            size,
            nts: of.nts,
            region_kind: of.region_kind,
            card_model: of.card_model,
            shareable: of.shareable,
            signed_by: of.signed_by,
            signature,
            notes: of.notes,
            build: BuildClaims { identity: of.identity, regions },
            more_images: images.collect(),
            modules: of.modules,
        }
    }
}

impl TryFrom<StoredBitstream> for Bitstream {
    type Error = ImageConflict;

    fn try_from(stored: StoredBitstream) -> Result<Self, ImageConflict> {
        let BuildClaims { identity, regions } = stored.build;
        let first = RegionImage {
            digest: stored.digest,
            size: stored.size,
            regions,
            signature: stored.signature,
        };
        let mut images = RegionImages::from(first);
        for image in stored.more_images {
            images.add(image)?;
        }
        Ok(Self {
            id: stored.id,
            images,
            nts: stored.nts,
            region_kind: stored.region_kind,
            card_model: stored.card_model,
            shareable: stored.shareable,
            signed_by: stored.signed_by,
            notes: stored.notes,
            identity,
            modules: stored.modules,
        })
    }
}

impl Bitstream {
    /// Whether it has an image for a region of its kind.
    pub fn fits_region(&self, region: RegionId) -> bool {
        self.images.of(region).is_some()
    }

    /// The digest of its image for a region.
    pub fn digest_for(&self, region: RegionId) -> Option<Digest> {
        self.images.of(region).map(|image| image.digest)
    }

    /// Report that a region must give once this is loaded.
    pub fn reported_chain(&self) -> ReportedChain {
        let identity = self.identity.unwrap_or_else(|| ChainIdentity::of_nts(&self.nts));
        ReportedChain::of(&self.nts, identity)
    }

    /// Whether `tenant` may know of it and load it: the provider's and the tenant's own.
    pub fn is_loadable_by(&self, tenant: &TenantId) -> bool {
        self.id.owner().is_none() || self.id.is_owned_by(tenant)
    }

    /// Whether the provider answers for it: it is the provider's, or a key of the provider signed it.
    pub fn is_approved_by_provider(&self) -> bool {
        matches!(self.signed_by, Some(Signer::Provider(_))) || self.id.owner().is_none()
    }
}
