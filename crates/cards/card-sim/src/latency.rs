//! Latencies as the card's registers have them: records of sampled packets, and the largest of each DAG.
//!
//! A sampled packet has a timeline. Where the packet does one thing and then another, the cycles since the last such moment
//! count for the part that ended, so the parts sum up to the whole whatever happened.

use snic_domain::DagUid;
use snic_tables::registers::*;
use snic_tables::{LatencySample, NtTime, PathPart, SAMPLED_NTS_MAX, Table, is_sampled};

use crate::slab::Slab;

/// No timeline, for a packet that is not sampled.
pub(crate) const UNSAMPLED: u32 = u32::MAX;

const RECORD_WORDS: usize = LATENCY_RECORD as usize / 4;
const ROW_WORDS: usize = DAG_LATENCY_ROW as usize / 4;

/// Times of a sampled packet so far.
#[derive(Debug, Clone, Copy)]
struct Timeline {
    /// Row of the packet's DAG.
    row: u16,
    /// The cycle up to which they are counted.
    counted: u64,
    parts: [u64; PathPart::ALL.len()],
    nts: [NtTime; SAMPLED_NTS_MAX],
    nts_passed: u8,
}

/// Largest latencies of a DAG, and how many of its packets are sampled.
#[derive(Debug, Clone, Copy)]
struct Row {
    window: u32,
    max: u32,
    max_before: u32,
    exponent: u32,
    /// Timelines of its packets.
    under_way: u16,
}

/// Latencies since power-up.
#[derive(Debug)]
pub(crate) struct Latencies {
    rows: Vec<Row>,
    /// Records that were written, the oldest overwritten first; allocated with the first.
    ring: Vec<[u32; RECORD_WORDS]>,
    written: u32,
    timelines: Slab<Timeline>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let exponent = LATENCY_EXPONENT_INITIAL;
        let row = Row { window: 0, max: 0, max_before: 0, exponent, under_way: 0 };
        Self {
            rows: vec![row; Table::Dag.rows()],
            ring: Vec::new(),
            written: 0,
            timelines: Slab::default(),
        }
    }

    /// A packet of a DAG came in, the `number`th of its row, counted from zero: begins its timeline at `since` if it is
    /// sampled.
    #[inline]
    pub(crate) fn begin(&mut self, row: u16, number: u64, since: u64) -> u32 {
        if !is_sampled(number, self.rows[usize::from(row)].exponent) {
            return UNSAMPLED;
        }
        self.insert(Timeline {
            row,
            counted: since,
            parts: [0; PathPart::ALL.len()],
            nts: [NtTime { region: 0, slot: 0, cycles: 0 }; SAMPLED_NTS_MAX],
            nts_passed: 0,
        })
    }

    /// Adds a timeline where there is a place for one more of its DAG.
    fn insert(&mut self, timeline: Timeline) -> u32 {
        let under_way = &mut self.rows[usize::from(timeline.row)].under_way;
        let places = if usize::from(*under_way) < LATENCY_PLACES_OF_DAG {
            LATENCY_PLACES
        } else {
            LATENCY_PLACES / 2
        };
        if self.timelines.len() >= places {
            return UNSAMPLED;
        }
        *under_way += 1;
        self.timelines.insert(timeline)
    }

    /// The packet has ended a part of its way.
    #[inline]
    pub(crate) fn pass(&mut self, at: u32, part: PathPart, now: u64) {
        if at != UNSAMPLED {
            let timeline = &mut self.timelines[at];
            timeline.parts[part as usize] += now - timeline.counted;
            timeline.counted = now;
        }
    }

    /// That many cycles of what is not counted yet were of this part.
    pub(crate) fn add(&mut self, at: u32, part: PathPart, cycles: u64) {
        if at != UNSAMPLED {
            let timeline = &mut self.timelines[at];
            timeline.parts[part as usize] += cycles;
            timeline.counted += cycles;
        }
    }

    /// The packet has left an NT.
    #[inline]
    pub(crate) fn pass_nt(&mut self, at: u32, (region, slot): (u8, u8), now: u64) {
        if at == UNSAMPLED {
            return;
        }
        let timeline = &mut self.timelines[at];
        let cycles = u32::try_from(now - timeline.counted).unwrap_or(u32::MAX);
        let place = usize::from(timeline.nts_passed).min(SAMPLED_NTS_MAX - 1);
        let before =
            if usize::from(timeline.nts_passed) > place { timeline.nts[place].cycles } else { 0 };
        timeline.nts[place] = NtTime { region, slot, cycles: before.saturating_add(cycles) };
        timeline.nts_passed = (place + 1).max(timeline.nts_passed.into()) as u8;
        timeline.counted = now;
    }

    /// A copy of the packet goes its own way from here on.
    pub(crate) fn fork(&mut self, at: u32) -> u32 {
        if at == UNSAMPLED {
            return UNSAMPLED;
        }
        self.insert(self.timelines[at])
    }

    /// The packet, or a copy of it, is no more.
    #[inline]
    pub(crate) fn end(&mut self, at: u32) {
        if at != UNSAMPLED {
            let row = self.timelines[at].row;
            self.rows[usize::from(row)].under_way -= 1;
            self.timelines.remove(at);
        }
    }

    /// A packet of a DAG went out; `since` is when it came. Its timeline is left to [`Latencies::end`].
    #[inline]
    pub(crate) fn went_out(&mut self, at: u32, uid: DagUid, (since, now): (u64, u64)) {
        let row = &mut self.rows[usize::from(uid.row())];
        let window = (now >> LATENCY_WINDOW_BITS) as u32;
        if window != row.window {
            let is_next = row.window.wrapping_add(1) == window;
            *row = Row { window, max: 0, max_before: if is_next { row.max } else { 0 }, ..*row };
        }
        row.max = row.max.max(u32::try_from(now - since).unwrap_or(u32::MAX));
        if at != UNSAMPLED {
            let timeline = &self.timelines[at];
            let nts = &timeline.nts[..usize::from(timeline.nts_passed)];
            let sample = LatencySample::new(uid.raw(), timeline.parts, nts);
            if self.ring.is_empty() {
                self.ring = vec![[0; RECORD_WORDS]; LATENCY_RING as usize];
            }
            self.ring[(self.written % LATENCY_RING) as usize] = *sample.words();
            self.written = self.written.wrapping_add(1);
        }
    }

    /// Records since power-up.
    pub(crate) const fn written(&self) -> u32 {
        self.written
    }

    /// Timelines of packets that are on the card.
    pub(crate) fn under_way(&self) -> usize {
        self.timelines.len()
    }

    /// A register of the ring or of the rows.
    pub(crate) fn value(&self, at: Address) -> Option<u32> {
        if let Some(word) = index(at, LATENCY_RECORDS, LATENCY_RING as usize * RECORD_WORDS) {
            return Some(self.record_word(word));
        }
        let word = index(at, DAG_LATENCY, self.rows.len() * ROW_WORDS)?;
        let row = self.rows[word / ROW_WORDS];
        Some([row.window, row.max, row.max_before, row.exponent][word % ROW_WORDS])
    }

    /// Fills words from a register of the ring on; whether all of them are in it.
    pub(crate) fn copy_records(&self, at: Address, words: &mut [u32]) -> bool {
        let Some(first) = index(at, LATENCY_RECORDS, LATENCY_RING as usize * RECORD_WORDS) else {
            return false;
        };
        if !at.is_multiple_of(4) || first + words.len() > LATENCY_RING as usize * RECORD_WORDS {
            return false;
        }
        (first..).zip(words).for_each(|(at, word)| *word = self.record_word(at));
        true
    }

    fn record_word(&self, word: usize) -> u32 {
        self.ring.get(word / RECORD_WORDS).map_or(0, |record| record[word % RECORD_WORDS])
    }

    /// A register of the rows as the host writes it.
    pub(crate) fn write(&mut self, at: Address, value: u32) {
        let Some(word) = index(at, DAG_LATENCY, self.rows.len() * ROW_WORDS) else { return };
        if word % ROW_WORDS == DAG_LATENCY_EXPONENT as usize / 4 {
            self.rows[word / ROW_WORDS].exponent = value.min(LATENCY_EXPONENT_MAX);
        }
    }
}

