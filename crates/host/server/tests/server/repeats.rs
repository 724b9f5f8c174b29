//! Requests that are sent again because the reply to the first was lost, and deletions of missing
//! resources.

use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::system_service_client::SystemServiceClient;
use tonic::Code;

use crate::rig::{Rig, chain};

const WEB: &str = "tenants/acme/dags/web";
const FIRST: &str = "123e4567-e89b-42d3-a456-426614174000";
const SECOND: &str = "123e4567-e89b-42d3-a456-426614174001";

#[tokio::test]
async fn a_repeated_deletion_is_answered_like_the_first() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let delete = |id: &str| v1::DeleteDagRequest {
        name: WEB.into(),
        request_id: id.into(),
        ..Default::default()
    };
    let first = operator.dags.delete_dag(delete(FIRST)).await.item().expect("accepted");
    operator.wait(&first.name).await;
    let again = operator.dags.delete_dag(delete(FIRST)).await.item().expect("repeated");
    assert_eq!(again.name, first.name);
    assert!(again.done, "as the operation is now");
    let status = operator.dags.delete_dag(delete(SECOND)).await.expect_err("another request");
    assert_eq!(status.code(), Code::NotFound);

    // The name is free; the repetition does not delete its new owner.
    operator.ready_dag(WEB, chain(&["nat"])).await;
    operator.dags.delete_dag(delete(FIRST)).await.expect("repeated");
    assert!(operator.get_dag(WEB).await.is_ok());

    let tenant = |id: &str, force| v1::DeleteTenantRequest {
        name: "tenants/acme".into(),
        force,
        request_id: id.into(),
        ..Default::default()
    };
    operator.tenants.delete_tenant(tenant(SECOND, true)).await.expect("deleted");
    operator.tenants.delete_tenant(tenant(SECOND, true)).await.expect("repeated");
    let status = operator.tenants.delete_tenant(tenant(SECOND, false)).await.expect_err("another");
    assert_eq!(reason_of(&status), Some(ErrorReason::RequestIdReused));
    operator.create_tenant("acme").await.expect("the name is free");
    operator.tenants.delete_tenant(tenant(SECOND, true)).await.expect("repeated");
    let get = v1::GetTenantRequest { name: "tenants/acme".into() };
    assert!(operator.tenants.get_tenant(get).await.is_ok(), "the new one stays");
    rig.stop().await;
}

#[tokio::test]
async fn a_repeated_update_sets_nothing_back() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let update = |weight, id: &str| v1::UpdateTenantRequest {
        tenant: Some(v1::Tenant { name: "tenants/acme".into(), weight, ..Default::default() }),
        update_mask: None,
        request_id: id.into(),
        validate_only: false,
    };
    operator.tenants.update_tenant(update(5, FIRST)).await.expect("updated");
    operator.tenants.update_tenant(update(6, SECOND)).await.expect("updated");
    let again = operator.tenants.update_tenant(update(5, FIRST)).await.item().expect("repeated");
    assert_eq!(again.weight, 6, "as it is now");
    let status = operator.tenants.update_tenant(update(7, FIRST)).await.expect_err("another");
    assert_eq!(reason_of(&status), Some(ErrorReason::RequestIdReused));
    rig.stop().await;
}

#[tokio::test]
async fn repeated_maintenance_of_a_card_is_done_once() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let name = "cards/card0/regions/0".to_owned();
    let cordon = v1::CordonRegionRequest {
        name: name.clone(),
        request_id: FIRST.into(),
        ..Default::default()
    };
    let region = operator.cards.cordon_region(cordon.clone()).await.item().expect("cordoned");
    assert!(region.cordoned);
    let undrain =
        v1::UndrainRegionRequest { name, request_id: SECOND.into(), ..Default::default() };
    operator.cards.undrain_region(undrain).await.expect("back in service");
    let region = operator.cards.cordon_region(cordon).await.item().expect("repeated");
    assert!(!region.cordoned, "the first request was answered; it is not carried out again");

    let mut system = SystemServiceClient::new(operator.channel.clone());
    let on = v1::SetMaintenanceRequest {
        active: true,
        reason: "upgrade".into(),
        request_id: "123e4567-e89b-42d3-a456-426614174002".into(),
    };
    assert!(system.set_maintenance(on.clone()).await.item().expect("on").active);
    let off = v1::SetMaintenanceRequest::default();
    system.set_maintenance(off).await.expect("off");
    assert!(!system.set_maintenance(on).await.item().expect("repeated").active);
    rig.stop().await;
}

