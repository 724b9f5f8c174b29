//! The planner compared with the other ways to fill a card.

use snic_domain::{Dag, DagName, DagSpec, Edge, Node, NodeId, NtTypeId};
use snic_workloads::comparison::{PlacementScheme, Scene, per_nt_latency};
use snic_workloads::{Shape, generate};

fn workload(count: usize) -> Vec<(DagName, Dag)> {
    let items = generate(1, count, &Shape::default());
    items.into_iter().map(|item| (item.name, Dag::new(item.spec).expect("valid"))).collect()
}

/// The DAGs of SuperNIC's Fig. 10, DAG-A at the 15 Gbit/s at which it saturates beside DAG-D
/// (Fig. 14): at least 2.81 times the throughput for each unit of area.
#[test]
fn sharing_passes_the_papers_throughput_for_area() {
    let scene = Scene::new().expect("it ships");
    let mut dags = Scene::samples().expect("they ship");
    dags.truncate(4);
    let bandwidth = snic_domain::Bandwidth::from_gbps(15);
    let a = DagSpec { bandwidth, ..dags[1].1.spec().clone() };
    dags[1].1 = Dag::new(a).expect("valid");
    let [full, alone, per_nt] =
        [PlacementScheme::Full, PlacementScheme::Static, PlacementScheme::PerNt]
            .map(|policy| scene.fill(policy, &dags));
    assert_eq!((full.admitted, alone.admitted, per_nt.admitted), (4, 4, 4));
    assert_eq!((full.regions, alone.regions, per_nt.regions), (1, 4, 6));
    for other in [&alone, &per_nt] {
        assert!(full.kbps_per_lut() * 100 >= other.kbps_per_lut() * 281, "{full:?}, {other:?}");
    }
}

/// Each NT with a separate port costs a pass for each; NTs of DAG-C that read headers side by
/// side behind the first: more than 40 % less.
#[test]
fn chains_pass_the_papers_latency() {
    let scene = Scene::new().expect("it ships");
    let nts = ["nat", "firewall", "load-balancer", "kv-cache", "go-back-n"];
    let id = |i: usize| NodeId::new(&format!("n{i}")).expect("a label");
    let node = |(i, nt)| Node::new(id(i), NtTypeId::new(nt).expect("a label"));
    let mut spec = DagSpec {
        nodes: nts.into_iter().enumerate().map(node).collect(),
        edges: (1..5).map(|i| Edge { from: id(0), to: id(i) }).collect(),
        bandwidth: snic_domain::Bandwidth::from_gbps(10),
        form: snic_domain::FormPreference::Auto,
        packet_sizes: snic_domain::PacketSizes::default(),
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    };
    let (name, _) = workload(1).remove(0);
    let dag = Dag::new(spec.clone()).expect("valid");
    let per_nt = per_nt_latency(&dag, &scene.profile, &scene.nts);
    let made = scene.fill(PlacementScheme::Full, &[(name.clone(), dag)]);
    assert_eq!((made.latency_cycles, per_nt.get()), (101, 191));
    assert!(made.latency_cycles * 100 <= per_nt.get() * 60);
    // In sequence: a third less.
    spec.form = snic_domain::FormPreference::Sequential;
    let made = scene.fill(PlacementScheme::Full, &[(name, Dag::new(spec).expect("valid"))]);
    assert_eq!(made.latency_cycles, 127);
}

#[test]
fn the_full_planner_admits_most() {
    let scene = Scene::new().expect("it ships");
    let dags = workload(100);
    let full = scene.fill(PlacementScheme::Full, &dags);
    for policy in [
        PlacementScheme::PerNt,
        PlacementScheme::Static,
        PlacementScheme::NoSharing,
        PlacementScheme::NoConcatenation,
    ] {
        let other = scene.fill(policy, &dags);
        assert!(full.admitted >= other.admitted, "{policy:?}: {other:?}, full: {full:?}");
        assert!(full.regions <= other.regions || full.admitted > other.admitted, "{policy:?}");
    }
    let per_nt = scene.fill(PlacementScheme::PerNt, &dags);
    assert!(full.passes_milli < per_nt.passes_milli);
}
