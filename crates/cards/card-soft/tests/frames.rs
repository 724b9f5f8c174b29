//! Frames that are not what they seem, judged by Linux: packets hidden from a firewall, control frames of a link, and
//! stations that move as keepalived moves them.
//!
//! ```text
//!   guest ── function 0 ─┐                    the same frames past the card:
//!                        ├─ card ── uplink ── server      guest ── veth ── server
//!   neighbour ─ function 1┘
//! ```

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use snic_card_soft::{Failover, FunctionGuard, PortSpec};
use snic_nts::config::Mac;

use support::{Bench, ip};

/// Longest time of something that happens for certain.
const PATIENCE: Duration = Duration::from_secs(60);
/// The port of the application that nobody may reach.
const SHUT: u16 = 5_000;

fn bytes_of(station: &str) -> Vec<u8> {
    let digits = station.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"));
    digits.collect()
}

/// A UDP datagram from the first host of a network to this one, whose payload begins with a name.
fn datagram(to: [u8; 4], name: &str) -> Vec<u8> {
    let payload = [name.as_bytes(), b";", &[0; 18]].concat();
    let [udp, all] =
        [8 + payload.len(), 28 + payload.len()].map(|bytes| (bytes as u16).to_be_bytes());
    let mut ip = vec![0x45, 0, all[0], all[1], 0, 0, 0, 0, 64, 17, 0, 0, to[0], to[1], to[2], 1];
    ip.extend(to);
    let sum: u32 = ip.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = !(((sum >> 16) + (sum & 0xffff)) as u16);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let [high, low] = SHUT.to_be_bytes();
    [&ip[..], &[0x9c, 0x40, high, low, udp[0], udp[1], 0, 0], &payload].concat()
}

/// Bytes between the stations and a packet, and whether Linux takes the packet nevertheless.
const HEADS: [(&str, &[u8], bool); 16] = [
    ("plain", &[8, 0], true),
    ("one-tag", &[0x81, 0, 0, 0, 8, 0], true),
    ("two-tags", &[0x81, 0, 0, 0, 0x81, 0, 0, 0, 8, 0], true),
    ("three-tags", &[0x81, 0, 0, 0, 0x81, 0, 0, 0, 0x81, 0, 0, 0, 8, 0], true),
    ("with-priority", &[0x81, 0, 0xe0, 0, 0x81, 0, 0xe0, 0, 0x81, 0, 0xe0, 0, 8, 0], true),
    ("service-tag", &[0x88, 0xa8, 0, 0, 8, 0], true),
    ("service-tags", &[0x88, 0xa8, 0, 0, 0x88, 0xa8, 0, 0, 0x88, 0xa8, 0, 0, 8, 0], true),
    ("mixed-tags", &[0x88, 0xa8, 0, 0, 0x81, 0, 0, 0, 0x88, 0xa8, 0, 0, 0x81, 0, 0, 0, 8, 0], true),
    ("old-tag", &[0x91, 0, 0, 0, 8, 0], false),
    ("vlan-5", &[0x81, 0, 0, 0, 0x81, 0, 0, 0, 0x81, 0, 0, 5, 8, 0], false),
    ("snap", &[0, 60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], false),
    ("llc", &[0, 60, 6, 6, 3], false),
    ("mpls", &[0x88, 0x47, 0, 1, 1, 64], false),
    ("pppoe", &[0x88, 0x64, 0x11, 0, 0, 1, 0, 60, 0, 0x21], false),
    ("version", &[0x86, 0xdd], false),
    ("unknown", &[0x88, 0xb5], false),
];

/// The frames, for this station.
fn hidden(to: [u8; 4], station: &str, from: &str) -> Vec<Vec<u8>> {
    let frame = |(name, head, _): &(&str, &[u8], bool)| {
        [&bytes_of(station)[..], &bytes_of(from), head, &datagram(to, name)].concat()
    };
    HEADS.iter().map(frame).collect()
}

fn missing() -> Option<&'static str> {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/net/tun").exists();
    let starts = |program| Command::new(program).arg("-V").output().is_ok();
    (!can || !starts("ip") || !starts("python3"))
        .then_some("it needs root, /dev/net/tun, ip and python3")
}

/// A program that ends with its value.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host in a network namespace, at a TAP device of the card.
struct Host {
    device: String,
    namespace: String,
}

