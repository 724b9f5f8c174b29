//! Bindings: a virtual machine with its functions of a card and the DAGs that they lead to.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{FUNCTION_MACS_MAX, FUNCTION_VLANS_MAX};
use crate::{CardId, DagName, MacAddress, Notes, PciAddress, RuleId, TenantId};

/// The UUID of a virtual machine, in lower case with hyphens, as libvirt writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VmId(Box<str>);

/// A text that is not a valid UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid UUID (expected e.g. 123e4567-e89b-42d3-a456-426614174000)")]
pub struct InvalidVmId(pub String);

impl VmId {
    /// Parses a UUID of 36 characters with hyphens; upper case becomes lower case.
    ///
    /// # Errors
    ///
    /// [`InvalidVmId`] with the first 80 characters of any other text.
    pub fn new(text: &str) -> Result<Self, InvalidVmId> {
        let parts: Vec<&str> = text.split('-').collect();
        let lengths = parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]);
        let hexadecimal = parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()));
        if lengths && hexadecimal {
            return Ok(Self(text.to_ascii_lowercase().into()));
        }
        Err(InvalidVmId(text.chars().take(80).collect()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VmId {
    type Err = InvalidVmId;

    fn from_str(text: &str) -> Result<Self, InvalidVmId> {
        Self::new(text)
    }
}

impl TryFrom<String> for VmId {
    type Error = InvalidVmId;

    fn try_from(text: String) -> Result<Self, InvalidVmId> {
        Self::new(&text)
    }
}

impl From<VmId> for String {
    fn from(id: VmId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The DAGs to which the packets of a machine's functions go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BindingTarget {
    /// To DAGs that exist: function `i` of the machine leads to DAG `i` modulo their number.
    Dags(Vec<DagName>),
    /// To a private copy of this DAG, created for the machine and removed with the binding.
    Template(DagName),
}

/// Limits of what passes the ports of a machine's functions, as an orchestrator requests them, or of one function. They
/// hold where packets enter and leave the card, before any DAG.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLimits {
    /// Ethernet addresses that frames come from. Of a machine: number `i` is function `i` modulo the number of functions, and
    /// a function that gets none has its own address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mac_addresses: Vec<MacAddress>,
    /// VLANs that frames are tagged with, in both directions; frames without a VLAN pass. `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<BTreeSet<u16>>,
    /// Frames to all and to groups that each function may send in a second. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcasts_per_second: Option<u32>,
}

/// Limits that no port can keep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLimits {
    #[error("{count} addresses for {functions} functions; allowed: {FUNCTION_MACS_MAX} for each")]
    TooManyMacs { count: usize, functions: u16 },
    #[error("{0} is named twice; name each address once")]
    DuplicateMac(MacAddress),
    #[error("{0} VLANs; allowed: {FUNCTION_VLANS_MAX}")]
    TooManyVlans(usize),
    /// 0 stands for none, and 4,095 is reserved (802.1Q-2022, table 9-2).
    #[error("VLAN {0} is not allowed: 1 to 4094")]
    Vlan(u16),
}

impl InvalidLimits {
    /// Field of the request that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::TooManyMacs { .. } | Self::DuplicateMac(_) => "mac_addresses",
            Self::TooManyVlans(_) | Self::Vlan(_) => "vlans",
        }
    }
}

impl PortLimits {
    /// Whether nothing was requested: then functions send from their own addresses, and nothing else is limited.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the limits of a machine with so many functions.
    ///
    /// # Errors
    /// [`InvalidLimits`].
    pub fn check(&self, functions: u16) -> Result<(), InvalidLimits> {
        let count = self.mac_addresses.len();
        if count > FUNCTION_MACS_MAX * usize::from(functions) {
            return Err(InvalidLimits::TooManyMacs { count, functions });
        }
        let mut known = BTreeSet::new();
        if let Some(mac) = self.mac_addresses.iter().find(|mac| !known.insert(**mac)) {
            return Err(InvalidLimits::DuplicateMac(*mac));
        }
        let vlans = self.vlans.as_ref().map_or(0, BTreeSet::len);
        if vlans > FUNCTION_VLANS_MAX {
            return Err(InvalidLimits::TooManyVlans(vlans));
        }
        let mut vlans = self.vlans.iter().flatten();
        match vlans.find(|vlan| !(1..=4_094).contains(*vlan)) {
            Some(vlan) => Err(InvalidLimits::Vlan(*vlan)),
            None => Ok(()),
        }
    }

    /// The limits of the machine's function of this number, whose own address is `own`. A function always has addresses:
    /// whoever could send from any would be sent what is for others.
    #[must_use]
    pub fn of_function(&self, number: usize, functions: u16, own: MacAddress) -> Self {
        let step = usize::from(functions.max(1));
        let given = self.mac_addresses.iter().skip(number).step_by(step).copied();
        let mut mac_addresses: Vec<MacAddress> = given.collect();
        if mac_addresses.is_empty() {
            mac_addresses.push(own);
        }
        Self { mac_addresses, ..self.clone() }
    }
}

