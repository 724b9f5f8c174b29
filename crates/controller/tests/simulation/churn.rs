//! Tenants that come and go, with loads that follow a heavy-tailed process, on a card that serves
//! them as a fluid: rates, slots and the time of a load count, packets do not. What is promised must
//! be served all the time.
//!
//! `SNIC_CHURN_SECONDS=3600 cargo test --release -p snic-controller --test simulation churn -- --nocapture`
//! runs an hour of virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_controller::{
    CallId, Caller, CardCommand, CardCounters, CardReport, Command, Controller, Effect, Event,
    LoopFigures, Request, Settings,
};
use snic_domain::{
    Bandwidth, ByteSize, CardProfile, DagId, DagName, DagSpec, DagState, DagUid, NtType, NtTypeId,
    Quota, Tenant, TenantId, Timestamp,
};
use snic_tables::{
    CardSnapshot, ChainRow, DagCounters, DagRow, InstanceRow, RateLimiterRow, RegionSnapshot,
    RegionStatus, StageRow, Table, TableImage,
};

use crate::world::{CATALOGUE, card_id};

/// Virtual seconds of a normal run.
const SECONDS: u64 = 20;
/// Demand and what there is for it are about even.
const EVEN: Shape = Shape {
    regions: 16,
    tenants: 200,
    nts: &["nat", "firewall", "cache", "aes", "lb"],
    promised_mbps_max: 600,
    hunger: 1.0,
};
/// A few want far more than there is, each of them several instances: regions change hands.
const TIGHT: Shape =
    Shape { regions: 6, tenants: 9, nts: &["aes"], promised_mbps_max: 9_000, hunger: 4.0 };

/// How large the card is, how many tenants come and go, what each is promised at most, and how much
/// they send on average of what they were promised.
#[derive(Debug, Clone, Copy)]
struct Shape {
    regions: usize,
    tenants: usize,
    /// A DAG has each of several with a chance of one in three.
    nts: &'static [&'static str],
    promised_mbps_max: u64,
    hunger: f64,
}

/// What the card takes for a load and for a commit.
const LOAD: Duration = Duration::from_millis(4);
const COMMIT: Duration = Duration::from_micros(100);
const READ: Duration = Duration::from_micros(50);
const PERIOD: Duration = Duration::from_millis(10);

/// The card.
struct Card {
    profile: CardProfile,
    tables: TableImage,
    version: u32,
    regions: Vec<RegionStatus>,
    /// What it will say, and when; its configuration port does one load at a time.
    says: VecDeque<(Timestamp, CardReport)>,
    port_free: Timestamp,
    /// Bytes by row: intended and served.
    counted: BTreeMap<u16, DagCounters>,
    /// By region: when it was last loaded, and what it held before.
    history: BTreeMap<u8, (Timestamp, RegionStatus)>,
    loads: u64,
    thrash: u64,
}

impl Card {
    fn new(regions: usize) -> Self {
        let mut profile = CATALOGUE.profile.clone();
        let region = profile.regions[0].clone();
        profile.regions = vec![region; regions];
        Self {
            profile,
            tables: TableImage::default(),
            version: 0,
            regions: vec![RegionStatus::Empty; regions],
            says: VecDeque::new(),
            port_free: Timestamp::ZERO,
            counted: BTreeMap::new(),
            history: BTreeMap::new(),
            loads: 0,
            thrash: 0,
        }
    }

    fn say(&mut self, at: Timestamp, report: CardReport) {
        let place = self.says.partition_point(|(other, _)| *other <= at);
        self.says.insert(place, (at, report));
    }

