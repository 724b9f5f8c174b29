//! A tenant who means no good.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_kubernetes::dags::object::resource;

use tokio::task::JoinSet;

use super::site::Site;
use crate::cluster::control_plane;
use crate::cluster::objects::apply;

/// Interval between changes of each of the storm's clients: 100 changes a second together.
const STORM_EVERY: Duration = Duration::from_millis(40);
/// Bytes of a large change: what a ConfigMap may have.
const FILLER_BYTES: usize = 1_000_000;
/// Clients of a storm.
const STORM_CLIENTS: usize = 4;
/// Longest time for which readiness is measured.
const READY_MAX: Duration = Duration::from_secs(60);
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

/// Time that the API server takes for an object, and the time from then until it is ready.
#[derive(Debug, Default)]
struct Times {
    applied_ms: Vec<u128>,
    ready_ms: Vec<u128>,
}

/// Times of some objects, one after the other, each list in order.
async fn times_to_ready(site: &Site) -> Times {
    let mut times = Times::default();
    let dags = site.dags("shop");
    for number in 0..TRIED {
        let name = format!("web-{number}");
        let began = Instant::now();
        let object = site.applied("shop", &name, nat()).await;
        times.applied_ms.push(began.elapsed().as_millis());
        let applied = Instant::now();
        let is_ready = async || {
            let now = dags.get(&name).await.expect("there");
            let conditions = now.data["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        while !is_ready().await && applied.elapsed() < READY_MAX {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        times.ready_ms.push(applied.elapsed().as_millis());
        site.until(&object, "Ready", "True").await;
        site.deleted("shop", &name).await;
    }
    times.applied_ms.sort_unstable();
    times.ready_ms.sort_unstable();
    times
}

/// Clients that change an object 100 times a second together, until they are stopped.
struct Storm {
    is_over: Arc<AtomicBool>,
    changes: Arc<AtomicUsize>,
    clients: JoinSet<()>,
}

impl Storm {
    /// Begins one with changes as `change` makes them, one in a hundred of them with a filler: more of those would be a test of the
    /// API server.
    async fn begin(
        site: &Site,
        object: (ApiResource, &'static str),
        change: fn(usize, Option<&str>) -> Value,
    ) -> Self {
        let (is_over, changes) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut clients = JoinSet::new();
        for _ in 0..STORM_CLIENTS {
            let client =
                control_plane::client(&site.plane.path().join("pki/admin.kubeconfig")).await;
            let (resource, name) = (object.0.clone(), object.1);
            let api: Api<DynamicObject> = Api::namespaced_with(client, "bank", &resource);
            let (is_over, changes) = (Arc::clone(&is_over), Arc::clone(&changes));
            clients.spawn(async move {
                let filler = "y".repeat(FILLER_BYTES);
                let mut beat = tokio::time::interval(STORM_EVERY);
                while !is_over.load(Ordering::Relaxed) {
                    beat.tick().await;
                    let number = changes.fetch_add(1, Ordering::Relaxed);
                    let filler = number.is_multiple_of(100).then_some(filler.as_str());
                    let patch = Patch::Merge(change(number, filler));
                    // Two changes at once may be in each other's way.
                    if let Err(error) = api.patch(name, &PatchParams::default(), &patch).await {
                        assert!(error.to_string().contains("conflict"), "{error}");
                    }
                }
            });
        }
        Self { is_over, changes, clients }
    }

    /// Ends it; returns the number of changes.
    async fn end(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("only conflicts");
        }
        self.changes.load(Ordering::Relaxed) as u64
    }
}

/// The times beside a storm, the number of its changes, and how long it was, in seconds.
async fn beside(site: &Site, storm: Storm) -> (Times, u64, u64) {
    let began = Instant::now();
    let times = times_to_ready(site).await;
    let changes = storm.end().await;
    (times, changes, began.elapsed().as_secs())
}

pub async fn a_storm_in_one_namespace_keeps_no_other_waiting(site: &Site) {
    let calm = times_to_ready(site).await;
    // What the API server and the machine alone do under such a load: the controller does not read ConfigMaps.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "bank", "name": "storm"}});
    apply(&site.plane.client, &map).await;
    let maps = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let storm = Storm::begin(
        site,
        (maps, "storm"),
        |number, filler| json!({"data": {"number": number.to_string(), "x": filler}}),
    );
    let (others, other_changes, _) = beside(site, storm.await).await;

    site.applied("bank", "storm", nat()).await;
    let storm = Storm::begin(site, (resource(), "storm"), |number, filler| {
        let configuration = filler.map(|x| json!({"nat": {"x": x}}));
        json!({"spec": {"bandwidth": 100_000_000 + 1_000 * number, "configuration": configuration}})
    });
    let (during, changes, seconds) = beside(site, storm.await).await;
    // The last change of the storm is what there is in the end.
    let last = json!({"spec": {"bandwidth": "123Mbps", "configuration": null}});
    let last =
        site.dags("bank").patch("storm", &PatchParams::default(), &Patch::Merge(&last)).await;
    site.until(&last.expect("there"), "Ready", "True").await;
    let dag = site.dag("tenants/globex/dags/storm").await.expect("there");
    assert_eq!(dag.bandwidth_bps, 123_000_000);
    println!(
        "{changes} changes of one object in {seconds} s became {} of its DAG; objects of another namespace: \
         alone {calm:?}; beside them {during:?}; beside {other_changes} changes of a ConfigMap {others:?}",
        dag.generation
    );
    // A burst, then one work a second, and what was under way when it ended.
    let most = 8 + seconds + 3;
    assert!(dag.generation <= most, "{} changes of the DAG in {seconds} s", dag.generation);
    assert!(changes > dag.generation, "it was a storm");
    site.deleted("bank", "storm").await;
}
