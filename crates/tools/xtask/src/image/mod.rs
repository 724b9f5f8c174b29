//! `cargo xtask image`: container images as archives of the Open Container Initiative, for one platform or several.
//!
//! An image has the programs of the packages, without debug symbols, and the C library of the build machine (or of its cross
//! compiler) that they are linked with; no shell, no package manager. Programs with musl would need no library, but cannot load one either,
//! and Xilinx's XRT is loaded when a card is opened; and they would be other programs than those in the packages.

mod archive;
mod checks;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::command;
use crate::package::{self, generated};
use crate::platform::{Platform, linked};
use crate::workspace::Workspace;
use archive::{Archive, Created};
use tree::{Tree, USER};

/// A program of an image.
struct Program {
    /// As cargo names it.
    name: &'static str,
    /// Where it is in the image.
    path: &'static str,
    /// Output of `--version`, which not all of them know.
    says: &'static str,
}

/// A container image of one of the programs.
struct Image {
    name: &'static str,
    /// Packages with its programs.
    packages: &'static [&'static str],
    /// The first one is what the image runs.
    programs: &'static [Program],
    arguments: &'static [&'static str],
    user: u32,
    content: Content,
}

/// Settings and folders of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The daemon's: settings, policies, the folders of its store and its socket.
    Daemon,
    /// The fleet's: settings, the folder of images and the audit log.
    Fleet,
    Nothing,
}

const IMAGES: [Image; 4] = [
    Image {
        name: "snic",
        packages: &["snicd", "snicctl"],
        programs: &[
            Program {
                name: "snicd",
                path: "usr/bin/snicd",
                says: concat!("snicd ", env!("CARGO_PKG_VERSION")),
            },
            Program {
                name: "snicctl",
                path: "usr/bin/snicctl",
                says: concat!("snicctl ", env!("CARGO_PKG_VERSION")),
            },
        ],
        arguments: &["run", "--config", "/etc/snic/snicd.toml"],
        user: USER,
        content: Content::Daemon,
    },
    Image {
        name: "snic-fleet",
        packages: &["snic-fleetd"],
        programs: &[Program {
            name: "snic-fleet",
            path: "usr/bin/snic-fleet",
            says: concat!("snic-fleet ", env!("CARGO_PKG_VERSION")),
        }],
        arguments: &[],
        user: USER,
        content: Content::Fleet,
    },
    Image {
        name: "snic-device-plugin",
        packages: &["snic-kubernetes"],
        programs: &[Program {
            name: "snic-kubernetes",
            path: "usr/bin/snic-device-plugin",
            says: "usage: snic-device-plugin",
        }],
        arguments: &[],
        // The kubelet's sockets are root's.
        user: 0,
        content: Content::Nothing,
    },
    Image {
        name: "snic-dag-controller",
        packages: &["snic-kubernetes"],
        programs: &[Program {
            name: "snic-dag-controller",
            path: "usr/bin/snic-dag-controller",
            says: "usage: snic-dag-controller",
        }],
        arguments: &[],
        user: USER,
        content: Content::Nothing,
    },
];

/// The image's tag.
const TAG: &str = env!("CARGO_PKG_VERSION");

/// The images with these names; all of them where none is given.
fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Image>> {
    if only.is_empty() {
        return Ok(IMAGES.iter().collect());
    }
    let find = |name: &String| {
        let found = IMAGES.iter().find(|image| image.name == name);
        found.with_context(|| format!("unknown image {name:?}; there are: {}", names().join(", ")))
    };
    only.iter().map(find).collect()
}

fn names() -> [&'static str; 4] {
    IMAGES.each_ref().map(|image| image.name)
}

/// Builds the programs for these platforms, and writes the images with these names, or all, to `target/image`.
///
/// # Errors
/// Something that a build needs is missing, a program does not build, or an image is not what others read.
pub fn run(
    workspace: &Workspace,
    platforms: &[&Platform],
    only: &[String],
) -> anyhow::Result<bool> {
    let images = chosen(only)?;
    platforms.iter().try_for_each(|platform| platform.check())?;
    for platform in platforms {
        if only.is_empty() {
            package::build(workspace, platform)?;
        } else {
            let packages: BTreeSet<_> = images.iter().flat_map(|image| image.packages).collect();
            let words: Vec<_> = packages.into_iter().flat_map(|name| ["-p", name]).collect();
            platform.build(&workspace.root, &words)?;
        }
    }
    let folder = workspace.target.join("image");
    fs::create_dir_all(&folder)?;
    let created = created(&workspace.root)?;
    for image in images {
        let mut archive = Archive::new(created.clone());
        for platform in platforms {
            let tree = image.tree(workspace, platform)?;
            archive.add(platform.architecture, &tree, &image.config())?;
        }
        let file = folder.join(format!("{}_{TAG}.oci.tar", image.name));
        archive.write(&file, TAG)?;
        println!("{} ({} bytes)", file.display(), fs::metadata(&file)?.len());
        for platform in platforms {
            checks::check(&file, TAG, platform, image.programs)?;
        }
    }
    Ok(true)
}

