//! The book against a list of all that happened, added up.

mod ages;
mod beyond;
mod promises;
mod spending;
mod tenants;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use snic_domain::{Bandwidth, CardId, DagId, DagUid, NtTypeId, TenantId, Timestamp};
use snic_tables::{CardCounters, DagCounters, DropCause};

use crate::{
    ACCOUNT_NTS_MAX, AccountKey, AccountPart, Book, Gap, IntervalLevel, Meter, ReadPage, Retention,
    SavedAccount, SavedCard, SavedRow, UsageAmounts, UsageKey, UsagePage, UsageRates, UsageReading,
    UsageRecord, UsageSeries, UsageWrite,
};

const SECOND: u64 = 1_000_000_000;
/// Time at which tests begin: in the middle of a minute, an hour and a day.
const BEGIN: u64 = 1_700_000_003 * SECOND;
/// Cycles a second that are no divisor of a nanosecond.
const HZ: u64 = 322_265_625;

fn card() -> CardId {
    CardId::new("card0").expect("a label")
}

fn tenant() -> TenantId {
    TenantId::new("acme").expect("a label")
}

fn dag() -> DagId {
    DagId::new("web").expect("a label")
}

/// Types of NTs: more than an account counts by themselves.
const TYPES: u64 = 20;

fn nt(number: u64) -> NtTypeId {
    NtTypeId::new(&format!("nt{number}")).expect("a label")
}

/// Instances of each type that a promise takes; not all have the same ones.
fn instances(promised: u64) -> BTreeMap<NtTypeId, u32> {
    let second = (nt(promised / 7 % TYPES), 2);
    [(nt(promised % TYPES), 1), second].into()
}

fn rates(promised: u64) -> UsageRates {
    UsageRates {
        promised,
        packets: promised / 10_000,
        regions: 2,
        area: promised / 40,
        memory: promised % 7 * 2,
        functions: (promised % 3) as u32,
        nts: instances(promised).into(),
    }
}

fn key_of(uid: DagUid) -> AccountKey {
    AccountKey::on(&card(), AccountPart::Dag(uid))
}

/// Content of a store: values as JSON, so that each record is written and read back.
#[derive(Debug, Clone, Default)]
struct Records(BTreeMap<String, String>);

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("a record")
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl Records {
    /// Returns the number of bytes that are written.
    fn apply(&mut self, writes: impl IntoIterator<Item = UsageWrite>) -> usize {
        let mut written = 0;
        for write in writes {
            match write {
                UsageWrite::Remove(key) => drop(self.0.remove(&key.to_string())),
                UsageWrite::Put(record) => {
                    let value = match &record {
                        UsageRecord::Closed(second) => json(second),
                        UsageRecord::Kept(kept) => json(kept),
                        UsageRecord::Card(_, saved) => json(saved),
                        UsageRecord::Row(_, saved) => json(saved),
                        UsageRecord::Account(_, saved) => json(saved),
                        UsageRecord::OpenPage(_, _, page) | UsageRecord::FullPage(_, _, page) => {
                            json(page)
                        }
                        UsageRecord::Month(_, usage) => json(usage),
                    };
                    let key = record.key().to_string();
                    written += key.len() + value.len();
                    let full = matches!(record, UsageRecord::FullPage(..));
                    let before = self.0.insert(key.clone(), value);
                    assert!(!full || before.is_none(), "{key} was written before");
                }
            }
        }
        written
    }

    /// All records but full pages, which a start does not read.
    fn restore(&self) -> Book {
        Book::restore(self.0.iter().filter_map(|(key, value)| {
            assert!(UsageKey::parse(key).is_some_and(|parsed| parsed.to_string() == *key), "{key}");
            Some(match UsageKey::parse(key)? {
                UsageKey::Closed => UsageRecord::Closed(read(value)),
                UsageKey::Kept => UsageRecord::Kept(read(value)),
                UsageKey::Card(card) => UsageRecord::Card(card, read::<SavedCard>(value)),
                UsageKey::Row(card, _) => UsageRecord::Row(card, Box::new(read::<SavedRow>(value))),
                UsageKey::Account(key) => {
                    UsageRecord::Account(key, Box::new(read::<SavedAccount>(value)))
                }
                UsageKey::OpenPage(key, level) => UsageRecord::OpenPage(key, level, read(value)),
                UsageKey::Month(key) => UsageRecord::Month(key, read(value)),
                UsageKey::FullPage(..) => return None,
            })
        }))
    }

    fn page(&self, key: UsageKey) -> Option<UsagePage> {
        self.0.get(&key.to_string()).map(|value| read(value))
    }

    /// All that an account has: its open interval, its shortest page, and everything of longer intervals.
    fn billed(&self, key: &AccountKey, retention: &Retention) -> UsageAmounts {
        // Where the clock was set back, intervals are ahead of it for a while.
        let now = self.0.get(&UsageKey::Closed.to_string()).map_or(0, |closed| read(closed));
        let Some(account) = self.0.get(&UsageKey::Account(key.clone()).to_string()) else {
            return UsageAmounts::default();
        };
        let account: SavedAccount = read(account);
        let mut sum = account.open;
        for point in self.series(key, &account, retention, (now, u64::MAX)) {
            sum.add_all(&point.1);
        }
        sum
    }

    /// Steps of the account's whole life, by the intervals that are kept.
    fn series(
        &self,
        key: &AccountKey,
        account: &SavedAccount,
        retention: &Retention,
        (now, step): (u64, u64),
    ) -> BTreeMap<u64, UsageAmounts> {
        let (from, to) = (0, now + 10 * 86_400);
        let prefix = format!("{}{key}/", UsageKey::FULL_PAGES);
        let full = self.0.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let full: Vec<(IntervalLevel, ReadPage)> = full
            .filter_map(|(key, page)| match UsageKey::parse(key)? {
                UsageKey::FullPage(_, level, _) => Some((level, read(page))),
                _ => None,
            })
            .collect();
        let mut series = UsageSeries::new(from, to, step);
        for range in retention.kept(now).ranges(from, to) {
            let of_level = full.iter().filter(|(level, _)| *level == range.level);
            of_level.for_each(|(_, page)| series.add_read(range, page));
            let open = match range.level {
                IntervalLevel::Fine => account.fine.clone(),
                level => self.page(UsageKey::OpenPage(key.clone(), level)).unwrap_or_default(),
            };
            series.add(range, &open);
        }
        series.points().map(|point| (point.from, point.amounts)).collect()
    }
}

