//! The fluid solver: the promise, the spare, and what it answers to bad input.

use snic_domain::Bandwidth;
use snic_fairness::Weight;
use snic_fairness::fluid::{
    Cost, Demand, FlowIndex, InvalidNetwork, Limit, Network, NetworkBuilder, RESOURCES_MAX, Solver,
    Spare, TenantIndex, WrongDemands,
};
use snic_oracles::fluid as oracle;

const GBPS: u64 = 1_000_000_000;

fn weight(w: u32) -> Weight {
    Weight::new(w).expect("valid")
}

fn demand(load: u64, admitted: u64) -> Demand {
    Demand { load: Bandwidth::from_bps(load), admitted: Bandwidth::from_bps(admitted) }
}

/// Tenants of these weights with one flow each, that passes these resources once.
fn network(capacities: &[u64], tenants: &[(u32, &[usize])]) -> Network {
    let mut builder = NetworkBuilder::new(capacities);
    for (w, resources) in tenants {
        let tenant = builder.tenant(weight(*w));
        let costs: Vec<_> = resources.iter().map(|&k| (k, Cost::ONE)).collect();
        builder.flow(tenant, &costs);
    }
    builder.build().expect("valid")
}

fn solve(network: &Network, spare: Spare, demands: &[Demand]) -> (Vec<u64>, Vec<Limit>, bool) {
    let mut solver = Solver::new(network.clone(), spare);
    let rates = solver.solve(demands).expect("one for each flow");
    let bps = rates.rates.iter().map(|rate| rate.get()).collect();
    (bps, rates.limits.clone(), rates.guaranteed)
}

fn rates(network: &Network, demands: &[Demand]) -> Vec<u64> {
    solve(network, Spare::LevelShares, demands).0
}

#[test]
fn weights_divide_one_resource() {
    let network = network(&[12 * GBPS], &[(1, &[0]), (2, &[0]), (3, &[0])]);
    let greedy = demand(100 * GBPS, 0);
    assert_eq!(rates(&network, &[greedy; 3]), [2 * GBPS, 4 * GBPS, 6 * GBPS]);
    // Who wants less leaves the rest to the others, by their weights.
    assert_eq!(
        rates(&network, &[greedy, greedy, demand(3 * GBPS, 0)]),
        [3 * GBPS, 6 * GBPS, 3 * GBPS]
    );
}

/// Three instances of an NT that serve 100 each, and two tenants whose packets are spread over them in other parts. Computed
/// by hand: all of 300 is half for each.
#[test]
fn a_share_does_not_depend_on_the_instances_that_serve_it() {
    let spread = [vec![(0, 1, 2), (2, 1, 2)], vec![(0, 1, 6), (1, 4, 6), (2, 1, 6)]];
    let network = |groups: &[u32]| {
        let mut builder = NetworkBuilder::new(&[100_000_000; 3]).grouped(groups);
        for parts in &spread {
            let tenant = builder.tenant(Weight::ONE);
            let costs = parts.iter().map(|(k, part, all)| (*k, Cost::from_ratio(*part, *all)));
            builder.flow(tenant, &costs.collect::<Vec<_>>());
        }
        builder.build().expect("valid")
    };
    let greedy = [demand(GBPS, 0); 2];
    let mbps = |groups: &[u32]| {
        let network = network(groups);
        let got = rates(&network, &greedy);
        let expected = oracle::solve::<f64>(&network, Spare::LevelShares, &greedy);
        assert!(got.iter().zip(expected).all(|(a, b)| (*a as f64 - b).abs() < 1_000.0), "{got:?}");
        got.iter().map(|bps| (bps + 500_000) / 1_000_000).collect::<Vec<_>>()
    };
    assert_eq!(mbps(&[0, 0, 0]), [150, 150]);
    // Instance by instance the second one's largest part is larger, so it would have less.
    assert_eq!(mbps(&[]), [160, 120]);
    let unknown = NetworkBuilder::new(&[1, 1]).grouped(&[0, 2]).build().expect_err("two resources");
    assert_eq!(unknown, InvalidNetwork::UnknownGroup { resource: 2, resources: 2 });
}

