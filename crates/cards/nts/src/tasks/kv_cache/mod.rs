//! Key-value cache: reads of memcached over UDP are answered from values that were read before.
//!
//! The NT is in the path between clients and one server. A `get` whose keys are all cached is
//! answered; any other request goes on. Answers to a `get` of one key fill the cache on their way
//! back. A write takes its key out before it goes on, so nobody reads a value older than a write that
//! passed, whatever order packets take behind the card (`order`), and however late it takes effect: expiry times
//! and delays of flushes end values here too (`expiry`). A request that is not understood, and data over TCP to the
//! server's port, may have written anything: they empty the cache, and nothing is filled for `unread_expiry_s`.
//!
//! Writers that do not pass this card are not seen: a value is served for `age_max_ms` at most.

mod expiry;
mod order;
mod store;

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use snic_domain::Timestamp;

use expiry::{Expiries, SavedExpiries};
use order::Order;
use store::{Cached, SavedItem, Store};

use super::memcached::{self, HEADER_BYTES, Header, KeyWrite, Keys, MemcachedRequest, Writer};
use crate::aging::KeyedHash;
use crate::config::{Configuration, Field, InvalidConfiguration, Kind, NON_IP, NonIp, Schema};
use crate::state::{self, InvalidState};
use crate::tasks::read_ip::read_ip;
use crate::wire::{self, Flow, Fragment, Layout, Verified, protocol, read_u16};
use crate::{Context, DropReason, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 2;
/// Largest datagram that is answered: what memcached itself sends at most in one.
const ANSWER_BYTES_MAX: usize = 1_400;
/// Memory for values and keys: what the save area takes, with a reserve.
const STORE_BYTES_MAX: usize = 14 << 20;
/// Bytes of an item besides its value when it is saved.
const ITEM_BYTES: usize = 296;

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "kv-cache",
    version: 1,
    fields: &[
        Field::required("server", Kind::Address, "The memcached server."),
        Field::optional(
            "port",
            Kind::Integer { min: 1, max: 65_535 },
            "Its UDP port; 11211 by default.",
        ),
        Field::optional(
            "items_max",
            Kind::Integer { min: 1, max: 32_768 },
            "Values that are cached at once; 4096 by default.",
        ),
        Field::optional(
            "value_bytes_max",
            Kind::Integer { min: 1, max: 1_300 },
            "The largest value that is cached; 1100 by default.",
        ),
        Field::optional(
            "age_max_ms",
            Kind::Integer { min: 1, max: 3_600_000 },
            "How long a value is served after it was read from the server; 10000 by default.",
        ),
        Field::optional(
            "settling_ms",
            Kind::Integer { min: 1, max: 60_000 },
            "Longer than a packet ever takes to the server and back; 1000 by default.",
        ),
        Field::optional(
            "unread_expiry_s",
            Kind::Integer { min: 0, max: DAYS_30_S },
            "The longest expiry and delay in requests that are not read here: TCP, the binary protocol, what is not understood. For that long after one nothing is cached; 0 where they have none; 2592000, 30 days, by default.",
        ),
        NON_IP,
    ],
};

/// The longest delay that memcached takes.
const DAYS_30_S: u64 = 30 * 24 * 60 * 60;

