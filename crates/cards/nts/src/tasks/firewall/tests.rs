use proptest::prelude::*;
use serde_json::{Value, json};

use crate::tasks::support::{Bench, arp, cut, echo, fragments, tcp, time_exceeded, udp_between};
use crate::{DropReason, Verdict};

const INSIDE: (&str, u16) = ("10.0.0.1", 40_000);
const SERVER: (&str, u16) = ("192.0.2.1", 80);
const FORWARD: Verdict = Verdict::Forward;
const RULE: Verdict = Verdict::Drop(DropReason::Rule);
const NO_CONNECTION: Verdict = Verdict::Drop(DropReason::NoConnection);

/// Hosts inside may open any flow.
fn outward(more: Value) -> Bench {
    let mut settings = json!({"rules": [
        {"action": "drop", "protocol": "tcp", "destination_ports": "25"},
        {"action": "accept", "source": "10.0.0.0/8"},
        {"action": "accept", "source": "2001:db8:1::/48"},
    ]});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Bench::new("firewall", settings)
}

#[test]
fn the_first_rule_that_matches_decides() {
    let mut bench = outward(json!({}));
    assert_eq!(bench.run(&tcp(INSIDE, SERVER, "S")).verdict, FORWARD);
    assert_eq!(bench.run(&tcp(INSIDE, ("192.0.2.1", 25), "S")).verdict, RULE);
    assert_eq!(bench.run(&tcp(("11.0.0.1", 1), SERVER, "S")).verdict, RULE, "the default");
    let six = (("2001:db8:1::1", 5), ("2001:db8:2::1", 6));
    assert_eq!(bench.run(&udp_between(six.0, six.1, b"")).verdict, FORWARD);
    assert_eq!(bench.run(&udp_between(("2001:db8:2::1", 7), six.1, b"")).verdict, RULE);
    let counters = bench.nt.counters();
    assert_eq!((counters.forwarded, counters.dropped(DropReason::Rule)), (2, 3));
}

#[test]
fn replies_pass_and_others_do_not() {
    let mut bench = outward(json!({}));
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "SA")).verdict, RULE);
    assert_eq!(bench.run(&tcp(INSIDE, SERVER, "S")).verdict, FORWARD);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "SA")).verdict, FORWARD);
    assert_eq!(bench.run(&tcp(SERVER, ("10.0.0.1", 40_001), "SA")).verdict, RULE);
    assert_eq!(bench.run(&echo("10.0.0.1", "192.0.2.1", 9, true)).verdict, FORWARD);
    assert_eq!(bench.run(&echo("192.0.2.1", "10.0.0.1", 9, false)).verdict, FORWARD);
    assert_eq!(bench.run(&echo("192.0.2.1", "10.0.0.1", 8, false)).verdict, RULE);
    assert_eq!(bench.run(&echo("10.0.0.1", "192.0.2.1", 7, false)).verdict, NO_CONNECTION);
}

/// Verdict of the firewall about a packet that another NT has let pass, and the packet.
fn behind(first: &mut Bench, firewall: &mut Bench, frame: &[u8]) -> (Verdict, Vec<u8>) {
    let mut packet = first.packet(frame);
    assert_eq!(first.pass(&mut packet), FORWARD);
    (firewall.pass(&mut packet), packet.bytes().to_vec())
}

#[test]
fn replies_pass_behind_a_nat_and_rules_see_its_addresses() {
    let mut nat = Bench::new(
        "nat",
        json!({"inside": ["10.0.0.0/8"], "external": ["203.0.113.1"],
               "filtering": "endpoint-independent"}),
    );
    let rules = |source: &str| json!({"rules": [{"action": "accept", "source": source}]});
    let mut wall = Bench::new("firewall", rules("203.0.113.1/32"));
    for (out, answer) in [("S", "SA"), ("A", "A")] {
        let (verdict, sent) = behind(&mut nat, &mut wall, &tcp(INSIDE, SERVER, out));
        assert_eq!(verdict, FORWARD, "{out}");
        let port = u16::from_be_bytes([sent[34], sent[35]]);
        let back = tcp(SERVER, ("203.0.113.1", port), answer);
        assert_eq!(behind(&mut nat, &mut wall, &back).0, FORWARD, "{answer}");
        let stranger = tcp(("192.0.2.66", 80), ("203.0.113.1", port), "S");
        assert_eq!(behind(&mut nat, &mut wall, &stranger).0, RULE);
        wall.restart();
        nat.restart();
        // The rules that accepted the flow still do, by the addresses that they saw.
        wall.configure(rules("203.0.113.0/24"));
    }
    wall.configure(rules("10.0.0.0/8"));
    assert_eq!(behind(&mut nat, &mut wall, &tcp(INSIDE, SERVER, "A")).0, RULE);
}

