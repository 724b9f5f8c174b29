//! Configurations of tasks: any YAML mapping, as a `google.protobuf.Struct`. What may be in it is the task
//! type's matter, and checked by the server.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct};

use super::problem::DagFileProblem;
use super::yaml::{Value, YamlNode};

/// A mapping as an object.
pub(crate) fn object(node: &YamlNode) -> Result<Struct, DagFileProblem> {
    let Value::Map(entries) = &node.value else {
        let message = format!("a configuration must be a mapping, got {}", node.kind());
        return Err(DagFileProblem::new(node.span.clone(), message));
    };
    let fields = entries.iter().map(|(key, node)| Ok((key.text.clone(), value(node)?)));
    Ok(Struct { fields: fields.collect::<Result<_, DagFileProblem>>()? })
}

fn value(node: &YamlNode) -> Result<prost_types::Value, DagFileProblem> {
    let kind = match &node.value {
        Value::Map(_) => Kind::StructValue(object(node)?),
        Value::List(items) => {
            let values = items.iter().map(value).collect::<Result<_, _>>()?;
            Kind::ListValue(ListValue { values })
        }
        Value::Scalar(text) if node.is_quoted => Kind::StringValue(text.clone()),
        Value::Scalar(text) => scalar(text),
    };
    Ok(prost_types::Value { kind: Some(kind) })
}

/// Meaning of a plain scalar, by the core schema of YAML 1.2 without its octal and hexadecimal numbers.
fn scalar(text: &str) -> Kind {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    match text {
        "true" | "True" | "TRUE" => Kind::BoolValue(true),
        "false" | "False" | "FALSE" => Kind::BoolValue(false),
        "" | "~" | "null" | "Null" | "NULL" => Kind::NullValue(0),
        text => match text.parse::<f64>() {
            Ok(number) if is_number && number.is_finite() => Kind::NumberValue(number),
            _ => Kind::StringValue(text.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_the_types_of_yaml_and_quoted_ones_are_texts() {
        let root = super::super::yaml::parse(
            "{a: 5, b: '5', c: true, d: 10.0.0.0/8, e: [~, -1.5, 80-90, .inf, 00ff, nan], f: {g: \"\"}}",
        );
        let object = object(&root.expect("YAML")).expect("a mapping");
        let kind = |name: &str| object.fields[name].kind.clone().expect("set");
        assert_eq!(kind("a"), Kind::NumberValue(5.0));
        assert_eq!(kind("b"), Kind::StringValue("5".into()));
        assert_eq!(kind("c"), Kind::BoolValue(true));
        assert_eq!(kind("d"), Kind::StringValue("10.0.0.0/8".into()));
        let Kind::ListValue(list) = kind("e") else { panic!("a list") };
        let kinds: Vec<Kind> = list.values.into_iter().filter_map(|value| value.kind).collect();
        let text = |text: &str| Kind::StringValue(text.into());
        let expected = [
            Kind::NullValue(0),
            Kind::NumberValue(-1.5),
            text("80-90"),
            text(".inf"),
            text("00ff"),
            text("nan"),
        ];
        assert_eq!(kinds, expected);
        let error = super::object(&super::super::yaml::parse("[a]").expect("YAML"));
        assert!(error.is_err());
    }
}
