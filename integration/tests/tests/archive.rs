//! `snicctl usage archive` at a daemon whose store has months of usage: another program adds up the files of each length to what the
//! daemon says.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::SystemTime;

use snic_domain::{Bandwidth, CardId, DagUid, Timestamp};
use snic_integration::{Home, commands, furnished};
use snic_ports::store::{Batch, Store as _};
use snic_store_sled::{SledOptions, SledStore};
use snic_tables::{CardCounters, DagCounters};
use snic_usage::{Book, Retention, UsageRates, UsageReading, UsageRecord, UsageWrite};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
const HZ: u64 = 1_000;

/// Ages of the largest sites.
const AGES: Retention = Retention { fine: DAY, minute: 31 * DAY, hour: 731 * DAY };
const POLICIES: &str = "[usage]\nkeep_10s_hours = 24\nkeep_1m_days = 31\nkeep_1h_days = 731\n";

/// Adds up each column of numbers of the files of a folder, but times and numbers of DAGs.
const SUMS: &str = "
import duckdb, sys
usage = duckdb.read_parquet(sys.argv[1] + '/*.parquet')
names = [n for n, t in zip(usage.columns, map(str, usage.types)) if t == 'UBIGINT' and n != 'uid']
sums = duckdb.sql('SELECT ' + ', '.join(f'sum({name})' for name in names) + ' FROM usage').fetchone()
for name, value in zip(names, sums):
    print(name, value)
";

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// Seconds at which a book is closed: each hour of 100 days, each minute of three days, each ten seconds of six hours.
fn closes(now: u64) -> Vec<u64> {
    let mut at = now / HOUR * HOUR - 100 * DAY;
    let mut all = Vec::new();
    while at <= now {
        all.push(at);
        at += match now - at {
            age if age > 3 * DAY => HOUR,
            age if age > 6 * HOUR => 60,
            _ => 10,
        };
    }
    all
}

fn encode(record: &UsageRecord) -> Vec<u8> {
    match record {
        UsageRecord::Closed(second) => serde_json::to_vec(second),
        UsageRecord::Kept(kept) => serde_json::to_vec(kept),
        UsageRecord::Card(_, saved) => serde_json::to_vec(saved),
        UsageRecord::Row(_, saved) => serde_json::to_vec(saved),
        UsageRecord::Account(_, saved) => serde_json::to_vec(saved),
        UsageRecord::OpenPage(_, _, page) | UsageRecord::FullPage(_, _, page) => {
            serde_json::to_vec(page)
        }
        UsageRecord::Month(_, usage) => serde_json::to_vec(usage),
    }
    .expect("a record")
}

fn count(second: u64, row: u16) -> (u16, DagCounters) {
    let packets = (u64::from(row) + 1) * second / 7;
    let of = |bytes: u64| packets * bytes;
    let (bytes_intended, bytes_served) = (of(1_010), of(1_000));
    (row, DagCounters { packets_in: packets, bytes_intended, bytes_served, packets_out: packets })
}

/// Months of usage of a card that the host does not have any more, as records.
fn records(ages: &Retention, closes: &[u64]) -> BTreeMap<String, Vec<u8>> {
    let card: CardId = "old0".parse().expect("a label");
    let (mut book, mut records) = (Book::default(), BTreeMap::new());
    let uid = |row: u16| DagUid::new(row, 1).expect("few");
    for (number, second) in closes.iter().enumerate() {
        let at = Timestamp::from_nanos(second * 1_000_000_000);
        if number == 0 {
            book.booted(at, &card, 1);
        }
        let since = second - closes[0];
        let counters = CardCounters {
            cycles: Some(since * HZ),
            dags: (0..3).map(|row| count(since, row)).collect(),
            ..CardCounters::default()
        };
        let line = Bandwidth::from_gbps(100);
        let reading = UsageReading { now: at, clock_hz: HZ, line, counters: &counters };
        book.read(&card, &reading, |_| true);
        for row in 0..3 {
            let tenant = if row == 0 { "globex" } else { "acme" }.parse().expect("a label");
            let dag = format!("d{row}").parse().expect("a label");
            if number == 0 {
                let rates =
                    UsageRates { promised: 1_000_000_007, regions: 1, ..Default::default() };
                book.place(at, &card, (&tenant, &dag, uid(row)), rates);
            } else if number + 1 == closes.len() {
                book.leave(at, &card, uid(row));
            }
        }
        book.close(at, ages);
        for write in book.take_writes() {
            match write {
                UsageWrite::Put(record) => {
                    records.insert(record.key().to_string(), encode(&record));
                }
                UsageWrite::Remove(key) => drop(records.remove(&key.to_string())),
            }
        }
    }
    records
}

/// Puts records into the store of a daemon that does not run.
fn fill(home: &Home, records: BTreeMap<String, Vec<u8>>) {
    let opened = SledStore::open(&home.path().join("store"), SledOptions::default());
    let store = opened.expect("no daemon runs").store;
    let bytes: usize = records.iter().map(|(key, value)| key.len() + value.len()).sum();
    println!("{} records of usage, {bytes} bytes", records.len());
    let records: Vec<(String, Vec<u8>)> = records.into_iter().collect();
    for some in records.chunks(1_000) {
        let put = |batch: Batch, (key, value): &(String, Vec<u8>)| batch.put(key, value.clone());
        store.apply(some.iter().fold(Batch::new(), put)).expect("there is room");
    }
    store.close();
}

