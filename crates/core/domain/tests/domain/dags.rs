//! `Dag::new` against the definition: a graph is valid when every rule holds, each rule being told
//! here from the matrix of edges and not by the code that is tested.

use proptest::prelude::*;
use snic_domain::limits::{DAG_BANDWIDTH_MAX, DAG_BANDWIDTH_MIN, DAG_NODES_MAX, FORK_BRANCHES_MAX};
use snic_domain::{
    Bandwidth, Dag, DagPatch, DagSpec, Edge, FormPreference, InvalidDag, LatencyBound, Node,
    NodeId, NtTypeId, PacketSizes,
};

fn node(i: usize) -> NodeId {
    NodeId::new(&format!("n{i}")).expect("a test id")
}

fn nt(text: &str) -> NtTypeId {
    NtTypeId::new(text).expect("a test id")
}

fn spec(nodes: usize, edges: &[(usize, usize)]) -> DagSpec {
    DagSpec {
        nodes: (0..nodes).map(|i| Node::new(node(i), nt("nat"))).collect(),
        edges: edges.iter().map(|(f, t)| Edge { from: node(*f), to: node(*t) }).collect(),
        bandwidth: Bandwidth::from_gbps(1),
        form: FormPreference::Auto,
        packet_sizes: PacketSizes::default(),
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    }
}

/// Nodes that can be reached from each node, by one edge or more (Warshall).
fn reachable(nodes: usize, edges: &[(usize, usize)]) -> Vec<Vec<bool>> {
    let mut reach = vec![vec![false; nodes]; nodes];
    for (from, to) in edges {
        reach[*from][*to] = true;
    }
    for via in 0..nodes {
        for from in 0..nodes {
            for to in 0..nodes {
                reach[from][to] |= reach[from][via] && reach[via][to];
            }
        }
    }
    reach
}

fn is_valid(nodes: usize, edges: &[(usize, usize)]) -> bool {
    let reach = reachable(nodes, edges);
    let distinct: std::collections::BTreeSet<_> = edges.iter().collect();
    let entries = (0..nodes).filter(|n| edges.iter().all(|(_, to)| to != n)).count();
    let widest = (0..nodes).map(|n| edges.iter().filter(|(from, _)| *from == n).count()).max();
    distinct.len() == edges.len()
        && (0..nodes).all(|n| !reach[n][n])
        && entries == 1
        && widest.is_some_and(|widest| widest <= FORK_BRANCHES_MAX)
}

proptest! {
    #[test]
    fn a_graph_is_accepted_exactly_when_every_rule_holds(
        (nodes, edges) in (1usize..9).prop_flat_map(|n| {
            (Just(n), prop::collection::vec((0..n, 0..n), 0..14))
        })
    ) {
        let result = Dag::new(spec(nodes, &edges));
        prop_assert_eq!(result.is_ok(), is_valid(nodes, &edges), "{:?}", result);
    }

    /// Edges that follow the numbers are what random graphs seldom have.
    #[test]
    fn a_forward_graph_is_accepted_exactly_when_every_rule_holds(
        (nodes, edges) in (1usize..9).prop_flat_map(|n| {
            (Just(n), prop::collection::btree_set((0..n, 0..n), 0..14))
        })
    ) {
        let mut forward: Vec<(usize, usize)> = edges.into_iter().filter(|(f, t)| f < t).collect();
        for to in 1..nodes {
            if forward.iter().all(|edge| edge.1 != to) {
                forward.push((to - 1, to));
            }
        }
        let result = Dag::new(spec(nodes, &forward));
        prop_assert_eq!(result.is_ok(), is_valid(nodes, &forward), "{:?}", result);
        if let Ok(dag) = result {
            let reach = reachable(nodes, &forward);
            for (place, later) in dag.topological_order().iter().enumerate() {
                for earlier in &dag.topological_order()[..place] {
                    prop_assert!(!reach[*later][*earlier], "{later} comes after {earlier}");
                }
            }
        }
    }

    /// The node that a cycle error names is on a cycle.
    #[test]
    fn a_cycle_is_named_by_a_node_on_it(
        (nodes, edges) in (2usize..8).prop_flat_map(|n| {
            (Just(n), prop::collection::btree_set((0..n, 0..n), 1..12))
        })
    ) {
        let edges: Vec<(usize, usize)> = edges.into_iter().filter(|(f, t)| f != t).collect();
        if let Err(InvalidDag::Cycle { node: named }) = Dag::new(spec(nodes, &edges)) {
            let reach = reachable(nodes, &edges);
            let at = (0..nodes).find(|i| node(*i) == named).expect("a node of the DAG");
            prop_assert!(reach[at][at], "{named} is not on a cycle of {edges:?}");
        }
    }

    #[test]
    fn a_bandwidth_is_accepted_exactly_in_its_range_and_grain(bps in prop_oneof![
        0..2 * DAG_BANDWIDTH_MIN.get(),
        DAG_BANDWIDTH_MAX.get() - 5_000..DAG_BANDWIDTH_MAX.get() + 5_000,
        (0..2 * DAG_BANDWIDTH_MAX.get() / 1_000).prop_map(|kbps| kbps * 1_000),
    ]) {
        let mut asked = spec(1, &[]);
        asked.bandwidth = Bandwidth::from_bps(bps);
        let in_range = (DAG_BANDWIDTH_MIN.get()..=DAG_BANDWIDTH_MAX.get()).contains(&bps);
        prop_assert_eq!(Dag::new(asked).is_ok(), in_range && bps.is_multiple_of(1_000));
    }

    #[test]
    fn a_patch_of_nothing_changes_nothing_and_a_full_one_everything(
        nodes in 1usize..5, gbps in 1u64..100
    ) {
        let (before, mut after) = (spec(nodes, &[]), spec(nodes + 1, &[(0, 1)]));
        after.bandwidth = Bandwidth::from_gbps(gbps);
        after.form = FormPreference::Parallel;
        prop_assert_eq!(DagPatch::default().apply(&before), before.clone());
        prop_assert_eq!(DagPatch::from(after.clone()).apply(&before), after.clone());
        prop_assert_eq!(DagPatch::default().apply(&after), after.clone(), "edges stay, too");
        let only = DagPatch { bandwidth: Some(after.bandwidth), ..DagPatch::default() };
        prop_assert_eq!(only.apply(&before), DagSpec { bandwidth: after.bandwidth, ..before });
    }
}

