//! Limits: whoever meets one is told which, and when to try again.

use std::time::Duration;

use prost::Message as _;
use snic_api::error::reason_of;
use snic_api::v1::{self, ErrorReason};
use snic_server::Limits;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::raw::call;
use crate::rig::{Client, Rig, chain, header, image};

async fn watch(client: &mut Client) -> Result<tonic::Streaming<v1::DagEvent>, Status> {
    let request = v1::WatchDagsRequest { parent: "tenants/-".into(), resume_revision: 0 };
    client.dags.watch_dags(request).await.map(tonic::Response::into_inner)
}

fn is_overloaded(status: &Status) -> bool {
    let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
    assert!(retry.is_some_and(|delay| delay > Duration::ZERO), "{status:?}");
    reason_of(status) == Some(ErrorReason::Overloaded) && status.code() == Code::ResourceExhausted
}

#[tokio::test]
async fn a_connection_has_room_for_so_many_calls() {
    let limits = Limits { calls_per_connection_max: 2, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut client = rig.client("operator/root").await;
    let first = watch(&mut client).await.expect("room");
    let second = watch(&mut client).await.expect("room");
    let status = client.create_tenant("acme").await.expect_err("no room");
    assert!(is_overloaded(&status), "{status:?}");
    assert!(status.message().contains("on this connection: at most 2"), "{}", status.message());
    // Another connection has room of its own.
    let mut other = rig.client("operator/root").await;
    other.create_tenant("acme").await.expect("room");
    drop((first, second));
    // Room is given back as soon as the server has seen it.
    while client.create_tenant("globex").await.is_err_and(|status| is_overloaded(&status)) {}
    let get = v1::GetTenantRequest { name: "tenants/globex".into() };
    assert!(other.tenants.get_tenant(get).await.is_ok());
    rig.stop().await;
}

#[tokio::test]
async fn watches_do_not_take_the_room_of_calls() {
    let limits = Limits { streams_max: 3, streams_per_caller_max: 2, ..Limits::default() };
    let rig = Rig::with(limits).await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut globex = rig.client("tenant/globex").await;
    let _kept = (watch(&mut acme).await.expect("room"), watch(&mut acme).await.expect("room"));
    let status = watch(&mut acme).await.expect_err("its own are used up");
    assert!(is_overloaded(&status) && status.message().contains("of yours"), "{status:?}");
    let _third = watch(&mut globex).await.expect("room for others");
    let status = watch(&mut globex).await.expect_err("all are used up");
    assert!(is_overloaded(&status) && status.message().contains("at this server"), "{status:?}");
    acme.ready_dag_without_waiting().await;
    rig.stop().await;
}

/// More watchers than there is room for are told so, each of them; those within go on, and so do
/// calls.
#[tokio::test]
async fn of_ten_thousand_watchers_as_many_are_served_as_there_is_room_for() {
    const CALLERS: usize = 20;
    const EACH: usize = 500;
    let limits = Limits { calls_per_connection_max: EACH, ..Limits::default() };
    let room = limits.streams_max;
    let rig = Rig::with(limits).await;
    let mut operator = rig.furnished().await;
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        callers.push(rig.client(&format!("operator/o{number}")).await);
    }
    let open = |mut client: Client| async move {
        let (mut served, mut refused) = (Vec::new(), 0);
        for _ in 0..EACH {
            match watch(&mut client).await {
                Ok(stream) => served.push(stream),
                Err(status) => {
                    assert!(is_overloaded(&status), "{status:?}");
                    refused += 1;
                }
            }
        }
        (served, refused)
    };
    let tasks: Vec<_> = callers.into_iter().map(|client| tokio::spawn(open(client))).collect();
    let (mut served, mut refused) = (Vec::new(), 0);
    for task in tasks {
        let (of_caller, too_many) = task.await.expect("no panic");
        served.extend(of_caller);
        refused += too_many;
    }
    assert_eq!((served.len(), refused), (room, CALLERS * EACH - room));
    // To wait for it is one more that waits.
    operator.create_dag("tenants/acme/dags/a", chain(&["nat"])).await.expect("room for calls");
    for stream in &mut served {
        loop {
            let event = stream.message().await.expect("it goes on").expect("it has not ended");
            if event.dag.is_some_and(|dag| dag.name == "tenants/acme/dags/a") {
                break;
            }
        }
    }
    rig.stop().await;
}

impl Client {
    /// A call that answers at once has room beside all the watches.
    async fn ready_dag_without_waiting(&mut self) {
        self.create_dag("tenants/acme/dags/a", chain(&["nat"])).await.expect("room");
    }
}

