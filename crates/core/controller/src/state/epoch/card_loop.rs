//! The control loop of one card: samples, measured loads, computed rates.
//!
//! ```text
//!   ask ──► (card) ──► answered ──► measure ──► renew, step ──► set_rates
//!    │ skipped while the last one is not answered      │        at an edge, or at once where a
//!    └─ overrun                                        │        guaranteed rate waits
//!   topology_changed ──────────────────────────────────┘
//! ```

//! Each part of it owns what it needs to know: requests to the card (`sampler`), counters (`counter_intake`), the
//! computation (`card_engine`), rest (`rest`) and history (`history`). The loop leads from one to the next.

use std::collections::BTreeSet;
use std::time::Duration;

use snic_domain::{BitstreamId, CardId, TenantId, Timestamp};
use snic_tables::{CardCommand, CardCounters, DagCounters, LatencyReading, RateLimiterRow, Ticket};

use super::card_engine::{CardEngine, Flows, LastStep};
use super::counter_intake::{CounterIntake, CounterReading};
use super::history::{FairnessPoint, History};
use super::renewal::NamedTopology;
use super::rest::{IdleTimer, MeasuredSpans, Sample};
use super::sampler::{NextSample, SampleAnswer, Sampler};
use crate::protocol::Fairness;
use crate::state::dags::Dags;

/// Counts of a card's loop since the daemon started.
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
    /// Those of them that needed no reconfiguration.
    pub scale_outs_hidden: u64,
    /// Instances given back.
    pub scale_ins: u64,
    /// DAGs that gave instances up for others.
    pub context_switches: u64,
    /// DAGs that gave instances up for new promises.
    pub preemptions: u64,
}

/// Loop of one card.
#[derive(Debug, Default)]
pub(crate) struct CardLoop {
    sampler: Sampler,
    counters: CounterIntake,
    engine: CardEngine,
    rest: IdleTimer,
    history: History,
    /// When rates were last set.
    edge: Timestamp,
    /// Rates must follow at once: a DAG has other instances.
    is_urgent: bool,
    /// Chains that were scaled out.
    scaled: BTreeSet<BitstreamId>,
    figures: LoopFigures,
}

impl CardLoop {
    /// Nothing is known of the card any more. Figures and history stay: they are of the time since the daemon started.
    pub fn forget(&mut self) {
        let Self { figures, history, mut engine, .. } = std::mem::take(self);
        engine.forget();
        *self = Self { figures, history, engine, ..Self::default() };
    }

    /// No share is over a whole, nobody gets less than it was promised, no resource is given out
    /// twice.
    pub fn check(&self) -> Result<(), String> {
        self.engine.check()
    }

    /// The tenants with DAGs on the card, by id.
    pub fn tenants(&self) -> &[TenantId] {
        self.engine.tenants()
    }

    pub const fn figures(&self) -> LoopFigures {
        self.figures
    }

    /// Counts something that the loop did.
    pub fn count(&mut self, change: impl FnOnce(&mut LoopFigures)) {
        change(&mut self.figures);
    }

    /// Has the engine take over a changed topology.
    pub const fn topology_changed(&mut self) {
        self.engine.topology_changed();
    }

    /// A DAG is about to be served by other instances: rates must follow at once.
    pub const fn mark_urgent(&mut self) {
        self.is_urgent = true;
    }

    /// Whether rates must follow at once; they do from now on.
    pub const fn take_urgent(&mut self) -> bool {
        std::mem::replace(&mut self.is_urgent, false)
    }

    /// Asks the card for its counters, if it has answered the last time; `missed` samples were skipped
    /// because the daemon was busy.
    pub fn ask(&mut self, now: Timestamp, ticket: Ticket, missed: u64) -> NextSample {
        let next = self.sampler.ask(now, ticket, missed);
        self.figures.overruns += next.skipped;
        next
    }

    /// Asks the card for its counters between two samples, if no answer is awaited; again at `next`.
    pub fn request_probe(&mut self, ticket: Ticket, next: Timestamp) -> Option<CardCommand> {
        self.sampler.request_probe(ticket, next)
    }

    /// When the counters are to be read between two samples, for loads near their capacity.
    pub const fn next_probe(&self) -> Option<Timestamp> {
        self.sampler.next_probe()
    }

