//! A file system that Linux makes read-only after an error, as ext4 does with `errors=remount-ro`. It stays so until it is
//! mounted again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use snic_integration::commands::shell;
use snic_integration::{Home, TestClient};

use super::{Rig, create_until_refused, create_when_it_is_well, tenants};

/// Bytes of the image: sled's and the journal's files, several times.
const IMAGE_BYTES: u64 = 192 << 20;

/// An ext4 in a file, mounted; unmounted when dropped.
struct Ext4 {
    image: PathBuf,
    at: PathBuf,
}

impl Ext4 {
    /// Makes the file system and mounts it; the error says what is missing.
    fn mount(image: PathBuf, at: PathBuf) -> Result<Self, String> {
        let made = fs::File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES));
        made.and_then(|()| fs::create_dir_all(&at)).map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let disk = Self { image, at };
        disk.mount_again()?;
        match disk.trigger().exists() {
            true => Ok(disk),
            false => Err("the kernel has no trigger_fs_error".to_owned()),
        }
    }

    fn mount_again(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,errors=remount-ro"]).arg(&self.image).arg(&self.at);
        run(&mut mount)
    }

    /// The file of the kernel that stands for an error in the file system.
    fn trigger(&self) -> PathBuf {
        let mounts = fs::read_to_string("/proc/mounts").expect("the kernel's list");
        let at = self.at.display().to_string();
        let mut lines = mounts.lines().map(|line| line.split(' '));
        let device = lines.find_map(|mut words| {
            let device = words.next()?;
            (words.next()? == at).then_some(device)
        });
        let device = device.and_then(|device| device.rsplit('/').next()).unwrap_or("none");
        Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error")
    }

    /// The kernel meets an error, and takes no write any more.
    fn make_read_only(&self) {
        fs::write(self.trigger(), "a test").expect("the kernel takes it");
        let refused = fs::write(self.at.join("refused"), "").expect_err("it is read-only");
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }

    /// Mounted again, for reading only, as an operator does.
    fn mount_read_only(&self) {
        run(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.at)).expect("nobody writes");
    }

    fn mount_writable(&self) {
        run(Command::new("mount").args(["-o", "remount,rw"]).arg(&self.at)).expect("it is well");
    }

    fn unmount(&self) -> Result<(), String> {
        // A process that was just killed may hold its files a moment longer.
        let tries = (0..100).map(|_| {
            let tried = run(Command::new("umount").arg(&self.at));
            if tried.is_err() {
                std::thread::sleep(Duration::from_millis(20));
            }
            tried
        });
        tries.reduce(Result::or).unwrap_or(Ok(()))
    }

    /// The steps of an operator: unmount, check, mount.
    fn repair(&self) {
        self.unmount().expect("nobody uses it");
        let status = Command::new("e2fsck").arg("-fy").arg(&self.image).output().expect("e2fsck");
        // 1: errors were corrected.
        assert!(matches!(status.status.code(), Some(0 | 1)), "{status:?}");
        self.mount_again().expect("it is well");
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if let Err(reason) = run(Command::new("umount").arg("--lazy").arg(&self.at)) {
            eprintln!("{} stays mounted: {reason}", self.at.display());
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_file_system_stops_changes_until_it_is_mounted_again() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it needs root, to mount a file system");
        return;
    }
    let home = Home::new();
    let disk = match Ext4::mount(home.path().join("image"), home.path().join("store")) {
        Ok(disk) => disk,
        Err(missing) => {
            assert!(std::env::var_os("CI").is_none(), "it cannot run: {missing}");
            eprintln!("SKIPPED: {missing}");
            return;
        }
    };
    let rig = Rig::start(home).await;
    rig.client.create_tenant("first").await.expect("the disk is well");
    // The journal syncs after each tenth of a second: what is younger may be lost with the file system.
    tokio::time::sleep(Duration::from_secs(1)).await;

    disk.make_read_only();
    let mut acknowledged = create_until_refused(&rig.client, "a").await;
    acknowledged.extend(["tenants/acme".to_owned(), "tenants/first".to_owned()]);
    rig.assert_alive().await;
    rig.assert_told("Read-only file system").await;
    rig.assert_alive().await;
    rig.daemon.kill();

    disk.repair();
    let daemon = rig.home.start().await;
    let client = TestClient::connect(&rig.home.socket(), "operator/test").await.expect("it serves");
    let rig = Rig { daemon, client, ..rig };
    rig.assert_alive().await;
    let known = tenants(&rig.client).await;
    for name in acknowledged {
        assert!(known.contains(&name), "{name} is missing: {known:?}");
    }
    create_when_it_is_well(&rig.client, "second").await;
    rig.assert_well("tenants/second").await;
    let (status, log) = rig.daemon.stop();
    assert!(status.success(), "{status}: {log}");
    // Before the folder that it is in.
    drop(disk);
}

