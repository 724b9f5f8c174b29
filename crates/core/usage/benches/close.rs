//! Time of one close of an interval beside accounts of DAGs that left long ago: it is to cost what was used in the interval.
//!
//! One card has 64 DAGs, and each is charged for its time. Tenants have up to 256 accounts of DAGs that left. The close is the one in
//! which a minute is over, so that pages turn and old ones are swept, too: the dearest of six.

use std::collections::BTreeMap;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use snic_domain::{CardId, DagId, DagUid, TenantId, Timestamp};
use snic_tables::CardCounters;
use snic_usage::{Book, Retention, UsageRates, UsageReading, UsageRecord, UsageWrite};

const SECOND: u64 = 1_000_000_000;
/// The beginning of an hour.
const BEGIN: u64 = 1_700_002_800 * SECOND;
const HZ: u64 = 250_000_000;
const ROWS: u16 = 64;
/// Accounts that a tenant keeps of DAGs that left.
const OF_TENANT: usize = 256;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(BEGIN + seconds * SECOND)
}

fn read(book: &mut Book, card: &CardId, seconds: u64) {
    let counters = CardCounters { cycles: Some(seconds * HZ), ..CardCounters::default() };
    let line = snic_domain::Bandwidth::from_gbps(100);
    let reading = UsageReading { now: at(seconds), clock_hz: HZ, line, counters: &counters };
    book.read(card, &reading, |_| false);
}

fn place(book: &mut Book, seconds: u64, card: &CardId, tenant: usize, uid: DagUid) {
    let tenant = TenantId::new(&format!("t{tenant}")).expect("a label");
    let dag = DagId::new("web").expect("a label");
    let rates = UsageRates { promised: 1_000_000_000, regions: 1, ..UsageRates::default() };
    book.place(at(seconds), card, (&tenant, &dag, uid), rates);
}

/// Records of a book with so many accounts of DAGs that left a day ago, and with 64 DAGs on the card.
fn records(ended: usize) -> Vec<UsageRecord> {
    let card = CardId::new("card0").expect("a label");
    let (mut book, retention) = (Book::default(), Retention::default());
    let mut records: BTreeMap<String, UsageRecord> = BTreeMap::new();
    let mut store = |book: &mut Book| {
        for write in book.take_writes() {
            match write {
                UsageWrite::Put(record) => {
                    records.insert(record.key().to_string(), record);
                }
                UsageWrite::Remove(key) => drop(records.remove(&key.to_string())),
            }
        }
    };
    book.booted(at(0), &card, 1);
    read(&mut book, &card, 0);
    book.close(at(0), &retention);
    for number in 0..ended {
        let row = number as u16 % ROWS;
        let uid = DagUid::new(row, 1 + (number / usize::from(ROWS)) as u32).expect("few");
        place(&mut book, 0, &card, number / OF_TENANT, uid);
        book.leave(at(1), &card, uid);
    }
    // Their pages turn, and the short ones of them become too old.
    for seconds in (0..2 * 86_400).step_by(600) {
        read(&mut book, &card, seconds);
        book.close(at(seconds), &retention);
        store(&mut book);
    }
    for row in 0..ROWS {
        let uid = DagUid::new(row, 1_000_000).expect("few");
        place(&mut book, 2 * 86_400, &card, usize::from(row), uid);
    }
    read(&mut book, &card, 2 * 86_400 + 1);
    book.close(at(2 * 86_400 + 10), &retention);
    store(&mut book);
    records.into_values().collect()
}

fn close(c: &mut Criterion) {
    let card = CardId::new("card0").expect("a label");
    let mut group = c.benchmark_group("close of an interval");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for ended in [0, 1_000, 10_000, 100_000] {
        let records = records(ended);
        let retention = Retention::default();
        // The first sweep after a start looks at all.
        let warm = || {
            let mut book = Book::restore(records.iter().cloned());
            book.booted(at(2 * 86_400 + 10), &card, 1);
            for seconds in [20, 30, 40, 50, 60, 70, 80, 90, 100, 110] {
                read(&mut book, &card, 2 * 86_400 + seconds);
                book.close(at(2 * 86_400 + seconds), &retention);
                book.take_writes().for_each(drop);
            }
            read(&mut book, &card, 2 * 86_400 + 120);
            book
        };
        group.bench_function(BenchmarkId::from_parameter(ended), |bencher| {
            let work = |mut book: Book| {
                book.close(at(2 * 86_400 + 120), &retention);
                (book.take_writes().collect::<Vec<_>>(), book)
            };
            bencher.iter_batched(warm, work, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, close);
criterion_main!(benches);
