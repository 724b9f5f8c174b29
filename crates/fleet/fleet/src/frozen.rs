//! A leader that etcd refuses to write for: its database is full, or it has no permission.
//!
//! ```text
//! refused ──► who waits is told ──► all records are read again ──► reads are answered, hosts are heard
//!                                                                 │      probes, with longer and longer pauses
//!                                                                 ▼
//!                                                              accepted: it leads on
//! ```
//!
//! A decision that the leader could not store is in its memory, mixed with what is stored. It must not be seen, and
//! cannot be taken out of there, so the leader reads its records again, as it did when it was elected. Until that is done reads
//! wait, some milliseconds; writes are refused at once. From then on nothing is decided: no DAG moves, no reservation ends, and
//! of what hosts report only that changes which is no record. So memory and records stay the same, and when etcd
//! accepts a probe the leader goes on as it is. What hosts reported meanwhile they report again, for their beats
//! show the difference.
//!
//! The leader keeps its election key: a new one could not be written. Signs of life of its lease take no room in etcd.

use std::time::Duration;

use snic_domain::Timestamp;
use snic_etcd::backoff::Backoff;
use snic_etcd::{Answer, Failed, Request};

use crate::fleet::{Fleet, FleetSettings};
use crate::frozen_state::FrozenState;
use crate::journal::{FleetStep, RefusedSteps};
use crate::leader::{LeaderState, PLACE_WAIT};
use crate::protocol::{
    Denied, FleetAsk, FleetCall, FleetEffect, FleetNotice, FleetReply, StoreRefusal,
};
use crate::standby::RecordCopy;

/// About the first and the longest pause between probes.
const PROBE: Duration = Duration::from_millis(500);
const PROBE_MAX: Duration = Duration::from_secs(5);
/// Pause before operators are reminded.
const REMIND: Duration = Duration::from_secs(60);

impl LeaderState {
    /// etcd refuses steps, or a probe. Whoever waits is told.
    pub fn freeze(
        &mut self,
        now: Timestamp,
        refused: RefusedSteps,
        effects: &mut Vec<FleetEffect>,
    ) {
        let RefusedSteps { why, said, is_open, steps } = refused;
        let mut refusal = StoreRefusal::new((why, said), now);
        if let Some(frozen) = &mut self.frozen {
            // A probe: nothing was decided meanwhile, so the memory is as the records are.
            frozen.probe_at = now + frozen.backoff.next_pause();
            if frozen.refusal.reason != refusal.reason {
                refusal.since = frozen.refusal.since;
                frozen.refusal = refusal.clone();
                frozen.told_at = now;
                effects.push(FleetEffect::Tell(FleetNotice::StoreRefuses(refusal)));
            }
            return;
        }
        let of_these = if is_open { Denied::Open } else { Denied::StoreRefuses(refusal.clone()) };
        self.deny(steps, &of_these, effects);
        let queue = self.fleet.journal.take_queue();
        self.deny(queue, &Denied::StoreRefuses(refusal.clone()), effects);
        for (_, call, _) in std::mem::take(&mut self.for_places) {
            let result = Err(Denied::StoreRefuses(refusal.clone()));
            self.release(vec![FleetEffect::Reply { call, result }], effects);
        }
        effects.push(FleetEffect::Tell(FleetNotice::StoreRefuses(refusal.clone())));
        self.frozen = Some(FrozenState {
            refusal,
            reading: Some(RecordCopy::new(false)),
            waiting: Vec::new(),
            // Where only this transaction was refused, such as one that is too large, the first probe ends it at once.
            probe_at: now,
            backoff: Backoff::new((PROBE, PROBE_MAX), self.fleet.journal.epoch().0.unsigned_abs()),
            told_at: now,
        });
    }

