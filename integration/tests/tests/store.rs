//! `snicd store`: what it says of stores that are whole, damaged or of another version, and what it changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::commands::{operate, shell};
use snic_integration::{Home, TestClient, furnished, program};
use snic_ports::store::{Batch, Store as _};
use snic_store_sled::{SledOptions, SledStore};

fn name(text: &str) -> DagName {
    let (tenant, dag) = text.split_once('/').expect("TENANT/DAG");
    DagName { tenant: tenant.parse().expect("a label"), dag: dag.parse().expect("a label") }
}

fn store(home: &Home, act: &str) -> Output {
    let mut command = Command::new(program("snicd"));
    command.arg("store").args(act.split(' ')).arg("--config").arg(home.settings());
    command.output().expect("snicd starts")
}

fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Puts a value under a key, as damage would.
fn put(home: &Home, key: &str, value: &[u8]) {
    let opened = SledStore::open(&home.path().join("store"), SledOptions::default());
    let store = opened.expect("no daemon runs").store;
    store.apply(Batch::new().put(key, value)).expect("there is room");
    store.close();
}

/// Every file of the store with its bytes; the audit log and sockets are none.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if let Ok(bytes) = std::fs::read(&path) {
            found.insert(path, bytes);
        }
    }
    found
}

/// A daemon with two DAGs, killed.
async fn killed() -> Home {
    let home = Home::new();
    let daemon = home.start().await;
    let client = furnished(&home, &[]).await;
    let nat = NtTypeId::new("nat").expect("a label");
    let spec = DagSpec::chain(&[nat], Bandwidth::from_gbps(1));
    for dag in ["acme/web", "acme/api"] {
        let operation = client.create_dag(&name(dag), &spec).await.expect("there is room");
        client.wait(&operation).await.expect("it is ready");
    }
    let running = store(&home, "check");
    assert_eq!(running.status.code(), Some(1));
    assert!(text(&running).contains("in use by another process; stop it first"), "{running:?}");
    assert!(!store(&home, "dump").status.success() && !store(&home, "repair").status.success());
    client.create_tenant("late").await.expect("the daemon goes on");
    daemon.kill();
    home
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_checked_dumped_and_repaired() {
    let home = killed().await;
    let before = files(&home.path().join("store"));
    let clean = store(&home, "check");
    assert!(clean.status.success(), "{}", text(&clean));
    let dumped = store(&home, "dump");
    assert!(dumped.status.success(), "{}", text(&dumped));
    assert!(files(&home.path().join("store")) == before, "check and dump change nothing");
    let lines = String::from_utf8(dumped.stdout).expect("text");
    let records: BTreeMap<String, serde_json::Value> = lines
        .lines()
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
            (record["key"].as_str().expect("a key").to_owned(), record["record"].clone())
        })
        .collect();
    assert_eq!(records["dags/acme/web"]["spec"]["nodes"][0]["nt"], "nat");
    assert_eq!(records["meta"]["secret"], "left out");

    put(&home, "dags/acme/web", b"\0");
    let before = files(&home.path().join("store"));
    let damaged = store(&home, "check");
    assert_eq!(damaged.status.code(), Some(1));
    let said = text(&damaged);
    assert!(said.contains("WRONG record dags/acme/web of the store is not readable"), "{said}");
    assert!(files(&home.path().join("store")) == before, "a check changes nothing");

    let repaired = store(&home, "repair");
    let said = text(&repaired);
    assert!(repaired.status.success(), "{said}");
    assert!(said.contains("set aside as quarantine/dags/acme/web: "), "{said}");
    let clean = store(&home, "check");
    let said = text(&clean);
    assert!(clean.status.success(), "{said}");
    assert!(said.contains("set aside at an earlier start: quarantine/dags/acme/web"), "{said}");

    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let names: Vec<String> = client.list_dags().await.into_iter().map(|dag| dag.name).collect();
    assert_eq!(names, ["tenants/acme/dags/api"]);
    let status = operate(&home, "maintenance status").expect("it answers");
    assert!(
        status.contains("StoreWhole is FALSE: ") && status.contains("of tenant acme"),
        "{status}"
    );
    daemon.stop();
    let doctor = format!("snicd doctor -c {} || true", home.settings().display());
    let said = shell(&home, &doctor).expect("it says what is wrong");
    assert!(said.lines().any(|line| line.starts_with("WRONG store: ")), "{said}");

    let file = home.path().join("taken");
    let taken = store(&home, &format!("take-out {}", file.display()));
    assert!(taken.status.success(), "{}", text(&taken));
    let lines = std::fs::read_to_string(&file).expect("it was written");
    let expected = r#"{"key":"quarantine/dags/acme/web","value":"00"}"#;
    assert!(lines.lines().any(|line| line == expected), "{lines}");
    let again = store(&home, &format!("take-out {}", file.display()));
    assert!(text(&again).contains("no record is set aside"), "{}", text(&again));
    let daemon = home.start().await;
    let status = operate(&home, "maintenance status").expect("it answers");
    assert!(!status.contains("StoreWhole"), "{status}");
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_layout_is_refused_by_all_and_left_alone() {
    let home = killed().await;
    put(&home, "meta", br#"{"schema":99,"secret":1,"operations":0}"#);
    put(&home, "dags/acme/web", br#"{"of":"another time"}"#);
    for act in ["check", "repair"] {
        let refused = store(&home, act);
        assert_eq!(refused.status.code(), Some(1), "{act}");
        let said = text(&refused);
        assert!(
            said.contains("layout 99") && said.contains("another version of snicd"),
            "{act}: {said}"
        );
        assert!(!said.contains("dags/acme/web"), "{act}: {said}");
    }
    let (status, log) = home.run_to_end();
    assert!(!status.success() && log.contains("layout 99"), "{log}");
    let dumped = text(&store(&home, "dump"));
    assert!(dumped.contains("another time"), "nothing was set aside: {dumped}");
}

#[test]
fn where_there_is_no_store_none_is_made() {
    let home = Home::new();
    for act in ["check", "dump", "repair"] {
        let refused = store(&home, act);
        assert_eq!(refused.status.code(), Some(1), "{act}");
        assert!(text(&refused).contains("find a store in"), "{}", text(&refused));
    }
    assert!(!home.path().join("store").exists());
}
