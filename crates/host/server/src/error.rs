//! Converts the control plane's errors to those of the API.
//!
//! The controller's messages name only resources of the caller. Tenants do not learn why a card is
//! missing, because the reason may contain devices and paths of the host.

use snic_api::convert::explanation::shortage_to_wire;
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use snic_controller::{ControlError, FieldViolation, OperationWork};
use snic_domain::{Caller, Infeasible, Resource};
use snic_front::error::{RETRY_SOON, kind_of, overloaded, shutting_down};

use crate::shell::ShellError;

/// Kind of the failed operation: decides the reason of a failed precondition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// Create, update or read.
    Change,
    /// Upload of a bitstream: fields are those of its header.
    Upload,
    /// Delete, or reset of a region: prevented by users of the resource.
    Delete,
    /// Cancellation of an operation.
    Cancel,
}

/// The API's error for the caller.
pub(crate) fn failure(error: ShellError, kind: OperationKind, caller: &Caller) -> ApiError {
    match error {
        ShellError::Control(error) => of_control(error, kind, caller),
        ShellError::Store(error) => {
            tracing::error!(%error, "the store failed");
            let text = "the store cannot be written, so nothing was changed; try again later";
            ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
        }
        ShellError::Stopped => shutting_down(),
        ShellError::Overloaded { limit } => {
            let text = format!("{error}; wait for some to end, or try again later");
            overloaded(text, limit)
        }
    }
}

/// Why an operation failed.
pub(crate) fn of_operation(
    error: &ControlError,
    work: &OperationWork,
    caller: &Caller,
) -> ApiError {
    let kind = match work {
        OperationWork::DeleteDag(..)
        | OperationWork::ResetRegion(..)
        | OperationWork::DeleteBitstream(_)
        | OperationWork::DeleteTenant(_) => OperationKind::Delete,
        _ => OperationKind::Change,
    };
    of_control(error.clone(), kind, caller)
}

/// The API's error for an error of the controller.
pub(crate) fn of_control(error: ControlError, kind: OperationKind, caller: &Caller) -> ApiError {
    let text = error.to_string();
    match error {
        ControlError::Invalid(violations) => invalid(&violations, kind),
        ControlError::NotFound { resource } => ApiError::not_found(kind_of(&resource), resource),
        ControlError::AlreadyExists { resource } => ApiError::exists(kind_of(&resource), resource),
        ControlError::EtagMismatch { resource, .. } => {
            ApiError::etag_mismatch(kind_of(&resource), resource)
        }
        ControlError::Precondition { resource, description } => {
            let (reason, kind) = match kind {
                OperationKind::Delete => (ErrorReason::ResourceInUse, "IN_USE"),
                OperationKind::Cancel => (ErrorReason::NotCancellable, "NOT_CANCELLABLE"),
                OperationKind::Change | OperationKind::Upload => {
                    (ErrorReason::InvalidState, "STATE")
                }
            };
            ApiError::new(reason, text).precondition(kind, resource, description)
        }
        ControlError::Quota { tenant, quota, limit, used, asked } => {
            ApiError::new(ErrorReason::QuotaExceeded, &text)
                .violation(tenant, &text)
                .metadata("quota", quota)
                .metadata("limit", limit)
                .metadata("used", used)
                .metadata("required", asked)
        }
        ControlError::Budget { tenant, budget, spent, until } => {
            over_budget(&text, tenant, &[("limit", budget), ("used", spent), ("until", until)])
        }
        ControlError::BudgetUnknown { tenant, budget } => {
            over_budget(&text, tenant, &[("limit", budget)])
        }
        ControlError::Refused(refusal) => refused(&refusal),
        ControlError::NoCard(reason) => {
            let text = match caller {
                Caller::Operator(_) => format!("no card is available: {reason}"),
                Caller::Tenant(_) | Caller::Orchestrator(_) => {
                    "no card is available at the moment; try again later".to_owned()
                }
            };
            ApiError::new(ErrorReason::CardUnavailable, text).retry_after(RETRY_SOON)
        }
        ControlError::StoreUnavailable { .. } => {
            ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
        }
        ControlError::InBatch { index, failed, total, error } => {
            let one = of_control(*error, kind, caller).within(&format!("requests[{index}]"));
            one.adding(format_args!(
                "; nothing was created, because {failed} of {total} DAGs cannot be"
            ))
        }
        ControlError::Outdated => {
            ApiError::new(ErrorReason::PlanOutdated, text).retry_after(RETRY_SOON)
        }
        ControlError::SearchFailed { resource } => ApiError::internal(resource),
        ControlError::Maintenance { .. } => ApiError::new(ErrorReason::UnderMaintenance, text),
        ControlError::Cancelled => ApiError::new(ErrorReason::OperationCancelled, text),
        ControlError::Superseded { resource } => ApiError::new(ErrorReason::Superseded, &text)
            .resource(kind_of(&resource), resource, text),
        ControlError::RequestIdReused { .. } => {
            ApiError::in_field(ErrorReason::RequestIdReused, "request_id", text)
        }
        ControlError::Exhausted { what, limit, .. } => {
            ApiError::new(ErrorReason::InsufficientCapacity, &text)
                .violation(&what, text)
                .metadata("resource", what)
                .metadata("available", limit)
        }
    }
}

