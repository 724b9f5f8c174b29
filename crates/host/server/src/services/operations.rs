//! Operations.

use std::time::{Duration, Instant};

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::operation_service_server::OperationService;
use snic_controller::{Command, Controller, OperationView, Reply, ResourceKind};
use snic_domain::{Caller, OperationId, Timestamp};
use snic_front::error::shutting_down;
use snic_front::gate::{Deadline, caller};
use snic_front::settings::WAIT_MAX;
use tonic::{Request, Response};

use super::watching::{Event, Events, WatchSpec};
use super::{MissingPolicy, RpcResult, Services, absent, listing, repeat_of, reply_as, stopped};
use crate::error::OperationKind;
use crate::hub::Topic;
use crate::wire;

/// Sort key of an operation: creation time, then id.
fn key(view: &OperationView) -> String {
    format!("{}/{}", view.record.created.as_nanos(), view.record.id)
}

fn read_key(key: &str) -> Option<(Timestamp, OperationId)> {
    let (at, id) = key.split_once('/')?;
    Some((Timestamp::from_nanos(at.parse().ok()?), OperationId::new(id).ok()?))
}

#[tonic::async_trait]
impl OperationService for Services {
    async fn get_operation(
        &self,
        request: Request<v1::GetOperationRequest>,
    ) -> RpcResult<v1::GetOperationResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let id = name::operation("name", &name).map_err(ApiError::from)?;
        let view = self.operation(&caller, &id).await?;
        Ok(Response::new(wire::operation(&view, &caller).into()))
    }

    async fn list_operations(
        &self,
        request: Request<v1::ListOperationsRequest>,
    ) -> RpcResult<v1::ListOperationsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let query = Query::of("ListOperations")
            .with("target", &request.target)
            .with("running_only", if request.running_only { "true" } else { "false" });
        let listing = listing!(v1::Operation, query, request)?;
        let (target, running_only) = (request.target, request.running_only);
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, caller, after, limit| {
                    let after = after.and_then(read_key);
                    let wanted = |record: &snic_controller::OperationRecord| {
                        let running = !running_only || record.ended.is_none();
                        running && (target.is_empty() || wire::target(&record.work) == target)
                    };
                    controller.operations_after(caller, wanted, after).take(limit).collect()
                },
                |view: &OperationView| (key(view), wire::operation(view, &caller)),
            )
            .await?;
        Ok(Response::new(v1::ListOperationsResponse {
            operations: page.items,
            next_page_token: page.next_page_token,
            revision,
        }))
    }

    async fn wait_operation(
        &self,
        request: Request<v1::WaitOperationRequest>,
    ) -> RpcResult<v1::WaitOperationResponse> {
        let caller = caller(&request)?;
        let deadline = request.extensions().get::<Deadline>().copied();
        let request = request.into_inner();
        let id = name::operation("name", &request.name).map_err(ApiError::from)?;
        let requested = request.timeout.map(timeout).transpose()?.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let until = Instant::now() + requested;
        let until = deadline.map_or(until, |Deadline(deadline)| until.min(deadline));
        let view = self.wait_for(&caller, &id, until).await?;
        Ok(Response::new(wire::operation(&view, &caller).into()))
    }

    async fn cancel_operation(
        &self,
        request: Request<v1::CancelOperationRequest>,
    ) -> RpcResult<v1::CancelOperationResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::operation("name", &request.name).map_err(ApiError::from)?;
        let repeat = repeat_of(&request.request_id)?;
        let command = Command::CancelOperation { id };
        let reply = self.ask(&caller, repeat, command, OperationKind::Cancel).await?;
        reply_as!(reply, Reply::Done => Response::new(Default::default()))
    }

    async fn delete_operation(
        &self,
        request: Request<v1::DeleteOperationRequest>,
    ) -> RpcResult<v1::DeleteOperationResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::operation("name", &request.name).map_err(ApiError::from)?;
        let repeat = repeat_of(&request.request_id)?;
        let command = Command::DeleteOperation { id };
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await;
        MissingPolicy::from(request.allow_missing).or_done(reply)?;
        Ok(Response::new(Default::default()))
    }

    type WatchOperationsStream = Events<v1::WatchOperationsResponse>;

    async fn watch_operations(
        &self,
        request: Request<v1::WatchOperationsRequest>,
    ) -> RpcResult<Self::WatchOperationsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let topic = Topic::Resources(ResourceKind::Operation, caller.tenant().cloned());
        let reader = caller.clone();
        let piece =
            |controller: &Controller, caller: &Caller, after: Option<&OperationView>, most| {
                let after = after.map(|view| (view.record.created, view.record.id.clone()));
                controller.operations_after(caller, |_| true, after).take(most).collect()
            };
        let event = move |event: Event<'_, OperationView>| v1::WatchOperationsResponse {
            r#type: event.kind().into(),
            operation: event.message(
                |view| wire::operation(view, &reader),
                |name| v1::Operation { name, ..Default::default() },
            ),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, resume).await?))
    }
}

fn timeout(timeout: prost_types::Duration) -> Result<Duration, ApiError> {
    Duration::try_from(timeout).map_err(|_| {
        let rule = "the timeout is negative (allowed: 0 to 315576000000 s)";
        ApiError::in_field(ErrorReason::InvalidField, "timeout", rule)
    })
}

impl Services {
    /// One operation that the caller may see.
    async fn operation(
        &self,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<OperationView, ApiError> {
        let wanted = id.clone();
        let view =
            self.read(caller, move |controller, caller| controller.operation(caller, &wanted));
        view.await?.ok_or_else(|| absent(&name::of_operation(id)))
    }

    /// Waits until the operation has ended, at most until this time, and returns its current state.
    async fn wait_for(
        &self,
        caller: &Caller,
        id: &OperationId,
        until: Instant,
    ) -> Result<OperationView, ApiError> {
        let mut follower = self.0.hub.follow_from_now(Topic::Operation(id.clone()));
        let mut stopping = self.0.stopping.clone();
        loop {
            // Before the state is read, so that a later change wakes us. After lost changes the state is
            // read again anyway.
            let _ = follower.next(usize::MAX);
            let view = self.operation(caller, id).await?;
            if view.is_done() {
                return Ok(view);
            }
            tokio::select! {
                () = follower.changed() => {}
                () = tokio::time::sleep_until(until.into()) => {
                    return self.operation(caller, id).await;
                }
                () = stopped(&mut stopping) => return Err(shutting_down()),
            }
        }
    }
}
