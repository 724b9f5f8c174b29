//! Policy files, registered once for all hosts.

use snic_api::convert::timestamp;
use snic_api::error::ApiError;
use snic_api::fleet_v1 as wire_v1;
use snic_api::fleet_v1::policies::Refusal;
use snic_api::fleet_v1::policy_service_server::PolicyService;
use snic_api::v1::ErrorReason;
use snic_controller::AdmissionPolicy;
use snic_domain::Caller;
use snic_fleet::placement::PromiseLimits;
use snic_fleet::protocol::{FLEET_PLACEMENT, FleetCommand, FleetPolicies, FleetReply};
use snic_front::fields::{etag, repeat_of};
use snic_front::gate::caller;
use tonic::{Request, Response};

use super::{RpcResult, Services, unexpected};
use crate::placement;

fn wire(of: FleetPolicies) -> wire_v1::Policies {
    let name = |host: &dyn std::fmt::Display| format!("hosts/{host}");
    let refusals = of.refusals.into_iter();
    wire_v1::Policies {
        files: of.files,
        etag: of.meta.map(|meta| meta.etag()).unwrap_or_default(),
        update_time: of.meta.map(|meta| timestamp(meta.updated)),
        hosts_in_force: of.in_force as u64,
        hosts_pending: of.pending as u64,
        pending_hosts: of.pending_hosts.iter().map(|host| name(host)).collect(),
        hosts_refusing: of.refusing as u64,
        refusals: refusals.map(|(host, reason)| Refusal { host: name(&host), reason }).collect(),
    }
}

impl Services {
    async fn policies(&self, caller: &Caller) -> Result<wire_v1::Policies, ApiError> {
        match self.ask(caller, None, FleetCommand::GetPolicies).await? {
            FleetReply::Policies(found) => Ok(wire(*found)),
            other => Err(unexpected(&other)),
        }
    }
}

#[tonic::async_trait]
impl PolicyService for Services {
    async fn get_policies(
        &self,
        request: Request<wire_v1::GetPoliciesRequest>,
    ) -> RpcResult<wire_v1::GetPoliciesResponse> {
        let policies = Some(self.policies(&caller(&request)?).await?);
        Ok(Response::new(wire_v1::GetPoliciesResponse { policies }))
    }

    async fn update_policies(
        &self,
        request: Request<wire_v1::UpdatePoliciesRequest>,
    ) -> RpcResult<wire_v1::UpdatePoliciesResponse> {
        let caller = caller(&request)?;
        let wire_v1::UpdatePoliciesRequest { policies, validate_only, request_id } =
            request.into_inner();
        let wanted = policies.ok_or_else(|| ApiError::required("policies"))?;
        let files = wanted.files;
        let invalid = |error: &dyn std::fmt::Display| {
            ApiError::in_field(ErrorReason::InvalidField, "policies.files", error)
        };
        let mut of_hosts = files.clone();
        let of_fleet = of_hosts.remove(FLEET_PLACEMENT).unwrap_or_default();
        let defaults = placement::defaults(&of_fleet).map_err(|error| invalid(&error))?;
        let settings = snic_policies::check_files(&of_hosts).map_err(|error| invalid(&error))?;
        let AdmissionPolicy { ingress_percent, dag_bandwidth_max, idle_tasks: _ } =
            settings.admission;
        let promises = PromiseLimits { ingress_percent, dag_bandwidth_max };
        let (budgets, etag) = (settings.budgets, etag(&wanted.etag));
        let command = FleetCommand::SetPolicies { files, promises, budgets, defaults, etag };
        let repeat = repeat_of(&request_id)?;
        self.propose(&caller, repeat, validate_only, command).await?;
        let policies = Some(self.policies(&caller).await?);
        Ok(Response::new(wire_v1::UpdatePoliciesResponse { policies }))
    }
}
