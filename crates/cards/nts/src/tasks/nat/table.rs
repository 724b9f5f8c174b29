//! Mappings and sessions.
//!
//! A mapping gives an endpoint inside an endpoint outside, the same for whomever it talks to (RFC
//! 4787, REQ-1). A session is one conversation over a mapping. A mapping lives while it has a session;
//! one that stems from a forward lives as long as the configuration.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use rand::RngCore;
use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use super::settings::{EXTERNAL_MAX, Settings};
use crate::DropReason;
use crate::aging::{AgingTable, EntryAge, EntryId, KeyedHash, Lookup};
use crate::tasks::tracking::{
    CLASSES, CLOSING, DATAGRAM_IDLE_MIN, OPENING, Progress, STREAM_IDLE_MIN, is_steady, spare_flow,
};
use crate::wire::{Endpoint, TcpFlags, protocol};

/// Number of ports that are tried for a new mapping: with half of the ports in use, all tries fail once in
/// 2^128, and with 95% of them once in 700.
const PORT_TRIES: u32 = 128;

/// Sessions that one packet removes at most, to give a port back that many of them have used.
const SESSIONS_RECLAIMED_MAX: usize = 64;

/// Ports are kept apart by external address and protocol: TCP, UDP, and ICMP with its identifiers.
const PROTOCOLS: usize = 3;
const PORT_SPACES: usize = EXTERNAL_MAX * PROTOCOLS;
/// Classes of mappings: of each port space those in use and those with closed connections only, each in the order
/// of their last use, then those of the configuration.
const MAPPING_CLASSES: usize = 2 * PORT_SPACES + 1;
const FORWARDS: usize = MAPPING_CLASSES - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct MappingKey {
    pub(super) protocol: u8,
    pub(super) inside: Endpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) external: Endpoint,
    /// The station that the host inside was seen at, for packets that turn around here.
    pub(super) station: Option<[u8; 6]>,
    /// The port space of `external`; `None` where the configuration made the mapping.
    port_space: Option<usize>,
    sessions: u32,
    /// Sessions that are not closed.
    open_sessions: u32,
    /// The last session that was opened; the others follow it.
    newest: Option<EntryId>,
}

impl Mapping {
    /// Whether the configuration made it, so that anyone may use it.
    pub(super) fn is_forward(&self) -> bool {
        self.port_space.is_none()
    }

    fn class(&self) -> usize {
        self.port_space.map_or(FORWARDS, |space| mapping_class(space, self.open_sessions > 0))
    }
}

const fn mapping_class(port_space: usize, is_open: bool) -> usize {
    2 * port_space + is_open as usize
}

fn port_space(settings: &Settings, protocol: u8, external: IpAddr) -> Option<usize> {
    let address = settings.external.iter().position(|address| *address == external)?;
    let protocol = match protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        _ => 2,
    };
    Some(PROTOCOLS * address + protocol)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct SessionKey {
    pub(super) mapping: MappingKey,
    /// For ICMP queries the port is 0: their one identifier is the inside port.
    pub(super) remote: Endpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    progress: Progress,
    /// Whether it was opened from outside.
    is_inward: bool,
    /// The sessions of the same mapping that were opened next before and after it.
    #[serde(skip)]
    older: Option<EntryId>,
    #[serde(skip)]
    newer: Option<EntryId>,
}

/// Mappings of internal endpoints, and the sessions that use them.
pub(super) struct Tables {
    pub(super) mappings: AgingTable<MappingKey, Mapping, MAPPING_CLASSES>,
    by_external: HashMap<(u8, Endpoint), EntryId, KeyedHash>,
    pub(super) sessions: AgingTable<SessionKey, Session, CLASSES>,
    hash: KeyedHash,
    /// Sessions that the packet at hand has followed, first the outward one of a packet that turns around; `None` once it has
    /// opened or changed one.
    pub(super) followed: Option<[Option<EntryId>; 2]>,
}

/// Saved state: mappings that are no forwards, then sessions, class by class.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    mappings: Vec<(MappingKey, Endpoint, Option<[u8; 6]>)>,
    sessions: Vec<(SessionKey, Session, u8, Duration)>,
}

impl Saved {
    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

impl Tables {
    /// The forwards of the settings, and nothing else.
    pub(super) fn new(settings: &Settings, hash: KeyedHash) -> Self {
        // One more than can be in use: a new one is made before room is made for its session.
        let mappings_max = settings.sessions_max + settings.forwards.len() + 1;
        let mut tables = Self {
            mappings: AgingTable::new(mappings_max, [Duration::MAX; MAPPING_CLASSES], hash),
            by_external: HashMap::with_capacity_and_hasher(2 * mappings_max, hash),
            sessions: AgingTable::new(
                settings.sessions_max,
                settings.lifetimes.of_nat_by_class(),
                hash,
            ),
            hash,
            followed: None,
        };
        for forward in &settings.forwards {
            let key = MappingKey { protocol: forward.protocol(), inside: forward.inside() };
            tables.add_mapping(key, forward.external(), None, Timestamp::ZERO);
        }
        tables
    }