#[test]
fn without_contention_everybody_has_its_load() {
    let network = network(&[12 * GBPS], &[(1, &[0]), (2, &[0])]);
    let (got, limits, guaranteed) =
        solve(&network, Spare::LevelShares, &[demand(5 * GBPS, GBPS), demand(7 * GBPS, 0)]);
    assert_eq!(got, [5 * GBPS, 7 * GBPS], "exactly full is no contention");
    assert_eq!((limits, guaranteed), (vec![Limit::Load; 2], true));
}

#[test]
fn the_promise_comes_before_the_weights() {
    let network = network(&[10 * GBPS], &[(1, &[0]), (9, &[0])]);
    let demands = [demand(20 * GBPS, 4 * GBPS), demand(20 * GBPS, 0)];
    // By weight alone the first would have 1: it keeps 4, and the spare raises the second only.
    let (got, limits, guaranteed) = solve(&network, Spare::LevelShares, &demands);
    assert_eq!(got, [4 * GBPS, 6 * GBPS]);
    assert_eq!((limits, guaranteed), (vec![Limit::Resource(0); 2], true));
    let (got, ..) = solve(&network, Spare::ByWeight, &demands);
    assert_eq!(got, [4_600_000_000, 5_400_000_000], "4 and the spare of 6 as one to nine");
    // Promised more than it wants: only what it wants.
    let modest = [demand(GBPS, 8 * GBPS), demand(20 * GBPS, 0)];
    assert_eq!(rates(&network, &modest), [GBPS, 9 * GBPS]);
}

#[test]
fn a_burst_of_one_takes_nothing_that_was_promised_to_others() {
    let network = network(&[10 * GBPS, 6 * GBPS], &[(1, &[0, 1]), (1, &[0]), (1, &[0, 1])]);
    let calm = |load| [demand(load, 2 * GBPS), demand(3 * GBPS, 3 * GBPS), demand(GBPS, GBPS)];
    let before = rates(&network, &calm(2 * GBPS));
    let burst = rates(&network, &calm(20 * GBPS));
    assert_eq!(before, [2 * GBPS, 3 * GBPS, GBPS]);
    assert_eq!(burst, [5 * GBPS, 3 * GBPS, GBPS]);
}

#[test]
fn figure_5_shared_nts() {
    // NT1..NT4 of 10 Gbps; user 1 asks 8 of NT1→NT2→NT4, user 2 asks 14 of NT2→NT4 and NT3→NT4:
    // three chains share NT2 and NT4.
    let mut builder = NetworkBuilder::new(&[10 * GBPS; 4]);
    let users = [builder.tenant(Weight::ONE), builder.tenant(Weight::ONE)];
    let nt = |n: usize| (n - 1, Cost::ONE);
    builder.flow(users[0], &[nt(1), nt(2)]);
    builder.flow(users[1], &[nt(3), nt(4)]);
    builder.flow(users[1], &[nt(2), nt(4)]);
    let network = builder.build().expect("valid");
    let demands =
        [demand(8 * GBPS, 8 * GBPS), demand(10 * GBPS, 8 * GBPS), demand(10 * GBPS, 2 * GBPS)];
    assert_eq!(rates(&network, &demands), [8 * GBPS, 8 * GBPS, 2 * GBPS]);
}

#[test]
fn shares_are_equal_where_dominant_resources_differ() {
    // The fluid limit of DRFQ's example: ⟨1,4⟩ and ⟨3,1⟩ on 9 and 18 have equal shares of 2/3.
    let mut builder = NetworkBuilder::new(&[9 * GBPS, 18 * GBPS]);
    for costs in [(1, 4), (3, 1)] {
        let tenant = builder.tenant(Weight::ONE);
        let cost = |n| Cost::from_ratio(n, 1);
        builder.flow(tenant, &[(0, cost(costs.0)), (1, cost(costs.1))]);
    }
    let network = builder.build().expect("valid");
    let got = rates(&network, &[demand(99 * GBPS, 0); 2]);
    assert_eq!(got, [3 * GBPS, 2 * GBPS]);
    let got: Vec<_> = got.into_iter().map(Bandwidth::from_bps).collect();
    for (tenant, dominant) in [(TenantIndex(0), 1), (TenantIndex(1), 0)] {
        let (resource, share) = network.dominant_share(tenant, &got).expect("uses something");
        assert_eq!(resource, dominant);
        assert!((share - 2.0 / 3.0).abs() < 1e-9);
    }
    let whole = |k: usize| u128::from(network.capacities()[k]) * u128::from(Cost::ONE.raw());
    assert_eq!(
        network.usage(&got),
        [whole(0), 14 * u128::from(GBPS) * u128::from(Cost::ONE.raw())]
    );
}

