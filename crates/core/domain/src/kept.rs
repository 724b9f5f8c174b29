//! Reservations of a host: functions and bandwidth of its cards that the fleet keeps for tenants.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Bandwidth, CardId, TenantId, VmId};

/// Functions and bandwidth of a card of this host that the fleet keeps for a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptForTenant {
    /// Its number at the fleet.
    pub number: u64,
    /// Rises with each change of it: the time begins again with a higher one.
    pub revision: u64,
    pub tenant: TenantId,
    /// The only machine that it is for; `None`: any of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmId>,
    pub card: CardId,
    pub functions: u32,
    /// Functions of it that machines have taken.
    pub used: u32,
    pub bandwidth: Bandwidth,
    /// Time until it ends.
    pub lasts: Duration,
}

/// State of a reservation on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptState {
    pub revision: u64,
    /// Functions of it that machines have taken.
    pub used: u32,
    /// Its time is over.
    pub is_over: bool,
}

/// Use of this host's functions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionUse {
    /// Functions that machines have, by card.
    pub bound: BTreeMap<CardId, u32>,
    /// Reservations by their number at the fleet.
    pub kept: BTreeMap<u64, KeptState>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation() -> KeptForTenant {
        KeptForTenant {
            number: 7,
            revision: 2,
            tenant: "acme".parse().expect("a label"),
            vm: None,
            card: "card0".parse().expect("a label"),
            functions: 4,
            used: 1,
            bandwidth: Bandwidth::from_gbps(1),
            lasts: Duration::from_secs(30),
        }
    }

    /// Programs one version apart send it to each other, and stores have it.
    #[test]
    fn fields_stay_as_they_are() {
        let value = serde_json::to_value(reservation()).expect("JSON");
        let fields: Vec<&str> =
            value.as_object().expect("an object").keys().map(String::as_str).collect();
        let expected =
            ["bandwidth", "card", "functions", "lasts", "number", "revision", "tenant", "used"];
        assert_eq!(fields.iter().collect::<std::collections::BTreeSet<_>>().len(), 8);
        assert!(expected.iter().all(|field| fields.contains(field)), "{fields:?}");
        let again: KeptForTenant = serde_json::from_value(value).expect("our own");
        assert_eq!(again, reservation());
    }

    #[test]
    fn use_of_functions_is_read_back() {
        let state = KeptState { revision: 2, used: 1, is_over: true };
        let (bound, kept) = ([(reservation().card, 3)].into(), [(7, state)].into());
        let functions = FunctionUse { bound, kept };
        let text = serde_json::to_string(&functions).expect("JSON");
        assert!(text.contains("\"bound\":{\"card0\":3}"), "{text}");
        assert_eq!(serde_json::from_str::<FunctionUse>(&text).expect("our own"), functions);
    }
}
