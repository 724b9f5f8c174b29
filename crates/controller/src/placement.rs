//! From plans to placements: who gets which region, rows and reservation, and who gives them back.

use std::collections::BTreeSet;

use snic_domain::{
    Bandwidth, BitstreamId, CardId, Dag, DagName, DagSpec, Refusal, RegionId, Resource, Shortage,
};
use snic_planner::{Plan, Request, Reservation, plan};
use snic_tables::Table;

use crate::card::{ConnectionState, ObservedContent};
use crate::error::ControlError;
use crate::records::{Placement, key, storable};
use crate::state::Controller;
use crate::tx::Tx;

/// An explanation has a record of its own; larger ones are cut to what a record takes.
const EXPLANATION_BYTES_MAX: usize = 64 * 1024;

/// A plan that is good for a card, with the checked DAG it is for.
#[derive(Debug)]
pub(crate) struct Choice {
    pub card: CardId,
    pub plan: Plan,
}

impl Controller {
    /// The first card, by id, that can take the DAG, those that answer before those that do not;
    /// where none can, what the first one lacks.
    /// `previous` is what serves the DAG meanwhile.
    pub(crate) fn choose(
        &self,
        name: &DagName,
        dag: &Dag,
        previous: Option<&Placement>,
    ) -> Result<Choice, ControlError> {
        let mut refusal = None;
        let fixed = previous.map(|p| &p.mapping.card);
        let cards = self.cards.iter().filter(|(id, _)| fixed.is_none_or(|f| f == *id));
        let (answering, silent): (Vec<_>, Vec<_>) =
            cards.partition(|(_, card)| card.connection == ConnectionState::Ready);
        for (id, card) in answering.into_iter().chain(silent) {
            let request = Request { name, dag, previous: previous.map(|p| &p.mapping) };
            match plan(&card.ledger, &self.catalogue, &request) {
                Ok(plan) => return Ok(Choice { card: id.clone(), plan }),
                Err(refused) => refusal = refusal.or(Some(refused)),
            }
        }
        Err(match refusal {
            Some(refusal) => refusal.into(),
            None => ControlError::NoCard(self.why_no_card()),
        })
    }

    /// The same for a new promise: within the admission policy, and with what is lent to others
    /// taken back where there is no room else.
    pub(crate) fn admit(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        dag: &Dag,
        previous: Option<&Placement>,
    ) -> Result<Choice, ControlError> {
        let choice = self.make_room(tx, name, dag, previous);
        choice.inspect_err(|error| self.note_refused(tx, name, dag.spec(), error))
    }

    fn make_room(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        dag: &Dag,
        previous: Option<&Placement>,
    ) -> Result<Choice, ControlError> {
        let refused = match self.without_reclaim(name, dag, previous)? {
            Ok(choice) => return Ok(choice),
            Err(refusal) => refusal,
        };
        if !self.preempt(tx, name) {
            return Err(refused.into());
        }
        let choice = self.choose(name, dag, previous)?;
        self.within_promises(name, dag, choice)
    }

    /// The choice within the policies with what is lent as it is, or why there is no room so.
    fn without_reclaim(
        &self,
        name: &DagName,
        dag: &Dag,
        previous: Option<&Placement>,
    ) -> Result<Result<Choice, Refusal>, ControlError> {
        self.check_admission(dag)?;
        match self.choose(name, dag, previous) {
            Err(ControlError::Refused(refusal)) => Ok(Err(refusal)),
            choice => self.within_promises(name, dag, choice?).map(Ok),
        }
    }

    /// What [`Self::admit`] would say, without doing anything.
    pub(crate) fn would_admit(
        &self,
        name: &DagName,
        dag: &Dag,
        previous: Option<&Placement>,
    ) -> Result<Choice, ControlError> {
        let refused = match self.without_reclaim(name, dag, previous)? {
            Ok(choice) => return Ok(choice),
            Err(refusal) => refusal,
        };
        let fixed = previous.map(|p| &p.mapping.card);
        for id in self.cards.keys().filter(|id| fixed.is_none_or(|fixed| fixed == *id)) {
            let Some(ledger) = self.ledger_without_burst(id, name) else { continue };
            let request = Request { name, dag, previous: previous.map(|p| &p.mapping) };
            if let Ok(plan) = plan(&ledger, &self.catalogue, &request) {
                return self.within_promises(name, dag, Choice { card: id.clone(), plan });
            }
        }
        Err(refused.into())
    }

