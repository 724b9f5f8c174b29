//! One leader with the model of etcd and hosts that do as they are told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{
    BitstreamId, DagAttachments, DagName, MonthBudget, Quota, Tenant, TenantId, Timestamp,
};
use snic_etcd::model::EtcdModel;
use snic_etcd::{Answer, Operation, Record, Request, Revision, Transaction};
use snic_fleet::placement::{CardConstraints, CardPolicy, HostSpec};
use snic_fleet::protocol::{
    Attachments, BoundCause, Denied, FleetAsk, FleetCall, FleetCommand, FleetDag, FleetEffect,
    FleetEvent, FleetItem, FleetName, FleetNotice, FleetReply, HostChoice, HostOrder, HostPolicies,
    HostReport, NewFleetDag, OrderKind, PolicyFiles, Provisions,
};
use snic_fleet::records::PlaceRecord;
use snic_fleet::{
    AgentEffect, AgentEvent, FleetCard, FleetSettings, HostAgent, HostId, KeptDag, Replica,
    ServeRefused,
};

use super::functions::HostFunctions;
use super::{bitstreams, card_id, catalogue, host, host_spec, name, profile, spec, tenant};

const KEY: &str = "/snic/v1/election/a";

/// A replica that leads, etcd, and hosts; each request is answered at once.
pub struct Fleet {
    /// Functions of each host, and whether hosts say how they are used.
    pub kept: BTreeMap<HostId, HostFunctions>,
    pub keeps: bool,
    pub replica: Replica,
    pub etcd: EtcdModel,
    pub agents: BTreeMap<HostId, HostAgent>,
    pub replies: BTreeMap<FleetCall, Result<FleetReply, Denied>>,
    pub calls: u64,
    pub orders: usize,
    /// Hosts fetch images.
    pub fetches: bool,
    /// Hosts carry out what they are to serve.
    pub serves: bool,
    pub later: Vec<(HostId, AgentEvent)>,
    /// This host changes nothing that it serves.
    pub refuses: Option<HostId>,
    /// These take nothing new.
    pub full: BTreeSet<HostId>,
    pub is_dry: bool,
    /// Weights of tenants that hosts were given.
    pub weights: BTreeMap<TenantId, u32>,
    /// Budgets of tenants as hosts have heard them.
    pub budgets: BTreeMap<TenantId, MonthBudget>,
    pub now: Duration,
    /// Numbers of bitstreams that hosts are to have.
    pub told: BTreeMap<BitstreamId, u64>,
    /// DAGs that moved, from where and to where.
    pub moved: Vec<(DagName, FleetCard, FleetCard)>,
    /// Whatever leads packets to DAGs, by host. Those that are not here do not say.
    pub attached: BTreeMap<HostId, Attachments>,
    /// Notices of DAGs that stay.
    pub bound: Vec<(DagName, BoundCause)>,
    choices: BTreeMap<u64, Box<HostChoice>>,
    /// Hosts that take policies, and which they have.
    pub policies: BTreeMap<HostId, HostPolicies>,
    /// Policy files that a host was sent last.
    pub policy_files: PolicyFiles,
}

impl Fleet {
    /// Hosts with a card each, in two zones; tenants acme and beta with room for 10 DAGs.
    pub fn new(hosts: usize) -> Self {
        Self::with(hosts, FleetSettings::default())
    }

