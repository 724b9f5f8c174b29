//! NAT: addresses and ports inside are replaced by a few outside (NAPT), as RFC 4787 (UDP), RFC 5382
//! (TCP) and RFC 5508 (ICMP) ask for; IPv6 works the same where it is configured.
//!
//! ```text
//!  from inside, to elsewhere        source becomes external           on
//!  from inside, to an external      both are replaced (hairpin)       back
//!  to an external, mapping found    destination becomes inside        on
//!  ICMP error about a session       as well, and the packet quoted    on, or back after a hairpin
//!  neither inside nor external      left alone                        on
//!  from inside, to a group          dropped, but for neighbour discovery
//! ```
//!
//! Where all ports are in use, a new mapping gets the one that has only closed connections for the longest time,
//! then one that was silent for longer than its protocol asks for (RFC 5382, REQ-5: 2 hours and 4 minutes
//! for TCP; RFC 4787, REQ-5: 2 minutes for UDP). One that is in use is never taken; the host that asks for one more gets
//! an ICMP error (RFC 5508, REQ-8).
//!
//! Later fragments follow their first one, in whatever order they come. What cannot be translated is
//! dropped, never let through with an address from inside.

mod rules;
mod settings;
mod table;

use std::net::IpAddr;

use snic_domain::Timestamp;

use settings::{Filtering, Settings};
use table::{MappingKey, Saved, SessionKey, Tables};

pub(crate) use settings::SCHEMA;

use super::fragments::{Arrival, Fragments, Sent};
use super::icmp_errors::{ErrorBudget, IcmpError};
use super::tracking::{self, EXPIRED_PER_PACKET};
use crate::aging::KeyedHash;
use crate::config::{Configuration, InvalidConfiguration};
use crate::state::{self, InvalidState};
use crate::tasks::read_ip::read_ip;
use crate::wire::{
    self, Endpoint, Flow, Fragment, Frame, IcmpMessage, Layout, Side, TcpFlags, Verified, protocol,
    quoted_packet, replace_identification, rewrite, rewrite_quoted, send_back,
};
use crate::{Context, Direction, DropReason, FlowRule, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 1;

pub(crate) struct Nat {
    hash: KeyedHash,
    active: Option<Active>,
}

struct Active {
    settings: Settings,
    tables: Tables,
    fragments: Fragments<Translation>,
    errors: ErrorBudget,
    /// Whether the last packet was between hosts that are not translated.
    has_passed: bool,
}

/// Translation that the first fragment of a packet was given.
#[derive(Debug, Clone, Copy, Default)]
struct Translation {
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    /// It went back, to this station.
    back_to: Option<Option<[u8; 6]>>,
    /// Another identification, where that of another host's packet is the same.
    id: Option<u16>,
}

impl Nat {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self { hash, active: None }
    }
}

impl NetworkTask for Nat {
    fn configure(
        &mut self,
        now: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        settings.check()?;
        let tables = match &self.active {
            Some(active) => Tables::restore(&active.tables.save(now), &settings, self.hash, now),
            None => Tables::new(&settings, self.hash),
        };
        let fragments = Fragments::new(self.hash);
        let errors = ErrorBudget::default();
        self.active = Some(Active { settings, tables, fragments, errors, has_passed: false });
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
        active.tables.remove_expired(EXPIRED_PER_PACKET, context.now);
        active.tables.begin_packet();
        active.has_passed = false;
        let (came, before) = (layout, Flow::followed(packet.bytes(), &layout));
        let verdict = active.translate(packet.bytes_mut(), &mut layout, context);
        if layout.source != came.source {
            packet.translated_from(before);
        }
        if layout != came {
            packet.translated_to(&layout);
        }
        verdict.unwrap_or_else(Verdict::Drop)
    }

    fn flow_rule(&self) -> Option<FlowRule> {
        let active = self.active.as_ref()?;
        if active.has_passed { Some(FlowRule::PASS) } else { active.tables.rule() }
    }

