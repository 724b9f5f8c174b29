//! From `apply` to the end of an object.

use std::path::Path;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use snic_api::v1::RunTrafficRequest;
use snic_kubernetes::dags::object::FINALIZER;
use snic_kubernetes::dags::spec::UID_LABEL;

use super::site::{CONTROLLER, Site};
use crate::cluster::objects::{self, apply, manifest};
use crate::cluster::{self, until};

const WEB: &str = "tenants/acme/dags/web";

fn web(bandwidth: &str) -> Value {
    json!({"bandwidth": bandwidth, "chain": "nat -> firewall", "labels": {"app": "web"}})
}

/// The columns that `kubectl get dags` shows, with those of `-o wide`.
async fn columns(site: &Site, namespace: &str) -> Vec<(String, String)> {
    let path = format!("/apis/snic.dev/v1alpha1/namespaces/{namespace}/dags");
    let request = http::Request::get(path)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .expect("a request");
    let table: Value = site.plane.client.request(request).await.expect("a table");
    let names = table["columnDefinitions"].as_array().expect("columns").iter();
    let cells = table["rows"][0]["cells"].as_array().expect("a row").iter();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    names.zip(cells).map(|(name, cell)| (text(&name["name"]), text(cell))).collect()
}

pub async fn an_object_becomes_ready_changes_and_goes(site: &Site) {
    let object = site.applied("shop", "web", web("1Gbps")).await;
    let (ready, _) = site.until(&object, "Ready", "True").await;
    assert_eq!(ready.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    let dag = site.dag(WEB).await.expect("created");
    assert_eq!(Some(&dag.labels[UID_LABEL]), object.metadata.uid.as_ref());
    assert_eq!((dag.bandwidth_bps, dag.labels["app"].as_str()), (1_000_000_000, "web"));
    let shown = columns(site, "shop").await;
    for (name, cell) in [
        ("Name", "web"),
        ("Ready", "True"),
        ("Promised", "1 Gbit/s"),
        ("Served", "0 bit/s"),
        ("Card", "card0"),
        ("DAG", WEB),
    ] {
        assert!(shown.contains(&(name.to_owned(), cell.to_owned())), "{name}: {shown:?}");
    }

    served_rates_follow_the_traffic(site).await;

    let object = site.applied("shop", "web", web("2Gbps")).await;
    let (changed, _) = site.until(&object, "Ready", "True").await;
    assert_eq!(changed.data["status"]["promisedBps"], 2_000_000_000_u64);

    // More than the card has: what served goes on, and the status says which field is too much.
    let object = site.applied("shop", "web", web("900Gbps")).await;
    let (refused, accepted) = site.until(&object, "Accepted", "False").await;
    assert_eq!(accepted["reason"], "INSUFFICIENT_CAPACITY", "{accepted}");
    assert_eq!(refused.data["status"]["promisedBps"], 2_000_000_000_u64);
    let (_, not_ready) = site.until(&object, "Ready", "False").await;
    assert_eq!(not_ready["reason"], "INSUFFICIENT_CAPACITY");
    let why = columns(site, "shop").await.into_iter().find(|(name, _)| name == "Why not");
    assert!(why.expect("a column").1.starts_with("Accepted: "));
    assert_eq!(site.dag(WEB).await.expect("there").bandwidth_bps, 2_000_000_000);

    // What another changes by hand is set again.
    let object = site.applied("shop", "web", web("1Gbps")).await;
    site.until(&object, "Ready", "True").await;
    let name = snic_domain::DagName {
        tenant: "acme".parse().expect("an id"),
        dag: "web".parse().expect("an id"),
    };
    let nts = ["nat", "firewall"].map(|nt| nt.parse().expect("an id"));
    let by_hand = snic_domain::DagSpec::chain(&nts, snic_domain::Bandwidth::from_gbps(3));
    site.server.update_dag(&name, &by_hand).await.expect("there is room");
    until("the bandwidth of the object", || async {
        (site.dag(WEB).await?.bandwidth_bps == 1_000_000_000).then_some(())
    })
    .await;
    site.until(&object, "Ready", "True").await;

    site.deleted("shop", "web").await;
    assert!(site.server.list_dags().await.is_empty(), "all is given back");
}

/// Sends 100 Mbit/s through the DAG until the object says so.
async fn served_rates_follow_the_traffic(site: &Site) {
    let run =
        RunTrafficRequest { name: WEB.to_owned(), rate_bps: 100_000_000, ..Default::default() };
    let mut counts = site.server.traffic().run_traffic(run).await.expect("it runs").into_inner();
    let shown = until("a served rate", || async {
        let now = site.dags("shop").get("web").await.ok()?;
        now.data["status"]["servedBps"].as_u64().filter(|rate| *rate > 0)
    });
    let rate = tokio::select! {
        rate = shown => rate,
        () = async { while counts.message().await.expect("it runs").is_some() {} } => panic!("it ended"),
    };
    assert!((10_000_000..=110_000_000).contains(&rate), "{rate}");
}

/// Types what the page says.
pub async fn kubectl_applies_waits_and_shows(site: &Site) {
    let kubectl = |words: &[&str]| {
        let mut command = cluster::kubectl();
        command.arg("--kubeconfig").arg(site.plane.path().join("pki/admin.kubeconfig"));
        command.args(words).output()
    };
    let said = |words: &[&str]| {
        let output = kubectl(words).expect("it was there before");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        text
    };
    if kubectl(&["version", "--client"]).is_err() {
        println!("not run: kubectl is missing");
        return;
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/dag-example.yaml");
    said(&["apply", "-f", &example.display().to_string()]);
    said(&["-n", "shop", "wait", "--for=condition=Ready", "dag/web", "--timeout=60s"]);
    let table = said(&["-n", "shop", "get", "dags", "-o", "wide"]);
    let row = table.lines().nth(1).expect("a row");
    assert!(row.starts_with("web    True    1 Gbit/s"), "{table}");
    assert!(row.contains("card0") && row.contains(WEB), "{table}");
    println!("{table}");
    said(&["-n", "shop", "delete", "dag", "web", "--timeout=60s"]);
    assert!(site.server.list_dags().await.is_empty());
}

pub async fn what_the_schema_forbids_never_comes_to_the_controller(site: &Site) {
    let nodes = json!([{"id": "a", "type": "nat"}, {"id": "b", "type": "aes"}]);
    for (name, spec, said) in [
        ("web", json!({"chain": "nat"}), "spec.bandwidth: Required value"),
        ("web", json!({"bandwidth": "10GBps", "chain": "nat"}), "spec.bandwidth"),
        ("web", json!({"bandwidth": 1_000, "chain": "nat"}), "greater than or equal to 1000000"),
        ("web", json!({"bandwidth": "1Gbps"}), "either a chain, or nodes and edges"),
        ("web", json!({"bandwidth": "1Gbps", "chain": "nat", "nodes": nodes}), "either a chain"),
        ("web", json!({"bandwidth": "1Gbps", "chain": "nat", "edges": []}), "edges are for nodes"),
        (
            "web",
            json!({"bandwidth": "1Gbps", "nodes": nodes, "edges": [{"from": "a", "to": "c"}]}),
            "an edge names two of the nodes",
        ),
        (
            "web",
            json!({"bandwidth": "1Gbps", "nodes": nodes, "edges": [{"from": "a", "to": "a"}]}),
            "an edge joins two nodes",
        ),
        (
            "web",
            json!({"bandwidth": "1Gbps", "nodes": nodes, "configuration": {"c": {}}}),
            "configuration is by the ids of nodes",
        ),
        (
            "web",
            json!({"bandwidth": "1Gbps", "chain": "nat", "form": "round"}),
            "Unsupported value",
        ),
        (
            "web",
            json!({"bandwidth": "1Gbps", "chain": "nat", "card_affinity": {"with": ["tenants/globex/dags/web"]}}),
            "spec.card_affinity.with[0]",
        ),
        (
            "web",
            json!({"bandwidth": "1Gbps", "chain": "nat", "card_affinity": {"with": ["a"], "apart_from": ["a"]}}),
            "no DAG is in both lists",
        ),
        (
            "web",
            json!({"bandwidth": "1Gbps", "chain": "nat", "labels": {UID_LABEL: "x"}}),
            "are the controller's",
        ),
        (
            "web",
            json!({"bandwidth": "1Gbps", "chain": "nat", "labels": {"A": "x"}}),
            "lower-case letters",
        ),
        ("web.v2", json!({"bandwidth": "1Gbps", "chain": "nat"}), "the name is that of the DAG"),
        (
            "web",
            json!({"bandwidth": "1Gbps", "chain": "nat", "packet_sizes": [{"bytes": 63}]}),
            "spec.packet_sizes[0].bytes",
        ),
    ] {
        let error = site.apply("shop", name, spec.clone()).await.expect_err(said);
        let kube::Error::Api(status) = &error else { panic!("{spec}: {error}") };
        assert_eq!(status.code, 422, "{spec}: {error}");
        assert!(status.message.contains(said), "{spec}: {}", status.message);
    }
}

pub async fn a_placement_never_changes(site: &Site) {
    let placed = json!({"bandwidth": "1Gbps", "chain": "nat", "placement": {"zones": ["z1"]}});
    let object = site.applied("shop", "placed", placed.clone()).await;
    // A host has no zones; the words are the server's, the path is the specification's.
    let (_, accepted) = site.until(&object, "Accepted", "False").await;
    assert!(
        accepted["message"].as_str().is_some_and(|text| text.starts_with("spec.placement: ")),
        "{accepted}"
    );
    for other in [json!({"zones": ["z2"]}), Value::Null] {
        let mut changed = placed.clone();
        changed["placement"] = other;
        if changed["placement"].is_null() {
            changed.as_object_mut().expect("an object").remove("placement");
        }
        let error = site.apply("shop", "placed", changed).await.expect_err("another place");
        assert!(error.to_string().contains("the placement never changes"), "{error}");
    }
    site.deleted("shop", "placed").await;
}

/// The right to write a status, taken or given back, is where the controller is held between the server's creation and the status.
async fn set_status_right(site: &Site, is_there: bool) {
    let all = manifest(&objects::read("snic-dag-controller.yaml"));
    let role = all.into_iter().find(|object| object["kind"] == "ClusterRole");
    let mut role = role.expect("a role");
    if !is_there {
        role["rules"].as_array_mut().expect("rules").truncate(1);
    }
    apply(&site.plane.client, &role).await;
    let roles: Api<ClusterRole> = Api::all(site.plane.client.clone());
    let now = roles.get(CONTROLLER).await.expect("there");
    assert_eq!(now.rules.map(|rules| rules.len()), Some(if is_there { 2 } else { 1 }));
}

pub async fn a_controller_that_is_killed_before_it_writes_creates_nothing_twice(site: &mut Site) {
    set_status_right(site, false).await;
    let object = site.applied("shop", "web", web("1Gbps")).await;
    let dag = until("the DAG", || async { site.dag(WEB).await }).await;
    site.plane.kill(CONTROLLER);
    let now: DynamicObject = site.dags("shop").get("web").await.expect("there");
    assert_eq!(now.data.get("status"), None, "it was killed before it wrote");
    set_status_right(site, true).await;
    site.start_controller(CONTROLLER);
    site.until(&object, "Ready", "True").await;
    let after = site.dag(WEB).await.expect("there");
    assert_eq!(
        (after.uid, after.create_time, after.generation),
        (dag.uid, dag.create_time, dag.generation),
        "the same DAG, which nobody changed"
    );
    // Killed while it deletes: the next one goes on.
    site.plane.kill(CONTROLLER);
    site.dags("shop").delete("web", &Default::default()).await.expect("there");
    assert!(site.dag(WEB).await.is_some());
    site.start_controller(CONTROLLER);
    until("the end of the object", || async {
        site.dags("shop").get_opt("web").await.ok()?.is_none().then_some(())
    })
    .await;
    assert!(site.server.list_dags().await.is_empty());
}

pub async fn states_are_followed_over_a_restart_of_the_server(site: &mut Site) {
    let object = site.applied("shop", "web", web("1Gbps")).await;
    site.until(&object, "Ready", "True").await;
    site.restart_server().await;
    let object = site.applied("shop", "web", web("2Gbps")).await;
    site.until(&object, "Ready", "True").await;
    // A deletion that the controller only learns from the watch, which was broken.
    let name = snic_domain::DagName {
        tenant: "acme".parse().expect("an id"),
        dag: "web".parse().expect("an id"),
    };
    let before = site.dag(WEB).await.expect("there");
    site.server.delete_dag(&name).await.expect("there");
    until("the DAG again", || async {
        site.dag(WEB).await.filter(|dag| dag.create_time != before.create_time)
    })
    .await;
    site.until(&object, "Ready", "True").await;
    site.deleted("shop", "web").await;
}

pub async fn another_replica_takes_over(site: &mut Site) {
    site.start_controller("snic-second");
    let object = site.applied("shop", "web", web("1Gbps")).await;
    site.until(&object, "Ready", "True").await;
    assert!(!site.plane.log("snic-second").contains("this replica works"), "it waits");
    site.plane.kill(CONTROLLER);
    let object = site.applied("shop", "web", web("2Gbps")).await;
    site.until(&object, "Ready", "True").await;
    assert!(site.plane.log("snic-second").contains("this replica works"));
    site.deleted("shop", "web").await;
}
