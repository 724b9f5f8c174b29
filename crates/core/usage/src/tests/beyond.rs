//! Bytes and packets beyond the promise, against a bucket that a test fills second by second.

use super::*;

/// A promise of 8 Mbit/s, a megabyte a second, and of a thousand packets.
fn promise() -> UsageRates {
    UsageRates { promised: 8_000_000, packets: 1_000, ..UsageRates::default() }
}

struct Sender {
    book: Book,
    now: u64,
    counters: DagCounters,
    uid: DagUid,
}

impl Sender {
    fn new() -> Self {
        let uid = DagUid::new(3, 1).expect("a row");
        let mut sender =
            Self { book: Book::default(), now: BEGIN, counters: DagCounters::default(), uid };
        sender.book.booted(sender.at(), &card(), 1);
        sender.read();
        sender.place(promise());
        sender.read();
        sender
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    fn place(&mut self, rates: UsageRates) {
        self.book.place(self.at(), &card(), (&tenant(), &dag(), self.uid), rates);
    }

    fn read(&mut self) {
        let cycles = u128::from(self.now - BEGIN + SECOND) * u128::from(HZ) / u128::from(SECOND);
        let counters = CardCounters {
            cycles: Some(cycles as u64),
            dags: vec![(self.uid.row(), self.counters)],
            ..CardCounters::default()
        };
        let line = Bandwidth::from_gbps(100);
        let reading = UsageReading { now: self.at(), clock_hz: HZ, line, counters: &counters };
        self.book.read(&card(), &reading, |_| true);
    }

    /// Serves so much in a time, at the end of which the card is read.
    fn serve(&mut self, millis: u64, kilobytes: u64, packets: u64) {
        self.now += millis * 1_000_000;
        self.counters.bytes_intended += kilobytes * 1_000;
        self.counters.bytes_served += kilobytes * 1_000;
        self.counters.packets_in += packets;
        self.counters.packets_out += packets;
        self.read();
    }

    /// Kilobytes, rounded to the nearest, and packets beyond the promise.
    fn beyond(&mut self) -> (u64, u64) {
        let sum = self.book.open(&key_of(self.uid));
        assert_eq!(sum.get(Meter::BytesServed), self.counters.bytes_served);
        ((sum.get(Meter::BytesBeyond) + 500) / 1_000, sum.get(Meter::PacketsBeyond))
    }
}

#[test]
fn what_is_served_at_the_promise_is_within_it_and_twice_as_much_is_half_beyond() {
    let mut sender = Sender::new();
    (0..100).for_each(|_| sender.serve(100, 100, 100));
    assert_eq!(sender.beyond(), (0, 0));
    // A second of the promise is in hand, so a second's burst is within it.
    sender.serve(100, 1_000, 100);
    assert_eq!(sender.beyond(), (0, 0));
    (0..20).for_each(|_| sender.serve(100, 200, 100));
    let (kilobytes, packets) = sender.beyond();
    assert_eq!(
        (kilobytes, packets),
        (1_900, 0),
        "4,000 in two seconds, of which 2,100 were promised"
    );
    sender.serve(1_000, 0, 0);
    sender.serve(1_000, 10, 2_500);
    assert_eq!(sender.beyond(), (1_900, 500), "as many packets as were promised, however small");
}

#[test]
fn a_late_reading_has_all_that_was_promised_meanwhile() {
    let mut sender = Sender::new();
    sender.serve(60_000, 61_000, 61_000);
    assert_eq!(sender.beyond(), (0, 0));
    sender.serve(60_000, 61_000, 61_000);
    let (kilobytes, packets) = sender.beyond();
    assert_eq!((kilobytes, packets), (1_000, 1_000), "no second in hand this time");
}

#[test]
fn silence_saves_no_more_than_a_second_of_the_promise() {
    let mut sender = Sender::new();
    (0..600).for_each(|_| sender.serve(100, 0, 0));
    sender.serve(100, 5_000, 5_000);
    let (kilobytes, packets) = sender.beyond();
    // A hundredth of a nanosecond is missing to the last packet of the promise: the cycles were rounded down.
    assert_eq!((kilobytes, packets / 10), (3_900, 390), "{packets} packets");
}

#[test]
fn a_promise_that_changes_counts_from_then_on() {
    let mut sender = Sender::new();
    sender.serve(100, 1_100, 0);
    sender.now += 500_000_000;
    sender.place(UsageRates { promised: 80_000_000, ..promise() });
    sender.serve(500, 6_000, 0);
    // Half a second at 1 MB/s and half a second at 10.
    assert_eq!(sender.beyond(), (500, 0));
}

#[test]
fn after_a_dag_has_left_nothing_more_is_promised() {
    let mut sender = Sender::new();
    sender.serve(100, 100, 100);
    sender.book.leave(sender.at(), &card(), sender.uid);
    sender.serve(1_500, 1_500, 0);
    assert_eq!(sender.beyond(), (500, 0), "what was in hand is a second of it");
}

proptest! {
    /// Whenever the card is read, what is beyond is no more than what a bucket has nothing for that is filled at each millisecond; and what
    /// is within is no more than what was promised, and the second in hand.
    #[test]
    fn no_cut_into_readings_makes_more_of_it(
        loads in prop::collection::vec((1_u64..400, 0_u64..3), 1..60),
    ) {
        let mut sender = Sender::new();
        let (mut in_hand, mut beyond, mut all, mut time) = (1_000_i64, 0_i64, 0_i64, 0_i64);
        for (millis, per_milli) in loads {
            for _ in 0..millis {
                in_hand = (in_hand + 1).min(1_000);
                let within = in_hand.min(per_milli as i64);
                in_hand -= within;
                beyond += per_milli as i64 - within;
            }
            all += (millis * per_milli) as i64;
            time += millis as i64;
            sender.serve(millis, millis * per_milli, 0);
        }
        let (counted, _) = sender.beyond();
        let counted = counted as i64;
        prop_assert!(counted <= beyond + 1, "{} beyond by milliseconds, {} counted", beyond, counted);
        prop_assert!(all - counted <= 1_000 + time + 1, "{counted} of {all} in {time} ms");
    }
}
