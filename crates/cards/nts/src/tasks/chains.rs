//! NTs in a row: packets of both directions pass all of them in the same order, as on a card.

use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::json;

use super::support::{
    Bench, End, assert_valid, assert_valid_error, cut, echo, parameter_problem, tcp, time_exceeded,
    too_big, udp_between, unreachable,
};
use crate::wire::{self, Flow, Fragment, Frame, Layout, quoted_flow};
use crate::{Direction, Packet, Verdict};

/// NTs of a DAG.
struct Chain(Vec<Bench>);

impl Chain {
    /// Sends a frame in; the frames that leave the chain.
    fn run(&mut self, frame: &[u8]) -> Vec<(Direction, Vec<u8>)> {
        let mut left = Vec::new();
        let packet = self.0[0].packet(frame);
        self.go(0, packet, &mut left);
        left
    }

    fn go(&mut self, from: usize, mut packet: Packet, left: &mut Vec<(Direction, Vec<u8>)>) {
        for at in from..self.0.len() {
            let verdict = self.0[at].pass(&mut packet);
            if let Some(translation) = packet.take_translation() {
                self.0.iter_mut().for_each(|other| {
                    other.nt.learn(&translation, other.now);
                });
            }
            for (direction, made) in self.0[at].made() {
                match direction {
                    Direction::Back => left.push((direction, made.bytes().to_vec())),
                    Direction::Onward => self.go(at + 1, made, left),
                }
            }
            match verdict {
                Verdict::Forward => {}
                Verdict::Reply => return left.push((Direction::Back, packet.bytes().to_vec())),
                Verdict::Consume | Verdict::Drop(_) => return,
            }
        }
        left.push((Direction::Onward, packet.bytes().to_vec()));
    }

    /// The one frame that goes on; it is valid.
    fn forwarded(&mut self, frame: &[u8]) -> Vec<u8> {
        let left = self.run(frame);
        let [(Direction::Onward, out)] = &left[..] else { panic!("{left:02x?}") };
        assert_valid(out);
        out.clone()
    }

    /// An error that goes on, with its layout and the flow of the packet that it quotes.
    fn error(&mut self, frame: &[u8]) -> (Layout, Flow) {
        let out = self.forwarded(frame);
        assert_valid_error(&out);
        let (layout, before) = (layout(&out), layout(frame));
        let kind = |frame: &[u8], layout: &Layout| frame[layout.transport..][..2].to_vec();
        assert_eq!(kind(&out, &layout), kind(frame, &before), "RFC 5508 REQ-4b, REQ-5b");
        (layout, quoted_flow(&out, &layout).unwrap().1)
    }

    fn dropped(&self) -> u64 {
        self.0.iter().map(|nt| nt.nt.counters().dropped_total()).sum()
    }

    /// Whether an error is dropped, and counted once.
    fn drops(&mut self, frame: &[u8]) -> bool {
        let before = self.dropped();
        self.run(frame).is_empty() && self.dropped() == before + 1
    }
}

fn layout(frame: &[u8]) -> Layout {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { panic!("not IP: {frame:02x?}") };
    layout
}

fn flow(frame: &[u8]) -> Flow {
    Flow::of(frame, &layout(frame))
}

fn end(address: IpAddr, port: u16) -> End {
    (Box::leak(address.to_string().into_boxed_str()), port)
}

fn sender(flow: Flow) -> End {
    end(flow.source, flow.source_port)
}

fn receiver(flow: Flow) -> End {
    end(flow.destination, flow.destination_port)
}

const NAT_OUTSIDE: [&str; 2] = ["203.0.113.1", "2001:db8:ffff::1"];

/// Host, server, a router outside and one inside.
type Hosts = (End, End, &'static str, &'static str);

const HOSTS: [Hosts; 2] = [
    (("10.0.0.1", 4_000), ("192.0.2.1", 80), "198.51.100.1", "10.0.0.254"),
    (("2001:db8:1::1", 4_000), ("2001:db8:2::1", 80), "2001:db8:9::1", "2001:db8:1::fe"),
];

