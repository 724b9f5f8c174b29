//! Token buckets whose queues are in a host's memory, as a software card has them: bursts within a rate wait there and take
//! nothing of the packet store.

use crate::rig::{Rig, profile, uid};
use snic_card_sim::{FrameId, Header, PlaneOptions, ShaperMemory};
use snic_domain::{Bandwidth, ByteSize};
use snic_tables::DropCause;

/// Bytes of each packet, and of a bucket.
const BYTES: u32 = 1_500;
const BURST: u32 = 65_536;

/// Two DAGs of 200 Mbit/s.
fn rig(memory: Option<ShaperMemory>) -> Rig {
    let shaper_queue = ByteSize::from_bytes(64 << 10);
    let options = PlaneOptions { shaper_queue, shaper_memory: memory, ..PlaneOptions::default() };
    let mut rig = Rig::with(profile(), 1, options);
    rig.load(0, &[(4, 100)]);
    for row in 1..=2 {
        rig.dag(row, &[&[&[(0, 1, 1)]]]);
        rig.limit(row, Bandwidth::from_mbps(200), BURST);
    }
    rig
}

/// So many packets of a DAG at once; says how many were dropped at its token bucket.
fn burst(rig: &mut Rig, row: u16, packets: u32) -> u64 {
    rig.card.take_measurements();
    let header = Header { dag: Some(uid(row)), ..Header::default() };
    for number in 0..packets {
        rig.card.inject(FrameId(number), &header, BYTES);
    }
    rig.check();
    rig.card.take_measurements().dropped(DropCause::RateLimited)
}

#[test]
fn a_queue_in_a_hosts_memory_is_as_long_as_its_rate_serves_in_the_time_and_takes_no_store() {
    // 500,000 bytes in 20 ms are 333 packets, and the bucket lets 43 pass.
    let memory = ShaperMemory { buffers: 4_096, micros: 20_000 };
    let mut rig = rig(Some(memory));
    assert_eq!(burst(&mut rig, 1, 400), 400 - 333 - 43);
    // The packets that wait would fill six tenths of the packet store, of which another DAG may have all.
    assert_eq!(burst(&mut rig, 2, 300), 0);
    rig.drain();
    assert_eq!(rig.card.packets_in_flight(), 0, "all that waited went");

    let mut rig = self::rig(None);
    assert_eq!(burst(&mut rig, 1, 400), 400 - 43 - 43, "64 KiB, in the packet store");
}

#[test]
fn a_queue_leaves_buffers_for_the_next() {
    let memory = ShaperMemory { buffers: 100, micros: 1_000_000 };
    let mut rig = rig(Some(memory));
    // One queue grows to half of the buffers, the next to half of what is left.
    assert_eq!(burst(&mut rig, 1, 400), 400 - 43 - 50);
    assert_eq!(burst(&mut rig, 2, 400), 400 - 43 - 25);
    // A bucket that is taken away takes its queue along.
    rig.limit(1, Bandwidth::ZERO, BURST);
    rig.card.run_for(1_000);
    rig.check();
    assert_eq!(burst(&mut rig, 2, 100), 100 - 25, "50 of 75 buffers that it and nobody else has");
    rig.drain();
}
