//! etcd as a value, for simulations: what it holds, its history, its leases, under virtual time.
//!
//! Compared with the real one by the tests of `store-etcd`: the same requests get the same answers and watches tell
//! the same, revisions included. There is one difference on purpose: a lease ends exactly when its time is over.
//! The real one takes up to a second longer.
//!
//! Mishaps on the way are an input of each request ([`NetworkFault`]); delays are the caller's, who decides when to
//! ask and when to hand the answer on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use crate::{
    Answer, Change, Compare, Failed, LeaseId, Operation, Record, Refusal, Request, Revision,
    Transaction, Watch, WatchUpdate,
};

/// The shortest time to live that etcd grants, in seconds, with its default election timeout of 1 s.
pub const LEASE_SECONDS_MIN: u32 = 2;

/// Mishap of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkFault {
    #[default]
    None,
    /// No member is reached, and the caller knows it.
    Unreachable,
    /// The request is lost on its way, and the caller does not know.
    RequestLost,
    /// The request is carried out and the answer is lost.
    AnswerLost,
}

/// One etcd. Time is a duration since any moment, and never goes back.
#[derive(Debug, Clone, Default)]
pub struct EtcdModel {
    /// Versions of each key in the order of their revisions; `None`: it was deleted.
    keys: BTreeMap<String, Vec<(Revision, Option<Record>)>>,
    /// The keys that changed, in order, behind `compacted`.
    log: VecDeque<(Revision, String)>,
    now: Revision,
    /// Revision up to which history is gone; 0 before the first compaction.
    compacted: Revision,
    leases: BTreeMap<LeaseId, Lease>,
    /// When each of them ends.
    ends: BTreeSet<(Duration, LeaseId)>,
    leases_granted: i64,
    clock: Duration,
    /// Why it writes nothing, if it does not.
    refusal: Option<Refusal>,
}

#[derive(Debug, Clone)]
struct Lease {
    seconds: u32,
    ends: Duration,
    keys: BTreeSet<String>,
}

impl EtcdModel {
    /// An empty one, whose revision is 1 like that of a new etcd.
    pub fn new() -> Self {
        Self { now: Revision(1), ..Self::default() }
    }

    /// Refuses what the real one refuses with an alarm or without permission, from now on or no longer: transactions that
    /// put something, and new leases. Without permission also those that delete. Reads, watches, signs of life and the
    /// ends of leases go on.
    pub const fn refuse_writes(&mut self, refusal: Option<Refusal>) {
        self.refusal = refusal;
    }

    /// Whether a request is refused now.
    fn refusal_of(&self, request: &Request) -> Option<Failed> {
        let why = self.refusal?;
        let takes_room = match request {
            Request::Commit(of) => {
                of.operations.iter().any(|one| one.is_put() || why != Refusal::NoSpace)
            }
            Request::Grant { .. } => why == Refusal::NoSpace,
            Request::Range { .. }
            | Request::KeepAlive(_)
            | Request::Revoke(_)
            | Request::Compact(_) => false,
        };
        takes_room.then(|| Failed::Refused { why, said: format!("etcdserver: {why}") })
    }

    /// Carries out a request at a time.
    ///
    /// # Errors
    ///
    /// As etcd: [`Failed::Invalid`], [`Failed::LeaseEnded`], [`Failed::Compacted`], and [`Failed::Refused`] while it
    /// [refuses writes](Self::refuse_writes).
    pub fn ask(&mut self, at: Duration, request: &Request) -> Result<Answer, Failed> {
        self.advance(at);
        request.check()?;
        if let Some(refused) = self.refusal_of(request) {
            return Err(refused);
        }
        match request {
            Request::Commit(transaction) => self.commit(transaction),
            Request::Range { prefix, at, from, limit } => {
                self.range(prefix, *at, from.as_deref(), *limit)
            }
            Request::Grant { seconds } => Ok(self.grant(*seconds)),
            Request::KeepAlive(id) => Ok(self.keep_alive(*id)),
            Request::Revoke(id) => {
                self.end_lease(*id);
                Ok(Answer::Ended(*id))
            }
            Request::Compact(revision) => self.compact(*revision),
        }
    }

