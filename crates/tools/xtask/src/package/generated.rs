//! The files of packages that the programs themselves print: manual pages, completions, settings.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::path;
use crate::platform::Platform;

/// Shells with completions, and the names of their files.
pub const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "snicctl.bash"), ("zsh", "_snicctl"), ("fish", "snicctl.fish")];

/// The packaged settings that differ from the defaults.
const SETTINGS: &str = "policies_dir = \"/etc/snic/policies\"\n";

/// The standard output of a command.
///
/// # Errors
/// It cannot be started, or fails.
pub fn printed(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}", said.trim());
    Ok(output.stdout)
}

/// The programs of a platform, which print.
struct Programs<'a> {
    platform: &'a Platform,
    folder: &'a Path,
}

impl Programs<'_> {
    fn print(&self, name: &str, words: &[&str]) -> anyhow::Result<Vec<u8>> {
        printed(self.platform.command(&self.folder.join(name)).args(words))
    }
}

/// The commands in a page of `snicctl`'s manual: `dag create` as `["dag", "create"]`.
fn commands(programs: &Programs<'_>, above: &[&str]) -> anyhow::Result<Vec<Vec<String>>> {
    let page = String::from_utf8(programs.print("snicctl", &[&["man"], above].concat())?)?;
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
///
/// # Errors
/// The file cannot be written.
pub fn write_packed(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    let mut packed = GzEncoder::new(fs::File::create(file)?, Compression::best());
    packed.write_all(text)?;
    packed.finish()?;
    Ok(())
}

/// Has the platform's programs in the folder `built` print their pages, and writes all files to `target`.
///
/// # Errors
/// A program fails, or a file cannot be written.
pub fn generate(platform: &Platform, built: &Path, target: &Path) -> anyhow::Result<()> {
    let programs = Programs { platform, folder: built };
    let man = target.join("man");
    // Remove the pages of commands that no longer exist.
    if man.exists() {
        fs::remove_dir_all(&man)?;
    }
    fs::create_dir_all(&man)?;
    write_page(&man, "snicctl", &programs.print("snicctl", &["man"])?)?;
    let mut left = commands(&programs, &[])?;
    while let Some(path) = left.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let page = programs.print("snicctl", &[&["man"], &words[..]].concat())?;
        write_page(&man, &format!("snicctl-{}", words.join("-")), &page)?;
        left.extend(commands(&programs, &words)?);
    }
    write_page(&man, "snicd", &programs.print("snicd", &["man"])?)?;
    for (folder, name, words) in
        [("card-man", "snic-card", ["man"]), ("fleet-man", "snic-fleet", ["--man"])]
    {
        fs::create_dir_all(target.join(folder))?;
        write_page(&target.join(folder), name, &programs.print(name, &words)?)?;
    }
    for (shell, file) in COMPLETIONS {
        fs::write(target.join(file), programs.print("snicctl", &["completions", shell])?)?;
    }
    fs::write(target.join("snicd.toml"), settings(platform, built)?)?;
    Ok(())
}

/// The daemon's settings as they are shipped: all of them, with their values.
///
/// # Errors
/// The daemon cannot print them.
pub fn settings(platform: &Platform, built: &Path) -> anyhow::Result<Vec<u8>> {
    let few = tempfile::NamedTempFile::new()?;
    fs::write(few.path(), SETTINGS)?;
    let programs = Programs { platform, folder: built };
    programs.print("snicd", &["config", "--config", path(few.path())?])
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
}
