//! The data plane: what happens to packets, event by event, at cycle resolution.
//!
//! ```text
//!  sources ─► ingress port ─► classifier ─► token bucket ─► packet store
//!                                                               │ begins with a table version
//!            ┌──────────────────────────────────────────────────▼─┐
//!            │ scheduler: instance, 16 cycles, credits of a chain │◄──────────┐
//!            └──┬───────────────┬───────────────┬─────────────────┘           │
//!            crossbar: a port for each region, one beat a cycle               │ next stage
//!               ▼               ▼               ▼                             │
//!            [NT─NT─NT]      [NT─NT]         [NT─NT─NT─NT]  regions           │
//!               └───────────────┴───────────────┴─► synchronisation buffer ───┤
//!                                                                             ▼ last stage
//!                                                                        egress port
//! ```
//!
//! The core's cycles (49, one scheduler pass of 16 among them) are spent in three places: before the
//! scheduler, in it, and behind the last stage, so that an unloaded card takes
//! `core + pass · (stages − 1) + Σ d`. Everything else that takes time is waiting for something
//! that another packet has.

mod access;
mod chain;
mod egress;
mod elsewhere;
mod ingress;
mod links;
mod lookups;
mod outside;
mod pace;
mod programs;
mod source;
mod spare;
mod stage;
mod stopped;
mod store_reads;
mod timing;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::num::{NonZeroU32, NonZeroU64};

use snic_domain::limits::SYNC_ROWS;
use snic_domain::{ByteSize, CardProfile, DagUid, RegionPass};
use snic_tables::{DropCause, NONE, RowKey, Table};

use crate::banks::{Bank, Banks};
use crate::frames::Frames;
use crate::latency::Latencies;
use crate::measurement::Stats;
use crate::processors::Processors;
use crate::region::{NEVER, Region};
use crate::shaper::Limiter;
use crate::slab::Slab;
use crate::spread::{FlowAtStage, InstanceSelector};
use crate::time::{Clock, Meter, Rate};
use crate::trace::Trace;
use crate::wheel::{Event, Wheel};

pub use access::MemoryAccess;
pub use elsewhere::{BucketLimit, BucketState};
use links::Links;
use lookups::Lookups;
use source::SourceSlot;
use spare::Spare;
use store_reads::StoreReads;
use timing::Timing;
pub(crate) use turns::Claim;
use turns::{Rank, Turns};

/// No packet, in a link.
const NIL: u32 = u32::MAX;

/// Choices in how the data plane works that are not the card model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneOptions {
    /// Whether packets need credits. Without, regions take whatever the scheduler sends, and
    /// packets wait at the NTs (as in SuperNIC's Figures 9, 12, 13 and 14).
    pub credits: bool,
    /// Whether token buckets hold packets back. Without, what a DAG requested says where it is placed and
    /// no more, and NTs get all that is sent: SuperNIC's own data plane has no rates in its measurements of
    /// throughput (5), for its fairness policy runs in software only.
    pub rate_limits: bool,
    /// Beats of the descriptor that crosses the crossbar with every packet. 1: SuperNIC's parser
    /// attaches it to the header (3.2), and its largest packets stay that much under the 128 Gbit/s of
    /// the data path (Fig. 7).
    pub descriptor_beats: u8,
    /// From where an NT is done to where the scheduler has its credit again, in cycles.
    pub credit_cycles: NonZeroU64,
    /// From where the last branch of a stage is back to where the scheduler has the packet for the next stage, in cycles:
    /// what the synchronisation buffer takes.
    pub sync_cycles: u32,
    /// Largest rate at which the scheduler hands packets to one region.
    pub region_pace: RegionPace,
    /// From an NT's access to on-board memory to the answer on an idle memory, in nanoseconds. The
    /// bandwidth of the memory, which all NTs share, comes on top.
    pub memory_latency_nanos: u32,
    /// Bytes per second that the on-board memory moves for NTs. The rate at which a wrapper copies state to
    /// and from it is another matter, and the profile's.
    pub memory_bytes_per_second: NonZeroU64,
    /// Bytes of one DAG that may wait at its token bucket. 64 KiB: 43 packets of 1500 bytes. They
    /// wait in the packet store, of which all token buckets together have a third.
    pub shaper_queue: ByteSize,
    /// Buffers of a host's memory in which packets wait at token buckets instead.
    pub shaper_memory: Option<ShaperMemory>,
}

