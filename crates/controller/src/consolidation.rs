//! Consolidation: a better arrangement of the deployed DAGs, applied move by move.
//!
//! ```text
//! asked for, or something was freed a while ago ── planner ──> moves ──┐
//!       ▲                                                              ▼
//!       └── things changed meanwhile ──  one move: make before break, as a drain does
//! ```
//!
//! By itself it starts a pass some time after capacity was freed, and a pass that gains
//! something frees something: so another one follows, until there is nothing to gain. That ends: every
//! pass leaves fewer regions in use, or as many and fewer passes.
//!
//! One DAG of a card moves at a time. Its new place is loaded, reserved and served before the old
//! one is left (see `placement`), so nothing is lost wherever this ends. Only the operation is
//! stored: after a crash the moves are looked for again, in what was reached.

use std::collections::{BTreeMap, VecDeque};

use snic_bitstream::manifest::Manifest;
use snic_domain::{
    CardId, Dag, DagName, DagSpec, Instance, Mapping, OperationId, RegionId, RegionProfile,
};
use snic_planner::{
    Budget, Consolidation, Move, Plan, Recommendation, Refused, RegionCondition, Resident,
    optimize, recommend,
};

use crate::dags::DagEntry;
use crate::passes::PlannedMove;
use crate::placement::Handover;
use crate::protocol::{
    BitstreamAdvice, Choice, ConsolidationSettings, ConsolidationView, ControlError, MoveView,
    OperationWork, RecommendationView, Reply,
};
use crate::records::regions_of;
use crate::state::Core;
use crate::tx::Tx;
use crate::{placement, work};

/// A DAG that has a place and rests there, owned, for the planner.
struct Settled {
    name: DagName,
    dag: Dag,
    mapping: Mapping,
    /// Of the placement.
    serial: u64,
}

impl Settled {
    const fn resident(&self) -> Resident<'_> {
        Resident { name: &self.name, dag: &self.dag, mapping: &self.mapping }
    }
}

fn residents(settled: &[Settled]) -> Vec<Resident<'_>> {
    settled.iter().map(Settled::resident).collect()
}

/// A better arrangement of a card.
struct Arrangement {
    found: Consolidation,
    /// Of the placements that it begins with.
    serials: BTreeMap<DagName, u64>,
}

/// Whether a pass has another round.
enum NextRound {
    Begins,
    /// There is nothing to gain, or it has looked often enough.
    NotWorthIt,
}

/// The DAGs that a card serves and that nothing is under way for. What a DAG has borrowed stays
/// where it is until the loop takes it back; who keeps state stays too: to move it, its traffic
/// would have to stop, and nobody asked for that.
fn settled(core: &Core, id: &CardId) -> Vec<Settled> {
    let at_rest = core.dags.on_card(id).filter(|e| e.is_ready() && e.previous().is_none());
    let settled = at_rest.filter_map(|entry| {
        let placement = entry.desired().expect("what is ready has a placement");
        let may_move = placement.burst.is_none() && core.registry.stateful(placement).is_empty();
        may_move.then(|| Settled {
            name: entry.name().clone(),
            dag: Dag::new(placement.spec.clone()).expect("it was checked when it was admitted"),
            mapping: placement.mapping.clone(),
            serial: placement.serial,
        })
    });
    settled.collect()
}

/// Looks for a better arrangement of a card whose contents are known.
fn arrangement(core: &Core, id: &CardId, reconfigurations: u32) -> Arrangement {
    let settled = settled(core, id);
    let ConsolidationSettings { regions_min, passes_min, .. } =
        core.policies.current().consolidation;
    let budget = Budget { reconfigurations, regions: regions_min, passes: passes_min };
    let ledger = core.cards.known(id).ledger();
    let found = optimize(ledger, core.registry.catalogue(), &residents(&settled), budget);
    Arrangement { found, serials: settled.into_iter().map(|s| (s.name, s.serial)).collect() }
}

