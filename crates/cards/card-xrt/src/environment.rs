//! Checks the environment that XRT relies on before XRT is called: in two cases it would abort
//! the process (`XILINX_XRT` unset, and a missing shim).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::{REGISTERS_BYTES, Version};

/// Where XRT is: a folder with `lib` in it.
pub const ROOT: &str = "XILINX_XRT";
/// Variable that names the emulation in place of a card; unset for a real one.
pub const EMULATION: &str = "XCL_EMULATION_MODE";
/// Where the vendor's installer puts it.
const VENDOR_ROOT: &str = "/opt/xilinx/xrt";
/// Where Debian puts the libraries of this program's architecture.
#[cfg(not(target_arch = "aarch64"))]
const DEBIAN_LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
/// Where Debian puts the libraries of this program's architecture.
#[cfg(target_arch = "aarch64")]
const DEBIAN_LIBRARIES: &str = "/usr/lib/aarch64-linux-gnu";

/// Why XRT is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// XRT would abort.
    #[error(
        "XRT is not installed: it is neither in {VENDOR_ROOT} nor in {DEBIAN_LIBRARIES}; install \
         the package libxrt1, or set XILINX_XRT in [cards.xrt.environment] to its folder"
    )]
    NoRoot,
    /// Another word than XRT knows.
    #[error("XCL_EMULATION_MODE is {0:?}; XRT knows noop, sw_emu and hw_emu, or unset for a card")]
    Emulation(String),
    /// XRT would abort.
    #[error(
        "{} is not there, and XRT would abort the process; install libxrt1 or the vendor's XRT, or \
         set XILINX_XRT in [cards.xrt.environment] to the folder of another one", path.display()
    )]
    NoShim {
        /// The shim's file.
        path: PathBuf,
    },
    /// XRT would refuse the first access to a register.
    #[error(
        "XRT {} gives access to at most 65536 bytes of a kernel's registers, and the register map has \
         {REGISTERS_BYTES}; install XRT 2.13, 2.18 or a later 2.x", .0.0
    )]
    FewRegisters(Version),
}

/// The shim that XRT would take.
///
/// # Errors
///
/// [`Unusable`] where there is no root, the mode of emulation is unknown, or the file is missing.
pub fn shim(root: Option<&Path>, emulation: Option<&str>) -> Result<PathBuf, Unusable> {
    let root = root.filter(|root| !root.as_os_str().is_empty()).ok_or(Unusable::NoRoot)?;
    let name = match emulation {
        None => "libxrt_core.so.2",
        Some("noop") => "libxrt_noop.so.2",
        Some("sw_emu") => "libxrt_swemu.so.2",
        Some("hw_emu") => "libxrt_hwemu.so.2",
        Some(other) => return Err(Unusable::Emulation(other.to_owned())),
    };
    let path = root.join("lib").join(name);
    if path.exists() { Ok(path) } else { Err(Unusable::NoShim { path }) }
}

/// Checks that XRT gives access to all of the register map. Those of 2022.2 to 2024.1 (2.14 to 2.17) refuse kernels
/// with more than 64 KiB of registers where a card is real (`xclRegRW` in `shim.cpp` of their releases).
///
/// # Errors
///
/// [`Unusable::FewRegisters`] for such a version; one that is no version is believed.
pub fn check_registers(version: &Version, emulation: Option<&str>) -> Result<(), Unusable> {
    let mut numbers = version.0.split('.').map_while(|number| number.parse::<u32>().ok());
    let release = (numbers.next(), numbers.next());
    match release {
        (Some(2), Some(14..=17)) if emulation.is_none() => {
            Err(Unusable::FewRegisters(version.clone()))
        }
        _ => Ok(()),
    }
}