/// Event of a card or its daemon.
#[derive(Debug, Clone)]
enum Act {
    /// Packets of a DAG come in; some are dropped, and some are still under way at the next reading.
    Packets {
        which: usize,
        packets: u64,
        bytes: u64,
        dropped: u64,
    },
    Pass {
        millis: u64,
    },
    Read,
    Place {
        promised: u64,
    },
    Change {
        which: usize,
        promised: u64,
    },
    Leave {
        which: usize,
    },
    /// Regions are loaded for a DAG.
    Load {
        which: usize,
        loads: u32,
    },
    /// The daemon dies; all but the last batches are durable, and it starts again after a while, its clock set by so much.
    Crash {
        lost: usize,
        millis: u64,
        clock: i64,
    },
    PowerCycle,
    /// Counters begin again without a boot, which no card should do.
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    let clock = prop_oneof![
        6 => Just(0_i64),
        1 => Just(-86_400_000),
        1 => Just(86_400_000),
        1 => -30_000_i64..30_000
    ];
    prop_oneof![
        8 => (0_usize..8, 1_u64..100, 60_u64..2_000, 0_u64..5)
            .prop_map(|(which, packets, bytes, dropped)| Act::Packets { which, packets, bytes, dropped }),
        8 => (1_u64..15_000).prop_map(|millis| Act::Pass { millis }),
        4 => Just(Act::Read),
        3 => (1_u64..40_000_000_000).prop_map(|promised| Act::Place { promised }),
        1 => (0_usize..8, 1_u64..40_000_000_000)
            .prop_map(|(which, promised)| Act::Change { which, promised }),
        3 => (0_usize..8).prop_map(|which| Act::Leave { which }),
        2 => (0_usize..8, 1_u32..5).prop_map(|(which, loads)| Act::Load { which, loads }),
        2 => (0_usize..4, 0_u64..200_000, clock)
            .prop_map(|(lost, millis, clock)| Act::Crash { lost, millis, clock }),
        1 => Just(Act::PowerCycle),
    ]
}

/// DAGs on the card, with what each was promised.
type Dags = BTreeMap<DagUid, u64>;

/// DAGs after a batch, the lengths of the lists of promises and loads, and the time.
type Truth = (Dags, [usize; 2], u64);