/// The time of the last commit.
fn created(root: &Path) -> anyhow::Result<Created> {
    let mut git = Command::new("git");
    git.current_dir(root).env("TZ", "UTC");
    git.args(["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%ct %cd"]);
    let said = String::from_utf8(generated::printed(&mut git)?)?;
    let (seconds, text) = said.trim().split_once(' ').context("git prints no time")?;
    Ok(Created { seconds: seconds.parse()?, text: text.to_owned() })
}

impl Image {
    fn config(&self) -> Value {
        let entry: Vec<_> =
            self.programs.iter().take(1).map(|program| format!("/{}", program.path)).collect();
        let mut config = json!({
            "User": format!("{0}:{0}", self.user),
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": entry,
            "Cmd": self.arguments,
            "WorkingDir": "/",
            "Labels": { "org.opencontainers.image.title": self.name, "org.opencontainers.image.version": TAG },
        });
        let volume = match self.content {
            Content::Daemon => {
                // As in the unit of the package.
                config["Env"] = json!(["PATH=/usr/bin", "MIMALLOC_PURGE_DELAY=0"]);
                "/var/lib/snic"
            }
            Content::Fleet => "/var/lib/snic-fleet",
            Content::Nothing => return config,
        };
        config["Volumes"] = json!({ volume: {} });
        config["StopSignal"] = json!("SIGTERM");
        config
    }

    fn tree(&self, workspace: &Workspace, platform: &Platform) -> anyhow::Result<Tree> {
        let mut tree = Tree::default();
        let built = platform.programs(&workspace.target);
        let work = tempfile::tempdir()?;
        for Program { name, path, .. } in self.programs {
            let stripped = work.path().join(name);
            let mut strip = platform.strip();
            strip.arg("-o").arg(&stripped).arg(built.join(name));
            ensure!(command::succeeds(&mut strip)?, "{name} cannot be stripped");
            tree.copy(path, 0o755, &stripped)?;
            add_libraries(&mut tree, platform, &stripped)?;
        }
        let licence = format!("usr/share/doc/{}/copyright", self.name);
        tree.copy(&licence, 0o644, &workspace.root.join("LICENSE"))?;
        let user = format!("root:x:0:0:root:/:/nologin\nsnic:x:{USER}:{USER}:snic:/:/nologin\n");
        tree.file("etc/passwd", 0o644, user);
        tree.file("etc/group", 0o644, format!("root:x:0:\nsnic:x:{USER}:\n"));
        tree.folder("tmp", 0o1777, 0);
        match self.content {
            Content::Daemon => {
                tree.copy_folder("etc/snic/policies", &workspace.root.join("policies"))?;
                tree.file("etc/snic/snicd.toml", 0o644, generated::settings(platform, &built)?);
                tree.folder("var/lib/snic", 0o700, USER);
                tree.folder("run/snic", 0o750, USER);
            }
            Content::Fleet => {
                let settings = workspace.root.join("crates/fleet/fleetd/package/snic-fleet.toml");
                tree.copy("etc/snic-fleet/snic-fleet.toml", 0o644, &settings)?;
                tree.folder("var/lib/snic-fleet", 0o750, USER);
            }
            Content::Nothing => {}
        }
        Ok(tree)
    }
}

