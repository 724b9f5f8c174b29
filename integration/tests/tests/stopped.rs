//! A daemon that is stopped for longer than a lease, as with a suspended host: machines keep what they have.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::vm_binding::State;
use snic_integration::{Home, TestClient, furnished};

const MACHINE: &str = "123e4567-e89b-42d3-a456-426614174000";
/// The shortest lease.
const LEASE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

async fn state(client: &TestClient) -> State {
    let request = v1::GetBindingRequest { name: format!("vmBindings/{MACHINE}") };
    client.machines().get_binding(request).await.item().expect("it was bound").state()
}

async fn beat(client: &TestClient) {
    let request = v1::HeartbeatRequest { vms: vec![MACHINE.into()] };
    let beat = client.machines().heartbeat(request).await.expect("heartbeats pass").into_inner();
    assert_eq!(beat.missing, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_was_stopped_longer_than_a_lease_unbinds_no_machine() {
    let home = Home::new();
    let daemon = home.start().await;
    let client = furnished(&home, &["web"]).await;
    let names = vec!["tenants/acme/dags/web".to_owned()];
    let lease = prost_types::Duration { seconds: LEASE.as_secs().cast_signed(), nanos: 0 };
    let request = v1::BindVmRequest {
        vm: MACHINE.into(),
        tenant: "tenants/acme".into(),
        chains: Some(v1::bind_vm_request::Chains::Dags(v1::DagNames { names })),
        functions: 1,
        lease: Some(lease),
        ..Default::default()
    };
    client.machines().bind_vm(request).await.expect("it is bound");
    let until = Instant::now() + PATIENCE;
    while state(&client).await != State::Bound {
        assert!(Instant::now() < until, "it is never bound");
        beat(&client).await;
    }
    let pid = Pid::from_raw(daemon.id().cast_signed()).expect("a process");
    for _ in 0..2 {
        kill_process(pid, Signal::STOP).expect("it runs");
        tokio::time::sleep(2 * LEASE).await;
        kill_process(pid, Signal::CONT).expect("it is stopped");
        assert_eq!(state(&client).await, State::Bound, "nobody could send a heartbeat");
        beat(&client).await;
    }
    // A host that is silent while the daemon runs loses its machines as ever.
    let until = Instant::now() + PATIENCE;
    while state(&client).await != State::Unbound {
        assert!(Instant::now() < until, "the lease does not end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
