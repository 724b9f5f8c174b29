//! Records of the fleet in etcd, and their keys.
//!
//! A record carries a version. What a replica does not know of it, because a newer one wrote it, is kept as it is and
//! written back, so that two versions can take turns.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use snic_domain::{
    Bitstream, BudgetPolicy, DagName, Digest, NtType, Quota, Tenant, TenantId, Timestamp,
};

pub use crate::dag_records::{
    FleetDagRecord, PlaceRecord, RecordMeta, ReservedFunctions, Unplaced,
};
use crate::placement::{HostSpec, PromiseLimits, TenantDefaults};
use crate::protocol::{
    DrainArea, FleetReply, FleetSpending, LoadRange, PolicyFiles, RebalanceOutcome, StayReason,
};
use crate::request_id::RequestId;
use crate::{HostId, ProjectId, ZoneId};

/// Where all keys begin.
pub const PREFIX: &str = "/snic/v1/";

/// The version that this program writes. It also reads what the next one writes.
pub const VERSION: u32 = 1;

/// A record with what this program does not know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    value: T,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableRecord {
    /// It is no record of this kind.
    #[error("{key}: {reason}")]
    Malformed { key: String, reason: String },
    /// It is of a program more than one version newer.
    #[error("{key} has version {version}; this program reads up to {}", VERSION + 1)]
    TooNew { key: String, version: u32 },
}

impl<T> Versioned<T> {
    /// A record of this program.
    pub fn new(value: T) -> Self {
        Self { version: VERSION, value, unknown: Map::new() }
    }

    /// The record, without what this version does not know.
    pub const fn value(&self) -> &T {
        &self.value
    }

    /// The same, to be changed.
    pub const fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Serialize + DeserializeOwned> Versioned<T> {
    /// Its bytes in etcd.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("records have text keys")
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// [`UnreadableRecord`]
    pub fn parse(key: &str, bytes: &[u8]) -> Result<Self, UnreadableRecord> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| {
            UnreadableRecord::Malformed { key: key.to_owned(), reason: error.to_string() }
        })?;
        if record.version > VERSION + 1 {
            return Err(UnreadableRecord::TooNew { key: key.to_owned(), version: record.version });
        }
        Ok(record)
    }
}

/// A tenant of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetTenantRecord {
    /// Its id, weight and quota.
    pub tenant: Tenant,
    /// Project whose quota it shares, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// Its number on hosts: another one after each change.
    pub number: u64,
    /// Money that it has spent of its budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spending: Option<FleetSpending>,
    /// Its budget or its project's is spent, and hosts are told to give its DAGs their promises and no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_burst_off: bool,
    /// It is being deleted with all that it owns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_leaving: bool,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

/// An NT type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetNtRecord {
    pub nt: NtType,
    /// When it was made; its serial is its number on hosts.
    pub meta: RecordMeta,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetBitstreamRecord {
    pub bitstream: Bitstream,
    /// When it was made; its serial is its number on hosts.
    pub meta: RecordMeta,
}

/// A rack or zone whose hosts are emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRecord {
    pub area: DrainArea,
    /// Number of its DAGs that move at a time.
    pub moves_max: u32,
}

/// The rebalance that is under way, or the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceRecord {
    /// Between cards of this zone; `None`: of the fleet.
    pub zone: Option<ZoneId>,
    /// Number of DAGs that move at a time.
    pub moves_max: u32,
    /// Distance that a card's load may have from the mean, in percent of a card.
    pub tolerance_percent: u32,
    /// Places with a larger serial were made since it began: DAGs with one do not move again.
    pub serial: u64,
    /// When it began, by the leader's clock.
    pub started: Timestamp,
    /// Loads when it began.
    pub before: LoadRange,
    /// Number of DAGs that it has moved.
    pub moved: u64,
    /// End; `None`: it goes on.
    pub end: Option<RebalanceEnd>,
}

/// End of a rebalance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceEnd {
    pub outcome: RebalanceOutcome,
    /// When, by the leader's clock.
    pub at: Timestamp,
    pub loads: LoadRange,
    /// Number of DAGs that were to move and did not.
    pub stays: BTreeMap<StayReason, u64>,
    /// Those of them whose machines are there; the first hundred.
    pub bound: Vec<DagName>,
}

