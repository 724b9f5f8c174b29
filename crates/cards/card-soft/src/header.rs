//! Fields of a frame that the classifier sees.

use std::net::IpAddr;

use snic_card_sim::Header;
use snic_nts::wire::{self, Flow, Frame, Layout, protocol};

use crate::segments::UDP_BYTES;

/// The function of frames that are of none.
pub(crate) const NO_FUNCTION: u16 = u16::MAX;
/// The UDP port of VXLAN (RFC 7348).
const VXLAN_PORT: u16 = 4_789;
/// Bytes of a VXLAN header, behind that of UDP.
const VXLAN_BYTES: usize = 8;
/// The flag that says that a VXLAN header has a VNI.
const VXLAN_HAS_VNI: u8 = 0x08;

/// The header of a frame that came from or is for `function`. Frames that are no IP packets, and those
/// whose headers are broken, match only rules that look at none of their fields: IPv6 addresses too,
/// since rows hold those of IPv4.
///
/// The layout is that of the IP packet in it.
pub(crate) fn read(frame: &[u8], function: u16) -> (Header, Option<Layout>) {
    let vlan = vlan(frame);
    let mut header = Header { virtual_function: function, vlan, ..Header::default() };
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { return (header, None) };
    let flow = Flow::of(frame, &layout);
    header.protocol = flow.protocol;
    if matches!(flow.protocol, protocol::TCP | protocol::UDP) {
        (header.source_port, header.destination_port) = (flow.source_port, flow.destination_port);
    }
    if let (IpAddr::V4(source), IpAddr::V4(destination)) = (flow.source, flow.destination) {
        (header.source, header.destination) = (source.to_bits(), destination.to_bits());
    }
    if flow.protocol == protocol::UDP && flow.destination_port == VXLAN_PORT {
        header.vni = vni(frame.get(layout.transport + UDP_BYTES..layout.end).unwrap_or_default());
    }
    (header, Some(layout))
}

/// The number in the outermost tag that has one. 0 stands for none (802.1Q-2022, table 9-2): Linux takes such tags off, and
/// looks at the next one.
fn vlan(frame: &[u8]) -> Option<u16> {
    wire::vlans(frame).find(|number| *number != 0)
}

fn vni(vxlan: &[u8]) -> Option<u32> {
    let head = vxlan.get(..VXLAN_BYTES)?;
    let has_vni = head[0] & VXLAN_HAS_VNI != 0;
    has_vni.then(|| u32::from_be_bytes([0, head[4], head[5], head[6]]))
}

/// The header alone.
#[cfg(test)]
pub(crate) fn of(frame: &[u8], function: u16) -> Header {
    read(frame, function).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet frame with an IPv4 packet: UDP from 10.0.0.1:1000 to 10.0.0.2:4789, VNI 0x123456.
    pub(crate) fn vxlan_frame() -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let mut ip = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum: u32 = ip.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = !(((sum >> 16) + (sum & 0xffff)) as u16);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(ip);
        frame.extend([0x03, 0xe8, 0x12, 0xb5, 0, 16, 0, 0]);
        frame.extend([VXLAN_HAS_VNI, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        frame
    }

    #[test]
    fn addresses_ports_and_vni_are_found() {
        let header = of(&vxlan_frame(), 7);
        assert_eq!(header.virtual_function, 7);
        assert_eq!((header.source, header.destination), (0x0a00_0001, 0x0a00_0002));
        assert_eq!(
            (header.protocol, header.source_port, header.destination_port),
            (17, 1_000, 4_789)
        );
        assert_eq!(header.vni, Some(0x12_3456));
    }

    #[test]
    fn the_outermost_vlan_is_found_before_anything() {
        let plain = vxlan_frame();
        let tagged = |tags: &[[u8; 4]]| {
            let tags = tags.iter().flatten().copied();
            plain[..12].iter().copied().chain(tags).chain(plain[12..].iter().copied()).collect()
        };
        let frames: [(Vec<u8>, Option<u16>); 6] = [
            (plain.clone(), None),
            (tagged(&[[0x81, 0, 0x60, 5]]), Some(5)),
            (tagged(&[[0x88, 0xa8, 0x0f, 0xfe], [0x81, 0, 0, 5]]), Some(4_094)),
            // A tag for its priority alone.
            (tagged(&[[0x81, 0, 0xe0, 0]]), None),
            (tagged(&[[0x81, 0, 0xe0, 0], [0x81, 0, 0, 5]]), Some(5)),
            (plain[..12].iter().copied().chain([0x81, 0, 0, 7]).collect(), Some(7)),
        ];
        for (frame, vlan) in frames {
            assert_eq!(of(&frame, 7).vlan, vlan, "{frame:02x?}");
        }
        assert_eq!(of(&tagged(&[[0x81, 0, 0x60, 5]]), 7).vni, Some(0x12_3456));
    }

    #[test]
    fn a_frame_without_ip_has_its_function_only() {
        for frame in [&[][..], &[0; 14], &[0xff; 60], &vxlan_frame()[..30]] {
            let header = Header { virtual_function: 3, ..Header::default() };
            assert_eq!(of(frame, 3), header, "{frame:?}");
        }
    }
}
