//! The fast fluid solver against fractions, and what it promises whatever the demands.

use num_rational::BigRational;
use num_traits::ToPrimitive;
use proptest::prelude::*;
use snic_domain::Bandwidth;
use snic_fairness::Weight;
use snic_fairness::fluid::{
    Cost, Demand, FlowIndex, Limit, Network, NetworkBuilder, Solver, Spare, TenantIndex,
};
use snic_oracles::fluid as oracle;

#[derive(Debug, Clone)]
struct Case {
    network: Network,
    demands: Vec<Demand>,
    costs: Vec<Vec<(usize, Cost)>>,
}

fn bps() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 4 => 1..40_u64, 4 => 1..100_000_000_000_u64]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![3 => Just(Cost::ONE), 1 => (1..5_u32, 1..5_u32).prop_map(|(n, d)| Cost::from_ratio(n, d)),
        1 => (0..1_u32 << 24).prop_map(Cost::from_raw)]
}

/// Up to five tenants with up to three flows each, interleaved, on up to four resources.
fn case() -> impl Strategy<Value = Case> {
    (1..5_usize, 1..6_usize).prop_flat_map(|(resources, tenants)| {
        let flow =
            (0..tenants, proptest::collection::vec((0..resources, cost()), 0..4), (bps(), bps()));
        (
            proptest::collection::vec(prop_oneof![1 => Just(0), 9 => bps()], resources),
            proptest::collection::vec(1..6_u32, tenants),
            proptest::collection::vec(flow, 0..9),
        )
            .prop_map(|(capacities, weights, flows)| {
                let mut builder = NetworkBuilder::new(&capacities);
                for w in weights {
                    builder.tenant(Weight::new(w).expect("in range"));
                }
                let (mut demands, mut all_costs) = (Vec::new(), Vec::new());
                for (tenant, costs, (load, admitted)) in flows {
                    builder.flow(TenantIndex(tenant as u32), &costs);
                    all_costs.push(costs);
                    let [load, admitted] = [load, admitted].map(Bandwidth::from_bps);
                    demands.push(Demand { load, admitted });
                }
                let network = builder.build().expect("valid");
                Case { network, demands, costs: all_costs }
            })
    })
}

fn spare() -> impl Strategy<Value = Spare> {
    prop_oneof![Just(Spare::LevelShares), Just(Spare::ByWeight)]
}

fn base(demand: &Demand) -> u64 {
    demand.load.min(demand.admitted).get()
}

