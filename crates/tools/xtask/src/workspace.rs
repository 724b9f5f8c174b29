//! The workspace from `cargo metadata`, reduced to what the checks need, so that tests can write it by hand.

use std::path::{Path, PathBuf};

use anyhow::Context;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Target, TargetKind};

use crate::tier::{self, TestPlan};

/// The workspace as the checks see it.
#[derive(Debug)]
pub struct Workspace {
    /// The folder of the root manifest.
    pub root: PathBuf,
    /// The target folder; follows `CARGO_TARGET_DIR`.
    pub target: PathBuf,
    /// Our own packages, by role.
    pub members: Vec<Member>,
    /// Every package of the lock file, ours included, for all platforms.
    pub packages: Vec<Package>,
}

/// One of our own packages.
#[derive(Debug, Clone)]
pub struct Member {
    /// The name in its manifest, such as `snic-domain`.
    pub name: String,
    /// Its role: the folder below a group in `crates/`, or `integration`.
    pub role: String,
    /// Its manifest, from the root.
    pub manifest: PathBuf,
    /// Its dependencies on other members.
    pub edges: Vec<DependencyEdge>,
    /// Its benchmark targets.
    pub benches: Vec<String>,
    /// Its programs of tests, each as the arguments by which `cargo test` runs it alone; the library's
    /// own first.
    pub test_programs: Vec<Vec<String>>,
    /// When its tests run, and how they use the machine.
    pub plan: TestPlan,
}

/// A dependency of a member on a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DependencyEdge {
    /// The role depended on.
    pub to: String,
    /// Whether it is for tests and benchmarks only.
    pub dev: bool,
}

/// A package as the licence check sees it.
#[derive(Debug, Clone)]
pub struct Package {
    /// Name and version, as an error prints them.
    pub id: String,
    /// The licence expression of its manifest, if any.
    pub licence: Option<String>,
}

impl Workspace {
    /// Runs `cargo metadata`.
    ///
    /// # Errors
    /// Cargo cannot be run, or refuses a manifest; or a manifest says of tests what is not understood.
    pub fn load() -> anyhow::Result<Self> {
        let metadata = MetadataCommand::new().exec().context("run cargo metadata")?;
        Self::from_metadata(&metadata)
    }

    /// The part of `metadata` that the checks use.
    ///
    /// # Errors
    /// A manifest says of tests what is not understood.
    pub fn from_metadata(metadata: &Metadata) -> anyhow::Result<Self> {
        let root = metadata.workspace_root.as_std_path();
        let packages = metadata.workspace_packages();
        let mut members = packages
            .iter()
            .map(|package| member(package, root))
            .collect::<anyhow::Result<Vec<Member>>>()?;
        members.sort_by(|left, right| left.role.cmp(&right.role));
        let packages = metadata
            .packages
            .iter()
            .map(|package| Package {
                id: format!("{} {}", package.name, package.version),
                licence: package.license.clone(),
            })
            .collect();
        Ok(Self {
            root: root.to_owned(),
            target: metadata.target_directory.clone().into(),
            members,
            packages,
        })
    }
}

fn member(package: &cargo_metadata::Package, root: &Path) -> anyhow::Result<Member> {
    let manifest = from_root(package.manifest_path.as_std_path(), root);
    let plan = tier::plan(&package.metadata).with_context(|| manifest.display().to_string())?;
    let mut edges: Vec<DependencyEdge> = package
        .dependencies
        .iter()
        .filter_map(|dependency| {
            let folder = from_root(dependency.path.as_ref()?.as_std_path(), root);
            Some(DependencyEdge {
                to: role(&folder),
                dev: dependency.kind == DependencyKind::Development,
            })
        })
        .collect();
    edges.sort();
    edges.dedup();
    let benches = package
        .targets
        .iter()
        .filter(|target| target.kind.contains(&TargetKind::Bench))
        .map(|target| target.name.clone())
        .collect();
    let test_programs = test_programs(&package.targets);
    let role = role(manifest.parent().unwrap_or(Path::new("")));
    let name = package.name.to_string();
    Ok(Member { name, role, manifest, edges, benches, test_programs, plan })
}

