//! What one leader answers, with the model of etcd and hosts that do as they are told.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::{Bandwidth, DagName, Quota, Tenant, TenantId, Timestamp};
use snic_etcd::model::EtcdModel;
use snic_etcd::{Answer, Operation, Record, Request, Revision, Transaction};
use snic_fleet::placement::{CardConstraints, CardPolicy, RankedHost};
use snic_fleet::protocol::{
    Denied, FleetAsk, FleetCall, FleetCommand, FleetEffect, FleetEvent, FleetReply, NewFleetDag,
};
use snic_fleet::records::FleetTenantRecord;
use snic_fleet::{AgentEffect, AgentEvent, FleetSettings, HostAgent, HostId, Replica};
use support::{bitstreams, catalogue, host, host_spec, name, profile, spec, tenant};

const KEY: &str = "/snic/v1/election/a";

/// A replica that leads, etcd, and hosts; each request is answered at once.
struct Fleet {
    replica: Replica,
    etcd: EtcdModel,
    agents: BTreeMap<HostId, HostAgent>,
    replies: BTreeMap<FleetCall, Result<FleetReply, Denied>>,
    calls: u64,
    orders: usize,
}

impl Fleet {
    /// Hosts with a card each, in two zones; tenants acme and beta with room for 10 DAGs.
    fn new(hosts: usize) -> Self {
        let mut etcd = EtcdModel::new();
        let (key, value, lease) = (KEY.to_owned(), vec![], None);
        let operations = vec![Operation::Put { key, value, lease }];
        let put = Request::Commit(Transaction { compares: vec![], operations });
        let answer = etcd.ask(Duration::ZERO, &put);
        let Ok(Answer::Committed(created)) = answer else { panic!("{answer:?}") };
        let replica = Replica::new(FleetSettings::default());
        let (agents, replies) = (BTreeMap::new(), BTreeMap::new());
        let mut fleet = Self { replica, etcd, agents, replies, calls: 0, orders: 0 };
        fleet.handle(FleetEvent::Elected { key: KEY.into(), created });
        for id in ["acme", "beta"] {
            let quota = Quota { dags_max: 10, ..Quota::default() };
            let (id, notes) = (tenant(id), Default::default());
            let tenant = Tenant { id, weight: 1, quota, notes };
            let record = FleetTenantRecord { tenant, project: None };
            fleet.operator(FleetCommand::PutTenant(record));
        }
        for nt in &catalogue().nt_types {
            fleet.operator(FleetCommand::PutNt(nt.clone()));
        }
        for of in bitstreams(catalogue()) {
            fleet.operator(FleetCommand::PutBitstream(of));
        }
        let sim = profile(catalogue(), "sim-16");
        for number in 0..hosts {
            let id = host(&format!("h{number}"));
            fleet.agents.insert(id.clone(), HostAgent::new(Default::default(), BTreeMap::new()));
            fleet.operator(FleetCommand::AddHost(id, host_spec(number % 2, number, &[&sim])));
        }
        fleet.beat();
        fleet.beat();
        fleet
    }

    fn beat(&mut self) {
        for id in self.agents.keys().cloned().collect::<Vec<_>>() {
            self.agent(&id, AgentEvent::BeatDue);
        }
    }

    fn agent(&mut self, id: &HostId, event: AgentEvent) {
        let effects = self.agents.get_mut(id).expect("a host").handle(event);
        for effect in effects {
            match effect {
                AgentEffect::Report(report) => {
                    self.handle(FleetEvent::Report { host: id.clone(), report });
                }
                AgentEffect::Serve { name, place, .. } => {
                    let (card, serial) = (place.card.card, place.serial);
                    self.agent(id, AgentEvent::Served { name, card, serial, result: Ok(()) });
                }
                AgentEffect::Remember(_) | AgentEffect::Stop { .. } => {}
            }
        }
    }

