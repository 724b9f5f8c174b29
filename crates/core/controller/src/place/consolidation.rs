//! Consolidation: a better arrangement of the deployed DAGs, applied move by move.
//!
//! ```text
//! asked for, or something to gain since a while ── search of a picture ──> moves ──┐
//!       ▲                                          (another thread)                ▼
//!       └────────────────── things changed meanwhile ──  one move: make before break, as a drain does
//! ```
//!
//! A pass begins on its own some time after capacity was freed, or after a region was loaded on a card with DAGs of several
//! passes; or as soon as a DAG finds no room. A pass that gains something frees something: so another one follows, until there is nothing to gain. That ends: every
//! pass leaves fewer regions in use, or as many and fewer passes.
//!
//! A DAG that finds no room, but has some to hope for, is not refused yet: its request waits for the pass, and is decided
//! again when something is freed (`controller::held`).
//!
//! One DAG of a card moves at a time. Its new place is loaded, reserved and served before the old
//! one is left (see `placement`), so nothing is lost wherever this ends. Only the operation is
//! stored: after a crash the moves are looked for again, in what was reached.

use std::time::Duration;

use snic_domain::{
    CardId, Dag, DagName, DagSpec, Infeasible, Instance, OperationId, Resource, Shortage,
};
use snic_planner::{Effort, Ledger, Move, Plan, PlanRequest, RegionCondition, plan_within};

use crate::place::placement::Handover;
use crate::place::{placement, work};
use crate::protocol::{
    Arrangement, Choice, ControlError, OperationWork, PlannedMove, Reply, SearchNo,
};
use crate::state::Core;
use crate::state::card::CardMachine;
use crate::state::passes::Searcher;
use crate::store::tx::Tx;

/// Moves that one event tries in vain. Each copies the card's row tables, and a full card has a thousand of them.
const REFUSED_MAX: u32 = 16;

/// Longest time that a request waits for DAGs to move. A call without a deadline ends after 30 s.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// Moves DAGs of a card together where that is worth it.
pub(crate) fn optimize_card(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
) -> Result<Reply, ControlError> {
    check_is_known(core, id)?;
    let operation = match core.passes.on(id).cloned() {
        Some(operation) => operation,
        None => work::begin(core, tx, OperationWork::OptimizeCard(id.clone())),
    };
    Ok(work::reply(core, &operation))
}

/// Fails where there is no card with this id, or what it holds is not known.
pub(crate) fn check_is_known(core: &Core, id: &CardId) -> Result<(), ControlError> {
    let card = core.cards.get(id).ok_or_else(|| ControlError::not_found(card_name(id)))?;
    if !card.is_ready() {
        let text = "it does not answer, or is still being read; try again when it does";
        return Err(ControlError::precondition(card_name(id), text));
    }
    Ok(())
}

/// Whether moves may yet make room for a request that was refused after this search.
pub(crate) fn may_make_room(core: &Core, after: SearchNo) -> bool {
    core.cards.ready().iter().any(|id| core.passes.may_make_room(id, after))
}

/// Whether a DAG that was refused may be admitted once DAGs have moved: some are going to, what it lacks is none of what all
/// DAGs of a card share wherever they are, and it has a place on a card without others, as far as this event may plan.
pub(crate) fn may_help(core: &Core, name: &DagName, spec: &DagSpec, why: &Infeasible) -> bool {
    let is_fixed = |shortage: &Shortage| {
        use Resource::{Cards, EgressBandwidth, IngressBandwidth, Memory, Threads};
        matches!(shortage.resource, Cards | EgressBandwidth | IngressBandwidth | Memory | Threads)
    };
    if why.shortages.iter().any(is_fixed) || !may_make_room(core, core.passes.last_search()) {
        return false;
    }
    let Ok(dag) = Dag::new(spec.clone()) else { return false };
    let request = PlanRequest { name, dag: &dag, previous: None };
    let has_place = |(id, card): (&CardId, &CardMachine)| {
        if !core.planning.has_time() {
            return true; // Nobody knows, so it may.
        }
        let (empty, effort) = (Ledger::new(id.clone(), card.profile().clone()), Effort::new());
        let plan = plan_within(&empty, core.registry.catalogue(), &request, &effort);
        core.planning.planned(&effort);
        plan.is_ok()
    };
    core.cards.iter().filter(|(_, card)| card.is_ready()).any(has_place)
}

/// Something was freed or loaded: in a while the rest may be put together.
pub(crate) fn begin_later(core: &mut Core) {
    core.passes.begin_later(core.now(), core.policies.current().consolidation.after);
}

/// Another policy: what was to come by the one before is forgotten.
pub(crate) fn begin_by_policy(core: &mut Core) {
    core.passes.forget_begin();
    begin_later(core);
}

