//! Tenants, their weights and quotas.

use serde::{Deserialize, Serialize};

use crate::{Bandwidth, ByteSize, MonthBudget, Notes, NotesPatch, ProjectId, TenantId};

/// Limits of a tenant. The defaults are generous: a quota is for the tenant that
/// takes all, not for the one that grows.
///
/// A limit that a stored quota does not have has its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    pub dags_max: u32,
    /// The sum of what its DAGs ask for.
    pub bandwidth_max: Bandwidth,
    /// Bitstreams of its own.
    pub bitstreams_max: u32,
    /// Bytes of its own bitstreams together.
    pub bitstream_bytes_max: ByteSize,
    /// On-board memory of the NT types in its DAGs, in whole pages, each type once.
    pub memory_max: ByteSize,
    /// NT types of its own: those that it shares are in everybody's list.
    pub nt_types_max: u32,
    /// Classification rules that lead to its DAGs, those of its machines too: a card's classifier has
    /// [`crate::limits::CLASSIFIER_ROWS`] for all tenants.
    pub rules_max: u32,
    /// Virtual machines that are bound or being bound.
    pub machines_max: u32,
    /// Operations that have not ended; only creates and updates are refused for it.
    pub operations_max: u32,
    /// Threads of its DAGs' programs, on all cards with processors together.
    pub threads_max: u32,
    /// Money that it may spend in a month.
    #[serde(skip_serializing_if = "MonthBudget::is_unlimited")]
    pub month_budget: MonthBudget,
}

impl Quota {
    /// As much as there is. Numbers that every client can read: at most 2^53 - 1.
    pub const UNLIMITED: Self = Self {
        dags_max: u32::MAX,
        bandwidth_max: Bandwidth::from_bps((1 << 53) - 1),
        bitstreams_max: u32::MAX,
        bitstream_bytes_max: ByteSize::from_bytes((1 << 53) - 1),
        memory_max: ByteSize::from_bytes((1 << 53) - 1),
        nt_types_max: u32::MAX,
        rules_max: u32::MAX,
        machines_max: u32::MAX,
        operations_max: u32::MAX,
        threads_max: u32::MAX,
        month_budget: MonthBudget::UNLIMITED,
    };
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            dags_max: 64,
            bandwidth_max: Bandwidth::from_gbps(100),
            bitstreams_max: 32,
            bitstream_bytes_max: ByteSize::from_mib(256),
            memory_max: ByteSize::from_mib(4_096),
            nt_types_max: 64,
            rules_max: 256,
            machines_max: 256,
            operations_max: 256,
            threads_max: 128,
            month_budget: MonthBudget::UNLIMITED,
        }
    }
}

/// New values of a quota's bounds; those without one stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaPatch {
    pub dags_max: Option<u32>,
    pub bandwidth_max: Option<Bandwidth>,
    pub bitstreams_max: Option<u32>,
    pub bitstream_bytes_max: Option<ByteSize>,
    pub memory_max: Option<ByteSize>,
    pub nt_types_max: Option<u32>,
    pub rules_max: Option<u32>,
    pub machines_max: Option<u32>,
    pub operations_max: Option<u32>,
    pub threads_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month_budget: Option<MonthBudget>,
}

impl QuotaPatch {
    /// The quota after the change.
    pub fn apply(self, now: Quota) -> Quota {
        Quota {
            dags_max: self.dags_max.unwrap_or(now.dags_max),
            bandwidth_max: self.bandwidth_max.unwrap_or(now.bandwidth_max),
            bitstreams_max: self.bitstreams_max.unwrap_or(now.bitstreams_max),
            bitstream_bytes_max: self.bitstream_bytes_max.unwrap_or(now.bitstream_bytes_max),
            memory_max: self.memory_max.unwrap_or(now.memory_max),
            nt_types_max: self.nt_types_max.unwrap_or(now.nt_types_max),
            rules_max: self.rules_max.unwrap_or(now.rules_max),
            machines_max: self.machines_max.unwrap_or(now.machines_max),
            operations_max: self.operations_max.unwrap_or(now.operations_max),
            threads_max: self.threads_max.unwrap_or(now.threads_max),
            month_budget: self.month_budget.unwrap_or(now.month_budget),
        }
    }
}

/// A new value for each bound.
impl From<Quota> for QuotaPatch {
    fn from(quota: Quota) -> Self {
        Self {
            dags_max: Some(quota.dags_max),
            bandwidth_max: Some(quota.bandwidth_max),
            bitstreams_max: Some(quota.bitstreams_max),
            bitstream_bytes_max: Some(quota.bitstream_bytes_max),
            memory_max: Some(quota.memory_max),
            nt_types_max: Some(quota.nt_types_max),
            rules_max: Some(quota.rules_max),
            machines_max: Some(quota.machines_max),
            operations_max: Some(quota.operations_max),
            threads_max: Some(quota.threads_max),
            month_budget: Some(quota.month_budget),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    /// Its weight where capacity is shared: 1 to [`crate::limits::TENANT_WEIGHT_MAX`].
    pub weight: u32,
    pub quota: Quota,
    /// Notes of operators.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
    /// Project that its usage is added up in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
}

/// Change of a tenant's project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProjectChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is in none.
    Leave,
    /// It is in this one.
    Join(ProjectId),
}

impl ProjectChange {
    /// The project after the change.
    pub fn apply(self, now: Option<&ProjectId>) -> Option<ProjectId> {
        match self {
            Self::Keep => now.cloned(),
            Self::Leave => None,
            Self::Join(project) => Some(project),
        }
    }

