//! Two table banks and the commit between them.
//!
//! ```text
//!          COMMIT n+1                        last packet of version n gone
//! idle ─────────────► busy: new packets read ──────────────────────────────► busy: the changed rows ──► idle
//!                     the other bank                                         are copied back
//! ```
//!
//! While a commit is busy, the shadow bank is the one that old packets still read, or that rows are copied to: what the
//! host writes then is ignored. An abort copies rows in the same way, and is as busy meanwhile.

use snic_tables::{
    BANK_WORDS, DagRow, DropCause, InstancePlace, InstanceRow, RowCodec, RowKey, Table,
};

use crate::decoded::{Decoded, decode, row_of_word};

/// Cycles for looking which rows are to be copied, beside one for each row: as many as the longest table has words of
/// marks, which is what the shell in SystemVerilog takes (`bitstreams/shell`).
const LOOK_CYCLES: u64 = 256;

/// One of the two banks.
pub(crate) type Bank = usize;

#[derive(Debug)]
struct Contents {
    words: Box<[u32]>,
    decoded: Decoded,
    version: u32,
    /// Packets that began with it and are still on the card.
    packets: u64,
}

/// Rows, each once, in the order in which they were first marked.
#[derive(Debug)]
struct RowSet {
    marks: Box<[u64]>,
    rows: Vec<RowKey>,
}

impl RowSet {
    fn new() -> Self {
        Self { marks: vec![0; BANK_WORDS.div_ceil(64)].into(), rows: Vec::new() }
    }

    /// Marks by the row's first word.
    fn insert(&mut self, key: RowKey) {
        if let Some(at) = key.offset()
            && self.marks[at / 64] >> (at % 64) & 1 == 0
        {
            self.marks[at / 64] |= 1 << (at % 64);
            self.rows.push(key);
        }
    }

    fn take(&mut self) -> Vec<RowKey> {
        for at in self.rows.iter().filter_map(|key| key.offset()) {
            self.marks[at / 64] = 0;
        }
        std::mem::take(&mut self.rows)
    }
}

/// State of the last commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitState {
    Idle,
    Busy,
    Refused,
    /// A row named a link that is not there.
    NoLink,
}

#[derive(Debug)]
pub(crate) struct Banks {
    contents: [Contents; 2],
    active: Bank,
    /// Rows of the shadow bank that differ from the active one's, or may.
    written: RowSet,
    /// The rows of a commit that is busy.
    committed: Option<Vec<RowKey>>,
    /// The cycle from which on rows are no longer being copied.
    copied_at: u64,
    /// Links of the card.
    links: u8,
    /// The commit under way never ends.
    hangs: bool,
    /// Why the last commit was refused.
    refused: Option<CommitState>,
}

impl Default for Banks {
    fn default() -> Self {
        Self::with_links(0)
    }
}

impl Banks {
    /// Banks of a card with so many links to other cards.
    pub(crate) fn with_links(links: u8) -> Self {
        let contents = || Contents {
            words: vec![0; BANK_WORDS].into(),
            decoded: Decoded::default(),
            version: 0,
            packets: 0,
        };
        Self {
            contents: [contents(), contents()],
            active: 0,
            written: RowSet::new(),
            committed: None,
            copied_at: 0,
            links,
            hangs: false,
            refused: None,
        }
    }
}

impl Banks {
    pub(crate) const fn active(&self) -> Bank {
        self.active
    }

    pub(crate) const fn version(&self, bank: Bank) -> u32 {
        self.contents[bank].version
    }

    pub(crate) fn words(&self, shadow: bool) -> &[u32] {
        &self.contents[self.active ^ usize::from(shadow)].words
    }

    /// The rows that new packets read.
    pub(crate) const fn current(&self) -> &Decoded {
        &self.contents[self.active].decoded
    }

    /// The bank that old packets still read, while a commit is busy.
    pub(crate) const fn draining(&self) -> Option<Bank> {
        if self.committed.is_some() { Some(self.active ^ 1) } else { None }
    }

    pub(crate) const fn state(&self, now: u64) -> CommitState {
        match (self.is_busy(now), self.refused) {
            (true, _) => CommitState::Busy,
            (false, Some(why)) => why,
            (false, None) => CommitState::Idle,
        }
    }

    const fn is_busy(&self, now: u64) -> bool {
        self.committed.is_some() || now < self.copied_at
    }

    /// A host's write to the shadow bank.
    pub(crate) fn write_shadow(&mut self, now: u64, word: usize, value: u32) {
        if self.is_busy(now) {
            return;
        }
        self.contents[self.active ^ 1].words[word] = value;
        if let Some(key) = row_of_word(word) {
            self.written.insert(key);
        }
    }

    /// A packet begins with the rows that another one reads.
    pub(crate) fn begin_in(&mut self, bank: Bank) {
        self.contents[bank].packets += 1;
    }

