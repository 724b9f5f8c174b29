//! The BlueField-3 study's threads and buffers: Figs. 12, 14, 15 and 16, and its guidelines (VI).

use std::time::Duration;

use anyhow::{Context, Result};
use snic_domain::{Bandwidth, ByteSize, NtTypeId, PacketSizes};
use snic_processors::{
    Estimate, Free, Implementation, Intensity, MemoryKind, NicModel, NtDemand, Offer, PacketWork,
    PlacementOption, ProcessorKind, Setting, choose, estimate, settings,
};

use super::bluefield3::{ALL, own, processor, program};
use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number};
use crate::parameters::{
    BF3_ABOVE_SECOND_PERCENT, BF3_BYTES, BF3_CASE_GBPS, BF3_HEADER_BYTES, BF3_KEYS,
    BF3_LARGE_SET_MIB, BF3_MEMORY_ARM, BF3_MEMORY_HOST, BF3_NFV_GBPS, BF3_SMALL_BYTES,
    BF3_THREAD_NANOS, BF3_TUPLE_BYTES, BF3_TUPLE_COUNTS, BF3_TUPLES, Parameters,
};

/// Work of a thread of each processor for a packet that it only forwards.
fn forwarding(parameters: &Parameters, kind: ProcessorKind) -> PacketWork {
    let at = ALL.iter().position(|other| *other == kind).unwrap_or_default();
    let nanos = parameters.all(&BF3_THREAD_NANOS).get(at).copied().unwrap_or_default();
    let thread = Some(Duration::from_nanos(nanos as u64));
    PacketWork { thread, ..PacketWork::default() }
}

fn served(
    parameters: &Parameters,
    nic: &NicModel,
    kind: ProcessorKind,
    (memory, threads, bytes): (MemoryKind, u32, f64),
) -> Result<Estimate> {
    let program = program(kind, forwarding(parameters, kind))?;
    let setting = Setting { threads, network: memory, working: memory };
    let packets = PacketSizes::only(bytes as u32);
    let sizes = (&packets, ByteSize::ZERO);
    Ok(estimate(processor(nic, kind)?, &program, nic.line, sizes, setting))
}

/// Processors and buffers of Figs. 12 and 14.
const FIVE: [(&str, ProcessorKind, MemoryKind); 5] = [
    ("DPA, DPA memory", ProcessorKind::Dpa, MemoryKind::Dpa),
    ("DPA, Arm memory", ProcessorKind::Dpa, MemoryKind::Arm),
    ("DPA, host memory", ProcessorKind::Dpa, MemoryKind::Host),
    ("Arm", ProcessorKind::Arm, MemoryKind::Arm),
    ("Host", ProcessorKind::Host, MemoryKind::Host),
];

