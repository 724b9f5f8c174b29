//! A second card, written from what a card does and not from the model: slowly, one cycle after the
//! other, every queue a list, every decision looked up again.
//!
//! Two things in one and the same cycle are done in the order in which it was settled that
//! they would: a packet that came to an NT first leaves it first.

#![allow(missing_docs, reason = "a part of the tests")]

use std::collections::{BTreeMap, VecDeque};

use snic_domain::CardProfile;

/// Cycles after which the first of a queue lets nobody pass any more.
const PATIENCE: u64 = 4_096;

/// A region and the slots that are used there, with the weight of this way.
pub type Way = (u8, u8, u32);

/// Branches, the ways of each, and whether the packet waits for it.
pub type Stage = Vec<(Vec<Way>, bool)>;

#[derive(Debug, Clone)]
pub struct NaiveDag {
    pub stages: Vec<Stage>,
    pub payload: bool,
}

/// Data of an NT.
#[derive(Debug, Clone, Copy)]
pub struct NtData {
    pub latency: u64,
    /// Bits per second.
    pub bps: u64,
    /// Packets per second, if there is such a limit.
    pub packets: Option<u64>,
    /// Whether memory is read for every packet.
    pub reads_memory: bool,
    /// Bytes that are moved in memory for a packet, and for each of its bytes; where both are 0, a beat is read.
    pub moves: (u64, u64),
}

/// Set-up of the card.
#[derive(Debug, Clone)]
pub struct Setup {
    pub profile: CardProfile,
    /// The NTs by region and slot.
    pub regions: Vec<Vec<NtData>>,
    pub dags: Vec<NaiveDag>,
    pub credits: bool,
    /// Whether a packet enters with the credits of the first NTs only.
    pub prefix: bool,
    /// Whether it goes where least is to be done.
    pub least_loaded: bool,
    /// Time that a credit is on its way back.
    pub credit_cycles: u64,
    /// A region takes at most this many packets, in this many cycles.
    pub pace: (u32, u32),
    /// From an access to memory to its answer, beside what the memory's bandwidth costs.
    pub memory_nanos: u64,
    /// Bytes per second that memory serves.
    pub memory_bytes_per_second: u64,
}

/// A packet that waits for the port from cycle `due` on. The DAG's number is its sender's, too.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    pub dag: usize,
    pub due: u64,
    pub bytes: u32,
}

/// Fate of the packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// When its first beat came in.
    pub came_at: u64,
    /// When its first beat went out.
    pub left_at: u64,
    /// Stage, branch, region and slot of every NT, with the cycles of coming and going.
    pub visits: Vec<Visit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    pub stage: usize,
    pub branch: usize,
    pub region: u8,
    pub slot: u8,
    pub came: u64,
    pub left: u64,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Offer {
        packet: usize,
    },
    PortFree,
    /// All stages are done: the packet stands before the egress.
    Stand {
        packet: usize,
    },
    EgressFree,
    Ask {
        copy: usize,
    },
    Come {
        copy: usize,
    },
    Leave {
        copy: usize,
    },
    /// Memory has answered the NT.
    Answer {
        copy: usize,
    },
    GiveBack {
        region: u8,
        slot: u8,
    },
}

/// Something with a rate: a port, an NT. Time is counted so finely that a cycle has as many parts
/// as the rate has bits a second.
#[derive(Debug, Clone)]
struct Unit {
    parts_a_cycle: u128,
    free: u128,
}

impl Unit {
    fn free_cycle(&self) -> u64 {
        u64::try_from(self.free.div_ceil(self.parts_a_cycle)).expect("a short run")
    }

    /// Does nothing before a cycle.
    fn wait_until(&mut self, cycle: u64) {
        self.free = self.free.max(u128::from(cycle) * self.parts_a_cycle);
    }

    /// Begins what takes `parts` in cycle `now`, in which it is free.
    fn begin(&mut self, now: u64, parts: u128) {
        // Whoever waited goes on within the cycle in which the one before ended.
        let was_idle = self.free_cycle() < now;
        let since = if was_idle { u128::from(now) * self.parts_a_cycle } else { self.free };
        self.free = since + parts;
    }
}

