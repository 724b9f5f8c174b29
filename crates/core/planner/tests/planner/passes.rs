//! Ports and credits of regions, and the packet store: a second book, from the formulae and not from the ledger's code; which resource
//! a refusal names; and promises that are older than the rule.

use crate::support;
use std::collections::BTreeMap;

use crate::support::{World, bitstream_id, chain, gbps, name, profile};
use proptest::prelude::*;
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{
    ByteSize, CardId, CardProfile, Cycles, Dag, DagName, DagSpec, Form, Instance, Mapping,
    PacketSizes, RegionId, RegionPass, Resource, Slot, Stage, Traffic, VirtualChain,
};
use snic_planner::{Ledger, Reservation};

/// Bytes of the packet store that may be promised.
const STORE: u64 = 3_000;

/// A card of 100 MHz whose scheduler hands one packet in four cycles to a region, with ten credits an NT.
fn card(regions: usize) -> CardProfile {
    let four = std::num::NonZeroU32::new(4).expect("not zero");
    let pass = RegionPass {
        packets: std::num::NonZeroU32::MIN,
        cycles: four,
        credits_max: 10,
        ..RegionPass::SUPERNIC
    };
    let packet_store = ByteSize::from_bytes(STORE * 16 / 3);
    CardProfile { clock_hz: 100_000_000, region_pass: Some(pass), packet_store, ..profile(regions) }
}

/// `nat firewall` in both regions; an NT serves 10 Gbit/s and takes 10 cycles.
fn world(card: CardProfile) -> World {
    let mut world = World::with(2, "nat firewall", &[("nf", "nat firewall")]);
    world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), card);
    world.load(0, "nf");
    world.load(1, "nf");
    world
}

fn small(dag: &Dag) -> Dag {
    let packet_sizes = PacketSizes::only(64);
    Dag::new(DagSpec { packet_sizes, ..dag.spec().clone() }).expect("as before")
}

/// Passes one after the other: region, slots, Mbit/s; packets of 64 bytes.
type Passes = Vec<(u8, Vec<u8>, u64)>;

fn reservation(world: &World, passes: &Passes) -> Reservation {
    const NTS: [&str; 2] = ["nat", "firewall"];
    let nts = passes.iter().flat_map(|pass| &pass.1).map(|slot| NTS[usize::from(*slot)]);
    let mbps = passes.iter().map(|pass| pass.2).max().unwrap_or(1);
    let bandwidth = snic_domain::Bandwidth::from_mbps(mbps);
    let dag = small(&chain(&nts.collect::<Vec<_>>().join(" "), bandwidth));
    let mut nodes = dag.nodes().iter().map(|node| node.id.clone());
    let stage = |(region, slots, mbps): &(u8, Vec<u8>, u64)| {
        let instance = Instance {
            region: RegionId(*region),
            bitstream: bitstream_id("nf"),
            slots: slots.iter().map(|slot| Slot(*slot)).collect(),
            bandwidth: snic_domain::Bandwidth::from_mbps(*mbps),
        };
        let nodes = nodes.by_ref().take(slots.len()).collect();
        Stage { branches: vec![VirtualChain { nodes, instances: vec![instance] }] }
    };
    let stages = passes.iter().map(stage).collect();
    let card = CardId::new("card-0").expect("a test id");
    let mapping = Mapping { card, form: Form::Sequential, stages, programs: Vec::new() };
    Reservation::of(&mapping, &dag, &world.catalogue, world.ledger.profile())
}

/// Packets of 512 bits a second, four cycles each.
fn port_cycles(mbps: u64) -> u64 {
    mbps * 1_000_000 * 4 / 512
}

/// Packets a second × (two cycles over the port, ten for each NT, 5.12 rounded up to be taken in at 10 Gbit/s,
/// three back) of 10 ns each, in thousandths.
fn credits(mbps: u64, nts: u64) -> u64 {
    mbps * 1_000_000 * (2 + 10 * nts + 6 + 3) * 1_000 / 512 / 100_000_000
}

#[derive(Debug, Clone, Default)]
struct Book(BTreeMap<DagName, Passes>);

impl Book {
    fn passes(&self, region: u8) -> impl Iterator<Item = &(u8, Vec<u8>, u64)> {
        self.0.values().flatten().filter(move |pass| pass.0 == region)
    }

