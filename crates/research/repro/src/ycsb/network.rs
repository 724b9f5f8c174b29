//! Clients, links, switch and store as events, with the card's clock beside them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;

use super::card::{Card, Sent, Side};
use super::end::TransportEnd;
use super::frames::{self, CLIENT, REPLICAS, STORE, STORES, Station};
use super::keys::{self, KeyChooser};
use super::links::{Link, Site};
use super::pairs::PairCache;
use super::store::Store;
use super::{Arm, CardCache, Doubling, RunInputs, YcsbWorkload};
use crate::parameters::Parameters;

/// The card's clock is moved on in steps of ten cycles while frames are on it: what leaves it is late by that at most where
/// it enters the card again.
const STEP_NS: u64 = 40;
/// Packets that the transport keeps, unless there are more operations under way.
const WINDOW: usize = 64;

/// Load of the clients.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub workload: YcsbWorkload,
    /// Operations under way at once. Each client has one.
    pub clients: usize,
    /// Operations that are not counted at first.
    pub warm_up: u64,
    /// Operations that are counted.
    pub operations: u64,
    /// Frames of a million that the switch loses.
    pub lost_ppm: f64,
}

/// Reads and writes, in the order in which clients made them.
pub type Operations = Vec<(u64, bool)>;

/// Result of a measurement.
#[derive(Debug, Clone, Default)]
pub struct YcsbMeasurement {
    /// Operations a second.
    pub rate: f64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// The latency that 99 of 100 operations do not exceed, in microseconds.
    pub p99_us: f64,
    /// Reads that were answered, with the warm-up.
    pub reads: u64,
    /// Reads that the card answered, with the warm-up.
    pub hits: u64,
    /// Operations without an answer, with the warm-up.
    pub lost: u64,
    /// Part of the time that the store's link was busy with answers.
    pub link_busy: f64,
    /// All operations, with the warm-up.
    pub made: Operations,
}

impl YcsbMeasurement {
    /// Reads that the card answered, of all.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.reads.max(1) as f64
    }
}

/// Links by what sends, but for those of the stores.
#[derive(Debug)]
struct Links {
    from_clients: Link,
    switch_on: Link,
    card_back: Link,
    switch_back: Link,
}

#[derive(Debug)]
enum Event {
    /// A client begins its next operation.
    Begin(usize),
    /// The request is ready to be sent.
    Request(Vec<u8>),
    AtSwitch(Side, Vec<u8>),
    AtCard(Side, Vec<u8>),
    /// The store is given by its number.
    AtStore(usize, Vec<u8>),
    Answer(usize, Vec<u8>),
    /// The card's cache answers.
    Hit(Vec<u8>),
    AtClients(Vec<u8>),
    /// The client waits no longer.
    GiveUp(u64),
}

/// An operation under way.
#[derive(Debug, Clone, Copy)]
struct PendingOperation {
    /// Tells it from all others.
    number: u64,
    client: usize,
    key: u64,
    is_read: bool,
    since: u64,
    /// The version that was acknowledged before it began, for a read; what it writes, for a write.
    version: u32,
    /// The store that is asked.
    site: usize,
}

/// The test bed of one arm.
pub struct KeyValueNetwork {
    bed: RunInputs,
    arm: Arm,
    now: u64,
    /// Events by time, and in the order in which they were made.
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    links: Links,
    card: Option<Card>,
    /// The paper's cache, behind the card's NTs.
    pairs: Option<PairCache>,
    /// The clients' ends of the transport: one for the card, or for each store.
    client_ends: Vec<TransportEnd>,
    sites: Vec<Site>,
    chooser: KeyChooser,
    random: ChaCha8Rng,
    /// Requests under way, by number.
    under_way: BTreeMap<u16, PendingOperation>,
    next_operation: u64,
    /// Versions of each key that were written and acknowledged.
    issued: Vec<u32>,
    acknowledged: Vec<u32>,
    done: u64,
    latencies: Vec<u64>,
    measured: YcsbMeasurement,
    load: Load,
    /// When counting began, and how busy the store's link was until then.
    counted_since: (u64, u64),
}

