//! Network tasks and the bitstreams built from them.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{
    Area, Bandwidth, BitstreamId, ByteSize, CardModel, ChainIdentity, Cycles, Digest, Labels,
    MemoryTraffic, Notes, NtTypeId, PacketSizes, RegionId, RegionImages, ReportedChain, Slot,
    TenantId,
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
    /// Packets per second that one instance takes at most. `None`: only its bandwidth limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_second_max: Option<NonZeroU32>,
    /// Cycles a packet spends in it.
    pub latency: Cycles,
    /// Area of a region that it takes.
    pub area: Area,
    /// On-board memory that it needs on a card: once for each tenant, for all of its DAGs and instances.
    pub memory: ByteSize,
    /// Traffic of its instances with that memory.
    #[serde(default, skip_serializing_if = "MemoryTraffic::is_none")]
    pub memory_traffic: MemoryTraffic,
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
    /// An NT type that all tenants share, reads headers, and has neither memory nor state.
    pub fn new(id: NtTypeId, bandwidth_max: Bandwidth, latency: Cycles, area: Area) -> Self {
        Self {
            id,
            shareable: true,
            bandwidth_max,
            packets_per_second_max: None,
            latency,
            area,
            memory: ByteSize::ZERO,
            memory_traffic: MemoryTraffic::default(),
            state: ByteSize::ZERO,
            traffic: Traffic::HeaderOnly,
            description: String::new(),
            labels: Labels::default(),
        }
    }

    /// Packets per second that one instance takes; `u64::MAX` without a limit.
    pub fn packet_capacity(&self) -> u64 {
        self.packets_per_second_max.map_or(u64::MAX, |most| u64::from(most.get()))
    }

    /// Bandwidth that one instance serves of packets of these sizes: all of it, or less where it takes no more packets.
    pub fn bandwidth_of(&self, sizes: &PacketSizes) -> Bandwidth {
        let Some(most) = self.packets_per_second_max else { return self.bandwidth_max };
        let bits = u128::from(most.get()) * u128::from(sizes.bits());
        let bits = bits / u128::from(sizes.packets().max(1));
        self.bandwidth_max.min(Bandwidth::from_bps(u64::try_from(bits).unwrap_or(u64::MAX)))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_bound_the_bandwidth_of_small_ones() {
        let id = NtTypeId::new("kv").expect("a label");
        let all = Bandwidth::from_gbps(10);
        let nt = NtType::new(id, all, Cycles::new(1), Area::default());
        assert_eq!(
            (nt.bandwidth_of(&PacketSizes::only(64)), nt.packet_capacity()),
            (all, u64::MAX)
        );
        let limited = NtType { packets_per_second_max: NonZeroU32::new(3_000_000), ..nt };
        assert_eq!(limited.packet_capacity(), 3_000_000);
        let of = |sizes: PacketSizes| limited.bandwidth_of(&sizes).get();
        assert_eq!(of(PacketSizes::only(64)), 3_000_000 * 512);
        assert_eq!(of(PacketSizes::imix()), 3_000_000 * 4_342 * 8 / 12);
        assert_eq!(of(PacketSizes::only(1_500)), all.get());
    }
}