/// A card, its daemon, and the list of all that happened.
struct World {
    book: Book,
    records: Records,
    /// Batches that are not durable, and what is true after each.
    batches: Vec<(Vec<UsageWrite>, Truth)>,
    dags: Dags,
    durable: Truth,
    /// Host's clock, and the true time.
    host: u64,
    time: u64,
    boot: u32,
    booted: u64,
    counters: BTreeMap<u16, (DagCounters, [u64; DropCause::ALL.len()])>,
    /// UID that the card's tables have for a row.
    tables: BTreeMap<u16, DagUid>,
    incarnations: BTreeMap<u16, u32>,
    /// Everything that the card counted, and that each DAG was promised, one by one.
    packets: Vec<(DagUid, u64, u64, u64)>,
    promises: Vec<(DagUid, u64, u64)>,
    loads: Vec<(DagUid, u32)>,
    /// The most that may be missing: counted after the last reading before the power failed.
    lost: BTreeMap<DagUid, u64>,
    /// DAGs that left before the card restarted.
    gone: BTreeSet<DagUid>,
    /// Something changed between a start and the first reading after it.
    has_waited: bool,
    retention: Retention,
    reads_durably: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            book: Book::default(),
            records: Records::default(),
            batches: Vec::new(),
            dags: Dags::new(),
            durable: (Dags::new(), [0, 0], 0),
            host: BEGIN,
            time: 0,
            boot: 7,
            booted: 0,
            counters: BTreeMap::new(),
            tables: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            packets: Vec::new(),
            promises: Vec::new(),
            loads: Vec::new(),
            lost: BTreeMap::new(),
            gone: BTreeSet::new(),
            has_waited: false,
            retention: Retention { fine: 120, minute: 7_200, hour: 100 * 86_400 },
            reads_durably: true,
        };
        world.book.booted(world.now(), &card(), world.boot);
        world.read();
        // Before the first reading is stored, what a card has counted may be of others: it is a gap.
        world.end();
        world.commit(world.batches.len());
        world
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.host)
    }

    fn end(&mut self) {
        self.book.close(self.now(), &self.retention);
        let writes: Vec<_> = self.book.take_writes().collect();
        let before = self.batches.last().map_or(&self.durable.0, |(_, (dags, ..))| dags);
        if !writes.is_empty() || *before != self.dags {
            let listed = [self.promises.len(), self.loads.len()];
            let truth = (self.dags.clone(), listed, self.time);
            self.batches.push((writes, truth));
        }
        self.book.check().expect("the book's invariants");
    }

    fn commit(&mut self, count: usize) {
        for (writes, truth) in self.batches.drain(..count) {
            self.records.apply(writes);
            self.durable = truth;
        }
        self.program();
    }

    /// The card follows what is durable, but a DAG that left before it restarted does not come back.
    fn program(&mut self) {
        let served = self.durable.0.keys().filter(|uid| !self.gone.contains(uid));
        self.tables = served.map(|uid| (uid.row(), *uid)).collect();
    }

    fn read(&mut self) {
        let cycles = u128::from(self.time - self.booted) * u128::from(HZ) / u128::from(SECOND);
        let counters = CardCounters {
            cycles: Some(cycles as u64),
            dags: self.counters.iter().map(|(row, (dag, _))| (*row, *dag)).collect(),
            dag_drops: self.counters.iter().map(|(row, (_, drops))| (*row, *drops)).collect(),
            ..CardCounters::default()
        };
        let reading = UsageReading {
            now: self.now(),
            clock_hz: HZ,
            line: Bandwidth::from_gbps(100),
            counters: &counters,
        };
        // What is being committed may be in the tables soon, even of a DAG that has left since.
        let under_way = self.batches.iter().flat_map(|(_, (dags, ..))| dags.keys());
        let active = under_way.chain(self.dags.keys()).map(|uid| uid.row());
        let active: BTreeSet<u16> = active.chain(self.tables.keys().copied()).collect();
        self.book.read(&card(), &reading, |row| active.contains(&row));
        self.reads_durably = true;
    }

    /// A DAG that the card serves.
    fn served(&self, which: usize) -> Option<DagUid> {
        let all: Vec<DagUid> = self.tables.values().copied().collect();
        (!all.is_empty()).then(|| all[which % all.len()])
    }

    fn counted(&self, uid: DagUid) -> (u64, u64, u64) {
        let own = self.packets.iter().filter(|(of, ..)| *of == uid);
        own.fold((0, 0, 0), |(p, b, d), (_, packets, bytes, dropped)| {
            (p + packets, b + bytes, d + dropped)
        })
    }

    fn pass(&mut self, millis: u64) {
        // The daemon has an event, and reads the card, at least once a second.
        for part in std::iter::repeat_n(900, (millis / 900) as usize).chain([millis % 900]) {
            self.time += part * 1_000_000;
            self.host += part * 1_000_000;
            self.promise(part * 1_000_000);
            if millis >= 900 {
                self.read();
            }
            self.end();
        }
    }

    fn promise(&mut self, nanos: u64) {
        self.promises.extend(self.dags.iter().map(|(uid, promised)| (*uid, *promised, nanos)));
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Packets { which, packets, bytes, dropped } => {
                let Some(uid) = self.served(which) else { return };
                let dropped = dropped.min(packets);
                let (counters, drops) = self.counters.entry(uid.row()).or_default();
                counters.packets_in += packets;
                counters.packets_out += packets - dropped;
                counters.bytes_intended += bytes * packets;
                counters.bytes_served += bytes * (packets - dropped);
                drops[DropCause::ByNt as usize] += dropped;
                self.packets.push((uid, packets, bytes * packets, dropped));
            }
            Act::Pass { millis } => self.pass(millis),
            Act::Read => self.read(),
            Act::Place { promised } => self.place(promised),
            Act::Change { which, promised } => {
                let all: Vec<DagUid> = self.dags.keys().copied().collect();
                if let Some(uid) = all.get(which % all.len().max(1)) {
                    self.dags.insert(*uid, promised);
                    self.book.place(
                        self.now(),
                        &card(),
                        (&tenant(), &dag(), *uid),
                        rates(promised),
                    );
                }
            }
            Act::Leave { which } => {
                let all: Vec<DagUid> = self.dags.keys().copied().collect();
                if let Some(uid) = all.get(which % all.len().max(1)) {
                    self.dags.remove(uid);
                    self.book.leave(self.now(), &card(), *uid);
                }
            }
            Act::Load { which, loads } => {
                let all: Vec<DagUid> = self.dags.keys().copied().collect();
                if let Some(uid) = all.get(which % all.len().max(1)) {
                    self.loads.push((*uid, loads));
                    self.book.loaded(self.now(), &card(), *uid, loads);
                }
            }
            Act::Crash { lost, millis, clock } => self.crash(lost, millis, clock),
            Act::PowerCycle => self.power_cycle(),
            Act::Reset => self.counters.clear(),
        }
        self.has_waited |= !self.reads_durably;
        self.end();
        if matches!(act, Act::PowerCycle) {
            // What was counted before is gone from the card.
            self.commit(self.batches.len());
        }
        let durable = self.batches.len().saturating_sub(2);
        self.commit(durable);
    }

    fn place(&mut self, promised: u64) {
        let is_free = |row: &u16| {
            self.book.is_clear(&card(), *row) && !self.dags.keys().any(|uid| uid.row() == *row)
        };
        let Some(row) = (0_u16..6).find(is_free) else { return };
        let incarnation = self.incarnations.entry(row).or_default();
        *incarnation += 1;
        let uid = DagUid::new(row, *incarnation).expect("few");
        self.dags.insert(uid, promised);
        self.book.place(self.now(), &card(), (&tenant(), &dag(), uid), rates(promised));
    }

    fn crash(&mut self, lost: usize, millis: u64, clock: i64) {
        if std::mem::take(&mut self.has_waited) {
            // Of a daemon that dies before its first reading is stored, the time of what it began is not known.
            self.read();
            self.end();
            self.commit(self.batches.len());
        }
        self.gone.clear();
        let durable = self.batches.len().saturating_sub(lost);
        self.commit(durable);
        self.batches.clear();
        // Of what was not durable nobody was told: it never was, and what was there before went on.
        let (dags, [promises, loads], time) = self.durable.clone();
        self.dags = dags;
        self.promises.truncate(promises);
        self.loads.truncate(loads);
        self.promise(self.time - time);
        self.book = self.records.restore();
        self.reads_durably = false;
        self.promise(millis * 1_000_000);
        self.time += millis * 1_000_000;
        self.host = (self.host + millis * 1_000_000).saturating_add_signed(clock * 1_000_000);
        self.book.booted(self.now(), &card(), self.boot);
        for (uid, promised) in self.dags.clone() {
            self.book.place(self.now(), &card(), (&tenant(), &dag(), uid), rates(promised));
        }
        for uid in self.book.held(&card()) {
            if !self.dags.contains_key(&uid) {
                self.book.leave(self.now(), &card(), uid);
            }
        }
        self.book.check().expect("the book's invariants after a start");
    }

    fn power_cycle(&mut self) {
        let all: BTreeSet<DagUid> = self.packets.iter().map(|(uid, ..)| *uid).collect();
        let now = self.book.closed().unwrap_or_default();
        for uid in all {
            let billed = match self.reads_durably {
                // Read since: all but what came after the last reading, of which nobody knows.
                true => {
                    self.book.open(&key_of(uid)).get(Meter::BytesIn)
                        + self.pages(uid, now).get(Meter::BytesIn)
                }
                false => self.records.billed(&key_of(uid), &self.retention).get(Meter::BytesIn),
            };
            let missing = self.counted(uid).1.saturating_sub(billed);
            let before = self.lost.insert(uid, missing).unwrap_or(0);
            assert!(missing >= before, "{uid}: what is lost does not come back");
        }
        self.counters.clear();
        self.tables.clear();
        self.boot += 1;
        self.booted = self.time;
        self.book.booted(self.now(), &card(), self.boot);
        self.reads_durably = true;
        let left = self.durable.0.keys().filter(|uid| !self.dags.contains_key(uid));
        self.gone.extend(left);
        self.program();
    }

    /// UsageAmounts of closed intervals, durable or not.
    fn pages(&self, uid: DagUid, now: u64) -> UsageAmounts {
        let mut records = self.records.clone();
        for (writes, _) in &self.batches {
            records.apply(writes.iter().cloned());
        }
        let key = UsageKey::Account(key_of(uid)).to_string();
        let Some(account) = records.0.get(&key) else { return UsageAmounts::default() };
        let account: SavedAccount = read(account);
        let mut sum = UsageAmounts::default();
        let all = records.series(&key_of(uid), &account, &self.retention, (now, u64::MAX));
        all.values().for_each(|amounts| sum.add_all(amounts));
        sum
    }
}

