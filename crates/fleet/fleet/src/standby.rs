//! All records, for a replica that leads next: read page by page, then kept up to date by a watch.
//!
//! ```text
//! Reading ── last page ──► Warm ── told, told, … ──► elected: the last transaction is read; is it in the copy? begin
//!    ▲                       │
//!    └── the history is gone ┘
//! ```
//!
//! Every transaction of a leader writes the record of the last transaction, and a watch tells all changes of a revision
//! at once. So a copy that has this record as etcd has it is complete, and nobody changes it: whoever led before is
//! fenced off.

use std::collections::BTreeMap;

use snic_domain::Timestamp;
use snic_etcd::{Answer, Change, Failed, Record, Request, Revision, Watch, WatchUpdate};

use crate::protocol::StoreRefusal;
use crate::records::{LAST_TRANSACTION, PREFIX};

/// Records that are read at once.
const PAGE: usize = 1_000;
/// Ticks for which a replica that was elected waits for its watch to catch up, before it reads everything.
const CATCH_UP_TICKS: u32 = 2;

/// Longest pause of a replica that etcd refuses to read for, as a power of two of ticks.
const REFUSED_TICKS_LOG2_MAX: u32 = 5;

/// Time that it waits before it asks again.
#[derive(Debug)]
pub(crate) struct Pause {
    ticks: u32,
    /// Refusals in a row.
    refusals: u32,
    refusal: Option<StoreRefusal>,
}

impl Pause {
    const fn of_ticks(ticks: u32) -> Self {
        Self { ticks, refusals: 0, refusal: None }
    }

    const fn is_over(&self) -> bool {
        self.ticks == 0
    }

    const fn tick(&mut self) {
        self.ticks = self.ticks.saturating_sub(1);
    }

    /// A tick, or longer and longer while etcd refuses.
    fn failed(&mut self, now: Timestamp, failed: &Failed) {
        let Some(why) = failed.refusal() else {
            *self = Self::of_ticks(1);
            return;
        };
        let since = self.refusal.as_ref().map_or(now, |refusal| refusal.since);
        self.refusal = Some(StoreRefusal::new(why, since));
        self.refusals = (self.refusals + 1).min(REFUSED_TICKS_LOG2_MAX);
        self.ticks = 1 << self.refusals;
    }
}

/// Copy of the records on a replica.
#[derive(Debug)]
pub(crate) enum RecordCopy {
    /// All records, page by page, as of one revision.
    Reading {
        records: Vec<Record>,
        at: Option<Revision>,
        /// Until the next page is asked for.
        pause: Pause,
    },
    /// All records up to a revision.
    Warm {
        records: BTreeMap<String, Record>,
        until: Revision,
        /// When the last transaction was written that is to be in it; once the replica is elected.
        wanted: Option<Revision>,
        ticks: u32,
        /// Until that is asked for.
        pause: Pause,
    },
}

/// Result of an answer.
#[derive(Debug)]
pub(crate) enum FollowOutcome {
    /// More is to come.
    On,
    /// All records were read: this is to be watched from now on.
    Read(Watch),
}

impl RecordCopy {
    /// Nothing yet; begins with the next tick, or at once.
    pub const fn new(waits: bool) -> Self {
        let pause = Pause::of_ticks(if waits { 1 } else { 0 });
        Self::Reading { records: Vec::new(), at: None, pause }
    }

    /// Why etcd refuses to be read, if it does.
    pub const fn refusal(&self) -> Option<&StoreRefusal> {
        match self {
            Self::Reading { pause, .. } | Self::Warm { pause, .. } => pause.refusal.as_ref(),
        }
    }

    /// Time passed. Returns whether it starts over: what was asked before does not count then.
    pub fn tick(&mut self, is_elected: bool) -> bool {
        match self {
            Self::Reading { pause, .. } => pause.tick(),
            Self::Warm { ticks, pause, .. } => {
                pause.tick();
                *ticks += u32::from(is_elected);
                if *ticks > CATCH_UP_TICKS {
                    *self = Self::new(false);
                    return true;
                }
            }
        }
        false
    }

