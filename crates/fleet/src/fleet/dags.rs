//! DAGs: created, deleted, placed again.

use std::collections::BTreeMap;

use snic_domain::{Dag, DagName, DagSpec};
use snic_planner::Ledger;

use super::{DagEntry, Fleet};
use crate::FleetCard;
use crate::journal::FleetStep;
use crate::placement::{CardConstraints, CardPolicy, DagChoice, PlaceDag, PlacementRefused};
use crate::protocol::{
    BATCH_DAGS_MAX, Denied, FleetDag, FleetEffect, FleetNotice, FleetReply, NewFleetDag,
};
use crate::records::{FleetDagRecord, PlaceRecord, Unplaced, Versioned, dag_key};

/// Most hosts that may refuse a DAG before it has failed.
const REFUSALS_MAX: usize = 3;

/// A DAG that can be placed.
pub(super) fn valid(spec: &DagSpec) -> Result<Dag, Denied> {
    Dag::new(spec.clone()).map_err(|wrong| Denied::Invalid(wrong.to_string()))
}

impl Fleet {
    pub(super) fn create_dag(
        &mut self,
        new: NewFleetDag,
        step: &mut FleetStep,
    ) -> Result<FleetCard, Denied> {
        let (record, dag, choice) = self.admit_dag(new)?;
        Ok(self.begin_dag(record, dag, choice, step))
    }

    /// Creates all of them, each as things are with those before it, or none.
    pub(super) fn create_dags(
        &mut self,
        all: Vec<NewFleetDag>,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if all.is_empty() || all.len() > BATCH_DAGS_MAX {
            let wrong = format!("{} DAGs; 1 to {BATCH_DAGS_MAX} are allowed", all.len());
            return Err(Denied::Invalid(wrong));
        }
        let mut done = FleetStep::default();
        let (mut names, mut cards, mut before) = (Vec::new(), Vec::new(), BTreeMap::new());
        for new in all {
            let name = new.name.clone();
            match self.admit_dag(new) {
                Ok((record, dag, choice)) => {
                    let ledger = self.inventory.ledger(&choice.card);
                    let ledger = ledger.expect("a card that was chosen").clone();
                    before.entry(choice.card.clone()).or_insert(ledger);
                    names.push(name);
                    cards.push(self.begin_dag(record, dag, choice, &mut done));
                }
                Err(why) => {
                    self.take_back(&names, before);
                    return Err(Denied::OfBatch { name, why: Box::new(why) });
                }
            }
        }
        step.append(done);
        Ok(FleetReply::AllPlaced(cards))
    }

    /// Forgets DAGs of a request that is refused; nothing of them was stored or ordered.
    fn take_back(&mut self, names: &[DagName], before: BTreeMap<FleetCard, Ledger>) {
        let mut forgotten = FleetStep::default();
        for name in names {
            self.delete_dag(name, &mut forgotten).expect("it was created just now");
        }
        // Regions were to be loaded for them as well.
        for (card, ledger) in before {
            self.inventory.restore_ledger(&card, ledger);
        }
    }

    pub(super) fn check_is_new(&self, name: &DagName) -> Result<(), Denied> {
        if self.dags.contains_key(name) {
            return Err(Denied::Exists(name.to_string()));
        }
        Ok(())
    }

    /// A place for a new DAG, if it may be created; changes nothing.
    fn admit_dag(&self, new: NewFleetDag) -> Result<(FleetDagRecord, Dag, DagChoice), Denied> {
        let NewFleetDag { name, spec, constraints, policy } = new;
        self.check_is_new(&name)?;
        let dag = valid(&spec)?;
        self.tenants.admit(&name.tenant, self.usage_of(&dag))?;
        let (place, unplaced, leaving, refusals) = (None, None, None, Vec::new());
        let record =
            FleetDagRecord { name, spec, constraints, policy, place, unplaced, leaving, refusals };
        let choice = self.choose(&record, &dag).map_err(Denied::NoPlace)?;
        Ok((record, dag, choice))
    }

    fn begin_dag(
        &mut self,
        record: FleetDagRecord,
        dag: Dag,
        choice: DagChoice,
        step: &mut FleetStep,
    ) -> FleetCard {
        let (name, card, usage) = (record.name.clone(), choice.card.clone(), self.usage_of(&dag));
        self.tenants.take(&name.tenant, usage);
        let record = Versioned::new(record);
        self.dags.insert(name.clone(), DagEntry { record, dag, usage, is_ready: false });
        self.settle(&name, choice, None, step);
        card
    }

    pub(super) fn delete_dag(
        &mut self,
        name: &DagName,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let entry = self.dags.remove(name).ok_or_else(|| Denied::NotFound(name.to_string()))?;
        self.tenants.give_back(&name.tenant, entry.usage);
        self.inventory.release(name);
        self.waiting.remove(name);
        step.delete(dag_key(name));
        let place = entry.of().place.as_ref().map(|place| (&place.card, place.serial));
        let leaving = entry.of().leaving.as_ref().map(|(card, serial)| (card, *serial));
        for place in place.into_iter().chain(leaving) {
            self.order_remove(name, place, step);
        }
        Ok(FleetReply::Done)
    }

    pub(super) fn get_dag(&self, name: &DagName) -> Result<FleetReply, Denied> {
        let entry = self.dags.get(name).ok_or_else(|| Denied::NotFound(name.to_string()))?;
        Ok(FleetReply::Dag(FleetDag {
            card: entry.of().place.as_ref().map(|place| place.card.clone()),
            unplaced: entry.of().unplaced.clone(),
            is_ready: entry.is_ready,
        }))
    }

