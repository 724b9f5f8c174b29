//! Selection and order of a list: `filter` and `order_by` of list requests.
//!
//! ```text
//! filter     = comparison { "AND" comparison }
//! comparison = [ "NOT" ] field operator value
//! operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | ":"
//! field      = name { "." name }          the fields of the message; behind a map, one of its keys
//! value      = word | "text in quotes" | "*" behind ":"
//! order_by   = field [ "desc" ] { "," field [ "desc" ] }
//! ```
//!
//! The grammar is a subset of AIP-160 without parentheses and `OR`, so that the time for a resource is
//! bounded by the number of comparisons. Fields are those of the published descriptors. What is compared is
//! the message that the caller would get: a filter reveals nothing that the list would not show.

mod field;
mod filter;
mod order;
mod page;
#[cfg(test)]
mod tests;
mod tokens;

use std::cmp::Ordering;
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::convert::FieldProblem;
use crate::v1;

use filter::Filter;
use order::OrderBy;

pub use order::SortKey;
pub use page::{Keyed, ListFields, Listing, Pieces};

/// A resource that is listed.
pub trait Listed: prost::Message {
    /// Its name in the proto files.
    const NAME: &'static str;
}

macro_rules! listed {
    ($($message:ident),+) => {
        $(impl Listed for v1::$message {
            const NAME: &'static str = concat!("snic.control.v1.", stringify!($message));
        })+
    };
}
listed!(
    AuditEntry, Bitstream, Card, Dag, Event, Fairness, NtType, Operation, Region, Rule, Tenant,
    VmBinding
);

/// The API's descriptors.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).expect("the build has made it from proto/")
});

/// Selection that a list request asks for.
#[derive(Debug, Clone)]
pub struct ListSelection {
    resource: MessageDescriptor,
    filter: Filter,
    order: OrderBy,
}

impl ListSelection {
    /// Parses `filter` and `order_by` of a list of `R`. Empty texts stand for everything in the list's own
    /// order.
    ///
    /// # Errors
    /// [`FieldProblem`] of `filter` or `order_by`, which says what is allowed.
    pub fn parse<R: Listed>(filter: &str, order_by: &str) -> Result<Self, FieldProblem> {
        let resource = POOL.get_message_by_name(R::NAME).expect("the type is generated from it");
        let filter = Filter::parse(&resource, filter)
            .map_err(|what| FieldProblem::invalid("filter", what))?;
        let order = OrderBy::parse(&resource, order_by)
            .map_err(|what| FieldProblem::invalid("order_by", what))?;
        Ok(Self { resource, filter, order })
    }

    /// Whether every resource is listed, in the list's own order.
    pub fn is_all(&self) -> bool {
        self.filter.is_empty() && !self.is_ordered()
    }

    /// Whether the request gave an order.
    pub fn is_ordered(&self) -> bool {
        !self.order.is_empty()
    }

    /// Where a resource stands in the order; `None` where the filter leaves it out.
    pub fn key_of<R: Listed>(&self, message: &R) -> Option<SortKey> {
        if self.is_all() {
            return Some(SortKey::default());
        }
        // A message and its descriptor are of one build.
        let bytes = message.encode_to_vec();
        let message = DynamicMessage::decode(self.resource.clone(), bytes.as_slice()).ok()?;
        self.filter.holds_for(&message).then(|| self.order.key_of(&message))
    }

    /// Compares two resources' places in the order.
    pub fn compare(&self, a: &SortKey, b: &SortKey) -> Ordering {
        self.order.compare(a, b)
    }
}
