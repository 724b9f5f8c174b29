//! The two banks and the commit.

use snic_domain::{Bandwidth, DagSpec, DagUid, NtConfiguration};
use snic_tables::registers::*;
use snic_tables::{
    BANK_WORDS, DagConfiguration, PageRow, RateLimiterRow, RowKey, Table, TableDelta, TableImage,
};

use super::{Fixture, Needed, Rig};

/// Rows of two tables, the last of the bank among them.
pub(super) fn target(rate_kbps: u32) -> TableImage {
    let mut image = TableImage::default();
    let row = "the tables have this row";
    for number in [0, 7, 1023] {
        image
            .set(
                number,
                &RateLimiterRow {
                    rate_kbps,
                    burst_bytes: 9_000,
                    promised_kbps: 0,
                    packet_bytes: 0,
                    weight: 1,
                },
            )
            .expect(row);
    }
    let page = PageRow { tenant: 1, nt: 2, virtual_page: 3, physical_page: 4, rwx: 3 };
    image.set(Table::Page.rows() as u16 - 1, &page).expect(row);
    image
}

fn delta(rate_kbps: u32) -> TableDelta {
    TableImage::default().delta_to(&target(rate_kbps))
}

#[track_caller]
pub(super) fn write_shadow(rig: &mut Rig, delta: &TableDelta) {
    for (key, words) in delta.rows() {
        let at = shadow_row(key).expect("a delta has only rows that the tables have");
        rig.card.write_block(at, words).needed(&format!("writing {key:?}"));
    }
}

#[track_caller]
pub(super) fn bank(rig: &mut Rig, at: Address) -> TableImage {
    TableImage::from_words(rig.read_words(at, BANK_WORDS)).expect("as many words as a bank has")
}

#[track_caller]
fn commit(rig: &mut Rig) -> u32 {
    let version = rig.read(TABLE_VERSION) + 1;
    rig.write(COMMIT, version);
    assert_eq!(rest(rig), COMMIT_IDLE, "the commit's end");
    assert_eq!(rig.read(TABLE_VERSION), version, "the version after the commit");
    version
}

/// Ends a commit or an abort: the card may take its time for either.
#[track_caller]
fn rest(rig: &mut Rig) -> u32 {
    rig.while_it_reads(COMMIT_STATUS, COMMIT_BUSY)
}

#[track_caller]
fn abort(rig: &mut Rig) {
    rig.write(ABORT, 1);
    assert_eq!(rest(rig), COMMIT_IDLE, "the abort's end");
}

/// Whichever way they are written, whichever way they are read. All words of such a row have columns; others need not be kept.
pub fn blocks_are_the_same_words_as_single_accesses(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let at = shadow_row(RowKey { table: Table::RateLimiter, row: 100 }).expect("a row");
    rig.card.write_block(at, &[1, 2, 3, 4]).needed("a block");
    assert_eq!([0, 4, 8, 12].map(|offset| rig.read(at + offset)), [1, 2, 3, 4]);
    for (offset, word) in [(0, 5), (4, 6), (8, 7), (12, 8)] {
        rig.write(at + offset, word);
    }
    assert_eq!(rig.read_words(at, 4), [5, 6, 7, 8]);
    assert_eq!(rig.read_words(at - 4, 1), [0], "the row before");
    assert_eq!(rig.read_words(at + 16, 1), [0], "the row behind");
}

/// Any number of blocks, short and long, in any order.
pub fn several_blocks_are_the_same_words_as_single_accesses(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let at = shadow_row(RowKey { table: Table::RateLimiter, row: 50 }).expect("a row");
    let words: Vec<u32> = (1..=40).collect();
    rig.card.write_block(at, &words).needed("a block");
    let (mut version, mut magic, mut none) = ([7], [0], []);
    let (mut long, mut end) = ([0; 30], [0; 3]);
    let blocks: &mut [(Address, &mut [u32])] = &mut [
        (MAGIC, &mut magic),
        (at + 4, &mut long),
        (TABLE_VERSION, &mut version),
        (MAGIC, &mut none),
        (at + 4 * 37, &mut end),
    ];
    rig.card.read_blocks(blocks).needed("several blocks");
    assert_eq!((magic, version), ([MAGIC_VALUE], [rig.read(TABLE_VERSION)]));
    assert_eq!((&long[..], end), (&words[1..31], [38, 39, 40]));
    let mut outside = [0];
    let refused =
        rig.card.read_blocks(&mut [(MAGIC, &mut magic), (Address::MAX & !3, &mut outside)]);
    assert!(refused.is_err(), "a block outside the map is refused");
}

/// The shadow bank holds them, the active one does not, and its version stays.
pub fn shadow_writes_are_invisible_until_the_commit(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let version = rig.read(TABLE_VERSION);
    write_shadow(&mut rig, &delta(5));
    rig.tick();
    rig.card.poll(rig.now).needed("a poll");
    assert_eq!(bank(&mut rig, ACTIVE_BANK), TableImage::default(), "the active bank");
    assert_eq!(bank(&mut rig, SHADOW_BANK), target(5), "the shadow bank");
    assert_eq!(rig.read(TABLE_VERSION), version);
    commit(&mut rig);
    assert_eq!(bank(&mut rig, ACTIVE_BANK), target(5), "the active bank after the commit");
}

/// So that the next difference can be written over it.
pub fn after_a_commit_both_banks_are_the_same(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    write_shadow(&mut rig, &delta(5));
    commit(&mut rig);
    assert_eq!(bank(&mut rig, SHADOW_BANK), target(5));
    assert_eq!(bank(&mut rig, ACTIVE_BANK), target(5));
}

