//! `cargo xtask cluster`: a Kubernetes cluster on this machine. Its programs are built once, into the user's cache, each version of
//! Kubernetes into a folder of its own; then an example of `snic-kubernetes` starts them as its tests do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::command::{self, cargo};
use crate::workspace::Workspace;

/// Folder of the Go modules.
const MODULES: &str = "integration/kubernetes/cluster";

/// Steps of the command.
#[derive(Debug, Clone, Args)]
pub struct ClusterSteps {
    /// Only build the programs that are missing in the cache: many minutes of processor time, once
    #[arg(long)]
    build: bool,
    /// Version of Kubernetes; the cache keeps all that were built
    #[arg(long, value_enum, default_value_t)]
    kubernetes: Kubernetes,
}

/// Variable that names the folder of Kubernetes' programs.
const KUBERNETES_FOLDER: &str = "SNIC_KUBERNETES_FOLDER";

/// Versions of Kubernetes that can be built, without their patches, which the modules' files have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Kubernetes {
    /// Without `resource.k8s.io/v1`: for the device plugin.
    #[value(name = "1.33")]
    V1_33,
    /// The version of the tests.
    #[default]
    #[value(name = "1.34")]
    V1_34,
    #[value(name = "1.35")]
    V1_35,
}

impl Kubernetes {
    /// The file of the module of its components, and the folder of its programs in the cache.
    fn places(self) -> (&'static str, &'static str) {
        match self {
            Self::V1_33 => ("1.33.mod", "kubernetes-1.33"),
            Self::V1_34 => (GO_MOD, "kubernetes"),
            Self::V1_35 => ("1.35.mod", "kubernetes-1.35"),
        }
    }
}

/// File of a module of Go, unless it has one for each version.
const GO_MOD: &str = "go.mod";

/// Programs that are built together.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    /// Folder of the module.
    folder: &'static str,
    /// File of the module in it, which says the versions.
    file: &'static str,
    /// Variable that names the folder of the programs.
    variable: Option<&'static str>,
    /// Folder of the programs in the cache, where the variable is not set.
    cached: &'static str,
    /// Packages of Go; each becomes a program with the last part of its name, apart from a version.
    packages: &'static [&'static str],
    /// Features of the programs, as tags of Go's.
    tags: &'static str,
    /// Module of Go whose version the programs report, where the linker has to tell them.
    source: &'static str,
    /// Variables of Go that the linker sets to parts of that version.
    told: &'static [(&'static str, VersionPart)],
}

/// A part of a version such as `v1.34.2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VersionPart {
    Whole,
    Major,
    Minor,
}

impl VersionPart {
    fn of(self, version: &str) -> &str {
        let mut numbers = version.trim_start_matches('v').split('.');
        match self {
            Self::Whole => version,
            Self::Major => numbers.next().unwrap_or_default(),
            Self::Minor => numbers.nth(1).unwrap_or_default(),
        }
    }
}

const ETCD: Module = Module {
    folder: "etcd",
    file: GO_MOD,
    variable: Some("SNIC_ETCD_FOLDER"),
    cached: "etcd",
    packages: &[
        "snic.dev/etcd",
        // Tests of stores and fleets take the server only with the other programs of its version.
        "go.etcd.io/etcd/etcdctl/v3",
        "go.etcd.io/etcd/etcdutl/v3",
    ],
    tags: "",
    // Its sources have their version.
    source: "go.etcd.io/etcd/server/v3",
    told: &[],
};

const CONTAINERD: Module = Module {
    folder: "containerd",
    file: GO_MOD,
    variable: Some(KUBERNETES_FOLDER),
    cached: "kubernetes",
    packages: &[
        "github.com/containerd/containerd/cmd/containerd",
        "github.com/containerd/containerd/cmd/containerd-shim-runc-v2",
        "github.com/containerd/containerd/cmd/ctr",
    ],
    // They need libraries, and no test has such a file system.
    tags: "no_btrfs,no_devmapper,no_zfs,no_aufs",
    source: "github.com/containerd/containerd",
    told: &[("github.com/containerd/containerd/version.Version", VersionPart::Whole)],
};

const COMPONENTS: Module = Module {
    folder: "components",
    file: GO_MOD,
    variable: Some(KUBERNETES_FOLDER),
    cached: "kubernetes",
    packages: &[
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes/cmd/kubectl",
        "k8s.io/kubernetes/cmd/kubelet",
    ],
    tags: "",
    source: "k8s.io/kubernetes",
    // As in hack/lib/version.sh of Kubernetes.
    told: &[
        ("k8s.io/client-go/pkg/version.gitVersion", VersionPart::Whole),
        ("k8s.io/client-go/pkg/version.gitMajor", VersionPart::Major),
        ("k8s.io/client-go/pkg/version.gitMinor", VersionPart::Minor),
        ("k8s.io/component-base/version.gitVersion", VersionPart::Whole),
        ("k8s.io/component-base/version.gitMajor", VersionPart::Major),
        ("k8s.io/component-base/version.gitMinor", VersionPart::Minor),
    ],
};

