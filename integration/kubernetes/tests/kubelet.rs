//! The plugin between a daemon and a kubelet, which follows the published interfaces and nothing
//! else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snic_api::connect::Target;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{ListBindingsRequest, UnbindVmRequest, VmBinding};
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_integration::{Home, TestClient};
use snic_kubernetes::PluginError;
use snic_kubernetes::kubelet::KubeletError;
use snic_kubernetes::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use snic_kubernetes::pod_resources::{
    ContainerDevices, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse,
    PodResources,
};
use snic_kubernetes::settings::{ExtendedResource, Settings};
use snic_kubernetes::v1beta1::device_plugin_client::DevicePluginClient;
use snic_kubernetes::v1beta1::registration_server::{Registration, RegistrationServer};
use snic_kubernetes::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Device, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreferredAllocationRequest, RegisterRequest,
};
use tokio::net::UnixListener;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};

const RESOURCE: &str = "snic.dev/acme-web";
/// More than the card has functions.
const DEVICES: u32 = 12;
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it comes to an end")
}

/// The kubelet's side.
#[derive(Clone)]
struct Answers {
    registered: mpsc::Sender<RegisterRequest>,
    refuses: bool,
    pods: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl Registration for Answers {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        if self.refuses {
            return Err(Status::invalid_argument("version v1beta1 is not supported"));
        }
        self.registered.send(request.into_inner()).await.expect("the test listens");
        Ok(Response::new(Empty {}))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Answers {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let devices = |resource: &str, device_ids: Vec<String>| ContainerDevices {
            resource_name: resource.into(),
            device_ids,
        };
        let ours = devices(RESOURCE, self.pods.lock().await.clone());
        let others = devices("vendor.example/gpu", vec!["vf-1".into()]);
        let container = ContainerResources { name: "main".into(), devices: vec![others, ours] };
        let pod = PodResources { containers: vec![container], ..Default::default() };
        Ok(Response::new(ListPodResourcesResponse { pod_resources: vec![pod] }))
    }
}

/// A node: daemon, folder, kubelet.
struct Node {
    home: Home,
    folder: PathBuf,
    answers: Answers,
    registrations: mpsc::Receiver<RegisterRequest>,
    servers: Vec<JoinHandle<()>>,
}

fn listener(path: &Path) -> UnixListenerStream {
    UnixListenerStream::new(UnixListener::bind(path).expect("a socket"))
}

impl Node {
    fn new() -> Self {
        let home = Home::new();
        let folder = home.path().join("device-plugins");
        std::fs::create_dir(&folder).expect("a folder");
        let (registered, registrations) = mpsc::channel(8);
        let answers = Answers { registered, refuses: false, pods: Arc::default() };
        let servers = Vec::new();
        Self { home, folder, answers, registrations, servers }
    }

    /// The daemon, with a tenant that has a DAG.
    async fn daemon(&self) -> snic_integration::DaemonProcess {
        let daemon = self.home.start().await;
        let client = self.operator().await;
        if client.create_tenant("acme").await.is_ok() {
            let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
            client.register(&catalogue).await;
            let nat = "nat".parse().expect("an NT type");
            let spec = DagSpec::chain(&[nat], Bandwidth::from_gbps(1));
            let (tenant, dag) = ("acme".parse().expect("a label"), "web".parse().expect("a label"));
            client.create_dag(&DagName { tenant, dag }, &spec).await.expect("there is room");
        }
        daemon
    }

    async fn operator(&self) -> TestClient {
        TestClient::connect(&self.home.socket(), "operator/test").await.expect("it serves")
    }

    fn settings(&self) -> Settings {
        let resource = ExtendedResource {
            name: RESOURCE.into(),
            tenant: "acme".into(),
            dags: vec!["web".into()],
            devices: DEVICES,
            ..ExtendedResource::default()
        };
        Settings {
            daemon: Target {
                endpoint: format!("unix:{}", self.home.socket().display()),
                identity: Some("orchestrator/kubelet".into()),
                ..Target::default()
            },
            node: "node-1".into(),
            kubelet_dir: self.folder.clone(),
            pod_resources: self.home.path().join("pods.sock"),
            cdi_dir: Some(self.home.path().join("cdi")),
            heartbeat_seconds: 1,
            lease_seconds: 60,
            idle_seconds: 0,
            resources: vec![resource],
            ..Settings::default()
        }
    }

    /// A kubelet starts: it clears its folder and listens.
    fn kubelet(&mut self) {
        self.servers.drain(..).for_each(|server| server.abort());
        for entry in std::fs::read_dir(&self.folder).expect("the folder").flatten() {
            std::fs::remove_file(entry.path()).expect("a socket of before");
        }
        let registration = Server::builder()
            .add_service(RegistrationServer::new(self.answers.clone()))
            .serve_with_incoming(listener(&self.folder.join("kubelet.sock")));
        let pods = self.home.path().join("pods.sock");
        let _ = std::fs::remove_file(&pods);
        let lister = Server::builder()
            .add_service(PodResourcesListerServer::new(self.answers.clone()))
            .serve_with_incoming(listener(&pods));
        self.servers.push(tokio::spawn(async move { registration.await.expect("it serves") }));
        self.servers.push(tokio::spawn(async move { lister.await.expect("it serves") }));
    }

