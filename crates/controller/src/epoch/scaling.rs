//! What the autoscaler decides, carried out through the planner.
//!
//! ```text
//!  scale out ── plan for more, what serves now stays ──► regions load ──► one flip ──► old rows go
//!     └ no place: somebody above its fair share gives instances up, and it is tried again
//!  scale in ─── plan for less, on what is loaded ──────► one flip; the chain stays as a victim
//! ```
//!
//! What a DAG holds beyond its promise is burst: a new promise that finds no room takes it back at
//! once, without stopping anybody's traffic, for what serves the smaller placement is loaded.

use std::time::Duration;

use snic_autoscaler::{Chain, Decision, Holder, decide, is_over, pick};
use snic_domain::limits::DAG_BANDWIDTH_MAX;
use snic_domain::{Bandwidth, CardId, CardProfile, Dag, DagName, RegionId};

use super::engine::Outcome;
use super::meter::{NoPlace, Scaling};
use super::run::{Loop, of_engine};
use crate::admission::{Choice, Preemption};
use crate::card::KNOWN;
use crate::dags::DagEntry;
use crate::placement::{Handover, regions_of};
use crate::protocol::{ControlError, LogKind};
use crate::records::Placement;
use crate::state::Controller;
use crate::tx::{About, Tx};

/// What is known while the decisions of one sample are carried out.
struct Round {
    period: Duration,
    /// Who could give instances up; unknown where something has changed since.
    givers: Option<Vec<Holder<usize>>>,
}

/// What was decided for a DAG.
struct Decided {
    name: DagName,
    decision: Decision,
    /// What it would hold with one more instance than it has.
    more: Bandwidth,
}

/// What came of a decision to give a DAG more or fewer instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scaled {
    /// It is on its way to its new place.
    Begun,
    /// There is no place for it.
    NoPlace,
    /// It is being changed already, or it is not worth it.
    NotNow,
}

/// What is logged of a change, and why it is made.
struct Cause {
    kind: LogKind,
    why: String,
}

/// After a scale-out found no place, so many monitor periods pass before it is tried again.
const RETRY_PERIODS: u32 = 5;

impl Controller {
    /// Looks at every DAG of a card whose monitor period ended with this sample.
    pub(super) fn scale(&mut self, tx: &mut Tx, id: &CardId, span: Duration) {
        let card = self.cards.get(id).expect(KNOWN);
        let longest = reconfiguration_max(&card.profile);
        let policy = self.settings.autoscaling;
        let (period, residency) = (policy.period(longest), policy.residency(longest));
        let Loop { engine: Some(engine), number, dags, units, .. } = &card.epoch else { return };
        let (outcome, now) = (engine.outcome(), self.now);
        let mut decisions = Vec::new();
        for (flow, entry) in of_engine(&mut self.dags, *number) {
            let Some(chain) = chain(outcome, units, flow, entry) else { continue };
            let meter = &mut entry.meter;
            let Some(load) = meter.load else { continue };
            if let Some(scaling) = &mut meter.scaling {
                scaling.late |= load > chain.capacity;
            }
            if !meter.monitor.observe(load, span, period) {
                continue;
            }
            let decision = decide(&policy, residency, &chain, &mut meter.monitor, now);
            let waits = match decision {
                Decision::Keep => true,
                Decision::ScaleOut { .. } | Decision::PreLaunch { .. } => meter.not_before > now,
                Decision::ScaleIn { .. } => false,
            };
            if !waits {
                let (name, more) = (dags[flow].clone(), chain.capacity + chain.unit);
                decisions.push(Decided { name, decision, more });
            }
        }
        let mut round = Round { period, givers: None };
        for decided in decisions {
            self.carry_out(tx, id, decided, &mut round);
        }
    }

    /// What the autoscaler is told of a DAG; `None` while it is being changed.
    fn chain_of(&self, id: &CardId, flow: usize, name: &DagName) -> Option<Chain> {
        let epoch = &self.cards.get(id)?.epoch;
        let outcome = epoch.engine.as_ref()?.outcome();
        chain(outcome, &epoch.units, flow, self.dags.get(name)?)
    }