    /// Whether nothing is to change.
    pub fn is_keep(&self) -> bool {
        *self == Self::Keep
    }
}

impl From<Option<ProjectId>> for ProjectChange {
    fn from(project: Option<ProjectId>) -> Self {
        project.map_or(Self::Leave, Self::Join)
    }
}

/// Fields that an update of a tenant sets; the rest stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantPatch {
    /// The new weight.
    pub weight: Option<u32>,
    /// New bounds of its quota.
    pub quota: Option<QuotaPatch>,
    /// Notes of operators.
    pub notes: NotesPatch,
    /// The project that it is in.
    #[serde(skip_serializing_if = "ProjectChange::is_keep")]
    pub project: ProjectChange,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quota in which each bound differs from its default and from the others.
    fn odd() -> Quota {
        Quota {
            dags_max: 1_001,
            bandwidth_max: Bandwidth::from_bps(1_002),
            bitstreams_max: 1_003,
            bitstream_bytes_max: ByteSize::from_bytes(1_004),
            memory_max: ByteSize::from_bytes(1_005),
            nt_types_max: 1_006,
            rules_max: 1_007,
            machines_max: 1_008,
            operations_max: 1_009,
            threads_max: 1_010,
            month_budget: MonthBudget::from_micros(1_011),
        }
    }

    #[test]
    fn a_tenant_keeps_leaves_or_joins_a_project() {
        let of = |name: &str| ProjectId::new(name).expect("a name of the test");
        let (red, blue) = (of("red"), of("blue"));
        for now in [None, Some(&red)] {
            assert_eq!(ProjectChange::Keep.apply(now), now.cloned());
            assert_eq!(ProjectChange::Leave.apply(now), None);
            assert_eq!(ProjectChange::Join(blue.clone()).apply(now), Some(blue.clone()));
            assert_eq!(ProjectChange::from(now.cloned()).apply(Some(&blue)), now.cloned());
        }
        assert!(ProjectChange::default().is_keep() && !ProjectChange::Leave.is_keep());
    }

    /// Records and requests of versions that knew no projects are read, and are written as they were.
    #[test]
    fn without_a_project_the_text_is_that_of_earlier_versions() {
        let mut patch = TenantPatch { weight: Some(2), ..TenantPatch::default() };
        let text = serde_json::to_value(&patch).expect("JSON");
        assert!(text.get("project").is_none(), "{text}");
        assert_eq!(serde_json::from_value::<TenantPatch>(text).expect("as it was"), patch);
        patch.project = ProjectChange::Leave;
        let text = serde_json::to_value(&patch).expect("JSON");
        assert_eq!(serde_json::from_value::<TenantPatch>(text).expect("as it was"), patch);
    }

    #[test]
    fn a_patch_without_values_changes_nothing() {
        assert_eq!(QuotaPatch::default().apply(odd()), odd());
        assert_eq!(QuotaPatch::default().apply(Quota::default()), Quota::default());
    }

    #[test]
    fn a_patch_of_a_whole_quota_replaces_all_bounds() {
        assert_eq!(QuotaPatch::from(odd()).apply(Quota::default()), odd());
        assert_eq!(QuotaPatch::from(Quota::default()).apply(odd()), Quota::default());
    }

    #[test]
    fn each_bound_is_set_alone() {
        let (now, new) = (Quota::default(), odd());
        let none = QuotaPatch::default();
        let cases = [
            (
                QuotaPatch { dags_max: Some(new.dags_max), ..none },
                Quota { dags_max: new.dags_max, ..now },
            ),
            (
                QuotaPatch { bandwidth_max: Some(new.bandwidth_max), ..none },
                Quota { bandwidth_max: new.bandwidth_max, ..now },
            ),
            (
                QuotaPatch { bitstreams_max: Some(new.bitstreams_max), ..none },
                Quota { bitstreams_max: new.bitstreams_max, ..now },
            ),
            (
                QuotaPatch { bitstream_bytes_max: Some(new.bitstream_bytes_max), ..none },
                Quota { bitstream_bytes_max: new.bitstream_bytes_max, ..now },
            ),
            (
                QuotaPatch { memory_max: Some(new.memory_max), ..none },
                Quota { memory_max: new.memory_max, ..now },
            ),
            (
                QuotaPatch { nt_types_max: Some(new.nt_types_max), ..none },
                Quota { nt_types_max: new.nt_types_max, ..now },
            ),
            (
                QuotaPatch { rules_max: Some(new.rules_max), ..none },
                Quota { rules_max: new.rules_max, ..now },
            ),
            (
                QuotaPatch { machines_max: Some(new.machines_max), ..none },
                Quota { machines_max: new.machines_max, ..now },
            ),
            (
                QuotaPatch { operations_max: Some(new.operations_max), ..none },
                Quota { operations_max: new.operations_max, ..now },
            ),
            (
                QuotaPatch { threads_max: Some(new.threads_max), ..none },
                Quota { threads_max: new.threads_max, ..now },
            ),
            (
                QuotaPatch { month_budget: Some(new.month_budget), ..none },
                Quota { month_budget: new.month_budget, ..now },
            ),
        ];
        for (patch, expected) in cases {
            assert_eq!(patch.apply(now), expected, "{patch:?}");
        }
    }
}
