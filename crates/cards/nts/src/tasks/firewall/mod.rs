//! Firewall: ordered rules, and a table of connections, so that replies to accepted packets pass.
//!
//! The rules say which side may open a flow. TCP connections are followed from SYN to FIN or RST by
//! their flags; sequence numbers are not checked. When the table is full, the oldest flow that has
//! seen no reply is evicted; a flow with a reply never is. Neighbour discovery always passes, since
//! no IPv6 host can do without it (RFC 4890, 4.4.1).
//!
//! Packets of both directions pass a chain's NTs in the same order. Behind a NAT or a load balancer, rules see
//! the new addresses of what goes out; flows are known by the old ones, which replies have there
//! ([`Packet::origin`]). Before a NAT, replies still have other addresses than what they reply to, and match no flow.
//!
//! An ICMP error passes if the packet that it quotes is of a known flow, whichever side it was sent from, and else by
//! the rules (RFC 4890, 4.3.1). It neither prolongs a flow nor ends it (RFC 5382, REQ-10). Later fragments follow
//! their first, in any order.

mod rules;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

pub(crate) use rules::SCHEMA;
use rules::{Action, Settings};

use super::fragments::{Arrival, Fragments};
use super::tracking::{self, CLASSES, CLOSING, EXPIRED_PER_PACKET, OPENING, Progress};
use crate::aging::{AgingTable, EntryAge, KeyedHash, Lookup};
use crate::config::{Configuration, InvalidConfiguration};
use crate::state::{self, InvalidState};
use crate::wire::{self, Flow, IcmpMessage, Layout, TcpFlags, quoted_flow};
use crate::{Context, Direction, DropReason, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 2;
/// A flow that was accepted. The table's key is the flow in its canonical direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Connection {
    /// Whether the sender of the first packet is the canonical flow's destination.
    is_reversed: bool,
    progress: Progress,
    /// The flow of the first packet as the rules saw it, where that is another one than the table's.
    seen: Option<Flow>,
}

type Table = AgingTable<Flow, Connection, CLASSES>;

pub(crate) struct Firewall {
    hash: KeyedHash,
    active: Option<Active>,
}

struct Active {
    settings: Settings,
    table: Table,
    fragments: Fragments<()>,
}

/// Flow, connection, class and what is left of its time.
type SavedFlow = (Flow, Connection, u8, Duration);

impl Firewall {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self { hash, active: None }
    }

    /// An empty table for `settings`.
    fn table(&self, settings: &Settings) -> Table {
        AgingTable::new(settings.flows_max, settings.lifetimes.by_class(), self.hash)
    }
}

impl NetworkTask for Firewall {
    fn configure(
        &mut self,
        now: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        settings.check()?;
        let mut table = self.table(&settings);
        if let Some(active) = &self.active {
            // Flows stay if the new rules would accept them too; if the new table is smaller, the
            // most recently used stay.
            let skipped = active.table.len().saturating_sub(settings.flows_max);
            for old in active.table.iter(now).skip(skipped) {
                let known = if old.value.is_reversed { old.key.reversed() } else { *old.key };
                let opener = old.value.seen.unwrap_or(known);
                if settings.decide(&opener) == Action::Accept {
                    let age = EntryAge { class: old.class, left: old.left };
                    table.insert_aged(*old.key, *old.value, age, now);
                }
            }
        }
        let fragments = Fragments::new(self.hash);
        self.active = Some(Active { settings, table, fragments });
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        let Some(active) = &mut self.active else {
            return Verdict::Drop(DropReason::Unconfigured);
        };
        let layout = match wire::read_ip(packet.bytes(), &active.settings.non_ip) {
            Ok(layout) => layout,
            Err(verdict) => return verdict,
        };
        active.remove_expired(context.now);
        active.decide(packet, &layout, context).unwrap_or_else(Verdict::Drop)
    }

    fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let flows: Vec<SavedFlow> = match &self.active {
            None => Vec::new(),
            Some(active) => active
                .table
                .iter(now)
                .map(|aged| (*aged.key, *aged.value, aged.class as u8, aged.left))
                .collect(),
        };
        state::write(SCHEMA.nt_type, STATE_VERSION, &flows, out);
    }

    fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let flows: Vec<SavedFlow> = state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        let Some(active) = &self.active else {
            return Err(InvalidState::DoesNotFit { entries: flows.len(), allowed: 0 });
        };
        let allowed = active.settings.flows_max;
        if flows.len() > allowed {
            return Err(InvalidState::DoesNotFit { entries: flows.len(), allowed });
        }
        let mut table = self.table(&active.settings);
        for (flow, connection, class, left) in flows {
            let class = usize::from(class);
            let is_sound = class <= CLOSING && flow.canonical() == (flow, false);
            if !is_sound || table.lookup(&flow, now) != Lookup::Absent {
                return Err(InvalidState::Damaged(format!("a wrong flow {flow:?}")));
            }
            table.insert_aged(flow, connection, EntryAge { class, left }, now);
        }
        self.active.as_mut().expect("looked at above").table = table;
        Ok(())
    }
}

