//! Load balancer: packets to a service go to one of its backends, chosen by Maglev's consistent
//! hashing, and answers come back with the service's address.
//!
//! A table of flows keeps a flow at its backend when others come or go, and says which packets of a backend
//! are answers: those of flows in the table, in the name of the service. All others are the backend's own,
//! such as its answers to a health check that asked it directly, or its own requests from the port of the
//! service; they keep their address. Where the table is full of flows that may not be given up, new ones are
//! dropped, since nobody could translate their answers. Cards with the same settings make the same choices,
//! so after a loss of the table a flow is back at its backend with the next packet of its client.
//!
//! ICMP errors about a flow are translated in both directions with the packet that they quote: one about an answer
//! goes to the backend, and one about a client's packet names the service again. Later fragments go where their first
//! went, in whatever order they come.

mod maglev;
mod settings;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::Duration;

use snic_domain::Timestamp;

use settings::{Service, Settings, Unmatched};

pub(crate) use settings::SCHEMA;

use super::fragments::{Arrival, Fragments, Sent};
use super::tracking::{
    CLASSES, CLOSING, EXPIRED_PER_PACKET, OPENING, Progress, is_steady, opens, spare_flow,
};
use crate::aging::{AgingTable, EntryAge, EntryId, KeyedHash, Lookup};
use crate::config::{Configuration, InvalidConfiguration};
use crate::flow_rules::Rewrite;
use crate::state::{self, InvalidState};
use crate::tasks::read_ip::read_ip;
use crate::wire::{
    self, Endpoint, Flow, Fragment, Frame, IcmpMessage, Layout, Side, TcpFlags, Verified,
    quoted_packet, rewrite, rewrite_quoted,
};
use crate::{Context, Direction, DropReason, FlowRule, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 2;
/// The hash of flows is the same on all cards, so that they choose the same backend.
const FLOW_HASH: KeyedHash = KeyedHash(0x6D61_676C_6576_0003, 0);

/// A flow that has its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Assignment {
    backend: Endpoint,
    progress: Progress,
    /// The client has asked the backend itself since, from the same port: answers are to that.
    is_bypassed: bool,
}

type Table = AgingTable<Flow, Assignment, CLASSES>;
type SavedFlow = (Flow, Assignment, u8, Duration);

pub(crate) struct LoadBalancer {
    hash: KeyedHash,
    active: Option<Active>,
}

struct Active {
    settings: Settings,
    /// Services by what clients send to, and by what backends send from.
    by_service: HashMap<(u8, Endpoint), usize, KeyedHash>,
    by_backend: HashMap<(u8, Endpoint), usize, KeyedHash>,
    /// Maglev's table of each service.
    slots: Vec<Vec<u16>>,
    flows: Table,
    /// The change to one end of a packet; `None` for packets that are left alone.
    fragments: Fragments<Option<(Side, Endpoint)>>,
    /// The flow of the last packet, if it is as it was before that packet, and the packet's new end.
    steady: Option<(EntryId, Rewrite)>,
}

impl LoadBalancer {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self { hash, active: None }
    }
}

impl Active {
    fn new(settings: Settings, hash: KeyedHash) -> Self {
        let mut by_service = HashMap::with_hasher(hash);
        let mut by_backend = HashMap::with_hasher(hash);
        let mut slots = Vec::new();
        for (index, service) in settings.services.iter().enumerate() {
            by_service.insert((service.protocol(), service.endpoint()), index);
            for backend in &service.backends {
                by_backend.insert((service.protocol(), backend.endpoint()), index);
            }
            slots.push(maglev::table(&candidates(service), settings.slots()));
        }
        let flows = AgingTable::new(settings.flows_max, settings.lifetimes.by_class(), hash);
        let fragments = Fragments::new(hash);
        Self { settings, by_service, by_backend, slots, flows, fragments, steady: None }
    }

    fn remove_expired(&mut self, now: Timestamp) {
        for _ in 0..EXPIRED_PER_PACKET {
            let Some(id) = self.flows.expired(now) else { return };
            self.flows.remove(id);
        }
    }

    fn saved(&self, now: Timestamp) -> Vec<SavedFlow> {
        let flows = self.flows.iter(now);
        flows.map(|aged| (*aged.key, *aged.value, aged.class as u8, aged.left)).collect()
    }

