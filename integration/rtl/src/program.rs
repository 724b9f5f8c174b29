//! The program that Verilator makes of the shell: built once for each state of its sources.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use snic_domain::Digest;

/// Arguments of Verilator. Each variable begins with a value that the run's seed draws.
const ARGUMENTS: [&str; 13] = [
    "--cc",
    "--exe",
    "--build",
    "-O3",
    "-Wall",
    "--assert",
    "-DSNIC_ASSERTIONS",
    "--x-assign",
    "unique",
    "--x-initial",
    "unique",
    "-CFLAGS",
    "-O1 -std=c++17",
];

/// Sources of the shell.
#[derive(Debug, Clone)]
pub struct Shell {
    folder: PathBuf,
}

impl Shell {
    /// Those of this repository.
    pub fn of_repository() -> Self {
        Self { folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bitstreams/shell") }
    }

    /// Those below another folder, which has the same files.
    pub const fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The modules, the package first.
    ///
    /// # Errors
    /// The folder is not there.
    pub fn modules(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.folder.join("rtl"))?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry?.path());
        }
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "sv"));
        let is_package = |path: &PathBuf| path.to_string_lossy().ends_with("_pkg.sv");
        paths.sort_by_key(|path| (!is_package(path), path.clone()));
        Ok(paths)
    }

    /// The program: the one that these sources were built to before, or a new one.
    ///
    /// # Errors
    /// The sources cannot be read, or Verilator or the compiler refuses them: with what it said.
    pub fn program(&self) -> io::Result<PathBuf> {
        /// Tests ask for it at once, and one of them builds.
        static BUILDS: Mutex<()> = Mutex::new(());
        let _builds = BUILDS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sources = self.modules()?;
        // The core alone: what is around it here stands in for the part.
        sources.retain(|path| !path.ends_with("snic_shell.sv"));
        sources.push(self.folder.join("sim/main.cpp"));
        let mut hashed = ARGUMENTS.join(" ").into_bytes();
        hashed.extend(Command::new("verilator").arg("--version").output()?.stdout);
        let headers = ["configuration_port.hpp", "region_chains.hpp"];
        let headers = headers.map(|name| self.folder.join("sim").join(name));
        for source in sources.iter().chain(&headers) {
            hashed.extend(fs::read(source)?);
        }
        let name: String = Digest::of(&hashed).to_string().chars().take(16).collect();
        let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rtl");
        let program = cache.join(&name);
        if program.exists() {
            return Ok(program);
        }
        fs::create_dir_all(&cache)?;
        let folder = tempfile::tempdir_in(&cache)?;
        let output = Command::new("verilator")
            .args(ARGUMENTS)
            .args(["--top-module", "snic_core", "-o", "snic-rtl", "-Mdir"])
            .arg(folder.path())
            .args(&sources)
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(said));
        }
        // Whoever builds the same at the same time leaves the same.
        fs::rename(folder.path().join("snic-rtl"), &program)?;
        Ok(program)
    }
}

/// Whether Verilator is installed. In CI it must be.
///
/// # Panics
/// Where `CI` is set and it is missing.
pub fn is_there() -> bool {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    *IS_THERE.get_or_init(|| {
        let starts = Command::new("verilator").arg("--version").output();
        let Err(error) = starts else { return true };
        let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        assert!(!is_ci, "verilator: {error}: apt-get install verilator");
        eprintln!("not run: verilator: {error}; apt-get install verilator");
        false
    })
}
