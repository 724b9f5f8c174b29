//! The shell of the simulation: a store that loses what is not durable, a card with faults, and
//! virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::callers::check_entry;
use crate::loads::Loads;
use crate::machines::FUNCTIONS;
use crate::reads::{OwnRecords, READ_AFTER};
use crate::residency::{Residency, contents};
use crate::states::States;
use crate::usage::UsageBook;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_bitstream::build_test;
use snic_card_sim::{Faults, MemoryAccess, SimCard, Sizes, SourceId, TrafficSource};
use snic_controller::{
    BudgetAction, BudgetPolicy, CallId, CardCommand, CardReport, Change, ConsolidationSettings,
    ControlError, Controller, ControllerSettings, Effect, Event, LOOKS_OF_AN_EVENT, LogEntry,
    LogKind, NumberedBatch, Outbox, RecordWrite, Reply,
};
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardId, CardModel, CardProfile, Cycles,
    DagUid, Digest, NtType, NtTypeId, RegionId, RegionImages, RegionKind, RegionProfile, SaveArea,
    Signer, TenantId, Timestamp, Traffic,
};
use snic_ports::driver::{Deadlines, Session};
use snic_ports::store::RECORD_BYTES_MAX;
use snic_tables::{DropCause, InstanceRow, Table, TableImage, Ticket};
use snic_usage::Prices;

/// NT types of the simulated catalogue: name, Gbit/s, latency in cycles.
const NTS: [(&str, u64, u64); 5] =
    [("nat", 40, 12), ("firewall", 40, 10), ("cache", 20, 60), ("aes", 10, 44), ("lb", 40, 14)];

/// Chains that are built: more than one holds most NTs, none holds all.
const CHAINS: [&[&str]; 9] = [
    &["nat", "firewall", "cache", "aes"],
    &["nat", "firewall"],
    &["cache", "aes"],
    &["firewall", "aes"],
    &["nat"],
    &["firewall"],
    &["cache"],
    &["aes"],
    &["lb"],
];

/// Longest time without an event in which the daemon is said to have run: it has an event at least once a second.
const EVENT_GAP_MAX: Duration = Duration::from_secs(2);

/// Chains that tenants build, one each: what the provider has in two regions they have in one.
const SHARED: [[&str; 2]; TENANTS as usize] = [["aes", "lb"], ["lb", "aes"], ["cache", "nat"]];

/// Tenants that there are.
pub const TENANTS: u32 = 3;

pub fn tenant(number: u32) -> TenantId {
    TenantId::new(&format!("t{number}")).expect("a label")
}

/// Constants of the simulation, the same for every seed; made once.
pub struct Catalogue {
    pub profile: CardProfile,
    pub nts: Vec<NtType>,
    pub bitstreams: Vec<Bitstream>,
    /// One of each tenant's own, which it shares with nobody.
    pub own: Vec<(NtType, Bitstream)>,
    /// One of each tenant's of NTs of the provider, which it signed itself or not at all and shares with all, who do
    /// not trust it.
    pub shared: Vec<Bitstream>,
    images: BTreeMap<Digest, Arc<[u8]>>,
}

impl Catalogue {
    pub fn nt(&self, id: &NtTypeId) -> &NtType {
        let all = self.nts.iter().chain(self.own.iter().map(|(nt, _)| nt));
        all.into_iter().find(|nt| nt.id == *id).expect("a known NT")
    }

    pub fn bitstream(&self, id: &BitstreamId) -> &Bitstream {
        let own = self.own.iter().map(|(_, bitstream)| bitstream);
        let all = self.bitstreams.iter().chain(own).chain(&self.shared);
        all.into_iter().find(|bitstream| bitstream.id == *id).expect("a known bitstream")
    }
}

pub static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(catalogue);

