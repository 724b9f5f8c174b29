//! A tenant that bursts to ten times its request, beside one that sends what it was promised, on one
//! NT that they share: the other's throughput and latency stay. How much of an NT may be filled with
//! what is beyond promises is a policy; here a fifth stays free, as where latency counts.

use std::time::Duration;

use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_controller::{Fairness, Settings};
use snic_domain::{Bandwidth, DagSpec, NtTypeId};
use snic_repro::{Lab, Parameters, Setup, nt};

const STEP: Duration = Duration::from_micros(100);

fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

/// What the quiet tenant gets while the other sends `burst` Gbit/s: Gbit/s, and the 99th percentile
/// of its latency in nanoseconds.
fn beside(burst: u64) -> (f64, f64) {
    let parameters = Parameters::load().expect("our own files");
    let mut card = parameters.card.clone();
    card.regions.truncate(1);
    let nts = vec![nt("shared", 20, gbps(40)).expect("an NT")];
    let setup = Setup { card, options: Options::default(), nts, chains: vec![&["shared"]] };
    let mut lab = Lab::new(&setup).expect("a bench");
    let chain = |gb| DagSpec::chain(&[NtTypeId::new("shared").expect("a label")], gbps(gb));
    let fairness = Fairness { headroom_percent: 20, ..Fairness::default() };
    lab.policies(Settings { fairness, ..Settings::default() }).expect("policies");
    for tenant in ["quiet", "loud"] {
        lab.tenant(tenant, 1).expect("a tenant");
    }
    let quiet = lab.dag("quiet", "web", chain(34)).expect("it fits");
    let loud = lab.dag("loud", "burst", chain(5)).expect("it fits");
    let send = |lab: &mut Lab, uid, rate| {
        lab.send(TrafficSource::of_dag(uid, rate, Sizes::Fixed(1_500)).poisson()).expect("a source")
    };
    send(&mut lab, quiet.uid, gbps(30));
    let before = send(&mut lab, loud.uid, gbps(5));
    lab.live(Duration::from_millis(60), STEP).expect("time passes");
    lab.card.detach(before);
    send(&mut lab, loud.uid, gbps(burst));
    lab.card.take_measurements();
    lab.live(Duration::from_millis(100), STEP).expect("time passes");
    let measured = lab.card.take_measurements();
    let dag = measured.dag(quiet.uid.row()).expect("its packets went through");
    (dag.served.gbps_f64(), dag.latency_p99_nanos())
}

#[test]
fn a_burst_to_ten_times_the_request_disturbs_nobody() {
    let (calm, calm_p99) = beside(5);
    let (served, p99) = beside(50);
    println!("beside 5 Gbit/s: {calm:.2} Gbit/s, p99 {calm_p99:.0} ns");
    println!("beside 50 Gbit/s: {served:.2} Gbit/s, p99 {p99:.0} ns");
    assert!(served >= calm * 0.99, "{served} Gbit/s instead of {calm}");
    assert!(p99 <= calm_p99 * 1.1, "{p99} ns instead of {calm_p99} ns");
}
