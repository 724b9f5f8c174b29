//! Classification rules as text.

use snic_api::v1::{PacketMatch, Rule};

use super::Style;
use super::table::{properties, table};
use super::text::{self, id, labels};

/// Rules, one per row.
pub fn rules(rules: &[Rule], style: Style) -> String {
    let rows = rules.iter().map(|rule| {
        vec![
            id(&rule.name).to_owned(),
            rule.priority.to_string(),
            text::dag(&rule.dag),
            packet_match(rule.r#match.as_ref()),
        ]
    });
    table(style, &["RULE", "PRIORITY", "DAG", "MATCHES"], rows.collect())
}

pub fn rule(rule: &Rule, style: Style) -> String {
    properties(
        style,
        &[
            ("Name", rule.name.clone()),
            ("Priority", rule.priority.to_string()),
            ("DAG", rule.dag.clone()),
            ("Matches", packet_match(rule.r#match.as_ref())),
            ("Labels", labels(&rule.labels)),
            ("Description", rule.description.clone()),
            ("Etag", rule.etag.clone()),
            ("Created", text::time(rule.create_time.as_ref())),
        ],
    )
}

fn packet_match(found: Option<&PacketMatch>) -> String {
    let Some(found) = found else { return String::new() };
    let mut parts = Vec::new();
    let mut number = |key: &str, value: Option<u32>| {
        parts.extend(value.map(|value| format!("{key}={value}")));
    };
    number("vf", found.virtual_function);
    number("vni", found.vni);
    number("vlan", found.vlan);
    number("protocol", found.protocol);
    number("source-port", found.source_port);
    number("destination-port", found.destination_port);
    let prefixes = [("source", &found.source_prefix), ("destination", &found.destination_prefix)];
    let prefixes = prefixes.into_iter().filter(|(_, prefix)| !prefix.is_empty());
    parts.extend(prefixes.map(|(key, prefix)| format!("{key}={prefix}")));
    parts.join(" ")
}