impl Host {
    /// With an address of 10.77.0.0/24 that ends so.
    fn new(device: &str, last: u8) -> Self {
        let host = Self { device: device.to_owned(), namespace: format!("snic-{device}") };
        ip(&format!("netns add {}", host.namespace));
        ip(&format!("link set {device} netns {}", host.namespace));
        host.ip(&format!("link set {device} addrgenmode none"));
        host.ip(&format!("address add 10.77.0.{last}/24 dev {device}"));
        host.ip(&format!("link set {device} up"));
        host
    }

    fn ip(&self, line: &str) {
        ip(&format!("-n {} {line}", self.namespace));
    }

    /// A program in Python.
    fn python(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "python3", "-u", "-c", program]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// The address of a device.
    fn station(&self, device: &str) -> String {
        let program = format!("print(open('/sys/class/net/{device}/address').read().strip())");
        let output = self.python(&program).output().expect("ip starts");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).output();
    }
}

/// A card with so many functions whose devices begin with a letter, and the hosts there: the uplink's first.
fn card(letter: char, functions: usize, guards: Vec<FunctionGuard>) -> (Bench, Vec<Host>) {
    card_with_failovers(letter, functions, guards, Vec::new())
}

/// As [`card`], with stations that functions share.
fn card_with_failovers(
    letter: char,
    functions: usize,
    guards: Vec<FunctionGuard>,
    failovers: Vec<Failover>,
) -> (Bench, Vec<Host>) {
    let id = std::process::id() % 100_000;
    let names: Vec<_> = (0..=functions).map(|port| format!("{letter}{port}x{id}")).collect();
    let specs = names.iter().map(|name| format!("tap:{name}").parse().expect("a port"));
    let specs: Vec<PortSpec> = specs.collect();
    let bench = Bench::with_failovers(&specs[0], &specs[1..], guards, failovers);
    let lasts = [2, 1, 3];
    let hosts = names.iter().zip(lasts).map(|(name, last)| Host::new(name, last)).collect();
    (bench, hosts)
}

/// Sends frames by a device, as they are.
fn send(host: &Host, device: &str, frames: &[Vec<u8>]) {
    let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let frames: Vec<_> = frames.iter().map(hex).collect();
    let program = format!(
        "import socket,sys,time\ns=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\ns.bind(('{device}',0))\n\
         for f in sys.argv[1:]: s.send(bytes.fromhex(f));time.sleep(0.002)"
    );
    let status = host.python(&program).args(frames).status().expect("ip starts");
    assert!(status.success(), "sending by {device}");
}

/// A program in a namespace that prints a name a line, until its value goes.
struct Names {
    lines: Receiver<String>,
    seen: BTreeSet<String>,
    _program: Ending,
}

impl Names {
    fn start(host: &Host, program: &str) -> Self {
        let mut child = host.python(program).spawn().expect("ip starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut names = Self { lines, seen: BTreeSet::new(), _program: Ending(child) };
        names.wait_for("ready");
        names
    }

    /// The application: what comes to its port.
    fn application(host: &Host) -> Self {
        let program = format!(
            "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('',{SHUT}));print('ready')\n\
             while 1: print(s.recv(99).split(b';')[0].decode())"
        );
        Self::start(host, &program)
    }

    /// Frames that come to a device and hold one of these texts.
    fn wire(host: &Host, device: &str, texts: &[&str]) -> Self {
        let program = format!(
            "import socket\ns=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons(3));s.bind(('{device}',3))\n\
             print('ready')\n\
             while 1:\n\
             \x20f,a=s.recvfrom(2000)\n\
             \x20[print(n) for n in {texts:?} if a[2]!=4 and n.encode()+b';' in f]"
        );
        Self::start(host, &program)
    }

    /// Waits until this name came; those before it are kept.
    fn wait_for(&mut self, name: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(name) {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            self.seen.insert(line.unwrap_or_else(|_| panic!("no {name}: {:?}", self.seen)));
        }
    }

    /// All names that came so far.
    fn all(mut self) -> BTreeSet<String> {
        self.seen.extend(self.lines.try_iter());
        self.seen.remove("ready");
        self.seen
    }
}

#[test]
fn packets_that_linux_would_take_do_not_pass_a_firewall_that_cannot_read_them() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let (mut bench, hosts) = card('p', 1, Vec::new());
    let [server, guest] = &hosts[..] else { panic!("two hosts") };
    let ssh = r#"{"rules":[{"action":"accept","protocol":"tcp","destination_ports":"22"}]}"#;
    bench.program_with(&[None, Some(ssh)], Some(0));
    let names: Vec<_> = HEADS.iter().map(|(name, ..)| *name).collect();
    let mut direct = Names::application(server);
    let wire = Names::wire(server, &server.device, &names);

