//! PANIC's public RTL, simulated, beside the model of its scheduler: engines that share a load, and a chain under
//! strict priority.

use anyhow::{Context, Result};
use snic_domain::Bandwidth;
use snic_offloads::{Design, Measurement, Offload, PacketClass, Panic, Scheduler, Workload};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number};
use crate::parameters::{
    FLEXPIPE_HOP_CYCLES, FLEXPIPE_SEED, PANIC_DESCRIPTOR_BEATS, PANIC_QUEUE_PERCENT,
    PANIC_RTL_BYTES, PANIC_RTL_CHAIN_BYTES, PANIC_RTL_CHAIN_CREDITS, PANIC_RTL_CREDITS,
    PANIC_RTL_CYCLES_PER_BYTE, PANIC_RTL_ENGINES, PANIC_RTL_GBPS, PANIC_RTL_PASS_CYCLES,
    PANIC_RTL_PATTERN_1, PANIC_RTL_PATTERN_2, PANIC_RTL_PATTERN_3, PANIC_RTL_PATTERN_4,
    PANIC_RTL_UNIT_GBPS, ParameterEntry, Parameters, gbps,
};

/// Seen in the simulation by size in bytes: Gbit/s of three engines under full load, if it settles, and cycles from a
/// packet's header at the parser to its header at the way out with nothing else sent.
const SEEN: [(f64, Option<f64>, f64); 6] = [
    (64.0, None, 65.0),
    (128.0, Some(64.0), 68.5),
    (256.0, Some(66.1), 74.0),
    (512.0, Some(100.8), 85.1),
    (1_024.0, Some(100.0), 107.6),
    (2_048.0, Some(100.4), 153.5),
];
/// Seen in the simulation by pattern: Gbit/s of the chain of two engines, of the second engine alone, and of what passes
/// by; and whether it still had cells of its packet memory at the end.
const SEEN_CHAIN: [([f64; 3], bool); 4] = [
    ([24.0, 37.6, 21.8], false),
    ([7.7, 54.4, 30.4], true),
    ([31.4, 25.2, 40.3], true),
    ([36.2, 23.5, 0.0], false),
];
const FLOWS: [&str; 3] = ["SHA and AES", "AES", "no engine"];
/// Units of each type of engine in the chain.
const CHAIN_UNITS: u64 = 2;
/// Packets of a run, and the first and last that count.
const PACKETS: [u64; 3] = [6_000, 1_000, 4_000];
/// Packets of a run that are far apart.
const LONE: [u64; 3] = [30, 1, 30];

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let mut series = [Vec::new(), Vec::new()];
    for &bytes in parameters.all(&PANIC_RTL_BYTES) {
        let seen = SEEN.iter().find(|(size, ..)| *size == bytes);
        let (_, full, lone) = seen.context("the RTL was not simulated with this size")?;
        let design = balanced(parameters, bytes);
        let line = parameters.core().ingress;
        let served = send(&design, &[flow(&[0], 1.0, 0)], bytes, line, PACKETS)?;
        let served = served.served.gbps_f64();
        series[0].push((bytes, served));
        if let Some(full) = *full {
            let bound = Expected::predicted(Origin::Rtl, ExpectedBound::Share(full, 0.15));
            let what = format!("Fig. 8c, {bytes} B: three engines under full load");
            outcome.check(what, "Gbit/s", bound, served);
            series[1].push((bytes, full));
        }
        // Header to header there, and here from the first beat in to the last beat out.
        let alone = send(&design, &[flow(&[0], 1.0, 0)], bytes, gbps(1.0), LONE)?.mean;
        let cycles = alone - beats(&design, bytes);
        let is_fitted = bytes == SEEN[0].0;
        let kind = if is_fitted { Expected::fitted } else { Expected::predicted };
        let bound = kind(Origin::Rtl, ExpectedBound::Share(*lone, 0.15));
        outcome.check(format!("{bytes} B: a packet alone"), "cycles", bound, cycles);
    }
    let large = series[0].iter().filter(|(bytes, _)| *bytes >= 512.0);
    let least = large.map(|(_, served)| *served).fold(f64::INFINITY, f64::min);
    let full = Expected::predicted(Origin::Rtl, ExpectedBound::AtLeast(90.0));
    outcome.check("Fig. 8c: the least of packets of 512 B and more", "Gbit/s", full, least);
    chain(parameters, &mut outcome)?;
    let [ours, theirs] = series;
    outcome.plot = Some(Plot {
        x: "Packet size (B)",
        y: "Throughput of three engines (Gbit/s)",
        axis: Axis::Doubling,
        series: vec![Series::ours("our model", ours), Series::paper("the RTL", theirs)],
    });
    notes(&mut outcome);
    Ok(outcome)
}

