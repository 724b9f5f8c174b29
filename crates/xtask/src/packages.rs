//! System packages that some tests need and the product does not. They are installed where that is
//! possible, so that the one test command is enough on a fresh machine; where it is not, the tests
//! that need them say that they did not run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::report::Tally;

/// One package of the distribution.
struct Package {
    name: &'static str,
    sign: Sign,
    why: &'static str,
}

/// What tells that a package is there.
enum Sign {
    /// A program on the path, or where system programs are kept.
    Program(&'static str),
    /// A file, by its whole path.
    File(&'static str),
}

/// One line a package: what, how to tell, why.
const PACKAGES: &[Package] = &[
    Package {
        name: "e2fsprogs",
        sign: Sign::Program("mkfs.ext4"),
        why: "the tests that cut the power under the store, on a file system of their own",
    },
    Package {
        name: "python3-scipy",
        sign: Sign::File("/usr/lib/python3/dist-packages/scipy/optimize/_milp.py"),
        why: "HiGHS, which proves how close to the best the planner is",
    },
    Package {
        name: "prometheus",
        sign: Sign::Program("promtool"),
        why: "the check of the metrics and of the rules that are made of them",
    },
    Package {
        name: "libvirt-daemon-system",
        sign: Sign::Program("libvirtd"),
        why: "the test of the hook in the hands of libvirt",
    },
    Package {
        name: "libvirt-daemon-driver-qemu",
        sign: Sign::File("/var/lib/dpkg/info/libvirt-daemon-driver-qemu.list"),
        why: "the test of the hook in the hands of libvirt",
    },
    Package {
        name: "libvirt-clients",
        sign: Sign::Program("virsh"),
        why: "the test of the hook in the hands of libvirt",
    },
    Package {
        name: "qemu-system-x86",
        sign: Sign::Program("qemu-system-x86_64"),
        why: "the test of the hook in the hands of libvirt",
    },
    Package {
        name: "chromium",
        sign: Sign::Program("chromium"),
        why: "the test that looks at the page for operators",
    },
    Package {
        name: "libnss3-tools",
        sign: Sign::Program("certutil"),
        why: "the client certificates of the browser that looks at the page for operators",
    },
    Package {
        name: "openssl",
        sign: Sign::Program("openssl"),
        why: "the same, in the form in which a browser takes them",
    },
    Package {
        name: "fonts-liberation", // pictures of a page have letters of one kind
        sign: Sign::File("/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf"),
        why: "the test that looks at the page for operators",
    },
    Package {
        name: "libxrt-dev", // the emulation's shims are found by their links
        sign: Sign::File("/usr/lib/x86_64-linux-gnu/libxrt_hwemu.so.2"),
        why: "the tests through Xilinx's library, which need no card",
    },
];

/// Folders of system programs, which the path of an ordinary user often leaves out.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Looks for the packages and installs what is missing when run as root.
///
/// Unattended, a package that stays missing is a failure; at somebody's desk it is said and the run
/// goes on, counted neither as passed nor as failed.
///
/// # Errors
/// The installer cannot be started.
pub fn provide() -> anyhow::Result<Tally> {
    let folders = search_path();
    let missing = || PACKAGES.iter().filter(|package| !is_there(&package.sign, &folders));
    let wanted: Vec<_> = missing().map(|package| package.name).collect();
    let may_install =
        rustix::process::geteuid().is_root() && is_there(&Sign::Program("apt-get"), &folders);
    if !wanted.is_empty() && may_install {
        install(&wanted)?;
    }
    let still: Vec<_> = missing().collect();
    still.iter().for_each(|package| println!("{}", advice(package)));
    Ok(verdict(still.len(), command::is_ci()))
}

fn verdict(missing: usize, unattended: bool) -> Tally {
    match (missing, unattended) {
        (0, _) => Tally::one(true),
        (_, true) => Tally::one(false),
        (_, false) => Tally::default(),
    }
}

fn install(names: &[&str]) -> anyhow::Result<()> {
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        command::succeeds(&mut command)
    };
    // A stale index may still do; whether the packages arrived is looked at afterwards.
    apt(&["update", "--quiet"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], names].concat())?;
    Ok(())
}

fn advice(package: &Package) -> String {
    let sign = match package.sign {
        Sign::Program(name) | Sign::File(name) => name,
    };
    let Package { name, why, .. } = package;
    format!("{sign} is missing, for {why}: sudo apt-get install {name}")
}

fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from)).collect()
}

fn is_there(sign: &Sign, folders: &[PathBuf]) -> bool {
    match sign {
        Sign::Program(name) => folders.iter().any(|folder| folder.join(name).is_file()),
        Sign::File(path) => Path::new(path).exists(),
    }
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
            "mkfs.ext4 is missing, for the tests that cut the power under the store, on a file \
             system of their own: sudo apt-get install e2fsprogs"
        );
    }
}
