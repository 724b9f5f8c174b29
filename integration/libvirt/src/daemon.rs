//! The hook's calls to the daemon.

use std::time::Duration;

use snic_api::connect::{ConnectError, Connection, Target};
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::bind_vm_request::Chains as WireChains;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::{
    BindVmRequest, DagNames, ErrorReason, HeartbeatRequest, UnbindVmRequest, VmBinding,
};
use tonic::{Code, Request, Status};
use uuid::Uuid;

use crate::domain::{Chains, RequestedBinding};

/// Time reserved for the daemon's reply: the card gets the caller's time minus this.
const REPLY_MARGIN: Duration = Duration::from_secs(2);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon did not answer: it may or may not have carried out the request.
    #[error("the SmartNIC daemon cannot be reached: {0}")]
    Unreachable(String),
    /// The daemon is too busy and asks to try again later: nothing was done.
    #[error("the SmartNIC daemon is overloaded: {0}")]
    Overloaded(String),
    /// The daemon rejected the request.
    #[error("the SmartNIC daemon rejected the request: {0}")]
    Rejected(String),
}

impl CallError {
    /// Whether the same request may succeed later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Overloaded(_))
    }
}

impl From<ConnectError> for CallError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable { .. } => Self::Unreachable(error.to_string()),
            ConnectError::Settings { .. } | ConnectError::Read { .. } => {
                Self::Rejected(error.to_string())
            }
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let text = status.message().to_owned();
        match status.code() {
            // Also a broken connection, and a deadline that passed on this side.
            Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Cancelled => {
                Self::Unreachable(text)
            }
            _ if reason_of(&status) == Some(ErrorReason::Overloaded) => Self::Overloaded(text),
            _ => Self::Rejected(text),
        }
    }
}

/// A connection to the daemon.
pub struct DaemonClient(OrchestrationServiceClient<Connection>);

impl DaemonClient {
    /// Connects.
    ///
    /// # Errors
    /// [`CallError::Unreachable`] where nobody answers, [`CallError::Rejected`] where the settings
    /// are unusable.
    pub async fn connect(target: &Target) -> Result<Self, CallError> {
        Ok(Self(OrchestrationServiceClient::new(target.connect().await?)))
    }

    /// Binds a domain; waits until the card serves it, or `within` has passed.
    ///
    /// # Errors
    /// [`CallError`]; after [`CallError::Unreachable`] the domain may be bound all the same.
    pub async fn bind(
        &mut self,
        uuid: Uuid,
        spec: &RequestedBinding,
        within: Duration,
    ) -> Result<VmBinding, CallError> {
        let dag = |dag: &String| format!("tenants/{}/dags/{dag}", spec.tenant);
        let chains = match &spec.chains {
            Chains::Dags(dags) => {
                WireChains::Dags(DagNames { names: dags.iter().map(dag).collect() })
            }
            Chains::Template(template) => WireChains::Template(dag(template)),
        };
        let ready_within = within.saturating_sub(REPLY_MARGIN).max(within / 2);
        let mut request = Request::new(BindVmRequest {
            vm: uuid.to_string(),
            tenant: format!("tenants/{}", spec.tenant),
            chains: Some(chains),
            functions: spec.functions,
            ready_within: prost_types::Duration::try_from(ready_within).ok(),
            lease: spec.lease_seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
            mac_addresses: spec.mac_addresses.clone(),
            ..Default::default()
        });
        request.set_timeout(within);
        Ok(self.0.bind_vm(request).await.item()?)
    }

    /// Unbinds a domain. A domain without a binding is no error.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn unbind(
        &mut self,
        uuid: Uuid,
        tenant: Option<&str>,
        within: Duration,
    ) -> Result<(), CallError> {
        let tenant = tenant.map(|tenant| format!("tenants/{tenant}")).unwrap_or_default();
        let mut request =
            Request::new(UnbindVmRequest { vm: uuid.to_string(), tenant, ..Default::default() });
        request.set_timeout(within);
        match self.0.unbind_vm(request).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(status.into()),
        }
    }

    /// Reports which domains run; returns those that have no binding.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn heartbeat(
        &mut self,
        running: Vec<Uuid>,
        within: Duration,
    ) -> Result<Vec<Uuid>, CallError> {
        let vms = running.iter().map(Uuid::to_string).collect();
        let mut request = Request::new(HeartbeatRequest { vms });
        request.set_timeout(within);
        let missing = self.0.heartbeat(request).await?.into_inner().missing;
        Ok(missing.iter().filter_map(|uuid| Uuid::try_parse(uuid).ok()).collect())
    }
}
