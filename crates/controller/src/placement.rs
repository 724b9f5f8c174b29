//! From plans to placements: who gets which region, rows and reservation, and who gives them back.

use std::collections::BTreeSet;

use snic_domain::{Bandwidth, BitstreamId, CardId, Dag, DagName, DagSpec, RegionId};
use snic_planner::{Request, Reservation, plan};

use crate::admission::{Admission, Borrower, Candidate, CardPlan, Choice, Rejection, decide};
use crate::card::{Booking, ConnectionState, KNOWN, ObservedContent, Region};
use crate::dags::{DagEntry, Left};
use crate::protocol::ControlError;
use crate::records::{Placement, Record, storable};
use crate::state::Controller;
use crate::tx::Tx;

/// An explanation has a record of its own; larger ones are cut to what a record takes.
const EXPLANATION_BYTES_MAX: usize = 64 * 1024;

/// What becomes of the placement that a new one replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handover {
    /// If it serves, it does until the new one does.
    MakeBeforeBreak,
    /// It is given up at once, though the card may have its rows for a while yet.
    AtOnce,
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
            match plan(&card.ledger, self.registry.catalogue(), &request) {
                Ok(plan) => return Ok(Choice { card: id.clone(), plan }),
                Err(refused) => refusal = refusal.or(Some(refused)),
            }
        }
        Err(match refusal {
            Some(refusal) => refusal.into(),
            None => ControlError::NoCard(self.why_no_card()),
        })
    }

    /// Decides about a DAG that is new or changed, changing nothing.
    pub(crate) fn decide(&self, name: &DagName, dag: &Dag) -> Result<Admission, ControlError> {
        let entry = self.dags.get(name);
        let candidate = Candidate {
            name,
            dag,
            serving: entry.and_then(DagEntry::serves_meanwhile),
            withdrawn: entry.and_then(DagEntry::gives_way),
        };
        let policy = self.settings.admission;
        decide(&self.card_plans(name), self.registry.catalogue(), policy, &candidate).map_err(|rejection| {
            match rejection {
                Rejection::OverLimit(limit) => {
                    let text = format!(
                        "{} is not allowed: the admission policy allows at most {limit} for one DAG",
                        dag.bandwidth()
                    );
                    ControlError::invalid("dag.bandwidth_bps", text)
                }
                Rejection::NoCard => ControlError::NoCard(self.why_no_card()),
                Rejection::NoPlace(refusal) => refusal.into(),
            }
        })
    }

    /// What is planned on the cards, as admission looks at it. Time O(cards + DAGs · log cards).
    fn card_plans(&self, candidate: &DagName) -> Vec<CardPlan<'_>> {
        let mut plans: Vec<CardPlan<'_>> = self
            .cards
            .iter()
            .map(|(id, card)| CardPlan {
                id,
                ledger: &card.ledger,
                rows: &card.rows,
                is_ready: card.connection == ConnectionState::Ready,
                guaranteed: Bandwidth::ZERO,
                borrowers: Vec::new(),
            })
            .collect();
        for (name, entry) in self.dags.iter().filter(|(name, _)| *name != candidate) {
            let Some(card) = entry.card() else { continue };
            let at = plans
                .binary_search_by(|plan| plan.id.cmp(card))
                .expect("a DAG is placed on a card that is known");
            let spec = entry.spec();
            plans[at].guaranteed += spec.bandwidth;
            if let Some(placement) = entry.desired()
                && placement.holds() > spec.bandwidth
                && entry.is_at_rest()
            {
                plans[at].borrowers.push(Borrower { name, spec, placement });
            }
        }
        plans
    }

    /// Carries an admission out: takes back what it says, then gives the DAG its place.
    pub(crate) fn admit(&mut self, tx: &mut Tx, name: &DagName, admission: Admission) {
        for preemption in admission.preempt {
            self.preempt(tx, preemption);
        }
        self.assign(tx, name, admission.choice, Handover::MakeBeforeBreak)
            .expect("it was tried on copies of the same ledger and rows");
    }

    fn why_no_card(&self) -> String {
        let reasons = self.absent.iter().map(|(id, why)| format!("card {id}: {why}"));
        let text = reasons.collect::<Vec<_>>().join("; ");
        if text.is_empty() { "the daemon has none in its settings".into() } else { text }
    }

    /// Gives a DAG a place: books the plan on its card, notes what its regions are to hold, and has
    /// its rows follow.
    ///
    /// # Errors
    /// Where the card has no room for it, or no rows; nothing has changed then.
    pub(crate) fn assign(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        choice: Choice,
        handover: Handover,
    ) -> Result<(), ControlError> {
        let Choice { card: id, plan } = choice;
        let entry = self.dags.get(name).expect("only a DAG that exists is given a place");
        let (serving, withdrawn) = match handover {
            Handover::MakeBeforeBreak => (entry.serves_meanwhile(), entry.gives_way()),
            Handover::AtOnce => (entry.previous(), entry.desired()),
        };
        let old = serving.and_then(|serving| self.reservation_of(serving));
        let reservation =
            old.map_or_else(|| plan.reservation.clone(), |old| plan.reservation.max(&old));
        let booking = Booking { name, plan: &plan, reservation, withdrawn };
        let card = self.cards.get_mut(&id).expect("a choice names a card that is known");
        let rows = card.book(booking, self.registry.catalogue())?;
        // A DAG may be given a place for more than it asks for.
        let (spec, holds) = (entry.spec().clone(), plan.reservation.ingress());
        let placement = Placement {
            serial: entry.next_serial(),
            generation: entry.generation(),
            burst: (holds > spec.bandwidth).then_some(holds),
            spec,
            mapping: plan.mapping,
            stage_row: rows.stage,
            chain_row: rows.chain,
            instance_row: rows.instance,
        };
        if withdrawn.is_some() {
            self.take_away(name, Some(&id));
        }
        for load in &plan.loads {
            self.set_content(tx, &id, load.region, Some(&load.bitstream));
        }
        let stored = storable(&plan.explanation, EXPLANATION_BYTES_MAX);
        tx.put(Record::Explanation(name.clone(), stored));
        let entry = self.dags.get_mut(name).expect("it was there before");
        entry.begin(placement);
        entry.explanation = Some(plan.explanation);
        self.move_rules(tx, name);
        self.unscheduled.remove(name);
        self.dirty_dags.insert(name.clone());
        for load in plan.loads {
            self.emit_region(tx, &id, load.region);
        }
        Ok(())
    }

    /// What a placement reserves.
    pub(crate) fn reservation_of(&self, placement: &Placement) -> Option<Reservation> {
        let spec = DagSpec { bandwidth: placement.holds(), ..placement.spec.clone() };
        let dag = Dag::new(spec).ok()?;
        Some(Reservation::of(&placement.mapping, &dag, self.registry.catalogue()))
    }

    /// Makes the ledger hold what the DAG's placements need now.
    pub(crate) fn hold_again(&mut self, name: &DagName) {
        let entry = self.dags.get(name).expect("only a DAG that exists holds anything");
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

    /// Takes a DAG's desired placement away, and gives its rows and reservation back; what serves
    /// meanwhile stays. Its rows leave the target tables with the next refresh.
    pub(crate) fn uninstall(&mut self, name: &DagName) {
        self.take_away(name, None);
        self.hold_again(name);
    }

    /// The same, but on the card `booked` rows and reservation are those of another placement already.
    fn take_away(&mut self, name: &DagName, booked: Option<&CardId>) {
        let entry = self.dags.get_mut(name).expect("what is taken away is of a DAG");
        let Some(Left { placement, in_target }) = entry.withdraw() else { return };
        let uid = entry.uid();
        let id = placement.mapping.card.clone();
        let card = self.cards.get_mut(&id).expect("a placement is on a card that is known");
        if in_target {
            card.tables.clear_dag(name, uid, &placement);
        }
        if entry.target().is_none() {
            card.let_go_of_pages(name, &BTreeSet::new());
        }
        card.tables.touch(name);
        if booked != Some(&id) {
            card.rows.give(&placement);
            card.ledger.release(name);
        }
        self.capacity_freed = true;
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
    pub(crate) fn replace(&mut self, tx: &mut Tx, name: &DagName, spec: DagSpec) {
        let entry = self.dags.get(name).expect("only a DAG that exists is placed");
        let dag = Dag::new(spec).expect("it was checked when it was admitted");
        let previous = entry.previous().cloned();
        let result = self
            .choose(name, &dag, previous.as_ref())
            .and_then(|choice| self.assign(tx, name, choice, Handover::MakeBeforeBreak));
        if let Err(error) = result {
            self.unscheduled.insert(name.clone());
            let operation = self.dags.get(name).and_then(|e| e.operation.clone());
            if let Some(operation) = operation {
                self.end_operation(tx, &operation, Err(error.clone()));
            }
            if let Some(entry) = self.dags.get_mut(name) {
                entry.refused(match error {
                    ControlError::Refused(refusal) => Some(refusal),
                    _ => None,
                });
            }
        }
        self.store_dag(tx, name);
        self.dirty_dags.insert(name.clone());
    }

    /// Tries again to place the DAGs that have no place, by name. Time O(DAGs without a place).
    pub(crate) fn place_unscheduled(&mut self, tx: &mut Tx) {
        for name in self.unscheduled.clone() {
            let Some(entry) = self.dags.get(&name) else {
                self.unscheduled.remove(&name);
                continue;
            };
            let spec = entry.spec().clone();
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
        let bitstream = content.and_then(|b| self.registry.bitstream(b)).cloned();
        let card = self.cards.get_mut(id).expect(KNOWN);
        if card.region(region).and_then(Region::bitstream) == content {
            return;
        }
        let fits = card.ledger.set_content(region, bitstream.as_ref(), self.registry.catalogue());
        debug_assert!(fits.is_ok(), "the content of a region in use was changed: {fits:?}");
        card.regions.set_desired(region, bitstream.as_ref(), self.now);
        card.tables.clear_region(region);
        if card.region(region).is_some_and(Region::is_loaded) {
            self.target_region(id, region);
        }
        self.store_region(tx, id, region);
    }

    /// A region that nobody needs and that does not hold what it was to hold keeps what it does
    /// hold, as a victim, if that is known; else it is free.
    pub(crate) fn keep_as_victim(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) {
        let card = self.cards.get(id).expect(KNOWN);
        let Some(entry) = card.region(region) else { return };
        let is_loading = card.regions.is_loading(region);
        if !card.ledger.is_unused(region) || entry.is_loaded() || is_loading {
            return;
        }
        let content = match entry.observed() {
            ObservedContent::Holds(digest) => self
                .registry
                .catalogue()
                .bitstreams()
                .find(|b| b.digest == digest && b.card_model == card.profile.model)
                .map(|b| b.id.clone()),
            ObservedContent::Unknown if entry.bitstream().is_some() => return,
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
            let uses = |p: Option<&Placement>| p.is_some_and(|p| p.mapping.uses(region));
            let (placement, previous) = (uses(entry.desired()), uses(entry.previous()));
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
            if let Some(spec) = self.dags.get(&name).map(|e| e.spec().clone()) {
                self.replace(tx, &name, spec);
            }
        }
    }

    /// The card has a DAG's desired placement: gives back what served until now.
    pub(crate) fn finish_move(&mut self, tx: &mut Tx, name: &DagName) {
        let left = self.dags.get_mut(name).and_then(DagEntry::arrived);
        left.into_iter().for_each(|left| self.give_back(tx, name, left));
    }

    /// Gives back what served a DAG until its move was done.
    pub(crate) fn drop_previous(&mut self, tx: &mut Tx, name: &DagName) {
        let left = self.dags.get_mut(name).and_then(DagEntry::leave);
        left.into_iter().for_each(|left| self.give_back(tx, name, left));
    }

    fn give_back(&mut self, tx: &mut Tx, name: &DagName, left: Left) {
        let Left { placement, in_target } = left;
        let uid = self.dags[name].uid();
        let id = placement.mapping.card.clone();
        let card = self.cards.get_mut(&id).expect("a placement is on a card that is known");
        if in_target {
            card.tables.clear_dag(name, uid, &placement);
            card.let_go_of_pages(name, &BTreeSet::new());
        }
        card.rows.give(&placement);
        card.ledger.release(name);
        self.hold_again(name);
        self.loosen(&id, regions_of(&placement));
        self.dirty_dags.insert(name.clone());
        self.store_dag(tx, name);
    }

    /// A bitstream that failed wherever it was loaded is not planned with any more.
    pub(crate) fn reject_bitstream(&mut self, tx: &mut Tx, id: &BitstreamId, reason: String) {
        self.registry.reject_bitstream(tx, id, reason);
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
                .regions
                .iter()
                .filter(|(_, entry)| entry.bitstream() == Some(id))
                .map(move |(region, _)| (card.clone(), region))
                .collect::<Vec<_>>()
        };
        self.cards.iter().flat_map(on).collect()
    }

    /// Takes a DAG off its card for good: rows, reservation, UID. Says which card has to be told.
    pub(crate) fn evict(&mut self, tx: &mut Tx, name: &DagName) -> Option<CardId> {
        let uid = self.dags.get(name)?.uid();
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
