//! Share of a processor's core, and memory, of the book of 1,000 tenants with two busy DAGs each: at most 1 % and 64 MiB.
//!
//! Packets, bytes and rate-limited packets of all DAGs rise with each reading, and the book takes them in ten times a second.
//! Pages are as full as they become in a day. Counted is the processor time of readings, of closes, and of the text of each record that a
//! close writes; not that of the store and of the cards. Memory is what the process has more of than before the book, with the system's
//! allocator, and beside it what of that is allocated: between closes, when pages are fullest, and most of all times, which is during the
//! close at the end of the day.

use std::alloc::System;
use std::collections::BTreeMap;
use std::time::Duration;

use cap::Cap;
use snic_domain::{Bandwidth, CardId, DagId, DagUid, TenantId, Timestamp};
use snic_tables::{CardCounters, DagCounters, DropCause};
use snic_usage::{Book, Retention, UsageRates, UsageReading, UsageRecord, UsageWrite};

const SECOND: u64 = 1_000_000_000;
/// 2026-11-02T00:00:00Z
const BEGIN: u64 = 1_793_577_600;
const HZ: u64 = 250_000_000;
const TENANTS: usize = 1_000;
const OF_TENANT: usize = 2;
const OF_CARD: usize = 1_000;
const READINGS_PER_SECOND: u64 = 10;
/// Time of the measurement: all that comes once a minute is in it.
const MEASURED: u64 = 60;
/// Last second of the day before it.
const DAY_END: u64 = 86_400 - MEASURED;
const CORE_PERCENT_MAX: f64 = 1.0;
/// Goal for the memory of the book, in mebibytes.
const MEMORY_MAX: f64 = 64.0;

/// Counts the bytes that are allocated.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes of this process in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4_096
}

fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Processor time of this thread so far: other programs on the machine do not count, as they would by a clock.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(
        text.split(' ').next().and_then(|time| time.parse().ok()).expect("nanoseconds"),
    )
}

/// Counts of a card, all of which are other ones at each time.
fn count(counters: &mut CardCounters, millis: u64) {
    counters.cycles = Some(millis * (HZ / 1_000));
    for (row, of) in &mut counters.dags {
        let packets = millis * (10 + u64::from(*row));
        let bytes = packets * 700;
        let (packets_in, bytes_intended) = (packets, bytes);
        let (packets_out, bytes_served) = (packets, bytes);
        *of = DagCounters { packets_in, bytes_intended, bytes_served, packets_out };
    }
    for (row, drops) in &mut counters.dag_drops {
        drops[DropCause::RateLimited as usize] = millis * (1 + u64::from(*row));
    }
}

/// A record's text, as the controller stores it.
fn value(record: &UsageRecord) -> Vec<u8> {
    let text = match record {
        UsageRecord::Closed(second) => serde_json::to_vec(second),
        UsageRecord::Kept(kept) => serde_json::to_vec(kept),
        UsageRecord::Card(_, saved) => serde_json::to_vec(saved),
        UsageRecord::Row(_, saved) => serde_json::to_vec(saved),
        UsageRecord::Account(_, saved) => serde_json::to_vec(saved),
        UsageRecord::OpenPage(_, _, page) | UsageRecord::FullPage(_, _, page) => {
            serde_json::to_vec(page)
        }
        UsageRecord::Month(_, usage) => serde_json::to_vec(usage),
    };
    text.expect("JSON")
}

struct Bench {
    book: Book,
    cards: Vec<CardId>,
    counters: CardCounters,
    retention: Retention,
    /// Processor time of closes with their records.
    closing: Duration,
    /// Bytes of records.
    written: usize,
}