/// The desired state of a binding, as an orchestrator requests it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingSpec {
    pub vm: VmId,
    pub tenant: TenantId,
    /// Where its packets go.
    pub chains: BindingTarget,
    /// Number of virtual functions: at least one for each DAG.
    pub functions: u16,
    /// Deadline, from the request: when it passes before the binding is Bound, the binding fails.
    pub ready_within: Duration,
    /// Time that the binding outlives its last heartbeat; `None`: until it is unbound.
    pub lease: Option<Duration>,
    /// Notes of the orchestrator about it.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
    /// Limits of its functions' ports.
    #[serde(default, skip_serializing_if = "PortLimits::is_default")]
    pub limits: PortLimits,
}

impl BindingSpec {
    /// Whether both request the same machine, tenant, chains, number of functions and limits. Deadlines,
    /// leases and notes are not compared: a retry may change them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.vm == other.vm
            && self.tenant == other.tenant
            && self.chains == other.chains
            && self.functions == other.functions
            && self.limits == other.limits
    }
}

/// The lifecycle of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BindingState {
    /// Accepted; its DAGs have no place yet, nothing is reserved.
    Initial,
    /// Its functions are reserved and lead to its DAGs; the card is being brought to it.
    BindStarted,
    /// The card, read back, serves it.
    Bound,
    /// It missed its deadline or became impossible; everything it held is released.
    BindFailed,
    /// It was unbound; everything it held is released.
    Unbound,
}

impl BindingState {
    /// Whether this state is final: the binding holds no resources.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::BindFailed | Self::Unbound)
    }
}

/// One virtual function of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundFunction {
    pub card: CardId,
    /// Its number there.
    pub function: u16,
    /// Where the host sees it.
    pub pci_address: PciAddress,
    /// Its Ethernet address.
    pub mac_address: MacAddress,
    /// Where its packets go.
    pub dag: DagName,
    /// The rule that leads them there.
    pub rule: RuleId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(last: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 0, last])
    }

    #[test]
    fn each_function_has_its_addresses_or_its_own() {
        let of = |given: &[u8], functions: u16| {
            let mac_addresses = given.iter().map(|last| mac(*last)).collect();
            let limits = PortLimits { mac_addresses, ..PortLimits::default() };
            let function = |number: usize| {
                let limits = limits.of_function(number, functions, mac(0xF0 + number as u8));
                limits.mac_addresses.iter().map(|mac| mac.0[5]).collect::<Vec<_>>()
            };
            (0..usize::from(functions)).map(function).collect::<Vec<_>>()
        };
        assert_eq!(of(&[], 2), [vec![0xF0], vec![0xF1]]);
        assert_eq!(of(&[1], 2), [vec![1], vec![0xF1]]);
        assert_eq!(of(&[1, 2, 3], 2), [vec![1, 3], vec![2]]);
        assert_eq!(of(&[1, 2, 3, 4], 1), [vec![1, 2, 3, 4]]);
    }

    #[test]
    fn limits_that_no_port_can_keep_are_refused_by_their_field() {
        let of = |macs: &[u8], vlans: Option<&[u16]>| PortLimits {
            mac_addresses: macs.iter().map(|last| mac(*last)).collect(),
            vlans: vlans.map(|vlans| vlans.iter().copied().collect()),
            broadcasts_per_second: None,
        };
        let many: Vec<u16> = (1..=13).collect();
        for (limits, field) in [
            (of(&[1, 2, 3, 4, 5], None), Some("mac_addresses")),
            (of(&[1, 2, 1], None), Some("mac_addresses")),
            (of(&[], Some(&[0])), Some("vlans")),
            (of(&[], Some(&[4_095])), Some("vlans")),
            (of(&[], Some(&many)), Some("vlans")),
            (of(&[1, 2, 3, 4], Some(&many[1..])), None),
            (of(&[], Some(&[])), None),
        ] {
            assert_eq!(limits.check(1).map_err(|error| error.field()).err(), field, "{limits:?}");
        }
        assert_eq!(of(&[1, 2, 3, 4, 5], None).check(2), Ok(()));
    }

    #[test]
    fn a_machine_is_named_by_its_uuid() {
        let id = VmId::new("123E4567-e89b-42d3-a456-426614174000").expect("a UUID");
        assert_eq!(id.as_str(), "123e4567-e89b-42d3-a456-426614174000");
        for bad in ["", "vm1", "123e4567e89b42d3a456426614174000", &format!("{id}-"), "{}"] {
            assert!(VmId::new(bad).is_err(), "{bad}");
        }
    }
}
