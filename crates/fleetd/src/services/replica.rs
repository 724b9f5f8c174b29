//! What other replicas pass on.

use snic_api::error::ApiError;
use snic_api::fleet_v1::replica_service_server::ReplicaService;
use snic_api::fleet_v1::{AskRequest, AskResponse};
use snic_api::v1::ErrorReason;
use snic_fleet::protocol::FleetAsk;
use tonic::{Request, Response};

use super::{RpcResult, Services};

#[tonic::async_trait]
impl ReplicaService for Services {
    async fn ask(&self, request: Request<AskRequest>) -> RpcResult<AskResponse> {
        let ask: FleetAsk = serde_json::from_slice(&request.get_ref().ask).map_err(|error| {
            let text = format!("{error}; replicas may be one version apart");
            ApiError::in_field(ErrorReason::InvalidField, "ask", text)
        })?;
        // Never to a third one: who leads knows it.
        let outcome = self.0.parts.asking.own().ask(ask).await;
        let outcome = serde_json::to_vec(&outcome).map_err(ApiError::internal)?;
        Ok(Response::new(AskResponse { outcome }))
    }
}
