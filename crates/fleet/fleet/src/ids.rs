//! Names of hosts and of where they stand. They become parts of keys in etcd, so each is checked where it is made.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};
use snic_domain::CardId;

/// Longest name, in characters: that of a host name in DNS.
pub const NAME_CHARS_MAX: usize = 253;

/// A text that is not a valid name of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a {kind} name: 1 to {NAME_CHARS_MAX} of a-z, 0-9, '-' and '.', a letter or digit first and last"
)]
pub struct InvalidHostName {
    /// Kind of thing that was to be named.
    pub kind: &'static str,
    /// The text, cut to 80 characters.
    pub text: String,
}

fn is_name(text: &str) -> bool {
    let (is_end, bytes) = (|b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit(), text.as_bytes());
    bytes.len() <= NAME_CHARS_MAX
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|b| is_end(b) || matches!(b, b'-' | b'.'))
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks the text.
            ///
            /// # Errors
            ///
            /// [`InvalidHostName`] with the kind of name and the text.
            pub fn new(text: &str) -> Result<Self, InvalidHostName> {
                if is_name(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(InvalidHostName { kind: $kind, text: text.chars().take(80).collect() })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidHostName;
            fn try_from(text: String) -> Result<Self, InvalidHostName> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.into()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )*};
}

names! {
    /// A host, by its name in DNS.
    HostId, "host";
    /// Hosts that share power or network, so that they may fail together.
    ZoneId, "zone";
    /// A rack within a zone.
    RackId, "rack";
    /// A project: tenants that share a quota.
    ProjectId, "project";
}

/// A card of the fleet: ids of cards are unique within their host only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FleetCard {
    /// The host that it is in.
    pub host: HostId,
    /// The card within its host.
    pub card: CardId,
}

impl fmt::Display for FleetCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hosts/{}/cards/{}", self.host, self.card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_key() {
        for good in ["a", "7", "r1", "node-4.rack2.example.org", &"a".repeat(NAME_CHARS_MAX)] {
            assert_eq!(HostId::new(good).map(|host| host.to_string()), Ok(good.to_owned()));
        }
        let long = "a".repeat(NAME_CHARS_MAX + 1);
        for bad in ["", "A", "-a", "a-", ".a", "a.", "a/b", "a b", "é", &long] {
            let wrong = ZoneId::new(bad).expect_err(bad);
            assert_eq!(wrong.kind, "zone");
            assert!(serde_json::from_value::<RackId>(bad.into()).is_err(), "{bad}");
        }
    }
}
