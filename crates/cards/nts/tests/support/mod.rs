//! Settings of every NT that make it do something with the frames here, and those frames.

use etherparse::PacketBuilder;
use serde_json::{Value, json};

/// Settings of an NT type.
pub fn configuration(nt_type: &str) -> Value {
    let key = |digit: &str| digit.repeat(40);
    match nt_type {
        "checksum" => json!({"mode": "verify"}),
        "esp" => json!({
            "local": "192.0.2.1", "remote": "192.0.2.2",
            "local_prefixes": ["10.0.0.0/8", "192.0.2.2/32", "2001:db8:1::/48"],
            "remote_prefixes": ["192.0.2.0/24", "2001:db8:2::/48"],
            "outbound": {"spi": 256, "key": key("1")}, "inbound": [{"spi": 256, "key": key("2")}],
        }),
        "firewall" => json!({"flows_max": 64, "rules": [
            {"action": "accept", "source": "10.0.0.0/8"},
            {"action": "accept", "source": "2001:db8:1::/48"},
            {"action": "accept", "protocol": "udp", "destination_ports": "4789"},
        ]}),
        "go-back-n" => json!({"local": "10.0.0.1", "peer": "192.0.2.1", "window": 8}),
        "kv-cache" => json!({"server": "192.0.2.1", "items_max": 16, "settling_ms": 1}),
        "kv-replication" => json!({"service": "192.0.2.1", "replicas": [
            {"address": "192.0.2.11"}, {"address": "192.0.2.12"}, {"address": "192.0.2.13"},
        ]}),
        "load-balancer" => json!({"table": "251", "flows_max": 64, "services": [
            {"address": "192.0.2.1", "protocol": "udp", "port": 11_211, "backends": [
                {"address": "10.0.0.1", "port": 1}, {"address": "10.0.0.2", "port": 2}]},
            {"address": "192.0.2.1", "protocol": "tcp", "port": 80,
             "backends": [{"address": "10.0.0.1", "port": 40_000}]},
        ]}),
        "nat" => json!({
            "inside": ["10.0.0.0/8", "2001:db8:1::/48"], "external": ["192.0.2.200", "2001:db8:f::1"],
            "sessions_max": 64, "ports": "2000-2100",
        }),
        "policer" => json!({"rate_bps": 10_000, "burst_bytes": 2_000, "over_rate": "mark"}),
        "vxlan" => json!({"vni": 1, "local": "192.0.2.1", "remote": "10.0.0.1",
            "local_mac": "02:00:00:00:00:0a", "remote_mac": "02:00:00:00:00:0b"}),
        other => panic!("no settings for {other}"),
    }
}

const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
const HOST: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];
const NAT: [u8; 4] = [192, 0, 2, 200];

