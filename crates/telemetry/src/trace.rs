//! Traces: one from the client's call to the card, over the threads in between.
//!
//! The context comes in the W3C header `traceparent` and travels as a [`Trace`]. Spans of the steps
//! behind a call have the target [`TARGET`], at the level of debugging, so that they cost nothing
//! while nobody exports them.
//!
//! | span | what it is | attributes |
//! |---|---|---|
//! | `rpc` | a call, until its answer is sent | `rpc.system`, `rpc.method`, `rpc.grpc.status_code` |
//! | `snic.plan` | the controller works out what an event leads to | `snic.event`, `snic.tenant` |
//! | `snic.intent` | a batch of the store becomes durable | `snic.writes` |
//! | `snic.reconfigure` | a region is loaded | `snic.card`, `snic.region`, `snic.hidden`, `snic.result` |
//! | `snic.tables` | rows are written, flipped and read back | `snic.card`, `snic.words`, `snic.result` |
//! | `snic.read_back` | a card is asked what it holds | `snic.card`, `snic.result` |

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The target of spans that are only for traces.
pub const TARGET: &str = "snic_trace";

/// Whether traces are exported.
static ON: AtomicBool = AtomicBool::new(false);

pub(crate) fn switch_on() {
    ON.store(true, Ordering::Relaxed);
}

/// Whether traces are exported.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

struct Headers<'a>(&'a http::HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// Makes a span a part of the trace that the headers of its call name, if they name one.
pub fn adopt(span: &Span, headers: &http::HeaderMap) {
    if is_on() {
        let context = TraceContextPropagator::new().extract(&Headers(headers));
        // Where nobody exports the span it has no parent, either.
        let _ = span.set_parent(context);
    }
}

/// The id of the trace that a call is of, as 32 hexadecimal digits: that of its span, or, where
/// nobody exports traces, the one that its headers name. Empty if it is of none.
pub fn id(span: &Span, headers: &http::HeaderMap) -> String {
    let context = if is_on() {
        span.context()
    } else {
        TraceContextPropagator::new().extract(&Headers(headers))
    };
    let trace = context.span().span_context().clone();
    if trace.is_valid() { trace.trace_id().to_string() } else { String::new() }
}

/// Which trace a step belongs to. Cheap to clone; nothing where nobody exports it.
#[derive(Debug, Clone, Default)]
pub struct Trace(Option<Context>);

impl Trace {
    /// That of the present span.
    pub fn current() -> Self {
        Self::of(&Span::current())
    }

    /// That of a span: steps of it are its children.
    pub fn of(span: &Span) -> Self {
        let context =
            || Some(span.context()).filter(|context| context.span().span_context().is_sampled());
        Self(if is_on() { context() } else { None })
    }

    /// Whether there is one.
    pub const fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// A step; `make` makes its span, without a parent.
    pub fn step(&self, make: impl FnOnce() -> Span) -> Span {
        let Some(context) = &self.0 else { return Span::none() };
        let span = make();
        // A span that was just made has not been looked at.
        let _ = span.set_parent(context.clone());
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_exporter_nothing_is_carried() {
        let trace = Trace::current();
        assert!(!trace.is_some());
        let span = trace.step(|| panic!("nobody wants it"));
        assert!(span.is_none());
        adopt(&span, &http::HeaderMap::new());
    }
}