#[derive(Debug)]
struct NaiveNt {
    latency: u64,
    reads_memory: bool,
    moves: (u64, u64),
    unit: Unit,
    /// Takes one packet after the other.
    packets: Option<Unit>,
    waiting: VecDeque<usize>,
    /// Those that it has taken, whose bits wait, with the cycle in which it may take the next.
    taken: VecDeque<(usize, u64)>,
    held: u8,
}

#[derive(Debug)]
struct NaiveRegion {
    nts: Vec<NaiveNt>,
    port: Unit,
    /// The ways whose packets wait, in the order of their turns.
    turns: VecDeque<WayId>,
    bits: u64,
}

/// DAG, stage, branch, way.
type WayId = (usize, usize, usize, usize);

#[derive(Debug)]
struct Copy {
    packet: usize,
    way: WayId,
    region: u8,
    rest: Vec<u8>,
    /// NTs of this entry into the region, and those of them whose credit it has.
    entered_for: Vec<u8>,
    credits: Vec<u8>,
    first_since: u64,
    /// The number with which its leaving the NT was settled.
    settled: u64,
    came: u64,
    /// When the NT it is in has all of it.
    swallowed: u64,
    joined: bool,
}

#[derive(Debug, Default)]
struct Progress {
    stage: usize,
    missing: usize,
}

#[derive(Debug)]
pub struct NaiveCard<'a> {
    setup: &'a Setup,
    packets: &'a [Offered],
    now: u64,
    settled: u64,
    to_do: Vec<(u64, u64, Step)>,
    regions: Vec<NaiveRegion>,
    /// Packets that are due while the port is taken, and whether they will be called.
    line: VecDeque<usize>,
    called: bool,
    progress: Vec<Progress>,
    copies: Vec<Copy>,
    queues: BTreeMap<WayId, VecDeque<usize>>,
    owed: BTreeMap<WayId, i128>,
    ingress: Unit,
    egress: Unit,
    /// Packets that stand before the egress, and the cycles from which the packet store gives them.
    leaving: VecDeque<(usize, u64)>,
    /// The packet store's reads, all together, where they are limited.
    store: Option<Unit>,
    memory: Unit,
    seen: Vec<Seen>,
}

/// Runs from cycle `from` until nothing is left to do. Each sender's packets are in their order.
pub fn run(setup: &Setup, packets: &[Offered], from: u64) -> Vec<Seen> {
    let mut card = NaiveCard::new(setup, packets);
    card.now = from;
    for dag in 0..setup.dags.len() {
        card.announce(dag, 0);
    }
    while !card.is_idle() {
        card.cycle();
        card.now += 1;
    }
    card.seen
}

impl<'a> NaiveCard<'a> {
    fn new(setup: &'a Setup, packets: &'a [Offered]) -> Self {
        let unit = |bps: u64| Unit { parts_a_cycle: bps.into(), free: 0 };
        let nt = |&NtData { latency, bps, packets, reads_memory, moves }: &NtData| NaiveNt {
            latency,
            reads_memory,
            moves,
            unit: unit(bps),
            packets: packets.map(unit),
            waiting: VecDeque::new(),
            taken: VecDeque::new(),
            held: 0,
        };
        let region = |nts: &Vec<NtData>| {
            let nts = nts.iter().map(nt).collect();
            let port = unit(setup.pace.0.into());
            NaiveRegion { nts, port, turns: VecDeque::new(), bits: 0 }
        };
        Self {
            setup,
            packets,
            now: 0,
            settled: 0,
            to_do: Vec::new(),
            regions: setup.regions.iter().map(region).collect(),
            line: VecDeque::new(),
            called: false,
            progress: packets.iter().map(|_| Progress::default()).collect(),
            copies: Vec::new(),
            queues: BTreeMap::new(),
            owed: BTreeMap::new(),
            ingress: unit(setup.profile.ingress.get()),
            egress: unit(setup.profile.egress.get()),
            leaving: VecDeque::new(),
            store: setup.profile.packet_store_beats_per_cycle.map(|each| unit(each.get().into())),
            memory: unit(setup.memory_bytes_per_second * 8),
            seen: vec![Seen::default(); packets.len()],
        }
    }

