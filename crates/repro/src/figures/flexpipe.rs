//! FlexPipe's figures: the three designs over the offloads of its Table II.

use anyhow::{Context, Result};
use snic_card_sim::offloads::{
    Design, Flow, Offload, Outcome as Measured, Scheduler, Workload, units,
};
use snic_domain::Bandwidth;

use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series, Table, number};
use crate::parameters::{FIFO_BYTES, HOP_CYCLES, Parameters};

/// FlexPipe, IV: sizes are drawn out of these.
const SIZES: [u32; 6] = [64, 128, 256, 512, 1_024, 1_500];
/// FlexPipe, IV: packets sent.
const PACKETS: u64 = 11_000;
/// FlexPipe, IV: measured is between the 500th and the 10500th that comes out.
const MEASURED: (u64, u64) = (500, 10_500);
/// What draws sizes and flows; the numbers move by less than a percent with it.
const SEED: u64 = 1;

/// FlexPipe's Table II: input width in bits, clock in MHz, the delay that makes Eq. 1 come out, whether
/// it reads the header only, units.
const TABLE_2: [(&str, u32, u64, u64, bool, u64); 6] = [
    ("CRC", 64, 250, 0, false, 8),
    ("Firewall", 8, 150, 21, true, 128),
    ("SHA-3", 64, 150, 25, false, 39),
    ("AES", 128, 250, 0, false, 4),
    ("JPEG decoder", 32, 100, 0, false, 40),
    ("RSS", 256, 200, 0, true, 3),
];
/// FlexPipe, IV: the offloads of the four flows, by their numbers above.
const FLOWS: [&[usize]; 4] = [&[0, 1, 2, 3, 5], &[0, 2, 4, 5], &[0, 3, 4], &[0, 1]];
/// The same offloads in another order, so that each needs a second pass of the pipeline.
const TURNED: [&[usize]; 4] = [&[0, 2, 1, 3, 5], &[0, 4, 2, 5], &[0, 4, 3], &[1, 0]];

