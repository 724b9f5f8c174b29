//! The control loop of one card: samples, measured loads, computed rates.
//!
//! ```text
//!   ask ──► (card) ──► answered ──► measure ──► renew, step ──► set_rates
//!    │ skipped while the last one is not answered      │        at an edge, or at once where a
//!    └─ overrun                                        │        guaranteed rate waits
//!   topology_changed ──────────────────────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use snic_domain::limits::DAG_ROWS;
use snic_domain::{Bandwidth, BitstreamId, CardId, DagName, TenantId, Timestamp};
use snic_fairness::drf::Share;
use snic_fairness::fluid::Cost;
use snic_tables::{CardCommand, CardCounters, DagCounters, DropCause, RateLimiterRow, Ticket};

use super::area::AreaUse;
use super::engine::{Engine, EpochOutcome};
use super::rest::{Look, Rest, Sample};
use super::topology::{CardResource, Named};
use super::view::FairnessPoint;
use crate::decide::rows::{self, Bucket};
use crate::protocol::Fairness;
use crate::state::dags::{DagEntry, Dags};
use crate::state::meter::{Quiet, Sampled, Trouble};

/// A rate is written again when it differs by more than this part of itself: what packets that fall
/// on either side of a sample make of a steady load is less.
const RATE_PART: u64 = 64;

/// Samples that a card leaves unanswered until an event says so: a tenth of a second at the default period. Fewer
/// happen wherever a machine is busy for a moment, and only count.
const LATE_TOLD: u64 = 10;

/// Epochs between two renewals of the engine that do not fall on an edge.
const EPOCHS_BETWEEN_RENEWALS: u32 = 10;

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
pub(crate) struct Loop {
    pub(super) engine: Option<Engine>,
    /// DAGs, by the engine's numbers.
    pub(super) dags: Vec<DagName>,
    pub(super) tenants: Vec<TenantId>,
    /// Bandwidth of one more instance, for each DAG.
    pub(super) units: Vec<Bandwidth>,
    /// Parts of its area, for each DAG.
    pub(super) area_uses: Vec<Vec<AreaUse>>,
    /// Load that the last step counted with, for each DAG.
    pub(super) loads: Vec<Bandwidth>,
    /// Steps that were computed since the daemon started.
    pub(super) steps: u64,
    /// Names the engine: by it DAGs know whether the number they have is one of it.
    number: u64,
    /// Counters by the row of their DAG, while they are taken in.
    counted: Vec<DagCounters>,
    /// Rates that were in force last.
    applied: Vec<Bandwidth>,
    /// The engine is of another topology than the card's.
    stale: bool,
    /// When it was last brought up to date between two edges.
    renewed_between: Timestamp,
    /// Rates must follow at once: a DAG has other instances.
    urgent: bool,
    asked: Option<Ticket>,
    /// The sample that was asked for between two others, for loads near their capacity.
    looking: Option<Ticket>,
    /// When that is due next.
    look_at: Option<Timestamp>,
    sampled: Option<Timestamp>,
    /// No DAG had a load when counters were last taken in.
    is_still: bool,
    /// Time at rest.
    rest: Rest,
    /// When rates were last set.
    edge: Timestamp,
    /// When history was last written, and what was.
    pub(super) written: Timestamp,
    pub(super) history: BTreeMap<TenantId, VecDeque<FairnessPoint>>,
    overrun_told: Quiet,
    /// Samples in a row that were due in time while the card had not answered the one before.
    late: u64,
    odd_told: Quiet,
    fault_told: Quiet,
    pub(super) figures: LoopFigures,
    /// Chains that were scaled out.
    scaled: BTreeSet<BitstreamId>,
}

