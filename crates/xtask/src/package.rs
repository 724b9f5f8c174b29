//! `cargo xtask package`: generates the files of the Debian packages and builds them. If cargo-deb is missing, it
//! is installed below the target folder first.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::command::{self, cargo};
use crate::workspace::Workspace;

/// Shells with completions, and the names of their files.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "snicctl.bash"), ("zsh", "_snicctl"), ("fish", "snicctl.fish")];

/// The version of cargo-deb that the package was tested with.
const CARGO_DEB: &str = "3.8.0";

/// The crates that have a package each.
const PACKAGES: [&str; 2] = ["snicd", "snic-card"];

/// The packaged settings that differ from the defaults.
const SETTINGS: &str = "policies_dir = \"/etc/snic/policies\"\n";

/// Builds the programs, writes manual pages, completions and the settings file to `target/release/package`, and
/// runs cargo-deb.
pub fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let root = &workspace.root;
    let programs = ["-p", "snicd", "-p", "snicctl", "-p", "snic-hook", "-p", "snic-card"];
    // What is shipped applies authorization policies; a build for a first look need not.
    let build = [&["build", "--release", "--features", "snicd/cedar"][..], &programs].concat();
    ensure!(
        command::succeeds(&mut cargo(root, &build))?,
        "the programs failed to build; see the output above"
    );
    let binaries = root.join("target/release");
    let target = binaries.join("package");
    generate(&binaries, &target)?;
    println!("generated files: {}", target.display());
    let cargo_deb = cargo_deb(root)?;
    for package in PACKAGES {
        let mut deb = Command::new(&cargo_deb);
        // Cargo passes the name of the subcommand on.
        deb.current_dir(root).args(["deb", "--no-build", "-p", package]);
        if !command::succeeds(&mut deb)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The path of cargo-deb: from the search path, else our own installation.
fn cargo_deb(root: &Path) -> anyhow::Result<PathBuf> {
    let on_path = PathBuf::from("cargo-deb");
    if Command::new(&on_path).arg("--version").output().is_ok() {
        return Ok(on_path);
    }
    let tools = root.join("target/tools");
    let ours = tools.join("bin/cargo-deb");
    if !ours.exists() {
        let folder = tools.to_str().context("a path that is text")?;
        let words = ["install", "--locked", "--version", CARGO_DEB, "--root", folder, "cargo-deb"];
        let mut install = cargo(root, &words);
        // It runs for seconds, which is not worth minutes of optimisation.
        for (name, value) in [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16")] {
            install.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
        }
        ensure!(
            command::succeeds(&mut install)?,
            "cargo-deb failed to install; see the output above"
        );
    }
    Ok(ours)
}

/// The standard output of a program.
fn printed(program: &Path, words: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("start {}", program.display()))?;
    ensure!(output.status.success(), "{} {} failed", program.display(), words.join(" "));
    Ok(output.stdout)
}

/// The commands in a manual page: `dag create` as `["dag", "create"]`.
fn commands(program: &Path, above: &[&str]) -> anyhow::Result<Vec<Vec<String>>> {
    let page = String::from_utf8(printed(program, &[&["man"], above].concat())?)?;
    let prefix = format!("{}\\-", [&["snicctl"], above].concat().join("\\-"));
    let names = page.lines().filter_map(|line| {
        let name = line.strip_prefix(&prefix)?.strip_suffix("(1)")?;
        (name != "help").then(|| name.replace("\\-", "-"))
    });
    let whole = |name: String| above.iter().map(|part| (*part).to_owned()).chain([name]).collect();
    Ok(names.map(whole).collect())
}

/// Writes a manual page as Debian policy 12.1 requires: compressed, and reproducible.
fn write_page(folder: &Path, name: &str, page: &[u8]) -> anyhow::Result<()> {
    let file = fs::File::create(folder.join(format!("{name}.1.gz")))?;
    let mut packed = GzEncoder::new(file, Compression::best());
    packed.write_all(page)?;
    packed.finish()?;
    Ok(())
}

/// Writes all generated files.
fn generate(binaries: &Path, target: &Path) -> anyhow::Result<()> {
    let man = target.join("man");
    // Remove the pages of commands that no longer exist.
    if man.exists() {
        fs::remove_dir_all(&man)?;
    }
    fs::create_dir_all(&man)?;
    let (snicctl, snicd) = (binaries.join("snicctl"), binaries.join("snicd"));
    write_page(&man, "snicctl", &printed(&snicctl, &["man"])?)?;
    let mut left = commands(&snicctl, &[])?;
    while let Some(path) = left.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let page = printed(&snicctl, &[&["man"], &words[..]].concat())?;
        write_page(&man, &format!("snicctl-{}", words.join("-")), &page)?;
        left.extend(commands(&snicctl, &words)?);
    }
    write_page(&man, "snicd", &printed(&snicd, &["man"])?)?;
    let of_card = target.join("card-man");
    fs::create_dir_all(&of_card)?;
    write_page(&of_card, "snic-card", &printed(&binaries.join("snic-card"), &["man"])?)?;
    for (shell, file) in COMPLETIONS {
        fs::write(target.join(file), printed(&snicctl, &["completions", shell])?)?;
    }
    let settings = target.join("snicd.toml");
    fs::write(&settings, SETTINGS)?;
    let words = ["config", "--config", settings.to_str().context("a path that is text")?];
    let whole = printed(&snicd, &words)?;
    fs::write(settings, whole)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_page_is_compressed_and_the_same_each_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a-b.1.gz");
        let written = || {
            write_page(folder.path(), "a-b", b".TH a").expect("it is written");
            fs::read(&file).expect("a file")
        };
        let first = written();
        assert_eq!(written(), first);
        let mut page = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&first[..]), &mut page)
            .expect("it is readable");
        assert_eq!(page, ".TH a");
    }

    /// The files of the package that are sources are there; the others are made here.
    #[test]
    fn every_file_of_the_package_is_there_or_is_made() {
        let workspace = Workspace::load().expect("the workspace");
        let daemon = workspace.root.join("crates/daemon");
        let manifest = fs::read_to_string(daemon.join("Cargo.toml")).expect("the manifest");
        let (_, assets) = manifest.split_once("assets = [").expect("assets");
        let (assets, _) = assets.split_once("\n]").expect("their end");
        let mut count = 0;
        for asset in assets.lines().filter_map(|line| line.trim().strip_prefix("[\"")) {
            let (file, _) = asset.split_once('"').expect("a file");
            count += 1;
            if let Some(made) = file.strip_prefix("target/release/package/") {
                let known = COMPLETIONS.iter().any(|(_, file)| *file == made);
                assert!(known || ["snicd.toml", "man/*.1.gz"].contains(&made), "{file}");
            } else if let Some((folder, end)) = file.split_once("/*.") {
                let (_, below) = folder.split_once("policies").expect("policies");
                let mut found = 0;
                for entry in fs::read_dir(daemon.join(folder)).expect("a folder") {
                    let name = entry.expect("a file").file_name().into_string().expect("text");
                    if !name.ends_with(&format!(".{end}")) {
                        continue;
                    }
                    found += 1;
                    let listed = format!("\"/etc/snic/policies{below}/{name}\"");
                    assert!(manifest.contains(&listed), "{name} is no file of the settings");
                }
                assert!(found > 0, "{file} names nothing");
            } else if !file.starts_with("target/release/") {
                assert!(daemon.join(file).exists(), "{file} is missing");
            }
        }
        assert!(count >= 10, "{count} files");
        assert!(daemon.join("package/snicd.service").exists());
        assert!(daemon.join("package/postinst").exists());
    }
}
