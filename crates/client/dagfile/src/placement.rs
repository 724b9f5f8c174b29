//! Where in a fleet a DAG may go. A file may name hosts by their ids alone.

use snic_api::v1::Placement;
use snic_api::v1::placement::Order;

use super::problem::DagFileProblem;
use super::yaml::YamlNode;
use super::{items, keyed, notes, text};

/// `{zones: [z1], racks: [r1], hosts: [h1], apart_from_hosts: [h2], card_models: [m], host_labels: {a: b}, order: spread}`.
pub(crate) fn placement(node: &YamlNode) -> Result<Option<Placement>, DagFileProblem> {
    if node.is_null() {
        return Ok(None); // Output has it where none is set.
    }
    let keys: [&[&str]; 7] = [
        &["zones"],
        &["racks"],
        &["hosts"],
        &["apart_from_hosts"],
        &["card_models"],
        &["host_labels"],
        &["order"],
    ];
    let [zones, racks, hosts, apart_from_hosts, card_models, host_labels, order] =
        keyed(node, keys)?;
    Ok(Some(Placement {
        zones: list(zones, "zones")?,
        racks: list(racks, "racks")?,
        hosts: list(hosts, "hosts")?.into_iter().map(host_name).collect(),
        apart_from_hosts: list(apart_from_hosts, "apart_from_hosts")?
            .into_iter()
            .map(host_name)
            .collect(),
        card_models: list(card_models, "card_models")?,
        host_labels: host_labels.map(notes::labels).transpose()?.unwrap_or_default(),
        order: order.map(order_of).transpose()?.unwrap_or_default().into(),
    }))
}

fn list(node: Option<&YamlNode>, what: &str) -> Result<Vec<String>, DagFileProblem> {
    match node {
        Some(node) => items(node, what)?.iter().map(text).collect(),
        None => Ok(Vec::new()),
    }
}

fn host_name(text: String) -> String {
    if text.starts_with("hosts/") { text } else { format!("hosts/{text}") }
}

/// The word of a file, or that of output.
fn order_of(node: &YamlNode) -> Result<Order, DagFileProblem> {
    let word = text(node)?;
    let name = format!("ORDER_{}", word.to_uppercase());
    Order::from_str_name(&name).or_else(|| Order::from_str_name(&word)).ok_or_else(|| {
        let problem = DagFileProblem::new(node.span.clone(), format!("unknown order {word:?}"));
        problem.help("write pack, spread, headroom or loaded")
    })
}
