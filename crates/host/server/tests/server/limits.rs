//! Limits: a caller that exceeds one gets an error with its name and a retry delay.

use std::time::{Duration, Instant};

use prost::Message as _;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::{self, ErrorReason};
use snic_front::settings::Limits;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::raw::call;
use crate::rig::{Client, Rig, chain, header, image, in_time};

async fn watch(client: &mut Client) -> Result<tonic::Streaming<v1::WatchDagsResponse>, Status> {
    let request = v1::WatchDagsRequest { parent: "tenants/-".into(), resume_revision: 0 };
    in_time(client.dags.watch_dags(request)).await.map(tonic::Response::into_inner)
}

fn is_overloaded(status: &Status) -> bool {
    let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
    assert!(retry.is_some_and(|delay| delay > Duration::ZERO), "{status:?}");
    reason_of(status) == Some(ErrorReason::Overloaded) && status.code() == Code::ResourceExhausted
}

#[tokio::test]
async fn calls_per_connection_are_limited() {
    let limits = Limits { calls_per_connection_max: 2, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut client = rig.client("operator/root").await;
    let first = watch(&mut client).await.expect("room");
    let second = watch(&mut client).await.expect("room");
    let status = client.create_tenant("acme").await.expect_err("no room");
    assert!(is_overloaded(&status), "{status:?}");
    assert!(
        status.message().contains("calls on this connection (limit 2)"),
        "{}",
        status.message()
    );
    // Another connection has permits of its own.
    let mut other = rig.client("operator/root").await;
    other.create_tenant("acme").await.expect("room");
    drop((first, second));
    // Room is given back as soon as the server has seen it.
    in_time(async {
        while client.create_tenant("globex").await.is_err_and(|status| is_overloaded(&status)) {}
    })
    .await;
    let get = v1::GetTenantRequest { name: "tenants/globex".into() };
    assert!(other.tenants.get_tenant(get).await.is_ok());
    rig.stop().await;
}

#[tokio::test]
async fn watches_and_calls_have_separate_limits() {
    let limits = Limits { streams_max: 10, streams_per_caller_max: 2, ..Limits::default() };
    let rig = Rig::with(limits).await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut globex = rig.client("tenant/globex").await;
    let _kept = (watch(&mut acme).await.expect("room"), watch(&mut acme).await.expect("room"));
    let status = watch(&mut acme).await.expect_err("its own are used up");
    assert!(
        is_overloaded(&status) && status.message().contains("watches and waits of this caller"),
        "{status:?}"
    );
    let _third = watch(&mut globex).await.expect("room for others");
    acme.ready_dag_without_waiting().await;
    rig.stop().await;
}

/// Each caller gets its share of the watches, and an error for each over it; the others continue, and so
/// do calls.
#[tokio::test]
#[ignore = "ci: ten seconds"]
async fn of_ten_thousand_watchers_each_caller_has_its_share() {
    const CALLERS: usize = 20;
    const EACH: usize = 500;
    const STREAMS_EACH: usize = 64;
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
        assert!(served.len() <= STREAMS_EACH, "{}", served.len());
        (served, refused)
    };
    let tasks: Vec<_> = callers.into_iter().map(|client| tokio::spawn(open(client))).collect();
    let (mut served, mut refused) = (Vec::new(), 0);
    for task in tasks {
        let (of_caller, too_many) = in_time(task).await.expect("no panic");
        served.extend(of_caller);
        refused += too_many;
    }
    assert_eq!(served.len() + refused, CALLERS * EACH);
    // Some stay free, for callers that have none yet and for those of other levels.
    assert!((room / 4..room).contains(&served.len()), "{}", served.len());
    let mut newcomer = rig.client("operator/newcomer").await;
    served.push(watch(&mut newcomer).await.expect("room for who has none"));
    // Waiting for it counts as one more.
    operator.create_dag("tenants/acme/dags/a", chain(&["nat"])).await.expect("room for calls");
    for stream in &mut served {
        let created = async {
            loop {
                let event = stream.message().await.expect("it goes on").expect("no end");
                if event.dag.is_some_and(|dag| dag.name == "tenants/acme/dags/a") {
                    break;
                }
            }
        };
        in_time(created).await;
    }
    rig.stop().await;
}