/// The next step of every pass. Time O(passes under way) where there is none to take.
pub(crate) fn take_next_steps(core: &mut Core, tx: &mut Tx) {
    core.passes.begin_steps();
    begin_on_its_own(core, tx);
    let pending: Vec<OperationId> = core.passes.operations().cloned().collect();
    for operation in pending {
        step(core, tx, &operation);
    }
}

/// Searches for the passes for which it is time.
fn begin_on_its_own(core: &mut Core, tx: &mut Tx) {
    if !core.passes.take_begin(core.now()) {
        return;
    }
    let most = core.policies.current().consolidation.reconfigurations_max;
    for id in core.cards.ready() {
        // What is searched now may have been looked at before something was freed.
        if core.passes.on(&id).is_some() || core.passes.is_searched(&id) {
            begin_later(core);
        } else {
            search(core, tx, &id, Searcher::NewPass, most);
        }
    }
}

fn search(core: &mut Core, tx: &mut Tx, id: &CardId, searcher: Searcher, reconfigurations: u32) {
    core.passes.search(id, searcher);
    tx.search(id.clone(), reconfigurations);
}

/// A search has ended. Its moves are made by the steps of the pass, each if it is still good by then.
pub(crate) fn searched(core: &mut Core, tx: &mut Tx, found: Arrangement) {
    let Arrangement { card: id, moves, is_under_way, has_failed } = found;
    let is_ready = core.cards.get(&id).is_some_and(|card| card.is_ready());
    if moves.is_empty() && !is_under_way {
        core.passes.found_nothing(&id);
    }
    core.planning.retry_held();
    match core.passes.searched(&id) {
        Some(Searcher::Pass(operation)) if has_failed => {
            let error = ControlError::SearchFailed { resource: card_name(&id) };
            work::end(core, tx, &operation, Err(error));
        }
        Some(Searcher::Pass(operation)) => core.passes.plan(&operation, moves),
        // Somebody has asked for a pass meanwhile, which looks for itself.
        Some(Searcher::NewPass) if core.passes.on(&id).is_some() => begin_later(core),
        // Without a gain there is no operation that says so.
        Some(Searcher::NewPass) if moves.is_empty() => {
            if is_under_way {
                begin_later(core);
            }
        }
        Some(Searcher::NewPass) if is_ready => {
            let operation = work::begin(core, tx, OperationWork::OptimizeCard(id));
            core.passes.plan(&operation, moves);
        }
        // When the card is back something may be gained again.
        Some(Searcher::NewPass) | None => {}
    }
}

/// The next step of one pass: a move, where the one before is done.
fn step(core: &mut Core, tx: &mut Tx, operation: &OperationId) {
    let Some(id) = core.passes.card(operation).cloned() else {
        return; // A step of another pass has ended it.
    };
    let is_ready = core.cards.known(&id).is_ready();
    let is_moving = core.dags.on_card(&id).any(|entry| entry.previous().is_some());
    if !is_ready || is_moving || core.passes.is_searched(&id) {
        return;
    }
    let mut refused = 0;
    while let Some(PlannedMove { step, serial }) = core.passes.next_move(operation) {
        let loads = u32::try_from(step.plan.loads.len()).unwrap_or(u32::MAX);
        let moved = if is_good(core, &id, &step, serial) {
            move_to(core, tx, &step.name, &id, step.plan)
        } else {
            Err(overtaken(&id))
        };
        match moved {
            Ok(()) => {
                core.operations.start(operation, core.now());
                core.passes.moved(operation, loads);
                return;
            }
            Err(why @ ControlError::Refused(_)) => core.passes.refuse_move(operation, why),
            // Others hold by now what it was to have.
            Err(why) => {
                core.passes.give_up_moves(operation, why);
                break;
            }
        }
        refused += 1;
        if refused == REFUSED_MAX {
            core.passes.put_off();
            return;
        }
    }
    match core.passes.next_round(operation) {
        Some(left) => search(core, tx, &id, Searcher::Pass(operation.clone()), left),
        None => end(core, tx, &id, operation),
    }
}

/// The reason when a move is not good any more.
fn overtaken(id: &CardId) -> ControlError {
    let text = "DAGs or regions changed whenever better places had been found";
    ControlError::precondition(card_name(id), text)
}

/// Ends a pass; with an error where it had moves to make and could make none.
fn end(core: &mut Core, tx: &mut Tx, id: &CardId, operation: &OperationId) {
    let left = core.passes.moves(operation).left;
    let result = match core.passes.obstacle(operation) {
        None => Ok(()),
        Some(why) => {
            let advice = match why {
                ControlError::Refused(_) => "delete a DAG, and try again",
                _ => "try again when less changes",
            };
            let text = format!("DAGs with a better place: {left}; none was moved: {why}; {advice}");
            Err(ControlError::precondition(card_name(id), text))
        }
    };
    work::end(core, tx, operation, result);
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

fn card_name(id: &CardId) -> String {
    format!("cards/{id}")
}