    fn follow(
        &mut self,
        rule: &FlowRule,
        (bytes, _): (&mut [u8], &Layout),
        context: &mut Context<'_>,
    ) -> bool {
        let (Some(active), Some(station)) = (&mut self.active, wire::source_station(bytes)) else {
            return false;
        };
        if !active.tables.holds(rule, station, context.now) {
            return false;
        }
        active.tables.remove_expired(EXPIRED_PER_PACKET, context.now);
        if rule.tickets.iter().any(Option::is_some) {
            active.fragments.remove_expired(context.now, context.emitted);
            active.tables.follow_rule(rule, context.now);
        }
        true
    }

    fn holds(&self, rule: &FlowRule, from: [u8; 6], now: Timestamp) -> bool {
        self.active.as_ref().is_some_and(|active| active.tables.holds(rule, from, now))
    }

    fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let saved = self.active.as_ref().map(|active| active.tables.save(now));
        state::write(SCHEMA.nt_type, STATE_VERSION, &saved, out);
    }

    fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let saved: Option<Saved> = state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        let (Some(saved), Some(active)) = (saved, &mut self.active) else { return Ok(()) };
        let (entries, allowed) = (saved.sessions(), active.settings.sessions_max);
        if entries > allowed {
            return Err(InvalidState::DoesNotFit { entries, allowed });
        }
        active.tables = Tables::restore(&saved, &active.settings, self.hash, now);
        Ok(())
    }
}

/// Link-local, multicast and broadcast destinations: no host behind a NAT has these.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unicast_link_local(),
    }
}

/// The ends of a packet, as sessions name them.
struct Ends {
    protocol: u8,
    source: Endpoint,
    destination: Endpoint,
}

impl Ends {
    /// `None` for what has neither ports nor an identifier.
    fn of(flow: &Flow, is_query: bool) -> Option<Self> {
        let has_ports = matches!(flow.protocol, protocol::TCP | protocol::UDP);
        (has_ports || is_query).then_some(Self {
            protocol: flow.protocol,
            source: Endpoint { address: flow.source, port: flow.source_port },
            destination: Endpoint { address: flow.destination, port: flow.destination_port },
        })
    }

    fn mapping(&self, inside: Endpoint) -> MappingKey {
        MappingKey { protocol: self.protocol, inside }
    }

    /// The session over `mapping` with `remote`.
    fn session(&self, mapping: MappingKey, remote: Endpoint) -> SessionKey {
        let is_query = !matches!(self.protocol, protocol::TCP | protocol::UDP);
        let port = if is_query { 0 } else { remote.port };
        SessionKey { mapping, remote: Endpoint { port, ..remote } }
    }
}

impl Active {
    fn translate(
        &mut self,
        bytes: &mut [u8],
        layout: &mut Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let (source, destination) = (layout.source, layout.destination);
        let message = IcmpMessage::of(bytes, layout);
        if message == Some(IcmpMessage::OfLink) {
            return Ok(Verdict::Forward);
        }
        let is_outward = self.settings.is_inside(source);
        if is_local(destination) {
            // Nobody outside can answer it, and it would show its sender's address there.
            return if is_outward { Err(DropReason::NoMapping) } else { Ok(Verdict::Forward) };
        }
        let is_to_us = self.settings.is_external(destination);
        if message == Some(IcmpMessage::Error)
            && let Some(verdict) = self.translate_error(bytes, layout, context.now)?
        {
            return Ok(verdict);
        }
        match (is_outward, is_to_us) {
            (false, false) if self.settings.is_inside(destination) => {
                return Err(DropReason::NoMapping);
            }
            (false, false) => return Ok(self.pass()),
            (true, false) if self.settings.is_inside(destination) => return Ok(self.pass()),
            _ => {}
        }
        match self.fragments.arrive(bytes, layout, context)? {
            Arrival::Follow(translation) => return Ok(translation.apply(bytes, layout)),
            Arrival::Held => return Ok(Verdict::Consume),
            Arrival::Decide => {}
        }
        let (before, sent) = (*layout, Sent::of(bytes, layout));
        let verdict = self.translate_first(bytes, layout, (is_outward, is_to_us), context);
        if is_outward && matches!(verdict, Err(DropReason::PortsExhausted | DropReason::TableFull))
        {
            // RFC 5508, REQ-8. Nobody outside gets one: it would tell that there is a NAT.
            IcmpError::prohibited(bytes, before).send(&mut self.errors, context);
        }
        let id = if verdict.is_ok() { self.record(bytes, layout, sent, context) } else { None };
        let changed = |old: IpAddr, new: IpAddr| (old != new).then_some(new);
        let translation = Translation {
            source: changed(before.source, layout.source),
            destination: changed(before.destination, layout.destination),
            back_to: (verdict == Ok(Verdict::Reply)).then(|| bytes[..6].try_into().ok()),
            id,
        };
        let direction = translation.back_to.map_or(Direction::Onward, |_| Direction::Back);
        let decision = verdict.ok().map(|_| (translation, direction));
        self.fragments.decide(&before, decision, context.emitted, |frame| {
            translation.apply_to(frame);
        });
        verdict
    }

