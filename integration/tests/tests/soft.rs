//! The software card with real processes and real packets: Linux hosts in network namespaces send through a
//! DAG, the daemon is killed under traffic, and the card loses its power.
//!
//! `SNIC_SOFT_ROUNDS=100 cargo test -p snic-integration --test soft` kills the daemon that often.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use snic_api::v1::dag::State;
use snic_bitstream::catalogue;
use snic_card_soft::{Observation, Place, SoftCard};
use snic_domain::{Bandwidth, CardModel, DagName, DagSpec};
use snic_integration::{Client, Daemon, Home};

/// How long a DAG may take to become ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// How often the daemon is killed.
fn rounds() -> u32 {
    let rounds = std::env::var("SNIC_SOFT_ROUNDS").ok();
    rounds.map_or(3, |text| text.parse().expect("SNIC_SOFT_ROUNDS is a number"))
}

/// Why this machine cannot make namespaces and TAP devices.
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

/// A host in a network namespace of its own, at one of the card's TAP devices.
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
    daemon: Option<Daemon>,
    client: Client,
    guest: Host,
    server: Host,
    ports: Vec<String>,
}

fn dag() -> DagName {
    let (tenant, dag) = ("acme".parse().expect("a label"), "web".parse().expect("a label"));
    DagName { tenant, dag }
}

async fn client(home: &Home) -> Client {
    Client::connect(&home.socket(), "operator/test").await.expect("it serves")
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
        let nts = ["nat", "firewall"].map(|nt| nt.parse().expect("a label"));
        let spec = DagSpec::chain(&nts, Bandwidth::from_gbps(10));
        let operation = self.client.create_dag(&dag(), &spec).await.expect("there is room");
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

fn card_log(home: &Home) -> String {
    std::fs::read_to_string(home.card_folder().join("card.log")).unwrap_or_default()
}

/// What went through the card, as it says itself.
fn observe(home: &Home, ports: &[String]) -> Observation {
    let settings = snic_card_soft::Settings {
        model: "sim-16".into(),
        uplink: ports.first().map(|port| port.parse().expect("a port")),
        functions: ports.iter().skip(1).map(|port| port.parse().expect("a port")).collect(),
    };
    let place = Place::new(&home.card_folder());
    let model = CardModel::new("sim-16").expect("a label");
    let card = SoftCard::connect(&place, model, &settings);
    card.expect("it runs").observe().expect("it answers")
}

async fn ready(client: &Client) {
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
