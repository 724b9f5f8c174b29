//! The ledger over a model of etcd: with lost answers, requests that arrive late, crashes, and clocks that are set.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use snic_etcd::model::{EtcdModel, NetworkFault};
use snic_etcd::{Answer, Failed, Record, Request};

use super::*;
use crate::records::Versioned;
use snic_domain::TenantId;

const BEGIN: u64 = 20_000 * DAY + 3_600;
const BORN: u64 = BEGIN - 10;

fn tenant(number: u8) -> TenantId {
    TenantId::new(&format!("t{number}")).expect("a test id")
}

/// Mishap of a request to etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Etcd(NetworkFault),
    /// It has no answer, and is carried out later.
    Late,
}

const NONE: Fault = Fault::Etcd(NetworkFault::None);

struct World {
    etcd: EtcdModel,
    ledger: CallLedger,
    replica: &'static str,
    now: u64,
    runs: u64,
    late: Vec<Request>,
    /// Calls with the second in which they were counted.
    counted: Vec<(u64, u64)>,
    lost: u64,
    /// Times from which calls are lost.
    gaps_due: Vec<u64>,
}

impl World {
    fn new(replica: &'static str) -> Self {
        let mut world = Self {
            etcd: EtcdModel::new(),
            ledger: CallLedger::new(replica, 1, BEGIN),
            replica,
            now: BEGIN,
            runs: 1,
            late: Vec::new(),
            counted: Vec::new(),
            lost: 0,
            gaps_due: Vec::new(),
        };
        world.know();
        world.work(&[]);
        world
    }

    fn know(&mut self) {
        let all = (0..4).map(|number| (tenant(number), BORN)).collect();
        self.ledger.set_tenants(self.now, all);
    }

    fn count(&mut self, number: u8, calls: u64) {
        self.counted.push((self.now, calls));
        self.ledger.count(self.now, [(tenant(number), calls)]);
    }

    fn ask(&mut self, request: &Request, fault: Fault) -> Result<Answer, Failed> {
        match fault {
            Fault::Etcd(fault) => self.etcd.ask_with(Duration::ZERO, request, fault),
            Fault::Late => {
                self.late.push(request.clone());
                Err(Failed::Unknown("no answer in time".to_owned()))
            }
        }
    }

    /// Has all be asked that is due now, with these mishaps first.
    fn work(&mut self, faults: &[Fault]) {
        let mut faults = faults.iter().copied();
        while let Some(request) = self.ledger.next(self.now) {
            let result = self.ask(&request, faults.next().unwrap_or(NONE));
            // What is wrong is for the log.
            let _ = self.ledger.answer(self.now, result);
        }
    }

    fn arrive(&mut self) {
        for request in std::mem::take(&mut self.late) {
            // Nobody waits for the answer.
            let _ = self.etcd.ask(Duration::ZERO, &request);
        }
    }

    /// Lets seconds pass, each with its work.
    fn pass(&mut self, seconds: u64, faults: &[Fault]) {
        for second in 0..seconds {
            self.now += 1;
            self.ledger.count(self.now, []);
            self.work(if second == 0 { faults } else { &[] });
        }
    }

    fn all(&mut self, prefix: &str) -> Vec<Record> {
        let range =
            Request::Range { prefix: prefix.to_owned(), at: None, from: None, limit: 10_000 };
        match self.etcd.ask(Duration::ZERO, &range) {
            Ok(Answer::Range { records, .. }) => records,
            other => panic!("{other:?}"),
        }
    }

    fn sums(&mut self, step: u64) -> CallSums {
        let mut sums = CallSums::new(0, u64::MAX / 4, step);
        for record in self.all(DAYS) {
            let key = CallKey::parse(&record.key).expect("a key");
            let read = Versioned::<CallRecord>::parse(&record.key, &record.value).expect("calls");
            sums.add(&key, read.value());
        }
        sums
    }

    fn stored(&mut self) -> u64 {
        self.sums(0).iter().map(|(.., calls)| calls).sum()
    }

    fn total(&self) -> u64 {
        self.counted.iter().map(|(_, calls)| calls).sum()
    }

    fn own(&mut self) -> CountingRecord {
        let key = format!("{REPLICAS}{}", self.replica);
        let found = self.all(&key).into_iter().find(|record| record.key == key).expect("written");
        Versioned::<CountingRecord>::parse(&key, &found.value).expect("state").value().clone()
    }

