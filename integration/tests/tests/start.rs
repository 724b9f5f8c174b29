//! Starting and stopping: settings, a second daemon, damage, signals, output that nobody reads, and the quickstart.

#[path = "start/outputs.rs"]
mod outputs;
#[path = "start/signals.rs"]
mod signals;

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use snic_api::v1;
use snic_bitstream::catalogue::builtin;
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_integration::{Home, TestClient, program};

#[test]
fn a_damaged_settings_file_is_refused_with_line_and_key() {
    let home = Home::new();
    home.write_settings("colour = \"red\"");
    let (status, log) = home.run_to_end();
    assert!(!status.success());
    assert!(log.contains("snicd.toml:14:") && log.contains("colour"), "{log}");
}

/// As systemd hears it: a datagram socket that the environment names, and a time after which it would kill the daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_is_told_that_the_daemon_is_ready_alive_reloads_and_stops() {
    let home = Home::new();
    let socket = home.path().join("notify");
    let listener = UnixDatagram::bind(&socket).expect("a socket");
    listener.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let heard = |expected: &str| {
        let mut text = [0; 256];
        loop {
            let length =
                listener.recv(&mut text).unwrap_or_else(|error| panic!("{expected}: {error}"));
            if String::from_utf8_lossy(&text[..length]).lines().any(|line| line == expected) {
                return;
            }
        }
    };
    let mut command = home.command();
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "200000");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut daemon = command.spawn().expect("it starts");
    let process = Pid::from_child(&daemon);
    for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
        heard(expected);
    }
    kill_process(process, Signal::HUP).expect("it is there");
    for expected in ["RELOADING=1", "READY=1"] {
        heard(expected);
    }
    kill_process(process, Signal::TERM).expect("it is there");
    heard("STOPPING=1");
    assert!(daemon.wait().expect("it ends").success());
}

#[test]
fn an_unknown_card_model_names_those_there_are() {
    let home = Home::new();
    home.write_settings("[[cards]]\nid = \"card1\"\ndriver = \"sim\"\nmodel = \"sim-17\"");
    let (status, log) = home.run_to_end();
    assert!(!status.success());
    assert!(log.contains("sim-17") && log.contains("sim-16"), "{log}");
}

/// The shipped profile of `sim-16` under another name, with five regions, in a folder that the settings name.
fn home_with_a_profile(driver: &str, count: &str) -> Home {
    let home = Home::new();
    let profiles = home.path().join("profiles");
    std::fs::create_dir(&profiles).expect("a folder");
    let shipped = snic_bitstream::catalogue::BUILTIN.cards[0].text;
    let mine = shipped.replace("\"sim-16\"", "\"mine\"").replace("count = 14", count);
    std::fs::write(profiles.join("mine.toml"), mine).expect("a file");
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = text.replace("sim-16", "mine").replace("driver = \"sim\"", driver);
    std::fs::write(home.settings(), format!("profiles_dir = {profiles:?}\n{text}"))
        .expect("written");
    home
}

