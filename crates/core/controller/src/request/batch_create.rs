//! Creates several DAGs in one step: all of them, or as many as have a place.

use std::collections::BTreeSet;

use snic_domain::limits::DAG_BATCH_MAX;
use snic_domain::{CardId, Dag, DagId};

use crate::decide::admission::CardPlan;
use crate::decide::batch::{
    BatchCandidate, BatchSnapshot, CardCopy, Configurations, OfTenant, ScratchCards,
};
use crate::decide::card_choice::Sites;
use crate::decide::thread_use::ThreadAllowance;
use crate::place::placement;
use crate::place::work;
use crate::protocol::{Admission, BatchPlan, ControlError, DagBatch, Reply};
use crate::request::lifecycle;
use crate::state::Core;
use crate::store::tx::Tx;
use crate::view::{budgets, quotas};

/// State to plan a batch on. Time O(state of the cards).
pub(crate) fn snapshot(core: &Core, batch: &DagBatch) -> BatchSnapshot {
    let candidates: Vec<BatchCandidate> = check_each(core, batch)
        .into_iter()
        .enumerate()
        .filter_map(|(index, checked)| {
            Some(BatchCandidate { index, name: batch.name(index), dag: checked.ok()? })
        })
        .collect();
    BatchSnapshot {
        cards: copies(core, |_| true),
        catalogue: core.registry.catalogue().clone(),
        rules: placement::rules(core),
        candidates,
        of_tenant: of_tenant(core, batch),
        no_card_reason: placement::no_card_reason(core),
    }
}

fn of_tenant(core: &Core, batch: &DagBatch) -> OfTenant {
    let specs = || batch.dags.iter().map(|new| &new.spec);
    let sites = Sites::of(placement::sites(core, &batch.tenant), specs());
    let memory = core.registry.memory_allowance(&batch.tenant, None, specs());
    let limit = quotas::threads_max(core, &batch.tenant);
    let used = core.dags.threads_of(&batch.tenant);
    OfTenant { sites, memory, threads: ThreadAllowance::new(limit, used) }
}

/// Copies of some of the cards, by id.
fn copies(core: &Core, is_needed: impl Fn(&CardId) -> bool) -> Vec<CardCopy> {
    let copy = |plan: &CardPlan<'_>| {
        let card = core.cards.known(plan.id);
        let refuses = card.is_ready() && !card.configures();
        let configurations = if refuses { Configurations::Refused } else { Configurations::Taken };
        CardCopy::new(plan, configurations)
    };
    placement::card_plans(core, None, usize::MAX)
        .iter()
        .filter(|plan| is_needed(plan.id))
        .map(copy)
        .collect()
}

/// Creates the DAGs of a batch as they were planned.
///
/// # Errors
/// One cannot be created, and then none may be; the plan is outdated, or may be soon, for the batch can wait for DAGs to move that
/// make room. Nothing has changed then but that DAGs are noted as refused.
pub(crate) fn create_dags(
    core: &mut Core,
    tx: &mut Tx,
    batch: &DagBatch,
    plan: BatchPlan,
) -> Result<Reply, ControlError> {
    let total = batch.dags.len();
    if !(1..=DAG_BATCH_MAX).contains(&total) {
        let text = format!("{total} DAGs; 1 to {DAG_BATCH_MAX} are allowed in one request");
        return Err(ControlError::invalid("requests", text));
    }
    let checked = check_each(core, batch);
    let passed = (0..total).filter(|index| checked[*index].is_ok());
    let BatchPlan { admitted, rejected, wait: _ } = plan;
    let planned = admitted.iter().map(|(index, _)| *index);
    let planned: BTreeSet<usize> =
        planned.chain(rejected.iter().map(|(index, _)| *index)).collect();
    if !planned.into_iter().eq(passed) {
        return Err(ControlError::Outdated);
    }
    check_plan(core, batch, &checked, &admitted)?;
    let mut dags: Vec<Option<Dag>> = vec![None; total];
    let mut results: Vec<Option<Result<Reply, ControlError>>> = vec![None; total];
    for (index, checked) in checked.into_iter().enumerate() {
        match checked {
            Ok(dag) => dags[index] = Some(dag),
            Err(error) => results[index] = Some(Err(error)),
        }
    }
    for (index, error) in rejected {
        if let (false, Some(dag)) = (batch.validate_only, &dags[index]) {
            lifecycle::note_refused(core, tx, &batch.name(index), dag.spec(), &error);
        }
        results[index] = Some(Err(error));
    }
    if core.planning.may_wait() {
        return Err(ControlError::Outdated);
    }
    let mut placed = Vec::with_capacity(admitted.len());
    for (index, admission) in admitted {
        let dag = dags[index].as_ref().expect("what is planned passed its checks");
        let name = batch.name(index);
        match lifecycle::check_choice(core, &name, dag.spec(), &admission.choice) {
            Ok(()) => placed.push((index, admission)),
            Err(error) => results[index] = Some(Err(error)),
        }
    }
    if !batch.allow_partial {
        none_failed(&results)?;
    }
    for (index, admission) in placed {
        let dag = dags[index].take().expect("what is planned passed its checks");
        let card = &admission.choice.card;
        let entry = lifecycle::new_entry(core, &batch.name(index), &dag, card);
        results[index] = Some(Ok(if batch.validate_only {
            let view = lifecycle::preview(core, entry, admission.choice);
            Reply::WouldBe(Box::new(view))
        } else {
            let operation = lifecycle::add_dag(core, tx, entry, admission);
            work::reply(core, &operation)
        }));
    }
    let results = results.into_iter().map(|result| result.expect("each was planned or failed"));
    Ok(Reply::Batch(results.collect()))
}

