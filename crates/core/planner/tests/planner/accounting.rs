//! The ledger against a second book that is kept in another way: plain lists of who passes where,
//! summed up from nothing for every question. `Ledger::check` recomputes through the ledger's own
//! functions, so it cannot notice when one of those is wrong; this can.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{World, bitstream_id, chain, gbps, name, profile};
use proptest::prelude::*;
use snic_domain::{
    Bandwidth, ByteSize, CardId, DagName, Form, Instance, Mapping, RegionId, Resource, Slot, Stage,
    VirtualChain,
};
use snic_planner::{Ledger, Reservation, TableRows};

const KBIT: u64 = 1_000;
const GBIT: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// Capacity of the card of these tests, written down once more: by region and slot the most that
/// the NT serves in bit/s, and the NT with the bytes that a tenant pays for it, in pages of 2 MiB.
const SLOTS: [(u8, u8, u64, (&str, u64)); 4] = [
    (0, 0, 10 * GBIT, ("nat", 4 * MIB)),
    (0, 1, 10 * GBIT, ("firewall", 0)),
    (1, 0, 10 * GBIT, ("aes", 2 * MIB)),
    (1, 1, 10 * GBIT, ("nat", 4 * MIB)),
];
const PORT: u64 = 25 * GBIT;
/// 9 MiB are four whole pages.
const MEMORY: u64 = 8 * MIB;
const ROWS: TableRows = TableRows { dags: 4, stages: 4, chains: 4, instances: 6 };

/// `nat firewall` in region 0, `aes nat` in region 1; little of everything else.
fn world() -> World {
    let mut world = World::with(2, "nat firewall aes", &[("nf", "nat firewall"), ("a", "aes nat")]);
    world.nt("nat", |nt| nt.memory = ByteSize::from_mib(3));
    world.nt("aes", |nt| nt.memory = ByteSize::from_bytes(1));
    let mut card = profile(2);
    (card.ingress, card.egress) = (Bandwidth::from_bps(PORT), Bandwidth::from_bps(PORT));
    card.memory = ByteSize::from_mib(9);
    world.ledger = Ledger::with_rows(CardId::new("card-0").expect("a test id"), card, ROWS);
    world.load(0, "nf");
    world.load(1, "a");
    world
}

/// One instance of a chain of NTs: region, slots, bit/s.
type Hop = (u8, Vec<u8>, u64);

fn reservation(world: &World, hops: &[Hop]) -> Reservation {
    let nts = ["nat", "firewall", "aes"][..hops[0].1.len()].join(" ");
    let bandwidth = Bandwidth::from_bps(hops.iter().map(|(_, _, bps)| bps).sum());
    let dag = chain(&nts, bandwidth);
    let nodes = dag.nodes().iter().map(|node| node.id.clone()).collect();
    let instances = hops
        .iter()
        .map(|(region, slots, bps)| Instance {
            region: RegionId(*region),
            bitstream: bitstream_id("nf"),
            slots: slots.iter().map(|slot| Slot(*slot)).collect(),
            bandwidth: Bandwidth::from_bps(*bps),
        })
        .collect();
    let stages = vec![Stage { branches: vec![VirtualChain { nodes, instances }] }];
    let card = CardId::new("card-0").expect("a test id");
    let mapping = Mapping { card, form: Form::Sequential, stages, programs: Vec::new() };
    Reservation::of(&mapping, &dag, &world.catalogue, world.ledger.profile())
}

/// The second book.
#[derive(Debug, Clone, Default)]
struct Book(BTreeMap<DagName, Vec<Hop>>);

impl Book {
    fn reserved(&self, region: u8, slot: u8) -> u64 {
        let hops = self.0.values().flatten();
        hops.filter(|(r, slots, _)| *r == region && slots.contains(&slot)).map(|hop| hop.2).sum()
    }

    fn through_ports(&self) -> u64 {
        self.0.values().flatten().map(|(_, _, bps)| bps).sum()
    }

