//! The chain of IPv6 extension headers (RFC 8200, section 4).
//!
//! Hop-by-hop options are allowed directly behind the IPv6 header only (4.1). The other headers may come in any
//! order, which receivers have to accept (4.1), but no more than [`HEADERS_MAX`] of them: a chain that is longer
//! hides its transport header. A type 0 routing header is refused (RFC 5095), and so is a second fragment header.
//! The numbers of extension headers are those that RFC 7045, section 4 lists; any other number is a transport.

use super::{FragmentPart, read_u16, read_u32};
use crate::DropReason;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// Most extension headers of a packet. The order that RFC 8200 recommends has seven.
const HEADERS_MAX: usize = 8;
/// Length of the IPv6 header.
pub(super) const IPV6_BYTES: usize = 40;
/// Offset of the next header's number in the IPv6 header.
const NEXT_HEADER: usize = 6;
/// A routing header of this type can send a packet to and fro (RFC 5095).
const SOURCE_ROUTE: u8 = 0;

/// The end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    /// Where the transport header starts, or what a later fragment holds.
    pub(super) transport: usize,
    /// The number of the transport. For a later fragment, the number of the first header that was fragmented.
    pub(super) protocol: u8,
    /// The identification and the part, for a fragment.
    pub(super) fragment: Option<(u32, FragmentPart)>,
}

