//! Schemas: which configurations of an NT type are valid, as data.

use std::net::IpAddr;
use std::str::FromStr;

use serde::Deserialize as _;
use serde_json::{Map, Value};
use snic_domain::Digest;

use super::{
    CONFIGURATION_BYTES_MAX, Configuration, InvalidConfiguration, IpPrefix, Mac, NonIp, PortRange,
    Secret,
};

/// The schema of an NT type's configurations.
#[derive(Debug, PartialEq, Eq)]
pub struct Schema {
    /// The NT type, as in the catalogue.
    pub nt_type: &'static str,
    /// Raised when a document of the former version would mean something else.
    pub version: u16,
    /// The fields of the document.
    pub fields: &'static [Field],
}

/// One field of an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    /// Purpose in one sentence; with its default where it may be left out.
    pub description: &'static str,
    /// Whether it may be left out.
    pub optional: bool,
    pub kind: Kind,
}

/// The type of a field, with its range.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Integer {
        min: u64,
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An IPv4 or IPv6 address.
    Address,
    /// An IPv4 or IPv6 prefix.
    Prefix,
    /// An Ethernet address.
    Mac,
    /// A port or a range of ports.
    Ports,
    /// Frames other than IP that pass: a word, or a list of EtherTypes.
    NonIp,
    /// Bytes as hexadecimal digits that are never read back.
    Secret {
        /// Allowed lengths, in bytes.
        lengths: &'static [usize],
    },
    Object(&'static [Field]),
    /// A list of objects.
    Objects {
        max: usize,
        /// Fields of each.
        fields: &'static [Field],
    },
    /// A list of plain values.
    List {
        max: usize,
        /// Kind of each item.
        of: &'static Kind,
    },
}

/// The field of NTs that have to read a frame before they let it through.
pub(crate) const NON_IP: Field = Field::optional(
    "non_ip",
    Kind::NonIp,
    "Which frames other than IP pass: \"accept\" for ARP alone (default), \"drop\" for none, or a list of \
     \"arp\" and EtherTypes such as \"0x88b5\", whose content is not looked at.",
);

impl Field {
    /// A field that must be there.
    pub const fn required(name: &'static str, kind: Kind, description: &'static str) -> Self {
        Self { name, description, optional: false, kind }
    }

    /// A field that may be left out.
    pub const fn optional(name: &'static str, kind: Kind, description: &'static str) -> Self {
        Self { name, description, optional: true, kind }
    }
}

impl Schema {
    /// Checks a document of version `version`.
    ///
    /// # Errors
    /// The version is unknown, the bytes are not JSON, or a field is missing, unknown or not allowed.
    pub fn check(
        &'static self,
        version: u16,
        bytes: &[u8],
    ) -> Result<Configuration, InvalidConfiguration> {
        if version != self.version {
            return Err(InvalidConfiguration::UnknownVersion {
                nt_type: self.nt_type,
                found: version,
                known: self.version,
            });
        }
        if bytes.len() > CONFIGURATION_BYTES_MAX {
            return Err(InvalidConfiguration::TooLong(bytes.len()));
        }
        let document: Value = serde_json::from_slice(bytes)
            .map_err(|error| InvalidConfiguration::NotJson(error.to_string()))?;
        check_object("", self.fields, &document)?;
        Ok(Configuration { schema: self, document })
    }

    /// Visits the text at each place of the document where a secret stands.
    pub(crate) fn visit_secrets(&self, document: &mut Value, visit: &mut dyn FnMut(&mut String)) {
        visit_object(self.fields, document, visit);
    }

    /// The document with digests in place of secrets.
    pub(super) fn redact(&self, document: &Value) -> Value {
        redact_object(self.fields, document)
    }
}

/// Beginning of the text that stands for a secret.
pub(crate) const SHOWN_SECRET: &str = "sha256:";

fn check_object(
    path: &str,
    fields: &'static [Field],
    value: &Value,
) -> Result<(), InvalidConfiguration> {
    let shown = if path.is_empty() { "the configuration" } else { path };
    let Value::Object(object) = value else {
        return Err(not_allowed(shown, value, "an object".to_owned()));
    };
    let inside =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in object.keys() {
        if !fields.iter().any(|field| field.name == name) {
            let known: Vec<_> = fields.iter().map(|field| field.name).collect();
            let allowed = format!("the fields {}", known.join(", "));
            return Err(InvalidConfiguration::field(inside(name), "an unknown field", allowed));
        }
    }
    for field in fields {
        let path = inside(field.name);
        match object.get(field.name) {
            Some(value) => check_value(&path, &field.kind, value)?,
            None if field.optional => {}
            None => {
                let allowed = field.kind.allowed();
                return Err(InvalidConfiguration::field(path, "a missing value", allowed));
            }
        }
    }
    Ok(())
}

