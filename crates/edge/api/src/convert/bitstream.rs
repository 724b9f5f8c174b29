//! Bitstreams and the headers of their uploads.

use snic_domain::limits::{BITSTREAM_BYTES_MAX, CHAIN_SLOTS_MAX, REGIONS_MAX};
use snic_domain::{
    Bitstream, BuildClaims, ByteSize, ChainIdentity, Digest, ImageSignature, NtTypeId, RegionId,
    RegionImage, RegionImages, Signer,
};

use super::card::{region_kind, region_kind_to_wire};
use super::{FieldProblem, Problems, id, name, notes};
use crate::error::ApiError;
use crate::v1;

/// Converts an upload's header. The bytes, and the existence of the NTs, are checked later.
///
/// # Errors
/// [`ApiError`] with all invalid fields.
pub fn bitstream(header: &v1::BitstreamHeader) -> Result<Bitstream, ApiError> {
    let mut problems = Problems::default();
    let bitstream_id = problems.keep(id("header.bitstream_id", &header.bitstream_id));
    let digest = if header.digest.is_empty() {
        Err(FieldProblem::required("header.digest"))
    } else {
        digest("header.digest", &header.digest)
    };
    let digest = problems.keep(digest);
    problems.keep(size(header.size_bytes));
    let nts = nts(&mut problems, &header.nts);
    let kind = problems.keep(region_kind("header.region_kind", header.region_kind));
    let model = problems.keep(id("header.card_model", &header.card_model));
    let notes = notes::notes(&mut problems, "header", &header.labels, &header.description);
    let build = problems.keep(build(header));
    problems.finish()?;
    let bitstream = || {
        let BuildClaims { identity, regions } = build?;
        // The identity that its NTs alone give is what bytes say that name their NTs themselves.
        let identity = identity.filter(|identity| *identity != ChainIdentity::of_nts(&nts));
        let size = ByteSize::from_bytes(header.size_bytes);
        let signature = (!header.signature.is_empty())
            .then(|| ImageSignature::new(&header.signature, regions.clone()));
        Some(Bitstream {
            id: bitstream_id?,
            images: RegionImages::from(RegionImage { digest: digest?, size, regions, signature }),
            identity,
            nts,
            region_kind: kind?,
            card_model: model?,
            shareable: header.shareable,
            // Whoever looks into the bytes says so.
            signed_by: None,
            modules: Vec::new(),
            notes,
        })
    };
    bitstream().ok_or_else(|| ApiError::required("header"))
}

/// A digest.
///
/// # Errors
/// [`FieldProblem`] with the field, if it is not 64 hexadecimal digits.
pub fn digest(field: &str, text: &str) -> Result<Digest, FieldProblem> {
    text.parse().map_err(|error| FieldProblem::invalid(field, error))
}

fn build(header: &v1::BitstreamHeader) -> Result<BuildClaims, FieldProblem> {
    let identity = match header.identity.as_str() {
        "" => None,
        text => {
            let invalid = |error| FieldProblem::invalid("header.identity", error);
            Some(text.parse().map_err(invalid)?)
        }
    };
    let mut regions: Vec<RegionId> = Vec::with_capacity(header.regions.len().min(REGIONS_MAX));
    for (i, number) in header.regions.iter().enumerate() {
        let region = u8::try_from(*number).ok().map(RegionId);
        let region = region.filter(|region| region.index() < REGIONS_MAX);
        let region = region.filter(|region| regions.last().is_none_or(|last| last < region));
        let Some(region) = region else {
            let rule = format!("{number} is not allowed (0 to {}, ascending)", REGIONS_MAX - 1);
            return Err(FieldProblem::invalid(format!("header.regions[{i}]"), rule));
        };
        regions.push(region);
    }
    Ok(BuildClaims { identity, regions })
}

fn size(bytes: u64) -> Result<(), FieldProblem> {
    match bytes {
        0 => Err(FieldProblem::required("header.size_bytes")),
        1.. if bytes <= BITSTREAM_BYTES_MAX.get() => Ok(()),
        _ => {
            let most = BITSTREAM_BYTES_MAX.get();
            let rule = format!("{bytes} is out of range (1 to {most})");
            Err(FieldProblem::invalid("header.size_bytes", rule))
        }
    }
}

fn nts(problems: &mut Problems, nts: &[String]) -> Vec<NtTypeId> {
    let count = match nts.len() {
        0 => Err(FieldProblem::required("header.nts")),
        n if n > CHAIN_SLOTS_MAX => {
            let rule = format!("{n} network tasks are too many (limit {CHAIN_SLOTS_MAX})");
            Err(FieldProblem::invalid("header.nts", rule))
        }
        _ => Ok(()),
    };
    if problems.keep(count).is_none() {
        return Vec::new();
    }
    let nt = |(i, text): (usize, &String)| {
        problems.keep(name::nt_type(&format!("header.nts[{i}]"), text))
    };
    nts.iter().enumerate().filter_map(nt).collect()
}

const fn signature_state(bitstream: &Bitstream) -> v1::bitstream::SignatureState {
    match bitstream.signed_by {
        Some(_) => v1::bitstream::SignatureState::Verified,
        None => v1::bitstream::SignatureState::Unsigned,
    }
}

const fn signer_role(bitstream: &Bitstream) -> v1::bitstream::SignerRole {
    match bitstream.signed_by {
        Some(Signer::Provider(_)) => v1::bitstream::SignerRole::Provider,
        Some(Signer::Owner(_)) => v1::bitstream::SignerRole::Owner,
        None => v1::bitstream::SignerRole::Unspecified,
    }
}

/// Converts a bitstream, without the fields that the server adds: area, regions, etag, time.
pub fn bitstream_to_wire(bitstream: &Bitstream) -> v1::Bitstream {
    v1::Bitstream {
        name: name::of_bitstream(&bitstream.id),
        owner: bitstream.id.owner().as_ref().map(name::of_tenant).unwrap_or_default(),
        digest: bitstream.images.first().digest.to_string(),
        size_bytes: bitstream.images.size().get(),
        nts: bitstream.nts.iter().map(name::of_nt_type).collect(),
        region_kind: region_kind_to_wire(bitstream.region_kind).into(),
        card_model: bitstream.card_model.to_string(),
        shareable: bitstream.shareable,
        signature_state: signature_state(bitstream).into(),
        signed_by: bitstream.signed_by.as_ref().map(Signer::key).unwrap_or_default().to_owned(),
        signer_role: signer_role(bitstream).into(),
        identity: bitstream.reported_chain().identity.to_string(),
        regions: regions_to_wire(&bitstream.images.regions()),
        images: bitstream.images.iter().map(image_to_wire).collect(),
        labels: bitstream.notes.labels.as_map().clone(),
        description: bitstream.notes.description.as_str().to_owned(),
        ..v1::Bitstream::default()
    }
}

fn image_to_wire(image: &RegionImage) -> v1::RegionImage {
    v1::RegionImage {
        digest: image.digest.to_string(),
        size_bytes: image.size.get(),
        regions: regions_to_wire(&image.regions),
    }
}

/// Numbers of regions.
pub fn regions_to_wire(regions: &[RegionId]) -> Vec<u32> {
    regions.iter().map(|region| region.0.into()).collect()
}
