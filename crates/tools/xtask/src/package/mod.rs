//! `cargo xtask package`: builds the programs for a platform, generates the files of the Debian packages, builds these, and
//! tries what is in them. If cargo-deb is missing, it is installed below the target folder first.

mod fleet_smoke;
pub mod generated;
mod smoke;
mod unpacked;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::command::{self, cargo};
use crate::platform::{PROFILE, Platform};
use crate::tier::SHIPPED;
use crate::workspace::Workspace;

/// The version of cargo-deb that the package was tested with.
const CARGO_DEB: &str = "3.8.0";

/// The packages: the crate, its folder, the package's name.
const PACKAGES: [(&str, &str, &str); 7] = [
    ("snicd", "crates/host/daemon", "snic"),
    ("snic-card", "crates/cards/card", "snic-card"),
    ("snic-fleetd", "crates/fleet/fleetd", "snic-fleet"),
    ("snic-cdi", "integration/cdi", "snic-cdi"),
    ("snic-kubernetes", "integration/kubernetes", "snic-device-plugin"),
    ("snic-kubernetes", "integration/kubernetes", "snic-dra"),
    ("snic-kubernetes", "integration/kubernetes", "snic-dag-controller"),
];
/// Packages beside the first of their crate: their names, and what cargo-deb calls them in its manifest.
const VARIANTS: [(&str, &str); 2] =
    [("snic-dra", "dra"), ("snic-dag-controller", "dag-controller")];

/// The version of the packages: ours, and Debian's revision.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// Maintainer of the packages, as in their manifests.
const MAINTAINER: &str = "The snic authors <authors@snic.invalid>";

/// Builds the programs for a platform, writes manual pages, completions and the settings file to `package` in the folder of
/// the programs, runs cargo-deb, has lintian look at the packages, and tries the programs in them.
///
/// # Errors
/// Something that the build needs is missing, a program does not build, or does not do what it should.
pub fn run(workspace: &Workspace, platform: &Platform) -> anyhow::Result<bool> {
    let root = &workspace.root;
    platform.check()?;
    build(workspace, platform)?;
    let programs = platform.programs(&workspace.target);
    let target = programs.join("package");
    generated::generate(platform, &programs, &target)?;
    let changes = fs::read(root.join("CHANGELOG.md")).context("reading CHANGELOG.md")?;
    generated::write_packed(&target.join("changelog.gz"), &changes)?;
    // The hook runs on hosts with any C library, so it brings its own.
    let hook = platform.build_static(root, &workspace.target, "snic-hook")?;
    fs::copy(hook, target.join("snic-hook"))?;
    write_changelogs(root)?;
    println!("generated files: {}", target.display());
    let cargo_deb = cargo_deb(root)?;
    let mut made = Vec::new();
    for (package, _, name) in PACKAGES {
        // Named here, so that lintian looks at these files and not at what earlier versions left beside them.
        let file = workspace.target.join("debian").join(file_name(name, platform.architecture));
        let mut deb = Command::new(&cargo_deb);
        // Cargo passes the name of the subcommand on.
        deb.current_dir(root).args(["deb", "--no-build", "--profile", PROFILE, "-p", package]);
        deb.arg("--output").arg(&file);
        if let Some((_, variant)) = VARIANTS.iter().find(|(variant, _)| *variant == name) {
            deb.args(["--variant", variant]);
        }
        if platform.is_foreign() {
            deb.args(["--target", platform.target]);
        }
        if !command::succeeds(&mut deb)? {
            return Ok(false);
        }
        made.push(file);
    }
    if !checked(&made)? {
        return Ok(false);
    }
    smoke::test(platform, &made)?;
    made.iter().for_each(|file| println!("{}", file.display()));
    Ok(true)
}

/// Builds `snicctl` and the programs of all packages for a platform. What is shipped applies authorization policies and
/// keeps images in S3; a build for a first look need not. All together, also for images: which features their dependencies
/// have depends on who asks for them, so a few alone would be other programs, and another build of many minutes.
///
/// # Errors
/// They do not build.
pub fn build(workspace: &Workspace, platform: &Platform) -> anyhow::Result<()> {
    let mut words = [&SHIPPED[..], &["-p", "snicctl"]].concat();
    let mut packages: Vec<_> = PACKAGES.iter().map(|(name, ..)| *name).collect();
    packages.dedup();
    words.extend(packages.into_iter().flat_map(|name| ["-p", name]));
    platform.build(&workspace.root, &words)
}

/// Writes the changelogs where the manifests say that they are, which is the same for all platforms.
fn write_changelogs(root: &Path) -> anyhow::Result<()> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["log", "-1", "--format=%aD"]);
    let date = String::from_utf8(generated::printed(&mut git)?)?;
    let folder = root.join("target/package");
    fs::create_dir_all(&folder)?;
    for (.., name) in PACKAGES {
        fs::write(folder.join(format!("{name}.changelog")), changelog(name, date.trim()))?;
    }
    Ok(())
}

