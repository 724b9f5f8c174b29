//! Calls and stored bytes of a tenant against sums of what was told, over crashes that lose the last batches.

use proptest::prelude::*;
use snic_domain::Timestamp;

use super::{BEGIN, Records, SECOND, tenant};
use crate::{
    AccountKey, AccountPart, Book, Gap, Meter, Retention, UsageAmounts, UsageRecord, UsageWrite,
};

/// Second in which the tenant was created.
const BORN: u64 = BEGIN / SECOND;
const MILLI: u64 = 1_000_000;

fn key_since(born: u64) -> AccountKey {
    AccountKey { card: None, part: AccountPart::Tenant(tenant(), born) }
}

#[derive(Debug, Clone)]
enum Act {
    Calls(u64),
    Pass {
        millis: u64,
    },
    /// The daemon dies with this many batches that are not durable, and runs again some time later.
    Crash {
        lost: usize,
        millis: u64,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1_u64..500).prop_map(Act::Calls),
        4 => (1_u64..40_000).prop_map(|millis| Act::Pass { millis }),
        1 => (0_usize..4, 1_u64..90_000).prop_map(|(lost, millis)| Act::Crash { lost, millis }),
    ]
}

/// A daemon that stores so many bytes for its tenant, and what it was told.
struct World {
    book: Book,
    records: Records,
    /// Batches that may yet be lost, each with the calls that it has seen where it stores the account.
    batches: Vec<(Vec<UsageWrite>, Option<u64>)>,
    millis: u64,
    bytes: u64,
    told: u64,
    durable: u64,
}

impl World {
    fn new(bytes: u64) -> Self {
        let (book, records) = (Book::default(), Records::default());
        let mut world =
            Self { book, records, batches: Vec::new(), millis: 0, bytes, told: 0, durable: 0 };
        world.book.set_stored(world.now(), (&tenant(), BORN), bytes);
        world.end();
        world.commit(1);
        world
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(BEGIN + self.millis * MILLI)
    }

    fn end(&mut self) {
        self.book.close(self.now(), &Retention::default());
        let writes: Vec<_> = self.book.take_writes().collect();
        let is_account =
            |write: &UsageWrite| matches!(write, UsageWrite::Put(UsageRecord::Account(..)));
        let seen = writes.iter().any(is_account).then_some(self.told);
        self.batches.push((writes, seen));
        self.book.check().expect("its invariants");
    }

    fn commit(&mut self, count: usize) {
        for (writes, seen) in self.batches.drain(..count) {
            self.records.apply(writes);
            self.durable = seen.unwrap_or(self.durable);
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Calls(calls) => {
                self.told += calls;
                self.book.count_calls(self.now(), (&tenant(), BORN), calls);
            }
            Act::Pass { millis } => self.millis += millis,
            Act::Crash { lost, millis } => {
                self.commit(self.batches.len().saturating_sub(lost));
                self.batches.clear();
                self.told = self.durable;
                self.millis += millis;
                self.book = self.records.restore();
                self.book.resume(self.now());
                self.book.set_stored(self.now(), (&tenant(), BORN), self.bytes);
            }
        }
        self.end();
    }

    fn billed(&mut self) -> UsageAmounts {
        self.millis += 20_000;
        self.end();
        self.commit(self.batches.len());
        self.records.billed(&key_since(BORN), &Retention::default())
    }
}

proptest! {
    /// Each millisecond is charged or in the gap, and each call is charged that was stored.
    #[test]
    fn what_a_tenant_uses_is_charged_or_in_a_gap(
        bytes in 1_u64..(1 << 40),
        acts in prop::collection::vec(act(), 1..80),
    ) {
        let mut world = World::new(bytes);
        acts.iter().for_each(|act| world.act(act));
        let billed = world.billed();
        let gap = billed.get(Meter::Gap(Gap::NotRunning));
        let charged = u128::from(bytes) * u128::from(world.millis - gap) / 1_000;
        prop_assert_eq!(u128::from(billed.get(Meter::Stored)), charged);
        prop_assert_eq!(billed.get(Meter::ApiCalls), world.durable);
        let crashes = acts.iter().filter(|act| matches!(act, Act::Crash { .. })).count();
        prop_assert_eq!(gap == 0, crashes == 0, "{} ms in {} crashes", gap, crashes);
    }
}