/// Lets all settle, and makes it durable.
fn settle(world: &mut World) {
    world.read();
    while !world.dags.is_empty() {
        world.act(&Act::Leave { which: 0 });
    }
    world.pass(12_000);
    world.pass(12_000);
    world.commit(world.batches.len());
}

/// Each DAG's bill against the list.
fn judge(world: &World, has_time: bool) -> Result<(), TestCaseError> {
    let uids: BTreeSet<DagUid> = world.packets.iter().map(|(uid, ..)| *uid).collect();
    for uid in uids {
        let billed = world.records.billed(&key_of(uid), &world.retention);
        let (packets, bytes, dropped) = world.counted(uid);
        let lost = world.lost.get(&uid).copied().unwrap_or(0);
        prop_assert_eq!(billed.get(Meter::Gap(Gap::RowReused)), 0, "{}", uid);
        prop_assert_eq!(billed.get(Meter::BytesIn), bytes - lost, "{}: {:?}", uid, billed);
        if lost == 0 {
            prop_assert_eq!(billed.get(Meter::PacketsIn), packets);
            prop_assert_eq!(billed.get(Meter::Dropped(DropCause::ByNt)), dropped);
            prop_assert_eq!(billed.get(Meter::PacketsServed), packets - dropped);
        }
    }
    let promised: BTreeSet<DagUid> = world.promises.iter().map(|(uid, ..)| *uid).collect();
    for uid in &promised {
        let own = world.loads.iter().filter(|(of, _)| of == uid);
        let loads: u64 = own.map(|(_, loads)| u64::from(*loads)).sum();
        let billed = world.records.billed(&key_of(*uid), &world.retention);
        prop_assert_eq!(billed.get(Meter::Loads), loads, "{}: {:?}", uid, billed);
    }
    for uid in promised.into_iter().filter(|_| has_time) {
        let own = world.promises.iter().filter(|(of, ..)| *of == uid);
        let (bits, nanos) = own.fold((0_u128, 0_u128), |(bits, time), (_, promised, nanos)| {
            (bits + u128::from(*promised) * u128::from(*nanos), time + u128::from(*nanos))
        });
        let billed = world.records.billed(&key_of(uid), &world.retention);
        // A reading says a cycle of the card's clock, which is up to 4 ns ago; between readings the host's counts.
        let near = |billed: u64, exact: u128, unit: u128, rate: u128| {
            u128::from(billed).abs_diff(exact / unit) <= 8 * rate / unit + 1
        };
        prop_assert!(
            near(billed.get(Meter::Life), nanos, 1_000_000, 1),
            "{uid}: {billed:?}, {nanos} ns"
        );
        let promised = billed.get(Meter::Promised);
        prop_assert!(
            near(promised, bits, 1_000_000_000_000, 40_000_000_000),
            "{uid}: {billed:?}, {bits} bit·ns"
        );
        judge_rates(world, uid, &billed)?;
    }
    Ok(())
}

