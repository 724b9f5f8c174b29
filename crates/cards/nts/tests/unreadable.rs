//! Frames that NTs cannot read: packets behind more tags than are read, in LLC, MPLS or PPPoE, cut or under another
//! EtherType. A receiver may read them nevertheless (Linux takes off any number of tags with VLAN 0), so none passes an
//! NT that has to see what it lets through.
//!
//! Frames that are readable are told here by hand, byte by byte, not by the parser of the NTs.

use etherparse::PacketBuilder;
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;
use snic_nts::{Context, DropReason, Emitted, NtInstance, Pool, Verdict, create, schema};

use crate::support::{configuration, frames};

/// NTs that let through only what they have read.
const READERS: [&str; 8] = [
    "checksum",
    "esp",
    "firewall",
    "go-back-n",
    "kv-cache",
    "kv-replication",
    "load-balancer",
    "nat",
];
const INSIDE: [u8; 4] = [10, 0, 0, 1];
const INSIDE_6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const SECRET: &[u8] = b"known to two hosts only";

/// An NT with the settings of the tests.
struct Bench {
    nt: NtInstance,
    pool: Pool,
    emitted: Emitted,
}

impl Bench {
    fn new(nt_type: &str) -> Self {
        let mut settings = configuration(nt_type);
        // Accepts all that it can read.
        if nt_type == "firewall" {
            settings["default"] = "accept".into();
        }
        let version = schema(nt_type).expect("listed").version;
        let mut nt = create(nt_type, 1).expect("listed");
        nt.configure(Timestamp::ZERO, version, settings.to_string().as_bytes()).expect("valid");
        let pool = Pool::new(64, 2_048);
        Self { nt, emitted: Emitted::new(pool.clone()), pool }
    }

    /// The verdict, and all frames that leave because of this one.
    fn run(&mut self, frame: &[u8]) -> (Verdict, Vec<Vec<u8>>) {
        let mut packet = self.pool.copy_of(frame).expect("all buffers came back");
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let now = Timestamp::from_nanos(1);
        let mut context = Context { now, random: &mut random, emitted: &mut self.emitted };
        let verdict = self.nt.process(&mut packet, &mut context);
        let mut left: Vec<_> =
            self.emitted.drain().map(|(_, packet)| packet.bytes().to_vec()).collect();
        if matches!(verdict, Verdict::Forward | Verdict::Reply) {
            left.push(packet.bytes().to_vec());
        }
        (verdict, left)
    }
}

/// Whether a frame is ARP for IPv4 or begins an IP packet, behind at most two tags.
fn is_readable(frame: &[u8]) -> bool {
    let mut rest = frame.get(12..).unwrap_or_default();
    for _ in 0..2 {
        if let [0x81, 0, _, _, behind @ ..] | [0x88, 0xA8, _, _, behind @ ..] = rest {
            rest = behind;
        }
    }
    match rest {
        [8, 6, head @ ..] => matches!(head, [0, 1, 8, 0, 6, 4, 0, 1 | 2, ..]),
        [8, 0, first, ..] => first >> 4 == 4,
        [0x86, 0xDD, first, ..] => first >> 4 == 6,
        _ => false,
    }
}

/// The frame with these bytes between its stations and its EtherType.
fn behind(frame: &[u8], bytes: &[u8]) -> Vec<u8> {
    [&frame[..12], bytes, &frame[12..]].concat()
}

/// The frame's packet with these bytes in place of its EtherType.
fn announced(frame: &[u8], bytes: &[u8]) -> Vec<u8> {
    [&frame[..12], bytes, &frame[14..]].concat()
}