/// Figs. 12 and 14: throughput by threads.
pub(super) fn threads(parameters: &Parameters) -> Result<FigureOutcome> {
    let nic = parameters.bluefield3();
    let (large, small) = (parameters.value(&BF3_BYTES), parameters.value(&BF3_SMALL_BYTES));
    let mut outcome = FigureOutcome::default();
    let mut series = Vec::new();
    let mut needed = Vec::new();
    for (name, kind, memory) in FIVE {
        let all = processor(&nic, kind)?.usable().context("threads are printed")?;
        let with = |threads, bytes| served(parameters, &nic, kind, (memory, threads, bytes));
        let mut points = Vec::new();
        for threads in 1..=all {
            points.push((f64::from(threads), with(threads, large)?.bandwidth.gbps_f64()));
        }
        let most = with(all, large)?.bandwidth;
        let line = nic.line.gbps_f64();
        if (kind, memory) == (ProcessorKind::Dpa, MemoryKind::Dpa) {
            let most = most.gbps_f64();
            let capped = Expected::derived(Origin::Published, ExpectedBound::Share(50.0, 0.05));
            outcome.check(format!("{name}, 1 KB, all threads"), "Gbit/s", capped, most);
            let half = with(all / 2, large)?.bandwidth.gbps_f64();
            let flat = Expected::derived(Origin::Shape, ExpectedBound::AtMost(1.1));
            outcome.check(
                format!("{name}, 1 KB: all threads over half of them"),
                "times",
                flat,
                most / half,
            );
            let lost = Expected::derived(Origin::Published, ExpectedBound::Share(7.5, 0.1));
            outcome.check("The line over receiving with DPA memory", "times", lost, line / most);
        } else {
            let full = Expected::fitted(Origin::Published, ExpectedBound::Exact(line));
            outcome.check(format!("{name}, 1 KB, all threads"), "Gbit/s", full, most.gbps_f64());
            let first = points.iter().find(|point| point.1 >= line).map(|point| point.0);
            needed.push((kind, first.unwrap_or(f64::NAN)));
        }
        let below = Expected::fitted(Origin::Shape, ExpectedBound::AtMost(0.99 * line));
        let least = with(all, small)?.bandwidth.gbps_f64();
        outcome.check(format!("{name}, 64 B, all threads"), "Gbit/s", below, least);
        series.push(Series::ours(name, points));
    }
    let of = |kind| needed.iter().find(|(other, _)| *other == kind).map_or(f64::NAN, |pair| pair.1);
    let more = Expected::fitted(Origin::Shape, ExpectedBound::AtLeast(1.1));
    let others = of(ProcessorKind::Arm).max(of(ProcessorKind::Host));
    let what = "Threads for the line at 1 KB: DPA over the others";
    outcome.check(what, "times", more, of(ProcessorKind::Dpa) / others);
    let always = Expected::derived(Origin::Shape, ExpectedBound::AtLeast(90.0));
    let share = wimpier(&nic, large, small)? * 100.0;
    let what =
        "Of all thread times that the other claims allow: those where a DPA thread is slowest";
    outcome.check(what, "%", always, share);
    let (x, y) = ("Threads", "Served (Gbit/s)");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    outcome.note(
        "The study prints no throughput of a thread. What a packet takes is the middle of what lets each \
         processor reach the line at 1 KB and not at 64 B, so these points are fitted; over all times \
         between, the share says how far the third claim, that a DPA thread is the slowest, follows from the \
         first two.",
    );
    Ok(outcome)
}

/// Times of DPA, Arm and host threads on a grid between the bounds that line rate at large and not at
/// small packets gives: those where the DPA's is longest.
fn wimpier(nic: &NicModel, large: f64, small: f64) -> Result<f64> {
    const STEPS: i32 = 24;
    let mut grids = Vec::new();
    for kind in ALL {
        let threads = processor(nic, kind)?.usable().context("threads are printed")?;
        let nanos = |bytes: f64| f64::from(threads) * bytes * 8e9 / nic.line.get() as f64;
        let (low, high) = (nanos(small), nanos(large));
        let at = move |step| low * (high / low).powf(f64::from(step) / f64::from(STEPS - 1));
        grids.push((0..STEPS).map(at).collect::<Vec<f64>>());
    }
    let (mut slowest, mut all) = (0.0, 0.0);
    for dpa in &grids[0] {
        for arm in &grids[1] {
            for host in &grids[2] {
                all += 1.0;
                slowest += f64::from(u8::from(dpa > arm && dpa > host));
            }
        }
    }
    Ok(slowest / all)
}

/// A packet of so many tuples, and its work: all of it is read, each tuple's aggregate is read and written.
fn aggregation(parameters: &Parameters, tuples: f64) -> (PacketSizes, PacketWork) {
    let payload = tuples * parameters.value(&BF3_TUPLE_BYTES);
    let packet = payload + parameters.value(&BF3_HEADER_BYTES);
    let permille = (payload / packet * 1e3).round() as u32;
    let work = PacketWork {
        // The study: the threads are not what limits.
        thread: Some(Duration::from_nanos(1)),
        payload_permille: 1_000,
        working_read_permille: permille,
        working_write_permille: permille,
    };
    (PacketSizes::only(packet as u32), work)
}

/// The DPA without a limit of its threads' caches: its memories are what is looked at.
fn by_memories(parameters: &Parameters) -> NicModel {
    let mut nic = parameters.bluefield3();
    nic.processors
        .iter_mut()
        .for_each(|one| one.thread_read = Some(snic_processors::ByteRate::new(1 << 50)));
    nic
}

