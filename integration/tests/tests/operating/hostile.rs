//! Text of a tenant that a terminal would obey, on every way to a person: snicctl in a terminal, the log, the audit files, a
//! support bundle, the page, metrics, and `snicd` reading the store. Nothing of it may be executed.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use snic_api::text::is_hidden;
use snic_api::v1;
use snic_domain::{Bandwidth, DagSpec};
use snic_integration::commands::{operate, shell};
use snic_integration::{Home, TestClient, free_address, furnished, metrics_page, program};
use snic_ports::store::{Batch, Store as _};
use snic_store_sled::{SledOptions, SledStore};
use tonic::{Request, Status};

/// Texts that a terminal obeys, that change the order or the width of a line, or begin another one; each has the word
/// `hostile`, by which it is found.
const HOSTILE: [&str; 8] = [
    "hostile\x1b]0;OWNED\x07\x1b[2J\x1b[5;5H\x1b[31;1;7m",
    "hostile\u{9b}31m\u{9d}0;OWNED\u{9c}\u{85}\u{90}q",
    "hostile\u{202e}fdp\u{2066}x\u{2069}\u{200e}\u{200f}\u{61c}",
    "hostile\nWRONG forged: line\r\nok    forged\r",
    "hostile\u{2028}forged\u{2029}line\u{b}\u{c}",
    "hostile\u{200b}\u{200d}\u{feff}\u{ad}\u{2060}\u{e0041}",
    "hostile\x08\x08\x08\x07\x7f\x0e\x0f\x05",
    "hostile\0nul\x1bPq#0;2;0;0;0\x1b\\\x1b[6n\x1b[c\x1b[?1049h",
];

fn all_at_once() -> String {
    HOSTILE.join(" ")
}

/// Longest description, filled with what takes most room as escapes.
fn long() -> String {
    let mut text = "hostile".to_owned();
    while text.len() < 1_020 {
        text.push('\x1b');
    }
    text
}

fn dag_with(text: &str) -> v1::Dag {
    let spec = DagSpec::chain(&["nat".parse().expect("an NT type")], Bandwidth::from_mbps(10));
    v1::Dag {
        nodes: snic_api::convert::dag::nodes_to_wire(&spec, snic_api::convert::dag::whole),
        bandwidth_bps: spec.bandwidth.get(),
        description: text.into(),
        ..Default::default()
    }
}

async fn create(
    client: &TestClient,
    id: &str,
    dag: v1::Dag,
    request_id: &str,
) -> Result<(), Status> {
    let request = v1::CreateDagRequest {
        parent: "tenants/acme".into(),
        dag_id: id.into(),
        dag: Some(dag),
        validate_only: false,
        request_id: request_id.into(),
    };
    client.dags().create_dag(request).await.map(drop)
}

