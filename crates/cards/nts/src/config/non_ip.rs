//! Frames other than IP that an NT lets through: ARP, and EtherTypes that are named.

use std::str::FromStr;

use etherparse::EtherType;
use serde::Deserialize;

use super::InvalidValue;
use crate::wire::{ETHER_TYPE_MIN, is_tag};

/// Most entries of a list: each frame other than IP is compared with all of them.
const ENTRIES_MAX: usize = 16;

/// The frames other than IP that pass.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenNonIp")]
pub(crate) struct NonIp {
    arp: bool,
    ether_types: Vec<EtherType>,
}

impl Default for NonIp {
    fn default() -> Self {
        Self { arp: true, ether_types: Vec::new() }
    }
}

impl NonIp {
    /// The values that are accepted.
    pub(super) const ALLOWED: &'static str = "\"accept\" for ARP alone, \"drop\", or a list of at most 16 of \"arp\" and \
         EtherTypes from \"0x0600\" on, other than those of IP and of VLAN tags, which NTs read";

    /// Whether ARP passes.
    pub(crate) const fn has_arp(&self) -> bool {
        self.arp
    }

    /// Whether ARP passes, and the numbers of the EtherTypes that do.
    pub(super) fn parts(&self) -> (bool, Vec<u32>) {
        (self.arp, self.ether_types.iter().map(|ether_type| ether_type.0.into()).collect())
    }

    /// Whether frames of this EtherType pass.
    pub(crate) fn names(&self, ether_type: EtherType) -> bool {
        self.ether_types.contains(&ether_type)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenNonIp {
    Word(String),
    List(Vec<String>),
}

impl TryFrom<WrittenNonIp> for NonIp {
    type Error = InvalidValue;

    fn try_from(written: WrittenNonIp) -> Result<Self, InvalidValue> {
        let none = Self { arp: false, ether_types: Vec::new() };
        match written {
            WrittenNonIp::Word(word) => match word.as_str() {
                "accept" => Ok(Self::default()),
                "drop" => Ok(none),
                _ => Err(InvalidValue(Self::ALLOWED)),
            },
            WrittenNonIp::List(entries) if entries.len() <= ENTRIES_MAX => {
                entries.iter().try_fold(none, |mut all, entry| {
                    match entry.as_str() {
                        "arp" => all.arp = true,
                        number => all.ether_types.push(number.parse::<NamedEtherType>()?.0),
                    }
                    Ok(all)
                })
            }
            WrittenNonIp::List(_) => Err(InvalidValue(Self::ALLOWED)),
        }
    }
}

/// An EtherType that may be named, written `0x88b5`.
struct NamedEtherType(EtherType);

impl FromStr for NamedEtherType {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let digits = text.strip_prefix("0x").filter(|digits| {
            digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        let number = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let ether_type = number.filter(|number| *number >= ETHER_TYPE_MIN).map(EtherType);
        ether_type.filter(|of| !is_read(*of)).map(Self).ok_or(InvalidValue(NonIp::ALLOWED))
    }
}

/// Whether NTs read what has this EtherType: naming it would let through what they could not read.
fn is_read(ether_type: EtherType) -> bool {
    let is_ip = matches!(ether_type, EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP);
    is_ip || is_tag(ether_type.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<NonIp, serde_json::Error> {
        serde_json::from_value(value)
    }

    #[test]
    fn what_passes_is_named() {
        assert_eq!(read(json!("accept")).unwrap(), NonIp::default());
        let named = read(json!(["arp", "0x88B5"])).unwrap();
        assert!(named.has_arp() && named.names(EtherType(0x88B5)));
        assert!(!named.names(EtherType(0x8847)));
        for none in [json!("drop"), json!([])] {
            assert!(!read(none).unwrap().has_arp());
        }
        let only = read(json!(["0x8847"])).unwrap();
        assert!(!only.has_arp() && only.names(EtherType(0x8847)));
    }

    #[test]
    fn what_nts_read_cannot_be_named() {
        for wrong in [
            json!("all"),
            json!(["0x0800"]),
            json!(["0x86dd"]),
            json!(["0x0806"]),
            json!(["0x8100"]),
            json!(["0x88a8"]),
            json!(["0x9100"]),
            json!(["0x05ff"]),
            json!(["88b5"]),
            json!(["0x88b"]),
            json!(["0x+8b5"]),
            json!(["drop"]),
            json!(vec!["arp"; 17]),
            json!(34_997),
            json!({"arp": true}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
