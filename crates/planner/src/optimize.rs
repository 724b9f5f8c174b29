//! A better arrangement of what is deployed, and the way there: make before break.
//!
//! ```text
//! for each round:    load nothing, or one bitstream into a region that nobody uses
//!   for each region in use, the least used first: can all its DAGs move elsewhere?
//! the load that frees most beyond itself is kept; rounds end when none frees anything
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
use crate::{Catalogue, Ledger, Plan, Request, Reservation};

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
/// Time: for each bitstream and region, plans for the DAGs in the region until one has no place
/// elsewhere.
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
}

impl<'a> State<'a> {
    fn new(ledger: &Ledger, catalogue: &'a Catalogue, residents: &'a [Resident<'a>]) -> Self {
        let usable = |r: &RegionId| ledger.condition(*r) == RegionCondition::Usable;
        Self {
            usable: ledger.profile().regions().map(|(r, _)| r).filter(usable).collect(),
            ledger: ledger.clone(),
            catalogue,
            residents,
            numbers: (0..).zip(residents).map(|(i, r)| (r.name, i)).collect(),
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
            let start = self.done.len();
            let before = self.in_use().len();
            self.close_unused();
            let mut options = vec![None];
            if left > 0 {
                options.extend(self.loads().into_iter().map(Some));
            }
            let mut best: Option<(usize, Reverse<usize>, usize)> = None;
            for (index, load) in options.iter().enumerate() {
                self.empty_regions(*load);
                let gain = before.saturating_sub(self.in_use().len());
                let rank = (gain, Reverse(self.done.len() - start), index);
                self.undo_to(start);
                self.close_unused();
                let is_better = best.is_none_or(|b| (rank.0, rank.1) > (b.0, b.1));
                // A load must bring more than moves without one do.
                best = if gain > 0 && is_better { Some(rank) } else { best };
            }
            let Some((_, _, index)) = best else { return };
            self.empty_regions(options[index]);
            let loads = self.done[start..].iter().map(|step| step.plan.loads.len()).sum::<usize>();
            left = left.saturating_sub(u32::try_from(loads).unwrap_or(u32::MAX));
        }
    }

    /// What could be loaded: each bitstream into the first region that nobody uses and it fits,
    /// free ones first.
    fn loads(&self) -> Vec<(RegionId, &'a Chain)> {
        let ledger = &self.ledger;
        let mut unused: Vec<RegionId> =
            self.usable.iter().copied().filter(|r| ledger.is_unused(*r)).collect();
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

    /// Moves all DAGs out of every region where that is possible, the least used region first.
    fn empty_regions(&mut self, load: Option<(RegionId, &'a Chain)>) {
        let mut regions: Vec<RegionId> =
            self.usable.iter().copied().filter(|region| !self.ledger.is_unused(*region)).collect();
        regions.sort_by_key(|region| (self.reserved(*region), *region));
        for region in regions {
            let start = self.done.len();
            self.ledger.set_condition(region, RegionCondition::Cordoned);
            if !self.empty(region, load) {
                self.undo_to(start);
                self.ledger.set_condition(region, RegionCondition::Usable);
            }
        }
        // A load that did not pay is undone: what it took and what it freed are one for one.
    }

    fn reserved(&self, region: RegionId) -> u64 {
        (0u8..8).map(|slot| self.ledger.reserved(region, snic_domain::Slot(slot)).get()).sum()
    }

    /// Moves all DAGs out of a region; `false` where one has no place elsewhere.
    fn empty(&mut self, region: RegionId, load: Option<(RegionId, &'a Chain)>) -> bool {
        let mut users: Vec<usize> = Vec::new();
        for name in self.ledger.users(region) {
            match self.numbers.get(name) {
                Some(number) => users.push(*number),
                None => return false,
            }
        }
        // Whatever finds no place shows sooner with the widest first.
        users.sort_by_key(|user| (Reverse(self.residents[*user].dag.bandwidth()), *user));
        users.into_iter().all(|user| self.relocate(user, load))
    }

    /// Moves one DAG to what is loaded, or to what `load` loads.
    fn relocate(&mut self, resident: usize, load: Option<(RegionId, &'a Chain)>) -> bool {
        let Resident { name, dag, .. } = self.residents[resident];
        let mapping = self.mappings[resident].clone();
        let request = Request { name, dag, previous: Some(&mapping) };
        let pending = load.filter(|(region, chain)| {
            self.ledger.is_unused(*region) && chain.bitstream.is_loadable_by(&name.tenant)
        });
        let loads: Vec<_> = pending.into_iter().collect();
        let Some(plan) = plan_on(&self.ledger, self.catalogue, &request, &loads) else {
            return false;
        };
        self.make(resident, plan, mapping);
        true
    }

    fn make(&mut self, resident: usize, plan: Plan, mapping: Mapping) {
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
        self.mappings[resident] = plan.mapping.clone();
        self.done.push(Step { resident, plan, mapping, held, contents });
    }

    fn undo_to(&mut self, count: usize) {
        while self.done.len() > count {
            let Some(step) = self.done.pop() else { return };
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
        }
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
