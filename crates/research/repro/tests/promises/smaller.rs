//! A DAG that states large packets and sends small ones at its bandwidth is more work for ports and scheduler than
//! what it was promised: the others do not notice.

use std::time::Duration;

use snic_card_sim::{Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{Bandwidth, DagSpec, PacketSizes};

use super::{STEP, Seen, chain_of, testbed_of};

const WARM_UP: Duration = Duration::from_millis(2);
const COUNTS: Duration = Duration::from_millis(20);

/// NTs that read headers only: then a packet costs a region's port the same whatever its size.
const HEADERS: &[&str] = &["nat", "firewall"];

/// Stated packet size and promised Gbit/s of who keeps to both. In a second, a port of 250 million cycles passes
/// 88 million packets of 64 bytes in 220 million.
const POLITE: [(u32, u64); 2] = [(64, 25), (64, 20)];

/// Size that the others state, in bytes, and are promised: 3.3 million packets in a second.
const STATED: u32 = 1_500;
const PROMISED: Bandwidth = Bandwidth::from_gbps(40);

fn spec(bytes: u32, gbps: u64) -> DagSpec {
    DagSpec { packet_sizes: PacketSizes::only(bytes), ..chain_of(HEADERS, gbps) }
}

/// Served bandwidth of everybody, the one last that sends packets of so many bytes instead of [`STATED`].
fn beside(bytes: u32, rate: Bandwidth) -> Vec<Seen> {
    let mut testbed = testbed_of(&[HEADERS], 1);
    let specs = POLITE.map(|(bytes, gbps)| (spec(bytes, gbps), bytes, Bandwidth::from_gbps(gbps)));
    let last = (spec(STATED, PROMISED.get() / 1_000_000_000), bytes, rate);
    let dags: Vec<(DagView, Bandwidth)> = specs
        .into_iter()
        .chain([last])
        .enumerate()
        .map(|(number, (spec, bytes, rate))| {
            let tenant = format!("t{number}");
            testbed.tenant(&tenant, 1).expect("a tenant");
            let dag = testbed.dag(&tenant, "web", spec).expect("it fits");
            let source = TrafficSource::of_dag(dag.uid, rate, Sizes::Fixed(bytes));
            testbed.send(source).expect("a source");
            (dag, rate)
        })
        .collect();
    testbed.live(WARM_UP, STEP).expect("time passes");
    testbed.card.take_measurements();
    testbed.live(COUNTS, STEP).expect("time passes");
    testbed.card.check().expect("nothing is lost");
    let measured = testbed.card.take_measurements();
    let seen = |(dag, rate): &(DagView, Bandwidth)| {
        Seen::of(*rate, measured.dag(dag.uid.row()).expect("its packets went through"))
    };
    dags.iter().map(seen).collect()
}

fn keeps(seen: &Seen) -> bool {
    seen.served.get() >= seen.rate.get() / 100 * 99 && !seen.has_drops()
}

#[test]
#[ignore = "ci: a minute"]
fn a_dag_sending_smaller_packets_than_stated_takes_nothing_from_others() {
    let as_stated = beside(STATED, PROMISED);
    assert!(as_stated.iter().all(keeps), "all send what they stated: {as_stated:?}");
    // Ten times the packets, at 17 of its 40 Gbit/s.
    let ten_times = Bandwidth::from_bps(PROMISED.get() / u64::from(STATED) * 64 * 10);
    let seen = beside(64, ten_times);
    for (seen, calm) in seen.iter().zip(&as_stated).take(POLITE.len()) {
        println!("{seen:?}, before {calm:?}");
    }
    println!("the one with small packets: {:?}", seen[POLITE.len()]);
    assert!(seen[..POLITE.len()].iter().all(keeps), "a promise was broken: {seen:?}");
    // It still has the packets that it stated.
    let packets = |seen: &Seen, bytes: u32| seen.served.get() / 8 / u64::from(bytes);
    let last = POLITE.len();
    let (had, has) = (packets(&as_stated[last], STATED), packets(&seen[last], 64));
    assert!(has >= had / 100 * 99, "{has} packets in a second, {had} were promised");
}
