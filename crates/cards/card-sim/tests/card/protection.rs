//! NTs' memory: page tables by tenant and NT, rights, and what becomes of packets whose access is not
//! allowed.

use crate::rig;
use std::num::NonZeroU64;

use crate::rig::{Rig, uid};
use snic_card_sim::{MemoryAccess, PlaneOptions, Sizes};
use snic_domain::NtTypeId;
use snic_tables::{DagRow, DropCause, PageRow};

const NT: rig::Nt = (8, 100);
const READ: u8 = 1;
const READ_WRITE: u8 = 3;

fn code() -> u32 {
    let (latency, gbps) = NT;
    NtTypeId::new(&format!("nt-{latency}-{gbps}")).expect("valid").code().0
}

fn map(rig: &mut Rig, row: u16, (tenant, virtual_page, physical_page): (u16, u16, u16), rwx: u8) {
    rig.program(|image| {
        let page = PageRow { tenant, nt: code(), virtual_page, physical_page, rwx };
        image.set(row, &page).expect("there");
    });
}

/// A card whose NT is shared by DAG 1 of tenant 1 and DAG 2 of tenant 2.
fn shared(access: MemoryAccess) -> Rig {
    let mut rig = Rig::new();
    rig.load(0, &[NT]);
    for row in [1, 2] {
        rig.dag(row, &[&[&[(0, 1, 1)]]]);
        rig.program(|image| {
            let dag = image.get::<DagRow>(row).expect("programmed");
            image.set(row, &DagRow { tenant: row, ..dag }).expect("there");
        });
    }
    rig.card.set_memory_access(code(), access);
    rig
}

/// Packets of a DAG that went out, and that faulted.
fn seen(rig: &mut Rig, row: u16) -> (u64, u64) {
    rig.card.take_measurements();
    let source = snic_card_sim::TrafficSource::of_dag(
        uid(row),
        snic_domain::Bandwidth::from_gbps(10),
        Sizes::Fixed(64),
    );
    rig.card.attach(source.at_most(400)).expect("valid");
    rig.drain();
    let measured = rig.card.take_measurements();
    let dag = measured.dag(row).expect("it sends");
    (dag.counters.packets_out, dag.drops[DropCause::MemoryFault as usize])
}

#[test]
fn mapped_pages_are_served_and_unmapped_ones_fault() {
    let mut rig = shared(MemoryAccess { pages: 2, writes: false });
    assert_eq!(seen(&mut rig, 1), (0, 400), "nothing is mapped");
    map(&mut rig, 10, (1, 0, 100), READ);
    let (out, faults) = seen(&mut rig, 1);
    assert!((150..=250).contains(&out) && out + faults == 400, "one page of two: {out}");
    map(&mut rig, 11, (1, 1, 101), READ);
    assert_eq!(seen(&mut rig, 1), (400, 0));
}

#[test]
fn an_nt_that_tenants_share_keeps_them_apart() {
    let mut rig = shared(MemoryAccess { pages: 1, writes: true });
    map(&mut rig, 0, (1, 0, 7), READ_WRITE);
    assert_eq!(seen(&mut rig, 1), (400, 0));
    assert_eq!(seen(&mut rig, 2), (0, 400), "the page is tenant 1's");
    map(&mut rig, 1, (2, 0, 8), READ_WRITE);
    assert_eq!(seen(&mut rig, 2), (400, 0));
}

#[test]
fn rights_and_the_size_of_the_memory_count() {
    let mut rig = shared(MemoryAccess { pages: 1, writes: true });
    map(&mut rig, 3, (1, 0, 7), READ);
    assert_eq!(seen(&mut rig, 1), (0, 400), "it may only read");
    map(&mut rig, 3, (1, 0, 7), READ_WRITE);
    assert_eq!(seen(&mut rig, 1), (400, 0), "the row is another one now");
    // 10 GiB are 5,120 pages.
    map(&mut rig, 3, (1, 0, 5_120), READ_WRITE);
    assert_eq!(seen(&mut rig, 1), (0, 400), "there is no such page");
    map(&mut rig, 3, (1, 0, 5_119), READ_WRITE);
    assert_eq!(seen(&mut rig, 1), (400, 0));
}

#[test]
fn of_two_rows_for_a_page_the_first_counts() {
    let mut rig = shared(MemoryAccess { pages: 1, writes: true });
    map(&mut rig, 9, (1, 0, 7), READ_WRITE);
    map(&mut rig, 8, (1, 0, 7), READ);
    assert_eq!(seen(&mut rig, 1), (0, 400));
    rig.program(|image| {
        image.clear(snic_tables::RowKey { table: snic_tables::Table::Page, row: 8 }).expect("there")
    });
    assert_eq!(seen(&mut rig, 1), (400, 0));
}

