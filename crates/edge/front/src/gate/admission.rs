//! Admission control: each call needs a place on its connection, and one among all calls.
//!
//! Places are shared fairly ([`crate::share`]): whoever holds its share is rejected at once with a time to
//! retry. Admitted calls wait for their turn ([`crate::turns`]), take the runtime's threads a step at a time
//! ([`crate::steps`]), and wait for the controller's thread, which shares its time fairly as well.

use std::sync::Arc;

use snic_api::error::ApiError;
use tokio::sync::OwnedSemaphorePermit;

use super::Peer;
use crate::access::{Row, Span};
use crate::error::overloaded;
use crate::identity::CallerIdentity;
use crate::settings::Limits;
use crate::share::{CallerFlow, CallerLevel, Permit, PermitPool};
use crate::steps::{FairFuture, FairScheduler};
use crate::turns::{HeldTurn, TurnQueue};

#[derive(Debug)]
pub(super) struct Admission {
    calls: PermitPool,
    streams: PermitPool,
    calls_per_connection_max: usize,
    turns: TurnQueue,
    steps: FairScheduler,
}

/// The places of an admitted call; given back on drop.
#[derive(Debug)]
pub(super) struct CallPermits {
    _connection: OwnedSemaphorePermit,
    _place: Permit,
}

/// Turn and steps of an admitted call.
#[derive(Debug)]
pub(super) struct AdmittedTurn {
    turns: TurnQueue,
    steps: FairScheduler,
    level: CallerLevel,
    flow: CallerFlow,
}

impl AdmittedTurn {
    /// Waits for the call's turn.
    pub async fn turn(&self) -> HeldTurn {
        self.turns.take(self.level, &self.flow).await
    }

    /// All that is done for the call, in steps.
    pub fn in_steps<F: Future>(&self, work: F) -> FairFuture<F> {
        self.steps.take(self.level, self.flow.clone(), work)
    }
}

impl Admission {
    /// Calls take their steps from these.
    pub fn new(limits: &Limits, steps: FairScheduler) -> Self {
        Self {
            calls: PermitPool::calls(limits.calls_max),
            streams: PermitPool::streams(limits.streams_max, limits.streams_per_caller_max),
            calls_per_connection_max: limits.calls_per_connection_max,
            turns: TurnQueue::new(limits.turns),
            steps,
        }
    }

    /// Gives a call its places; one that takes turns gets its line, too.
    pub fn admit(
        &self,
        row: Row,
        peer: &Peer,
        caller: Option<&CallerIdentity>,
    ) -> Result<(CallPermits, Option<AdmittedTurn>), ApiError> {
        let connection = Arc::clone(&peer.call_slots).try_acquire_owned().map_err(|_| {
            let limit = self.calls_per_connection_max;
            let text = format!(
                "too many calls on this connection (limit {limit}); end some, or try again later"
            );
            overloaded(text, limit)
        })?;
        let (level, flow) = match caller {
            None => (CallerLevel::Unidentified, peer.flow.clone()),
            Some(caller) if row.is_health() => (CallerLevel::of_health_of(caller), caller.into()),
            Some(caller) => (CallerLevel::of_identity(caller), CallerFlow::from(caller)),
        };
        let places = match row.span {
            Span::Short | Span::Upload => &self.calls,
            Span::Wait | Span::Stream | Span::Dialogue => &self.streams,
        };
        let place = places.enter(level, flow.clone())?;
        let (turns, steps) = (self.turns.clone(), self.steps.clone());
        let line = AdmittedTurn { turns, steps, level, flow };
        let permits = CallPermits { _connection: connection, _place: place };
        Ok((permits, (row.span == Span::Short).then_some(line)))
    }
}
