//! The BlueField-3 study's processors, memories and latencies: Figs. 3 to 8, 10, 11a and 13.
//!
//! The study prints few numbers beside its plots. What is printed is in the card model's file; what its
//! figures are then expected to show follows from these by the estimate that places NTs.

use std::time::Duration;

use anyhow::{Context, Result};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_domain::{ByteSize, NtTypeId, PacketSizes};
use snic_processors::{
    Implementation, Intensity, MemoryKind, NicModel, PacketWork, Processor, ProcessorKind, Setting,
    ThroughputLimit, estimate,
};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number};
use crate::parameters::{
    BF3_BUSY_GBPS, BF3_BYTES, BF3_CHANNEL_BYTES, BF3_DRIFT_PPM, BF3_ENOUGH_THREADS,
    BF3_FLOOD_THREADS, BF3_FULL_PERCENT, BF3_GOPS_ARM, BF3_GOPS_HOST, BF3_HOST_CHANNELS,
    BF3_MEMORY_ARM, BF3_MEMORY_HOST, BF3_PCIE_GBPS, BF3_READ_PERCENT, BF3_ROUND_TRIP_NANOS,
    BF3_SEED, BF3_SETS_KIB, BF3_SYNC_SECONDS, BF3_TLP_BYTES, BF3_TLP_PAYLOAD, BF3_WAITS,
    Parameters,
};

pub(super) const ALL: [ProcessorKind; 3] =
    [ProcessorKind::Dpa, ProcessorKind::Arm, ProcessorKind::Host];

/// A processor's own memory.
pub(super) fn own(kind: ProcessorKind) -> MemoryKind {
    match kind {
        ProcessorKind::Dpa => MemoryKind::Dpa,
        ProcessorKind::Arm | ProcessorKind::Other => MemoryKind::Arm,
        ProcessorKind::Host => MemoryKind::Host,
    }
}

pub(super) fn processor(nic: &NicModel, kind: ProcessorKind) -> Result<&Processor> {
    nic.processor(kind).with_context(|| format!("the model has {}", kind.name()))
}

/// A parallel program of this work.
pub(super) fn program(on: ProcessorKind, work: PacketWork) -> Result<Implementation> {
    let (nt, intensity) = (NtTypeId::new("it")?, Intensity::Simple);
    let (work, points) = (Some(work), Vec::new());
    Ok(Implementation { nt, on, parallel: true, intensity, working_set: None, work, points })
}

/// Fig. 3: what processors compute.
pub(super) fn compute(parameters: &Parameters) -> Result<FigureOutcome> {
    let nic = parameters.bluefield3();
    let dpa = processor(&nic, ProcessorKind::Dpa)?;
    let threads = f64::from(dpa.usable().context("its threads are printed")?);
    let cores = processor(&nic, ProcessorKind::Host)?.cores.context("its cores are printed")?;
    let (host, arm) = (parameters.value(&BF3_GOPS_HOST), parameters.value(&BF3_GOPS_ARM));
    let mut outcome = FigureOutcome::default();
    outcome.check("All cores: host over DPA", "times", Expected::entered(7.5), host);
    outcome.check("All cores: Arm over DPA", "times", Expected::entered(4.7), arm);
    let comparable = Expected::derived(Origin::Shape, ExpectedBound::Between(0.5, 2.0));
    outcome.check(
        "All cores: host over Arm, which are comparable",
        "times",
        comparable,
        host / arm,
    );
    let single = Expected::derived(Origin::Published, ExpectedBound::Share(26.0, 0.1));
    let one = host / f64::from(cores.get()) * threads;
    outcome.check("A host core over a DPA thread, with linear scaling", "times", single, one);
    let bars = vec![(0.0, 1.0), (1.0, arm), (2.0, host)];
    let axis = Axis::Categories(ALL.map(|kind| kind.name().to_owned()).to_vec());
    let series = vec![Series::ours("all cores", bars)];
    outcome.plot = Some(Plot { x: "Processor", y: "Operations (times the DPA's)", axis, series });
    outcome.note(format!(
        "The study prints that all host cores compute 7.5 times what the DPA does, that the DPA scales \
         linearly with its threads, and that a thread is up to 26 times slower. These do not fit: 7.5 \
         times {} threads over 16 cores is more. With 26, {} threads would do what all do.",
        number(threads),
        number(26.0 / host * f64::from(cores.get())),
    ));
    Ok(outcome)
}

