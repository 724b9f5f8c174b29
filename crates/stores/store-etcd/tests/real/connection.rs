//! Failures that a connection survives.

use std::time::Duration;

use snic_etcd::{Answer, Change, Failed, Operation, Request, Revision, Watch, WatchUpdate};
use snic_store_etcd::{EtcdConnection, EtcdSettings};

use super::cluster::{Cluster, commit, eventually, in_time, put, read, revision_of, runtime};
use super::members::leader;

fn watch_all(from: i64) -> Watch {
    Watch { prefix: "k/".to_owned(), from: Revision(from) }
}

/// The changes that are told next; bookmarks and failures on the way are passed over.
async fn next_keys(watching: &mut snic_store_etcd::EtcdWatchStream) -> Vec<String> {
    loop {
        match in_time(watching.next()).await {
            Ok(WatchUpdate { changes, .. }) if !changes.is_empty() => {
                let key = |change| match change {
                    Change::Put(record) => record.key,
                    Change::Deleted { key, .. } => key,
                };
                return changes.into_iter().map(key).collect();
            }
            Ok(_) | Err(Failed::Unreachable(_)) => {}
            Err(failed) => panic!("{failed}"),
        }
    }
}

#[test]
fn a_member_that_is_not_there_is_told_as_nothing_done() {
    runtime().block_on(async {
        // A port that was free a moment ago.
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let connection = EtcdConnection::new(EtcdSettings::plain(vec![url])).await.unwrap();
        let failed = connection.ask(&commit(vec![put("k", "v")])).await.unwrap_err();
        assert!(matches!(failed, Failed::Unreachable(_)), "{failed}");
        let mut watching = connection.watch(watch_all(1)).unwrap();
        let failed = in_time(watching.next()).await.unwrap_err();
        assert!(matches!(failed, Failed::Unreachable(_)), "{failed}");
    });
}

#[test]
fn settings_without_a_usable_endpoint_are_refused() {
    runtime().block_on(async {
        for urls in [vec![], vec!["http://not a url".to_owned()]] {
            let failed = EtcdConnection::new(EtcdSettings::plain(urls)).await.unwrap_err();
            assert!(matches!(failed, Failed::Invalid(_)), "{failed}");
        }
    });
}

/// One that hangs: an answer is not waited for longer than the settings say, and the outcome is open. In this case
/// it was carried out once the member went on.
#[test]
fn a_member_that_hangs_leaves_the_outcome_open() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(async {
        let mut settings = EtcdSettings::plain(cluster.urls());
        settings.request_timeout = Duration::from_millis(300);
        let connection = EtcdConnection::new(settings).await.unwrap();
        connection.ask(&commit(vec![put("k/0", "")])).await.unwrap();
        cluster.signal(0, "STOP");
        let failed = connection.ask(&commit(vec![put("k/1", "")])).await.unwrap_err();
        assert!(matches!(failed, Failed::Unknown(_)), "{failed}");
        let failed = read(&connection, "k/").await.unwrap_err();
        assert!(matches!(failed, Failed::Unreachable(_)), "a read changes nothing: {failed}");
        cluster.signal(0, "CONT");
        eventually(async || read(&connection, "k/1").await.is_ok()).await;
    });
}

/// A member is killed: changes go to the next one, a watch goes on without a gap or a repetition.
#[test]
fn a_watch_goes_on_at_another_member() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    runtime().block_on(async {
        let connection = cluster.connect().await;
        let first = connection.ask(&commit(vec![put("k/0", "")])).await.unwrap();
        let mut watching = connection.watch(watch_all(revision_of(&first).0)).unwrap();
        assert_eq!(next_keys(&mut watching).await, ["k/0"]);
        cluster.kill(0);
        let mut written = Vec::new();
        for i in 1..20 {
            // Open: it is written under its own key once more, which tells nobody anything new.
            let key = format!("k/{i}");
            let create = commit(vec![put(&key, "")]);
            eventually(async || connection.ask(&create).await.is_ok()).await;
            written.push(key);
        }
        let mut told: Vec<String> = Vec::new();
        while told.last() != written.last() {
            let next = next_keys(&mut watching).await;
            told.extend(next);
        }
        told.dedup();
        assert_eq!(told, written);
    });
}

