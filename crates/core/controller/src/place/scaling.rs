//! Applies the autoscaler's decisions through the planner.
//!
//! ```text
//!  scale out ── plan for more, what serves now stays ──► regions load ──► one flip ──► old rows go
//!     └ no place: somebody above its fair share gives instances up, or of a region that both can use what is beyond its
//!       share, and it is tried again
//!  scale in ─── plan for less, on what is loaded ──────► one flip; the chain stays as a victim
//! ```
//!
//! Capacity beyond a DAG's guaranteed rate is burst: a new guarantee that finds no room preempts it at
//! once, without stopping anybody's traffic, because the regions of the smaller placement stay loaded. For burst
//! no DAG stops either: one that keeps state gets only what it can have while its state stays where it is.

use std::cmp::Reverse;
use std::time::Duration;

use snic_autoscaler::{DagCapacity, Decision, Holder, decide_early, is_near, is_over, pick};
use snic_domain::limits::DAG_BANDWIDTH_MAX;
use snic_domain::{Bandwidth, CardId, CardProfile, Dag, DagName, RegionId};
use snic_planner::{Effort, PlanRequest, plan_within};

use crate::place::placement;
use crate::place::placement::Handover;
use crate::place::residency::takes_state_along;
use crate::protocol::{Admission, Choice, LogKind, Preemption};
use crate::state::Core;
use crate::state::dags::{DagEntry, DagNumber};
use crate::state::epoch::{Flows, of_engine};
use crate::state::meter::{Changes, LogDecision, NoPlace, Scaling, ScalingInput};
use crate::store::records::{Placement, regions_of};
use crate::store::tx::{LogSubject, Tx};

/// State while the decisions of one sample are carried out.
struct ScalingRound {
    period: Duration,
    /// Holders that could give instances up; unknown where something has changed since.
    givers: Option<Vec<Holder<usize>>>,
}

/// A decision about a DAG.
struct ScalingDecision {
    name: DagName,
    decision: Decision,
    /// Input of the decision.
    chain: DagCapacity,
}

/// A DAG that is below its fair share, and found no place for more.
struct AskingDag<'a> {
    name: &'a DagName,
    /// Bandwidths that were tried.
    sizes: [Bandwidth; 4],
}

/// Result of a decision to give a DAG more or fewer instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScalingOutcome {
    /// It is on its way to its new place.
    Begun,
    /// There is no place for it.
    NoPlace,
    /// It is being changed already, or it is not worth it.
    NotNow,
}

/// Log entry of a change, and its reason.
struct Cause {
    kind: LogKind,
    why: String,
}

/// Monitor periods that pass after a scale-out found no place, before it is tried again.
const RETRY_PERIODS: u32 = 5;

/// Number of DAGs above their fair share that are tried for one below its own; each takes two plans.
const GIVERS_TRIED_MAX: usize = 4;

/// Looks at every DAG of a card whose monitor period ended with this sample.
pub(crate) fn scale(core: &mut Core, tx: &mut Tx, id: &CardId, span: Duration) {
    let card = core.cards.known(id);
    let longest = reconfiguration_max(card.profile());
    let policy = core.policies.current().autoscaling;
    let (period, residency) = (policy.period(longest), policy.residency(longest));
    let Some(flows) = core.loops.known(id).flows() else {
        return; // Too much for an engine: all keep what they have.
    };
    let now = core.now();
    let mut decisions = Vec::new();
    let mut looks = false;
    for (flow, number) in flows.numbers.iter().enumerate() {
        let Some(entry) = of_engine(&mut core.dags, flows.number, (flow, *number)) else {
            continue; // It is gone.
        };
        let Some(chain) = chain(&flows, flow, entry) else {
            continue; // It lost its place since the engine was made.
        };
        let meter = entry.meter_mut();
        looks |= meter.load().is_some_and(|load| is_near(&policy, &chain, load));
        let look = ScalingInput { policy: &policy, period, residency, capacity: &chain, now };
        let Some(decision) = meter.decide(span, &look) else {
            continue; // It is measured for the first time, or the period goes on.
        };
        let waits = match decision {
            Decision::Keep => true,
            Decision::ScaleOut { .. } | Decision::PreLaunch { .. } => meter.must_wait(now),
            Decision::ScaleIn { .. } => false,
        };
        if !waits {
            decisions.push(ScalingDecision { name: flows.dags[flow].clone(), decision, chain });
        }
    }
    let mut round = ScalingRound { period, givers: None };
    for decided in decisions {
        carry_out(core, tx, id, decided, &mut round);
    }
    looks &= core.cards.known(id).has_unused_region();
    let next = looks.then(|| now + policy.check_interval());
    core.loops.known_mut(id).set_next_probe(next);
}

