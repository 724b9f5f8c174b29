//! The ledger of one replica: counts calls, and has them stored.
//!
//! ```text
//!  every ten seconds: a round
//!     own record unknown ──► read it ─────────┐
//!     records unknown ──► read each once      ▼
//!     batch of up to 100 records ──► Commit ── Committed ──► next batch … look at the other replicas ──► the round is over
//!                           ▲  │
//!                           │  ├─ no answer ──► read the own record: ours? stored : sent again, the very same
//!                           │  └─ Refused ────► read it: ours? stored : given up; all is read again
//!                           └── failed for sure: sent again, the very same
//! ```
//!
//! Calls of a batch that is given up are pending again, so none is lost, and none is stored twice: a transaction compares the own record with what
//! it was before the first attempt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use snic_domain::TenantId;
use snic_etcd::{
    Answer, Compare, Failed, Operation, REQUEST_BYTES_MAX, Record, Request, Revision, Transaction,
};

use super::records::{REPLICAS, counting_key};
use super::{CallGap, CallKey, CallRecord, CountingRecord, DAY, DayCalls};
use crate::records::Versioned;

/// Seconds between rounds: calls of so long are lost with a replica that dies.
const ROUND_SECONDS: u64 = 10;
/// Seconds until a request that failed is sent again.
const RETRY_SECONDS: u64 = 2;
/// Seconds for which calls of tenants that nobody knows wait: a tenant may be so new that this replica has not heard of it.
const UNKNOWN_SECONDS: u64 = 10;
/// Most tenants whose calls wait so.
const UNKNOWN_MAX: usize = 65_536;
/// Most records of a transaction, besides the replica's own.
const BATCH_MAX: usize = 100;
/// Bytes of a transaction that its records may take.
const BATCH_BYTES_MAX: usize = REQUEST_BYTES_MAX / 2;
/// Rounds in which the record of another replica does not change until that one counts as lost.
const LOST_ROUNDS: u32 = 3;
/// Most replicas that are looked at.
const REPLICAS_MAX: usize = 1_000;

/// Calls of a tenant in an hour.
#[derive(Debug, Default)]
struct CallAccount {
    /// Record in etcd, as this replica knows it.
    stored: Option<Versioned<CallRecord>>,
    /// Revision of the record, 0 where there is none; `None`: it has to be read.
    revision: Option<Revision>,
    /// Calls that are not in it.
    pending: DayCalls,
}

/// Calls of a tenant that this replica has not heard of.
#[derive(Debug)]
struct UnknownTenant {
    since: u64,
    /// Minutes since 1970 with their calls.
    minutes: BTreeMap<u64, u64>,
}

/// A record of a transaction.
#[derive(Debug)]
struct BatchedRecord {
    key: CallKey,
    before: Revision,
    /// Calls that it adds.
    added: DayCalls,
    record: Versioned<CallRecord>,
}

/// A transaction that is under way.
#[derive(Debug)]
struct Batch {
    records: Vec<BatchedRecord>,
    own: Versioned<CountingRecord>,
    own_before: Revision,
    is_last: bool,
}

impl Batch {
    fn transaction(&self, own_key: &str) -> Transaction {
        let mut transaction = Transaction::default();
        let mut put = |key: String, before, value| {
            transaction.compares.push(Compare::ChangedAt(key.clone(), before));
            transaction.operations.push(Operation::Put { key, value, lease: None });
        };
        for BatchedRecord { key, before, record, .. } in &self.records {
            put(key.to_string(), *before, record.bytes());
        }
        put(own_key.to_owned(), self.own_before, self.own.bytes());
        transaction
    }
}

/// Writes all that was pending when it began.
#[derive(Debug)]
struct Round {
    /// Second in which it began.
    begun: u64,
    queue: VecDeque<CallKey>,
    is_written: bool,
    /// It began after the replica stopped: nothing is counted behind it.
    is_final: bool,
}