fn nat() -> Bench {
    Bench::new("nat", json!({"inside": ["10.0.0.0/8", "2001:db8:1::/48"], "external": NAT_OUTSIDE}))
}

/// Only what comes from these may open a flow, and no rule accepts ICMP errors of routers.
fn wall(from: [&str; 2]) -> Bench {
    let rules: Vec<_> = from
        .iter()
        .flat_map(|from| {
            ["tcp", "udp", "icmp"]
                .map(|protocol| json!({"action": "accept", "protocol": protocol, "source": from}))
        })
        .collect();
    Bench::new("firewall", json!({"rules": rules}))
}

fn nat_and_wall() -> Chain {
    Chain(vec![nat(), wall(["203.0.113.1/32", "2001:db8:ffff::1/128"])])
}

/// The other order: the firewall sees addresses of inside on the way out, and those of the NAT on the way back.
fn wall_and_nat() -> Chain {
    Chain(vec![wall(["10.0.0.1/32", "2001:db8:1::1/128"]), nat()])
}

const ORDERS: [fn() -> Chain; 2] = [nat_and_wall, wall_and_nat];

/// Hosts of both IP versions, with firewall and NAT in both orders.
fn hosts_and_orders() -> impl Iterator<Item = (Hosts, fn() -> Chain)> {
    HOSTS.into_iter().flat_map(|hosts| ORDERS.map(|order| (hosts, order)))
}

type MakeError = fn(&str, &str, &[u8]) -> Vec<u8>;

/// An error of each kind, as a router makes it.
const ERRORS: [MakeError; 4] =
    [time_exceeded, unreachable, parameter_problem, |router, to, frame| {
        too_big(router, to, frame, 1_400)
    }];

#[test]
fn rfc_5508_req_4_errors_from_outside_reach_the_host_behind_nat_and_firewall() {
    for ((host, server, router, _), chain) in hosts_and_orders() {
        for packet in [udp_between(host, server, &[7; 600]), tcp(host, server, "S")] {
            let mut chain = chain();
            let sent = chain.forwarded(&packet);
            for error in ERRORS {
                let (outer, about) = chain.error(&error(router, sender(flow(&sent)).0, &sent));
                assert_eq!((outer.source.to_string(), sender(about)), (router.to_owned(), host));
                assert_eq!((outer.destination, receiver(about)), (about.source, server));
            }
        }
    }
}

#[test]
fn rfc_5508_req_5_errors_from_inside_reach_the_server_behind_nat_and_firewall() {
    for ((host, server, _, router), chain) in hosts_and_orders() {
        let mut chain = chain();
        let seen = sender(flow(&chain.forwarded(&udp_between(host, server, b"question"))));
        let answer = chain.forwarded(&udp_between(server, seen, &[7; 600]));
        // From the host, from a router inside, and from one between with an address of its own (RFC 4787, REQ-12a).
        let between = if server.0.contains(':') { "2001:db8:77::1" } else { "100.64.0.1" };
        for from in [host.0, router, between] {
            for error in ERRORS {
                let (outer, about) = chain.error(&error(from, server.0, &answer));
                assert_eq!((outer.source.to_string(), receiver(about)), (seen.0.to_owned(), seen));
                assert_eq!((outer.destination, sender(about)), (about.source, server));
            }
        }
    }
}

#[test]
fn rfc_5508_req_4_and_5_errors_about_no_session_are_dropped_and_counted() {
    for ((host, server, router, inside), chain) in hosts_and_orders() {
        let mut chain = chain();
        let sent = chain.forwarded(&udp_between(host, server, b"question"));
        let seen = sender(flow(&sent));
        let answer = chain.forwarded(&udp_between(server, seen, b"answer"));
        let other = (server.0, server.1 + 1);
        for error in ERRORS {
            let never_sent = udp_between(seen, other, b"");
            assert!(chain.drops(&error(router, seen.0, &never_sent)), "from outside");
            let never_came = udp_between(other, host, b"");
            assert!(chain.drops(&error(inside, server.0, &never_came)), "from inside");
            // RFC 1122, 3.2.2: an error goes to the sender of the packet that it quotes.
            assert!(chain.drops(&error(inside, router, &answer)), "to another");
            let mut damaged = error(router, seen.0, &sent);
            let checksum = layout(&damaged).transport + 2;
            damaged[checksum] ^= 1;
            assert!(chain.drops(&damaged), "RFC 5508 REQ-3");
        }
        assert_eq!(chain.forwarded(&udp_between(server, seen, b"more"))[..14], answer[..14]);
    }
}

