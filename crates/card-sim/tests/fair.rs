//! The card with packet-level DRFQ as its scheduler: over long runs its rates are those that the
//! fluid solver computes, on random chains, weights and loads.

mod rig;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rig::{Nt, Rig, profile, uid};
use snic_card_sim::{Charging, Options, Scheduling, Sizes, TrafficSource};
use snic_domain::{Bandwidth, ByteSize};
use snic_fairness::Weight;
use snic_fairness::fluid::{Cost, Demand, NetworkBuilder, Solver, Spare, TenantIndex};
use snic_tables::{DagRow, RateLimiterRow};

/// NTs of each region.
const SLOTS: usize = 3;
/// Cycles that do not count, and that do: 2 and 10 ms.
const WARM_UP: u64 = 500_000;
const MEASURED: u64 = 2_500_000;
const CASES: usize = 10;
const BYTES: u32 = 1_500;

/// A tenant with one DAG: weight, region, slots, load in Mbit/s.
type Tenant = (u16, u8, u8, u64);

fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

/// Gbit/s of each tenant on the card.
fn on_the_card(regions: &[[u64; SLOTS]], tenants: &[Tenant]) -> Vec<f64> {
    let mut card = profile();
    card.packet_store = ByteSize::from_mib(512);
    // A packet keeps a credit of every NT of its chain while it is on its way to it. So few that an
    // NT is idle for want of them would be a limit of the card, which the solver does not know.
    card.credits_initial = 127;
    let scheduling = Scheduling::Drfq(Charging::Memoryless);
    let mut rig = Rig::with(card, 1, Options { scheduling, ..Options::default() });
    for (number, serves) in regions.iter().enumerate() {
        let chain: Vec<Nt> = serves.iter().map(|gbps| (20, *gbps)).collect();
        rig.load(number as u8, &chain);
    }
    for (row, (weight, region, slots, load)) in (0..).zip(tenants) {
        rig.dag(row, &[&[&[(*region, *slots, 1)]]]);
        rig.program(|image| {
            let dag = image.get::<DagRow>(row).expect("programmed");
            let own = DagRow { tenant: row, rate_limiter: row, ..dag };
            image.set(row, &own).expect("there");
            let (rate_kbps, burst_bytes) = (gbps(100).kbps(), 64 << 10);
            let weight = *weight;
            let bucket = RateLimiterRow { rate_kbps, burst_bytes, promised_kbps: 0, weight };
            image.set(row, &bucket).expect("there");
        });
        let source =
            TrafficSource::of_dag(uid(row), Bandwidth::from_mbps(*load), Sizes::Fixed(BYTES));
        rig.card.attach(source).expect("valid");
    }
    rig.card.run_for(WARM_UP);
    rig.card.take_measurements();
    rig.card.run_for(MEASURED);
    let measured = rig.card.take_measurements();
    rig.card.check().expect("nothing is lost");
    let served = |row| measured.dag(row).map_or(0.0, |dag| dag.served.gbps_f64());
    (0..tenants.len() as u16).map(served).collect()
}

/// The same by the fluid solver.
fn by_the_solver(regions: &[[u64; SLOTS]], tenants: &[Tenant]) -> Vec<f64> {
    let capacities: Vec<u64> = regions.as_flattened().iter().map(|n| gbps(*n).get()).collect();
    let mut network = NetworkBuilder::new(&capacities);
    let mut demands = Vec::new();
    for (index, (weight, region, slots, load)) in (0..).zip(tenants) {
        network.tenant(Weight::new((*weight).into()).expect("in range"));
        let used = (0..SLOTS).filter(|slot| slots >> slot & 1 == 1);
        let costs: Vec<_> =
            used.map(|slot| (usize::from(*region) * SLOTS + slot, Cost::ONE)).collect();
        network.flow(TenantIndex(index), &costs);
        demands.push(Demand { load: Bandwidth::from_mbps(*load), admitted: Bandwidth::ZERO });
    }
    let mut solver = Solver::new(network.build().expect("valid"), Spare::ByWeight);
    let rates = solver.solve(&demands).expect("one for each");
    rates.rates.iter().map(|rate| rate.gbps_f64()).collect()
}

#[test]
fn tenants_of_one_nt_share_it_by_weight() {
    let tenants = [(1, 0, 0b001, 30_000), (3, 0, 0b001, 30_000), (1, 0, 0b001, 1_000)];
    let served = on_the_card(&[[20, 20, 20]], &tenants);
    let near = |at: usize, gbps: f64| (served[at] - gbps).abs() < 0.02 * gbps;
    assert!(near(0, 4.75) && near(1, 14.25) && near(2, 1.0), "{served:?}");
}

#[test]
fn rates_agree_with_the_fluid_solver_within_two_percent() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut worst, mut short) = (0.0_f64, 0);
    for _ in 0..CASES {
        let regions: Vec<[u64; SLOTS]> =
            (0..2).map(|_| std::array::from_fn(|_| rng.random_range(8..=20))).collect();
        let mut tenant = || {
            let (weight, region) = (rng.random_range(1..=4), rng.random_range(0..2));
            (weight, region, rng.random_range(1..8), rng.random_range(2_000..20_000))
        };
        let tenants: Vec<Tenant> = (0..5).map(|_| tenant()).collect();
        let (card, solver) = (on_the_card(&regions, &tenants), by_the_solver(&regions, &tenants));
        for (at, (card, solver)) in card.iter().zip(&solver).enumerate() {
            let off = (card - solver).abs() / solver;
            assert!(
                off <= 0.02,
                "tenant {at} has {card} Gbit/s on the card, {solver} by the solver: {tenants:?} on \
                 {regions:?}"
            );
            worst = worst.max(off);
            short += usize::from(*solver < tenants[at].3 as f64 / 1e3 - 0.01);
        }
    }
    println!("{CASES} cards: {:.2} % apart at most; {short} tenants wanted more", worst * 100.0);
    assert!(short > CASES, "too few compete: {short}");
}