#[tokio::test]
async fn a_repeated_bind_does_not_bind_again() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let host = rig.client("orchestrator/libvirt").await;
    let mut machines = OrchestrationServiceClient::new(host.channel);
    let vm = "0198c0de-0000-7000-8000-000000000000".to_owned();
    let bind = v1::BindVmRequest {
        vm: vm.clone(),
        tenant: "tenants/acme".into(),
        chains: Some(v1::bind_vm_request::Chains::Dags(v1::DagNames { names: vec![WEB.into()] })),
        request_id: FIRST.into(),
        ..Default::default()
    };
    machines.bind_vm(bind.clone()).await.item().expect("bound");
    let unbind = v1::UnbindVmRequest { vm, request_id: SECOND.into(), ..Default::default() };
    machines.unbind_vm(unbind).await.expect("unbound");
    let status = machines.bind_vm(bind).await.expect_err("that binding has ended");
    assert_eq!(reason_of(&status), Some(ErrorReason::BindFailed));
    rig.stop().await;
}

#[tokio::test]
async fn nothing_to_delete_is_fine_where_the_caller_says_so() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let mut globex = rig.client("tenant/globex").await;

    // Another tenant's DAG is missing to it, and stays.
    for name in ["tenants/globex/dags/none", WEB] {
        let request =
            v1::DeleteDagRequest { name: name.into(), allow_missing: true, ..Default::default() };
        let operation =
            globex.dags.delete_dag(request.clone()).await.item().expect("nothing to do");
        assert!(operation.done && operation.name.is_empty(), "{operation:?}");
        let request = v1::DeleteDagRequest { allow_missing: false, ..request };
        let status = globex.dags.delete_dag(request).await.expect_err("missing");
        assert_eq!(status.code(), Code::NotFound);
    }
    assert!(operator.get_dag(WEB).await.is_ok());

    let request = v1::DeleteNtTypeRequest {
        name: "ntTypes/globex.none".into(),
        allow_missing: true,
        ..Default::default()
    };
    globex.nts.delete_nt_type(request).await.expect("nothing to do");
    let request = v1::DeleteBitstreamRequest {
        name: "bitstreams/acme.none".into(),
        allow_missing: true,
        ..Default::default()
    };
    globex.bitstreams.delete_bitstream(request).await.expect("nothing that it could see");
    // A resource that it may read exists for it, so this is an error.
    let request = v1::DeleteNtTypeRequest {
        name: "ntTypes/nat".into(),
        allow_missing: true,
        ..Default::default()
    };
    let status = globex.nts.delete_nt_type(request).await.expect_err("the provider's");
    assert_eq!(status.code(), Code::PermissionDenied);
    let request = v1::DeleteRuleRequest {
        name: "classificationRules/none".into(),
        allow_missing: true,
        ..Default::default()
    };
    operator.rules.delete_rule(request).await.expect("nothing to do");
    let request = v1::DeleteTenantRequest {
        name: "tenants/nobody".into(),
        allow_missing: true,
        ..Default::default()
    };
    operator.tenants.delete_tenant(request).await.expect("nothing to do");
    let request = v1::DeleteOperationRequest {
        name: "operations/none".into(),
        allow_missing: true,
        ..Default::default()
    };
    operator.operations.delete_operation(request).await.expect("nothing to do");
    rig.stop().await;
}