    /// Answers who waits for steps that are not stored. Replies of steps that write nothing tell what is in memory, which
    /// counts no more: their requests are sent again by whoever passes them on. Orders are not sent.
    fn deny(&mut self, steps: Vec<FleetStep>, denied: &Denied, effects: &mut Vec<FleetEffect>) {
        for step in steps {
            let denied = if step.has_writes() { denied.clone() } else { Denied::NotLeader };
            let replies = step.into_effects().into_iter().filter_map(|effect| match effect {
                FleetEffect::Reply { call, .. } => {
                    Some(FleetEffect::Reply { call, result: Err(denied.clone()) })
                }
                _ => None,
            });
            self.release(replies.collect(), effects);
        }
    }

    /// Whether its memory counts no more, and the records are being read.
    pub fn is_reading(&self) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| !frozen.memory_counts())
    }

    /// The request for the next page of records.
    pub fn next_page(&self) -> Option<Request> {
        self.frozen.as_ref()?.reading.as_ref()?.request(true)
    }

    /// A page of records, or why there is none.
    ///
    /// # Errors
    ///
    /// A record cannot be read.
    pub fn read_again(
        &mut self,
        (settings, now): (FleetSettings, Timestamp),
        result: Result<Answer, Failed>,
        effects: &mut Vec<FleetEffect>,
    ) -> Result<(), String> {
        let Some(frozen) = &mut self.frozen else { return Ok(()) };
        let Some(reading) = &mut frozen.reading else { return Ok(()) };
        // The watch goes on that it asks for: it tells what others write, and nobody does.
        let _ = reading.answered(now, result);
        if !reading.is_complete() {
            return Ok(());
        }
        let Some(read) = frozen.reading.take() else { return Ok(()) };
        let waiting = std::mem::take(&mut frozen.waiting);
        let leads = (self.fleet.journal.key().to_owned(), self.fleet.journal.epoch());
        let mut fleet = Fleet::restore((settings, now), leads, &read.into_records())?;
        fleet.resume_after(&self.fleet);
        self.fleet = fleet;
        for (call, ask) in waiting {
            self.carry_out(now, call, (ask, now + PLACE_WAIT));
        }
        self.tick_frozen(now, effects);
        Ok(())
    }

    /// Sends a probe, and reminds operators, when it is time.
    pub fn tick_frozen(&mut self, now: Timestamp, effects: &mut Vec<FleetEffect>) {
        let Some(frozen) = &mut self.frozen else { return };
        if now.since(frozen.told_at) >= REMIND {
            frozen.told_at = now;
            let refusal = frozen.refusal.clone();
            effects.push(FleetEffect::Tell(FleetNotice::StoreRefuses(refusal)));
        }
        match &mut frozen.reading {
            Some(reading) => drop(reading.tick(false)),
            None if frozen.probe_at <= now => self.fleet.journal.probe(now),
            None => {}
        }
    }

    /// etcd has accepted a probe: it leads on.
    pub fn thaw(&mut self, effects: &mut Vec<FleetEffect>) {
        if let Some(frozen) = self.frozen.take() {
            effects.push(FleetEffect::Tell(FleetNotice::StoreAccepts(frozen.refusal)));
        }
    }

    /// Keeps a read until the records are read again; gives back what need not wait.
    pub fn keep_for_records(&mut self, call: FleetCall, ask: FleetAsk) -> Option<FleetAsk> {
        let is_reading = self.is_reading();
        match &mut self.frozen {
            Some(frozen) if is_reading && ask.changes_nothing() => {
                frozen.waiting.push((call, ask));
                None
            }
            _ => Some(ask),
        }
    }

    /// The immediate answer to a request while etcd refuses writes. A write that was done before has its answer.
    pub fn refused_now(&self, ask: &FleetAsk) -> Option<Result<FleetReply, Denied>> {
        let frozen = self.frozen.as_ref().filter(|_| !ask.changes_nothing())?;
        let refused = || Err(Denied::StoreRefuses(frozen.refusal.clone()));
        let done = if frozen.memory_counts() { self.fleet.done_before(ask) } else { Ok(None) };
        Some(match done {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => refused(),
            Err(denied) => Err(denied),
        })
    }
}