/// Looks, between two samples, at the loads that are near their capacity; the last sample was `span` ago.
/// Carries decisions out. One that fails is not tried again before the next sample.
pub(crate) fn scale_between_samples(core: &mut Core, tx: &mut Tx, id: &CardId, span: Duration) {
    let card = core.cards.known(id);
    let longest = reconfiguration_max(card.profile());
    let policy = core.policies.current().autoscaling;
    let (period, residency) = (policy.period(longest), policy.residency(longest));
    let (line, now) = (card.profile().ingress, core.now());
    let card_loop = core.loops.known(id);
    let span = card_loop.card_span(card.counters(), card.profile().clock_hz, span);
    let counted = core.loops.known_mut(id).by_row(card.counters());
    let Some(flows) = core.loops.known(id).flows() else {
        return; // Too much for an engine: all keep what they have.
    };
    let mut decisions = Vec::new();
    for (flow, number) in flows.numbers.iter().enumerate() {
        let Some(entry) = of_engine(&mut core.dags, flows.number, (flow, *number)) else {
            continue; // It is gone.
        };
        let Some(chain) = chain(&flows, flow, entry) else {
            continue; // It lost its place since the engine was made.
        };
        let meter = entry.meter();
        let was_near = meter.load().is_some_and(|load| is_near(&policy, &chain, load));
        if !was_near || meter.must_wait(now) || !entry.is_at_rest() {
            continue;
        }
        let counters = counted.get(usize::from(entry.uid().row())).copied().unwrap_or_default();
        let load = meter.load_since(counters, span, line);
        let decision = load.map(|load| decide_early(&policy, residency, &chain, load, now));
        if let Some(decision) = decision.filter(|decision| *decision != Decision::Keep) {
            decisions.push(ScalingDecision { name: flows.dags[flow].clone(), decision, chain });
        }
    }
    core.loops.known_mut(id).reuse(counted);
    let mut round = ScalingRound { period, givers: None };
    for decided in decisions {
        if carry_out(core, tx, id, decided, &mut round) != ScalingOutcome::Begun {
            core.loops.known_mut(id).set_next_probe(None);
        }
    }
}

/// Does what was decided for a DAG; says what came of it.
fn carry_out(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    decided: ScalingDecision,
    round: &mut ScalingRound,
) -> ScalingOutcome {
    let ScalingDecision { name, decision, chain } = decided;
    let is_more = matches!(decision, Decision::ScaleOut { .. } | Decision::PreLaunch { .. });
    if is_more && core.budgets.burst_off().contains(&name.tenant) {
        return ScalingOutcome::NotNow; // More than it is promised is not for it.
    }
    let scaled = match decision {
        Decision::Keep => ScalingOutcome::NotNow,
        Decision::ScaleOut { to, why } => {
            let cause = Cause { kind: LogKind::ScaleOut, why: why.to_string() };
            let asking = AskingDag { name: &name, sizes: sizes(to, &chain) };
            let scaled = scale_out(core, tx, &name, &asking.sizes, cause);
            if scaled == ScalingOutcome::NoPlace {
                no_place(core, tx, id, &asking, round);
            }
            scaled
        }
        Decision::PreLaunch { to, why } => {
            let cause = Cause { kind: LogKind::PreLaunch, why: why.to_string() };
            scale_out(core, tx, &name, &sizes(to, &chain), cause)
        }
        Decision::ScaleIn { to, why } => {
            let cause = Cause { kind: LogKind::ScaleIn, why: why.to_string() };
            let scaled = shrink(core, tx, &name, to, cause);
            if scaled == ScalingOutcome::Begun {
                core.loops.known_mut(id).count(|figures| figures.scale_ins += 1);
            }
            scaled
        }
    };
    if scaled == ScalingOutcome::Begun {
        round.givers = None;
    }
    scaled
}

