//! The ends of a packet: out of the card, or dropped and counted.

use snic_tables::DropCause;

use super::{Packet, Plane, bank_index};
use crate::trace::{PacketOutcome, PacketRecord};
use crate::wheel::Event;

impl Plane {
    /// All stages are done: the packet waits for the egress port.
    pub(super) fn go_out(&mut self, at: u32) {
        let bytes = self.packets[at].bytes;
        let beats = u64::from(self.timing.beats(bytes));
        let ready = self.now + self.timing.back;
        let start = self.egress.serve_beats(ready, u64::from(bytes) * 8, beats).start;
        self.wheel.at(start, Event::Depart { packet: at });
    }

    /// Its first beat goes out.
    pub(super) fn depart(&mut self, at: u32) {
        let Packet { uid, bytes, arrived, .. } = self.packets[at];
        self.stats.served(uid.row(), bytes, self.now - arrived);
        self.record(at, PacketOutcome::Served);
        let packet = &self.packets[at];
        if let (Some(frame), Some(frames)) = (packet.frame(), &mut self.frames) {
            frames.out(frame, packet.back);
        }
        self.in_flight -= 1;
        self.let_go(at);
    }

    /// The packet goes no further.
    pub(super) fn drop_packet(&mut self, at: u32, cause: DropCause) {
        let uid = self.packets[at].uid;
        let nobody = matches!(cause, DropCause::Unclassified | DropCause::StaleUid);
        self.stats.dropped((!nobody).then_some(uid.row()), cause);
        self.record(at, PacketOutcome::Dropped(cause));
        if let (Some(frame), Some(frames)) = (self.packets[at].frame(), &mut self.frames) {
            frames.gone(frame, cause);
        }
        self.in_flight -= 1;
        self.let_go(at);
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
    pub(super) fn let_go(&mut self, at: u32) {
        let packet = &mut self.packets[at];
        packet.holders -= 1;
        if packet.holders > 0 {
            return;
        }
        let Packet { bank, bytes, stored, .. } = self.packets.remove(at);
        self.cells_free += u64::from(self.timing.beats(bytes)) * u64::from(stored);
        if let Some(bank) = bank {
            self.banks.end(bank_index(bank));
        }
    }
}