    fn port(&self, region: u8) -> u64 {
        self.passes(region).map(|pass| port_cycles(pass.2)).sum()
    }

    fn credits(&self, region: u8, slot: u8) -> u64 {
        let through = self.passes(region).filter(|pass| pass.1.contains(&slot));
        through.map(|pass| credits(pass.2, pass.1.len() as u64)).sum()
    }

    fn mbps(&self, region: u8, slot: u8) -> u64 {
        self.passes(region).filter(|pass| pass.1.contains(&slot)).map(|pass| pass.2).sum()
    }

    /// A cell for each packet of the fastest pass, for 33 cycles and 16 for each pass, and ten for each NT.
    fn store(&self) -> u64 {
        let of = |passes: &Passes| {
            let mbps = passes.iter().map(|pass| pass.2).max().unwrap_or(0);
            let cycles = passes.iter().map(|pass| 16 + 10 * pass.1.len() as u64);
            mbps * 1_000_000 * 64 * (33 + cycles.sum::<u64>()) / 512 / 100_000_000
        };
        self.0.values().map(of).sum()
    }

    /// 96 of a port's 100 million cycles and four fifths of ten credits are for promises.
    fn fits(&self) -> bool {
        self.store() <= STORE
            && (0..2).all(|region| self.port(region) <= 96_000_000)
            && (0..4).all(|i| {
                let (region, slot) = (i / 2, i % 2);
                self.credits(region, slot) <= 8_000 && self.mbps(region, slot) <= 10_000
            })
    }
}

fn requests() -> impl Strategy<Value = Vec<(usize, Option<Passes>)>> {
    let slots = prop::sample::select(vec![vec![0u8], vec![1], vec![0, 1]]);
    let mbps = prop::sample::select(vec![100u64, 1_000, 1_777, 2_500, 6_300, 9_999]);
    let pass = (0u8..2, slots, mbps);
    let passes = prop::collection::vec(pass, 1..4);
    prop::collection::vec((0usize..5, prop::option::weighted(0.8, passes)), 1..20)
}

proptest! {
    /// The ledger admits what fits the second book and nothing else, and reads the same.
    #[test]
    fn ports_and_credits_are_as_a_second_book_has_them(requests in requests()) {
        let names = ["t0/a", "t0/b", "t1/a", "t1/b", "t2/a"].map(name);
        let (mut world, mut book) = (world(card(2)), Book::default());
        for (dag, wanted) in requests {
            let mut next = book.clone();
            match wanted {
                Some(passes) => {
                    let reservation = reservation(&world, &passes);
                    next.0.insert(names[dag].clone(), passes);
                    let held = world.ledger.hold(&names[dag], reservation);
                    prop_assert_eq!(held.is_ok(), next.fits(), "{:?} beside {:?}", held, book);
                }
                None => {
                    next.0.remove(&names[dag]);
                    world.ledger.release(&names[dag]);
                }
            }
            book = if next.fits() { next } else { book };
            for region in 0..2 {
                prop_assert_eq!(world.ledger.port_reserved(RegionId(region)), book.port(region));
                let programmed = world.ledger.credits(RegionId(region));
                for slot in 0..2u8 {
                    // Twice what is promised, and what comes in the 738 cycles in which an NT takes in 9,216 bytes,
                    // where a round trip takes 15 cycles at least; not under the initial eight, at most ten.
                    let wanted = book.credits(region, slot) * (2 * 15 + 738);
                    let wanted = wanted.div_ceil(15 * 1_000).clamp(8, 10);
                    prop_assert_eq!(u64::from(programmed[usize::from(slot)]), wanted);
                }
                prop_assert_eq!(&programmed[2..], &[0; CHAIN_SLOTS_MAX - 2][..]);
            }
            world.ledger.check().expect("a ledger that adds up");
        }
    }
}

/// One region with the wrong order only: each packet passes its port three times.
fn looping(regions: usize) -> World {
    let card = CardProfile { region_pass: Some(RegionPass::SUPERNIC), ..profile(regions) };
    let card = CardProfile { ingress: gbps(100), egress: gbps(100), ..card };
    let mut world = World::new(card);
    for id in ["a", "b", "c"] {
        world.nt(id, |nt| {
            (nt.bandwidth_max, nt.traffic) = (gbps(100), Traffic::Payload);
        });
    }
    world.catalogue.insert_bitstream(support::bitstream("cba", "c b a"));
    world
}

