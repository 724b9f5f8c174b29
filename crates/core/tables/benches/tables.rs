//! Cost of a change at 1,000 DAGs: encoding all rows, comparing whole banks, comparing the
//! rows that one DAG has.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use snic_domain::limits::{CHAIN_ROWS, INSTANCE_ROWS};
use snic_tables::{
    ChainRow, DagRow, InstanceRow, NONE, RateLimiterRow, RowKey, StageRow, Steering, TableImage,
};

const DAGS: u16 = 1_000;

/// A row number of a table that has fewer rows than 1,000 such DAGs need (3,000 chains and 4,000
/// instances): the same work, over and over the same rows.
const fn wrapped(row: usize, rows: usize) -> u16 {
    (row % rows) as u16
}

/// Writes one DAG of two stages, three chains, four instances: a fork of two and an end of one
/// with two instances. Says which rows it has.
fn write_dag(image: &mut TableImage, number: u16, rate_kbps: u32) -> [RowKey; 11] {
    let stage = number * 2;
    let chain = |i: usize| wrapped(usize::from(number) * 3 + i, CHAIN_ROWS);
    let instance = |i: usize| wrapped(usize::from(number) * 4 + i, INSTANCE_ROWS);
    let fork = StageRow {
        chains: [chain(0), chain(1), NONE, NONE],
        join_mask: 0b11,
        next: stage + 1,
        last: false,
    };
    let end =
        StageRow { chains: [chain(2), NONE, NONE, NONE], join_mask: 0, next: NONE, last: true };
    let serve =
        |i: usize| InstanceRow::in_region(((usize::from(number) + i) % 32) as u8, 0b11, rate_kbps);
    let steering = Steering::RoundRobin;
    let lead = |i: usize, instances| ChainRow { first_instance: instance(i), instances, steering };
    let dag = DagRow {
        tenant: number % 50,
        uid: u32::from(number) | 1 << 10,
        first_stage: stage,
        stages: 2,
        rate_limiter: number,
        payload: false,
        configuration: 0,
        guest: None,
    };
    let limit = RateLimiterRow {
        rate_kbps,
        burst_bytes: 3_000,
        promised_kbps: 0,
        packet_bytes: 0,
        weight: 1,
    };
    let row = "the tables have room for 1,000 DAGs";
    [
        image.set(number, &dag).expect(row),
        image.set(number, &limit).expect(row),
        image.set(stage, &fork).expect(row),
        image.set(stage + 1, &end).expect(row),
        image.set(chain(0), &lead(0, 1)).expect(row),
        image.set(chain(1), &lead(1, 1)).expect(row),
        image.set(chain(2), &lead(2, 2)).expect(row),
        image.set(instance(0), &serve(0)).expect(row),
        image.set(instance(1), &serve(1)).expect(row),
        image.set(instance(2), &serve(2)).expect(row),
        image.set(instance(3), &serve(3)).expect(row),
    ]
}

fn full_image() -> TableImage {
    let mut image = TableImage::default();
    for number in 0..DAGS {
        write_dag(&mut image, number, 1_000_000);
    }
    image
}

fn tables(c: &mut Criterion) {
    let full = full_image();
    let mut changed = full.clone();
    let rows = write_dag(&mut changed, DAGS / 2, 2_000_000);

    c.bench_function("tables/encode 1,000 DAGs", |b| {
        b.iter_batched_ref(
            TableImage::default,
            |image| {
                for number in 0..DAGS {
                    black_box(write_dag(image, black_box(number), 1_000_000));
                }
            },
            BatchSize::LargeInput,
        );
    });
    c.bench_function("tables/difference of banks, one DAG of 1,000 changed", |b| {
        b.iter(|| black_box(&full).delta_to(black_box(&changed)));
    });
    c.bench_function("tables/difference of rows, one DAG of 1,000 changed", |b| {
        b.iter(|| black_box(&full).delta_of_rows(black_box(&changed), black_box(rows)));
    });
}

criterion_group!(benches, tables);
criterion_main!(benches);
