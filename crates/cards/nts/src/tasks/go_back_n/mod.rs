//! Go-back-N: a reliable transport between two cards, below what their hosts speak (SuperNIC, 6.1: Clio's transport
//! on the card).
//!
//! ```text
//!             numbers, keeps a copy                      in order, once
//!   host ──► go-back-n ═══ DATA ═══► network ═══ DATA ═══► go-back-n ──► peer
//!               ▲                                             │
//!               └──── ACK: the next number, NACK: go back ◄───┘
//! ```
//!
//! Packets from `local` to `peer` get a number and are kept until the peer's card acknowledges them; those from
//! `peer` to `local` are handed on in order and once. The wire format is in [`header`]. When the time is over, or
//! the peer reports a gap, everything from the oldest on is sent again, at most [`BURST_MAX`] packets at once: what is
//! behind them follows when the peer reports the next gap.
//!
//! ```text
//!   Closed ── a packet ──► Opening ── ACCEPT ──► Open ── RESET ──► Opening, with another stream
//!      ▲                      │ OPEN, again        │ DATA, again
//!      └── retries are over: what is kept is given up, and counted as `peer_unreachable`
//! ```
//!
//! - *Full window*: the packet is dropped and counted as `window_full`; it has no number, so nothing has a gap.
//!   That slows TCP down as any full queue does.
//! - *Memory*: `window` frames of `mtu` bytes with their headers, at most [`KEPT_BYTES_MAX`]: the pages that the
//!   catalogue gives the NT. The receiving half keeps no packets.
//! - *A card that has lost its state*: a sending card opens another stream, and what it had kept is lost with it. A
//!   receiving card answers with RESET; the sender sends all again that was not acknowledged, so packets whose
//!   acknowledgement was on its way come twice. In all other cases a packet that got a number arrives once, or is
//!   counted as given up.
//! - *Long packets*: one that does not fit `mtu` with the header is dropped, and its sender gets an ICMP error with the
//!   MTU that fits, except for IPv4 packets that may be fragmented.
//! - *Others*: packets between other addresses pass. Packets of the peer that are not of the transport are
//!   dropped, for nobody knows where they belong in the order.

mod header;
mod receiver;
mod sender;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use header::{Header, Kind, OVERHEAD};
use receiver::{Arrival, Receiver, SavedReceiver};
use sender::{DuePackets, Limits, Phase, SavedSender, Sender};