/// Request that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Own,
    Account(CallKey),
    Commit,
    /// The own record, after a transaction without an answer, or one that was refused.
    Outcome {
        was_refused: bool,
    },
    Others,
    Mark,
}

/// Calls that this replica has counted, and what it knows of etcd. One request is under way at a time.
#[derive(Debug)]
pub struct CallLedger {
    own_key: String,
    replica: String,
    /// Second in which this run began.
    started: u64,
    tenants: BTreeMap<TenantId, u64>,
    /// Whether the tenants have been read.
    has_tenants: bool,
    unknown: BTreeMap<TenantId, UnknownTenant>,
    accounts: BTreeMap<CallKey, CallAccount>,
    own: Versioned<CountingRecord>,
    own_revision: Option<Revision>,
    batch: Option<Batch>,
    /// Whether the outcome of the batch has to be read, and whether it was refused.
    open: Option<bool>,
    round: Option<Round>,
    /// Records of other replicas: revision, and rounds in which it was the same.
    others: BTreeMap<String, (Revision, u32)>,
    marks: Vec<Transaction>,
    asked: Option<Asked>,
    not_before: u64,
    next_round: u64,
    is_ending: bool,
    has_ended: bool,
}

impl CallLedger {
    /// The ledger of a replica with this address, which begins at this second; no other run of it has the same number.
    pub fn new(replica: &str, run: u64, now: u64) -> Self {
        let own = CountingRecord {
            run,
            write: 0,
            until: now,
            has_ended: false,
            lost: None,
            gaps: Vec::new(),
        };
        Self {
            own_key: counting_key(replica),
            replica: replica.to_owned(),
            started: now,
            tenants: BTreeMap::new(),
            has_tenants: false,
            unknown: BTreeMap::new(),
            accounts: BTreeMap::new(),
            own: Versioned::new(own),
            own_revision: None,
            batch: None,
            open: None,
            round: None,
            others: BTreeMap::new(),
            marks: Vec::new(),
            asked: None,
            not_before: 0,
            next_round: 0,
            is_ending: false,
            has_ended: false,
        }
    }

    /// Takes all tenants that exist, each with the second in which it was created.
    pub fn set_tenants(&mut self, now: u64, tenants: BTreeMap<TenantId, u64>) {
        self.tenants = tenants;
        self.has_tenants = true;
        self.unknown.values_mut().for_each(|unknown| unknown.since = now);
        let known: Vec<TenantId> =
            self.unknown.keys().filter(|of| self.tenants.contains_key(*of)).cloned().collect();
        known.iter().for_each(|tenant| self.settle(tenant));
    }

    /// A tenant was created in this second, or is gone.
    pub fn set_tenant(&mut self, tenant: TenantId, born: Option<u64>) {
        match born {
            Some(born) => {
                self.tenants.insert(tenant.clone(), born);
                self.settle(&tenant);
            }
            None => drop(self.tenants.remove(&tenant)),
        }
    }

    /// Counts calls. Those of a tenant that is not heard of for ten seconds count for nobody.
    pub fn count(&mut self, now: u64, calls: impl IntoIterator<Item = (TenantId, u64)>) {
        let minute = now / 60;
        for (tenant, calls) in calls {
            if let Some(born) = self.tenants.get(&tenant).copied() {
                self.add(tenant, born, (minute, calls));
            } else if self.unknown.contains_key(&tenant) || self.unknown.len() < UNKNOWN_MAX {
                let new = || UnknownTenant { since: now, minutes: BTreeMap::new() };
                let unknown = self.unknown.entry(tenant).or_insert_with(new);
                let sum = unknown.minutes.entry(minute).or_default();
                *sum = sum.saturating_add(calls);
            }
        }
        if self.has_tenants {
            let is_young = |of: &UnknownTenant| now.saturating_sub(of.since) <= UNKNOWN_SECONDS;
            self.unknown.retain(|_, unknown| is_young(unknown));
        }
    }