fn check_value(path: &str, kind: &'static Kind, value: &Value) -> Result<(), InvalidConfiguration> {
    let is_allowed = match (kind, value) {
        (Kind::Flag, Value::Bool(_)) => true,
        (Kind::Integer { min, max }, Value::Number(number)) => {
            number.as_u64().is_some_and(|number| (*min..=*max).contains(&number))
        }
        (Kind::Choice(words), Value::String(word)) => words.contains(&word.as_str()),
        (Kind::Address, Value::String(text)) => parses::<IpAddr>(text),
        (Kind::Prefix, Value::String(text)) => parses::<IpPrefix>(text),
        (Kind::Mac, Value::String(text)) => parses::<Mac>(text),
        (Kind::Ports, Value::String(text)) => parses::<PortRange>(text),
        (Kind::NonIp, _) => NonIp::deserialize(value).is_ok(),
        (Kind::Secret { lengths }, Value::String(text)) => {
            text.parse::<Secret>().is_ok_and(|secret| lengths.contains(&secret.expose().len()))
        }
        (Kind::Object(fields), Value::Object(_)) => return check_object(path, fields, value),
        (Kind::Objects { max, fields }, Value::Array(entries)) if entries.len() <= *max => {
            let mut entries = entries.iter().enumerate();
            return entries
                .try_for_each(|(i, entry)| check_object(&format!("{path}[{i}]"), fields, entry));
        }
        (Kind::List { max, of }, Value::Array(entries)) if entries.len() <= *max => {
            let mut entries = entries.iter().enumerate();
            return entries
                .try_for_each(|(i, entry)| check_value(&format!("{path}[{i}]"), of, entry));
        }
        _ => false,
    };
    if is_allowed {
        return Ok(());
    }
    match kind {
        Kind::Secret { .. } => Err(InvalidConfiguration::field(path, "the secret", kind.allowed())),
        _ => Err(not_allowed(path, value, kind.allowed())),
    }
}

fn parses<T: FromStr>(text: &str) -> bool {
    text.parse::<T>().is_ok()
}

/// An error that repeats the value, cut to the length of a line.
fn not_allowed(path: &str, value: &Value, allowed: String) -> InvalidConfiguration {
    const SHOWN_CHARS: usize = 60;
    let shown = match value {
        Value::Array(entries) => format!("a list of {} entries", entries.len()),
        Value::Object(_) => "an object".to_owned(),
        plain => plain.to_string(),
    };
    let cut = shown.chars().nth(SHOWN_CHARS).is_some();
    let shown: String = shown.chars().take(SHOWN_CHARS).chain(cut.then_some('…')).collect();
    InvalidConfiguration::field(path, shown, allowed)
}

impl Kind {
    /// Allowed values, in the words of an error.
    fn allowed(&self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Choice(words) => format!("one of \"{}\"", words.join("\", \"")),
            Self::Address => "an IPv4 or IPv6 address such as 192.0.2.1 or 2001:db8::1".to_owned(),
            Self::Prefix => IpPrefix::ALLOWED.to_owned(),
            Self::Mac => Mac::ALLOWED.to_owned(),
            Self::Ports => PortRange::ALLOWED.to_owned(),
            Self::NonIp => NonIp::ALLOWED.to_owned(),
            Self::Secret { lengths } => {
                let lengths: Vec<_> = lengths.iter().map(ToString::to_string).collect();
                format!("{} bytes as hexadecimal digits", lengths.join(" or "))
            }
            Self::Object(_) => "an object".to_owned(),
            Self::Objects { max, .. } => format!("a list of at most {max} objects"),
            Self::List { max, of } => format!("a list of at most {max}, each {}", of.allowed()),
        }
    }
}

fn redact_object(fields: &'static [Field], value: &Value) -> Value {
    let Value::Object(object) = value else { return Value::Null };
    let known = fields.iter().filter_map(|field| {
        let value = object.get(field.name)?;
        Some((field.name.to_owned(), redact_value(&field.kind, value)))
    });
    Value::Object(known.collect::<Map<_, _>>())
}

fn redact_value(kind: &'static Kind, value: &Value) -> Value {
    match (kind, value) {
        (Kind::Secret { .. }, Value::String(text)) => {
            let digest = text.parse().map_or(Digest::of(&[]), |secret: Secret| secret.digest());
            Value::String(shown_secret(digest))
        }
        (Kind::Secret { .. }, _) => Value::Null,
        (Kind::Object(fields), _) => redact_object(fields, value),
        (Kind::Objects { fields, .. }, Value::Array(entries)) => {
            entries.iter().map(|entry| redact_object(fields, entry)).collect()
        }
        (Kind::List { of, .. }, Value::Array(entries)) => {
            entries.iter().map(|entry| redact_value(of, entry)).collect()
        }
        _ => value.clone(),
    }
}

/// Text that stands for a secret wherever one is read back.
pub(crate) fn shown_secret(digest: Digest) -> String {
    format!("{SHOWN_SECRET}{digest}")
}

