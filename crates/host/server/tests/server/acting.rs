//! Programs of operators that act for a tenant: its quotas and policies hold, those about the operator too, and the audit log has both.

use std::sync::Arc;

use snic_api::connect::ACTING_FOR_HEADER;
use snic_api::error::reason_of;
use snic_api::v1::audit_service_client::AuditServiceClient;
use snic_api::v1::{self, AuditEntry, ErrorReason};
use snic_front::authorization::{AccessDecision, Authorization, Authorizer, Question};
use tonic::{Code, Request, Status};

use crate::rig::{Client, Rig, chain, in_time};

/// Policies that refuse `CreateDag` to those whose names are given.
#[derive(Debug)]
struct NoDagsFor(&'static [&'static str]);

impl Authorizer for NoDagsFor {
    fn decide(&self, question: &Question<'_>) -> AccessDecision {
        let who = question.identity.to_string();
        let is_refused = self.0.contains(&&*who) && question.row.method() == "CreateDag";
        AccessDecision { allowed: !is_refused, policies: vec![format!("{who}.cedar:1")] }
    }
}

async fn rig(refused: &'static [&'static str]) -> (Rig, Client) {
    let authorization = Authorization::new(Arc::new(NoDagsFor(refused)));
    let rig = Rig::adjusted(|settings| settings.front.authorization = authorization).await;
    rig.furnished().await;
    let program = rig.client("operator/kubernetes").await;
    (rig, program)
}

/// Creates a DAG for a tenant; its name may be another's.
async fn create(client: &mut Client, who: &str, name: &str) -> Result<(), Status> {
    let (parent, dag_id) = name.split_once("/dags/").expect("the name of a DAG");
    let mut request = Request::new(v1::CreateDagRequest {
        parent: parent.into(),
        dag_id: dag_id.into(),
        dag: Some(chain(&["nat"])),
        ..Default::default()
    });
    request.metadata_mut().insert(ACTING_FOR_HEADER, who.parse().expect("text"));
    in_time(client.dags.create_dag(request)).await.map(drop)
}

async fn created_dags(client: &Client) -> Vec<AuditEntry> {
    let mut log = AuditServiceClient::new(client.channel.clone());
    let request = v1::ListAuditEntriesRequest { method: "CreateDag".into(), ..Default::default() };
    let mut all = log.list_audit_entries(request).await.expect("a page").into_inner().entries;
    all.reverse();
    all
}

#[tokio::test]
async fn the_tenant_is_the_caller_and_the_log_has_the_operator_too() {
    let (rig, mut program) = rig(&[]).await;
    create(&mut program, "tenant/acme", "tenants/acme/dags/web").await.expect("allowed");
    // It is no operator meanwhile: another tenant's things do not exist.
    let others = create(&mut program, "tenant/acme", "tenants/globex/dags/web").await;
    assert_eq!(others.expect_err("another's").code(), Code::NotFound);
    let [own, tried] = <[AuditEntry; 2]>::try_from(created_dags(&program).await).expect("two");
    assert_eq!((&*own.caller, &*own.agent), ("tenant/acme", "operator/kubernetes"));
    assert_eq!((&*own.identity, own.peer.is_empty()), ("PROVEN", false));
    assert_eq!(own.policies, ["operator/kubernetes.cedar:1", "tenant/acme.cedar:1"]);
    assert_eq!((&*tried.caller, &*tried.code), ("tenant/acme", "NOT_FOUND"));
    // The tenant sees that an operator did it for it, and neither which nor from where.
    let acme = rig.client("tenant/acme").await;
    let seen = created_dags(&acme).await;
    assert_eq!((&*seen[0].caller, &*seen[0].agent), ("tenant/acme", "operator"));
    assert_eq!((&*seen[0].peer, &*seen[0].identity), ("", ""));
    assert_eq!(created_dags(&rig.client("tenant/globex").await).await, []);
    rig.stop().await;
}

#[tokio::test]
async fn policies_have_to_allow_both() {
    let (rig, mut program) = rig(&["tenant/acme", "operator/weak"]).await;
    let mut weak = rig.client("operator/weak").await;
    let refused = create(&mut program, "tenant/acme", "tenants/acme/dags/web").await;
    let refused = refused.expect_err("not this tenant");
    assert_eq!(reason_of(&refused), Some(ErrorReason::PermissionDenied), "{refused:?}");
    assert!(refused.message().contains("do not allow tenant/acme this CreateDag"), "{refused:?}");
    create(&mut program, "tenant/globex", "tenants/globex/dags/web").await.expect("another tenant");
    let refused = create(&mut weak, "tenant/globex", "tenants/globex/dags/b").await;
    let refused = refused.expect_err("not this operator");
    assert!(refused.message().contains("do not allow operator/weak this"), "{refused:?}");
    let told = created_dags(&program).await;
    let told: Vec<_> = told.iter().map(|one| (&*one.decision, &*one.policies[0])).collect();
    let allowed = ("ALLOW", "operator/kubernetes.cedar:1");
    let denied = [("DENY", "tenant/acme.cedar:1"), ("DENY", "operator/weak.cedar:1")];
    assert_eq!(told, [denied[0], allowed, denied[1]]);
    rig.stop().await;
}

#[tokio::test]
async fn the_quota_is_the_tenants_and_only_operators_act() {
    let (rig, mut program) = rig(&[]).await;
    let mut operator = rig.client("operator/root").await;
    let quota = v1::UpdateTenantRequest {
        tenant: Some(v1::Tenant {
            name: "tenants/acme".into(),
            quota: Some(v1::Quota { dags_max: Some(1), ..Default::default() }),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["quota.dags_max".into()] }),
        ..Default::default()
    };
    operator.tenants.update_tenant(quota).await.expect("a quota");
    create(&mut program, "tenant/acme", "tenants/acme/dags/a").await.expect("the first");
    let beyond = create(&mut program, "tenant/acme", "tenants/acme/dags/b").await;
    assert_eq!(reason_of(&beyond.expect_err("one at most")), Some(ErrorReason::QuotaExceeded));
    for who in ["tenant/globex", "tenant/acme", "tenant/acme/bob"] {
        let mut client = rig.client(who).await;
        let refused = create(&mut client, "tenant/acme", "tenants/acme/dags/c").await;
        let refused = refused.expect_err("no operator");
        assert_eq!(reason_of(&refused), Some(ErrorReason::PermissionDenied), "{refused:?}");
    }
    for who in ["operator/root", "acme", "host/h1"] {
        let refused = create(&mut program, who, "tenants/acme/dags/c").await;
        let refused = refused.expect_err("no tenant");
        assert_eq!(reason_of(&refused), Some(ErrorReason::IdentityMissing), "{refused:?}");
    }
    rig.stop().await;
}
