//! Senders, offloads and what is on the way between them.
//!
//! Sender 0 is the ingress, sender `i` the output of offload `i - 1`. A sender sends one packet at a
//! time, beat by beat, and only where its receiver has room: so a full queue holds up whoever wants
//! into it, and nothing is ever dropped.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::unit::{PlacedPacket, Unit, cycles};
use super::{Design, Offload, PacketClass, Panic, Scheduler, units};
use crate::packets::{Packet, Packets};

/// Event at a cycle and in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A sender has sent the last beat.
    Sent { sender: usize },
    /// The head of a packet is at an offload: in this unit, or by its side.
    Arrives { offload: usize, unit: Option<usize>, packet: PlacedPacket },
    /// A unit is done.
    Done { offload: usize, unit: usize, packet: PlacedPacket },
    /// A packet may leave the ingress.
    Ready,
    /// A packet is back at the ingress.
    Back { packet: PlacedPacket },
    /// The last beat is out.
    Out { packet: PlacedPacket },
}

/// A packet at the ingress, by priority and arrival.
type Waiting = Reverse<(u8, u64, PlacedPacket)>;

/// One offload with its units and what passes by.
#[derive(Debug, Default)]
struct Station {
    units: Vec<Unit>,
    /// Packets that pass by, and their bytes with those on the way.
    bypass: VecDeque<PlacedPacket>,
    bypass_bytes: u64,
    /// The unit whose turn it is to send.
    turn: usize,
    /// The unit that packets are pushed to until it is full (PANIC).
    current: usize,
    /// Free for another packet at its input (PANIC).
    input_free: u64,
}

impl Station {
    fn done_bytes(&self) -> u64 {
        self.units.iter().flat_map(|unit| &unit.done).map(|held| u64::from(held.1)).sum()
    }

    /// A unit of PANIC that has a credit left. The scheduler sees all credits and takes the unit with
    /// the most; who pushes knows one unit, until that has none, and then the next that has.
    fn unit_with_room(&self, from_scheduler: bool, credits: usize) -> Option<usize> {
        let count = self.units.len();
        let has_room = |unit: &usize| self.units[*unit].packets() < credits;
        if from_scheduler {
            return (0..count).filter(has_room).min_by_key(|unit| self.units[*unit].packets());
        }
        (self.current..count).chain(0..self.current).find(has_room)
    }
}

/// Where a packet may go.
#[derive(Debug, Clone, Copy)]
enum NextHop {
    Unit(usize, usize),
    Bypass(usize),
    Ingress,
    Out,
}