#[test]
fn a_stopped_flow_leaves_its_tenants_growth_to_the_others() {
    // Resource 1 is narrow. The first tenant's flow through it stops at 1; its other flow then
    // takes the whole growth of its tenant, and ends at half of resource 0 together with it.
    let mut builder = NetworkBuilder::new(&[10 * GBPS, GBPS]);
    let (a, b) = (builder.tenant(Weight::ONE), builder.tenant(Weight::ONE));
    builder.flow(a, &[(0, Cost::ONE), (1, Cost::from_raw(1 << 10))]);
    let narrow = builder.flow(a, &[(1, Cost::ONE)]);
    builder.flow(b, &[(0, Cost::ONE)]);
    assert_eq!(narrow, FlowIndex(1));
    let network = builder.build().expect("valid");
    let demands = [demand(50 * GBPS, 0), demand(50 * GBPS, 0), demand(50 * GBPS, 0)];
    let (got, limits, _) = solve(&network, Spare::LevelShares, &demands);
    assert_eq!(limits[2], Limit::Resource(0));
    assert_eq!(limits[1], Limit::Resource(1));
    let expected: Vec<f64> = oracle::solve(&network, Spare::LevelShares, &demands);
    for (got, expected) in got.iter().zip(expected) {
        assert!((*got as f64 - expected).abs() < 2.0, "{got} instead of {expected}");
    }
}

#[test]
fn splitting_one_dag_into_ten_gives_nothing() {
    for spare in [Spare::LevelShares, Spare::ByWeight] {
        let totals = [1_u64, 10].map(|parts| {
            let mut builder = NetworkBuilder::new(&[10 * GBPS, 40 * GBPS]);
            let (splitter, other) = (builder.tenant(Weight::ONE), builder.tenant(Weight::ONE));
            for _ in 0..parts {
                builder.flow(splitter, &[(0, Cost::ONE), (1, Cost::from_ratio(2, 1))]);
            }
            builder.flow(other, &[(0, Cost::ONE)]);
            let network = builder.build().expect("valid");
            let mut demands = vec![demand(30 * GBPS / parts, 2 * GBPS / parts); parts as usize];
            demands.push(demand(30 * GBPS, GBPS));
            let (got, ..) = solve(&network, spare, &demands);
            got[..parts as usize].iter().sum::<u64>()
        });
        // Ten rates are rounded down ten times.
        assert!(totals[0].abs_diff(totals[1]) <= 10, "{totals:?}");
    }
}

#[test]
fn a_promise_that_cannot_be_kept_is_shared_and_said() {
    // Resource 0 lost half its capacity; who does not use it keeps all it was promised.
    let network = network(&[6 * GBPS, 10 * GBPS], &[(1, &[0]), (1, &[0, 1]), (1, &[1])]);
    let demands =
        [demand(8 * GBPS, 5 * GBPS), demand(8 * GBPS, 5 * GBPS), demand(9 * GBPS, 5 * GBPS)];
    let (got, limits, guaranteed) = solve(&network, Spare::LevelShares, &demands);
    assert!(!guaranteed);
    // The shares of flows 0 and 1 are equal at 3 each, and the rest of resource 1 is spare.
    assert_eq!(got, [3 * GBPS, 3 * GBPS, 7 * GBPS]);
    assert_eq!(limits, [Limit::Resource(0), Limit::Resource(0), Limit::Resource(1)]);
}

#[test]
fn absent_resources_serve_nobody_and_unused_ones_limit_nobody() {
    let network =
        network(&[0, 5 * GBPS, 7 * GBPS], &[(1, &[0, 1]), (1, &[1]), (1, &[]), (5, &[1])]);
    let demands =
        [demand(9 * GBPS, GBPS), demand(9 * GBPS, GBPS), demand(u64::MAX, 0), demand(0, 9 * GBPS)];
    let (got, limits, guaranteed) = solve(&network, Spare::LevelShares, &demands);
    assert_eq!(got, [0, 5 * GBPS, u64::MAX, 0]);
    assert_eq!(limits, [Limit::Resource(0), Limit::Resource(1), Limit::Load, Limit::Load]);
    assert!(!guaranteed);
}

