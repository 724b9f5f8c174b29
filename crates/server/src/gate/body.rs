//! A reply's body that knows when the call has ended: then the room is given back and the span
//! closed, also where the caller went away in the middle.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::Response;
use http_body::{Frame, SizeHint};
use snic_controller::Caller;
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
    /// Who calls, once that is known.
    pub caller: Option<Caller>,
    begun: Instant,
}

impl Call {
    pub fn begin(method: &'static str) -> Self {
        let span = tracing::info_span!(
            "rpc",
            rpc.system = "grpc",
            rpc.method = method,
            caller = Empty,
            rpc.grpc.status_code = Empty,
        );
        Self { span, caller: None, begun: Instant::now() }
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
        let latency_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let _entered = self.span.enter();
        tracing::info!(status = ?code, latency_us, "call ended");
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
