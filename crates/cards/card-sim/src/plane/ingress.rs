//! From the senders to the scheduler: port, classifier, token bucket, packet store.
//!
//! Each sender has a separate queue, as virtual functions have. While the port is busy, senders whose next
//! packet is within their DAG's promise go before the others, in the order of due times. Packets that no sender
//! can hold back, such as those from a wire, keep the order in which they come.

use snic_domain::DagUid;
use snic_ports::packets::PacketStep;
use snic_tables::{ClassifierRow, DagRow, DropCause, NONE, PathPart};

use super::source::SourceSlot;
use super::{Claim, Ingress, NIL, Packet, Plane, Rank, ShaperMemory, StoreShare};
use crate::latency::UNSAMPLED;
use crate::load::LoadMeter;
use crate::region::{NEVER, Region};
use crate::shaper::{QueueRoom, Verdict};
use crate::traffic::{Generator, Header};
use crate::wheel::Event;

/// Packets that wait at token buckets may fill 1 / `WAITING_PART` of the packet store, those beyond their
/// promises 1 / `BEYOND_PART`. 1 / `DUE_PART` is for those alone that come when they are due: others take no
/// room from them. What uses up all of a burst allowance leaves 1 / `CALM_PART` more to the small bursts of
/// others, what uses up half of it half of that.
const WAITING_PART: u64 = 3;
const BEYOND_PART: u64 = 6;
const DUE_PART: u64 = 4;
const CALM_PART: u64 = 8;

/// Tokens that a promise gains while the card keeps the sender waiting are not lost, for so many cycles at most: 4 µs at
/// 250 MHz. A choice; in the set of the long run that showed the loss (seed 767) a packet waited 313 cycles at most.
const KEPT_CYCLES: u64 = 1_024;

/// A packet that comes from a sender.
pub(super) struct Arrival {
    pub source: u32,
    pub sequence: u32,
    pub bytes: u32,
    /// Its DAG, if there is one.
    pub uid: Option<DagUid>,
    /// Hash of its flow.
    pub flow: u8,
    /// Since when its sender has had a packet ready all the time.
    pub ready_since: u64,
    /// Its visit, where it is a guest's; [`NIL`] where it is none.
    pub visit: u32,
}

impl Ingress {
    /// From when on it takes a packet that is promised, or one that is not.
    pub(super) fn free_at(&self, is_promised: bool) -> u64 {
        let spare = if is_promised { 0 } else { self.spare.free_at() };
        self.port.free_at().max(spare)
    }
}

impl Plane {
    /// Gives a source a place; says which.
    pub(crate) fn attach(&mut self, generator: Generator) -> u32 {
        let generator = Some(Box::new(generator));
        self.sources.push(SourceSlot::new(generator));
        let source = self.sources.len() as u32 - 1;
        self.schedule_source(source, self.now);
        source
    }

    /// The same, and counts what becomes of its packets. Takes the place of one that was counted and has
    /// ended, if there is one.
    pub(crate) fn attach_metered(&mut self, generator: Generator, meter: LoadMeter) -> u32 {
        let is_over = |slot: &SourceSlot| {
            let is_quiet = slot.meter.as_ref().is_some_and(|meter| meter.under_way() == 0);
            slot.generator.is_none() && is_quiet
        };
        let source = self.sources.iter().position(is_over);
        let source = source.unwrap_or_else(|| {
            self.sources.push(SourceSlot::new(None));
            self.sources.len() - 1
        });
        let slot = &mut self.sources[source];
        (slot.generator, slot.meter) = (Some(Box::new(generator)), Some(Box::new(meter)));
        self.schedule_source(source as u32, self.now);
        source as u32
    }

    /// Has no counted source send before `until`.
    pub(crate) fn silence_metered(&mut self, until: u64) {
        for source in 0..self.sources.len() as u32 {
            let slot = &mut self.sources[source as usize];
            let Some(generator) = slot.generator.as_mut().filter(|_| slot.meter.is_some()) else {
                continue;
            };
            generator.not_before(until);
            slot.begin_generation();
            self.ingress.waiting.remove(source);
            self.schedule_source(source, until);
        }
    }

    /// Meter of a source's packets.
    pub(crate) fn meter(&mut self, source: u32) -> Option<&mut LoadMeter> {
        self.sources.get_mut(source as usize)?.meter.as_deref_mut()
    }

    /// Takes a source away; says how many packets it sent, if it was there.
    pub(crate) fn detach(&mut self, source: u32) -> Option<u64> {
        let slot = self.sources.get_mut(source as usize)?;
        slot.begin_generation();
        let sent = slot.generator.take()?.sent;
        self.ingress.waiting.remove(source);
        Some(sent)
    }

