//! A scripted daemon: the orchestration service on a unix socket, to test how hooks react when a
//! reply is late, lost or unexpected. It keeps no state beyond its script and the calls it
//! received.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use snic_api::v1::orchestration_service_server::{
    OrchestrationService, OrchestrationServiceServer,
};
use snic_api::v1::vm_binding::State;
use snic_api::v1::{
    BindVmRequest, BindVmResponse, BoundFunction, GetBindingRequest, GetBindingResponse,
    HeartbeatRequest, HeartbeatResponse, ListBindingsRequest, ListBindingsResponse,
    UnbindVmRequest, UnbindVmResponse, VmBinding, WatchBindingsRequest, WatchBindingsResponse,
};
use tokio::net::UnixListener;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Longest wait of a test for a call before it fails.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A call that the fake daemon received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// BindVm, by UUID.
    Bind(String),
    /// UnbindVm: UUID and tenant, which is empty where the caller named none.
    Unbind(String, String),
    Heartbeat,
}

/// Answer of the fake daemon to one method.
#[derive(Debug, Clone, Default)]
pub enum Answer {
    /// Like a daemon whose card has done everything.
    #[default]
    Done,
    /// A binding in this state, with its functions.
    Binding(State),
    Silence,
    /// With this status.
    Status(Status),
    /// As [`Answer::Done`], but only after [`FakeDaemon::release`].
    Held,
}

/// The daemon's replies from now on.
#[derive(Debug, Default)]
pub struct Script {
    pub bind: Answer,
    pub unbind: Answer,
    /// To Heartbeat; [`Answer::Done`] reports exactly `alive`.
    pub heartbeat: Answer,
    /// The bindings of the replies to Heartbeat and GetBinding.
    pub alive: Vec<VmBinding>,
    /// The events of WatchBindings; then the stream stays open.
    pub events: Vec<WatchBindingsResponse>,
}

#[derive(Debug, Default)]
struct Shared {
    script: Mutex<Script>,
    calls: Mutex<Vec<Call>>,
    released: watch::Sender<bool>,
}

