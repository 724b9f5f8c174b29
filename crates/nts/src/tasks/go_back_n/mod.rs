//! Go-back-N: a reliable transport between two cards, below what hosts speak (SuperNIC, section 6.2,
//! runs one for hosts without).
//!
//! Packets from this end to the peer get a number and are kept until the peer acknowledges them; the
//! peer hands them on in order and answers with what it expects next. When a gap is reported or the
//! time is over, everything from the oldest on is sent again. The window limits what is kept; a full
//! one drops, which slows TCP down as any full queue does.
//!
//! A card that has lost its state starts with a new incarnation number. The other end notices, and
//! both go on: packets that were under way then may arrive twice, none is lost that was not
//! acknowledged.

mod shim;
mod stream;

use std::net::IpAddr;
use std::time::Duration;

use rand::RngCore;
use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use shim::{Kind, Shim};
use stream::{Arrival, Receiver, SavedSender, Sender};

use crate::config::{Configuration, Field, InvalidConfiguration, Kind as FieldKind, Schema};
use crate::state::{self, InvalidState};
use crate::wire::{self, Fragment, Frame, Layout, protocol};
use crate::{Context, Direction, DropReason, Emitted, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 1;

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "go-back-n",
    version: 1,
    fields: &[
        Field::required("local", FieldKind::Address, "The host at this end."),
        Field::required("peer", FieldKind::Address, "The host at the other end."),
        Field::optional(
            "window",
            FieldKind::Integer { min: 1, max: 256 },
            "Packets that may be on their way; 64 by default.",
        ),
        Field::optional(
            "timeout_ms",
            FieldKind::Integer { min: 1, max: 10_000 },
            "How long to wait for an acknowledgement; doubles with each repetition; 20 by default.",
        ),
        Field::optional(
            "retries_max",
            FieldKind::Integer { min: 1, max: 64 },
            "Repetitions before packets are given up; 16 by default.",
        ),
        Field::optional(
            "mtu",
            FieldKind::Integer { min: 1_280, max: 9_216 },
            "The largest IP packet on the way to the peer; 1500 by default.",
        ),
    ],
};

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

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Settings {
    local: IpAddr,
    peer: IpAddr,
    #[serde(default = "window_by_default")]
    window: usize,
    #[serde(default = "timeout_by_default")]
    timeout_ms: u64,
    #[serde(default = "retries_by_default")]
    retries_max: u32,
    #[serde(default = "mtu_by_default")]
    mtu: usize,
}

impl Settings {
    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    fn sender(&self) -> Sender {
        Sender::new(self.window, stream::frame_bytes_max(self.mtu), 0)
    }
}

/// The NT.
#[derive(Debug, Default)]
pub(crate) struct GoBackN {
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    settings: Settings,
    sender: Sender,
    /// Whether the sender has its incarnation: it is random, and made with the first packet.
    is_started: bool,
    receiver: Receiver,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    sender: Option<SavedSender>,
    receiver: Receiver,
}

impl Active {
    fn new(settings: Settings) -> Self {
        let sender = settings.sender();
        Self { settings, sender, is_started: false, receiver: Receiver::default() }
    }

    fn saved(&self) -> Saved {
        Saved { sender: self.is_started.then(|| self.sender.save()), receiver: self.receiver }
    }

    /// `None` where it does not fit.
    fn resume(&mut self, saved: &Saved, now: Timestamp) -> Option<()> {
        if let Some(sender) = &saved.sender {
            self.sender.restore(sender, now)?;
            self.is_started = true;
        }
        self.receiver = saved.receiver;
        Some(())
    }
}

impl NetworkTask for GoBackN {
    fn configure(
        &mut self,
        now: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        if settings.local.is_ipv4() != settings.peer.is_ipv4() || settings.local == settings.peer {
            let allowed = "another address, of the IP version of local";
            return Err(InvalidConfiguration::field("peer", settings.peer, allowed));
        }
        let mut new = Active::new(settings);
        if let Some(old) = &self.active
            && (old.settings.local, old.settings.peer) == (new.settings.local, new.settings.peer)
        {
            let saved = old.saved();
            if new.resume(&saved, now).is_none() {
                let field = ("window", new.settings.window);
                let allowed =
                    "a window and mtu that hold the packets on their way; try again later";
                return Err(InvalidConfiguration::field(field.0, field.1, allowed));
            }
        }
        self.active = Some(new);
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        let Some(active) = &mut self.active else {
            return Verdict::Drop(DropReason::Unconfigured);
        };
        let layout = match wire::parse(packet.bytes()) {
            Ok(Frame::Ip(layout)) => layout,
            Ok(Frame::Other(_)) => return Verdict::Forward,
            Err(reason) => return Verdict::Drop(reason),
        };
        let (local, peer) = (active.settings.local, active.settings.peer);
        let done = match (layout.source, layout.destination) {
            (source, destination) if (source, destination) == (local, peer) => {
                active.send(packet, &layout, context)
            }
            (source, destination)
                if (source, destination) == (peer, local)
                    && layout.protocol == protocol::EXPERIMENT =>
            {
                active.receive(packet, &layout, context)
            }
            _ => Ok(Verdict::Forward),
        };
        done.unwrap_or_else(Verdict::Drop)
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.active.as_ref()?.sender.due()
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let Some(active) = &mut self.active else { return };
        if active.sender.due().is_none_or(|due| due > context.now) {
            return;
        }
        let (timeout, retries_max) = (active.settings.timeout(), active.settings.retries_max);
        if active.sender.retry(context.now, timeout, retries_max) {
            repeat(&active.sender, context.emitted);
        } else {
            active.sender.give_up(incarnation(context.random));
        }
    }