    async fn registration(&mut self) -> RegisterRequest {
        in_time(self.registrations.recv()).await.expect("a registration")
    }

    /// A plugin that registers, and the kubelet's connection to it.
    async fn plugin(&mut self) -> DevicePluginClient<Channel> {
        let request = self.registration().await;
        let socket = self.folder.join(&request.endpoint);
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()));
        let channel = endpoint.expect("a path").connect().await.expect("it serves already");
        DevicePluginClient::new(channel)
    }

    async fn set_pods(&self, ids: &[&str]) {
        *self.answers.pods.lock().await = ids.iter().map(|id| (*id).to_owned()).collect();
    }

    /// The bindings that are bound.
    async fn bound(&self) -> Vec<VmBinding> {
        let request = ListBindingsRequest { parent: "tenants/-".into(), ..Default::default() };
        let reply = self.operator().await.machines().list_bindings(request).await.expect("a list");
        let all = reply.into_inner().bindings.into_iter();
        all.filter(|binding| binding.state() == State::Bound).collect()
    }

    async fn until_bound(&self, count: usize) {
        in_time(async {
            while self.bound().await.len() != count {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }

    fn cdi_files(&self) -> usize {
        std::fs::read_dir(self.home.path().join("cdi")).expect("the folder").count()
    }
}

type Devices = Streaming<ListAndWatchResponse>;

/// Reads lists until one has this many healthy devices.
async fn until_healthy(devices: &mut Devices, count: usize) -> Vec<Device> {
    in_time(async {
        loop {
            let list = devices.message().await.expect("a list").expect("it goes on").devices;
            assert_eq!(list.len(), DEVICES as usize, "all of them, always");
            if list.iter().filter(|device| device.health == "Healthy").count() == count {
                return list;
            }
        }
    })
    .await
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

async fn allocate(
    plugin: &mut DevicePluginClient<Channel>,
    devices: Vec<String>,
) -> Result<ContainerAllocateResponse, Status> {
    let container_requests = vec![ContainerAllocateRequest { devices_ids: devices }];
    let reply = in_time(plugin.allocate(AllocateRequest { container_requests })).await?;
    let mut replies = reply.into_inner().container_responses;
    assert_eq!(replies.len(), 1, "one for each container");
    Ok(replies.remove(0))
}

async fn pre_start(plugin: &mut DevicePluginClient<Channel>, id: &str) -> Result<(), Status> {
    let request = PreStartContainerRequest { devices_ids: ids(&[id]) };
    in_time(plugin.pre_start_container(request)).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_gets_functions_and_gives_them_back() {
    let mut node = Node::new();
    let daemon = node.daemon().await;
    node.kubelet();
    let running = tokio::spawn(snic_kubernetes::run(node.settings()));
    let request = node.registration().await;
    assert_eq!((&*request.version, &*request.resource_name), ("v1beta1", RESOURCE));
    assert!(!request.endpoint.contains('/'), "{}", request.endpoint);
    let options = request.options.expect("options");
    node.kubelet();
    let mut plugin = node.plugin().await;
    let told = plugin.get_device_plugin_options(Empty {}).await.expect("options").into_inner();
    assert_eq!(told, options);
    let mut devices = plugin.list_and_watch(Empty {}).await.expect("a stream").into_inner();
    let list = until_healthy(&mut devices, DEVICES as usize).await;
    assert!(list.iter().all(|device| device.id.len() <= 63));

    node.set_pods(&["vf-3", "vf-4"]).await;
    let given = allocate(&mut plugin, ids(&["vf-3", "vf-4"])).await.expect("there is room");
    let bound = node.bound().await;
    let mut names: Vec<String> = given.cdi_devices.into_iter().map(|device| device.name).collect();
    let mut expected: Vec<String> = bound.iter().flat_map(snic_cdi::names).collect();
    names.sort();
    expected.sort();
    assert_eq!((names.len(), names), (2, expected));
    assert!(
        bound.iter().all(|binding| binding.tenant == "tenants/acme" && binding.lease.is_some())
    );
    assert_eq!(node.cdi_files(), 2);
    pre_start(&mut plugin, "vf-3").await.expect("it is bound");
    allocate(&mut plugin, ids(&["vf-3", "vf-4"])).await.expect("it is repeated");
    assert_eq!(node.bound().await.len(), 2);

    // A device that is bound already is preferred, since allocating it takes no work.
    let preferred = PreferredAllocationRequest {
        container_requests: vec![ContainerPreferredAllocationRequest {
            available_device_i_ds: ids(&["vf-10", "vf-2", "vf-4", "vf-7"]),
            must_include_device_i_ds: ids(&["vf-7"]),
            allocation_size: 3,
        }],
    };
    let preferred = plugin.get_preferred_allocation(preferred).await.expect("a choice");
    let preferred = preferred.into_inner().container_responses.remove(0).device_i_ds;
    assert_eq!(preferred, ["vf-7", "vf-4", "vf-2"]);

    // A pod ends, and nobody notifies the plugin.
    node.set_pods(&["vf-3"]).await;
    node.until_bound(1).await;
    in_time(async {
        while node.cdi_files() != 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let unknown = allocate(&mut plugin, ids(&["vf-99"])).await.expect_err("no such device");
    assert_eq!(unknown.code(), Code::NotFound);
    running.abort();
    let _ = daemon.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_that_starts_anew_is_registered_at_again() {
    let mut node = Node::new();
    let daemon = node.daemon().await;
    // The plugin starts first.
    let running = tokio::spawn(snic_kubernetes::run(node.settings()));
    for _ in 0..3 {
        node.kubelet();
        let mut plugin = node.plugin().await;
        let mut devices = plugin.list_and_watch(Empty {}).await.expect("a stream").into_inner();
        until_healthy(&mut devices, DEVICES as usize).await;
    }
    node.answers.refuses = true;
    node.kubelet();
    let error = in_time(running).await.expect("no panic").expect_err("it is not wanted");
    assert!(matches!(error, PluginError::Kubelet(KubeletError::Refused { .. })), "{error}");
    assert!(error.to_string().contains("is not supported"), "{error}");
    let _ = daemon.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_daemon_or_functions_the_answer_is_a_reason() {
    let mut node = Node::new();
    node.kubelet();
    let settings = Settings { cdi_dir: None, ..node.settings() };
    let running = tokio::spawn(snic_kubernetes::run(settings));
    let mut plugin = node.plugin().await;
    let mut devices = plugin.list_and_watch(Empty {}).await.expect("a stream").into_inner();
    until_healthy(&mut devices, 0).await;
    let refused = allocate(&mut plugin, ids(&["vf-0"])).await.expect_err("nobody is there");
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("cannot be reached"), "{refused}");

    let daemon = node.daemon().await;
    until_healthy(&mut devices, DEVICES as usize).await;
    node.set_pods(&["vf-0"]).await;
    let given = allocate(&mut plugin, ids(&["vf-0"])).await.expect("there is room");
    let (name, value) = given.envs.iter().next().expect("environment");
    assert!(name.starts_with("SNIC_VF_0000_3B_00_"), "{name}");
    assert!(value.contains("dag=tenants/acme/dags/web,uid="), "{value}");
    assert_eq!(given.cdi_devices, [], "there is no folder for them");

    // The card has eight functions: all of a request or nothing.
    let many: Vec<String> = (1..DEVICES).map(|n| format!("vf-{n}")).collect();
    let refused = allocate(&mut plugin, many).await.expect_err("too many");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("function"), "{refused}");
    node.until_bound(1).await;

    // The daemon goes and comes back: the binding is the same.
    let before = node.bound().await;
    let _ = daemon.kill();
    until_healthy(&mut devices, 0).await;
    let daemon = node.daemon().await;
    until_healthy(&mut devices, DEVICES as usize).await;
    node.until_bound(1).await;
    assert_eq!(node.bound().await[0].functions, before[0].functions);

    // An operator unbinds the device under the pod: no other pod gets it until this one ends.
    let uuid = snic_cdi::uuid_of(&before[0]).to_owned();
    let request = UnbindVmRequest { vm: uuid, tenant: String::new(), ..Default::default() };
    node.operator().await.machines().unbind_vm(request).await.expect("unbound");
    let refused = pre_start(&mut plugin, "vf-0").await.expect_err("it has nothing");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    until_healthy(&mut devices, DEVICES as usize - 1).await;
    node.set_pods(&[]).await;
    until_healthy(&mut devices, DEVICES as usize).await;
    running.abort();
    let _ = daemon.kill();
}

#[tokio::test]
async fn wrong_settings_and_a_missing_folder_are_said_at_the_start() {
    let node = Node::new();
    let mut settings = node.settings();
    settings.resources[0].name = "kubernetes.io/web".into();
    let error = snic_kubernetes::run(settings).await.expect_err("reserved");
    assert!(error.to_string().contains("resources[0].name"), "{error}");
    let settings = Settings { kubelet_dir: "/nonexistent".into(), ..node.settings() };
    let error = in_time(snic_kubernetes::run(settings)).await.expect_err("no folder");
    assert!(error.to_string().contains("/nonexistent"), "{error}");
}
