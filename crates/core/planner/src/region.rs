//! One region of a card's ledger: its content, and what is reserved of it. Only the ledger changes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{Bandwidth, DagName, Slot};

use crate::catalogue::{ChainSlot, PhysicalChain};

/// Whether new chains may be placed in a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionCondition {
    /// New chains may be placed.
    #[default]
    Usable,
    /// No new chains; existing ones stay.
    Cordoned,
    /// Not available for planning: it failed.
    Faulty,
    /// Not available for planning: its content is not known.
    Unknown,
}

/// Reservations of one NT instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SlotUse {
    pub(crate) bandwidth: Bandwidth,
    /// Packets per second.
    pub(crate) packets: u64,
    /// Thousandths of a credit.
    pub(crate) credits: u64,
    /// Number of DAGs.
    pub(crate) dags: u32,
}

/// Content and reservations of one region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RegionEntry {
    pub(crate) condition: RegionCondition,
    pub(crate) kept: bool,
    pub(crate) content: Option<Arc<PhysicalChain>>,
    pub(crate) slots: [SlotUse; CHAIN_SLOTS_MAX],
    /// Cycles per second of its port.
    pub(crate) port: u64,
    pub(crate) users: BTreeSet<Arc<DagName>>,
}

impl RegionEntry {
    /// Whether it may be reloaded: no DAG uses it, and it need not keep its content.
    pub(crate) fn is_replaceable(&self) -> bool {
        self.users.is_empty() && !self.kept
    }

    pub(crate) fn chain(&self) -> Option<&PhysicalChain> {
        self.content.as_deref()
    }

    pub(crate) fn chain_slot(&self, slot: Slot) -> Option<&ChainSlot> {
        self.content.as_ref().and_then(|chain| chain.slots.get(slot.index()))
    }

    pub(crate) fn bandwidth_max(&self, slot: Slot) -> Bandwidth {
        self.chain_slot(slot).map_or(Bandwidth::ZERO, |slot| slot.bandwidth_max)
    }
}