    /// Has the counters read between two samples, or not.
    pub const fn set_next_probe(&mut self, at: Option<Timestamp>) {
        self.sampler.set_next_probe(at);
    }

    /// The card said its counters.
    pub fn answered(&mut self, now: Timestamp, ticket: Ticket) -> SampleAnswer {
        let answered = self.sampler.answered(now, ticket);
        if let SampleAnswer::Between(_) = answered {
            self.rest.rates_set(false); // These counters are not compared with those before.
        }
        answered
    }

    /// Events about packets that met memory faults since the counters were last read.
    pub fn note_faults(
        &mut self,
        now: Timestamp,
        before: &CardCounters,
        after: &CardCounters,
    ) -> Option<String> {
        self.counters.note_faults(now, before, after)
    }

    /// Keeps latencies for the next look at the DAGs.
    pub fn keep_latencies(&mut self, reading: LatencyReading) {
        self.counters.keep_latencies(reading);
    }

    /// Counters by the row of their DAG, in a buffer that [`CardLoop::reuse`] takes back.
    pub fn by_row(&mut self, counters: &CardCounters) -> Vec<DagCounters> {
        self.counters.by_row(counters)
    }

    /// Takes a buffer back, so that the next reading allocates none.
    pub fn reuse(&mut self, counted: Vec<DagCounters>) {
        self.counters.reuse(counted);
    }

    /// Time on the card since counters were last taken in: see [`CounterIntake::card_span`].
    pub fn card_span(&self, counters: &CardCounters, clock_hz: u64, span: Duration) -> Duration {
        self.counters.card_span(counters, clock_hz, span)
    }

    /// Takes counters into the meters of the card's DAGs; gives what to tell of odd ones.
    pub fn measure(
        &mut self,
        reading: &CounterReading<'_>,
        card: &CardId,
        dags: &mut Dags,
    ) -> Option<String> {
        let (odd, text) = self.counters.measure(reading, card, dags);
        self.figures.odd_counters += odd;
        text
    }

    /// The card said its counters, a `span` after those before; how its DAGs are to be looked at, if they are.
    pub fn measured_spans(
        &mut self,
        span: Duration,
        moved: bool,
        epoch_ended: Option<Duration>,
    ) -> Option<MeasuredSpans> {
        let has_changed =
            moved || self.engine.is_stale() || self.is_urgent || self.next_probe().is_some();
        self.rest.sampled(Sample { span, has_changed, epoch_ended })
    }

    /// Longest wait for the next sample, where those of a card with traffic come once a `shortest`.
    pub fn sample_interval(&self, shortest: Duration, epoch: Duration) -> Duration {
        self.rest.sample_interval(shortest, epoch)
    }

    /// The DAGs were looked at, and rates set if `rates_follow`: whether they need to be looked at again soon.
    pub fn rates_set(&mut self, rates_follow: bool) {
        let is_still = rates_follow && !self.engine.is_stale() && self.counters.is_still();
        self.rest.rates_set(is_still);
    }

    /// Whether the engine is of another topology than the card's.
    pub const fn is_stale(&self) -> bool {
        self.engine.is_stale()
    }

    /// Whether to bring the engine up to date now: see [`CardEngine::take_renewal`].
    pub fn take_renewal(&mut self, now: Timestamp, must: bool, epoch: Duration) -> bool {
        self.engine.take_renewal(now, must, epoch)
    }

    /// Gives up the engine, which is about to be replaced: its topology, and its number.
    pub fn take_former(&mut self) -> Option<(NamedTopology, u64)> {
        self.engine.take_former()
    }

    /// Takes over what is on the card now, under a number that no engine had.
    pub fn renew(
        &mut self,
        named: NamedTopology,
        fairness: Fairness,
        number: u64,
        dags: &mut Dags,
    ) {
        self.engine.renew(named, fairness, number, dags);
    }

    /// Sets the allocations on other cards, by tenant, as [`CardLoop::allocation`] of this card.
    pub fn set_elsewhere(&mut self, of: impl Fn(&TenantId) -> [u64; 2]) {
        self.engine.set_elsewhere(of);
    }

    /// Computes with the loads of the DAGs as they are known now, those of some tenants up to their promises.
    pub fn step(&mut self, dags: &Dags, burst_off: &BTreeSet<TenantId>) {
        self.engine.step(dags, burst_off);
    }

