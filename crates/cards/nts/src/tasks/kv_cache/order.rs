//! Reads and writes on their way, so that no old value is cached.
//!
//! The answer to a read may be older than a write that passed after the read. So an answer fills the
//! cache only if no write of its key passed between the read and the answer, and none was on its way
//! when the read passed. A write is on its way until its answer passes; one that asks for no answer, for the
//! settling time; one whose answer does not come, for ten times as long ([`travel_max`]).
//!
//! Clients choose the numbers of their requests and may use one again at once. Then an answer may be to the
//! earlier request: a read counts as old as the first one with its number, and a write as not answered.

use std::time::Duration;

use snic_domain::Timestamp;

use super::expiry::Confirmation;
use crate::aging::{AgingTable, KeyedHash, Lookup};
use crate::wire::Flow;

/// Longest time that an answer is waited for. Until it comes nothing is filled, so this can be more careful than
/// the settling time is.
pub(super) fn travel_max(settling: Duration) -> Duration {
    10 * settling
}

/// Requests on their way at once, and keys that are being written.
const REQUESTS_MAX: usize = 4_096;

/// Classes of requests: reads, writes, and what was answered, whose answer may come again.
const READ: usize = 0;
const ANSWERED: usize = 1;
const WRITE: usize = 2;

/// Classes of keys: with writes that wait for answers, and without.
const QUIET: usize = 0;
const WAITING: usize = 1;

/// Name of a request until its answer.
pub(super) type RequestKey = (Flow, u16);

#[derive(Debug, Clone, Copy)]
enum Pending {
    /// A read of the key with this hash.
    Read { key: u64 },
    /// A write of a key, the `number`th of all; with nothing where it is of all keys.
    Write { key: Option<u64>, number: u64, confirmation: Option<Confirmation> },
    /// It was answered, or it is not known what its answer says.
    Answered,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    pending: Pending,
    /// Number of writes that had passed when a request with this number passed first.
    writes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Guard {
    /// Writes that have no answer yet.
    on_the_way: u32,
    /// Number of the last write.
    last: u64,
    /// Until when one that is not answered may be on its way.
    busy_until: Timestamp,
}

/// Content of an answer.
#[derive(Debug, Default)]
pub(super) struct AnswerContent {
    /// It may fill the cache.
    pub(super) may_fill: bool,
    /// The write that it confirms.
    pub(super) confirmed: Option<Confirmation>,
}

/// Reads and writes on their way.
#[derive(Debug)]
pub(super) struct Order {
    pending: AgingTable<RequestKey, Request, 3>,
    guards: AgingTable<u64, Guard, 2>,
    /// The guard of all keys together.
    all: Guard,
    /// Until when writes of all keys that have no answer yet may be on their way.
    all_until: Timestamp,
    /// Writes that have passed.
    writes: u64,
    /// Requests were forgotten that passed when there were this many writes, the last one at that time.
    forgotten: (u64, Timestamp),
    settling: Duration,
}

impl Order {
    pub(super) fn new(settling: Duration, hash: KeyedHash) -> Self {
        let travel = travel_max(settling);
        Self {
            pending: AgingTable::new(REQUESTS_MAX, [settling, settling, travel], hash),
            guards: AgingTable::new(REQUESTS_MAX, [settling, travel], hash),
            all: Guard::default(),
            all_until: Timestamp::ZERO,
            writes: 0,
            forgotten: (u64::MAX, Timestamp::ZERO),
            settling,
        }
    }

    /// Any key may have been written, by a request that is not answered: nothing is filled for the settling
    /// time, nor by answers to what was read before.
    pub(super) fn block(&mut self, now: Timestamp) {
        self.writes += 1;
        self.all.last = self.writes;
        self.all.busy_until = self.all.busy_until.max(now + self.settling);
    }

    fn guard(&self, key: u64, now: Timestamp) -> Guard {
        match self.guards.lookup(&key, now) {
            Lookup::Fresh(id) => *self.guards.value(id),
            Lookup::Expired(_) | Lookup::Absent => Guard::default(),
        }
    }

    fn is_quiet(&self, key: u64, now: Timestamp) -> bool {
        let guard = self.guard(key, now);
        let is_all_quiet = self.all.on_the_way == 0 || now >= self.all_until;
        guard.on_the_way == 0 && now >= guard.busy_until.max(self.all.busy_until) && is_all_quiet
    }

    /// Whether a request with this number may still be answered.
    fn is_known(&self, request: &RequestKey, now: Timestamp) -> bool {
        matches!(self.pending.lookup(request, now), Lookup::Fresh(_))
    }

    fn note(&mut self, request: RequestKey, pending: Pending, class: usize, now: Timestamp) {
        let mut writes = self.writes;
        match self.pending.lookup(&request, now) {
            Lookup::Fresh(id) => writes = writes.min(self.pending.remove(id).1.writes),
            Lookup::Expired(id) => drop(self.pending.remove(id)),
            Lookup::Absent => self.make_room(now),
        }
        let (forgotten, at) = self.forgotten;
        if now < at + self.settling {
            writes = writes.min(forgotten);
        }
        self.pending.insert(request, Request { pending, writes }, class, now);
    }