/// Frames of every kind that an NT looks into.
pub fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut add = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        write(&mut frame);
        frames.push(frame);
    };
    for (from, to) in [(HOST, SERVER), (SERVER, HOST), (SERVER, NAT), (HOST, NAT)] {
        for text in [
            &b"\0\x01\0\0\0\x01\0\0get key\r\n"[..],
            b"\0\x01\0\0\0\x01\0\0set key 0 0 5\r\nhello\r\n",
            b"\0\x01\0\0\0\x01\0\0VALUE key 0 5\r\nhello\r\nEND\r\n",
            b"\0\x02\0\0\0\x01\0\0STORED\r\n",
        ] {
            add(&|out| {
                link().ipv4(from, to, 64).udp(40_000, 11_211).write(out, text).expect("fits")
            });
            add(&|out| {
                link().ipv4(from, to, 64).udp(11_211, 40_000).write(out, text).expect("fits")
            });
        }
        add(&|out| {
            link().ipv4(from, to, 64).tcp(40_000, 80, 1, 1).syn().write(out, b"").expect("fits");
        });
        add(&|out| {
            link()
                .ipv4(from, to, 64)
                .tcp(80, 40_000, 1, 1)
                .ack(1)
                .write(out, b"data")
                .expect("fits");
        });
        add(&|out| {
            link().ipv4(from, to, 64).icmpv4_echo_request(1, 1).write(out, b"ping").expect("fits");
        });
        let inner = frames_quoted(to, from);
        add(&|out| {
            let unreachable = etherparse::Icmpv4Type::TimeExceeded(
                etherparse::icmpv4::TimeExceededCode::TtlExceededInTransit,
            );
            link().ipv4(from, to, 64).icmpv4(unreachable).write(out, &inner).expect("fits");
        });
        let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &MACS.0, &MACS.1, &[8, 0], &inner].concat();
        add(&|out| link().ipv4(from, to, 64).udp(50_000, 4_789).write(out, &vxlan).expect("fits"));
        add(&|out| {
            let tagged = link().single_vlan(5.try_into().expect("12 bits"));
            tagged.ipv4(from, to, 64).udp(1, 2).write(out, b"tagged").expect("fits");
        });
    }
    frames.extend(ipv6_frames());
    frames.extend(fragments());
    let head = [&MACS.0[..], &MACS.1, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &MACS.1].concat();
    frames.push([&head[..], &HOST, &[0; 6], &SERVER, &[0; 18]].concat());
    frames
}

fn link() -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2(MACS.0, MACS.1)
}

fn ipv6_frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut add = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        write(&mut frame);
        frames.push(frame);
    };
    let six = |last: u16, net: u16| {
        let words = [0x2001, 0xDB8, net, 0, 0, 0, 0, last];
        std::net::Ipv6Addr::from(words).octets()
    };
    for (from, to) in [(six(1, 1), six(1, 2)), (six(1, 2), six(1, 1)), (six(1, 2), six(1, 0xF))] {
        add(&|out| link().ipv6(from, to, 64).udp(5, 6).write(out, b"payload").expect("fits"));
        add(&|out| link().ipv6(from, to, 64).tcp(5, 6, 1, 1).syn().write(out, b"").expect("fits"));
        add(&|out| {
            link().ipv6(from, to, 64).icmpv6_echo_request(1, 1).write(out, b"").expect("fits");
        });
    }
    frames
}

fn fragments() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    // Fragments: the first and a later one of the same packet.
    for (more, offset) in [(0x20, 0), (0, 6)] {
        let mut frame = Vec::new();
        link()
            .ipv4(HOST, SERVER, 64)
            .udp(40_000, 11_211)
            .write(&mut frame, &[7; 40])
            .expect("fits");
        (frame[20], frame[21]) = (more, offset);
        frame[24..26].fill(0);
        let sum = frame[14..34].chunks(2).fold(0_u32, |sum, word| {
            let sum = sum + u32::from(u16::from_be_bytes([word[0], word[1]]));
            (sum & 0xFFFF) + (sum >> 16)
        });
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        frames.push(frame);
    }
    // The same in IPv6, with options behind the fragment header of the first.
    for (field, next) in [(1, 60), (48, 60)] {
        let mut frame = Vec::new();
        let six =
            |last: u16| std::net::Ipv6Addr::from([0x2001, 0xDB8, 1, 0, 0, 0, 0, last]).octets();
        link().ipv6(six(1), six(2), 64).udp(5, 6).write(&mut frame, &[7; 32]).expect("fits");
        let headers =
            [&[next, 0][..], &u16::to_be_bytes(field), &[0, 0, 0, 9], &[17, 0, 1, 4, 0, 0, 0, 0]];
        frame.splice(54..54, headers.concat());
        frame[20] = 44;
        frame[19] += 16;
        frames.push(frame);
    }
    frames
}

/// An IP packet as an ICMP error quotes it.
fn frames_quoted(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(from, to, 1).udp(40_000, 11_211).write(&mut packet, b"").expect("fits");
    packet
}
