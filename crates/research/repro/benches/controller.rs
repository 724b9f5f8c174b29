//! Cost of one epoch for the controller itself: a card's counters in, effects out. Counters to meters,
//! the engine's step, a decision for each DAG whose period has ended, plans for what was decided,
//! rates that differ into the tables, history. [`epoch`](../epoch.rs) measures the engine alone.
//!
//! 512 tenants have two DAGs each on 32 regions: as many DAGs as a card has rows for. Every region
//! holds a chain of 8 NTs that no other has, so that DAGs stay where they are. The card does at
//! once what it is told. Loads
//!
//! - are steady: the same bytes in every epoch;
//! - vary: within a quarter, all loads change on every step, and promises are seldom exceeded;
//! - are too many: heavy-tailed, three times what the card can take, all loads change on every
//!   step, and no region is free: the autoscaler looks for regions in vain. With 100 tenants some 20
//!   DAGs find a loaded one in every epoch.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_controller::{
    CallId, CardCommand, CardCounters, CardReport, Command, Controller, ControllerSettings,
    DagBatch, Effect, Event, NewDag, Outbox, Request, Tx,
};
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, Caller, CardId, CardProfile, DagId, DagName,
    DagSpec, Digest, NtTypeId, Quota, RegionImages, RegionKind, RegionProfile, ReportedChain,
    Tenant, TenantId, Timestamp,
};
use snic_repro::{Parameters, nt};
use snic_tables::{
    CardSnapshot, ConfigurationWay, DagCounters, RegionSnapshot, RegionStatus, TableImage,
};

const SEED: u64 = 16;
const EPOCH: Duration = Duration::from_millis(20);
const CARDS: usize = 1;
const REGIONS: usize = 32;
const SLOTS: usize = 8;
/// Number of epochs after which loads repeat.
const ROUND: usize = 8;
/// Load that 32 regions take, whose chains are bounded by their narrowest NT.
const ALL_GBPS: u64 = 32 * 55;

fn profile() -> CardProfile {
    let region = RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: 10_000, ramb36: 10, dsp: 10 },
        bitstream_max: ByteSize::from_mib(4),
    };
    CardProfile {
        ingress: Bandwidth::from_gbps(1_600),
        egress: Bandwidth::from_gbps(1_600),
        packet_store: ByteSize::from_mib(4),
        regions: vec![region; REGIONS],
        ..Parameters::load().expect("the catalogue is readable").core()
    }
}

/// A card that does at once what it is told.
struct Card {
    id: CardId,
    tables: TableImage,
    version: u32,
    regions: Vec<(RegionStatus, ReportedChain)>,
    counted: Vec<(u16, DagCounters)>,
}

impl Card {
    fn new(number: usize) -> Self {
        Self {
            id: CardId::new(&format!("card{number}")).expect("a label"),
            tables: TableImage::default(),
            version: 0,
            regions: vec![(RegionStatus::Empty, ReportedChain::default()); REGIONS],
            counted: Vec::new(),
        }
    }

    fn answer(&mut self, command: CardCommand) -> CardReport {
        match command {
            CardCommand::ReadBack { ticket, .. } => {
                let region = |(status, chain): &(RegionStatus, ReportedChain)| RegionSnapshot {
                    status: *status,
                    decoupled: false,
                    was_decoupled: false,
                    chain: *chain,
                };
                let snapshot = CardSnapshot {
                    boot_id: 1,
                    idcode: profile().idcode,
                    version: self.version,
                    tables: self.tables.clone(),
                    regions: self.regions.iter().map(region).collect(),
                    configures: Some(ConfigurationWay::Shell),
                    passes_through: false,
                    guards: true,
                };
                CardReport::ReadBack { ticket, snapshot: Box::new(snapshot) }
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
                let counters =
                    CardCounters { dags: self.counted.clone(), ..CardCounters::default() };
                CardReport::Sampled { ticket, counters: Box::new(counters) }
            }
            CardCommand::State { .. } => panic!("no NT here keeps state"),
            CardCommand::LoadRole { .. } | CardCommand::Reset { .. } => {
                panic!("nobody asks for that here")
            }
        }
    }
}