fn profile() -> CardProfile {
    let region = RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: 10_000, ramb36: 10, dsp: 10 },
        bitstream_max: ByteSize::from_bytes(16_384),
    };
    CardProfile {
        model: CardModel::new("tiny").expect("a label"),
        part: "xcvu9p-flgb2104-2-e".into(),
        idcode: 0x14B3_1093,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: Bandwidth::from_gbps(100),
        egress: Bandwidth::from_gbps(100),
        memory: ByteSize::from_mib(1_024),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_bytes(811_008),
        // A load takes about 4 ms, as with real images and a real port.
        configuration_bytes_per_second: 2_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: Some(snic_domain::RegionPass::SUPERNIC),
        // Of three contexts: less than there may be at times.
        save_area: SaveArea { bytes: ByteSize::from_bytes(3 * 4_096), bytes_per_second: 1_000_000 },
        regions: vec![region; 6],
        processors: Vec::new(),
        links: None,
    }
}

fn catalogue() -> Catalogue {
    let profile = profile();
    let nts: Vec<NtType> = NTS
        .iter()
        .map(|&(name, gbps, latency)| NtType {
            id: NtTypeId::new(name).expect("a label"),
            shareable: true,
            bandwidth_max: Bandwidth::from_gbps(gbps),
            packets_per_second_max: None,
            latency: Cycles::new(latency),
            area: Area { lut: 1_000, ramb36: 1, dsp: 0 },
            memory: ByteSize::from_mib(2),
            memory_traffic: Default::default(),
            // The others are moved while they serve.
            state: ByteSize::from_bytes(match name {
                "cache" => 320,
                "lb" => 64,
                _ => 0,
            }),
            traffic: Traffic::Payload,
            description: String::new(),
            labels: Default::default(),
        })
        .collect();
    let mut images = BTreeMap::new();
    let mut build = |id: &str, parts: &[&NtType], shareable| {
        let size = ByteSize::from_bytes(8_192);
        let bytes = build_test(&profile, parts, size).expect("a chain that fits");
        let digest = Digest::of(&bytes);
        images.insert(digest, Arc::from(bytes));
        Bitstream {
            id: BitstreamId::new(id).expect("a label"),
            images: RegionImages::for_all(digest, size),
            nts: parts.iter().map(|nt| nt.id.clone()).collect(),
            region_kind: RegionKind::KnownNt,
            card_model: profile.model.clone(),
            shareable,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        }
    };
    let bitstreams = CHAINS.iter().map(|chain| {
        let named = |name: &&str| nts.iter().find(|nt| nt.id.as_str() == *name).expect("in NTS");
        let parts: Vec<&NtType> = chain.iter().map(named).collect();
        build(&chain.join("-"), &parts, true)
    });
    let bitstreams = bitstreams.collect();
    let own = (0..TENANTS).map(|number| {
        let id = format!("{}.own", tenant(number));
        let nt = NtType {
            id: NtTypeId::new(&id).expect("an owner and a label"),
            shareable: false,
            memory: ByteSize::ZERO,
            ..nts[0].clone()
        };
        let bitstream = build(&id, &[&nt], false);
        (nt, bitstream)
    });
    let own = own.collect();
    let shared = (0..TENANTS).zip(SHARED).map(|(number, chain)| {
        let parts = chain.map(|name| nts.iter().find(|nt| nt.id.as_str() == name).expect("in NTS"));
        let signed_by = (number > 0).then(|| Signer::Owner("key".into()));
        Bitstream { signed_by, ..build(&format!("{}.shared", tenant(number)), &parts, true) }
    });
    let shared = shared.collect();
    Catalogue { profile, nts, bitstreams, own, shared, images }
}

/// An effect that waits in the outbox.
enum Waiting {
    Card(CardCommand),
    Reply(CallId, Box<Result<Reply, ControlError>>),
    /// With the DAG that it is about, as it was when it was decided.
    Logged(Box<LogEntry>, Option<DagUid>),
    Dag(DagUid),
    Search(CardId, u32),
    Read(OwnRecords),
    /// Nobody here looks at it.
    Unobserved,
}

