//! Plans DAGs that are to be created together, on copies of the cards.
//!
//! ```text
//!  controller ──copy──► BatchSnapshot ──plan, on another thread──► BatchPlan
//!      ▲                                                                  │
//!      └── each step is tried on a new copy; if one does not fit: plan again ◄┘
//! ```
//!
//! To find the best places for many DAGs may take longer than the controller's thread may be held up. So the
//! plan is made elsewhere. When it is carried out it is only checked, in time O(state of its cards + DAGs of the
//! batch).
//!
//! First each card takes as many of its DAGs as [`plan_batch`] finds places for; what is left is decided DAG
//! by DAG, as single requests are, burst capacity of others included.

use std::cmp::Reverse;

use snic_domain::{Bandwidth, CardId, Dag, DagName, DagSpec};
use snic_planner::{
    Effort, Ledger, PlanCatalogue, PlanRequest, RegionCondition, Reservation, plan_batch,
};

use crate::decide::admission::{
    AdmissionRules, Borrower, Candidate, CardPlan, check_guaranteed, decide,
};
use crate::decide::card_choice::{Sites, fill_rank};
use crate::decide::memory_use::{MemoryAllowance, pages_of};
use crate::decide::rows::RowPool;
use crate::decide::thread_use::ThreadAllowance;
use crate::protocol::{Admission, BatchPlan, CardOrder, Choice, ControlError, Preemption};
use crate::store::records::Placement;

/// A step of a plan does not fit the cards any more: they have changed since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StalePlan;

/// Whether the NTs of a card take configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Configurations {
    /// They do, or the card has not answered yet.
    Taken,
    /// They do not.
    Refused,
}

/// The error of a card that cannot take the configurations of a DAG.
pub(crate) fn no_configurations(name: &DagName) -> ControlError {
    let why = "its card's shell cannot configure network tasks; leave the configurations out, or \
               use a card that can";
    ControlError::precondition(name, why)
}

/// A DAG that holds more than it was guaranteed.
#[derive(Debug, Clone)]
struct BorrowerCopy {
    name: DagName,
    spec: DagSpec,
    placement: Placement,
}

/// A copy of a card, with the plans on it.
#[derive(Debug, Clone)]
pub(crate) struct CardCopy {
    id: CardId,
    ledger: Ledger,
    rows: RowPool,
    is_ready: bool,
    guaranteed: Bandwidth,
    borrowers: Vec<BorrowerCopy>,
    configurations: Configurations,
}

impl CardCopy {
    pub fn new(plan: &CardPlan<'_>, configurations: Configurations) -> Self {
        let borrower = |of: &Borrower<'_>| BorrowerCopy {
            name: of.name.clone(),
            spec: of.spec.clone(),
            placement: of.placement.clone(),
        };
        Self {
            id: plan.id.clone(),
            ledger: plan.ledger.clone(),
            rows: plan.rows.clone(),
            is_ready: plan.is_ready,
            guaranteed: plan.guaranteed,
            borrowers: plan.borrowers.iter().map(borrower).collect(),
            configurations,
        }
    }

    fn plan(&self) -> CardPlan<'_> {
        fn borrower(of: &BorrowerCopy) -> Borrower<'_> {
            let BorrowerCopy { name, spec, placement } = of;
            Borrower { name, spec, placement }
        }
        CardPlan {
            id: &self.id,
            ledger: &self.ledger,
            rows: &self.rows,
            is_ready: self.is_ready,
            guaranteed: self.guaranteed,
            borrowers: self.borrowers.iter().map(borrower).collect(),
        }
    }
}

/// Usage of the batch's tenant, on which its places depend besides the cards.
#[derive(Debug, Clone)]
pub(crate) struct OfTenant {
    /// The cards of its DAGs that affinities refer to.
    pub sites: Sites,
    /// On which cards it is within its quota of memory.
    pub memory: MemoryAllowance,
    /// Threads that it may use.
    pub threads: ThreadAllowance,
}

