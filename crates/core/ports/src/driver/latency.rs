//! Reading latencies, together with the counters.
//!
//! Records of sampled packets are read as they come, at most [`RECORDS_MAX`] in one sample; the rows of the largest latencies
//! once in each window of the card's clock. Then the driver also sets one packet in how many is sampled of each DAG, so that
//! all DAGs with traffic have equal parts of [`WINDOW_RECORDS`]: a DAG of ten packets a second has each of them sampled, one
//! of a hundred million one in some ten thousand. A card that lost its power is told again with its next window.

use snic_tables::registers::{
    Address, CAPABILITY_CLOCK, CAPABILITY_LATENCY, DAG_LATENCY, DAG_LATENCY_EXPONENT,
    DAG_LATENCY_ROW, LATENCY_EXPONENT_MAX, LATENCY_RECORD, LATENCY_RECORDS, LATENCY_RING,
    LATENCY_WINDOW_BITS, LATENCY_WRITTEN, dag_latency,
};
use snic_tables::{CardCounters, DagCounters, LatencyReading, LatencySample};

use crate::card::{Card, CardError};

/// Records that are read in one sample: 8,192 words, as many as the counters of 1,024 DAGs.
const RECORDS_MAX: u32 = 256;
/// Records of a window that are asked for. Where counters are read every 10 ms, [`RECORDS_MAX`] leave room for 3,400.
const WINDOW_RECORDS: u64 = 2_048;

const RECORD_WORDS: usize = LATENCY_RECORD as usize / 4;
const ROW_WORDS: usize = DAG_LATENCY_ROW as usize / 4;

/// Memory about the latencies that were read before.
#[derive(Debug)]
pub(super) struct LatencySampler {
    /// Whether the card measures them, as it said when it was read back.
    pub(super) measures: bool,
    /// Records that were written when they were read last.
    written: Option<u32>,
    /// Window of the card's clock in which the rows were read last, and the packets of each row at that time.
    window: Option<u64>,
    packets: Vec<u64>,
}

/// Records of the ring that are new.
struct NewRecords {
    first: u32,
    count: u32,
    missed: u32,
}

impl LatencySampler {
    pub(super) const fn new() -> Self {
        Self { measures: false, written: None, window: None, packets: Vec::new() }
    }

    /// A card that was read back has these capabilities.
    pub(super) fn begin(&mut self, capabilities: u32) {
        let needed = CAPABILITY_LATENCY | CAPABILITY_CLOCK;
        *self = Self { measures: capabilities & needed == needed, ..Self::new() };
    }

    /// Latencies since the last reading, where `written` records are now and these are the counters. One access, if
    /// anything is new.
    pub(super) fn read(
        &mut self,
        card: &mut dyn Card,
        (written, rows): (u32, usize),
        counters: &CardCounters,
    ) -> Result<LatencyReading, CardError> {
        let (true, Some(cycles)) = (self.measures, counters.cycles) else {
            return Ok(LatencyReading::default());
        };
        let new = self.new_records(written);
        let window = cycles >> LATENCY_WINDOW_BITS;
        let before = self.window.replace(window);
        let rows = if before == Some(window) { 0 } else { rows };
        let mut words = vec![0; new.count as usize * RECORD_WORDS];
        let (mut after, mut of_rows) = ([written], vec![0; rows * ROW_WORDS]);
        if new.count > 0 || rows > 0 {
            read_all(card, new.first, (&mut words, &mut after, &mut of_rows))?;
        }
        let mut reading = samples(&new, &words, after[0]);
        if rows > 0 {
            let of_rows: Vec<&[u32]> = of_rows.chunks_exact(ROW_WORDS).collect();
            reading.maxima = maxima(&of_rows, window);
            let windows = before.map_or(1, |before| window.saturating_sub(before).max(1));
            self.set_exponents(card, &of_rows, (windows, &counters.dags))?;
        }
        Ok(reading)
    }

    /// The newest of the records that were written since the last reading; none in the first one.
    fn new_records(&mut self, written: u32) -> NewRecords {
        let before = self.written.replace(written).unwrap_or(written);
        let new = written.wrapping_sub(before);
        let count = new.min(RECORDS_MAX);
        NewRecords { first: written.wrapping_sub(count), count, missed: new - count }
    }

    /// Sets how many packets are sampled of DAGs with traffic, where it is too many or far too few.
    fn set_exponents(
        &mut self,
        card: &mut dyn Card,
        rows: &[&[u32]],
        (windows, dags): (u64, &[(u16, DagCounters)]),
    ) -> Result<(), CardError> {
        self.packets.resize(rows.len(), 0);
        let mut came = Vec::new();
        for (row, dag) in dags {
            let Some(before) = self.packets.get_mut(usize::from(*row)) else { continue };
            let packets = dag.packets_in.saturating_sub(*before) / windows;
            *before = dag.packets_in;
            if packets > 0 {
                came.push((*row, packets));
            }
        }
        let part = (WINDOW_RECORDS / came.len().max(1) as u64).max(1);
        for (row, packets) in came {
            let fits = packets.div_ceil(part).next_power_of_two().ilog2().min(LATENCY_EXPONENT_MAX);
            let now = rows[usize::from(row)][DAG_LATENCY_EXPONENT as usize / 4];
            if fits > now || fits + 1 < now || fits == 0 && now == 1 {
                card.write(dag_latency(row, DAG_LATENCY_EXPONENT), fits)?;
            }
        }
        Ok(())
    }
}

/// Reads records from number `first` on, how many are written then, and rows, in one access.
fn read_all(
    card: &mut dyn Card,
    first: u32,
    (words, after, rows): (&mut [u32], &mut [u32], &mut [u32]),
) -> Result<(), CardError> {
    let place = first % LATENCY_RING;
    let to_end = (LATENCY_RING - place) as usize * RECORD_WORDS;
    let (head, tail) = words.split_at_mut(to_end.min(words.len()));
    let at: Address = LATENCY_RECORDS + place * LATENCY_RECORD;
    let mut blocks =
        vec![(at, head), (LATENCY_RECORDS, tail), (LATENCY_WRITTEN, after), (DAG_LATENCY, rows)];
    blocks.retain(|(_, words)| !words.is_empty());
    card.read_blocks(&mut blocks)
}

/// The records that were still there when all of them had been read.
fn samples(new: &NewRecords, words: &[u32], written: u32) -> LatencyReading {
    let mut reading = LatencyReading { missed: new.missed.into(), ..LatencyReading::default() };
    for (number, record) in (0..new.count).zip(words.as_chunks::<RECORD_WORDS>().0) {
        // The one that is next overwrites its place before it counts.
        let age = written.wrapping_sub(new.first.wrapping_add(number));
        if age < LATENCY_RING {
            reading.samples.push(LatencySample::from_words(*record));
        } else {
            reading.missed += 1;
        }
    }
    reading
}

/// The largest latencies by row, in the window before this one.
fn maxima(rows: &[&[u32]], window: u64) -> Vec<(u16, u32)> {
    let of_row = |(row, words): (u16, &&[u32])| {
        let &[at, max, max_before, _] = *words else { return None };
        let max = match (window as u32).wrapping_sub(at) {
            1 => max,
            0 => max_before,
            _ => 0,
        };
        (max > 0).then_some((row, max))
    };
    (0..).zip(rows).filter_map(of_row).collect()
}