#[test]
fn the_limits_themselves_are_allowed_and_one_more_is_not() {
    let chain = |nodes: usize| {
        let edges: Vec<(usize, usize)> = (1..nodes).map(|to| (to - 1, to)).collect();
        Dag::new(spec(nodes, &edges))
    };
    assert!(chain(DAG_NODES_MAX).is_ok());
    let nodes = DAG_NODES_MAX + 1;
    assert_eq!(chain(nodes), Err(InvalidDag::TooManyNodes { nodes }));
    let fork = |branches: usize| {
        let edges: Vec<(usize, usize)> = (1..=branches).map(|to| (0, to)).collect();
        Dag::new(spec(branches + 1, &edges))
    };
    assert!(fork(FORK_BRANCHES_MAX).is_ok());
    let branches = FORK_BRANCHES_MAX + 1;
    assert_eq!(fork(branches), Err(InvalidDag::TooManyBranches { node: node(0), branches }));
}

/// Each error says what is wrong, the value, and what to do.
#[test]
fn errors_say_what_to_do() {
    let text = |spec: DagSpec| Dag::new(spec).expect_err("invalid").to_string();
    let mut twice = spec(2, &[(0, 1)]);
    twice.nodes[1].id = node(0);
    assert_eq!(text(twice), "duplicate node id n0: node ids are unique within a DAG");
    let unknown = "edge n0 -> n9 names node n9, which is not in the DAG; add the node or remove \
                   the edge";
    assert_eq!(text(spec(1, &[(0, 9)])), unknown);
    let duplicate = "edge n0 -> n1 is a self-loop or a duplicate; remove it";
    assert_eq!(text(spec(2, &[(0, 1), (0, 1)])), duplicate);
    let cycle = text(spec(3, &[(0, 1), (1, 2), (2, 1)]));
    assert!(cycle.starts_with("the DAG has a cycle; remove an edge of the cycle"), "{cycle}");
}

#[test]
fn a_latency_bound_is_a_second_at_most() {
    let bounded = |nanos| DagSpec { latency_bound: LatencyBound::new(nanos), ..spec(1, &[]) };
    for nanos in [0, 1, 1_000_000_000] {
        assert!(Dag::new(bounded(nanos)).is_ok(), "{nanos}");
    }
    for nanos in [1_000_000_001, u64::MAX] {
        let refused = Dag::new(bounded(nanos)).expect_err("out of range");
        assert_eq!(refused.field(), "latency_bound_nanos");
        assert!(refused.to_string().contains(&format!("{nanos} ns is not allowed")), "{refused}");
    }
    let patch = DagPatch { latency_bound: Some(LatencyBound::ZERO), ..DagPatch::default() };
    assert!(patch.apply(&bounded(7)).latency_bound.is_zero(), "zero takes a bound away");
    assert_eq!(DagPatch::default().apply(&bounded(7)).latency_bound, LatencyBound::new(7));
    let text = serde_json::to_string(&bounded(0)).expect("JSON");
    assert!(!text.contains("latency_bound"), "records without one are as before: {text}");
}
