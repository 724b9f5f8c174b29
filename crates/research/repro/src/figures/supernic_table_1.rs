//! Table 1: what SuperNIC has and others lack, shown by running it.

use anyhow::{Context, Result};
use snic_card_sim::{Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{Bandwidth, DagSpec, FormPreference, Mapping, NtTypeId};

use super::supernic_11::dag_a;
use crate::outcome::{DataTable, Expected, ExpectedBound, FigureOutcome, Origin};
use crate::parameters::{
    FIG9_CYCLES, FIG9_NT_GBPS, PACKET_BYTES, Parameters, REQUEST_GBPS, TABLE1_FORK_GBPS,
    TABLE1_GREEDY_TIMES, TABLE1_MODEST_GBPS, TIME_US, WARM_UP_US, gbps,
};
use crate::testbed::{NtSequence, Setup, Testbed, nt};

/// The table's columns, and its rows. P: in part.
const COLUMNS: [&str; 7] = [
    "System",
    "Multi-tenancy",
    "Programmable",
    "Hardware acceleration",
    "Network-oriented",
    "DAG support",
    "Fairness",
];
const ROWS: [[&str; 7]; 6] = [
    ["ARM-based", "Y", "Y", "N", "Y", "N", "Y"],
    ["ASIC-based (PANIC)", "Y", "N", "Y", "Y", "P", "P"],
    ["pipeline-based", "Y", "P", "Y", "Y", "P", "N"],
    ["FPGA-based", "N", "Y", "Y", "Y", "N", "N"],
    ["non-NIC FPGA", "Y", "Y", "Y", "N", "N", "N"],
    ["SuperNIC (paper)", "Y", "Y", "Y", "Y", "Y", "Y"],
];
const CHAIN: NtSequence<'static> = &["nat", "firewall", "load-balancer"];

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let y = |bound| Expected::predicted(Origin::Published, bound);
    let (shared, victim, tenants) = tenants(parameters)?;
    outcome.check(
        "Multi-tenancy: tenants in one region",
        "",
        y(ExpectedBound::Exact(2.0)),
        tenants,
    );
    let added = programmed(parameters)?;
    let what = "Programmable: share of load served by an NT that was added at run time";
    outcome.check(what, "", y(ExpectedBound::Share(1.0, 0.02)), added);
    let line = ExpectedBound::Share(parameters.card.ingress.gbps_f64(), 0.02);
    let what = "Hardware acceleration, network-oriented: three NTs at line rate";
    outcome.check(what, "Gbit/s", y(line), shared);
    let stages = forked(parameters)?;
    let what = "DAG support: branches side by side in the mapping that serves";
    outcome.check(what, "", y(ExpectedBound::Exact(2.0)), stages);
    let what = "Fairness: share of its load that a tenant gets beside one who sends ten times his";
    outcome.check(what, "", y(ExpectedBound::Share(1.0, 0.02)), victim);
    let ours = if outcome.outside() == 0 { "Y" } else { "see above" };
    let mut rows: Vec<Vec<String>> =
        ROWS.iter().map(|row| row.map(String::from).to_vec()).collect();
    rows.push([vec!["this program".into()], vec![ours.to_string(); 6]].concat());
    outcome.table = DataTable { columns: COLUMNS.map(String::from).to_vec(), rows };
    outcome.note(
        "The paper's table has Y, N and P (in part); its last row is shown here by one run for each \
         column, on the simulated card.",
    );
    Ok(outcome)
}

fn bench(parameters: &Parameters, chains: Vec<NtSequence<'_>>) -> Result<Testbed> {
    let (card, nts) = (parameters.card.clone(), parameters.nt_types());
    Testbed::new(&Setup { card, options: parameters.options(), nts, chains })
}

fn spec(nts: NtSequence<'_>, bandwidth: Bandwidth) -> Result<DagSpec> {
    let nts = nts.iter().map(|nt| NtTypeId::new(nt)).collect::<Result<Vec<_>, _>>()?;
    Ok(DagSpec::chain(&nts, bandwidth))
}

