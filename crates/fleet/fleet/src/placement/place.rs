//! The card for a DAG.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use snic_domain::{BitstreamId, Dag, DagName, Infeasible, Mapping};
use snic_planner::{Effort, Ledger, Plan, PlanRequest, RegionLoad, plan, plan_within};

use super::constraints::{CardConstraints, CardPolicy, Constraint, PlacementRefused};
use super::index::CardSlot;
use super::inventory::{CardEntry, Inventory, set_and_hold};
use super::walk::{Query, WalkDecision};
use crate::{FleetCard, HostId};

/// Most cards that one request has a plan made on: a plan takes some ten microseconds and may take a millisecond.
pub(super) const PLANS_MAX: usize = 16;
/// Part of a request's remaining work that the next plan may use up: one in this many.
const EFFORT_PARTS: usize = 4;

/// A DAG to be placed.
#[derive(Debug, Clone, Copy)]
pub struct PlaceDag<'a> {
    pub name: &'a DagName,
    pub dag: &'a Dag,
    /// Where it may go.
    pub constraints: &'a CardConstraints,
    /// Order of the cards that have room.
    pub policy: CardPolicy,
}

/// A card and the placement there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagChoice {
    pub card: FleetCard,
    /// The placement on it, valid for its mirrored ledger as it is.
    pub plan: Plan,
}

/// Findings about cards from planning on them.
#[derive(Debug, Default)]
pub(super) struct TrialFindings {
    effort: Effort,
    cards: BTreeSet<CardSlot>,
    /// Cards whose host lacks an image that the plan would load.
    without_image: BTreeSet<CardSlot>,
    /// Cards where the plan needs bandwidth that is reserved for others.
    without_kept: BTreeSet<CardSlot>,
    /// Profiles on whose empty cards there is no plan.
    pristine: BTreeSet<usize>,
    /// Loads of the plan on an empty card of a profile, where a host was found that does not have the images.
    pristine_loads: BTreeMap<usize, Vec<BitstreamId>>,
    first: Option<Infeasible>,
}

impl TrialFindings {
    /// A plan on a card; `Err` says how to go on without.
    pub fn plan(
        &mut self,
        query: &Query<'_>,
        at: (CardSlot, &CardEntry),
        dag: (&DagName, &Dag),
    ) -> Result<Plan, ControlFlow<(), WalkDecision>> {
        self.plan_on(query, at, &at.1.ledger, dag)
    }

    /// Number of regions to be loaded for DAGs that are placed one after the other on a card.
    pub fn plan_all(
        &mut self,
        query: &Query<'_>,
        (slot, card): (CardSlot, &CardEntry),
        dags: &[(&DagName, &Dag)],
    ) -> Result<usize, ControlFlow<(), WalkDecision>> {
        let (mut loads, mut after) = (0, None);
        for (number, dag) in dags.iter().enumerate() {
            let ledger = after.as_ref().unwrap_or(&card.ledger);
            let plan = self.plan_on(query, (slot, card), ledger, *dag)?;
            loads += plan.loads.len();
            if number + 1 < dags.len() {
                let ledger = after.get_or_insert_with(|| card.ledger.clone());
                let what = (plan.loads.as_slice(), plan.reservation);
                if set_and_hold(ledger, query.inventory.catalogue(), dag.0, what).is_err() {
                    self.cards.insert(slot);
                    return Err(ControlFlow::Continue(WalkDecision::On));
                }
            }
        }
        Ok(loads)
    }

    fn plan_on(
        &mut self,
        query: &Query<'_>,
        (slot, card): (CardSlot, &CardEntry),
        ledger: &Ledger,
        (name, dag): (&DagName, &Dag),
    ) -> Result<Plan, ControlFlow<(), WalkDecision>> {
        if card.summary.is_pristine && self.pristine.contains(&card.profile) {
            return Err(ControlFlow::Continue(WalkDecision::SkipAlike));
        }
        if self.lacks_known(query, card) {
            return Err(ControlFlow::Continue(WalkDecision::On));
        }
        if self.cards.len() + self.without_image.len() + self.without_kept.len() >= PLANS_MAX {
            return Err(ControlFlow::Break(()));
        }
        let request = PlanRequest { name, dag, previous: None };
        let catalogue = query.inventory.catalogue();
        let planned = self
            .effort
            .share(EFFORT_PARTS, |effort| plan_within(ledger, catalogue, &request, effort));
        let plan = planned.map_err(|infeasible| {
            self.first.get_or_insert(infeasible);
            self.cards.insert(slot);
            if card.summary.is_pristine {
                self.pristine.insert(card.profile);
                return ControlFlow::Continue(WalkDecision::SkipAlike);
            }
            ControlFlow::Continue(WalkDecision::On)
        })?;
        if !card.spares_kept(name, &plan.reservation) {
            self.without_kept.insert(slot);
            return Err(ControlFlow::Continue(WalkDecision::On));
        }
        if query.inventory.has_images(&card.name.host, &plan.loads) {
            return Ok(plan);
        }
        self.without_image.insert(slot);
        if card.summary.is_pristine {
            let loads = plan.loads.into_iter().map(|load| load.bitstream).collect();
            self.pristine_loads.insert(card.profile, loads);
        }
        Err(ControlFlow::Continue(WalkDecision::On))
    }

