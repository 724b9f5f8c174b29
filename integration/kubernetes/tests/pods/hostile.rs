//! A tenant whose claims mean no good: refused or bounded, with a reason, and no pod of another namespace starts later.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use snic_kubernetes::dra::quotas;

use super::site::{Site, example, example_with, tries, what_a_deleted_pod_had_is_given_back};
use crate::cluster::objects::apply;
use crate::cluster::{self, until};

/// Pods whose start is measured, one after the other.
const MEASURED: usize = 3;
/// Pods of the tenant who means no good.
const STORM: usize = 50;
/// Longest delay of most pods of others.
const DELAY_USUAL: Duration = Duration::from_secs(3);
/// Longest delay of the slowest: the scheduler looks at binding conditions every 5 seconds, and may look twice more.
const DELAY_MAX: Duration = Duration::from_secs(11);

#[test]
#[ignore = "nightly: three minutes of a busy cluster"]
fn claims_that_mean_no_good_are_refused_and_keep_no_other_waiting() {
    if let Some(why) = cluster::missing() {
        println!("not run: {why}");
        return;
    }
    let part = ["--exact", "pods::hostile::the_claims", "--ignored", "--nocapture"];
    let status = cluster::enter(&part, |_| {});
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part: of claims_that_mean_no_good_are_refused_and_keep_no_other_waiting"]
async fn the_claims() {
    assert_eq!(std::process::id(), 1, "only in namespaces of its own");
    let site = Site::start().await;
    site.create_dag().await;
    let calm = times_to_start(&site).await;
    each_namespace_with_a_tenant_is_bounded(&site).await;
    the_api_server_refuses(&site).await;
    ten_thousand_devices_are_refused(&site).await;
    a_storm_keeps_no_other_waiting(&site, &calm).await;
    the_driver_refuses(&site).await;
}

/// Objects of a pod of a namespace with a template of its own, all of this name.
fn hostile(namespace: &str, name: &str, change: impl Fn(&mut Value)) -> Vec<Value> {
    let mut objects = example_with(name, "echo started", change);
    for object in &mut objects {
        match object["kind"].as_str() {
            Some("Namespace") => object["metadata"]["name"] = json!(namespace),
            kind => {
                let is_pod = kind == Some("Pod");
                object["metadata"]["namespace"] = json!(namespace);
                if is_pod {
                    object["metadata"]["name"] = json!(name);
                }
            }
        }
    }
    objects
}

async fn apply_all(site: &Site, objects: &[Value]) {
    for object in objects {
        apply(&site.cluster.client, object).await;
    }
}

async fn delete_pods(site: &Site, namespace: &str) {
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(site.cluster.client.clone(), namespace);
    let now = DeleteParams::default().grace_period(0);
    pods.delete_collection(&now, &ListParams::default()).await.expect("a right of the admin");
    let claims: Api<ResourceClaim> = Api::namespaced(site.cluster.client.clone(), namespace);
    until("the end of claims", || async {
        claims.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(())
    })
    .await;
}

/// The driver bounds what claims of a namespace have together, and nobody had to think of it: half of the card's two functions.
async fn each_namespace_with_a_tenant_is_bounded(site: &Site) {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "bank", "labels": {"snic.dev/tenant": "globex"}},
    });
    apply(&site.cluster.client, &namespace).await;
    for name in ["shop", "bank"] {
        let quotas: Api<ResourceQuota> = Api::namespaced(site.cluster.client.clone(), name);
        let hard = until("the quota", || async {
            quotas.get(quotas::NAME).await.ok()?.status?.used?;
            quotas.get(quotas::NAME).await.ok()?.spec?.hard
        })
        .await;
        assert_eq!(hard["snic.dev.deviceclass.resource.k8s.io/devices"].0, "1", "{name}");
    }
}

/// A claim of the namespace `bank` that the API server refuses, and its words.
async fn refusal(site: &Site, devices: Value) -> String {
    let claims: Api<ResourceClaim> = Api::namespaced(site.cluster.client.clone(), "bank");
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "much", "namespace": "bank"}, "spec": {"devices": devices},
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    let refused = claims.create(&PostParams::default(), &claim).await.expect_err("too much");
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    println!("{}: {:.300}", status.code, status.message);
    status.message.clone()
}

fn request(name: &str, count: u64) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": "snic.dev", "count": count}})
}

fn config(padding: usize) -> Value {
    let parameters = json!({
        "apiVersion": "snic.dev/v1alpha1", "kind": "FunctionParameters",
        "dag": "web", "interface": "y".repeat(padding),
    });
    json!({"opaque": {"driver": "snic.dev", "parameters": parameters}})
}