/// Checks this process's environment against what XRT needs; returns XRT's folder. The worker's
/// first act.
///
/// # Errors
///
/// [`Unusable`], as [`shim`].
pub fn check() -> Result<PathBuf, Unusable> {
    let root = std::env::var_os(ROOT).map(PathBuf::from);
    let emulation = std::env::var(EMULATION).ok();
    shim(root.as_deref(), emulation.as_deref())?;
    root.ok_or(Unusable::NoRoot)
}

/// XRT's folder: that of the settings, else `XILINX_XRT`, else the vendor's, else the one in
/// `folder` that leads to Debian's libraries, which are in no folder of the name that XRT expects.
///
/// # Errors
///
/// The folder or the link that leads to Debian's libraries cannot be created.
pub fn find_root(
    settings: &BTreeMap<String, String>,
    folder: &Path,
) -> std::io::Result<Option<PathBuf>> {
    if let Some(root) = settings.get(ROOT) {
        return Ok(Some(root.into()));
    }
    if let Some(root) = std::env::var_os(ROOT) {
        return Ok(Some(root.into()));
    }
    if Path::new(VENDOR_ROOT).join("lib").is_dir() {
        return Ok(Some(VENDOR_ROOT.into()));
    }
    if !Path::new(DEBIAN_LIBRARIES).join("libxrt_coreutil.so.2").exists() {
        return Ok(None);
    }
    let root = folder.join("xrt-root");
    std::fs::create_dir_all(&root)?;
    match std::os::unix::fs::symlink(DEBIAN_LIBRARIES, root.join("lib")) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(Some(root)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(shims: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(root.path().join("lib")).expect("a folder");
        for shim in shims {
            std::fs::write(root.path().join("lib").join(shim), "").expect("a file");
        }
        root
    }

    #[test]
    fn the_two_cases_in_which_xrt_aborts_are_found_first() {
        assert_eq!(shim(None, None), Err(Unusable::NoRoot));
        assert_eq!(shim(Some(Path::new("")), Some("noop")), Err(Unusable::NoRoot));
        let root = root(&["libxrt_noop.so.2"]);
        let path = root.path().join("lib/libxrt_hwemu.so.2");
        assert_eq!(shim(Some(root.path()), Some("hw_emu")), Err(Unusable::NoShim { path }));
        assert!(shim(Some(root.path()), Some("noop")).is_ok());
    }

    #[test]
    fn a_mode_that_xrt_does_not_know_is_not_taken_for_a_card() {
        let root = root(&["libxrt_core.so.2"]);
        assert!(shim(Some(root.path()), None).is_ok());
        // Empty is not unset: XRT ends the process.
        for other in ["hwemu", ""] {
            let error = shim(Some(root.path()), Some(other));
            assert_eq!(error, Err(Unusable::Emulation(other.into())));
        }
    }

    /// Releases that refuse were found in the sources of each of them, from 2.12 to 2.23.
    #[test]
    fn releases_that_map_few_registers_are_not_used_for_cards() {
        let refused = |version: &str, emulation| {
            check_registers(&Version(version.to_owned()), emulation).is_err()
        };
        for good in
            ["2.12.427", "2.13.0", "2.13.466", "2.18.179", "2.19.194", "2.23.244", "unknown"]
        {
            assert!(!refused(good, None), "{good}");
        }
        for bad in ["2.14.0", "2.14.354", "2.15.225", "2.16.204", "2.17.319"] {
            assert!(refused(bad, None), "{bad}");
            // The emulation's shim takes what the role says.
            assert!(!refused(bad, Some("hw_emu")), "{bad}");
        }
        assert!(!refused("3.14.0", None));
        let error = Unusable::FewRegisters(Version("2.15.225".into())).to_string();
        assert!(error.contains("2.15.225") && error.contains("2.18"), "{error}");
    }

    #[test]
    fn the_settings_come_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = BTreeMap::from([(ROOT.to_owned(), "/x".to_owned())]);
        assert_eq!(find_root(&settings, folder.path()).expect("found"), Some("/x".into()));
    }
}
