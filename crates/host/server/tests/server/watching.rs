//! Watches.

use snic_api::error::reason_of;
use snic_api::v1::{self, ErrorReason, EventType};
use snic_front::settings::Limits;
use tonic::{Code, Status, Streaming};

use crate::rig::{Client, Rig, chain, in_time};

/// More events than any test here causes: a watch that repeats itself fails.
const EVENTS_MAX: u32 = 1_000;

async fn watch(
    client: &mut Client,
    parent: &str,
    resume_revision: u64,
) -> Streaming<v1::WatchDagsResponse> {
    let request = v1::WatchDagsRequest { parent: parent.into(), resume_revision };
    client.dags.watch_dags(request).await.expect("a watch").into_inner()
}

async fn next(events: &mut Streaming<v1::WatchDagsResponse>) -> v1::WatchDagsResponse {
    in_time(events.message()).await.expect("no error").expect("no end")
}

/// Reads on until the stream ends; it must end with a status.
async fn end_of<T>(events: &mut Streaming<T>) -> Status {
    loop {
        match events.message().await {
            Ok(event) => assert!(event.is_some(), "an end without a status"),
            Err(status) => return status,
        }
    }
}

fn name(event: &v1::WatchDagsResponse) -> &str {
    event.dag.as_ref().map_or("", |dag| &dag.name)
}

