//! Times of promises against a list of what was true in each millisecond.

use proptest::prelude::*;

use super::*;
use crate::{BreakCause, Outage, PromiseState};

const BROKEN: PromiseState = PromiseState::Broken(BreakCause::BelowPromise);
const LOST: PromiseState = PromiseState::Broken(BreakCause::CardLost);

/// One DAG with a promise, whose book has an event each second while the daemon lives.
struct Promised {
    book: Book,
    records: Records,
    uid: DagUid,
    /// Host's clock, in milliseconds.
    now: u64,
    state: PromiseState,
    /// Milliseconds of each state; in those of the daemon's death, unknown.
    truth: BTreeMap<String, u64>,
    /// The truth and the time of when the account was stored last.
    stored: (BTreeMap<String, u64>, u64),
    is_placed: bool,
}

fn word(state: PromiseState) -> String {
    format!("{state:?}")
}

impl Promised {
    fn new() -> Self {
        let uid = DagUid::new(3, 9).expect("one");
        let mut world = Self {
            book: Book::default(),
            records: Records::default(),
            uid,
            now: BEGIN / 1_000_000,
            state: PromiseState::Kept,
            truth: BTreeMap::new(),
            stored: (BTreeMap::new(), 0),
            is_placed: true,
        };
        world.book.booted(world.at(), &card(), 1);
        world.read();
        world.book.place(world.at(), &card(), (&tenant(), &dag(), uid), rates(1_000_000_000));
        world.set(PromiseState::Kept);
        world
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.now * 1_000_000)
    }

    fn read(&mut self) {
        let counters = CardCounters::default();
        let line = Bandwidth::from_gbps(100);
        let reading = UsageReading { now: self.at(), clock_hz: HZ, line, counters: &counters };
        self.book.read(&card(), &reading, |_| true);
    }

    fn end(&mut self) {
        self.book.close(self.at(), &Retention::default());
        let writes: Vec<_> = self.book.take_writes().collect();
        let is_account =
            |write: &UsageWrite| matches!(write, UsageWrite::Put(UsageRecord::Account(..)));
        if writes.iter().any(is_account) {
            let state = self.book.promises.get(&self.uid);
            let until = state.map_or(self.now, |promise| promise.since_ms);
            let mut truth = self.truth.clone();
            // What is not charged yet.
            if let Some(of) = truth.get_mut(&word(self.state)) {
                *of -= (self.now - until).min(*of);
            }
            self.stored = (truth, until);
        }
        self.records.apply(writes);
        self.book.check().expect("its invariants");
    }

    fn card(&self) -> Option<CardId> {
        self.is_placed.then(card)
    }

    fn set(&mut self, state: PromiseState) {
        self.state = state;
        self.book.tick(self.at());
        let at = self.card();
        self.book.set_promise(self.at(), self.uid, at.as_ref(), Some(state));
        assert_eq!(self.book.promise(self.uid), Some(state));
        self.end();
    }

    fn pass(&mut self, millis: u64) {
        for part in std::iter::repeat_n(1_000, (millis / 1_000) as usize).chain([millis % 1_000]) {
            self.now += part;
            *self.truth.entry(word(self.state)).or_default() += part;
            self.book.tick(self.at());
            self.read();
            self.end();
        }
    }

    /// The daemon hangs, and its next event comes when it goes on.
    fn hang(&mut self, millis: u64) {
        self.now += millis;
        *self.truth.entry(word(PromiseState::Unknown)).or_default() += millis;
        self.book.tick(self.at());
        self.read();
        self.end();
    }

    /// The daemon dies for so long; its first event tells it the state.
    fn die(&mut self, millis: u64) {
        self.now += millis;
        let (truth, until) = self.stored.clone();
        self.truth = truth;
        *self.truth.entry(word(PromiseState::Unknown)).or_default() += self.now - until;
        self.book = self.records.restore();
        assert_eq!(self.book.promise(self.uid), Some(PromiseState::Unknown), "until it is told");
        self.book.tick(self.at());
        self.book.booted(self.at(), &card(), 1);
        self.read();
        self.set(self.state);
    }

    /// The DAG loses its place, and gets it back.
    fn replace(&mut self) {
        match self.is_placed {
            true => self.book.leave(self.at(), &card(), self.uid),
            false => {
                let name = (&tenant(), &dag(), self.uid);
                self.book.place(self.at(), &card(), name, rates(1_000_000_000));
            }
        }
        self.is_placed = !self.is_placed;
        self.set(self.state);
    }

    fn billed(&mut self) -> UsageAmounts {
        self.now += 10_000;
        *self.truth.entry(word(self.state)).or_default() += 10_000;
        self.book.tick(self.at());
        self.read();
        self.end();
        self.records.billed(&key_of(self.uid), &Retention::default())
    }
}

