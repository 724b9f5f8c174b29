//! FlexPipe's steering as an option of the control plane: a policy goes through the controller and
//! the driver to the card, in the middle of traffic, and queues get shorter.

use std::time::Duration;

use snic_card_sim::{PlaneOptions, Sizes, TrafficSource};
use snic_controller::{Autoscaling, ControllerSettings, Scheduling, Steering};
use snic_domain::Bandwidth;
use snic_repro::{Parameters, Setup, Testbed, nt};

const STEP: Duration = Duration::from_micros(100);

/// The mean latency in nanoseconds over 20 ms, after a policy had three epochs to take effect.
fn latency(testbed: &mut Testbed, row: u16, steering: Steering) -> f64 {
    let autoscaling = Autoscaling { enabled: false, ..Autoscaling::default() };
    let scheduling = Scheduling { steering, ..Scheduling::default() };
    testbed
        .policies(ControllerSettings { autoscaling, scheduling, ..ControllerSettings::default() })
        .expect("policies");
    testbed.live(Duration::from_millis(60), STEP).expect("time passes");
    testbed.card.take_measurements();
    testbed.live(Duration::from_millis(20), STEP).expect("time passes");
    let measured = testbed.card.take_measurements();
    assert_eq!(measured.errors(), 0, "{measured:?}");
    measured.dag(row).expect("its packets went through").latency.mean
}

#[test]
#[ignore = "ci: ten seconds"]
fn packets_that_go_where_least_is_to_be_done_wait_less_and_back_again() {
    let parameters = Parameters::load().expect("our own files");
    let gbps = Bandwidth::from_gbps;
    let mut card = parameters.card.clone();
    card.regions.truncate(2);
    let setup = Setup {
        card,
        options: PlaneOptions { credits: false, ..PlaneOptions::default() },
        nts: vec![nt("aes", 20, gbps(10)).expect("an NT")],
        chains: vec![&["aes"]],
    };
    let mut testbed = Testbed::new(&setup).expect("a bench");
    let dag = testbed.chain("web", &["aes"], gbps(14)).expect("two regions are free");
    // In one of the two regions, of which the first DAG gets equal parts in turns.
    let beside = testbed.chain("beside", &["aes"], gbps(3)).expect("there is room");
    let instances = beside.mapping.iter().flat_map(|of| of.chains()).map(|of| of.instances.len());
    assert_eq!(instances.collect::<Vec<_>>(), [1]);
    for (dag, gbit) in [(&dag, 10), (&beside, 3)] {
        let source = TrafficSource::of_dag(dag.uid, gbps(gbit), Sizes::Fixed(594)).poisson();
        testbed.send(source).expect("a source");
    }
    let row = dag.uid.row();
    let turns = latency(&mut testbed, row, Steering::RoundRobin);
    let by_load = latency(&mut testbed, row, Steering::LeastLoaded);
    let again = latency(&mut testbed, row, Steering::RoundRobin);
    assert!(by_load < turns * 0.8, "by load {by_load}, in turns {turns}");
    assert!((again / turns - 1.0).abs() < 0.1, "in turns {turns}, again {again}");
}
