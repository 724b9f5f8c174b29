//! The wire format of the go-back-N transport.
//!
//! A UDP header and the transport's own are put behind the IP header of a host's packet. Addresses, hops and
//! traffic class stay those of the host's packet, so routers treat it as before.
//!
//! ```text
//!   0        1        2                 4 bytes
//!  ┌─────────────────┬─────────────────┐
//!  │ source port     │ destination port│ UDP: both are the configured port, so that routers that
//!  ├─────────────────┼─────────────────┤ spread flows keep the packets in order
//!  │ length          │ checksum        │ over all that follows; never 0, over IPv4 neither
//!  ├────────┬────────┼─────────────────┤
//!  │ 1, kind│ carried│ fragment        │ version and kind of 4 bits each; protocol of what is carried
//!  ├────────┴────────┴─────────────────┤
//!  │ stream                            │ chosen at random by the sending end
//!  ├───────────────────────────────────┤
//!  │ token                             │ chosen by the receiving end
//!  ├───────────────────────────────────┤
//!  │ number                            │
//!  ├───────────────────────────────────┤
//!  │ what the IP header carried before │ DATA only
//!  └───────────────────────────────────┘
//! ```
//!
//! | kind | from | what it says | number |
//! |---|---|---|---|
//! | 1 OPEN | sending end | it has packets for this stream; token is 0 | 0 |
//! | 2 ACCEPT | receiving end | its token for the stream | 0 |
//! | 3 DATA | sending end | a packet | its own; that of a stream's first packet is the stream itself |
//! | 4 ACK | receiving end | all packets before the number have arrived | the one expected next |
//! | 5 NACK | receiving end | the same, and a later one has arrived: send all again from the number on | the one expected next |
//! | 6 RESET | receiving end | stream and token are unknown here: open another stream | 0 |
//!
//! Numbers have 32 bits and begin again at 0. `fragment` has the flags and the fragment offset of a host's IPv4
//! packet, whose own field says "do not fragment" on the way; it is 0 for IPv6, whose extension headers are
//! carried. `carried` and `fragment` are 0 in all kinds but DATA.

use crate::DropReason;
use crate::wire::{
    self, Fragment, Layout, Verified, finish_udp, protocol, read_u16, read_u32, replace_bytes,
};
use crate::{NoRoom, Packet};

/// Length of the transport's own header.
const BYTES: usize = 16;
const UDP_BYTES: usize = 8;
/// Bytes that the transport adds to a packet.
pub(super) const OVERHEAD: usize = UDP_BYTES + BYTES;
/// In the upper four bits of the first byte.
const VERSION: u8 = 1;
const IPV4_CHECKSUM: usize = 10;
const IPV6_BYTES: usize = 40;
/// The IPv4 flag that forbids routers to fragment.
const DO_NOT_FRAGMENT: u16 = 0x4000;
/// Hops of packets that carry nothing.
const HOPS: u8 = 64;

/// Content of a packet of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Open = 1,
    Accept = 2,
    Data = 3,
    Ack = 4,
    Nack = 5,
    Reset = 6,
}

impl Kind {
    fn of(first: u8) -> Option<Self> {
        let all = [Self::Open, Self::Accept, Self::Data, Self::Ack, Self::Nack, Self::Reset];
        all.into_iter().find(|kind| first == VERSION << 4 | *kind as u8)
    }
}

/// The part of the header that changes from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) stream: u32,
    pub(super) token: u32,
    pub(super) number: u32,
}

/// Where the transport's headers are in a packet, or would be: behind the IP header, before IPv6's extension
/// headers.
fn place(bytes: &[u8], layout: &Layout) -> usize {
    let length = match layout.is_ipv4() {
        true => usize::from(bytes[layout.network] & 0xF) * 4,
        false => IPV6_BYTES,
    };
    layout.network + length
}

/// Whether a packet is of the transport.
pub(super) fn is_present(bytes: &[u8], layout: &Layout, port: u16) -> bool {
    layout.protocol == protocol::UDP
        && layout.fragment == Fragment::No
        && layout.transport == place(bytes, layout)
        && [0, 2].iter().all(|at| read_u16(bytes, layout.transport + at) == port)
}

/// Whether a frame is a packet of the transport that carries one, and nothing behind it.
pub(super) fn is_data(bytes: &[u8], layout: &Layout) -> bool {
    layout.has_transport_header()
        && layout.protocol == protocol::UDP
        && is_present(bytes, layout, read_u16(bytes, layout.transport))
        && layout.end == bytes.len()
        && Header::read(bytes, layout).is_ok_and(|header| header.kind == Kind::Data)
}

/// The same layout, with the transport's headers as what the IP header carries.
fn as_udp(layout: &Layout, udp: usize, end: usize) -> Layout {
    Layout { transport: udp, end, protocol: protocol::UDP, fragment: Fragment::No, ..*layout }
}

/// Puts room for the transport's headers into a host's packet; [`Header::stamp`] fills it. The layout is that of
/// the packet from then on.
pub(super) fn carry(packet: &mut Packet, layout: &Layout) -> Result<Layout, NoRoom> {
    packet.truncate(layout.end);
    let udp = place(packet.bytes(), layout);
    packet.open_gap(udp, OVERHEAD)?;
    let layout = as_udp(layout, udp, packet.len());
    let bytes = packet.bytes_mut();
    let (carried, fragment) = replace_protocol(bytes, &layout, protocol::UDP, DO_NOT_FRAGMENT);
    let own = udp + UDP_BYTES;
    bytes[own + 1] = carried;
    bytes[own + 2..own + 4].copy_from_slice(&fragment.to_be_bytes());
    Ok(layout)
}

