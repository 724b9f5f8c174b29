//! Network tasks and the bitstreams built from them.

use serde::{Deserialize, Serialize};

use crate::{
    Area, Bandwidth, BitstreamId, ByteSize, CardModel, ChainIdentity, Cycles, Digest, Labels,
    Notes, NtTypeId, RegionId, RegionImages, ReportedChain, Slot, TenantId,
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
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
    /// Identity of the build that all of its images are of, as the ROM in a region reports it. `None`: that of its NTs,
    /// see [`ChainIdentity::of_nts`].
    pub identity: Option<ChainIdentity>,
    /// The slots whose NT is a WebAssembly module in each of its images, in ascending order. Software cards alone run
    /// modules.
    pub modules: Vec<Slot>,
}

/// Claims of a build flow about an image that cannot be read from its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildClaims {
    /// Identity of the build, as the ROM in its region reports it. `None`: that of its NTs, see
    /// [`ChainIdentity::of_nts`].
    pub identity: Option<ChainIdentity>,
    /// Regions that the image fits, as in [`crate::RegionImage::regions`]: empty means all of its kind.
    pub regions: Vec<RegionId>,
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
