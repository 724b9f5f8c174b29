//! Settings of an ESP tunnel.

use std::net::IpAddr;

use serde::Deserialize;

use crate::config::{Field, InvalidConfiguration, IpPrefix, Kind, NON_IP, NonIp, Schema, Secret};

/// SPIs up to 255 are reserved (RFC 4303, section 2.1).
const SPI: Kind = Kind::Integer { min: 256, max: u32::MAX as u64 };
/// A key of 128 or 256 bits and 32 bits of salt.
const KEY: Kind = Kind::Secret { lengths: &[20, 36] };

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "esp",
    version: 1,
    fields: &[
        Field::required("local", Kind::Address, "This end of the tunnel."),
        Field::required("remote", Kind::Address, "The other end."),
        Field::required(
            "local_prefixes",
            Kind::List { max: 64, of: &Kind::Prefix },
            "Who is behind this end.",
        ),
        Field::required(
            "remote_prefixes",
            Kind::List { max: 64, of: &Kind::Prefix },
            "Who is behind the other end.",
        ),
        Field::optional(
            "outbound",
            Kind::Object(&[
                Field::required("spi", SPI, "The index that the other end knows it by."),
                Field::required("key", KEY, "AES key and salt, as RFC 4106 orders them."),
            ]),
            "How packets to the other end are encrypted; without it none is sent.",
        ),
        Field::required(
            "inbound",
            Kind::Objects {
                max: 4,
                fields: &[
                    Field::required("spi", SPI, "The index that this end knows it by."),
                    Field::required("key", KEY, "AES key and salt, as RFC 4106 orders them."),
                    Field::optional(
                        "window",
                        Kind::Integer { min: 32, max: 4_096 },
                        "How far packets may be out of order; 64 by default.",
                    ),
                ],
            },
            "How packets from the other end are decrypted; a second entry lets keys change.",
        ),
        Field::optional(
            "mtu",
            Kind::Integer { min: 1_280, max: 9_216 },
            "The largest IP packet on the way to the other end; 1500 by default. Hosts need an MTU that is 57 lower, over IPv6 77.",
        ),
        Field::optional(
            "other",
            Kind::Choice(&["drop", "forward"]),
            "What happens to IP packets that are not between the prefixes; drop by default.",
        ),
        NON_IP,
    ],
};

#[derive(Debug, Clone, Deserialize)]
pub(super) struct OutboundSettings {
    pub(super) spi: u32,
    pub(super) key: Secret,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct InboundSettings {
    pub(super) spi: u32,
    pub(super) key: Secret,
    #[serde(default = "window_by_default")]
    pub(super) window: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Other {
    #[default]
    Drop,
    Forward,
}

fn window_by_default() -> u32 {
    64
}
fn mtu_by_default() -> usize {
    1_500
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Settings {
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    local_prefixes: Vec<IpPrefix>,
    remote_prefixes: Vec<IpPrefix>,
    pub(super) outbound: Option<OutboundSettings>,
    pub(super) inbound: Vec<InboundSettings>,
    #[serde(default = "mtu_by_default")]
    pub(super) mtu: usize,
    #[serde(default)]
    pub(super) other: Other,
    #[serde(default)]
    pub(super) non_ip: NonIp,
}

impl Settings {
    /// Whether a packet from this address belongs in the tunnel.
    pub(super) fn protects(&self, source: IpAddr, destination: IpAddr) -> bool {
        let among = |prefixes: &[IpPrefix], address| prefixes.iter().any(|p| p.contains(address));
        among(&self.local_prefixes, source) && among(&self.remote_prefixes, destination)
    }

    /// Checks the rules that a schema cannot express.
    pub(super) fn check(&self) -> Result<(), InvalidConfiguration> {
        if self.local.is_ipv4() != self.remote.is_ipv4() {
            let allowed = "an address of the IP version of local";
            return Err(InvalidConfiguration::field("remote", self.remote, allowed));
        }
        for (i, inbound) in self.inbound.iter().enumerate() {
            if self.inbound[..i].iter().any(|other| other.spi == inbound.spi) {
                let field = format!("inbound[{i}].spi");
                return Err(InvalidConfiguration::field(field, inbound.spi, "each index once"));
            }
            let is_shared = self.outbound.as_ref().is_some_and(|out| out.key == inbound.key);
            if is_shared {
                // Both ends count from 1: one key for both directions would use nonces twice.
                let (field, allowed) = (format!("inbound[{i}].key"), "another key than outbound's");
                return Err(InvalidConfiguration::field(field, "the secret", allowed));
            }
        }
        Ok(())
    }
}
