use proptest::prelude::*;
use serde_json::{Value, json};

use super::association::{HEADER_BYTES, IV_BYTES, Inbound, Outbound};
use crate::config::Secret;
use crate::tasks::support::{
    Bench, FRAME_BYTES_MAX, assert_valid, assert_valid_error, tcp, too_big, udp, unreachable,
};
use crate::wire::{self, Frame, replace_bytes};
use crate::{Direction, DropReason, Verdict};

const KEY: &str = "000102030405060708090a0b0c0d0e0fdeadbeef";
const OTHER_KEY: &str = "0f0e0d0c0b0a09080706050403020100cafebabe";
const LONG_KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fdeadbeef";

/// One end of a tunnel over IPv4 or IPv6: `side` is 0 or 1.
fn settings(side: usize, outer_v6: bool, key: &str) -> Value {
    let ends =
        if outer_v6 { ["2001:db8:f::1", "2001:db8:f::2"] } else { ["192.0.2.1", "192.0.2.2"] };
    let behind =
        [json!(["10.1.0.0/16", "2001:db8:1::/48"]), json!(["10.2.0.0/16", "2001:db8:2::/48"])];
    let keys = [(0x1001, key), (0x1002, if key == KEY { OTHER_KEY } else { KEY })];
    let (out, into) = (keys[side], keys[1 - side]);
    json!({
        "local": ends[side], "remote": ends[1 - side],
        "local_prefixes": behind[side], "remote_prefixes": behind[1 - side],
        "outbound": {"spi": out.0, "key": out.1},
        "inbound": [{"spi": into.0, "key": into.1}],
    })
}

fn ends(outer_v6: bool, key: &str) -> [Bench; 2] {
    [0, 1].map(|side| Bench::new("esp", settings(side, outer_v6, key)))
}

const V4: (&str, &str) = ("10.1.0.1", "10.2.0.1");
const V6: (&str, &str) = ("2001:db8:1::1", "2001:db8:2::1");

fn packet(ends: (&'static str, &'static str), payload: &[u8]) -> Vec<u8> {
    udp(ends.0, ends.1, payload)
}

fn hex(digits: &str) -> Vec<u8> {
    digits.parse::<Secret>().unwrap().expose().to_vec()
}

/// The second test case of "Test Cases for the use of GCM and GMAC in IPsec ESP"
/// (draft-mcgrew-gcm-test-01, section 4): 128-bit key, 32-bit sequence numbers.
#[test]
fn a_published_packet_is_opened() {
    let key: Secret = "feffe9928665731c6d6a8f9467308308cafebabe".parse().unwrap();
    let plaintext = "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d0010000010000\
                     00000000037369700963796265726369747902646b00000100010001";
    let mut packet = hex(
        "0000a5f80000000afacedbaddecaf888deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d\
         114d2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd183b70d3aa8bc6ee4\
         c309e9d85a41ad4a",
    );
    let again = packet.clone();
    let mut inbound = Inbound::new(0xA5F8, &key, 64);
    inbound.open(&mut packet).unwrap();
    let plaintext = hex(plaintext);
    assert_eq!(packet[HEADER_BYTES + IV_BYTES..][..plaintext.len()], plaintext);
    assert_eq!(inbound.open(&mut again.clone()), Err(DropReason::Replayed));
    for byte in 0..again.len() {
        let mut damaged = again.clone();
        damaged[byte] ^= 0x10;
        // The caller selects by the index; the index itself is authenticated too.
        let expected = if byte < 4 { Ok(()) } else { Err(DropReason::NotAuthentic) };
        assert_eq!(Inbound::new(0xA5F8, &key, 64).open(&mut damaged), expected, "{byte}");
    }
}

