//! The ends of a packet: out of the card, or dropped and counted.

use snic_ports::packets::PacketStep;
use snic_tables::{DropCause, PathPart};

use super::{NIL, Packet, Plane, bank_index};
use crate::trace::{PacketOutcome, PacketRecord};
use crate::wheel::Event;

impl Plane {
    /// All stages are done: the packet is on its way to the egress port.
    pub(super) fn leave_stages(&mut self, at: u32) {
        self.wheel.at(self.now + self.timing.back, Event::Out { packet: at });
    }

    /// It stands before the egress port.
    pub(super) fn go_out(&mut self, at: u32) {
        let Packet { bytes, claim, timeline, .. } = self.packets[at];
        self.latencies.pass(timeline, PathPart::Pipeline, self.now);
        // While others go out before it.
        self.packets[at].ready = self.read_store(self.timing.beats(bytes), !claim.is_beyond());
        if self.packets[at].visit != NIL {
            return self.go_back(at);
        }
        let none_waits = self.egress.waiting.is_empty();
        if none_waits && self.egress.port.free_at() <= self.now {
            return self.depart(at);
        }
        if none_waits {
            self.wheel.at(self.egress.port.free_at(), Event::EgressFree);
        }
        self.egress.waiting.push(at, self.packets[at].claim);
    }

    /// The egress port is free for the next that waits.
    pub(super) fn egress_free(&mut self) {
        if let Some(at) = self.egress.waiting.pop(self.now) {
            self.depart(at);
        }
        if !self.egress.waiting.is_empty() {
            self.wheel.at(self.egress.port.free_at(), Event::EgressFree);
        }
    }

    /// Its first beat goes out.
    fn depart(&mut self, at: u32) {
        let Packet { bytes, timeline, ready, .. } = self.packets[at];
        self.latencies.pass(timeline, PathPart::Egress, self.now);
        if ready > self.now {
            self.egress.port.not_before(ready);
        }
        let beats = u64::from(self.timing.beats(bytes));
        self.egress.port.serve_beats(self.now, u64::from(bytes) * 8, beats);
        self.count_out(at);
        let Packet { back, .. } = self.packets[at];
        if let Some(frame) = self.packets[at].frame() {
            let now = self.time();
            if let Some(frames) = &mut self.frames {
                frames.out(frame, back, now);
            }
        }
        self.release_holder(at);
    }

    /// A packet leaves the card: it is counted as one that did.
    pub(super) fn count_out(&mut self, at: u32) {
        let Packet { uid, bytes, arrived, offered, source, timeline, .. } = self.packets[at];
        self.latencies.went_out(timeline, uid, (offered, self.now));
        self.stats.served(uid.row(), bytes, [self.now - arrived, self.now - offered]);
        let (clock, took) = (self.timing.clock, self.now - arrived);
        if let Some(meter) = self.meter(source) {
            meter.served(bytes, clock.nanos(took));
        }
        self.record(at, PacketOutcome::Served);
        self.saw(at, PacketStep::Left);
        self.in_flight -= 1;
        self.in_flight_of[usize::from(uid.row())] -= 1;
    }

    /// The packet is dropped.
    pub(super) fn drop_packet(&mut self, at: u32, cause: DropCause) {
        let Packet { uid, source, .. } = self.packets[at];
        if let Some(meter) = self.meter(source) {
            meter.dropped(cause);
        }
        let nobody =
            matches!(cause, DropCause::Unclassified | DropCause::StaleUid | DropCause::NoGuest);
        self.stats.dropped((!nobody).then_some(uid.row()), cause);
        self.record(at, PacketOutcome::Dropped(cause));
        self.saw(at, PacketStep::Dropped(cause));
        if let (Some(frame), Some(frames)) = (self.packets[at].frame(), &mut self.frames) {
            frames.gone(frame, cause);
        }
        self.tell_home(at, cause);
        self.in_flight -= 1;
        self.in_flight_of[usize::from(uid.row())] -= 1;
        self.release_holder(at);
    }

    fn record(&mut self, at: u32, outcome: PacketOutcome) {
        let packet = &self.packets[at];
        let record = PacketRecord {
            source: packet.source,
            sequence: packet.sequence,
            uid: packet.uid,
            bytes: packet.bytes,
            version: packet.version,
            arrived: packet.arrived,
            ended: self.now,
            outcome,
        };
        self.stats.mix(record.words());
        self.trace.push(record);
    }

    /// One holder less; the last gives the packet's place, cells and table version back.
    pub(super) fn release_holder(&mut self, at: u32) {
        let packet = &mut self.packets[at];
        packet.holders -= 1;
        if packet.holders > 0 {
            return;
        }
        self.end_programs(at);
        let Packet { bank, bytes, stored, room, timeline, visit, .. } = self.packets.remove(at);
        if visit != NIL {
            self.links.visits.remove(visit);
        }
        self.latencies.end(timeline);
        let cells = u64::from(self.timing.beats(bytes));
        self.cells_free += cells * u64::from(stored);
        self.cells_of[room as usize] -= cells;
        if let Some(bank) = bank {
            self.banks.end(self.now, bank_index(bank));
        }
    }
}
