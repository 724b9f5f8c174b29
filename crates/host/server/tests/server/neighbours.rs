//! Whether a tenant can learn anything about another tenant.

use snic_api::v1;
use snic_api::v1::audit_service_client::AuditServiceClient;

use crate::rig::Rig;

#[tokio::test]
async fn an_nt_type_is_in_nobody_elses_way() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let (mut acme, mut globex) =
        (rig.client("tenant/acme").await, rig.client("tenant/globex").await);
    // Of 2^32 codes these ids have the same one; found by trial, as anybody could.
    let squatted = globex.create_nt("globex.g13979", false).await.expect("the first one");
    let nt = acme.create_nt("acme.f98911", false).await.expect("it tells of nothing");
    assert_eq!(nt.code, squatted.code, "what a bitstream says is a matter of the id alone");
    acme.create_nt("acme.f14420", false).await.expect("another one");
    operator.create_nt("g8360", true).await.expect("no tenant keeps the provider from a name");
    rig.stop().await;
}

#[tokio::test]
async fn a_list_does_not_say_when_somebody_else_changed_something() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let (mut acme, mut globex) =
        (rig.client("tenant/acme").await, rig.client("tenant/globex").await);
    let list = || v1::ListDagsRequest { parent: "tenants/globex".into(), ..Default::default() };
    let mut last = 0;
    for round in 0..6 {
        if round % 2 == 1 {
            let name = format!("tenants/acme/dags/d{round}");
            operator.ready_dag(&name, crate::rig::chain(&["nat"])).await;
            acme.get_dag(&name).await.expect("it is there");
        }
        // It grows from list to list, whether somebody changed something in between or not.
        let listed = globex.dags.list_dags(list()).await.expect("a list").into_inner();
        assert!(listed.revision > last, "round {round}: {} after {last}", listed.revision);
        last = listed.revision;
    }
    rig.stop().await;
}

#[tokio::test]
async fn audit_entries_of_a_tenant_do_not_count_others_calls() {
    let rig = Rig::start().await;
    let operator = rig.furnished().await;
    let acme = rig.client("tenant/acme").await;
    let numbers = async |client: &crate::rig::Client| -> Vec<u64> {
        let mut log = AuditServiceClient::new(client.channel.clone());
        let list = log.list_audit_entries(v1::ListAuditEntriesRequest::default()).await;
        list.expect("a list").into_inner().entries.iter().map(|entry| entry.number).collect()
    };
    let seen = numbers(&acme).await;
    assert!(!seen.is_empty() && seen.iter().all(|number| *number == 0), "{seen:?}");
    let all = numbers(&operator).await;
    assert!(all.len() > seen.len() && all.iter().all(|number| *number > 0), "{all:?}");
    rig.stop().await;
}
