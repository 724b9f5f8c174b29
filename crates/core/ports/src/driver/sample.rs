//! Reading the counters.
//!
//! Counters have 64 bits and are read 32 at a time while they count, the low word first. Where the high
//! word is the same as one that was read earlier, the low word belongs to it; where it changed, the counter is read
//! again: high, low, high, low. It will not change again for another 2^32 events, so the second low
//! word belongs to the second high word. Counters are exact each for itself; two of them are read at
//! slightly different moments.
//!
//! The earlier high words are those of the last sample, so that a sample reads each counter once, and all of
//! them together ([`Registers::read_blocks`](crate::card::Registers::read_blocks)): on a real card each separate read
//! is a round trip. Only as many rows of DAGs are read as were ever given to DAGs. The first sample, and
//! the first with more rows, reads everything twice.
//!
//! Drops of a DAG are read only while some of its packets neither came out nor are known to be dropped, or after their
//! number changed, and of [`DROP_ROWS_MAX`] DAGs in one sample: they are for people to look at.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use snic_domain::limits::DAG_ROWS;
use snic_tables::registers::{
    Address, CAPABILITIES, CAPABILITY_CLOCK, CAPABILITY_DAG_DROPS, CAPABILITY_LINKS, CLOCK_CYCLES,
    DAG_DROPS, DAG_DROPS_ROW, DAG_LOAD, DAG_LOAD_ROW, LATENCY_WRITTEN,
};
use snic_tables::{CardCounters, DagCounters, DropCause, RowKey, Table, TableImage};

use super::latency::LatencySampler;
use crate::card::{Card, CardError};

const CAUSES: usize = DropCause::ALL.len();
/// Counters of the card as a whole: cycles of its clock, packets in and out, drops by cause. One block of registers.
const CARD_COUNTERS: usize = 3 + CAUSES;
/// Counters of a row of a DAG.
const ROW_COUNTERS: usize = DAG_LOAD_ROW as usize / 8;
/// DAGs whose drops are read in one sample, all in one access.
const DROP_ROWS_MAX: usize = 8;

/// Memory of samples about the ones before.
#[derive(Debug)]
pub(super) struct Sampler {
    /// High words, as they were read last: of the card's counters, then of the rows' in their order.
    highs: Vec<u32>,
    /// Whether the card counts cycles, as it said when it was read back.
    has_clock: bool,
    /// Causes of drops that it counts, the first ones: those that only links have are counted by cards with links.
    causes: usize,
    drops: Drops,
    latency: LatencySampler,
}

impl Sampler {
    /// Nothing was read yet.
    pub(super) const fn new() -> Self {
        Self {
            highs: Vec::new(),
            has_clock: false,
            causes: DropCause::OF_ALL_CARDS,
            drops: Drops::new(),
            latency: LatencySampler::new(),
        }
    }

    /// A card that was read back: asks whether it counts cycles, and drops by DAG, and measures latencies.
    pub(super) fn begin(&mut self, card: &mut dyn Card) -> Result<(), CardError> {
        self.highs.clear();
        let capabilities = card.read(CAPABILITIES)?;
        self.has_clock = capabilities & CAPABILITY_CLOCK != 0;
        let has_links = capabilities & CAPABILITY_LINKS != 0;
        self.causes = if has_links { CAUSES } else { DropCause::OF_ALL_CARDS };
        let counts = capabilities & CAPABILITY_DAG_DROPS != 0;
        self.drops.causes = if counts { self.causes } else { 0 };
        self.latency.begin(capabilities);
        Ok(())
    }