/// Figs. 4 to 8: memories.
pub(super) fn memory(parameters: &Parameters) -> Result<FigureOutcome> {
    let nic = parameters.bluefield3();
    let dpa = processor(&nic, ProcessorKind::Dpa)?;
    let mut outcome = FigureOutcome::default();
    let path = |memory| dpa.path(memory).context("the DPA reaches all three memories");
    let host = path(MemoryKind::Host)?;
    let own = path(MemoryKind::Dpa)?;
    let read = |path: &snic_processors::MemoryPath| path.read.map_or(f64::NAN, |r| r.get() as f64);
    let written =
        |path: &snic_processors::MemoryPath| path.write.map_or(f64::NAN, |r| r.get() as f64);
    outcome.check("DPA reads host memory", "GB/s", Expected::entered(7.2), read(host) / 1e9);
    outcome.check("DPA writes host memory", "GB/s", Expected::entered(14.0), written(host) / 1e9);
    let below = Expected::derived(Origin::Shape, ExpectedBound::AtMost(0.5));
    let of_line = read(host) * 8.0 / nic.line.get() as f64;
    outcome.check("DPA reads host memory, of the line", "", below, of_line);
    let arm = read(host) * parameters.value(&BF3_MEMORY_ARM);
    let cores = arm * parameters.value(&BF3_MEMORY_HOST);
    let peak = parameters.value(&BF3_CHANNEL_BYTES) * parameters.value(&BF3_HOST_CHANNELS);
    let most = Expected::derived(Origin::Computed, ExpectedBound::AtMost(peak / 1e9));
    outcome.check(
        "Host cores, by 7.6 and 2.7: no more than eight channels",
        "GB/s",
        most,
        cores / 1e9,
    );
    for (what, of) in [("read", &read as &dyn Fn(_) -> f64), ("written", &written)] {
        // Threads are split so that both memories are busy all the time.
        let both = of(own) + of(host);
        let fitted = Expected::fitted(Origin::Published, ExpectedBound::Share(2.4, 0.02));
        let label = format!("DPA and host memory together, {what}: over the slower alone");
        outcome.check(label, "times", fitted, both / of(own).min(of(host)));
    }
    split(parameters, (read(own), read(host)), &mut outcome)?;
    let sets = parameters.all(&BF3_SETS_KIB);
    let points = by_working_set(parameters, &nic, sets)?;
    let full = points.first().map_or(f64::NAN, |point| point.1);
    let share = parameters.value(&BF3_FULL_PERCENT) / 100.0;
    let held = points.iter().filter(|point| point.1 >= share * full).map(|point| point.0);
    let knee = held.fold(0.0, f64::max);
    let at = Expected::derived(Origin::Published, ExpectedBound::Exact(1_536.0));
    outcome.check("Largest working set that is read at full speed", "KiB", at, knee);
    let least = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    outcome.check("Fall beyond it", "times", Expected::entered(25.0), full / least);
    let series = vec![Series::ours("all DPA threads, DPA memory", points)];
    let (x, y) = ("Working set (KiB)", "Read (GB/s)");
    outcome.plot = Some(Plot { x, y, axis: Axis::Doubling, series });
    outcome.note(
        "Of Fig. 7 the text prints rates for host memory only; the DPA's other two are fitted. That 2.4 is \
         the largest gain of two memories means it is over the slower of them: two rates that add up are at \
         most twice the larger. The text's 'up to 7.6 times lower than Arm and host' fits its 7.2 GB/s and \
         the 2.7 between host and Arm only if 7.6 is the Arm's.",
    );
    Ok(outcome)
}

/// Fig. 8: so many threads read DPA memory and the others host memory. Each memory grows with its threads to
/// what it gives at most.
fn split(
    parameters: &Parameters,
    (own, host): (f64, f64),
    outcome: &mut FigureOutcome,
) -> Result<()> {
    let nic = parameters.bluefield3();
    let threads = processor(&nic, ProcessorKind::Dpa)?.usable().context("they are printed")?;
    let enough = parameters.value(&BF3_ENOUGH_THREADS);
    let of = |most: f64, threads: u32| most * (f64::from(threads) / enough).min(1.0);
    let mut rows = Vec::new();
    let mut better = 0;
    for near in 0..=threads {
        let both = of(own, near) + of(host, threads - near);
        better += u32::from(both > own.max(host));
        if near % 19 == 0 {
            rows.push(
                [f64::from(near), f64::from(threads - near), both / 1e9].map(number).to_vec(),
            );
        }
    }
    // A single memory leaves the threads idle that it does not need.
    let most = Expected::derived(Origin::Shape, ExpectedBound::AtLeast(50.0));
    let share = f64::from(better) / f64::from(threads + 1) * 100.0;
    outcome.check(
        "Splits of the threads that read more than either memory alone",
        "%",
        most,
        share,
    );
    outcome.table.columns =
        ["Threads on DPA memory", "On host memory", "Read (GB/s)"].map(str::to_owned).to_vec();
    outcome.table.rows = rows;
    Ok(())
}

