//! Frames of memcached's protocol over UDP.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use snic_nts::wire::{self, Frame, TunnelHeader, Verified, protocol};

/// memcached's header before each message: request id, sequence, datagrams, reserved.
const MESSAGE_HEADER: usize = 8;
/// Preamble, start of frame and the gap behind it, and the checksum.
const ON_THE_WIRE: usize = 8 + 12 + 4;
/// The shortest frame, without its checksum.
const SHORTEST: usize = 60;
const UDP_BYTES: usize = 8;

/// The shortest frame of the transport that carries a message: its own headers, the message's and eight bytes.
const CARRIES_LEAST: usize = 14 + 20 + TRANSPORT_BYTES + MESSAGE_HEADER + 8;

/// Headers of the transport.
pub(super) const TRANSPORT_BYTES: usize = 24;

/// A host at a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Station {
    mac: [u8; 6],
    pub(super) address: Ipv4Addr,
    port: u16,
}

pub(super) const CLIENT: Station =
    Station { mac: [2, 0, 0, 0, 0, 1], address: Ipv4Addr::new(10, 0, 0, 1), port: 40_000 };
pub(super) const STORE: Station =
    Station { mac: [2, 0, 0, 0, 0, 2], address: Ipv4Addr::new(10, 0, 0, 2), port: 11_211 };

/// Stores where there are several.
pub(super) const STORES: [Station; 4] = [numbered(3), numbered(4), numbered(5), numbered(6)];

/// The stores that keep copies of what the store of this address is sent.
pub(super) const REPLICAS: [Station; 2] = [STORES[0], STORES[1]];

const fn numbered(last: u8) -> Station {
    Station { mac: [2, 0, 0, 0, 0, last], address: Ipv4Addr::new(10, 0, 0, last), port: 11_211 }
}

/// Whether a frame of the transport carries no message.
pub(super) const fn is_acknowledgement(frame: &[u8]) -> bool {
    frame.len() < CARRIES_LEAST
}

/// Addresses of a frame: that of its sender and that of its receiver.
///
/// # Errors
/// The frame is none of IPv4.
pub(super) fn addresses(frame: &[u8]) -> Result<(Ipv4Addr, Ipv4Addr)> {
    let at = |from: usize| -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = frame.get(from..from + 4)?.try_into().ok()?;
        Some(bytes.into())
    };
    Ok((at(26).context("too short")?, at(30).context("too short")?))
}

/// A frame with a message that fits one datagram.
pub(super) fn message(from: Station, to: Station, request: u16, text: &[u8]) -> Vec<u8> {
    let payload_bytes = MESSAGE_HEADER + text.len();
    let header = TunnelHeader {
        source: IpAddr::V4(from.address),
        destination: IpAddr::V4(to.address),
        protocol: protocol::UDP,
        traffic_class: 0,
        hop_limit: 64,
        fragmentation: None,
        flow_label: 0,
    };
    let mut frame = wire::ethernet_header_bytes(to.mac, from.mac, header.ether_type()).to_vec();
    let network = frame.len();
    let transport = network + header.bytes();
    frame.resize(transport, 0);
    header.write(UDP_BYTES + payload_bytes, &mut frame[network..]);
    frame.extend(from.port.to_be_bytes());
    frame.extend(to.port.to_be_bytes());
    frame.extend(((UDP_BYTES + payload_bytes) as u16).to_be_bytes());
    frame.extend([0; 2]); // the checksum, below
    frame.extend(request.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0]);
    frame.extend(text);
    if let Ok(Frame::Ip(layout)) = wire::parse(&frame) {
        wire::fill(&mut frame, &layout);
    }
    frame
}

/// The request's number and the text of a frame's message.
///
/// # Errors
/// The frame is none of these, or was damaged.
pub(super) fn read(frame: &[u8]) -> Result<(u16, &[u8])> {
    let layout = match wire::parse(frame) {
        Ok(Frame::Ip(layout)) => layout,
        other => anyhow::bail!("no IP packet: {other:?}"),
    };
    anyhow::ensure!(wire::verify(frame, &layout) == Verified::Right, "a wrong checksum");
    let datagram = frame.get(layout.transport + UDP_BYTES..layout.end).context("too short")?;
    let (header, text) = datagram.split_at_checked(MESSAGE_HEADER).context("too short")?;
    Ok((u16::from_be_bytes([header[0], header[1]]), text))
}

/// Bits that a frame takes of a link.
pub(super) fn bits_on_the_wire(frame: &[u8]) -> f64 {
    ((frame.len().max(SHORTEST) + ON_THE_WIRE) * 8) as f64
}

/// The value of a key after so many writes: it says which, and has a pattern behind.
pub(super) fn value(key: u64, version: u32, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes);
    value.extend(key.to_be_bytes());
    value.extend(version.to_be_bytes());
    let seed = key.wrapping_mul(31).wrapping_add(u64::from(version));
    value.extend((value.len()..bytes).map(|at| seed.wrapping_add(at as u64) as u8));
    value
}

/// The version of a value; `None` if it is none of this key.
pub(super) fn version(key: u64, found: &[u8]) -> Option<u32> {
    let version = u32::from_be_bytes(found.get(8..12)?.try_into().ok()?);
    (value(key, version, found.len()) == found).then_some(version)
}

/// The data of an answer to a `get`, and the key that it names.
pub(super) fn found(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = text.split(|byte| *byte == b'\n').next()?;
    let mut words = line.strip_suffix(b"\r")?.split(|byte| *byte == b' ');
    let (b"VALUE", key) = (words.next()?, words.next()?) else { return None };
    let bytes: usize = std::str::from_utf8(words.nth(1)?).ok()?.parse().ok()?;
    let data = text.get(line.len() + 1..)?;
    (data.get(bytes..)? == b"\r\nEND\r\n").then(|| (key, &data[..bytes]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_seen() {
        let text = [b"VALUE user1 0 20\r\n", &value(1, 7, 20)[..], b"\r\nEND\r\n"].concat();
        let frame = message(STORE, CLIENT, 513, &text);
        let (request, read_back) = read(&frame).expect("it is whole");
        assert_eq!((request, read_back), (513, &text[..]));
        let (key, data) = found(read_back).expect("a value");
        assert_eq!((key, version(1, data), version(2, data)), (&b"user1"[..], Some(7), None));
        for at in 0..frame.len() {
            let mut damaged = frame.clone();
            damaged[at] ^= 1;
            // An Ethernet header has no checksum of its own here.
            assert_eq!(read(&damaged).is_ok(), at < 12, "{at}");
        }
        // 64 bytes, preamble and gap.
        assert!((bits_on_the_wire(&[0; 42]) - 672.0).abs() < 1e-9);
    }
}