    /// Plans a source's next packet, at `earliest` or later.
    pub(super) fn schedule_source(&mut self, source: u32, earliest: u64) {
        let slot = &self.sources[source as usize];
        if let Some(due) = slot.generator.as_ref().and_then(|generator| generator.due()) {
            let event = Event::Emit { source, generation: slot.generation };
            self.wheel.at(due.max(earliest), event);
        }
    }

    pub(super) fn emit(&mut self, source: u32, generation: u16) {
        if self.sources[source as usize].generation != generation {
            return;
        }
        let is_first = self.ingress.waiting.is_empty();
        if is_first && self.ingress_free_at(false) <= self.now {
            return self.send(source);
        }
        let claim = self.claim(source);
        if is_first && self.ingress_free_at(!claim.is_beyond()) <= self.now {
            return self.send(source);
        }
        self.sources[source as usize].ready_since.get_or_insert(self.now);
        self.wait(source, claim);
        self.plan_ingress();
    }

    /// A sender waits for the port. Where its packet is beyond the promise, it claims again when that has grown.
    fn wait(&mut self, source: u32, claim: Claim) {
        if !claim.is_beyond() {
            return self.ingress.waiting.push(source, claim);
        }
        let at = self.promised_at(source);
        let slot = &mut self.sources[source as usize];
        let waiting = &mut self.ingress.waiting;
        let place = *slot.place_beyond.get_or_insert_with(|| waiting.place());
        waiting.push_beyond(source, place);
        if let Some(at) = at.filter(|at| *at < slot.claims_at) {
            slot.claims_at = at;
            self.wheel.at(at, Event::Claim { source, generation: slot.generation });
        }
    }

    /// A sender that waits with a packet beyond its promise claims again.
    pub(super) fn claim_again(&mut self, source: u32, generation: u16) {
        let slot = &mut self.sources[source as usize];
        if slot.generation != generation || slot.claims_at != self.now {
            return;
        }
        slot.claims_at = NEVER;
        let place = slot.place_beyond;
        if place.is_some_and(|place| self.ingress.waiting.take_beyond(source, place)) {
            let claim = self.claim(source);
            self.wait(source, claim);
            self.plan_ingress();
        }
    }

    /// Plans when the next sender that waits is looked at.
    fn plan_ingress(&mut self) {
        if self.ingress.waiting.is_empty() {
            return;
        }
        let at = self.ingress_free_at(self.ingress.waiting.has_promised()).max(self.now);
        if at < self.ingress.looks_at {
            self.ingress.looks_at = at;
            self.wheel.at(at, Event::IngressFree);
        }
    }

    pub(super) fn ingress_free(&mut self) {
        if self.ingress.looks_at != self.now {
            // Somebody came since who could go earlier.
            return;
        }
        self.ingress.looks_at = NEVER;
        loop {
            let has_promised = self.ingress.waiting.has_promised();
            if self.ingress_free_at(has_promised) > self.now {
                return self.plan_ingress();
            }
            let Some(source) = self.ingress.waiting.pop(self.now) else { return };
            // Another sender of its DAG may have used the promise up since.
            if !has_promised || !self.claim(source).is_beyond() {
                return self.send(source);
            }
            self.wait(source, Claim::BEYOND);
        }
    }

    /// Claim of a sender's next packet, if it has the largest size it may have.
    fn claim(&mut self, source: u32) -> Claim {
        if !self.options.rate_limits {
            return Claim::EQUAL;
        }
        // Nothing is promised to packets of no DAG, which are dropped.
        let Some((row, largest)) = self.next_of(source) else { return Claim::BEYOND };
        let limiter = self.limiters.get(usize::from(row.rate_limiter));
        let since = self.ready_since(source);
        limiter.map_or(Claim::EQUAL, |limiter| limiter.may_take(self.now, since, largest))
    }

    /// Since when the sender has had a packet ready all the time, as far as that counts.
    fn ready_since(&self, source: u32) -> u64 {
        let since = self.sources[source as usize].ready_since.unwrap_or(self.now);
        since.max(self.now.saturating_sub(KEPT_CYCLES))
    }

    /// When a sender's next packet is within its DAG's promise, if no other sender of that comes first.
    fn promised_at(&mut self, source: u32) -> Option<u64> {
        let (row, largest) = self.next_of(source)?;
        let limiter = self.limiters.get(usize::from(row.rate_limiter))?;
        limiter.promised_at(largest).map(|at| at.max(self.now + 1))
    }