    /// Makes the shadow bank the same as the active one. Does nothing while a commit is busy. Whether it did.
    pub(crate) fn abort(&mut self, now: u64) -> bool {
        let is_free = !self.is_busy(now);
        if is_free {
            let rows = self.written.take();
            self.copy_to_shadow(now, &rows);
            self.refused = None;
        }
        is_free
    }

    /// Swaps the banks where `version` is the next one and no commit is busy; says which rows
    /// changed. `hangs` makes a commit that never ends.
    pub(crate) fn commit(&mut self, now: u64, version: u32, hangs: bool) -> Option<Vec<RowKey>> {
        let next = self.contents[self.active].version.wrapping_add(1);
        if self.is_busy(now) || version != next {
            self.refused = Some(CommitState::Refused);
            return None;
        }
        if self.names_other_link() {
            self.refused = Some(CommitState::NoLink);
            return None;
        }
        self.refused = None;
        let rows = self.written.take();
        self.active ^= 1;
        let bank = &mut self.contents[self.active];
        bank.version = version;
        bank.decoded.refresh(&bank.words, &rows);
        self.committed = Some(rows.clone());
        self.hangs = hangs;
        self.finish_commit(now);
        Some(rows)
    }

    /// Whether a row that was written names a link that the card does not have.
    fn names_other_link(&self) -> bool {
        let words = &self.contents[self.active ^ 1].words;
        let link = |key: &RowKey| match key.table {
            Table::Instance => match decode::<InstanceRow>(words, *key)?.place {
                InstancePlace::Link { link, .. } => Some(link),
                InstancePlace::Region { .. } => None,
            },
            Table::Dag => Some(decode::<DagRow>(words, *key)?.guest?.link),
            _ => None,
        };
        self.written.rows.iter().filter_map(link).any(|link| link >= self.links)
    }

    fn finish_commit(&mut self, now: u64) {
        if self.hangs || self.contents[self.active ^ 1].packets > 0 {
            return;
        }
        if let Some(rows) = self.committed.take() {
            self.copy_to_shadow(now, &rows);
            let shadow = &mut self.contents[self.active ^ 1];
            shadow.decoded.refresh(&shadow.words, &rows);
        }
    }

    /// The rows are there at once, and the card is busy for as long as it would take.
    fn copy_to_shadow(&mut self, now: u64, rows: &[RowKey]) {
        self.copied_at = now + LOOK_CYCLES + rows.len() as u64;
        let [first, second] = &mut self.contents;
        let (from, to) = if self.active == 0 { (first, second) } else { (second, first) };
        for key in rows {
            if let Some(at) = key.offset() {
                let range = at..at + key.table.row_words();
                to.words[range.clone()].copy_from_slice(&from.words[range]);
            }
        }
    }

    /// A row of the active bank; `None` where it is empty.
    pub(crate) fn row<R: RowCodec>(&self, key: RowKey) -> Option<R> {
        decode(&self.contents[self.active].words, key)
    }

    /// A packet begins with the active bank.
    #[inline]
    pub(crate) fn begin(&mut self) -> (Bank, u32) {
        let bank = &mut self.contents[self.active];
        bank.packets += 1;
        (self.active, bank.version)
    }

    /// A packet that began with `bank` is gone.
    #[inline]
    pub(crate) fn end(&mut self, now: u64, bank: Bank) {
        self.contents[bank].packets -= 1;
        if self.committed.is_some() && bank != self.active {
            self.finish_commit(now);
        }
    }

    /// Packets by bank.
    pub(crate) fn packets(&self) -> [u64; 2] {
        [self.contents[0].packets, self.contents[1].packets]
    }

    /// The rows of a bank.
    pub(crate) const fn rows(&self, bank: Bank) -> &Decoded {
        &self.contents[bank].decoded
    }