impl Client {
    /// A short call has a place beside all the watches.
    async fn ready_dag_without_waiting(&mut self) {
        self.create_dag("tenants/acme/dags/a", chain(&["nat"])).await.expect("room");
    }
}

#[tokio::test]
async fn connections_are_limited() {
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
async fn a_message_over_the_limit_is_rejected() {
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
async fn an_undecodable_message_is_rejected() {
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
    let answer = in_time(client.bitstreams.upload_bitstream(request)).await;
    drop(sender);
    answer.expect_err("it never ends")
}

#[tokio::test]
async fn a_call_without_a_deadline_ends_at_the_servers() {
    let limits = Limits { deadline: Duration::from_millis(100), ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut operator = rig.furnished().await;
    let status = stalled(&mut operator, None).await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded), "{status:?}");
    rig.stop().await;
}

/// The server's own limit is far longer, so an answer of the server in this time is owed to the
/// caller's deadline. It has 20 ms to be there before the client gives up, which a busy machine may
/// not give it each time.
#[tokio::test]
async fn a_callers_deadline_ends_a_call_earlier() {
    let hour = Duration::from_secs(3_600);
    let rig = Rig::with(Limits { deadline: hour, deadline_max: hour, ..Limits::default() }).await;
    let mut operator = rig.furnished().await;
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
async fn a_callers_deadline_may_be_later_than_the_servers_default() {
    let limits = Limits { deadline: Duration::from_millis(50), ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut operator = rig.furnished().await;
    let begun = Instant::now();
    stalled(&mut operator, Some(Duration::from_secs(1))).await;
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
    rig.stop().await;
}

/// A wait ends at the caller's deadline, too: with the state at that moment, which is no error.
#[tokio::test]
async fn a_callers_deadline_ends_a_wait() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let operation =
        operator.create_dag("tenants/acme/dags/a", chain(&["nat"])).await.expect("accepted");
    operator.wait(&operation.name).await;
    let drain = endless_drain(&mut operator, "tenants/acme/dags/a").await;
    let begun = Instant::now();
    let mut request =
        Request::new(v1::WaitOperationRequest { name: drain.name.clone(), timeout: None });
    request.set_timeout(Duration::from_millis(600));
    let answer = in_time(operator.operations.wait_operation(request)).await.item();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    if let Ok(reply) = answer {
        assert!(!reply.done);
    }
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

/// An operation that does not end: every region but the DAG's is drained, so the drain of that one
/// finds no other place for the DAG and waits.
async fn endless_drain(operator: &mut Client, dag: &str) -> v1::Operation {
    let dag = operator.get_dag(dag).await.expect("there");
    let used = dag.mapping.expect("mapped").stages[0].branches[0].instances[0].region.clone();
    for region in (0..16).map(|n| format!("cards/card0/regions/{n}")).filter(|n| *n != used) {
        let request = v1::DrainRegionRequest { name: region, ..Default::default() };
        operator.cards.drain_region(request).await.expect("accepted");
    }
    let request = v1::DrainRegionRequest { name: used, ..Default::default() };
    operator.cards.drain_region(request).await.item().expect("accepted")
}

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
    let again = operator.operations.wait_operation(request).await.item().expect("at once");
    // The DAG in the response is as it is now: its rate follows the load.
    assert_eq!((&again.name, &again.metadata, again.done), (&done.name, &done.metadata, true));
    let timeout = Some(prost_types::Duration { seconds: -1, nanos: 0 });
    let request = v1::WaitOperationRequest { name: done.name, timeout };
    let status = operator.operations.wait_operation(request).await.expect_err("negative");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
    let drain = endless_drain(&mut operator, "tenants/acme/dags/a").await;
    let timeout = Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 });
    let request = v1::WaitOperationRequest { name: drain.name.clone(), timeout };
    let waited = operator.operations.wait_operation(request).await.item().expect("an answer");
    assert!(!waited.done && waited.result.is_none(), "{waited:?}");
    assert!(waited.metadata.expect("always there").cancellable);
    let cancel = v1::CancelOperationRequest { name: drain.name.clone(), ..Default::default() };
    operator.operations.cancel_operation(cancel).await.expect("cancelled");
    let ended = operator.wait(&drain.name).await;
    let Some(v1::operation::Result::Error(error)) = ended.result else { panic!("{ended:?}") };
    assert_eq!(reason_of(&Status::from(error)), Some(ErrorReason::OperationCancelled));
    rig.stop().await;
}