/// A start where nothing can be written ends, and says where, why and what to do; so does the doctor. What is there stays
/// as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_on_a_read_only_file_system_says_so_and_leaves_all_as_it_is() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it needs root, to mount a file system");
        return;
    }
    let home = Home::new();
    let disk = match Ext4::mount(home.path().join("image"), home.path().join("store")) {
        Ok(disk) => disk,
        Err(missing) => {
            assert!(std::env::var_os("CI").is_none(), "it cannot run: {missing}");
            eprintln!("SKIPPED: {missing}");
            return;
        }
    };
    // No store yet, then one with records.
    for round in ["fresh", "used"] {
        let found = paths(&disk.at);
        disk.mount_read_only();
        let (status, log) = home.run_to_end();
        assert_eq!(status.code(), Some(1), "{round}: {log}");
        let said = log.lines().last().unwrap_or_default();
        for part in ["snicd: ", &disk.at.display().to_string(), "Read-only file system", "; mount"]
        {
            assert!(said.contains(part), "{round}: {part:?} is not in {log}");
        }
        assert!(!log.contains("panicked"), "{log}");
        let command = format!("snicd doctor -c {} || true", home.settings().display());
        let doctor = shell(&home, &command).expect("it says what is wrong");
        let wrong = doctor.lines().filter(|line| line.starts_with("WRONG data_dir: "));
        let wrong: Vec<_> = wrong.collect();
        assert_eq!(wrong.len(), 2, "{round}: store and audit log: {doctor}");
        assert!(
            wrong
                .iter()
                .all(|line| line.contains("Read-only file system") && line.contains("; mount")),
            "{doctor}"
        );
        disk.mount_writable();
        assert_eq!(paths(&disk.at), found, "{round}: nothing is half made");
        let daemon = home.start().await;
        let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
        client.create_tenant(round).await.expect("the disk is well");
        assert!(tenants(&client).await.contains(&"tenants/fresh".to_owned()), "{round}");
        let (status, log) = daemon.stop();
        assert!(status.success(), "{status}: {log}");
    }

    // The folder of the audit log alone: entries would be lost from the first one on.
    fs::remove_dir_all(disk.at.join("audit")).expect("nobody uses it");
    let audit = disk.at.join("audit");
    fs::create_dir(&audit).expect("there is room");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "ro", "none"]).arg(&audit)).expect("root");
    let (status, log) = home.run_to_end();
    run(Command::new("umount").arg(&audit)).expect("nobody uses it");
    assert_eq!(status.code(), Some(1), "{log}");
    for part in ["audit log", &audit.display().to_string(), "Read-only file system", "; mount"] {
        assert!(log.contains(part), "{part:?} is not in {log}");
    }
    drop(disk);
}

/// A file where the folder should be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_in_a_place_that_is_no_folder_says_so() {
    let home = Home::new();
    fs::write(home.path().join("store"), "").expect("there is room");
    let (status, log) = home.run_to_end();
    assert_eq!(status.code(), Some(1), "{log}");
    let path = home.path().join("store").display().to_string();
    assert!(log.contains(&path) && !log.contains("panicked"), "{log}");
    let command = format!("snicd doctor -c {} || true", home.settings().display());
    let doctor = shell(&home, &command).expect("it says what is wrong");
    let wrong = doctor.lines().filter(|line| line.starts_with("WRONG data_dir: ")).count();
    assert_eq!(wrong, 2, "{doctor}");
}

fn paths(folder: &Path) -> std::collections::BTreeSet<PathBuf> {
    super::failing::files(folder).into_keys().collect()
}