/// A tenant has spent its budget.
fn over_budget(text: &str, tenant: String, amounts: &[(&'static str, String)]) -> ApiError {
    let error = ApiError::new(ErrorReason::QuotaExceeded, text).violation(tenant, text);
    let error = error.metadata("quota", "month_budget");
    amounts.iter().fold(error, |error, (name, amount)| error.metadata(name, amount.clone()))
}

/// All invalid fields; the first determines the reason.
fn invalid(violations: &[FieldViolation], kind: OperationKind) -> ApiError {
    let path = |violation: &FieldViolation| match kind {
        OperationKind::Upload if violation.field != "request_id" => {
            format!("header.{}", violation.field)
        }
        _ => violation.field.clone(),
    };
    let Some((first, rest)) = violations.split_first() else {
        return ApiError::new(ErrorReason::InvalidField, "invalid request");
    };
    let failure = ApiError::in_field(reason_of(first, kind), &path(first), &first.description);
    rest.iter().fold(failure, |failure, next| failure.field(&path(next), &next.description))
}

fn reason_of(violation: &FieldViolation, kind: OperationKind) -> ErrorReason {
    let field = violation.field.as_str();
    let nt =
        field.ends_with(".nt_type") || (kind == OperationKind::Upload && field.starts_with("nts["));
    if nt {
        ErrorReason::UnknownNtType
    } else if field.starts_with("dag.nodes") || field.starts_with("dag.edges") {
        ErrorReason::InvalidGraph
    } else {
        ErrorReason::InvalidField
    }
}

/// A missing bitstream is a precondition: waiting for capacity would not help.
fn refused(refusal: &Infeasible) -> ApiError {
    let first = refusal.shortages.first();
    if let Some(short) = first.filter(|short| short.resource == Resource::Bitstreams) {
        let text = refusal.to_string();
        let nodes = short.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let failure = ApiError::new(ErrorReason::NoBitstream, &text);
        return failure.precondition("NO_BITSTREAM", nodes, &short.detail);
    }
    let shortages: Vec<_> = refusal.shortages.iter().map(shortage_to_wire).collect();
    ApiError::insufficient("the DAG", &shortages)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use snic_domain::{CardId, NodeId, RegionId, Shortage, TenantId};
    use tonic::{Code, Status};
    use tonic_types::StatusExt as _;

    use super::*;

    fn tenant() -> Caller {
        Caller::Tenant(TenantId::new("acme").expect("valid"))
    }

    fn operator() -> Caller {
        Caller::Operator("root".into())
    }

    fn invalid(field: &str) -> ControlError {
        ControlError::invalid(field, "it is wrong")
    }

    fn precondition() -> ControlError {
        let (resource, description) = ("ntTypes/nat".into(), "it is used".into());
        ControlError::Precondition { resource, description }
    }

    fn shortage_of(resource: Resource) -> ControlError {
        let nodes = vec![NodeId::new("n").expect("valid")];
        let detail = "a detail".to_owned();
        let shortage = Shortage { resource, required: 9, available: 4, nodes, detail };
        ControlError::Refused(Infeasible { shortages: vec![shortage] })
    }

    #[rstest]
    #[case(invalid("dag.nodes"), OperationKind::Change, ErrorReason::InvalidGraph)]
    #[case(invalid("dag.edges[3]"), OperationKind::Change, ErrorReason::InvalidGraph)]
    #[case(invalid("dag.nodes[3].nt_type"), OperationKind::Change, ErrorReason::UnknownNtType)]
    #[case(invalid("dag.bandwidth_bps"), OperationKind::Change, ErrorReason::InvalidField)]
    #[case(invalid("nts[1]"), OperationKind::Upload, ErrorReason::UnknownNtType)]
    #[case(invalid("nts"), OperationKind::Upload, ErrorReason::InvalidField)]
    #[case(precondition(), OperationKind::Delete, ErrorReason::ResourceInUse)]
    #[case(precondition(), OperationKind::Cancel, ErrorReason::NotCancellable)]
    #[case(precondition(), OperationKind::Change, ErrorReason::InvalidState)]
    #[case(shortage_of(Resource::Bitstreams), OperationKind::Change, ErrorReason::NoBitstream)]
    #[case(
        shortage_of(Resource::Regions),
        OperationKind::Change,
        ErrorReason::InsufficientCapacity
    )]
    #[case(ControlError::NoCard("x".into()), OperationKind::Change, ErrorReason::CardUnavailable)]
    #[case(ControlError::Cancelled, OperationKind::Change, ErrorReason::OperationCancelled)]
    #[case(
        ControlError::Superseded { resource: "tenants/a".into() },
        OperationKind::Change,
        ErrorReason::Superseded
    )]
    #[case(
        ControlError::RequestIdReused { id: "x".into() },
        OperationKind::Change,
        ErrorReason::RequestIdReused
    )]
    #[case(
        ControlError::Exhausted { what: "rows".into(), limit: 9, hint: "wait".into() },
        OperationKind::Change,
        ErrorReason::InsufficientCapacity
    )]
    #[case(ControlError::Outdated, OperationKind::Change, ErrorReason::PlanOutdated)]
    #[case(
        ControlError::SearchFailed { resource: "cards/card0".into() },
        OperationKind::Change,
        ErrorReason::Internal
    )]
    #[case(
        ControlError::InBatch {
            index: 1,
            failed: 1,
            total: 2,
            error: Box::new(shortage_of(Resource::Regions)),
        },
        OperationKind::Change,
        ErrorReason::InsufficientCapacity
    )]
    fn every_error_has_a_reason(
        #[case] error: ControlError,
        #[case] kind: OperationKind,
        #[case] reason: ErrorReason,
    ) {
        let failure = of_control(error, kind, &tenant());
        assert_eq!(failure.reason(), reason);
        assert!(!failure.message().is_empty());
    }

    #[test]
    fn fields_of_an_upload_are_those_of_its_header() {
        for (field, path) in [("nts[0]", "header.nts[0]"), ("request_id", "request_id")] {
            let status =
                Status::from(of_control(invalid(field), OperationKind::Upload, &operator()));
            let bad = status.get_details_bad_request().expect("a BadRequest");
            assert_eq!(bad.field_violations[0].field, path);
        }
    }

    #[test]
    fn a_shortage_has_numbers() {
        let status = Status::from(of_control(
            shortage_of(Resource::Regions),
            OperationKind::Change,
            &tenant(),
        ));
        let metadata = status.get_details_error_info().expect("always there").metadata;
        let value = |key: &str| metadata.get(key).map(String::as_str);
        assert_eq!((value("resource"), value("unit")), (Some("REGIONS"), Some("regions")));
        assert_eq!((value("required"), value("available")), (Some("9"), Some("4")));
        assert_eq!(
            status.get_details_quota_failure().expect("one").violations[0].subject,
            "the DAG"
        );
    }

    #[test]
    fn only_operators_learn_why_a_card_is_missing() {
        let error = || ControlError::NoCard("card c0: /dev/x does not open".into());
        let told =
            |caller| of_control(error(), OperationKind::Change, &caller).message().to_owned();
        assert!(told(operator()).contains("/dev/x"));
        assert!(!told(tenant()).contains("/dev/x") && !told(tenant()).contains("c0"));
    }

    #[test]
    fn temporary_failures_have_a_retry_delay() {
        let store = snic_ports::store::StoreError::Stopped("disk full at /var".into());
        for error in [ShellError::Store(store), ShellError::Stopped] {
            let status = Status::from(failure(error, OperationKind::Change, &operator()));
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.get_details_retry_info().is_some());
            assert!(!status.message().contains("/var"), "{}", status.message());
        }
    }

    #[test]
    fn the_reason_depends_on_the_operation() {
        let work = OperationWork::ResetRegion(CardId::new("c").expect("valid"), RegionId(1));
        let failure = of_operation(&precondition(), &work, &operator());
        assert_eq!(failure.reason(), ErrorReason::ResourceInUse);
    }
}
