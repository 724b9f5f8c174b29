//! `snicctl bitstream`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use bytes::Bytes;
use snic_api::v1::upload_bitstream_request::Part;
use snic_api::v1::{
    Bitstream, BitstreamHeader, DeleteBitstreamRequest, GetBitstreamRequest,
    RecommendBitstreamsRequest, RecommendBitstreamsResponse, RegionKind, RetryBitstreamRequest,
    UploadBitstreamRequest, UploadBitstreamResponse,
};
use snic_bitstream::TestBuild;
use snic_bitstream::catalogue::{Catalogue, with_profiles};
use snic_bitstream::manifest::BuiltManifest;
use snic_bitstream::xclbin::TestRole;
use snic_domain::limits::BITSTREAM_BYTES_MAX;
use snic_domain::{ByteSize, CardProfile, Digest, RegionId};
use uuid::Uuid;

pub(super) mod folder;
mod modules;
mod statement;

use super::{CliSession, list, request_id, watch};
use crate::args::{BitstreamCommand, NewBitstream, TestImage};
use snic_client::call;
use snic_client::names;
use snic_client::output::{changes, consolidation, text, views};
use snic_client::{Client, Failure};

/// Size of a chunk, in bytes: a quarter of a message's limit, so that the server sees progress often enough
/// on a slow link.
const CHUNK_BYTES: usize = 256 << 10;
/// Difference in size of test images for single regions, in bytes.
const SIZE_STEP: u64 = 4_096;
/// Register space of a test role: a power of two that holds the whole map.
const ROLE_REGISTERS: ByteSize = ByteSize::from_bytes(4 << 20);
/// Memory of a test role, in which bitstreams are staged.
const ROLE_MEMORY: ByteSize = ByteSize::from_bytes(256 << 20);

pub async fn run(session: &mut CliSession, command: BitstreamCommand) -> Result<(), Failure> {
    match command {
        BitstreamCommand::BuildTest(image) => build_test(&image),
        BitstreamCommand::Build(image) => modules::build(session, &image).await,
        BitstreamCommand::Statement(signed) => statement::print(&signed),
        BitstreamCommand::Upload(new) => match new.folder.clone() {
            Some(folder) => upload_folder(session, &folder, new).await,
            None => upload(session, new).await,
        },
        BitstreamCommand::List(selected) => {
            list!(
                session,
                bitstreams.list_bitstreams(ListBitstreamsRequest {}) => bitstreams,
                selected.whole(),
                views::bitstreams
            )
        }
        BitstreamCommand::Watch => {
            watch!(
                session,
                bitstreams.watch_bitstreams(WatchBitstreamsRequest),
                changes::bitstream_event
            )
        }
        BitstreamCommand::Get { name } => {
            let request = GetBitstreamRequest { name: names::bitstream(&name)? };
            let bitstream =
                call!(session.client()?, bitstreams.get_bitstream => bitstream, request)?;
            session.output.one(&bitstream, views::bitstream)
        }
        BitstreamCommand::Retry { name, guard } => {
            let request = RetryBitstreamRequest {
                name: names::bitstream(&name)?,
                etag: guard.into_etag(),
                request_id: request_id(),
            };
            let bitstream =
                call!(session.client()?, bitstreams.retry_bitstream => bitstream, request)?;
            session.output.one(&bitstream, views::bitstream)
        }
        BitstreamCommand::Recommend { card, manifests } => {
            let client = session.client()?;
            let card = super::card::named(&client, card).await?;
            let request = RecommendBitstreamsRequest { card };
            let reply = call!(client, bitstreams.recommend_bitstreams, request)?;
            if let Some(folder) = manifests {
                write_manifests(&folder, &reply)?;
            }
            session.output.one(&reply, consolidation::recommendations)
        }
        BitstreamCommand::Delete { name, image, wait, guard } => {
            let name = names::bitstream(&name)?;
            let request = DeleteBitstreamRequest {
                name: name.clone(),
                image_digest: image.unwrap_or_default(),
                allow_missing: guard.allow_missing,
                etag: guard.guard.into_etag(),
                request_id: request_id(),
            };
            let client = session.client()?;
            match call!(client, bitstreams.delete_bitstream, request)?.operation {
                Some(operation) => session.finish(&client, operation, wait).await,
                None => session.deleted(&name),
            }
        }
    }
}