/// Adds the libraries that a program is linked with, those that these are linked with, the loader of all, and the licences.
fn add_libraries(tree: &mut Tree, platform: &Platform, program: &Path) -> anyhow::Result<()> {
    let own = linked(program)?;
    let loader = own.loader.context("a program without loader, which has no libraries")?;
    let (_, loader_name) = loader.rsplit_once('/').context("the loader's path")?;
    let folder = platform.libraries();
    tree.copy(loader.trim_start_matches('/'), 0o755, &folder.join(loader_name))?;
    let (mut left, mut known) = (own.libraries, BTreeSet::from([loader_name.to_owned()]));
    while let Some(name) = left.pop() {
        if known.insert(name.clone()) {
            let file = folder.join(&name);
            let path = format!("lib/{}/{name}", platform.triple);
            tree.copy(&path, 0o755, &file)?;
            left.extend(linked(&file)?.libraries);
        }
    }
    for (package, file) in platform.library_licences() {
        tree.copy(&format!("usr/share/doc/{package}/copyright"), 0o644, &file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages;

    fn archive(folder: &Path) -> anyhow::Result<Vec<u8>> {
        let created = Created { seconds: 1_700_000_000, text: "2023-11-14T22:13:20Z".to_owned() };
        let mut archive = Archive::new(created);
        for architecture in ["amd64", "arm64"] {
            let mut tree = Tree::default();
            tree.file("etc/kind", 0o644, architecture);
            tree.copy("bin/sh", 0o755, Path::new("/bin/sh"))?;
            tree.folder("var/lib/snic", 0o700, USER);
            archive.add(architecture, &tree, &IMAGES[0].config())?;
        }
        let file = folder.join("image.oci.tar");
        archive.write(&file, "1.2.3")?;
        Ok(fs::read(file)?)
    }

    fn said(words: &[&str], folder: &Path) -> String {
        let mut command = Command::new(words[0]);
        command.current_dir(folder).args(&words[1..]);
        String::from_utf8(generated::printed(&mut command).expect("it succeeds")).expect("text")
    }

    /// Other programs read the image for each platform: skopeo the platforms, umoci the files, tar owners and times.
    #[test]
    fn others_read_the_image_for_each_platform() {
        let missing: Vec<_> =
            ["skopeo", "umoci"].into_iter().filter_map(packages::missing).collect();
        if !missing.is_empty() {
            println!("not run: {}", missing.join("\n"));
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        archive(folder.path()).expect("an archive");
        let said = |words: &[&str]| said(words, folder.path());
        for architecture in ["amd64", "arm64"] {
            let arch = ["skopeo", "--override-arch", architecture, "--override-os", "linux"];
            let image = "oci-archive:image.oci.tar:1.2.3";
            let read = said(&[&arch[..], &["inspect", image]].concat());
            let read: Value = serde_json::from_str(&read).expect("JSON");
            assert_eq!(read["Architecture"], architecture);
            assert_eq!(read["Created"], "2023-11-14T22:13:20Z");
            let copied = format!("oci:{architecture}:1.2.3");
            said(&[&arch[..], &["copy", "-q", image, &copied]].concat());
            let (layout, bundle) =
                (format!("{architecture}:1.2.3"), format!("{architecture}-files"));
            said(&["umoci", "--log=error", "unpack", "--rootless", "--image", &layout, &bundle]);
            let files = folder.path().join(&bundle);
            let kind = fs::read_to_string(files.join("rootfs/etc/kind")).expect("a file");
            assert_eq!(kind, architecture);
            let same = fs::read(files.join("rootfs/bin/sh")).expect("a file");
            assert!(same == fs::read("/bin/sh").expect("a program"));
            let config = fs::read_to_string(files.join("config.json")).expect("a file");
            let config: Value = serde_json::from_str(&config).expect("JSON");
            let words = &config["process"]["args"];
            assert_eq!(words[0], "/usr/bin/snicd", "{words}");
            assert_eq!(config["process"]["user"]["uid"], USER);
            let variables = config["process"]["env"].to_string();
            assert!(variables.contains("\"MIMALLOC_PURGE_DELAY=0\""), "{variables}");
            let layer = read["Layers"][0].as_str().expect("a digest").replace("sha256:", "");
            let layer = format!("{architecture}/blobs/sha256/{layer}");
            let list = said(&["tar", "--utc", "--numeric-owner", "-tvzf", &layer]);
            let line = |path: &str| {
                let found = list.lines().find(|line| line.ends_with(path)).expect("a line");
                found.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            };
            let data = line(" var/lib/snic/");
            assert_eq!(data[..2], ["drwx------", &format!("{USER}/{USER}")], "{list}");
            assert_eq!(data[3..5], ["2023-11-14", "22:13"], "{list}");
            assert_eq!(line(" bin/sh")[..2], ["-rwxr-xr-x", "0/0"], "{list}");
        }
    }

    #[test]
    fn images_are_chosen_by_name() {
        let name = "snic-dag-controller".to_owned();
        let images = chosen(std::slice::from_ref(&name)).expect("there is one");
        assert_eq!(images.iter().map(|image| image.name).collect::<Vec<_>>(), [&name]);
        assert_eq!(images[0].packages, ["snic-kubernetes"]);
        assert_eq!(chosen(&[]).expect("all").len(), IMAGES.len());
        let error = chosen(&["snic-dra".to_owned()]).err().expect("the driver runs on hosts");
        assert!(error.to_string().contains("snic-device-plugin"), "{error}");
    }

    #[test]
    fn the_same_files_make_the_same_archive() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = archive(folder.path()).expect("an archive");
        assert!(archive(folder.path()).expect("an archive") == first);
    }

    #[test]
    fn the_loader_and_the_libraries_of_libraries_are_added() {
        let platform = Platform::of_machine().expect("tests run on such machines");
        let own = std::env::current_exe().expect("the running test");
        let mut tree = Tree::default();
        add_libraries(&mut tree, platform, &own).expect("they are here");
        let paths = tree.paths();
        let ends = |end: &str| paths.iter().any(|path| path.ends_with(end));
        assert!(ends("/libc.so.6") && ends("libc6/copyright"), "{paths:?}");
        assert!(paths.iter().any(|path| path.contains("/ld-linux")), "{paths:?}");
    }
}