/// Copies of the cards, on which steps are tried one after the other.
#[derive(Debug, Clone)]
pub(crate) struct ScratchCards<'a> {
    /// Copies of the cards, in order of their ids.
    cards: Vec<CardCopy>,
    catalogue: &'a PlanCatalogue,
    rules: AdmissionRules,
    /// The cards of the tenant's DAGs that affinities refer to.
    sites: Sites,
    /// On which ones the tenant is within its quota of memory.
    memory: MemoryAllowance,
    /// Threads that it may use.
    threads: ThreadAllowance,
}

impl<'a> ScratchCards<'a> {
    /// The cards are in the order of their ids.
    pub fn new(
        cards: Vec<CardCopy>,
        catalogue: &'a PlanCatalogue,
        rules: AdmissionRules,
        of_tenant: OfTenant,
    ) -> Self {
        let OfTenant { sites, memory, threads } = of_tenant;
        Self { cards, catalogue, rules, sites, memory, threads }
    }

    /// Gives a new DAG its place, as the controller would.
    ///
    /// # Errors
    /// A step does not fit. What was done before it stays: such a board is of no use.
    pub fn admit(
        &mut self,
        name: &DagName,
        dag: &Dag,
        admission: &Admission,
    ) -> Result<(), StalePlan> {
        if dag.bandwidth() > self.rules.policy.dag_bandwidth_max {
            return Err(StalePlan);
        }
        let at = self.card(&admission.choice.card)?;
        let affinity = &dag.spec().card_affinity;
        if !self.sites.wishes(name, affinity).allow(&admission.choice.card) {
            return Err(StalePlan);
        }
        let (to, pages) = (Some(&admission.choice.card), pages_of(self.catalogue, dag.spec()));
        self.memory.check(to, &pages).map_err(|_| StalePlan)?;
        let mapping = &admission.choice.plan.mapping;
        self.threads.check(mapping).map_err(|_| StalePlan)?;
        admission.preempt.iter().try_for_each(|preemption| self.preempt(preemption))?;
        let (catalogue, policy) = (self.catalogue, self.rules.policy);
        let card = &mut self.cards[at];
        check_guaranteed(policy, &card.plan(), dag.bandwidth()).map_err(|_| StalePlan)?;
        hold(card, catalogue, name, dag, &admission.choice)?;
        card.guaranteed += dag.bandwidth();
        self.sites.count_placed(name, affinity, &admission.choice.card);
        self.memory.count_placed(to, &pages);
        self.threads.count_placed(mapping);
        Ok(())
    }

    fn card(&self, id: &CardId) -> Result<usize, StalePlan> {
        self.cards.binary_search_by(|card| card.id.cmp(id)).map_err(|_| StalePlan)
    }

    /// A DAG gives its burst capacity back.
    fn preempt(&mut self, preemption: &Preemption) -> Result<(), StalePlan> {
        let Preemption { name, serial, choice } = preemption;
        let at = self.card(&choice.card)?;
        let card = &mut self.cards[at];
        let is_it = |of: &BorrowerCopy| of.name == *name && of.placement.serial == *serial;
        let borrower = card.borrowers.iter().position(is_it).ok_or(StalePlan)?;
        let BorrowerCopy { spec, placement, .. } = card.borrowers.remove(borrower);
        card.rows.give(&placement);
        let dag = Dag::new(spec).map_err(|_| StalePlan)?;
        hold(card, self.catalogue, name, &dag, choice)
    }
}

/// Books a plan on a copy of a card: what its regions hold, what it takes, and its rows.
fn hold(
    card: &mut CardCopy,
    catalogue: &PlanCatalogue,
    name: &DagName,
    dag: &Dag,
    choice: &Choice,
) -> Result<(), StalePlan> {
    let plan = &choice.plan;
    let outdated = |_| StalePlan;
    for load in &plan.loads {
        let content = catalogue.bitstream(&load.bitstream).ok_or(StalePlan)?;
        if card.ledger.content(load.region).map(|held| &held.id) != load.replaces.as_ref() {
            return Err(StalePlan);
        }
        let set = card.ledger.set_content(load.region, Some(content), catalogue);
        set.map_err(|_| StalePlan)?;
    }
    for instance in plan.mapping.instances() {
        let held = card.ledger.content(instance.region);
        let held = held.filter(|content| content.id == instance.bitstream).ok_or(StalePlan)?;
        let is_usable = card.ledger.condition(instance.region) == RegionCondition::Usable;
        if !is_usable || !catalogue.lets_pass(held, &name.tenant, dag.spec()) {
            return Err(StalePlan);
        }
    }
    let takes = Reservation::of(&plan.mapping, dag, catalogue, card.ledger.profile());
    if takes != plan.reservation {
        return Err(StalePlan);
    }
    card.ledger.hold(name, takes).map_err(|_| StalePlan)?;
    card.rows.take(&plan.mapping).map(|_| ()).map_err(outdated)
}