/// Uploads all images of a folder.
async fn upload_folder(
    session: &mut CliSession,
    folder: &Path,
    new: NewBitstream,
) -> Result<(), Failure> {
    let header = BitstreamHeader {
        bitstream_id: text::id(&names::bitstream(&new.name)?).to_owned(),
        shareable: new.shareable,
        labels: new.notes.labels(),
        description: new.notes.description,
        ..BitstreamHeader::default()
    };
    folder::upload(session, folder, header).await
}

/// Writes each manifest as `NT+NT.toml`.
fn write_manifests(folder: &Path, reply: &RecommendBitstreamsResponse) -> Result<(), Failure> {
    let failed = |path: &Path, source| Failure::Write { path: path.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
    for found in &reply.recommendations {
        let nts: Vec<&str> = found.nts.iter().map(|nt| text::id(nt)).collect();
        let path = folder.join(format!("{}.toml", nts.join("+")));
        std::fs::write(&path, &found.manifest).map_err(|source| failed(&path, source))?;
    }
    Ok(())
}

/// Writes a test bitstream or role for a card model, without any vendor content.
fn build_test(wanted: &TestImage) -> Result<(), Failure> {
    let catalogue = catalogue(wanted.profiles.as_deref())?;
    let card = card(&catalogue, &wanted.model)?;
    if !wanted.each_region.is_empty() {
        return test_images(card, &catalogue, wanted);
    }
    let bytes = match wanted.role {
        Some(uuid) => test_role(card, uuid, &wanted.control)?,
        None => {
            let manifest = wanted.manifest.as_deref().map(|path| (path, &wanted.regions[..]));
            test_chain(card, &catalogue, wanted, test_size(card, wanted), manifest)?
        }
    };
    write_image(&wanted.file, &bytes)
}

/// The catalogue, with the profiles of a folder.
fn catalogue(profiles: Option<&Path>) -> Result<Catalogue, Failure> {
    with_profiles(profiles).map_err(|error| Failure::usage(error.to_string(), ""))
}

/// The profile of a card model.
fn card<'a>(catalogue: &'a Catalogue, model: &str) -> Result<&'a CardProfile, Failure> {
    catalogue.cards.iter().find(|card| card.model.as_str() == model).ok_or_else(|| {
        let known: Vec<_> = catalogue.cards.iter().map(|card| card.model.as_str()).collect();
        let advice = format!("use one of {}", known.join(", "));
        Failure::usage(format!("unknown card model {model}"), &advice)
    })
}

/// Writes a bitstream, and prints its digest.
fn write_image(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |source: io::Error| Failure::Write { path: file.to_owned(), source };
    std::fs::write(file, bytes).map_err(failed)?;
    crate::print(&format!("{}  {}\n", Digest::of(bytes), file.display()))
}

/// A container with the register map and nothing else.
fn test_role(card: &CardProfile, uuid: Uuid, control: &str) -> Result<Vec<u8>, Failure> {
    let role = TestRole {
        uuid,
        interface: Uuid::nil(),
        platform: card.model.as_str(),
        control,
        registers_bytes: ROLE_REGISTERS.get(),
        memory_kibibytes: ROLE_MEMORY.get() >> 10,
    };
    role.build(card).map_err(|error| Failure::usage(error.to_string(), ""))
}