/// A plan for a DAG with another bandwidth, what it has now staying as it is; `None` where there is no place, or
/// it would have to stop because its state is in a region that it would leave.
fn plan_for(core: &Core, name: &DagName, to: Bandwidth) -> Option<(Dag, Choice)> {
    let entry = core.dags.known(name);
    if entry.desired().is_some_and(|now| !now.mapping.programs.is_empty()) {
        return None; // Threads are not borrowed.
    }
    let mut spec = entry.spec().clone();
    spec.bandwidth = round_up_to_kbps(to).min(DAG_BANDWIDTH_MAX);
    let dag = Dag::new(spec).ok()?;
    let now = entry.desired();
    let choice = placement::choose(core, name, &dag, now).ok()?;
    let stops =
        now.is_some_and(|now| takes_state_along(core, name, &now.mapping, &choice.plan.mapping));
    (!stops).then_some((dag, choice))
}

/// A plan for the first of some sizes that has a place. A search that failed is not made again
/// while nothing has changed on the card.
fn first_place(core: &mut Core, name: &DagName, sizes: &[Bandwidth]) -> Option<(Dag, Choice)> {
    let entry = core.dags.known(name);
    let card = entry.card().expect("what is at rest has a placement");
    let ledger = core.cards.known(card).ledger();
    let catalogue = core.registry.catalogue().changes();
    let changes = Changes { ledger: ledger.changes(), catalogue };
    let least = sizes.iter().copied().min()?;
    if entry.meter().has_no_place(changes, least) {
        return None;
    }
    let mut tried = sizes.iter().take_while(|_| core.planning.may_begin());
    let found = tried.by_ref().find_map(|to| plan_for(core, name, *to));
    if found.is_none() && !core.planning.may_begin() {
        return None; // The others were not tried.
    }
    let meter = core.dags.meter_mut(name);
    meter.searched(found.is_none().then_some(NoPlace { changes, least }));
    found
}

/// More instances, by the first of some sizes that has a place.
fn scale_out(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
    sizes: &[Bandwidth],
    cause: Cause,
) -> ScalingOutcome {
    let Cause { kind, why } = cause;
    let entry = core.dags.known(name);
    if entry.meter().must_wait(core.now()) || !entry.is_at_rest() {
        return ScalingOutcome::NotNow;
    }
    // What it holds already brings nothing, wherever it is planned.
    let holds = entry.desired().expect("what is at rest has a placement").holds();
    let sizes: Vec<_> = sizes.iter().copied().filter(|size| is_over(*size, holds)).collect();
    let Some((dag, choice)) = first_place(core, name, &sizes) else {
        return ScalingOutcome::NoPlace;
    };
    let replaces = choice.plan.loads.iter().any(|load| load.replaces.is_some());
    if kind == LogKind::PreLaunch && replaces {
        return ScalingOutcome::NotNow;
    }
    let regions: Vec<RegionId> = choice.plan.loads.iter().map(|load| load.region).collect();
    let card = choice.card.clone();
    if placement::assign(core, tx, name, choice, Handover::MakeBeforeBreak).is_err() {
        return ScalingOutcome::NoPlace;
    }
    let placement = core.dags.known(name).desired().expect("it was just given a place");
    let (serial, loads) = (placement.serial, !core.cards.known(&card).is_loaded(placement));
    core.dags.meter_mut(name).scale(Scaling { serial, loads });
    core.dags.store(tx, name);
    let text = format!("it scales to {}: {why}", dag.bandwidth());
    tx.note(kind, LogSubject { regions, ..LogSubject::dag(&card, name) }, text);
    ScalingOutcome::Begun
}

