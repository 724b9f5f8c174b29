//! From what the control plane said to what the caller is told.
//!
//! The controller's texts name no resource but the caller's own. What a tenant is still not told
//! is why a card is missing: that may name devices and paths of the host.

use std::time::Duration;

use snic_api::convert::explanation::shortage_to_wire;
use snic_api::error::Failure;
use snic_api::v1::ErrorReason;
use snic_controller::{Caller, ControlError, FieldViolation, Work};
use snic_domain::{Refusal, Resource};

use crate::shell::ShellError;

/// When to try again what failed because something is not there at the moment.
pub(crate) const RETRY_SOON: Duration = Duration::from_secs(1);

/// What was being done: it decides what a state that stands against it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Something is created, changed or read.
    Change,
    /// A bitstream is uploaded: fields are those of its header.
    Upload,
    /// Something is deleted, or a region reset: users stand against it.
    Delete,
    /// An operation is cancelled.
    Cancel,
}

/// What a caller is told.
pub(crate) fn failure(error: ShellError, doing: Doing, caller: &Caller) -> Failure {
    match error {
        ShellError::Control(error) => of_control(error, doing, caller),
        ShellError::Store(error) => {
            tracing::error!(%error, "the store failed");
            let text = "the store cannot be written; nothing has changed";
            Failure::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
        }
        ShellError::Stopped => shutting_down(),
    }
}

/// The server is stopping.
pub(crate) fn shutting_down() -> Failure {
    let text = "the server is stopping; try again when it is back";
    Failure::new(ErrorReason::ShuttingDown, text).retry_after(RETRY_SOON)
}

/// A method, by its path, that this caller may not call.
pub(crate) fn denied(path: &str, who: &str) -> Failure {
    let method = path.rsplit('/').next().unwrap_or(path);
    let text = format!("{method} is for {who}");
    Failure::new(ErrorReason::PermissionDenied, text)
}

/// Why an operation failed.
pub(crate) fn of_operation(error: &ControlError, work: &Work, caller: &Caller) -> Failure {
    let doing = match work {
        Work::DeleteDag(..) | Work::ResetRegion(..) => Doing::Delete,
        _ => Doing::Change,
    };
    of_control(error.clone(), doing, caller)
}

/// What a caller is told of the controller's error.
pub(crate) fn of_control(error: ControlError, doing: Doing, caller: &Caller) -> Failure {
    let text = error.to_string();
    match error {
        ControlError::Invalid(violations) => invalid(&violations, doing),
        ControlError::NotFound { resource } => Failure::not_found(kind_of(&resource), resource),
        ControlError::AlreadyExists { resource } => Failure::exists(kind_of(&resource), resource),
        ControlError::EtagMismatch { resource, .. } => {
            Failure::etag_mismatch(kind_of(&resource), resource)
        }
        ControlError::Precondition { resource, description } => {
            let (reason, kind) = match doing {
                Doing::Delete => (ErrorReason::ResourceInUse, "IN_USE"),
                Doing::Cancel => (ErrorReason::NotCancellable, "NOT_CANCELLABLE"),
                Doing::Change | Doing::Upload => (ErrorReason::InvalidState, "STATE"),
            };
            Failure::new(reason, text).precondition(kind, resource, description)
        }
        ControlError::Quota { tenant, quota, limit, asked } => {
            Failure::new(ErrorReason::QuotaExceeded, &text)
                .violation(tenant, &text)
                .metadata("quota", quota)
                .metadata("limit", limit)
                .metadata("required", asked)
        }
        ControlError::Refused(refusal) => refused(&refusal),
        ControlError::NoCard(reason) => {
            let text = match caller {
                Caller::Operator(_) => format!("no card can be used: {reason}"),
                Caller::Tenant(_) | Caller::Orchestrator(_) => {
                    "no card can be used at the moment".to_owned()
                }
            };
            Failure::new(ErrorReason::CardUnavailable, text).retry_after(RETRY_SOON)
        }
        ControlError::Maintenance { .. } => Failure::new(ErrorReason::UnderMaintenance, text),
        ControlError::Cancelled => Failure::new(ErrorReason::OperationCancelled, text),
        ControlError::Superseded { resource } => Failure::new(ErrorReason::Superseded, &text)
            .resource(kind_of(&resource), resource, text),
        ControlError::RequestIdReused { .. } => {
            Failure::in_field(ErrorReason::RequestIdReused, "request_id", text)
        }
        ControlError::Exhausted { what, limit, .. } => {
            Failure::new(ErrorReason::InsufficientCapacity, &text)
                .violation(&what, text)
                .metadata("resource", what)
                .metadata("available", limit)
        }
    }
}