/// Sums of all numbers of the daemon's own usage in a range, by column.
fn totals(home: &Home, from: &str, to: &str) -> BTreeMap<String, u128> {
    let export = format!("usage export --by tenant --from {from} --to {to}");
    let said = commands::operate(home, &export).expect("it serves");
    let mut lines = said.lines();
    let heading: Vec<&str> = lines.next().expect("a heading").split(',').collect();
    let mut sums = BTreeMap::new();
    for line in lines {
        for (name, value) in heading.iter().zip(line.split(',')) {
            if let Ok(value) = value.parse::<u128>() {
                *sums.entry((*name).to_owned()).or_default() += value;
            }
        }
    }
    sums
}

/// Beginning of the time that a file is named after, in seconds.
fn begin(name: &str) -> String {
    let rest = match name.len() {
        13 => ":00:00Z",
        10 => "T00:00:00Z",
        _ => "-01T00:00:00Z",
    };
    format!("{name}{rest}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_program_adds_up_an_archive_to_what_the_daemon_says() {
    let home = Home::new();
    let environment = home.path().join("python");
    let run = |command: &mut Command| {
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let python = environment.join("bin/python");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "duckdb==1.5.6"]));

    let policies = home.path().join("policies");
    std::fs::create_dir(&policies).expect("made");
    std::fs::write(policies.join("admission.toml"), POLICIES).expect("written");
    let settings = std::fs::read_to_string(home.settings()).expect("settings");
    let settings = format!("policies_dir = {policies:?}\n{settings}");
    std::fs::write(home.settings(), settings).expect("settings");
    let daemon = home.start().await;
    drop(furnished(&home, &[]).await);
    drop(daemon.stop());
    let now = now();
    fill(&home, records(&AGES, &closes(now)));
    let daemon = home.start().await;

    let archive = home.path().join("archive");
    let words =
        format!("usage archive --directory {} --keep-1m 20d --keep-1h 80d", archive.display());
    let said = commands::operate(&home, &words).expect("nothing is missing");
    println!("{said}");
    for (folder, least) in [("ten-seconds", 5), ("minutes", 19), ("hours", 1)] {
        let folder = archive.join(folder);
        let names = std::fs::read_dir(&folder).expect("a folder");
        let names = names.map(|name| name.expect("an entry").file_name());
        let name =
            |name: std::ffi::OsString| Some(name.to_str()?.strip_suffix(".parquet")?.to_owned());
        let mut names: Vec<String> = names.filter_map(name).collect();
        names.sort();
        assert!(names.len() >= least, "{names:?}");
        let first = begin(&names[0]);
        // The end of the last file is the beginning of the range that is not over.
        let seconds = match names[0].len() {
            13 => now / HOUR * HOUR,
            10 => now / DAY * DAY,
            _ => snic_usage::month(now).0,
        };
        let sums = run(Command::new(&python).args(["-c", SUMS]).arg(&folder));
        let found: BTreeMap<String, u128> = sums
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
            .collect();
        let mut due = totals(&home, &first, &snic_usage::utc(seconds));
        due.retain(|name, _| name != "uid");
        assert!(found["bytes_in"] > 0 && found["life_ms"] > 0, "{found:?}");
        assert_eq!(found, due, "{} files from {first} on", names.len());
        println!("{}: {} files, {} bytes in", folder.display(), names.len(), found["bytes_in"]);
    }
    let again = commands::operate(&home, &words).expect("nothing is missing");
    assert_eq!(again, "", "each file is written once");
    drop(daemon.stop());
}

/// Seconds and the most memory of a start with what is kept of a hundred busy DAGs, and of one without usage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: writes a gigabyte"]
async fn a_start_with_two_years_of_a_hundred_dags() {
    let now = now();
    let of_ages = |ages: Retention| {
        let mut at = now / HOUR * HOUR - ages.hour;
        let mut closes = Vec::new();
        while at <= now {
            closes.push(at);
            at += match now - at {
                age if age > ages.minute + DAY => HOUR,
                age if age > ages.fine + HOUR => 60,
                _ => 10,
            };
        }
        records(&ages, &closes)
    };
    for (name, ages) in [("default ages", Retention::default()), ("long ages", AGES)] {
        let home = Home::new();
        let daemon = home.start().await;
        drop(furnished(&home, &[]).await);
        drop(daemon.stop());
        let one = of_ages(ages);
        let page = |(key, value): (&String, &Vec<u8>), dag: u32| {
            let (account, rest) = key.strip_prefix("usage/old0/dag/")?.split_once('/')?;
            let uid = u32::from_str_radix(account, 16).expect("a UID") + dag * 0x1_0000;
            Some((format!("usage/old0/dag/{uid:08x}/{rest}"), value.clone()))
        };
        // One of the three DAGs, a hundred times.
        let own = DagUid::new(1, 1).expect("one");
        let of_dag = format!("usage/old0/dag/{:08x}/", own.raw());
        let pages: Vec<_> = one.iter().filter(|(key, _)| key.starts_with(&of_dag)).collect();
        let all: BTreeMap<_, _> =
            (0..100).flat_map(|dag| pages.iter().filter_map(move |of| page(*of, dag))).collect();
        let start = async |what: &str| {
            let begun = std::time::Instant::now();
            let daemon = home.start().await;
            let took = begun.elapsed();
            let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id()));
            let status = status.expect("it runs");
            let most = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
            println!("{name}, {what}: started in {took:?}, {most}");
            drop(daemon.stop());
        };
        start("no usage").await;
        fill(&home, all);
        start("a hundred DAGs").await;
    }
}
