//! Admission control: limits on calls per connection, in total, and, for long-lived calls, per caller.
//!
//! A call over a limit is rejected at once with a time to retry; nothing queues.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use snic_api::error::Failure;
use snic_api::v1::ErrorReason;
use snic_controller::Caller;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Peer;
use crate::access::{Row, Span};
use crate::error::RETRY_SOON;
use crate::settings::Limits;

#[derive(Debug)]
pub(super) struct Admission {
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    callers: Arc<Mutex<HashMap<Caller, usize>>>,
    limits: Limits,
}

/// The permits of an admitted call; released on drop.
#[derive(Debug)]
pub(super) struct Permits {
    _connection: Option<OwnedSemaphorePermit>,
    _server: OwnedSemaphorePermit,
    _caller: Option<CallerPermit>,
}

/// A permit for one long-lived call of a caller.
#[derive(Debug)]
struct CallerPermit {
    counts: Arc<Mutex<HashMap<Caller, usize>>>,
    caller: Caller,
}

impl Drop for CallerPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.caller);
            }
        }
    }
}

/// A limit is reached.
pub(crate) fn overloaded(what: &str, limit: usize) -> Failure {
    let text = format!("too many {what} (limit {limit}); end some, or try again later");
    Failure::new(ErrorReason::Overloaded, text).retry_after(RETRY_SOON).metadata("limit", limit)
}

impl Admission {
    pub fn new(limits: &Limits) -> Self {
        Self {
            calls: Arc::new(Semaphore::new(limits.calls_max)),
            streams: Arc::new(Semaphore::new(limits.streams_max)),
            callers: Arc::default(),
            limits: limits.clone(),
        }
    }

    pub fn admit(
        &self,
        row: Row,
        peer: Option<&Peer>,
        caller: Option<&Caller>,
    ) -> Result<Permits, Failure> {
        let of_connection = |peer: &Peer| {
            Arc::clone(&peer.call_slots).try_acquire_owned().map_err(|_| {
                overloaded("calls on this connection", self.limits.calls_per_connection_max)
            })
        };
        let connection = peer.map(of_connection).transpose()?;
        let (permits, what, limit) = match row.span {
            Span::Short => (&self.calls, "calls to this server", self.limits.calls_max),
            Span::Wait | Span::Stream => {
                (&self.streams, "watches and waits on this server", self.limits.streams_max)
            }
        };
        let server =
            Arc::clone(permits).try_acquire_owned().map_err(|_| overloaded(what, limit))?;
        let stream = caller.filter(|_| row.span != Span::Short);
        let of_caller = stream.map(|caller| self.stream_of(caller)).transpose()?;
        Ok(Permits { _connection: connection, _server: server, _caller: of_caller })
    }

    fn stream_of(&self, caller: &Caller) -> Result<CallerPermit, Failure> {
        let limit = self.limits.streams_per_caller_max;
        let mut counts = self.callers.lock();
        let count = counts.entry(caller.clone()).or_default();
        if *count >= limit {
            return Err(overloaded("watches and waits of this caller", limit));
        }
        *count += 1;
        Ok(CallerPermit { counts: Arc::clone(&self.callers), caller: caller.clone() })
    }
}
