//! Requests that other replicas pass on.

use snic_api::error::ApiError;
use snic_api::fleet_v1::replica_service_server::ReplicaService;
use snic_api::fleet_v1::{AskRequest, AskResponse, CallHostRequest};
use snic_api::v1::ErrorReason;
use snic_fleet::HostId;
use snic_fleet::protocol::{Denied, FleetAsk};
use tonic::{Request, Response};

use super::{RpcResult, Services};
use crate::calls::Parts;
use crate::error::of_denied;
use crate::runner::Leadership;

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

    type CallHostStream = Parts;

    async fn call_host(
        &self,
        request: Request<CallHostRequest>,
    ) -> RpcResult<Self::CallHostStream> {
        let CallHostRequest { host, call } = request.into_inner();
        let host = HostId::new(&host)
            .map_err(|error| ApiError::in_field(ErrorReason::InvalidField, "host", error))?;
        let call = call.ok_or_else(|| ApiError::required("call"))?;
        let parts = &self.0.parts;
        if parts.asking.leadership() != Leadership::Own {
            return Err(of_denied(Denied::NotLeader).into());
        }
        Ok(Response::new(parts.calls.call(&parts.links, &host, call).await?))
    }
}
