//! The gate: one layer around all services that identifies, authorizes and limits every call.
//!
//! ```text
//!  request ─► method known? ─► identity ─► access ─► places ─► deadline ─► message ─► turn ─► service (asks policies)
//!  reply   ◄─ span closed, permits released ◄─ error details completed ◄─────────────────────┘
//! ```
//!
//! A call that takes a turn is carried out in steps, fair among callers (`steps.rs`).
//!
//! It is one layer because the order matters and each step needs the result of the one before: a caller
//! without an identity takes no permit, and a caller without access learns nothing about limits.

mod acting;
mod admission;
mod arrival;
mod audited;
mod body;
mod deadline;
mod lines;
mod passage;
mod passed;
mod reply;
mod standing;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response};
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use snic_audit::AuditLog;
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};
use tracing::Instrument as _;

use crate::access::{Access, Methods, Row, Span};
use crate::authorization::{ACCESS_TABLE, AccessDecision, Authorization, is_within};
use crate::call_counts::CallCounts;
use crate::error::{denied, shutting_down};
use crate::identity::CallerIdentity;
use crate::listen::Peer;
use crate::settings::{FrontSettings, Limits, WAIT_MAX};
use crate::steps::FairScheduler;
use acting::{ActingCaller, acting};
use admission::{Admission, AdmittedTurn, CallPermits};
use audited::{CallOrigin, PendingEntry};
use body::{Call, track};
pub use deadline::{Deadline, exceeded as out_of_time};
use lines::FailureLines;
use passage::DecisionSlot;
pub use passage::{CallAuthorizer, OwnCaller, caller, passage};
pub use passed::{PassedCall, PassedCalls, never_passed_on};
pub use reply::of_transport;

/// The layer; see the module.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    methods: Methods,
    limits: Limits,
    admission: Admission,
    audit: Option<AuditLog>,
    authorization: Authorization,
    lines: Arc<FailureLines>,
    calls: Option<CallCounts>,
    stopping: watch::Receiver<bool>,
}

impl Gate {
    /// Calls take their steps from these.
    pub fn new(
        settings: &FrontSettings,
        steps: FairScheduler,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let admission = Admission::new(&settings.limits, steps);
        Self(Arc::new(Rules {
            methods: settings.methods,
            limits: settings.limits.clone(),
            admission,
            audit: settings.audit.clone(),
            authorization: settings.authorization.clone(),
            lines: Arc::default(),
            calls: settings.calls.clone(),
            stopping,
        }))
    }
}

impl<S> Layer<S> for Gate {
    type Service = GatedService<S>;

    fn layer(&self, inner: S) -> GatedService<S> {
        GatedService { rules: Arc::clone(&self.0), inner }
    }
}

/// A service behind the gate.
#[derive(Debug, Clone)]
pub(crate) struct GatedService<S> {
    rules: Arc<Rules>,
    inner: S,
}

/// A call that may proceed.
struct AdmittedCall {
    row: Row,
    permits: CallPermits,
    /// Turn and steps of a call that takes them.
    line: Option<Arc<AdmittedTurn>>,
    /// Passage of a stream that policies decide about.
    stream: Option<CallAuthorizer>,
}

impl Rules {
    /// The caller; `None` where the method needs no identity and the connection has none.
    fn identity(
        &self,
        row: Row,
        request: &Request<Body>,
    ) -> Result<Option<CallerIdentity>, ApiError> {
        let found = peer(request)?.identity(request.headers());
        match found {
            Ok(identity) => Ok(Some(identity)),
            Err(_) if row.access == Access::Open => Ok(None),
            Err(error) => Err(ApiError::new(ErrorReason::IdentityMissing, error)),
        }
    }

    /// Begins the audit entry of a call that changes something.
    fn audit(
        &self,
        row: Row,
        request: Request<Body>,
        call: &Call,
    ) -> (Option<PendingEntry>, Request<Body>) {
        let Some(log) = self.audit.as_ref().filter(|_| row.changes()) else {
            return (None, request);
        };
        let from = peer(&request).map_or_else(|_| String::new(), |peer| peer.place.to_string());
        let connected = call.agent.as_ref().or(call.identity.as_ref());
        let proven = connected.zip(peer(&request).ok());
        let proven = proven.map(|(identity, peer)| peer.proves(identity));
        let (head, body) = request.into_parts();
        let trace_id = snic_telemetry::trace::id(&call.span, &head.headers);
        let origin = CallOrigin { peer: from, is_proven: proven, trace_id };
        let (pending, body) = PendingEntry::begin(log, row.path, call, origin, body);
        (Some(pending), Request::from_parts(head, body))
    }

