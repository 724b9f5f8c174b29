//! Key-value replication: writes of memcached over UDP go to every replica, and the client gets one
//! answer, once enough of them have done it.
//!
//! Clients know one address, the service's. Reads go to the first replica. A write is answered with
//! success when `acks` replicas report it, and with the failure that makes that impossible otherwise;
//! what the others say is used up. A request that no rule here understands goes to all, as a write
//! does. Nothing is repeated: a client that gets no answer asks again, as with memcached itself. Over
//! links that lose or reorder, a reliable transport below keeps replicas in step.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use super::memcached::{self, HEADER_BYTES, Header, MemcachedRequest};
use crate::aging::{AgingTable, EntryAge, KeyedHash, Lookup};
use crate::config::{Configuration, Field, InvalidConfiguration, Kind, Mac, NON_IP, NonIp, Schema};
use crate::state::{self, InvalidState};
use crate::tasks::read_ip::read_ip;
use crate::wire::{self, Endpoint, Flow, Fragment, Layout, Side, Verified, protocol, rewrite};
use crate::{Context, Direction, DropReason, NetworkTask, Packet, Verdict};

const STATE_VERSION: u16 = 1;
/// Most replicas: one bit each in a byte.
const REPLICAS_MAX: usize = 8;

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "kv-replication",
    version: 1,
    fields: &[
        Field::required("service", Kind::Address, "The address that clients use."),
        Field::required(
            "replicas",
            Kind::Objects {
                max: REPLICAS_MAX,
                fields: &[
                    Field::required("address", Kind::Address, "The memcached server."),
                    Field::optional(
                        "mac",
                        Kind::Mac,
                        "Its station; that of the packet by default.",
                    ),
                ],
            },
            "The servers; reads go to the first.",
        ),
        Field::optional(
            "port",
            Kind::Integer { min: 1, max: 65_535 },
            "The UDP port of service and servers; 11211 by default.",
        ),
        Field::optional(
            "acks",
            Kind::Integer { min: 1, max: REPLICAS_MAX as u64 },
            "How many servers must have written before the client hears so; all by default.",
        ),
        Field::optional(
            "requests_max",
            Kind::Integer { min: 1, max: 65_536 },
            "Writes on their way at once; 4096 by default.",
        ),
        Field::optional(
            "timeout_ms",
            Kind::Integer { min: 1, max: 60_000 },
            "How long a write is remembered for its answers; 1000 by default.",
        ),
        NON_IP,
    ],
};

fn port_by_default() -> u16 {
    11_211
}
fn requests_by_default() -> usize {
    4_096
}
fn timeout_by_default() -> u64 {
    1_000
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Replica {
    address: IpAddr,
    mac: Option<Mac>,
}

#[derive(Debug, Clone, Deserialize)]
struct Settings {
    service: IpAddr,
    replicas: Vec<Replica>,
    #[serde(default = "port_by_default")]
    port: u16,
    acks: Option<u32>,
    #[serde(default = "requests_by_default")]
    requests_max: usize,
    #[serde(default = "timeout_by_default")]
    timeout_ms: u64,
    #[serde(default)]
    non_ip: NonIp,
}

impl Settings {
    fn acks(&self) -> u32 {
        self.acks.unwrap_or(self.replicas.len() as u32)
    }

    fn check(&self) -> Result<(), InvalidConfiguration> {
        let wrong = |field: String, value: String, allowed: &str| {
            Err(InvalidConfiguration::Field { field, value, allowed: allowed.to_owned() })
        };
        if self.replicas.is_empty() {
            let allowed = "at least one server";
            return wrong("replicas".to_owned(), "an empty list".to_owned(), allowed);
        }
        for (i, replica) in self.replicas.iter().enumerate() {
            let is_twice = self.replicas[..i].iter().any(|other| other.address == replica.address);
            let is_family = replica.address.is_ipv4() == self.service.is_ipv4();
            if is_twice || !is_family || replica.address == self.service {
                let allowed =
                    "each server once, of the service's IP version, other than its address";
                return wrong(
                    format!("replicas[{i}].address"),
                    replica.address.to_string(),
                    allowed,
                );
            }
        }
        if self.acks() as usize > self.replicas.len() {
            let allowed = format!("at most the number of replicas, {}", self.replicas.len());
            return wrong("acks".to_owned(), self.acks().to_string(), &allowed);
        }
        Ok(())
    }
}

/// A write that waits for answers: which servers did it, which did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct PendingWrite {
    done: u8,
    failed: u8,
    is_answered: bool,
}

