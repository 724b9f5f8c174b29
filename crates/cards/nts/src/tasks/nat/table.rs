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

use super::settings::Settings;
use crate::DropReason;
use crate::aging::{AgingTable, EntryAge, EntryId, KeyedHash, Lookup};
use crate::tasks::tracking::{CLASSES, CLOSING, OPENING, Progress};
use crate::wire::{Endpoint, TcpFlags};

/// How many ports are tried for a new mapping: with half of the ports in use, all tries fail once in
/// 2^128, and with 95% of them once in 700.
const PORT_TRIES: u32 = 128;

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
    is_forward: bool,
    sessions: u32,
}

impl Mapping {
    /// Whether the configuration made it, so that anyone may use it.
    pub(super) fn is_forward(&self) -> bool {
        self.is_forward
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct SessionKey {
    pub(super) mapping: MappingKey,
    /// For ICMP queries the port is 0: their one identifier is the inside port.
    pub(super) remote: Endpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    progress: Progress,
    /// Whether it was opened from outside.
    is_inward: bool,
}

/// Both tables.
pub(super) struct Tables {
    mappings: AgingTable<MappingKey, Mapping, 1>,
    by_external: HashMap<(u8, Endpoint), EntryId, KeyedHash>,
    sessions: AgingTable<SessionKey, Session, CLASSES>,
    hash: KeyedHash,
}

/// What is saved: mappings that are no forwards, then sessions, class by class.
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
            mappings: AgingTable::new(mappings_max, [Duration::MAX], hash),
            by_external: HashMap::with_capacity_and_hasher(2 * mappings_max, hash),
            sessions: AgingTable::new(settings.sessions_max, settings.lifetimes.by_class(), hash),
            hash,
        };
        for forward in &settings.forwards {
            let key = MappingKey { protocol: forward.protocol(), inside: forward.inside() };
            tables.add_mapping(key, forward.external(), true);
        }
        tables
    }

    fn add_mapping(
        &mut self,
        key: MappingKey,
        external: Endpoint,
        is_forward: bool,
    ) -> Option<EntryId> {
        let mapping = Mapping { external, station: None, is_forward, sessions: 0 };
        let id = self.mappings.insert(key, mapping, 0, Timestamp::ZERO)?;
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
    ) -> Result<Endpoint, DropReason> {
        if let Some(mapping) = self.mapping(&key) {
            return Ok(mapping.external);
        }
        let is_family = |address: &&IpAddr| address.is_ipv4() == key.inside.address.is_ipv4();
        let family = settings.external.iter().filter(is_family);
        let count = family.clone().count() as u64;
        let choice = self.hash.hash_one(key.inside.address) % count.max(1);
        let address = family.clone().nth(choice as usize).ok_or(DropReason::PortsExhausted)?;
        let ports = u32::from(settings.ports.last - settings.ports.first) + 1;
        let start = random.next_u32() % ports;
        let external = (0..PORT_TRIES.min(ports))
            .map(|step| Endpoint {
                address: *address,
                port: settings.ports.first + ((start + step) % ports) as u16,
            })
            .find(|external| !self.by_external.contains_key(&(key.protocol, *external)))
            .ok_or(DropReason::PortsExhausted)?;
        self.add_mapping(key, external, false).ok_or(DropReason::TableFull)?;
        Ok(external)
    }

    /// Takes back a mapping that got no session.
    pub(super) fn forget(&mut self, key: &MappingKey) {
        let Some(id) = self.mapping_id(key) else { return };
        let mapping = self.mappings.value(id);
        if mapping.sessions == 0 && !mapping.is_forward {
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
        let next = session.progress.follow(class, flags, session.is_inward != is_inward);
        self.sessions.touch(id, next, now);
    }

    /// Opens a session over a mapping, in place of an old one with the same ends.
    ///
    /// # Errors
    /// The table is full of sessions that have seen replies.
    pub(super) fn open(
        &mut self,
        key: SessionKey,
        is_inward: bool,
        now: Timestamp,
    ) -> Result<(), DropReason> {
        // Making room for the session must not remove its mapping.
        let id = self.mapping_id(&key.mapping).ok_or(DropReason::NoMapping)?;
        self.mappings.value_mut(id).sessions += 1;
        match self.sessions.lookup(&key, now) {
            Lookup::Fresh(old) | Lookup::Expired(old) => self.close(old),
            Lookup::Absent if self.sessions.is_full() => {
                let victim = self.sessions.oldest(OPENING).or(self.sessions.oldest(CLOSING));
                match victim {
                    Some(victim) => self.close(victim),
                    None => {
                        self.release(&key.mapping);
                        return Err(DropReason::TableFull);
                    }
                }
            }
            Lookup::Absent => {}
        }
        let session = Session { progress: Progress::default(), is_inward };
        self.sessions.insert(key, session, OPENING, now);
        Ok(())
    }

    fn close(&mut self, id: EntryId) {
        let (key, _) = self.sessions.remove(id);
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
            self.close(id);
        }
    }

    pub(super) fn save(&self, now: Timestamp) -> Saved {
        let mappings = self.mappings.iter(Timestamp::ZERO);
        Saved {
            mappings: mappings
                .filter(|aged| !aged.value.is_forward)
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
            let is_allowed = settings.is_inside(key.inside.address)
                && settings.is_external(external.address)
                && settings.ports.contains(external.port)
                && key.inside.address.is_ipv4() == external.address.is_ipv4();
            let is_free = !tables.by_external.contains_key(&(key.protocol, *external))
                && tables.mapping_id(key).is_none();
            if is_allowed
                && is_free
                && tables.add_mapping(*key, *external, false).is_some()
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
            if tables.sessions.insert_aged(*key, *session, age, now).is_some() {
                tables.mappings.value_mut(mapping).sessions += 1;
            }
        }
        tables.remove_unused();
        tables
    }

    /// Removes mappings without sessions, except forwards.
    fn remove_unused(&mut self) {
        let unused: Vec<_> = self
            .mappings
            .iter(Timestamp::ZERO)
            .filter(|aged| aged.value.sessions == 0 && !aged.value.is_forward)
            .map(|aged| *aged.key)
            .collect();
        unused.iter().for_each(|key| self.forget(key));
    }

    /// The table's invariants, for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let now = Timestamp::ZERO;
        let count = |key: &MappingKey| {
            self.sessions.iter(now).filter(|aged| aged.key.mapping == *key).count() as u32
        };
        assert_eq!(self.by_external.len(), self.mappings.len());
        for aged in self.mappings.iter(now) {
            let Mapping { external, is_forward, sessions, .. } = *aged.value;
            assert_eq!(sessions, count(aged.key));
            assert!(is_forward || sessions > 0, "{:?} is not used", aged.key);
            let (key, _) = self.by_external(aged.key.protocol, external).unwrap();
            assert_eq!(key, *aged.key);
        }
    }
}