    /// Carries out a request with which something may go wrong.
    ///
    /// # Errors
    ///
    /// As [`EtcdModel::ask`], and [`Failed::Unknown`] or [`Failed::Unreachable`] for the mishap.
    pub fn ask_with(
        &mut self,
        at: Duration,
        request: &Request,
        mishap: NetworkFault,
    ) -> Result<Answer, Failed> {
        match mishap {
            NetworkFault::None => self.ask(at, request),
            NetworkFault::Unreachable => Err(Failed::Unreachable("no member".to_owned())),
            NetworkFault::RequestLost => Err(Failed::Unknown("no answer in time".to_owned())),
            NetworkFault::AnswerLost => {
                // Whatever it was: the caller does not learn it.
                let _ = self.ask(at, request);
                Err(Failed::Unknown("no answer in time".to_owned()))
            }
        }
    }

    /// Next news of a watch: changes of at most `revisions_max` revisions, or a bookmark. The
    /// caller goes on with the revision behind [`WatchUpdate::until`]. `None`: nothing happened since.
    ///
    /// # Errors
    ///
    /// [`Failed::Compacted`]; [`Failed::Invalid`] for a watch from revision 0.
    pub fn watch(
        &mut self,
        at: Duration,
        watch: &Watch,
        revisions_max: usize,
    ) -> Result<Option<WatchUpdate>, Failed> {
        self.advance(at);
        watch.check()?;
        // A compaction may take deletions of its own revision with it.
        if watch.from.0.saturating_sub(1).max(1) < self.compacted.0 {
            return Err(Failed::Compacted(Revision(self.compacted.0 + 1)));
        }
        if watch.from > self.now {
            return Ok(None);
        }
        let (mut changes, mut until, mut revisions) = (Vec::new(), self.now, 0);
        let mut last = None;
        let begin = self.log.partition_point(|(revision, _)| *revision < watch.from);
        for (revision, key) in self.log.range(begin..) {
            if !key.starts_with(&watch.prefix) {
                continue;
            }
            if last != Some(*revision) {
                if revisions == revisions_max {
                    until = last.unwrap_or(until);
                    break;
                }
                revisions += 1;
                last = Some(*revision);
            }
            changes.extend(self.change(*revision, key));
        }
        Ok(Some(WatchUpdate { changes, until }))
    }

    /// The revision of what it holds now.
    pub const fn revision(&self) -> Revision {
        self.now
    }

    /// When the next lease ends, unless it is kept alive.
    pub fn next_end(&self) -> Option<Duration> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Another member leads from now on: it does not know how old leases are, so all of them start again.
    pub fn change_leader(&mut self, at: Duration) {
        self.advance(at);
        let ids: Vec<LeaseId> = self.leases.keys().copied().collect();
        ids.into_iter().for_each(|id| drop(self.keep_alive(id)));
    }

