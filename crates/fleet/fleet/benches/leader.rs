//! Decisions of a leader in a second, with a model of etcd that answers at once: its own work, and nobody else's.

#[path = "../tests/support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use snic_domain::{Bandwidth, ByteSize, DagName, Quota, Tenant, Timestamp};
use snic_etcd::model::EtcdModel;
use snic_etcd::{Answer, Operation, Request, Transaction};
use snic_fleet::placement::{CardConstraints, CardPolicy};
use snic_fleet::protocol::{
    FleetAsk, FleetCall, FleetCommand, FleetEffect, FleetEvent, FleetName, FleetNotice, HostReport,
    NewFleetDag, Provisions, RequestId,
};
use snic_fleet::{AgentEffect, AgentEvent, FleetSettings, HostAgent, HostId, Replica};
use support::{bitstreams, catalogue, host, host_spec, name, profile, spec, tenant};

const HOSTS: usize = 1_000;
const CARDS_OF_A_HOST: usize = 10;
const CALLERS: usize = 64;
const KEY: &str = "/snic/v1/election/a";

struct Fleet {
    replica: Replica,
    etcd: EtcdModel,
    agents: BTreeMap<HostId, HostAgent>,
    calls: u64,
    /// Number of DAGs that have moved.
    moved: usize,
    now: Timestamp,
}

impl Fleet {
    fn new() -> Self {
        let mut etcd = EtcdModel::new();
        let (key, value, lease) = (KEY.to_owned(), vec![], None);
        let operations = vec![Operation::Put { key, value, lease }];
        let put = Request::Commit(Transaction { compares: vec![], operations });
        let Ok(Answer::Committed(created)) = etcd.ask(Duration::ZERO, &put) else {
            panic!("the model refuses a put")
        };
        let replica = Replica::new(FleetSettings::default());
        let (agents, now) = (BTreeMap::new(), Timestamp::from_nanos(1));
        let mut fleet = Self { replica, etcd, agents, calls: 0, moved: 0, now };
        fleet.handle(FleetEvent::Elected { key: KEY.into(), created });
        let quota = Quota {
            dags_max: 1_000_000,
            bandwidth_max: Bandwidth::from_gbps(1_000_000),
            memory_max: ByteSize::from_mib(100_000_000),
            ..Quota::default()
        };
        let (id, notes) = (tenant("acme"), Default::default());
        let tenant = Tenant { id, weight: 1, quota, notes, project: None };
        fleet.ask(FleetCommand::CreateTenant { tenant, project: None }, None);
        for nt in &catalogue().nt_types {
            fleet.ask(FleetCommand::CreateNt(nt.clone()), None);
        }
        let sim = profile(catalogue(), "sim-16");
        for of in bitstreams(catalogue()).into_iter().filter(|of| of.card_model == sim.model) {
            fleet.ask(FleetCommand::CreateBitstream(of), None);
        }
        for number in 0..HOSTS {
            let id = host(&format!("h{number}"));
            let agent = HostAgent::new(Default::default(), BTreeMap::new(), Provisions::default());
            fleet.agents.insert(id.clone(), agent);
            let spec = host_spec(number % 4, number / 40, &[&sim; CARDS_OF_A_HOST]);
            fleet.ask(FleetCommand::CreateHost(id, spec), None);
        }
        (0..3).for_each(|_| fleet.beat());
        fleet
    }

    fn handle(&mut self, event: FleetEvent) {
        for effect in self.replica.handle(self.now, event) {
            match effect {
                FleetEffect::Etcd { number, request } => {
                    let result = self.etcd.ask(Duration::ZERO, &request);
                    self.handle(FleetEvent::Etcd { number, result });
                }
                FleetEffect::Order { host, order } => {
                    self.agent(&host, AgentEvent::Order(order));
                }
                FleetEffect::Reply { result, .. } => drop(result.expect("there is room")),
                FleetEffect::Tell(FleetNotice::DagMoved { .. }) => self.moved += 1,
                _ => {}
            }
        }
    }

    fn agent(&mut self, id: &HostId, event: AgentEvent) {
        for effect in self.agents.get_mut(id).expect("a host").handle(event) {
            match effect {
                AgentEffect::Report(report) => {
                    self.handle(FleetEvent::Report { host: id.clone(), report });
                }
                AgentEffect::Serve { name, place, .. } => {
                    let (card, serial) = (place.card.card, place.serial);
                    self.agent(id, AgentEvent::Served { name, card, serial, result: Ok(None) });
                }
                AgentEffect::Provide { bitstreams, .. } => {
                    let bitstreams = bitstreams.into_iter().map(|of| (of.of.id, of.number));
                    let bitstreams = bitstreams.collect();
                    let there = Provisions { bitstreams, ..Provisions::default() };
                    self.agent(id, AgentEvent::Provided(there));
                }
                _ => {}
            }
        }
    }

    /// Creates 10,000 DAGs, which hosts serve.
    fn fill(&mut self, policy: CardPolicy) {
        for at in 0..10_000 {
            let constraints = CardConstraints::default();
            let (name, spec) = (name("acme", &format!("r{at}")), spec(catalogue(), &[0, 1], 1_000));
            let new = NewFleetDag { name, spec, constraints, policy };
            self.ask(FleetCommand::CreateDag(new), Some("acme"));
        }
        (0..3).for_each(|_| self.beat());
    }