    // Past the card: Linux takes off any number of tags with VLAN 0.
    guest.ip(&format!("link add vd0 type veth peer name vd1 netns {}", server.namespace));
    for (host, device, address) in [(guest, "vd0", "10.79.0.1"), (server, "vd1", "10.79.0.2")] {
        host.ip(&format!("address add {address}/24 dev {device}"));
        host.ip(&format!("link set {device} up"));
    }
    let (near, far) = (guest.station("vd0"), server.station("vd1"));
    let mut frames = hidden([10, 79, 0, 2], &far, &near);
    let end = datagram([10, 79, 0, 2], "end");
    frames.push([&bytes_of(&far)[..], &bytes_of(&near), &[8, 0], &end].concat());
    send(guest, "vd0", &frames);
    direct.wait_for("end");
    let mut came = direct.all();
    assert!(came.remove("end"));
    let taken = HEADS.iter().filter(|(.., taken)| *taken).map(|(name, ..)| (*name).to_owned());
    assert_eq!(came, taken.collect::<BTreeSet<_>>(), "what Linux takes");

    // Through the card: none, and each is counted.
    let application = Names::application(server);
    let stations = (server.station(&server.device), guest.station(&guest.device));
    let dropped = |bench: &mut Bench, reason: &str| {
        let seen = bench.observe();
        let dropped = seen.tasks.iter().flat_map(|task| &task.dropped);
        dropped.filter(|(of, _)| of.contains(reason)).map(|(_, packets)| packets).sum::<u64>()
    };
    let before = dropped(&mut bench, "");
    send(guest, &guest.device, &hidden([10, 77, 0, 2], &stations.0, &stations.1));
    let until = Instant::now() + PATIENCE;
    while dropped(&mut bench, "") < before + HEADS.len() as u64 {
        assert!(Instant::now() < until, "{:?}", bench.observe());
        std::thread::sleep(Duration::from_millis(20));
    }
    // What the firewall accepts comes after them by the same way.
    let server_22 = "import socket\ns=socket.create_server(('',22));print('ready')\nwhile 1: s.accept()[0].send(b'hello')";
    let _ssh = Names::start(server, server_22);
    let client =
        "import socket\nprint(socket.create_connection(('10.77.0.2',22),30).recv(9).decode())";
    let said = guest.python(client).output().expect("ip starts");
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "hello", "{:?}", bench.observe());
    assert_eq!(application.all(), BTreeSet::new(), "at the application");
    assert_eq!(wire.all(), BTreeSet::new(), "on the wire");
    assert!(dropped(&mut bench, "unreadable") >= 9, "{:?}", bench.observe());
}

/// Frames of protocols between two ends of a link, each with its name in it.
fn control_frames(from: &str) -> Vec<(String, Vec<u8>)> {
    let from = bytes_of(from);
    let mut all = Vec::new();
    let mut add = |name: String, to: [u8; 6], head: &[u8]| {
        let frame = [&to[..], &from, head, name.as_bytes(), b";", &[0; 40]].concat();
        all.push((name, frame));
    };
    for last in 0..=0x0f {
        add(format!("reserved-{last}"), [1, 0x80, 0xc2, 0, 0, last], &[8, 0]);
    }
    add("pause".into(), [1, 0x80, 0xc2, 0, 0, 1], &[0x88, 0x08, 0, 1, 0xff, 0xff]);
    add("pause-to-all".into(), [0xff; 6], &[0x88, 0x08, 0, 1, 0xff, 0xff]);
    add("pfc-with-a-tag".into(), [0xff; 6], &[0x81, 0, 0, 0, 0x88, 0x08, 1, 1]);
    add("lacp-to-all".into(), [0xff; 6], &[0x88, 0x09, 1]);
    add("lldp-to-all".into(), [0xff; 6], &[0x88, 0xcc]);
    add("bpdu".into(), [1, 0x80, 0xc2, 0, 0, 0], &[0, 40, 0x42, 0x42, 3]);
    add("mvrp".into(), [1, 0x80, 0xc2, 0, 0, 0x21], &[0x88, 0xf5]);
    add("cdp".into(), [1, 0, 0x0c, 0xcc, 0xcc, 0xcc], &[0, 40, 0xaa, 0xaa, 3]);
    all
}

