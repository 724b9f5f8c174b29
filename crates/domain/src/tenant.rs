//! Tenants, their weights and quotas.

use serde::{Deserialize, Serialize};

use crate::{Bandwidth, ByteSize, TenantId};

/// What a tenant may have at most. The defaults are generous: a quota is for the tenant that
/// takes all, not for the one that grows.
///
/// A limit that a stored quota does not have has its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// DAGs.
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
    #[serde(skip_serializing_if = "is::<64>")]
    pub nt_types_max: u32,
    /// Classification rules that lead to its DAGs, those of its machines too: a card's classifier has
    /// [`crate::limits::CLASSIFIER_ROWS`] for all tenants.
    #[serde(skip_serializing_if = "is::<256>")]
    pub rules_max: u32,
    /// Virtual machines that are bound or being bound.
    #[serde(skip_serializing_if = "is::<256>")]
    pub machines_max: u32,
    /// Operations that have not ended; only creates and updates are refused for it.
    #[serde(skip_serializing_if = "is::<256>")]
    pub operations_max: u32,
}

/// Whether a limit has its default, which is not stored: requests that are remembered from before there
/// was this limit stay the same.
const fn is<const DEFAULT: u32>(limit: &u32) -> bool {
    *limit == DEFAULT
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
        }
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its weight where capacity is shared: 1 to [`crate::limits::TENANT_WEIGHT_MAX`].
    pub weight: u32,
    /// What it may have.
    pub quota: Quota,
}
