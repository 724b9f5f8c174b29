//! Tenants and their quotas.

use prost_types::FieldMask;
use snic_domain::limits::TENANT_WEIGHT_MAX;
use snic_domain::{Bandwidth, ByteSize, Quota, Tenant, TenantId};

use super::FieldProblem;
use super::mask::Mask;
use crate::error::ApiError;
use crate::v1;

/// The fields of a tenant that an update may set.
const SETTABLE: &[&str] = &[
    "weight",
    "quota",
    "quota.dags_max",
    "quota.bandwidth_max_bps",
    "quota.bitstreams_max",
    "quota.bitstream_bytes_max",
    "quota.memory_max_bytes",
    "quota.nt_types_max",
    "quota.rules_max",
    "quota.machines_max",
    "quota.operations_max",
];

/// Converts a new tenant.
///
/// # Errors
/// [`FieldProblem`] for a weight out of range.
pub fn tenant(id: TenantId, tenant: Option<&v1::Tenant>) -> Result<Tenant, ApiError> {
    let weight = weight(tenant.map_or(0, |tenant| tenant.weight))?;
    let quota = tenant.and_then(|tenant| tenant.quota).unwrap_or_default();
    Ok(Tenant { id, weight, quota: bounds(quota, Quota::default()) })
}

/// Zero stands for 1.
fn weight(weight: u32) -> Result<u32, FieldProblem> {
    if weight > TENANT_WEIGHT_MAX {
        let rule = format!("{weight} is out of range (1 to {TENANT_WEIGHT_MAX}; 0 stands for 1)");
        return Err(FieldProblem::invalid("tenant.weight", rule));
    }
    Ok(weight.max(1))
}

/// The limits that are set, and the others from `rest`.
fn bounds(quota: v1::Quota, rest: Quota) -> Quota {
    Quota {
        dags_max: quota.dags_max.unwrap_or(rest.dags_max),
        bandwidth_max: quota.bandwidth_max_bps.map_or(rest.bandwidth_max, Bandwidth::from_bps),
        bitstreams_max: quota.bitstreams_max.unwrap_or(rest.bitstreams_max),
        bitstream_bytes_max: quota
            .bitstream_bytes_max
            .map_or(rest.bitstream_bytes_max, ByteSize::from_bytes),
        memory_max: quota.memory_max_bytes.map_or(rest.memory_max, ByteSize::from_bytes),
        nt_types_max: quota.nt_types_max.unwrap_or(rest.nt_types_max),
        rules_max: quota.rules_max.unwrap_or(rest.rules_max),
        machines_max: quota.machines_max.unwrap_or(rest.machines_max),
        operations_max: quota.operations_max.unwrap_or(rest.operations_max),
    }
}

/// An update of a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantPatch {
    /// The new weight.
    pub weight: Option<u32>,
    mask: Mask,
    quota: v1::Quota,
}

impl TenantPatch {
    /// Converts an update.
    ///
    /// # Errors
    /// [`FieldProblem`] for an unknown path or a weight out of range.
    pub fn read(tenant: &v1::Tenant, mask: Option<&FieldMask>) -> Result<Self, ApiError> {
        let mask = Mask::read(mask, SETTABLE)?;
        let sets_weight = mask.has("weight", tenant.weight != 0);
        Ok(Self {
            weight: sets_weight.then(|| weight(tenant.weight)).transpose()?,
            quota: tenant.quota.unwrap_or_default(),
            mask,
        })
    }

    /// The quota after the update, given the current one; `None` if it does not change.
    pub fn quota(&self, now: Quota) -> Option<Quota> {
        let default = Quota::default();
        if self.mask.has("quota", false) {
            return Some(bounds(self.quota, default));
        }
        // A bound that the mask names and the message does not set takes its default.
        let mut quota = v1::Quota::default();
        let set = self.quota;
        let has = |path: &str, is_set: bool| self.mask.has(path, is_set);
        if has("quota.dags_max", set.dags_max.is_some()) {
            quota.dags_max = set.dags_max.or(Some(default.dags_max));
        }
        if has("quota.bandwidth_max_bps", set.bandwidth_max_bps.is_some()) {
            quota.bandwidth_max_bps = set.bandwidth_max_bps.or(Some(default.bandwidth_max.get()));
        }
        if has("quota.bitstreams_max", set.bitstreams_max.is_some()) {
            quota.bitstreams_max = set.bitstreams_max.or(Some(default.bitstreams_max));
        }
        if has("quota.bitstream_bytes_max", set.bitstream_bytes_max.is_some()) {
            quota.bitstream_bytes_max =
                set.bitstream_bytes_max.or(Some(default.bitstream_bytes_max.get()));
        }
        if has("quota.memory_max_bytes", set.memory_max_bytes.is_some()) {
            quota.memory_max_bytes = set.memory_max_bytes.or(Some(default.memory_max.get()));
        }
        let counts = [
            ("quota.nt_types_max", set.nt_types_max, default.nt_types_max, &mut quota.nt_types_max),
            ("quota.rules_max", set.rules_max, default.rules_max, &mut quota.rules_max),
            ("quota.machines_max", set.machines_max, default.machines_max, &mut quota.machines_max),
            (
                "quota.operations_max",
                set.operations_max,
                default.operations_max,
                &mut quota.operations_max,
            ),
        ];
        for (path, given, default, count) in counts {
            if has(path, given.is_some()) {
                *count = given.or(Some(default));
            }
        }
        (quota != v1::Quota::default()).then(|| bounds(quota, now))
    }
}

/// Converts a quota; every limit is set.
pub const fn quota_to_wire(quota: &Quota) -> v1::Quota {
    v1::Quota {
        dags_max: Some(quota.dags_max),
        bandwidth_max_bps: Some(quota.bandwidth_max.get()),
        bitstreams_max: Some(quota.bitstreams_max),
        bitstream_bytes_max: Some(quota.bitstream_bytes_max.get()),
        memory_max_bytes: Some(quota.memory_max.get()),
        nt_types_max: Some(quota.nt_types_max),
        rules_max: Some(quota.rules_max),
        machines_max: Some(quota.machines_max),
        operations_max: Some(quota.operations_max),
    }
}
