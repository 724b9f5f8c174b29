//! Packets with bytes: in from outside, past each NT, and out again. See [`crate::frames`].

use std::collections::BTreeMap;
use std::sync::Arc;

use snic_domain::Timestamp;
use snic_ports::packets::PacketStep;
use snic_tables::{DropCause, RowKey, Table};

use super::ingress::Arrival;
use super::{NIL, Packet, PacketCopy, Plane, bank_index};
use crate::frames::{FrameAtNt, FrameId, Frames, MadeFrame, NtOutcome, Sighting};
use crate::latency::UNSAMPLED;
use crate::region::slots;
use crate::traffic::Header;
use crate::wheel::Event;

/// The source of packets whose sequence number is that of a frame. No generator has this number.
pub(super) const OUTSIDE: u32 = u32::MAX;

/// Step of a copy after an NT.
pub(super) enum AfterNt {
    /// It goes on.
    GoesOn,
    /// It is no more.
    Ended,
}

impl Packet {
    /// The frame with its bytes, where it has bytes.
    pub(super) const fn frame(&self) -> Option<FrameId> {
        if self.source == OUTSIDE { Some(FrameId(self.sequence)) } else { None }
    }
}

impl Plane {
    /// Whether packets have bytes.
    pub(crate) const fn has_frames(&self) -> bool {
        self.frames.is_some()
    }

    /// Sets the holder of the bytes, from now on.
    pub(crate) fn set_frames(&mut self, frames: Box<dyn Frames>) {
        self.frames = Some(frames);
    }

    pub(crate) fn frames(&mut self) -> Option<&mut dyn Frames> {
        self.frames.as_deref_mut()
    }

    pub(crate) const fn watch(&mut self, on: bool) {
        self.watched = on;
    }

    /// A packet took a step: who watches is told.
    #[inline]
    pub(super) fn saw(&mut self, packet: u32, step: PacketStep) {
        if self.watched {
            self.report_step(packet, step);
        }
    }

    #[cold]
    fn report_step(&mut self, packet: u32, step: PacketStep) {
        let now = self.time();
        let packet = &self.packets[packet];
        if let (Some(frame), Some(frames)) = (packet.frame(), &mut self.frames) {
            frames.saw(&Sighting { frame, uid: packet.uid, step, now });
        }
    }

    /// The card's time.
    pub(super) fn time(&self) -> Timestamp {
        Timestamp::from_nanos(self.clock().nanos(self.now))
    }

    /// A frame arrives now.
    pub(crate) fn inject(&mut self, frame: FrameId, header: &Header, bytes: u32) {
        let beats = u64::from(self.timing.beats(bytes));
        self.ingress.port.serve_beats(self.now, u64::from(bytes) * 8, beats);
        let uid = self.find_dag(header);
        let (source, sequence) = (OUTSIDE, frame.0);
        let ready_since = self.now;
        let flow = header.flow_hash();
        self.arrive(Arrival { source, sequence, bytes, uid, flow, ready_since, visit: NIL });
    }

    /// Rows of DAGs or of ports changed: who holds the frames follows.
    pub(crate) fn report_dags(
        &mut self,
        changed: &[RowKey],
        configurations: &BTreeMap<(u32, u32), Arc<[u8]>>,
    ) {
        let now = self.time();
        let Some(frames) = &mut self.frames else { return };
        let dags = changed.iter().filter(|key| key.table == Table::Dag);
        let current = self.banks.current();
        let rows: Vec<_> = dags.map(|key| (key.row, current.dags[usize::from(key.row)])).collect();
        frames.committed(now, &rows, configurations);
        let guards = changed.iter().filter(|key| key.table == Table::Guard);
        let guards: Vec<_> = guards.map(|key| (key.row, self.banks.row(*key))).collect();
        if !guards.is_empty() {
            frames.guarded(&guards);
        }
    }

    /// The bytes of a copy's packet, where it has any, meet the NT that the copy is in.
    pub(super) fn pass_frame(&mut self, at: u32) -> AfterNt {
        let now = self.time();
        let copy = self.copies[at];
        let packet = &self.packets[copy.packet];
        let slot = copy.rest.trailing_zeros();
        let Some(frame) = packet.frame() else { return AfterNt::GoesOn };
        let nt = self.number(&copy, slot as usize);
        let (Some(nt), Some(frames)) = (nt, &mut self.frames) else { return AfterNt::GoesOn };
        let (region, slot) = (copy.region, slot as u8);
        let passage =
            FrameAtNt { frame, bytes: packet.bytes, nt, region, slot, uid: packet.uid, now };
        let passed = frames.pass(&passage);
        self.saw(copy.packet, PacketStep::Passed { region, slot });
        while let Some(made) = self.frames.as_mut().and_then(|frames| frames.made()) {
            self.add_made(at, made);
        }
        match passed {
            NtOutcome::On { bytes } => self.resize(at, bytes),
            NtOutcome::Back { bytes } => {
                self.turn_back(at);
                self.resize(at, bytes)
            }
            NtOutcome::Dropped => self.end_copy(at, DropCause::ByNt),
            NtOutcome::UsedUp => self.end_copy(at, DropCause::UsedUp),
        }
    }