    fn pass(
        &self,
        row: Row,
        request: &mut Request<Body>,
        call: &mut Call,
    ) -> Result<AdmittedCall, Status> {
        let identity = self.identity(row, request)?;
        call.identity.clone_from(&identity);
        let caller = identity.map(|identity| acting(identity, request.headers())).transpose()?;
        let (identity, agent) = match caller {
            Some(ActingCaller { identity, agent }) => (Some(identity), agent),
            None => (None, None),
        };
        call.identity.clone_from(&identity);
        call.agent.clone_from(&agent);
        admit_kind(row, identity.as_ref(), &call.settled)?;
        if *self.stopping.borrow() && row.access != Access::Open {
            return Err(shutting_down().into());
        }
        let peer = peer(request)?;
        let (permits, line) = self.admission.admit(row, peer, identity.as_ref())?;
        let line = line.map(Arc::new);
        let requested = deadline::requested(request.headers()).map_err(Status::from)?;
        let limit = match row.span {
            Span::Short | Span::Upload => {
                requested.unwrap_or(self.limits.deadline).min(self.limits.deadline_max)
            }
            Span::Wait | Span::Stream | Span::Dialogue => {
                requested.unwrap_or(WAIT_MAX).min(WAIT_MAX)
            }
        };
        let deadline = Deadline::after(limit);
        if let (Some(calls), Some(identity)) = (&self.calls, &identity) {
            calls.count(row, identity);
        }
        let passage = identity.map(|identity| {
            CallAuthorizer::new(identity, row, self.authorization.clone(), call.settled.clone())
                .by(agent)
        });
        if let Some(passage) = &passage {
            request.extensions_mut().insert(passage.clone());
        }
        request.extensions_mut().insert(deadline);
        let stream = passage.filter(|_| row.is_decided() && row.span == Span::Stream);
        Ok(AdmittedCall { row, permits, line, stream })
    }
}

impl<S> Service<Request<Body>> for GatedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The routes are always ready; limits are checked in `call`, where a call can be rejected.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let row = self.rules.methods.find(request.uri().path());
        let path = row.map_or("unknown", |row| row.path);
        let mut call = Call::begin(path, request.headers(), &self.rules.lines);
        let Some(row) = row else {
            let text = format!("unknown method {:.200}", request.uri().path());
            let reply = reply::of_status(Status::unimplemented(text));
            return Box::pin(std::future::ready(Ok(track(reply, call, None))));
        };
        let passed = self.rules.pass(row, &mut request, &mut call);
        let (pending, request) = self.rules.audit(row, request, &call);
        let span = call.span.clone();
        let passed = match passed {
            Ok(passed) => passed,
            Err(status) => {
                let rejected = async move {
                    if let Some(pending) = &pending {
                        pending.capture(request.into_body()).await;
                    }
                    let reply = reply::of_status(status);
                    if let Some(pending) = pending {
                        pending.end(&reply);
                    }
                    Ok(track(reply, call, None))
                };
                return Box::pin(rejected.instrument(span));
            }
        };
        let request = match row.span {
            // It has no end.
            Span::Dialogue => request,
            _ => request.map(|body| arrival::in_time(body, &self.rules.limits)),
        };
        let inner = self.inner.clone();
        let limits = self.rules.limits.message_bytes_max;
        let line = passed.line.clone();
        let work = async move {
            let reply = run(inner, request, passed.row, passed.line, limits).await;
            let reply = reply::complete(reply, limits);
            if let Some(pending) = pending {
                pending.end(&reply);
            }
            let reply = match passed.stream {
                Some(passage) => reply.map(|body| standing::while_allowed(body, passage)),
                None => reply,
            };
            Ok(track(reply, call, Some(passed.permits)))
        }
        .instrument(span);
        match line {
            Some(line) => Box::pin(line.in_steps(work)),
            None => Box::pin(work),
        }
    }
}

/// Whether this kind of caller could ever call the method.
fn admit_kind(
    row: Row,
    identity: Option<&CallerIdentity>,
    settled: &DecisionSlot,
) -> Result<(), ApiError> {
    if identity.is_none_or(|identity| is_within(row, identity)) {
        return Ok(());
    }
    let policies = vec![ACCESS_TABLE.to_owned()];
    settled.set(AccessDecision { allowed: false, policies }, Vec::new(), false);
    Err(match row.access {
        Access::Orchestrator => denied(row.path, "orchestrators and operators"),
        Access::Anyone => denied(row.path, "tenants and operators"),
        Access::Host => denied(row.path, "hosts of the fleet"),
        Access::Replica => denied(row.path, "replicas of the fleet's service"),
        Access::Open | Access::Identified | Access::Operator => denied(row.path, "operators"),
    })
}

/// Runs the service; calls end at their deadline, except those that may take as long as they like.
async fn run<S>(
    mut inner: S,
    request: Request<Body>,
    row: Row,
    line: Option<Arc<AdmittedTurn>>,
    message_bytes_max: usize,
) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let deadline = request.extensions().get::<Deadline>().copied();
    let begun = Instant::now();
    let reply = async {
        let Some(line) = line else { return inner.call(request).await };
        let (head, body) = request.into_parts();
        let request = Request::from_parts(head, arrival::arrived(body, message_bytes_max).await);
        let _turn = line.turn().await;
        inner.call(request).await
    };
    let has_end = matches!(row.span, Span::Short | Span::Upload);
    let result = match deadline.filter(|_| has_end) {
        None => Ok(reply.await),
        Some(deadline) => tokio::time::timeout_at(deadline.0.into(), reply).await,
    };
    match result {
        Ok(Ok(reply)) => reply,
        Err(_) => reply::of_status(deadline::exceeded(begun.elapsed()).into()),
    }
}

/// The other end of a request's connection.
fn peer(request: &Request<Body>) -> Result<&Peer, ApiError> {
    request.extensions().get().ok_or_else(|| ApiError::internal("no connection behind the gate"))
}