/// The placement of a scale-out serves now.
pub(crate) fn scaled(core: &mut Core, tx: &mut Tx, name: &DagName) {
    let now = core.now();
    let entry = core.dags.known(name);
    let (scaling, placement) = (entry.meter().scaling(), entry.desired());
    let placement = placement.expect("what is ready has a placement");
    let Some(scaling) = scaling.filter(|scaling| scaling.serial == placement.serial) else {
        return; // It was not scaled out, or something else was asked for since.
    };
    let hidden = !scaling.loads;
    let (card, holds) = (placement.mapping.card.clone(), placement.holds());
    let regions = regions_of(placement);
    let chains: Vec<_> = placement.mapping.instances().map(|i| i.bitstream.clone()).collect();
    core.dags.meter_mut(name).scaled(now);
    let card_loop = core.loops.known_mut(&card);
    card_loop.note_scaled(chains);
    card_loop.count(|figures| {
        figures.scale_outs += 1;
        figures.scale_outs_hidden += u64::from(hidden);
    });
    let text = match hidden {
        true => format!("it holds {holds}; no region had to be loaded"),
        false => format!("it holds {holds}"),
    };
    tx.note(LogKind::Scaled, LogSubject { regions, ..LogSubject::dag(&card, name) }, text);
}

/// Fewer instances, on what is loaded. What is given back is free once the rows have changed.
fn shrink(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
    to: Bandwidth,
    cause: Cause,
) -> ScalingOutcome {
    let entry = core.dags.known(name);
    if !entry.is_at_rest() {
        return ScalingOutcome::NotNow;
    }
    let before = entry.desired().expect("what is at rest has a placement").clone();
    let planned = plan_for(core, name, to);
    let Some((_, choice)) = planned.filter(|(_, choice)| choice.plan.loads.is_empty()) else {
        return ScalingOutcome::NoPlace;
    };
    // What it has is more than what it takes now; but rows may be short.
    if placement::assign(core, tx, name, choice, Handover::MakeBeforeBreak).is_err() {
        return ScalingOutcome::NoPlace;
    }
    shrunk(core, tx, name, &before, cause);
    ScalingOutcome::Begun
}

/// A DAG gives its burst capacity back at once, for one that asks for a guarantee: its traffic
/// does not stop, for what serves the smaller placement is loaded.
fn preempt(core: &mut Core, tx: &mut Tx, preemption: Preemption) {
    let Preemption { name, choice, .. } = preemption;
    let before = core.dags.known(&name).desired().cloned();
    let before = before.expect("only a DAG that has a placement holds burst capacity");
    let card = choice.card.clone();
    placement::assign(core, tx, &name, choice, Handover::AtOnce)
        .expect("it was tried on copies of the same ledger and rows");
    let why = "its burst capacity is needed for a guaranteed rate".to_owned();
    shrunk(core, tx, &name, &before, Cause { kind: LogKind::Preemption, why });
    core.loops.known_mut(&card).count(|figures| figures.preemptions += 1);
}

/// A DAG has fewer instances than `before` from now on.
fn shrunk(core: &mut Core, tx: &mut Tx, name: &DagName, before: &Placement, cause: Cause) {
    let Cause { kind, why } = cause;
    core.dags.store(tx, name);
    let now = core.now();
    core.dags.meter_mut(name).restart_cooldown(now);
    let placement = core.dags.known(name).desired().expect("it was just given a place");
    let (kept, holds) = (regions_of(placement), placement.holds());
    let regions = regions_of(before).into_iter().filter(|r| !kept.contains(r)).collect();
    let text = format!("it holds {holds} instead of {}: {why}", before.holds());
    let about = LogSubject { regions, ..LogSubject::dag(&before.mapping.card, name) };
    tx.note(kind, about, text);
}

/// A scale-out found no place: who is above its fair share gives instances up for it.
fn no_place(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    asking: &AskingDag<'_>,
    round: &mut ScalingRound,
) {
    let name = asking.name;
    let given = core.policies.current().autoscaling.context_switch
        && switch(core, tx, id, name, round) == ScalingOutcome::Begun;
    let given = given || give_part(core, tx, id, asking) == ScalingOutcome::Begun;
    let wait = if given { Duration::ZERO } else { round.period * RETRY_PERIODS };
    let now = core.now();
    let meter = core.dags.meter_mut(name);
    meter.retry_at(now + wait);
    if !given && meter.trouble(now) == LogDecision::Log {
        let text = "it is overloaded, and no region is free or above somebody's fair share; \
                    it shares what there is"
            .to_owned();
        tx.note(LogKind::NoPlace, LogSubject::dag(id, name), text);
    }
}

