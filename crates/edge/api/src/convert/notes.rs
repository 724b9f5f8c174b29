//! Labels and descriptions.

use std::collections::BTreeMap;

use snic_domain::{Description, Labels, Notes, NotesPatch};

use super::mask::Mask;
use super::{FieldProblem, Problems};

/// The name of a field of a resource's field; of the request itself where that is empty.
fn within(of: &str, field: &str) -> String {
    match of {
        "" => field.to_owned(),
        of => format!("{of}.{field}"),
    }
}

/// Converts the labels of a resource; `of` is the resource's field, such as `dag`.
pub(super) fn labels(
    problems: &mut Problems,
    of: &str,
    labels: &BTreeMap<String, String>,
) -> Option<Labels> {
    let checked = Labels::new(labels.clone());
    problems.keep(checked.map_err(|error| FieldProblem::invalid(within(of, "labels"), error)))
}

fn description(problems: &mut Problems, of: &str, text: &str) -> Option<Description> {
    let checked = Description::new(text);
    let invalid = |error| FieldProblem::invalid(within(of, "description"), error);
    problems.keep(checked.map_err(invalid))
}

/// Converts labels and description of a new resource.
pub(super) fn notes(
    problems: &mut Problems,
    of: &str,
    map: &BTreeMap<String, String>,
    text: &str,
) -> Notes {
    Notes {
        labels: labels(problems, of, map).unwrap_or_default(),
        description: description(problems, of, text).unwrap_or_default(),
    }
}

/// Converts an update of labels and description.
pub(super) fn patch(
    problems: &mut Problems,
    of: &str,
    mask: &Mask,
    (map, text): (&BTreeMap<String, String>, &str),
) -> NotesPatch {
    let sets_labels = mask.has("labels", !map.is_empty());
    let sets_description = mask.has("description", !text.is_empty());
    NotesPatch {
        labels: sets_labels.then(|| labels(problems, of, map)).flatten(),
        description: sets_description.then(|| description(problems, of, text)).flatten(),
    }
}
