//! Names of hosts and of where they stand. They become parts of keys in etcd, so each is checked where it is made.

use std::fmt;

use serde::{Deserialize, Serialize};
use snic_domain::{CardId, NAME_RULE, is_name, text_id};

text_id!(
    /// A host, by its name in DNS.
    HostId, "host", is_name, NAME_RULE
);
text_id!(
    /// Hosts that share power or network, so that they may fail together.
    ZoneId, "zone", is_name, NAME_RULE
);
text_id!(
    /// A rack within a zone.
    RackId, "rack", is_name, NAME_RULE
);

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
    use snic_domain::NAME_CHARS_MAX;

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
