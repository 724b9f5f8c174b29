//! Firewall: ordered rules, and a table of connections, so that replies to accepted packets pass.
//!
//! The rules say which side may open a flow. TCP connections are followed from SYN to FIN or RST by
//! their flags; sequence numbers are not checked. When the table is full, the oldest flow that has
//! seen no reply is evicted; a flow with a reply never is. Messages of an IPv6 link always pass: neighbour discovery, and
//! those that say which groups a host listens to (RFC 4890, 4.4.1 and 4.2: a firewall that is a bridge is part of the
//! link).
//!
//! Packets of both directions pass a chain's NTs in the same order. So where an NT of the chain translates, a reply has
//! other addresses here than the packet that it replies to:
//!
//! ```text
//!  nat -> firewall    out: rules see the NAT's addresses    replies: inside addresses; known by Packet::origin
//!  firewall -> nat    out: rules see inside addresses       replies: the NAT's addresses; learnt from the NAT
//! ```
//!
//! A connection thus has two flows, as in Linux's connection tracking: the one that opened it, and the one that
//! its packets have before or behind the translation.
//!
//! An ICMP error passes if the packet that it quotes is of a known flow, whichever side it was sent from, and else by
//! the rules (RFC 4890, 4.3.1). It neither prolongs a flow nor ends it (RFC 5382, REQ-10). Later fragments follow
//! their first, in any order.

mod rules;

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

pub(crate) use rules::SCHEMA;
use rules::{Action, Settings};

use super::fragments::{Arrival, Fragments, Sent};
use super::tracking::{self, CLASSES, CLOSING, EXPIRED_PER_PACKET, OPENING, Progress};
use crate::aging::{AgingTable, EntryAge, EntryId, KeyedHash, Lookup};
use crate::config::{Configuration, InvalidConfiguration};
use crate::packet::Translation;
use crate::state::{self, InvalidState};
use crate::tasks::read_ip::read_ip;
use crate::wire::{Flow, IcmpMessage, Layout, TcpFlags, quoted_packet};
use crate::{Context, Direction, DropReason, FlowRule, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 3;

/// A flow that was accepted. The table's key is the flow in its canonical direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Connection {
    /// Whether the sender of the first packet is the canonical flow's destination.
    is_reversed: bool,
    progress: Progress,
    /// The other flow of the opener's packets, where an NT of the chain translates them.
    translated: Option<Translated>,
}

/// The opener's packets elsewhere in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Translated {
    /// As they came from an NT before this one: what the rules saw.
    Before(Flow),
    /// As they left an NT behind this one: what replies answer.
    Behind(Flow),
}

type Table = AgingTable<Flow, Connection, CLASSES>;

pub(crate) struct Firewall {
    hash: KeyedHash,
    active: Option<Active>,
}

struct Active {
    settings: Settings,
    connections: Connections,
    fragments: Fragments<()>,
    /// The connection of the last packet, if it is as it was before that packet.
    steady: Option<EntryId>,
}

/// The table of connections, each of which is found by both of its flows.
struct Connections {
    table: Table,
    /// Connections by their flow behind the NTs that follow.
    by_translated: HashMap<Flow, EntryId, KeyedHash>,
}

/// Flow, connection, class and what is left of its time.
type SavedFlow = (Flow, Connection, u8, Duration);

