//! The span of a call as its sender sees it: the root of what the server does for the call. It is sent to the collector that
//! the variable `OTEL_EXPORTER_OTLP_ENDPOINT` names (OTLP over gRPC), as other programs do; without it there is none, and the
//! server decides whether the call is sampled.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, status};
use snic_api::trace_parent;
use tonic::Code;
use tonic::metadata::{Ascii, MetadataValue};

/// The variable that names the collector.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Time limit of an export: a collector that hangs must not hold a command up for long.
const EXPORT_MAX: Duration = Duration::from_secs(1);
/// The flags of a sampled context.
const SAMPLED: &str = "01";

/// A call that was begun.
#[derive(Debug)]
pub(crate) struct CallSpan {
    endpoint: String,
    /// Header for the server: this span is the parent of its own.
    header: String,
    /// The span that this one belongs to; empty for a root.
    parent: String,
    name: &'static str,
    begun: SystemTime,
}

impl CallSpan {
    /// Begins the span of a call with this request; `None` where nobody wants it.
    pub fn begin<Q>() -> Option<Self> {
        let endpoint = std::env::var(ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty())?;
        Self::of::<Q>(endpoint, trace_parent::given())
    }

    fn of<Q>(endpoint: String, given: Option<&str>) -> Option<Self> {
        let fresh = trace_parent::fresh();
        let [trace, span, _] = parts(&fresh)?;
        let (trace, parent) = match given {
            None => (trace, ""),
            Some(given) => match parts(given)? {
                [trace, parent, SAMPLED] => (trace, parent),
                _ => return None, // Its caller decided against it.
            },
        };
        Some(Self {
            endpoint,
            header: format!("00-{trace}-{span}-{SAMPLED}"),
            parent: parent.to_owned(),
            name: method::<Q>(),
            begun: SystemTime::now(),
        })
    }

    /// The context for the server.
    pub fn header(&self) -> Option<MetadataValue<Ascii>> {
        self.header.parse().ok()
    }

    /// Ends the span, and sends it. A collector that does not answer is no reason to fail.
    pub async fn end(self, code: Code) {
        let endpoint = self.endpoint.clone();
        let request = self.request(code, SystemTime::now());
        let export = async {
            let mut collector = TraceServiceClient::connect(endpoint).await.ok()?;
            collector.export(request).await.ok()
        };
        // As above.
        let _ = tokio::time::timeout(EXPORT_MAX, export).await;
    }

    fn request(&self, code: Code, now: SystemTime) -> ExportTraceServiceRequest {
        let [trace, span, _] = parts(&self.header).unwrap_or_default();
        let word = |key: &str, value: &str| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) }),
            ..KeyValue::default()
        };
        let result = match code {
            Code::Ok => status::StatusCode::Unset,
            _ => status::StatusCode::Error,
        };
        let span = Span {
            trace_id: bytes(trace),
            span_id: bytes(span),
            parent_span_id: bytes(&self.parent),
            name: self.name.to_owned(),
            kind: SpanKind::Client.into(),
            start_time_unix_nano: nanos(self.begun),
            end_time_unix_nano: nanos(now),
            attributes: vec![
                word("rpc.system", "grpc"),
                word("rpc.method", self.name),
                word("rpc.grpc.status_code", &(code as i32).to_string()),
            ],
            status: Some(Status { code: result.into(), ..Status::default() }),
            ..Span::default()
        };
        let resource = Resource {
            attributes: vec![
                word("service.name", "snicctl"),
                word("service.version", env!("CARGO_PKG_VERSION")),
            ],
            ..Resource::default()
        };
        let spans = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
        let all = ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![spans],
            ..ResourceSpans::default()
        };
        ExportTraceServiceRequest { resource_spans: vec![all] }
    }
}

/// Trace, span and flags of a valid context.
fn parts(header: &str) -> Option<[&str; 3]> {
    let mut parts = header.split('-').skip(1);
    Some([parts.next()?, parts.next()?, parts.next()?])
}

/// `CreateDag` of the request `CreateDagRequest`.
fn method<Q>() -> &'static str {
    let name = std::any::type_name::<Q>().rsplit("::").next().unwrap_or_default();
    name.strip_suffix("Request").unwrap_or(name)
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.filter_map(byte).collect()
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use snic_api::v1::GetDagRequest;

    use super::*;

    fn span(given: Option<&str>) -> Option<Span> {
        let begun = CallSpan::of::<GetDagRequest>("http://127.0.0.1:1".into(), given)?;
        let mut request = begun.request(Code::NotFound, SystemTime::now());
        request.resource_spans.pop()?.scope_spans.pop()?.spans.pop()
    }

    #[test]
    fn a_call_is_a_root_or_part_of_the_trace_that_was_given() {
        let root = span(None).expect("it is wanted");
        assert_eq!(
            (root.trace_id.len(), root.span_id.len(), root.parent_span_id.len()),
            (16, 8, 0)
        );
        assert_eq!((&*root.name, root.kind()), ("GetDag", SpanKind::Client));
        assert!(
            root.start_time_unix_nano > 0 && root.end_time_unix_nano >= root.start_time_unix_nano
        );
        assert_eq!(root.status.map(|status| status.code()), Some(status::StatusCode::Error));
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let part = span(Some(given)).expect("it is sampled");
        assert_eq!(part.parent_span_id, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!(part.trace_id[..4], [0x4b, 0xf9, 0x2f, 0x35]);
        assert!(span(Some(&given.replace("-01", "-00"))).is_none(), "it is not sampled");
    }
}