/// Modules of a cluster's programs.
fn modules(kubernetes: Kubernetes) -> [Module; 3] {
    let (file, cached) = kubernetes.places();
    // The variable is about the version of the tests; who names another one means its folder of the cache.
    let variable = (kubernetes == Kubernetes::default()).then_some(KUBERNETES_FOLDER);
    [
        ETCD,
        Module { variable, cached, ..CONTAINERD },
        Module { file, variable, cached, ..COMPONENTS },
    ]
}

/// Name of the program that Go makes of a package: a version at the end is no part of it.
fn program_name(package: &str) -> &str {
    let mut parts = package.rsplit('/');
    let last = parts.next().unwrap_or(package);
    let digits = last.strip_prefix('v').unwrap_or_default();
    let is_version = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_version { parts.next().unwrap_or(last) } else { last }
}

impl Module {
    /// The folder that the user names for the programs.
    fn named(&self) -> Option<PathBuf> {
        std::env::var_os(self.variable?).map(PathBuf::from)
    }

    /// The folder of the programs.
    fn programs(&self) -> anyhow::Result<PathBuf> {
        if let Some(folder) = self.named() {
            return Ok(folder);
        }
        let home = std::env::var_os("HOME").context("HOME is not set")?;
        Ok(Path::new(&home).join(".cache/snic").join(self.cached))
    }

    /// The version of its source, as the module's file requires it.
    fn version(&self, root: &Path) -> anyhow::Result<String> {
        let file = root.join(MODULES).join(self.folder).join(self.file);
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let required = text.lines().find_map(|line| {
            let line = line.trim().trim_start_matches("require ");
            line.strip_prefix(self.source)?.strip_prefix(' ')?.split_whitespace().next()
        });
        let version =
            required.with_context(|| format!("{} requires {}", file.display(), self.source));
        Ok(version?.to_owned())
    }

    /// Words for the linker: no symbols, and the version.
    fn link_flags(&self, version: &str) -> String {
        let told = self.told.iter().map(|(name, part)| format!(" -X {name}={}", part.of(version)));
        format!("-s -w{}", told.collect::<String>())
    }

    /// The note in a folder of programs of how those of this module were built.
    fn note(&self, programs: &Path) -> PathBuf {
        programs.join(format!(".{}", self.folder))
    }

    /// Packages whose programs are missing in a folder; all of them if they were built otherwise.
    fn to_build(&self, programs: &Path, built_as: &str) -> Vec<&'static str> {
        // A folder of the user's own is not ours to replace programs in.
        let is_ours = self.named().is_none();
        let noted = fs::read_to_string(self.note(programs)).unwrap_or_default();
        if is_ours && noted != built_as { self.packages.to_vec() } else { self.missing(programs) }
    }

    /// Packages whose programs are missing in a folder.
    fn missing(&self, programs: &Path) -> Vec<&'static str> {
        let absent = |package: &&&'static str| !programs.join(program_name(package)).exists();
        self.packages.iter().filter(absent).copied().collect()
    }

    /// Builds what is missing, or was built of another version.
    fn build(&self, root: &Path) -> anyhow::Result<bool> {
        let programs = self.programs()?;
        let version = self.version(root)?;
        let flags = self.link_flags(&version);
        let built_as = format!("{} {version}\n{} {flags}\n", self.source, self.tags);
        let missing = self.to_build(&programs, &built_as);
        if missing.is_empty() {
            return Ok(true);
        }
        println!("building {} {version} into {}", missing.join(", "), programs.display());
        let mut go = Command::new("go");
        go.current_dir(root.join(MODULES).join(self.folder)).env("CGO_ENABLED", "0");
        go.args(["build", "-trimpath", &format!("-ldflags={flags}"), "-tags", self.tags]);
        go.args([&format!("-modfile={}", self.file), "-o"]);
        let built = command::succeeds(go.arg(programs.join("")).args(missing))
            .context("Go 1.25 or later builds the programs of a cluster; install it")?;
        if built {
            fs::write(self.note(&programs), built_as)?;
        }
        Ok(built)
    }
}

/// Builds the programs of the tests' cluster that are missing in the cache. Returns whether all are there.
///
/// # Errors
/// Go is missing, or the cache cannot be written.
pub fn build(workspace: &Workspace) -> anyhow::Result<bool> {
    build_version(workspace, Kubernetes::default())
}

