//! The environment of libxrt_hwemu: settings, a role, a folder for its sockets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use snic_bitstream::xclbin::TestRole;
use snic_card_xrt::{CONTROL, CallDeadlines, CardSelector, XrtCardSettings};
use snic_domain::{CardProfile, Digest};
use snic_integration::program;
use uuid::Uuid;

/// Whether Debian's libxrt is installed. In CI it must be.
///
/// # Panics
/// Where `CI` is set and it is missing.
pub fn is_there() -> bool {
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libxrt_hwemu.so.2");
    if library.exists() {
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none_or(|value| value.is_empty()),
        "{} is missing: apt-get install libxrt-dev",
        library.display()
    );
    eprintln!("not run: {} is missing; apt-get install libxrt-dev", library.display());
    false
}

/// A folder with all files of one emulated card.
pub struct Emulation {
    folder: tempfile::TempDir,
    user: String,
    profile: CardProfile,
}

/// The id of the emulation's sockets; their folder tells cards apart.
pub const SOCKET_ID: &str = "card";
/// Memory of the emulated card for buffers, in KiB: 64 MiB.
const MEMORY_KIB: u64 = 64 << 10;
/// The first message of the shim has to be its longest: it forgets to keep a receive buffer that
/// has grown.
const PAD_BYTES: usize = 70_000;

impl Emulation {
    /// Makes the folder, for a card of this profile.
    ///
    /// # Panics
    /// Where files cannot be written, or there is no C compiler.
    pub fn new(profile: CardProfile) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let user = format!("snic-xrt-{}-{number}", std::process::id());
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(Path::new("/tmp").join(&user)).expect("a folder for sockets");
        let emulation = Self { folder, user, profile };
        emulation.write_files();
        emulation.write_role("role.xclbin", 1);
        emulation
    }

    fn write_files(&self) {
        let write = |name: &str, text: &str| {
            std::fs::write(self.path(name), text).expect("the folder takes files");
        };
        // Starts no simulator, and logs nothing.
        write(
            "xrt.ini",
            &format!(
                "[Runtime]\nverbosity=4\n[Emulation]\ndont_run=true\nsystem_dpa=false\n\
                 packet_size=65536\nsuppress_infos=true\nprint_infos_in_console=false\n\
                 [Debug]\npad={}\n",
                "x".repeat(PAD_BYTES)
            ),
        );
        write(
            "emconfig.json",
            r#"{"Version":{"FileVersion":"2.0","ToolVersion":"2022.1"},
"Platform":{"UnifiedPlatform":"true","Boards":[{"NumBoards":"1","Devices":[
{"Name":"xilinx_u280_gen3x16_xdma_base_1","HalMajorVersion":"2","HalMinorVersion":"1","VendorId":"4334",
"DeviceVersion":"0","OclFreqency":"250","NumDevices":"1","DdrBanks":[{"Size":"16GB"}]}]}]}}"#,
        );
        write("fastsleep.c", include_str!("fastsleep.c"));
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([self.path("fastsleep.so"), self.path("fastsleep.c")])
            .status()
            .expect("a C compiler, which Rust links with");
        assert!(status.success(), "fastsleep.c");
    }

    /// Writes a role with this number in its UUID; gives its path.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn write_role(&self, name: &str, number: u128) -> PathBuf {
        let role = TestRole {
            uuid: Uuid::from_u128(number),
            interface: Uuid::from_u128(0x862c_7020),
            platform: "xilinx_u280_gen3x16_xdma_base_1",
            control: CONTROL,
            registers_bytes: 1 << 22,
            memory_kibibytes: MEMORY_KIB,
        };
        let path = self.path(name);
        let bytes = role.build(&self.profile).expect("a printable part");
        std::fs::write(&path, bytes).expect("the folder takes files");
        path
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The owner of its sockets: the folder's name under `/tmp`.
    pub fn user(&self) -> &str {
        &self.user
    }

    pub const fn profile(&self) -> &CardProfile {
        &self.profile
    }

    /// The worker's environment with a shim: `hw_emu` or `noop`.
    pub fn environment(&self, shim: &str) -> BTreeMap<String, String> {
        let path = |name: &str| self.path(name).display().to_string();
        let mut pairs = vec![
            ("USER", self.user.clone()),
            ("XCL_EMULATION_MODE", shim.to_owned()),
            ("EMULATION_SOCKETID", SOCKET_ID.to_owned()),
            ("EMCONFIG_PATH", self.folder.path().display().to_string()),
            ("XRT_INI_PATH", path("xrt.ini")),
        ];
        pairs.push(("LD_PRELOAD", path("fastsleep.so")));
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The digest of the role.
    ///
    /// # Panics
    /// Where it cannot be read.
    pub fn role(&self) -> Digest {
        Digest::of(&std::fs::read(self.path("role.xclbin")).expect("it was written"))
    }

    /// Settings by which the card is reached through `shim`, with the daemon's program as the worker.
    pub fn settings(&self, shim: &str) -> XrtCardSettings {
        XrtCardSettings {
            program: (program("snicd"), vec!["xrt-worker".to_owned()]),
            folder: self.path("worker"),
            device: CardSelector::Number(0),
            role: self.path("role.xclbin"),
            force_role: false,
            control: CONTROL.to_owned(),
            environment: self.environment(shim),
            deadlines: CallDeadlines::default(),
        }
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // Only sockets are in it.
        let _ = std::fs::remove_dir_all(Path::new("/tmp").join(&self.user));
    }
}