/// Rate at which all threads read DPA memory, for each working set in KiB: a program that reads nothing else.
fn by_working_set(
    parameters: &Parameters,
    nic: &NicModel,
    sets: &[f64],
) -> Result<Vec<(f64, f64)>> {
    let mut nic = nic.clone();
    // Memory is what limits here, not the line.
    nic.line = snic_domain::Bandwidth::from_gbps(1_000_000);
    let dpa = processor(&nic, ProcessorKind::Dpa)?;
    let thread = Some(Duration::from_nanos(1));
    let work = PacketWork { thread, working_read_permille: 1_000, ..PacketWork::default() };
    let program = program(ProcessorKind::Dpa, work)?;
    let threads = parameters.count(&BF3_FLOOD_THREADS) as u32;
    let setting = Setting { threads, network: MemoryKind::Host, working: MemoryKind::Dpa };
    let mut dpa = dpa.clone();
    dpa.memories
        .iter_mut()
        .for_each(|path| (path.receive, path.send) = (Some(nic.line), Some(nic.line)));
    let packet = PacketSizes::only(parameters.count(&BF3_BYTES) as u32);
    let mut points = Vec::new();
    for &kib in sets {
        let set = ByteSize::from_bytes((kib * 1_024.0) as u64);
        let read = estimate(&dpa, &program, nic.line, (&packet, set), setting);
        anyhow::ensure!(
            read.limit == ThroughputLimit::MemoryBandwidth(MemoryKind::Dpa),
            "{read:?}"
        );
        points.push((kib, read.bandwidth.get() as f64 / 8e9));
    }
    Ok(points)
}

/// Time of a packet of which a share is read on a processor with buffers in its own memory, in
/// microseconds.
fn latency(nic: &NicModel, kind: ProcessorKind, packet: f64, percent: f64) -> Result<f64> {
    let mut one = processor(nic, kind)?.clone();
    // The study has no rate of the Arm's first cache, and says that it is like the host's.
    let host = processor(nic, ProcessorKind::Host)?.thread_read;
    one.thread_read = one.thread_read.or(host);
    let payload_permille = (percent * 10.0) as u32;
    let thread = Some(Duration::from_nanos(1));
    let work = PacketWork { thread, payload_permille, ..PacketWork::default() };
    let setting = Setting { threads: 1, network: own(kind), working: own(kind) };
    let packet = PacketSizes::only(packet as u32);
    let sizes = (&packet, ByteSize::ZERO);
    let latency = estimate(&one, &program(kind, work)?, nic.line, sizes, setting).latency;
    let latency = latency.with_context(|| format!("the latency of {}", kind.name()))?;
    Ok(latency.as_secs_f64() * 1e6)
}

/// Figs. 10 and 11a: latency, and what reading the packet makes of it.
pub(super) fn reflector(parameters: &Parameters) -> Result<FigureOutcome> {
    let nic = parameters.bluefield3();
    let packet = parameters.value(&BF3_BYTES);
    let trip = parameters.value(&BF3_ROUND_TRIP_NANOS) / 1e3;
    let mut outcome = FigureOutcome::default();
    let mut series = Vec::new();
    for kind in ALL {
        let mut points = Vec::new();
        for &percent in parameters.all(&BF3_READ_PERCENT) {
            points.push((percent, trip + latency(&nic, kind, packet, percent)?));
        }
        series.push(Series::ours(kind.name(), points));
    }
    let [dpa, arm, host] = ALL.map(|kind| latency(&nic, kind, packet, 0.0));
    let (dpa, arm, host) = (dpa?, arm?, host?);
    let longer = Expected::derived(Origin::Shape, ExpectedBound::AtLeast(0.1));
    outcome.check("Arm over DPA, nothing read", "µs", longer, arm - dpa);
    let longer = Expected::fitted(Origin::Shape, ExpectedBound::AtLeast(0.1));
    outcome.check("Host over Arm, nothing read", "µs", longer, host - arm);
    let [slow, quick] =
        [ProcessorKind::Dpa, ProcessorKind::Arm].map(|kind| latency(&nic, kind, packet, 100.0));
    let (slow, quick) = (slow? - dpa, quick? - arm);
    let gone = Expected::predicted(Origin::Shape, ExpectedBound::AtMost(100.0));
    let share = (arm - dpa) / (slow - quick) * 100.0;
    outcome.check(
        "Share of the packet, read, that costs the DPA its lead over Arm",
        "%",
        gone,
        share,
    );
    let slightly = Expected::derived(Origin::Shape, ExpectedBound::AtMost(0.1));
    outcome.check("Arm: the whole packet read, over the DPA's", "times", slightly, quick / slow);
    let (x, y) = ("Read of the packet (%)", "Round trip (µs)");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    outcome.note(
        "The client is a DPA. A packet to Arm crosses the switch twice more than one to the DPA, one to the \
         host PCIe as well; a DPA thread reads 0.53 GB/s at best. Nothing here is fitted but PCIe, which the \
         share does not depend on. Only buffers in each processor's own memory are shown: for the DPA with \
         other memories the study prints no time. Fig. 11b is bf3-access.",
    );
    Ok(outcome)
}

