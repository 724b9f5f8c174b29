//! Requirements of RFCs for NATs that have no test beside the code that they are about.

use proptest::prelude::*;
use serde_json::json;

use super::tests::{HOST, SERVER, external, flow, forwarded, nat};
use crate::tasks::support::{
    Bench, assert_valid, assert_valid_error, cut, echo, slow_sum, tcp, time_exceeded, udp_between,
};
use crate::wire::{self, Frame, Layout, quoted_flow, quoted_packet};
use crate::{Direction, DropReason, Verdict};

fn layout(frame: &[u8]) -> Layout {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { panic!("not IP") };
    layout
}

#[test]
fn rfc_5508_req_8_a_host_that_gets_no_mapping_is_told() {
    let hosts = [
        ("10.0.0.1", "10.0.0.2", "192.0.2.1", [3, 13]),
        ("2001:db8:1::1", "2001:db8:1::2", "2001:db8:2::1", [1, 1]),
    ];
    for (first, second, server, kind) in hosts {
        let mut bench = nat(json!({"ports": "5000-5000"}));
        let requests = |host| {
            let udp = udp_between((host, 1_000), (server, 53), b"question");
            [udp, tcp((host, 1_000), (server, 80), "S"), echo(host, server, 9, true)]
        };
        for (taken, refused) in requests(first).iter().zip(requests(second)) {
            forwarded(&mut bench, taken);
            let outcome = bench.run(&refused);
            assert_eq!(outcome.verdict, Verdict::Drop(DropReason::PortsExhausted));
            let [(Direction::Back, error)] = &outcome.emitted[..] else { panic!("one error") };
            assert_valid_error(error);
            let at = layout(error);
            assert_eq!(error[at.transport..][..2], kind);
            assert_eq!(at.destination.to_string(), second, "to the sender");
            assert_eq!(quoted_flow(error, &at).unwrap().1, flow(&refused));
        }
        // Strangers get nothing: RFC 5508, REQ-9 allows such a policy.
        let stranger = udp_between(
            (server, 54),
            (if server.contains(':') { "2001:db8:ffff::1" } else { "203.0.113.1" }, 6_000),
            b"",
        );
        let outcome = bench.run(&stranger);
        assert_eq!(
            (outcome.verdict, outcome.emitted.len()),
            (Verdict::Drop(DropReason::NoMapping), 0)
        );
    }
    let mut full = nat(json!({"sessions_max": 1}));
    forwarded(&mut full, &tcp(HOST, SERVER, "S"));
    forwarded(&mut full, &tcp(HOST, ("192.0.2.2", 80), "S"));
    assert_eq!(full.nt.counters().emitted, 0, "an unanswered one was given up");
}

#[test]
fn rfc_5382_req_2_both_may_open_a_connection_at_once() {
    let mut bench = nat(json!({}));
    let seen = external(&mut bench, &tcp(HOST, SERVER, "S"));
    for (from, to, flags) in [
        (SERVER, seen, "S"),
        (HOST, SERVER, "SA"),
        (SERVER, seen, "SA"),
        (HOST, SERVER, "A"),
        (SERVER, seen, "A"),
    ] {
        forwarded(&mut bench, &tcp(from, to, flags));
    }
    bench.wait_secs(7_000);
    assert_eq!(bench.run(&tcp(SERVER, seen, "A")).verdict, Verdict::Forward, "it is established");
    // RFC 5382, REQ-4: no answer to a SYN that nobody expects.
    let outcome = bench.run(&tcp(("198.51.100.1", 5), seen, "S"));
    assert_eq!(outcome.verdict, Verdict::Drop(DropReason::NoConnection));
    assert!(outcome.emitted.is_empty());
}

#[test]
fn rfc_7857_2_2_after_a_reset_packets_pass_for_four_minutes_more() {
    let mut bench = nat(json!({}));
    let seen = external(&mut bench, &tcp(HOST, SERVER, "S"));
    forwarded(&mut bench, &tcp(SERVER, seen, "SA"));
    forwarded(&mut bench, &tcp(HOST, SERVER, "A"));
    // Anybody can guess it: sequence numbers are not looked at.
    forwarded(&mut bench, &tcp(SERVER, seen, "R"));
    for _ in 0..3 {
        bench.wait_secs(239);
        forwarded(&mut bench, &tcp(HOST, SERVER, "A"));
        forwarded(&mut bench, &tcp(SERVER, seen, "A"));
    }
}

#[test]
fn rfc_6864_5_3_fragments_of_two_hosts_do_not_get_the_same_identification() {
    let mut bench = nat(json!({}));
    let hosts = [("10.0.0.1", 1_000), ("10.0.0.2", 1_000)];
    let [first, second] = hosts.map(|host| cut(&udp_between(host, SERVER, &[7; 100]), 77, 64));
    // Both packets are on their way at once.
    let mut left: [Vec<Vec<u8>>; 2] = Default::default();
    for (one, other) in first.iter().zip(&second) {
        left[0].push(forwarded(&mut bench, one));
        left[1].push(forwarded(&mut bench, other));
    }
    let id = |frame: &Vec<u8>| u16::from_be_bytes([frame[18], frame[19]]);
    assert_eq!(left[0].iter().map(id).collect::<Vec<_>>(), [77, 77]);
    assert_eq!(id(&left[1][0]), id(&left[1][1]));
    assert_ne!(id(&left[1][0]), 77);
    // An error names the fragment as its sender knows it.
    for (host, sent) in hosts.iter().zip(&left) {
        let error = forwarded(&mut bench, &time_exceeded("198.51.100.1", "203.0.113.1", &sent[1]));
        assert_valid_error(&error);
        let quoted = quoted_packet(&error, &layout(&error)).unwrap();
        assert_eq!(quoted.source.to_string(), host.0);
        assert_eq!(error[quoted.network + 4..][..2], 77_u16.to_be_bytes());
    }
}

