//! Looks at an image with programs that others wrote, where they are installed: skopeo reads it, umoci unpacks it, and the programs
//! in it run with nothing else around them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::process::geteuid;
use serde_json::Value;

use super::Program;
use crate::package::generated::printed;
use crate::packages;
use crate::platform::Platform;

/// Looks at the image for a platform in an archive, and has its programs say what they are.
///
/// # Errors
/// It cannot be read, or a program in it does not run.
pub fn check(
    file: &Path,
    tag: &str,
    platform: &Platform,
    programs: &[Program],
) -> anyhow::Result<()> {
    let missing: Vec<_> = ["skopeo", "umoci"].into_iter().filter_map(packages::missing).collect();
    if !missing.is_empty() {
        println!("the image was not checked:\n{}", missing.join("\n"));
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let image = format!("oci-archive:{}:{tag}", file.display());
    let skopeo = |words: &[&str]| {
        let mut command = Command::new("skopeo");
        command.args(["--override-os", "linux", "--override-arch", platform.architecture]);
        printed(command.current_dir(&folder).args(words))
    };
    let read: Value = serde_json::from_slice(&skopeo(&["inspect", &image])?)?;
    ensure!(read["Architecture"] == platform.architecture, "skopeo reads {read}");
    let layout = format!("layout:{tag}");
    skopeo(&["copy", "--quiet", &image, &format!("oci:{layout}")])?;
    let mut umoci = Command::new("umoci");
    umoci.current_dir(&folder).args(["--log=error", "unpack", "--image", &layout]);
    let is_root = geteuid().is_root();
    if !is_root {
        umoci.arg("--rootless");
    }
    printed(umoci.arg("bundle"))?;
    println!("{}: read by skopeo, unpacked by umoci", platform.architecture);
    if !is_root {
        println!("{}: its programs were not tried, which needs root", platform.architecture);
        return Ok(());
    }
    let root = folder.path().join("bundle/rootfs");
    for Program { path, says, .. } in programs {
        let output = in_root(platform, &root, path)?.arg("--version").output()?;
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        ensure!(said.concat().contains(says), "{path} says {said:?}, and not {says:?}");
        println!("{}: {path} runs", platform.architecture);
    }
    Ok(())
}

/// A command that runs a program with `root` as all there is; QEMU is static, and is put in where it is needed.
fn in_root(platform: &Platform, root: &Path, program: &str) -> anyhow::Result<Command> {
    let mut command = Command::new("chroot");
    command.arg(root);
    if let Some(emulator) = platform.emulator() {
        let folders = packages::search_path();
        let found = folders.iter().map(|folder| folder.join(emulator)).find(|path| path.exists());
        let found = found.with_context(|| format!("{emulator} is not on the search path"))?;
        fs::copy(found, root.join(emulator))?;
        command.arg(format!("/{emulator}"));
    }
    command.arg(format!("/{program}"));
    Ok(command)
}
