//! Linux hosts in network namespaces at the ports of a software card, and a daemon for it.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use snic_api::v1::dag::State;
use snic_bitstream::catalogue::{self, Catalogue, CatalogueChain};
use snic_card_soft::{CardFolder, Observation, SoftCard};
use snic_domain::{Bandwidth, CardModel, DagName, DagSpec, NtConfiguration};
use snic_integration::{DaemonProcess, Home, TestClient, program};

/// Longest time of a DAG to become ready.
pub const READY_MAX: Duration = Duration::from_secs(60);

/// Why this machine cannot create namespaces and TAP devices.
pub fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root");
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("it needs /dev/net/tun");
    }
    let runs = |program: &str| Command::new(program).arg("-V").output().is_ok();
    (!runs("ip") || !runs("ping") || Command::new("iperf3").arg("-v").output().is_err())
        .then_some("it needs ip, ping and iperf3")
}

/// Whether a program is installed.
pub fn starts(program: &str) -> Result<(), &'static str> {
    Command::new(program).arg("-V").output().map(|_| ()).map_err(|_| "a program is not installed")
}

pub fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.expect("the program starts");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {why}");
}

/// A host in a separate network namespace, at one of the card's TAP devices.
pub struct Host {
    pub namespace: String,
}

impl Host {
    /// Moves a device of the card into a new namespace, with this address.
    pub fn new(device: &str, address: &str) -> Self {
        let host = Self { namespace: format!("snic-{device}") };
        let name = &host.namespace;
        // One that a killed run has left is of no use to anybody.
        let _ = Command::new("ip").args(["netns", "del", name]).output();
        run("ip", &format!("netns add {name}"));
        run("ip", &format!("-n {name} link set lo up"));
        host.attach(device, address);
        host
    }

    /// Moves a device of the card into the namespace, with this address.
    pub fn attach(&self, device: &str, address: &str) {
        let name = &self.namespace;
        run("ip", &format!("link set {device} netns {name}"));
        run("ip", &format!("-n {name} address add {address} dev {device}"));
        run("ip", &format!("-n {name} link set {device} up"));
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).args(line.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("ip starts")
    }

