//! A tenant who means no good.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_kubernetes::dags::object::resource;

use super::site::Site;

/// Interval between changes of a storm.
const STORM_EVERY: Duration = Duration::from_millis(10);
/// Objects that become ready during a storm, one after the other.
const TRIED: usize = 5;

/// Applies an object, and waits until it is refused; returns the condition.
async fn refused(site: &Site, namespace: &str, name: &str, spec: Value) -> Value {
    let object = site.applied(namespace, name, spec).await;
    site.until(&object, "Accepted", "False").await.1
}

fn nat() -> Value {
    json!({"bandwidth": "100Mbps", "chain": "nat"})
}

pub async fn what_no_object_made_is_left_alone(site: &Site) {
    // Two DAGs that no object made, one of each tenant.
    let names = ["acme", "globex"].map(|tenant| DagName {
        tenant: tenant.parse().expect("an id"),
        dag: "db".parse().expect("an id"),
    });
    let spec = DagSpec::chain(&["aes".parse().expect("an id")], Bandwidth::from_mbps(500));
    for name in &names {
        site.server.create_dag(name, &spec).await.expect("there is room");
    }
    // What was made otherwise is neither overwritten nor deleted with the object, also where its status lies.
    let taken = refused(site, "shop", "db", nat()).await;
    assert_eq!(taken["reason"], "RESOURCE_EXISTS", "{taken}");
    let lie = json!({"status": {"dag": "tenants/globex/dags/db", "conditions": []}});
    let lied =
        site.dags("shop").patch_status("db", &PatchParams::default(), &Patch::Merge(&lie)).await;
    lied.expect("a tenant who may write the status");
    let touched =
        json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"description": "again"}});
    let touched =
        site.dags("shop").patch("db", &PatchParams::default(), &Patch::Merge(&touched)).await;
    site.until(&touched.expect("there"), "Accepted", "False").await;
    site.deleted("shop", "db").await;
    for name in &names {
        let dag = site.dag(&name.to_string()).await.expect("it is still there");
        assert_eq!((dag.bandwidth_bps, dag.generation), (500_000_000, 1), "{name}");
    }
    for name in &names {
        let deleted = site.server.delete_dag(name).await.expect("there");
        site.server.wait(&deleted).await.expect("it goes");
    }
}

pub async fn nobody_names_what_another_tenant_has(site: &Site) {
    let none = refused(site, "dev", "web", nat()).await;
    assert_eq!(none["reason"], "NAMESPACE_WITHOUT_TENANT", "{none}");
    site.dags("dev").delete("web", &Default::default()).await.expect("there");

    // A tenant in the specification is refused, or dropped, as the client has it; the namespace says whose the DAG is.
    let mut named = nat();
    named["tenant"] = "acme".into();
    let error = site.apply("bank", "web", named.clone()).await.expect_err("an unknown field");
    assert!(error.to_string().contains(".spec.tenant: field not declared"), "{error}");
    let mut object = DynamicObject::new("web", &resource()).within("bank");
    object.data = json!({"spec": named});
    let object = site.dags("bank").create(&PostParams::default(), &object).await.expect("created");
    assert_eq!(object.data["spec"].get("tenant"), None);
    let (ready, _) = site.until(&object, "Ready", "True").await;
    assert_eq!(ready.data["status"]["dag"], "tenants/globex/dags/web");
    assert!(site.dag("tenants/acme/dags/web").await.is_none());
    site.deleted("bank", "web").await;

    for (spec, reason, said) in [
        (json!({"bandwidth": "1Gbps", "chain": "acme.filter"}), "UNKNOWN_NT_TYPE", "spec.chain: "),
        (
            json!({"bandwidth": "1Gbps", "chain": "globex.filter"}),
            "UNKNOWN_NT_TYPE",
            "spec.chain: ",
        ),
        (
            json!({"bandwidth": "1Gbps", "chain": "nat", "trusted_tenants": ["acme"]}),
            "INVALID_FIELD",
            "spec.trusted_tenants[0]: ",
        ),
        (
            json!({"bandwidth": "1Gbps", "chain": "nat", "configuration": {"nat": {"x": "y".repeat(1 << 20)}}}),
            "LIMIT_EXCEEDED",
            "spec: ",
        ),
    ] {
        let condition = refused(site, "bank", "web", spec).await;
        assert_eq!(condition["reason"], reason, "{condition}");
        assert!(
            condition["message"].as_str().is_some_and(|text| text.starts_with(said)),
            "{condition}"
        );
    }
    site.deleted("bank", "web").await;
}

/// Times until each of some objects is ready, in milliseconds.
async fn times_to_ready(site: &Site) -> Vec<u128> {
    let mut times = Vec::new();
    for number in 0..TRIED {
        let name = format!("web-{number}");
        let began = Instant::now();
        let object =
            site.applied("shop", &name, json!({"bandwidth": "100Mbps", "chain": "nat"})).await;
        site.until(&object, "Ready", "True").await;
        times.push(began.elapsed().as_millis());
        site.deleted("shop", &name).await;
    }
    times.sort_unstable();
    times
}

pub async fn a_storm_in_one_namespace_keeps_no_other_waiting(site: &Site) {
    let calm = times_to_ready(site).await;
    let (is_over, changes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let filler = "y".repeat(1 << 20);
    let storm = async {
        while !is_over.load(Ordering::Relaxed) {
            let number = changes.fetch_add(1, Ordering::Relaxed);
            // Every hundredth is a mebibyte: more would be a test of the API server.
            let mut spec = json!({"bandwidth": 100_000_000 + 1_000 * number, "chain": "nat"});
            if number.is_multiple_of(100) {
                spec["configuration"] = json!({"nat": {"x": filler}});
            }
            site.applied("bank", "storm", spec).await;
            tokio::time::sleep(STORM_EVERY).await;
        }
    };
    let other = async {
        let began = Instant::now();
        let times = times_to_ready(site).await;
        let seconds = began.elapsed().as_secs();
        is_over.store(true, Ordering::Relaxed);
        (times, seconds)
    };
    let ((), (during, seconds)) = tokio::join!(storm, other);
    let changes = changes.load(Ordering::Relaxed);
    // The last change of the storm is what there is in the end.
    let last = site.applied("bank", "storm", json!({"bandwidth": "123Mbps", "chain": "nat"})).await;
    site.until(&last, "Ready", "True").await;
    let dag = site.dag("tenants/globex/dags/storm").await.expect("there");
    assert_eq!(dag.bandwidth_bps, 123_000_000);
    println!(
        "{changes} changes of one object in {seconds} s became {} of its DAG; ready in another namespace after {calm:?} ms \
         without them, {during:?} ms beside them",
        dag.generation
    );
    // A burst, then one work a second, and what was under way when it ended.
    assert!(
        dag.generation <= 8 + seconds + 3,
        "{} changes of the DAG in {seconds} s",
        dag.generation
    );
    assert!(changes as u64 > dag.generation, "it was a storm");
    site.deleted("bank", "storm").await;
}