/// Every wrong field; the first says the reason.
fn invalid(violations: &[FieldViolation], doing: Doing) -> Failure {
    let path = |violation: &FieldViolation| match doing {
        Doing::Upload if violation.field != "request_id" => format!("header.{}", violation.field),
        _ => violation.field.clone(),
    };
    let Some((first, rest)) = violations.split_first() else {
        return Failure::new(ErrorReason::InvalidField, "the request is not valid");
    };
    let failure = Failure::in_field(reason_of(first, doing), &path(first), &first.description);
    rest.iter().fold(failure, |failure, next| failure.field(&path(next), &next.description))
}

fn reason_of(violation: &FieldViolation, doing: Doing) -> ErrorReason {
    let field = violation.field.as_str();
    let nt = field.ends_with(".nt_type") || (doing == Doing::Upload && field.starts_with("nts["));
    if nt {
        ErrorReason::UnknownNtType
    } else if field.starts_with("dag.nodes") || field.starts_with("dag.edges") {
        ErrorReason::InvalidGraph
    } else {
        ErrorReason::InvalidField
    }
}

/// Without a bitstream it is of no use to wait for room.
fn refused(refusal: &Refusal) -> Failure {
    let first = refusal.shortages.first();
    if let Some(short) = first.filter(|short| short.resource == Resource::Bitstreams) {
        let text = refusal.to_string();
        let nodes = short.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let failure = Failure::new(ErrorReason::NoBitstream, &text);
        return failure.precondition("NO_BITSTREAM", nodes, &short.detail);
    }
    let shortages: Vec<_> = refusal.shortages.iter().map(shortage_to_wire).collect();
    Failure::insufficient("the DAG", &shortages)
}

