//! DAGs: created, deleted, placed again.

use std::collections::BTreeMap;

use snic_domain::{Bandwidth, Dag, DagName, DagPatch, DagSpec, Notes, TenantId};
use snic_planner::{Ledger, Reservation};

use super::affinities::check_named;
use super::{DagEntry, Fleet, RequestContext};
use crate::hosts::{DagMobility, HostState};
use crate::journal::FleetStep;
use crate::placement::{CardPolicy, DagChoice, PlaceDag, PlacementRefused};
use crate::protocol::{
    BATCH_DAGS_MAX, Denied, FleetDag, FleetEffect, FleetName, FleetNotice, FleetReply, FleetUsage,
    HostChoice, NewFleetDag, PlacedDag,
};
use crate::records::{FleetDagRecord, PlaceRecord, RecordMeta, Unplaced, Versioned, dag_key};
use crate::{FleetCard, HostId};

/// Most hosts that may refuse a DAG before it has failed.
const REFUSALS_MAX: usize = 3;
/// Cards that a DAG remembers to have been refused by, once it has gone back to the one that served it.
const REFUSALS_KEPT_MAX: usize = 16;

/// A DAG that can be placed.
pub(super) fn valid(tenant: &TenantId, spec: &DagSpec) -> Result<Dag, Denied> {
    if let Some((list, dag)) = spec.card_affinity.strangers(tenant).next() {
        let wrong = format!(
            "card_affinity.{list}: {dag} is not of tenants/{tenant}; name DAGs of the same tenant"
        );
        return Err(Denied::Invalid(wrong));
    }
    Dag::new(spec.clone()).map_err(|wrong| Denied::Invalid(wrong.to_string()))
}

/// Server of a DAG until its new place serves it.
#[derive(Debug, Default)]
pub(super) struct PreviousServer {
    pub leaving: Option<(FleetCard, u64)>,
    /// The same card, with this serial.
    pub changes: Option<u64>,
}

impl Fleet {
    pub(super) fn create_dag(
        &mut self,
        turn: &RequestContext,
        new: NewFleetDag,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let (record, dag, choice) = self.admit_dag(turn, new)?;
        if turn.is_dry {
            let (card, meta) = (Some(choice.card), record.meta);
            let placed = PlacedDag { card, place: None, generation: record.generation, meta };
            return Ok(FleetReply::Placed(placed));
        }
        Ok(FleetReply::Placed(self.begin_dag(record, dag, choice, step)))
    }

    /// Creates all of them, each as things are with those before it, or none.
    pub(super) fn create_dags(
        &mut self,
        turn: &RequestContext,
        all: Vec<NewFleetDag>,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if all.is_empty() || all.len() > BATCH_DAGS_MAX {
            let wrong = format!("{} DAGs; 1 to {BATCH_DAGS_MAX} are allowed", all.len());
            return Err(Denied::Invalid(wrong));
        }
        let mut done = FleetStep::default();
        let (mut names, mut placed, mut before) = (Vec::new(), Vec::new(), BTreeMap::new());
        for new in all {
            let name = new.name.clone();
            match self.admit_dag(turn, new) {
                Ok((record, dag, choice)) => {
                    let card = choice.card.clone();
                    let ledger = self.inventory.ledger(&card).expect("a card that was chosen");
                    let sent = self.host(&card.host).map_or(0, |host| host.sent());
                    before.entry(card).or_insert((ledger.clone(), sent));
                    names.push(name);
                    placed.push(self.begin_dag(record, dag, choice, &mut done));
                }
                Err(why) => {
                    self.take_back(&names, before);
                    return Err(Denied::OfBatch { name, why: Box::new(why) });
                }
            }
        }
        // The record of the request holds the places once more.
        let reply = FleetReply::AllPlaced(placed.clone());
        let bytes = serde_json::to_vec(&reply).map_or(0, |json| json.len());
        if !done.fits_with(bytes) {
            self.take_back(&names, before);
            let wrong = format!(
                "{} DAGs do not fit one change of the records; create fewer at once",
                names.len()
            );
            return Err(Denied::Invalid(wrong));
        }
        if turn.is_dry {
            self.take_back(&names, before);
            placed.iter_mut().for_each(|of| of.place = None);
        } else {
            step.append(done);
        }
        Ok(FleetReply::AllPlaced(placed))
    }