/// Meters that follow from what a DAG takes while time passes, against the list.
fn judge_rates(world: &World, uid: DagUid, billed: &UsageAmounts) -> Result<(), TestCaseError> {
    let own = || world.promises.iter().filter(|(of, ..)| *of == uid);
    let sum = |rate: &dyn Fn(u64) -> u64| {
        let each =
            own().map(|(_, promised, nanos)| u128::from(rate(*promised)) * u128::from(*nanos));
        each.sum::<u128>()
    };
    let check = |meter: Meter, exact: u128, unit: u128, most: u128| {
        let amount = billed.get(meter);
        let is_near = u128::from(amount).abs_diff(exact / unit) <= 8 * most / unit + 1;
        prop_assert!(is_near, "{uid}, {meter:?}: {amount}, {exact}");
        Ok(())
    };
    let (milli, tera) = (1_000_000, 1_000_000_000_000);
    check(Meter::Regions, sum(&|_| 2), milli, 2)?;
    check(Meter::Area, sum(&|promised| promised / 40), tera, 1_000_000_000)?;
    check(Meter::Memory, sum(&|promised| promised % 7 * 2), milli, 12)?;
    check(Meter::Functions, sum(&|promised| promised % 3), milli, 2)?;
    let record = world.records.0.get(&UsageKey::Account(key_of(uid)).to_string());
    let nts = record.map_or(Vec::new(), |record| read::<SavedAccount>(record).nts);
    let of = |nt: &NtTypeId| {
        sum(&|promised| instances(promised).get(nt).copied().unwrap_or_default().into())
    };
    prop_assert!(nts.len() <= ACCOUNT_NTS_MAX);
    for (place, nt) in (0..).zip(&nts) {
        check(Meter::Nt(place), of(nt), milli, 3)?;
    }
    let others: u128 = (0..TYPES).map(nt).filter(|nt| !nts.contains(nt)).map(|nt| of(&nt)).sum();
    check(Meter::Nt(ACCOUNT_NTS_MAX as u8), others, milli, 3)
}

proptest! {
    /// Whatever comes and goes, is killed and loses power: what each DAG is charged is what the card counted for it, but for what nobody
    /// read before the power failed.
    #[test]
    fn the_bill_is_what_the_card_counted(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
        settle(&mut world);
        judge(&world, false)?;
    }

    /// Time is charged to the card's cycle over crashes, hours without the daemon, and clocks that are set, while the card has power.
    #[test]
    fn a_promise_is_charged_for_as_long_as_it_stood(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new();
        acts.iter().filter(|act| !matches!(act, Act::PowerCycle)).for_each(|act| world.act(act));
        settle(&mut world);
        judge(&world, true)?;
    }

    /// Counters that begin again without a boot are a gap, and never negative, twice or a guess.
    #[test]
    fn counters_that_go_back_are_a_gap(acts in prop::collection::vec(act(), 1..60), at in 0_usize..60) {
        let mut world = World::new();
        for (step, act) in acts.iter().enumerate() {
            world.act(act);
            if step == at {
                world.act(&Act::Reset);
            }
        }
        settle(&mut world);
        for uid in world.packets.iter().map(|(uid, ..)| *uid).collect::<BTreeSet<_>>() {
            let billed = world.records.billed(&key_of(uid), &world.retention);
            prop_assert!(billed.get(Meter::BytesIn) <= world.counted(uid).1, "{uid}: {billed:?}");
        }
    }

    /// A longer interval is the sum of the shorter ones, whatever their age.
    #[test]
    fn steps_add_up_at_every_length(
        loads in prop::collection::vec((1_u64..100, 5_000_u64..400_000), 1..60),
        step in prop_oneof![Just(60_u64), Just(3_600), Just(86_400)],
    ) {
        let mut world = World::new();
        world.act(&Act::Place { promised: 1_000_000_000 });
        world.act(&Act::Pass { millis: 1_000 });
        world.commit(world.batches.len());
        let mut by_step: BTreeMap<u64, u64> = BTreeMap::new();
        for (packets, millis) in &loads {
            world.act(&Act::Packets { which: 0, packets: *packets, bytes: 100, dropped: 0 });
            world.act(&Act::Read);
            let begun = world.host / SECOND / 10 * 10;
            *by_step.entry(begun / step * step).or_default() += packets * 100;
            world.pass(*millis);
            world.commit(world.batches.len());
        }
        let uid = *world.dags.keys().next().expect("one");
        settle(&mut world);
        let account = UsageKey::Account(key_of(uid)).to_string();
        let account: SavedAccount = read(&world.records.0[&account]);
        let now = world.host / SECOND;
        // Steps of minutes are known as long as minutes are kept.
        if step >= 3_600 || now - BEGIN / SECOND < world.retention.minute {
            let found = world.records.series(&key_of(uid), &account, &world.retention, (now, step));
            let found: BTreeMap<u64, u64> = found
                .into_iter()
                .map(|(from, amounts)| (from, amounts.get(Meter::BytesIn)))
                .filter(|(_, bytes)| *bytes > 0)
                .collect();
            prop_assert_eq!(found, by_step);
        }
    }
}

