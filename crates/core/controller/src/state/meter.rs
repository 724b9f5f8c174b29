//! From a card's counters to one DAG's load. Counter resets, stalls and spikes are handled explicitly.

mod conformance;
mod latency;

use std::time::Duration;

use snic_autoscaler::{DagCapacity, Decision, Monitor, Policy, decide};
use snic_domain::{Bandwidth, DagSpec, Timestamp};
use snic_tables::{DagCounters, DropCause, LatencySample};

use self::conformance::Conformance;
pub(crate) use self::latency::LatencyWindows;
use crate::protocol::{DagTraffic, TrafficWindow, rate};
use crate::state::traffic_windows::TrafficWindows;

/// Traffic of one DAG.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    before: Option<DagCounters>,
    drops_before: Option<[u64; DropCause::ALL.len()]>,
    /// Packets that were dropped since it was first sampled.
    drops: [u64; DropCause::ALL.len()],
    /// Traffic that is shown and judged.
    windows: TrafficWindows,
    latencies: LatencyWindows,
    /// Whether it kept to its promise; followed only where the DAG has a bound on latency.
    conformance: Conformance,
    /// The most that the ports take.
    line: Bandwidth,
    /// Load before rate limiting since the sample before, which rates and instances follow; unknown before the second sample.
    load: Option<Bandwidth>,
    served: Bandwidth,
    monitor: Monitor,
    /// When what it holds last changed.
    settled: Timestamp,
    /// Rate of its token bucket, once the loop has set one.
    rate: Option<Bandwidth>,
    /// No scale-out is tried before: there was no place.
    not_before: Timestamp,
    /// The last scale-out that found no place.
    no_place: Option<NoPlace>,
    /// When it was last logged that there is none.
    no_place_told: LogThrottle,
    /// The scale-out under way.
    scaling: Option<Scaling>,
    /// The number of an engine, and this DAG's number in it.
    flow: (u64, u32),
}

/// Least time between two log entries of one kind of trouble.
const TROUBLE_QUIET: Duration = Duration::from_secs(10);

/// When one kind of trouble was last logged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogThrottle(Option<Timestamp>);

/// Next step about trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogDecision {
    /// It is to be logged, and counts as logged now.
    Log,
    /// It was logged a while ago, which is enough.
    Quiet,
}

impl LogThrottle {
    /// There is trouble of this kind.
    pub fn trouble(&mut self, now: Timestamp) -> LogDecision {
        if self.0.is_some_and(|logged| now.since(logged) < TROUBLE_QUIET) {
            return LogDecision::Quiet;
        }
        self.0 = Some(now);
        LogDecision::Log
    }
}

/// Input of the autoscaler for a DAG at the end of a monitor period.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScalingInput<'a> {
    pub policy: &'a Policy,
    /// Length of a monitor period.
    pub period: Duration,
    /// Cooldown: how long a decision stays.
    pub residency: Duration,
    pub capacity: &'a DagCapacity,
    pub now: Timestamp,
}

/// Changes so far of what a plan depends on: while both are the same, so is the result of every plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changes {
    pub ledger: u64,
    pub catalogue: u64,
}

/// A scale-out that found no place, and finds none until something changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoPlace {
    pub changes: Changes,
    /// The least that it was tried with.
    pub least: Bandwidth,
}

/// A scale-out under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scaling {
    /// Serial of the placement that it ends with.
    pub serial: u64,
    /// Whether a region is loaded for it.
    pub loads: bool,
}

/// Result of a sample of one DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleOutcome {
    Load,
    /// The first one: there is nothing to compare it with.
    First,
    /// A counter is smaller than it was: it began again, or wrapped. The load stays what it was.
    Backwards,
}

