//! Reading the counters.
//!
//! Counters have 64 bits and are read 32 at a time while they count. High, low, high again: where
//! the high word stayed the same, the low word belongs to it; where it changed, it will not change
//! again for another 2^32 events, so a second low word belongs to the second high word. Counters
//! are exact each for itself; two of them are read at slightly different moments.

use snic_domain::limits::DAG_ROWS;
use snic_tables::registers::{Address, DAG_LOAD, DAG_LOAD_ROW, DROPS, PACKETS_IN, PACKETS_OUT};
use snic_tables::{CardCounters, DagCounters};

use crate::card::{Card, CardError};

const ROW_WORDS: usize = DAG_LOAD_ROW as usize / 4;

/// All counters of a card. Rows of DAGs that never saw a packet cost one bulk read together.
pub(super) fn counters(card: &mut dyn Card) -> Result<CardCounters, CardError> {
    let mut counters = CardCounters {
        packets_in: counter(card, PACKETS_IN)?,
        packets_out: counter(card, PACKETS_OUT)?,
        ..CardCounters::default()
    };
    for (address, drop) in (DROPS..).step_by(8).zip(&mut counters.drops) {
        *drop = counter(card, address)?;
    }
    let mut words = vec![0; DAG_ROWS * ROW_WORDS];
    card.read_block(DAG_LOAD, &mut words)?;
    for (row, words) in (0u16..).zip(words.chunks_exact(ROW_WORDS)) {
        if words.iter().any(|&word| word != 0) {
            counters.dags.push((row, dag(card, row)?));
        }
    }
    Ok(counters)
}

fn dag(card: &mut dyn Card, row: u16) -> Result<DagCounters, CardError> {
    let at = DAG_LOAD + u32::from(row) * DAG_LOAD_ROW;
    Ok(DagCounters {
        packets_in: counter(card, at)?,
        bytes_intended: counter(card, at + 8)?,
        bytes_served: counter(card, at + 16)?,
        packets_out: counter(card, at + 24)?,
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