/// The pattern of the loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loads {
    Steady,
    Vary,
    TooMany,
}

/// The controller, its cards, and the traffic.
struct Bench {
    controller: Controller,
    cards: Vec<Card>,
    asked: VecDeque<(usize, CardCommand)>,
    outbox: Outbox<Effect>,
    now: Timestamp,
    calls: u64,
    /// Card of each DAG, its index among the card's counters, and its promise.
    dags: Vec<(usize, usize, Bandwidth)>,
    /// Bytes by epoch of a round, then by DAG.
    sent: Vec<Vec<u64>>,
    epoch: usize,
}

fn nt_id(region: usize, slot: usize) -> NtTypeId {
    NtTypeId::new(&format!("n{region}-{slot}")).expect("a label")
}

impl Bench {
    fn new(tenants: usize, loads: Loads) -> Self {
        let controller = Controller::recover(ControllerSettings::default(), [], 7, Timestamp::ZERO)
            .expect("an empty store");
        let cards: Vec<Card> = (0..CARDS).map(Card::new).collect();
        let mut bench = Self {
            controller,
            cards,
            asked: VecDeque::new(),
            outbox: Outbox::new(),
            now: Timestamp::from_nanos(1_000_000),
            calls: 0,
            dags: Vec::new(),
            sent: Vec::new(),
            epoch: 0,
        };
        for number in 0..CARDS {
            let (card, profile) = (bench.cards[number].id.clone(), Box::new(profile()));
            bench.handle(Event::CardAppeared { card, profile });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        bench.catalogue(&mut rng);
        bench.tenants(tenants, &mut rng);
        bench.loads(loads, &mut rng);
        // Runs until nothing changes any more.
        for _ in 0..200 {
            bench.count();
            bench.step();
            bench.answer();
        }
        bench
    }

    fn catalogue(&mut self, rng: &mut ChaCha8Rng) {
        for region in 0..CARDS * REGIONS {
            for slot in 0..SLOTS {
                let maximum = Bandwidth::from_gbps(rng.random_range(40..=100));
                let nt = nt(nt_id(region, slot).as_str(), 20, maximum).expect("a label");
                self.ask(Command::CreateNtType(nt));
            }
            let id = BitstreamId::new(&format!("b{region}")).expect("a label");
            self.ask(Command::CreateBitstream(Bitstream {
                notes: Default::default(),
                identity: None,
                images: RegionImages::for_all(
                    Digest::of(id.as_str().as_bytes()),
                    ByteSize::from_mib(4),
                ),
                id,
                nts: (0..SLOTS).map(|slot| nt_id(region, slot)).collect(),
                region_kind: RegionKind::KnownNt,
                card_model: profile().model,
                shareable: true,
                signed_by: None,
                modules: Vec::new(),
            }));
        }
    }

    fn tenants(&mut self, tenants: usize, rng: &mut ChaCha8Rng) {
        let mean = ALL_GBPS as f64 * 1e9 / (2 * tenants) as f64;
        for tenant in 0..tenants {
            let id = TenantId::new(&format!("t{tenant}")).expect("a label");
            let quota = Quota { bandwidth_max: Bandwidth::from_gbps(1_000), ..Quota::default() };
            let weight = rng.random_range(1..=4);
            self.ask(Command::CreateTenant(Tenant {
                id: id.clone(),
                weight,
                quota,
                notes: Default::default(),
                project: None,
            }));
            for number in 0..2 {
                // The first DAGs are spread over all regions, so that every region is loaded.
                let region = (2 * tenant + number) % (CARDS * REGIONS);
                let used = rng.random_range(2..=6);
                let mut slots = rand::seq::index::sample(rng, SLOTS, used).into_vec();
                slots.sort_unstable();
                let nts: Vec<NtTypeId> = slots.iter().map(|slot| nt_id(region, *slot)).collect();
                let promised =
                    Bandwidth::from_bps((mean / 5.0 * rng.random::<f64>()) as u64 + 1_000_000);
                let promised = Bandwidth::from_bps(promised.get() / 1_000_000 * 1_000_000);
                let dag = DagId::new(&format!("d{number}")).expect("a label");
                let name = DagName { tenant: id.clone(), dag };
                let spec = DagSpec::chain(&nts, promised);
                self.ask(Command::CreateDag { name: name.clone(), spec, validate_only: false });
                self.answer();
                let view = self.controller.dag_view(&name).expect("it was made");
                let card = view.mapping.expect("it has a place").card;
                let card = self.cards.iter().position(|c| c.id == card).expect("a card");
                let counted = &mut self.cards[card].counted;
                counted.push((view.uid.row(), DagCounters::default()));
                self.dags.push((card, counted.len() - 1, promised));
            }
        }
    }

    /// The traffic, epoch by epoch.
    fn loads(&mut self, loads: Loads, rng: &mut ChaCha8Rng) {
        let mean = 3.0 * ALL_GBPS as f64 * 1e9 / self.dags.len() as f64;
        let mut base = |promised: &Bandwidth| {
            // Pareto with index 1.5.
            let tail = (1.0 - rng.random::<f64>()).powf(-1.0 / 1.5) / 3.0;
            match loads {
                Loads::Steady | Loads::Vary => promised.get() as f64 * 0.9,
                Loads::TooMany => mean * tail.min(100.0),
            }
        };
        let bases: Vec<f64> = self.dags.iter().map(|(_, _, promised)| base(promised)).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let mut vary = |base: &f64| {
            let percent = if loads == Loads::Steady { 100 } else { rng.random_range(75..=125) };
            (base * EPOCH.as_secs_f64() / 8.0) as u64 / 100 * percent
        };
        self.sent = (0..ROUND).map(|_| bases.iter().map(&mut vary).collect()).collect();
    }

    fn handle(&mut self, event: Event) {
        let tx = self.controller.handle(event, self.now);
        self.carry_out(tx);
    }

    /// Carries out the effects of an event; all is durable at once.
    fn carry_out(&mut self, tx: Tx) {
        if let Some(batch) = self.outbox.submit(tx, |effect| effect) {
            self.outbox.durable(batch.number);
        }
        while let Some(effect) = self.outbox.pop_ready() {
            match effect {
                Effect::Card { card, command } => {
                    let card = self.cards.iter().position(|c| c.id == card).expect("a card");
                    self.asked.push_back((card, command));
                }
                Effect::Reply { result, .. } => {
                    result.expect("all is granted");
                }
                Effect::Search { card, reconfigurations } => {
                    let found = self.controller.search(&card, reconfigurations);
                    self.handle(found);
                }
                Effect::Emit(_) | Effect::DropBlob(_) => {}
            }
        }
    }

    fn ask(&mut self, command: Command) {
        self.calls += 1;
        let caller = Caller::Operator("bench".into());
        let request = Box::new(Request { caller, request_id: None, command });
        self.handle(Event::Request { call: CallId(self.calls), request });
    }

    /// The time that the controller takes to answer a command this many times.
    fn asked(&mut self, times: u64, command: &Command) -> Duration {
        let mut took = Duration::ZERO;
        for _ in 0..times {
            self.calls += 1;
            let caller = Caller::Operator("bench".into());
            let request = Request { caller, request_id: None, command: command.clone() };
            let event = Event::Request { call: CallId(self.calls), request: Box::new(request) };
            let begin = Instant::now();
            let tx = black_box(self.controller.handle(event, self.now));
            took += begin.elapsed();
            self.carry_out(tx);
        }
        took
    }

    /// Answers every command but samples.
    fn answer(&mut self) {
        while let Some((card, command)) = self.asked.pop_front() {
            let report = self.cards[card].answer(command);
            let card = self.cards[card].id.clone();
            self.handle(Event::Card { card, report });
        }
        if self.controller.next_wake_up().is_some_and(|at| at <= self.now) {
            self.handle(Event::Tick);
            self.answer();
        }
    }

    /// An epoch passes: bytes are counted.
    fn count(&mut self) {
        self.now = self.now + EPOCH;
        self.epoch = (self.epoch + 1) % ROUND;
        for ((card, at, _), bytes) in self.dags.iter().zip(&self.sent[self.epoch]) {
            let counters = &mut self.cards[*card].counted[*at].1;
            counters.bytes_intended += bytes;
            counters.bytes_served += bytes;
        }
        self.handle(Event::Sample);
    }

    /// The measured part: the samples of all cards.
    fn step(&mut self) -> Duration {
        let mut samples = Vec::new();
        while let Some(at) =
            self.asked.iter().position(|(_, c)| matches!(c, CardCommand::Sample { .. }))
        {
            let (card, command) = self.asked.remove(at).expect("it is there");
            samples.push((self.cards[card].id.clone(), self.cards[card].answer(command)));
        }
        let mut took = Duration::ZERO;
        for (card, report) in samples {
            let event = Event::Card { card, report };
            let now = self.now;
            let begin = Instant::now();
            let tx = black_box(self.controller.handle(event, now));
            took += begin.elapsed();
            self.carry_out(tx);
        }
        took
    }
}

fn epoch(c: &mut Criterion) {
    let mut group = c.benchmark_group("the controller's epoch, 32 regions, 2 DAGs a tenant");
    group.sample_size(20);
    for loads in [Loads::Steady, Loads::Vary, Loads::TooMany] {
        for tenants in [100, 512] {
            let mut bench = Bench::new(tenants, loads);
            group.bench_function(BenchmarkId::new(format!("{loads:?}"), tenants), |b| {
                b.iter_custom(|times| {
                    let mut took = Duration::ZERO;
                    for _ in 0..times {
                        bench.count();
                        took += bench.step();
                        bench.answer();
                    }
                    took
                });
            });
        }
    }
    group.finish();
}

/// Cost of a batch of 24 DAGs for the controller's thread beside 1,000 others: the copy that it is planned on, and
/// the check of its plan, of a dry run, which changes nothing. Then a single DAG beside them, for comparison.
fn batch(c: &mut Criterion) {
    let mut bench = Bench::new(500, Loads::Steady);
    let tenant = TenantId::new("t0").expect("a label");
    let spec = |at: usize| DagSpec::chain(&[nt_id(at, 0)], Bandwidth::from_mbps(1));
    let new =
        |at: usize| NewDag { id: DagId::new(&format!("b{at}")).expect("a label"), spec: spec(at) };
    let dags = (0..24).map(new).collect();
    let batch =
        DagBatch { tenant: tenant.clone(), dags, allow_partial: false, validate_only: true };
    let mut group = c.benchmark_group("24 DAGs together beside 1,000");
    group.bench_function("copy", |b| {
        b.iter(|| black_box(bench.controller.batch_snapshot(&batch)));
    });
    let plan = bench.controller.batch_snapshot(&batch).plan();
    let check = Command::CreateDags { batch, plan };
    group.bench_function("check", |b| b.iter_custom(|times| bench.asked(times, &check)));
    let name = DagName { tenant, dag: DagId::new("one").expect("a label") };
    let one = Command::CreateDag { name, spec: spec(0), validate_only: true };
    group.bench_function("one alone", |b| b.iter_custom(|times| bench.asked(times, &one)));
    group.finish();
}

/// Cost of a search for a better arrangement of a card with 1,000 DAGs: the picture that the controller's thread
/// takes, and what another thread does with it.
fn rearrangement(c: &mut Criterion) {
    let bench = Bench::new(500, Loads::Steady);
    let picture = || bench.controller.picture(&bench.cards[0].id).expect("it is ready");
    let mut group = c.benchmark_group("a better arrangement of 1,000 DAGs");
    group.sample_size(20);
    group.bench_function("picture", |b| b.iter(|| black_box(picture())));
    group.bench_function("search", |b| {
        b.iter_batched(picture, |picture| black_box(picture.search(4)), BatchSize::PerIteration);
    });
    group.bench_function("recommendations", |b| {
        b.iter_batched(
            picture,
            |picture| black_box(picture.recommendations(Vec::new())),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, epoch, batch, rearrangement);
criterion_main!(benches);
