//! Cost of one create and of one delete for the controller's thread, by part, beside DAGs that are there already: a
//! change is to cost the same on a full card as on an empty one.
//!
//! - *request*: the event of the request, with its records encoded;
//! - *reports*: the events of what the card answers until the operation has ended;
//! - *outbox*: what waits for the store and leaves when that has it;
//! - *all*: the three together.
//!
//! *Renewal* is the sample of a card's counters at the end of an epoch in which a DAG came and went: the loop takes over
//! what is on the card, computes, and sets rates.
//!
//! The store has everything at once and the card does at once what it is told, so nothing else is in these figures.
//! Every region holds a chain of 8 NTs that no other has. DAGs are of a hundred tenants; in the rows *of its own* all are
//! of the tenant that asks. A figure is the median of single changes, so that what else the machine does is none of it.
//! Bytes that each change allocates are printed before.

use std::alloc::System;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use cap::Cap;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use snic_controller::{
    CallId, CardCommand, CardCounters, CardReport, Command, Controller, ControllerSettings, Effect,
    Event, Outbox, Request, Tx,
};
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, Caller, CardId, CardModel, CardProfile,
    Cycles, DagId, DagName, DagSpec, Digest, NtType, NtTypeId, Quota, RegionImages, RegionKind,
    RegionPass, RegionProfile, ReportedChain, SaveArea, Tenant, TenantId, Timestamp, Traffic,
};
use snic_tables::{
    CardSnapshot, ConfigurationWay, DagCounters, DagRow, LatencyReading, LatencySample, NtTime,
    RegionSnapshot, RegionStatus, TableImage,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const REGIONS: usize = 32;
const SLOTS: usize = 8;
const TENANTS: usize = 100;
const EPOCH: Duration = Duration::from_millis(20);
/// Time between two events.
const STEP: Duration = Duration::from_micros(100);

fn model() -> CardModel {
    CardModel::new("bench").expect("a label")
}

fn profile() -> CardProfile {
    let region = RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: 10_000, ramb36: 10, dsp: 10 },
        bitstream_max: ByteSize::from_mib(4),
    };
    CardProfile {
        model: model(),
        part: "xcvu9p-flgb2104-2-e".into(),
        idcode: 0x14B3_1093,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: Bandwidth::from_gbps(1_600),
        egress: Bandwidth::from_gbps(1_600),
        memory: ByteSize::from_mib(10_240),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_mib(4),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: Some(RegionPass::SUPERNIC),
        save_area: SaveArea { bytes: ByteSize::ZERO, bytes_per_second: 1 },
        regions: vec![region; REGIONS],
        processors: Vec::new(),
        links: None,
    }
}

fn nt_id(region: usize, slot: usize) -> NtTypeId {
    NtTypeId::new(&format!("n{region}-{slot}")).expect("a label")
}

fn nt(region: usize, slot: usize) -> NtType {
    NtType {
        memory: if slot == 3 { ByteSize::from_mib(1) } else { ByteSize::ZERO },
        traffic: Traffic::Payload,
        description: "An NT of a benchmark".into(),
        ..NtType::new(
            nt_id(region, slot),
            Bandwidth::from_gbps(100),
            Cycles::new(20),
            Area { lut: 1_000, ramb36: 0, dsp: 0 },
        )
    }
}

fn bitstream(region: usize) -> Bitstream {
    let id = BitstreamId::new(&format!("b{region}")).expect("a label");
    Bitstream {
        notes: Default::default(),
        identity: None,
        images: RegionImages::for_all(Digest::of(id.as_str().as_bytes()), ByteSize::from_mib(4)),
        id,
        nts: (0..SLOTS).map(|slot| nt_id(region, slot)).collect(),
        region_kind: RegionKind::KnownNt,
        card_model: model(),
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
    }
}

fn tenant(number: usize) -> TenantId {
    TenantId::new(&format!("t{number}")).expect("a label")
}

fn dag(tenant: &TenantId, number: usize) -> DagName {
    let dag = DagId::new(&format!("d{number}")).expect("a label");
    DagName { tenant: tenant.clone(), dag }
}

/// Three NTs of a region, one after the other.
fn spec(region: usize) -> DagSpec {
    let nts: Vec<NtTypeId> = [1, 3, 6].map(|slot| nt_id(region, slot)).into();
    DagSpec::chain(&nts, Bandwidth::from_mbps(1))
}

