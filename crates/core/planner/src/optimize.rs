//! Consolidation: a better arrangement of the placed DAGs, and the moves to it, make before break.
//!
//! ```text
//! for each round:    load nothing, or one bitstream into an unused region
//!   which regions could be emptied together, the least used first? (by sums, see `vacate`)
//!   the most promising option is tried, DAG by DAG, each moving once
//! the option that frees most beyond its load is kept; rounds end when none frees a region
//! then: DAGs that need fewer passes elsewhere move; where passes come first, with loads into unused regions
//! ```
//!
//! Freeing regions costs passes. Where passes come first ([`crate::Objective`]), no region is freed
//! at their expense.
//!
//! Every move is a [`Plan`] that fits beside what the DAG holds until the tables flip: the new instances
//! are loaded and reserved first, one version flip moves the packets, and the old regions become victims.
//! So every intermediate state is valid, and the sequence may stop after any move.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{Dag, DagName, Mapping, RegionId};

use crate::catalogue::PhysicalChain;
use crate::classes::fits_region;
use crate::order::Order;
use crate::plan::{PendingLoad, plan_on, plan_silently};
use crate::region::RegionCondition;
use crate::vacate::{EmptiableRegions, OccupiedRegions};
use crate::{Ledger, Plan, PlanCatalogue, PlanRequest, Reservation};

/// Most loads that are tried in a round. Usually the first or second succeeds.
const OPTIONS_MAX: usize = 8;

/// A placed DAG. The ledger holds the reservation of its mapping.
#[derive(Debug, Clone, Copy)]
pub struct Resident<'a> {
    pub name: &'a DagName,
    pub dag: &'a Dag,
    pub mapping: &'a Mapping,
}

/// The most that a consolidation may cost, and the least that it must gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub reconfigurations: u32,
    /// Fewest regions that must be freed, minus newly used ones; with fewer, DAGs move only to save
    /// passes. At least 1.
    pub regions: u32,
    /// Fewest passes, of all DAGs together, for which DAGs move without freeing a region. At least 1.
    pub passes: u32,
}

/// The move of one DAG.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    pub name: DagName,
    /// Its new placement, with the loads that come first. Valid in the state after the earlier moves.
    pub plan: Plan,
}

/// A better arrangement; no moves if none meets the budget.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Consolidation {
    pub moves: Vec<Move>,
    /// Regions that are no longer used.
    pub freed: Vec<RegionId>,
    /// Regions that were unused before.
    pub taken: Vec<RegionId>,
    /// Regions to be loaded.
    pub reconfigurations: u32,
    /// Scheduler passes of all DAGs together, before the moves.
    pub passes_before: u64,
    /// The same, after the moves.
    pub passes_after: u64,
}