#[test]
fn replies_pass_behind_a_load_balancer() {
    let (client, service) = (("198.51.100.1", 5_000), ("192.0.2.9", 80));
    let backend = json!({"address": "10.0.0.5", "port": 8_080});
    let told = json!({"services": [{"address": service.0, "port": service.1, "protocol": "tcp",
                                    "backends": [backend]}]});
    let mut balancer = Bench::new("load-balancer", told);
    let rules = json!({"rules": [{"action": "accept", "destination": "10.0.0.5/32"}]});
    let mut wall = Bench::new("firewall", rules);
    for (out, answer) in [("S", "SA"), ("A", "A")] {
        let out = tcp(client, service, out);
        assert_eq!(behind(&mut balancer, &mut wall, &out).0, FORWARD);
        let back = tcp(("10.0.0.5", 8_080), client, answer);
        assert_eq!(behind(&mut balancer, &mut wall, &back).0, FORWARD);
    }
    let other = tcp(("10.0.0.5", 8_080), ("198.51.100.2", 5_000), "SA");
    assert_eq!(behind(&mut balancer, &mut wall, &other).0, RULE);
}

#[test]
fn a_connection_starts_with_syn_unless_it_may_be_picked_up() {
    let middle = tcp(INSIDE, SERVER, "A");
    assert_eq!(outward(json!({})).run(&middle).verdict, NO_CONNECTION);
    assert_eq!(outward(json!({"pick_up": true})).run(&middle).verdict, FORWARD);
    let reset = tcp(INSIDE, SERVER, "R");
    assert_eq!(outward(json!({"pick_up": true})).run(&reset).verdict, NO_CONNECTION);
}

#[test]
fn timeouts_follow_the_connection() {
    let mut bench = outward(json!({}));
    bench.run(&tcp(INSIDE, SERVER, "S"));
    bench.wait_secs(29);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "SA")).verdict, FORWARD);
    bench.wait_secs(31);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "SA")).verdict, RULE, "not confirmed in time");
    for flags in ["S", "A"] {
        bench.run(&tcp(INSIDE, SERVER, flags));
        bench.run(&tcp(SERVER, INSIDE, "SA"));
    }
    bench.run(&tcp(INSIDE, SERVER, "A"));
    bench.wait_secs(7_439);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "A")).verdict, FORWARD);
    bench.run(&tcp(INSIDE, SERVER, "FA"));
    bench.wait_secs(3_600);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "FA")).verdict, FORWARD, "half closed");
    assert_eq!(bench.run(&tcp(INSIDE, SERVER, "A")).verdict, FORWARD, "its last word");
    bench.wait_secs(240);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "A")).verdict, RULE, "closed");
}

#[test]
fn a_closed_connection_may_be_opened_again() {
    let mut bench = outward(json!({}));
    for (from, to, flags) in [
        (INSIDE, SERVER, "S"),
        (SERVER, INSIDE, "SA"),
        (INSIDE, SERVER, "A"),
        (SERVER, INSIDE, "R"),
    ] {
        assert_eq!(bench.run(&tcp(from, to, flags)).verdict, FORWARD);
    }
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "S")).verdict, RULE, "not from the other side");
    assert_eq!(bench.run(&tcp(INSIDE, SERVER, "S")).verdict, FORWARD);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "SA")).verdict, FORWARD);
}