/// Follows the chain of a packet, which starts with its IPv6 header and has `end` bytes. Of a packet that an ICMP error
/// quotes, less may be there.
///
/// # Errors
/// [`DropReason::ExtensionHeader`], [`DropReason::Malformed`], [`DropReason::Truncated`], or for a first fragment
/// without the whole chain [`DropReason::TinyFragment`] (RFC 7112).
pub(super) fn follow(packet: &[u8], end: usize) -> Result<Chain, DropReason> {
    let mut next = *packet.get(NEXT_HEADER).ok_or(DropReason::Truncated)?;
    let mut at = IPV6_BYTES;
    let (mut fragment, mut has_fragment) = (None, false);
    for count in 0..=HEADERS_MAX {
        if !is_extension(next) {
            return Ok(Chain { transport: at, protocol: next, fragment });
        }
        let is_out_of_place = next == HOP_BY_HOP && count > 0;
        if is_out_of_place || count == HEADERS_MAX {
            return Err(DropReason::ExtensionHeader);
        }
        let is_cut =
            if fragment.is_some() { DropReason::TinyFragment } else { DropReason::Truncated };
        let header = packet.get(at..at + 8).ok_or(is_cut)?;
        let bytes = match next {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        let behind = at + bytes;
        if behind > packet.len() {
            return Err(is_cut);
        }
        match next {
            ROUTING if header[2] == SOURCE_ROUTE => return Err(DropReason::ExtensionHeader),
            FRAGMENT if has_fragment => return Err(DropReason::ExtensionHeader),
            FRAGMENT => {
                has_fragment = true;
                let field = read_u16(header, 2);
                let part =
                    FragmentPart::new(field & 0xFFF8, field & 1 != 0, end.saturating_sub(behind))?;
                // A packet that is its only fragment is whole (RFC 6946).
                if !part.is_whole() {
                    fragment = Some((read_u32(header, 4), part));
                }
                if part.start > 0 {
                    return Ok(Chain { transport: behind, protocol: header[0], fragment });
                }
            }
            _ => {}
        }
        (next, at) = (header[0], behind);
    }
    Err(DropReason::ExtensionHeader)
}

/// Whether this number announces an extension header. What is behind ESP is encrypted, so that the chain ends there.
fn is_extension(number: u8) -> bool {
    matches!(
        number,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION_OPTIONS
            | MOBILITY
            | HOST_IDENTITY
            | SHIM6
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::protocol;

    fn follow(packet: &[u8]) -> Result<Chain, DropReason> {
        super::follow(packet, packet.len())
    }

    /// An IPv6 packet with these headers, each 8 bytes long, before UDP.
    fn packet(headers: &[u8]) -> Vec<u8> {
        let mut out = vec![0; IPV6_BYTES];
        out[0] = 0x60;
        out[NEXT_HEADER] = headers.first().copied().unwrap_or(protocol::UDP);
        for at in 0..headers.len() {
            let next = headers.get(at + 1).copied().unwrap_or(protocol::UDP);
            // Routing headers of type 4; no header says that it is longer.
            let kind = if headers[at] == ROUTING { 4 } else { 0 };
            out.extend([next, 0, kind, 0, 0, 0, 0, 9]);
        }
        out.extend([0, 1, 0, 2, 0, 8, 0, 0]);
        let bytes = (out.len() - IPV6_BYTES) as u16;
        out[4..6].copy_from_slice(&bytes.to_be_bytes());
        out
    }

    #[test]
    fn rfc_8200_4_1_hop_by_hop_options_come_first_or_not_at_all() {
        assert!(follow(&packet(&[HOP_BY_HOP, DESTINATION_OPTIONS])).is_ok());
        let late = follow(&packet(&[DESTINATION_OPTIONS, HOP_BY_HOP]));
        assert_eq!(late, Err(DropReason::ExtensionHeader));
        let twice = follow(&packet(&[HOP_BY_HOP, HOP_BY_HOP]));
        assert_eq!(twice, Err(DropReason::ExtensionHeader));
    }

    #[test]
    fn rfc_8200_4_1_the_recommended_order_is_followed_to_its_end() {
        let headers = [HOP_BY_HOP, DESTINATION_OPTIONS, ROUTING, FRAGMENT, DESTINATION_OPTIONS];
        let chain = follow(&packet(&headers)).unwrap();
        assert_eq!((chain.protocol, chain.transport), (protocol::UDP, 40 + 8 * headers.len()));
        assert_eq!(chain.fragment, None, "its only fragment (RFC 6946)");
    }

    #[test]
    fn rfc_5095_3_a_type_0_routing_header_is_refused() {
        let mut source_route = packet(&[ROUTING]);
        assert!(follow(&source_route).is_ok());
        source_route[IPV6_BYTES + 2] = SOURCE_ROUTE;
        assert_eq!(follow(&source_route), Err(DropReason::ExtensionHeader));
    }

    #[test]
    fn rfc_7112_5_a_first_fragment_has_the_whole_chain() {
        let mut first = packet(&[FRAGMENT, DESTINATION_OPTIONS]);
        first[IPV6_BYTES + 3] = 1;
        assert!(follow(&first).is_ok());
        // The options say that they are longer than the fragment.
        first[IPV6_BYTES + 9] = 2;
        assert_eq!(follow(&first), Err(DropReason::TinyFragment));
    }

    #[test]
    fn a_later_fragment_is_not_read_behind_its_header() {
        let mut later = packet(&[FRAGMENT, HOP_BY_HOP]);
        later[IPV6_BYTES + 2..IPV6_BYTES + 4].copy_from_slice(&[0x05, 0xA8]);
        let chain = follow(&later).unwrap();
        assert_eq!((chain.transport, chain.protocol), (48, HOP_BY_HOP));
        let part = FragmentPart { start: 1_448, end: 1_464, is_last: true };
        assert_eq!(chain.fragment, Some((9, part)));
    }

    #[test]
    fn rfc_8200_4_5_fragments_but_the_last_have_a_multiple_of_8_bytes_and_none_ends_behind_65535() {
        let mut odd = packet(&[FRAGMENT]);
        odd[IPV6_BYTES + 3] = 1;
        odd.push(0);
        assert_eq!(follow(&odd), Err(DropReason::Malformed));
        let mut far = packet(&[FRAGMENT]);
        far[IPV6_BYTES + 2..IPV6_BYTES + 4].copy_from_slice(&[0xFF, 0xF8]);
        assert_eq!(follow(&far), Err(DropReason::Malformed));
    }

    proptest! {
        /// A chain of any headers has its transport behind all of them, or is refused for a reason that a look at
        /// the list shows.
        #[test]
        fn chains_are_bounded_and_followed(headers in prop::collection::vec(prop::sample::select(
            vec![HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS, MOBILITY, SHIM6]), 0..12)) {
            let followed = follow(&packet(&headers));
            let is_hop_late = headers.iter().skip(1).any(|header| *header == HOP_BY_HOP);
            let fragments = headers.iter().filter(|header| **header == FRAGMENT).count();
            if headers.len() > HEADERS_MAX || is_hop_late || fragments > 1 {
                prop_assert_eq!(followed, Err(DropReason::ExtensionHeader));
            } else {
                prop_assert_eq!(followed.map(|chain| chain.transport), Ok(40 + 8 * headers.len()));
            }
        }

        #[test]
        fn no_bytes_lead_out_of_the_packet(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(chain) = follow(&bytes) {
                prop_assert!(chain.transport <= bytes.len().max(IPV6_BYTES));
            }
        }
    }
}
