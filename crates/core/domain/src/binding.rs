//! Bindings: a virtual machine with its functions of a card and the DAGs that they lead to.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
}

impl BindingSpec {
    /// Whether both request the same machine, tenant, chains and number of functions. Deadlines,
    /// leases and notes are not compared: a retry may change them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.vm == other.vm
            && self.tenant == other.tenant
            && self.chains == other.chains
            && self.functions == other.functions
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

    #[test]
    fn a_machine_is_named_by_its_uuid() {
        let id = VmId::new("123E4567-e89b-42d3-a456-426614174000").expect("a UUID");
        assert_eq!(id.as_str(), "123e4567-e89b-42d3-a456-426614174000");
        for bad in ["", "vm1", "123e4567e89b42d3a456426614174000", &format!("{id}-"), "{}"] {
            assert!(VmId::new(bad).is_err(), "{bad}");
        }
    }
}