#[test]
fn rfc_5382_req_10_errors_end_no_connection() {
    for ((host, server, router, _), chain) in hosts_and_orders() {
        let mut chain = chain();
        let sent = chain.forwarded(&tcp(host, server, "S"));
        let seen = sender(flow(&sent));
        chain.forwarded(&tcp(server, seen, "SA"));
        chain.forwarded(&tcp(host, server, "A"));
        for error in ERRORS {
            chain.error(&error(router, seen.0, &sent));
        }
        chain.forwarded(&tcp(server, seen, "A"));
        chain.forwarded(&tcp(host, server, "A"));
    }
}

#[test]
fn replies_pass_a_firewall_on_either_side_of_a_nat_and_nothing_else_does() {
    for ((host, server, ..), chain) in hosts_and_orders() {
        let mut chain = chain();
        let seen = sender(flow(&chain.forwarded(&udp_between(host, server, b"question"))));
        assert_eq!(receiver(flow(&chain.forwarded(&udp_between(server, seen, b"answer")))), host);
        let (other_port, other_host) = ((server.0, server.1 + 1), ("198.51.100.77", server.1));
        assert!(chain.drops(&udp_between(other_port, seen, b"")));
        if !host.0.contains(':') {
            assert!(chain.drops(&udp_between(other_host, seen, b"")));
        }
        assert!(chain.drops(&udp_between(server, (seen.0, seen.1 ^ 1), b"")));
        assert!(chain.drops(&tcp(server, seen, "SA")), "another protocol");
        let asked = chain.forwarded(&echo(host.0, server.0, 77, true));
        let (id, own) = (flow(&asked).source_port, flow(&asked).source.to_string());
        let answered = chain.forwarded(&echo(server.0, &own, id, false));
        assert_eq!(flow(&answered).destination_port, 77);
        assert!(chain.drops(&echo(server.0, &own, id ^ 1, false)));
        // What both keep outlives a load of their region.
        chain.0.iter_mut().for_each(Bench::restart);
        assert_eq!(receiver(flow(&chain.forwarded(&udp_between(server, seen, b"more")))), host);
    }
}

#[test]
fn a_closed_connection_is_closed_on_either_side_of_a_nat() {
    for ((host, server, ..), chain) in hosts_and_orders() {
        let mut chain = chain();
        let seen = sender(flow(&chain.forwarded(&tcp(host, server, "S"))));
        chain.forwarded(&tcp(server, seen, "SA"));
        for (from, to, flags) in
            [(host, server, "A"), (server, seen, "FA"), (host, server, "FA"), (server, seen, "A")]
        {
            chain.forwarded(&tcp(from, to, flags));
        }
        chain.0.iter_mut().for_each(|nt| nt.wait_secs(239));
        chain.forwarded(&tcp(server, seen, "A"));
        chain.0.iter_mut().for_each(|nt| nt.wait_secs(241));
        assert!(chain.drops(&tcp(server, seen, "A")));
    }
}