#[test]
fn errors_about_a_flow_pass_and_others_do_not() {
    for (inside, router, server) in [
        ("10.0.0.1", "203.0.113.9", "192.0.2.1"),
        ("2001:db8:1::1", "2001:db8:9::1", "2001:db8:2::1"),
    ] {
        let mut bench = outward(json!({}));
        let sent = udp_between((inside, 5), (server, 6), b"payload");
        let error = time_exceeded(router, inside, &sent);
        assert_eq!(bench.run(&error).verdict, RULE, "about nothing");
        bench.run(&sent);
        assert_eq!(bench.run(&error).verdict, FORWARD);
    }
}

#[test]
fn fragments_follow_their_first() {
    let mut bench = outward(json!({}));
    let whole = udp_between(("10.0.0.1", 5), ("192.0.2.1", 6), &[7; 100]);
    let [first, later] = fragments(&whole, 99, 48);
    let orphan = Verdict::Drop(DropReason::FragmentWithoutFirst);
    assert_eq!(bench.run(&first).verdict, FORWARD);
    assert_eq!(bench.run(&later).verdict, FORWARD);
    let rejected = udp_between(("11.0.0.1", 5), ("192.0.2.1", 6), &[7; 100]);
    let [first, later] = fragments(&rejected, 99, 48);
    assert_eq!(bench.run(&first).verdict, RULE);
    assert_eq!(bench.run(&later).verdict, orphan);
    let [tiny, _] = fragments(&tcp(INSIDE, SERVER, "S"), 1, 8);
    assert_eq!(bench.run(&tiny).verdict, Verdict::Drop(DropReason::TinyFragment));
    let [_, overwriting] = fragments(&tcp(INSIDE, SERVER, "S"), 1, 8);
    assert_eq!(bench.run(&overwriting).verdict, Verdict::Drop(DropReason::TinyFragment));
}

#[test]
fn fragments_wait_for_their_first_and_share_its_fate() {
    let mut bench = outward(json!({}));
    let counts = |bench: &Bench| {
        let counters = bench.nt.counters();
        (counters.given_up, counters.dropped(DropReason::FragmentWithoutFirst))
    };
    for (source, verdict) in [("10.0.0.1", FORWARD), ("11.0.0.1", RULE)] {
        let whole = udp_between((source, 5), ("192.0.2.1", 6), &[7; 100]);
        let [first, later] = fragments(&whole, 99, 48);
        assert_eq!(bench.run(&later).verdict, Verdict::Consume);
        let out = bench.run(&first);
        assert_eq!(out.verdict, verdict);
        let went_on: Vec<_> = out.emitted.into_iter().map(|(_, frame)| frame).collect();
        assert_eq!(went_on, if verdict == FORWARD { vec![later] } else { vec![] });
    }
    assert_eq!(counts(&bench), (1, 1), "with its first");
    let [first, later] = fragments(&udp_between(("10.0.0.1", 5), SERVER, &[7; 100]), 8, 48);
    bench.run(&later);
    bench.wait_secs(30);
    assert!(bench.run(&first).emitted.is_empty(), "it has waited for too long");
    assert_eq!(counts(&bench), (2, 2));
    // RFC 4787, REQ-14a: no number of fragments keeps whole packets or fragments in order from passing.
    for id in 100..300 {
        let [_, later] = fragments(&udp_between(("10.0.0.9", 5), SERVER, &[7; 100]), id, 48);
        assert_eq!(bench.run(&later).verdict, Verdict::Consume);
    }
    assert_eq!(counts(&bench), (2 + 200 - 128, 2 + 200 - 128));
    let [first, later] = fragments(&udp_between(("10.0.0.1", 5), SERVER, &[7; 100]), 7, 48);
    assert_eq!(bench.run(&first).verdict, FORWARD);
    assert_eq!(bench.run(&later).verdict, FORWARD);
    let counters = bench.nt.counters();
    let counted = counters.forwarded + counters.consumed + counters.dropped_total();
    assert_eq!(counted - counters.given_up, counters.received, "each packet is counted once");
}