    /// Forgets DAGs of a request that is refused; nothing of them was stored or ordered.
    fn take_back(&mut self, names: &[DagName], before: BTreeMap<FleetCard, (Ledger, u64)>) {
        let mut forgotten = FleetStep::default();
        names.iter().for_each(|name| self.remove_dag(name, &mut forgotten));
        let mut hosts: BTreeMap<HostId, u64> = BTreeMap::new();
        for (card, (ledger, sent)) in before {
            // Regions were to be loaded for them as well.
            self.inventory.restore_ledger(&card, ledger);
            let of = hosts.entry(card.host).or_insert(sent);
            *of = sent.min(*of);
        }
        for (host, sent) in hosts {
            if let Some(host) = self.hosts.get_mut(&host) {
                host.take_back_orders(sent);
            }
        }
    }

    pub(super) fn check_is_new(&self, name: &DagName) -> Result<(), Denied> {
        if self.dags.contains_key(name) {
            return Err(Denied::Exists(name.to_string()));
        }
        Ok(())
    }

    /// A place for a new DAG, if it may be created; changes nothing but the last serial.
    fn admit_dag(
        &mut self,
        turn: &RequestContext,
        new: NewFleetDag,
    ) -> Result<(FleetDagRecord, Dag, DagChoice), Denied> {
        let NewFleetDag { name, spec, constraints, policy } = new;
        self.check_is_new(&name)?;
        let dag = valid(&name.tenant, &spec)?;
        check_named(&name, &spec, &constraints)?;
        self.check_bandwidth(&spec, Bandwidth::ZERO)?;
        self.tenants.admit(&name.tenant, FleetUsage::default(), self.usage_of(&dag))?;
        self.check_budgets(turn, &name.tenant)?;
        let defaults = self.placement_defaults(&name.tenant, &constraints);
        let record = FleetDagRecord {
            name,
            spec,
            constraints,
            defaults,
            policy,
            place: None,
            unplaced: None,
            leaving: None,
            refusals: Vec::new(),
            changes: None,
            is_ready: false,
            served_generation: 0,
            generation: 1,
            spec_serial: 0,
            meta: RecordMeta::new(self.journal.next_serial(), turn.now),
        };
        let choice = self.choose(&record, &dag).map_err(Denied::NoPlace)?;
        Ok((record, dag, choice))
    }

    fn begin_dag(
        &mut self,
        record: FleetDagRecord,
        dag: Dag,
        choice: DagChoice,
        step: &mut FleetStep,
    ) -> PlacedDag {
        let (name, usage) = (record.name.clone(), self.usage_of(&dag));
        self.tenants.take(&name.tenant, usage);
        self.registry.uses.count_spec(&record.spec, true);
        self.affinities.count(&name, record.named(), true);
        let record = Versioned::new(record);
        self.dags.insert(name.clone(), DagEntry { record, dag, usage });
        self.commit_place(&name, choice, PreviousServer::default(), step);
        self.placed(&name).expect("it was created just now")
    }

    /// Where a DAG is, in few words.
    fn placed(&self, name: &DagName) -> Option<PlacedDag> {
        let of = self.dags.get(name)?.of();
        let place = of.place.as_ref();
        Some(PlacedDag {
            card: place.map(|place| place.card.clone()),
            place: place.map(|place| place.serial),
            generation: of.generation,
            meta: of.meta,
        })
    }

    /// Changes a DAG: in its place if it fits there, otherwise elsewhere unless it is bound.
    pub(super) fn update_dag(
        &mut self,
        turn: &RequestContext,
        name: &DagName,
        patch: DagPatch,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let missing = || Denied::NotFound(name.to_string());
        let entry = self.dags.get(name).ok_or_else(missing)?;
        let spec = patch.apply(&entry.of().spec);
        let bare = |spec: &DagSpec| spec.with_notes(Notes::default());
        let (is_same, is_noted) = (spec == entry.of().spec, bare(&spec) == bare(&entry.of().spec));
        if is_noted {
            let entry = self.dags.get_mut(name).expect("it was just looked at");
            if !is_same && !turn.is_dry {
                let record = entry.record.value_mut();
                record.spec = spec;
                record.meta.change(turn.now);
                step.put(dag_key(name), entry.record.bytes());
            }
            return self.placed(name).map(FleetReply::Placed).ok_or_else(missing);
        }
        let dag = valid(&name.tenant, &spec)?;
        check_named(name, &spec, &entry.of().constraints)?;
        self.check_bandwidth(&spec, entry.of().spec.bandwidth)?;
        let usage = self.usage_of(&dag);
        self.tenants.admit(&name.tenant, entry.usage, usage)?;
        if usage.bandwidth > entry.usage.bandwidth {
            self.check_budgets(turn, &name.tenant)?;
        }
        let changed = FleetDagRecord { spec, refusals: Vec::new(), ..entry.of().clone() };
        let choice = self.choose_change(&changed, &dag).map_err(Denied::NoPlace)?;
        if turn.is_dry {
            let (card, meta) = (Some(choice.card), changed.meta);
            let generation = changed.generation + 1;
            let placed = PlacedDag { card, place: None, generation, meta };
            return Ok(FleetReply::Placed(placed));
        }
        self.change_dag(turn, changed, (dag, usage), step);
        let before = self.served_before(name, &choice.card, step);
        self.commit_place(name, choice, before, step);
        self.placed(name).map(FleetReply::Placed).ok_or_else(missing)
    }

