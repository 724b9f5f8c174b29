//! Isolation of on-board memory, through controller, driver and card: an NT that two tenants share
//! keeps them apart by the pages that the control plane gave each.

use std::collections::BTreeSet;
use std::time::Duration;

use snic_card_sim::{MemoryAccess, PlaneOptions, Sizes, TrafficSource};
use snic_controller::LogKind;
use snic_domain::{Bandwidth, ByteSize, Caller, DagSpec, NtType, NtTypeId};
use snic_ports::card::Registers;
use snic_repro::{Parameters, Setup, Testbed, nt};
use snic_tables::registers::active_row;
use snic_tables::{DropCause, PageRow, RowCodec, RowKey, Table};

const STEP: Duration = Duration::from_micros(100);

/// The page rows that packets read.
fn pages(testbed: &mut Testbed) -> Vec<PageRow> {
    let keys = (0..Table::Page.rows() as u16).map(|row| RowKey { table: Table::Page, row });
    let mut read = |key: RowKey| {
        let mut words = vec![0; Table::Page.row_words()];
        testbed.card.read_block(active_row(key)?, &mut words).expect("the card answers");
        PageRow::decode(&words)
    };
    keys.filter_map(&mut read).collect()
}

/// Packets of each DAG that went out, and that met a fault, in 10 ms.
fn seen(testbed: &mut Testbed, rows: [u16; 2]) -> [(u64, u64); 2] {
    testbed.live(Duration::from_millis(5), STEP).expect("time passes");
    testbed.card.take_measurements();
    testbed.live(Duration::from_millis(10), STEP).expect("time passes");
    let measured = testbed.card.take_measurements();
    assert_eq!(measured.errors(), 0, "{measured:?}");
    rows.map(|row| {
        let dag = measured.dag(row).expect("it sends");
        (dag.counters.packets_out, dag.drops[DropCause::MemoryFault as usize])
    })
}

#[test]
fn tenants_that_share_an_nt_have_pages_of_their_own_and_reach_no_others() {
    let parameters = Parameters::load().expect("our own files");
    let gbps = Bandwidth::from_gbps;
    let shared = nt("kv-cache", 20, gbps(40)).expect("an NT");
    let memory = ByteSize::from_mib(4);
    let setup = Setup {
        card: parameters.card.clone(),
        options: PlaneOptions::default(),
        nts: vec![NtType { memory, ..shared }],
        chains: vec![&["kv-cache"]],
    };
    let mut testbed = Testbed::new(&setup).expect("a bench");
    let id = NtTypeId::new("kv-cache").expect("a label");
    testbed.card.set_memory_access(id.code().0, MemoryAccess { pages: 2, writes: true });
    let mut rows = [0; 2];
    for (row, tenant) in rows.iter_mut().zip(["acme", "beta"]) {
        testbed.tenant(tenant, 1).expect("a tenant");
        let spec = DagSpec::chain(std::slice::from_ref(&id), gbps(5));
        let dag = testbed.dag(tenant, "web", spec).expect("it fits");
        testbed.send(TrafficSource::of_dag(dag.uid, gbps(4), Sizes::Fixed(256))).expect("a source");
        *row = dag.uid.row();
    }
    let all = pages(&mut testbed);
    let physical: BTreeSet<u16> = all.iter().map(|page| page.physical_page).collect();
    let tenants: BTreeSet<u16> = all.iter().map(|page| page.tenant).collect();
    assert_eq!((all.len(), physical.len(), tenants.len()), (4, 4, 2), "{all:?}");
    for (out, faults) in seen(&mut testbed, rows) {
        assert!(out > 10_000 && faults == 0, "{out} packets, {faults} faults");
    }
    // The NT now addresses twice as much memory as it declared: half of its accesses are outside
    // the tenant's pages, and so reach no memory at all.
    testbed.card.set_memory_access(id.code().0, MemoryAccess { pages: 4, writes: true });
    for (out, faults) in seen(&mut testbed, rows) {
        let part = faults as f64 / (out + faults) as f64;
        assert!((0.45..0.55).contains(&part), "{out} packets, {faults} faults");
    }
    let operator = Caller::Operator("ada".into());
    let log = testbed.controller.log_before(&operator, None);
    assert_eq!(log.filter(|entry| entry.kind == LogKind::MemoryFault).count(), 1);
}