/// The data path at work.
#[derive(Debug)]
pub(super) struct Engine<'a> {
    design: &'a Design,
    flows: &'a [PacketClass],
    pub(super) now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    pub(super) packets: Packets,
    stations: Vec<Station>,
    /// Until when a sender is busy, by sender.
    busy: Vec<u64>,
    /// From the wire, by priority and arrival; in PANIC a queue for each first offload and a last one for
    /// packets that need none, in a pipeline the first alone.
    fresh: Vec<BinaryHeap<Waiting>>,
    /// Going round again, and their bytes with those on the way.
    again: VecDeque<PlacedPacket>,
    again_bytes: u64,
    /// The way out is free (PANIC).
    out_free: u64,
    /// Packets that are out, with the cycle of their last beat; taken by the run.
    pub(super) out: Vec<(Packet, u64)>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(design: &'a Design, flows: &'a [PacketClass]) -> Self {
        let count = |offload: &Offload| offload.units.unwrap_or_else(|| units(design, offload));
        let station = |offload| Station {
            units: vec![Unit::default(); count(offload) as usize],
            ..Station::default()
        };
        Self {
            design,
            flows,
            now: 0,
            events: BinaryHeap::new(),
            order: 0,
            packets: Packets::default(),
            stations: design.offloads.iter().map(station).collect(),
            busy: vec![0; design.offloads.len() + 1],
            fresh: vec![BinaryHeap::new(); design.offloads.len() + 1],
            again: VecDeque::new(),
            again_bytes: 0,
            out_free: 0,
            out: Vec::new(),
        }
    }

    fn at(&mut self, cycle: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((cycle, self.order, event)));
    }

    /// A packet of a flow comes in at `cycle`, which is not past.
    pub(super) fn inject(&mut self, cycle: u64, flow: usize, bytes: u32) {
        let packet = self.packets.insert(Packet { flow, bytes, born: cycle, next: 0 });
        self.order += 1;
        let priority = self.flows[flow].priority;
        let queue = match self.panic() {
            Some(_) => self.flows[flow].chain.first().copied().unwrap_or(self.stations.len()),
            None => 0,
        };
        self.fresh[queue].push(Reverse((priority, self.order, (packet, bytes))));
        let pass = self.panic().map_or(0, |panic| panic.pass_cycles);
        self.at(cycle + pass, Event::Ready);
    }

    fn panic(&self) -> Option<Panic> {
        match self.design.scheduler {
            Scheduler::Panic(panic) => Some(panic),
            Scheduler::StaticPipe | Scheduler::FlexPipe => None,
        }
    }

    /// Does what happens before `until`; `false` when nothing is left.
    pub(super) fn run(&mut self, until: u64) -> bool {
        while let Some(&Reverse((cycle, _, event))) = self.events.peek() {
            if cycle >= until {
                return true;
            }
            self.events.pop();
            self.now = cycle;
            self.happen(event);
        }
        false
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ready => self.kick(0),
            Event::Sent { sender } => {
                self.kick(sender);
                // What it sent has left its queue: who sends to it may have waited for that.
                self.kick_all_before(sender);
            }
            Event::Arrives { offload, unit: None, packet } => {
                self.stations[offload].bypass.push_back(packet);
                self.kick(offload + 1);
            }
            Event::Arrives { offload, unit: Some(unit), packet } => {
                self.stations[offload].units[unit].arrive(packet);
                self.work(offload, unit);
            }
            Event::Done { offload, unit, packet } => {
                self.packets[packet.0].next += 1;
                self.stations[offload].units[unit].end(packet);
                self.work(offload, unit);
                self.kick(offload + 1);
                self.kick_all_before(offload + 1);
            }
            Event::Back { packet } => {
                self.again.push_back(packet);
                self.kick(0);
            }
            Event::Out { packet } => {
                let cycle = self.now;
                self.out.push((self.packets.remove(packet.0), cycle));
            }
        }
    }

    fn work(&mut self, offload: usize, unit: usize) {
        let (design, kind) = (self.design, &self.design.offloads[offload]);
        let at = &mut self.stations[offload].units[unit];
        if let Some((packet, ends)) = at.begin(self.now, |bytes| cycles(design, kind, bytes)) {
            self.at(ends, Event::Done { offload, unit, packet });
        }
    }

    /// Senders that may send to offload `offload - 1`, now that there may be room.
    fn kick_all_before(&mut self, offload: usize) {
        if self.panic().is_some() {
            (0..self.busy.len()).for_each(|sender| self.kick(sender));
        } else if offload > 0 {
            self.kick(offload - 1);
        } else {
            // The ingress has room for who goes round again.
            self.kick(self.busy.len() - 1);
        }
    }

    /// A sender sends what it can.
    fn kick(&mut self, sender: usize) {
        if self.busy[sender] > self.now {
            return;
        }
        if sender == 0 { self.send_in() } else { self.send_on(sender) }
    }

    /// The ingress: who goes round again comes first, for the pipeline waits for them.
    fn send_in(&mut self) {
        let pass = self.panic().map_or(0, |panic| panic.pass_cycles);
        // PANIC's scheduler has a queue for each offload: only the pipeline's first holds up all.
        let turns = if self.panic().is_some() { self.again.len() } else { self.again.len().min(1) };
        for at in 0..turns {
            let packet = self.again[at];
            if let Some(place) = self.place(0, packet) {
                self.again.remove(at);
                self.again_bytes -= u64::from(packet.1);
                return self.send(0, packet, place);
            }
        }
        if turns > 0 && self.panic().is_none() {
            return;
        }
        let ready =
            |&Reverse((_, _, packet)): &Waiting| self.packets[packet.0].born + pass <= self.now;
        let heads =
            self.fresh.iter().enumerate().filter_map(|(at, queue)| Some((*queue.peek()?, at)));
        let mut heads: Vec<(Waiting, usize)> = heads.filter(|(head, _)| ready(head)).collect();
        heads.sort_unstable_by_key(|(Reverse(head), _)| *head);
        for (Reverse((_, _, packet)), queue) in heads {
            if let Some(place) = self.place(0, packet) {
                self.fresh[queue].pop();
                return self.send(0, packet, place);
            }
        }
    }

    /// An offload's arbiter: first of whom most waits, what passes by or what is done; among units
    /// in turn.
    fn send_on(&mut self, sender: usize) {
        let station = &self.stations[sender - 1];
        let by_bypass: u64 = station.bypass.iter().map(|held| u64::from(held.1)).sum();
        let bypass_first = by_bypass > station.done_bytes();
        let _ = (bypass_first && self.send_bypass(sender))
            || self.send_done(sender)
            || (!bypass_first && self.send_bypass(sender));
    }

    fn send_bypass(&mut self, sender: usize) -> bool {
        let Some(&packet) = self.stations[sender - 1].bypass.front() else { return false };
        let Some(place) = self.place(sender, packet) else { return false };
        let station = &mut self.stations[sender - 1];
        station.bypass.pop_front();
        station.bypass_bytes -= u64::from(packet.1);
        self.send(sender, packet, place);
        true
    }

    fn send_done(&mut self, sender: usize) -> bool {
        let count = self.stations[sender - 1].units.len();
        let first = self.stations[sender - 1].turn;
        for unit in (first..count).chain(0..first) {
            let Some(&packet) = self.stations[sender - 1].units[unit].done.front() else {
                continue;
            };
            let Some(place) = self.place(sender, packet) else { continue };
            let station = &mut self.stations[sender - 1];
            station.units[unit].done.pop_front();
            station.turn = (unit + 1) % count;
            self.send(sender, packet, place);
            return true;
        }
        false
    }

    /// Where a packet goes from a sender; `None` where there is no room now.
    fn place(&mut self, sender: usize, packet: PlacedPacket) -> Option<NextHop> {
        let Packet { flow, next, .. } = self.packets[packet.0];
        let chain = &self.flows[flow].chain;
        if let Some(panic) = self.panic() {
            return self.place_on_crossbar(sender, packet, chain.get(next).copied(), panic);
        }
        let room = |used: u64| used + u64::from(packet.1) <= self.design.fifo_bytes;
        let Some(station) = self.stations.get(sender) else {
            let all = self.design.scheduler == Scheduler::StaticPipe;
            let done = all || next >= chain.len();
            return match done {
                true => Some(NextHop::Out),
                false => room(self.again_bytes).then_some(NextHop::Ingress),
            };
        };
        let needed = match self.design.scheduler {
            Scheduler::StaticPipe => true,
            _ => chain.get(next) == Some(&sender),
        };
        if !needed {
            return room(station.bypass_bytes).then_some(NextHop::Bypass(sender));
        }
        let loads = station.units.iter().map(|unit| unit.load(self.now)).enumerate();
        let (unit, load) = loads.min_by_key(|&(_, load)| load)?;
        room(load).then_some(NextHop::Unit(sender, unit))
    }

    fn place_on_crossbar(
        &mut self,
        sender: usize,
        packet: PlacedPacket,
        offload: Option<usize>,
        panic: Panic,
    ) -> Option<NextHop> {
        let Some(offload) = offload else {
            return (self.out_free <= self.now).then_some(NextHop::Out);
        };
        let now = self.now;
        let station = &mut self.stations[offload];
        let found = station.unit_with_room(sender == 0, panic.unit_credits);
        match found {
            Some(unit) if station.input_free <= now => {
                if sender > 0 {
                    station.current = unit;
                }
                Some(NextHop::Unit(offload, unit))
            }
            Some(_) => None,
            None if panic.detour && sender > 0 => {
                let room = self.again_bytes + u64::from(packet.1) <= self.design.fifo_bytes;
                room.then_some(NextHop::Ingress)
            }
            None => None,
        }
    }

    /// Sends a packet, beat by beat.
    fn send(&mut self, sender: usize, packet: PlacedPacket, place: NextHop) {
        let beats = self.design.beats(packet.1);
        let (now, hop) = (self.now, self.design.hop_cycles);
        let panic = self.panic();
        let takes = beats + panic.map_or(0, |panic| panic.descriptor_beats);
        let queue = panic.filter(|_| sender == 0).map_or(0, |panic| {
            // A packet takes the priority queue a cycle of its own clock.
            self.design.clock_hz.div_ceil(panic.queue_clock_hz)
        });
        self.busy[sender] = now + takes + queue;
        self.at(now + takes + queue, Event::Sent { sender });
        let ahead = takes - beats;
        let head = now + queue + ahead + hop;
        match place {
            NextHop::Unit(offload, unit) => {
                self.stations[offload].units[unit].expect(packet.1);
                if panic.is_some() {
                    self.stations[offload].input_free = now + queue + takes;
                }
                self.at(head, Event::Arrives { offload, unit: Some(unit), packet });
            }
            NextHop::Bypass(offload) => {
                self.stations[offload].bypass_bytes += u64::from(packet.1);
                self.at(head, Event::Arrives { offload, unit: None, packet });
            }
            NextHop::Ingress => {
                self.again_bytes += u64::from(packet.1);
                let pass = panic.map_or(0, |panic| panic.pass_cycles);
                self.at(head + pass, Event::Back { packet });
            }
            NextHop::Out => {
                self.out_free = now + takes;
                self.at(head + beats, Event::Out { packet });
            }
        }
    }

    /// Finds what must never be once all packets are out.
    pub(super) fn check_rest(&self) -> Result<(), String> {
        let idle = |station: &Station| {
            station.bypass.is_empty()
                && station.bypass_bytes == 0
                && station.units.iter().all(Unit::is_idle)
        };
        if self.packets.len() > 0 {
            return Err(format!("{} packets are stuck", self.packets.len()));
        }
        let stations = self.stations.iter().all(idle);
        let rest = stations && self.again_bytes == 0 && self.fresh.iter().all(BinaryHeap::is_empty);
        if rest { Ok(()) } else { Err("a queue holds what is no packet".into()) }
    }
}
