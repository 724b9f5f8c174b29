//! Packets of other cards: guests, which rows of the DAG table let in.

use std::sync::Arc;

use snic_domain::DagUid;
use snic_tables::{DagRow, DropCause, Guest, PathPart};

use super::super::ingress::Arrival;
use super::super::outside::OUTSIDE;
use super::super::{NIL, Packet, Plane};
use super::Job;
use crate::frame::FRAME_BYTES_MAX;
use crate::links::{LinkDescriptor, LinkFrame, LinkMessage};

/// Source of packets from links that have no bytes. No generator has this number.
const FROM_LINK: u32 = OUTSIDE - 1;

/// A guest's packet on this card: where it came from, and what it said there.
#[derive(Debug, Clone, Copy)]
pub(in crate::plane) struct Visit {
    link: u8,
    descriptor: LinkDescriptor,
}

impl Plane {
    /// A packet came over a link.
    pub(super) fn guest_arrives(&mut self, link: u8, frame: &LinkFrame) {
        let descriptor = frame.descriptor;
        let is_packet = (1..=FRAME_BYTES_MAX).contains(&frame.bytes);
        let row = self.guest_row(link, &descriptor).filter(|_| is_packet);
        if row.is_none() {
            self.links.port_of(link).counters.refused += 1;
        }
        let held = row.and(self.frames.as_mut());
        let held = held.and_then(|frames| frames.receive(&frame.payload));
        let visit = self.links.visits.insert(Visit { link, descriptor });
        self.arrive(Arrival {
            source: if held.is_some() { OUTSIDE } else { FROM_LINK },
            sequence: held.map_or(descriptor.token as u32, |frame| frame.0),
            bytes: frame.bytes.min(FRAME_BYTES_MAX),
            uid: row.map(|row| DagUid::from_raw(row.uid)),
            // Its own card knows its flow: here all of a guest's are one.
            flow: 0,
            ready_since: self.now,
            visit,
        });
    }

    /// The row that a packet from a link names, where it serves this guest.
    fn guest_row(&self, link: u8, descriptor: &LinkDescriptor) -> Option<DagRow> {
        let row =
            self.banks.current().dags.get(usize::from(descriptor.entry)).copied().flatten()?;
        let guest = Guest { link, home_uid: descriptor.home_uid };
        (row.guest == Some(guest) && row.tenant == descriptor.tenant).then_some(row)
    }

    /// Whether a row serves such a packet: one of a guest serves that alone, and any other none from a link.
    pub(in crate::plane) fn serves(&self, row: &DagRow, visit: u32) -> bool {
        if visit == NIL {
            return row.guest.is_none();
        }
        let Visit { link, descriptor } = self.links.visits[visit];
        row.guest == Some(Guest { link, home_uid: descriptor.home_uid })
    }

    /// A guest's packet is through its chain: it waits for the link.
    pub(in crate::plane) fn go_back(&mut self, at: u32) {
        let Packet { uid, bytes, claim, visit, .. } = self.packets[at];
        let link = self.links.visits[visit].link;
        let port = self.links.port_of(link);
        port.push(uid.row(), (Job::Back(at), bytes), !claim.is_beyond());
        self.serve_link(link);
    }

    /// The frame of a guest's packet whose turn it is; the packet is no longer here.
    pub(super) fn frame_of_visit(&mut self, at: u32) -> LinkFrame {
        let Packet { bytes, visit, back, ready, timeline, .. } = self.packets[at];
        let Visit { link, descriptor } = self.links.visits[visit];
        let payload = self.packets[at].frame().zip(self.frames.as_mut());
        let payload = payload.map_or_else(Arc::default, |(frame, frames)| frames.send_back(frame));
        if ready > self.now {
            self.links.port_of(link).meter.not_before(ready);
        }
        self.latencies.pass(timeline, PathPart::Egress, self.now);
        self.count_out(at);
        self.release_holder(at);
        LinkFrame { descriptor, message: LinkMessage::Back { turned: back }, bytes, payload }
    }

    /// A packet was dropped: if it is a guest's, its home card is told.
    pub(in crate::plane) fn tell_home(&mut self, at: u32, cause: DropCause) {
        let visit = self.packets[at].visit;
        if visit == NIL {
            return;
        }
        let Visit { link, descriptor } = self.links.visits[visit];
        let message = LinkMessage::Ended(cause);
        let notice = LinkFrame { descriptor, message, bytes: 0, payload: Arc::default() };
        self.links.port_of(link).notices.push_back(notice);
        self.serve_link(link);
    }
}
