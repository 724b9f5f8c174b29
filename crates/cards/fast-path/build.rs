//! Compiles the program for the kernel with clang. Without clang the crate is built all the same, and says so when it is used.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCE: &str = "kernel/flows.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=PATH");
    let object = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("flows.o");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let endian = env::var("CARGO_CFG_TARGET_ENDIAN").expect("cargo sets it");
    let target = if endian == "big" { "bpfeb" } else { "bpfel" };
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-mcpu=v3", "-target", target]);
    // Debian's headers of the kernel are in a folder for each processor.
    let headers = Path::new("/usr/include").join(format!("{arch}-linux-gnu"));
    if headers.is_dir() {
        clang.arg("-I").arg(headers);
    }
    clang.args(["-c", SOURCE, "-o"]).arg(&object);
    match clang.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("clang does not compile {SOURCE}: {status}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::write(&object, []).expect("the folder is cargo's");
        }
        Err(error) => panic!("clang does not start: {error}"),
    }
}