#[test]
fn nobody_and_nothing_have_answers() {
    let empty = NetworkBuilder::new(&[]).build().expect("valid");
    assert_eq!(rates(&empty, &[]), Vec::<u64>::new());
    let idle = network(&[GBPS], &[(1, &[0]), (1, &[0])]);
    assert_eq!(rates(&idle, &[Demand::default(); 2]), [0, 0]);
    let alone = network(&[GBPS], &[(7, &[0])]);
    assert_eq!(rates(&alone, &[demand(u64::MAX, u64::MAX)]), [GBPS]);
    let mut flowless = NetworkBuilder::new(&[GBPS]);
    flowless.tenant(Weight::ONE);
    assert_eq!(rates(&flowless.build().expect("valid"), &[]), Vec::<u64>::new());
    assert_eq!(
        Solver::new(alone, Spare::ByWeight).solve(&[]),
        Err(WrongDemands { given: 0, flows: 1 })
    );
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let mut builder = NetworkBuilder::new(&[u64::MAX, 1, u64::MAX]);
    for w in [1, 1_000] {
        let tenant = builder.tenant(weight(w));
        let most = Cost::from_raw(u32::MAX);
        builder.flow(tenant, &[(0, most), (1, Cost::from_raw(1)), (2, most), (2, most)]);
        builder.flow(tenant, &[(0, Cost::from_raw(1))]);
    }
    let network = builder.build().expect("valid");
    for admitted in [0, u64::MAX] {
        let demands = [demand(u64::MAX, admitted); 4];
        for spare in [Spare::LevelShares, Spare::ByWeight] {
            let (got, _, guaranteed) = solve(&network, spare, &demands);
            assert_eq!(guaranteed, admitted == 0);
            let got: Vec<_> = got.into_iter().map(Bandwidth::from_bps).collect();
            for (used, &capacity) in network.usage(&got).iter().zip(network.capacities()) {
                assert!(*used <= u128::from(capacity) * u128::from(Cost::ONE.raw()));
            }
        }
    }
}

#[test]
fn invalid_networks_are_rejected() {
    let mut builder = NetworkBuilder::new(&[1]);
    builder.flow(TenantIndex(0), &[]);
    let error = builder.clone().build().expect_err("no tenant");
    assert_eq!(error, InvalidNetwork::UnknownTenant { flow: 0, tenant: 0, tenants: 0 });
    let tenant = builder.tenant(Weight::ONE);
    builder.flow(tenant, &[(0, Cost::ONE), (1, Cost::ONE)]);
    let error = builder.build().expect_err("no resource 1");
    assert_eq!(error.to_string(), "flow 1 uses resource 1, but the network has 1 resources");
    let error = NetworkBuilder::new(&[1; RESOURCES_MAX + 1]).build().expect_err("too many");
    assert!(error.to_string().starts_with("513 resources exceed the limit of 512"), "{error}");
}

#[test]
fn costs_round_up_and_stay_finite() {
    assert_eq!(Cost::from_ratio(1, 1), Cost::ONE);
    assert_eq!(Cost::from_ratio(1, 3).raw(), (1 << 20) / 3 + 1);
    assert_eq!(Cost::from_ratio(1, u32::MAX).raw(), 1);
    assert_eq!(Cost::from_ratio(u32::MAX, 0).raw(), u32::MAX);
    assert_eq!(Cost::from_ratio(0, 1).raw(), 0);
}

#[test]
fn a_solver_forgets_the_last_epoch() {
    let network = network(&[10 * GBPS], &[(1, &[0]), (1, &[0])]);
    let mut solver = Solver::new(network, Spare::LevelShares);
    assert!(solver.rates().rates.is_empty());
    let heavy = [demand(20 * GBPS, 9 * GBPS), demand(20 * GBPS, 9 * GBPS)];
    let light = [demand(GBPS, GBPS), demand(2 * GBPS, GBPS)];
    let first = solver.solve(&light).expect("two").clone();
    assert!(!solver.solve(&heavy).expect("two").guaranteed);
    assert_eq!(*solver.solve(&light).expect("two"), first);
    assert_eq!((solver.rates(), solver.network().flow_count()), (&first, 2));
    assert_eq!(solver.network().tenant_count(), 2);
    assert_eq!(solver.network().weight(TenantIndex(1)), Weight::ONE);
}
