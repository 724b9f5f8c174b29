//! Time of a change of prices: what tenants with a budget have spent this month is computed again, in one event of the controller.
//!
//! Each tenant has two DAGs, a thousand DAGs are on a card, and their pages are as full as they become: 23 hours, 59 minutes and 50
//! seconds of a day.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use snic_domain::{Bandwidth, CardId, DagId, DagUid, TenantId, Timestamp};
use snic_tables::CardCounters;
use snic_usage::{Book, Prices, Retention, UsageRates, UsageReading};

const SECOND: u64 = 1_000_000_000;
/// 2026-11-02T00:00:00Z
const BEGIN: u64 = 1_793_577_600;
const HZ: u64 = 250_000_000;
const OF_CARD: usize = 1_000;
const OF_TENANT: usize = 2;
const PRICES: &str = r#"
    currency = "EUR"
    provider = "Example"
    [[versions]]
    name = "a"
    from = 2026-01-01T00:00:00Z
    prices = { promised_gigabits = "0.000013", region_seconds = "0.0021", gigabytes_served = "0.01", loads = "0.05" }
"#;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos((BEGIN + seconds) * SECOND)
}

fn prices() -> Option<Arc<Prices>> {
    Some(Arc::new(Prices::parse(PRICES).expect("they are valid")))
}

/// A book in which so many DAGs of tenants with budgets have been for most of a day.
fn book(dags: usize) -> Book {
    let (mut book, retention) = (Book::default(), Retention::default());
    let card = |number: usize| CardId::new(&format!("card{number}")).expect("a label");
    let cards: Vec<CardId> = (0..dags.div_ceil(OF_CARD)).map(card).collect();
    let read = |book: &mut Book, seconds: u64| {
        let counters = CardCounters { cycles: Some(seconds * HZ), ..CardCounters::default() };
        let line = Bandwidth::from_gbps(100);
        let reading = UsageReading { now: at(seconds), clock_hz: HZ, line, counters: &counters };
        cards.iter().for_each(|card| book.read(card, &reading, |_| true));
        book.close(at(seconds), &retention);
        book.take_writes().for_each(drop);
    };
    cards.iter().for_each(|card| book.booted(at(0), card, 1));
    read(&mut book, 0);
    for number in 0..dags {
        let tenant = TenantId::new(&format!("t{}", number / OF_TENANT)).expect("a label");
        let dag = DagId::new("web").expect("a label");
        let uid = DagUid::new((number % OF_CARD) as u16, 1 + number as u32).expect("few");
        let rates = UsageRates { promised: 1_000_000_000, regions: 1, ..UsageRates::default() };
        book.place(at(0), &cards[number / OF_CARD], (&tenant, &dag, uid), rates);
        book.track_spending(&tenant, Some(BEGIN));
    }
    let (hours, minutes) = ((1..=23).map(|hour| hour * 3_600), (1..=59).map(|minute| minute * 60));
    let minutes = minutes.map(|minute| 23 * 3_600 + minute);
    let seconds = (1..=5).map(|part| 23 * 3_600 + 59 * 60 + part * 10);
    hours.chain(minutes).chain(seconds).for_each(|second| read(&mut book, second));
    book
}

fn change(c: &mut Criterion) {
    let mut group = c.benchmark_group("change of prices");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for dags in [100, 1_000, 10_000] {
        let mut book = book(dags);
        group.bench_function(BenchmarkId::from_parameter(dags), |bencher| {
            bencher.iter(|| book.set_prices(prices()));
        });
        let tenant = TenantId::new("t0").expect("a label");
        let spent = book.spent(&tenant).expect("there are prices");
        assert!(spent.to_string().len() > 3, "{spent}: nothing was computed");
    }
    group.finish();
}

criterion_group!(benches, change);
criterion_main!(benches);
