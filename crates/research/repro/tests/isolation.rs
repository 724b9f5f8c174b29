//! A tenant that bursts to ten times its request, beside two that send no more than they were promised:
//! their throughput stays, and their 99th percentile latency stays within a tenth, or within what no
//! scheduler can help, under the policies that ship (`ControllerSettings::default()`, which a test of the daemon
//! holds to be those of the files in `policies/`), each against the same run without the burst. What the
//! bursting tenant gets beyond its promise is what nobody else uses, and its packets beyond the promise
//! let the others' pass: before regions, and by not filling them (`snic_card_sim`, `plane::pace`).
//!
//! No scheduler can help this: a packet that an NT has begun is not overtaken. So at each NT that the
//! bursting tenant shares with another, that one may wait for the time the NT takes for one packet of
//! the burst: `bits / bandwidth of the NT`. That counts where latencies are so small that a tenth of
//! them is less.
//!
//! On NTs that all share, on those that some skip, or each in a separate region; packets of several
//! sizes; much load and little; bursts that stay and bursts that come and go.

use std::time::Duration;

use snic_card_sim::{PlaneOptions, Sizes, TrafficSource};
use snic_controller::{ControllerSettings, DagView};
use snic_domain::{Bandwidth, DagSpec, NtTypeId};
use snic_repro::{Parameters, Setup, Testbed, nt};

const STEP: Duration = Duration::from_micros(100);
/// Time for which all send what they were promised before it counts, and for which it counts.
const WARM_UP: Duration = Duration::from_millis(60);
const COUNTS: Duration = Duration::from_millis(80);

fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

/// One tenant: what it was promised and what it sends, in Gbit/s, and how large its packets are.
#[derive(Debug, Clone, Copy)]
struct Tenant {
    promised: u64,
    sends: u64,
    bytes: u32,
}

const fn tenant(promised: u64, sends: u64, bytes: u32) -> Tenant {
    Tenant { promised, sends, bytes }
}

/// Bandwidth of an NT, in Gbit/s.
const NT_GBPS: u64 = 40;

/// Names of NTs, one after the other.
type Chain = &'static [&'static str];

/// Tenants on the card, and the bursts of the loud one.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    name: &'static str,
    /// Contents of the regions, one each.
    regions: &'static [Chain],
    /// NTs that the DAG of each tenant uses.
    nts: [Chain; 3],
    quiet: [Tenant; 2],
    loud: Tenant,
    /// For how long a burst lasts, and the calm between two; `None`: it stays.
    rhythm: Option<Duration>,
}

/// Gbit/s by tenant, the loud one last, and the 99th percentiles of the quiet ones' latencies in
/// nanoseconds.
#[derive(Debug)]
struct Seen {
    served: [f64; 3],
    p99: [f64; 2],
}

impl Scenario {
    /// Their service while the loud one sends this many times its promise.
    fn beside(&self, times: u64) -> Seen {
        let mut testbed = self.testbed();
        let tenants = [self.quiet[0], self.quiet[1], self.loud];
        let names = ["quiet", "still", "loud"];
        let dags: Vec<DagView> = (0..3)
            .map(|i| {
                testbed.tenant(names[i], 1).expect("a tenant");
                let nts = self.nts[i].iter().map(|nt| NtTypeId::new(nt).expect("a label"));
                let nts: Vec<_> = nts.collect();
                let spec = DagSpec::chain(&nts, gbps(tenants[i].promised));
                testbed.dag(names[i], "web", spec).expect("it fits")
            })
            .collect();
        let send = |testbed: &mut Testbed, i: usize, rate| {
            let source =
                TrafficSource::of_dag(dags[i].uid, rate, Sizes::Fixed(tenants[i].bytes)).poisson();
            testbed.send(source).expect("a source")
        };
        for (i, quiet) in self.quiet.iter().enumerate() {
            send(&mut testbed, i, gbps(quiet.sends));
        }
        let calm = send(&mut testbed, 2, gbps(self.loud.sends));
        testbed.live(WARM_UP, STEP).expect("time passes");
        testbed.card.detach(calm);
        testbed.card.take_measurements();
        let burst = gbps(self.loud.promised * times).max(gbps(self.loud.sends));
        let each = self.rhythm.unwrap_or(COUNTS);
        let mut left = COUNTS;
        for turn in 0_u32.. {
            let rate = if turn.is_multiple_of(2) { burst } else { gbps(self.loud.sends) };
            let source = send(&mut testbed, 2, rate);
            testbed.live(each.min(left), STEP).expect("time passes");
            testbed.card.detach(source);
            left = left.saturating_sub(each);
            if left.is_zero() {
                break;
            }
        }
        let measured = testbed.card.take_measurements();
        let dag = |i: usize| measured.dag(dags[i].uid.row()).expect("its packets went through");
        Seen {
            served: [0, 1, 2].map(|i| dag(i).served.gbps_f64()),
            p99: [0, 1].map(|i| dag(i).latency_p99_nanos()),
        }
    }

