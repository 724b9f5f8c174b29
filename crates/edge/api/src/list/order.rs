//! Orders of lists.

use std::cmp::Ordering;

use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde::{Deserialize, Serialize};

use super::field::{End, Path, Scalar};

/// Most fields of an order: a page token has the values of all.
const FIELDS_MAX: usize = 3;
/// Longest order, in bytes: errors repeat parts of it.
const ORDER_BYTES_MAX: usize = 1_024;
/// Most characters of a text that count in an order: a page token has them.
const TEXT_CHARS_MAX: usize = 128;

/// Fields by which a list is ordered.
#[derive(Debug, Clone)]
pub(super) struct OrderBy(Vec<Column>);

#[derive(Debug, Clone)]
struct Column {
    path: Path,
    descending: bool,
}

/// Where a resource stands in an order: the values of its fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SortKey(Vec<Option<SortValue>>);

/// A value of a field that is ordered by, as page tokens have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum SortValue {
    #[serde(rename = "b")]
    Bool(bool),
    #[serde(rename = "i")]
    Integer(i128),
    #[serde(rename = "n")]
    Number(f64),
    #[serde(rename = "t")]
    Text(String),
}

impl From<Scalar> for SortValue {
    fn from(value: Scalar) -> Self {
        match value {
            Scalar::Bool(value) => Self::Bool(value),
            Scalar::Integer(value) => Self::Integer(value),
            Scalar::Number(value) => Self::Number(value),
            Scalar::Text(text) => Self::Text(text.chars().take(TEXT_CHARS_MAX).collect()),
        }
    }
}

impl SortValue {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            // Values of one field are of one kind.
            _ => Ordering::Equal,
        }
    }
}

impl OrderBy {
    /// Parses an order of a resource.
    ///
    /// # Errors
    /// Reads an order; the error says what is wrong, and what is allowed.
    pub fn parse(resource: &MessageDescriptor, text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        if text.len() > ORDER_BYTES_MAX {
            let bytes = text.len();
            return Err(format!("it has {bytes} bytes; at most {ORDER_BYTES_MAX} are allowed"));
        }
        let columns: Vec<&str> = text.split(',').collect();
        if columns.len() > FIELDS_MAX {
            let count = columns.len();
            return Err(format!("it has {count} fields; at most {FIELDS_MAX} are allowed"));
        }
        columns.into_iter().map(|text| column(resource, text)).collect::<Result<_, _>>().map(Self)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn key_of(&self, message: &DynamicMessage) -> SortKey {
        let value = |column: &Column| column.path.values(message).pop().map(SortValue::from);
        SortKey(self.0.iter().map(value).collect())
    }

    /// Compares two resources. Unset fields come first, and last where the order is reversed.
    pub fn compare(&self, a: &SortKey, b: &SortKey) -> Ordering {
        let columns = self.0.iter().zip(a.0.iter().zip(&b.0));
        let mut orders = columns.map(|(column, (a, b))| {
            let order = match (a, b) {
                (Some(a), Some(b)) => a.compare(b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            };
            if column.descending { order.reverse() } else { order }
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

fn column(resource: &MessageDescriptor, text: &str) -> Result<Column, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (field, descending) = match words[..] {
        [field] | [field, "asc"] => (field, false),
        [field, "desc"] => (field, true),
        _ => {
            let rule = "a field, or a field and desc, such as create_time desc";
            return Err(format!("{:?} is not allowed: {rule}", text.trim()));
        }
    };
    let path = Path::parse(resource, field)?;
    if path.is_list || matches!(path.end, End::Map | End::Message) {
        return Err(format!("{field} has no single value that a list could be ordered by"));
    }
    Ok(Column { path, descending })
}