#[test]
fn control_frames_of_a_link_reach_neither_the_network_nor_another_guest() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let (mut bench, hosts) = card('q', 2, Vec::new());
    // NTs without a configuration pass all frames on unchanged.
    bench.program_with(&[None, None], None);
    for (port, sender) in hosts.iter().enumerate() {
        let from = sender.station(&sender.device);
        let control = control_frames(&from);
        let end = [&[0xff; 6][..], &bytes_of(&from), &[0x88, 0xb5], b"end;", &[0; 40]].concat();
        let names: Vec<_> = control.iter().map(|(name, _)| &**name).chain(["end"]).collect();
        let others = hosts.iter().filter(|other| other.device != sender.device);
        let wires: Vec<_> = others.map(|other| Names::wire(other, &other.device, &names)).collect();
        let before = bench.ports()[port].control;
        let frames: Vec<_> = control.iter().map(|(_, frame)| frame.clone()).chain([end]).collect();
        send(sender, &sender.device, &frames);
        for mut wire in wires {
            wire.wait_for("end");
            assert_eq!(wire.all(), BTreeSet::from(["end".to_owned()]), "from {}", sender.device);
        }
        let refused = bench.ports()[port].control - before;
        assert_eq!(refused, control.len() as u64, "{}", sender.device);
    }
}

#[test]
fn a_guarded_function_sends_from_its_station_in_its_vlans_and_little_to_all() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let own = [2, 0, 0, 0, 0, 0x77];
    let guard = FunctionGuard {
        function: 0,
        macs: Some(vec![Mac(own)]),
        vlans: Some([5].into()),
        group_frames_per_second: Some(10),
    };
    let (mut bench, hosts) = card('r', 2, vec![guard]);
    let [server, guest, neighbour] = &hosts[..] else { panic!("three hosts") };
    bench.program_with(&[None, None], None);
    let other = bytes_of(&neighbour.station(&neighbour.device));
    let frame = |name: &str, to: &[u8], from: &[u8], tag: &[u8]| {
        [to, from, tag, &[0x88, 0xb5], name.as_bytes(), b";", &[0; 40]].concat()
    };
    let to = bytes_of(&server.station(&server.device));
    let tag = |vlan: u8| [0x81, 0, 0, vlan];
    let names = ["own", "foreign", "unknown", "group-source", "vlan-5", "vlan-6", "inner-6", "end"];
    let mut wire = Names::wire(server, &server.device, &names);
    let frames = [
        frame("own", &to, &own, &[]),
        frame("foreign", &to, &other, &[]),
        frame("unknown", &to, &[2, 0, 0, 0, 0, 0x78], &[]),
        frame("group-source", &to, &[3, 0, 0, 0, 0, 0x77], &[]),
        frame("vlan-5", &to, &own, &tag(5)),
        frame("vlan-6", &to, &own, &tag(6)),
        frame("inner-6", &to, &own, &[tag(0), tag(6)].concat()),
        frame("end", &to, &own, &[]),
    ];
    send(guest, &guest.device, &frames);
    wire.wait_for("end");
    assert_eq!(wire.all(), BTreeSet::from(["own", "vlan-5", "end"].map(str::to_owned)));
    // Frames of other VLANs do not get out to it either.
    let mut inside = Names::wire(guest, &guest.device, &["vlan-5", "vlan-6", "end"]);
    let frames = [
        frame("vlan-5", &own, &to, &tag(5)),
        frame("vlan-6", &own, &to, &tag(6)),
        frame("end", &own, &to, &[]),
    ];
    send(server, &server.device, &frames);
    inside.wait_for("end");
    assert_eq!(inside.all(), BTreeSet::from(["vlan-5", "end"].map(str::to_owned)));
    // Another function's station is nobody else's, and an address of a group nobody's, without any setting.
    let mut wire = Names::wire(server, &server.device, &["stolen", "group-source", "fair"]);
    let frames = [
        frame("stolen", &to, &own, &[]),
        frame("group-source", &to, &[3, 0, 0, 0, 0, 0x77], &[]),
        frame("fair", &to, &other, &[]),
    ];
    send(neighbour, &neighbour.device, &frames);
    wire.wait_for("fair");
    assert_eq!(wire.all(), BTreeSet::from(["fair".to_owned()]));
    // A second's worth passes, and what is paid in meanwhile.
    let flood = vec![frame("to-all", &[0xff; 6], &own, &[]); 300];
    send(guest, &guest.device, &flood);
    let ports = bench.ports();
    assert!(ports[1].wrong_source >= 3 && ports[1].wrong_vlan >= 3, "{ports:?}");
    assert!(ports[1].over_group_rate >= 20, "{ports:?}");
    assert_eq!(ports[2].wrong_source, 2, "{ports:?}");
}