/// The NAT has one port, which goes from a closed connection to the next one with the same server.
#[test]
fn a_port_that_a_nat_gives_again_leads_to_its_last_connection() {
    let (host, server, ..) = HOSTS[0];
    let settings =
        json!({"inside": ["10.0.0.0/8"], "external": [NAT_OUTSIDE[0]], "ports": "5000-5000"});
    let rules = json!({"rules": [{"action": "accept", "source": "10.0.0.0/8"}]});
    let mut chain = Chain(vec![Bench::new("firewall", rules), Bench::new("nat", settings)]);
    let (first, second) = (host, (host.0, host.1 + 1));
    let seen = (NAT_OUTSIDE[0], 5_000);
    for host in [first, second] {
        for (from, to, flags) in [(host, server, "S"), (server, seen, "SA"), (host, server, "A")] {
            chain.forwarded(&tcp(from, to, flags));
        }
        if host == first {
            chain.forwarded(&tcp(host, server, "R"));
        }
    }
    // The first connection is forgotten, and nothing of the second one with it.
    chain.0.iter_mut().for_each(|nt| nt.wait_secs(300));
    for _ in 0..8 {
        let came = flow(&chain.forwarded(&tcp(server, seen, "A")));
        assert_eq!(receiver(came), second);
    }
    assert!(chain.drops(&tcp(first, server, "A")), "it is closed");
}

#[test]
fn what_a_nat_forwards_and_turns_around_passes_a_firewall_before_it() {
    let settings = json!({"inside": ["10.0.0.0/8"], "external": [NAT_OUTSIDE[0]], "forwards": [
        {"protocol": "tcp", "external": NAT_OUTSIDE[0], "external_port": 443, "inside": "10.0.0.9", "inside_port": 8_443},
    ]});
    let rules = json!({"rules": [
        {"action": "accept", "protocol": "tcp", "destination": "203.0.113.1/32", "destination_ports": "443"},
    ]});
    let mut chain = Chain(vec![Bench::new("firewall", rules), Bench::new("nat", settings)]);
    let (stranger, service, host) =
        (("192.0.2.1", 5_000), (NAT_OUTSIDE[0], 443), ("10.0.0.9", 8_443));
    assert!(chain.drops(&tcp(host, stranger, "S")), "no rule lets it open a connection");
    let came = flow(&chain.forwarded(&tcp(stranger, service, "S")));
    assert_eq!((sender(came), receiver(came)), (stranger, host));
    let answer = flow(&chain.forwarded(&tcp(host, stranger, "SA")));
    assert_eq!((sender(answer), receiver(answer)), (service, stranger));
    // A neighbour of the host comes by the same address, and is answered from it.
    let mut turned = |from, to, flags| {
        let left = chain.run(&tcp(from, to, flags));
        let [(Direction::Back, out)] = &left[..] else { panic!("{left:02x?}") };
        assert_valid(out);
        flow(out)
    };
    let neighbour = ("10.0.0.3", 6_000);
    let came = turned(neighbour, service, "S");
    assert_eq!(receiver(came), host);
    let back = turned(host, sender(came), "SA");
    assert_eq!((sender(back), receiver(back)), (service, neighbour));
}

const SERVICES: [(End, End, End); 2] = [
    (("198.51.100.1", 5_000), ("192.0.2.9", 80), ("10.0.0.5", 8_080)),
    (("2001:db8:2::1", 5_000), ("2001:db8:3::1", 80), ("2001:db8::5", 8_080)),
];

/// A load balancer with one backend for each IP version.
fn balancer() -> Bench {
    let services: Vec<_> = ["tcp", "udp"]
        .into_iter()
        .flat_map(|protocol| {
            SERVICES.map(|(_, service, backend)| {
                json!({"address": service.0, "port": service.1, "protocol": protocol,
                       "backends": [{"address": backend.0, "port": backend.1}]})
            })
        })
        .collect();
    Bench::new("load-balancer", json!({"table": "251", "services": services}))
}

/// A firewall that lets in what is for these.
fn wall_for(to: [&str; 2]) -> Bench {
    let rules = to.map(|to| json!({"action": "accept", "protocol": "udp", "destination": to}));
    Bench::new("firewall", json!({"rules": rules}))
}

fn balancer_and_wall() -> Chain {
    Chain(vec![balancer(), wall_for(["10.0.0.5/32", "2001:db8::5/128"])])
}

fn wall_and_balancer() -> Chain {
    Chain(vec![wall_for(["192.0.2.9/32", "2001:db8:3::1/128"]), balancer()])
}

