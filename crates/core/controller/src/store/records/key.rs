//! The keys of records, printed and parsed.

use std::fmt;

use snic_domain::{
    BitstreamId, CardId, DagId, DagName, DagUid, NtTypeId, OperationId, RegionId, RuleId, TenantId,
    VmId,
};
use snic_usage::UsageKey;

use super::{InvalidRecord, REVISIONS_KEY, ResidentContext};
use crate::protocol::{Caller, ResourceKey};

/// A caller's request id, which is unique with the caller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    /// The caller, as [`crate::Caller::key`] writes it.
    pub caller: String,
    pub id: String,
}

/// Names a record in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordKey {
    Meta,
    Maintenance,
    Tenant(TenantId),
    NtType(NtTypeId),
    Bitstream(BitstreamId),
    Dag(DagName),
    Explanation(DagName),
    Card(CardId),
    Region(CardId, RegionId),
    ResidentContext(CardId, RegionId, ResidentContext),
    PendingErase(CardId, RegionId, DagUid),
    SavedContext(CardId, u32),
    Rule(RuleId),
    Binding(VmId),
    Kept,
    Operation(OperationId),
    Request(RequestKey),
    Refused(DagName),
    Uid(u16),
    Revisions,
    Deletion(ResourceKey),
    Usage(Box<UsageKey>),
}

impl RecordKey {
    /// The resource that it is the record of, if it can be watched.
    pub fn resource(&self) -> Option<ResourceKey> {
        Some(match self {
            Self::Tenant(id) => ResourceKey::Tenant(id.clone()),
            Self::NtType(id) => ResourceKey::NtType(id.clone()),
            Self::Bitstream(id) => ResourceKey::Bitstream(id.clone()),
            Self::Dag(name) => ResourceKey::Dag(name.clone()),
            Self::Card(id) => ResourceKey::Card(id.clone()),
            Self::Region(card, region) => ResourceKey::Region(card.clone(), *region),
            Self::Rule(id) => ResourceKey::Rule(id.clone()),
            Self::Binding(vm) => ResourceKey::Binding(vm.clone()),
            Self::Operation(id) => ResourceKey::Operation(id.clone()),
            Self::Meta
            | Self::Maintenance
            | Self::Kept
            | Self::Explanation(_)
            | Self::ResidentContext(..)
            | Self::PendingErase(..)
            | Self::SavedContext(..)
            | Self::Request(_)
            | Self::Refused(_)
            | Self::Uid(_)
            | Self::Revisions
            | Self::Deletion(_)
            | Self::Usage(_) => return None,
        })
    }
}

/// Callers whose reads a record shows in, and who therefore wait until a change of it is durable. Operators and
/// orchestrators see everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Audience {
    /// It is in no tenant's reads.
    Operators,
    /// It is in no other tenant's.
    Tenant(TenantId),
    /// It may be in every tenant's, or nobody has looked closer.
    Everybody,
}

impl Audience {
    /// Audience of what only this tenant may see; `None`: operators only.
    pub fn of_owner(tenant: Option<&TenantId>) -> Self {
        tenant.map_or(Self::Operators, |tenant| Self::Tenant(tenant.clone()))
    }
}