proptest! {
    /// Every packet between the prefixes arrives as it was, whatever its length, over both IP
    /// versions and with both key lengths.
    #[test]
    fn packets_arrive_as_they_were(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        inner_v6: bool, outer_v6: bool, is_long: bool, padding in 0..20_usize,
    ) {
        let [mut here, mut there] = ends(outer_v6, if is_long { LONG_KEY } else { KEY });
        let sent = packet(if inner_v6 { V6 } else { V4 }, &payload);
        let mut padded = sent.clone();
        padded.extend(vec![0xEE; padding]);
        let sealed = here.run(&padded);
        prop_assert_eq!(sealed.verdict, Verdict::Forward);
        assert_valid(&sealed.frame);
        let overhead = if outer_v6 { 40 } else { 20 } + 8 + 8 + 2 + 16;
        prop_assert!((sent.len() + overhead..sent.len() + overhead + 4).contains(&sealed.frame.len()));
        if payload.len() > 8 {
            prop_assert!(!sealed.frame.windows(payload.len()).any(|window| window == payload));
        }
        let opened = there.run(&sealed.frame);
        prop_assert_eq!(opened.verdict, Verdict::Forward);
        prop_assert_eq!(opened.frame, sent);
    }

    /// Any changed bit of what is authenticated is noticed; number 0 counts as replayed.
    #[test]
    fn no_changed_bit_gets_through(bit in 34 * 8..120 * 8_usize) {
        let [mut here, mut there] = ends(false, KEY);
        let mut sealed = here.run(&packet(V4, &[7; 60])).frame;
        prop_assume!(bit / 8 < sealed.len());
        sealed[bit / 8] ^= 1 << (bit % 8);
        let verdict = there.run(&sealed).verdict;
        prop_assert!(matches!(verdict, Verdict::Drop(DropReason::NotAuthentic | DropReason::UnknownSpi | DropReason::Replayed)));
    }
}

#[test]
fn replays_and_old_packets_are_dropped() {
    let [mut here, mut there] = ends(false, KEY);
    let sealed: Vec<_> = (0..100).map(|_| here.run(&packet(V4, b"x")).frame).collect();
    let replayed = Verdict::Drop(DropReason::Replayed);
    assert_eq!(there.run(&sealed[5]).verdict, Verdict::Forward);
    assert_eq!(there.run(&sealed[5]).verdict, replayed);
    assert_eq!(there.run(&sealed[2]).verdict, Verdict::Forward, "late, inside the window");
    assert_eq!(there.run(&sealed[99]).verdict, Verdict::Forward);
    assert_eq!(there.run(&sealed[35]).verdict, replayed, "64 behind");
    assert_eq!(there.run(&sealed[36]).verdict, Verdict::Forward);
    there.restart();
    assert_eq!(there.run(&sealed[36]).verdict, replayed, "known after a restart");
    assert_eq!(there.run(&sealed[37]).verdict, Verdict::Forward);
}

#[test]
fn a_forged_packet_does_not_move_the_window() {
    let [mut here, mut there] = ends(false, KEY);
    let first = here.run(&packet(V4, b"x")).frame;
    let mut forged = first.clone();
    forged[38..42].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(there.run(&forged).verdict, Verdict::Drop(DropReason::NotAuthentic));
    assert_eq!(there.run(&first).verdict, Verdict::Forward);
}

#[test]
fn numbers_go_on_and_never_start_again() {
    let [mut here, mut there] = ends(false, KEY);
    let number = |frame: &[u8]| wire::read_u32(frame, 38);
    for expected in 1..=3 {
        assert_eq!(number(&here.run(&packet(V4, b"x")).frame), expected);
    }
    here.restart();
    let sealed = here.run(&packet(V4, b"x")).frame;
    assert_eq!(number(&sealed), 4);
    here.configure(settings(0, false, KEY));
    assert_eq!(number(&here.run(&packet(V4, b"x")).frame), 5);
    here.configure(settings(0, false, LONG_KEY));
    assert_eq!(number(&here.run(&packet(V4, b"x")).frame), 1, "a new key");
    assert_eq!(there.run(&sealed).verdict, Verdict::Forward);
    let mut last = Outbound::new(256, &KEY.parse().unwrap());
    last.resume(u32::MAX - 1);
    let mut room = [0; 64];
    assert_eq!(last.seal(&mut room, || 1), Ok(()));
    assert_eq!(last.seal(&mut room, || 1), Err(DropReason::SequenceExhausted));
}

