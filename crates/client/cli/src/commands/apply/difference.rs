//! Differences between a resource and a file. Fields that the file does not have are as they should be.

use serde::Serialize;
use serde_json::Value;

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Its path, such as `quota.dags_max`.
    pub path: String,
    /// As it is.
    pub old: Value,
    /// As the file says it.
    pub new: Value,
}

/// The fields at these paths that differ.
pub fn differences(paths: &[String], old: &Value, new: &Value) -> Vec<Difference> {
    let at = |value: &Value, path: &str| {
        let mut parts = path.split('.');
        parts.try_fold(value, |value, part| value.get(part)).cloned().unwrap_or_default()
    };
    let differs = |path: &String| {
        let (old, new) = (at(old, path), at(new, path));
        (old != new).then(|| Difference { path: path.clone(), old, new })
    };
    paths.iter().filter_map(differs).collect()
}

/// For people: old and new values, one line each.
pub fn lines(all: &[Difference]) -> String {
    let line = |sign: char, path: &str, value: &Value| format!("  {sign} {path}: {value}\n");
    all.iter()
        .flat_map(|one| [line('-', &one.path, &one.old), line('+', &one.path, &one.new)])
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_file_says_is_compared() {
        let old =
            json!({"weight": 1, "quota": {"dags_max": 64, "rules_max": 8}, "labels": {"a": "b"}});
        let new = json!({"weight": 2, "quota": {"dags_max": 64, "rules_max": 0}, "labels": {}});
        let paths = ["weight", "quota.dags_max"].map(str::to_owned);
        let found = differences(&paths, &old, &new);
        assert_eq!(found, [Difference { path: "weight".into(), old: json!(1), new: json!(2) }]);
        assert_eq!(lines(&found), "  - weight: 1\n  + weight: 2\n");
        let labels = differences(&["labels".to_owned()], &old, &new);
        assert_eq!(labels[0].new, json!({}), "none is left");
    }
}