/// A valid bitstream of a chain: its ROM, and noise in place of logic.
fn test_chain(
    card: &CardProfile,
    catalogue: &Catalogue,
    wanted: &TestImage,
    size: ByteSize,
    manifest: Option<(&Path, &[u8])>,
) -> Result<Vec<u8>, Failure> {
    let refused = |what: String, advice: &str| Failure::usage(what, advice);
    let nt = |id: &String| {
        let found = catalogue.nt_types.iter().find(|nt| nt.id.as_str() == id.trim());
        found.ok_or_else(|| {
            let known: Vec<_> = catalogue.nt_types.iter().map(|nt| nt.id.as_str()).collect();
            refused(format!("unknown NT type {id}"), &format!("use one of {}", known.join(", ")))
        })
    };
    let chain = wanted.nts.iter().map(nt).collect::<Result<Vec<_>, _>>()?;
    let identity = match manifest {
        None => None,
        Some((path, regions)) => {
            let nts: Vec<_> = chain.iter().map(|nt| nt.id.clone()).collect();
            let regions: Vec<_> = regions.iter().copied().map(RegionId).collect();
            let built = BuiltManifest::of_test(&card.model, &nts, wanted.kind.into(), &regions);
            let text = built.to_toml();
            BuiltManifest::parse(&text).map_err(|error| refused(error.to_string(), ""))?;
            let failed = |source: io::Error| Failure::Write { path: path.to_owned(), source };
            std::fs::write(path, text).map_err(failed)?;
            Some(built.identity)
        }
    };
    let build = TestBuild { card, chain: &chain, die: 0, identity };
    build.build(size).map_err(|error| refused(error.to_string(), ""))
}

/// An image with its manifest for each region. Each is a little smaller than the one before: what a flow writes for
/// two regions is never the same.
fn test_images(
    card: &CardProfile,
    catalogue: &Catalogue,
    wanted: &TestImage,
) -> Result<(), Failure> {
    let folder = &wanted.file;
    std::fs::create_dir_all(folder)
        .map_err(|source| Failure::Write { path: folder.clone(), source })?;
    let largest = test_size(card, wanted).get();
    for region in &wanted.each_region {
        let base = folder.join(format!("{}.region_{region}", wanted.nts.join("_")));
        let size = ByteSize::from_bytes(largest.saturating_sub(u64::from(*region) * SIZE_STEP));
        let manifest = base.with_added_extension("toml");
        let bytes = test_chain(card, catalogue, wanted, size, Some((&manifest, &[*region])))?;
        write_image(&base.with_added_extension("bit"), &bytes)?;
    }
    Ok(())
}

/// The size that is wanted, or that of the model's largest region.
fn test_size(card: &CardProfile, wanted: &TestImage) -> ByteSize {
    let largest = card.regions.iter().map(|region| region.bitstream_max).max().unwrap_or_default();
    wanted.size.map_or(largest, ByteSize::from_bytes)
}

