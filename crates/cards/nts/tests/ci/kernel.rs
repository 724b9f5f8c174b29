//! The kernel's network stack at both ends: it verifies every checksum and length, and a connection
//! that it keeps is one that was translated right.

use std::process::Stdio;

use serde_json::json;

use super::card::{Card, Ending, Namespace, nt};
use super::{PYTHON, left_out, without_namespaces};

pub const INSIDE_MAC: &str = "02:00:00:00:00:0a";
pub const OUTSIDE_MAC: &str = "02:00:00:00:00:0b";
/// Long enough for many segments, short enough for a debug build.
const BYTES: usize = 300_000;

/// A namespace whose interface `wire` ends as `end` in the card's.
pub fn host(card: &Namespace, purpose: &str, end: &str, mac: &str) -> Namespace {
    let host = Namespace::new(purpose);
    host.ip(&format!("link add wire type veth peer name {end} netns {}", card.name));
    // One segment at a time, as on a wire; checksums are left to the card, as hosts do.
    host.ip(&format!("link set wire address {mac} gso_max_segs 1 up"));
    card.ip(&format!("link set {end} up"));
    host
}

/// A Python program that serves one TCP connection or echoes datagrams; and the client's side of it.
fn server_program(address: &str) -> String {
    format!(
        "import socket\n\
         f = socket.AF_INET6 if ':' in '{address}' else socket.AF_INET\n\
         s = socket.socket(f); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
         s.bind(('{address}', 8000)); s.listen()\n\
         while True:\n    c, peer = s.accept()\n    c.sendall((peer[0] + '\\n').encode())\n    \
         c.sendall(b'x' * {BYTES}); c.shutdown(socket.SHUT_WR); c.recv(1); c.close()\n"
    )
}

fn client_program(address: &str) -> String {
    format!(
        "import socket, time\n\
         for _ in range(100):\n    try:\n        c = socket.create_connection(('{address}', 8000), 5)\n        break\n    \
         except OSError:\n        time.sleep(0.1)\n\
         c.settimeout(30)\n\
         data = b''\n\
         while True:\n    more = c.recv(65536)\n    if not more:\n        break\n    data += more\n\
         line, rest = data.split(b'\\n', 1)\n\
         print(line.decode(), len(rest), rest == b'x' * len(rest))\n"
    )
}

#[test]
fn tcp_passes_firewall_and_nat_between_two_kernels() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    for (inside, outside, external, bits) in [
        ("10.0.0.1", "192.0.2.1", "192.0.2.254", 24),
        ("2001:db8:1::1", "2001:db8:2::1", "2001:db8:2::fe", 64),
    ] {
        let nodad = if bits == 24 { "" } else { "nodad" };
        let card_ns = Namespace::new("card");
        let client = host(&card_ns, "client", "left", INSIDE_MAC);
        let server = host(&card_ns, "server", "right", OUTSIDE_MAC);
        client.ip(&format!("addr add {inside}/{bits} dev wire {nodad}"));
        client.ip(&format!("neigh add {outside} lladdr {OUTSIDE_MAC} dev wire"));
        client.ip(&format!("route add {outside} dev wire"));
        server.ip(&format!("addr add {outside}/{bits} dev wire {nodad}"));
        server.ip(&format!("neigh add {external} lladdr {INSIDE_MAC} dev wire"));
        let rules = json!({"rules": [{"action": "accept", "source": format!("{inside}/{}",
            if bits == 24 { 32 } else { 128 })}]});
        let mut card = Card::new(vec![
            nt("checksum", &json!({"mode": "fill"})),
            nt("firewall", &rules),
            nt(
                "nat",
                &json!({"inside": [format!("{inside}/{}", if bits == 24 { 32 } else { 128 })],
                "external": [external]}),
            ),
            nt("checksum", &json!({"mode": "fill"})),
        ]);
        card.has_one_order = true;
        card.attach(&card_ns, "left");
        card.attach(&card_ns, "right");
        let mut serving = server.command(PYTHON);
        serving.args(["-c", &server_program(outside)]).stdin(Stdio::null());
        let _serving = Ending(serving.spawn().unwrap());
        let mut fetch = client.command(PYTHON);
        fetch.args(["-c", &client_program(outside)]);
        let out = card.serve(&mut fetch, |_| None);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(text.trim(), format!("{external} {BYTES} True"), "{errors} {}", card.drops());
        let translated = card.nts[2].counters().forwarded;
        assert!(translated > 200, "{translated} packets");
    }
}

