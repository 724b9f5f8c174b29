//! Virtual machines, as an orchestrator sees them.

use std::time::Duration;

use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::bind_vm_request::Chains;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{self, ErrorReason, EventType};
use snic_card_sim::Faults;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::rig::{Rig, chain, in_time};

const VM: &str = "123e4567-e89b-42d3-a456-426614174000";
const OTHER: &str = "00000000-0000-4000-8000-000000000001";
const WEB: &str = "tenants/acme/dags/web";

struct Machines(OrchestrationServiceClient<Channel>);

impl Machines {
    async fn of(rig: &Rig, who: &str) -> Self {
        Self(OrchestrationServiceClient::new(rig.client(who).await.channel))
    }

    async fn bind(&mut self, request: v1::BindVmRequest) -> Result<v1::VmBinding, Status> {
        in_time(self.0.bind_vm(request)).await.item()
    }

    async fn unbind(&mut self, vm: &str) -> Result<v1::VmBinding, Status> {
        let request = v1::UnbindVmRequest {
            vm: vm.into(),
            tenant: "tenants/acme".into(),
            ..Default::default()
        };
        self.0.unbind_vm(request).await.item()
    }
}

fn request(vm: &str) -> v1::BindVmRequest {
    v1::BindVmRequest {
        vm: vm.into(),
        tenant: "tenants/acme".into(),
        chains: Some(Chains::Dags(v1::DagNames { names: vec![WEB.into()] })),
        functions: 2,
        ..Default::default()
    }
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

#[tokio::test]
async fn a_machine_is_bound_when_the_reply_comes() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    // The DAG has only been submitted: the reply waits for it.
    operator.create_dag(WEB, chain(&["nat"])).await.expect("there is room");
    let mut libvirt = Machines::of(&rig, "orchestrator/libvirt").await;
    let bound = libvirt.bind(request(VM)).await.expect("bound");
    assert_eq!(bound.state(), State::Bound);
    assert_eq!(bound.name, format!("vmBindings/{VM}"));
    let dag = operator.get_dag(WEB).await.expect("the DAG");
    assert_eq!(dag.state(), v1::dag::State::Ready);
    assert_eq!((bound.dags[0].uid, bound.dags[0].state), (dag.uid, dag.state));
    let addresses: Vec<_> = bound.functions.iter().map(|f| f.pci_address.as_str()).collect();
    assert_eq!(addresses, ["0000:3b:00.1", "0000:3b:00.2"]);
    assert!(bound.functions.iter().all(|f| f.programmed && f.mac_address.starts_with("02:")));
    assert_eq!(libvirt.bind(request(VM)).await.expect("again"), bound);
    let get = v1::GetBindingRequest { name: bound.name.clone() };
    assert_eq!(libvirt.0.get_binding(get).await.item().expect("there"), bound);

    let ended = libvirt.unbind(VM).await.expect("unbound");
    assert_eq!((ended.state(), ended.functions.len()), (State::Unbound, 0));
    assert_eq!(libvirt.unbind(VM).await.expect("again").state(), State::Unbound);
    assert_eq!(libvirt.unbind(OTHER).await.expect_err("never bound").code(), Code::NotFound);
    rig.stop().await;
}

#[tokio::test]
async fn a_binding_that_does_not_fit_is_refused_and_undone() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let mut libvirt = Machines::of(&rig, "orchestrator/libvirt").await;
    // The card has eight functions.
    let chains = Some(Chains::Template(WEB.into()));
    let greedy = v1::BindVmRequest { functions: 9, chains, ..request(VM) };
    let status = libvirt.bind(greedy).await.expect_err("too many");
    assert_eq!(reason_of(&status), Some(ErrorReason::InsufficientCapacity));
    assert!(status.message().contains("virtual functions of cards/card0"), "{}", status.message());
    let own = format!("tenants/acme/dags/vm-{VM}");
    assert_eq!(operator.get_dag(&own).await.expect_err("undone").code(), Code::NotFound);
    let bound = libvirt.bind(request(OTHER)).await.expect("all functions are free");
    assert_eq!(bound.functions[0].virtual_function, 0);
    let twice = v1::BindVmRequest { functions: 1, ..request(OTHER) };
    let status = libvirt.bind(twice).await.expect_err("bound otherwise");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidState));
    rig.stop().await;
}