/// Moves DAGs of a card together where that is worth it; `dry_run` only says which.
pub(crate) fn optimize_card(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    dry_run: bool,
) -> Result<Reply, ControlError> {
    let card = core.cards.get(id).ok_or_else(|| ControlError::not_found(card_name(id)))?;
    if !card.is_ready() {
        let text = "it does not answer, or is still being read; try again when it does";
        return Err(ControlError::precondition(card_name(id), text));
    }
    if dry_run {
        let most = core.policies.current().consolidation.reconfigurations_max;
        let Arrangement { found, .. } = arrangement(core, id, most);
        return Ok(Reply::Consolidation(Box::new(consolidation_view(core, id, &found))));
    }
    let operation = match core.passes.on(id).cloned() {
        Some(operation) => operation,
        None => work::begin(core, tx, OperationWork::OptimizeCard(id.clone())),
    };
    Ok(work::reply(core, &operation))
}

/// Something was freed: in a while the rest may be put together.
pub(crate) fn begin_later(core: &mut Core) {
    core.passes.begin_later(core.now(), core.policies.current().consolidation.after);
}

/// Another policy: what was to come by the one before is forgotten.
pub(crate) fn begin_by_policy(core: &mut Core) {
    core.passes.forget_begin();
    begin_later(core);
}

/// The next step of every pass. Time O(passes under way) where there is none to take.
pub(crate) fn go_on(core: &mut Core, tx: &mut Tx) {
    begin_on_its_own(core, tx);
    let pending: Vec<OperationId> = core.passes.operations().cloned().collect();
    for operation in pending {
        step(core, tx, &operation);
    }
}

/// Begins the passes for which it is time.
fn begin_on_its_own(core: &mut Core, tx: &mut Tx) {
    if core.passes.begins().is_none_or(|at| at > core.now()) {
        return;
    }
    core.passes.forget_begin();
    for id in core.cards.ready() {
        let most = core.policies.current().consolidation.reconfigurations_max;
        let is_alone = core.passes.on(&id).is_none();
        let moves = if is_alone { moves(core, &id, most) } else { VecDeque::new() };
        // Without a gain there is no operation that says so.
        if moves.is_empty() {
            if is_under_way(core, &id) {
                begin_later(core);
            }
            continue;
        }
        let operation = work::begin(core, tx, OperationWork::OptimizeCard(id));
        core.passes.plan(&operation, moves);
    }
}

/// Whether a pass is under way, or DAGs on their way to a place, which could not be moved yet.
fn is_under_way(core: &Core, id: &CardId) -> bool {
    let mut on_card = core.dags.on_card(id);
    core.passes.on(id).is_some()
        || on_card.any(|entry| !entry.is_ready() || entry.previous().is_some())
}

/// The moves to a better arrangement.
fn moves(core: &Core, id: &CardId, reconfigurations: u32) -> VecDeque<PlannedMove> {
    let Arrangement { found, mut serials } = arrangement(core, id, reconfigurations);
    let begun = |step: Move| {
        let next = serials.get_mut(&step.name).expect("only DAGs that were given are moved");
        let serial = *next;
        *next += 1;
        PlannedMove { step, serial }
    };
    found.moves.into_iter().map(begun).collect()
}

/// The next step of one pass: a move, where the one before is done.
fn step(core: &mut Core, tx: &mut Tx, operation: &OperationId) {
    let Some(id) = core.passes.card(operation).cloned() else {
        return; // A step of another pass has ended it.
    };
    let is_ready = core.cards.known(&id).is_ready();
    if !is_ready || core.dags.on_card(&id).any(|entry| entry.previous().is_some()) {
        return;
    }
    loop {
        let Some(PlannedMove { step, serial }) = core.passes.next_move(operation) else {
            match look_again(core, operation, &id) {
                NextRound::Begins => continue,
                NextRound::NotWorthIt => return work::end(core, tx, operation, Ok(())),
            }
        };
        let loads = u32::try_from(step.plan.loads.len()).unwrap_or(u32::MAX);
        let is_good = is_good(core, &id, &step, serial);
        if is_good && move_to(core, tx, &step.name, &id, step.plan).is_ok() {
            core.operations.start(operation, core.now());
            core.passes.moved(operation, loads);
            return;
        }
        core.passes.give_up_moves(operation);
    }
}

