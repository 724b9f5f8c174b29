//! The BlueField-3 study's accesses to memory, one at a time: Figs. 5, 9 and 11b.
//!
//! The times are in its plots only. Its text says which way an access takes (Fig. 4), what the switch costs, and
//! how much longer the DPA waits; from these it follows how many accesses the DPA's lead is worth.

use anyhow::{Context, Result};
use snic_domain::MemoryKind;
use snic_processors::ProcessorKind;

use super::bluefield3::processor;
use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number};
use crate::parameters::{
    BF3_ACCESS_CROSSINGS, BF3_ACCESS_NANOS, BF3_BUNCH_BYTES, BF3_BUNCH_SIZES, BF3_BYTES,
    BF3_DIRECT_BYTES, BF3_DPA_CACHE_NANOS, BF3_L1_TIMES, BF3_PCIE_NANOS, BF3_RANDOM_READS,
    BF3_SWITCH_NANOS, Parameters,
};

/// Times of an access, in nanoseconds: Arm and host read their own memory, the DPA all three.
struct Accesses {
    own: f64,
    dpa_to_arm: f64,
    dpa_to_dpa: f64,
    dpa_to_host: f64,
    /// Time by which a packet to Arm or back takes longer than one to the DPA.
    lead: f64,
}

impl Accesses {
    /// Times of the ways of Fig. 4: the DPA's memory and the Arm's are the same, behind the switch; the first is looked
    /// for in the DPA's second and third cache before; the host's is behind PCIe as well.
    fn new(parameters: &Parameters) -> Self {
        let own = parameters.value(&BF3_ACCESS_NANOS);
        let crossings = parameters.value(&BF3_ACCESS_CROSSINGS);
        let switch = parameters.value(&BF3_SWITCH_NANOS);
        let dpa_to_arm = own + crossings * switch;
        Self {
            own,
            dpa_to_arm,
            dpa_to_dpa: dpa_to_arm + parameters.value(&BF3_DPA_CACHE_NANOS),
            dpa_to_host: dpa_to_arm + crossings * parameters.value(&BF3_PCIE_NANOS),
            lead: 2.0 * switch,
        }
    }
}

/// Figs. 5, 9 and 11b.
pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let of = Accesses::new(parameters);
    outcome.check(
        "Fig. 5: first cache, DPA over host",
        "times",
        Expected::entered(10.5),
        parameters.value(&BF3_L1_TIMES),
    );
    let five = Expected::derived(Origin::Published, ExpectedBound::AtLeast(5.0));
    outcome.check("Fig. 5: Arm memory, DPA over Arm", "times", five, of.dpa_to_arm / of.own);
    let more = Expected::derived(Origin::Shape, ExpectedBound::AtLeast(1.01));
    let (what, ratio) = ("Fig. 5: DPA memory over Arm memory", of.dpa_to_dpa / of.dpa_to_arm);
    outcome.check(what, "times", more, ratio);
    let (what, ratio) = ("Fig. 5: host memory over DPA memory", of.dpa_to_host / of.dpa_to_dpa);
    outcome.check(what, "times", more, ratio);
    received(parameters, &mut outcome)?;
    let one = Expected::derived(Origin::Computed, ExpectedBound::AtMost(1.0));
    let reads = of.lead / (of.dpa_to_dpa - of.own);
    outcome.check("Fig. 11b: random reads that cost the DPA its lead over Arm", "", one, reads);
    let axis = parameters.all(&BF3_RANDOM_READS);
    let line = |begin: f64, each: f64| -> Vec<(f64, f64)> {
        axis.iter().map(|&reads| (reads, (begin + reads * each) / 1e3)).collect()
    };
    let behind_pcie = of.lead + 2.0 * parameters.value(&BF3_PCIE_NANOS);
    let series = vec![
        Series::ours("DPA, DPA memory", line(0.0, of.dpa_to_dpa)),
        Series::ours("Arm", line(of.lead, of.own)),
        Series::ours("Host", line(behind_pcie, of.own)),
    ];
    let (x, y) = ("Random reads of a packet", "Over the DPA's with none (µs)");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    outcome.note(
        "Of Fig. 5 the text prints 10.5, that an access of the DPA takes at least five times the Arm's, and the \
         order of the others. What Arm and host take for their own memory and what the DPA's caches add is \
         assumed: the five hold up to 250 ns of the first. Of Fig. 9 it prints that of 512 KB of packets the \
         latest 128 KB are in the DPA's second cache; how the others are spread over third cache, Arm's cache and \
         memory is in the plot only. Of Fig. 11b it prints the buffer of 8 MB, which the DPA's caches do not hold: \
         its lead over Arm is two crossings of the switch, and so is what a read costs it more.",
    );
    Ok(outcome)
}

/// Fig. 9: a bunch of packets is received one after the other, each into the second cache, where the oldest
/// makes room for it.
fn received(parameters: &Parameters, outcome: &mut FigureOutcome) -> Result<()> {
    let nic = parameters.bluefield3();
    let dpa = processor(&nic, ProcessorKind::Dpa)?;
    let path = dpa.path(MemoryKind::Dpa).context("the DPA reaches its memory")?;
    let third = path.cache.context("its caches are printed")?.get() as f64;
    let direct = parameters.value(&BF3_DIRECT_BYTES);
    let bunch = parameters.value(&BF3_BUNCH_BYTES);
    let large = parameters.value(&BF3_BYTES);
    let mut rows = Vec::new();
    for &bytes in parameters.all(&BF3_BUNCH_SIZES) {
        // Second cache, third cache, behind them.
        let mut levels = [0usize; 3];
        let most = [direct, third].map(|room| (room / bytes) as usize);
        let count = (bunch / bytes) as usize;
        for _ in 0..count {
            levels[0] += 1;
            for (level, most) in most.into_iter().enumerate() {
                if levels[level] > most {
                    levels[level] -= 1;
                    levels[level + 1] += 1;
                }
            }
        }
        if bytes == large {
            let near = levels[0] as f64 * bytes / 1_024.0;
            let what = "Fig. 9: the latest that are in the second cache, of 1 KB";
            outcome.check(what, "KB", Expected::entered(128.0), near);
            let expected = Expected::derived(Origin::Computed, ExpectedBound::Exact(25.0));
            let percent = levels[0] as f64 / count as f64 * 100.0;
            outcome.check("Fig. 9: part of the bunch that they are", "%", expected, percent);
        }
        let kib = |count: usize| number(count as f64 * bytes / 1_024.0);
        rows.push([vec![number(bytes)], levels.map(kib).to_vec()].concat());
    }
    let spread = rows.iter().any(|row| rows.first().is_some_and(|first| first[1] != row[1]));
    let same = Expected::derived(Origin::Published, ExpectedBound::Exact(0.0));
    let what = "Fig. 9: sizes of packets with which it is another amount";
    outcome.check(what, "1 = some", same, f64::from(u8::from(spread)));
    let head = ["Packets (B)", "Second cache (KiB)", "Third cache (KiB)", "Behind them (KiB)"];
    outcome.table.columns = head.map(str::to_owned).to_vec();
    outcome.table.rows = rows;
    Ok(())
}
