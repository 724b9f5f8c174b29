//! A host: the agent, and a controller that decides on ledgers of its own.

use std::collections::BTreeMap;

use snic_domain::{CardId, DagName};
use snic_fleet::placement::HostSpec;
use snic_fleet::protocol::{Epoch, HostReport};
use snic_fleet::records::PlaceRecord;
use snic_fleet::{AgentEffect, AgentEvent, HostAgent};
use snic_planner::{Ledger, PlanCatalogue};

/// What survives a crash is what the controller has stored.
pub struct SimHost {
    pub agent: HostAgent,
    pub ledgers: BTreeMap<CardId, Ledger>,
    /// By card, DAG and serial, as stored.
    pub served: BTreeMap<CardId, BTreeMap<DagName, u64>>,
    pub epoch: Epoch,
    pub is_isolated: bool,
}

impl SimHost {
    pub fn new(spec: &HostSpec) -> Self {
        let ledgers = spec.cards.iter();
        let ledgers = ledgers
            .map(|(card, of)| (card.clone(), Ledger::new(card.clone(), of.profile.clone())))
            .collect();
        let (epoch, served) = (Epoch::default(), BTreeMap::new());
        let agent = HostAgent::new(epoch, BTreeMap::new());
        Self { agent, ledgers, served, epoch, is_isolated: false }
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
        self.agent = HostAgent::new(self.epoch, self.served.clone());
    }

    /// Gives reports, and DAGs that the controller begins to serve.
    pub fn event(&mut self, event: AgentEvent) -> (Vec<HostReport>, Vec<(DagName, PlaceRecord)>) {
        let (mut reports, mut begun) = (Vec::new(), Vec::new());
        for effect in self.agent.handle(event) {
            match effect {
                AgentEffect::Remember(epoch) => {
                    assert!(epoch > self.epoch, "epochs rise: {epoch:?} after {:?}", self.epoch);
                    self.epoch = epoch;
                }
                AgentEffect::Report(report) => reports.push(report),
                AgentEffect::Serve { name, place, .. } => begun.push((name, *place)),
                AgentEffect::Stop { name, card } => {
                    self.served.entry(card.clone()).or_default().remove(&name);
                    self.ledgers.get_mut(&card).expect("a card of the host").release(&name);
                }
            }
        }
        (reports, begun)
    }

    /// The controller decides: what the ledger refuses is refused.
    pub fn carry_out(
        &mut self,
        name: &DagName,
        place: &PlaceRecord,
        catalogue: &PlanCatalogue,
    ) -> Result<(), String> {
        let card = &place.card.card;
        let ledger = self.ledgers.get_mut(card).expect("a card of the host");
        for load in place.loads() {
            if ledger.content(load.region).is_some_and(|now| now.id == load.bitstream) {
                continue;
            }
            let bitstream = catalogue.bitstream(&load.bitstream).expect("it is registered");
            let set = ledger.set_content(load.region, Some(bitstream), catalogue);
            set.map_err(|wrong| wrong.to_string())?;
        }
        ledger.hold(name, place.reservation.clone()).map_err(|wrong| wrong.to_string())?;
        self.served.entry(card.clone()).or_default().insert(name.clone(), place.serial);
        Ok(())
    }
}
