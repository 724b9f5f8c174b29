//! `snicctl traffic run` and the quick start's hosts, with real processes and without rights.
//!
//! The report of a run is compared with what the card counts for the DAG, with what was asked for, and with
//! packets that a capture took.

use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use snic_api::v1;
use snic_api::v1::dag::State;
use snic_domain::{Bandwidth, DagName, DagSpec, NtConfiguration};
use snic_integration::{DaemonProcess, Home, TestClient, program};

const PATIENCE: Duration = Duration::from_secs(60);

fn dag() -> DagName {
    let (tenant, dag) = ("acme".parse().expect("a label"), "web".parse().expect("a label"));
    DagName { tenant, dag }
}

/// A daemon with a ready DAG `acme/web`, and contexts of its tenant.
struct Site {
    home: Home,
    daemon: Option<DaemonProcess>,
    client: TestClient,
}

impl Site {
    async fn new(home: Home, nts: &[(&str, Option<Value>)], bandwidth: Bandwidth) -> Self {
        let daemon = Some(home.start().await);
        let client = snic_integration::furnished(&home, &[]).await;
        let ids: Vec<_> = nts.iter().map(|(nt, _)| nt.parse().expect("a label")).collect();
        let mut spec = DagSpec::chain(&ids, bandwidth);
        for (node, (_, told)) in spec.nodes.iter_mut().zip(nts) {
            node.configuration = told.as_ref().map(|told| NtConfiguration::new(&told.to_string()));
        }
        let operation = client.create_dag(&dag(), &spec).await.expect("there is room");
        client.wait(&operation).await.expect("it becomes ready");
        let site = Self { home, daemon, client };
        let endpoint = format!("unix:{}", site.home.socket().display());
        let set = ["context", "set", "it", "--endpoint", &endpoint, "--identity", "tenant/acme"];
        assert!(site.snicctl(&set).output().expect("it starts").status.success());
        let used = site.snicctl(&["context", "use", "it"]).output().expect("it starts");
        assert!(used.status.success());
        site
    }

    fn snicctl(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program("snicctl"));
        command.env("SNICCTL_CONFIG", self.home.path().join("contexts.toml")).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A run of traffic to its end, as JSON.
    fn run(&self, words: &str) -> Value {
        let words = format!("traffic run --dag acme/web {words} -o json");
        let output = self.snicctl(&words.split(' ').collect::<Vec<_>>()).output();
        let Output { status, stdout, stderr } = output.expect("it starts");
        assert!(status.success(), "{words}: {}", String::from_utf8_lossy(&stderr));
        serde_json::from_slice(&stdout).expect("JSON")
    }