    /// All counters of a card, and those of the first `rows` rows of DAGs. Time O(rows), in one access;
    /// a second one where a high word changed, and one for drops of DAGs.
    pub(super) fn counters(
        &mut self,
        card: &mut dyn Card,
        rows: usize,
    ) -> Result<CardCounters, CardError> {
        let mut written = [0];
        let records = if self.latency.measures { &mut written[..] } else { &mut [] };
        let values = self.values(card, rows, records)?;
        let (of_card, of_rows) = values.split_at(CARD_COUNTERS);
        let mut counters = CardCounters {
            cycles: self.has_clock.then_some(of_card[0]),
            packets_in: of_card[1],
            packets_out: of_card[2],
            ..CardCounters::default()
        };
        counters.drops.copy_from_slice(&of_card[3..]);
        for (row, values) in (0u16..).zip(of_rows.chunks_exact(ROW_COUNTERS)) {
            if let &[packets_in, bytes_intended, bytes_served, packets_out] = values
                && values.iter().any(|&value| value != 0)
            {
                let dag = DagCounters { packets_in, bytes_intended, bytes_served, packets_out };
                counters.dags.push((row, dag));
            }
        }
        counters.dag_drops = self.drops.read(card, &counters.dags)?;
        counters.latency = self.latency.read(card, (written[0], rows), &counters)?;
        Ok(counters)
    }

    /// The card's own counters that there are, by place.
    const fn counted(&self) -> Range<usize> {
        let first = if self.has_clock { 0 } else { 1 };
        first..CARD_COUNTERS - CAUSES + self.causes
    }

    /// The card's counters, then those of the rows. `records` gets the number of records of latencies, if it has room for it.
    fn values(
        &mut self,
        card: &mut dyn Card,
        rows: usize,
        records: &mut [u32],
    ) -> Result<Vec<u64>, CardError> {
        let number = CARD_COUNTERS + rows * ROW_COUNTERS;
        let mut words = vec![0; 2 * number];
        if self.highs.len() < number {
            let mut before = vec![0; 2 * number];
            read_all(card, self.counted(), &mut [&mut before, &mut words], records)?;
            self.highs = before.into_iter().skip(1).step_by(2).collect();
        } else {
            read_all(card, self.counted(), &mut [&mut words], records)?;
        }
        let mut values: Vec<u64> =
            words.chunks_exact(2).map(|pair| whole(pair[0], pair[1])).collect();
        let highs = words.iter().skip(1).step_by(2).zip(&self.highs);
        let changed: Vec<usize> =
            highs.enumerate().filter(|(_, (now, then))| now != then).map(|(at, _)| at).collect();
        read_again(card, &changed, &mut values)?;
        self.highs.truncate(number);
        for (high, value) in self.highs.iter_mut().zip(&values) {
            *high = (value >> 32) as u32;
        }
        Ok(values)
    }
}