    /// A packet between hosts that are not translated.
    fn pass(&mut self) -> Verdict {
        self.has_passed = true;
        Verdict::Forward
    }

    /// Remembers a packet in fragments whose first one was translated; another identification, where it gets one.
    fn record(
        &mut self,
        bytes: &mut [u8],
        layout: &mut Layout,
        sent: Sent,
        context: &mut Context<'_>,
    ) -> Option<u16> {
        let now = context.now;
        let id = self.fragments.other_identification(layout, &sent, (&mut *context.random, now));
        if let Some(id) = id {
            replace_identification(bytes, layout, id);
        }
        self.fragments.record_sent(layout, sent, context.now);
        id
    }

    /// Translates a packet that has a transport header, and is no ICMP error.
    fn translate_first(
        &mut self,
        bytes: &mut [u8],
        layout: &mut Layout,
        (is_outward, is_to_us): (bool, bool),
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let flow = Flow::of(bytes, layout);
        let is_query = matches!(IcmpMessage::of(bytes, layout), Some(IcmpMessage::Query { .. }));
        let ends = Ends::of(&flow, is_query).ok_or(DropReason::UnsupportedProtocol)?;
        match (is_outward, is_to_us) {
            (true, true) => self.turn_around(bytes, layout, &ends, context),
            (true, false) => self.send_out(bytes, layout, &ends, context),
            _ => self.let_in(bytes, layout, &ends, context.now),
        }
    }

    /// A packet from inside: its source becomes external.
    fn send_out(
        &mut self,
        bytes: &mut [u8],
        layout: &mut Layout,
        ends: &Ends,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let external = self.outward_session(bytes, layout, ends, context)?;
        rewrite(bytes, layout, Side::Source, external);
        Ok(Verdict::Forward)
    }

    /// The session of a packet from inside, opened if need be; the endpoint that stands for its source.
    fn outward_session(
        &mut self,
        bytes: &[u8],
        layout: &Layout,
        ends: &Ends,
        context: &mut Context<'_>,
    ) -> Result<Endpoint, DropReason> {
        let flags = TcpFlags::of(bytes, layout);
        let key = ends.mapping(ends.source);
        let session = ends.session(key, ends.destination);
        if self.may_open(&session, flags, context.now) {
            let is_reply = matches!(
                IcmpMessage::of(bytes, layout),
                Some(IcmpMessage::Query { is_request: false, .. })
            );
            if is_reply || flags.is_some_and(|flags| !tracking::opens(flags)) {
                return Err(DropReason::NoConnection);
            }
            let is_new = self.tables.mapping(&key).is_none();
            self.tables.map(key, &self.settings, context.random, context.now)?;
            let opened = self.tables.open(session, false, context.now);
            if opened.is_err() && is_new {
                self.tables.forget(&key);
            }
            opened?;
        }
        self.tables.follow(&session, false, flags, context.now);
        let station: [u8; 6] = bytes[6..12].try_into().expect("six bytes of a parsed frame");
        self.tables.seen_at(&key, station);
        let mapping = self.tables.mapping(&key).ok_or(DropReason::NoMapping)?;
        Ok(mapping.external)
    }