    pub fn with(hosts: usize, settings: FleetSettings) -> Self {
        let mut etcd = EtcdModel::new();
        let (key, value, lease) = (KEY.to_owned(), vec![], None);
        let operations = vec![Operation::Put { key, value, lease }];
        let put = Request::Commit(Transaction { compares: vec![], operations });
        let answer = etcd.ask(Duration::ZERO, &put);
        let Ok(Answer::Committed(created)) = answer else { panic!("{answer:?}") };
        let replica = Replica::new(settings);
        let (agents, replies) = (BTreeMap::new(), BTreeMap::new());
        let (later, weights, budgets) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut fleet = Self {
            replica,
            etcd,
            agents,
            replies,
            calls: 0,
            orders: 0,
            fetches: true,
            serves: true,
            later,
            refuses: None,
            full: BTreeSet::new(),
            is_dry: false,
            weights,
            budgets,
            now: Duration::ZERO,
            told: BTreeMap::new(),
            moved: Vec::new(),
            kept: BTreeMap::new(),
            keeps: false,
            policies: BTreeMap::new(),
            policy_files: PolicyFiles::new(),
            attached: BTreeMap::new(),
            bound: Vec::new(),
            choices: BTreeMap::new(),
        };
        fleet.handle(FleetEvent::Elected { key: KEY.into(), created });
        for id in ["acme", "beta"] {
            let quota = Quota { dags_max: 10, ..Quota::default() };
            let (id, notes) = (tenant(id), Default::default());
            let tenant = Tenant { id, weight: 1, quota, notes, project: None };
            fleet.operator(FleetCommand::CreateTenant { tenant, project: None });
        }
        for nt in &catalogue().nt_types {
            fleet.operator(FleetCommand::CreateNt(nt.clone()));
        }
        for of in bitstreams(catalogue()) {
            fleet.operator(FleetCommand::CreateBitstream(of));
        }
        let sim = profile(catalogue(), "sim-16");
        for number in 0..hosts {
            fleet.add_host(&format!("h{number}"), host_spec(number % 2, number, &[&sim]));
        }
        fleet.beat();
        fleet.beat();
        fleet
    }

    /// A host, which is heard with the next two beats.
    pub fn add_host(&mut self, id: &str, spec: HostSpec) {
        let (id, epoch) = (host(id), Default::default());
        let agent = HostAgent::new(epoch, BTreeMap::new(), Default::default());
        self.agents.insert(id.clone(), agent);
        self.attached.insert(id.clone(), Attachments::new());
        self.operator(FleetCommand::CreateHost(id, spec));
    }

    /// The election ends, and it is elected again: it knows its records, and has heard nobody.
    pub fn elect_again(&mut self) {
        self.handle(FleetEvent::Deposed);
        let (key, value, lease) = (KEY.to_owned(), vec![], None);
        let mut commit = |operation| {
            let operations = vec![operation];
            let request = Request::Commit(Transaction { compares: vec![], operations });
            self.etcd.ask(Duration::ZERO, &request)
        };
        commit(Operation::Delete { key: KEY.into() }).expect("the key is there");
        let answer = commit(Operation::Put { key, value, lease });
        let Ok(Answer::Committed(created)) = answer else { panic!("{answer:?}") };
        self.handle(FleetEvent::Elected { key: KEY.into(), created });
    }

    pub fn beat(&mut self) {
        for id in self.agents.keys().cloned().collect::<Vec<_>>() {
            if self.keeps {
                let now = self.functions(&id);
                self.agent(&id, now);
            }
            if let Some(attached) = self.attached.get(&id).cloned() {
                self.agent(&id, AgentEvent::Attachments(attached));
            }
            self.agent(&id, AgentEvent::BeatDue);
        }
    }

    /// Use of a host's functions.
    fn functions(&self, id: &HostId) -> AgentEvent {
        let of = self.kept.get(id);
        AgentEvent::Functions(of.map(|of| of.report(self.now)).unwrap_or_default())
    }

    /// A tenant's machine is bound to functions of a host, if it may have them.
    pub fn bind_functions(&mut self, id: &HostId, of: &TenantId, functions: u32) -> bool {
        let now = self.now;
        self.kept.entry(id.clone()).or_default().bind(now, (&card_id(0), 64), of, functions)
    }

    /// Machines of a host are bound to a DAG, or no longer. The host says so with its next beat.
    pub fn bind(&mut self, id: &HostId, name: &DagName, machines: u32) {
        let of = self.attached.entry(id.clone()).or_default();
        match machines {
            0 => drop(of.remove(name)),
            _ => drop(of.insert(name.clone(), DagAttachments { machines, rules: 0 })),
        }
    }

