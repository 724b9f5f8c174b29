//! The loop of one card: when it asks, what it does with the answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use snic_domain::limits::DAG_ROWS;
use snic_domain::{Bandwidth, BitstreamId, CardId, DagName, TenantId, Timestamp};
use snic_fairness::drf::Share;
use snic_fairness::fluid::Cost;
use snic_tables::{CardCommand, CardCounters, DagCounters, DropCause, Ticket};

use super::engine::Engine;
use super::meter::Sampled;
use super::topology::resource_name;
use super::view::FairnessPoint;
use crate::card::{ConnectionState, KNOWN};
use crate::dags::DagEntry;
use crate::protocol::{LogKind, Settings};
use crate::rows::{self, Bucket};
use crate::state::Controller;
use crate::tx::{About, Tx};

/// How often counters are read while nobody has a DAG: callers want to see them at all.
const IDLE: Duration = Duration::from_secs(1);
/// A rate is written anew when it differs by more than this part of itself: what packets that fall
/// on either side of a sample make of a steady load is less.
const RATE_PART: u64 = 64;
/// Of one kind of trouble on one card at most one entry in this time is logged.
const TROUBLE_QUIET: Duration = Duration::from_secs(10);

/// What the loop of a card did since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoopFigures {
    /// Edges of epochs at which rates were set.
    pub epochs: u64,
    /// Samples skipped because the last one was not answered, or it was too late for them.
    pub overruns: u64,
    /// Counters that went backwards.
    pub odd_counters: u64,
    /// Scale-outs that were carried out.
    pub scale_outs: u64,
    /// Those of them that needed no reconfiguration, or whose reconfiguration was over before the
    /// load was over the capacity.
    pub scale_outs_hidden: u64,
    /// Instances given back.
    pub scale_ins: u64,
    /// DAGs that gave instances up for others.
    pub context_switches: u64,
    /// DAGs that gave instances up for new promises.
    pub reclaims: u64,
}

/// What the loop knows of one card.
#[derive(Debug, Default)]
pub(crate) struct Loop {
    pub engine: Option<Engine>,
    /// By the engine's numbers.
    pub dags: Vec<DagName>,
    pub tenants: Vec<TenantId>,
    /// By DAG: what one more instance adds.
    pub units: Vec<Bandwidth>,
    loads: Vec<Bandwidth>,
    /// Names the engine: by it DAGs know whether the number they have is one of it.
    pub number: u64,
    /// Counters by the row of their DAG, while they are taken in.
    counted: Vec<DagCounters>,
    /// What each was to get when rates were last set.
    applied: Vec<Bandwidth>,
    /// The engine is of another topology than the card's.
    pub stale: bool,
    /// Rates must follow at once: a DAG has other instances.
    pub urgent: bool,
    asked: Option<Ticket>,
    sampled: Option<Timestamp>,
    /// When rates were last set.
    edge: Timestamp,
    /// When history was last written, and what was.
    pub written: Timestamp,
    pub history: BTreeMap<TenantId, VecDeque<FairnessPoint>>,
    overrun_told: Option<Timestamp>,
    odd_told: Option<Timestamp>,
    fault_told: Option<Timestamp>,
    pub figures: LoopFigures,
    /// Chains that were scaled out.
    pub scaled: BTreeSet<BitstreamId>,
}

impl Loop {
    /// Nothing is known of the card any more.
    pub fn forget(&mut self) {
        let Self { figures, written, history, .. } = std::mem::take(self);
        *self = Self { figures, written, history, stale: true, ..Self::default() };
    }