    /// Ends the leases whose time is over, the oldest first, each in a revision of its own.
    pub fn advance(&mut self, at: Duration) {
        self.clock = self.clock.max(at);
        while let Some((_, id)) = self.ends.first().filter(|(end, _)| *end <= self.clock) {
            self.end_lease(*id);
        }
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Answer, Failed> {
        if !transaction.compares.iter().all(|compare| self.holds(compare)) {
            return Ok(Answer::Refused(self.now));
        }
        let named = |operation: &Operation| match operation {
            Operation::Put { lease, .. } => *lease,
            Operation::Delete { .. } => None,
        };
        if transaction.operations.iter().filter_map(named).any(|id| !self.leases.contains_key(&id))
        {
            return Err(Failed::LeaseEnded);
        }
        let next = Revision(self.now.0 + 1);
        let mut is_changed = false;
        for operation in &transaction.operations {
            is_changed |= match operation {
                Operation::Put { key, value, lease } => self.put(next, key, value, *lease),
                Operation::Delete { key } => self.delete(next, key),
            };
        }
        if is_changed {
            self.now = next;
        }
        Ok(Answer::Committed(self.now))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let record = self.record(compare.key());
        match compare {
            Compare::CreatedAt(_, at) => record.map_or(Revision(0), |record| record.created) == *at,
            Compare::ChangedAt(_, at) => record.map_or(Revision(0), |record| record.changed) == *at,
        }
    }

    fn record(&self, key: &str) -> Option<&Record> {
        self.keys.get(key)?.last()?.1.as_ref()
    }

    fn put(&mut self, at: Revision, key: &str, value: &[u8], lease: Option<LeaseId>) -> bool {
        let before = self.record(key);
        let record = Record {
            key: key.to_owned(),
            value: value.to_vec(),
            created: before.map_or(at, |record| record.created),
            changed: at,
            version: before.map_or(0, |record| record.version) + 1,
            lease,
        };
        self.detach(key);
        if let Some(lease) = lease.and_then(|id| self.leases.get_mut(&id)) {
            lease.keys.insert(key.to_owned());
        }
        self.keys.entry(key.to_owned()).or_default().push((at, Some(record)));
        self.log.push_back((at, key.to_owned()));
        true
    }

    fn delete(&mut self, at: Revision, key: &str) -> bool {
        if self.record(key).is_none() {
            return false;
        }
        self.detach(key);
        if let Some(versions) = self.keys.get_mut(key) {
            versions.push((at, None));
        }
        self.log.push_back((at, key.to_owned()));
        true
    }

    fn detach(&mut self, key: &str) {
        let before = self.record(key).and_then(|record| record.lease);
        if let Some(lease) = before.and_then(|id| self.leases.get_mut(&id)) {
            lease.keys.remove(key);
        }
    }

    fn range(
        &self,
        prefix: &str,
        at: Option<Revision>,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Answer, Failed> {
        let at = at.unwrap_or(self.now);
        if at > self.now {
            return Err(Failed::Invalid(format!("revision {at} is not there yet")));
        }
        if at < self.compacted {
            return Err(Failed::Compacted(Revision(at.0 + 1)));
        }
        let from = from.map_or(prefix, |from| from.max(prefix)).to_owned();
        let mut found = self
            .keys
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter_map(|(_, versions)| {
                let last = versions.partition_point(|(revision, _)| *revision <= at);
                versions[..last].last()?.1.clone()
            });
        let records: Vec<Record> = found.by_ref().take(limit).collect();
        Ok(Answer::Range { records, more: found.next().is_some(), now: self.now })
    }

    fn grant(&mut self, seconds: u32) -> Answer {
        let seconds = seconds.max(LEASE_SECONDS_MIN);
        self.leases_granted += 1;
        let id = LeaseId(self.leases_granted);
        let ends = self.clock + Duration::from_secs(u64::from(seconds));
        self.leases.insert(id, Lease { seconds, ends, keys: BTreeSet::new() });
        self.ends.insert((ends, id));
        Answer::Granted(id, seconds)
    }

    fn keep_alive(&mut self, id: LeaseId) -> Answer {
        match self.leases.get_mut(&id) {
            Some(lease) => {
                self.ends.remove(&(lease.ends, id));
                lease.ends = self.clock + Duration::from_secs(u64::from(lease.seconds));
                self.ends.insert((lease.ends, id));
                Answer::Alive(id, lease.seconds)
            }
            None => Answer::Ended(id),
        }
    }

    /// The keys go in one revision, in their order.
    fn end_lease(&mut self, id: LeaseId) {
        let Some(lease) = self.leases.remove(&id) else { return };
        self.ends.remove(&(lease.ends, id));
        let next = Revision(self.now.0 + 1);
        let mut is_changed = false;
        for key in &lease.keys {
            is_changed |= self.delete(next, key);
        }
        if is_changed {
            self.now = next;
        }
    }

    fn compact(&mut self, revision: Revision) -> Result<Answer, Failed> {
        if revision > self.now {
            return Err(Failed::Invalid(format!("revision {revision} is not there yet")));
        }
        if revision <= self.compacted {
            return Err(Failed::Compacted(Revision(revision.0 + 1)));
        }
        self.compacted = revision;
        self.keys.retain(|_, versions| {
            let kept = versions.partition_point(|(at, _)| *at <= revision).saturating_sub(1);
            versions.drain(..kept);
            !matches!(&versions[..], [(at, None)] if *at <= revision)
        });
        let gone = self.log.partition_point(|(at, _)| *at <= revision);
        self.log.drain(..gone);
        Ok(Answer::Compacted)
    }

    fn change(&self, at: Revision, key: &str) -> Option<Change> {
        let versions = self.keys.get(key)?;
        let found = versions.binary_search_by_key(&at, |(revision, _)| *revision).ok()?;
        Some(match &versions[found].1 {
            Some(record) => Change::Put(record.clone()),
            None => Change::Deleted { key: key.to_owned(), at },
        })
    }
}

#[cfg(test)]
mod tests;