fn unread_by_default() -> u64 {
    DAYS_30_S
}
fn port_by_default() -> u16 {
    11_211
}
fn items_by_default() -> usize {
    4_096
}
fn value_by_default() -> usize {
    1_100
}
fn age_by_default() -> u64 {
    10_000
}
fn settling_by_default() -> u64 {
    1_000
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Settings {
    server: IpAddr,
    #[serde(default = "port_by_default")]
    port: u16,
    #[serde(default = "items_by_default")]
    items_max: usize,
    #[serde(default = "value_by_default")]
    value_bytes_max: usize,
    #[serde(default = "age_by_default")]
    age_max_ms: u64,
    #[serde(default = "settling_by_default")]
    settling_ms: u64,
    #[serde(default)]
    non_ip: NonIp,
    #[serde(default = "unread_by_default")]
    unread_expiry_s: u64,
}

impl Settings {
    fn settling(&self) -> Duration {
        Duration::from_millis(self.settling_ms)
    }

    fn travel_max(&self) -> Duration {
        order::travel_max(self.settling())
    }
}

pub(crate) struct KvCache {
    hash: KeyedHash,
    active: Option<Active>,
}

struct Active {
    settings: Settings,
    hash: KeyedHash,
    store: Store,
    order: Order,
    expiries: Expiries,
}

/// State that is saved.
type Saved = (Vec<SavedItem>, Option<SavedExpiries>);

impl KvCache {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self { hash, active: None }
    }
}

impl NetworkTask for KvCache {
    fn configure(
        &mut self,
        now: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        let bytes = settings.items_max * (settings.value_bytes_max + ITEM_BYTES);
        if bytes > STORE_BYTES_MAX {
            let allowed = format!(
                "items_max * (value_bytes_max + {ITEM_BYTES}) up to {STORE_BYTES_MAX} bytes"
            );
            return Err(InvalidConfiguration::field("items_max", settings.items_max, allowed));
        }
        let mut new = Active::new(settings, self.hash);
        // Reads and writes on their way are forgotten: nothing is filled until they are over.
        new.order.block(now);
        if let Some(old) = &self.active
            && (old.settings.server, old.settings.port) == (new.settings.server, new.settings.port)
        {
            new.store.restore(&old.store.save(now), now);
            new.expiries =
                Expiries::restore(&old.expiries.save(now), new.settings.travel_max(), now);
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
        active.pass(packet, layout, context.now)
    }

    fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let saved: Saved = match &self.active {
            Some(active) => (active.store.save(now), Some(active.expiries.save(now))),
            None => (Vec::new(), None),
        };
        state::write(SCHEMA.nt_type, STATE_VERSION, &saved, out);
    }

    fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let (items, expiries): Saved = state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        let Some(active) = &mut self.active else { return Ok(()) };
        let allowed = active.settings.items_max;
        if items.len() > allowed {
            return Err(InvalidState::DoesNotFit { entries: items.len(), allowed });
        }
        let (keys, allowed) =
            (expiries.as_ref().map_or(0, SavedExpiries::keys), SavedExpiries::allowed());
        if keys > allowed {
            return Err(InvalidState::DoesNotFit { entries: keys, allowed });
        }
        let mut new = Active::new(active.settings.clone(), self.hash);
        new.store.restore(&items, now);
        new.order.block(now);
        if let Some(expiries) = expiries {
            new.expiries = Expiries::restore(&expiries, new.settings.travel_max(), now);
        }
        *active = new;
        Ok(())
    }
}

impl Active {
    fn new(settings: Settings, hash: KeyedHash) -> Self {
        let store = Store::new(
            settings.items_max,
            settings.value_bytes_max,
            Duration::from_millis(settings.age_max_ms),
            hash,
        );
        let order = Order::new(settings.settling(), hash);
        let expiries = Expiries::new(settings.travel_max(), hash);
        Self { settings, hash, store, order, expiries }
    }

