//! Banks, and the differences between them.

use proptest::prelude::*;
use snic_tables::{
    BANK_WORDS, ChainRow, CreditRow, DagRow, RateLimiterRow, RowKey, Steering, Table, TableImage,
};

use crate::strategies;

/// A row anywhere in the bank, with anything in it.
#[derive(Debug, Clone)]
struct Written {
    key: RowKey,
    words: [u32; 16],
}

fn key() -> impl Strategy<Value = RowKey> {
    (0..Table::ALL.len()).prop_flat_map(|table| {
        let table = Table::ALL[table];
        // First and last rows are where tables touch; few rows, so that images often agree.
        let last = table.rows() as u16 - 1;
        prop_oneof![0..4u16, last - 3..=last].prop_map(move |row| RowKey { table, row })
    })
}

fn written() -> impl Strategy<Value = Written> {
    let words = proptest::array::uniform16(0..3u32);
    (key(), words).prop_map(|(key, words)| Written { key, words })
}

fn image_of(rows: &[Written]) -> TableImage {
    let mut words = vec![0; BANK_WORDS];
    for Written { key, words: row } in rows {
        let at = key.offset().expect("a row of the table");
        let length = key.table.row_words();
        words[at..at + length].copy_from_slice(&row[..length]);
    }
    TableImage::from_words(words).expect("a bank")
}

fn image() -> impl Strategy<Value = (TableImage, Vec<RowKey>)> {
    proptest::collection::vec(written(), 0..12)
        .prop_map(|rows| (image_of(&rows), rows.iter().map(|row| row.key).collect()))
}

proptest! {
    #[test]
    fn a_difference_applied_gives_the_target((from, _) in image(), (target, _) in image()) {
        let delta = from.delta_to(&target);
        let mut result = from.clone();
        prop_assert_eq!(result.apply(&delta), Ok(()));
        prop_assert!(result == target);
        prop_assert_eq!(delta.is_empty(), from == target);
        for (key, words) in delta.rows() {
            prop_assert_ne!(from.row(key), words, "{:?} need not be written", key);
        }
        let words: usize = delta.rows().map(|(_, words)| words.len()).sum();
        prop_assert_eq!(words, delta.words());
    }

    #[test]
    fn the_difference_of_an_image_to_itself_is_empty((image, rows) in image()) {
        prop_assert!(image.delta_to(&image.clone()).is_empty());
        prop_assert!(image.delta_of_rows(&image.clone(), rows).is_empty());
    }

    #[test]
    fn rows_that_cover_the_difference_give_all_of_it(
        (from, left) in image(),
        (target, right) in image(),
        more in proptest::collection::vec(key(), 0..6),
    ) {
        let all = from.delta_to(&target);
        let keys: Vec<_> = more.iter().chain(&right).chain(&left).chain(&right).copied().collect();
        prop_assert_eq!(from.delta_of_rows(&target, keys), all);
    }

    #[test]
    fn a_difference_is_in_the_order_of_the_bank((from, _) in image(), (target, _) in image()) {
        let delta = from.delta_to(&target);
        let offsets: Vec<_> = delta.rows().map(|(key, _)| key.offset()).collect();
        prop_assert!(offsets.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_row_that_was_set_is_got_and_one_that_was_cleared_is_not(
        row in strategies::region(),
        at in 0..32u16,
    ) {
        let mut image = TableImage::default();
        let key = image.set(at, &row).expect("a row");
        prop_assert_eq!(key, RowKey { table: Table::Region, row: at });
        prop_assert_eq!(image.get(at), Some(row));
        prop_assert_eq!(image.rows_used(Table::Region), 1);
        prop_assert_eq!(image.clear(key), Ok(()));
        prop_assert!(image == TableImage::default());
    }
}

#[test]
fn setting_a_row_leaves_nothing_of_the_old_one() {
    let mut image = TableImage::default();
    let all = DagRow {
        tenant: u16::MAX,
        uid: u32::MAX,
        first_stage: u16::MAX,
        stages: u16::MAX,
        rate_limiter: u16::MAX,
        payload: true,
        configuration: u32::MAX,
        guest: None,
    };
    let none = DagRow {
        tenant: 0,
        uid: 0,
        first_stage: 0,
        stages: 0,
        rate_limiter: 0,
        payload: false,
        configuration: 0,
        guest: None,
    };
    image.set(0, &all).expect("a row");
    let key = image.set(0, &none).expect("a row");
    assert_eq!(image.row(key), [1 << 31, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn rows_that_a_table_does_not_have_are_refused_by_name() {
    let mut image = TableImage::default();
    let error = image
        .set(1024, &ChainRow { first_instance: 0, instances: 1, steering: Steering::RoundRobin })
        .expect_err("the table has 1024 rows");
    assert_eq!(error.to_string(), "row 1024 of table Chain: the table has no such row");
    let key = RowKey { table: Table::Credit, row: 32 };
    assert_eq!(image.clear(key).expect_err("32 rows").row, 32);
    assert_eq!(image.get::<CreditRow>(32), None);
    assert!(image.row(key).is_empty());
    assert!(image == TableImage::default());
    let beyond = RowKey { table: Table::Page, row: u16::MAX };
    assert!(image.delta_of_rows(&TableImage::default(), [beyond]).is_empty());
}

#[test]
fn a_bank_has_the_words_of_the_map_and_no_other_number() {
    // By hand from the table of rows: 1024*16 + 1024*8 + 4096*8 + 1024*4 + 2048*4 + 32*16 + 32*2
    // + 1024*4 + 8192*4.
    assert_eq!(BANK_WORDS, 115_264);
    assert!(TableImage::from_words(vec![0; BANK_WORDS - 1]).is_none());
    assert!(TableImage::from_words(vec![0; BANK_WORDS + 1]).is_none());
    assert!(TableImage::from_words(vec![0; BANK_WORDS]) == Some(TableImage::default()));
}

#[test]
fn only_what_changed_is_written() {
    let mut from = TableImage::default();
    from.set(
        7,
        &RateLimiterRow {
            rate_kbps: 1,
            burst_bytes: 1,
            promised_kbps: 0,
            packet_bytes: 0,
            weight: 1,
        },
    )
    .expect("a row");
    from.set(
        8,
        &RateLimiterRow {
            rate_kbps: 2,
            burst_bytes: 2,
            promised_kbps: 0,
            packet_bytes: 0,
            weight: 1,
        },
    )
    .expect("a row");
    let mut target = from.clone();
    let changed = target
        .set(
            8,
            &RateLimiterRow {
                rate_kbps: 3,
                burst_bytes: 2,
                promised_kbps: 0,
                packet_bytes: 0,
                weight: 1,
            },
        )
        .expect("a row");
    let delta = from.delta_to(&target);
    assert_eq!(delta.rows().collect::<Vec<_>>(), [(changed, &[1 << 31 | 1, 3, 2, 0][..])]);
    target.clear(changed).expect("a row");
    let delta = from.delta_to(&target);
    assert_eq!(delta.rows().collect::<Vec<_>>(), [(changed, &[0; 4][..])]);
    assert_eq!(delta.words(), 4);
}