    /// Whether it is an empty card like one that was planned on, of a host that lacks an image for it.
    fn lacks_known(&self, query: &Query<'_>, card: &CardEntry) -> bool {
        let loads = self.pristine_loads.get(&card.profile).filter(|_| card.summary.is_pristine);
        let host = query.inventory.host_entry(&card.name.host);
        loads.zip(host).is_some_and(|(loads, host)| loads.iter().any(|id| !host.images.has(id)))
    }

    pub fn constraint(&self, query: &Query<'_>, slot: CardSlot, card: &CardEntry) -> Constraint {
        let is_alike = card.summary.is_pristine && self.pristine.contains(&card.profile);
        if is_alike || self.cards.contains(&slot) {
            Constraint::NoPlan
        } else if self.without_kept.contains(&slot) {
            Constraint::BandwidthReserved
        } else if self.without_image.contains(&slot) || self.lacks_known(query, card) {
            Constraint::Image
        } else {
            Constraint::NotTried
        }
    }

    /// The reasons by host. Time O(cards).
    pub fn refusal(self, query: &Query<'_>) -> PlacementRefused {
        self.refusal_beside(query, &BTreeSet::new())
    }

    /// The reasons of all hosts but those that were found. Time O(cards).
    pub fn refusal_beside(self, query: &Query<'_>, found: &BTreeSet<HostId>) -> PlacementRefused {
        let mut hosts: BTreeMap<Constraint, usize> = BTreeMap::new();
        let others = query.inventory.host_entries().filter(|(id, _)| !found.contains(*id));
        for (id, host) in others {
            let of_cards = || {
                host.slots.iter().map(|slot| {
                    let card = query.inventory.entry(*slot);
                    query.card_fails(card).unwrap_or_else(|| self.constraint(query, *slot, card))
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
        let query = Query::new(self, request.constraints, request.policy, dag);
        let (mut tried, mut choice) = (TrialFindings::default(), None);
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

    /// Number of hosts that fail each constraint, as far as that is seen without a plan; [`Constraint::NotTried`] counts those with nothing
    /// known against them. Time O(cards).
    pub fn survey(&self, request: &PlaceDag<'_>) -> BTreeMap<Constraint, usize> {
        let dag = (&request.name.tenant, request.dag);
        let query = Query::new(self, request.constraints, request.policy, dag);
        TrialFindings::default().refusal(&query).hosts
    }

    /// The placement of a DAG's new spec on the card where it is, in place of the mapping that it has; changes nothing.
    ///
    /// # Errors
    ///
    /// [`PlacementRefused`] with what its host failed.
    pub fn place_again(
        &self,
        request: &PlaceDag<'_>,
        before: &Mapping,
    ) -> Result<DagChoice, Box<PlacementRefused>> {
        let refused = |constraint, first| {
            Box::new(PlacementRefused { hosts: [(constraint, 1)].into(), first })
        };
        let Some((card, slot)) = self.card_of(request.name).zip(self.slot_of_dag(request.name))
        else {
            return Err(refused(Constraint::CardAffinity, None));
        };
        let of = request.constraints;
        if !of.cards.is_empty() && !of.cards.contains(card) {
            return Err(refused(Constraint::CardAffinity, None));
        }
        if of.apart_from_cards.contains(card) {
            return Err(refused(Constraint::CardAntiAffinity, None));
        }
        let asked = PlanRequest { name: request.name, dag: request.dag, previous: Some(before) };
        let plan = plan(&self.entry(slot).ledger, self.catalogue(), &asked)
            .map_err(|infeasible| refused(Constraint::NoPlan, Some(infeasible)))?;
        if !self.entry(slot).spares_kept(request.name, &plan.reservation) {
            return Err(refused(Constraint::BandwidthReserved, None));
        }
        if !self.has_images(&card.host, &plan.loads) {
            return Err(refused(Constraint::Image, None));
        }
        Ok(DagChoice { card: card.clone(), plan })
    }

    /// A placement on the card that serves a DAG still, whoever keeps new ones off it; changes nothing.
    pub fn place_back(&self, (name, dag): (&DagName, &Dag), card: &FleetCard) -> Option<DagChoice> {
        let asked = PlanRequest { name, dag, previous: None };
        let entry = self.entry(self.slot_of(card)?);
        let plan = plan(&entry.ledger, self.catalogue(), &asked).ok()?;
        if !entry.spares_kept(name, &plan.reservation) {
            return None;
        }
        let is_there = self.has_images(&card.host, &plan.loads);
        is_there.then(|| DagChoice { card: card.clone(), plan })
    }

    pub(super) fn has_images(&self, host: &HostId, loads: &[RegionLoad]) -> bool {
        let images = self.images(host);
        images.is_some_and(|images| loads.iter().all(|load| images.has(&load.bitstream)))
    }
}
