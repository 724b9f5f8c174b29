//! Fig. 10: DAGs of which one runs already; the others use its NTs and skip the rest.

use anyhow::{Context, Result};
use snic_domain::{CardId, Mapping};

use crate::outcome::{DataTable, Expected, ExpectedBound, FigureOutcome, Origin};
use crate::parameters::{FIG10_REQUEST_GBPS, FIG14_BACKGROUND_GBPS, Parameters};
use crate::testbed::{NtSequence, Setup, Testbed};

const DAG_D: NtSequence<'static> =
    &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
/// The DAGs that arrive after DAG-D, as in `bitstreams/dags.toml`.
const LATER: [(&str, NtSequence<'static>); 3] = [
    ("dag-a", &["firewall", "aes"]),
    ("dag-b", &["nat", "load-balancer"]),
    ("dag-c", &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n"]),
];

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let (card, options) = (parameters.card.clone(), parameters.options());
    let chains = vec![DAG_D, LATER[0].1, LATER[1].1, LATER[2].1];
    let setup = Setup { card, options, nts: parameters.nt_types(), chains };
    let mut testbed = Testbed::new(&setup)?;
    let first = testbed.chain("dag-d", DAG_D, parameters.gbps(&FIG14_BACKGROUND_GBPS))?;
    let own = first.mapping.as_ref().context("it is mapped")?.instances().next();
    let own = own.context("it has an instance")?.region;
    let loads = |testbed: &Testbed| -> Result<u64> {
        let card = testbed.controller.card_view(&CardId::new("card0")?).context("a card")?;
        Ok(card.loads)
    };
    let before = loads(&testbed)?;
    let head = ["DAG", "NTs", "Skips"];
    outcome.table = DataTable { columns: head.map(String::from).to_vec(), rows: Vec::new() };
    for (name, nts) in LATER {
        let dag = testbed.chain(name, nts, parameters.gbps(&FIG10_REQUEST_GBPS))?;
        let instances: Vec<_> = dag.mapping.iter().flat_map(Mapping::instances).collect();
        let there = instances.iter().filter(|instance| instance.region == own).count();
        let all =
            Expected::predicted(Origin::Published, ExpectedBound::Exact(instances.len() as f64));
        outcome.check(format!("{name}: instances in DAG-D's region"), "", all, there as f64);
        let skips: Vec<&str> = DAG_D.iter().copied().filter(|nt| !nts.contains(nt)).collect();
        outcome.table.rows.push(vec![name.into(), nts.join(" → "), skips.join(", ")]);
    }
    let none = Expected::predicted(Origin::Published, ExpectedBound::Exact(0.0));
    let more = loads(&testbed)? - before;
    outcome.check("regions loaded for DAG-A, B and C", "loads", none, more as f64);
    outcome.note(
        "DAG-D runs, then DAG-A, B and C come, each with a bitstream of its own that need not be \
         loaded. The text names DAG-A's NTs and how many DAG-D has; the others and DAG-B are assumed.",
    );
    Ok(outcome)
}