    /// Whether the same may be done soon: images are on their way to hosts, or hosts have not been in step with this
    /// leader yet and are not lost, as after each election.
    pub fn may_pass(&self, denied: &Denied) -> bool {
        denied.no_place().is_some_and(|refused| {
            refused.waits_for_images()
                || refused.lacks_hosts() && self.hosts.values().any(HostState::is_expected)
        })
    }

    /// A place for a DAG that is changed.
    fn choose_change(
        &self,
        changed: &FleetDagRecord,
        dag: &Dag,
    ) -> Result<DagChoice, Box<PlacementRefused>> {
        let Some(place) = &changed.place else { return self.choose(changed, dag) };
        let mut constraints = changed.constraints_now();
        self.add_affinities(&changed.name, &changed.spec, &mut constraints);
        let (name, policy) = (&changed.name, changed.policy);
        let request = PlaceDag { name, dag, constraints: &constraints, policy };
        let here = self.inventory.place_again(&request, &place.mapping);
        here.or_else(|refused| {
            if self.is_bound(name) || refused.waits_for_images() {
                return Err(refused);
            }
            constraints.apart_from_cards.insert(place.card.clone());
            self.inventory.place(&PlaceDag { name, dag, constraints: &constraints, policy })
        })
    }

    /// Another spec for a DAG.
    fn change_dag(
        &mut self,
        turn: &RequestContext,
        changed: FleetDagRecord,
        (dag, usage): (Dag, FleetUsage),
        step: &mut FleetStep,
    ) {
        let serial = self.journal.next_serial();
        let Some(entry) = self.dags.get_mut(&changed.name) else { return };
        let tenant = changed.name.tenant.clone();
        self.tenants.give_back(&tenant, entry.usage);
        self.tenants.take(&tenant, usage);
        for (spec, is_more) in [(&entry.of().spec, false), (&changed.spec, true)] {
            self.registry.uses.count_spec(spec, is_more);
            self.affinities.count(&changed.name, (spec, &changed.constraints), is_more);
        }
        let key = dag_key(&changed.name);
        let record = entry.record.value_mut();
        (record.spec, record.refusals) = (changed.spec, changed.refusals);
        record.generation += 1;
        record.spec_serial = serial;
        record.meta.change(turn.now);
        (entry.dag, entry.usage) = (dag, usage);
        step.put(key, entry.record.bytes());
    }

    /// Server of a DAG until it has another place on `card`. A place that does not serve it yet goes.
    fn served_before(
        &mut self,
        name: &DagName,
        card: &FleetCard,
        step: &mut FleetStep,
    ) -> PreviousServer {
        let Some(of) = self.dags.get(name).map(DagEntry::of) else {
            return PreviousServer::default();
        };
        let leaving = of.leaving.clone();
        let Some(place) = of.place.as_ref().map(|place| (place.card.clone(), place.serial)) else {
            return PreviousServer { leaving, changes: None };
        };
        if place.0 == *card {
            return PreviousServer { leaving, changes: Some(place.1) };
        }
        if leaving.is_some() {
            self.order_release(name, (&place.0, place.1), step);
            self.serves_no_more(name, (&place.0, place.1), step);
            return PreviousServer { leaving, changes: None };
        }
        PreviousServer { leaving: Some(place), changes: None }
    }

    pub(super) fn delete_dag(
        &mut self,
        turn: &RequestContext,
        name: &DagName,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if !self.dags.contains_key(name) {
            return Err(Denied::NotFound(name.to_string()));
        }
        if !turn.is_dry {
            self.remove_dag(name, step);
        }
        Ok(FleetReply::Done)
    }