/// The kernel's VXLAN device is one end; the other is the NT, with a TCP server of another kernel
/// behind it.
#[test]
fn the_kernel_s_vxlan_device_is_a_peer() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    transfer_through_vxlan(1_400, 1_500);
}

/// A kernel that knows of no tunnel sends packets that do not fit: it learns the path's MTU from the NT's errors, or
/// nothing arrives (RFC 7348, section 4.3).
#[test]
fn a_kernel_learns_the_mtu_of_the_vxlan_tunnel() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    transfer_through_vxlan(1_450, 1_400);
}

/// A transfer from a guest behind the NT to the kernel's device, both with `mtu`, over a path with `path_mtu` according
/// to the NT's configuration.
fn transfer_through_vxlan(mtu: usize, path_mtu: usize) {
    let card_ns = Namespace::new(&format!("vcard{mtu}"));
    let peer = host(&card_ns, &format!("vpeer{mtu}"), "left", INSIDE_MAC);
    let guest = host(&card_ns, &format!("vguest{mtu}"), "right", "02:00:00:00:00:0d");
    peer.ip("addr add 198.51.100.1/24 dev wire");
    peer.ip(&format!("neigh add 198.51.100.2 lladdr {OUTSIDE_MAC} dev wire"));
    peer.ip("link add vx type vxlan id 4242 local 198.51.100.1 remote 198.51.100.2 dstport 4789 dev wire");
    peer.ip(&format!("link set vx address 02:00:00:00:00:0c mtu {mtu} gso_max_segs 1 up"));
    peer.ip("addr add 10.9.0.1/24 dev vx");
    guest.ip(&format!("link set wire mtu {mtu}"));
    guest.ip("addr add 10.9.0.2/24 dev wire");
    // Wire 0 is the tunnel's side. From there packets are unpacked, and packed on the way back.
    let mut card = Card::new(vec![
        nt("checksum", &json!({"mode": "fill"})),
        nt(
            "vxlan",
            &json!({"vni": 4242, "local": "198.51.100.2", "remote": "198.51.100.1",
            "local_mac": OUTSIDE_MAC, "remote_mac": INSIDE_MAC, "udp_checksum": true, "mtu": path_mtu}),
        ),
        nt("checksum", &json!({"mode": "fill"})),
    ]);
    card.attach(&card_ns, "left");
    card.attach(&card_ns, "right");
    let mut serving = guest.command(PYTHON);
    serving.args(["-c", &server_program("10.9.0.2")]).stdin(Stdio::null());
    let _serving = Ending(serving.spawn().unwrap());
    let mut fetch = peer.command(PYTHON);
    fetch.args(["-c", &client_program("10.9.0.2")]);
    let out = card.serve(&mut fetch, |_| None);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(text.trim(), format!("10.9.0.1 {BYTES} True"), "{errors} {}", card.drops());
    let emitted = card.nts[1].counters().emitted;
    assert_eq!(emitted > 0, mtu + 50 > path_mtu, "{emitted} errors");
}

