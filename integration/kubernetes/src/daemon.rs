//! The plugin's calls to the daemon.

use std::time::Duration;

use snic_api::connect::{Connection, Target};
use snic_api::replies::OneItem as _;
use snic_api::text::escaped;
use snic_api::v1::bind_vm_request::Chains;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{
    BindVmRequest, DagNames, GetBindingRequest, HeartbeatRequest, UnbindVmRequest, VmBinding,
};
use snic_api::words::EnumWord as _;
use tokio::sync::Mutex;
use tonic::{Code, Request, Status};

/// Time reserved for the daemon's reply: the caller waits this much longer than the card may take.
const REPLY_MARGIN: Duration = Duration::from_secs(2);
/// Time limit of calls that do not wait for the card.
const ANSWER_MAX: Duration = Duration::from_secs(5);

type Client = OrchestrationServiceClient<Connection>;

/// The chains of a tenant that a device's packets go through.
#[derive(Debug, Clone, Copy)]
pub struct TenantChains<'a> {
    /// The id of the tenant.
    pub tenant: &'a str,
    /// Existing DAGs; a device has one virtual function per DAG. Empty with `template`.
    pub dags: &'a [String],
    /// The DAG that the device gets a private copy of.
    pub template: Option<&'a str>,
}

/// A lazy connection to the daemon, renewed after a call got no answer.
#[derive(Debug)]
pub struct DaemonClient {
    target: Target,
    bind_within: Duration,
    lease: Option<Duration>,
    client: Mutex<Option<Client>>,
}

/// Whether a status means that the daemon did not reply, rather than that it rejected the call.
pub fn is_down(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Cancelled
    )
}

impl DaemonClient {
    /// With this address, time limit for binding, and lease of bindings; without a lease they stay until they are unbound.
    /// Connects with the first call.
    pub fn new(target: &Target, bind_within: Duration, lease: Option<Duration>) -> Self {
        Self { target: target.clone(), bind_within, lease, client: Mutex::default() }
    }

    async fn client(&self) -> Result<Client, Status> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let connection = self.target.connect().await.map_err(|error| {
            Status::unavailable(format!("the SmartNIC daemon cannot be reached: {error}"))
        })?;
        Ok(client.insert(OrchestrationServiceClient::new(connection)).clone())
    }

    /// Adds the daemon as the source of an error, and drops a connection that gave no answer.
    async fn answer<T>(&self, result: Result<tonic::Response<T>, Status>) -> Result<T, Status> {
        match result {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) if is_down(&status) => {
                self.client.lock().await.take();
                let text = escaped(status.message());
                Err(Status::unavailable(format!("the SmartNIC daemon does not answer: {text}")))
            }
            Err(status) => {
                let text =
                    // The kubelet shows it to whoever looks at the pod.
                    format!("the SmartNIC daemon rejected the request: {}", escaped(status.message()));
                Err(Status::new(status.code(), text))
            }
        }
    }

    /// Binds a device, and waits until the card serves it. Repeating a bind changes nothing.
    ///
    /// # Errors
    /// The daemon's status; UNAVAILABLE where it does not answer, or answers with a binding that is
    /// not bound.
    pub async fn bind(&self, uuid: &str, chains: TenantChains<'_>) -> Result<VmBinding, Status> {
        let tenant = format!("tenants/{}", chains.tenant);
        let dag = |dag: &str| format!("{tenant}/dags/{dag}");
        let chains = match chains.template {
            Some(template) => Chains::Template(dag(template)),
            None => Chains::Dags(DagNames { names: chains.dags.iter().map(|d| dag(d)).collect() }),
        };
        let mut request = Request::new(BindVmRequest {
            vm: uuid.to_owned(),
            tenant,
            chains: Some(chains),
            functions: 0,
            ready_within: prost_types::Duration::try_from(self.bind_within).ok(),
            lease: self.lease.and_then(|lease| prost_types::Duration::try_from(lease).ok()),
            ..Default::default()
        });
        request.set_timeout(self.bind_within + REPLY_MARGIN);
        let reply = self.client().await?.bind_vm(request).await;
        let binding = self.answer(reply).await?.into_item()?;
        if binding.state() != State::Bound {
            let (name, state) = (&binding.name, binding.state().word());
            let text = format!("{name} is in state {state}, expected BOUND; try again");
            return Err(Status::unavailable(text));
        }
        Ok(binding)
    }

    /// Unbinds a device. A device without a binding is no error.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub async fn unbind(&self, uuid: &str, tenant: &str) -> Result<(), Status> {
        let tenant = format!("tenants/{tenant}");
        let mut request =
            Request::new(UnbindVmRequest { vm: uuid.to_owned(), tenant, ..Default::default() });
        request.set_timeout(ANSWER_MAX);
        let reply = self.client().await?.unbind_vm(request).await;
        match self.answer(reply).await {
            Err(status) if status.code() != Code::NotFound => Err(status),
            _ => Ok(()),
        }
    }

    /// Reports that devices are alive; returns their bindings.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub async fn heartbeat(&self, uuids: Vec<String>) -> Result<Vec<VmBinding>, Status> {
        let mut request = Request::new(HeartbeatRequest { vms: uuids });
        request.set_timeout(ANSWER_MAX);
        let reply = self.client().await?.heartbeat(request).await;
        Ok(self.answer(reply).await?.alive)
    }

    /// The binding of a device, if it is bound.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub async fn bound(&self, uuid: &str) -> Result<Option<VmBinding>, Status> {
        let mut request = Request::new(GetBindingRequest { name: format!("vmBindings/{uuid}") });
        request.set_timeout(ANSWER_MAX);
        let reply = self.client().await?.get_binding(request).await;
        match self.answer(reply).await {
            Ok(reply) => Ok(Some(reply.into_item()?).filter(|b| b.state() == State::Bound)),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }
}