/// A DAG of a batch that may be created if there is a place for it.
#[derive(Debug, Clone)]
pub(crate) struct BatchCandidate {
    /// Its index in the batch.
    pub index: usize,
    pub name: DagName,
    pub dag: Dag,
}

/// The cards as they were when a batch was asked for, and the DAGs that may be created.
#[derive(Debug, Clone)]
pub struct BatchSnapshot {
    pub(crate) cards: Vec<CardCopy>,
    pub(crate) catalogue: PlanCatalogue,
    pub(crate) rules: AdmissionRules,
    pub(crate) candidates: Vec<BatchCandidate>,
    pub(crate) of_tenant: OfTenant,
    /// Why there is no card, if there is none.
    pub(crate) no_card_reason: String,
}

impl BatchSnapshot {
    /// Places as many DAGs as it can.
    ///
    /// Time: O(DAGs × cards) plans, and for each card a search with a bounded number of steps.
    pub fn plan(&self) -> BatchPlan {
        let (cards, of_tenant) = (self.cards.clone(), self.of_tenant.clone());
        let board = ScratchCards::new(cards, &self.catalogue, self.rules, of_tenant);
        let mut planning = Planning { of: self, board, plan: BatchPlan::default() };
        let mut left = planning.together();
        left.sort_unstable();
        left.into_iter().for_each(|at| planning.alone(at));
        planning.plan
    }
}

/// A plan that is being made.
struct Planning<'a> {
    of: &'a BatchSnapshot,
    board: ScratchCards<'a>,
    plan: BatchPlan,
}