fn test_programs(targets: &[Target]) -> Vec<Vec<String>> {
    let mut programs: Vec<Vec<String>> = targets
        .iter()
        .filter(|target| target.test)
        .filter_map(|target| match target.kind.first()? {
            TargetKind::Lib => Some(vec!["--lib".to_owned()]),
            TargetKind::Test => Some(vec!["--test".to_owned(), target.name.clone()]),
            TargetKind::Bin => Some(vec!["--bin".to_owned(), target.name.clone()]),
            _ => None,
        })
        .collect();
    programs.sort_by_key(|program| program[0] != "--lib");
    programs
}

fn from_root(path: &Path, root: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}

/// Roles are folders, not package names: `crates/host/daemon` is `daemon`, whatever the program is called, and all of
/// `integration/` is one role.
fn role(folder: &Path) -> String {
    let mut parts = folder.iter().map(|part| part.to_string_lossy());
    match (parts.next().as_deref(), parts.next(), parts.next(), parts.next()) {
        (Some("crates"), Some(_group), Some(name), None) => name.into_owned(),
        (Some("integration"), ..) => "integration".to_owned(),
        _ => folder.display().to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A workspace of two crates and a test package, as cargo prints it, cut to the fields that
    /// the reader of the format insists on.
    const GOLDEN: &str = include_str!("../golden/metadata.json");

    /// A member for the tests of the checks; a target that starts with `dev ` is a dev-dependency.
    pub(crate) fn member(role: &str, targets: &[&str]) -> Member {
        let edge = |target: &&str| match target.strip_prefix("dev ") {
            Some(to) => DependencyEdge { to: to.to_owned(), dev: true },
            None => DependencyEdge { to: (*target).to_owned(), dev: false },
        };
        let group = crate::arrows::group_of(role).unwrap_or("group");
        Member {
            name: format!("snic-{role}"),
            role: role.to_owned(),
            manifest: PathBuf::from(format!("crates/{group}/{role}/Cargo.toml")),
            edges: targets.iter().map(edge).collect(),
            benches: Vec::new(),
            test_programs: Vec::new(),
            plan: TestPlan::default(),
        }
    }

    fn golden() -> Workspace {
        Workspace::from_metadata(&MetadataCommand::parse(GOLDEN).unwrap()).unwrap()
    }

    #[test]
    fn roles_are_folders() {
        let roles: Vec<_> = golden().members.into_iter().map(|member| member.role).collect();
        assert_eq!(roles, ["daemon", "domain", "integration"]);
        assert_eq!(role(Path::new("tools/deep/er")), "tools/deep/er");
    }

    #[test]
    fn edges_between_members_know_their_kind_and_ignore_the_registry() {
        let workspace = golden();
        let edges = |role: &str| {
            let member = workspace.members.iter().find(|member| member.role == role).unwrap();
            member.edges.clone()
        };
        let to = |to: &str, dev| DependencyEdge { to: to.to_owned(), dev };
        assert_eq!(edges("domain"), []);
        assert_eq!(edges("daemon"), [to("domain", false)], "a build dependency is an edge");
        assert_eq!(edges("integration"), [to("daemon", true)]);
    }

    #[test]
    fn a_manifest_says_how_its_package_is_tested() {
        let text = GOLDEN.replacen(
            "\"metadata\": null",
            "\"metadata\": { \"snic\": { \"tier\": \"ci\" } }",
            1,
        );
        let read = |text: &str| Workspace::from_metadata(&MetadataCommand::parse(text).unwrap());
        let domain = read(&text).unwrap().members.remove(1);
        assert_eq!((domain.role.as_str(), domain.plan.tier), ("domain", tier::Tier::Ci));
        let error = read(&text.replace("\"ci\"", "\"daily\"")).unwrap_err();
        assert!(format!("{error:#}").starts_with("crates/core/domain/Cargo.toml: "), "{error:#}");
    }

    #[test]
    fn benches_manifests_and_packages_are_kept() {
        let workspace = golden();
        let domain = &workspace.members[1];
        assert_eq!(domain.benches, ["ids"]);
        assert_eq!(domain.test_programs, [["--lib"]], "benchmarks are none");
        assert_eq!(domain.manifest, Path::new("crates/core/domain/Cargo.toml"));
        assert_eq!(workspace.target, Path::new("/src/snic/target"));
        let serde = workspace.packages.iter().find(|package| package.id == "serde 1.0.229");
        assert_eq!(serde.unwrap().licence.as_deref(), Some("MIT OR Apache-2.0"));
    }
}
