use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::tasks::support::{
    Bench, CLIENT_STATION, End, GATEWAY_STATION, Outcome, assert_valid, assert_valid_error, echo,
    fragments, tcp, time_exceeded, too_big, udp_between, unreachable,
};
use crate::wire::{self, Flow, Frame, quoted_flow};
use crate::{Context, Direction, DropReason, Emitted, FlowKey, Pool, Verdict};

pub(super) const HOST: End = ("10.0.0.1", 40_000);
pub(super) const SERVER: End = ("192.0.2.1", 80);
const OUTSIDE: &str = "203.0.113.1";
const NO_CONNECTION: Verdict = Verdict::Drop(DropReason::NoConnection);
const NO_MAPPING: Verdict = Verdict::Drop(DropReason::NoMapping);

pub(super) fn nat(more: Value) -> Bench {
    let mut settings = json!({
        "inside": ["10.0.0.0/8", "2001:db8:1::/48"],
        "external": [OUTSIDE, "2001:db8:ffff::1"],
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Bench::new("nat", settings)
}

pub(super) fn flow(frame: &[u8]) -> Flow {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { panic!("not IP") };
    Flow::of(frame, &layout)
}

/// Sends a packet that goes on, and is valid then.
pub(super) fn forwarded(bench: &mut Bench, frame: &[u8]) -> Vec<u8> {
    let Outcome { verdict, frame, .. } = bench.run(frame);
    assert_eq!(verdict, Verdict::Forward);
    assert_valid(&frame);
    frame
}

/// The same text for as long as the test runs.
fn fixed(address: IpAddr) -> &'static str {
    Box::leak(address.to_string().into_boxed_str())
}

/// The endpoint outside that stands for the sender of `frame`, once it was sent.
pub(super) fn external(bench: &mut Bench, frame: &[u8]) -> End {
    let sent = flow(&forwarded(bench, frame));
    (fixed(sent.source), sent.source_port)
}

#[test]
fn a_conversation_goes_out_and_comes_back() {
    for (host, server, outside) in
        [(HOST, SERVER, OUTSIDE), (("2001:db8:1::1", 4), ("2001:db8:2::1", 5), "2001:db8:ffff::1")]
    {
        let mut bench = nat(json!({}));
        let seen = external(&mut bench, &udp_between(host, server, b"question"));
        assert_eq!(seen.0, outside);
        assert!(seen.1 >= 1_024);
        let back = flow(&forwarded(&mut bench, &udp_between(server, seen, b"answer")));
        assert_eq!((back.source.to_string(), back.source_port), (server.0.to_string(), server.1));
        assert_eq!((back.destination.to_string(), back.destination_port), (host.0.into(), host.1));
        let again = external(&mut bench, &udp_between(host, server, b"more"));
        assert_eq!(again, seen);
        let other = (server.0, 99);
        let elsewhere = external(&mut bench, &udp_between(host, other, b"to another"));
        assert_eq!(elsewhere, seen, "the mapping is independent of the endpoint");
    }
}

#[test]
fn nat_filtering_is_configurable() {
    let stranger = ("192.0.2.99", 80);
    let mut strict = nat(json!({}));
    let seen = external(&mut strict, &udp_between(HOST, SERVER, b""));
    assert_eq!(strict.run(&udp_between(stranger, seen, b"")).verdict, NO_CONNECTION);
    assert_eq!(strict.run(&udp_between(("192.0.2.1", 81), seen, b"")).verdict, NO_CONNECTION);
    assert_eq!(strict.run(&udp_between(SERVER, (OUTSIDE, 1), b"")).verdict, NO_MAPPING);
    let mut open = nat(json!({"filtering": "endpoint-independent"}));
    let seen = external(&mut open, &udp_between(HOST, SERVER, b""));
    forwarded(&mut open, &udp_between(stranger, seen, b""));
    assert_eq!(open.run(&tcp(stranger, seen, "S")).verdict, NO_MAPPING, "of another protocol");
}

#[test]
fn tcp_opens_with_syn_and_closes() {
    let mut bench = nat(json!({}));
    assert_eq!(bench.run(&tcp(HOST, SERVER, "A")).verdict, NO_CONNECTION);
    let seen = external(&mut bench, &tcp(HOST, SERVER, "S"));
    forwarded(&mut bench, &tcp(SERVER, seen, "SA"));
    forwarded(&mut bench, &tcp(HOST, SERVER, "A"));
    bench.wait_secs(7_439);
    forwarded(&mut bench, &tcp(SERVER, seen, "FA"));
    forwarded(&mut bench, &tcp(HOST, SERVER, "FA"));
    bench.wait_secs(240);
    assert_eq!(bench.run(&tcp(SERVER, seen, "A")).verdict, NO_MAPPING);
    let counters = bench.nt.counters();
    assert_eq!(counters.forwarded + counters.dropped_total(), counters.received);
}

#[test]
fn echo_keeps_its_identifier_apart() {
    for (host, server) in [("10.0.0.1", "192.0.2.1"), ("2001:db8:1::1", "2001:db8:2::1")] {
        let mut bench = nat(json!({}));
        let out = flow(&forwarded(&mut bench, &echo(host, server, 77, true)));
        let seen = fixed(out.source);
        let back = flow(&forwarded(&mut bench, &echo(server, seen, out.source_port, false)));
        assert_eq!((back.destination.to_string(), back.source_port), (host.to_owned(), 77));
        let wrong = echo(server, seen, out.source_port ^ 1, false);
        assert_eq!(bench.run(&wrong).verdict, NO_MAPPING);
        assert_eq!(bench.run(&echo(host, server, 5, false)).verdict, NO_CONNECTION);
    }
}

#[test]
fn errors_from_outside_reach_the_host_with_its_own_packet() {
    for (host, server, router) in [
        (HOST, SERVER, "198.51.100.1"),
        (("2001:db8:1::1", 4), ("2001:db8:2::1", 5), "2001:db8:9::1"),
    ] {
        let mut bench = nat(json!({}));
        let sent = forwarded(&mut bench, &udp_between(host, server, b"payload"));
        let seen = fixed(flow(&sent).source);
        let back = forwarded(&mut bench, &time_exceeded(router, seen, &sent));
        let Ok(Frame::Ip(layout)) = wire::parse(&back) else { panic!() };
        assert_eq!(layout.destination.to_string(), host.0);
        let (quoted, about) = quoted_flow(&back, &layout).unwrap();
        assert_eq!((about.source.to_string(), about.source_port), (host.0.to_owned(), host.1));
        assert_eq!(about.destination_port, server.1);
        assert!(quoted.transport > layout.transport);
        let stranger = udp_between((seen, 9), server, b"never sent");
        assert_eq!(bench.run(&time_exceeded(router, seen, &stranger)).verdict, NO_CONNECTION);
    }
}

#[test]
fn rfc_5508_req_6_errors_about_queries_are_translated_and_prolong_nothing() {
    for (host, server, router) in [
        ("10.0.0.1", "192.0.2.1", "198.51.100.1"),
        ("2001:db8:1::1", "2001:db8:2::1", "2001:db8:9::1"),
    ] {
        let mut bench = nat(json!({}));
        let sent = forwarded(&mut bench, &echo(host, server, 77, true));
        let error = unreachable(router, fixed(flow(&sent).source), &sent);
        // The session lives for 240 s without a reply: more than the 60 s of REQ-2.
        bench.wait_secs(239);
        let back = forwarded(&mut bench, &error);
        assert_valid_error(&back);
        let Ok(Frame::Ip(layout)) = wire::parse(&back) else { panic!() };
        let (_, about) = quoted_flow(&back, &layout).unwrap();
        assert_eq!((fixed(about.source), about.source_port), (host, 77));
        bench.wait_secs(1);
        let too_late = bench.run(&error).verdict;
        assert!(matches!(too_late, Verdict::Drop(DropReason::NoConnection)), "{too_late:?}");
    }
}

#[test]
fn errors_from_inside_show_nothing_of_it() {
    let mut bench = nat(json!({}));
    let seen = external(&mut bench, &udp_between(HOST, SERVER, b""));
    let inward = forwarded(&mut bench, &udp_between(SERVER, seen, b"too late"));
    let error = forwarded(&mut bench, &time_exceeded("10.0.0.254", SERVER.0, &inward));
    let Ok(Frame::Ip(layout)) = wire::parse(&error) else { panic!() };
    assert_eq!(layout.source.to_string(), OUTSIDE);
    let (_, about) = quoted_flow(&error, &layout).unwrap();
    assert_eq!((about.destination.to_string(), about.destination_port), (seen.0.into(), seen.1));
    let never_came = udp_between(SERVER, ("192.0.2.9", 9), b"");
    assert_eq!(
        bench.run(&time_exceeded("10.0.0.254", SERVER.0, &never_came)).verdict,
        NO_CONNECTION
    );
}

/// Packets that pass elsewhere by a rule teach nothing while they do, so the rule ends where they would.
#[test]
fn a_rule_ends_when_its_host_is_seen_at_another_station() {
    let mut bench = nat(json!({"filtering": "endpoint-independent"}));
    let frame = udp_between(HOST, SERVER, b"");
    let out = flow(&forwarded(&mut bench, &frame));
    let seen = (fixed(out.source), out.source_port);
    forwarded(&mut bench, &udp_between(SERVER, seen, b""));
    let rule_of = |bench: &mut Bench| {
        let mut packet = bench.packet(&frame);
        let verdict = bench.pass(&mut packet);
        bench.nt.flow_rule(&packet, verdict).expect("the session is steady")
    };
    let rule = rule_of(&mut bench);
    let (key, _) = FlowKey::of(&frame).expect("a datagram has one");
    assert!(bench.nt.holds(&rule, &key, bench.now));
    let station = [2, 0, 0, 0, 0, 0x99];
    let mut moved = udp_between(HOST, ("192.0.2.7", 53), b"");
    moved[6..12].copy_from_slice(&station);
    forwarded(&mut bench, &moved);
    assert!(!bench.nt.holds(&rule, &key, bench.now), "the host was last seen elsewhere");
    let neighbour = udp_between(("10.0.0.2", 9), seen, b"");
    assert_eq!(bench.run(&neighbour).frame[..6], station);
    // What passed by the rule before is told late, and is no news of the host.
    let (mut random, mut emitted) = (bench.random.clone(), Emitted::new(Pool::new(1, 2_048)));
    let mut context = Context { now: bench.now, random: &mut random, emitted: &mut emitted };
    assert!(!bench.nt.passed_elsewhere((&rule, &key), 5, &mut context));
    assert_eq!(bench.run(&neighbour).frame[..6], station);
    let again = rule_of(&mut bench);
    assert!(bench.nt.holds(&again, &key, bench.now));
    assert_eq!(bench.run(&neighbour).frame[..6], CLIENT_STATION);
}

#[test]
fn hosts_inside_reach_each_other_over_their_external_endpoints() {
    let mut bench = nat(json!({"filtering": "endpoint-independent"}));
    let target = ("10.0.0.2", 53);
    let mut from_target = udp_between(target, SERVER, b"");
    let station = [2, 0, 0, 0, 0, 0x99];
    from_target[6..12].copy_from_slice(&station);
    let target_seen = external(&mut bench, &from_target);
    let Outcome { verdict, frame, .. } = bench.run(&udp_between(HOST, target_seen, b"hello"));
    assert_eq!(verdict, Verdict::Reply);
    assert_valid(&frame);
    let there = flow(&frame);
    assert_eq!(there.source.to_string(), OUTSIDE, "the sender's external endpoint (REQ-9)");
    assert_eq!((there.destination.to_string(), there.destination_port), (target.0.into(), 53));
    assert_eq!((&frame[..6], &frame[6..12]), (&station[..], &GATEWAY_STATION[..]));
    let sender_seen = (fixed(there.source), there.source_port);
    let Outcome { verdict, frame, .. } = bench.run(&udp_between(target, sender_seen, b"answer"));
    assert_eq!(verdict, Verdict::Reply);
    let back = flow(&frame);
    assert_eq!((fixed(back.source), back.source_port), target_seen);
    assert_eq!((back.destination.to_string(), back.destination_port), (HOST.0.into(), HOST.1));
    assert_eq!(frame[..6], CLIENT_STATION);
    assert_eq!(bench.run(&udp_between(HOST, (OUTSIDE, 1), b"")).verdict, NO_MAPPING);
}

#[test]
fn forwards_let_strangers_in() {
    let forward = json!({"protocol": "tcp", "external": OUTSIDE, "external_port": 443,
        "inside": "10.0.0.7", "inside_port": 8443});
    let mut bench = nat(json!({"forwards": [forward]}));
    let stranger = ("192.0.2.50", 5_555);
    assert_eq!(bench.run(&tcp(stranger, (OUTSIDE, 443), "A")).verdict, NO_CONNECTION);
    let inward = flow(&forwarded(&mut bench, &tcp(stranger, (OUTSIDE, 443), "S")));
    assert_eq!(
        (inward.destination.to_string(), inward.destination_port),
        ("10.0.0.7".into(), 8_443)
    );
    let answer = external(&mut bench, &tcp(("10.0.0.7", 8_443), stranger, "SA"));
    assert_eq!(answer, (OUTSIDE, 443));
    let own = external(&mut bench, &tcp(("10.0.0.7", 8_443), SERVER, "S"));
    assert_eq!(own, (OUTSIDE, 443), "one mapping for all its packets");
}

#[test]
fn rfc_5508_req_7_errors_about_hairpinned_packets_go_back_inside() {
    for (host, target, server) in [
        (HOST, ("10.0.0.2", 53), SERVER),
        (("2001:db8:1::1", 4), ("2001:db8:1::2", 53), ("2001:db8:2::1", 5)),
    ] {
        let mut bench = nat(json!({"filtering": "endpoint-independent"}));
        let target_seen = external(&mut bench, &udp_between(target, server, b""));
        let around = bench.run(&udp_between(host, target_seen, &[7; 600])).frame;
        let seen = flow(&around);
        let outside = fixed(seen.source);
        for error in [
            time_exceeded(target.0, outside, &around),
            unreachable(target.0, outside, &around),
            too_big(target.0, outside, &around, 1_300),
        ] {
            let Outcome { verdict, frame, .. } = bench.run(&error);
            assert_eq!(verdict, Verdict::Reply);
            assert_valid_error(&frame);
            assert_eq!((&frame[..6], &frame[6..12]), (&CLIENT_STATION[..], &GATEWAY_STATION[..]));
            let Ok(Frame::Ip(layout)) = wire::parse(&frame) else { panic!() };
            let ends = (layout.source.to_string(), layout.destination.to_string());
            assert_eq!(ends, (target_seen.0.to_owned(), host.0.to_owned()));
            let (_, about) = quoted_flow(&frame, &layout).unwrap();
            assert_eq!((fixed(about.source), about.source_port), host, "as it was sent");
            assert_eq!((fixed(about.destination), about.destination_port), target_seen);
        }
        let stranger = udp_between((outside, seen.source_port), (target.0, 54), b"");
        assert_eq!(bench.run(&unreachable(target.0, outside, &stranger)).verdict, NO_CONNECTION);
    }
}

#[test]
fn fragments_get_the_addresses_of_their_first() {
    let mut bench = nat(json!({}));
    let whole = udp_between(HOST, SERVER, &[7; 100]);
    let [first, later] = fragments(&whole, 5, 48);
    assert_eq!(bench.run(&later).verdict, Verdict::Consume, "it waits");
    let Outcome { verdict, frame: first, emitted } = bench.run(&first);
    assert_eq!(verdict, Verdict::Forward);
    let [(Direction::Onward, later)] = &emitted[..] else { panic!("{emitted:?}") };
    let joined = [&first[34..], &later[34..]].concat();
    let direct = forwarded(&mut bench, &whole);
    assert_eq!(joined, direct[34..], "with the checksum over the whole");
    for frame in [&first, later] {
        assert_valid(frame);
        assert_eq!(frame[26..30], direct[26..30]);
    }
}

#[test]
fn hairpinned_fragments_go_back_in_any_order() {
    let mut bench = nat(json!({"filtering": "endpoint-independent"}));
    let target = ("10.0.0.2", 53);
    let target_seen = external(&mut bench, &udp_between(target, SERVER, b""));
    let [first, later] = fragments(&udp_between(HOST, target_seen, &[7; 100]), 5, 48);
    assert_eq!(bench.run(&later).verdict, Verdict::Consume);
    let Outcome { verdict, frame, emitted } = bench.run(&first);
    assert_eq!(verdict, Verdict::Reply);
    let [(Direction::Back, later)] = &emitted[..] else { panic!("{emitted:?}") };
    assert_valid(later);
    assert_eq!((&later[..12], &later[26..34]), (&frame[..12], &frame[26..34]));
}

#[test]
fn packets_neither_inside_nor_outside_pass_unchanged() {
    let mut bench = nat(json!({}));
    for frame in [
        udp_between(("172.16.0.1", 1), ("172.16.0.2", 2), b""),
        udp_between(("10.0.0.1", 1), ("10.0.0.2", 2), b""),
        udp_between(("172.16.0.1", 1), ("224.0.0.251", 5_353), b""),
        udp_between(("fe80::1", 1), ("ff02::fb", 5_353), b""),
        udp_between(("0.0.0.0", 68), ("255.255.255.255", 67), b""),
    ] {
        assert_eq!(forwarded(&mut bench, &frame), frame);
    }
    for shown in [
        udp_between(("10.0.0.1", 1), ("224.0.0.251", 5_353), b""),
        udp_between(("10.0.0.1", 1), ("255.255.255.255", 5_353), b""),
        udp_between(("2001:db8:1::1", 1), ("ff02::fb", 5_353), b""),
    ] {
        assert_eq!(bench.run(&shown).verdict, NO_MAPPING, "it would show an address of inside");
    }
    let around = udp_between(("172.16.0.1", 1), ("10.0.0.1", 2), b"");
    assert_eq!(bench.run(&around).verdict, NO_MAPPING, "past the NAT");
    let mut esp = udp_between(HOST, SERVER, b"12345678");
    esp[23] = 50;
    esp[24..26].fill(0);
    let sum = !crate::tasks::support::slow_sum(&esp[14..34]);
    esp[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(bench.run(&esp).verdict, Verdict::Drop(DropReason::UnsupportedProtocol));
}

#[test]
fn ports_run_out_and_come_back() {
    let mut bench = nat(json!({"ports": "5000-5002"}));
    let from = |port| udp_between(("10.0.0.1", port), SERVER, b"");
    let seen: BTreeSet<_> = (1..=3).map(|port| external(&mut bench, &from(port)).1).collect();
    assert_eq!(seen, BTreeSet::from([5_000, 5_001, 5_002]));
    assert_eq!(bench.run(&from(4)).verdict, Verdict::Drop(DropReason::PortsExhausted));
    external(&mut bench, &tcp(("10.0.0.1", 4), SERVER, "S"));
    bench.wait_secs(119);
    external(&mut bench, &from(2));
    assert_eq!(bench.run(&from(4)).verdict, Verdict::Drop(DropReason::PortsExhausted));
    bench.wait_secs(1);
    // RFC 4787, REQ-5: a silent mapping may go after two minutes, that of port 2 is not.
    let (first, second) = (external(&mut bench, &from(4)).1, external(&mut bench, &from(5)).1);
    assert_ne!(first, second);
    assert_eq!(bench.run(&from(6)).verdict, Verdict::Drop(DropReason::PortsExhausted));
    assert!(![first, second].contains(&external(&mut bench, &from(2)).1));
}

/// A connection of the host's port that both sides know of; the endpoint outside.
fn established(bench: &mut Bench, port: u16) -> End {
    let host = (HOST.0, port);
    let seen = external(bench, &tcp(host, SERVER, "S"));
    forwarded(bench, &tcp(SERVER, seen, "SA"));
    forwarded(bench, &tcp(host, SERVER, "A"));
    seen
}

#[test]
fn ports_of_closed_connections_go_to_new_ones_the_longest_closed_first() {
    let mut bench = nat(json!({"ports": "5000-5003"}));
    let seen: Vec<_> = (1..=4).map(|port| established(&mut bench, port)).collect();
    let exhausted = Verdict::Drop(DropReason::PortsExhausted);
    assert_eq!(bench.run(&tcp((HOST.0, 5), SERVER, "S")).verdict, exhausted);
    // The third is closed by both sides, the second by one, the first and then the fourth are reset.
    forwarded(&mut bench, &tcp(SERVER, seen[2], "FA"));
    forwarded(&mut bench, &tcp((HOST.0, 3), SERVER, "FA"));
    forwarded(&mut bench, &tcp((HOST.0, 2), SERVER, "FA"));
    bench.wait_secs(1);
    forwarded(&mut bench, &tcp(SERVER, seen[0], "R"));
    forwarded(&mut bench, &tcp((HOST.0, 4), SERVER, "RA"));
    bench.wait_secs(1);
    // The last acknowledgement: of the reset ones the first has waited for longer.
    forwarded(&mut bench, &tcp((HOST.0, 3), SERVER, "A"));
    for (port, expected) in [(5, seen[0]), (6, seen[3]), (7, seen[2])] {
        assert_eq!(established(&mut bench, port), expected, "{port}");
    }
    assert_eq!(bench.run(&tcp((HOST.0, 8), SERVER, "S")).verdict, exhausted);
    forwarded(&mut bench, &tcp(SERVER, seen[1], "A"));
    assert_eq!(flow(&forwarded(&mut bench, &tcp((HOST.0, 2), SERVER, "A"))).source_port, seen[1].1);
}

#[test]
fn a_port_comes_back_when_the_last_of_its_connections_is_closed() {
    let mut bench = nat(json!({"ports": "5000"}));
    let exhausted = Verdict::Drop(DropReason::PortsExhausted);
    let open = |bench: &mut Bench, server: End| {
        let seen = external(bench, &tcp(HOST, server, "S"));
        forwarded(bench, &tcp(server, seen, "SA"));
        forwarded(bench, &tcp(HOST, server, "A"));
    };
    // More than one packet gives back.
    let servers: Vec<End> = (1..=100).map(|port| (SERVER.0, port)).collect();
    servers.iter().for_each(|server| open(&mut bench, *server));
    for server in &servers {
        assert_eq!(bench.run(&tcp((HOST.0, 9), SERVER, "S")).verdict, exhausted);
        forwarded(&mut bench, &tcp(HOST, *server, "R"));
    }
    bench.restart();
    assert_eq!(bench.run(&tcp((HOST.0, 9), SERVER, "S")).verdict, exhausted, "64 of 100");
    external(&mut bench, &tcp((HOST.0, 9), SERVER, "S"));
    assert_eq!(bench.run(&tcp(HOST, servers[0], "A")).verdict, NO_CONNECTION);
}

#[test]
fn an_established_connection_keeps_its_port_for_two_hours_and_four_minutes() {
    let patient = json!({"ports": "5000", "lifetimes": {"stream_s": 100_000, "datagram_s": 1_000}});
    let mut bench = nat(patient);
    let seen = established(&mut bench, 1);
    let udp = |port| udp_between((HOST.0, port), SERVER, b"");
    let asked = external(&mut bench, &udp(1));
    forwarded(&mut bench, &udp_between(SERVER, asked, b""));
    let exhausted = Verdict::Drop(DropReason::PortsExhausted);
    bench.wait_secs(119);
    assert_eq!(bench.run(&udp(2)).verdict, exhausted);
    bench.wait_secs(1);
    external(&mut bench, &udp(2));
    bench.wait_secs(7_439 - 120);
    assert_eq!(bench.run(&tcp((HOST.0, 2), SERVER, "S")).verdict, exhausted);
    bench.restart();
    assert_eq!(bench.run(&tcp((HOST.0, 2), SERVER, "S")).verdict, exhausted);
    forwarded(&mut bench, &tcp(SERVER, seen, "A"));
    bench.wait_secs(7_440);
    external(&mut bench, &tcp((HOST.0, 2), SERVER, "S"));
    let late = bench.run(&tcp((HOST.0, 1), SERVER, "A")).verdict;
    assert_eq!(late, NO_CONNECTION, "it is another one's now");
}

#[test]
fn a_connection_that_is_opened_has_four_minutes() {
    let mut bench = nat(json!({}));
    let seen = external(&mut bench, &tcp(HOST, SERVER, "S"));
    bench.wait_secs(239);
    forwarded(&mut bench, &tcp(SERVER, seen, "SA"));
    let asked = external(&mut bench, &udp_between(HOST, SERVER, b""));
    bench.wait_secs(239);
    forwarded(&mut bench, &udp_between(SERVER, asked, b""));
}

#[test]
fn a_stream_survives_save_and_restore_and_new_settings() {
    let mut bench = nat(json!({}));
    let seen = external(&mut bench, &tcp(HOST, SERVER, "S"));
    forwarded(&mut bench, &tcp(SERVER, seen, "SA"));
    forwarded(&mut bench, &tcp(HOST, SERVER, "A"));
    bench.wait_secs(7_000);
    bench.restart();
    bench.wait_secs(400);
    forwarded(&mut bench, &tcp(SERVER, seen, "A"));
    assert_eq!(external(&mut bench, &tcp(HOST, SERVER, "A")), seen);
    bench.configure(json!({"inside": ["10.0.0.0/16"], "external": [OUTSIDE], "sessions_max": 5}));
    assert_eq!(external(&mut bench, &tcp(HOST, SERVER, "A")), seen);
    bench.configure(json!({"inside": ["10.0.0.0/16"], "external": ["203.0.113.2"]}));
    assert_eq!(bench.run(&tcp(HOST, SERVER, "A")).verdict, NO_CONNECTION, "its address is gone");
}

#[test]
fn settings_that_cannot_work_are_rejected() {
    let mut bench = nat(json!({}));
    for (settings, expected) in [
        (json!({"inside": [], "external": []}), "inside: an empty list is not allowed"),
        (
            json!({"inside": ["::/0"], "external": ["1.2.3.4"]}),
            "inside[0]: ::/0 is not allowed; allowed: prefixes of IP versions that have an address",
        ),
        (
            json!({"inside": ["1.0.0.0/8"], "external": ["1.2.3.4"]}),
            "external[0]: 1.2.3.4 is not allowed; allowed: addresses outside of the prefixes",
        ),
    ] {
        let message = bench.rejected(&settings);
        assert!(message.starts_with(expected), "{message}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Out { host: u8, port: u16, server: u8 },
    In { server: u8, seen: usize },
    Wait(u64),
}

/// External endpoint by host and port, and by server the time of the last packet and whether it
/// has answered.
type Owners = BTreeMap<(u8, u16), (End, BTreeMap<u8, (u64, bool)>)>;

proptest! {
    /// RFC 4787 over any traffic: a mapping is the same for all destinations while it lives, no two
    /// hosts share one, what comes in reaches its owner, and only from whom the owner has sent to.
    #[test]
    fn mappings_are_unique_and_stable(steps in prop::collection::vec(prop_oneof![
        4 => (1..4_u8, 1..4_u16, 1..4_u8).prop_map(|(host, port, server)| Step::Out { host, port, server }),
        3 => (1..4_u8, 0..20_usize).prop_map(|(server, seen)| Step::In { server, seen }),
        1 => (0..200_u64).prop_map(Step::Wait),
    ], 1..120)) {
        let mut bench = nat(json!({"ports": "2000-2015", "sessions_max": 64}));
        let mut owners: Owners = BTreeMap::new();
        let (mut now, mut order) = (0, Vec::new());
        let host = |h: u8| ["10.0.0.1", "10.0.0.2", "10.0.0.3"][usize::from(h) - 1];
        let server = |s: u8| ["192.0.2.1", "192.0.2.2", "192.0.2.3"][usize::from(s) - 1];
        for step in steps {
            for (_, sessions) in owners.values_mut() {
                sessions.retain(|_, (last, replied)| now - *last < if *replied { 300 } else { 240 });
            }
            owners.retain(|_, (_, sessions)| !sessions.is_empty());
            match step {
                Step::Out { host: h, port, server: s } => {
                    let seen = external(&mut bench, &udp_between((host(h), port), (server(s), 53), b""));
                    order.push(seen);
                    let entry = owners.entry((h, port)).or_insert_with(|| (seen, BTreeMap::new()));
                    prop_assert_eq!(entry.0, seen);
                    let replied = entry.1.get(&s).is_some_and(|(_, replied)| *replied);
                    entry.1.insert(s, (now, replied));
                    let same = owners.values().filter(|(external, _)| *external == seen).count();
                    prop_assert_eq!(same, 1);
                }
                Step::In { server: s, seen } => {
                    let Some(seen) = order.get(seen).copied() else { continue };
                    let out = bench.run(&udp_between((server(s), 53), seen, b""));
                    let owner = owners.iter_mut().find(|(_, (external, _))| *external == seen);
                    match owner {
                        Some(((h, port), (_, sessions))) if sessions.contains_key(&s) => {
                            prop_assert_eq!(out.verdict, Verdict::Forward);
                            let to = flow(&out.frame);
                            prop_assert_eq!((to.destination.to_string(), to.destination_port), (host(*h).to_owned(), *port));
                            sessions.insert(s, (now, true));
                        }
                        Some(_) => prop_assert_eq!(out.verdict, NO_CONNECTION),
                        // A few expired sessions are removed with each packet, not all at once.
                        None => prop_assert!(matches!(out.verdict, NO_MAPPING | NO_CONNECTION)),
                    }
                }
                Step::Wait(seconds) => {
                    now += seconds;
                    bench.wait_secs(seconds);
                }
            }
        }
    }
}

mod tables {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use snic_domain::Timestamp;
    use std::time::Duration;

    use super::super::settings::Settings;
    use super::super::table::{MappingKey, SessionKey, Tables};
    use super::*;
    use crate::aging::KeyedHash;
    use crate::wire::{Endpoint, TcpFlags};

    proptest! {
        /// Mappings and sessions count each other right, however full the tables are.
        #[test]
        fn counts_are_right(uses in prop::collection::vec((1..9_u8, 1..9_u8, 0..40_u64), 1..200)) {
            let settings: Settings = serde_json::from_value(json!({
                "inside": ["10.0.0.0/8"], "external": [OUTSIDE], "sessions_max": 5,
            })).unwrap();
            let mut tables = Tables::new(&settings, KeyedHash(1, 2));
            let mut random = ChaCha8Rng::seed_from_u64(1);
            let mut now = Timestamp::ZERO;
            for (host, server, seconds) in uses {
                now = now + Duration::from_secs(seconds);
                tables.remove_expired(2, now);
                let end = |a, b| Endpoint { address: IpAddr::from([a, 0, 0, b]), port: 1 };
                let mapping = MappingKey { protocol: 17, inside: end(10, host) };
                let session = SessionKey { mapping, remote: end(192, server) };
                if !tables.has_session(&session, now) {
                    if tables.map(mapping, &settings, &mut random, now).is_err() {
                        continue;
                    }
                    if tables.open(session, false, now).is_err() {
                        tables.forget(&mapping);
                    }
                }
                tables.follow(&session, server % 2 == 0, None, now);
                tables.check();
                let saved = tables.save(now);
                let copy = Tables::restore(&saved, &settings, KeyedHash(3, 4), now);
                copy.check();
            }
        }

        /// A mapping goes for another one only when all its connections are closed, or after its minimum; the one that
        /// is unused for the longest time goes first, and no other session is touched.
        #[test]
        fn only_unused_ports_are_given_back(uses in prop::collection::vec(
            (1..9_u8, 1..4_u8, any::<bool>(), 0..6_u8, 0..3_000_u64), 1..200,
        )) {
            let settings: Settings = serde_json::from_value(json!({
                "inside": ["10.0.0.0/8"], "external": [OUTSIDE], "ports": "5000-5003",
                "lifetimes": {"opening_s": 1_000_000, "stream_s": 1_000_000, "closing_s": 1_000_000},
            })).unwrap();
            let mut tables = Tables::new(&settings, KeyedHash(1, 2));
            let mut random = ChaCha8Rng::seed_from_u64(1);
            // By host: its time of last use, and by server whether that connection is closed.
            let mut known: BTreeMap<u8, (u64, BTreeMap<u8, bool>)> = BTreeMap::new();
            let mut now = 0;
            for (host, server, is_inward, kind, seconds) in uses {
                now += seconds;
                let at = Timestamp::ZERO + Duration::from_secs(now);
                let end = |a, b| Endpoint { address: IpAddr::from([a, 0, 0, b]), port: 1 };
                let mapping = MappingKey { protocol: 6, inside: end(10, host) };
                let session = SessionKey { mapping, remote: end(192, server) };
                if !tables.has_session(&session, at) {
                    let is_new = !known.contains_key(&host);
                    if tables.map(mapping, &settings, &mut random, at).is_err() {
                        prop_assert!(is_new && known.len() == 4);
                        let is_spare = |(used, sessions): &(u64, BTreeMap<u8, bool>)| {
                            sessions.values().all(|is_closed| *is_closed) || now - used >= 7_440
                        };
                        prop_assert!(!known.values().any(is_spare), "one could go: {known:?}");
                        continue;
                    }
                    if is_new && known.len() == 4 {
                        let gone: Vec<u8> = known
                            .keys()
                            .filter(|host| {
                                let inside = end(10, **host);
                                tables.mapping(&MappingKey { protocol: 6, inside }).is_none()
                            })
                            .copied()
                            .collect();
                        prop_assert_eq!(gone.len(), 1);
                        let (used, sessions) = known.remove(&gone[0]).unwrap();
                        let is_closed = sessions.values().all(|is_closed| *is_closed);
                        let oldest = |is_closed: bool| {
                            let of_kind = known.iter().filter(|(_, (_, sessions))| {
                                sessions.values().all(|is_closed| *is_closed) == is_closed
                            });
                            of_kind.map(|(host, (used, _))| (*used, *host)).min()
                        };
                        prop_assert!(is_closed || (now - used >= 7_440 && oldest(true).is_none()));
                        prop_assert!(oldest(is_closed).is_none_or(|(other, _)| used <= other));
                    }
                    tables.open(session, is_inward, at).unwrap();
                    known.entry(host).or_default().1.insert(server, false);
                }
                let flags = [0x02, 0x10, 0x10, 0x11, 0x11, 0x04][usize::from(kind)];
                tables.follow(&session, is_inward, Some(TcpFlags::of_bits(flags)), at);
                let is_closed = tables.has_session(&session, at) && !tables.has_open_session(&session, at);
                let entry = known.get_mut(&host).unwrap();
                *entry = (now, std::mem::take(&mut entry.1));
                entry.1.insert(server, is_closed);
                tables.check();
            }
        }
    }
}
