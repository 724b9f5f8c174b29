//! One DAG among 10,000 cards of the shipped profile at various fill. The goal is 200 µs.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use snic_fleet::placement::{CardConstraints, CardPolicy, Inventory, PlaceDag};
use support::{
    Rng, answers, catalogue, dag, host, host_spec, inventory, name, place_and_hold, profile, spec,
};

const HOSTS: usize = 2_500;
const CARDS_OF_A_HOST: usize = 4;

/// Cards that have up to `most` DAGs each.
fn fleet(most: usize) -> Inventory {
    let catalogue = catalogue();
    let mut fleet = inventory(catalogue);
    let profile = profile(catalogue, "sim-16");
    let mut rng = Rng(20);
    for number in 0..HOSTS {
        let id = host(&format!("h{number}"));
        fleet.add_host(&id, host_spec(number % 4, number / 40, &[&profile; CARDS_OF_A_HOST]));
        answers(&mut fleet, &id);
        let constraints = CardConstraints { hosts: [id].into(), ..CardConstraints::default() };
        for dag_number in 0..rng.below(most * CARDS_OF_A_HOST + 1) {
            let nts: Vec<usize> = (0..1 + rng.below(3)).map(|_| rng.below(12)).collect();
            let dag = dag(&spec(catalogue, &nts, 1_000 * (1 + rng.below(10) as u64)));
            let name = name("resident", &format!("h{number}d{dag_number}"));
            let policy = CardPolicy::Headroom;
            let request = PlaceDag { name: &name, dag: &dag, constraints: &constraints, policy };
            let _ = place_and_hold(&mut fleet, &request);
        }
    }
    fleet
}

fn place(c: &mut Criterion) {
    let catalogue = catalogue();
    let dags = [
        ("one NT", vec![1], 2_000),
        ("three NTs", vec![0, 1, 5], 5_000),
        ("40 Gbit/s", vec![1], 40_000),
        ("more than a card has", vec![1], 1_000_000),
        ("twelve NTs with 90 Gbit/s", (0..12).collect(), 90_000),
    ];
    let constraints = CardConstraints::default();
    for (fill, most) in [("empty", 0), ("up to 8 DAGs", 8), ("up to 40 DAGs", 40)] {
        let fleet = fleet(most);
        let mut group = c.benchmark_group(format!("among 10,000 cards, {fill}"));
        for (what, nts, mbit) in &dags {
            let (name, dag) = (name("acme", "web"), dag(&spec(catalogue, nts, *mbit)));
            for policy in
                [CardPolicy::Pack, CardPolicy::Spread, CardPolicy::Headroom, CardPolicy::Loaded]
            {
                let request =
                    PlaceDag { name: &name, dag: &dag, constraints: &constraints, policy };
                let outcome = fleet.place(&request).map_or("refused", |_| "placed");
                let id = BenchmarkId::new(*what, format!("{policy:?}, {outcome}"));
                group
                    .bench_function(id, |b| b.iter(|| black_box(fleet.place(black_box(&request)))));
            }
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = place
}
criterion_main!(benches);
