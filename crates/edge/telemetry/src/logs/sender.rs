//! Sends batches to the collector.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::ExportLayer;
use super::queue::{Queue, Section};

/// The collector's method.
const METHOD: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
/// Time that an incomplete batch waits.
const INTERVAL: Duration = Duration::from_secs(1);

/// Attempts per batch, [`INTERVAL`] apart.
const TRIES_MAX: u32 = 60;

/// `ExportLogsServiceRequest` with encoded records: on the wire a nested message is a byte string.
#[derive(Clone, PartialEq, prost::Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    log_records: Vec<Bytes>,
}

impl From<Section> for ScopeLogs {
    fn from(section: Section) -> Self {
        let records = Bytes::from(section.records);
        let mut begin = 0;
        let log_records = section.ends.into_iter().map(|end| {
            let record = records.slice(begin..end);
            begin = end;
            record
        });
        let log_records = log_records.collect();
        let name = section.target.to_owned();
        Self { scope: Some(InstrumentationScope { name, ..Default::default() }), log_records }
    }
}

/// Handle of the sending task.
#[derive(Debug)]
pub(crate) struct Sender {
    runtime: Handle,
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    queue: Arc<Queue>,
}

/// A batch being sent.
struct UnsentBatch {
    message: Export,
    lines: u64,
    tries: u32,
}

/// State of the task.
struct SenderState {
    queue: Arc<Queue>,
    client: Grpc<Channel>,
    resource: Resource,
    /// The batch whose last attempt failed.
    unsent: Option<UnsentBatch>,
}

impl Sender {
    /// Starts the task; inside a tokio runtime.
    ///
    /// # Errors
    /// The endpoint is not a valid URI.
    pub fn start(
        endpoint: &str,
        timeout: Duration,
        resource: Resource,
    ) -> Result<Self, tonic::transport::Error> {
        let channel = Endpoint::from_shared(endpoint.to_owned())?.timeout(timeout).connect_lazy();
        let queue = Arc::<Queue>::default();
        let client = Grpc::new(channel);
        let sending = SenderState { queue: Arc::clone(&queue), client, resource, unsent: None };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(sending.run(stopped));
        Ok(Self { runtime: Handle::current(), task, stop, queue })
    }

    /// The layer that feeds it.
    pub fn layer(&self) -> ExportLayer {
        ExportLayer(Arc::clone(&self.queue))
    }

    /// Makes one last attempt and returns how many lines were lost. Blocks: not for an async thread.
    pub fn stop(self) -> u64 {
        // It fails only if the task has ended.
        let _ = self.stop.send(());
        // If it panicked, its lines are counted as lost below.
        let _ = self.runtime.block_on(self.task);
        let left = std::iter::from_fn(|| self.queue.take()).map(|batch| batch.len()).sum::<u64>();
        self.queue.dropped() + left
    }
}

impl SenderState {
    async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                () = self.queue.full.notified(), if self.unsent.is_none() => {}
                () = tokio::time::sleep(INTERVAL) => {}
                _ = &mut stop => break,
            }
            let was_well = self.unsent.is_none();
            let result = self.flush().await;
            self.log_result(was_well, result);
        }
        // The caller of `stop` reports the losses.
        let _ = self.flush().await;
        self.queue.lose(self.unsent.map_or(0, |unsent| unsent.lines));
    }

    /// Sends all batches, until one attempt fails.
    async fn flush(&mut self) -> Result<(), Status> {
        while let Some(mut unsent) = self.unsent.take().or_else(|| self.next()) {
            unsent.tries += 1;
            let Err(status) = self.send(unsent.message.clone()).await else { continue };
            if !is_retryable(&status) || unsent.tries >= TRIES_MAX {
                self.queue.lose(unsent.lines);
            } else {
                self.unsent = Some(unsent);
            }
            return Err(status);
        }
        Ok(())
    }

    /// Logs the first failure, and after a recovery how many lines were lost.
    fn log_result(&self, was_well: bool, result: Result<(), Status>) {
        match result {
            Err(status) if was_well => {
                let reason = status.message();
                tracing::warn!(reason, "log lines cannot be sent to the collector");
            }
            Err(_) => {}
            Ok(()) => {
                let lost = self.queue.dropped();
                if lost > 0 {
                    tracing::warn!(lost, "log lines did not reach the collector");
                }
            }
        }
    }

    fn next(&self) -> Option<UnsentBatch> {
        let batch = self.queue.take()?;
        let lines = batch.len();
        let scope_logs = batch.sections.into_iter().map(ScopeLogs::from).collect();
        let logs = ResourceLogs { resource: Some(self.resource.clone()), scope_logs };
        Some(UnsentBatch { message: Export { resource_logs: vec![logs] }, lines, tries: 0 })
    }

    async fn send(&mut self, message: Export) -> Result<(), Status> {
        let ready = self.client.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::<Export, ExportLogsServiceResponse>::default();
        let path = PathAndQuery::from_static(METHOD);
        let answer = self.client.unary(tonic::Request::new(message), path, codec).await?;
        let rejected =
            answer.into_inner().partial_success.map_or(0, |part| part.rejected_log_records);
        // A negative count is ignored.
        self.queue.lose(u64::try_from(rejected).unwrap_or(0));
        Ok(())
    }
}

