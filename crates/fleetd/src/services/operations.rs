//! Operations: each follows from its DAG, so no replica keeps any.

use std::time::{Duration, Instant};

use snic_api::error::ApiError;
use snic_api::v1;
use snic_api::v1::operation_service_server::OperationService;
use snic_controller::Caller;
use snic_front::gate::{Deadline, caller};
use snic_front::settings::WAIT_MAX;
use tokio_stream::Empty;
use tonic::{Request, Response, Status};

use super::{RpcResult, Services, elsewhere};
use crate::wire;

/// How often a wait looks at the DAG.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[tonic::async_trait]
impl OperationService for Services {
    async fn get_operation(
        &self,
        request: Request<v1::GetOperationRequest>,
    ) -> RpcResult<v1::GetOperationResponse> {
        let caller = caller(&request)?;
        let found = self.operation(&caller, &request.into_inner().name).await?;
        Ok(Response::new(found.into()))
    }

    async fn wait_operation(
        &self,
        request: Request<v1::WaitOperationRequest>,
    ) -> RpcResult<v1::WaitOperationResponse> {
        let caller = caller(&request)?;
        let deadline = request.extensions().get::<Deadline>().copied();
        let request = request.into_inner();
        let requested = request.timeout.and_then(|timeout| Duration::try_from(timeout).ok());
        let until = Instant::now() + requested.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let until = deadline.map_or(until, |Deadline(deadline)| until.min(deadline));
        loop {
            let found = self.operation(&caller, &request.name).await?;
            let left = until.saturating_duration_since(Instant::now());
            if found.done || left.is_zero() {
                return Ok(Response::new(found.into()));
            }
            tokio::time::sleep(LOOK_AGAIN.min(left)).await;
        }
    }

    async fn list_operations(
        &self,
        _: Request<v1::ListOperationsRequest>,
    ) -> RpcResult<v1::ListOperationsResponse> {
        Err(elsewhere("list of operations; look at the DAGs"))
    }

    async fn cancel_operation(
        &self,
        _: Request<v1::CancelOperationRequest>,
    ) -> RpcResult<v1::CancelOperationResponse> {
        Err(elsewhere("cancellation; delete the DAG"))
    }

    async fn delete_operation(
        &self,
        _: Request<v1::DeleteOperationRequest>,
    ) -> RpcResult<v1::DeleteOperationResponse> {
        Err(elsewhere("deletion of operations, which go with their DAGs"))
    }

    type WatchOperationsStream = Empty<Result<v1::WatchOperationsResponse, Status>>;

    async fn watch_operations(
        &self,
        _: Request<v1::WatchOperationsRequest>,
    ) -> RpcResult<Self::WatchOperationsStream> {
        Err(elsewhere("watches yet; wait for each operation"))
    }
}

impl Services {
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