#[test]
fn errors_about_a_service_pass_the_load_balancer_and_a_firewall_both_ways() {
    let orders: [fn() -> Chain; 2] = [balancer_and_wall, wall_and_balancer];
    for ((client, service, backend), chain) in
        SERVICES.into_iter().flat_map(|service| orders.map(|order| (service, order)))
    {
        let mut chain = chain();
        let request = chain.forwarded(&udp_between(client, service, &[7; 600]));
        let answer = chain.forwarded(&udp_between(backend, client, &[8; 600]));
        let router = if client.0.contains(':') { "2001:db8:9::1" } else { "203.0.113.9" };
        for error in ERRORS {
            // From a client's side, about an answer: to the backend that sent it.
            let (outer, about) = chain.error(&error(router, service.0, &answer));
            assert_eq!((outer.destination, sender(about)), (about.source, backend));
            assert_eq!(receiver(about), client);
            // From the backend's side, about a request: to the client, who knows the service only.
            for (from, shown) in [(backend.0, service.0), (router, router)] {
                let (outer, about) = chain.error(&error(from, client.0, &request));
                assert_eq!(
                    (outer.source.to_string(), receiver(about)),
                    (shown.to_owned(), service)
                );
                assert_eq!((outer.destination, sender(about)), (about.source, client));
            }
            let stranger = udp_between(service, (client.0, 9), b"");
            assert!(chain.drops(&error(router, client.0, &stranger)), "not from the service");
            assert!(chain.drops(&error(router, service.0, &stranger)), "about no flow");
        }
    }
}

/// Puts fragments together; `None` while one is missing, and where two have the same bytes.
fn joined(fragments: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut pieces: Vec<_> = fragments
        .iter()
        .map(|frame| {
            let layout = layout(frame);
            assert_ne!(layout.fragment, Fragment::No);
            let part = wire::FragmentPart::of(frame, &layout).unwrap();
            let bytes = frame[layout.end - (part.end - part.start) as usize..layout.end].to_vec();
            (part, bytes)
        })
        .collect();
    pieces.sort_by_key(|(part, _)| part.start);
    let mut all = Vec::new();
    for (part, bytes) in &pieces {
        if part.start as usize != all.len() {
            return None;
        }
        all.extend(bytes);
    }
    pieces.last()?.0.is_last.then_some(all)
}

