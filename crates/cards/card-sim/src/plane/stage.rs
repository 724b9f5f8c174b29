//! Stages: one pass of the scheduler for a packet, a copy for each branch, and the synchronisation
//! buffer in which the packet waits for them.
//!
//! An entry of the buffer is taken before any copy is made, and copies never wait for an entry:
//! a full buffer holds packets back at the scheduler and nothing else. Packets beyond their promises wait
//! until nobody else does, and leave half of the entries to those within.

use snic_domain::limits::{FORK_BRANCHES_MAX, SYNC_ROWS};
use snic_tables::{DropCause, InstancePlace, InstanceRow, NONE, PathPart, StageRow, Steering};

use super::links::Crossing;
use super::{NIL, Packet, PacketCopy, Plane, bank_index, named, queue_number};
use crate::latency::UNSAMPLED;
use crate::region::slots;
use crate::spread::FlowAtStage;
use crate::wheel::Event;

/// Cycles after which a queue whose first copy still waits counts as one that does not move: 66 µs at 250 MHz, four times what
/// a copy that others overtake waits at most.
const STALL_CYCLES: u64 = 16_384;

/// An instance for a packet.
#[derive(Clone, Copy)]
struct Chosen {
    instance: u16,
    columns: InstanceRow,
    /// The packet's flow, where it chose.
    flow: Option<FlowAtStage>,
}

/// The branches of a stage with their instances.
#[derive(Clone, Copy, Default)]
struct Branches {
    chosen: [Option<Chosen>; FORK_BRANCHES_MAX],
}

impl Plane {
    /// The packet reaches the scheduler at cycle `ready`.
    pub(super) fn enter_stage(&mut self, at: u32, ready: u64) {
        let row = match self.stage_row(at) {
            Ok(row) => row,
            Err(cause) => return self.drop_packet(at, cause),
        };
        let packet = &mut self.packets[at];
        packet.ready = ready;
        packet.next_stage = if row.last { NONE } else { row.next };
        let mut chains = row.chains.into_iter().filter_map(named);
        match (chains.next(), chains.next()) {
            (None, _) => self.drop_packet(at, DropCause::NoInstance),
            (Some(chain), None) => self.start_single(at, chain),
            (Some(_), Some(_)) => {
                let beyond = self.packets[at].claim.is_beyond();
                self.sync_waiting[usize::from(beyond)].push_back(at);
                self.serve_buffer();
            }
        }
    }

    /// A stage of one branch, as most are: no copies to wait for.
    fn start_single(&mut self, at: u32, chain: u16) {
        match self.choose(at, chain, 0) {
            Err(cause) => self.drop_packet(at, cause),
            Ok(chosen) => {
                self.packets[at].joining = 1;
                let ready = self.now.max(self.packets[at].ready);
                let ready = self.pass_ends(ready, !self.packets[at].claim.is_beyond());
                let event = self.branch(at, chosen, true);
                self.wheel.at(ready, event);
            }
        }
    }

    /// Copy that gets the next free entry of the synchronisation buffer: the one that waits longest.
    fn next_for_buffer(&mut self) -> Option<u32> {
        let free = usize::from(self.sync_free);
        let [within, beyond] = &mut self.sync_waiting;
        let first = if free > 0 { within.pop_front() } else { None };
        first.or_else(|| if free > SYNC_ROWS / 2 { beyond.pop_front() } else { None })
    }

    /// Gives free entries of the synchronisation buffer to those who wait longest.
    fn serve_buffer(&mut self) {
        if std::mem::replace(&mut self.sync_serving, true) {
            // Whoever serves already goes on until none is free or none waits.
            return;
        }
        while let Some(at) = self.next_for_buffer() {
            self.sync_free -= 1;
            self.packets[at].synchronised = true;
            match self.stage_row(at) {
                Ok(row) => self.start_stage(at, &row),
                Err(cause) => {
                    self.leave_buffer(at);
                    self.drop_packet(at, cause);
                }
            }
        }
        self.sync_serving = false;
    }

