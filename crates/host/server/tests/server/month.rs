//! A month of a thousand tenants, and the time that questions about it take: as a client asks them, over a connection with certificates.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prost_types::Timestamp as Time;
use snic_api::v1;
use snic_api::v1::UsageGrouping;
use snic_api::v1::usage_service_client::UsageServiceClient;
use snic_controller::{CardCounters, DagCounters};
use snic_domain::{Bandwidth, CardId, DagId, DagUid, TenantId, Timestamp};
use snic_ports::store::{Batch, Store};
use snic_usage::{Book, Retention, UsageRates, UsageReading, UsageRecord, UsageWrite};
use tonic::transport::Channel;

use crate::rig::{Rig, in_time};

const TENANTS: usize = 1_000;
const OF_TENANT: usize = 2;
const OF_CARD: usize = 1_000;
/// A tenant in the middle of all.
const ONE: &str = "t0500";
const DAYS: u64 = 31;
const DAY: u64 = 86_400;
const HZ: u64 = 250_000_000;
/// Readings after which a row is known to count no more packets of the DAG that left it, and some more.
const READINGS_AFTER: u64 = 12;
const TRIES: usize = 9;
const PAGE_SIZE: i32 = 1_000;

/// Bytes that the DAG of a row has had served after so many seconds; each has its own rate.
fn served(row: u16, second: u64) -> u64 {
    second * (1_000_000 + u64::from(row) * 7)
}