/// Reads the manifest that a flow wrote beside a bitstream.
fn read_manifest(path: &Path) -> Result<BuiltManifest, Failure> {
    let failed = |source: io::Error| Failure::Read { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    BuiltManifest::parse(&text).map_err(|error| {
        let message = format!("{} is not the manifest of a bitstream: {error}", path.display());
        Failure::usage(message, "bitstreams/README.md shows what a build flow writes")
    })
}

async fn upload(session: &mut CliSession, new: NewBitstream) -> Result<(), Failure> {
    let bytes = read(&new.file.expect("required without a folder"))?;
    let target = match &new.manifest {
        Some(path) => target_of(&read_manifest(path)?),
        None => {
            let nts =
                new.nts.iter().map(|nt| names::nt_type(nt.trim())).collect::<Result<_, _>>()?;
            BitstreamHeader {
                nts,
                region_kind: kind_to_wire(new.kind.into()).into(),
                card_model: new.model.unwrap_or_default(),
                ..BitstreamHeader::default()
            }
        }
    };
    let header = BitstreamHeader {
        bitstream_id: text::id(&names::bitstream(&new.name)?).to_owned(),
        shareable: new.shareable,
        signature: new.signature.as_deref().map_or(Ok(Vec::new()), signature)?,
        labels: new.notes.labels(),
        description: new.notes.description,
        ..target
    };
    let uploaded = send(&session.client()?, header, &bytes).await?;
    session.output.one(&uploaded, views::bitstream)
}

/// Target that a manifest declares.
fn target_of(manifest: &BuiltManifest) -> BitstreamHeader {
    BitstreamHeader {
        nts: manifest.nts.iter().map(|nt| format!("ntTypes/{nt}")).collect(),
        region_kind: kind_to_wire(manifest.region_kind).into(),
        card_model: manifest.card_model.to_string(),
        identity: manifest.identity.to_string(),
        regions: manifest.regions.iter().map(|region| region.0.into()).collect(),
        ..BitstreamHeader::default()
    }
}

const fn kind_to_wire(kind: snic_domain::RegionKind) -> RegionKind {
    match kind {
        snic_domain::RegionKind::KnownNt => RegionKind::KnownNt,
        snic_domain::RegionKind::UserNt => RegionKind::UserNt,
    }
}

/// Uploads the bytes; sets their digest and size, and the request's id.
pub(super) async fn send(
    client: &Client,
    header: BitstreamHeader,
    bytes: &Bytes,
) -> Result<Bitstream, Failure> {
    let uploaded = transfer(client, header, bytes).await?;
    uploaded.bitstream.ok_or_else(|| Failure::without("bitstream"))
}

/// Has the server check an upload, which keeps nothing of it.
pub(super) async fn check(
    client: &Client,
    header: BitstreamHeader,
    bytes: &Bytes,
) -> Result<(), Failure> {
    transfer(client, BitstreamHeader { validate_only: true, ..header }, bytes).await.map(drop)
}

async fn transfer(
    client: &Client,
    header: BitstreamHeader,
    bytes: &Bytes,
) -> Result<UploadBitstreamResponse, Failure> {
    let header = BitstreamHeader {
        digest: Digest::of(bytes).to_string(),
        size_bytes: bytes.len() as u64,
        request_id: request_id(),
        ..header
    };
    client
        .call(messages(header, bytes), |client, request| async move {
            let request = request.map(tokio_stream::iter);
            client.bitstreams().upload_bitstream(request).await
        })
        .await
}

/// Reads a signature of 64 bytes. The server checks it too, but cannot name the file.
pub(super) fn signature(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |source: io::Error| Failure::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(65).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() == 64 {
        return Ok(bytes);
    }
    let message =
        format!("{} is not an ed25519 signature: its size is not 64 bytes", path.display());
    Err(Failure::usage(message, "bitstreams/README.md shows how to sign a bitstream"))
}

pub(super) fn read(path: &Path) -> Result<Bytes, Failure> {
    let failed = |source: io::Error| Failure::Read { path: path.to_owned(), source };
    let limit = BITSTREAM_BYTES_MAX.get();
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 {
        0 => Err(Failure::usage(
            format!("{} is empty", path.display()),
            "choose the file with the bitstream",
        )),
        size if size > limit => {
            let message =
                format!("{} is larger than the limit of {BITSTREAM_BYTES_MAX}", path.display());
            Err(Failure::usage(message, "upload the partial bitstream of one region"))
        }
        _ => Ok(bytes.into()),
    }
}

/// The header, then the bytes in chunks that share one buffer.
fn messages(header: BitstreamHeader, bytes: &Bytes) -> Vec<UploadBitstreamRequest> {
    let starts = (0..bytes.len()).step_by(CHUNK_BYTES);
    let chunks = starts.map(|start| bytes.slice(start..bytes.len().min(start + CHUNK_BYTES)));
    std::iter::once(Part::Header(header))
        .chain(chunks.map(Part::Chunk))
        .map(|part| UploadBitstreamRequest { part: Some(part) })
        .collect()
}