    fn carry_out(&mut self, tx: &mut Tx, id: &CardId, decided: Decided, round: &mut Round) {
        let Decided { name, decision, more } = decided;
        match decision {
            Decision::Keep => {}
            Decision::ScaleOut { to, enough, why } => {
                // What will be needed, or what is, or at least one instance more.
                let sizes = [to, enough.min(to), more.min(enough).min(to)];
                let cause = Cause { kind: LogKind::ScaleOut, why: why.to_string() };
                match self.scale_out(tx, &name, &sizes, cause) {
                    Scaled::Begun => round.givers = None,
                    Scaled::NoPlace => self.no_place(tx, id, &name, round),
                    Scaled::NotNow => {}
                }
            }
            Decision::PreLaunch { to, why } => {
                // What is little over so many instances is served by those.
                let sizes = [to, more.min(to)];
                let cause = Cause { kind: LogKind::PreLaunch, why: why.to_string() };
                if self.scale_out(tx, &name, &sizes, cause) == Scaled::Begun {
                    round.givers = None;
                }
            }
            Decision::ScaleIn { to, why } => {
                let cause = Cause { kind: LogKind::ScaleIn, why: why.to_string() };
                if self.shrink(tx, &name, to, cause) == Scaled::Begun {
                    round.givers = None;
                    self.figures(id, |figures| figures.scale_ins += 1);
                }
            }
        }
    }

    fn figures(&mut self, id: &CardId, change: impl FnOnce(&mut super::LoopFigures)) {
        if let Some(card) = self.cards.get_mut(id) {
            change(&mut card.epoch.figures);
        }
    }

    /// A plan for a DAG with another bandwidth, what it has now staying as it is.
    fn plan_for(&self, name: &DagName, to: Bandwidth) -> Result<(Dag, Choice), ControlError> {
        let entry = self.dags.get(name).ok_or_else(|| ControlError::not_found(name))?;
        let mut spec = entry.spec().clone();
        spec.bandwidth = whole(to).min(DAG_BANDWIDTH_MAX);
        let dag = Dag::new(spec)?;
        let choice = self.choose(name, &dag, entry.desired())?;
        Ok((dag, choice))
    }

    /// A plan for the first of some sizes that has a place. A search that failed is not made again
    /// while nothing has changed on the card.
    fn first_place(&mut self, name: &DagName, sizes: &[Bandwidth]) -> Option<(Dag, Choice)> {
        let entry = self.dags.get(name)?;
        let ledger = &self.cards.get(entry.card()?)?.ledger;
        let changes = (ledger.changes(), self.registry.catalogue().changes());
        let least = sizes.iter().copied().min()?;
        let before = entry.meter.no_place;
        if before.is_some_and(|before| before.changes == changes && before.least <= least) {
            return None;
        }
        let found = sizes.iter().find_map(|to| self.plan_for(name, *to).ok());
        let entry = self.dags.get_mut(name)?;
        entry.meter.no_place = found.is_none().then_some(NoPlace { changes, least });
        found
    }

    /// More instances, by the first of some sizes that has a place.
    fn scale_out(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        sizes: &[Bandwidth],
        cause: Cause,
    ) -> Scaled {
        let Cause { kind, why } = cause;
        let is_due = |entry: &&DagEntry| entry.meter.not_before <= self.now && entry.is_at_rest();
        let Some(entry) = self.dags.get(name).filter(is_due) else { return Scaled::NotNow };
        // What it holds already brings nothing, wherever it is planned.
        let holds = entry.desired().expect("what is at rest has a placement").holds();
        let sizes: Vec<_> = sizes.iter().copied().filter(|size| is_over(*size, holds)).collect();
        let Some((dag, choice)) = self.first_place(name, &sizes) else { return Scaled::NoPlace };
        let replaces = choice.plan.loads.iter().any(|load| load.replaces.is_some());
        if kind == LogKind::PreLaunch && replaces {
            return Scaled::NotNow;
        }
        let regions: Vec<RegionId> = choice.plan.loads.iter().map(|load| load.region).collect();
        let card = choice.card.clone();
        if self.assign(tx, name, choice, Handover::MakeBeforeBreak).is_err() {
            return Scaled::NoPlace;
        }
        let placement = self.dags[name].desired().expect("it was just given a place");
        let (serial, loads) = (placement.serial, !self.is_loaded(placement));
        let late = kind == LogKind::ScaleOut;
        let entry = self.dags.get_mut(name).expect("it was just given a place");
        entry.meter.scaling = Some(Scaling { serial, loads, late });
        self.store_dag(tx, name);
        let text = format!("it is to hold {}: {why}", dag.bandwidth());
        tx.note(kind, About { regions, ..About::dag(&card, name) }, text);
        Scaled::Begun
    }