/// Room for packets at token buckets that is not in the packet store, as where a host's memory holds them. A queue may
/// have as many buffers as it and all others leave free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShaperMemory {
    /// Buffers of all token buckets, for one packet each.
    pub buffers: u32,
    /// Time in which a token bucket passes what may wait at it, in microseconds; `shaper_queue` where that is more.
    pub micros: u32,
}

/// At most `packets` packets in `cycles` cycles. It is the scheduler's logic that limits them, so the
/// limit moves with the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionPace {
    pub packets: NonZeroU32,
    /// Cycles of the data path.
    pub cycles: NonZeroU32,
}

/// DDR4 behind an FPGA's memory controller, a page miss on an idle memory: 106.6 ns (Wang and others,
/// Benchmarking High Bandwidth Memory on FPGAs, FCCM 2020). Packets' accesses are spread, so a page that
/// is open is seldom the right one.
const MEMORY_LATENCY_NANOS: u32 = 107;

/// One channel of DDR4-2400: 2400 MT/s, 8 bytes each.
const MEMORY_BYTES_PER_SECOND: NonZeroU64 = NonZeroU64::new(19_200_000_000).expect("not zero");

impl Default for PlaneOptions {
    fn default() -> Self {
        Self {
            credits: true,
            rate_limits: true,
            descriptor_beats: RegionPass::SUPERNIC.descriptor_beats,
            credit_cycles: NonZeroU64::new(RegionPass::SUPERNIC.credit_return.get())
                .expect("not zero"),
            sync_cycles: 0,
            region_pace: RegionPace {
                packets: RegionPass::SUPERNIC.packets,
                cycles: RegionPass::SUPERNIC.cycles,
            },
            memory_latency_nanos: MEMORY_LATENCY_NANOS,
            memory_bytes_per_second: MEMORY_BYTES_PER_SECOND,
            shaper_queue: ByteSize::from_bytes(64 << 10),
            shaper_memory: None,
        }
    }
}

/// End of something that is not the data plane's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EndedWork {
    /// A load, by its generation.
    Load(u32),
    /// End of a command to a region's wrapper about state, by its generation.
    State(u8, u16),
}

/// A part of the packet store: how much of it such packets may have is limited.
#[derive(Debug, Clone, Copy)]
enum StoreShare {
    /// Packets within their promises: all that is left.
    Within,
    /// Packets that wait at token buckets.
    Waiting,
    /// Packets beyond their promises.
    Beyond,
}

/// A packet on the card.
#[derive(Debug, Clone, Copy)]
struct Packet {
    /// The cycle of its first beat.
    arrived: u64,
    /// When its sender had it and began to wait for the ingress port.
    offered: u64,
    /// Since when its sender has had a packet ready all the time.
    ready_since: u64,
    source: u32,
    sequence: u32,
    uid: DagUid,
    bytes: u32,
    /// Hash of its flow, and stages that it is through.
    flow: u8,
    stages_done: u8,
    /// The packet behind it where it waits.
    next: u32,
    /// The bank it began with; `None` while it waits at its token bucket.
    bank: Option<u8>,
    version: u32,
    payload: bool,
    /// Claim, by which packets that wait are ordered.
    claim: Claim,
    /// When it reaches the scheduler for the stage it is in; behind all stages, when the egress has its beats.
    ready: u64,
    stage: u16,
    next_stage: u16,
    /// Copies that must be back before it goes on.
    joining: u8,
    /// Whether it holds an entry of the synchronisation buffer.
    synchronised: bool,
    /// Whether it lies in the packet store.
    stored: bool,
    /// Part of the packet store that its cells are of.
    room: StoreShare,
    /// Holders of its place: itself while it is on the card, and copies that nobody waits for.
    holders: u8,
    failed: Option<DropCause>,
    /// An NT sends it back to where it came from: it leaves after the stage it is in.
    back: bool,
    /// Visit of a guest's packet; [`NIL`] for the card's own.
    visit: u32,
    /// The programs that it passes, where its DAG runs as programs; its stage counts them then.
    chain: Option<u32>,
    /// Its timeline, if it is sampled.
    timeline: u32,
}

/// A packet's copy on its way through one region.
#[derive(Debug, Clone, Copy)]
struct PacketCopy {
    packet: u32,
    /// The copy behind it in its queue.
    next: u32,
    /// Since when it is the first of its queue.
    waits_since: u64,
    bits: u64,
    /// When the NT it is in has taken all of it in.
    swallowed_at: u64,
    instance: u16,
    epoch: u16,
    region: u8,
    /// Slots it uses and has not left.
    rest: u8,
    /// Those of them that it has credits for since it entered; then it is back at the scheduler.
    leg: u8,
    /// Slots of which it holds a credit.
    held: u8,
    /// Claim, by which copies that wait for its region are ordered.
    claim: Claim,
    /// Whether its packet waits for it.
    joined: bool,
    /// Its flow, where its chain is steered by it.
    flow: Option<FlowAtStage>,
    /// Timeline of the packet on this copy's way, if it is sampled.
    timeline: u32,
}