    fn gaps(&mut self) -> Vec<CallGap> {
        self.own().gaps_in(0, u64::MAX).collect()
    }

    /// The replica is killed, and starts again at once. What is lost then is within the gap.
    fn crash(&mut self) {
        self.arrive();
        let gone = self.total() - self.lost - self.stored();
        let until = self.own().until;
        let since = self.counted.iter().filter(|(second, _)| *second >= until);
        let at_most: u64 = since.map(|(_, calls)| calls).sum();
        assert!(gone <= at_most, "{gone} calls are lost, and since {until} there were {at_most}");
        self.lost += gone;
        if gone > 0 {
            self.gaps_due.push(until);
        }
        self.runs += 1;
        self.ledger = CallLedger::new(self.replica, self.runs, self.now);
        self.know();
    }

    fn end(&mut self) {
        self.ledger.end();
        for _ in 0..20 {
            self.now += 1;
            self.work(&[]);
        }
        assert!(self.ledger.has_ended());
    }
}

/// Ten seconds after a call it is stored; an answer that is lost, or a request that arrives late, changes nothing.
#[test]
fn calls_are_stored_once_whatever_happens_to_an_answer() {
    let lost = [NetworkFault::AnswerLost, NetworkFault::RequestLost, NetworkFault::Unreachable];
    for fault in lost.map(Fault::Etcd).into_iter().chain([NONE, Fault::Late]) {
        let mut world = World::new("r1");
        world.count(0, 3);
        world.pass(10, &[]);
        assert_eq!(world.stored(), 3);
        world.count(0, 4);
        world.count(1, 5);
        // The second record is read first.
        world.pass(9, &[]);
        world.pass(1, &[NONE, fault]);
        world.pass(1, &[fault]);
        world.arrive();
        world.pass(10, &[]);
        assert_eq!((world.stored(), world.ledger.pending()), (12, 0), "{fault:?}");
        assert_eq!(world.gaps(), []);
    }
}

/// Nothing is written while etcd is away, over midnight too, and all of it afterwards, on its day and in its minute.
#[test]
fn etcd_that_is_away_over_midnight_only_delays() {
    let mut world = World::new("r1");
    world.now = 20_001 * DAY - 30;
    for _ in 0..6 {
        world.count(0, 1);
        for _ in 0..10 {
            world.now += 1;
            world.work(&[Fault::Etcd(NetworkFault::Unreachable)]);
        }
    }
    assert_eq!(world.stored(), 0);
    world.pass(12, &[]);
    let steps: Vec<(u64, u64)> =
        world.sums(60).iter().map(|(_, from, _, calls)| (from, calls)).collect();
    let midnight = 20_001 * DAY;
    assert_eq!(steps, [(midnight - 60, 3), (midnight, 3)]);
    let days: Vec<u64> =
        world.all(DAYS).iter().filter_map(|of| CallKey::parse(&of.key)).map(|of| of.day).collect();
    assert_eq!(days, [20_000, 20_001]);
}

/// A replica that is killed leaves a gap up to its next start; one that stops in order leaves none.
#[test]
fn a_replica_that_is_killed_leaves_a_gap() {
    let mut world = World::new("r1");
    world.count(0, 3);
    world.pass(12, &[]);
    let until = world.own().until;
    world.count(0, 5);
    world.now += 3;
    world.crash();
    assert_eq!(world.lost, 5);
    world.count(0, 2);
    world.pass(12, &[]);
    let gap = CallGap { from: until, to: BEGIN + 15 };
    assert_eq!((world.stored(), world.gaps()), (5, vec![gap]));
    world.count(1, 7);
    world.end();
    assert_eq!(world.stored(), 12, "a stop in order stores everything");
    world.runs += 1;
    world.ledger = CallLedger::new("r1", world.runs, world.now);
    world.pass(12, &[]);
    assert_eq!(world.gaps(), [gap], "and leaves no gap");
}

/// Another replica notices that one is gone. One that was only cut off takes that back, with all that it counted meanwhile.
#[test]
fn another_replica_notices_one_that_is_gone() {
    let mut world = World::new("r1");
    world.count(0, 3);
    world.pass(12, &[]);
    let until = world.own().until;
    let mut other = CallLedger::new("r2", 9, world.now);
    world.count(0, 4);
    for _ in 0..60 {
        world.now += 1;
        while let Some(request) = other.next(world.now) {
            let result = world.ask(&request, NONE);
            assert_eq!(other.answer(world.now, result), None);
        }
    }
    let gaps = world.gaps();
    assert_eq!(gaps.len(), 1);
    assert!(gaps[0].from == until && gaps[0].millis() <= 60_000, "{gaps:?}");
    assert_eq!(world.sums(0).iter().count(), 1);
    world.pass(12, &[]);
    assert_eq!((world.stored(), world.gaps()), (7, Vec::new()));
}

