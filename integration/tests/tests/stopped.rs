//! A daemon that is stopped for longer than a lease, as with a suspended host: machines keep what they have. And a card's
//! process that is: who looks at its packets, or has it make some, goes on.

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

/// Longer than a card keeps a capture or a load that nobody asks for (10 s), and than an answer of it may take (5 s).
const STANDSTILL: Duration = Duration::from_secs(13);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captures_and_loads_of_a_card_that_was_stopped_go_on() {
    let home = Home::new();
    home.write_soft_settings("functions = []");
    let daemon = home.start().await;
    let client = furnished(&home, &["web"]).await;
    let until = Instant::now() + PATIENCE;
    while client.list_dags().await.iter().any(|dag| dag.state() != v1::dag::State::Ready) {
        assert!(Instant::now() < until, "it is never ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let name = "tenants/acme/dags/web".to_owned();
    let watch = v1::WatchPacketsRequest { name: name.clone(), packet_bytes_max: 14 };
    let mut seen = client.traffic().watch_packets(watch).await.expect("it is watched").into_inner();
    let run = v1::RunTrafficRequest {
        name,
        rate_bps: 100_000,
        duration: Some(prost_types::Duration { seconds: 40, nanos: 0 }),
        ..Default::default()
    };
    let mut made = client.traffic().run_traffic(run).await.expect("it runs").into_inner();
    let offered = |counts: Option<v1::RunTrafficResponse>| {
        counts.and_then(|counts| counts.total).map_or(0, |total| total.packets_offered)
    };
    let mut before = 0;
    while before == 0 {
        before = offered(made.message().await.expect("it goes on"));
    }
    seen.message().await.expect("it goes on").expect("the load's packets");

    let card = home.card_pid().and_then(|pid| Pid::from_raw(pid.cast_signed())).expect("it runs");
    kill_process(card, Signal::STOP).expect("it runs");
    tokio::time::sleep(STANDSTILL).await;
    kill_process(card, Signal::CONT).expect("it is stopped");
    // Every message until the end of the run is there, and the last has packets of after the stop.
    let stopped_at = Instant::now();
    let mut last = before;
    while let Some(message) = made.message().await.expect("the load has not ended") {
        last = offered(Some(message)).max(last);
    }
    assert!(stopped_at.elapsed() > Duration::from_secs(5), "it went on for its time");
    assert!(last > before + 50, "{last} packets in all, {before} before the card was stopped");
    // What was queued for the reader comes first: of 13 s nothing, then of the load again.
    let continued = std::time::SystemTime::now() - stopped_at.elapsed();
    let continued = continued.duration_since(std::time::UNIX_EPOCH).expect("it is later");
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "no packet is seen any more");
        let message = seen.message().await.expect("the capture has not ended").expect("a message");
        let times = message.sightings.iter().filter_map(|seen| seen.time);
        if times.map(|time| time.seconds).max().unwrap_or(0) > continued.as_secs().cast_signed() {
            break;
        }
    }
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