#[test]
fn more_passes_than_a_port_carries_take_another_region() {
    let mut world = looping(2);
    world.load(0, "cba");
    // Passes of the IMIX carry 96 % of 100.4 Gbit/s, so three of 40 are more than one port carries.
    let plan = world.plan(&name("t0/a"), &chain("a b c", gbps(32))).expect("three of 32 fit");
    assert_eq!(plan.loads.len(), 0);
    let plan = world.plan(&name("t0/a"), &chain("a b c", gbps(40))).expect("two regions do");
    assert_eq!(plan.loads.len(), 1);
    world.apply(&name("t0/a"), &plan);
    world.ledger.check().expect("a ledger that adds up");
}

#[test]
fn a_refusal_names_the_port_and_its_numbers() {
    let mut world = looping(1);
    world.load(0, "cba");
    let refused = world.plan(&name("t0/a"), &chain("a b c", gbps(40))).expect_err("no room");
    let shortage = &refused.shortages[0];
    assert_eq!(shortage.resource, Resource::RegionPort);
    // Three passes; of twelve packets seven take 2.5 cycles, four 10 + 1 and one 24 + 1.
    let cycles = 40_000_000_000u64 * (35 + 88 + 50) / 2 / (4_342 * 8) * 3;
    assert!(shortage.required.abs_diff(cycles) < cycles / 100, "{shortage}, not {cycles}");
    assert_eq!(shortage.available, 240_000_000, "96 % of the cycles");
    assert!(shortage.detail.contains("3 passes through region 0 with packet sizes imix"));
    let small = small(&chain("c b a", gbps(60)));
    let refused = world.plan(&name("t0/a"), &small).expect_err("64 bytes come to 49 Gbit/s");
    assert_eq!(refused.shortages[0].resource, Resource::RegionPort);
    assert!(world.plan(&name("t0/a"), &chain("c b a", gbps(60))).is_ok(), "the IMIX passes");
}

#[test]
fn long_chains_of_slow_nts_run_out_of_credits() {
    let mut world = looping(1);
    for id in ["a", "b", "c"] {
        world.nt(id, |nt| nt.latency = Cycles::new(400));
    }
    world.load(0, "cba");
    let refused = world.plan(&name("t0/a"), &small(&chain("c b a", gbps(40)))).expect_err("short");
    assert_eq!(refused.shortages[0].resource, Resource::Credits, "{refused}");
    assert!(world.plan(&name("t0/a"), &small(&chain("c b a", gbps(10)))).is_ok());
}

#[test]
fn a_promise_older_than_the_rule_stays_and_nothing_is_added_to_it() {
    let mut world = world(card(2));
    let old = |mbps| vec![(0u8, vec![0u8], mbps), (0, vec![1], mbps)];
    let (first, second) = (reservation(&world, &old(8_000)), reservation(&world, &old(1_000)));
    let refused = world.ledger.clone().hold(&name("t0/a"), first.clone());
    assert!(refused.expect_err("as new it is refused").resource.is_counted_late());
    assert_eq!(world.ledger.restore(&name("t0/b"), second), Ok(false), "it fits");
    assert_eq!(world.ledger.restore(&name("t0/a"), first.clone()), Ok(true));
    assert!(world.ledger.is_overcommitted(RegionId(0)));
    world.ledger.check().expect("flagged, so it adds up");
    let little = reservation(&world, &vec![(0, vec![0], 100)]);
    world.ledger.hold(&name("t1/c"), little.clone()).expect_err("nothing new");
    world.ledger.hold(&name("t0/a"), first).expect("it may keep what it has");
    let more = reservation(&world, &old(8_001));
    world.ledger.hold(&name("t0/a"), more).expect_err("and not take more");
    world.ledger.hold(&name("t0/a"), little.clone()).expect("less");
    assert!(!world.ledger.is_overcommitted(RegionId(0)));
    world.ledger.hold(&name("t1/c"), little).expect("there is room again");
    world.ledger.check().expect("a ledger that adds up");
}