    /// A card for a DAG as things are.
    pub(super) fn choose(
        &self,
        record: &FleetDagRecord,
        dag: &Dag,
    ) -> Result<DagChoice, Box<PlacementRefused>> {
        let mut constraints = record.constraints_now();
        self.add_affinities(&record.name, &record.spec, &mut constraints);
        let (name, policy): (_, CardPolicy) = (&record.name, record.policy);
        self.inventory.place(&PlaceDag { name, dag, constraints: &constraints, policy })
    }

    /// What the DAG and others of its tenant say of each other. Preferences are not looked at.
    pub(super) fn add_affinities(
        &self,
        name: &DagName,
        spec: &DagSpec,
        constraints: &mut CardConstraints,
    ) {
        let of_tenant = self.dags.range(name.clone()..).chain(self.dags.range(..name.clone()));
        for (other, entry) in of_tenant.filter(|(other, _)| other.tenant == name.tenant) {
            let Some(card) = self.inventory.card_of(other).filter(|_| other != name) else {
                continue;
            };
            let theirs = &entry.of().spec.card_affinity;
            let own = &spec.card_affinity;
            let is_apart = !own.preferred && own.apart_from.contains(other)
                || !theirs.preferred && theirs.apart_from.contains(name);
            if is_apart {
                constraints.apart_from_cards.insert(card.clone());
            }
            if !own.preferred && own.together_with.contains(other) {
                // Two that are on different cards leave none.
                let others = constraints.cards.iter().filter(|of| *of != card).cloned();
                constraints.apart_from_cards.extend(others.collect::<Vec<_>>());
                if !constraints.cards.is_empty() && !constraints.cards.contains(card) {
                    constraints.apart_from_cards.insert(card.clone());
                }
                constraints.cards.insert(card.clone());
            }
        }
    }

    /// Gives a DAG its place, in the ledgers and in its record, and orders it. `leaving` serves it until then.
    pub(super) fn settle(
        &mut self,
        name: &DagName,
        choice: DagChoice,
        leaving: Option<(FleetCard, u64)>,
        step: &mut FleetStep,
    ) {
        let serial = self.journal.next_serial();
        let DagChoice { card, plan } = choice;
        let leaving = leaving.filter(|(old, _)| *old != card);
        self.inventory.release(name);
        self.inventory
            .hold(&card, name, &plan.loads, plan.reservation.clone())
            .expect("the plan was made on this ledger");
        let entry = self.dags.get_mut(name).expect("a DAG that is placed exists");
        let (mapping, reservation) = (plan.mapping, plan.reservation);
        let record = entry.record.value_mut();
        record.place = Some(PlaceRecord { card: card.clone(), serial, mapping, reservation });
        (record.unplaced, record.leaving) = (None, leaving);
        entry.is_ready = false;
        step.put(dag_key(name), entry.record.bytes());
        self.waiting.remove(name);
        self.desire(&card, name, serial);
        self.order_put(name, step);
    }

    /// Its host serves it.
    pub(super) fn dag_applied(&mut self, name: &DagName, serial: u64, step: &mut FleetStep) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        if entry.of().place.as_ref().is_none_or(|place| place.serial != serial) {
            return;
        }
        entry.is_ready = true;
        let record = entry.record.value_mut();
        let leaving = record.leaving.take();
        let had_refusals = !std::mem::take(&mut record.refusals).is_empty();
        if leaving.is_some() || had_refusals {
            step.put(dag_key(name), entry.record.bytes());
        }
        if let Some((card, serial)) = leaving {
            self.order_remove(name, (&card, serial), step);
        }
    }

    /// Its host cannot serve it: another one is tried, a few times.
    pub(super) fn dag_refused(
        &mut self,
        name: &DagName,
        serial: u64,
        reason: String,
        step: &mut FleetStep,
    ) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let record = entry.record.value_mut();
        let Some(place) = record.place.take_if(|place| place.serial == serial) else { return };
        entry.is_ready = false;
        record.refusals.push((place.card.clone(), reason));
        if let Some(host) = self.hosts.get_mut(&place.card.host) {
            host.desire_no_more(&place.card.card, name, serial);
        }
        self.inventory.release(name);
        let reasons: Vec<String> =
            record.refusals.iter().map(|(card, why)| format!("{card}: {why}")).collect();
        if reasons.len() >= REFUSALS_MAX {
            self.unplace(name, Unplaced::Failed(reasons), step);
        } else {
            self.place_again(name, step);
        }
    }

    /// A place for a DAG that has none; without one it waits.
    pub(super) fn place_again(&mut self, name: &DagName, step: &mut FleetStep) {
        let Some(entry) = self.dags.get(name) else { return };
        let leaving = entry.of().leaving.clone();
        match self.choose(entry.of(), &entry.dag) {
            Ok(choice) => self.settle(name, choice, leaving, step),
            Err(refused) => self.unplace(name, Unplaced::Waits(refused.to_string()), step),
        }
    }

    fn unplace(&mut self, name: &DagName, why: Unplaced, step: &mut FleetStep) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let waits = matches!(why, Unplaced::Waits(_));
        let is_new = entry
            .of()
            .unplaced
            .as_ref()
            .is_none_or(|old| waits != matches!(old, Unplaced::Waits(_)));
        if waits {
            self.waiting.insert(name.clone());
        }
        if is_new {
            entry.record.value_mut().unplaced = Some(why.clone());
            step.put(dag_key(name), entry.record.bytes());
            step.then(FleetEffect::Tell(FleetNotice::DagUnplaced { name: name.clone(), why }));
        }
    }
}
