//! Reading latencies: a ring that goes on while it is read, and how many packets are sampled.

use snic_tables::registers::*;
use snic_tables::{LatencyReading, LatencySample};

use super::Bench;

/// A bench whose card measures latencies of one DAG, and is in its third window.
fn bench() -> Bench {
    let mut bench = Bench::adopted();
    bench.card.poke(CAPABILITIES, CAPABILITY_CLOCK | CAPABILITY_LATENCY);
    bench.card.poke(CLOCK_CYCLES, 2 << LATENCY_WINDOW_BITS);
    bench.read_back();
    bench.step();
    bench.program_dag(7);
    bench
}

impl Bench {
    /// The card writes this record.
    fn record(&mut self, number: u32) {
        let sample = LatencySample::new(number, [1, 2, 3, 4, 5, 6], &[]);
        let at = LATENCY_RECORDS + number % LATENCY_RING * LATENCY_RECORD;
        for (address, word) in (at..).step_by(4).zip(sample.words()) {
            self.card.poke(address, *word);
        }
        self.card.poke(LATENCY_WRITTEN, number.wrapping_add(1));
    }

    fn latency(&mut self) -> LatencyReading {
        self.sample().latency
    }

    /// The numbers of records that are read, and of those that are missed.
    fn numbers(&mut self) -> (Vec<u32>, u64) {
        let reading = self.latency();
        (reading.samples.iter().map(LatencySample::uid).collect(), reading.missed)
    }

    /// The n of one packet in 2^n that the driver sets where so many came in this window.
    fn exponent_after(&mut self, packets: u32, before: u32) -> u32 {
        let at = dag_latency(0, DAG_LATENCY_EXPONENT);
        self.card.poke(at, before);
        let came = self.card.peek(DAG_LOAD);
        self.card.poke(DAG_LOAD, came + packets);
        let cycles = self.card.peek(CLOCK_CYCLES);
        self.card.poke(CLOCK_CYCLES, cycles + (1 << LATENCY_WINDOW_BITS));
        self.sample();
        self.card.peek(at)
    }
}

#[test]
fn each_record_is_read_once_also_where_the_ring_and_its_number_go_over() {
    let mut bench = bench();
    bench.card.poke(LATENCY_WRITTEN, u32::MAX - 99);
    assert_eq!(bench.numbers(), (vec![], 0), "those of before are not of this daemon");
    let mut next = u32::MAX - 99;
    for count in [0, 1, 60, 200, 0, 256] {
        let mut expected = Vec::new();
        for _ in 0..count {
            bench.record(next);
            expected.push(next);
            next = next.wrapping_add(1);
        }
        assert_eq!(bench.numbers(), (expected, 0));
    }
    (0..300).for_each(|number| bench.record(next.wrapping_add(number)));
    let (numbers, missed) = bench.numbers();
    assert_eq!((numbers.len(), missed, numbers[0]), (256, 44, next.wrapping_add(44)), "the newest");
}

#[test]
fn the_largest_latency_is_read_once_a_window_and_is_of_the_one_that_ended() {
    let mut bench = bench();
    let mut row = |window, max, before| {
        for (register, value) in
            [(DAG_LATENCY_WINDOW, window), (DAG_LATENCY_MAX, max), (DAG_LATENCY_MAX_BEFORE, before)]
        {
            bench.card.poke(dag_latency(0, register), value);
        }
        let cycles = bench.card.peek(CLOCK_CYCLES) + (1 << LATENCY_WINDOW_BITS);
        bench.card.poke(CLOCK_CYCLES, cycles);
        [bench.latency().maxima, bench.latency().maxima]
    };
    assert_eq!(row(3, 50, 90), [vec![(0, 90)], vec![]], "window 3 has begun");
    assert_eq!(row(3, 60, 90), [vec![(0, 60)], vec![]], "nothing came in window 4 yet");
    assert_eq!(row(3, 60, 90), [vec![], vec![]], "window 4 had none");
}

#[test]
fn a_dag_has_as_many_packets_sampled_as_its_part_of_the_records() {
    let mut bench = bench();
    bench.sample();
    assert_eq!(bench.exponent_after(1, 6), 0, "a slow one: each packet");
    assert_eq!(bench.exponent_after(2_048, 1), 0);
    assert_eq!(bench.exponent_after(2_049, 0), 1, "too many records are cut at once");
    assert_eq!(bench.exponent_after(20_000_000, 0), 14);
    assert_eq!(bench.exponent_after(16_000, 4), 4, "a half is near enough");
    assert_eq!(bench.exponent_after(8_000, 4), 2, "a quarter is not");
    assert_eq!(bench.exponent_after(0, 4), 4, "nothing is known of one that rests");
    assert_eq!(bench.exponent_after(u32::MAX / 2, 0), LATENCY_EXPONENT_MAX);
}

#[test]
fn a_card_that_does_not_measure_them_is_not_asked() {
    let mut bench = Bench::adopted();
    bench.card.poke(CAPABILITIES, CAPABILITY_LATENCY);
    bench.card.poke(LATENCY_WRITTEN, 1);
    bench.read_back();
    bench.step();
    bench.sample();
    bench.record(1);
    assert_eq!(bench.latency(), LatencyReading::default(), "without a clock there are no windows");
}
