//! Where in a fleet a DAG may go. A file may name hosts by their ids alone.

use std::collections::BTreeSet;

use snic_api::v1::Placement;
use snic_api::v1::placement::Order;

use super::affinity::dag_name;
use super::problem::DagFileProblem;
use super::yaml::YamlNode;
use super::{items, keyed, notes, text};

/// As servers show it: lists in order, each value once, and nothing for what is so by default.
/// `{zones: [z1], racks: [r1], hosts: [h1], apart_from_hosts: [h2], card_models: [m], host_labels: {a: b}, order: spread,
/// hosts_without_dags: [d], racks_without_dags: [e]}`.
pub(crate) fn placement(node: &YamlNode) -> Result<Option<Placement>, DagFileProblem> {
    if node.is_null() {
        return Ok(None); // Output has it where none is set.
    }
    let keys: [&[&str]; 9] = [
        &["zones"],
        &["racks"],
        &["hosts"],
        &["apart_from_hosts"],
        &["card_models"],
        &["host_labels"],
        &["order"],
        &["hosts_without_dags"],
        &["racks_without_dags"],
    ];
    let [
        zones,
        racks,
        hosts,
        apart_from_hosts,
        card_models,
        host_labels,
        order,
        hosts_without_dags,
        racks_without_dags,
    ] = keyed(node, keys)?;
    let placement = Placement {
        zones: list(zones, "zones")?,
        racks: list(racks, "racks")?,
        hosts: host_names(list(hosts, "hosts")?),
        apart_from_hosts: host_names(list(apart_from_hosts, "apart_from_hosts")?),
        card_models: list(card_models, "card_models")?,
        host_labels: host_labels.map(notes::labels).transpose()?.unwrap_or_default(),
        order: order.map(order_of).transpose()?.unwrap_or_default().into(),
        hosts_without_dags: dag_names(hosts_without_dags, "hosts_without_dags")?,
        racks_without_dags: dag_names(racks_without_dags, "racks_without_dags")?,
    };
    Ok(Some(placement).filter(|of| *of != Placement::default()))
}

fn list(node: Option<&YamlNode>, what: &str) -> Result<Vec<String>, DagFileProblem> {
    let Some(node) = node else { return Ok(Vec::new()) };
    let values: Result<BTreeSet<String>, _> = items(node, what)?.iter().map(text).collect();
    Ok(values?.into_iter().collect())
}

fn dag_names(node: Option<&YamlNode>, what: &str) -> Result<Vec<String>, DagFileProblem> {
    let Some(node) = node else { return Ok(Vec::new()) };
    let names: Result<BTreeSet<String>, _> = items(node, what)?.iter().map(dag_name).collect();
    Ok(names?.into_iter().collect())
}

fn host_names(ids: Vec<String>) -> Vec<String> {
    let name = |id: String| if id.starts_with("hosts/") { id } else { format!("hosts/{id}") };
    let names: BTreeSet<String> = ids.into_iter().map(name).collect();
    names.into_iter().collect()
}

/// The word of a file, or that of output.
fn order_of(node: &YamlNode) -> Result<Order, DagFileProblem> {
    let word = text(node)?;
    let name = format!("ORDER_{}", word.to_uppercase());
    let order = Order::from_str_name(&name).or_else(|| Order::from_str_name(&word));
    let order = order.map(|of| if of == Order::Pack { Order::Unspecified } else { of });
    order.ok_or_else(|| {
        let problem = DagFileProblem::new(node.span.clone(), format!("unknown order {word:?}"));
        problem.help("write pack, spread, headroom or loaded")
    })
}