#[derive(Debug, Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    bits: u64,
    /// The first that is beyond its promise; from there on all are.
    beyond: u32,
}

#[derive(Debug)]
struct Ingress {
    port: Meter,
    /// Part of the port that promises leave.
    spare: Spare,
    /// Senders whose next packet waits for the port.
    waiting: Turns,
    /// When the next of them is looked at; [`NEVER`] where that is not planned.
    looks_at: u64,
}

#[derive(Debug)]
struct Egress {
    port: Meter,
    /// Packets that wait for it.
    waiting: Turns,
}

/// The data plane with the tables and regions it works on.
#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) now: u64,
    pub(crate) banks: Banks,
    pub(crate) regions: Vec<Region>,
    pub(crate) stats: Stats,
    pub(crate) latencies: Latencies,
    pub(crate) trace: Trace,
    pub(crate) wheel: Wheel,
    timing: Timing,
    options: PlaneOptions,
    credits_initial: u8,
    packets: Slab<Packet>,
    copies: Slab<PacketCopy>,
    /// Packets that came in and are neither out nor dropped.
    in_flight: u64,
    /// The same by the row of their DAG.
    in_flight_of: Vec<u32>,
    sources: Vec<SourceSlot>,
    ingress: Ingress,
    egress: Egress,
    limiters: Vec<Limiter>,
    cells_free: u64,
    cells: u64,
    /// Cells of the packets on the card, by [`StoreShare`].
    cells_of: [u64; 3],
    /// Packets that wait at token buckets.
    waiting: u32,
    spread: InstanceSelector,
    /// Copies that wait for credits, by bank and instance.
    queues: Vec<Queue>,
    /// Queues that are not empty, by region, in the order of their turns.
    lanes: Vec<VecDeque<u16>>,
    /// Whether packets came that are not due: what regions have ahead counts from then on.
    paces: bool,
    /// The first cycle at which a credit is back that somebody waits for.
    calls_at: u64,
    lookups: Lookups,
    /// Beats read from the packet store; `None` where each port reads as it likes.
    store_reads: Option<StoreReads>,
    sync_free: u16,
    /// Packets that wait for an entry: those within their promises, and the others.
    sync_waiting: [VecDeque<u32>; 2],
    sync_serving: bool,
    /// Access of NTs to memory, by code.
    accesses: BTreeMap<u32, MemoryAccess>,
    memory_pages: u64,
    /// The on-board memory's port: one access after the other.
    memory: Meter,
    /// Packets that NTs with state counted, by UID, since power-up: what all contexts sum up to.
    pub(crate) counted: BTreeMap<u32, u64>,
    /// Holder of the bytes of packets that have bytes.
    frames: Option<Box<dyn Frames>>,
    /// Whether each step of a packet is told.
    watched: bool,
    /// Where DAGs run as programs.
    processors: Option<Box<Processors>>,
    pub(crate) links: Links,
}

