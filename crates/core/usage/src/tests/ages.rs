//! Ages that change: while the daemon runs, and over a restart.

use std::collections::BTreeMap;

use proptest::prelude::*;
use snic_domain::{Bandwidth, DagUid, Timestamp};
use snic_tables::{CardCounters, DagCounters, DropCause};

use super::{BEGIN, HZ, Records, SECOND, card, dag, key_of, nt, rates, read, tenant};
use crate::sweep::REMOVALS_MAX;
use crate::{
    AccountKey, Book, IntervalLevel, KeptPages, Meter, Retention, SavedAccount, UsageKey,
    UsageRates, UsageReading, UsageSeries, UsageWrite,
};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// Ages of which each is longer than some of another one.
pub const AGES: [Retention; 4] = [
    Retention { fine: 120, minute: 2 * HOUR, hour: 400 * DAY },
    Retention { fine: HOUR, minute: DAY, hour: 400 * DAY },
    Retention { fine: DAY, minute: 31 * DAY, hour: 731 * DAY },
    Retention { fine: 3 * HOUR, minute: 3 * HOUR, hour: 400 * DAY },
];

/// Event of a daemon with one DAG.
#[derive(Debug, Clone)]
enum Step {
    /// Intervals of ten seconds with some bytes each.
    Send { intervals: u64, bytes: u64 },
    /// One interval that is longer, for nothing closed it.
    Sleep { seconds: u64 },
    /// Other ages are in force.
    Ages(usize),
    /// The daemon starts again, with other ages.
    Restart(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..80, 1_u64..1_000).prop_map(|(intervals, bytes)| Step::Send { intervals, bytes }),
        4 => (20_u64..5 * HOUR).prop_map(|seconds| Step::Sleep { seconds }),
        2 => (0..AGES.len()).prop_map(Step::Ages),
        1 => (0..AGES.len()).prop_map(Step::Restart),
    ]
}

/// Some DAGs on a card, and what was in each interval.
struct Ledger {
    book: Book,
    records: Records,
    ages: Retention,
    second: u64,
    bytes: u64,
    dags: u16,
    /// Bytes of one DAG by the beginning of the interval that they were counted in.
    intervals: BTreeMap<u64, u64>,
    /// Most removals of one event.
    removals: usize,
}

fn uid(row: u16) -> DagUid {
    DagUid::new(row, 1).expect("few")
}

