//! Section 5.1: latency from port to port, and the core's and the scheduler's part in it.

use anyhow::Result;

use crate::outcome::{DataTable, Expected, ExpectedBound, FigureOutcome, Origin, number};
use crate::parameters::{ASIC_HZ, PHY_MAC_NS, Parameters, REQUEST_GBPS};
use crate::testbed::{Setup, Testbed, nt};

/// The shortest possible NT; its latency is subtracted.
const SHORTEST: u64 = 1;

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let one = cycles(parameters, 1)?;
    let two = cycles(parameters, 2)?;
    let (core, pass) = (one - SHORTEST, two - one - SHORTEST);
    let nanos = |cycles: u64| cycles as f64 * parameters.nanos_per_cycle();
    let asic = |cycles: u64| cycles as f64 * 1e9 / parameters.value(&ASIC_HZ);
    // The profile has both in cycles: the run shows that the data path takes as many.
    let exact = |value| Expected::derived(Origin::Published, ExpectedBound::Exact(value));
    outcome.check("core", "ns", exact(196.0), nanos(core));
    outcome.check("scheduler", "ns", exact(64.0), nanos(pass));
    let about = |value| Expected::derived(Origin::Published, ExpectedBound::Margin(value, 0.5));
    outcome.check("core as an ASIC", "ns", about(25.0), asic(core));
    outcome.check("scheduler as an ASIC", "ns", about(8.0), asic(pass));
    let ports = nanos(core) + parameters.value(&PHY_MAC_NS);
    let fitted = Expected::fitted(Origin::Published, ExpectedBound::Exact(1_300.0));
    outcome.check("port to port, with PHY and MAC", "ns", fitted, ports);
    let head = ["Part", "Cycles", "FPGA (ns)", "ASIC (ns)"].map(String::from).to_vec();
    let row = |name: &str, cycles: u64| {
        vec![name.into(), cycles.to_string(), number(nanos(cycles)), number(asic(cycles))]
    };
    let rows = vec![row("core", core), row("scheduler", pass)];
    outcome.table = DataTable { columns: head, rows };
    outcome.note(
        "Packets of 64 bytes on an empty card, through one NT of a cycle, and through two in two \
         regions: what they differ by, but for the NT, is a pass of the scheduler. PHY and MAC are no part \
         of the simulated card; 1,104 ns is what the paper's total leaves for them.",
    );
    Ok(outcome)
}

/// Through this many NTs, each in a separate region.
fn cycles(parameters: &Parameters, regions: usize) -> Result<u64> {
    let (card, options) = (parameters.card.clone(), parameters.options());
    let names = ["first", "second"];
    let nts = names.iter().map(|name| nt(name, SHORTEST, card.ingress)).collect::<Result<_>>()?;
    let chains: Vec<&[&str]> = names.chunks(1).collect();
    let mut testbed = Testbed::new(&Setup { card, options, nts, chains })?;
    let dag = testbed.chain("dag", &names[..regions], parameters.gbps(&REQUEST_GBPS))?;
    testbed.latency_alone(&dag)
}