use super::icmp_errors::ErrorBudget;
use super::path_mtu::Oversized;
use crate::aging::KeyedHash;
use crate::config::{
    Configuration, Field, InvalidConfiguration, Kind as FieldKind, NON_IP, NonIp, Schema,
};
use crate::state::{self, InvalidState};
use crate::tasks::read_ip::read_ip;
use crate::wire::{ETHERNET_BYTES, Layout};
use crate::{Context, Direction, DropReason, Emitted, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 1;
/// Most bytes of kept frames: two pages of on-board memory.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Packets that are kept at most.
const WINDOW_MAX: usize = 1_024;
/// Packets that are sent again at once: a sixteenth of a software card's buffers, which all tenants share.
const BURST_MAX: usize = 128;
/// An Ethernet header with two VLAN tags.
const LINK_BYTES_MAX: usize = ETHERNET_BYTES + 8;

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "go-back-n",
    version: 1,
    fields: &[
        Field::required("local", FieldKind::Address, "The host at this end."),
        Field::required("peer", FieldKind::Address, "The host at the other end."),
        Field::optional(
            "role",
            FieldKind::Choice(&["both", "send", "receive"]),
            "Which packets are carried: those to the peer, those from it, or both; both by default.",
        ),
        Field::optional(
            "port",
            FieldKind::Integer { min: 1, max: 65_535 },
            "The UDP port of the transport, the same at both ends; 61021 by default.",
        ),
        Field::optional(
            "window",
            FieldKind::Integer { min: 1, max: WINDOW_MAX as u64 },
            "Packets that may be unacknowledged; 64 by default.",
        ),
        Field::optional(
            "timeout_ms",
            FieldKind::Integer { min: 1, max: 10_000 },
            "How long to wait for an acknowledgement; doubles with each retransmission, to 64 times as long at most; 20 by default.",
        ),
        Field::optional(
            "retries_max",
            FieldKind::Integer { min: 1, max: 1_000 },
            "Retransmissions in a row before packets are given up; 16 by default.",
        ),
        Field::optional(
            "mtu",
            FieldKind::Integer { min: 1_280, max: 9_216 },
            "The largest IP packet on the way to the peer; 1500 by default. Hosts need an MTU that is 24 lower.",
        ),
        NON_IP,
    ],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Role {
    #[default]
    Both,
    Send,
    Receive,
}

fn port_by_default() -> u16 {
    61_021
}
fn window_by_default() -> usize {
    64
}
fn timeout_by_default() -> u64 {
    20
}
fn retries_by_default() -> u32 {
    16
}
fn mtu_by_default() -> usize {
    1_500
}

#[derive(Debug, Clone, Deserialize)]
struct Settings {
    local: IpAddr,
    peer: IpAddr,
    #[serde(default)]
    role: Role,
    #[serde(default = "port_by_default")]
    port: u16,
    #[serde(default = "window_by_default")]
    window: usize,
    #[serde(default = "timeout_by_default")]
    timeout_ms: u64,
    #[serde(default = "retries_by_default")]
    retries_max: u32,
    #[serde(default = "mtu_by_default")]
    mtu: usize,
    #[serde(default)]
    non_ip: NonIp,
}

impl Settings {
    fn check(&self) -> Result<(), InvalidConfiguration> {
        if self.local.is_ipv4() != self.peer.is_ipv4() || self.local == self.peer {
            let allowed = "another address than local, of its IP version";
            return Err(InvalidConfiguration::field("peer", self.peer, allowed));
        }
        let most = KEPT_BYTES_MAX / self.frame_bytes_max();
        if self.window > most {
            let allowed = format!(
                "at most {most} with an mtu of {}: {KEPT_BYTES_MAX} bytes are kept",
                self.mtu
            );
            return Err(InvalidConfiguration::field("window", self.window, allowed));
        }
        Ok(())
    }

    fn frame_bytes_max(&self) -> usize {
        self.mtu + LINK_BYTES_MAX
    }

    fn limits(&self) -> Limits {
        Limits {
            window: self.window,
            frame_bytes_max: self.frame_bytes_max(),
            timeout: Duration::from_millis(self.timeout_ms),
            retries_max: self.retries_max,
        }
    }
}

pub(crate) struct GoBackN {
    secret: KeyedHash,
    active: Option<Active>,
}

struct Active {
    settings: Settings,
    sender: Sender,
    receiver: Receiver,
    /// Packets for another peer that were kept when this one was configured, and are not counted yet.
    given_up: u64,
    errors: ErrorBudget,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    sender: SavedSender,
    receiver: SavedReceiver,
}

impl GoBackN {
    /// `secret` is what tokens follow from.
    pub(crate) const fn new(secret: KeyedHash) -> Self {
        Self { secret, active: None }
    }
}

impl NetworkTask for GoBackN {
    /// Configures it. Kept and expected packets stay where the two hosts are the same.
    fn configure(
        &mut self,
        _: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        settings.check()?;
        let ends = |settings: &Settings| (settings.local, settings.peer);
        let limits = settings.limits();
        self.active = Some(match self.active.take() {
            Some(old) if ends(&old.settings) == ends(&settings) => {
                Active { settings, sender: old.sender.with_limits(limits), ..old }
            }
            old => Active {
                settings,
                sender: Sender::new(limits),
                receiver: Receiver::new(self.secret),
                given_up: old.map_or(0, |mut old| old.given_up + old.sender.give_up()),
                errors: ErrorBudget::default(),
            },
        });
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        let Some(active) = &mut self.active else {
            return Verdict::Drop(DropReason::Unconfigured);
        };
        context.emitted.give_up(std::mem::take(&mut active.given_up));
        let layout = match read_ip(packet.bytes(), &active.settings.non_ip) {
            Ok(layout) => layout,
            Err(verdict) => return verdict,
        };
        let Settings { local, peer, role, .. } = active.settings;
        let done = if (layout.source, layout.destination) == (local, peer) && role != Role::Receive
        {
            active.send(packet, &layout, context)
        } else if (layout.source, layout.destination) == (peer, local) {
            active.receive(packet, &layout, context)
        } else {
            Ok(Verdict::Forward)
        };
        done.unwrap_or_else(Verdict::Drop)
    }

    fn next_wake(&self) -> Option<Timestamp> {
        let active = self.active.as_ref()?;
        if active.given_up > 0 { Some(Timestamp::ZERO) } else { active.sender.due() }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let Some(active) = &mut self.active else { return };
        context.emitted.give_up(std::mem::take(&mut active.given_up));
        if active.sender.due().is_none_or(|due| due > context.now) {
            return;
        }
        match active.sender.time_out(context.now) {
            Some(due) => active.send_again(due, Direction::Onward, context.emitted),
            None => active.give_up(context.emitted),
        }
    }

    fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let saved = self.active.as_ref().map(|active| Saved {
            sender: active.sender.save(now),
            receiver: active.receiver.save(),
        });
        state::write(SCHEMA.nt_type, STATE_VERSION, &saved, out);
    }

    fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let saved: Option<Saved> = state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        let (Some(saved), Some(active)) = (saved, &mut self.active) else { return Ok(()) };
        let (entries, allowed) = (saved.sender.frames.len(), active.settings.window);
        if entries > allowed {
            return Err(InvalidState::DoesNotFit { entries, allowed });
        }
        let mut sender = Sender::new(active.settings.limits());
        sender.restore(&saved.sender, now).map_err(InvalidState::Damaged)?;
        active.sender = sender;
        active.receiver.restore(saved.receiver);
        Ok(())
    }
}

