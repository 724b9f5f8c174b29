//! `cargo xtask cluster`: a Kubernetes cluster on this machine. Its programs are built once, into the user's cache; then an example
//! of `snic-kubernetes` starts them as its tests do.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::Args;

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
}

/// Programs that are built together.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    /// Folder of the module.
    folder: &'static str,
    /// Variable that names the folder of the programs.
    variable: &'static str,
    /// Folder of the programs in the cache, where the variable is not set.
    cached: &'static str,
    /// Packages of Go; each becomes a program with the last part of its name, apart from a version.
    packages: &'static [&'static str],
    /// Features of the programs, as tags of Go's.
    tags: &'static str,
}

const ALL: [Module; 3] = [
    Module {
        folder: "etcd",
        variable: "SNIC_ETCD_FOLDER",
        cached: "etcd",
        packages: &[
            "snic.dev/etcd",
            // Tests of stores and fleets take the server only with the other programs of its version.
            "go.etcd.io/etcd/etcdctl/v3",
            "go.etcd.io/etcd/etcdutl/v3",
        ],
        tags: "",
    },
    Module {
        folder: "containerd",
        variable: "SNIC_KUBERNETES_FOLDER",
        cached: "kubernetes",
        packages: &[
            "github.com/containerd/containerd/cmd/containerd",
            "github.com/containerd/containerd/cmd/containerd-shim-runc-v2",
            "github.com/containerd/containerd/cmd/ctr",
        ],
        // They need libraries, and no test has such a file system.
        tags: "no_btrfs,no_devmapper,no_zfs,no_aufs",
    },
    Module {
        folder: "components",
        variable: "SNIC_KUBERNETES_FOLDER",
        cached: "kubernetes",
        packages: &[
            "k8s.io/kubernetes/cmd/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            "k8s.io/kubernetes/cmd/kubectl",
            "k8s.io/kubernetes/cmd/kubelet",
        ],
        tags: "",
    },
];

/// Name of the program that Go makes of a package: a version at the end is no part of it.
fn program_name(package: &str) -> &str {
    let mut parts = package.rsplit('/');
    let last = parts.next().unwrap_or(package);
    let digits = last.strip_prefix('v').unwrap_or_default();
    let is_version = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_version { parts.next().unwrap_or(last) } else { last }
}

impl Module {
    /// The folder of the programs.
    fn programs(&self) -> anyhow::Result<PathBuf> {
        if let Some(folder) = std::env::var_os(self.variable) {
            return Ok(folder.into());
        }
        let home = std::env::var_os("HOME").context("HOME is not set")?;
        Ok(Path::new(&home).join(".cache/snic").join(self.cached))
    }

    /// Packages whose programs are missing in a folder.
    fn missing(&self, programs: &Path) -> Vec<&'static str> {
        let absent = |package: &&&'static str| !programs.join(program_name(package)).exists();
        self.packages.iter().filter(absent).copied().collect()
    }

    /// Builds what is missing.
    fn build(&self, root: &Path) -> anyhow::Result<bool> {
        let programs = self.programs()?;
        let missing = self.missing(&programs);
        if missing.is_empty() {
            return Ok(true);
        }
        println!("building {} into {}", missing.join(", "), programs.display());
        let mut go = Command::new("go");
        go.current_dir(root.join(MODULES).join(self.folder)).env("CGO_ENABLED", "0");
        go.args(["build", "-trimpath", "-ldflags=-s -w", "-tags", self.tags, "-o"]);
        let built = command::succeeds(go.arg(programs.join("")).args(missing));
        built.context("Go 1.24 or later builds the programs of a cluster; install it")
    }
}

/// Builds the programs of a cluster and, unless that is all, runs it until Ctrl-C. Returns whether it ended well.
///
/// # Errors
/// A program that it needs is missing, or cannot be started.
pub fn run(workspace: &Workspace, steps: &ClusterSteps) -> anyhow::Result<bool> {
    for module in &ALL {
        if !module.build(&workspace.root)? {
            return Ok(false);
        }
    }
    if steps.build {
        return Ok(true);
    }
    let programs = ["build", "-p", "snicd", "-p", "snicctl", "-p", "snic-kubernetes"];
    if !command::succeeds(&mut cargo(&workspace.root, &programs))? {
        return Ok(false);
    }
    let example = ["run", "-q", "-p", "snic-kubernetes", "--example", "cluster"];
    command::succeeds(&mut cargo(&workspace.root, &example))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_cache_is_not_built_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let containerd = &ALL[1];
        assert_eq!(containerd.missing(folder.path()), containerd.packages);
        for name in ["containerd", "ctr"] {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        let shim = "github.com/containerd/containerd/cmd/containerd-shim-runc-v2";
        assert_eq!(containerd.missing(folder.path()), [shim]);
    }

    #[test]
    fn a_version_is_no_part_of_a_programs_name() {
        let names: Vec<&str> =
            ALL.iter().flat_map(|module| module.packages).map(|p| program_name(p)).collect();
        let etcd = ["etcd", "etcdctl", "etcdutl"];
        assert_eq!(names[..3], etcd);
        assert!(names.contains(&"containerd-shim-runc-v2"), "{names:?}");
        let folder = tempfile::tempdir().expect("a folder");
        for name in etcd {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        assert_eq!(ALL[0].missing(folder.path()), [""; 0]);
    }

    #[test]
    fn each_module_is_in_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(MODULES);
        for module in &ALL {
            assert!(root.join(module.folder).join("go.mod").exists(), "{}", module.folder);
            assert!(root.join(module.folder).join("go.sum").exists(), "{}", module.folder);
        }
    }
}