/// Three flows of different priority through two types of engine.
fn chain(parameters: &Parameters, outcome: &mut FigureOutcome) -> Result<()> {
    let patterns: [&ParameterEntry; 4] =
        [&PANIC_RTL_PATTERN_1, &PANIC_RTL_PATTERN_2, &PANIC_RTL_PATTERN_3, &PANIC_RTL_PATTERN_4];
    let bytes = parameters.value(&PANIC_RTL_CHAIN_BYTES);
    let design = chained(parameters, bytes);
    for (which, (pattern, (seen, is_whole))) in (1..).zip(patterns.into_iter().zip(SEEN_CHAIN)) {
        let shares = parameters.all(pattern);
        let flows =
            [flow(&[0, 1], shares[0], 0), flow(&[1], shares[1], 1), flow(&[], shares[2], 2)];
        let measured = send(&design, &flows, bytes, parameters.gbps(&PANIC_RTL_GBPS), PACKETS)?;
        let all: u64 = measured.flows.iter().map(|flow| flow.packets).sum();
        for (at, (name, seen)) in FLOWS.into_iter().zip(seen).enumerate() {
            let of_flow = measured.flows.iter().filter(|flow| flow.flow == at);
            let packets: u64 = of_flow.map(|flow| flow.packets).sum();
            let ours = measured.served.gbps_f64() * packets as f64 / (all as f64).max(1.0);
            let cells = [format!("pattern {which}"), name.into(), number(ours), number(seen)];
            outcome.table.rows.push(cells.to_vec());
            if is_whole {
                let bound = Expected::predicted(Origin::Rtl, ExpectedBound::Margin(seen, 5.0));
                let what = format!("Fig. 11a, pattern {which}: {name}");
                outcome.check(what, "Gbit/s", bound, ours);
            }
        }
    }
    let head = ["Fig. 11a", "Flow", "Ours (Gbit/s)", "The RTL (Gbit/s)"];
    outcome.table.columns = head.map(String::from).to_vec();
    Ok(())
}

fn flow(chain: &[usize], share: f64, priority: u8) -> PacketClass {
    PacketClass { chain: chain.to_vec(), share: share as u32, priority }
}

fn beats(design: &Design, bytes: f64) -> f64 {
    (bytes * 8.0 / f64::from(design.width_bits)).ceil()
}

/// A type of engine that takes so many cycles of the data path for a packet, its beats included.
fn engine(name: &'static str, design: &Design, bytes: f64, cycles: f64, units: u64) -> Offload {
    let delay_cycles = (cycles - beats(design, bytes)).max(0.0) as u64;
    let (width_bits, clock_hz) = (design.width_bits, design.clock_hz);
    Offload { name, width_bits, clock_hz, delay_cycles, header_only: false, units: Some(units) }
}

fn empty(parameters: &Parameters, credits: &ParameterEntry) -> Design {
    let queue = parameters.value(&PANIC_QUEUE_PERCENT) / 100.0;
    let scheduler = Scheduler::Panic(Panic {
        unit_credits: parameters.count(credits) as usize,
        queue_clock_hz: (parameters.card.clock_hz as f64 * queue) as u64,
        descriptor_beats: parameters.count(&PANIC_DESCRIPTOR_BEATS),
        pass_cycles: parameters.count(&PANIC_RTL_PASS_CYCLES),
        detour: true,
    });
    Design {
        clock_hz: parameters.card.clock_hz,
        width_bits: parameters.card.width_bits,
        offloads: Vec::new(),
        scheduler,
        // Packets that go back to the scheduler are in its packet memory.
        fifo_bytes: 1 << 17,
        hop_cycles: parameters.count(&FLEXPIPE_HOP_CYCLES),
    }
}

