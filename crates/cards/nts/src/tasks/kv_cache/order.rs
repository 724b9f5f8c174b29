//! What is known of reads and writes on their way, so that no old value is cached.
//!
//! The answer to a read may be older than a write that passed after the read. So an answer fills the
//! cache only if no write of its key passed between the read and the answer, and none was on its way
//! when the read passed. A write is on its way until its answer passes, or for the settling time: a
//! packet that takes longer than that to reach the server and come back is not expected.

use std::time::Duration;

use snic_domain::Timestamp;

use crate::aging::{AgingTable, KeyedHash, Lookup};
use crate::wire::Flow;

/// Requests on their way at once. One more read goes unnoticed; one more write stops filling.
const REQUESTS_MAX: usize = 4_096;

/// What names a request until its answer.
type RequestKey = (Flow, u16);

#[derive(Debug, Clone, Copy)]
enum Pending {
    /// A read of the key with this hash, when this many writes had passed.
    Read { key: u64, writes: u64 },
    /// A write.
    Write { key: u64 },
}

#[derive(Debug, Clone, Copy)]
struct Guard {
    /// Writes that have no answer yet.
    on_the_way: u32,
    /// Which write was the last.
    last: u64,
}

/// Reads and writes on their way.
#[derive(Debug)]
pub(super) struct Order {
    pending: AgingTable<RequestKey, Pending, 1>,
    guards: AgingTable<u64, Guard, 1>,
    /// Writes that have passed.
    writes: u64,
    /// Nothing is filled before this.
    blocked_until: Timestamp,
    settling: Duration,
}

impl Order {
    pub(super) fn new(settling: Duration, hash: KeyedHash) -> Self {
        Self {
            pending: AgingTable::new(REQUESTS_MAX, [settling], hash),
            guards: AgingTable::new(REQUESTS_MAX, [settling], hash),
            writes: 0,
            blocked_until: Timestamp::ZERO,
            settling,
        }
    }

    /// Nothing is filled for the settling time: any key may have been written.
    pub(super) fn block(&mut self, now: Timestamp) {
        self.blocked_until = now + self.settling;
    }

    fn guard(&self, key: u64, now: Timestamp) -> Option<Guard> {
        match self.guards.lookup(&key, now) {
            Lookup::Fresh(id) => Some(*self.guards.value(id)),
            Lookup::Expired(_) | Lookup::Absent => None,
        }
    }

    fn note(&mut self, request: RequestKey, pending: Pending, now: Timestamp) {
        match self.pending.lookup(&request, now) {
            Lookup::Fresh(id) | Lookup::Expired(id) => {
                self.pending.remove(id);
            }
            Lookup::Absent => {
                if let Some(id) = self.pending.expired(now) {
                    self.pending.remove(id);
                }
            }
        }
        self.pending.insert(request, pending, 0, now);
    }

    /// A read goes to the server.
    pub(super) fn read(&mut self, request: RequestKey, key: u64, now: Timestamp) {
        let is_quiet = self.guard(key, now).is_none_or(|guard| guard.on_the_way == 0);
        if is_quiet && now >= self.blocked_until {
            self.note(request, Pending::Read { key, writes: self.writes }, now);
        }
    }

    /// A write goes to the server.
    pub(super) fn write(
        &mut self,
        request: RequestKey,
        key: u64,
        is_answered: bool,
        now: Timestamp,
    ) {
        self.writes += 1;
        let last = self.writes;
        match self.guards.lookup(&key, now) {
            Lookup::Fresh(id) => {
                let guard = self.guards.value_mut(id);
                guard.on_the_way = guard.on_the_way.saturating_add(1);
                guard.last = last;
                self.guards.touch(id, 0, now);
            }
            found => {
                let stale = match found {
                    Lookup::Expired(id) => Some(id),
                    _ => self.guards.expired(now),
                };
                if let Some(id) = stale {
                    self.guards.remove(id);
                }
                if self.guards.insert(key, Guard { on_the_way: 1, last }, 0, now).is_none() {
                    self.block(now);
                }
            }
        }
        if is_answered {
            self.note(request, Pending::Write { key }, now);
        }
    }

    /// An answer comes from the server. Whether it may fill the cache with the key of this hash.
    pub(super) fn may_fill(
        &mut self,
        request: &RequestKey,
        answered: Option<u64>,
        now: Timestamp,
    ) -> bool {
        let Lookup::Fresh(id) = self.pending.lookup(request, now) else { return false };
        match self.pending.remove(id).1 {
            Pending::Write { key } => {
                if let Lookup::Fresh(id) = self.guards.lookup(&key, now) {
                    let guard = self.guards.value_mut(id);
                    guard.on_the_way = guard.on_the_way.saturating_sub(1);
                }
                false
            }
            Pending::Read { key, writes } => {
                let is_unwritten = self.guard(key, now).is_none_or(|guard| guard.last <= writes);
                answered == Some(key) && is_unwritten && now >= self.blocked_until
            }
        }
    }
}