    pub(super) fn remove_dag(&mut self, name: &DagName, step: &mut FleetStep) {
        let Some(entry) = self.dags.remove(name) else { return };
        self.tenants.give_back(&name.tenant, entry.usage);
        self.registry.uses.count_spec(&entry.of().spec, false);
        self.affinities.count(name, entry.of().named(), false);
        if let Some(place) = &entry.of().place {
            self.registry.uses.count_place(place, false);
        }
        self.inventory.release(name);
        self.forget_unplaced(name);
        step.delete(dag_key(name));
        let place = entry.of().place.as_ref().map(|place| (&place.card, place.serial));
        let leaving = entry.of().leaving.as_ref().map(|(card, serial)| (card, *serial));
        for place in place.into_iter().chain(leaving) {
            self.order_remove(name, place, step);
        }
    }

    pub(super) fn dag_view(&self, name: &DagName) -> Option<FleetDag> {
        self.dags.get(name).map(|entry| FleetDag::of(entry.of()))
    }

    pub(super) fn check_dag_etag(&self, name: &DagName, etag: Option<&str>) -> Result<(), Denied> {
        let entry = self.dags.get(name).ok_or_else(|| Denied::NotFound(name.to_string()))?;
        super::commands::check_etag(&FleetName::Dag(name.clone()), entry.of().meta, etag)
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

    /// Gives a DAG its place, in the ledgers and in its record, and orders it.
    pub(super) fn commit_place(
        &mut self,
        name: &DagName,
        choice: DagChoice,
        before: PreviousServer,
        step: &mut FleetStep,
    ) {
        let serial = self.journal.next_serial();
        let DagChoice { card, plan } = choice;
        let PreviousServer { mut leaving, mut changes } = before;
        if let Some((_, old)) = leaving.take_if(|(old, _)| *old == card) {
            changes = changes.or(Some(old));
        }
        let held = self.inventory.ledger(&card).and_then(|ledger| ledger.held(name));
        let more = plan
            .reservation
            .ingress()
            .saturating_sub(held.map_or(Bandwidth::ZERO, Reservation::ingress));
        self.inventory.release(name);
        self.inventory
            .hold(&card, name, &plan.loads, plan.reservation.clone())
            .expect("the plan was made on this ledger");
        let entry = self.dags.get_mut(name).expect("a DAG that is placed exists");
        self.inventory.weigh(name, entry.usage.milli_luts);
        let (mapping, reservation) = (plan.mapping, plan.reservation);
        let place = PlaceRecord { card: card.clone(), serial, mapping, reservation };
        self.registry.uses.count_place(&place, true);
        let record = entry.record.value_mut();
        if let Some(old) = record.place.replace(place) {
            self.registry.uses.count_place(&old, false);
        }
        (record.unplaced, record.leaving, record.changes) = (None, leaving, changes);
        record.is_ready = false;
        step.put(dag_key(name), entry.record.bytes());
        let leaving = entry.of().leaving.clone();
        self.forget_unplaced(name);
        self.desire(&card, name, serial);
        self.desire_leaving(leaving.as_ref(), name);
        self.order_put(name, step);
        self.use_bandwidth(&name.tenant, &card, more, step);
    }

    /// Its host serves it.
    pub(super) fn dag_applied(
        &mut self,
        name: &DagName,
        serial: u64,
        choice: Option<HostChoice>,
        step: &mut FleetStep,
    ) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let record = entry.record.value_mut();
        let Some(place) = record.place.as_mut().filter(|place| place.serial == serial) else {
            return;
        };
        let mut is_changed = !std::mem::replace(&mut record.is_ready, true);
        record.served_generation = record.generation;
        if let Some(choice) = choice.filter(|of| of.mapping.card == place.card.card)
            && (&choice.mapping, &choice.reservation) != (&place.mapping, &place.reservation)
        {
            self.registry.uses.count_place(place, false);
            (place.mapping, place.reservation) = (choice.mapping, choice.reservation);
            self.registry.uses.count_place(place, true);
            let (card, loads, reservation) =
                (place.card.clone(), place.loads(), place.reservation.clone());
            let held = self.inventory.hold_as_it_is(&card, name, loads, reservation);
            self.inventory.weigh(name, entry.usage.milli_luts);
            if let Ok(Some(short)) = held {
                let why = short.to_string();
                step.then(FleetEffect::Tell(FleetNotice::CardOverbooked { card, why }));
            }
            is_changed = true;
        }
        let leaving = record.leaving.clone();
        let is_changed_here = record.changes.take().is_some();
        if !is_changed_here {
            // What went back keeps them: the same cards would refuse it again.
            is_changed |= !std::mem::take(&mut record.refusals).is_empty();
        }
        is_changed |= is_changed_here;
        if is_changed {
            step.put(dag_key(name), entry.record.bytes());
        }
        if let Some((card, serial)) = leaving {
            self.order_release(name, (&card, serial), step);
        }
    }

