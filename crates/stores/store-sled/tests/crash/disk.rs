//! A disk whose power can be cut: an ext4 image on a loop device, shut down by its own ioctl so
//! that whatever was not synced is gone. Needs root, loop devices and mkfs.ext4.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

const IMAGE_BYTES: u64 = 192 << 20;

/// `FS_IOC_SHUTDOWN`, which is `_IOR('X', 125, u32)`, with `EXT4_GOING_FLAGS_NOLOGFLUSH` (2): stop
/// at once and do not even flush the file system's log. A byte says that it is ready, and it cuts when its input ends.
const CUT_POWER_PERL: &str = r#"open(my $f, "<", $ARGV[0]) or die "open: $!"; my $flag = pack("L", 2); $| = 1; print "."; <STDIN>; ioctl($f, 0x8004587D, $flag) or die "ioctl: $!";"#;

/// The same in Python, for a machine without perl.
const CUT_POWER_PYTHON: &str = "import fcntl,os,struct,sys;\
    f=os.open(sys.argv[1],os.O_RDONLY);print('.',end='',flush=True);sys.stdin.read();\
    fcntl.ioctl(f,0x8004587D,struct.pack('I',2))";

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
        Switch::new(mounted.path())?.try_off()?;
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

    /// A switch that cuts its power. Until it has, the disk cannot be unmounted.
    pub fn switch(&self) -> Switch {
        Switch::new(&self.path).unwrap()
    }
}

/// Cuts the power of a disk without delay: its process runs already.
pub struct Switch {
    program: String,
    process: std::process::Child,
}

impl Switch {
    fn new(path: &Path) -> Result<Self, String> {
        Self::start("perl", ["-e", CUT_POWER_PERL], path).or_else(|perl| {
            Self::start("python3", ["-c", CUT_POWER_PYTHON], path)
                .map_err(|python| format!("{perl}; {python}"))
        })
    }

    fn start(program: &str, script: [&str; 2], path: &Path) -> Result<Self, String> {
        let mut process = Command::new(program)
            .args(script)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let ready = process.stdout.as_mut().unwrap().read_exact(&mut [0]);
        let switch = Self { program: program.to_owned(), process };
        // What ended before it was ready says why.
        if ready.is_err() { Err(switch.try_off().unwrap_err()) } else { Ok(switch) }
    }

    /// From here on nothing reaches the disk, and what was not synced is lost.
    pub fn off(self) {
        self.try_off().unwrap();
    }

    fn try_off(self) -> Result<(), String> {
        // Its input ends with this.
        let output = self.process.wait_with_output();
        check(&self.program, output)
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

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    check(&program, command.output())
}

fn check(program: &str, output: io::Result<Output>) -> Result<(), String> {
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}: {}", output.status, text.trim()))
}
