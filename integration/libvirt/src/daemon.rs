//! What the hook asks of the daemon.

use std::time::Duration;

use snic_api::connect::{ConnectError, Connection, Target};
use snic_api::v1::bind_vm_request::Chains as Wire;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::{BindVmRequest, DagNames, HeartbeatRequest, UnbindVmRequest, VmBinding};
use tonic::{Code, Request, Status};

use crate::domain::{Chains, Wish};

/// What the answer of the daemon is given beyond the time the card has.
const MARGIN: Duration = Duration::from_secs(2);

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The daemon does not answer: what was wished may be fine.
    #[error("the SmartNIC's daemon cannot be reached: {0}")]
    Down(String),
    /// The daemon refused.
    #[error("the SmartNIC's daemon refused: {0}")]
    Refused(String),
}

impl From<ConnectError> for Problem {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable { .. } => Self::Down(error.to_string()),
            ConnectError::Settings { .. } | ConnectError::Read { .. } => {
                Self::Refused(error.to_string())
            }
        }
    }
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        match status.code() {
            // Also of a connection that broke off, and of a deadline that passed on this side.
            Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Cancelled => {
                Self::Down(status.message().to_owned())
            }
            _ => Self::Refused(status.message().to_owned()),
        }
    }
}

/// A connection.
pub struct Daemon(OrchestrationServiceClient<Connection>);

impl Daemon {
    /// Connects.
    ///
    /// # Errors
    /// [`Problem::Down`] where nobody answers.
    pub async fn connect(target: &Target) -> Result<Self, Problem> {
        Ok(Self(OrchestrationServiceClient::new(target.connect().await?)))
    }

    /// Binds a domain; waits until the card serves it, or `within` has passed.
    pub async fn bind(
        &mut self,
        uuid: &str,
        wish: &Wish,
        within: Duration,
    ) -> Result<VmBinding, Problem> {
        let dag = |dag: &String| format!("tenants/{}/dags/{dag}", wish.tenant);
        let chains = match &wish.chains {
            Chains::Dags(dags) => Wire::Dags(DagNames { names: dags.iter().map(dag).collect() }),
            Chains::Template(template) => Wire::Template(dag(template)),
        };
        let ready_within = within.saturating_sub(MARGIN).max(within / 2);
        let mut request = Request::new(BindVmRequest {
            vm: uuid.to_owned(),
            tenant: format!("tenants/{}", wish.tenant),
            chains: Some(chains),
            functions: wish.functions,
            ready_within: prost_types::Duration::try_from(ready_within).ok(),
            lease: wish.lease_seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
        });
        request.set_timeout(within);
        Ok(self.0.bind_vm(request).await?.into_inner())
    }

    /// Gives back what a domain has. One that has nothing is fine too.
    pub async fn unbind(
        &mut self,
        uuid: &str,
        tenant: Option<&str>,
        within: Duration,
    ) -> Result<(), Problem> {
        let tenant = tenant.map(|tenant| format!("tenants/{tenant}")).unwrap_or_default();
        let mut request = Request::new(UnbindVmRequest { vm: uuid.to_owned(), tenant });
        request.set_timeout(within);
        match self.0.unbind_vm(request).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(status.into()),
        }
    }

    /// Says which domains run; gives those that have nothing.
    pub async fn heartbeat(
        &mut self,
        vms: Vec<String>,
        within: Duration,
    ) -> Result<Vec<String>, Problem> {
        let mut request = Request::new(HeartbeatRequest { vms });
        request.set_timeout(within);
        Ok(self.0.heartbeat(request).await?.into_inner().missing)
    }
}
