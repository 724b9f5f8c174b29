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

use snic_autoscaler::{Chain, Decision, Holder, Why, decide, is_over, pick};
use snic_domain::limits::DAG_BANDWIDTH_MAX;
use snic_domain::{Bandwidth, CardId, CardProfile, Dag, DagName, RegionId};

use super::engine::Outcome;
use super::meter::{NoPlace, Scaling};
use super::run::{Loop, of_engine};
use crate::admission::{Choice, Preemption};
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

/// After a scale-out found no place, so many monitor periods pass before it is tried again.
const RETRY_PERIODS: u32 = 5;

impl Controller {
    /// Looks at every DAG of a card whose monitor period ended with this sample.
    pub(super) fn scale(&mut self, tx: &mut Tx, id: &CardId, span: Duration) {
        let Some(card) = self.cards.get(id) else { return };
        let longest = reconfiguration_max(&card.profile);
        let policy = self.settings.autoscaling;
        let (period, residency) = (policy.period(longest), policy.residency(longest));
        let Loop { engine: Some(engine), number, dags, units, .. } = &card.epoch else { return };
        let (outcome, now) = (engine.outcome(), self.now);
        let mut decisions: Vec<(DagName, Decision, Bandwidth)> = Vec::new();
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
                decisions.push((dags[flow].clone(), decision, chain.capacity + chain.unit));
            }
        }
        let mut round = Round { period, givers: None };
        for (name, decision, more) in decisions {
            self.carry_out(tx, id, (&name, decision, more), &mut round);
        }
    }

    /// What the autoscaler is told of a DAG; `None` while it is being changed.
    fn chain_of(&self, id: &CardId, flow: usize, name: &DagName) -> Option<Chain> {
        let epoch = &self.cards.get(id)?.epoch;
        let outcome = epoch.engine.as_ref()?.outcome();
        chain(outcome, &epoch.units, flow, self.dags.get(name)?)
    }

    /// `more` is what the DAG would hold with one more instance than it has.
    fn carry_out(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        (name, decision, more): (&DagName, Decision, Bandwidth),
        round: &mut Round,
    ) {
        match decision {
            Decision::Keep => {}
            Decision::ScaleOut { to, enough, why } => {
                // What will be needed, or what is, or at least one instance more.
                let sizes = [to, enough.min(to), more.min(enough).min(to)];
                match self.scale_out(tx, name, &sizes, (LogKind::ScaleOut, why)) {
                    Some(true) => round.givers = None,
                    Some(false) => self.no_place(tx, id, name, round),
                    None => {}
                }
            }
            Decision::PreLaunch { to, why } => {
                // What is little over so many instances is served by those.
                let sizes = [to, more.min(to)];
                if self.scale_out(tx, name, &sizes, (LogKind::PreLaunch, why)) == Some(true) {
                    round.givers = None;
                }
            }
            Decision::ScaleIn { to, why } => {
                let about = (LogKind::ScaleIn, why.to_string());
                if self.shrink(tx, name, to, about) {
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

    fn is_at_rest(&self, name: &DagName) -> bool {
        self.dags.get(name).is_some_and(DagEntry::is_at_rest)
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
        let changes = (ledger.changes(), self.catalogue.changes());
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

    /// More instances, by the first of some sizes that has a place; says whether one had, or
    /// nothing where there is nothing to do about it now.
    fn scale_out(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        sizes: &[Bandwidth],
        (kind, why): (LogKind, Why),
    ) -> Option<bool> {
        let waits = self.dags.get(name)?.meter.not_before > self.now;
        if waits || !self.is_at_rest(name) {
            return None;
        }
        // What it holds already brings nothing, wherever it is planned.
        let holds = self.dags.get(name)?.desired()?.holds();
        let sizes: Vec<_> = sizes.iter().copied().filter(|size| is_over(*size, holds)).collect();
        let Some((dag, choice)) = self.first_place(name, &sizes) else { return Some(false) };
        let replaces = choice.plan.loads.iter().any(|load| load.replaces.is_some());
        if kind == LogKind::PreLaunch && replaces {
            return None;
        }
        let regions: Vec<RegionId> = choice.plan.loads.iter().map(|load| load.region).collect();
        let card = choice.card.clone();
        if self.assign(tx, name, choice, Handover::MakeBeforeBreak).is_err() {
            return Some(false);
        }
        let placement = self.dags.get(name).and_then(|entry| entry.desired());
        let loads = placement.is_some_and(|placement| !self.is_loaded(placement));
        if let Some(entry) = self.dags.get_mut(name)
            && let Some(placement) = entry.desired()
        {
            let late = kind == LogKind::ScaleOut;
            entry.meter.scaling = Some(Scaling { serial: placement.serial, loads, late });
        }
        self.store_dag(tx, name);
        let text = format!("it is to hold {}: {why}", dag.bandwidth());
        tx.note(kind, About { regions, ..About::dag(&card, name) }, text);
        Some(true)
    }

    /// The placement of a scale-out serves now.
    pub(crate) fn scaled(&mut self, tx: &mut Tx, name: &DagName) {
        let now = self.now;
        let Some(entry) = self.dags.get_mut(name) else { return };
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

    /// Fewer instances, on what is loaded; says whether that was begun. What is given back is free
    /// once the rows have changed.
    fn shrink(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        to: Bandwidth,
        (kind, why): (LogKind, String),
    ) -> bool {
        if !self.is_at_rest(name) {
            return false;
        }
        let Ok((_, choice)) = self.plan_for(name, to) else { return false };
        let before = self.dags.get(name).and_then(|entry| entry.desired().cloned());
        let Some(before) = before.filter(|_| choice.plan.loads.is_empty()) else { return false };
        // What it has is more than what it takes now; but rows may be short.
        if self.assign(tx, name, choice, Handover::MakeBeforeBreak).is_err() {
            return false;
        }
        self.shrunk(tx, name, &before, (kind, why));
        true
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
        self.shrunk(tx, &name, &before, (LogKind::Reclaim, why));
        self.figures(&card, |figures| figures.reclaims += 1);
    }

    /// A DAG has fewer instances than `before` from now on.
    fn shrunk(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        before: &Placement,
        (kind, why): (LogKind, String),
    ) {
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
        let given = self.settings.autoscaling.context_switch && self.switch(tx, id, name, round);
        let wait = if given { Duration::ZERO } else { round.period * RETRY_PERIODS };
        let now = self.now;
        let Some(entry) = self.dags.get_mut(name) else { return };
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

    /// Has a DAG give instances up for `asking`; says whether one did.
    fn switch(&mut self, tx: &mut Tx, id: &CardId, asking: &DagName, round: &mut Round) -> bool {
        let givers = round.givers.take().unwrap_or_else(|| self.givers(id));
        let Some(card) = self.cards.get(id) else { return false };
        let residency = self.settings.autoscaling.residency(reconfiguration_max(&card.profile));
        let names = &card.epoch.dags;
        let others = givers.iter().filter(|giver| names[giver.id].tenant != asking.tenant);
        let picked = pick(others.copied(), residency, self.now);
        let Some((flow, name)) = picked.map(|flow| (flow, names[flow].clone())) else {
            round.givers = Some(givers);
            return false;
        };
        let Some(chain) = self.chain_of(id, flow, &name) else { return false };
        let why = format!("its fair share is {}, and another DAG is below its own", chain.fair);
        let about = (LogKind::ContextSwitch, why);
        let kept = chain.unit.get().saturating_mul(fair_instances(&chain));
        let to = Bandwidth::from_bps(kept).min(chain.holds).max(chain.admitted);
        let done = self.shrink(tx, &name, to, about);
        match done {
            true => self.figures(id, |figures| figures.context_switches += 1),
            false => round.givers = Some(givers),
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
