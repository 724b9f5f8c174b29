//! Policies of the server about a tenant hold for what the tenant asks for through Kubernetes: for objects, and for DAGs that claims
//! carry.

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use snic_api::connect::Target;
use snic_kubernetes::dra::driver::{ClaimDriver, PrepareCause};
use snic_kubernetes::dra::settings::{DraSettings, OfferedCard};
use snic_kubernetes::dra_v1::Claim;

use super::site::Site;
use crate::cluster::control_plane;
use crate::cluster::objects::{self, apply, manifest};

/// No DAGs of acme.
const NO_DAGS_OF_ACME: &str = "@id(\"acme-creates-none\")\n\
     forbid (principal == Tenant::\"acme\", action == Action::\"CreateDag\", resource);\n";

fn settings(site: &Site) -> DraSettings {
    let path = |name: &str| site.home.path().join(name);
    let target = |identity: &str| Target {
        endpoint: format!("unix:{}", site.home.socket().display()),
        identity: Some(identity.into()),
        ..Target::default()
    };
    let card0 = OfferedCard { id: "card0".into(), functions: 8, ..OfferedCard::default() };
    let namespaces = [("shop", "acme"), ("bank", "globex")];
    DraSettings {
        daemon: target("orchestrator/kubernetes"),
        inventory: target("operator/kubernetes"),
        node: "n1".into(),
        cdi_dir: path("cdi"),
        state_dir: path("state"),
        namespaces: namespaces.map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
        cards: vec![card0],
        ..DraSettings::default()
    }
}

/// A claim that carries a DAG, allocated as the scheduler does it.
async fn allocated(site: &Site, namespace: &str) -> Claim {
    let claims: Api<ResourceClaim> = Api::namespaced(site.plane.client.clone(), namespace);
    let parameters = json!({
        "apiVersion": "snic.dev/v1alpha1", "kind": "FunctionParameters",
        "spec": {"bandwidth": "1Gbps", "chain": "nat"},
    });
    let config = json!({"opaque": {"driver": "snic.dev", "parameters": parameters}});
    let request = json!({"name": "nic", "exactly": {"deviceClassName": "snic.dev"}});
    let claim = json!({
        "metadata": {"name": "carries", "namespace": namespace},
        "spec": {"devices": {"requests": [request], "config": [config]}},
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    let claim = claims.create(&PostParams::default(), &claim).await.expect("it is taken");
    let mut from_claim = config;
    from_claim["source"] = json!("FromClaim");
    let result = json!({"request": "nic", "driver": "snic.dev", "pool": "n1", "device": "card0"});
    let devices = json!({"results": [result], "config": [from_claim]});
    let status = json!({"status": {"allocation": {"devices": devices}}});
    let patch = Patch::Merge(&status);
    claims.patch_status("carries", &PatchParams::default(), &patch).await.expect("allocated");
    Claim {
        namespace: namespace.into(),
        name: "carries".into(),
        uid: claim.metadata.uid.expect("set"),
    }
}

/// The message of the claim's condition, and whether it is served.
async fn served(site: &Site, claim: &Claim) -> (bool, String) {
    let claims: Api<ResourceClaim> = Api::namespaced(site.plane.client.clone(), &claim.namespace);
    let claim = claims.get(&claim.name).await.expect("it is there");
    let devices = claim.status.and_then(|status| status.devices).expect("a status");
    let condition = devices[0].conditions.as_ref().expect("a condition")[0].clone();
    assert_eq!(condition.type_, "snic.dev/Served");
    (condition.status == "True", condition.message)
}

fn nat() -> Value {
    json!({"bandwidth": "1Gbps", "chain": "nat"})
}

fn forbid(folder: &Path, text: &str) {
    std::fs::write(folder.join("acme.cedar"), text).expect("the folder takes files");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_about_a_tenant_holds_for_its_objects_and_claims() {
    if let Some(why) = control_plane::missing() {
        println!("not run: {why}");
        return;
    }
    let (mut site, folder) = Site::with_policies().await;
    if !site.has_policies() {
        println!("not run: this snicd was built without the feature cedar");
        return;
    }
    forbid(&folder, NO_DAGS_OF_ACME);
    site.restart_server().await;
    for object in manifest(&objects::read("snic-dra.yaml")) {
        apply(&site.plane.client, &object).await;
    }
    for (namespace, tenant) in [("shop", "acme"), ("bank", "globex")] {
        let labels = json!({"snic.dev/tenant": tenant});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
        apply(&site.plane.client, &object).await;
    }
    let says = "do not allow tenant/acme this CreateDag";

    // Objects: refused with the reason, while another tenant's is served.
    let of_acme = site.applied("shop", "web", nat()).await;
    let (_, refused) = site.until(&of_acme, "Accepted", "False").await;
    println!("{refused}");
    assert_eq!(refused["reason"], "PERMISSION_DENIED", "{refused}");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains(says)), "{refused}");
    let of_globex = site.applied("bank", "web", nat()).await;
    site.until(&of_globex, "Ready", "True").await;

    // Claims.
    let driver = ClaimDriver::open(&Arc::new(settings(&site)), site.plane.client.clone());
    let driver = driver.expect("it opens");
    let of_acme = allocated(&site, "shop").await;
    let why = driver.prepare(&of_acme, PrepareCause::Scheduler).await.expect_err("forbidden");
    assert!(why.contains(says), "{why}");
    let (is_served, said) = served(&site, &of_acme).await;
    println!("{said}");
    assert!(!is_served && said.contains(says), "{said}");
    let of_globex = allocated(&site, "bank").await;
    driver.prepare(&of_globex, PrepareCause::Scheduler).await.expect("another tenant");
    assert!(served(&site, &of_globex).await.0);
    let dags = site.server.list_dags().await;
    assert!(dags.iter().all(|dag| dag.name.starts_with("tenants/globex/")), "{dags:?}");
    assert_eq!(dags.len(), 2);

    // What the claim had is given back, whatever the tenant may.
    driver.unprepare(&of_globex).await.expect("given back");
    // The policy goes: both are served.
    forbid(&folder, "");
    site.restart_server().await;
    let object = site.applied("shop", "web", json!({"bandwidth": "2Gbps", "chain": "nat"})).await;
    site.until(&object, "Ready", "True").await;
    driver.prepare(&of_acme, PrepareCause::Scheduler).await.expect("allowed now");
}
