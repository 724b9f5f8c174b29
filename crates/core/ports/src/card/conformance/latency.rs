//! Latencies of sampled packets.

use snic_domain::Bandwidth;
use snic_tables::registers::{
    CAPABILITIES, CAPABILITY_LATENCY, DAG_LATENCY_EXPONENT, DAG_LATENCY_MAX,
    DAG_LATENCY_MAX_BEFORE, dag_latency,
};
use snic_tables::{LatencySample, PathPart, TableImage};

use super::sessions::adopt;
use super::traffic::{IDLE_ROW, ROW, dag_uid, load, sample, tables};
use super::{Fixture, LOOKS_MAX, Needed, Rig};

/// One packet in four is sampled: 125 of 500.
const EXPONENT: u32 = 2;

/// As many packets of a DAG are sampled as the rule says; the parts of each sum up to its latency, none is over the largest
/// that the card says, and a DAG without traffic has none.
pub fn parts_of_latencies_sum_up_and_as_many_packets_are_sampled_as_the_rule_says(
    fixture: Fixture,
) {
    let mut rig = Rig::new(fixture);
    let Some(start) = rig.start_load.take() else { return };
    adopt(&mut rig);
    assert_ne!(rig.read(CAPABILITIES) & CAPABILITY_LATENCY, 0, "a card that makes packets");
    let tag = rig.load_well(0).words()[0];
    // All that comes is let in.
    rig.program(TableImage::default().delta_to(&tables(&rig, tag, Bandwidth::from_gbps(50))));
    rig.write(dag_latency(ROW, DAG_LATENCY_EXPONENT), EXPONENT);
    rig.write(dag_latency(IDLE_ROW, DAG_LATENCY_EXPONENT), 0);
    assert_eq!(sample(&mut rig).latency.samples, [], "no packet was there yet");
    assert_eq!(rig.read(dag_latency(ROW, DAG_LATENCY_EXPONENT)), EXPONENT);
    let mut load = start(&load());
    let mut largest = 0;
    let made = (0..LOOKS_MAX).find_map(|_| {
        rig.tick();
        largest = largest.max(largest_now(&mut rig));
        rig.card.poll(rig.now).needed("a poll");
        // An emulated card goes on when one of its registers is accessed.
        rig.read(CAPABILITIES);
        let made = load.read().expect("the load is there");
        (!made.is_sending && made.total.under_way() == 0).then_some(made.total)
    });
    let made = made.expect("packets are still under way");
    assert_eq!(made.packets_offered, made.packets_served, "none is dropped: {made:?}");
    largest = largest.max(largest_now(&mut rig));
    let reading = sample(&mut rig).latency;
    assert_eq!(reading.missed, 0);
    let samples = reading.samples;
    let due = made.packets_served >> EXPONENT;
    let count = samples.len() as u64;
    assert!(due > 0 && (due..=due + 1).contains(&count), "{count} of {made:?}");
    for sample in &samples {
        assert_eq!(sample.uid(), dag_uid(ROW), "the other DAG has no traffic");
        assert_eq!(u64::from(sample.total()), sum(sample), "{sample:?}");
        let nts: Vec<_> = sample.nts().map(|nt| (nt.region, nt.slot)).collect();
        assert_eq!(nts, [(0, 0)], "the one task that its packets pass");
    }
    assert!(samples.iter().all(|sample| sample.total() <= largest), "over {largest}: {samples:?}");
    assert_eq!(rig.read(dag_latency(IDLE_ROW, DAG_LATENCY_MAX)), 0);
}

/// The largest latency of the DAG in this window and the one before; while packets come, windows may end.
fn largest_now(rig: &mut Rig) -> u32 {
    let windows = [DAG_LATENCY_MAX, DAG_LATENCY_MAX_BEFORE];
    let [now, before] = windows.map(|register| rig.read(dag_latency(ROW, register)));
    now.max(before)
}

fn sum(sample: &LatencySample) -> u64 {
    let parts = PathPart::ALL.map(|part| u64::from(sample.part(part)));
    parts.iter().sum::<u64>() + sample.nts().map(|nt| u64::from(nt.cycles)).sum::<u64>()
}