fn label(setting: Setting) -> String {
    let name = |memory| match memory {
        MemoryKind::Dpa => "DPA",
        MemoryKind::Arm => "Arm",
        MemoryKind::Host => "Host",
    };
    format!("Net-{}+Agg-{}", name(setting.network), name(setting.working))
}

/// Bandwidth of each pair of buffers, the best first.
fn pairs(parameters: &Parameters, tuples: f64, keys: f64) -> Result<Vec<(Setting, f64)>> {
    let nic = by_memories(parameters);
    let dpa = processor(&nic, ProcessorKind::Dpa)?;
    let (packet, work) = aggregation(parameters, tuples);
    let program = program(ProcessorKind::Dpa, work)?;
    let set = ByteSize::from_bytes((keys * parameters.value(&BF3_TUPLE_BYTES)) as u64);
    let threads = dpa.usable().context("threads are printed")?;
    let of =
        |setting| estimate(dpa, &program, nic.line, (&packet, set), setting).bandwidth.gbps_f64();
    let mut pairs: Vec<_> =
        settings(dpa, threads).into_iter().map(|setting| (setting, of(setting))).collect();
    pairs.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(pairs)
}

/// Figs. 15 and 16: key-value aggregation.
pub(super) fn aggregate(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let few = parameters.all(&BF3_KEYS).first().copied().unwrap_or_default();
    let counts = parameters.all(&BF3_TUPLE_COUNTS);
    let mut series: Vec<Series> = Vec::new();
    let (mut best, mut worst) = (0.0, 0.0);
    for &tuples in counts {
        let pairs = pairs(parameters, tuples, few)?;
        let (first, last) = (pairs.first().context("pairs")?, pairs.last().context("pairs")?);
        best += f64::from(u8::from(label(first.0) == "Net-Arm+Agg-DPA"));
        worst += f64::from(u8::from(label(last.0) == "Net-Host+Agg-Host"));
        for (setting, gbps) in pairs {
            let name = label(setting);
            match series.iter_mut().find(|one| one.name == name) {
                Some(one) => one.points.push((tuples, gbps)),
                None => series.push(Series::ours(name, vec![(tuples, gbps)])),
            }
        }
    }
    let seven = Expected::derived(Origin::Published, ExpectedBound::Exact(7.0));
    outcome.check("Pairs of buffers that can be used", "", seven, series.len() as f64);
    let all = Expected::predicted(Origin::Shape, ExpectedBound::Exact(100.0));
    let percent = |count: f64| count / counts.len() as f64 * 100.0;
    outcome.check("Tuples a packet for which Net-Arm+Agg-DPA is the best", "%", all, percent(best));
    outcome.check(
        "Tuples a packet for which Net-Host+Agg-Host is the worst",
        "%",
        all,
        percent(worst),
    );
    let tuples = parameters.value(&BF3_TUPLES);
    let now = pairs(parameters, tuples, few)?;
    let gbps = |pairs: &[(Setting, f64)], name: &str| {
        pairs.iter().find(|(setting, _)| label(*setting) == name).map_or(f64::NAN, |pair| pair.1)
    };
    let gain = Expected::fitted(Origin::Published, ExpectedBound::Share(4.3, 0.02));
    let (top, bottom) = (gbps(&now, "Net-Arm+Agg-DPA"), gbps(&now, "Net-Host+Agg-Host"));
    outcome.check("The best over the worst, 32 tuples", "times", gain, top / bottom);
    let of_dpa = now.iter().filter(|(setting, _)| setting.network == MemoryKind::Dpa);
    let of_dpa: Vec<f64> = of_dpa.map(|pair| pair.1).collect();
    let received = Expected::derived(Origin::Published, ExpectedBound::AtMost(50.0));
    let most = of_dpa.iter().copied().fold(0.0, f64::max);
    outcome.check("Packets in DPA memory: the most that is served", "Gbit/s", received, most);
    let lower = Expected::predicted(Origin::Shape, ExpectedBound::AtMost(1.0));
    let least = of_dpa.iter().copied().fold(f64::INFINITY, f64::min);
    let what = "Net-Host+Agg-DPA over the slowest with packets in DPA memory";
    outcome.check(what, "times", lower, gbps(&now, "Net-Host+Agg-DPA") / least);
    other_processors(parameters, (tuples, top), &mut outcome)?;
    many_keys(parameters, tuples, &mut outcome)?;
    let (x, y) = ("Tuples a packet", "Served (Gbit/s)");
    outcome.plot = Some(Plot { x, y, axis: Axis::Doubling, series });
    outcome.note(
        "What a packet moves is counted: all of it is read, 16 bytes of each tuple are read and written in the \
         aggregates. Host memory's rates and what DPA memory receives are printed; Arm memory's is fitted to \
         the 4.3, which is measured with a trace and here with uniform keys that fit the cache. By these rates, \
         reading packets in host memory alone allows 57.6 Gbit/s, more than the 50 that DPA memory receives, \
         so that both pairs with packets in host memory are the lowest does not follow. Of Fig. 16's other two \
         processors the text prints how many times the DPA's best they serve, and of their memories how much \
         faster these are than what the DPA has: that allows the printed ratios and a little more.",
    );
    Ok(outcome)
}

