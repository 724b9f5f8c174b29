//! A full disk. A daemon that starts on one serves reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use snic_integration::{Home, TestClient};

use super::{Rig, create_until_refused, create_when_it_is_well, tenants};

/// A file system in memory of 192 MiB, of which the images of the catalogue take 76; gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir_all(&at).expect("a folder");
        run("mount", &["-t", "tmpfs", "-o", "size=192m,mode=0755", "none"], &at);
        Self(at)
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Leaves no free byte.
    fn fill(&self) {
        let mut file = fs::File::create(self.filler()).expect("a file");
        let full = std::io::copy(&mut std::io::repeat(0x5A), &mut file).expect_err("it is small");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    fn clear(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["--lazy"], &self.0);
    }
}

fn run(program: &str, arguments: &[&str], at: &Path) {
    let output = Command::new(program).args(arguments).arg(at).output().expect("it starts");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_changes_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it needs root, to mount a small file system");
        return;
    }
    let home = Home::new();
    let disk = SmallDisk::mount(home.path().join("store"));
    let rig = Rig::start(home).await;
    rig.client.create_tenant("first").await.expect("there is room");

    disk.fill();
    create_until_refused(&rig.client, "a").await;
    rig.assert_alive().await;
    rig.assert_told("No space left on device").await;
    disk.clear();
    create_when_it_is_well(&rig.client, "second").await;
    rig.assert_well("tenants/second").await;

    disk.fill();
    create_until_refused(&rig.client, "b").await;
    rig.daemon.kill();
    let daemon = rig.home.start().await;
    let client = TestClient::connect(&rig.home.socket(), "operator/test").await.expect("it serves");
    let rig = Rig { daemon, client, ..rig };
    rig.assert_alive().await;
    let known = tenants(&rig.client).await;
    for name in ["tenants/first", "tenants/second"] {
        assert!(known.contains(&name.to_owned()), "{name} is missing: {known:?}");
    }
    disk.clear();
    create_when_it_is_well(&rig.client, "third").await;
    assert!(tenants(&rig.client).await.contains(&"tenants/third".to_owned()));
    let (status, log) = rig.daemon.stop();
    assert!(status.success(), "{status}: {log}");
}
