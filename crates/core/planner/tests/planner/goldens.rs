//! The cases of the paper: Figs. 4, 5, 10, 11, 14.

use crate::support::{World, chain, gbps, graph, graph_with, show, why};
use snic_domain::{Bandwidth, Cycles, Dag, EmbeddingKind, Form, FormPreference, Resource};

const D: &str = "nat firewall load-balancer kv-cache go-back-n aes";

/// DAG-D runs at `background` Gbps; AES serves 30 Gbps, all others 100 (Fig. 14).
fn with_d(background: u64) -> World {
    let mut world = World::with(4, D, &[("web-d", D)]);
    for id in D.split_whitespace() {
        world.nt(id, |nt| nt.bandwidth_max = gbps(if id == "aes" { 30 } else { 100 }));
    }
    let plan = world.add("t0/d", &chain(D, gbps(background))).expect("an empty card");
    assert_eq!(show(&plan.mapping), format!("0:0,1,2,3,4,5*{background}"));
    assert_eq!(plan.explanation.chains[0].embeddings[0].kind, EmbeddingKind::FreeRegion);
    world
}

#[test]
fn a_b_and_c_share_ds_chain_without_reconfiguration() {
    let mut world = with_d(15);
    for (dag, nts, slots) in [
        ("t1/a", "firewall aes", "1,5"),
        ("t2/b", "nat load-balancer", "0,2"),
        ("t3/c", "nat firewall load-balancer kv-cache go-back-n", "0,1,2,3,4"),
    ] {
        let plan = world.add(dag, &chain(nts, gbps(10))).expect("shared");
        assert_eq!(show(&plan.mapping), format!("0:{slots}*10"));
        assert!(plan.loads.is_empty());
        let embedding = &plan.explanation.chains[0].embeddings[0];
        assert_eq!((embedding.kind, embedding.reconfigurations), (EmbeddingKind::Shared, 0));
        assert_eq!(usize::from(embedding.skipped), 6 - nts.split_whitespace().count());
        let rejected = &plan.explanation.chains[0].rejected;
        let why: Vec<_> = rejected.iter().map(|r| (r.kind, why(r))).collect();
        let expected = [
            (EmbeddingKind::FreeRegion, Err([1, 0, 1])),
            (EmbeddingKind::VictimRegion, Ok((Resource::Regions, 1, 0))),
            (EmbeddingKind::Split, Err([0, 0, 2])),
        ];
        assert_eq!(why, expected, "a new region against none, no victim, a pass more");
    }
}

/// Fig. 14: A saturates at 15 beside D's 15, since AES serves 30; C reaches far more.
#[test]
fn chain_a_gets_the_bandwidth_that_d_leaves_of_aes() {
    let a = |n| chain("firewall aes", gbps(n));
    let shared = with_d(15).add("t1/a", &a(15)).expect("shared");
    assert_eq!(show(&shared.mapping), "0:1,5*15");
    assert_eq!(shared.explanation.chains[0].embeddings[0].headroom, Bandwidth::ZERO);

    let more = with_d(15).add("t1/a", &a(16)).expect("a second AES");
    assert_eq!(more.loads.len(), 1);
    let rejected = &more.explanation.chains[0].rejected;
    assert_eq!(rejected[0].kind, EmbeddingKind::Shared);
    let short = (Resource::NtBandwidth, 16_000_000_000, 15_000_000_000);
    assert_eq!(why(&rejected[0]), Ok(short));

    let c = chain("nat firewall load-balancer kv-cache go-back-n", gbps(60));
    assert!(with_d(15).add("t1/c", &c).expect("shared").loads.is_empty());
}

#[test]
fn a_without_regions_for_a_second_aes_is_refused_with_numbers() {
    let mut world = with_d(15);
    for region in 1..4 {
        world.load(region, "web-d");
        let filler = chain(D, gbps(30));
        world.add(&format!("t0/filler{region}"), &filler).expect("a chain of its own");
    }
    let refusal = world.add("t1/a", &chain("firewall aes", gbps(16))).expect_err("no AES is left");
    let resources: Vec<Resource> = refusal.shortages.iter().map(|s| s.resource).collect();
    assert_eq!(resources, [Resource::NtBandwidth, Resource::Regions]);
    assert_eq!(refusal.shortages[0].required, 16_000_000_000);
    assert_eq!(refusal.shortages[0].available, 15_000_000_000);
    assert_eq!((refusal.shortages[1].required, refusal.shortages[1].available), (1, 0));
    assert!(!refusal.to_string().contains("t0"), "{refusal}");
}

fn diamond(form: FormPreference) -> Dag {
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3)];
    graph_with(&["nt1", "nt2", "nt3", "nt4"], &edges, gbps(5), form)
}

/// Fig. 4's S1: the flattened DAG-a serves DAG-b (NT2 -> NT4) too, skipping NT1 and NT3.
#[test]
fn fig_4_b_skips_through_the_flattened_a() {
    let mut world = World::with(3, "nt1 nt2 nt3 nt4", &[("flat", "nt1 nt2 nt3 nt4")]);
    let a = world.add("t0/a", &diamond(FormPreference::Sequential)).expect("one region");
    assert_eq!((show(&a.mapping).as_str(), a.mapping.form), ("0:0,1,2,3*5", Form::Sequential));
    let b = world.add("t1/b", &chain("nt2 nt4", gbps(5))).expect("shared");
    assert_eq!(show(&b.mapping), "0:1,3*5");
}

