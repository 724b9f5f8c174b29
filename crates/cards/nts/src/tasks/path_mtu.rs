//! Packets that do not fit the path behind an NT that makes them longer (RFC 4301, 8.2; RFC 7348, 4.3).
//!
//! ```text
//!   IPv6, or IPv4 with DF    dropped; its sender gets an ICMP error with the MTU that fits    back
//!   IPv4 without DF          cut into fragments, each of which is encapsulated                on
//!   ICMP error about what the tunnel sent     its MTU is lower for the next 10 minutes
//! ```
//!
//! Errors from the path are not authenticated. So they count only for what the tunnel may have sent, they never take
//! the MTU below what every path has to carry, and what they say is forgotten (RFC 4301, 8.2.2).

use std::time::Duration;

use rand::RngCore;
use snic_domain::Timestamp;

use super::icmp_errors::{ErrorBudget, IPV6_MTU_MIN, IcmpError};
use crate::packet::NoRoom;
use crate::wire::{self, Fragment, Layout, read_u16, read_u32};
use crate::{Context, Direction, DropReason, Packet, Verdict};

/// The smallest MTU that an error sets for IPv4: what every host has to take (RFC 791, section 3.2).
const IPV4_MTU_MIN: usize = 576;
/// Time for which an error holds, before a larger packet is tried (RFC 1191, section 6.3; RFC 8201, section 4).
const LEARNT_FOR: Duration = Duration::from_secs(600);
const IPV4_BYTES: usize = 20;

/// The MTU of the path to a tunnel's other end.
#[derive(Debug, Default)]
pub(crate) struct PathMtu {
    configured: usize,
    /// The MTU that an error reported, and until when it holds.
    learnt: Option<(usize, Timestamp)>,
}

impl PathMtu {
    pub(crate) fn new(configured: usize) -> Self {
        Self { configured, learnt: None }
    }

    pub(crate) fn at(&self, now: Timestamp) -> usize {
        match self.learnt {
            Some((mtu, until)) if now < until => mtu.min(self.configured),
            _ => self.configured,
        }
    }

    /// Takes what an ICMP error says about a packet that the tunnel has sent, if it is about its length.
    pub(crate) fn learn(&mut self, bytes: &[u8], error: &Layout, now: Timestamp) {
        let Some(reported) = reported_mtu(bytes, error) else { return };
        let least = if error.is_ipv4() { IPV4_MTU_MIN } else { IPV6_MTU_MIN };
        let mtu = reported.max(least);
        if mtu < self.at(now) {
            self.learnt = Some((mtu, now + LEARNT_FOR));
        }
    }
}

/// The MTU of the next hop, from an ICMP error that says that a packet was too long for it.
fn reported_mtu(bytes: &[u8], error: &Layout) -> Option<usize> {
    let at = error.transport;
    let mtu = match (error.is_ipv4(), bytes[at], bytes[at + 1]) {
        (true, 3, 4) => read_u16(bytes, at + 6).into(),
        (false, 2, _) => read_u32(bytes, at + 4),
        _ => return None,
    };
    usize::try_from(mtu).ok().filter(|mtu| *mtu > 0)
}

/// An IP packet that is longer than `mtu`.
pub(crate) struct Oversized<'a> {
    /// The frame that holds it.
    pub(crate) frame: &'a [u8],
    pub(crate) layout: Layout,
    /// The longest packet that would fit.
    pub(crate) mtu: usize,
}