/// Share of its traffic that is served, for each DAG.
fn served(
    testbed: &mut Testbed,
    parameters: &Parameters,
    load: &[(&DagView, Bandwidth)],
) -> Result<Vec<f64>> {
    let bytes = Sizes::Fixed(parameters.count(&PACKET_BYTES) as u32);
    for (dag, rate) in load {
        testbed.send(TrafficSource::of_dag(dag.uid, *rate, bytes.clone()))?;
    }
    // Queues at token buckets have to fill first.
    let (warm_up, time) = (parameters.micros(&WARM_UP_US) * 5, parameters.micros(&TIME_US));
    let measured = testbed.measure(warm_up, time)?;
    let gbps = |(dag, _): &(&DagView, Bandwidth)| {
        measured.dag(dag.uid.row()).map(|dag| dag.served.gbps_f64()).context("it serves")
    };
    load.iter().map(gbps).collect()
}

/// Bandwidth of the slowest NT of the chain.
fn slowest(parameters: &Parameters) -> Bandwidth {
    let types = parameters.nt_types();
    let nts = types.iter().filter(|nt| CHAIN.contains(&nt.id.as_str()));
    nts.map(|nt| nt.bandwidth_max).min().unwrap_or(parameters.card.ingress)
}

/// Two tenants in one region: the throughput of one alone, the served share of the modest one's
/// load beside the greedy one, and how many tenants share the region.
fn tenants(parameters: &Parameters) -> Result<(f64, f64, f64)> {
    let mut alone = bench(parameters, vec![CHAIN])?;
    let full = parameters.card.ingress;
    let whole = alone.dag("lab", "whole", spec(CHAIN, full.min(slowest(parameters)))?)?;
    let line = served(&mut alone, parameters, &[(&whole, full)])?[0];
    let mut testbed = bench(parameters, vec![CHAIN])?;
    testbed.tenant("other", 1)?;
    let rate = parameters.gbps(&TABLE1_MODEST_GBPS);
    let modest = testbed.dag("lab", "modest", spec(CHAIN, rate)?)?;
    let greedy = testbed.dag("other", "greedy", spec(CHAIN, rate)?)?;
    let regions = |dag: &DagView| {
        let instances = dag.mapping.iter().flat_map(Mapping::instances);
        instances.map(|instance| instance.region).collect::<Vec<_>>()
    };
    let same = if regions(&modest) == regions(&greedy) { 2.0 } else { 1.0 };
    let burst = gbps(rate.gbps_f64() * parameters.value(&TABLE1_GREEDY_TIMES));
    let load = [(&modest, rate), (&greedy, burst)];
    let share = served(&mut testbed, parameters, &load)?[0] / rate.gbps_f64();
    Ok((line, share, same))
}

/// A DAG whose region is loaded while another serves: the share of its load that is served.
fn programmed(parameters: &Parameters) -> Result<f64> {
    let mut testbed = bench(parameters, vec![CHAIN, &["kv-cache"]])?;
    let rate = parameters.gbps(&TABLE1_MODEST_GBPS);
    let first = testbed.dag("lab", "first", spec(CHAIN, rate)?)?;
    testbed.send(TrafficSource::of_dag(first.uid, rate, Sizes::imix()))?;
    let late = testbed.dag("lab", "late", spec(&["kv-cache"], rate)?)?;
    Ok(served(&mut testbed, parameters, &[(&late, rate)])?[0] / rate.gbps_f64())
}

/// A DAG with a fork: the most branches of a stage, if packets come out.
fn forked(parameters: &Parameters) -> Result<f64> {
    let (rate, cycles) = (parameters.gbps(&FIG9_NT_GBPS), parameters.count(&FIG9_CYCLES));
    let names = ["entry", "nt1", "nt2", "nt3", "nt4"];
    let nts = names.iter().map(|name| nt(name, cycles, rate)).collect::<Result<Vec<_>>>()?;
    let chains: Vec<NtSequence<'_>> = vec![&["entry"], &["nt1", "nt2"], &["nt3"], &["nt4"]];
    let (card, options) = (parameters.card.clone(), parameters.options());
    let mut testbed = Testbed::new(&Setup { card, options, nts, chains })?;
    let dag = testbed.dag(
        "lab",
        "fork",
        dag_a(FormPreference::Parallel, parameters.gbps(&REQUEST_GBPS))?,
    )?;
    let load = parameters.gbps(&TABLE1_FORK_GBPS);
    let out = served(&mut testbed, parameters, &[(&dag, load)])?[0];
    let stages = dag.mapping.iter().flat_map(|mapping| &mapping.stages);
    let branches = stages.map(|stage| stage.branches.len()).max().unwrap_or(0);
    Ok(if out > load.gbps_f64() * 0.98 { branches as f64 } else { 0.0 })
}