    fn check_admission(&self, dag: &Dag) -> Result<(), ControlError> {
        let most = self.settings.admission.dag_bandwidth_max;
        if dag.bandwidth() <= most {
            return Ok(());
        }
        let text = format!(
            "{} is more than the {most} that the admission policy lets one DAG ask for",
            dag.bandwidth()
        );
        Err(ControlError::invalid("dag.bandwidth_bps", text))
    }

    /// Refuses what would promise more of a card's ingress than the policy allows.
    fn within_promises(
        &self,
        name: &DagName,
        dag: &Dag,
        choice: Choice,
    ) -> Result<Choice, ControlError> {
        let percent = self.settings.admission.ingress_percent;
        let Some(card) = self.cards.get(&choice.card).filter(|_| percent < 100) else {
            return Ok(choice);
        };
        let others = self
            .dags
            .iter()
            .filter(|(other, entry)| *other != name && entry.card() == Some(&choice.card));
        let promised: Bandwidth = others.map(|(_, entry)| entry.record.spec.bandwidth).sum();
        let all = u128::from(card.profile.ingress.get()) * u128::from(percent) / 100;
        let all = Bandwidth::from_bps(u64::try_from(all).unwrap_or(u64::MAX));
        if promised + dag.bandwidth() <= all {
            return Ok(choice);
        }
        let detail = format!("the admission policy lets {percent} % of the ingress be promised");
        Err(Refusal {
            shortages: vec![Shortage {
                resource: Resource::IngressBandwidth,
                required: dag.bandwidth().get(),
                available: all.saturating_sub(promised).get(),
                nodes: Vec::new(),
                detail,
            }],
        }
        .into())
    }

    fn why_no_card(&self) -> String {
        let reasons = self.absent.iter().map(|(id, why)| format!("card {id}: {why}"));
        let text = reasons.collect::<Vec<_>>().join("; ");
        if text.is_empty() { "the daemon has none in its settings".into() } else { text }
    }

    /// Carries out a plan on paper: contents, rows, reservation. On an error nothing has changed.
    /// The DAG's entry gets the placement; what it had as placement must have been taken away.
    pub(crate) fn install(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        dag: &Dag,
        choice: Choice,
    ) -> Result<(), ControlError> {
        let Choice { card: id, plan } = choice;
        let entry = self.dags.get(name);
        let generation = entry.map_or(0, |e| e.record.generation);
        let previous = entry.and_then(|e| e.record.previous.clone());
        let held = self.reservation(&plan.reservation, previous.as_ref());
        // A DAG may be given a place for more than it asks for.
        let asked = entry.map_or_else(|| dag.spec().clone(), |e| e.record.spec.clone());
        let promised = asked.bandwidth;
        let Some(card) = self.cards.get_mut(&id) else {
            return Err(ControlError::NoCard(format!("card {id} is gone")));
        };
        let (stage_row, chain_row, instance_row) =
            card.rows.take(&plan.mapping).map_err(|table| rows_short(table, &plan))?;
        let serial = self
            .dags
            .get(name)
            .map_or(0, |e| e.placements().map(|p| p.serial).chain(e.active).max().unwrap_or(0))
            + 1;
        let placement = Placement {
            serial,
            generation,
            spec: asked,
            burst: (dag.bandwidth() > promised).then(|| dag.bandwidth()),
            mapping: plan.mapping,
            stage_row,
            chain_row,
            instance_row,
        };
        for load in &plan.loads {
            self.set_content(tx, &id, load.region, Some(&load.bitstream));
        }
        let Some(card) = self.cards.get_mut(&id) else { return Ok(()) };
        if let Err(overbooked) = card.ledger.hold(name, held) {
            card.rows.give(&placement);
            self.loosen(&id, plan.loads.iter().map(|load| load.region));
            return Err(ControlError::precondition(name, overbooked.to_string()));
        }
        let stored = storable(&plan.explanation, EXPLANATION_BYTES_MAX);
        tx.batch.put(key::explanation(name), &stored);
        if let Some(entry) = self.dags.get_mut(name) {
            entry.record.placement = Some(placement);
            entry.explanation = Some(plan.explanation);
            entry.refusal = None;
        }
        self.move_rules(tx, name);
        self.unscheduled.remove(name);
        self.dirty_dags.insert(name.clone());
        for load in plan.loads {
            self.emit_region(tx, &id, load.region);
        }
        Ok(())
    }