impl Plane {
    /// An empty card at cycle `now`. The profile was checked.
    pub(crate) fn new(profile: &CardProfile, options: PlaneOptions, now: u64) -> Self {
        let timing = Timing::of(profile, options);
        // Data path and crossbar move a beat a cycle; the ports may be slower.
        let port = |bps: u64| {
            Meter::new(timing.clock.rate(bps).expect("the profile was checked to have no zero"))
        };
        // A region's port counts packets; what takes more beats than that is its beats.
        let RegionPace { packets, cycles } = options.region_pace;
        let pace = Meter::new(Rate::per_cycles(packets, cycles));
        let region = |_| Region::new(pace, profile.credits_initial);
        let cells = profile.packet_store.get() / u64::from(timing.beat_bytes);
        let mut wheel = Wheel::default();
        wheel.skip_to(now);
        Self {
            now,
            banks: Banks::with_links(profile.links.map_or(0, |links| links.count)),
            regions: profile.regions.iter().map(region).collect(),
            stats: Stats::new(now),
            latencies: Latencies::new(),
            trace: Trace::default(),
            wheel,
            timing,
            options,
            credits_initial: profile.credits_initial,
            packets: Slab::default(),
            copies: Slab::default(),
            in_flight: 0,
            in_flight_of: vec![0; Table::Dag.rows()],
            sources: Vec::new(),
            ingress: Ingress {
                port: port(profile.ingress.get()),
                spare: Spare::of(port(profile.ingress.get())),
                waiting: Turns::default(),
                looks_at: NEVER,
            },
            egress: Egress { port: port(profile.egress.get()), waiting: Turns::default() },
            limiters: (0..Table::RateLimiter.rows()).map(|_| Limiter::default()).collect(),
            cells_free: cells,
            cells,
            cells_of: [0; 3],
            waiting: 0,
            spread: InstanceSelector::default(),
            queues: vec![
                Queue { head: NIL, tail: NIL, bits: 0, beyond: NIL };
                2 * Table::Instance.rows()
            ],
            lanes: vec![VecDeque::new(); profile.regions.len()],
            paces: false,
            calls_at: NEVER,
            lookups: Lookups::new(profile.scheduler_lookups_per_cycle.map_or(0, NonZeroU32::get)),
            store_reads: profile.packet_store_beats_per_cycle.map(StoreReads::new),
            sync_free: SYNC_ROWS as u16,
            sync_waiting: Default::default(),
            sync_serving: false,
            accesses: BTreeMap::new(),
            memory_pages: access::pages(profile.memory),
            memory: port(options.memory_bytes_per_second.get().saturating_mul(8)),
            counted: BTreeMap::new(),
            frames: None,
            watched: false,
            processors: None,
            links: Links::new(profile, &timing),
        }
    }

    /// Leaves what a power loss leaves: the sources, which are not on the card, and the trace of what they
    /// sent.
    pub(crate) fn power_cycle(&mut self, profile: &CardProfile) {
        let mut fresh = Self::new(profile, self.options, self.now);
        fresh.sources = std::mem::take(&mut self.sources);
        fresh.trace = std::mem::take(&mut self.trace);
        // What netlists do does not change with the power.
        fresh.accesses = std::mem::take(&mut self.accesses);
        fresh.frames = std::mem::take(&mut self.frames);
        fresh.watched = self.watched;
        fresh.links.goes_on_from(&self.links);
        fresh.processors = self.processors.as_ref().map(|all| Box::new(all.fresh()));
        if let Some(frames) = &mut fresh.frames {
            frames.power_lost();
        }
        *self = fresh;
        for source in 0..self.sources.len() as u32 {
            let slot = &mut self.sources[source as usize];
            if let Some(generator) = &mut slot.generator {
                generator.classified = None;
            }
            if let Some(meter) = &mut slot.meter {
                meter.power_lost();
            }
            self.schedule_source(source, self.now);
        }
    }

    /// Does what happens until the end of cycle `until`; hands out the end of a load or of a move of
    /// state, which are not the data plane's.
    pub(crate) fn run(&mut self, until: u64) -> Option<EndedWork> {
        loop {
            // Credits are back before anything else happens in their cycle.
            let before = until.min(self.calls_at - 1);
            let Some((cycle, event)) = self.wheel.next(before) else {
                if before == until {
                    break;
                }
                self.now = self.calls_at;
                self.credits_are_back();
                continue;
            };
            self.now = cycle;
            match event {
                Event::Emit { source, generation } => self.emit(source, generation),
                Event::IngressFree => self.ingress_free(),
                Event::Claim { source, generation } => self.claim_again(source, generation),
                Event::Release { limiter, generation } => self.release(limiter, generation),
                Event::Dispatch { copy } => self.dispatch(copy),
                Event::Reach { copy } => self.reach(copy),
                Event::Leave { copy } => self.leave(copy),
                Event::Answer { copy } => self.forward_head(copy),
                Event::Credit { region, slot } => self.credit(region, slot),
                Event::Room { region } => self.serve(region),
                Event::Received { packet } => self.received(packet),
                Event::Ran { packet } => self.ran(packet),
                Event::Passed { packet } => self.passed(packet),
                Event::Out { packet } => self.go_out(packet),
                Event::EgressFree => self.egress_free(),
                Event::Cross { away } => self.cross(away),
                Event::LinkFree { link } => self.link_free(link),
                Event::LinkIn { arrival } => self.link_in(arrival),
                Event::Overdue => self.overdue(),
                Event::LoadEnds { generation } => return Some(EndedWork::Load(generation)),
                Event::StateEnds { region, generation } => {
                    return Some(EndedWork::State(region, generation));
                }
            }
        }
        self.now = self.now.max(until);
        None
    }

