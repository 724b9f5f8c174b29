//! Five ways to fill a card, side by side: `cargo run --release -p snic-workloads --example compare`.

use snic_domain::{Dag, DagName};
use snic_workloads::comparison::{POLICIES, Scene};
use snic_workloads::{Shape, generate};

fn main() -> anyhow::Result<()> {
    let scene = Scene::new()?;
    for count in [100, 1_000] {
        let dags: Vec<(DagName, Dag)> = generate(1, count, &Shape::default())
            .into_iter()
            .filter_map(|item| Some((item.name, Dag::new(item.spec).ok()?)))
            .collect();
        println!("{count} DAGs, 32 regions");
        println!("way              admitted regions unused passes cycles kbit/s/LUT");
        for policy in POLICIES {
            let made = scene.fill(policy, &dags);
            println!(
                "{:<16} {:>8} {:>7} {:>5} % {:>6.2} {:>6} {:>10}",
                format!("{policy:?}"),
                made.admitted,
                made.regions,
                made.unused_permille / 10,
                made.passes_milli as f64 / 1_000.0,
                made.latency_cycles,
                made.kbps_per_lut(),
            );
        }
        println!();
    }
    Ok(())
}