impl Ledger {
    fn new(dags: u16, ages: Retention) -> Self {
        let (book, records) = (Book::default(), Records::default());
        let (second, bytes, intervals, removals) = (BEGIN / SECOND, 0, BTreeMap::new(), 0);
        let mut new = Self { book, records, ages, second, bytes, dags, intervals, removals };
        new.book.booted(new.now(), &card(), 1);
        for row in 0..dags {
            new.book.place(new.now(), &card(), (&tenant(), &dag(), uid(row)), rates(1_000));
        }
        new.pass(0, 0);
        new.pass(10, 0);
        new
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.second * SECOND)
    }

    /// Time passes, in which each DAG has sent some bytes.
    fn pass(&mut self, seconds: u64, bytes: u64) {
        self.second += seconds;
        self.bytes += bytes;
        let counters = DagCounters { bytes_intended: self.bytes, ..DagCounters::default() };
        let counters = CardCounters {
            cycles: Some((self.second - BEGIN / SECOND) * HZ),
            dags: (0..self.dags).map(|row| (row, counters)).collect(),
            ..CardCounters::default()
        };
        let line = Bandwidth::from_gbps(100);
        let reading = UsageReading { now: self.now(), clock_hz: HZ, line, counters: &counters };
        self.book.read(&card(), &reading, |_| true);
        if let Some(start) = self.book.closed() {
            *self.intervals.entry(start).or_default() += bytes;
        }
        self.book.close(self.now(), &self.ages);
        self.book.check().expect("the book's invariants");
        let writes: Vec<_> = self.book.take_writes().collect();
        let is_page =
            |write: &&UsageWrite| matches!(write, UsageWrite::Remove(UsageKey::FullPage(..)));
        self.removals = self.removals.max(writes.iter().filter(is_page).count());
        self.records.apply(writes);
    }

    fn restart(&mut self) {
        self.book = self.records.restore();
        self.book.booted(self.now(), &card(), 1);
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Send { intervals, bytes } => (0..intervals).for_each(|_| self.pass(10, bytes)),
            Step::Sleep { seconds } => self.pass(seconds, seconds),
            Step::Ages(ages) => self.ages = AGES[ages],
            Step::Restart(ages) => {
                self.ages = AGES[ages];
                self.restart();
            }
        }
    }

    /// Bytes of a DAG in a range, as a reader finds them in the store by times of pages.
    fn stored(&self, key: &AccountKey, kept: &KeptPages, (from, to): (u64, u64)) -> u64 {
        let account = UsageKey::Account(key.clone()).to_string();
        let account: SavedAccount = read(&self.records.0[&account]);
        let mut series = UsageSeries::new(from, to, u64::MAX);
        for part in kept.ranges(from, to) {
            for start in part.pages() {
                let page = self.records.page(UsageKey::FullPage(key.clone(), part.level, start));
                page.iter().for_each(|page| series.add(part, page));
            }
            let open = match part.level {
                IntervalLevel::Fine => account.fine.clone(),
                level => {
                    let key = UsageKey::OpenPage(key.clone(), level);
                    self.records.page(key).unwrap_or_default()
                }
            };
            series.add(part, &open);
        }
        series.points().map(|point| point.amounts.get(Meter::BytesIn)).sum()
    }

    /// Checks sums of ranges that begin and end with an hour: intervals of each length do.
    fn judge(&self, kept: &KeptPages) -> Result<(), TestCaseError> {
        let first = BEGIN / SECOND / HOUR * HOUR;
        let hours = (self.second - first) / HOUR + 1;
        for from in (0..hours).step_by(1 + hours as usize / 7) {
            for to in [from + 1, from.midpoint(hours), hours] {
                let range = (first + from * HOUR, first + to * HOUR);
                let counted: u64 =
                    self.intervals.range(range.0..range.1.max(range.0)).map(|(_, of)| of).sum();
                let stored = self.stored(&key_of(uid(0)), kept, range);
                prop_assert_eq!(stored, counted, "{:?} by {:?}", range, kept);
            }
        }
        Ok(())
    }

    fn pages(&self, level: IntervalLevel) -> usize {
        let letter = format!("/{}/0", level.letter());
        let is_page = |key: &&String| UsageKey::is_full_page(key) && key.contains(&letter);
        self.records.0.keys().filter(is_page).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn sums_stay_whatever_becomes_of_ages(steps in prop::collection::vec(step(), 1..40)) {
        let mut ledger = Ledger::new(1, AGES[1]);
        let mut before = *ledger.book.kept();
        for step in &steps {
            ledger.take(step);
            let kept = *ledger.book.kept();
            ledger.judge(&kept)?;
            let moved = IntervalLevel::ALL.map(|level| kept.from(level) >= before.from(level));
            prop_assert_eq!(moved, [true; 3], "what is gone does not come back");
            before = kept;
        }
    }
}

#[test]
fn pages_go_by_the_ages_in_force_after_any_change() {
    let mut ledger = Ledger::new(1, AGES[2]);
    (0..2 * DAY / 10).for_each(|_| ledger.pass(10, 7));
    assert!((1_440..1_445).contains(&ledger.pages(IntervalLevel::Fine)), "a day of ten seconds");
    assert!((47..49).contains(&ledger.pages(IntervalLevel::Minute)), "all there were");
    ledger.ages = AGES[1];
    (0..30).for_each(|_| ledger.pass(10, 7));
    assert!((60..65).contains(&ledger.pages(IntervalLevel::Fine)), "an hour of ten seconds");
    assert!((24..27).contains(&ledger.pages(IntervalLevel::Minute)), "a day of minutes");
    ledger.ages = AGES[2];
    (0..2 * HOUR / 10).for_each(|_| ledger.pass(10, 7));
    let fine = ledger.pages(IntervalLevel::Fine);
    assert!((180..185).contains(&fine), "the hour that was left, and two more: {fine}");
    // Shorter ages of a daemon that was stopped: it looks at the store it finds.
    ledger.ages = AGES[0];
    ledger.restart();
    (0..30).for_each(|_| ledger.pass(10, 7));
    assert!(ledger.pages(IntervalLevel::Fine) < 8, "{}", ledger.pages(IntervalLevel::Fine));
    assert!(ledger.pages(IntervalLevel::Minute) < 5, "two hours of minutes");
    ledger.judge(ledger.book.kept()).expect("nothing is lost");
}

