//! Labels and descriptions.

use std::collections::BTreeMap;

use snic_domain::{Description, InvalidLabels, Labels};

use crate::problem::DagFileProblem;
use crate::text;
use crate::yaml::{Value, YamlNode};

/// Labels by key, each problem at its place.
pub(super) fn labels(node: &YamlNode) -> Result<BTreeMap<String, String>, DagFileProblem> {
    let Value::Map(entries) = &node.value else {
        let problem = DagFileProblem::new(node.span.clone(), "labels must be a mapping");
        return Err(problem.help("write `labels: {app: web}`"));
    };
    let mut labels = BTreeMap::new();
    for (key, value) in entries {
        let one = BTreeMap::from([(key.text.clone(), text(value)?)]);
        let wrong = |error: InvalidLabels| {
            let span = if matches!(error, InvalidLabels::Key(_)) { &key.span } else { &value.span };
            DagFileProblem::new(span.clone(), error.to_string())
        };
        labels.extend(BTreeMap::from(Labels::new(one).map_err(wrong)?));
    }
    let wrong = |error: InvalidLabels| DagFileProblem::new(node.span.clone(), error.to_string());
    Labels::new(labels).map(BTreeMap::from).map_err(wrong)
}

pub(super) fn description(node: &YamlNode) -> Result<String, DagFileProblem> {
    let checked = Description::new(&text(node)?);
    checked
        .map(String::from)
        .map_err(|error| DagFileProblem::new(node.span.clone(), error.to_string()))
}