/// Holders of more than their fair share comes to, which could give instances up.
fn givers(core: &Core, id: &CardId) -> Vec<Holder<usize>> {
    let flows = core.loops.known(id).flows().expect("a DAG is scaled by what its engine came to");
    let holders = flows.numbers.iter().filter_map(|number| {
        let entry = core.dags.at(*number)?;
        let flow = entry.meter().flow_of(flows.number)?;
        let chain = chain(&flows, flow, entry)?;
        let gives = fair_instances(&chain) < instances(chain.holds, chain.unit);
        (gives && entry.is_at_rest()).then(|| Holder {
            id: flow,
            load: entry.meter().load().unwrap_or_default(),
            holds: chain.holds,
            fair: chain.fair,
            settled: chain.settled,
        })
    });
    holders.collect()
}

/// Has a DAG give instances up for `asking`.
fn switch(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    asking: &DagName,
    round: &mut ScalingRound,
) -> ScalingOutcome {
    let givers = round.givers.take().unwrap_or_else(|| givers(core, id));
    let longest = reconfiguration_max(core.cards.known(id).profile());
    let residency = core.policies.current().autoscaling.residency(longest);
    let flows = core.loops.known(id).flows().expect("a DAG is scaled by what its engine came to");
    let names = flows.dags;
    let others = givers.iter().filter(|giver| names[giver.id].tenant != asking.tenant);
    let picked = pick(others.copied(), residency, core.now());
    let Some((flow, name)) = picked.map(|flow| (flow, names[flow].clone())) else {
        round.givers = Some(givers);
        return ScalingOutcome::NoPlace;
    };
    let chain = chain(&flows, flow, core.dags.known(&name)).expect("it holds what it can give");
    let why = format!("its fair share is {}, and another DAG is below its own", chain.fair);
    let cause = Cause { kind: LogKind::ContextSwitch, why };
    let kept = chain.unit.get().saturating_mul(fair_instances(&chain));
    let to = Bandwidth::from_bps(kept).min(chain.holds).max(chain.admitted);
    let done = shrink(core, tx, &name, to, cause);
    match done {
        ScalingOutcome::Begun => {
            core.loops.known_mut(id).count(|figures| figures.context_switches += 1);
        }
        ScalingOutcome::NoPlace | ScalingOutcome::NotNow => round.givers = Some(givers),
    }
    done
}

/// Has a DAG give up what it holds beyond its fair share, less than an instance, where the one that asks finds a place by that in
/// what is loaded. The regions of both stay as they are, so this is no context switch.
fn give_part(core: &mut Core, tx: &mut Tx, id: &CardId, asking: &AskingDag<'_>) -> ScalingOutcome {
    let longest = reconfiguration_max(core.cards.known(id).profile());
    let residency = core.policies.current().autoscaling.residency(longest);
    let now = core.now();
    let flows = core.loops.known(id).flows().expect("a DAG is scaled by what its engine came to");
    let excess = |number: &DagNumber| {
        let entry = core.dags.at(*number)?;
        let chain = chain(&flows, entry.meter().flow_of(flows.number)?, entry)?;
        let to = chain.fair.max(chain.admitted);
        let gives = is_over(chain.holds, to)
            && instances(to, chain.unit) == instances(chain.holds, chain.unit)
            && now.since(chain.settled) >= residency
            && entry.is_at_rest()
            && entry.name().tenant != asking.name.tenant;
        gives.then(|| (Reverse(chain.holds.saturating_sub(to)), entry.name().clone(), to))
    };
    let mut givers: Vec<_> = flows.numbers.iter().filter_map(excess).collect();
    givers.sort();
    for (_, giver, to) in givers.into_iter().take(GIVERS_TRIED_MAX) {
        if !core.planning.may_begin() {
            break;
        }
        if would_help(core, &giver, to, asking) {
            let why = format!("its fair share is {to}, and another DAG is below its own");
            return shrink(core, tx, &giver, to, Cause { kind: LogKind::ScaleIn, why });
        }
    }
    ScalingOutcome::NoPlace
}

