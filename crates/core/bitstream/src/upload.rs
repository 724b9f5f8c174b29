//! Whether an upload is what it is declared to be. Checked before anything is stored: what passes
//! here may be loaded into a region that other tenants' packets cross.
//!
//! The order is from cheap to dear, and from the declaration to the content: size, digest, target,
//! container and packets, chain ROM against declaration, ROM against registered NTs, area.
//!
//! A bitstream of a vendor's tools says nothing of its NTs. It is declared with the identity that its flow
//! placed in the region's ROM; the signature binds both to its digest ([`crate::signature`]), and the region
//! has to report them after each load. A test image has a ROM in its first frame, which has to agree.
//!
//! That every frame lies in the rows and columns of its regions is [`crate::FloorPlan::check`]'s.

use snic_domain::limits::{BITSTREAM_BYTES_MAX, CHAIN_SLOTS_MAX};
use snic_domain::{
    Area, Bitstream, ByteSize, CardModel, CardProfile, ChainIdentity, Digest, MemoryTraffic,
    NtCode, NtType, NtTypeId, RegionImage, RegionKind, RegionProfile, Slot,
};

use crate::modules::{EmbeddedModule, InvalidModules, check_modules, modules};
use crate::rom::claim_of;
use crate::{BitFile, ChainRom, InvalidBitstream, InvalidRom, SlotRom, WrongCard, parse};

/// An upload that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedUpload<'a> {
    pub file: BitFile<'a>,
    /// The ROM in its first frame, if it has one: the declared NTs.
    pub claim: Option<ChainRom>,
    /// The area of its NTs together.
    pub area: Area,
    /// The slots that have a WebAssembly module, in ascending order.
    pub modules: Vec<Slot>,
}

/// Fault of an upload. [`InvalidUpload::field`] names the field of the declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUpload {
    /// Empty, or larger than any bitstream may be.
    #[error("the bitstream has {size}; 1 byte to {BITSTREAM_BYTES_MAX} are allowed")]
    SizeOutOfRange { size: ByteSize },
    /// Not as large as declared.
    #[error("{declared} are declared, {actual} arrived; send all of the file, or declare its size")]
    SizeDiffers {
        declared: ByteSize,
        /// Size that arrived.
        actual: ByteSize,
    },
    #[error(
        "the digest {declared} is declared, the bytes have {actual}; send the right file again"
    )]
    Digest {
        declared: Digest,
        /// Digest of the bytes.
        actual: Digest,
    },
    /// No NTs, or too many.
    #[error("{nts} NTs are declared; a bitstream has 1 to {CHAIN_SLOTS_MAX}")]
    NtCount { nts: usize },
    /// An NT that is not registered, or not for this owner.
    #[error("NT type {nt} is not known; register it first")]
    UnknownNt {
        nt: NtTypeId,
        /// Where it is declared.
        index: usize,
    },
    /// A card model without a profile.
    #[error("card model {model} is not known; name one of: {}", join(known))]
    UnknownCard { model: CardModel, known: Vec<CardModel> },
    /// A kind of region that the card has not.
    #[error("card model {model} has no {} regions", kind_name(*kind))]
    NoRegion { model: CardModel, kind: RegionKind },
    /// Larger than any region's bitstream.
    #[error(
        "the bitstream has {size}; a {} region of card model {model} takes at most {max}",
        kind_name(*kind)
    )]
    TooLargeForRegion {
        size: ByteSize,
        /// Size that the largest region takes.
        max: ByteSize,
        kind: RegionKind,
        model: CardModel,
    },
    /// The container or its packets.
    #[error(transparent)]
    Bitstream(#[from] InvalidBitstream),
    #[error(transparent)]
    WrongCard(#[from] WrongCard),
    /// The chain ROM.
    #[error(transparent)]
    Rom(#[from] InvalidRom),
    /// The WebAssembly modules.
    #[error(transparent)]
    Modules(#[from] InvalidModules),
    /// Nothing in it says what it holds, and no identity is declared.
    #[error(
        "the bitstream has no chain ROM in its first frame, and no identity is declared; declare the \
         identity that its build flow wrote into the region's ROM"
    )]
    NoIdentity,
    /// Another identity than declared.
    #[error("the identity {declared} is declared, the bitstream's chain ROM has {found}")]
    IdentityDiffers {
        declared: ChainIdentity,
        /// Identity in its ROM.
        found: ChainIdentity,
    },
    /// Not as many NTs as declared.
    #[error("{declared} NTs are declared, the bitstream holds {found}")]
    NtCountDiffers {
        /// Declared number of NTs.
        declared: usize,
        /// Number of NTs in its ROM.
        found: usize,
    },
    /// Another NT than declared.
    #[error(
        "slot {slot} is declared as {declared}, whose code is {:#010x}, but the bitstream holds \
         {:#010x} there; declare its NTs in the order packets pass", declared.code().0, found.0
    )]
    NtDiffers {
        /// Number of the slot, from 0.
        slot: usize,
        declared: NtTypeId,
        /// Code in its ROM.
        found: NtCode,
    },
    /// An NT that does not behave as registered.
    #[error(
        "slot {slot}: {nt} is registered with {what} {registered}, the bitstream was built with \
         {found}; build it again, or register the NT under another id"
    )]
    PropertyDiffers {
        /// Number of the slot, from 0.
        slot: usize,
        nt: NtTypeId,
        /// Property that differs.
        what: &'static str,
        registered: String,
        /// Value in the bitstream.
        found: String,
    },
    /// More area than a region has.
    #[error(
        "the NTs need {needed} together; a {} region of card model {model} has at most {largest}",
        kind_name(*kind)
    )]
    Area {
        /// Area that they need.
        needed: Area,
        /// Area of the largest region.
        largest: Area,
        kind: RegionKind,
        model: CardModel,
    },
}