/// Ways to hide an IP packet from who does not read them.
fn hidden(frame: &[u8]) -> Vec<(String, Vec<u8>)> {
    const TAGS: [[u8; 2]; 2] = [[0x81, 0], [0x88, 0xA8]];
    let mut all = Vec::new();
    for (a, b, c) in (0..8).map(|bits| (bits & 1, bits >> 1 & 1, bits >> 2)) {
        let tags: Vec<u8> =
            [TAGS[a], TAGS[b], TAGS[c]].iter().flat_map(|tag| [tag[0], tag[1], 0, 0]).collect();
        all.push((format!("three tags with VLAN 0: {tags:02x?}"), behind(frame, &tags)));
    }
    for old in [[0x91, 0], [0x92, 0], [0x93, 0]] {
        all.push((format!("an old tag {old:02x?}"), behind(frame, &[old[0], old[1], 0, 0])));
        let second = [0x81, 0, 0, 0, old[0], old[1], 0, 0];
        all.push((format!("an old tag {old:02x?} behind another"), behind(frame, &second)));
    }
    let length = u16::try_from(frame.len() - 14 + 8).expect("short").to_be_bytes();
    let snap = [length[0], length[1], 0xAA, 0xAA, 3, 0, 0, 0];
    all.push(("LLC and SNAP".to_owned(), behind(frame, &snap)));
    all.push(("LLC of IP".to_owned(), announced(frame, &[length[0], length[1], 6, 6, 3])));
    all.push(("a length of 0".to_owned(), announced(frame, &[0, 0])));
    for mpls in [0x47, 0x48] {
        all.push(("MPLS".to_owned(), announced(frame, &[0x88, mpls, 0, 1, 1, 64])));
    }
    let ppp: [u8; 2] = if frame[12] == 8 { [0, 0x21] } else { [0, 0x57] };
    let session = [0x88, 0x64, 0x11, 0, 0, 1, length[0], length[1].wrapping_sub(6), ppp[0], ppp[1]];
    all.push(("PPPoE".to_owned(), announced(frame, &session)));
    for other in [[0x65, 0x58], [0x88, 0xE5], [0x88, 0xE7], [0x89, 0x4F], [0x88, 0xB5], [6, 0]] {
        all.push((format!("EtherType {other:02x?}"), announced(frame, &other)));
    }
    let other_version: [u8; 2] = if frame[12] == 8 { [0x86, 0xDD] } else { [8, 0] };
    all.push(("the other version's EtherType".to_owned(), announced(frame, &other_version)));
    all.push(("ARP's EtherType".to_owned(), announced(frame, &[8, 6])));
    all
}

/// Packets from a host inside, between the prefixes of the tunnel, with a secret in each.
fn from_inside() -> Vec<Vec<u8>> {
    let link = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let four = || link().ipv4(INSIDE, [192, 0, 2, 1], 64);
    let mut far = INSIDE_6;
    far[5] = 2;
    let six = || link().ipv6(INSIDE_6, far, 64);
    let mut all = vec![Vec::new(); 6];
    four().udp(40_000, 53).write(&mut all[0], SECRET).expect("fits");
    four().tcp(40_000, 22, 1, 1).syn().write(&mut all[1], SECRET).expect("fits");
    four().icmpv4_echo_request(1, 1).write(&mut all[2], SECRET).expect("fits");
    six().udp(40_000, 53).write(&mut all[3], SECRET).expect("fits");
    six().tcp(40_000, 22, 1, 1).syn().write(&mut all[4], SECRET).expect("fits");
    six().icmpv6_echo_request(1, 1).write(&mut all[5], SECRET).expect("fits");
    all
}

fn has(frame: &[u8], part: &[u8]) -> bool {
    frame.windows(part.len()).any(|window| window == part)
}

/// Whether a frame shows what its NT is there to hide.
fn shows(nt_type: &str, frame: &[u8]) -> bool {
    match nt_type {
        "esp" => has(frame, SECRET),
        _ => has(frame, &INSIDE) || has(frame, &INSIDE_6),
    }
}

