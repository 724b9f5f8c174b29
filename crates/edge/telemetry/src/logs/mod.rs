//! Export of log lines to a collector, over OTLP.
//!
//! ```text
//! event ──► encoded record ──────► current batch ────────────────────► full batches ──► sender ──► collector
//!       (in the thread that logs)        (one short lock)              (bounded)      (a task)
//! ```
//!
//! The logging thread is often the controller's, which everybody waits for. It therefore encodes a
//! record once, in its wire format, appends the bytes to a batch, and wakes nobody.
//!
//! This is our own writer, and not `opentelemetry-appender-tracing` with the SDK's log pipeline, because
//! all of telemetry must cost at most 5 % of creates and epochs. Measured side by side in five runs, all
//! of telemetry took 4.6 % of the processor time of a DAG with this writer and 8.9 % with the appender
//! (medians), and 0.6 % and 7.4 % of the creates a second (`crates/host/daemon/docs/measurements.md`). The
//! appender builds an owned record, attribute by attribute, and encodes it again when it is sent.

mod queue;
mod record;
mod sender;

use std::sync::Arc;

use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use queue::Queue;
pub(crate) use sender::Sender;

/// The layer that queues log lines for export.
#[derive(Debug)]
pub(crate) struct ExportLayer(Arc<Queue>);

impl<S: Subscriber> Layer<S> for ExportLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        record::write(event, |record| self.0.push(event.metadata().target(), record));
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::time::{SystemTime, UNIX_EPOCH};

    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId};
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use prost::Message as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// The records that an action leaves, with their targets.
    fn records(act: impl FnOnce()) -> Vec<(&'static str, LogRecord)> {
        let queue = Arc::<Queue>::default();
        let layer = ExportLayer(Arc::clone(&queue));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
        let sections = queue.take().map(|batch| batch.sections).unwrap_or_default();
        let of_section = |section: queue::Section| {
            let mut begin = 0;
            let ends = section.ends.into_iter();
            let records = ends.map(move |end| {
                let record = &section.records[begin..end];
                begin = end;
                (section.target, LogRecord::decode(record).expect("a record"))
            });
            records.collect::<Vec<_>>()
        };
        sections.into_iter().flat_map(of_section).collect()
    }

    fn attribute<'a>(record: &'a LogRecord, key: &str) -> &'a Value {
        let found = record.attributes.iter().find(|pair| pair.key == key);
        let value = found.and_then(|pair| pair.value.as_ref()?.value.as_ref());
        value.unwrap_or_else(|| panic!("no {key}: {record:?}"))
    }

    #[test]
    fn a_record_decodes_with_the_published_protos() {
        let long = "é".repeat(20_000);
        let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("now").as_nanos();
        let found = records(|| {
            tracing::warn!(target: "t", dag = %"acme/web", text = "", long, minus = -1, most = u64::MAX,
                small = 300_u64, ratio = 0.5, yes = true, none = Option::<u8>::None, "it {}", "is so");
        });
        let [(target, record)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(*target, "t");
        assert_eq!((record.severity_number, record.severity_text.as_str()), (13, "WARN"));
        assert!(u128::from(record.time_unix_nano) >= before, "{record:?}");
        assert_eq!(record.observed_time_unix_nano, record.time_unix_nano);
        assert!(record.trace_id.is_empty() && record.span_id.is_empty());
        let body = record.body.as_ref().and_then(|body| body.value.as_ref());
        assert_eq!(body, Some(&Value::StringValue("it is so".into())));
        let text = |text: &str| Value::StringValue(text.to_owned());
        for (key, value) in [
            ("dag", text("acme/web")),
            ("text", text("")),
            ("long", text(&long)),
            ("minus", Value::IntValue(-1)),
            ("most", text("18446744073709551615")),
            ("small", Value::IntValue(300)),
            ("ratio", Value::DoubleValue(0.5)),
            ("yes", Value::BoolValue(true)),
        ] {
            assert_eq!(attribute(record, key), &value, "{key}");
        }
        assert_eq!(record.attributes.len(), 8, "an absent field is left out: {record:?}");
    }

    #[test]
    fn a_line_within_a_trace_has_its_ids() {
        let ids = (TraceId::from(7_u128), SpanId::from(9_u64));
        let span = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, true, Default::default());
        let _within = opentelemetry::Context::new().with_remote_span_context(span).attach();
        let found = records(|| tracing::info!("within"));
        let [(_, record)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(record.trace_id, ids.0.to_bytes());
        assert_eq!((&record.span_id[..], record.flags), (&ids.1.to_bytes()[..], 1));
    }

    #[test]
    fn a_value_that_logs_itself_does_no_harm() {
        struct Chatty;
        impl fmt::Display for Chatty {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                tracing::info!(n = 1, "inner");
                to.write_str("value")
            }
        }
        let found = records(|| tracing::info!(chatty = %Chatty, after = 2, "outer"));
        let of = |text: &str| {
            let is = |record: &LogRecord| {
                let body = record.body.as_ref().and_then(|body| body.value.as_ref());
                body == Some(&Value::StringValue(text.to_owned()))
            };
            found.iter().map(|(_, record)| record).find(|record| is(record)).cloned()
        };
        let outer = of("outer").expect("the line");
        assert_eq!(attribute(&outer, "chatty"), &Value::StringValue("value".into()));
        assert_eq!(attribute(&outer, "after"), &Value::IntValue(2));
    }
}
