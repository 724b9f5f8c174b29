//! Generates `snic.control.v1` from `proto/`, without a protoc on the machine.

use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The proto files, in one order whatever the file system says.
fn proto_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "proto"));
    files.sort();
    Ok(files)
}

fn main() -> Result<()> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());

    let mut files = proto_files(&root.join("snic/control/v1"))?;
    // The response of operations that leave nothing to show; no file imports it.
    files.push("google/protobuf/empty.proto".into());
    let mut descriptors = protox::compile(files, [&root])?;
    tonic_prost_build::configure()
        .bytes(".snic.control.v1.UploadBitstreamRequest.chunk")
        .btree_map(".snic.control.v1")
        .compile_fds(descriptors.clone())?;

    // What the reflection service sends needs no comments.
    descriptors.file.iter_mut().for_each(|file| file.source_code_info = None);
    let target = Path::new(&env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(target, descriptors.encode_to_vec())?;
    Ok(())
}