/// The daemon's insides, its store, and the card.
pub struct World {
    pub rng: ChaCha8Rng,
    pub profile: CardProfile,
    pub now: Timestamp,
    /// Time in which the daemon ran, and could hear: of a long time without an event little counts.
    pub heard: Duration,
    pub controller: Controller,
    /// Settings of the next controller.
    pub settings: ControllerSettings,
    pub card: SimCard,
    session: Session,
    /// The session was asked what the card holds: what comes before that was decided for an earlier one.
    is_asked: bool,
    open: bool,
    /// The reset that the session releases the card for.
    resetting: Option<Ticket>,
    /// One that was asked for while the card was closed.
    reset_due: Option<Ticket>,
    pub durable: BTreeMap<String, Vec<u8>>,
    /// Batches handed to the store that are not durable yet, the oldest first.
    /// Cards that are to be searched, and what was found.
    searches: VecDeque<(CardId, u32)>,
    found: VecDeque<Event>,
    pending: VecDeque<NumberedBatch>,
    outbox: Outbox<Waiting>,
    /// Replies that were delivered.
    pub replies: Vec<(CallId, Result<Reply, ControlError>)>,
    sources: BTreeMap<DagUid, SourceId>,
    /// The card's tables once all that was submitted is done.
    pub tables: TableImage,
    /// The card's tables as it confirmed them last. It still has these if it was lost before it did what was submitted.
    confirmed: TableImage,
    /// Loads of tenants.
    pub loads: Loads,
    /// Invariants of what chains keep.
    pub states: States,
    /// Content that the loop puts into regions stays there.
    pub residency: Residency,
    /// Second book, which bills are compared with.
    pub usage: UsageBook,
    /// When the card last told its counters.
    counted: Timestamp,
    /// Regions that this session has reset.
    resets: u64,
    /// Packets that met a region that was reset under them, and until when there may be more.
    excused: u64,
    excused_until: Timestamp,
    /// Records stored, and commands to the card but those that read counters.
    pub steps: usize,
    pub log: String,
}

pub fn card_id() -> CardId {
    CardId::new("card0").expect("a label")
}

/// Whether a row leads to a region.
fn leads_to(tables: &TableImage, region: RegionId) -> bool {
    let mut rows = 0..u16::try_from(Table::Instance.rows()).expect("16 bits are enough");
    rows.any(|row| {
        tables
            .get::<InstanceRow>(row)
            .is_some_and(|of| of.region().expect("on this card") == region.0)
    })
}

/// Time in which rows to a region that was reset are gone: a commit, what waits for it, and a failed one.
const EXCUSED: Duration = Duration::from_millis(50);

