//! Parses resource names in requests to domain ids, and prints them.
//!
//! Every parser fails with a [`FieldProblem`] for its field if the name is missing or malformed.

use std::str::FromStr;

use snic_domain::{
    BitstreamId, CardId, DagName, InvalidId, NtTypeId, OperationId, ProjectId, RegionId, RuleId,
    TenantId, limits,
};

use super::FieldProblem;
use crate::names::{
    self, BitstreamName, CardName, NtTypeName, OperationName, Parent, RegionName, ResourceName,
    RuleName, TenantName, excerpt,
};

type Result<T> = std::result::Result<T, FieldProblem>;

fn parse<'a, N: ResourceName<'a>>(field: &str, text: &'a str) -> Result<N> {
    if text.is_empty() {
        return Err(FieldProblem::required(field));
    }
    N::parse(text).map_err(|error| FieldProblem::name(field, error))
}

fn segment<T: FromStr<Err = InvalidId>>(field: &str, text: &str) -> Result<T> {
    text.parse().map_err(|error| FieldProblem::name(field, error))
}

/// Parses `tenants/{tenant}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn tenant(field: &str, text: &str) -> Result<TenantId> {
    segment(field, parse::<TenantName<'_>>(field, text)?.tenant)
}

/// Parses `tenants/{tenant}/dags/{dag}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn dag(field: &str, text: &str) -> Result<DagName> {
    let name: names::DagName<'_> = parse(field, text)?;
    Ok(DagName { tenant: segment(field, name.tenant)?, dag: segment(field, name.dag)? })
}

/// Parses `ntTypes/{id}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn nt_type(field: &str, text: &str) -> Result<NtTypeId> {
    segment(field, parse::<NtTypeName<'_>>(field, text)?.id)
}

/// Parses `bitstreams/{id}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn bitstream(field: &str, text: &str) -> Result<BitstreamId> {
    segment(field, parse::<BitstreamName<'_>>(field, text)?.id)
}

/// Parses `cards/{card}/regions/{region}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn region(field: &str, text: &str) -> Result<(CardId, RegionId)> {
    let name: RegionName<'_> = parse(field, text)?;
    let card = segment(field, name.card)?;
    let number = name.region.parse::<u8>().ok();
    let number = number.filter(|n| usize::from(*n) < limits::REGIONS_MAX);
    match number.filter(|n| n.to_string() == name.region) {
        Some(number) => Ok((card, RegionId(number))),
        None => {
            let last = limits::REGIONS_MAX - 1;
            let rule =
                format!("{:?} is not a valid region number (0 to {last})", excerpt(name.region));
            Err(FieldProblem::name(field, rule))
        }
    }
}

/// Parses `cards/{card}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn card(field: &str, text: &str) -> Result<CardId> {
    segment(field, parse::<CardName<'_>>(field, text)?.card)
}

/// Parses `classificationRules/{rule}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn rule(field: &str, text: &str) -> Result<RuleId> {
    segment(field, parse::<RuleName<'_>>(field, text)?.rule)
}

/// Parses `operations/{id}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn operation(field: &str, text: &str) -> Result<OperationId> {
    segment(field, parse::<OperationName<'_>>(field, text)?.id)
}

fn parent<'a, N: ResourceName<'a>>(field: &str, text: &'a str) -> Result<Option<N>> {
    if text.is_empty() {
        return Err(FieldProblem::required(field));
    }
    match Parent::parse(text).map_err(|error| FieldProblem::name(field, error))? {
        Parent::All => Ok(None),
        Parent::One(name) => Ok(Some(name)),
    }
}

/// Parses `projects/{project}`.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn project(field: &str, text: &str) -> Result<ProjectId> {
    let id = text.strip_prefix("projects/").ok_or_else(|| {
        FieldProblem::name(field, format_args!("{text:.80?} is not projects/<name>"))
    })?;
    ProjectId::new(id).map_err(|error| FieldProblem::name(field, error))
}

/// Parses `tenants/{tenant}`, or `tenants/-` for all.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn tenant_or_all(field: &str, text: &str) -> Result<Option<TenantId>> {
    let name: Option<TenantName<'_>> = parent(field, text)?;
    name.map(|name| segment(field, name.tenant)).transpose()
}

/// Parses `cards/{card}`, or `cards/-` for all.
///
/// # Errors
/// [`FieldProblem`] if it is missing or malformed.
pub fn card_or_all(field: &str, text: &str) -> Result<Option<CardId>> {
    let name: Option<CardName<'_>> = parent(field, text)?;
    name.map(|name| segment(field, name.card)).transpose()
}

/// The name of an NT type.
pub fn of_nt_type(id: &NtTypeId) -> String {
    format!("ntTypes/{id}")
}

/// The name of a bitstream.
pub fn of_bitstream(id: &BitstreamId) -> String {
    format!("bitstreams/{id}")
}

/// The name of a card.
pub fn of_card(id: &CardId) -> String {
    format!("cards/{id}")
}

/// The name of a region.
pub fn of_region(card: &CardId, region: RegionId) -> String {
    format!("cards/{card}/regions/{region}")
}

/// The name of a tenant.
pub fn of_tenant(id: &TenantId) -> String {
    format!("tenants/{id}")
}

/// The name of a project.
pub fn of_project(id: &ProjectId) -> String {
    format!("projects/{id}")
}

/// The name of a rule.
pub fn of_rule(id: &RuleId) -> String {
    format!("classificationRules/{id}")
}

/// The name of an operation.
pub fn of_operation(id: &OperationId) -> String {
    format!("operations/{id}")
}