    fn add_mapping(
        &mut self,
        key: MappingKey,
        external: Endpoint,
        port_space: Option<usize>,
        now: Timestamp,
    ) -> Option<EntryId> {
        let mapping = Mapping {
            external,
            station: None,
            port_space,
            sessions: 0,
            open_sessions: 0,
            newest: None,
        };
        let id = self.mappings.insert(key, mapping, mapping.class(), now)?;
        self.by_external.insert((key.protocol, external), id);
        Some(id)
    }

    /// The mapping of a host inside.
    pub(super) fn mapping(&self, key: &MappingKey) -> Option<&Mapping> {
        self.mapping_id(key).map(|id| self.mappings.value(id))
    }

    fn mapping_id(&self, key: &MappingKey) -> Option<EntryId> {
        match self.mappings.lookup(key, Timestamp::ZERO) {
            Lookup::Fresh(id) => Some(id),
            Lookup::Expired(_) | Lookup::Absent => None,
        }
    }

    /// The mapping behind an endpoint outside.
    pub(super) fn by_external(
        &self,
        protocol: u8,
        external: Endpoint,
    ) -> Option<(MappingKey, &Mapping)> {
        let id = *self.by_external.get(&(protocol, external))?;
        Some((self.mappings.key(id), self.mappings.value(id)))
    }

    /// The mapping of a host inside, made if it is missing. An address keeps to one external
    /// address (RFC 4787, REQ-2); ports are random (RFC 6056).
    pub(super) fn map(
        &mut self,
        key: MappingKey,
        settings: &Settings,
        random: &mut dyn RngCore,
        now: Timestamp,
    ) -> Result<Endpoint, DropReason> {
        if let Some(mapping) = self.mapping(&key) {
            return Ok(mapping.external);
        }
        let is_family = |address: &&IpAddr| address.is_ipv4() == key.inside.address.is_ipv4();
        let family = settings.external.iter().filter(is_family);
        let count = family.clone().count() as u64;
        let choice = self.hash.hash_one(key.inside.address) % count.max(1);
        let address = *family.clone().nth(choice as usize).ok_or(DropReason::PortsExhausted)?;
        let space =
            port_space(settings, key.protocol, address).ok_or(DropReason::PortsExhausted)?;
        let ports = u32::from(settings.ports.last - settings.ports.first) + 1;
        let start = random.next_u32() % ports;
        let free = (0..PORT_TRIES.min(ports))
            .map(|step| settings.ports.first + ((start + step) % ports) as u16)
            .map(|port| Endpoint { address, port })
            .find(|external| !self.by_external.contains_key(&(key.protocol, *external)));
        let external = free.or_else(|| self.reclaim(key.protocol, space, now));
        let external = external.ok_or(DropReason::PortsExhausted)?;
        let added = self.add_mapping(key, external, Some(space), now);
        added.map(|_| external).ok_or(DropReason::TableFull)
    }

    /// Gives back a port of which all connections are closed, or that was silent for longer than its protocol
    /// asks for. Many sessions over it take several packets.
    fn reclaim(&mut self, protocol: u8, port_space: usize, now: Timestamp) -> Option<Endpoint> {
        // Ports of closed connections go first: nobody misses them. One that is open goes only after the silence that its
        // protocol asks for, or a host that takes many ports could end its neighbours' connections. A mapping goes with
        // its last session, and a session takes time to remove: bounded, one packet pays for at most
        // SESSIONS_RECLAIMED_MAX of them, and the packets after it for the rest.
        let least = if protocol == protocol::TCP { STREAM_IDLE_MIN } else { DATAGRAM_IDLE_MIN };
        let oldest = |is_open| self.mappings.oldest(mapping_class(port_space, is_open));
        let is_silent = |id: &EntryId| self.mappings.idle(*id, now) >= least;
        let victim = oldest(false).or_else(|| oldest(true).filter(is_silent))?;
        let external = self.mappings.value(victim).external;
        for _ in 0..SESSIONS_RECLAIMED_MAX {
            let session = self.mappings.value(victim).newest?;
            self.close(session, now);
            if !self.by_external.contains_key(&(protocol, external)) {
                return Some(external);
            }
        }
        None
    }

