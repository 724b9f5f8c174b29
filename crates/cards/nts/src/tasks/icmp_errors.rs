//! ICMP errors that NTs send to the sender of a packet that they drop.
//!
//! An error comes from the address that the packet was for, as with Linux's bridged tunnels: so the NT needs no address
//! in the sender's network, and the sender accepts it as it does an error of any router.

use std::net::IpAddr;
use std::time::Duration;

use snic_domain::Timestamp;

use crate::packet::NoRoom;
use crate::wire::{self, Fragment, IcmpMessage, Layout, TunnelHeader, protocol};
use crate::{Context, Direction, Packet};

/// The smallest MTU of a path with IPv6 (RFC 8200, section 5).
pub(crate) const IPV6_MTU_MIN: usize = 1_280;
/// Longest ICMP error: RFC 1812, section 4.3.2.3.
const IPV4_ERROR_BYTES_MAX: usize = 576;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const ICMP_BYTES: usize = 8;
/// Errors a second, and at once (RFC 1812, section 4.3.2.8, and RFC 4443, section 2.4 f): more hosts than that begin
/// to send large packets in few networks.
const ERROR_INTERVAL: Duration = Duration::from_millis(10);
const ERRORS_AT_ONCE: u32 = 50;
const HOP_LIMIT: u8 = 64;

/// The rate limit of the errors of an NT.
#[derive(Debug, Default)]
pub(crate) struct ErrorBudget {
    /// The time at which all errors so far would be sent, one an interval.
    spent_until: Timestamp,
}

impl ErrorBudget {
    fn take(&mut self, now: Timestamp) -> bool {
        let from = self.spent_until.max(now);
        let is_allowed = from.since(now) < ERROR_INTERVAL * ERRORS_AT_ONCE;
        if is_allowed {
            self.spent_until = from + ERROR_INTERVAL;
        }
        is_allowed
    }
}

/// An ICMP error about a packet.
pub(crate) struct IcmpError<'a> {
    /// The frame that holds the packet.
    pub(crate) frame: &'a [u8],
    pub(crate) layout: Layout,
    /// The header of the message, without checksum.
    pub(crate) message: [u8; ICMP_BYTES],
}

impl<'a> IcmpError<'a> {
    /// "Communication administratively prohibited".
    pub(crate) fn prohibited(frame: &'a [u8], layout: Layout) -> Self {
        let [kind, code] = if layout.is_ipv4() { [3, 13] } else { [1, 1] };
        Self { frame, layout, message: [kind, code, 0, 0, 0, 0, 0, 0] }
    }

    /// Emits it, where one may be sent.
    pub(crate) fn send(&self, errors: &mut ErrorBudget, context: &mut Context<'_>) {
        if self.may_be_sent() && errors.take(context.now) {
            let built = context.emitted.build(Direction::Back, |packet| self.fill(packet));
            debug_assert!(built.is_ok(), "an error fits a buffer for packets");
        }
    }

    /// RFC 1122, section 3.2.2, and RFC 4443, section 2.4 e: no errors about errors, about later fragments, to groups or
    /// about what was sent to one.
    fn may_be_sent(&self) -> bool {
        let Self { frame, layout, .. } = self;
        let is_one_host = |address: IpAddr| match address {
            IpAddr::V4(v4) => {
                !(v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast() || v4.is_loopback())
            }
            IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_multicast() || v6.is_loopback()),
        };
        let is_one_station = (frame[0] | frame[6]) & 1 == 0;
        layout.has_transport_header()
            && is_one_station
            && is_one_host(layout.source)
            && is_one_host(layout.destination)
            && IcmpMessage::of(frame, layout) != Some(IcmpMessage::Error)
    }

    fn fill(&self, packet: &mut Packet) -> Result<(), NoRoom> {
        let Self { frame, layout, message } = self;
        let network = layout.network;
        let (ip_bytes, error_bytes_max, protocol) = if layout.is_ipv4() {
            (IPV4_BYTES, IPV4_ERROR_BYTES_MAX, protocol::ICMP)
        } else {
            (IPV6_BYTES, IPV6_MTU_MIN, protocol::ICMPV6)
        };
        let quoted = (layout.end - network).min(error_bytes_max - ip_bytes - ICMP_BYTES);
        packet.replace(&frame[..network + quoted])?;
        packet.open_gap(network, ip_bytes + ICMP_BYTES)?;
        let bytes = packet.bytes_mut();
        wire::swap_stations(bytes);
        let header = TunnelHeader {
            source: layout.destination,
            destination: layout.source,
            protocol,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            fragmentation: None,
            flow_label: 0,
        };
        header.write(ICMP_BYTES + quoted, &mut bytes[network..]);
        let transport = network + ip_bytes;
        bytes[transport..transport + ICMP_BYTES].copy_from_slice(message);
        let error = Layout {
            network,
            transport,
            end: bytes.len(),
            protocol,
            fragment: Fragment::No,
            source: header.source,
            destination: header.destination,
        };
        wire::fill(bytes, &error);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_4443_2_4_f_errors_are_limited_to_a_burst_and_a_rate() {
        let mut errors = ErrorBudget::default();
        let start = Timestamp::from_nanos(5_000_000_000);
        let count = |errors: &mut ErrorBudget, at| (0..1_000).filter(|_| errors.take(at)).count();
        assert_eq!(count(&mut errors, start), 50);
        assert_eq!(count(&mut errors, start + Duration::from_millis(30)), 3);
        assert_eq!(count(&mut errors, start + Duration::from_secs(60)), 50);
    }
}