/// Bookmarks come while nothing happens under the prefix, and a watch that goes on behind one survives compaction.
#[test]
fn a_bookmark_outlives_compaction_and_an_older_watch_is_told() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    runtime().block_on(async {
        let connection = cluster.connect().await;
        let mut behind = connection.watch(watch_all(2)).unwrap();
        let mut watching = connection.watch(watch_all(2)).unwrap();
        let first = connection.ask(&commit(vec![put("k/0", "")])).await.unwrap();
        assert_eq!(next_keys(&mut watching).await, ["k/0"]);
        let mut last = revision_of(&first);
        for i in 0..10 {
            let other = commit(vec![put("other", &i.to_string())]);
            last = revision_of(&connection.ask(&other).await.unwrap());
        }
        while watching.from() <= last {
            let told = in_time(watching.next()).await.unwrap();
            assert!(told.changes.is_empty(), "{told:?}");
        }
        connection.ask(&Request::Compact(last)).await.unwrap();
        cluster.kill(0);
        cluster.restart(0);
        let next = commit(vec![put("k/1", "")]);
        eventually(async || connection.ask(&next).await.is_ok()).await;
        assert_eq!(next_keys(&mut watching).await, ["k/1"]);
        loop {
            match in_time(behind.next()).await {
                Err(Failed::Compacted(at)) => {
                    assert_eq!(at.0, last.0 + 1);
                    break;
                }
                Err(Failed::Unreachable(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}

/// A member that hangs keeps its connections; pings find out. Signs of life do not wait for that.
#[test]
fn watches_and_leases_leave_a_member_that_hangs() {
    let Some(cluster) = Cluster::start(3) else { return };
    runtime().block_on(async {
        let connection = cluster.connect().await;
        let granted = connection.ask(&Request::Grant { seconds: 600 }).await.unwrap();
        let Answer::Granted(lease, _) = granted else { panic!("{granted:?}") };
        let beat = async || {
            connection.ask_within(&Request::KeepAlive(lease), Duration::from_millis(500)).await
        };
        assert_eq!(beat().await, Ok(Answer::Alive(lease, 600)));
        let first = connection.ask(&commit(vec![put("k/0", "")])).await.unwrap();
        let mut watching = connection.watch(watch_all(revision_of(&first).0)).unwrap();
        assert_eq!(next_keys(&mut watching).await, ["k/0"]);
        cluster.signal(0, "STOP");
        eventually(async || beat().await == Ok(Answer::Alive(lease, 600))).await;
        let create = commit(vec![put("k/1", "")]);
        eventually(async || connection.ask(&create).await.is_ok()).await;
        assert_eq!(next_keys(&mut watching).await, ["k/1"]);
    });
}

/// A sign of life is no change: one that a hanging member does not answer is tried with the next one at once, and who
/// gives it learns nothing of that.
#[test]
fn a_sign_of_life_that_is_not_answered_is_given_to_the_next_member() {
    let Some(cluster) = Cluster::start(3) else { return };
    runtime().block_on(async {
        let leader = leader(&cluster).await.expect("each member answers reads, so one leads");
        let first = (leader + 1) % 3;
        let mut urls = cluster.urls();
        urls.rotate_left(first);
        let connection = EtcdConnection::new(EtcdSettings::plain(urls)).await.unwrap();
        let granted = connection.ask(&Request::Grant { seconds: 600 }).await.unwrap();
        let Answer::Granted(lease, _) = granted else { panic!("{granted:?}") };
        cluster.signal(first, "STOP");
        let beat = Request::KeepAlive(lease);
        let alive = connection.ask_within(&beat, Duration::from_secs(2)).await;
        assert_eq!(alive, Ok(Answer::Alive(lease, 600)));
    });
}

#[test]
fn a_lease_lives_while_it_gives_signs_of_life_also_through_another_member() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    runtime().block_on(async {
        let connection = cluster.connect().await;
        let granted = connection.ask(&Request::Grant { seconds: 30 }).await.unwrap();
        let Answer::Granted(lease, _) = granted else { panic!("{granted:?}") };
        let key = Operation::Put { key: "k/0".to_owned(), value: vec![], lease: Some(lease) };
        connection.ask(&commit(vec![key])).await.unwrap();
        let beat = Request::KeepAlive(lease);
        for _ in 0..3 {
            assert_eq!(connection.ask(&beat).await, Ok(Answer::Alive(lease, 30)));
        }
        cluster.kill(0);
        eventually(async || connection.ask(&beat).await == Ok(Answer::Alive(lease, 30))).await;
        let records = read(&connection, "k/").await.unwrap();
        assert_eq!(records[0].lease, Some(lease));
        assert_eq!(connection.ask(&Request::Revoke(lease)).await, Ok(Answer::Ended(lease)));
        assert_eq!(connection.ask(&beat).await, Ok(Answer::Ended(lease)));
        assert_eq!(read(&connection, "k/").await, Ok(vec![]));
        assert_eq!(connection.members().await.unwrap().len(), 3);
    });
}

/// etcd forgets the deletions of the revision that it compacts to, and lets watches begin there all the same.
#[test]
fn a_watch_from_a_compacted_deletion_does_not_miss_it_silently() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(async {
        let connection = cluster.connect().await;
        connection.ask(&commit(vec![put("k/0", "")])).await.unwrap();
        let delete = commit(vec![Operation::Delete { key: "k/0".to_owned() }]);
        let deleted = revision_of(&connection.ask(&delete).await.unwrap());
        let last = revision_of(&connection.ask(&commit(vec![put("k/1", "")])).await.unwrap());
        connection.ask(&Request::Compact(deleted)).await.unwrap();
        let range =
            |at| Request::Range { prefix: "k".to_owned(), at: Some(at), from: None, limit: 9 };
        let found = connection.ask(&range(deleted)).await;
        let nothing = Answer::Range { records: vec![], more: false, now: last };
        assert_eq!(found, Ok(nothing), "as of the compacted revision itself");
        let before = Revision(deleted.0 - 1);
        assert_eq!(connection.ask(&range(before)).await, Err(Failed::Compacted(deleted)));
        let mut watching = connection.watch(watch_all(deleted.0)).unwrap();
        assert_eq!(in_time(watching.next()).await, Err(Failed::Compacted(last)));
        let mut behind = connection.watch(watch_all(last.0)).unwrap();
        assert_eq!(next_keys(&mut behind).await, ["k/1"]);
    });
}