/// A tenant that gets the name of a deleted one has records of its own. Calls of one that is not heard of yet wait for it, and count for
/// nobody if it never comes.
#[test]
fn tenants_of_one_name_are_told_apart() {
    let mut world = World::new("r1");
    world.count(0, 3);
    world.ledger.set_tenant(tenant(0), None);
    world.count(0, 5);
    world.now += 2;
    world.ledger.set_tenant(tenant(0), Some(BEGIN + 1));
    world.count(0, 7);
    world.ledger.count(world.now, [(tenant(9), 100)]);
    world.pass(20, &[]);
    world.ledger.set_tenant(tenant(9), Some(BEGIN));
    world.pass(20, &[]);
    let found: Vec<(u64, u64)> = world
        .all(DAYS)
        .iter()
        .map(|record| {
            let read = Versioned::<CallRecord>::parse(&record.key, &record.value).expect("calls");
            let calls = read.value().calls.iter().map(|(_, calls)| calls).sum();
            (CallKey::parse(&record.key).expect("a key").born, calls)
        })
        .collect();
    assert_eq!(found, [(BORN, 3), (BEGIN + 1, 12)]);
}

/// Compaction adds up replicas and minutes; calls of such a day that are stored afterwards are in it next time.
#[test]
fn compaction_changes_no_sum() {
    let mut world = World::new("r1");
    for _ in 0..200 {
        world.count(0, 1);
        world.count(1, 2);
        world.pass(40, &[]);
    }
    world.count(0, 10);
    let total = world.total() - 10;
    for interval in [1, 1, 60] {
        let prefix = |number| day_prefix(20_000, Some(&tenant(number)));
        for number in [0, 1] {
            let records = world.all(&prefix(number));
            if let Some(transaction) = compaction(&records, interval).expect("records") {
                let done = world.etcd.ask(Duration::ZERO, &Request::Commit(transaction));
                assert!(matches!(done, Ok(Answer::Committed(_))), "{done:?}");
            }
            let merged = world.all(&prefix(number));
            assert_eq!(merged.len(), 1);
            assert_eq!(compaction(&merged, interval), Ok(None), "once");
        }
        assert!([total, total + 10].contains(&world.stored()));
        world.pass(30, &[]);
        assert_eq!(world.stored(), total + 10);
    }
    let hours: Vec<u64> = world.sums(60).iter().map(|(_, from, ..)| from % 3_600).collect();
    assert!(hours.len() > 4 && hours.iter().all(|of| *of == 0), "{hours:?}");
    let records = world.all(DAYS);
    let gone = world.etcd.ask(Duration::ZERO, &Request::Commit(removal(&records)));
    assert!(gone.is_ok() && world.stored() == 0, "{gone:?}");
}

/// Steps add up to the total wherever they begin, and adjacent ranges to the whole: a minute counts where it begins.
#[test]
fn a_minute_counts_in_the_step_that_it_begins_in() {
    let key = CallKey {
        day: 1,
        tenant: tenant(0),
        born: 0,
        hour: 0,
        replica: "https://a:1/x".to_owned(),
    };
    assert_eq!(CallKey::parse(&key.to_string()), Some(key.clone()));
    let mut record = CallRecord::default();
    (0..10).for_each(|minute| record.calls.add(minute, 1 << minute));
    let of = |from, to, step| {
        let mut sums = CallSums::new(DAY + from, DAY + to, step);
        sums.add(&key, &record);
        let steps: Vec<(u64, u64, u64)> =
            sums.iter().map(|(_, from, end, calls)| (from - DAY, end - DAY, calls)).collect();
        steps
    };
    assert_eq!(of(0, 600, 0), [(0, 600, 1_023)]);
    assert_eq!(of(30, 90, 0), [(30, 120, 2)]);
    assert_eq!(of(0, 90, 45), [(0, 60, 1), (45, 120, 2)]);
    let whole: u64 = of(0, 600, 7).iter().map(|(.., calls)| calls).sum();
    assert_eq!(whole, 1_023);
}

