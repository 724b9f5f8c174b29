//! The health of devices whose bindings come and go: pool, heartbeat and plugin between a scripted
//! daemon and a scripted kubelet.

use std::collections::BTreeSet;
use std::sync::Arc;

use snic_api::connect::Target;
use snic_api::v1::VmBinding;
use snic_api::v1::vm_binding::State;
use snic_api::words::EnumWord as _;
use snic_integration::fake_daemon::{Answer, FakeDaemon, binding};
use snic_kubernetes::plugin::Plugin;
use snic_kubernetes::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use snic_kubernetes::pod_resources::{
    ContainerDevices, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse,
    PodResources,
};
use snic_kubernetes::pool::DevicePool;
use snic_kubernetes::settings::{ExtendedResource, Settings};
use snic_kubernetes::upkeep::beat;
use snic_kubernetes::v1beta1::device_plugin_server::DevicePlugin as _;
use snic_kubernetes::v1beta1::{AllocateRequest, ContainerAllocateRequest};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::Mutex;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

const RESOURCE: &str = "snic.dev/acme-web";
const DEVICES: u32 = 3;

#[derive(Clone, Default)]
struct Kubelet {
    allocated: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let device_ids = self.allocated.lock().await.clone();
        let devices = vec![ContainerDevices { resource_name: RESOURCE.into(), device_ids }];
        let containers = vec![ContainerResources { devices, ..Default::default() }];
        let pod = PodResources { containers, ..Default::default() };
        Ok(Response::new(ListPodResourcesResponse { pod_resources: vec![pod] }))
    }
}

struct Node {
    folder: TempDir,
    daemon: FakeDaemon,
    kubelet: Kubelet,
}

impl Node {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let daemon = FakeDaemon::start(&folder.path().join("snicd.sock"));
        let kubelet = Kubelet::default();
        let listener = UnixListener::bind(folder.path().join("pods.sock")).expect("a socket");
        let service = PodResourcesListerServer::new(kubelet.clone());
        let serving = Server::builder()
            .add_service(service)
            .serve_with_incoming(UnixListenerStream::new(listener));
        // It ends with the test's runtime.
        tokio::spawn(serving);
        Self { folder, daemon, kubelet }
    }

    /// A plugin as it is after its start.
    fn pool(&self) -> Arc<DevicePool> {
        self.pool_with_kubelet("pods.sock")
    }

    /// The same, with the kubelet's socket elsewhere in the folder.
    fn pool_with_kubelet(&self, socket: &str) -> Arc<DevicePool> {
        let path = self.folder.path();
        let resource = ExtendedResource {
            name: RESOURCE.into(),
            tenant: "acme".into(),
            dags: vec!["web".into()],
            devices: DEVICES,
            ..ExtendedResource::default()
        };
        let settings = Settings {
            daemon: Target {
                endpoint: format!("unix:{}", path.join("snicd.sock").display()),
                ..Target::default()
            }
            .for_program("orchestrator/kubelet"),
            node: "node-1".into(),
            pod_resources: path.join(socket),
            cdi_dir: Some(path.join("cdi")),
            idle_seconds: 3_600,
            ..Settings::default()
        };
        Arc::new(DevicePool::open(&Arc::new(settings), &resource).expect("a folder"))
    }

    async fn allocate(&self, pool: &Arc<DevicePool>, id: &str) -> Result<(), Status> {
        let container = ContainerAllocateRequest { devices_ids: vec![id.into()] };
        let request = AllocateRequest { container_requests: vec![container] };
        Plugin::new(Arc::clone(pool)).allocate(Request::new(request)).await?;
        self.kubelet.allocated.lock().await.push(id.into());
        Ok(())
    }

    /// Sets the bindings that the daemon reports from now on.
    async fn set_bindings(&self, bindings: Vec<VmBinding>) {
        self.daemon.script(|script| script.alive = bindings).await;
    }

    async fn set_allocated(&self, ids: &[&str]) {
        *self.kubelet.allocated.lock().await = ids.iter().map(|id| (*id).into()).collect();
    }

    fn cdi_files(&self, pool: &DevicePool) -> BTreeSet<String> {
        pool.folder.as_ref().expect("configured").uuids().expect("readable")
    }
}

fn uuid(pool: &DevicePool, id: &str) -> String {
    pool.uuid(id).expect("a device")
}

/// The ids of the devices that the kubelet may not allocate.
fn unhealthy(pool: &DevicePool) -> Vec<String> {
    let devices = pool.devices().borrow().clone();
    let unhealthy = devices.into_iter().filter(|device| device.health != "Healthy");
    unhealthy.map(|device| device.id).collect()
}

