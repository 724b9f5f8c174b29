//! `snicctl bitstream upload --folder`: all images that a build flow made of a chain, as one bitstream.

use std::io;
use std::path::{Path, PathBuf};

use snic_api::v1::{Bitstream, BitstreamHeader, GetBitstreamRequest};
use snic_client::output::views;
use snic_client::{Client, Failure, call, names};
use snic_domain::Digest;

use super::super::CliSession;
use super::{read, read_manifest, send, signature, target_of};

/// Uploads the images of a folder that the server does not have yet, in the order of their names. One that is
/// refused ends it; those before it stay, and a repetition goes on there.
pub(super) async fn upload(
    session: &mut CliSession,
    folder: &Path,
    header: BitstreamHeader,
) -> Result<(), Failure> {
    let files = images(folder)?;
    let client = session.client()?;
    let mut uploaded = present(&client, &header.bitstream_id).await?;
    for file in &files {
        let bytes = read(file)?;
        let digest = Digest::of(&bytes).to_string();
        let has = |of: &Bitstream| of.images.iter().any(|image| image.digest == digest);
        if uploaded.as_ref().is_some_and(has) {
            eprintln!("{} is there already", file.display());
            continue;
        }
        let signed = PathBuf::from(format!("{}.sig", file.display()));
        let header = BitstreamHeader {
            bitstream_id: header.bitstream_id.clone(),
            shareable: header.shareable,
            labels: header.labels.clone(),
            description: header.description.clone(),
            signature: if signed.exists() { signature(&signed)? } else { Vec::new() },
            ..target_of(&read_manifest(&file.with_extension("toml"))?)
        };
        uploaded = Some(send(&client, header, &bytes).await?);
    }
    let uploaded = uploaded.expect("there is an image, and it was uploaded or there");
    session.output.one(&uploaded, views::bitstream)
}

/// The bitstream as the server has it, if it does.
async fn present(client: &Client, id: &str) -> Result<Option<Bitstream>, Failure> {
    let request = GetBitstreamRequest { name: names::bitstream(id)? };
    match call!(client, bitstreams.get_bitstream => bitstream, request) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.missing().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The images of a folder, by name.
fn images(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |source: io::Error| Failure::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "bit") {
            files.push(path);
        }
    }
    files.sort_unstable();
    if files.is_empty() {
        let message = format!("{} has no file NAME.bit", folder.display());
        return Err(Failure::usage(
            message,
            "choose the folder that the build flow wrote for a chain",
        ));
    }
    Ok(files)
}
