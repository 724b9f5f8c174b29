//! Money spent in a month, against all intervals that the store has of it.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{Prices, month};

/// 2026-11-01T00:00:00Z
const NOVEMBER: u64 = 1_793_491_200;
const DAY: u64 = 86_400;
/// 2026-11-15T06:00:00Z
const DEARER: u64 = NOVEMBER + 14 * DAY + 6 * 3_600;

/// A gigabit is 0.5 and then 2, and a second of an instance of the NT is 0.001 and then nothing.
const PRICES: &str = r#"
    currency = "EUR"
    provider = "Example"
    [[versions]]
    name = "a"
    from = 2026-01-01T00:00:00Z
    prices = { promised_gigabits = "0.5" }
    nt_seconds = { nt1 = "0.001" }
    [[versions]]
    name = "b"
    from = 2026-11-15T06:00:00Z
    prices = { promised_gigabits = "2" }
"#;

fn prices() -> Option<Arc<Prices>> {
    Some(Arc::new(Prices::parse(PRICES).expect("they are valid")))
}

/// One DAG of a tenant with a budget.
struct Spender {
    book: Book,
    records: Records,
    uid: DagUid,
    /// The host's clock and the card's, in seconds.
    host: u64,
    card: u64,
}

impl Spender {
    /// Begins at a second, with a promise in kbit/s.
    fn new(begin: u64, promised: u64) -> Self {
        let uid = DagUid::new(3, 9).expect("one");
        let (book, records) = (Book::default(), Records::default());
        let mut world = Self { book, records, uid, host: begin, card: 0 };
        world.book.set_prices(prices());
        world.book.booted(world.now(), &card(), 1);
        world.read();
        world.book.place(world.now(), &card(), (&tenant(), &dag(), uid), world.rates(promised));
        world.end();
        world
    }