async fn the_api_server_refuses(site: &Site) {
    let many: Vec<_> = (0..33).map(|number| request(&format!("r{number}"), 1)).collect();
    let said = refusal(site, json!({"requests": many})).await;
    assert!(said.contains("must have at most 32 items"), "{said}");
    let configs: Vec<_> = (0..33).map(|_| config(1)).collect();
    let said = refusal(site, json!({"requests": [request("a", 1)], "config": configs})).await;
    assert!(said.contains("must have at most 32 items"), "{said}");
    let said =
        refusal(site, json!({"requests": [request("a", 1)], "config": [config(1 << 20)]})).await;
    assert!(said.contains("10240"), "{said:.300}");
    let said = refusal(site, json!({"requests": [request("a", 10_000)]})).await;
    assert!(said.contains("exceeded quota: snic-functions"), "{said}");
    // The policy of the manifest.
    for (key, value, words) in [
        ("dag", "acme/web", "without the tenant"),
        ("dag", "tenants/acme/dags/web", "without the tenant"),
        ("tenant", "acme", "are dag, template or spec"),
    ] {
        let mut config = config(1);
        config["opaque"]["parameters"][key] = json!(value);
        let said = refusal(site, json!({"requests": [request("a", 1)], "config": [config]})).await;
        assert!(said.contains(words), "{said}");
    }
}

/// In a namespace without a quota the scheduler bounds what a claim may have.
async fn ten_thousand_devices_are_refused(site: &Site) {
    let objects = hostile("other", "much", |devices| {
        devices["requests"][0]["exactly"]["count"] = json!(10_000);
    });
    apply_all(site, &objects).await;
    let why = site.until_reason("other", "exceeds the claim limit of 32").await;
    println!("10,000 devices: {why}");
    delete_pods(site, "other").await;
}

/// Parameters that the API server would take without the policy, and the driver does not.
async fn the_driver_refuses(site: &Site) {
    site.cluster
        .kubectl("delete validatingadmissionpolicybinding snic-dra")
        .expect("it was applied");
    // API servers hear of it by a watch.
    let claims: Api<ResourceClaim> = Api::namespaced(site.cluster.client.clone(), "bank");
    let odd = json!({
        "metadata": {"name": "odd", "namespace": "bank"},
        "spec": {"devices": {"requests": [request("a", 1)], "config": [config(5_000)]}},
    });
    let odd = serde_json::from_value(odd).expect("a claim");
    let asked = PostParams { dry_run: true, ..PostParams::default() };
    until("the end of the policy", || async { claims.create(&asked, &odd).await.ok() }).await;
    let parameters = |devices: &mut Value, key: &str, value: Value| {
        devices["config"][0]["opaque"]["parameters"][key] = value;
    };
    let long = json!("y".repeat(5_000));
    for (name, key, value, said) in [
        ("long", "interface", long, "bytes of JSON (at most 4096)"),
        ("named", "dag", json!("acme/web"), "dag or template"),
        ("whole", "dag", json!("tenants/acme/dags/web"), "dag or template"),
        ("plain", "dag", json!("web"), "tenants/globex/dags/web does not exist"),
        ("tenant", "tenant", json!("acme"), "unknown field `tenant`"),
    ] {
        let objects = hostile("bank", name, |devices| parameters(devices, key, value.clone()));
        apply_all(site, &objects).await;
        let why = site.until_reason("bank", said).await;
        println!("{name}: {why}");
        assert_eq!(site.bindings().await, []);
        delete_pods(site, "bank").await;
    }
}

/// Times from `apply` until the pod's packets are answered, in order.
async fn times_to_start(site: &Site) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..MEASURED {
        let began = Instant::now();
        apply_all(site, &example(&tries())).await;
        site.until_printed("web", "alive", 1).await;
        times.push(began.elapsed());
        what_a_deleted_pod_had_is_given_back(site).await;
    }
    times.sort_unstable();
    times
}

/// Many pods with claims of a DAG that never comes, each of which would hold a function until the scheduler gives it up. The
/// driver's bound lets one exist at a time.
async fn a_storm_keeps_no_other_waiting(site: &Site, calm: &[Duration]) {
    for number in 0..STORM {
        let objects = hostile("bank", &format!("storm-{number}"), |devices| {
            devices["config"][0]["opaque"]["parameters"]["dag"] = json!("never");
        });
        apply_all(site, &objects).await;
    }
    site.until_reason("bank", "exceeded quota: snic-functions").await;
    let beside = times_to_start(site).await;
    println!("from apply to the first answer: alone {calm:?}, beside {STORM} pods {beside:?}");
    for (which, delay) in [(MEASURED / 2, DELAY_USUAL), (MEASURED - 1, DELAY_MAX)] {
        assert!(beside[which] < calm[which] + delay, "{beside:?}, alone {calm:?}");
    }
    delete_pods(site, "bank").await;
}