    /// The placement of a scale-out serves now.
    pub(crate) fn scaled(&mut self, tx: &mut Tx, name: &DagName) {
        let now = self.now;
        let entry = self.dags.get_mut(name).expect("only a DAG that exists arrives");
        let Some(scaling) = entry.meter.scaling else { return };
        let Some(placement) = entry.desired() else { return };
        if scaling.serial != placement.serial {
            return;
        }
        let hidden = !scaling.loads || !scaling.late;
        let (card, holds) = (placement.mapping.card.clone(), placement.holds());
        let regions = regions_of(placement);
        let chains: Vec<_> = placement.mapping.instances().map(|i| i.bitstream.clone()).collect();
        entry.meter.scaling = None;
        entry.meter.settled = now;
        if let Some(card) = self.cards.get_mut(&card) {
            card.epoch.scaled.extend(chains);
        }
        self.figures(&card, |figures| {
            figures.scale_outs += 1;
            figures.scale_outs_hidden += u64::from(hidden);
        });
        let text = match (scaling.loads, hidden) {
            (false, _) => format!("it holds {holds}; no region had to be loaded"),
            (true, true) => format!("it holds {holds}; the load never waited for a region"),
            (true, false) => format!("it holds {holds}"),
        };
        tx.note(LogKind::Scaled, About { regions, ..About::dag(&card, name) }, text);
    }

    /// Fewer instances, on what is loaded. What is given back is free once the rows have changed.
    fn shrink(&mut self, tx: &mut Tx, name: &DagName, to: Bandwidth, cause: Cause) -> Scaled {
        let at_rest = self.dags.get(name).filter(|entry| entry.is_at_rest());
        let Some(before) = at_rest.and_then(|entry| entry.desired().cloned()) else {
            return Scaled::NotNow;
        };
        let planned = self.plan_for(name, to).ok();
        let Some((_, choice)) = planned.filter(|(_, choice)| choice.plan.loads.is_empty()) else {
            return Scaled::NoPlace;
        };
        // What it has is more than what it takes now; but rows may be short.
        if self.assign(tx, name, choice, Handover::MakeBeforeBreak).is_err() {
            return Scaled::NoPlace;
        }
        self.shrunk(tx, name, &before, cause);
        Scaled::Begun
    }

    /// A DAG gives its burst capacity back at once, for one that asks for a guarantee: its traffic
    /// does not stop, for what serves the smaller placement is loaded.
    pub(crate) fn preempt(&mut self, tx: &mut Tx, preemption: Preemption) {
        let Preemption { name, choice } = preemption;
        let before = self.dags.get(&name).and_then(|entry| entry.desired().cloned());
        let before = before.expect("only a DAG that has a placement holds burst capacity");
        let card = choice.card.clone();
        self.assign(tx, &name, choice, Handover::AtOnce)
            .expect("it was tried on copies of the same ledger and rows");
        let why = "its burst capacity is needed for a guaranteed rate".to_owned();
        self.shrunk(tx, &name, &before, Cause { kind: LogKind::Reclaim, why });
        self.figures(&card, |figures| figures.reclaims += 1);
    }

    /// A DAG has fewer instances than `before` from now on.
    fn shrunk(&mut self, tx: &mut Tx, name: &DagName, before: &Placement, cause: Cause) {
        let Cause { kind, why } = cause;
        self.store_dag(tx, name);
        let entry = self.dags.get_mut(name).expect("it was just given a place");
        entry.meter.settled = self.now;
        let placement = entry.desired().expect("it was just given a place");
        let (kept, holds) = (regions_of(placement), placement.holds());
        let regions = regions_of(before).into_iter().filter(|r| !kept.contains(r)).collect();
        let text = format!("it holds {holds} instead of {}: {why}", before.holds());
        let about = About { regions, ..About::dag(&before.mapping.card, name) };
        tx.note(kind, about, text);
    }