#[test]
fn protocols_that_cannot_be_translated_show_no_address_of_inside() {
    let mut bench = nat(json!({}));
    for protocol in [2, 4, 33, 41, 47, 50, 51, 89, 103, 112, 132, 136, 253] {
        for (from, to) in [("10.0.0.1", "192.0.2.1"), ("192.0.2.1", "203.0.113.1")] {
            let mut frame = udp_between((from, 1), (to, 2), &[0; 64]);
            wire::replace_bytes(&mut frame, 24, 22, &[64, protocol]);
            let verdict = bench.run(&frame).verdict;
            assert_eq!(verdict, Verdict::Drop(DropReason::UnsupportedProtocol), "{protocol}");
        }
    }
    // A redirect would teach a host a router that is on the other side (RFC 5508, REQ-10 and REQ-11 leave it open).
    let redirect = {
        let mut frame = echo("192.0.2.254", "203.0.113.1", 1, true);
        frame[34] = 5;
        frame
    };
    let verdict = bench.run(&redirect).verdict;
    assert_eq!(verdict, Verdict::Drop(DropReason::UnsupportedProtocol));
}

/// RFC 768: a checksum of 0 is none, and one that comes out as 0 is sent as 0xffff. RFC 1624: an update never gives -0.
#[test]
fn rfc_1624_checksums_survive_every_value_of_a_port() {
    let mut bench = nat(json!({}));
    let mut ones = 0;
    for last in 0..=u16::MAX {
        let payload = last.to_be_bytes();
        let frame = udp_between(HOST, SERVER, &payload);
        let out = bench.run(&frame).frame;
        let checksum = &out[40..42];
        ones += u32::from(checksum == [0xFF; 2]);
        assert_ne!(checksum, [0; 2], "{last}: it would mean that there is none");
        assert_eq!(wire::verify(&out, &layout(&out)), wire::Verified::Right, "{last}");
    }
    assert!(ones > 0, "the corner is among them");
    assert_valid(&forwarded(&mut bench, &udp_between(HOST, SERVER, b"")));
    for (host, server) in [(HOST, SERVER), (("2001:db8:1::1", 1), ("2001:db8:2::1", 2))] {
        let mut frame = udp_between(host, server, b"no checksum");
        let at = layout(&frame).transport + 6;
        frame[at..at + 2].fill(0);
        let out = bench.run(&frame);
        assert_eq!((out.verdict, &out.frame[at..at + 2]), (Verdict::Forward, &[0, 0][..]));
    }
}

/// A TCP segment with options, and with these values in fields that are no business of a NAT.
fn segment(class: u8, hops: u8, window: u16, urgent: u16, padding: usize) -> Vec<u8> {
    let mut frame = tcp(HOST, SERVER, "S");
    // Timestamps and two fillers before the payload.
    let options = [8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 1];
    options.into_iter().rev().for_each(|byte| frame.insert(54, byte));
    frame[46] = 0x80;
    frame[15] = class;
    frame[22] = hops;
    let length = (frame.len() - 14) as u16;
    for (at, value) in [(16, length), (24, 0), (48, window), (52, urgent)] {
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    let sum = !slow_sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let at = layout(&frame);
    wire::fill(&mut frame, &at);
    frame.resize(frame.len() + padding, 0xEE);
    frame
}

proptest! {
    /// Probes of a closed window, keepalives, marks of congestion, the last hop: all pass as they came.
    #[test]
    fn a_nat_changes_addresses_ports_and_checksums_and_nothing_else(
        class: u8, hops: u8, window: u16, urgent: u16, padding in 0..20_usize,
    ) {
        let frame = segment(class, hops, window, urgent, padding);
        let mut bench = nat(json!({}));
        let out = bench.run(&frame);
        prop_assert_eq!(out.verdict, Verdict::Forward);
        prop_assert_eq!(wire::verify(&out.frame, &layout(&out.frame)), wire::Verified::Right);
        let [checksum, source, port, sum] = [24..26, 26..30, 34..36, 50..52];
        prop_assert_eq!(out.frame.len(), frame.len());
        for (at, byte) in frame.iter().enumerate() {
            let may_change = [&checksum, &source, &port, &sum].iter().any(|part| part.contains(&at));
            prop_assert!(may_change || out.frame[at] == *byte, "byte {}", at);
        }
    }
}

#[test]
fn dhcp_by_broadcast_passes_a_nat_and_a_firewall_with_a_rule_for_each_direction() {
    let ask = udp_between(("0.0.0.0", 68), ("255.255.255.255", 67), b"discover");
    let offer = udp_between(("10.0.0.254", 67), ("255.255.255.255", 68), b"offer");
    assert_eq!(nat(json!({})).run(&ask).frame, ask);
    let wall = |ports: &[&str]| {
        let rules: Vec<_> = ports
            .iter()
            .map(|port| json!({"action": "accept", "protocol": "udp", "destination_ports": port}))
            .collect();
        let mut wall = Bench::new("firewall", json!({"rules": rules}));
        [&ask, &offer].map(|frame| wall.run(frame).verdict == Verdict::Forward)
    };
    // As with Linux's connection tracking, an offer to all is no reply to a request to all.
    assert_eq!(wall(&["67"]), [true, false]);
    assert_eq!(wall(&["67", "68"]), [true, true]);
}
