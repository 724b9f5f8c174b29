use proptest::prelude::*;

use super::*;
use crate::Verdict;
use crate::tasks::support::{
    assert_valid, cut, echo, fragments, slow_sum, tcp, time_exceeded, too_big, udp, udp_between,
};

fn layout(frame: &[u8]) -> Layout {
    match parse(frame) {
        Ok(Frame::Ip(layout)) => layout,
        other => panic!("{other:?}"),
    }
}

#[test]
fn headers_are_found_behind_tags_and_before_padding() {
    let plain = udp("10.0.0.1", "10.0.0.2", b"hello");
    let mut frame = plain[..12].to_vec();
    frame.extend([0x88, 0xA8, 0, 5, 0x81, 0, 0, 6]);
    frame.extend(&plain[12..]);
    frame.extend([0xEE; 20]);
    let layout = layout(&frame);
    assert_eq!((layout.network, layout.transport, layout.end), (22, 42, 55));
    assert_eq!((layout.protocol, layout.fragment), (protocol::UDP, Fragment::No));
    let flow = Flow::of(&frame, &layout);
    assert_eq!((flow.source_port, flow.destination_port), (1_000, 2_000));
    assert_eq!(flow.reversed().reversed(), flow);
    assert_eq!(verify(&frame, &layout), Verified::Right);
}

#[test]
fn incomplete_frames_are_reported_as_such() {
    let frame = tcp(("10.0.0.1", 1), ("10.0.0.2", 2), "S");
    for cut in 0..frame.len() {
        assert_eq!(parse(&frame[..cut]), Err(DropReason::Truncated), "{cut}");
    }
    let mut wrong = frame.clone();
    wrong[24] ^= 1;
    assert_eq!(parse(&wrong), Err(DropReason::BadChecksum));
    let mut version = frame.clone();
    version[14] = 0x65;
    assert!(parse(&version).is_err());
    let mut offset = frame;
    offset[46] = 0x10;
    assert_eq!(parse(&offset), Err(DropReason::Malformed));
}

#[test]
fn later_fragments_have_no_ports() {
    let whole = udp_between(("10.0.0.1", 5), ("192.0.2.1", 6), &[7; 100]);
    let [first, later] = fragments(&whole, 99, 48);
    assert_eq!(layout(&first).fragment, Fragment::First { id: 99 });
    assert_eq!(layout(&later).fragment, Fragment::Later { id: 99 });
    assert_eq!(Flow::of(&later, &layout(&later)).source_port, 0);
    assert_eq!(verify(&first, &layout(&first)), Verified::Absent);
}

#[test]
fn a_jumbogram_has_no_payload() {
    let mut frame = udp("2001:db8::1", "2001:db8::2", b"hello");
    frame[18..20].fill(0);
    assert!(parse(&frame).is_err());
}

fn any_address(is_v4: bool) -> impl Strategy<Value = IpAddr> {
    any::<u128>().prop_map(move |bits| match is_v4 {
        true => IpAddr::V4((bits as u32).into()),
        false => IpAddr::V6(bits.into()),
    })
}

/// A packet of any kind that has ports, with its IP version.
fn any_packet() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let payload = prop::collection::vec(any::<u8>(), 0..50);
    (any::<bool>(), 0..4_u8, payload, any::<[u16; 2]>()).prop_map(
        |(is_v4, kind, payload, ports)| {
            let (from, to) =
                if is_v4 { ("10.0.0.1", "192.0.2.1") } else { ("2001:db8::1", "2001:db8::2") };
            let frame = match kind {
                0 => udp_between((from, ports[0]), (to, ports[1]), &payload),
                1 => tcp((from, ports[0]), (to, ports[1]), "SA"),
                2 => echo(from, to, ports[0], true),
                _ => echo(from, to, ports[0], false),
            };
            (frame, is_v4)
        },
    )
}