/// A running fake daemon; stops when dropped.
#[derive(Debug)]
pub struct FakeDaemon {
    socket: PathBuf,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.server.abort();
        // A test that starts the next one on the same path removes it otherwise.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A binding in this state, with one function.
pub fn binding(uuid: &str, state: State) -> VmBinding {
    let dag = "tenants/acme/dags/web".to_owned();
    VmBinding {
        name: format!("vmBindings/{uuid}"),
        tenant: "tenants/acme".into(),
        state: state.into(),
        functions: vec![BoundFunction {
            card: "cards/card0".into(),
            virtual_function: 0,
            pci_address: "0000:3b:00.1".into(),
            mac_address: "02:1f:c4:77:00:00".into(),
            dag,
            programmed: state == State::Bound,
            ..Default::default()
        }],
        ..Default::default()
    }
}

impl FakeDaemon {
    /// Listens at this path, and replies to every call as a healthy daemon would.
    ///
    /// # Panics
    /// Where the socket cannot be made.
    pub fn start(socket: &Path) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).expect("the folder takes a socket");
        let shared = Arc::<Shared>::default();
        let service = OrchestrationServiceServer::new(Service(Arc::clone(&shared)));
        let router = Server::builder().add_service(service);
        let serving = router.serve_with_incoming(UnixListenerStream::new(listener));
        let server = tokio::spawn(async move { serving.await.expect("it serves") });
        Self { socket: socket.to_owned(), shared, server }
    }

    /// Replaces the replies from now on.
    pub async fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut *self.shared.script.lock().await);
    }

    /// Sends the replies that were held back.
    pub fn release(&self) {
        self.shared.released.send_replace(true);
    }

    /// The calls so far, heartbeats left out.
    pub async fn calls(&self) -> Vec<Call> {
        let calls = self.shared.calls.lock().await.clone();
        calls.into_iter().filter(|call| *call != Call::Heartbeat).collect()
    }

    /// Number of heartbeats.
    pub async fn heartbeats(&self) -> usize {
        let calls = self.shared.calls.lock().await;
        calls.iter().filter(|call| **call == Call::Heartbeat).count()
    }

    /// Waits for this many heartbeats from now on.
    ///
    /// # Panics
    /// They do not arrive in time.
    pub async fn next_heartbeats(&self, count: usize) {
        let (target, until) = (self.heartbeats().await + count, Instant::now() + WAIT_MAX);
        while self.heartbeats().await < target {
            assert!(Instant::now() < until, "no {count} heartbeats within {WAIT_MAX:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Service(Arc<Shared>);

impl Service {
    async fn answer(&self, answer: Answer, uuid: &str, done: State) -> Result<VmBinding, Status> {
        match answer {
            Answer::Done => Ok(binding(uuid, done)),
            Answer::Binding(state) => Ok(binding(uuid, state)),
            Answer::Silence => std::future::pending().await,
            Answer::Status(status) => Err(status),
            Answer::Held => {
                let mut released = self.0.released.subscribe();
                released.wait_for(|is_released| *is_released).await.expect("the sender is shared");
                Ok(binding(uuid, done))
            }
        }
    }

    async fn received(&self, call: Call) {
        self.0.calls.lock().await.push(call);
    }
}

#[tonic::async_trait]
impl OrchestrationService for Service {
    async fn bind_vm(
        &self,
        request: Request<BindVmRequest>,
    ) -> Result<Response<BindVmResponse>, Status> {
        let request = request.into_inner();
        self.received(Call::Bind(request.vm.clone())).await;
        let answer = self.0.script.lock().await.bind.clone();
        self.answer(answer, &request.vm, State::Bound)
            .await
            .map(|binding| Response::new(binding.into()))
    }

    async fn unbind_vm(
        &self,
        request: Request<UnbindVmRequest>,
    ) -> Result<Response<UnbindVmResponse>, Status> {
        let request = request.into_inner();
        self.received(Call::Unbind(request.vm.clone(), request.tenant)).await;
        let answer = self.0.script.lock().await.unbind.clone();
        self.answer(answer, &request.vm, State::Unbound)
            .await
            .map(|binding| Response::new(binding.into()))
    }

    async fn get_binding(
        &self,
        request: Request<GetBindingRequest>,
    ) -> Result<Response<GetBindingResponse>, Status> {
        let name = request.into_inner().name;
        let alive = self.0.script.lock().await.alive.clone();
        let found = alive.into_iter().find(|binding| binding.name == name);
        found.map(|binding| Response::new(binding.into())).ok_or_else(|| Status::not_found(name))
    }

    async fn list_bindings(
        &self,
        _: Request<ListBindingsRequest>,
    ) -> Result<Response<ListBindingsResponse>, Status> {
        Err(Status::unimplemented("no hook lists bindings"))
    }

    type WatchBindingsStream = ReceiverStream<Result<WatchBindingsResponse, Status>>;

    async fn watch_bindings(
        &self,
        _: Request<WatchBindingsRequest>,
    ) -> Result<Response<Self::WatchBindingsStream>, Status> {
        let events = self.0.script.lock().await.events.clone();
        let (sender, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            for event in events {
                if sender.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            sender.closed().await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        let (answer, alive) = {
            let script = self.0.script.lock().await;
            (script.heartbeat.clone(), script.alive.clone())
        };
        self.received(Call::Heartbeat).await;
        // The content of a held heartbeat was decided before it was held, as on a slow network.
        self.answer(answer, "", State::Bound).await?;
        let is_alive = |uuid: &String| alive.iter().any(|b| b.name.ends_with(uuid.as_str()));
        let missing = request.into_inner().vms.into_iter().filter(|uuid| !is_alive(uuid));
        Ok(Response::new(HeartbeatResponse {
            missing: missing.collect(),
            alive,
            unreachable_hosts: Vec::new(),
        }))
    }
}
