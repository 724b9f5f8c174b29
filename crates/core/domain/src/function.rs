//! Virtual functions of a card: which there are, and how the host sees them.
//!
//! A function's PCI address follows from the physical function's by the rule of the SR-IOV
//! capability (PCI Express Base Specification, "VF Discovery"): routing ids, that is bus, device
//! and function as one 16-bit number, are added.
//!
//! ```text
//! address of function n = address of the physical function + first_offset + n * stride
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Digest;

/// A PCI address, written `0000:3b:00.4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// The PCI domain (segment).
    pub domain: u16,
    /// Bus, device and function: 8, 5 and 3 bits.
    pub routing_id: u16,
}

/// A text that is not a valid PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a PCI address: expected domain:bus:device.function in hexadecimal, device at most \
     1f and function at most 7, e.g. 0000:3b:00.0"
)]
pub struct InvalidPciAddress(pub String);

impl FromStr for PciAddress {
    type Err = InvalidPciAddress;

    fn from_str(text: &str) -> Result<Self, InvalidPciAddress> {
        parse(text).ok_or_else(|| InvalidPciAddress(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let hex = |digits: &str, count: usize, most: u16| {
        let plain = digits.len() == count && digits.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u16::from_str_radix(digits, 16).ok()).flatten().filter(|n| *n <= most)
    };
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let routing_id = hex(bus, 2, 0xFF)? << 8 | hex(device, 2, 0x1F)? << 3 | hex(function, 1, 7)?;
    Some(PciAddress { domain: hex(domain, 4, u16::MAX)?, routing_id })
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bus, device) = (self.routing_id >> 8, self.routing_id >> 3 & 0x1F);
        write!(f, "{:04x}:{bus:02x}:{device:02x}.{:x}", self.domain, self.routing_id & 7)
    }
}

impl TryFrom<String> for PciAddress {
    type Error = InvalidPciAddress;

    fn try_from(text: String) -> Result<Self, InvalidPciAddress> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

/// An Ethernet address, written `02:1f:c4:77:00:03`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The address of a card's function: locally administered and unicast (`02`), three bytes from
    /// the SHA-256 digest of `scope`, which names store and card, and the function's number. So
    /// functions of one card never collide, and a function keeps its address.
    pub fn of_function(scope: &str, function: u16) -> Self {
        let [word, ..] = Digest::of(scope.as_bytes()).words();
        let ([a, b, c, _], [high, low]) = (word.to_be_bytes(), function.to_be_bytes());
        Self([0x02, a, b, c, high, low])
    }
}

/// A text that is not the Ethernet address of one station.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the Ethernet address of one station (expected e.g. 02:1f:c4:77:00:03)")]
pub struct InvalidMacAddress(pub String);

impl FromStr for MacAddress {
    type Err = InvalidMacAddress;