/// Compares fragments in this order, behind the chain, with the whole packet behind it.
fn check_fragments(chain: &mut Chain, packet: &[u8], id: u16, order: &[usize], size: usize) {
    let fragments = cut(packet, id, size);
    let mut out = Vec::new();
    for at in order {
        let left = chain.run(&fragments[*at]);
        assert!(left.iter().all(|(direction, _)| *direction == Direction::Onward));
        out.extend(left.into_iter().map(|(_, frame)| frame));
    }
    assert_eq!(out.len(), fragments.len(), "each goes on once");
    let whole = chain.forwarded(packet);
    let (payload, ends) = (layout(&whole).transport, flow(&whole));
    assert_eq!(joined(&out).unwrap(), whole[payload..], "with the checksum over all of it");
    for frame in &out {
        let fragment = layout(frame);
        assert_eq!((fragment.source, fragment.destination), (ends.source, ends.destination));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// RFC 4787, REQ-14, and RFC 8200, section 4.5: fragments pass in any order.
    #[test]
    fn rfc_4787_req_14_fragments_pass_in_any_order(
        order in (2..12_usize).prop_flat_map(|count| {
            Just((0..count).collect::<Vec<_>>()).prop_shuffle()
        }),
        is_v6: bool, id: u16, rest in 1..=64_usize,
    ) {
        let version = usize::from(is_v6);
        let payload = vec![7; (order.len() - 1) * 64 + rest - 8];
        let (host, server, ..) = HOSTS[version];
        for mut chain in ORDERS.map(|chain| chain()) {
            check_fragments(&mut chain, &udp_between(host, server, &payload), id, &order, 64);
            let seen = sender(flow(&chain.forwarded(&udp_between(host, server, b""))));
            check_fragments(&mut chain, &udp_between(server, seen, &payload), id, &order, 64);
            prop_assert_eq!(chain.dropped(), 0);
        }
        let (client, service, backend) = SERVICES[version];
        for mut chain in [balancer_and_wall(), wall_and_balancer()] {
            check_fragments(&mut chain, &udp_between(client, service, &payload), id, &order, 64);
            check_fragments(&mut chain, &udp_between(backend, client, &payload), id, &order, 64);
            prop_assert_eq!(chain.dropped(), 0);
        }
    }
}

#[test]
fn rfc_8200_4_5_the_next_header_of_later_fragments_is_no_part_of_their_key() {
    for is_first_late in [false, true] {
        let (host, server, ..) = HOSTS[1];
        let mut chain = nat_and_wall();
        let mut fragments = cut(&udp_between(host, server, &[7; 200]), 9, 64);
        for later in &mut fragments[1..] {
            later[54] = 60;
        }
        if is_first_late {
            fragments.rotate_left(1);
        }
        let left: usize = fragments.iter().map(|fragment| chain.run(fragment).len()).sum();
        assert_eq!(left, fragments.len());
    }
}

/// The same fragment of another packet.
fn with_other_id(fragment: &[u8]) -> Vec<u8> {
    let (mut other, layout) = (fragment.to_vec(), layout(fragment));
    if layout.is_ipv4() {
        wire::replace_bytes(&mut other, 24, 18, &[0xAB, 0xCD]);
    } else {
        other[58..62].fill(0xAB);
    }
    other
}

/// Sends a packet in fragments, and then errors about its later ones, which come back where the fragments came from.
fn check_fragment_errors(chain: &mut Chain, packet: &[u8], (router, shown): (&str, Option<&str>)) {
    let fragments = cut(packet, 7, 64);
    let sent: Vec<_> = fragments.iter().map(|fragment| chain.forwarded(fragment)).collect();
    for (before, after) in fragments.iter().zip(&sent).skip(1) {
        let (before, was) = (layout(before), layout(after));
        for error in [time_exceeded, |router: &str, to: &str, frame: &[u8]| {
            too_big(router, to, frame, 1_400)
        }] {
            let to = was.source.to_string();
            let out = chain.forwarded(&error(router, &to, after));
            assert_valid_error(&out);
            let (outer, quoted) = (layout(&out), wire::quoted_packet(&out, &layout(&out)).unwrap());
            assert_eq!(outer.source.to_string(), shown.unwrap_or(router));
            assert_eq!(outer.destination, before.source);
            assert_eq!((quoted.source, quoted.destination), (before.source, before.destination));
            assert_eq!(quoted.fragment, before.fragment);
            assert!(!quoted.has_transport_header());
            assert!(chain.drops(&error(router, &to, &with_other_id(after))));
        }
    }
}

#[test]
fn errors_about_later_fragments_follow_the_first_in_every_chain() {
    for ((host, server, router, inside), chain) in hosts_and_orders() {
        let mut chain = chain();
        check_fragment_errors(&mut chain, &udp_between(host, server, &[7; 300]), (router, None));
        let seen = sender(flow(&chain.forwarded(&udp_between(host, server, b""))));
        let answer = udp_between(server, seen, &[8; 300]);
        check_fragment_errors(&mut chain, &answer, (inside, Some(seen.0)));
    }
    for (client, service, backend) in SERVICES {
        let router = if client.0.contains(':') { "2001:db8:9::1" } else { "203.0.113.9" };
        for mut chain in [balancer_and_wall(), wall_and_balancer()] {
            let request = udp_between(client, service, &[7; 300]);
            check_fragment_errors(&mut chain, &request, (router, None));
            check_fragment_errors(&mut chain, &request, (backend.0, Some(service.0)));
            let answer = udp_between(backend, client, &[8; 300]);
            check_fragment_errors(&mut chain, &answer, (router, None));
        }
    }
}
