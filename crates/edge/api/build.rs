//! Generates `snic.control.v1` and `snic.fleet.v1` from `proto/`, without a protoc on the machine.

use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "methods.rs"]
mod methods;

const CONTROL: &str = ".snic.control.v1";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The proto files, in one order whatever the file system says.
fn proto_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "proto"));
    files.sort();
    Ok(files)
}

/// Generates the code of a package, and its descriptors as `{name}.bin`.
fn generate(root: &Path, package: &str, files: Vec<PathBuf>, name: &str) -> Result<()> {
    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).open_files(files)?;
    let mut builder = tonic_prost_build::configure();
    if package != CONTROL {
        builder = builder.extern_path(CONTROL, "crate::v1");
    }
    builder
        .bytes(format!("{package}.UploadBitstreamRequest.chunk"))
        .bytes(format!("{package}.FetchImageResponse.chunk"))
        .btree_map(package)
        .compile_fds(compiler.file_descriptor_set())?;

    // What the reflection service sends needs no comments, but google.api's annotations, which only
    // the compiler can encode.
    let descriptors = compiler.include_source_info(false).encode_file_descriptor_set();
    fs::write(Path::new(&env::var("OUT_DIR")?).join(name), descriptors)?;
    Ok(())
}

/// Writes a file for `include!`.
fn write(name: &str, text: &str) -> Result<()> {
    Ok(fs::write(Path::new(&env::var("OUT_DIR")?).join(name), text)?)
}

fn main() -> Result<()> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../../proto");
    println!("cargo::rerun-if-changed={}", root.display());

    let mut control = proto_files(&root.join("snic/control/v1"))?;
    // The response of operations that leave nothing to show; no file imports it.
    control.push("google/protobuf/empty.proto".into());
    let fleet = proto_files(&root.join("snic/fleet/v1"))?;
    let mut compiler = protox::Compiler::new([&root])?;
    compiler.open_files(control.iter().chain(&fleet))?;
    let pool = compiler.descriptor_pool();
    let tables = [("snic.control.v1", "TABLE"), ("snic.fleet.v1", "FLEET_TABLE")];
    write("methods.rs", &methods::methods(&pool, &tables)?)?;
    write("replies.rs", &methods::replies(&pool, "snic.control.v1"))?;
    // The fleet's first: it leaves a file without messages for each package that it imports.
    generate(&root, ".snic.fleet.v1", fleet, "fleet.bin")?;
    generate(&root, CONTROL, control, "descriptors.bin")
}