/// Fig. 16: what the memories of Arm and host allow them, over the DPA's best. A packet is read once, and its
/// aggregates are read and written, as fast as these are read.
fn other_processors(
    parameters: &Parameters,
    (tuples, best): (f64, f64),
    outcome: &mut FigureOutcome,
) -> Result<()> {
    let nic = parameters.bluefield3();
    let slow = processor(&nic, ProcessorKind::Dpa)?.path(MemoryKind::Host);
    let slow = slow.and_then(|path| path.read).context("the DPA's reading of host memory")?;
    let arm = slow.get() as f64 * parameters.value(&BF3_MEMORY_ARM);
    let host = arm * parameters.value(&BF3_MEMORY_HOST);
    let aggregates = tuples * parameters.value(&BF3_TUPLE_BYTES);
    let packet = aggregates + parameters.value(&BF3_HEADER_BYTES);
    let line = nic.line.gbps_f64();
    let served = |rate: f64| (packet * 8.0 * rate / (packet + 2.0 * aggregates) / 1e9).min(line);
    for (name, printed, rate) in [("Arm", 1.3, arm), ("Host", 2.5, host)] {
        let most = Expected::derived(Origin::Published, ExpectedBound::AtLeast(printed));
        let what = format!("{name}: what its memory allows, over the DPA's best");
        outcome.check(what, "times", most, served(rate) / best);
    }
    Ok(())
}

/// Fig. 15b: more keys than the cache holds.
fn many_keys(parameters: &Parameters, tuples: f64, outcome: &mut FigureOutcome) -> Result<()> {
    let mut rows = Vec::new();
    let mut last = Vec::new();
    let keys = parameters.all(&BF3_KEYS);
    for &keys in keys {
        last = pairs(parameters, tuples, keys)?;
        for (setting, gbps) in &last {
            rows.push(vec![label(*setting), number(keys), number(*gbps)]);
        }
    }
    let first = pairs(parameters, tuples, keys.first().copied().unwrap_or_default())?;
    let best = |pairs: &[(Setting, f64)]| pairs.first().map_or(f64::NAN, |pair| pair.1);
    let falls = Expected::predicted(Origin::Shape, ExpectedBound::AtMost(0.9));
    let what = "The best with the most keys over the fewest";
    outcome.check(what, "times", falls, best(&last) / best(&first));
    outcome.table.columns = ["Buffers", "Keys", "Served (Gbit/s)"].map(str::to_owned).to_vec();
    outcome.table.rows = rows;
    Ok(())
}

/// One of the study's cases: what is asked for, and whether an option is what the study says.
struct Case {
    what: &'static str,
    demand: NtDemand,
    programs: Vec<Implementation>,
    nic: NicModel,
    is_right: fn(ProcessorKind, Setting) -> bool,
}

/// The same work on all three processors.
fn on_all(parameters: &Parameters, intensity: Intensity) -> Result<Vec<Implementation>> {
    let of =
        |kind| Ok(Implementation { intensity, ..program(kind, forwarding(parameters, kind))? });
    ALL.into_iter().map(of).collect()
}