proptest! {
    /// Updated sums are those of smoltcp, which sums everything again.
    #[test]
    fn rewritten_packets_are_valid(
        (mut frame, is_v4) in any_packet(),
        (four, six) in (any_address(true), any_address(false)),
        port: u16,
        is_source: bool,
    ) {
        assert_valid(&frame);
        let before = layout(&frame);
        let mut after = before;
        let address = if is_v4 { four } else { six };
        let side = if is_source { Side::Source } else { Side::Destination };
        rewrite(&mut frame, &mut after, side, Endpoint { address, port });
        assert_valid(&frame);
        prop_assert_eq!(layout(&frame), after);
        let flow = Flow::of(&frame, &after);
        let end = if is_source { (flow.source, flow.source_port) } else { (flow.destination, flow.destination_port) };
        prop_assert_eq!(end, (address, port));
    }

    /// A wrong checksum stays wrong (RFC 1624 adds the difference only).
    #[test]
    fn damage_stays_visible((mut frame, is_v4) in any_packet(), four in any_address(true), six in any_address(false), flip in 1..=0xFFFE_u16) {
        let mut layout = layout(&frame);
        let at = layout.transport + match layout.protocol { protocol::TCP => 16, protocol::UDP => 6, _ => 2 };
        let wrong = read_u16(&frame, at) ^ flip;
        prop_assume!(wrong != 0);
        // 0 and 0xFFFF are the same number in ones' complement.
        prop_assume!((wrong == 0xFFFF) <= (read_u16(&frame, at) != 0));
        frame[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
        prop_assume!(verify(&frame, &layout) == Verified::Wrong);
        let address = if is_v4 { four } else { six };
        rewrite(&mut frame, &mut layout, Side::Destination, Endpoint { address, port: 7 });
        prop_assert_eq!(verify(&frame, &layout), Verified::Wrong);
    }

    #[test]
    fn filled_sums_are_valid((mut frame, _) in any_packet(), garbage: u16) {
        let layout = layout(&frame);
        let good = frame.clone();
        let at = layout.transport + match layout.protocol { protocol::TCP => 16, protocol::UDP => 6, _ => 2 };
        frame[at..at + 2].copy_from_slice(&garbage.to_be_bytes());
        fill(&mut frame, &layout);
        prop_assert_eq!(&frame, &good);
        prop_assert_eq!(verify(&frame, &layout), Verified::Right);
    }

    /// RFC 1624's equation against a sum over all bytes, as RFC 1071 has it.
    #[test]
    fn a_replaced_word_gives_the_sum_over_all(mut bytes in prop::collection::vec(any::<u8>(), 32), new: [u8; 4], at in 1..14_usize) {
        bytes[..2].fill(0);
        let sum = !slow_sum(&bytes);
        bytes[..2].copy_from_slice(&sum.to_be_bytes());
        replace_bytes(&mut bytes, 0, 2 * at, &new);
        // Both zeros of ones' complement are right.
        prop_assert!(matches!(slow_sum(&bytes), 0xFFFF | 0));
    }
}

#[test]
fn a_quoted_packet_is_found_and_changed() {
    let sent = tcp(("10.0.0.1", 5), ("192.0.2.1", 6), "S");
    let mut error = time_exceeded("203.0.113.1", "10.0.0.1", &sent);
    let mut outer = layout(&error);
    let (mut quoted, flow) = quoted_flow(&error, &outer).unwrap();
    assert_eq!((flow.source_port, flow.destination_port), (5, 6));
    let to = Endpoint { address: "198.51.100.7".parse().unwrap(), port: 77 };
    rewrite_quoted(&mut error, &mut quoted, Side::Source, to);
    assert_eq!(quoted_flow(&error, &outer), None, "it goes to another than the sender (RFC 1122)");
    rewrite(&mut error, &mut outer, Side::Destination, Endpoint { port: 0, ..to });
    fill(&mut error, &outer);
    assert_valid(&error);
    let (_, changed) = quoted_flow(&error, &outer).unwrap();
    assert_eq!((changed.source, changed.source_port), (to.address, 77));
    assert!(quoted_flow(&sent, &layout(&sent)).is_none());
}

/// RFC 5508, REQ-3 a and b: options are passed over, and a wrong checksum of the quoted header ends it.
#[test]
fn rfc_5508_req_3_quoted_packets_are_read_behind_options_and_with_right_checksums() {
    let sent = tcp(("10.0.0.1", 5), ("192.0.2.1", 6), "S");
    let mut optional = [&sent[..34], &[1, 1, 1, 0], &sent[34..]].concat();
    optional[14] = 0x46;
    let length = ((optional.len() - 14) as u16).to_be_bytes();
    optional[16..18].copy_from_slice(&length);
    optional[24..26].fill(0);
    let sum = !slow_sum(&optional[14..38]);
    optional[24..26].copy_from_slice(&sum.to_be_bytes());
    let flow_of = |frame: &[u8]| {
        // As much as RFC 792 asks for: the header with its options, and 8 bytes.
        let error = too_big("203.0.113.1", "10.0.0.1", &frame[..14 + 24 + 8], 1_400);
        quoted_flow(&error, &layout(&error))
            .map(|(_, flow)| (flow.source_port, flow.destination_port))
    };
    assert_eq!(flow_of(&optional), Some((5, 6)));
    optional[22] ^= 1;
    assert_eq!(flow_of(&optional), None);
}

/// Routers put as much of a packet as fits into an ICMPv6 error: the chain of headers is followed there as well.
#[test]
fn quoted_packets_are_read_behind_extension_headers() {
    let sent = cut(&udp("2001:db8::1", "2001:db8::2", &[7; 200]), 9, 128);
    for most in [40 + 8 + 8, 40 + 8 + 50] {
        let quoted = &sent[0][..14 + most];
        let error = too_big("2001:db8:9::1", "2001:db8::1", quoted, 1_300);
        let (_, flow) = quoted_flow(&error, &layout(&error)).unwrap();
        assert_eq!((flow.source_port, flow.destination_port), (1_000, 2_000));
    }
    let later = too_big("2001:db8:9::1", "2001:db8::1", &sent[1], 1_300);
    assert_eq!(quoted_flow(&later, &layout(&later)), None, "it has no ports");
}

#[test]
fn an_answer_has_valid_sums() {
    for (from, to) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
        let mut frame = udp(from, to, b"a question");
        let mut at = layout(&frame);
        turn_around(&mut frame, &at);
        assert_valid(&frame);
        frame.truncate(at.transport + 8 + 3);
        finish_udp(&mut frame, &mut at, 3);
        assert_valid(&frame);
        let flow = Flow::of(&frame, &layout(&frame));
        assert_eq!((flow.source, flow.source_port), (to.parse().unwrap(), 2_000));
    }
}

