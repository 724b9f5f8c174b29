//! A better arrangement of what is deployed, and the way there: make before break.
//!
//! ```text
//! for each round:    load nothing, or one bitstream into a region that nobody uses
//!   which regions could be emptied together, the least used first? (by sums, see `vacate`)
//!   what promises most is tried, DAG by DAG, each moving once
//! what frees most beyond the load is kept; rounds end when nothing frees a region
//! then: DAGs that could do with fewer passes move
//! ```
//!
//! Every move is a [`Plan`] that is good beside what the DAG holds until the tables flip: the new
//! instances are loaded and reserved first, packets change over by one version flip, and what was
//! left becomes a victim. So every state on the way is valid, and the way may end after any move.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{Dag, DagName, Mapping, RegionId};

use crate::candidates::fits_region;
use crate::catalogue::Chain;
use crate::ledger::RegionCondition;
use crate::plan::plan_on;
use crate::vacate::{Sources, Vacated};
use crate::{Catalogue, Ledger, Plan, Request, Reservation};

/// Loads that are tried in a round. Where what is promised is kept, the first or second is the last.
const OPTIONS_MAX: usize = 8;

/// A DAG that has a place. The ledger holds what its mapping reserves.
#[derive(Debug, Clone, Copy)]
pub struct Resident<'a> {
    /// Its name.
    pub name: &'a DagName,
    /// What it wants.
    pub dag: &'a Dag,
    /// Where it is.
    pub mapping: &'a Mapping,
}

/// How much a consolidation may cost, and what it must bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most reconfigurations.
    pub reconfigurations: u32,
    /// Fewest regions that must be freed, those taken anew subtracted; where fewer are, moves are
    /// made for passes alone. At least 1.
    pub regions: u32,
    /// Fewest passes, of all DAGs together, for which DAGs move that free no region. At least 1.
    pub passes: u32,
}

/// One DAG moves.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// Which.
    pub name: DagName,
    /// Where to, and what has to be loaded first. Good for the state after the moves before it.
    pub plan: Plan,
}

/// A better arrangement; no moves where there is none that is worth it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Consolidation {
    /// In order.
    pub moves: Vec<Move>,
    /// Regions that nobody uses any more.
    pub freed: Vec<RegionId>,
    /// Regions that were not in use before.
    pub taken: Vec<RegionId>,
    /// Regions to be loaded.
    pub reconfigurations: u32,
    /// Passes of the scheduler, of all DAGs together, before.
    pub passes_before: u64,
    /// The same after the moves.
    pub passes_after: u64,
}

/// Looks for an arrangement that takes fewer regions, then fewer passes; changes nothing.
///
/// Time: O(bitstreams × regions × NTs) sums for each round, and a plan for each DAG that moves; plans
/// for all of them again a few times where memory, rows or consent are short.
pub fn optimize(
    ledger: &Ledger,
    catalogue: &Catalogue,
    residents: &[Resident<'_>],
    budget: Budget,
) -> Consolidation {
    let mut state = State::new(ledger, catalogue, residents);
    let passes_before = state.passes();
    let before = state.in_use();
    state.free_regions(budget.reconfigurations);
    let gain = before.len().saturating_sub(state.in_use().len());
    if gain < budget.regions.max(1) as usize {
        state.undo_to(0);
    }
    let mark = state.done.len();
    let passes = state.passes();
    state.spare_passes();
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

/// A bitstream that is loaded where a DAG needs it, and the region for it.
type Pending<'a> = (RegionId, &'a Chain);

/// Which DAGs move where, in order.
type Moves = Vec<(usize, Plan)>;

/// A move that was made, with what it takes to undo it.
struct Step {
    resident: usize,
    plan: Plan,
    mapping: Mapping,
    held: Option<Reservation>,
    /// What the regions that it loads held before.
    contents: Vec<(RegionId, Option<snic_domain::BitstreamId>)>,
}

/// The card after the moves so far.
struct State<'a> {
    ledger: Ledger,
    catalogue: &'a Catalogue,
    residents: &'a [Resident<'a>],
    numbers: BTreeMap<&'a DagName, usize>,
    mappings: Vec<Mapping>,
    done: Vec<Step>,
    /// Regions into which something may be loaded or moved: usable when this began.
    usable: Vec<RegionId>,
    /// Regions with DAGs that must not move.
    pinned: BTreeSet<RegionId>,
}