    /// A scale-out found no place: who is above its fair share gives instances up for it.
    fn no_place(&mut self, tx: &mut Tx, id: &CardId, name: &DagName, round: &mut Round) {
        let given = self.settings.autoscaling.context_switch
            && self.switch(tx, id, name, round) == Scaled::Begun;
        let wait = if given { Duration::ZERO } else { round.period * RETRY_PERIODS };
        let now = self.now;
        let entry = self.dags.get_mut(name).expect("a DAG that is being scaled exists");
        entry.meter.not_before = now + wait;
        if !given && Loop::may_tell(&mut entry.meter.no_place_told, now) {
            let text = "it is overloaded, and no region is free or above somebody's fair share; \
                        it shares what there is"
                .to_owned();
            tx.note(LogKind::NoPlace, About::dag(id, name), text);
        }
    }

    /// Who holds more than its fair share comes to and could give instances up.
    fn givers(&self, id: &CardId) -> Vec<Holder<usize>> {
        let Some(card) = self.cards.get(id) else { return Vec::new() };
        let Some(engine) = &card.epoch.engine else { return Vec::new() };
        let (outcome, units) = (engine.outcome(), &card.epoch.units);
        let holders = self.dags.values().filter_map(|entry| {
            let flow = entry.meter.flow_of(card.epoch.number)?;
            let chain = chain(outcome, units, flow, entry)?;
            let gives = fair_instances(&chain) < instances(chain.holds, chain.unit);
            (gives && entry.is_at_rest()).then(|| Holder {
                id: flow,
                load: entry.meter.load.unwrap_or_default(),
                holds: chain.holds,
                fair: chain.fair,
                settled: chain.settled,
            })
        });
        holders.collect()
    }

    /// Has a DAG give instances up for `asking`.
    fn switch(&mut self, tx: &mut Tx, id: &CardId, asking: &DagName, round: &mut Round) -> Scaled {
        let givers = round.givers.take().unwrap_or_else(|| self.givers(id));
        let Some(card) = self.cards.get(id) else { return Scaled::NotNow };
        let residency = self.settings.autoscaling.residency(reconfiguration_max(&card.profile));
        let names = &card.epoch.dags;
        let others = givers.iter().filter(|giver| names[giver.id].tenant != asking.tenant);
        let picked = pick(others.copied(), residency, self.now);
        let Some((flow, name)) = picked.map(|flow| (flow, names[flow].clone())) else {
            round.givers = Some(givers);
            return Scaled::NoPlace;
        };
        let Some(chain) = self.chain_of(id, flow, &name) else { return Scaled::NotNow };
        let why = format!("its fair share is {}, and another DAG is below its own", chain.fair);
        let cause = Cause { kind: LogKind::ContextSwitch, why };
        let kept = chain.unit.get().saturating_mul(fair_instances(&chain));
        let to = Bandwidth::from_bps(kept).min(chain.holds).max(chain.admitted);
        let done = self.shrink(tx, &name, to, cause);
        match done {
            Scaled::Begun => self.figures(id, |figures| figures.context_switches += 1),
            Scaled::NoPlace | Scaled::NotNow => round.givers = Some(givers),
        }
        done
    }
}

/// What the autoscaler is told of a DAG; `None` while it is being changed.
fn chain(outcome: &Outcome, units: &[Bandwidth], flow: usize, entry: &DagEntry) -> Option<Chain> {
    Some(Chain {
        capacity: *outcome.reach.get(flow)?,
        unit: *units.get(flow)?,
        holds: entry.desired()?.holds(),
        admitted: entry.spec().bandwidth,
        fair: *outcome.fair.get(flow)?,
        settled: entry.meter.settled,
    })
}

/// How many whole instances a DAG's fair share comes to; what is beyond by a hundredth is rounding.
fn fair_instances(chain: &Chain) -> u64 {
    instances(Bandwidth::from_bps(chain.fair.get() - chain.fair.get() / 100), chain.unit)
}

/// How many instances a bandwidth takes.
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
fn whole(bandwidth: Bandwidth) -> Bandwidth {
    let unit = Bandwidth::GRANULARITY.get();
    Bandwidth::from_bps(bandwidth.get().div_ceil(unit).saturating_mul(unit))
}