    fn is_idle(&self) -> bool {
        let waits = |nt: &NaiveNt| !nt.waiting.is_empty() || !nt.taken.is_empty();
        self.to_do.is_empty() && !self.regions.iter().flat_map(|region| &region.nts).any(waits)
    }

    fn number(&mut self) -> u64 {
        self.settled += 1;
        self.settled
    }

    fn settle(&mut self, cycle: u64, step: Step) {
        let number = self.number();
        self.to_do.push((cycle, number, step));
    }

    /// A sender offers its next packet when it is due, and the port is free of its last one.
    fn announce(&mut self, dag: usize, from: usize) {
        let next = (from..self.packets.len()).find(|packet| self.packets[*packet].dag == dag);
        if let Some(packet) = next {
            let cycle = self.packets[packet].due.max(self.ingress.free_cycle()).max(self.now);
            self.settle(cycle, Step::Offer { packet });
        }
    }

    fn offer(&mut self, packet: usize) {
        if self.ingress.free_cycle() <= self.now && self.line.is_empty() {
            return self.arrive(packet);
        }
        self.line.push_back(packet);
        self.call_next();
    }

    fn call_next(&mut self) {
        if !self.line.is_empty() && !self.called {
            self.called = true;
            self.settle(self.ingress.free_cycle(), Step::PortFree);
        }
    }

    /// A packet's first beat comes in.
    fn arrive(&mut self, packet: usize) {
        self.seen[packet].came_at = self.now;
        let parts = self.parts(packet, self.ingress.parts_a_cycle);
        self.ingress.begin(self.now, parts);
        // Who is in line comes before the sender's next packet.
        self.call_next();
        self.announce(self.packets[packet].dag, packet + 1);
        let around = self.setup.profile.core.get() - self.pass();
        self.enter(packet, self.now + around.div_ceil(2));
    }

    /// Time of a packet at a port: by its rate, and at least a cycle for each beat.
    fn parts(&self, packet: usize, parts_a_cycle: u128) -> u128 {
        let bits = u128::from(self.packets[packet].bytes) * 8;
        let by_rate = bits * u128::from(self.setup.profile.clock_hz);
        by_rate.max(u128::from(self.beats(packet)) * parts_a_cycle)
    }

    fn beats(&self, packet: usize) -> u64 {
        u64::from(self.packets[packet].bytes.div_ceil(self.setup.profile.width_bits / 8))
    }

    fn cycle(&mut self) {
        // Credits are back before anything asks for one.
        for number in 0..self.regions.len() as u8 {
            let is_here =
                |step: &Step| matches!(step, Step::GiveBack { region, .. } if *region == number);
            let mut any = false;
            while let Some(Step::GiveBack { slot, .. }) = self.take(is_here) {
                self.regions[usize::from(number)].nts[usize::from(slot)].held -= 1;
                any = true;
            }
            if any {
                self.take_turns(number);
            }
        }
        for region in 0..self.regions.len() as u8 {
            for slot in 0..self.regions[usize::from(region)].nts.len() as u8 {
                self.work(region, slot);
            }
        }
        while let Some(step) = self.take(|_| true) {
            match step {
                Step::Offer { packet } => self.offer(packet),
                Step::PortFree => {
                    self.called = false;
                    if let Some(packet) = self.line.pop_front() {
                        self.arrive(packet);
                    }
                }
                Step::Stand { packet } => self.stand(packet),
                Step::EgressFree => self.depart(),
                Step::Ask { copy } => self.ask(copy),
                Step::Come { copy } => self.come(copy),
                Step::Leave { copy } => self.leave(copy),
                Step::Answer { copy } => self.goes_on(copy),
                Step::GiveBack { .. } => unreachable!("none is back in the cycle in which it goes"),
            }
        }
    }