fn deadlines() -> Deadlines {
    let millis = Duration::from_millis;
    Deadlines {
        drain: millis(5),
        commit: millis(5),
        load_margin: millis(20),
        ..Deadlines::default()
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        // Every other card is small: victims are replaced all the time.
        Self::with_regions(seed, if seed.is_multiple_of(2) { 2 } else { 6 })
    }

    pub fn with_regions(seed: u64, regions: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut profile = CATALOGUE.profile.clone();
        profile.regions.truncate(regions);
        // And some have so little memory that pages are used again and again.
        if seed.is_multiple_of(3) && regions != 4 {
            profile.memory = ByteSize::from_mib(12);
        }
        // NTs of every other card of each size take configurations by their windows.
        let card = new_card(&profile, rng.random(), seed % 4 >= 2);
        // In every other run DAGs are moved together by themselves, as fast as they come and go.
        let after = rng.random_bool(0.5).then(|| Duration::from_millis(rng.random_range(1..=20)));
        let consolidation = ConsolidationSettings { after, ..ConsolidationSettings::default() };
        // Budgets are spent at once; what is promised is kept over them, with burst and without.
        let at_limit =
            if seed.is_multiple_of(2) { BudgetAction::BurstOff } else { BudgetAction::Nothing };
        let budgets = BudgetPolicy { at_limit, ..BudgetPolicy::default() };
        let settings =
            ControllerSettings { consolidation, budgets, ..ControllerSettings::default() };
        let controller = recover(settings, &BTreeMap::new(), Timestamp::ZERO);
        let mut world = Self {
            rng,
            profile,
            now: Timestamp::from_nanos(1_000_000),
            heard: Duration::ZERO,
            controller,
            settings,
            card,
            session: Session::new(deadlines()),
            is_asked: false,
            open: false,
            resetting: None,
            reset_due: None,
            durable: BTreeMap::new(),
            pending: VecDeque::new(),
            searches: VecDeque::new(),
            found: VecDeque::new(),
            outbox: Outbox::new(),
            replies: Vec::new(),
            sources: BTreeMap::new(),
            tables: TableImage::default(),
            confirmed: TableImage::default(),
            loads: Loads::default(),
            states: States::default(),
            residency: Residency::default(),
            usage: UsageBook::default(),
            counted: Timestamp::ZERO,
            resets: 0,
            excused: 0,
            excused_until: Timestamp::ZERO,
            steps: 0,
            log: String::new(),
        };
        world.residency.begin(&world.settings);
        world.open_card();
        world
    }

    /// Whether `percent` in a hundred.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_ratio(percent, 100)
    }

    pub fn note(&mut self, text: impl std::fmt::Display) {
        use std::fmt::Write as _;
        writeln!(self.log, "{:>12} {text}", self.now.as_nanos()).expect("a string takes all");
    }

    pub fn handle(&mut self, event: Event) {
        if let Event::Settings(settings) = &event {
            self.residency.asked(settings);
        }
        let tx = self.controller.handle(event, self.now);
        let looks = self.controller.looks();
        assert!(looks <= LOOKS_OF_AN_EVENT, "{looks} looks of the planner with one event");
        // What the regions are to hold is looked at right after each sample, so the policies that
        // count are those that are in force by then, told or not.
        let applies = |effect: &Effect| matches!(effect, Effect::Emit(Change::Logged(entry)) if entry.kind == LogKind::PoliciesApplied);
        if tx.effects().iter().any(applies) {
            self.residency.applied();
        }
        let is_step = |effect: &&Effect| match effect {
            Effect::Card { command, .. } => !matches!(command, CardCommand::Sample { .. }),
            Effect::Emit(_)
            | Effect::Reply { .. }
            | Effect::DropBlob(_)
            | Effect::Search { .. } => false,
        };
        // Usage is stored once in ten seconds, whatever happens.
        let writes = tx.writes().iter().filter(|(key, _)| !key.starts_with("usage"));
        self.steps += writes.count() + tx.effects().iter().filter(is_step).count();
        let controller = &self.controller;
        let batch = self.outbox.submit(tx, |effect| match effect {
            Effect::Card { command, .. } => Waiting::Card(command),
            Effect::Reply { call, result } => Waiting::Reply(call, Box::new(result)),
            Effect::Emit(Change::Logged(entry)) => {
                let about = entry.dag.as_ref().and_then(|dag| controller.dag_view(dag));
                Waiting::Logged(entry, about.map(|dag| dag.uid))
            }
            Effect::Emit(Change::Dag(_, uid)) => Waiting::Dag(uid),
            Effect::Search { card, reconfigurations } => Waiting::Search(card, reconfigurations),
            Effect::Emit(_) | Effect::DropBlob(_) => Waiting::Unobserved,
        });
        self.pending.extend(batch);
        if self.steps.is_multiple_of(READ_AFTER) {
            let turn = u32::try_from(self.steps / READ_AFTER).expect("few steps");
            let reader = tenant(turn % TENANTS);
            let own = OwnRecords::read(&self.controller, reader.clone());
            self.outbox.defer_read_of(&reader, Waiting::Read(own));
        }
        self.controller.check().expect("the controller's invariants");
    }

    /// Makes the oldest `count` batches durable, and carries out what waited for them.
    pub fn commit(&mut self, count: usize) {
        self.release();
        for _ in 0..count {
            let Some(batch) = self.pending.pop_front() else { break };
            self.outbox.durable(batch.number);
            self.apply(batch.writes);
            self.release();
        }
    }

    fn release(&mut self) {
        while let Some(waiting) = self.outbox.pop_ready() {
            match waiting {
                Waiting::Card(command) => self.submit(command),
                Waiting::Reply(call, result) => self.replies.push((call, *result)),
                Waiting::Logged(entry, about) => {
                    check_entry(&entry);
                    self.states.heard(&entry, about);
                    self.note(format_args!("{:?}: {}", entry.kind, entry.text));
                }
                Waiting::Dag(uid) => {
                    self.states.seen.insert(uid);
                }
                Waiting::Read(own) => own.check(&recover(self.settings, &self.durable, self.now)),
                Waiting::Search(card, most) => {
                    self.note("-> search");
                    self.searches.push_back((card, most));
                }
                Waiting::Unobserved => {}
            }
        }
    }

    fn apply(&mut self, writes: Vec<RecordWrite>) {
        for (key, value) in writes {
            let bytes = value.as_ref().map_or(0, Vec::len);
            assert!(bytes <= RECORD_BYTES_MAX, "{key} has {bytes} bytes");
            match value {
                Some(value) => {
                    self.usage.stored(&key, &value, self.durable.get(&key));
                    self.durable.insert(key, value)
                }
                None => self.durable.remove(&key),
            };
        }
    }

    fn submit(&mut self, command: CardCommand) {
        if !self.open {
            if let CardCommand::Reset { ticket, at_once: true } = command {
                self.reset_due = Some(ticket);
            }
            return;
        }
        // As the card's thread does.
        self.is_asked |= command.begins_session();
        if !self.is_asked {
            return self.note("-> what was decided for the session before is dropped");
        }
        match &command {
            CardCommand::Program { delta, .. } => {
                self.tables.apply(delta).expect("rows that the tables have");
                let rows: Vec<_> = delta.rows().map(|(key, _)| (key.table, key.row)).collect();
                self.note(format_args!("-> program {rows:?}"));
            }
            CardCommand::Load { region, .. } => {
                self.note(format_args!("-> load {region}"));
                self.states.loads(*region, &self.log);
                self.check_unrouted(*region);
            }
            CardCommand::State { region, order, .. } => {
                self.states.asked(&self.tables, *region, order);
                self.note(format_args!("-> {order:?} in {region}"));
            }
            CardCommand::ReadBack { .. } => self.note("-> read back"),
            CardCommand::LoadRole { .. } => self.note("-> load the role"),
            CardCommand::Reset { ticket, at_once } => {
                self.note(format_args!("-> reset, at once: {at_once}"));
                self.resetting = Some(*ticket);
            }
            CardCommand::Sample { .. } => {}
        }
        let bytes = match &command {
            CardCommand::Load { digest, .. } => CATALOGUE.images.get(digest).cloned(),
            _ => None,
        };
        self.session.submit(command, bytes);
    }

    /// The closed card's driver resets it, or says that it cannot; then the card is opened.
    fn reset(&mut self, ticket: Ticket) {
        let works = self.chance(80);
        self.note(format_args!("reset: {works}"));
        let report = if works {
            self.card.power_cycle();
            CardReport::Released { ticket }
        } else {
            CardReport::NotReset { ticket, reason: "the driver is busy".into() }
        };
        self.report(report);
        self.open_card();
    }

    /// A search takes its time: what it has seen may be over when it is told.
    fn search(&mut self) {
        if let Some((card, most)) = self.searches.pop_front() {
            let found = self.controller.search(&card, most);
            self.found.push_back(found);
        }
        if !self.found.is_empty() && self.chance(30) {
            let found = self.found.pop_front().expect("there is one");
            self.note(format_args!("<- searched: {found:?}"));
            self.handle(found);
        }
    }

    /// No row may lead to a region that is about to be loaded.
    fn check_unrouted(&self, region: RegionId) {
        assert!(!self.is_routed(region), "a row leads to region {region}\n{}", self.log);
    }

    fn is_routed(&self, region: RegionId) -> bool {
        leads_to(&self.tables, region)
    }

    /// Lets time pass, and the card say what it has to say.
    pub fn pass(&mut self, time: Duration) {
        self.usage.passes(&self.controller, self.now, self.now + time);
        self.now = self.now + time;
        self.heard += time.min(EVENT_GAP_MAX);
        if let Some(ticket) = self.reset_due.take() {
            if self.open {
                self.submit(CardCommand::Reset { ticket, at_once: true });
            } else {
                self.reset(ticket);
            }
        }
        if self.controller.next_sample() <= self.now {
            self.handle(Event::Sample);
        }
        if self.open {
            for mut report in self.session.step(&mut self.card, self.now) {
                let released = matches!(report, CardReport::Released { .. });
                if self.counts_as_said(&mut report) {
                    self.report(report);
                    if released {
                        self.open_card();
                    }
                }
            }
        } else {
            let card: &mut dyn snic_ports::card::Card = &mut self.card;
            // A lost card's packets go on; nobody hears of it.
            let _ = card.poll(self.now);
        }
        self.search();
        if self.controller.next_wake_up().is_some_and(|at| at <= self.now) {
            self.handle(Event::Tick);
        }
        let measured = self.card.measurements();
        self.usage.measured(measured.dags.iter().map(|dag| (dag.row, dag.counters)));
        let faults = measured.dropped(DropCause::MemoryFault);
        let unavailable = measured.dropped(DropCause::RegionUnavailable);
        if self.leads_to_a_reset_region() {
            self.excused_until = self.now + EXCUSED;
        }
        if self.now <= self.excused_until {
            self.excused = unavailable;
        }
        let log = &self.log;
        assert_eq!(
            (measured.errors() - self.excused.min(unavailable), faults),
            (0, 0),
            "packets met what they must not: {measured:?}\n{log}",
        );
    }

    /// Whether a region was reset under packets since the last time, or is decoupled while rows lead there.
    fn leads_to_a_reset_region(&mut self) -> bool {
        let resets = self.session.statistics().regions_reset;
        let grew = std::mem::replace(&mut self.resets, resets) < resets;
        let regions = (0..self.profile.regions.len() as u8).map(RegionId);
        let decoupled: Vec<_> = regions.filter(|region| self.card.is_decoupled(*region)).collect();
        let may_lead = |region| self.is_routed(region) || leads_to(&self.confirmed, region);
        grew || decoupled.into_iter().any(may_lead)
    }

    /// Applies a report; whether the controller hears of it.
    fn counts_as_said(&mut self, report: &mut CardReport) -> bool {
        match report {
            CardReport::Released { ticket } if self.resetting == Some(*ticket) => {
                self.open = false;
                self.reset(*ticket);
                return false;
            }
            CardReport::Released { .. } => {
                self.open = false;
                // Where the role is the same, what the card holds stays.
                let another = self.rng.random_bool(0.5);
                self.note(format_args!("role loaded, another one: {another}"));
                if another {
                    self.card.power_cycle();
                }
            }
            CardReport::NotReleased { reason, .. } => {
                self.note(format_args!("not closed: {reason}"));
            }
            CardReport::NotReset { .. } => unreachable!("the session resets nothing"),
            CardReport::Lost { reason } => {
                self.note(format_args!("card lost: {reason}"));
                self.open = false;
            }
            CardReport::Loaded { region, result, .. } => {
                self.note(format_args!("<- loaded {region}: {result:?}"));
            }
            CardReport::Stuck { region, .. } => {
                self.note(format_args!("<- region {region} was stuck"))
            }
            CardReport::State { region, result, .. } => {
                self.states.answered();
                self.note(format_args!("<- state in {region}: {result:?}"));
            }
            CardReport::Programmed { result, .. } => {
                if result.is_ok() {
                    self.confirmed = self.tables.clone();
                }
                self.note(format_args!("<- programmed: {result:?}"));
            }
            CardReport::ReadBack { snapshot, .. } => {
                self.states.answered();
                self.tables = snapshot.tables.clone();
                self.confirmed = snapshot.tables.clone();
                let regions: Vec<_> = snapshot.regions.iter().map(|r| r.status).collect();
                self.note(format_args!("<- read back {regions:?}"));
            }
            CardReport::Sampled { counters, .. } => {
                let dags = self.controller.dags(None);
                let uids: Vec<DagUid> = dags.iter().map(|dag| dag.uid).collect();
                let time = self.now.since(self.counted);
                self.counted = self.now;
                self.loads.count(&mut self.rng, &uids, time, counters);
            }
        }
        true
    }

    /// The controller hears what the card says.
    fn report(&mut self, report: CardReport) {
        let before =
            matches!(report, CardReport::Sampled { .. }).then(|| contents(&self.controller));
        self.handle(Event::Card { card: card_id(), report });
        if let Some(before) = before {
            let after = contents(&self.controller);
            let stays = self.residency.sampled(&self.profile, self.now, &before, after);
            stays.unwrap_or_else(|broken| panic!("{broken}\n{}", self.log));
        }
    }

    /// Lets much time pass without a packet.
    pub fn leap(&mut self, time: Duration) {
        for source in std::mem::take(&mut self.sources).into_values() {
            self.card.detach(source);
        }
        self.note(format_args!("{time:?} pass"));
        self.pass(time);
    }

    /// The card's tables once all that was submitted is done.
    pub const fn tables(&self) -> &TableImage {
        &self.tables
    }

    pub fn open_card(&mut self) {
        if self.open {
            return;
        }
        self.card.reopen();
        self.is_asked = false;
        self.states.answered();
        self.open = true;
        let profile = Box::new(self.profile.clone());
        self.handle(Event::CardAppeared { card: card_id(), profile });
    }

    /// The card does not answer any more, and what was asked of it is not answered.
    pub fn lose_card(&mut self, reason: &str) {
        self.note(format_args!("card lost: {reason}"));
        self.session = Session::new(deadlines());
        self.open = false;
        let reason = reason.to_owned();
        self.handle(Event::Card { card: card_id(), report: CardReport::Lost { reason } });
    }

    /// In the place of the card is a new one now, with a region less or more; it is opened.
    pub fn put_in_another_device(&mut self) {
        let count = match self.profile.regions.len() {
            odd if !odd.is_multiple_of(2) => odd + 1,
            even => even - 1,
        };
        self.profile.regions.resize(count, CATALOGUE.profile.regions[0].clone());
        let has_windows = !self.card.has_windows();
        self.card = new_card(&self.profile, self.rng.random(), has_windows);
        self.sources.clear();
        self.open_card();
    }

    /// Whether another device than the one that is known answers in the card's place.
    pub fn is_another_device(&self) -> bool {
        let view = self.controller.card_view(&card_id());
        view.is_some_and(|view| view.profile.regions.len() != self.profile.regions.len())
    }

    /// The power of the card fails: it comes back empty, and the session finds out by itself.
    pub fn power_cycle(&mut self) {
        self.note("the card loses power");
        self.card.power_cycle();
    }

    /// The NTs of a region let no packet go any more.
    pub fn hang_region(&mut self) {
        let region = RegionId(self.rng.random_range(0..self.profile.regions.len() as u8));
        self.note(format_args!("tasks of region {region} hang"));
        self.card.stop_nts(region);
    }

    pub fn set_faults(&mut self, faults: Faults) {
        self.card.set_faults(faults);
    }

    /// The daemon dies; what was on its way to the store may or may not have arrived. It starts
    /// again from what is durable; the card kept running.
    pub fn crash(&mut self) {
        let arrived = self.rng.random_range(0..=self.pending.len());
        self.note(format_args!("crash, {arrived} of {} batches arrived", self.pending.len()));
        for _ in 0..arrived {
            if let Some(batch) = self.pending.pop_front() {
                self.apply(batch.writes);
            }
        }
        self.pending.clear();
        self.searches.clear();
        self.found.clear();
        self.outbox = Outbox::new();
        self.controller = recover(self.settings, &self.durable, self.now);
        self.residency.begin(&self.settings);
        self.controller.check().expect("the invariants after recovery");
        self.session = Session::new(deadlines());
        self.open = false;
        self.open_card();
    }

    /// Keeps a little traffic on every DAG that the card serves, by its UID.
    pub fn keep_traffic(&mut self) {
        let wanted: Vec<(DagUid, Bandwidth)> = self
            .controller
            .dags(None)
            .into_iter()
            .filter(|dag| dag.observed_generation > 0)
            .map(|dag| (dag.uid, dag.rate))
            .collect();
        let gone: Vec<DagUid> = self
            .sources
            .keys()
            .filter(|uid| !wanted.iter().any(|(u, _)| u == *uid))
            .copied()
            .collect();
        for uid in gone {
            if let Some(source) = self.sources.remove(&uid) {
                self.card.detach(source);
            }
        }
        for (uid, rate) in wanted {
            if !self.sources.contains_key(&uid) {
                // A packet each 120 us or so at a tenth of a Gbit/s: enough to meet every flip.
                let rate = rate.min(Bandwidth::from_mbps(100));
                let source = TrafficSource::of_dag(uid, rate, Sizes::Fixed(1_500));
                let id = self.card.attach(source).expect("a valid source");
                self.usage.sends(uid);
                self.sources.insert(uid, id);
            }
        }
    }

    /// Nothing is left to do, so nothing is stored or asked of the card, for as long as several epochs take.
    pub fn check_still(&mut self) {
        let (steps, end) = (self.steps, self.now + self.settings.fairness.epoch * 5);
        while self.now < end {
            self.commit(usize::MAX);
            self.pass(Duration::from_millis(2));
            self.keep_traffic();
        }
        assert_eq!(self.steps, steps, "steps are taken when nothing is left to do");
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.open && self.pending.is_empty() && self.outbox.is_empty() && self.session.is_idle()
    }
}

/// A card as it comes from its maker.
fn new_card(profile: &CardProfile, seed: u64, has_windows: bool) -> SimCard {
    let make = if has_windows { SimCard::with_windows } else { SimCard::new };
    let mut card = make(profile.clone(), seed).expect("a valid profile");
    for nt in &CATALOGUE.nts {
        card.set_memory_access(nt.id.code().0, MemoryAccess { pages: 1, writes: true });
    }
    card
}

/// A gigabit costs 1.
fn prices() -> Arc<Prices> {
    let text = "currency = \"EUR\"\nprovider = \"Example\"\n[[versions]]\nname = \"a\"\nfrom = 1970-01-01T00:00:00Z\n\
                prices = { promised_gigabits = \"1\" }";
    Arc::new(Prices::parse(text).expect("they are valid"))
}

fn recover(
    settings: ControllerSettings,
    durable: &BTreeMap<String, Vec<u8>>,
    now: Timestamp,
) -> Controller {
    let records = durable.iter().map(|(key, value)| (key.clone(), value.clone()));
    let controller = Controller::recover(settings, records, 7, now);
    let mut controller = controller.expect("our own records are readable");
    controller.declare_functions(card_id(), FUNCTIONS);
    controller.declare_prices(Some(prices()));
    controller
}
