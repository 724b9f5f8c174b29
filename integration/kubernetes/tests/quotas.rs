//! Quotas that the driver keeps, with a real API server: each namespace has one, and nobody asks for them again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use snic_kubernetes::dra::quotas::{NAME, QuotaKeeper};
use snic_kubernetes::dra::settings::{DraSettings, OfferedCard};

use crate::cluster::control_plane::{self, ControlPlane};
use crate::cluster::objects::{self, apply, manifest};
use crate::cluster::until;

/// Namespaces with a tenant.
const NAMESPACES: usize = 100;
/// Time in which nothing changes: longer than two looks for new namespaces.
const QUIET: Duration = Duration::from_secs(25);
/// Longest time until a namespace that is new has its quota.
const NEW_MAX: Duration = Duration::from_secs(12);

/// Sum of the API server's counters of this name about lists and creations of quotas.
async fn counted(client: &kube::Client, counter: &str) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let page = client.request_text(request).await.expect("metrics");
    let about = |line: &&str| {
        line.starts_with(counter)
            && line.contains("resource=\"resourcequotas\"")
            && ["LIST", "POST"].iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    };
    let values = page.lines().filter(about).filter_map(|line| line.rsplit(' ').next());
    values.filter_map(|value| value.parse::<f64>().ok()).sum()
}

async fn create_namespace(plane: &ControlPlane, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    apply(&plane.client, &object).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_namespace_has_a_quota_and_nobody_asks_again_and_again() {
    if let Some(why) = control_plane::missing_for_claims() {
        println!("not run: {why}");
        return;
    }
    let plane = ControlPlane::start().await;
    for object in manifest(&objects::read("snic-dra.yaml")) {
        apply(&plane.client, &object).await;
    }
    let mut names: Vec<String> = (0..NAMESPACES).map(|number| format!("shop-{number}")).collect();
    for name in &names {
        create_namespace(&plane, name).await;
    }
    names.push("later".to_owned());
    let card0 = OfferedCard { id: "card0".into(), functions: 8, ..OfferedCard::default() };
    let namespaces = names.into_iter().map(|name| (name, "acme".to_owned())).collect();
    let settings = DraSettings { namespaces, cards: vec![card0], ..DraSettings::default() };
    // With the rights of the manifest.
    let login = plane.login("kube-system", "snic-dra");
    let (keeper, mut are_bounded) =
        QuotaKeeper::new(&Arc::new(settings), control_plane::client(&login).await);
    assert!(!*are_bounded.borrow());
    let keeping = tokio::spawn(keeper.run());
    are_bounded.changed().await.expect("it runs");
    let quotas: Api<ResourceQuota> = Api::all(plane.client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={NAME}"));
    let count = || async { quotas.list_metadata(&named).await.ok().map(|list| list.items.len()) };
    assert_eq!(count().await, Some(NAMESPACES), "before the node offers anything");

    let lists = || counted(&plane.client, "apiserver_request_total");
    let bytes = || counted(&plane.client, "apiserver_response_sizes_sum");
    // One list of before, which each driver asked for every ten seconds.
    let before = bytes().await;
    count().await;
    println!("a list of {NAMESPACES} quotas has {} bytes", bytes().await - before);
    let before = (lists().await, bytes().await);
    tokio::time::sleep(QUIET).await;
    let asked = (lists().await - before.0, bytes().await - before.1);
    println!("in {QUIET:?} {} lists and creations, {} bytes", asked.0, asked.1);
    // A namespace that does not exist is asked for; those that have a quota are not.
    assert!(asked.0 <= 4.0, "{asked:?}");

    let one: Api<ResourceQuota> = Api::namespaced(plane.client.clone(), "shop-7");
    let uid = one.get(NAME).await.expect("it is there").metadata.uid;
    one.delete(NAME, &Default::default()).await.expect("a right of the admin");
    let began = Instant::now();
    until("another quota", || async {
        (one.get_opt(NAME).await.ok()??.metadata.uid != uid).then_some(())
    })
    .await;
    println!("one that was deleted is there again after {:.1?}", began.elapsed());
    assert!(began.elapsed() < NEW_MAX);
    create_namespace(&plane, "later").await;
    let began = Instant::now();
    until("a quota of the new namespace", || async {
        (count().await? == NAMESPACES + 1).then_some(())
    })
    .await;
    println!("a new namespace has one after {:.1?}", began.elapsed());
    assert!(began.elapsed() < NEW_MAX);
    keeping.abort();
}
