//! Fields of resources by their paths, such as `usage.dags`, and their values.

use std::cmp::Ordering;

use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    ReflectMessage, Value,
};

/// Nanoseconds per second.
const NANOS: i128 = 1_000_000_000;

/// A path, resolved.
#[derive(Debug, Clone)]
pub(super) struct Path {
    steps: Vec<FieldDescriptor>,
    /// Behind a map: which of its entries.
    key: Option<String>,
    /// Value at its end.
    pub end: End,
    /// Whether there can be several values.
    pub is_list: bool,
}

/// Value at the end of a path.
#[derive(Debug, Clone)]
pub(super) enum End {
    Bool,
    Integer,
    Number,
    Text,
    Enum(EnumDescriptor),
    Time,
    Duration,
    /// A map, whose keys can be asked for.
    Map,
    /// A message, which is set or not.
    Message,
}

/// A value of a field, or one to compare with.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(super) enum Scalar {
    Bool(bool),
    /// A number, the number of an enum's value, or nanoseconds.
    Integer(i128),
    Number(f64),
    Text(String),
}

impl Scalar {
    /// Values of one field are of one kind; numbers that are none come last.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.partial_cmp(other).unwrap_or_else(|| match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            _ => Ordering::Equal,
        })
    }
}

impl Path {
    /// Resolves a path.
    ///
    /// # Errors
    /// There is no such field: which there are.
    pub fn parse(resource: &MessageDescriptor, text: &str) -> Result<Self, String> {
        let (mut steps, mut is_list) = (Vec::new(), false);
        let (mut message, mut rest) = (resource.clone(), text);
        loop {
            let (name, behind) = match rest.split_once('.') {
                Some((name, behind)) => (name, Some(behind)),
                None => (rest, None),
            };
            let field = message
                .get_field_by_name(name)
                .filter(is_known)
                .ok_or_else(|| unknown(resource, &message, text))?;
            is_list |= field.is_list();
            steps.push(field.clone());
            if field.is_map() {
                let end = if behind.is_some() { End::Text } else { End::Map };
                return Ok(Self { steps, key: behind.map(str::to_owned), end, is_list });
            }
            let end = end_of(&field.kind());
            match (behind, end, field.kind()) {
                (None, end, _) => return Ok(Self { steps, key: None, end, is_list }),
                (Some(behind), End::Message, Kind::Message(inner)) => {
                    message = inner;
                    rest = behind;
                }
                (Some(_), ..) => {
                    let last = field.name();
                    return Err(format!("{text:?} is not a field: {last} has no fields within"));
                }
            }
        }
    }

    /// The values at the end of the path: none where something on the way is not set, several where it
    /// passes a list.
    pub fn values(&self, message: &DynamicMessage) -> Vec<Scalar> {
        let mut found = Vec::new();
        self.collect(message, 0, &mut found);
        found
    }

    /// Whether what the path names is set: for a list or a map, whether anything is in it.
    pub fn is_set(&self, message: &DynamicMessage) -> bool {
        self.is_set_from(message, 0)
    }

    fn is_set_from(&self, message: &DynamicMessage, step: usize) -> bool {
        let field = &self.steps[step];
        if !message.has_field(field) {
            return false;
        }
        let value = message.get_field(field);
        if step + 1 < self.steps.len() {
            return each(&value).any(|value| match value {
                Value::Message(inner) => self.is_set_from(inner, step + 1),
                _ => false,
            });
        }
        match (&*value, &self.key) {
            (Value::Map(map), Some(key)) => map.contains_key(&MapKey::String(key.clone())),
            _ => true,
        }
    }

    /// The keys of the map at the end of the path.
    pub fn keys(&self, message: &DynamicMessage) -> Vec<String> {
        let Some(field) = self.steps.first().filter(|_| self.steps.len() == 1) else {
            return Vec::new();
        };
        let value = message.get_field(field);
        let keys = value.as_map().into_iter().flatten().map(|(key, _)| key);
        keys.filter_map(|key| key.as_str().map(str::to_owned)).collect()
    }

    fn collect(&self, message: &DynamicMessage, step: usize, found: &mut Vec<Scalar>) {
        let field = &self.steps[step];
        if field.supports_presence() && !message.has_field(field) {
            return;
        }
        let value = message.get_field(field);
        for value in each(&value) {
            match value {
                Value::Message(inner) if step + 1 < self.steps.len() => {
                    self.collect(inner, step + 1, found);
                }
                Value::Map(map) => {
                    let key = self.key.clone().map(MapKey::String);
                    let entry = key.and_then(|key| map.get(&key));
                    found.extend(entry.and_then(scalar));
                }
                value => found.extend(scalar(value)),
            }
        }
    }
}

/// The elements of a list, or the one value.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    let list = value.as_list();
    let one = list.is_none().then_some(value);
    list.into_iter().flatten().chain(one)
}

