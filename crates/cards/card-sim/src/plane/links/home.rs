//! Packets of this card that are away: at another card, on the way there, or on the way back.

use std::sync::Arc;

use snic_tables::{DropCause, PathPart};

use super::super::{Packet, Plane};
use super::{AWAY_MILLIS, Job, Links};
use crate::frame::FRAME_BYTES_MAX;
use crate::links::{LinkDescriptor, LinkFrame, LinkMessage};
use crate::wheel::Event;

/// A packet's way to another card and back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Away {
    packet: u32,
    /// Its number; zero where nobody is here.
    generation: u32,
    /// Row of its DAG.
    row: u16,
    /// Row of the other card's DAG table.
    entry: u16,
    stage: u16,
    link: u8,
    /// Whether its packet waits for it.
    joined: bool,
    /// Length with which it went: its part of the window.
    bytes: u32,
    timeline: u32,
}

/// Way to another card.
#[derive(Debug, Clone, Copy)]
pub(in crate::plane) struct Crossing {
    pub(in crate::plane) packet: u32,
    pub(in crate::plane) link: u8,
    /// Row of the other card's DAG table.
    pub(in crate::plane) entry: u16,
    /// Whether the packet waits for it.
    pub(in crate::plane) joined: bool,
    pub(in crate::plane) timeline: u32,
}

const fn token(away: u32, generation: u32) -> u64 {
    (generation as u64) << 32 | away as u64
}

impl Links {
    /// Whether a packet of a DAG finds room in the window of a link.
    pub(in crate::plane) fn has_room(&self, link: u8, row: u16, bytes: u32, beyond: bool) -> bool {
        let Some(port) = self.ports.get(usize::from(link)) else { return false };
        let left = self.window.saturating_sub(port.counters.away);
        let own = port.away_of.get(&row).copied().unwrap_or(0) + u64::from(bytes);
        own <= if beyond { left / 2 } else { 2 * left } && u64::from(bytes) <= left
    }

    /// The place of a packet that is away, by the token of an answer.
    fn find(&self, link: u8, descriptor: &LinkDescriptor) -> Option<u32> {
        let (at, generation) = (descriptor.token as u32, (descriptor.token >> 32) as u32);
        if at as usize >= self.aways.capacity() || generation == 0 {
            return None;
        }
        let away = &self.aways[at];
        let is_it = away.generation == generation
            && (away.link, away.entry, away.stage) == (link, descriptor.entry, descriptor.stage);
        is_it.then_some(at)
    }
}

impl Plane {
    /// A packet is going to leave for another card: keeps a place for it.
    pub(in crate::plane) fn prepare_away(&mut self, crossing: Crossing) -> u32 {
        let Crossing { packet, link, entry, joined, timeline } = crossing;
        let Packet { uid, bytes, stage, .. } = self.packets[packet];
        self.links.generation = self.links.generation.wrapping_add(1).max(1);
        let generation = self.links.generation;
        let row = uid.row();
        let port = self.links.port_of(link);
        port.counters.away += u64::from(bytes);
        *port.away_of.entry(row).or_default() += u64::from(bytes);
        let away = Away { packet, generation, row, entry, stage, link, joined, bytes, timeline };
        let at = self.links.aways.insert(away);
        let deadline = self.now + self.timing.clock.cycles_for(AWAY_MILLIS, 1_000);
        if self.links.overdue.is_empty() {
            self.wheel.at(deadline, Event::Overdue);
        }
        self.links.overdue.push_back((deadline, at, generation));
        at
    }

    /// The scheduler's pass is over: the packet waits for the link.
    pub(in crate::plane) fn cross(&mut self, at: u32) {
        let Away { packet, generation, row, link, bytes, timeline, .. } = self.links.aways[at];
        self.latencies.pass(timeline, PathPart::Pipeline, self.now);
        let is_promised = !self.packets[packet].claim.is_beyond();
        let port = self.links.port_of(link);
        port.push(row, (Job::Away(at, generation), bytes), is_promised);
        self.serve_link(link);
    }