    /// Takes back a mapping that got no session.
    pub(super) fn forget(&mut self, key: &MappingKey) {
        let Some(id) = self.mapping_id(key) else { return };
        let mapping = self.mappings.value(id);
        if mapping.sessions == 0 && !mapping.is_forward() {
            let (_, mapping) = self.mappings.remove(id);
            self.by_external.remove(&(key.protocol, mapping.external));
        }
    }

    /// Remembers where a host inside was seen.
    pub(super) fn seen_at(&mut self, key: &MappingKey, station: [u8; 6]) {
        if let Some(id) = self.mapping_id(key) {
            self.mappings.value_mut(id).station = Some(station);
        }
    }

    /// Whether a session is there.
    pub(super) fn has_session(&self, key: &SessionKey, now: Timestamp) -> bool {
        matches!(self.sessions.lookup(key, now), Lookup::Fresh(_))
    }

    /// Whether a session is there and not closed.
    pub(super) fn has_open_session(&self, key: &SessionKey, now: Timestamp) -> bool {
        match self.sessions.lookup(key, now) {
            Lookup::Fresh(id) => self.sessions.class(id) != CLOSING,
            Lookup::Expired(_) | Lookup::Absent => false,
        }
    }

    /// Records a packet of an existing session.
    pub(super) fn follow(
        &mut self,
        key: &SessionKey,
        is_inward: bool,
        flags: Option<TcpFlags>,
        now: Timestamp,
    ) {
        let Lookup::Fresh(id) = self.sessions.lookup(key, now) else { return };
        let class = self.sessions.class(id);
        let session = self.sessions.value_mut(id);
        let before = (class, session.progress);
        let next = session.progress.follow(class, flags, session.is_inward != is_inward);
        let after = (next, session.progress);
        self.sessions.touch(id, next, now);
        self.note_followed(id, is_inward, is_steady(before, after, flags.is_some()));
        let mapping = self.mapping_of(key);
        if class != CLOSING && next == CLOSING {
            self.mappings.value_mut(mapping).open_sessions -= 1;
        }
        self.use_mapping(mapping, now);
    }

    pub(super) fn mapping_of(&self, key: &SessionKey) -> EntryId {
        self.mapping_id(&key.mapping).expect("a session has its mapping")
    }

    /// Moves a mapping to the end of its class, which may be another one now.
    pub(super) fn use_mapping(&mut self, id: EntryId, now: Timestamp) {
        let class = self.mappings.value(id).class();
        self.mappings.touch(id, class, now);
    }

    /// Opens a session over a mapping, in place of an old one with the same ends.
    ///
    /// # Errors
    /// The table is full of sessions that may not be given up ([`spare_flow`]).
    pub(super) fn open(
        &mut self,
        key: SessionKey,
        is_inward: bool,
        now: Timestamp,
    ) -> Result<(), DropReason> {
        // Making room for the session must not remove its mapping.
        let mapping = self.mapping_id(&key.mapping).ok_or(DropReason::NoMapping)?;
        self.mappings.value_mut(mapping).sessions += 1;
        match self.sessions.lookup(&key, now) {
            Lookup::Fresh(old) | Lookup::Expired(old) => self.close(old, now),
            Lookup::Absent if self.sessions.is_full() => match spare_flow(&self.sessions, now) {
                Some(victim) => self.close(victim, now),
                None => {
                    self.release(&key.mapping);
                    return Err(DropReason::TableFull);
                }
            },
            Lookup::Absent => {}
        }
        self.followed = None;
        let progress = Progress::default();
        let session = Session { progress, is_inward, older: None, newer: None };
        let id = self.sessions.insert(key, session, OPENING, now).expect("room was made above");
        self.attach(id, mapping);
        self.use_mapping(mapping, now);
        Ok(())
    }

    /// Adds a session to those of its mapping, which has counted it.
    fn attach(&mut self, id: EntryId, mapping: EntryId) {
        let is_open = self.sessions.class(id) != CLOSING;
        let mapping = self.mappings.value_mut(mapping);
        mapping.open_sessions += u32::from(is_open);
        let older = mapping.newest.replace(id);
        self.sessions.value_mut(id).older = older;
        if let Some(older) = older {
            self.sessions.value_mut(older).newer = Some(id);
        }
    }

    fn close(&mut self, id: EntryId, now: Timestamp) {
        let is_open = self.sessions.class(id) != CLOSING;
        let (key, Session { older, newer, .. }) = self.sessions.remove(id);
        let mapping = self.mapping_of(&key);
        if let Some(older) = older {
            self.sessions.value_mut(older).newer = newer;
        }
        match newer {
            Some(newer) => self.sessions.value_mut(newer).older = older,
            None => self.mappings.value_mut(mapping).newest = older,
        }
        if is_open {
            self.mappings.value_mut(mapping).open_sessions -= 1;
            self.use_mapping(mapping, now);
        }
        self.release(&key.mapping);
    }

