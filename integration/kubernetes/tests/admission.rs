//! The policy of claims in a real API server: what no driver would serve is refused when it is applied, with the reason.

use std::process::Command;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use snic_kubernetes::dra::parameters::FunctionParameters;

use crate::cluster::control_plane::{self, ControlPlane};
use crate::cluster::objects::{self, apply, manifest};
use crate::cluster::version::feature_flag;
use crate::cluster::{kubernetes_program, until};

/// Specification of a claim with these parameters.
fn spec(class: &str, parameters: &Value) -> Value {
    json!({"devices": {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": class}}],
        "config": [{"opaque": {"driver": "snic.dev", "parameters": parameters}}],
    }})
}

fn with(change: &Value) -> Value {
    let mut parameters =
        json!({"apiVersion": "snic.dev/v1alpha1", "kind": "FunctionParameters", "dag": "web"});
    let fields = parameters.as_object_mut().expect("an object");
    fields.extend(change.as_object().expect("an object").clone());
    fields.retain(|_, value| !value.is_null());
    parameters
}

/// The answer of an API server to a claim, which it is only asked about: nothing if it takes it.
async fn said(client: &kube::Client, namespace: &str, spec: &Value) -> String {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), namespace);
    let claim = json!({"metadata": {"name": "c", "namespace": namespace}, "spec": spec});
    let claim = serde_json::from_value(claim).expect("a claim");
    let asked = PostParams { dry_run: true, ..PostParams::default() };
    claims.create(&asked, &claim).await.err().map(|error| error.to_string()).unwrap_or_default()
}

/// Parameters that are taken, by the policy and by the driver.
fn taken() -> Vec<Value> {
    vec![
        json!({}),
        json!({"dag": null, "template": "web-2", "interface": "net1"}),
        json!({"addresses": ["10.77.0.1/24", "fd00::1/64"]}),
        json!({"dag": null, "spec": {"chain": "nat", "bandwidth": "1Gbps"}}),
    ]
}

/// Parameters that are refused by both, and the policy's words.
fn refused() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"colour": 1}), "are dag, template or spec"),
        (json!({"tenant": "globex"}), "are dag, template or spec"),
        (json!({"kind": "Dag"}), "kind FunctionParameters"),
        (json!({"apiVersion": null}), "need apiVersion"),
        (json!({"dag": null}), "exactly one of dag, template and spec"),
        (json!({"template": "web"}), "exactly one of dag, template and spec"),
        (json!({"dag": "tenants/globex/dags/web"}), "without the tenant"),
        (json!({"dag": "globex/web"}), "without the tenant"),
        (json!({"dag": 7}), "without the tenant"),
        (json!({"dag": "w".repeat(64)}), "without the tenant"),
        (json!({"dag": null, "spec": "nat"}), "spec is that of a Dag"),
        (json!({"interface": "-all"}), "interface has 1 to 15"),
        (json!({"interface": "y".repeat(5_000)}), "interface has 1 to 15"),
        (json!({"addresses": ["10.77.0.1"]}), "lengths of their prefixes"),
        (json!({"addresses": vec!["10.77.0.1/24"; 9]}), "lengths of their prefixes"),
        (json!({"addresses": "10.77.0.1/24"}), "lengths of their prefixes"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_no_driver_serves_are_refused_when_they_are_applied() {
    if let Some(why) = control_plane::missing_for_claims() {
        println!("not run: {why}");
        return;
    }
    let plane = ControlPlane::start().await;
    for object in manifest(&objects::read("snic-dra.yaml")) {
        apply(&plane.client, &object).await;
    }
    for (name, labels) in [("shop", json!({"snic.dev/tenant": "acme"})), ("other", json!({}))] {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        });
        apply(&plane.client, &namespace).await;
    }
    let wrong = spec("snic.dev", &with(&json!({"colour": 1})));
    // API servers read policies from a watch.
    until("the policy", || async {
        let said = said(&plane.client, "shop", &wrong).await;
        said.contains("snic-dra").then_some(())
    })
    .await;
    for parameters in taken() {
        let parameters = with(&parameters);
        let answer = said(&plane.client, "shop", &spec("snic.dev", &parameters)).await;
        assert_eq!(answer, "", "{parameters}");
        FunctionParameters::parse(&RawExtension(parameters)).expect("the driver takes it, too");
    }
    for (parameters, words) in refused() {
        let parameters = with(&parameters);
        let answer = said(&plane.client, "shop", &spec("snic.dev", &parameters)).await;
        assert!(answer.contains(words), "{parameters:.200}: {answer:.500}");
        FunctionParameters::parse(&RawExtension(parameters)).expect_err("nor does the driver");
    }
    claims_of_a_namespace_without_a_tenant(&plane.client).await;
    templates_are_judged_as_claims(&plane.client).await;
}