    pub fn agent(&mut self, id: &HostId, event: AgentEvent) {
        // A host that is not linked hears nothing.
        let Some(agent) = self.agents.get_mut(id) else { return };
        for effect in agent.handle(event) {
            match effect {
                AgentEffect::Report(report) => {
                    self.handle(FleetEvent::Report { host: id.clone(), report });
                }
                AgentEffect::Serve { name, place, tenant, changes, .. } => {
                    self.weights.insert(tenant.of.id.clone(), tenant.of.weight);
                    self.budgets.insert(tenant.of.id.clone(), tenant.of.quota.month_budget);
                    let PlaceRecord { card, serial, mapping, reservation } = *place;
                    let card = card.card;
                    self.choices.insert(serial, Box::new(HostChoice { mapping, reservation }));
                    let reason = "no".to_owned();
                    let refused = ServeRefused { reason, faulty: Vec::new() };
                    let refuses = match changes {
                        Some(_) => self.refuses.as_ref() == Some(id),
                        None => self.full.contains(id),
                    };
                    let result = if refuses { Err(refused) } else { Ok(None) };
                    let served = AgentEvent::Served { name, card, serial, result };
                    self.later.push((id.clone(), served));
                    if self.serves {
                        self.serve_all();
                    }
                }
                AgentEffect::Provide { bitstreams, tenants, .. } => {
                    for of in tenants.into_iter().map(|of| of.of) {
                        self.weights.insert(of.id.clone(), of.weight);
                        self.budgets.insert(of.id, of.quota.month_budget);
                    }
                    let numbers = bitstreams.into_iter().map(|of| (of.of.id, of.number));
                    let numbers: BTreeMap<BitstreamId, u64> = numbers.collect();
                    self.told.extend(numbers.clone());
                    let bitstreams = if self.fetches { numbers } else { BTreeMap::new() };
                    let there = Provisions { bitstreams, ..Provisions::default() };
                    self.agent(id, AgentEvent::Provided(there));
                }
                AgentEffect::SetPolicies(files) => {
                    if let Some(said) = self.policies.get_mut(id) {
                        *said = HostPolicies { number: files.number, refused: None };
                        if files.of.contains_key("refused.toml") {
                            said.refused = Some("it has no such file".into());
                        }
                        let said = said.clone();
                        self.policy_files = files.of;
                        self.agent(id, AgentEvent::Policies(said));
                    }
                }
                AgentEffect::Stop { name, card, serial, if_detached: true } => {
                    let attached = self.attached.get(id).and_then(|of| of.get(&name));
                    let choice = self.choices.get(&serial).cloned();
                    let kept = attached.map(|of| KeptDag { choice, attachments: *of });
                    let result = kept.map_or(Ok(()), Err);
                    self.agent(id, AgentEvent::Stopped { name, card, serial, result });
                }
                AgentEffect::Keep(all) => {
                    self.kept.entry(id.clone()).or_default().keep(self.now, all);
                    let now = self.functions(id);
                    self.agent(id, now);
                }
                AgentEffect::Remember(_) | AgentEffect::Stop { .. } => {}
                AgentEffect::Withdraw(_) => {}
            }
        }
    }

    pub fn handle(&mut self, event: FleetEvent) {
        let now = Timestamp::ZERO + self.now;
        for effect in self.replica.handle(now, event) {
            match effect {
                FleetEffect::Etcd { number, request } => {
                    let result = self.etcd.ask(Duration::ZERO, &request);
                    self.handle(FleetEvent::Etcd { number, result });
                }
                FleetEffect::Reply { call, result } => {
                    self.replies.insert(call, result);
                }
                FleetEffect::Order { host, order } => {
                    self.orders += 1;
                    self.agent(&host, AgentEvent::Order(order));
                }
                FleetEffect::Tell(FleetNotice::DagMoved { name, from, to }) => {
                    self.moved.push((name, from, to));
                }
                FleetEffect::Tell(FleetNotice::DagBound { name, why, .. }) => {
                    self.bound.push((name, why));
                }
                FleetEffect::Tell(_) | FleetEffect::Watch(_) => {}
                FleetEffect::StepDown => panic!("nobody else leads"),
            }
        }
        self.replica.check().expect("what follows from the records");
    }

