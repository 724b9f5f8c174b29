//! Settings of software cards.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snic_card_soft::{Failover, FunctionGuard, PortSpec};

/// Ports and program of a software card. A port is `tap:NAME` for a TAP device that the card makes, `interface:NAME`
/// for an interface that is there, such as a veth end, `unix:PATH` for a unix socket that the card makes, or
/// `vhost-user:PATH` for one that QEMU shares a guest's memory through, with `program` only. Opening
/// the first two needs the capability `CAP_NET_ADMIN`, and `CAP_NET_RAW` for interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Soft {
    /// Port to the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<PortSpec>,
    /// Ports of the virtual functions: the first is that of function 0.
    pub functions: Vec<PortSpec>,
    /// Program that is the card. `snic-card` runs tenants' NTs, which are WebAssembly modules, and has vhost-user ports;
    /// without it, `snicd` itself is the card, and bitstreams with modules are rejected. A card's process that runs stays what it is until it
    /// is stopped. Give all software cards of a host the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Limits of the ports of virtual functions, one table for each function that has some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<FunctionGuard>,
    /// Stations that functions share, so that a service moves from one to the other at once, as with VRRP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failovers: Vec<Failover>,
    /// Whether flows whose packets change in headers only pass in the kernel. It needs `program`, with a `snic-card` that was built with
    /// the feature `fast-path`, root, and ports that are interfaces; where it is not possible, `card.log` says why, and all packets pass
    /// by the card's process.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fast_path: bool,
}

impl Soft {
    /// All ports: the uplink, where there is one, and the functions.
    pub fn ports(&self) -> impl Iterator<Item = &PortSpec> {
        self.uplink.iter().chain(&self.functions)
    }

    /// A port that reaches a guest through its memory, if there is one.
    pub fn shared_memory_port(&self) -> Option<&PortSpec> {
        self.ports().find(|port| matches!(port, PortSpec::VhostUser(_)))
    }
}