/// The policy files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoliciesRecord {
    /// Files by name.
    pub files: PolicyFiles,
    /// Limits of promises in them.
    pub promises: PromiseLimits,
    /// Budgets in them.
    #[serde(default)]
    pub budgets: BudgetPolicy,
    /// Defaults of placements in them.
    #[serde(default)]
    pub defaults: TenantDefaults,
    /// Their number on hosts: another one after each change.
    pub number: u64,
    /// When they were registered and changed.
    pub meta: RecordMeta,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRecord {
    pub project: ProjectId,
    /// Quota that its tenants have together: `dags_max`, `bandwidth_max` and `month_budget` of it count.
    pub quota: Quota,
    /// Money that its tenants have spent of its budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spending: Option<FleetSpending>,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    pub host: HostId,
    /// Specification that operators registered.
    pub spec: HostSpec,
    /// Whether its DAGs are being moved away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_draining: bool,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

/// Result of a request, for when it is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneRequest {
    /// Owner; `None`: an operator's.
    pub tenant: Option<TenantId>,
    pub id: RequestId,
    /// A digest of what was asked.
    pub fingerprint: Digest,
    pub reply: FleetReply,
    /// Rises from one request to the next.
    pub serial: u64,
}

/// The last transaction of a leader. Each transaction writes it, and holds only if nobody wrote it since the one before:
/// so a transaction that is sent twice is carried out once, and whether it was is seen here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTransaction {
    /// The leader's epoch.
    pub epoch: i64,
    /// Number of its transaction, from 1.
    pub number: u64,
    /// Serials up to this one were given out.
    pub serial: u64,
}

/// The key of [`LastTransaction`].
pub const LAST_TRANSACTION: &str = "/snic/v1/last-transaction";

/// The key of a tenant.
pub fn tenant_key(tenant: &TenantId) -> String {
    format!("{PREFIX}tenants/{tenant}")
}

/// The key of a project.
pub fn project_key(project: &ProjectId) -> String {
    format!("{PREFIX}projects/{project}")
}

/// The key of an NT type.
pub fn nt_key(nt: &snic_domain::NtTypeId) -> String {
    format!("{PREFIX}nt-types/{nt}")
}

/// The key of a bitstream.
pub fn bitstream_key(bitstream: &snic_domain::BitstreamId) -> String {
    format!("{PREFIX}bitstreams/{bitstream}")
}

/// The key of a host.
pub fn host_key(host: &HostId) -> String {
    format!("{PREFIX}hosts/{host}/spec")
}

/// The key of a DAG.
pub fn dag_key(dag: &DagName) -> String {
    format!("{PREFIX}dags/{}/{}", dag.tenant, dag.dag)
}

/// The key of a drain.
pub fn drain_key(area: &DrainArea) -> String {
    format!("{PREFIX}drains/{area}")
}

/// The key of [`RebalanceRecord`].
pub const REBALANCE: &str = "/snic/v1/rebalance/last";

/// The key of [`PoliciesRecord`].
pub const POLICIES: &str = "/snic/v1/policies/files";

/// The key of a reservation.
pub fn reservation_key(tenant: &TenantId, id: RequestId) -> String {
    format!("{PREFIX}reservations/{tenant}/{id}")
}

/// The key of a request that was done.
pub fn request_key(tenant: Option<&TenantId>, id: RequestId) -> String {
    let owner = tenant.map_or("-", TenantId::as_str);
    format!("{PREFIX}requests/{owner}/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Versioned<LastTransaction>, UnreadableRecord> {
        Versioned::parse("key", text.as_bytes())
    }

    /// Fields that the next version adds are there again after this one wrote.
    #[test]
    fn unknown_fields_of_a_newer_replica_are_written_back() {
        let text = r#"{"version":2,"epoch":5,"number":1,"serial":9,"colour":{"deep":[1,2]}}"#;
        let mut record = parse(text).expect("one version newer");
        record.value_mut().number = 2;
        let back: Value = serde_json::from_slice(&record.bytes()).expect("JSON");
        let expected = text.replace("\"number\":1", "\"number\":2");
        assert_eq!(back, serde_json::from_str::<Value>(&expected).expect("JSON"));
    }

    #[test]
    fn a_record_two_versions_newer_is_refused_by_name() {
        let wrong = parse(r#"{"version":3,"epoch":5,"number":1,"serial":9}"#).expect_err("two");
        assert_eq!(wrong.to_string(), "key has version 3; this program reads up to 2");
        assert!(matches!(parse("{}"), Err(UnreadableRecord::Malformed { .. })));
    }
}