    /// All hosts say that they live.
    fn beat(&mut self) {
        for id in self.agents.keys().cloned().collect::<Vec<_>>() {
            self.agent(&id, AgentEvent::BeatDue);
        }
    }

    fn beats(&mut self) -> Vec<(HostId, HostReport)> {
        let mut all = Vec::new();
        for (id, agent) in &mut self.agents {
            for effect in agent.handle(AgentEvent::BeatDue) {
                if let AgentEffect::Report(report) = effect {
                    all.push((id.clone(), report));
                }
            }
        }
        all
    }

    fn event(&mut self, command: FleetCommand, of: Option<&str>) -> FleetEvent {
        self.calls += 1;
        let (call, id) = (FleetCall(self.calls), Some(RequestId(self.calls)));
        let ask = FleetAsk { tenant: of.map(tenant), id, validate_only: false, command };
        FleetEvent::Ask { call, ask }
    }

    fn ask(&mut self, command: FleetCommand, of: Option<&str>) {
        let event = self.event(command, of);
        self.handle(event);
    }

    /// Requests of callers that wait for each other's transaction: the first has one of its own, the others share one.
    fn together(&mut self, commands: Vec<FleetCommand>) {
        let (mut waiting, mut late) = (None, Vec::new());
        for command in commands {
            let event = self.event(command, Some("acme"));
            for effect in self.replica.handle(self.now, event) {
                match effect {
                    FleetEffect::Etcd { number, request } => waiting = Some((number, request)),
                    other => late.push(other),
                }
            }
        }
        assert!(late.is_empty(), "nothing is seen before it is durable");
        if let Some((number, request)) = waiting {
            let result = self.etcd.ask(Duration::ZERO, &request);
            self.handle(FleetEvent::Etcd { number, result });
        }
    }
}

fn creates(c: &mut Criterion) {
    let mut fleet = Fleet::new();
    let mut number = 0;
    let mut group = c.benchmark_group("a leader with 10,000 cards");
    group.throughput(Throughput::Elements(CALLERS as u64));
    group.sample_size(20);
    group.bench_function("64 DAGs created and deleted, 64 callers", |b| {
        b.iter(|| {
            let names: Vec<DagName> =
                (0..CALLERS).map(|at| name("acme", &format!("d{}", number + at))).collect();
            number += CALLERS;
            let new = |name: &DagName| {
                let (constraints, policy) = (CardConstraints::default(), CardPolicy::Spread);
                let spec = spec(catalogue(), &[0, 1], 1_000);
                FleetCommand::CreateDag(NewFleetDag {
                    name: name.clone(),
                    spec,
                    constraints,
                    policy,
                })
            };
            fleet.together(names.iter().map(new).collect());
            let delete = |name: DagName| {
                let (name, etag, force) = (FleetName::Dag(name), None, false);
                FleetCommand::Delete { name, etag, force }
            };
            fleet.together(names.into_iter().map(delete).collect());
        });
    });
    fleet.fill(CardPolicy::Spread);
    group.throughput(Throughput::Elements(HOSTS as u64));
    let fleet = RefCell::new(fleet);
    group.bench_function("a beat of each of 1,000 hosts with 10,000 DAGs, and a tick", |b| {
        b.iter_batched(
            || fleet.borrow_mut().beats(),
            |beats| {
                let fleet = &mut *fleet.borrow_mut();
                let now = fleet.now;
                for (host, report) in beats {
                    let effects = fleet.replica.handle(now, FleetEvent::Report { host, report });
                    assert!(effects.is_empty(), "all is as it should be");
                }
                fleet.replica.handle(now, FleetEvent::Tick)
            },
            criterion::BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// Cards are filled one after the other, so that most are empty, and a rebalance moves DAGs until all are alike. Then it
/// finds nothing more to do, and is begun again.
fn rebalance(c: &mut Criterion) {
    let fleet = RefCell::new(Fleet::new());
    fleet.borrow_mut().fill(CardPolicy::Pack);
    let mut group = c.benchmark_group("a rebalance of 10,000 cards with 10,000 DAGs");
    group.sample_size(50);
    group.bench_function("a tick in which DAGs move", |b| {
        b.iter_batched(
            || {
                let fleet = &mut *fleet.borrow_mut();
                let (zone, moves_max, tolerance_percent) = (None, 1_000, 1);
                let command = FleetCommand::Rebalance { zone, moves_max, tolerance_percent };
                fleet.ask(command, None);
                fleet.now = fleet.now + Duration::from_millis(100);
                fleet.beat();
            },
            |()| {
                let fleet = &mut *fleet.borrow_mut();
                fleet.handle(FleetEvent::Tick);
            },
            criterion::BatchSize::PerIteration,
        );
    });
    group.finish();
    println!("{} DAGs have another place", fleet.borrow().moved);
}

criterion_group!(benches, creates, rebalance);
criterion_main!(benches);
