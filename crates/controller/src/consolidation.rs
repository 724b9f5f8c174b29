//! A better arrangement of what is deployed, carried out move by move.
//!
//! ```text
//! asked for, or something was freed a while ago ── planner ──> moves ──┐
//!       ▲                                                              ▼
//!       └── things changed meanwhile ──  one move: make before break, as a drain does
//! ```
//!
//! On its own it looks once, a while after the first thing that was freed, and a pass that brings
//! something frees something: so it looks again, until there is nothing to gain. That ends: every
//! pass leaves fewer regions in use, or as many and fewer passes.
//!
//! One DAG of a card moves at a time. Its new place is loaded, reserved and served before the old
//! one is left (see `placement`), so nothing is lost wherever this ends. Only the operation is
//! stored: after a crash the moves are looked for anew, in what was reached.

use std::collections::{BTreeMap, VecDeque};

use snic_bitstream::manifest::Manifest;
use snic_domain::{CardId, Dag, DagName, Mapping, OperationId, RegionId};
use snic_planner::{
    Budget, Consolidation, Move, Plan, Recommendation, Refused, RegionCondition, Resident,
    Underfilled, optimize, recommend,
};

use crate::admission::Choice;
use crate::card::ConnectionState;
use crate::placement::{Handover, regions_of};
use crate::protocol::{
    ConsolidationSettings, ConsolidationView, ControlError, MoveView, RecommendationView, Reply,
    Work,
};
use crate::state::Controller;
use crate::tx::Tx;

/// How often the moves are looked for anew because things changed, before the pass ends.
const ROUNDS_MAX: u32 = 8;

/// A pass under way.
#[derive(Debug, Clone)]
pub(crate) struct Consolidating {
    card: CardId,
    reconfigurations_left: u32,
    rounds_left: u32,
    /// What is still to be done, each with the serial of the placement that it begins with.
    moves: VecDeque<(Move, u64)>,
}

/// A DAG that has a place, owned, for the planner.
type Place = (DagName, Dag, Mapping, u64);

fn residents(places: &[Place]) -> Vec<Resident<'_>> {
    places.iter().map(|(name, dag, mapping, _)| Resident { name, dag, mapping }).collect()
}

impl Controller {
    /// The DAGs that a card serves and that nothing is under way for. What is lent to a DAG stays
    /// where it is until the loop takes it back; who keeps state stays too: to move it, its traffic
    /// would have to stop, and nobody asked for that.
    fn places(&self, id: &CardId) -> Vec<Place> {
        let settled = self.dags.values().filter(|e| e.is_ready() && e.previous().is_none());
        settled
            .filter_map(|entry| {
                let placement = entry.desired().filter(|p| !self.keeps_state(p))?;
                let dag =
                    Dag::new(placement.spec.clone()).ok().filter(|_| placement.burst.is_none())?;
                let (name, mapping) = (entry.name().clone(), placement.mapping.clone());
                (mapping.card == *id).then_some((name, dag, mapping, placement.serial))
            })
            .collect()
    }

    fn budget(&self, reconfigurations: u32) -> Budget {
        let ConsolidationSettings { regions_min, passes_min, .. } = self.settings.consolidation;
        Budget { reconfigurations, regions: regions_min, passes: passes_min }
    }

    /// Looks for a better arrangement of a card.
    fn arrangement(&self, id: &CardId, budget: Budget) -> (Consolidation, BTreeMap<DagName, u64>) {
        let Some(card) =
            self.cards.get(id).filter(|card| card.connection == ConnectionState::Ready)
        else {
            return (Consolidation::default(), BTreeMap::new());
        };
        let places = self.places(id);
        let found = optimize(&card.ledger, self.registry.catalogue(), &residents(&places), budget);
        let serials = places.into_iter().map(|(name, _, _, serial)| (name, serial)).collect();
        (found, serials)
    }

    /// Moves DAGs of a card together where that is worth it; `dry_run` only says which.
    pub(crate) fn optimize_card(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        dry_run: bool,
    ) -> Result<Reply, ControlError> {
        let card = self.cards.get(id).ok_or_else(|| ControlError::not_found(card_name(id)))?;
        if card.connection != ConnectionState::Ready {
            let text = "it does not answer, or is still being read; try again when it does";
            return Err(ControlError::precondition(card_name(id), text));
        }
        if dry_run {
            let most = self.settings.consolidation.reconfigurations_max;
            let (found, _) = self.arrangement(id, self.budget(most));
            return Ok(Reply::Consolidation(Box::new(self.consolidation_view(id, &found))));
        }
        let pending = self.consolidations.iter().find(|(_, c)| c.card == *id);
        let operation = match pending.map(|(operation, _)| operation.clone()) {
            Some(operation) => operation,
            None => self.begin_operation(tx, Work::OptimizeCard(id.clone())),
        };
        Ok(self.operation_reply(&operation))
    }