    fn rates(&self, kbps: u64) -> UsageRates {
        let nts = BTreeMap::from([(nt(0), 1), (nt(1), 2)]).into();
        UsageRates { promised: kbps * 1_000, nts, ..UsageRates::default() }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.host * SECOND)
    }

    fn read(&mut self) {
        let counters = CardCounters { cycles: Some(self.card * HZ), ..CardCounters::default() };
        let line = Bandwidth::from_gbps(100);
        let reading = UsageReading { now: self.now(), clock_hz: HZ, line, counters: &counters };
        self.book.read(&card(), &reading, |_| true);
    }

    fn end(&mut self) {
        self.book.close(self.now(), &Retention::default());
        self.records.apply(self.book.take_writes());
        self.book.check().expect("the book's invariants");
    }

    /// Time passes, in steps of so many seconds, each with an event.
    fn pass(&mut self, seconds: u64, step: u64) {
        for _ in 0..seconds / step {
            (self.host, self.card) = (self.host + step, self.card + step);
            self.read();
            self.end();
        }
    }

    fn set_budget(&mut self) {
        self.book.track_spending(&tenant(), Some(0));
    }

    /// The daemon is killed, and starts again.
    fn restart(&mut self) {
        let has_budget = self.book.tracks_spending(&tenant());
        self.book = self.records.restore();
        self.book.track_spending(&tenant(), has_budget);
        self.book.set_prices(prices());
        self.read();
        self.end();
    }

    fn spent(&self) -> Option<String> {
        self.book.spent(&tenant()).map(|spent| spent.to_string())
    }

    /// Money for the intervals that begin in the month up to the last close, by the prices by hand; in billionths.
    fn judged(&self) -> String {
        let key = key_of(self.uid);
        let closed: u64 = read(&self.records.0[&UsageKey::Closed.to_string()]);
        let account: SavedAccount =
            read(&self.records.0[&UsageKey::Account(key.clone()).to_string()]);
        let retention = Retention::default();
        let hours = self.records.series(&key, &account, &retention, (closed, 3_600));
        let mut sum = 0_u128;
        for (from, amounts) in hours.range(month(closed).0..) {
            let (gigabit, of_nt) = if *from < DEARER { (500, 1_000) } else { (2_000, 0) };
            let place = account.nts.iter().position(|of| *of == nt(1)).expect("it was used");
            sum += u128::from(amounts.get(Meter::Promised)) * gigabit;
            sum += u128::from(amounts.get(Meter::Nt(place as u8))) * of_nt;
        }
        let text = format!("{}.{:09}", sum / 1_000_000_000, sum % 1_000_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[test]
fn a_month_ends_with_its_last_interval_and_the_next_begins_with_nothing() {
    let mut world = Spender::new(NOVEMBER - 40, 1_000_000);
    world.set_budget();
    world.pass(30, 10);
    // 30 s of a gigabit a second, and of two instances.
    assert_eq!(world.spent().as_deref(), Some("15.06"));
    world.book.take_spenders();
    world.pass(9, 1);
    assert_eq!(world.spent().as_deref(), Some("15.06"), "the interval is not over");
    assert!(world.book.take_spenders().is_empty());
    world.pass(1, 1);
    assert_eq!(world.spent().as_deref(), Some("0"), "all of October is over");
    assert_eq!(world.book.month(), (NOVEMBER, NOVEMBER + 30 * DAY));
    assert!(world.book.take_spenders().contains(&tenant()), "it is free again");
    world.pass(10, 10);
    assert_eq!(world.spent(), Some("5.02".to_owned()));
    assert_eq!(world.spent(), Some(world.judged()));
}

#[test]
fn a_month_with_two_versions_of_prices_adds_up_whenever_the_budget_was_set() {
    let mut world = Spender::new(NOVEMBER - 3 * DAY, 7_777);
    world.pass(20 * DAY, 3_600);
    assert_eq!(world.spent(), None, "it has no budget");
    assert!(world.book.take_spenders().is_empty());
    world.set_budget();
    assert_eq!(world.spent(), Some(world.judged()), "of days that are over, too");
    world.pass(2 * 3_600, 10);
    assert_eq!(world.spent(), Some(world.judged()));
    world.restart();
    assert_eq!(world.spent(), Some(world.judged()), "after a kill");
    world.pass(10 * DAY, 3_600);
    assert_eq!(world.spent(), Some(world.judged()));
    assert!(world.book.month().0 == NOVEMBER && world.host > DEARER);
    world.pass(10 * DAY, 3_600);
    assert_eq!(world.book.month().0, NOVEMBER + 30 * DAY);
    assert_eq!(world.spent(), Some(world.judged()), "another month");
    let months = world.records.0.keys().filter(|key| key.starts_with("usage-open/months/"));
    assert_eq!(months.count(), 1, "one record of an account, whatever month it is");
}

#[test]
fn a_clock_that_goes_back_frees_nobody_twice() {
    let mut world = Spender::new(NOVEMBER - 60, 1_000_000);
    world.set_budget();
    world.pass(120, 10);
    assert_eq!(world.spent(), Some("30.12".to_owned()), "60 s of November");
    world.host -= 3 * 3_600; // It is October again.
    world.pass(3 * 3_600 + 600, 10);
    assert_eq!(world.book.month().0, NOVEMBER);
    assert_eq!(world.spent(), Some(world.judged()));
    let spent = world.book.spent(&tenant()).expect("a budget");
    assert!(spent > crate::Money::of_micros(5_000_000_000), "{spent}: none of it was freed again");
    world.restart();
    assert_eq!(world.book.spent(&tenant()), Some(spent));
}

#[test]
fn a_tenant_does_not_pay_for_an_earlier_one_of_its_name() {
    let mut world = Spender::new(NOVEMBER + DAY, 1_000_000);
    world.pass(100, 10);
    world.pass(4, 4);
    world.book.leave(world.now(), &card(), world.uid);
    world.book.track_spending(&tenant(), Some(world.host + 1));
    world.pass(26, 2);
    assert_eq!(world.spent().as_deref(), Some("0"), "the last interval of the other one is over");
    let next = DagUid::new(4, 9).expect("one");
    world.book.place(world.now(), &card(), (&tenant(), &dag(), next), world.rates(1_000_000));
    world.pass(20, 10);
    assert_eq!(world.spent().as_deref(), Some("10.04"), "20 s of its own");
    world.book.track_spending(&tenant(), None);
    assert_eq!(world.spent(), None);
}

/// The simulation found this: an account that ends in the second in which it and its tenant began counted in a sum, and not in the other.
#[test]
fn an_account_that_ends_in_the_second_of_its_birth_counts_once() {
    let mut world = Spender::new(NOVEMBER + DAY, 1_000_000);
    world.book.track_spending(&tenant(), Some(world.host));
    let half = Timestamp::from_nanos(world.host * SECOND + SECOND / 2);
    world.book.leave(half, &card(), world.uid);
    world.pass(20, 10);
    assert_eq!(world.spent(), Some(world.judged()));
    assert_ne!(world.spent().as_deref(), Some("0"));
}

#[test]
fn without_prices_nothing_is_known_and_nothing_lost() {
    let mut world = Spender::new(NOVEMBER + DAY, 1_000_000);
    world.set_budget();
    world.pass(100, 10);
    world.book.set_prices(None);
    assert_eq!(world.spent(), None);
    world.pass(2 * DAY, 3_600);
    world.book.set_prices(prices());
    assert_eq!(world.spent(), Some(world.judged()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happens when, what was spent is what the store says.
    #[test]
    fn what_was_spent_is_what_the_store_says(
        begin in NOVEMBER - 5 * DAY..NOVEMBER + 20 * DAY,
        acts in prop::collection::vec((0_u8..5, 1_u64..400), 1..12),
    ) {
        let mut world = Spender::new(begin, 1_000);
        world.set_budget();
        world.pass(10, 10);
        for (act, amount) in acts {
            match act {
                0 => world.pass(amount * 10, 10),
                1 => world.pass(amount * 3_600, 3_600),
                2 => world.restart(),
                3 => {
                    let rates = world.rates(amount * 1_111);
                    world.book.place(world.now(), &card(), (&tenant(), &dag(), world.uid), rates);
                    world.end();
                }
                _ => {
                    world.host -= amount;
                    world.end();
                }
            }
            prop_assert_eq!(world.spent(), Some(world.judged()));
        }
    }
}
