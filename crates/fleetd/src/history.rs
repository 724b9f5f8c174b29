//! What was written to the fleet's records lately, as etcd tells it: whoever watches at this replica reads from here.
//!
//! ```text
//!            after                                 until
//!   gone ──────┤ change, change, … (whole revisions) ├── not told yet
//! ```
//!
//! Every replica has the same history with the same revisions, which are etcd's. So a watch goes on at any of them,
//! whoever leads. A replica that has just started reads what was written before from etcd, as far as it is kept there.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use snic_etcd::{Change, Record, Revision, Told};
use tokio::sync::watch;

/// Most changes that are kept, and most bytes of them.
const CHANGES_MAX: usize = 20_000;
const BYTES_MAX: usize = 32 << 20;
/// What a change takes beside key and value.
const CHANGE_OVERHEAD_BYTES: usize = 160;

/// A record that was written or deleted.
#[derive(Debug, PartialEq)]
pub(crate) struct RecordChange {
    pub key: String,
    pub revision: u64,
    /// As it is then; `None`: it was deleted.
    pub record: Option<Record>,
}

impl RecordChange {
    fn bytes(&self) -> usize {
        let value = self.record.as_ref().map_or(0, |record| record.key.len() + record.value.len());
        CHANGE_OVERHEAD_BYTES + self.key.len() + value
    }
}

/// The changes after a revision are not all kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld;

/// A piece of the history without a gap.
#[derive(Debug)]
pub(crate) struct Piece {
    /// All changes behind this revision are in it.
    after: u64,
    until: u64,
    changes: VecDeque<Arc<RecordChange>>,
    bytes: usize,
}

impl Piece {
    pub const fn behind(after: u64) -> Self {
        Self { after, until: after, changes: VecDeque::new(), bytes: 0 }
    }

    pub const fn until(&self) -> u64 {
        self.until
    }

    /// What a watch told, which comes in order.
    pub fn told(&mut self, told: &Told) {
        let number = |revision: Revision| u64::try_from(revision.0).unwrap_or_default();
        let of = |change: &Change| match change {
            Change::Put(record) => {
                (record.key.clone(), number(record.changed), Some(record.clone()))
            }
            Change::Deleted { key, at } => (key.clone(), number(*at), None),
        };
        let told_before = self.until;
        for (key, revision, record) in told.changes.iter().map(of).filter(|of| of.1 > told_before) {
            let change = RecordChange { key, revision, record };
            self.bytes += change.bytes();
            self.changes.push_back(Arc::new(change));
        }
        self.until = self.until.max(number(told.until));
        self.trim();
    }

    /// Forgets the oldest revisions, each as a whole.
    fn trim(&mut self) {
        while self.changes.len() > CHANGES_MAX || self.bytes > BYTES_MAX {
            let Some(first) = self.changes.front().map(|change| change.revision) else { return };
            while let Some(change) = self.changes.pop_front_if(|change| change.revision == first) {
                self.bytes -= change.bytes();
            }
            self.after = first;
        }
    }

    /// Puts what was before in front, if there is no gap.
    fn prepend(&mut self, earlier: Self) {
        if earlier.after >= self.after || earlier.until < self.after {
            return;
        }
        let after = self.after;
        let missing = earlier.changes.into_iter().filter(|change| change.revision <= after);
        for change in missing.rev() {
            self.bytes += change.bytes();
            self.changes.push_front(change);
        }
        self.after = earlier.after;
        self.trim();
    }
}

/// What a watch reads next.
#[derive(Debug)]
pub(crate) struct Page {
    pub changes: Vec<Arc<RecordChange>>,
    /// All wanted changes up to this revision are in it, or were before.
    pub until: u64,
}

/// The history that this replica has.
#[derive(Debug)]
pub(crate) struct History {
    piece: Mutex<Piece>,
    until: watch::Sender<u64>,
}

impl Default for History {
    fn default() -> Self {
        Self { piece: Mutex::new(Piece::behind(0)), until: watch::Sender::new(0) }
    }
}

impl History {
    /// It is told from this revision on.
    pub fn begin(&self, from: Revision) {
        let after = u64::try_from(from.0).unwrap_or_default().saturating_sub(1);
        let mut piece = self.piece.lock();
        if piece.until != after {
            *piece = Piece::behind(after);
        }
        drop(piece);
        self.until.send_replace(after);
    }

    /// What was told.
    pub fn told(&self, told: &Told) {
        let mut piece = self.piece.lock();
        piece.told(told);
        let until = piece.until;
        drop(piece);
        self.until.send_replace(until);
    }