/// The flow from the client to the service, and the request's id.
type RequestKey = (Flow, u16);
type Table = AgingTable<RequestKey, PendingWrite, 1>;

pub(crate) struct KvReplication {
    hash: KeyedHash,
    active: Option<Active>,
}

struct Active {
    settings: Settings,
    requests: Table,
}

impl KvReplication {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        Self { hash, active: None }
    }

    fn table(&self, settings: &Settings) -> Table {
        let lifetime = Duration::from_millis(settings.timeout_ms);
        AgingTable::new(settings.requests_max, [lifetime], self.hash)
    }
}

impl NetworkTask for KvReplication {
    /// Writes on their way are forgotten where the servers change: bits name servers.
    fn configure(
        &mut self,
        _: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        settings.check()?;
        let requests = self.table(&settings);
        self.active = Some(Active { settings, requests });
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
        if layout.protocol != protocol::UDP {
            return Verdict::Forward;
        }
        active.pass(packet.bytes_mut(), layout, context).unwrap_or_else(Verdict::Drop)
    }

    fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let requests: Vec<_> = self.active.as_ref().map_or_else(Vec::new, |active| {
            let aged = active.requests.iter(now);
            aged.map(|aged| (*aged.key, *aged.value, aged.left)).collect()
        });
        state::write(SCHEMA.nt_type, STATE_VERSION, &requests, out);
    }

    fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let saved: Vec<(RequestKey, PendingWrite, Duration)> =
            state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        let Some(active) = &self.active else { return Ok(()) };
        let allowed = active.settings.requests_max;
        if saved.len() > allowed {
            return Err(InvalidState::DoesNotFit { entries: saved.len(), allowed });
        }
        let mut requests = self.table(&active.settings);
        for (key, outstanding, left) in saved {
            if requests.lookup(&key, now) == Lookup::Absent {
                requests.insert_aged(key, outstanding, EntryAge { class: 0, left }, now);
            }
        }
        self.active.as_mut().expect("looked at above").requests = requests;
        Ok(())
    }
}

impl Active {
    fn pass(
        &mut self,
        bytes: &mut [u8],
        layout: Layout,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let flow = Flow::of(bytes, &layout);
        let replicas = &self.settings.replicas;
        let sender = replicas.iter().position(|replica| replica.address == flow.source);
        let is_request = flow.destination == self.settings.service;
        if layout.fragment != Fragment::No && (is_request || sender.is_some()) {
            return Err(DropReason::Fragment);
        }
        let port = self.settings.port;
        match sender {
            _ if is_request && flow.destination_port == port => {
                self.pass_request(bytes, layout, flow, context)
            }
            Some(sender) if flow.source_port == port => {
                self.pass_answer(bytes, layout, sender, context.now)
            }
            _ => Ok(Verdict::Forward),
        }
    }

    fn pass_request(
        &mut self,
        bytes: &mut [u8],
        layout: Layout,
        flow: Flow,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        if wire::verify(bytes, &layout) == Verified::Wrong {
            return Err(DropReason::BadChecksum);
        }
        let header = Header::read(payload(bytes, &layout)).ok_or(DropReason::Truncated)?;
        let text = &payload(bytes, &layout)[HEADER_BYTES..];
        let (goes_to_all, is_answered) = match memcached::request(text) {
            // No server takes a request of several datagrams; the number of this one it does not look at.
            _ if header.datagrams != 1 => (false, false),
            MemcachedRequest::Get(_) | MemcachedRequest::Harmless => (false, false),
            MemcachedRequest::Write(write) => (true, write.is_answered),
            MemcachedRequest::Flush { is_answered, .. } => (true, is_answered),
            MemcachedRequest::Unknown => (true, true),
        };
        if goes_to_all && is_answered {
            self.expect((flow, header.request_id), context.now)?;
        }
        let copies = if goes_to_all { &self.settings.replicas[1..] } else { &[] };
        for replica in copies {
            context.emitted.with(Direction::Onward, bytes, |copy| {
                redirect(copy, layout, *replica, self.settings.port);
            });
        }
        redirect(bytes, layout, self.settings.replicas[0], self.settings.port);
        Ok(Verdict::Forward)
    }

