//! A fleet of real processes: etcd, replicas, hosts with a simulated card each, and certificates of `snicd pki`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use snic_api::fleet_v1;
use snic_api::fleet_v1::host::Condition;
use snic_api::v1;
use snic_api::v1::dag::State;
use snic_bitstream::catalogue::builtin;
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_fleet::placement::HostSpec;
use snic_integration::commands::{pki, shell};
use snic_integration::{DaemonProcess, Home, TestClient, program};
use tonic::Status;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::cluster::{Cluster, eventually, free_ports};
use super::network::Network;

/// Gives a program another clock, and leaves that alone which measures how long something takes.
const FAKE_TIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// A replica, in a process of its own; killed when it is dropped.
struct Replica {
    address: String,
    page: String,
    settings: PathBuf,
    /// First words of its command.
    enter: Vec<String>,
    child: Option<Child>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
        if cfg!(test) {
            let log = std::fs::read_to_string(self.settings.with_extension("log"));
            println!("--- {}\n{}", self.settings.display(), log.unwrap_or_default());
        }
    }
}

impl Replica {
    fn start(&mut self) {
        let mut log = std::fs::File::options();
        let log = log.append(true).create(true).open(self.settings.with_extension("log")).unwrap();
        let mut words = self.enter.iter().map(PathBuf::from).chain([program("snic-fleet")]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        command.arg("--config").arg(&self.settings);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// It does not end by itself.
    fn assert_runs(&self) {
        let text = std::fs::read_to_string(self.settings.with_extension("log")).unwrap();
        assert!(!text.lines().any(|line| line.starts_with("snic-fleet: ")), "{text}");
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Host {
    home: Home,
    daemon: Option<DaemonProcess>,
}

impl Drop for Host {
    /// Shows its log where the test fails.
    fn drop(&mut self) {
        if let Some(log) = self.daemon.take().map(DaemonProcess::kill)
            && cfg!(test)
        {
            println!("--- {}\n{log}", self.home.path().display());
        }
    }
}

/// Cards of the hosts.
#[derive(Debug, Clone, Copy)]
pub enum Cards {
    /// Inside the daemon.
    Simulated,
    /// A process each.
    Software,
    /// The same with TAP devices, whose names begin so: uplink and function 0 of host 1 are `…1up` and `…1f0`.
    Taps(&'static str),
    /// The same with unix sockets in the host's folder: the uplink `up`, and functions `f0` to `f3`.
    Sockets,
}

/// A fleet.
pub struct Fleet {
    replicas: Vec<Replica>,
    hosts: Vec<Host>,
    /// Certificates, settings and images of the replicas.
    home: Home,
    pub cluster: Cluster,
    /// Where each part has an address of its own; all are on the loopback without.
    pub network: Option<Network>,
    /// Where parts run programs of different versions.
    pub versions: Option<Versions>,
}

/// Programs of two versions. Each part of a fleet runs the older ones until it is upgraded.
pub struct Versions {
    newer: PathBuf,
    /// Links to the folders of programs, by part.
    links: tempfile::TempDir,
}

impl Versions {
    /// The older ones are in this folder, the newer ones beside the test.
    pub fn new(older: &Path, parts: &[String]) -> Self {
        let links = tempfile::tempdir().unwrap();
        for part in parts {
            std::os::unix::fs::symlink(older, links.path().join(part)).unwrap();
        }
        let newer = program("snicd").parent().expect("a folder").to_owned();
        Self { newer, links }
    }

    fn upgrade(&self, part: &str) {
        let link = self.links.path().join(part);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&self.newer, link).unwrap();
    }

    /// First words of a part's command: it runs the program of the same name behind the part's link.
    fn enter(&self, part: &str) -> Vec<String> {
        let link = self.links.path().join(part);
        let run = "link=$1; name=${2##*/}; shift 2; exec \"$link/$name\" \"$@\"";
        ["sh", "-c", run, "sh", &link.display().to_string()].map(str::to_owned).to_vec()
    }
}

/// The DAG of acme with this id.
pub fn name(dag: &str) -> DagName {
    DagName { tenant: "acme".parse().unwrap(), dag: dag.parse().unwrap() }
}

impl Fleet {
    /// So many replicas and hosts on this etcd, which all answer, with the catalogue and tenant acme.
    pub async fn start(cluster: Cluster, replicas: usize, hosts: usize) -> Self {
        Self::start_with(cluster, replicas, (hosts, Cards::Simulated)).await
    }

    /// The same with cards of a kind.
    pub async fn start_with(cluster: Cluster, replicas: usize, hosts: (usize, Cards)) -> Self {
        Self::start_in((None, None), cluster, replicas, hosts).await
    }

    /// The same in a network, and with programs of these versions. Parts `r0` and so on are the replicas, and `h0` and so
    /// on the hosts.
    pub async fn start_in(
        (network, versions): (Option<Network>, Option<Versions>),
        cluster: Cluster,
        replicas: usize,
        (hosts, cards): (usize, Cards),
    ) -> Self {
        let home = Home::new();
        pki(&home, "init").unwrap();
        for who in ["operator/root", "tenant/acme"] {
            pki(&home, &format!("issue {who}")).unwrap();
        }
        let (made, none) = (Vec::new(), Vec::new());
        let mut fleet = Self { replicas: made, hosts: none, home, cluster, network, versions };
        for number in 0..replicas {
            fleet.add_replica(number);
        }
        println!("{} leads", fleet.leader().await);
        for number in 0..hosts {
            fleet.add_host(number, cards).await;
        }
        let root = fleet.client(0, "operator-root");
        root.register(&builtin().unwrap()).await;
        root.create_tenant("acme").await.unwrap();
        println!("all is registered");
        fleet.all_in_step(hosts).await;
        fleet
    }

    /// Waits until so many hosts have all that they should have.
    pub async fn all_in_step(&self, hosts: usize) {
        for number in 0..hosts {
            eventually(async || self.condition(number).await == Ok(Condition::InStep)).await;
        }
    }

    /// Tenant acme may have as much as it wants.
    pub async fn unlimited(&self) {
        let quota = v1::Quota {
            dags_max: Some(1_000_000),
            bandwidth_max_bps: Some(1_000_000_000_000_000),
            ..v1::Quota::default()
        };
        self.set_quota(quota, &["quota.dags_max", "quota.bandwidth_max_bps"]).await;
    }

    /// Changes these limits of tenant acme.
    pub async fn set_quota(&self, quota: v1::Quota, paths: &[&str]) {
        let name = "tenants/acme".to_owned();
        let tenant = v1::Tenant { name, quota: Some(quota), ..v1::Tenant::default() };
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let request = v1::UpdateTenantRequest {
            tenant: Some(tenant),
            update_mask: Some(prost_types::FieldMask { paths }),
            ..Default::default()
        };
        self.client(0, "operator-root").tenants().update_tenant(request).await.unwrap();
    }

    /// A file of the authority, or of what it has issued.
    pub fn pki(&self, file: &str) -> PathBuf {
        self.home.path().join("pki").join(file)
    }

    /// The address of a part, and what its command begins with.
    fn seat(&self, part: &str) -> (String, Vec<String>) {
        match &self.network {
            Some(network) => (network.address(part), self.clock(part, network.enter(part))),
            None => {
                let enter = self.versions.as_ref().map(|of| of.enter(part));
                ("127.0.0.1".to_owned(), enter.unwrap_or_default())
            }
        }
    }

    /// A command whose clock can be set, where this machine has the library for that.
    fn clock(&self, part: &str, mut enter: Vec<String>) -> Vec<String> {
        if Path::new(FAKE_TIME).exists() {
            self.set_clock(part, 0);
            let file = self.home.path().join(part).with_extension("clock");
            enter.extend(["env".to_owned(), format!("LD_PRELOAD={FAKE_TIME}")]);
            enter.push(format!("FAKETIME_TIMESTAMP_FILE={}", file.display()));
            let rest = ["FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"];
            enter.extend(rest.map(str::to_owned));
            enter.push("DONT_FAKE_MONOTONIC=1".to_owned());
        }
        enter
    }

    /// Sets the clock of a part ahead of time by so many seconds. False where this machine cannot.
    pub fn set_clock(&self, part: &str, seconds: u32) -> bool {
        let file = self.home.path().join(part).with_extension("clock");
        std::fs::write(file, format!("+{seconds}\n")).unwrap();
        Path::new(FAKE_TIME).exists()
    }

    fn add_replica(&mut self, number: usize) {
        let (at, enter) = self.seat(&format!("r{number}"));
        pki(&self.home, &format!("issue replica/r{number} --host {at}")).unwrap();
        let ports = free_ports(2);
        let (port, page_port) = (ports[0], ports[1]);
        let address = format!("https://{at}:{port}");
        let page = format!("https://{at}:{page_port}");
        let settings = self.home.path().join(format!("r{number}.toml"));
        let (images, etcd) = (self.home.path().join("images"), self.cluster.urls());
        let (ca, crl) = (self.pki("ca.pem"), self.pki("crl.pem"));
        let certificate = self.pki(&format!("replica-r{number}.pem"));
        let key = self.pki(&format!("replica-r{number}.key"));
        let text = format!(
            "listen = \"{at}:{port}\"\naddress = {address:?}\nimages = {images:?}\n\
             [tls]\nca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\ncrl = {crl:?}\n\
             [etcd]\nendpoints = {etcd:?}\n\
             [signatures]\nallow_unsigned = true\n\
             [hosts]\nlease_seconds = 3\nconfirm_seconds = 1\n\
             [web]\nlisten = \"{at}:{page_port}\"\n"
        );
        std::fs::write(&settings, text).unwrap();
        let mut replica = Replica { address, page, settings, enter, child: None };
        replica.start();
        self.replicas.push(replica);
    }

    /// Registers a host; gives the texts of the authority, its certificate and its key.
    pub async fn register_host(&self, number: usize, spec: &HostSpec) -> (String, String, String) {
        pki(&self.home, &format!("issue host/h{number}")).unwrap();
        self.create_host(number, spec).await;
        let read = |file: String| std::fs::read_to_string(self.pki(&file)).unwrap();
        let (pem, key) = (format!("host-h{number}.pem"), format!("host-h{number}.key"));
        (read("ca.pem".to_owned()), read(pem), read(key))
    }

    async fn create_host(&self, number: usize, spec: &HostSpec) {
        let request = fleet_v1::CreateHostRequest {
            host_id: format!("h{number}"),
            host: Some(host_of(spec)),
            ..Default::default()
        };
        self.client(0, "operator-root").fleet().create_host(request).await.unwrap();
    }

    /// Registers a host with what it says of itself, and starts it.
    pub async fn add_host(&mut self, number: usize, cards: Cards) {
        pki(&self.home, &format!("issue host/h{number}")).unwrap();
        let home = Home::entered_by(self.seat(&format!("h{number}")).1);
        let endpoints: Vec<_> = self.replicas.iter().map(|of| of.address.clone()).collect();
        let fleet = format!(
            "[fleet]\nendpoints = {endpoints:?}\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n\
             beat_ms = 200",
            self.pki("ca.pem"),
            self.pki(&format!("host-h{number}.pem")),
            self.pki(&format!("host-h{number}.key")),
        );
        match cards {
            Cards::Simulated => home.write_settings(&fleet),
            Cards::Software => home.write_soft_settings(&fleet),
            Cards::Taps(name) => {
                let [up, function] = ["up", "f0"].map(|end| format!("tap:{name}{number}{end}"));
                let ports = format!("uplink = {up:?}\nfunctions = [{function:?}]");
                home.write_soft_settings(&format!("{ports}\n{fleet}"));
            }
            Cards::Sockets => {
                let port = |name: &str| format!("unix:{}", home.path().join(name).display());
                let (up, functions) = (port("up"), ["f0", "f1", "f2", "f3"].map(port));
                let ports = format!("uplink = {up:?}\nfunctions = {functions:?}");
                home.write_soft_settings(&format!("{ports}\n{fleet}"));
            }
        }
        let settings = home.settings();
        let told = shell(
            &home,
            &format!("snicd host-spec -c {} --zone z1 --rack r{number}", settings.display()),
        );
        let spec: HostSpec = serde_json::from_str(&told.unwrap()).unwrap();
        self.create_host(number, &spec).await;
        let daemon = Some(home.start().await);
        self.hosts.push(Host { home, daemon });
    }

    /// Ways to the replicas, by the name of the certificate's file.
    pub fn ways(&self, who: &str) -> Vec<(String, ClientTlsConfig)> {
        self.replicas.iter().map(|replica| (replica.address.clone(), self.tls(who))).collect()
    }

    /// Somebody at a replica, by the name of the certificate's file.
    pub fn client(&self, replica: usize, who: &str) -> TestClient {
        TestClient::by_tls(&self.replicas[replica].address, self.tls(who))
    }

    fn tls(&self, who: &str) -> ClientTlsConfig {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let (pem, key) = (self.pki(&format!("{who}.pem")), self.pki(&format!("{who}.key")));
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read(&self.pki("ca.pem"))))
            .identity(Identity::from_pem(read(&pem), read(&key)))
    }

    /// Makes contexts of `snicctl` for an operator and a tenant at each replica, such as `root-r0` and `acme-r1`, and for
    /// an operator at each host, such as `h0`; returns the file that they are in.
    pub fn contexts(&self) -> PathBuf {
        for (number, replica) in self.replicas.iter().enumerate() {
            for (who, file, more) in
                [("root", "operator-root", ""), ("acme", "tenant-acme", " --tenant acme")]
            {
                let (ca, pem) = (self.pki("ca.pem"), self.pki(&format!("{file}.pem")));
                let key = pem.with_extension("key");
                let line = format!(
                    "snicctl context set {who}-r{number} --endpoint {}{more} --ca {ca:?} \
                     --certificate {pem:?} --key {key:?}",
                    replica.address
                );
                shell(&self.home, &line).unwrap();
            }
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let socket = host.home.socket().display().to_string();
            let line = format!(
                "snicctl context set h{number} --endpoint unix:{socket} --identity operator/root"
            );
            shell(&self.home, &line).unwrap();
        }
        self.home.path().join("snicctl.toml")
    }

    /// Replicas and hosts that run, by name, with the ids of their processes.
    pub fn processes(&self) -> Vec<(String, u32)> {
        let replicas = self.replicas.iter().enumerate().filter_map(|(number, replica)| {
            Some((format!("r{number}"), replica.child.as_ref()?.id()))
        });
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts
            .filter_map(|(number, host)| Some((format!("h{number}"), host.daemon.as_ref()?.id())));
        replicas.chain(hosts).collect()
    }

    /// Output of a command, which may use the contexts.
    pub fn shell(&self, line: &str) -> Result<String, String> {
        shell(&self.home, line)
    }

    /// The address of a replica's page for browsers.
    pub fn page(&self, replica: usize) -> String {
        self.replicas[replica].page.clone()
    }

    /// A replica that runs.
    pub fn running(&self) -> usize {
        self.replicas.iter().position(|replica| replica.child.is_some()).unwrap()
    }

    /// The replica that leads, once one that runs does.
    pub async fn leader(&self) -> usize {
        let leads = async || {
            self.replicas.iter().for_each(Replica::assert_runs);
            let client = self.client(self.running(), "operator-root");
            let told = client.fleet().get_fleet(fleet_v1::GetFleetRequest {}).await.ok()?;
            let leader = told.into_inner().leader;
            let found = self.replicas.iter().position(|replica| replica.address == leader)?;
            self.replicas[found].child.is_some().then_some(found)
        };
        eventually(async || leads().await.is_some()).await;
        leads().await.unwrap()
    }

    /// `kill -9` of a replica.
    pub fn kill_replica(&mut self, replica: usize) {
        self.replicas[replica].kill();
    }

    pub fn restart_replica(&mut self, replica: usize) {
        self.replicas[replica].start();
    }

    /// A replica stops as it does for an operator.
    pub async fn stop_replica(&mut self, replica: usize) {
        let mut child = self.replicas[replica].child.take().expect("it runs");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
        assert!(status.success(), "{status}");
    }

    /// The same, and the programs of the next version take its place.
    pub async fn upgrade_replica(&mut self, replica: usize) {
        println!("r{replica} is upgraded");
        self.stop_replica(replica).await;
        self.versions.as_ref().expect("there are two").upgrade(&format!("r{replica}"));
        self.replicas[replica].start();
    }

    /// The same of a host's daemon. Its card goes on.
    pub async fn upgrade_host(&mut self, host: usize) {
        println!("h{host} is upgraded");
        let daemon = self.hosts[host].daemon.take().expect("it runs");
        let stopped = tokio::task::spawn_blocking(|| daemon.stop()).await.unwrap();
        assert!(stopped.0.success(), "{}", stopped.1);
        self.versions.as_ref().expect("there are two").upgrade(&format!("h{host}"));
        self.restart_host(host).await;
    }

    /// A replica takes only signed bitstreams from now on: `signatures` is what its settings say of that. It is started
    /// again.
    pub fn require_signatures(&mut self, replica: usize, signatures: &str) {
        let replica = &mut self.replicas[replica];
        replica.kill();
        let text = std::fs::read_to_string(&replica.settings).unwrap();
        let text = text.replace("allow_unsigned = true\n", signatures);
        std::fs::write(&replica.settings, text).unwrap();
        replica.start();
    }

    /// Adds lines to the settings of a replica, which is killed and started again.
    pub fn add_settings(&mut self, replica: usize, lines: &str) {
        let replica = &mut self.replicas[replica];
        replica.kill();
        let text = std::fs::read_to_string(&replica.settings).unwrap();
        std::fs::write(&replica.settings, text + lines).unwrap();
        replica.start();
    }

    /// The folder of the replicas, for files that their settings name.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// The folder of a host, with its card.
    pub fn home(&self, host: usize) -> &Home {
        &self.hosts[host].home
    }

    /// A client of a host's own daemon, as an operator.
    pub async fn host(&self, host: usize) -> TestClient {
        TestClient::connect(&self.hosts[host].home.socket(), "operator/test").await.unwrap()
    }

    /// Makes a tenant and its certificate.
    pub async fn add_tenant(&self, tenant: &str) {
        pki(&self.home, &format!("issue tenant/{tenant}")).unwrap();
        let root = self.client(self.running(), "operator-root");
        root.create_tenant(tenant).await.unwrap();
    }

    /// `kill -9` of a host's daemon.
    pub fn kill_host(&mut self, host: usize) {
        println!("host h{host} is killed");
        drop(self.hosts[host].daemon.take().map(DaemonProcess::kill));
    }

    /// The highest term that any host has seen, from their data folders.
    pub fn highest_epoch(&self) -> i64 {
        let seen = self.hosts.iter().map(|host| {
            let file = host.home.path().join("store/fleet-epoch.json");
            serde_json::from_str::<i64>(&std::fs::read_to_string(file).unwrap()).unwrap()
        });
        seen.max().unwrap()
    }

    /// A host's software card ends, and cannot be started again until that is given back.
    pub fn take_card(&self, host: usize) {
        let home = &self.hosts[host].home;
        let (folder, aside) = (home.card_folder(), home.path().join("aside"));
        let pid = home.card_pid().expect("it runs");
        std::fs::rename(&folder, &aside).unwrap();
        std::fs::write(&folder, "").unwrap();
        let process = rustix::process::Pid::from_raw(pid.cast_signed()).expect("it is no zero");
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        println!("the card of host h{host} is gone");
    }

    pub fn give_card_back(&self, host: usize) {
        let home = &self.hosts[host].home;
        std::fs::remove_file(home.card_folder()).unwrap();
        std::fs::rename(home.path().join("aside"), home.card_folder()).unwrap();
    }

    pub async fn restart_host(&mut self, host: usize) {
        let daemon = self.hosts[host].home.start().await;
        self.hosts[host].daemon = Some(daemon);
    }

    /// Whether a host answers, as the fleet sees it.
    pub async fn condition(&self, host: usize) -> Result<Condition, String> {
        let request = fleet_v1::GetHostRequest { name: format!("hosts/h{host}") };
        let client = self.client(self.running(), "operator-root");
        let found = client.fleet().get_host(request).await;
        let found = found.map_err(|status: Status| status.to_string())?;
        Ok(found.into_inner().host.unwrap().condition())
    }

    /// Asks for a DAG at a replica, again and again until it is acknowledged; then waits until it is ready.
    pub async fn create(&self, replica: usize, dag: &str, gbps: u64) {
        let acme = self.client(replica, "tenant-acme");
        let spec = DagSpec::chain(&["nat".parse().unwrap()], Bandwidth::from_gbps(gbps));
        eventually(async || match acme.create_dag(&name(dag), &spec).await {
            Ok(_) => true,
            Err(status) if status.code() == tonic::Code::AlreadyExists => true,
            Err(status) => {
                let is_passing = status.code() == tonic::Code::Unavailable;
                assert!(is_passing, "{dag} is refused: {status:?}");
                false
            }
        })
        .await;
        println!("{dag} is acknowledged");
        eventually(async || self.state(replica, dag).await == Ok(State::Ready)).await;
        println!("{dag} is ready");
    }

    /// The state of a DAG, as a tenant sees it at a replica.
    pub async fn state(&self, replica: usize, dag: &str) -> Result<State, String> {
        let acme = self.client(replica, "tenant-acme");
        let request = v1::GetDagRequest { name: name(dag).to_string() };
        let found = acme.dags().get_dag(request).await.map_err(|status| status.to_string())?;
        Ok(found.into_inner().dag.unwrap().state())
    }

    /// DAGs of the fleet that a running host says that it has, and whether they are ready.
    pub async fn on_host(&self, host: usize) -> Vec<(String, bool)> {
        let Host { home, daemon } = &self.hosts[host];
        if daemon.is_none() {
            return Vec::new();
        }
        let client = TestClient::connect(&home.socket(), "operator/test").await.unwrap();
        let dags = client.list_dags().await.into_iter();
        dags.map(|dag| {
            assert!(dag.fleet_managed, "{dag:?}");
            (dag.name.clone(), dag.state() == State::Ready)
        })
        .collect()
    }

    /// The host that serves each of these DAGs, once exactly one that runs has it, and has it ready.
    pub async fn served_once(&self, dags: &[&str]) -> Vec<usize> {
        let mut wanted: Vec<_> = dags.iter().map(|dag| (name(dag).to_string(), true)).collect();
        wanted.sort();
        let told = async || {
            let mut all = Vec::new();
            for host in 0..self.hosts.len() {
                all.extend(self.on_host(host).await.into_iter().map(|dag| (dag, host)));
            }
            all.sort();
            all
        };
        eventually(async || told().await.into_iter().map(|(dag, _)| dag).eq(wanted.clone())).await;
        told().await.into_iter().map(|(_, host)| host).collect()
    }
}

/// Output of `snicd host-spec`, as the API has it.
fn host_of(spec: &HostSpec) -> fleet_v1::Host {
    let cards = spec.cards.iter().map(|(id, card)| fleet_v1::HostCard {
        card: id.to_string(),
        profile: serde_json::to_string(&card.profile).unwrap(),
        functions: card.functions,
        cordoned: card.is_cordoned,
        ..Default::default()
    });
    fleet_v1::Host {
        zone: spec.zone.to_string(),
        rack: spec.rack.to_string(),
        labels: spec.labels.clone(),
        cordoned: spec.is_cordoned,
        cards: cards.collect(),
        ..Default::default()
    }
}