    /// Takes over flows whose service still has their backend.
    fn take_over(&mut self, saved: &[SavedFlow], now: Timestamp) {
        let skipped = saved.len().saturating_sub(self.settings.flows_max);
        for (flow, assignment, class, left) in saved.iter().skip(skipped) {
            let class = usize::from(*class);
            let service = self.by_service.get(&service_key(flow));
            let backend = self.by_backend.get(&(flow.protocol, assignment.backend));
            let is_listed = service.is_some() && service == backend;
            if is_listed && class < CLASSES && self.flows.lookup(flow, now) == Lookup::Absent {
                let age = EntryAge { class, left: *left };
                self.flows.insert_aged(*flow, *assignment, age, now);
            }
        }
    }
}

fn candidates(service: &Service) -> Vec<maglev::Candidate> {
    let candidate = |backend: &settings::Backend| {
        let Endpoint { address, port } = backend.endpoint();
        maglev::Candidate { name: format!("{address} {port}"), weight: backend.weight }
    };
    service.backends.iter().map(candidate).collect()
}

/// Service that a flow from a client is sent to.
fn service_key(flow: &Flow) -> (u8, Endpoint) {
    (flow.protocol, Endpoint { address: flow.destination, port: flow.destination_port })
}

impl NetworkTask for LoadBalancer {
    fn configure(
        &mut self,
        now: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        settings.check()?;
        let mut new = Active::new(settings, self.hash);
        if let Some(old) = &self.active {
            new.take_over(&old.saved(now), now);
        }
        self.active = Some(new);
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        let Some(active) = &mut self.active else {
            return Verdict::Drop(DropReason::Unconfigured);
        };
        let mut layout = match read_ip(packet.bytes(), &active.settings.non_ip) {
            Ok(layout) => layout,
            Err(verdict) => return verdict,
        };
        active.remove_expired(context.now);
        active.steady = None;
        let about = Flow::followed(packet.bytes(), &layout);
        let before = Flow::of(packet.bytes(), &layout);
        let verdict = active.balance(packet.bytes_mut(), &mut layout, context);
        let after = Flow::of(packet.bytes(), &layout);
        let target = |flow: &Flow| (flow.destination, flow.destination_port);
        if verdict == Ok(Verdict::Forward) && target(&after) != target(&before) {
            packet.translated_from(about);
        }
        if after != before {
            packet.translated_to(&layout);
        }
        verdict.unwrap_or_else(Verdict::Drop)
    }

    fn flow_rule(&self) -> Option<FlowRule> {
        let active = self.active.as_ref()?;
        let (id, rewrite) = active.steady?;
        let tickets = [Some(active.flows.ticket(id)), None, None, None];
        Some(FlowRule { tickets, rewrite, ..FlowRule::PASS })
    }

    fn follow(
        &mut self,
        rule: &FlowRule,
        _: (&mut [u8], &Layout),
        context: &mut Context<'_>,
    ) -> bool {
        let (Some(active), [Some(ticket), ..]) = (&mut self.active, rule.tickets) else {
            return false;
        };
        if !active.flows.is_steady(ticket, context.now) {
            return false;
        }
        active.remove_expired(context.now);
        active.fragments.remove_expired(context.now, context.emitted);
        active.flows.touch_steady(ticket, context.now);
        true
    }

    fn holds(&self, rule: &FlowRule, _: [u8; 6], now: Timestamp) -> bool {
        let (Some(active), [Some(ticket), ..]) = (&self.active, rule.tickets) else { return false };
        active.flows.is_steady(ticket, now)
    }

    fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let flows = self.active.as_ref().map_or_else(Vec::new, |active| active.saved(now));
        state::write(SCHEMA.nt_type, STATE_VERSION, &flows, out);
    }

    fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let saved: Vec<SavedFlow> = state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        let allowed = self.active.as_ref().map_or(0, |active| active.settings.flows_max);
        if saved.len() > allowed {
            return Err(InvalidState::DoesNotFit { entries: saved.len(), allowed });
        }
        if let Some(active) = &self.active {
            let mut new = Active::new(active.settings.clone(), self.hash);
            new.take_over(&saved, now);
            self.active = Some(new);
        }
        Ok(())
    }
}