    fn take(&mut self, command: CardCommand, now: Timestamp) {
        match command {
            CardCommand::ReadBack { ticket } => {
                let regions = self
                    .regions
                    .iter()
                    .map(|status| RegionSnapshot { status: *status, decoupled: false });
                let snapshot = Box::new(CardSnapshot {
                    boot_id: 1,
                    idcode: self.profile.idcode,
                    version: self.version,
                    tables: self.tables.clone(),
                    regions: regions.collect(),
                });
                self.say(now + READ, CardReport::ReadBack { ticket, snapshot });
            }
            CardCommand::Program { ticket, delta } => {
                self.tables.apply(&delta).expect("rows that the tables have");
                self.version += 1;
                self.say(now + COMMIT, CardReport::Programmed { ticket, result: Ok(self.version) });
            }
            CardCommand::Load { ticket, region, digest } => {
                for row in 0..Table::Instance.rows() as u16 {
                    let leads = self.tables.get::<InstanceRow>(row);
                    assert!(leads.is_none_or(|i| i.region != region.0), "a load stops traffic");
                }
                let begin = self.port_free.max(now);
                self.port_free = begin + LOAD;
                self.loads += 1;
                let new = RegionStatus::Loaded(digest);
                let held = std::mem::replace(&mut self.regions[region.index()], new);
                if let Some((at, before)) = self.history.insert(region.0, (now, held))
                    && before == new
                    && now.since(at) < 2 * PERIOD
                {
                    self.thrash += 1;
                }
                let report = CardReport::Loaded { ticket, region, result: Ok(LOAD) };
                self.say(self.port_free, report);
            }
            CardCommand::State { .. } => panic!("no NT here keeps state"),
            CardCommand::LoadRole { .. } => panic!("nobody asks for that here"),
            CardCommand::Sample { ticket } => {
                let dags = self.counted.iter().map(|(row, counters)| (*row, *counters)).collect();
                let counters = Box::new(CardCounters { dags, ..CardCounters::default() });
                self.say(now + READ, CardReport::Sampled { ticket, counters });
            }
        }
    }

    /// The instances of a DAG with the part of its packets that each gets: of chains of one stage
    /// each one after the other.
    fn instances(&self, row: u16) -> Vec<(InstanceRow, f64)> {
        let mut all = Vec::new();
        let Some(dag) = self.tables.get::<DagRow>(row) else { return all };
        for stage in dag.first_stage..dag.first_stage + dag.stages {
            let Some(stage) = self.tables.get::<StageRow>(stage) else { continue };
            for chain in stage.chains.iter().filter_map(|chain| self.tables.get::<ChainRow>(*chain))
            {
                let rows = chain.first_instance..chain.first_instance + chain.instances;
                let rows: Vec<InstanceRow> = rows.filter_map(|row| self.tables.get(row)).collect();
                let sum: f64 = rows.iter().map(|row| f64::from(row.weight_kbps)).sum();
                all.extend(rows.iter().map(|row| (*row, f64::from(row.weight_kbps) / sum)));
            }
        }
        all
    }

    /// What each DAG gets of its load: its bucket first, then every slot in proportion.
    fn serve(
        &self,
        loads: &BTreeMap<u16, f64>,
        serves: &impl Fn(u8, u8) -> f64,
    ) -> BTreeMap<u16, f64> {
        let mut used: BTreeMap<(u8, u8), f64> = BTreeMap::new();
        let mut offered = BTreeMap::new();
        for (row, load) in loads {
            let Some(bucket) = self.tables.get::<RateLimiterRow>(*row) else { continue };
            let rate = load.min(f64::from(bucket.rate_kbps) * 1e3);
            let instances = self.instances(*row);
            for (instance, part) in &instances {
                for slot in (0..8).filter(|slot| instance.used_mask >> slot & 1 == 1) {
                    *used.entry((instance.region, slot)).or_default() += rate * part;
                }
            }
            offered.insert(*row, (rate, instances));
        }
        let fits = |region: u8, slot: u8| (serves(region, slot) / used[&(region, slot)]).min(1.0);
        let served = |(row, (rate, instances)): (u16, (f64, Vec<(InstanceRow, f64)>))| {
            let worst = instances.iter().map(|(instance, _)| {
                let slots = (0..8).filter(|slot| instance.used_mask >> slot & 1 == 1);
                slots.map(|slot| fits(instance.region, slot)).fold(1.0, f64::min)
            });
            (row, rate * worst.fold(1.0, f64::min))
        };
        offered.into_iter().map(served).collect()
    }
}

/// One tenant's DAG.
struct Member {
    name: DagName,
    admitted: f64,
    load: f64,
    /// When its load changes, and when it comes or goes.
    load_until: Timestamp,
    until: Timestamp,
    uid: Option<DagUid>,
    /// Samples in a row below what it must have.
    below: u32,
}

struct Churn {
    rng: ChaCha8Rng,
    shape: Shape,
    now: Timestamp,
    controller: Controller,
    card: Card,
    members: Vec<Member>,
    calls: u64,
    accepted: u64,
    refused: u64,
    /// The longest time that anybody was below what it must have, in samples.
    longest: u32,
}

fn exponential(rng: &mut ChaCha8Rng, mean: f64) -> Duration {
    Duration::from_secs_f64(-mean * (1.0 - rng.random::<f64>()).ln())
}