impl Oversized<'_> {
    /// Emits the packet in fragments that fit, each after `encapsulate`; or, where it must not be cut, emits an error
    /// to its sender.
    ///
    /// # Errors
    /// [`DropReason::TooLarge`] where it must not be cut; otherwise that of `encapsulate`.
    pub(crate) fn pass(
        &self,
        errors: &mut ErrorBudget,
        context: &mut Context<'_>,
        encapsulate: impl FnMut(&mut Packet, &Layout, &mut dyn RngCore) -> Result<(), DropReason>,
    ) -> Result<Verdict, DropReason> {
        if self.may_be_cut() {
            return self.cut(context, encapsulate);
        }
        self.notify_sender(errors, context);
        Err(DropReason::TooLarge)
    }

    /// Only IPv4 packets whose sender allows it. Those with options are left to hosts: fragments have other ones.
    fn may_be_cut(&self) -> bool {
        let header = &self.frame[self.layout.network..];
        self.layout.is_ipv4() && header[0] == 0x45 && header[6] & 0x40 == 0
    }

    fn cut(
        &self,
        context: &mut Context<'_>,
        mut encapsulate: impl FnMut(&mut Packet, &Layout, &mut dyn RngCore) -> Result<(), DropReason>,
    ) -> Result<Verdict, DropReason> {
        let network = self.layout.network;
        let (head, payload) = self.frame[..self.layout.end].split_at(network + IPV4_BYTES);
        let step = (self.mtu - IPV4_BYTES) & !7;
        let flags = read_u16(self.frame, network + 6);
        for (index, piece) in payload.chunks(step).enumerate() {
            let is_followed = (index + 1) * step < payload.len();
            let more = flags | if is_followed { 0x2000 } else { 0 };
            let field = more + (index * step / 8) as u16;
            context.emitted.build(Direction::Onward, |packet| {
                let end = fill_fragment(packet, head, piece, field);
                let layout = self.layout.part(end.map_err(|_| DropReason::NoBuffer)?, field);
                encapsulate(packet, &layout, &mut *context.random)
            })?;
        }
        Ok(Verdict::Consume)
    }

    /// Emits an ICMP error to the sender, where one may be sent and has an effect.
    pub(crate) fn notify_sender(&self, errors: &mut ErrorBudget, context: &mut Context<'_>) {
        let is_ipv4 = self.layout.is_ipv4();
        let bytes = self.layout.end - self.layout.network;
        // An IPv6 host need not go below this MTU, so that nothing that it could be told would help.
        let mtu = if is_ipv4 { self.mtu } else { self.mtu.max(IPV6_MTU_MIN) };
        if bytes <= mtu {
            return;
        }
        let [high, low] = u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes();
        let kind = if is_ipv4 { [3, 4] } else { [2, 0] };
        let message = [kind[0], kind[1], 0, 0, 0, 0, high, low];
        IcmpError { frame: self.frame, layout: self.layout, message }.send(errors, context);
    }
}

/// Makes an IPv4 fragment of the headers of its packet, without options, and a piece of its payload.
fn fill_fragment(
    packet: &mut Packet,
    head: &[u8],
    piece: &[u8],
    flags_and_offset: u16,
) -> Result<usize, NoRoom> {
    packet.replace(head)?;
    packet.grow_back(piece.len())?;
    let (end, network) = (packet.len(), head.len() - IPV4_BYTES);
    let bytes = packet.bytes_mut();
    bytes[head.len()..].copy_from_slice(piece);
    let length = u16::try_from(end - network).unwrap_or(u16::MAX).to_be_bytes();
    wire::replace_bytes(bytes, network + 10, network + 2, &length);
    wire::replace_bytes(bytes, network + 10, network + 6, &flags_and_offset.to_be_bytes());
    Ok(end)
}

impl Layout {
    /// The layout of a fragment that [`fill_fragment`] made, which ends at `end`.
    fn part(self, end: usize, flags_and_offset: u16) -> Self {
        let fragment = match flags_and_offset & 0x1FFF {
            0 => Fragment::First { id: 0 },
            _ => Fragment::Later { id: 0 },
        };
        Self { end, fragment, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_1191_6_3_a_lower_mtu_is_forgotten_after_ten_minutes() {
        let mut mtu = PathMtu::new(1_500);
        let now = Timestamp::from_nanos(1);
        let error = crate::tasks::support::too_big("192.0.2.9", "192.0.2.1", &[0; 64], 1_400);
        let Ok(wire::Frame::Ip(layout)) = wire::parse(&error) else { panic!("not IP") };
        mtu.learn(&error, &layout, now);
        assert_eq!(mtu.at(now + Duration::from_secs(599)), 1_400);
        assert_eq!(mtu.at(now + Duration::from_secs(600)), 1_500);
        let lie = crate::tasks::support::too_big("192.0.2.9", "192.0.2.1", &[0; 64], 68);
        mtu.learn(&lie, &layout, now);
        assert_eq!(mtu.at(now), IPV4_MTU_MIN);
    }
}
