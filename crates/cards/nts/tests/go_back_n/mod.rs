//! The go-back-N transport from outside: two cards, or a card and a peer written from the wire format alone, over a
//! line that loses, repeats, damages and reorders.

#![allow(clippy::unwrap_used, reason = "tests")]

pub mod ends;
pub mod line;
mod reference;
mod tcp;

use std::time::Duration;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use snic_domain::Timestamp;
use snic_nts::{DropReason, create, schema};

use ends::{Card, End};
use line::{Faults, Line, packet};
use reference::Reference;

/// Whether another implementation, smoltcp, accepts a packet of the transport: lengths, and both checksums.
pub fn assert_valid(frame: &[u8]) {
    use smoltcp::wire::{
        EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, UdpPacket,
    };
    let check = |protocol, payload: &[u8], from: IpAddress, to: IpAddress| {
        assert_eq!(protocol, IpProtocol::Udp);
        let udp = UdpPacket::new_checked(payload).unwrap();
        assert!(udp.verify_checksum(&from, &to) && udp.checksum() != 0);
        assert_eq!(usize::from(udp.len()), payload.len());
    };
    let ethernet = EthernetFrame::new_checked(frame).unwrap();
    match ethernet.ethertype() {
        EthernetProtocol::Ipv4 => {
            let ip = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
            assert!(ip.verify_checksum() && ip.dont_frag() && !ip.more_frags());
            assert_eq!((usize::from(ip.total_len()), ip.frag_offset()), (frame.len() - 14, 0));
            check(ip.next_header(), ip.payload(), ip.src_addr().into(), ip.dst_addr().into());
        }
        EthernetProtocol::Ipv6 => {
            let ip = Ipv6Packet::new_checked(ethernet.payload()).unwrap();
            assert_eq!(ip.total_len(), frame.len() - 14);
            check(ip.next_header(), ip.payload(), ip.src_addr().into(), ip.dst_addr().into());
        }
        other => panic!("{other} is not IP"),
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
/// A line that does everything to frames.
const BAD: Faults =
    Faults { lost: 100, repeated: 50, damaged: 50, held_up: Duration::from_millis(5) };

fn faults() -> impl Strategy<Value = Faults> {
    let of_1000 = |most: u32| prop_oneof![Just(0), 0..=most];
    (of_1000(300), of_1000(200), of_1000(200), 0..30_u32).prop_map(
        |(lost, repeated, damaged, held_up)| Faults {
            lost,
            repeated,
            damaged,
            held_up: held_up * MILLISECOND,
        },
    )
}

/// Hosts send this many packets in all, at random times from random sides; then all that is left to do is done.
fn play<A: End, B: End>(line: &mut Line<A, B>, is_six: bool, packets: u32, seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for number in 0..packets {
        let side = random.random_range(0..2);
        line.send(side, packet(side, is_six, number));
        line.run_for(random.random_range(0..8) * MILLISECOND);
        if random.random_range(0..40) == 0 {
            line.a.move_to_another_card(line.now);
        }
        if random.random_range(0..40) == 0 {
            line.b.move_to_another_card(line.now);
        }
    }
    line.settle();
}

/// Settings with which nothing is given up.
fn patient(window: usize) -> serde_json::Value {
    json!({"window": window, "timeout_ms": 20, "retries_max": 1_000})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever the line does, and though the state of both moves from card to card.
    #[test]
    fn between_two_cards_all_that_was_taken_arrives_once_and_in_order(
        faults in faults(),
        is_six: bool,
        window in 1..20_usize,
        streams in prop::array::uniform2(prop_oneof![any::<u32>(), u32::MAX - 30..=u32::MAX]),
        seed: u64,
    ) {
        let mut ends = [0, 1].map(|side| Card::new(side, is_six, patient(window), seed ^ side as u64));
        for (end, stream) in ends.iter_mut().zip(streams) {
            end.will_open(&[stream]);
        }
        let [a, b] = ends;
        let mut line = Line::new(a, b, faults, seed);
        play(&mut line, is_six, 120, seed);
        line.assert_exact();
    }

    /// The same with a peer that has no code with the NT in common.
    #[test]
    fn a_card_and_a_peer_written_from_the_wire_format_understand_each_other(
        faults in faults(),
        is_six: bool,
        streams in prop::array::uniform2(prop_oneof![any::<u32>(), u32::MAX - 30..=u32::MAX]),
        seed: u64,
    ) {
        let mut card = Card::new(0, is_six, patient(8), seed);
        card.will_open(&streams);
        let mut line = Line::new(card, Reference::new(1, is_six, seed ^ 1), faults, seed);
        play(&mut line, is_six, 100, seed);
        line.assert_exact();
    }

    /// Frames with tokens that somebody guesses, and all frames of before again, change nothing.
    #[test]
    fn who_does_not_see_the_line_and_who_repeats_what_it_saw_change_nothing(seed: u64) {
        let [a, b] = [0, 1].map(|side| Card::new(side, false, patient(8), seed ^ side as u64));
        let mut line = Line::new(a, b, BAD, seed);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for number in 0..60 {
            let side = random.random_range(0..2);
            line.send(side, packet(side, false, number));
            line.run_for(random.random_range(0..6) * MILLISECOND);
            let Some((to, frame)) = line.seen.get(random.random_range(0..=line.seen.len())).cloned() else {
                continue;
            };
            line.arrive(to, &frame);
            line.arrive(to, &forged(frame, &mut random));
        }
        line.settle();
        line.assert_exact();
    }
}

/// A frame with another kind, stream, token or number than it had, and right checksums.
fn forged(mut frame: Vec<u8>, random: &mut ChaCha8Rng) -> Vec<u8> {
    let word = |random: &mut ChaCha8Rng| random.random::<u32>().to_be_bytes();
    let is_data = frame[42] & 0xF == 3;
    frame[42] = 0x10 | if is_data { 3 } else { [1, 2, 4, 5, 6][random.random_range(0..5)] };
    match random.random_range(0..3) {
        0 => frame[46..50].copy_from_slice(&word(random)),
        1 => frame[50..54].copy_from_slice(&word(random)),
        _ => {
            frame[46..50].copy_from_slice(&word(random));
            frame[50..54].copy_from_slice(&word(random));
        }
    }
    frame[54..58].copy_from_slice(&word(random));
    fill(&mut frame);
    frame
}

fn fill(frame: &mut [u8]) {
    let Ok(snic_nts::wire::Frame::Ip(layout)) = snic_nts::wire::parse(frame) else {
        panic!("{frame:02x?}")
    };
    snic_nts::wire::fill(frame, &layout);
}

fn two(settings: serde_json::Value) -> Line<Card, Card> {
    let [a, b] = [0, 1].map(|side| Card::new(side, false, settings.clone(), side as u64));
    Line::new(a, b, Faults::default(), 1)
}

fn kinds(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|frame| frame[42] & 0xF).collect()
}

/// Byte by byte, as the documentation of the header has it.
#[test]
fn the_wire_format_is_the_documented_one() {
    let mut card = Card::new(0, false, json!({}), 1);
    card.will_open(&[0xFFFF_FFFF]);
    let host = packet(0, false, 2);
    let now = Timestamp::from_nanos(1);
    let open = card.send(&host, now).sent.remove(0);
    assert_eq!(open.len(), 14 + 20 + 8 + 16);
    assert_eq!(open[..14], host[..14]);
    assert_eq!(open[34..40], [0xEE, 0x5D, 0xEE, 0x5D, 0, 24], "ports 61021, length");
    assert_eq!(open[42..58], [0x11, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut accept = Card::new(1, false, json!({}), 2).arrive(&open, now).sent.remove(0);
    assert_eq!((&accept[..6], &accept[6..12]), (&host[6..12], &host[..6]), "stations are turned");
    assert_eq!(
        (&accept[26..30], &accept[30..34]),
        (&host[30..34], &host[26..30]),
        "addresses are turned"
    );
    assert_eq!((accept[42], &accept[46..50]), (0x12, &[255; 4][..]));
    accept[50..54].copy_from_slice(&[1, 2, 3, 4]);
    fill(&mut accept);
    let sent = card.arrive(&accept, now).sent;
    assert_eq!(sent.len(), 1);
    let data = &sent[0];
    assert_eq!(
        data[42..58],
        [0x13, 17, 0x40, 0, 255, 255, 255, 255, 1, 2, 3, 4, 255, 255, 255, 255]
    );
    assert_eq!(data[58..], host[34..], "what the IP header carried");
    assert_eq!((data[22], data[15]), (host[22], host[15]), "hops and traffic class are the host's");
    // Number 0 comes behind the last one. It is a fragment: its flags and offset are carried.
    let fragment = packet(0, false, 3);
    let out = card.send(&fragment, now);
    assert_eq!(out.sent[0][42..46], [0x13, 17, 0x20, 0x10]);
    assert_eq!(out.sent[0][54..58], [0; 4]);
}

#[test]
fn numbers_begin_again_at_zero_in_the_middle_of_a_stream() {
    for first in [u32::MAX, u32::MAX - 1, u32::MAX / 2, u32::MAX / 2 - 3] {
        let mut line = two(patient(8));
        line.faults = BAD;
        line.a.will_open(&[first]);
        for number in 0..40 {
            line.send(0, packet(0, false, number));
            line.run_for(4 * MILLISECOND);
        }
        line.settle();
        line.assert_exact();
        assert!(line.delivered[1].len() > 8);
    }
}

/// The first packet of a stream comes behind the second, and nobody knows yet where the stream begins.
#[test]
fn a_stream_may_begin_out_of_order() {
    let mut line = two(json!({}));
    (1..=3).for_each(|number| assert!(line.send(0, packet(0, false, number))));
    let now = line.now;
    let open = line.seen[0].1.clone();
    let accept = line.b.arrive(&open, now).sent.remove(0);
    let data = line.a.arrive(&accept, now).sent;
    assert_eq!(kinds(&data), [3, 3, 3]);
    for at in [2, 1, 0, 1, 0] {
        line.arrive(1, &data[at]);
    }
    line.settle();
    line.assert_exact();
}

#[test]
fn an_end_that_lost_its_state_is_noticed_and_goes_on() {
    for (lost, is_six) in [(0, false), (1, false), (0, true), (1, true)] {
        let [a, b] = [0, 1].map(|side| Card::new(side, is_six, json!({"window": 8}), side as u64));
        let mut line = Line::new(a, b, Faults::default(), 1);
        for number in 0..3 {
            assert!(line.send(0, packet(0, is_six, number)));
        }
        line.settle();
        assert_eq!(line.delivered[1].len(), 3);
        let end = if lost == 0 { &mut line.a } else { &mut line.b };
        end.lose_state();
        for number in 3..6 {
            assert!(line.send(0, packet(0, is_six, number)));
        }
        line.settle();
        line.assert_exact();
        // What was acknowledged is not sent again; what was under way is.
        for number in 6..9 {
            assert!(line.send(0, packet(0, is_six, number)));
        }
        let end = if lost == 0 { &mut line.a } else { &mut line.b };
        end.lose_state();
        for number in 9..12 {
            assert!(line.send(0, packet(0, is_six, number)));
        }
        line.settle();
        let numbers = if lost == 0 { 6..12 } else { 0..12 };
        let expected: Vec<_> = numbers.map(|number| packet(0, is_six, number)).collect();
        assert!(line.delivered[1].ends_with(&expected[expected.len() - 6..]), "lost by {lost}");
    }
}

/// Any number of losses of state at both ends: nothing comes out of order, and only a sender's own loss takes packets
/// with it.
#[test]
fn restarts_repeat_or_lose_at_most_a_window() {
    for seed in 0..60 {
        let mut line = two(patient(4));
        line.faults = BAD;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut sender_losses, mut receiver_losses) = (0, 0);
        for number in 0..200 {
            line.send(0, packet(0, false, number));
            line.run_for(random.random_range(0..12) * MILLISECOND);
            match random.random_range(0..60) {
                0 => {
                    line.a.lose_state();
                    sender_losses += 1;
                }
                1 => {
                    line.b.lose_state();
                    receiver_losses += 1;
                }
                _ => {}
            }
        }
        line.settle();
        let taken = &line.taken[0];
        let places: Vec<_> = line.delivered[1]
            .iter()
            .map(|frame| taken.iter().position(|sent| sent == frame).expect("nothing else comes"))
            .collect();
        let steps = || places.windows(2).map(|pair| pair[1] as i64 - pair[0] as i64);
        let repeated: i64 = steps().filter(|step| *step < 1).map(|step| 1 - step).sum();
        let lost: i64 = steps().filter(|step| *step > 1).map(|step| step - 1).sum();
        assert!(repeated <= 4 * receiver_losses, "seed {seed}: {repeated} again: {places:?}");
        assert!(lost <= 4 * sender_losses, "seed {seed}: {lost} lost: {places:?}");
    }
}

#[test]
fn a_late_packet_of_a_stream_that_is_over_does_not_come_back() {
    let mut line = two(json!({}));
    line.send(0, packet(0, false, 1));
    line.settle();
    let old: Vec<_> = line.seen.iter().filter(|(to, _)| *to == 1).cloned().collect();
    assert_eq!(kinds(&old.iter().map(|(_, frame)| frame.clone()).collect::<Vec<_>>()), [1, 3]);
    line.a.lose_state();
    line.send(0, packet(0, false, 2));
    line.settle();
    for (to, frame) in &old {
        line.arrive(*to, frame);
        line.settle();
    }
    line.send(0, packet(0, false, 3));
    line.settle();
    line.assert_exact();
    assert_eq!(line.b.dropped(DropReason::UnknownStream), 1);
}

#[test]
fn a_gap_is_sent_again_at_once_and_once() {
    let mut line = two(json!({"timeout_ms": 10_000}));
    line.send(0, packet(0, false, 0));
    line.settle();
    let now = line.now;
    let data: Vec<_> =
        (1..=4).flat_map(|number| line.a.send(&packet(0, false, number), now).sent).collect();
    // The first is lost: one NACK for the three behind it, and all four again.
    let answers: Vec<_> =
        data[1..].iter().flat_map(|frame| line.b.arrive(frame, now).sent).collect();
    assert_eq!(kinds(&answers), [5]);
    assert_eq!(line.b.dropped(DropReason::OutOfOrder), 3);
    let again = line.a.arrive(&answers[0], now).sent;
    assert_eq!(again, data);
    assert!(line.a.arrive(&answers[0], now).sent.is_empty(), "a NACK that comes twice");
    let acks: Vec<_> = again.iter().flat_map(|frame| line.b.arrive(frame, now).sent).collect();
    assert_eq!(kinds(&acks), [4; 4]);
    for ack in &acks {
        assert!(line.a.arrive(ack, now).sent.is_empty());
    }
    assert_eq!(line.a.due(), None, "all is acknowledged");
}

#[test]
fn three_equal_acknowledgements_say_as_much_as_a_gap() {
    let mut line = two(json!({"timeout_ms": 10_000}));
    line.send(0, packet(0, false, 0));
    line.settle();
    let ack = line.seen.last().unwrap().1.clone();
    assert_eq!(kinds(std::slice::from_ref(&ack)), [4]);
    let now = line.now;
    let data = line.a.send(&packet(0, false, 1), now).sent;
    for expected in [0, 0, 1, 0] {
        let sent = line.a.arrive(&ack, now).sent;
        assert_eq!(sent.len(), expected);
        assert!(sent.is_empty() || sent == data);
    }
}

#[test]
fn a_full_window_drops_and_counts_and_the_rest_arrives() {
    let mut line = two(json!({"window": 5}));
    for number in 0..20 {
        assert_eq!(line.send(0, packet(0, false, number)), number < 5);
    }
    assert_eq!(line.a.dropped(DropReason::WindowFull), 15);
    line.settle();
    assert!(line.send(0, packet(0, false, 20)));
    line.settle();
    line.assert_exact();
    assert_eq!(line.delivered[1].len(), 6);
}

/// A large window does not take all buffers of its card at once, and all arrives nevertheless.
#[test]
fn a_large_window_is_sent_again_in_parts() {
    let mut line = two(json!({"window": 300, "timeout_ms": 10, "retries_max": 1_000}));
    for number in 0..300 {
        assert!(line.send(0, packet(0, false, number)));
    }
    let before = line.seen.len();
    line.run_for(Duration::from_micros(250));
    assert_eq!(line.seen.iter().skip(before).filter(|(to, _)| *to == 1).count(), 128);
    line.settle();
    line.assert_exact();
    line.faults = BAD;
    for number in 300..1_500 {
        line.send(0, packet(0, false, number));
        line.run_for(Duration::from_micros(100));
    }
    line.settle();
    line.assert_exact();
}

#[test]
fn memory_is_bounded_by_the_window_and_the_mtu() {
    let mut nt = create("go-back-n", 1).unwrap();
    let version = schema("go-back-n").unwrap().version;
    let mut configure = |more: serde_json::Value| {
        let mut settings = json!({"local": "10.0.0.1", "peer": "10.0.0.2"});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        nt.configure(Timestamp::ZERO, version, settings.to_string().as_bytes())
            .map_err(|error| error.to_string())
    };
    assert_eq!(configure(json!({"window": 1_024})), Ok(()));
    assert_eq!(configure(json!({"window": 454, "mtu": 9_216})), Ok(()));
    assert_eq!(
        configure(json!({"window": 455, "mtu": 9_216})).unwrap_err(),
        "window: 455 is not allowed; allowed: at most 454 with an mtu of 9216: 4194304 bytes are kept"
    );
    for (wrong, field) in [
        (json!({"window": 0}), "window"),
        (json!({"window": 1_025}), "window"),
        (json!({"timeout_ms": 0}), "timeout_ms"),
        (json!({"peer": "10.0.0.1"}), "peer"),
        (json!({"peer": "::1"}), "peer"),
        (json!({"role": "none"}), "role"),
    ] {
        assert!(configure(wrong).unwrap_err().starts_with(field));
    }
}

#[test]
fn a_peer_that_is_gone_is_given_up_and_every_packet_is_counted() {
    let mut line = two(json!({"window": 3, "timeout_ms": 10, "retries_max": 4}));
    line.faults.lost = 1_000;
    for number in 0..3 {
        assert!(line.send(0, packet(0, false, number)));
    }
    let began = line.now;
    line.settle();
    // 10 ms, then 20, 40, 80 and 160 of waiting.
    assert_eq!(line.now.since(began), Duration::from_millis(310));
    let counters = line.a.nt.counters();
    assert_eq!((counters.received, counters.consumed), (3, 3));
    assert_eq!(counters.given_up, 3);
    assert_eq!(line.a.dropped(DropReason::PeerUnreachable), 3);
    line.faults.lost = 0;
    line.taken[0].clear();
    assert!(line.send(0, packet(0, false, 9)));
    line.settle();
    line.assert_exact();
}

#[test]
fn packets_for_another_peer_are_counted_when_the_peer_changes() {
    let mut line = two(json!({}));
    line.send(0, packet(0, false, 1));
    line.a.configure(json!({"local": "10.0.0.1", "peer": "10.0.0.9"}));
    assert_eq!(line.a.due(), Some(Timestamp::ZERO));
    assert!(line.a.wake(line.now).is_empty());
    assert_eq!(line.a.dropped(DropReason::PeerUnreachable), 1);
    assert_eq!(line.a.due(), None);
}

/// The window, the port and the patience change in the middle of a transfer, and nothing is lost.
#[test]
fn what_is_kept_survives_a_change_of_the_configuration() {
    let mut line = two(patient(16));
    line.faults = BAD;
    for number in 0..200 {
        line.send(0, packet(0, false, number));
        line.run_for(2 * MILLISECOND);
        if number % 20 == 19 {
            let port = 5_000 + number / 20;
            let window = [3, 16, 1][number as usize / 20 % 3];
            for (end, [local, peer]) in
                [(&mut line.a, ["10.0.0.1", "10.0.0.2"]), (&mut line.b, ["10.0.0.2", "10.0.0.1"])]
            {
                end.configure(json!({"local": local, "peer": peer, "port": port,
                    "window": window, "retries_max": 1_000}));
            }
        }
    }
    line.settle();
    line.assert_exact();
    assert!(line.delivered[1].len() > 40);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_dropped_with_its_reason() {
    let mut line = two(json!({"timeout_ms": 10_000}));
    line.send(0, packet(0, false, 0));
    line.settle();
    let now = line.now;
    let ack = line.seen.last().unwrap().1.clone();
    assert_eq!(line.a.send(&packet(0, false, 1), now).sent.len(), 1);
    let with = |number: u32| {
        let mut ack = ack.clone();
        ack[54..58].copy_from_slice(&number.to_be_bytes());
        fill(&mut ack);
        ack
    };
    let base = u32::from_be_bytes(ack[54..58].try_into().unwrap());
    for (number, is_wrong) in [(2, true), (u32::MAX / 2, true), (u32::MAX, false), (1 << 31, false)]
    {
        let before = line.a.dropped(DropReason::UnexpectedReply);
        line.a.arrive(&with(base.wrapping_add(number)), now);
        let after = line.a.dropped(DropReason::UnexpectedReply);
        assert_eq!(after - before, u64::from(is_wrong), "{number} ahead");
    }
    assert!(line.a.due().is_some(), "the packet is still kept");
    line.a.arrive(&with(base.wrapping_add(1)), now);
    assert_eq!(line.a.due(), None);
}

#[test]
fn what_is_not_of_the_transport_passes_or_is_dropped_with_its_reason() {
    let now = Timestamp::from_nanos(1);
    let mut card = Card::new(0, false, json!({"mtu": 1_280}), 1);
    let mut check = |frame: &[u8], expected: Option<DropReason>| {
        let before = expected.map(|reason| card.dropped(reason));
        let out = card.arrive(frame, now);
        match expected {
            None => assert_eq!(out.delivered.as_deref(), Some(frame)),
            Some(reason) => assert_eq!(Some(card.dropped(reason)), before.map(|count| count + 1)),
        }
    };
    let station = [2, 0, 0, 0, 0, 1];
    let head = [&[255; 6][..], &station, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &station].concat();
    let mut arp = [&head[..], &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2], &[0; 18]].concat();
    check(&arp, None);
    arp[12..14].copy_from_slice(&[0x88, 0x47]);
    check(&arp, Some(DropReason::Unreadable));
    let mut other = packet(0, false, 2);
    snic_nts::wire::replace_bytes(&mut other, 24, 32, &[0, 99]);
    fill(&mut other);
    check(&other, None);
    check(&packet(1, false, 0), Some(DropReason::Unnumbered));
    check(&packet(1, false, 2), Some(DropReason::Truncated));
    let mut long = Vec::new();
    let udp =
        etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9);
    udp.udp(1, 2).write(&mut long, &[0; 1_280 - 28 - 24 + 1]).unwrap();
    check(&long, Some(DropReason::TooLarge));
    let errors = card.arrive(&long, now).sent;
    assert_eq!(
        (&errors[0][34..36], &errors[0][40..42]),
        (&[3, 4][..], &1_256_u16.to_be_bytes()[..])
    );
}

#[test]
fn roles_carry_one_direction_only() {
    let settings = |role: &str| json!({"role": role, "timeout_ms": 20});
    let a = Card::new(0, false, settings("send"), 1);
    let b = Card::new(1, false, settings("receive"), 2);
    let mut line = Line::new(a, b, BAD, 3);
    let now = line.now;
    let back = packet(1, false, 5);
    assert_eq!(line.b.send(&back, now).sent, std::slice::from_ref(&back), "as it is");
    assert_eq!(line.a.arrive(&back, now).delivered, Some(back));
    for number in 0..50 {
        line.send(0, packet(0, false, number));
        line.run_for(4 * MILLISECOND);
    }
    line.settle();
    line.assert_exact();
    // Nobody opens a stream towards an end that only sends.
    let open =
        line.seen.iter().find(|(to, frame)| *to == 1 && kinds(std::slice::from_ref(frame)) == [1]);
    let mut open = open.unwrap().1.clone();
    let Ok(snic_nts::wire::Frame::Ip(layout)) = snic_nts::wire::parse(&open) else { panic!() };
    snic_nts::wire::turn_around_addresses(&mut open, &layout);
    let now = line.now;
    assert!(line.a.arrive(&open, now).sent.is_empty());
    assert_eq!(line.a.dropped(DropReason::UnknownStream), 1);
}

/// Saved states that somebody has changed are rejected or restored, but nothing breaks, and the next packets go on.
#[test]
fn a_damaged_state_does_no_harm() {
    let mut line = two(json!({}));
    line.send(0, packet(0, false, 0));
    line.settle();
    let now = line.now;
    (1..6).for_each(|number| drop(line.a.send(&packet(0, false, number), now)));
    let saved = line.a.nt.save(now);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut rejected = 0;
    for _ in 0..20_000 {
        let mut bytes = saved.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        rejected += u32::from(line.a.nt.restore(now, &bytes).is_err());
        line.a.send(&packet(0, false, 7), now);
        line.a.wake(now + Duration::from_secs(900));
    }
    assert!(rejected > 1_000, "{rejected}");
    line.a.nt.restore(now, &saved).unwrap();
    assert_eq!(line.a.nt.save(now), saved);
}
