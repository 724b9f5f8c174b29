//! OSMOSIS: tenants' programs on a NIC's processors, with weight-limited borrowed virtual time and in turn.

use anyhow::Result;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_offloads::{KernelPacket, KernelQueue, PoolMeasurement, ProcessorPool, QueueArbiter};

use crate::outcome::{DataTable, Expected, ExpectedBound, FigureOutcome, Origin, number};
use crate::parameters::{
    OSMOSIS_BYTES, OSMOSIS_CLOCK_HZ, OSMOSIS_CYCLES, OSMOSIS_GBPS, OSMOSIS_ITERATIONS,
    OSMOSIS_LIMITED, OSMOSIS_MIX_BYTES, OSMOSIS_MIX_CYCLES, OSMOSIS_MIX_PACKETS, OSMOSIS_PACKETS,
    OSMOSIS_PROCESSORS, OSMOSIS_SEED, OSMOSIS_WEIGHTS, Parameters,
};

/// Choices of the authors' program (its three arbiters) for the queues of `example` on eight processors.
const EXAMPLE: [(&str, QueueArbiter, &str); 3] = [
    (
        "in turn",
        QueueArbiter::RoundRobin,
        "000010101010101012012012012012012012012012012012012012012012012012012012012012012012121212222222",
    ),
    (
        "borrowed virtual time",
        QueueArbiter::BorrowedTime { is_limited: false },
        "000010101111111122111212221221111100022221111222111111000011222222220000000022222222200000000000",
    ),
    (
        "the same, limited by weight",
        QueueArbiter::BorrowedTime { is_limited: true },
        "000010101111110022111222111111111222111221110012212112211220220202220202022200222020000000000000",
    ),
];
const EXAMPLE_PROCESSORS: usize = 8;
/// Packets of each of its queues, and of each its weight, cycles, first arrival, and cycles to the next.
const EXAMPLE_PACKETS: u64 = 32;
const EXAMPLE_QUEUES: [(u32, u64, u64, u64); 3] = [(1, 40, 0, 3), (2, 25, 10, 5), (4, 90, 60, 7)];

fn example() -> Vec<KernelQueue> {
    let queue = |(weight, cycles, first, every)| {
        let packet = |at| KernelPacket { arrives: first + at * every, cycles };
        KernelQueue { weight, packets: (0..EXAMPLE_PACKETS).map(packet).collect() }
    };
    EXAMPLE_QUEUES.into_iter().map(queue).collect()
}

/// Two tenants whose packets come one after the other, and of which one's take longer.
fn two_tenants(parameters: &Parameters, weights: [u32; 2]) -> Vec<KernelQueue> {
    let between = cycles_of(parameters, parameters.value(&OSMOSIS_BYTES));
    let iterations = parameters.all(&OSMOSIS_ITERATIONS);
    let cycles = |tenant: usize| (iterations[tenant] * parameters.value(&OSMOSIS_CYCLES)) as u64;
    let queue = |tenant: usize| {
        let arrives = |at: u64| ((at * 2 + tenant as u64) as f64 * between) as u64;
        let packet = |at| KernelPacket { arrives: arrives(at), cycles: cycles(tenant).max(1) };
        let packets = (0..parameters.count(&OSMOSIS_PACKETS)).map(packet).collect();
        KernelQueue { weight: weights[tenant], packets }
    };
    (0..weights.len()).map(queue).collect()
}

/// Cycles between packets of these bytes on a full link.
fn cycles_of(parameters: &Parameters, bytes: f64) -> f64 {
    let (clock, gbps) = (parameters.value(&OSMOSIS_CLOCK_HZ), parameters.value(&OSMOSIS_GBPS));
    bytes * 8.0 * clock / (gbps * 1e9)
}

/// Four tenants in random order, of which two have small packets.
fn mix(parameters: &Parameters) -> Vec<KernelQueue> {
    let mut random = ChaCha8Rng::seed_from_u64(parameters.count(&OSMOSIS_SEED));
    let bytes = parameters.all(&OSMOSIS_MIX_BYTES);
    let cycles = parameters.all(&OSMOSIS_MIX_CYCLES);
    let ranges: Vec<_> = bytes.chunks_exact(2).map(|range| range[0]..=range[1]).collect();
    let empty = || KernelQueue { weight: 1, packets: Vec::new() };
    let mut queues: Vec<_> = ranges.iter().map(|_| empty()).collect();
    let mut now = 0.0;
    for _ in 0..parameters.count(&OSMOSIS_MIX_PACKETS) {
        let tenant = random.random_range(0..queues.len());
        let bytes = random.random_range(ranges[tenant].clone());
        now += cycles_of(parameters, bytes);
        let takes = cycles[0] + cycles[1] * bytes;
        queues[tenant].packets.push(KernelPacket { arrives: now as u64, cycles: takes as u64 });
    }
    queues
}

fn fair(parameters: &Parameters) -> QueueArbiter {
    QueueArbiter::BorrowedTime { is_limited: parameters.value(&OSMOSIS_LIMITED) >= 0.5 }
}

