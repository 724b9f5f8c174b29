//! One caller uses every resource as much as it can, in every way; the others must not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prost::Message as _;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::{self, ErrorReason};
use snic_front::settings::Limits;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::raw::{call, endless};
use crate::rig::{Client, Rig, chain, header, image, in_time};

async fn get_tenant(client: &mut Client, id: &str) -> Result<v1::Tenant, Status> {
    let request = v1::GetTenantRequest { name: format!("tenants/{id}") };
    client.tenants.get_tenant(request).await.item()
}

/// Connections that never send a byte, or stop after the handshake, do not keep out identified
/// clients.
#[tokio::test]
async fn idle_connections_without_an_identity_leave_room() {
    let limits = Limits { connections_max: 100, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut kept = Vec::new();
    for _ in 0..200 {
        kept.push(TcpStream::connect(("127.0.0.1", rig.port)).await.expect("it listens"));
    }
    let mut closed = 0;
    in_time(async {
        while closed <= 100 {
            closed = 0;
            for io in &mut kept {
                let mut byte = [0];
                let end = tokio::time::timeout(Duration::from_millis(1), io.read(&mut byte)).await;
                closed += usize::from(end.is_ok());
            }
        }
    })
    .await;
    // These have places of their own as soon as they are identified.
    let mut anonymous = Vec::new();
    for _ in 0..20 {
        anonymous.extend(rig.try_connect(None).await);
    }
    for name in ["one", "two", "three", "four"] {
        let mut operator = in_time(rig.client(&format!("operator/{name}"))).await;
        in_time(operator.create_tenant(name)).await.expect("room");
    }
    rig.stop().await;
}

/// Calls whose message never comes hold places only for a short time, and only their caller's.
#[tokio::test]
async fn headers_without_a_message_block_nobody() {
    let limits = Limits {
        calls_max: 100,
        calls_per_connection_max: 200,
        message_arrival: Duration::from_secs(4),
        ..Limits::default()
    };
    let rig = Rig::with(limits).await;
    rig.furnished().await;
    let acme = rig.client("tenant/acme").await;
    let mut globex = rig.client("tenant/globex").await;
    let orchestrator = rig.client("orchestrator/hook").await;
    let mut hook = OrchestrationServiceClient::new(orchestrator.channel);
    let begun = Instant::now();
    let mut endless_calls = JoinSet::new();
    for _ in 0..150 {
        let channel = acme.channel.clone();
        let hour = Duration::from_secs(3_600);
        endless_calls.spawn(async move {
            endless(&channel, "/snic.control.v1.DagService/CreateDag", hour).await
        });
    }
    let first = in_time(endless_calls.join_next()).await.expect("one").expect("no panic");
    let status = first.expect_err("over its share");
    assert_eq!(reason_of(&status), Some(ErrorReason::Overloaded), "{status:?}");
    // All places for waits are taken now.
    let read = in_time(get_tenant(&mut globex, "globex")).await;
    assert_eq!(read.expect("another tenant reads").name, "tenants/globex");
    hook.heartbeat(v1::HeartbeatRequest { vms: vec![] }).await.expect("heartbeats pass");
    assert!(begun.elapsed() < Duration::from_secs(4), "they were not waited for");
    let mut late = 0;
    while let Some(ended) = in_time(endless_calls.join_next()).await {
        let status = ended.expect("no panic").expect_err("no message");
        match reason_of(&status) {
            Some(ErrorReason::Overloaded) => {}
            Some(ErrorReason::DeadlineExceeded) => {
                assert!(status.message().contains("did not arrive in time"), "{status:?}");
                late += 1;
            }
            other => panic!("{other:?}: {status:?}"),
        }
    }
    assert!(late > 10, "{late}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    rig.stop().await;
}

/// An upload that is held open.
fn hold_upload(mut client: Client, id: &str) -> JoinHandle<Result<(), Status>> {
    let declared = header(image(id, &["nat"]).0);
    tokio::spawn(async move {
        let (sender, messages) = tokio::sync::mpsc::channel(1);
        sender.send(declared).await.expect("room");
        let reply = client.bitstreams.upload_bitstream(ReceiverStream::new(messages)).await;
        drop(sender);
        reply.map(|_| ())
    })
}

#[tokio::test]
async fn held_uploads_are_those_of_one_tenant_and_end() {
    let limits = Limits { message_arrival: Duration::from_secs(2), ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut operator = rig.furnished().await;
    let acme = rig.client("tenant/acme").await;
    let mut held: Vec<_> =
        (0..8).map(|number| hold_upload(acme.clone(), &format!("acme.x{number}"))).collect();
    // Six of them are over the share.
    let mut refused = 0;
    in_time(async {
        while refused < 6 {
            let done = held.iter().position(JoinHandle::is_finished);
            match done {
                Some(at) => {
                    let status = held.remove(at).await.expect("no panic").expect_err("too many");
                    assert_eq!(reason_of(&status), Some(ErrorReason::Overloaded), "{status:?}");
                    refused += 1;
                }
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    operator.upload("free", &["nat"]).await.expect("operators upload");
    let mut globex = rig.client("tenant/globex").await;
    globex.upload("globex.free", &["nat"]).await.expect("another tenant uploads");
    for upload in held {
        let status = in_time(upload).await.expect("no panic").expect_err("it trickles");
        assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded), "{status:?}");
    }
    rig.stop().await;
}

/// While a tenant keeps hundreds of expensive checks waiting, another's reads pass them: counted in
/// checks that are answered before the read, so that a slow machine changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ci: half a minute"]
async fn a_flood_of_checks_does_not_delay_another_tenants_reads() {
    const WAITING: usize = 250;
    let rig = Rig::start().await;
    rig.furnished().await;
    let acme = rig.client("tenant/acme").await;
    let mut globex = rig.client("tenant/globex").await;
    let mut flood = JoinSet::new();
    let checks = Arc::new(AtomicUsize::new(0));
    for number in 0..WAITING {
        let (mut client, checks) = (acme.clone(), Arc::clone(&checks));
        flood.spawn(async move {
            loop {
                let request = v1::CreateDagRequest {
                    parent: "tenants/acme".into(),
                    dag_id: format!("d{number}"),
                    dag: Some(chain(&["nat", "firewall"])),
                    validate_only: true,
                    ..Default::default()
                };
                match client.dags.create_dag(request).await {
                    Ok(_) => checks.fetch_add(1, Ordering::Relaxed),
                    Err(status) if status.code() == Code::ResourceExhausted => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    }
                    Err(status) => panic!("{status:?}"),
                };
            }
        });
    }
    in_time(async {
        while checks.load(Ordering::Relaxed) < WAITING {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let mut own = acme.clone();
    let (mut before_own, mut before_other) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        let begun = checks.load(Ordering::Relaxed);
        if get_tenant(&mut own, "acme").await.is_ok() {
            before_own.push(checks.load(Ordering::Relaxed) - begun);
        }
        let begun = checks.load(Ordering::Relaxed);
        get_tenant(&mut globex, "globex").await.expect("within its share");
        before_other.push(checks.load(Ordering::Relaxed) - begun);
    }
    flood.abort_all();
    // With a single queue, both would wait for the same number of checks.
    let median = |mut of: Vec<usize>| {
        of.sort_unstable();
        of.get(of.len() / 2).copied().expect("some reads found room")
    };
    let (own, other) = (median(before_own), median(before_other));
    println!("checks answered before its own reads {own}, before another tenant's {other}");
    assert!(3 * other < 2 * own, "before its own reads {own}, before another tenant's {other}");
    rig.stop().await;
}

/// A caller that gives up its calls at once leaves nothing behind that others wait for.
#[tokio::test]
async fn calls_that_are_given_up_cost_no_time() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let acme = rig.client("tenant/acme").await;
    let request = v1::GetTenantRequest { name: "tenants/acme".into() }.encode_to_vec();
    for _ in 0..500 {
        let path = "/snic.control.v1.TenantService/GetTenant";
        let once = call(&acme.channel, path, vec![request.clone()]);
        // It may answer first.
        let _ = tokio::time::timeout(Duration::from_micros(200), once).await;
    }
    let mut globex = rig.client("tenant/globex").await;
    in_time(get_tenant(&mut globex, "globex")).await.expect("it is served");
    rig.stop().await;
}

/// Reading files, planning and checking take a thread, which cannot be stopped. A tenant that gives up such calls and
/// makes new ones gets no more threads, and others get theirs when one is free.
#[tokio::test]
async fn reads_of_files_that_are_given_up_take_no_more_threads() {
    let rig = Rig::start().await;
    rig.furnished().await;
    // A file that is read for as long as nobody writes to it.
    let endless = rig.audit_folder().join("audit-00000000000000999999.jsonl");
    let made = std::process::Command::new("mkfifo").arg(&endless).status();
    assert!(made.expect("coreutils").success());
    let path = "/snic.control.v1.AuditService/ListAuditEntries";
    let refused = async |client: Client| {
        let reply = tokio::time::timeout(
            Duration::from_millis(500),
            call(&client.channel, path, vec![Vec::new()]),
        );
        let told = |status: Status| status.message().contains("too much work of this caller");
        reply.await.is_ok_and(|reply| reply.is_err_and(told))
    };
    let mut refusals = 0;
    for _ in 0..20 {
        let mut calls = JoinSet::new();
        for _ in 0..5 {
            let acme = rig.client("tenant/acme").await;
            for _ in 0..10 {
                calls.spawn(refused(acme.clone()));
            }
        }
        refusals += calls.join_all().await.into_iter().filter(|refused| *refused).count();
        if refusals > 0 {
            break;
        }
    }
    let globex = rig.client("tenant/globex").await;
    let other = tokio::spawn(async move { call(&globex.channel, path, vec![Vec::new()]).await });
    // Whoever reads it gets to its end, and nobody reads it any more.
    let end = tokio::task::spawn_blocking(move || {
        let writer = std::fs::OpenOptions::new().write(true).open(&endless).expect("it is read");
        std::fs::remove_file(&endless).expect("it is there");
        drop(writer);
    });
    end.await.expect("no panic");
    assert!(refusals > 0, "of a thousand that are given up, no more than a few hundred may wait");
    in_time(other).await.expect("no panic").expect("it is served");
    rig.stop().await;
}

/// Few calls of one caller are carried out at once: the others wait for their turn, and only for calls of their own.
#[tokio::test]
async fn a_callers_calls_wait_for_its_own_turns() {
    let rig = Rig::with(Limits { turns: 10, ..Limits::default() }).await;
    rig.furnished().await;
    let endless = rig.audit_folder().join("audit-00000000000000999999.jsonl");
    let made = std::process::Command::new("mkfifo").arg(&endless).status();
    assert!(made.expect("coreutils").success());
    let mut acme = rig.client("tenant/acme").await;
    let mut globex = rig.client("tenant/globex").await;
    let mut readers = JoinSet::new();
    for _ in 0..10 {
        let channel = acme.channel.clone();
        let path = "/snic.control.v1.AuditService/ListAuditEntries";
        readers.spawn(async move { call(&channel, path, vec![Vec::new()]).await });
    }
    let mut waited = false;
    for _ in 0..20 {
        let own = get_tenant(&mut acme, "acme");
        waited |= tokio::time::timeout(Duration::from_millis(500), own).await.is_err();
        in_time(get_tenant(&mut globex, "globex")).await.expect("another tenant has turns");
        if waited {
            break;
        }
    }
    assert!(waited, "ten calls under way, and its share of ten turns is four");
    // Whoever reads the file gets to its end, and nobody reads it any more.
    let end = tokio::task::spawn_blocking(move || {
        let writer = std::fs::OpenOptions::new().write(true).open(&endless).expect("it is read");
        std::fs::remove_file(&endless).expect("it is there");
        drop(writer);
    });
    end.await.expect("no panic");
    while let Some(read) = in_time(readers.join_next()).await {
        read.expect("no panic").expect("it gets its turn");
    }
    in_time(get_tenant(&mut acme, "acme")).await.expect("it gets its turn");
    rig.stop().await;
}