    /// What was written before it began.
    pub fn earlier(&self, earlier: Piece) {
        self.piece.lock().prepend(earlier);
    }

    /// How far it was told, for whoever waits for more.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.until.subscribe()
    }

    /// Wanted changes after a revision: about `most`, and whole revisions.
    ///
    /// # Errors
    /// [`TooOld`]
    pub fn after(
        &self,
        revision: u64,
        most: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Page, TooOld> {
        let piece = self.piece.lock();
        if revision < piece.after {
            return Err(TooOld);
        }
        let from = piece.changes.partition_point(|change| change.revision <= revision);
        let mut changes: Vec<Arc<RecordChange>> = Vec::new();
        for change in piece.changes.range(from..) {
            let is_full = changes.len() >= most;
            if let Some(last) =
                changes.last().filter(|last| is_full && last.revision < change.revision)
            {
                let until = last.revision;
                return Ok(Page { changes, until });
            }
            if wanted(&change.key) {
                changes.push(Arc::clone(change));
            }
        }
        Ok(Page { changes, until: piece.until.max(revision) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, revision: i64) -> Change {
        let changed = Revision(revision);
        Change::Put(Record {
            key: key.to_owned(),
            value: vec![7; 10],
            created: changed,
            changed,
            version: 1,
            lease: None,
        })
    }

    fn told(changes: Vec<Change>, until: i64) -> Told {
        Told { changes, until: Revision(until) }
    }

    fn history(revisions: std::ops::RangeInclusive<i64>) -> History {
        let history = History::default();
        history.begin(Revision(*revisions.start()));
        for revision in revisions {
            history.told(&told(vec![put("a/1", revision), put("b/1", revision)], revision));
        }
        history
    }

    fn read(history: &History, after: u64, most: usize) -> Result<(Vec<u64>, u64), TooOld> {
        let page = history.after(after, most, |key| key.starts_with("a/"))?;
        Ok((page.changes.iter().map(|change| change.revision).collect(), page.until))
    }

    #[test]
    fn a_watch_reads_what_it_wants_in_order_and_is_told_where_it_is() {
        let history = history(10..=14);
        assert_eq!(read(&history, 9, 2), Ok((vec![10, 11], 11)));
        assert_eq!(read(&history, 11, 9), Ok((vec![12, 13, 14], 14)));
        assert_eq!(read(&history, 14, 9), Ok((vec![], 14)));
        assert_eq!(read(&history, 20, 9), Ok((vec![], 20)), "read at a replica that is ahead");
        assert_eq!(read(&history, 8, 9), Err(TooOld));
        history.told(&told(vec![], 30));
        assert_eq!(read(&history, 14, 9), Ok((vec![], 30)));
    }

    /// Otherwise who resumes behind the first would never see the others.
    #[test]
    fn changes_of_one_revision_are_read_together() {
        let history = History::default();
        history.begin(Revision(5));
        let together = vec![put("a/1", 5), put("a/2", 5), put("a/3", 5), put("a/4", 6)];
        history.told(&told(together, 6));
        let page = history.after(4, 1, |_| true).expect("it is kept");
        assert_eq!((page.changes.len(), page.until), (3, 5));
    }

    #[test]
    fn what_was_written_before_is_put_in_front_without_a_gap() {
        let history = history(10..=12);
        let mut gap = Piece::behind(3);
        gap.told(&told(vec![put("a/1", 8)], 8));
        history.earlier(gap);
        assert_eq!(read(&history, 8, 9), Err(TooOld));
        let mut earlier = Piece::behind(3);
        earlier.told(&told(vec![put("a/1", 8), put("a/1", 9), put("a/1", 10)], 10));
        history.earlier(earlier);
        assert_eq!(read(&history, 3, 9), Ok((vec![8, 9, 10, 11, 12], 12)));
        // The same watch goes on; another one begins later.
        history.begin(Revision(13));
        assert_eq!(read(&history, 3, 1), Ok((vec![8], 8)));
        history.begin(Revision(20));
        assert_eq!(read(&history, 12, 9), Err(TooOld));
    }

    #[test]
    fn the_oldest_revisions_are_forgotten() {
        let history = history(1..=CHANGES_MAX as i64);
        let piece = history.piece.lock();
        assert!(piece.changes.len() <= CHANGES_MAX && piece.after > 1);
        assert_eq!(piece.bytes, piece.changes.iter().map(|change| change.bytes()).sum::<usize>());
        let after = piece.after;
        drop(piece);
        assert_eq!(read(&history, after - 1, 1), Err(TooOld));
        assert_eq!(read(&history, after, 1), Ok((vec![after + 1], after + 1)));
    }
}