    fn handle(&mut self, event: FleetEvent) {
        for effect in self.replica.handle(Timestamp::from_nanos(1), event) {
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
                FleetEffect::Tell(_) => {}
                FleetEffect::StepDown => panic!("nobody else leads"),
            }
        }
        self.replica.check().expect("what follows from the records");
    }

    fn ask(&mut self, of: Option<&TenantId>, command: FleetCommand) -> Result<FleetReply, Denied> {
        self.calls += 1;
        let call = FleetCall(self.calls);
        let ask = FleetAsk { tenant: of.cloned(), id: None, command };
        self.handle(FleetEvent::Ask { call, ask });
        self.replies.remove(&call).expect("etcd answers at once")
    }

    fn operator(&mut self, command: FleetCommand) {
        self.ask(None, command).expect("it is allowed");
    }

    fn acme(&mut self, command: FleetCommand) -> Result<FleetReply, Denied> {
        self.ask(Some(&tenant("acme")), command)
    }

    fn records(&mut self) -> Vec<Record> {
        let (prefix, at, from, limit) = ("/snic/".to_owned(), None, None, 100_000);
        match self.etcd.ask(Duration::ZERO, &Request::Range { prefix, at, from, limit }) {
            Ok(Answer::Range { records, .. }) => records,
            other => panic!("{other:?}"),
        }
    }

    fn revision(&self) -> Revision {
        self.etcd.revision()
    }
}

fn new(of: &str, dag: &str, mbit: u64) -> NewFleetDag {
    let (constraints, policy) = (CardConstraints::default(), CardPolicy::Pack);
    NewFleetDag { name: name(of, dag), spec: spec(catalogue(), &[0, 1], mbit), constraints, policy }
}

fn find(dag: Option<(DagName, u64)>, policy: CardPolicy, most: usize) -> FleetCommand {
    let dag = dag.map(|(name, mbit)| (name, Box::new(spec(catalogue(), &[0, 1], mbit))));
    FleetCommand::FindHosts { constraints: CardConstraints::default(), policy, dag, most }
}

fn hosts(reply: Result<FleetReply, Denied>) -> Vec<RankedHost> {
    match reply {
        Ok(FleetReply::Hosts(hosts)) => hosts,
        other => panic!("{other:?}"),
    }
}

#[test]
fn dags_of_a_batch_share_a_transaction_and_are_apart_if_they_say_so() {
    let mut fleet = Fleet::new(3);
    let mut apart = new("acme", "b", 1_000);
    apart.spec.card_affinity.apart_from.insert(name("acme", "a"));
    let before = fleet.revision();
    let batch = vec![new("acme", "a", 1_000), apart, new("acme", "c", 1_000)];
    let placed = match fleet.acme(FleetCommand::CreateDags(batch)) {
        Ok(FleetReply::AllPlaced(cards)) => cards,
        other => panic!("{other:?}"),
    };
    assert_eq!(fleet.revision().0, before.0 + 1, "one transaction");
    assert!(placed.len() == 3 && placed[0] != placed[1], "{placed:?}");
    for (dag, card) in ["a", "b", "c"].into_iter().zip(placed) {
        match fleet.acme(FleetCommand::GetDag(name("acme", dag))) {
            Ok(FleetReply::Dag(dag)) => assert_eq!((dag.card, dag.is_ready), (Some(card), true)),
            other => panic!("{other:?}"),
        }
    }
}