/// A card that does at once what it is told.
struct Card {
    id: CardId,
    tables: TableImage,
    version: u32,
    regions: Vec<(RegionStatus, ReportedChain)>,
    /// Bytes that each DAG has sent.
    bytes: u64,
    measures: Measures,
}

/// Latencies that samples have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measures {
    Nothing,
    /// As many as the driver reads at most.
    Records,
    /// And the largest of each DAG.
    RecordsAndMaxima,
}

/// Records in a sample.
const RECORDS: usize = 256;

impl Card {
    fn new(number: usize) -> Self {
        Self {
            id: CardId::new(&format!("card{number}")).expect("a label"),
            tables: TableImage::default(),
            version: 0,
            regions: vec![(RegionStatus::Empty, ReportedChain::default()); REGIONS],
            bytes: 0,
            measures: Measures::Nothing,
        }
    }

    fn answer(&mut self, command: CardCommand) -> CardReport {
        match command {
            CardCommand::ReadBack { ticket, .. } => {
                let snapshot = Box::new(self.snapshot());
                CardReport::ReadBack { ticket, snapshot }
            }
            CardCommand::Program { ticket, delta, .. } => {
                self.tables.apply(&delta).expect("rows that the tables have");
                self.version += 1;
                CardReport::Programmed {
                    ticket,
                    result: Ok(self.version),
                    unconfigured: Vec::new(),
                }
            }
            CardCommand::Load { ticket, region, digest, chain } => {
                self.regions[region.index()] = (RegionStatus::Loaded(digest), chain);
                CardReport::Loaded { ticket, region, result: Ok(Duration::from_millis(5)) }
            }
            CardCommand::Sample { ticket } => {
                self.bytes += 1_000;
                let (bytes_intended, bytes_served) = (self.bytes, self.bytes);
                let counted =
                    DagCounters { bytes_intended, bytes_served, ..DagCounters::default() };
                let dags = (0..1_024).map(|row| (row, counted)).collect();
                let (cycles, latency) = (Some(self.bytes * 5_000), self.latencies());
                let counters = CardCounters { dags, cycles, latency, ..CardCounters::default() };
                let counters = Box::new(counters);
                CardReport::Sampled { ticket, counters }
            }
            CardCommand::State { .. } => panic!("no NT here keeps state"),
            CardCommand::LoadRole { .. } | CardCommand::Reset { .. } => {
                panic!("nobody asks for that here")
            }
        }
    }

    /// Records of all DAGs in turn, each of three NTs.
    fn latencies(&self) -> LatencyReading {
        if self.measures == Measures::Nothing {
            return LatencyReading::default();
        }
        let rows = (0..1_024).filter_map(|row| Some((row, self.tables.get::<DagRow>(row)?.uid)));
        let rows: Vec<(u16, u32)> = rows.collect();
        let nts = [1, 3, 6].map(|slot| NtTime { region: 0, slot, cycles: 20 });
        let of = |number: usize| {
            let (row, uid) = rows[number % rows.len()];
            LatencySample::new(uid, [0, 49, 0, u64::from(row), number as u64, 0], &nts)
        };
        let samples = if rows.is_empty() { Vec::new() } else { (0..RECORDS).map(of).collect() };
        let all = self.measures == Measures::RecordsAndMaxima;
        let maxima = rows.iter().filter(|_| all).map(|(row, _)| (*row, 2_000)).collect();
        LatencyReading { samples, missed: 0, maxima }
    }

    fn snapshot(&self) -> CardSnapshot {
        let region = |(status, chain): &(RegionStatus, ReportedChain)| RegionSnapshot {
            status: *status,
            decoupled: false,
            was_decoupled: false,
            chain: *chain,
        };
        CardSnapshot {
            boot_id: 1,
            idcode: profile().idcode,
            version: self.version,
            tables: self.tables.clone(),
            regions: self.regions.iter().map(region).collect(),
            configures: Some(ConfigurationWay::Shell),
            passes_through: false,
            guards: true,
        }
    }
}

/// A part of the cost of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Request,
    Reports,
    Outbox,
    Samples,
}

const PARTS: [Row; 4] = [
    ("request", &[Part::Request]),
    ("reports", &[Part::Reports]),
    ("outbox", &[Part::Outbox]),
    ("all", &[Part::Request, Part::Reports, Part::Outbox]),
];

