//! Views of a DAG's configurations, of the packets that it is for, and of its traffic.

use snic_api::convert::{self, object};
use snic_api::render::cut;
use snic_api::v1::{CardAffinity, Dag, DagTraffic, FlowRules, NtDrops, Placement};
use snic_api::words::EnumWord as _;

use super::Style;
use super::table::table;
use super::text::{id, rate};

/// Characters of a configuration that a table shows: a line of a terminal, with a task's id in front.
const CONFIGURATION_CHARS_MAX: usize = 60;

/// The bytes of the packets that the bandwidth is promised for.
pub(super) fn packet_sizes(dag: &Dag) -> String {
    match &dag.packet_sizes[..] {
        [] => String::new(),
        sizes => format!("{} B", convert::dag::packet_sizes(sizes)).replace("imix B", "imix"),
    }
}

/// The beginning of what each task is told; JSON and YAML have all of it.
pub(super) fn configurations(dag: &Dag, style: Style) -> String {
    let told = dag.nodes.iter().filter_map(|node| Some((node, node.configuration.as_ref()?)));
    let rows: Vec<_> = told
        .map(|(node, told)| {
            let json = object::to_json(told).map(|json| json.to_string()).unwrap_or_default();
            vec![node.id.clone(), cut(&json, CONFIGURATION_CHARS_MAX)]
        })
        .collect();
    if rows.is_empty() { String::new() } else { table(style, &["TASK", "CONFIGURATION"], rows) }
}

/// Traffic of a DAG, in a line.
pub(super) fn traffic(traffic: &DagTraffic) -> String {
    let DagTraffic { offered_bps, served_bps, packets_in, packets_out, .. } = traffic;
    let (offered, served) = (rate(*offered_bps), rate(*served_bps));
    format!("{offered} offered, {served} served; {packets_in} packets in, {packets_out} out")
}

/// Drops by cause.
pub(super) fn drops(traffic: &DagTraffic) -> String {
    let drops = traffic.drops.iter().map(|drops| format!("{} {}", drops.packets, drops.cause));
    drops.collect::<Vec<_>>().join(", ")
}

/// Why its tasks dropped packets.
pub(super) fn task_drops(traffic: &DagTraffic) -> String {
    nt_drops(&traffic.nt_drops)
}

/// Flows that are treated by rules; nothing, where there are none.
pub(super) fn flow_rules(traffic: &DagTraffic) -> String {
    let Some(rules) = &traffic.flow_rules else { return String::new() };
    let FlowRules { flows, fast_flows, evicted_flows } = rules;
    let mut text = format!("{flows} flows");
    if *fast_flows > 0 {
        text += &format!(", {fast_flows} by the fast path");
    }
    if *evicted_flows > 0 {
        text += &format!(", {evicted_flows} lost their place");
    }
    text
}

/// Why tasks dropped packets, by type.
pub(super) fn nt_drops(drops: &[NtDrops]) -> String {
    let reasons = |of: &[NtDrops]| {
        let all = of.iter().map(|drops| format!("{} {}", drops.packets, drops.reason));
        all.collect::<Vec<_>>().join(", ")
    };
    let types = drops.chunk_by(|one, next| one.nt_type == next.nt_type);
    let types = types.map(|of| format!("{}: {}", id(&of[0].nt_type), reasons(of)));
    types.collect::<Vec<_>>().join("; ")
}

/// Where in a fleet a DAG may go, such as `zones z1, z2; spread`.
pub(super) fn placement(of: &Placement) -> String {
    let hosts = |of: &[String]| of.iter().map(|host| id(host).to_owned()).collect::<Vec<_>>();
    let dags = hosts;
    let labels = of.host_labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let lists = [
        ("zones", of.zones.clone()),
        ("racks", of.racks.clone()),
        ("hosts", hosts(&of.hosts)),
        ("apart from", hosts(&of.apart_from_hosts)),
        ("cards", of.card_models.clone()),
        ("labels", labels),
        ("hosts without", dags(&of.hosts_without_dags)),
        ("racks without", dags(&of.racks_without_dags)),
    ];
    let lists = lists.into_iter().filter(|(_, of)| !of.is_empty());
    let mut parts: Vec<String> =
        lists.map(|(what, of)| format!("{what} {}", of.join(", "))).collect();
    parts.extend((of.order != 0).then(|| of.order().word().to_owned()));
    parts.join("; ")
}