#[tokio::test]
async fn a_device_whose_binding_is_gone_is_unhealthy_until_no_pod_uses_it() {
    let node = Node::new().await;
    let pool = node.pool();
    beat(&pool).await.expect("the daemon answers");
    node.allocate(&pool, "vf-1").await.expect("bound");
    let of_device = uuid(&pool, "vf-1");
    node.set_bindings(vec![binding(&of_device, State::Bound)]).await;
    beat(&pool).await.expect("the daemon answers");
    assert_eq!(unhealthy(&pool), [""; 0]);
    assert_eq!(node.cdi_files(&pool), BTreeSet::from([of_device]));

    node.set_bindings(vec![]).await;
    for _ in 0..3 {
        beat(&pool).await.expect("the daemon answers");
        assert_eq!(unhealthy(&pool), ["vf-1"]);
        assert_eq!(node.cdi_files(&pool), BTreeSet::new());
    }
    node.set_allocated(&[]).await;
    beat(&pool).await.expect("the daemon answers");
    assert_eq!(unhealthy(&pool), [""; 0]);
}

#[tokio::test]
async fn while_the_kubelet_does_not_answer_a_device_counts_as_used() {
    let node = Node::new().await;
    let pool = node.pool_with_kubelet("nobody-listens.sock");
    node.allocate(&pool, "vf-1").await.expect("bound");
    for _ in 0..2 {
        beat(&pool).await.expect("the daemon answers");
        assert_eq!(unhealthy(&pool), ["vf-1"], "its binding is gone");
    }
}

#[tokio::test]
async fn only_a_bound_binding_keeps_a_device_healthy() {
    let states = [State::Initial, State::BindStarted, State::BindFailed, State::Unbound];
    for state in states {
        let node = Node::new().await;
        let pool = node.pool();
        node.allocate(&pool, "vf-0").await.expect("bound");
        node.set_bindings(vec![binding(&uuid(&pool, "vf-0"), state)]).await;
        beat(&pool).await.expect("the daemon answers");
        assert_eq!(unhealthy(&pool), ["vf-0"], "{state:?}");
        assert_eq!(node.cdi_files(&pool), BTreeSet::new(), "{state:?}");
    }
}

#[tokio::test]
async fn a_binding_that_went_while_the_plugin_did_not_run_is_noticed() {
    let node = Node::new().await;
    node.allocate(&node.pool(), "vf-2").await.expect("bound");
    // The plugin starts again; the pod still uses its device.
    let pool = node.pool();
    beat(&pool).await.expect("the daemon answers");
    assert_eq!(unhealthy(&pool), ["vf-2"]);
    assert_eq!(node.cdi_files(&pool), BTreeSet::new());
    node.set_allocated(&[]).await;
    beat(&pool).await.expect("the daemon answers");
    assert_eq!(unhealthy(&pool), [""; 0]);
}

#[tokio::test]
async fn an_old_file_of_an_unused_device_goes_with_its_binding() {
    let node = Node::new().await;
    for id in ["vf-0", "vf-1"] {
        node.allocate(&node.pool(), id).await.expect("bound");
    }
    node.set_allocated(&[]).await;
    let pool = node.pool();
    let kept = uuid(&pool, "vf-0");
    assert_eq!(node.cdi_files(&pool).len(), 2);
    node.set_bindings(vec![binding(&kept, State::Bound)]).await;
    beat(&pool).await.expect("the daemon answers");
    assert_eq!(node.cdi_files(&pool), BTreeSet::from([kept]));
}

#[tokio::test]
async fn a_device_bound_during_a_heartbeat_is_not_lost() {
    let node = Node::new().await;
    let pool = node.pool();
    node.daemon.script(|script| script.heartbeat = Answer::Held).await;
    let beating = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { beat(&pool).await }
    });
    while node.daemon.heartbeats().await == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        assert!(!beating.is_finished(), "the heartbeat reaches the daemon");
    }
    // The daemon decided its answer before this binding existed.
    node.allocate(&pool, "vf-0").await.expect("bound");
    node.daemon.release();
    beating.await.expect("no panic").expect("the daemon answers");
    assert_eq!(unhealthy(&pool), [""; 0]);
    assert_eq!(node.cdi_files(&pool).len(), 1);
}

#[tokio::test]
async fn a_reply_that_is_not_bound_is_not_an_allocation() {
    for state in [State::Initial, State::BindStarted, State::BindFailed, State::Unbound] {
        let node = Node::new().await;
        let pool = node.pool();
        node.daemon.script(|script| script.bind = Answer::Binding(state)).await;
        let status = node.allocate(&pool, "vf-0").await.expect_err("not bound");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains(state.word()), "{status}");
        assert_eq!(node.cdi_files(&pool), BTreeSet::new());
    }
}