    /// The row of a sender's DAG, and the largest size that its next packet may have.
    fn next_of(&mut self, source: u32) -> Option<(DagRow, u32)> {
        let generator = self.sources[source as usize].generator.as_ref();
        let largest = generator.map_or(0, |generator| generator.largest());
        Some((self.row_of(source)?, largest))
    }

    /// The row of a sender's DAG.
    fn row_of(&mut self, source: u32) -> Option<DagRow> {
        let uid = self.classify(source)?;
        self.row_of_dag(uid)
    }

    /// The row of a DAG that the card still has.
    pub(super) fn row_of_dag(&self, uid: DagUid) -> Option<DagRow> {
        let row = self.banks.current().dags[usize::from(uid.row())];
        row.filter(|row| row.uid == uid.raw())
    }

    /// The row of a packet's DAG, where the card still has it and it serves such packets.
    fn row_for(&self, at: u32) -> Option<DagRow> {
        let Packet { uid, visit, .. } = self.packets[at];
        self.row_of_dag(uid).filter(|row| self.serves(row, visit))
    }

    /// Takes a packet from its sender; returns whether it is within its DAG's promise.
    fn take_from(&mut self, source: u32, bytes: u32) -> bool {
        let Some(row) = self.row_of(source) else { return false };
        let since = self.ready_since(source);
        let limiter = self.limiters.get_mut(usize::from(row.rate_limiter));
        limiter.is_none_or(|limiter| limiter.note_taken(self.now, since, bytes))
    }

    /// Puts a source's packet on the wire.
    fn send(&mut self, source: u32) {
        let slot = &mut self.sources[source as usize];
        let Some(generator) = &mut slot.generator else { return };
        let sequence = generator.sent as u32;
        let bytes = generator.send(self.now);
        if let Some(meter) = &mut slot.meter {
            meter.offered(bytes);
        }
        let beats = u64::from(self.timing.beats(bytes));
        let bits = u64::from(bytes) * 8;
        self.ingress.port.serve_beats(self.now, bits, beats);
        if self.options.rate_limits {
            let is_promised = self.take_from(source, bytes);
            if !is_promised {
                self.sources[source as usize].place_beyond = None;
            }
            self.ingress.spare.serve_beats(self.now, bits, beats, is_promised);
        }
        let ready_since = self.ready_since(source);
        // Its next packet is among those that wait for the port when that is free.
        let free_at = self.ingress.port.free_at();
        let slot = &mut self.sources[source as usize];
        let due = slot.generator.as_ref().and_then(|generator| generator.due());
        let is_ready = due.is_some_and(|due| due < free_at);
        slot.ready_since = slot.ready_since.or(due).filter(|_| is_ready);
        self.schedule_source(source, free_at);
        self.plan_ingress();
        let uid = self.classify(source);
        let generator = self.sources[source as usize].generator.as_ref();
        let flow = generator.map_or(0, |generator| generator.header().flow_hash());
        self.arrive(Arrival { source, sequence, bytes, uid, flow, ready_since, visit: NIL });
    }

    /// A packet is on the wire.
    pub(super) fn arrive(&mut self, arrival: Arrival) {
        let Arrival { source, sequence, bytes, uid, flow, ready_since, visit } = arrival;
        self.stats.packets_in += 1;
        self.in_flight += 1;
        self.in_flight_of[usize::from(uid.map_or(0, DagUid::row))] += 1;
        self.cells_of[StoreShare::Within as usize] += u64::from(self.timing.beats(bytes));
        let slot = self.sources.get(source as usize);
        let sender = slot.and_then(|slot| slot.generator.as_ref());
        let packet = Packet {
            arrived: self.now,
            offered: sender.map_or(self.now, |sender| sender.offered),
            ready_since,
            source,
            sequence,
            uid: uid.unwrap_or(DagUid::from_raw(0)),
            bytes,
            flow,
            stages_done: 0,
            next: NIL,
            bank: None,
            version: 0,
            payload: false,
            claim: Claim::EQUAL,
            ready: 0,
            stage: NONE,
            next_stage: NONE,
            joining: 0,
            synchronised: false,
            stored: false,
            room: StoreShare::Within,
            holders: 1,
            failed: None,
            back: false,
            visit,
            chain: None,
            timeline: UNSAMPLED,
        };
        let at = self.packets.insert(packet);
        match uid {
            None if visit != NIL => self.drop_packet(at, DropCause::NoGuest),
            None => self.drop_packet(at, DropCause::Unclassified),
            Some(uid) => self.admit(at, uid, bytes),
        }
    }

