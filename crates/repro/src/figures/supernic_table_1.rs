//! Table 1: what SuperNIC has and others lack, shown by running it.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{Bandwidth, DagSpec, FormPreference, Mapping, NtTypeId};

use super::supernic_11::dag_a;
use crate::lab::{Chain, Lab, Setup, nt};
use crate::outcome::{Bound, Origin, Outcome, Table};
use crate::parameters::Parameters;

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
const CHAIN: Chain<'static> = &["nat", "firewall", "load-balancer"];

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let y = |bound| (Origin::Published, bound);
    let (shared, victim, tenants) = tenants(parameters)?;
    outcome.check("Multi-tenancy: tenants in one region", "", y(Bound::Exact(2.0)), tenants);
    let added = programmed(parameters)?;
    let what = "Programmable: share of load served by an NT that was added at run time";
    outcome.check(what, "", y(Bound::Share(1.0, 0.02)), added);
    let line = Bound::Share(parameters.card.ingress.gbps_f64(), 0.02);
    let what = "Hardware acceleration, network-oriented: three NTs at line rate";
    outcome.check(what, "Gbit/s", y(line), shared);
    let stages = forked(parameters)?;
    let what = "DAG support: branches side by side in the mapping that serves";
    outcome.check(what, "", y(Bound::Exact(2.0)), stages);
    let what = "Fairness: share of its load that a tenant gets beside one who sends ten times his";
    outcome.check(what, "", y(Bound::Share(1.0, 0.02)), victim);
    let ours = if outcome.outside() == 0 { "Y" } else { "see above" };
    let mut rows: Vec<Vec<String>> =
        ROWS.iter().map(|row| row.map(String::from).to_vec()).collect();
    rows.push([vec!["this program".into()], vec![ours.to_string(); 6]].concat());
    outcome.table = Table { columns: COLUMNS.map(String::from).to_vec(), rows };
    outcome.note(
        "The paper's table has Y, N and P (in part); its last row is shown here by one run for each \
         column, on the simulated card.",
    );
    Ok(outcome)
}

fn bench(parameters: &Parameters, chains: Vec<Chain<'_>>) -> Result<Lab> {
    let (card, nts) = (parameters.card.clone(), parameters.catalogue.nt_types.clone());
    Lab::new(&Setup { card, options: Options::default(), nts, chains })
}

fn spec(nts: Chain<'_>, gbps: u64) -> Result<DagSpec> {
    let nts = nts.iter().map(|nt| NtTypeId::new(nt)).collect::<Result<Vec<_>, _>>()?;
    Ok(DagSpec::chain(&nts, Bandwidth::from_gbps(gbps)))
}

fn served(lab: &mut Lab, load: &[(&DagView, u64)]) -> Result<Vec<f64>> {
    for (dag, gbps) in load {
        let rate = Bandwidth::from_gbps(*gbps);
        lab.send(TrafficSource::of_dag(dag.uid, rate, Sizes::Fixed(1_500)))?;
    }
    let measured = lab.measure(Duration::from_millis(1), Duration::from_millis(2))?;
    let gbps = |(dag, _): &(&DagView, u64)| {
        measured.dag(dag.uid.row()).map(|dag| dag.served.gbps_f64()).context("it serves")
    };
    load.iter().map(gbps).collect()
}

/// Two tenants in one region: what one gets alone, what share of his load the modest one gets beside
/// the greedy one, how many share the region.
fn tenants(parameters: &Parameters) -> Result<(f64, f64, f64)> {
    let mut alone = bench(parameters, vec![CHAIN])?;
    let whole = alone.dag("lab", "whole", spec(CHAIN, 100)?)?;
    let line = served(&mut alone, &[(&whole, 100)])?[0];
    let mut lab = bench(parameters, vec![CHAIN])?;
    lab.tenant("other", 1)?;
    let modest = lab.dag("lab", "modest", spec(CHAIN, 8)?)?;
    let greedy = lab.dag("other", "greedy", spec(CHAIN, 8)?)?;
    let regions = |dag: &DagView| {
        let instances = dag.mapping.iter().flat_map(Mapping::instances);
        instances.map(|instance| instance.region).collect::<Vec<_>>()
    };
    let same = if regions(&modest) == regions(&greedy) { 2.0 } else { 1.0 };
    let share = served(&mut lab, &[(&modest, 8), (&greedy, 80)])?[0] / 8.0;
    Ok((line, share, same))
}

/// A DAG whose region is loaded while another serves: what share of its load it serves.
fn programmed(parameters: &Parameters) -> Result<f64> {
    let mut lab = bench(parameters, vec![CHAIN, &["kv-cache"]])?;
    let first = lab.dag("lab", "first", spec(CHAIN, 10)?)?;
    lab.send(TrafficSource::of_dag(first.uid, Bandwidth::from_gbps(10), Sizes::imix()))?;
    let late = lab.dag("lab", "late", spec(&["kv-cache"], 10)?)?;
    Ok(served(&mut lab, &[(&late, 10)])?[0] / 10.0)
}

/// A DAG with a fork: the most branches of a stage, if packets come out.
fn forked(parameters: &Parameters) -> Result<f64> {
    let rate = Bandwidth::from_gbps(64);
    let names = ["entry", "nt1", "nt2", "nt3", "nt4"];
    let nts = names.iter().map(|name| nt(name, 50, rate)).collect::<Result<Vec<_>>>()?;
    let chains: Vec<Chain<'_>> = vec![&["entry"], &["nt1", "nt2"], &["nt3"], &["nt4"]];
    let (card, options) = (parameters.card.clone(), Options::default());
    let mut lab = Lab::new(&Setup { card, options, nts, chains })?;
    let dag = lab.dag("lab", "fork", dag_a(FormPreference::Parallel)?)?;
    let out = served(&mut lab, &[(&dag, 5)])?[0];
    let stages = dag.mapping.iter().flat_map(|mapping| &mapping.stages);
    let branches = stages.map(|stage| stage.branches.len()).max().unwrap_or(0);
    Ok(if out > 4.9 { branches as f64 } else { 0.0 })
}