    /// The replica was elected: only what was written before counts from now on.
    pub fn elected(self) -> Self {
        match self {
            Self::Reading { .. } => Self::new(false),
            Self::Warm { records, until, .. } => {
                let pause = Pause::of_ticks(0);
                Self::Warm { records, until, wanted: None, ticks: 0, pause }
            }
        }
    }

    /// Next request to etcd.
    pub fn request(&self, is_elected: bool) -> Option<Request> {
        let prefix = |prefix: &str| prefix.to_owned();
        match self {
            Self::Reading { pause, .. } if !pause.is_over() => None,
            Self::Reading { records, at, .. } => {
                // The smallest key behind the last one.
                let from = records.last().map(|record| format!("{}\0", record.key));
                Some(Request::Range { prefix: prefix(PREFIX), at: *at, from, limit: PAGE })
            }
            Self::Warm { wanted: None, pause, .. } if is_elected && pause.is_over() => {
                let (at, from) = (None, None);
                Some(Request::Range { prefix: prefix(LAST_TRANSACTION), at, from, limit: 1 })
            }
            Self::Warm { .. } => None,
        }
    }

    /// An answer of etcd to that.
    pub fn answered(&mut self, now: Timestamp, result: Result<Answer, Failed>) -> FollowOutcome {
        match (self, result) {
            (Self::Warm { wanted, pause, .. }, Ok(Answer::Range { records, .. })) => {
                *pause = Pause::of_ticks(0);
                *wanted = Some(records.first().map_or(Revision(0), |record| record.changed));
            }
            (this @ Self::Reading { .. }, Ok(Answer::Range { records: page, more, now })) => {
                let Self::Reading { records, at, pause } = this else { return FollowOutcome::On };
                *pause = Pause::of_ticks(0);
                let until = *at.get_or_insert(now);
                records.extend(page);
                if !more {
                    let all = std::mem::take(records).into_iter();
                    let records = all.map(|record| (record.key.clone(), record)).collect();
                    let wanted = Some(Revision(0));
                    let pause = Pause::of_ticks(0);
                    *this = Self::Warm { records, until, wanted, ticks: 0, pause };
                    let from = Revision(until.0 + 1);
                    return FollowOutcome::Read(Watch { prefix: PREFIX.to_owned(), from });
                }
            }
            (Self::Reading { records, at, pause }, Err(Failed::Compacted(_))) => {
                records.clear();
                (*at, *pause) = (None, Pause::of_ticks(1));
            }
            (Self::Reading { pause, .. } | Self::Warm { pause, .. }, Err(failed)) => {
                pause.failed(now, &failed);
            }
            (Self::Reading { pause, .. } | Self::Warm { pause, .. }, Ok(_)) => {
                *pause = Pause::of_ticks(1);
            }
        }
        FollowOutcome::On
    }

