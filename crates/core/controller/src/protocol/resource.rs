//! The names of what can be watched.

use std::fmt;

use snic_domain::{
    BitstreamId, CardId, DagName, NtTypeId, OperationId, RegionId, RuleId, TenantId, VmId,
};

/// A resource whose changes can be watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKey {
    Tenant(TenantId),
    /// An NT type.
    NtType(NtTypeId),
    Bitstream(BitstreamId),
    Dag(DagName),
    Card(CardId),
    /// A region of a card.
    Region(CardId, RegionId),
    /// A rule of the classifier.
    Rule(RuleId),
    /// The binding of a virtual machine.
    Binding(VmId),
    Operation(OperationId),
}

/// The kind of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    Tenant,
    NtType,
    Bitstream,
    Dag,
    Card,
    Region,
    Rule,
    Binding,
    Operation,
}

impl ResourceKey {
    pub const fn kind(&self) -> ResourceKind {
        match self {
            Self::Tenant(_) => ResourceKind::Tenant,
            Self::NtType(_) => ResourceKind::NtType,
            Self::Bitstream(_) => ResourceKind::Bitstream,
            Self::Dag(_) => ResourceKind::Dag,
            Self::Card(_) => ResourceKind::Card,
            Self::Region(..) => ResourceKind::Region,
            Self::Rule(_) => ResourceKind::Rule,
            Self::Binding(_) => ResourceKind::Binding,
            Self::Operation(_) => ResourceKind::Operation,
        }
    }
}

impl ResourceKind {
    /// Whether tenants see the provider's beside their own.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::NtType | Self::Bitstream)
    }

    /// Whether part of its state is read from cards: after a restart that is not known at first.
    pub(crate) const fn is_observed(self) -> bool {
        matches!(self, Self::Dag | Self::Card | Self::Region | Self::Binding)
    }

    /// Whether its changes are told wherever its record is stored; those of others are told by who
    /// changes them, with what cards say.
    pub(crate) const fn is_told_by_record(self) -> bool {
        matches!(
            self,
            Self::Tenant
                | Self::NtType
                | Self::Bitstream
                | Self::Card
                | Self::Rule
                | Self::Operation
        )
    }

    /// Whether it is remembered that one was deleted. Operations that are no longer kept are not told.
    pub(crate) const fn is_missed(self) -> bool {
        !matches!(self, Self::Operation)
    }
}

/// As the key of its record.
impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(id) => write!(f, "tenants/{id}"),
            Self::NtType(id) => write!(f, "nt-types/{id}"),
            Self::Bitstream(id) => write!(f, "bitstreams/{id}"),
            Self::Dag(DagName { tenant, dag }) => write!(f, "dags/{tenant}/{dag}"),
            Self::Card(id) => write!(f, "cards/{id}"),
            Self::Region(card, region) => write!(f, "regions/{card}/{:02}", region.0),
            Self::Rule(id) => write!(f, "rules/{id}"),
            Self::Binding(vm) => write!(f, "bindings/{vm}"),
            Self::Operation(id) => write!(f, "operations/{id}"),
        }
    }
}