/// More types than an account has room for are counted together, and none is lost.
#[test]
fn types_beyond_those_of_an_account_are_counted_together() {
    let mut world = World::new();
    world.act(&Act::Place { promised: 0 });
    for promised in 1..30 {
        world.act(&Act::Pass { millis: 1_700 });
        world.act(&Act::Change { which: 0, promised });
    }
    let uid = *world.dags.keys().next().expect("one");
    settle(&mut world);
    judge(&world, true).expect("all time is counted");
    let billed = world.records.billed(&key_of(uid), &world.retention);
    let nts = || (0..=ACCOUNT_NTS_MAX as u8).map(|nt| billed.get(Meter::Nt(nt)));
    assert!(nts().all(|millis| millis > 0), "{billed:?}");
    let (all, life) = (nts().sum::<u64>(), billed.get(Meter::Life));
    // Three instances at a time, of one type or of two that are the same; each meter is rounded down.
    assert!(all <= life * 3 && all >= life * 2 - 16, "{all} of {life}");
}

/// A record of the version before has no rates of later meters: they are charged from the first place that names them on.
#[test]
fn rates_of_older_records_are_zero() {
    let row = r#"{"uid":7171,"account":{"dag":7171},"is_held":true,"seen":[1,2,3,4],"drops":null,"rates":{"promised":5,"regions":1},"since":9}"#;
    let saved: SavedRow = read(row);
    assert_eq!(saved.rates, UsageRates { promised: 5, regions: 1, ..UsageRates::default() });
    assert_eq!(json(&saved), row, "and as they were they are written again");
}

/// A record of a version that knew ten causes is read, and written as it was; a later cause is written once it is not zero.
#[test]
fn records_hold_causes_of_drops_as_far_as_there_are_drops() {
    let row = r#"{"uid":7171,"account":{"dag":7171},"is_held":true,"seen":[1,2,3,4],"drops":[1,0,0,0,0,0,0,0,0,9],"rates":{"promised":5,"regions":1},"since":9}"#;
    let mut saved: SavedRow = read(row);
    assert_eq!(json(&saved), row);
    let drops = saved.drops.as_mut().expect("there");
    assert_eq!((drops[0], drops[9], drops[10..].iter().sum::<u64>()), (1, 9, 0));
    drops[DropCause::LinkLost as usize] = 7;
    let later = json(&saved);
    assert!(later.contains("0,9,0,7]"), "{later}");
    assert_eq!(read::<SavedRow>(&later), saved);
    let short = row.replace("[1,0,0,0,0,0,0,0,0,9]", "[1]");
    assert!(serde_json::from_str::<SavedRow>(&short).is_err(), "a cause that is missing");
}

#[test]
fn numbers_of_meters_stay() {
    let all: Vec<(usize, String)> = Meter::all()
        .map(|meter| {
            let mut amounts = UsageAmounts::default();
            amounts.add(meter, 1);
            (amounts.meters().trailing_zeros() as usize, format!("{meter:?}"))
        })
        .collect();
    let of = |number: usize| all.iter().find(|(of, _)| *of == number).map(|(_, name)| &**name);
    let known = [
        (6, "PacketsServed"),
        (16, "Dropped(UsedUp)"),
        (17, "Dropped(LinkFull)"),
        (19, "Dropped(NoGuest)"),
        (22, "PacketsBeyond"),
        (23, "BytesBeyond"),
        (24, "PromiseBroken(CardLost)"),
        (31, "PromiseBroken(LatencyAboveBound)"),
        (30, "PromiseBroken(BelowPromise)"),
        (32, "Gap(Late)"),
        (40, "Area"),
        (43, "Functions"),
        (44, "PromiseTime"),
        (45, "PromiseUnknown"),
        (38, "Gap(NotRunning)"),
        (46, "ApiCalls"),
        (47, "Stored"),
    ];
    for (number, name) in known {
        assert_eq!(of(number), Some(name));
    }
    assert_eq!((of(48), of(63)), (Some("Nt(0)"), Some("Nt(15)")));
    assert!(all.is_sorted(), "in the order of their numbers, as pages list them: {all:?}");
    for (number, _) in &all {
        let mut amounts = UsageAmounts::default();
        amounts.add_listed(1 << number, [7].into_iter()).expect("a meter");
        assert_eq!(json(&amounts), format!("[{number},7]"));
    }
}

#[test]
fn old_pages_go_and_their_sums_stay() {
    let mut world = World::new();
    world.act(&Act::Place { promised: 1_000_000_000 });
    world.act(&Act::Pass { millis: 1_000 });
    world.commit(world.batches.len());
    for _ in 0..100 {
        world.act(&Act::Packets { which: 0, packets: 10, bytes: 100, dropped: 1 });
        world.pass(120_000);
        world.commit(world.batches.len());
    }
    settle(&mut world);
    let pages = |level: IntervalLevel| {
        let is_of = |key: &&String| key.contains(&format!("/{}/0", level.letter()));
        world.records.0.keys().filter(is_of).count()
    };
    // Two minutes of ten seconds, two hours of minutes; the page that the oldest one of them is in, and those that somebody may read.
    assert!((1..=6).contains(&pages(IntervalLevel::Fine)), "{}", pages(IntervalLevel::Fine));
    assert!((2..=3).contains(&pages(IntervalLevel::Minute)), "{}", pages(IntervalLevel::Minute));
    judge(&world, true).expect("nothing is lost with old pages");
}