    fn consolidation_view(&self, id: &CardId, found: &Consolidation) -> ConsolidationView {
        let mut now: BTreeMap<&DagName, Vec<RegionId>> = BTreeMap::new();
        let mut moves = Vec::new();
        for Move { name, plan } in &found.moves {
            let placed = self.dags.get(name).and_then(|e| e.desired());
            let before = placed.map(regions_of).unwrap_or_default();
            let mut to: Vec<RegionId> = plan.mapping.instances().map(|i| i.region).collect();
            to.sort_unstable();
            to.dedup();
            let from = now.insert(name, to.clone()).unwrap_or(before);
            let loads = plan.loads.iter().map(|load| load.region).collect();
            moves.push(MoveView { dag: name.clone(), from, to, loads });
        }
        ConsolidationView {
            card: id.clone(),
            moves,
            freed: found.freed.clone(),
            taken: found.taken.clone(),
            reconfigurations: found.reconfigurations,
            passes: (found.passes_before, found.passes_after),
        }
    }

    /// Notes an operation that moves DAGs together.
    pub(crate) fn note_consolidation(&mut self, operation: &OperationId, card: &CardId) {
        let consolidating = Consolidating {
            card: card.clone(),
            reconfigurations_left: self.settings.consolidation.reconfigurations_max,
            rounds_left: ROUNDS_MAX,
            moves: VecDeque::new(),
        };
        self.consolidations.insert(operation.clone(), consolidating);
    }

    /// The next step of every pass. Time O(passes under way) where there is none to take.
    pub(crate) fn go_on_consolidating(&mut self, tx: &mut Tx) {
        self.begin_on_its_own(tx);
        let pending: Vec<OperationId> = self.consolidations.keys().cloned().collect();
        for operation in pending {
            self.consolidate(tx, &operation);
        }
    }

    /// Begins the passes for which it is time.
    fn begin_on_its_own(&mut self, tx: &mut Tx) {
        if self.consolidate_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.consolidate_at = None;
        let ready = self.cards.iter().filter(|(_, card)| card.connection == ConnectionState::Ready);
        let cards: Vec<CardId> = ready.map(|(id, _)| id.clone()).collect();
        for id in cards {
            let is_alone = !self.consolidations.values().any(|pass| pass.card == id);
            let budget = self.budget(self.settings.consolidation.reconfigurations_max);
            let moves = if is_alone { self.moves(&id, budget) } else { VecDeque::new() };
            // Without a gain there is no operation that says so.
            if moves.is_empty() {
                if self.is_under_way(&id) {
                    self.consolidate_later();
                }
                continue;
            }
            let operation = self.begin_operation(tx, Work::OptimizeCard(id));
            if let Some(pass) = self.consolidations.get_mut(&operation) {
                pass.moves = moves;
            }
        }
    }

    /// Whether a pass is under way, or DAGs on their way to a place, which could not be moved yet.
    fn is_under_way(&self, id: &CardId) -> bool {
        let mut on_card = self.dags.values().filter(|entry| entry.card() == Some(id));
        self.consolidations.values().any(|pass| pass.card == *id)
            || on_card.any(|entry| !entry.is_ready() || entry.previous().is_some())
    }

    /// The moves to a better arrangement, each with the serial of the placement it begins with.
    fn moves(&self, id: &CardId, budget: Budget) -> VecDeque<(Move, u64)> {
        let (found, mut serials) = self.arrangement(id, budget);
        let begun = |step: Move| {
            let serial = serials.get_mut(&step.name)?;
            *serial += 1;
            Some((step, *serial - 1))
        };
        found.moves.into_iter().filter_map(begun).collect()
    }

    /// Something was freed: in a while the rest may be put together.
    pub(crate) fn consolidate_later(&mut self) {
        let at = self.settings.consolidation.after.map(|after| self.now + after);
        self.consolidate_at = self.consolidate_at.or(at);
    }

    /// Another policy: what was to come by the one before is forgotten.
    pub(crate) fn consolidate_by_policy(&mut self) {
        self.consolidate_at = None;
        self.consolidate_later();
    }

