//! FlexPipe's figures: the three designs over the offloads of its Table II.

use anyhow::Result;
use snic_domain::Bandwidth;
use snic_offloads::{
    Design, Measurement as Measured, Offload, PacketClass, Scheduler, Workload, units,
};

use crate::outcome::{
    Axis, DataTable, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number,
};
use crate::parameters::{
    FLEXPIPE_AGAIN_PERCENT, FLEXPIPE_BYTES, FLEXPIPE_DELAYS, FLEXPIPE_FIFO_BYTES, FLEXPIPE_FLOWS,
    FLEXPIPE_HEADER_ONLY, FLEXPIPE_HOP_CYCLES, FLEXPIPE_LATENCY_GBPS, FLEXPIPE_LOADS_PERCENT,
    FLEXPIPE_MEASURED, FLEXPIPE_MHZ, FLEXPIPE_PACKETS, FLEXPIPE_RATES_GBPS, FLEXPIPE_SEED,
    FLEXPIPE_STAGE_CYCLES, FLEXPIPE_TURNED, FLEXPIPE_WIDTHS, ParameterEntry, Parameters, gbps,
};

/// FlexPipe's Table II names the offloads in this order, as the parameters do.
const OFFLOADS: [&str; 6] = ["CRC", "Firewall", "SHA-3", "AES", "JPEG decoder", "RSS"];

