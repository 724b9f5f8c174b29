//! Watches over `kill -9`: who resumes with the last revision misses no change and is told none twice.
//!
//! `SNIC_CRASH_SEED=7 cargo test -p snic-integration --features ci --test ci resumed_watches::` replays a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_api::v1::{self, EventType};
use snic_bitstream::catalogue;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::{Home, TestClient};
use tokio::sync::watch;
use tonic::Status;

/// Number of times that the daemon is killed.
const ROUNDS: u32 = 12;
/// Tenants that stay: a kill may come while a watch is told of them.
const STANDING: u32 = 200;
/// Most time until a watch has what a list shows.
const PATIENCE: Duration = Duration::from_secs(60);

/// Resources that a watch has shown, by name, with their etags.
#[derive(Debug, Default)]
struct Seen {
    revision: u64,
    etags: BTreeMap<String, String>,
    /// Events, deletions, and whether each is told once.
    added: u32,
    deleted: u32,
    /// Whether a resource may be told again as it was: its state is read from the card after a restart.
    is_repeated: bool,
    /// Resources of the beginning of a watch. Until the bookmark after it comes there is no
    /// later revision to resume from, so a watch that breaks before is told it again.
    before_bookmark: BTreeSet<String>,
}

impl Seen {
    fn take(&mut self, kind: EventType, resource: Option<(String, String)>, revision: u64) {
        assert!(revision >= self.revision, "{revision} follows {}", self.revision);
        let is_beginning = revision == self.revision && kind != EventType::Bookmark;
        self.revision = revision;
        if !is_beginning {
            self.before_bookmark.clear();
        }
        let Some((name, etag)) = resource else {
            assert_eq!(kind, EventType::Bookmark);
            return;
        };
        let may_repeat = is_beginning && !self.before_bookmark.insert(name.clone());
        match kind {
            EventType::Added => {
                self.added += 1;
                let before = self.etags.insert(name.clone(), etag);
                assert!(may_repeat || before.is_none(), "{name} is told as new twice");
            }
            EventType::Modified => {
                let before = self.etags.insert(name.clone(), etag.clone());
                let before = before.unwrap_or_else(|| panic!("{name} was never told as new"));
                let is_new = self.is_repeated || may_repeat || before != etag;
                assert!(is_new, "{name} is told twice as {etag}");
            }
            EventType::Deleted => {
                self.deleted += 1;
                self.etags.remove(&name);
            }
            EventType::Bookmark | EventType::Unspecified => panic!("{kind:?} of {name}"),
        }
    }
}