    /// No share is over a whole, nobody gets less than it was promised, no resource is given out
    /// twice.
    pub fn check(&self) -> Result<(), String> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let (outcome, flows) = (engine.outcome(), &engine.topology().flows);
        let over = outcome.tenants.iter().any(|tenant| tenant.space.share > Share::ONE);
        let mut grants = flows.iter().zip(&outcome.grants);
        if over || grants.any(|(flow, grant)| *grant < flow.admitted) {
            return Err(format!("a share over a whole, or a broken promise: {outcome:?}"));
        }
        let mut used = vec![0_u128; engine.topology().capacities.len()];
        for (flow, rate) in flows.iter().zip(&outcome.rates) {
            for (resource, cost) in &flow.uses {
                used[*resource] += u128::from(rate.get()) * u128::from(cost.raw());
            }
        }
        let one = u128::from(Cost::ONE.raw());
        let mut all = used.iter().zip(&engine.topology().capacities);
        match all.position(|(used, capacity)| *used > u128::from(*capacity) * one) {
            Some(k) => Err(format!("{} is given out twice", resource_name(k))),
            None => Ok(()),
        }
    }

    /// A new entry may be logged if there was none for a while.
    pub(super) fn may_tell(told: &mut Option<Timestamp>, now: Timestamp) -> bool {
        let may = told.is_none_or(|told| now.since(told) >= TROUBLE_QUIET);
        if may {
            *told = Some(now);
        }
        may
    }
}

/// The DAGs that an engine knows, with its numbers.
pub(super) fn of_engine(
    dags: &mut BTreeMap<DagName, DagEntry>,
    engine: u64,
) -> impl Iterator<Item = (usize, &mut DagEntry)> {
    dags.values_mut().filter_map(move |entry| Some((entry.meter.flow_of(engine)?, entry)))
}

impl Controller {
    /// When [`crate::Event::Sample`] is due next.
    pub fn next_sample(&self) -> Timestamp {
        self.sampled + self.sample_interval()
    }

    /// The shorter of the epoch and the monitor period while anybody has a DAG.
    fn sample_interval(&self) -> Duration {
        if self.dags.is_empty() {
            return IDLE;
        }
        let settings = &self.settings;
        settings.fairness.epoch.min(settings.autoscaling.monitor_period)
    }