/// And leaves version and active bank alone.
pub fn an_abort_discards_shadow_writes(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    write_shadow(&mut rig, &delta(5));
    let version = commit(&mut rig);
    write_shadow(&mut rig, &target(5).delta_to(&target(6)));
    abort(&mut rig);
    assert_eq!(bank(&mut rig, SHADOW_BANK), target(5), "the shadow bank");
    assert_eq!(bank(&mut rig, ACTIVE_BANK), target(5), "the active bank");
    assert_eq!(rig.read(TABLE_VERSION), version);
    commit(&mut rig);
    assert_eq!(bank(&mut rig, ACTIVE_BANK), target(5), "after a commit of nothing");
}

/// Old packets may still read that bank, and rows are being copied into it.
pub fn rows_written_while_a_commit_is_busy_are_ignored(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    write_shadow(&mut rig, &delta(5));
    let version = rig.read(TABLE_VERSION) + 1;
    rig.write(COMMIT, version);
    let was_busy = rig.read(COMMIT_STATUS) == COMMIT_BUSY;
    write_shadow(&mut rig, &delta(6));
    let is_busy = rig.read(COMMIT_STATUS) == COMMIT_BUSY;
    assert_eq!(rest(&mut rig), COMMIT_IDLE, "the commit's end");
    assert_eq!(bank(&mut rig, ACTIVE_BANK), target(5), "the active bank");
    if was_busy && is_busy {
        assert_eq!(bank(&mut rig, SHADOW_BANK), target(5), "the shadow bank");
    }
    abort(&mut rig);
    assert_eq!(bank(&mut rig, SHADOW_BANK), target(5), "the shadow bank after an abort");
}

/// The one that is active, the one after the next, none: refused, nothing changed.
pub fn a_commit_of_another_version_is_refused(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    let version = rig.read(TABLE_VERSION);
    write_shadow(&mut rig, &delta(5));
    for other in [version, version.wrapping_add(2), version.wrapping_sub(1), !version] {
        rig.write(COMMIT, other);
        assert_eq!(rig.read(COMMIT_STATUS), COMMIT_REFUSED, "a commit of version {other}");
        assert_eq!(rig.read(TABLE_VERSION), version, "after a refused commit of {other}");
        assert_eq!(bank(&mut rig, ACTIVE_BANK), TableImage::default());
    }
    abort(&mut rig);
    write_shadow(&mut rig, &delta(6));
    commit(&mut rig);
    assert_eq!(bank(&mut rig, ACTIVE_BANK), target(6), "a commit of the next version");
}

/// Only differences are written.
pub fn a_second_commit_keeps_the_rows_of_the_first(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    write_shadow(&mut rig, &delta(5));
    commit(&mut rig);
    let mut second = target(5);
    second.clear(RowKey { table: Table::RateLimiter, row: 7 }).expect("a row");
    second
        .set(
            8,
            &RateLimiterRow {
                rate_kbps: 1,
                burst_bytes: 2,
                promised_kbps: 0,
                packet_bytes: 0,
                weight: 1,
            },
        )
        .expect("a row");
    write_shadow(&mut rig, &target(5).delta_to(&second));
    commit(&mut rig);
    assert_eq!(bank(&mut rig, ACTIVE_BANK), second);
    assert_eq!(bank(&mut rig, SHADOW_BANK), second);
}

/// Where the shell takes configurations at all.
pub fn a_configuration_is_taken_whole_or_refused(fixture: Fixture) {
    let mut rig = Rig::new(fixture);
    if rig.read(CAPABILITIES) & CAPABILITY_CONFIGURE == 0 {
        return;
    }
    let nt = ["nat".parse().expect("a label")];
    let mut spec = DagSpec::chain(&nt, Bandwidth::from_gbps(1));
    spec.nodes[0].configuration = Some(NtConfiguration::new("{}"));
    let uid = DagUid::new(3, 1).expect("it fits");
    let configuration =
        DagConfiguration::of(uid, &spec, |_| snic_domain::NtNumber(1)).expect("it has one");
    let bytes = configuration.bytes();
    assert_eq!(rig.read(CONFIGURE_STATUS), CONFIGURE_IDLE);
    let (whole, tag) = (bytes.len() as u32, configuration.tag());
    let cases = [
        (bytes, whole, tag, CONFIGURE_DONE),
        (bytes, whole - 1, tag, CONFIGURE_REFUSED),
        (bytes, whole, tag ^ 1, CONFIGURE_REFUSED),
        (&bytes[1..], whole - 1, tag, CONFIGURE_REFUSED),
        (bytes, whole + 1, tag, CONFIGURE_REFUSED),
        (bytes, whole, tag, CONFIGURE_DONE),
    ];
    for (bytes, length, tag, expected) in cases {
        let buffer = rig.card.stage(bytes).needed("a buffer");
        rig.write(CONFIGURE_BUFFER_LOW, buffer as u32);
        rig.write(CONFIGURE_BUFFER_HIGH, (buffer >> 32) as u32);
        rig.write(CONFIGURE_BYTES, length);
        rig.write(CONFIGURE_UID, uid.raw());
        rig.write(CONFIGURE_TAG, tag);
        rig.write(CONFIGURE_START, 1);
        assert_eq!(rig.read(CONFIGURE_STATUS), expected, "{length} bytes, tag {tag:#x}");
        rig.card.release(buffer).needed("the buffer back");
    }
}
