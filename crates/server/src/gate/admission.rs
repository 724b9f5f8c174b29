//! Room for calls: on the connection, in all, and for what stays long, for each caller.
//!
//! Whoever finds no room is told so at once, with a time to try again: nothing queues.

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
    of_callers: Arc<Mutex<HashMap<Caller, usize>>>,
    limits: Limits,
}

/// Room taken; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permits {
    _connection: Option<OwnedSemaphorePermit>,
    _server: OwnedSemaphorePermit,
    _caller: Option<OfCaller>,
}

/// One stream of a caller.
#[derive(Debug)]
struct OfCaller {
    counts: Arc<Mutex<HashMap<Caller, usize>>>,
    caller: Caller,
}

impl Drop for OfCaller {
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

/// There is no room.
pub(crate) fn overloaded(what: &str, limit: usize) -> Failure {
    let text = format!("{what}: at most {limit} at once; end some, or try again later");
    Failure::new(ErrorReason::Overloaded, text).retry_after(RETRY_SOON).metadata("limit", limit)
}

impl Admission {
    pub fn new(limits: &Limits) -> Self {
        Self {
            calls: Arc::new(Semaphore::new(limits.calls_max)),
            streams: Arc::new(Semaphore::new(limits.streams_max)),
            of_callers: Arc::default(),
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
            Arc::clone(&peer.room).try_acquire_owned().map_err(|_| {
                overloaded("calls on this connection", self.limits.calls_per_connection_max)
            })
        };
        let connection = peer.map(of_connection).transpose()?;
        let (room, what, limit) = match row.span {
            Span::Short => (&self.calls, "calls to this server", self.limits.calls_max),
            Span::Wait | Span::Stream => {
                (&self.streams, "watches and waits at this server", self.limits.streams_max)
            }
        };
        let server = Arc::clone(room).try_acquire_owned().map_err(|_| overloaded(what, limit))?;
        let stream = caller.filter(|_| row.span != Span::Short);
        let of_caller = stream.map(|caller| self.stream_of(caller)).transpose()?;
        Ok(Permits { _connection: connection, _server: server, _caller: of_caller })
    }

    fn stream_of(&self, caller: &Caller) -> Result<OfCaller, Failure> {
        let limit = self.limits.streams_per_caller_max;
        let mut counts = self.of_callers.lock();
        let count = counts.entry(caller.clone()).or_default();
        if *count >= limit {
            return Err(overloaded("watches and waits of yours", limit));
        }
        *count += 1;
        Ok(OfCaller { counts: Arc::clone(&self.of_callers), caller: caller.clone() })
    }
}