fn whole(capacity: u64) -> u128 {
    u128::from(capacity) * u128::from(Cost::ONE.raw())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// A promise that can be kept: the fast rates are the exact ones to a bit per second or 10^-9.
    #[test]
    fn fast_and_exact_agree(mut case in case(), spare in spare()) {
        make_feasible(&mut case);
        let mut solver = Solver::new(case.network.clone(), spare);
        let fast = solver.solve(&case.demands).expect("right length");
        prop_assert!(fast.guaranteed);
        let exact: Vec<BigRational> = oracle::solve(&case.network, spare, &case.demands);
        let float: Vec<f64> = oracle::solve(&case.network, spare, &case.demands);
        for (flow, (fast, exact)) in fast.rates.iter().zip(&exact).enumerate() {
            let exact = exact.to_f64().expect("a rate");
            // `trim` takes a bit per second from some, where costs make that much of a difference.
            let bound = 2.0 + exact * 1e-9;
            prop_assert!((fast.get() as f64 - exact).abs() <= bound, "flow {}: {} {}", flow, fast, exact);
            prop_assert!((float[flow] - exact).abs() <= bound, "flow {}: {} {}", flow, float[flow], exact);
        }
    }

    /// Whatever is promised: never over a capacity, never over a load, the promise where it can
    /// be kept, and nothing idle that somebody who waits could use.
    #[test]
    fn promises_hold_and_nothing_is_idle(case in case(), spare in spare()) {
        let mut solver = Solver::new(case.network.clone(), spare);
        let got = solver.solve(&case.demands).expect("right length").clone();
        let used = case.network.usage(&got.rates);
        let capacities = case.network.capacities();
        for (used, &capacity) in used.iter().zip(capacities) {
            prop_assert!(*used <= whole(capacity));
        }
        let bases: Vec<_> =
            case.demands.iter().map(|d| Bandwidth::from_bps(base(d))).collect();
        let feasible = case.network.usage(&bases).iter().zip(capacities)
            .all(|(used, &capacity)| *used <= whole(capacity));
        prop_assert_eq!(got.guaranteed, feasible);
        for (flow, (rate, demand)) in got.rates.iter().zip(&case.demands).enumerate() {
            prop_assert!(*rate <= demand.load);
            prop_assert!(!feasible || rate.get() >= base(demand), "promise of {}", flow);
            match got.limits[flow] {
                Limit::Load => prop_assert_eq!(*rate, demand.load),
                Limit::Resource(k) => {
                    let k = k as usize;
                    prop_assert!(case.costs[flow].iter().any(|(used, _)| *used == k));
                    // Each flow is rounded down by less than two bits per second.
                    let rounding: u128 = case.costs.iter().flatten()
                        .filter(|(used, _)| *used == k).map(|(_, cost)| 2 * u128::from(cost.raw())).sum();
                    let left = whole(capacities[k]) - used[k];
                    prop_assert!(left <= rounding + whole(capacities[k]) / 1_000_000_000,
                        "{} left of {} for {}", left, k, flow);
                }
            }
        }
    }

    /// More load of one tenant never takes what was promised to another.
    #[test]
    fn a_lie_about_load_takes_no_promise(mut case in case(), lie in bps(), spare in spare()) {
        make_feasible(&mut case);
        let Some(first) = case.demands.first_mut() else { return Ok(()) };
        first.load = Bandwidth::from_bps(first.load.get().saturating_add(lie));
        // What was promised to the liar stays feasible.
        first.admitted = first.admitted.min(Bandwidth::from_bps(
            first.load.get().saturating_sub(lie)));
        let mut solver = Solver::new(case.network.clone(), spare);
        let got = solver.solve(&case.demands).expect("right length");
        for (rate, demand) in got.rates.iter().zip(&case.demands) {
            prop_assert!(rate.get() >= base(demand));
        }
    }

    /// One flow a tenant, one resource they all use: the lie "I want more" gains nothing once the
    /// flow does not get its load, and "I want less" gains nothing ever.
    #[test]
    fn lying_about_load_gains_nothing(
        loads in proptest::collection::vec(1..1_000_u64, 2..6), lie in 1..10_000_u64
    ) {
        let mut builder = NetworkBuilder::new(&[1_500, 700]);
        for i in 0..loads.len() {
            let tenant = builder.tenant(Weight::ONE);
            builder.flow(tenant, &[(i % 2, Cost::ONE), (0, Cost::ONE)]);
        }
        let mut solver = Solver::new(builder.build().expect("valid"), Spare::LevelShares);
        let demand = |load| Demand { load: Bandwidth::from_bps(load), admitted: Bandwidth::ZERO };
        let mut demands: Vec<_> = loads.iter().copied().map(demand).collect();
        let honest = solver.solve(&demands).expect("right length").rates[0].get();
        demands[0] = demand(lie);
        let lied = solver.solve(&demands).expect("right length").rates[0].get();
        prop_assert!(lied.min(loads[0]) <= honest + 1, "{} instead of {}", lied, honest);
    }

    /// Splitting every flow of a tenant into two halves changes nobody's rate.
    #[test]
    fn splitting_changes_nothing(mut case in case(), spare in spare()) {
        make_feasible(&mut case);
        for demand in &mut case.demands {
            let even = |rate: Bandwidth| Bandwidth::from_bps(rate.get() / 2 * 2);
            *demand = Demand { load: even(demand.load), admitted: even(demand.admitted) };
        }
        let mut builder = NetworkBuilder::new(case.network.capacities());
        let mut split = Vec::new();
        for tenant in (0..case.network.tenant_count() as u32).map(TenantIndex) {
            builder.tenant(case.network.weight(tenant));
        }
        for tenant in (0..case.network.tenant_count() as u32).map(TenantIndex) {
            for FlowIndex(flow) in case.network.flows_of(tenant) {
                let half = |rate: Bandwidth| Bandwidth::from_bps(rate.get() / 2);
                let Demand { load, admitted } = case.demands[flow as usize];
                for _ in 0..2 {
                    builder.flow(tenant, &case.costs[flow as usize]);
                    split.push((flow as usize, Demand { load: half(load), admitted: half(admitted) }));
                }
            }
        }
        let halves: Vec<_> = split.iter().map(|(_, demand)| *demand).collect();
        let mut solver = Solver::new(case.network.clone(), spare);
        let whole = solver.solve(&case.demands).expect("right length").rates.clone();
        let mut solver = Solver::new(builder.build().expect("valid"), spare);
        let got = solver.solve(&halves).expect("right length");
        let mut sums = vec![0; whole.len()];
        for ((flow, _), rate) in split.iter().zip(&got.rates) {
            sums[*flow] += rate.get();
        }
        for (sum, whole) in sums.iter().zip(&whole) {
            let bound = 5 + whole.get() / 1_000_000_000;
            prop_assert!(sum.abs_diff(whole.get()) <= bound, "{} instead of {}", sum, whole);
        }
    }
}

/// Lowers promises until they fit, as admission does.
fn make_feasible(case: &mut Case) {
    let mut promised = vec![Bandwidth::ZERO; case.demands.len()];
    for flow in 0..promised.len() {
        let mut want = base(&case.demands[flow]);
        loop {
            promised[flow] = Bandwidth::from_bps(want);
            let used = case.network.usage(&promised);
            let fits =
                used.iter().zip(case.network.capacities()).all(|(used, &c)| *used <= whole(c));
            if fits {
                break;
            }
            want /= 2;
        }
        case.demands[flow].admitted = promised[flow];
    }
}
