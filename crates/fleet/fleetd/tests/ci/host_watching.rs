//! Watches of hosts at any replica: their records, and whether they answer.

use std::time::Duration;

use snic_api::fleet_v1 as wire;
use snic_api::fleet_v1::WatchHostsResponse;
use snic_api::fleet_v1::fleet_service_client::FleetServiceClient;
use snic_api::fleet_v1::host::Condition;
use snic_api::v1::EventType;
use snic_etcd::Answer;
use tonic::{Code, Status, Streaming};

use crate::cluster::{Cluster, eventually, get, in_time, runtime};
use crate::host;
use crate::rig::{Client, Rig};

const CHAIN: [&str; 2] = ["firewall", "nat"];

type Hosts = Streaming<WatchHostsResponse>;

async fn watch(of: &Client, resume_revision: u64) -> Result<Hosts, Status> {
    let request = wire::WatchHostsRequest { resume_revision, ..Default::default() };
    Ok(FleetServiceClient::new(of.0.clone()).watch_hosts(request).await?.into_inner())
}

/// All events up to the first that is wanted, which is the last.
async fn until(
    watch: &mut Hosts,
    wanted: impl Fn(EventType, &wire::Host) -> bool,
) -> Vec<WatchHostsResponse> {
    let mut all = Vec::new();
    loop {
        let event = watch.message().await.unwrap().expect("it goes on");
        all.push(event.clone());
        if wanted(event.r#type(), &event.host.clone().unwrap_or_default()) {
            return all;
        }
    }
}

fn is_host(host: &str, of: &wire::Host) -> bool {
    of.name == format!("hosts/{host}")
}

/// The revision of etcd: each write raises it.
async fn revision(rig: &Rig) -> i64 {
    let etcd = rig.cluster.connect().await;
    match etcd.ask(&get("/snic/")).await.unwrap() {
        Answer::Range { now, .. } => now.0,
        other => panic!("{other:?}"),
    }
}

