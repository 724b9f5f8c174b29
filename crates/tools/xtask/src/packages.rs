//! System packages that some tests need and the product does not. They are installed if possible, so that one
//! command is enough on a fresh machine. Otherwise the tests that need them report that they did not run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::command;
use crate::report::Tally;
use crate::tier::Tier;

/// A package of the distribution.
struct Package {
    name: &'static str,
    sign: Sign,
    why: &'static str,
    /// The first tier whose build or tests need it.
    tier: Tier,
}

/// Sign that a package is installed.
enum Sign {
    /// A program on the search path or in a system folder.
    Program(&'static str),
    /// A file with this path.
    File(&'static str),
    /// A file whose path begins so.
    Beginning(&'static str),
}

/// Packages, how to detect them, and what they are for.
#[rustfmt::skip] // one line per package
const PACKAGES: &[Package] = &[
    program("e2fsprogs", "mkfs.ext4", "power-cut tests of the store, on a file system of their own"),
    program("strace", "strace", "tests of a disk that fails under the daemon"),
    file("python3-scipy", "/usr/lib/python3/dist-packages/scipy/optimize/_milp.py", "the HiGHS oracle of the planner tests"),
    program("iproute2", "ip", "tests of the software card, with network namespaces"),
    program("iputils-ping", "ping", "tests of the software card"),
    program("iperf3", "iperf3", "tests of the software card"),
    program("keepalived", "keepalived", "the test of failover between functions of the software card"),
    program("tcpdump", "tcpdump", "the test of captures of the software card"),
    program("wireshark-common", "editcap", "tests of capture files, which must read what Wireshark reads"),
    program("memcached", "memcached", "tests of the key-value cache NT, whose answers must be memcached's"),
    program("redis-server", "redis-server", "the test with YCSB, beside memcached"),
    program("default-jdk-headless", "javac", "the test with YCSB"),
    program("maven", "mvn", "the test with YCSB, whose core and binding it builds"),
    file("python3-cryptography", "/usr/lib/python3/dist-packages/cryptography/__init__.py", "tests of the ESP NT, against OpenSSL's AES-GCM"),
    program("prometheus", "promtool", "tests of the metrics and alert rules"),
    program("libvirt-daemon-system", "libvirtd", "the test of snic-hook with libvirt"),
    file("libvirt-daemon-driver-qemu", "/var/lib/dpkg/info/libvirt-daemon-driver-qemu.list", "the test of snic-hook with libvirt"),
    program("libvirt-clients", "virsh", "the test of snic-hook with libvirt"),
    program("qemu-system-x86", "qemu-system-x86_64", "the test of snic-hook with libvirt"),
    file("busybox-static", "/var/lib/dpkg/info/busybox-static.list", "the guest of the test of snic-hook with libvirt"),
    Package { name: "linux-image-cloud-amd64", sign: Sign::Beginning("/boot/vmlinuz-"), why: "the guest of the test of snic-hook with libvirt", tier: Tier::Ci },
    program("runc", "runc", "the test of snic-dra in a Kubernetes cluster"),
    file("containernetworking-plugins", "/usr/lib/cni/ptp", "the test of snic-dra in a Kubernetes cluster"),
    program("chromium", "chromium", "the test of the web page"),
    program("libnss3-tools", "certutil", "client certificates for the test of the web page"),
    program("openssl", "openssl", "client certificates for the test of the web page"),
    file("fonts-liberation", "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf", "the test of the web page"),
    program("tcl", "tclsh", "tests of the build flow, with stubs for Vivado's commands"),
    program("make", "make", "tests of the build flow's Makefile"),
    program("verilator", "verilator", "the lint of the NT interface, and simulations of the kernel for XRT and of the shell"),
    program("g++", "g++", "what Verilator makes of a simulation"),
    program("protobuf-compiler", "protoc", "the build of etcd's client, which snic-store-etcd uses").for_each_change(),
    file("libprotobuf-dev", "/usr/include/google/protobuf/descriptor.proto", "the build of etcd's client, which imports it").for_each_change(),
    program("etcd-server", "etcd", "tests of the fleet and of its store").for_each_change(),
    file("libfaketime", "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "clocks that go wrong, in tests of the fleet"),
    program("etcd-client", "etcdctl", "tests of the fleet's store"),
    program("clang", "clang", "tests of tenants' NTs in C, compiled to WebAssembly, and the fast path's program for the kernel"),
    program("lld", "wasm-ld", "tests of tenants' NTs in C, compiled to WebAssembly"),
    program("skopeo", "skopeo", "the test of container images"),
    program("umoci", "umoci", "the test of container images"),
    file("libxrt-dev", "/usr/lib/x86_64-linux-gnu/libxrt_hwemu.so.2", "tests with Xilinx's library, which need no card"),
];

const fn program(name: &'static str, program: &'static str, why: &'static str) -> Package {
    Package { name, sign: Sign::Program(program), why, tier: Tier::Ci }
}

const fn file(name: &'static str, path: &'static str, why: &'static str) -> Package {
    Package { name, sign: Sign::File(path), why, tier: Tier::Ci }
}

impl Package {
    const fn for_each_change(self) -> Self {
        Self { tier: Tier::Test, ..self }
    }
}

/// Folders of system programs, which are often missing from a user's search path.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Checks for what a tier needs beyond those before it and, as root, installs what is missing.
///
/// In CI, a missing package is a failure. On a developer's machine it is only reported, and counted neither as
/// passed nor as failed.
///
/// # Errors
/// The installer cannot be started.
pub fn provide(tier: Tier, target: &Path) -> anyhow::Result<Tally> {
    let folders = search_path();
    let is_missing =
        |package: &&Package| package.tier == tier && !is_there(&package.sign, &folders);
    let wanted: Vec<_> = PACKAGES.iter().filter(is_missing).map(|package| package.name).collect();
    let may_install =
        rustix::process::geteuid().is_root() && is_there(&Sign::Program("apt-get"), &folders);
    if !wanted.is_empty() && may_install {
        install(&wanted)?;
    }
    let still: Vec<_> = PACKAGES.iter().filter(is_missing).collect();
    still.iter().for_each(|package| println!("{}", advice(package)));
    let others = if tier == Tier::Ci {
        let has_target = provide_target();
        let has_s3 = provide_s3(target);
        usize::from(!has_target) + usize::from(!has_s3)
    } else {
        0
    };
    Ok(verdict(still.len() + others, command::is_ci()))
}

/// The Python package with an S3 server that checks signatures.
const S3: &str = "moto[server]==5.2.1";

/// Installs it in an environment of its own, unless this machine's Python has it; says whether it is there.
fn provide_s3(target: &Path) -> bool {
    let folder = target.join("tools/moto");
    let own = folder.join("bin/python");
    let has_it = |python: &Path| {
        let mut command = Command::new(python);
        command.args(["-c", "import boto3, moto.server"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if has_it(Path::new("python3")) || has_it(&own) {
        return true;
    }
    let _ = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
    let mut install = Command::new(&own);
    // Not compiled ahead: the tests use a small part of it.
    install.args(["-m", "pip", "install", "--quiet", "--no-compile"]);
    install.args(["--disable-pip-version-check", S3]);
    let _ = install.status();
    let installed = has_it(&own);
    if !installed {
        println!("moto is missing, needed for tests of images in S3: pip install '{S3}'");
    }
    installed
}

/// Rust's target of tenants' NTs.
const TARGET: &str = "wasm32-unknown-unknown";

/// Adds the target to this toolchain; says whether it is there.
fn provide_target() -> bool {
    if has_target(TARGET) {
        return true;
    }
    let _ = Command::new("rustup").args(["target", "add", TARGET]).status();
    let added = has_target(TARGET);
    if !added {
        println!(
            "{TARGET} is missing, needed for tests of tenants' NTs: rustup target add {TARGET}"
        );
    }
    added
}

/// Whether this toolchain has the standard library for one of Rust's targets.
pub fn has_target(target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    let output = rustc.output().map(|output| output.stdout).unwrap_or_default();
    Path::new(String::from_utf8_lossy(&output).trim()).is_dir()
}

/// Advice on getting the program of a package that is missing; `None` where it is there.
pub fn missing(program: &str) -> Option<String> {
    let folders = search_path();
    let is_it = |package: &&Package| matches!(package.sign, Sign::Program(name) if name == program);
    PACKAGES.iter().find(is_it).filter(|package| !is_there(&package.sign, &folders)).map(advice)
}

fn verdict(missing: usize, unattended: bool) -> Tally {
    match (missing, unattended) {
        (0, _) => Tally::one(true),
        (_, true) => Tally::one(false),
        (_, false) => Tally::default(),
    }
}

/// Installs packages. The installer's output is printed where it fails: it may run beside something else that prints.
fn install(names: &[&str]) -> anyhow::Result<()> {
    let apt = |arguments: &[&str]| -> anyhow::Result<()> {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments).stdin(Stdio::null());
        let output = command.output().context("apt-get cannot be started")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            println!("{text}{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    };
    // A stale index may be good enough; the packages are checked again afterwards.
    apt(&["update", "--quiet"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], names].concat())
}

fn advice(package: &Package) -> String {
    let sign = match package.sign {
        Sign::Program(name) | Sign::File(name) | Sign::Beginning(name) => name,
    };
    let Package { name, why, .. } = package;
    format!("{sign} is missing, needed for {why}: sudo apt-get install {name}")
}

/// Where programs are looked for.
pub fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from)).collect()
}

fn is_there(sign: &Sign, folders: &[PathBuf]) -> bool {
    match sign {
        Sign::Program(name) => folders.iter().any(|folder| folder.join(name).is_file()),
        Sign::File(path) => Path::new(path).exists(),
        Sign::Beginning(path) => begins_one(Path::new(path)),
    }
}

/// Whether a file's path begins with `path`.
fn begins_one(path: &Path) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = name.as_encoded_bytes();
    files.into_iter().any(|file| file.file_name().as_encoded_bytes().starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_any_of_the_folders() {
        let empty = tempfile::tempdir().unwrap();
        let full = tempfile::tempdir().unwrap();
        std::fs::write(full.path().join("mkfs.ext4"), "").unwrap();
        std::fs::create_dir(empty.path().join("mkfs.ext4")).unwrap();
        let sign = Sign::Program("mkfs.ext4");
        let folders = |list: &[&tempfile::TempDir]| {
            list.iter().map(|folder| folder.path().to_owned()).collect::<Vec<_>>()
        };
        assert!(is_there(&sign, &folders(&[&empty, &full])));
        assert!(!is_there(&sign, &folders(&[&empty])), "a folder is no program");
        assert!(!is_there(&sign, &[]));
    }

    #[test]
    fn a_file_is_found_by_its_path() {
        assert!(is_there(&Sign::File("/"), &[]));
        assert!(!is_there(&Sign::File("/no/such/file"), &[]));
        assert!(is_there(&Sign::Beginning("/et"), &[]));
        assert!(!is_there(&Sign::Beginning("/etc/no-such-"), &[]));
        assert!(!is_there(&Sign::Beginning("/no/such/file"), &[]));
    }

    #[test]
    fn missing_packages_fail_only_unattended() {
        assert_eq!(verdict(0, true), Tally::one(true));
        assert_eq!(verdict(0, false), Tally::one(true));
        assert_eq!(verdict(2, true), Tally::one(false));
        assert_eq!(verdict(2, false), Tally::default());
    }

    #[test]
    fn advice_says_what_why_and_how() {
        assert_eq!(
            advice(&PACKAGES[0]),
            "mkfs.ext4 is missing, needed for power-cut tests of the store, on a file system of \
             their own: sudo apt-get install e2fsprogs"
        );
    }
}
