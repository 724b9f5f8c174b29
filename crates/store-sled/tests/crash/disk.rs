//! A disk whose power can be cut: an ext4 image on a loop device, shut down by its own ioctl so
//! that whatever was not synced is gone. Needs root, loop devices and mkfs.ext4.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const IMAGE_BYTES: u64 = 192 << 20;

/// `FS_IOC_SHUTDOWN`, which is `_IOR('X', 125, u32)`, with `EXT4_GOING_FLAGS_NOLOGFLUSH` (2): stop
/// at once and do not even flush the file system's log.
const CUT_POWER_PERL: &str = r#"open(my $f, "<", $ARGV[0]) or die "open: $!"; my $flag = pack("L", 2); ioctl($f, 0x8004587D, $flag) or die "ioctl: $!";"#;

/// The same in Python, for a machine without perl.
const CUT_POWER_PYTHON: &str = "import fcntl,os,struct,sys;\
    fcntl.ioctl(os.open(sys.argv[1],os.O_RDONLY),0x8004587D,struct.pack('I',2))";

/// An image file with an empty ext4.
pub struct Disk {
    folder: tempfile::TempDir,
}

/// The image mounted; dropping it unmounts, also when the test fails.
pub struct Mounted {
    path: PathBuf,
}

impl Disk {
    /// Makes the image and tries all that the test needs; the error says what is missing.
    pub fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let disk = Self { folder };
        File::create(disk.image())
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .and_then(|()| std::fs::create_dir(disk.mount_point()))
            .map_err(|error| format!("no image file: {error}"))?;
        disk.format()?;
        let mounted = disk.try_mount()?;
        try_cut_power(mounted.path())?;
        if std::fs::write(mounted.path().join("after"), "").is_ok() {
            return Err("the file system still takes writes after its shutdown".to_owned());
        }
        drop(mounted);
        disk.format()?;
        Ok(disk)
    }

    pub fn mount(&self) -> Mounted {
        self.try_mount().unwrap()
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn mount_point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn format(&self) -> Result<(), String> {
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(self.image()))
    }

    fn try_mount(&self) -> Result<Mounted, String> {
        let path = self.mount_point();
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(&path))?;
        Ok(Mounted { path })
    }
}

impl Mounted {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From here on nothing reaches the disk, and what was not synced is lost.
    pub fn cut_power(&self) {
        try_cut_power(&self.path).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process that was just killed may hold its files a moment longer.
        for _ in 0..100 {
            if run(Command::new("umount").arg(&self.path)).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        if let Err(reason) = run(Command::new("umount").arg("-l").arg(&self.path)) {
            eprintln!("{} stays mounted: {reason}", self.path.display());
        }
    }
}

fn try_cut_power(path: &Path) -> Result<(), String> {
    run(Command::new("perl").args(["-e", CUT_POWER_PERL]).arg(path)).or_else(|perl| {
        run(Command::new("python3").args(["-c", CUT_POWER_PYTHON]).arg(path))
            .map_err(|python| format!("{perl}; {python}"))
    })
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}: {}", output.status, text.trim()))
}
