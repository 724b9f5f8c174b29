//! Messages with delays and losses, clocks, faults; all from one seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use snic_domain::{
    Bandwidth, BitstreamId, BudgetPolicy, CardId, DagName, DagPatch, Quota, QuotaPatch, Tenant,
    TenantId, TenantPatch, Timestamp,
};
use snic_etcd::election::{Candidate, ElectionEffect, ElectionEvent, ElectionSettings, Term};
use snic_etcd::model::{EtcdModel, NetworkFault};
use snic_etcd::{Answer, Failed, Record, Refusal, Request, Revision, Watch, WatchUpdate};
use snic_fleet::placement::{CardConstraints, CardPolicy, Inventory, PromiseLimits};
use snic_fleet::protocol::{
    Denied, DrainArea, FleetAsk, FleetCall, FleetCommand, FleetEffect, FleetEvent, FleetName,
    FleetNotice, FleetReply, HostOrder, HostReport, MachineNeeds, NewFleetDag, Provisions,
    RequestId,
};
use snic_fleet::records::{FleetDagRecord, POLICIES, PlaceRecord, PoliciesRecord, Versioned};
use snic_fleet::{
    AgentEvent, FleetCard, FleetSettings, HostId, ProjectChange, ProjectId, Replica, ServeRefused,
};

use crate::book::Book;
use crate::host::{Begun, SimHost};
use crate::support::{
    Rng, bitstreams, catalogue, host, host_spec, inventory, name, profile, spec, tenant, zone,
};

/// Longest wait, in steps of 10 s, for DAGs that are moving to arrive.
const MOVES_WAIT_MAX: usize = 30;
const REPLICAS: usize = 3;
const ELECTION: &str = "/snic/v1/election/";
const START: Duration = Duration::from_secs(1_000_000);
const FUNCTIONS: u32 = 64;

/// Size and length of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub hosts: usize,
    pub cards: usize,
    pub tenants: usize,
    pub chaos_seconds: u64,
    pub requests: usize,
}

/// Counts of what happened, so that a run in which nothing happens is noticed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub elections: u64,
    pub fenced_off: u64,
    pub silent_answers: u64,
    pub evacuated: u64,
    pub held: u64,
    pub refused_by_hosts: u64,
    /// Machines that were bound, and DAGs that hosts kept because of one.
    pub bound: u64,
    pub kept: u64,
    /// Binds that took functions, and binds that were refused for there were too few, or these are kept for others.
    pub bound_functions: u64,
    pub kept_functions: u64,
    pub lost_places: u64,
    pub placed_again: u64,
    pub replayed: u64,
    pub older_orders: u64,
    pub reservations: u64,
    pub clock_steps: u64,
    pub created: u64,
    pub batches: u64,
    pub searches: u64,
    pub deleted: u64,
    pub changed: u64,
    /// Rebalances that were begun, and DAGs that they moved.
    pub rebalances: u64,
    pub leveled: u64,
    /// Runs that ended with policies on all hosts.
    pub policies: u64,
    pub denied: u64,
    pub transactions: u64,
    /// Times in which etcd refused writes and the leader noticed, those that ended under the same leader, writes that were
    /// refused to clients, and requests that etcd refused.
    pub store_refusals: u64,
    pub store_accepts: u64,
    pub refused_writes: u64,
    pub refused_requests: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        self.elections += other.elections;
        self.fenced_off += other.fenced_off;
        self.silent_answers += other.silent_answers;
        self.evacuated += other.evacuated;
        self.held += other.held;
        self.refused_by_hosts += other.refused_by_hosts;
        self.bound += other.bound;
        self.kept += other.kept;
        self.bound_functions += other.bound_functions;
        self.kept_functions += other.kept_functions;
        self.lost_places += other.lost_places;
        self.placed_again += other.placed_again;
        self.replayed += other.replayed;
        self.older_orders += other.older_orders;
        self.reservations += other.reservations;
        self.clock_steps += other.clock_steps;
        self.created += other.created;
        self.batches += other.batches;
        self.searches += other.searches;
        self.deleted += other.deleted;
        self.changed += other.changed;
        self.rebalances += other.rebalances;
        self.leveled += other.leveled;
        self.policies += other.policies;
        self.denied += other.denied;
        self.transactions += other.transactions;
        self.store_refusals += other.store_refusals;
        self.store_accepts += other.store_accepts;
        self.refused_writes += other.refused_writes;
        self.refused_requests += other.refused_requests;
    }
}

enum What {
    Tick(usize),
    Campaign(usize),
    Beat(HostId),
    /// A machine is bound to some DAG of a host, or leaves.
    Bind(HostId),
    /// To etcd, with whether the answer is told.
    Etcd {
        replica: (usize, u64),
        number: u64,
        request: Request,
        is_told: bool,
    },
    Answer {
        replica: (usize, u64),
        number: u64,
        result: Result<Answer, Failed>,
    },
    Order {
        host: HostId,
        order: HostOrder,
    },
    Report {
        replica: usize,
        host: HostId,
        report: HostReport,
    },
    Fetched {
        host: HostId,
        incarnation: u64,
        images: Vec<(BitstreamId, u64)>,
    },
    Carry {
        host: HostId,
        incarnation: u64,
        name: DagName,
        place: Box<PlaceRecord>,
    },
    Ask {
        client: usize,
        attempt: u64,
    },
    Arrive {
        replica: usize,
        client: usize,
        attempt: u64,
    },
    Reply {
        client: usize,
        attempt: u64,
        result: Result<FleetReply, Denied>,
    },
    Fault,
    /// etcd accepts writes again.
    Accept,
}

struct SimReplica {
    replica: Replica,
    /// Number of its starts.
    incarnation: u64,
    candidate: Candidate,
    /// When the key was created with which it leads.
    term: Option<Revision>,
    election_watch: Option<Watch>,
    watch: Option<Watch>,
    /// Its clock, ahead of time.
    offset: Duration,
    paused_until: Duration,
    is_cut_off: bool,
    /// Its own time when it was elected, and the DAGs that it has moved since.
    elected: Timestamp,
    moved: u64,
    /// The latest time that its clock has shown.
    latest: Timestamp,
}

