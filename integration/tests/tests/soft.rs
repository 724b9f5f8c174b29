//! The software card with real processes and real packets: Linux hosts in network namespaces send through a
//! DAG, the daemon is killed under traffic, and the card loses its power.
//!
//! `SNIC_SOFT_ROUNDS=100 cargo test -p snic-integration --test soft` kills the daemon that often.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use snic_api::v1::dag::State;
use snic_bitstream::catalogue::{self, Catalogue};
use snic_card_soft::{CardFolder, Observation, SoftCard};
use snic_domain::{Bandwidth, CardModel, DagName, DagSpec, NtConfiguration};
use snic_integration::{DaemonProcess, Home, TestClient, program};

/// How long a DAG may take to become ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// How often the daemon is killed.
fn rounds() -> u32 {
    let rounds = std::env::var("SNIC_SOFT_ROUNDS").ok();
    rounds.map_or(3, |text| text.parse().expect("SNIC_SOFT_ROUNDS is a number"))
}

/// Why this machine cannot create namespaces and TAP devices.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root");
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Some("it needs /dev/net/tun");
    }
    let runs = |program: &str| Command::new(program).arg("-V").output().is_ok();
    (!runs("ip") || !runs("ping") || Command::new("iperf3").arg("-v").output().is_err())
        .then_some("it needs ip, ping and iperf3")
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.expect("the program starts");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {why}");
}

/// A host in a separate network namespace, at one of the card's TAP devices.
struct Host {
    namespace: String,
}

impl Host {
    /// Moves a device of the card into a new namespace, with this address.
    fn new(device: &str, address: &str) -> Self {
        let host = Self { namespace: format!("snic-{device}") };
        let name = &host.namespace;
        run("ip", &format!("netns add {name}"));
        run("ip", &format!("link set {device} netns {name}"));
        run("ip", &format!("-n {name} address add {address} dev {device}"));
        run("ip", &format!("-n {name} link set {device} up"));
        run("ip", &format!("-n {name} link set lo up"));
        host
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).args(line.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("ip starts")
    }

