//! Paths of problems: where a file was written by a program, its reader knows fields and not lines.

use crate::InvalidFile;
use crate::yaml::{self, Value, YamlNode};

impl InvalidFile {
    /// Path of the innermost field that contains the problem, such as `nodes[1].type`; empty where that is the whole file, or
    /// where the file is no YAML.
    pub fn field(&self) -> String {
        let mut path = String::new();
        if let Ok(root) = yaml::parse(self.text()) {
            descend(&root, self.problem().span.start, &mut path);
        }
        path
    }
}

/// Adds the part of the path from a node to the innermost one around a byte of the text.
fn descend(node: &YamlNode, at: usize, path: &mut String) {
    match &node.value {
        Value::Scalar(_) => {}
        Value::List(items) => {
            let mut all = items.iter().enumerate();
            if let Some((number, item)) = all.find(|(_, item)| item.span.contains(&at)) {
                path.push_str(&format!("[{number}]"));
                descend(item, at, path);
            }
        }
        Value::Map(entries) => {
            let holds = |key: &yaml::YamlKey, value: &YamlNode| {
                key.span.contains(&at) || value.span.contains(&at)
            };
            if let Some((key, value)) = entries.iter().find(|(key, value)| holds(key, value)) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key.text);
                descend(value, at, path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::parse;

    #[rstest]
    #[case(r#"{"bandwidth":"10GBps","chain":"nat"}"#, "bandwidth")]
    #[case(r#"{"bandwidth":"1Gbps","chain":"nat -> Aes"}"#, "chain")]
    #[case(
        r#"{"bandwidth":"1Gbps","nodes":[{"id":"a","type":"nat"},{"id":"b","type":"A"}]}"#,
        "nodes[1].type"
    )]
    #[case(r#"{"bandwidth":"1Gbps","nodes":[{"id":"a","type":"nat"},{"id":"b"}]}"#, "nodes[1]")]
    #[case(r#"{"bandwidth":"1Gbps","chain":"nat","colour":1}"#, "colour")]
    #[case(r#"{"bandwidth":"1Gbps","chain":"nat","labels":{"A":"b"}}"#, "labels.A")]
    #[case(r#"{"chain":"nat"}"#, "")]
    #[case(
        "bandwidth: 1Gbps\nchain: nat\ncard_affinity:\n  with: [web, Web]\n",
        "card_affinity.with[1]"
    )]
    fn a_problem_has_the_path_of_its_field(#[case] text: &str, #[case] path: &str) {
        assert_eq!(parse("spec", text).expect_err("invalid").field(), path);
    }
}
