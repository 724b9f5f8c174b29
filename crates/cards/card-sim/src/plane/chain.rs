//! Regions: credits for a whole chain, the port, and NT after NT.
//!
//! A copy enters a region only with a credit of every NT it uses. Copies without credits wait in a queue for each
//! instance, in order; whenever a credit is returned, the waiting instances of the region take
//! turns. So a busy chain does not block copies that skip its busy NTs. To prevent starvation of copies that need many
//! credits, a copy that was first in its queue for [`PATIENCE_CYCLES`] lets
//! no other overtake.
//!
//! A packet in profile never waits for out-of-profile packets of its own DAG: it gives its tokens back to its DAG's
//! promise, and the first of those that wait are in profile as far as the tokens go, in bits and in packets. So a DAG's
//! packets stay in order, and what is due of them is what was promised, whatever their sizes.
//!
//! A waiting copy keeps its place in the packet store, which bounds the queues; ports have
//! no buffers.

use snic_domain::DagUid;
use snic_ports::packets::PacketStep;
use snic_tables::{DropCause, PathPart, Table};

use super::access::Access;
use super::outside::AfterNt;
use super::{
    Claim, NIL, Packet, PacketCopy, Plane, PlaneOptions, Queue, Rank, StoreShare, bank_index,
    queue_number,
};
use crate::context::CountedPacket;
use crate::region::NEVER;
use crate::wheel::Event;

/// Cycles for which the first of a queue may be passed over: 16 µs at 250 MHz, far longer than any NT keeps a credit.
const PATIENCE_CYCLES: u64 = 4_096;

/// Whether a copy may enter its region.
pub(super) enum Entry {
    /// For these slots.
    Granted(u8),
    Wait,
    Refused(DropCause),
}

impl Plane {
    /// The scheduler's pass is over.
    pub(super) fn dispatch(&mut self, at: u32) {
        let PacketCopy { region, instance, packet, timeline, .. } = self.copies[at];
        self.copies[at].waits_since = self.now;
        self.latencies.pass(timeline, PathPart::Pipeline, self.now);
        self.saw(packet, PacketStep::Scheduled { region });
        if self.lanes[usize::from(region)].is_empty() {
            match self.entry(at) {
                Entry::Granted(leg) => return self.launch(at, leg),
                Entry::Refused(cause) => return self.lose(at, cause),
                Entry::Wait => {}
            }
        }
        let older = self.older_queue(at);
        let helps = older.is_some_and(|older| self.trade(older, at));
        let bank = self.packets[packet].bank.map_or(0, bank_index);
        let number = queue_number(bank, instance);
        let queue = &mut self.queues[number];
        queue.bits += self.copies[at].bits;
        let before = std::mem::replace(&mut queue.tail, at);
        if queue.head != NIL {
            self.copies[before].next = at;
            if self.trade(number, at) || helps {
                self.serve(region);
                self.call(region);
            }
            return;
        }
        queue.head = at;
        queue.beyond = if self.copies[at].claim.is_beyond() { at } else { NIL };
        self.lanes[usize::from(region)].push_back(number as u16);
        self.serve(region);
        self.call(region);
    }

    /// While a commit is busy, the DAG's packets of the old version wait in another queue, before those of the new
    /// one: a copy in profile trades with them as with those of its own queue.
    fn older_queue(&self, at: u32) -> Option<usize> {
        let PacketCopy { packet, instance, .. } = self.copies[at];
        let Packet { bank, uid, .. } = self.packets[packet];
        let draining = self.banks.draining()?;
        let older = queue_number(draining, instance);
        let first = self.queues[older].beyond;
        let is_older = bank.map(bank_index) != Some(draining) && self.queues[older].head != NIL;
        let trades = is_older && first != NIL && self.packets[self.copies[first].packet].uid == uid;
        trades.then_some(older)
    }

    /// A copy was appended to its queue, or comes behind an older one: if it is in profile and others of the queue are
    /// not, it gives up its part of the promise, and the first of them get theirs. Returns whether one of them is the head
    /// of the queue.
    fn trade(&mut self, number: usize, at: u32) -> bool {
        let queue = &mut self.queues[number];
        let (first, is_beyond) = (queue.beyond, self.copies[at].claim.is_beyond());
        if first == NIL || is_beyond {
            queue.beyond = if first == NIL && is_beyond { at } else { first };
            return false;
        }
        let (one, other) = (self.copies[first].packet, self.copies[at].packet);
        // What a packet with branches counts as stays, for its other branches wait elsewhere.
        if self.packets[one].synchronised || self.packets[other].synchronised {
            queue.beyond = self.copies[first].next;
            let is_head = queue.head == first;
            (self.copies[first].claim, self.copies[at].claim) =
                (self.copies[at].claim, self.copies[first].claim);
            return is_head;
        }
        let Packet { uid, bytes, .. } = self.packets[other];
        let Some(limiter) = self.limiter_of_dag(uid) else { return false };
        self.limiters[limiter].give_back(bytes);
        self.set_claim(at, Claim::BEYOND);
        let mut is_head = false;
        loop {
            let Queue { head, beyond: first, .. } = self.queues[number];
            if first == NIL {
                break;
            }
            let bytes = self.packets[self.copies[first].packet].bytes;
            let claim = self.limiters[limiter].claim(self.now, self.now, bytes);
            if claim.is_beyond() {
                break;
            }
            self.set_claim(first, claim);
            self.queues[number].beyond = self.copies[first].next;
            is_head |= head == first;
        }
        is_head
    }