/// A tenant that puts hostile text wherever it may name or describe something. What is refused, is refused for good.
async fn fill(tenant: &TestClient) {
    for (number, text) in HOSTILE.iter().enumerate() {
        let _ = create(tenant, &format!("d{number}"), dag_with(text), "").await;
        let refused = create(tenant, text, dag_with(""), "").await;
        refused.expect_err("no label");
        let mut labelled = dag_with("");
        labelled.labels = [((*text).to_owned(), (*text).to_owned())].into();
        let _ = create(tenant, &format!("l{number}"), labelled, "").await;
        let mut of_unknown = dag_with("");
        of_unknown.nodes[0].nt_type = (*text).to_owned();
        create(tenant, "unknown", of_unknown, "").await.expect_err("no such type");
        let mut renamed = dag_with("");
        renamed.nodes[0].id = (*text).to_owned();
        let _ = create(tenant, &format!("n{number}"), renamed, "").await;
        let mut configured = dag_with("");
        let value = prost_types::Value {
            kind: Some(prost_types::value::Kind::StringValue((*text).to_owned())),
        };
        let fields = [((*text).to_owned(), value)].into();
        configured.nodes[0].configuration = Some(prost_types::Struct { fields });
        let _ = create(tenant, &format!("c{number}"), configured, "").await;
        let _ = create(tenant, &format!("r{number}"), dag_with(""), text).await;
        let get = v1::GetDagRequest { name: format!("tenants/acme/dags/{text}") };
        tenant.dags().get_dag(get).await.expect_err("no such DAG");
        let delete = v1::DeleteDagRequest {
            name: format!("tenants/acme/dags/d{number}"),
            etag: (*text).to_owned(),
            ..Default::default()
        };
        tenant.dags().delete_dag(delete).await.expect_err("another etag");
        let list = v1::ListDagsRequest {
            parent: "tenants/acme".into(),
            filter: (*text).to_owned(),
            page_token: (*text).to_owned(),
            ..Default::default()
        };
        tenant.dags().list_dags(list).await.expect_err("no filter");
        let bind = v1::BindVmRequest {
            vm: (*text).to_owned(),
            tenant: "tenants/acme".into(),
            ..Default::default()
        };
        tenant.machines().bind_vm(bind).await.expect_err("no UUID");
        let mut traced = Request::new(v1::GetDagRequest { name: "tenants/acme/dags/web".into() });
        // Header values may have bytes of 128 and more, of which C1 in Latin-1 are some.
        if let Ok(value) =
            tonic::metadata::AsciiMetadataValue::try_from(&b"00-\x9b31m\xc2\x9b-\xff"[..])
        {
            traced.metadata_mut().insert("traceparent", value.clone());
            traced.metadata_mut().insert("user-agent", value);
        }
        let _ = tenant.dags().get_dag(traced).await;
    }
    create(tenant, "long", dag_with(&long()), "").await.expect("1024 bytes are allowed");
    create(tenant, "all", dag_with(&all_at_once()), "").await.expect("a description of one's own");
}

/// The first hidden character that is in a text and not allowed there.
fn hidden(text: &str, allowed: &str) -> Option<String> {
    let (at, found) = text.char_indices().find(|(_, c)| is_hidden(*c) && !allowed.contains(*c))?;
    let start = text[..at].char_indices().rev().nth(60).map_or(0, |(start, _)| start);
    Some(format!("{found:?} behind {:?}", &text[start..at]))
}

fn assert_visible(what: &str, text: &str, allowed: &str) {
    if let Some(found) = hidden(text, allowed) {
        panic!("{what}: {found}");
    }
}

/// Output of a command in a terminal of 200 by 60; keys are typed after a moment.
fn in_terminal(home: &Home, line: &str, keys: &str) -> String {
    let programs = program("snicctl").parent().expect("a folder").display().to_string();
    let mut command = Command::new("script");
    // util-linux: a terminal of its own for the command, whose output is copied to standard output.
    command.args(["-q", "-e", "-c"]).arg(format!("stty cols 200 rows 60; {line}")).arg("/dev/null");
    command.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()));
    command.env("SNICCTL_CONFIG", home.path().join("snicctl.toml")).env("TERM", "xterm-256color");
    command.env_remove("NO_COLOR").env_remove("COLUMNS");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("script is part of util-linux");
    let mut stdin = child.stdin.take().expect("it is piped");
    if !keys.is_empty() {
        std::thread::sleep(Duration::from_secs(3));
        stdin.write_all(keys.as_bytes()).expect("it reads");
    }
    let output = child.wait_with_output().expect("it ends");
    drop(stdin);
    String::from_utf8(output.stdout).expect("snicctl prints UTF-8")
}

/// Kinds of the control sequences in what a terminal got (ECMA-48, 5.4: CSI, parameters, intermediate bytes, a final byte),
/// and the text without them. Any other escape is a kind of its own.
fn sequences(text: &str) -> (BTreeSet<String>, String) {
    let (mut kinds, mut rest) = (BTreeSet::new(), String::new());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            rest.push(character);
            continue;
        }
        let mut kind: String = characters.next().into_iter().collect();
        if kind == "[" {
            for next in characters.by_ref() {
                match next {
                    '0'..='9' | ';' | ':' => {}
                    '@'..='~' => {
                        kind.push(next);
                        break;
                    }
                    other => kind.push(other),
                }
            }
        }
        kinds.insert(kind);
    }
    (kinds, rest)
}