impl Loop {
    /// Nothing is known of the card any more.
    pub fn forget(&mut self) {
        let Self { figures, written, history, steps, .. } = std::mem::take(self);
        *self = Self { figures, written, history, steps, stale: true, ..Self::default() };
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
            Some(k) => Err(format!("{} is given out twice", CardResource(k))),
            None => Ok(()),
        }
    }

    /// The tenants with DAGs on the card, by id.
    pub fn tenants(&self) -> &[TenantId] {
        &self.tenants
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
        self.stale = true;
    }

    /// A DAG is about to be served by other instances: rates must follow at once.
    pub const fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Whether rates must follow at once; they do from now on.
    pub const fn take_hurry(&mut self) -> bool {
        std::mem::replace(&mut self.urgent, false)
    }

    /// Asks the card for its counters, if it has answered the last time; `missed` samples were skipped
    /// because the daemon was busy.
    pub fn ask(&mut self, now: Timestamp, ticket: Ticket, missed: u64) -> NextSample {
        let unanswered = self.asked.is_some();
        // Before its first answer a card has no epoch that could be overrun: what it holds may just
        // have been read back, and one that never answers is lost by its deadline.
        let has_begun = self.sampled.is_some();
        let skipped = if has_begun { missed + u64::from(unanswered) } else { 0 };
        self.figures.overruns += skipped;
        // A daemon that was not scheduled cannot tell whether the card was late: that is counted, and no event.
        let is_late = has_begun && unanswered && missed == 0;
        self.late = if is_late { self.late + 1 } else { 0 };
        let is_told = self.late >= LATE_TOLD && self.overrun_told.trouble(now) == Trouble::Log;
        let overrun = is_told.then(|| {
            format!("the card has not answered for {} samples, which were skipped", self.late)
        });
        let command = (!unanswered).then(|| {
            self.asked = Some(ticket);
            CardCommand::Sample { ticket }
        });
        NextSample { command, overrun }
    }

    /// Asks the card for its counters between two samples, if no answer is awaited; again at `next`.
    pub fn ask_to_look(&mut self, ticket: Ticket, next: Timestamp) -> Option<CardCommand> {
        self.look_at = Some(next);
        if self.asked.is_some() || self.looking.is_some() {
            return None;
        }
        self.looking = Some(ticket);
        Some(CardCommand::Sample { ticket })
    }

    /// When the counters are to be read between two samples, for loads near their capacity.
    pub const fn look_at(&self) -> Option<Timestamp> {
        self.look_at
    }

    /// Has the counters read between two samples, or not.
    pub const fn set_look_at(&mut self, at: Option<Timestamp>) {
        self.look_at = at;
    }

    /// The card said its counters.
    pub fn answered(&mut self, now: Timestamp, ticket: Ticket) -> Answered {
        if self.looking.take_if(|asked| *asked == ticket).is_some() {
            self.rest.looked(false); // These counters are not compared with those before.
            let span = self.sampled.map(|sampled| now.since(sampled));
            return span.map_or(Answered::Stale, Answered::Between);
        }
        if self.asked.take_if(|asked| *asked == ticket).is_none() {
            return Answered::Stale;
        }
        match self.sampled {
            // Two answers at one moment are one.
            Some(before) if now.since(before).is_zero() => Answered::Stale,
            before => {
                self.sampled = Some(now);
                before.map_or(Answered::First, |before| Answered::After(now.since(before)))
            }
        }
    }

    /// Events about packets that met memory faults since the counters were last read.
    pub fn note_faults(
        &mut self,
        now: Timestamp,
        before: &CardCounters,
        after: &CardCounters,
    ) -> Option<String> {
        let count = |counters: &CardCounters| counters.drops[DropCause::MemoryFault as usize];
        let faults = count(after).saturating_sub(count(before));
        (faults > 0 && self.fault_told.trouble(now) == Trouble::Log).then(|| {
            format!(
                "{faults} packets were dropped: an NT reached for memory beyond its tenant's pages"
            )
        })
    }

    /// Counters by the row of their DAG, in a buffer that [`Loop::reuse`] takes back.
    pub fn by_row(&mut self, counters: &CardCounters) -> Vec<DagCounters> {
        let mut counted = std::mem::take(&mut self.counted);
        counted.clear();
        counted.resize(DAG_ROWS, DagCounters::default());
        for (row, counters) in &counters.dags {
            if let Some(counted) = counted.get_mut(usize::from(*row)) {
                *counted = *counters;
            }
        }
        counted
    }

    /// Takes a buffer back, so that the next reading allocates none.
    pub fn reuse(&mut self, counted: Vec<DagCounters>) {
        self.counted = counted;
    }

    /// The card said its counters, a `span` after those before; how its DAGs are to be looked at, if they are.
    pub fn look(
        &mut self,
        span: Duration,
        moved: bool,
        epoch_ended: Option<Duration>,
    ) -> Option<Look> {
        let has_changed = moved || self.is_stale() || self.urgent || self.look_at.is_some();
        self.rest.sampled(Sample { span, has_changed, epoch_ended })
    }

    /// Longest wait for the next sample, where those of a card with traffic come once a `shortest`.
    pub fn sample_interval(&self, shortest: Duration, epoch: Duration) -> Duration {
        self.rest.sample_interval(shortest, epoch)
    }

    /// The DAGs were looked at, and rates set if `rates_follow`: whether they need to be looked at again soon.
    pub fn looked(&mut self, rates_follow: bool) {
        let is_still = rates_follow && !self.is_stale() && self.is_still;
        self.rest.looked(is_still);
    }

    /// Takes counters into the meters of the card's DAGs; gives what to tell of odd ones.
    pub fn measure<'a>(
        &mut self,
        reading: &CounterReading<'_>,
        dags: impl Iterator<Item = &'a mut DagEntry>,
    ) -> Option<String> {
        let CounterReading { now, span, line, counters } = *reading;
        let counted = self.by_row(counters);
        let mut odd = 0;
        self.is_still = true;
        for entry in dags {
            let row = usize::from(entry.uid().row());
            let counters = counted.get(row).copied().unwrap_or_default();
            let drops = &reading.counters.dag_drops;
            if let Ok(at) = drops.binary_search_by_key(&entry.uid().row(), |(row, _)| *row) {
                entry.meter_mut().count_drops(drops[at].1);
            }
            let meter = entry.meter_mut();
            odd += u64::from(meter.sample(counters, span, line) == Sampled::Backwards);
            self.is_still &= meter.is_still();
        }
        self.reuse(counted);
        self.figures.odd_counters += odd;
        (odd > 0 && self.odd_told.trouble(now) == Trouble::Log).then(|| {
            format!(
                "the counters of {odd} DAGs went backwards; their loads count as before until \
                 the counters rise again"
            )
        })
    }

    /// Whether the engine is of another topology than the card's.
    pub const fn is_stale(&self) -> bool {
        self.stale || self.engine.is_none()
    }

    /// Whether to bring the engine up to date now: if it `must` be, as at each edge, and once in a while between two.
    /// Where DAGs come and go all the time, that takes longer than anything else in a sample, and new DAGs have their
    /// promise already.
    pub fn take_renewal(&mut self, now: Timestamp, must: bool, epoch: Duration) -> bool {
        if !self.is_stale() {
            return false;
        }
        if must {
            return true;
        }
        let is_rare =
            now.since(self.renewed_between) >= epoch.saturating_mul(EPOCHS_BETWEEN_RENEWALS);
        if is_rare {
            self.renewed_between = now;
        }
        is_rare
    }

    /// Takes over what is on the card now, under a number that no engine had.
    pub fn renew(&mut self, named: Named, fairness: Fairness, number: u64, dags: &mut Dags) {
        for (at, name) in (0..).zip(&named.dags) {
            dags.known_mut(name).meter_mut().set_flow(number, at);
        }
        // Limits far over what a card's tables hold: where they are passed all keep what they have.
        self.engine = Engine::new(named.topology, fairness).ok();
        self.number = number;
        (self.dags, self.tenants, self.units) = (named.dags, named.tenants, named.units);
        self.area_uses = named.area_uses;
        self.applied.clear();
        self.stale = false;
    }

    /// Sets the allocations on other cards, by tenant, as [`Loop::allocation`] of this card.
    pub fn set_elsewhere(&mut self, of: impl Fn(&TenantId) -> [u64; 2]) {
        if let Some(engine) = &mut self.engine {
            engine.set_elsewhere(self.tenants.iter().map(of).collect());
        }
    }

    /// Computes with the loads of the DAGs as they are known now.
    pub fn step(&mut self, dags: &Dags) {
        let Some(engine) = &mut self.engine else {
            return; // Too much for an engine: all keep what they have.
        };
        self.loads.clear();
        self.loads.resize(self.dags.len(), Bandwidth::ZERO);
        for entry in dags.iter() {
            if let Some(at) = entry.meter().flow_of(self.number) {
                // Before its load is known a DAG counts as sending what it was promised.
                self.loads[at] = entry.meter().load().unwrap_or(entry.spec().bandwidth);
            }
        }
        engine.step(&self.loads);
        self.steps += 1;
    }

    /// Result of the last step; `None` before the first.
    pub fn flows(&self) -> Option<Flows<'_>> {
        let engine = self.engine.as_ref()?;
        Some(Flows {
            outcome: engine.outcome(),
            units: &self.units,
            dags: &self.dags,
            number: self.number,
        })
    }

    /// Whether it is time to set rates; a sample that comes a little early counts.
    pub fn is_edge(&self, now: Timestamp, sample_interval: Duration, epoch: Duration) -> bool {
        now.since(self.edge) + sample_interval / 2 >= epoch
    }

    /// Whether somebody sends what it was promised and others were let in for it meanwhile: that
    /// does not wait for the epoch's edge.
    pub fn is_promise_at_risk(&self) -> bool {
        let Some(engine) = &self.engine else {
            return false; // Too much for an engine: all keep what they have.
        };
        let flows = engine.topology().flows.iter().zip(&self.loads);
        let mut all = flows.zip(&self.applied);
        all.any(|((flow, load), applied)| {
            let promised = flow.admitted.min(*load).get();
            promised > applied.get() + applied.get() / RATE_PART
        })
    }

    /// An edge of an epoch has come.
    pub const fn at_edge(&mut self, now: Timestamp) {
        self.edge = now;
        self.figures.epochs += 1;
    }

    /// Notes the rates of the last step in the meters; `put` is given the token buckets that differ, by
    /// their row. `counts` says whether the card counts packets.
    pub fn set_rates(
        &mut self,
        dags: &mut Dags,
        counts: bool,
        mut put: impl FnMut(u16, &RateLimiterRow),
    ) {
        let Some(engine) = &self.engine else {
            return; // Too much for an engine: all keep what they have.
        };
        let (topology, outcome) = (engine.topology(), engine.outcome());
        for (at, entry) in of_engine(dags, self.number) {
            let (promised, packet_bytes, most) = match entry.targeted() {
                Some(placement) => {
                    let spec = &placement.spec;
                    let most = placement.mapping.programs_serve();
                    (spec.bandwidth, rows::packet_bytes(counts, spec), most)
                }
                None => continue, // It left the tables since the engine was made.
            };
            let flow = &topology.flows[at];
            // Whole units of the register, so that what is read back says the same.
            let kbps = outcome.grants[at].kbps();
            let new = Bandwidth::from_bps(u64::from(kbps) * 1_000);
            // What its threads do not serve would wait for them.
            let most = most.map(|most| Bandwidth::from_bps(u64::from(most.kbps()) * 1_000));
            let new = most.map_or(new, |most| new.min(most)).max(promised);
            let old = entry.meter().rate(promised);
            let part = old.get() / RATE_PART;
            let moved = new.get().abs_diff(old.get()) > part || (new == promised && old != new);
            if moved {
                entry.meter_mut().set_rate(Some(new));
                let weight = topology.tenants[flow.tenant as usize].weight.get();
                let bucket = rows::bucket(Bucket { rate: new, promised, packet_bytes, weight });
                put(entry.uid().row(), &bucket);
            }
        }
        self.applied.clone_from(&outcome.rates);
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

/// Command to a card, and events to report with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextSample {
    /// Nothing while the last sample is not answered.
    pub command: Option<CardCommand>,
    /// Samples were skipped.
    pub overrun: Option<String>,
}