#[test]
fn hidden_packets_pass_no_nt_and_are_counted() {
    for nt_type in READERS {
        let mut bench = Bench::new(nt_type);
        let mut hiding = 0;
        for frame in frames().into_iter().filter(|frame| !frame[12..].starts_with(&[8, 6])) {
            for (how, hidden) in hidden(&frame) {
                // A frame of the tests has a tag already: one more is still read.
                if is_readable(&hidden) {
                    continue;
                }
                hiding += 1;
                let (verdict, left) = bench.run(&hidden);
                assert!(matches!(verdict, Verdict::Drop(_)), "{nt_type}, {how}: {verdict:?}");
                assert!(left.is_empty(), "{nt_type}, {how}");
            }
        }
        let counters = bench.nt.counters();
        assert_eq!(counters.dropped_total(), hiding, "{nt_type}");
        assert!(counters.dropped(DropReason::Unreadable) > hiding / 2, "{nt_type}");
    }
}

#[test]
fn one_and_two_tags_are_read() {
    for nt_type in ["nat", "esp"] {
        for frame in from_inside() {
            for tags in [&[][..], &[0x81, 0, 0, 0], &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 0]] {
                let (verdict, left) = Bench::new(nt_type).run(&behind(&frame, tags));
                assert_eq!(verdict, Verdict::Forward, "{nt_type} {tags:02x?}");
                assert!(left.iter().all(|left| !shows(nt_type, left)), "{nt_type} {tags:02x?}");
            }
        }
    }
}

#[test]
fn no_part_of_a_packet_shows_what_is_hidden() {
    for nt_type in ["nat", "esp"] {
        let mut bench = Bench::new(nt_type);
        for frame in from_inside() {
            for cut in 0..frame.len() {
                let (_, left) = bench.run(&frame[..cut]);
                assert!(left.iter().all(|left| !shows(nt_type, left)), "{nt_type} cut at {cut}");
            }
        }
    }
}

/// Bytes that stand where an EtherType is, often those of tags and of IP.
fn ether_type() -> impl Strategy<Value = [u8; 2]> {
    prop_oneof![
        3 => Just([0x81, 0]),
        3 => Just([0x88, 0xA8]),
        1 => Just([0x91, 0]),
        1 => Just([8, 0]),
        1 => Just([0x86, 0xDD]),
        1 => Just([8, 6]),
        1 => any::<[u8; 2]>(),
    ]
}

proptest! {
    /// Whatever stands between stations and packet, what leaves was readable and hides what it has to.
    #[test]
    fn what_leaves_was_read(
        nt in 0..READERS.len(),
        which: prop::sample::Index,
        heads in prop::collection::vec((ether_type(), any::<[u8; 2]>()), 0..6),
        replaces: bool,
        first in prop::option::weighted(0.2, any::<u8>()),
    ) {
        let nt_type = READERS[nt];
        let inside = from_inside();
        let frame = which.get(&inside);
        let heads: Vec<u8> =
            heads.iter().flat_map(|(kind, rest)| [kind[0], kind[1], rest[0], rest[1]]).collect();
        let mut made = if replaces { announced(frame, &heads) } else { behind(frame, &heads) };
        if let (Some(first), Some(byte)) = (first, made.get_mut(14)) {
            *byte = first;
        }
        let (verdict, left) = Bench::new(nt_type).run(&made);
        if !is_readable(&made) {
            prop_assert!(matches!(verdict, Verdict::Drop(_)), "{} {:02x?}", nt_type, made);
            prop_assert!(left.is_empty());
        }
        if ["nat", "esp"].contains(&nt_type) {
            prop_assert!(left.iter().all(|left| !shows(nt_type, left)), "{} {:02x?}", nt_type, made);
        }
    }

    /// The same for any bytes.
    #[test]
    fn any_bytes_that_leave_were_read(nt in 0..READERS.len(), bytes in prop::collection::vec(any::<u8>(), 0..80), kind in ether_type()) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(12..14) {
            place.copy_from_slice(&kind);
        }
        let (verdict, _) = Bench::new(READERS[nt]).run(&bytes);
        prop_assert!(is_readable(&bytes) || matches!(verdict, Verdict::Drop(_)), "{:02x?}", bytes);
    }
}
