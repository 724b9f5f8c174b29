//! Numbers of a `google.protobuf.Struct`, which has doubles only, are printed as people and files write them: `4096`,
//! not `4096.0`. All else stays as it is, in its order.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};

/// Up to here a double counts in steps of one.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A JSON document whose whole numbers have no fraction, with the keys in the order of its text.
pub(super) enum Document {
    Null,
    Flag(bool),
    Signed(i64),
    Unsigned(u64),
    Fraction(f64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<Document, E> {
                Ok(Document::Null)
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Document, E> {
                Ok(Document::Flag(flag))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Document, E> {
                Ok(Document::Signed(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Document, E> {
                Ok(Document::Unsigned(number))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Document, E> {
                let is_whole = number.fract() == 0.0 && number.abs() <= EXACT_MAX;
                // Whole and exact: the conversion loses nothing.
                Ok(if is_whole {
                    Document::Signed(number as i64)
                } else {
                    Document::Fraction(number)
                })
            }

            fn visit_str<E>(self, text: &str) -> Result<Document, E> {
                Ok(Document::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Document, A::Error> {
                let mut all = Vec::new();
                while let Some(value) = list.next_element()? {
                    all.push(value);
                }
                Ok(Document::List(all))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Document, A::Error> {
                let mut all = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    all.push(field);
                }
                Ok(Document::Object(all))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Signed(number) => serializer.serialize_i64(*number),
            Self::Unsigned(number) => serializer.serialize_u64(*number),
            Self::Fraction(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(all) => {
                let mut list = serializer.serialize_seq(Some(all.len()))?;
                for value in all {
                    list.serialize_element(value)?;
                }
                list.end()
            }
            Self::Object(all) => {
                let mut map = serializer.serialize_map(Some(all.len()))?;
                for (key, value) in all {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_lose_their_fraction_and_all_else_stays_in_its_order() {
        let text = r#"{"z":4096.0,"a":[1e9,0.5,-3.0,18446744073709551615,null,true,"1.0"],"b":{}}"#;
        let document: Document = serde_json::from_str(text).expect("it is JSON");
        let expected =
            r#"{"z":4096,"a":[1000000000,0.5,-3,18446744073709551615,null,true,"1.0"],"b":{}}"#;
        assert_eq!(serde_json::to_string(&document).expect("it is a value"), expected);
        let yaml = serde_yaml_ng::to_string(&document).expect("it is a value");
        assert!(yaml.starts_with("z: 4096\na:\n- 1000000000\n- 0.5\n- -3\n"), "{yaml}");
        let huge: Document = serde_json::from_str("1e300").expect("it is JSON");
        let text = serde_json::to_string(&huge).expect("it is a value");
        assert!(text.len() < 10 && text.parse() == Ok(1e300), "{text}");
    }
}