    /// Rows changed that new packets read: the parts that keep something of a row follow.
    pub(crate) fn rows_changed(&mut self, changed: &[RowKey]) {
        self.spread.forget(self.banks.current(), changed);
        for key in changed {
            match key.table {
                Table::RateLimiter => self.limiter_changed(key.row),
                Table::Credit => self.credits_changed(key.row),
                _ => {}
            }
        }
    }

    fn credits_changed(&mut self, row: u16) {
        let columns = self.banks.current().credits[usize::from(row)];
        let credits = columns.map_or([self.credits_initial; 8], |columns| columns.initial);
        let reservation = columns.map(|columns| columns.reservation).unwrap_or_default();
        if let Some(region) = self.regions.get_mut(usize::from(row)) {
            region.set_credits(credits, reservation);
            self.serve(row as u8);
        }
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.timing.clock
    }

    /// Packets on the card.
    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The most packets that were on the card at once.
    pub(crate) fn places(&self) -> usize {
        self.packets.capacity()
    }

    /// Finds what must never be: packets that are neither here nor gone, credits or cells that are
    /// lost or given twice. Tests and simulations call it after every step.
    pub(crate) fn check(&self) -> Result<(), String> {
        let gone = self.stats.packets_out + self.stats.drops.iter().sum::<u64>();
        let came = self.stats.packets_in + self.stats.packets_made;
        ensure(came == gone + self.in_flight, || {
            let here = self.in_flight;
            format!("{came} packets came, {gone} went, {here} are here")
        })?;
        let copies: u32 = self.regions.iter().map(|region| region.in_flight).sum();
        ensure(copies as usize == self.copies.len(), || {
            format!("{copies} copies are in regions, {} have a place", self.copies.len())
        })?;
        let by_row: u64 = self.in_flight_of.iter().copied().map(u64::from).sum();
        ensure(by_row == self.in_flight, || {
            format!("{by_row} packets are here by their rows, {} in all", self.in_flight)
        })?;
        ensure(self.cells_free <= self.cells, || "more cells are free than there are".into())?;
        ensure(self.cells_of.iter().sum::<u64>() >= self.cells - self.cells_free, || {
            "cells are taken by packets that are not here".into()
        })?;
        for (number, region) in self.regions.iter().enumerate() {
            let full = region.contexts.is_over_full();
            ensure(!full, || format!("an NT of region {number} keeps more than it has room for"))?;
            let over = self.options.credits
                && region.credits_held.iter().any(|held| *held > CREDITS_HELD_MAX);
            ensure(!over, || format!("region {number} gave more credits than a row can name"))?;
            let torn = region.contexts.torn;
            ensure(!torn, || format!("a packet changed state in region {number} while it moved"))?;
        }
        if let Some(processors) = &self.processors {
            processors.check()?;
        }
        self.links.check()?;
        if self.packets.len() == 0 {
            self.check_rest()?;
        }
        Ok(())
    }

    fn check_rest(&self) -> Result<(), String> {
        self.links.check_rest()?;
        ensure(self.cells_free == self.cells, || "cells are held by no packet".into())?;
        ensure(usize::from(self.sync_free) == SYNC_ROWS, || "an entry is held by none".into())?;
        ensure(self.cells_of == [0; 3], || "cells are counted for no packet".into())?;
        ensure(self.waiting == 0, || "no packet is here that waits at a token bucket".into())?;
        ensure(self.banks.packets() == [0, 0], || "a bank waits for no packet".into())?;
        ensure(self.copies.len() == 0, || "copies without packets".into())?;
        ensure(self.latencies.under_way() == 0, || "a timeline of no packet".into())?;
        let slow_nt = |event: &Event| matches!(event, Event::Credit { .. });
        let returning: usize = self.regions.iter().map(Region::returning).sum();
        let pending = self.wheel.count(slow_nt) + returning;
        let held = self.regions.iter().flat_map(|region| region.credits_held);
        let held: usize = held.map(usize::from).sum();
        ensure(held == pending, || format!("{held} credits are held, {pending} come back"))
    }
}

/// Largest number that the seven bits of a credit row can say.
const CREDITS_HELD_MAX: u8 = 127;

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// The row that a column names, if it names one.
const fn named(row: u16) -> Option<u16> {
    if row == NONE { None } else { Some(row) }
}

/// Place of the queue for an instance of packets that began with a bank.
fn queue_number(bank: Bank, instance: u16) -> usize {
    bank * Table::Instance.rows() + usize::from(instance)
}

/// A bank as packets remember it.
const fn bank_index(bank: u8) -> Bank {
    bank as Bank
}