    /// The descriptor's DAG, or that of the first row of the classifier that matches.
    fn classify(&mut self, source: u32) -> Option<DagUid> {
        let version = self.banks.version(self.banks.active());
        let generator = self.sources[source as usize].generator.as_mut()?;
        if let Some((at, uid)) = generator.classified
            && at == version
        {
            return uid;
        }
        let header = *generator.header();
        let uid = self.find_dag(&header);
        let generator = self.sources[source as usize].generator.as_mut()?;
        generator.classified = Some((version, uid));
        uid
    }

    /// The DAG of packets with this header.
    pub(super) fn find_dag(&self, header: &Header) -> Option<DagUid> {
        header.dag.or_else(|| {
            let mut rows = self.banks.current().classifier.iter();
            rows.find(|row| matches(row, header)).map(|row| DagUid::from_raw(row.dag_uid))
        })
    }

    /// Counts the packet for its DAG and asks the DAG's token bucket.
    fn admit(&mut self, at: u32, uid: DagUid, bytes: u32) {
        let Some(row) = self.row_for(at) else {
            return self.drop_packet(at, DropCause::StaleUid);
        };
        let number = self.stats.dag(uid.row()).packets_in;
        self.stats.intended(uid.row(), bytes);
        let offered = self.packets[at].offered;
        self.packets[at].timeline = self.latencies.begin(uid.row(), number, offered);
        self.saw(at, PacketStep::Arrived);
        if row.rate_limiter == NONE || !self.options.rate_limits {
            return self.begin(at);
        }
        let room = self.queue_room(row.rate_limiter);
        let Some(limiter) = self.limiters.get_mut(usize::from(row.rate_limiter)) else {
            return self.drop_packet(at, DropCause::RateLimited);
        };
        match limiter.arrive(self.now, bytes, room) {
            Verdict::Pass => self.begin(at),
            Verdict::Drop => self.drop_packet(at, DropCause::RateLimited),
            Verdict::Wait(until) => {
                let generation = limiter.generation;
                if self.options.shaper_memory.is_none() && !self.store(at, bytes) {
                    return self.drop_packet(at, DropCause::StoreFull);
                }
                self.set_room(at, StoreShare::Waiting);
                self.waiting += 1;
                let limiter = &mut self.limiters[usize::from(row.rate_limiter)];
                if let Some(before) = limiter.push(at, bytes) {
                    self.packets[before].next = at;
                }
                if let Some(until) = until {
                    let event = Event::Release { limiter: row.rate_limiter, generation };
                    self.wheel.at(until, event);
                }
            }
        }
    }

    /// Room for the queue at a token bucket. A queue grows as long as it is shorter than what all of them leave free:
    /// however many senders send too much, one more still finds room (dynamic queue length thresholds, Choudhury and
    /// Hahne, IEEE/ACM ToN 6(2), 1998).
    fn queue_room(&self, limiter: u16) -> QueueRoom {
        let bytes = self.options.shaper_queue.get();
        let Some(ShaperMemory { buffers, micros }) = self.options.shaper_memory else {
            let waiting = self.cells_of[StoreShare::Waiting as usize];
            let free = (self.cells / WAITING_PART).saturating_sub(waiting);
            let bytes = bytes.min(free * u64::from(self.timing.beat_bytes));
            return QueueRoom { bytes, packets: u32::MAX };
        };
        let row = self.banks.current().limiters.get(usize::from(limiter)).copied().flatten();
        let kbps = row.map_or(0, |row| u64::from(row.rate_kbps));
        let passes = kbps.saturating_mul(micros.into()) / 8_000;
        QueueRoom { bytes: bytes.max(passes), packets: buffers.saturating_sub(self.waiting) }
    }

    /// The first packet at a token bucket may pass.
    pub(super) fn release(&mut self, number: u16, generation: u32) {
        let limiter = &mut self.limiters[usize::from(number)];
        let Some(at) = limiter.first().filter(|_| limiter.generation == generation) else {
            return;
        };
        let Packet { bytes, next, .. } = self.packets[at];
        limiter.pop(self.now, bytes, next);
        self.waiting -= 1;
        self.arm_limiter(number);
        self.begin(at);
    }

    /// Puts a packet into the packet store, where it is not there yet; `false` where there is no room.
    fn store(&mut self, at: u32, bytes: u32) -> bool {
        let cells = u64::from(self.timing.beats(bytes));
        let packet = &mut self.packets[at];
        if packet.stored {
            return true;
        }
        packet.stored = cells <= self.cells_free;
        self.cells_free -= cells * u64::from(packet.stored);
        packet.stored
    }