    /// The token bucket of a DAG that the card still has.
    fn limiter_of_dag(&self, uid: DagUid) -> Option<usize> {
        let limiter = usize::from(self.row_of_dag(uid)?.rate_limiter);
        (limiter < self.limiters.len()).then_some(limiter)
    }

    /// Sets what a copy that waits, and its packet, may claim.
    fn set_claim(&mut self, at: u32, claim: Claim) {
        let PacketCopy { packet, .. } = self.copies[at];
        self.copies[at].claim = claim;
        self.packets[packet].claim = claim;
        self.set_room(
            packet,
            if claim.is_beyond() { StoreShare::Beyond } else { StoreShare::Within },
        );
    }

    #[inline]
    pub(super) fn entry(&mut self, at: u32) -> Entry {
        let PacketCopy { packet, region: number, rest, .. } = self.copies[at];
        let packet = &self.packets[packet];
        let bank = packet.bank.map_or(self.banks.active(), bank_index);
        let row = match self.banks.rows_for(bank, packet.version) {
            Ok(rows) => rows.regions[usize::from(number)],
            Err(cause) => return Entry::Refused(cause),
        };
        let region = &self.regions[usize::from(number)];
        let fits = row.is_some_and(|row| row.bitstream_tag == region.digest[0]);
        if !fits || !region.is_usable() || !region.has_slots(rest) {
            return Entry::Refused(DropCause::RegionUnavailable);
        }
        if self.must_pace(at) {
            return Entry::Wait;
        }
        let region = &mut self.regions[usize::from(number)];
        let leg = match self.options {
            PlaneOptions { credits: false, .. } => rest,
            PlaneOptions { credits: true, .. } => region.admit(self.now, rest),
        };
        if leg == 0 { Entry::Wait } else { Entry::Granted(leg) }
    }

    /// Lets copies that wait for a region enter it, until none can.
    pub(super) fn serve(&mut self, region: u8) {
        // Those that are due first; where they lack credits, others may have them.
        for rank in [Rank::Due, Rank::Early, Rank::Beyond] {
            if !self.take_turns(region, rank) {
                break;
            }
        }
    }

    /// Whether it goes as one that is due, for a commit waits for it and others kept it waiting for long. Of a region's
    /// copies one does so in [`PATIENCE_CYCLES`].
    pub(super) fn is_relieved(&self, at: u32) -> bool {
        let copy = &self.copies[at];
        let waited = self.now - copy.waits_since;
        let bank = self.packets[copy.packet].bank.map(bank_index);
        waited > PATIENCE_CYCLES
            && self.banks.draining().is_some_and(|draining| bank == Some(draining))
            && copy.claim.rank(self.now) > Rank::Due
            && self.regions[usize::from(copy.region)].relieves_at <= self.now
    }

    pub(super) fn rank(&self, at: u32) -> Rank {
        if self.is_relieved(at) { Rank::Due } else { self.copies[at].claim.rank(self.now) }
    }

    /// Puts instances in the order of what their first copies may claim; among equals, whose turn it is.
    fn order(&mut self, lane: usize) {
        if self.lanes[lane].len() > 1 {
            let mut numbers = std::mem::take(&mut self.lanes[lane]);
            numbers.make_contiguous().sort_by_key(|number| {
                let first = self.queues[usize::from(*number)].head;
                let relieved = self.is_relieved(first);
                if relieved { (Rank::Due, 0) } else { self.copies[first].claim.order(self.now) }
            });
            self.lanes[lane] = numbers;
        }
    }