    fn memory(&self) -> u64 {
        let mut paid = BTreeSet::new();
        for (name, hops) in &self.0 {
            for (region, slots, _) in hops {
                let nts = SLOTS.iter().filter(|s| s.0 == *region && slots.contains(&s.1));
                paid.extend(nts.map(|slot| (name.tenant.clone(), slot.3)));
            }
        }
        paid.into_iter().map(|(_, (_, bytes))| bytes).sum()
    }

    fn rows(&self) -> [usize; 4] {
        let dags = self.0.len();
        [dags, dags, dags, self.0.values().map(Vec::len).sum()]
    }

    /// Whether everything in it fits the card.
    fn fits(&self) -> bool {
        let exists = |region, slot| SLOTS.iter().any(|s| (s.0, s.1) == (region, slot));
        let mut hops = self.0.values().flatten();
        let rows = [ROWS.dags, ROWS.stages, ROWS.chains, ROWS.instances];
        hops.all(|(region, slots, _)| slots.iter().all(|slot| exists(*region, *slot)))
            && SLOTS.iter().all(|(region, slot, max, _)| self.reserved(*region, *slot) <= *max)
            && self.through_ports() <= PORT
            && self.memory() <= MEMORY
            && self.rows().iter().zip(rows).all(|(used, max)| *used <= max as usize)
    }

    /// Every number that the ledger tells must be what this book says.
    fn assert_agrees(&self, ledger: &Ledger) {
        for (region, slot, max, _) in SLOTS {
            let (at, reserved) = (RegionId(region), self.reserved(region, slot));
            assert_eq!(ledger.reserved(at, Slot(slot)).get(), reserved, "{region}:{slot}");
            assert_eq!(ledger.residual(at, Slot(slot)).get(), max - reserved, "{region}:{slot}");
        }
        assert_eq!(ledger.ingress_residual().get(), PORT - self.through_ports());
        assert_eq!(ledger.egress_residual().get(), PORT - self.through_ports());
        assert_eq!(ledger.memory_residual().get(), MEMORY - self.memory());
        let left = ledger.rows_residual();
        let left = [left.dags, left.stages, left.chains, left.instances];
        let all = [ROWS.dags, ROWS.stages, ROWS.chains, ROWS.instances];
        for ((left, all), used) in left.into_iter().zip(all).zip(self.rows()) {
            assert_eq!(left as usize, all as usize - used);
        }
        for region in [0, 1] {
            let users: Vec<&DagName> = ledger.users(RegionId(region)).collect();
            let passes = |hops: &&Vec<Hop>| hops.iter().any(|hop| hop.0 == region);
            let expected = self.0.iter().filter(|(_, hops)| passes(hops)).map(|(name, _)| name);
            assert_eq!(users, expected.collect::<Vec<_>>(), "users of region {region}");
        }
        ledger.check().expect("a ledger that adds up");
    }
}

/// Holds or refuses as the book does, and agrees with it afterwards.
fn hold(world: &mut World, book: &mut Book, dag: &DagName, hops: &[Hop]) -> bool {
    let mut next = book.clone();
    next.0.insert(dag.clone(), hops.to_vec());
    let fits = next.fits();
    let result = world.ledger.hold(dag, reservation(world, hops));
    assert_eq!(result.is_ok(), fits, "{dag} {hops:?}: {result:?} beside {book:?}");
    if fits {
        *book = next;
    }
    book.assert_agrees(&world.ledger);
    fits
}

#[test]
fn one_kilobit_per_second_too_much_is_refused_and_the_last_one_is_not() {
    let (mut world, mut book) = (world(), Book::default());
    let most = |bps| vec![(0, vec![1], bps)];
    assert!(hold(&mut world, &mut book, &name("t0/a"), &most(10 * GBIT - 1_000 * KBIT)));
    assert!(!hold(&mut world, &mut book, &name("t1/b"), &most(1_001 * KBIT)));
    assert!(hold(&mut world, &mut book, &name("t1/b"), &most(1_000 * KBIT)));
    assert_eq!(world.ledger.residual(RegionId(0), Slot(1)), Bandwidth::ZERO);
}