    /// Its host cannot serve it: another one is tried, a few times. A change that it cannot make leaves what it serves.
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
        self.registry.uses.count_place(&place, false);
        record.is_ready = false;
        record.refusals.push((place.card.clone(), reason));
        let before = record.changes.take().map(|old| (place.card.clone(), old));
        let serves = record.leaving.is_none().then_some(before).flatten();
        if let Some(host) = self.hosts.get_mut(&place.card.host) {
            host.desire_no_more(&place.card.card, name, serial);
            if let Some((card, old)) = &serves {
                host.desire(&card.card, name, *old, DagMobility::Leaving);
            }
        }
        record.leaving = record.leaving.take().or(serves);
        self.inventory.release(name);
        let reasons: Vec<String> =
            record.refusals.iter().map(|(card, why)| format!("{card}: {why}")).collect();
        // What leads packets to it is where it is served.
        let stays = record.leaving.as_ref().is_some_and(|(card, _)| {
            let host = self.hosts.get(&card.host);
            host.is_some_and(|host| host.bound_cause(&card.card, name).is_some())
        });
        if reasons.len() < REFUSALS_MAX && !stays {
            self.place_again(name, step);
        } else if !self.goes_back(name, step) {
            self.unplace(name, Unplaced::Failed(reasons), step);
        }
    }

    /// Makes the place that still serves a DAG its place again, unless that has refused it, too. It is not tried where it was
    /// refused until it has another place.
    fn goes_back(&mut self, name: &DagName, step: &mut FleetStep) -> bool {
        let Some(entry) = self.dags.get_mut(name) else { return false };
        let leaving = entry.of().leaving.clone();
        let Some((card, _)) = &leaving else { return false };
        let refusals = &mut entry.record.value_mut().refusals;
        if refusals.iter().any(|(refused, _)| refused == card) {
            return false;
        }
        refusals.drain(..refusals.len().saturating_sub(REFUSALS_KEPT_MAX));
        let Some(choice) = self.inventory.place_back((name, &entry.dag), card) else {
            return false;
        };
        self.commit_place(name, choice, PreviousServer { leaving, changes: None }, step);
        true
    }

    /// Its host served it and cannot any longer. It waits for its turn to be placed again: when a card fails, many do.
    pub(super) fn dag_lost(
        &mut self,
        name: &DagName,
        serial: u64,
        reason: &str,
        step: &mut FleetStep,
    ) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let record = entry.record.value_mut();
        let Some(place) = record.place.take_if(|place| place.serial == serial) else { return };
        self.registry.uses.count_place(&place, false);
        (record.is_ready, record.changes) = (false, None);
        if let Some(host) = self.hosts.get_mut(&place.card.host) {
            host.desire_no_more(&place.card.card, name, serial);
        }
        self.inventory.release(name);
        let why = format!("it has lost its place on {}: {reason}", place.card);
        self.unplace(name, Unplaced::Waits(why), step);
    }

    /// Its host, which answers, does not serve it at the moment.
    pub(super) fn not_ready(&mut self, name: &DagName, step: &mut FleetStep) {
        let Some(entry) = self.dags.get_mut(name).filter(|entry| entry.of().is_ready) else {
            return;
        };
        entry.record.value_mut().is_ready = false;
        step.put(dag_key(name), entry.record.bytes());
        let place = entry.of().place.as_ref();
        if let Some(host) = place.and_then(|place| self.hosts.get_mut(&place.card.host)) {
            host.expect_news();
        }
    }

    /// A place for a DAG that has none; without one it waits.
    pub(super) fn place_again(&mut self, name: &DagName, step: &mut FleetStep) {
        let Some(entry) = self.dags.get(name) else { return };
        let leaving = entry.of().leaving.clone();
        match self.choose(entry.of(), &entry.dag) {
            Ok(choice) => {
                self.commit_place(name, choice, PreviousServer { leaving, changes: None }, step)
            }
            Err(refused) => self.unplace(name, Unplaced::Waits(refused.to_string()), step),
        }
    }

    pub(super) fn forget_unplaced(&mut self, name: &DagName) {
        self.waiting.remove(name);
        self.failed.remove(name);
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
        } else {
            self.failed.insert(name.clone());
        }
        if is_new {
            entry.record.value_mut().unplaced = Some(why.clone());
            step.put(dag_key(name), entry.record.bytes());
            step.then(FleetEffect::Tell(FleetNotice::DagUnplaced { name: name.clone(), why }));
        }
    }
}