    /// What a DAG has to hold while `previous` still serves: enough for either.
    fn reservation(&self, new: &Reservation, previous: Option<&Placement>) -> Reservation {
        match previous.and_then(|p| self.reservation_of(p)) {
            Some(old) => new.max(&old),
            None => new.clone(),
        }
    }

    /// What a placement reserves.
    pub(crate) fn reservation_of(&self, placement: &Placement) -> Option<Reservation> {
        let spec = DagSpec { bandwidth: placement.holds(), ..placement.spec.clone() };
        let dag = Dag::new(spec).ok()?;
        Some(Reservation::of(&placement.mapping, &dag, &self.catalogue))
    }

    /// Makes the ledger hold what the DAG's placements need now.
    pub(crate) fn hold_again(&mut self, name: &DagName) {
        let Some(entry) = self.dags.get(name) else { return };
        let mut held: Option<(CardId, Reservation)> = None;
        for placement in entry.placements() {
            if let Some(more) = self.reservation_of(placement) {
                held = Some(match held {
                    Some((card, held)) => (card, held.max(&more)),
                    None => (placement.mapping.card.clone(), more),
                });
            }
        }
        let before = entry.card().cloned();
        match held {
            Some((id, held)) => {
                if let Some(card) = self.cards.get_mut(&id) {
                    let fits = card.ledger.hold(name, held);
                    debug_assert!(fits.is_ok(), "less than before does not fit: {fits:?}");
                }
            }
            None => {
                if let Some(card) = before.and_then(|id| self.cards.get_mut(&id)) {
                    card.ledger.release(name);
                }
            }
        }
        self.capacity_freed = true;
    }

