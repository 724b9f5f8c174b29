//! Traces that reach from the client's call to the card, across threads and processes.
//!
//! The context arrives in the W3C header `traceparent` and is passed on as a [`Trace`]. Spans of the
//! steps behind a call have the target [`TARGET`] and level DEBUG, so that they cost nothing without an
//! exporter.
//!
//! | span | meaning | attributes |
//! |---|---|---|
//! | the method's full name | a call, until its reply is sent | `rpc.system`, `rpc.service`, `rpc.method`, `rpc.grpc.status_code`, `caller` |
//! | `snic.plan` | the controller handles an event | `snic.event` |
//! | `snic.intent` | a batch of the store becomes durable | `snic.writes` |
//! | `snic.reconfigure` | a region is loaded | `snic.card`, `snic.region`, `snic.hidden`, `snic.result` |
//! | `snic.state` | a region's wrapper saves, restores, clears or erases state | `snic.card`, `snic.region`, `snic.order`, `snic.result` |
//! | `snic.tables` | table rows are written, activated and read back | `snic.card`, `snic.words`, `snic.result` |
//! | `snic.tables.write`, `snic.tables.packets`, `snic.tables.read_back` | its parts: configurations and rows are written; packets of the old tables leave; the rows are read back | |
//! | `snic.load_role` | a card is closed for another role | `snic.card`, `snic.forced`, `snic.result` |
//! | `snic.reset` | a card is closed and reset | `snic.card`, `snic.forced`, `snic.result` |
//! | `snic.read_back` | a card's state is read back | `snic.card`, `snic.result` |
//! | `snic.xrt` | the XRT worker process does part of one of the above | `snic.accesses`, `snic.words`, `snic.bytes`, `process.pid` |
//!
//! All but the last and the parts of `snic.tables` have `snic.tenant` if the call concerns a tenant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, SpanContext, TraceContextExt as _, TraceState, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Target of spans that exist only for traces.
pub const TARGET: &str = "snic_trace";

/// Target of the spans of sampled calls. Other calls have another target, so that nothing is built for
/// the exporter.
pub const CALL: &str = "snic_server::traced";

/// Attribute: the tenant that a call concerns.
const TENANT: &str = "snic.tenant";

/// The header with the trace context.
const HEADER: &str = "traceparent";
/// The header in which systems add what only they understand.
const STATE: &str = "tracestate";
/// State that clients add where nobody has decided whether the trace is sampled.
pub const UNDECIDED_STATE: &str = "snic=undecided";
/// Position of its flags: `00-<32 digits>-<16 digits>-<flags>`.
const FLAGS: std::ops::Range<usize> = 53..55;

/// Calls without a context are sampled at one in this many; 0 without an exporter.
static ONE_IN: AtomicU32 = AtomicU32::new(0);
/// Calls without a context so far.
static UNDECIDED: AtomicU32 = AtomicU32::new(0);

/// Exports spans that have ended.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

pub(crate) fn switch_on(tracer: SdkTracer, one_in: u32) {
    // Set-up happens once; a second attempt fails before this is used.
    let _ = TRACER.set(tracer);
    ONE_IN.store(one_in.max(1), Ordering::Relaxed);
}

/// Whether traces are exported.
pub fn is_on() -> bool {
    ONE_IN.load(Ordering::Relaxed) > 0
}

/// Whether a call is sampled: as the sender of `traceparent` decided, or at the configured rate. The span
/// of a sampled call has the target [`CALL`].
pub fn is_sampled(headers: &http::HeaderMap) -> bool {
    let one_in = ONE_IN.load(Ordering::Relaxed);
    if one_in == 0 {
        return false;
    }
    sampled_flag(headers)
        .unwrap_or_else(|| UNDECIDED.fetch_add(1, Ordering::Relaxed).is_multiple_of(one_in))
}

/// Whether the sender has left the decision to this process.
fn is_undecided(headers: &http::HeaderMap) -> bool {
    let state = headers.get(STATE).and_then(|state| state.to_str().ok()).unwrap_or_default();
    state.split(',').any(|entry| entry.trim() == UNDECIDED_STATE)
}