fn scalar(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::Bool(value) => Scalar::Bool(*value),
        Value::I32(value) | Value::EnumNumber(value) => Scalar::Integer((*value).into()),
        Value::I64(value) => Scalar::Integer((*value).into()),
        Value::U32(value) => Scalar::Integer((*value).into()),
        Value::U64(value) => Scalar::Integer((*value).into()),
        Value::F32(value) => Scalar::Number((*value).into()),
        Value::F64(value) => Scalar::Number(*value),
        Value::String(text) => Scalar::Text(text.clone()),
        Value::Message(message) => nanoseconds(message)?,
        Value::Bytes(_) | Value::List(_) | Value::Map(_) => return None,
    })
}

/// A time or a duration in nanoseconds: both have the same two fields.
fn nanoseconds(message: &DynamicMessage) -> Option<Scalar> {
    if !matches!(end_of(&Kind::Message(message.descriptor())), End::Time | End::Duration) {
        return None;
    }
    let seconds = message.get_field_by_name("seconds")?.as_i64()?;
    let nanos = message.get_field_by_name("nanos")?.as_i32()?;
    Some(Scalar::Integer(i128::from(seconds) * NANOS + i128::from(nanos)))
}

fn end_of(kind: &Kind) -> End {
    match kind {
        Kind::Bool => End::Bool,
        Kind::Double | Kind::Float => End::Number,
        Kind::String | Kind::Bytes => End::Text,
        Kind::Enum(values) => End::Enum(values.clone()),
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => End::Time,
            "google.protobuf.Duration" => End::Duration,
            _ => End::Message,
        },
        _ => End::Integer,
    }
}

/// Whether a field can be compared. Free-form objects cannot: their fields are not the API's.
fn is_known(field: &FieldDescriptor) -> bool {
    match field.kind() {
        Kind::Bytes => false,
        Kind::Message(message) if !field.is_map() => {
            let is_ours = message.package_name() == "snic.control.v1";
            is_ours || !matches!(end_of(&Kind::Message(message)), End::Message)
        }
        _ => true,
    }
}

fn unknown(resource: &MessageDescriptor, message: &MessageDescriptor, text: &str) -> String {
    let names: Vec<String> = message.fields().filter(is_known).map(|field| shown(&field)).collect();
    let of = if resource == message { String::new() } else { format!(" of {}", message.name()) };
    format!("{text:?} is not a field of {} (fields{of}: {})", resource.name(), names.join(", "))
}

fn shown(field: &FieldDescriptor) -> String {
    let has_fields = field.is_map() || matches!(end_of(&field.kind()), End::Message);
    format!("{}{}", field.name(), if has_fields { ".*" } else { "" })
}

/// Prefix of all values of an enum, as the API's conventions have it.
fn prefix(values: &EnumDescriptor) -> String {
    let mut prefix = String::new();
    for letter in values.name().chars() {
        if letter.is_uppercase() && !prefix.is_empty() {
            prefix.push('_');
        }
        prefix.push(letter.to_ascii_uppercase());
    }
    prefix + "_"
}

impl End {
    /// A value to compare with.
    ///
    /// # Errors
    /// The text is not a value of this kind; the error says what is allowed.
    pub fn literal(&self, field: &str, text: &str) -> Result<Scalar, String> {
        let wrong = |allowed: &str| format!("{field} is {allowed}, not {text:?}");
        match self {
            Self::Bool => match text {
                "true" => Ok(Scalar::Bool(true)),
                "false" => Ok(Scalar::Bool(false)),
                _ => Err(wrong("true or false")),
            },
            Self::Integer => text.parse().map(Scalar::Integer).map_err(|_| wrong("a whole number")),
            Self::Number => {
                let number = text.parse().ok().filter(|number: &f64| number.is_finite());
                number.map(Scalar::Number).ok_or_else(|| wrong("a number"))
            }
            Self::Text => Ok(Scalar::Text(text.to_owned())),
            Self::Enum(values) => {
                let prefix = prefix(values);
                let short = |name: &str| name.strip_prefix(&prefix).unwrap_or(name).to_owned();
                let found = values.values().find(|v| short(v.name()) == text || v.name() == text);
                found.map(|value| Scalar::Integer(value.number().into())).ok_or_else(|| {
                    let all: Vec<_> =
                        values.values().skip(1).map(|value| short(value.name())).collect();
                    wrong(&format!("one of {}", all.join(", ")))
                })
            }
            Self::Time => {
                let time = text.parse::<prost_types::Timestamp>();
                let time =
                    time.map_err(|_| wrong("a time such as \"2026-01-31T12:00:00Z\", in quotes"))?;
                let nanos = i128::from(time.seconds) * NANOS + i128::from(time.nanos);
                Ok(Scalar::Integer(nanos))
            }
            Self::Duration => {
                let time = text.parse::<prost_types::Duration>();
                let time = time.map_err(|_| wrong("a duration such as 1.5s"))?;
                let nanos = i128::from(time.seconds) * NANOS + i128::from(time.nanos);
                Ok(Scalar::Integer(nanos))
            }
            Self::Map => Err(format!("{field} is a map: compare an entry, such as {field}.key")),
            Self::Message => {
                Err(format!("{field} has fields: compare one of them, or ask {field}:*"))
            }
        }
    }
}
