//! Network tasks and the bitstreams built from them.

use serde::{Deserialize, Serialize};

use crate::{
    Area, Bandwidth, BitstreamId, ByteSize, CardModel, ChainIdentity, Cycles, Digest, Labels,
    Notes, NtTypeId, RegionId, ReportedChain, TenantId,
};

/// What of a packet an NT reads.
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
    /// What one instance serves at most.
    pub bandwidth_max: Bandwidth,
    /// Cycles a packet spends in it.
    pub latency: Cycles,
    /// What it takes of a region.
    pub area: Area,
    /// On-board memory that it needs on a card: once for each tenant, for all of its DAGs and instances.
    pub memory: ByteSize,
    /// State that one instance keeps in its region for one DAG, in bytes: what a load of the region
    /// would lose, and so what is saved before and restored after. Zero: it keeps none.
    #[serde(default)]
    pub state: ByteSize,
    /// What of a packet it reads.
    pub traffic: Traffic,
    /// For people.
    pub description: String,
    /// For filters.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl NtType {
    /// Whether `tenant` may use it and know of it.
    pub fn is_visible_to(&self, tenant: &TenantId) -> bool {
        self.shareable || self.id.is_owned_by(tenant)
    }
}

/// Which regions a bitstream is for (SuperNIC, 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionKind {
    /// For NTs of the provider's catalogue; most regions.
    KnownNt,
    /// For NTs of tenants.
    UserNt,
}

/// A bitstream: what one region can hold, built ahead of time. Immutable once uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bitstream {
    /// Its id, which names its owner.
    pub id: BitstreamId,
    /// The digest of its bytes, which also names them in the store and on the card.
    pub digest: Digest,
    /// How many bytes.
    pub size: ByteSize,
    /// The NTs, in the order packets pass; 1 to 8.
    pub nts: Vec<NtTypeId>,
    /// Which regions it is for.
    pub region_kind: RegionKind,
    /// Which cards it is for.
    pub card_model: CardModel,
    /// Whether chains of tenants other than the owner may share it when it is loaded.
    /// Always true for the provider's.
    pub shareable: bool,
    /// The name of the trusted key that signed it; `None` where it is not signed.
    #[serde(default)]
    pub signed_by: Option<Box<str>>,
    /// What its owner notes about it.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
    /// What the build flow says of it.
    #[serde(default, skip_serializing_if = "BuildClaims::is_empty")]
    pub build: BuildClaims,
}

/// What a build flow says of a bitstream that cannot be read from its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildClaims {
    /// Which build of the chain it is, as the ROM in its region reports it. `None`: that of its NTs, see
    /// [`ChainIdentity::of_nts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<ChainIdentity>,
    /// The regions whose frames it has, in ascending order. Empty: it is built for the first region of a
    /// group, and the configuration controller relocates it to any region of its kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionId>,
}

impl BuildClaims {
    /// Whether the flow said nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Bitstream {
    /// Whether it has the frames of a region of its kind.
    pub fn fits_region(&self, region: RegionId) -> bool {
        self.build.regions.is_empty() || self.build.regions.contains(&region)
    }

    /// What a region has to report once this is loaded.
    pub fn reported_chain(&self) -> ReportedChain {
        let identity = self.build.identity.unwrap_or_else(|| ChainIdentity::of_nts(&self.nts));
        ReportedChain::of(&self.nts, identity)
    }

    /// Whether `tenant` may know of it and load it: the provider's and the tenant's own.
    pub fn is_loadable_by(&self, tenant: &TenantId) -> bool {
        self.id.owner().is_none() || self.id.is_owned_by(tenant)
    }

    /// Whether chains of `tenant` may pass through it once it is loaded.
    pub fn is_shared_with(&self, tenant: &TenantId) -> bool {
        self.shareable || self.is_loadable_by(tenant)
    }
}