/// Meaning of a card's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Nothing was asked, or it is the second at one moment.
    Stale,
    /// There is nothing to compare it with.
    First,
    /// The last one was so long ago.
    After(Duration),
    /// It was asked for between two samples, and the last one was so long ago.
    Between(Duration),
}

/// Counters of a card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CounterReading<'a> {
    pub now: Timestamp,
    /// Since the last reading.
    pub span: Duration,
    /// Largest rate of its ports.
    pub line: Bandwidth,
    pub counters: &'a CardCounters,
}

/// Result of a step, by flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flows<'a> {
    pub outcome: &'a EpochOutcome,
    /// Bandwidth of one more instance.
    pub units: &'a [Bandwidth],
    pub dags: &'a [DagName],
    /// Names the engine: by it DAGs know whether the number they have is one of it.
    pub number: u64,
}

/// The DAGs that an engine knows, with its numbers.
pub(crate) fn of_engine(
    dags: &mut Dags,
    engine: u64,
) -> impl Iterator<Item = (usize, &mut DagEntry)> {
    dags.iter_mut().filter_map(move |entry| Some((entry.meter().flow_of(engine)?, entry)))
}

/// The loops of all cards.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    of: BTreeMap<CardId, Loop>,
    /// When counters were last asked for; zero before the first time.
    sampled: Timestamp,
    /// The interval that was in force then.
    interval: Duration,
}

