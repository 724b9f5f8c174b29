//! A collector of telemetry, from the protos that OpenTelemetry publishes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::logs::v1 as logs;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::trace::v1 as trace;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// The telemetry that arrived.
#[derive(Debug, Default)]
struct Kept {
    spans: Vec<Span>,
    metrics: BTreeSet<String>,
    lines: Vec<String>,
}

/// A collector that keeps what it receives, or discards it.
#[derive(Debug, Clone)]
pub struct Collector(Option<Arc<Mutex<Kept>>>);

#[tonic::async_trait]
impl trace::trace_service_server::TraceService for Collector {
    async fn export(
        &self,
        request: Request<trace::ExportTraceServiceRequest>,
    ) -> Result<Response<trace::ExportTraceServiceResponse>, Status> {
        self.keep(|kept| {
            let resources = request.into_inner().resource_spans.into_iter();
            kept.spans.extend(resources.flat_map(|r| r.scope_spans).flat_map(|scope| scope.spans));
        });
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl metrics::metrics_service_server::MetricsService for Collector {
    async fn export(
        &self,
        request: Request<metrics::ExportMetricsServiceRequest>,
    ) -> Result<Response<metrics::ExportMetricsServiceResponse>, Status> {
        self.keep(|kept| {
            let resources = request.into_inner().resource_metrics.into_iter();
            let metrics = resources.flat_map(|r| r.scope_metrics).flat_map(|scope| scope.metrics);
            kept.metrics.extend(metrics.map(|metric| metric.name));
        });
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl logs::logs_service_server::LogsService for Collector {
    async fn export(
        &self,
        request: Request<logs::ExportLogsServiceRequest>,
    ) -> Result<Response<logs::ExportLogsServiceResponse>, Status> {
        self.keep(|kept| {
            let resources = request.into_inner().resource_logs.into_iter();
            let records = resources.flat_map(|r| r.scope_logs).flat_map(|scope| scope.log_records);
            kept.lines.extend(records.filter_map(|record| match record.body?.value? {
                Value::StringValue(text) => Some(text),
                _ => None,
            }));
        });
        Ok(Response::new(Default::default()))
    }
}

impl Collector {
    /// One that keeps everything.
    pub fn keeping() -> Self {
        Self(Some(Arc::default()))
    }

    /// One that discards everything.
    pub const fn forgetting() -> Self {
        Self(None)
    }

    /// Serves on a port of this machine until the task is aborted.
    ///
    /// # Panics
    /// No port is free.
    pub async fn serve(&self) -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let server = tonic::transport::Server::builder()
            .add_service(trace::trace_service_server::TraceServiceServer::new(self.clone()))
            .add_service(metrics::metrics_service_server::MetricsServiceServer::new(self.clone()))
            .add_service(logs::logs_service_server::LogsServiceServer::new(self.clone()));
        let task = tokio::spawn(async move {
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("it serves");
        });
        (address, task)
    }

    fn keep(&self, add: impl FnOnce(&mut Kept)) {
        if let Some(kept) = &self.0 {
            add(&mut kept.lock().expect("no panic while it is held"));
        }
    }

    fn kept<T>(&self, read: impl FnOnce(&Kept) -> T) -> T {
        let kept = self.0.as_ref().expect("this one keeps nothing");
        read(&kept.lock().expect("no panic while it is held"))
    }

    /// The spans of a trace, by its id in hexadecimal.
    pub fn spans(&self, trace: &str) -> Vec<Span> {
        let is_of = |span: &&Span| hex(&span.trace_id) == trace;
        self.kept(|kept| kept.spans.iter().filter(is_of).cloned().collect())
    }

    pub fn all_spans(&self) -> Vec<Span> {
        self.kept(|kept| kept.spans.clone())
    }

    /// The names of metrics.
    pub fn metrics(&self) -> BTreeSet<String> {
        self.kept(|kept| kept.metrics.clone())
    }

    /// The texts of log lines.
    pub fn lines(&self) -> Vec<String> {
        self.kept(|kept| kept.lines.clone())
    }
}

/// An id in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An attribute of a span as text; `None` where it has none of that name.
pub fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}