    /// Takes news of the watch, or why it gives none. Returns whether it starts over, as [`Self::tick`] does.
    pub fn apply_update(&mut self, told: Result<WatchUpdate, Failed>) -> bool {
        let Self::Warm { records, until, .. } = self else { return false };
        match told {
            Ok(told) if told.until > *until => {
                *until = told.until;
                for change in told.changes {
                    match change {
                        Change::Put(record) => drop(records.insert(record.key.clone(), record)),
                        Change::Deleted { key, .. } => drop(records.remove(&key)),
                    }
                }
            }
            Err(Failed::Compacted(_) | Failed::Invalid(_)) => {
                *self = Self::new(true);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Whether no record is missing, for a replica that was elected.
    pub fn is_complete(&self) -> bool {
        let Self::Warm { records, wanted: Some(wanted), .. } = self else { return false };
        let last = records.get(LAST_TRANSACTION).map_or(Revision(0), |record| record.changed);
        last >= *wanted
    }

    pub fn into_records(self) -> Vec<Record> {
        match self {
            Self::Reading { records, .. } => records,
            Self::Warm { records, .. } => records.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, changed: i64) -> Record {
        let (created, changed) = (Revision(1), Revision(changed));
        Record { key: key.to_owned(), value: Vec::new(), created, changed, version: 1, lease: None }
    }

    fn read(following: &mut RecordCopy, records: Vec<Record>, now: i64) -> FollowOutcome {
        let now = Revision(now);
        following.answered(Timestamp::ZERO, Ok(Answer::Range { records, more: false, now }))
    }

    fn apply_update(following: &mut RecordCopy, changed: i64) -> bool {
        let changes = vec![Change::Put(record(LAST_TRANSACTION, changed))];
        following.apply_update(Ok(WatchUpdate { changes, until: Revision(changed) }))
    }

    fn warm() -> RecordCopy {
        let mut following = RecordCopy::new(false);
        let followed = read(&mut following, vec![record(LAST_TRANSACTION, 7)], 9);
        assert!(matches!(followed, FollowOutcome::Read(Watch { from: Revision(10), .. })));
        following.elected()
    }

    /// A copy counts once it has the last transaction, whether that was told before it was asked for or later.
    #[test]
    fn a_copy_is_complete_with_the_last_transaction() {
        for late in [false, true] {
            let mut following = warm();
            assert!(!following.is_complete(), "nobody has asked for the last transaction");
            assert!(late || !apply_update(&mut following, 12));
            read(&mut following, vec![record(LAST_TRANSACTION, 12)], 12);
            assert_eq!(following.is_complete(), !late);
            assert!(!late || !apply_update(&mut following, 12));
            assert!(following.is_complete());
            assert_eq!(following.into_records().len(), 1);
        }
    }

    /// A watch that is too slow, or whose history is gone, is not waited for; and what is on its way to be answered is
    /// not taken for the first page.
    #[test]
    fn a_copy_that_does_not_catch_up_is_read_anew() {
        let mut following = warm();
        read(&mut following, vec![record(LAST_TRANSACTION, 12)], 12);
        let ticks: Vec<bool> = (0..=CATCH_UP_TICKS).map(|_| following.tick(true)).collect();
        assert_eq!(ticks, [false, false, true], "what was asked before does not count");
        let asked = following.request(true);
        assert!(
            matches!(asked, Some(Request::Range { prefix, limit: PAGE, .. }) if prefix == PREFIX)
        );
        let mut following = warm();
        assert!(following.apply_update(Err(Failed::Compacted(Revision(20)))), "nor here");
        assert_eq!(following.request(true), None, "with the next tick");
        assert!(!following.tick(true));
        assert!(following.request(true).is_some());
    }

    /// Without permission to read, few requests are made, and it is known why.
    #[test]
    fn a_replica_that_may_not_read_asks_less_and_less_often() {
        let mut following = RecordCopy::new(false);
        let mut requests = 0;
        for _ in 0..600 {
            following.tick(false);
            if following.request(false).is_some() {
                requests += 1;
                let said = "etcdserver: permission denied".to_owned();
                let failed = Failed::Refused { why: snic_etcd::Refusal::NotPermitted, said };
                following.answered(Timestamp::ZERO, Err(failed));
            }
        }
        assert!((15..30).contains(&requests), "{requests} requests in a minute of ticks");
        assert_eq!(following.refusal().expect("refused").reason, "NOT_PERMITTED");
        while following.request(false).is_none() {
            following.tick(false);
        }
        read(&mut following, vec![], 9);
        assert_eq!(following.refusal(), None);
    }

    /// News of a watch of an earlier time is older than the copy.
    #[test]
    fn what_is_told_late_changes_nothing() {
        let mut following = warm();
        let gone = Change::Deleted { key: LAST_TRANSACTION.to_owned(), at: Revision(8) };
        following.apply_update(Ok(WatchUpdate { changes: vec![gone], until: Revision(8) }));
        read(&mut following, vec![record(LAST_TRANSACTION, 7)], 9);
        assert!(following.is_complete());
    }
}