/// Size of what is stored and written, for the page of operating.
#[test]
fn a_thousand_tenants_that_call_each_minute_take_so_many_bytes() {
    let key = CallKey {
        day: 20_000,
        tenant: tenant(0),
        born: BORN,
        hour: 1,
        replica: "https://fleet-0.example.org:7700".to_owned(),
    };
    let bytes = |first: u16, minutes: u16, interval: u16| {
        let mut record = CallRecord { interval_minutes: interval, ..CallRecord::default() };
        let all = first..first + minutes;
        all.for_each(|minute| record.calls.add(minute / interval * interval, 5));
        key.to_string().len() + Versioned::new(record).bytes().len()
    };
    let written: usize = (1..=60).map(|minutes| bytes(720, minutes, 1)).sum();
    let hour = bytes(720, 60, 1);
    let (day, by_hour) = (bytes(0, 1_440, 1), bytes(0, 1_440, 60));
    println!(
        "{written} bytes an hour are written; {hour} are left, {day} of a day, {by_hour} by hour"
    );
    assert_eq!((written, hour, day, by_hour), (11_271, 247, 3_007, 336));
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(NONE),
        1 => Just(Fault::Etcd(NetworkFault::AnswerLost)),
        1 => Just(Fault::Etcd(NetworkFault::RequestLost)),
        1 => Just(Fault::Etcd(NetworkFault::Unreachable)),
        1 => Just(Fault::Late),
    ]
}

#[derive(Debug, Clone)]
enum Act {
    Count(u8, u64),
    Pass(u64, Vec<Fault>),
    Arrive,
    Crash,
    ClockBack(u64),
    Jump(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..4_u8, 1..50_u64).prop_map(|(number, calls)| Act::Count(number, calls)),
        6 => (1..15_u64, prop::collection::vec(fault(), 0..8)).prop_map(|(seconds, faults)| Act::Pass(seconds, faults)),
        1 => Just(Act::Arrive),
        1 => Just(Act::Crash),
        1 => (1..5_000_u64).prop_map(Act::ClockBack),
        1 => (1..50_000_u64).prop_map(Act::Jump),
    ]
}

proptest! {
    /// Whatever happens, what is stored is what was counted but for calls within gaps.
    #[test]
    fn what_is_stored_is_what_was_counted_but_for_gaps(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new("r1");
        for act in acts {
            match act {
                Act::Count(number, calls) => world.count(number, calls),
                Act::Pass(seconds, faults) => world.pass(seconds, &faults),
                Act::Arrive => world.arrive(),
                Act::Crash => world.crash(),
                Act::ClockBack(seconds) => {
                    // Seconds of the truth go on from there, so that a gap is compared with what came behind it.
                    world.pass(12, &[]);
                    world.arrive();
                    world.pass(12, &[]);
                    let (stored, lost) = (world.stored(), world.lost);
                    prop_assert_eq!(stored + lost, world.total());
                    world.counted = vec![(0, stored + lost)];
                    world.now -= seconds;
                    world.pass(12, &[]);
                }
                Act::Jump(seconds) => world.now += seconds,
            }
            let stored = world.stored();
            prop_assert!(stored + world.lost <= world.total(), "{} of {}", stored, world.total());
        }
        world.arrive();
        world.end();
        let (stored, gaps) = (world.stored(), world.gaps());
        prop_assert_eq!(stored + world.lost, world.total());
        for from in world.gaps_due {
            prop_assert!(gaps.iter().any(|gap| gap.from == from), "{} in {:?}", from, gaps);
        }
    }

    /// A list of calls is read as it was written, and none that breaks off.
    #[test]
    fn calls_of_a_day_are_read_as_they_were_written(minutes in prop::collection::btree_map(0..1_440_u16, 1..u64::MAX, 0..100)) {
        let minutes: BTreeMap<u16, u64> = minutes;
        let mut calls = DayCalls::default();
        minutes.iter().for_each(|(minute, count)| calls.add(*minute, *count));
        let mut numbers: Vec<u64> = calls.clone().into();
        prop_assert_eq!(DayCalls::try_from(numbers.clone()), Ok(calls));
        numbers.extend([1_440, 1, 1]);
        prop_assert!(DayCalls::try_from(numbers.clone()).is_err());
        numbers.truncate(numbers.len() - 1);
        prop_assert!(DayCalls::try_from(numbers).is_err());
    }
}