impl Meter {
    /// Takes counters read `span` after the last ones, by the card's clock. A load is at most `line`, what the ports
    /// take: more is a counter that jumped.
    pub fn sample(
        &mut self,
        counters: DagCounters,
        span: Duration,
        line: Bandwidth,
    ) -> SampleOutcome {
        let Some(before) = self.before.replace(counters) else { return SampleOutcome::First };
        let intended = counters.bytes_intended.checked_sub(before.bytes_intended);
        let served = counters.bytes_served.checked_sub(before.bytes_served);
        let (Some(intended), Some(served)) = (intended, served) else {
            return SampleOutcome::Backwards;
        };
        self.load = Some(rate(intended, span).min(line));
        self.served = rate(served, span).min(line);
        self.line = line;
        let sums = self.windows.sums();
        let plus = |sum: u64, now: u64, before: u64| sum.saturating_add(now.saturating_sub(before));
        let sums = TrafficWindow {
            packets_in: plus(sums.packets_in, counters.packets_in, before.packets_in),
            packets_out: plus(sums.packets_out, counters.packets_out, before.packets_out),
            bytes_in: plus(sums.bytes_in, counters.bytes_intended, before.bytes_intended),
            bytes_out: plus(sums.bytes_out, counters.bytes_served, before.bytes_served),
            drops: self.drops,
            counts_drops: self.drops_before.is_some(),
            span: sums.span,
        };
        self.windows.pass(sums, span);
        self.latencies.pass(self.windows.sums().span);
        SampleOutcome::Load
    }

    /// Takes the drops of its row: the first ones may be those of a DAG that had the row before.
    pub fn count_drops(&mut self, drops: [u64; DropCause::ALL.len()]) {
        // The first reading is where counting begins.
        let Some(before) = self.drops_before.replace(drops) else { return };
        for ((sum, now), before) in self.drops.iter_mut().zip(drops).zip(before) {
            *sum = sum.saturating_add(now.saturating_sub(before));
        }
    }

    /// Takes packets that the card sampled, and the largest latency of its row in a time of `window` that ended less than
    /// that ago: of the DAG only if it had the row then. Packets that took more than `bound` cycles are counted.
    pub fn note_latencies(
        &mut self,
        samples: &[&LatencySample],
        (largest, window): (Option<u32>, Duration),
        bound: Option<u32>,
    ) {
        let is_its = self.windows.sums().span >= 2 * window;
        self.latencies.add(samples.iter().copied(), largest.filter(|_| is_its), bound);
    }

    /// Follows whether the DAG keeps to its promise, which only one with a bound on latency needs.
    pub fn note_conformance(&mut self, spec: &DagSpec) {
        self.conformance.pass(self.windows.sums(), spec);
    }

    /// Whether more than one packet in a hundred took longer lately than the DAG's bound, while it kept to its promise.
    pub fn is_above_latency_bound(&self) -> bool {
        self.latencies.late_window().is_some_and(|window| self.conformance.is_kept_for(window))
    }

    /// Latencies of the last second and the last ten.
    pub const fn latencies(&self) -> &LatencyWindows {
        &self.latencies
    }

    /// Traffic, for views; `None` before the second sample.
    pub fn traffic(&self) -> Option<DagTraffic> {
        self.load?;
        let (last_second, line) = (self.windows.second(), self.line);
        Some(DagTraffic {
            offered: last_second.offered().min(line),
            served: last_second.served().min(line),
            sums: *self.windows.sums(),
            last_second,
            last_ten_seconds: self.windows.ten_seconds(),
        })
    }

    /// The load in the `span` since the last sample; unknown where there was none, or a counter is smaller
    /// than it was.
    pub fn load_since(
        &self,
        counters: DagCounters,
        span: Duration,
        line: Bandwidth,
    ) -> Option<Bandwidth> {
        let intended = counters.bytes_intended.checked_sub(self.before?.bytes_intended)?;
        Some(rate(intended, span).min(line))
    }

    /// This DAG's number in an engine that knows it.
    pub fn flow_of(&self, engine: u64) -> Option<usize> {
        (self.flow.0 == engine).then_some(self.flow.1 as usize)
    }

    /// Load before rate limiting; `None` before the second sample.
    pub const fn load(&self) -> Option<Bandwidth> {
        self.load
    }

    /// Whether nothing came in or out for longer than any window.
    pub const fn is_silent(&self) -> bool {
        self.windows.is_silent()
    }

    /// Whether nothing came in or out in the last sample.
    pub fn is_still(&self) -> bool {
        self.load == Some(Bandwidth::ZERO) && self.served == Bandwidth::ZERO
    }

    /// Rate of its token bucket where this much was promised, which is never less than that.
    pub fn rate(&self, promised: Bandwidth) -> Bandwidth {
        self.rate.unwrap_or(promised).max(promised)
    }

    /// Its token bucket lets in this much from now on; `None`: what was promised.
    pub const fn set_rate(&mut self, rate: Option<Bandwidth>) {
        self.rate = rate;
    }