/// Takes the transport's headers out of a packet: it is as the host at the other end sent it.
pub(super) fn uncarry(packet: &mut Packet, layout: &Layout) {
    packet.truncate(layout.end);
    let own = layout.transport + UDP_BYTES;
    let carried = packet.bytes()[own + 1];
    let fragment = read_u16(packet.bytes(), own + 2);
    packet.close_gap(layout.transport, OVERHEAD);
    let end = packet.len();
    let bytes = packet.bytes_mut();
    replace_protocol(bytes, layout, carried, fragment);
    set_length(bytes, layout, end);
}

/// Replaces what an IP header says of what follows it; returns what it said. IPv6 has no such fragments.
fn replace_protocol(bytes: &mut [u8], layout: &Layout, carried: u8, fragment: u16) -> (u8, u16) {
    let network = layout.network;
    if !layout.is_ipv4() {
        return (std::mem::replace(&mut bytes[network + 6], carried), 0);
    }
    let before = (bytes[network + 9], read_u16(bytes, network + 6));
    let hops = bytes[network + 8];
    replace_bytes(bytes, network + IPV4_CHECKSUM, network + 8, &[hops, carried]);
    replace_bytes(bytes, network + IPV4_CHECKSUM, network + 6, &fragment.to_be_bytes());
    before
}

/// Writes the length of a packet that ends at `end` into its IP header.
fn set_length(bytes: &mut [u8], layout: &Layout, end: usize) {
    let length = |from: usize| u16::try_from(end - from).unwrap_or(u16::MAX).to_be_bytes();
    let network = layout.network;
    if layout.is_ipv4() {
        replace_bytes(bytes, network + IPV4_CHECKSUM, network + 2, &length(network));
    } else {
        bytes[network + 4..network + 6].copy_from_slice(&length(network + IPV6_BYTES));
    }
}

impl Header {
    /// Reads the header of a packet of the transport.
    pub(super) fn read(bytes: &[u8], layout: &Layout) -> Result<Self, DropReason> {
        let udp_bytes = layout.end - layout.transport;
        if udp_bytes < OVERHEAD {
            return Err(DropReason::Truncated);
        }
        // What is behind the UDP packet would be covered by no checksum.
        if usize::from(read_u16(bytes, layout.transport + 4)) != udp_bytes {
            return Err(DropReason::Malformed);
        }
        if wire::verify(bytes, layout) != Verified::Right {
            return Err(DropReason::BadChecksum);
        }
        let own = layout.transport + UDP_BYTES;
        let kind = Kind::of(bytes[own]).ok_or(DropReason::Malformed)?;
        if kind != Kind::Data && (udp_bytes != OVERHEAD || bytes[own + 1..own + 4] != [0; 3]) {
            return Err(DropReason::Malformed);
        }
        let number = |at: usize| read_u32(bytes, own + at);
        Ok(Self { kind, stream: number(4), token: number(8), number: number(12) })
    }

    /// Writes the headers of a packet that has room for them, with its lengths and checksums. What is carried, and
    /// of which protocol, stays.
    pub(super) fn stamp(&self, bytes: &mut [u8], layout: &Layout, port: u16) {
        let udp = layout.transport;
        bytes[udp..udp + 2].copy_from_slice(&port.to_be_bytes());
        bytes[udp + 2..udp + 4].copy_from_slice(&port.to_be_bytes());
        let own = udp + UDP_BYTES;
        bytes[own] = VERSION << 4 | self.kind as u8;
        let numbers = [self.stream, self.token, self.number];
        for (place, number) in bytes[own + 4..own + BYTES].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        let mut layout = *layout;
        let payload_bytes = layout.end - own;
        finish_udp(bytes, &mut layout, payload_bytes);
    }

    /// Makes a packet that carries nothing, of the first bytes of one of the transport: for the other end, or back to
    /// where that one came from.
    pub(super) fn alone(&self, bytes: &mut [u8], layout: &Layout, turns: bool, port: u16) {
        if turns {
            wire::turn_around_addresses(bytes, layout);
        }
        let network = layout.network;
        if layout.is_ipv4() {
            let checksum = network + IPV4_CHECKSUM;
            replace_bytes(bytes, checksum, network + 4, &[0, 0]);
            replace_bytes(bytes, checksum, network + 8, &[HOPS, protocol::UDP]);
        } else {
            bytes[network + 7] = HOPS;
        }
        // Who made it does not answer to congestion.
        layout.set_traffic_class(bytes, layout.traffic_class(bytes) & !3);
        let own = layout.transport + UDP_BYTES;
        bytes[own + 1..own + 4].fill(0);
        let layout = Layout { end: bytes.len(), ..*layout };
        self.stamp(bytes, &layout, port);
    }
}

/// Number of a packet's bytes that [`Header::alone`] takes.
pub(super) fn bytes_alone(layout: &Layout) -> usize {
    layout.transport + OVERHEAD
}