    /// Waits for answers to a write. One that the client repeats counts from the start.
    fn expect(&mut self, request: RequestKey, now: Timestamp) -> Result<(), DropReason> {
        let old = match self.requests.lookup(&request, now) {
            Lookup::Fresh(id) | Lookup::Expired(id) => Some(id),
            Lookup::Absent => self.requests.expired(now),
        };
        if let Some(id) = old {
            self.requests.remove(id);
        }
        let added = self.requests.insert(request, PendingWrite::default(), 0, now);
        added.map(|_| ()).ok_or(DropReason::TableFull)
    }

    fn pass_answer(
        &mut self,
        bytes: &mut [u8],
        mut layout: Layout,
        sender: usize,
        now: Timestamp,
    ) -> Result<Verdict, DropReason> {
        if wire::verify(bytes, &layout) == Verified::Wrong {
            return Err(DropReason::BadChecksum);
        }
        let flow = Flow::of(bytes, &layout);
        let header = Header::read(payload(bytes, &layout)).ok_or(DropReason::Truncated)?;
        let service = Endpoint { address: self.settings.service, port: self.settings.port };
        let request = Flow { destination: service.address, ..flow.reversed() };
        let verdict = match self.requests.lookup(&(request, header.request_id), now) {
            Lookup::Fresh(id) => {
                let is_success = memcached::is_success(&payload(bytes, &layout)[HEADER_BYTES..]);
                let (acks, count) = (self.settings.acks(), self.settings.replicas.len() as u32);
                let outstanding = self.requests.value_mut(id);
                let is_answer = outstanding.take(sender, is_success, acks, count);
                if (outstanding.done | outstanding.failed).count_ones() == count {
                    self.requests.remove(id);
                }
                if is_answer { Verdict::Forward } else { Verdict::Consume }
            }
            // An answer to a read, which went to the first server alone.
            _ if sender == 0 => Verdict::Forward,
            _ => return Err(DropReason::UnexpectedReply),
        };
        if verdict == Verdict::Forward {
            rewrite(bytes, &mut layout, Side::Source, service);
        }
        Ok(verdict)
    }
}

impl PendingWrite {
    /// Takes in what a server says; whether that is what the client is to hear.
    fn take(&mut self, sender: usize, is_success: bool, acks: u32, count: u32) -> bool {
        let bit = 1 << sender;
        if (self.done | self.failed) & bit != 0 {
            return false;
        }
        let is_decided = if is_success {
            self.done |= bit;
            self.done.count_ones() >= acks
        } else {
            self.failed |= bit;
            self.failed.count_ones() > count - acks
        };
        is_decided && !std::mem::replace(&mut self.is_answered, is_decided)
    }
}

/// Payload of the UDP packet.
fn payload<'a>(bytes: &'a [u8], layout: &Layout) -> &'a [u8] {
    let length = usize::from(wire::read_u16(bytes, layout.transport + 4));
    bytes.get(layout.transport + 8..layout.transport + length).unwrap_or(&[])
}