#[tokio::test]
async fn a_watch_sends_what_is_and_then_what_happens() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut globex = rig.client("tenant/globex").await;
    acme.ready_dag("tenants/acme/dags/a", chain(&["nat"])).await;
    let mut events = watch(&mut acme, "tenants/acme", 0).await;
    let first = next(&mut events).await;
    assert_eq!((first.r#type(), name(&first)), (EventType::Added, "tenants/acme/dags/a"));
    assert_eq!(first.revision, 0, "not all has been sent");
    let bookmark = next(&mut events).await;
    assert_eq!((bookmark.r#type(), &bookmark.dag), (EventType::Bookmark, &None));
    assert_ne!(bookmark.revision, 0);
    // Other tenants' DAGs are not sent.
    globex.ready_dag("tenants/globex/dags/z", chain(&["nat"])).await;
    acme.create_dag("tenants/acme/dags/b", chain(&["aes"])).await.expect("accepted");
    let mut last = bookmark.revision;
    let mut kinds = Vec::new();
    for step in 0.. {
        assert!(step < EVENTS_MAX, "never READY: {kinds:?}");
        let event = next(&mut events).await;
        assert_eq!(name(&event), "tenants/acme/dags/b");
        assert!(event.revision > last, "revisions rise");
        last = event.revision;
        kinds.push(event.r#type());
        if event.dag.expect("a DAG").state() == v1::dag::State::Ready {
            break;
        }
    }
    assert_eq!(kinds[0], EventType::Added);
    assert!(kinds[1..].iter().all(|kind| *kind == EventType::Modified), "{kinds:?}");
    let request = v1::DeleteDagRequest { name: "tenants/acme/dags/b".into(), ..Default::default() };
    acme.dags.delete_dag(request).await.expect("accepted");
    // A change from before may still be on its way.
    let mut gone = next(&mut events).await;
    for _ in 0..EVENTS_MAX {
        if gone.r#type() != EventType::Modified {
            break;
        }
        last = gone.revision;
        gone = next(&mut events).await;
    }
    assert_eq!((gone.r#type(), name(&gone)), (EventType::Deleted, "tenants/acme/dags/b"));
    // Resumed, it begins where the earlier watch ended.
    let mut resumed = watch(&mut acme, "tenants/acme", last).await;
    assert_eq!(next(&mut resumed).await, gone);
    rig.stop().await;
}

#[tokio::test]
async fn a_list_says_where_to_watch_from() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    acme.ready_dag("tenants/acme/dags/a", chain(&["nat"])).await;
    let request = v1::ListDagsRequest { parent: "tenants/acme".into(), ..Default::default() };
    let list = acme.dags.list_dags(request).await.expect("a list").into_inner();
    acme.create_dag("tenants/acme/dags/b", chain(&["aes"])).await.expect("accepted");
    let mut events = watch(&mut acme, "tenants/acme", list.revision).await;
    let mut seen = next(&mut events).await;
    // Changes that the list included may come again; all others must come.
    for _ in 0..EVENTS_MAX {
        if name(&seen) != "tenants/acme/dags/a" {
            break;
        }
        seen = next(&mut events).await;
    }
    assert_eq!((seen.r#type(), name(&seen)), (EventType::Added, "tenants/acme/dags/b"));
    rig.stop().await;
}

#[tokio::test]
async fn a_revision_that_is_not_kept_is_refused() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    for resume_revision in [1, u64::MAX] {
        let parent = "tenants/acme".into();
        let request = v1::WatchDagsRequest { parent, resume_revision };
        let status = acme.dags.watch_dags(request).await.expect_err("refused");
        assert_eq!(reason_of(&status), Some(ErrorReason::RevisionExpired), "{status:?}");
        assert_eq!(status.code(), Code::OutOfRange);
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_stopping_server_ends_its_streams() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut events = watch(&mut acme, "tenants/-", 0).await;
    assert_eq!(next(&mut events).await.r#type(), EventType::Bookmark);
    let mut operator = rig.client("operator/root").await;
    let request = v1::WatchRegionsRequest { parent: "cards/-".into(), resume_revision: 0 };
    let mut regions = operator.cards.watch_regions(request).await.expect("a watch").into_inner();
    in_time(regions.message()).await.expect("no error").expect("a region");
    rig.stop().await;
    let status = in_time(events.message()).await.expect_err("ended");
    assert_eq!(reason_of(&status), Some(ErrorReason::ShuttingDown), "{status:?}");
    let status = in_time(end_of(&mut regions)).await;
    assert_eq!(reason_of(&status), Some(ErrorReason::ShuttingDown), "{status:?}");
}

/// One reader takes nothing: it gets an error, and nobody waits for it.
#[tokio::test]
async fn a_slow_reader_is_told_and_holds_nobody_up() {
    let limits = Limits { changes_kept: 16, ..Limits::default() };
    let rig = Rig::with(limits).await;
    rig.furnished().await;
    let identity = rig.authority.client(&["spiffe://snic.test/tenant/acme"]);
    let mut slow = Client::new(rig.connect_narrow(identity).await);
    let mut acme = rig.client("tenant/acme").await;
    let mut asleep = watch(&mut slow, "tenants/acme", 0).await;
    let mut awake = watch(&mut acme, "tenants/acme", 0).await;
    assert_eq!(next(&mut awake).await.r#type(), EventType::Bookmark);
    let name = "tenants/acme/dags/a";
    for _ in 0..30 {
        acme.create_dag(name, chain(&["nat"])).await.expect("accepted");
        let request = v1::DeleteDagRequest { name: name.into(), ..Default::default() };
        acme.dags.delete_dag(request).await.expect("accepted");
        in_time(async { while next(&mut awake).await.r#type() != EventType::Deleted {} }).await;
    }
    let status = in_time(end_of(&mut asleep)).await;
    assert_eq!(reason_of(&status), Some(ErrorReason::WatcherTooSlow), "{status:?}");
    assert_eq!(status.code(), Code::Unavailable);
    rig.stop().await;
}

/// Bookmarks advance a watch that sees no changes of its topic.
#[tokio::test]
async fn an_idle_watch_gets_bookmarks() {
    let limits = Limits { bookmark: std::time::Duration::from_millis(5), ..Limits::default() };
    let rig = Rig::with(limits).await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut globex = rig.client("tenant/globex").await;
    let mut events = watch(&mut globex, "tenants/-", 0).await;
    let first = next(&mut events).await;
    acme.ready_dag("tenants/acme/dags/a", chain(&["nat"])).await;
    let second = next(&mut events).await;
    assert_eq!((second.r#type(), &second.dag), (EventType::Bookmark, &None));
    assert!(second.revision > first.revision);
    rig.stop().await;
}

/// A watch of a tenant ends with the tenant, and shows nothing of a new one with the same name.
#[tokio::test]
async fn a_deleted_tenants_watches_end() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let watch = || v1::WatchDagsRequest { parent: "tenants/acme".into(), resume_revision: 0 };
    let mut streams = vec![
        acme.dags.watch_dags(watch()).await.expect("a watch").into_inner(),
        operator.dags.watch_dags(watch()).await.expect("a watch").into_inner(),
    ];
    let all = v1::WatchDagsRequest { parent: "tenants/-".into(), resume_revision: 0 };
    let mut other = operator.dags.watch_dags(all).await.expect("a watch").into_inner();
    let delete =
        v1::DeleteTenantRequest { name: "tenants/acme".into(), force: true, ..Default::default() };
    operator.tenants.delete_tenant(delete).await.expect("deleted");
    operator.create_tenant("acme").await.expect("another one");
    operator.create_dag("tenants/acme/dags/new", chain(&["nat"])).await.expect("accepted");
    for stream in &mut streams {
        let end = in_time(async {
            loop {
                match stream.message().await {
                    Ok(Some(event)) => assert!(event.dag.is_none(), "{event:?}"),
                    Ok(None) => panic!("it ends with a reason"),
                    Err(status) => return status,
                }
            }
        });
        assert_eq!(reason_of(&end.await), Some(ErrorReason::ResourceNotFound));
    }
    in_time(async {
        while other.message().await.expect("goes on").expect("goes on").dag.is_none() {}
    })
    .await;
    rig.stop().await;
}

/// Whatever one tenant does, another tenant's watch can resume.
#[tokio::test]
async fn one_tenants_changes_expire_no_revision_of_another() {
    let limits = Limits { changes_kept: 16, ..Limits::default() };
    let rig = Rig::with(limits).await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut globex = rig.client("tenant/globex").await;
    let mut events = watch(&mut globex, "tenants/globex", 0).await;
    let seen = next(&mut events).await.revision;
    drop(events);
    let mut awake = watch(&mut acme, "tenants/acme", 0).await;
    let first = next(&mut awake).await.revision;
    for _ in 0..16 {
        let name = "tenants/acme/dags/a";
        acme.create_dag(name, chain(&["nat"])).await.expect("accepted");
        let request = v1::DeleteDagRequest { name: name.into(), ..Default::default() };
        acme.dags.delete_dag(request).await.expect("accepted");
        in_time(async { while next(&mut awake).await.r#type() != EventType::Deleted {} }).await;
    }
    let parent = "tenants/acme".into();
    let request = v1::WatchDagsRequest { parent, resume_revision: first };
    let status = acme.dags.watch_dags(request).await.expect_err("its own are not all kept");
    assert_eq!(reason_of(&status), Some(ErrorReason::RevisionExpired), "{status:?}");
    globex.create_dag("tenants/globex/dags/z", chain(&["nat"])).await.expect("accepted");
    let mut events = watch(&mut globex, "tenants/globex", seen).await;
    assert_eq!(name(&next(&mut events).await), "tenants/globex/dags/z");
    rig.stop().await;
}

/// Every kind of resource is watched alike: what is, then what happens, to those who may see it.
#[tokio::test]
async fn resources_of_the_catalogue_are_watched() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let listed = acme.nts.list_nt_types(v1::ListNtTypesRequest::default()).await;
    let listed = listed.expect("a list").into_inner();
    let resume = |resume_revision| v1::WatchNtTypesRequest { resume_revision };
    let mut all = acme.nts.watch_nt_types(resume(0)).await.expect("a watch").into_inner();
    let mut later = acme.nts.watch_nt_types(resume(listed.revision)).await.expect("a watch");
    let later = later.get_mut();
    let mut names = Vec::new();
    loop {
        let event = in_time(all.message()).await.expect("no error").expect("no end");
        match event.r#type() {
            EventType::Added => names.extend(event.nt_type),
            other => break assert_eq!(other, EventType::Bookmark),
        }
    }
    assert_eq!(names, listed.nt_types, "as they are listed");
    // The provider's are told to all, a tenant's own to itself.
    let mut globex = rig.client("tenant/globex").await;
    globex.create_nt("globex.own", true).await.expect("valid");
    acme.create_nt("acme.own", true).await.expect("valid");
    operator.create_nt("gre", true).await.expect("valid");
    let name = "ntTypes/acme.own".to_owned();
    let delete = v1::DeleteNtTypeRequest { name: name.clone(), ..Default::default() };
    acme.nts.delete_nt_type(delete).await.expect("unused");
    for events in [&mut all, later] {
        let mut told = Vec::new();
        while told.last().is_none_or(|(kind, _)| *kind != EventType::Deleted) {
            let event = in_time(events.message()).await.expect("no error").expect("no end");
            told.extend(event.nt_type.as_ref().map(|nt| (event.r#type(), nt.name.clone())));
        }
        told.retain(|(_, told)| *told != name);
        assert_eq!(told, [(EventType::Added, "ntTypes/gre".to_owned())]);
    }
    rig.stop().await;
}

/// A tenant's update is one event, and its deletion another; nothing tells of its usage.
#[tokio::test]
async fn tenants_and_operations_are_watched() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let listed = operator.tenants.list_tenants(v1::ListTenantsRequest::default()).await;
    let resume_revision = listed.expect("a list").into_inner().revision;
    let request = v1::WatchTenantsRequest { resume_revision };
    let mut tenants = operator.tenants.watch_tenants(request).await.expect("a watch").into_inner();
    let mut acme = rig.client("tenant/acme").await;
    let request = v1::WatchOperationsRequest { resume_revision };
    let mut own = acme.operations.watch_operations(request).await.expect("a watch").into_inner();
    let mut globex = rig.client("tenant/globex").await;
    globex.ready_dag("tenants/globex/dags/z", chain(&["nat"])).await;
    acme.ready_dag("tenants/acme/dags/a", chain(&["nat"])).await;
    let mut told = Vec::new();
    // It may have ended before its beginning was read: then both are one event.
    while told.last().is_none_or(|(_, is_done)| !is_done) {
        let event = in_time(own.message()).await.expect("no error").expect("no end");
        let Some(operation) = &event.operation else { continue };
        let target = operation.metadata.clone().expect("metadata").target;
        assert_eq!(target, "tenants/acme/dags/a", "others' operations are not told");
        told.push((event.r#type(), operation.done));
    }
    assert_eq!(told[0].0, EventType::Added);
    assert!(told[1..].iter().all(|told| *told == (EventType::Modified, true)), "{told:?}");
    let delete =
        v1::DeleteTenantRequest { name: "tenants/acme".into(), force: true, ..Default::default() };
    operator.tenants.delete_tenant(delete).await.expect("deleted");
    let event = loop {
        let event = in_time(tenants.message()).await.expect("no error").expect("no end");
        if event.tenant.is_some() {
            break event;
        }
    };
    assert_eq!(event.r#type(), EventType::Deleted);
    assert_eq!(event.tenant.expect("a tenant").name, "tenants/acme");
    rig.stop().await;
}