fn designs(parameters: &Parameters) -> [(&'static str, Scheduler); 3] {
    let panic = Scheduler::Panic(parameters.panic());
    [("PANIC", panic), ("StaticPipe", Scheduler::StaticPipe), ("FlexPipe", Scheduler::FlexPipe)]
}

fn design(parameters: &Parameters, scheduler: Scheduler) -> Design {
    let of = |entry, at: usize| parameters.all(entry)[at];
    let offload = |(at, name): (usize, &'static str)| Offload {
        name,
        width_bits: of(&FLEXPIPE_WIDTHS, at) as u32,
        clock_hz: (of(&FLEXPIPE_MHZ, at) * 1e6) as u64,
        delay_cycles: of(&FLEXPIPE_DELAYS, at) as u64,
        header_only: of(&FLEXPIPE_HEADER_ONLY, at) > 0.0,
        units: None,
    };
    Design {
        clock_hz: parameters.card.clock_hz,
        width_bits: parameters.card.width_bits,
        offloads: OFFLOADS.into_iter().enumerate().map(offload).collect(),
        scheduler,
        fifo_bytes: parameters.count(&FLEXPIPE_FIFO_BYTES),
        hop_cycles: parameters.count(&FLEXPIPE_HOP_CYCLES),
    }
}

/// Flows that each pass these offloads.
fn flows(parameters: &Parameters, chains: &[&ParameterEntry], share: u32) -> Vec<PacketClass> {
    let flow = |chain: &&ParameterEntry| {
        // Table II counts its offloads from one.
        let chain = parameters.all(chain).iter().map(|number| *number as usize - 1).collect();
        PacketClass { chain, share, priority: 0 }
    };
    chains.iter().map(flow).collect()
}

fn sizes(parameters: &Parameters) -> Vec<u32> {
    parameters.all(&FLEXPIPE_BYTES).iter().map(|bytes| *bytes as u32).collect()
}

fn run(
    parameters: &Parameters,
    design: &Design,
    flows: Vec<PacketClass>,
    rate: Bandwidth,
) -> Result<Measured> {
    let measured = parameters.all(&FLEXPIPE_MEASURED);
    let workload = Workload {
        flows,
        sizes: sizes(parameters),
        rate,
        packets: parameters.count(&FLEXPIPE_PACKETS),
        from: measured[0] as u64,
        to: measured[1] as u64,
        seed: parameters.count(&FLEXPIPE_SEED),
    };
    Ok(workload.run(design)?)
}

/// The mean latency of a flow over all its packets, in cycles.
fn mean_of(measured: &Measured, flow: usize) -> f64 {
    let cells = measured.flows.iter().filter(|cell| cell.flow == flow);
    let (sum, count) = cells.fold((0.0, 0.0), |(sum, count), cell| {
        (sum + cell.mean * cell.packets as f64, count + cell.packets as f64)
    });
    sum / count
}

pub(super) fn table_1(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let line = parameters.core().ingress;
    let pipe = design(parameters, Scheduler::StaticPipe);
    let served =
        run(parameters, &pipe, flows(parameters, &FLEXPIPE_FLOWS, 1), line)?.served.gbps_f64();
    let full =
        Expected::predicted(Origin::Published, ExpectedBound::AtLeast(0.97 * line.gbps_f64()));
    outcome.check("Pipeline, performance ✓: all offloads at line rate", "Gbit/s", full, served);
    let rate = parameters.gbps(&FLEXPIPE_LATENCY_GBPS);
    let [_, fixed, flex] = designs(parameters);
    let mut rows = Vec::new();
    let same = ExpectedBound::Between(0.98, 1.02);
    for ((name, scheduler), bound) in [(fixed, same), (flex, ExpectedBound::AtMost(0.8))] {
        let measured = run(
            parameters,
            &design(parameters, scheduler),
            flows(parameters, &FLEXPIPE_FLOWS, 1),
            rate,
        )?;
        // The fourth needs two offloads, the first five.
        let (few, most) = (mean_of(&measured, 3), mean_of(&measured, 0));
        let what = format!("{name}: a flow of two offloads, of the time of one of five");
        outcome.check(what, "", Expected::predicted(Origin::Published, bound), few / most);
        rows.push(vec![name.to_string(), number(most), number(few)]);
    }
    rows.push(tables(parameters, &mut outcome)?);
    let head = ["Design", "Flow of five offloads (cycles)", "Flow of two offloads (cycles)"];
    outcome.table = DataTable { columns: head.map(String::from).to_vec(), rows };
    outcome.note(
        "The table is of ticks, of which these can be seen in a run. The pipeline keeps up with the line, and it \
         is not flexible, for a packet passes all offloads whatever it needs. Match-action tables are a static \
         pipeline whose stages read a header in one cycle, as the text has them: they keep up and are quicker, \
         and do none of the offloads that read payloads or need longer. Of manycore cards the paper says \
         neither instructions nor cores, so there is no model of them; nor is there one of chip area.",
    );
    Ok(outcome)
}

/// The row of match-action tables: as many stages as there are offloads, each done with a header after one
/// cycle (FlexPipe, II-A).
fn tables(parameters: &Parameters, outcome: &mut FigureOutcome) -> Result<Vec<String>> {
    let pipe = design(parameters, Scheduler::StaticPipe);
    let cycles = parameters.count(&FLEXPIPE_STAGE_CYCLES);
    let mut tables = pipe.clone();
    for stage in &mut tables.offloads {
        let (width_bits, clock_hz) = (tables.width_bits, tables.clock_hz);
        let (delay_cycles, units) = (cycles - 1, Some(1));
        let name = stage.name;
        *stage = Offload { name, width_bits, clock_hz, delay_cycles, header_only: true, units };
    }
    let line = parameters.core().ingress;
    let served =
        run(parameters, &tables, flows(parameters, &FLEXPIPE_FLOWS, 1), line)?.served.gbps_f64();
    let full =
        Expected::predicted(Origin::Published, ExpectedBound::AtLeast(0.97 * line.gbps_f64()));
    outcome.check("MAT, performance ✓: all stages at line rate", "Gbit/s", full, served);
    let rate = parameters.gbps(&FLEXPIPE_LATENCY_GBPS);
    let [slow, quick] = [&pipe, &tables]
        .map(|design| run(parameters, design, flows(parameters, &FLEXPIPE_FLOWS, 1), rate));
    let (slow, quick) = (slow?, quick?);
    let less = Expected::predicted(Origin::Published, ExpectedBound::AtMost(1.0));
    let what = "MAT, latency ✓: of the pipeline's, a flow of five offloads";
    outcome.check(what, "", less, mean_of(&quick, 0) / mean_of(&slow, 0));
    let needs_more = |offload: &&Offload| {
        let scale = pipe.clock_hz as f64 / offload.clock_hz as f64;
        let beats = f64::from(pipe.width_bits) / f64::from(offload.width_bits);
        !offload.header_only || offload.delay_cycles as f64 + (beats * scale) > 1.0
    };
    let complex = pipe.offloads.iter().filter(needs_more).count();
    let many = Expected::derived(Origin::Published, ExpectedBound::AtLeast(1.0));
    let what = "MAT, offload variety ✗: offloads that a header in one cycle does not do";
    outcome.check(what, "of 6", many, complex as f64);
    let times = [0, 3].map(|flow| number(mean_of(&quick, flow)));
    Ok([vec!["MAT".into()], times.to_vec()].concat())
}

pub(super) fn table_2(parameters: &Parameters) -> Result<FigureOutcome> {
    let design = design(parameters, Scheduler::FlexPipe);
    let mut outcome = FigureOutcome::default();
    let head = ["Offload", "Input width (bit)", "Clock (MHz)", "Delay (cycles)", "Units"];
    let mut rows = Vec::new();
    for (offload, expected) in design.offloads.iter().zip([8.0, 128.0, 39.0, 4.0, 40.0, 3.0]) {
        let count = units(&design, offload);
        let bound = ExpectedBound::Exact(expected);
        // Where the delay was fitted to this point, the comparison says nothing.
        let exact = match offload.delay_cycles {
            0 => Expected::predicted(Origin::Published, bound),
            _ => Expected::fitted(Origin::Published, bound),
        };
        outcome.check(offload.name, "units", exact, count as f64);
        let mhz = offload.clock_hz / 1_000_000;
        let cells = [u64::from(offload.width_bits), mhz, offload.delay_cycles, count];
        let cells = cells.map(|cell| cell.to_string());
        rows.push([vec![offload.name.to_string()], cells.to_vec()].concat());
    }
    outcome.table = DataTable { columns: head.map(String::from).to_vec(), rows };
    outcome.note(
        "Eq. 1 with the widths and clocks of the table. It does not print the delays; 21 cycles of the \
         firewall and 25 of SHA-3 are what its results leave.",
    );
    Ok(outcome)
}

pub(super) fn figure_3(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let mut series = Vec::new();
    for (name, scheduler) in designs(parameters) {
        let mut points = Vec::new();
        for &rate in parameters.all(&FLEXPIPE_RATES_GBPS) {
            let design = design(parameters, scheduler);
            let served =
                run(parameters, &design, flows(parameters, &FLEXPIPE_FLOWS, 1), gbps(rate))?.served;
            let saturated = name == "PANIC" && rate > 94.0;
            let bound = ExpectedBound::Share(if saturated { 94.0 } else { rate }, 0.03);
            let expected = Expected::predicted(Origin::Published, bound);
            let what = format!("{name} at {rate} Gbit/s");
            outcome.check(what, "Gbit/s", expected, served.gbps_f64());
            points.push((rate, served.gbps_f64()));
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
         every packet (one beat), and priority queues at a lower clock. Half of it, two cycles a packet, is what PANIC's public RTL has, the prototype that FlexPipe's \
         authors ran.",
    );
    Ok(outcome)
}

/// The mean over the sizes of how many times longer one takes than the other, by flow.
fn ratios(sizes: &[u32], slower: &Measured, faster: &Measured) -> [f64; 4] {
    std::array::from_fn(|flow| {
        let of = |measured: &Measured, bytes| {
            let mut cells = measured.flows.iter();
            cells.find(|cell| cell.flow == flow && cell.bytes == bytes).map(|cell| cell.mean)
        };
        let each = sizes.iter().filter_map(|&bytes| Some(of(slower, bytes)? / of(faster, bytes)?));
        each.sum::<f64>() / sizes.len() as f64
    })
}

/// The mean over flows and sizes of the longest less the shortest, in microseconds.
fn spread(measured: &Measured, clock_hz: u64) -> f64 {
    let spreads = measured.flows.iter().map(|cell| (cell.max - cell.min) as f64);
    spreads.sum::<f64>() / measured.flows.len() as f64 * 1e6 / clock_hz as f64
}

pub(super) fn figure_4(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let rate = parameters.gbps(&FLEXPIPE_LATENCY_GBPS);
    let designs = designs(parameters);
    let mut all = Vec::new();
    for (_, scheduler) in designs {
        all.push(run(
            parameters,
            &design(parameters, scheduler),
            flows(parameters, &FLEXPIPE_FLOWS, 1),
            rate,
        )?);
    }
    let [panic, fixed, flex] = &all[..] else { anyhow::bail!("three designs") };
    for (name, slower, expected) in
        [("StaticPipe", fixed, [1.6, 1.4, 1.7, 2.9]), ("PANIC", panic, [1.6, 2.5, 1.9, 1.3])]
    {
        let ours = ratios(&sizes(parameters), slower, flex);
        for (flow, (expected, ours)) in expected.into_iter().zip(ours).enumerate() {
            let bound = ExpectedBound::Share(expected, 0.2);
            // The buffers of PANIC's units were fitted to its ratios.
            let expected = match name {
                "PANIC" => Expected::fitted(Origin::Published, bound),
                _ => Expected::predicted(Origin::Published, bound),
            };
            outcome.check(format!("{name} / FlexPipe, flow {}", flow + 1), "", expected, ours);
        }
    }
    let clock = parameters.card.clock_hz;
    for (((name, _), measured), paper) in designs.iter().zip(&all).zip([6.605, 1.422, 1.404]) {
        let ours = spread(measured, clock);
        let cells = [(*name).to_string(), number(ours), number(paper)];
        outcome.table.rows.push(cells.to_vec());
        let bound = ExpectedBound::Share(paper, 0.2);
        let expected = match *name {
            "PANIC" => Expected::fitted(Origin::Published, bound),
            _ => Expected::predicted(Origin::Published, bound),
        };
        let what = format!("{name}: longest less shortest latency");
        outcome.check(what, "µs", expected, ours);
    }
    let head = ["Design", "Longest − shortest latency of a flow and size, mean (µs)", "Paper (µs)"];
    outcome.table.columns = head.map(String::from).to_vec();
    let points = |measured: &Measured, flow| {
        let cells = measured.flows.iter().filter(move |cell| cell.flow == flow);
        cells.map(|cell| (f64::from(cell.bytes), cell.mean * 1e6 / clock as f64)).collect()
    };
    let series = designs.iter().zip(&all).flat_map(|((name, _), measured)| {
        // A static pipeline serves all flows the same.
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
         two, flow 2 is 1.6 times FlexPipe's and the spread 3.5 µs: PANIC's numbers are fitted. The static \
         pipeline's spread is predicted and outside, 0.8 µs where the paper has 1.4: what its units queue \
         behind each other, in which it hardly differs from FlexPipe there, is not known. Nor does it help to take all flows of a size together, which the other two designs then contradict, or to send more.",
    );
    Ok(outcome)
}

pub(super) fn figure_5(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let full = parameters.core().ingress.get() as f64;
    let rate = |percent: f64| Bandwidth::from_bps((full * percent / 100.0) as u64);
    let loads = parameters.all(&FLEXPIPE_LOADS_PERCENT);
    let again = parameters.count(&FLEXPIPE_AGAIN_PERCENT) as u32;
    let half = loads.iter().copied().min_by(|a, b| (a - 50.0).abs().total_cmp(&(b - 50.0).abs()));
    let mixed = |percent: u32| {
        [
            flows(parameters, &FLEXPIPE_FLOWS, 100 - percent),
            flows(parameters, &FLEXPIPE_TURNED, percent),
        ]
        .concat()
    };
    let mut series = Vec::new();
    let mut at_half = Vec::new();
    for (name, scheduler) in [designs(parameters)[2], designs(parameters)[0]] {
        let design = design(parameters, scheduler);
        for &load in loads {
            let bound = (100.0 * (100.0 / load - 1.0)).floor();
            let mut points = Vec::new();
            for percent in (0..=100).step_by(10).filter(|percent| f64::from(*percent) <= bound) {
                let measured = run(parameters, &design, mixed(percent), rate(load))?;
                let micros = measured.mean * 1e6 / design.clock_hz as f64;
                points.push((f64::from(percent), micros));
                if Some(load) == half && percent == again {
                    at_half.push(micros);
                }
            }
            series.push(Series::ours(format!("{name}, {load} % load"), points));
        }
    }
    let most = loads.iter().copied().fold(0.0, f64::max);
    let knee = knee(parameters, rate(most), mixed)?;
    let published = Expected::predicted(Origin::Published, ExpectedBound::Share(43.0, 0.05));
    outcome.check("Most that can go round again at 70 % load", "%", published, knee);
    let [flex, panic] = at_half[..] else { anyhow::bail!("two designs at half load") };
    let faster = Expected::predicted(Origin::Published, ExpectedBound::AtMost(1.0));
    let what = format!("FlexPipe / PANIC at half load, {again} % going round");
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

/// The largest share of recirculated traffic, in percent, at which the pipeline still forwards all
/// packets.
fn knee(
    parameters: &Parameters,
    rate: Bandwidth,
    mixed: impl Fn(u32) -> Vec<PacketClass>,
) -> Result<f64> {
    let design = design(parameters, Scheduler::FlexPipe);
    let keeps_up = |percent: &u32| -> Result<bool> {
        let served = run(parameters, &design, mixed(*percent), rate)?.served;
        Ok(served.gbps_f64() >= rate.gbps_f64() * 0.99)
    };
    // The larger the share, the less the pipeline keeps up, so bisection finds the limit.
    let (mut holds, mut fails) = (0, 101);
    while fails - holds > 1 {
        let middle = (holds + fails) / 2;
        if keeps_up(&middle)? {
            holds = middle;
        } else {
            fails = middle;
        }
    }
    Ok(f64::from(holds))
}