/// A kernel that knows of no tunnel learns the path's MTU from the ESP NT's errors (RFC 4301, section 8.2), for both IP
/// versions inside and outside; the other end is a second ESP NT, and both kernels send more than fits.
#[test]
fn a_kernel_learns_the_mtu_of_the_esp_tunnel() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    let inner = [("10.1.0.1", "10.2.0.1", 32), ("2001:db8:1::1", "2001:db8:2::1", 128)];
    let outer = [("192.0.2.1", "192.0.2.2", 52), ("2001:db8:a::1", "2001:db8:a::2", 72)];
    for (near, far, bits) in inner {
        for (here, there, overhead) in outer {
            let purpose = format!("e{bits}x{overhead}");
            let card_ns = Namespace::new(&format!("{purpose}c"));
            let client = host(&card_ns, &format!("{purpose}i"), "left", INSIDE_MAC);
            let server = host(&card_ns, &format!("{purpose}o"), "right", OUTSIDE_MAC);
            for (host, own, other, station) in
                [(&client, near, far, OUTSIDE_MAC), (&server, far, near, INSIDE_MAC)]
            {
                let nodad = if bits == 32 { "" } else { "nodad" };
                host.ip(&format!("addr add {own}/{bits} dev wire {nodad}"));
                host.ip(&format!("neigh replace {other} lladdr {station} dev wire"));
                host.ip(&format!("route replace {other} dev wire"));
            }
            let end = |local: &str, remote: &str, prefixes: [&str; 2], spis: [u32; 2]| {
                let keys = spis.map(|spi| format!("{:02x}", spi & 0xFF).repeat(20));
                let [own, others] = prefixes.map(|host| format!("{host}/{bits}"));
                nt(
                    "esp",
                    &json!({"local": local, "remote": remote, "local_prefixes": [own],
                        "remote_prefixes": [others], "outbound": {"spi": spis[0], "key": keys[0]},
                        "inbound": [{"spi": spis[1], "key": keys[1]}], "mtu": 1_400}),
                )
            };
            let mut card = Card::new(vec![
                nt("checksum", &json!({"mode": "fill"})),
                end(here, there, [near, far], [4_097, 4_098]),
                end(there, here, [far, near], [4_098, 4_097]),
                nt("checksum", &json!({"mode": "fill"})),
            ]);
            card.attach(&card_ns, "left");
            card.attach(&card_ns, "right");
            let mut serving = server.command(PYTHON);
            serving.args(["-c", &server_program(far)]).stdin(Stdio::null());
            let _serving = Ending(serving.spawn().unwrap());
            let mut fetch = client.command(PYTHON);
            // A datagram that does not fit teaches the client's side; the transfer the server's.
            let learnt = format!(
                "\nsix = ':' in '{far}'\n\
                 level, mtu, discover = (41, 24, 23) if six else (0, 14, 10)\n\
                 u = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)\n\
                 u.setsockopt(level, discover, 2); u.connect(('{far}', 9))\n\
                 for _ in range(100):\n    \
                     try:\n        u.send(b'x' * 1400)\n    \
                     except OSError:\n        pass\n    \
                     if u.getsockopt(level, mtu) < 1500:\n        break\n    \
                     time.sleep(0.05)\n\
                 print(u.getsockopt(level, mtu))\n"
            );
            fetch.args(["-c", &(client_program(far) + &learnt)]);
            let out = card.serve(&mut fetch, |_| None);
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let errors = String::from_utf8_lossy(&out.stderr).into_owned();
            // The table of the page: rounded down to a multiple of 4, and 2 less.
            let mtu = (1_400 - overhead) / 4 * 4 - 2;
            let expected = format!("{near} {BYTES} True\n{mtu}");
            assert_eq!(text.trim(), expected, "{errors} {}", card.drops());
            let emitted: Vec<_> = (1..3).map(|end| card.nts[end].counters().emitted).collect();
            assert!(emitted.iter().all(|errors| *errors > 0), "{emitted:?} errors");
        }
    }
}

/// A program that answers TCP connections and datagrams with the address of who asks, and one that asks from
/// one port after the other.
fn answering_program(address: &str) -> String {
    format!(
        "import socket, threading\n\
         def datagrams():\n    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('{address}', 8000))\n    \
         while True:\n        data, peer = u.recvfrom(100); u.sendto(peer[0].encode(), peer)\n\
         threading.Thread(target=datagrams, daemon=True).start()\n\
         s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
         s.bind(('{address}', 8000)); s.listen(64)\n\
         while True:\n    c, peer = s.accept()\n    c.sendall(peer[0].encode()); c.shutdown(socket.SHUT_WR); c.recv(1); c.close()\n"
    )
}

fn asking_program(steps: &str) -> String {
    format!(
        "import socket, time\n\
         def tcp(address):\n    for _ in range(100):\n        try:\n            c = socket.create_connection((address, 8000), 5)\n            \
         break\n        except OSError:\n            time.sleep(0.1)\n    \
         c.settimeout(10); seen = c.recv(100).decode(); end = c.recv(1); c.close()\n    return seen\n\
         def udp(address):\n    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((address, 8000)); u.settimeout(1)\n    \
         for _ in range(10):\n        u.send(b'?')\n        try:\n            return u.recv(100).decode()\n        \
         except OSError:\n            pass\n    return 'nothing'\n\
         {steps}\n"
    )
}