/// The same with a version of Kubernetes.
fn build_version(workspace: &Workspace, kubernetes: Kubernetes) -> anyhow::Result<bool> {
    for module in &modules(kubernetes) {
        if !module.build(&workspace.root)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Builds the programs of a cluster and, unless that is all, runs it until Ctrl-C. Returns whether it ended well.
///
/// # Errors
/// A program that it needs is missing, or cannot be started.
pub fn run(workspace: &Workspace, steps: &ClusterSteps) -> anyhow::Result<bool> {
    let is_built = build_version(workspace, steps.kubernetes)?;
    let [_, _, components] = modules(steps.kubernetes);
    let folder = components.programs()?;
    if steps.build || !is_built {
        if is_built && components.variable.is_none() {
            println!("tests start them with {KUBERNETES_FOLDER}={}", folder.display());
        }
        return Ok(is_built);
    }
    let programs = ["build", "-p", "snicd", "-p", "snicctl", "-p", "snic-kubernetes"];
    if !command::succeeds(&mut cargo(&workspace.root, &programs))? {
        return Ok(false);
    }
    let example = ["run", "-q", "-p", "snic-kubernetes", "--example", "cluster"];
    command::succeeds(cargo(&workspace.root, &example).env(KUBERNETES_FOLDER, folder))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_in_the_cache_is_not_built_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let containerd = &CONTAINERD;
        assert_eq!(containerd.missing(folder.path()), containerd.packages);
        for name in ["containerd", "ctr"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let shim = "github.com/containerd/containerd/cmd/containerd-shim-runc-v2";
        assert_eq!(containerd.missing(folder.path()), [shim]);
    }

    #[test]
    fn a_version_is_no_part_of_a_programs_name() {
        let names: Vec<&str> = [ETCD, CONTAINERD]
            .iter()
            .flat_map(|module| module.packages)
            .map(|p| program_name(p))
            .collect();
        let etcd = ["etcd", "etcdctl", "etcdutl"];
        assert_eq!(names[..3], etcd);
        assert!(names.contains(&"containerd-shim-runc-v2"), "{names:?}");
        let folder = tempfile::tempdir().expect("a folder");
        for name in etcd {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        assert_eq!(ETCD.missing(folder.path()), [""; 0]);
    }

    #[test]
    fn what_was_built_otherwise_is_built_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let containerd = &CONTAINERD;
        for package in containerd.packages {
            fs::write(folder.path().join(program_name(package)), "").expect("a file");
        }
        assert_eq!(containerd.to_build(folder.path(), "v1.7.32"), containerd.packages, "no note");
        fs::write(containerd.note(folder.path()), "v1.7.32").expect("a file");
        assert_eq!(containerd.to_build(folder.path(), "v1.7.32"), [""; 0]);
        assert_eq!(containerd.to_build(folder.path(), "v1.7.33"), containerd.packages);
    }

    #[test]
    fn programs_are_told_the_version_that_their_module_requires() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        for kubernetes in Kubernetes::value_variants() {
            let [etcd, containerd, components] =
                modules(*kubernetes).map(|module| module.version(&root).expect("required"));
            for version in [&etcd, &containerd, &components] {
                assert!(version.starts_with('v') && version.split('.').count() == 3, "{version}");
            }
            let named = kubernetes.to_possible_value().expect("each can be named");
            let minor = format!("v{}.", named.get_name());
            assert!(components.starts_with(&minor), "{components} of {kubernetes:?}");
        }
        let flags = COMPONENTS.link_flags("v1.34.2");
        for told in ["gitVersion=v1.34.2", "gitMajor=1 ", "gitMinor=34"] {
            let component = format!("-X k8s.io/component-base/version.{told}");
            assert!(flags.contains(&component), "{flags}");
        }
        assert_eq!(ETCD.link_flags("v3.6.5"), "-s -w");
    }

    #[test]
    fn each_module_is_in_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(MODULES);
        for kubernetes in Kubernetes::value_variants() {
            for module in modules(*kubernetes) {
                let file = root.join(module.folder).join(module.file);
                for file in [file.with_extension("sum"), file] {
                    assert!(file.exists(), "{}", file.display());
                }
            }
        }
    }

    #[test]
    fn the_cache_keeps_each_version_of_kubernetes() {
        let folders: BTreeSet<_> = Kubernetes::value_variants()
            .iter()
            .map(|version| modules(*version)[2].cached)
            .collect();
        assert_eq!(folders.len(), Kubernetes::value_variants().len(), "{folders:?}");
        for kubernetes in Kubernetes::value_variants() {
            let [_, containerd, components] = modules(*kubernetes);
            assert_eq!(containerd.cached, components.cached, "a cluster has one folder");
            assert_eq!(containerd.variable, components.variable);
        }
    }
}
