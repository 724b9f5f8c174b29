//! A host: the agent, and a controller that decides on ledgers of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use snic_domain::{BitstreamId, CardId, DagAttachments, DagName, KeptForTenant};
use snic_fleet::placement::HostSpec;
use snic_fleet::protocol::{
    Attachments, CardFaults, Epoch, HostChoice, HostPolicies, HostReport, Provisions,
};
use snic_fleet::records::PlaceRecord;
use snic_fleet::{AgentEffect, AgentEvent, HostAgent, KeptDag, ServeRefused};
use snic_planner::{Ledger, PlanCatalogue};

use crate::support::functions::HostFunctions;

/// Work that an event has begun at a host.
#[derive(Default)]
pub struct Begun {
    pub reports: Vec<HostReport>,
    /// DAGs that the controller begins to serve.
    pub served: Vec<(DagName, PlaceRecord)>,
    /// Images that are fetched.
    pub fetched: Vec<(BitstreamId, u64)>,
    /// DAGs that went although machines were bound to them.
    pub cut_off: Vec<DagName>,
    /// DAGs that stayed, because machines had been bound to them meanwhile.
    pub kept: u64,
    /// Reservations that it is to keep.
    pub kept_orders: Vec<KeptForTenant>,
}

/// A host. Only what its controller has stored survives a crash.
pub struct SimHost {
    pub agent: HostAgent,
    pub ledgers: BTreeMap<CardId, Ledger>,
    /// Stored serials by card and DAG.
    pub served: BTreeMap<CardId, BTreeMap<DagName, u64>>,
    pub epoch: Epoch,
    /// NT types, tenants and bitstreams with their images, as stored.
    pub provided: Provisions,
    /// Number of the policies that are in force, as stored.
    pub policies: u64,
    /// Its disk is full for the next ones.
    pub policies_fail: bool,
    pub is_isolated: bool,
    /// Its functions, as stored.
    pub functions: HostFunctions,
    /// Time, so far as it knows.
    pub now: Duration,
    /// Number of machines that are bound to each DAG, as stored.
    pub machines: BTreeMap<DagName, u32>,
    choices: BTreeMap<u64, HostChoice>,
    /// Cards that do not answer.
    pub failed: BTreeSet<CardId>,
}

impl SimHost {
    pub fn new(spec: &HostSpec) -> Self {
        let ledgers = spec.cards.iter();
        let ledgers = ledgers
            .map(|(card, of)| (card.clone(), Ledger::new(card.clone(), of.profile.clone())))
            .collect();
        let (epoch, served, provided) = (Epoch::default(), BTreeMap::new(), Provisions::default());
        let agent = HostAgent::new(epoch, BTreeMap::new(), Provisions::default());
        let (is_isolated, failed) = (false, BTreeSet::new());
        let (policies, policies_fail) = (0, false);
        Self {
            agent,
            ledgers,
            served,
            epoch,
            provided,
            policies,
            policies_fail,
            is_isolated,
            functions: HostFunctions::default(),
            now: Duration::ZERO,
            machines: BTreeMap::new(),
            choices: BTreeMap::new(),
            failed,
        }
    }

    /// Faults that keep its cards from taking anything.
    pub fn faults(&self) -> AgentEvent {
        let gone = CardFaults { is_gone: true, ..CardFaults::default() };
        AgentEvent::Faults(self.failed.iter().map(|card| (card.clone(), gone.clone())).collect())
    }

    /// A card fails: its controller forgets what the card served, and says so.
    pub fn fail(&mut self, card: &CardId) -> Vec<AgentEvent> {
        if !self.failed.insert(card.clone()) {
            return Vec::new();
        }
        let ledger = self.ledgers.get_mut(card).expect("a card of the host");
        let machines = &self.machines;
        let served = self.served.entry(card.clone()).or_default();
        // What machines are bound to waits for the card.
        let lost: Vec<(DagName, u64)> =
            served.extract_if(.., |name, _| !machines.contains_key(name)).collect();
        let lost = lost.into_iter().map(|(name, serial)| {
            ledger.release(&name);
            let why = ServeRefused { reason: "its card fails".to_owned(), faulty: Vec::new() };
            AgentEvent::Lost { name, card: card.clone(), serial, why }
        });
        let lost: Vec<AgentEvent> = lost.collect();
        std::iter::once(self.faults()).chain(lost).collect()
    }

    /// The agent forgets what it did not store; what the controller was doing is lost.
    pub fn crash(&mut self) {
        for (card, ledger) in &mut self.ledgers {
            let held: Vec<DagName> = ledger.reservations().map(|(name, _)| name.clone()).collect();
            let served = self.served.get(card);
            for name in held {
                if served.is_none_or(|served| !served.contains_key(&name)) {
                    ledger.release(&name);
                }
            }
        }
        self.agent = HostAgent::new(self.epoch, self.served.clone(), self.provided.clone());
    }

    /// Whatever leads packets to its DAGs.
    pub fn attachments(&self) -> AgentEvent {
        let of = |(name, machines): (&DagName, &u32)| {
            (name.clone(), DagAttachments { machines: *machines, rules: 0 })
        };
        AgentEvent::Attachments(self.machines.iter().map(of).collect::<Attachments>())
    }

