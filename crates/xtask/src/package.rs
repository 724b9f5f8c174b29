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

/// The crates that have a package each: the crate, its folder, the package's name.
const PACKAGES: [(&str, &str, &str); 4] = [
    ("snicd", "crates/daemon", "snic"),
    ("snic-card", "crates/card", "snic-card"),
    ("snic-cdi", "integration/cdi", "snic-cdi"),
    ("snic-kubernetes", "integration/kubernetes", "snic-device-plugin"),
];

/// The version of the packages: ours, and Debian's revision.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// Who maintains the packages, as in their manifests.
const MAINTAINER: &str = "The snic authors <authors@snic.invalid>";

/// The packaged settings that differ from the defaults.
const SETTINGS: &str = "policies_dir = \"/etc/snic/policies\"\n";

/// Builds the programs, writes manual pages, completions, changelogs and the settings file to `target/release/package`,
/// runs cargo-deb, and has lintian look at the packages.
pub fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let root = &workspace.root;
    let programs = PACKAGES.map(|(name, ..)| name).into_iter().chain(["snicctl", "snic-hook"]);
    // What is shipped applies authorization policies; a build for a first look need not.
    let mut build = vec!["build", "--release", "--features", "snicd/cedar"];
    build.extend(programs.flat_map(|name| ["-p", name]));
    ensure!(
        command::succeeds(&mut cargo(root, &build))?,
        "the programs failed to build; see the output above"
    );
    let binaries = root.join("target/release");
    let target = binaries.join("package");
    generate(&binaries, &target)?;
    let changes = fs::read(root.join("CHANGELOG.md")).context("reading CHANGELOG.md")?;
    write_packed(&target.join("changelog.gz"), &changes)?;
    let date = printed(Path::new("git"), &["-C", path(root)?, "log", "-1", "--format=%aD"])?;
    for (.., name) in PACKAGES {
        let text = changelog(name, String::from_utf8(date.clone())?.trim());
        fs::write(target.join(format!("{name}.changelog")), text)?;
    }
    println!("generated files: {}", target.display());
    let cargo_deb = cargo_deb(root)?;
    let mut made = Vec::new();
    for (package, _, name) in PACKAGES {
        // Named here, so that lintian looks at these files and not at what earlier versions left beside them.
        let file = root.join("target/debian").join(file_name(name, "amd64"));
        let mut deb = Command::new(&cargo_deb);
        // Cargo passes the name of the subcommand on.
        deb.current_dir(root).args(["deb", "--no-build", "-p", package, "--output"]).arg(&file);
        if !command::succeeds(&mut deb)? {
            return Ok(false);
        }
        made.push(file);
    }
    checked(&made)
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
        "{name} ({VERSION}) unstable; urgency=medium\n\n  * See /usr/share/doc/snic/changelog.gz.\n\n \
         -- {MAINTAINER}  {date}\n"
    )
}

/// A path for the words of a command.
fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is text")
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

/// Writes a manual page as Debian policy 12.1 requires.
fn write_page(folder: &Path, name: &str, page: &[u8]) -> anyhow::Result<()> {
    write_packed(&folder.join(format!("{name}.1.gz")), page)
}

/// Writes a file that is compressed, and the same each time.
fn write_packed(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    let mut packed = GzEncoder::new(fs::File::create(file)?, Compression::best());
    packed.write_all(text)?;
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
    let whole = printed(&snicd, &["config", "--config", path(&settings)?])?;
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

    #[test]
    fn a_package_s_file_has_the_version_of_its_changelog() {
        let file = file_name("snic-cdi", "arm64");
        let (name, rest) = file.split_once('_').expect("a name");
        let (version, architecture) = rest.split_once('_').expect("a version");
        assert_eq!((name, architecture), ("snic-cdi", "arm64.deb"));
        let first = format!("{name} ({version}) ");
        assert!(changelog(name, "").starts_with(&first), "{first}");
    }

    /// The files of the packages that are sources are there; the others are made here.
    #[test]
    fn every_file_of_a_package_is_there_or_is_made() {
        let workspace = Workspace::load().expect("the workspace");
        for (package, below, name) in PACKAGES {
            let folder = workspace.root.join(below);
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("the manifest");
            let (_, assets) = manifest.split_once("assets = [").expect("assets");
            let (assets, _) = assets.split_once("\n]").expect("their end");
            let mut count = 0;
            for asset in assets.lines().filter_map(|line| line.trim().strip_prefix("[\"")) {
                let (file, _) = asset.split_once('"').expect("a file");
                count += 1;
                check_asset(&folder, &manifest, file);
            }
            assert!(count >= 2, "{package}: {count} files");
            let log = format!("changelog = \"../../target/release/package/{name}.changelog\"");
            assert!(manifest.contains(&log), "{package}: {log}");
            assert!(manifest.contains(MAINTAINER), "{package}: {MAINTAINER}");
            if let Some((_, unit)) = manifest.split_once("unit-name = \"") {
                let (unit, _) = unit.split_once('"').expect("its end");
                let script = fs::read_to_string(folder.join("package/postinst")).expect("a script");
                assert!(script.contains("#DEBHELPER#"), "{package}: the unit is not enabled");
                assert!(folder.join(format!("package/{unit}.service")).exists(), "{unit}");
            }
        }
    }

    fn check_asset(folder: &Path, manifest: &str, file: &str) {
        if let Some(made) = file.strip_prefix("target/release/package/") {
            let known = COMPLETIONS.iter().any(|(_, file)| *file == made);
            let others = ["snicd.toml", "changelog.gz", "man/*.1.gz", "card-man/*.1.gz"];
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
