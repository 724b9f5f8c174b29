//! `kill -9` at any moment: every acknowledged DAG is there and READY again, and nothing that was
//! not acknowledged is half there.
//!
//! `SNIC_CRASH_SEED=7 cargo test -p snic-integration --features ci --test ci crash::` replays a seed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_api::v1::dag::State;
use snic_bitstream::catalogue;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::{Home, TestClient};

/// Number of times that the daemon is killed.
const ROUNDS: u32 = 40;
/// Longest time of the daemon until all DAGs are ready again.
const READY_MAX: Duration = Duration::from_secs(60);

/// Knowledge of a DAG: acknowledged as there or gone, or asked for and not answered.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    There,
    Gone,
    Open,
}

fn name(number: u32) -> DagName {
    let tenant = format!("t{}", number % 3).parse().expect("a label");
    DagName { tenant, dag: format!("d{number}").parse().expect("a label") }
}

fn spec(rng: &mut ChaCha8Rng) -> DagSpec {
    let chains: [&[&str]; 5] = [
        &["firewall", "aes"],
        &["nat"],
        &["nat", "firewall", "load-balancer"],
        &["kv-cache"],
        &["load-balancer", "kv-cache", "go-back-n"],
    ];
    let chain = chains[rng.random_range(0..chains.len())];
    let nts: Vec<NtTypeId> = chain.iter().map(|nt| nt.parse().expect("a label")).collect();
    DagSpec::chain(&nts, Bandwidth::from_mbps(rng.random_range(1..2_000)))
}

/// Creates and deletes until the connection breaks.
async fn load(client: TestClient, mut rng: ChaCha8Rng, known: &mut BTreeMap<u32, Known>) {
    loop {
        let number = rng.random_range(0..24);
        let there = known.get(&number) == Some(&Known::There);
        known.insert(number, Known::Open);
        let result = if there {
            client.delete_dag(&name(number)).await.map(|_| Known::Gone)
        } else {
            client.create_dag(&name(number), &spec(&mut rng)).await.map(|_| Known::There)
        };
        match result {
            Ok(now) => known.insert(number, now),
            // The card is full: nothing was changed.
            Err(status) if status.code() == tonic::Code::ResourceExhausted => {
                known.insert(number, Known::Gone)
            }
            Err(_) => return,
        };
    }
}

/// Every DAG is what was acknowledged, and becomes ready.
async fn check(client: &TestClient, known: &mut BTreeMap<u32, Known>, context: &str) {
    let until = Instant::now() + READY_MAX;
    loop {
        let dags = client.list_dags().await;
        for (number, known) in known.iter_mut() {
            let there = dags.iter().any(|dag| dag.name == name(*number).to_string());
            let found = if there { Known::There } else { Known::Gone };
            assert!(
                *known == Known::Open || *known == found,
                "{context}: {} is {found:?}, {known:?} was acknowledged",
                name(*number)
            );
            *known = found;
        }
        let waiting: Vec<_> = dags.iter().filter(|dag| dag.state() != State::Ready).collect();
        if waiting.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "{context}: not ready: {waiting:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_kills_lose_nothing_and_tear_nothing() {
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
    for tenant in ["t0", "t1", "t2"] {
        client.create_tenant(tenant).await.expect("a new tenant");
    }
    client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
    let mut known = BTreeMap::new();
    for round in 0..ROUNDS {
        let context = format!("seed {seed}, round {round}");
        let (client, load_rng) = (connect().await, ChaCha8Rng::from_rng(&mut rng));
        let wait = Duration::from_micros(rng.random_range(500..60_000));
        let kill = async {
            tokio::time::sleep(wait).await;
            daemon.kill()
        };
        let ((), _log) = tokio::join!(load(client, load_rng, &mut known), kill);
        daemon = home.start().await;
        check(&connect().await, &mut known, &context).await;
    }
    let there = known.values().filter(|known| **known == Known::There).count();
    assert!(there > 0, "seed {seed}: no DAG survived; the test asked for nothing");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
