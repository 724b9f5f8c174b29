//! Reading the counters.
//!
//! Counters have 64 bits and are read 32 at a time while they count. High, low, high again: where
//! the high word stayed the same, the low word belongs to it; where it changed, it will not change
//! again for another 2^32 events, so a second low word belongs to the second high word. Counters
//! are exact each for itself; two of them are read at slightly different moments.
//!
//! Those of the DAGs are read in two blocks, one after the other, which hold all of these words; and
//! only as far as rows were ever given to DAGs. Each read is a round trip on a real card.

use snic_domain::limits::DAG_ROWS;
use snic_tables::registers::{Address, DAG_LOAD, DAG_LOAD_ROW, DROPS, PACKETS_IN, PACKETS_OUT};
use snic_tables::{CardCounters, DagCounters, RowKey, Table, TableImage};

use crate::card::{Card, CardError};

const ROW_WORDS: usize = DAG_LOAD_ROW as usize / 4;

/// All counters of a card, and those of the first `rows` rows of DAGs. Time O(rows), in two block
/// reads.
pub(super) fn counters(card: &mut dyn Card, rows: usize) -> Result<CardCounters, CardError> {
    let mut counters = CardCounters {
        packets_in: counter(card, PACKETS_IN)?,
        packets_out: counter(card, PACKETS_OUT)?,
        ..CardCounters::default()
    };
    for (address, drop) in (DROPS..).step_by(8).zip(&mut counters.drops) {
        *drop = counter(card, address)?;
    }
    let mut before = vec![0; rows * ROW_WORDS];
    let mut words = before.clone();
    if rows > 0 {
        card.read_block(DAG_LOAD, &mut before)?;
        card.read_block(DAG_LOAD, &mut words)?;
    }
    let pairs = before.chunks_exact(ROW_WORDS).zip(words.chunks_exact(ROW_WORDS));
    for (row, (before, words)) in (0u16..).zip(pairs) {
        if words.iter().any(|&word| word != 0) {
            counters.dags.push((row, dag(card, row, (before, words))?));
        }
    }
    Ok(counters)
}

/// How many rows have to be read so that none is missed which these tables give to a DAG.
pub(super) fn rows(tables: &TableImage) -> usize {
    let used =
        |row: &u16| tables.row(RowKey { table: Table::Dag, row: *row }).iter().any(|w| *w != 0);
    (0..DAG_ROWS as u16).rev().find(used).map_or(0, |last| usize::from(last) + 1)
}

fn dag(
    card: &mut dyn Card,
    row: u16,
    (before, words): (&[u32], &[u32]),
) -> Result<DagCounters, CardError> {
    let first = DAG_LOAD + u32::from(row) * DAG_LOAD_ROW;
    let mut whole = |number: usize| {
        let (low, high) = (2 * number, 2 * number + 1);
        if before[high] == words[high] {
            return Ok(u64::from(words[high]) << 32 | u64::from(words[low]));
        }
        counter(card, first + 8 * number as u32)
    };
    Ok(DagCounters {
        packets_in: whole(0)?,
        bytes_intended: whole(1)?,
        bytes_served: whole(2)?,
        packets_out: whole(3)?,
    })
}

fn counter(card: &mut dyn Card, low: Address) -> Result<u64, CardError> {
    let before = card.read(low + 4)?;
    let mut word = card.read(low)?;
    let high = card.read(low + 4)?;
    if high != before {
        word = card.read(low)?;
    }
    Ok(u64::from(high) << 32 | u64::from(word))
}