impl Planning<'_> {
    /// Places on each card as many of its DAGs as go together; gives back the others, and those that may
    /// not go to every card.
    fn together(&mut self) -> Vec<usize> {
        let (bound, free): (Vec<usize>, Vec<usize>) =
            (0..self.of.candidates.len()).partition(|at| self.is_bound(*at));
        let mut left = self.anywhere(free);
        left.extend(bound);
        left
    }

    /// Whether a DAG has an affinity, or another DAG's affinity names it.
    fn is_bound(&self, at: usize) -> bool {
        let BatchCandidate { name, dag, .. } = &self.of.candidates[at];
        let names_it =
            |other: &BatchCandidate| other.dag.spec().card_affinity.apart_from.contains(name);
        let affinity = &dag.spec().card_affinity;
        !affinity.is_none()
            || !self.board.sites.wishes(name, affinity).is_none()
            || self.of.candidates.iter().any(names_it)
    }

    /// The same, for DAGs that may go to every card.
    fn anywhere(&mut self, all: Vec<usize>) -> Vec<usize> {
        let mut left = Vec::new();
        for (card, mut own) in self.divided(all) {
            own.append(&mut left);
            own.sort_unstable();
            left = self.on_card(card, own);
        }
        left
    }

    /// The cards in the order of the policy, each with the DAGs that are tried there first: all of them on the
    /// first card where the policy packs, else the widest first where least is promised.
    fn divided(&self, all: Vec<usize>) -> Vec<(usize, Vec<usize>)> {
        let cards = &self.board.cards;
        let order = self.of.rules.order;
        let mut ranked: Vec<usize> = (0..cards.len()).collect();
        ranked
            .sort_by_cached_key(|at| (!cards[*at].is_ready, fill_rank(order, &cards[*at].ledger)));
        let mut divided: Vec<_> = ranked.into_iter().map(|at| (at, Vec::new())).collect();
        if order == CardOrder::Pack {
            if let Some((_, first)) = divided.first_mut() {
                first.extend(all);
            }
            return divided;
        }
        let mut promised: Vec<(bool, u64)> = divided
            .iter()
            .map(|(at, _)| (!cards[*at].is_ready, cards[*at].ledger.promised_ppb()))
            .collect();
        let bandwidth = |at: usize| self.of.candidates[at].dag.bandwidth().get();
        let mut widest = all;
        widest.sort_by_key(|at| (Reverse(bandwidth(*at)), *at));
        for at in widest {
            let Some(to) = (0..divided.len()).min_by_key(|to| (promised[*to], *to)) else { break };
            let ingress = cards[divided[to].0].ledger.profile().ingress.get().max(1);
            let share = u128::from(bandwidth(at)) * 1_000_000_000 / u128::from(ingress);
            promised[to].1 =
                promised[to].1.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
            divided[to].1.push(at);
        }
        divided
    }

    /// Places as many of these DAGs on a card as it can; gives back the others.
    fn on_card(&mut self, card: usize, candidates: Vec<usize>) -> Vec<usize> {
        let copy = &self.board.cards[card];
        let limit = self.of.rules.policy.dag_bandwidth_max;
        let takes = |at: &usize| {
            let dag = &self.of.candidates[*at].dag;
            let configures = copy.configurations == Configurations::Taken;
            dag.bandwidth() <= limit && (configures || dag.spec().configurations() == 0)
        };
        let (tried, mut left): (Vec<usize>, Vec<usize>) = candidates.into_iter().partition(takes);
        let requests: Vec<PlanRequest<'_>> = tried
            .iter()
            .map(|at| &self.of.candidates[*at])
            .map(|BatchCandidate { name, dag, .. }| PlanRequest { name, dag, previous: None })
            .collect();
        let batch = plan_batch(&copy.ledger, &self.of.catalogue, &requests);
        let id = copy.id.clone();
        let mut is_placed = vec![false; tried.len()];
        for (at, plan) in batch.plans() {
            let choice = Choice { card: id.clone(), plan: plan.clone() };
            let admission = Admission { choice, preempt: Vec::new() };
            // Sums know neither runs of table rows nor what the policy lets be guaranteed.
            let before = self.board.cards[card].clone();
            if !self.admit(tried[at], admission) {
                self.board.cards[card] = before;
                break; // Later plans may need what this one loads.
            }
            is_placed[at] = true;
        }
        left.extend(tried.iter().zip(&is_placed).filter(|(_, placed)| !**placed).map(|(at, _)| at));
        left
    }

    /// Decides about a DAG as about a single request.
    fn alone(&mut self, at: usize) {
        let BatchCandidate { index, name, dag } = &self.of.candidates[at];
        let wishes = self.board.sites.wishes(name, &dag.spec().card_affinity);
        let (serving, withdrawn) = (None, None);
        let memory = &self.board.memory;
        let threads = self.board.threads;
        let candidate =
            Candidate { name, dag, serving, withdrawn, wishes: &wishes, memory, threads };
        let cards: Vec<CardPlan<'_>> = self.board.cards.iter().map(CardCopy::plan).collect();
        let decided = decide(&cards, &self.of.catalogue, self.of.rules, &candidate, &Effort::new())
            .map_err(|rejection| rejection.into_error(dag, || self.of.no_card_reason.clone()))
            .and_then(|admission| self.check_configurations(name, dag, admission));
        match decided {
            Ok(admission) => {
                let is_admitted = self.admit(at, admission);
                assert!(is_admitted, "it was decided on the same copies");
            }
            Err(error) => self.plan.rejected.push((*index, error)),
        }
    }

    fn check_configurations(
        &self,
        name: &DagName,
        dag: &Dag,
        admission: Admission,
    ) -> Result<Admission, ControlError> {
        let card = self.board.card(&admission.choice.card);
        let refuses =
            card.is_ok_and(|at| self.board.cards[at].configurations == Configurations::Refused);
        if refuses && dag.spec().configurations() > 0 {
            return Err(no_configurations(name));
        }
        Ok(admission)
    }

    /// Notes an admission that fits; `false` where it does not.
    fn admit(&mut self, at: usize, admission: Admission) -> bool {
        let BatchCandidate { index, name, dag } = &self.of.candidates[at];
        if self.board.admit(name, dag, &admission).is_err() {
            return false;
        }
        self.plan.admitted.push((*index, admission));
        true
    }
}