/// Commands of an operator; `DAG` stands for a DAG's name.
const TYPED: [(&str, &str); 9] = [
    ("snicctl dag get acme/DAG", ""),
    ("snicctl dag list -A", ""),
    ("snicctl dag diagnose acme/DAG", ""),
    ("snicctl dag explain acme/DAG", ""),
    ("snicctl rule get DAG", ""),
    ("snicctl audit", ""),
    ("snicctl events", ""),
    ("snicctl operation list", ""),
    ("snicctl top", "q"),
];

/// Two daemons: one whose tenant is hostile, one whose tenant is not. The terminal of the first gets no sequence that the
/// second's does not get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_executes_nothing_of_a_tenants_text() {
    let (home, plain) = (Home::new(), Home::new());
    let daemons = [home.start().await, plain.start().await];
    for (home, is_hostile) in [(&home, true), (&plain, false)] {
        furnished(home, &["web"]).await;
        let tenant = TestClient::connect(&home.socket(), "tenant/acme").await.expect("it serves");
        let text = if is_hostile { all_at_once() } else { "plain text".to_owned() };
        if is_hostile {
            fill(&tenant).await;
        } else {
            create(&tenant, "all", dag_with(&text), "").await.expect("there is room");
            create(&tenant, "No Label", dag_with(""), "").await.expect_err("no label");
        }
        let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
        let mut rule = v1::Rule { dag: "tenants/acme/dags/all".into(), ..Default::default() };
        rule.description = text;
        rule.r#match = Some(v1::PacketMatch { virtual_function: Some(0), ..Default::default() });
        let request =
            v1::CreateRuleRequest { rule_id: "all".into(), rule: Some(rule), ..Default::default() };
        client.rules().create_rule(request).await.expect("a rule");
        operate(home, "tenant list").expect("it serves");
    }
    let (mut kinds, mut seen) = (BTreeSet::new(), String::new());
    for (line, keys) in TYPED {
        let line = line.replace("DAG", "all");
        kinds.extend(sequences(&in_terminal(&plain, &line, keys)).0);
        let shown = in_terminal(&home, &line, keys);
        let (of_hostile, text) = sequences(&shown);
        let strange: Vec<_> = of_hostile.difference(&kinds).collect();
        assert!(strange.is_empty(), "{line}: {strange:?} in {shown:?}");
        // A terminal gets a carriage return before each line break.
        assert_visible(&line, &text.replace("\r\n", "\n").replace(['\r'], ""), "\n\t");
        assert!(!shown.replace("\r\n", "").contains('\r') || keys == "q", "{line}: {shown:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("WRONG forged")), "{text}");
        seen += &text;
    }
    assert!(seen.contains("hostile\\u{1b}]0;OWNED\\u{7}"), "it is shown, as text: {seen}");
    assert!(kinds.contains("[m"), "snicctl uses colours in a terminal: {kinds:?}");
    for daemon in daemons {
        assert!(daemon.stop().0.success());
    }
}