/// Searches for an arrangement with fewer regions, then with fewer passes; changes nothing.
///
/// Time: O(bitstreams × regions × NTs) sums for each round, and a plan for each DAG that moves; plans
/// for all of them again a few times where memory, rows or consent are short.
pub fn optimize(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    residents: &[Resident<'_>],
    budget: Budget,
) -> Consolidation {
    let mut state = Optimizer::new(ledger, catalogue, residents);
    let passes_before = state.passes();
    let before = state.in_use();
    state.free_regions(budget.reconfigurations);
    let gain = before.len().saturating_sub(state.in_use().len());
    let costs_passes = state.ledger.order() == Order::Passes && state.passes() > passes_before;
    if gain < budget.regions.max(1) as usize || costs_passes {
        state.undo_to(0);
    }
    let mark = state.done.len();
    let passes = state.passes();
    let loads = state.done.iter().map(|step| step.plan.loads.len()).sum::<usize>();
    state.spare_passes((budget.reconfigurations as usize).saturating_sub(loads));
    if passes.saturating_sub(state.passes()) < u64::from(budget.passes.max(1)) {
        state.undo_to(mark);
    }
    let after = state.in_use();
    let loads = state.done.iter().map(|step| step.plan.loads.len()).sum::<usize>();
    Consolidation {
        freed: before.difference(&after).copied().collect(),
        taken: after.difference(&before).copied().collect(),
        reconfigurations: u32::try_from(loads).unwrap_or(u32::MAX),
        passes_before,
        passes_after: state.passes(),
        moves: state
            .done
            .into_iter()
            .map(|step| Move { name: residents[step.resident].name.clone(), plan: step.plan })
            .collect(),
    }
}

/// Moves in order: index of the DAG, and its new placement.
type Moves = Vec<(usize, Plan)>;

/// A move that was made, with what is needed to undo it.
struct AppliedMove {
    resident: usize,
    plan: Plan,
    mapping: Mapping,
    held: Option<Reservation>,
    /// Previous contents of the regions that it loads.
    contents: Vec<(RegionId, Option<snic_domain::BitstreamId>)>,
}

/// The card after the moves so far.
struct Optimizer<'a> {
    ledger: Ledger,
    catalogue: &'a PlanCatalogue,
    residents: &'a [Resident<'a>],
    numbers: BTreeMap<&'a DagName, usize>,
    mappings: Vec<Mapping>,
    done: Vec<AppliedMove>,
    /// Regions that were usable at the start: only these may be loaded or moved into.
    usable: Vec<RegionId>,
    /// Regions with DAGs that must not move.
    pinned: BTreeSet<RegionId>,
}

impl<'a> Optimizer<'a> {
    fn new(ledger: &Ledger, catalogue: &'a PlanCatalogue, residents: &'a [Resident<'a>]) -> Self {
        let usable = |r: &RegionId| ledger.condition(*r) == RegionCondition::Usable;
        let numbers: BTreeMap<_, _> = (0..).zip(residents).map(|(i, r)| (r.name, i)).collect();
        let is_pinned = |r: &RegionId| ledger.users(*r).any(|name| !numbers.contains_key(name));
        Self {
            pinned: ledger.profile().regions().map(|(r, _)| r).filter(is_pinned).collect(),
            usable: ledger.profile().regions().map(|(r, _)| r).filter(usable).collect(),
            ledger: ledger.clone(),
            catalogue,
            residents,
            numbers,
            mappings: residents.iter().map(|r| r.mapping.clone()).collect(),
            done: Vec::new(),
        }
    }

    fn passes(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.stages.len() as u64).sum()
    }

    fn in_use(&self) -> BTreeSet<RegionId> {
        let regions = self.ledger.profile().regions().map(|(region, _)| region);
        regions.filter(|region| !self.ledger.is_unused(*region)).collect()
    }

    /// Excludes unused regions: moving into one would use a region for the one it frees.
    fn close_unused(&mut self) {
        for region in self.usable.clone() {
            let condition = match self.ledger.is_unused(region) {
                true => RegionCondition::Cordoned,
                false => RegionCondition::Usable,
            };
            self.ledger.set_condition(region, condition);
        }
    }

    /// Lets plans load unused regions again.
    fn open_unused(&mut self) {
        for region in &self.usable {
            self.ledger.set_condition(*region, RegionCondition::Usable);
        }
    }

    /// Runs rounds until none frees more regions than it uses.
    fn free_regions(&mut self, most: u32) {
        let mut left = most;
        loop {
            self.close_unused();
            let Some(moves) = self.best_round(left > 0) else { return };
            let loads = moves.iter().map(|(_, plan)| plan.loads.len()).sum::<usize>();
            left = left.saturating_sub(u32::try_from(loads).unwrap_or(u32::MAX));
            for (resident, plan) in moves {
                self.make(resident, plan);
            }
        }
    }