impl Active {
    fn balance(
        &mut self,
        bytes: &mut [u8],
        layout: &mut Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let done = match IcmpMessage::of(bytes, layout) {
            Some(IcmpMessage::Error) => {
                self.translate_error(bytes, layout, context.now)?.then_some(Verdict::Forward)
            }
            Some(IcmpMessage::Query { is_request: true, .. }) => {
                self.answer_echo(bytes, layout).then_some(Verdict::Reply)
            }
            _ => None,
        };
        if let Some(verdict) = done {
            return Ok(verdict);
        }
        if layout.fragment != Fragment::No && !self.is_ours(layout) {
            // A first fragment may be of a request to a backend itself; a later one has no ports.
            let (flow, flags) = (Flow::of(bytes, layout), TcpFlags::of(bytes, layout));
            self.note_direct(&flow, flags, context.now);
            return Ok(Verdict::Forward);
        }
        let (before, sent) = (*layout, Sent::of(bytes, layout));
        let change = match self.fragments.arrive(bytes, layout, context)? {
            Arrival::Held => return Ok(Verdict::Consume),
            Arrival::Follow(change) => change,
            Arrival::Decide => {
                let change = self.direct(bytes, layout, context.now);
                let decision = change.ok().map(|change| (change, Direction::Onward));
                self.fragments.decide(&before, decision, context.emitted, |frame| {
                    let waited = wire::parse(frame);
                    if let (Ok(Frame::Ip(mut layout)), Ok(Some((side, to)))) = (waited, change) {
                        rewrite(frame, &mut layout, side, to);
                    }
                });
                change?
            }
        };
        if let Some((side, to)) = change {
            rewrite(bytes, layout, side, to);
        }
        if layout.has_transport_header() {
            self.fragments.record_sent(layout, sent, context.now);
        }
        Ok(Verdict::Forward)
    }

    /// The change to one end of a packet that has ports; `None` where it is left alone.
    fn direct(
        &mut self,
        bytes: &[u8],
        layout: &Layout,
        now: Timestamp,
    ) -> Result<Option<(Side, Endpoint)>, DropReason> {
        let flow = Flow::of(bytes, layout);
        let flags = TcpFlags::of(bytes, layout);
        let source = Endpoint { address: flow.source, port: flow.source_port };
        let change = if let Some(service) = self.by_service.get(&service_key(&flow)).copied() {
            Some((Side::Destination, self.assign(service, flow, flags, now)?))
        } else if let Some(service) = self.by_backend.get(&(flow.protocol, source)).copied() {
            let endpoint = self.settings.services[service].endpoint();
            let is_answer = self.follow_answer(&flow, endpoint, flags, now);
            if !is_answer && self.settings.unmatched == Unmatched::Drop {
                return Err(DropReason::NoConnection);
            }
            is_answer.then_some((Side::Source, endpoint))
        } else {
            None
        };
        if change.is_none() {
            self.note_direct(&flow, flags, now);
        }
        Ok(change)
    }

    /// Whether a fragment may be of a service or a backend. In IPv6 only the first one tells the protocol.
    fn is_ours(&self, layout: &Layout) -> bool {
        self.settings.services.iter().any(|service| {
            (service.protocol() == layout.protocol || !layout.is_ipv4())
                && (service.endpoint().address == layout.destination
                    || service.backends.iter().any(|b| b.endpoint().address == layout.source))
        })
    }

