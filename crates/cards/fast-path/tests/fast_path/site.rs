//! Two hosts, a card between them, and the card's slow devices.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use snic_card_soft::{HeaderRule, Port, PortSpec, Received, enter_network};
use snic_fast_path::{DagProfile, Exit, FastPath, KernelRule};
use snic_nts::{Packet, Pool};

/// Stations of the hosts.
pub const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 10], [2, 0, 0, 0, 0, 11]];
/// A rate and a burst that no test exceeds by chance.
pub const WIDE: DagProfile =
    DagProfile { generation: 1, rate_kbps: 100_000_000, burst_bytes: 1 << 24 };
/// Time in which a frame that is on its way has arrived.
const ARRIVAL: Duration = Duration::from_secs(2);

pub fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().expect("ip starts");
    assert!(output.status.success(), "ip {line}: {output:?}");
}

/// Runs something in a network namespace. What it opens stays there.
pub fn inside<T: Send>(namespace: &str, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace);
            run()
        });
        thread.join().expect("it ends well")
    })
}

/// Moves this thread into a network namespace.
pub fn enter(namespace: &str) {
    let path = format!("/run/netns/{namespace}");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    enter_network(&file.into()).expect("root may");
}

/// Namespaces of two hosts and a card: `a` at `ca` and `b` at `cb`.
pub struct Site {
    /// The hosts', and the card's.
    pub namespaces: [String; 3],
}

impl Site {
    /// `None`, after it has said why, where it cannot be made.
    pub fn new(purpose: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || Command::new("ip").arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "missing: root and ip");
            println!("not run: it needs root and ip");
            return None;
        }
        let process = std::process::id();
        let site = Self {
            namespaces: ["a", "b", "c"].map(|of| format!("snic-fp-{process}-{purpose}-{of}")),
        };
        let [a, b, card] = &site.namespaces;
        for namespace in [a, b, card] {
            ip(&format!("netns add {namespace}"));
        }
        inside(card, || {
            // The host's own network says nothing at the ports.
            for of in ["all", "default"] {
                let path = format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6");
                std::fs::write(&path, "1").expect("root may");
            }
        });
        for ((namespace, device), station) in [(a, "a"), (b, "b")].into_iter().zip(STATIONS) {
            let station = station.map(|byte| format!("{byte:02x}")).join(":");
            ip(&format!(
                "link add name {device} netns {namespace} address {station} type veth peer name c{device} netns {card}"
            ));
            ip(&format!("-n {namespace} link set dev lo up"));
            ip(&format!("-n {namespace} link set dev {device} addrgenmode none"));
            ip(&format!("-n {namespace} link set dev {device} up"));
            ip(&format!("-n {card} link set dev c{device} up"));
        }
        Some(site)
    }

    /// Opens a port in one of the namespaces.
    pub fn open(&self, at: usize, spec: &str) -> Box<dyn Port> {
        let spec: PortSpec = spec.parse().expect("a port");
        inside(&self.namespaces[at], || spec.open(None).expect("it opens"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

/// A card whose ports have the program, and the ends at which frames are seen.
pub struct Bench {
    pub path: FastPath,
    /// Indices of the card's devices.
    pub indices: [u32; 2],
    /// The hosts' ends.
    pub hosts: Vec<Box<dyn Port>>,
    /// Devices that get frames which the program does not take.
    pub slow: [Box<dyn Port>; 2],
    pub pool: Pool,
    pub site: Site,
}

impl Bench {
    /// `None`, after it has said why, where it cannot be made.
    pub fn new(purpose: &str) -> Option<Self> {
        let site = Site::new(purpose)?;
        let hosts = vec![site.open(0, "interface:a"), site.open(1, "interface:b")];
        let slow = [site.open(2, "tap:sa"), site.open(2, "tap:sb")];
        let loaded = inside(&site.namespaces[2], || {
            let mut path = FastPath::load()?;
            let indices = [path.attach("ca", "sa")?, path.attach("cb", "sb")?];
            Ok::<_, snic_fast_path::FastPathError>((path, indices))
        });
        let (mut path, indices) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "missing: {error:?}");
                println!("not run: {error}");
                return None;
            }
        };
        path.set_version(1).expect("it takes it");
        path.set_dag(1, &WIDE).expect("it takes it");
        Some(Self { path, indices, hosts, slow, pool: Pool::new(8_192, 9_216), site })
    }

    /// A rule for packets from the first host to the second.
    pub fn rule(&self, headers: HeaderRule, slot: u32) -> KernelRule {
        let exit = Exit::Device(self.indices[1]);
        let (port, row, generation, version) = (self.indices[0], 1, 1, 1);
        KernelRule { headers, port, exit, row, generation, version, slot }
    }

    /// Sends a frame of the first host.
    pub fn send(&mut self, frame: &[u8]) {
        let packet = self.pool.copy_of(frame).expect("a buffer");
        let sent = self.hosts[0].send(&mut vec![packet]);
        assert_eq!(sent.frames, 1, "{frame:02x?}");
    }

    /// The next frame of the first host, at the second host or at the slow device: which of them, and its bytes.
    pub fn arrival(&mut self) -> Option<(Place, Vec<u8>)> {
        let until = Instant::now() + ARRIVAL;
        while Instant::now() < until {
            let ports = [(Place::Host, &mut self.hosts[1]), (Place::Slow, &mut self.slow[0])];
            for (place, port) in ports {
                if let Some(packet) = next(port.as_mut(), &self.pool) {
                    return Some((place, packet.bytes().to_vec()));
                }
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        None
    }

    /// Sends a frame, and says where it arrived.
    pub fn pass(&mut self, frame: &[u8]) -> (Place, Vec<u8>) {
        self.send(frame);
        self.arrival().unwrap_or_else(|| panic!("it went nowhere: {frame:02x?}"))
    }
}

/// Place where a frame arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Host,
    Slow,
}

/// The next frame of the first host at a port.
pub fn next(port: &mut dyn Port, pool: &Pool) -> Option<Packet> {
    loop {
        match port.receive(pool).expect("the device is there") {
            Received::Frame(packet) => {
                let bytes = packet.bytes();
                // Hosts that come up have things to say of their own.
                if bytes.get(6..12) == Some(&STATIONS[0][..])
                    && bytes.get(..2) != Some(&[0x33, 0x33])
                {
                    return Some(packet);
                }
            }
            Received::Nothing => return None,
            Received::NoBuffer | Received::TooLong => panic!("a frame was thrown away"),
        }
    }
}

/// Packets that a device of this thread's namespace has received.
pub fn received(device: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/thread-self/net/dev").expect("it is there");
    let line = all.lines().find(|line| line.trim().starts_with(&format!("{device}:")));
    let fields: Vec<_> = line.expect("the device").split_whitespace().collect();
    fields[2].parse().expect("a number")
}
