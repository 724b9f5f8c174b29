//! Classification rules: which packets belong to which DAG where the sender does not say so.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{DagName, RuleId};

/// An IPv4 prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prefix {
    /// The address; bits behind the prefix are zero.
    pub address: Ipv4Addr,
    /// How many bits count: 0 to 32.
    pub length: u8,
}

impl Prefix {
    /// The mask with `length` ones.
    pub const fn mask(self) -> u32 {
        match self.length {
            0 => 0,
            1..=31 => u32::MAX << (32 - self.length),
            _ => u32::MAX,
        }
    }
}

/// What a packet must have; `None` matches anything. At least one field is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Match {
    /// Which virtual function sent it.
    pub virtual_function: Option<u16>,
    /// VXLAN network identifier, 24 bits.
    pub vni: Option<u32>,
    /// IPv4 source.
    pub source: Option<Prefix>,
    /// IPv4 destination.
    pub destination: Option<Prefix>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// TCP or UDP source port.
    pub source_port: Option<u16>,
    /// TCP or UDP destination port.
    pub destination_port: Option<u16>,
}

/// A classification rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its id.
    pub id: RuleId,
    /// Lower wins; ties by id.
    pub priority: u16,
    /// Which packets.
    pub matches: Match,
    /// Their DAG.
    pub dag: DagName,
}