#[test]
fn one_kilobit_per_second_over_the_port_is_refused() {
    let (mut world, mut book) = (world(), Book::default());
    let through = |region, bps| vec![(region, vec![0], bps)];
    assert!(hold(&mut world, &mut book, &name("t0/a"), &through(0, 10 * GBIT)));
    assert!(hold(&mut world, &mut book, &name("t0/b"), &through(1, 10 * GBIT)));
    let rest = |bps| vec![(0, vec![1], bps)];
    assert!(!hold(&mut world, &mut book, &name("t0/c"), &rest(5 * GBIT + KBIT)));
    assert!(hold(&mut world, &mut book, &name("t0/c"), &rest(5 * GBIT)));
}

#[test]
fn a_page_too_much_is_refused_and_names_memory() {
    let (mut world, mut book) = (world(), Book::default());
    let nat = || vec![(0, vec![0], GBIT)];
    assert!(hold(&mut world, &mut book, &name("t0/a"), &nat()), "4 of 8 MiB");
    assert!(hold(&mut world, &mut book, &name("t0/b"), &nat()), "paid for already");
    let elsewhere = [(1, vec![1], GBIT)];
    assert!(hold(&mut world, &mut book, &name("t0/c"), &elsewhere), "for all regions");
    assert!(hold(&mut world, &mut book, &name("t1/a"), &[(1, vec![0], GBIT)]), "6 MiB");
    assert!(!hold(&mut world, &mut book, &name("t1/b"), &nat()), "10 of 8 MiB");
    let error = world.ledger.hold(&name("t1/b"), reservation(&world, &nat())).expect_err("memory");
    let numbers = (error.resource, error.required, error.available);
    assert_eq!(numbers, (Resource::Memory, 4 * MIB, 2 * MIB));
    world.ledger.release(&name("t1/a"));
    book.0.remove(&name("t1/a"));
    assert!(hold(&mut world, &mut book, &name("t1/b"), &nat()), "8 of 8 MiB");
}

/// A DAG's name, and where it wants to pass; `None` releases what it has.
fn requests() -> impl Strategy<Value = Vec<(usize, Option<Vec<Hop>>)>> {
    let bps = prop::sample::select(vec![
        1_000 * KBIT,
        GBIT,
        4 * GBIT,
        5 * GBIT,
        5 * GBIT + KBIT,
        10 * GBIT - KBIT,
        10 * GBIT,
        10 * GBIT + KBIT,
    ]);
    let single = prop::sample::select(vec![(0u8, 0u8), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0)]);
    let one = (single, bps.clone()).prop_map(|((region, slot), bps)| (region, vec![slot], bps));
    let both = bps.prop_map(|bps| vec![(0, vec![0, 1], bps)]);
    let hops = prop_oneof![prop::collection::vec(one, 1..3), both];
    prop::collection::vec((0usize..5, prop::option::weighted(0.8, hops)), 1..24)
}

proptest! {
    /// Whatever is asked for in whatever order: the ledger admits what fits and nothing else, and
    /// every number it tells is that of the second book.
    #[test]
    fn the_ledger_admits_what_fits_and_nothing_else(requests in requests()) {
        let names = ["t0/a", "t0/b", "t1/a", "t1/b", "t2/a"].map(name);
        let (mut world, mut book) = (world(), Book::default());
        for (dag, wanted) in requests {
            match wanted {
                Some(hops) => {
                    hold(&mut world, &mut book, &names[dag], &hops);
                }
                None => {
                    let released = world.ledger.release(&names[dag]).is_some();
                    prop_assert_eq!(released, book.0.remove(&names[dag]).is_some());
                    book.assert_agrees(&world.ledger);
                }
            }
        }
    }
}

/// The constants of this file are those of the card: a page is 2 MiB, and `gbps` is decimal.
#[test]
fn the_book_speaks_of_the_same_card() {
    let world = world();
    Book::default().assert_agrees(&world.ledger);
    assert_eq!(gbps(10).get(), SLOTS[0].2);
}