struct Client {
    ask: FleetAsk,
    attempt: u64,
    is_done: bool,
    /// The last answer that says more than that another replica leads.
    last: Option<Result<FleetReply, Denied>>,
}

/// All of it.
pub struct World {
    plan: Plan,
    seed: u64,
    rng: Rng,
    pub settings: FleetSettings,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, What>,
    sent: u64,
    etcd: EtcdModel,
    replicas: Vec<SimReplica>,
    pub hosts: BTreeMap<HostId, SimHost>,
    incarnations: BTreeMap<HostId, u64>,
    clients: Vec<Client>,
    acknowledged: BTreeSet<DagName>,
    fleet: Inventory,
    book: Book,
    pub counts: Counts,
    is_chaos: bool,
    /// A second of simulated time, and how many requests etcd has refused in it.
    refused_in_second: (u64, u64),
}

/// Most requests that etcd refuses in a second: of three replicas, which try with growing pauses.
const REFUSED_PER_SECOND_MAX: u64 = 30;

/// A failing run names its seed.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let at = self.now - START;
            eprintln!("SNIC_SEED={}, at {at:?}, {:?}", self.seed, self.counts);
        }
    }
}

fn project() -> ProjectId {
    ProjectId::new("p").expect("a name of the test")
}

fn candidate(of: usize) -> Candidate {
    let (prefix, name) = (ELECTION.to_owned(), format!("replica {of}"));
    Candidate::new(ElectionSettings { prefix, name, lease_seconds: 3 })
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> Self {
        let settings = FleetSettings {
            lease: Duration::from_secs(5),
            confirm: Duration::from_secs(2),
            moves_per_second: 8,
            moves_burst: 8,
        };
        let replica = |of| SimReplica {
            replica: Replica::new(settings),
            incarnation: 0,
            candidate: candidate(of),
            term: None,
            election_watch: None,
            watch: None,
            offset: Duration::ZERO,
            paused_until: Duration::ZERO,
            is_cut_off: false,
            elected: Timestamp::ZERO,
            latest: Timestamp::ZERO,
            moved: 0,
        };
        let mut world = Self {
            plan,
            seed,
            rng: Rng(seed),
            settings,
            now: START,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sent: 0,
            etcd: EtcdModel::new(),
            replicas: (0..REPLICAS).map(replica).collect(),
            hosts: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            clients: Vec::new(),
            acknowledged: BTreeSet::new(),
            fleet: inventory(catalogue()),
            book: Book::default(),
            counts: Counts::default(),
            is_chaos: false,
            refused_in_second: (0, 0),
        };
        world.register();
        world
    }

    /// Operators register everything, before anything goes wrong.
    fn register(&mut self) {
        let catalogue = catalogue();
        let profile = profile(catalogue, "sim-16");
        let nts = catalogue.nt_types.iter().cloned().map(FleetCommand::CreateNt);
        let of_model = |of: &snic_domain::Bitstream| of.card_model == profile.model;
        let built = bitstreams(catalogue).into_iter().filter(of_model);
        let mut commands: Vec<FleetCommand> = built.map(FleetCommand::CreateBitstream).collect();
        for number in 0..self.plan.tenants {
            let id = tenant(&format!("t{number}"));
            let quota = Quota {
                dags_max: 25,
                bandwidth_max: Bandwidth::from_gbps(150),
                ..Quota::default()
            };
            let tenant = Tenant { id, weight: 1, quota, notes: Default::default(), project: None };
            commands.push(FleetCommand::CreateTenant { tenant, project: None });
        }
        for number in 0..self.plan.hosts {
            let id = host(&format!("h{number:04}"));
            let cards = vec![&profile; self.plan.cards];
            let spec = host_spec(number % 4, number / 8, &cards);
            self.hosts.insert(id.clone(), SimHost::new(&spec));
            self.incarnations.insert(id.clone(), 0);
            commands.push(FleetCommand::CreateHost(id, spec));
        }
        for replica in 0..REPLICAS {
            let ms = self.rng.below(400) as u64;
            self.after(Duration::from_millis(ms), What::Campaign(replica));
            self.after(Duration::from_millis(ms), What::Tick(replica));
        }
        for id in self.hosts.keys().cloned().collect::<Vec<_>>() {
            let ms = self.rng.below(1_000) as u64;
            self.after(Duration::from_millis(ms), What::Beat(id));
        }
        let quota = Quota { dags_max: 60, ..Quota::default() };
        let quota = Quota { bandwidth_max: Bandwidth::from_gbps(300), ..quota };
        let projects = FleetCommand::CreateProject { project: project(), quota };
        self.operators(nts.chain([projects]).collect());
        self.operators(commands);
    }

    /// Sends commands of operators at once, until they are done.
    fn operators(&mut self, commands: Vec<FleetCommand>) {
        for command in commands {
            self.client(None, command, Duration::ZERO);
        }
        self.pass(Duration::from_secs(3));
        while self.clients.iter().any(|client| !client.is_done) {
            self.pass(Duration::from_secs(1));
        }
    }

    /// Chaos, then calm, then judgement.
    pub fn run(&mut self) {
        let seconds = self.plan.chaos_seconds.max(10) as usize;
        for number in 0..self.plan.requests {
            let at = Duration::from_millis(self.rng.below(seconds * 1_000) as u64);
            let of = tenant(&format!("t{}", self.rng.below(self.plan.tenants)));
            let command = self.some_command(number, &of);
            self.client(Some(of), command, at);
        }
        self.operators_meddle(seconds);
        self.is_chaos = self.plan.chaos_seconds > 0;
        if self.is_chaos {
            self.after(Duration::from_secs(1), What::Fault);
            for id in self.hosts.keys().cloned().collect::<Vec<_>>() {
                let ms = self.rng.below(8_000) as u64;
                self.after(Duration::from_millis(ms), What::Bind(id));
            }
        }
        for _ in 0..2 {
            self.pass(Duration::from_millis(seconds as u64 * 500));
            self.judge();
        }
        self.reconnect();
        self.reach_rest();
    }

    /// Zones are drained for a while, cards are leveled, tenants join a project, and their quotas and weights change.
    fn operators_meddle(&mut self, seconds: usize) {
        if self.plan.chaos_seconds == 0 {
            return;
        }
        for number in 0..4 {
            let at = self.rng.below(seconds * 1_000) as u64;
            let area = DrainArea::Zone(zone(number));
            let moves_max = 1 + self.rng.below(4) as u32;
            let drain = FleetCommand::Drain { area: area.clone(), moves_max };
            self.client(None, drain, Duration::from_millis(at));
            let end = at + 2_000 + self.rng.below(10_000) as u64;
            self.client(None, FleetCommand::EndDrain(area), Duration::from_millis(end));
        }
        for number in 0..3 {
            let at = Duration::from_millis(self.rng.below(seconds * 1_000) as u64);
            let zone = self.rng.percent(30).then(|| zone(number));
            let (moves_max, tolerance_percent) =
                (1 + self.rng.below(6) as u32, 1 + self.rng.below(5) as u32);
            let start = FleetCommand::Rebalance { zone, moves_max, tolerance_percent };
            self.client(None, start, at);
        }
        let at = Duration::from_millis(self.rng.below(seconds * 1_500) as u64);
        self.client(None, FleetCommand::EndRebalance, at);
        for number in 0..3 {
            let at = Duration::from_millis(self.rng.below(seconds * 1_000) as u64);
            let files = [("fairness.toml".to_owned(), format!("# {number}\n"))].into();
            let ingress_percent = [100, 60, 80][number];
            let promises = PromiseLimits { ingress_percent, ..PromiseLimits::default() };
            let (budgets, etag) = (BudgetPolicy::default(), None);
            let defaults = Default::default();
            let set = FleetCommand::SetPolicies { files, promises, budgets, defaults, etag };
            self.client(None, set, at);
        }
        for number in 0..self.plan.tenants {
            let at = Duration::from_millis(self.rng.below(seconds * 1_000) as u64);
            let weight = Some(1 + self.rng.below(9) as u32);
            let dags_max = Some(10 + self.rng.below(30) as u32);
            let quota = Some(QuotaPatch { dags_max, ..QuotaPatch::default() });
            let patch = TenantPatch { weight, quota, ..TenantPatch::default() };
            let (tenant, etag) = (tenant(&format!("t{number}")), None);
            let project = ProjectChange::Join(project());
            self.client(None, FleetCommand::UpdateTenant { tenant, patch, project, etag }, at);
        }
    }

    fn some_command(&mut self, number: usize, of: &TenantId) -> FleetCommand {
        let rng = &mut self.rng;
        let mut constraints = CardConstraints::default();
        let policy =
            [CardPolicy::Pack, CardPolicy::Spread, CardPolicy::Headroom, CardPolicy::Loaded]
                [rng.below(4)];
        if rng.percent(15) {
            constraints.functions = 1 + rng.below(40) as u32;
            let reservation = RequestId(number as u64);
            let seconds = 1 + rng.below(20) as u32;
            let bandwidth = Bandwidth::from_gbps([0, 0, 5, 30][rng.below(4)]);
            let (vm, uuid) = (None, String::new());
            return FleetCommand::Reserve {
                reservation,
                constraints,
                policy,
                seconds,
                bandwidth,
                vm,
                uuid,
            };
        }
        if rng.percent(20) {
            constraints.hosts.insert(host(&format!("h{:04}", rng.below(self.plan.hosts))));
        }
        let mut new = |part: usize| {
            let nts: Vec<usize> = (0..1 + rng.below(3)).map(|_| rng.below(8)).collect();
            let mbit = [500, 2_000, 5_000, 10_000][rng.below(4)];
            let mut constraints = constraints.clone();
            if rng.percent(25) {
                // Some were made before, others are made later, and most are of other tenants' requests.
                let near = (number + rng.below(8)).saturating_sub(4);
                let other = name(of.as_str(), &format!("d{near}-{}", rng.below(2)));
                let is_by_rack = rng.percent(40);
                if other != name(of.as_str(), &format!("d{number}-{part}")) {
                    let CardConstraints { hosts_without_dags, racks_without_dags, .. } =
                        &mut constraints;
                    let list = if is_by_rack { racks_without_dags } else { hosts_without_dags };
                    list.insert(other);
                }
            }
            let name = name(of.as_str(), &format!("d{number}-{part}"));
            let spec = spec(catalogue(), &nts, mbit);
            NewFleetDag { name, spec, constraints, policy }
        };
        match number % 8 {
            0 => FleetCommand::CreateDags((0..2 + number % 5).map(new).collect()),
            1 => {
                let NewFleetDag { name, spec, constraints, policy } = new(0);
                let new = (number % 16 == 1).then(|| (name, Box::new(spec)));
                let new_dags = new.into_iter().collect();
                let needs = Box::new(MachineNeeds { new_dags, ..MachineNeeds::default() });
                FleetCommand::FindHosts { constraints, policy, needs, most: 1 + number % 3 }
            }
            _ => FleetCommand::CreateDag(new(0)),
        }
    }

    fn client(&mut self, tenant: Option<TenantId>, command: FleetCommand, after: Duration) {
        let id = Some(RequestId(self.clients.len() as u64));
        let ask = FleetAsk { tenant, id, validate_only: false, command };
        self.clients.push(Client { ask, attempt: 0, is_done: false, last: None });
        self.after(after, What::Ask { client: self.clients.len() - 1, attempt: 0 });
    }

    fn after(&mut self, delay: Duration, what: What) {
        self.sent += 1;
        self.queue.push(Reverse((self.now + delay, self.sent)));
        self.events.insert(self.sent, what);
    }

    /// Some milliseconds, rarely seconds.
    fn delay(&mut self) -> Duration {
        let is_late = self.is_chaos && self.rng.percent(2);
        Duration::from_micros(500 + self.rng.below(if is_late { 3_000_000 } else { 20_000 }) as u64)
    }

    fn is_lost(&mut self) -> bool {
        self.is_chaos && self.rng.percent(3)
    }

    /// Lets time pass.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(Reverse((at, number))) = self.queue.peek().copied().filter(|e| e.0.0 <= end)
        {
            self.queue.pop();
            self.now = at;
            let what = self.events.remove(&number).expect("it was scheduled");
            self.happen(what);
        }
        self.now = end;
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Tick(replica) => {
                self.after(Duration::from_millis(500), What::Tick(replica));
                self.handle(replica, FleetEvent::Tick);
            }
            What::Campaign(replica) => self.campaign(replica),
            What::Beat(id) => {
                self.after(Duration::from_secs(1), What::Beat(id.clone()));
                let faults = self.hosts[&id].faults();
                self.host_event(&id, faults);
                let policies = self.hosts[&id].policies();
                self.host_event(&id, policies);
                let attachments = self.hosts[&id].attachments();
                self.host_event(&id, attachments);
                self.report_functions(&id);
                self.host_event(&id, AgentEvent::BeatDue);
            }
            What::Bind(id) => self.bind(&id),
            What::Etcd { replica, number, request, is_told } => {
                self.ask_etcd(replica, number, &request, is_told);
            }
            What::Answer { replica: (of, incarnation), number, result } => {
                if self.replicas[of].incarnation == incarnation {
                    self.handle(of, FleetEvent::Etcd { number, result });
                }
            }
            What::Order { host, order } => {
                if self.hosts[&host].is_isolated {
                    return;
                }
                let is_older = order.epoch < self.hosts[&host].epoch;
                if is_older {
                    self.counts.older_orders += 1;
                    let agent = &mut self.hosts.get_mut(&host).expect("a host").agent;
                    let effects = agent.handle(AgentEvent::Order(order));
                    assert_eq!(effects, [], "a host carries out an older leader's order");
                } else {
                    self.host_event(&host, AgentEvent::Order(order));
                }
            }
            What::Report { replica, host, report } => {
                if !self.hosts[&host].is_isolated {
                    self.handle(replica, FleetEvent::Report { host, report });
                }
            }
            What::Fetched { host, incarnation, images } => {
                if self.incarnations[&host] == incarnation {
                    self.fetched(&host, images);
                }
            }
            What::Carry { host, incarnation, name, place } => {
                if self.incarnations[&host] == incarnation {
                    self.carry(&host, name, &place);
                }
            }
            What::Ask { client, attempt } => self.ask(client, attempt),
            What::Arrive { replica, client, attempt } => {
                let call = FleetCall((client as u64) << 32 | attempt);
                let ask = self.clients[client].ask.clone();
                self.handle(replica, FleetEvent::Ask { call, ask });
            }
            What::Reply { client, attempt, result } => self.reply(client, attempt, result),
            What::Fault => self.fault(),
            What::Accept => self.refuse_writes(None),
        }
    }

    fn handle(&mut self, of: usize, event: FleetEvent) {
        let replica = &mut self.replicas[of];
        if replica.paused_until > self.now {
            let delay = replica.paused_until - self.now;
            let again = match event {
                FleetEvent::Etcd { number, result } => {
                    What::Answer { replica: (of, replica.incarnation), number, result }
                }
                FleetEvent::Report { host, report } => What::Report { replica: of, host, report },
                FleetEvent::Ask { call: FleetCall(call), .. } => {
                    let (client, attempt) = ((call >> 32) as usize, call & 0xFFFF_FFFF);
                    What::Arrive { replica: of, client, attempt }
                }
                // The next one comes of itself.
                FleetEvent::Tick | FleetEvent::Elected { .. } | FleetEvent::Deposed => return,
                FleetEvent::Watched(_) => unreachable!("a paused replica's watch is not read"),
            };
            return self.after(delay, again);
        }
        let time = Timestamp::from_nanos((self.now + replica.offset).as_nanos() as u64);
        replica.latest = replica.latest.max(time);
        let effects = replica.replica.handle(time, event);
        for effect in effects {
            self.carry_out(of, effect);
        }
    }

    fn carry_out(&mut self, of: usize, effect: FleetEffect) {
        match effect {
            FleetEffect::Etcd { number, request } => self.send_to_etcd(of, number, request),
            FleetEffect::Reply { call: FleetCall(call), result } => {
                let (client, attempt) = ((call >> 32) as usize, call & 0xFFFF_FFFF);
                if let Ok(reply) = &result {
                    self.book.acknowledged(&self.clients[client].ask.command, reply);
                }
                if !self.is_lost() {
                    let delay = self.delay();
                    self.after(delay, What::Reply { client, attempt, result });
                }
            }
            FleetEffect::Order { host, order } => {
                self.book.ordered(&host, &order);
                if !self.is_lost() {
                    let delay = self.delay();
                    self.after(delay, What::Order { host, order });
                }
            }
            FleetEffect::Tell(notice) => self.told(of, &notice),
            FleetEffect::Watch(watch) => self.replicas[of].watch = Some(watch),
            FleetEffect::StepDown => {
                self.counts.fenced_off += 1;
                self.replicas[of].term = None;
                let effects = self.replicas[of].candidate.resign(self.now);
                self.stand(of, effects);
                self.replicas[of].candidate = candidate(of);
                self.replicas[of].election_watch = None;
            }
        }
    }

    fn told(&mut self, of: usize, notice: &FleetNotice) {
        match notice {
            FleetNotice::DagMoved { .. } | FleetNotice::DagPlaced { .. } => {
                let is_moved = matches!(notice, FleetNotice::DagMoved { .. });
                self.counts.evacuated += u64::from(is_moved);
                self.counts.placed_again += u64::from(!is_moved);
                let replica = &mut self.replicas[of];
                replica.moved += 1;
                // Its time never goes back, whatever its clock does.
                let seconds = replica.latest.since(replica.elected).as_secs_f64();
                let rate = self.settings.moves_per_second as f64;
                let most = self.settings.moves_burst as f64 + rate * seconds + 1.0;
                assert!(replica.moved as f64 <= most, "{} moves in {seconds} s", replica.moved);
            }
            FleetNotice::EvacuationHeld { unreachable, hosts, .. } => {
                assert!(unreachable * 3 > *hosts);
                self.counts.held += 1;
            }
            FleetNotice::StoreRefuses(_) => self.counts.store_refusals += 1,
            FleetNotice::StoreAccepts(_) => self.counts.store_accepts += 1,
            FleetNotice::CannotLead(why) => panic!("{why}"),
            _ => {}
        }
    }

    fn send_to_etcd(&mut self, of: usize, number: u64, request: Request) {
        let replica = (of, self.replicas[of].incarnation);
        let delay = self.delay();
        if self.replicas[of].is_cut_off {
            let result = Err(Failed::Unreachable("no member".into()));
            return self.after(delay, What::Answer { replica, number, result });
        }
        let dice = if self.is_chaos { self.rng.below(100) } else { 100 };
        let silence = || Err(Failed::Unknown("no answer in time".into()));
        match dice {
            0..=2 => {
                let result = Err(Failed::Unreachable("no member".into()));
                self.after(delay, What::Answer { replica, number, result });
            }
            3..=5 => {
                // It never arrives.
                let second = Duration::from_secs(1);
                self.after(second, What::Answer { replica, number, result: silence() });
            }
            6..=9 => {
                // It arrives, perhaps long after the replica has given up waiting.
                let late = Duration::from_millis(self.rng.below(4_000) as u64);
                self.after(late, What::Etcd { replica, number, request, is_told: false });
                let second = Duration::from_secs(1);
                self.after(second, What::Answer { replica, number, result: silence() });
                self.counts.silent_answers += 1;
            }
            _ => self.after(delay, What::Etcd { replica, number, request, is_told: true }),
        }
    }

    /// Nobody asks again and again without pause what etcd refuses.
    fn count_refusal(&mut self, failed: Option<&Failed>) {
        if failed.and_then(Failed::refusal).is_none() {
            return;
        }
        self.counts.refused_requests += 1;
        let (second, count) = &mut self.refused_in_second;
        *count = if *second == self.now.as_secs() { *count + 1 } else { 1 };
        *second = self.now.as_secs();
        assert!(*count <= REFUSED_PER_SECOND_MAX, "{count} requests are refused within a second");
    }

    pub const fn now(&self) -> Duration {
        self.now
    }

    /// etcd refuses writes from now on, or accepts them again.
    pub const fn refuse_writes(&mut self, refusal: Option<Refusal>) {
        self.etcd.refuse_writes(refusal);
    }

    /// The answer to a request, within a time; a caller that is refused by etcd goes on asking.
    pub fn outcome(
        &mut self,
        tenant: Option<TenantId>,
        command: FleetCommand,
        within: Duration,
    ) -> Result<FleetReply, Denied> {
        self.client(tenant, command, Duration::ZERO);
        let (client, end) = (self.clients.len() - 1, self.now + within);
        loop {
            self.pass(Duration::from_millis(20));
            if let Some(last) = &self.clients[client].last {
                return last.clone();
            }
            assert!(self.now < end, "no answer within {within:?}");
        }
    }

    /// When the key of the leader was created, which is the oldest.
    fn leader(&mut self) -> Option<i64> {
        let prefix = ELECTION.to_owned();
        let range = Request::Range { prefix, at: None, from: None, limit: 1_000 };
        match self.etcd.ask(self.now, &range) {
            Ok(Answer::Range { records, .. }) => records.iter().map(|of| of.created.0).min(),
            other => panic!("{other:?}"),
        }
    }

    fn ask_etcd(&mut self, replica: (usize, u64), number: u64, request: &Request, is_told: bool) {
        let result = self.etcd.ask(self.now, request);
        if let (Request::Commit(transaction), Ok(Answer::Committed(_))) = (request, &result) {
            let leader = self.leader();
            self.book.was_committed(transaction, leader);
            self.counts.transactions += 1;
        }
        if let Err(Failed::Invalid(why)) = &result {
            panic!("etcd refuses a request: {why}");
        }
        self.count_refusal(result.as_ref().err());
        if is_told {
            let delay = self.delay();
            self.after(delay, What::Answer { replica, number, result });
        }
    }

    /// A replica stands for election, and follows what is written.
    fn campaign(&mut self, of: usize) {
        self.after(Duration::from_millis(100), What::Campaign(of));
        let replica = &self.replicas[of];
        if replica.paused_until > self.now {
            return;
        }
        // A resumed leader may learn late that it is none: until then it tries to lead.
        let is_late = self.is_chaos && self.rng.percent(30);
        if !is_late {
            let effects = self.replicas[of].candidate.handle(self.now, ElectionEvent::Tick);
            self.stand(of, effects);
            let mut watch = self.replicas[of].election_watch.take();
            if let Some(told) = self.read(of, &mut watch) {
                self.replicas[of].election_watch = watch;
                let event = ElectionEvent::Told(told);
                let effects = self.replicas[of].candidate.handle(self.now, event);
                self.stand(of, effects);
            } else {
                self.replicas[of].election_watch = watch;
            }
            self.learn_term(of);
        }
        let mut watch = self.replicas[of].watch.take();
        let told = self.read(of, &mut watch);
        self.replicas[of].watch = watch;
        if let Some(told) = told {
            self.handle(of, FleetEvent::Watched(told));
        }
    }

    /// News of a watch, unless it is cut off or slow.
    fn read(
        &mut self,
        of: usize,
        watch: &mut Option<Watch>,
    ) -> Option<Result<WatchUpdate, Failed>> {
        if self.replicas[of].is_cut_off || self.is_chaos && self.rng.percent(20) {
            return None;
        }
        let told = self.etcd.watch(self.now, watch.as_ref()?, 50).transpose()?;
        match (&told, watch.as_mut()) {
            (Ok(told), Some(watch)) => watch.from = Revision(told.until.0 + 1),
            _ => *watch = None,
        }
        Some(told)
    }

    /// Carries out what a candidate wants; etcd answers it at once, if at all.
    fn stand(&mut self, of: usize, effects: Vec<ElectionEffect>) {
        for effect in effects {
            match effect {
                ElectionEffect::Watch(watch) => self.replicas[of].election_watch = Some(watch),
                ElectionEffect::Ask(asked, request) => {
                    let all = [
                        NetworkFault::Unreachable,
                        NetworkFault::RequestLost,
                        NetworkFault::AnswerLost,
                    ];
                    let mishap = match self.rng.below(30) {
                        _ if self.replicas[of].is_cut_off => NetworkFault::Unreachable,
                        at @ 0..3 if self.is_chaos => all[at],
                        _ => NetworkFault::None,
                    };
                    let answer = self.etcd.ask_with(self.now, &request, mishap);
                    self.count_refusal(answer.as_ref().err());
                    let event = ElectionEvent::Answered(asked, answer);
                    let effects = self.replicas[of].candidate.handle(self.now, event);
                    self.stand(of, effects);
                }
            }
        }
    }

    /// Tells a replica whether it leads.
    fn learn_term(&mut self, of: usize) {
        let replica = &mut self.replicas[of];
        let term = replica.candidate.term(self.now);
        let since = term.as_ref().map(|term| term.since);
        if since == replica.term {
            return;
        }
        let had = std::mem::replace(&mut replica.term, since);
        if let Some(Term { key, since }) = term {
            self.counts.elections += 1;
            let nanos = (self.now + replica.offset).as_nanos() as u64;
            replica.latest = replica.latest.max(Timestamp::from_nanos(nanos));
            (replica.elected, replica.moved) = (replica.latest, 0);
            self.handle(of, FleetEvent::Elected { key, created: since });
        } else if had.is_some() {
            self.handle(of, FleetEvent::Deposed);
        }
    }

    fn host_event(&mut self, id: &HostId, event: AgentEvent) {
        let now = self.now;
        let host = self.hosts.get_mut(id).expect("a host");
        host.now = now;
        let Begun { reports, served, fetched, cut_off, kept, kept_orders } = host.event(event);
        kept_orders.iter().for_each(|of| self.book.is_to_keep(id, of, now));
        cut_off.iter().for_each(|name| self.book.cut_off(name, id));
        self.counts.kept += kept;
        self.send_reports(id, reports);
        if !fetched.is_empty() {
            let millis = 50 + self.rng.below(if self.is_chaos { 4_000 } else { 200 }) as u64;
            let (host, incarnation) = (id.clone(), self.incarnations[id]);
            let what = What::Fetched { host, incarnation, images: fetched };
            self.after(Duration::from_millis(millis), what);
        }
        for (name, place) in served {
            let (delay, host, place) = (self.delay(), id.clone(), Box::new(place));
            let incarnation = self.incarnations[id];
            self.after(delay, What::Carry { host, incarnation, name, place });
        }
    }

    /// Machines come and go, whatever the fleet does meanwhile.
    fn bind(&mut self, id: &HostId) {
        if !self.is_chaos {
            return;
        }
        let next = Duration::from_millis(500 + self.rng.below(6_000) as u64);
        self.after(next, What::Bind(id.clone()));
        self.bind_functions(id);
        let leaves = self.rng.percent(50);
        let host = self.hosts.get_mut(id).expect("a host");
        let names: BTreeSet<DagName> = match leaves {
            true => host.machines.keys().cloned().collect(),
            false => host.served.values().flat_map(|dags| dags.keys().cloned()).collect(),
        };
        if names.is_empty() {
            return;
        }
        let name = names.iter().nth(self.rng.below(names.len())).expect("one of them").clone();
        if leaves {
            host.machines.remove(&name);
        } else {
            *host.machines.entry(name).or_default() += 1;
            self.counts.bound += 1;
        }
        // Its daemon looks twice a second.
        if self.rng.percent(50) {
            let attachments = self.hosts[id].attachments();
            self.host_event(id, attachments);
        }
    }

    fn report_functions(&mut self, id: &HostId) {
        let host = self.hosts.get_mut(id).expect("a host");
        host.now = self.now;
        let functions = host.functions();
        self.host_event(id, functions);
    }

    /// Machines of some tenant take functions of a card, or all of them leave it.
    fn bind_functions(&mut self, id: &HostId) {
        let (tenant, asked) =
            (tenant(&format!("t{}", self.rng.below(self.plan.tenants))), 1 + self.rng.below(30));
        let asked = asked as u32;
        let leaves = self.rng.percent(40);
        let (now, rng) = (self.now, &mut self.rng);
        let host = self.hosts.get_mut(id).expect("a host");
        let cards: Vec<CardId> = host.ledgers.keys().cloned().collect();
        // Where something is kept more often than elsewhere.
        let kept: Vec<CardId> =
            host.functions.kept.values().map(|(of, _)| of.card.clone()).collect();
        let among = if kept.is_empty() || rng.percent(30) { &cards } else { &kept };
        let card = among[rng.below(among.len())].clone();
        if leaves {
            host.functions.bound.remove(&card);
        } else {
            let is_bound = host.functions.bind(now, (&card, FUNCTIONS), &tenant, asked);
            self.counts.bound_functions += u64::from(is_bound);
            self.counts.kept_functions += u64::from(!is_bound);
            let of = &self.hosts[id].functions;
            self.book.was_bound((id, of), (&card, &tenant), (is_bound, asked), now);
        }
        if self.rng.percent(50) {
            self.report_functions(id);
        }
    }

    fn send_reports(&mut self, id: &HostId, reports: Vec<HostReport>) {
        for report in reports {
            for replica in 0..REPLICAS {
                if !self.hosts[id].is_isolated && !self.is_lost() {
                    let (delay, host, report) = (self.delay(), id.clone(), report.clone());
                    self.after(delay, What::Report { replica, host, report });
                }
            }
        }
    }

    fn fetched(&mut self, id: &HostId, images: Vec<(BitstreamId, u64)>) {
        let bitstreams: BTreeMap<BitstreamId, u64> = images.into_iter().collect();
        let host = self.hosts.get_mut(id).expect("a host");
        host.provided.bitstreams.extend(bitstreams.clone());
        let there = Provisions { bitstreams, ..Provisions::default() };
        self.host_event(id, AgentEvent::Provided(there));
    }

    fn carry(&mut self, id: &HostId, name: DagName, place: &PlaceRecord) {
        let by_accident = self.is_chaos && self.rng.percent(3);
        let host = self.hosts.get_mut(id).expect("a host");
        let result = if by_accident {
            Err("a region fails".to_owned())
        } else {
            host.carry_out(&name, place, self.fleet.catalogue())
        };
        self.counts.refused_by_hosts += u64::from(result.is_err());
        let (card, serial) = (place.card.card.clone(), place.serial);
        let refused = |reason| ServeRefused { reason, faulty: Vec::new() };
        let result = result.map(|()| None).map_err(refused);
        self.host_event(id, AgentEvent::Served { name, card, serial, result });
    }

    fn ask(&mut self, client: usize, attempt: u64) {
        let of = &self.clients[client];
        if of.is_done || of.attempt != attempt {
            return;
        }
        self.book.asked(&self.clients[client].ask.command);
        let replica = self.rng.below(REPLICAS);
        if !self.is_lost() {
            let delay = self.delay();
            self.after(delay, What::Arrive { replica, client, attempt });
        }
        self.again(client, Duration::from_secs(3));
    }

    fn again(&mut self, client: usize, after: Duration) {
        self.clients[client].attempt += 1;
        let attempt = self.clients[client].attempt;
        self.after(after, What::Ask { client, attempt });
    }

    fn reply(&mut self, client: usize, attempt: u64, result: Result<FleetReply, Denied>) {
        if self.clients[client].is_done {
            self.counts.replayed += u64::from(result.is_ok());
            return;
        }
        if !matches!(result, Err(Denied::NotLeader | Denied::Open | Denied::Busy { .. })) {
            self.clients[client].last = Some(result.clone());
        }
        match result {
            Err(Denied::StoreRefuses(_)) => {
                self.counts.refused_writes += 1;
                if attempt + 1 == self.clients[client].attempt {
                    let pause = Duration::from_millis(500 + self.rng.below(1_000) as u64);
                    self.again(client, pause);
                }
                return;
            }
            Err(Denied::NotLeader | Denied::Open | Denied::Busy { .. }) => {
                if attempt + 1 == self.clients[client].attempt {
                    let pause = Duration::from_millis(100 + self.rng.below(300) as u64);
                    self.again(client, pause);
                }
                return;
            }
            Err(Denied::Exists(what)) => panic!("{what} was made twice, or by another request"),
            Err(Denied::RequestReused(id)) => panic!("request {id}"),
            Err(Denied::Invalid(why)) => panic!("{why}"),
            Err(_) => self.counts.denied += 1,
            Ok(reply) => {
                self.counts.reservations += u64::from(matches!(reply, FleetReply::Reserved(_)));
                self.counts.searches += u64::from(matches!(reply, FleetReply::Hosts(_)));
                self.counts.rebalances += u64::from(matches!(reply, FleetReply::Rebalance(_)));
                self.done(client);
            }
        }
        self.clients[client].is_done = true;
    }

    /// Some DAGs live for a while only.
    fn done(&mut self, client: usize) {
        let ask = self.clients[client].ask.clone();
        match ask.command {
            FleetCommand::CreateDag(NewFleetDag { name, .. }) => self.created(ask.tenant, name),
            FleetCommand::CreateDags(all) => {
                self.counts.batches += 1;
                all.into_iter().for_each(|new| self.created(ask.tenant.clone(), new.name));
            }
            FleetCommand::Delete { .. } => self.counts.deleted += 1,
            FleetCommand::UpdateDag { .. } => self.counts.changed += 1,
            _ => {}
        }
    }

    fn created(&mut self, tenant: Option<TenantId>, name: DagName) {
        self.counts.created += 1;
        self.acknowledged.insert(name.clone());
        if self.rng.percent(40) {
            let after = Duration::from_millis(self.rng.below(10_000) as u64);
            let bandwidth = [300, 1_000, 4_000, 30_000][self.rng.below(4)];
            let bandwidth = Some(Bandwidth::from_mbps(bandwidth));
            let patch = Box::new(DagPatch { bandwidth, ..DagPatch::default() });
            let (name, etag) = (name.clone(), None);
            self.client(tenant.clone(), FleetCommand::UpdateDag { name, patch, etag }, after);
        }
        if self.rng.percent(40) {
            let after = Duration::from_millis(self.rng.below(20_000) as u64);
            let (name, etag, force) = (FleetName::Dag(name), None, false);
            self.client(tenant, FleetCommand::Delete { name, etag, force }, after);
        }
    }

    fn fault(&mut self) {
        if !self.is_chaos {
            return;
        }
        let next = Duration::from_millis(200 + self.rng.below(2_000) as u64);
        self.after(next, What::Fault);
        let of = self.rng.below(REPLICAS);
        let ids: Vec<HostId> = self.hosts.keys().cloned().collect();
        let id = ids[self.rng.below(ids.len())].clone();
        match self.rng.below(16) {
            15 => {
                let why = [Refusal::NoSpace, Refusal::NotPermitted][self.rng.below(2)];
                self.refuse_writes(Some(why));
                let until = Duration::from_millis(500 + self.rng.below(8_000) as u64);
                self.after(until, What::Accept);
            }
            14 => self.hosts.get_mut(&id).expect("a host").policies_fail = true,
            12 => self.fail_card(&id),
            13 => self.hosts.values_mut().for_each(|host| host.failed.clear()),
            0 => {
                let replica = &mut self.replicas[of];
                replica.replica = Replica::new(self.settings);
                replica.latest = Timestamp::ZERO;
                replica.incarnation += 1;
                // The key that it stood with stays until its lease ends.
                replica.candidate = candidate(of);
                (replica.term, replica.election_watch, replica.watch) = (None, None, None);
            }
            1 | 2 => {
                let pause = Duration::from_millis(self.rng.below(12_000) as u64);
                self.replicas[of].paused_until = self.now + pause;
            }
            3 => self.replicas[of].is_cut_off ^= true,
            4 => {
                self.counts.clock_steps += 1;
                let seconds = self.rng.below(30) as u64;
                self.replicas[of].offset = Duration::from_secs(seconds);
            }
            5 => {
                *self.incarnations.get_mut(&id).expect("a host") += 1;
                self.hosts.get_mut(&id).expect("a host").crash();
            }
            6 => {
                let revision = self.etcd.revision();
                let _ = self.etcd.ask(self.now, &Request::Compact(revision));
            }
            7 => self.etcd.change_leader(self.now),
            8 if self.rng.percent(10) => {
                // A switch fails: every third host and more.
                for id in ids.iter().filter(|_| self.rng.percent(50)) {
                    self.hosts.get_mut(id).expect("a host").is_isolated = true;
                }
            }
            9 => self.hosts.values_mut().for_each(|host| host.is_isolated = false),
            _ => self.hosts.get_mut(&id).expect("a host").is_isolated ^= true,
        }
    }

    /// A card of a host fails while its daemon runs, perhaps with DAGs on it.
    pub fn fail_card(&mut self, id: &HostId) {
        let cards: Vec<CardId> = self.hosts[id].ledgers.keys().cloned().collect();
        let card = &cards[self.rng.below(cards.len())];
        for event in self.hosts.get_mut(id).expect("a host").fail(card) {
            self.counts.lost_places += u64::from(matches!(event, AgentEvent::Lost { .. }));
            self.host_event(id, event);
        }
    }

    pub fn isolate(&mut self, hosts: &[HostId]) {
        for id in hosts {
            self.hosts.get_mut(id).expect("a host").is_isolated = true;
        }
    }

    /// All faults end.
    pub fn reconnect(&mut self) {
        self.is_chaos = false;
        self.refuse_writes(None);
        self.hosts.values_mut().for_each(|host| {
            host.is_isolated = false;
            host.failed.clear();
            host.machines.clear();
            host.functions.bound.clear();
        });
        for replica in &mut self.replicas {
            (replica.is_cut_off, replica.paused_until) = (false, Duration::ZERO);
        }
    }

    /// After a while without faults everything is as it should be.
    pub fn reach_rest(&mut self) {
        self.pass(Duration::from_secs(40));
        // What was made last may be changed or deleted a while later.
        while self.clients.iter().any(|client| client.attempt == 0) {
            self.pass(Duration::from_secs(20));
        }
        // Who asked at the very end has its answer a little later.
        if self.clients.iter().any(|client| !client.is_done) {
            self.pass(Duration::from_secs(20));
        }
        // Hosts do a little later what was acknowledged last, and many moves take their time.
        for _ in 0..MOVES_WAIT_MAX {
            let moved = self.counts.evacuated;
            self.pass(Duration::from_secs(10));
            if moved == self.counts.evacuated && !Book::moves(&self.records()) {
                break;
            }
        }
        assert!(self.clients.iter().all(|client| client.is_done), "somebody waits still");
        self.judge();
        let leaders = self.replicas.iter().filter(|of| of.replica.epoch().is_some());
        assert_eq!(leaders.count(), 1, "leaders");
        let mut served: BTreeMap<(FleetCard, DagName), u64> = BTreeMap::new();
        for (id, host) in &self.hosts {
            for (card, dags) in &host.served {
                let card = FleetCard { host: id.clone(), card: card.clone() };
                let dags = dags.iter();
                served.extend(dags.map(|(name, serial)| ((card.clone(), name.clone()), *serial)));
            }
            for (card, ledger) in &host.ledgers {
                assert_eq!(ledger.check(), Ok(()), "{id} {card}");
            }
        }
        let records = self.records();
        let policies = records.iter().find(|of| of.key == POLICIES).map(|of| {
            let record = Versioned::<PoliciesRecord>::parse(&of.key, &of.value);
            record.expect("policies").value().number
        });
        for (id, host) in &self.hosts {
            assert_eq!(host.policies, policies.unwrap_or_default(), "policies of {id}");
            // The longest ended long ago, though nobody has deleted any.
            assert!(host.functions.kept.is_empty(), "{id} keeps {:?}", host.functions.kept);
        }
        let is_reserved = records.iter().any(|of| of.key.starts_with("/snic/v1/reservations/"));
        assert!(!is_reserved, "a reservation does not end");
        self.counts.policies += policies.map_or(0, |_| 1);
        self.book.judge_quiet(&records, &served);
        self.counts.leveled = self.book.leveled();
    }

    fn records(&mut self) -> Vec<Record> {
        let prefix = "/snic/v1/".to_owned();
        let range = Request::Range { prefix, at: None, from: None, limit: 1_000_000 };
        match self.etcd.ask(self.now, &range) {
            Ok(Answer::Range { records, .. }) => records,
            other => panic!("{other:?}"),
        }
    }

    /// Has the book judge the content of etcd; a new leader could begin with it.
    fn judge(&mut self) {
        let records = self.records();
        self.book.judge(&records, FUNCTIONS);
        for of in &self.replicas {
            assert_eq!(of.replica.check(), Ok(()));
        }
        let mut other = Replica::new(self.settings);
        let (key, created) = (format!("{ELECTION}judge"), Revision(i64::MAX));
        let mut effects = other.handle(Timestamp::ZERO, FleetEvent::Elected { key, created });
        while let Some(FleetEffect::Etcd { number, request: request @ Request::Range { .. } }) =
            effects.pop()
        {
            let result = self.etcd.ask(self.now, &request);
            effects = other.handle(Timestamp::ZERO, FleetEvent::Etcd { number, result });
        }
        assert!(other.epoch().is_some(), "a new leader cannot begin: {effects:?}");
        assert_eq!(other.check(), Ok(()));
    }

    fn dags(&mut self) -> Vec<FleetDagRecord> {
        let dags = self.records().into_iter().filter(|of| of.key.starts_with("/snic/v1/dags/"));
        let parse = |of: Record| Versioned::<FleetDagRecord>::parse(&of.key, &of.value);
        dags.map(|of| parse(of).expect("a DAG").value().clone()).collect()
    }

    /// DAGs of a host that may move.
    pub fn free_dags_on(&mut self, id: &HostId) -> usize {
        let is_there = |dag: &FleetDagRecord| {
            !dag.is_pinned() && dag.place.as_ref().is_some_and(|place| place.card.host == *id)
        };
        self.dags().iter().filter(|dag| is_there(dag)).count()
    }

    pub fn fullest_host(&mut self) -> HostId {
        let ids: Vec<HostId> = self.hosts.keys().cloned().collect();
        let found = ids.into_iter().max_by_key(|id| self.free_dags_on(id));
        found.expect("there are hosts")
    }

    pub fn drain(&mut self, id: &HostId) {
        self.client(None, FleetCommand::DrainHost(id.clone(), true), Duration::ZERO);
    }
}