/// A reader that began before pages were given up finds them for a minute more.
#[test]
fn what_a_reader_looks_for_is_there_for_a_minute() {
    let mut ledger = Ledger::new(1, AGES[2]);
    (0..HOUR / 10 * 5).for_each(|_| ledger.pass(10, 7));
    let kept = *ledger.book.kept();
    ledger.ages = AGES[0];
    (0..5).for_each(|_| ledger.pass(10, 7));
    ledger.judge(&kept).expect("pages of before");
    (0..24).for_each(|_| ledger.pass(10, 7));
    let first = BEGIN / SECOND / HOUR * HOUR;
    let left = ledger.stored(&key_of(uid(0)), &kept, (first, first + 2 * HOUR));
    assert!(left < ledger.stored(&key_of(uid(0)), ledger.book.kept(), (first, first + 2 * HOUR)));
}

#[test]
fn shorter_ages_are_worked_off_in_steps_also_over_restarts() {
    let long = Retention { fine: 12 * HOUR, ..AGES[2] };
    let mut ledger = Ledger::new(20, long);
    (0..12 * 60).for_each(|_| ledger.pass(60, 7));
    let before = ledger.pages(IntervalLevel::Fine);
    assert!(before > 3 * REMOVALS_MAX, "{before} pages");
    (ledger.ages, ledger.removals) = (AGES[0], 0);
    for step in 0..24 {
        ledger.pass(10, 7);
        if step % 3 == 2 {
            ledger.restart();
        }
        ledger.judge(ledger.book.kept()).expect("the same sums");
    }
    let left = ledger.pages(IntervalLevel::Fine);
    assert!(left < 20 * 8, "{left} of {before} pages are left");
    assert_eq!(ledger.removals, REMOVALS_MAX, "most of one event");
}

/// Size on disk of what is kept of a busy DAG after two years: intervals of each length as they are after that time, closed at once
/// where they are older than shorter ones are kept.
pub fn size(ages: Retention) -> [(usize, usize); 3] {
    let (mut book, mut records) = (Book::default(), Records::default());
    let begin = BEGIN / SECOND / DAY * DAY;
    let end = begin + ages.hour + 2 * DAY;
    let mut second = begin;
    while second <= end {
        let now = Timestamp::from_nanos(second * SECOND);
        if second == begin {
            book.booted(now, &card(), 1);
            let nts = BTreeMap::from([(nt(1), 1), (nt(2), 1), (nt(3), 2)]);
            let rates = UsageRates { nts: nts.into(), ..rates(10_000_000_001) };
            book.place(now, &card(), (&tenant(), &dag(), uid(3)), rates);
        }
        let packets = (second - begin) * 1_234_567;
        let counters = DagCounters {
            packets_in: packets + packets / 100,
            bytes_intended: packets * 1_010,
            bytes_served: packets * 1_000,
            packets_out: packets,
        };
        let mut drops = [0; DropCause::ALL.len()];
        drops[DropCause::RateLimited as usize] = packets / 100;
        let counters = CardCounters {
            cycles: Some((second - begin) * HZ),
            dags: vec![(3, counters)],
            dag_drops: vec![(3, drops)],
            ..CardCounters::default()
        };
        let line = Bandwidth::from_gbps(100);
        let reading = UsageReading { now, clock_hz: HZ, line, counters: &counters };
        book.read(&card(), &reading, |_| true);
        book.close(now, &ages);
        records.apply(book.take_writes());
        second += match end - second {
            age if age > ages.minute + DAY => HOUR,
            age if age > ages.fine + HOUR => 60,
            _ => 10,
        };
    }
    IntervalLevel::ALL.map(|level| {
        let letter = format!("/{}/0", level.letter());
        let pages = records.0.iter().filter(|(key, _)| key.contains(&letter));
        pages.fold((0, 0), |(count, bytes), (key, value)| {
            (count + 1, bytes + key.len() + value.len())
        })
    })
}
