//! `snicctl bitstream upload --folder`: all images that a build flow made of a chain, as one bitstream.

use std::io;
use std::path::{Path, PathBuf};

use snic_api::v1::{Bitstream, BitstreamHeader, GetBitstreamRequest};
use snic_bitstream::manifest::BuiltManifest;
use snic_client::output::views;
use snic_client::{Client, Failure, call, names};
use snic_domain::Digest;

use super::super::CliSession;
use super::{check, read, read_manifest, send, signature, target_of};

/// Uploads the images of a folder, and shows the bitstream.
pub(super) async fn upload(
    session: &mut CliSession,
    folder: &Path,
    header: BitstreamHeader,
) -> Result<(), Failure> {
    let client = session.client()?;
    let images = read_images(folder)?;
    let name = names::bitstream(&header.bitstream_id)?;
    let mut uploaded = present(&client, &name).await?;
    for image in &images {
        match image.is_of(uploaded.as_ref()) {
            true => snic_output::complain!("{} is there already", image.file.display()),
            false => uploaded = Some(image.send(&client, &header).await?),
        }
    }
    let uploaded = uploaded.expect("there is an image, and it was uploaded or there");
    session.output.one(&uploaded, views::bitstream)
}

/// The bitstream as the server has it, if it does.
pub(in super::super) async fn present(
    client: &Client,
    name: &str,
) -> Result<Option<Bitstream>, Failure> {
    let request = GetBitstreamRequest { name: name.to_owned() };
    match call!(client, bitstreams.get_bitstream => bitstream, request) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.missing().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An image of a folder. Its bytes are read when they are sent: those of all regions together may be large.
pub(in super::super) struct FolderImage {
    /// Where its bytes are.
    pub file: PathBuf,
    /// Digest of its bytes.
    pub digest: String,
    manifest: BuiltManifest,
}

impl FolderImage {
    /// Whether a bitstream has it.
    pub fn is_of(&self, bitstream: Option<&Bitstream>) -> bool {
        bitstream.is_some_and(|of| of.images.iter().any(|image| image.digest == self.digest))
    }

    /// Sends it, with what `header` says of the whole bitstream and what its manifest says of it. Repeating what was
    /// refused or cut off is safe: the images before it stay.
    pub async fn send(
        &self,
        client: &Client,
        header: &BitstreamHeader,
    ) -> Result<Bitstream, Failure> {
        send(client, self.header(header)?, &read(&self.file)?).await
    }

    /// Has the server check an upload of it, which keeps nothing.
    ///
    /// # Errors
    /// A file cannot be read, or the server would refuse the upload; as with [`FolderImage::send`].
    pub async fn check(&self, client: &Client, header: &BitstreamHeader) -> Result<(), Failure> {
        check(client, self.header(header)?, &read(&self.file)?).await
    }

    fn header(&self, header: &BitstreamHeader) -> Result<BitstreamHeader, Failure> {
        let signed = PathBuf::from(format!("{}.sig", self.file.display()));
        Ok(BitstreamHeader {
            bitstream_id: header.bitstream_id.clone(),
            shareable: header.shareable,
            labels: header.labels.clone(),
            description: header.description.clone(),
            signature: if signed.exists() { signature(&signed)? } else { Vec::new() },
            ..target_of(&self.manifest)
        })
    }
}

/// The images of a folder with their manifests, by name.
pub(in super::super) fn read_images(folder: &Path) -> Result<Vec<FolderImage>, Failure> {
    let image = |file: PathBuf| {
        let digest = Digest::of(&read(&file)?).to_string();
        let manifest = read_manifest(&file.with_extension("toml"))?;
        Ok(FolderImage { file, digest, manifest })
    };
    images(folder)?.into_iter().map(image).collect()
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