    fn consolidate(&mut self, tx: &mut Tx, operation: &OperationId) {
        let Some(pass) = self.consolidations.get(operation) else { return };
        let id = pass.card.clone();
        let is_ready =
            self.cards.get(&id).is_some_and(|card| card.connection == ConnectionState::Ready);
        let on_card = |entry: &crate::dags::DagEntry| entry.card() == Some(&id);
        if !is_ready || self.dags.values().any(|e| e.previous().is_some() && on_card(e)) {
            return;
        }
        loop {
            let Some(pass) = self.consolidations.get_mut(operation) else { return };
            let Some((next, serial)) = pass.moves.pop_front() else {
                if self.look_again(operation, &id) {
                    continue;
                }
                return self.end_operation(tx, operation, Ok(()));
            };
            let loads = u32::try_from(next.plan.loads.len()).unwrap_or(u32::MAX);
            if self.is_good(&id, &next, serial)
                && self.move_to(tx, &next.name, &id, next.plan).is_ok()
            {
                self.operations.start(operation, self.now);
                if let Some(pass) = self.consolidations.get_mut(operation) {
                    pass.reconfigurations_left = pass.reconfigurations_left.saturating_sub(loads);
                }
                return;
            }
            if let Some(pass) = self.consolidations.get_mut(operation) {
                pass.moves.clear();
            }
        }
    }

    /// Looks for moves in what there is now; `false` where the pass is at its end.
    fn look_again(&mut self, operation: &OperationId, id: &CardId) -> bool {
        let Some(pass) = self.consolidations.get_mut(operation) else { return false };
        if pass.rounds_left == 0 {
            return false;
        }
        pass.rounds_left -= 1;
        let left = pass.reconfigurations_left;
        let moves = self.moves(id, self.budget(left));
        let goes_on = !moves.is_empty();
        if let Some(pass) = self.consolidations.get_mut(operation) {
            pass.moves = moves;
        }
        goes_on
    }

    /// Whether a move is still what it was planned as.
    fn is_good(&self, id: &CardId, next: &Move, serial: u64) -> bool {
        let (Some(card), Some(entry)) = (self.cards.get(id), self.dags.get(&next.name)) else {
            return false;
        };
        let usable = |region| card.ledger.condition(region) == RegionCondition::Usable;
        let load = |region| next.plan.loads.iter().find(|load| load.region == region);
        let holds = |instance: &snic_domain::Instance| match load(instance.region) {
            Some(load) => load.bitstream == instance.bitstream,
            None => {
                card.ledger.content(instance.region).map(|b| &b.id) == Some(&instance.bitstream)
            }
        };
        entry.is_ready()
            && entry.desired().is_some_and(|p| p.serial == serial)
            && next.plan.loads.iter().all(|load| {
                card.ledger.is_unused(load.region)
                    && self.registry.bitstream(&load.bitstream).is_some()
            })
            && next.plan.mapping.instances().all(|i| usable(i.region) && holds(i))
    }

    /// Moves a DAG that is served: the old place serves until the new one does.
    fn move_to(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        card: &CardId,
        plan: Plan,
    ) -> Result<(), ControlError> {
        let choice = Choice { card: card.clone(), plan };
        self.assign(tx, name, choice, Handover::MakeBeforeBreak)?;
        self.store_dag(tx, name);
        Ok(())
    }

    /// Which bitstreams are worth building for a card, with a manifest each, and which regions are
    /// less than half full; `None` without such a card.
    pub fn recommendations(
        &self,
        id: &CardId,
    ) -> Option<(Vec<RecommendationView>, Vec<Underfilled>)> {
        let card = self.cards.get(id)?;
        let places = self.places(id);
        let refused = self.dags_without_place();
        let refused: Vec<Refused<'_>> =
            refused.iter().map(|(name, dag)| Refused { name, dag }).collect();
        let found =
            recommend(&card.ledger, self.registry.catalogue(), &residents(&places), &refused);
        let with_manifest = |recommendation: Recommendation| {
            let manifest = Manifest::new(
                &card.profile,
                &recommendation.nts,
                recommendation.region_kind,
                (recommendation.region_area, recommendation.bitstream_max),
                recommendation.area,
            );
            RecommendationView { manifest: manifest.to_toml(), recommendation }
        };
        Some((found.sequences.into_iter().map(with_manifest).collect(), found.underfilled))
    }
}

fn card_name(id: &CardId) -> String {
    format!("cards/{id}")
}