/// Whether the collector may accept the same lines later.
fn is_retryable(status: &Status) -> bool {
    use Code::{Aborted, Cancelled, DataLoss, DeadlineExceeded, Unavailable, Unknown};
    // A broken connection is UNKNOWN.
    matches!(
        status.code(),
        Aborted | Cancelled | DataLoss | DeadlineExceeded | Unavailable | Unknown
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
        LogsService, LogsServiceServer,
    };
    use opentelemetry_proto::tonic::collector::logs::v1::{
        ExportLogsPartialSuccess, ExportLogsServiceRequest,
    };
    use parking_lot::Mutex;
    use tokio::net::TcpListener;
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{Request, Response};

    use super::*;

    const TEST_STEP_MAX: Duration = Duration::from_secs(30);

    /// A collector: the targets of what came and how many lines, and its answer to that.
    #[derive(Clone)]
    struct Collector {
        came: Arc<Mutex<Vec<(String, usize)>>>,
        answer: fn() -> Result<i64, Status>,
    }

    #[tonic::async_trait]
    impl LogsService for Collector {
        async fn export(
            &self,
            request: Request<ExportLogsServiceRequest>,
        ) -> Result<Response<ExportLogsServiceResponse>, Status> {
            let rejected_log_records = (self.answer)()?;
            let [logs] = &request.get_ref().resource_logs[..] else { panic!("{request:?}") };
            assert_eq!(logs.resource.as_ref().map(|of| of.attributes.len()), Some(0));
            for of in &logs.scope_logs {
                let name = of.scope.as_ref().map(|scope| scope.name.clone()).unwrap_or_default();
                self.came.lock().push((name, of.log_records.len()));
            }
            let partial = ExportLogsPartialSuccess { rejected_log_records, ..Default::default() };
            let partial_success = (rejected_log_records > 0).then_some(partial);
            Ok(Response::new(ExportLogsServiceResponse { partial_success }))
        }
    }

    impl Collector {
        fn answering(answer: fn() -> Result<i64, Status>) -> Self {
            Self { came: Arc::default(), answer }
        }

        fn serve(&self, listener: TcpListener) {
            let service = LogsServiceServer::new(self.clone());
            let server = tonic::transport::Server::builder().add_service(service);
            tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        }
    }

    /// A sender with lines of two targets, and where it sends them.
    async fn sender() -> (Sender, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address: SocketAddr = listener.local_addr().expect("it is bound");
        let sender =
            Sender::start(&format!("http://{address}"), TEST_STEP_MAX, Resource::default());
        let sender = sender.expect("an address");
        for target in ["a", "b", "a"] {
            // A record that says nothing but its severity.
            sender.queue.push(target, &[16, 9]);
        }
        (sender, listener)
    }

    async fn stop(sender: Sender) -> u64 {
        tokio::task::spawn_blocking(|| sender.stop()).await.expect("no panic")
    }

    #[tokio::test]
    async fn stopping_sends_the_rest() {
        let (sender, listener) = sender().await;
        let collector = Collector::answering(|| Ok(0));
        collector.serve(listener);
        assert_eq!(stop(sender).await, 0);
        assert_eq!(*collector.came.lock(), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    }

    #[tokio::test]
    async fn a_collector_that_starts_later_gets_the_queued_lines() {
        let (sender, listener) = sender().await;
        let (address, queue) = (listener.local_addr().expect("bound"), Arc::clone(&sender.queue));
        drop(listener);
        // Until it was tried in vain, and is kept apart.
        let tried = async {
            while queue.waiting_bytes() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TEST_STEP_MAX, tried).await.expect("it is tried every second");
        let collector = Collector::answering(|| Ok(0));
        collector.serve(TcpListener::bind(address).await.expect("the same port"));
        let came = async {
            while collector.came.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TEST_STEP_MAX, came).await.expect("it is tried again");
        assert_eq!(stop(sender).await, 0);
        assert_eq!(collector.came.lock().iter().map(|(_, lines)| lines).sum::<usize>(), 3);
    }

    #[tokio::test]
    async fn rejected_lines_are_counted() {
        for (answer, lost) in [
            ((|| Err(Status::invalid_argument("no"))) as fn() -> Result<i64, Status>, 3),
            (|| Err(Status::unavailable("not now")), 3),
            (|| Ok(2), 2),
        ] {
            let (sender, listener) = sender().await;
            Collector::answering(answer).serve(listener);
            assert_eq!(stop(sender).await, lost);
        }
    }
}