/// A watch begins with both hosts, as GetHost shows them but for what a watch does not tell, and with a bookmark.
async fn check_begin(of: &mut Hosts, shown: &wire::Host) {
    let begun = until(of, |kind, _| kind == EventType::Bookmark).await;
    let [h1, h2, .., end] = begun.as_slice() else { panic!("{begun:?}") };
    let (h1, h2) = (h1.host.as_ref().unwrap(), h2.host.as_ref().unwrap());
    assert!(is_host("h1", h1) && is_host("h2", h2), "{begun:?}");
    assert!(begun[..2].iter().all(|event| event.r#type() == EventType::Added));
    let shown = wire::Host { dags: 0, condition: 0, ..shown.clone() };
    assert_eq!(wire::Host { condition: 0, ..h2.clone() }, shown);
    // It has never linked itself.
    assert!(![Condition::Unspecified, Condition::InStep].contains(&h2.condition()));
    assert!(end.revision > 0, "{begun:?}");
}

/// Whether it was made, now or by a request whose answer was lost with the leader.
fn is_there<T>(made: Result<T, Status>) -> bool {
    made.map_or_else(|status| status.code() == Code::AlreadyExists, |_| true)
}

#[test]
fn hosts_are_watched_at_each_replica_and_over_a_change_of_the_leader() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut rig = Rig::start(cluster, 3).await;
        let leader = rig.leader().await;
        let (second, third) = ((leader + 1) % 3, (leader + 2) % 3);
        let root = rig.client(leader, "operator/root").await;
        root.provide("h1", &CHAIN).await;
        root.create_host("h2").await.unwrap();
        let mut links = Vec::new();
        for replica in 0..3 {
            links.push(rig.connect(replica, "host/h1").await);
        }
        let running = tokio::spawn(host::run(links));
        let (there, elsewhere) =
            (rig.client(second, "operator/root").await, rig.client(third, "operator/root").await);
        let mut watches = [watch(&there, 0).await.unwrap(), watch(&elsewhere, 0).await.unwrap()];
        let h2 = root.host("h2").await.unwrap();
        for of in &mut watches {
            check_begin(of, &h2).await;
        }

        // What operators do at one replica is told at the others.
        let mut fleet = FleetServiceClient::new(root.0.clone());
        fleet.cordon_host(wire::CordonHostRequest { name: "hosts/h2".into() }).await.unwrap();
        let mut last = 0;
        for of in &mut watches {
            let is_cordoned = |_, host: &wire::Host| is_host("h2", host) && host.cordoned;
            let seen = until(of, is_cordoned).await;
            last = seen.last().unwrap().revision;
        }
        let is_in_step =
            |_, host: &wire::Host| is_host("h1", host) && host.condition() == Condition::InStep;
        // A watch that was begun behind that begins with all hosts as they are.
        let mut resumed = watch(&there, last).await.unwrap();
        let seen = until(&mut resumed, is_in_step).await;
        assert!(seen.iter().all(|event| event.r#type() == EventType::Modified), "{seen:?}");
        // The drain of a rack changes no record of a host.
        let area = "zones/z1/racks/r1".to_owned();
        let drain = wire::DrainAreaRequest { area: area.clone(), moves_max: 1 };
        fleet.drain_area(drain.clone()).await.unwrap();
        for of in watches.iter_mut().chain([&mut resumed]) {
            for host in ["h1", "h2"] {
                until(of, |_, of| is_host(host, of) && of.draining).await;
            }
        }
        fleet.undrain_area(wire::UndrainAreaRequest { area }).await.unwrap();

        // Nothing is written while they watch.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = revision(&rig).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(revision(&rig).await, before);

        let name = "hosts/h2".to_owned();
        let request = wire::DeleteHostRequest { name: name.clone(), ..Default::default() };
        fleet.delete_host(request).await.unwrap();
        for of in &mut watches {
            let seen = until(of, |kind, _| kind == EventType::Deleted).await;
            let host = seen.last().unwrap().host.clone().unwrap();
            assert_eq!(host, wire::Host { name: name.clone(), ..Default::default() });
        }
        // The leader crashes: watches at others go on, and tell what the next one says.
        rig.abort(leader);
        let [mut of, _] = watches;
        eventually(async || is_there(there.create_host("h3").await)).await;
        let seen = until(&mut of, |_, host| is_host("h3", host)).await;
        assert_eq!(seen.last().unwrap().r#type(), EventType::Added, "{seen:?}");
        FleetServiceClient::new(there.0.clone()).drain_area(drain).await.unwrap();
        until(&mut of, |_, host| is_host("h3", host) && host.draining).await;
        eventually(async || {
            there.host("h1").await.is_ok_and(|host| host.condition() == Condition::InStep)
        })
        .await;
        let mut of = watch(&elsewhere, 0).await.unwrap();
        until(&mut of, is_in_step).await;
        running.abort();
    }));
}

#[test]
fn who_may_not_watch_and_from_where_nobody_can() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        root.create_tenant("acme", "").await.unwrap();
        for who in ["tenant/acme", "host/h1", "replica/r9"] {
            let refused = watch(&rig.client(0, who).await, 0).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{who}: {refused:?}");
        }
        let wrong = watch(&root, 1 << 40).await.unwrap_err();
        assert_eq!(wrong.code(), Code::OutOfRange, "{wrong:?}");
        // A list says where a watch goes on.
        root.create_host("h1").await.unwrap();
        let mut fleet = FleetServiceClient::new(root.0.clone());
        let listed = fleet.list_hosts(wire::ListHostsRequest::default()).await.unwrap();
        let listed = listed.into_inner();
        assert!(listed.hosts[0].cards[0].profile.contains("regions"), "{listed:?}");
        let view = wire::HostView::Basic.into();
        let request = wire::ListHostsRequest { view, ..Default::default() };
        let basic = fleet.list_hosts(request).await.unwrap().into_inner().hosts.remove(0);
        assert_eq!((basic.cards[0].profile.as_str(), basic.cards[0].functions), ("", 8));
        assert_eq!(basic.cards[0].model, listed.hosts[0].cards[0].model);
        let request = wire::WatchHostsRequest { view, ..Default::default() };
        let mut first = fleet.watch_hosts(request).await.unwrap().into_inner();
        let told = first.message().await.unwrap().unwrap().host.unwrap();
        assert_eq!((told.cards[0].profile.as_str(), told.cards[0].functions), ("", 8));
        let mut after = watch(&root, listed.revision).await.unwrap();
        root.create_host("h2").await.unwrap();
        let seen = until(&mut after, |kind, _| kind == EventType::Added).await;
        assert!(is_host("h2", seen.last().unwrap().host.as_ref().unwrap()), "{seen:?}");
    }));
}