/// The name of a package's file, by Debian's convention.
fn file_name(name: &str, architecture: &str) -> String {
    format!("{name}_{VERSION}_{architecture}.deb")
}

/// Whether lintian finds nothing wrong with these packages; it is asked where it is installed.
fn checked(packages: &[PathBuf]) -> anyhow::Result<bool> {
    if Command::new("lintian").arg("--version").output().is_err() {
        println!("lintian is not installed: the packages were not checked");
        return Ok(true);
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    command::succeeds(lintian.args(packages))
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
        let words =
            ["install", "--locked", "--version", CARGO_DEB, "--root", path(&tools)?, "cargo-deb"];
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

/// A package's changelog in the format of Debian policy 4.4. What has changed is in the project's own.
fn changelog(name: &str, date: &str) -> String {
    format!(
        "{name} ({VERSION}) unstable; urgency=medium\n\n  * See /usr/share/doc/{name}/changelog.gz.\n\n \
         -- {MAINTAINER}  {date}\n"
    )
}

/// A path for the words of a command.
fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_s_file_has_the_version_of_its_changelog() {
        let file = file_name("snic-cdi", "arm64");
        let (name, rest) = file.split_once('_').expect("a name");
        let (version, architecture) = rest.split_once('_').expect("a version");
        assert_eq!((name, architecture), ("snic-cdi", "arm64.deb"));
        let (first, log) = (format!("{name} ({version}) "), changelog(name, ""));
        assert!(log.starts_with(&first), "{log}");
        assert!(
            log.contains(" /usr/share/doc/snic-cdi/changelog.gz.\n"),
            "it is in the package: {log}"
        );
    }

    /// The files of the packages that are sources are there; the others are made here.
    #[test]
    fn every_file_of_a_package_is_there_or_is_made() {
        let workspace = Workspace::load().expect("the workspace");
        for (package, below, name) in PACKAGES {
            let folder = workspace.root.join(below);
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("the manifest");
            let all = manifest.clone();
            let manifest = section(&all, name);
            let (_, assets) = manifest.split_once("assets = [").expect("assets");
            let (assets, _) = assets.split_once("\n]").expect("their end");
            let mut count = 0;
            for asset in assets.lines().filter_map(|line| line.trim().strip_prefix("[\"")) {
                let (file, _) = asset.split_once('"').expect("a file");
                count += 1;
                check_asset(&folder, manifest, file);
            }
            assert!(count >= 2, "{package}: {count} files");
            let changes = format!("changelog.gz\", \"usr/share/doc/{name}/\"");
            assert!(manifest.contains(&changes), "{package}: {changes}");
            let root = "../".repeat(below.split('/').count());
            let log = format!("changelog = \"{root}target/package/{name}.changelog\"");
            assert!(manifest.contains(&log), "{package}: {log}");
            assert!(all.contains(MAINTAINER), "{package}: {MAINTAINER}");
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{package}: {name}");
            if let Some((_, unit)) = manifest.split_once("unit-name = \"") {
                let (unit, _) = unit.split_once('"').expect("its end");
                let script = fs::read_to_string(folder.join("package/postinst")).expect("a script");
                assert!(script.contains("#DEBHELPER#"), "{package}: the unit is not enabled");
                assert!(folder.join(format!("package/{unit}.service")).exists(), "{unit}");
            }
        }
    }

    /// The part of a manifest that a package is made of.
    fn section<'a>(manifest: &'a str, name: &str) -> &'a str {
        let variant = VARIANTS.iter().find(|(variant, _)| *variant == name);
        let head = variant.map_or_else(
            || "[package.metadata.deb]".to_owned(),
            |(_, variant)| format!("[package.metadata.deb.variants.{variant}]"),
        );
        let (_, rest) = manifest.split_once(&head).expect("its part");
        rest.split_once("\n[package.metadata.deb.").map_or(rest, |(part, _)| part)
    }

    fn check_asset(folder: &Path, manifest: &str, file: &str) {
        if let Some(made) = file.strip_prefix("target/release/package/") {
            let known = generated::COMPLETIONS.iter().any(|(_, file)| *file == made);
            let others = [
                "snicd.toml",
                "changelog.gz",
                "snic-hook",
                "man/*.1.gz",
                "card-man/*.1.gz",
                "fleet-man/*.1.gz",
            ];
            assert!(known || others.contains(&made), "{file}");
        } else if let Some((below, end)) = file.split_once("/*.") {
            let (_, policies) = below.split_once("policies").expect("policies");
            let mut found = 0;
            for entry in fs::read_dir(folder.join(below)).expect("a folder") {
                let name = entry.expect("a file").file_name().into_string().expect("text");
                if !name.ends_with(&format!(".{end}")) {
                    continue;
                }
                found += 1;
                let listed = format!("\"/etc/snic/policies{policies}/{name}\"");
                assert!(manifest.contains(&listed), "{name} is no file of the settings");
            }
            assert!(found > 0, "{file} names nothing");
        } else if !file.starts_with("target/release/") {
            assert!(folder.join(file).exists(), "{file} is missing");
        }
    }
}
