//! Ids as types. A text id is checked where it is made, so that the rest of the system never meets
//! one that could not be a path segment, a table cell or a key of the store.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// Longest text id, in characters: a DNS label, which is also what AIP-122 allows.
pub const ID_CHARS_MAX: usize = 63;

/// A text that is not a valid id of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind} id: {rule}")]
pub struct InvalidId {
    /// The kind of id that was expected.
    pub kind: &'static str,
    /// The text, cut to 80 characters.
    pub text: String,
    pub rule: &'static str,
}

const LABEL_RULE: &str = "1 to 63 of a-z, 0-9 and '-', a letter first, no '-' last";
const OWNED_RULE: &str = "NAME for the provider's or TENANT.NAME for a tenant's, each 1 to 63 of a-z, 0-9 and '-', \
     a letter first, no '-' last";

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=ID_CHARS_MAX).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes.last() != Some(&b'-')
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_owned(text: &str) -> bool {
    text.split_once('.').map_or_else(|| is_label(text), |(t, n)| is_label(t) && is_label(n))
}

/// Defines an id: a text that is checked where it is made, by a function and with the rule that an error names.
#[macro_export]
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:ident, $rule:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// Validates the text and wraps it.
            ///
            /// # Errors
            ///
            /// `InvalidId` with the kind of id, the text and the rule that it breaks.
            pub fn new(text: &str) -> Result<Self, $crate::InvalidId> {
                if $check(text) {
                    Ok(Self(text.into()))
                } else {
                    let text = text.chars().take(80).collect();
                    Err($crate::InvalidId { kind: $kind, text, rule: $rule })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::InvalidId;
            fn from_str(text: &str) -> Result<Self, $crate::InvalidId> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::InvalidId;
            fn try_from(text: String) -> Result<Self, $crate::InvalidId> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.into()
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

text_id!(TenantId, "tenant", is_label, LABEL_RULE);
text_id!(
    /// A DAG, within its tenant.
    DagId, "DAG", is_label, LABEL_RULE
);
text_id!(
    /// A node of a DAG, within the DAG.
    NodeId, "node", is_label, LABEL_RULE
);
text_id!(
    /// A card of this daemon.
    CardId, "card", is_label, LABEL_RULE
);
text_id!(
    /// A model of card, as bitstreams name their target.
    CardModel, "card model", is_label, LABEL_RULE
);
text_id!(
    /// A classification rule. The owner is part of the id, as for [`NtTypeId`].
    RuleId, "rule", is_owned, OWNED_RULE
);
text_id!(
    /// An operation (AIP-151).
    OperationId, "operation", is_label, LABEL_RULE
);
text_id!(
    /// A type of network task. The owner is part of the id (`acme.filter`), so that the names of
    /// two tenants never collide and a collision tells nobody anything.
    NtTypeId, "NT type", is_owned, OWNED_RULE
);
text_id!(
    /// A bitstream. The owner is part of the id, as for [`NtTypeId`].
    BitstreamId, "bitstream", is_owned, OWNED_RULE
);

/// Longest name of a host, zone, rack or project, in characters: that of a host name in DNS.
pub const NAME_CHARS_MAX: usize = 253;

/// Rule of names that are parts of keys, for errors.
pub const NAME_RULE: &str = "1 to 253 of a-z, 0-9, '-' and '.', a letter or digit first and last";

/// Whether a text may name a host, zone, rack or project.
pub fn is_name(text: &str) -> bool {
    let (is_end, bytes) = (|b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit(), text.as_bytes());
    bytes.len() <= NAME_CHARS_MAX
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|b| is_end(b) || matches!(b, b'-' | b'.'))
}

text_id!(
    /// A project: tenants that are added up, and in a fleet share a quota.
    ProjectId, "project", is_name, NAME_RULE
);

macro_rules! owned_id {
    ($name:ident) => {
        impl $name {
            /// The tenant that owns it; `None` is the provider.
            pub fn owner(&self) -> Option<TenantId> {
                self.0.split_once('.').map(|(tenant, _)| TenantId(tenant.into()))
            }

            /// Whether `tenant` owns it.
            pub fn is_owned_by(&self, tenant: &TenantId) -> bool {
                self.0.split_once('.').is_some_and(|(owner, _)| owner == tenant.as_str())
            }
        }
    };
}
owned_id!(NtTypeId);
owned_id!(BitstreamId);
owned_id!(RuleId);

impl NtTypeId {
    /// Code in a bitstream for this NT: the first four bytes of the SHA-256 digest of the id, so
    /// that a bitstream can carry it without knowing any catalogue. Two ids may have the same one: what
    /// cards keep apart they keep apart by [`NtNumber`].
    pub fn code(&self) -> NtCode {
        let d = sha2::Sha256::digest(self.0.as_bytes());
        NtCode(u32::from_be_bytes([d[0], d[1], d[2], d[3]]))
    }
}

/// Code of an NT in a bitstream: see [`NtTypeId::code`]. Zero marks an empty slot.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NtCode(pub u32);

/// An NT type's number on the cards of a daemon: no two types have the same one. Zero is none's.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NtNumber(pub u32);

/// A DAG with its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DagName {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The DAG within the tenant.
    pub dag: DagId,
}