    /// The next step of this cycle among those of a kind.
    fn take(&mut self, is_wanted: impl Fn(&Step) -> bool) -> Option<Step> {
        let is_due = |(cycle, _, step): &(u64, u64, Step)| *cycle <= self.now && is_wanted(step);
        let due = self.to_do.iter().enumerate().filter(|(_, entry)| is_due(entry));
        let (at, _) = due.min_by_key(|(_, (_, number, _))| *number)?;
        Some(self.to_do.remove(at).2)
    }

    fn pass(&self) -> u64 {
        self.setup.profile.scheduler_pass.get()
    }

    /// A packet comes to the scheduler, for its stage, at cycle `ready`.
    fn enter(&mut self, packet: usize, ready: u64) {
        let dag = self.packets[packet].dag;
        let stage = self.progress[packet].stage;
        let branches = &self.setup.dags[dag].stages[stage];
        let awaited = branches.iter().filter(|(_, joined)| *joined).count();
        self.progress[packet].missing = if awaited == 0 { branches.len() } else { awaited };
        let chosen: Vec<usize> =
            (0..branches.len()).map(|branch| self.choose(packet, (dag, stage, branch))).collect();
        for (branch, way) in chosen.into_iter().enumerate() {
            let (ways, joined) = &branches[branch];
            let (region, mask, _) = ways[way];
            self.regions[usize::from(region)].bits += u64::from(self.packets[packet].bytes) * 8;
            self.copies.push(Copy {
                packet,
                way: (dag, stage, branch, way),
                region,
                rest: (0..8).filter(|slot| mask >> slot & 1 == 1).collect(),
                entered_for: Vec::new(),
                credits: Vec::new(),
                first_since: 0,
                settled: 0,
                came: 0,
                swallowed: 0,
                joined: *joined || awaited == 0,
            });
            let copy = self.copies.len() - 1;
            self.settle(ready + self.pass(), Step::Ask { copy });
        }
    }

    fn choose(&mut self, packet: usize, branch: (usize, usize, usize)) -> usize {
        let (dag, stage, number) = branch;
        let ways = &self.setup.dags[dag].stages[stage][number].0;
        if self.setup.least_loaded {
            let bits = |way: &usize| self.regions[usize::from(ways[*way].0)].bits;
            return (0..ways.len()).min_by_key(bits).expect("a branch has a way");
        }
        let bytes = i128::from(self.packets[packet].bytes);
        let mut all = 0;
        for (way, (.., weight)) in ways.iter().enumerate() {
            *self.owed.entry((dag, stage, number, way)).or_default() += i128::from(*weight) * bytes;
            all += i128::from(*weight) * bytes;
        }
        let owed = |way: &usize| self.owed[&(dag, stage, number, *way)];
        // Of equals the first.
        let most = (0..ways.len()).rev().max_by_key(owed).expect("a branch has a way");
        *self.owed.entry((dag, stage, number, most)).or_default() -= all;
        most
    }

    /// A copy asks to enter its region.
    fn ask(&mut self, copy: usize) {
        let Copy { region, way, .. } = self.copies[copy];
        if self.regions[usize::from(region)].turns.is_empty() && self.try_enter(copy) {
            return;
        }
        self.copies[copy].first_since = self.now;
        let queue = self.queues.entry(way).or_default();
        queue.push_back(copy);
        if queue.len() == 1 {
            self.regions[usize::from(region)].turns.push_back(way);
            self.take_turns(region);
        }
    }