/// Choices of the authors' program beside ours.
fn compare_choices(outcome: &mut FigureOutcome) -> Result<()> {
    for (name, arbiter, expected) in EXAMPLE {
        let pool = ProcessorPool { processors: EXAMPLE_PROCESSORS, arbiter };
        let choices = pool.run(&example())?.choices;
        let same = choices.iter().zip(expected.bytes());
        let same = same.filter(|(ours, theirs)| **ours == usize::from(theirs - b'0')).count();
        let all = ExpectedBound::Exact(expected.len() as f64);
        let what = format!("Choices that are those of the authors' program, {name}");
        outcome.check(what, "", Expected::predicted(Origin::Data, all), same as f64);
    }
    Ok(())
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    compare_choices(&mut outcome)?;
    let processors = parameters.count(&OSMOSIS_PROCESSORS) as usize;
    let measure =
        |arbiter, queues: &[KernelQueue]| ProcessorPool { processors, arbiter }.run(queues);
    let arbiters = [("in turn", QueueArbiter::RoundRobin), ("OSMOSIS", fair(parameters))];
    let mut table = Vec::new();
    let iterations = parameters.all(&OSMOSIS_ITERATIONS);
    let dear = iterations[1] / iterations[0];
    for (name, arbiter) in arbiters {
        let measured = measure(arbiter, &two_tenants(parameters, [1, 1]))?;
        let share = |measured: &PoolMeasurement| {
            measured.contended[1] as f64 / (measured.contended[0] as f64).max(1.0)
        };
        let is_fair = arbiter != QueueArbiter::RoundRobin;
        let ratio = if is_fair { 1.0 } else { dear };
        let shape = |bound| Expected::predicted(Origin::Shape, bound);
        let what = format!("{name}: processors of the tenant with twice the work, of the other's");
        outcome.check(what, "×", shape(ExpectedBound::Share(ratio, 0.05)), share(&measured));
        if is_fair {
            let weights = parameters.all(&OSMOSIS_WEIGHTS);
            let [first, second] = [weights[0], weights[1]];
            let queues = two_tenants(parameters, [first as u32, second as u32]);
            let ratio = shape(ExpectedBound::Share(second / first, 0.05));
            let what = format!("{name}: processors by weights of {first} and {second}");
            outcome.check(what, "×", ratio, share(&measure(arbiter, &queues)?));
        }
        let jain = match is_fair {
            true => ExpectedBound::AtLeast(0.95),
            false => ExpectedBound::Share((1.0 + dear).powi(2) / (2.0 * (1.0 + dear * dear)), 0.05),
        };
        outcome.check(
            format!("{name}: Jain's index of two tenants"),
            "",
            shape(jain),
            measured.fairness,
        );
        let idle = shape(ExpectedBound::AtMost(0.03));
        outcome.check(
            format!("{name}: processors idle while packets wait"),
            "",
            idle,
            measured.idle,
        );
        table.push(row(name, "two", &measured));
    }
    let mixes = arbiters.map(|(_, arbiter)| measure(arbiter, &mix(parameters)));
    let [turn, fair] = mixes;
    let (turn, fair) = (turn?, fair?);
    table.push(row("in turn", "mix", &turn));
    table.push(row("OSMOSIS", "mix", &fair));
    compare_mixes(&mut outcome, &turn, &fair);
    let columns =
        ["arbiter", "tenants", "Jain's index", "ends, in cycles", "processors while all wait"];
    outcome.table = DataTable { columns: columns.map(str::to_owned).into(), rows: table };
    notes(&mut outcome);
    Ok(outcome)
}

/// Gains of four tenants beside what the authors have over all their mixes.
fn compare_mixes(outcome: &mut FigureOutcome, turn: &PoolMeasurement, fair: &PoolMeasurement) {
    let up_to = |most| Expected::predicted(Origin::Published, ExpectedBound::Between(0.1, most));
    let gain = (fair.fairness / turn.fairness - 1.0) * 100.0;
    outcome.check("Mix: fairer by (Jain's index)", "%", up_to(83.0), gain);
    let saved =
        fair.ends.iter().zip(&turn.ends).map(|(ours, old)| 1.0 - *ours as f64 / *old as f64);
    let most = saved.fold(f64::NEG_INFINITY, f64::max) * 100.0;
    outcome.check("Mix: the tenant that gains most is done earlier by", "%", up_to(60.0), most);
}

fn row(arbiter: &str, tenants: &str, measured: &PoolMeasurement) -> Vec<String> {
    let list = |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    vec![
        arbiter.to_owned(),
        tenants.to_owned(),
        number(measured.fairness),
        list(&measured.ends),
        list(&measured.contended),
    ]
}

fn notes(outcome: &mut FigureOutcome) {
    outcome.note(
        "A model beside the product: no card is controlled by it. Queues, arbiter and processors are of snic-offloads; a queue's rank is how many processors its tenant \
         had on average while it wanted any, by weight, and its limit its weight's part of those that wait. The authors' program (their repository of PsPIN, branch \
         osmosis_fmqs, which has these arbiters as a model in C++) makes the same choices for three queues of other weights, costs and arrivals.",
    );
    outcome.note(
        "Two tenants are the authors' first experiment: packets of 128 B in turn on a full link of 400 Gbit/s, 256 and 512 iterations. Their plots have no printed \
         numbers; that turns give processors by cost, and OSMOSIS by weight, is their shape. The mix has the sizes and the number of packets of their trace of four tenants, and they print that tasks are up to 83 % \
         fairer and done up to 60 % earlier over all their mixes: ours must gain and not gain more. What a program takes for a byte is assumed, so how much it gains is no prediction of theirs.",
    );
    outcome.note(
        "Without the limit (osmosis.limited=0) averages are as equal, and each moment is not: who was behind takes all processors until it has caught up. Not compared: transfers to the host, whose \
         fragmentation OSMOSIS also schedules, and its area.",
    );
}