/// Sends a request to a server.
fn redirect(bytes: &mut [u8], mut layout: Layout, replica: Replica, port: u16) {
    let to = Endpoint { address: replica.address, port };
    rewrite(bytes, &mut layout, Side::Destination, to);
    if let Some(Mac(station)) = replica.mac {
        bytes[..6].copy_from_slice(&station);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tasks::support::{Bench, End, Outcome, assert_valid, udp_between};

    const CLIENT: End = ("10.0.0.1", 40_000);
    const SERVICE: End = ("192.0.2.1", 11_211);
    const SERVERS: [End; 3] =
        [("192.0.2.11", 11_211), ("192.0.2.12", 11_211), ("192.0.2.13", 11_211)];

    fn replication(acks: u32) -> Bench {
        let replicas: Vec<_> = SERVERS.map(|server| json!({"address": server.0})).to_vec();
        Bench::new(
            "kv-replication",
            json!({"service": SERVICE.0, "replicas": replicas, "acks": acks, "requests_max": 4}),
        )
    }

    fn datagram(id: u16, text: &[u8]) -> Vec<u8> {
        [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0], text].concat()
    }

    fn ask(id: u16, text: &[u8]) -> Vec<u8> {
        udp_between(CLIENT, SERVICE, &datagram(id, text))
    }

    fn reply(server: usize, id: u16, text: &[u8]) -> Vec<u8> {
        udp_between(SERVERS[server], CLIENT, &datagram(id, text))
    }

    const SET: &[u8] = b"set k 0 0 1\r\nv\r\n";

    #[test]
    fn writes_go_to_all_and_reads_to_the_first() {
        let mut bench = replication(3);
        let Outcome { verdict, frame, emitted } = bench.run(&ask(1, SET));
        assert_eq!(verdict, Verdict::Forward);
        let copies = [vec![(Direction::Onward, frame)], emitted].concat();
        assert_eq!(copies.len(), 3);
        for ((direction, copy), server) in copies.iter().zip(SERVERS) {
            assert_eq!(*direction, Direction::Onward);
            assert_valid(copy);
            let expected = udp_between(CLIENT, server, &datagram(1, SET));
            assert_eq!(*copy, expected);
        }
        let read = bench.run(&ask(2, b"get k\r\n"));
        assert!(read.emitted.is_empty());
        let back = bench.run(&reply(0, 2, b"END\r\n"));
        assert_eq!(back.frame, udp_between(SERVICE, CLIENT, &datagram(2, b"END\r\n")));
        let strange = bench.run(&reply(1, 2, b"END\r\n")).verdict;
        assert_eq!(strange, Verdict::Drop(DropReason::UnexpectedReply));
    }

    #[test]
    fn requests_on_their_way_are_bounded_and_saved() {
        let mut bench = replication(2);
        for id in 1..=4 {
            assert_eq!(bench.run(&ask(id, SET)).verdict, Verdict::Forward);
        }
        assert_eq!(bench.run(&ask(5, SET)).verdict, Verdict::Drop(DropReason::TableFull));
        assert_eq!(bench.run(&reply(2, 1, b"STORED\r\n")).verdict, Verdict::Consume);
        bench.restart();
        assert_eq!(bench.run(&reply(1, 1, b"STORED\r\n")).verdict, Verdict::Forward);
        bench.wait_secs(1);
        assert_eq!(bench.run(&ask(5, SET)).verdict, Verdict::Forward);
        let many = json!({"service": "1.1.1.1", "acks": 2, "replicas": [{"address": "1.1.1.2"}]});
        assert_eq!(
            bench.rejected(&many),
            "acks: 2 is not allowed; allowed: at most the number of replicas, 1"
        );
    }

    proptest! {
        /// Whatever servers say in whatever order, and how often: the client hears one thing, success
        /// exactly if at least `acks` servers had done it by then.
        #[test]
        fn the_client_hears_one_answer(
            acks in 1..=3_u32,
            answers in prop::collection::vec((0..3_usize, any::<bool>()), 0..12),
        ) {
            let mut bench = replication(acks);
            bench.run(&ask(1, SET));
            let mut said = [None; 3];
            let mut heard = 0;
            for (server, is_success) in answers {
                if said.iter().all(Option::is_some) {
                    break; // the request is forgotten
                }
                let text: &[u8] = if is_success { b"STORED\r\n" } else { b"SERVER_ERROR out of memory\r\n" };
                let out = bench.run(&reply(server, 1, text));
                let is_news = said[server].is_none();
                said[server].get_or_insert(is_success);
                let count = |what| said.iter().filter(|said| **said == Some(what)).count() as u32;
                let is_decided = is_news && heard == 0 && match is_success {
                    true => count(true) >= acks,
                    false => count(false) > 3 - acks,
                };
                let expected = if is_decided { Verdict::Forward } else { Verdict::Consume };
                prop_assert_eq!(out.verdict, expected);
                heard += u32::from(is_decided);
            }
        }
    }
}