/// An hour of one byte less than a kilobyte, then a gigabyte, then nothing: by hand.
#[test]
fn bytes_are_charged_from_change_to_change() {
    let mut world = World::new(1_023);
    world.act(&Act::Pass { millis: 3_600_500 });
    for (bytes, millis) in [(1_000_000_000, 1_500), (0, 60_000), (7, 1_000)] {
        world.book.set_stored(world.now(), (&tenant(), BORN), bytes);
        world.act(&Act::Pass { millis });
    }
    world.book.set_stored(world.now(), (&tenant(), BORN), 0);
    let sum = (1_023 * 3_600_500 + 1_500_000_000_000 + 7_000) / 1_000;
    assert_eq!(world.billed().get(Meter::Stored), sum);
}

/// A daemon that stops in good order stores all but the time until the next start.
#[test]
fn a_stop_in_good_order_loses_the_time_without_the_daemon_alone() {
    let mut world = World::new(1_000);
    world.act(&Act::Calls(3));
    world.millis += 4_321;
    world.book.store_tenants(world.now());
    world.end();
    world.act(&Act::Crash { lost: 0, millis: 7_000 });
    let billed = world.billed();
    let gap = billed.get(Meter::Gap(Gap::NotRunning));
    assert_eq!((billed.get(Meter::ApiCalls), gap), (3, 7_000));
    assert_eq!(billed.get(Meter::Stored), world.millis - 7_000);
}

/// A tenant that is created again has an account of its own, and the one before gets nothing more.
#[test]
fn a_name_that_is_given_again_is_another_account() {
    let mut world = World::new(1_000);
    world.act(&Act::Calls(3));
    world.act(&Act::Pass { millis: 60_000 });
    world.book.end_tenant(world.now(), &tenant());
    let later = BORN + 120;
    world.act(&Act::Pass { millis: 60_000 });
    world.book.count_calls(world.now(), (&tenant(), later), 5);
    let first = world.billed();
    assert_eq!((first.get(Meter::ApiCalls), first.get(Meter::Stored)), (3, 60_000));
    let second = world.records.billed(&key_since(later), &Retention::default());
    assert_eq!((second.get(Meter::ApiCalls), second.get(Meter::Stored)), (5, 0));
    let open: Vec<bool> =
        world.book.accounts().map(|(_, account)| account.is_since(later)).collect();
    assert_eq!(open, [false, true]);
    assert_eq!(first.get(Meter::Gap(Gap::NotRunning)), 0);
}

/// Ten thousand bitstreams that come and go, with four calls each, take one account of the tenant and are charged to the last unit.
#[test]
fn a_tenant_that_uploads_without_end_fills_one_account() {
    let (mut book, mut records) = (Book::default(), Records::default());
    let (retention, whose) = (Retention::default(), (&tenant(), BORN));
    let at = |millis: u64| Timestamp::from_nanos(BEGIN + millis * MILLI);
    let mut written = 0;
    for number in 0..10_000_u64 {
        let now = number * 50;
        book.set_stored(at(now), whose, 40_000_000 + number);
        book.count_calls(at(now), whose, 4);
        book.set_stored(at(now + 20), whose, 0);
        book.close(at(now + 20), &retention);
        written += records.apply(book.take_writes());
    }
    book.check().expect("its invariants");
    book.close(at(520_000), &retention);
    records.apply(book.take_writes());
    assert_eq!(book.accounts().count(), 1);
    let billed = records.billed(&key_since(BORN), &retention);
    assert_eq!(billed.get(Meter::ApiCalls), 40_000);
    let sum: u64 = (0..10_000).map(|number| (40_000_000 + number) * 20).sum();
    assert_eq!(billed.get(Meter::Stored), sum / 1_000);
    assert!(written < 10_000 * 1_024, "{written} bytes");
}