    /// Asks every card that answers for its counters. What was missed is missed.
    pub(crate) fn sample(&mut self, tx: &mut Tx) {
        let interval = self.sample_interval();
        let late = self.now.since(self.sampled).as_nanos() / interval.as_nanos().max(1);
        let missed = if self.sampled == Timestamp::ZERO || self.dags.is_empty() {
            0
        } else {
            u64::try_from(late.saturating_sub(1)).unwrap_or(u64::MAX)
        };
        self.sampled = self.now;
        self.apply_settings(tx);
        let ready = self.cards.iter().filter(|(_, card)| card.connection == ConnectionState::Ready);
        let ids: Vec<CardId> = ready.map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.ask_for_sample(tx, id, missed);
        }
    }

    fn ask_for_sample(&mut self, tx: &mut Tx, id: CardId, missed: u64) {
        let ticket = self.ticket();
        let now = self.now;
        let card = self.cards.get_mut(&id).expect(KNOWN);
        let unanswered = card.epoch.asked.is_some();
        // Before its first answer a card has no epoch that could be overrun: what it holds may just
        // have been read back, and one that never answers is lost by its deadline.
        let has_begun = card.epoch.sampled.is_some();
        let skipped = if has_begun { missed + u64::from(unanswered) } else { 0 };
        card.epoch.figures.overruns += skipped;
        if skipped > 0 && Loop::may_tell(&mut card.epoch.overrun_told, now) {
            let why = if unanswered { "the card has not answered" } else { "the daemon was busy" };
            let text = format!("{skipped} samples were skipped: {why}");
            tx.note(LogKind::Overrun, About::card(&id), text);
        }
        if unanswered {
            return;
        }
        if let Some(card) = self.cards.get_mut(&id) {
            card.epoch.asked = Some(ticket);
        }
        let command = CardCommand::Sample { ticket };
        tx.card(id, command);
    }

    /// A card said its counters.
    pub(crate) fn sampled(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        ticket: Ticket,
        counters: CardCounters,
    ) {
        let now = self.now;
        let card = self.cards.get_mut(id).expect(KNOWN);
        let before = std::mem::replace(&mut card.counters, counters);
        self.note_faults(tx, id, &before);
        let card = self.cards.get_mut(id).expect(KNOWN);
        if card.epoch.asked.take_if(|asked| *asked == ticket).is_none()
            || card.connection != ConnectionState::Ready
        {
            return;
        }
        let before = card.epoch.sampled;
        let span = before.map_or(Duration::ZERO, |at| now.since(at));
        // Two answers at one moment are one.
        if before.is_some() && span.is_zero() {
            return;
        }
        card.epoch.sampled = Some(now);
        self.measure(tx, id, span);
        if before.is_none() {
            // Nothing is known of any load: what the card lets in stays.
            return;
        }
        self.compute(id);
        self.scale(tx, id, span);
        self.keep_spare(tx, id);
        if self.is_edge(id) {
            self.set_rates(id, true);
        } else if self.is_promise_at_risk(id) {
            self.set_rates(id, false);
        }
        self.write_history(id);
    }

    /// Tells of packets that met memory faults since the counters were last read.
    fn note_faults(&mut self, tx: &mut Tx, id: &CardId, before: &CardCounters) {
        let now = self.now;
        let card = self.cards.get_mut(id).expect(KNOWN);
        let count = |counters: &CardCounters| counters.drops[DropCause::MemoryFault as usize];
        let faults = count(&card.counters).saturating_sub(count(before));
        if faults > 0 && Loop::may_tell(&mut card.epoch.fault_told, now) {
            let text = format!(
                "{faults} packets were dropped: an NT reached for memory beyond its tenant's pages"
            );
            tx.note(LogKind::MemoryFault, About::card(id), text);
        }
    }

    /// Takes the counters into the meters of the card's DAGs.
    fn measure(&mut self, tx: &mut Tx, id: &CardId, span: Duration) {
        let now = self.now;
        let card = self.cards.get_mut(id).expect(KNOWN);
        let line = card.profile.ingress;
        let mut counted = std::mem::take(&mut card.epoch.counted);
        counted.clear();
        counted.resize(DAG_ROWS, DagCounters::default());
        for (row, counters) in &card.counters.dags {
            if let Some(counted) = counted.get_mut(usize::from(*row)) {
                *counted = *counters;
            }
        }
        let mut odd = 0;
        for (_, entry) in self.dags.iter_mut().filter(|(_, entry)| entry.card() == Some(id)) {
            let row = usize::from(entry.uid().row());
            let counters = counted.get(row).copied().unwrap_or_default();
            odd += u64::from(entry.meter.sample(counters, span, line) == Sampled::Backwards);
        }
        card.epoch.counted = counted;
        card.epoch.figures.odd_counters += odd;
        if odd > 0 && Loop::may_tell(&mut card.epoch.odd_told, now) {
            let text = format!(
                "the counters of {odd} DAGs went backwards; their loads count as before until \
                 the counters rise again"
            );
            tx.note(LogKind::OddCounters, About::card(id), text);
        }
    }

    /// Brings the engine up to date and has it compute.
    fn compute(&mut self, id: &CardId) {
        self.renew_engine(id);
        let card = self.cards.get_mut(id).expect(KNOWN);
        let Loop { engine: Some(engine), number, dags, loads, .. } = &mut card.epoch else {
            return;
        };
        loads.clear();
        loads.resize(dags.len(), Bandwidth::ZERO);
        for (at, entry) in of_engine(&mut self.dags, *number) {
            // Before its load is known a DAG counts as sending what it was promised.
            loads[at] = entry.meter.load.unwrap_or(entry.spec().bandwidth);
        }
        engine.step(loads);
    }

    /// Makes the engine anew where what is on the card has changed.
    fn renew_engine(&mut self, id: &CardId) {
        let card = self.cards.get(id).expect(KNOWN);
        if !card.epoch.stale && card.epoch.engine.is_some() {
            return;
        }
        let Some(named) = self.topology(id) else { return };
        let engine = Engine::new(named.topology, self.settings.fairness);
        let number = self.ticket().0;
        for (at, name) in (0..).zip(&named.dags) {
            if let Some(entry) = self.dags.get_mut(name) {
                entry.meter.flow = (number, at);
            }
        }
        let card = self.cards.get_mut(id).expect(KNOWN);
        // Limits far over what a card's tables hold: where they are passed all keep what they have.
        (card.epoch.engine, card.epoch.number) = (engine.ok(), number);
        (card.epoch.dags, card.epoch.tenants) = (named.dags, named.tenants);
        card.epoch.units = named.units;
        card.epoch.applied.clear();
        card.epoch.stale = false;
    }

    /// Whether it is time to set rates; a sample that comes a little early counts.
    fn is_edge(&self, id: &CardId) -> bool {
        let Some(card) = self.cards.get(id) else { return false };
        let slack = self.sample_interval() / 2;
        self.now.since(card.epoch.edge) + slack >= self.settings.fairness.epoch
    }

    /// Whether somebody sends what it was promised and others were let in for it meanwhile: that
    /// does not wait for the epoch's edge.
    fn is_promise_at_risk(&self, id: &CardId) -> bool {
        let Some(card) = self.cards.get(id) else { return false };
        let Some(engine) = &card.epoch.engine else { return false };
        let flows = engine.topology().flows.iter().zip(&card.epoch.loads);
        let mut all = flows.zip(&card.epoch.applied);
        all.any(|((flow, load), applied)| {
            let promised = flow.admitted.min(*load).get();
            promised > applied.get() + applied.get() / RATE_PART
        })
    }

    /// Writes the rates of the last step into the target tables, where they differ.
    fn set_rates(&mut self, id: &CardId, edge: bool) {
        let now = self.now;
        let card = self.cards.get_mut(id).expect(KNOWN);
        if edge {
            card.epoch.edge = now;
            card.epoch.figures.epochs += 1;
        }
        let Some(engine) = &card.epoch.engine else { return };
        let (topology, outcome) = (engine.topology(), engine.outcome());
        for (at, entry) in of_engine(&mut self.dags, card.epoch.number) {
            let Some(grant) = outcome.grants.get(at) else { continue };
            let Some(placement) = entry.targeted() else {
                continue;
            };
            let promised = placement.spec.bandwidth;
            // Whole units of the register, so that what is read back says the same.
            let kbps = grant.kbps();
            let new = Bandwidth::from_bps(u64::from(kbps) * 1_000).max(promised);
            let old = entry.meter.rate.unwrap_or(promised).max(promised);
            let part = old.get() / RATE_PART;
            let moved = new.get().abs_diff(old.get()) > part || (new == promised && old != new);
            if moved {
                entry.meter.rate = Some(new);
                let tenant = topology.flows.get(at).map(|flow| flow.tenant as usize);
                let tenant = tenant.and_then(|tenant| topology.tenants.get(tenant));
                let weight = tenant.map_or(1, |tenant| tenant.weight.get());
                let bucket = rows::bucket(Bucket { rate: new, promised, weight });
                let row = entry.uid().row();
                card.tables.put(row, &bucket);
            }
        }
        card.epoch.applied.clone_from(&outcome.rates);
    }

    /// A DAG is about to be served by other instances: its rate follows with the same commit.
    pub(crate) fn follow_at_once(&mut self, id: &CardId) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        if std::mem::take(&mut card.epoch.urgent) {
            self.compute(id);
            self.set_rates(id, false);
        }
    }

    /// What the loop computes with has changed.
    pub(crate) fn topology_changed(&mut self, id: &CardId) {
        if let Some(card) = self.cards.get_mut(id) {
            card.epoch.stale = true;
        }
    }

    /// Notes policies; they take effect at the next edge of an epoch.
    pub(crate) fn settings_arrived(&mut self, settings: Settings) {
        self.next_settings = Some(settings);
    }

    fn apply_settings(&mut self, tx: &mut Tx) {
        // At an edge of every card's epoch: rates of one epoch are all of one policy.
        if !self.cards.keys().all(|id| self.is_edge(id)) {
            return;
        }
        let Some(settings) = self.next_settings.take() else { return };
        if settings == self.settings {
            return;
        }
        let before = std::mem::replace(&mut self.settings, settings);
        if before.consolidation != settings.consolidation {
            self.consolidate_by_policy();
        }
        if before.scheduling != settings.scheduling {
            self.schedule_anew();
        }
        for card in self.cards.values_mut() {
            card.epoch.stale = true;
        }
        let fairness = settings.fairness;
        let text = format!(
            "other policies are in force: scheme {:?}, epoch {:?}, monitor period {:?}, {}",
            fairness.scheme,
            fairness.epoch,
            settings.autoscaling.monitor_period,
            settings.scheduling
        );
        tx.note(LogKind::PoliciesApplied, About::default(), text);
    }
}
