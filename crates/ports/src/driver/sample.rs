//! Reading the counters.
//!
//! Counters have 64 bits and are read 32 at a time while they count. High, low, high again: where
//! the high word stayed the same, the low word belongs to it; where it changed, it will not change
//! again for another 2^32 events, so a second low word belongs to the second high word. Counters
//! are exact each for itself; two of them are read at slightly different moments.
//!
//! Drops of a DAG are read only after more of its packets went in than came out since they were read last,
//! and of [`DROP_ROWS_MAX`] DAGs in one sample: they are for people to look at.
//!
//! Those of the DAGs are read in two blocks, one after the other, which hold all of these words; and
//! only as far as rows were ever given to DAGs. Each read is a round trip on a real card.

use std::collections::BTreeMap;
use std::ops::Bound;

use snic_domain::limits::DAG_ROWS;
use snic_tables::registers::{
    Address, CAPABILITIES, CAPABILITY_DAG_DROPS, DAG_DROPS, DAG_DROPS_ROW, DAG_LOAD, DAG_LOAD_ROW,
    DROPS, PACKETS_IN, PACKETS_OUT,
};
use snic_tables::{CardCounters, DagCounters, DropCause, RowKey, Table, TableImage};

use crate::card::{Card, CardError};

const ROW_WORDS: usize = DAG_LOAD_ROW as usize / 4;
const CAUSES: usize = DropCause::ALL.len();
/// DAGs whose drops are read in one sample. Each is two round trips.
const DROP_ROWS_MAX: usize = 8;

/// The drops of DAGs, as they were read last.
#[derive(Debug)]
pub(super) struct Drops {
    /// Whether the card counts them, as it said when it was read back.
    counted: bool,
    /// By row: how many packets had not come out when they were read, and the drops.
    known: BTreeMap<u16, (u64, [u64; CAUSES])>,
    /// The row that was read last.
    last: u16,
}

impl Drops {
    /// Nothing was read yet.
    pub(super) const fn new() -> Self {
        Self { counted: false, known: BTreeMap::new(), last: 0 }
    }

    /// Asks the card whether it counts them.
    pub(super) fn ask(&mut self, card: &mut dyn Card) -> Result<(), CardError> {
        self.counted = card.read(CAPABILITIES)? & CAPABILITY_DAG_DROPS != 0;
        Ok(())
    }

    /// Reads those of some DAGs that lost packets since, in turn.
    fn read(
        &mut self,
        card: &mut dyn Card,
        dags: &[(u16, DagCounters)],
    ) -> Result<Vec<(u16, [u64; CAUSES])>, CardError> {
        if !self.counted {
            return Ok(Vec::new());
        }
        let missing = |dag: &DagCounters| dag.packets_in.wrapping_sub(dag.packets_out);
        let due = |(row, dag): &&(u16, DagCounters)| {
            self.known.get(row).map(|(missing, _)| *missing) != Some(missing(dag))
        };
        let due: BTreeMap<u16, u64> =
            dags.iter().filter(due).map(|(row, dag)| (*row, missing(dag))).collect();
        let behind = due.range((Bound::Excluded(self.last), Bound::Unbounded));
        let turn: Vec<_> = behind.chain(due.range(..=self.last)).take(DROP_ROWS_MAX).collect();
        for (&row, &missing) in turn {
            if let Some(drops) = dag_drops(card, row)? {
                self.known.insert(row, (missing, drops));
            }
            self.last = row;
        }
        Ok(self.known.iter().map(|(row, (_, drops))| (*row, *drops)).collect())
    }
}

/// The drops of one DAG; `None` where a low word went over while they were read.
fn dag_drops(card: &mut dyn Card, row: u16) -> Result<Option<[u64; CAUSES]>, CardError> {
    let first = DAG_DROPS + u32::from(row) * DAG_DROPS_ROW;
    let mut reads = [[0; 2 * CAUSES]; 2];
    for words in &mut reads {
        card.read_block(first, words)?;
    }
    let [before, words] = reads;
    let is_whole = (1..2 * CAUSES).step_by(2).all(|high| before[high] == words[high]);
    let whole = |cause| u64::from(words[2 * cause + 1]) << 32 | u64::from(words[2 * cause]);
    Ok(is_whole.then(|| std::array::from_fn(whole)))
}

/// All counters of a card, and those of the first `rows` rows of DAGs. Time O(rows), in two block
/// reads.
pub(super) fn counters(
    card: &mut dyn Card,
    rows: usize,
    drops: &mut Drops,
) -> Result<CardCounters, CardError> {
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
            counters.dags.push((row, dag(card, row, before, words)?));
        }
    }
    counters.dag_drops = drops.read(card, &counters.dags)?;
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
    before: &[u32],
    words: &[u32],
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
