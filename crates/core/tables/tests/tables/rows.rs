//! Rows to words and back; and one row of each table as its words are documented, by hand.

use std::fmt::Debug;

use proptest::prelude::*;
use snic_tables::{
    ChainRow, ClassifierRow, CreditReservation, CreditRow, DagRow, GuardRow, Guest, InstanceRow,
    NONE, PageRow, RateLimiterRow, RegionRow, RowCodec, StageRow, Steering,
};

use crate::strategies;

fn encoded<R: RowCodec>(row: &R) -> Vec<u32> {
    let mut words = vec![0; R::TABLE.row_words()];
    row.encode(&mut words);
    words
}

macro_rules! codec_properties {
    ($($name:ident: $row:ty),* $(,)?) => { $(
        mod $name {
            use super::*;

            proptest! {
                #[test]
                fn encoding_round_trips(row in strategies::$name()) {
                    let words = encoded(&row);
                    prop_assert!(words[0] >> 31 == 1, "the valid bit: {words:x?}");
                    prop_assert_eq!(<$row>::decode(&words), Some(row));
                }

                #[test]
                fn any_words_are_decoded(
                    words in proptest::collection::vec(any::<u32>(), <$row>::TABLE.row_words()),
                ) {
                    let row = <$row>::decode(&words);
                    prop_assert_eq!(row.is_some(), words[0] >> 31 == 1);
                    // What was understood of them is a row that says the same.
                    let again = row.and_then(|row| <$row>::decode(&encoded(&row)));
                    prop_assert_eq!(again, row);
                }
            }

            #[test]
            fn zeros_are_an_empty_row() {
                assert_eq!(<$row>::decode(&vec![0; <$row>::TABLE.row_words()]), None);
            }
        }
    )* };
}

codec_properties! {
    classifier: ClassifierRow,
    dag: DagRow,
    stage: StageRow,
    chain: ChainRow,
    instance: InstanceRow,
    region: RegionRow,
    credit: CreditRow,
    rate_limiter: RateLimiterRow,
    page: PageRow,
    guard: GuardRow,
}

#[track_caller]
fn check_golden<R: RowCodec + PartialEq + Debug>(row: R, words: &[u32]) {
    let mut all = vec![0; R::TABLE.row_words()];
    all[..words.len()].copy_from_slice(words);
    assert_eq!(encoded(&row), all, "{row:?} as {:#010x?}", encoded(&row));
    assert_eq!(R::decode(&all), Some(row));
}

const MATCH_ALL: ClassifierRow = ClassifierRow {
    dag_uid: 0,
    priority: 0,
    virtual_function: None,
    vni: None,
    source: (0, 0),
    destination: (0, 0),
    protocol: None,
    source_port: None,
    destination_port: None,
    vlan: None,
};

#[test]
fn a_guard_row_in_words() {
    let row = GuardRow {
        macs: [Some([2, 0x1f, 0xc4, 0x77, 0, 3]), None, Some([0x52, 0x54, 0, 1, 2, 0xff]), None],
        vlans: Some([5, 0xffe, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1]),
        group_frames_per_second: Some(1_000),
    };
    let words = [0xe000_0005, 1_000, 0x021f_c477, 0x0003_0000, 0, 0, 0x5254_0001, 0x02ff_0000];
    let vlans = [0, 0, 0x0005_0ffe, 0, 0x0007_0000, 0, 0, 1];
    check_golden(row, &[words, vlans].concat());
    let nothing = GuardRow { macs: [None; 4], vlans: None, group_frames_per_second: None };
    check_golden(nothing, &[0x8000_0000]);
}

