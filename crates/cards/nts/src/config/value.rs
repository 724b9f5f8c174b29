//! Values of configurations that JSON has no type for, written as text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use snic_domain::Digest;

/// A text that does not parse as a value of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not {0}")]
pub struct InvalidValue(pub &'static str);

/// An IPv4 or IPv6 prefix, written `10.0.0.0/8` or `2001:db8::/32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpPrefix {
    address: IpAddr,
    length: u8,
}

impl IpPrefix {
    pub const ALLOWED: &'static str = "an IPv4 or IPv6 prefix without bits behind its length, such as 10.0.0.0/8 or 2001:db8::/32";

    /// Its first address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Number of leading bits that it fixes.
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// Whether it is IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether `address` is of the same family and begins with the prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let differing = (ours.to_bits() ^ other.to_bits()).leading_zeros();
                differing >= u32::from(self.length)
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let differing = (ours.to_bits() ^ other.to_bits()).leading_zeros();
                differing >= u32::from(self.length)
            }
            _ => false,
        }
    }
}

impl FromStr for IpPrefix {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let invalid = InvalidValue(Self::ALLOWED);
        let (address, length) = text.split_once('/').ok_or(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid)?;
        let length = decimal(length).and_then(|length| u8::try_from(length).ok()).ok_or(invalid)?;
        let is_clean = match address {
            IpAddr::V4(v4) => {
                length <= 32 && v4.to_bits().checked_shl(length.into()).unwrap_or(0) == 0
            }
            IpAddr::V6(v6) => {
                length <= 128 && v6.to_bits().checked_shl(length.into()).unwrap_or(0) == 0
            }
        };
        if is_clean { Ok(Self { address, length }) } else { Err(invalid) }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// An Ethernet address of one station, written `02:1f:c4:77:00:03`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    pub const ALLOWED: &'static str =
        "the Ethernet address of one station, such as 02:00:00:00:00:01";
}

impl FromStr for Mac {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let invalid = InvalidValue(Self::ALLOWED);
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(invalid)?;
            let is_hex = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex).ok_or(invalid)?;
        }
        let is_station = bytes[0] & 1 == 0 && bytes != [0; 6];
        if parts.next().is_none() && is_station { Ok(Self(bytes)) } else { Err(invalid) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Ports from a first to a last, written `80` or `1000-2000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    /// The lowest port.
    pub first: u16,
    /// The highest port, itself included.
    pub last: u16,
}

impl PortRange {
    pub const ALLOWED: &'static str =
        "a port or a range from a lower to a higher one, such as \"80\" or \"1000-2000\"";

    /// Whether `port` is among them.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for PortRange {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (decimal(first), decimal(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(InvalidValue(Self::ALLOWED)),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Digits only: no sign, no space.
fn decimal(text: &str) -> Option<u16> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Bytes that go in and never come out, written as hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Secret(Vec<u8>);

impl Secret {
    pub const ALLOWED: &'static str = "an even number of hexadecimal digits";

    /// The bytes, for the code that uses them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Digest that may be shown in place of the key.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

impl FromStr for Secret {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let digits = text.as_bytes();
        let is_hex = digits.len().is_multiple_of(2) && digits.iter().all(u8::is_ascii_hexdigit);
        if !is_hex {
            return Err(InvalidValue(Self::ALLOWED));
        }
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16);
        let bytes: Result<_, _> = (0..digits.len()).step_by(2).map(byte).collect();
        bytes.map(Self).map_err(|_| InvalidValue(Self::ALLOWED))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(sha256:{})", self.digest())
    }
}

/// Serde goes through the text.
macro_rules! from_text {
    ($($name:ident)*) => {$(
        impl TryFrom<String> for $name {
            type Error = InvalidValue;
            fn try_from(text: String) -> Result<Self, InvalidValue> {
                text.parse()
            }
        }
    )*};
}

macro_rules! into_text {
    ($($name:ident)*) => {$(
        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}

from_text!(IpPrefix Mac PortRange Secret);
into_text!(IpPrefix Mac PortRange);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_their_addresses() {
        let ten: IpPrefix = "10.0.0.0/8".parse().unwrap();
        assert!(ten.contains("10.255.0.1".parse().unwrap()));
        assert!(!ten.contains("11.0.0.0".parse().unwrap()));
        assert!(!ten.contains("::ffff:10.0.0.1".parse().unwrap()));
        let all: IpPrefix = "::/0".parse().unwrap();
        assert!(all.contains("::1".parse().unwrap()) && !all.contains("1.2.3.4".parse().unwrap()));
        let host: IpPrefix = "2001:db8::1/128".parse().unwrap();
        assert!(host.contains("2001:db8::1".parse().unwrap()));
        assert!(!host.contains("2001:db8::2".parse().unwrap()));
        for bad in ["10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/+8", "/8", "x/8"] {
            assert!(bad.parse::<IpPrefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_and_addresses_are_read_as_they_are_written() {
        for text in ["80", "0-65535", "1000-2000"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        for bad in ["", "-", "80-", "2-1", "65536", "+1", "1 - 2"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad}");
        }
        assert_eq!("02:1f:c4:77:00:03".parse::<Mac>().unwrap().to_string(), "02:1f:c4:77:00:03");
        for bad in ["ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "1:2:3:4:5:6", "02:00:00:00:00", ""] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secret: Secret = "00ff10".parse().unwrap();
        assert_eq!(secret.expose(), [0, 255, 16]);
        assert!(!format!("{secret:?}").contains("00ff10"));
        for bad in ["0", "0g", "éé"] {
            assert!(bad.parse::<Secret>().is_err(), "{bad}");
        }
    }
}
