//! Stations that move between functions at once, as those of virtual routers do.
//!
//! A station belongs to the function that used it first, so that nobody takes another's packets. With VRRP (RFC 9568)
//! and its kind, two hosts share one on purpose: who takes the service over sends from it, and everybody's packets have
//! to follow. So such stations are named, with the functions that may use them; no other function may.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snic_nts::config::Mac;

/// Most stations of one failover.
const MACS_MAX: usize = 64;

/// Stations that some functions share: each of them has the function that sent from it last, or none while a host of the
/// network sends from it. Other functions do not get them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failover {
    /// Ethernet addresses, 1 to 64, each in one failover; for VRRP `00:00:5e:00:01:XX` (IPv4) and `00:00:5e:00:02:XX` (IPv6)
    /// with the number of the virtual router in hexadecimal digits.
    pub macs: Vec<Mac>,
    /// Numbers of the virtual functions that may send from them, each once; one alone shares them with hosts of the network.
    pub functions: Vec<u16>,
}

/// A failover that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value} in failover {number}; allowed: {allowed}")]
pub struct InvalidFailover {
    number: usize,
    field: &'static str,
    value: String,
    allowed: &'static str,
}

impl Failover {
    /// Checks the failovers of a card with so many ports for functions.
    ///
    /// # Errors
    /// A list is empty or too long, an address is named twice, or a function has no port or is named twice.
    pub fn check(failovers: &[Self], functions: usize) -> Result<(), InvalidFailover> {
        let mut known = Vec::new();
        for (number, failover) in failovers.iter().enumerate() {
            let invalid = |field, value: String, allowed| {
                Err(InvalidFailover { number, field, value, allowed })
            };
            let count = failover.macs.len();
            if !(1..=MACS_MAX).contains(&count) {
                return invalid("macs", format!("a list of {count}"), "1 to 64 addresses");
            }
            for mac in &failover.macs {
                if known.contains(mac) {
                    return invalid("macs", mac.to_string(), "each address once, in one failover");
                }
                known.push(*mac);
            }
            if failover.functions.is_empty() {
                return invalid("functions", "a list of 0".to_owned(), "at least one function");
            }
            for (at, function) in failover.functions.iter().enumerate() {
                let is_twice = failover.functions[..at].contains(function);
                if is_twice || usize::from(*function) >= functions {
                    let allowed = "functions whose ports are listed, counted from 0, each once";
                    return invalid("functions", function.to_string(), allowed);
                }
            }
        }
        Ok(())
    }

    /// The functions that may use each station.
    pub(crate) fn by_station(failovers: &[Self]) -> BTreeMap<[u8; 6], Vec<u16>> {
        let of = |failover: &Self| {
            let functions = failover.functions.clone();
            failover.macs.iter().map(move |mac| (mac.0, functions.clone())).collect::<Vec<_>>()
        };
        failovers.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failover(macs: &[[u8; 6]], functions: &[u16]) -> Failover {
        Failover { macs: macs.iter().map(|mac| Mac(*mac)).collect(), functions: functions.to_vec() }
    }

    #[test]
    fn failovers_that_cannot_be_meant_are_refused() {
        const ROUTER: [u8; 6] = [0, 0, 0x5E, 0, 1, 51];
        let good = failover(&[ROUTER, [0, 0, 0x5E, 0, 2, 51]], &[0, 1]);
        assert_eq!(Failover::check(std::slice::from_ref(&good), 2), Ok(()));
        let text = serde_json::to_string(&good).expect("it has a text");
        assert!(text.contains("00:00:5e:00:01:33"), "{text}");
        assert_eq!(serde_json::from_str::<Failover>(&text).expect("its own text"), good);
        for (wrong, said) in [
            (vec![failover(&[], &[0])], "macs = a list of 0 in failover 0"),
            (
                vec![good.clone(), failover(&[ROUTER], &[0])],
                "in failover 1; allowed: each address once",
            ),
            (vec![failover(&[ROUTER], &[])], "functions = a list of 0"),
            (vec![failover(&[ROUTER], &[0, 0])], "each once"),
            (vec![failover(&[ROUTER], &[2])], "functions = 2 in failover 0"),
        ] {
            let error = Failover::check(&wrong, 2).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
