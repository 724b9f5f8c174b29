//! A full disk: the daemon stays up and serves reads and lists, changes are rejected, and it
//! recovers as soon as the disk has room. A daemon that starts on a full disk serves reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use snic_api::error::reason_of;
use snic_api::v1::{ErrorReason, ListTenantsRequest};
use snic_integration::{Home, TestClient};

/// How long the daemon may take to see that there is room.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system in memory of 96 MiB; gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir_all(&at).expect("a folder");
        run("mount", &["-t", "tmpfs", "-o", "size=96m,mode=0755", "none"], &at);
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

async fn tenants(client: &TestClient) -> Vec<String> {
    let reply = client.tenants().list_tenants(ListTenantsRequest::default()).await;
    reply.expect("reads are answered").into_inner().tenants.into_iter().map(|t| t.name).collect()
}

/// Creates tenants until one is rejected because of the store.
async fn create_until_refused(client: &TestClient, prefix: &str) {
    for number in 0..10_000 {
        if let Err(status) = client.create_tenant(&format!("{prefix}{number}")).await {
            assert_eq!(reason_of(&status), Some(ErrorReason::StoreUnavailable), "{status:?}");
            return;
        }
    }
    panic!("a full disk takes everything");
}

async fn create_when_there_is_room(client: &TestClient, id: &str) {
    let until = Instant::now() + PATIENCE;
    while let Err(status) = client.create_tenant(id).await {
        assert_eq!(reason_of(&status), Some(ErrorReason::StoreUnavailable), "{status:?}");
        assert!(Instant::now() < until, "it never takes changes again: {status:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_changes_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it needs root, to mount a small file system");
        return;
    }
    let home = Home::new();
    let disk = SmallDisk::mount(home.path().join("store"));
    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    client.create_tenant("first").await.expect("there is room");

    disk.fill();
    create_until_refused(&client, "a").await;
    assert!(tenants(&client).await.contains(&"tenants/first".to_owned()));
    disk.clear();
    create_when_there_is_room(&client, "second").await;

    disk.fill();
    create_until_refused(&client, "b").await;
    daemon.kill();
    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let known = tenants(&client).await;
    for name in ["tenants/first", "tenants/second"] {
        assert!(known.contains(&name.to_owned()), "{name} is missing: {known:?}");
    }
    disk.clear();
    create_when_there_is_room(&client, "third").await;
    assert!(tenants(&client).await.contains(&"tenants/third".to_owned()));
    let (status, log) = daemon.stop();
    assert!(status.success(), "{status}: {log}");
}