    /// A card with its regions loaded, and the policies that ship.
    fn testbed(&self) -> Testbed {
        let parameters = Parameters::load().expect("our own files");
        let mut names = self.regions.concat();
        names.sort_unstable();
        names.dedup();
        let mut card = parameters.card.clone();
        card.regions.truncate(self.regions.len());
        let nts = names.iter().map(|name| nt(name, 20, gbps(NT_GBPS)).expect("an NT")).collect();
        let chains = self.regions.to_vec();
        let setup = Setup { card, options: PlaneOptions::default(), nts, chains };
        let mut testbed = Testbed::new(&setup).expect("a bench");
        testbed.policies(ControllerSettings::default()).expect("policies");
        testbed
    }

    /// The longest wait of a packet of a quiet tenant for packets of the burst that are in NTs already, in
    /// nanoseconds.
    fn not_overtaken(&self, quiet: usize) -> f64 {
        let shared = self.nts[2].iter().filter(|nt| self.nts[quiet].contains(nt)).count();
        let each = f64::from(self.loud.bytes) * 8.0 / NT_GBPS as f64;
        shared as f64 * each
    }

    /// The same run with the burst and without.
    fn check(&self) {
        let (calm, burst) = (self.beside(1), self.beside(10));
        println!("{}: without {calm:.2?}, with the burst {burst:.2?}", self.name);
        for i in 0..2 {
            let (before, with) = (calm.served[i], burst.served[i]);
            assert!(with >= before * 0.9, "{}: {with} Gbit/s, not {before}", self.name);
            let (before, with) = (calm.p99[i], burst.p99[i]);
            let most = (before * 1.1).max(before + self.not_overtaken(i));
            assert!(with <= most, "{}: {with} ns instead of {before} ns", self.name);
        }
        let idle = burst.served[2] > self.loud.promised as f64 * 1.2;
        assert!(idle, "{}: what nobody else uses is idle: {burst:?}", self.name);
    }
}

const ONE: Chain = &["one"];
const TWO: Chain = &["two"];
const THREE: Chain = &["three"];
const BOTH: Chain = &["one", "two"];

/// All on one NT.
const SHARED: Scenario = Scenario {
    name: "one NT, 1500 B",
    regions: &[ONE],
    nts: [ONE; 3],
    quiet: [tenant(20, 18, 1_500), tenant(12, 10, 1_500)],
    loud: tenant(5, 5, 1_500),
    rhythm: None,
};

/// A region each.
const APART: Scenario = Scenario {
    name: "a region each, 1500 B, 512 B and 1024 B",
    regions: &[ONE, TWO, THREE],
    nts: [ONE, TWO, THREE],
    quiet: [tenant(30, 27, 1_500), tenant(25, 20, 512)],
    loud: tenant(10, 10, 1_024),
    rhythm: None,
};

const STEADY: [Scenario; 3] = [
    SHARED,
    Scenario {
        name: "one NT, 256 B and 512 B beside 1500 B",
        quiet: [tenant(16, 14, 512), tenant(10, 8, 256)],
        ..SHARED
    },
    Scenario {
        name: "one NT, 1500 B and 1024 B beside 256 B",
        quiet: [tenant(16, 14, 1_500), tenant(10, 8, 1_024)],
        loud: tenant(3, 3, 256),
        ..SHARED
    },
];

/// Where latencies are small and a burst finds most of the NT idle.
const LITTLE: [Scenario; 2] = [
    Scenario {
        name: "one NT, little load, 256 B and 512 B beside 1500 B",
        quiet: [tenant(8, 2, 512), tenant(6, 1, 256)],
        ..SHARED
    },
    Scenario {
        name: "two NTs, each tenant another part of them",
        regions: &[BOTH],
        nts: [BOTH, ONE, TWO],
        quiet: [tenant(12, 8, 512), tenant(10, 8, 1_024)],
        ..SHARED
    },
];

#[test]
#[ignore = "ci: seconds"]
fn a_burst_on_a_shared_nt_disturbs_nobody() {
    STEADY.iter().for_each(Scenario::check);
}

#[test]
fn a_burst_beside_little_load_is_seen_by_one_packet_at_each_nt() {
    LITTLE.iter().for_each(Scenario::check);
}

#[test]
#[ignore = "ci: seconds"]
fn bursts_that_come_and_go_disturb_nobody() {
    // Shorter than a monitor period, about one, and longer than an epoch.
    for millis in [3, 10, 25] {
        let scenario = Scenario {
            name: "one NT, 1024 B, periodic",
            quiet: [tenant(18, 16, 1_024), tenant(12, 10, 1_024)],
            loud: tenant(5, 5, 1_024),
            rhythm: Some(Duration::from_millis(millis)),
            ..SHARED
        };
        scenario.check();
    }
}

#[test]
#[ignore = "ci: seconds"]
fn a_burst_in_another_region_disturbs_nobody() {
    let periodic = Scenario {
        name: "a region each, 1024 B, periodic",
        quiet: [tenant(30, 26, 1_024), tenant(25, 20, 1_024)],
        rhythm: Some(Duration::from_millis(10)),
        ..APART
    };
    [APART, periodic].iter().for_each(Scenario::check);
}
