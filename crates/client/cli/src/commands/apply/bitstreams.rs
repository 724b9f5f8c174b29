//! Bitstreams of files that are applied: their bytes lie beside the document.

use std::path::PathBuf;

use snic_api::v1::{Bitstream, BitstreamHeader};
use snic_client::output::{message, text};
use snic_client::{Client, Failure, names};
use snic_dagfile::Document;

use super::super::bitstream;
use super::difference::{Difference, differences};
use super::{Action, ApplyOutcome, Target, read_fields, unchangeable, value};

/// Keys of a bitstream's document beside the fields of an upload.
const FILE_KEYS: [&str; 3] = ["file", "signature", "folder"];

/// A bitstream: its document names the file with the bytes, or the folder with an image for each region.
pub(super) async fn apply(
    client: &Client,
    target: &Target,
    dry: bool,
) -> Result<ApplyOutcome, Failure> {
    let (document, name) = (&target.document, &target.name);
    let (mut settable, _) = message::fields_of::<BitstreamHeader>()?;
    let of_upload = ["bitstream_id", "digest", "size_bytes", "request_id", "signature"];
    settable.retain(|field| !of_upload.contains(&field.as_str()));
    let (_, mut others) = message::fields_of::<Bitstream>()?;
    others.retain(|field| !settable.contains(field));
    others.extend(FILE_KEYS.map(str::to_owned));
    let (header, mut paths) = read_fields::<BitstreamHeader>(document, &settable, &others)?;
    let nts = header.nts.iter().map(|nt| names::nt_type(nt)).collect::<Result<_, _>>()?;
    let bitstream_id = text::id(name).to_owned();
    let header = BitstreamHeader { nts, bitstream_id, ..header };
    let path_of = |key: &str| -> Result<Option<PathBuf>, Failure> {
        Ok(document.text_of(key)?.map(|path| target.folder.join(path)))
    };
    let present = bitstream::folder::present(client, name).await?;
    if document.has("folder") {
        return apply_images(client, target, present.as_ref(), (header, paths), dry).await;
    }
    let bytes = path_of("file")?.map(|path| bitstream::read(&path)).transpose();
    let bytes = bytes.map_err(|failure| at_key(document, "file", failure))?;
    let mut wanted = value(&header)?;
    let digest = match &bytes {
        Some(bytes) => Some(snic_domain::Digest::of(bytes).to_string()),
        None => document.text_of("digest")?,
    };
    if let (Some(digest), Some(fields)) = (digest, wanted.as_object_mut()) {
        fields.insert("digest".to_owned(), digest.into());
        paths.push("digest".to_owned());
    }
    let Some(present) = present else {
        let Some(bytes) = bytes else {
            let help = "add `file:` with the path of its image, or `folder:` with that of its images, from the \
                        folder of this file";
            let wrong = document.error_in(
                "name",
                "there is no such bitstream, and no image of it",
                Some(help.into()),
            );
            return Err(Box::new(wrong).into());
        };
        let signature = path_of("signature")?.map(|path| bitstream::signature(&path));
        let signature = signature.transpose();
        let signature = signature.map_err(|failure| at_key(document, "signature", failure))?;
        let header = BitstreamHeader { signature: signature.unwrap_or_default(), ..header };
        let sent = match dry {
            true => bitstream::check(client, header, &bytes).await,
            false => bitstream::send(client, header, &bytes).await.map(drop),
        };
        sent.map_err(|failure| at_key(document, "file", failure))?;
        return Ok(ApplyOutcome::new(name, Action::Created));
    };
    let differences = differences(&paths, &value(&present)?, &wanted);
    match differences.is_empty() {
        true => Ok(ApplyOutcome::new(name, Action::Unchanged)),
        false => Err(unchangeable(target, &differences)),
    }
}

/// A failure with a file that a key of the document names, at the line of the key.
fn at_key(document: &Document, key: &str, failure: Failure) -> Failure {
    let at = |message: &str, help| document.error_in(key, message, help);
    match failure {
        Failure::Read { .. } => Box::new(at(&failure.to_string(), None)).into(),
        Failure::Usage { message, hint } => Box::new(at(&message, Some(hint))).into(),
        // The bytes of an upload are the field `chunk`.
        other => other.in_file(|field, message| (field == "chunk").then(|| at(message, None))),
    }
}

/// A bitstream with an image for each region: those that the server has not are added to it. What manifests say of
/// each does not stand in the document.
async fn apply_images(
    client: &Client,
    target: &Target,
    present: Option<&Bitstream>,
    (header, paths): (BitstreamHeader, Vec<String>),
    dry: bool,
) -> Result<ApplyOutcome, Failure> {
    let wrong = |key: &str, message: &str, help: &str| -> Failure {
        Box::new(target.document.error_in(key, message, Some(help.to_owned()))).into()
    };
    let mut of_folder = FILE_KEYS.iter().filter(|key| **key != "folder");
    let of_manifests = ["nts", "region_kind", "card_model", "identity", "regions", "digest"];
    if let Some(key) = of_folder.find(|key| target.document.has(key)) {
        return Err(wrong(key, "it has `folder:` too", "leave one of both out"));
    }
    if let Some(key) = of_manifests.iter().find(|key| target.document.has(key)) {
        let help = "leave it out: each image's manifest in the folder says it";
        return Err(wrong(key, "it is of a folder of images", help));
    }
    let folder = target.folder.join(target.document.text_of("folder")?.unwrap_or_default());
    let images = bitstream::folder::read_images(&folder);
    let images = images.map_err(|failure| at_key(&target.document, "folder", failure))?;
    let mut differing = match present {
        Some(present) => differences(&paths, &value(present)?, &value(&header)?),
        None => Vec::new(),
    };
    if !differing.is_empty() {
        return Err(unchangeable(target, &differing));
    }
    let digests = |of: &Bitstream| -> Vec<String> {
        of.images.iter().map(|image| image.digest.clone()).collect()
    };
    let held = present.map(digests).unwrap_or_default();
    if let Some(digest) = held.iter().find(|held| images.iter().all(|image| image.digest != **held))
    {
        let help = format!("`snicctl bitstream delete {} --image {digest}`", header.bitstream_id);
        let message = format!("it has the image {digest}, which is not in {}", folder.display());
        return Err(wrong("folder", &message, &help));
    }
    let new: Vec<_> = images.iter().filter(|image| !image.is_of(present)).collect();
    for image in &new {
        let sent = match dry {
            true => image.check(client, &header).await,
            false => image.send(client, &header).await.map(drop),
        };
        let at_image = |_: &str, message: &str| {
            let message = format!("{}: {message}", image.file.display());
            Some(target.document.error_in("folder", &message, None))
        };
        sent.map_err(|failure| failure.in_file(at_image))?;
    }
    let action = match (present, new.is_empty()) {
        (None, _) => Action::Created,
        (Some(_), true) => Action::Unchanged,
        (Some(_), false) => {
            let all = images.iter().map(|image| image.digest.clone()).collect::<Vec<_>>();
            let (path, old) = ("images".to_owned(), held.into());
            differing.push(Difference { path, old, new: all.into() });
            Action::Changed
        }
    };
    Ok(ApplyOutcome { differences: differing, ..ApplyOutcome::new(&target.name, action) })
}