impl Firewall {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self { hash, active: None }
    }

    /// An empty table for `settings`.
    fn connections(&self, settings: &Settings) -> Connections {
        let most = settings.flows_max;
        Connections {
            table: AgingTable::new(most, settings.lifetimes.by_class(), self.hash),
            by_translated: HashMap::with_capacity_and_hasher(2 * most, self.hash),
        }
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
        let mut connections = self.connections(&settings);
        if let Some(active) = &self.active {
            // Flows stay if the new rules would accept them too; if the new table is smaller, the
            // most recently used stay.
            let old = &active.connections.table;
            let skipped = old.len().saturating_sub(settings.flows_max);
            for old in old.iter(now).skip(skipped) {
                let opener = match old.value.translated {
                    Some(Translated::Before(seen)) => seen,
                    _ => old.value.opener(old.key),
                };
                if settings.decide(&opener) == Action::Accept {
                    let age = EntryAge { class: old.class, left: old.left };
                    connections.restore(*old.key, *old.value, age, now);
                }
            }
        }
        let fragments = Fragments::new(self.hash);
        self.active = Some(Active { settings, connections, fragments, steady: None });
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
        active.connections.remove_expired(context.now);
        active.steady = None;
        active.decide(packet, &layout, context).unwrap_or_else(Verdict::Drop)
    }

    fn learn(&mut self, translation: &Translation, now: Timestamp) -> bool {
        let Some(active) = &mut self.active else { return false };
        let Translation { followed, flow, fragment } = *translation;
        let is_news = active.connections.learn(&followed, flow, now);
        if let Some(id) = fragment {
            active.fragments.record_translated(&followed, &flow, id, now);
        }
        is_news
    }

    fn flow_rule(&self) -> Option<FlowRule> {
        let active = self.active.as_ref()?;
        if active.settings.stateful {
            Some(active.connections.rule(active.steady?))
        } else {
            Some(FlowRule::PASS)
        }
    }

    fn follow(
        &mut self,
        rule: &FlowRule,
        _: (&mut [u8], &Layout),
        context: &mut Context<'_>,
    ) -> bool {
        let Some(active) = &mut self.active else { return false };
        let Active { connections, fragments, .. } = active;
        let [ticket, ..] = rule.tickets;
        if ticket.is_some_and(|ticket| !connections.table.is_steady(ticket, context.now)) {
            return false;
        }
        connections.remove_expired(context.now);
        fragments.remove_expired(context.now, context.emitted);
        if let Some(ticket) = ticket {
            connections.table.touch_steady(ticket, context.now);
        }
        true
    }

    fn holds(&self, rule: &FlowRule, _: [u8; 6], now: Timestamp) -> bool {
        let Some(Active { connections, .. }) = &self.active else { return false };
        let [ticket, ..] = rule.tickets;
        ticket.is_none_or(|ticket| connections.table.is_steady(ticket, now))
    }

    fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let flows: Vec<SavedFlow> = match &self.active {
            None => Vec::new(),
            Some(active) => active
                .connections
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
        let mut connections = self.connections(&active.settings);
        for (flow, connection, class, left) in flows {
            let class = usize::from(class);
            let is_sound = class <= CLOSING && flow.canonical() == (flow, false);
            if !is_sound || connections.table.lookup(&flow, now) != Lookup::Absent {
                return Err(InvalidState::Damaged(format!("a wrong flow {flow:?}")));
            }
            connections.restore(flow, connection, EntryAge { class, left }, now);
        }
        self.active.as_mut().expect("looked at above").connections = connections;
        Ok(())
    }
}

/// A layout with the addresses that replies to the packet have here.
fn as_known(packet: &Packet, layout: Layout) -> Layout {
    match packet.origin() {
        Some(Flow { source, destination, .. }) => Layout { source, destination, ..layout },
        None => layout,
    }
}

impl Connection {
    /// The flow of the opener's packets, of which `key` is the canonical one.
    fn opener(&self, key: &Flow) -> Flow {
        if self.is_reversed { key.reversed() } else { *key }
    }
}

impl Connections {
    fn remove_expired(&mut self, now: Timestamp) {
        for _ in 0..EXPIRED_PER_PACKET {
            let Some(id) = self.table.expired(now) else { return };
            self.remove(id);
        }
    }

    fn remove(&mut self, id: EntryId) {
        self.forget_translation(id);
        self.table.remove(id);
    }

    fn forget_translation(&mut self, id: EntryId) {
        let connection = self.table.value_mut(id);
        if let Some(Translated::Behind(flow)) = connection.translated {
            connection.translated = None;
            // With its next packet it takes these addresses back.
            self.table.end_tickets(id);
            self.by_translated.remove(&flow.canonical().0);
        }
    }

    /// Adds a connection as it was in another table.
    fn restore(&mut self, key: Flow, connection: Connection, age: EntryAge, now: Timestamp) {
        let translated = connection.translated;
        if let Some(id) = self.table.insert_aged(key, connection, age, now)
            && let Some(Translated::Behind(flow)) = translated
        {
            self.table.value_mut(id).translated = None;
            self.translate(id, flow);
        }
    }

    /// The connection of a flow, which may be that of its packets behind a translation.
    fn lookup(&self, flow: &Flow, now: Timestamp) -> Lookup {
        let (key, _) = flow.canonical();
        match self.table.lookup(&key, now) {
            Lookup::Absent => match self.by_translated.get(&key) {
                Some(id) => self.table.lookup(&self.table.key(*id), now),
                None => Lookup::Absent,
            },
            found => found,
        }
    }

    /// A packet that is followed by one flow left as one of another. What the opener's packets become, replies answer. Says
    /// whether this was news.
    fn learn(&mut self, followed: &Flow, flow: Flow, now: Timestamp) -> bool {
        let (key, _) = followed.canonical();
        let Lookup::Fresh(id) = self.table.lookup(&key, now) else { return false };
        let connection = self.table.value(id);
        if connection.opener(&key) != *followed {
            return false;
        }
        let translated = connection.translated;
        let is_known = translated == Some(Translated::Behind(flow));
        let is_translated_before = matches!(translated, Some(Translated::Before(_)));
        let is_news = !is_known && !is_translated_before && flow.canonical().0 != key;
        if is_news {
            self.forget_translation(id);
            self.translate(id, flow);
        }
        is_news
    }