impl Bench {
    fn new() -> Self {
        let card = |number: usize| CardId::new(&format!("card{number}")).expect("a label");
        let rows = || 0..OF_CARD as u16;
        let counters = CardCounters {
            dags: rows().map(|row| (row, DagCounters::default())).collect(),
            dag_drops: rows().map(|row| (row, Default::default())).collect(),
            ..CardCounters::default()
        };
        let mut bench = Self {
            book: Book::default(),
            cards: (0..TENANTS * OF_TENANT / OF_CARD).map(card).collect(),
            counters,
            retention: Retention::default(),
            closing: Duration::ZERO,
            written: 0,
        };
        let begin = Timestamp::from_nanos(BEGIN * SECOND);
        bench.cards.iter().for_each(|card| bench.book.booted(begin, card, 1));
        bench.read(0);
        bench.close(0);
        for number in 0..TENANTS * OF_TENANT {
            let tenant = TenantId::new(&format!("t{}", number / OF_TENANT)).expect("a label");
            let dag = DagId::new(&format!("d{}", number % OF_TENANT)).expect("a label");
            let uid = DagUid::new((number % OF_CARD) as u16, 1 + number as u32).expect("few");
            let nt = |id: &str| (id.parse().expect("a label"), 1);
            let rates = UsageRates {
                packets: 100_000,
                promised: 1_000_000_000,
                regions: 2,
                area: 10_000_000,
                memory: 64,
                functions: 1,
                nts: BTreeMap::from([nt("nat"), nt("firewall"), nt("aes")]).into(),
            };
            bench.book.place(begin, &bench.cards[number / OF_CARD], (&tenant, &dag, uid), rates);
        }
        bench
    }

    /// A reading of each card.
    fn read(&mut self, millis: u64) {
        let now = Timestamp::from_nanos(BEGIN * SECOND + millis * 1_000_000);
        count(&mut self.counters, millis);
        for card in &self.cards {
            let line = Bandwidth::from_gbps(400);
            let reading = UsageReading { now, clock_hz: HZ, line, counters: &self.counters };
            self.book.read(card, &reading, |_| true);
        }
    }

    /// A close if one is due.
    fn close(&mut self, millis: u64) {
        let begin = processor_time();
        let now = Timestamp::from_nanos(BEGIN * SECOND + millis * 1_000_000);
        self.book.close(now, &self.retention);
        for write in self.book.take_writes() {
            if let UsageWrite::Put(record) = write {
                self.written += record.key().to_string().len() + value(&record).len();
            }
        }
        self.closing += processor_time() - begin;
    }
}

fn main() {
    let (before, allocated) = (resident(), HEAP.allocated());
    let mut full = allocated;
    let mut bench = Bench::new();
    // Each hour once, each minute of the last one, and each ten seconds of the last minute: as full as pages become.
    let hours = (1..24).map(|hour| hour * 3_600).filter(|second| *second < DAY_END - 3_600);
    let last_hour = (DAY_END - 3_600..DAY_END - 60).step_by(60);
    let all = hours.chain(last_hour).chain((DAY_END - 60..=DAY_END).step_by(10));
    all.for_each(|second| {
        bench.read(second * 1_000);
        bench.close(second * 1_000);
    });
    (bench.closing, bench.written) = (Duration::ZERO, 0);
    let (mut reading, mut counting) = (Duration::ZERO, Duration::ZERO);
    for second in DAY_END..DAY_END + MEASURED {
        let begin = processor_time();
        let millis =
            (1..=READINGS_PER_SECOND).map(|at| second * 1_000 + at * 1_000 / READINGS_PER_SECOND);
        millis.clone().for_each(|millis| bench.read(millis));
        let read = processor_time();
        millis.for_each(|millis| count(&mut bench.counters, millis));
        (reading, counting) = (reading + (read - begin), counting + (processor_time() - read));
        full = full.max(HEAP.allocated());
        bench.close((second + 1) * 1_000);
    }
    let memory = resident().saturating_sub(before);
    let [memory, full, most] =
        [memory, full - allocated, HEAP.max_allocated() - allocated].map(mebibytes);
    let took = [reading.saturating_sub(counting), bench.closing];
    let [reading, closing] = took.map(|took| took.as_secs_f64() * 100.0 / MEASURED as f64);
    let accounts = bench.book.accounts().count();
    println!(
        "{accounts} accounts: {reading:.2} % of a core for readings, {closing:.2} % for closes; {memory:.1} MiB of memory, \
         {full:.1} MiB allocated between closes, {most:.1} MiB during the last one; {} bytes of records a second",
        bench.written as u64 / MEASURED
    );
    if reading + closing > CORE_PERCENT_MAX {
        println!("more than {CORE_PERCENT_MAX} % of a core");
    }
    assert!(memory.max(most) <= MEMORY_MAX, "more than {MEMORY_MAX} MiB");
}
