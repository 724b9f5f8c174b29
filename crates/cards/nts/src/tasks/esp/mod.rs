//! ESP in tunnel mode with AES-GCM (RFC 4303, RFC 4106), as Linux has it under
//! `ip xfrm state … mode tunnel aead 'rfc4106(gcm(aes))' … 128`.
//!
//! ```text
//!  Ethernet │ IP                                            packet between the prefixes
//!  Ethernet │ outer IP │ SPI, number │ IV │ IP … padding │ ICV     on the way to the other end
//!                                          └─ encrypted ─┘
//! ```
//!
//! Sequence numbers have 32 bits and never start again: when they are used up, packets are dropped
//! until a new key is configured. Replays are detected within a window. The Ethernet header stays.
//!
//! A packet that does not fit the path's MTU is answered or cut before it is encrypted, and errors from the path lower that MTU
//! ([`super::path_mtu`]; RFC 4301, section 8.2). An error counts if it quotes index and number of a packet that was
//! sent lately.

mod association;
mod replay;
mod settings;

use std::net::IpAddr;

use rand::RngCore;
use serde::{Deserialize, Serialize};
use snic_domain::{Digest, Timestamp};

use association::{HEADER_BYTES, ICV_BYTES, IV_BYTES, Inbound, Outbound};
use replay::ReplayWindow;
use settings::{Other, Settings};

pub(crate) use settings::SCHEMA;

use super::ecn;
use super::icmp_errors::ErrorBudget;
use super::path_mtu::{Oversized, PathMtu};
use crate::config::{Configuration, InvalidConfiguration};
use crate::state::{self, InvalidState};
use crate::tasks::read_ip::read_ip;
use crate::wire::{
    self, Fragment, IcmpMessage, Layout, TunnelHeader, Verified, parse_ip, protocol, quoted_flow,
    read_u32,
};
use crate::{Context, DropReason, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 1;
/// Hops of the outer header, as Linux sends.
const HOP_LIMIT: u8 = 64;
/// Padding length and next header, at the end of what is encrypted.
const TRAILER_BYTES: usize = 2;
/// The encrypted part ends on a 4-byte boundary (RFC 4303, section 2.4).
const ALIGNMENT: usize = 4;

#[derive(Default)]
pub(crate) struct Esp {
    active: Option<Active>,
}

struct Active {
    settings: Settings,
    outbound: Option<Outbound>,
    inbound: Vec<Inbound>,
    path: PathMtu,
    errors: ErrorBudget,
}

/// Saved state: numbers, no keys. Associations are named by index and digest of the key.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    outbound: Option<(u32, Digest, u32)>,
    inbound: Vec<(u32, Digest, ReplayWindow)>,
}

impl NetworkTask for Esp {
    fn configure(
        &mut self,
        _: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        settings.check()?;
        let mut new = Active::new(settings);
        if let Some(old) = self.active.take() {
            new.succeed(old);
        }
        self.active = Some(new);
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        let Some(active) = &mut self.active else {
            return Verdict::Drop(DropReason::Unconfigured);
        };
        let layout = match read_ip(packet.bytes(), &active.settings.non_ip) {
            Ok(layout) => layout,
            Err(verdict) => return verdict,
        };
        let is_from_tunnel =
            layout.protocol == protocol::ESP && layout.destination == active.settings.local;
        let done = if is_from_tunnel {
            active.decapsulate(packet, &layout).map(|()| Verdict::Forward)
        } else if active.is_about_tunnel(packet.bytes(), &layout) {
            active.path.learn(packet.bytes(), &layout, context.now);
            Ok(Verdict::Consume)
        } else if active.settings.protects(layout.source, layout.destination) {
            active.send(packet, &layout, context)
        } else {
            active.pass_other(packet.bytes(), &layout).map(|()| Verdict::Forward)
        };
        done.unwrap_or_else(Verdict::Drop)
    }

    fn save(&self, _: Timestamp, out: &mut Vec<u8>) {
        let active = self.active.as_ref();
        let outbound = active.and_then(|active| active.outbound.as_ref());
        let named = |(spi, digest), number| (spi, digest, number);
        let saved = Saved {
            outbound: outbound.map(|sa| named(sa.identity(), sa.number())),
            inbound: active
                .map_or(&[][..], |active| &active.inbound)
                .iter()
                .map(|sa| (sa.spi(), sa.identity().1, sa.window.clone()))
                .collect(),
        };
        state::write(SCHEMA.nt_type, STATE_VERSION, &saved, out);
    }