    /// Counts a packet's cells in another part of the packet store.
    pub(super) fn set_room(&mut self, at: u32, room: StoreShare) {
        let cells = u64::from(self.timing.beats(self.packets[at].bytes));
        let before = std::mem::replace(&mut self.packets[at].room, room);
        self.cells_of[room as usize] += cells;
        self.cells_of[before as usize] -= cells;
    }

    fn arm_limiter(&mut self, number: u16) {
        let limiter = &self.limiters[usize::from(number)];
        let ready = limiter.first().and_then(|at| limiter.ready_at(self.packets[at].bytes));
        if let Some(ready) = ready {
            let event = Event::Release { limiter: number, generation: limiter.generation };
            self.wheel.at(ready, event);
        }
    }

    /// The row of a token bucket changed: what waits there gets its new rate, or goes where there
    /// is none.
    pub(super) fn limiter_changed(&mut self, number: u16) {
        let row = self.banks.current().limiters[usize::from(number)];
        let limiter = &mut self.limiters[usize::from(number)];
        limiter.set(self.now, row, self.timing.clock);
        if limiter.ready_at(0).is_some() {
            return self.arm_limiter(number);
        }
        while let Some(at) = self.limiters[usize::from(number)].first() {
            let Packet { bytes, next, .. } = self.packets[at];
            self.limiters[usize::from(number)].drop_first(bytes, next);
            self.waiting -= 1;
            self.drop_packet(at, DropCause::RateLimited);
        }
    }

    /// From here on the packet reads the tables as they are now, whatever is committed later.
    fn begin(&mut self, at: u32) {
        let Packet { bytes, ready_since, .. } = self.packets[at];
        let since = ready_since.max(self.now.saturating_sub(KEPT_CYCLES));
        // It may have waited long: the DAG can be another one by now.
        let Some(row) = self.row_for(at) else {
            return self.drop_packet(at, DropCause::StaleUid);
        };
        let limiter = self.limiters.get_mut(usize::from(row.rate_limiter));
        let claim = match limiter.filter(|_| self.options.rate_limits) {
            Some(limiter) => limiter.claim(self.now, since, bytes),
            None => Claim::EQUAL,
        };
        let rank = claim.rank(self.now);
        let (beyond, is_early) = (rank == Rank::Beyond, rank == Rank::Early);
        self.set_room(at, if beyond { StoreShare::Beyond } else { StoreShare::Within });
        let is_over =
            beyond && self.cells_of[StoreShare::Beyond as usize] > self.cells / BEYOND_PART;
        let kept = self.cells / DUE_PART + claim.used_of(self.now, self.cells / CALM_PART);
        if is_over || is_early && self.cells_free < kept {
            return self.drop_packet(at, DropCause::RateLimited);
        }
        if !self.store(at, bytes) {
            return self.drop_packet(at, DropCause::StoreFull);
        }
        self.latencies.pass(self.packets[at].timeline, PathPart::Ingress, self.now);
        let (bank, version) = self.banks.begin();
        if (beyond || is_early) && !std::mem::replace(&mut self.paces, true) {
            // Until now nobody asked what is ahead.
            self.regions.iter_mut().for_each(Region::note_ahead);
        }
        let packet = &mut self.packets[at];
        packet.bank = Some(bank as u8);
        packet.version = version;
        packet.payload = row.payload;
        packet.claim = claim;
        packet.stage = row.first_stage;
        packet.next = NIL;
        self.saw(at, PacketStep::Admitted);
        if row.stages == 0 && self.processors.is_some() {
            return self.begin_programs(at);
        }
        self.enter_stage(at, self.now + self.timing.front);
    }
}

fn matches(row: &ClassifierRow, header: &Header) -> bool {
    let inside = |(address, mask): (u32, u32), at: u32| at & mask == address & mask;
    row.virtual_function.is_none_or(|vf| vf == header.virtual_function)
        && row.vni.is_none_or(|vni| header.vni == Some(vni))
        && row.vlan.is_none_or(|vlan| header.vlan == Some(vlan))
        && row.protocol.is_none_or(|protocol| protocol == header.protocol)
        && row.source_port.is_none_or(|port| port == header.source_port)
        && row.destination_port.is_none_or(|port| port == header.destination_port)
        && inside(row.source, header.source)
        && inside(row.destination, header.destination)
}
