//! Bandwidth of on-board memory: what NTs read and write there for each packet, of all DAGs of a card together.

use std::num::NonZeroU64;

use crate::support::{World, bitstream, chain, gbps, name, profile};
use snic_domain::{Bandwidth, CardProfile, Dag, DagSpec, MemoryTraffic, PacketSizes, Resource};

/// Promises may take 9.6 of 10 GB/s; `cache` moves 64 bytes for each packet and one for each of its bytes.
fn world(memory: u64) -> World {
    let memory_bytes_per_second = NonZeroU64::new(memory);
    let mut world = World::new(CardProfile { memory_bytes_per_second, ..profile(2) });
    for id in ["cache", "nat"] {
        world.nt(id, |nt| nt.bandwidth_max = gbps(100));
    }
    world.nt("cache", |nt| {
        nt.memory_traffic = MemoryTraffic { bytes_per_packet: 64, bytes_per_packet_byte: 1 };
    });
    world.catalogue.insert_bitstream(bitstream("cn", "cache nat"));
    world.load(0, "cn");
    world.load(1, "cn");
    world
}

fn of(nts: &str, mbps: u64, bytes: u32) -> Dag {
    let dag = chain(nts, Bandwidth::from_mbps(mbps));
    let packet_sizes = PacketSizes::only(bytes);
    Dag::new(DagSpec { packet_sizes, ..dag.spec().clone() }).expect("as before")
}

#[test]
fn dags_share_what_the_memory_moves() {
    let mut world = world(10_000_000_000);
    let plan = world.plan(&name("t0/a"), &of("cache", 32_000, 64)).expect("62.5 million of 128 B");
    assert_eq!(plan.reservation.memory_rate(), 8_000_000_000);
    world.apply(&name("t0/a"), &plan);
    // 1.6 GB/s are left: 6.4 Gbit/s of small packets, wherever the NT is.
    let refused = world.plan(&name("t1/b"), &of("cache", 6_401, 64)).expect_err("1,600.25 MB/s");
    let short = &refused.shortages[0];
    assert_eq!(short.resource, Resource::MemoryBandwidth, "{refused}");
    assert_eq!((short.required, short.available), (1_600_250_000, 1_600_000_000));
    assert!(short.detail.contains("on-board memory, which all NTs of the card share"), "{refused}");
    assert!(world.plan(&name("t1/b"), &of("nat", 90_000, 64)).is_ok(), "it leaves it alone");
    // 1,064 bytes for 8,000 bits.
    assert!(world.plan(&name("t1/b"), &of("cache", 12_030, 1_000)).is_ok());
    assert!(world.plan(&name("t1/b"), &of("cache", 12_031, 1_000)).is_err());
    let more = world.plan(&name("t1/b"), &of("cache nat", 6_400, 64)).expect("all that is left");
    world.apply(&name("t1/b"), &more);
    world.ledger.check().expect("a ledger that adds up");
    let left = world.ledger.headroom(&name("t1/b"));
    let memory = left.iter().find(|left| left.resource == Resource::MemoryBandwidth);
    let memory = memory.expect("it holds some");
    assert_eq!((memory.held, memory.available, memory.of_others), (1_600_000_000, 0, false));
    // What a DAG holds it may keep, and change within.
    assert!(world.plan(&name("t1/b"), &of("cache", 6_400, 64)).is_ok());
    world.ledger.release(&name("t0/a"));
    assert!(world.plan(&name("t1/c"), &of("cache", 32_000, 64)).is_ok());
}

/// Each node moves its own, where an NT is in the DAG twice; a mix moves what its packets do.
#[test]
fn what_is_moved_follows_from_the_nodes_and_the_packets() {
    let rate = |nts: &str, sizes: PacketSizes| {
        let dag = chain(nts, gbps(1));
        let dag = Dag::new(DagSpec { packet_sizes: sizes, ..dag.spec().clone() }).expect("a DAG");
        let plan = world(u64::MAX).plan(&name("t0/a"), &dag).expect("it fits");
        plan.reservation.memory_rate()
    };
    assert_eq!(rate("nat", PacketSizes::only(64)), 0);
    let once = rate("cache", PacketSizes::only(1_500));
    assert_eq!(once, 1_000_000_000 / 12_000 * 1_564 + 521, "83,333 and a third packets");
    assert!(rate("nat cache", PacketSizes::only(1_500)) == once);
    // Twelve packets of 4,342 bytes.
    let mix = u128::from(1_000_000_000_u64) * (12 * 64 + 4_342) / (4_342 * 8);
    assert_eq!(u128::from(rate("cache", PacketSizes::imix())), mix);
}

/// A profile from before there was such a limit has none.
#[test]
fn a_card_that_does_not_say_what_its_memory_moves_refuses_nobody() {
    let mut world = world(0);
    let plan = world.plan(&name("t0/a"), &of("cache", 100_000, 64)).expect("no limit");
    world.apply(&name("t0/a"), &plan);
    let left = world.ledger.headroom(&name("t0/a"));
    assert!(left.iter().all(|left| left.resource != Resource::MemoryBandwidth));
}