    fn restore(&mut self, _: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let saved: Saved = state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        let Some(active) = &mut self.active else { return Ok(()) };
        for sa in &active.inbound {
            let window = saved.inbound.iter().find(|(spi, key, _)| (*spi, *key) == sa.identity());
            if window.is_some_and(|(_, _, window)| !window.is_sound(sa.window.size())) {
                return Err(InvalidState::Damaged(format!("the window of SPI {}", sa.spi())));
            }
        }
        if let (Some(sa), Some((spi, key, number))) = (&mut active.outbound, saved.outbound)
            && sa.identity() == (spi, key)
        {
            sa.resume(number);
        }
        for (spi, key, window) in saved.inbound {
            let sa = active.inbound.iter_mut().find(|sa| sa.identity() == (spi, key));
            if let Some(sa) = sa {
                sa.window = window;
            }
        }
        Ok(())
    }
}

impl Active {
    fn new(settings: Settings) -> Self {
        let outbound = settings.outbound.as_ref().map(|sa| Outbound::new(sa.spi, &sa.key));
        let inbound = settings.inbound.iter();
        let inbound = inbound.map(|sa| Inbound::new(sa.spi, &sa.key, sa.window)).collect();
        let path = PathMtu::new(settings.mtu);
        Self { settings, outbound, inbound, path, errors: ErrorBudget::default() }
    }

    /// Associations that both have keep their numbers.
    fn succeed(&mut self, old: Self) {
        if let (Some(new), Some(old)) = (&mut self.outbound, &old.outbound)
            && new.identity() == old.identity()
        {
            new.succeed(old);
        }
        for old in old.inbound {
            let new = self.inbound.iter_mut().find(|sa| sa.identity() == old.identity());
            if let Some(new) = new {
                let size = new.window.size();
                let is_same = old.window.is_sound(size);
                new.window = if is_same { old.window } else { old.window.resized(size) };
            }
        }
    }

    /// Packets that go neither into the tunnel nor out of it.
    fn pass_other(&self, bytes: &[u8], layout: &Layout) -> Result<(), DropReason> {
        let is_link_local = IcmpMessage::of(bytes, layout) == Some(IcmpMessage::OfLink);
        match self.settings.other {
            _ if is_link_local => Ok(()),
            Other::Forward => Ok(()),
            Other::Drop => Err(DropReason::NotForTunnel),
        }
    }

    /// Whether it is an ICMP error about a packet that the tunnel has sent.
    fn is_about_tunnel(&self, bytes: &[u8], layout: &Layout) -> bool {
        let Settings { local, remote, .. } = self.settings;
        let (Some((quoted, flow)), Some(outbound)) = (quoted_flow(bytes, layout), &self.outbound)
        else {
            return false;
        };
        (flow.source, flow.destination, flow.protocol) == (local, remote, protocol::ESP)
            && quoted.end >= quoted.transport + HEADER_BYTES
            && wire::verify(bytes, layout) == Verified::Right
            && outbound
                .has_sent(read_u32(bytes, quoted.transport), read_u32(bytes, quoted.transport + 4))
    }

    /// A packet for the other end.
    fn send(
        &mut self,
        packet: &mut Packet,
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let Self { settings, outbound, path, errors, .. } = self;
        let outbound = outbound.as_mut().ok_or(DropReason::UnknownSpi)?;
        let mtu = settings.inner_mtu(path.at(context.now));
        if layout.end - layout.network <= mtu {
            encapsulate(settings, outbound, packet, (layout, &mut *context.random))?;
            return Ok(Verdict::Forward);
        }
        let oversized = Oversized { frame: packet.bytes(), layout: *layout, mtu };
        oversized.pass(errors, context, |piece, layout, random| {
            encapsulate(settings, outbound, piece, (layout, random))
        })
    }

    fn decapsulate(&mut self, packet: &mut Packet, layout: &Layout) -> Result<(), DropReason> {
        if layout.fragment != Fragment::No {
            return Err(DropReason::Fragment);
        }
        if layout.source != self.settings.remote {
            return Err(DropReason::NotForTunnel);
        }
        let least = HEADER_BYTES + IV_BYTES + ALIGNMENT + ICV_BYTES;
        let esp_bytes = layout.end - layout.transport;
        if esp_bytes < least || !esp_bytes.is_multiple_of(ALIGNMENT) {
            return Err(DropReason::Malformed);
        }
        let outer_class = layout.traffic_class(packet.bytes());
        let esp = &mut packet.bytes_mut()[layout.transport..layout.end];
        let spi = read_u32(esp, 0);
        let inbound = self.inbound.iter_mut().find(|sa| sa.spi() == spi);
        inbound.ok_or(DropReason::UnknownSpi)?.open(esp)?;
        let plaintext = &esp[HEADER_BYTES + IV_BYTES..esp_bytes - ICV_BYTES];
        let inner = inner_packet(plaintext)?;
        let is_expected = self.settings.protects(inner.destination, inner.source);
        if !is_expected {
            return Err(DropReason::NotForTunnel);
        }
        let start = layout.transport + HEADER_BYTES + IV_BYTES;
        packet.truncate(start + inner.end);
        packet.close_gap(layout.network, start - layout.network);
        let ether_type: [u8; 2] = if inner.is_ipv4() { [0x08, 0] } else { [0x86, 0xDD] };
        let bytes = packet.bytes_mut();
        bytes[layout.network - 2..layout.network].copy_from_slice(&ether_type);
        ecn::decapsulate(bytes, &inner.behind(layout.network), outer_class)
    }
}