    /// The rows as a packet of `version` meets them in `bank`: fails where these are of another version.
    #[inline]
    pub(crate) fn rows_for(&self, bank: Bank, version: u32) -> Result<&Decoded, DropCause> {
        let contents = &self.contents[bank];
        if contents.version != version {
            return Err(DropCause::MixedVersions);
        }
        Ok(&contents.decoded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_tables::{ChainRow, RateLimiterRow, Steering};

    use super::*;

    /// At the first moment at which no row is copied.
    fn write<R: RowCodec>(banks: &mut Banks, row: u16, columns: &R) -> RowKey {
        let key = RowKey { table: R::TABLE, row };
        let mut words = vec![0; R::TABLE.row_words()];
        columns.encode(&mut words);
        let at = key.offset().expect("the table has the row");
        for (i, word) in words.into_iter().enumerate() {
            banks.write_shadow(banks.copied_at, at + i, word);
        }
        key
    }

    const CHAIN: ChainRow =
        ChainRow { first_instance: 4, instances: 2, steering: Steering::RoundRobin };

    #[test]
    fn rows_are_seen_after_the_commit_and_not_before() {
        let mut banks = Banks::default();
        let key = write(&mut banks, 7, &CHAIN);
        assert_eq!(banks.current().chains[7], None);
        assert_eq!(banks.commit(banks.copied_at, 1, false), Some(vec![key]));
        assert_eq!((banks.state(u64::MAX), banks.version(banks.active())), (CommitState::Idle, 1));
        assert_eq!(banks.current().chains[7], Some(CHAIN));
        assert_eq!(banks.words(false), banks.words(true));
    }

    #[test]
    fn any_other_version_is_refused_and_changes_nothing() {
        let mut banks = Banks::default();
        write(&mut banks, 7, &CHAIN);
        for version in [0, 2, u32::MAX] {
            assert_eq!(banks.commit(banks.copied_at, version, false), None);
            assert_eq!(banks.state(u64::MAX), CommitState::Refused);
        }
        assert_eq!(banks.version(banks.active()), 0);
        assert!(banks.commit(banks.copied_at, 1, false).is_some());
        assert_eq!(banks.state(u64::MAX), CommitState::Idle);
    }

    #[test]
    fn a_commit_is_busy_until_the_last_old_packet_is_gone() {
        let mut banks = Banks::default();
        let (old, version) = banks.begin();
        write(&mut banks, 7, &CHAIN);
        banks.commit(banks.copied_at, 1, false);
        assert_eq!((banks.state(u64::MAX), banks.draining()), (CommitState::Busy, Some(old)));
        let (new, _) = banks.begin();
        assert_eq!(banks.rows_for(old, version).expect("as it began").chains[7], None);
        assert_eq!(banks.rows_for(new, 1).expect("active").chains[7], Some(CHAIN));
        assert_eq!(banks.commit(banks.copied_at, 2, false), None, "one at a time");
        banks.end(banks.copied_at, new);
        assert_eq!(banks.state(u64::MAX), CommitState::Busy);
        banks.end(banks.copied_at, old);
        assert_ne!(banks.state(u64::MAX), CommitState::Busy);
        assert_eq!(banks.words(false), banks.words(true));
    }

    #[test]
    fn what_a_host_writes_during_a_commit_is_ignored() {
        let mut banks = Banks::default();
        let (old, version) = banks.begin();
        banks.commit(0, 1, false);
        write(&mut banks, 7, &CHAIN);
        assert!(banks.rows_for(old, version).is_ok());
        banks.end(0, old);
        assert_eq!(banks.state(0), CommitState::Busy, "rows are being copied");
        let at = RowKey { table: Table::Chain, row: 7 }.offset().expect("the table has the row");
        banks.write_shadow(banks.copied_at - 1, at, 1 << 31);
        assert_eq!(banks.commit(banks.copied_at, 2, false), Some(Vec::new()));
        assert_eq!(banks.current().chains[7], None);
        assert_eq!(banks.rows_for(old, version).err(), Some(DropCause::MixedVersions));
    }

    #[test]
    fn rows_are_copied_for_as_long_as_there_are_rows() {
        let mut banks = Banks::default();
        for row in 0..100 {
            write(&mut banks, row, &CHAIN);
        }
        banks.commit(1_000, 1, false);
        let end = 1_000 + LOOK_CYCLES + 100;
        assert_eq!(banks.state(end - 1), CommitState::Busy);
        assert!(banks.commit(end - 1, 2, false).is_none() && !banks.abort(end - 1));
        assert_eq!(banks.state(end), CommitState::Refused, "the commit in between");
        assert!(banks.abort(end));
        assert_eq!(banks.state(end + LOOK_CYCLES - 1), CommitState::Busy);
        assert_eq!(banks.state(end + LOOK_CYCLES), CommitState::Idle);
    }

    #[test]
    fn a_hanging_commit_stays_busy() {
        let mut banks = Banks::default();
        banks.commit(banks.copied_at, 1, true);
        let (bank, _) = banks.begin();
        banks.end(banks.copied_at, bank);
        banks.abort(banks.copied_at);
        assert_eq!(banks.state(u64::MAX), CommitState::Busy);
    }

    proptest! {
        #[test]
        fn both_banks_are_equal_after_a_commit_or_an_abort(
            rounds in prop::collection::vec(
                (prop::collection::vec((0_u16..1_024, any::<u32>()), 0..20), any::<bool>()),
                1..10,
            ),
        ) {
            let mut banks = Banks::default();
            let mut expected = vec![None; 1_024];
            let mut version = 0;
            for (rows, keep) in rounds {
                for &(row, rate_kbps) in &rows {
                    let columns = RateLimiterRow { rate_kbps, burst_bytes: 1, promised_kbps: 0, packet_bytes: 0, weight: 1 };
                    write(&mut banks, row, &columns);
                    if keep {
                        expected[usize::from(row)] = Some(columns);
                    }
                }
                if keep {
                    version += 1;
                    prop_assert!(banks.commit(banks.copied_at, version, false).is_some());
                } else {
                    banks.abort(banks.copied_at);
                }
                prop_assert_eq!(&banks.current().limiters, &expected);
                prop_assert_eq!(banks.words(false), banks.words(true));
            }
        }
    }
}