    /// It has this number in the engine with the first number.
    pub const fn set_flow(&mut self, engine: u64, flow: u32) {
        self.flow = (engine, flow);
    }

    /// Its load takes part in a monitor period for `span`; what the autoscaler decides if the period ended.
    pub fn decide(&mut self, span: Duration, look: &ScalingInput<'_>) -> Option<Decision> {
        self.monitor.observe(self.load?, span, look.period)?;
        Some(decide(look.policy, look.residency, look.capacity, &mut self.monitor, look.now))
    }

    /// When what it holds last changed.
    pub const fn last_change(&self) -> Timestamp {
        self.settled
    }

    /// It holds something else from now on.
    pub const fn restart_cooldown(&mut self, now: Timestamp) {
        self.settled = now;
    }

    /// The scale-out under way has ended: it holds what that was for.
    pub const fn scaled(&mut self, now: Timestamp) {
        self.scaling = None;
        self.restart_cooldown(now);
    }

    /// Whether it is too early for another scale-out: the last one found no place.
    pub fn must_wait(&self, now: Timestamp) -> bool {
        self.not_before > now
    }

    /// A scale-out found no place, and the next one is not tried before.
    pub fn retry_at(&mut self, not_before: Timestamp) {
        self.not_before = not_before;
    }

    /// That there is no place is trouble; whether it is to be logged.
    pub fn trouble(&mut self, now: Timestamp) -> LogDecision {
        self.no_place_told.trouble(now)
    }

    /// Whether a search is known to find no place: nothing has changed since it was tried with this or less.
    pub fn has_no_place(&self, changes: Changes, least: Bandwidth) -> bool {
        self.no_place.is_some_and(|before| before.changes == changes && before.least <= least)
    }

    /// Notes the result of a search that was tried with `least` or more.
    pub fn searched(&mut self, no_place: Option<NoPlace>) {
        self.no_place = no_place;
    }

    /// The scale-out under way.
    pub const fn scaling(&self) -> Option<Scaling> {
        self.scaling
    }

    /// A scale-out is under way.
    pub const fn scale(&mut self, scaling: Scaling) {
        self.scaling = Some(scaling);
    }