    /// Result of the last step; `None` before the first.
    pub fn flows(&self) -> Option<Flows<'_>> {
        self.engine.flows()
    }

    /// The last step, for views.
    pub(super) fn last_step(&self) -> Option<LastStep<'_>> {
        self.engine.last_step()
    }

    /// Allocation of a tenant on the card: area in [`AREA_UNITS`](super::AREA_UNITS), memory in pages.
    pub fn allocation(&self, tenant: &TenantId) -> [u64; 2] {
        self.engine.allocation(tenant)
    }

    /// Whether somebody sends what it was promised and others were let in for it meanwhile.
    pub fn is_promise_at_risk(&self) -> bool {
        self.engine.is_promise_at_risk()
    }

    /// Notes the rates of the last step in the meters; `put` is given the token buckets that differ, by
    /// their row. `counts` says whether the card counts packets. DAGs of the tenants in `burst_off` get what they are promised.
    pub fn set_rates(
        &mut self,
        dags: &mut Dags,
        burst_off: &BTreeSet<TenantId>,
        counts: bool,
        put: impl FnMut(u16, &RateLimiterRow),
    ) {
        self.engine.set_rates(dags, burst_off, counts, put);
    }

    /// Whether it is time to set rates; a sample that comes a little early counts.
    pub fn is_edge(&self, now: Timestamp, sample_interval: Duration, epoch: Duration) -> bool {
        now.since(self.edge) + sample_interval / 2 >= epoch
    }

    /// An edge of an epoch has come.
    pub const fn at_edge(&mut self, now: Timestamp) {
        self.edge = now;
        self.figures.epochs += 1;
    }

    /// History of a tenant, the oldest point first.
    pub(super) fn history(&self, tenant: &TenantId) -> impl Iterator<Item = &FairnessPoint> {
        self.history.of(tenant)
    }

    /// Adds a point to the history of every tenant of the card, when it is time; forgets those of
    /// tenants that are gone.
    pub fn write_history(
        &mut self,
        now: Timestamp,
        dags: &Dags,
        is_tenant: impl Fn(&TenantId) -> bool,
    ) {
        if let Some(step) = self.engine.last_step() {
            self.history.write(now, step, dags, is_tenant);
        }
    }

    /// The shares of tenants with DAGs on the card as last written to their histories, in millionths:
    /// of its dominant resource in space, and in time. Time O(tenants).
    pub fn dominant_shares(&self) -> impl Iterator<Item = (&TenantId, u32, u32)> {
        let last = |tenant| Some((tenant, self.history.of(tenant).next_back()?));
        let points = self.tenants().iter().filter_map(last);
        points.map(|(tenant, point)| (tenant, point.space_ppm, point.time_ppm))
    }

    /// Chains were scaled out.
    pub fn note_scaled(&mut self, chains: impl IntoIterator<Item = BitstreamId>) {
        self.scaled.extend(chains);
    }

    /// The chains that were scaled out.
    pub fn scaled(&self) -> impl Iterator<Item = &BitstreamId> {
        self.scaled.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn removing_a_card_forgets_its_pending_requests() {
        let mut card_loop = CardLoop::default();
        card_loop.ask(at(1), Ticket(1), 0);
        card_loop.count(|figures| figures.scale_ins += 1);
        card_loop.mark_urgent();
        card_loop.forget();
        assert_eq!(card_loop.answered(at(2), Ticket(1)), SampleAnswer::Stale);
        assert!(!card_loop.take_urgent() && card_loop.is_stale());
        assert_eq!(card_loop.figures().scale_ins, 1, "figures count from the daemon's start");
    }

    #[test]
    fn an_edge_comes_once_an_epoch_and_a_little_early_counts() {
        let mut card_loop = CardLoop::default();
        let is_edge = |card_loop: &CardLoop, ms| card_loop.is_edge(at(ms), 10 * MS, 20 * MS);
        card_loop.at_edge(at(100));
        assert_eq!(
            [110, 114, 115, 120].map(|ms| is_edge(&card_loop, ms)),
            [false, false, true, true]
        );
        assert_eq!(card_loop.figures().epochs, 1);
    }
}
