//! Revisions: from which ones a watch can resume.

use super::*;

/// A change of an operation.
fn change(id: &str) -> Arc<Change> {
    Arc::new(Change::Operation(operation(id)))
}

fn operation(id: &str) -> OperationId {
    OperationId::new(id).expect("valid")
}

fn hub(floor: u64, kept: usize) -> Arc<Hub> {
    let kept = RetainedChanges { each: kept, total: 2 * kept };
    Arc::new(Hub::new(KnownResources::default(), floor, kept))
}

fn of(id: &str) -> Topic {
    Topic::Operation(operation(id))
}

fn revisions(hub: &Arc<Hub>, after: u64) -> Result<Vec<u64>, ResumeRefusal> {
    resumed(hub, of("op"), after)
}

fn seen(follower: &mut Follower) -> Result<Vec<u64>, RevisionExpired> {
    Ok(follower.next(usize::MAX)?.iter().map(|change| change.revision).collect())
}

#[test]
fn a_watch_resumes_at_any_revision_since_the_start() {
    let hub = hub(1_000, 8);
    for revision in [1_001, 1_002, 5_000, 5_001] {
        hub.push(change("op"), revision);
    }
    assert_eq!(revisions(&hub, 1_000), Ok(vec![1_001, 1_002, 5_000, 5_001]));
    assert_eq!(revisions(&hub, 1_002), Ok(vec![5_000, 5_001]));
    assert_eq!(revisions(&hub, 3_000), Ok(vec![5_000, 5_001]), "between two");
    assert_eq!(revisions(&hub, 5_001), Ok(vec![]));
    assert_eq!(hub.revision(), 5_001);
    let mut follower = hub.follow(of("op"), 1_000).expect("all is kept");
    assert_eq!(follower.next(2).map(|changes| changes.len()), Ok(2));
    assert_eq!(follower.seen(), 1_002);
    assert_eq!(seen(&mut follower), Ok(vec![5_000, 5_001]), "the rest");
}

/// Revisions that are said to be complete count as seen, and no change that comes after them.
#[test]
fn a_watch_without_changes_advances_with_what_is_complete() {
    let hub = hub(10, 8);
    let mut follower = hub.follow_from_now(of("op"));
    hub.take(Notice::Complete(50));
    assert_eq!((seen(&mut follower), follower.seen()), (Ok(vec![]), 50));
    hub.take(Notice::Change(51, change("op")));
    assert_eq!(seen(&mut follower), Ok(vec![51]));
    // A list may give out a revision before the hub has heard of it.
    let mut ahead = hub.follow(of("op"), 60).expect("a list gave it");
    hub.take(Notice::Change(60, change("op")));
    assert_eq!((seen(&mut ahead), ahead.seen()), (Ok(vec![]), 60), "the list had it");
    hub.take(Notice::Change(61, change("op")));
    assert_eq!(seen(&mut ahead), Ok(vec![61]));
}

#[test]
fn revisions_outside_the_ring_have_expired() {
    let hub = hub(10, 2);
    assert_eq!(revisions(&hub, 9), Err(ResumeRefusal::EarlierRun));
    assert_eq!(revisions(&hub, u64::MAX), Err(ResumeRefusal::Expired), "of nobody");
    for now in [20, 30, 40] {
        hub.push(change("op"), now);
    }
    assert_eq!(revisions(&hub, 10), Err(ResumeRefusal::Expired));
    assert_eq!(revisions(&hub, 20), Ok(vec![30, 40]), "nothing after it is lost");
    hub.clear(50);
    assert_eq!(revisions(&hub, 40), Err(ResumeRefusal::Expired));
    assert_eq!(revisions(&hub, 50), Ok(vec![]));
    hub.push(change("op"), 60);
    assert_eq!(revisions(&hub, 50), Ok(vec![60]));
}

#[test]
fn a_follower_loses_only_changes_of_its_topic() {
    let hub = hub(10, 2);
    let mut quiet = hub.follow_from_now(of("quiet"));
    let mut busy = hub.follow_from_now(of("busy"));
    hub.push(change("quiet"), 20);
    for now in [30, 40] {
        hub.push(change("busy"), now);
    }
    assert_eq!(seen(&mut quiet), Err(RevisionExpired), "its own change was dropped");
    assert_eq!(seen(&mut busy), Ok(vec![30, 40]));
    let mut quiet = hub.follow_from_now(of("quiet"));
    for now in [50, 60, 70] {
        hub.push(change("busy"), now);
    }
    assert_eq!(seen(&mut quiet), Ok(vec![]), "changes of other topics do not matter");
    assert_eq!(quiet.seen(), 70, "and it may resume from the last of them");
    assert_eq!(seen(&mut busy), Err(RevisionExpired), "one of three is not kept");
    hub.clear(80);
    assert_eq!(seen(&mut quiet), Err(RevisionExpired), "nobody knows what was lost");
}

#[test]
fn an_unwatched_topic_has_no_index() {
    let hub = hub(10, 2);
    let (first, second) = (hub.follow_from_now(of("a")), hub.follow_from_now(of("a")));
    let topics = || hub.ring.lock().sizes().0;
    assert_eq!(topics(), 1);
    drop(first);
    assert_eq!(topics(), 1);
    drop(second);
    assert_eq!(topics(), 0);
}