/// A request of a browser; gives what comes within two seconds.
fn browse(address: SocketAddr, path: &str, cookie: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the page is served");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    let (mut bytes, mut part, until) =
        (Vec::new(), [0; 65_536], Instant::now() + Duration::from_secs(2));
    while Instant::now() < until {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// All that the page's script gets: the stream, and what is fetched for a DAG.
fn page(home: &Home, address: SocketAddr) -> String {
    let key = std::fs::read_to_string(home.path().join("store/page.key")).expect("a key");
    let opened = browse(address, &format!("/?key={}", key.trim()), "");
    let cookie = opened.lines().find_map(|line| {
        line.to_ascii_lowercase().starts_with("set-cookie: ").then(|| &line["set-cookie: ".len()..])
    });
    let cookie = cookie.expect("a cookie").split(';').next().expect("a part");
    ["/stream", "/explanation/acme/all", "/diagnosis/acme/all", "/history/acme", "/account/acme"]
        .map(|path| browse(address, path, cookie))
        .concat()
}

/// All files of a folder as text, by name.
fn files(folder: &Path) -> Vec<(String, String)> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let text = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).expect("a file");
        (path.display().to_string(), String::from_utf8(bytes).expect("UTF-8"))
    };
    entries.filter(|path| path.is_file()).map(|path| text(&path)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_audit_bundles_page_metrics_and_store_show_a_tenants_text_escaped() {
    let home = Home::new();
    let (metrics, web) = (free_address(), free_address());
    home.write_settings(&format!(
        "[telemetry]\nprometheus = \"{metrics}\"\n[web]\nlisten = \"{web}\"\ninsecure_plaintext = true"
    ));
    let daemon = home.start().await;
    furnished(&home, &["web"]).await;
    let tenant = TestClient::connect(&home.socket(), "tenant/acme").await.expect("it serves");
    fill(&tenant).await;
    for words in ["dag list -A", "audit", "events", "operation list", "dag get acme/long"] {
        for format in ["table", "json", "yaml"] {
            let text = operate(&home, &format!("{words} -o {format}")).expect("it serves");
            assert_visible(&format!("{words} -o {format}"), &text, "\n\t");
        }
    }
    let listed = operate(&home, "dag list -A -o json").expect("it serves");
    assert!(listed.contains("hostile\\u001b]0;OWNED"), "escaped, and not left out: {listed}");
    let bundle = home.path().join("support.tar.gz");
    operate(&home, &format!("support-bundle -f {}", bundle.display())).expect("a bundle");
    for (name, text) in super::parts(&home, &bundle) {
        assert_visible(&name, &text, "\n\t");
    }
    assert_visible("metrics", &metrics_page(metrics), "\n");
    let shown = page(&home, web);
    assert!(shown.contains("acme/dags/all") || shown.contains("acme/all"), "{shown}");
    assert_visible("page", &shown, "\r\n\t");
    for (name, text) in files(&home.path().join("store/audit")) {
        assert!(text.contains("CreateDag"), "{name}: {text}");
        assert_visible(&name, &text, "\n");
    }
    let (status, log) = daemon.stop();
    assert!(status.success());
    assert_visible("log", &log, "\n\t");

    // A store that says anything: keys and records that no daemon of ours has written.
    let opened = SledStore::open(&home.path().join("store"), SledOptions::default());
    let store = opened.expect("no daemon runs").store;
    let mut batch = Batch::new();
    for text in HOSTILE {
        let record = format!("{{\"schema\":1,\"{text}\":\"{text}\"}}");
        for key in [format!("dags/acme/{text}"), format!("{text}/a"), format!("rules/{text}")] {
            batch = batch.put(&key, record.as_bytes());
        }
    }
    store.apply(batch).expect("there is room");
    store.close();
    let settings = home.settings().display().to_string();
    for words in ["store check", "store dump", "doctor", "store repair", "store check"] {
        let said = shell(&home, &format!("snicd {words} -c {settings} 2>&1"));
        let said = said.unwrap_or_else(|said| said);
        assert!(words == "doctor" || said.contains("hostile"), "{words}: {said}");
        assert_visible(words, &said, "\n\t");
        let forged =
            |line: &&str| line.starts_with("WRONG forged") || line.starts_with("ok    forged");
        assert_eq!(said.lines().find(forged), None, "{words}: {said}");
    }
    // Keys that no daemon knows are left alone, and a start refuses the store with their names.
    let (status, log) = home.run_to_end();
    assert!(!status.success() && log.contains("hostile"), "{log}");
    assert_visible("log of a start", &log, "\n\t");
}