/// Whatever is wrong with one of them, and whichever it is, nothing is different afterwards.
#[test]
fn a_batch_of_which_one_is_refused_changes_nothing() {
    let mut fleet = Fleet::new(2);
    fleet.acme(FleetCommand::CreateDag(new("acme", "old", 1_000))).expect("there is room");
    let mut nowhere = new("acme", "z", 1_000);
    nowhere.constraints.hosts.insert(host("elsewhere"));
    let invalid = NewFleetDag { spec: spec(catalogue(), &[], 1_000), ..new("acme", "z", 1_000) };
    let large = new("acme", "z", 200_000);
    let many: Vec<NewFleetDag> =
        (0..10).map(|number| new("acme", &format!("n{number}"), 10)).collect();
    let bad = [vec![nowhere], vec![invalid], vec![large], vec![new("acme", "old", 1_000)], many];
    let cards: Vec<_> = fleet
        .replica
        .inventory()
        .expect("it leads")
        .cards()
        .map(|(card, _)| card.clone())
        .collect();
    let ledgers = |fleet: &Fleet| {
        let inventory = fleet.replica.inventory().expect("it leads");
        cards.iter().map(|card| format!("{:?}", inventory.ledger(card))).collect::<Vec<_>>()
    };
    let before = (ledgers(&fleet), fleet.replica.usage(&tenant("acme")), fleet.orders);
    let stored = (fleet.revision(), fleet.records());
    for bad in bad {
        for at in 0..3 {
            let mut batch = vec![new("acme", "a", 3_000), new("acme", "b", 5_000)];
            let last = batch.split_off(at.min(batch.len()));
            let refused = bad.clone();
            batch.extend(refused);
            batch.extend(last);
            let denied =
                fleet.acme(FleetCommand::CreateDags(batch)).expect_err("one of them is bad");
            assert!(matches!(denied, Denied::OfBatch { .. }), "{denied}");
            let after = (ledgers(&fleet), fleet.replica.usage(&tenant("acme")), fleet.orders);
            assert_eq!(after, before, "{denied}");
            assert_eq!((fleet.revision(), fleet.records()), stored, "{denied}");
        }
    }
    for number in [0, 65] {
        let batch = (0..number).map(|at| new("acme", &format!("n{at}"), 10)).collect();
        let denied = fleet.acme(FleetCommand::CreateDags(batch)).expect_err("not so many");
        assert!(denied.to_string().contains("1 to 64 are allowed"), "{denied}");
    }
    let foreign = vec![new("acme", "a", 10), new("beta", "b", 10)];
    let denied = fleet.acme(FleetCommand::CreateDags(foreign)).expect_err("beta's");
    assert_eq!(denied, Denied::NotFound("tenants/beta/dags/b".into()));
    // And the hosts that were left alone serve what comes.
    fleet.acme(FleetCommand::CreateDags(vec![new("acme", "a", 3_000)])).expect("there is room");
    fleet.beat();
    fleet.beat();
    match fleet.acme(FleetCommand::GetDag(name("acme", "a"))) {
        Ok(FleetReply::Dag(dag)) => assert!(dag.is_ready),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hosts_are_ranked_by_the_policy_and_nothing_is_kept() {
    let mut fleet = Fleet::new(4);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 20_000))).expect("there is room");
    let (revision, orders) = (fleet.revision(), fleet.orders);
    let packed = hosts(fleet.acme(find(None, CardPolicy::Pack, 16)));
    let headroom = hosts(fleet.acme(find(None, CardPolicy::Headroom, 16)));
    assert_eq!((packed.len(), headroom.len()), (4, 4));
    assert_eq!(packed[0].card, headroom[3].card, "the one that has the DAG");
    assert!(packed[0].ingress_left < packed[1].ingress_left);
    let with = |mbit| Some((name("acme", "b"), mbit));
    let loads: Vec<usize> = hosts(fleet.acme(find(with(1_000), CardPolicy::Pack, 2)))
        .iter()
        .map(|of| of.loads)
        .collect();
    assert_eq!(loads, [0, 1], "the first has the NTs in a region");
    let large = Bandwidth::from_gbps(90);
    let roomy = hosts(fleet.acme(find(with(90_000), CardPolicy::Pack, 16)));
    assert!(roomy.len() == 3 && roomy.iter().all(|of| of.ingress_left > large), "{roomy:?}");
    let nobody = fleet.acme(find(with(500_000), CardPolicy::Pack, 1)).expect_err("no card has it");
    assert!(nobody.to_string().contains("none of 4 hosts has room"), "{nobody}");
    let taken = fleet.acme(find(Some((name("acme", "a"), 1)), CardPolicy::Pack, 1));
    assert_eq!(taken, Err(Denied::Exists("tenants/acme/dags/a".into())));
    let foreign = fleet.acme(find(Some((name("beta", "a"), 1)), CardPolicy::Pack, 1));
    assert_eq!(foreign, Err(Denied::NotFound("tenants/beta/dags/a".into())));
    for most in [0, 17] {
        let wrong = fleet.acme(find(None, CardPolicy::Pack, most)).expect_err("not so many");
        assert!(wrong.to_string().contains("1 to 16 are allowed"), "{wrong}");
    }
    assert_eq!((fleet.revision(), fleet.orders), (revision, orders), "it was a question");
}