    fn end_copy(&mut self, at: u32, cause: DropCause) -> AfterNt {
        let region = self.copies[at].region;
        self.lose(at, cause);
        self.serve(region);
        AfterNt::Ended
    }

    /// The copy passes no NT behind the one that it is in, and its packet no further stage.
    fn turn_back(&mut self, at: u32) {
        let copy = &mut self.copies[at];
        let here = 1u8 << copy.rest.trailing_zeros();
        let free = copy.held & !here;
        copy.held &= here;
        copy.rest = here;
        self.packets[copy.packet].back = true;
        self.regions[usize::from(copy.region)].give_back(free);
    }

    /// An NT made the packet longer or shorter.
    fn resize(&mut self, at: u32, bytes: u32) -> AfterNt {
        let PacketCopy { packet, region, bits, .. } = self.copies[at];
        if bytes == self.packets[packet].bytes {
            return AfterNt::GoesOn;
        }
        if !self.fit(packet, bytes) {
            return self.end_copy(at, DropCause::StoreFull);
        }
        let now_bits = u64::from(bytes) * 8;
        self.copies[at].bits = now_bits;
        let region = &mut self.regions[usize::from(region)];
        region.bits_waiting = region.bits_waiting - bits + now_bits;
        AfterNt::GoesOn
    }

    /// Gives a packet as many cells as it needs with another length; `false` where there are too few.
    pub(super) fn fit(&mut self, packet: u32, bytes: u32) -> bool {
        let before = self.packets[packet].bytes;
        let (held, needed) = (self.timing.beats(before), self.timing.beats(bytes));
        let free = self.cells_free + u64::from(held);
        let Some(left) = free.checked_sub(u64::from(needed)) else { return false };
        self.cells_free = left;
        let room = self.packets[packet].room as usize;
        self.cells_of[room] = self.cells_of[room] - u64::from(held) + u64::from(needed);
        self.packets[packet].bytes = bytes;
        true
    }

    /// An NT made a frame while a copy was in it: a packet of the same DAG and table version, which goes
    /// on behind the NT or back.
    fn add_made(&mut self, at: u32, made: MadeFrame) {
        let from = self.copies[at];
        let parent = self.packets[from.packet];
        self.stats.packets_made += 1;
        self.in_flight += 1;
        self.in_flight_of[usize::from(parent.uid.row())] += 1;
        let cells = u64::from(self.timing.beats(made.bytes));
        let bank = parent.bank.filter(|_| cells <= self.cells_free);
        if let Some(bank) = bank {
            self.cells_free -= cells;
            self.banks.begin_in(bank_index(bank));
        }
        self.cells_of[parent.room as usize] += cells;
        let packet = self.packets.insert(Packet {
            arrived: self.now,
            source: OUTSIDE,
            sequence: made.frame.0,
            bytes: made.bytes,
            next: NIL,
            bank,
            stored: bank.is_some(),
            joining: 1,
            synchronised: false,
            holders: 1,
            failed: None,
            back: made.back,
            visit: NIL,
            timeline: UNSAMPLED,
            ..parent
        });
        self.saw(packet, PacketStep::Made);
        let here = 1u8 << from.rest.trailing_zeros();
        let rest = if made.back { 0 } else { from.rest & !here };
        match bank {
            None => self.drop_packet(packet, DropCause::StoreFull),
            // Its home card waits for no such packet.
            Some(_) if parent.visit != NIL => self.drop_packet(packet, DropCause::LinkLost),
            Some(_) if rest == 0 => self.copy_back(packet, true, None),
            Some(_) => self.send_on(packet, &from, rest),
        }
    }

    /// A packet that an NT made goes through the rest of the chain: it asks for credits of its own.
    fn send_on(&mut self, packet: u32, from: &PacketCopy, rest: u8) {
        let bits = u64::from(self.packets[packet].bytes) * 8;
        let region = &mut self.regions[usize::from(from.region)];
        region.in_flight += 1;
        region.of_bank[self.packets[packet].bank.map_or(0, bank_index)] += 1;
        region.bits_waiting += bits;
        for slot in slots(rest) {
            region.load[slot].intended += bits / 8;
        }
        let copy = PacketCopy {
            packet,
            next: NIL,
            bits,
            rest,
            leg: 0,
            held: 0,
            joined: true,
            timeline: UNSAMPLED,
            ..*from
        };
        let copy = self.copies.insert(copy);
        self.wheel.at(self.now + self.timing.pass, Event::Dispatch { copy });
    }
}