impl fmt::Display for DagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenants/{}/dags/{}", self.tenant, self.dag)
    }
}

/// Name of a DAG in its packets: the row of the DAG table and how often that row was
/// given out, so that a late packet of a deleted DAG is not taken for one of its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DagUid(u32);

impl DagUid {
    /// Bits that name the row; the rest is the incarnation.
    pub const ROW_BITS: u32 = 10;

    /// From row and incarnation; `None` where either does not fit. Incarnations start at 1, so
    /// that no UID is zero.
    pub const fn new(row: u16, incarnation: u32) -> Option<Self> {
        if row >= (1 << Self::ROW_BITS) || incarnation == 0 || incarnation >> 22 != 0 {
            return None;
        }
        Some(Self(incarnation << Self::ROW_BITS | row as u32))
    }

    /// From the number that packets carry.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The number that packets carry.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The row of the DAG table, 0 to 1023.
    pub const fn row(self) -> u16 {
        (self.0 & ((1 << Self::ROW_BITS) - 1)) as u16
    }

    /// Number of times that the row was given out, 1 to 2^22 - 1.
    pub const fn incarnation(self) -> u32 {
        self.0 >> Self::ROW_BITS
    }
}

impl fmt::Display for DagUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A region of a card: 0 to 31, also its port of the crossbar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RegionId(pub u8);

impl RegionId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in a physical chain: 0 to 7, in the order packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u8);

impl Slot {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_labels() {
        for good in ["a", "web-edge", "x9", &"a".repeat(63)] {
            assert_eq!(TenantId::new(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "A", "9a", "-a", "a-", "a_b", "a/b", "a.b", "é", &"a".repeat(64)] {
            let error = TenantId::new(bad).expect_err(bad);
            assert_eq!(error.kind, "tenant");
        }
    }

    #[test]
    fn the_owner_is_part_of_an_nt_type_id() {
        let own = NtTypeId::new("acme.filter").expect("valid");
        assert_eq!(own.owner(), TenantId::new("acme").ok());
        assert!(own.is_owned_by(&TenantId::new("acme").expect("valid")));
        assert_eq!(NtTypeId::new("nat").expect("valid").owner(), None);
        for bad in [".a", "a.", "a.b.c", "a..b", "."] {
            assert!(NtTypeId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_project_has_a_name_that_is_one_part_of_a_key() {
        for good in ["a", "7", "red.example.org", "a-b", &"a".repeat(NAME_CHARS_MAX)] {
            assert_eq!(ProjectId::new(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        let long = "a".repeat(NAME_CHARS_MAX + 1);
        for bad in ["", "A", "-a", "a-", ".a", "a.", "a/b", "a b", "é", &long] {
            let error = ProjectId::new(bad).expect_err(bad);
            assert_eq!((error.kind, error.rule), ("project", NAME_RULE), "{bad}");
        }
    }

    #[test]
    fn serde_refuses_what_new_refuses() {
        assert!(serde_json::from_str::<DagId>("\"web\"").is_ok());
        assert!(serde_json::from_str::<DagId>("\"We b\"").is_err());
    }

    #[test]
    fn a_uid_holds_row_and_incarnation() {
        let uid = DagUid::new(1023, 7).expect("fits");
        assert_eq!((uid.row(), uid.incarnation()), (1023, 7));
        assert_eq!(DagUid::from_raw(uid.raw()), uid);
        assert_eq!(DagUid::new(1024, 1), None);
        assert_eq!(DagUid::new(0, 0), None);
        assert_eq!(DagUid::new(0, 1 << 22), None);
    }

    proptest! {
        #[test]
        fn any_text_is_an_id_or_an_error_that_quotes_it(text in ".{0,100}") {
            match DagId::new(&text) {
                Ok(id) => prop_assert_eq!(id.as_str(), text),
                Err(error) => prop_assert!(text.starts_with(&error.text)),
            }
        }
    }
}