/// An overlap could change the ports that the rules have seen.
#[test]
fn rfc_5722_an_overlap_ends_its_packet_and_a_repetition_does_not() {
    const OVERLAP: Verdict = Verdict::Drop(DropReason::FragmentOverlap);
    for (from, to) in [("10.0.0.1", "192.0.2.1"), ("2001:db8:1::1", "2001:db8:2::1")] {
        let mut bench = outward(json!({}));
        let good = cut(&udp_between((from, 5), (to, 6), &[7; 200]), 9, 64);
        // The same identification, with another port in the first fragment.
        let other = cut(&udp_between((from, 5), (to, 25), &[7; 200]), 9, 72);
        assert_eq!(bench.run(&good[0]).verdict, FORWARD);
        assert_eq!(bench.run(&good[0]).verdict, OVERLAP, "a repetition");
        assert_eq!(bench.run(&good[1]).verdict, FORWARD, "it ends nothing");
        assert_eq!(bench.run(&other[0]).verdict, OVERLAP);
        assert_eq!(bench.run(&good[2]).verdict, OVERLAP, "with the rest of the packet");
        bench.wait_secs(30);
        for fragment in &good {
            assert_eq!(bench.run(fragment).verdict, FORWARD, "another packet");
        }
        for fragment in &good {
            assert_eq!(bench.run(fragment).verdict, FORWARD, "the packet was complete");
        }
    }
}

#[test]
fn a_full_table_gives_up_flows_without_reply_only() {
    let mut bench = outward(json!({"flows_max": 2}));
    let server = ("192.0.2.1", 53);
    let ask = |port| udp_between(("10.0.0.1", port), server, b"");
    let answer = |port| udp_between(server, ("10.0.0.1", port), b"");
    for port in [1, 2, 3] {
        assert_eq!(bench.run(&ask(port)).verdict, FORWARD);
    }
    assert_eq!(bench.run(&answer(1)).verdict, RULE, "it went for the third");
    assert_eq!(bench.run(&answer(2)).verdict, FORWARD);
    assert_eq!(bench.run(&answer(3)).verdict, FORWARD);
    assert_eq!(bench.run(&ask(4)).verdict, Verdict::Drop(DropReason::TableFull));
    bench.wait_secs(300);
    assert_eq!(bench.run(&ask(4)).verdict, FORWARD);
}

#[test]
fn new_rules_end_the_flows_that_they_reject() {
    let mut bench = outward(json!({}));
    let (kept, ended) = (("10.0.0.1", 5), ("10.9.0.1", 5));
    for from in [kept, ended] {
        bench.run(&udp_between(from, SERVER, b""));
    }
    bench.wait_secs(29);
    bench.configure(json!({"rules": [{"action": "accept", "source": "10.0.0.0/16"}]}));
    assert_eq!(bench.run(&udp_between(SERVER, kept, b"")).verdict, FORWARD);
    assert_eq!(bench.run(&udp_between(SERVER, ended, b"")).verdict, RULE);
}

#[test]
fn connections_survive_save_and_restore() {
    let mut bench = outward(json!({}));
    for (from, to, flags) in [(INSIDE, SERVER, "S"), (SERVER, INSIDE, "SA"), (INSIDE, SERVER, "A")]
    {
        bench.run(&tcp(from, to, flags));
    }
    bench.wait_secs(7_000);
    bench.restart();
    bench.wait_secs(439);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "A")).verdict, FORWARD);
    bench.wait_secs(7_440);
    assert_eq!(bench.run(&tcp(SERVER, INSIDE, "A")).verdict, RULE);
    let state = bench.nt.save(bench.now);
    let mut small = outward(json!({"flows_max": 1}));
    let mut full = outward(json!({}));
    for port in [1, 2] {
        full.run(&udp_between(("10.0.0.1", port), SERVER, b""));
    }
    let too_much = full.nt.save(full.now);
    assert_eq!(
        small.nt.restore(small.now, &too_much).unwrap_err().to_string(),
        "2 entries of state do not fit: the configuration allows 1"
    );
    assert!(small.nt.restore(small.now, &state[1..]).is_err());
}

