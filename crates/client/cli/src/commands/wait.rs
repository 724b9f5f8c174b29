//! Waiting for operations, with progress on standard error if it is a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use prost_types::Any;
use snic_api::v1::operation::Result as Ended;
use snic_api::v1::operation_metadata::Verb;
use snic_api::v1::{Dag, Operation, OperationMetadata, Region, WaitOperationRequest};
use tonic::Status;

use super::CliSession;
use snic_api::text::escaped;
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::output::message::PrintedMessage;
use snic_client::output::{text, views};

/// Time that the server waits in one request; the progress shown is never older.
const STEP: Duration = Duration::from_secs(1);

impl CliSession {
    /// Prints a running operation, or waits for its end and prints the result; of one that has ended,
    /// such as a deletion with nothing to delete, always the result.
    pub(super) async fn finish(
        &mut self,
        client: &Client,
        operation: Operation,
        is_waiting: bool,
    ) -> Result<(), Failure> {
        if is_waiting || operation.done {
            let ended = self.wait(client, operation).await?;
            return self.ended(ended);
        }
        let warnings = operation.metadata.as_ref().map(|of| &of.warnings[..]).unwrap_or_default();
        let warnings =
            warnings.iter().map(|warning| format!("warning: {}\n", escaped(&warning.message)));
        let hint = format!(
            "{}: {}\n{}wait for it with `snicctl operation wait {}`\n",
            text::id(&operation.name),
            escaped(&views::operation_work(&operation)),
            warnings.collect::<String>(),
            text::id(&operation.name),
        );
        self.output.one(&operation, |_, _| hint)
    }

    /// Waits for the end of an operation.
    pub(super) async fn wait(
        &self,
        client: &Client,
        mut operation: Operation,
    ) -> Result<Operation, Failure> {
        let limit = self.wait_limit();
        let start = Instant::now();
        let progress = Progress::new();
        while !operation.done {
            progress.show(&operation);
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                let limit = limit.into();
                return Err(Failure::StillRunning { operation: operation.name, limit });
            }
            let step = left.min(STEP);
            let timeout = prost_types::Duration::try_from(step).ok();
            let request = WaitOperationRequest { name: operation.name.clone(), timeout };
            let client = client.clone().with_deadline(super::DEADLINE + step);
            let stopped = Failure::Interrupted { operation: operation.name.clone() };
            operation = tokio::select! {
                waited = async { call!(client, operations.wait_operation => operation, request) } => waited?,
                // Without a signal handler, Ctrl-C ends the program at once.
                Ok(()) = tokio::signal::ctrl_c() => return Err(stopped),
            };
        }
        Ok(operation)
    }

    /// Prints the result of an ended operation, or fails with its error.
    pub(super) fn ended(&mut self, operation: Operation) -> Result<(), Failure> {
        let work = views::operation_work(&operation);
        match operation.result {
            Some(Ended::Error(error)) => Err(Status::from(error).into()),
            Some(Ended::Response(response)) => {
                if let Some(dag) = decode::<Dag>(&response)? {
                    self.output.one(&dag, views::dag)
                } else if let Some(region) = decode::<Region>(&response)? {
                    self.output.one(&region, views::region)
                } else {
                    let (moved, counts) = moves(operation.metadata.as_ref());
                    self.output.plain(&counts, &format!("done: {work}{moved}\n"))
                }
            }
            None => Err(Failure::Reply("the operation ended without a result".into())),
        }
    }
}

/// The moves of a consolidation, for people and for programs; nothing of other operations.
fn moves(of: Option<&OperationMetadata>) -> (String, serde_json::Value) {
    let Some(of) = of.filter(|of| of.verb() == Verb::Optimize) else {
        return (String::new(), serde_json::json!({}));
    };
    let progress = of.progress.unwrap_or_default();
    let (made, left) = (progress.dags_moved, progress.moves_left);
    let text = format!("; DAGs moved: {made}; without room for a move: {left}");
    (text, serde_json::json!({ "dags_moved": made, "moves_left": left }))
}

/// The message in `any`, if it is of this kind.
pub(super) fn decode<R: PrintedMessage + Default>(any: &Any) -> Result<Option<R>, Failure> {
    if any.type_url.rsplit('/').next() != Some(R::NAME) {
        return Ok(None);
    }
    R::decode(any.value.as_slice()).map(Some).map_err(|error| Failure::Reply(error.to_string()))
}

/// A line with the progress of an operation; hidden if standard error is not a terminal.
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    fn show(&self, operation: &Operation) {
        let metadata = operation.metadata.clone().unwrap_or_default();
        let progress = metadata.progress.unwrap_or_default();
        let template = if progress.regions_total == 0 {
            "{spinner} {prefix}: {msg} ({elapsed})"
        } else {
            "{spinner} {prefix}: {msg} [{bar:20}] {pos} of {len} regions ({elapsed})"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.set_length(progress.regions_total.into());
        self.0.set_position(progress.regions_done.into());
        self.0.set_prefix(escaped(&views::operation_work(operation)).into_owned());
        self.0.set_message(escaped(&metadata.stage).into_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
