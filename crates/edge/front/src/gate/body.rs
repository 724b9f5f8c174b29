//! Wraps a reply's body to notice the end of the call: then the permits are released and the span is
//! closed, also if the caller disconnects midway.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use snic_domain::Caller;
use snic_telemetry::UNREMARKABLE;
use snic_telemetry::metrics::instruments;
use snic_telemetry::trace;
use tonic::Code;
use tonic::body::Body;
use tracing::field::Empty;

use super::admission::CallPermits;
use super::lines::FailureLines;
use super::passage::DecisionSlot;
use super::reply::code_in;
use crate::identity::{CallerIdentity, Party};

/// One call, from its headers to its end.
#[derive(Debug)]
pub(super) struct Call {
    pub span: tracing::Span,
    is_traced: bool,
    method: &'static str,
    /// The caller, once identified.
    pub identity: Option<CallerIdentity>,
    /// The operator that acts for the caller, if one does.
    pub agent: Option<CallerIdentity>,
    /// Decision about it.
    pub settled: DecisionSlot,
    lines: Arc<FailureLines>,
    begun: Instant,
}

impl Call {
    /// A call of the method with this path. One that is traced has a span of its own kind: see
    /// [`trace::is_sampled`].
    pub fn begin(path: &'static str, headers: &HeaderMap, lines: &Arc<FailureLines>) -> Self {
        let is_traced = trace::is_sampled(headers);
        let full_name = path.trim_start_matches('/');
        let span = if is_traced {
            let (service, method) = full_name.split_once('/').unwrap_or(("", full_name));
            tracing::info_span!(
                target: trace::CALL,
                "rpc",
                otel.name = full_name,
                otel.kind = "server",
                rpc.system = "grpc",
                rpc.service = service,
                rpc.method = method,
                caller = Empty,
                rpc.grpc.status_code = Empty,
            )
        } else {
            tracing::info_span!(
                "rpc",
                rpc.method = path,
                caller = Empty,
                rpc.grpc.status_code = Empty,
            )
        };
        if is_traced {
            trace::adopt(&span, headers);
        }
        Self {
            span,
            is_traced,
            method: full_name,
            identity: None,
            agent: None,
            settled: DecisionSlot::default(),
            lines: Arc::clone(lines),
            begun: Instant::now(),
        }
    }

    fn end(&self, code: Option<Code>) {
        // Without a status the caller disconnected before the end.
        let code = code.unwrap_or(Code::Cancelled);
        let kind = match self.identity.as_ref().map(CallerIdentity::party) {
            None => "nobody",
            Some(Party::Caller(Caller::Operator(_))) => "operator",
            Some(Party::Caller(Caller::Tenant(_))) => "tenant",
            Some(Party::Caller(Caller::Orchestrator(_))) => "orchestrator",
            Some(Party::Host(_)) => "host",
            Some(Party::Replica(_)) => "replica",
        };
        self.span.record("caller", kind);
        self.span.record("rpc.grpc.status_code", code as i32);
        let took = self.begun.elapsed();
        instruments().called(self.method, code as i32, took.as_secs_f64());
        let latency_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let _entered = self.span.enter();
        if code != Code::Ok {
            let allowed = self.lines.take(self.identity.clone(), Instant::now());
            if allowed.left_out > 0 {
                // Of all callers, so not in the span of this call.
                let calls = allowed.left_out;
                tracing::info!(parent: None, calls, "more calls failed and were not logged");
            }
            if allowed.this {
                tracing::info!(status = ?code, latency_us, "call ended");
            }
        } else if self.is_traced {
            tracing::info!(status = ?code, latency_us, "call ended");
        } else {
            // Thousands a second: they are counted in the metrics, and changes are in the audit log.
            tracing::debug!(target: UNREMARKABLE, status = ?code, latency_us, "call ended");
        }
    }
}

/// State that ends with the body; see the module.
#[derive(Debug)]
struct BodyState {
    call: Call,
    code: Option<Code>,
    _permits: Option<CallPermits>,
}

/// The reply, with its body tracked to the end.
pub(super) fn track(
    reply: Response<Body>,
    call: Call,
    permits: Option<CallPermits>,
) -> Response<Body> {
    let mut tracked = BodyState { call, code: code_in(reply.headers()), _permits: permits };
    reply.map(|body| {
        Body::new(body.inspect_frame(move |frame| {
            if let Some(trailers) = frame.trailers_ref() {
                tracked.end_with(trailers);
            }
        }))
    })
}

impl BodyState {
    // A method, so that the closure captures the whole struct.
    fn end_with(&mut self, trailers: &HeaderMap) {
        self.code = code_in(trailers);
    }
}

impl Drop for BodyState {
    fn drop(&mut self) {
        self.call.end(self.code);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn clients_and_the_server_leave_decisions_by_the_same_word() {
        assert_eq!(snic_api::trace_parent::UNDECIDED, snic_telemetry::trace::UNDECIDED_STATE);
    }
}
