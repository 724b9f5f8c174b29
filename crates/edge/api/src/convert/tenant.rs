//! Tenants and their quotas.

use std::collections::BTreeMap;

use prost_types::{FieldMask, Timestamp};
use snic_domain::limits::TENANT_WEIGHT_MAX;
use snic_domain::{
    Bandwidth, BudgetAction, BudgetLevel, ByteSize, MonthBudget, ProjectChange, ProjectId, Quota,
    QuotaPatch, Tenant, TenantId, TenantPatch,
};

use super::mask::Mask;
use super::{FieldProblem, Problems, name, notes};
use crate::error::ApiError;
use crate::v1;
use crate::v1::spending::Level;

/// Labels of a tenant that is not described.
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

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
    "quota.threads_max",
    "quota.month_budget_micros",
    "labels",
    "description",
    "project",
];

/// Converts a new tenant.
///
/// # Errors
/// An [`ApiError`] for a weight out of range, and for labels or a description that are not allowed.
pub fn tenant(id: TenantId, tenant: Option<&v1::Tenant>) -> Result<Tenant, ApiError> {
    let weight = weight(tenant.map_or(0, |tenant| tenant.weight))?;
    let quota = tenant.and_then(|tenant| tenant.quota).unwrap_or_default();
    let (labels, description) =
        tenant.map_or((&NO_LABELS, ""), |tenant| (&tenant.labels, &tenant.description));
    let project = project(tenant.map_or("", |tenant| &tenant.project))?;
    let mut problems = Problems::default();
    let notes = notes::notes(&mut problems, "tenant", labels, description);
    problems.finish()?;
    Ok(Tenant { id, weight, quota: bounds(quota, Quota::default()), notes, project })
}

/// An empty name stands for none.
fn project(text: &str) -> Result<Option<ProjectId>, FieldProblem> {
    (!text.is_empty()).then(|| name::project("tenant.project", text)).transpose()
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
        threads_max: quota.threads_max.unwrap_or(rest.threads_max),
        month_budget: quota.month_budget_micros.map_or(rest.month_budget, MonthBudget::from_micros),
    }
}

/// Converts an update. A bound that the mask names and the message does not set takes its default.
///
/// # Errors
/// An [`ApiError`] for an unknown path, a weight out of range, and for labels or a description that are not
/// allowed.
pub fn patch(tenant: &v1::Tenant, mask: Option<&FieldMask>) -> Result<TenantPatch, ApiError> {
    let mask = Mask::read(mask, SETTABLE)?;
    let sets_weight = mask.has("weight", tenant.weight != 0);
    let weight = sets_weight.then(|| weight(tenant.weight)).transpose()?;
    let set = tenant.quota.unwrap_or_default();
    let whole = QuotaPatch::from(bounds(set, Quota::default()));
    let is_whole = mask.has("quota", false);
    let has = |field: &str, is_set: bool| is_whole || mask.has(&format!("quota.{field}"), is_set);
    macro_rules! chosen {
        ($($bound:ident: $field:ident),+) => {
            QuotaPatch { $($bound: whole.$bound.filter(|_| has(stringify!($field), set.$field.is_some()))),+ }
        };
    }
    let quota = chosen!(
        dags_max: dags_max,
        bandwidth_max: bandwidth_max_bps,
        bitstreams_max: bitstreams_max,
        bitstream_bytes_max: bitstream_bytes_max,
        memory_max: memory_max_bytes,
        nt_types_max: nt_types_max,
        rules_max: rules_max,
        machines_max: machines_max,
        operations_max: operations_max,
        threads_max: threads_max,
        month_budget: month_budget_micros
    );
    let mut problems = Problems::default();
    let noted = (&tenant.labels, tenant.description.as_str());
    let notes = notes::patch(&mut problems, "tenant", &mask, noted);
    problems.finish()?;
    let quota = (quota != QuotaPatch::default()).then_some(quota);
    let project = match mask.has("project", !tenant.project.is_empty()) {
        true => ProjectChange::from(project(&tenant.project)?),
        false => ProjectChange::Keep,
    };
    Ok(TenantPatch { weight, quota, notes, project })
}

/// Converts money spent of a budget in a month, which is given by its first second and that of the next month.
pub fn spending_to_wire(
    (from, to): (u64, u64),
    (spent, currency): (String, &str),
    level: BudgetLevel,
    at_limit: BudgetAction,
) -> v1::Spending {
    let second =
        |second: u64| Timestamp { seconds: i64::try_from(second).unwrap_or(i64::MAX), nanos: 0 };
    let level = match level {
        BudgetLevel::Within => Level::Within,
        BudgetLevel::Warned => Level::Warned,
        BudgetLevel::Reached => Level::Reached,
        BudgetLevel::Unknown => Level::Unknown,
    };
    v1::Spending {
        month_start_time: Some(second(from)),
        month_end_time: Some(second(to)),
        spent,
        currency: currency.to_owned(),
        level: level.into(),
        at_limit: at_limit.word().to_owned(),
    }
}

/// Converts a quota; every limit is set but a budget that is none.
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
        threads_max: Some(quota.threads_max),
        month_budget_micros: quota.month_budget.micros(),
    }
}