    fn from_str(text: &str) -> Result<Self, InvalidMacAddress> {
        let invalid = || InvalidMacAddress(text.chars().take(80).collect());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2);
            let part = part.filter(|part| part.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *byte = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or_else(invalid)?;
        }
        let is_station = bytes[0] & 1 == 0 && bytes != [0; 6];
        if parts.next().is_some() || !is_station { Err(invalid()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The virtual functions of a card, as the host has enabled them: in `sysfs` the files
/// `sriov_numvfs`, `sriov_offset` and `sriov_stride` of the physical function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtualFunctions {
    /// Where the card itself is.
    pub physical_function: PciAddress,
    /// Number of functions; they are numbered from 0, as in classification rules.
    pub count: u16,
    /// Routing ids from the physical function to function 0; at least 1.
    pub first_offset: u16,
    /// Routing ids from one function to the next; at least 1.
    pub stride: u16,
}

impl VirtualFunctions {
    /// The address of a function; `None` where there is no such function, or it has no address.
    pub fn address(&self, function: u16) -> Option<PciAddress> {
        let steps = function.checked_mul(self.stride)?.checked_add(self.first_offset)?;
        let routing_id = self.physical_function.routing_id.checked_add(steps)?;
        let distinct = self.first_offset > 0 && self.stride > 0;
        (function < self.count && distinct)
            .then_some(PciAddress { routing_id, ..self.physical_function })
    }

    /// Whether every function has a distinct address.
    pub fn is_valid(&self) -> bool {
        self.count == 0 || self.address(self.count - 1).is_some()
    }

    /// Whether some address belongs to both. Time O(functions).
    pub fn overlaps(&self, other: &Self) -> bool {
        let own = |of: &Self| {
            let of = *of;
            let functions = (0..of.count).filter_map(move |function| of.address(function));
            functions.chain([of.physical_function])
        };
        let theirs: std::collections::BTreeSet<PciAddress> = own(other).collect();
        own(self).any(|address| theirs.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn functions(count: u16, first_offset: u16, stride: u16) -> VirtualFunctions {
        let physical_function = "0000:3b:00.0".parse().expect("an address");
        VirtualFunctions { physical_function, count, first_offset, stride }
    }

    #[test]
    fn addresses_follow_the_capability() {
        let all = functions(64, 4, 1);
        let address = |n| all.address(n).map(|address| address.to_string());
        assert_eq!(address(0).as_deref(), Some("0000:3b:00.4"));
        assert_eq!(address(4).as_deref(), Some("0000:3b:01.0"), "functions go on in devices");
        assert_eq!(address(63).as_deref(), Some("0000:3b:08.3"));
        assert_eq!(address(64), None);
        let far = functions(3, 0x80, 0x80);
        assert_eq!(far.address(1).expect("the next bus").to_string(), "0000:3c:00.0");
    }

    #[test]
    fn function_layouts_with_equal_addresses_are_invalid() {
        assert!(functions(0, 0, 0).is_valid(), "no functions, no addresses");
        for (count, offset, stride) in [(2, 0, 1), (2, 1, 0), (2, 0xFFFF, 1), (0xFFFF, 1, 1)] {
            assert!(!functions(count, offset, stride).is_valid(), "{count} {offset} {stride}");
        }
    }

    #[test]
    fn cards_that_share_an_address_are_found() {
        let (a, mut b) = (functions(8, 1, 1), functions(8, 1, 1));
        assert!(a.overlaps(&b));
        b.physical_function = "0000:3b:01.0".parse().expect("an address");
        assert!(a.overlaps(&b), "function 7 of the one is the other");
        b.physical_function = "0000:5e:00.0".parse().expect("an address");
        assert!(!a.overlaps(&b));
    }

    #[test]
    fn a_mac_address_is_local_unicast_and_keeps() {
        let mac = MacAddress::of_function("secret/card0", 0x0103);
        assert_eq!(mac, MacAddress::of_function("secret/card0", 0x0103));
        assert_eq!((mac.0[0] & 3, mac.0[4], mac.0[5]), (2, 1, 3));
        assert_ne!(mac, MacAddress::of_function("secret/card1", 0x0103));
        assert_eq!(MacAddress([2, 0x1F, 0xC4, 0x77, 0, 3]).to_string(), "02:1f:c4:77:00:03");
    }

    #[test]
    fn only_addresses_of_stations_are_read_as_mac_addresses() {
        let mac: MacAddress = "02:1F:c4:77:00:03".parse().expect("an address");
        assert_eq!(mac.to_string(), "02:1f:c4:77:00:03");
        for bad in [
            "",
            "02:1f:c4:77:00",
            "02:1f:c4:77:00:03:04",
            "021fc4770003",
            "02-1f-c4-77-00-03",
            "2:1f:c4:77:00:03",
            "+2:1f:c4:77:00:03",
            "03:1f:c4:77:00:03",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
        ] {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_addresses_are_addresses() {
        for bad in ["", "3b:00.0", "0000:3b:20.0", "0000:3b:00.8", "0000:3b:0.0", "+000:3b:00.0"] {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_address_is_read_back(domain: u16, routing_id: u16) {
            let address = PciAddress { domain, routing_id };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
}