impl InvalidUpload {
    /// The field of the upload's header that is wrong, as in the API; `chunk` is the content.
    pub fn field(&self) -> String {
        match self {
            Self::SizeOutOfRange { .. }
            | Self::SizeDiffers { .. }
            | Self::TooLargeForRegion { .. } => "size_bytes".to_owned(),
            Self::Digest { .. } => "digest".to_owned(),
            Self::NtCount { .. } | Self::NtCountDiffers { .. } | Self::Area { .. } => {
                "nts".to_owned()
            }
            Self::UnknownNt { index, .. } => format!("nts[{index}]"),
            Self::NtDiffers { slot, .. } | Self::PropertyDiffers { slot, .. } => {
                format!("nts[{slot}]")
            }
            Self::UnknownCard { .. } | Self::WrongCard(_) => "card_model".to_owned(),
            Self::NoRegion { .. } => "region_kind".to_owned(),
            Self::NoIdentity | Self::IdentityDiffers { .. } => "identity".to_owned(),
            Self::Bitstream(_) | Self::Rom(_) | Self::Modules(_) => "chunk".to_owned(),
        }
    }
}

/// Checks the bytes of an upload against its declaration, whose only image they are. `cards` are the profiles that bitstreams
/// may be for; `nt` finds the NTs that the owner may use, and no others, so that an error about an
/// NT tells nobody anything.
///
/// # Errors
///
/// The first check that fails.
pub fn check_upload<'a, 'n>(
    bytes: &'a [u8],
    declared: &Bitstream,
    cards: &[CardProfile],
    nt: impl Fn(&NtTypeId) -> Option<&'n NtType>,
) -> Result<CheckedUpload<'a>, InvalidUpload> {
    check_bytes(bytes, declared)?;
    let chain = find_nts(declared, nt)?;
    let card = find_card(declared, cards)?;
    check_region(declared, card)?;
    let file = parse(bytes)?;
    file.check_card(card)?;
    let claim = claim_of(&file)?;
    match &claim {
        Some(rom) => check_claim(rom, declared, &chain)?,
        None if declared.identity.is_none() => return Err(InvalidUpload::NoIdentity),
        None => {}
    }
    let modules = modules(&file)?;
    check_owners(&modules, declared)?;
    let modules = modules.iter().map(|module| Slot(module.slot as u8)).collect();
    let area = chain.iter().map(|nt| nt.area).sum();
    check_area(area, declared, card)?;
    Ok(CheckedUpload { file, claim, area, modules })
}

fn check_bytes(bytes: &[u8], declared: &Bitstream) -> Result<(), InvalidUpload> {
    let actual = ByteSize::from_bytes(bytes.len() as u64);
    let RegionImage { size: declared, digest, .. } = declared.images.first();
    for size in [*declared, actual] {
        if size == ByteSize::ZERO || size > BITSTREAM_BYTES_MAX {
            return Err(InvalidUpload::SizeOutOfRange { size });
        }
    }
    if *declared != actual {
        return Err(InvalidUpload::SizeDiffers { declared: *declared, actual });
    }
    let actual = Digest::of(bytes);
    if *digest != actual {
        return Err(InvalidUpload::Digest { declared: *digest, actual });
    }
    Ok(())
}

fn find_nts<'n>(
    declared: &Bitstream,
    nt: impl Fn(&NtTypeId) -> Option<&'n NtType>,
) -> Result<Vec<&'n NtType>, InvalidUpload> {
    let nts = declared.nts.len();
    if !(1..=CHAIN_SLOTS_MAX).contains(&nts) {
        return Err(InvalidUpload::NtCount { nts });
    }
    let unknown = |(index, id): (usize, &NtTypeId)| {
        nt(id).ok_or_else(|| InvalidUpload::UnknownNt { nt: id.clone(), index })
    };
    declared.nts.iter().enumerate().map(unknown).collect()
}