    /// Lets instances take turns whose packet has this rank or a better one; returns whether another was
    /// skipped.
    fn take_turns(&mut self, region: u8, rank: Rank) -> bool {
        let lane = usize::from(region);
        self.order(lane);
        let mut tries = self.lanes[lane].len();
        let mut passed = false;
        while tries > 0 {
            let Some(number) = self.lanes[lane].pop_front() else { break };
            let at = self.queues[usize::from(number)].head;
            if self.rank(at) > rank {
                passed = true;
                self.lanes[lane].push_back(number);
                tries -= 1;
                continue;
            }
            let yields = self.must_yield(lane, number, at);
            let verdict = if yields { Entry::Wait } else { self.entry(at) };
            if matches!(verdict, Entry::Wait) {
                let waited = self.now - self.copies[at].waits_since;
                if !yields && waited > PATIENCE_CYCLES && self.rank(at) == Rank::Due {
                    self.lanes[lane].push_front(number);
                    return false;
                }
                self.lanes[lane].push_back(number);
                tries -= 1;
                continue;
            }
            self.leave_queue(lane, number, at);
            match verdict {
                Entry::Refused(cause) => self.lose(at, cause),
                Entry::Granted(leg) => self.launch(at, leg),
                // A copy that waits has not left its queue.
                Entry::Wait => {}
            }
            self.order(lane);
            tries = self.lanes[lane].len();
        }
        passed
    }

    /// While a commit is busy, copies of the old version go first: the commit waits for them, and
    /// packets of one flow stay in order. But nobody waits for those of others that have a smaller claim: neither
    /// a packet that is due for a burst, nor a small burst for a larger one.
    fn must_yield(&self, lane: usize, number: u16, at: u32) -> bool {
        let Some(draining) = self.banks.draining() else { return false };
        let old = |number: u16| usize::from(number) / Table::Instance.rows() == draining;
        let own = &self.copies[at];
        let uid = |copy: &PacketCopy| self.packets[copy.packet].uid;
        let comes_first = |number: u16| {
            let head = self.queues[usize::from(number)].head;
            let order = |at: u32| self.copies[at].claim.order(self.now);
            order(head) <= order(at) || uid(&self.copies[head]) == uid(own)
        };
        !old(number) && self.lanes[lane].iter().any(|&other| old(other) && comes_first(other))
    }

    fn leave_queue(&mut self, lane: usize, number: u16, at: u32) {
        let next = std::mem::replace(&mut self.copies[at].next, NIL);
        let queue: &mut Queue = &mut self.queues[usize::from(number)];
        queue.head = next;
        queue.bits -= self.copies[at].bits;
        if queue.beyond == at {
            queue.beyond = next;
        }
        if next != NIL {
            self.copies[next].waits_since = self.now;
            self.lanes[lane].push_back(number);
        }
    }

    /// The copy crosses the crossbar; whole where an NT reads payloads, else only its header.
    #[inline]
    pub(super) fn launch(&mut self, at: u32, leg: u8) {
        if self.is_relieved(at) {
            let region = usize::from(self.copies[at].region);
            self.regions[region].relieves_at = self.now + PATIENCE_CYCLES;
        }
        let PacketCopy { packet, region, timeline, .. } = self.copies[at];
        self.latencies.pass(timeline, PathPart::Credits, self.now);
        self.saw(packet, PacketStep::Entered { region });
        let copy = &mut self.copies[at];
        let region = &mut self.regions[usize::from(copy.region)];
        copy.epoch = region.epoch;
        if self.paces {
            region.let_in(leg, self.now, copy.bits);
        }
        copy.leg = leg;
        copy.held = if self.options.credits { leg } else { 0 };
        let (number, is_promised) = (usize::from(copy.region), !copy.claim.is_beyond());
        let packet = &self.packets[copy.packet];
        let beats = if packet.payload { self.timing.beats(packet.bytes) } else { 1 };
        let read = self.read_store(beats, is_promised);
        let beats = u64::from(beats) + u64::from(self.options.descriptor_beats);
        // A port that waits for the store serves others meanwhile.
        let start = self.regions[number].port.serve_beats(self.now, 1, beats).start.max(read);
        if start > self.now {
            self.wheel.at(start, Event::Reach { copy: at });
        } else {
            self.reach(at);
        }
    }

    /// The copy stands before the next NT it uses.
    #[inline]
    pub(super) fn reach(&mut self, at: u32) {
        let copy = &mut self.copies[at];
        // Behind another NT of the chain no time has passed since that.
        self.latencies.pass(copy.timeline, PathPart::Port, self.now);
        let region = &mut self.regions[usize::from(copy.region)];
        let slot = copy.rest.trailing_zeros() as u8;
        let present = region.is_usable() && region.epoch == copy.epoch;
        let Some(nt) = region.nts[usize::from(slot)].as_mut().filter(|_| present) else {
            return self.lose(at, DropCause::RegionUnavailable);
        };
        let served = nt.meter.serve(self.now, copy.bits);
        let leaves = served.start + nt.latency;
        copy.swallowed_at = served.end;
        self.wheel.at(leaves, Event::Leave { copy: at });
    }