    /// The moves, with one load or none, that free most regions beyond those they use.
    fn best_round(&mut self, may_load: bool) -> Option<Moves> {
        let start = self.done.len();
        let before = self.in_use().len();
        let (mut most, mut best) = (0, None);
        for (promised, load, emptiable) in self.options(may_load).into_iter().take(OPTIONS_MAX) {
            // A load must gain more than moves without one; later options promise no more.
            if promised <= most {
                continue;
            }
            self.empty_regions(load, &emptiable.regions);
            let gain = before.saturating_sub(self.in_use().len());
            let moves = self.undo_to(start);
            self.close_unused();
            if gain > most {
                (most, best) = (gain, Some(moves));
            }
        }
        best
    }

    /// The options of a round: no load, then the possible loads, the most promising first, and of those
    /// the one that moves the fewest DAGs.
    fn options(&self, may_load: bool) -> Vec<(usize, Option<PendingLoad<'a>>, EmptiableRegions)> {
        let occupied = self.occupied();
        let loads = if may_load { self.loads() } else { Vec::new() };
        let mut options: Vec<_> = loads
            .into_iter()
            .map(|load| {
                let emptiable = occupied.emptiable(Some(load.1));
                (emptiable.regions.len().saturating_sub(1), Some(load), emptiable)
            })
            .collect();
        options.sort_by_key(|(promised, _, emptiable)| (Reverse(*promised), emptiable.users));
        let emptiable = occupied.emptiable(None);
        options.insert(0, (emptiable.regions.len(), None, emptiable));
        options
    }

