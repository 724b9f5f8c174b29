//! Three members, of which the leading one is killed again and again under writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::Client;
use snic_etcd::{Answer, Compare, Failed, Operation, Request, Revision, Transaction};
use snic_store_etcd::{EtcdConnection, EtcdSettings};

use super::cluster::{Cluster, eventually, in_time, read, runtime};

const WRITERS: usize = 4;

/// Changes of each writer that are acknowledged before it stops.
const ACKNOWLEDGED: usize = 60;

/// The member that leads.
pub async fn leader(cluster: &Cluster) -> Option<usize> {
    for (at, url) in cluster.urls().into_iter().enumerate() {
        let asked = async {
            let mut client = Client::connect([url], None).await?;
            client.status().await
        };
        let status = tokio::time::timeout(Duration::from_secs(1), asked).await;
        if let Ok(Ok(status)) = status {
            let member = status.header().map(|header| header.member_id());
            if member == Some(status.leader()) {
                return Some(at);
            }
        }
    }
    None
}

/// Fate of each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Acknowledged,
    Open,
}

/// Creates one key after the other. What is open is left; what is certainly not done is done again, which must succeed.
async fn create(
    connection: EtcdConnection,
    writer: usize,
    acknowledged: &AtomicUsize,
) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::new();
    let mut count = 0;
    while count < ACKNOWLEDGED {
        let key = format!("w/{writer}/{:04}", outcomes.len());
        let value = key.clone().into_bytes();
        let create = Request::Commit(Transaction {
            compares: vec![Compare::CreatedAt(key.clone(), Revision(0))],
            operations: vec![Operation::Put { key: key.clone(), value, lease: None }],
        });
        let outcome = loop {
            match in_time(connection.ask(&create)).await {
                Ok(Answer::Committed(_)) => break Outcome::Acknowledged,
                Err(Failed::Unknown(_)) => break Outcome::Open,
                // Nothing was done: the key is not there yet.
                Err(Failed::Unreachable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                other => panic!("{key}: {other:?}"),
            }
        };
        if outcome == Outcome::Acknowledged {
            count += 1;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        outcomes.insert(key, outcome);
    }
    outcomes
}

/// Kills the leader each time when so many changes more were acknowledged, and starts it again before the next time.
async fn kill_leaders(cluster: &mut Cluster, acknowledged: &AtomicUsize, times: usize) {
    let mut killed = None;
    for time in 1..=times {
        let enough = WRITERS * ACKNOWLEDGED * time / (times + 1);
        eventually(async || acknowledged.load(Ordering::Relaxed) >= enough).await;
        if let Some(member) = killed.take() {
            cluster.restart(member);
        }
        let found = AtomicUsize::new(usize::MAX);
        eventually(async || {
            let leading = leader(cluster).await;
            found.store(leading.unwrap_or(usize::MAX), Ordering::Relaxed);
            leading.is_some()
        })
        .await;
        let leading = found.into_inner();
        cluster.kill(leading);
        killed = Some(leading);
    }
    if let Some(member) = killed {
        cluster.restart(member);
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_the_leading_member() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    runtime().block_on(async {
        let acknowledged = AtomicUsize::new(0);
        let mut settings = EtcdSettings::plain(cluster.urls());
        settings.request_timeout = Duration::from_secs(2);
        let mut connections = Vec::new();
        for _ in 0..WRITERS {
            connections.push(EtcdConnection::new(settings.clone()).await.unwrap());
        }
        let reader = connections[0].clone();
        let acknowledged = &acknowledged;
        let mut connections = connections.into_iter().enumerate();
        let mut writer = || {
            let (i, connection) = connections.next().unwrap();
            create(connection, i, acknowledged)
        };
        let (a, b, c, d, ()) = tokio::join!(
            writer(),
            writer(),
            writer(),
            writer(),
            kill_leaders(&mut cluster, acknowledged, 2)
        );
        let outcomes: BTreeMap<_, _> = [a, b, c, d].into_iter().flatten().collect();
        eventually(async || read(&reader, "w/").await.is_ok()).await;
        let found = read(&reader, "w/").await.unwrap();
        for record in &found {
            assert_eq!((record.key.as_bytes(), record.version), (&record.value[..], 1));
            assert!(outcomes.contains_key(&record.key), "{} was never asked for", record.key);
        }
        for (key, outcome) in &outcomes {
            let is_there = found.iter().any(|record| record.key == *key);
            assert!(is_there || *outcome == Outcome::Open, "{key} was acknowledged, and is lost");
        }
        let open = outcomes.values().filter(|outcome| **outcome == Outcome::Open).count();
        println!("{} acknowledged, {open} open", outcomes.len() - open);
    });
}