impl Loops {
    /// A card has been added.
    pub fn add(&mut self, id: CardId) {
        self.of.insert(id, Loop::default());
    }

    /// A card has been taken away.
    pub fn remove(&mut self, id: &CardId) {
        self.of.remove(id);
    }

    /// The loop of a card that a caller named, if there is one.
    pub fn get(&self, id: &CardId) -> Option<&Loop> {
        self.of.get(id)
    }

    /// The loop of a card that is known to be there.
    pub fn known(&self, id: &CardId) -> &Loop {
        self.of.get(id).expect("each card has a loop")
    }

    /// The loop of a card that is known to be there.
    pub fn known_mut(&mut self, id: &CardId) -> &mut Loop {
        self.of.get_mut(id).expect("each card has a loop")
    }

    /// When counters are to be read next, if they are read once an `interval` and no card is to be looked
    /// at earlier.
    pub fn next_sample(&self, interval: Duration) -> Timestamp {
        let looks = self.of.values().filter_map(Loop::look_at);
        looks.fold(self.sampled + interval, Timestamp::min)
    }

    /// Whether the counters are to be read now; `slack` is how much earlier a sample may be.
    pub fn is_sample_due(&self, now: Timestamp, interval: Duration, slack: Duration) -> bool {
        now + slack >= self.sampled + interval
    }