    /// Counts of the card for the DAG, as soon as it counts as many packets.
    async fn counted(&self, packets: u64) -> v1::DagTraffic {
        let until = Instant::now() + PATIENCE;
        loop {
            let dags = self.client.list_dags().await;
            let traffic = dags.iter().find_map(|dag| dag.traffic.clone()).unwrap_or_default();
            if traffic.packets_in >= packets {
                return traffic;
            }
            assert!(Instant::now() < until, "{traffic:?}, and {packets} were sent");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.daemon.take().map(DaemonProcess::kill);
        self.home.kill_card();
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("it runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_simulated_card_a_run_reports_what_the_card_counts() {
    let nts = [("nat", None), ("firewall", None)];
    let site = Site::new(Home::new(), &nts, Bandwidth::from_gbps(2)).await;
    let seen = site.run("--rate 500Mbps --size imix --for 2s");
    let (offered, served) = (number(&seen, "packets_offered"), number(&seen, "packets_served"));
    assert_eq!((offered, seen["lost_percent"].as_f64()), (served, Some(0.0)), "promised: {seen}");
    // 500 Mbit/s by the card's clock: of the Internet mix, within a large packet or so.
    let rate = number(&seen, "offered_bps") as f64;
    assert!((rate / 5e8 - 1.0).abs() < 0.01, "{seen}");
    // The mean of the mix is 4,342 bytes of twelve packets; draws of 173,000 packets differ by less than 1 %.
    let seconds = seen["card_seconds"].as_f64().expect("a number");
    let expected = 5e8 * seconds / 8.0 / (4_342.0 / 12.0);
    assert!((offered as f64 / expected - 1.0).abs() < 0.01, "{expected} packets: {seen}");
    let counted = site.counted(offered).await;
    assert_eq!((counted.packets_in, counted.packets_out), (offered, served), "{counted:?}");
    // Alone on the card: core 49 cycles, NTs, no queue; far less than 10 us.
    let latency = &seen["latency_ns"];
    assert!((196..10_000).contains(&number(latency, "p50")), "{seen}");
    assert!(number(latency, "min") <= number(latency, "p50"), "{seen}");
    assert!(number(latency, "p99") <= number(latency, "max"), "{seen}");

    // Sizes of a capture file, one after the other; no card sends the second frame.
    let file = site.home.path().join("three.pcap");
    let frames: [&[u8]; 4] = [&[0; 100], &[0; 9_300], &[0; 200], &[0; 300]];
    std::fs::write(&file, pcap(&frames)).expect("a file");
    let seen = site.run(&format!("--rate 100Mbps --size pcap:{} --for 1s", file.display()));
    let mean = number(&seen, "offered_bps") as f64
        * seen["card_seconds"].as_f64().expect("a number")
        / 8.0
        / number(&seen, "packets_offered") as f64;
    assert!((mean - 200.0).abs() < 0.1, "{mean}: {seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_a_run_with_its_report_and_no_more_packets_come() {
    let site = Site::new(Home::new(), &[("nat", None)], Bandwidth::from_gbps(2)).await;
    let words = ["traffic", "run", "--dag", "acme/web", "--rate", "100Mbps", "--for", "5m"];
    let child = site.snicctl(&words).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(3_500));
    interrupt(&child);
    let output = child.wait_with_output().expect("it was started");
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("OFFERED") && said.contains("Latency  min "), "{said}");
    assert!(errors.lines().filter(|line| line.contains("offered")).count() >= 2, "{errors}");
    // The card is told within a second, and counters are read each second.
    std::thread::sleep(Duration::from_secs(3));
    let before = site.counted(1).await.packets_in;
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(site.counted(1).await.packets_in, before, "somebody still sends");
    let audited = site.snicctl(&["audit"]).output().expect("it starts");
    assert!(text(&audited.stdout).contains("RunTraffic"), "{}", text(&audited.stdout));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A capture file of these frames.
fn pcap(frames: &[&[u8]]) -> Vec<u8> {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    let mut file: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    for frame in frames {
        let length = frame.len() as u32;
        file.extend([0, 0, length, length].into_iter().flat_map(u32::to_le_bytes));
        file.extend(*frame);
    }
    file
}

/// The packets of a pcapng file in this byte order, by the name of their interface.
fn packets(file: &[u8]) -> Vec<(String, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut places, mut packets) = (0, Vec::new(), Vec::new());
    while at < file.len() {
        match word(at) {
            1 => {
                // Its first option is its name.
                let bytes = (word(at + 16) >> 16) as usize;
                places.push(text(&file[at + 20..at + 20 + bytes]));
            }
            6 => {
                let bytes = word(at + 20) as usize;
                let place = places[word(at + 8) as usize].clone();
                packets.push((place, file[at + 28..at + 28 + bytes].to_vec()));
            }
            _ => {}
        }
        at += word(at + 4) as usize;
    }
    packets
}

/// The ones' complement sum of words (RFC 1071), which is 0xffff where a checksum in it is right.
fn sum(words: &[u8], start: u32) -> u32 {
    let mut sum = start;
    for word in words.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_software_card_packets_have_bytes_that_tasks_judge_and_that_leave_by_no_port() {
    let home = Home::new();
    let [guest, uplink] = ["guest.sock", "up.sock"].map(|name| home.path().join(name));
    let port = |path: &Path| format!("unix:{}", path.display());
    home.write_soft_settings(&format!(
        "uplink = {:?}\nfunctions = [{:?}]",
        port(&uplink),
        port(&guest)
    ));
    let rules = json!({"rules": [
        {"action": "accept", "protocol": "udp", "destination_ports": "4000"},
    ]});
    let nts = [("firewall", Some(rules))];
    let site = Site::new(home, &nts, Bandwidth::from_gbps(1)).await;
    let mut hosts = [&guest, &uplink].map(|path| UnixStream::connect(path).expect("a port"));

    let file = site.home.path().join("run.pcapng");
    let written = file.display().to_string();
    let words = ["capture", "--dag", "acme/web", "-w", &written, "--for", "4s"];
    let capture = site.snicctl(&words).spawn().expect("it starts");
    std::thread::sleep(Duration::from_secs(1));
    let to = "--destination 192.0.2.9 --destination-port 4000 --source 192.0.2.8 --flows 3";
    let seen = site.run(&format!("--rate 1Mbps --size 64:1,777:1 --for 2s {to}"));
    let (offered, served) = (number(&seen, "packets_offered"), number(&seen, "packets_served"));
    assert!(offered > 100 && offered == served, "the rule accepts them: {seen}");
    assert!((number(&seen, "offered_bps") as f64 / 1e6 - 1.0).abs() < 0.05, "{seen}");
    let counted = site.counted(offered).await;
    assert_eq!((counted.packets_in, counted.packets_out), (offered, served), "{counted:?}");

    let captured = capture.wait_with_output().expect("it was started");
    assert!(captured.status.success(), "{}", text(&captured.stderr));
    let captured = packets(&std::fs::read(&file).expect("a file"));
    let came: Vec<_> = captured.iter().filter(|(place, _)| place == "in").collect();
    assert_eq!(came.len() as u64, offered);
    let mut ports = std::collections::BTreeSet::new();
    for (_, frame) in came {
        assert!([64, 777].contains(&frame.len()) && frame[12..14] == [8, 0], "{frame:?}");
        assert_eq!(sum(&frame[14..34], 0), 0xffff, "the header's checksum");
        assert_eq!(frame[26..34], [192, 0, 2, 8, 192, 0, 2, 9]);
        let udp = &frame[34..];
        assert_eq!(u16::from_be_bytes([udp[4], udp[5]]) as usize, udp.len());
        assert_eq!(u16::from_be_bytes([udp[2], udp[3]]), 4_000);
        let pseudo = sum(&frame[26..34], 17 + udp.len() as u32);
        assert_eq!(sum(udp, pseudo), 0xffff, "the UDP checksum");
        ports.insert(u16::from_be_bytes([udp[0], udp[1]]));
    }
    assert_eq!(ports.into_iter().collect::<Vec<_>>(), [49_152, 49_153, 49_154]);

    let denied = site.run("--rate 1Mbps --size 64 --for 1s");
    let all = number(&denied, "packets_offered");
    assert!(all > 100, "{denied}");
    assert_eq!(denied["dropped"], json!({"BY_NT": all}), "no rule accepts port 9: {denied}");
    assert_eq!(number(&denied, "packets_served"), 0);

    // What was captured, sent again: the rule accepts it.
    let again = site.run(&format!("--rate 1Mbps --size pcap:{written} --for 1s"));
    assert_eq!(number(&again, "packets_served"), number(&again, "packets_offered"), "{again}");

    for host in &mut hosts {
        host.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
        let error = host.read(&mut [0; 1]).expect_err("nothing was sent to a host");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }

    // The card goes, and the run with it.
    let words = ["traffic", "run", "--dag", "acme/web", "--rate", "1Mbps", "--for", "1m"];
    let child = site.snicctl(&words).spawn().expect("it starts");
    std::thread::sleep(Duration::from_secs(2));
    site.home.kill_card();
    let begun = Instant::now();
    let output = child.wait_with_output().expect("it was started");
    assert!(begun.elapsed() < Duration::from_secs(20), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
}

/// `aes` on a software card: what leaves are the bytes that came, as a capture shows, and whoever uses it is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_changes_no_packet_says_so_and_one_that_works_does_not() {
    let home = Home::new();
    let [guest, uplink] = ["guest.sock", "up.sock"].map(|name| home.path().join(name));
    let port = |path: &Path| format!("unix:{}", path.display());
    home.write_soft_settings(&format!(
        "uplink = {:?}\nfunctions = [{:?}]",
        port(&uplink),
        port(&guest)
    ));
    let open = json!({"rules": [], "default": "accept"});
    let nts = [("firewall", Some(open)), ("aes", None)];
    let site = Site::new(home, &nts, Bandwidth::from_gbps(1)).await;
    let said = |words: &[&str]| {
        let Output { status, stdout, stderr } = site.snicctl(words).output().expect("it starts");
        assert!(status.success(), "{words:?}: {}", text(&stderr));
        // Sentences are broken into lines for a terminal.
        text(&stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };

    let file = site.home.path().join("run.pcapng");
    let written = file.display().to_string();
    let words = ["capture", "--dag", "acme/web", "-w", &written, "--for", "3s"];
    let capture = site.snicctl(&words).spawn().expect("it starts");
    std::thread::sleep(Duration::from_secs(1));
    let sent = site.run("--rate 1Mbps --size 100 --for 1s");
    let captured = capture.wait_with_output().expect("it was started");
    assert!(captured.status.success(), "{}", text(&captured.stderr));
    let captured = packets(&std::fs::read(&file).expect("a file"));
    let at = |place: &str| {
        let frames = captured.iter().filter(|(at, _)| at == place);
        frames.map(|(_, frame)| frame).collect::<Vec<_>>()
    };
    assert!(at("in").len() as u64 == number(&sent, "packets_offered"), "{sent}");
    assert_eq!(at("in"), at("out"), "a card that encrypts must not warn");

    let shown: Value =
        serde_json::from_str(&said(&["dag", "get", "web", "-o", "json"])).expect("JSON");
    let warnings = shown["warnings"].as_array().expect("a list");
    let [warning] = &warnings[..] else { panic!("one task does nothing: {shown}") };
    assert_eq!(
        (&warning["reason"], &warning["subject"]),
        (&json!("NOT_IMPLEMENTED"), &json!("aes"))
    );
    let unchanged = "aes (aes) passes packets on unchanged: software cards do not implement it";
    assert!(said(&["dag", "get", "web"]).contains(unchanged));
    assert!(said(&["dag", "explain", "web"]).contains("aes (aes) passes packets on unchanged"));
    assert!(said(&["nt", "get", "aes"]).contains("passes packets on unchanged"));
    assert!(said(&["nt", "get", "firewall"]).contains("as the node's configuration says"));

    // With the request already, before anything is there.
    let dag = site.home.path().join("plain.yaml");
    std::fs::write(&dag, "name: plain\nbandwidth: 1Gbps\nchain: firewall -> aes\n")
        .expect("a file");
    let dag = dag.display().to_string();
    let unconfigured = "firewall (firewall) passes packets on unchanged: it has no configuration";
    let validated = said(&["dag", "create", "-f", &dag, "--validate-only"]);
    assert!(validated.contains(unchanged) && validated.contains(unconfigured), "{validated}");
    let created = said(&["dag", "create", "-f", &dag]);
    for warning in [unchanged, unconfigured] {
        assert!(created.contains(&format!("warning: {warning}")), "{created}");
    }
}

/// Waits until the program has said this.
fn until_said(child: &mut Child, log: &Path, words: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        if said.contains(words) {
            return said;
        }
        let ended = child.try_wait().expect("it was started");
        assert!(ended.is_none() && Instant::now() < until, "{ended:?}: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A command as a user without rights, where this one has some.
fn unprivileged(file: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(file);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--"]).arg(file);
    command
}

/// The program where such a user can run it.
fn copied(folder: &Path, name: &str) -> PathBuf {
    let copy = folder.join(name);
    std::fs::copy(program(name), &copy).expect("room for a program");
    copy
}

#[test]
fn without_rights_the_quick_start_shows_hosts_that_exchange_packets() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).expect("it is this test's");
    let log = folder.path().join("log");
    let snicd = copied(folder.path(), "snicd");
    let mut command = unprivileged(&snicd);
    command.args(["quickstart", "--hosts", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0"]);
    command.arg("--dir").arg(folder.path().join("quick"));
    command.stdout(std::fs::File::create(&log).expect("a file")).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("it starts");
    let said = until_said(&mut child, &log, "press Ctrl-C");
    for line in [
        "ping:      5 of 5 came back",
        "4 MiB from guest to net, each byte as it was sent",
        "get greeting = \"hello from net\", by the server at first",
        "then by the card's cache",
        "TCP 8002:  no answer, for the firewall drops it",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }

    // What the card counts agrees: pings go on, and 4 MiB were 2,900 packets of 1,460 bytes at least.
    let mut snicctl = Command::new(program("snicctl"));
    snicctl.env("SNICCTL_CONFIG", folder.path().join("quick/snicctl.toml"));
    snicctl.args(["--context", "acme", "dag", "get", "guarded", "-o", "json"]);
    let traffic = || -> Value {
        let mut again = Command::new(snicctl.get_program());
        again.args(snicctl.get_args());
        again.envs(snicctl.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = again.output().expect("it starts");
        let dag: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(dag["state"], json!(State::Ready.as_str_name()));
        dag["traffic"].clone()
    };
    let count = |traffic: &Value| -> u64 { traffic["packets_out"].as_u64().expect("a number") };
    let until = Instant::now() + PATIENCE;
    while count(&traffic()) < 2_900 {
        assert!(Instant::now() < until, "{}", traffic());
        std::thread::sleep(Duration::from_millis(200));
    }
    let (before, begun) = (count(&traffic()), Instant::now());
    while count(&traffic()) < before + 4 {
        assert!(begun.elapsed() < PATIENCE, "the pings have stopped: {}", traffic());
        std::thread::sleep(Duration::from_millis(200));
    }

    let card = folder.path().join("quick/store/cards/card0/card.pid");
    let card: u32 = std::fs::read_to_string(card).expect("it runs").trim().parse().expect("an id");
    interrupt(&child);
    assert!(child.wait().expect("it was started").success());
    let until = Instant::now() + PATIENCE;
    while Path::new(&format!("/proc/{card}/exe")).exists() {
        assert!(Instant::now() < until, "the card's process stays");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A bound on latency that no packet keeps is refused, and what is served beyond the promise is metered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_on_latency_is_part_of_the_promise_and_what_is_beyond_the_promise_is_metered() {
    let nts = [("nat", None), ("aes", None)];
    let promised = Bandwidth::from_mbps(400);
    let site = Site::new(Home::new(), &nts, promised).await;
    let file = site.home.path().join("bound.yaml");
    let update = |bound: &str| {
        let text =
            format!("name: web\nbandwidth: 400Mbps\nchain: nat -> aes\nlatency_bound: {bound}\n");
        std::fs::write(&file, text).expect("it is writable");
        let path = file.to_str().expect("text");
        site.snicctl(&["dag", "update", "-f", path, "--wait"]).output().expect("it starts")
    };
    let refused = update("100ns");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("within 100 ns"), "{text}");
    let refused = update("2min");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("unknown unit \"min\"") && text.contains("4"), "its line: {text}");
    let kept = update("50us");
    assert!(kept.status.success(), "{}", String::from_utf8_lossy(&kept.stderr));
    assert_eq!(site.client.list_dags().await[0].latency_bound_nanos, 50_000);
    let seen = site.run("--rate 1200Mbps --size imix --for 3s");
    let served = number(&seen, "packets_served");
    assert!(served > 0, "{seen}");
    site.counted(served).await;
    let request = || v1::GetUsageRequest {
        name: "tenants/acme/dags/web".into(),
        ..v1::GetUsageRequest::default()
    };
    let until = Instant::now() + PATIENCE;
    let total = loop {
        let reply = site.client.usage().get_usage(request()).await.expect("its own").into_inner();
        let total = reply.total.expect("a sum");
        if total.packets_served >= served {
            break total;
        }
        assert!(Instant::now() < until, "{served} packets were served: {total:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    // By the card's clock, with a second of the promise in hand at the beginning.
    let most = (total.promised_kbit * 1_000 + promised.get()) / 8;
    let within = total.bytes_served - total.bytes_beyond_promise;
    assert!(total.bytes_beyond_promise > 0 && within <= most, "{most} bytes: {total:?}");
    assert!(total.packets_beyond_promise > 0, "{total:?}");
    assert_eq!(total.broken, [], "what it sends beyond its promise breaks nothing");
}