/// Without its state a card starts with number 1 again: the nonce must differ all the same.
#[test]
fn a_card_that_lost_its_state_does_not_repeat_a_nonce() {
    let ivs: std::collections::BTreeSet<Vec<u8>> = (0..20)
        .map(|seed| {
            let [mut here, _] = ends(false, KEY);
            here.random = rand::SeedableRng::seed_from_u64(seed);
            here.run(&packet(V4, b"x")).frame[42..50].to_vec()
        })
        .collect();
    assert_eq!(ivs.len(), 20);
}

#[test]
fn keys_change_without_losing_packets() {
    let [mut here, mut there] = ends(false, KEY);
    let old = here.run(&packet(V4, b"old")).frame;
    let mut both = settings(1, false, KEY);
    let old_sa = both["inbound"][0].clone();
    both["inbound"] = json!([old_sa, {"spi": 0x2001, "key": LONG_KEY}]);
    there.configure(both);
    let mut new = settings(0, false, KEY);
    new["outbound"] = json!({"spi": 0x2001, "key": LONG_KEY});
    here.configure(new);
    let fresh = here.run(&packet(V4, b"new")).frame;
    assert_eq!(there.run(&fresh).verdict, Verdict::Forward);
    assert_eq!(there.run(&old).verdict, Verdict::Forward, "it was on the way");
    let shown = there.nt.configuration().unwrap().to_string();
    assert!(shown.contains("sha256:") && !shown.contains(KEY), "{shown}");
}

