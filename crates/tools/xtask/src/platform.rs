//! The platforms that are built for: this machine's own, and others with Debian's cross compiler. Programs of another
//! platform run under QEMU's user mode.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::command::{self, cargo};
use crate::packages;

/// A platform that is built for.
#[derive(Debug, PartialEq, Eq)]
pub struct Platform {
    pub target: &'static str,
    /// Rust's target of static programs.
    pub static_target: &'static str,
    /// Debian's name of the architecture; that of container images is the same.
    pub architecture: &'static str,
    /// The processor, as Rust's standard library names it.
    processor: &'static str,
    /// Beginning of the names of the compiler and its tools, and of the folder of their libraries.
    pub triple: &'static str,
    /// QEMU's program for processes of this platform.
    emulator: &'static str,
    /// Debian's packages: the compiler, and the C library to link with.
    packages: [&'static str; 2],
}

pub const PLATFORMS: [Platform; 2] = [
    Platform {
        target: "x86_64-unknown-linux-gnu",
        static_target: "x86_64-unknown-linux-musl",
        architecture: "amd64",
        processor: "x86_64",
        triple: "x86_64-linux-gnu",
        emulator: "qemu-x86_64-static",
        packages: ["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"],
    },
    Platform {
        target: "aarch64-unknown-linux-gnu",
        static_target: "aarch64-unknown-linux-musl",
        architecture: "arm64",
        processor: "aarch64",
        triple: "aarch64-linux-gnu",
        emulator: "qemu-aarch64-static",
        packages: ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    },
];

/// Cargo's profile of what is shipped.
pub const PROFILE: &str = "dist";

/// Need of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Need {
    /// A program, and Debian's package with it.
    Program(String, &'static str),
    /// A file, and Debian's package with it.
    File(PathBuf, &'static str),
    /// The standard library for one of Rust's targets.
    Target(&'static str),
}

impl Need {
    fn is_met(&self) -> bool {
        match self {
            Self::Program(name, _) => {
                packages::search_path().iter().any(|folder| folder.join(name).is_file())
            }
            Self::File(path, _) => path.exists(),
            Self::Target(target) => packages::has_target(target),
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Program(name, package) => {
                format!("{name} is missing: sudo apt-get install {package}")
            }
            Self::File(path, package) => {
                format!("{} is missing: sudo apt-get install {package}", path.display())
            }
            Self::Target(target) => {
                format!("the standard library for {target} is missing: rustup target add {target}")
            }
        }
    }
}

impl Platform {
    /// The platform with this target.
    ///
    /// # Errors
    /// There is none; the message lists those there are.
    pub fn named(target: &str) -> anyhow::Result<&'static Self> {
        let found = PLATFORMS.iter().find(|platform| platform.target == target);
        found.with_context(|| {
            format!(
                "unknown target {target:?}; supported: {}",
                PLATFORMS.map(|of| of.target).join(", ")
            )
        })
    }

    /// This machine's platform.
    ///
    /// # Errors
    /// Nothing is built on machines of this kind.
    pub fn of_machine() -> anyhow::Result<&'static Self> {
        let processor = std::env::consts::ARCH;
        PLATFORMS.iter().find(|platform| platform.processor == processor).with_context(|| {
            format!("packages are not built on {processor} machines; use x86_64 or aarch64")
        })
    }

    /// Whether its programs are of another processor than this machine's.
    pub fn is_foreign(&self) -> bool {
        self.processor != std::env::consts::ARCH
    }

    /// Where cargo puts its programs, below the target folder.
    pub fn programs(&self, target: &Path) -> PathBuf {
        match self.is_foreign() {
            true => target.join(self.target).join(PROFILE),
            false => target.join(PROFILE),
        }
    }

    /// The folder with its C library.
    pub fn libraries(&self) -> PathBuf {
        match self.is_foreign() {
            true => self.cross_folder().join("lib"),
            false => Path::new("/lib").join(self.triple),
        }
    }

    /// The packages of the C library and of what the compiler adds to it, and the files with their licences.
    pub fn library_licences(&self) -> [(&'static str, PathBuf); 2] {
        ["libc6", "libgcc-s1"].map(|name| {
            let package = match self.is_foreign() {
                true => format!("{name}-{}-cross", self.architecture),
                false => name.to_owned(),
            };
            (name, Path::new("/usr/share/doc").join(package).join("copyright"))
        })
    }

    /// The program that removes symbols, and its first argument.
    pub fn strip(&self) -> Command {
        let mut strip = match self.is_foreign() {
            true => Command::new(format!("{}-strip", self.triple)),
            false => Command::new("strip"),
        };
        strip.arg("--strip-unneeded");
        strip
    }

    /// The program that runs its programs, where this machine does not.
    pub fn emulator(&self) -> Option<&'static str> {
        self.is_foreign().then_some(self.emulator)
    }

    /// Where Debian's cross compiler has the platform's files.
    fn cross_folder(&self) -> PathBuf {
        Path::new("/usr").join(self.triple)
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs = vec![
            Need::Target(self.static_target),
            // Of etcd's client, in snic-fleet.
            Need::Program("protoc".to_owned(), "protobuf-compiler"),
            Need::File("/usr/include/google/protobuf/descriptor.proto".into(), "libprotobuf-dev"),
        ];
        if self.is_foreign() {
            let [compiler, library] = self.packages;
            needs.push(Need::Program(format!("{}-gcc", self.triple), compiler));
            needs.push(Need::File(self.cross_folder().join("include/stdlib.h"), library));
            needs.push(Need::Program(self.emulator.to_owned(), "qemu-user-static"));
            needs.push(Need::Target(self.target));
        }
        needs
    }

    /// Checks for all that a build and its programs need.
    ///
    /// # Errors
    /// Something is missing; the message says how to get it, one line for each.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_with(Need::is_met)
    }