    fn start(&self, line: &str) -> Ending {
        Ending(Some(self.command(line).spawn().expect("ip starts")))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

/// A program that ends with its value.
struct Ending(Option<Child>);

impl Ending {
    fn wait(mut self) -> String {
        let output = self.0.take().expect("it is taken only here").wait_with_output();
        let output = output.expect("it was started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A daemon with a software card between two hosts.
struct Net {
    home: Home,
    daemon: Option<DaemonProcess>,
    client: TestClient,
    guest: Host,
    server: Host,
    ports: Vec<String>,
}

fn dag() -> DagName {
    let (tenant, dag) = ("acme".parse().expect("a label"), "web".parse().expect("a label"));
    DagName { tenant, dag }
}

async fn client(home: &Home) -> TestClient {
    TestClient::connect(&home.socket(), "operator/test").await.expect("it serves")
}

impl Net {
    async fn new(name: &str) -> Self {
        let home = Home::new();
        let (function, uplink) = (format!("{name}f0"), format!("{name}up"));
        let ports = vec![format!("tap:{uplink}"), format!("tap:{function}")];
        home.write_soft_settings(&format!("uplink = {:?}\nfunctions = [{:?}]", ports[0], ports[1]));
        let daemon = home.start().await;
        let until = Instant::now() + READY_MAX;
        while !home.card_folder().join("card.sock").exists() {
            assert!(Instant::now() < until, "no card: {:?}", card_log(&home));
            std::thread::sleep(Duration::from_millis(10));
        }
        let guest = Host::new(&function, "10.77.0.1/24");
        let server = Host::new(&uplink, "10.77.0.2/24");
        let client = client(&home).await;
        client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
        client.create_tenant("acme").await.expect("a new tenant");
        Self { home, daemon: Some(daemon), client, guest, server, ports }
    }

    /// The DAG, with all packets of function 0.
    async fn create(&self) {
        self.create_with(&chain(&[("nat", None), ("firewall", None)])).await;
    }

    /// The same with configurations of its NTs.
    async fn create_with(&self, spec: &DagSpec) {
        let operation = self.client.create_dag(&dag(), spec).await.expect("there is room");
        self.client.wait(&operation).await.expect("it becomes ready");
        self.client.lead_function(0, &dag()).await.expect("the DAG is there");
    }

    fn observe(&self) -> Observation {
        observe(&self.home, &self.ports)
    }

    /// `kill -9` of the daemon, and the next one; waits until the DAG is ready.
    async fn kill_daemon(&mut self) {
        self.daemon.take().expect("one runs").kill();
        self.daemon = Some(self.home.start().await);
        self.client = client(&self.home).await;
        ready(&self.client).await;
    }
}

/// A chain with the configuration of each NT.
fn chain(nts: &[(&str, Option<Value>)]) -> DagSpec {
    let ids: Vec<_> = nts.iter().map(|(nt, _)| nt.parse().expect("a label")).collect();
    let mut spec = DagSpec::chain(&ids, Bandwidth::from_gbps(10));
    for (node, (_, told)) in spec.nodes.iter_mut().zip(nts) {
        node.configuration = told.as_ref().map(|told| NtConfiguration::new(&told.to_string()));
    }
    spec
}

fn card_log(home: &Home) -> String {
    std::fs::read_to_string(home.card_folder().join("card.log")).unwrap_or_default()
}

/// The packets through the card, as it counts them.
fn observe(home: &Home, ports: &[String]) -> Observation {
    let settings = snic_card_soft::SoftCardSettings {
        model: "sim-16".into(),
        uplink: ports.first().map(|port| port.parse().expect("a port")),
        functions: ports.iter().skip(1).map(|port| port.parse().expect("a port")).collect(),
    };
    let place = CardFolder::new(&home.card_folder());
    let model = CardModel::new("sim-16").expect("a label");
    let card = SoftCard::connect(&place, model, &settings);
    card.expect("it runs").observe().expect("it answers")
}

async fn ready(client: &TestClient) {
    let until = Instant::now() + READY_MAX;
    loop {
        let dags = client.list_dags().await;
        if dags.iter().all(|dag| dag.state() == State::Ready) {
            return;
        }
        assert!(Instant::now() < until, "not ready: {dags:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether `ping` has lost nothing.
fn assert_no_loss(said: &str) {
    let has_all = said.lines().any(|line| line.contains(" 0% packet loss"));
    assert!(has_all, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_reach_each_other_through_a_dag_and_not_before_it_is_ready() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("sna").await;
    assert!(!net.guest.run("ping -c 2 -i 0.2 -W 1 10.77.0.2").status.success());
    let before = net.observe();
    assert_eq!((before.ports[0].sent, before.ports[1].sent), (0, 0), "{before:?}");
    assert!(before.ports[1].received > 0, "{before:?}");
    assert!(before.drops.iter().any(|(cause, _)| cause == "Unclassified"), "{before:?}");

    net.create().await;
    let ping = net.guest.run("ping -c 20 -i 0.05 -W 2 10.77.0.2");
    assert_no_loss(&String::from_utf8_lossy(&ping.stdout));
    let pinged = net.observe();
    assert!(pinged.ports[0].sent >= 20 && pinged.ports[1].sent >= 20, "{pinged:?}");

    let _server = net.server.start("iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    let said = net.guest.start("iperf3 -c 10.77.0.2 -t 2").wait();
    assert!(said.contains("receiver"), "{said}");
    let after = net.observe();
    assert!(after.packets_out > pinged.packets_out + 1_000, "{said}\n{after:?}");
    println!("{said}\n{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_loses_no_packet_and_the_next_one_writes_nothing() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let mut net = Net::new("snb").await;
    net.create().await;
    assert_no_loss(&String::from_utf8_lossy(&net.guest.run("ping -c 2 -W 2 10.77.0.2").stdout));
    let (pid, before) = (net.home.card_pid(), net.observe());
    let ping = net.guest.command("ping -i 0.005 -W 2 10.77.0.2").spawn().expect("ping starts");
    for round in 0..rounds() {
        net.kill_daemon().await;
        let after = net.observe();
        assert_eq!(
            (after.loads, after.table_words),
            (before.loads, before.table_words),
            "round {round}: loads and words of tables that were written"
        );
    }
    let id = rustix::process::Pid::from_child(&ping);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    let said = Ending(Some(ping)).wait();
    assert_no_loss(&said);
    assert_eq!(net.home.card_pid(), pid, "one and the same card");
    println!("{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_was_killed_is_started_and_programmed_again() {
    let home = Home::new();
    home.write_soft_settings("");
    let daemon = home.start().await;
    let client = snic_integration::furnished(&home, &["web"]).await;
    ready(&client).await;
    let (before, pid) = (observe(&home, &[]), home.card_pid().expect("it runs"));
    assert!(before.loads > 0 && before.table_words > 0, "{before:?}");
    home.kill_card();
    let until = Instant::now() + READY_MAX;
    loop {
        let is_new = home.card_pid().is_some_and(|now| now != pid);
        if is_new && home.card_folder().join("card.sock").exists() {
            // The next one may not listen yet.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let after = observe(&home, &[]);
            if after.loads == before.loads && after.table_words >= before.table_words {
                break;
            }
        }
        assert!(Instant::now() < until, "not programmed again: {:?}", card_log(&home));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ready(&client).await;
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
    assert_eq!(observe(&home, &[]).loads, before.loads, "the card runs on without a daemon");
}

/// A server in the network that answers with its own port and the client's address, in a namespace.
fn start_server(host: &Host, port: u16) -> Ending {
    let program = format!(
        "import http.server as h\n\
         class A(h.BaseHTTPRequestHandler):\n\
         \x20def do_GET(s):\n\
         \x20\x20t=f'{{s.server.server_address[1]}} {{s.client_address[0]}}'.encode()\n\
         \x20\x20s.send_response(200);s.send_header('Content-Length',str(len(t)));s.end_headers();s.wfile.write(t)\n\
         \x20def log_message(*a):pass\n\
         h.ThreadingHTTPServer(('',{port}),A).serve_forever()"
    );
    let mut command = host.command("python3 -c");
    let server = Ending(Some(command.arg(program).spawn().expect("python3 starts")));
    let until = Instant::now() + READY_MAX;
    let check = format!("curl -s -o /dev/null --max-time 1 http://127.0.0.1:{port}/");
    while !host.run(&check).status.success() {
        assert!(Instant::now() < until, "the server does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// A server's reply; `None` if it is not reached.
fn fetch(host: &Host, url: &str) -> Option<String> {
    let output = host.run(&format!("curl -s --max-time 2 {url}"));
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The Ethernet address of a device in a namespace.
fn station(host: &Host, device: &str) -> String {
    let output = host.run(&format!("cat /sys/class/net/{device}/address"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Packets that an NT dropped, for all reasons together.
fn dropped(seen: &Observation, nt: &str) -> Vec<(String, u64)> {
    let tasks = seen.tasks.iter().filter(|task| task.nt_type == nt);
    tasks.flat_map(|task| task.dropped.clone()).collect()
}

/// Stops `ping`, and returns its output.
fn interrupt(ping: Child) -> String {
    let id = rustix::process::Pid::from_child(&ping);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    Ending(Some(ping)).wait()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_firewall_opens_a_port_without_a_load_and_no_other_flow_loses_a_packet() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let mut net = Net::new("snc").await;
    let rules = |ports: &[&str]| {
        let tcp = ports
            .iter()
            .map(|port| json!({"action": "accept", "protocol": "tcp", "destination_ports": port}));
        let icmp = json!({"action": "accept", "protocol": "icmp"});
        chain(&[("firewall", Some(json!({"rules": tcp.chain([icmp]).collect::<Vec<_>>()})))])
    };
    net.create_with(&rules(&["8001"])).await;
    let _servers = [8_001, 8_002].map(|port| start_server(&net.server, port));
    assert_eq!(fetch(&net.guest, "http://10.77.0.2:8001/").as_deref(), Some("8001 10.77.0.1"));
    assert_eq!(fetch(&net.guest, "http://10.77.0.2:8002/"), None, "no rule lets it through");
    let before = net.observe();
    let reasons = dropped(&before, "firewall");
    assert!(reasons.iter().any(|(why, packets)| why == "rule" && *packets > 0), "{reasons:?}");

    let by_cause = |dag: &snic_api::v1::Dag| {
        let traffic = dag.traffic.clone().unwrap_or_default();
        let by_nt = traffic.drops.iter().find(|drops| drops.cause == "BY_NT");
        (traffic.packets_in, traffic.packets_out, by_nt.map_or(0, |drops| drops.packets))
    };
    let until = Instant::now() + READY_MAX;
    let shown = loop {
        let shown = by_cause(&net.client.list_dags().await[0]);
        if shown.2 > 0 {
            break shown;
        }
        assert!(Instant::now() < until, "{shown:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(shown.0 > shown.1 && shown.1 > 0, "what came in, went out and was dropped: {shown:?}");

    let ping = net.guest.command("ping -i 0.005 -W 2 10.77.0.2").spawn().expect("ping starts");
    for ports in [&["8001", "8002"][..], &["8002"], &["8001-8002"]] {
        let operation = net.client.update_dag(&dag(), &rules(ports)).await.expect("it fits");
        net.client.wait(&operation).await.expect("it is ready");
    }
    assert_eq!(fetch(&net.guest, "http://10.77.0.2:8002/").as_deref(), Some("8002 10.77.0.1"));
    let after = net.observe();
    assert_eq!((after.loads, after.configurations), (before.loads, before.configurations + 3));
    net.kill_daemon().await;
    let adopted = net.observe();
    assert_eq!(adopted.configurations, after.configurations, "the card was told again");
    assert_eq!((adopted.loads, adopted.table_words), (after.loads, after.table_words));
    assert_no_loss(&interrupt(ping));
    assert_eq!(fetch(&net.guest, "http://10.77.0.2:8002/").as_deref(), Some("8002 10.77.0.1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nat_hides_its_host_and_a_stream_through_it_survives_a_drain() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("snd").await;
    let nat = json!({"inside": ["10.77.0.1/32"], "external": ["10.77.0.200"]});
    net.create_with(&chain(&[("nat", Some(nat))])).await;
    // No host replies for the external address: the server is given its Ethernet address.
    let guest = station(&net.guest, "sndf0");
    run("ip", &format!("-n snic-sndup neigh replace 10.77.0.200 lladdr {guest} dev sndup"));
    let _server = start_server(&net.server, 8_001);
    let seen = fetch(&net.guest, "http://10.77.0.2:8001/");
    assert_eq!(seen.as_deref(), Some("8001 10.77.0.200"), "{:?}", net.observe());

    let _iperf = net.server.start("iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    let stream = net.guest.start("iperf3 -c 10.77.0.2 -t 3 -b 100M");
    std::thread::sleep(Duration::from_millis(500));
    let region = net.client.region_of(&dag()).await;
    net.client.drain(&region).await;
    let moved = net.client.region_of(&dag()).await;
    assert_ne!(moved, region, "it was drained");
    let said = stream.wait();
    assert!(said.contains("receiver"), "{said}");
    let after = net.observe();
    let nat = after.tasks.iter().find(|task| task.nt_type == "nat").expect("it is configured");
    assert!(nat.forwarded > 1_000, "{nat:?}");
    println!("{said}\n{nat:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_spreads_connections_over_its_backends() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("sne").await;
    let backend = |port: u16| json!({"address": "10.77.0.2", "port": port});
    let told = |backends: &[Value]| {
        let service =
            json!({"address": "10.77.0.100", "protocol": "tcp", "port": 80, "backends": backends});
        chain(&[("load-balancer", Some(json!({"services": [service]})))])
    };
    net.create_with(&told(&[backend(8_001), backend(8_002)])).await;
    let server = station(&net.server, "sneup");
    run("ip", &format!("-n snic-snef0 neigh replace 10.77.0.100 lladdr {server} dev snef0"));
    let _servers = [8_001, 8_002].map(|port| start_server(&net.server, port));
    let answers = |count: usize| -> Vec<String> {
        let fetched = (0..count).map(|_| fetch(&net.guest, "http://10.77.0.100/"));
        fetched.map(|answer| answer.expect("a backend answers")).collect()
    };
    let spread = answers(40);
    for port in ["8001 10.77.0.1", "8002 10.77.0.1"] {
        let here = spread.iter().filter(|answer| *answer == port).count();
        assert!(here >= 5, "{here} of 40 at {port}: {spread:?}");
    }
    let operation = net.client.update_dag(&dag(), &told(&[backend(8_002)])).await;
    net.client.wait(&operation.expect("it fits")).await.expect("it is ready");
    assert!(answers(10).iter().all(|answer| answer == "8002 10.77.0.1"));
}

/// A catalogue with one NT type that the built-in one does not have.
fn catalogue_of(nt: &str) -> Catalogue {
    let mut catalogue = catalogue::builtin().expect("the built-in catalogue");
    let id: snic_domain::NtTypeId = nt.parse().expect("a label");
    let chain = catalogue.chains.iter().find(|chain| chain.id.as_str() == "nat");
    let chain = chain.expect("it has one of nat").clone();
    let like = catalogue.nt_types.iter().find(|like| like.id.as_str() == "nat");
    let like = like.expect("it has nat").clone();
    catalogue.nt_types = vec![snic_domain::NtType { id: id.clone(), ..like }];
    let name = nt.parse().expect("a label");
    catalogue.chains = vec![catalogue::CatalogueChain { id: name, nts: vec![id], ..chain }];
    catalogue
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vxlan_tunnel_ends_at_a_kernels_device() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("snf").await;
    net.client.register(&catalogue_of("vxlan")).await;
    let (guest, server) = (station(&net.guest, "snff0"), station(&net.server, "snfup"));
    let told = json!({
        "vni": 7, "local": "10.77.0.1", "remote": "10.77.0.2",
        "local_mac": guest, "remote_mac": server,
    });
    net.create_with(&chain(&[("vxlan", Some(told))])).await;
    // The inner network of the tunnel has addresses of its own.
    run("ip", "-n snic-snff0 address flush dev snff0");
    run("ip", "-n snic-snff0 link set snff0 mtu 1450");
    run("ip", "-n snic-snff0 address add 10.78.0.1/24 dev snff0");
    run("ip", &format!("-n snic-snfup neigh replace 10.77.0.1 lladdr {guest} dev snfup"));
    let device = "vx0 type vxlan id 7 local 10.77.0.2 remote 10.77.0.1 dstport 4789 dev snfup";
    run("ip", &format!("-n snic-snfup link add {device}"));
    run("ip", "-n snic-snfup address add 10.78.0.2/24 dev vx0");
    run("ip", "-n snic-snfup link set vx0 up");

    // A kernel takes up to a second to bring up a new device.
    let until = Instant::now() + READY_MAX;
    while !net.guest.run("ping -c 1 -W 1 10.78.0.2").status.success() {
        assert!(Instant::now() < until, "{:?}", net.observe());
    }
    let ping = net.guest.run("ping -c 20 -i 0.05 -W 2 10.78.0.2");
    let said = String::from_utf8_lossy(&ping.stdout).into_owned();
    assert!(said.lines().any(|line| line.contains(" 0% packet loss")), "{said}{:?}", net.observe());
    let _server = start_server(&net.server, 8_001);
    let seen = fetch(&net.guest, "http://10.78.0.2:8001/");
    assert_eq!(seen.as_deref(), Some("8001 10.78.0.1"), "{:?}", net.observe());
}

/// A command line of `snicctl` as the tenant.
fn snicctl(home: &Home, line: &str) -> Command {
    let mut command = Command::new(program("snicctl"));
    command.env("SNICCTL_CONFIG", home.path().join("contexts.toml"));
    command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capture_opens_in_tcpdump_and_a_trace_has_the_time_of_each_part() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("sng").await;
    net.create().await;
    // The hosts know each other's addresses: from here on only the test's packets are sent.
    assert_no_loss(&String::from_utf8_lossy(&net.guest.run("ping -c 2 10.77.0.2").stdout));
    let file = net.home.path().join("web.pcapng");
    let endpoint = format!("unix:{}", net.home.socket().display());
    let context = format!("context set it --endpoint {endpoint} --identity tenant/acme");
    for line in [&*context, "context use it"] {
        assert!(snicctl(&net.home, line).status().expect("it starts").success(), "{line}");
    }
    let start = |line: &str| Ending(Some(snicctl(&net.home, line).spawn().expect("it starts")));
    // In, out of two NTs, and out: 40 packets are 160 times in the file.
    let capture = format!("capture --dag web -n 160 --for 60s -w {}", file.display());
    let capture = start(&capture);
    let trace = start("trace --dag web -n 40 --for 60s -o json");
    let ping = net.guest.start("ping -i 0.02 -s 100 10.77.0.2");
    capture.wait();
    let trace: Value = serde_json::from_str(&trace.wait()).expect("JSON");
    drop(ping);

    let read = Command::new("tcpdump").args(["-n", "-r"]).arg(&file).output();
    let read = read.expect("tcpdump starts");
    let said = String::from_utf8_lossy(&read.stdout);
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let count = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    let (requests, replies) = (count("ICMP echo request"), count("ICMP echo reply"));
    // A few may be of other protocols: hosts look for their neighbours now and then.
    assert!(said.lines().count() == 160 && requests + replies >= 140, "{said}");
    assert!(requests > 60 && replies > 60, "{said}");
    assert!(said.contains("10.77.0.1 > 10.77.0.2") && said.contains("length 108"), "{said}");

    let parts = trace["parts"].as_array().expect("a list");
    let median = |part: &str| {
        let of = |times: &&Value| times["part"].as_str().is_some_and(|name| name.starts_with(part));
        let times = parts.iter().find(of).unwrap_or_else(|| panic!("no {part}: {trace}"));
        times["median_ns"].as_u64().expect("a number")
    };
    assert_eq!(trace["dropped"], json!({}));
    // Everything but the NTs takes 196 ns on an idle card (SuperNIC, section 6).
    assert_eq!(median("scheduler") + median("way out"), 196, "{trace}");
    let whole = median("whole card");
    let parts = ["scheduler", "nat in", "firewall in", "way out"].map(median);
    assert!(parts.iter().all(|took| *took > 0), "{trace}");
    assert_eq!(whole, parts.iter().sum::<u64>(), "{trace}");
}

#[test]
fn the_quick_start_makes_two_hosts_and_takes_them_away() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("said");
    let mut command = Command::new(program("snicd"));
    command.args(["quickstart", "--net", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0"]);
    command.arg("--dir").arg(folder.path().join("quick"));
    command.stdout(std::fs::File::create(&log).expect("a file")).stderr(Stdio::inherit());
    let child = command.spawn().expect("it starts");
    let pid = rustix::process::Pid::from_child(&child);
    let mut started = Ending(Some(child));
    let until = Instant::now() + READY_MAX;
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    while !said().contains("press Ctrl-C") {
        let child = started.0.as_mut().expect("it is taken only at the end");
        assert!(child.try_wait().expect("it was started").is_none(), "{}", said());
        assert!(Instant::now() < until, "{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
    let guest = Host { namespace: "snic-guest".into() };
    let net = Host { namespace: "snic-net".into() };
    assert!(said().contains("ip netns exec snic-guest ping -c 3 10.77.0.2"), "{}", said());
    assert_no_loss(&String::from_utf8_lossy(&guest.run("ping -c 3 -W 2 10.77.0.2").stdout));
    let _servers = [8_000, 8_002].map(|port| start_server(&net, port));
    assert_eq!(fetch(&guest, "http://10.77.0.2:8000/").as_deref(), Some("8000 10.77.0.1"));
    assert_eq!(fetch(&guest, "http://10.77.0.2:8002/"), None, "no rule lets it through");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    started.wait();
    let listed = Command::new("ip").args(["netns", "list"]).output().expect("ip starts");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!listed.contains("snic-guest") && !listed.contains("snic-net"), "{listed}");
}
