//! A reply's body that knows when the call has ended: then the room is given back and the span
//! closed, also where the caller went away in the middle.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{HeaderMap, Response};
use http_body::{Frame, SizeHint};
use snic_controller::Caller;
use snic_telemetry::UNREMARKABLE;
use snic_telemetry::metrics::instruments;
use snic_telemetry::trace;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::{Code, Status};
use tracing::field::Empty;

use super::admission::Permits;
use super::reply::code_in;

/// One call, from its headers to its end.
#[derive(Debug)]
pub(super) struct Call {
    pub span: tracing::Span,
    is_traced: bool,
    method: &'static str,
    /// Who calls, once that is known.
    pub caller: Option<Caller>,
    begun: Instant,
}

impl Call {
    /// A call of the method with this path. One that is traced has a span of its own kind: see
    /// [`trace::wants`].
    pub fn begin(path: &'static str, headers: &HeaderMap) -> Self {
        let is_traced = trace::wants(headers);
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
        Self { span, is_traced, method: full_name, caller: None, begun: Instant::now() }
    }

    fn end(&self, code: Option<Code>) {
        // Without a status the caller was gone before the end.
        let code = code.unwrap_or(Code::Cancelled);
        let kind = match &self.caller {
            None => "nobody",
            Some(Caller::Operator(_)) => "operator",
            Some(Caller::Tenant(_)) => "tenant",
            Some(Caller::Orchestrator(_)) => "orchestrator",
        };
        self.span.record("caller", kind);
        self.span.record("rpc.grpc.status_code", code as i32);
        let took = self.begun.elapsed();
        instruments().called(self.method, code as i32, took.as_secs_f64());
        let latency_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let _entered = self.span.enter();
        if self.is_traced || code != Code::Ok {
            tracing::info!(status = ?code, latency_us, "call ended");
        } else {
            tracing::info!(target: UNREMARKABLE, status = ?code, latency_us, "call ended");
        }
    }
}

/// The body: see the module.
#[derive(Debug)]
pub(super) struct Tracked {
    inner: Body,
    call: Call,
    code: Option<Code>,
    _permits: Option<Permits>,
}

impl Tracked {
    pub fn wrap(reply: Response<Body>, call: Call, permits: Option<Permits>) -> Response<Body> {
        let code = code_in(reply.headers());
        reply.map(|inner| Body::new(Self { inner, call, code, _permits: permits }))
    }
}

impl http_body::Body for Tracked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            self.code = code_in(trailers);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.call.end(self.code);
    }
}