impl KeyValueNetwork {
    /// Builds the test bed of an arm.
    ///
    /// # Errors
    /// The controller refuses a DAG of the arm.
    pub fn new(parameters: &Parameters, bed: &RunInputs, arm: Arm, load: Load) -> Result<Self> {
        let window = WINDOW.max(load.clients);
        let card = arm.card.then(|| Card::new(parameters, bed, arm, window)).transpose()?;
        let sites = Self::stores(bed, arm, window)?;
        let peers = if arm.transport { Self::peers(bed, arm) } else { &[] };
        let client_ends = peers
            .iter()
            .map(|peer| TransportEnd::new(CLIENT, *peer, window, bed.seed))
            .collect::<Result<_>>()?;
        let port_ns = port_ns(bed, arm);
        let links = Links {
            from_clients: Link::new(bed.link_bps, bed.switch_ns),
            switch_on: Link::new(bed.link_bps, port_ns),
            card_back: Link::new(bed.link_bps, bed.switch_ns + port_ns),
            switch_back: Link::new(bed.link_bps, 0),
        };
        let now = card.as_ref().map_or(1_000_000, |card| card.now().as_nanos());
        let chooser = KeyChooser::new(bed.keys, bed.ranks, bed.theta);
        Ok(Self {
            now,
            arm,
            events: BTreeMap::new(),
            sequence: 0,
            links,
            card,
            pairs: (arm.cache == CardCache::Paper).then(|| seen_before(bed, &chooser)),
            client_ends,
            sites,
            chooser,
            random: ChaCha8Rng::seed_from_u64(bed.seed),
            under_way: BTreeMap::new(),
            next_operation: 0,
            issued: vec![0; bed.keys as usize],
            acknowledged: vec![0; bed.keys as usize],
            done: 0,
            latencies: Vec::new(),
            measured: YcsbMeasurement::default(),
            load,
            counted_since: (now, 0),
            bed: bed.clone(),
        })
    }

