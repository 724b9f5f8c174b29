//! Settings of a load balancer.

use std::net::IpAddr;

use serde::Deserialize;

use crate::config::{Field, InvalidConfiguration, Kind, NON_IP, NonIp, Schema};
use crate::tasks::tracking::{LIFETIMES, Lifetimes};
use crate::wire::{Endpoint, protocol};

const PORT: Kind = Kind::Integer { min: 1, max: 65_535 };
/// Most services: each has a look-up table.
const SERVICES_MAX: usize = 16;
/// Most backends of a service: a table of the default size gives each 8 slots or more.
const BACKENDS_MAX: usize = 512;
/// Most flows: their saved state fits the save area.
const FLOWS_MAX: u64 = 131_072;

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "load-balancer",
    version: 1,
    fields: &[
        Field::required(
            "services",
            Kind::Objects {
                max: SERVICES_MAX,
                fields: &[
                    Field::required("address", Kind::Address, "The address that clients use."),
                    Field::required("protocol", Kind::Choice(&["tcp", "udp"]), "The transport."),
                    Field::required("port", PORT, "The port that clients use."),
                    Field::required(
                        "backends",
                        Kind::Objects {
                            max: BACKENDS_MAX,
                            fields: &[
                                Field::required("address", Kind::Address, "The backend."),
                                Field::required("port", PORT, "Its port."),
                                Field::optional(
                                    "weight",
                                    Kind::Integer { min: 0, max: 100 },
                                    "Its share relative to others; 0 takes no new flows; 1 by default.",
                                ),
                            ],
                        },
                        "Where flows go.",
                    ),
                ],
            },
            "The services.",
        ),
        Field::optional(
            "table",
            Kind::Choice(&["251", "1021", "4093", "65537"]),
            "Slots of the look-up table of each service, a prime of 100 times the backends or more; 4093 by default.",
        ),
        Field::optional(
            "flows_max",
            Kind::Integer { min: 1, max: FLOWS_MAX },
            "Flows at once; further ones are dropped; 16384 by default.",
        ),
        Field::optional(
            "unmatched",
            Kind::Choice(&["forward", "drop"]),
            "What becomes of packets from the port of a backend that answer no flow of its service, such as answers to a health check: forward, as they are (default), or drop.",
        ),
        NON_IP,
        LIFETIMES,
    ],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// Fate of packets of a backend that are no answers in the name of its service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unmatched {
    #[default]
    Forward,
    Drop,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Backend {
    address: IpAddr,
    port: u16,
    #[serde(default = "one")]
    pub(super) weight: u16,
}

impl Backend {
    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.address, port: self.port }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Service {
    address: IpAddr,
    protocol: Transport,
    port: u16,
    pub(super) backends: Vec<Backend>,
}

impl Service {
    pub(super) fn protocol(&self) -> u8 {
        match self.protocol {
            Transport::Tcp => protocol::TCP,
            Transport::Udp => protocol::UDP,
        }
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.address, port: self.port }
    }
}

fn one() -> u16 {
    1
}
fn flows_by_default() -> usize {
    16_384
}
fn table_by_default() -> String {
    "4093".to_owned()
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Settings {
    pub(super) services: Vec<Service>,
    #[serde(default = "table_by_default")]
    table: String,
    #[serde(default = "flows_by_default")]
    pub(super) flows_max: usize,
    #[serde(default)]
    pub(super) unmatched: Unmatched,
    #[serde(default)]
    pub(super) lifetimes: Lifetimes,
    #[serde(default)]
    pub(super) non_ip: NonIp,
}

impl Settings {
    pub(super) fn slots(&self) -> usize {
        self.table.parse().expect("the schema lists numbers only")
    }

    /// Checks the rules that a schema cannot express.
    pub(super) fn check(&self) -> Result<(), InvalidConfiguration> {
        let mut services = Vec::new();
        let mut backends = Vec::new();
        for (i, service) in self.services.iter().enumerate() {
            let field = format!("services[{i}]");
            let name = (service.protocol(), service.endpoint());
            if services.contains(&name) {
                let allowed = "each address, protocol and port once";
                return Err(InvalidConfiguration::field(field, "a second service", allowed));
            }
            services.push(name);
            for (j, backend) in service.backends.iter().enumerate() {
                let field = format!("{field}.backends[{j}]");
                if backend.address.is_ipv4() != service.address.is_ipv4() {
                    let allowed = "an address of the service's IP version";
                    return Err(InvalidConfiguration::field(field, backend.address, allowed));
                }
                backends.push((service.protocol(), backend.endpoint(), field));
            }
        }
        // Packets from backends are matched by their endpoint alone.
        backends.sort_by_key(|(protocol, endpoint, _)| (*protocol, *endpoint));
        let twice =
            backends.windows(2).find(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
        if let Some([_, (_, _, field)]) = twice {
            let allowed = "each endpoint in one service, once";
            return Err(InvalidConfiguration::field(
                field,
                "an endpoint that is listed already",
                allowed,
            ));
        }
        let is_service = |(protocol, endpoint, _): &&(u8, Endpoint, String)| {
            services.contains(&(*protocol, *endpoint))
        };
        match backends.iter().find(is_service) {
            Some((_, _, field)) => {
                let allowed = "endpoints that are no service";
                Err(InvalidConfiguration::field(field, "the endpoint of a service", allowed))
            }
            None => Ok(()),
        }
    }
}