    /// Possible loads: each bitstream into the first unused region that it fits, free ones first.
    fn loads(&self) -> Vec<PendingLoad<'a>> {
        let ledger = &self.ledger;
        let mut unused: Vec<RegionId> =
            self.usable.iter().copied().filter(|r| ledger.is_replaceable(*r)).collect();
        unused.sort_by_key(|region| (ledger.chain(*region).is_some(), *region));
        let place = |chain: &&'a PhysicalChain| {
            let fits = |r: &&RegionId| {
                let region = ledger.profile().region(**r);
                region.is_some_and(|region| fits_region(**r, region, chain))
            };
            unused.iter().find(fits).copied()
        };
        self.catalogue
            .chains()
            .filter(|chain| chain.bitstream.card_model == ledger.profile().model)
            .filter_map(|chain| Some((place(&chain)?, chain)))
            .collect()
    }

    fn occupied(&self) -> OccupiedRegions {
        OccupiedRegions::of(&self.ledger, &self.usable, |region| !self.pinned.contains(&region))
    }

    /// Moves all DAGs out of these regions, each once. If one has no placement elsewhere, empties one region
    /// after the other instead.
    fn empty_regions(&mut self, load: Option<PendingLoad<'a>>, emptiable: &[RegionId]) {
        for region in emptiable {
            self.ledger.set_condition(*region, RegionCondition::Cordoned);
        }
        for (at, region) in emptiable.iter().enumerate() {
            if !self.empty(*region, load) {
                for region in &emptiable[at..] {
                    self.ledger.set_condition(*region, RegionCondition::Usable);
                }
                return self.empty_one_by_one(load);
            }
        }
    }

    fn empty_one_by_one(&mut self, load: Option<PendingLoad<'a>>) {
        let regions: Vec<RegionId> = self.occupied().regions().collect();
        for region in regions {
            if self.occupied().could_be_emptied(region, load.map(|(_, chain)| chain)) {
                self.ledger.set_condition(region, RegionCondition::Cordoned);
                if !self.empty(region, load) {
                    self.ledger.set_condition(region, RegionCondition::Usable);
                }
            }
        }
    }

    /// Moves all DAGs out of a region, or none if one of them has no placement elsewhere.
    fn empty(&mut self, region: RegionId, load: Option<PendingLoad<'a>>) -> bool {
        let start = self.done.len();
        let numbers = self.ledger.users(region).filter_map(|name| self.numbers.get(name));
        let mut users: Vec<usize> = numbers.copied().collect();
        // The widest first: they are the most likely to fail.
        users.sort_by_key(|user| (Reverse(self.residents[*user].dag.bandwidth()), *user));
        let emptied = users.into_iter().all(|user| self.relocate(user, load));
        if !emptied {
            self.undo_to(start);
        }
        emptied
    }

    /// Moves one DAG to loaded regions or to `load`.
    fn relocate(&mut self, resident: usize, load: Option<PendingLoad<'a>>) -> bool {
        let Resident { name, dag, .. } = self.residents[resident];
        let request = PlanRequest { name, dag, previous: Some(&self.mappings[resident]) };
        let pending = load.filter(|(region, chain)| {
            self.ledger.is_unused(*region) && chain.is_loadable_by(&name.tenant)
        });
        let loads: Vec<_> = pending.into_iter().collect();
        let Some(plan) = plan_on(&self.ledger, self.catalogue, &request, &loads) else {
            return false;
        };
        self.make(resident, plan);
        true
    }

    fn make(&mut self, resident: usize, plan: Plan) {
        let name = self.residents[resident].name;
        let mut contents = Vec::new();
        for load in &plan.loads {
            contents.push((load.region, self.ledger.content(load.region).map(|b| b.id.clone())));
            let content = self.catalogue.bitstream(&load.bitstream);
            let unused = self.ledger.set_content(load.region, content, self.catalogue);
            debug_assert!(unused.is_ok(), "a plan loads what nobody uses: {unused:?}");
            self.ledger.set_condition(load.region, RegionCondition::Usable);
        }
        let held = self.ledger.held(name).cloned();
        let fits = self.ledger.hold(name, plan.reservation.clone());
        debug_assert!(fits.is_ok(), "a plan never overbooks: {fits:?}");
        let mapping = std::mem::replace(&mut self.mappings[resident], plan.mapping.clone());
        self.done.push(AppliedMove { resident, plan, mapping, held, contents });
    }

    /// Undoes all moves after the first `count`; returns them in the order in which they were made.
    fn undo_to(&mut self, count: usize) -> Moves {
        let mut undone = Moves::new();
        for step in self.done.split_off(count).into_iter().rev() {
            let name = self.residents[step.resident].name;
            self.ledger.release(name);
            for (region, content) in step.contents {
                let content = content.and_then(|id| self.catalogue.bitstream(&id));
                let unused = self.ledger.set_content(region, content, self.catalogue);
                debug_assert!(unused.is_ok(), "only later moves use it: {unused:?}");
                self.ledger.set_condition(region, RegionCondition::Cordoned);
            }
            if let Some(held) = step.held {
                let fits = self.ledger.hold(name, held);
                debug_assert!(fits.is_ok(), "it was held before: {fits:?}");
            }
            self.mappings[step.resident] = step.mapping;
            undone.push((step.resident, step.plan));
        }
        undone.reverse();
        undone
    }

    /// Moves DAGs that need fewer passes elsewhere on the regions in use; where passes come first,
    /// also onto up to `loads` newly loaded regions.
    fn spare_passes(&mut self, mut loads: usize) {
        for resident in 0..self.residents.len() {
            let before = self.mappings[resident].stages.len();
            if before < 2 {
                continue;
            }
            let start = self.done.len();
            self.close_unused();
            // A region that only this DAG used becomes free; the other regions keep their DAGs.
            if self.relocate(resident, None) && self.mappings[resident].stages.len() < before {
                continue;
            }
            self.undo_to(start);
            if loads == 0 || self.ledger.order() == Order::Regions {
                continue;
            }
            self.open_unused();
            let Resident { name, dag, .. } = self.residents[resident];
            let request = PlanRequest { name, dag, previous: Some(&self.mappings[resident]) };
            let plan = plan_silently(&self.ledger, self.catalogue, &request);
            let spares =
                |plan: &Plan| plan.mapping.stages.len() < before && plan.loads.len() <= loads;
            if let Some(plan) = plan.filter(spares) {
                loads -= plan.loads.len();
                self.make(resident, plan);
            }
        }
    }
}
