//! Tenants, their weights and quotas.

use serde::{Deserialize, Serialize};

use crate::{Bandwidth, ByteSize, TenantId};

/// What a tenant may have at most. The defaults are generous: a quota is for the tenant that
/// takes all, not for the one that grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// DAGs.
    pub dags_max: u32,
    /// The sum of what its DAGs ask for.
    pub bandwidth_max: Bandwidth,
    /// Bitstreams of its own.
    pub bitstreams_max: u32,
    /// Bytes of its own bitstreams together.
    pub bitstream_bytes_max: ByteSize,
    /// On-board memory of its NTs together.
    pub memory_max: ByteSize,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            dags_max: 64,
            bandwidth_max: Bandwidth::from_gbps(100),
            bitstreams_max: 32,
            bitstream_bytes_max: ByteSize::from_mib(256),
            memory_max: ByteSize::from_mib(4_096),
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
