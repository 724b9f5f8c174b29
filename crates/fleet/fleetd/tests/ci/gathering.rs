//! Lists that a replica gathers from hosts, where none of a thousand answers: what it says, how long it takes, and who may ask.

use std::time::{Duration, Instant};

use snic_api::v1;
use snic_api::v1::classification_service_client::ClassificationServiceClient;
use snic_api::v1::event_service_client::EventServiceClient;
use snic_api::v1::fairness_service_client::FairnessServiceClient;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use tonic::{Code, Status};

use crate::cluster::{Cluster, in_time, runtime};
use crate::rig::{Client, Rig};

/// Hosts that are registered. No one links itself.
const HOSTS: usize = 1_000;
const VM: &str = "123e4567-e89b-42d3-a456-426614174000";

async fn events(of: &Client) -> Result<v1::ListEventsResponse, Status> {
    let request = v1::ListEventsRequest::default();
    Ok(EventServiceClient::new(of.0.clone()).list_events(request).await?.into_inner())
}

async fn rules(of: &Client, dag: &str) -> Result<v1::ListRulesResponse, Status> {
    let request = v1::ListRulesRequest { dag: dag.into(), ..Default::default() };
    Ok(ClassificationServiceClient::new(of.0.clone()).list_rules(request).await?.into_inner())
}

/// Each kind of caller at each service: who may call, and that a host without an answer is never left out.
async fn who_may_ask(rig: &Rig) {
    let (root, acme) = (rig.client(0, "operator/root").await, rig.client(0, "tenant/acme").await);
    let virt = rig.client(0, "orchestrator/virt").await;
    for who in ["host/h1", "replica/r9", "tenant/acme/bob", "orchestrator/virt"] {
        let other = rig.client(0, who).await;
        let refused = events(&other).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{who}: {refused:?}");
        let refused = rules(&other, "").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{who}: {refused:?}");
    }
    let list = || v1::ListBindingsRequest { parent: "tenants/-".into(), ..Default::default() };
    let mut machines = OrchestrationServiceClient::new(acme.0.clone());
    let refused = machines.list_bindings(list()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    let mut machines = OrchestrationServiceClient::new(virt.0.clone());
    let listed = machines.list_bindings(list()).await.unwrap().into_inner();
    assert_eq!((listed.bindings.len(), listed.unreachable_hosts.len()), (0, HOSTS));
    assert!(listed.unreachable_hosts.iter().all(|of| of.reason.contains("not linked")));

    // A tenant without DAGs has no rules anywhere, and no host is asked. Events may be left on any.
    let listed = rules(&acme, "").await.unwrap();
    assert_eq!((listed.rules.len(), listed.unreachable_hosts.len()), (0, 0));
    let told = events(&acme).await.unwrap();
    assert_eq!(told.unreachable_hosts.len(), HOSTS);
    assert!(told.unreachable_hosts.iter().all(|of| *of == v1::UnreachableHost::default()));
    let listed = rules(&root, "tenants/acme/dags/none").await.unwrap();
    assert_eq!((listed.rules.len(), listed.unreachable_hosts.len()), (0, 0));
    let mut fairness = FairnessServiceClient::new(acme.0.clone());
    let other = v1::GetFairnessRequest { name: "tenants/zeta".into() };
    assert_eq!(fairness.get_fairness(other).await.unwrap_err().code(), Code::NotFound);
}

/// A machine that no host is known to have may be on one that does not answer: nobody is told that it is gone.
async fn nothing_is_said_to_be_gone(rig: &Rig) {
    let virt = rig.client(0, "orchestrator/virt").await;
    let mut machines = OrchestrationServiceClient::new(virt.0.clone());
    let beat = v1::HeartbeatRequest { vms: vec![VM.into()] };
    let beat = machines.heartbeat(beat).await.unwrap().into_inner();
    assert_eq!((beat.alive.len(), beat.missing.len(), beat.unreachable_hosts.len()), (0, 0, HOSTS));
    let many = v1::HeartbeatRequest { vms: vec![VM.into(); 1_001] };
    let refused = machines.heartbeat(many).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let unbind = v1::UnbindVmRequest { vm: VM.into(), allow_missing: true, ..Default::default() };
    let open = machines.unbind_vm(unbind).await.unwrap_err();
    assert_eq!(open.code(), Code::Unavailable, "{open:?}");
    assert!(open.message().contains("1000 hosts, among them h0"), "{open:?}");
    let root = rig.client(0, "operator/root").await;
    let mut of_rules = ClassificationServiceClient::new(root.0.clone());
    let delete = v1::DeleteRuleRequest {
        name: "classificationRules/one".into(),
        allow_missing: true,
        ..Default::default()
    };
    let open = of_rules.delete_rule(delete).await.unwrap_err();
    assert_eq!(open.code(), Code::Unavailable, "{open:?}");
}

/// A caller has two questions at once and no more, whatever it sends; others have theirs meanwhile.
async fn a_caller_has_its_share(rig: &Rig) {
    let acme = rig.client(0, "tenant/acme").await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let acme = acme.clone();
        asked.spawn(async move { events(&acme).await.map(drop) });
    }
    let root = rig.client(0, "operator/root").await;
    let begun = Instant::now();
    assert_eq!(events(&root).await.unwrap().unreachable_hosts.len(), HOSTS);
    let beside = begun.elapsed();
    let (mut answered, mut refused) = (0, 0);
    while let Some(answer) = asked.join_next().await {
        match answer.unwrap() {
            Ok(()) => answered += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                refused += 1;
            }
        }
    }
    println!("{answered} answered, {refused} refused; another caller waited {beside:?}");
    assert!(answered >= 2 && refused > 0, "{answered} answered, {refused} refused");
    assert!(beside < Duration::from_secs(8), "{beside:?}");
}

#[test]
fn a_thousand_hosts_that_do_not_answer_are_named() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        for tenant in ["acme", "zeta"] {
            root.create_tenant(tenant, "").await.unwrap();
        }
        for number in 0..HOSTS {
            root.create_host(&format!("h{number}")).await.unwrap();
        }
        let begun = Instant::now();
        let told = events(&root).await.unwrap();
        println!("{HOSTS} hosts were asked in {:?}", begun.elapsed());
        assert_eq!((told.events.len(), told.unreachable_hosts.len()), (0, HOSTS));
        let first = &told.unreachable_hosts[0];
        assert!(
            first.host.starts_with("hosts/h") && first.reason.contains("not linked"),
            "{first:?}"
        );
        who_may_ask(&rig).await;
        nothing_is_said_to_be_gone(&rig).await;
        a_caller_has_its_share(&rig).await;
    }));
}