#[tokio::test]
async fn a_binding_that_misses_its_deadline_fails_and_is_undone() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    // From now on nothing that is written to the card takes effect.
    rig.card.with(|card| card.set_faults(Faults { commit_hangs: 1.0, ..Faults::default() }));
    let mut libvirt = Machines::of(&rig, "orchestrator/libvirt").await;
    let mut request = request(VM);
    request.ready_within = Some(prost_types::Duration { seconds: 0, nanos: 200_000_000 });
    let status = libvirt.bind(request).await.expect_err("its rules are not on the card");
    assert_eq!(reason_of(&status), Some(ErrorReason::BindFailed), "{status:?}");
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("not ready within 200ms"), "{}", status.message());
    let get = v1::GetBindingRequest { name: format!("vmBindings/{VM}") };
    let binding = libvirt.0.get_binding(get).await.item().expect("it is remembered");
    assert_eq!(binding.state(), State::BindFailed);
    assert!(binding.functions.is_empty(), "given back: {binding:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_caller_that_does_not_wait_long_enough_asks_again() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.create_dag(WEB, chain(&["nat"])).await.expect("there is room");
    let mut libvirt = Machines::of(&rig, "orchestrator/libvirt").await;
    let mut hasty = Request::new(request(VM));
    hasty.set_timeout(Duration::from_millis(1));
    // Whether it was in time depends on the machine; what holds afterwards does not.
    let _ = libvirt.0.bind_vm(hasty).await;
    assert_eq!(libvirt.bind(request(VM)).await.expect("bound").state(), State::Bound);
    rig.stop().await;
}

#[tokio::test]
async fn heartbeats_lists_and_watches_tell_of_machines() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let mut libvirt = Machines::of(&rig, "orchestrator/libvirt").await;
    let watch = v1::WatchBindingsRequest { parent: "tenants/-".into(), resume_revision: 0 };
    let mut events = libvirt.0.watch_bindings(watch).await.expect("a stream").into_inner();
    let first = in_time(events.message()).await.expect("open").expect("an event");
    assert_eq!(first.r#type(), EventType::Bookmark, "nothing exists yet");
    let bound = libvirt.bind(v1::BindVmRequest { lease: seconds(5), ..request(VM) }).await;
    let expires = bound.expect("bound").expire_time.expect("it has a lease");
    let beat = v1::HeartbeatRequest { vms: vec![VM.into(), OTHER.into()] };
    let heard = libvirt.0.heartbeat(beat).await.expect("heard").into_inner();
    let now = heard.alive[0].expire_time.expect("it has a lease");
    assert!((now.seconds, now.nanos) > (expires.seconds, expires.nanos));
    assert_eq!(heard.missing, [OTHER]);
    libvirt.unbind(VM).await.expect("bound");
    let mut states = Vec::new();
    in_time(async {
        while states.last() != Some(&State::Unbound) {
            let event = events.message().await.expect("open").expect("an event");
            states.extend(event.binding.map(|binding| binding.state()));
        }
    })
    .await;
    assert_eq!(states, [State::BindStarted, State::Bound, State::Unbound]);
    let list = v1::ListBindingsRequest { parent: "tenants/acme".into(), ..Default::default() };
    assert_eq!(libvirt.0.list_bindings(list).await.expect("a page").into_inner().bindings.len(), 1);
    let list = v1::ListBindingsRequest { parent: "tenants/globex".into(), ..Default::default() };
    assert_eq!(libvirt.0.list_bindings(list).await.expect("a page").into_inner().bindings.len(), 0);
    let many = v1::HeartbeatRequest { vms: vec![VM.into(); 1_001] };
    let status = libvirt.0.heartbeat(many).await.expect_err("too many");
    assert_eq!(reason_of(&status), Some(ErrorReason::LimitExceeded));
    rig.stop().await;
}