    fn save(&self, _: Timestamp, out: &mut Vec<u8>) {
        let saved = self.active.as_ref().map(Active::saved);
        state::write(SCHEMA.nt_type, STATE_VERSION, &saved, out);
    }

    fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let saved: Option<Saved> = state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        let (Some(saved), Some(active)) = (saved, &mut self.active) else { return Ok(()) };
        let mut new = Active::new(active.settings.clone());
        if new.resume(&saved, now).is_none() {
            let entries = saved.sender.map_or(0, |sender| sender.frames.len());
            return Err(InvalidState::DoesNotFit { entries, allowed: new.settings.window });
        }
        *active = new;
        Ok(())
    }
}

/// A number for a new stream; 0 stands for none.
fn incarnation(random: &mut dyn RngCore) -> u32 {
    random.next_u32().max(1)
}

/// Sends everything again that is not acknowledged.
fn repeat(sender: &Sender, emitted: &mut Emitted) {
    for frame in sender.unacknowledged() {
        emitted.copy(Direction::Onward, frame);
    }
}

impl Active {
    /// A packet to the peer gets its number.
    fn send(
        &mut self,
        packet: &mut Packet,
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        if layout.fragment != Fragment::No {
            return Err(DropReason::Fragment);
        }
        if !shim::is_direct(packet.bytes(), layout) || layout.protocol == protocol::EXPERIMENT {
            return Err(DropReason::UnsupportedProtocol);
        }
        if layout.end - layout.network + shim::BYTES > self.settings.mtu {
            return Err(DropReason::TooLarge);
        }
        if !self.is_started {
            self.sender.give_up(incarnation(context.random));
            self.is_started = true;
        }
        if self.sender.is_full() {
            return Err(DropReason::WindowFull);
        }
        let shim = Shim {
            kind: Kind::Data,
            carried: layout.protocol,
            sequence: self.sender.next(),
            expected: self.receiver.expected,
            incarnation: self.sender.incarnation(),
            acknowledged: self.receiver.peer(),
        };
        packet.truncate(layout.end);
        packet.open_gap(layout.transport, shim::BYTES).map_err(|_| DropReason::NoBuffer)?;
        let end = packet.len();
        let bytes = packet.bytes_mut();
        shim.write(&mut bytes[layout.transport..]);
        shim::set_ip(bytes, layout, protocol::EXPERIMENT, end);
        self.sender.keep(bytes, context.now, self.settings.timeout());
        Ok(Verdict::Forward)
    }

    /// A packet from the peer.
    fn receive(
        &mut self,
        packet: &mut Packet,
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        if layout.fragment != Fragment::No || !shim::is_direct(packet.bytes(), layout) {
            return Err(DropReason::Fragment);
        }
        let shim = Shim::read(packet.bytes(), layout)?;
        if self.is_started && shim.acknowledged == self.sender.incarnation() {
            self.take_acknowledgement(&shim, context);
        }
        if shim.kind != Kind::Data {
            return Ok(Verdict::Consume);
        }
        match self.receiver.arrive(&shim) {
            Arrival::Late => Err(DropReason::OutOfOrder),
            Arrival::Useless(kind) => {
                self.answer(packet.bytes(), layout, (kind, shim.incarnation), context.emitted);
                Err(DropReason::OutOfOrder)
            }
            Arrival::InOrder => {
                let to = (Kind::Ack, shim.incarnation);
                self.answer(packet.bytes(), layout, to, context.emitted);
                packet.truncate(layout.end);
                packet.close_gap(layout.transport, shim::BYTES);
                let end = packet.len();
                shim::set_ip(packet.bytes_mut(), layout, shim.carried, end);
                Ok(Verdict::Forward)
            }
        }
    }

    fn take_acknowledgement(&mut self, shim: &Shim, context: &mut Context<'_>) {
        let timeout = self.settings.timeout();
        if shim.kind == Kind::Reset {
            self.sender.start_again(incarnation(context.random), context.now, timeout);
            repeat(&self.sender, context.emitted);
            return;
        }
        self.sender.acknowledge(shim.expected, context.now, timeout);
        if shim.kind == Kind::Nack && self.sender.goes_back(shim.expected) {
            repeat(&self.sender, context.emitted);
        }
    }

    /// Answers a packet with a header alone, made of the packet's own.
    fn answer(
        &self,
        bytes: &[u8],
        layout: &Layout,
        (kind, acknowledged): (Kind, u32),
        emitted: &mut Emitted,
    ) {
        let end = layout.transport + shim::BYTES;
        let shim = Shim {
            kind,
            carried: protocol::NO_NEXT_HEADER,
            sequence: 0,
            expected: self.receiver.expected,
            incarnation: self.sender.incarnation(),
            acknowledged,
        };
        emitted.with(Direction::Back, &bytes[..end], |bytes| {
            wire::turn_around_addresses(bytes, layout);
            shim::set_ip(bytes, layout, protocol::EXPERIMENT, end);
            shim.write(&mut bytes[layout.transport..]);
        });
    }
}

#[cfg(test)]
mod tests;