    /// The backend of a packet from a client.
    fn assign(
        &mut self,
        service: usize,
        flow: Flow,
        flags: Option<TcpFlags>,
        now: Timestamp,
    ) -> Result<Endpoint, DropReason> {
        if let Lookup::Fresh(id) = self.flows.lookup(&flow, now) {
            let is_reopened = self.flows.class(id) == CLOSING && flags.is_some_and(TcpFlags::syn);
            if !is_reopened {
                let class = self.flows.class(id);
                let assignment = self.flows.value_mut(id);
                assignment.is_bypassed = false;
                let before = (class, assignment.progress);
                let next = assignment.progress.follow(class, flags, false);
                let after = (next, assignment.progress);
                let backend = assignment.backend;
                self.flows.touch(id, next, now);
                if is_steady(before, after, flags.is_some()) {
                    let rewrite = Rewrite { destination: Some(backend), ..Rewrite::default() };
                    self.steady = Some((id, rewrite));
                }
                return Ok(backend);
            }
        }
        let backend = self.choose(service, &flow)?;
        match self.flows.lookup(&flow, now) {
            Lookup::Fresh(id) | Lookup::Expired(id) => {
                self.flows.remove(id);
            }
            Lookup::Absent if self.flows.is_full() => {
                let victim = spare_flow(&self.flows, now).ok_or(DropReason::TableFull)?;
                self.flows.remove(victim);
            }
            Lookup::Absent => {}
        }
        let assignment = Assignment { backend, progress: Progress::default(), is_bypassed: false };
        self.flows.insert(flow, assignment, OPENING, now).ok_or(DropReason::TableFull)?;
        Ok(backend)
    }

    fn choose(&self, service: usize, flow: &Flow) -> Result<Endpoint, DropReason> {
        let slots = &self.slots[service];
        let slot = (FLOW_HASH.hash_one(flow) % slots.len() as u64) as usize;
        match slots[slot] {
            maglev::EMPTY => Err(DropReason::NoBackend),
            index => Ok(self.settings.services[service].backends[usize::from(index)].endpoint()),
        }
    }

    /// Whether a packet of a backend answers a flow that was sent to it; if so, the flow has seen a reply.
    fn follow_answer(
        &mut self,
        answer: &Flow,
        service: Endpoint,
        flags: Option<TcpFlags>,
        now: Timestamp,
    ) -> bool {
        let flow = Flow {
            destination: service.address,
            destination_port: service.port,
            ..answer.reversed()
        };
        let backend = Endpoint { address: answer.source, port: answer.source_port };
        let Lookup::Fresh(id) = self.flows.lookup(&flow, now) else { return false };
        let class = self.flows.class(id);
        let assignment = self.flows.value_mut(id);
        if assignment.backend != backend || assignment.is_bypassed {
            return false;
        }
        let before = (class, assignment.progress);
        let next = assignment.progress.follow(class, flags, true);
        let after = (next, assignment.progress);
        self.flows.touch(id, next, now);
        if is_steady(before, after, flags.is_some()) {
            let rewrite = Rewrite { source: Some(service), ..Rewrite::default() };
            self.steady = Some((id, rewrite));
        }
        true
    }

    /// A packet that is left alone. If a client asks a backend itself, from a port that it also uses with the
    /// service, answers to the two look alike: the last request is the one that is answered. A TCP connection
    /// through the service stays what it is until it is closed, for no host opens the same one twice.
    fn note_direct(&mut self, flow: &Flow, flags: Option<TcpFlags>, now: Timestamp) {
        let to = Endpoint { address: flow.destination, port: flow.destination_port };
        let Some(service) = self.by_backend.get(&(flow.protocol, to)).copied() else { return };
        let Endpoint { address, port } = self.settings.services[service].endpoint();
        let known = Flow { destination: address, destination_port: port, ..*flow };
        let Lookup::Fresh(id) = self.flows.lookup(&known, now) else { return };
        let is_over = self.flows.class(id) == CLOSING && flags.is_some_and(opens);
        let assignment = self.flows.value_mut(id);
        assignment.is_bypassed |= assignment.backend == to && (flags.is_none() || is_over);
        if assignment.is_bypassed {
            self.flows.end_tickets(id);
        }
    }