impl Churn {
    fn new(seed: u64, shape: Shape) -> Self {
        let controller = Controller::recover(Settings::default(), [], 7, Timestamp::ZERO)
            .expect("an empty store");
        let now = Timestamp::from_nanos(1_000_000);
        let mut churn = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            shape,
            now,
            controller,
            card: Card::new(shape.regions),
            members: Vec::new(),
            calls: 0,
            accepted: 0,
            refused: 0,
            longest: 0,
        };
        let profile = Box::new(churn.card.profile.clone());
        churn.handle(Event::CardAppeared { card: card_id(), profile });
        // Its card serves a fluid: there is nothing to keep.
        let stateless = |nt: &NtType| NtType { state: ByteSize::ZERO, ..nt.clone() };
        let nts = CATALOGUE.nts.iter().map(stateless).map(Command::CreateNtType);
        let bitstreams = CATALOGUE.bitstreams.iter().cloned().map(Command::CreateBitstream);
        for command in nts.chain(bitstreams).collect::<Vec<_>>() {
            assert!(churn.ask(command), "the catalogue is valid");
        }
        for number in 0..shape.tenants {
            let id = TenantId::new(&format!("t{number}")).expect("a label");
            let name = DagName { tenant: id.clone(), dag: DagId::new("d").expect("a label") };
            let weight = churn.rng.random_range(1..=4);
            assert!(churn.ask(Command::CreateTenant(Tenant {
                id,
                weight,
                quota: Quota::default()
            })));
            let until = now + exponential(&mut churn.rng, 5.0);
            churn.members.push(Member {
                name,
                admitted: 0.0,
                load: 0.0,
                load_until: now,
                until,
                uid: None,
                below: 0,
            });
        }
        churn
    }

    fn handle(&mut self, event: Event) -> Option<bool> {
        let mut answer = None;
        for effect in self.controller.handle(event, self.now) {
            match effect {
                Effect::Card { command, .. } => self.card.take(command, self.now),
                Effect::Reply { result, .. } => answer = Some(result.is_ok()),
                Effect::Persist(_) | Effect::Emit(_) | Effect::DropBlob(_) => {}
            }
        }
        answer
    }

    fn ask(&mut self, command: Command) -> bool {
        self.calls += 1;
        let caller = Caller::Operator("churn".into());
        let request = Box::new(Request { caller, request_id: None, command });
        self.handle(Event::Request { call: CallId(self.calls), request }).expect("an answer")
    }

    /// Lets the card say what it has to say until some time.
    fn answers_until(&mut self, end: Timestamp) {
        while self.card.says.front().is_some_and(|(at, _)| *at <= end) {
            let Some((at, report)) = self.card.says.pop_front() else { break };
            self.now = self.now.max(at);
            self.handle(Event::Card { card: card_id(), report });
        }
        self.now = end;
        if self.controller.next_wake_up().is_some_and(|at| at <= end) {
            self.handle(Event::Tick);
        }
    }

    /// One sample's time: who is served how much is settled at its beginning.
    fn period(&mut self) {
        self.come_and_go();
        let rows: BTreeMap<u16, f64> =
            self.members.iter().filter_map(|m| Some((m.uid?.row(), m.load))).collect();
        let controller = &self.controller;
        let slots: Vec<Vec<f64>> = (0..self.shape.regions as u8)
            .map(|region| {
                let view = controller.region_view(&card_id(), snic_domain::RegionId(region));
                let slots = view.map(|view| view.slots).unwrap_or_default();
                slots.iter().map(|slot| slot.bandwidth_max.get() as f64).collect()
            })
            .collect();
        let serves = |region: u8, slot: u8| {
            slots[usize::from(region)].get(usize::from(slot)).copied().unwrap_or(0.0)
        };
        let served = self.card.serve(&rows, &serves);
        for member in &mut self.members {
            let Some(uid) = member.uid else { continue };
            let got = served.get(&uid.row()).copied().unwrap_or(0.0);
            let counters = self.card.counted.entry(uid.row()).or_default();
            let bytes = |rate: f64| (rate * PERIOD.as_secs_f64() / 8.0) as u64;
            counters.bytes_intended += bytes(member.load);
            counters.bytes_served += bytes(got);
            let is_below = got < member.load.min(member.admitted) * 0.98;
            let ready =
                controller.dag_view(&member.name).is_some_and(|d| d.state == DagState::Ready);
            member.below = if is_below && ready { member.below + 1 } else { 0 };
            self.longest = self.longest.max(member.below);
        }
        let end = self.now + PERIOD;
        self.answers_until(end);
        if self.controller.next_sample() <= self.now {
            self.handle(Event::Sample);
        }
        self.answers_until(self.now + COMMIT + COMMIT);
    }

    fn come_and_go(&mut self) {
        for index in 0..self.members.len() {
            let now = self.now;
            let member = &mut self.members[index];
            if now >= member.load_until {
                // Pareto with index 1.5 around what was promised.
                let tail = (1.0 - self.rng.random::<f64>()).powf(-1.0 / 1.5) / 3.0;
                member.load = member.admitted * tail.min(50.0) * self.shape.hunger;
                member.load_until = now + exponential(&mut self.rng, 1.0);
            }
            if now < member.until {
                continue;
            }
            let name = member.name.clone();
            member.until = now + exponential(&mut self.rng, 10.0);
            if member.uid.take().is_some() {
                self.ask(Command::DeleteDag { name, etag: None });
                continue;
            }
            let all = self.shape.nts;
            let nts: Vec<NtTypeId> = all
                .iter()
                .filter(|_| all.len() == 1 || self.rng.random_ratio(1, 3))
                .map(|nt| NtTypeId::new(nt).expect("a label"))
                .collect();
            if nts.is_empty() {
                continue;
            }
            let bandwidth =
                Bandwidth::from_mbps(self.rng.random_range(50..self.shape.promised_mbps_max));
            let spec = DagSpec::chain(&nts, bandwidth);
            let ok =
                self.ask(Command::CreateDag { name: name.clone(), spec, validate_only: false });
            let member = &mut self.members[index];
            self.accepted += u64::from(ok);
            self.refused += u64::from(!ok);
            member.admitted = bandwidth.get() as f64;
            member.load_until = now;
            member.uid = self.controller.dag_view(&name).filter(|_| ok).map(|dag| dag.uid);
            if let Some(uid) = member.uid {
                // A new DAG's counters begin anew only with the card: they go on from its row's.
                self.card.counted.entry(uid.row()).or_default();
            }
        }
    }

    fn figures(&self) -> LoopFigures {
        self.controller.loop_figures(&card_id()).expect("it was seen")
    }
}