    /// The last connection that was given these addresses has them: a NAT gives its ports again.
    fn translate(&mut self, id: EntryId, flow: Flow) {
        let key = flow.canonical().0;
        if let Some(former) = self.by_translated.get(&key).copied() {
            self.forget_translation(former);
        }
        self.by_translated.insert(key, id);
        self.table.value_mut(id).translated = Some(Translated::Behind(flow));
    }

    /// A new connection; its packets are of `known` where the rules saw `flow`.
    fn open(&mut self, flow: Flow, known: Flow, now: Timestamp) -> Result<(), DropReason> {
        if self.table.is_full() {
            let victim = self.table.oldest(OPENING).or_else(|| self.table.oldest(CLOSING));
            self.remove(victim.ok_or(DropReason::TableFull)?);
        }
        let (key, is_reversed) = known.canonical();
        let translated = (flow != known).then_some(Translated::Before(flow));
        let connection = Connection { is_reversed, progress: Progress::default(), translated };
        self.table.insert(key, connection, OPENING, now);
        Ok(())
    }

    /// A packet of a connection. Says whether it left the connection as it was.
    fn follow(
        &mut self,
        id: EntryId,
        known: &Flow,
        flags: Option<TcpFlags>,
        now: Timestamp,
    ) -> bool {
        let (class, key) = (self.table.class(id), self.table.key(id));
        let connection = self.table.value_mut(id);
        let is_reply = connection.opener(&key) != *known
            && connection.translated != Some(Translated::Behind(*known));
        let before = (class, connection.progress);
        let next = connection.progress.follow(class, flags, is_reply);
        let after = (next, connection.progress);
        self.table.touch(id, next, now);
        tracking::is_steady(before, after, flags.is_some())
    }

    /// The rule for packets of a connection.
    fn rule(&self, id: EntryId) -> FlowRule {
        let tickets = [Some(self.table.ticket(id)), None, None, None];
        FlowRule { tickets, ..FlowRule::PASS }
    }
}

impl Active {
    fn decide(
        &mut self,
        packet: &mut Packet,
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        match self.fragments.arrive(packet.bytes(), layout, context)? {
            Arrival::Follow(()) => return Ok(Verdict::Forward),
            Arrival::Held => return Ok(Verdict::Consume),
            Arrival::Decide => {}
        }
        let decided = self.decide_first(packet, layout, context.now);
        if decided.is_ok() {
            let sent = Sent::of(packet.bytes(), layout);
            self.fragments.record_sent(&as_known(packet, *layout), sent, context.now);
        }
        let accepted = decided.ok().map(|()| ((), Direction::Onward));
        self.fragments.decide(layout, accepted, context.emitted, |_| ());
        decided.map(|()| Verdict::Forward)
    }

    fn decide_first(
        &mut self,
        packet: &mut Packet,
        layout: &Layout,
        now: Timestamp,
    ) -> Result<(), DropReason> {
        let bytes = packet.bytes();
        let flow = Flow::of(bytes, layout);
        let message = IcmpMessage::of(bytes, layout);
        if message == Some(IcmpMessage::OfLink) {
            return Ok(());
        }
        if !self.settings.stateful {
            return self.by_rules(&flow);
        }
        match message {
            Some(IcmpMessage::Error) => {
                let is_related = self.is_about_a_connection(packet, layout, now);
                return if is_related { Ok(()) } else { self.by_rules(&flow) };
            }
            Some(IcmpMessage::Other) => return self.by_rules(&flow),
            _ => {}
        }
        let flags = TcpFlags::of(bytes, layout);
        let known = packet.origin().unwrap_or(flow);
        match self.connections.lookup(&known, now) {
            Lookup::Fresh(id) => {
                // The ports of a closed connection may be reused.
                let is_closed = self.connections.table.class(id) == CLOSING;
                if !(is_closed && flags.is_some_and(tracking::opens)) {
                    let is_steady = self.connections.follow(id, &known, flags, now);
                    self.steady = is_steady.then_some(id);
                    packet.follow_as(known);
                    return Ok(());
                }
                self.by_rules(&flow)?;
                self.connections.remove(id);
            }
            Lookup::Expired(id) => self.connections.remove(id),
            Lookup::Absent => {}
        }
        self.may_open(&flow, message, flags)?;
        self.connections.open(flow, known, now)?;
        packet.follow_as(known);
        Ok(())
    }

    /// Whether an ICMP error quotes a packet of a connection, or a later fragment of a packet that was let through.
    fn is_about_a_connection(&self, packet: &Packet, layout: &Layout, now: Timestamp) -> bool {
        let bytes = packet.bytes();
        let Some(quoted) = quoted_packet(bytes, layout) else { return false };
        if quoted.has_transport_header() {
            let known = packet.origin().unwrap_or_else(|| Flow::of(bytes, &quoted));
            return matches!(self.connections.lookup(&known, now), Lookup::Fresh(_));
        }
        self.fragments.sent(&as_known(packet, quoted), now).is_some()
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
}

#[cfg(test)]
mod tests;