    fn stage_row(&self, at: u32) -> Result<StageRow, DropCause> {
        let packet = &self.packets[at];
        let bank = packet.bank.map_or(self.banks.active(), bank_index);
        let rows = self.banks.rows_for(bank, packet.version)?;
        let row = rows.stages.get(usize::from(packet.stage)).copied().flatten();
        row.ok_or(DropCause::NoInstance)
    }

    fn start_stage(&mut self, at: u32, row: &StageRow) {
        let branches = match self.choose_all(at, row) {
            Ok(branches) => branches,
            Err(cause) => {
                self.leave_buffer(at);
                return self.drop_packet(at, cause);
            }
        };
        let Packet { ready, timeline, .. } = self.packets[at];
        self.latencies.add(timeline, PathPart::SyncEntry, self.now.saturating_sub(ready));
        let all = mask_of(&branches);
        // A stage that waits for none of its branches would overtake itself: it waits for all.
        let joined = if row.join_mask & all == 0 { all } else { row.join_mask & all };
        let packet = &mut self.packets[at];
        packet.joining = joined.count_ones() as u8;
        packet.holders += (all & !joined).count_ones() as u8;
        let (ready, is_promised) = (self.now.max(packet.ready), !packet.claim.is_beyond());
        for (branch, chosen) in branches.chosen.into_iter().enumerate() {
            if let Some(chosen) = chosen {
                let is_joined = joined >> branch & 1 == 1;
                let event = self.branch(at, chosen, is_joined);
                let ready = self.pass_ends(ready, is_promised);
                self.wheel.at(ready, event);
            }
        }
    }

    /// An instance for each branch.
    fn choose_all(&mut self, at: u32, row: &StageRow) -> Result<Branches, DropCause> {
        let mut branches = Branches::default();
        for (branch, chain) in row.chains.into_iter().enumerate() {
            if let Some(chain) = named(chain) {
                branches.chosen[branch] = Some(self.choose(at, chain, branch as u8)?);
            }
        }
        Ok(branches)
    }

    /// An instance of the virtual chain of a branch, in rows of the packet's version.
    fn choose(&mut self, at: u32, chain: u16, branch: u8) -> Result<Chosen, DropCause> {
        let Packet { bank, version, bytes, claim, uid, flow, stages_done, .. } = self.packets[at];
        let flow = FlowAtStage { dag: uid.row(), stage: stages_done, branch, hash: flow };
        let bank = bank.map_or(self.banks.active(), bank_index);
        let rows = self.banks.rows_for(bank, version)?;
        let load = |place: InstancePlace| match place {
            InstancePlace::Region { region, .. } => {
                self.regions.get(usize::from(region)).map_or(0, |region| region.bits_waiting)
            }
            InstancePlace::Link { link, .. } => self.links.load(link),
        };
        let instance = self.spread.choose(rows, chain, (bytes, flow), load)?;
        let rows = self.banks.rows_for(bank, version)?;
        let columns = rows.instances[usize::from(instance)].ok_or(DropCause::NoInstance)?;
        let steering = rows.chains[usize::from(chain)].map(|row| row.steering);
        let flow = (steering == Some(Steering::ByFlow)).then_some(flow);
        let chosen = Chosen { instance, columns, flow };
        match columns.place {
            InstancePlace::Link { link, .. } => {
                let fits = self.links.has_room(link, uid.row(), bytes, claim.is_beyond());
                return if fits { Ok(chosen) } else { Err(DropCause::LinkFull) };
            }
            InstancePlace::Region { used_mask: 0, .. } => return Err(DropCause::NoInstance),
            InstancePlace::Region { region, .. } if usize::from(region) >= self.regions.len() => {
                return Err(DropCause::RegionUnavailable);
            }
            InstancePlace::Region { .. } => {}
        }
        if self.is_over_full(queue_number(bank, instance)) {
            return Err(DropCause::StoreFull);
        }
        Ok(chosen)
    }