fn cases(parameters: &Parameters) -> Result<Vec<Case>> {
    let nic = parameters.bluefield3();
    let demand = NtDemand {
        nt: NtTypeId::new("it")?,
        bandwidth: parameters.gbps(&BF3_CASE_GBPS),
        packets: PacketSizes::only(parameters.count(&BF3_BYTES) as u32),
        working_set: ByteSize::ZERO,
        is_latency_sensitive: false,
        latency_max: None,
    };
    let simple = on_all(parameters, Intensity::Simple)?;
    let (packet, work) = aggregation(parameters, parameters.value(&BF3_TUPLES));
    let few = parameters.all(&BF3_KEYS).first().copied().unwrap_or_default();
    let few = few * parameters.value(&BF3_TUPLE_BYTES);
    // More than any pair of buffers but the study's best serves.
    let others = pairs(parameters, parameters.value(&BF3_TUPLES), few)?;
    let second = others.get(1).map_or(0.0, |pair| pair.1);
    let above = parameters.value(&BF3_ABOVE_SECOND_PERCENT);
    let large = parameters.value(&BF3_LARGE_SET_MIB) * 1_048_576.0;
    let large = ByteSize::from_bytes(large as u64);
    let far = |kind, _| kind != ProcessorKind::Dpa;
    Ok(vec![
        Case {
            what: "Clock synchronisation: on the DPA, packets in DPA memory",
            demand: NtDemand { is_latency_sensitive: true, ..demand.clone() },
            programs: simple.clone(),
            nic: nic.clone(),
            is_right: |kind, at| kind == ProcessorKind::Dpa && at.network == own(kind),
        },
        Case {
            what: "Network function of 200 Gbit/s: on the DPA, packets not in DPA memory",
            demand: NtDemand { bandwidth: parameters.gbps(&BF3_NFV_GBPS), ..demand.clone() },
            programs: simple.clone(),
            nic: nic.clone(),
            is_right: |kind, at| kind == ProcessorKind::Dpa && at.network != MemoryKind::Dpa,
        },
        Case {
            what: "Key-value aggregation: packets in Arm memory, aggregates in DPA memory",
            demand: NtDemand {
                packets: packet,
                bandwidth: Bandwidth::from_bps((second * above * 1e7) as u64),
                working_set: ByteSize::from_bytes(few as u64),
                ..demand.clone()
            },
            programs: vec![program(ProcessorKind::Dpa, work)?],
            nic: by_memories(parameters),
            is_right: |_, at| (at.network, at.working) == (MemoryKind::Arm, MemoryKind::Dpa),
        },
        Case {
            what: "Compute-bound: not on the DPA",
            demand: demand.clone(),
            programs: on_all(parameters, Intensity::Compute)?,
            nic: nic.clone(),
            is_right: far,
        },
        Case {
            what: "Large working set: not on the DPA",
            demand: NtDemand { working_set: large, ..demand },
            programs: simple,
            nic,
            is_right: far,
        },
    ])
}

/// The three guidelines: what `choose` makes of the study's cases.
pub(super) fn guidelines(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    for case in cases(parameters)? {
        let mut nic = case.nic;
        nic.implementations = case.programs;
        let offers = Offer::of_model(&nic, &case.demand.nt);
        let chosen = choose(&case.demand, &offers, &Free::all(&nic));
        let taken = chosen.as_ref().ok().map(|choice| &choice.taken);
        let setting = taken.and_then(|taken| taken.setting);
        let is_right = setting.is_some_and(|(kind, setting)| (case.is_right)(kind, setting));
        let bound = ExpectedBound::Exact(1.0);
        let expected = Expected::derived(Origin::Published, bound);
        outcome.check(case.what, "1 = so", expected, f64::from(u8::from(is_right)));
        let text = taken.map_or_else(|| "none".to_owned(), PlacementOption::to_string);
        outcome.table.rows.push(vec![case.what.into(), text]);
    }
    outcome.table.columns = ["The study", "Chosen, and why"].map(str::to_owned).to_vec();
    outcome.note(
        "The product's own choice, from the card model's file and the parameters. The first two guidelines are \
         rules of the choice, and which buffers are taken follows from the rates that Figs. 12 and 15 use, so \
         all of this is derived: it shows that the choice does what the study says.",
    );
    Ok(outcome)
}