    fn check_with(&self, is_met: impl Fn(&Need) -> bool) -> anyhow::Result<()> {
        let missing: Vec<_> =
            self.needs().iter().filter(|need| !is_met(need)).map(Need::advice).collect();
        ensure!(missing.is_empty(), "cannot build for {}:\n{}", self.target, missing.join("\n"));
        Ok(())
    }

    /// Variables that tell cargo and build scripts which compiler to use.
    fn variables(&self, target: &str) -> BTreeMap<String, String> {
        let compiler = match self.is_foreign() {
            true => format!("{}-gcc", self.triple),
            // Compiled C code needs no libc of its own: ring's, which asks for none of its functions but memory's.
            false => "cc".to_owned(),
        };
        let name = target.replace('-', "_");
        let linker = format!("CARGO_TARGET_{}_LINKER", name.to_uppercase());
        BTreeMap::from([(linker, compiler.clone()), (format!("CC_{name}"), compiler)])
    }

    /// Builds programs with `cargo build --profile dist` and these words.
    ///
    /// # Errors
    /// They do not build, which cargo explains.
    pub fn build(&self, root: &Path, words: &[&str]) -> anyhow::Result<()> {
        let mut build = cargo(root, &["build", "--profile", PROFILE]);
        build.args(words);
        if self.is_foreign() {
            build.args(["--target", self.target]).envs(self.variables(self.target));
        }
        ensure!(
            command::succeeds(&mut build)?,
            "the programs for {} failed to build; see the output above",
            self.target
        );
        Ok(())
    }

    /// Builds a static program, which needs no library of the machine that it runs on. Returns its path.
    ///
    /// # Errors
    /// It does not build, or needs libraries all the same.
    pub fn build_static(
        &self,
        root: &Path,
        target: &Path,
        package: &str,
    ) -> anyhow::Result<PathBuf> {
        let words = ["build", "--profile", PROFILE, "-p", package, "--target", self.static_target];
        let mut build = cargo(root, &words);
        build.envs(self.variables(self.static_target));
        build.env("CARGO_PROFILE_DIST_STRIP", "symbols");
        ensure!(
            command::succeeds(&mut build)?,
            "{package} for {} failed to build; see the output above",
            self.static_target
        );
        let program = target.join(self.static_target).join(PROFILE).join(package);
        let linked = linked(&program)?;
        ensure!(linked.is_static(), "{} is not static: {linked:?}", program.display());
        Ok(program)
    }

    /// A command that runs one of its programs here: by itself, or under QEMU.
    pub fn command(&self, program: &Path) -> Command {
        if !self.is_foreign() {
            return Command::new(program);
        }
        let mut command = Command::new(self.emulator);
        command.arg("-L").arg(self.cross_folder()).arg(program);
        command
    }

    /// The same for a static program, which is given no libraries.
    pub fn static_command(&self, program: &Path) -> Command {
        if !self.is_foreign() {
            return Command::new(program);
        }
        let mut command = Command::new(self.emulator);
        command.arg(program);
        command
    }
}

/// Libraries that a program is linked with when it starts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The program that loads it; none loads a static program.
    pub loader: Option<String>,
    /// Names of the libraries that it asks for.
    pub libraries: Vec<String>,
}

impl Linked {
    /// Whether it needs nothing of the machine that it runs on.
    pub fn is_static(&self) -> bool {
        *self == Self::default()
    }
}