/// The sampled flag of `traceparent`; `None` without a valid header, or where nobody has decided.
fn sampled_flag(headers: &http::HeaderMap) -> Option<bool> {
    if is_undecided(headers) {
        return None;
    }
    let flags = std::str::from_utf8(headers.get(HEADER)?.as_bytes().get(FLAGS)?).ok()?;
    Some(u8::from_str_radix(flags, 16).ok()? & 1 == 1)
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

/// Sets the parent of a sampled call's span from the call's headers, if they have one.
pub fn adopt(span: &Span, headers: &http::HeaderMap) {
    let mut context = TraceContextPropagator::new().extract(&Headers(headers));
    if is_undecided(headers) {
        // It was decided here, and all that follows goes by it.
        let sent = context.span().span_context().clone();
        let decided = SpanContext::new(
            sent.trace_id(),
            sent.span_id(),
            sent.trace_flags().with_sampled(true),
            true,
            TraceState::default(),
        );
        context = context.with_remote_span_context(decided);
    }
    // Without an exporter a span has no parent.
    let _ = span.set_parent(context);
}

/// The trace id of a call, as 32 hexadecimal digits: that of its span, or, if it is not sampled here,
/// that in its headers. Empty if there is none.
pub fn id(span: &Span, headers: &http::HeaderMap) -> String {
    let context = if is_traced(span) {
        span.context()
    } else if headers.contains_key(HEADER) {
        TraceContextPropagator::new().extract(&Headers(headers))
    } else {
        return String::new();
    };
    let trace = context.span().span_context().clone();
    if trace.is_valid() { trace.trace_id().to_string() } else { String::new() }
}

/// Whether a span is exported.
fn is_traced(span: &Span) -> bool {
    is_on() && span.metadata().is_some_and(|about| [CALL, TARGET].contains(&about.target()))
}

/// The trace context of a step. Cheap to clone; empty without an exporter.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    context: Option<Context>,
    tenant: Option<Arc<str>>,
}

impl Trace {
    /// The context of the current span.
    pub fn current() -> Self {
        Self::of(&Span::current())
    }

    /// The context of a span: steps made from it are its children.
    pub fn of(span: &Span) -> Self {
        Self { context: is_traced(span).then(|| span.context()), tenant: None }
    }

    /// Adds the tenant to the current span and to all steps.
    pub fn for_tenant(mut self, tenant: Option<&str>) -> Self {
        if let Some(tenant) = tenant.filter(|_| self.is_some()) {
            Span::current().set_attribute(TENANT, tenant.to_owned());
            self.tenant = Some(tenant.into());
        }
        self
    }

    /// Whether there is a context.
    pub const fn is_some(&self) -> bool {
        self.context.is_some()
    }

    /// The span of a step; `make` creates it without a parent.
    pub fn step(&self, make: impl FnOnce() -> Span) -> Span {
        let Some(context) = &self.context else { return Span::none() };
        let span = make();
        // It fails only for a span that is in use already.
        let _ = span.set_parent(context.clone());
        if let Some(tenant) = &self.tenant {
            span.set_attribute(TENANT, tenant.to_string());
        }
        span
    }
}

/// A span as a `traceparent` header, for another process that does part of it; `None` without an
/// exporter.
pub fn parent(span: &Span) -> Option<String> {
    let context = is_traced(span).then(|| span.context())?;
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut headers);
    headers.remove(HEADER)
}

/// A span that has ended, of another process or a thread that measures it itself.
#[derive(Debug)]
pub struct FinishedSpan {
    /// The parent, from [`parent`].
    pub parent: String,
    pub name: &'static str,
    /// Begin and end, by the wall clock.
    pub times: (SystemTime, SystemTime),
    pub numbers: Vec<(&'static str, u64)>,
}

/// Exports a span that has ended.
pub fn record(ended: FinishedSpan) {
    let Some(tracer) = TRACER.get() else { return };
    let headers = HashMap::from([(HEADER.to_owned(), ended.parent)]);
    let context = TraceContextPropagator::new().extract(&headers);
    let numbers = ended.numbers.into_iter();
    // All values are far below i64::MAX.
    let numbers: Vec<_> = numbers.map(|(key, value)| KeyValue::new(key, value as i64)).collect();
    let builder = tracer.span_builder(ended.name).with_start_time(ended.times.0);
    let mut span = builder.with_attributes(numbers).start_with_context(tracer, &context);
    span.end_with_timestamp(ended.times.1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_exporter_there_is_no_context() {
        let trace = Trace::current();
        assert!(!trace.is_some());
        let span = trace.step(|| panic!("no span is needed"));
        assert!(span.is_none());
        assert!(!is_sampled(&named("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")));
        assert_eq!(id(&span, &http::HeaderMap::new()), "");
    }

    #[test]
    fn the_sender_of_a_valid_header_decides() {
        let ids = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
        assert_eq!(sampled_flag(&named(&format!("{ids}-01"))), Some(true));
        assert_eq!(
            sampled_flag(&named(&format!("{ids}-03"))),
            Some(true),
            "other flags are ignored"
        );
        assert_eq!(sampled_flag(&named(&format!("{ids}-00"))), Some(false));
        for text in ["", "00-1-2-01", ids, "x"] {
            assert_eq!(sampled_flag(&named(text)), None, "{text}");
        }
        assert_eq!(sampled_flag(&http::HeaderMap::new()), None);
        for (state, decided) in
            [("snic=undecided", None), ("a=b, snic=undecided", None), ("a=b", Some(false))]
        {
            let mut undecided = named(&format!("{ids}-00"));
            undecided.insert(STATE, http::HeaderValue::from_static(state));
            assert_eq!(sampled_flag(&undecided), decided, "{state}");
        }
    }

    fn named(traceparent: &str) -> http::HeaderMap {
        let value = http::HeaderValue::from_str(traceparent).expect("text");
        http::HeaderMap::from_iter([(http::HeaderName::from_static(HEADER), value)])
    }
}
