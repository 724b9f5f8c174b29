//! An operator's work with a running daemon: maintenance, audit, backup and restore, support
//! bundles; across `kill -9` and restarts.

#[path = "operating/catalogue.rs"]
mod catalogue;
#[path = "operating/dry_runs.rs"]
mod dry_runs;
#[path = "operating/hostile.rs"]
mod hostile;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use snic_api::error::reason_of;
use snic_api::v1::dag::State;
use snic_api::v1::{ErrorReason, ListAuditEntriesRequest};
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_integration::commands::{operate_with, shell};
use snic_integration::{Home, TestClient, program};
use tonic::Code;

/// The trace of an operator's script.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn name(text: &str) -> DagName {
    let (tenant, dag) = text.split_once('/').expect("tenant/dag");
    DagName { tenant: tenant.parse().expect("a label"), dag: dag.parse().expect("a label") }
}

fn spec() -> DagSpec {
    DagSpec::chain(&["nat".parse().expect("an NT type")], Bandwidth::from_gbps(1))
}

/// `snicctl` with an identity, and contexts of its own.
fn snicctl(home: &Home, identity: &str, words: &[&str]) -> Output {
    let contexts = home.path().join(format!("{}.toml", identity.replace('/', "-")));
    let run = |words: &[&str]| {
        let mut command = Command::new(program("snicctl"));
        command.env("SNICCTL_CONFIG", &contexts).args(words);
        command.env("TRACEPARENT", format!("00-{TRACE}-00f067aa0ba902b7-01"));
        command.output().expect("snicctl starts")
    };
    if !contexts.exists() {
        let endpoint = format!("unix:{}", home.socket().display());
        let set = ["context", "set", "it", "--endpoint", &endpoint, "--identity", identity];
        assert!(run(&set).status.success());
        assert!(run(&["context", "use", "it"]).status.success());
    }
    run(words)
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// A home whose daemon logs JSON.
fn home() -> Home {
    let home = Home::new();
    let settings = std::fs::read_to_string(home.settings()).expect("settings");
    let settings = settings.replace("filter = \"info\"", "filter = \"info\"\nformat = \"json\"");
    std::fs::write(home.settings(), settings).expect("settings");
    home
}

async fn furnish(home: &Home) -> TestClient {
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    client.register(&snic_bitstream::catalogue::builtin().expect("the catalogue")).await;
    for tenant in ["acme", "globex"] {
        client.create_tenant(tenant).await.expect("a tenant");
    }
    client
}

async fn until_ready(client: &TestClient, wanted: &str) {
    loop {
        let dags = client.list_dags().await;
        if dags.iter().any(|dag| dag.name == wanted && dag.state() == State::Ready) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// The state changes of a resource in the log, in order.
fn changes(log: &str, field: &str, subject: &str) -> Vec<(String, String)> {
    // One line of JSON an event; a field is found by its text.
    let value = |line: &str, field: &str| {
        let (_, rest) = line.split_once(&format!("\"{field}\":"))?;
        let end = rest.find([',', '}'])?;
        Some(rest[..end].trim_matches('"').to_owned())
    };
    let lines = log.lines().filter(|line| line.contains(" changed state\""));
    let of = lines.filter(|line| value(line, field).as_deref() == Some(subject));
    of.map(|line| (value(line, "from").expect("from"), value(line, "to").expect("to"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maintenance_and_audit_survive_a_kill() {
    let home = home();
    let daemon = home.start().await;
    let client = furnish(&home).await;
    let operation = client.create_dag(&name("acme/web"), &spec()).await.expect("there is room");
    client.wait(&operation).await.expect("it is ready");
    let on = snicctl(&home, "operator/test", &["maintenance", "on", "--reason", "new firmware"]);
    assert!(text(&on).contains("by operator:test: new firmware"), "{}", text(&on));
    let refused = client.create_dag(&name("acme/more"), &spec()).await.expect_err("maintenance");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&refused), Some(ErrorReason::UnderMaintenance));
    assert!(refused.message().contains("new firmware"), "{refused}");
    let log = daemon.kill();

    let found = changes(&log, "dag", "tenants/acme/dags/web");
    assert_eq!(found.first().map(|(from, _)| from.as_str()), Some("NEW"), "{log}");
    assert_eq!(found.last().map(|(_, to)| to.as_str()), Some("READY"), "{found:?}");
    assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].0), "no state is left out: {found:?}");
    let all: Vec<_> = (0..16).flat_map(|n| changes(&log, "region", &n.to_string())).collect();
    let ends: Vec<&str> = all.iter().map(|(_, to)| to.as_str()).collect();
    assert!(ends.contains(&"RECONFIGURING") && ends.contains(&"ACTIVE"), "{all:?}");

    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    until_ready(&client, "tenants/acme/dags/web").await;
    client.create_dag(&name("acme/more"), &spec()).await.expect_err("still maintenance");
    let off = snicctl(&home, "operator/test", &["maintenance", "off"]);
    assert!(text(&off).starts_with("off"), "{}", text(&off));
    client.create_dag(&name("globex/own"), &spec()).await.expect("taken in again");

    let request = ListAuditEntriesRequest { page_size: 1_000, ..Default::default() };
    let entries = client.audit().list_audit_entries(request).await.expect("a page").into_inner();
    let numbers: Vec<u64> = entries.entries.iter().map(|entry| entry.number).collect();
    let count = numbers.len() as u64;
    assert_eq!(numbers, (1..=count).rev().collect::<Vec<_>>(), "nothing is lost or twice");
    let by =
        |method: &'static str| entries.entries.iter().filter(move |e| e.method.ends_with(method));
    assert_eq!(by("SetMaintenance").count(), 2);
    assert!(by("SetMaintenance").all(|entry| entry.trace_id == TRACE), "of the script's trace");
    let refusals: Vec<&str> =
        by("CreateDag").filter(|e| e.code != "OK").map(|e| e.reason.as_str()).collect();
    assert_eq!(refusals, ["UNDER_MAINTENANCE"; 2], "before the kill and after it");
    let globex = text(&snicctl(&home, "tenant/globex", &["audit"]));
    assert!(globex.contains("operator CreateDag tenants/globex/dags/own: OK"), "{globex}");
    assert!(!globex.contains("acme"), "{globex}");
    daemon.stop();
}

/// Output of `get` can be applied and changes nothing, for each kind; and files make a daemon as they say, across a kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_applied_and_what_is_printed_can_be_applied_again() {
    let home = home();
    let daemon = home.start().await;
    let client = furnish(&home).await;
    let image = home.path().join("pad.bit").display().to_string();
    let built = ["bitstream", "build-test", "--model", "sim-16", "--nts", "nat,firewall", &image];
    assert!(snicctl(&home, "operator/test", &built).status.success());
    let file = home.path().join("all.yaml").display().to_string();
    let resources = |weight: u32, gbps: u32| {
        format!(
            "{{name: initech/web, bandwidth: {gbps}Gbps, chain: nat -> firewall, labels: {{app: shop}}}}\n---\n\
             kind: tenant\nname: initech\nweight: {weight}\nquota: {{bandwidth_max_bps: 30Gbps}}\n---\n\
             kind: rule\nname: web-in\npriority: 7\ndag: initech/web\nmatch: {{source_prefix: 10.1.0.0/16}}\n---\n\
             kind: bitstream\nname: pair-sim-16\nfile: pad.bit\nnts: [nat, firewall]\n\
             region_kind: known-nt\ncard_model: sim-16\nshareable: true\n"
        )
    };
    let apply = |more: &[&str]| {
        let applied = snicctl(&home, "operator/test", &[&["apply", "-f", &file], more].concat());
        assert!(applied.status.success(), "{}", text(&applied));
        text(&applied)
    };
    std::fs::write(&file, resources(2, 1)).expect("a file");
    assert_eq!(apply(&["--dry-run"]).matches("would create").count(), 4);
    assert!(!client.list_dags().await.iter().any(|dag| dag.name.contains("initech")));
    assert_eq!(apply(&["--wait"]).matches("created").count(), 4);
    let log = daemon.kill();
    assert!(!log.contains("panicked"), "{log}");

    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    until_ready(&client, "tenants/initech/dags/web").await;
    assert_eq!(apply(&[]).matches("unchanged").count(), 4, "the file is as it was");
    for (noun, name) in [
        ("tenant", "initech"),
        ("nt", "nat"),
        ("bitstream", "pair-sim-16"),
        ("dag", "initech/web"),
        ("rule", "web-in"),
    ] {
        for format in ["yaml", "json"] {
            let printed = snicctl(&home, "operator/test", &[noun, "get", name, "-o", format]);
            let path = home.path().join("printed").display().to_string();
            std::fs::write(&path, &printed.stdout).expect("a file");
            let again = snicctl(&home, "operator/test", &["apply", "-f", &path]);
            assert!(text(&again).starts_with("unchanged "), "{noun}: {}", text(&again));
        }
    }
    std::fs::write(&file, resources(3, 2)).expect("a file");
    let diff = apply(&["--diff", "--wait"]);
    assert!(diff.contains("  - weight: 2\n  + weight: 3\n"), "{diff}");
    assert!(diff.contains("  + bandwidth_bps: 2000000000\n"), "{diff}");
    let (web, rest) = resources(3, 2)
        .split_once("---\n")
        .map(|(w, r)| (w.to_owned(), r.to_owned()))
        .expect("two");
    std::fs::write(&file, format!("{}---\n{rest}", web.replace("initech/web", "initech/shop")))
        .expect("a file");
    let pruned = apply(&["--prune", "-l", "app=shop", "--wait"]);
    assert!(pruned.contains("deleted tenants/initech/dags/web"), "{pruned}");
    let foreign = snicctl(&home, "tenant/acme", &["apply", "-f", &file]);
    assert!(!foreign.status.success() && !text(&foreign).contains("created"), "{}", text(&foreign));
    daemon.stop();
}

fn restore(home: &Home, file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(program("snicd"));
    command.arg("restore").arg("--config").arg(home.settings()).args(more).arg(file);
    command.output().expect("snicd starts")
}

/// The parts of a support bundle.
pub(crate) fn parts(home: &Home, bundle: &Path) -> BTreeMap<String, String> {
    let folder = home.path().join("bundle");
    std::fs::create_dir(&folder).expect("a folder");
    let tar = Command::new("tar").arg("xzf").arg(bundle).arg("-C").arg(&folder).status();
    assert!(tar.expect("tar is there").success(), "a tar.gz");
    let files = std::fs::read_dir(folder.join("snic-support")).expect("its folder");
    files
        .map(|file| {
            let file = file.expect("a file");
            let content = std::fs::read_to_string(file.path()).expect("text");
            (file.file_name().into_string().expect("text"), content)
        })
        .collect()
}

/// Writes a support bundle, and returns its parts.
fn support(home: &Home) -> BTreeMap<String, String> {
    let bundle = home.path().join("support.tar.gz");
    let words = ["support-bundle", "-f", &bundle.display().to_string()];
    let gathered = snicctl(home, "operator/test", &words);
    assert!(gathered.status.success(), "{}", text(&gathered));
    let parts = parts(home, &bundle);
    for (part, says) in [
        ("versions.txt", "snicd 0"),
        ("versions.txt", "\nLinux "),
        ("settings.toml", "data_dir"),
        ("metrics.txt", "snic_card_up"),
        ("log.txt", "changed state"),
        ("dags.json", "tenants/acme/dags/web"),
        ("regions.json", "ACTIVE"),
        ("audit.json", "CreateDag"),
        ("cards.json", "sim-16"),
    ] {
        let found = parts.get(part).unwrap_or_else(|| panic!("no {part}: {:?}", parts.keys()));
        assert!(found.contains(says), "{part} does not say {says}: {found}");
    }
    assert!(parts.keys().all(|part| !part.ends_with(".error.txt")), "{:?}", parts.keys());
    parts
}

/// Whatever is wrong with a backup, the second daemon's store is not touched.
fn refuses_what_is_no_backup(second: &Home, bytes: &[u8]) {
    for (what, wrong) in [
        ("cut", bytes[..bytes.len() / 2].to_vec()),
        ("without its end", bytes[..bytes.len() - 1].to_vec()),
        ("foreign", b"SQLite format 3\0".to_vec()),
        ("damaged", {
            let mut bytes = bytes.to_vec();
            bytes[200] ^= 1;
            bytes
        }),
    ] {
        let wrong_file = second.path().join("wrong");
        std::fs::write(&wrong_file, wrong).expect("written");
        let refused = restore(second, &wrong_file, &[]);
        assert!(!refused.status.success(), "{what}");
        assert!(text(&refused).contains("is not a valid backup"), "{what}: {}", text(&refused));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_running_daemon_becomes_another_one() {
    let first = home();
    let daemon = first.start().await;
    let client = furnish(&first).await;
    let operation = client.create_dag(&name("acme/web"), &spec()).await.expect("there is room");
    client.wait(&operation).await.expect("it is ready");
    let file: PathBuf = first.path().join("backup");
    let path = file.display().to_string();
    // Changes go on meanwhile.
    let busy = {
        let client = client.clone();
        tokio::spawn(async move {
            for number in 0_u32.. {
                let dag = name(&format!("globex/d{number}"));
                if client.create_dag(&dag, &spec()).await.is_err() {
                    return;
                }
                client.delete_dag(&dag).await.expect("it was made");
            }
        })
    };
    let made = snicctl(&first, "operator/test", &["backup", "-f", &path]);
    assert!(made.status.success(), "{}", text(&made));
    busy.abort();
    let tenants_own = snicctl(&first, "tenant/acme", &["backup", "-f", "/nonexistent/x"]);
    assert_eq!(tenants_own.status.code(), Some(6), "{}", text(&tenants_own));

    let parts = support(&first);
    let running = restore(&first, &file, &["--replace"]);
    assert!(!running.status.success() && text(&running).contains("in use"), "{}", text(&running));
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");

    // What operation ids are made from is in the store, and in no log and no bundle.
    let bytes = std::fs::read(&file).expect("the backup");
    let secret = String::from_utf8_lossy(&bytes);
    let (_, secret) = secret.split_once("\"secret\":").expect("in the records");
    let secret: String = secret.chars().take_while(char::is_ascii_digit).collect();
    assert!(secret.len() > 5, "{secret}");
    assert!(!log.contains(&secret));
    for (part, content) in &parts {
        assert!(!content.contains(&secret) && !content.contains("PRIVATE KEY"), "{part}");
    }

    let second = home();
    refuses_what_is_no_backup(&second, &bytes);
    assert!(!second.path().join("store").exists(), "nothing was touched");
    let restored = restore(&second, &file, &[]);
    assert!(restored.status.success(), "{}", text(&restored));
    let again = restore(&second, &file, &[]);
    assert!(text(&again).contains("--replace"), "{}", text(&again));
    let daemon = second.start().await;
    let client = TestClient::connect(&second.socket(), "operator/test").await.expect("it serves");
    until_ready(&client, "tenants/acme/dags/web").await;
    daemon.stop();
}

/// An operator at a narrow terminal looks for why nothing is placed any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cordons_are_in_lists_refusals_and_events_and_everything_fits_60_columns() {
    let home = Home::new();
    let daemon = home.start().await;
    let client = furnish(&home).await;
    let operation = client.create_dag(&name("acme/web"), &spec()).await.expect("there is room");
    client.wait(&operation).await.expect("it is ready");
    let run = |words: &str| operate_with(&home, "COLUMNS=60", words);
    let said = |words: &str| run(words).unwrap_or_else(|said| panic!("{words}: {said}"));
    assert!(!said("card list").contains("CORDONED"), "nothing is");
    said("region cordon card0/3");
    assert!(said("card list").contains("1 of 16 regions"), "{}", said("card list"));
    assert!(said("region list").contains("card0/3 (cordoned)"));
    assert!(said("card get card0").contains("1 cordoned"));
    said("card cordon card0");
    assert!(said("card list").contains("16 of 16 regions"));
    std::fs::write(
        home.path().join("api.yaml"),
        "name: api\ntenant: acme\nbandwidth: 1Gbps\nchain: aes\n",
    )
    .expect("a file");
    let refused = run(&format!("dag create -f {}", home.path().join("api.yaml").display()));
    let refused = refused.expect_err("nothing new is placed");
    assert!(refused.contains("16 of the card's 16 regions are cordoned"), "{refused}");
    assert!(
        refused.contains("snicctl card uncordon") && !refused.contains("less bandwidth"),
        "{refused}"
    );

    // A watch has the same filters as a list; it goes on until it is stopped.
    let follow = "snicctl events --follow --since 1h --filter 'kind = CORDONED' & sleep 2; kill $!; wait $! || true";
    let followed = shell(&home, follow).expect("it is stopped");
    let kinds: Vec<&str> =
        followed.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(kinds, ["CORDONED", "CORDONED"], "one for a region, one for the others: {followed}");
    said("card uncordon card0");
    said("region drain card0/0 --wait");
    let events = said("events --since 1h");
    for kind in ["CORDONED", "UNCORDONED", "DRAIN_STARTED", "DRAIN_ENDED"] {
        assert!(events.contains(kind), "{kind}: {events}");
    }
    assert!(!said("events --severity warning").contains("CORDONED"), "a cordon is no trouble");

    for words in [
        "card list",
        "card get card0",
        "region list",
        "region get card0/0",
        "dag list",
        "dag get acme/web",
        "dag explain acme/web",
        "dag diagnose acme/web",
        "bitstream list",
        "nt list",
        "tenant list",
        "tenant get acme",
        "operation list",
        "fairness get",
        "fairness get acme",
        "rule list",
        "vm list",
    ] {
        let text = said(words);
        for line in text.lines() {
            let width = line.chars().count();
            assert!(width <= 60, "{words}: {width} columns: {line}\n{text}");
        }
    }
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