/// Asks `readelf` what a program or library is linked with.
///
/// # Errors
/// `readelf` is missing, or the file is none of its kind.
pub fn linked(file: &Path) -> anyhow::Result<Linked> {
    let words = ["--wide", "--program-headers", "--dynamic"];
    let output = Command::new("readelf").env("LC_ALL", "C").args(words).arg(file).output();
    let output = output.context("start readelf; sudo apt-get install binutils")?;
    ensure!(
        output.status.success() && !output.stdout.is_empty(),
        "readelf cannot read {}: {}",
        file.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(read_linked(&String::from_utf8_lossy(&output.stdout)))
}

fn read_linked(text: &str) -> Linked {
    let in_brackets = |line: &str, before: &str| {
        let (_, rest) = line.split_once(before)?;
        rest.split_once(']').map(|(name, _)| name.trim().to_owned())
    };
    let loader =
        text.lines().find_map(|line| in_brackets(line, "[Requesting program interpreter:"));
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    let libraries = needed.filter_map(|line| in_brackets(line, "Shared library: [")).collect();
    Linked { loader, libraries }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign() -> &'static Platform {
        PLATFORMS.iter().find(|platform| platform.is_foreign()).expect("one of two")
    }

    #[test]
    fn one_platform_is_this_machine_s() {
        let own = Platform::of_machine().expect("tests run on such machines only");
        assert!(!own.is_foreign() && own != foreign());
        assert_eq!(own.programs(Path::new("target")), Path::new("target/dist"));
        let below = format!("target/{}/dist", foreign().target);
        assert_eq!(foreign().programs(Path::new("target")), Path::new(&below));
    }

    #[test]
    fn an_unknown_target_is_told_which_there_are() {
        let error = Platform::named("riscv64gc-unknown-linux-gnu").expect_err("not supported");
        let text = error.to_string();
        assert!(text.contains("riscv64gc"), "{text}");
        assert!(PLATFORMS.iter().all(|platform| text.contains(platform.target)), "{text}");
        for platform in &PLATFORMS {
            assert_eq!(Platform::named(platform.target).expect("supported"), platform);
        }
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let platform = foreign();
        platform.check_with(|_| true).expect("nothing is missing");
        let error = platform.check_with(|_| false).expect_err("all is missing").to_string();
        let lines: Vec<_> = error.lines().collect();
        assert_eq!(lines[0], format!("cannot build for {}:", platform.target));
        assert_eq!(lines.len(), 1 + platform.needs().len(), "{error}");
        for ending in [
            format!("apt-get install {}", platform.packages[0]),
            format!("apt-get install {}", platform.packages[1]),
            "apt-get install qemu-user-static".to_owned(),
            format!("rustup target add {}", platform.target),
            format!("rustup target add {}", platform.static_target),
        ] {
            assert!(lines.iter().any(|line| line.ends_with(&ending)), "{ending} in {error}");
        }
        let only = |need: &Need| !matches!(need, Need::Program(name, _) if name.ends_with("gcc"));
        let error = platform.check_with(only).expect_err("one is missing").to_string();
        assert_eq!(error.lines().count(), 2, "{error}");
    }

    #[test]
    fn the_compiler_of_another_platform_compiles_and_links() {
        let arm = &PLATFORMS[1];
        let variables = arm.variables(arm.static_target);
        let names: Vec<_> = variables.keys().map(String::as_str).collect();
        let expected =
            ["CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "CC_aarch64_unknown_linux_musl"];
        assert_eq!(names, expected);
    }

    /// Lines as `readelf` of binutils 2.40 prints them.
    #[test]
    fn loader_and_libraries_are_read() {
        let text = "\
  INTERP         0x000318 0x0000000000000318 0x0000000000000318 0x00001c 0x00001c R   0x1
      [Requesting program interpreter: /lib/ld-linux-aarch64.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000000e (SONAME)             Library soname: [libm.so.6]
";
        let linked = read_linked(text);
        assert_eq!(linked.loader.as_deref(), Some("/lib/ld-linux-aarch64.so.1"));
        assert_eq!(linked.libraries, ["libgcc_s.so.1", "libc.so.6"]);
        assert_eq!(read_linked("  LOAD 0x0 R E 0x1000\nDynamic section"), Linked::default());
    }

    /// This test itself is such a program.
    #[test]
    fn a_program_of_this_machine_needs_its_c_library() {
        let own = std::env::current_exe().expect("the running test");
        let linked = linked(&own).expect("readelf reads it");
        assert!(linked.loader.is_some());
        assert!(linked.libraries.iter().any(|name| name == "libc.so.6"), "{linked:?}");
        let text = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(text.path(), "no program").expect("written");
        super::linked(text.path()).expect_err("it is none");
    }
}