    fn pass(&mut self, packet: &mut Packet, layout: Layout, now: Timestamp) -> Verdict {
        let flow = Flow::of(packet.bytes(), &layout);
        let is_request =
            (flow.destination, flow.destination_port) == (self.settings.server, self.settings.port);
        let is_answer =
            (flow.source, flow.source_port) == (self.settings.server, self.settings.port);
        let is_later = matches!(layout.fragment, Fragment::Later { .. });
        match (layout.protocol, is_request, is_answer) {
            // It has no ports, so it may belong to any request; over IPv6 its protocol may not be that of its first.
            (protocol, ..) if is_later && layout.destination == self.settings.server => {
                let is_data = layout.is_ipv4() && protocol == protocol::UDP;
                if is_data {
                    self.forget_all(now)
                } else {
                    self.forget_unread(now)
                }
                Verdict::Forward
            }
            (protocol::TCP, true, _) => {
                if tcp_data_bytes(packet.bytes(), &layout) > 0 {
                    self.forget_unread(now);
                }
                Verdict::Forward
            }
            (protocol::UDP, true, _) => self.pass_request(packet, layout, flow, now),
            (protocol::UDP, _, true) => {
                self.pass_answer(packet.bytes(), &layout, flow, now);
                Verdict::Forward
            }
            _ => Verdict::Forward,
        }
    }

    /// Any key may have changed.
    fn forget_all(&mut self, now: Timestamp) {
        self.store.clear();
        self.order.block(now);
    }

    /// A request passes that is not read: any key may have changed, and may end at any time.
    fn forget_unread(&mut self, now: Timestamp) {
        self.forget_all(now);
        self.expiries.forget(Duration::from_secs(self.settings.unread_expiry_s), now);
    }

    fn pass_request(
        &mut self,
        packet: &mut Packet,
        layout: Layout,
        flow: Flow,
        now: Timestamp,
    ) -> Verdict {
        let bytes = packet.bytes();
        if wire::verify(bytes, &layout) == Verified::Wrong {
            return Verdict::Drop(DropReason::BadChecksum);
        }
        let (datagram, missing) = datagram(bytes, &layout);
        let Some(header) = Header::read(datagram) else {
            // What is shorter than a header is no request, but the rest may come in other fragments.
            if missing > 0 {
                self.forget_unread(now);
            }
            return Verdict::Forward;
        };
        if header.datagrams != 1 {
            self.forget_unread(now);
            return Verdict::Forward;
        }
        let request = (flow, header.request_id);
        let mut commands = memcached::requests(&datagram[HEADER_BYTES..], missing);
        let (first, second) = (commands.next(), commands.next());
        let is_single = second.is_none();
        if let (Some(MemcachedRequest::Get(keys)), true) = (&first, is_single) {
            let mut answer = [0; ANSWER_BYTES_MAX];
            // A server does not look at the sequence number; its own answers begin with 0.
            let length = self.answer(header, keys, &mut answer, now);
            if let Some(length) = length.filter(|_| header.is_whole()) {
                drop(commands);
                return reply(packet, layout, &answer[..length]);
            }
            match keys.single() {
                Some(key) => self.order.read(request, self.hash.hash_one(key), now),
                None => self.order.other(request, now),
            }
            return Verdict::Forward;
        }
        let mut answered = is_single.then_some(request);
        if !matches!(first, Some(MemcachedRequest::Write(_) | MemcachedRequest::Flush { .. })) {
            answered = None;
        }
        if answered.is_none() {
            self.order.other(request, now);
        }
        for command in first.into_iter().chain(second).chain(commands) {
            match command {
                MemcachedRequest::Write(write) => self.pass_write(&write, answered, now),
                MemcachedRequest::Flush { delay, is_answered } => {
                    self.store.clear();
                    if let (Some(request), false) = (answered, is_answered) {
                        self.order.other(request, now);
                    }
                    self.order.write_all(answered.filter(|_| is_answered), now);
                    if !delay.is_zero() {
                        self.expiries.flush(delay, now);
                    }
                }
                MemcachedRequest::Get(_) | MemcachedRequest::Harmless => {}
                MemcachedRequest::Unknown => self.forget_unread(now),
            }
        }
        Verdict::Forward
    }