    /// Stores as clients see them.
    fn peers(bed: &RunInputs, arm: Arm) -> &'static [Station] {
        match arm.doubling {
            Doubling::Client => &REPLICAS,
            Doubling::Nowhere if bed.stores > 1 => STORES.get(..bed.stores).unwrap_or(&STORES),
            Doubling::Nowhere | Doubling::Card => &[STORE],
        }
    }

    fn stores(bed: &RunInputs, arm: Arm, window: usize) -> Result<Vec<Site>> {
        let stations: &[Station] =
            if arm.doubling == Doubling::Card { &REPLICAS } else { Self::peers(bed, arm) };
        // Between switch and store itself there is no card.
        let (port_ns, behind) = (port_ns(bed, arm), if arm.card { 0 } else { bed.switch_ns });
        let site = |station: &Station| {
            let has_end = arm.transport && !arm.card;
            let end = has_end.then(|| TransportEnd::new(*station, CLIENT, window, bed.seed + 1));
            let there = Link::new(bed.store_bps, port_ns);
            let back = Link::new(bed.store_bps, port_ns + behind);
            let store = Store::new(*station, &bed.names, bed.value_bytes);
            Ok(Site::new(there, back, end.transpose()?, store))
        };
        stations.iter().map(site).collect()
    }

    /// The store with the address of a frame's receiver, or of its sender.
    fn site_of(&self, frame: &[u8], sends: bool) -> Result<usize> {
        let (from, to) = frames::addresses(frame)?;
        let address = if sends { from } else { to };
        let at = STORES.iter().position(|station| station.address == address);
        Ok(at.unwrap_or_default().min(self.sites.len() - 1))
    }

    /// Runs the load until every operation is answered or given up.
    ///
    /// # Errors
    /// An answer is wrong: another key's value, or one older than a write that was acknowledged before the read began. Or
    /// the card lost packets by a fault.
    pub fn run(mut self) -> Result<YcsbMeasurement> {
        for client in 0..self.load.clients {
            // Not all in one nanosecond.
            self.at(self.now + client as u64, Event::Begin(client));
        }
        let all = self.load.warm_up + self.load.operations;
        let mut sent = Vec::new();
        while self.done < all {
            self.now = self.next_time().context("nothing happens any more")?;
            if let Some(card) = &mut self.card {
                card.run(Timestamp::from_nanos(self.now), &mut sent)?;
            }
            for Sent { frame, side, at } in sent.drain(..) {
                self.left_card(side, at.as_nanos(), frame)?;
            }
            self.wake_ends()?;
            while let Some(event) = self.due() {
                self.happen(event)?;
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Result<YcsbMeasurement> {
        if let Some(card) = &mut self.card {
            self.measured.hits += card.replied();
            card.check()?;
        }
        let span = (self.now - self.counted_since.0).max(1) as f64;
        self.measured.rate = self.latencies.len() as f64 * 1e9 / span;
        self.measured.link_busy = (self.sites[0].back.busy_ns - self.counted_since.1) as f64 / span;
        self.latencies.sort_unstable();
        let count = self.latencies.len().max(1);
        self.measured.mean_us = self.latencies.iter().sum::<u64>() as f64 / count as f64 / 1e3;
        let late = self.latencies.get(count * 99 / 100).or(self.latencies.last());
        self.measured.p99_us = late.copied().unwrap_or_default() as f64 / 1e3;
        Ok(self.measured)
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((time.max(self.now), self.sequence), event);
    }

    /// The next event that is due.
    fn due(&mut self) -> Option<Event> {
        let next = self.events.first_entry().filter(|next| next.key().0 <= self.now)?;
        Some(next.remove())
    }

    /// When something happens next.
    fn next_time(&mut self) -> Option<u64> {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let stores = self.sites.iter().filter_map(|site| site.end.as_ref());
        let ends = self.client_ends.iter().chain(stores);
        let timers = ends.filter_map(TransportEnd::next_wake).min().map(Timestamp::as_nanos);
        let card = self.card.as_mut().and_then(|card| {
            let step = card.is_busy().then_some(self.now + STEP_NS);
            step.into_iter().chain(card.next_wake().map(Timestamp::as_nanos)).min()
        });
        [event, timers, card].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    fn wake_ends(&mut self) -> Result<()> {
        let now = Timestamp::from_nanos(self.now);
        let mut wire = Vec::new();
        let is_due = |end: &&mut TransportEnd| end.next_wake().is_some_and(|at| at <= now);
        for end in self.client_ends.iter_mut().filter(is_due) {
            end.wake(now, &mut wire)?;
        }
        self.clients_send(&mut wire);
        for at in 0..self.sites.len() {
            if let Some(end) = self.sites[at].end.as_mut().filter(is_due) {
                end.wake(now, &mut wire)?;
                self.store_sends(at, &mut wire);
            }
        }
        Ok(())
    }

    fn clients_send(&mut self, wire: &mut Vec<Vec<u8>>) {
        for frame in wire.drain(..) {
            let at = self.links.from_clients.send(self.now, &frame);
            self.at(at, Event::AtSwitch(Side::Clients, frame));
        }
    }

    fn store_sends(&mut self, site: usize, wire: &mut Vec<Vec<u8>>) {
        for frame in wire.drain(..) {
            let at = self.sites[site].send(&self.bed, self.now, &frame);
            let event = match self.card {
                Some(_) => Event::AtCard(Side::Store, frame),
                None => Event::AtSwitch(Side::Store, frame),
            };
            self.at(at, event);
        }
    }

    fn left_card(&mut self, side: Side, at: u64, frame: Vec<u8>) -> Result<()> {
        if side == Side::Clients {
            let at = self.links.card_back.send(at, &frame);
            self.at(at, Event::AtSwitch(Side::Store, frame));
            return Ok(());
        }
        let mut at = at;
        if let Some(pairs) = &mut self.pairs {
            at += self.bed.hit_ns;
            if let Some(answer) = pairs.request(&frame)? {
                self.measured.hits += 1;
                self.at(at, Event::Hit(answer));
                return Ok(());
            }
        }
        let site = self.site_of(&frame, false)?;
        let at = self.sites[site].receive(&self.bed, at, &frame);
        self.at(at, Event::AtStore(site, frame));
        Ok(())
    }

    fn card(&mut self) -> Result<&mut Card> {
        self.card.as_mut().context("frames come to a card that is there")
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        let now = Timestamp::from_nanos(self.now);
        let mut wire = Vec::new();
        match event {
            Event::Begin(client) => self.begin(client)?,
            Event::Request(frame) => {
                let to = self.site_of(&frame, false)?.min(self.client_ends.len().max(1) - 1);
                match self.client_ends.get_mut(to) {
                    Some(end) => end.send(now, &frame, &mut wire)?,
                    None => wire.push(frame),
                }
                self.clients_send(&mut wire);
            }
            Event::AtSwitch(from, frame) => self.switch(from, frame)?,
            Event::AtCard(side, frame) => {
                if let (Side::Store, Some(pairs)) = (side, &mut self.pairs) {
                    pairs.answer(&frame)?;
                }
                self.card()?.arrive(side, &frame)?;
            }
            Event::Hit(frame) => self.card()?.arrive(Side::Store, &frame)?,
            Event::AtStore(at, frame) => {
                let request = match &mut self.sites[at].end {
                    Some(end) => end.receive(now, &frame, &mut wire)?,
                    None => Some(frame),
                };
                self.store_sends(at, &mut wire);
                if let Some(request) = request {
                    if self.bed.stores_share_board {
                        Site::share(&mut self.sites);
                    }
                    let (ready, answer) = self.sites[at].serve(&self.bed, self.now, &request)?;
                    self.at(ready, Event::Answer(at, answer));
                }
            }
            Event::Answer(at, frame) => {
                match &mut self.sites[at].end {
                    Some(end) => end.send(now, &frame, &mut wire)?,
                    None => wire.push(frame),
                }
                self.store_sends(at, &mut wire);
            }
            Event::AtClients(frame) => {
                let from = self.site_of(&frame, true)?.min(self.client_ends.len().max(1) - 1);
                let answer = match self.client_ends.get_mut(from) {
                    Some(end) => end.receive(now, &frame, &mut wire)?,
                    None => Some(frame),
                };
                self.clients_send(&mut wire);
                if let Some(answer) = answer {
                    self.answered(&answer)?;
                }
            }
            Event::GiveUp(number) => {
                let waits = self.under_way.iter().find(|(_, op)| op.number == number);
                if let Some(request) = waits.map(|(request, _)| *request) {
                    let operation = self.under_way.remove(&request).context("it was just found")?;
                    self.measured.lost += 1;
                    self.end(operation.client);
                }
            }
        }
        Ok(())
    }

    fn switch(&mut self, from: Side, frame: Vec<u8>) -> Result<()> {
        let draw = self.random.random::<f64>();
        if self.load.lost_ppm > 0.0 && draw * 1e6 < self.load.lost_ppm {
            return Ok(());
        }
        match (from, &self.card) {
            (Side::Clients, Some(_)) => {
                let at = self.links.switch_on.send(self.now, &frame);
                self.at(at, Event::AtCard(Side::Clients, frame));
            }
            (Side::Clients, None) => {
                let site = self.site_of(&frame, false)?;
                let at = self.sites[site].receive(&self.bed, self.now, &frame);
                self.at(at, Event::AtStore(site, frame));
            }
            (Side::Store, _) => {
                let at = self.links.switch_back.send(self.now, &frame);
                self.at(at, Event::AtClients(frame));
            }
        }
        Ok(())
    }

    /// A client chooses its next operation.
    fn begin(&mut self, client: usize) -> Result<()> {
        if self.next_operation == self.load.warm_up + self.load.operations {
            return Ok(());
        }
        let key = self.chooser.choose(&mut self.random);
        let is_read = self.random.random_range(0..100) < self.load.workload.reads_percent;
        let number = self.next_operation;
        self.next_operation += 1;
        let request = number as u16;
        ensure!(!self.under_way.contains_key(&request), "an operation waits for 65,536 others");
        let version = if is_read {
            self.acknowledged[key as usize]
        } else {
            self.issued[key as usize] += 1;
            self.issued[key as usize]
        };
        self.measured.made.push((key, is_read));
        let is_spread = self.arm.doubling == Doubling::Nowhere;
        let site = if is_spread { key as usize % self.sites.len() } else { 0 };
        let since = self.now;
        let operation = PendingOperation { number, client, key, is_read, since, version, site };
        self.ask(request, operation);
        self.at(self.now + self.bed.give_up_ns, Event::GiveUp(number));
        Ok(())
    }

    /// A client asks the store whose turn it is.
    fn ask(&mut self, request: u16, operation: PendingOperation) {
        let PendingOperation { key, is_read, version, site, .. } = operation;
        let name = keys::name(key);
        let text = if is_read {
            format!("get {name}\r\n").into_bytes()
        } else {
            let value = frames::value(key, version, self.bed.value_bytes);
            let head = format!("set {name} 0 0 {}\r\n", value.len());
            [head.as_bytes(), &value, b"\r\n"].concat()
        };
        let store = Self::peers(&self.bed, self.arm).get(site).copied().unwrap_or(STORE);
        let frame = frames::message(CLIENT, store, request, &text);
        self.under_way.insert(request, operation);
        self.at(self.now + self.bed.client_ns, Event::Request(frame));
    }

    /// An answer came: it must be right.
    fn answered(&mut self, answer: &[u8]) -> Result<()> {
        let (request, text) = frames::read(answer)?;
        // One that was given up may be answered yet.
        let Some(operation) = self.under_way.remove(&request) else { return Ok(()) };
        let PendingOperation { client, key, is_read, since, version, .. } = operation;
        if is_read {
            let (name, data) = frames::found(text).context("no value")?;
            ensure!(name == keys::name(key).as_bytes(), "another key's value");
            let found = frames::version(key, data).context("a value that nobody wrote")?;
            let issued = self.issued[key as usize];
            if !(version..=issued).contains(&found) {
                bail!(
                    "version {found} of key {key}, where {version} was acknowledged before and {issued} is the last"
                );
            }
            self.measured.reads += 1;
        } else {
            ensure!(text == b"STORED\r\n", "a write was refused");
            if self.arm.doubling == Doubling::Client && operation.site == 0 {
                self.ask(request, PendingOperation { site: 1, ..operation });
                return Ok(());
            }
            let acknowledged = &mut self.acknowledged[key as usize];
            *acknowledged = version.max(*acknowledged);
        }
        if self.done >= self.load.warm_up {
            self.latencies.push(self.now - since);
        }
        self.end(client);
        Ok(())
    }

    fn end(&mut self, client: usize) {
        self.done += 1;
        if self.done == self.load.warm_up {
            self.counted_since = (self.now, self.sites[0].back.busy_ns);
        }
        self.at(self.now, Event::Begin(client));
    }
}

/// The time that a port of the card takes.
const fn port_ns(bed: &RunInputs, arm: Arm) -> u64 {
    if arm.card { bed.phy_ns / 2 } else { 0 }
}

/// The paper's cache after the store was filled through it and so many operations were made.
fn seen_before(bed: &RunInputs, chooser: &KeyChooser) -> PairCache {
    let mut pairs = PairCache::new(&bed.names, bed.value_bytes, bed.cache_pairs, bed.moves_used);
    (0..bed.keys).for_each(|key| pairs.put(key, 0));
    let mut random = ChaCha8Rng::seed_from_u64(bed.seed ^ 1);
    for _ in 0..bed.before {
        let key = chooser.choose(&mut random);
        if pairs.get(key).is_none() {
            pairs.put(key, 0);
        }
    }
    pairs
}
