//! Traces: one from the client's call to the card, over the threads in between.
//!
//! The context comes in the W3C header `traceparent` and travels as a [`Trace`]. Spans of the steps
//! behind a call have the target [`TARGET`], at the level of debugging, so that they cost nothing
//! while nobody exports them.
//!
//! | span | what it is | attributes |
//! |---|---|---|
//! | the method's full name | a call, until its answer is sent | `rpc.system`, `rpc.service`, `rpc.method`, `rpc.grpc.status_code`, `caller` |
//! | `snic.plan` | the controller works out what an event leads to | `snic.event` |
//! | `snic.intent` | a batch of the store becomes durable | `snic.writes` |
//! | `snic.reconfigure` | a region is loaded | `snic.card`, `snic.region`, `snic.hidden`, `snic.result` |
//! | `snic.state` | a region's wrapper saves, restores, clears or erases state | `snic.card`, `snic.region`, `snic.order`, `snic.result` |
//! | `snic.tables` | rows are written, flipped and read back | `snic.card`, `snic.words`, `snic.result` |
//! | `snic.load_role` | a card is closed for another role | `snic.card`, `snic.forced`, `snic.result` |
//! | `snic.read_back` | a card is asked what it holds | `snic.card`, `snic.result` |
//! | `snic.xrt` | the process that calls XRT works on one of the three above | `snic.accesses`, `snic.words`, `snic.bytes`, `process.pid` |
//!
//! All spans of a call that is for a tenant have `snic.tenant`, but for the last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The target of spans that are only for traces.
pub const TARGET: &str = "snic_trace";

/// The target of the spans of calls that are traced. Those of other calls have another one, so that
/// nothing is built for traces where nothing of it is exported.
pub const CALL: &str = "snic_server::traced";

/// The attribute with the tenant that a call is for.
const TENANT: &str = "snic.tenant";

/// The header that says which trace a call is of.
const HEADER: &str = "traceparent";
/// Where its flags are: `00-<32 digits>-<16 digits>-<flags>`.
const FLAGS: std::ops::Range<usize> = 53..55;

/// Of calls without a trace one in so many is traced; 0 where nobody exports traces.
static ONE_IN: AtomicU32 = AtomicU32::new(0);
/// Calls without a trace so far.
static UNDECIDED: AtomicU32 = AtomicU32::new(0);

/// Exports spans that other processes told of.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

pub(crate) fn switch_on(tracer: SdkTracer, one_in: u32) {
    // It is set up once: a second time ends before anything is used.
    let _ = TRACER.set(tracer);
    ONE_IN.store(one_in.max(1), Ordering::Relaxed);
}

/// Whether traces are exported.
pub fn is_on() -> bool {
    ONE_IN.load(Ordering::Relaxed) > 0
}

/// Whether a call is traced: as whoever sent `traceparent` decided; of calls without it one in so
/// many as the settings say. The span of a call that is has the target [`CALL`].
pub fn wants(headers: &http::HeaderMap) -> bool {
    let one_in = ONE_IN.load(Ordering::Relaxed);
    if one_in == 0 {
        return false;
    }
    asked(headers)
        .unwrap_or_else(|| UNDECIDED.fetch_add(1, Ordering::Relaxed).is_multiple_of(one_in))
}

/// What whoever sent the headers decided; `None` where they say nothing that can be read.
fn asked(headers: &http::HeaderMap) -> Option<bool> {
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

/// Makes the span of a traced call a part of the trace that the call's headers name, if they do.
pub fn adopt(span: &Span, headers: &http::HeaderMap) {
    let context = TraceContextPropagator::new().extract(&Headers(headers));
    // Where nobody exports the span it has no parent, either.
    let _ = span.set_parent(context);
}

/// The id of the trace that a call is of, as 32 hexadecimal digits: that of its span, or, where
/// it is not traced here, the one that its headers name. Empty if it is of none.
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

/// Which trace a step belongs to. Cheap to clone; nothing where nobody exports it.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    context: Option<Context>,
    tenant: Option<Arc<str>>,
}

impl Trace {
    /// That of the present span.
    pub fn current() -> Self {
        Self::of(&Span::current())
    }

    /// That of a span: steps of it are its children.
    pub fn of(span: &Span) -> Self {
        Self { context: is_traced(span).then(|| span.context()), tenant: None }
    }

    /// The same for a tenant: the present span and all steps say so.
    pub fn for_tenant(mut self, tenant: Option<&str>) -> Self {
        if let Some(tenant) = tenant.filter(|_| self.is_some()) {
            Span::current().set_attribute(TENANT, tenant.to_owned());
            self.tenant = Some(tenant.into());
        }
        self
    }

    /// Whether there is one.
    pub const fn is_some(&self) -> bool {
        self.context.is_some()
    }

    /// A step; `make` makes its span, without a parent.
    pub fn step(&self, make: impl FnOnce() -> Span) -> Span {
        let Some(context) = &self.context else { return Span::none() };
        let span = make();
        // A span that was just made has not been looked at.
        let _ = span.set_parent(context.clone());
        if let Some(tenant) = &self.tenant {
            span.set_attribute(TENANT, tenant.to_string());
        }
        span
    }
}

/// A span as the header `traceparent`, for a process that does a part of it; `None` where nobody
/// exports it.
pub fn parent(span: &Span) -> Option<String> {
    let context = is_traced(span).then(|| span.context())?;
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut headers);
    headers.remove(HEADER)
}

/// What another process did of a span, and told when it was done.
#[derive(Debug)]
pub struct Told {
    /// What [`parent`] gave for the span.
    pub parent: String,
    /// What was done.
    pub name: &'static str,
    /// When, by the wall's clock.
    pub times: (SystemTime, SystemTime),
    /// In numbers.
    pub numbers: Vec<(&'static str, u64)>,
}

/// Exports what another process did as a span.
pub fn record(told: Told) {
    let Some(tracer) = TRACER.get() else { return };
    let headers = HashMap::from([(HEADER.to_owned(), told.parent)]);
    let context = TraceContextPropagator::new().extract(&headers);
    let numbers = told.numbers.into_iter();
    // All are far below what a signed number counts.
    let numbers: Vec<_> = numbers.map(|(key, value)| KeyValue::new(key, value as i64)).collect();
    let builder = tracer.span_builder(told.name).with_start_time(told.times.0);
    let mut span = builder.with_attributes(numbers).start_with_context(tracer, &context);
    span.end_with_timestamp(told.times.1);
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
        assert!(!wants(&named("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")));
        assert_eq!(id(&span, &http::HeaderMap::new()), "");
    }

    #[test]
    fn who_sends_a_trace_decides_and_what_is_none_says_nothing() {
        let ids = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
        assert_eq!(asked(&named(&format!("{ids}-01"))), Some(true));
        assert_eq!(asked(&named(&format!("{ids}-03"))), Some(true), "other flags change nothing");
        assert_eq!(asked(&named(&format!("{ids}-00"))), Some(false));
        for text in ["", "00-1-2-01", ids, "x"] {
            assert_eq!(asked(&named(text)), None, "{text}");
        }
        assert_eq!(asked(&http::HeaderMap::new()), None);
    }

    fn named(traceparent: &str) -> http::HeaderMap {
        let value = http::HeaderValue::from_str(traceparent).expect("text");
        http::HeaderMap::from_iter([(http::HeaderName::from_static(HEADER), value)])
    }
}