    pub fn start(&self, line: &str) -> Ending {
        Ending(Some(self.command(line).spawn().expect("ip starts")))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

/// A program that ends with its value.
pub struct Ending(pub Option<Child>);

impl Ending {
    pub fn wait(mut self) -> String {
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
pub struct Net {
    pub home: Home,
    pub daemon: Option<DaemonProcess>,
    pub client: TestClient,
    pub guest: Host,
    /// At function 1, with the address 10.77.0.3.
    pub neighbour: Option<Host>,
    pub server: Host,
    pub ports: Vec<String>,
}

pub fn dag() -> DagName {
    let (tenant, dag) = ("acme".parse().expect("a label"), "web".parse().expect("a label"));
    DagName { tenant, dag }
}

pub async fn client(home: &Home) -> TestClient {
    TestClient::connect(&home.socket(), "operator/test").await.expect("it serves")
}

impl Net {
    pub async fn new(name: &str) -> Self {
        Self::with(name, "").await
    }

    /// The same with more tables of settings.
    pub async fn with(name: &str, settings: &str) -> Self {
        let catalogue = catalogue::builtin().expect("the built-in catalogue");
        Self::furnished(name, 1, settings, &catalogue).await
    }

    /// The same with one or two functions, and other NT types and bitstreams.
    pub async fn furnished(
        name: &str,
        functions: usize,
        settings: &str,
        catalogue: &Catalogue,
    ) -> Self {
        // Tests run beside each other: two with devices of one name would take each other's.
        static NAMES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let is_new = NAMES.lock().expect("no test holds it").insert(name.to_owned());
        assert!(is_new, "another test has devices named {name}");
        let home = Home::new();
        let [uplink, function, next] = ["up", "f0", "f1"].map(|port| format!("{name}{port}"));
        let ports = [&uplink, &function, &next].map(|port| format!("tap:{port}"));
        let ports = ports[..1 + functions].to_vec();
        let (up, at_hosts) = (&ports[0], &ports[1..]);
        home.write_soft_settings(&format!("uplink = {up:?}\nfunctions = {at_hosts:?}\n{settings}"));
        let text = std::fs::read_to_string(home.settings()).expect("it was written");
        let policies = home.path().join("policies");
        std::fs::create_dir(&policies).expect("a new folder");
        std::fs::write(home.settings(), format!("policies_dir = {policies:?}\n{text}"))
            .expect("the folder is there");
        let daemon = home.start().await;
        let until = Instant::now() + READY_MAX;
        while !home.card_folder().join("card.sock").exists() {
            assert!(Instant::now() < until, "no card: {:?}", card_log(&home));
            std::thread::sleep(Duration::from_millis(10));
        }
        let guest = Host::new(&function, "10.77.0.1/24");
        let neighbour = (functions > 1).then(|| Host::new(&next, "10.77.0.3/24"));
        let server = Host::new(&uplink, "10.77.0.2/24");
        let client = client(&home).await;
        client.register(catalogue).await;
        client.create_tenant("acme").await.expect("a new tenant");
        Self { home, daemon: Some(daemon), client, guest, neighbour, server, ports }
    }

    /// The DAG, with all packets of function 0.
    pub async fn create(&self) {
        self.create_with(&chain(&[("nat", None), ("firewall", None)])).await;
    }

    /// The same with configurations of its NTs.
    pub async fn create_with(&self, spec: &DagSpec) {
        let operation = self.client.create_dag(&dag(), spec).await.expect("there is room");
        self.client.wait(&operation).await.expect("it becomes ready");
        self.client.lead_function(0, &dag()).await.expect("the DAG is there");
    }

    pub fn observe(&self) -> Observation {
        observe(&self.home, &self.ports)
    }

    /// `kill -9` of the daemon, and the next one; waits until the DAG is ready.
    pub async fn kill_daemon(&mut self) {
        self.daemon.take().expect("one runs").kill();
        self.daemon = Some(self.home.start().await);
        self.client = client(&self.home).await;
        ready(&self.client).await;
    }
}

/// A chain with the configuration of each NT.
pub fn chain(nts: &[(&str, Option<Value>)]) -> DagSpec {
    let ids: Vec<_> = nts.iter().map(|(nt, _)| nt.parse().expect("a label")).collect();
    let mut spec = DagSpec::chain(&ids, Bandwidth::from_gbps(10));
    for (node, (_, told)) in spec.nodes.iter_mut().zip(nts) {
        node.configuration = told.as_ref().map(|told| NtConfiguration::new(&told.to_string()));
    }
    spec
}

pub fn card_log(home: &Home) -> String {
    std::fs::read_to_string(home.card_folder().join("card.log")).unwrap_or_default()
}

/// The packets through the card, as it counts them.
pub fn observe(home: &Home, ports: &[String]) -> Observation {
    observe_card(&home.card_folder(), ports)
}

/// The same of the card in a folder.
pub fn observe_card(folder: &Path, ports: &[String]) -> Observation {
    try_observe_card(folder, ports).expect("it runs")
}

/// The same; `None` where no card answers.
pub fn try_observe_card(folder: &Path, ports: &[String]) -> Option<Observation> {
    let settings = |fast_path: bool| snic_card_soft::SoftCardSettings {
        model: "sim-16".into(),
        uplink: ports.first().map(|port| port.parse().expect("a port")),
        functions: ports.iter().skip(1).map(|port| port.parse().expect("a port")).collect(),
        guards: Vec::new(),
        failovers: Vec::new(),
        fast_path,
    };
    let model = CardModel::new("sim-16").expect("a label");
    // A card answers those alone who know its settings.
    let observe = |fast_path| {
        SoftCard::connect(&CardFolder::new(folder), model.clone(), &settings(fast_path))
            .ok()?
            .observe()
            .ok()
    };
    observe(false).or_else(|| observe(true))
}

pub async fn ready(client: &TestClient) {
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
pub fn assert_no_loss(said: &str) {
    let has_all = said.lines().any(|line| line.contains(" 0% packet loss"));
    assert!(has_all, "{said}");
}

/// `ping` from a host until it is stopped. Somebody has to read its output: it waits otherwise.
pub struct Pings {
    interval: Duration,
    child: Ending,
    said: JoinHandle<Vec<String>>,
}

impl Pings {
    /// Longest time of a reply.
    const ON_THEIR_WAY: Duration = Duration::from_millis(100);

    /// Every 5 ms.
    pub fn start(from: &Host, to: &str) -> Self {
        Self::every(Duration::from_millis(5), from, to)
    }

    pub fn every(interval: Duration, from: &Host, to: &str) -> Self {
        let line = format!("ping -i {} -W 2 {to}", interval.as_secs_f64());
        let mut child = from.start(&line);
        let output = child.0.as_mut().and_then(|child| child.stdout.take());
        let output = BufReader::new(output.expect("it is piped"));
        let said =
            std::thread::spawn(move || output.lines().map_while(Result::ok).collect::<Vec<_>>());
        Self { interval, child, said }
    }

    /// Stops it a little later, and says how many were answered. All were, in order; only the last few may be on their
    /// way, where the machine is busy.
    pub fn all_came_back(self) -> u64 {
        let pinged = self.end();
        assert_eq!((&pinged.lost[..], pinged.overtaken), (&[][..], 0), "of {}", pinged.answered);
        pinged.answered
    }

    /// Stops it a little later. The last few may be on their way, where the machine is busy.
    pub fn end(mut self) -> Pinged {
        std::thread::sleep(2 * Self::ON_THEIR_WAY);
        let mut child = self.child.0.take().expect("it was started");
        interrupt(&child);
        child.wait().expect("it was started");
        let said = self.said.join().expect("it reads lines");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let sequence = |line: &String| {
            let (_, rest) = line.split_once("icmp_seq=")?;
            rest.split(' ').next().map(number)
        };
        let answered: Vec<_> = said.iter().filter_map(sequence).collect();
        let summary = said.iter().find(|line| line.contains("packets transmitted"));
        let sent = summary.and_then(|line| line.split(' ').next()).map(number);
        let sent = sent.expect("it ends with a summary");
        let on_their_way = Self::ON_THEIR_WAY.div_duration_f64(self.interval) as u64;
        let came: BTreeSet<u64> = answered.iter().copied().collect();
        let last = came.last().copied().unwrap_or(0).max(sent.saturating_sub(on_their_way));
        Pinged {
            answered: came.len() as u64,
            lost: (1..=last).filter(|number| !came.contains(number)).collect(),
            overtaken: answered.windows(2).filter(|two| two[1] < two[0]).count(),
        }
    }
}

/// A catalogue with one NT type that the built-in one does not have.
pub fn catalogue_of(nt: &str) -> Catalogue {
    let mut catalogue = catalogue::builtin().expect("the built-in catalogue");
    let id: snic_domain::NtTypeId = nt.parse().expect("a label");
    let chain = catalogue.chains.iter().find(|chain| chain.id.as_str() == "nat");
    let chain = chain.expect("it has one of nat").clone();
    let like = catalogue.nt_types.iter().find(|like| like.id.as_str() == "nat");
    let like = like.expect("it has nat").clone();
    catalogue.nt_types = vec![snic_domain::NtType { id: id.clone(), ..like }];
    let name = nt.parse().expect("a label");
    catalogue.chains = vec![CatalogueChain { id: name, nts: vec![id], ..chain }];
    catalogue
}

/// Result of pings.
pub struct Pinged {
    pub answered: u64,
    /// Those that were not.
    pub lost: Vec<u64>,
    /// Replies that came behind a later one's.
    pub overtaken: usize,
}

/// As Ctrl-C does.
pub fn interrupt(child: &Child) {
    let id = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
}

/// A server in the network that answers with its own port and the client's address, in a namespace.
pub fn start_server(host: &Host, port: u16) -> Ending {
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
pub fn fetch(host: &Host, url: &str) -> Option<String> {
    fetch_within(host, url, 20)
}

/// Whether a server cannot be reached.
pub fn is_shut(host: &Host, url: &str) -> bool {
    fetch_within(host, url, 2).is_none()
}

fn fetch_within(host: &Host, url: &str, seconds: u32) -> Option<String> {
    let output = host.run(&format!("curl -s --max-time {seconds} {url}"));
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The Ethernet address of a device in a namespace.
pub fn station(host: &Host, device: &str) -> String {
    let output = host.run(&format!("cat /sys/class/net/{device}/address"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Packets that an NT dropped, for all reasons together.
pub fn dropped(seen: &Observation, nt: &str) -> Vec<(String, u64)> {
    let tasks = seen.tasks.iter().filter(|task| task.nt_type == nt);
    tasks.flat_map(|task| task.dropped.clone()).collect()
}

/// A command line of `snicctl` as the tenant.
pub fn snicctl(home: &Home, line: &str) -> Command {
    let mut command = Command::new(program("snicctl"));
    command.env("SNICCTL_CONFIG", home.path().join("contexts.toml"));
    command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