    /// Forgets a request where there is no room for another one. It may be answered yet: the next reads count
    /// as old as it is.
    fn make_room(&mut self, now: Timestamp) {
        if let Some(id) = self.pending.expired(now) {
            self.pending.remove(id);
        } else if self.pending.is_full() {
            let oldest = |class| self.pending.oldest(class);
            let Some(id) = oldest(ANSWERED).or_else(|| oldest(READ)).or_else(|| oldest(WRITE))
            else {
                return;
            };
            let (_, Request { writes, .. }) = self.pending.remove(id);
            let (before, at) = self.forgotten;
            let is_recent = now < at + self.settling;
            self.forgotten = (if is_recent { writes.min(before) } else { writes }, now);
        }
    }

    /// A read goes to the server.
    pub(super) fn read(&mut self, request: RequestKey, key: u64, now: Timestamp) {
        match self.is_quiet(key, now) {
            true => self.note(request, Pending::Read { key }, READ, now),
            false => self.other(request, now),
        }
    }

    /// Another request goes to the server: what answers it is not an answer to a later one of this number.
    pub(super) fn other(&mut self, request: RequestKey, now: Timestamp) {
        self.note(request, Pending::Answered, ANSWERED, now);
    }

    /// A write of a key goes to the server; with its number where an answer to it alone will come.
    pub(super) fn write(
        &mut self,
        request: Option<RequestKey>,
        key: u64,
        confirmation: Option<Confirmation>,
        now: Timestamp,
    ) {
        let is_alone = self.is_quiet(key, now);
        self.writes += 1;
        let number = self.writes;
        let counted = request.filter(|request| !self.is_known(request, now));
        let mut guard = self.guard(key, now);
        guard.last = number;
        match counted {
            Some(_) => guard.on_the_way = guard.on_the_way.saturating_add(1),
            None => guard.busy_until = guard.busy_until.max(now + self.settling),
        }
        self.set_guard(key, guard, now);
        let confirmation = confirmation.filter(|_| is_alone);
        match (counted, request) {
            (Some(request), _) => {
                let pending = Pending::Write { key: Some(key), number, confirmation };
                self.note(request, pending, WRITE, now);
            }
            (None, Some(request)) => self.other(request, now),
            (None, None) => {}
        }
    }

    /// A write of all keys goes to the server.
    pub(super) fn write_all(&mut self, request: Option<RequestKey>, now: Timestamp) {
        self.block(now);
        let Some(request) = request else { return };
        if self.is_known(&request, now) {
            self.other(request, now);
            return;
        }
        self.all.on_the_way = self.all.on_the_way.saturating_add(1);
        self.all_until = now + travel_max(self.settling);
        let pending = Pending::Write { key: None, number: self.writes, confirmation: None };
        self.note(request, pending, WRITE, now);
    }

    fn set_guard(&mut self, key: u64, guard: Guard, now: Timestamp) {
        let class = if guard.on_the_way > 0 { WAITING } else { QUIET };
        match self.guards.lookup(&key, now) {
            Lookup::Fresh(id) => {
                *self.guards.value_mut(id) = guard;
                self.guards.touch(id, class, now);
                return;
            }
            Lookup::Expired(id) => drop(self.guards.remove(id)),
            Lookup::Absent => {}
        }
        let spare = self.guards.expired(now);
        if let Some(id) = spare {
            self.guards.remove(id);
        } else if self.guards.is_full()
            && let Some(id) = self.guards.oldest(QUIET).or(self.guards.oldest(WAITING))
        {
            // What held for one key holds for all.
            let (_, forgotten) = self.guards.remove(id);
            self.all.last = self.all.last.max(forgotten.last);
            let waits =
                if forgotten.on_the_way > 0 { now + travel_max(self.settling) } else { now };
            let until = forgotten.busy_until.max(waits);
            self.all.busy_until = self.all.busy_until.max(until);
        }
        self.guards.insert(key, guard, class, now);
    }

    /// An answer comes from the server: with the hash of the key whose value it has, and whether it says that
    /// something was done.
    pub(super) fn answer(
        &mut self,
        request: &RequestKey,
        answered: Option<u64>,
        is_success: bool,
        now: Timestamp,
    ) -> AnswerContent {
        let mut result = AnswerContent::default();
        let Lookup::Fresh(id) = self.pending.lookup(request, now) else { return result };
        let Request { pending, writes } = *self.pending.value(id);
        self.pending.value_mut(id).pending = Pending::Answered;
        self.pending.touch(id, ANSWERED, now);
        match pending {
            Pending::Answered => {}
            Pending::Read { key } => {
                let last = self.guard(key, now).last.max(self.all.last);
                result.may_fill = answered == Some(key) && last <= writes;
            }
            Pending::Write { key: None, .. } => {
                self.all.on_the_way = self.all.on_the_way.saturating_sub(1);
            }
            Pending::Write { key: Some(key), number, confirmation } => {
                let mut guard = self.guard(key, now);
                guard.on_the_way = guard.on_the_way.saturating_sub(1);
                let is_last = guard.last == number && self.all.last < number;
                result.confirmed = confirmation.filter(|_| is_success && is_last);
                if guard.last > 0 {
                    self.set_guard(key, guard, now);
                }
            }
        }
        result
    }
}
