//! Processors that run NTs as programs: the threads of each program, and the memories that all share.
//!
//! ```text
//!  begin ─► reception by a memory ─► queue ─► a thread, and the memories that it reads and writes ─► next program
//! ```
//!
//! Times of a packet come from `snic_processors::service()` of what was measured. The host says which program runs on
//! how many threads with which buffers, and no rate: what is served follows from here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use snic_domain::{ByteSize, MemoryKind, NtTypeId, ProcessorKind};
use snic_processors::{NicModel, Setting, service};
use snic_tables::DagRow;
use snic_tables::configuration::entries;
use snic_tables::programs::{ProgramStart, programs};

use crate::time::Clock;

const NANOS: u64 = 1_000_000_000;

/// Times of a packet in a program, in cycles.
#[derive(Debug, Clone)]
struct Times {
    bytes: u32,
    thread: u64,
    receive: u64,
    memories: Vec<(MemoryKind, u64)>,
    network: u64,
}

/// A program, its threads and who waits for one.
#[derive(Debug)]
struct Program {
    start: ProgramStart,
    nt: NtTypeId,
    free: u32,
    /// Packets that wait for a thread: those within their promises go first.
    waiting: [VecDeque<u32>; 2],
    /// Times of the last packet.
    times: Option<Times>,
}

/// The programs of a DAG, as they were started together.
#[derive(Debug)]
struct Chain {
    row: u16,
    uid: u32,
    tag: u32,
    programs: Vec<Program>,
    /// Packets that began with it and have not left.
    packets: u64,
    /// Packets begin with another one by now, or with none.
    is_replaced: bool,
}

/// A card's processors.
#[derive(Debug)]
pub(crate) struct Processors {
    model: Arc<NicModel>,
    /// Chains by number, which is never given twice.
    chains: BTreeMap<u32, Chain>,
    /// Chain with which packets begin, by row of the DAG table.
    current: BTreeMap<u16, u32>,
    next: u32,
    /// When each memory has received what came, by processor.
    receives: BTreeMap<(ProcessorKind, MemoryKind), u64>,
    /// When each memory has moved what it was asked to.
    moves: BTreeMap<MemoryKind, u64>,
}

/// Next step of a packet in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It was received, or has run, at this cycle.
    At(u64),
    /// It waits for a thread.
    Waits,
}

impl Processors {
    pub fn new(model: Arc<NicModel>) -> Self {
        Self {
            model,
            chains: BTreeMap::new(),
            current: BTreeMap::new(),
            next: 0,
            receives: BTreeMap::new(),
            moves: BTreeMap::new(),
        }
    }

    /// The same after the power was gone.
    pub fn fresh(&self) -> Self {
        Self::new(Arc::clone(&self.model))
    }

    /// Whether everything in a piece of configurations can be started on such a card.
    pub fn can_start(&self, bytes: &[u8]) -> bool {
        let Ok(entries) = entries(bytes) else { return false };
        entries.iter().all(|entry| {
            entry.number != snic_tables::programs::PROGRAMS || {
                let all = programs(entry);
                all.is_some_and(|all| all.into_iter().all(|start| self.program(start).is_some()))
            }
        })
    }

    fn program(&self, start: ProgramStart) -> Option<Program> {
        let nt = NtTypeId::new(&start.nt_type).ok()?;
        let processor = self.model.processor(start.processor)?;
        let has_threads = processor.usable().is_some_and(|usable| start.threads <= usable);
        let has_program = self.model.implementation(&nt, start.processor).is_some();
        let reaches = processor.path(start.network).and(processor.path(start.working)).is_some();
        let free = start.threads;
        (has_threads && has_program && reaches).then(|| Program {
            start,
            nt,
            free,
            waiting: Default::default(),
            times: None,
        })
    }

    /// A row of the DAG table changed: its programs are started or end. Packets in programs that end go through.
    pub fn row_changed(
        &mut self,
        at: u16,
        row: Option<DagRow>,
        told: impl Fn(&DagRow) -> Option<Arc<[u8]>>,
    ) {
        let chain = self.current.get(&at).and_then(|number| self.chains.get(number));
        let row = row.filter(|row| row.stages == 0);
        let is_same = |row: &DagRow| {
            chain.is_some_and(|chain| (chain.uid, chain.tag) == (row.uid, row.configuration))
        };
        if row.as_ref().is_some_and(is_same) {
            return;
        }
        if let Some(number) = self.current.remove(&at) {
            self.chains.entry(number).and_modify(|chain| chain.is_replaced = true);
            self.sweep(number);
        }
        let Some(row) = row else { return };
        let Some(bytes) = told(&row) else { return };
        let all: Vec<_> = entries(&bytes).iter().flatten().filter_map(programs).flatten().collect();
        let all: Option<Vec<Program>> = all.into_iter().map(|start| self.program(start)).collect();
        if let Some(programs) = all.filter(|programs| !programs.is_empty()) {
            let (uid, tag, packets, is_replaced) = (row.uid, row.configuration, 0, false);
            let chain = Chain { row: at, uid, tag, programs, packets, is_replaced };
            self.chains.insert(self.next, chain);
            self.current.insert(at, self.next);
            self.next += 1;
        }
    }

    /// A packet of the DAG in a row begins; says with which chain.
    pub fn begin(&mut self, row: u16) -> Option<u32> {
        let number = *self.current.get(&row)?;
        self.chains.get_mut(&number)?.packets += 1;
        Some(number)
    }

    /// A packet has left its chain, or was dropped in it.
    pub fn end(&mut self, number: u32) {
        if let Some(chain) = self.chains.get_mut(&number) {
            chain.packets -= 1;
        }
        self.sweep(number);
    }