#[test]
fn a_tenant_that_creates_without_end_fills_one_account() {
    let (mut book, mut records) = (Book::default(), Records::default());
    let retention = Retention::default();
    let at = |number: u64| Timestamp::from_nanos(BEGIN + number * 50_000_000);
    book.booted(at(0), &card(), 1);
    let empty = CardCounters { cycles: Some(0), ..CardCounters::default() };
    for number in 1..=10_000_u64 {
        let cycles = Some(number * HZ / 20);
        let counters = CardCounters { cycles, ..empty.clone() };
        let reading = UsageReading {
            now: at(number),
            clock_hz: HZ,
            line: Bandwidth::from_gbps(100),
            counters: &counters,
        };
        book.read(&card(), &reading, |_| false);
        let uid = DagUid::new((number % 64) as u16, number as u32).expect("few");
        book.place(at(number), &card(), (&tenant(), &dag(), uid), rates(1_000_000_000));
        book.leave(at(number) + Duration::from_millis(40), &card(), uid);
        book.close(at(number), &retention);
        records.apply(book.take_writes());
        book.check().expect("its invariants");
    }
    let end = at(10_000) + Duration::from_secs(20);
    book.close(end, &retention);
    records.apply(book.take_writes());
    let accounts: Vec<AccountKey> = book.accounts().map(|(key, _)| key.clone()).collect();
    assert_eq!(accounts.len(), crate::book::ENDED_ACCOUNTS_MAX + 1, "and one for the rest");
    let sum: u64 =
        accounts.iter().map(|key| records.billed(key, &retention).get(Meter::Life)).sum();
    // 40 ms each, rounded down once an account.
    assert!((399_700..=400_000).contains(&sum), "{sum} ms");
}

#[test]
fn a_counter_that_jumps_is_a_gap() {
    let mut world = World::new();
    world.act(&Act::Place { promised: 1_000_000_000 });
    world.act(&Act::Pass { millis: 1_000 });
    world.commit(world.batches.len());
    world.act(&Act::Packets { which: 0, packets: 10, bytes: 100, dropped: 0 });
    world.act(&Act::Read);
    let uid = *world.dags.keys().next().expect("one");
    let (counters, _) = world.counters.get_mut(&uid.row()).expect("it counted");
    counters.bytes_served = u64::MAX - 7;
    world.act(&Act::Read);
    settle(&mut world);
    let billed = world.records.billed(&key_of(uid), &world.retention);
    assert_eq!((billed.get(Meter::BytesIn), billed.get(Meter::BytesServed)), (1_000, 1_000));
    assert_eq!(billed.get(Meter::Gap(Gap::CountersJumped)), 1);
}

#[test]
fn what_a_running_card_counted_before_belongs_to_nobody() {
    let mut book = Book::default();
    let at = |seconds: u64| Timestamp::from_nanos(BEGIN + seconds * SECOND);
    let used = DagCounters { packets_in: 5, bytes_intended: 500, ..DagCounters::default() };
    let more = DagCounters { packets_in: 8, bytes_intended: 800, ..DagCounters::default() };
    let reading = |book: &mut Book, now, counters: DagCounters| {
        let counters = CardCounters { dags: vec![(0, counters)], ..CardCounters::default() };
        let (clock_hz, line) = (HZ, Bandwidth::from_gbps(100));
        book.read(&card(), &UsageReading { now, clock_hz, line, counters: &counters }, |_| true);
    };
    let uids = [DagUid::new(0, 1).expect("one"), DagUid::new(1, 1).expect("one")];
    book.booted(at(0), &card(), 9);
    book.place(at(0), &card(), (&tenant(), &dag(), uids[0]), rates(1));
    reading(&mut book, at(1), used);
    reading(&mut book, at(2), more);
    let open = book.open(&key_of(uids[0]));
    assert_eq!((open.get(Meter::PacketsIn), open.get(Meter::BytesIn)), (3, 300));
    assert_eq!(
        open.get(Meter::Gap(Gap::FirstReading)),
        1,
        "and a gap says that more may be missing"
    );
}

/// A DAG that came after a start, on a card that another device took the place of before it was read: its packets went with the card.
#[test]
fn a_card_that_is_replaced_before_it_was_read_leaves_a_gap() {
    let at = |seconds: u64| Timestamp::from_nanos(BEGIN + seconds * SECOND);
    let (mut book, mut records) = (Book::default(), Records::default());
    book.booted(at(0), &card(), 9);
    records.apply(book.take_writes());
    let mut book = records.restore();
    let uid = DagUid::new(0, 1).expect("one");
    book.place(at(1), &card(), (&tenant(), &dag(), uid), rates(1));
    book.replaced(&card());
    book.leave(at(2), &card(), uid);
    book.booted(at(3), &card(), 10);
    assert_eq!(book.open(&key_of(uid)).get(Meter::Gap(Gap::CardRestarted)), 1);
}

/// The daemon dies after a reading that it did not store, and the card loses its power before the next daemon has read it: all since the last
/// close is missing.
#[test]
fn a_card_that_restarts_beside_its_daemon_leaves_a_gap_since_the_last_close() {
    let at = |seconds: u64| Timestamp::from_nanos(BEGIN + seconds * SECOND);
    let (mut book, mut records) = (Book::default(), Records::default());
    let uid = DagUid::new(0, 1).expect("one");
    let read = |book: &mut Book, seconds: u64| {
        let used = DagCounters { packets_in: seconds, ..DagCounters::default() };
        let cycles = Some(seconds * HZ);
        let counters = CardCounters { cycles, dags: vec![(0, used)], ..CardCounters::default() };
        let (now, clock_hz, line) = (at(seconds), HZ, Bandwidth::from_gbps(100));
        book.read(&card(), &UsageReading { now, clock_hz, line, counters: &counters }, |_| true);
        book.close(now, &Retention::default());
    };
    book.booted(at(0), &card(), 9);
    read(&mut book, 0);
    book.place(at(0), &card(), (&tenant(), &dag(), uid), rates(1));
    // The close at 12 s is of the interval that ends at 7 s, where the host's clock has a multiple of ten seconds.
    (1..=12).for_each(|seconds| read(&mut book, seconds));
    records.apply(book.take_writes());
    read(&mut book, 14);
    let mut book = records.restore();
    book.booted(at(20), &card(), 10);
    assert_eq!(book.open(&key_of(uid)).get(Meter::Gap(Gap::CardRestarted)), 13_000);
}