    /// The frame of a packet whose turn it is; `None` where it was lost while it waited.
    pub(super) fn frame_of_away(&mut self, at: u32, generation: u32) -> Option<LinkFrame> {
        let away = self.links.aways[at];
        if away.generation != generation {
            return None;
        }
        let packet = self.packets[away.packet];
        let tenant = self.tenant_of(&packet);
        let payload = packet.frame().zip(self.frames.as_mut());
        let payload = payload.map_or_else(Arc::default, |(frame, frames)| frames.lend(frame));
        let descriptor = LinkDescriptor {
            home_uid: packet.uid.raw(),
            tenant,
            stage: away.stage,
            version: packet.version,
            entry: away.entry,
            token: token(at, generation),
        };
        Some(LinkFrame { descriptor, message: LinkMessage::Packet, bytes: packet.bytes, payload })
    }

    /// The tenant's number, in the rows that the packet began with.
    fn tenant_of(&self, packet: &Packet) -> u16 {
        let bank = packet.bank.map_or(self.banks.active(), super::super::bank_index);
        let row = self.banks.rows(bank).dags[usize::from(packet.uid.row())];
        row.map_or(0, |row| row.tenant)
    }

    /// A frame is in.
    pub(in crate::plane) fn link_in(&mut self, arrival: u32) {
        let Some((link, frame)) = self.links.coming.remove(&arrival) else { return };
        self.links.port_of(link).counters.frames_in += 1;
        match frame.message {
            LinkMessage::Packet => self.guest_arrives(link, &frame),
            LinkMessage::Back { turned } => self.come_back(link, &frame, turned),
            LinkMessage::Ended(cause) => match self.answered(link, &frame.descriptor) {
                Some(at) => self.end_away(at, Some(cause)),
                None => self.links.port_of(link).counters.stray += 1,
            },
        }
    }

    /// The packet that an answer is for: of this DAG, version, stage and row, and still away.
    fn answered(&self, link: u8, descriptor: &LinkDescriptor) -> Option<u32> {
        let at = self.links.find(link, descriptor)?;
        let packet = &self.packets[self.links.aways[at].packet];
        let is_it = (packet.uid.raw(), packet.version) == (descriptor.home_uid, descriptor.version);
        is_it.then_some(at)
    }

    /// A packet comes back: it takes the bytes and the length that the chain left it.
    fn come_back(&mut self, link: u8, frame: &LinkFrame, turned: bool) {
        let is_packet = (1..=FRAME_BYTES_MAX).contains(&frame.bytes);
        let Some(at) = self.answered(link, &frame.descriptor).filter(|_| is_packet) else {
            self.links.port_of(link).counters.stray += 1;
            return;
        };
        let packet = self.links.aways[at].packet;
        if !self.fit(packet, frame.bytes) {
            return self.end_away(at, Some(DropCause::StoreFull));
        }
        self.packets[packet].back |= turned;
        if let (Some(id), Some(frames)) = (self.packets[packet].frame(), &mut self.frames) {
            frames.replace(id, &frame.payload);
        }
        self.end_away(at, None);
    }

    /// A packet is back, or lost.
    fn end_away(&mut self, at: u32, failed: Option<DropCause>) {
        let away = self.links.aways.remove(at);
        self.links.aways[at].generation = 0;
        let Away { packet, row, link, joined, bytes, timeline, .. } = away;
        let port = self.links.port_of(link);
        port.counters.away -= u64::from(bytes);
        if let Some(of_row) = port.away_of.get_mut(&row) {
            *of_row -= u64::from(bytes);
            if *of_row == 0 {
                port.away_of.remove(&row);
            }
        }
        // A record has no part for links: it is time in which the packet waited for a port and what is behind it.
        self.latencies.pass(timeline, PathPart::Port, self.now);
        self.end_branch(packet, joined, timeline);
        self.copy_back(packet, joined, failed);
    }

    /// The first of the packets that are away may have been so for too long.
    pub(in crate::plane) fn overdue(&mut self) {
        while let Some(&(deadline, at, generation)) = self.links.overdue.front() {
            let is_away = self.links.aways[at].generation == generation;
            if is_away && deadline > self.now {
                return self.wheel.at(deadline, Event::Overdue);
            }
            self.links.overdue.pop_front();
            if is_away {
                self.end_away(at, Some(DropCause::LinkLost));
            }
        }
    }
}
