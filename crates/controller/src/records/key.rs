//! The keys of records, printed and parsed.

use std::fmt;

use snic_domain::{
    BitstreamId, CardId, DagId, DagName, DagUid, NtTypeId, OperationId, RegionId, RuleId, TenantId,
    VmId,
};

use super::{InvalidRecord, ResidentContext};
use crate::protocol::Caller;

/// Whose request, and its id: unique together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    /// [`crate::Caller::key`].
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
    Operation(OperationId),
    Request(RequestKey),
    Refused(DagName),
    Uid(u16),
}

/// Whose reads a record shows in, and therefore who waits until a change of it is durable. Operators and
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
    /// Of what only this tenant may see; `None`: operators only.
    pub fn of_owner(tenant: Option<&TenantId>) -> Self {
        tenant.map_or(Self::Operators, |tenant| Self::Tenant(tenant.clone()))
    }
}

impl RecordKey {
    /// Whose reads the record shows in, as far as its key tells.
    pub fn audience(&self) -> Audience {
        match self {
            Self::Meta | Self::Uid(_) => Audience::Operators,
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
            Self::Operation(id) => write!(f, "operations/{id}"),
            Self::Request(RequestKey { caller, id }) => write!(f, "requests/{caller}/{id}"),
            Self::Refused(DagName { tenant, dag }) => write!(f, "refused/{tenant}/{dag}"),
            Self::Uid(row) => write!(f, "uids/{row:04}"),
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

    pub fn row(self) -> Result<u16, InvalidRecord> {
        self.rest.parse().map_err(|_| self.wrong("no row in its key"))
    }
}