    fn sweep(&mut self, number: u32) {
        let is_over = |chain: &Chain| chain.is_replaced && chain.packets == 0;
        if self.chains.get(&number).is_some_and(is_over) {
            self.chains.remove(&number);
        }
    }

    /// A packet reaches a program at `now`: when its memory has received it. `None` where the chain has no such
    /// program, so that the packet leaves; an error where nothing is known of such a packet.
    pub fn reach(
        &mut self,
        clock: Clock,
        now: u64,
        at: (u32, u16),
        bytes: u32,
    ) -> Result<Option<u64>, ()> {
        let chain = self.chains.get_mut(&at.0).ok_or(())?;
        let Some(program) = chain.programs.get_mut(usize::from(at.1)) else { return Ok(None) };
        let receive = program.times(&self.model, clock, bytes).ok_or(())?.receive;
        let key = (program.start.processor, program.start.network);
        let until = self.receives.entry(key).or_default();
        *until = now.max(*until) + receive;
        Ok(Some(*until))
    }

    /// A packet was received: it runs on a free thread, or waits for one.
    pub fn run(
        &mut self,
        clock: Clock,
        now: u64,
        at: (u32, u16),
        packet: (u32, u32, bool),
    ) -> Option<Step> {
        let (packet, bytes, beyond) = packet;
        let program = self.chains.get_mut(&at.0)?.programs.get_mut(usize::from(at.1))?;
        program.times(&self.model, clock, bytes)?;
        if program.free == 0 {
            program.waiting[usize::from(beyond)].push_back(packet);
            return Some(Step::Waits);
        }
        program.free -= 1;
        self.occupy(clock, now, at, bytes).map(Step::At)
    }

    /// Takes memories from `now` on; says when the thread is done.
    fn occupy(&mut self, clock: Clock, now: u64, at: (u32, u16), bytes: u32) -> Option<u64> {
        let program = self.chains.get_mut(&at.0)?.programs.get_mut(usize::from(at.1))?;
        let times = program.times(&self.model, clock, bytes)?;
        let mut done = now + times.thread;
        for (memory, cycles) in &times.memories {
            let until = self.moves.entry(*memory).or_default();
            *until = now.max(*until) + cycles;
            done = done.max(*until);
        }
        Some(done)
    }

    /// A thread is done with its packet, which is on its way for these cycles more. Who waits longest, if anybody
    /// does, has the thread next.
    pub fn ran(&mut self, clock: Clock, at: (u32, u16), bytes: u32) -> Option<(u64, Option<u32>)> {
        let program = self.chains.get_mut(&at.0)?.programs.get_mut(usize::from(at.1))?;
        let network = program.times(&self.model, clock, bytes)?.network;
        let [within, beyond] = &mut program.waiting;
        let next = within.pop_front().or_else(|| beyond.pop_front());
        program.free += u32::from(next.is_none());
        Some((network, next))
    }

    /// A packet that waited has a thread: when that is done.
    pub fn run_next(&mut self, clock: Clock, now: u64, at: (u32, u16), bytes: u32) -> Option<u64> {
        self.occupy(clock, now, at, bytes)
    }

    /// Threads that current programs have, by processor.
    fn threads(&self) -> BTreeMap<ProcessorKind, u32> {
        let mut threads: BTreeMap<ProcessorKind, u32> = BTreeMap::new();
        for chain in self.chains.values().filter(|chain| !chain.is_replaced) {
            for program in &chain.programs {
                *threads.entry(program.start.processor).or_default() += program.start.threads;
            }
        }
        threads
    }

    /// Finds what must never be: a thread with two programs, or packets that are counted for none.
    pub fn check(&self) -> Result<(), String> {
        for (kind, threads) in self.threads() {
            let usable = self.model.processor(kind).and_then(|one| one.usable()).unwrap_or(0);
            if threads > usable {
                return Err(format!("programs have {threads} of {usable} {} threads", kind.name()));
            }
        }
        for chain in self.chains.values().filter(|chain| chain.packets == 0) {
            let idle = |program: &Program| {
                program.free == program.start.threads
                    && program.waiting.iter().all(VecDeque::is_empty)
            };
            if !chain.programs.iter().all(idle) {
                return Err(format!(
                    "a thread of the DAG in row {} is busy with nothing",
                    chain.row
                ));
            }
        }
        Ok(())
    }
}

impl Program {
    fn times(&mut self, model: &NicModel, clock: Clock, bytes: u32) -> Option<&Times> {
        if self.times.as_ref().is_none_or(|times| times.bytes != bytes) {
            self.times = Some(self.measured(model, clock, bytes)?);
        }
        self.times.as_ref()
    }

    fn measured(&self, model: &NicModel, clock: Clock, bytes: u32) -> Option<Times> {
        let ProgramStart { processor, threads, network, working, working_set, .. } = self.start;
        let implementation = model.implementation(&self.nt, processor)?;
        let setting = Setting { threads, network, working };
        let sizes = (ByteSize::from_bytes(bytes.into()), ByteSize::from_bytes(working_set));
        let taken = service(model.processor(processor)?, implementation, sizes, setting)?;
        let cycles = |time: std::time::Duration| {
            clock.cycles_for(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), NANOS)
        };
        let memories = taken.memories.iter().map(|(memory, time)| (*memory, cycles(*time)));
        Some(Times {
            bytes,
            thread: cycles(taken.thread),
            receive: taken.receive.map_or(0, cycles),
            memories: memories.collect(),
            network: taken.network.map_or(0, cycles),
        })
    }
}
