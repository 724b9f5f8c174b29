//! Packets and the counters of them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use snic_domain::{Bandwidth, DagUid};
use snic_tables::{
    CardCommand, CardCounters, CardReport, ChainRow, CreditReservation, CreditRow, DagCounters,
    DagRow, DropCause, InstanceRow, NONE, RateLimiterRow, RegionRow, StageRow, Steering,
    TableImage,
};

use super::sessions::adopt;
use super::{Fixture, LOOKS_MAX, Needed, Rig};
use crate::generator::{GeneratedHeaders, GeneratedLoad, GeneratedPackets};

/// Row of the DAG that gets the load.
pub(super) const ROW: u16 = 3;
/// Row of another one, which gets none.
pub(super) const IDLE_ROW: u16 = 5;
/// The load of 500 KB, and the rate that its token bucket lets in: a queue of 256 KiB, or of 50 ms, is full before its end.
const OFFERED: Bandwidth = Bandwidth::from_mbps(2_000);
const ADMITTED: Bandwidth = Bandwidth::from_mbps(50);
/// Duration of the load: 500 packets.
const DURATION: Duration = Duration::from_millis(2);
const PACKET_BYTES: u32 = 1_000;

/// UID of the DAG in a row.
pub(super) fn dag_uid(row: u16) -> u32 {
    DagUid::new(row, 1).expect("it fits").raw()
}

pub(super) fn load() -> GeneratedLoad {
    let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    let headers = GeneratedHeaders {
        source: address(1),
        destination: address(2),
        is_tcp: false,
        source_port: 1_000,
        destination_port: 2_000,
        flows: 1,
    };
    GeneratedLoad {
        uid: dag_uid(ROW),
        rate_bps: OFFERED.get(),
        packets: GeneratedPackets::Mix { sizes: vec![(PACKET_BYTES, 1)], headers },
        duration: DURATION,
    }
}

/// Tables of two DAGs with one pass through the first task of region 0, behind a token bucket of this rate.
pub(super) fn tables(rig: &Rig, tag: u32, admitted: Bandwidth) -> TableImage {
    let mut image = TableImage::default();
    let row = "the tables have this row";
    let nts = rig.chains[0].nts.map(|nt| nt.0);
    image.set(0, &RegionRow { user_nt: false, bitstream_tag: tag, nts }).expect(row);
    let credits = CreditRow { initial: [8; 8], reservation: CreditReservation::Chain };
    image.set(0, &credits).expect(row);
    let chain = ChainRow { first_instance: 0, instances: 1, steering: Steering::RoundRobin };
    image.set(0, &InstanceRow::in_region(0, 1, 1)).expect(row);
    image.set(0, &chain).expect(row);
    let chains = [0, NONE, NONE, NONE];
    image.set(0, &StageRow { chains, join_mask: 1, next: NONE, last: true }).expect(row);
    let dag = DagRow {
        tenant: 1,
        uid: dag_uid(ROW),
        first_stage: 0,
        stages: 1,
        rate_limiter: ROW,
        payload: true,
        configuration: 0,
        guest: None,
    };
    image.set(ROW, &dag).expect(row);
    image.set(IDLE_ROW, &DagRow { uid: dag_uid(IDLE_ROW), ..dag }).expect(row);
    let rate_kbps = admitted.kbps();
    let bucket = RateLimiterRow {
        rate_kbps,
        burst_bytes: 9_000,
        promised_kbps: rate_kbps,
        packet_bytes: 0,
        weight: 1,
    };
    image.set(ROW, &bucket).expect(row);
    image
}

#[track_caller]
pub(super) fn sample(rig: &mut Rig) -> CardCounters {
    let ticket = rig.ticket();
    match rig.run(CardCommand::Sample { ticket }, None) {
        CardReport::Sampled { counters, .. } => *counters,
        other => panic!("the card was not sampled: {other:?}"),
    }
}

/// Offered is served and dropped by cause: no packet is counted twice and none is forgotten, by the card's counters and by
/// whoever made the packets. Meanwhile the card's clock goes on.
pub fn what_comes_in_goes_out_or_is_dropped_for_a_cause(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let Some(start) = rig.start_load.take() else { return };
    adopt(&mut rig);
    let tag = rig.load_well(0).words()[0];
    rig.program(TableImage::default().delta_to(&tables(&rig, tag, ADMITTED)));
    let mut cycles = sample(&mut rig).cycles.expect("a card that makes packets counts cycles");
    let mut load = start(&load());
    for _ in 0..LOOKS_MAX {
        rig.tick();
        rig.card.poll(rig.now).needed("a poll");
        let seen = sample(&mut rig);
        let now = seen.cycles.expect("as before");
        assert!(now >= cycles, "the clock went back from {cycles} to {now}");
        cycles = now;
        let of_dag = |(row, dag): &(u16, DagCounters)| (*row == ROW).then_some(*dag);
        let dag = seen.dags.iter().find_map(of_dag).unwrap_or_default();
        let drops = seen.dag_drops.iter().find(|(row, _)| *row == ROW);
        let drops = drops.map(|(_, drops)| *drops).unwrap_or_default();
        let dropped: u64 = drops.iter().sum();
        // Counters of one access each: a packet that leaves between two of them is in one and not in the other. The card's
        // are read before the DAG's.
        let is_over = dag.packets_in > 0
            && dag.packets_in <= dag.packets_out + dropped
            && seen.packets_out >= dag.packets_out;
        let made = load.read().expect("the load is there");
        if !is_over || made.is_sending || made.total.under_way() > 0 {
            continue;
        }
        let made = made.total;
        assert_eq!(dag.packets_in, dag.packets_out + dropped, "{dag:?} {drops:?}");
        assert_eq!((dag.packets_in, dag.packets_out), (made.packets_offered, made.packets_served));
        assert_eq!((dag.bytes_intended, dag.bytes_served), (made.bytes_offered, made.bytes_served));
        assert_eq!((drops, seen.drops), (made.drops, made.drops), "by cause");
        assert_eq!((seen.packets_in, seen.packets_out), (dag.packets_in, dag.packets_out));
        let limited = drops[DropCause::RateLimited as usize];
        assert!(limited > 0 && dag.packets_out > 0, "the load is over its rate: {dag:?} {drops:?}");
        return;
    }
    panic!("packets are still under way after {LOOKS_MAX} steps of {:?}", rig.step);
}
