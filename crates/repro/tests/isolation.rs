//! A tenant that bursts to ten times its request, beside one that sends what it was promised, on one
//! NT that they share: the other's throughput and latency stay, under the policies that ship
//! (`Settings::default()`, which a test of the daemon holds to be those of the files in `policies/`).
//! What the bursting tenant gets beyond its promise is what nobody else uses, and its packets beyond
//! the promise let the other's pass.

use std::time::Duration;

use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_controller::Settings;
use snic_domain::{Bandwidth, DagSpec, NtTypeId};
use snic_repro::{Lab, Parameters, Setup, nt};

const STEP: Duration = Duration::from_micros(100);

fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

/// Gbit/s of both tenants, and the 99th percentile of the quiet one's latency in nanoseconds.
struct Seen {
    quiet: f64,
    loud: f64,
    p99: f64,
}

/// What they get while the loud one sends `burst` Gbit/s.
fn beside(burst: u64) -> Seen {
    let parameters = Parameters::load().expect("our own files");
    let mut card = parameters.card.clone();
    card.regions.truncate(1);
    let nts = vec![nt("shared", 20, gbps(40)).expect("an NT")];
    let setup = Setup { card, options: Options::default(), nts, chains: vec![&["shared"]] };
    let mut lab = Lab::new(&setup).expect("a bench");
    let chain = |gb| DagSpec::chain(&[NtTypeId::new("shared").expect("a label")], gbps(gb));
    lab.policies(Settings::default()).expect("policies");
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
    let dag = |row| measured.dag(row).expect("its packets went through");
    Seen {
        quiet: dag(quiet.uid.row()).served.gbps_f64(),
        loud: dag(loud.uid.row()).served.gbps_f64(),
        p99: dag(quiet.uid.row()).latency_p99_nanos(),
    }
}

#[test]
fn a_burst_to_ten_times_the_request_disturbs_nobody() {
    let (calm, burst) = (beside(5), beside(50));
    for (what, seen) in [("5", &calm), ("50", &burst)] {
        let Seen { quiet, loud, p99 } = seen;
        println!("beside {what} Gbit/s: {quiet:.2} Gbit/s, p99 {p99:.0} ns; served {loud:.2}");
    }
    assert!(burst.quiet >= calm.quiet * 0.99, "{} Gbit/s, not {}", burst.quiet, calm.quiet);
    assert!(burst.p99 <= calm.p99 * 1.1, "{} ns instead of {} ns", burst.p99, calm.p99);
    assert!(burst.loud > 7.0, "what nobody else uses is not idle: {} Gbit/s", burst.loud);
}