    fn add(&mut self, tenant: TenantId, born: u64, (minute, calls): (u64, u64)) {
        let key = self.key(tenant, born, minute);
        // No earlier run wrote in an hour that began later than this one. If one did after all, by another clock, that is found out.
        let is_new = minute / 60 * 3_600 > self.started;
        let new =
            || CallAccount { revision: is_new.then_some(Revision(0)), ..CallAccount::default() };
        let of_day = u16::try_from(minute % (DAY / 60)).unwrap_or_default();
        self.accounts.entry(key).or_insert_with(new).pending.add(of_day, calls);
    }

    fn key(&self, tenant: TenantId, born: u64, minute: u64) -> CallKey {
        let hour = u8::try_from(minute / 60 % 24).unwrap_or_default();
        let (day, replica) = (minute / (DAY / 60), self.replica.clone());
        CallKey { day, tenant, born, hour, replica }
    }

    /// A tenant is heard of: its calls count.
    fn settle(&mut self, tenant: &TenantId) {
        let Some(born) = self.tenants.get(tenant).copied() else { return };
        let Some(unknown) = self.unknown.remove(tenant) else { return };
        for counted in unknown.minutes {
            self.add(tenant.clone(), born, counted);
        }
    }

    /// The replica stops: what is counted until now is stored, and that it stopped in order.
    pub const fn end(&mut self) {
        self.is_ending = true;
    }

    /// Whether everything is stored after [`CallLedger::end`].
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Next request, if one is due and none is under way.
    pub fn next(&mut self, now: u64) -> Option<Request> {
        // A clock that went back delays nothing for long.
        self.not_before = self.not_before.min(now + RETRY_SECONDS);
        self.next_round = self.next_round.min(now + ROUND_SECONDS);
        if self.asked.is_some() || self.has_ended || now < self.not_before {
            return None;
        }
        let asked = self.due(now)?;
        let read = |prefix: &str, limit| Request::Range {
            prefix: prefix.to_owned(),
            at: None,
            from: None,
            limit,
        };
        let request = match &asked {
            Asked::Own | Asked::Outcome { .. } => read(&self.own_key, 1),
            Asked::Account(key) => read(&key.to_string(), 1),
            Asked::Others => read(REPLICAS, REPLICAS_MAX),
            Asked::Commit => Request::Commit(self.batch.as_ref()?.transaction(&self.own_key)),
            Asked::Mark => Request::Commit(self.marks.pop()?),
        };
        self.asked = Some(asked);
        Some(request)
    }

    fn due(&mut self, now: u64) -> Option<Asked> {
        if let Some(was_refused) = self.open {
            return Some(Asked::Outcome { was_refused });
        }
        if self.batch.is_some() {
            return Some(Asked::Commit);
        }
        if !self.marks.is_empty() {
            return Some(Asked::Mark);
        }
        if self.round.is_none() {
            if now < self.next_round && !self.is_ending {
                return None;
            }
            let is_dirty = |(_, account): &(&CallKey, &CallAccount)| !account.pending.is_empty();
            let dirty = self.accounts.iter().filter(is_dirty);
            let queue = dirty.map(|(key, _)| key.clone()).collect();
            self.round =
                Some(Round { begun: now, queue, is_written: false, is_final: self.is_ending });
        }
        if self.own_revision.is_none() {
            return Some(Asked::Own);
        }
        let round = self.round.as_ref()?;
        if round.is_written {
            return Some(Asked::Others);
        }
        let is_unread = |key: &&CallKey| {
            self.accounts.get(*key).is_some_and(|account| account.revision.is_none())
        };
        if let Some(unread) = round.queue.iter().take(BATCH_MAX).find(is_unread) {
            return Some(Asked::Account(unread.clone()));
        }
        self.begin_batch();
        Some(Asked::Commit)
    }

