//! Replies, ICMP errors and fragments through `nat -> firewall` and `firewall -> nat`, judged by the kernels at both ends:
//! what a socket reports is what its kernel has accepted as being about its own packets. Packets of both directions meet
//! the NTs in the same order, as on a card.
//!
//! ```text
//!   client ──── nat -> firewall ──── router ──── server, behind a link with MTU 1300
//! ```

use std::process::Stdio;

use serde_json::json;

use super::card::{Card, Ending, Namespace, nt};
use super::kernel::{INSIDE_MAC, OUTSIDE_MAC, host};
use super::{PYTHON, left_out, without_namespaces};

const SERVER_MTU: u16 = 1_300;

/// The addresses of one IP version.
struct Addresses {
    client: &'static str,
    router: &'static str,
    external: &'static str,
    server: &'static str,
    /// The router's at the link to the server.
    beyond: &'static str,
    bits: u8,
}

const ADDRESSES: [Addresses; 2] = [
    Addresses {
        client: "10.0.0.1",
        router: "192.0.2.1",
        external: "192.0.2.254",
        server: "198.51.100.2",
        beyond: "198.51.100.1",
        bits: 24,
    },
    Addresses {
        client: "2001:db8:1::1",
        router: "2001:db8:2::1",
        external: "2001:db8:2::fe",
        server: "2001:db8:3::2",
        beyond: "2001:db8:3::1",
        bits: 64,
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    NatFirst,
    FirewallFirst,
}

fn versions_and_orders() -> impl Iterator<Item = (&'static Addresses, Order)> {
    let orders = [Order::NatFirst, Order::FirewallFirst];
    ADDRESSES.iter().flat_map(move |addresses| orders.map(|order| (addresses, order)))
}

struct Net {
    client: Namespace,
    _router: Namespace,
    server: Namespace,
    card: Card,
    /// Until it has gone, its helpers find it.
    _card: Namespace,
}

impl Net {
    fn new(addresses: &Addresses, order: Order, purpose: &str) -> Self {
        let Addresses { client, router, external, server, beyond, bits } = addresses;
        let nodad = if *bits == 24 { "" } else { "nodad" };
        let name = |what: &str| format!("{purpose}{what}{bits}{order:?}");
        let card_ns = Namespace::new(&name("card"));
        let client_ns = host(&card_ns, &name("c"), "left", INSIDE_MAC);
        let router_ns = host(&card_ns, &name("r"), "right", OUTSIDE_MAC);
        let server_ns = Namespace::new(&name("s"));
        client_ns.ip(&format!("addr add {client}/{bits} dev wire {nodad}"));
        client_ns.ip(&format!("neigh add {router} lladdr {OUTSIDE_MAC} dev wire"));
        client_ns.ip(&format!("route add {router} dev wire"));
        client_ns.ip(&format!("route add {server} via {router} dev wire"));
        router_ns.ip(&format!("addr add {router}/{bits} dev wire {nodad}"));
        router_ns.ip(&format!("neigh add {external} lladdr {INSIDE_MAC} dev wire"));
        router_ns.ip(&format!("link add far type veth peer name wire netns {}", server_ns.name));
        router_ns.ip(&format!("link set far mtu {SERVER_MTU} up"));
        router_ns.ip(&format!("addr add {beyond}/{bits} dev far {nodad}"));
        server_ns.ip(&format!("link set wire mtu {SERVER_MTU} up"));
        server_ns.ip(&format!("addr add {server}/{bits} dev wire {nodad}"));
        server_ns.ip(&format!("route add {external} via {beyond} dev wire"));
        let forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward; \
                          echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
        assert!(router_ns.command("sh").args(["-c", forwarding]).status().unwrap().success());
        // A server that is not there yet refuses each try: no later error may be one too many.
        let all_errors = "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range; echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; \
                          echo 0 > /proc/sys/net/ipv6/icmp/ratelimit";
        for namespace in [&client_ns, &router_ns, &server_ns] {
            assert!(namespace.command("sh").args(["-c", all_errors]).status().unwrap().success());
        }
        let prefix = |address: &str| format!("{address}/{}", if *bits == 24 { 32 } else { 128 });
        // The firewall lets hosts inside open flows, by the addresses that they have there; no rule lets an error pass.
        let seen = if order == Order::NatFirst { external } else { client };
        let rules = ["udp", "tcp", "icmp"].map(
            |protocol| json!({"action": "accept", "protocol": protocol, "source": prefix(seen)}),
        );
        let mut nts = vec![
            nt("checksum", &json!({"mode": "fill"})),
            nt("nat", &json!({"inside": [prefix(client)], "external": [external]})),
            nt("firewall", &json!({"rules": rules})),
        ];
        if order == Order::FirewallFirst {
            nts.swap(1, 2);
        }
        let mut card = Card::new(nts);
        card.has_one_order = true;
        card.attach(&card_ns, "left");
        card.attach(&card_ns, "right");
        Self { client: client_ns, _router: router_ns, server: server_ns, card, _card: card_ns }
    }

    /// Runs a program at the client against one that serves, until the client's has ended; what it printed.
    fn run(&mut self, serve: &str, ask: &str) -> String {
        let mut serving = self.server.command(PYTHON);
        serving.args(["-c", serve]).stdin(Stdio::null());
        let _serving = Ending(serving.spawn().unwrap());
        let mut asking = self.client.command(PYTHON);
        asking.args(["-c", ask]);
        let out = self.card.serve(&mut asking, |_| None);
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{errors} {}", self.card.drops());
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }
}

/// The start of both programs: a socket, and numbers that Python has no names for.
fn start(server: &str) -> String {
    format!(
        "import socket, time, os\n\
         six = ':' in '{server}'\n\
         level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP\n\
         MTU, DISCOVER, DO, RECVERR, TTL = (24, 23, 2, 25, 16) if six else (14, 10, 2, 11, 2)\n\
         def new():\n    \
             s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)\n    \
             s.settimeout(10)\n    return s\n"
    )
}

/// Tells who connects to port 7 its address. Answers datagrams at port 7 with as many bytes, and 'refuse' with a datagram a second later, twice.
fn server_program(server: &str) -> String {
    start(server)
        + &format!(
            "import threading\n\
             def connections():\n    \
                 t = socket.socket(socket.AF_INET6 if six else socket.AF_INET); t.bind(('{server}', 7)); t.listen()\n    \
                 while True:\n        c, peer = t.accept(); c.send(peer[0].encode()); c.recv(1); c.close()\n\
             threading.Thread(target=connections, daemon=True).start()\n\
             s = new(); s.settimeout(None); s.bind(('{server}', 7))\n\
             while True:\n    \
                 data, peer = s.recvfrom(65536)\n    \
                 if data != b'refuse':\n        s.sendto(data, peer); continue\n    \
                 c = new(); s.close(); c.bind(('{server}', 7)); c.connect(peer)\n    \
                 c.send(b'ready'); time.sleep(0.5); c.send(b'too late')\n    \
                 try:\n        c.recv(10); said = b'nothing'\n    \
                 except ConnectionRefusedError:\n        said = b'refused'\n    \
                 c.close(); s = new(); s.settimeout(None); s.bind(('{server}', 7))\n    \
                 s.sendto(said, s.recvfrom(100)[1])\n"
        )
}

/// Waits until the server is there. `ask` leaves aside what answers an earlier try, and tries again when the kernel has
/// learned the path's MTU: it tells the socket, as it should.
fn until_served(server: &str) -> String {
    format!(
        "import errno\n\
         def ask(s, data, wanted=None):\n    \
             for _ in range(50):\n        \
                 try:\n            s.settimeout(0.3); s.send(data); said = s.recv(65536)\n            \
                     while wanted not in (None, said):\n                said = s.recv(65536)\n            \
                     return said\n        \
                 except (socket.timeout, ConnectionRefusedError):\n            pass\n        \
                 except OSError as error:\n            \
                     if error.errno != errno.EMSGSIZE:\n                raise\n\
         s = new(); s.connect(('{server}', 7)); assert ask(s, b'hello') == b'hello'\n"
    )
}

#[test]
fn errors_reach_the_sockets_that_they_are_about_in_both_directions() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    for (addresses, order) in versions_and_orders() {
        let Addresses { server, router, external, .. } = addresses;
        let mut net = Net::new(addresses, order, "err");
        let ask = start(server)
            + &until_served(server)
            + &format!(
                // A connection, and an echo request, for which the kernel of the client chooses the identifier.
                "c = socket.create_connection(('{server}', 7), 10); print(c.recv(100).decode()); c.close()\n\
                 e = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM, 58 if six else 1)\n\
                 e.settimeout(10); e.connect(('{server}', 0)); e.send(bytes([128 if six else 8, 0, 0, 0, 0, 0, 0, 9]) + b'ping')\n\
                 said = e.recv(100); print(said[0] == (129 if six else 0), said[6:])\n\
                 # a closed port of the server (RFC 5508, REQ-4)\n\
                 c = new(); c.connect(('{server}', 9)); c.send(b'x')\n\
                 try:\n    c.recv(1)\n\
                 except ConnectionRefusedError:\n    print('refused')\n\
                 # traceroute: the router names itself\n\
                 t = new(); t.setsockopt(level, RECVERR, 1); t.setsockopt(level, TTL, 1)\n\
                 t.connect(('{server}', 33434)); t.send(b'x')\n\
                 for _ in range(100):\n    \
                     try:\n        _, told, _, _ = t.recvmsg(100, 1024, socket.MSG_ERRQUEUE); break\n    \
                     except BlockingIOError:\n        time.sleep(0.05)\n\
                 offender = told[0][2][16:]\n\
                 print(socket.inet_ntop(socket.AF_INET6, offender[8:24]) if six else socket.inet_ntoa(offender[4:8]))\n\
                 # the path's MTU\n\
                 p = new(); p.setsockopt(level, DISCOVER, DO); p.connect(('{server}', 7))\n\
                 print(p.getsockopt(level, MTU)); p.send(b'x' * 1400)\n\
                 for _ in range(100):\n    \
                     if p.getsockopt(level, MTU) < 1500:\n        break\n    \
                     time.sleep(0.05)\n\
                 print(p.getsockopt(level, MTU))\n\
                 # a port that the client has closed (REQ-5)\n\
                 r = new(); r.bind(('', 0)); port = r.getsockname()[1]; r.connect(('{server}', 7))\n\
                 assert ask(r, b'refuse') == b'ready'; r.close(); time.sleep(1.5)\n\
                 s = new(); s.connect(('{server}', 7)); print(ask(s, b'and?').decode())\n\
                 # an echo that both kernels cut\n\
                 e.send(bytes([128 if six else 8, 0, 0, 0, 0, 0, 0, 10]) + bytes(range(256)) * 20)\n\
                 print(e.recv(9000)[8:] == bytes(range(256)) * 20)\n"
            );
        let said = net.run(&server_program(server), &ask);
        let expected = format!(
            "{external}\nTrue b'\\x00\\tping'\nrefused\n{router}\n1500\n{SERVER_MTU}\nrefused\nTrue"
        );
        assert_eq!(said, expected, "{order:?} {}", net.card.drops());
    }
}

#[test]
fn fragments_in_reverse_order_are_put_together_by_the_kernels() {
    if let Some(why) = without_namespaces() {
        return left_out(why);
    }
    for (addresses, order) in versions_and_orders() {
        let server = addresses.server;
        let mut net = Net::new(addresses, order, "frag");
        net.card.reverses_fragments = true;
        let ask = start(server)
            + &until_served(server)
            + "for size in (2000, 8000, 60000):\n    \
                   data = os.urandom(size)\n    print(size, ask(s, data, data) == data)\n";
        let said = net.run(&server_program(server), &ask);
        assert_eq!(said, "2000 True\n8000 True\n60000 True", "{}", net.card.drops());
        let held: u64 = net.card.nts.iter().map(|nt| nt.counters().consumed).sum();
        assert!(held > 90, "{held} fragments waited for their first");
    }
}