    fn take_turns(&mut self, region: u8) {
        let mut left = self.regions[usize::from(region)].turns.len();
        while left > 0 {
            let turns = &mut self.regions[usize::from(region)].turns;
            let way = turns.pop_front().expect("counted");
            let first = self.queues[&way][0];
            if self.try_enter(first) {
                let queue = self.queues.get_mut(&way).expect("it waits");
                queue.pop_front();
                if let Some(&next) = queue.front() {
                    self.copies[next].first_since = self.now;
                    self.regions[usize::from(region)].turns.push_back(way);
                }
                left = self.regions[usize::from(region)].turns.len();
                continue;
            }
            let turns = &mut self.regions[usize::from(region)].turns;
            if self.now - self.copies[first].first_since > PATIENCE {
                turns.push_front(way);
                return;
            }
            turns.push_back(way);
            left -= 1;
        }
    }

    /// Lets a copy into its region, if there are credits; its beats cross the crossbar.
    fn try_enter(&mut self, number: usize) -> bool {
        let copy = &mut self.copies[number];
        let region = &mut self.regions[usize::from(copy.region)];
        let credits = self.setup.profile.credits_initial;
        let mut granted = copy.rest.clone();
        if self.setup.credits {
            let missing =
                granted.iter().position(|slot| region.nts[usize::from(*slot)].held >= credits);
            match missing {
                Some(_) if !self.setup.prefix => return false,
                Some(first) => granted.truncate(first),
                None => {}
            }
            if granted.is_empty() {
                return false;
            }
            granted.iter().for_each(|slot| region.nts[usize::from(*slot)].held += 1);
            copy.credits = granted.clone();
        }
        copy.entered_for = granted;
        let packet = copy.packet;
        let payload = self.setup.dags[self.packets[packet].dag].payload;
        // The packet or its header, and the descriptor.
        let beats = if payload { self.beats(packet) } else { 1 };
        let read = self.read(beats);
        let beats = beats + 1;
        let region = &mut self.regions[usize::from(self.copies[number].region)];
        let begins = region.port.free_cycle().max(self.now);
        let beats = u128::from(beats) * region.port.parts_a_cycle;
        region.port.begin(begins, beats.max(self.setup.pace.1.into()));
        // A port that waits for the store serves others meanwhile.
        let begins = begins.max(read);
        if begins > self.now {
            self.settle(begins, Step::Come { copy: number });
        } else {
            self.come(number);
        }
        true
    }

    /// A copy stands before the next NT.
    fn come(&mut self, copy: usize) {
        // Its credit's return and its leaving are settled now, whenever they are.
        let number = self.number();
        self.number();
        let entry = &mut self.copies[copy];
        (entry.settled, entry.came) = (number, self.now);
        let (region, slot) = (entry.region, entry.rest[0]);
        self.regions[usize::from(region)].nts[usize::from(slot)].waiting.push_back(copy);
        self.work(region, slot);
    }

    /// An NT begins with those that wait, as far as it is free in this cycle.
    fn work(&mut self, region: u8, slot: u8) {
        let clock = u128::from(self.setup.profile.clock_hz);
        let nt = &mut self.regions[usize::from(region)].nts[usize::from(slot)];
        while nt.packets.as_ref().is_none_or(|unit| unit.free_cycle() <= self.now)
            && let Some(number) = nt.waiting.pop_front()
        {
            let next = nt.packets.as_mut().map_or(0, |unit| {
                unit.begin(self.now, clock);
                unit.free_cycle()
            });
            nt.taken.push_back((number, next));
        }
        loop {
            let nt = &mut self.regions[usize::from(region)].nts[usize::from(slot)];
            if nt.unit.free_cycle() > self.now {
                return;
            }
            let Some((number, next)) = nt.taken.pop_front() else { return };
            let copy = &mut self.copies[number];
            let bits = u128::from(self.packets[copy.packet].bytes) * 8;
            nt.unit.begin(self.now, bits * clock);
            let leaves = self.now + nt.latency;
            copy.swallowed = nt.unit.free_cycle().max(next);
            self.to_do.push((leaves, copy.settled + 1, Step::Leave { copy: number }));
        }
    }