/// What a resource name names, for people.
pub(crate) fn kind_of(resource: &str) -> &'static str {
    match resource.split('/').collect::<Vec<_>>()[..] {
        ["tenants", _, "dags", _] => "DAG",
        ["tenants", _] => "tenant",
        ["ntTypes", _] => "network task type",
        ["bitstreams", _] => "bitstream",
        ["cards", _, "regions", _] => "region",
        ["cards", _] => "card",
        ["classificationRules", _] => "classification rule",
        ["operations", _] => "operation",
        ["vmBindings", _] => "binding",
        _ => "resource",
    }
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

    fn stands_against() -> ControlError {
        let (resource, description) = ("ntTypes/nat".into(), "it is used".into());
        ControlError::Precondition { resource, description }
    }

    fn short_of(resource: Resource) -> ControlError {
        let nodes = vec![NodeId::new("n").expect("valid")];
        let detail = "a detail".to_owned();
        let shortage = Shortage { resource, required: 9, available: 4, nodes, detail };
        ControlError::Refused(Refusal { shortages: vec![shortage] })
    }

    #[rstest]
    #[case(invalid("dag.nodes"), Doing::Change, ErrorReason::InvalidGraph)]
    #[case(invalid("dag.edges[3]"), Doing::Change, ErrorReason::InvalidGraph)]
    #[case(invalid("dag.nodes[3].nt_type"), Doing::Change, ErrorReason::UnknownNtType)]
    #[case(invalid("dag.bandwidth_bps"), Doing::Change, ErrorReason::InvalidField)]
    #[case(invalid("nts[1]"), Doing::Upload, ErrorReason::UnknownNtType)]
    #[case(invalid("nts"), Doing::Upload, ErrorReason::InvalidField)]
    #[case(stands_against(), Doing::Delete, ErrorReason::ResourceInUse)]
    #[case(stands_against(), Doing::Cancel, ErrorReason::NotCancellable)]
    #[case(stands_against(), Doing::Change, ErrorReason::InvalidState)]
    #[case(short_of(Resource::Bitstreams), Doing::Change, ErrorReason::NoBitstream)]
    #[case(short_of(Resource::Regions), Doing::Change, ErrorReason::InsufficientCapacity)]
    #[case(ControlError::NoCard("x".into()), Doing::Change, ErrorReason::CardUnavailable)]
    #[case(ControlError::Cancelled, Doing::Change, ErrorReason::OperationCancelled)]
    #[case(
        ControlError::Superseded { resource: "tenants/a".into() },
        Doing::Change,
        ErrorReason::Superseded
    )]
    #[case(
        ControlError::RequestIdReused { id: "x".into() },
        Doing::Change,
        ErrorReason::RequestIdReused
    )]
    #[case(
        ControlError::Exhausted { what: "rows".into(), limit: 9, hint: "wait".into() },
        Doing::Change,
        ErrorReason::InsufficientCapacity
    )]
    fn every_error_has_its_reason(
        #[case] error: ControlError,
        #[case] doing: Doing,
        #[case] reason: ErrorReason,
    ) {
        let failure = of_control(error, doing, &tenant());
        assert_eq!(failure.reason(), reason);
        assert!(!failure.message().is_empty());
    }

    #[test]
    fn fields_of_an_upload_are_those_of_its_header() {
        for (field, path) in [("nts[0]", "header.nts[0]"), ("request_id", "request_id")] {
            let status = Status::from(of_control(invalid(field), Doing::Upload, &operator()));
            let bad = status.get_details_bad_request().expect("a BadRequest");
            assert_eq!(bad.field_violations[0].field, path);
        }
    }

    #[test]
    fn a_shortage_is_told_in_figures() {
        let status =
            Status::from(of_control(short_of(Resource::Regions), Doing::Change, &tenant()));
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
    fn why_a_card_is_missing_is_for_operators() {
        let error = || ControlError::NoCard("card c0: /dev/x does not open".into());
        let told = |caller| of_control(error(), Doing::Change, &caller).message().to_owned();
        assert!(told(operator()).contains("/dev/x"));
        assert!(!told(tenant()).contains("/dev/x") && !told(tenant()).contains("c0"));
    }

    #[test]
    fn what_will_pass_says_when_to_try_again() {
        let store = snic_ports::store::StoreError::Stopped("disk full at /var".into());
        for error in [ShellError::Store(store), ShellError::Stopped] {
            let status = Status::from(failure(error, Doing::Change, &operator()));
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.get_details_retry_info().is_some());
            assert!(!status.message().contains("/var"), "{}", status.message());
        }
    }

    #[test]
    fn an_operation_fails_in_the_words_of_its_work() {
        let work = Work::ResetRegion(CardId::new("c").expect("valid"), RegionId(1));
        let failure = of_operation(&stands_against(), &work, &operator());
        assert_eq!(failure.reason(), ErrorReason::ResourceInUse);
    }

    #[rstest]
    #[case("tenants/a/dags/b", "DAG")]
    #[case("tenants/a", "tenant")]
    #[case("ntTypes/a.b", "network task type")]
    #[case("bitstreams/x", "bitstream")]
    #[case("cards/c/regions/1", "region")]
    #[case("cards/c", "card")]
    #[case("classificationRules/r", "classification rule")]
    #[case("operations/o", "operation")]
    #[case("what this request made before", "resource")]
    fn a_name_says_what_it_names(#[case] name: &str, #[case] kind: &str) {
        assert_eq!(kind_of(name), kind);
    }
}
