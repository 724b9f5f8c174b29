//! Why a DAG is where it is, in words. Tenants are told counts and kinds; hosts and what these said are for operators.

use snic_api::v1;
use snic_domain::Caller;
use snic_fleet::placement::{CardPolicy, Constraint};
use snic_fleet::protocol::FleetExplanation;

use crate::wire;

pub(crate) fn to_wire(of: &FleetExplanation, reader: &Caller) -> v1::Explanation {
    v1::Explanation {
        dag: Some(wire::dag(&of.dag, reader)),
        lines: lines(of, matches!(reader, Caller::Operator(_))),
        ..v1::Explanation::default()
    }
}

fn lines(of: &FleetExplanation, is_operator: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some((model, zone, rack)), Some(card)) = (&of.at, &of.dag.card) {
        let at = if is_operator { format!(" on {card}, rack {rack}") } else { String::new() };
        let regions = match of.regions {
            1 => "1 region".to_owned(),
            more => format!("{more} regions"),
        };
        lines.push(format!("placed on a card of model {model} in zone {zone}{at}, in {regions}"));
        lines.push(format!("of the cards with room, {} was taken", policy(of.dag.policy)));
    }
    if let Some(why) = &of.dag.unplaced {
        lines.push(format!("not placed: {}", wire::unplaced(why, is_operator)));
    }
    if let Some(card) = &of.dag.served_by {
        let by = if is_operator { format!(" by {card}") } else { String::new() };
        lines.push(format!("served{by} as before until its new place serves it"));
    }
    match (of.refusals.as_slice(), is_operator) {
        ([], _) => {}
        (refusals, true) => {
            let refused = |(card, why): &(_, String)| format!("{card} refused it: {why}");
            lines.extend(refusals.iter().map(refused));
        }
        (refusals, false) => lines.push(format!("cards that refused it: {}", refusals.len())),
    }
    let all: usize = of.hosts.values().sum();
    let counts = of.hosts.iter().map(|(constraint, hosts)| match constraint {
        Constraint::NotTried => format!("{hosts} with nothing known against them"),
        other => format!("{hosts} {other}"),
    });
    let counts: Vec<String> = counts.collect();
    lines.push(format!("if it were placed now, of {all} hosts: {}", counts.join(", ")));
    lines
}

/// Name of the order of the cards.
const fn policy(of: CardPolicy) -> &'static str {
    match of {
        CardPolicy::Pack => "the one of whose ingress the largest part is promised already",
        CardPolicy::Spread => "one on a host with the fewest DAGs of the tenant",
        CardPolicy::Headroom => "the one with the most bandwidth left",
        CardPolicy::Loaded => "one that has the chains loaded already",
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{Bandwidth, CardId, CardModel, DagSpec};
    use snic_fleet::protocol::FleetDag;
    use snic_fleet::records::Unplaced;
    use snic_fleet::{FleetCard, HostId, RackId, ZoneId};

    use super::*;

    fn placed() -> FleetExplanation {
        let host = HostId::new("h1").expect("a test name");
        let card = FleetCard { host, card: CardId::new("card7").expect("a test id") };
        let (zone, rack) = (ZoneId::new("z1"), RackId::new("r9"));
        let (zone, rack) = (zone.expect("a test name"), rack.expect("a test name"));
        FleetExplanation {
            dag: FleetDag {
                name: snic_api::convert::name::dag("", "tenants/acme/dags/web").expect("a name"),
                spec: DagSpec::chain(&[], Bandwidth::ZERO),
                constraints: Default::default(),
                defaults: Default::default(),
                policy: CardPolicy::Pack,
                card: Some(card.clone()),
                serial: Some(7),
                unplaced: None,
                served_by: Some(card.clone()),
                is_ready: true,
                served_generation: 1,
                generation: 1,
                meta: Default::default(),
            },
            at: Some((CardModel::new("sim-16").expect("a test id"), zone, rack)),
            regions: 1,
            hosts: [(Constraint::Zone, 3), (Constraint::NotTried, 2)].into(),
            refusals: vec![(card, "h1's region 3 is faulty".to_owned())],
        }
    }

    /// Whatever happened to a DAG, its tenant is told no host, no card, and nothing that a host said.
    #[test]
    fn a_tenant_is_told_counts_and_no_hosts() {
        let waits = Unplaced::Waits("it has lost its place on h1/card7".to_owned());
        let failed = Unplaced::Failed(vec!["h1/card7: no".to_owned()]);
        for unplaced in [None, Some(waits), Some(failed)] {
            let mut of = placed();
            of.dag.unplaced = unplaced;
            let told = lines(&of, false).join("\n");
            for secret in ["h1", "card7", "r9", "faulty"] {
                assert!(!told.contains(secret), "{secret}: {told}");
            }
            assert!(told.contains("of 5 hosts: 3 in another zone, 2 with nothing known"), "{told}");
            let shown = lines(&of, true).join("\n");
            assert!(shown.contains("h1") && shown.contains("r9"), "{shown}");
        }
    }
}