impl<'a> State<'a> {
    fn new(ledger: &Ledger, catalogue: &'a Catalogue, residents: &'a [Resident<'a>]) -> Self {
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

    /// Nobody moves into what nobody uses: that would take a region for the one it frees.
    fn close_unused(&mut self) {
        for region in self.usable.clone() {
            let condition = match self.ledger.is_unused(region) {
                true => RegionCondition::Cordoned,
                false => RegionCondition::Usable,
            };
            self.ledger.set_condition(region, condition);
        }
    }

    /// Rounds, until none frees a region more than it takes.
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

    /// The moves with the load, or with none, that free most regions beyond what they take.
    fn best_round(&mut self, may_load: bool) -> Option<Moves> {
        let start = self.done.len();
        let before = self.in_use().len();
        let (mut most, mut best) = (0, None);
        for (promised, load, vacated) in self.options(may_load).into_iter().take(OPTIONS_MAX) {
            // A load must bring more than moves without one do; later ones promise no more.
            if promised <= most {
                continue;
            }
            self.empty_regions(load, &vacated.regions);
            let gain = before.saturating_sub(self.in_use().len());
            let moves = self.undo_to(start);
            self.close_unused();
            if gain > most {
                (most, best) = (gain, Some(moves));
            }
        }
        best
    }

    /// No load, then what could be loaded: what promises most first, and of those the one for which
    /// the fewest DAGs move.
    fn options(&self, may_load: bool) -> Vec<(usize, Option<Pending<'a>>, Vacated)> {
        let sources = self.sources();
        let loads = if may_load { self.loads() } else { Vec::new() };
        let mut options: Vec<_> = loads
            .into_iter()
            .map(|load| {
                let vacated = sources.vacated(Some(load.1));
                (vacated.regions.len().saturating_sub(1), Some(load), vacated)
            })
            .collect();
        options.sort_by_key(|(promised, _, vacated)| (Reverse(*promised), vacated.users));
        let vacated = sources.vacated(None);
        options.insert(0, (vacated.regions.len(), None, vacated));
        options
    }

    /// What could be loaded: each bitstream into the first region that nobody uses and it fits,
    /// free ones first.
    fn loads(&self) -> Vec<Pending<'a>> {
        let ledger = &self.ledger;
        let mut unused: Vec<RegionId> =
            self.usable.iter().copied().filter(|r| ledger.is_replaceable(*r)).collect();
        unused.sort_by_key(|region| (ledger.chain(*region).is_some(), *region));
        let place = |chain: &&'a Chain| {
            let fits = |r: &&RegionId| {
                ledger.profile().region(**r).is_some_and(|region| fits_region(region, chain))
            };
            unused.iter().find(fits).copied()
        };
        self.catalogue
            .chains()
            .filter(|chain| chain.bitstream.card_model == ledger.profile().model)
            .filter_map(|chain| Some((place(&chain)?, chain)))
            .collect()
    }

    fn sources(&self) -> Sources {
        Sources::of(&self.ledger, &self.usable, |region| !self.pinned.contains(&region))
    }

    /// Moves all DAGs out of these regions, each once; where one has no place after all, out of
    /// one region after the other.
    fn empty_regions(&mut self, load: Option<Pending<'a>>, vacated: &[RegionId]) {
        for region in vacated {
            self.ledger.set_condition(*region, RegionCondition::Cordoned);
        }
        for (at, region) in vacated.iter().enumerate() {
            if !self.empty(*region, load) {
                for region in &vacated[at..] {
                    self.ledger.set_condition(*region, RegionCondition::Usable);
                }
                return self.empty_one_by_one(load);
            }
        }
    }

    fn empty_one_by_one(&mut self, load: Option<Pending<'a>>) {
        let regions: Vec<RegionId> = self.sources().regions().collect();
        for region in regions {
            if self.sources().could_be_emptied(region, load.map(|(_, chain)| chain)) {
                self.ledger.set_condition(region, RegionCondition::Cordoned);
                if !self.empty(region, load) {
                    self.ledger.set_condition(region, RegionCondition::Usable);
                }
            }
        }
    }

    /// Moves all DAGs out of a region, or, where one has no place elsewhere, none.
    fn empty(&mut self, region: RegionId, load: Option<Pending<'a>>) -> bool {
        let start = self.done.len();
        let numbers = self.ledger.users(region).filter_map(|name| self.numbers.get(name));
        let mut users: Vec<usize> = numbers.copied().collect();
        // Whatever finds no place shows sooner with the widest first.
        users.sort_by_key(|user| (Reverse(self.residents[*user].dag.bandwidth()), *user));
        let emptied = users.into_iter().all(|user| self.relocate(user, load));
        if !emptied {
            self.undo_to(start);
        }
        emptied
    }

    /// Moves one DAG to what is loaded, or to what `load` loads.
    fn relocate(&mut self, resident: usize, load: Option<Pending<'a>>) -> bool {
        let Resident { name, dag, .. } = self.residents[resident];
        let request = Request { name, dag, previous: Some(&self.mappings[resident]) };
        let pending = load.filter(|(region, chain)| {
            self.ledger.is_unused(*region) && chain.bitstream.is_loadable_by(&name.tenant)
        });
        let loads: Vec<_> = pending.into_iter().collect();
        let Some(plan) = plan_on(&self.ledger, self.catalogue, &request, &loads, false) else {
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
        self.done.push(Step { resident, plan, mapping, held, contents });
    }

    /// Gives what was undone, in the order in which it was made.
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

    /// Moves DAGs that would do with fewer passes through what is in use.
    fn spare_passes(&mut self) {
        self.close_unused();
        for resident in 0..self.residents.len() {
            let before = self.mappings[resident].stages.len();
            let start = self.done.len();
            if before < 2 || !self.relocate(resident, None) {
                continue;
            }
            // A region that it left alone is freed, too; the others keep what they have.
            if self.mappings[resident].stages.len() >= before {
                self.undo_to(start);
            }
        }
    }
}