impl Active {
    fn remove_expired(&mut self, now: Timestamp) {
        for _ in 0..EXPIRED_PER_PACKET {
            let Some(id) = self.table.expired(now) else { return };
            self.table.remove(id);
        }
    }

    fn decide(
        &mut self,
        packet: &Packet,
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        match self.fragments.arrive(packet.bytes(), layout, context)? {
            Arrival::Follow(()) => return Ok(Verdict::Forward),
            Arrival::Held => return Ok(Verdict::Consume),
            Arrival::Decide => {}
        }
        let decided = self.decide_first(packet, layout, context.now);
        let accepted = decided.ok().map(|()| ((), Direction::Onward));
        self.fragments.decide(layout, accepted, context.emitted, |_| ());
        decided.map(|()| Verdict::Forward)
    }

    fn decide_first(
        &mut self,
        packet: &Packet,
        layout: &Layout,
        now: Timestamp,
    ) -> Result<(), DropReason> {
        let bytes = packet.bytes();
        let flow = Flow::of(bytes, layout);
        let message = IcmpMessage::of(bytes, layout);
        if message == Some(IcmpMessage::NeighbourDiscovery) {
            return Ok(());
        }
        if !self.settings.stateful {
            return self.by_rules(&flow);
        }
        match message {
            Some(IcmpMessage::Error) => {
                let quoted = quoted_flow(bytes, layout).map(|(_, flow)| flow);
                let known = quoted.map(|flow| packet.origin().unwrap_or(flow).canonical().0);
                let is_related = known
                    .is_some_and(|flow| matches!(self.table.lookup(&flow, now), Lookup::Fresh(_)));
                return if is_related { Ok(()) } else { self.by_rules(&flow) };
            }
            Some(IcmpMessage::Other) => return self.by_rules(&flow),
            _ => {}
        }
        let flags = TcpFlags::of(bytes, layout);
        let known = packet.origin().unwrap_or(flow);
        let (key, is_reversed) = known.canonical();
        match self.table.lookup(&key, now) {
            Lookup::Fresh(id) => {
                // The ports of a closed connection may be reused.
                let is_reopened =
                    self.table.class(id) == CLOSING && flags.is_some_and(tracking::opens);
                if !is_reopened {
                    self.follow(id, is_reversed, flags, now);
                    return Ok(());
                }
                self.by_rules(&flow)?;
                self.table.remove(id);
            }
            Lookup::Expired(id) => {
                self.table.remove(id);
            }
            Lookup::Absent => {}
        }
        self.may_open(&flow, message, flags)?;
        self.open(flow, known, now)
    }

    fn by_rules(&self, flow: &Flow) -> Result<(), DropReason> {
        match self.settings.decide(flow) {
            Action::Accept => Ok(()),
            Action::Drop => Err(DropReason::Rule),
        }
    }

    /// Whether a packet that belongs to no flow may open one.
    fn may_open(
        &self,
        flow: &Flow,
        message: Option<IcmpMessage>,
        flags: Option<TcpFlags>,
    ) -> Result<(), DropReason> {
        self.by_rules(flow)?;
        let is_first = match (message, flags) {
            (Some(IcmpMessage::Query { is_request, .. }), _) => is_request,
            (_, Some(flags)) => {
                tracking::opens(flags) || self.settings.pick_up && !flags.syn() && !flags.rst()
            }
            _ => true,
        };
        if is_first { Ok(()) } else { Err(DropReason::NoConnection) }
    }

    /// A new flow; `known` is what the table is to know it by.
    fn open(&mut self, flow: Flow, known: Flow, now: Timestamp) -> Result<(), DropReason> {
        if self.table.is_full() {
            let victim = self.table.oldest(OPENING).or_else(|| self.table.oldest(CLOSING));
            self.table.remove(victim.ok_or(DropReason::TableFull)?);
        }
        let (key, is_reversed) = known.canonical();
        let seen = (flow != known).then_some(flow);
        let connection = Connection { is_reversed, progress: Progress::default(), seen };
        self.table.insert(key, connection, OPENING, now);
        Ok(())
    }

    /// A packet of a known flow.
    fn follow(
        &mut self,
        id: crate::aging::EntryId,
        is_reversed: bool,
        flags: Option<TcpFlags>,
        now: Timestamp,
    ) {
        let class = self.table.class(id);
        let connection = self.table.value_mut(id);
        let is_reply = connection.is_reversed != is_reversed;
        let next = connection.progress.follow(class, flags, is_reply);
        self.table.touch(id, next, now);
    }
}

#[cfg(test)]
mod tests;