/// The word that `at` names in a run of `count` words from `first`.
fn index(at: Address, first: Address, count: usize) -> Option<usize> {
    let index = (at.checked_sub(first)? / 4) as usize;
    (index < count).then_some(index)
}

#[cfg(test)]
mod tests {
    use snic_tables::registers::dag_latency;

    use super::*;

    #[test]
    fn a_dag_whose_packets_wait_for_long_leaves_places_to_others() {
        let mut latencies = Latencies::new();
        for row in [3, 4] {
            latencies.write(dag_latency(row, DAG_LATENCY_EXPONENT), 0);
        }
        let mut of = |row| -> Vec<u32> {
            let begun = (0..LATENCY_PLACES as u64).map(|number| latencies.begin(row, number, 0));
            begun.filter(|at| *at != UNSAMPLED).collect()
        };
        let [mut waiting, others] = [3, 4].map(&mut of);
        let counts = [&waiting, &others].map(Vec::len);
        assert_eq!(counts, [LATENCY_PLACES / 2, LATENCY_PLACES_OF_DAG]);
        // A copy needs a place, too, and what has left makes room for one more only once others have theirs.
        assert_eq!(latencies.fork(waiting[0]), UNSAMPLED);
        let left = waiting.split_off(LATENCY_PLACES_OF_DAG - 1);
        left.into_iter().for_each(|at| latencies.end(at));
        let copy = latencies.fork(waiting[0]);
        assert_ne!(copy, UNSAMPLED);
        waiting.iter().chain(&others).chain([&copy]).for_each(|at| latencies.end(*at));
        assert_eq!(latencies.under_way(), 0);
        assert!(latencies.rows.iter().all(|row| row.under_way == 0));
    }
}
