//! Operations: each follows from its DAG, so no replica keeps any.

use std::time::{Duration, Instant};

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::operation_service_server::OperationService;
use snic_domain::{Caller, DagName};
use snic_fleet::protocol::{FleetItem, FleetList, FleetName, LIST_MAX};
use snic_front::gate::{CallAuthorizer, Deadline, caller, passage};
use snic_front::listing;
use snic_front::settings::WAIT_MAX;
use tonic::{Request, Response};

use super::watching::{Event, Events, WatchSpec, dag_of};
use super::{PAGE_BYTES_MAX, RpcResult, Services, elsewhere, tenant_of_list};
use crate::wire;

/// Interval between a wait's looks at the DAG.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[tonic::async_trait]
impl OperationService for Services {
    async fn get_operation(
        &self,
        request: Request<v1::GetOperationRequest>,
    ) -> RpcResult<v1::GetOperationResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let name = request.into_inner().name;
        let found = self.operation(&caller, &name).await?;
        Ok(Response::new(self.with_warnings(&passage, &caller, found).await.into()))
    }

    async fn wait_operation(
        &self,
        request: Request<v1::WaitOperationRequest>,
    ) -> RpcResult<v1::WaitOperationResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let deadline = request.extensions().get::<Deadline>().copied();
        let request = request.into_inner();
        let requested = request.timeout.and_then(|timeout| Duration::try_from(timeout).ok());
        let until = Instant::now() + requested.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let until = deadline.map_or(until, |Deadline(deadline)| until.min(deadline));
        loop {
            let found = self.operation(&caller, &request.name).await?;
            let left = until.saturating_duration_since(Instant::now());
            if found.done || left.is_zero() {
                let found = self.with_warnings(&passage, &caller, found).await;
                return Ok(Response::new(found.into()));
            }
            tokio::time::sleep(LOOK_AGAIN.min(left)).await;
        }
    }

    async fn list_operations(
        &self,
        request: Request<v1::ListOperationsRequest>,
    ) -> RpcResult<v1::ListOperationsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let running_only = if request.running_only { "true" } else { "false" };
        let query = Query::of("ListOperations")
            .with("target", &request.target)
            .with("running_only", running_only);
        let listing = listing!(v1::Operation, query, request)?;
        let wanted = |of: &v1::Operation| {
            let target = of.metadata.as_ref().map(|of| of.target.as_str());
            let is_of_target = request.target.is_empty() || target == Some(request.target.as_str());
            is_of_target && !(request.running_only && of.done)
        };
        let mut pieces = listing.begin::<v1::Operation>(PAGE_BYTES_MAX)?;
        let mut begun = None;
        loop {
            let (after, most) = pieces.next();
            let after = after.and_then(|key| name::dag("page_token", key).ok());
            let (piece, revision) = self.operations(&caller, after, (most, &wanted)).await?;
            let revision = *begun.get_or_insert(revision);
            if let Some(page) = pieces.add(piece)? {
                return Ok(Response::new(v1::ListOperationsResponse {
                    operations: page.items,
                    next_page_token: page.next_page_token,
                    revision,
                }));
            }
        }
    }

    /// Refuses: an order to a host cannot be taken back, it may have begun.
    async fn cancel_operation(
        &self,
        request: Request<v1::CancelOperationRequest>,
    ) -> RpcResult<v1::CancelOperationResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let found = self.operation(&caller, &name).await?;
        let text = match found.done {
            true => format!("{name} has ended"),
            false => {
                format!("{name} may have reached its host; delete the DAG, or update it again")
            }
        };
        let refused = ApiError::new(v1::ErrorReason::NotCancellable, &text);
        Err(refused.precondition("STATE", &name, text).into())
    }

    async fn delete_operation(
        &self,
        _: Request<v1::DeleteOperationRequest>,
    ) -> RpcResult<v1::DeleteOperationResponse> {
        Err(elsewhere("deletion of operations, which go with their DAGs"))
    }

    type WatchOperationsStream = Events<v1::WatchOperationsResponse>;

    /// An operation goes with its DAG. That is not told: it was no end of the operation.
    async fn watch_operations(
        &self,
        request: Request<v1::WatchOperationsRequest>,
    ) -> RpcResult<Self::WatchOperationsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let tenant = caller.tenant().cloned();
        let event = move |event: Event<'_>, revision| {
            let operation = match &event {
                Event::Bookmark => None,
                Event::Seen(_, record) => Some(wire::operation(&dag_of(record)?, &caller)),
                Event::Gone { .. } => return None,
            };
            Some(v1::WatchOperationsResponse { r#type: event.kind(), operation, revision })
        };
        let spec = WatchSpec { kind: "dags/", tenant, is_of_tenant: true, event };
        Ok(Response::new(self.watch(spec, resume).await?))
    }
}

impl Services {
    /// So many wanted operations behind a DAG, fewer only at the end of the list, each with the name of its DAG; and the
    /// revision that they include.
    async fn operations(
        &self,
        caller: &Caller,
        after: Option<DagName>,
        (most, wanted): (usize, &(impl Fn(&v1::Operation) -> bool + Sync)),
    ) -> Result<(Vec<(String, v1::Operation)>, u64), ApiError> {
        let of = FleetList::Dags(tenant_of_list(caller, None));
        let (mut found, mut after, mut begun) = (Vec::new(), after, None);
        loop {
            let (piece, revision) =
                self.piece(caller, &of, after.take().map(FleetName::Dag), LIST_MAX).await?;
            let revision = *begun.get_or_insert(revision);
            let is_end = piece.len() < LIST_MAX;
            for item in piece {
                let FleetItem::Dag(dag) = item else { continue };
                after = Some(dag.name.clone());
                let operation = wire::operation(&dag, caller);
                if found.len() < most && wanted(&operation) {
                    found.push((dag.name.to_string(), operation));
                }
            }
            if is_end || found.len() >= most {
                return Ok((found, revision));
            }
        }
    }

    /// Adds what the host warns of, once it serves the DAG: before, nobody knows what the tasks do there.
    async fn with_warnings(
        &self,
        passage: &CallAuthorizer,
        caller: &Caller,
        mut operation: v1::Operation,
    ) -> v1::Operation {
        let is_served = matches!(operation.result, Some(v1::operation::Result::Response(_)));
        let (true, Some(name)) = (is_served, wire::parse_operation(&operation.name)) else {
            return operation;
        };
        if let (Ok(of), Some(metadata)) = (self.dag(caller, name).await, &mut operation.metadata) {
            let seen = self.seen_by_its_host(passage, (&of, caller), v1::Dag::default()).await;
            metadata.warnings = seen.warnings;
        }
        operation
    }

    /// The operation with this name, of a DAG that the caller may see.
    async fn operation(&self, caller: &Caller, name: &str) -> Result<v1::Operation, ApiError> {
        let absent = || ApiError::not_found("operation", name);
        let dag = wire::parse_operation(name).ok_or_else(absent)?;
        // A DAG that the caller may not see, and one that is gone, have no operation.
        let found = self.dag(caller, dag).await.map_err(|error| match error.reason() {
            v1::ErrorReason::ResourceNotFound => absent(),
            _ => error,
        })?;
        Ok(wire::operation(&found, caller))
    }
}