#[test]
fn packets_that_the_peer_may_not_send_are_dropped() {
    let [mut here, mut there] = ends(false, KEY);
    let mut wide = settings(0, false, KEY);
    wide["local_prefixes"] = json!(["0.0.0.0/0"]);
    here.configure(wide);
    let spoofed = here.run(&udp("10.9.0.1", "10.2.0.1", b"x")).frame;
    assert_eq!(there.run(&spoofed).verdict, Verdict::Drop(DropReason::NotForTunnel));
    let mut elsewhere = here.run(&packet(V4, b"x")).frame;
    replace_bytes(&mut elsewhere, 24, 26, &[192, 0, 2, 9]);
    assert_eq!(there.run(&elsewhere).verdict, Verdict::Drop(DropReason::NotForTunnel));
    let mut short = here.run(&packet(V4, b"x")).frame;
    short[16..18].copy_from_slice(&50_u16.to_be_bytes());
    short[24..26].fill(0);
    let sum = !crate::tasks::support::slow_sum(&short[14..34]);
    short[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(there.run(&short).verdict, Verdict::Drop(DropReason::Malformed));
}

#[test]
fn nothing_leaves_in_the_clear_unless_it_may() {
    let [mut here, _] = ends(false, KEY);
    let other = udp("10.1.0.1", "192.0.2.99", b"x");
    assert_eq!(here.run(&other).verdict, Verdict::Drop(DropReason::NotForTunnel));
    let mut open = settings(0, false, KEY);
    open["other"] = json!("forward");
    here.configure(open);
    assert_eq!(here.run(&other).frame, other);
    let mut receiver = settings(0, false, KEY);
    receiver.as_object_mut().unwrap().remove("outbound");
    here.configure(receiver);
    assert_eq!(here.run(&packet(V4, b"x")).verdict, Verdict::Drop(DropReason::UnknownSpi));
}

#[test]
fn the_outer_header_tells_what_routers_need() {
    let [mut here, mut there] = ends(false, KEY);
    let mut marked = tcp(("10.1.0.1", 1), ("10.2.0.1", 2), "A");
    let Ok(Frame::Ip(inner)) = wire::parse(&marked) else { panic!() };
    inner.set_traffic_class(&mut marked, 0b1010_1010);
    let mut sealed = here.run(&marked).frame;
    assert_eq!(sealed[15], 0b1010_1010, "DSCP and ECN");
    assert_eq!(sealed[20] & 0x40, marked[20] & 0x40, "do not fragment");
    let Ok(Frame::Ip(outer)) = wire::parse(&sealed) else { panic!() };
    outer.set_traffic_class(&mut sealed, 0b1010_1011);
    let opened = there.run(&sealed).frame;
    assert_valid(&opened);
    assert_eq!(opened[15], 0b1010_1011, "congestion on the way");
    let largest = packet(V4, &[0; 1_500 - 20 - 16 - 16 - 2 - 28 - 2]);
    assert_eq!(here.run(&largest).verdict, Verdict::Forward);
    let too_large = packet(V4, &[0; 1_500 - 20 - 16 - 16 - 2 - 28 + 1]);
    assert_eq!(here.run(&too_large).verdict, Verdict::Drop(DropReason::TooLarge));
}

/// The MTU that the sender of `packet` is told by an error that smoltcp accepts.
fn told_mtu(bench: &mut Bench, packet: &[u8]) -> usize {
    let out = bench.run(packet);
    assert_eq!(out.verdict, Verdict::Drop(DropReason::TooLarge));
    let [(Direction::Back, error)] = &out.emitted[..] else { panic!("{:?}", out.emitted) };
    assert_valid_error(error);
    assert_eq!((&error[..6], &error[6..12]), (&packet[6..12], &packet[..6]), "to its station");
    let Ok(Frame::Ip(layout)) = wire::parse(error) else { panic!() };
    let Ok(Frame::Ip(sent)) = wire::parse(packet) else { panic!() };
    assert_eq!((layout.source, layout.destination), (sent.destination, sent.source));
    let at = layout.transport;
    let limit = if layout.is_ipv4() { 576 } else { 1_280 };
    assert!(layout.end - layout.network <= limit, "RFC 1812 4.3.2.3, RFC 4443 2.4 c");
    assert_eq!(error[at..at + 2], if layout.is_ipv4() { [3, 4] } else { [2, 0] });
    assert_eq!(packet[sent.network..][..100], error[at + 8..][..100]);
    wire::read_u32(error, at + 4) as usize
}

#[test]
fn rfc_4301_8_2_1_the_sender_of_what_does_not_fit_gets_the_mtu_that_does() {
    for outer_v6 in [false, true] {
        for (inner, header) in [(V4, 28), (V6, 48)] {
            let [mut here, mut there] = ends(outer_v6, KEY);
            let mtu = told_mtu(&mut here, &packet(inner, &[0; 1_472]));
            let fits = packet(inner, &vec![0; mtu - header]);
            let sealed = here.run(&fits);
            assert_eq!(sealed.verdict, Verdict::Forward);
            assert!(sealed.frame.len() - 14 <= 1_500);
            assert_eq!(there.run(&sealed.frame).frame, fits);
            told_mtu(&mut here, &packet(inner, &vec![0; mtu - header + 1]));
        }
    }
}

/// RFC 1122 3.2.2, RFC 4443 2.4 e; RFC 8201 section 4 for the last.
#[test]
fn no_error_is_sent_where_none_may_be() {
    let [mut here, _] = ends(false, KEY);
    let long = packet(V4, &[0; 1_472]);
    let about_error =
        unreachable("10.1.0.1", "10.2.0.1", &packet(("10.2.0.1", "10.1.0.1"), &[0; 540]));
    let mut to_group = long.clone();
    to_group[0] = 1;
    let silent = |bench: &mut Bench, frame: &[u8]| {
        let out = bench.run(frame);
        assert_eq!(out.verdict, Verdict::Drop(DropReason::TooLarge));
        assert!(out.emitted.is_empty());
    };
    silent(&mut here, &to_group);
    let mut narrow = settings(0, false, KEY);
    narrow["mtu"] = json!(1_280);
    here.configure(narrow);
    let six = packet(V6, &[0; 1_280 - 48]);
    silent(&mut here, &six);
    told_mtu(&mut here, &packet(V6, &[0; 1_281 - 48]));
    assert_eq!(here.run(&about_error).verdict, Verdict::Forward, "as long as it may be");
    for _ in 0..49 {
        told_mtu(&mut here, &long);
    }
    silent(&mut here, &long);
}

/// RFC 4301, 8.2.1: what may be fragmented is, before it is encrypted; the other end needs to put nothing together.
#[test]
fn packets_without_df_are_cut_before_they_are_encrypted() {
    let [mut here, mut there] = ends(false, KEY);
    let payload: Vec<u8> = (0..=255).cycle().take(FRAME_BYTES_MAX - 42).collect();
    let mut whole = packet(V4, &payload);
    // An identification, and no "don't fragment".
    replace_bytes(&mut whole, 24, 18, &[0x12, 0x34]);
    replace_bytes(&mut whole, 24, 20, &[0, 0]);
    let out = here.run(&whole);
    assert_eq!(out.verdict, Verdict::Consume);
    let mut payload: Vec<u8> = Vec::new();
    for (index, (direction, sealed)) in out.emitted.iter().enumerate() {
        assert_eq!(*direction, Direction::Onward);
        assert!(sealed.len() - 14 <= 1_500);
        let piece = there.run(sealed).frame;
        assert_valid(&piece);
        let fragment = smoltcp::wire::Ipv4Packet::new_checked(&piece[14..]).unwrap();
        assert_eq!(
            (fragment.ident(), usize::from(fragment.frag_offset())),
            (0x1234, payload.len())
        );
        assert_eq!(fragment.more_frags(), index + 1 < out.emitted.len());
        payload.extend(fragment.payload());
    }
    assert_eq!(payload, whole[34..]);
}

#[test]
fn rfc_4301_8_2_2_errors_from_the_path_lower_the_mtu_and_only_about_what_was_sent() {
    let longest = packet(V4, &[0; 1_390]);
    for (outer_v6, router) in [(false, "203.0.113.1"), (true, "2001:db8:9::1")] {
        let [mut here, _] = ends(outer_v6, KEY);
        let sealed = here.run(&longest).frame;
        let local = if outer_v6 { "2001:db8:f::1" } else { "192.0.2.1" };
        let esp = if outer_v6 { 54 } else { 34 };
        for at in [esp, esp + 4] {
            let mut forged = sealed.clone();
            forged[at] ^= 0x40;
            here.run(&too_big(router, local, &forged, 1_300));
            assert_eq!(
                here.run(&longest).verdict,
                Verdict::Forward,
                "index or number was not sent"
            );
        }
        assert_eq!(here.run(&too_big(router, local, &sealed, 1_300)).verdict, Verdict::Consume);
        let mtu = told_mtu(&mut here, &longest);
        assert!((1_300 - 80..1_300 - 50).contains(&mtu), "{mtu}");
        assert_eq!(here.run(&packet(V4, &vec![0; mtu - 28])).verdict, Verdict::Forward);
        here.wait_secs(600);
        assert_eq!(here.run(&longest).verdict, Verdict::Forward, "a longer one is tried again");
    }
}

#[test]
fn keys_that_cannot_be_safe_are_rejected() {
    let [mut here, _] = ends(false, KEY);
    let mut same = settings(0, false, KEY);
    same["inbound"][0]["key"] = json!(KEY);
    assert_eq!(
        here.rejected(&same),
        "inbound[0].key: the secret is not allowed; allowed: another key than outbound's"
    );
    let mut short = settings(0, false, KEY);
    short["outbound"]["key"] = json!("00");
    assert_eq!(
        here.rejected(&short),
        "outbound.key: the secret is not allowed; allowed: 20 or 36 bytes as hexadecimal digits"
    );
}
