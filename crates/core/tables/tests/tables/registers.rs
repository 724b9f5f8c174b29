//! The register map: every register has its own place, inside its window.

use snic_domain::limits::{CHAIN_SLOTS_MAX, DAG_ROWS, LINKS_MAX, REGIONS_MAX};
use snic_tables::registers::*;
use snic_tables::{DropCause, RowKey, Table};

/// Name, first byte, bytes.
type Place = (&'static str, Address, Address);

const CONTROL: [Place; 35] = [
    ("MAGIC", MAGIC, 4),
    ("LAYOUT", LAYOUT, 4),
    ("CAPABILITIES", CAPABILITIES, 4),
    ("REGION_COUNT", REGION_COUNT, 4),
    ("IDCODE", IDCODE, 4),
    ("BOOT_ID", BOOT_ID, 4),
    ("TABLE_VERSION", TABLE_VERSION, 4),
    ("COMMIT", COMMIT, 4),
    ("ABORT", ABORT, 4),
    ("COMMIT_STATUS", COMMIT_STATUS, 4),
    ("LOAD_REGION", LOAD_REGION, 4),
    ("LOAD_BUFFER_LOW", LOAD_BUFFER_LOW, 4),
    ("LOAD_BUFFER_HIGH", LOAD_BUFFER_HIGH, 4),
    ("LOAD_BYTES", LOAD_BYTES, 4),
    ("LOAD_START", LOAD_START, 4),
    ("LOAD_STATUS", LOAD_STATUS, 4),
    ("LOAD_PROGRESS", LOAD_PROGRESS, 4),
    ("LOAD_ERROR", LOAD_ERROR, 4),
    ("BULK_BUFFER_LOW", BULK_BUFFER_LOW, 4),
    ("BULK_BUFFER_HIGH", BULK_BUFFER_HIGH, 4),
    ("BULK_BYTES", BULK_BYTES, 4),
    ("BULK_START", BULK_START, 4),
    ("BULK_STATUS", BULK_STATUS, 4),
    ("SAVE_AREA_LOW", SAVE_AREA_LOW, 4),
    ("SAVE_AREA_HIGH", SAVE_AREA_HIGH, 4),
    ("SAVE_AREA_BYTES", SAVE_AREA_BYTES, 4),
    ("CONFIGURE_BUFFER_LOW", CONFIGURE_BUFFER_LOW, 4),
    ("CONFIGURE_BUFFER_HIGH", CONFIGURE_BUFFER_HIGH, 4),
    ("CONFIGURE_BYTES", CONFIGURE_BYTES, 4),
    ("CONFIGURE_UID", CONFIGURE_UID, 4),
    ("CONFIGURE_TAG", CONFIGURE_TAG, 4),
    ("CONFIGURE_START", CONFIGURE_START, 4),
    ("CONFIGURE_STATUS", CONFIGURE_STATUS, 4),
    ("LATENCY_WRITTEN", LATENCY_WRITTEN, 4),
    ("LINK_COUNT", LINK_COUNT, 4),
];

const IN_A_REGION: [Place; 8] = [
    ("REGION_STATUS", REGION_STATUS, 4),
    ("REGION_CONTROL", REGION_CONTROL, 4),
    ("REGION_IN_FLIGHT", REGION_IN_FLIGHT, 4),
    ("REGION_DIGEST", REGION_DIGEST, 32),
    ("REGION_DIGEST_NEXT", REGION_DIGEST_NEXT, 32),
    ("REGION_NTS", REGION_NTS, 4 * CHAIN_SLOTS_MAX as u32),
    ("REGION_IDENTITY", REGION_IDENTITY, 16),
    ("REGION_LOAD", REGION_LOAD, 16 * CHAIN_SLOTS_MAX as u32),
];

const COUNTERS: [Place; 4] = [
    ("PACKETS_IN", PACKETS_IN, 8),
    ("PACKETS_OUT", PACKETS_OUT, 8),
    ("DROPS", DROPS, 8 * DropCause::ALL.len() as u32),
    ("LINKS", LINKS, LINKS_MAX as u32 * LINK_PAGE),
];

const BULK: [Place; 6] = [
    ("DAG_LOAD", DAG_LOAD, DAG_ROWS as u32 * DAG_LOAD_ROW),
    ("DAG_DROPS", DAG_DROPS, DAG_ROWS as u32 * DAG_DROPS_ROW),
    ("LATENCY_RECORDS", LATENCY_RECORDS, LATENCY_RING * LATENCY_RECORD),
    ("DAG_LATENCY", DAG_LATENCY, DAG_ROWS as u32 * DAG_LATENCY_ROW),
    ("ACTIVE_BANK", ACTIVE_BANK, BANK_BYTES),
    ("SHADOW_BANK", SHADOW_BANK, BANK_BYTES),
];

#[track_caller]
fn check(places: &[Place], window: std::ops::Range<Address>) {
    let mut sorted = places.to_vec();
    sorted.sort_by_key(|place| place.1);
    let mut free = window.start;
    for (name, at, bytes) in sorted {
        assert_eq!(at % 4, 0, "{name} is not aligned");
        assert!(at >= free, "{name} at {at:#x} overlaps what ends at {free:#x}");
        free = at + bytes;
        assert!(free <= window.end, "{name} ends at {free:#x}, behind {:#x}", window.end);
    }
}

#[test]
fn no_two_registers_overlap_and_all_are_in_their_window() {
    check(&CONTROL, FIRST..REGIONS);
    check(&IN_A_REGION, 0..REGION_PAGE);
    check(&COUNTERS, PACKETS_IN..DAG_LOAD);
    check(&BULK, DAG_LOAD..u32::MAX);
    let pages = REGIONS + REGIONS_MAX as u32 * REGION_PAGE;
    assert!(pages <= PACKETS_IN, "the last region's page ends at {pages:#x}");
}

#[test]
fn the_map_is_the_one_that_layout_4_names() {
    // A change of any of these is another layout: LAYOUT_VALUE must change with it. What a bit of CAPABILITIES announces is none:
    // a host that does not know the bit writes and reads nothing of it.
    assert_eq!(LAYOUT_VALUE, 4);
    assert_eq!(MAGIC_VALUE.to_be_bytes(), *b"SNIC");
    assert_eq!((TABLE_VERSION, COMMIT, ABORT, COMMIT_STATUS), (0x120, 0x124, 0x128, 0x12c));
    assert_eq!((LOAD_REGION, LOAD_START, LOAD_STATUS, LOAD_ERROR), (0x40, 0x50, 0x54, 0x5c));
    assert_eq!(region(0, REGION_STATUS), 0x1000);
    assert_eq!(region(31, REGION_DIGEST), 0x2f10);
    assert_eq!((region(0, REGION_NTS), region(0, REGION_IDENTITY)), (0x1050, 0x1070));
    assert_eq!((DROPS, DAG_LOAD), (0x4010, 0x1_0000));
    assert_eq!((LATENCY_WRITTEN, LATENCY_RECORDS, LATENCY_RECORD), (0xe0, 0x4_0000, 128));
    assert_eq!((LINK_COUNT, link(1, LINK_REFUSED), CAPABILITY_LINKS), (0x118, 0x5858, 256));
    assert_eq!(dag_latency(3, DAG_LATENCY_EXPONENT), 0x6_003c);
    assert_eq!((ACTIVE_BANK, SHADOW_BANK, BANK_BYTES), (0x8_0000, 0x10_0000, 461_056));
}

#[test]
fn the_same_row_lies_at_the_same_place_of_both_banks() {
    for table in Table::ALL {
        for row in [0, 1, table.rows() as u16 - 1] {
            let key = RowKey { table, row };
            let words = table.offset() + usize::from(row) * table.row_words();
            assert_eq!(active_row(key), Some(ACTIVE_BANK + words as u32 * 4), "{key:?}");
            assert_eq!(shadow_row(key), Some(SHADOW_BANK + words as u32 * 4), "{key:?}");
        }
        let behind = RowKey { table, row: table.rows() as u16 };
        assert_eq!((active_row(behind), shadow_row(behind)), (None, None));
    }
    let stage = RowKey { table: Table::Stage, row: 3 };
    // By hand: 1024 classifier rows of 64 bytes, 1024 DAG rows of 32 bytes, three stages of 32.
    assert_eq!(shadow_row(stage), Some(0x10_0000 + 65_536 + 32_768 + 96));
}