impl RecordKey {
    /// Callers whose reads the record shows in, as far as its key tells.
    pub fn audience(&self) -> Audience {
        match self {
            // A deletion is in the reads of whoever saw what was deleted, whose record says so.
            // Of records of usage only those of accounts tell a tenant anything before they are full pages, which are read from the store.
            Self::Meta
            | Self::Kept
            | Self::Uid(_)
            | Self::Revisions
            | Self::Deletion(_)
            | Self::Usage(_) => Audience::Operators,
            Self::Tenant(tenant)
            | Self::Dag(DagName { tenant, .. })
            | Self::Explanation(DagName { tenant, .. })
            | Self::Refused(DagName { tenant, .. }) => Audience::Tenant(tenant.clone()),
            Self::ResidentContext(_, _, context) => Audience::Tenant(context.dag.tenant.clone()),
            Self::Request(RequestKey { caller, .. }) => {
                Audience::of_owner(Caller::tenant_of_key(caller).as_ref())
            }
            Self::Maintenance
            | Self::NtType(_)
            | Self::Bitstream(_)
            | Self::Card(_)
            | Self::Region(..)
            | Self::PendingErase(..)
            | Self::SavedContext(..)
            | Self::Rule(_)
            | Self::Binding(_)
            | Self::Operation(_) => Audience::Everybody,
        }
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::Maintenance => f.write_str("maintenance"),
            Self::Tenant(id) => write!(f, "tenants/{id}"),
            Self::NtType(id) => write!(f, "nt-types/{id}"),
            Self::Bitstream(id) => write!(f, "bitstreams/{id}"),
            Self::Dag(DagName { tenant, dag }) => write!(f, "dags/{tenant}/{dag}"),
            Self::Explanation(DagName { tenant, dag }) => write!(f, "explanations/{tenant}/{dag}"),
            Self::Card(id) => write!(f, "cards/{id}"),
            Self::Region(card, region) => write!(f, "regions/{card}/{:02}", region.0),
            Self::ResidentContext(card, region, context) => {
                let ResidentContext { bitstream, dag: DagName { tenant, dag } } = context;
                write!(f, "guests/{card}/{:02}/{tenant}/{dag}/{bitstream}", region.0)
            }
            Self::PendingErase(card, region, uid) => {
                write!(f, "departed/{card}/{:02}/{:08x}", region.0, uid.raw())
            }
            Self::SavedContext(card, offset) => write!(f, "states/{card}/{offset:010}"),
            Self::Rule(id) => write!(f, "rules/{id}"),
            Self::Binding(vm) => write!(f, "bindings/{vm}"),
            Self::Kept => f.write_str("kept"),
            Self::Operation(id) => write!(f, "operations/{id}"),
            Self::Request(RequestKey { caller, id }) => write!(f, "requests/{caller}/{id}"),
            Self::Refused(DagName { tenant, dag }) => write!(f, "refused/{tenant}/{dag}"),
            Self::Uid(row) => write!(f, "uids/{row:04}"),
            Self::Revisions => f.write_str(REVISIONS_KEY),
            Self::Deletion(name) => write!(f, "deleted/{name}"),
            Self::Usage(key) => write!(f, "{key}"),
        }
    }
}

/// The part of a key behind its kind.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    /// All of it, for errors.
    pub key: &'a str,
    pub rest: &'a str,
}

impl<'a> Path<'a> {
    fn wrong(self, reason: impl Into<String>) -> InvalidRecord {
        InvalidRecord::contradiction(self.key, reason)
    }

    /// The card that it begins with, and what follows.
    pub fn card(self) -> Result<(CardId, &'a str), InvalidRecord> {
        let (card, rest) = self.rest.split_once('/').unwrap_or((self.rest, ""));
        let card = CardId::new(card).map_err(|error| self.wrong(error.to_string()))?;
        Ok((card, rest))
    }

    /// The card and the region that it begins with.
    pub fn region(self) -> Result<(CardId, RegionId), InvalidRecord> {
        let (card, rest) = self.card()?;
        let (region, _) = rest.split_once('/').unwrap_or((rest, ""));
        let region = region.parse().map_err(|_| self.wrong("no region in its key"))?;
        Ok((card, RegionId(region)))
    }

    pub fn dag(self) -> Result<DagName, InvalidRecord> {
        let (tenant, dag) = self.rest.split_once('/').unwrap_or((self.rest, ""));
        let tenant = TenantId::new(tenant).map_err(|error| self.wrong(error.to_string()))?;
        let dag = DagId::new(dag).map_err(|error| self.wrong(error.to_string()))?;
        Ok(DagName { tenant, dag })
    }

    pub fn request(self) -> Result<RequestKey, InvalidRecord> {
        let (caller, id) =
            self.rest.rsplit_once('/').ok_or_else(|| self.wrong("no caller in its key"))?;
        Ok(RequestKey { caller: caller.to_owned(), id: id.to_owned() })
    }

    /// The resource whose record's key it is.
    pub fn resource(self) -> Result<ResourceKey, InvalidRecord> {
        let (kind, rest) = self.rest.split_once('/').unwrap_or((self.rest, ""));
        let path = Path { key: self.key, rest };
        let name = match kind {
            "tenants" => TenantId::new(rest).ok().map(ResourceKey::Tenant),
            "nt-types" => NtTypeId::new(rest).ok().map(ResourceKey::NtType),
            "bitstreams" => BitstreamId::new(rest).ok().map(ResourceKey::Bitstream),
            "dags" => Some(ResourceKey::Dag(path.dag()?)),
            "cards" => Some(ResourceKey::Card(path.card()?.0)),
            "regions" => {
                let (card, region) = path.region()?;
                Some(ResourceKey::Region(card, region))
            }
            "rules" => RuleId::new(rest).ok().map(ResourceKey::Rule),
            "bindings" => VmId::new(rest).ok().map(ResourceKey::Binding),
            _ => None,
        };
        name.ok_or_else(|| self.wrong("no resource in its key"))
    }

    pub fn row(self) -> Result<u16, InvalidRecord> {
        self.rest.parse().map_err(|_| self.wrong("no row in its key"))
    }
}