    /// Puts the next records of the round into a transaction.
    fn begin_batch(&mut self) {
        let (Some(round), Some(own_before)) = (&mut self.round, self.own_revision) else { return };
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            let Some(key) = round.queue.pop_front() else { break };
            let Some(account) = self.accounts.get_mut(&key) else { continue };
            let Some(before) = account.revision else { continue };
            let added = std::mem::take(&mut account.pending);
            let mut record =
                account.stored.clone().unwrap_or_else(|| Versioned::new(CallRecord::default()));
            let CallRecord { interval_minutes, calls } = record.value_mut();
            calls.add_all(&added, *interval_minutes);
            bytes += record.bytes().len();
            records.push(BatchedRecord { key, before, added, record });
        }
        let is_last = round.queue.is_empty();
        let mut own = self.own.clone();
        own.value_mut().write += 1;
        if is_last {
            own.value_mut().until = round.begun;
            own.value_mut().has_ended = round.is_final;
        }
        self.own.value_mut().write += 1;
        self.batch = Some(Batch { records, own, own_before, is_last });
    }

    /// Takes the answer to the last request. Gives what is wrong, if something is.
    pub fn answer(&mut self, now: u64, result: Result<Answer, Failed>) -> Option<String> {
        let asked = self.asked.take()?;
        match (asked, result) {
            (Asked::Own, Ok(Answer::Range { records, .. })) => {
                return self.take_own(now, of_key(&records, &self.own_key));
            }
            (Asked::Account(key), Ok(Answer::Range { records, .. })) => {
                return self.take_account(now, &key, of_key(&records, &key.to_string()));
            }
            (Asked::Outcome { was_refused }, Ok(Answer::Range { records, .. })) => {
                self.take_outcome(was_refused, of_key(&records, &self.own_key));
            }
            (Asked::Commit, Ok(Answer::Committed(at))) => self.stored(now, at),
            (Asked::Commit, Ok(Answer::Refused(_))) => self.open = Some(true),
            (Asked::Commit, Err(Failed::Unknown(_))) => self.open = Some(false),
            (Asked::Others, Ok(Answer::Range { records, .. })) => self.take_others(now, &records),
            // Another replica noticed the same, or the lost one is back.
            (Asked::Mark, Ok(_)) => {}
            (Asked::Mark, Err(_)) => self.not_before = now + RETRY_SECONDS,
            (_, Err(failed)) => return self.pause(now, failed.to_string()),
            (asked, Ok(_)) => {
                return self.pause(now, format!("an answer to something else: {asked:?}"));
            }
        }
        None
    }

    fn pause(&mut self, now: u64, why: String) -> Option<String> {
        self.not_before = now + RETRY_SECONDS;
        Some(why)
    }

    /// Takes what the own record says of earlier runs.
    fn take_own(&mut self, now: u64, found: Option<&Record>) -> Option<String> {
        let Some(record) = found else {
            self.own_revision = Some(Revision(0));
            return None;
        };
        let before = match Versioned::<CountingRecord>::parse(&record.key, &record.value) {
            Ok(before) => before,
            Err(error) => return self.pause(now, error.to_string()),
        };
        let of = before.value();
        let own = self.own.value_mut();
        own.gaps.clone_from(&of.gaps);
        // Where it is this run's, another replica took it for lost, and it is not.
        if of.run != own.run && !of.has_ended {
            let began = if own.write == 0 { self.started } else { now };
            own.add_gap(CallGap::new(of.until, of.lost.unwrap_or(began)));
        }
        self.own_revision = Some(record.changed);
        None
    }

    fn take_account(&mut self, now: u64, key: &CallKey, found: Option<&Record>) -> Option<String> {
        let read = found.map(|record| Versioned::<CallRecord>::parse(&record.key, &record.value));
        let stored = match read.transpose() {
            Ok(stored) => stored,
            Err(error) => return self.pause(now, error.to_string()),
        };
        if let Some(account) = self.accounts.get_mut(key) {
            account.stored = stored;
            account.revision = Some(found.map_or(Revision(0), |record| record.changed));
        }
        None
    }

    /// The own record says whether the batch was carried out.
    fn take_outcome(&mut self, was_refused: bool, found: Option<&Record>) {
        self.open = None;
        let Some(batch) = &self.batch else { return };
        let ours = batch.own.value();
        let is_ours = |record: &&Record| {
            let read = Versioned::<CountingRecord>::parse(&record.key, &record.value);
            read.is_ok_and(|of| (of.value().run, of.value().write) == (ours.run, ours.write))
        };
        match found.filter(is_ours) {
            Some(record) => self.stored(ours.until, record.changed),
            // Else it is sent again as it is, and carried out at most once.
            None if was_refused => self.give_up(),
            None => {}
        }
    }

    /// The batch is in etcd since a revision.
    fn stored(&mut self, now: u64, at: Revision) {
        let Some(batch) = self.batch.take() else { return };
        for BatchedRecord { key, record, .. } in batch.records {
            if let Some(account) = self.accounts.get_mut(&key) {
                account.stored = Some(record);
                account.revision = Some(at);
            }
        }
        self.has_ended = batch.own.value().has_ended;
        self.own = batch.own;
        self.own_revision = Some(at);
        if batch.is_last {
            if let Some(round) = &mut self.round {
                round.is_written = true;
            }
            let hour = (now / DAY, now % DAY / 3_600);
            let is_over = |key: &CallKey| (key.day, u64::from(key.hour)) < hour;
            self.accounts.retain(|key, account| !is_over(key) || !account.pending.is_empty());
        }
    }

    /// The batch was not carried out, and never will be: its calls are pending again, and everything is read again.
    fn give_up(&mut self) {
        let Some(batch) = self.batch.take() else { return };
        self.own_revision = None;
        for BatchedRecord { key, added, .. } in batch.records {
            let account = self.accounts.entry(key.clone()).or_default();
            account.pending.add_all(&added, 1);
            account.revision = None;
            if let Some(round) = &mut self.round {
                round.queue.push_back(key);
            }
        }
    }

    /// Looks at the other replicas: one that is running writes its record in each of its rounds.
    fn take_others(&mut self, now: u64, records: &[Record]) {
        self.round = None;
        self.next_round = now + ROUND_SECONDS;
        let there: BTreeSet<&str> = records.iter().map(|record| record.key.as_str()).collect();
        self.others.retain(|key, _| there.contains(key.as_str()));
        for record in records.iter().filter(|record| record.key != self.own_key) {
            let Ok(mut of) = Versioned::<CountingRecord>::parse(&record.key, &record.value) else {
                continue;
            };
            if of.value().has_ended || of.value().lost.is_some() {
                self.others.remove(&record.key);
                continue;
            }
            let rounds = match self.others.get(&record.key) {
                Some((before, rounds)) if *before == record.changed => rounds + 1,
                _ => 0,
            };
            self.others.insert(record.key.clone(), (record.changed, rounds));
            if rounds >= LOST_ROUNDS {
                of.value_mut().lost = Some(now);
                self.marks.push(mark(record, &of));
            }
        }
    }

    /// Calls that are counted and not known to be stored.
    #[cfg(test)]
    pub(super) fn pending(&self) -> u64 {
        let calls = |calls: &DayCalls| calls.iter().map(|(_, calls)| calls).sum::<u64>();
        let accounts = self.accounts.values().map(|account| calls(&account.pending));
        let batched = self.batch.iter().flat_map(|batch| &batch.records);
        accounts.chain(batched.map(|record| calls(&record.added))).sum()
    }
}

/// Transaction that says when a replica was noticed to be gone, unless it has written since.
fn mark(record: &Record, lost: &Versioned<CountingRecord>) -> Transaction {
    let key = record.key.clone();
    Transaction {
        compares: vec![Compare::ChangedAt(key.clone(), record.changed)],
        operations: vec![Operation::Put { key, value: lost.bytes(), lease: None }],
    }
}

fn of_key<'a>(records: &'a [Record], key: &str) -> Option<&'a Record> {
    records.iter().find(|record| record.key == key)
}