impl Active {
    /// A packet of the host gets its number.
    fn send(
        &mut self,
        packet: &mut Packet,
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let mtu = self.settings.mtu - OVERHEAD;
        if layout.end - layout.network > mtu {
            let oversized = Oversized { frame: packet.bytes(), layout: *layout, mtu };
            oversized.notify_sender(&mut self.errors, context);
            return Err(DropReason::TooLarge);
        }
        if self.sender.is_full() {
            return Err(DropReason::WindowFull);
        }
        let layout = header::carry(packet, layout).map_err(|_| DropReason::NoBuffer)?;
        let opens = self.sender.phase() == Phase::Closed;
        if opens {
            self.sender.open(context.random.next_u32(), context.now);
        }
        let number = self.sender.next();
        let (stream, token, is_open) = match self.sender.phase() {
            Phase::Open { stream, token } => (stream, token, true),
            Phase::Opening { .. } | Phase::Closed => (0, 0, false),
        };
        let header = Header { kind: Kind::Data, stream, token, number };
        header.stamp(packet.bytes_mut(), &layout, self.settings.port);
        self.sender.keep(packet.bytes(), layout, context.now);
        if opens {
            self.send_again(DuePackets::Open, Direction::Onward, context.emitted);
        }
        Ok(if is_open { Verdict::Forward } else { Verdict::Consume })
    }

    /// A packet of the peer.
    fn receive(
        &mut self,
        packet: &mut Packet,
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let is_sender_only = self.settings.role == Role::Send;
        if !header::is_present(packet.bytes(), layout, self.settings.port) {
            return if is_sender_only { Ok(Verdict::Forward) } else { Err(DropReason::Unnumbered) };
        }
        let header = Header::read(packet.bytes(), layout)?;
        let due = match header.kind {
            Kind::Open | Kind::Data if is_sender_only => return Err(DropReason::UnknownStream),
            Kind::Open => {
                let token = self.receiver.token(header.stream);
                let accept = Header { kind: Kind::Accept, token, number: 0, ..header };
                self.answer(packet.bytes(), layout, accept, context.emitted);
                return Ok(Verdict::Consume);
            }
            Kind::Data => return self.take(packet, layout, header, context.emitted),
            Kind::Accept => self.sender.accept(&header, context.now)?,
            Kind::Ack | Kind::Nack => self.sender.acknowledge(&header, context.now)?,
            Kind::Reset => {
                let Some(()) = self.sender.reset(&header)? else {
                    self.give_up(context.emitted);
                    return Ok(Verdict::Consume);
                };
                self.sender.open(context.random.next_u32(), context.now);
                DuePackets::Open
            }
        };
        self.send_again(due, Direction::Back, context.emitted);
        Ok(Verdict::Consume)
    }

    /// A packet that the peer's host has sent.
    fn take(
        &mut self,
        packet: &mut Packet,
        layout: &Layout,
        header: Header,
        emitted: &mut Emitted,
    ) -> Result<Verdict, DropReason> {
        let arrival = self.receiver.arrive(header.stream, header.token, header.number);
        let expected = self.receiver.expected();
        let (kind, number) = match arrival {
            Arrival::Next | Arrival::Again => (Kind::Ack, expected),
            Arrival::Ahead { is_news: true } => (Kind::Nack, expected),
            Arrival::Ahead { is_news: false } => return Err(DropReason::OutOfOrder),
            Arrival::Unknown => (Kind::Reset, 0),
        };
        self.answer(packet.bytes(), layout, Header { kind, number, ..header }, emitted);
        match arrival {
            Arrival::Next => {
                header::uncarry(packet, layout);
                Ok(Verdict::Forward)
            }
            Arrival::Again => Err(DropReason::Replayed),
            Arrival::Ahead { .. } => Err(DropReason::OutOfOrder),
            Arrival::Unknown => Err(DropReason::UnknownStream),
        }
    }

    /// Answers a packet of the peer.
    fn answer(&self, bytes: &[u8], layout: &Layout, answer: Header, emitted: &mut Emitted) {
        let port = self.settings.port;
        emitted.with(Direction::Back, &bytes[..header::bytes_alone(layout)], |bytes| {
            answer.alone(bytes, layout, true, port);
        });
    }

    /// Sends again what is due.
    fn send_again(&self, due: DuePackets, direction: Direction, emitted: &mut Emitted) {
        let port = self.settings.port;
        match due {
            DuePackets::Nothing => {}
            DuePackets::Open => {
                let first = self.sender.all().next();
                let Some((frame, layout, Header { stream, .. })) = first else { return };
                let open = Header { kind: Kind::Open, stream, token: 0, number: 0 };
                emitted.with(direction, &frame[..header::bytes_alone(layout)], |bytes| {
                    open.alone(bytes, layout, false, port);
                });
            }
            DuePackets::All => {
                for (frame, layout, header) in self.sender.all().take(BURST_MAX) {
                    emitted.with(direction, frame, |bytes| header.stamp(bytes, layout, port));
                }
            }
        }
    }

    /// Nobody acknowledges: what is kept is lost, and counted.
    fn give_up(&mut self, emitted: &mut Emitted) {
        emitted.give_up(self.sender.give_up());
    }
}