    /// Whether a queue moves no more, and is longer than twice what is free in the packet store. NTs that let no packet go would
    /// else fill the store with packets within their promise, and no other DAG would be served (dynamic queue length thresholds,
    /// Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998).
    fn is_over_full(&self, number: usize) -> bool {
        let queue = &self.queues[number];
        let free = self.cells_free * u64::from(self.timing.beat_bytes) * 8;
        queue.bits > 2 * free && self.now - self.copies[queue.head].waits_since > STALL_CYCLES
    }

    /// One way of a packet through a stage: what happens when its pass of the scheduler is over.
    fn branch(&mut self, packet: u32, chosen: Chosen, joined: bool) -> Event {
        let Packet { timeline, synchronised, .. } = self.packets[packet];
        let timeline = match synchronised {
            true => self.latencies.fork(timeline),
            false => std::mem::replace(&mut self.packets[packet].timeline, UNSAMPLED),
        };
        match chosen.columns.place {
            InstancePlace::Region { region, used_mask } => {
                let instance = chosen.instance;
                let copy = self.copy((packet, instance), (region, used_mask), joined, timeline);
                self.copies[copy].flow = chosen.flow;
                if let Some(flow) = chosen.flow {
                    self.spread.hold(flow, region);
                }
                Event::Dispatch { copy }
            }
            InstancePlace::Link { link, entry } => {
                let crossing = Crossing { packet, link, entry, joined, timeline };
                Event::Cross { away: self.prepare_away(crossing) }
            }
        }
    }

    fn copy(
        &mut self,
        (packet, instance): (u32, u16),
        (number, used_mask): (u8, u8),
        joined: bool,
        timeline: u32,
    ) -> u32 {
        let Packet { bytes, claim, bank, .. } = self.packets[packet];
        let region = &mut self.regions[usize::from(number)];
        region.in_flight += 1;
        region.of_bank[bank.map_or(0, bank_index)] += 1;
        region.bits_waiting += u64::from(bytes) * 8;
        for slot in slots(used_mask) {
            region.load[slot].intended += u64::from(bytes);
        }
        self.copies.insert(PacketCopy {
            packet,
            next: NIL,
            waits_since: 0,
            bits: u64::from(bytes) * 8,
            swallowed_at: 0,
            instance,
            epoch: 0,
            region: number,
            rest: used_mask,
            leg: 0,
            held: 0,
            claim,
            joined,
            flow: None,
            timeline,
        })
    }

    /// A copy is through its region, or lost in it: the way of the last that the packet waits for is the packet's.
    pub(super) fn end_branch(&mut self, packet: u32, joined: bool, timeline: u32) {
        let packet = &mut self.packets[packet];
        let ended = match joined && packet.joining == 1 {
            true => std::mem::replace(&mut packet.timeline, timeline),
            false => timeline,
        };
        self.latencies.end(ended);
    }

    /// A copy is through its region, or lost in it.
    pub(super) fn copy_back(&mut self, at: u32, joined: bool, failed: Option<DropCause>) {
        let packet = &mut self.packets[at];
        packet.failed = packet.failed.or(failed);
        if !joined {
            return self.release_holder(at);
        }
        packet.joining -= 1;
        if packet.joining > 0 {
            return;
        }
        let Packet { failed, next_stage, back, synchronised, .. } = *packet;
        self.leave_buffer(at);
        match (failed, named(next_stage).filter(|_| !back)) {
            (Some(cause), _) => self.drop_packet(at, cause),
            (None, None) => self.leave_stages(at),
            (None, Some(next)) => {
                let packet = &mut self.packets[at];
                (packet.stage, packet.stages_done) = (next, packet.stages_done.wrapping_add(1));
                let sync = if synchronised { self.timing.sync } else { 0 };
                self.enter_stage(at, self.now + sync);
            }
        }
    }

    fn leave_buffer(&mut self, at: u32) {
        if std::mem::take(&mut self.packets[at].synchronised) {
            self.sync_free += 1;
            self.serve_buffer();
        }
    }
}

fn mask_of(branches: &Branches) -> u8 {
    let bits = branches.chosen.iter().enumerate();
    bits.fold(0, |mask, (branch, chosen)| mask | u8::from(chosen.is_some()) << branch)
}