/// Puts a packet that fits into the tunnel.
fn encapsulate(
    settings: &Settings,
    outbound: &mut Outbound,
    packet: &mut Packet,
    (layout, random): (&Layout, &mut dyn RngCore),
) -> Result<(), DropReason> {
    let outer = outer_header(settings, packet.bytes(), layout, outbound.number());
    let inner_bytes = layout.end - layout.network;
    let padding = (ALIGNMENT - (inner_bytes + TRAILER_BYTES) % ALIGNMENT) % ALIGNMENT;
    let before = outer.bytes() + HEADER_BYTES + IV_BYTES;
    let behind = padding + TRAILER_BYTES + ICV_BYTES;
    packet.truncate(layout.end);
    packet.grow_back(behind).map_err(|_| DropReason::NoBuffer)?;
    packet.open_gap(layout.network, before).map_err(|_| DropReason::NoBuffer)?;
    let bytes = packet.bytes_mut();
    let trailer = before + layout.end;
    for (value, byte) in (1..).zip(&mut bytes[trailer..trailer + padding]) {
        *byte = value;
    }
    bytes[trailer + padding] = padding as u8;
    bytes[trailer + padding + 1] = if layout.is_ipv4() { protocol::IPV4 } else { protocol::IPV6 };
    let esp = layout.network + outer.bytes();
    let payload = bytes.len() - esp;
    bytes[layout.network - 2..layout.network].copy_from_slice(&outer.ether_type());
    outer.write(payload, &mut bytes[layout.network..]);
    outbound.seal(&mut bytes[esp..], || random.next_u32())
}

impl Settings {
    /// The longest packet that fits a path with this MTU once it is encrypted and has its outer header.
    fn inner_mtu(&self, mtu: usize) -> usize {
        let outer = if self.local.is_ipv4() { 20 } else { 40 };
        let encrypted = mtu - outer - HEADER_BYTES - IV_BYTES - ICV_BYTES;
        encrypted / ALIGNMENT * ALIGNMENT - TRAILER_BYTES
    }
}

/// The packet in what was decrypted. Padding must be 1, 2, 3 … (RFC 4303, section 2.4).
fn inner_packet(plaintext: &[u8]) -> Result<Layout, DropReason> {
    let [rest @ .., padding, next] = plaintext else { return Err(DropReason::Malformed) };
    if *next == protocol::NO_NEXT_HEADER {
        return Err(DropReason::Dummy);
    }
    let length = rest.len().checked_sub(usize::from(*padding)).ok_or(DropReason::BadPadding)?;
    let (inner, padding) = rest.split_at(length);
    if !padding.iter().copied().eq((1..=255).take(padding.len())) {
        return Err(DropReason::BadPadding);
    }
    let layout = parse_ip(inner)?;
    let announced = if layout.is_ipv4() { protocol::IPV4 } else { protocol::IPV6 };
    if *next == announced { Ok(layout) } else { Err(DropReason::BadPadding) }
}

/// DSCP and ECN are those of the inner header (RFC 6040, normal mode). An IPv4 packet that may be
/// fragmented may be so in the tunnel too.
fn outer_header(settings: &Settings, bytes: &[u8], layout: &Layout, number: u32) -> TunnelHeader {
    let may_fragment = layout.is_ipv4() && bytes[layout.network + 6] & 0x40 == 0;
    TunnelHeader {
        source: settings.local,
        destination: settings.remote,
        protocol: protocol::ESP,
        traffic_class: layout.traffic_class(bytes),
        hop_limit: HOP_LIMIT,
        fragmentation: may_fragment.then_some(number as u16),
        flow_label: match (settings.local, layout.source) {
            (IpAddr::V6(_), IpAddr::V6(_)) => read_u32(bytes, layout.network) & 0xF_FFFF,
            _ => 0,
        },
    }
}

#[cfg(test)]
mod tests;