/// A client and a server whose packets pass `card`, which stands for `external` at the server's side and for
/// `service` at the client's.
fn between(
    purpose: &str,
    nts: Vec<snic_nts::NtInstance>,
    steps: &str,
    [external, service]: [&str; 2],
) -> (String, Card) {
    let card_ns = Namespace::new(&format!("{purpose}c"));
    let client = host(&card_ns, &format!("{purpose}i"), "left", INSIDE_MAC);
    let server = host(&card_ns, &format!("{purpose}o"), "right", OUTSIDE_MAC);
    for (host, own, others, station) in [
        (&client, "10.0.0.1", ["192.0.2.1", service], OUTSIDE_MAC),
        (&server, "192.0.2.1", ["10.0.0.1", external], INSIDE_MAC),
    ] {
        host.ip(&format!("addr add {own}/32 dev wire"));
        for other in others {
            host.ip(&format!("neigh replace {other} lladdr {station} dev wire"));
            host.ip(&format!("route replace {other} dev wire"));
        }
    }
    let mut card = Card::new(nts);
    card.attach(&card_ns, "left");
    card.attach(&card_ns, "right");
    let mut serving = server.command(PYTHON);
    serving.args(["-c", &answering_program("192.0.2.1")]).stdin(Stdio::null());
    let _serving = Ending(serving.spawn().unwrap());
    let mut asking = client.command(PYTHON);
    asking.args(["-c", &asking_program(steps)]);
    let out = card.serve(&mut asking, |_| None);
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    (String::from_utf8_lossy(&out.stdout).into_owned() + &errors, card)
}

/// Two kernels use four ports for connections one after the other: those of closed ones serve again, though the
/// server has its end of each in TIME_WAIT.
#[test]
fn closed_connections_give_their_ports_to_the_next_ones() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    let settings =
        json!({"inside": ["10.0.0.1/32"], "external": ["192.0.2.254"], "ports": "5000-5003"});
    let nts = vec![
        nt("checksum", &json!({"mode": "fill"})),
        nt("nat", &settings),
        nt("checksum", &json!({"mode": "fill"})),
    ];
    let steps = "print([tcp('192.0.2.1') for _ in range(20)] == 20 * ['192.0.2.254'])";
    let (said, card) = between("ports", nts, steps, ["192.0.2.254", "192.0.2.254"]);
    assert_eq!(said.trim(), "True", "{}", card.drops());
}

/// RFC 5508, REQ-8: a host for which no port is left is told so, and its kernel tells the application at once.
#[test]
fn a_socket_is_told_that_the_nat_has_no_port_left() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    let settings =
        json!({"inside": ["10.0.0.1/32"], "external": ["192.0.2.254"], "ports": "5000-5000"});
    let nts = vec![
        nt("checksum", &json!({"mode": "fill"})),
        nt("nat", &settings),
        nt("checksum", &json!({"mode": "fill"})),
    ];
    let steps = "first = udp('192.0.2.1')\n\
        c = None\n\
        for _ in range(100):\n    \
            try:\n        c = socket.create_connection(('192.0.2.1', 8000), 5); break\n    \
            except ConnectionRefusedError:\n        time.sleep(0.1)\n\
        try:\n    socket.create_connection(('192.0.2.1', 8000), 30)\n\
        except OSError as error:\n    print(first, error.errno, end=' ')\n\
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('192.0.2.1', 8000)); u.settimeout(30); u.send(b'?')\n\
        try:\n    u.recv(1)\n\
        except OSError as error:\n    print(error.errno)";
    let (said, card) = between("req8", nts, steps, ["192.0.2.254", "192.0.2.254"]);
    const EHOSTUNREACH: u32 = 113;
    let expected = format!("192.0.2.254 {EHOSTUNREACH} {EHOSTUNREACH}");
    assert_eq!(said.trim(), expected, "{}", card.drops());
}

/// A kernel takes an answer only from the address that it asked: the service's, or the backend's own.
#[test]
fn a_backend_that_is_asked_itself_answers_itself() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    let service = |protocol: &str| {
        json!({"address": "198.51.100.7", "protocol": protocol, "port": 8000,
            "backends": [{"address": "192.0.2.1", "port": 8000}]})
    };
    let nts = vec![
        nt("checksum", &json!({"mode": "fill"})),
        nt("load-balancer", &json!({"services": [service("tcp"), service("udp")]})),
        nt("checksum", &json!({"mode": "fill"})),
    ];
    let steps =
        "print([ask(to) for ask in (tcp, udp) for to in ('198.51.100.7', '192.0.2.1') * 2])";
    let (said, card) = between("balance", nts, steps, ["10.0.0.1", "198.51.100.7"]);
    let expected = ["'10.0.0.1'"; 8].join(", ");
    assert_eq!(said.trim(), format!("[{expected}]"), "{}", card.drops());
}