/// The address of the virtual router that two guests provide.
const VIRTUAL: &str = "10.77.0.100";

/// keepalived at a guest, until its value goes.
struct Keepalived {
    parent: Ending,
    folder: tempfile::TempDir,
}

impl Keepalived {
    /// With a priority; with or without a station of the virtual router.
    fn start(guest: &Host, priority: u8, has_own_station: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let station = if has_own_station { "use_vmac vrrp51\n vmac_xmit_base\n" } else { "" };
        let configuration = format!(
            "global_defs {{\n vrrp_version 3\n}}\nvrrp_instance service {{\n state BACKUP\n interface {}\n {station}\
             virtual_router_id 51\n priority {priority}\n advert_int 0.2\n virtual_ipaddress {{\n {VIRTUAL}/24\n }}\n}}\n",
            guest.device
        );
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        std::fs::write(path("conf"), configuration).expect("a file");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &guest.namespace, "keepalived", "-n", "-P", "-l"]);
        command.args(["-f", &path("conf"), "-p", &path("pid"), "-r", &path("vrrp.pid")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let parent = Ending(command.spawn().expect("ip starts"));
        Self { parent, folder }
    }

    /// Kills both of its processes, so that neither can say farewell or start the other again.
    fn kill(self) {
        let parent = self.parent.0.id().to_string();
        let worker = std::fs::read_to_string(self.folder.path().join("vrrp.pid"));
        let worker = worker.expect("it runs").trim().to_owned();
        for (signal, process) in [("-STOP", &parent), ("-KILL", &worker), ("-KILL", &parent)] {
            let status = Command::new("kill").args([signal, process]).status().expect("it starts");
            assert!(status.success(), "kill {signal} {process}");
        }
    }
}

/// With a station of its own the virtual router needs `failovers`; without, its address moves to the other guest's station
/// by gratuitous ARP.
#[test]
fn traffic_follows_the_virtual_router_of_keepalived_when_its_master_is_killed() {
    let has_keepalived = Command::new("keepalived").arg("--version").output().is_ok();
    if let Some(why) = missing().or((!has_keepalived).then_some("it needs keepalived")) {
        assert!(std::env::var_os("CI").is_none(), "missing: {why}");
        println!("not run: {why}");
        return;
    }
    for (letter, has_own_station) in [('s', true), ('t', false)] {
        let station = Mac([0, 0, 0x5e, 0, 1, 51]);
        let failover = Failover { macs: vec![station], functions: vec![0, 1] };
        let failovers = if has_own_station { vec![failover] } else { Vec::new() };
        let (mut bench, hosts) = card_with_failovers(letter, 2, Vec::new(), failovers);
        let [network, first, second] = &hosts[..] else { panic!("three hosts") };
        bench.program_with(&[None, None], None);
        let answering = |guest: &Host, name: &str| {
            let program = format!(
                "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('',{SHUT}));print('ready')\n\
                 while 1: d,a=s.recvfrom(99);s.sendto(b'{name}',a)"
            );
            Names::start(guest, &program)
        };
        let _answering = (answering(first, "first"), answering(second, "second"));
        let master = Keepalived::start(first, 200, has_own_station);
        let asking = format!(
            "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.settimeout(.05);print('ready')\n\
             while 1:\n\
             \x20try: s.sendto(b'who?',('{VIRTUAL}',{SHUT}));print(s.recv(99).decode())\n\
             \x20except OSError: pass\n\
             \x20time.sleep(.02)"
        );
        let mut answers = Names::start(network, &asking);
        answers.wait_for("first");
        let _backup = Keepalived::start(second, 100, has_own_station);
        // The machine of the master is gone with it: its kernel would still answer for the address.
        master.kill();
        first.ip(&format!("link set {} down", first.device));
        answers.wait_for("second");
        let ports = bench.ports();
        assert!(ports.iter().all(|port| port.wrong_source == 0), "{ports:?}");
    }
}