/// Engines side by side that share one load.
fn balanced(parameters: &Parameters, bytes: f64) -> Design {
    let mut design = empty(parameters, &PANIC_RTL_CREDITS);
    let cycles = (bytes * parameters.value(&PANIC_RTL_CYCLES_PER_BYTE)).floor();
    let units = parameters.count(&PANIC_RTL_ENGINES);
    design.offloads.push(engine("engine", &design, bytes, cycles, units));
    design
}

/// Two engines for SHA-3 and two for AES.
fn chained(parameters: &Parameters, bytes: f64) -> Design {
    let mut design = empty(parameters, &PANIC_RTL_CHAIN_CREDITS);
    for (name, both) in ["SHA-3", "AES"].into_iter().zip(parameters.all(&PANIC_RTL_UNIT_GBPS)) {
        let seconds = bytes * 8.0 * CHAIN_UNITS as f64 / (both * 1e9);
        let cycles = (seconds * design.clock_hz as f64).round();
        design.offloads.push(engine(name, &design, bytes, cycles, CHAIN_UNITS));
    }
    design
}

fn send(
    design: &Design,
    flows: &[PacketClass],
    bytes: f64,
    rate: Bandwidth,
    [packets, from, to]: [u64; 3],
) -> Result<Measurement> {
    let (flows, sizes) = (flows.to_vec(), vec![bytes as u32]);
    let seed = FLEXPIPE_SEED.default[0] as u64;
    Ok(Workload { flows, sizes, rate, packets, from, to, seed }.run(design)?)
}

fn notes(outcome: &mut FigureOutcome) {
    outcome.note(
        "The RTL has no licence, so nothing of it is here: what its simulation showed is beside ours, and its test benches' settings are parameters. Its clock is 250 MHz and a beat \
         512 bits. Its modules were simulated behind a generator with those settings, which draws flows at random; two vendor blocks were replaced (a PLL by a clock of its ratio, a synchroniser by four registers), \
         and what five blocks assign in two ways is assigned in one, as a flip-flop does. Full load was measured for 16,384 cycles, and Fig. 11a for 12,288, after 4,096. The engines' time varies by a quarter there and not here.",
    );
    outcome.note(
        "Fig. 11a has three flows of 102 Gbit/s together and strict priority, the chain first. All patterns but the third ask the AES engines for more than 64 Gbit/s, and there the simulated RTL loses cells as it does \
         with packets of 64 B until it takes in no more, also of what needs no engine. In patterns 1 and 4 none was left when the time measured was over. So they are in the table only: ours serves the chain as far as its engines go, and of AES alone what is left. In pattern 3 ours lets less pass by: \
         parser and scheduler have one way into the crossbar here, so a packet that needs no engine waits for the way out and for those that do, and three ports there.",
    );
    outcome.note(
        "What was tried for these: a queue as fast as the data path (panic.queue_clock_percent) puts 128 B inside, and a descriptor without a beat (panic.descriptor_beats) pattern 3 as well; both put 256 B and FlexPipe's 94 Gbit/s outside. Packets of 128 B: the RTL has a packet every 4 cycles, ours every 5, for the queue's two cycles come on top of a packet's beats here, as FlexPipe's 94 Gbit/s want it, and \
         overlap with them there. Packets of 64 B are not compared under load: the simulated RTL loses descriptors, and with them cells of its packet memory, so that its throughput falls from 58 to 32 Gbit/s within 32,768 \
         cycles. A packet of 2,048 B alone: the RTL's engine works while the rest of the packet arrives and sends it on while it reads it, ours does one after the other.",
    );
}
