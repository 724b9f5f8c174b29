//! DAGs that a DAG shares a card with. A file may name DAGs of its own tenant by their ids alone.

use snic_api::v1::{CardAffinity, Dag};
use snic_domain::{DagId, TenantId};

use super::problem::DagFileProblem;
use super::yaml::YamlNode;
use super::{DagFile, items, keyed, text};

impl DagFile {
    /// The resource of a DAG of `tenant` (`tenants/{tenant}`): other DAGs have their full names.
    pub fn resource_of(&self, tenant: &str) -> Dag {
        let mut dag = self.dag.clone();
        if let Some(affinity) = &mut dag.card_affinity {
            full_names(tenant, &mut affinity.together_with);
            full_names(tenant, &mut affinity.apart_from);
        }
        if let Some(placement) = &mut dag.placement {
            // Servers show them in order, which full and short names do not have together.
            for names in [&mut placement.hosts_without_dags, &mut placement.racks_without_dags] {
                full_names(tenant, names);
                names.sort_unstable();
                names.dedup();
            }
        }
        dag
    }
}

fn full_names(tenant: &str, names: &mut [String]) {
    for name in names.iter_mut().filter(|name| !name.contains('/')) {
        *name = format!("{tenant}/dags/{name}");
    }
}

/// `{with: [a], apart_from: [b], preferred: true}`.
pub(crate) fn affinity(node: &YamlNode) -> Result<Option<CardAffinity>, DagFileProblem> {
    if node.is_null() {
        return Ok(None); // Output has it where none is set.
    }
    let [with, apart_from, preferred] =
        keyed(node, [&["with", "together_with"], &["apart_from"], &["preferred"]])?;
    let list = |node: Option<&YamlNode>, what: &str| match node {
        Some(node) => items(node, what)?.iter().map(dag_name).collect(),
        None => Ok(Vec::new()),
    };
    let preferred = preferred.map_or(Ok(false), yes_or_no)?;
    let (together_with, apart_from) = (list(with, "with")?, list(apart_from, "apart_from")?);
    Ok(Some(CardAffinity { together_with, apart_from, preferred }))
}

pub(crate) fn yes_or_no(node: &YamlNode) -> Result<bool, DagFileProblem> {
    match text(node)?.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(DagFileProblem::new(node.span.clone(), "expected true or false")),
    }
}

/// The id or the full name of a DAG.
pub(crate) fn dag_name(item: &YamlNode) -> Result<String, DagFileProblem> {
    let name = text(item)?;
    let problem = |error: snic_domain::InvalidId| {
        DagFileProblem::new(item.span.clone(), error.to_string())
            .help("write the id of a DAG of the same tenant, or its full name")
    };
    let id = match name.strip_prefix("tenants/").and_then(|rest| rest.split_once("/dags/")) {
        Some((tenant, id)) => {
            TenantId::new(tenant).map_err(problem)?;
            id
        }
        None => &name,
    };
    DagId::new(id).map_err(problem)?;
    Ok(name)
}