#[test]
fn a_classifier_row_in_words() {
    let row = ClassifierRow {
        dag_uid: 0x0040_0007,
        priority: 0x0102,
        virtual_function: Some(0x0304),
        vni: Some(0x00ab_cdef),
        source: (0x0a00_0001, 0xffff_ff00),
        destination: (0xc0a8_0000, 0xffff_0000),
        protocol: Some(17),
        source_port: Some(0x1234),
        destination_port: Some(4789),
        vlan: Some(0x0fed),
    };
    check_golden(
        row,
        &[
            0x8000_0000,
            0x0040_0007,
            0x0102_003f,
            0x0fed_0304,
            0x00ab_cdef,
            0x0a00_0001,
            0xffff_ff00,
            0xc0a8_0000,
            0xffff_0000,
            0x0000_0011,
            0x1234_12b5,
        ],
    );
}

#[test]
fn each_field_of_a_classifier_row_counts_by_its_own_bit() {
    let rows = [
        ClassifierRow { virtual_function: Some(0), ..MATCH_ALL },
        ClassifierRow { vni: Some(0), ..MATCH_ALL },
        ClassifierRow { protocol: Some(0), ..MATCH_ALL },
        ClassifierRow { source_port: Some(0), ..MATCH_ALL },
        ClassifierRow { destination_port: Some(0), ..MATCH_ALL },
        ClassifierRow { vlan: Some(0), ..MATCH_ALL },
    ];
    for (bit, row) in rows.into_iter().enumerate() {
        check_golden(row, &[1 << 31, 0, 1 << bit]);
    }
    check_golden(MATCH_ALL, &[1 << 31]);
}

#[test]
fn a_dag_row_in_words() {
    let row = DagRow {
        tenant: 0x0102,
        uid: 0xdead_beef,
        first_stage: 0x0fff,
        stages: 3,
        rate_limiter: 0x03ff,
        payload: true,
        configuration: 0x0bad_cafe,
        guest: None,
    };
    let words = [0xc000_0102, 0xdead_beef, 0x0fff_0003, 0x0000_03ff, 0x0bad_cafe];
    check_golden(row, &words);
    check_golden(
        DagRow { payload: false, configuration: 0, ..row },
        &[0x8000_0102, 0xdead_beef, 0x0fff_0003, 0x0000_03ff],
    );
}

#[test]
fn a_stage_row_in_words() {
    let fork = StageRow { chains: [1, 2, 0x0300, NONE], join_mask: 0b101, next: 9, last: false };
    check_golden(fork, &[0x8000_0503, 0x0001_0002, 0x0300_ffff, 0x0000_0009]);
    let end = StageRow { chains: [7, NONE, NONE, NONE], join_mask: 0, next: NONE, last: true };
    check_golden(end, &[0xc000_0001, 0x0007_ffff, 0xffff_ffff, 0x0000_ffff]);
    let full = StageRow { chains: [1, 2, 3, 4], join_mask: 0b1111, next: 0, last: false };
    check_golden(full, &[0x8000_0f04, 0x0001_0002, 0x0003_0004, 0]);
}

#[test]
fn a_chain_row_in_words() {
    let row = ChainRow { first_instance: 0x07ff, instances: 4, steering: Steering::RoundRobin };
    check_golden(row, &[0x8000_0004, 0x0000_07ff]);
    let row = ChainRow { steering: Steering::LeastLoaded, ..row };
    check_golden(row, &[0xc000_0004, 0x0000_07ff]);
    let row = ChainRow { steering: Steering::ByFlow, ..row };
    check_golden(row, &[0xa000_0004, 0x0000_07ff]);
}

#[test]
fn an_instance_row_in_words() {
    let row = InstanceRow::in_region(31, 0b1010_0001, 10_000_000);
    check_golden(row, &[0x8000_a11f, 0x0098_9680]);
}

#[test]
fn an_instance_on_another_card_in_words() {
    let row = InstanceRow::on_link(7, 0x0155, 10_000_000);
    check_golden(row, &[0xc155_0007, 0x0098_9680]);
    // Bits that a host without links never writes are not looked at.
    let old = InstanceRow::decode(&[0x8155_a11f, 7, 0, 0]);
    assert_eq!(old, Some(InstanceRow::in_region(31, 0b1010_0001, 7)));
}