    /// The copy's head is through an NT's pipeline; where the NT accesses memory, it waits for that.
    pub(super) fn leave(&mut self, at: u32) {
        let region = &self.regions[usize::from(self.copies[at].region)];
        if self.accesses.is_empty() && !region.moves_memory {
            return self.forward_head(at);
        }
        match self.access(at) {
            Access::None => self.forward_head(at),
            Access::Answered(cycle) => self.wheel.at(cycle, Event::Answer { copy: at }),
            Access::Fault => {
                let region = self.copies[at].region;
                self.lose(at, DropCause::MemoryFault);
                self.serve(region);
            }
        }
    }

    /// The copy's head leaves the NT it is in.
    pub(super) fn forward_head(&mut self, at: u32) {
        let copy = &mut self.copies[at];
        let number = copy.region;
        let region = &mut self.regions[usize::from(number)];
        if !region.is_usable() || region.epoch != copy.epoch {
            return self.lose(at, DropCause::RegionUnavailable);
        }
        if region.stopped {
            return region.stuck.push(at);
        }
        if self.frames.is_some()
            && let AfterNt::Ended = self.pass_frame(at)
        {
            return;
        }
        let copy = &mut self.copies[at];
        let region = &mut self.regions[usize::from(number)];
        let slot = copy.rest.trailing_zeros();
        self.latencies.pass_nt(copy.timeline, (number, slot as u8), self.now);
        let bit = 1u8 << slot;
        region.load[slot as usize].served += copy.bits / 8;
        if region.contexts.keeps(slot) {
            let packet = &self.packets[copy.packet];
            let (uid, bytes) = (packet.uid.raw(), copy.bits / 8);
            region.contexts.count(slot, CountedPacket { uid, flow: packet.source, bytes });
            *self.counted.entry(uid).or_default() += 1;
        }
        let mut returned = copy.held & bit;
        copy.held &= !bit;
        copy.rest &= !bit;
        if copy.swallowed_at > self.now && returned != 0 {
            // The NT takes longer to swallow it than its head to get through.
            returned = 0;
            self.wheel.at(copy.swallowed_at, Event::Credit { region: number, slot: slot as u8 });
        }
        let (more, back) = (copy.rest != 0, copy.rest & copy.leg == 0);
        if returned != 0 {
            region.send_back(self.now + self.options.credit_cycles.get(), returned);
        }
        if more && back {
            self.wheel.at(self.now + self.timing.pass, Event::Dispatch { copy: at });
        } else if more {
            self.reach(at);
        } else {
            self.exit(at, None);
        }
        if returned != 0 {
            self.call(number);
        }
    }

    /// An NT is done with a packet whose head left before.
    pub(super) fn credit(&mut self, region: u8, slot: u8) {
        let back = self.now + self.options.credit_cycles.get();
        self.regions[usize::from(region)].send_back(back, 1 << slot);
        self.call(region);
    }

    /// Wakes the copies that wait for credits of a region when the next one is returned.
    #[inline]
    pub(super) fn call(&mut self, region: u8) {
        let waits = !self.lanes[usize::from(region)].is_empty();
        let region = &mut self.regions[usize::from(region)];
        if !waits {
            region.calls_at = NEVER;
            return;
        }
        region.call(self.now);
        self.calls_at = self.calls_at.min(region.calls_at);
    }

    /// It is [`Plane::calls_at`]: before anything else happens in this cycle, credits that are back
    /// are for those who wait.
    pub(super) fn credits_are_back(&mut self) {
        for region in 0..self.regions.len() {
            if self.regions[region].calls_at <= self.now {
                self.regions[region].take_back(self.now);
                self.serve(region as u8);
                self.call(region as u8);
            }
        }
        let calls = self.regions.iter().map(|region| region.calls_at);
        self.calls_at = calls.min().unwrap_or(NEVER);
    }

    /// The region does not have the copy any more.
    fn exit(&mut self, at: u32, failed: Option<DropCause>) {
        let PacketCopy { packet, region, joined, bits, timeline, flow, .. } =
            self.copies.remove(at);
        if let Some(flow) = flow {
            self.spread.release(flow);
        }
        let region = &mut self.regions[usize::from(region)];
        region.in_flight -= 1;
        region.of_bank[self.packets[packet].bank.map_or(0, bank_index)] -= 1;
        region.bits_waiting -= bits;
        self.end_branch(packet, joined, timeline);
        self.copy_back(packet, joined, failed);
    }

    /// The copy is lost, and its credits are free.
    pub(super) fn lose(&mut self, at: u32, cause: DropCause) {
        let PacketCopy { region, held, .. } = self.copies[at];
        self.regions[usize::from(region)].give_back(held);
        self.exit(at, Some(cause));
    }
}
