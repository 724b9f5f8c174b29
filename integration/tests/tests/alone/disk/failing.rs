//! A disk that fails (`EIO`), as strace makes the daemon's calls fail: no sync succeeds, or one write does not.
//!
//! Pages whose sync failed are unknown: Linux takes them for clean afterwards, and the next
//! sync of the file succeeds without them. The second half of the first test plays that: after the daemon
//! has recovered and was killed, such pages get back what the disk had before the fault.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use snic_api::error::reason_of;
use snic_api::v1::{self, ErrorReason};
use snic_integration::{Home, TestClient};

use super::{Rig, create_until_refused, create_when_it_is_well, tenants};

/// Unit that the kernel writes, and loses, as a whole.
const PAGE_BYTES: usize = 4_096;

/// Calls that make durable what was written.
const SYNCS: &str = "fsync,fdatasync,sync_file_range,msync";

/// strace at a process, which makes calls of its threads fail until it is dropped.
struct Fault {
    strace: Child,
}

impl Fault {
    /// Makes `calls` fail with `EIO`, where one is given those on this file alone; `None` where strace cannot be used.
    fn inject(process: u32, calls: &str, file: Option<&Path>) -> Option<Self> {
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &process.to_string(), "-o", "/dev/null"]);
        command.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:error=EIO")]);
        if let Some(file) = file {
            command.arg("-P").arg(file);
        }
        let unusable = |why: String| {
            assert!(std::env::var_os("CI").is_none(), "strace cannot be used: {why}");
            eprintln!("SKIPPED: strace cannot be used: {why}");
        };
        let spawned = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut strace = match spawned {
            Ok(strace) => strace,
            Err(error) => {
                unusable(error.to_string());
                return None;
            }
        };
        // It says so once it has all threads.
        let mut said = BufReader::new(strace.stderr.take().expect("it is piped"));
        let mut line = String::new();
        while !line.contains("attached") {
            line.clear();
            if said.read_line(&mut line).expect("text") == 0 {
                unusable(line);
                return None;
            }
        }
        // Threads that begin later are told of, too.
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Some(Self { strace })
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // Asked to end, it lets the process go; killed, it would leave threads stopped.
        let pid = rustix::process::Pid::from_child(&self.strace);
        let asked = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        if asked.is_ok() {
            let _ = self.strace.wait();
        }
    }
}

/// The files below a folder.
pub(super) fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = fs::read(&path).expect("a file");
            found.insert(path, bytes);
        }
    }
    found
}

/// Gives the pages that were written from `before` to `during`, and not since, what they were before; how many.
fn lose_pages(
    before: &BTreeMap<PathBuf, Vec<u8>>,
    during: &BTreeMap<PathBuf, Vec<u8>>,
    folder: &Path,
) -> usize {
    let mut lost = 0;
    for (path, mut now) in files(folder) {
        let (Some(old), Some(unsynced)) = (before.get(&path), during.get(&path)) else { continue };
        let page = |bytes: &[u8], at: usize| {
            let mut page = bytes.iter().skip(at).take(PAGE_BYTES).copied().collect::<Vec<_>>();
            page.resize(PAGE_BYTES, 0);
            page
        };
        for at in (0..now.len()).step_by(PAGE_BYTES) {
            let (was, then) = (page(old, at), page(unsynced, at));
            if was != then && page(&now, at) == then {
                let end = now.len().min(at + PAGE_BYTES);
                now[at..end].copy_from_slice(&was[..end - at]);
                lost += 1;
            }
        }
        fs::write(&path, now).expect("the file is there");
    }
    lost
}

/// Asks for a tenant whose record has more bytes than a page, so that a page of the journal has nothing else.
async fn ask_for_large_tenant(client: &TestClient) {
    let label = |number| (format!("{number:063}"), "v".repeat(63));
    let labels = (0..32).map(label).collect();
    let description = "d".repeat(1_024);
    let tenant = v1::Tenant { weight: 1, labels, description, ..Default::default() };
    let (tenant_id, tenant) = ("large".to_owned(), Some(tenant));
    let request = v1::CreateTenantRequest { tenant_id, tenant, ..Default::default() };
    let refused = client.tenants().create_tenant(request).await.expect_err("the disk fails");
    assert_eq!(reason_of(&refused), Some(ErrorReason::StoreUnavailable), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn syncs_that_fail_stop_changes_and_are_not_believed_later() {
    let rig = Rig::start(Home::new()).await;
    let store = rig.home.path().join("store");
    let mut acknowledged = vec!["tenants/acme".to_owned()];
    rig.client.create_tenant("first").await.expect("the disk is well");
    acknowledged.push("tenants/first".to_owned());
    let before = files(&store);

    let Some(fault) = Fault::inject(rig.daemon.id(), SYNCS, None) else { return };
    ask_for_large_tenant(&rig.client).await;
    acknowledged.extend(create_until_refused(&rig.client, "a").await);
    rig.assert_alive().await;
    let refused = create_until_refused(&rig.client, "b").await;
    assert_eq!(refused, Vec::<String>::new(), "changes are refused as long as the disk fails");
    let during = files(&store);
    drop(fault);

    create_when_it_is_well(&rig.client, "second").await;
    acknowledged.push("tenants/second".to_owned());
    rig.assert_alive().await;
    rig.daemon.kill();
    assert!(lose_pages(&before, &during, &store) > 0, "the fault met no page");
    let daemon = rig.home.start().await;
    let client = TestClient::connect(&rig.home.socket(), "operator/test").await.expect("it serves");
    let known = tenants(&client).await;
    for name in acknowledged {
        assert!(known.contains(&name), "{name} is missing: {known:?}");
    }
    let (status, log) = daemon.stop();
    assert!(status.success(), "{status}: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_is_made_again_elsewhere() {
    let rig = Rig::start(Home::new()).await;
    let history = rig.home.path().join("store/history");
    let journals =
        files(&history).into_keys().filter(|path| path.extension().is_some_and(|e| e == "journal"));
    let journal = journals.max().expect("there is a journal");
    // As long as strace is there, nothing can be written to this file.
    let Some(fault) = Fault::inject(rig.daemon.id(), "write", Some(&journal)) else { return };
    let acknowledged = create_until_refused(&rig.client, "a").await;
    assert_eq!(acknowledged, Vec::<String>::new(), "the journal takes nothing");
    create_when_it_is_well(&rig.client, "second").await;
    rig.assert_alive().await;
    drop(fault);
    rig.daemon.kill();
    let daemon = rig.home.start().await;
    let client = TestClient::connect(&rig.home.socket(), "operator/test").await.expect("it serves");
    assert!(tenants(&client).await.contains(&"tenants/second".to_owned()));
    let (status, log) = daemon.stop();
    assert!(status.success(), "{status}: {log}");
}
