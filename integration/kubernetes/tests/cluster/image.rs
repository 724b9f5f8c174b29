//! An image with the distribution's busybox, as an archive that containerd imports: there is no registry.

use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Name of the image.
pub const NAME: &str = "docker.io/library/busybox:1";
/// Names of busybox's programs in the image.
const LINKS: [&str; 9] = ["sh", "sleep", "ping", "nc", "ip", "cat", "echo", "ls", "true"];

/// An archive that grows.
struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(bytes.len().try_into().expect("small"));
        self.0.append_data(&mut header, path, bytes).expect("into memory");
    }

    fn end(self) -> Vec<u8> {
        self.0.into_inner().expect("into memory")
    }
}

fn layer() -> Vec<u8> {
    let mut layer = Archive(tar::Builder::new(Vec::new()));
    let busybox = std::fs::read("/usr/bin/busybox").expect("busybox-static is installed");
    layer.file("bin/busybox", 0o755, &busybox);
    for name in LINKS {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        let path = format!("bin/{name}");
        layer.0.append_link(&mut header, path, "busybox").expect("into memory");
    }
    layer.end()
}

/// Writes the archive into a folder; returns where it is.
pub fn archive(folder: &Path) -> PathBuf {
    let mut archive = Archive(tar::Builder::new(Vec::new()));
    let mut blob = |kind: &str, bytes: &[u8]| {
        let digest = Sha256::digest(bytes);
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        archive.file(&format!("blobs/sha256/{digest}"), 0o644, bytes);
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{digest}"), "size": bytes.len()})
    };
    let layer = blob("layer.v1.tar", &layer());
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "config": {"Cmd": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob("config.v1+json", config.to_string().as_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [layer],
    });
    let mut manifest = blob("manifest.v1+json", manifest.to_string().as_bytes());
    manifest["annotations"] =
        json!({"io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": "1"});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    archive.file("index.json", 0o644, index.to_string().as_bytes());
    archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion": "1.0.0"}"#);
    let path = folder.join("busybox.tar");
    std::fs::write(&path, archive.end()).expect("the folder takes files");
    path
}