    /// Translates an ICMP error about a packet to a service or from one of its backends: without it path MTU
    /// discovery and traceroute fail (RFC 5508, REQ-4 and REQ-5, which ask this of a NAT). Says whether it is one.
    fn translate_error(
        &self,
        bytes: &mut [u8],
        layout: &mut Layout,
        now: Timestamp,
    ) -> Result<bool, DropReason> {
        let services = &self.settings.services;
        let is_to_us = services.iter().any(|s| s.endpoint().address == layout.destination);
        let Some(mut quoted) = quoted_packet(bytes, layout) else {
            return if is_to_us { Err(DropReason::Malformed) } else { Ok(false) };
        };
        if !quoted.has_transport_header() {
            let is_translated = self.translate_fragment_error(bytes, layout, quoted, now)?;
            let is_unknown = !is_translated && is_to_us;
            return if is_unknown { Err(DropReason::NoConnection) } else { Ok(is_translated) };
        }
        let flow = Flow::of(bytes, &quoted);
        let Some((side, end)) = self.as_it_was_sent(&flow, now)? else { return Ok(false) };
        check_error(bytes, layout)?;
        rewrite_quoted(bytes, &mut quoted, side, end);
        let end = Endpoint { port: 0, ..end };
        match side {
            // It goes to the backend, whose answer it is about.
            Side::Source => rewrite(bytes, layout, Side::Destination, end),
            // It comes from the backend: the client knows the service only.
            Side::Destination if layout.source == flow.destination => {
                rewrite(bytes, layout, Side::Source, end);
            }
            Side::Destination => {}
        }
        wire::fill(bytes, layout);
        Ok(true)
    }

    /// Translates an ICMP error that quotes a later fragment. Says whether the packet that it is of was translated.
    fn translate_fragment_error(
        &self,
        bytes: &mut [u8],
        layout: &mut Layout,
        quoted: Layout,
        now: Timestamp,
    ) -> Result<bool, DropReason> {
        let Some(sent) = self.fragments.sent(&quoted, now) else { return Ok(false) };
        if (sent.source, sent.destination) == (quoted.source, quoted.destination) {
            return Ok(false);
        }
        check_error(bytes, layout)?;
        let is_from_backend = layout.source == quoted.destination;
        sent.translate_error(bytes, layout, quoted, is_from_backend);
        Ok(true)
    }

    /// The end of a quoted packet that was another one when its sender sent it; `None` where it was not translated.
    fn as_it_was_sent(
        &self,
        quoted: &Flow,
        now: Timestamp,
    ) -> Result<Option<(Side, Endpoint)>, DropReason> {
        let request = quoted.reversed();
        if self.by_service.contains_key(&service_key(&request)) {
            // An answer in the name of the service, whatever the client has asked since.
            let assignment = self.assignment(&request, now).ok_or(DropReason::NoConnection)?;
            return Ok(Some((Side::Source, assignment.backend)));
        }
        let (protocol, receiver) = service_key(quoted);
        let Some(service) = self.by_backend.get(&(protocol, receiver)).copied() else {
            return Ok(None);
        };
        let endpoint = self.settings.services[service].endpoint();
        let request =
            Flow { destination: endpoint.address, destination_port: endpoint.port, ..*quoted };
        let assignment = self.assignment(&request, now);
        let is_through =
            assignment.is_some_and(|known| known.backend == receiver && !known.is_bypassed);
        Ok(is_through.then_some((Side::Destination, endpoint)))
    }

    /// The assignment of a client's flow with a service, if the flow is in the table.
    fn assignment(&self, flow: &Flow, now: Timestamp) -> Option<&Assignment> {
        let Lookup::Fresh(id) = self.flows.lookup(flow, now) else { return None };
        Some(self.flows.value(id))
    }

    /// Answers an echo request to a service, since no backend has its address. Says whether it is one.
    fn answer_echo(&self, bytes: &mut [u8], layout: &Layout) -> bool {
        let mut services = self.settings.services.iter();
        let is_to_service =
            services.any(|service| service.endpoint().address == layout.destination);
        if !is_to_service || layout.fragment != Fragment::No {
            return false;
        }
        wire::turn_around_addresses(bytes, layout);
        let reply = if layout.is_ipv4() { 0 } else { 129 };
        let code = bytes[layout.transport + 1];
        wire::replace_bytes(bytes, layout.transport + 2, layout.transport, &[reply, code]);
        true
    }
}

/// Whether an ICMP error is whole and undamaged: its translation makes its checksum right.
fn check_error(bytes: &[u8], layout: &Layout) -> Result<(), DropReason> {
    if layout.fragment != Fragment::No {
        return Err(DropReason::Fragment);
    }
    let is_damaged = wire::verify(bytes, layout) == Verified::Wrong;
    if is_damaged { Err(DropReason::BadChecksum) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