/// Lets time pass, prints what happened, and holds promises and residencies against it.
fn run(shape: Shape, seconds: u64) -> Churn {
    let mut churn = Churn::new(11, shape);
    let end = churn.now + Duration::from_secs(seconds);
    while churn.now < end {
        churn.period();
    }
    let figures = churn.figures();
    let hidden = 100.0 * figures.scale_outs_hidden as f64 / figures.scale_outs.max(1) as f64;
    println!(
        "{shape:?}, {seconds} s: {} DAGs accepted, {} refused, {} loads, none of which stopped traffic; {} \
         scale-outs, {hidden:.1} % of them hidden; {} scale-ins, {} context switches, {} reclaims; \
         {} regions went back and forth; longest below a promise: {} samples of {PERIOD:?}",
        churn.accepted,
        churn.refused,
        churn.card.loads,
        figures.scale_outs,
        figures.scale_ins,
        figures.context_switches,
        figures.reclaims,
        churn.card.thrash,
        churn.longest,
    );
    // One monitor period and one reconfiguration end before the second sample does.
    assert!(churn.longest <= 1, "somebody was below its promise for {} samples", churn.longest);
    assert_eq!(churn.card.thrash, 0);
    assert_eq!(figures.overruns, 0);
    churn
}

#[test]
fn what_is_promised_is_served_while_tenants_come_and_go() {
    let seconds = crate::number("SNIC_CHURN_SECONDS").unwrap_or(SECONDS);
    let churn = run(EVEN, seconds);
    let figures = churn.figures();
    assert!(churn.accepted > 100 && figures.epochs > 500, "too little happened");
    let hidden = 100.0 * figures.scale_outs_hidden as f64 / figures.scale_outs.max(1) as f64;
    // Of the first of each chain nobody could know: they count less the longer it goes on.
    assert!(seconds < 3_600 || hidden >= 99.0, "only {hidden:.1} % were hidden");
}

/// Far more is sent than the card can take, so who holds more than its fair share gives way: nobody's
/// promise suffers from it, and no region goes back and forth.
#[test]
fn what_is_promised_is_served_while_regions_change_hands() {
    let seconds = crate::number("SNIC_CHURN_SECONDS").unwrap_or(SECONDS);
    let churn = run(TIGHT, seconds);
    assert!(churn.figures().context_switches > 0, "nobody gave way: {:?}", churn.figures());
}