    /// A copy's head is through the NT's pipeline.
    fn leave(&mut self, copy: usize) {
        let (region, slot) = (self.copies[copy].region, self.copies[copy].rest[0]);
        let nt = &self.regions[usize::from(region)].nts[usize::from(slot)];
        let (reads, moves) = (nt.reads_memory, nt.moves);
        let profile = &self.setup.profile;
        let bits = match moves {
            (0, 0) if !reads => return self.goes_on(copy),
            (0, 0) => profile.width_bits.into(),
            (packet, byte) => {
                let bytes = self.packets[self.copies[copy].packet].bytes;
                8 * (packet + byte * u64::from(bytes))
            }
        };
        // One access after the other.
        let begins = self.memory.free_cycle().max(self.now);
        self.memory.begin(begins, u128::from(bits) * u128::from(profile.clock_hz));
        let nanos = u128::from(self.setup.memory_nanos) * u128::from(profile.clock_hz);
        let latency = u64::try_from(nanos.div_ceil(1_000_000_000)).expect("a short time").max(1);
        self.settle(self.memory.free_cycle() + latency, Step::Answer { copy });
    }

    /// A copy's head leaves the NT.
    fn goes_on(&mut self, number: usize) {
        let copy = &mut self.copies[number];
        let slot = copy.rest.remove(0);
        let (region, packet, (_, stage, branch, _)) = (copy.region, copy.packet, copy.way);
        let visit = Visit { stage, branch, region, slot, came: copy.came, left: self.now };
        self.seen[packet].visits.push(visit);
        let returns = copy.credits.contains(&slot);
        copy.credits.retain(|held| *held != slot);
        let (settled, swallowed) = (copy.settled, copy.swallowed);
        if returns {
            // Not before the NT has the whole packet.
            let back = self.now.max(swallowed) + self.setup.credit_cycles;
            self.to_do.push((back, settled, Step::GiveBack { region, slot }));
        }
        let copy = &self.copies[number];
        match copy.rest.first() {
            None => self.is_through(number),
            Some(next) if copy.entered_for.contains(next) => self.come(number),
            Some(_) => self.settle(self.now + self.pass(), Step::Ask { copy: number }),
        }
    }

    /// A copy is through its region.
    fn is_through(&mut self, number: usize) {
        let Copy { packet, region, joined, .. } = self.copies[number];
        self.regions[usize::from(region)].bits -= u64::from(self.packets[packet].bytes) * 8;
        if !joined {
            return;
        }
        self.progress[packet].missing -= 1;
        if self.progress[packet].missing > 0 {
            return;
        }
        self.progress[packet].stage += 1;
        let stages = &self.setup.dags[self.packets[packet].dag].stages;
        if self.progress[packet].stage < stages.len() {
            return self.enter(packet, self.now);
        }
        let profile = &self.setup.profile;
        let ready = self.now + (profile.core.get() - profile.scheduler_pass.get()) / 2;
        self.settle(ready, Step::Stand { packet });
    }

    /// A packet stands before the egress, which has its beats read at once.
    fn stand(&mut self, packet: usize) {
        let from = self.read(self.beats(packet));
        self.leaving.push_back((packet, from));
        if self.leaving.len() > 1 {
            return;
        }
        match self.egress.free_cycle() {
            free if free <= self.now => self.depart(),
            free => self.settle(free, Step::EgressFree),
        }
    }

    /// The first packet goes out.
    fn depart(&mut self) {
        let (packet, from) = self.leaving.pop_front().expect("it stands there");
        self.seen[packet].left_at = self.now;
        if from > self.now {
            self.egress.wait_until(from);
        }
        let parts = self.parts(packet, self.egress.parts_a_cycle);
        let begins = self.egress.free_cycle().max(self.now);
        self.egress.begin(begins, parts);
        if !self.leaving.is_empty() {
            self.settle(self.egress.free_cycle(), Step::EgressFree);
        }
    }

    /// Has beats read from the packet store, behind all that was to be read before; says from when on they come.
    fn read(&mut self, beats: u64) -> u64 {
        let now = self.now;
        let Some(store) = &mut self.store else { return now };
        let begins = store.free_cycle().max(now);
        store.begin(begins, beats.into());
        begins
    }
}