/// A change of a DAG.
fn of_dag(tenant: &str) -> Arc<Change> {
    let name = DagName { tenant: tenant_id(tenant), dag: "web".parse().expect("a label") };
    Arc::new(Change::Dag(name, DagUid::new(1, 1).expect("a row")))
}

fn tenant_id(tenant: &str) -> TenantId {
    tenant.parse().expect("a label")
}

fn resumed(hub: &Arc<Hub>, topic: Topic, from: u64) -> Result<Vec<u64>, ResumeRefusal> {
    seen(&mut hub.follow(topic, from)?).map_err(|RevisionExpired| ResumeRefusal::Expired)
}

/// A change of an NT type.
fn of_nt_type(id: &str) -> Arc<Change> {
    let id: snic_domain::NtTypeId = id.parse().expect("an id");
    let (tenant, name) = (id.owner(), ResourceKey::NtType(id));
    Arc::new(Change::Resource { name, tenant, is_new: true })
}

/// Tenants hear of the provider's types and of their own, and of no other.
#[test]
fn what_the_provider_changes_is_told_to_all_tenants() {
    let hub = hub(10, 3);
    let of = |tenant: Option<&str>| Topic::Resources(ResourceKind::NtType, tenant.map(tenant_id));
    let mut acme = hub.follow_from_now(of(Some("acme")));
    for (revision, id) in [(20, "nat"), (21, "acme.nat"), (22, "beta.nat"), (23, "aes")] {
        hub.push(of_nt_type(id), revision);
    }
    assert_eq!(seen(&mut acme), Ok(vec![20, 21, 23]));
    assert_eq!(resumed(&hub, of(Some("beta")), 10), Ok(vec![20, 22, 23]));
    assert_eq!(resumed(&hub, of(None), 10), Ok(vec![20, 21, 22, 23]));
    for revision in 30..40 {
        hub.push(of_nt_type("beta.nat"), revision);
    }
    assert_eq!(
        resumed(&hub, of(Some("acme")), 10),
        Ok(vec![20, 21, 23]),
        "beta pushes out its own"
    );
    for revision in 40..50 {
        hub.push(of_nt_type("nat"), revision);
    }
    assert_eq!(
        resumed(&hub, of(Some("acme")), 10),
        Err(ResumeRefusal::Expired),
        "not all are kept"
    );
}

#[test]
fn a_tenant_expires_only_its_own_revisions() {
    let hub = hub(10, 3);
    let of = |tenant: &str| Topic::Dags(Some(tenant_id(tenant)));
    hub.push(of_dag("beta"), 20);
    hub.push(change("op"), 30);
    for now in 40..100 {
        hub.push(of_dag("acme"), now);
    }
    assert_eq!(resumed(&hub, of("beta"), 10), Ok(vec![20]));
    assert_eq!(revisions(&hub, 10), Ok(vec![30]));
    assert_eq!(resumed(&hub, of("acme"), 95), Err(ResumeRefusal::Expired));
    assert_eq!(resumed(&hub, of("acme"), 96), Ok(vec![97, 98, 99]));
    assert_eq!(
        resumed(&hub, Topic::Dags(None), 10),
        Err(ResumeRefusal::Expired),
        "not all are kept"
    );
    assert_eq!(resumed(&hub, Topic::Dags(None), 96), Ok(vec![97, 98, 99]));
}

#[test]
fn over_the_total_the_one_with_most_loses_its_oldest() {
    let hub = hub(10, 3); // six in all
    let of = |tenant: &str| Topic::Dags(Some(tenant_id(tenant)));
    for (now, tenant) in [(20, "a"), (21, "b"), (22, "b"), (23, "b"), (24, "c"), (25, "d")] {
        hub.push(of_dag(tenant), now);
    }
    hub.push(of_dag("e"), 26);
    assert_eq!(resumed(&hub, of("b"), 10), Err(ResumeRefusal::Expired));
    assert_eq!(resumed(&hub, of("b"), 21), Ok(vec![22, 23]));
    hub.push(of_dag("f"), 27);
    hub.push(of_dag("g"), 28);
    assert_eq!(resumed(&hub, of("a"), 20), Ok(vec![]), "of equals, the oldest goes");
    assert_eq!(resumed(&hub, of("a"), 10), Err(ResumeRefusal::Expired));
    for (tenant, last) in [("c", 24), ("d", 25), ("e", 26), ("f", 27), ("g", 28)] {
        assert_eq!(resumed(&hub, of(tenant), 23), Ok(vec![last]));
    }
    assert_eq!(hub.ring.lock().sizes().1, 6, "one each, and `b` has its last");
    assert_eq!(resumed(&hub, of("b"), 22), Ok(vec![23]));
}

#[tokio::test]
async fn a_follower_is_woken_only_for_its_topic() {
    let hub = hub(10, 4);
    let mut follower = hub.follow_from_now(of("op"));
    hub.push(change("another"), 20);
    let waiting = tokio::time::timeout(std::time::Duration::ZERO, follower.changed());
    waiting.await.expect_err("that is another's");
    hub.push(change("op"), 30);
    let woken = tokio::time::timeout(std::time::Duration::from_secs(60), follower.changed());
    woken.await.expect("it is woken for its own topic");
    assert_eq!(seen(&mut follower), Ok(vec![30]));
}