fn designs(parameters: &Parameters) -> [(&'static str, Scheduler); 3] {
    let panic = Scheduler::Panic(parameters.panic());
    [("PANIC", panic), ("StaticPipe", Scheduler::StaticPipe), ("FlexPipe", Scheduler::FlexPipe)]
}

fn design(parameters: &Parameters, scheduler: Scheduler) -> Design {
    let offload = |(name, width_bits, mhz, delay_cycles, header_only, _)| Offload {
        name,
        width_bits,
        clock_hz: mhz * 1_000_000,
        delay_cycles,
        header_only,
        units: None,
    };
    Design {
        clock_hz: parameters.card.clock_hz,
        width_bits: parameters.card.width_bits,
        offloads: TABLE_2.into_iter().map(offload).collect(),
        scheduler,
        fifo_bytes: FIFO_BYTES,
        hop_cycles: HOP_CYCLES,
    }
}

fn flows(chains: &[&[usize]], share: u32) -> Vec<Flow> {
    let flow = |chain: &&[usize]| Flow { chain: chain.to_vec(), share, priority: 0 };
    chains.iter().map(flow).collect()
}

fn run(design: &Design, flows: Vec<Flow>, rate: Bandwidth) -> Result<Measured> {
    let (from, to) = MEASURED;
    let sizes = SIZES.to_vec();
    let workload = Workload { flows, sizes, rate, packets: PACKETS, from, to, seed: SEED };
    Ok(workload.run(design)?)
}

pub(super) fn table_2(parameters: &Parameters) -> Result<Outcome> {
    let design = design(parameters, Scheduler::FlexPipe);
    let mut outcome = Outcome::default();
    let head = ["Offload", "Input width (bit)", "Clock (MHz)", "Delay (cycles)", "Units"];
    let mut rows = Vec::new();
    for (offload, expected) in design.offloads.iter().zip(TABLE_2) {
        let count = units(&design, offload);
        let exact = (Origin::Published, Bound::Exact(expected.5 as f64));
        outcome.check(offload.name, "units", exact, count as f64);
        let cells = [u64::from(offload.width_bits), expected.2, offload.delay_cycles, count];
        let cells = cells.map(|cell| cell.to_string());
        rows.push([vec![offload.name.to_string()], cells.to_vec()].concat());
    }
    outcome.table = Table { columns: head.map(String::from).to_vec(), rows };
    outcome.note(
        "Eq. 1 with the widths and clocks of the table. It does not print the delays; 21 cycles of the \
         firewall and 25 of SHA-3 are what its results leave.",
    );
    Ok(outcome)
}

pub(super) fn figure_3(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut series = Vec::new();
    for (name, scheduler) in designs(parameters) {
        let mut points = Vec::new();
        for gbps in [64, 80, 96, 112, 128] {
            let design = design(parameters, scheduler);
            let served = run(&design, flows(&FLOWS, 1), Bandwidth::from_gbps(gbps))?.served;
            let expected = if name == "PANIC" { gbps.min(94) } else { gbps } as f64;
            let bound = (Origin::Published, Bound::Share(expected, 0.03));
            outcome.check(format!("{name} at {gbps} Gbit/s"), "Gbit/s", bound, served.gbps_f64());
            points.push((gbps as f64, served.gbps_f64()));
        }
        series.push(Series::ours(name, points));
    }
    let panic = [(64.0, 64.0), (80.0, 80.0), (96.0, 94.0), (112.0, 94.0), (128.0, 94.0)];
    series.push(Series::paper("PANIC", panic.to_vec()));
    series.push(Series::paper("FlexPipe", vec![(64.0, 64.0), (80.0, 80.0), (128.0, 128.0)]));
    outcome.plot = Some(Plot {
        x: "Traffic rate (Gbit/s)",
        y: "Mean throughput (Gbit/s)",
        axis: Axis::Linear,
        series,
    });
    outcome.note(
        "PANIC's limit comes from what the text names: a descriptor that crosses the data path ahead of \
         every packet (one beat), and priority queues at a lower clock (half of it: two cycles a packet).",
    );
    Ok(outcome)
}

/// The mean over the sizes of how many times longer one takes than the other, by flow.
fn ratios(slower: &Measured, faster: &Measured) -> [f64; 4] {
    std::array::from_fn(|flow| {
        let of = |measured: &Measured, bytes| {
            let mut cells = measured.flows.iter();
            cells.find(|cell| cell.flow == flow && cell.bytes == bytes).map(|cell| cell.mean)
        };
        let each = SIZES.iter().filter_map(|&bytes| Some(of(slower, bytes)? / of(faster, bytes)?));
        each.sum::<f64>() / SIZES.len() as f64
    })
}

/// The mean over flows and sizes of the longest less the shortest, in microseconds.
fn spread(measured: &Measured, clock_hz: u64) -> f64 {
    let spreads = measured.flows.iter().map(|cell| (cell.max - cell.min) as f64);
    spreads.sum::<f64>() / measured.flows.len() as f64 * 1e6 / clock_hz as f64
}

pub(super) fn figure_4(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let rate = Bandwidth::from_gbps(90);
    let designs = designs(parameters);
    let mut all = Vec::new();
    for (_, scheduler) in designs {
        all.push(run(&design(parameters, scheduler), flows(&FLOWS, 1), rate)?);
    }
    let [panic, fixed, flex] = &all[..] else { anyhow::bail!("three designs") };
    for (name, slower, expected) in
        [("StaticPipe", fixed, [1.6, 1.4, 1.7, 2.9]), ("PANIC", panic, [1.6, 2.5, 1.9, 1.3])]
    {
        for (flow, (expected, ours)) in expected.into_iter().zip(ratios(slower, flex)).enumerate() {
            let bound = (Origin::Published, Bound::Share(expected, 0.2));
            outcome.check(format!("{name} / FlexPipe, flow {}", flow + 1), "", bound, ours);
        }
    }
    let clock = parameters.card.clock_hz;
    for (((name, _), measured), paper) in designs.iter().zip(&all).zip([6.605, 1.422, 1.404]) {
        let cells = [(*name).to_string(), number(spread(measured, clock)), number(paper)];
        outcome.table.rows.push(cells.to_vec());
    }
    let head = ["Design", "Longest − shortest latency of a flow and size, mean (µs)", "Paper (µs)"];
    outcome.table.columns = head.map(String::from).to_vec();
    let points = |measured: &Measured, flow| {
        let cells = measured.flows.iter().filter(move |cell| cell.flow == flow);
        cells.map(|cell| (f64::from(cell.bytes), cell.mean * 1e6 / clock as f64)).collect()
    };
    let series = designs.iter().zip(&all).flat_map(|((name, _), measured)| {
        // A static pipeline serves all flows alike.
        let flows = if *name == "StaticPipe" { 0..1 } else { 0..4 };
        flows.map(move |flow| {
            Series::ours(format!("{name}, flow {}", flow + 1), points(measured, flow))
        })
    });
    outcome.plot = Some(Plot {
        x: "Packet size (B)",
        y: "Mean latency at 90 Gbit/s (µs)",
        axis: Axis::Doubling,
        series: series.collect(),
    });
    outcome.note(
        "Ratios are means over the six sizes. Firewall and RSS read headers only. PANIC's scheduler sees \
         the credits of all units and takes the one with the most; what units push on goes to one unit \
         until that has no room (FlexPipe, II). How many packets a unit buffers is not printed: three \
         give every ratio, and 5.7 µs between longest and shortest latency where the paper has 6.6; with \
         two, flow 2 is 1.6 times FlexPipe's and the spread 3.5 µs.",
    );
    Ok(outcome)
}

pub(super) fn figure_5(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let full = parameters.core().ingress.get();
    let rate = |percent: u64| Bandwidth::from_bps(full / 100 * percent);
    let mixed = |percent: u32| [flows(&FLOWS, 100 - percent), flows(&TURNED, percent)].concat();
    let mut series = Vec::new();
    let mut at_half = Vec::new();
    for (name, scheduler) in [designs(parameters)[2], designs(parameters)[0]] {
        let design = design(parameters, scheduler);
        for load in [40, 50, 60, 70] {
            let bound = (100.0 * (100.0 / load as f64 - 1.0)).floor();
            let mut points = Vec::new();
            for percent in (0..=100).step_by(10).filter(|percent| f64::from(*percent) <= bound) {
                let measured = run(&design, mixed(percent), rate(load))?;
                let micros = measured.mean * 1e6 / design.clock_hz as f64;
                points.push((f64::from(percent), micros));
                if (load, percent) == (50, 80) {
                    at_half.push(micros);
                }
            }
            series.push(Series::ours(format!("{name}, {load} % load"), points));
        }
    }
    let knee = knee(&design(parameters, Scheduler::FlexPipe), rate(70), mixed)?;
    let derived = (Origin::Published, Bound::Share(100.0 * (1.0 / 0.7 - 1.0), 0.05));
    outcome.check("Most that can go round again at 70 % load", "%", derived, knee);
    let [flex, panic] = at_half[..] else { anyhow::bail!("two designs at half load") };
    let faster = (Origin::Published, Bound::AtMost(1.0));
    let what = "FlexPipe / PANIC at 50 % load, 80 % going round";
    outcome.check(what, "", faster, flex / panic);
    outcome.plot = Some(Plot {
        x: "Packets that go round again (%)",
        y: "Mean latency (µs)",
        axis: Axis::Linear,
        series,
    });
    outcome.note(
        "The turned flows have the same offloads in another order, one pass more. Who goes round uses \
         the data path twice: load · (1 + share) ≤ 1. The limit is where the pipeline no longer puts \
         out what is sent.",
    );
    Ok(outcome)
}

/// The largest share, in percent, at which the pipeline still puts out what is sent.
fn knee(design: &Design, rate: Bandwidth, mixed: impl Fn(u32) -> Vec<Flow>) -> Result<f64> {
    let keeps_up = |percent: &u32| -> Result<bool> {
        let served = run(design, mixed(*percent), rate)?.served;
        Ok(served.gbps_f64() >= rate.gbps_f64() * 0.99)
    };
    let mut last = None;
    for percent in 35..=55 {
        if !keeps_up(&percent)? {
            break;
        }
        last = Some(f64::from(percent));
    }
    last.context("the pipeline does not keep up with 35 % either")
}