/// Wait of a round trip for the PCIe of both hosts, the longest but for a thousandth, in microseconds.
fn busy_wait(parameters: &Parameters) -> f64 {
    let bytes = parameters.value(&BF3_BYTES);
    let transfers = bytes / parameters.value(&BF3_TLP_PAYLOAD);
    let moved = bytes + transfers * parameters.value(&BF3_TLP_BYTES);
    let service = moved * 8.0 / parameters.value(&BF3_PCIE_GBPS);
    let apart = bytes * 8.0 / parameters.value(&BF3_BUSY_GBPS).max(f64::MIN_POSITIVE);
    let mut rng = ChaCha8Rng::seed_from_u64(parameters.count(&BF3_SEED));
    // Lindley's equation: who comes waits for what the one before left, less the time since.
    let (mut waits, mut wait) = (Vec::new(), 0.0f64);
    for _ in 0..parameters.count(&BF3_WAITS) {
        waits.push(wait);
        let since = -apart * (1.0 - rng.random::<f64>()).ln();
        wait = (wait + service - since).max(0.0);
    }
    let mut any = || waits[rng.random_range(0..waits.len())];
    let mut trips: Vec<f64> = (0..waits.len()).map(|_| any() + any() + any() + any()).collect();
    trips.sort_by(f64::total_cmp);
    trips[trips.len() * 999 / 1_000] / 1e3
}

/// Fig. 13: the bound on the time of a clock that is synchronised.
pub(super) fn clock(parameters: &Parameters) -> Result<FigureOutcome> {
    let nic = parameters.bluefield3();
    let trip = parameters.value(&BF3_ROUND_TRIP_NANOS) / 1e3;
    let drift = parameters.value(&BF3_SYNC_SECONDS) * parameters.value(&BF3_DRIFT_PPM);
    let mut outcome = FigureOutcome::default();
    let mut bounds = Vec::new();
    for kind in ALL {
        let side = latency(&nic, kind, parameters.value(&BF3_BYTES), 0.0)?;
        // Both sides run on processors of the same kind.
        bounds.push(drift + (trip + 2.0 * side) / 2.0);
    }
    let gain = |at: usize| bounds[at] / bounds[0];
    let drifts = Expected::derived(Origin::Computed, ExpectedBound::Exact(1.0));
    outcome.check("What a clock drifts between two synchronisations", "µs", drifts, drift);
    let twice = Expected::fitted(Origin::Published, ExpectedBound::Share(2.0, 0.05));
    outcome.check("Host over DPA, average", "times", twice, gain(2));
    let less = Expected::derived(Origin::Published, ExpectedBound::Between(1.2, 2.0));
    outcome.check("Arm over DPA, average: much more, and at most 2.0", "times", less, gain(1));
    let order = Expected::fitted(Origin::Shape, ExpectedBound::AtLeast(1.0));
    outcome.check("Host over Arm, average", "times", order, gain(2) / gain(1));
    let wait = busy_wait(parameters);
    let busy = bounds[2] + wait / 2.0;
    let tail = Expected::predicted(Origin::Published, ExpectedBound::Share(2.3, 0.05));
    let what = "Host over DPA, 999th permille, beside 400 Gbit/s on the host";
    outcome.check(what, "times", tail, busy / bounds[0]);
    let bars = bounds.iter().enumerate().map(|(at, bound)| (at as f64, *bound)).collect();
    let axis = Axis::Categories(ALL.map(|kind| kind.name().to_owned()).to_vec());
    let series = vec![Series::ours("buffers in own memory", bars)];
    outcome.plot = Some(Plot { x: "Processor", y: "Uncertainty (µs)", axis, series });
    outcome.note(
        "The bound is what the clock drifts plus half a round trip. PCIe is fitted to the published 2.0, the \
         round trip assumed. Beside the reflector a packet of the host's clock waits four times for PCIe, at \
         both ends there and back: a queue of packets of 1 KB that come at random, each for as long as PCIe has \
         it. The DPA's do not cross it. Waits in the switch and on the wire, which all have, are left out. The 2.3 \
         is met narrowly: with 16 to 28 bytes beside the payload of a transfer it is 2.16 to 2.23, and it \
         falls with the assumed round trip.",
    );
    Ok(outcome)
}