    /// Hosts have done what they were to serve.
    pub fn serve_all(&mut self) {
        for (host, served) in std::mem::take(&mut self.later) {
            self.agent(&host, served);
        }
    }

    /// Time passes, in which hosts live.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.beat();
        self.handle(FleetEvent::Tick);
    }

    /// An operator asks, and a tick follows, before hosts say anything new.
    pub fn handle_without_beats(&mut self, command: FleetCommand) {
        self.operator(command);
        self.now += Duration::from_secs(1);
        self.handle(FleetEvent::Tick);
    }

    /// An image has arrived at all hosts.
    pub fn arrive(&mut self, id: &BitstreamId) {
        for host in self.agents.keys().cloned().collect::<Vec<_>>() {
            let bitstreams = [(id.clone(), self.told[id])].into();
            let there = Provisions { bitstreams, ..Provisions::default() };
            self.agent(&host, AgentEvent::Provided(there));
        }
    }

    /// Number of DAGs that all hosts have, as they say.
    pub fn held(&mut self) -> usize {
        let mut count = 0;
        for agent in self.agents.values() {
            let mut agent = agent.clone();
            for card in [card_id(0)] {
                let (epoch, sequence) = (agent.epoch(), u64::MAX);
                let order = HostOrder { epoch, sequence, what: OrderKind::List(card) };
                for effect in agent.handle(AgentEvent::Order(order)) {
                    if let AgentEffect::Report(HostReport::Holds { dags, .. }) = effect {
                        count += dags.len();
                    }
                }
            }
        }
        count
    }

    /// Asks, whether it is answered at once or not.
    pub fn begin(&mut self, of: &TenantId, command: FleetCommand) -> FleetCall {
        self.calls += 1;
        let (call, tenant) = (FleetCall(self.calls), Some(of.clone()));
        let ask = FleetAsk { tenant, id: None, validate_only: false, command };
        self.handle(FleetEvent::Ask { call, ask });
        call
    }

    pub fn ask(
        &mut self,
        of: Option<&TenantId>,
        command: FleetCommand,
    ) -> Result<FleetReply, Denied> {
        self.calls += 1;
        let call = FleetCall(self.calls);
        let ask = FleetAsk { tenant: of.cloned(), id: None, validate_only: self.is_dry, command };
        self.handle(FleetEvent::Ask { call, ask });
        self.replies.remove(&call).expect("etcd answers at once")
    }

    pub fn operator(&mut self, command: FleetCommand) {
        self.ask(None, command).expect("it is allowed");
    }

    pub fn acme(&mut self, command: FleetCommand) -> Result<FleetReply, Denied> {
        self.ask(Some(&tenant("acme")), command)
    }

    pub fn dag(&mut self, dag: &str) -> FleetDag {
        match self.acme(FleetCommand::Get(FleetName::Dag(name("acme", dag)))) {
            Ok(FleetReply::Item(item)) => match *item {
                FleetItem::Dag(dag) => dag,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    pub fn records(&mut self) -> Vec<Record> {
        let (prefix, at, from, limit) = ("/snic/".to_owned(), None, None, 100_000);
        match self.etcd.ask(Duration::ZERO, &Request::Range { prefix, at, from, limit }) {
            Ok(Answer::Range { records, .. }) => records,
            other => panic!("{other:?}"),
        }
    }

    /// Budgets that are warned of, spent, and unknown, as metrics have them.
    pub fn budget_gauges(&self) -> [usize; 3] {
        let of = self.replica.gauges().expect("it leads");
        [of.budgets_warned, of.budgets_reached, of.budgets_unknown]
    }

    pub fn revision(&self) -> Revision {
        self.etcd.revision()
    }
}

pub fn new(of: &str, dag: &str, mbit: u64) -> NewFleetDag {
    let (constraints, policy) = (CardConstraints::default(), CardPolicy::Pack);
    NewFleetDag { name: name(of, dag), spec: spec(catalogue(), &[0, 1], mbit), constraints, policy }
}