/// DAGs that it shares a card with, and those that it does not.
pub(super) fn affinity(affinity: &CardAffinity) -> String {
    let names = |dags: &[String]| dags.iter().map(|name| id(name)).collect::<Vec<_>>().join(", ");
    let parts = [("with", &affinity.together_with), ("apart from", &affinity.apart_from)];
    let named = parts.iter().filter(|(_, dags)| !dags.is_empty());
    let text: Vec<String> = named.map(|(word, dags)| format!("{word} {}", names(dags))).collect();
    let preferred = if affinity.preferred { " (preferred)" } else { "" };
    text.join("; ") + preferred
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;
    use snic_api::v1::PacketDrops;
    use snic_api::v1::dag::Node;

    use super::*;

    #[test]
    fn a_long_configuration_is_cut_and_a_missing_one_left_out() {
        let style =
            Style { is_colour: false, width: crate::output::WIDTH, now: SystemTime::UNIX_EPOCH };
        let node = |id: &str, told| Node { id: id.into(), configuration: told, ..Node::default() };
        let told = object::of_json(&json!({"flows_max": 4_096, "rules": vec!["x"; 100]}));
        let nodes = vec![node("nat", None), node("fw", Some(told))];
        let shown = configurations(&Dag { nodes, ..Dag::default() }, style);
        assert!(shown.contains(r#"fw    {"flows_max":4096,"rules":["x","x""#), "{shown}");
        assert!(!shown.contains("nat") && shown.lines().all(|line| line.chars().count() <= 80));
        assert_eq!(configurations(&Dag::default(), style), "");
    }

    #[test]
    fn a_placement_names_dags_by_their_ids() {
        let of = Placement {
            zones: vec!["z1".into()],
            hosts_without_dags: vec!["tenants/acme/dags/a".into(), "tenants/acme/dags/b".into()],
            racks_without_dags: vec!["tenants/acme/dags/c".into()],
            ..Placement::default()
        };
        assert_eq!(placement(&of), "zones z1; hosts without a, b; racks without c");
    }

    #[test]
    fn drops_of_tasks_are_listed_by_type_and_reason() {
        let of = |nt_type: &str, reason: &str, packets| NtDrops {
            nt_type: format!("ntTypes/{nt_type}"),
            reason: reason.into(),
            packets,
        };
        let drops = [
            of("firewall", "rule", 12),
            of("firewall", "no_connection", 3),
            of("nat", "no_mapping", 1),
        ];
        assert_eq!(nt_drops(&drops), "firewall: 12 rule, 3 no_connection; nat: 1 no_mapping");
        assert_eq!(nt_drops(&[]), "");
    }

    #[test]
    fn flows_say_what_there_is_of_them() {
        let said = |flows, fast_flows, evicted_flows| {
            let rules = FlowRules { flows, fast_flows, evicted_flows };
            flow_rules(&DagTraffic { flow_rules: Some(rules), ..DagTraffic::default() })
        };
        assert_eq!(flow_rules(&DagTraffic::default()), "");
        assert_eq!(said(3, 0, 0), "3 flows");
        assert_eq!(said(3, 2, 9), "3 flows, 2 by the fast path, 9 lost their place");
    }

    #[test]
    fn drops_are_listed_by_cause() {
        let of = |cause: &str, packets| PacketDrops { cause: cause.into(), packets };
        let drops_of = vec![of("BY_NT", 3), of("RATE_LIMITED", 1)];
        let seen = DagTraffic { drops: drops_of, ..DagTraffic::default() };
        assert_eq!(drops(&seen), "3 BY_NT, 1 RATE_LIMITED");
    }
}