    /// Use of its functions.
    pub fn functions(&self) -> AgentEvent {
        AgentEvent::Functions(self.functions.report(self.now))
    }

    /// Policies in force.
    pub fn policies(&self) -> AgentEvent {
        AgentEvent::Policies(HostPolicies { number: self.policies, refused: None })
    }

    /// Work that the agent has others do.
    pub fn event(&mut self, event: AgentEvent) -> Begun {
        let mut begun = Begun::default();
        let mut effects = VecDeque::from(self.agent.handle(event));
        while let Some(effect) = effects.pop_front() {
            match effect {
                AgentEffect::Remember(epoch) => {
                    assert!(epoch > self.epoch, "epochs rise: {epoch:?} after {:?}", self.epoch);
                    self.epoch = epoch;
                }
                AgentEffect::Report(report) => begun.reports.push(report),
                AgentEffect::Serve { name, place, tenant, .. } => {
                    self.provided.tenants.insert(tenant.of.id.clone(), tenant.number);
                    begun.served.push((name, *place));
                }
                AgentEffect::Stop { name, card, serial, if_detached } => {
                    let is_attached = self.machines.contains_key(&name);
                    if if_detached && is_attached {
                        begun.kept += 1;
                        let choice = self.choices.get(&serial).cloned().map(Box::new);
                        let machines = self.machines.get(&name).copied().unwrap_or_default();
                        let attachments = DagAttachments { machines, rules: 0 };
                        let result = Err(KeptDag { choice, attachments });
                        let kept = AgentEvent::Stopped { name, card, serial, result };
                        effects.extend(self.agent.handle(kept));
                        continue;
                    }
                    let was_served = self.served.entry(card.clone()).or_default().remove(&name);
                    self.ledgers.get_mut(&card).expect("a card of the host").release(&name);
                    let is_elsewhere = self.served.values().any(|dags| dags.contains_key(&name));
                    if was_served.is_some()
                        && !is_elsewhere
                        && self.machines.remove(&name).is_some()
                    {
                        begun.cut_off.push(name.clone());
                    }
                    if if_detached {
                        let gone = AgentEvent::Stopped { name, card, serial, result: Ok(()) };
                        effects.extend(self.agent.handle(gone));
                    }
                }
                AgentEffect::Provide { nts, bitstreams, tenants } => {
                    self.provided.nts.extend(nts.into_iter().map(|of| (of.of.id, of.number)));
                    let tenants = tenants.into_iter().map(|of| (of.of.id, of.number));
                    self.provided.tenants.extend(tenants);
                    begun.fetched.extend(bitstreams.into_iter().map(|of| (of.of.id, of.number)));
                }
                AgentEffect::SetPolicies(files) => {
                    if !std::mem::take(&mut self.policies_fail) {
                        assert!(files.number >= self.policies, "older policies replace later ones");
                        self.policies = files.number;
                        effects.extend(self.agent.handle(self.policies()));
                    }
                }
                AgentEffect::Keep(all) => {
                    begun.kept_orders.extend(all.iter().cloned());
                    self.functions.keep(self.now, all);
                    effects.extend(self.agent.handle(self.functions()));
                }
                AgentEffect::Withdraw(gone) => {
                    self.provided.nts.retain(|id, of| gone.nts.get(id) != Some(of));
                    self.provided.tenants.retain(|id, of| gone.tenants.get(id) != Some(of));
                    self.provided.bitstreams.retain(|id, of| gone.bitstreams.get(id) != Some(of));
                }
            }
        }
        begun
    }

    /// The controller decides: what the ledger refuses is refused.
    pub fn carry_out(
        &mut self,
        name: &DagName,
        place: &PlaceRecord,
        catalogue: &PlanCatalogue,
    ) -> Result<(), String> {
        let card = &place.card.card;
        let serves = self.served.get(card).and_then(|dags| dags.get(name));
        if serves.is_some_and(|serial| *serial > place.serial) {
            return Ok(());
        }
        if self.failed.contains(card) {
            return Err("its card does not answer".to_owned());
        }
        let ledger = self.ledgers.get_mut(card).expect("a card of the host");
        for load in place.loads() {
            if ledger.content(load.region).is_some_and(|now| now.id == load.bitstream) {
                continue;
            }
            let bitstream = catalogue.bitstream(&load.bitstream).expect("it is registered");
            let is_there = self.provided.bitstreams.contains_key(&load.bitstream);
            assert!(is_there, "{name} is placed on {card} before {} is there", load.bitstream);
            let set = ledger.set_content(load.region, Some(bitstream), catalogue);
            set.map_err(|wrong| wrong.to_string())?;
        }
        ledger.hold(name, place.reservation.clone()).map_err(|wrong| wrong.to_string())?;
        let (mapping, reservation) = (place.mapping.clone(), place.reservation.clone());
        self.choices.insert(place.serial, HostChoice { mapping, reservation });
        self.served.entry(card.clone()).or_default().insert(name.clone(), place.serial);
        Ok(())
    }
}