/// A message of neighbour discovery with the smallest length that its type may have.
fn neighbour_discovery(kind: u8, hop_limit: u8, code: u8) -> Vec<u8> {
    let body = [0; 32];
    let mut frame = Vec::new();
    let step = etherparse::PacketBuilder::ethernet2([2; 6], [0x33, 0x33, 0, 0, 0, 1]);
    let step = step.ipv6([0xFE; 16], [0xFF; 16], hop_limit);
    step.icmpv6_raw(kind, code, [0; 4]).write(&mut frame, &body).unwrap();
    frame
}

/// RFC 4861, sections 6.1 and 7.1: the hop limit is 255, the code 0; RFC 6980: no fragments.
#[test]
fn neighbour_discovery_comes_from_the_link_only() {
    let message = |frame: &[u8]| IcmpMessage::of(frame, &layout(frame)).unwrap();
    for kind in [133, 134, 135, 136, 141, 142, 148, 149] {
        let own = neighbour_discovery(kind, 255, 0);
        assert_eq!(message(&own), IcmpMessage::OfLink);
        for hop_limit in [0, 1, 64, 254] {
            let forwarded = neighbour_discovery(kind, hop_limit, 0);
            assert_eq!(message(&forwarded), IcmpMessage::Other, "{kind} {hop_limit}");
        }
        assert_eq!(message(&neighbour_discovery(kind, 255, 1)), IcmpMessage::Other);
        let fragment = Layout { fragment: Fragment::First { id: 1 }, ..layout(&own) };
        assert_eq!(IcmpMessage::of(&own, &fragment), Some(IcmpMessage::Other));
        let mut strict =
            crate::tasks::support::Bench::new("firewall", serde_json::json!({"rules": []}));
        assert_eq!(strict.run(&own).verdict, Verdict::Forward);
        let verdict = strict.run(&neighbour_discovery(kind, 254, 0)).verdict;
        assert_eq!(verdict, Verdict::Drop(DropReason::Rule));
    }
}

