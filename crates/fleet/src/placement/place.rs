//! The card for one DAG, or for each of several.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use snic_domain::{Dag, DagName, Infeasible};
use snic_planner::{Effort, Ledger, Plan, PlanRequest, plan_within};

use super::constraints::{CardConstraints, CardPolicy, Constraint, PlacementRefused};
use super::index::CardSlot;
use super::inventory::{CardEntry, Inventory};
use super::walk::{Query, Walk};
use crate::FleetCard;

/// Most cards that one request has a plan made on: a plan takes some ten microseconds and may take a millisecond.
pub(super) const PLANS_MAX: usize = 16;
/// Of the work that is left to a request, the part that the next plan may use up: one in this many.
const EFFORT_PARTS: usize = 4;

/// A DAG to be placed.
#[derive(Debug, Clone, Copy)]
pub struct PlaceDag<'a> {
    /// Its name.
    pub name: &'a DagName,
    /// Its spec.
    pub dag: &'a Dag,
    /// Where it may go.
    pub constraints: &'a CardConstraints,
    /// Which card is taken of those.
    pub policy: CardPolicy,
}

/// A card and the placement there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagChoice {
    /// The card.
    pub card: FleetCard,
    /// The placement on it, valid for its mirrored ledger as it is.
    pub plan: Plan,
}

/// What was found out about cards by planning on them.
#[derive(Debug, Default)]
pub(super) struct Tried {
    effort: Effort,
    cards: BTreeSet<CardSlot>,
    /// Profiles on whose empty cards there is no plan.
    pristine: BTreeSet<usize>,
    first: Option<Infeasible>,
}

impl Tried {
    /// A plan on a card; `Err` says how to go on without.
    pub fn plan(
        &mut self,
        query: &Query<'_>,
        (slot, card): (CardSlot, &CardEntry),
        (name, dag): (&DagName, &Dag),
    ) -> Result<Plan, ControlFlow<(), Walk>> {
        if card.summary.is_pristine && self.pristine.contains(&card.profile) {
            return Err(ControlFlow::Continue(Walk::SkipAlike));
        }
        if self.cards.len() >= PLANS_MAX {
            return Err(ControlFlow::Break(()));
        }
        let request = PlanRequest { name, dag, previous: None };
        let catalogue = query.inventory.catalogue();
        let planned = self
            .effort
            .share(EFFORT_PARTS, |effort| plan_within(&card.ledger, catalogue, &request, effort));
        planned.map_err(|infeasible| {
            self.first.get_or_insert(infeasible);
            self.cards.insert(slot);
            if card.summary.is_pristine {
                self.pristine.insert(card.profile);
                return ControlFlow::Continue(Walk::SkipAlike);
            }
            ControlFlow::Continue(Walk::On)
        })
    }

    fn constraint(&self, slot: CardSlot, card: &CardEntry) -> Constraint {
        let is_alike = card.summary.is_pristine && self.pristine.contains(&card.profile);
        if is_alike || self.cards.contains(&slot) {
            Constraint::NoPlan
        } else {
            Constraint::NotTried
        }
    }

    /// The reasons by host. Time O(cards).
    pub fn refusal(self, query: &Query<'_>) -> PlacementRefused {
        let mut hosts: BTreeMap<Constraint, usize> = BTreeMap::new();
        for (id, host) in query.inventory.host_entries() {
            let of_cards = || {
                host.slots.iter().map(|slot| {
                    let card = query.inventory.entry(*slot);
                    query.card_fails(card).unwrap_or_else(|| self.constraint(*slot, card))
                })
            };
            let failed = query.host_fails(id, host).or_else(|| of_cards().max());
            *hosts.entry(failed.unwrap_or(Constraint::NoCard)).or_default() += 1;
        }
        PlacementRefused { hosts, first: self.first }
    }
}

impl Inventory {
    /// The card for a DAG; changes nothing. The same inventory gives the same choice on every machine. Up to sixteen
    /// cards are planned on, which [`Constraint::NotTried`] says where it was not enough.
    ///
    /// # Errors
    ///
    /// [`PlacementRefused`] with what each host failed.
    pub fn place(&self, request: &PlaceDag<'_>) -> Result<DagChoice, Box<PlacementRefused>> {
        let dag = (&request.name.tenant, request.dag);
        let query = Query::new(self, request.constraints, request.policy, Some(dag));
        let (mut tried, mut choice) = (Tried::default(), None);
        query.walk(|slot, card| {
            match tried.plan(&query, (slot, card), (request.name, request.dag)) {
                Ok(plan) => {
                    choice = Some(DagChoice { card: card.name.clone(), plan });
                    ControlFlow::Break(())
                }
                Err(on) => on,
            }
        });
        choice.ok_or_else(|| Box::new(tried.refusal(&query)))
    }

    /// A card for each DAG, in order, and holds their reservations: all or none of them.
    ///
    /// # Errors
    ///
    /// Which DAG found none, beside those before it, and why. Nothing is reserved then.
    pub fn place_batch(
        &mut self,
        requests: &[PlaceDag<'_>],
    ) -> Result<Vec<DagChoice>, (usize, Box<PlacementRefused>)> {
        let mut choices: Vec<DagChoice> = Vec::with_capacity(requests.len());
        let mut before: BTreeMap<CardSlot, Ledger> = BTreeMap::new();
        for (index, request) in requests.iter().enumerate() {
            match self.place(request) {
                Ok(choice) => {
                    let slot = self.slot_of(&choice.card).expect("a card of this inventory");
                    before.entry(slot).or_insert_with(|| self.entry(slot).ledger.clone());
                    let (loads, reservation) = (&choice.plan.loads, &choice.plan.reservation);
                    self.hold(&choice.card, request.name, loads, reservation.clone())
                        .expect("the plan was made on this ledger");
                    choices.push(choice);
                }
                Err(refused) => {
                    for done in &requests[..index] {
                        self.release(done.name);
                    }
                    before.into_iter().for_each(|(slot, ledger)| self.set_ledger(slot, ledger));
                    return Err((index, refused));
                }
            }
        }
        Ok(choices)
    }
}