#[test]
fn the_row_of_a_guest_in_words() {
    let row = DagRow {
        tenant: 1,
        uid: 2,
        first_stage: 3,
        stages: 1,
        rate_limiter: NONE,
        payload: false,
        configuration: 0,
        guest: Some(Guest { link: 5, home_uid: 0xdead_beef }),
    };
    check_golden(row, &[0x8000_0001, 2, 0x0003_0001, 0x8005_ffff, 0, 0xdead_beef]);
}

#[test]
fn a_region_row_in_words() {
    let row = RegionRow {
        user_nt: true,
        bitstream_tag: 0xba78_16bf,
        nts: [1, 2, 3, 4, 5, 6, 7, 0x0100_0000],
    };
    check_golden(row, &[0x8000_0100, 0xba78_16bf, 0, 0, 1, 2, 3, 4, 5, 6, 7, 0x0100_0000]);
}

#[test]
fn a_credit_row_in_words() {
    let initial = [8, 1, 0, 127, 127, 0, 2, 64];
    let row = CreditRow { initial, reservation: CreditReservation::Chain };
    // Seven bits each: 8, 1 << 7, 0 << 14, 127 << 21; 127, 0 << 7, 2 << 14, 64 << 21.
    check_golden(row, &[0x8fe0_0088, 0x0800_807f]);
    let row = CreditRow { reservation: CreditReservation::Prefix, ..row };
    check_golden(row, &[0x9fe0_0088, 0x0800_807f]);
}

#[test]
fn a_rate_limiter_row_in_words() {
    let row = RateLimiterRow {
        rate_kbps: 25_000_000,
        burst_bytes: 3_000,
        promised_kbps: 10_000_000,
        packet_bytes: 1_500,
        weight: 5,
    };
    check_golden(row, &[0x85dc_0005, 0x017d_7840, 0x0000_0bb8, 0x0098_9680]);
    let row = RateLimiterRow { packet_bytes: 0, ..row };
    check_golden(row, &[0x8000_0005, 0x017d_7840, 0x0000_0bb8, 0x0098_9680]);
    let row = RateLimiterRow { packet_bytes: 9_216, ..row };
    check_golden(row, &[0xa400_0005, 0x017d_7840, 0x0000_0bb8, 0x0098_9680]);
}

#[test]
fn a_page_row_in_words() {
    let row =
        PageRow { tenant: 0x0203, nt: 77, virtual_page: 0x1000, physical_page: 5_119, rwx: 0b011 };
    check_golden(row, &[0x8003_0203, 0x0000_004d, 0x1000_13ff]);
}

#[test]
fn columns_that_are_too_wide_do_not_run_into_their_neighbours() {
    let row = ClassifierRow { vni: Some(0xff00_0001), ..MATCH_ALL };
    assert_eq!(encoded(&row)[4], 1);
    let row = StageRow { chains: [NONE; 4], join_mask: 0xff, next: 0, last: false };
    assert_eq!(encoded(&row)[0], 0x8000_0f00);
    let initial = [128, 0, 0, 255, 0, 200, 0, 0];
    let row = CreditRow { initial, reservation: CreditReservation::Chain };
    assert_eq!(encoded(&row), [0x8fe0_007f, 0x0000_3f80], "as many credits as there can be");
    let row = PageRow { tenant: 0, nt: 0, virtual_page: 0, physical_page: 0, rwx: 0xff };
    assert_eq!(encoded(&row)[0], 0x8007_0000);
    let (rate_kbps, burst_bytes, promised_kbps) = (0, 0, 0);
    let row =
        RateLimiterRow { rate_kbps, burst_bytes, promised_kbps, packet_bytes: 0xffff, weight: 0 };
    assert_eq!(encoded(&row)[0], 0xbfff_0000);
}