/// Looks for moves in what there is now.
fn look_again(core: &mut Core, operation: &OperationId, id: &CardId) -> NextRound {
    let Some(left) = core.passes.next_round(operation) else { return NextRound::NotWorthIt };
    let moves = moves(core, id, left);
    if moves.is_empty() {
        return NextRound::NotWorthIt;
    }
    core.passes.plan(operation, moves);
    NextRound::Begins
}

/// Whether a move is still what it was planned as.
fn is_good(core: &Core, id: &CardId, next: &Move, serial: u64) -> bool {
    let ledger = core.cards.known(id).ledger();
    let Some(entry) = core.dags.get(&next.name) else {
        return false; // It was deleted.
    };
    let usable = |region| ledger.condition(region) == RegionCondition::Usable;
    let load = |region| next.plan.loads.iter().find(|load| load.region == region);
    // One of the same name may be another owner's decision by now.
    let is_open = |instance: &Instance| {
        let (catalogue, tenant) = (core.registry.catalogue(), &next.name.tenant);
        let bitstream = core.registry.bitstream(&instance.bitstream);
        bitstream.is_some_and(|bitstream| catalogue.lets_pass(bitstream, tenant, entry.spec()))
    };
    let holds = |instance: &Instance| match load(instance.region) {
        Some(load) => load.bitstream == instance.bitstream,
        None => ledger.content(instance.region).map(|b| &b.id) == Some(&instance.bitstream),
    };
    entry.is_ready()
        && entry.desired().is_some_and(|p| p.serial == serial)
        && next.plan.loads.iter().all(|load| {
            ledger.is_unused(load.region) && core.registry.bitstream(&load.bitstream).is_some()
        })
        && next.plan.mapping.instances().all(|i| usable(i.region) && holds(i) && is_open(i))
}

/// Moves a DAG that is served: the old place serves until the new one does.
fn move_to(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
    card: &CardId,
    plan: Plan,
) -> Result<(), ControlError> {
    let choice = Choice { card: card.clone(), plan };
    placement::assign(core, tx, name, choice, Handover::MakeBeforeBreak)?;
    core.dags.store(tx, name);
    Ok(())
}

/// Which bitstreams are worth building for a card, with a manifest each, and which regions are
/// less than half full; `None` without such a card.
pub(crate) fn recommendations(core: &Core, id: &CardId) -> Option<BitstreamAdvice> {
    let card = core.cards.get(id)?;
    let settled = settled(core, id);
    let refused = dags_without_place(core);
    let refused: Vec<Refused<'_>> =
        refused.iter().map(|(name, dag)| Refused { name, dag }).collect();
    let found = recommend(card.ledger(), core.registry.catalogue(), &residents(&settled), &refused);
    let with_manifest = |recommendation: Recommendation| {
        let region = RegionProfile {
            kind: recommendation.region_kind,
            area: recommendation.region_area,
            bitstream_max: recommendation.bitstream_max,
        };
        let Recommendation { nts, area, .. } = &recommendation;
        let manifest = Manifest::new(card.profile(), nts, &region, *area);
        RecommendationView { manifest: manifest.to_toml(), recommendation }
    };
    let worth_building = found.sequences.into_iter().map(with_manifest).collect();
    Some(BitstreamAdvice { worth_building, underfilled: found.underfilled })
}

/// The DAGs that have no place now, and those that were refused; each name once, by name.
fn dags_without_place(core: &Core) -> Vec<(DagName, Dag)> {
    let waiting = core.dags.unscheduled().map(|entry| (entry.name(), entry.spec()));
    let all: BTreeMap<&DagName, &DagSpec> = core.refused.all().chain(waiting).collect();
    let dag =
        |(name, spec): (&DagName, &DagSpec)| Some((name.clone(), Dag::new(spec.clone()).ok()?));
    all.into_iter().filter_map(dag).collect()
}

fn consolidation_view(core: &Core, id: &CardId, found: &Consolidation) -> ConsolidationView {
    let mut now: BTreeMap<&DagName, Vec<RegionId>> = BTreeMap::new();
    let mut moves = Vec::new();
    for Move { name, plan } in &found.moves {
        let placed = core.dags.get(name).and_then(DagEntry::desired);
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

fn card_name(id: &CardId) -> String {
    format!("cards/{id}")
}