async fn claims_of_a_namespace_without_a_tenant(client: &kube::Client) {
    let good = spec("snic.dev", &with(&json!({})));
    assert!(said(client, "other", &good).await.contains("the namespace has no tenant"));
    let bare = json!({"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "snic.dev"}}]}});
    assert!(said(client, "other", &bare).await.contains("the namespace has no tenant"));
    let alternatives = json!({"devices": {"requests": [{"name": "nic", "firstAvailable": [
        {"name": "a", "deviceClassName": "gpu.example"}, {"name": "b", "deviceClassName": "snic.dev-big"},
    ]}]}});
    assert!(said(client, "other", &alternatives).await.contains("the namespace has no tenant"));
    // Devices of others are no business of ours.
    let others = json!({"devices": {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example"}}],
        "config": [{"opaque": {"driver": "gpu.example", "parameters": {"colour": 1}}}],
    }});
    assert_eq!(said(client, "other", &others).await, "");
}

async fn templates_are_judged_as_claims(client: &kube::Client) {
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), "shop");
    for (parameters, is_taken) in [(json!({}), true), (json!({"dag": "globex/web"}), false)] {
        let template = json!({
            "metadata": {"name": "t", "namespace": "shop"},
            "spec": {"spec": spec("snic.dev", &with(&parameters))},
        });
        let template = serde_json::from_value(template).expect("a template");
        let asked = PostParams { dry_run: true, ..PostParams::default() };
        let created = templates.create(&asked, &template).await;
        assert_eq!(created.is_ok(), is_taken, "{parameters}: {created:?}");
    }
}

/// Finalizer of claims that are allocated, which the controller of claims takes away.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// The finalizers that an API server gives a claim of this class when it is created, in a dry run.
async fn finalizers(client: &kube::Client, class: &str) -> Vec<String> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), "shop");
    let requests = json!([{"name": "nic", "exactly": {"deviceClassName": class}}]);
    let claim = json!({
        "metadata": {"name": "c", "namespace": "shop"}, "spec": {"devices": {"requests": requests}},
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    let asked = PostParams { dry_run: true, ..PostParams::default() };
    let created = claims.create(&asked, &claim).await.expect("it is taken");
    created.metadata.finalizers.unwrap_or_default()
}

/// Waits until claims of our class get their finalizer when they are created.
pub async fn policy_holds(client: &kube::Client) {
    until("the policy of finalizers", || async {
        (finalizers(client, "snic.dev").await == [FINALIZER]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_never_used_goes_although_it_had_its_finalizer_from_the_beginning() {
    if let Some(why) = control_plane::missing_for_claims() {
        println!("not run: {why}");
        return;
    }
    if !kubernetes_program("kube-controller-manager").exists() {
        println!("not run: kube-controller-manager is missing");
        return;
    }
    let mut plane = ControlPlane::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    apply(&plane.client, &namespace).await;
    assert!(finalizers(&plane.client, "snic.dev").await.is_empty(), "there is no policy yet");
    for object in manifest(&objects::read("many-pods.yaml")) {
        apply(&plane.client, &object).await;
    }
    policy_holds(&plane.client).await;
    assert_eq!(finalizers(&plane.client, "snic.dev-big").await, [FINALIZER]);
    assert!(finalizers(&plane.client, "gpu.example").await.is_empty(), "others' claims");

    let claims: Api<ResourceClaim> = Api::namespaced(plane.client.clone(), "shop");
    let claim = json!({
        "metadata": {"name": "unused", "namespace": "shop"},
        "spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "snic.dev"}}]}},
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    claims.create(&PostParams::default(), &claim).await.expect("it is taken");
    claims.delete("unused", &DeleteParams::default()).await.expect("it is there");
    let waits = claims.get("unused").await.expect("nobody has taken the finalizer away");
    assert!(waits.metadata.deletion_timestamp.is_some());
    let mut manager = Command::new(kubernetes_program("kube-controller-manager"));
    manager.arg("--kubeconfig").arg(plane.path().join("pki/admin.kubeconfig"));
    manager.args(["--leader-elect=false", "--controllers=resourceclaim-controller"]);
    manager.args(["--secure-port=0", &feature_flag("kube-controller-manager")]);
    plane.spawn("kube-controller-manager", manager);
    until("the claim has gone", || async {
        claims.get_opt("unused").await.ok()?.is_none().then_some(())
    })
    .await;
}