/// Fig. 11: with 50 cycles an NT side by side is faster, with 10 it is not.
#[test]
fn the_form_follows_the_latency_of_the_nts() {
    for (d, form, sequential, parallel) in
        [(50, Form::Parallel, 249, 231), (10, Form::Sequential, 89, 111)]
    {
        let parts = [("flat", "nt1 nt2 nt3 nt4"), ("s2", "nt1 nt2 nt4"), ("s3", "nt3")];
        let mut world = World::with(3, "nt1 nt2 nt3 nt4", &parts);
        for id in ["nt1", "nt2", "nt3", "nt4"] {
            world.nt(id, |nt| nt.latency = Cycles::new(d));
        }
        let plan = world.add("t0/a", &diamond(FormPreference::Auto)).expect("a place");
        let choice = &plan.explanation.form;
        assert_eq!((plan.mapping.form, choice.chosen), (form, form));
        assert_eq!(choice.sequential, Cycles::new(sequential));
        assert_eq!(choice.parallel, Some(Cycles::new(parallel)));
        let bands = [[0.9 * 249.0, 1.1 * 249.0], [0.9 * 89.0, 1.1 * 89.0]];
        let band = bands[usize::from(d == 10)];
        assert!((band[0]..=band[1]).contains(&(sequential as f64)));
    }
}

#[test]
fn a_preference_overrides_the_rule() {
    let parts = [("flat", "nt1 nt2 nt3 nt4")];
    let mut world = World::with(3, "nt1 nt2 nt3 nt4", &parts);
    let plan = world.add("t0/a", &diamond(FormPreference::Parallel)).expect("one region does");
    assert_eq!(plan.mapping.form, Form::Parallel);
    assert_eq!(show(&plan.mapping), "0:0*5 | 0:1*5 & 0:2*5 | 0:3*5");
    assert_eq!(plan.loads.len(), 1, "one load serves all branches");
}

/// Fig. 5: user 1 runs NT1 -> NT2 and NT3 -> NT4 at 8 Gbps, user 2 NT2 -> NT4 at 14; every NT
/// serves 10. Two of each NT that user 2 wants are there: 20 less user 1's 8.
fn fig_5(spare_regions: usize) -> World {
    let nts = "nt1 nt2 nt3 nt4";
    let chains = [("c12", "nt1 nt2"), ("c34", "nt3 nt4"), ("c24", "nt2 nt4")];
    let mut world = World::with(3 + spare_regions, nts, &chains);
    world.load(0, "c12");
    world.load(1, "c34");
    world.load(2, "c24");
    for (dag, nts, place) in [("u1/first", "nt1 nt2", 0), ("u1/second", "nt3 nt4", 1)] {
        let plan = world.add(dag, &chain(nts, gbps(8))).expect("loaded");
        assert_eq!(show(&plan.mapping), format!("{place}:0,1*8"));
    }
    world
}

#[test]
fn fig_5_user_2_takes_one_chain_then_several_instances() {
    let plan = fig_5(0).add("u2/a", &chain("nt2 nt4", gbps(10))).expect("NT2 -> NT4 is loaded");
    assert_eq!(show(&plan.mapping), "2:0,1*10");

    let plan = fig_5(0).add("u2/a", &chain("nt2 nt4", gbps(12))).expect("what user 1 leaves");
    assert_eq!(show(&plan.mapping), "0:1*2 + 2:0*10 | 1:1*2 + 2:1*10");
    assert!(plan.loads.is_empty());

    let plan = fig_5(1).add("u2/a", &chain("nt2 nt4", gbps(14))).expect("one region more");
    assert_eq!(show(&plan.mapping), "2:0,1*7 + 3:0,1*7");
    assert_eq!(plan.loads.len(), 1);

    let refusal = fig_5(0).add("u2/a", &chain("nt2 nt4", gbps(14))).expect_err("12 are left");
    let short = &refusal.shortages[0];
    assert_eq!(short.resource, Resource::NtBandwidth);
    assert_eq!((short.required, short.available), (14_000_000_000, 12_000_000_000));
}

#[test]
fn a_flattened_dag_follows_the_order_that_is_loaded() {
    let mut world = World::with(1, "nt1 nt2 nt3 nt4", &[("other", "nt1 nt3 nt2 nt4")]);
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3)];
    let dag = graph(&["nt1", "nt2", "nt3", "nt4"], &edges, gbps(5));
    let plan = world.add("t0/a", &dag).expect("n2 and n3 may stand in any order");
    assert_eq!(show(&plan.mapping), "0:0,1,2,3*5");
    let order: Vec<&str> =
        plan.mapping.stages[0].branches[0].nodes.iter().map(|n| n.as_str()).collect();
    assert_eq!(order, ["n0", "n2", "n1", "n3"]);
}