/// RFC 4890, sections 4.2 and 4.4.1: a firewall that is a bridge lets pass what listeners say. RFC 3810, section 5: the hop
/// limit is 1, and the source an address of the link.
#[test]
fn what_listeners_of_groups_say_passes_within_the_link_only() {
    let strict = || crate::tasks::support::Bench::new("firewall", serde_json::json!({"rules": []}));
    let said = |kind, source: &str, hop_limit| {
        let mut frame = Vec::new();
        let step = etherparse::PacketBuilder::ethernet2([2; 6], [0x33, 0x33, 0, 0, 0, 0x16]);
        let source: std::net::Ipv6Addr = source.parse().unwrap();
        let step = step.ipv6(source.octets(), [0xFF; 16], hop_limit);
        step.icmpv6_raw(kind, 0, [0; 4]).write(&mut frame, &[0; 24]).unwrap();
        frame
    };
    for kind in [130, 131, 132, 143, 151, 152, 153] {
        for source in ["fe80::1", "::"] {
            assert_eq!(strict().run(&said(kind, source, 1)).verdict, Verdict::Forward, "{kind}");
        }
        for from_afar in [said(kind, "fe80::1", 64), said(kind, "2001:db8::1", 1)] {
            let verdict = strict().run(&from_afar).verdict;
            assert_eq!(verdict, Verdict::Drop(DropReason::Rule), "{kind}");
        }
    }
    // Redirects and what has no use beyond its sender are left to the rules (RFC 4890, sections 4.4.4 and 4.4.5).
    for kind in [137, 138, 139, 140, 100, 200] {
        let verdict = strict().run(&said(kind, "fe80::1", 255)).verdict;
        assert_eq!(verdict, Verdict::Drop(DropReason::Rule), "{kind}");
    }
}

/// RFC 7126, sections 4.3 and 4.4; Linux drops them too, where nobody has turned `accept_source_route` on.
#[test]
fn rfc_7126_source_routes_are_dropped_and_other_options_pass() {
    let with_options = |options: [u8; 8]| {
        let mut frame = udp("10.0.0.1", "10.0.0.2", b"payload");
        let options = options.into_iter().enumerate();
        options.for_each(|(at, byte)| frame.insert(34 + at, byte));
        frame[14] = 0x47;
        let length = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[24..26].fill(0);
        let sum = !slow_sum(&frame[14..42]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    for (options, expected) in [
        ([131, 7, 4, 192, 0, 2, 9, 0], Some(DropReason::SourceRoute)),
        ([137, 7, 4, 192, 0, 2, 9, 0], Some(DropReason::SourceRoute)),
        ([1, 131, 7, 4, 192, 0, 2, 9], Some(DropReason::SourceRoute)),
        ([148, 4, 0, 0, 1, 131, 3, 4], Some(DropReason::SourceRoute)),
        ([148, 4, 0, 0, 0, 131, 3, 4], None),
        ([7, 7, 4, 0, 0, 0, 0, 0], None),
        ([7, 9, 4, 0, 0, 0, 0, 0], Some(DropReason::Malformed)),
        ([1, 1, 1, 1, 1, 1, 1, 68], Some(DropReason::Malformed)),
        ([7, 1, 0, 0, 0, 0, 0, 0], Some(DropReason::Malformed)),
    ] {
        assert_eq!(parse(&with_options(options)).err(), expected, "{options:?}");
    }
}