/// # Errors
/// The first that failed.
fn none_failed(results: &[Option<Result<Reply, ControlError>>]) -> Result<(), ControlError> {
    let mut failed = results.iter().enumerate().filter_map(|(index, result)| match result {
        Some(Err(error)) => Some((index, error)),
        _ => None,
    });
    let Some((index, error)) = failed.next() else { return Ok(()) };
    let (failed, error) = (1 + failed.count(), Box::new(error.clone()));
    Err(ControlError::InBatch { index, failed, total: results.len(), error })
}

/// # Errors
/// The cards have changed since the plan was made, and it does not fit any more.
fn check_plan(
    core: &Core,
    batch: &DagBatch,
    checked: &[Result<Dag, ControlError>],
    admitted: &[(usize, Admission)],
) -> Result<(), ControlError> {
    let cards: BTreeSet<&CardId> = admitted.iter().map(|(_, of)| &of.choice.card).collect();
    let copies = copies(core, |id| cards.contains(id));
    let of_tenant = of_tenant(core, batch);
    let catalogue = core.registry.catalogue();
    let mut board = ScratchCards::new(copies, catalogue, placement::rules(core), of_tenant);
    for (index, admission) in admitted {
        let Ok(dag) = &checked[*index] else { return Err(ControlError::Outdated) };
        let fits = board.admit(&batch.name(*index), dag, admission);
        fits.map_err(|_| ControlError::Outdated)?;
    }
    Ok(())
}

/// Checks that single requests get before a place is looked for; each with those before it.
fn check_each(core: &Core, batch: &DagBatch) -> Vec<Result<Dag, ControlError>> {
    let tenant = &batch.tenant;
    let mut ids: BTreeSet<&DagId> = BTreeSet::new();
    let specs = batch.dags.iter().map(|new| &new.spec);
    let mut usage = core.registry.usage_trial(tenant, specs);
    let held = core.dags.of_tenant(tenant).map(|entry| entry.spec().configurations());
    let (mut configured, mut added) = (held.sum::<usize>(), 0);
    let mut check = |index: usize| {
        let (name, of) = (batch.name(index), &batch.dags[index]);
        if !ids.insert(&of.id) {
            let text = format!("{} is the id of another DAG of the batch; use another one", of.id);
            return Err(ControlError::invalid("dag_id", text));
        }
        if core.dags.contains(&name) {
            return Err(ControlError::exists(&name));
        }
        let dag = lifecycle::check_spec(core, tenant, of.spec.clone())?;
        let configurations = dag.spec().configurations();
        if configurations > 0 {
            lifecycle::check_configured(&name, configured, configurations)?;
        }
        budgets::check_more(core, tenant)?;
        quotas::check_operations(core, tenant, added + 1)?;
        usage.add(dag.spec())?;
        configured += configurations;
        added += 1;
        Ok(dag)
    };
    (0..batch.dags.len()).map(&mut check).collect()
}