    /// The counters begin again: the card was lost, or is another one.
    pub fn forget(&mut self) {
        self.before = None;
        self.drops_before = None;
        self.load = None;
        self.served = Bandwidth::ZERO;
        self.windows.restart();
        self.latencies.restart();
        self.conformance = Conformance::default();
        self.monitor.restart();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LINE: Bandwidth = Bandwidth::from_gbps(100);

    fn counters(intended: u64, served: u64) -> DagCounters {
        DagCounters { bytes_intended: intended, bytes_served: served, ..DagCounters::default() }
    }

    #[test]
    fn one_kind_of_trouble_is_told_once_in_a_while() {
        let mut told = LogThrottle::default();
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        assert_eq!(
            [1, 2, 10, 11, 12].map(|s| told.trouble(at(s)) == LogDecision::Log),
            [true, false, false, true, false]
        );
    }

    #[test]
    fn a_load_is_what_came_between_two_samples() {
        let mut meter = Meter::default();
        assert_eq!(meter.sample(counters(5, 5), MS, LINE), SampleOutcome::First);
        assert_eq!(meter.load, None);
        assert_eq!(meter.sample(counters(1_250_005, 125_005), MS, LINE), SampleOutcome::Load);
        assert_eq!(
            (meter.load, meter.served),
            (Some(Bandwidth::from_gbps(10)), Bandwidth::from_gbps(1))
        );
        let since = meter.load_since(counters(1_500_005, 0), MS, LINE);
        assert_eq!(since, Some(Bandwidth::from_gbps(2)), "and the sample is not moved");
        assert_eq!(meter.load_since(counters(5, 0), MS, LINE), None, "a counter went back");
        assert_eq!(meter.sample(counters(1_250_005, 125_005), MS, LINE), SampleOutcome::Load);
        assert_eq!(meter.load, Some(Bandwidth::ZERO), "counters that stop are no load");
    }

    #[test]
    fn sums_and_drops_are_those_of_the_dag_and_not_of_who_had_the_row_before() {
        let mut meter = Meter::default();
        let at = |packets_in, packets_out| DagCounters {
            packets_in,
            packets_out,
            bytes_intended: 100 * packets_in,
            bytes_served: 100 * packets_out,
        };
        let drops = |by_nt| {
            let mut drops = [0; DropCause::ALL.len()];
            drops[DropCause::ByNt as usize] = by_nt;
            drops
        };
        meter.count_drops(drops(50));
        meter.sample(at(1_000, 950), MS, LINE);
        assert_eq!(meter.traffic(), None);
        meter.count_drops(drops(53));
        meter.sample(at(1_010, 957), MS, LINE);
        let traffic = meter.traffic().expect("two samples");
        let sums = traffic.sums;
        assert_eq!((sums.packets_in, sums.packets_out), (10, 7));
        assert_eq!((sums.bytes_in, sums.bytes_out), (1_000, 700));
        assert_eq!((sums.drops, sums.under_way()), (drops(3), 0));
        assert_eq!(traffic.offered, Bandwidth::from_bps(8_000_000));
        meter.forget();
        meter.count_drops(drops(2));
        meter.sample(at(5, 5), MS, LINE);
        meter.count_drops(drops(4));
        meter.sample(at(6, 6), MS, LINE);
        let traffic = meter.traffic().expect("two samples");
        let sums = traffic.sums;
        assert_eq!((sums.packets_in, sums.drops), (11, drops(5)), "a card that began again");
    }

    #[test]
    fn what_is_shown_is_of_the_last_second_and_the_last_ten() {
        let mut meter = Meter::default();
        let mut after = |tenths: u64, packets_in, packets_out, dropped| {
            let mut drops = [0; DropCause::ALL.len()];
            drops[DropCause::RateLimited as usize] = dropped;
            meter.count_drops(drops);
            let (bytes_intended, bytes_served) = (125 * packets_in, 125 * packets_out);
            let now = DagCounters { packets_in, packets_out, bytes_intended, bytes_served };
            meter.sample(now, Duration::from_millis(100 * tenths), LINE);
            meter.traffic().unwrap_or_default()
        };
        after(0, 0, 0, 0);
        // 1,000 packets a second, in bursts of 500; a tenth of them is dropped.
        let mut last = DagTraffic::default();
        for tenth in 1..=120 {
            let bursts = 500 * (tenth / 5);
            last = after(1, bursts, bursts / 10 * 9, bursts / 10);
        }
        let (second, ten) = (last.last_second, last.last_ten_seconds);
        assert_eq!((last.offered, last.served), (rate(125_000, second.span), second.served()));
        assert_eq!(last.offered.get(), 1_000_000, "a burst is no rate: {second:?}");
        assert_eq!((second.packets_in, second.under_way()), (1_000, 0));
        assert_eq!(ten.dropped(DropCause::RateLimited), ten.packets_in / 10);
        assert!(ten.span >= Duration::from_secs(10) && ten.lost() >= 1_000, "{ten:?}");
        assert_eq!((second.mean_bytes(), last.sums.packets_in), (Some(125), 12_000));
        // Nothing comes any more: after two seconds nothing is shown as offered.
        for _ in 0..20 {
            last = after(1, 12_000, 10_800, 1_200);
        }
        assert_eq!((last.offered, last.last_second.lost()), (Bandwidth::ZERO, 0));
        assert!(last.last_ten_seconds.loses());
        for _ in 0..120 {
            last = after(1, 12_000, 10_800, 1_200);
        }
        assert_eq!(last.last_ten_seconds.packets_in, 0);
        assert_eq!(TrafficWindow::default().mean_bytes(), None);
    }

    #[test]
    fn counters_that_go_back_or_jump_say_nothing_absurd() {
        let mut meter = Meter::default();
        meter.sample(counters(0, 0), MS, LINE);
        meter.sample(counters(125_000, 0), MS, LINE);
        assert_eq!(meter.sample(counters(7, 0), MS, LINE), SampleOutcome::Backwards);
        assert_eq!(meter.load, Some(Bandwidth::from_gbps(1)), "as before");
        assert_eq!(meter.sample(counters(u64::MAX, 0), MS, LINE), SampleOutcome::Load);
        assert_eq!(meter.load, Some(LINE));
        assert_eq!(meter.sample(counters(u64::MAX, 0), Duration::ZERO, LINE), SampleOutcome::Load);
        meter.forget();
        assert_eq!(
            (meter.load, meter.sample(counters(9, 9), MS, LINE)),
            (None, SampleOutcome::First)
        );
    }
}