#[test]
fn without_state_every_packet_needs_a_rule() {
    let mut bench = outward(json!({"stateful": false, "non_ip": "drop", "default": "accept"}));
    assert_eq!(bench.run(&tcp(INSIDE, SERVER, "A")).verdict, FORWARD);
    assert_eq!(bench.run(&tcp(SERVER, ("10.0.0.1", 25), "A")).verdict, RULE);
    assert_eq!(bench.run(&arp()).verdict, RULE);
    assert_eq!(outward(json!({})).run(&arp()).verdict, FORWARD);
}

#[test]
fn frames_other_than_ip_pass_where_they_are_named() {
    let unreadable = Verdict::Drop(DropReason::Unreadable);
    let mut experiment = arp();
    experiment[12..14].copy_from_slice(&[0x88, 0xB5]);
    for (named, passes) in [
        (json!("accept"), [FORWARD, unreadable]),
        (json!("drop"), [RULE, unreadable]),
        (json!([]), [RULE, unreadable]),
        (json!(["arp"]), [FORWARD, unreadable]),
        (json!(["0x88b5"]), [RULE, FORWARD]),
        (json!(["0x88b6", "arp"]), [FORWARD, unreadable]),
    ] {
        let mut bench = outward(json!({"non_ip": named.clone(), "default": "accept"}));
        let verdicts = [arp(), experiment.clone()].map(|frame| bench.run(&frame).verdict);
        assert_eq!(verdicts, passes, "{named}");
    }
    let message = outward(json!({})).rejected(&json!({"rules": [], "non_ip": ["0x8100"]}));
    assert!(
        message.starts_with("non_ip: a list of 1 entries is not allowed; allowed: \"accept\""),
        "{message}"
    );
}

#[test]
fn rules_that_contradict_themselves_are_rejected_and_the_old_ones_hold() {
    let mut bench = outward(json!({}));
    let message = bench.rejected(&json!({"rules": [{"action": "drop", "source_ports": "1"}]}));
    assert_eq!(
        message,
        "rules[0].protocol: a protocol without ports is not allowed; allowed: \"tcp\" or \"udp\" \
         where a rule names ports"
    );
    let mixed =
        json!({"rules": [{"action": "drop", "source": "::/0", "destination": "0.0.0.0/0"}]});
    assert!(bench.rejected(&mixed).starts_with("rules[0].destination: a prefix of another IP"));
    assert_eq!(bench.run(&tcp(INSIDE, SERVER, "S")).verdict, FORWARD);
}

proptest! {
    /// Stateless decisions against a list walked by hand over plain numbers.
    #[test]
    fn rules_match_as_plain_numbers_do(
        rules in prop::collection::vec((any::<bool>(), 0..4_u32, 29..=32_u32, 0..5_u16, 0..5_u16), 0..8),
        packets in prop::collection::vec((0..8_u32, 0..6_u16), 1..40),
    ) {
        let prefix = |low: u32, length: u32| low << 1 & (u32::MAX << (32 - length));
        let as_json: Vec<_> = rules.iter().map(|(accept, low, length, a, b)| json!({
            "action": if *accept { "accept" } else { "drop" }, "protocol": "udp",
            "source": format!("10.0.0.{}/{length}", prefix(*low, *length) & 0xFF),
            "destination_ports": format!("{}-{}", a.min(b), a.max(b)),
        })).collect();
        let mut bench = Bench::new("firewall", json!({"rules": as_json, "stateful": false}));
        for (low, port) in packets {
            let source: &'static str = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4",
                "10.0.0.5", "10.0.0.6", "10.0.0.7"][low as usize];
            let expected = rules.iter().find_map(|(accept, net, length, a, b)| {
                let is_in = low >> (32 - length) == prefix(*net, *length) >> (32 - length);
                let is_port = *a.min(b) <= port && port <= *a.max(b);
                (is_in && is_port).then_some(*accept)
            }).unwrap_or(false);
            let verdict = bench.run(&udp_between((source, 9), ("192.0.2.1", port), b"")).verdict;
            prop_assert_eq!(verdict == FORWARD, expected);
        }
    }
}
