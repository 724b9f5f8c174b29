//! `google.protobuf.Struct` as JSON and back.
//!
//! A Struct has one type of number, a double. Whole ones are written without a fraction, as JSON parsers
//! want them where a whole number is expected; up to 2^53 they are exact.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::{Map, Number};

/// Up to here a double counts in steps of one.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A Struct that is no JSON object: a number is not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a number is infinite or NaN; give finite numbers")]
pub struct NotJson;

/// A Struct as a JSON object.
///
/// # Errors
/// It has a number that JSON has no text for.
pub fn to_json(object: &Struct) -> Result<serde_json::Value, NotJson> {
    let fields = object.fields.iter().map(|(name, value)| Ok((name.clone(), json(value)?)));
    fields.collect::<Result<Map<_, _>, _>>().map(serde_json::Value::Object)
}

fn json(value: &Value) -> Result<serde_json::Value, NotJson> {
    Ok(match &value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(flag)) => (*flag).into(),
        Some(Kind::StringValue(text)) => text.clone().into(),
        Some(Kind::StructValue(object)) => to_json(object)?,
        Some(Kind::ListValue(list)) => {
            serde_json::Value::Array(list.values.iter().map(json).collect::<Result<_, _>>()?)
        }
        // Whole and exact: the conversion loses nothing.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= EXACT_MAX => {
            (*number as i64).into()
        }
        Some(Kind::NumberValue(number)) => Number::from_f64(*number).ok_or(NotJson)?.into(),
    })
}

/// A JSON object as a Struct; what is no object is an empty one.
pub fn of_json(value: &serde_json::Value) -> Struct {
    let fields = value.as_object().into_iter().flatten();
    Struct { fields: fields.map(|(name, value)| (name.clone(), of_value(value))).collect() }
}

fn of_value(value: &serde_json::Value) -> Value {
    let kind = match value {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(flag) => Kind::BoolValue(*flag),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(0.0)),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(values) => {
            Kind::ListValue(ListValue { values: values.iter().map(of_value).collect() })
        }
        serde_json::Value::Object(_) => Kind::StructValue(of_json(value)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_comes_back_with_whole_numbers_whole() {
        let object =
            json!({"a": [1, -2, 0.5, "x", null, true], "b": {"c": 9_007_199_254_740_992_u64}});
        assert_eq!(to_json(&of_json(&object)), Ok(object.clone()));
        assert!(to_json(&of_json(&object)).expect("finite").to_string().contains("[1,-2,0.5,"));
        let number = |number| Value { kind: Some(Kind::NumberValue(number)) };
        let fields = [("x".to_owned(), number(f64::NAN))].into_iter().collect();
        assert_eq!(to_json(&Struct { fields }), Err(NotJson));
    }
}