fn visit_object(fields: &'static [Field], value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    let Value::Object(object) = value else { return };
    for field in fields {
        if let Some(value) = object.get_mut(field.name) {
            visit_value(&field.kind, value, visit);
        }
    }
}

fn visit_value(kind: &'static Kind, value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match (kind, value) {
        (Kind::Secret { .. }, Value::String(text)) => visit(text),
        (Kind::Object(fields), value) => visit_object(fields, value, visit),
        (Kind::Objects { fields, .. }, Value::Array(entries)) => {
            entries.iter_mut().for_each(|entry| visit_object(fields, entry, visit));
        }
        (Kind::List { of, .. }, Value::Array(entries)) => {
            entries.iter_mut().for_each(|entry| visit_value(of, entry, visit));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SCHEMA: Schema = Schema {
        nt_type: "example",
        version: 2,
        fields: &[
            Field::required("rate", Kind::Integer { min: 1, max: 9 }, "Packets a second."),
            Field::optional("on", Kind::Flag, "Whether."),
            Field::optional("key", Kind::Secret { lengths: &[2, 4] }, "A key."),
            Field::optional(
                "keys",
                Kind::List { max: 1, of: &Kind::Secret { lengths: &[1] } },
                "K.",
            ),
            Field::optional(
                "rules",
                Kind::Objects {
                    max: 2,
                    fields: &[
                        Field::required("action", Kind::Choice(&["accept", "drop"]), "What."),
                        Field::optional("from", Kind::Prefix, "Whence."),
                        Field::optional("ports", Kind::Ports, "Which."),
                        Field::optional("via", Kind::Mac, "Station."),
                    ],
                },
                "Rules.",
            ),
            Field::optional("at", Kind::Object(&[Field::required("a", Kind::Address, "")]), ""),
        ],
    };

    fn error(document: &str) -> String {
        SCHEMA.check(2, document.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn errors_say_the_field_the_value_and_what_is_allowed() {
        for (document, expected) in [
            (r#"{"rate":10}"#, "rate: 10 is not allowed; allowed: a whole number from 1 to 9"),
            (r#"{"rate":1.5}"#, "rate: 1.5 is not allowed; allowed: a whole number from 1 to 9"),
            (r#"{"rate":-1}"#, "rate: -1 is not allowed; allowed: a whole number from 1 to 9"),
            ("{}", "rate: a missing value is not allowed; allowed: a whole number from 1 to 9"),
            ("[]", "the configuration: a list of 0 entries is not allowed; allowed: an object"),
            (r#"{"rate":1,"on":"yes"}"#, "on: \"yes\" is not allowed; allowed: true or false"),
            (
                r#"{"rate":1,"rules":[{"action":"drop"},{"action":"pass"}]}"#,
                "rules[1].action: \"pass\" is not allowed; allowed: one of \"accept\", \"drop\"",
            ),
            (
                r#"{"rate":1,"rules":[{},{},{}]}"#,
                "rules: a list of 3 entries is not allowed; allowed: a list of at most 2 objects",
            ),
            (
                r#"{"rate":1,"at":{"b":1}}"#,
                "at.b: an unknown field is not allowed; allowed: the fields a",
            ),
            (
                r#"{"rate":1,"key":"abcdef"}"#,
                "key: the secret is not allowed; allowed: 2 or 4 bytes as hexadecimal digits",
            ),
        ] {
            assert_eq!(error(document), expected, "{document}");
        }
        assert!(error("{").starts_with("the configuration is not a JSON document: EOF"));
        let unknown = SCHEMA.check(1, b"{}").unwrap_err().to_string();
        assert_eq!(unknown, "configuration version 1 of example is unknown; known is 2");
        let long = " ".repeat(CONFIGURATION_BYTES_MAX + 1);
        assert_eq!(error(&long), "the configuration has 65537 bytes; at most 65536 are allowed");
        let deep = "[".repeat(60_000);
        assert!(error(&deep).contains("recursion limit"), "{}", error(&deep));
    }

    #[test]
    fn a_long_value_is_cut_in_the_message() {
        let document = format!(r#"{{"rate":"{}"}}"#, "é".repeat(5_000));
        assert!(error(&document).chars().count() < 150);
    }

    #[test]
    fn secrets_are_read_back_as_digests_wherever_they_are() {
        let document = r#"{"rate":1,"key":"beef","keys":["07"],"rules":[{"action":"drop"}]}"#;
        let configuration = SCHEMA.check(2, document.as_bytes()).unwrap();
        let shown = configuration.redacted();
        assert_eq!(shown["rate"], 1);
        assert_eq!(shown["rules"][0]["action"], "drop");
        let digest = format!("sha256:{}", Digest::of(&[0xBE, 0xEF]));
        assert_eq!(shown["key"], digest);
        assert_eq!(shown["keys"][0], format!("sha256:{}", Digest::of(&[7])));
        assert!(!format!("{configuration:?}").contains("beef"));
    }
}