/// Counts of a card after so many seconds.
fn count(second: u64) -> CardCounters {
    // Nothing more is sent when the month is over.
    let sent = second.min(DAYS * DAY);
    let of = |row: u16| {
        let (bytes, packets) = (served(row, sent), sent * 1_000);
        let (bytes_intended, bytes_served) = (bytes, bytes);
        let dag =
            DagCounters { packets_in: packets, packets_out: packets, bytes_intended, bytes_served };
        (row, dag)
    };
    let dags = (0..OF_CARD as u16).map(of).collect();
    CardCounters { cycles: Some(second * HZ), dags, ..CardCounters::default() }
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

/// A month of cards that begins with a second.
struct Month {
    begin: u64,
    book: Book,
    cards: Vec<CardId>,
    /// Last records of each key: few of them change no more.
    records: BTreeMap<String, UsageRecord>,
}

impl Month {
    fn at(&self, second: u64) -> Timestamp {
        Timestamp::from_nanos((self.begin + second) * 1_000_000_000)
    }

    fn read(&mut self, second: u64) {
        let (now, counters, line) = (self.at(second), count(second), Bandwidth::from_gbps(100));
        let reading = UsageReading { now, clock_hz: HZ, line, counters: &counters };
        self.cards.iter().for_each(|card| self.book.read(card, &reading, |_| false));
        self.book.close(now, &Retention::default());
        for write in self.book.take_writes() {
            match write {
                UsageWrite::Put(record) => {
                    self.records.insert(record.key().to_string(), record);
                }
                UsageWrite::Remove(key) => drop(self.records.remove(&key.to_string())),
            }
        }
    }

    /// Has all DAGs come, or leave.
    fn place(&mut self, second: u64, comes: bool) {
        for number in 0..TENANTS * OF_TENANT {
            let tenant = TenantId::new(&format!("t{:04}", number / OF_TENANT)).expect("a label");
            let dag = DagId::new("web").expect("a label");
            let uid = DagUid::new((number % OF_CARD) as u16, 1 + number as u32).expect("few");
            let rates = UsageRates { promised: 1_000_000_000, regions: 1, ..UsageRates::default() };
            let (now, card) = (self.at(second), &self.cards[number / OF_CARD]);
            match comes {
                true => self.book.place(now, card, (&tenant, &dag, uid), rates),
                false => self.book.leave(now, card, uid),
            }
        }
    }

    /// Stores a month that begins with a second: closed each hour, each minute of the last one, and each ten seconds of its last minute.
    fn store(begin: u64, store: &dyn Store) {
        let card = |number: usize| format!("card{number}").parse::<CardId>().expect("a label");
        let cards: Vec<CardId> = (0..TENANTS * OF_TENANT / OF_CARD).map(card).collect();
        let mut month = Self { begin, book: Book::default(), cards, records: BTreeMap::new() };
        let booted = month.at(0);
        month.cards.iter().for_each(|card| month.book.booted(booted, card, 1));
        month.read(0);
        month.place(0, true);
        let hours = DAYS * 24 - 1;
        (1..=hours).for_each(|hour| month.read(hour * 3_600));
        (1..60).for_each(|minute| month.read(hours * 3_600 + minute * 60));
        (1..=6).for_each(|part| month.read(DAYS * DAY - 60 + part * 10));
        month.place(DAYS * DAY, false);
        (1..=READINGS_AFTER).for_each(|reading| month.read(DAYS * DAY + reading));
        let put = |batch: Batch, (key, record): (&String, &UsageRecord)| {
            batch.put(key.clone(), value(record))
        };
        store.apply(month.records.iter().fold(Batch::new(), put)).expect("it is in memory");
    }
}

fn time(second: u64) -> Option<Time> {
    Some(Time { seconds: second as i64, nanos: 0 })
}

/// All pages of a list.
async fn list(
    service: &mut UsageServiceClient<Channel>,
    mut request: v1::ListUsageRequest,
) -> Vec<v1::UsageEntry> {
    let mut usage = Vec::new();
    loop {
        let page = in_time(service.list_usage(request.clone())).await.expect("a page").into_inner();
        usage.extend(page.usage);
        if page.next_page_token.is_empty() {
            return usage;
        }
        request.page_token = page.next_page_token;
    }
}

/// Questions about the days before a second.
struct Asked {
    service: UsageServiceClient<Channel>,
    end: u64,
    /// Each question with the median of its times, its goal, and the number of entries.
    table: Vec<(&'static str, Duration, Duration, usize)>,
}

impl Asked {
    /// Entries of a list, and the median of the times that it took.
    async fn list(
        &mut self,
        (what, goal): (&'static str, u64),
        (days, step): (u64, u64),
        (tenant, by): (&str, UsageGrouping),
    ) -> Vec<v1::UsageEntry> {
        let request = v1::ListUsageRequest {
            tenant: tenant.into(),
            start_time: time(self.end - days * DAY),
            end_time: time(self.end),
            step_seconds: step,
            by: by.into(),
            page_size: PAGE_SIZE,
            ..Default::default()
        };
        let (mut times, mut usage) = (Vec::new(), Vec::new());
        for _ in 0..TRIES {
            let begun = Instant::now();
            usage = list(&mut self.service, request.clone()).await;
            times.push(begun.elapsed());
        }
        self.note((what, goal), times, usage.len());
        usage
    }

    /// Steps of one tenant, in the same way.
    async fn get(&mut self, (what, goal): (&'static str, u64), (days, step): (u64, u64)) {
        let request = v1::GetUsageRequest {
            name: format!("tenants/{ONE}"),
            start_time: time(self.end - days * DAY),
            end_time: time(self.end),
            step_seconds: step,
        };
        let (mut times, mut steps) = (Vec::new(), 0);
        for _ in 0..TRIES {
            let begun = Instant::now();
            let reply = in_time(self.service.get_usage(request.clone())).await;
            steps = reply.expect("its usage").into_inner().steps.len();
            times.push(begun.elapsed());
        }
        assert_eq!(steps as u64, days * DAY / step, "{what}");
        self.note((what, goal), times, steps);
    }

    fn note(
        &mut self,
        (what, goal): (&'static str, u64),
        mut times: Vec<Duration>,
        entries: usize,
    ) {
        times.sort_unstable();
        self.table.push((what, times[TRIES / 2], Duration::from_millis(goal), entries));
    }
}

/// Goals of a release build: 50 ms for a day, a second for a month, of all tenants, to the last page. Debug builds only print their times.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: makes a month of usage, for minutes in a debug build"]
async fn a_month_of_a_thousand_tenants_is_read_quickly_and_adds_up() {
    let rig = Rig::start().await;
    let mut root = rig.client("operator/root").await;
    root.create_tenant(ONE).await.expect("a tenant");
    // The month lies ahead: what was used before a tenant was created is of an earlier one with its name.
    let now = snic_front::wall_clock().as_nanos() / 1_000_000_000;
    let begin = (now / DAY + 1) * DAY;
    let rig = rig.restarted_with(|store| Month::store(begin, store)).await;
    let root = rig.client("operator/root").await;
    let service = UsageServiceClient::new(root.channel.clone());
    let mut asked = Asked { service, end: begin + DAYS * DAY, table: Vec::new() };
    let (day, month, hour) = ((1, 0), (DAYS, 0), 3_600);
    let (tenant, dag) = (UsageGrouping::Tenant, UsageGrouping::Dag);

    asked.list(("a day of all, by tenant", 50), day, ("", tenant)).await;
    asked.list(("a day of all, by DAG", 50), day, ("", dag)).await;
    asked.get(("a day of one, by hour", 50), (1, hour)).await;
    let one = format!("tenants/{ONE}");
    asked.list(("a day of one, by minute", 50), (1, 60), (&one, dag)).await;
    let all = asked.list(("a month of all, by tenant", 1_000), month, ("", tenant)).await;
    let of_dags = asked.list(("a month of all, by DAG", 1_000), month, ("", dag)).await;
    asked.get(("a month of one, by day", 1_000), (DAYS, DAY)).await;
    asked.get(("a month of one, by hour", 1_000), (DAYS, hour)).await;
    rig.stop().await;

    let counted = (0..OF_CARD as u16).map(|row| served(row, DAYS * DAY)).sum::<u64>();
    for (usage, entries) in [(all, TENANTS), (of_dags, TENANTS * OF_TENANT)] {
        assert_eq!(usage.len(), entries);
        let sum: u64 = usage.iter().map(|entry| entry.bytes_served).sum();
        assert_eq!(sum, 2 * counted, "to the byte");
    }
    let shown = asked.table.iter().map(|(what, took, goal, entries)| {
        format!("{what}: {took:.1?}, {entries} entries, goal {goal:?}\n")
    });
    snic_output::complain!("{}", shown.collect::<String>());
    if !cfg!(debug_assertions) {
        let late: Vec<_> = asked.table.iter().filter(|(_, took, goal, _)| took > goal).collect();
        assert!(late.is_empty(), "{late:?}");
    }
}