    /// A write passes; its number is given where it is the only command of its request.
    fn pass_write(&mut self, write: &KeyWrite<'_>, request: Option<(Flow, u16)>, now: Timestamp) {
        let is_single = write.keys.single().is_some();
        let answered = request.filter(|_| write.is_answered && is_single);
        if let (Some(request), None) = (request, answered) {
            self.order.other(request, now);
        }
        for key in write.keys.iter() {
            self.store.remove(key);
            let confirmation = self.expiries.write(key, write.expiry, now);
            let confirmation = write.is_confirmed.then_some(confirmation);
            self.order.write(answered, self.hash.hash_one(key), confirmation, now);
        }
    }

    /// The answer, if all keys are here and it fits a datagram.
    fn answer(
        &mut self,
        header: Header,
        keys: &Keys<'_>,
        out: &mut [u8],
        now: Timestamp,
    ) -> Option<usize> {
        if !keys.iter().all(|key| self.store.is_hit(key, now)) {
            return None;
        }
        header.write(&mut out[..HEADER_BYTES]);
        let mut text = Writer::new(&mut out[HEADER_BYTES..]);
        for key in keys.iter() {
            let Cached { flags, data } = self.store.get(key)?;
            text.put(b"VALUE ");
            text.put(key);
            text.put(b" ");
            text.put_number(flags.into());
            text.put(b" ");
            text.put_number(data.len() as u64);
            text.put(b"\r\n");
            text.put(data);
            text.put(b"\r\n");
        }
        text.put(b"END\r\n");
        Some(HEADER_BYTES + text.finish()?)
    }

    fn pass_answer(&mut self, bytes: &[u8], layout: &Layout, flow: Flow, now: Timestamp) {
        let is_sound =
            layout.fragment == Fragment::No && wire::verify(bytes, layout) != Verified::Wrong;
        let (datagram, _) = datagram(bytes, layout);
        let Some(header) = Header::read(datagram).filter(|_| is_sound) else { return };
        let text = &datagram[HEADER_BYTES..];
        let answer = memcached::answer(text).filter(|_| header.is_whole());
        let key = answer.as_ref().map(|answer| self.hash.hash_one(answer.key));
        let request = (flow.reversed(), header.request_id);
        let is_success = header.is_whole() && memcached::is_success(text);
        let answered = self.order.answer(&request, key, is_success, now);
        if let Some(confirmed) = answered.confirmed {
            self.expiries.confirm(confirmed, now);
        }
        if let Some(answer) = answer.filter(|_| answered.may_fill)
            && let Some(ends) = self.expiries.limit(answer.key, now)
        {
            let value = Cached { flags: answer.flags, data: answer.data };
            self.store.put(answer.key, value, now, ends);
        }
    }
}

/// Content of the UDP packet, as far as it is in this fragment, and how many bytes are missing.
fn datagram<'a>(bytes: &'a [u8], layout: &Layout) -> (&'a [u8], usize) {
    let announced = layout.transport + usize::from(read_u16(bytes, layout.transport + 4));
    let (start, end) = (layout.transport + 8, announced.min(layout.end));
    (bytes.get(start..end).unwrap_or(&[]), announced - end)
}

/// Bytes behind a TCP header.
fn tcp_data_bytes(bytes: &[u8], layout: &Layout) -> usize {
    let header = usize::from(bytes[layout.transport + 12] >> 4) * 4;
    layout.end.saturating_sub(layout.transport + header)
}

/// Turns the request into its answer.
fn reply(packet: &mut Packet, mut layout: Layout, datagram: &[u8]) -> Verdict {
    let start = layout.transport + 8;
    packet.truncate(start);
    if packet.grow_back(datagram.len()).is_err() {
        return Verdict::Drop(DropReason::NoBuffer);
    }
    let bytes = packet.bytes_mut();
    bytes[start..].copy_from_slice(datagram);
    wire::turn_around(bytes, &layout);
    // The layout now reads the other way around, as the checksum's pseudo-header does.
    std::mem::swap(&mut layout.source, &mut layout.destination);
    wire::finish_udp(bytes, &mut layout, datagram.len());
    Verdict::Reply
}

#[cfg(test)]
mod tests;