const fn whole(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Reads the card's counters and those of the rows, as many times as there are places for them, one
/// after the other. Of the card's own those are read that it has; the others stay what they are.
fn read_all(
    card: &mut dyn Card,
    counted: Range<usize>,
    times: &mut [&mut Vec<u32>],
    records: &mut [u32],
) -> Result<(), CardError> {
    let mut blocks = Vec::with_capacity(2 * times.len() + 1);
    for words in times {
        let (of_card, of_rows) = words.split_at_mut(2 * CARD_COUNTERS);
        let of_card = &mut of_card[2 * counted.start..2 * counted.end];
        blocks.push((address(counted.start), of_card));
        blocks.push((DAG_LOAD, of_rows));
    }
    blocks.push((LATENCY_WRITTEN, records));
    blocks.retain(|(_, words)| !words.is_empty());
    card.read_blocks(&mut blocks)
}

/// Reads these counters whose high words changed: high, low, high, low.
fn read_again(card: &mut dyn Card, changed: &[usize], values: &mut [u64]) -> Result<(), CardError> {
    if changed.is_empty() {
        return Ok(());
    }
    let mut words = vec![[0; 4]; changed.len()];
    let mut blocks = Vec::with_capacity(4 * changed.len());
    for (&number, words) in changed.iter().zip(&mut words) {
        let low = address(number);
        for (at, word) in [low + 4, low, low + 4, low].into_iter().zip(words.chunks_mut(1)) {
            blocks.push((at, word));
        }
    }
    card.read_blocks(&mut blocks)?;
    for (&number, [before, first, high, second]) in changed.iter().zip(words) {
        values[number] = whole(if before == high { first } else { second }, high);
    }
    Ok(())
}

/// Where a counter's low word is.
const fn address(number: usize) -> Address {
    match number.checked_sub(CARD_COUNTERS) {
        Some(of_row) => DAG_LOAD + 8 * of_row as Address,
        None => CLOCK_CYCLES + 8 * number as Address,
    }
}

/// The drops of DAGs, as they were read last.
#[derive(Debug)]
struct Drops {
    /// Causes that the card counts by DAG, as it said when it was read back.
    causes: usize,
    /// Number of packets that had not come out when they were read, and the drops, by row.
    known: BTreeMap<u16, (u64, [u64; CAUSES])>,
    /// The row that was read last.
    last: u16,
}

impl Drops {
    const fn new() -> Self {
        Self { causes: 0, known: BTreeMap::new(), last: 0 }
    }

    /// Reads those of some DAGs that lost packets since, in turn.
    fn read(
        &mut self,
        card: &mut dyn Card,
        dags: &[(u16, DagCounters)],
    ) -> Result<Vec<(u16, [u64; CAUSES])>, CardError> {
        if self.causes == 0 {
            return Ok(Vec::new());
        }
        let missing = |dag: &DagCounters| dag.packets_in.wrapping_sub(dag.packets_out);
        // A packet that waits in a queue and is dropped later changes no other counter. Of a DAG whose tasks make packets
        // more may come out than went in, which says nothing of drops.
        let due = |(row, dag): &&(u16, DagCounters)| {
            self.known.get(row).is_none_or(|(known, drops)| {
                let is_under_way =
                    dag.packets_in > dag.packets_out && missing(dag) != drops.iter().sum::<u64>();
                *known != missing(dag) || is_under_way
            })
        };
        let due: BTreeMap<u16, u64> =
            dags.iter().filter(due).map(|(row, dag)| (*row, missing(dag))).collect();
        let behind = due.range((Bound::Excluded(self.last), Bound::Unbounded));
        let turn: Vec<(u16, u64)> = behind
            .chain(due.range(..=self.last))
            .take(DROP_ROWS_MAX)
            .map(|(row, missing)| (*row, *missing))
            .collect();
        for ((row, missing), drops) in turn.iter().zip(dag_drops(card, self.causes, &turn)?) {
            if let Some(drops) = drops {
                self.known.insert(*row, (*missing, drops));
            }
            self.last = *row;
        }
        Ok(self.known.iter().map(|(row, (_, drops))| (*row, *drops)).collect())
    }
}

/// The drops of some DAGs, read twice; `None` for one of which a low word went over meanwhile.
fn dag_drops(
    card: &mut dyn Card,
    causes: usize,
    rows: &[(u16, u64)],
) -> Result<Vec<Option<[u64; CAUSES]>>, CardError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut reads = vec![[0; 2 * CAUSES]; 2 * rows.len()];
    let first = |row: u16| DAG_DROPS + u32::from(row) * DAG_DROPS_ROW;
    let twice = rows.iter().chain(rows);
    let mut blocks: Vec<_> = twice
        .zip(&mut reads)
        .map(|(&(row, _), words)| (first(row), &mut words[..2 * causes]))
        .collect();
    card.read_blocks(&mut blocks)?;
    let (before, after) = reads.split_at(rows.len());
    let drops = before.iter().zip(after).map(|(before, words)| {
        let is_whole = (1..2 * CAUSES).step_by(2).all(|high| before[high] == words[high]);
        is_whole.then(|| std::array::from_fn(|cause| whole(words[2 * cause], words[2 * cause + 1])))
    });
    Ok(drops.collect())
}

/// Number of rows that have to be read so that none is missed which these tables give to a DAG.
pub(super) fn rows(tables: &TableImage) -> usize {
    let used =
        |row: &u16| tables.row(RowKey { table: Table::Dag, row: *row }).iter().any(|w| *w != 0);
    (0..DAG_ROWS as u16).rev().find(used).map_or(0, |last| usize::from(last) + 1)
}
