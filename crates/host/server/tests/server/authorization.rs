//! Authorization policies as clients see them: who one is, what one may do, and what is refused.

use std::sync::Arc;

use snic_api::error::reason_of;
use snic_api::v1::audit_service_client::AuditServiceClient;
use snic_api::v1::authorization_service_client::AuthorizationServiceClient;
use snic_api::v1::bind_vm_request::Chains;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::{self, ErrorReason};
use snic_front::authorization::{AccessDecision, Authorization, Authorizer, BuiltIn, Question};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::matrix::{KINDS, Kind, MATRIX};
use crate::raw::call;
use crate::rig::{Rig, chain, in_time};

/// Policies as a function.
struct Policies<F>(F);

impl<F> std::fmt::Debug for Policies<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Policies")
    }
}

impl<F: Fn(&Question<'_>) -> bool + Send + Sync> Authorizer for Policies<F> {
    fn decide(&self, question: &Question<'_>) -> AccessDecision {
        AccessDecision { allowed: (self.0)(question), policies: vec!["test.cedar:1".into()] }
    }
}

fn policies(allow: impl Fn(&Question<'_>) -> bool + Send + Sync + 'static) -> Arc<dyn Authorizer> {
    Arc::new(Policies(allow))
}

async fn rig(authorizer: Arc<dyn Authorizer>) -> (Rig, Authorization) {
    let authorization = Authorization::new(authorizer);
    let of_server = authorization.clone();
    (Rig::adjusted(|settings| settings.front.authorization = of_server).await, authorization)
}

async fn can(
    channel: &Channel,
    method: &str,
    resource: &str,
    identity: &str,
) -> Result<v1::CheckAccessResponse, Status> {
    let request = v1::CheckAccessRequest {
        method: method.into(),
        resource: resource.into(),
        identity: identity.into(),
    };
    let mut client = AuthorizationServiceClient::new(channel.clone());
    in_time(client.check_access(request)).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn each_caller_learns_who_it_is() {
    let rig = Rig::start().await;
    for (who, tenant) in [
        ("operator/root", ""),
        ("orchestrator/libvirt", ""),
        ("tenant/acme", "tenants/acme"),
        ("tenant/acme/bob", "tenants/acme"),
    ] {
        let channel = rig.client(who).await.channel;
        let mut client = AuthorizationServiceClient::new(channel);
        let answer = in_time(client.who_am_i(v1::WhoAmIRequest {})).await.expect("identified");
        let answer = answer.into_inner();
        assert_eq!((answer.identity.as_str(), answer.tenant.as_str()), (who, tenant));
    }
    rig.stop().await;
}

/// The answers of CheckAccess are those of the matrix, asked by oneself and by an operator.
#[tokio::test]
async fn what_a_caller_is_told_is_what_the_matrix_says() {
    let rig = Rig::start().await;
    let operator = rig.client("operator/root").await.channel;
    for kind in KINDS {
        let who = match kind {
            Kind::Nobody => continue,
            Kind::Tenant => "tenant/acme",
            Kind::Orchestrator => "orchestrator/libvirt",
            Kind::Operator => "operator/root",
        };
        let own = rig.client(who).await.channel;
        for row in
            MATRIX.iter().filter(|row| !row.allows(Kind::Orchestrator) || !row.allows(Kind::Tenant))
        {
            let method = row.path.rsplit_once('.').expect("a package").1;
            let answer = can(&own, method, "", "").await.expect(method);
            assert_eq!(answer.allowed, row.allows(kind), "{who} {method}: {answer:?}");
            let told = can(&operator, row.method(), "", who).await.expect(method);
            assert_eq!(told.allowed, answer.allowed, "{who} {method}: {told:?}");
        }
    }
    rig.stop().await;
}

#[tokio::test]
async fn an_answer_says_nothing_of_what_exists_and_policies_are_for_operators() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let acme = rig.client("tenant/acme").await.channel;
    let operator = rig.client("operator/root").await.channel;
    for (resource, allowed) in [
        ("tenants/acme", true),
        ("tenants/acme/dags/none", true),
        ("tenants/globex", false),
        ("tenants/globex/dags/none", false),
        ("tenants/nobody-has-it/dags/none", false),
    ] {
        let answer = can(&acme, "GetDag", resource, "").await.expect(resource);
        assert_eq!(answer.allowed, allowed, "{resource}: {answer:?}");
        assert!(answer.policies.is_empty(), "{answer:?}");
        let told = can(&operator, "GetDag", resource, "tenant/acme").await.expect(resource);
        assert_eq!(told.allowed, allowed, "{resource}: {told:?}");
    }
    let existing = can(&acme, "GetDag", "tenants/globex/dags/a", "").await.expect("an answer");
    let absent = can(&acme, "GetDag", "tenants/nobody/dags/a", "").await.expect("an answer");
    assert_eq!(existing, absent);
    let told = can(&operator, "GetDag", "tenants/acme/dags/a", "tenant/acme").await;
    assert_eq!(told.expect("an answer").policies, ["built-in"]);
    // Others' NT types may be published.
    assert!(can(&acme, "GetNtType", "ntTypes/globex.x", "").await.expect("an answer").allowed);
    assert!(!can(&acme, "DeleteNtType", "ntTypes/globex.x", "").await.expect("an answer").allowed);
    let status = can(&acme, "GetDag", "", "tenant/globex").await.expect_err("not an operator");
    assert_eq!(reason_of(&status), Some(ErrorReason::PermissionDenied));
    assert!(can(&acme, "GetDag", "", "tenant/acme").await.is_ok(), "it is itself");
    for (method, resource, identity, field) in [
        ("Frobnicate", "", "", "method"),
        ("WhoAmI", "", "", "method"),
        ("GetDag", "acme", "", "resource"),
        ("GetDag", "", "root", "identity"),
    ] {
        let status = can(&operator, method, resource, identity).await.expect_err(method);
        assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField), "{status:?}");
        assert!(format!("{status:?}").contains(field), "{status:?}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn without_policies_a_member_of_a_tenant_may_do_nothing() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let bob = rig.client("tenant/acme/bob").await;
    for row in
        MATRIX.iter().filter(|row| row.allows(Kind::Tenant) && !row.allows(Kind::Orchestrator))
    {
        // An upload is decided by its header.
        let message = match row.method() {
            "UploadBitstream" => prost::Message::encode_to_vec(&crate::rig::header(
                crate::rig::image("acme.x", &["nat"]).0,
            )),
            _ => Vec::new(),
        };
        let status =
            in_time(call(&bob.channel, row.path, vec![message])).await.expect_err(row.path);
        assert_eq!(status.code(), Code::PermissionDenied, "{}: {status:?}", row.path);
        assert!(status.message().contains("members of a tenant"), "{}", status.message());
    }
    rig.stop().await;
}

/// Changes of members are refused, all else is allowed.
fn members_read() -> Arc<dyn Authorizer> {
    policies(|question| question.identity.member().is_none() || !question.row.changes())
}

#[tokio::test]
async fn a_member_acts_for_its_tenant_and_the_audit_log_has_its_name() {
    let (rig, _) = rig(members_read()).await;
    let operator = rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut bob = rig.client("tenant/acme/bob").await;
    acme.create_dag("tenants/acme/dags/web", chain(&["nat"])).await.expect("a DAG");
    let seen = bob.get_dag("tenants/acme/dags/web").await.expect("it reads");
    assert_eq!(seen.name, "tenants/acme/dags/web");
    let refused = bob.create_dag("tenants/acme/dags/b", chain(&["nat"])).await.expect_err("reads");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    // Of another tenant's the answers are the same, whether it exists or not.
    let of_others = ["tenants/globex/dags/web", "tenants/none00/dags/web"];
    for name in of_others {
        let status = bob.get_dag(name).await.expect_err("another's");
        assert_eq!(status.code(), Code::NotFound, "{status:?}");
    }
    let mut log = AuditServiceClient::new(operator.channel.clone());
    let request = v1::ListAuditEntriesRequest { method: "CreateDag".into(), ..Default::default() };
    let all = log.list_audit_entries(request.clone()).await.expect("a page").into_inner().entries;
    let told: Vec<_> = all
        .iter()
        .map(|entry| (entry.caller.as_str(), entry.decision.as_str(), entry.policies.join(" ")))
        .collect();
    let by = || "test.cedar:1".to_owned();
    assert_eq!(told, [("tenant/acme/bob", "DENY", by()), ("tenant/acme", "ALLOW", by())]);
    // The tenant sees what its member did, and not the names of policies; another sees nothing.
    let mut log = AuditServiceClient::new(acme.channel.clone());
    let own = log.list_audit_entries(request.clone()).await.expect("a page").into_inner().entries;
    assert_eq!(own.len(), 2, "{own:?}");
    assert!(own.iter().all(|entry| entry.policies.is_empty()), "{own:?}");
    let globex = rig.client("tenant/globex").await;
    let mut log = AuditServiceClient::new(globex.channel);
    let others = log.list_audit_entries(request).await.expect("a page").into_inner().entries;
    assert!(others.is_empty(), "{others:?}");
    rig.stop().await;
}

#[tokio::test]
async fn each_dag_of_a_batch_is_decided() {
    let (rig, _) = rig(policies(|question| !question.resource.name.ends_with("/b"))).await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let one = |id: &str| v1::CreateDagRequest {
        dag_id: id.into(),
        dag: Some(chain(&["nat"])),
        ..Default::default()
    };
    let of = |ids: &[&str]| v1::BatchCreateDagsRequest {
        parent: "tenants/acme".into(),
        requests: ids.iter().map(|id| one(id)).collect(),
        allow_partial: true,
        ..Default::default()
    };
    let refused = acme.dags.batch_create_dags(of(&["a", "b"])).await.expect_err("not b");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert_eq!(acme.get_dag("tenants/acme/dags/a").await.expect_err("none").code(), Code::NotFound);
    acme.dags.batch_create_dags(of(&["a", "c"])).await.expect("both are allowed");
    rig.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_policies_refuse_it_and_goes_on_when_they_do_not() {
    let (rig, authorization) = rig(Arc::new(BuiltIn)).await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let request = || v1::WatchDagsRequest { parent: "tenants/acme".into(), resume_revision: 0 };
    let mut watch = acme.dags.watch_dags(request()).await.expect("a watch").into_inner();
    let first = in_time(watch.message()).await.expect("a message").expect("a bookmark");
    assert!(first.dag.is_none(), "{first:?}");
    // Others are refused: this one goes on.
    authorization.replace(members_read());
    acme.create_dag("tenants/acme/dags/web", chain(&["nat"])).await.expect("a DAG");
    let next = in_time(watch.message()).await.expect("a message").expect("the DAG");
    assert_eq!(next.dag.expect("a DAG").name, "tenants/acme/dags/web");
    authorization.replace(policies(|question| question.row.method() != "WatchDags"));
    let end = async {
        loop {
            match watch.message().await {
                // Sent before the change.
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a reason"),
                Err(status) => return status,
            }
        }
    };
    let ended = in_time(end).await;
    assert_eq!(reason_of(&ended), Some(ErrorReason::PermissionDenied), "{ended:?}");
    assert!(ended.message().contains("have changed"), "{ended:?}");
    assert!(acme.dags.watch_dags(request()).await.is_err(), "nor does it begin again");
    rig.stop().await;
}

const OWN: &str = "00000000-0000-4000-8000-000000000001";
const OTHERS: &str = "00000000-0000-4000-8000-000000000002";
const ABSENT: &str = "00000000-0000-4000-8000-000000000003";

/// The status without the name of the machine.
fn without(status: &Status, vm: &str) -> String {
    format!("{:?} {} {:?}", status.code(), status.message(), status.details()).replace(vm, "VM")
}

#[tokio::test]
async fn an_orchestrator_of_one_tenant_sees_no_machine_of_another() {
    let (rig, _) = rig(policies(|question| {
        question.identity.to_string() != "orchestrator/host1"
            || question.resource.tenant.as_deref() == Some("acme")
    }))
    .await;
    rig.furnished().await;
    let mut all = OrchestrationServiceClient::new(rig.client("orchestrator/all").await.channel);
    let mut one = OrchestrationServiceClient::new(rig.client("orchestrator/host1").await.channel);
    let bind = |vm: &str, tenant: &str| v1::BindVmRequest {
        vm: vm.into(),
        tenant: format!("tenants/{tenant}"),
        chains: Some(Chains::Dags(v1::DagNames {
            names: vec![format!("tenants/{tenant}/dags/web")],
        })),
        ..Default::default()
    };
    for tenant in ["acme", "globex"] {
        let mut client = rig.client(&format!("tenant/{tenant}")).await;
        client.ready_dag(&format!("tenants/{tenant}/dags/web"), chain(&["nat"])).await;
    }
    in_time(one.bind_vm(bind(OWN, "acme"))).await.expect("its own");
    let refused = in_time(one.bind_vm(bind(OTHERS, "globex"))).await.expect_err("another's");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    in_time(all.bind_vm(bind(OTHERS, "globex"))).await.expect("it may");

    let get = |vm: &str| v1::GetBindingRequest { name: format!("vmBindings/{vm}") };
    assert!(one.get_binding(get(OWN)).await.is_ok());
    let hidden = one.get_binding(get(OTHERS)).await.expect_err("another's");
    let absent = one.get_binding(get(ABSENT)).await.expect_err("there is none");
    assert_eq!(hidden.code(), Code::NotFound);
    assert_eq!(without(&hidden, OTHERS).len(), without(&absent, ABSENT).len());
    assert_eq!(hidden.message().replace(OTHERS, ABSENT), absent.message());

    let vms = vec![OWN.to_owned(), OTHERS.to_owned(), ABSENT.to_owned()];
    let beat = one.heartbeat(v1::HeartbeatRequest { vms: vms.clone() }).await;
    let beat = beat.expect("a reply").into_inner();
    assert_eq!(beat.alive.len(), 1, "{beat:?}");
    assert_eq!(beat.missing, [OTHERS, ABSENT], "as if it did not exist");
    let beat = all.heartbeat(v1::HeartbeatRequest { vms }).await.expect("a reply").into_inner();
    assert_eq!((beat.alive.len(), beat.missing.len()), (2, 1), "{beat:?}");

    let unbind = |vm: &str, tenant: &str| v1::UnbindVmRequest {
        vm: vm.into(),
        tenant: tenant.into(),
        ..Default::default()
    };
    let refused = one.unbind_vm(unbind(OWN, "")).await.expect_err("of which tenant?");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("names the tenant"), "{refused:?}");
    let refused = one.unbind_vm(unbind(OTHERS, "tenants/globex")).await.expect_err("another's");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    let hidden = one.unbind_vm(unbind(OTHERS, "tenants/acme")).await.expect_err("another's");
    let absent = one.unbind_vm(unbind(ABSENT, "tenants/acme")).await.expect_err("there is none");
    assert_eq!(hidden.code(), Code::NotFound, "{hidden:?}");
    assert_eq!(hidden.message().replace(OTHERS, ABSENT), absent.message());
    one.unbind_vm(unbind(OWN, "tenants/acme")).await.expect("its own");
    let list =
        |parent: &str| v1::ListBindingsRequest { parent: parent.into(), ..Default::default() };
    assert!(one.list_bindings(list("tenants/acme")).await.is_ok());
    for parent in ["tenants/-", "tenants/globex"] {
        let refused = one.list_bindings(list(parent)).await.expect_err(parent);
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    rig.stop().await;
}