    /// One session fewer over a mapping.
    fn release(&mut self, key: &MappingKey) {
        let id = self.mapping_id(key).expect("a session has its mapping");
        self.mappings.value_mut(id).sessions -= 1;
        self.forget(key);
    }

    /// Removes up to `most` expired sessions.
    pub(super) fn remove_expired(&mut self, most: usize, now: Timestamp) {
        for _ in 0..most {
            let Some(id) = self.sessions.expired(now) else { return };
            self.close(id, now);
        }
    }

    pub(super) fn save(&self, now: Timestamp) -> Saved {
        let mappings = self.mappings.iter(Timestamp::ZERO);
        Saved {
            mappings: mappings
                .filter(|aged| !aged.value.is_forward())
                .map(|aged| (*aged.key, aged.value.external, aged.value.station))
                .collect(),
            sessions: self
                .sessions
                .iter(now)
                .map(|aged| (*aged.key, *aged.value, aged.class as u8, aged.left))
                .collect(),
        }
    }

    /// Tables with what was saved. Mappings that the settings do not allow any more are left out,
    /// with their sessions, and so are sessions of which something is wrong.
    pub(super) fn restore(
        saved: &Saved,
        settings: &Settings,
        hash: KeyedHash,
        now: Timestamp,
    ) -> Self {
        let mut tables = Self::new(settings, hash);
        for (key, external, station) in &saved.mappings {
            let space = port_space(settings, key.protocol, external.address);
            let is_allowed = settings.is_inside(key.inside.address)
                && space.is_some()
                && settings.ports.contains(external.port)
                && key.inside.address.is_ipv4() == external.address.is_ipv4();
            let is_free = !tables.by_external.contains_key(&(key.protocol, *external))
                && tables.mapping_id(key).is_none();
            if is_allowed
                && is_free
                && tables.add_mapping(*key, *external, space, now).is_some()
                && let Some(station) = station
            {
                tables.seen_at(key, *station);
            }
        }
        let skipped = saved.sessions.len().saturating_sub(settings.sessions_max);
        for (key, session, class, left) in saved.sessions.iter().skip(skipped) {
            let class = usize::from(*class);
            let is_free = tables.sessions.lookup(key, now) == Lookup::Absent;
            let is_same_family =
                key.remote.address.is_ipv4() == key.mapping.inside.address.is_ipv4();
            if class >= CLASSES || !is_free || !is_same_family {
                continue;
            }
            let Some(mapping) = tables.mapping_id(&key.mapping) else { continue };
            let age = EntryAge { class, left: *left };
            let session = Session { older: None, newer: None, ..*session };
            if let Some(id) = tables.sessions.insert_aged(*key, session, age, now) {
                tables.mappings.value_mut(mapping).sessions += 1;
                tables.attach(id, mapping);
            }
        }
        tables.remove_unused();
        // Their classes are known now; within each the order is that of the saved ones.
        for (key, ..) in &saved.mappings {
            if let Some(id) = tables.mapping_id(key) {
                tables.use_mapping(id, now);
            }
        }
        tables
    }

    /// Removes mappings without sessions, except forwards.
    fn remove_unused(&mut self) {
        let unused: Vec<_> = self
            .mappings
            .iter(Timestamp::ZERO)
            .filter(|aged| aged.value.sessions == 0 && !aged.value.is_forward())
            .map(|aged| *aged.key)
            .collect();
        unused.iter().for_each(|key| self.forget(key));
    }

    /// The table's invariants, for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let now = Timestamp::ZERO;
        let of = |key: &MappingKey, is_counted: fn(usize) -> bool| {
            let sessions = self.sessions.iter(now).filter(|aged| aged.key.mapping == *key);
            sessions.filter(|aged| is_counted(aged.class)).count() as u32
        };
        assert_eq!(self.by_external.len(), self.mappings.len());
        for aged in self.mappings.iter(now) {
            let Mapping { external, sessions, open_sessions, newest, .. } = *aged.value;
            assert_eq!(sessions, of(aged.key, |_| true));
            assert_eq!(open_sessions, of(aged.key, |class| class != CLOSING));
            assert_eq!(aged.class, aged.value.class());
            let list = std::iter::successors(newest, |id| self.sessions.value(*id).older);
            assert!(list.clone().all(|id| self.sessions.key(id).mapping == *aged.key));
            assert_eq!(list.count() as u32, sessions);
            assert!(aged.value.is_forward() || sessions > 0, "{:?} is not used", aged.key);
            let (key, _) = self.by_external(aged.key.protocol, external).unwrap();
            assert_eq!(key, *aged.key);
        }
    }
}
