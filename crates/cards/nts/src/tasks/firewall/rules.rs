//! The rules: ordered, the first that matches decides.

use serde::Deserialize;

use crate::config::{
    Field, InvalidConfiguration, IpPrefix, Kind, NON_IP, NonIp, PortRange, Schema,
};
use crate::tasks::tracking::{LIFETIMES, Lifetimes};
use crate::wire::{Flow, protocol};

/// Most rules: each packet that opens a flow is compared with up to all of them.
const RULES_MAX: usize = 1_024;
/// Most flows: their saved state fits the save area.
const FLOWS_MAX: u64 = 131_072;

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "firewall",
    version: 1,
    fields: &[
        Field::required(
            "rules",
            Kind::Objects {
                max: RULES_MAX,
                fields: &[
                    Field::required(
                        "action",
                        Kind::Choice(&["accept", "drop"]),
                        "What it decides.",
                    ),
                    Field::optional(
                        "protocol",
                        Kind::Choice(&["tcp", "udp", "icmp", "esp", "any"]),
                        "The transport; icmp stands for ICMPv6 too; any by default.",
                    ),
                    Field::optional("source", Kind::Prefix, "Who sends; anyone by default."),
                    Field::optional(
                        "destination",
                        Kind::Prefix,
                        "Who receives; anyone by default.",
                    ),
                    Field::optional(
                        "source_ports",
                        Kind::Ports,
                        "From which ports; any by default.",
                    ),
                    Field::optional(
                        "destination_ports",
                        Kind::Ports,
                        "To which ports; any by default.",
                    ),
                ],
            },
            "The rules in order: the first that matches decides.",
        ),
        Field::optional(
            "default",
            Kind::Choice(&["accept", "drop"]),
            "What happens where no rule matches; drop by default.",
        ),
        Field::optional(
            "stateful",
            Kind::Flag,
            "Whether replies to accepted packets pass without a rule; true by default.",
        ),
        Field::optional(
            "pick_up",
            Kind::Flag,
            "Whether TCP connections that were opened elsewhere may go on; false by default.",
        ),
        NON_IP,
        Field::optional(
            "flows_max",
            Kind::Integer { min: 1, max: FLOWS_MAX },
            "Flows that are remembered at once; 16384 by default.",
        ),
        LIFETIMES,
    ],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Action {
    Accept,
    Drop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Transport {
    Tcp,
    Udp,
    Icmp,
    Esp,
    #[default]
    Any,
}

impl Transport {
    fn matches(self, number: u8) -> bool {
        match self {
            Self::Tcp => number == protocol::TCP,
            Self::Udp => number == protocol::UDP,
            Self::Icmp => matches!(number, protocol::ICMP | protocol::ICMPV6),
            Self::Esp => number == protocol::ESP,
            Self::Any => true,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Rule {
    action: Action,
    #[serde(default)]
    protocol: Transport,
    source: Option<IpPrefix>,
    destination: Option<IpPrefix>,
    source_ports: Option<PortRange>,
    destination_ports: Option<PortRange>,
}

impl Rule {
    fn matches(&self, flow: &Flow) -> bool {
        fn all_or<T>(wanted: Option<&T>, holds: impl FnOnce(&T) -> bool) -> bool {
            wanted.is_none_or(holds)
        }
        self.protocol.matches(flow.protocol)
            && all_or(self.source.as_ref(), |prefix| prefix.contains(flow.source))
            && all_or(self.destination.as_ref(), |prefix| prefix.contains(flow.destination))
            && all_or(self.source_ports.as_ref(), |ports| ports.contains(flow.source_port))
            && all_or(self.destination_ports.as_ref(), |ports| {
                ports.contains(flow.destination_port)
            })
    }
}

fn drop_by_default() -> Action {
    Action::Drop
}
fn yes() -> bool {
    true
}
fn flows_by_default() -> usize {
    16_384
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Settings {
    pub(super) rules: Vec<Rule>,
    #[serde(default = "drop_by_default")]
    pub(super) default: Action,
    #[serde(default = "yes")]
    pub(super) stateful: bool,
    #[serde(default)]
    pub(super) pick_up: bool,
    #[serde(default)]
    pub(super) non_ip: NonIp,
    #[serde(default = "flows_by_default")]
    pub(super) flows_max: usize,
    #[serde(default)]
    pub(super) lifetimes: Lifetimes,
}

impl Settings {
    /// The decision of the rules on the first packet of a flow.
    pub(super) fn decide(&self, flow: &Flow) -> Action {
        let first = self.rules.iter().find(|rule| rule.matches(flow));
        first.map_or(self.default, |rule| rule.action)
    }

    /// Checks the rules that a schema cannot express: fields of a rule that exclude each other.
    pub(super) fn check(&self) -> Result<(), InvalidConfiguration> {
        for (index, rule) in self.rules.iter().enumerate() {
            let has_ports = rule.source_ports.is_some() || rule.destination_ports.is_some();
            if has_ports && !matches!(rule.protocol, Transport::Tcp | Transport::Udp) {
                return Err(InvalidConfiguration::field(
                    format!("rules[{index}].protocol"),
                    "a protocol without ports",
                    "\"tcp\" or \"udp\" where a rule names ports",
                ));
            }
            let families = [rule.source, rule.destination].map(|p| p.map(|p| p.is_ipv4()));
            if let [Some(source), Some(destination)] = families
                && source != destination
            {
                return Err(InvalidConfiguration::field(
                    format!("rules[{index}].destination"),
                    "a prefix of another IP version than the source's",
                    "source and destination of one IP version",
                ));
            }
        }
        Ok(())
    }
}