fn find_card<'c>(
    declared: &Bitstream,
    cards: &'c [CardProfile],
) -> Result<&'c CardProfile, InvalidUpload> {
    cards.iter().find(|card| card.model == declared.card_model).ok_or_else(|| {
        let known = cards.iter().map(|card| card.model.clone()).collect();
        InvalidUpload::UnknownCard { model: declared.card_model.clone(), known }
    })
}

fn check_region(declared: &Bitstream, card: &CardProfile) -> Result<(), InvalidUpload> {
    let (kind, model) = (declared.region_kind, card.model.clone());
    let size = declared.images.first().size;
    let max = card.regions.iter().filter(|r| r.kind == kind).map(|r| r.bitstream_max).max();
    match max {
        None => Err(InvalidUpload::NoRegion { model, kind }),
        Some(max) if size > max => Err(InvalidUpload::TooLargeForRegion { size, max, kind, model }),
        Some(_) => Ok(()),
    }
}

fn check_claim(
    rom: &ChainRom,
    declaration: &Bitstream,
    chain: &[&NtType],
) -> Result<(), InvalidUpload> {
    let (declared, found) = (chain.len(), rom.slots().len());
    if declared != found {
        return Err(InvalidUpload::NtCountDiffers { declared, found });
    }
    for (slot, (found, nt)) in rom.slots().iter().zip(chain).enumerate() {
        if found.code != nt.id.code() {
            let (declared, found) = (nt.id.clone(), found.code);
            return Err(InvalidUpload::NtDiffers { slot, declared, found });
        }
        check_slot(slot, *found, nt)?;
    }
    let (declared, found) = (declaration.reported_chain().identity, rom.reported().identity);
    if declared != found {
        return Err(InvalidUpload::IdentityDiffers { declared, found });
    }
    Ok(())
}

/// A tenant's modules are for the tenant's own NTs, and have the form of modules.
fn check_owners(
    modules: &[EmbeddedModule<'_>],
    declared: &Bitstream,
) -> Result<(), InvalidModules> {
    for module in modules {
        let nt = &declared.nts[module.slot];
        if declared.id.owner().is_some() && declared.id.owner() != nt.owner() {
            return Err(InvalidModules::Foreign { slot: module.slot, nt: nt.clone() });
        }
    }
    check_modules(modules)
}

fn check_slot(slot: usize, found: SlotRom, nt: &NtType) -> Result<(), InvalidUpload> {
    let expected = SlotRom::of(nt)?;
    let differs = |what, registered: String, found: String| {
        Err(InvalidUpload::PropertyDiffers { slot, nt: nt.id.clone(), what, registered, found })
    };
    let traffic = |slot: SlotRom| if slot.payload { "payload" } else { "header-only" }.to_owned();
    if expected.latency_cycles != found.latency_cycles {
        let cycles = |slot: SlotRom| slot.latency().to_string();
        return differs("latency", cycles(expected), cycles(found));
    }
    if expected.bandwidth_kbps != found.bandwidth_kbps {
        let kbps = |slot: SlotRom| format!("{} kbit/s", slot.bandwidth_kbps);
        return differs("bandwidth", kbps(expected), kbps(found));
    }
    if expected.packets_per_second != found.packets_per_second {
        let limit = |slot: SlotRom| match slot.packets_per_second {
            Some(most) => format!("{most} packets/s"),
            None => "no limit".to_owned(),
        };
        return differs("packet rate", limit(expected), limit(found));
    }
    if expected.memory_traffic != found.memory_traffic {
        let traffic = |slot: SlotRom| {
            let MemoryTraffic { bytes_per_packet, bytes_per_packet_byte } = slot.memory_traffic;
            format!(
                "{bytes_per_packet} bytes a packet and {bytes_per_packet_byte} for each of its bytes"
            )
        };
        return differs("memory traffic", traffic(expected), traffic(found));
    }
    if expected.payload != found.payload {
        return differs("traffic", traffic(expected), traffic(found));
    }
    Ok(())
}

fn check_area(needed: Area, declared: &Bitstream, card: &CardProfile) -> Result<(), InvalidUpload> {
    let kind = declared.region_kind;
    let takes = |region: &&RegionProfile| {
        region.kind == kind && region.bitstream_max >= declared.images.first().size
    };
    let mut areas = card.regions.iter().filter(takes).map(|region| region.area);
    if areas.clone().any(|area| area.fits(needed)) {
        return Ok(());
    }
    let largest = areas.by_ref().max_by_key(|area| area.lut).unwrap_or_default();
    Err(InvalidUpload::Area { needed, largest, kind, model: card.model.clone() })
}

pub(crate) const fn kind_name(kind: RegionKind) -> &'static str {
    match kind {
        RegionKind::KnownNt => "known-nt",
        RegionKind::UserNt => "user-nt",
    }
}

fn join(models: &[CardModel]) -> String {
    models.iter().map(CardModel::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