    /// Samples begin, or go on after they were far apart: none was missed.
    pub const fn begin_samples(&mut self, now: Timestamp) {
        self.sampled = now;
    }

    /// The counters are asked for; gives how many samples were missed since the last time.
    pub fn sample(&mut self, now: Timestamp, interval: Duration) -> u64 {
        let before = std::mem::replace(&mut self.sampled, now);
        let waited_for = std::mem::replace(&mut self.interval, interval).max(interval);
        if before == Timestamp::ZERO {
            return 0;
        }
        let late = now.since(before).as_nanos() / waited_for.as_nanos().max(1);
        u64::try_from(late.saturating_sub(1)).unwrap_or(u64::MAX)
    }

    /// All of them, by card.
    pub fn iter(&self) -> impl Iterator<Item = (&CardId, &Loop)> {
        self.of.iter()
    }

    /// Has all loops take over a change that all of them compute with.
    pub fn all_changed(&mut self) {
        self.of.values_mut().for_each(Loop::topology_changed);
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
    fn samples_that_were_missed_are_counted_from_the_first_on() {
        let mut loops = Loops::default();
        assert_eq!(loops.sample(at(700), 10 * MS), 0, "nothing was asked for before");
        assert_eq!(loops.sample(at(710), 10 * MS), 0);
        assert_eq!(loops.sample(at(729), 10 * MS), 0, "late, but not by a whole interval");
        assert_eq!(loops.sample(at(769), 10 * MS), 3);
        loops.begin_samples(at(9_000));
        assert_eq!(loops.sample(at(9_010), 10 * MS), 0, "they were far apart on purpose");
        assert_eq!(loops.sample(at(9_110), 100 * MS), 0, "the cards came to rest");
        assert_eq!(loops.sample(at(9_210), 10 * MS), 0, "and are at rest no more");
        assert_eq!(loops.sample(at(9_240), 10 * MS), 2);
        loops.sample(at(9_241), Duration::ZERO);
        assert_eq!(loops.sample(at(9_242), Duration::ZERO), 999_999, "no interval is a nanosecond");
    }

    #[test]
    fn the_next_sample_is_an_interval_away_or_when_a_card_is_looked_at() {
        let mut loops = Loops::default();
        let ids = ["a", "b"].map(|id| CardId::new(id).expect("a label"));
        ids.iter().for_each(|id| loops.add(id.clone()));
        loops.begin_samples(at(100));
        assert_eq!(loops.next_sample(10 * MS), at(110));
        loops.known_mut(&ids[1]).set_look_at(Some(at(104)));
        loops.known_mut(&ids[0]).set_look_at(Some(at(200)));
        assert_eq!(loops.next_sample(10 * MS), at(104));
        let is_due = |ms| loops.is_sample_due(at(ms), 10 * MS, 2 * MS);
        assert_eq!([107, 108, 110].map(is_due), [false, true, true]);
    }

    #[test]
    fn one_sample_is_under_way_and_what_is_skipped_is_counted() {
        let mut card_loop = Loop::default();
        let asked = card_loop.ask(at(1), Ticket(1), 7);
        assert_eq!(asked.command, Some(CardCommand::Sample { ticket: Ticket(1) }));
        assert_eq!(asked.overrun, None, "before the first answer there is no epoch to overrun");
        assert_eq!(card_loop.ask(at(2), Ticket(2), 0), NextSample { command: None, overrun: None });
        assert_eq!(card_loop.answered(at(3), Ticket(2)), Answered::Stale, "it was not asked");
        assert_eq!(card_loop.answered(at(3), Ticket(1)), Answered::First);
        card_loop.ask(at(4), Ticket(3), 0);
        let asked = card_loop.ask(at(5), Ticket(4), 2);
        assert_eq!(asked, NextSample { command: None, overrun: None });
        assert_eq!(card_loop.figures().overruns, 3);
        assert_eq!(card_loop.answered(at(7), Ticket(3)), Answered::After(4 * MS));
    }

    #[test]
    fn a_card_that_does_not_answer_is_told_of_and_a_daemon_that_did_not_run_is_not() {
        let mut card_loop = Loop::default();
        card_loop.ask(at(1), Ticket(1), 0);
        card_loop.answered(at(2), Ticket(1));
        card_loop.ask(at(10), Ticket(2), 0);
        let mut told = |ms: u64, missed: u64| card_loop.ask(at(ms), Ticket(ms), missed).overrun;
        for ms in 11..11 + 3 * LATE_TOLD {
            assert_eq!(told(ms, 20), None, "it was not scheduled: nobody knows what the card did");
        }
        for ms in 100..99 + LATE_TOLD {
            assert_eq!(told(ms, 0), None);
        }
        let text = told(99 + LATE_TOLD, 0).expect("the card is late");
        assert!(text.contains("not answered for 10 samples"), "{text}");
        assert_eq!(told(100 + LATE_TOLD, 0), None, "told once in a while");
    }

    #[test]
    fn an_engine_follows_changes_at_edges_and_now_and_then_between() {
        let mut card_loop = Loop::default();
        let epoch = 20 * MS;
        let mut take_renewal = |ms, must| card_loop.take_renewal(at(ms), must, epoch);
        assert!(take_renewal(1_000, false), "the first change does not wait");
        assert!(!take_renewal(1_010, false));
        assert!(take_renewal(1_020, true), "an edge always counts");
        assert!(!take_renewal(1_199, false));
        assert!(take_renewal(1_200, false));
    }

    #[test]
    fn two_answers_at_one_moment_are_one() {
        let mut card_loop = Loop::default();
        for (ticket, expected) in [(1, Answered::First), (2, Answered::Stale)] {
            card_loop.ask(at(1), Ticket(ticket), 0);
            assert_eq!(card_loop.answered(at(1), Ticket(ticket)), expected);
        }
    }

    #[test]
    fn a_look_is_between_two_samples_and_waits_for_answers() {
        let mut card_loop = Loop::default();
        card_loop.ask(at(1), Ticket(1), 0);
        assert_eq!(card_loop.ask_to_look(Ticket(2), at(2)), None, "an answer is awaited");
        card_loop.answered(at(1), Ticket(1));
        assert!(card_loop.ask_to_look(Ticket(3), at(3)).is_some());
        assert_eq!(card_loop.ask_to_look(Ticket(4), at(4)), None, "one look at a time");
        assert_eq!(card_loop.look_at(), Some(at(4)));
        assert_eq!(card_loop.answered(at(3), Ticket(3)), Answered::Between(2 * MS));
        card_loop.ask(at(5), Ticket(5), 0);
        assert_eq!(card_loop.answered(at(5), Ticket(5)), Answered::After(4 * MS), "as without it");
    }

    #[test]
    fn removing_a_card_forgets_its_pending_requests() {
        let mut card_loop = Loop::default();
        card_loop.ask(at(1), Ticket(1), 0);
        card_loop.count(|figures| figures.scale_ins += 1);
        card_loop.hurry();
        card_loop.forget();
        assert_eq!(card_loop.answered(at(2), Ticket(1)), Answered::Stale);
        assert!(!card_loop.take_hurry() && card_loop.is_stale());
        assert_eq!(card_loop.figures().scale_ins, 1, "figures count from the daemon's start");
    }

    #[test]
    fn an_edge_comes_once_an_epoch_and_a_little_early_counts() {
        let mut card_loop = Loop::default();
        let is_edge = |card_loop: &Loop, ms| card_loop.is_edge(at(ms), 10 * MS, 20 * MS);
        card_loop.at_edge(at(100));
        assert_eq!(
            [110, 114, 115, 120].map(|ms| is_edge(&card_loop, ms)),
            [false, false, true, true]
        );
        assert_eq!(card_loop.figures().epochs, 1);
    }

    #[test]
    fn faults_are_told_when_they_rise() {
        let mut card_loop = Loop::default();
        let counters = |faults| {
            let mut counters = CardCounters::default();
            counters.drops[DropCause::MemoryFault as usize] = faults;
            counters
        };
        assert_eq!(card_loop.note_faults(at(1), &counters(4), &counters(4)), None);
        assert_eq!(
            card_loop.note_faults(at(1), &counters(4), &counters(1)),
            None,
            "they start over"
        );
        let told = card_loop.note_faults(at(1), &counters(4), &counters(9));
        assert!(told.is_some_and(|text| text.starts_with("5 packets")));
        assert_eq!(card_loop.note_faults(at(2), &counters(9), &counters(10)), None, "told lately");
    }
}
