//! Counters of a card on their way into the meters of its DAGs.

use std::time::Duration;

use snic_domain::limits::DAG_ROWS;
use snic_domain::{Bandwidth, CardId, Cycles, Timestamp};
use snic_tables::registers::LATENCY_WINDOW_BITS;
use snic_tables::{CardCounters, DagCounters, DropCause, LatencyReading, LatencySample};

use crate::state::dags::Dags;
use crate::state::meter::{LogDecision, LogThrottle, SampleOutcome};

/// Counters of a card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CounterReading<'a> {
    pub now: Timestamp,
    /// Since the last reading, by the host's clock.
    pub span: Duration,
    /// Frequency of the card's clock.
    pub clock_hz: u64,
    /// Largest rate of its ports.
    pub line: Bandwidth,
    pub counters: &'a CardCounters,
}

/// Records of latencies that wait for the next look at the DAGs, at most: as many as four samples bring.
const RECORDS_WAITING_MAX: usize = 1_024;

/// Intake of one card's counters.
#[derive(Debug, Default)]
pub(super) struct CounterIntake {
    /// Buffer: counters by the row of their DAG. It is kept so that a reading allocates nothing.
    by_row: Vec<DagCounters>,
    /// No DAG had a load when counters were last taken in.
    is_still: bool,
    /// Cycles of the card's clock when counters were last taken in.
    cycles: Option<u64>,
    /// Latencies that came with samples at which no DAG was looked at.
    latencies: LatencyReading,
    odd_log: LogThrottle,
    fault_log: LogThrottle,
}

impl CounterIntake {
    /// Events about packets that met memory faults since the counters were last read.
    pub fn note_faults(
        &mut self,
        now: Timestamp,
        before: &CardCounters,
        after: &CardCounters,
    ) -> Option<String> {
        let count = |counters: &CardCounters| counters.drops[DropCause::MemoryFault as usize];
        let faults = count(after).saturating_sub(count(before));
        (faults > 0 && self.fault_log.trouble(now) == LogDecision::Log).then(|| {
            format!(
                "{faults} packets were dropped: an NT reached for memory beyond its tenant's pages"
            )
        })
    }

    /// Counters by the row of their DAG, in a buffer that [`CounterIntake::reuse`] takes back.
    pub fn by_row(&mut self, counters: &CardCounters) -> Vec<DagCounters> {
        let mut counted = std::mem::take(&mut self.by_row);
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
        self.by_row = counted;
    }

    /// Keeps latencies for the next look at the DAGs. The card gives each only once.
    pub fn keep_latencies(&mut self, reading: LatencyReading) {
        let LatencyReading { samples, missed, maxima } = reading;
        let room = RECORDS_WAITING_MAX.saturating_sub(self.latencies.samples.len());
        self.latencies.samples.extend(samples.into_iter().take(room));
        self.latencies.missed = self.latencies.missed.saturating_add(missed);
        if !maxima.is_empty() {
            self.latencies.maxima = maxima;
        }
    }

    /// Time on the card since counters were last taken in; `span` has passed on the host since then. Where the card's clock
    /// stands or began again, or it has none, the host's counts.
    pub fn card_span(&self, counters: &CardCounters, clock_hz: u64, span: Duration) -> Duration {
        let passed = counters.cycles.zip(self.cycles).map(|(now, before)| now.checked_sub(before));
        match passed.flatten() {
            Some(cycles) if cycles > 0 => Cycles::new(cycles).duration(clock_hz),
            _ => span,
        }
    }

    /// Takes counters into the meters of the card's DAGs; gives how many went backwards, and what to log of that.
    pub fn measure(
        &mut self,
        reading: &CounterReading<'_>,
        card: &CardId,
        dags: &mut Dags,
    ) -> (u64, Option<String>) {
        let CounterReading { now, span, clock_hz, line, counters } = *reading;
        let span = self.card_span(counters, clock_hz, span);
        self.cycles = counters.cycles;
        let counted = self.by_row(counters);
        let latencies = std::mem::take(&mut self.latencies);
        let mut records: Vec<&LatencySample> = latencies.samples.iter().collect();
        records.sort_by_key(|record| record.uid());
        let window = Cycles::new(1 << LATENCY_WINDOW_BITS).duration(clock_hz);
        let mut odd = 0;
        self.is_still = true;
        let drops = &reading.counters.dag_drops;
        dags.visit_meters(card, |uid, spec, meter| {
            let counters = counted.get(usize::from(uid.row())).copied().unwrap_or_default();
            if let Ok(at) = drops.binary_search_by_key(&uid.row(), |(row, _)| *row) {
                meter.count_drops(drops[at].1);
            }
            odd += u64::from(meter.sample(counters, span, line) == SampleOutcome::Backwards);
            self.is_still &= meter.is_still();
            let largest = latencies.maxima.binary_search_by_key(&uid.row(), |(row, _)| *row);
            let largest = largest.ok().map(|at| latencies.maxima[at].1);
            let first = records.partition_point(|record| record.uid() < uid.raw());
            let count = records[first..].partition_point(|record| record.uid() == uid.raw());
            let bound = spec.latency_bound.cycles(clock_hz);
            meter.note_latencies(&records[first..first + count], (largest, window), bound);
            if bound.is_some() {
                meter.note_conformance(spec);
            }
        });
        self.reuse(counted);
        let text = (odd > 0 && self.odd_log.trouble(now) == LogDecision::Log).then(|| {
            format!(
                "the counters of {odd} DAGs went backwards; their loads count as before until \
                 the counters rise again"
            )
        });
        (odd, text)
    }

    /// Whether no DAG had a load when counters were last taken in.
    pub const fn is_still(&self) -> bool {
        self.is_still
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn time_is_the_cards_where_it_counts_cycles() {
        let read = |cycles| CardCounters { cycles, ..CardCounters::default() };
        let second = Duration::from_secs(1);
        let span = |before, after| {
            let intake = CounterIntake { cycles: before, ..CounterIntake::default() };
            intake.card_span(&read(after), 250_000_000, second)
        };
        assert_eq!(span(Some(7), Some(62_500_007)), second / 4, "a simulation that is slow");
        assert_eq!(span(Some(7), Some(250_000_007)), second);
        assert_eq!(span(Some(9), Some(7)), second, "its clock began again");
        assert_eq!(span(Some(7), Some(7)), second, "it stands");
        assert_eq!([span(None, Some(7)), span(Some(7), None)], [second; 2]);
    }

    #[test]
    fn faults_are_told_when_they_rise() {
        let mut intake = CounterIntake::default();
        let counters = |faults| {
            let mut counters = CardCounters::default();
            counters.drops[DropCause::MemoryFault as usize] = faults;
            counters
        };
        assert_eq!(intake.note_faults(at(1), &counters(4), &counters(4)), None);
        assert_eq!(intake.note_faults(at(1), &counters(4), &counters(1)), None, "they start over");
        let told = intake.note_faults(at(1), &counters(4), &counters(9));
        assert!(told.is_some_and(|text| text.starts_with("5 packets")));
        assert_eq!(intake.note_faults(at(2), &counters(9), &counters(10)), None, "told lately");
    }
}
