//! An archive of the Open Container Initiative's image layout, version 1.0.0: one image, for one platform or several. Its JSON
//! documents are four; they are written here as values, which the tests have skopeo and umoci judge.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::tree::Tree;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The SHA-256 digest in hexadecimal.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// When an image was made, so that the same sources make the same image.
#[derive(Debug, Clone)]
pub struct Created {
    /// In seconds since 1970.
    pub seconds: u64,
    /// As RFC 3339 writes it.
    pub text: String,
}

/// The image's blobs, and its manifests by platform.
pub struct Archive {
    created: Created,
    /// Blobs by digest in hexadecimal.
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: Vec<Value>,
}

impl Archive {
    /// An archive without image.
    pub fn new(created: Created) -> Self {
        Self { created, blobs: BTreeMap::new(), manifests: Vec::new() }
    }

    /// Keeps a blob, and describes it.
    fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest(&bytes);
        let described = json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": bytes.len(),
        });
        self.blobs.insert(digest, bytes);
        described
    }

    /// Adds the image for an architecture, such as `amd64`. `config` says how its program runs.
    ///
    /// # Errors
    /// A path is too long for the layer's format.
    pub fn add(&mut self, architecture: &str, tree: &Tree, config: &Value) -> anyhow::Result<()> {
        let layer = tree.layer(self.created.seconds)?;
        let uncompressed = format!("sha256:{}", digest(&layer));
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&layer)?;
        let layer = self.blob(LAYER, packed.finish()?);
        let config = json!({
            "created": self.created.text,
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": { "type": "layers", "diff_ids": [uncompressed] },
            "history": [{ "created": self.created.text, "created_by": "cargo xtask image" }],
        });
        let config = self.blob(CONFIG, config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": [layer],
        });
        let mut manifest = self.blob(MANIFEST, manifest.to_string().into_bytes());
        manifest["platform"] = json!({ "architecture": architecture, "os": "linux" });
        self.manifests.push(manifest);
        Ok(())
    }

    /// Writes the archive; `tag` names the image in it. For one platform, too, the name leads to an index of platforms, so
    /// that programs read all archives alike.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(mut self, file: &Path, tag: &str) -> anyhow::Result<()> {
        let manifests = std::mem::take(&mut self.manifests);
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        let mut index = self.blob(INDEX, index.to_string().into_bytes());
        index["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [index] });
        let layout = json!({ "imageLayoutVersion": "1.0.0" });
        let mut archive = tar::Builder::new(BufWriter::new(File::create(file)?));
        let mut append = |path: &str, kind: EntryType, bytes: &[u8]| -> anyhow::Result<()> {
            let mut header = Header::new_ustar();
            header.set_entry_type(kind);
            header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
            header.set_mtime(self.created.seconds);
            header.set_size(bytes.len().try_into()?);
            Ok(archive.append_data(&mut header, path, bytes)?)
        };
        append("blobs/", EntryType::Directory, &[])?;
        append("blobs/sha256/", EntryType::Directory, &[])?;
        for (digest, bytes) in &self.blobs {
            append(&format!("blobs/sha256/{digest}"), EntryType::Regular, bytes)?;
        }
        append("index.json", EntryType::Regular, index.to_string().as_bytes())?;
        append("oci-layout", EntryType::Regular, layout.to_string().as_bytes())?;
        archive.into_inner()?.flush()?;
        Ok(())
    }
}