    /// Whether a packet needs a session opened: there is none, or a new one replaces a closed one.
    fn may_open(&self, session: &SessionKey, flags: Option<TcpFlags>, now: Timestamp) -> bool {
        match flags {
            Some(flags) if tracking::opens(flags) => !self.tables.has_open_session(session, now),
            _ => !self.tables.has_session(session, now),
        }
    }

    /// A packet to an external address: its destination becomes what is behind it.
    fn let_in(
        &mut self,
        bytes: &mut [u8],
        layout: &mut Layout,
        ends: &Ends,
        now: Timestamp,
    ) -> Result<Verdict, DropReason> {
        let flags = TcpFlags::of(bytes, layout);
        let inside = self.inward_session(ends, ends.source, flags, now)?;
        rewrite(bytes, layout, Side::Destination, inside);
        Ok(Verdict::Forward)
    }

    /// The session of a packet to an external endpoint; the endpoint inside.
    fn inward_session(
        &mut self,
        ends: &Ends,
        remote: Endpoint,
        flags: Option<TcpFlags>,
        now: Timestamp,
    ) -> Result<Endpoint, DropReason> {
        let (key, mapping) = self
            .tables
            .by_external(ends.protocol, ends.destination)
            .ok_or(DropReason::NoMapping)?;
        let is_open_to_all =
            mapping.is_forward() || self.settings.filtering == Filtering::EndpointIndependent;
        let session = ends.session(key, remote);
        if self.may_open(&session, flags, now) {
            let is_first = flags.is_none_or(tracking::opens);
            let is_known = self.tables.has_session(&session, now);
            if !(is_open_to_all || is_known) || !is_first {
                return Err(DropReason::NoConnection);
            }
            self.tables.open(session, true, now)?;
        }
        self.tables.follow(&session, true, flags, now);
        Ok(key.inside)
    }

    /// A packet from inside to an external address goes back inside, with the external endpoint of its
    /// sender (RFC 4787, REQ-9).
    fn turn_around(
        &mut self,
        bytes: &mut [u8],
        layout: &mut Layout,
        ends: &Ends,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let is_mapped = self.tables.by_external(ends.protocol, ends.destination).is_some();
        if !is_mapped {
            return Err(DropReason::NoMapping);
        }
        let flags = TcpFlags::of(bytes, layout);
        let external = self.outward_session(bytes, layout, ends, context)?;
        let inside = self.inward_session(ends, external, flags, context.now)?;
        rewrite(bytes, layout, Side::Source, external);
        rewrite(bytes, layout, Side::Destination, inside);
        let target = self.tables.mapping(&ends.mapping(inside)).and_then(|mapping| mapping.station);
        send_back(bytes, target);
        Ok(Verdict::Reply)
    }