/// Size on disk: a day of a DAG that sends all the time.
#[test]
fn a_day_of_a_busy_dag_takes_a_third_of_a_megabyte() {
    let (mut book, mut records) = (Book::default(), Records::default());
    let retention = Retention::default();
    let uid = DagUid::new(3, 9).expect("one");
    let mut written = 0;
    for second in (0..=86_400).step_by(5) {
        let now =
            Timestamp::from_nanos(BEGIN / SECOND / 86_400 * 86_400 * SECOND + second * SECOND);
        if second == 0 {
            book.booted(now, &card(), 1);
            let nts = BTreeMap::from([(nt(1), 1), (nt(2), 1), (nt(3), 2)]);
            let rates = UsageRates { nts: nts.into(), ..rates(10_000_000_001) };
            book.place(now, &card(), (&tenant(), &dag(), uid), rates);
        }
        let packets = second * 1_234_567;
        let counters = DagCounters {
            packets_in: packets + packets / 100,
            bytes_intended: packets * 1_010,
            bytes_served: packets * 1_000,
            packets_out: packets,
        };
        let mut drops = [0; DropCause::ALL.len()];
        drops[DropCause::RateLimited as usize] = packets / 100;
        let counters = CardCounters {
            cycles: Some(second * HZ),
            dags: vec![(3, counters)],
            dag_drops: vec![(3, drops)],
            ..CardCounters::default()
        };
        let line = Bandwidth::from_gbps(100);
        book.read(&card(), &UsageReading { now, clock_hz: HZ, line, counters: &counters }, |_| {
            true
        });
        book.close(now, &retention);
        let writes: Vec<_> = book.take_writes().collect();
        written += records.apply(writes);
    }
    let kept: usize = records.0.iter().map(|(key, value)| key.len() + value.len()).sum();
    let hours = records.0.iter().filter(|(key, _)| key.ends_with("/h") || key.contains("/h/"));
    let hour = hours.map(|(_, value)| value.len() / read::<UsagePage>(value).intervals().count());
    println!("an interval of an hour takes {} bytes", hour.max().unwrap_or_default());
    println!("{kept} bytes are kept in {} records, {written} bytes were written", records.0.len());
    assert!((100_000..333_000).contains(&kept), "{kept} bytes");
    assert!(written < 20_000_000, "{written} bytes");
}

#[test]
#[ignore = "nightly: the closes of two years"]
fn long_ages_take_the_disk_that_the_page_says() {
    for (name, ages, least, most) in [
        ("an hour, a day, 92 days", Retention::default(), 500, 800),
        ("a day, 31 days, two years", ages::AGES[2], 8_000, 12_000),
    ] {
        let pages = ages::size(ages);
        let (count, bytes) = pages.iter().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        println!("{name}: {bytes} bytes in {count} full pages of one DAG, by length {pages:?}");
        assert!((least..most).contains(&(bytes / 1_000)), "{bytes} bytes");
    }
}

/// Records of a DAG that left are gone when they are too old, over restarts of the daemon, too.
#[test]
fn nothing_is_left_of_an_account_when_its_time_is_over() {
    live_and_end(false);
    live_and_end(true);
}

/// Lets a DAG come, leave, have something later, and be forgotten.
fn live_and_end(restarts: bool) {
    let (mut book, mut records) = (Book::default(), Records::default());
    let retention = Retention { fine: 120, minute: 7_200, hour: 2 * 86_400 };
    let uid = DagUid::new(3, 9).expect("one");
    let (mut accounts, mut pages) = (Vec::new(), Vec::new());
    for step in 0..2_000_u64 {
        let now = Timestamp::from_nanos(BEGIN + step * 600 * SECOND);
        let cycles = Some(step * 600 * HZ);
        let counters = CardCounters { cycles, ..CardCounters::default() };
        if step == 0 {
            book.booted(now, &card(), 1);
            book.place(now, &card(), (&tenant(), &dag(), uid), rates(1_000_000_000));
        }
        let line = Bandwidth::from_gbps(100);
        book.read(&card(), &UsageReading { now, clock_hz: HZ, line, counters: &counters }, |_| {
            step < 400
        });
        if step == 400 {
            book.leave(now, &card(), uid);
        }
        if step == 401 {
            // Packets that it may have had are lost: a gap after it left.
            book.booted(now, &card(), 2);
        }
        book.close(now, &retention);
        records.apply(book.take_writes());
        book.check().expect("its invariants");
        if restarts && step % 97 == 0 {
            book = records.restore();
            book.booted(now, &card(), if step < 401 { 1 } else { 2 });
        }
        accounts.push(book.accounts().count());
        pages.push(records.0.keys().filter(|key| UsageKey::is_full_page(key)).count());
    }
    assert!(pages[400] > 2);
    assert!(accounts[400..700].iter().all(|count| *count == 1));
    let gone = accounts.iter().position(|count| *count == 0).expect("it goes");
    let days = (gone - 400) as u64 * 600 / 86_400;
    assert!((4..=5).contains(&days), "{days} days: those of an hour's intervals, and two more");
    assert_eq!(pages.last(), Some(&0), "{:?}", records.0.keys());
    let of_account = |key: &&String| key.starts_with("usage-open/accounts/");
    assert_eq!(records.0.keys().find(of_account), None);
}