    /// Takes a DAG's wanted placement away, and gives its rows and reservation back; what serves
    /// meanwhile stays. Its rows leave the target tables with the next refresh.
    pub(crate) fn uninstall(&mut self, name: &DagName) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let Some(placement) = entry.record.placement.take() else { return };
        let uid = entry.record.uid;
        if entry.target == Some(placement.serial) {
            entry.target = None;
        }
        let id = placement.mapping.card.clone();
        if let Some(card) = self.cards.get_mut(&id) {
            card.clear_rows(crate::rows::keys(uid, &placement));
            if entry.target.is_none() {
                card.let_go_of_pages(name, &BTreeSet::new());
            }
            card.dirty_since_commit.insert(name.clone());
            card.rows.give(&placement);
            card.ledger.release(name);
        }
        self.hold_again(name);
        self.retarget_rules(name);
        self.loosen(&id, regions_of(&placement));
        self.dirty_dags.insert(name.clone());
    }

    /// Notes regions that may have lost their last user: see [`Controller::keep_as_victim`].
    pub(crate) fn loosen(&mut self, id: &CardId, regions: impl IntoIterator<Item = RegionId>) {
        self.maybe_unused.extend(regions.into_iter().map(|region| (id.clone(), region)));
    }

    /// Finds another place for a DAG: what it has must not be used any more, or an operator wants
    /// a region empty. Where there is none the DAG stays without, and is tried again later.
    /// Says whether a place was found.
    pub(crate) fn replace(&mut self, tx: &mut Tx, name: &DagName, spec: DagSpec) -> bool {
        let Some(entry) = self.dags.get(name) else { return false };
        let Ok(dag) = Dag::new(spec) else { return false };
        let previous = entry.record.previous.clone();
        let result = self
            .choose(name, &dag, previous.as_ref())
            .and_then(|choice| self.install(tx, name, &dag, choice));
        let placed = result.is_ok();
        if let Err(error) = result {
            self.unscheduled.insert(name.clone());
            let operation = self.dags.get(name).and_then(|e| e.operation.clone());
            if let Some(operation) = operation {
                self.end_operation(tx, &operation, Err(error.clone()));
            }
            if let Some(entry) = self.dags.get_mut(name) {
                entry.refusal = match error {
                    ControlError::Refused(refusal) => Some(refusal),
                    _ => None,
                };
            }
        }
        self.store_dag(tx, name);
        self.dirty_dags.insert(name.clone());
        placed
    }

    /// Tries again to place the DAGs that have no place, by name. Time O(DAGs without a place).
    pub(crate) fn place_unscheduled(&mut self, tx: &mut Tx) {
        for name in self.unscheduled.clone() {
            let Some(entry) = self.dags.get(&name) else {
                self.unscheduled.remove(&name);
                continue;
            };
            let spec = entry.record.spec.clone();
            self.replace(tx, &name, spec);
        }
    }

    /// Says what a region is to hold from now on.
    pub(crate) fn set_content(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        region: RegionId,
        content: Option<&BitstreamId>,
    ) {
        let bitstream = content.and_then(|b| self.bitstreams.get(b)).map(|r| r.bitstream.clone());
        let Some(card) = self.cards.get_mut(id) else { return };
        let Some(entry) = card.regions.get_mut(region.index()) else { return };
        if entry.record.bitstream.as_ref() == content {
            return;
        }
        let fits = card.ledger.set_content(region, bitstream.as_ref(), &self.catalogue);
        debug_assert!(fits.is_ok(), "the content of a region in use was changed: {fits:?}");
        entry.record.bitstream = bitstream.as_ref().map(|b| b.id.clone());
        entry.desired = bitstream.as_ref().map(|b| b.digest);
        entry.spare = false;
        entry.failures = 0;
        entry.not_before = self.now;
        let is_loaded = entry.is_loaded();
        card.clear_region_rows(region);
        if is_loaded {
            self.target_region(id, region);
        }
        self.store_region(tx, id, region);
    }

    /// A region that nobody needs and that does not hold what it was to hold keeps what it does
    /// hold, as a victim, if that is known; else it is free.
    pub(crate) fn keep_as_victim(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) {
        let Some(card) = self.cards.get(id) else { return };
        let Some(entry) = card.region(region) else { return };
        let under_way = card.loading.as_ref().is_some_and(|l| l.region == region);
        if !card.ledger.is_unused(region) || entry.is_loaded() || under_way {
            return;
        }
        let content = match entry.observed {
            ObservedContent::Holds(digest) => self
                .catalogue
                .bitstreams()
                .find(|b| b.digest == digest && b.card_model == card.profile.model)
                .map(|b| b.id.clone()),
            ObservedContent::Unknown if entry.record.bitstream.is_some() => return,
            ObservedContent::Unknown | ObservedContent::Empty | ObservedContent::Broken => None,
        };
        self.set_content(tx, id, region, content.as_ref());
    }

    /// A region will not get what it was to hold: its DAGs go elsewhere.
    pub(crate) fn abandon_content(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) {
        let users: Vec<DagName> = self.cards[id].ledger.users(region).cloned().collect();
        let mut homeless = Vec::new();
        for name in users {
            let Some(entry) = self.dags.get(&name) else { continue };
            let uses = |p: &Option<Placement>| p.as_ref().is_some_and(|p| p.mapping.uses(region));
            let (placement, previous) =
                (uses(&entry.record.placement), uses(&entry.record.previous));
            if previous {
                self.drop_previous(tx, &name);
            }
            if placement {
                self.uninstall(&name);
                homeless.push(name);
            }
        }
        self.set_content(tx, id, region, None);
        self.store_region(tx, id, region);
        for name in homeless {
            if let Some(spec) = self.dags.get(&name).map(|e| e.record.spec.clone()) {
                self.replace(tx, &name, spec);
            }
        }
    }

    /// Gives back what served a DAG until its update was done.
    pub(crate) fn drop_previous(&mut self, tx: &mut Tx, name: &DagName) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let Some(previous) = entry.record.previous.take() else { return };
        let uid = entry.record.uid;
        let in_target = entry.target == Some(previous.serial);
        if in_target {
            entry.target = None;
        }
        let id = previous.mapping.card.clone();
        if let Some(card) = self.cards.get_mut(&id) {
            if in_target {
                card.clear_rows(crate::rows::keys(uid, &previous));
                card.let_go_of_pages(name, &BTreeSet::new());
                card.dirty_since_commit.insert(name.clone());
            }
            card.rows.give(&previous);
            card.ledger.release(name);
        }
        self.hold_again(name);
        self.loosen(&id, regions_of(&previous));
        self.dirty_dags.insert(name.clone());
        self.store_dag(tx, name);
    }

    /// A bitstream that failed wherever it was loaded is not planned with any more.
    pub(crate) fn reject_bitstream(&mut self, tx: &mut Tx, id: &BitstreamId, reason: String) {
        let Some(record) = self.bitstreams.get_mut(id) else { return };
        record.rejected = Some(reason);
        tx.batch.put(key::bitstream(id), record);
        let held: Vec<(CardId, RegionId)> = self.regions_with(id);
        for (card, region) in held {
            if self.cards[&card].region(region).is_some_and(|entry| !entry.is_loaded()) {
                self.abandon_content(tx, &card, region);
            }
        }
        self.catalogue.remove_bitstream(id);
        // Those that were placed again with the same bitstream a moment ago have to move on.
        let held: Vec<(CardId, RegionId)> = self.regions_with(id);
        for (card, region) in held {
            if self.cards[&card].region(region).is_some_and(|entry| !entry.is_loaded()) {
                self.abandon_content(tx, &card, region);
            }
        }
    }

    /// The regions that hold a bitstream or are to hold it.
    pub(crate) fn regions_with(&self, id: &BitstreamId) -> Vec<(CardId, RegionId)> {
        let on = |(card, state): (&CardId, &crate::card::CardState)| {
            let card = card.clone();
            state
                .region_ids()
                .zip(&state.regions)
                .filter(|(_, entry)| entry.record.bitstream.as_ref() == Some(id))
                .map(move |(region, _)| (card.clone(), region))
                .collect::<Vec<_>>()
        };
        self.cards.iter().flat_map(on).collect()
    }

    /// Takes a DAG off its card for good: rows, reservation, UID. Says which card has to be told.
    pub(crate) fn evict(&mut self, tx: &mut Tx, name: &DagName) -> Option<CardId> {
        let uid = self.dags.get(name)?.record.uid;
        let card = self.dags.get(name)?.card().cloned();
        self.forget_states(tx, name);
        self.drop_previous(tx, name);
        self.uninstall(name);
        self.uids.give(uid);
        self.unscheduled.remove(name);
        self.dirty_dags.remove(name);
        card
    }
}

/// The regions of a placement, each once.
pub(crate) fn regions_of(placement: &Placement) -> Vec<RegionId> {
    let mut regions: Vec<_> = placement.mapping.instances().map(|i| i.region).collect();
    regions.sort_unstable();
    regions.dedup();
    regions
}

fn rows_short(table: Table, plan: &Plan) -> ControlError {
    let (stages, chains, instances) = crate::rows::row_counts(&plan.mapping);
    let required = match table {
        Table::Stage => stages,
        Table::Chain => chains,
        _ => instances,
    };
    Refusal {
        shortages: vec![Shortage {
            resource: Resource::TableRows,
            required: required.into(),
            available: 0,
            nodes: Vec::new(),
            detail: format!("no run of free rows in the {table:?} table is long enough"),
        }],
    }
    .into()
}