#[test]
fn an_nt_without_accesses_needs_no_pages() {
    let mut rig = shared(MemoryAccess { pages: 0, writes: true });
    assert_eq!(seen(&mut rig, 1), (400, 0));
}

#[test]
fn a_page_that_is_taken_away_in_the_middle_of_traffic_ends_accesses_with_the_flip() {
    let mut rig = shared(MemoryAccess { pages: 1, writes: false });
    map(&mut rig, 0, (1, 0, 7), READ);
    rig.send(1, 50, Sizes::Fixed(64));
    rig.card.keep_trace(100_000);
    rig.card.run_for(10_000);
    map(&mut rig, 0, (1, 1, 7), READ);
    let flip = rig.version;
    rig.card.run_for(10_000);
    rig.check();
    let trace = rig.card.take_trace();
    let is_fault =
        |outcome| outcome == snic_card_sim::PacketOutcome::Dropped(DropCause::MemoryFault);
    assert!(trace.iter().all(|record| is_fault(record.outcome) == (record.version == flip)));
    assert!(trace.iter().any(|record| is_fault(record.outcome)), "there were packets after it");
}

/// Rate of 64-byte packets that a card serves with an NT of 8 cycles that reads memory for each.
fn served(credits: u8, memory_bytes_per_second: u64) -> f64 {
    let mut profile = rig::profile();
    profile.credits_initial = credits;
    let memory_bytes_per_second = NonZeroU64::new(memory_bytes_per_second).expect("not zero");
    let options = PlaneOptions { memory_bytes_per_second, ..PlaneOptions::default() };
    let mut rig = Rig::with(profile, 1, options);
    rig.load(0, &[NT]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    rig.card.set_memory_access(code(), MemoryAccess { pages: 1, writes: false });
    map(&mut rig, 0, (1, 0, 7), READ);
    rig.send(1, 60, Sizes::Fixed(64));
    rig.card.run_for(20_000);
    rig.card.take_measurements();
    rig.card.run_for(80_000);
    rig.check();
    rig.card.take_measurements().dag(1).expect("it sends").served.gbps_f64()
}

#[test]
fn an_access_takes_its_time() {
    for (nanos, cycles) in [(4, 1), (107, 27), (400, 100)] {
        let options = PlaneOptions { memory_latency_nanos: nanos, ..PlaneOptions::default() };
        let mut rig = Rig::with(rig::profile(), 1, options);
        rig.load(0, &[NT]);
        rig.dag(1, &[&[&[(0, 1, 1)]]]);
        map(&mut rig, 0, (1, 0, 7), READ);
        assert_eq!(rig.latency_alone(1), 49 + 8, "no access");
        rig.card.set_memory_access(code(), MemoryAccess { pages: 1, writes: false });
        // 64 bytes at 19.2 GB/s are 3.3 ns, which end within a cycle.
        assert_eq!(rig.latency_alone(1), 49 + 8 + 1 + cycles);
    }
}

#[test]
fn a_credit_is_held_until_the_memory_answers() {
    // Eight credits in 8 cycles, 1 and 27 for the memory, and 3 for the credit's way back.
    let gbps = |credits: f64| credits * 64.0 * 8.0 / (8.0 + 1.0 + 27.0 + 3.0) / 4.0;
    assert!((served(1, 19_200_000_000) - gbps(1.0)).abs() < 0.05, "{}", served(1, 19_200_000_000));
    assert!((served(8, 19_200_000_000) - gbps(8.0)).abs() < 0.3, "{}", served(8, 19_200_000_000));
}

#[test]
fn how_fast_state_is_copied_does_not_slow_what_nts_read() {
    let mut profile = rig::profile();
    profile.save_area.bytes_per_second = 1;
    let mut rig = Rig::with(profile, 1, PlaneOptions::default());
    rig.load(0, &[NT]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    map(&mut rig, 0, (1, 0, 7), READ);
    rig.card.set_memory_access(code(), MemoryAccess { pages: 1, writes: false });
    assert_eq!(rig.latency_alone(1), 49 + 8 + 1 + 27);
}

#[test]
fn one_memory_serves_all_accesses_at_its_bandwidth() {
    // 64 bytes each: 25 million accesses a second, one for each packet.
    let seen = served(100, 1_600_000_000);
    assert!((seen - 12.8).abs() < 0.1, "{seen}");
}