/// Follows tenants until the connection breaks.
async fn tenants(client: &TestClient, seen: &mut Seen) -> Result<(), Status> {
    let request = v1::WatchTenantsRequest { resume_revision: seen.revision };
    let mut events = client.tenants().watch_tenants(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        let resource = event.tenant.as_ref().map(|now| (now.name.clone(), now.etag.clone()));
        seen.take(event.r#type(), resource, event.revision);
    }
    Ok(())
}

/// Follows the DAGs of all tenants until the connection breaks.
async fn dags(client: &TestClient, seen: &mut Seen) -> Result<(), Status> {
    let parent = "tenants/-".to_owned();
    let request = v1::WatchDagsRequest { parent, resume_revision: seen.revision };
    let mut events = client.dags().watch_dags(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        let resource = event.dag.as_ref().map(|now| (now.name.clone(), now.etag.clone()));
        seen.take(event.r#type(), resource, event.revision);
    }
    Ok(())
}

/// Creates, changes and deletes until the connection breaks; says how often it was answered.
async fn load(client: &TestClient, rng: &mut ChaCha8Rng, answered: &watch::Sender<u32>) {
    loop {
        let id = format!("x{}", rng.random_range(0..8));
        let name = format!("tenants/{id}");
        let dag = format!("d{}", rng.random_range(0..8));
        let dag = DagName {
            tenant: "keeper".parse().expect("a label"),
            dag: dag.parse().expect("a label"),
        };
        let nat: NtTypeId = "nat".parse().expect("a label");
        let spec = DagSpec::chain(&[nat], Bandwidth::from_mbps(rng.random_range(1..200)));
        let result = match rng.random_range(0..5) {
            0 => client.create_tenant(&id).await,
            1 => {
                let request = v1::DeleteTenantRequest { name, force: true, ..Default::default() };
                client.tenants().delete_tenant(request).await.map(drop)
            }
            2 => {
                let weight = rng.random_range(1..100);
                let tenant = v1::Tenant { name, weight, ..Default::default() };
                let update_mask = Some(prost_types::FieldMask { paths: vec!["weight".into()] });
                let request = v1::UpdateTenantRequest {
                    tenant: Some(tenant),
                    update_mask,
                    ..Default::default()
                };
                client.tenants().update_tenant(request).await.map(drop)
            }
            3 => client.create_dag(&dag, &spec).await.map(drop),
            _ => client.delete_dag(&dag).await.map(drop),
        };
        if result.is_err_and(|status| status.code() == tonic::Code::Unavailable) {
            return;
        }
        answered.send_modify(|count| *count += 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_after_a_kill_as_if_nothing_had_happened() {
    let seed = match std::env::var("SNIC_CRASH_SEED") {
        Ok(text) => text.parse().expect("SNIC_CRASH_SEED is a number"),
        Err(_) => 1,
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let home = Home::new();
    let mut daemon = home.start().await;
    let connect =
        async || TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let client = connect().await;
    client.create_tenant("keeper").await.expect("a new tenant");
    for number in 0..STANDING {
        client.create_tenant(&format!("s{number}")).await.expect("a new tenant");
    }
    client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
    let mut of_tenants = Seen::default();
    let mut of_dags = Seen { is_repeated: true, ..Seen::default() };
    for _ in 0..ROUNDS {
        let (loader, watcher) = (connect().await, connect().await);
        let (answered, mut answers) = watch::channel(0);
        // With a last one under way.
        let wanted = rng.random_range(0..40);
        let pause = Duration::from_micros(rng.random_range(0..3_000));
        let kill = async {
            answers.wait_for(|count| *count >= wanted).await.expect("they are counted");
            tokio::time::sleep(pause).await;
            daemon.kill()
        };
        let (one, other, (), _log) = tokio::join!(
            tenants(&watcher, &mut of_tenants),
            dags(&watcher, &mut of_dags),
            load(&loader, &mut rng, &answered),
            kill
        );
        for ended in [one, other] {
            let status = ended.expect_err("it was killed");
            assert_ne!(status.code(), tonic::Code::OutOfRange, "seed {seed}: {status}");
        }
        daemon = home.start().await;
    }
    // What both lists show now has been told, or is told by the next events.
    let client = connect().await;
    let all = v1::ListTenantsRequest { page_size: 1_000, ..Default::default() };
    let listed = client.tenants().list_tenants(all).await;
    let listed = listed.expect("a list").into_inner();
    let expected: BTreeMap<String, String> =
        listed.tenants.into_iter().map(|tenant| (tenant.name, tenant.etag)).collect();
    let until = async |client: &TestClient, seen: &mut Seen, which: u32, revision: u64| {
        while seen.revision < revision {
            let step = async {
                match which {
                    0 => tenants(client, seen).await,
                    _ => dags(client, seen).await,
                }
            };
            // A bookmark comes once all was sent; then the stream is silent.
            let _ = tokio::time::timeout(Duration::from_millis(500), step).await;
        }
    };
    let all = until(&client, &mut of_tenants, 0, listed.revision);
    tokio::time::timeout(PATIENCE, all).await.expect("all that the list has is told");
    assert_eq!(of_tenants.etags, expected, "seed {seed}");
    let names: Vec<String> = client.list_dags().await.into_iter().map(|dag| dag.name).collect();
    let all = until(&client, &mut of_dags, 1, listed.revision);
    tokio::time::timeout(PATIENCE, all).await.expect("all that the list has is told");
    let told: Vec<String> = of_dags.etags.into_keys().collect();
    assert_eq!(told, names, "seed {seed}");
    for seen in [(of_tenants.added, of_tenants.deleted), (of_dags.added, of_dags.deleted)] {
        assert!(seen.0 > 5 && seen.1 > 2, "seed {seed}: the test asked for too little: {seen:?}");
    }
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
