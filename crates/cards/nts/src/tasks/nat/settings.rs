//! Settings of a NAT.

use std::net::IpAddr;

use serde::Deserialize;

use crate::config::{
    Field, InvalidConfiguration, IpPrefix, Kind, NON_IP, NonIp, PortRange, Schema,
};
use crate::tasks::tracking::{LIFETIMES, Lifetimes};
use crate::wire::{Endpoint, protocol};

/// Most sessions: their saved state fits the save area.
const SESSIONS_MAX: u64 = 65_536;
/// Most external addresses.
pub(super) const EXTERNAL_MAX: usize = 16;
const PORT: Kind = Kind::Integer { min: 1, max: 65_535 };

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "nat",
    version: 1,
    fields: &[
        Field::required(
            "inside",
            Kind::List { max: 64, of: &Kind::Prefix },
            "The prefixes that are translated.",
        ),
        Field::required(
            "external",
            Kind::List { max: EXTERNAL_MAX, of: &Kind::Address },
            "The addresses that stand for them outside; each IP version of inside needs one.",
        ),
        Field::optional("ports", Kind::Ports, "The external ports to use; 1024-65535 by default."),
        Field::optional(
            "forwards",
            Kind::Objects {
                max: 1_024,
                fields: &[
                    Field::required("protocol", Kind::Choice(&["tcp", "udp"]), "The transport."),
                    Field::required("external", Kind::Address, "The external address."),
                    Field::required("external_port", PORT, "The external port."),
                    Field::required("inside", Kind::Address, "The host behind it."),
                    Field::required("inside_port", PORT, "Its port."),
                ],
            },
            "External ports that lead to a host inside without it having sent anything.",
        ),
        Field::optional(
            "filtering",
            Kind::Choice(&["address-and-port-dependent", "endpoint-independent"]),
            "Who outside may answer: only whom the host has sent to (default), or anyone.",
        ),
        Field::optional(
            "sessions_max",
            Kind::Integer { min: 1, max: SESSIONS_MAX },
            "Sessions at once; 16384 by default.",
        ),
        NON_IP,
        LIFETIMES,
    ],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Filtering {
    #[default]
    AddressAndPortDependent,
    EndpointIndependent,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Forward {
    protocol: Transport,
    external: IpAddr,
    external_port: u16,
    inside: IpAddr,
    inside_port: u16,
}

impl Forward {
    pub(super) fn protocol(&self) -> u8 {
        match self.protocol {
            Transport::Tcp => protocol::TCP,
            Transport::Udp => protocol::UDP,
        }
    }

    pub(super) fn external(&self) -> Endpoint {
        Endpoint { address: self.external, port: self.external_port }
    }

    pub(super) fn inside(&self) -> Endpoint {
        Endpoint { address: self.inside, port: self.inside_port }
    }
}

fn ports_by_default() -> PortRange {
    PortRange { first: 1_024, last: u16::MAX }
}
fn sessions_by_default() -> usize {
    16_384
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Settings {
    pub(super) inside: Vec<IpPrefix>,
    pub(super) external: Vec<IpAddr>,
    #[serde(default = "ports_by_default")]
    pub(super) ports: PortRange,
    #[serde(default)]
    pub(super) forwards: Vec<Forward>,
    #[serde(default)]
    pub(super) filtering: Filtering,
    #[serde(default = "sessions_by_default")]
    pub(super) sessions_max: usize,
    #[serde(default)]
    pub(super) non_ip: NonIp,
    #[serde(default)]
    pub(super) lifetimes: Lifetimes,
}

impl Settings {
    pub(super) fn is_inside(&self, address: IpAddr) -> bool {
        self.inside.iter().any(|prefix| prefix.contains(address))
    }

    pub(super) fn is_external(&self, address: IpAddr) -> bool {
        self.external.contains(&address)
    }

    /// Checks the rules that a schema cannot express.
    pub(super) fn check(&self) -> Result<(), InvalidConfiguration> {
        let wrong = |field: String, value: &dyn ToString, allowed: &str| {
            Err(InvalidConfiguration::field(field, value.to_string(), allowed))
        };
        if self.inside.is_empty() {
            return wrong("inside".to_owned(), &"an empty list", "at least one prefix");
        }
        for (i, prefix) in self.inside.iter().enumerate() {
            if !self.external.iter().any(|address| address.is_ipv4() == prefix.is_ipv4()) {
                let allowed = "prefixes of IP versions that have an address in external";
                return wrong(format!("inside[{i}]"), prefix, allowed);
            }
        }
        if let Some(i) = self.external.iter().position(|address| self.is_inside(*address)) {
            let allowed = "addresses outside of the prefixes of inside";
            return wrong(format!("external[{i}]"), &self.external[i], allowed);
        }
        for (i, forward) in self.forwards.iter().enumerate() {
            if !self.is_external(forward.external) {
                let allowed = "one of the addresses of external";
                return wrong(format!("forwards[{i}].external"), &forward.external, allowed);
            }
            let is_reachable = self.is_inside(forward.inside)
                && forward.inside.is_ipv4() == forward.external.is_ipv4();
            if !is_reachable {
                let allowed = "an address of inside, of the IP version of external";
                return wrong(format!("forwards[{i}].inside"), &forward.inside, allowed);
            }
            let before = &self.forwards[..i];
            if before.iter().any(|other| {
                other.protocol == forward.protocol
                    && (other.external() == forward.external()
                        || other.inside() == forward.inside())
            }) {
                let allowed = "each external and each inside endpoint once";
                return wrong(format!("forwards[{i}]"), &"a second forward", allowed);
            }
        }
        Ok(())
    }
}