#[tokio::test]
async fn a_server_has_room_for_so_many_connections() {
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut first = rig.client("operator/root").await;
    first.create_tenant("acme").await.expect("room");
    let identity = rig.authority.client(&["spiffe://snic.test/operator/two"]);
    assert!(rig.try_connect(Some(identity)).await.is_err(), "no room");
    first.create_tenant("globex").await.expect("the first is not disturbed");
    rig.stop().await;
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused() {
    let limits = Limits { message_bytes_max: 4_096, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut operator = rig.furnished().await;
    let names: Vec<String> = (0..500).map(|i| format!("nat{i}")).collect();
    let large = chain(&names.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(large.encoded_len() > 4_096);
    let status = operator.create_dag("tenants/acme/dags/a", large).await.expect_err("too large");
    assert_eq!(reason_of(&status), Some(ErrorReason::LimitExceeded), "{status:?}");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("4096 bytes"), "{}", status.message());
    assert!(status.get_details_quota_failure().is_some());
    rig.stop().await;
}

#[tokio::test]
async fn a_message_that_is_none_is_refused() {
    let rig = Rig::start().await;
    let operator = rig.client("operator/root").await;
    let path = "/snic.control.v1.DagService/GetDag";
    let status = call(&operator.channel, path, vec![vec![0xFF; 9]]).await.expect_err("noise");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField), "{status:?}");
    rig.stop().await;
}

/// An upload that stalls after its header.
async fn stalled(client: &mut Client, timeout: Option<Duration>) -> Status {
    let (sender, messages) = tokio::sync::mpsc::channel(1);
    let declared = header(image("x", &["nat"]).0);
    sender.send(declared).await.expect("room");
    let mut request = Request::new(ReceiverStream::new(messages));
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    let answer = client.bitstreams.upload_bitstream(request).await;
    drop(sender);
    answer.expect_err("it never ends")
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    let limits = Limits { deadline: Duration::from_millis(100), ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut operator = rig.furnished().await;
    let status = stalled(&mut operator, None).await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded), "{status:?}");
    // The client's own: the server's answer is to come before the client gives up. It has 20 ms for
    // that, which a busy machine may not give it each time.
    let mut answered = false;
    for _ in 0..20 {
        let status = stalled(&mut operator, Some(Duration::from_millis(400))).await;
        answered |= reason_of(&status) == Some(ErrorReason::DeadlineExceeded);
        if answered {
            break;
        }
    }
    assert!(answered, "the client gave up first, each time");
    rig.stop().await;
}

#[tokio::test]
async fn a_deadline_has_a_longest() {
    let limits = Limits { deadline_max: Duration::from_millis(100), ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut operator = rig.furnished().await;
    let status = stalled(&mut operator, Some(Duration::from_secs(3_600))).await;
    assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded), "{status:?}");
    rig.stop().await;
}

/// An operation that does not end: the drain of a region whose DAG has no other place.
#[tokio::test]
async fn a_wait_ends_at_its_timeout_with_the_state_at_that_moment() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let operation =
        operator.create_dag("tenants/acme/dags/a", chain(&["nat"])).await.expect("accepted");
    let done = operator.wait(&operation.name).await;
    // One that has ended is not waited for, whatever the timeout.
    let timeout = Some(prost_types::Duration { seconds: 0, nanos: 0 });
    let request = v1::WaitOperationRequest { name: done.name.clone(), timeout };
    let again = operator.operations.wait_operation(request).await.expect("at once").into_inner();
    // The DAG in the response is as it is now: its rate follows the load.
    assert_eq!((&again.name, &again.metadata, again.done), (&done.name, &done.metadata, true));
    let timeout = Some(prost_types::Duration { seconds: -1, nanos: 0 });
    let request = v1::WaitOperationRequest { name: done.name, timeout };
    let status = operator.operations.wait_operation(request).await.expect_err("negative");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
    // Every region is cordoned but the DAG's: its drain finds no other place and waits.
    let dag = operator.get_dag("tenants/acme/dags/a").await.expect("there");
    let used = dag.mapping.expect("mapped").stages[0].branches[0].instances[0].region.clone();
    for region in (0..16).map(|n| format!("cards/card0/regions/{n}")).filter(|n| *n != used) {
        let request = v1::DrainRegionRequest { name: region };
        operator.cards.drain_region(request).await.expect("accepted");
    }
    let request = v1::DrainRegionRequest { name: used };
    let drain = operator.cards.drain_region(request).await.expect("accepted").into_inner();
    let timeout = Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 });
    let request = v1::WaitOperationRequest { name: drain.name.clone(), timeout };
    let waited = operator.operations.wait_operation(request).await.expect("an answer").into_inner();
    assert!(!waited.done && waited.result.is_none(), "{waited:?}");
    assert!(waited.metadata.expect("always there").cancellable);
    let cancel = v1::CancelOperationRequest { name: drain.name.clone() };
    operator.operations.cancel_operation(cancel).await.expect("cancelled");
    let ended = operator.wait(&drain.name).await;
    let Some(v1::operation::Result::Error(error)) = ended.result else { panic!("{ended:?}") };
    assert_eq!(reason_of(&Status::from(error)), Some(ErrorReason::OperationCancelled));
    rig.stop().await;
}
