//! A rig: a card's process with the fast path, programmed through its registers, between two hosts.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snic_card_soft::{CardExtras, CardFolder, SoftCardSettings};
use snic_fast_path::FastPath;

use crate::card::{FAMILIES, Family};
use crate::site::{Site, inside, ip};
use crate::support;

/// Set for the process that is the card: its folder, and its namespace.
const FOLDER: &str = "SNIC_FAST_PATH_FOLDER";
const NAMESPACE: &str = "SNIC_FAST_PATH_NAMESPACE";
const SEED: &str = "SNIC_FAST_PATH_SEED";
pub const FAMILY: &Family = &FAMILIES[0];
pub const NAT: &str = r#"{"inside":["10.0.0.1/32"],"external":["10.1.0.200"]}"#;
pub const FIREWALL: &str =
    r#"{"rules":[{"action":"accept","protocol":"udp"},{"action":"accept","protocol":"tcp"}]}"#;
/// Time in which what was sent has arrived.
pub const ARRIVAL: Duration = Duration::from_millis(300);

/// Is the card until it is killed, where this process was started for that. Says whether it was.
pub fn serve() -> bool {
    let (Ok(folder), Ok(namespace)) = (std::env::var(FOLDER), std::env::var(NAMESPACE)) else {
        return false;
    };
    let seed = std::env::var(SEED).ok().map(|seed| seed.parse().expect("a number"));
    inside(&namespace, || {
        let offload = Some(snic_fast_path::open as _);
        let extras = CardExtras { offload, seed, ..CardExtras::default() };
        let served = snic_card_soft::serve_folder(folder.as_ref(), None, extras);
        served.expect("it serves until it is killed");
    });
    true
}

/// A process that ends with its value.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a card's process in a namespace whose devices `cb` and `ca` are its uplink and function 0.
pub fn start(
    namespace: &str,
    fast_path: bool,
    seed: Option<u64>,
) -> (Killed, tempfile::TempDir, support::Bench) {
    let port = |spec: &str| spec.parse().expect("a port");
    let settings = SoftCardSettings {
        model: "sim-16".to_owned(),
        uplink: Some(port("interface:cb")),
        functions: vec![port("interface:ca")],
        guards: Vec::new(),
        failovers: Vec::new(),
        fast_path,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let place = CardFolder::new(folder.path());
    std::fs::write(place.settings(), serde_json::to_vec(&settings).expect("text")).expect("ours");
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "process::card", "--ignored", "--nocapture"]);
    command.env(FOLDER, folder.path()).env(NAMESPACE, namespace).stdout(Stdio::null());
    command.envs(seed.map(|seed| (SEED, seed.to_string())));
    let process = Killed(command.spawn().expect("it starts"));
    let until = Instant::now() + Duration::from_secs(10);
    while UnixStream::connect(place.socket()).is_err() {
        assert!(Instant::now() < until, "no card");
        std::thread::sleep(Duration::from_millis(5));
    }
    let bench = support::Bench::of(&place, &settings, String::new());
    (process, folder, bench)
}

/// A card's process between two hosts, with a DAG of a NAT and a firewall.
pub struct Rig {
    pub bench: support::Bench,
    pub site: Site,
    pub process: Killed,
    pub folder: tempfile::TempDir,
}

impl Rig {
    /// `None`, after it has said why, where it cannot be made.
    pub fn new(purpose: &str) -> Option<Self> {
        Self::with(purpose, true, None)
    }

    /// With the fast path or without, and a DAG with a rate in kbit/s and a burst in bytes.
    pub fn with(purpose: &str, fast_path: bool, limit: Option<[u32; 2]>) -> Option<Self> {
        let site = Site::new(purpose)?;
        if let Err(error) = FastPath::load() {
            assert!(std::env::var_os("CI").is_none(), "missing: {error:?}");
            println!("not run: {error}");
            return None;
        }
        let [a, b, card] = &site.namespaces;
        for (namespace, device, host) in [(a, "a", FAMILY.hosts[0]), (b, "b", FAMILY.hosts[1])] {
            ip(&format!("-n {namespace} address add {host}/24 dev {device}"));
        }
        ip(&format!("-n {a} neigh add {} lladdr 02:00:00:00:00:0b dev a", FAMILY.gateway));
        ip(&format!("-n {b} neigh add {} lladdr 02:00:00:00:00:0a dev b", FAMILY.external));
        ip(&format!("-n {a} route add default via {} dev a", FAMILY.gateway));
        let (process, folder, mut bench) = start(card, fast_path, None);
        if let Some([rate, burst]) = limit {
            bench.limit(rate, burst);
        }
        bench.program_with(&[Some(NAT), Some(FIREWALL)], Some(0));
        Some(Self { bench, site, process, folder })
    }

    /// A datagram socket of the first host, to a port of the second.
    pub fn sender(&self, from: u16, to: u16) -> UdpSocket {
        inside(&self.site.namespaces[0], || {
            let socket = UdpSocket::bind(address(FAMILY.hosts[0], from)).expect("it is free");
            socket.connect(address(FAMILY.hosts[1], to)).expect("a route");
            socket
        })
    }

    /// A datagram socket of the second host.
    pub fn receiver(&self, port: u16) -> UdpSocket {
        inside(&self.site.namespaces[1], || {
            let socket = UdpSocket::bind(address(FAMILY.hosts[1], port)).expect("it is free");
            socket.set_read_timeout(Some(ARRIVAL)).expect("a time");
            socket
        })
    }

    /// Packets that passed in the kernel so far.
    pub fn fast(&mut self) -> u64 {
        self.bench.observe().fast_packets
    }

    /// Sends datagrams until some pass in the kernel.
    pub fn warm_up(&mut self, sender: &UdpSocket, receiver: &UdpSocket) {
        let (before, until) = (self.fast(), Instant::now() + Duration::from_secs(10));
        while self.fast() < before + 3 {
            assert!(
                Instant::now() < until,
                "nothing passes in the kernel: {:?}",
                self.bench.observe()
            );
            send(sender, 5);
        }
        while receive(receiver).is_some() {}
    }
}

/// A socket's address.
pub fn address(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().expect("an address"), port)
}

/// Sends so many datagrams, one after the other.
pub fn send(socket: &UdpSocket, count: usize) {
    for number in 0..count {
        socket.send(&(number as u32).to_be_bytes()).expect("it is taken");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The next datagram of a socket: where it came from, and its number.
pub fn receive(socket: &UdpSocket) -> Option<(SocketAddr, u32)> {
    let mut bytes = [0; 2_048];
    let (length, from) = socket.recv_from(&mut bytes).ok()?;
    let number = bytes.get(..length.min(4))?.try_into().map(u32::from_be_bytes);
    Some((from, number.unwrap_or_default()))
}

/// Datagrams that are there.
pub fn count(socket: &UdpSocket) -> usize {
    std::iter::from_fn(|| receive(socket)).count()
}