/// Number of the card's regions, once it is open.
async fn regions(client: &TestClient) -> usize {
    loop {
        let request = v1::ListRegionsRequest { parent: "cards/card0".into(), ..Default::default() };
        if let Ok(reply) = client.cards().list_regions(request).await {
            return reply.into_inner().regions.len();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_profile_of_the_operator_needs_no_other_build() {
    for driver in ["driver = \"sim\"", "driver = \"soft\""] {
        let home = home_with_a_profile(driver, "count = 3");
        let daemon = home.start().await;
        let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
        let regions = tokio::time::timeout(Duration::from_secs(30), regions(&client)).await;
        assert_eq!(regions.expect("the card opens"), 5, "{driver}");
        daemon.stop();
    }
}

/// As through MCAP: 4 MiB at 3 MB/s take 1.4 s, ten times what a load on a fast port may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ci: seconds of waiting"]
async fn a_card_with_a_slow_configuration_port_has_the_time_that_its_loads_need() {
    for driver in ["driver = \"sim\"", "driver = \"soft\""] {
        let home = home_with_a_profile(driver, "count = 3");
        let file = home.path().join("profiles/mine.toml");
        let fast = "configuration_bytes_per_second = 800_000_000";
        let profile = std::fs::read_to_string(&file).expect("it was written");
        assert!(profile.contains(fast), "{profile}");
        let slow = profile.replace(fast, "configuration_bytes_per_second = 3_000_000");
        std::fs::write(&file, slow).expect("written");
        let daemon = home.start().await;
        let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
        client.create_tenant("acme").await.expect("a new tenant");
        let catalogue = builtin().expect("the built-in catalogue");
        client.register_nt_types(&catalogue).await;
        let like = catalogue.card(&"sim-16".parse().expect("a label")).expect("it is there");
        let chain = catalogue.chains_for(&like.model).next().expect("a chain");
        let (mut bitstream, bytes) = catalogue.test_bitstream(chain, like).expect("it fits");
        assert_eq!(bytes.len(), 4 << 20);
        bitstream.card_model = "mine".parse().expect("a label");
        client.upload(&bitstream, bytes).await.expect("the part is the same");
        let (tenant, dag) = ("acme".parse().expect("a label"), "web".parse().expect("a label"));
        let spec = DagSpec::chain(&bitstream.nts, Bandwidth::from_mbps(10));
        let begun = Instant::now();
        let operation = client.create_dag(&DagName { tenant, dag }, &spec).await.expect("it fits");
        client.wait(&operation).await.expect("it is loaded");
        let took = begun.elapsed();
        println!("{driver}: loaded after {took:.2?}");
        assert!(took > Duration::from_millis(1_300), "{driver}: the port is not slow: {took:?}");
        daemon.stop();
    }
}

#[test]
fn a_mistake_in_a_card_profile_is_named_with_its_line() {
    let home = home_with_a_profile("driver = \"sim\"", "count = 99");
    let (status, log) = home.run_to_end();
    assert!(!status.success());
    assert!(log.contains("mine.toml:") && log.contains("regions[0].count: 99"), "{log}");
}

#[test]
fn tcp_needs_certificates() {
    let home = Home::new();
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = text.replace("[listen]", "[listen]\ntcp = \"127.0.0.1:0\"");
    std::fs::write(home.settings(), text).expect("settings");
    let (status, log) = home.run_to_end();
    assert!(!status.success());
    assert!(
        log.contains("tls.certificate: /etc/snic/pki/server.pem cannot be used: No such file"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_on_the_same_store_is_told_so_and_the_first_goes_on() {
    let home = Home::new();
    let daemon = home.start().await;
    let (status, log) = home.run_to_end();
    assert!(!status.success());
    assert!(log.contains("in use by another process"), "{log}");
    let client =
        TestClient::connect(&home.socket(), "operator/test").await.expect("the first serves");
    client.create_tenant("acme").await.expect("the first works");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_card_the_daemon_starts_and_says_why_nothing_fits() {
    let home = Home::new();
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = text.split("[[cards]]").next().expect("there is a first part").to_owned();
    std::fs::write(home.settings(), format!("cards = []\n{text}")).expect("settings");
    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    client.create_tenant("acme").await.expect("tenants need no card");
    let nt = v1::CreateNtTypeRequest {
        nt_type_id: "nat".into(),
        nt_type: Some(v1::NtType {
            shareable: true,
            bandwidth_max_bps: 1_000_000_000,
            latency_cycles: 1,
            area: Some(v1::Area { lut: 1, ramb36: 0, dsp: 0 }),
            traffic: v1::nt_type::Traffic::HeaderOnly.into(),
            ..Default::default()
        }),
        request_id: String::new(),
        validate_only: false,
    };
    client.network_tasks().create_nt_type(nt).await.expect("NT types need no card");
    let name =
        DagName { tenant: "acme".parse().expect("a label"), dag: "web".parse().expect("a label") };
    let nts = ["nat".parse().expect("a label")];
    let spec = DagSpec::chain(&nts, Bandwidth::from_mbps(10));
    let error = client.create_dag(&name, &spec).await.expect_err("no card");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert!(error.message().contains("card"), "{error:?}");
    drop(daemon);
}

/// Runs the quickstart to its end; returns its output.
fn quickstart(folder: &std::path::Path) -> String {
    let output = Command::new(program("snicd"))
        .args([
            "quickstart",
            "--exit",
            "--listen",
            "127.0.0.1:0",
            "--web",
            "127.0.0.1:0",
            "--traffic-us",
            "200",
            "--dir",
        ])
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .expect("snicd starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{log}");
    text
}

#[test]
fn the_quickstart_shows_regions_mappings_and_traffic_and_can_be_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = quickstart(folder.path());
    for part in [
        "cards/card0/regions/0: loading bitstreams/dag-d-sim-16",
        "tenants/acme/dags/dag-fork: READY",
        "Regions\n",
        "skipping 4 of its NTs",
        "Traffic\n",
        "table version): 0",
        "snicctl",
    ] {
        assert!(first.contains(part), "{part:?} is missing in\n{first}");
    }
    let second = quickstart(folder.path());
    assert!(second.contains("NT types: 12 registered, 0 new"), "{second}");
    assert!(second.contains("table version): 0"), "{second}");
}