/// Whether one DAG finds a place in what is loaded once another one holds no more than `to`.
fn would_help(core: &Core, giver: &DagName, to: Bandwidth, asking: &AskingDag<'_>) -> bool {
    let Some((_, less)) = plan_for(core, giver, to) else { return false };
    let entry = core.dags.known(asking.name);
    let Some(now) = entry.desired().filter(|now| now.mapping.card == less.card) else {
        return false;
    };
    let mut ledger = core.cards.known(&less.card).ledger().clone();
    if !less.plan.loads.is_empty() || ledger.hold(giver, less.plan.reservation).is_err() {
        return false;
    }
    let effort = Effort::new();
    let has_place = |size: &Bandwidth| {
        let mut spec = entry.spec().clone();
        spec.bandwidth = round_up_to_kbps(*size).min(DAG_BANDWIDTH_MAX);
        let Ok(dag) = Dag::new(spec) else { return false };
        let request = PlanRequest { name: asking.name, dag: &dag, previous: Some(&now.mapping) };
        let plan = plan_within(&ledger, core.registry.catalogue(), &request, &effort);
        plan.is_ok_and(|plan| plan.loads.is_empty())
    };
    let found = asking.sizes.iter().filter(|size| is_over(**size, now.holds())).any(has_place);
    core.planning.planned(&effort);
    found
}

/// Carries an admission out: takes back what it says, then gives the DAG its place.
pub(crate) fn admit(core: &mut Core, tx: &mut Tx, name: &DagName, admission: Admission) {
    for preemption in admission.preempt {
        preempt(core, tx, preemption);
    }
    placement::assign(core, tx, name, admission.choice, Handover::MakeBeforeBreak)
        .expect("it was tried on copies of the same ledger and rows");
}

/// Input of the autoscaler for a DAG; `None` where it has no place.
fn chain(flows: &Flows<'_>, flow: usize, entry: &DagEntry) -> Option<DagCapacity> {
    Some(DagCapacity {
        capacity: flows.outcome.reach[flow],
        unit: flows.units[flow],
        holds: entry.desired()?.holds(),
        admitted: entry.spec().bandwidth,
        fair: flows.outcome.fair[flow],
        settled: entry.meter().last_change(),
    })
}

/// Bandwidths that a DAG may be planned for, the most first: what it needs, one instance more than it has, or, where
/// that finds no place, parts of what it lacks.
fn sizes(to: Bandwidth, chain: &DagCapacity) -> [Bandwidth; 4] {
    let lacks = to.get().saturating_sub(chain.holds.get());
    let part = |quarters: u64| Bandwidth::from_bps(to.get() - lacks / 4 * quarters);
    [to, (chain.capacity + chain.unit).min(to), part(1), part(2)]
}

/// Number of whole instances that a DAG's fair share comes to; a hundredth beyond counts as rounding.
fn fair_instances(chain: &DagCapacity) -> u64 {
    instances(Bandwidth::from_bps(chain.fair.get() - chain.fair.get() / 100), chain.unit)
}

/// Number of instances that a bandwidth takes.
fn instances(bandwidth: Bandwidth, unit: Bandwidth) -> u64 {
    bandwidth.get().div_ceil(unit.get().max(1))
}

/// The longest load of any region of a card.
fn reconfiguration_max(profile: &CardProfile) -> Duration {
    let largest = profile.regions.iter().map(|region| region.bitstream_max.get()).max();
    let nanos = u128::from(largest.unwrap_or(0)) * 1_000_000_000;
    let nanos = nanos / u128::from(profile.configuration_bytes_per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Rounded up to what rate registers can say.
fn round_up_to_kbps(bandwidth: Bandwidth) -> Bandwidth {
    let unit = Bandwidth::GRANULARITY.get();
    Bandwidth::from_bps(bandwidth.get().div_ceil(unit).saturating_mul(unit))
}