proptest! {
    /// Whatever comes, each millisecond counts once, in the state that it was in; while a daemon is dead or hangs, and since what it had
    /// stored last, it is unknown.
    #[test]
    fn each_millisecond_is_in_one_state(
        acts in prop::collection::vec((0_u8..9, 1_u64..45_000), 1..60),
    ) {
        let mut world = Promised::new();
        let begun = world.now;
        for (act, millis) in acts {
            match act {
                0..=2 => world.pass(millis),
                3 => world.set(PromiseState::Kept),
                4 => world.set(BROKEN),
                5 => world.set(LOST),
                6 => world.hang(10_001 + millis),
                7 => world.replace(),
                _ => world.die(millis),
            }
        }
        let billed = world.billed();
        let of = |state: PromiseState| world.truth.get(&word(state)).copied().unwrap_or(0);
        let broken = |cause| billed.get(Meter::PromiseBroken(cause));
        prop_assert_eq!(billed.get(Meter::PromiseTime), world.now - begun);
        prop_assert_eq!(billed.get(Meter::PromiseUnknown), of(PromiseState::Unknown));
        prop_assert_eq!(broken(BreakCause::BelowPromise), of(BROKEN));
        prop_assert_eq!(broken(BreakCause::CardLost), of(LOST));
        prop_assert_eq!(broken(BreakCause::NoPlace), 0);
    }
}

/// A daemon that dies in the middle of an interval, with nothing stored since it began: up to ten seconds more are unknown, none is broken.
#[test]
fn what_was_not_stored_is_unknown() {
    let mut world = Promised::new();
    world.pass(25_000);
    world.now += 60_000;
    world.book = world.records.restore();
    world.book.booted(world.at(), &card(), 1);
    world.read();
    world.set(PromiseState::Kept);
    let billed = world.billed();
    let unknown = billed.get(Meter::PromiseUnknown);
    assert!((60_000..=70_000).contains(&unknown), "{unknown}");
    assert_eq!(billed.get(Meter::PromiseTime), 25_000 + 60_000 + 10_000);
    assert!(BreakCause::ALL.iter().all(|cause| billed.get(Meter::PromiseBroken(*cause)) == 0));
}

/// A card that is not read keeps no promise that anybody knows of; one that is lost breaks it.
#[test]
fn time_without_readings_is_unknown() {
    let mut world = Promised::new();
    world.pass(5_000);
    let silent = |world: &mut Promised, seconds: u64| {
        for _ in 0..seconds {
            world.now += 1_000;
            world.book.tick(world.at());
            world.end();
        }
    };
    silent(&mut world, 60);
    world.set(LOST);
    silent(&mut world, 60);
    world.read();
    world.set(PromiseState::Kept);
    let billed = world.billed();
    assert_eq!(billed.get(Meter::PromiseTime), 135_000);
    let lost = billed.get(Meter::PromiseBroken(BreakCause::CardLost));
    assert_eq!(lost, 60_000, "whether it was read or not");
    // Up to ten seconds count as before, once: when it is seen that no reading comes.
    let unknown = billed.get(Meter::PromiseUnknown);
    assert!((50_000..=60_000).contains(&unknown), "{unknown}");
}

#[test]
fn outages_have_their_times_and_the_latest_are_kept() {
    let mut world = Promised::new();
    let mut expected = Vec::new();
    for number in 1..=12 {
        world.pass(5_000);
        let start_ms = world.now;
        world.set(LOST);
        world.pass(number * 1_000);
        expected.push(Outage { start_ms, end_ms: world.now, cause: BreakCause::CardLost });
        world.set(PromiseState::Kept);
    }
    // A moment of something else does not end an outage, but another cause does.
    for (state, millis) in [(BROKEN, 2_000), (PromiseState::Kept, 700), (BROKEN, 3_000)] {
        world.set(state);
        world.pass(millis);
    }
    let end_ms = world.now;
    world.set(PromiseState::Kept);
    let start_ms = end_ms - 5_700;
    expected.push(Outage { start_ms, end_ms, cause: BreakCause::BelowPromise });
    let (_, account) = world.book.accounts().next().expect("one");
    assert_eq!(account.outages(), &expected[5..]);
}

/// A DAG without a place is charged on the account that it had, and nothing of it is left when it is old.
#[test]
fn a_promise_without_a_place_goes_on_and_ends_with_the_dag() {
    let mut world = Promised::new();
    world.pass(5_000);
    world.replace();
    world.set(PromiseState::Broken(BreakCause::NoPlace));
    for _ in 0..4 {
        world.pass(3_600_000);
    }
    world.book.set_promise(world.at(), world.uid, None, None);
    world.pass(20_000);
    let billed = world.records.billed(&key_of(world.uid), &Retention::default());
    let no_place = billed.get(Meter::PromiseBroken(BreakCause::NoPlace));
    assert_eq!((no_place, billed.get(Meter::PromiseTime)), (4 * 3_600_000, 4 * 3_600_000 + 5_000));
    assert!(billed.get(Meter::Life) <= 5_000);
    for _ in 0..100 {
        world.now += 86_400_000;
        for _ in 0..30 {
            world.now += 3_600_000;
            world.book.tick(world.at());
            world.end();
        }
    }
    assert_eq!(world.book.accounts().count(), 0);
    let pages = world.records.0.keys().filter(|key| UsageKey::is_full_page(key)).count();
    assert_eq!(pages, 0, "{:?}", world.records.0.keys());
}