    /// An ICMP error (RFC 5508, section 4): the packet that it quotes says whose it is, not its own addresses, since
    /// any router on the way may send one (RFC 4787, REQ-12a). No session is prolonged or ended (REQ-6; RFC 5382,
    /// REQ-10). `None` for an error between hosts that are not translated.
    fn translate_error(
        &mut self,
        bytes: &mut [u8],
        layout: &mut Layout,
        now: Timestamp,
    ) -> Result<Option<Verdict>, DropReason> {
        let quoted = quoted_packet(bytes, layout);
        let is_from_us = self.settings.is_external(layout.destination);
        let is_to_inside = quoted.is_some_and(|quoted| self.settings.is_inside(quoted.destination));
        let is_local_error = self.settings.is_inside(layout.destination);
        if !is_from_us && (is_local_error || !is_to_inside) {
            // What stays inside, what comes to the inside past the NAT, and what is about hosts outside.
            let shows_inside = self.settings.is_inside(layout.source) && !is_local_error;
            return if shows_inside { Err(DropReason::NoConnection) } else { Ok(None) };
        }
        if layout.fragment != Fragment::No {
            return Err(DropReason::Fragment);
        }
        if wire::verify(bytes, layout) == Verified::Wrong {
            return Err(DropReason::BadChecksum);
        }
        let mut quoted = quoted.ok_or(DropReason::Malformed)?;
        if !quoted.has_transport_header() {
            return self.translate_fragment_error(bytes, layout, quoted, now).map(Some);
        }
        let flow = Flow::of(bytes, &quoted);
        let is_query = matches!(IcmpMessage::of(bytes, &quoted), Some(IcmpMessage::Query { .. }));
        let ends = Ends::of(&flow, is_query).ok_or(DropReason::UnsupportedProtocol)?;
        let no_session = DropReason::NoConnection;
        let mut sent_by = None;
        if is_from_us {
            // About a packet that went out, or around: its source is external.
            let found = self.tables.by_external(ends.protocol, ends.source);
            let (key, mapping) = found.ok_or(no_session)?;
            let remote = if is_to_inside {
                self.tables.mapping(&ends.mapping(ends.destination)).ok_or(no_session)?.external
            } else {
                ends.destination
            };
            if !self.tables.has_session(&ends.session(key, remote), now) {
                return Err(no_session);
            }
            sent_by = Some((key.inside, mapping.station));
        }
        if is_to_inside {
            // About a packet that came in: its destination is inside.
            let key = ends.mapping(ends.destination);
            let external = self.tables.mapping(&key).ok_or(no_session)?.external;
            if !self.tables.has_session(&ends.session(key, ends.source), now) {
                return Err(no_session);
            }
            rewrite_quoted(bytes, &mut quoted, Side::Destination, external);
            rewrite(bytes, layout, Side::Source, Endpoint { port: 0, ..external });
        }
        if let Some((inside, station)) = sent_by {
            rewrite_quoted(bytes, &mut quoted, Side::Source, inside);
            rewrite(bytes, layout, Side::Destination, Endpoint { port: 0, ..inside });
            if is_to_inside {
                send_back(bytes, station);
            }
        }
        wire::fill(bytes, layout);
        let is_hairpin = is_from_us && is_to_inside;
        Ok(Some(if is_hairpin { Verdict::Reply } else { Verdict::Forward }))
    }

    /// An ICMP error that quotes a later fragment: the packet that it is of says whose it is.
    fn translate_fragment_error(
        &self,
        bytes: &mut [u8],
        layout: &mut Layout,
        quoted: Layout,
        now: Timestamp,
    ) -> Result<Verdict, DropReason> {
        let sent = self.fragments.sent(&quoted, now).ok_or(DropReason::NoConnection)?;
        let is_hairpin = sent.source != quoted.source && sent.destination != quoted.destination;
        sent.translate_error(bytes, layout, quoted, true);
        if !is_hairpin {
            return Ok(Verdict::Forward);
        }
        send_back(bytes, Some(sent.station));
        Ok(Verdict::Reply)
    }
}

impl Translation {
    /// The same for a fragment that has waited for its first.
    fn apply_to(&self, frame: &mut [u8]) {
        if let Ok(Frame::Ip(mut layout)) = wire::parse(frame) {
            self.apply(frame, &mut layout);
        }
    }

    /// Gives a later fragment the addresses of its first.
    fn apply(&self, bytes: &mut [u8], layout: &mut Layout) -> Verdict {
        let ends = [(Side::Source, self.source), (Side::Destination, self.destination)];
        for (side, address) in ends {
            if let Some(address) = address {
                rewrite(bytes, layout, side, Endpoint { address, port: 0 });
            }
        }
        if let Some(id) = self.id {
            replace_identification(bytes, layout, id);
        }
        match self.back_to {
            Some(station) => {
                send_back(bytes, station);
                Verdict::Reply
            }
            None => Verdict::Forward,
        }
    }
}

#[cfg(test)]
mod rfc_tests;
#[cfg(test)]
mod tests;
