//! Exporters of metrics, traces and logs.

use std::io::Write as _;
use std::time::Duration;

use opentelemetry::global;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig as _};
use opentelemetry_proto::tonic::resource::v1::Resource as WireResource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use prometheus::{Registry, TextEncoder};

use crate::logs::{ExportLayer, Sender};
use crate::{InvalidLog, metrics, openmetrics};

/// Time limit of one export.
const EXPORT_MAX: Duration = Duration::from_secs(5);
/// Interval of metric exports, a common scrape interval.
pub const METRICS_INTERVAL: Duration = Duration::from_secs(30);

/// The collector, in addition to the page for Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Otlp<'a> {
    /// Its address, OTLP over gRPC, such as `http://127.0.0.1:4317`.
    pub endpoint: &'a str,
    /// Calls without a `traceparent` are sampled at 1/N; at least 1. Callers that send `traceparent`
    /// decide for themselves.
    pub trace_one_in: u32,
}

/// The exporters of this process.
#[derive(Debug)]
pub struct Telemetry {
    registry: Registry,
    meter: SdkMeterProvider,
    tracer: Option<SdkTracerProvider>,
    lines: Option<Sender>,
}

/// The content type of Prometheus' text format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

fn failed(error: impl std::error::Error) -> InvalidLog {
    InvalidLog::Export(error.to_string())
}

impl Telemetry {
    /// Sets up the exporters; with a collector, inside a tokio runtime.
    pub(crate) fn new(service: &'static str, otlp: Option<Otlp<'_>>) -> Result<Self, InvalidLog> {
        let resource = Resource::builder()
            .with_service_name(service)
            .with_attribute(opentelemetry::KeyValue::new(
                "service.version",
                env!("CARGO_PKG_VERSION"),
            ))
            .build();
        let registry = Registry::new();
        let exposition =
            opentelemetry_prometheus::exporter().with_registry(registry.clone()).build();
        let mut meter = SdkMeterProvider::builder()
            .with_resource(resource.clone())
            .with_reader(exposition.map_err(failed)?);
        let (mut tracer, mut lines) = (None, None);
        if let Some(Otlp { endpoint, trace_one_in }) = otlp {
            // Sampling is decided before a span is made: `trace::is_sampled`.
            let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
            let spans = SpanExporter::builder().with_tonic();
            let spans = spans.with_endpoint(endpoint).with_timeout(EXPORT_MAX).build();
            let provider = SdkTracerProvider::builder().with_sampler(sampler);
            let provider = provider.with_resource(resource.clone());
            let provider = provider.with_batch_exporter(spans.map_err(failed)?).build();
            crate::trace::switch_on(provider.tracer("snic"), trace_one_in);
            tracer = Some(provider);
            let of = ResourceAttributesWithSchema::from(&resource).attributes.0;
            let of = WireResource { attributes: of, ..Default::default() };
            let sender = Sender::start(endpoint, EXPORT_MAX, of);
            lines = Some(sender.map_err(failed)?);
            let sums = MetricExporter::builder().with_tonic();
            let sums = sums.with_endpoint(endpoint).with_timeout(EXPORT_MAX).build();
            let sums = PeriodicReader::builder(sums.map_err(failed)?);
            meter = meter.with_reader(sums.with_interval(METRICS_INTERVAL).build());
        }
        let meter = meter.build();
        global::set_meter_provider(meter.clone());
        metrics::observe(&meter.meter("snic"));
        Ok(Self { registry, meter, tracer, lines })
    }

    pub(crate) fn tracer(&self) -> Option<SdkTracer> {
        self.tracer.as_ref().map(|provider| provider.tracer("snic"))
    }

    /// The layer that exports log lines, if there is a collector.
    pub(crate) fn exported_lines(&self) -> Option<ExportLayer> {
        self.lines.as_ref().map(Sender::layer)
    }

    /// All metrics in the text format that a request prefers by its header `accept`, OpenMetrics or Prometheus', with its content type.
    pub fn exposition(&self, accept: Option<&str>) -> (&'static str, String) {
        let families = self.registry.gather();
        if openmetrics::is_preferred(accept.unwrap_or_default()) {
            return (openmetrics::FORMAT, openmetrics::exposition(&families));
        }
        // Encoding fails only for an inconsistent family, which would be a defect of the library.
        (FORMAT, TextEncoder::new().encode_to_string(&families).unwrap_or_default())
    }

    /// Exports the rest and stops. Blocks: not for an async thread.
    pub fn stop(self) {
        let results =
            [self.tracer.map(|provider| provider.shutdown()), Some(self.meter.shutdown())];
        for error in results.into_iter().flatten().filter_map(Result::err) {
            // Where standard error is closed, nobody is left to tell.
            let _ = writeln!(std::io::stderr(), "telemetry not exported: {error}");
        }
        let lost = self.lines.map_or(0, Sender::stop);
        if lost > 0 {
            let _ = writeln!(std::io::stderr(), "{lost} log lines did not reach the collector");
        }
    }
}