/// Time and bytes of one change, by part.
#[derive(Debug, Clone, Copy, Default)]
struct Cost([(Duration, usize); 4]);

impl Cost {
    fn time(&self, parts: &[Part]) -> Duration {
        parts.iter().map(|part| self.0[*part as usize].0).sum()
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// A controller with cards, and DAGs on them.
struct Host {
    controller: Controller,
    cards: Vec<Card>,
    asked: VecDeque<(usize, CardCommand)>,
    outbox: Outbox<Effect>,
    now: Timestamp,
    calls: u64,
    cost: Cost,
}

impl Host {
    /// So many DAGs are there, all of the tenant that asks or of others.
    fn new(cards: usize, residents: usize, own: bool) -> Self {
        let controller = Controller::recover(ControllerSettings::default(), [], 7, Timestamp::ZERO)
            .expect("an empty store");
        let mut host = Self {
            controller,
            cards: (0..cards).map(Card::new).collect(),
            asked: VecDeque::new(),
            outbox: Outbox::new(),
            now: Timestamp::from_nanos(1_000_000),
            calls: 0,
            cost: Cost::default(),
        };
        for number in 0..cards {
            let (card, profile) = (host.cards[number].id.clone(), Box::new(profile()));
            host.handle(Part::Reports, Event::CardAppeared { card, profile });
        }
        host.settle();
        host.catalogue();
        for number in 0..=TENANTS {
            let (weight, quota) = (1, Quota::UNLIMITED);
            let new = Tenant {
                id: tenant(number),
                weight,
                quota,
                notes: Default::default(),
                project: None,
            };
            host.ask(Command::CreateTenant(new));
        }
        for number in 0..residents {
            let owner = if own { 0 } else { 1 + number % TENANTS };
            host.create(dag(&tenant(owner), number), number % REGIONS);
        }
        host
    }

    fn catalogue(&mut self) {
        for region in 0..REGIONS {
            for slot in 0..SLOTS {
                self.ask(Command::CreateNtType(nt(region, slot)));
            }
            self.ask(Command::CreateBitstream(bitstream(region)));
        }
    }

    fn create(&mut self, name: DagName, region: usize) {
        self.ask(Command::CreateDag { name, spec: spec(region), validate_only: false });
        self.settle();
    }

    fn delete(&mut self, name: DagName) {
        self.ask(Command::DeleteDag { name, etag: None });
        self.settle();
    }

    fn ask(&mut self, command: Command) {
        self.calls += 1;
        let caller = Caller::Operator("bench".into());
        let request_id = Some(format!("request-{}", self.calls));
        let request = Box::new(Request { caller, request_id, command });
        self.handle(Part::Request, Event::Request { call: CallId(self.calls), request });
    }

    fn handle(&mut self, part: Part, event: Event) {
        self.now = self.now + STEP;
        let (controller, now) = (&mut self.controller, self.now);
        let tx = measure(&mut self.cost, part, || {
            let tx = controller.handle(event, now);
            black_box((controller.next_wake_up(), controller.next_sample()));
            tx
        });
        self.carry_out(tx);
    }

    /// Carries out the effects of an event; all is durable at once.
    fn carry_out(&mut self, tx: Tx) {
        let outbox = &mut self.outbox;
        let ready: Vec<Effect> = measure(&mut self.cost, Part::Outbox, || {
            if let Some(batch) = outbox.submit(tx, |effect| effect) {
                outbox.durable(batch.number);
            }
            std::iter::from_fn(|| outbox.pop_ready()).collect()
        });
        for effect in ready {
            match effect {
                Effect::Card { card, command } => {
                    let card = self.cards.iter().position(|c| c.id == card).expect("a card");
                    self.asked.push_back((card, command));
                }
                Effect::Reply { result, .. } => {
                    result.expect("all is granted");
                }
                Effect::Search { .. } | Effect::Emit(_) | Effect::DropBlob(_) => {}
            }
        }
    }

    /// An epoch ends.
    fn sample(&mut self) {
        self.now = self.now + EPOCH;
        self.handle(Part::Samples, Event::Sample);
        self.settle();
    }

    /// The cards answer until nothing is left to do.
    fn settle(&mut self) {
        while let Some((card, command)) = self.asked.pop_front() {
            let is_sample = matches!(command, CardCommand::Sample { .. });
            let part = if is_sample { Part::Samples } else { Part::Reports };
            let report = self.cards[card].answer(command);
            let card = self.cards[card].id.clone();
            self.handle(part, Event::Card { card, report });
        }
    }

    /// Costs of a new DAG, of its removal, and of the epoch's end behind it, if that is asked for.
    fn change(&mut self, number: u64, ends: bool) -> [Cost; 3] {
        let region = (number % REGIONS as u64) as usize;
        let name = dag(&tenant(0), 1_000_000 + region);
        self.cost = Cost::default();
        self.create(name.clone(), region);
        let created = std::mem::take(&mut self.cost);
        self.delete(name);
        let deleted = std::mem::take(&mut self.cost);
        if ends {
            self.sample();
        }
        [created, deleted, std::mem::take(&mut self.cost)]
    }
}

fn measure<T>(cost: &mut Cost, part: Part, work: impl FnOnce() -> T) -> T {
    let (bytes, begin) = (ALLOCATOR.total_allocated(), Instant::now());
    let result = work();
    let (took, sum) = (begin.elapsed(), &mut cost.0[part as usize]);
    sum.0 += took;
    sum.1 += ALLOCATOR.total_allocated() - bytes;
    result
}

/// Scenes of a change: cards, DAGs that are there, and whether they are of the tenant that asks.
const SCENES: [(&str, usize, usize, bool); 5] = [
    ("an empty card", 1, 0, false),
    ("100", 1, 100, false),
    ("1000", 1, 1_000, false),
    ("1000 of its own", 1, 1_000, true),
    ("10000 on 10 cards", 10, 10_000, false),
];

/// A row, and the parts that it is the sum of.
type Row = (&'static str, &'static [Part]);

/// The rows of each of these.
const VERBS: [(&str, &[Row]); 3] = [
    ("create beside", &PARTS),
    ("delete beside", &PARTS),
    ("renewal beside", &[("sample", &[Part::Samples])]),
];

fn changes(c: &mut Criterion) {
    for (scene, cards, residents, own) in SCENES {
        let mut host: Option<Host> = None;
        for (number, (verb, parts)) in VERBS.into_iter().enumerate() {
            let mut group = c.benchmark_group(verb);
            group.sample_size(20).measurement_time(Duration::from_millis(500));
            group.warm_up_time(Duration::from_millis(100));
            for (part, parts) in parts {
                group.bench_function(BenchmarkId::new(scene, part), |b| {
                    let host = host.get_or_insert_with(|| Host::new(cards, residents, own));
                    b.iter_custom(|times| median(host, number, parts, times));
                });
            }
            if let Some(host) = &mut host {
                println!(
                    "{verb} {scene}: {} bytes allocated",
                    host.change(0, number == 2)[number].bytes()
                );
            }
        }
    }
}

fn samples(c: &mut Criterion) {
    for residents in [1, 100, 1_000] {
        let mut host: Option<Host> = None;
        let mut group = c.benchmark_group("sample beside");
        group.sample_size(20).measurement_time(Duration::from_millis(500));
        group.warm_up_time(Duration::from_millis(100));
        for (name, measures) in [
            ("without latencies", Measures::Nothing),
            ("records", Measures::Records),
            ("records and maxima", Measures::RecordsAndMaxima),
        ] {
            group.bench_function(BenchmarkId::new(residents.to_string(), name), |b| {
                let host = host.get_or_insert_with(|| Host::new(1, residents, false));
                host.cards[0].measures = measures;
                b.iter_custom(|times| {
                    let epoch = |_| {
                        host.cost = Cost::default();
                        host.sample();
                        host.cost.time(&[Part::Samples])
                    };
                    median_of((0..times.max(SAMPLES_MIN)).map(epoch).collect(), times)
                });
            });
        }
    }
}

/// Epochs of a figure at least.
const SAMPLES_MIN: u64 = 64;

/// So many times the median of as many changes, but of one in each region at least.
fn median(host: &mut Host, number: usize, parts: &[Part], times: u64) -> Duration {
    let cost = |at| host.change(at, number == 2)[number].time(parts);
    median_of((0..times.max(REGIONS as u64)).map(cost).collect(), times)
}

fn median_of(mut all: Vec<Duration>, times: u64) -> Duration {
    all.sort_unstable();
    all[all.len() / 2] * u32::try_from(times).unwrap_or(u32::MAX)
}

criterion_group!(benches, changes, samples);
criterion_main!(benches);
